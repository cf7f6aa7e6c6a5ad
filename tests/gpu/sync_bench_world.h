/* SPDX-License-Identifier: Apache-2.0 */
/* Trainers and servers of one host for the bench of syncs, a thread each: a model of large tensors, what trainers hold,
 * how it changes from epoch to epoch, and the epochs themselves. */
#ifndef SYNC_BENCH_WORLD_H
#define SYNC_BENCH_WORLD_H

#include "recorder/recorder.h"
#include "replayer/nccl_transport.h"
#include "replayer/sync.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MOST = 8, EPOCHS_MOST = 64, SKIPPED = 77, RUN = 4096, ROUNDS = 4 };

/* What changes between epochs, each ROUNDS times forth and back. */
static const struct change {
    int percent;
    bool is_clustered;
} changes[] = {{1, false}, {1, true}, {10, false}, {10, true}};

enum { CHANGES = sizeof changes / sizeof *changes, DELTA_EPOCHS = 1 + CHANGES * ROUNDS };

typedef struct settings {
    lp_sync_mode mode;
    int senders, receivers, epochs, port;
    int64_t layers, hidden, bucket;
    int elem; /* bytes of an element */
    bool is_gated, is_host, is_one;
} settings;

typedef struct bench_rank {
    const settings *o;
    int index;
    bool is_sender;
    const lp_trace *trace;
    lp_destinations *memory;
    lp_plan *plan;
    uint64_t *noise[2]; /* of a sender: what its tensors hold, on its device where they are there */
    lp_nccl_device device;
    lp_sync_report report[EPOCHS_MOST];
    lp_status status;
    lp_error err;
} bench_rank;

static bench_rank ranks[RANKS_MOST];

static void give_up(const lp_error *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(err->code == LP_E_UNSUPPORTED || err->code == LP_E_DEVICE ? SKIPPED : 2);
}

static int gpu_of(const settings *o, int rank)
{
    return o->is_one ? 0 : rank;
}

/* ---- the model ---- */

/* A tensor of any dtype has 8 x hidden x hidden bytes. */
static int64_t tensor_bytes(const settings *o)
{
    return 8 * o->hidden * o->hidden;
}

static void shape_of(const settings *o, int64_t number, int64_t shape[2])
{
    const int64_t wide = 8 / o->elem * o->hidden;
    shape[0] = number % 2 == 0 ? wide : o->hidden;
    shape[1] = number % 2 == 0 ? o->hidden : wide;
}

static lp_dtype dtype_of(const settings *o)
{
    return o->elem == 1 ? LP_F8_E4M3 : LP_BF16;
}

static lp_checkpoint *make_model(const settings *o)
{
    lp_checkpoint *c = NULL;
    lp_error err;
    char name[64];
    lp_status status = lp_checkpoint_new(&c, NULL, &err);
    for (int64_t i = 0; i < 2 * o->layers && status == LP_OK; i++) {
        int64_t shape[2];
        shape_of(o, i, shape);
        snprintf(name, sizeof name, "layers.%d.%s", (int)(i / 2), i % 2 == 0 ? "up" : "down");
        const lp_checkpoint_tensor t = {
            .name = name, .dtype = dtype_of(o), .ndim = 2, .shape = shape, .file = -1, .file_off = -1};
        status = lp_checkpoint_add(c, &t, &err);
    }
    if (status == LP_OK)
        status = lp_checkpoint_seal(c, &err);
    if (status != LP_OK)
        give_up(&err);
    return c;
}

/* dim: which one ranks split. */
static lp_trace *record(const settings *o, const lp_checkpoint *c, int tp, int dim)
{
    lp_recorder *r = NULL;
    lp_trace *t = NULL;
    lp_error err;
    lp_scope at = {.dp = 1, .tp = tp};
    lp_status status = LP_OK;
    for (; at.tp_rank < tp && status == LP_OK; at.tp_rank++) {
        status = r == NULL ? lp_recorder_open(&r, c, &at, &err) : lp_recorder_next_scope(r, &at, &err);
        for (int64_t i = 0; i < 2 * o->layers && status == LP_OK; i++) {
            int64_t shape[2];
            shape_of(o, i, shape);
            const char *name = lp_name(r, "layers.%d.%s", (int)(i / 2), i % 2 == 0 ? "up" : "down");
            shape[dim] /= tp;
            lp_declare(r, name, dtype_of(o), 2, shape);
            lp_copy(lp_dest(r, name), lp_narrow(lp_source(r, name), dim, at.tp_rank * shape[dim], shape[dim]));
        }
    }
    if (status == LP_OK)
        status = lp_recorder_finish(r, &t, &err);
    lp_recorder_close(r);
    if (status != LP_OK)
        give_up(&err);
    return t;
}

