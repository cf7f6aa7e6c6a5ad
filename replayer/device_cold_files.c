/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a cold start on the device: open, unchanged, read by several threads. A file of which the page cache
 * holds less than half is read around it, until the first such read that fails.
 */
#include "replayer/device_cold_batches.h"
#include "replayer/file_residency.h"

#include <errno.h>
#include <fcntl.h>

static lp_status changed(const char *path, lp_error *err)
{
    lp_fail_at(err, LP_E_CORRUPT, path, -1, "'%s' changed since its header was read", path);
    lp_hint(err, "wait until the checkpoint is complete, then load again");
    return LP_E_CORRUPT;
}

/* Opens the file a second time for direct reads, where they are worth it. */
static void choose(const lp_cold_files *f, lp_cold_file *file, const char *path, int64_t needed, lp_cold_reading how)
{
    const lp_io *io = f->platform->io;
    if (how == LP_COLD_READ_CACHED || (how == LP_COLD_READ_AUTO && needed < LP_COLD_DIRECT_LEAST))
        return;
    const int resident = lp_file_residency(file->fd, file->opened.size_bytes);
    if (how == LP_COLD_READ_AUTO && (resident < 0 || resident >= 50)) {
        lp_log(f->platform, LP_LOG_INFO, "replay", "'%s': read through the page cache, %s", path,
               resident < 0 ? "which cannot be asked what it holds" : "which holds most of it");
        return;
    }
    const int fd = io->open(io->context, path, O_RDONLY | O_CLOEXEC | O_DIRECT, 0);
    lp_log(f->platform, LP_LOG_INFO, "replay", "'%s': %d%% in the page cache, %s", path, resident < 0 ? 0 : resident,
           fd < 0 ? "but it cannot be opened for direct reads" : "read directly");
    file->direct_fd = fd < 0 ? -1 : fd;
}

static lp_status open_one(const lp_cold_files *f, int32_t number, lp_error *err)
{
    const lp_io *io = f->platform->io;
    const lp_checkpoint_file *known = lp_checkpoint_file_at(f->checkpoint, number);
    lp_cold_file *file = &f->file[number];
    lp_file_stat *now = &file->opened;
    file->fd = io->open(io->context, known->path, O_RDONLY | O_CLOEXEC, 0);
    if (file->fd < 0)
        return lp_fail_errno(err, file->fd, "open", known->path);
    const int code = io->stat(io->context, file->fd, now);
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
                             const int64_t *needed, lp_cold_reading how, lp_error *err)
{
    const int32_t count = lp_checkpoint_file_count(checkpoint);
    *f = (lp_cold_files){.platform = platform, .checkpoint = checkpoint};
    f->file = lp_allocate_zero(platform->alloc, ((size_t)count + 1) * sizeof *f->file);
    if (f->file == NULL)
        return lp_fail_memory(err);
    for (; f->count < count; f->count++) {
        f->file[f->count].fd = f->file[f->count].direct_fd = -1;
        atomic_init(&f->file[f->count].is_refused, false);
        atomic_init(&f->file[f->count].bytes, 0);
    }
    for (int32_t i = 0; i < count; i++) {
        if (needed[i] < 0)
            continue;
        LP_TRY(open_one(f, i, err));
        choose(f, &f->file[i], lp_checkpoint_file_at(checkpoint, i)->path, needed[i], how);
    }
    return LP_OK;
}

lp_status lp_cold_files_unchanged(const lp_cold_files *f, lp_error *err)
{
    const lp_io *io = f->platform->io;
    for (int32_t i = 0; i < f->count; i++) {
        const char *path = lp_checkpoint_file_at(f->checkpoint, i)->path;
        const lp_file_stat *opened = &f->file[i].opened;
        lp_file_stat now;
        if (f->file[i].fd < 0)
            continue;
        const int code = io->stat(io->context, f->file[i].fd, &now);
        if (code < 0)
            return lp_fail_errno(err, code, "stat", path);
        if (now.size_bytes != opened->size_bytes || now.mtime_ns != opened->mtime_ns)
            return changed(path, err);
    }
    return LP_OK;
}

void lp_cold_files_count(const lp_cold_files *f, lp_cold_report *report)
{
    report->bytes_read = report->files = report->files_direct = 0;
    for (int32_t i = 0; i < f->count; i++) {
        lp_cold_file *file = &f->file[i];
        report->bytes_read += atomic_load(&file->bytes);
        report->files += file->fd >= 0;
        report->files_direct += file->direct_fd >= 0 && !atomic_load(&file->is_refused);
    }
}

void lp_cold_files_close(lp_cold_files *f)
{
    if (f->platform == NULL)
        return;
    const lp_io *io = f->platform->io;
    for (int32_t i = 0; i < f->count; i++) {
        if (f->file[i].fd >= 0)
            io->close(io->context, f->file[i].fd);
        if (f->file[i].direct_fd >= 0)
            io->close(io->context, f->file[i].direct_fd);
    }
    lp_release(f->platform->alloc, f->file);
    *f = (lp_cold_files){.platform = NULL};
}

/* What one call gives, or -errno. A direct read that fails is the last one of its file. */
static int64_t read_some(const lp_cold_files *f, lp_cold_file *file, const char *path, uint8_t *to, int64_t off,
                         int64_t bytes, int64_t room)
{
    const lp_io *io = f->platform->io;
    for (;;) {
        const bool direct = file->direct_fd >= 0 && room > 0 && off % LP_COLD_BLOCK == 0 &&
                            (uintptr_t)to % LP_COLD_BLOCK == 0 && !atomic_load(&file->is_refused);
        const int64_t got =
            io->pread(io->context, direct ? file->direct_fd : file->fd, to, (size_t)(direct ? room : bytes), off);
        if (got == -EINTR)
            continue;
        if (got >= 0 || !direct)
            return got;
        if (!atomic_exchange(&file->is_refused, true))
            lp_log(f->platform, LP_LOG_INFO, "replay",
                   "'%s': a direct read failed (%s), read through the page cache from there on", path,
                   strerror((int)-got));
    }
}

void lp_cold_files_note(const lp_cold_files *f, int32_t file, int64_t bytes)
{
    atomic_fetch_add(&f->file[file].bytes, bytes);
}

lp_status lp_cold_files_read(const lp_cold_files *f, int32_t number, int64_t off, void *to, int64_t bytes, int64_t room,
                             lp_error *err)
{
    lp_cold_file *file = &f->file[number];
    const char *path = lp_checkpoint_file_at(f->checkpoint, number)->path;
    int64_t done = 0;
    while (done < bytes) {
        const int64_t got = read_some(f, file, path, (uint8_t *)to + done, off + done, bytes - done, room - done);
        if (got < 0)
            return lp_fail_errno(err, (int)got, "read", path);
        if (got == 0)
            return lp_fail_at(err, LP_E_CORRUPT, path, off + done, "'%s' ends at byte %lld, %lld bytes too early", path,
                              (long long)(off + done), (long long)(bytes - done));
        atomic_fetch_add(&file->bytes, got);
        done += got;
    }
    return LP_OK;
}
