/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to served weights: the strict key, mapping, and the lease. */
#include "replayer/ipc_device.h"
#include "replayer/session.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct lp_attachment {
    const lp_alloc *alloc;
    const lp_ipc_device *device; /* NULL: host */
    lp_ipc_device *own_device;   /* to be closed, or NULL */
    int fd;
    char *path;
    bool may_write, has_lease;
    lp_ipc_places places;
    lp_ipc_block *block;
    void **base; /* by block */
    uint32_t block_count, mapped;
    const uint8_t *description;
    int64_t description_bytes;
    lp_shared_state state;
};

static void take_word(lp_shared_state *state, uint64_t word)
{
    state->epoch = (int64_t)(word >> LP_IPC_WORD_EPOCH);
    state->is_writing = (word & LP_IPC_WORD_WRITING) != 0;
    state->is_torn = (word & LP_IPC_WORD_TORN) != 0;
}

static lp_status silent(const lp_attachment *a, int code, lp_error *err)
{
    if (code == EAGAIN || code == EWOULDBLOCK)
        return lp_fail_at(err, LP_E_PEER, a->path, -1, "the server at '%s' does not answer", a->path);
    if (code == EPROTO)
        return lp_fail_at(err, LP_E_PEER, a->path, -1, "what answers at '%s' is no weight server", a->path);
    return lp_fail_at(err, LP_E_PEER, a->path, -1, "the server at '%s' is gone", a->path);
}

