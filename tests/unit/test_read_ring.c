/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading with several threads, direct and through the cache, under short reads, interruptions, errors and early ends.
 * A checkpoint of 40 MB with columns of rows, transposed words, a cast and many small tensors is loaded from its file
 * and compared with what pushes from memory give.
 */
#include "map_oracle.h"

#include "replayer/file_residency.h"
#include "replayer/read_ring.h"
#include "replayer/replayer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SMALL = 300, /* tensors of 10 bytes */
    BIG = 4,
    TENSORS = SMALL + BIG,
    ROWS = 4096
};

/* ---- a file system that fails on demand; counted under a lock, because readers call it from several threads ---- */

typedef struct faults {
    pthread_mutex_t lock;
    int64_t payload_off;
    int64_t reads, bytes, direct_reads;
    int64_t fail_at; /* number of a payload read; < 0: none */
    int64_t failure; /* what it returns: -errno, or 0 for an early end */
    bool short_reads, interrupted, refuses_direct, refuses_direct_open;
    bool is_direct[1024]; /* by descriptor */
} faults;

static int fault_open(void *context, const char *path, int flags, int mode)
{
    faults *f = context;
    if ((flags & O_DIRECT) != 0 && f->refuses_direct_open)
        return -EINVAL;
    const int fd = lp_io_default()->open(NULL, path, flags, mode);
    if (fd >= 0 && fd < 1024)
        f->is_direct[fd] = (flags & O_DIRECT) != 0;
    return fd;
}

static int64_t fault_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    faults *f = context;
    if (off < f->payload_off && !f->is_direct[fd])
        return lp_io_default()->pread(NULL, fd, buffer, bytes, off);
    pthread_mutex_lock(&f->lock);
    const int64_t number = f->reads++;
    f->direct_reads += f->is_direct[fd];
    pthread_mutex_unlock(&f->lock);
    if (f->is_direct[fd]) {
        assert_int_equal((uintptr_t)buffer % LP_DIRECT_UNIT, 0);
        assert_int_equal(bytes % LP_DIRECT_UNIT, 0);
        assert_int_equal(off % LP_DIRECT_UNIT, 0);
        if (f->refuses_direct)
            return -EINVAL;
    }
    if (f->interrupted && number % 3 == 0)
        return -EINTR;
    if (number == f->fail_at)
        return f->failure;
    if (f->short_reads && bytes > 100000)
        bytes = f->is_direct[fd] ? 65536 : 99991;
    const int64_t got = lp_io_default()->pread(NULL, fd, buffer, bytes, off);
    pthread_mutex_lock(&f->lock);
    f->bytes += got > 0 ? got : 0;
    pthread_mutex_unlock(&f->lock);
    return got;
}

static int fault_close(void *context, int fd)
{
    (void)context;
    return lp_io_default()->close(NULL, fd);
}

static int fault_stat(void *context, int fd, lp_file_stat *out)
{
    (void)context;
    return lp_io_default()->stat(NULL, fd, out);
}

/* ---- the checkpoint and its plan ---- */

typedef struct bed {
    char folder[64], path[96];
    uint8_t *payload;
    int64_t payload_bytes, payload_off, needed;
    lp_checkpoint *checkpoint;
    lp_trace *trace;
    lp_destinations *memory, *expected;
    lp_plan *plan;
    faults f;
    lp_io io;
    lp_platform platform;
    char log[4000];
} bed;

static const struct {
    const char *name;
    lp_dtype dtype;
    int64_t columns;
} big[BIG] = {{"a", LP_U8, 4096}, {"b", LP_I32, 1024}, {"c", LP_BF16, 512}, {"d", LP_U8, 513}};

static void keep_log(void *context, int level, const char *module, const char *line)
{
    bed *b = context;
    (void)module;
    const size_t used = strlen(b->log);
    if (level <= LP_LOG_INFO)
        snprintf(b->log + used, sizeof b->log - used, "%s\n", line);
}

