/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small worlds for the replayer's tests: a checkpoint, destinations, and a trace over them that is written call by
 * call. All tensors are matrices; calls count in the order in which they are made, so the last write wins.
 */
#ifndef LOADPLAN_REPLAY_WORLD_H
#define LOADPLAN_REPLAY_WORLD_H

#include "replayer/replayer.h"
#include "tests/random_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SOURCES_MAX = 16, DESTS_MAX = 16, CALLS_MAX = 128, DERIVES_MAX = 8 };

typedef struct source {
    char name[32];
    lp_dtype dtype;
    int64_t shape[2];
    int64_t bytes;
} source;

typedef struct dest {
    char name[32], storage[32], group[32];
    lp_dtype dtype;
    int64_t shape[2], stride[2];
    int64_t offset, storage_bytes;
    uint32_t flags;
    uint64_t dummy; /* with LP_DEST_HAS_DUMMY */
    uint32_t index; /* in the trace */
    lp_view view;
} dest;

/* dst[dst_at + (i, j)] = src[src_at + i * src_step[0] + j * src_step[1]], in elements; a fill has source -1. */
typedef struct call {
    int source;  /* -1: fill */
    int trigger; /* of a fill; -1: begin */
    int dest;
    int64_t dst_at[2], size[2];
    int64_t src_at, src_step[2];
    uint64_t bits;
} call;

/* What the model computes for a derive. */
typedef enum derive_kind {
    DERIVE_MAX,     /* dest[0] = or_if_zero(max(all of input dest), 1) */
    DERIVE_NEG_EXP, /* dest = -exp(staged source), of one count */
    DERIVE_ADD,     /* dest = input dest + staged source */
    DERIVE_CLOSE    /* check: row 0 of input dest is close to row 1 */
} derive_kind;

typedef struct derive {
    derive_kind kind;
    int dest, input, source;
} derive;

typedef struct world {
    source source[SOURCES_MAX];
    dest dest[DESTS_MAX];
    call call[CALLS_MAX];
    derive derive[DERIVES_MAX];
    int nsource, ndest, ncall, nderive;
    uint64_t random;
    lp_checkpoint *checkpoint;
    lp_trace *trace;
    lp_error err;
} world;