static void close_all(int fds[LP_IPC_FDS_MAX])
{
    for (int i = 0; i < LP_IPC_FDS_MAX; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* ---- what the server says ---- */

static lp_status explain(const lp_attachment *a, const lp_ipc_welcome *w, uint16_t version, lp_error *err)
{
    const char *path = a->path;
    char device[LP_IPC_DEVICE_BYTES];
    memcpy(device, w->device, sizeof device);
    device[sizeof device - 1] = '\0';
    switch (w->answer) {
    case LP_IPC_OTHER_PLAN:
        return lp_fail_at(err, LP_E_MISMATCH, path, -1, "'%s' serves weights of another plan", path);
    case LP_IPC_OTHER_CONTENT:
        return lp_fail_at(err, LP_E_MISMATCH, path, -1, "'%s' serves other content than this checkpoint's", path);
    case LP_IPC_OTHER_DEVICE:
        return lp_fail_at(err, LP_E_MISMATCH, path, -1, "'%s' serves weights on device '%s'", path, device);
    case LP_IPC_OTHER_EXPERTS:
        return lp_fail_at(err, LP_E_MISMATCH, path, -1, "'%s' serves weights by expert map %lld", path,
                          (long long)w->experts_epoch);
    case LP_IPC_BUSY:
        return lp_fail_at(err, LP_E_MISMATCH, path, -1, "process %u is writing to the weights at '%s'", w->writer,
                          path);
    case LP_IPC_TORN:
        return lp_fail_at(err, LP_E_POISONED, path, -1, "the weights at '%s' were left half written", path);
    case LP_IPC_FULL:
        return lp_fail_at(err, LP_E_PEER, path, -1, "the server at '%s' has as many clients as it takes", path);
    case LP_IPC_OTHER_USER:
        return lp_fail_at(err, LP_E_PEER, path, -1, "the server at '%s' turns other users away", path);
    case LP_IPC_OTHER_VERSION:
        return lp_fail_at(err, LP_E_PEER, path, -1, "the server at '%s' speaks version %u of the protocol, this is %d",
                          path, version, LP_IPC_VERSION);
    default:
        return silent(a, EPROTO, err);
    }
}

/* Descriptors of the description and of host memory come in fds. */
static lp_status greet(lp_attachment *a, const lp_attach_options *o, int fds[LP_IPC_FDS_MAX], lp_error *err)
{
    lp_ipc_hello hello = {.experts_epoch = o->experts_epoch,
                          .flags = (o->content == NULL ? (uint32_t)LP_IPC_ANY_CONTENT : 0) |
                                   (o->write ? (uint32_t)LP_IPC_WRITE : 0)};
    lp_ipc_packet packet;
    memcpy(hello.plan, a->places.rows->digest, sizeof hello.plan);
    if (o->content != NULL)
        memcpy(hello.content, o->content, sizeof hello.content);
    memcpy(hello.device, a->device == NULL ? "cpu" : a->device->name,
           a->device == NULL ? sizeof "cpu" : sizeof hello.device);
    /* A server that is full, or turns this user away, answers without having read the hello. */
    (void)lp_ipc_send(a->fd, LP_IPC_HELLO, &hello, sizeof hello, NULL, 0);
    const int64_t bytes = lp_ipc_receive(a->fd, &packet, fds);
    if (bytes < 0)
        return silent(a, errno, err);
    if (packet.header.version != LP_IPC_VERSION)
        packet.body.welcome.answer = LP_IPC_OTHER_VERSION;
    else if (packet.header.type != LP_IPC_WELCOME || bytes != sizeof packet.body.welcome)
        return silent(a, EPROTO, err);
    if (packet.body.welcome.answer != LP_IPC_YES)
        return explain(a, &packet.body.welcome, packet.header.version, err);
    a->state.experts_epoch = packet.body.welcome.experts_epoch;
    return LP_OK;
}

/* Asks, and takes the answer into a->state. */
static lp_status ask(lp_attachment *a, lp_ipc_type type, const void *body, uint32_t bytes, lp_ipc_answer *answer,
                     lp_error *err)
{
    lp_ipc_packet packet;
    int fds[LP_IPC_FDS_MAX];
    if (a->fd < 0)
        return silent(a, 0, err);
    if (!lp_ipc_send(a->fd, type, body, bytes, NULL, 0))
        return silent(a, errno, err);
    const int64_t got = lp_ipc_receive(a->fd, &packet, fds);
    const int code = errno;
    close_all(fds);
    if (got != sizeof packet.body.state || packet.header.type != LP_IPC_STATE) {
        /* An answer that comes late would be taken for that of the next question. */
        close(a->fd);
        a->fd = -1;
        return silent(a, got < 0 ? code : EPROTO, err);
    }
    const lp_ipc_state *state = &packet.body.state;
    take_word(&a->state, state->word);
    memcpy(a->state.content, state->content, sizeof a->state.content);
    a->state.has_content = false;
    for (size_t i = 0; i < sizeof state->content; i++)
        a->state.has_content = a->state.has_content || state->content[i] != 0;
    a->state.experts_epoch = state->experts_epoch;
    a->state.writer = (int32_t)state->writer;
    *answer = (lp_ipc_answer)state->answer;
    return LP_OK;
}

/* ---- mapping ---- */

/* The size of memory that cannot shrink below a mapping, or -1. */
static int64_t sealed_bytes(int fd)
{
    struct stat st;
    const int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0)
        return -1;
    return st.st_size;
}

static bool is_described(const lp_attachment *a, const lp_ipc_head *h, int64_t bytes)
{
    const uint32_t kind = a->device == NULL ? LP_IPC_HOST : LP_IPC_DEVICE;
    return h->magic == LP_IPC_MAGIC && h->version == LP_IPC_VERSION && h->kind == kind &&
           h->storage_count == a->places.count && h->block_count <= a->places.count + 1 &&
           (a->device != NULL || h->block_count == 1) &&
           lp_ipc_description_bytes(h->block_count, a->places.count) == bytes;
}

/* Maps the description, and copies what has to be checked before it is used. */
static lp_status read_description(lp_attachment *a, int fd, lp_ipc_storage **storage, lp_error *err)
{
    const int64_t bytes = sealed_bytes(fd);
    lp_ipc_head h;
    if (bytes < (int64_t)sizeof h)
        return silent(a, EPROTO, err);
    void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return lp_fail_errno(err, errno, "map what is served at", a->path);
    a->description = map;
    a->description_bytes = bytes;
    memcpy(&h, map, sizeof h);
    if (!is_described(a, &h, bytes))
        return silent(a, EPROTO, err);
    a->block_count = h.block_count;
    a->block = lp_allocate(a->alloc, ((size_t)h.block_count + 1) * sizeof *a->block);
    a->base = lp_allocate_zero(a->alloc, ((size_t)h.block_count + 1) * sizeof *a->base);
    *storage = lp_allocate(a->alloc, ((size_t)a->places.count + 1) * sizeof **storage);
    if (a->block == NULL || a->base == NULL || *storage == NULL)
        return lp_fail_memory(err);
    const uint8_t *at = a->description + sizeof h;
    memcpy(a->block, at, h.block_count * sizeof *a->block);
    memcpy(*storage, at + h.block_count * sizeof *a->block, a->places.count * sizeof **storage);
    return LP_OK;
}

static lp_status map_blocks(lp_attachment *a, int fd, lp_error *err)
{
    if (a->device == NULL) {
        const int64_t bytes = sealed_bytes(fd);
        if (bytes < 1 || bytes != a->block[0].bytes)
            return silent(a, EPROTO, err);
        const int protection = a->may_write ? PROT_READ | PROT_WRITE : PROT_READ;
        void *map = mmap(NULL, (size_t)bytes, protection, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return lp_fail_errno(err, errno, "map what is served at", a->path);
        a->base[0] = map;
        a->mapped = 1;
        return LP_OK;
    }
    for (; a->mapped < a->block_count; a->mapped++) {
        const int code = a->device->take(a->device->context, a->block[a->mapped].handle, &a->base[a->mapped]);
        if (code != 0)
            return lp_fail_at(err, LP_E_PEER, a->path, -1, "cannot map what is served at '%s': %s", a->path,
                              a->device->error_text(a->device->context, code));
    }
    return LP_OK;
}

static lp_status place(lp_attachment *a, const lp_ipc_storage *storage, lp_error *err)
{
    for (uint32_t i = 0; i < a->places.count; i++) {
        const lp_ipc_storage *s = &storage[i];
        if (s->bytes == 0 && a->places.bytes[i] == 0) {
            a->places.base[i] = a->block_count > 0 ? a->base[0] : NULL;
            continue;
        }
        if (s->block >= a->block_count || s->bytes != a->places.bytes[i] || s->offset < 0 ||
            s->offset > a->block[s->block].bytes - s->bytes)
            return silent(a, EPROTO, err);
        a->places.base[i] = (uint8_t *)a->base[s->block] + s->offset;
    }
    lp_ipc_places_list(&a->places);
    return LP_OK;
}

static lp_status attach(lp_attachment *a, const lp_attach_options *o, lp_error *err)
{
    int fds[LP_IPC_FDS_MAX] = {-1, -1};
    lp_ipc_storage *storage = NULL;
    lp_ipc_answer answer;
    int32_t pid;
    if (a->device != NULL)
        LP_TRY(lp_ipc_device_check(a->device, a->device->enter(a->device->context), "use the device", err));
    LP_TRY(lp_ipc_connect(&a->fd, a->path, o->timeout_ms == 0 ? LP_IPC_TIMEOUT_MS : o->timeout_ms, err));
    if (!lp_ipc_is_own_user(a->fd, o->any_user, &pid))
        return lp_fail_at(err, LP_E_PEER, a->path, -1, "the server at '%s' is of another user", a->path);
    lp_status status = greet(a, o, fds, err);
    if (status == LP_OK)
        status = read_description(a, fds[0], &storage, err);
    if (status == LP_OK)
        status = map_blocks(a, fds[1], err);
    if (status == LP_OK)
        status = place(a, storage, err);
    close_all(fds);
    lp_release(a->alloc, storage);
    LP_TRY(status);
    /* What was promised in the welcome must still hold now that it is mapped. */
    LP_TRY(ask(a, LP_IPC_QUERY, NULL, 0, &answer, err));
    if (o->content == NULL)
        return LP_OK;
    if (a->state.is_writing || a->state.is_torn || memcmp(a->state.content, o->content, sizeof a->state.content) != 0)
        return lp_fail_at(err, LP_E_MISMATCH, a->path, -1, "the weights at '%s' are being replaced", a->path);
    return LP_OK;
}

/* ---- open and close ---- */

lp_status lp_attach_on(lp_attachment **out, const char *path, const lp_trace *trace, const lp_scope *scope,
                       const lp_attach_options *options, const lp_ipc_device *device, lp_error *err)
{
    const lp_attach_options none = {0}, *o = options == NULL ? &none : options;
    const lp_platform platform = lp_platform_resolve(o->platform);
    const lp_rows *rows;
    int32_t index;
    if (o->timeout_ms < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a timeout of %d ms is out of its range", o->timeout_ms);
    LP_TRY(lp_replay_rows(trace, scope, &index, &rows, err));
    lp_attachment *a = lp_allocate_zero(platform.alloc, sizeof *a);
    if (a == NULL)
        return lp_fail_memory(err);
    a->alloc = platform.alloc;
    a->device = device;
    a->fd = -1;
    a->may_write = o->write;
    lp_status status = lp_ipc_places_make(&a->places, rows, a->alloc, err);
    const size_t path_bytes = strlen(path) + 1;
    if (status == LP_OK && (a->path = lp_allocate(a->alloc, path_bytes)) == NULL)
        status = lp_fail_memory(err);
    if (status == LP_OK) {
        memcpy(a->path, path, path_bytes);
        status = attach(a, o, err);
    }
    if (status != LP_OK) {
        lp_attachment_close(a);
        return status;
    }
    *out = a;
    return LP_OK;
}

lp_status lp_attach(lp_attachment **out, const char *path, const lp_trace *trace, const lp_scope *scope,
                    const lp_attach_options *options, lp_error *err)
{
    const char *name = options == NULL ? NULL : options->device;
    const lp_platform platform = lp_platform_resolve(options == NULL ? NULL : options->platform);
    if (name == NULL || strcmp(name, "cpu") == 0)
        return lp_attach_on(out, path, trace, scope, options, NULL, err);
    lp_ipc_device *device = lp_allocate_zero(platform.alloc, sizeof *device);
    if (device == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_ipc_device_open(device, name, platform.alloc, err);
    if (status != LP_OK) {
        lp_release(platform.alloc, device);
        return status;
    }
    status = lp_attach_on(out, path, trace, scope, options, device, err);
    if (status == LP_OK) {
        (*out)->own_device = device;
        return LP_OK;
    }
    lp_ipc_device_close(device, platform.alloc);
    lp_release(platform.alloc, device);
    return status;
}

void lp_attachment_close(lp_attachment *a)
{
    if (a == NULL)
        return;
    for (uint32_t i = 0; i < a->mapped; i++) {
        if (a->device == NULL)
            munmap(a->base[i], (size_t)a->block[i].bytes);
        else
            a->device->put_back(a->device->context, a->base[i]);
    }
    if (a->description != NULL)
        munmap((void *)(uintptr_t)a->description, (size_t)a->description_bytes);
    if (a->fd >= 0) /* last: a server on its way out waits for this */
        close(a->fd);
    if (a->own_device != NULL)
        lp_ipc_device_close(a->own_device, a->alloc);
    lp_release(a->alloc, a->own_device);
    lp_ipc_places_free(&a->places);
    lp_release(a->alloc, a->block);
    lp_release(a->alloc, (void *)a->base);
    lp_release(a->alloc, a->path);
    lp_release(a->alloc, a);
}

const lp_destination_memory *lp_attachment_list(const lp_attachment *a, int64_t *count)
{
    *count = a->places.rows->ndest;
    return a->places.list;
}

int64_t lp_attachment_bytes(const lp_attachment *a)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < a->places.count; i++)
        bytes += a->places.bytes[i];
    return bytes;
}

/* ---- afterwards ---- */

void lp_attachment_peek(const lp_attachment *a, lp_shared_state *out)
{
    const lp_ipc_head *h = (const lp_ipc_head *)(const void *)a->description;
    *out = a->state;
    take_word(out, __atomic_load_n(&h->word, __ATOMIC_SEQ_CST));
}

lp_status lp_attachment_state(lp_attachment *a, lp_shared_state *out, lp_error *err)
{
    lp_ipc_answer answer;
    LP_TRY(ask(a, LP_IPC_QUERY, NULL, 0, &answer, err));
    *out = a->state;
    return LP_OK;
}

lp_status lp_attachment_lease(lp_attachment *a, int32_t wait_ms, lp_error *err)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    const int64_t end = lp_session_clock() + (int64_t)wait_ms * 1000000;
    if (!a->may_write || a->has_lease)
        return lp_fail(err, LP_E_MISUSE,
                       a->has_lease ? "the attachment has the lease already" : "the attachment is not for writing");
    for (;;) {
        lp_ipc_answer answer;
        LP_TRY(ask(a, LP_IPC_LEASE, NULL, 0, &answer, err));
        if (answer == LP_IPC_YES) {
            a->has_lease = true;
            return LP_OK;
        }
        if (lp_session_clock() >= end)
            return lp_fail_at(err, LP_E_PEER, a->path, -1, "process %d writes to the weights at '%s'", a->state.writer,
                              a->path);
        nanosleep(&pause, NULL);
    }
}

lp_status lp_attachment_commit(lp_attachment *a, const uint8_t content[32], int64_t experts_epoch, lp_error *err)
{
    lp_ipc_commit body = {.experts_epoch = experts_epoch};
    lp_ipc_answer answer;
    if (!a->has_lease)
        return lp_fail(err, LP_E_MISUSE, "the attachment has no lease to commit");
    if (content != NULL)
        memcpy(body.content, content, sizeof body.content);
    a->has_lease = false;
    return ask(a, LP_IPC_COMMIT, &body, sizeof body, &answer, err);
}

lp_status lp_attachment_abandon(lp_attachment *a, bool is_torn, lp_error *err)
{
    const lp_ipc_abandon body = {.is_torn = is_torn};
    lp_ipc_answer answer;
    if (!a->has_lease)
        return lp_fail(err, LP_E_MISUSE, "the attachment has no lease to give back");
    a->has_lease = false;
    return ask(a, LP_IPC_ABANDON, &body, sizeof body, &answer, err);
}