/* ---- memory ---- */

static void bind_rank(bench_rank *r)
{
    char device[16];
    lp_error err;
    int64_t count;
    const int32_t number = r->is_sender ? r->index : r->index - r->o->senders;
    const lp_scope *scope = lp_trace_scope_at(r->trace, lp_trace_scope_find(r->trace, number));
    snprintf(device, sizeof device, "cuda:%d", gpu_of(r->o, r->index));
    const int64_t largest = tensor_bytes(r->o);
    const lp_bind_options o = {.device = r->o->is_host ? NULL : device,
                               .staging = r->o->is_host ? 0 : (2 * r->o->senders + 1) * largest};
    lp_status status = r->o->is_host ? lp_destinations_allocate(&r->memory, r->trace, scope, false, NULL, &err)
                                     : lp_destinations_allocate_on(&r->memory, r->trace, scope, device, NULL, &err);
    if (status != LP_OK)
        give_up(&err);
    const lp_destination_memory *list = lp_destinations_list(r->memory, &count);
    if (lp_bind(&r->plan, r->trace, scope, list, count, &o, &err) != LP_OK)
        give_up(&err);
}

/* ---- what a trainer holds: noise, that of tensor i from word i on ---- */

static int64_t noise_bytes(const settings *o)
{
    return tensor_bytes(o) + 16 * o->layers;
}

/* The caller frees it. */
static uint64_t *make_noise(const settings *o)
{
    uint64_t *noise = malloc((size_t)noise_bytes(o));
    uint64_t x = 88172645463325252u;
    if (noise == NULL)
        exit(2);
    for (int64_t i = 0; i < noise_bytes(o) / 8; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        noise[i] = x;
    }
    return noise;
}

/* Runs that begin on average 100 / percent of their lengths apart. */
static void change_noise(const settings *o, uint64_t *noise, const struct change *c)
{
    const int64_t elements = noise_bytes(o) / o->elem, run = c->is_clustered ? RUN : 1;
    uint8_t *byte = (uint8_t *)noise;
    uint64_t x = 362436069362436069u;
    for (int64_t i = 0; i < elements;) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        for (int64_t k = i; k < i + run && k < elements; k++)
            byte[k * o->elem] ^= (uint8_t)(1 + (x >> 8) % 255);
        i += run * (1 + (int64_t)((x >> 20) % (uint64_t)(2 * 100 / c->percent - 1)));
    }
}

static void load_trainer(bench_rank *r)
{
    uint64_t *noise = make_noise(r->o);
    lp_session *s = NULL;
    lp_error err;
    lp_status status = lp_begin(&s, r->plan, &(lp_session_options){.mode = LP_COLD}, &err);
    for (lp_handle h = 0; status == LP_OK && h < 2 * r->o->layers; h++)
        status = lp_push_range(s, lp_plan_name(r->plan, h), 0, noise + h, tensor_bytes(r->o), &err);
    if (status == LP_OK)
        status = lp_finish(s, NULL, &err);
    lp_session_close(s);
    free(noise);
    if (status != LP_OK)
        give_up(&err);
}

static void check(const bench_rank *r, int code)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s\n", r->device.error_text(r->device.context, code));
    exit(2);
}

/* The other noise of a case, and that of all on the device. */
static void place_noise(bench_rank *r, int which, const struct change *c)
{
    void *there = r->noise[which];
    uint64_t *noise = make_noise(r->o);
    if (c != NULL)
        change_noise(r->o, noise, c);
    if (r->o->is_host) {
        free(there);
        r->noise[which] = noise;
        return;
    }
    if (there == NULL)
        check(r, r->device.allocate(r->device.context, noise_bytes(r->o), &there));
    check(r, r->device.store(r->device.context, there, noise, noise_bytes(r->o)));
    r->noise[which] = there;
    free(noise);
}

