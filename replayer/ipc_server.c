/* SPDX-License-Identifier: Apache-2.0 */
/* The server of weights: its life, what it says of them to all, and who may write to them. */
#include "replayer/ipc_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { CLIENTS_DEFAULT = 64, CLIENTS_MAX = 4096 };

static lp_ipc_head *head(const lp_server *s)
{
    return (lp_ipc_head *)(void *)s->map;
}

uint64_t lp_server_word(const lp_shared_state *state)
{
    return (uint64_t)state->epoch << LP_IPC_WORD_EPOCH | (state->is_torn ? LP_IPC_WORD_TORN : 0) |
           (state->is_writing ? LP_IPC_WORD_WRITING : 0);
}

static void publish(lp_server *s)
{
    _Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "the word is shared between processes");
    __atomic_store_n(&head(s)->word, lp_server_word(&s->state), __ATOMIC_SEQ_CST);
}

/* ---- leases ---- */

void lp_server_begin_writing(lp_server *s, int32_t writer, int32_t pid)
{
    s->writer = writer;
    s->state.writer = pid;
    s->state.is_writing = true;
    publish(s);
}

void lp_server_end_writing(lp_server *s, bool is_changed, bool is_torn)
{
    s->writer = LP_SERVER_NOBODY;
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

void lp_server_commit(lp_server *s, const uint8_t *content, int64_t experts_epoch)
{
    s->state.is_torn = false;
    s->state.has_content = content != NULL && !is_zero(content, sizeof s->state.content);
    memset(s->state.content, 0, sizeof s->state.content);
    if (s->state.has_content)
        memcpy(s->state.content, content, sizeof s->state.content);
    s->state.experts_epoch = experts_epoch;
    lp_server_end_writing(s, true, false);
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
        s->client[i] = (lp_server_client){.fd = -1};
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
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LP_SERVER_LISTENER};
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
    if (s->writer == LP_SERVER_OWN)
        return lp_fail(err, LP_E_MISUSE, "the server has the lease already");
    if (s->writer != LP_SERVER_NOBODY)
        return lp_fail(err, LP_E_PEER, "process %d writes to the weights at '%s'", s->state.writer, s->path);
    lp_server_begin_writing(s, LP_SERVER_OWN, getpid());
    return LP_OK;
}

lp_status lp_serve_commit(lp_server *s, const uint8_t content[32], int64_t experts_epoch, lp_error *err)
{
    if (s->writer != LP_SERVER_OWN)
        return lp_fail(err, LP_E_MISUSE, "the server has no lease to commit");
    lp_server_commit(s, content, experts_epoch);
    return LP_OK;
}
