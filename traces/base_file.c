/* SPDX-License-Identifier: Apache-2.0 */
/* Files: the default lp_io table, exact reads and writes, and output files that appear whole or not at all. */
#include "traces/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Takes an output, still as it was found, for this process alone, and empties it: 0, -EBUSY where another process
 * writes it, -EAGAIN where it is no longer what `path` names, since that process has renamed or removed it meanwhile. A
 * file system without locks does without. */
static int take_output(int fd, const char *path)
{
    struct stat mine, named;
    if (fstat(fd, &mine) != 0)
        return -errno;
    if (!S_ISREG(mine.st_mode))
        return 0;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return -EBUSY;
    if (lstat(path, &named) != 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (mine.st_ino != named.st_ino || mine.st_dev != named.st_dev)
        return -EAGAIN;
    return ftruncate(fd, 0) != 0 ? -errno : 0;
}

/* Two that wrote one file at once would mix their bytes, so whoever begins a file holds a lock on it until he closes it
 * or ends. */
static int open_output(const char *path, int flags, int mode)
{
    enum { ATTEMPTS = 100 };
    for (int i = 0; i < ATTEMPTS; i++) {
        const int fd = open(path, (flags & ~O_TRUNC) | O_CLOEXEC, mode);
        if (fd < 0)
            return -errno;
        const int code = take_output(fd, path);
        if (code == 0)
            return fd;
        close(fd);
        if (code != -EAGAIN)
            return code;
    }
    return -EBUSY;
}

static int posix_open(void *context, const char *path, int flags, int mode)
{
    (void)context;
    if ((flags & O_CREAT) != 0 && (flags & O_TRUNC) != 0)
        return open_output(path, flags, mode);
    /* What is read may be a named pipe without a writer, which must not hold us up: files do not know the flag. */
    const int nonblock = (flags & O_ACCMODE) == O_RDONLY ? O_NONBLOCK : 0;
    const int fd = open(path, flags | O_CLOEXEC | nonblock, mode);
    return fd < 0 ? -errno : fd;
}

static int posix_close(void *context, int fd)
{
    (void)context;
    return close(fd) != 0 ? -errno : 0;
}

static int64_t posix_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    (void)context;
    const ssize_t n = pread(fd, buffer, bytes, off);
    return n < 0 ? -errno : n;
}

static int64_t posix_pwrite(void *context, int fd, const void *buffer, size_t bytes, int64_t off)
{
    (void)context;
    const ssize_t n = pwrite(fd, buffer, bytes, off);
    return n < 0 ? -errno : n;
}

static int posix_stat(void *context, int fd, lp_file_stat *out)
{
    (void)context;
    struct stat s;
    if (fstat(fd, &s) != 0)
        return -errno;
    *out = (lp_file_stat){
        .size_bytes = s.st_size,
        .mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec,
        .inode = s.st_ino,
        .device = s.st_dev,
        .is_regular = S_ISREG(s.st_mode),
        .is_directory = S_ISDIR(s.st_mode),
    };
    return 0;
}

static int posix_fsync(void *context, int fd)
{
    (void)context;
    return fsync(fd) != 0 ? -errno : 0;
}

static int posix_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to) != 0 ? -errno : 0;
}

static int posix_unlink(void *context, const char *path)
{
    (void)context;
    return unlink(path) != 0 ? -errno : 0;
}

static const lp_io posix_table = {
    .size = sizeof(lp_io),
    .open = posix_open,
    .close = posix_close,
    .pread = posix_pread,
    .pwrite = posix_pwrite,
    .stat = posix_stat,
    .fsync = posix_fsync,
    .rename = posix_rename,
    .unlink = posix_unlink,
};

const lp_io *lp_io_default(void)
{
    return &posix_table;
}

/* One system call moves at most 0x7ffff000 bytes; 1 GiB pieces stay below that on every system. */
enum { PIECE_BYTES = 1 << 30 };

lp_status lp_read_exact(const lp_io *io, int fd, const char *path, void *buffer, int64_t bytes, int64_t off,
                        lp_error *err)
{
    char *to = buffer;
    while (bytes > 0) {
        const size_t piece = bytes < PIECE_BYTES ? (size_t)bytes : PIECE_BYTES;
        const int64_t n = io->pread(io->context, fd, to, piece, off);
        if (n == -EINTR)
            continue;
        if (n < 0)
            return lp_fail_errno(err, (int)-n, "read", path);
        if (n == 0)
            return lp_fail_at(err, LP_E_CORRUPT, path, off, "'%s' ends at byte %lld, %lld bytes too early", path,
                              (long long)off, (long long)bytes);
        to += n;
        off += n;
        bytes -= n;
    }
    return LP_OK;
}

