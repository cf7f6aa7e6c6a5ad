/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads of small worlds (replay_world.h), and what memory must hold after a load of them: by a model that moves one
 * element at a time and knows nothing of maps or plans.
 */
#ifndef LOADPLAN_REPLAY_TESTING_H
#define LOADPLAN_REPLAY_TESTING_H

#include "replay_world.h"

#include "replayer/own_math.h"

/* ---- payloads ---- */

typedef struct payload {
    uint8_t *data[SOURCES_MAX];
} payload;

/* Finite values in float dtypes, anything in others. */
static inline payload make_payload(world *w)
{
    payload p = {{NULL}};
    for (int i = 0; i < w->nsource; i++) {
        p.data[i] = malloc((size_t)w->source[i].bytes + 1);
        assert_non_null(p.data[i]);
        for (int64_t b = 0; b < w->source[i].bytes; b++)
            p.data[i][b] = (uint8_t)next_random(w);
        for (int64_t k = 0; k < w->source[i].bytes / 4 && w->source[i].dtype == LP_F32; k++) {
            const float value = (float)(pick(w, 4001) - 2000) / 500.0f;
            memcpy(p.data[i] + 4 * k, &value, 4);
        }
        for (int64_t k = 0; k < w->source[i].bytes / 2 && w->source[i].dtype == LP_BF16; k++)
            p.data[i][2 * k + 1] = (uint8_t)(0x3c + pick(w, 8));
    }
    return p;
}

static inline void free_payload(const world *w, payload *p)
{
    for (int i = 0; i < w->nsource; i++)
        free(p->data[i]);
}

/* ---- the model ---- */

/* One block for each storage, by destination. */
typedef struct image {
    uint8_t *data[DESTS_MAX];
} image;

static inline void model_call(const world *w, const call *c, const payload *p, image *m)
{
    const dest *d = &w->dest[c->dest];
    for (int64_t i = 0; i < c->size[0]; i++)
        for (int64_t j = 0; j < c->size[1]; j++) {
            uint8_t *to =
                m->data[c->dest] + d->offset + (c->dst_at[0] + i) * d->stride[0] + (c->dst_at[1] + j) * d->stride[1];
            if (c->source < 0) {
                memcpy(to, &c->bits, (size_t)elem(d->dtype));
                continue;
            }
            const source *s = &w->source[c->source];
            const uint8_t *from =
                p->data[c->source] + (c->src_at + i * c->src_step[0] + j * c->src_step[1]) * elem(s->dtype);
            if (lp_cast_kind_of(s->dtype, d->dtype) == LP_CAST_VALUES)
                assert_int_equal(lp_cast_elements(s->dtype, from, d->dtype, to, 1), LP_OK);
            else
                memcpy(to, from, (size_t)elem(d->dtype));
        }
}

static inline float model_value(const world *w, const image *m, int which, int64_t i)
{
    const dest *d = &w->dest[which];
    float value;
    memcpy(&value, m->data[which] + d->offset + i / d->shape[1] * d->stride[0] + i % d->shape[1] * d->stride[1], 4);
    return value;
}

static inline void model_derive(const world *w, const derive *d, const payload *p, image *m)
{
    if (d->kind == DERIVE_CLOSE)
        return;
    const dest *to = &w->dest[d->dest];
    for (int64_t i = 0; i < to->shape[0] * to->shape[1]; i++) {
        float value = 0, x = 0;
        if (d->kind != DERIVE_MAX)
            memcpy(&x, p->data[d->source] + 4 * i, 4);
        if (d->kind == DERIVE_NEG_EXP) {
            value = -lp_own_exp(x);
        } else if (d->kind == DERIVE_ADD) {
            value = model_value(w, m, d->input, i) + x;
        } else {
            const int64_t count = w->dest[d->input].shape[0] * w->dest[d->input].shape[1];
            value = model_value(w, m, d->input, 0);
            for (int64_t k = 1; k < count; k++)
                value = model_value(w, m, d->input, k) > value ? model_value(w, m, d->input, k) : value;
            value = value == 0 ? 1.0f : value;
        }
        memcpy(m->data[d->dest] + to->offset + i / to->shape[1] * to->stride[0] + i % to->shape[1] * to->stride[1],
               &value, 4);
    }
}

/* Memory after the calls, on top of what *m holds. */
static inline void model_load(const world *w, const payload *p, image *m)
{
    for (int begin = 1; begin >= 0; begin--)
        for (int i = 0; i < w->ncall; i++)
            if ((w->call[i].trigger < 0) == (begin != 0))
                model_call(w, &w->call[i], p, m);
    for (int i = 0; i < w->nderive; i++)
        model_derive(w, &w->derive[i], p, m);
}

