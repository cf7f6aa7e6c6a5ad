/* SPDX-License-Identifier: Apache-2.0 */
/* Reading checkpoints and writing rank files: exactly the bytes needed, faults of files, and the file form. */
#include "replay_testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files with faults ---- */

typedef struct faulty {
    int64_t payload_off; /* reads below are those of headers */
    int64_t payload_bytes, reads;
    int64_t fault_at; /* number of the payload read that fails; < 0: none */
    int fault;        /* -errno, or 0: an early end */
    bool short_reads, interrupted;
    const char *touch; /* path to change during the read number fault_at */
} faulty;

static int64_t faulty_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    faulty *f = context;
    const lp_io *io = lp_io_default();
    if (off >= f->payload_off) {
        const int64_t n = f->reads++;
        if (f->interrupted && n % 2 == 0)
            return -EINTR;
        if (n == f->fault_at && f->touch != NULL) {
            const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000}};
            assert_int_equal(utimensat(AT_FDCWD, f->touch, times, 0), 0);
        } else if (n == f->fault_at) {
            return f->fault;
        }
        if (f->short_reads && bytes > 3)
            bytes = 3;
    }
    const int64_t n = io->pread(io->context, fd, buffer, bytes, off);
    if (off >= f->payload_off && n > 0)
        f->payload_bytes += n;
    return n;
}

static int default_open(void *context, const char *path, int flags, int mode)
{
    (void)context;
    return lp_io_default()->open(NULL, path, flags, mode);
}
static int default_close(void *context, int fd)
{
    (void)context;
    return lp_io_default()->close(NULL, fd);
}
static int64_t default_pwrite(void *context, int fd, const void *buffer, size_t bytes, int64_t off)
{
    (void)context;
    return lp_io_default()->pwrite(NULL, fd, buffer, bytes, off);
}
static int default_stat(void *context, int fd, lp_file_stat *out)
{
    (void)context;
    return lp_io_default()->stat(NULL, fd, out);
}
static int default_fsync(void *context, int fd)
{
    (void)context;
    return lp_io_default()->fsync(NULL, fd);
}
static int default_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return lp_io_default()->rename(NULL, from, to);
}
static int default_unlink(void *context, const char *path)
{
    (void)context;
    return lp_io_default()->unlink(NULL, path);
}

static lp_io faulty_io(faulty *f)
{
    return (lp_io){.size = sizeof(lp_io),
                   .context = f,
                   .open = default_open,
                   .close = default_close,
                   .pread = faulty_pread,
                   .pwrite = default_pwrite,
                   .stat = default_stat,
                   .fsync = default_fsync,
                   .rename = default_rename,
                   .unlink = default_unlink};
}

/* ---- a checkpoint on disk ---- */

typedef struct disk {
    world w;
    payload p;
    image live, want;
    char folder[64], path[96];
    int64_t payload_off;
    faulty f;
    lp_io io;
    lp_platform platform;
    lp_checkpoint *ck;
    lp_plan *plan;
} disk;

static void open_disk(disk *d)
{
    memset(d, 0, sizeof *d);
    world *w = &d->w;
    w->random = 21;
    const int row = add_source(w, "z.row_parallel", LP_F32, 6, 8), whole = add_source(w, "b.whole", LP_F32, 3, 4);
    const int cast = add_source(w, "c.cast", LP_BF16, 5, 3), other = add_source(w, "a.other_rank", LP_U8, 100, 1);
    const int fill = add_source(w, "d.only_fills", LP_F32, 1, 9);
    (void)other;
    /* columns 4 .. 7 of six rows */
    const int to = add_dest(w, "row_parallel", LP_F32, 6, 4, 0, "g");
    w->call[w->ncall++] =
        (call){.source = row, .trigger = row, .dest = to, .size = {6, 4}, .src_at = 4, .src_step = {8, 1}};
    add_copy(w, whole, add_dest(w, "whole", LP_F32, 3, 4, 4, "g"), 0, 3, 0);
    const int narrow = add_dest(w, "cast", LP_F32, 2, 3, 0, "g");
    add_copy(w, cast, narrow, 0, 2, 3); /* rows 3 and 4 */
    add_fill(w, fill, add_dest(w, "filled", LP_F32, 2, 2, 0, "g"), 0, 2, 0x40000000);
    w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, add_dest(w, "exp", LP_F32, 3, 4, 0, "g"), -1, whole};
    build_world(w, NULL);
    d->p = make_payload(w);
    d->live = new_image(w);
    d->want = new_image(w);
    model_load(w, &d->p, &d->want);
    snprintf(d->folder, sizeof d->folder, "/tmp/loadplan-replay-XXXXXX");
    assert_non_null(mkdtemp(d->folder));
    snprintf(d->path, sizeof d->path, "%s/model.safetensors", d->folder);
    d->payload_off = write_world(&d->w, &d->p, d->path);
    d->f = (faulty){.payload_off = d->payload_off, .fault_at = -1};
    d->io = faulty_io(&d->f);
    d->platform = (lp_platform){.io = &d->io};
    assert_ok(w, lp_checkpoint_open_with(&d->ck, d->folder, &d->platform, &w->err));
    d->f.payload_bytes = d->f.reads = 0;
    d->plan = bind_image(w, &d->live, &(lp_bind_options){.platform = &d->platform});
}

