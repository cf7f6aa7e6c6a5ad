/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of weights: one thread, one epoll set, a fixed number of clients. It never waits for a client: what cannot
 * be sent at once, or is not understood, ends that client's connection.
 */
#include "replayer/ipc_protocol.h"
#include "replayer/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { CLIENTS_DEFAULT = 64, CLIENTS_MAX = 4096, EVENTS = 16, LISTENER = 0, OWN = -1, NOBODY = 0 };

typedef struct client {
    int fd; /* -1: a free place */
    int32_t pid;
    bool is_attached;
    int64_t deadline_ns; /* for its hello */
} client;

struct lp_server {
    lp_platform platform;
    const lp_shared *shared;
    char *path;
    uint64_t file_device, file_inode;
    int listener, epoll, description;
    uint8_t *map; /* of the description */
    int64_t map_bytes;
    client *client;
    int32_t client_limit, attached;
    bool any_user, is_deaf; /* deaf: out of descriptors, the listener is not watched */
    int32_t timeout_ms;
    int32_t writer; /* index + 1 of the client that writes, OWN, or NOBODY */
    lp_shared_state state;
};

static lp_ipc_head *head(const lp_server *s)
{
    return (lp_ipc_head *)(void *)s->map;
}

static uint64_t word_of(const lp_shared_state *state)
{
    return (uint64_t)state->epoch << LP_IPC_WORD_EPOCH | (state->is_torn ? LP_IPC_WORD_TORN : 0) |
           (state->is_writing ? LP_IPC_WORD_WRITING : 0);
}

static void publish(lp_server *s)
{
    _Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "the word is shared between processes");
    __atomic_store_n(&head(s)->word, word_of(&s->state), __ATOMIC_SEQ_CST);
}

/* ---- leases ---- */

static void begin_writing(lp_server *s, int32_t writer, int32_t pid)
{
    s->writer = writer;
    s->state.writer = pid;
    s->state.is_writing = true;
    publish(s);
}

static void end_writing(lp_server *s, bool is_changed, bool is_torn)
{
    s->writer = NOBODY;
    s->state.writer = 0;
    s->state.is_writing = false;
    if (is_changed || is_torn)
        s->state.epoch++;
    if (is_torn) {
        s->state.is_torn = true;
        s->state.has_content = false;
        memset(s->state.content, 0, sizeof s->state.content);
    }
    publish(s);
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static void commit(lp_server *s, const uint8_t *content, int64_t experts_epoch)
{
    s->state.is_torn = false;
    s->state.has_content = content != NULL && !is_zero(content, sizeof s->state.content);
    memset(s->state.content, 0, sizeof s->state.content);
    if (s->state.has_content)
        memcpy(s->state.content, content, sizeof s->state.content);
    s->state.experts_epoch = experts_epoch;
    end_writing(s, true, false);
}

/* ---- clients ---- */

static void listen_again(lp_server *s)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LISTENER};
    if (s->is_deaf && epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &event) == 0)
        s->is_deaf = false;
}

static void drop(lp_server *s, int32_t index)
{
    client *c = &s->client[index];
    lp_log(&s->platform, LP_LOG_INFO, "ipc", "process %d leaves", c->pid);
    close(c->fd);
    c->fd = -1;
    s->attached -= c->is_attached;
    if (s->writer == index + 1) {
        lp_log(&s->platform, LP_LOG_WARNING, "ipc", "process %d was lost while it wrote", c->pid);
        end_writing(s, false, true);
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
                          .word = word_of(&s->state),
                          .experts_epoch = s->state.experts_epoch};
    memcpy(state.content, s->state.content, sizeof state.content);
    return lp_ipc_send(fd, LP_IPC_STATE, &state, sizeof state, NULL, 0);
}

static bool greet(lp_server *s, client *c, const lp_ipc_packet *packet, int64_t bytes)
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
    const client *c = &s->client[index];
    const bool is_writer = s->writer == index + 1;
    switch (packet->header.type) {
    case LP_IPC_QUERY:
        return bytes == 0 && send_state(s, c->fd, LP_IPC_YES);
    case LP_IPC_LEASE:
        if (bytes != 0 || is_writer)
            return false;
        if (s->writer != NOBODY)
            return send_state(s, c->fd, LP_IPC_BUSY);
        begin_writing(s, index + 1, c->pid);
        return send_state(s, c->fd, LP_IPC_YES);
    case LP_IPC_COMMIT:
        if (bytes != sizeof packet->body.commit || !is_writer)
            return false;
        commit(s, packet->body.commit.content, packet->body.commit.experts_epoch);
        return send_state(s, c->fd, LP_IPC_YES);
    case LP_IPC_ABANDON:
        if (bytes != sizeof packet->body.abandon || !is_writer)
            return false;
        end_writing(s, false, packet->body.abandon.is_torn != 0);
        return send_state(s, c->fd, LP_IPC_YES);
    default:
        return false;
    }
}

/* One packet of a client. */
static void serve_client(lp_server *s, int32_t index)
{
    client *c = &s->client[index];
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
        struct epoll_event event = {.events = 0, .data.u32 = LISTENER}; /* until somebody leaves, or the next step */
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
        (client){.fd = fd, .pid = pid, .deadline_ns = lp_session_clock() + (int64_t)s->timeout_ms * 1000000};
}