static void write_file(bed *b)
{
    static char header[64 * 1024];
    size_t used = 1;
    int64_t off = 0;
    header[0] = '{';
    for (int i = 0; i < TENSORS; i++) {
        const int64_t rows = i < BIG ? ROWS : 1, columns = i < BIG ? big[i].columns : 10;
        const lp_dtype dtype = i < BIG ? big[i].dtype : LP_U8;
        const int64_t bytes = rows * columns * lp_dtype_bits(dtype) / 8;
        char name[16];
        snprintf(name, sizeof name, "s%03d", i);
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld,%lld],\"data_offsets\":[%lld,%lld]}",
                                 i > 0 ? "," : "", i < BIG ? big[i].name : name, lp_dtype_name(dtype), (long long)rows,
                                 (long long)columns, (long long)off, (long long)(off + bytes));
        off += bytes;
    }
    header[used++] = '}';
    while (used % 8 != 3) /* payload at an odd place: nothing is aligned */
        header[used++] = ' ';
    b->payload_bytes = off;
    b->payload = malloc((size_t)off);
    assert_non_null(b->payload);
    rng r = {7};
    for (int64_t i = 0; i < off; i += 8) {
        const uint64_t word = rng_next(&r) & 0x3f7f3f7f3f7f3f7f; /* no NaN in the casts */
        memcpy(b->payload + i, &word, (size_t)(off - i < 8 ? off - i : 8));
    }
    FILE *f = fopen(b->path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fputc((int)(used >> (8 * i) & 0xff), f);
    assert_int_equal(fwrite(header, 1, used, f), used);
    assert_int_equal(fwrite(b->payload, 1, (size_t)off, f), (size_t)off);
    fclose(f);
    b->payload_off = b->f.payload_off = (int64_t)(8 + used);
}

static void add(bed *b, const char *name, lp_dtype from, lp_dtype to, const lp_view *src, const lp_view *dst,
                int64_t dst_bytes, const int64_t shape[2], int ndim)
{
    lp_error err;
    uint32_t dest;
    const lp_map *map;
    int64_t stride[2] = {shape[1] * lp_dtype_bits(to) / 8, lp_dtype_bits(to) / 8};
    const uint32_t index = (uint32_t)lp_checkpoint_find(b->checkpoint, name);
    const int64_t src_bytes = lp_checkpoint_at(b->checkpoint, index)->bytes;
    const lp_destination d = {.name = name,
                              .dtype = to,
                              .ndim = ndim,
                              .shape = shape,
                              .stride = stride,
                              .storage = name,
                              .storage_bytes = dst_bytes,
                              .layout = "",
                              .group = "root",
                              .slot_dim = -1};
    assert_int_equal(lp_trace_add_destination(b->trace, &d, &dest, &err), LP_OK);
    assert_int_equal(lp_map_copy(&map, dst, dst_bytes, src, src_bytes, NULL, &err), LP_OK);
    const lp_record record = {.name = index,
                              .dest = dest,
                              .src_dtype = from == to ? 0 : (uint8_t)from,
                              .dst_dtype = from == to ? 0 : (uint8_t)to,
                              .map = map,
                              .provenance = LP_NONE};
    assert_int_equal(lp_trace_add_record(b->trace, &record, &err), LP_OK);
    lp_map_free(map, NULL);
}

/* "a": the left half of each row. "b": transposed words. "c": a cast. "d": all of it. */
static void record(bed *b)
{
    lp_error err;
    lp_view src, dst;
    assert_int_equal(
        lp_trace_new(&b->trace, b->checkpoint, &(lp_trace_header){"test", "1", "", "", {.tp = 1}}, NULL, &err), LP_OK);
    assert_int_equal(lp_trace_begin_scope(b->trace, &(lp_scope){.tp = 1}, &err), LP_OK);
    for (int i = 0; i < BIG; i++) {
        const int64_t columns = i == 0 ? big[i].columns / 2 : big[i].columns;
        const int64_t whole[] = {ROWS, big[i].columns}, shape[] = {ROWS, columns}, turned[] = {columns, ROWS};
        const lp_dtype to = i == 2 ? LP_F32 : big[i].dtype;
        assert_int_equal(lp_view_contiguous(&src, big[i].dtype, 2, whole, &err), LP_OK);
        assert_int_equal(lp_view_contiguous(&dst, to, 2, i == 1 ? turned : shape, &err), LP_OK);
        if (i == 0)
            assert_int_equal(lp_view_narrow(&src, 1, 0, columns, &err), LP_OK);
        if (i == 1)
            assert_int_equal(lp_view_t(&src, &err), LP_OK);
        add(b, big[i].name, big[i].dtype, to, &src, &dst, ROWS * columns * lp_dtype_bits(to) / 8,
            i == 1 ? turned : shape, 2);
        b->needed += ROWS * columns * lp_dtype_bits(big[i].dtype) / 8;
    }
    for (int i = BIG; i < TENSORS; i++) {
        const int64_t shape[] = {1, 10};
        char name[16];
        snprintf(name, sizeof name, "s%03d", i);
        assert_int_equal(lp_view_contiguous(&src, LP_U8, 2, shape, &err), LP_OK);
        add(b, name, LP_U8, LP_U8, &src, &src, 10, shape, 2);
        b->needed += 10;
    }
    assert_int_equal(lp_trace_seal(b->trace, &err), LP_OK);
}

