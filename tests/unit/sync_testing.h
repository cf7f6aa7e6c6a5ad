/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds for the tests of sync: one small model of every loader shape (rows and columns over ranks, experts, fan-out,
 * casts, transposes, fills, derives of destinations and of staged sources), recorded for any number of ranks, with
 * payloads that are computed from (tensor, byte, epoch). What a rank must hold afterwards comes from pushing whole
 * tensors into a session, which has tests of its own.
 */
#ifndef LOADPLAN_SYNC_TESTING_H
#define LOADPLAN_SYNC_TESTING_H

#include "recorder/recorder.h"
#include "traces/base.h"
#include "replayer/sync.h"
#include "tests/random_numbers.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        lp_error error_ = {.code = LP_OK};                                                                             \
        const lp_status got_ = (call);                                                                                 \
        if (got_ != LP_OK)                                                                                             \
            fail_msg("%s:%d: %s: %s", __FILE__, __LINE__, lp_status_name(got_), error_.text);                          \
        (void)error_;                                                                                                  \
    } while (0)
#define ERR (&error_)

enum { HIDDEN = 64, WIDE = 128, EXPERTS = 8, EXPERT_ROWS = 16 };

/* ---- the checkpoint ---- */

static inline void add_tensor_to(lp_checkpoint *c, const char *name, lp_dtype dtype, int ndim, int64_t a, int64_t b)
{
    const int64_t shape[2] = {a, b};
    const lp_checkpoint_tensor t = {
        .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = -1, .file_off = -1};
    assert_ok(lp_checkpoint_add(c, &t, ERR));
}

static inline lp_checkpoint *make_model(void)
{
    lp_checkpoint *c = NULL;
    char name[64];
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    add_tensor_to(c, "up", LP_BF16, 2, WIDE, HIDDEN);
    add_tensor_to(c, "down", LP_BF16, 2, HIDDEN, WIDE);
    add_tensor_to(c, "norm", LP_BF16, 1, HIDDEN, 1);
    add_tensor_to(c, "bias", LP_F32, 1, WIDE, 1);
    add_tensor_to(c, "scale", LP_F8_E4M3, 2, WIDE, 8);
    add_tensor_to(c, "log", LP_F32, 1, WIDE, 1);
    add_tensor_to(c, "gain", LP_F32, 1, 1, 1);
    add_tensor_to(c, "empty", LP_BF16, 2, 0, HIDDEN);
    add_tensor_to(c, "unused", LP_BF16, 2, 16, HIDDEN);
    for (int i = 0; i < EXPERTS; i++) {
        snprintf(name, sizeof name, "experts.%d.w", i);
        add_tensor_to(c, name, LP_U8, 2, EXPERT_ROWS, HIDDEN);
        snprintf(name, sizeof name, "experts.%d.s", i);
        add_tensor_to(c, name, LP_F32, 1, 1, 1);
    }
    assert_ok(lp_checkpoint_seal(c, ERR));
    return c;
}

/* ---- the loader ---- */

static inline void declare(lp_recorder *r, const char *name, lp_dtype dtype, int ndim, int64_t a, int64_t b)
{
    const int64_t shape[2] = {a, b};
    lp_declare(r, name, dtype, ndim, shape);
}

