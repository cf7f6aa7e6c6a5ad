/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with experts for tests that move them: destinations whose slots stand first, in the middle and last, a tied
 * one, one with gaps, a derive over experts, and tensors of all logical experts, which stay.
 */
#ifndef LOADPLAN_REBALANCE_TESTING_H
#define LOADPLAN_REBALANCE_TESTING_H

#include "replayer/expert_device.h"
#include "tests/random_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 4, SLOTS_MAX = 6, EXPERTS_MAX = RANKS_MAX * SLOTS_MAX, DESTS_MAX = 16 };
enum { W_ROWS = 3, W_COLUMNS = 5, FUSED_BYTES = 6, GAP = 2 };

typedef struct fixture {
    const char *sessions; /* the device that sessions know by this name, or NULL */
    int ranks, slots, experts;
    uint64_t random, seed;
    lp_checkpoint *checkpoint;
    lp_trace *trace;
    float weight[2][EXPERTS_MAX][W_ROWS][W_COLUMNS], scale[2][EXPERTS_MAX][2]; /* two versions of everything */
    uint8_t fused[2][EXPERTS_MAX][FUSED_BYTES];
    float input_scale[2][EXPERTS_MAX], router[2][RANKS_MAX];
    lp_error err;
} fixture;

#define assert_ok(f, expression)                                                                                       \
    do {                                                                                                               \
        const lp_status status_ = (expression);                                                                        \
        if (status_ != LP_OK) {                                                                                        \
            print_error("seed %llu: %s: %s: %s\n", (unsigned long long)(f)->seed, #expression,                         \
                        lp_status_name(status_), (f)->err.text);                                                       \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

static inline uint64_t next_random(fixture *f)
{
    return random_next(&f->random);
}

static inline int64_t pick(fixture *f, int64_t below)
{
    return (int64_t)(next_random(f) % (uint64_t)below);
}

static inline void add_tensor(fixture *f, const char *name, lp_dtype dtype, int ndim, const int64_t *shape)
{
    const lp_checkpoint_tensor t = {
        .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = -1, .file_off = -1};
    assert_ok(f, lp_checkpoint_add(f->checkpoint, &t, &f->err));
}

/* Strides by order of the dimensions in memory, the innermost last; `gap` bytes behind each step of the outermost. */
typedef struct form {
    const char *name, *storage;
    lp_dtype dtype;
    int ndim;
    int64_t shape[3], stride[3], offset, storage_bytes;
    int slot_dim;
} form;

static inline uint32_t add_dest(fixture *f, form *d)
{
    uint32_t index;
    const lp_destination row = {.name = d->name,
                                .dtype = d->dtype,
                                .ndim = d->ndim,
                                .shape = d->shape,
                                .stride = d->stride,
                                .storage = d->storage,
                                .storage_bytes = d->storage_bytes,
                                .offset = d->offset,
                                .layout = "",
                                .group = "g",
                                .flags = strcmp(d->name, d->storage) == 0 ? 0 : LP_DEST_TIED,
                                .slot_dim = d->slot_dim,
                                .slot_count = d->slot_dim < 0 ? 0 : f->slots};
    assert_ok(f, lp_trace_add_destination(f->trace, &row, &index, &f->err));
    return index;
}

static inline void pack(form *d, int first, int second, int third)
{
    const int order[3] = {first, second, third};
    int64_t bytes = lp_dtype_bits(d->dtype) / 8;
    d->storage = d->storage == NULL ? d->name : d->storage;
    for (int i = d->ndim - 1; i >= 0; i--) {
        d->stride[order[i]] = bytes;
        bytes *= d->shape[order[i]];
    }
    d->storage_bytes = bytes;
}

/* Copies `ndim` dimensions of `size` from the tensor, dense from element src_at on, to dst_at of the destination. */
static inline void add_copy(fixture *f, const char *name, uint32_t dest, const form *d, const int64_t *at,
                            const int64_t *size, int64_t src_at, int64_t src_elems)
{
    const int64_t e = lp_dtype_bits(d->dtype) / 8;
    lp_view dst, src;
    const lp_map *map;
    int64_t stride[3], dense = e;
    for (int i = d->ndim - 1; i >= 0; i--) {
        stride[i] = dense;
        dense *= size[i];
    }
    assert_ok(f, lp_view_strided(&dst, d->dtype, d->ndim, d->shape, d->stride, 0, &f->err));
    for (int i = 0; i < d->ndim; i++)
        assert_ok(f, lp_view_narrow(&dst, i, at[i], size[i], &f->err));
    assert_ok(f, lp_view_strided(&src, d->dtype, d->ndim, size, stride, src_at * e, &f->err));
    assert_ok(f, lp_map_copy(&map, &dst, d->storage_bytes - d->offset, &src, src_elems * e, NULL, &f->err));
    const lp_record r = {
        .name = (uint32_t)lp_checkpoint_find(f->checkpoint, name), .dest = dest, .map = map, .provenance = LP_NONE};
    assert_ok(f, lp_trace_add_record(f->trace, &r, &f->err));
    lp_map_free(map, NULL);
}

/* alpha[slot] = scale[0][slot] * input_scale[0]; input_scale is there for all logical experts. */
static inline void add_alpha(fixture *f, uint32_t alpha, const form *a, uint32_t scale, const form *s, uint32_t all,
                             const form *l)
{
    lp_view from, one, dense, to;
    const lp_map *gather[2], *put;
    lp_derive_input input[2];
    lp_node node[3];
    const int64_t n = f->slots, single = 1;
    assert_ok(f, lp_view_strided(&from, LP_F32, 2, s->shape, s->stride, 0, &f->err));
    assert_ok(f, lp_view_select(&from, 0, 0, &f->err));
    assert_ok(f, lp_view_contiguous(&dense, LP_F32, 1, &n, &f->err));
    assert_ok(f, lp_map_copy(&gather[0], &dense, n * 4, &from, s->storage_bytes, NULL, &f->err));
    assert_ok(f, lp_view_strided(&one, LP_F32, 1, l->shape, l->stride, 0, &f->err));
    assert_ok(f, lp_view_narrow(&one, 0, 0, 1, &f->err));
    lp_view scalar;
    assert_ok(f, lp_view_contiguous(&scalar, LP_F32, 1, &single, &f->err));
    assert_ok(f, lp_map_copy(&gather[1], &scalar, 4, &one, l->storage_bytes, NULL, &f->err));
    assert_ok(f, lp_view_strided(&to, LP_F32, 1, a->shape, a->stride, 0, &f->err));
    assert_ok(f, lp_map_copy(&put, &to, a->storage_bytes, &dense, n * 4, NULL, &f->err));
    memset(node, 0, sizeof node);
    input[0] = (lp_derive_input){.index = scale, .dtype = LP_F32, .count = n, .map = gather[0]};
    input[1] = (lp_derive_input){.index = all, .dtype = LP_F32, .count = 1, .map = gather[1]};
    node[0] = (lp_node){.op = LP_OP_INPUT, .dtype = LP_F32, .arg = {0}, .count = n};
    node[1] = (lp_node){.op = LP_OP_INPUT, .dtype = LP_F32, .arg = {1}, .count = 1};
    node[2] = (lp_node){.op = LP_OP_MUL, .dtype = LP_F32, .arg = {0, 1}, .count = n};
    const lp_derive d = {.dest = alpha,
                         .nnode = 3,
                         .ninput = 2,
                         .node = node,
                         .input = input,
                         .map = put,
                         .error_text = "",
                         .provenance = LP_NONE};
    assert_ok(f, lp_trace_add_derive(f->trace, &d, &f->err));
    lp_map_free(gather[0], NULL);
    lp_map_free(gather[1], NULL);
    lp_map_free(put, NULL);
}

static inline void add_rank(fixture *f, int rank)
{
    const lp_scope scope = {.tp = f->ranks, .tp_rank = rank, .expert_parallel = true};
    const int64_t n = f->slots;
    form weight = {.name = "w13", .dtype = LP_F32, .ndim = 3, .shape = {n, W_ROWS, W_COLUMNS}};
    form across = {.name = "w2", .dtype = LP_F32, .ndim = 3, .shape = {n, W_ROWS, W_COLUMNS}};
    form scale = {.name = "w13_scale", .dtype = LP_F32, .ndim = 2, .shape = {2, n}, .slot_dim = 1};
    form fused = {.name = "packed", .dtype = LP_U8, .ndim = 2, .shape = {n, FUSED_BYTES}};
    form alpha = {.name = "alpha", .dtype = LP_F32, .ndim = 1, .shape = {n}};
    form all = {.name = "w2_input_scale", .dtype = LP_F32, .ndim = 1, .shape = {f->experts}, .slot_dim = -1};
    form router = {.name = "router", .dtype = LP_F32, .ndim = 1, .shape = {1}, .slot_dim = -1};
    form tied = {.name = "w13_alias", .storage = "w13", .dtype = LP_F32, .ndim = 3, .shape = {n, W_ROWS, W_COLUMNS}};
    char name[32];
    pack(&weight, 0, 1, 2);
    pack(&tied, 0, 1, 2);
    pack(&across, 1, 0, 2); /* the slot in the middle */
    pack(&scale, 0, 1, 2);
    pack(&fused, 0, 1, 2);
    pack(&alpha, 0, 1, 2);
    pack(&all, 0, 1, 2);
    pack(&router, 0, 1, 2);
    fused.stride[0] += GAP; /* bytes of nobody between slots */
    fused.storage_bytes += n * GAP;
    assert_ok(f, lp_trace_begin_scope(f->trace, &scope, &f->err));
    const uint32_t w = add_dest(f, &weight), x = add_dest(f, &across), s = add_dest(f, &scale), p = add_dest(f, &fused);
    const uint32_t a = add_dest(f, &alpha), l = add_dest(f, &all), r = add_dest(f, &router);
    (void)add_dest(f, &tied);
    for (int slot = 0; slot < n; slot++) {
        const int e = rank * f->slots + slot;
        const int64_t at[3] = {slot, 0, 0}, size[3] = {1, W_ROWS, W_COLUMNS};
        snprintf(name, sizeof name, "experts.%d.w", e);
        add_copy(f, name, w, &weight, at, size, 0, W_ROWS * W_COLUMNS);
        add_copy(f, name, x, &across, at, size, 0, W_ROWS * W_COLUMNS);
        snprintf(name, sizeof name, "experts.%d.s", e);
        add_copy(f, name, s, &scale, (int64_t[]){0, slot}, (int64_t[]){2, 1}, 0, 2);
    }
    /* all experts in one tensor: one record over all slots */
    add_copy(f, "fused", p, &fused, (int64_t[]){0, 0}, (int64_t[]){n, FUSED_BYTES}, rank * n * FUSED_BYTES,
             f->experts * FUSED_BYTES);
    add_copy(f, "input_scale", l, &all, (int64_t[]){0}, (int64_t[]){f->experts}, 0, f->experts);
    add_copy(f, "router", r, &router, (int64_t[]){0}, (int64_t[]){1}, rank, f->ranks);
    add_alpha(f, a, &alpha, s, &scale, l, &all);
}

static inline void open_fixture(fixture *f, uint64_t seed, int ranks, int slots)
{
    const lp_trace_header header = {"test", "1", "", "", {.tp = ranks, .expert_parallel = true}};
    const int64_t weight[2] = {W_ROWS, W_COLUMNS}, two = 2, fused[2] = {ranks * slots, FUSED_BYTES};
    const int64_t experts = ranks * slots, all_ranks = ranks;
    char name[32];
    memset(f, 0, sizeof *f);
    f->seed = f->random = seed;
    f->ranks = ranks;
    f->slots = slots;
    f->experts = ranks * slots;
    assert_ok(f, lp_checkpoint_new(&f->checkpoint, NULL, &f->err));
    for (int e = 0; e < f->experts; e++) {
        snprintf(name, sizeof name, "experts.%d.w", e);
        add_tensor(f, name, LP_F32, 2, weight);
        snprintf(name, sizeof name, "experts.%d.s", e);
        add_tensor(f, name, LP_F32, 1, &two);
    }
    add_tensor(f, "fused", LP_U8, 2, fused);
    add_tensor(f, "input_scale", LP_F32, 1, &experts);
    add_tensor(f, "router", LP_F32, 1, &all_ranks);
    for (int v = 0; v < 2; v++) {
        for (int e = 0; e < f->experts; e++) {
            for (int i = 0; i < W_ROWS * W_COLUMNS; i++)
                f->weight[v][e][i / W_COLUMNS][i % W_COLUMNS] = (float)(1000 * v + 100 * e + i);
            for (int i = 0; i < FUSED_BYTES; i++)
                f->fused[v][e][i] = (uint8_t)next_random(f);
            f->scale[v][e][0] = (float)pick(f, 1000) / 7.0f;
            f->scale[v][e][1] = (float)pick(f, 1000) / 9.0f;
            f->input_scale[v][e] = (float)pick(f, 1000) / 11.0f;
        }
        for (int r = 0; r < ranks; r++)
            f->router[v][r] = (float)(10 * v + r);
    }
    assert_ok(f, lp_checkpoint_seal(f->checkpoint, &f->err));
    assert_ok(f, lp_trace_new(&f->trace, f->checkpoint, &header, NULL, &f->err));
    for (int rank = 0; rank < ranks; rank++)
        add_rank(f, rank);
    assert_ok(f, lp_trace_seal(f->trace, &f->err));
}

static inline void close_fixture(fixture *f)
{
    lp_trace_close(f->trace);
    lp_checkpoint_close(f->checkpoint);
}

/* ---- ranks ---- */

/* `memory` is the host's. On a device the plan is bound to `list` instead, in `block`. */
typedef struct rank {
    lp_destinations *memory;
    lp_plan *plan;
    int64_t epoch_now;
    const lp_expert_device *device;
    lp_destination_memory list[DESTS_MAX];
    void *block[DESTS_MAX];
} rank;

static inline void open_rank(fixture *f, rank *r, int number, const lp_expert_map *map)
{
    const lp_scope scope = {.tp = f->ranks, .tp_rank = number, .expert_parallel = true};
    int64_t count;
    memset(r, 0, sizeof *r);
    assert_ok(f, lp_destinations_allocate(&r->memory, f->trace, &scope, false, NULL, &f->err));
    const lp_destination_memory *list = lp_destinations_list(r->memory, &count);
    const lp_bind_options o = {.experts = map, .threads = 1, .experts_epoch_now = &r->epoch_now};
    assert_ok(f, lp_bind(&r->plan, f->trace, &scope, list, count, &o, &f->err));
}

static inline void close_rank(rank *r)
{
    lp_plan_close(r->plan);
    for (int i = 0; i < DESTS_MAX && r->device != NULL; i++)
        r->device->table.release(r->device->table.context, r->block[i]);
    lp_destinations_free(r->memory);
}

static inline void load(fixture *f, lp_plan *plan, int version, lp_load_mode mode)
{
    lp_session *s;
    char name[32];
    assert_ok(f, lp_begin(&s, plan, &(lp_session_options){.mode = mode}, &f->err));
    for (int e = 0; e < f->experts; e++) {
        snprintf(name, sizeof name, "experts.%d.w", e);
        assert_ok(f, lp_push_range(s, name, 0, f->weight[version][e], sizeof f->weight[version][e], &f->err));
        snprintf(name, sizeof name, "experts.%d.s", e);
        assert_ok(f, lp_push_range(s, name, 0, f->scale[version][e], 8, &f->err));
    }
    assert_ok(f, lp_push_range(s, "fused", 0, f->fused[version], f->experts * FUSED_BYTES, &f->err));
    assert_ok(f, lp_push_range(s, "input_scale", 0, f->input_scale[version], f->experts * 4, &f->err));
    assert_ok(f, lp_push_range(s, "router", 0, f->router[version], f->ranks * 4, &f->err));
    assert_ok(f, lp_finish(s, NULL, &f->err));
    lp_session_close(s);
}

static inline void assert_same_bytes(const fixture *f, const rank *a, const rank *b, const char *what)
{
    int64_t count;
    const lp_destination_memory *x = lp_destinations_list(a->memory, &count);
    const lp_destination_memory *y = lp_destinations_list(b->memory, &count);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(x[i].storage, y[i].storage, (size_t)x[i].storage_bytes) != 0)
            fail_msg("seed %llu: %s: '%s' differs", (unsigned long long)f->seed, what, x[i].name);
}

/* Any expert in any slot, or a permutation; sometimes the same as before. */
static inline void random_map(fixture *f, int32_t *logical, const int32_t *before)
{
    const int64_t kind = pick(f, 5);
    for (int i = 0; i < f->experts; i++)
        logical[i] = kind == 0 ? (int32_t)pick(f, f->experts) : before[i];
    if (kind == 1)
        return;
    for (int i = f->experts - 1; i > 0 && kind > 1; i--) { /* shuffles what is there: no expert is lost */
        const int64_t j = kind == 2 ? pick(f, i + 1) : i - 1;
        const int32_t swap = logical[i];
        logical[i] = logical[j];
        logical[j] = swap;
    }
}

/* ---- the same on a device ---- */

#define assert_device(f, expression) assert_int_equal(((void)(f), (expression)), 0)

/* Storages in blocks of their own; a tied destination lies where its owner does. */
static inline void open_on_device(fixture *f, rank *r, int number, const lp_expert_map *map,
                                  const lp_expert_device *device)
{
    const lp_scope scope = {.tp = f->ranks, .tp_rank = number, .expert_parallel = true};
    const lp_cold_device *d = &device->table;
    int64_t count;
    const lp_destination_memory *host = lp_destinations_list(r->memory, &count);
    assert_true(count <= DESTS_MAX);
    r->device = device;
    lp_plan_close(r->plan);
    for (int64_t i = 0; i < count; i++) {
        r->list[i] = host[i];
        void *base = NULL;
        for (int64_t k = 0; k < i; k++)
            if (host[k].storage == host[i].storage)
                base = r->list[k].storage;
        if (base == NULL) {
            assert_device(f, d->allocate(d->context, host[i].storage_bytes, &r->block[i]));
            base = r->block[i];
            assert_device(f, d->store(d->context, base, host[i].storage, host[i].storage_bytes));
        }
        r->list[i].storage = base;
        r->list[i].data = (uint8_t *)base + ((uint8_t *)host[i].data - (uint8_t *)host[i].storage);
    }
    const lp_bind_options o = {.experts = map, .threads = 1, .experts_epoch_now = &r->epoch_now, .device = f->sessions};
    assert_ok(f, lp_bind(&r->plan, f->trace, &scope, r->list, count, &o, &f->err));
}

/* What is on the device, into `memory`. */
static inline void fetch_rank(fixture *f, rank *r)
{
    const lp_cold_device *d = &r->device->table;
    int64_t count;
    const lp_destination_memory *host = lp_destinations_list(r->memory, &count);
    for (int64_t i = 0; i < count; i++)
        assert_device(f, d->fetch(d->context, host[i].storage, r->list[i].storage, host[i].storage_bytes));
}

/* All ranks at once: gather, exchange, scatter, slice by slice. */
static inline void rebalance(fixture *f, rank *r, const lp_expert_map *to, int64_t staging)
{
    lp_rebalance *move[RANKS_MAX];
    for (int k = 0; k < f->ranks; k++)
        assert_ok(f, lp_rebalance_begin_with(&move[k], r[k].plan, to, staging, r[k].device, &f->err));
    const int64_t slices = lp_rebalance_slices(move[0]);
    for (int64_t slice = 0; slice < slices; slice++) {
        for (int k = 0; k < f->ranks; k++) {
            int64_t count;
            const lp_expert_move *list = lp_rebalance_moves(move[k], &count);
            assert_int_equal(lp_rebalance_slices(move[k]), slices);
            assert_ok(f, lp_rebalance_gather(move[k], slice, &f->err));
            for (int64_t i = 0; i < count; i++)
                if (list[i].from_rank != k)
                    assert_ok(f, lp_rebalance_outgoing(move[list[i].from_rank], slice, list[i].from_slot,
                                                       lp_rebalance_incoming(move[k], i), &f->err));
        }
        for (int k = 0; k < f->ranks; k++)
            assert_ok(f, lp_rebalance_scatter(move[k], slice, &f->err));
    }
    for (int k = 0; k < f->ranks; k++) {
        assert_ok(f, lp_rebalance_finish(move[k], &f->err));
        lp_rebalance_close(move[k]);
        assert_int_equal(lp_plan_epoch(r[k].plan), to->epoch);
        assert_int_equal(r[k].epoch_now, to->epoch);
    }
}

/* A chain of maps: after each, memory is that of a cold start by it, and a reload does what it would do there. */
static inline void check_chain(uint64_t seed, const lp_expert_device *device, const char *sessions)
{
    static const int64_t stagings[] = {0, 1000, 64, 300};
    fixture f;
    rank r[RANKS_MAX], fresh;
    int32_t logical[2][EXPERTS_MAX];
    fixture *const g = &f;
    f.random = seed;
    const int ranks = 1 + (int)pick(g, RANKS_MAX), slots = 1 + (int)pick(g, SLOTS_MAX);
    open_fixture(&f, seed, ranks, slots);
    f.sessions = sessions;
    const bool by_default = pick(&f, 2) == 0;
    for (int i = 0; i < f.experts; i++)
        logical[0][i] = i;
    if (!by_default)
        random_map(&f, logical[0], logical[0]);
    lp_expert_map first = {logical[0], f.experts, by_default ? 0 : 40};
    for (int k = 0; k < f.ranks; k++) {
        open_rank(&f, &r[k], k, by_default ? NULL : &first);
        load(&f, r[k].plan, 0, LP_COLD);
        assert_int_equal(r[k].epoch_now, first.epoch);
        if (device != NULL)
            open_on_device(&f, &r[k], k, by_default ? NULL : &first, device);
    }
    int version = 0;
    for (int step = 0; step < 4; step++) {
        const int32_t *before = logical[step % 2];
        int32_t *after = logical[(step + 1) % 2];
        do { /* an expert that is nowhere cannot come back */
            random_map(&f, after, before);
            lp_expert_move moves[SLOTS_MAX];
            int64_t count;
            lp_status status = LP_OK;
            for (int k = 0; k < f.ranks && status == LP_OK; k++)
                status = lp_expert_moves(moves, &count, &(lp_expert_map){before, f.experts, 0},
                                         &(lp_expert_map){after, f.experts, 0}, f.slots, k, NULL, &f.err);
            if (status == LP_OK)
                break;
            assert_int_equal(status, LP_E_INCOMPLETE);
        } while (true);
        const lp_expert_map to = {after, f.experts, 41 + step};
        rebalance(&f, r, &to, stagings[pick(&f, 4)]);
        for (int k = 0; k < f.ranks; k++) {
            open_rank(&f, &fresh, k, &to);
            load(&f, fresh.plan, version, LP_COLD);
            if (device != NULL)
                fetch_rank(&f, &r[k]);
            assert_same_bytes(&f, &r[k], &fresh, "after the move");
            if (device == NULL || sessions != NULL) {
                load(&f, r[k].plan, 1 - version, device != NULL || pick(&f, 2) == 0 ? LP_DIRECT : LP_LAYERWISE);
                load(&f, fresh.plan, 1 - version, LP_DIRECT);
                if (device != NULL)
                    fetch_rank(&f, &r[k]);
                assert_same_bytes(&f, &r[k], &fresh, "after a reload");
            }
            close_rank(&fresh);
        }
        version = device == NULL || sessions != NULL ? 1 - version : version;
    }
    for (int k = 0; k < f.ranks; k++)
        close_rank(&r[k]);
    close_fixture(&f);
}

#endif
