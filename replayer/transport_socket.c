/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets: listening, connecting, and the clock that their time-outs go by. */
#include "replayer/transport_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT_MS = 3000, BACKLOG = 4096 };

int64_t lp_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void lp_sleep_ms(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

bool lp_socket_prepare(int fd)
{
    const int on = 1;
    const int flags = fcntl(fd, F_GETFL);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static struct addrinfo *resolve(const char *host, int32_t port, bool to_listen, lp_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = to_listen ? AI_PASSIVE : 0};
    struct addrinfo *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &list);
    if (code == 0)
        return list;
    (void)lp_fail(err, LP_E_IO, "cannot find host '%s': %s", host == NULL ? "*" : host, gai_strerror(code));
    return NULL;
}

static int32_t port_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    char service[16];
    int32_t port = 0;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) == 0 &&
        getnameinfo((struct sockaddr *)&at, bytes, NULL, 0, service, sizeof service, NI_NUMERICSERV) == 0)
        (void)sscanf(service, "%d", &port);
    return port;
}

int lp_socket_listen(const char *host, int32_t port, int32_t *bound, lp_error *err)
{
    struct addrinfo *list = resolve(host, port, true, err);
    const int on = 1;
    int fd = -1, code = 0;
    if (list == NULL)
        return -1;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) {
            code = errno;
            continue;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd == 0) { /* options say by 0 that there is none */
            fd = fcntl(0, F_DUPFD_CLOEXEC, 1);
            close(0);
        }
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0 && lp_socket_prepare(fd))
            break;
        code = errno;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0)
        (void)lp_fail(err, LP_E_IO, "cannot listen at '%s' port %d: %s", host == NULL ? "*" : host, port,
                      strerror(code));
    else
        *bound = port_of(fd);
    return fd;
}

/* A port that nobody listens at may be given to the caller's own end, which then talks to itself. */
static bool is_itself(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return getsockname(fd, (struct sockaddr *)&here, &here_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_bytes) == 0 && here_bytes == there_bytes &&
           memcmp(&here, &there, here_bytes) == 0;
}

/* Connects with a limit, because a host that is down answers nothing at all. */
static int try_connect(int fd, const struct addrinfo *a)
{
    if (!lp_socket_prepare(fd))
        return errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return is_itself(fd) ? ECONNREFUSED : 0;
    if (errno != EINPROGRESS)
        return errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int code = 0;
    socklen_t bytes = sizeof code;
    int ready;
    do {
        ready = poll(&p, 1, CONNECT_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return ready == 0 ? ETIMEDOUT : errno;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &bytes) != 0)
        return errno;
    return code == 0 && is_itself(fd) ? ECONNREFUSED : code;
}

int lp_socket_connect(const char *host, int32_t port, lp_error *err)
{
    struct addrinfo *list = resolve(host, port, false, err);
    int fd = -1, code = 0;
    if (list == NULL)
        return -1;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        code = fd < 0 ? errno : try_connect(fd, a);
        if (code == 0)
            break;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0)
        (void)lp_fail_at(err, LP_E_PEER, host, -1, "cannot reach '%s' port %d: %s", host, port, strerror(code));
    return fd;
}

bool lp_socket_peer_host(int fd, char out[LP_WIRE_NAME])
{
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    return getpeername(fd, (struct sockaddr *)&at, &bytes) == 0 &&
           getnameinfo((struct sockaddr *)&at, bytes, out, LP_WIRE_NAME, NULL, 0, NI_NUMERICHOST) == 0;
}