lp_status lp_write_exact(const lp_io *io, int fd, const char *path, const void *buffer, int64_t bytes, int64_t off,
                         lp_error *err)
{
    const char *from = buffer;
    while (bytes > 0) {
        const size_t piece = bytes < PIECE_BYTES ? (size_t)bytes : PIECE_BYTES;
        const int64_t n = io->pwrite(io->context, fd, from, piece, off);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return lp_fail_errno(err, n < 0 ? (int)-n : EIO, "write", path);
        from += n;
        off += n;
        bytes -= n;
    }
    return LP_OK;
}

static lp_status judge_start(const lp_io *io, int fd, const char *path, int64_t file_bytes, lp_judge judge,
                             lp_error *err)
{
    char start[LP_JUDGED_BYTES];
    const int64_t bytes = file_bytes < LP_JUDGED_BYTES ? file_bytes : LP_JUDGED_BYTES;
    LP_TRY(lp_read_exact(io, fd, path, start, bytes, 0, err));
    return judge(path, start, bytes, file_bytes, err);
}

lp_status lp_read_file(const lp_platform *platform, const char *path, int64_t limit, char **text, int64_t *bytes,
                       lp_error *err)
{
    return lp_read_judged(platform, path, limit, NULL, text, bytes, err);
}

lp_status lp_read_judged(const lp_platform *platform, const char *path, int64_t limit, lp_judge judge, char **text,
                         int64_t *bytes, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    lp_status status = LP_OK;
    char *data = NULL;
    lp_file_stat st;
    const int fd = p.io->open(p.io->context, path, O_RDONLY | O_NONBLOCK, 0); /* a pipe would wait for its writer */
    if (fd < 0)
        return lp_fail_errno(err, fd, "open", path);
    const int stat_code = p.io->stat(p.io->context, fd, &st);
    if (stat_code < 0) {
        status = lp_fail_errno(err, stat_code, "stat", path);
        goto close_file;
    }
    if (!st.is_regular) {
        status = lp_fail_at(err, LP_E_FORMAT, path, -1, "'%s' is %s", path,
                            st.is_directory ? "a folder" : "not a regular file");
        goto close_file;
    }
    if (judge != NULL)
        LP_TRY_GOTO(judge_start(p.io, fd, path, st.size_bytes, judge, err), close_file);
    if (st.size_bytes > limit) {
        status = lp_fail_at(err, LP_E_HOSTILE, path, -1, "'%s' has %lld bytes, more than the limit of %lld", path,
                            (long long)st.size_bytes, (long long)limit);
        goto close_file;
    }
    data = lp_allocate(p.alloc, (size_t)st.size_bytes + 1);
    if (data == NULL) {
        status = lp_fail_memory(err);
        goto close_file;
    }
    LP_TRY_GOTO(lp_read_exact(p.io, fd, path, data, st.size_bytes, 0, err), close_file);
    data[st.size_bytes] = '\0';
    *text = data;
    *bytes = st.size_bytes;
    data = NULL;
close_file:
    lp_release(p.alloc, data);
    p.io->close(p.io->context, fd);
    return status;
}

/* fsync of the folder that holds `path`, so that a rename survives a crash. */
static lp_status sync_folder(const lp_io *io, const char *path, lp_error *err)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof folder)
        return lp_fail_at(err, LP_E_LIMIT, path, -1, "path too long: '%s'", path);
    memcpy(folder, length > 0 ? path : ".", length > 0 ? length : 1);
    folder[length > 0 ? length : 1] = '\0';
    const int fd = io->open(io->context, folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return lp_fail_errno(err, fd, "open", folder);
    const int code = io->fsync(io->context, fd);
    io->close(io->context, fd);
    /* Some file systems cannot sync a folder and say EINVAL: there is nothing more to be done on those. */
    return code < 0 && code != -EINVAL ? lp_fail_errno(err, code, "sync", folder) : LP_OK;
}

