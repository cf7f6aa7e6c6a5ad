/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of recorders and loaders share: catalogues made by hand, and a naive executor that moves bytes by the rows
 * of a trace, one element at a time. Source bytes are a mix of the tensor's name and the byte's number.
 */
#ifndef LOADPLAN_TEST_RECORDER_RUN_H
#define LOADPLAN_TEST_RECORDER_RUN_H

#include "recorder/recorder.h"
#include "traces/base.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- recorders ---- */

static inline lp_recorder *open_scope(const lp_checkpoint *c, lp_scope at)
{
    lp_recorder *r = NULL;
    lp_error err;
    if (lp_recorder_open(&r, c, &at, &err) != LP_OK)
        fail_msg("%s", err.text);
    return r;
}

static inline lp_recorder *open_recorder(const lp_checkpoint *c)
{
    return open_scope(c, (lp_scope){0});
}

/* Ends recording, which must succeed, and closes the recorder. */
static inline lp_trace *finish(lp_recorder *r)
{
    lp_trace *t = NULL;
    lp_error err;
    if (lp_recorder_finish(r, &t, &err) != LP_OK)
        fail_msg("%s", err.text);
    lp_recorder_close(r);
    return t;
}

/* ---- catalogues ---- */

static inline void add_tensor(lp_checkpoint *c, const char *name, lp_dtype dtype, int ndim, const int64_t *shape)
{
    lp_error err;
    const lp_checkpoint_tensor t = {
        .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = -1, .file_off = -1};
    if (lp_checkpoint_add(c, &t, &err) != LP_OK)
        fail_msg("%s", err.text);
}

static inline lp_checkpoint *new_checkpoint(void)
{
    lp_checkpoint *c = NULL;
    lp_error err;
    if (lp_checkpoint_new(&c, NULL, &err) != LP_OK)
        fail_msg("%s", err.text);
    return c;
}

static inline void seal_checkpoint(lp_checkpoint *c)
{
    lp_error err;
    if (lp_checkpoint_seal(c, &err) != LP_OK)
        fail_msg("%s", err.text);
}

#define SHAPE(...)                                                                                                     \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                                            \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* What most tests of the recording API load: several dtypes, a scalar, and two tensors of equal shape. */
static inline lp_checkpoint *small_checkpoint(void)
{
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "a", LP_F32, SHAPE(4, 6));
    add_tensor(c, "b", LP_F32, SHAPE(4, 6));
    add_tensor(c, "half", LP_BF16, SHAPE(8));
    add_tensor(c, "scale", LP_F32, 0, NULL);
    add_tensor(c, "bytes", LP_U8, SHAPE(16));
    seal_checkpoint(c);
    return c;
}

/* ---- source bytes ---- */

static inline uint8_t source_byte(const char *name, int64_t off)
{
    uint64_t x = lp_hash(name, strlen(name)) + (uint64_t)off * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (uint8_t)(x >> 56);
}

/* ---- executor ---- */

enum { UNTOUCHED = 0xee };

typedef struct storage {
    const char *name;
    uint8_t *byte, *written; /* written: how often, saturating */
    int64_t bytes;
} storage;

typedef struct run {
    const lp_trace *trace;
    const lp_rows *rows;
    storage *storage;
    int storages;
} run;

static inline storage *storage_of(run *r, const lp_destination *d)
{
    for (int i = 0; i < r->storages; i++) {
        if (strcmp(r->storage[i].name, d->storage) == 0)
            return &r->storage[i];
    }
    r->storage = realloc(r->storage, (size_t)(r->storages + 1) * sizeof *r->storage);
    storage *s = &r->storage[r->storages++];
    *s = (storage){.name = d->storage, .bytes = d->storage_bytes};
    s->byte = malloc((size_t)s->bytes + 1);
    s->written = calloc((size_t)s->bytes + 1, 1);
    memset(s->byte, UNTOUCHED, (size_t)s->bytes);
    return s;
}

typedef struct applying {
    storage *s;
    const lp_record *record;
    const lp_destination *dest;
    const char *name;
} applying;

static inline int apply_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    applying *a = context;
    const lp_record *rec = a->record;
    const lp_map *map = rec->map;
    for (int64_t i = 0; i < count; i++) {
        uint8_t from[8], to[8] = {0};
        const int64_t src = src_off + rec->src_off + i * map->src_elem;
        const int64_t dst = a->dest->offset + dst_off + rec->dst_off + i * map->dst_elem;
        if (rec->kind == LP_KIND_FILL) {
            for (int b = 0; b < map->dst_elem; b++)
                to[b] = (uint8_t)(rec->fill_bits >> (8 * b));
        } else {
            for (int b = 0; b < map->src_elem; b++)
                from[b] = source_byte(a->name, src + b);
            if (rec->kind == LP_KIND_CAST)
                assert_int_equal(lp_cast_elements((lp_dtype)rec->src_dtype, from, (lp_dtype)rec->dst_dtype, to, 1),
                                 LP_OK);
            else
                memcpy(to, from, sizeof to);
        }
        assert_true(dst >= 0 && dst + map->dst_elem <= a->s->bytes);
        for (int b = 0; b < map->dst_elem; b++) {
            a->s->byte[dst + b] = to[b];
            if (a->s->written[dst + b] < 255)
                a->s->written[dst + b]++;
        }
    }
    return 0;
}

