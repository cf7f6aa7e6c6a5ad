/* SPDX-License-Identifier: Apache-2.0 */
/* The clients of a server of weights: who is let in, what each may ask, and who has said nothing for too long. */
#include "replayer/ipc_server.h"
#include "replayer/session.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 16 };

static void listen_again(lp_server *s)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LP_SERVER_LISTENER};
    if (s->is_deaf && epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &event) == 0)
        s->is_deaf = false;
}

static void drop(lp_server *s, int32_t index)
{
    lp_server_client *c = &s->client[index];
    lp_log(&s->platform, LP_LOG_INFO, "ipc", "process %d leaves", c->pid);
    close(c->fd);
    c->fd = -1;
    s->attached -= c->is_attached;
    if (s->writer == index + 1) {
        lp_log(&s->platform, LP_LOG_WARNING, "ipc", "process %d was lost while it wrote", c->pid);
        lp_server_end_writing(s, false, true);
    }
    listen_again(s);
}

static lp_ipc_answer judge(const lp_server *s, const lp_ipc_hello *hello)
{
    const bool is_any = (hello->flags & LP_IPC_ANY_CONTENT) != 0;
    const bool repairs = is_any && (hello->flags & LP_IPC_WRITE) != 0;
    if (memcmp(hello->plan, s->shared->places.rows->digest, sizeof hello->plan) != 0)
        return LP_IPC_OTHER_PLAN;
    if (memcmp(hello->device, s->shared->name, sizeof hello->device) != 0)
        return LP_IPC_OTHER_DEVICE;
    if (s->state.is_writing && !repairs)
        return LP_IPC_BUSY;
    if (s->state.is_torn && !repairs)
        return LP_IPC_TORN;
    if (is_any)
        return LP_IPC_YES;
    if (!s->state.has_content || memcmp(hello->content, s->state.content, sizeof hello->content) != 0)
        return LP_IPC_OTHER_CONTENT;
    return hello->experts_epoch == s->state.experts_epoch ? LP_IPC_YES : LP_IPC_OTHER_EXPERTS;
}

static bool send_welcome(const lp_server *s, int fd, lp_ipc_answer answer)
{
    const int fds[LP_IPC_FDS_MAX] = {s->description, s->shared->fd};
    lp_ipc_welcome welcome = {
        .answer = answer, .writer = (uint32_t)s->state.writer, .experts_epoch = s->state.experts_epoch};
    memcpy(welcome.device, s->shared->name, sizeof welcome.device);
    const int count = answer != LP_IPC_YES ? 0 : s->shared->fd >= 0 ? 2 : 1;
    return lp_ipc_send(fd, LP_IPC_WELCOME, &welcome, sizeof welcome, fds, count);
}

static bool send_state(const lp_server *s, int fd, lp_ipc_answer answer)
{
    lp_ipc_state state = {.answer = answer,
                          .writer = (uint32_t)s->state.writer,
                          .word = lp_server_word(&s->state),
                          .experts_epoch = s->state.experts_epoch};
    memcpy(state.content, s->state.content, sizeof state.content);
    return lp_ipc_send(fd, LP_IPC_STATE, &state, sizeof state, NULL, 0);
}

static bool greet(lp_server *s, lp_server_client *c, const lp_ipc_packet *packet, int64_t bytes)
{
    if (packet->header.version != LP_IPC_VERSION) {
        (void)send_welcome(s, c->fd, LP_IPC_OTHER_VERSION);
        return false;
    }
    if (packet->header.type != LP_IPC_HELLO || bytes != sizeof packet->body.hello)
        return false;
    const lp_ipc_answer answer = judge(s, &packet->body.hello);
    if (!send_welcome(s, c->fd, answer) || answer != LP_IPC_YES)
        return false;
    c->is_attached = true;
    s->attached++;
    lp_log(&s->platform, LP_LOG_INFO, "ipc", "process %d attached", c->pid);
    return true;
}

static bool answer_attached(lp_server *s, int32_t index, const lp_ipc_packet *packet, int64_t bytes)
{
    const lp_server_client *c = &s->client[index];
    const bool is_writer = s->writer == index + 1;
    switch (packet->header.type) {
    case LP_IPC_QUERY:
        return bytes == 0 && send_state(s, c->fd, LP_IPC_YES);
    case LP_IPC_LEASE:
        if (bytes != 0 || is_writer)
            return false;
        if (s->writer != LP_SERVER_NOBODY)
            return send_state(s, c->fd, LP_IPC_BUSY);
        lp_server_begin_writing(s, index + 1, c->pid);
        return send_state(s, c->fd, LP_IPC_YES);
    case LP_IPC_COMMIT:
        if (bytes != sizeof packet->body.commit || !is_writer)
            return false;
        lp_server_commit(s, packet->body.commit.content, packet->body.commit.experts_epoch);
        return send_state(s, c->fd, LP_IPC_YES);
    case LP_IPC_ABANDON:
        if (bytes != sizeof packet->body.abandon || !is_writer)
            return false;
        lp_server_end_writing(s, false, packet->body.abandon.is_torn != 0);
        return send_state(s, c->fd, LP_IPC_YES);
    default:
        return false;
    }
}