/* What has the name already: nothing, a file that may be replaced, or a reason not to write there. */
static lp_status look_for(const lp_io *io, const char *path, bool overwrite, lp_error *err)
{
    lp_file_stat st = {.is_regular = true};
    const int fd = io->open(io->context, path, O_RDONLY | O_NONBLOCK, 0); /* a pipe would wait for its other end */
    if (fd == -ENOENT || fd == -ENOTDIR)
        return LP_OK;
    if (fd < 0 && fd != -EACCES) /* a file that may not be read has that name all the same */
        return lp_fail_errno(err, fd, "look for", path);
    if (fd >= 0) {
        const int code = io->stat(io->context, fd, &st);
        io->close(io->context, fd);
        if (code < 0)
            return lp_fail_errno(err, code, "look at", path);
    }
    if (!st.is_regular) /* renaming would put a file in the place of a device */
        return lp_fail_at(err, LP_E_EXISTS, path, -1, "'%s' exists and is not a regular file", path);
    if (overwrite)
        return LP_OK;
    lp_fail_at(err, LP_E_EXISTS, path, -1, "'%s' exists", path);
    lp_hint(err, "use -f to replace it");
    return LP_E_EXISTS;
}

lp_status lp_fail_output(lp_error *err, int code, const char *path, const char *partial)
{
    if (code != -EBUSY)
        return lp_fail_errno(err, code, "create", partial);
    lp_fail_at(err, LP_E_IO, path, -1, "another process writes '%s' at this moment", path);
    lp_hint(err, "give each process an output of its own");
    return LP_E_IO;
}

lp_status lp_outfile_open(lp_outfile *f, const lp_platform *platform, const char *path, bool overwrite, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    *f = (lp_outfile){.io = p.io, .alloc = p.alloc, .fd = -1};
    LP_TRY(look_for(p.io, path, overwrite, err));
    const size_t length = strlen(path);
    f->path = lp_allocate(p.alloc, length + 1);
    f->partial = lp_allocate(p.alloc, length + sizeof ".partial");
    if (f->path == NULL || f->partial == NULL) {
        lp_release(f->alloc, f->partial); /* it names no file of ours yet */
        f->partial = NULL;
        lp_outfile_abandon(f);
        return lp_fail_memory(err);
    }
    memcpy(f->path, path, length + 1);
    memcpy(f->partial, path, length);
    memcpy(f->partial + length, ".partial", sizeof ".partial");
    /* A link that somebody laid in a shared folder would have its target emptied. */
    f->fd = p.io->open(p.io->context, f->partial, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
    if (f->fd < 0) {
        const lp_status status = lp_fail_output(err, f->fd, path, f->partial);
        f->fd = -1;
        lp_release(f->alloc, f->partial);
        f->partial = NULL;
        lp_outfile_abandon(f);
        return status;
    }
    const lp_status status = look_for(p.io, path, overwrite, err); /* whoever wrote it a moment ago is done */
    if (status != LP_OK)
        lp_outfile_abandon(f);
    return status;
}

lp_status lp_outfile_write(lp_outfile *f, const void *data, int64_t bytes, lp_error *err)
{
    LP_TRY(lp_write_exact(f->io, f->fd, f->partial, data, bytes, f->off, err));
    f->off += bytes;
    return LP_OK;
}

lp_status lp_outfile_commit(lp_outfile *f, lp_error *err)
{
    lp_status status = LP_OK;
    int code = f->io->fsync(f->io->context, f->fd);
    if (code < 0) {
        status = lp_fail_errno(err, code, "sync", f->partial);
        goto abandon;
    }
    /* Before the close, which ends the lock: the name would be another's to write under. */
    code = f->io->rename(f->io->context, f->partial, f->path);
    if (code < 0) {
        status = lp_fail_errno(err, code, "rename", f->partial);
        goto abandon;
    }
    lp_release(f->alloc, f->partial); /* renamed: nothing to remove any more */
    f->partial = NULL;
    code = f->io->close(f->io->context, f->fd);
    f->fd = -1;
    status = code < 0 ? lp_fail_errno(err, code, "close", f->path) : sync_folder(f->io, f->path, err);
abandon:
    lp_outfile_abandon(f);
    return status;
}

void lp_outfile_abandon(lp_outfile *f)
{
    if (f->io == NULL)
        return;
    if (f->partial != NULL) /* before the close: it is still ours */
        f->io->unlink(f->io->context, f->partial);
    if (f->fd >= 0)
        f->io->close(f->io->context, f->fd);
    lp_release(f->alloc, f->partial);
    lp_release(f->alloc, f->path);
    *f = (lp_outfile){.fd = -1};
}
