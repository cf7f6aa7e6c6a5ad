/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of weight servers: the file, the peers, and packets with descriptors. */
#include "replayer/ipc_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 64, LOCK_TRIES = 100 };

static lp_status address_of(struct sockaddr_un *address, const char *path, lp_error *err)
{
    const size_t bytes = strlen(path);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (bytes == 0 || bytes >= sizeof address->sun_path)
        return lp_fail_at(err, LP_E_ARGUMENT, path, -1, "the path of a socket has 1 to %zu bytes, '%s' has %zu",
                          sizeof address->sun_path - 1, path, bytes);
    memcpy(address->sun_path, path, bytes + 1);
    return LP_OK;
}

static void set_timeout(int fd, int32_t timeout_ms)
{
    const struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* ---- the server's side ---- */

/* Removes a socket that nobody listens on. */
static lp_status remove_stale(const struct sockaddr_un *address, lp_error *err)
{
    const char *path = address->sun_path;
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? LP_OK : lp_fail_errno(err, errno, "look at", path);
    if (!S_ISSOCK(st.st_mode))
        return lp_fail_at(err, LP_E_EXISTS, path, -1, "cannot serve at '%s': it exists and is not a socket", path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return lp_fail_errno(err, errno, "make a socket for", path);
    const bool is_dead = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!is_dead)
        return lp_fail_at(err, LP_E_EXISTS, path, -1, "cannot serve at '%s': another process listens there", path);
    return unlink(path) == 0 || errno == ENOENT ? LP_OK : lp_fail_errno(err, errno, "remove", path);
}

/* Two servers that start at once must not both take the other's socket for a dead one: the folder is locked. Not for
 * ever, since anybody can lock a folder that all may use; without the lock, servers have to be started one by one. */
static int lock_folder(const char *path)
{
    char folder[sizeof((struct sockaddr_un *)0)->sun_path] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++)
        nanosleep(&pause, NULL);
    return fd;
}

lp_status lp_ipc_listen(int *out, const char *path, bool any_user, uint64_t *device, uint64_t *inode, lp_error *err)
{
    struct sockaddr_un address;
    struct stat st;
    lp_status status = LP_OK;
    LP_TRY(address_of(&address, path, err));
    const int folder = lock_folder(path);
    if (folder < 0)
        return lp_fail_errno(err, errno, "open the folder of", path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        status = lp_fail_errno(err, errno, "make a socket for", path);
        goto unlock;
    }
    LP_TRY_GOTO(remove_stale(&address, err), close_socket);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        status = lp_fail_errno(err, errno, "serve at", path);
        goto close_socket;
    }
    /* Nobody can connect before listen, so that nobody gets in under the mode that bind gave. */
    if (chmod(path, any_user ? 0666 : 0600) != 0 || lstat(path, &st) != 0 || listen(fd, BACKLOG) != 0) {
        status = lp_fail_errno(err, errno, "serve at", path);
        unlink(path);
        goto close_socket;
    }
    *device = st.st_dev;
    *inode = st.st_ino;
    *out = fd;
    close(folder);
    return LP_OK;
close_socket:
    close(fd);
unlock:
    close(folder);
    return status;
}

void lp_ipc_unlink(const char *path, uint64_t device, uint64_t inode)
{
    struct stat st;
    if (lstat(path, &st) == 0 && st.st_dev == device && st.st_ino == inode)
        (void)unlink(path);
}

bool lp_ipc_is_own_user(int fd, bool any_user, int32_t *pid)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return false;
    *pid = peer.pid;
    return any_user || peer.uid == geteuid();
}

/* ---- the client's side ---- */

lp_status lp_ipc_connect(int *out, const char *path, int32_t timeout_ms, lp_error *err)
{
    struct sockaddr_un address;
    LP_TRY(address_of(&address, path, err));
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return lp_fail_errno(err, errno, "make a socket for", path);
    set_timeout(fd, timeout_ms);
    int failed;
    do {
        failed = connect(fd, (const struct sockaddr *)&address, sizeof address);
    } while (failed != 0 && errno == EINTR);
    if (failed == 0) {
        *out = fd;
        return LP_OK;
    }
    const int code = errno;
    close(fd);
    if (code == ECONNREFUSED)
        return lp_fail_at(err, LP_E_PEER, path, -1, "nobody serves at '%s' any more", path);
    if (code == EAGAIN || code == EINPROGRESS)
        return lp_fail_at(err, LP_E_PEER, path, -1, "the server at '%s' does not answer", path);
    (void)lp_fail_errno(err, code, "connect to", path);
    if (err != NULL)
        err->code = LP_E_PEER;
    return LP_E_PEER;
}

/* ---- packets ---- */

bool lp_ipc_send(int fd, lp_ipc_type type, const void *body, uint32_t bytes, const int *fds, int fd_count)
{
    lp_ipc_header header = {.magic = LP_IPC_MAGIC, .version = LP_IPC_VERSION, .type = (uint16_t)type, .bytes = bytes};
    lp_ipc_packet whole = {.header = header};
    union {
        struct cmsghdr first;
        char bytes[CMSG_SPACE(LP_IPC_FDS_MAX * sizeof(int))];
    } control;
    if (bytes > 0)
        memcpy(&whole.body, body, bytes);
    struct iovec part = {.iov_base = &whole, .iov_len = sizeof header + bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        control.first.cmsg_level = SOL_SOCKET;
        control.first.cmsg_type = SCM_RIGHTS;
        control.first.cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.first), fds, (size_t)fd_count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)part.iov_len;
}

static void take_descriptors(struct msghdr *message, int fds[LP_IPC_FDS_MAX])
{
    int count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t sent = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < sent; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (count < LP_IPC_FDS_MAX)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
}

int64_t lp_ipc_receive(int fd, lp_ipc_packet *packet, int fds[LP_IPC_FDS_MAX])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(LP_IPC_FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = sizeof *packet};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    bool was_reset = false;
    memset(packet, 0, sizeof *packet);
    memset(&control, 0, sizeof control);
    for (int i = 0; i < LP_IPC_FDS_MAX; i++)
        fds[i] = -1;
    /* A peer that hangs up without having read everything is reported once, before what it sent: that is still there.
     */
    for (;;) {
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (got >= 0)
            break;
        if (errno == ECONNRESET && !was_reset)
            was_reset = true;
        else if (errno != EINTR)
            return -1;
    }
    take_descriptors(&message, fds);
    const lp_ipc_header *h = &packet->header;
    if (got == 0) {
        errno = 0;
        return -1;
    }
    errno = EPROTO;
    if ((size_t)got < sizeof *h || h->magic != LP_IPC_MAGIC || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return -1;
    if (h->version != LP_IPC_VERSION)
        return 0;
    return h->bytes == (size_t)got - sizeof *h ? (int64_t)h->bytes : -1;
}
