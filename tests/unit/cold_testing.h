/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts under test: a checkpoint on disk with every kind of name (columns of rows, transposed words, casts,
 * fills, derives, tensors larger than a slot, hundreds of bytes between neighbours), what memory must hold after it,
 * and faults.
 */
#ifndef LOADPLAN_COLD_TESTING_H
#define LOADPLAN_COLD_TESTING_H

#include "replay_testing.h"
#include "replayer/device_cold.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { COLD_COMPANY = 3 }; /* slow reads side by side */

typedef struct cold_faults {
    pthread_mutex_t lock;
    int64_t payload_off, reads, bytes;
    int64_t fail_at; /* number of the payload read; < 0: none */
    int64_t failure; /* -errno, or 0: an early end */
    bool short_reads, interrupted, refuses_direct, slow;
    int64_t inside, inside_most;  /* slow reads at a time */
    int64_t direct_reads, blocks; /* reads around the page cache; blocks of 4096 that all reads touched */
    const char *touch;            /* path to change during read number fail_at */
} cold_faults;

typedef struct cold_bed {
    world w;
    payload p;
    image want;
    char folder[64], path[96];
    cold_faults f;
    lp_io io;
    lp_platform platform;
    lp_checkpoint *ck;
} cold_bed;

static inline bool cold_has_company(cold_faults *f)
{
    pthread_mutex_lock(&f->lock);
    const bool yes = f->inside_most >= COLD_COMPANY;
    pthread_mutex_unlock(&f->lock);
    return yes;
}

/* The first reads wait for one another, however late their threads come. */
static inline void cold_wait(cold_faults *f, int64_t number)
{
    pthread_mutex_lock(&f->lock);
    f->inside++;
    f->inside_most = f->inside > f->inside_most ? f->inside : f->inside_most;
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < 60000 && !cold_has_company(f); i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000 + number % 7 * 300000}, NULL);
    pthread_mutex_lock(&f->lock);
    f->inside--;
    pthread_mutex_unlock(&f->lock);
}

static inline int64_t cold_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    cold_faults *f = context;
    if (off + (int64_t)bytes <= f->payload_off)
        return lp_io_default()->pread(NULL, fd, buffer, bytes, off);
    const bool is_direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    pthread_mutex_lock(&f->lock);
    const int64_t number = f->reads++;
    f->direct_reads += is_direct;
    pthread_mutex_unlock(&f->lock);
    if (f->slow)
        cold_wait(f, number);
    if (f->refuses_direct && is_direct)
        return -EINVAL;
    if (f->interrupted && number % 3 == 0)
        return -EINTR;
    if (number == f->fail_at && f->touch != NULL) {
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000}};
        (void)utimensat(AT_FDCWD, f->touch, times, 0);
    } else if (number == f->fail_at) {
        return f->failure;
    }
    if (f->short_reads && bytes > 4099)
        bytes = is_direct ? bytes / 8192 * 4096 : bytes / 2 + 1;
    const int64_t got = lp_io_default()->pread(NULL, fd, buffer, bytes, off);
    pthread_mutex_lock(&f->lock);
    f->bytes += got > 0 ? got : 0;
    f->blocks += got > 0 ? (off + got + 4095) / 4096 - off / 4096 : 0;
    pthread_mutex_unlock(&f->lock);
    return got;
}

static inline int cold_open(void *context, const char *path, int flags, int mode)
{
    (void)context;
    return lp_io_default()->open(NULL, path, flags, mode);
}

static inline int cold_close(void *context, int fd)
{
    (void)context;
    return lp_io_default()->close(NULL, fd);
}

static inline int cold_stat(void *context, int fd, lp_file_stat *out)
{
    (void)context;
    return lp_io_default()->stat(NULL, fd, out);
}

/* Files through *f, whose payload_off stays. */
static inline void cold_open_files(cold_faults *f, lp_io *io, lp_platform *platform)
{
    pthread_mutex_init(&f->lock, NULL);
    f->fail_at = -1;
    *io = *lp_io_default();
    io->context = f;
    io->open = cold_open;
    io->close = cold_close;
    io->pread = cold_pread;
    io->stat = cold_stat;
    *platform = (lp_platform){.io = io};
}

