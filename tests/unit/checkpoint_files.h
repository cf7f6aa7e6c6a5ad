/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of everything that reads or writes files: a temporary folder, files in it, and platform tables that fail.
 */
#ifndef LOADPLAN_TESTS_CHECKPOINT_FILES_H
#define LOADPLAN_TESTS_CHECKPOINT_FILES_H

#include "traces/base.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- a temporary folder in the current one ---- */

static char test_folder[64];

static inline int make_test_folder(void **state)
{
    (void)state;
    snprintf(test_folder, sizeof test_folder, "loadplan-test-XXXXXX");
    return mkdtemp(test_folder) == NULL ? -1 : 0;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline int remove_test_folder(void **state)
{
    (void)state;
    return nftw(test_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path in it; from a ring of 64 buffers. */
static inline const char *in_folder(const char *name)
{
    static char buffer[64][512];
    static int next;
    char *path = buffer[next++ % 64];
    snprintf(path, sizeof buffer[0], "%s/%s", test_folder, name);
    return path;
}

static inline const char *make_folder(const char *name)
{
    const char *path = in_folder(name);
    assert_int_equal(mkdir(path, 0777), 0);
    return path;
}

static inline void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

/* A safetensors file of this header and `data_bytes` bytes of data (a hole in the file). */
static inline void write_safetensors_bytes(const char *path, const char *header, size_t header_bytes,
                                           int64_t data_bytes)
{
    unsigned char *image = malloc(8 + header_bytes);
    assert_non_null(image);
    for (int i = 0; i < 8; i++)
        image[i] = (unsigned char)((uint64_t)header_bytes >> (8 * i));
    memcpy(image + 8, header, header_bytes);
    write_file(path, image, 8 + header_bytes);
    free(image);
    assert_int_equal(truncate(path, (off_t)(8 + header_bytes) + data_bytes), 0);
}

static inline void write_safetensors(const char *path, const char *header, int64_t data_bytes)
{
    write_safetensors_bytes(path, header, strlen(header), data_bytes);
}

/* ---- memory that fails ---- */

typedef struct faulty_memory {
    lp_alloc table;
    int64_t live;      /* blocks that are not freed */
    int64_t countdown; /* allocations that still work; negative: all */
} faulty_memory;

static inline void *faulty_resize(void *context, void *old, size_t bytes)
{
    faulty_memory *m = context;
    if (bytes == 0) {
        m->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (m->countdown == 0)
        return NULL;
    if (m->countdown > 0)
        m->countdown--;
    void *block = realloc(old, bytes);
    assert_non_null(block);
    m->live += old == NULL;
    return block;
}

static inline void faulty_memory_init(faulty_memory *m, int64_t countdown)
{
    *m = (faulty_memory){.countdown = countdown};
    m->table = (lp_alloc){.size = sizeof m->table, .context = m, .resize = faulty_resize, .exact = true};
}

/* ---- files that fail ---- */

typedef struct faulty_io {
    lp_io table;
    int64_t open_files;
    int64_t countdown; /* calls that still work; negative: all */
    int error;         /* what a call then returns, such as -EIO; 0: a read that ends early, a write of nothing */
    bool is_once;      /* only one call fails */
    bool kills;        /* the process ends there instead */
    size_t piece;      /* at most so many bytes a read or write; 0: no limit */
    int64_t calls;
} faulty_io;

static inline bool io_fails(faulty_io *f)
{
    f->calls++;
    if (f->countdown < 0)
        return false;
    if (f->countdown > 0) {
        f->countdown--;
        return false;
    }
    if (f->kills)
        raise(SIGKILL);
    if (f->is_once)
        f->countdown = -1;
    return true;
}

static inline int faulty_open(void *context, const char *path, int flags, int mode)
{
    faulty_io *f = context;
    if (io_fails(f))
        return f->error != 0 ? f->error : -EMFILE;
    const int fd = lp_io_default()->open(NULL, path, flags, mode);
    f->open_files += fd >= 0;
    return fd;
}

static inline int faulty_close(void *context, int fd)
{
    faulty_io *f = context;
    f->open_files--; /* a descriptor is gone even when close fails */
    const int code = lp_io_default()->close(NULL, fd);
    return io_fails(f) && f->error != 0 ? f->error : code;
}

static inline int64_t faulty_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    faulty_io *f = context;
    if (io_fails(f))
        return f->error;
    return lp_io_default()->pread(NULL, fd, buffer, f->piece != 0 && bytes > f->piece ? f->piece : bytes, off);
}

static inline int64_t faulty_pwrite(void *context, int fd, const void *buffer, size_t bytes, int64_t off)
{
    faulty_io *f = context;
    if (io_fails(f))
        return f->error;
    return lp_io_default()->pwrite(NULL, fd, buffer, f->piece != 0 && bytes > f->piece ? f->piece : bytes, off);
}

static inline int faulty_stat(void *context, int fd, lp_file_stat *out)
{
    faulty_io *f = context;
    return io_fails(f) && f->error != 0 ? f->error : lp_io_default()->stat(NULL, fd, out);
}

static inline int faulty_fsync(void *context, int fd)
{
    faulty_io *f = context;
    return io_fails(f) && f->error != 0 ? f->error : lp_io_default()->fsync(NULL, fd);
}

static inline int faulty_rename(void *context, const char *from, const char *to)
{
    faulty_io *f = context;
    return io_fails(f) && f->error != 0 ? f->error : lp_io_default()->rename(NULL, from, to);
}

static inline int faulty_unlink(void *context, const char *path)
{
    faulty_io *f = context;
    return io_fails(f) && f->error != 0 ? f->error : lp_io_default()->unlink(NULL, path);
}

static inline void faulty_io_init(faulty_io *f, int64_t countdown, int error)
{
    *f = (faulty_io){.countdown = countdown, .error = error};
    f->table = (lp_io){.size = sizeof f->table,
                       .context = f,
                       .open = faulty_open,
                       .close = faulty_close,
                       .pread = faulty_pread,
                       .pwrite = faulty_pwrite,
                       .stat = faulty_stat,
                       .fsync = faulty_fsync,
                       .rename = faulty_rename,
                       .unlink = faulty_unlink};
}

#endif