static void close_disk(disk *d)
{
    char command[96];
    lp_plan_close(d->plan);
    lp_checkpoint_close(d->ck);
    free_image(&d->w, &d->live);
    free_image(&d->w, &d->want);
    free_payload(&d->w, &d->p);
    free_world(&d->w);
    snprintf(command, sizeof command, "rm -r %s", d->folder);
    assert_int_equal(system(command), 0);
}

static lp_session *begin(disk *d)
{
    lp_session *s;
    assert_ok(&d->w, lp_begin(&s, d->plan, NULL, &d->w.err));
    return s;
}

/* 6 rows of 16 bytes, 48 whole, 12 of the cast: nothing else, and every byte once. */
enum { NEEDED = 6 * 16 + 48 + 12 };

static void test_reads_exactly_what_is_needed(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        disk d;
        lp_read_stats stats;
        open_disk(&d);
        d.f.short_reads = kind & 1;
        d.f.interrupted = kind & 2;
        lp_session *s = begin(&d);
        assert_ok(&d.w, lp_push_checkpoint_with(s, d.ck, &stats, NULL, NULL, &d.w.err));
        assert_ok(&d.w, lp_finish(s, NULL, &d.w.err));
        lp_session_close(s);
        assert_int_equal(stats.bytes_read, NEEDED);
        assert_int_equal(d.f.payload_bytes, NEEDED);
        assert_int_equal(stats.ranges, 8);
        assert_int_equal(stats.files, 1);
        assert_same_image(&d.w, &d.live, &d.want, "from file");
        close_disk(&d);
    }
}

/* A read error leaves a session that can go on: what has arrived is not read again. */
static void test_read_errors_can_be_repeated(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 7; n++) { /* of 8 ranges two lie in a row and come with one read */
        disk d;
        open_disk(&d);
        d.f.fault_at = n;
        d.f.fault = n % 2 == 0 ? -EIO : 0;
        lp_session *s = begin(&d);
        const lp_status status = lp_push_checkpoint(s, d.ck, &d.w.err);
        assert_int_equal(status, n % 2 == 0 ? LP_E_IO : LP_E_CORRUPT);
        assert_non_null(strstr(d.w.err.text, "model.safetensors"));
        assert_int_equal(lp_finish(s, NULL, &d.w.err), LP_E_INCOMPLETE);
        assert_ok(&d.w, lp_push_checkpoint(s, d.ck, &d.w.err));
        assert_ok(&d.w, lp_finish(s, NULL, &d.w.err));
        lp_session_close(s);
        assert_int_equal(d.f.payload_bytes, NEEDED);
        assert_same_image(&d.w, &d.live, &d.want, "after a repeated read");
        close_disk(&d);
    }
}

static void test_truncated_and_changed_files(void **state)
{
    (void)state;
    disk d;
    open_disk(&d);
    assert_int_equal(truncate(d.path, d.payload_off + 40), 0);
    lp_session *s = begin(&d);
    assert_int_equal(lp_push_checkpoint(s, d.ck, &d.w.err), LP_E_CORRUPT);
    assert_non_null(strstr(d.w.err.text, "it had"));
    lp_session_close(s);
    close_disk(&d);

    open_disk(&d); /* touched between header and payload */
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, d.path, times, 0), 0);
    s = begin(&d);
    assert_int_equal(lp_push_checkpoint(s, d.ck, &d.w.err), LP_E_CORRUPT);
    assert_non_null(strstr(d.w.err.text, "changed since its header was read"));
    assert_int_equal(d.f.payload_bytes, 0);
    lp_session_close(s);
    close_disk(&d);

    open_disk(&d); /* changed while it is read: bytes of two versions may be in */
    d.f.fault_at = 3;
    d.f.touch = d.path;
    s = begin(&d);
    assert_int_equal(lp_push_checkpoint(s, d.ck, &d.w.err), LP_E_CORRUPT);
    assert_int_equal(lp_finish(s, NULL, &d.w.err), LP_E_POISONED);
    lp_session_close(s);
    close_disk(&d);

    open_disk(&d); /* gone */
    unlink(d.path);
    s = begin(&d);
    assert_int_equal(lp_push_checkpoint(s, d.ck, &d.w.err), LP_E_IO);
    lp_session_close(s);
    write_world(&d.w, &d.p, d.path);
    close_disk(&d);
}

