/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and files that fail at the n-th call, or end the process there: for tests of what survives that. */
#ifndef LOADPLAN_TRACE_FAULTS_H
#define LOADPLAN_TRACE_FAULTS_H

#include "traces/base.h"

#include <signal.h>
#include <stdlib.h>

/* Tables that fail at the n-th call, and count. */
typedef struct fix_faults {
    int64_t allocations, fail_allocation; /* 0: never */
    int64_t calls, fail_call;
    int64_t live;
    int code;
    bool kills; /* the process ends there instead */
} fix_faults;

static inline void *fix_resize(void *context, void *old, size_t bytes)
{
    fix_faults *f = context;
    if (bytes == 0) {
        f->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (++f->allocations == f->fail_allocation)
        return NULL;
    f->live += old == NULL;
    return realloc(old, bytes);
}

static inline bool fix_fails(fix_faults *f)
{
    if (++f->calls != f->fail_call)
        return false;
    if (f->kills)
        raise(SIGKILL);
    return true;
}

static inline int fix_open(void *context, const char *path, int flags, int mode)
{
    return fix_fails(context) ? -((fix_faults *)context)->code : lp_io_default()->open(NULL, path, flags, mode);
}

static inline int fix_close(void *context, int fd)
{
    const int code = lp_io_default()->close(NULL, fd);
    return fix_fails(context) ? -((fix_faults *)context)->code : code;
}

static inline int64_t fix_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    return fix_fails(context) ? -((fix_faults *)context)->code : lp_io_default()->pread(NULL, fd, buffer, bytes, off);
}

static inline int64_t fix_pwrite(void *context, int fd, const void *buffer, size_t bytes, int64_t off)
{
    if (fix_fails(context))
        return -((fix_faults *)context)->code;
    /* Short writes are legal: make every one short. */
    return lp_io_default()->pwrite(NULL, fd, buffer, bytes > 5000 ? 5000 : bytes, off);
}

static inline int fix_stat(void *context, int fd, lp_file_stat *out)
{
    return fix_fails(context) ? -((fix_faults *)context)->code : lp_io_default()->stat(NULL, fd, out);
}

static inline int fix_fsync(void *context, int fd)
{
    return fix_fails(context) ? -((fix_faults *)context)->code : lp_io_default()->fsync(NULL, fd);
}

static inline int fix_rename(void *context, const char *from, const char *to)
{
    return fix_fails(context) ? -((fix_faults *)context)->code : lp_io_default()->rename(NULL, from, to);
}

static inline int fix_unlink(void *context, const char *path)
{
    (void)context;
    return lp_io_default()->unlink(NULL, path); /* the clean-up itself must not fail, or nothing could be demanded */
}

static inline lp_io fix_io(fix_faults *f)
{
    return (lp_io){.size = sizeof(lp_io),
                   .context = f,
                   .open = fix_open,
                   .close = fix_close,
                   .pread = fix_pread,
                   .pwrite = fix_pwrite,
                   .stat = fix_stat,
                   .fsync = fix_fsync,
                   .rename = fix_rename,
                   .unlink = fix_unlink};
}

#endif