#define assert_ok(w, expression)                                                                                       \
    do {                                                                                                               \
        const lp_status status_ = (expression);                                                                        \
        if (status_ != LP_OK) {                                                                                        \
            print_error("%s: %s: %s (%s)\n", #expression, lp_status_name(status_), (w)->err.text, (w)->err.hint);      \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

static inline uint64_t next_random(world *w)
{
    return random_next(&w->random);
}

static inline int64_t pick(world *w, int64_t below)
{
    return (int64_t)(next_random(w) % (uint64_t)below);
}

static inline int64_t elem(lp_dtype dtype)
{
    return lp_dtype_bits(dtype) / 8;
}

static inline int add_source(world *w, const char *name, lp_dtype dtype, int64_t rows, int64_t columns)
{
    source *s = &w->source[w->nsource];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->dtype = dtype;
    s->shape[0] = rows;
    s->shape[1] = columns;
    s->bytes = rows * columns * elem(dtype);
    return w->nsource++;
}

/* A destination in its own storage, strides row-major plus `gap` bytes between rows. */
static inline int add_dest(world *w, const char *name, lp_dtype dtype, int64_t rows, int64_t columns, int64_t gap,
                           const char *group)
{
    dest *d = &w->dest[w->ndest];
    snprintf(d->name, sizeof d->name, "%s", name);
    snprintf(d->storage, sizeof d->storage, "%s", name);
    snprintf(d->group, sizeof d->group, "%s", group);
    d->dtype = dtype;
    d->shape[0] = rows;
    d->shape[1] = columns;
    d->stride[1] = elem(dtype);
    d->stride[0] = columns * elem(dtype) + gap;
    d->storage_bytes = rows * d->stride[0];
    d->flags = 0;
    d->dummy = 0;
    d->offset = 0;
    return w->ndest++;
}

static inline void add_copy(world *w, int from, int to, int64_t row, int64_t rows, int64_t src_row)
{
    const int64_t columns = w->dest[to].shape[1];
    w->call[w->ncall++] = (call){.source = from,
                                 .trigger = from,
                                 .dest = to,
                                 .dst_at = {row, 0},
                                 .size = {rows, columns},
                                 .src_at = src_row * w->source[from].shape[1],
                                 .src_step = {w->source[from].shape[1], 1}};
}

static inline void add_fill(world *w, int trigger, int to, int64_t row, int64_t rows, uint64_t bits)
{
    w->call[w->ncall++] = (call){.source = -1,
                                 .trigger = trigger,
                                 .dest = to,
                                 .dst_at = {row, 0},
                                 .size = {rows, w->dest[to].shape[1]},
                                 .bits = bits};
}

/* ---- the trace ---- */

static inline void record_call(world *w, const call *c)
{
    const dest *d = &w->dest[c->dest];
    const lp_map *map;
    lp_view dst = d->view;
    const int64_t dst_bytes = d->storage_bytes - d->offset;
    lp_record record = {.dest = d->index, .provenance = LP_NONE};
    assert_ok(w, lp_view_narrow(&dst, 0, c->dst_at[0], c->size[0], &w->err));
    assert_ok(w, lp_view_narrow(&dst, 1, c->dst_at[1], c->size[1], &w->err));
    if (c->source < 0) {
        assert_ok(w,
                  lp_map_fill(&map, &record.fill_bits, &dst, dst_bytes, c->bits, (int)elem(d->dtype), NULL, &w->err));
        record.name =
            c->trigger < 0 ? LP_NAME_BEGIN : (uint32_t)lp_checkpoint_find(w->checkpoint, w->source[c->trigger].name);
    } else {
        const source *s = &w->source[c->source];
        lp_view src;
        const int64_t e = elem(s->dtype), stride[2] = {c->src_step[0] * e, c->src_step[1] * e};
        assert_ok(w, lp_view_strided(&src, s->dtype, 2, c->size, stride, c->src_at * e, &w->err));
        assert_ok(w, lp_map_copy(&map, &dst, dst_bytes, &src, s->bytes, NULL, &w->err));
        record.name = (uint32_t)lp_checkpoint_find(w->checkpoint, s->name);
        if (lp_cast_kind_of(s->dtype, d->dtype) == LP_CAST_VALUES) {
            record.src_dtype = (uint8_t)s->dtype;
            record.dst_dtype = (uint8_t)d->dtype;
        }
    }
    record.map = map;
    assert_ok(w, lp_trace_add_record(w->trace, &record, &w->err));
    lp_map_free(map, NULL);
}

/* Gathers a whole tensor, or one row of it, into a dense array. */
static inline const lp_map *gather_map(world *w, const lp_view *view, int64_t bytes, int64_t row)
{
    const lp_map *map;
    lp_view from = *view, to;
    if (row >= 0)
        assert_ok(w, lp_view_narrow(&from, 0, row, 1, &w->err));
    assert_ok(w, lp_view_contiguous(&to, from.dtype, 2, from.size, &w->err));
    assert_ok(w, lp_map_copy(&map, &to, lp_view_count(&from) * elem(from.dtype), &from, bytes, NULL, &w->err));
    return map;
}

static inline void record_derive(world *w, const derive *d)
{
    lp_derive_input input[2];
    lp_node node[6];
    const lp_map *map = NULL, *gather[2] = {NULL, NULL};
    lp_derive out = {.dest = LP_NONE, .input = input, .node = node, .error_text = "", .provenance = LP_NONE};
    lp_view view;
    const int64_t count =
        d->dest >= 0 ? w->dest[d->dest].shape[0] * w->dest[d->dest].shape[1] : w->dest[d->input].shape[1];
    memset(node, 0, sizeof node);
    if (d->kind != DERIVE_NEG_EXP) {
        const dest *from = &w->dest[d->input];
        const int64_t bytes = from->storage_bytes - from->offset;
        gather[0] = gather_map(w, &from->view, bytes, d->kind == DERIVE_CLOSE ? 0 : -1);
        input[out.ninput++] =
            (lp_derive_input){.index = from->index,
                              .dtype = LP_F32,
                              .count = d->kind == DERIVE_CLOSE ? count : from->shape[0] * from->shape[1],
                              .map = gather[0]};
        if (d->kind == DERIVE_CLOSE) {
            gather[1] = gather_map(w, &from->view, bytes, 1);
            input[out.ninput++] =
                (lp_derive_input){.index = from->index, .dtype = LP_F32, .count = count, .map = gather[1]};
        }
    }
    if (d->kind == DERIVE_NEG_EXP || d->kind == DERIVE_ADD) {
        const source *s = &w->source[d->source];
        assert_ok(w, lp_view_contiguous(&view, s->dtype, 2, s->shape, &w->err));
        const lp_map *staged = gather_map(w, &view, s->bytes, -1);
        gather[out.ninput] = staged;
        input[out.ninput++] = (lp_derive_input){.staged = true,
                                                .index = (uint32_t)lp_checkpoint_find(w->checkpoint, s->name),
                                                .dtype = s->dtype,
                                                .count = s->shape[0] * s->shape[1],
                                                .map = staged};
    }
    for (uint32_t i = 0; i < out.ninput; i++)
        node[i] = (lp_node){.op = LP_OP_INPUT, .dtype = (uint16_t)input[i].dtype, .arg = {i}, .count = input[i].count};
    uint32_t n = out.ninput;
    switch (d->kind) {
    case DERIVE_MAX:
        node[n] = (lp_node){.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .count = 1};
        node[n + 1] = (lp_node){.op = LP_OP_CONST, .dtype = LP_F32, .bits = 0x3f800000, .count = 1};
        node[n + 2] = (lp_node){.op = LP_OP_OR_IF_ZERO, .dtype = LP_F32, .arg = {n, n + 1}, .count = 1};
        n += 3;
        break;
    case DERIVE_NEG_EXP:
        node[n] = (lp_node){.op = LP_OP_EXP, .dtype = LP_F32, .arg = {0}, .count = count};
        node[n + 1] = (lp_node){.op = LP_OP_NEG, .dtype = LP_F32, .arg = {n}, .count = count};
        n += 2;
        break;
    case DERIVE_ADD:
        node[n] = (lp_node){.op = LP_OP_ADD, .dtype = LP_F32, .arg = {0, 1}, .count = count};
        n++;
        break;
    case DERIVE_CLOSE:
        node[n] = (lp_node){.op = LP_OP_ALL_CLOSE, .arg = {0, 1}, .bits = 0x3727c5ac /* 1e-5 */};
        out.error_text = "w1 and w3 differ for expert {index}";
        n++;
        break;
    }
    out.nnode = n;
    if (d->dest >= 0) {
        const dest *to = &w->dest[d->dest];
        out.dest = to->index;
        assert_ok(w, lp_view_contiguous(&view, to->dtype, 2, to->shape, &w->err));
        assert_ok(w, lp_map_copy(&map, &to->view, to->storage_bytes - to->offset, &view, count * elem(to->dtype), NULL,
                                 &w->err));
    }
    out.map = map;
    assert_ok(w, lp_trace_add_derive(w->trace, &out, &w->err));
    lp_map_free(map, NULL);
    lp_map_free(gather[0], NULL);
    lp_map_free(gather[1], NULL);
}

/* Catalogue and trace of the world. more (NULL: none) is called before the trace is sealed. */
static inline void build_world(world *w, void (*more)(world *w))
{
    const lp_trace_header header = {"test", "1", "", "", {0}};
    assert_ok(w, lp_checkpoint_new(&w->checkpoint, NULL, &w->err));
    for (int i = 0; i < w->nsource; i++) {
        const lp_checkpoint_tensor tensor = {.name = w->source[i].name,
                                             .dtype = w->source[i].dtype,
                                             .ndim = 2,
                                             .shape = w->source[i].shape,
                                             .file = -1,
                                             .file_off = -1};
        assert_ok(w, lp_checkpoint_add(w->checkpoint, &tensor, &w->err));
    }
    assert_ok(w, lp_checkpoint_seal(w->checkpoint, &w->err));
    assert_ok(w, lp_trace_new(&w->trace, w->checkpoint, &header, NULL, &w->err));
    assert_ok(w, lp_trace_begin_scope(w->trace, &(lp_scope){0}, &w->err));
    for (int i = 0; i < w->ndest; i++) {
        dest *d = &w->dest[i];
        const lp_destination row = {.name = d->name,
                                    .dtype = d->dtype,
                                    .ndim = 2,
                                    .shape = d->shape,
                                    .stride = d->stride,
                                    .storage = d->storage,
                                    .storage_bytes = d->storage_bytes,
                                    .offset = d->offset,
                                    .layout = "",
                                    .group = d->group,
                                    .flags = d->flags,
                                    .dummy_bits = d->dummy,
                                    .slot_dim = -1};
        assert_ok(w, lp_trace_add_destination(w->trace, &row, &d->index, &w->err));
        assert_ok(w, lp_view_strided(&d->view, d->dtype, 2, d->shape, d->stride, 0, &w->err));
    }
    for (int i = 0; i < w->ncall; i++)
        record_call(w, &w->call[i]);
    for (int i = 0; i < w->nderive; i++)
        record_derive(w, &w->derive[i]);
    if (more != NULL)
        more(w);
    assert_ok(w, lp_trace_seal(w->trace, &w->err));
}

/* For build_world: the checkpoint's 'scale' into the first destination is something that the loader does on the host.
 */
static inline void refuse_scale(world *w)
{
    const lp_refusal r = {.name = (uint32_t)lp_checkpoint_find(w->checkpoint, "scale"),
                          .dest = w->dest[0].index,
                          .operation = "aten.max",
                          .reason = "reads a value on the host",
                          .provenance = LP_NONE};
    assert_ok(w, lp_trace_add_refusal(w->trace, &r, &w->err));
}

static inline void free_world(world *w)
{
    lp_trace_close(w->trace);
    lp_checkpoint_close(w->checkpoint);
}

#endif