static void bind_plan(bed *b, lp_destinations **memory, lp_plan **plan, int32_t threads)
{
    lp_error err;
    int64_t count;
    const lp_scope *scope = lp_trace_scope_at(b->trace, 0);
    assert_int_equal(lp_destinations_allocate(memory, b->trace, scope, false, NULL, &err), LP_OK);
    const lp_destination_memory *list = lp_destinations_list(*memory, &count);
    const lp_bind_options o = {.threads = threads, .platform = &b->platform};
    assert_int_equal(lp_bind(plan, b->trace, scope, list, count, &o, &err), LP_OK);
}

/* What pushes of whole tensors from memory give. */
static void make_expected(bed *b)
{
    lp_plan *plan;
    lp_session *s;
    lp_error err;
    bind_plan(b, &b->expected, &plan, 1);
    assert_int_equal(lp_begin(&s, plan, NULL, &err), LP_OK);
    for (int64_t i = 0; i < lp_checkpoint_count(b->checkpoint); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(b->checkpoint, i);
        assert_int_equal(lp_push_range(s, t->name, 0, b->payload + (t->file_off - b->payload_off), t->bytes, &err),
                         LP_OK);
    }
    assert_int_equal(lp_finish(s, NULL, &err), LP_OK);
    lp_session_close(s);
    lp_plan_close(plan);
}

