/* SPDX-License-Identifier: Apache-2.0 */
/* An lp_io that serves two files from memory, for fuzz entry points: paths that end in `suffix` are the first one, all
 * others the second. Read only. */
#ifndef LOADPLAN_TESTS_FUZZ_MEMORY_IO_H
#define LOADPLAN_TESTS_FUZZ_MEMORY_IO_H

#include "traces/base.h"

#include <errno.h>
#include <stdlib.h>

typedef struct memory_file {
    const void *data;
    size_t bytes;
} memory_file;

typedef struct memory_io {
    lp_io table;
    const char *suffix;
    memory_file file[2];
    int open_files;
} memory_io;

static int memory_open(void *context, const char *path, int flags, int mode)
{
    memory_io *m = context;
    (void)flags;
    (void)mode;
    const size_t n = strlen(path), k = strlen(m->suffix);
    m->open_files++;
    return n >= k && memcmp(path + n - k, m->suffix, k) == 0 ? 0 : 1;
}

static int memory_close(void *context, int fd)
{
    memory_io *m = context;
    (void)fd;
    m->open_files--;
    return 0;
}

static int64_t memory_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    const memory_file *f = &((memory_io *)context)->file[fd];
    if (off < 0)
        return -EINVAL;
    if ((uint64_t)off >= f->bytes)
        return 0;
    const size_t left = f->bytes - (size_t)off, n = bytes < left ? bytes : left;
    memcpy(buffer, (const char *)f->data + off, n);
    return (int64_t)n;
}

static int memory_stat(void *context, int fd, lp_file_stat *out)
{
    *out = (lp_file_stat){.size_bytes = (int64_t)((memory_io *)context)->file[fd].bytes, .is_regular = true};
    return 0;
}

static void memory_io_init(memory_io *m, const char *suffix, memory_file first, memory_file second)
{
    *m = (memory_io){.suffix = suffix, .file = {first, second}};
    m->table = (lp_io){.size = sizeof m->table,
                       .context = m,
                       .open = memory_open,
                       .close = memory_close,
                       .pread = memory_pread,
                       .stat = memory_stat};
}

/* Ends the process where a promise of the library is broken, so that the fuzzer sees it. */
static void demand(bool is_kept)
{
    if (!is_kept)
        abort();
}

/* What every failure promises. */
static void demand_error(lp_status status, const lp_error *err)
{
    demand(status != LP_OK && err->code == status && err->text[0] != '\0');
    for (const char *p = err->text; *p != '\0'; p++)
        demand((unsigned char)*p >= 0x20);
}

#endif
