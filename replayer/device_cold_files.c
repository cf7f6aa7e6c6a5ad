/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a cold start on the device: open, unchanged, read by several threads. */
#include "replayer/device_cold_batches.h"

#include <fcntl.h>

static lp_status changed(const char *path, lp_error *err)
{
    lp_fail_at(err, LP_E_CORRUPT, path, -1, "'%s' changed since its header was read", path);
    lp_hint(err, "wait until the checkpoint is complete, then load again");
    return LP_E_CORRUPT;
}

static lp_status open_one(lp_cold_files *f, int32_t file, lp_error *err)
{
    const lp_io *io = f->platform->io;
    const lp_checkpoint_file *known = lp_checkpoint_file_at(f->checkpoint, file);
    lp_file_stat *now = &f->opened[file];
    f->fd[file] = io->open(io->context, known->path, O_RDONLY | O_CLOEXEC, 0);
    if (f->fd[file] < 0)
        return lp_fail_errno(err, f->fd[file], "open", known->path);
    const int code = io->stat(io->context, f->fd[file], now);
    if (code < 0)
        return lp_fail_errno(err, code, "stat", known->path);
    if (known->size_bytes >= 0 && now->size_bytes < known->size_bytes)
        return lp_fail_at(err, LP_E_CORRUPT, known->path, now->size_bytes,
                          "'%s' has %lld bytes, it had %lld when its header was read", known->path,
                          (long long)now->size_bytes, (long long)known->size_bytes);
    if ((known->size_bytes >= 0 && now->size_bytes != known->size_bytes) ||
        (known->mtime_ns != 0 && (now->mtime_ns != known->mtime_ns || now->inode != known->inode)))
        return changed(known->path, err);
    return LP_OK;
}

lp_status lp_cold_files_open(lp_cold_files *f, const lp_platform *platform, const lp_checkpoint *checkpoint,
                             const int64_t *uses, lp_error *err)
{
    const int32_t count = lp_checkpoint_file_count(checkpoint);
    *f = (lp_cold_files){.platform = platform, .checkpoint = checkpoint};
    f->fd = lp_allocate(platform->alloc, ((size_t)count + 1) * sizeof *f->fd);
    f->opened = lp_allocate_zero(platform->alloc, ((size_t)count + 1) * sizeof *f->opened);
    if (f->fd == NULL || f->opened == NULL)
        return lp_fail_memory(err);
    for (f->count = 0; f->count < count; f->count++)
        f->fd[f->count] = -1;
    for (int32_t i = 0; i < count; i++)
        if (uses[i] > 0)
            LP_TRY(open_one(f, i, err));
    return LP_OK;
}

lp_status lp_cold_files_unchanged(const lp_cold_files *f, lp_error *err)
{
    const lp_io *io = f->platform->io;
    for (int32_t i = 0; i < f->count; i++) {
        const char *path = lp_checkpoint_file_at(f->checkpoint, i)->path;
        lp_file_stat now;
        if (f->fd[i] < 0)
            continue;
        const int code = io->stat(io->context, f->fd[i], &now);
        if (code < 0)
            return lp_fail_errno(err, code, "stat", path);
        if (now.size_bytes != f->opened[i].size_bytes || now.mtime_ns != f->opened[i].mtime_ns)
            return changed(path, err);
    }
    return LP_OK;
}

void lp_cold_files_close(lp_cold_files *f)
{
    if (f->platform == NULL)
        return;
    const lp_io *io = f->platform->io;
    for (int32_t i = 0; i < f->count; i++)
        if (f->fd[i] >= 0)
            io->close(io->context, f->fd[i]);
    lp_release(f->platform->alloc, f->fd);
    lp_release(f->platform->alloc, f->opened);
    *f = (lp_cold_files){.platform = NULL};
}

lp_status lp_cold_files_read(const lp_cold_files *f, int32_t file, int64_t off, void *to, int64_t bytes, lp_error *err)
{
    return lp_read_exact(f->platform->io, f->fd[file], lp_checkpoint_file_at(f->checkpoint, file)->path, to, bytes, off,
                         err);
}