static void test_other_checkpoints_are_stale(void **state)
{
    (void)state;
    disk d;
    open_disk(&d);
    lp_checkpoint_close(d.ck);
    d.w.source[1].shape[0] = 4;
    d.w.source[1].shape[1] = 3;
    write_world(&d.w, &d.p, d.path);
    assert_ok(&d.w, lp_checkpoint_open_with(&d.ck, d.folder, &d.platform, &d.w.err));
    lp_session *s = begin(&d);
    assert_int_equal(lp_push_checkpoint(s, d.ck, &d.w.err), LP_E_STALE);
    lp_session_close(s);
    assert_int_equal(lp_trace_match(d.w.trace, d.ck, &d.w.err), LP_E_STALE);
    s = begin(&d); /* a catalogue without files has nothing to read */
    assert_int_equal(lp_push_checkpoint(s, d.w.checkpoint, &d.w.err), LP_E_ARGUMENT);
    lp_session_close(s);
    close_disk(&d);
}

static int stop_at_once(void *context, int64_t done, int64_t total)
{
    int64_t *seen = context;
    *seen = done;
    assert_true(done <= total);
    return 1;
}

static void test_progress_can_stop(void **state)
{
    (void)state;
    disk d;
    int64_t seen = 0;
    open_disk(&d);
    lp_session *s = begin(&d);
    assert_int_equal(lp_push_checkpoint_with(s, d.ck, NULL, stop_at_once, &seen, &d.w.err), LP_E_IO);
    assert_true(seen > 0);
    lp_session_close(s);
    close_disk(&d);
}

/* ---- rank files ---- */

typedef struct differences {
    int count;
    char name[4][32];
    int64_t byte[4];
} differences;

static void note_difference(void *context, const lp_destination *row, const char *how, int64_t byte)
{
    differences *d = context;
    (void)how;
    snprintf(d->name[d->count % 4], 32, "%s", row->name);
    d->byte[d->count++ % 4] = byte;
}

/* x transposed, its first row under another name, the same again in the middle, gaps, and a scratch buffer. */
static void aliased_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->random = 31;
    const int from = add_source(w, "x", LP_F32, 4, 3), bytes = add_source(w, "y", LP_BF16, 3, 3);
    const int turned = add_dest(w, "turned", LP_F32, 4, 3, 0, "g");
    w->dest[turned].stride[0] = 4;
    w->dest[turned].stride[1] = 16;
    add_copy(w, from, turned, 0, 4, 0);
    const int gaps = add_dest(w, "gaps", LP_BF16, 3, 3, 2, "g");
    add_copy(w, bytes, gaps, 0, 3, 0);
    const int scratch = add_dest(w, "scratch", LP_F32, 1, 2, 0, "g");
    w->dest[scratch].flags = LP_DEST_NO_LOADER;
    const int row = add_dest(w, "zrow", LP_F32, 1, 4, 0, "g"); /* column 1 of turned */
    snprintf(w->dest[row].storage, sizeof w->dest[row].storage, "turned");
    w->dest[row].offset = 16;
    w->dest[row].storage_bytes = w->dest[turned].storage_bytes;
    w->dest[row].flags = LP_DEST_TIED;
    build_world(w, NULL);
}