/* A trainer keeps the bytes of the checkpoint; a server casts and derives. */
static inline void load_dense(lp_recorder *r, lp_scope at, bool is_trainer)
{
    const int64_t rows = WIDE / at.tp, from = at.tp_rank * rows;
    declare(r, "up", LP_BF16, 2, rows, HIDDEN);
    lp_copy(lp_dest(r, "up"), lp_narrow(lp_source(r, "up"), 0, from, rows));
    declare(r, "down", LP_BF16, 2, HIDDEN, rows);
    lp_copy(lp_dest(r, "down"), lp_narrow(lp_source(r, "down"), 1, from, rows));
    declare(r, "norm", LP_BF16, 1, HIDDEN, 1);
    lp_copy(lp_dest(r, "norm"), lp_source(r, "norm"));
    declare(r, "norm_again", LP_BF16, 1, HIDDEN, 1); /* fan-out */
    lp_copy(lp_dest(r, "norm_again"), lp_source(r, "norm"));
    declare(r, "norm_wide", LP_F32, 1, HIDDEN, 1); /* a cast */
    lp_copy(lp_dest(r, "norm_wide"), lp_to(lp_source(r, "norm"), LP_F32));
    if (is_trainer) {
        declare(r, "bias", LP_F32, 1, rows, 1);
        lp_copy(lp_dest(r, "bias"), lp_narrow(lp_source(r, "bias"), 0, from, rows));
        declare(r, "log", LP_F32, 1, rows, 1);
        lp_copy(lp_dest(r, "log"), lp_narrow(lp_source(r, "log"), 0, from, rows));
        declare(r, "scale", LP_F8_E4M3, 2, 8, rows);
        lp_copy(lp_dest(r, "scale"), lp_t(lp_narrow(lp_source(r, "scale"), 0, from, rows)));
        declare(r, "gains", LP_F32, 1, 4, 1);
        const int64_t four_times = 4;
        lp_copy(lp_dest(r, "gains"), lp_expand(lp_source(r, "gain"), 1, &four_times));
        return;
    }
    declare(r, "bias", LP_BF16, 1, rows + 2, 1); /* a cast the other way, and padding */
    lp_copy(lp_narrow(lp_dest(r, "bias"), 0, 0, rows), lp_to(lp_narrow(lp_source(r, "bias"), 0, from, rows), LP_BF16));
    lp_fill(lp_narrow(lp_dest(r, "bias"), 0, rows, 2), 0x3f80, lp_source(r, "bias"));
    declare(r, "scale", LP_F8_E4M3, 2, 8, rows); /* a transpose of bytes */
    lp_copy(lp_dest(r, "scale"), lp_t(lp_narrow(lp_source(r, "scale"), 0, from, rows)));
    declare(r, "empty", LP_BF16, 2, 0, HIDDEN);
    lp_copy(lp_dest(r, "empty"), lp_source(r, "empty"));
    declare(r, "gains", LP_F32, 1, 4, 1); /* one element in several places */
    const int64_t four = 4;
    lp_copy(lp_dest(r, "gains"), lp_expand(lp_source(r, "gain"), 1, &four));
    declare(r, "decay", LP_F32, 1, rows, 1); /* from a staged source */
    lp_derive(r, lp_dest(r, "decay"), lp_neg(lp_exp(lp_narrow(lp_source(r, "log"), 0, from, rows))));
}

static inline void load_experts(lp_recorder *r, lp_scope at)
{
    const int ranks = at.expert_parallel ? at.dp * at.tp : 1,
              rank = at.expert_parallel ? at.dp_rank * at.tp + at.tp_rank : 0;
    const int slots = EXPERTS / ranks;
    declare(r, "experts", LP_U8, 2, slots * EXPERT_ROWS, HIDDEN);
    declare(r, "expert_scales", LP_F32, 1, slots, 1);
    declare(r, "expert_scale", LP_F32, 1, 1, 1);
    for (int i = 0; i < slots; i++) {
        const int expert = rank * slots + i;
        lp_copy(lp_narrow(lp_dest(r, "experts"), 0, i * EXPERT_ROWS, EXPERT_ROWS),
                lp_source(r, lp_name(r, "experts.%d.w", expert)));
        lp_copy(lp_narrow(lp_dest(r, "expert_scales"), 0, i, 1), lp_source(r, lp_name(r, "experts.%d.s", expert)));
    }
    lp_derive(r, lp_dest(r, "expert_scale"), lp_or_if_zero(lp_max(lp_dest(r, "expert_scales")), 1.0f));
}

