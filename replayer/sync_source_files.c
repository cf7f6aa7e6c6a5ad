/* SPDX-License-Identifier: Apache-2.0 */
/* A sender's bytes in the files of a checkpoint. */
#include "replayer/sync_source.h"

#include <errno.h>
#include <fcntl.h>

enum { SPAN = 1 << 20, /* runs that lie closer than this are read together with what lies between them */ DENSE = 16 };

typedef struct files_source {
    lp_platform platform;
    const lp_checkpoint *checkpoint;
    int64_t *tensor; /* of the checkpoint, by name of the trace */
    int *fd;         /* by file; -1 until it is needed */
    int32_t file_count;
    uint8_t *scratch;
} files_source;

static lp_status open_file(files_source *f, int32_t file, int *fd, lp_error *err)
{
    const lp_io *io = f->platform.io;
    const lp_checkpoint_file *what = lp_checkpoint_file_at(f->checkpoint, file);
    if (f->fd[file] < 0) {
        f->fd[file] = io->open(io->context, what->path, O_RDONLY | O_CLOEXEC, 0);
        if (f->fd[file] < 0)
            return lp_fail_errno(err, f->fd[file], "open", what->path);
    }
    *fd = f->fd[file];
    return LP_OK;
}

static lp_status read_files(void *context, uint32_t name, int64_t lo, int64_t run, int64_t stride, int64_t count,
                            void *out, lp_error *err)
{
    files_source *f = context;
    const lp_checkpoint_tensor *t = lp_checkpoint_at(f->checkpoint, f->tensor[name]);
    const char *path = lp_checkpoint_file_at(f->checkpoint, t->file)->path;
    uint8_t *to = out;
    int fd = -1;
    LP_TRY(open_file(f, t->file, &fd, err));
    if (count == 1)
        return lp_read_exact(f->platform.io, fd, path, to, run, t->file_off + lo, err);
    const int64_t together = stride <= run * DENSE && stride + run <= SPAN ? (SPAN - run) / stride + 1 : 1;
    for (int64_t i = 0; i < count; i += together) {
        const int64_t n = count - i < together ? count - i : together;
        uint8_t *at = n == 1 ? to : f->scratch;
        LP_TRY(lp_read_exact(f->platform.io, fd, path, at, (n - 1) * stride + run, t->file_off + lo + i * stride, err));
        for (int64_t k = 0; k < n && n > 1; k++)
            memcpy(to + k * run, at + k * stride, (size_t)run);
        to += n * run;
    }
    return LP_OK;
}

static void close_files(void *context)
{
    files_source *f = context;
    const lp_alloc *alloc = f->platform.alloc;
    for (int32_t i = 0; f->fd != NULL && i < f->file_count; i++)
        if (f->fd[i] >= 0)
            f->platform.io->close(f->platform.io->context, f->fd[i]);
    lp_release(alloc, f->fd);
    lp_release(alloc, f->tensor);
    lp_release(alloc, f->scratch);
    lp_release(alloc, f);
}

static lp_status find_tensors(files_source *f, const lp_trace *trace, lp_error *err)
{
    const lp_checkpoint *catalogue = lp_trace_checkpoint(trace);
    for (int64_t i = 0; i < lp_checkpoint_count(catalogue); i++) {
        f->tensor[i] = lp_checkpoint_find(f->checkpoint, lp_checkpoint_at(catalogue, i)->name);
        if (f->tensor[i] < 0 || lp_checkpoint_at(f->checkpoint, f->tensor[i])->file < 0)
            return lp_fail(err, LP_E_STALE, "the checkpoint has no bytes of '%s'",
                           lp_checkpoint_at(catalogue, i)->name);
    }
    return LP_OK;
}

lp_status lp_sync_source_checkpoint(lp_sync_source *out, const lp_checkpoint *checkpoint, const lp_trace *trace,
                                    const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    const int64_t names = lp_checkpoint_count(lp_trace_checkpoint(trace));
    LP_TRY(lp_trace_match(trace, checkpoint, err));
    files_source *f = lp_allocate_zero(p.alloc, sizeof *f);
    if (f == NULL)
        return lp_fail_memory(err);
    f->platform = p;
    f->checkpoint = checkpoint;
    f->file_count = lp_checkpoint_file_count(checkpoint);
    f->tensor = lp_allocate(p.alloc, ((size_t)names + 1) * sizeof *f->tensor);
    f->scratch = lp_allocate(p.alloc, SPAN);
    f->fd = lp_allocate(p.alloc, ((size_t)f->file_count + 1) * sizeof *f->fd);
    for (int32_t i = 0; f->fd != NULL && i < f->file_count; i++)
        f->fd[i] = -1;
    lp_status status =
        f->tensor == NULL || f->scratch == NULL || f->fd == NULL ? lp_fail_memory(err) : find_tensors(f, trace, err);
    if (status != LP_OK) {
        close_files(f);
        return status;
    }
    *out = (lp_sync_source){.context = f, .read = read_files, .close = close_files};
    return LP_OK;
}

void lp_sync_source_close(lp_sync_source *source)
{
    if (source != NULL && source->close != NULL)
        source->close(source->context);
    if (source != NULL)
        *source = (lp_sync_source){.context = NULL};
}