static inline void cold_world(world *w)
{
    const int big = add_source(w, "z.big", LP_BF16, 1500, 2048),
              columns = add_source(w, "b.columns", LP_U8, 3000, 4096);
    const int near = add_source(w, "c.near", LP_U8, 60, 300), words = add_source(w, "d.words", LP_I32, 512, 640);
    const int cast = add_source(w, "e.cast", LP_BF16, 5, 3), fill = add_source(w, "f.only_fills", LP_F32, 1, 9);
    const int other = add_source(w, "a.other_rank", LP_U8, 100, 1), odd = add_source(w, "g.odd", LP_U8, 7, 33);
    const int staged = add_source(w, "h.staged", LP_F32, 3, 4), both = add_source(w, "i.both", LP_F32, 3, 4);
    const int tied = add_source(w, "j.tied", LP_U8, 90, 1000),
              apart = add_source(w, "k.fills_and_derives", LP_F32, 2, 5);
    (void)other;
    add_copy(w, big, add_dest(w, "big", LP_BF16, 1500, 2048, 0, "g"), 0, 1500, 0);
    const int left = add_dest(w, "columns", LP_U8, 3000, 1024, 0, "g"),
              part = add_dest(w, "near", LP_U8, 60, 200, 8, "g");
    const int turned = add_dest(w, "words", LP_I32, 640, 512, 0, "g"), wide = add_dest(w, "cast", LP_F32, 2, 3, 0, "g");
    const int lines = add_dest(w, "odd", LP_U8, 9, 33, 5, "g");
    w->call[w->ncall++] = (call){.source = columns,
                                 .trigger = columns,
                                 .dest = left,
                                 .size = {3000, 1024},
                                 .src_at = 2048,
                                 .src_step = {4096, 1}};
    w->call[w->ncall++] =
        (call){.source = near, .trigger = near, .dest = part, .size = {60, 200}, .src_at = 100, .src_step = {300, 1}};
    w->call[w->ncall++] =
        (call){.source = words, .trigger = words, .dest = turned, .size = {640, 512}, .src_step = {1, 640}};
    add_copy(w, cast, wide, 0, 2, 3);
    add_fill(w, fill, add_dest(w, "filled", LP_F32, 2, 2, 0, "g"), 0, 2, 0x40000000);
    add_copy(w, odd, lines, 2, 7, 0);
    add_fill(w, -1, lines, 0, 2, 0x77);
    add_copy(w, tied, add_dest(w, "tied", LP_U8, 90, 1000, 0, "g"), 0, 90, 0);
    add_copy(w, tied, add_dest(w, "tied2", LP_U8, 90, 1000, 24, "g"), 0, 90, 0);
    const int sum = add_dest(w, "both", LP_F32, 3, 4, 4, "g");
    add_copy(w, both, sum, 0, 3, 0);
    w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, add_dest(w, "exp", LP_F32, 3, 4, 4, "g"), -1, staged};
    w->derive[w->nderive++] = (derive){DERIVE_ADD, add_dest(w, "sum", LP_F32, 3, 4, 0, "g"), sum, staged};
    add_fill(w, apart, add_dest(w, "beside", LP_F32, 2, 2, 0, "g"), 0, 2, 0x3f000000);
    w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, add_dest(w, "apart", LP_F32, 2, 5, 0, "g"), -1, apart};
    w->derive[w->nderive++] = (derive){DERIVE_MAX, add_dest(w, "most", LP_F32, 1, 1, 0, "g"), sum, -1};
    build_world(w, NULL);
}

/* Tensors of all sizes, beside one another in the file, of which this scope loads all, some rows, some columns, or
 * nothing. */