static void test_rank_files(void **state)
{
    (void)state;
    world w;
    lp_destinations *memory;
    lp_plan *plan;
    lp_session *s;
    int64_t count, written;
    char path[64];
    aliased_world(&w);
    payload p = make_payload(&w);
    snprintf(path, sizeof path, "/tmp/loadplan-rank-%d.safetensors", (int)getpid());
    unlink(path);
    assert_ok(&w, lp_destinations_allocate(&memory, w.trace, NULL, false, NULL, &w.err));
    const lp_destination_memory *list = lp_destinations_list(memory, &count);
    assert_int_equal(lp_destinations_bytes(memory), 48 + 24 + 8);
    assert_ok(&w, lp_bind(&plan, w.trace, NULL, list, count, NULL, &w.err));
    assert_ok(&w, lp_begin(&s, plan, NULL, &w.err));
    push_all(&w, s, &p);
    assert_ok(&w, lp_finish(s, NULL, &w.err));
    lp_session_close(s);
    assert_ok(&w, lp_rank_file_write(plan, path, false, NULL, NULL, &written, &w.err));
    assert_int_equal(lp_rank_file_write(plan, path, false, NULL, NULL, NULL, &w.err), LP_E_EXISTS);
    assert_ok(&w, lp_rank_file_write(plan, path, true, NULL, NULL, NULL, &w.err));
    lp_checkpoint *file;
    assert_ok(&w, lp_checkpoint_open(&file, path, &w.err));
    assert_int_equal(lp_checkpoint_count(file), 2); /* the alias and the scratch buffer are not there */
    const lp_checkpoint_tensor *t = lp_checkpoint_at(file, lp_checkpoint_find(file, "turned"));
    assert_int_equal(t->shape[0], 3); /* physical order */
    assert_int_equal(t->shape[1], 4);
    uint8_t payload_bytes[64];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, t->file_off, SEEK_SET), 0);
    assert_int_equal(fread(payload_bytes, 1, 48, f), 48);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++)
            assert_memory_equal(payload_bytes + 16 * j + 4 * i, p.data[0] + 12 * i + 4 * j, 4);
    t = lp_checkpoint_at(file, lp_checkpoint_find(file, "gaps"));
    assert_int_equal(fseek(f, t->file_off, SEEK_SET), 0);
    assert_int_equal(fread(payload_bytes, 1, 18, f), 18);
    assert_memory_equal(payload_bytes, p.data[1], 18);
    char header[4096];
    rewind(f);
    const size_t bytes = fread(header, 1, sizeof header - 1, f);
    fclose(f);
    header[bytes] = '\0';
    assert_non_null(strstr(header + 8, "\\\"alias_of\\\":\\\"turned\\\",\\\"offset\\\":16"));
    assert_non_null(strstr(header + 8, "\\\"shape\\\":[4,3],\\\"stride\\\":[4,16],\\\"order\\\":[1,0]"));
    assert_int_equal(written, (int64_t)bytes);
    lp_checkpoint_close(file);
    differences d = {.count = 0};
    assert_ok(&w, lp_rank_file_compare(plan, path, note_difference, &d, &w.err));
    assert_int_equal(d.count, 0);
    for (uint32_t i = 0; i < (uint32_t)count; i++) /* one changed byte in the second column of turned */
        if (strcmp(list[i].name, "turned") == 0)
            ((uint8_t *)lp_plan_address(plan, i))[16 + 5] ^= 0x10;
    assert_ok(&w, lp_rank_file_compare(plan, path, note_difference, &d, &w.err));
    assert_int_equal(d.count, 1);
    assert_string_equal(d.name[0], "turned");
    assert_int_equal(d.byte[0], 21);
    unlink(path);
    assert_int_equal(lp_rank_file_compare(plan, path, note_difference, &d, &w.err), LP_E_IO);
    lp_plan_close(plan);
    lp_destinations_free(memory);
    free_payload(&w, &p);
    free_world(&w);
}

static void test_local_ids(void **state)
{
    (void)state;
    disk d;
    uint8_t a[32], b[32];
    open_disk(&d);
    assert_int_equal(lp_checkpoint_local_id(d.w.checkpoint, a, &d.w.err), LP_E_UNSUPPORTED);
    assert_ok(&d.w, lp_checkpoint_local_id(d.ck, a, &d.w.err));
    lp_checkpoint_close(d.ck);
    assert_ok(&d.w, lp_checkpoint_open(&d.ck, d.path, &d.w.err)); /* by file rather than by folder */
    assert_ok(&d.w, lp_checkpoint_local_id(d.ck, b, &d.w.err));
    assert_memory_equal(a, b, 32);
    lp_checkpoint_close(d.ck);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, d.path, times, 0), 0);
    assert_ok(&d.w, lp_checkpoint_open(&d.ck, d.path, &d.w.err));
    assert_ok(&d.w, lp_checkpoint_local_id(d.ck, b, &d.w.err));
    assert_memory_not_equal(a, b, 32);
    close_disk(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_exactly_what_is_needed),
        cmocka_unit_test(test_read_errors_can_be_repeated),
        cmocka_unit_test(test_truncated_and_changed_files),
        cmocka_unit_test(test_other_checkpoints_are_stale),
        cmocka_unit_test(test_progress_can_stop),
        cmocka_unit_test(test_rank_files),
        cmocka_unit_test(test_local_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