/* A step of training: weights of one noise become those of the other. */
static void train(bench_rank *r, int round)
{
    const settings *o = r->o;
    const int which = 1 - round % 2;
    const int64_t bytes = tensor_bytes(o) / o->senders;
    int64_t count;
    const lp_destination_memory *list = lp_destinations_list(r->memory, &count);
    void *stream = NULL;
    if (round == 0)
        place_noise(r, 0, NULL);
    if (round % ROUNDS == 0)
        place_noise(r, 1, &changes[round / ROUNDS]);
    if (!o->is_host)
        check(r, r->device.stream_open(r->device.context, false, &stream));
    for (int64_t i = 0; i < count; i++) {
        const int64_t layer = strtoll(strchr(list[i].name, '.') + 1, NULL, 10);
        const uint64_t *noise = r->noise[which] + 2 * layer + (strstr(list[i].name, "down") != NULL);
        const uint8_t *from = (const uint8_t *)noise + r->index * bytes;
        if (o->is_host)
            memcpy(list[i].data, from, (size_t)bytes);
        else
            check(r, r->device.copy(r->device.context, list[i].data, from, bytes, stream));
    }
    if (o->is_host)
        return;
    check(r, r->device.stream_settle(r->device.context, stream));
    r->device.stream_close(r->device.context, stream);
}

static void free_noise(bench_rank *r)
{
    for (int i = 0; i < 2; i++)
        if (r->o->is_host)
            free(r->noise[i]);
        else if (r->noise[i] != NULL)
            r->device.release(r->device.context, r->noise[i]);
}

/* With one rank on each side and the same rows everything must have the same digests. */
static bool is_equal(const bench_rank *a, const bench_rank *b)
{
    uint8_t x[LP_VALUE_DIGEST_BYTES], y[LP_VALUE_DIGEST_BYTES];
    lp_error err;
    for (uint32_t d = 0; d < 2 * (uint32_t)a->o->layers; d++)
        if (lp_plan_value_digest(a->plan, d, x, &err) != LP_OK || lp_plan_value_digest(b->plan, d, y, &err) != LP_OK ||
            memcmp(x, y, sizeof x) != 0)
            return false;
    return true;
}

/* ---- ranks ---- */

static lp_status run_epochs(bench_rank *r, lp_sync *s, lp_error *err)
{
    lp_sync_source source = {.context = NULL};
    lp_status status = r->is_sender ? lp_sync_source_plan(&source, r->plan, err) : LP_OK;
    for (int e = 0; e < r->o->epochs && status == LP_OK; e++) {
        if (r->is_sender && r->o->mode == LP_SYNC_DELTA && e > 0)
            train(r, e - 1);
        status = r->is_sender
                     ? lp_sync_send(s, &source, 0, &r->report[e], err)
                     : lp_sync_recv(s, r->plan, &(lp_session_options){.mode = LP_DIRECT}, 0, &r->report[e], err);
    }
    lp_sync_source_close(&source);
    return status;
}

static void *run_rank(void *context)
{
    bench_rank *r = context;
    const settings *o = r->o;
    lp_transport sockets, nccl = {.size = 0};
    lp_sync *s = NULL;
    const lp_tcp_options tcp = {.host = "127.0.0.1",
                                .port = o->port,
                                .is_sender = r->is_sender,
                                .rank = r->is_sender ? r->index : r->index - o->senders,
                                .size = r->is_sender ? o->senders : o->receivers};
    const lp_sync_options options = {.is_sender = r->is_sender, .mode = o->mode, .bucket = o->bucket};
    r->status = lp_transport_tcp(&sockets, &tcp, &r->err);
    if (r->status != LP_OK)
        return NULL;
    if (!o->is_host)
        r->status = lp_transport_nccl(&nccl, &sockets, gpu_of(o, r->index), NULL, &r->err);
    if (r->status == LP_OK)
        r->status = lp_sync_open(&s, o->is_host ? &sockets : &nccl, r->trace, &options, &r->err);
    if (r->status == LP_OK)
        r->status = run_epochs(r, s, &r->err);
    lp_sync_close(s);
    if (nccl.size > 0)
        lp_transport_close(&nccl);
    lp_transport_close(&sockets);
    return NULL;
}

static void run_world(const settings *o)
{
    pthread_t thread[RANKS_MOST];
    const int size = o->senders + o->receivers;
    for (int i = 0; i < size; i++)
        if (pthread_create(&thread[i], NULL, run_rank, &ranks[i]) != 0)
            exit(2);
    for (int i = 0; i < size; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < size; i++)
        if (ranks[i].status != LP_OK)
            give_up(&ranks[i].err);
}

#endif