static inline void cold_random_world(world *w)
{
    char name[16];
    const int count = 3 + (int)pick(w, 8);
    for (int i = 0; i < count; i++) {
        const bool is_small = pick(w, 3) == 0;
        const int64_t rows = 1 + pick(w, is_small ? 2 : 90), columns = 1 + pick(w, is_small ? 7 : 9000);
        snprintf(name, sizeof name, "t%02d", i);
        const int from = add_source(w, name, LP_U8, rows, columns);
        const int64_t first = pick(w, columns), part = 1 + pick(w, columns - first);
        switch (pick(w, 4)) {
        case 0: /* another rank's */
            if (i > 0)
                break;
            /* fall through */
        case 1:
            add_copy(w, from, add_dest(w, name, LP_U8, rows, columns, 0, "g"), 0, rows, 0);
            break;
        case 2: {
            const int64_t row = pick(w, rows), some = 1 + pick(w, rows - row);
            add_copy(w, from, add_dest(w, name, LP_U8, some, columns, pick(w, 2) * 24, "g"), 0, some, row);
            break;
        }
        default: {
            const int to = add_dest(w, name, LP_U8, rows, part, 0, "g");
            w->call[w->ncall++] = (call){.source = from,
                                         .trigger = from,
                                         .dest = to,
                                         .size = {rows, part},
                                         .src_at = first,
                                         .src_step = {columns, 1}};
        }
        }
    }
    build_world(w, NULL);
}

/* The rest of *b, which is zero, is made from b->w. */
static inline void cold_write_world(cold_bed *b, uint64_t seed)
{
    failing_seed = seed;
    b->p = make_payload(&b->w);
    b->want = new_image(&b->w);
    model_load(&b->w, &b->p, &b->want);
    snprintf(b->folder, sizeof b->folder, "/tmp/loadplan-cold-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    snprintf(b->path, sizeof b->path, "%s/model.safetensors", b->folder);
    b->f.payload_off = write_world(&b->w, &b->p, b->path);
    cold_open_files(&b->f, &b->io, &b->platform);
    assert_ok(&b->w, lp_checkpoint_open_with(&b->ck, b->folder, &b->platform, &b->w.err));
}

static inline void cold_open_world(cold_bed *b, uint64_t seed, void (*make)(world *w))
{
    memset(b, 0, sizeof *b);
    b->w.random = seed;
    make(&b->w);
    cold_write_world(b, seed);
}

static inline void cold_open_bed(cold_bed *b)
{
    cold_open_world(b, 33, cold_world);
}

static inline void cold_close_bed(cold_bed *b)
{
    lp_checkpoint_close(b->ck);
    free_image(&b->w, &b->want);
    free_payload(&b->w, &b->p);
    free_world(&b->w);
    unlink(b->path);
    rmdir(b->folder);
    pthread_mutex_destroy(&b->f.lock);
}

/* Loads into memory of the device that held other bytes before; a load that succeeds is compared byte by byte, and so
 * are its digests. */
static inline lp_status cold_try(cold_bed *b, const lp_cold_device *d, const lp_cold_options *o, lp_cold_report *report,
                                 lp_error *err)
{
    lp_cold_memory memory;
    lp_plan *plan = NULL, *copy = NULL;
    image have = new_image(&b->w);
    assert_ok(&b->w, lp_cold_memory_take(&memory, d, b->w.trace, NULL, &b->platform, &b->w.err));
    const lp_bind_options bind = {.platform = &b->platform, .threads = 1};
    assert_ok(&b->w, lp_bind(&plan, b->w.trace, NULL, memory.list, memory.count, &bind, &b->w.err));
    const lp_status status = lp_cold_load(d, plan, b->ck, o, report, err);
    if (status == LP_OK) {
        uint8_t on_device[DESTS_MAX][LP_VALUE_DIGEST_BYTES], on_host[LP_VALUE_DIGEST_BYTES];
        copy = bind_image(&b->w, &have, NULL);
        assert_ok(&b->w, lp_cold_fetch(d, plan, copy, &b->w.err));
        assert_same_image(&b->w, &have, &b->want, "after a cold start");
        assert_ok(&b->w, d->digests(d->context, plan, on_device, &b->w.err));
        for (int i = 0; i < b->w.ndest; i++) {
            assert_ok(&b->w, lp_plan_value_digest(copy, (uint32_t)i, on_host, &b->w.err));
            assert_memory_equal(on_device[i], on_host, sizeof on_host);
        }
        lp_plan_close(copy);
    }
    lp_plan_close(plan);
    lp_cold_memory_give_back(&memory);
    free_image(&b->w, &have);
    return status;
}

#endif
