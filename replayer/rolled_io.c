/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of rolled tensors: each is one read of the real file, short where a tensor or its first element ends. */
#include "replayer/rolled_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

enum { DESCRIPTORS_MAX = 65536 };

int64_t lp_rolled_step(lp_dtype dtype)
{
    const int bits = lp_dtype_bits(dtype);
    return bits == 6 ? 3 : bits < 8 ? 1 : bits / 8;
}

/* ---- where a read goes ---- */

/* The first tensor of a file that ends behind `off`; the number of one past the last when there is none. */
static int64_t find(const lp_rolled_io *r, int32_t file, int64_t off)
{
    int64_t low = r->first[file], high = r->first[file + 1];
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (r->tensor[middle].off + r->tensor[middle].bytes > off)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Bytes [off, off + *bytes) as one real range, shortened to what lies in a row there. */
static int64_t place(const lp_rolled_io *r, int32_t file, int64_t off, size_t *bytes)
{
    const int64_t number = find(r, file, off);
    if (number == r->first[file + 1])
        return off;
    const lp_rolled_tensor *t = &r->tensor[number];
    const int64_t in_tensor = off - t->off;
    int64_t most = t->bytes - in_tensor, from = off - t->step;
    if (in_tensor < 0) { /* a header, or a gap before the tensor */
        most = -in_tensor;
        from = off;
    } else if (in_tensor < t->step) {
        most = t->step - in_tensor;
        from = t->off + t->bytes - t->step + in_tensor;
    }
    if ((int64_t)*bytes > most)
        *bytes = (size_t)most;
    return from;
}

static int64_t rolled_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    const lp_rolled_io *r = context;
    const int32_t file = fd >= 0 && fd < DESCRIPTORS_MAX ? r->file_of[fd] : 0;
    if (r->is_rolled && file > 0 && off >= 0)
        off = place(r, file - 1, off, &bytes);
    return r->real->pread(r->real->context, fd, buffer, bytes, off);
}

/* ---- the table ---- */

static int rolled_open(void *context, const char *path, int flags, int mode)
{
    lp_rolled_io *r = context;
    if ((flags & O_DIRECT) != 0)
        return -EINVAL;
    const int fd = r->real->open(r->real->context, path, flags, mode);
    if (fd < 0)
        return fd;
    if (fd >= DESCRIPTORS_MAX) {
        r->real->close(r->real->context, fd);
        return -EMFILE;
    }
    r->file_of[fd] = 0;
    for (int32_t i = 0; i < lp_checkpoint_file_count(r->checkpoint); i++)
        if (strcmp(lp_checkpoint_file_at(r->checkpoint, i)->path, path) == 0)
            r->file_of[fd] = i + 1;
    return fd;
}

static int rolled_close(void *context, int fd)
{
    lp_rolled_io *r = context;
    if (fd >= 0 && fd < DESCRIPTORS_MAX)
        r->file_of[fd] = 0;
    return r->real->close(r->real->context, fd);
}

static int64_t rolled_pwrite(void *context, int fd, const void *buffer, size_t bytes, int64_t off)
{
    const lp_rolled_io *r = context;
    return r->real->pwrite(r->real->context, fd, buffer, bytes, off);
}

static int rolled_stat(void *context, int fd, lp_file_stat *out)
{
    const lp_rolled_io *r = context;
    return r->real->stat(r->real->context, fd, out);
}

static int rolled_fsync(void *context, int fd)
{
    const lp_rolled_io *r = context;
    return r->real->fsync(r->real->context, fd);
}

static int rolled_rename(void *context, const char *from, const char *to)
{
    const lp_rolled_io *r = context;
    return r->real->rename(r->real->context, from, to);
}

static int rolled_unlink(void *context, const char *path)
{
    const lp_rolled_io *r = context;
    return r->real->unlink(r->real->context, path);
}

/* ---- making it ---- */

static int by_place(const void *a, const void *b)
{
    const lp_rolled_tensor *x = a, *y = b;
    return x->off < y->off ? -1 : x->off > y->off;
}

static bool has_place(const lp_checkpoint_tensor *t)
{
    return t->file >= 0 && t->file_off >= 0 && t->bytes >= lp_rolled_step(t->dtype);
}

static void list_tensors(lp_rolled_io *r)
{
    const int64_t count = lp_checkpoint_count(r->checkpoint);
    const int32_t files = lp_checkpoint_file_count(r->checkpoint);
    int64_t *next = r->first + 1; /* counts, then beginnings, then ends: each is the next one's beginning */
    for (int64_t i = 0; i < count; i++)
        if (has_place(lp_checkpoint_at(r->checkpoint, i)))
            next[lp_checkpoint_at(r->checkpoint, i)->file + 1]++;
    for (int32_t f = 0; f < files; f++)
        next[f + 1] += next[f];
    for (int64_t i = 0; i < count; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(r->checkpoint, i);
        if (has_place(t))
            r->tensor[next[t->file]++] =
                (lp_rolled_tensor){.off = t->file_off, .bytes = t->bytes, .step = lp_rolled_step(t->dtype)};
    }
    for (int32_t f = 0; f < files; f++)
        if (r->first[f + 1] > r->first[f])
            qsort(r->tensor + r->first[f], (size_t)(r->first[f + 1] - r->first[f]), sizeof *r->tensor, by_place);
}

lp_status lp_rolled_io_make(lp_rolled_io *r, const lp_checkpoint *checkpoint, const lp_platform *platform,
                            lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    *r = (lp_rolled_io){.real = p.io, .alloc = p.alloc, .checkpoint = checkpoint};
    r->table = (lp_io){.size = sizeof r->table,
                       .context = r,
                       .open = rolled_open,
                       .close = rolled_close,
                       .pread = rolled_pread,
                       .pwrite = rolled_pwrite,
                       .stat = rolled_stat,
                       .fsync = rolled_fsync,
                       .rename = rolled_rename,
                       .unlink = rolled_unlink};
    r->tensor = lp_allocate(p.alloc, ((size_t)lp_checkpoint_count(checkpoint) + 1) * sizeof *r->tensor);
    r->first = lp_allocate_zero(p.alloc, ((size_t)lp_checkpoint_file_count(checkpoint) + 3) * sizeof *r->first);
    r->file_of = lp_allocate_zero(p.alloc, DESCRIPTORS_MAX * sizeof *r->file_of);
    if (r->tensor == NULL || r->first == NULL || r->file_of == NULL) {
        lp_rolled_io_free(r);
        return lp_fail_memory(err);
    }
    list_tensors(r);
    return LP_OK;
}

void lp_rolled_io_free(lp_rolled_io *r)
{
    if (r->alloc == NULL)
        return;
    lp_release(r->alloc, r->tensor);
    lp_release(r->alloc, r->first);
    lp_release(r->alloc, r->file_of);
    *r = (lp_rolled_io){.alloc = NULL};
}