/* The first destination of the storage that destination i lies in. */
static inline int owner_of(const world *w, int i)
{
    int owner = 0;
    while (strcmp(w->dest[owner].storage, w->dest[i].storage) != 0)
        owner++;
    return owner;
}

static inline image new_image(const world *w)
{
    image m = {{NULL}};
    for (int i = 0; i < w->ndest; i++) {
        const int owner = owner_of(w, i);
        m.data[i] = owner < i ? m.data[owner] : calloc(1, (size_t)w->dest[i].storage_bytes + 1);
        assert_non_null(m.data[i]);
    }
    return m;
}

static inline void free_image(const world *w, image *m)
{
    for (int i = 0; i < w->ndest; i++)
        if (owner_of(w, i) == i)
            free(m->data[i]);
}

/* ---- files ---- */

/* Writes some sources as one safetensors file, in this order; returns where the payload begins. */
static inline int64_t write_sources(const world *w, const payload *p, const char *path, const int *which, int count)
{
    char header[4096] = "{";
    size_t used = 1;
    int64_t off = 0;
    for (int i = 0; i < count; i++) {
        const source *s = &w->source[which[i]];
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld,%lld],\"data_offsets\":[%lld,%lld]}",
                                 i > 0 ? "," : "", s->name, lp_dtype_name(s->dtype), (long long)s->shape[0],
                                 (long long)s->shape[1], (long long)off, (long long)(off + s->bytes));
        off += s->bytes;
    }
    assert_true(used + 1 < sizeof header);
    header[used++] = '}';
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fputc((int)(used >> (8 * i) & 0xff), f);
    assert_int_equal(fwrite(header, 1, used, f), used);
    for (int i = 0; i < count; i++)
        assert_int_equal(fwrite(p->data[which[i]], 1, (size_t)w->source[which[i]].bytes, f), w->source[which[i]].bytes);
    assert_int_equal(fclose(f), 0);
    return (int64_t)(8 + used);
}

/* All of them, in their order, which is not that of their names. */
static inline int64_t write_world(const world *w, const payload *p, const char *path)
{
    int all[SOURCES_MAX];
    for (int i = 0; i < w->nsource; i++)
        all[i] = i;
    return write_sources(w, p, path, all, w->nsource);
}

/* ---- plans ---- */

static inline void describe_image(const world *w, const image *m, lp_destination_memory memory[DESTS_MAX])
{
    for (int i = 0; i < w->ndest; i++) {
        const dest *d = &w->dest[i];
        memory[i] = (lp_destination_memory){.name = d->name,
                                            .dtype = d->dtype,
                                            .ndim = 2,
                                            .shape = d->shape,
                                            .stride = d->stride,
                                            .data = m->data[i] + d->offset,
                                            .storage = m->data[i],
                                            .storage_bytes = d->storage_bytes};
    }
}

/* Binds the trace to the memory of an image. */
static inline lp_plan *bind_image(world *w, image *m, const lp_bind_options *options)
{
    lp_destination_memory memory[DESTS_MAX];
    lp_plan *plan = NULL;
    describe_image(w, m, memory);
    assert_ok(w, lp_bind(&plan, w->trace, NULL, memory, w->ndest, options, &w->err));
    return plan;
}

static uint64_t failing_seed; /* of the world at hand, for messages */

static inline void assert_same_image(const world *w, const image *have, const image *want, const char *what)
{
    for (int i = 0; i < w->ndest; i++)
        for (int64_t b = 0; b < w->dest[i].storage_bytes; b++)
            if (have->data[i][b] != want->data[i][b]) {
                print_error("seed %llu: %s: '%s' byte %lld is %02x, not %02x\n", (unsigned long long)failing_seed, what,
                            w->dest[i].name, (long long)b, have->data[i][b], want->data[i][b]);
                fail();
            }
}

static inline void push_whole(world *w, lp_session *s, const payload *p, int i)
{
    const lp_buffer buffer = {.data = p->data[i], .dtype = w->source[i].dtype, .ndim = 2, .shape = w->source[i].shape};
    assert_ok(w, lp_push(s, w->source[i].name, &buffer, &w->err));
}

static inline void push_all(world *w, lp_session *s, const payload *p)
{
    for (int i = 0; i < w->nsource; i++)
        push_whole(w, s, p, i);
}

/* An allocator that fails once. */
typedef struct failing_once {
    int64_t countdown; /* allocations until one fails; < 0: never */
    int64_t failed;
} failing_once;

static inline void *failing_once_resize(void *context, void *old, size_t bytes)
{
    failing_once *f = context;
    if (bytes > 0 && f->countdown >= 0 && f->countdown-- == 0) {
        f->failed++;
        return NULL;
    }
    return lp_alloc_default()->resize(lp_alloc_default()->context, old, bytes);
}

#endif