static bool is_strange(const client *c)
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
        if (who == LISTENER)
            accept_client(s);
        else if (s->client[who - 1].fd >= 0)
            serve_client(s, (int32_t)who - 1);
    }
    if (count < EVENTS)
        expire(s, begin);
    return LP_OK;
}

/* ---- open and close ---- */

static lp_status describe(lp_server *s, lp_error *err)
{
    const lp_shared *shared = s->shared;
    s->map_bytes = lp_ipc_description_bytes(shared->block_count, shared->places.count);
    LP_TRY(lp_ipc_memory_new(&s->description, &s->map, "the description of the weights", s->map_bytes, err));
    lp_ipc_head *h = head(s);
    *h = (lp_ipc_head){.magic = LP_IPC_MAGIC,
                       .version = LP_IPC_VERSION,
                       .kind = shared->device == NULL ? LP_IPC_HOST : LP_IPC_DEVICE,
                       .block_count = shared->block_count,
                       .storage_count = shared->places.count};
    uint8_t *at = s->map + sizeof *h;
    const size_t block_bytes = shared->block_count * sizeof *shared->block;
    memcpy(at, shared->block, block_bytes);
    memcpy(at + block_bytes, shared->storage, shared->places.count * sizeof *shared->storage);
    publish(s);
    /* Clients read it; on kernels before 5.1 they could write it, which would mislead other clients only. */
    (void)fcntl(s->description, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    return LP_OK;
}

static lp_status open_server(lp_server *s, const char *path, const lp_serve_options *o, lp_error *err)
{
    const size_t path_bytes = strlen(path) + 1;
    s->client = lp_allocate(s->platform.alloc, (size_t)s->client_limit * sizeof *s->client);
    for (int32_t i = 0; s->client != NULL && i < s->client_limit; i++)
        s->client[i] = (client){.fd = -1};
    s->path = lp_allocate(s->platform.alloc, path_bytes);
    if (s->client == NULL || s->path == NULL)
        return lp_fail_memory(err);
    memcpy(s->path, path, path_bytes);
    s->state.epoch = 1;
    s->state.experts_epoch = o->experts_epoch;
    if (o->content != NULL && !is_zero(o->content, sizeof s->state.content)) {
        s->state.has_content = true;
        memcpy(s->state.content, o->content, sizeof s->state.content);
    }
    LP_TRY(describe(s, err));
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0)
        return lp_fail_errno(err, errno, "wait for clients at", path);
    LP_TRY(lp_ipc_listen(&s->listener, path, o->any_user, &s->file_device, &s->file_inode, err));
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LISTENER};
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &event) != 0)
        return lp_fail_errno(err, errno, "wait for clients at", path);
    return LP_OK;
}

lp_status lp_serve_open(lp_server **out, const char *path, lp_shared *shared, const lp_serve_options *options,
                        lp_error *err)
{
    const lp_serve_options none = {0}, *o = options == NULL ? &none : options;
    const lp_platform platform = lp_platform_resolve(o->platform);
    if (o->clients < 0 || o->clients > CLIENTS_MAX || o->timeout_ms < 0)
        return lp_fail(err, LP_E_ARGUMENT, "an option of the server is out of its range");
    lp_server *s = lp_allocate_zero(platform.alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(err);
    s->platform = platform;
    s->shared = shared;
    s->listener = s->epoll = s->description = -1;
    s->any_user = o->any_user;
    s->client_limit = o->clients == 0 ? CLIENTS_DEFAULT : o->clients;
    s->timeout_ms = o->timeout_ms == 0 ? LP_IPC_TIMEOUT_MS : o->timeout_ms;
    const lp_status status = open_server(s, path, o, err);
    if (status != LP_OK) {
        lp_serve_close(s);
        return status;
    }
    *out = s;
    return LP_OK;
}

void lp_serve_close(lp_server *s)
{
    if (s == NULL)
        return;
    if (s->listener >= 0) {
        lp_ipc_unlink(s->path, s->file_device, s->file_inode);
        close(s->listener);
    }
    for (int32_t i = 0; s->client != NULL && i < s->client_limit; i++)
        if (s->client[i].fd >= 0)
            close(s->client[i].fd);
    if (s->epoll >= 0)
        close(s->epoll);
    if (s->map != NULL)
        munmap(s->map, (size_t)s->map_bytes);
    if (s->description >= 0)
        close(s->description);
    lp_release(s->platform.alloc, s->client);
    lp_release(s->platform.alloc, s->path);
    lp_release(s->platform.alloc, s);
}

int lp_serve_fd(const lp_server *s)
{
    return s->epoll;
}

void lp_serve_state(const lp_server *s, lp_shared_state *out)
{
    *out = s->state;
}

int32_t lp_serve_clients(const lp_server *s)
{
    return s->attached;
}

lp_status lp_serve_lease(lp_server *s, lp_error *err)
{
    if (s->writer == OWN)
        return lp_fail(err, LP_E_MISUSE, "the server has the lease already");
    if (s->writer != NOBODY)
        return lp_fail(err, LP_E_PEER, "process %d writes to the weights at '%s'", s->state.writer, s->path);
    begin_writing(s, OWN, getpid());
    return LP_OK;
}

lp_status lp_serve_commit(lp_server *s, const uint8_t content[32], int64_t experts_epoch, lp_error *err)
{
    if (s->writer != OWN)
        return lp_fail(err, LP_E_MISUSE, "the server has no lease to commit");
    commit(s, content, experts_epoch);
    return LP_OK;
}