/* All ranks of a layout. */
static inline lp_trace *record_ranks(const lp_checkpoint *c, int dp, int tp, bool expert_parallel, bool is_trainer)
{
    lp_recorder *r = NULL;
    lp_trace *t = NULL;
    lp_scope at = {.dp = dp, .tp = tp, .expert_parallel = expert_parallel};
    for (int d = 0; d < dp; d++)
        for (int k = 0; k < tp; k++) {
            at.dp_rank = d;
            at.tp_rank = k;
            if (r == NULL)
                assert_ok(lp_recorder_open(&r, c, &at, ERR));
            else
                assert_ok(lp_recorder_next_scope(r, &at, ERR));
            load_dense(r, lp_recorder_scope(r), is_trainer);
            load_experts(r, lp_recorder_scope(r));
        }
    assert_ok(lp_recorder_finish(r, &t, ERR));
    lp_recorder_close(r);
    return t;
}

static inline lp_trace *record_layout(const lp_checkpoint *c, int dp, int tp, bool expert_parallel)
{
    return record_ranks(c, dp, tp, expert_parallel, false);
}

/* ---- payloads ---- */

/* Element i of a tensor in an epoch: later epochs change every ninth element, or a stretch. Finite in every dtype. */
static inline uint64_t element(uint32_t name, int64_t i, int64_t epoch)
{
    uint64_t value = random_mix(name * 1000003u + (uint64_t)i);
    for (int64_t e = 2; e <= epoch; e++)
        if (random_mix(value ^ (uint64_t)e) % 9 == 0 || (i / 37 % 11 == e % 11))
            value = random_mix(value + (uint64_t)e);
    return value;
}

/* Bytes of all tensors in one epoch. */
typedef struct payload {
    const lp_checkpoint *catalogue;
    uint8_t **data;
} payload;

static inline payload make_payload(const lp_checkpoint *c, int64_t epoch)
{
    payload p = {.catalogue = c, .data = calloc((size_t)lp_checkpoint_count(c) + 1, sizeof(uint8_t *))};
    assert_non_null(p.data);
    for (int64_t t = 0; t < lp_checkpoint_count(c); t++) {
        const lp_checkpoint_tensor *x = lp_checkpoint_at(c, t);
        const int64_t size = lp_dtype_bits(x->dtype) / 8;
        p.data[t] = malloc((size_t)x->bytes + 8);
        assert_non_null(p.data[t]);
        for (int64_t i = 0; i < x->bytes / size; i++) {
            const uint64_t value = element((uint32_t)t, i, epoch);
            if (x->dtype == LP_F32) {
                const float f = (float)(int)(value % 2001) / 500.0f - 2.0f;
                memcpy(p.data[t] + 4 * i, &f, 4);
            } else if (x->dtype == LP_BF16) {
                p.data[t][2 * i] = (uint8_t)value;
                p.data[t][2 * i + 1] = (uint8_t)(0x3c + value / 256 % 8);
            } else {
                p.data[t][i] = (uint8_t)value;
            }
        }
    }
    return p;
}

static inline void free_payload(payload *p)
{
    for (int64_t t = 0; t < lp_checkpoint_count(p->catalogue); t++)
        free(p->data[t]);
    free(p->data);
}

static inline lp_status read_payload(void *context, uint32_t name, int64_t lo, int64_t run, int64_t stride,
                                     int64_t count, void *out, lp_error *err)
{
    const payload *p = context;
    (void)err;
    for (int64_t i = 0; i < count; i++)
        memcpy((uint8_t *)out + i * run, p->data[name] + lo + i * stride, (size_t)run);
    return LP_OK;
}

/* A payload whose reads fail from the n-th on. */
typedef struct torn_payload {
    const payload *data;
    int64_t left;
} torn_payload;