static void open_bed(bed *b)
{
    lp_error err;
    memset(b, 0, sizeof *b);
    snprintf(b->folder, sizeof b->folder, "/tmp/lp_read_ring.XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    snprintf(b->path, sizeof b->path, "%s/model.safetensors", b->folder);
    pthread_mutex_init(&b->f.lock, NULL);
    b->f.fail_at = -1;
    b->io = *lp_io_default();
    b->io.context = &b->f;
    b->io.open = fault_open;
    b->io.close = fault_close;
    b->io.pread = fault_pread;
    b->io.stat = fault_stat;
    b->platform = (lp_platform){.io = &b->io, .log = keep_log, .log_context = b};
    write_file(b);
    if (lp_checkpoint_open(&b->checkpoint, b->path, &err) != LP_OK)
        fail_msg("%s", err.text);
    record(b);
    make_expected(b);
}

static void close_bed(bed *b)
{
    lp_destinations_free(b->expected);
    lp_trace_close(b->trace);
    lp_checkpoint_close(b->checkpoint);
    free(b->payload);
    unlink(b->path);
    rmdir(b->folder);
    pthread_mutex_destroy(&b->f.lock);
}

static bool same_bytes(const bed *b)
{
    int64_t count, other;
    const lp_destination_memory *have = lp_destinations_list(b->memory, &count);
    const lp_destination_memory *want = lp_destinations_list(b->expected, &other);
    bool same = count == other;
    for (int64_t i = 0; same && i < count; i++) {
        const int64_t bytes = have[i].shape[0] * have[i].shape[1] * lp_dtype_bits(have[i].dtype) / 8;
        same = memcmp(have[i].data, want[i].data, (size_t)bytes) == 0;
    }
    return same;
}

static void drop_from_cache(const bed *b)
{
    const int fd = open(b->path, O_RDONLY);
    assert_true(fd >= 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void fill_cache(const bed *b)
{
    const int fd = open(b->path, O_RDONLY);
    assert_true(fd >= 0);
    while (read(fd, b->payload, 1 << 20) > 0)
        ;
    close(fd);
}

/* Loads with `threads`; the statuses of the first try and, after a failure, of a second one without faults. */
static lp_status load(bed *b, int32_t threads, lp_read_stats *stats, lp_error *err)
{
    lp_session *s;
    b->f.reads = b->f.bytes = b->f.direct_reads = 0;
    b->log[0] = '\0';
    bind_plan(b, &b->memory, &b->plan, threads);
    assert_int_equal(lp_begin(&s, b->plan, NULL, err), LP_OK);
    const lp_status status = lp_push_checkpoint_with(s, b->checkpoint, stats, NULL, NULL, err);
    if (status != LP_OK) {
        b->f.fail_at = -1;
        lp_error second;
        assert_int_equal(lp_finish(s, NULL, &second), LP_E_INCOMPLETE);
        if (lp_push_checkpoint(s, b->checkpoint, &second) != LP_OK)
            fail_msg("%s", second.text);
    }
    lp_report report;
    assert_int_equal(lp_finish(s, &report, err), LP_OK);
    assert_int_equal(report.names_loaded, TENSORS);
    assert_true(same_bytes(b));
    lp_session_close(s);
    lp_plan_close(b->plan);
    lp_destinations_free(b->memory);
    return status;
}

static void test_threads_read_what_one_reads(void **state)
{
    bed b;
    (void)state;
    open_bed(&b);
    fill_cache(&b);
    static const int32_t threads[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < 4; kind++) {
            lp_read_stats stats;
            lp_error err;
            b.f.short_reads = kind & 1;
            b.f.interrupted = kind & 2;
            assert_int_equal(load(&b, threads[i], &stats, &err), LP_OK);
            assert_int_equal(b.f.direct_reads, 0);
            assert_int_equal(b.f.bytes, b.needed); /* exactly what is needed, and once */
            assert_int_equal(stats.bytes_read, b.needed);
            assert_int_equal(stats.files, 1);
        }
    close_bed(&b);
}

static void test_errors_leave_a_session_that_goes_on(void **state)
{
    bed b;
    (void)state;
    open_bed(&b);
    fill_cache(&b);
    for (int64_t n = 0; n < 40; n += 7) {
        lp_error err;
        b.f.fail_at = n;
        b.f.failure = n % 2 == 0 ? -EIO : 0;
        assert_int_equal(load(&b, n % 3 == 0 ? 1 : 4, NULL, &err), n % 2 == 0 ? LP_E_IO : LP_E_CORRUPT);
    }
    close_bed(&b);
}

/* The pages that the needed bytes touch. */
static int64_t pages_touched(const bed *b)
{
    int64_t pages = 0, last = -1;
    for (int64_t i = 0; i < b->payload_bytes; i++) {
        const bool is_needed = i >= ROWS * 4096 || i % 4096 < 2048;
        const int64_t page = (b->payload_off + i) / LP_DIRECT_UNIT;
        if (is_needed && page != last) {
            last = page;
            pages++;
        }
    }
    return pages;
}

static void test_direct_reads(void **state)
{
    bed b;
    lp_read_stats stats;
    lp_error err;
    (void)state;
    open_bed(&b);
    drop_from_cache(&b);
    const int fd = open(b.path, O_RDONLY | O_DIRECT), probe = open(b.path, O_RDONLY);
    const bool is_possible = fd >= 0 && lp_file_residency(probe, 20 << 20) == 0;
    close(probe);
    close(fd);
    if (!is_possible) {
        print_message("the file system has no direct reads or cannot say what is cached\n");
        close_bed(&b);
        skip();
    }
    for (int kind = 0; kind < 6; kind++) {
        drop_from_cache(&b);
        b.f.short_reads = kind == 1;
        b.f.interrupted = kind == 2;
        b.f.refuses_direct = kind == 3;
        b.f.refuses_direct_open = kind == 4;
        assert_int_equal(load(&b, kind == 5 ? 1 : 4, &stats, &err), LP_OK);
        if (kind == 3 || kind == 4) { /* through the cache after all: exactly what is needed, or whole units of it */
            assert_non_null(strstr(b.log, kind == 3 ? "a direct read was refused" : "cannot be opened for direct"));
            assert_true(b.f.direct_reads <= (kind == 3 ? 12 : 0));
        } else { /* some pages may have stayed */
            assert_non_null(strstr(b.log, "% in the cache, read directly"));
            assert_true(b.f.direct_reads > 0);
        }
        if (kind != 4)
            assert_true((double)stats.bytes_read <= 1.01 * (double)pages_touched(&b) * LP_DIRECT_UNIT);
        else
            assert_int_equal(stats.bytes_read, b.needed);
    }
    close_bed(&b);
}

static void test_residency(void **state)
{
    bed b;
    (void)state;
    open_bed(&b);
    fill_cache(&b);
    const int fd = open(b.path, O_RDONLY);
    const int full = lp_file_residency(fd, b.payload_off + b.payload_bytes);
    assert_true(full == 100 || full == -1);
    assert_int_equal(lp_file_residency(fd, 0), -1);
    assert_int_equal(lp_file_residency(-1, 100), -1);
    close(fd);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_read_what_one_reads),
        cmocka_unit_test(test_errors_leave_a_session_that_goes_on),
        cmocka_unit_test(test_direct_reads),
        cmocka_unit_test(test_residency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