/* One packet of a client. */
static void serve_client(lp_server *s, int32_t index)
{
    lp_server_client *c = &s->client[index];
    lp_ipc_packet packet;
    int fds[LP_IPC_FDS_MAX];
    const int64_t bytes = lp_ipc_receive(c->fd, &packet, fds);
    const int code = errno;
    bool has_descriptors = false;
    for (int i = 0; i < LP_IPC_FDS_MAX; i++) {
        has_descriptors = has_descriptors || fds[i] >= 0;
        if (fds[i] >= 0)
            close(fds[i]);
    }
    if (bytes < 0 && code == EAGAIN && !has_descriptors)
        return;
    if (bytes < 0 || has_descriptors ||
        !(c->is_attached ? answer_attached(s, index, &packet, bytes) : greet(s, c, &packet, bytes)))
        drop(s, index);
}

static void refuse(const lp_server *s, int fd, lp_ipc_answer answer)
{
    (void)send_welcome(s, fd, answer);
    close(fd);
}

static void accept_client(lp_server *s)
{
    const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int32_t pid = 0, index = 0;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        struct epoll_event event = {.events = 0,
                                    .data.u32 = LP_SERVER_LISTENER}; /* until somebody leaves, or the next step */
        s->is_deaf = epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &event) == 0;
    }
    if (fd < 0)
        return;
    if (!lp_ipc_is_own_user(fd, s->any_user, &pid)) {
        lp_log(&s->platform, LP_LOG_WARNING, "ipc", "process %d of another user was turned away", pid);
        refuse(s, fd, LP_IPC_OTHER_USER);
        return;
    }
    while (index < s->client_limit && s->client[index].fd >= 0)
        index++;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)index + 1};
    if (index == s->client_limit || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        refuse(s, fd, LP_IPC_FULL);
        return;
    }
    s->client[index] =
        (lp_server_client){.fd = fd, .pid = pid, .deadline_ns = lp_session_clock() + (int64_t)s->timeout_ms * 1000000};
}

static bool is_strange(const lp_server_client *c)
{
    return c->fd >= 0 && !c->is_attached;
}

/* Milliseconds until a client has said nothing for too long, -1: there is none that may. */
static int32_t next_deadline(const lp_server *s)
{
    const int64_t now = lp_session_clock();
    int64_t next = INT64_MAX;
    for (int32_t i = 0; i < s->client_limit; i++)
        if (is_strange(&s->client[i]) && s->client[i].deadline_ns < next)
            next = s->client[i].deadline_ns;
    return next == INT64_MAX ? -1 : next <= now ? 0 : (int32_t)((next - now) / 1000000 + 1);
}

/* Drops those who had said nothing by `now`. */
static void expire(lp_server *s, int64_t now)
{
    for (int32_t i = 0; i < s->client_limit; i++)
        if (is_strange(&s->client[i]) && s->client[i].deadline_ns <= now)
            drop(s, i);
}

lp_status lp_serve_step(lp_server *s, int32_t timeout_ms, lp_error *err)
{
    struct epoll_event event[EVENTS];
    int32_t wait = next_deadline(s);
    if (s->is_deaf) {
        listen_again(s);
        wait = wait < 0 || wait > 100 ? 100 : wait;
    }
    if (timeout_ms >= 0 && (wait < 0 || timeout_ms < wait))
        wait = timeout_ms;
    /* Judged by the clock before the look at what has come: a server that was kept from its work is not to blame its
     * clients for it. */
    const int64_t begin = lp_session_clock();
    const int count = epoll_wait(s->epoll, event, EVENTS, wait);
    if (count < 0)
        return errno == EINTR ? LP_OK : lp_fail_errno(err, errno, "wait for clients at", s->path);
    for (int i = 0; i < count; i++) {
        const uint32_t who = event[i].data.u32;
        if (who == LP_SERVER_LISTENER)
            accept_client(s);
        else if (s->client[who - 1].fd >= 0)
            serve_client(s, (int32_t)who - 1);
    }
    if (count < EVENTS)
        expire(s, begin);
    return LP_OK;
}