/* Applies all records of a scope. Records with a seq must come in its order; the tests that need one sort them. */
static inline run run_scope(const lp_trace *t, int32_t scope)
{
    run r = {.trace = t};
    lp_error err;
    if (lp_trace_rows(t, scope, &r.rows, &err) != LP_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < r.rows->ndest; i++)
        storage_of(&r, &r.rows->dest[i]);
    for (uint32_t i = 0; i < r.rows->nrecord; i++) {
        const lp_record *rec = &r.rows->record[i];
        const lp_destination *d = &r.rows->dest[rec->dest];
        applying a = {.s = storage_of(&r, d), .record = rec, .dest = d, .name = ""};
        if (rec->name != LP_NAME_BEGIN)
            a.name = lp_checkpoint_at(lp_trace_checkpoint(t), rec->name)->name;
        lp_map_walk(rec->map, apply_run, &a);
    }
    return r;
}

static inline void free_run(run *r)
{
    for (int i = 0; i < r->storages; i++) {
        free(r->storage[i].byte);
        free(r->storage[i].written);
    }
    free(r->storage);
}

static inline const lp_destination *dest_of(const run *r, const char *name)
{
    for (uint32_t i = 0; i < r->rows->ndest; i++) {
        if (strcmp(r->rows->dest[i].name, name) == 0)
            return &r->rows->dest[i];
    }
    fail_msg("no destination '%s'", name);
    return NULL;
}

/* Address of an element of a destination. */
static inline const uint8_t *element_of(run *r, const char *name, const int64_t *index)
{
    const lp_destination *d = dest_of(r, name);
    int64_t off = d->offset;
    for (int32_t i = 0; i < d->ndim; i++) {
        assert_true(index[i] < d->shape[i]);
        off += index[i] * d->stride[i];
    }
    return storage_of(r, d)->byte + off;
}

static inline uint32_t name_index(const run *r, const char *name)
{
    const int64_t i = lp_checkpoint_find(lp_trace_checkpoint(r->trace), name);
    assert_true(i >= 0);
    return (uint32_t)i;
}

static inline const lp_refusal *refusal_of(const run *r, const char *name)
{
    const uint32_t index = name_index(r, name);
    for (uint32_t i = 0; i < r->rows->nrefusal; i++) {
        if (r->rows->refusal[i].name == index)
            return &r->rows->refusal[i];
    }
    return NULL;
}

static inline uint32_t records_of(const run *r, const char *name)
{
    const uint32_t index = name_index(r, name);
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->rows->nrecord; i++)
        count += r->rows->record[i].name == index;
    return count;
}

/* Bytes [off, off + bytes) of a destination's storage are those of a checkpoint tensor from src_off on. */
static inline void assert_source(run *r, const char *dest, int64_t off, const char *name, int64_t src_off,
                                 int64_t bytes)
{
    const lp_destination *d = dest_of(r, dest);
    const storage *s = storage_of(r, d);
    assert_true(d->offset + off + bytes <= s->bytes);
    for (int64_t i = 0; i < bytes; i++) {
        if (s->byte[d->offset + off + i] != source_byte(name, src_off + i))
            fail_msg("byte %lld of '%s' is not byte %lld of '%s'", (long long)(off + i), dest, (long long)(src_off + i),
                     name);
    }
}

static inline void assert_zero(run *r, const char *dest, int64_t off, int64_t bytes)
{
    const lp_destination *d = dest_of(r, dest);
    const storage *s = storage_of(r, d);
    for (int64_t i = 0; i < bytes; i++) {
        if (s->byte[d->offset + off + i] != 0 || s->written[d->offset + off + i] != 1)
            fail_msg("byte %lld of '%s' is not one zero", (long long)(off + i), dest);
    }
}

/* No deny in the verdict of check. */
static inline void assert_checked(const lp_trace *t)
{
    lp_findings *f = NULL;
    lp_error err;
    if (lp_check(&f, t, &err) != LP_OK)
        fail_msg("%s", err.text);
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        const lp_finding *x = lp_findings_at(f, i);
        if (x->level == LP_DENY)
            fail_msg("%s: %s: %s", x->rule->id, x->tensor, x->text);
    }
    lp_findings_free(f);
}

#endif