static inline lp_status read_torn(void *context, uint32_t name, int64_t lo, int64_t run, int64_t stride, int64_t count,
                                  void *out, lp_error *err)
{
    torn_payload *p = context;
    if (p->left-- <= 0)
        return lp_fail(err, LP_E_IO, "the trainer's disk is gone");
    return read_payload((void *)(uintptr_t)p->data, name, lo, run, stride, count, out, err);
}

/* ---- ranks ---- */

typedef struct rank_memory {
    lp_destinations *memory;
    lp_plan *plan;
} rank_memory;

static inline rank_memory bind_rank(const lp_trace *t, int32_t rank)
{
    rank_memory m = {.plan = NULL};
    int64_t count;
    const lp_scope *scope = lp_trace_scope_at(t, lp_trace_scope_find(t, rank));
    assert_ok(lp_destinations_allocate(&m.memory, t, scope, false, NULL, ERR));
    const lp_destination_memory *list = lp_destinations_list(m.memory, &count);
    assert_ok(lp_bind(&m.plan, t, scope, list, count, &(lp_bind_options){.threads = 1}, ERR));
    return m;
}

static inline void free_rank(rank_memory *m)
{
    lp_plan_close(m->plan);
    lp_destinations_free(m->memory);
}

static inline void load_whole(const rank_memory *m, const payload *p)
{
    lp_session *s = NULL;
    assert_ok(lp_begin(&s, m->plan, NULL, ERR));
    for (int64_t t = 0; t < lp_checkpoint_count(p->catalogue); t++) {
        const lp_checkpoint_tensor *x = lp_checkpoint_at(p->catalogue, t);
        const lp_buffer b = {.data = p->data[t], .dtype = x->dtype, .ndim = x->ndim, .shape = x->shape};
        assert_ok(lp_push(s, x->name, &b, ERR));
    }
    assert_ok(lp_finish(s, NULL, ERR));
    lp_session_close(s);
}

/* The first destination that differs, or NULL. */
static inline const char *find_difference(const rank_memory *have, const rank_memory *want)
{
    int64_t count;
    const lp_destination_memory *a = lp_destinations_list(have->memory, &count),
                                *b = lp_destinations_list(want->memory, &count);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(a[i].storage, b[i].storage, (size_t)a[i].storage_bytes) != 0)
            return a[i].name;
    return NULL;
}

static inline void assert_same_memory(const rank_memory *have, const rank_memory *want, const char *what, int32_t rank)
{
    const char *name = find_difference(have, want);
    if (name != NULL)
        fail_msg("%s: rank %d: '%s' differs", what, rank, name);
}

/* The payload as a safetensors file. */
static inline void write_checkpoint(const char *path, const payload *p)
{
    char header[8192];
    size_t used = 0;
    int64_t at = 0;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int64_t t = 0; t < lp_checkpoint_count(p->catalogue); t++) {
        const lp_checkpoint_tensor *x = lp_checkpoint_at(p->catalogue, t);
        used += (size_t)snprintf(header + used, sizeof header - used, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                                 t == 0 ? '{' : ',', x->name, lp_dtype_name(x->dtype));
        for (int k = 0; k < x->ndim; k++)
            used += (size_t)snprintf(header + used, sizeof header - used, "%s%lld", k > 0 ? "," : "",
                                     (long long)x->shape[k]);
        used += (size_t)snprintf(header + used, sizeof header - used, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                                 (long long)(at + x->bytes));
        at += x->bytes;
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    while (used % 8 != 0)
        header[used++] = ' ';
    const uint64_t bytes = used;
    assert_int_equal(fwrite(&bytes, 8, 1, f), 1);
    assert_int_equal(fwrite(header, 1, used, f), used);
    for (int64_t t = 0; t < lp_checkpoint_count(p->catalogue); t++) {
        const int64_t size = lp_checkpoint_at(p->catalogue, t)->bytes;
        assert_int_equal(fwrite(p->data[t], 1, (size_t)size, f), size);
    }
    assert_int_equal(fclose(f), 0);
}

#endif
