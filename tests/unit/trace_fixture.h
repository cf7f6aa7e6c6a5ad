/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace with one of everything, for the tests of trace files: two files, two ranks, families large and small, every
 * kind of record, an order between names, derives, a check, a refusal, provenance. Included by test programs only.
 */
#ifndef LOADPLAN_TRACE_FIXTURE_H
#define LOADPLAN_TRACE_FIXTURE_H

#include "traces/trace_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* A program that damages it in thousands of places defines FIX_SMALL first: as many kinds of rows, fewer of each. */
#ifdef FIX_SMALL
enum { FIX_LAYERS = 1, FIX_EXPERTS = 4, FIX_ROWS = 2, FIX_COLUMNS = 16 };
#else
enum { FIX_LAYERS = 3, FIX_EXPERTS = 12, FIX_ROWS = 8, FIX_COLUMNS = 16 };
#endif

/* What the calls inside FIX_OK report to. */
static lp_error fix_err;

#define FIX_OK(call)                                                                                                   \
    do {                                                                                                               \
        const lp_status fix_status_ = (call);                                                                          \
        if (fix_status_ != LP_OK)                                                                                      \
            print_error("%s: %s\n", lp_status_name(fix_status_), fix_err.text);                                        \
        assert_int_equal(fix_status_, LP_OK);                                                                          \
    } while (0)

static inline void fix_add(lp_checkpoint *c, const char *name, lp_dtype dtype, int32_t ndim, const int64_t *shape,
                           int32_t file, int64_t *off)
{
    int64_t bytes = lp_dtype_bits(dtype) / 8;
    for (int32_t d = 0; d < ndim; d++)
        bytes *= shape[d];
    FIX_OK(lp_checkpoint_add(
        c,
        &(lp_checkpoint_tensor){
            .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = file, .file_off = *off},
        &fix_err));
    *off += bytes;
}

/* Names of every shape of trouble, in two files; the second has a gap, and one tensor has no known place. */
static inline lp_checkpoint *fix_checkpoint(void)
{
    lp_checkpoint *c;
    char name[96];
    int64_t off[2] = {808, 1000}, unknown = -1;
    FIX_OK(lp_checkpoint_new(&c, NULL, &fix_err));
    FIX_OK(lp_checkpoint_add_file(
        c, &(lp_checkpoint_file){.path = "model-1.safetensors", .size_bytes = 1 << 20, .mtime_ns = 7, .inode = 9},
        &fix_err));
    FIX_OK(lp_checkpoint_add_file(
        c,
        &(lp_checkpoint_file){.path = "sub/model-2.safetensors",
                              .size_bytes = -1,
                              .sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
        &fix_err));
    for (int l = 0; l < FIX_LAYERS; l++) {
        for (int e = 0; e < FIX_EXPERTS; e++) {
            snprintf(name, sizeof name, "layers.%d.experts.%d.up.weight", l, e);
            fix_add(c, name, LP_BF16, 2, (int64_t[]){FIX_ROWS, FIX_COLUMNS}, 0, &off[0]);
            snprintf(name, sizeof name, "layers.%d.experts.%d.up.scale", l, e);
            fix_add(c, name, LP_F32, 0, NULL, 0, &off[0]);
        }
        snprintf(name, sizeof name, "layers.%d.norm", l);
        fix_add(c, name, LP_BF16, 1, (int64_t[]){FIX_COLUMNS}, 1, &off[1]);
    }
    off[1] += 24;
    fix_add(c, "embed", LP_F32, 2, (int64_t[]){4, FIX_COLUMNS}, 1, &off[1]);
    fix_add(c, "\xc3\xa4 \"quoted\" \\ name\n", LP_U8, 1, (int64_t[]){32}, 1, &off[1]);
    fix_add(c, "empty", LP_F32, 2, (int64_t[]){0, 5}, 1, &off[1]);
    fix_add(c, "host_read", LP_F32, 1, (int64_t[]){4}, 1, &off[1]);
    fix_add(c, "two parts", LP_U8, 1, (int64_t[]){64}, 1, &off[1]);
    unknown = -1;
    fix_add(c, "placeless", LP_I8, 1, (int64_t[]){32}, -1, &unknown);
    FIX_OK(lp_checkpoint_seal(c, &fix_err));
    return c;
}

static inline uint32_t fix_dest(lp_trace *t, const char *name, lp_dtype dtype, int32_t ndim, const int64_t *shape,
                                const char *storage, int64_t storage_bytes, int64_t offset, uint32_t flags)
{
    uint32_t index = 0;
    int64_t stride[8], bytes = lp_dtype_bits(dtype) / 8;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        stride[d] = bytes;
        bytes *= shape[d];
    }
    const bool slots = ndim == 3;
    FIX_OK(lp_trace_add_destination(t,
                                    &(lp_destination){.name = name,
                                                      .dtype = dtype,
                                                      .ndim = ndim,
                                                      .shape = shape,
                                                      .stride = stride,
                                                      .storage = storage,
                                                      .storage_bytes = storage_bytes > 0 ? storage_bytes : bytes,
                                                      .offset = offset,
                                                      .layout = slots ? "w13_rows" : "",
                                                      .layout_version = slots ? 2 : 0,
                                                      .group = slots ? "layers.own" : "root",
                                                      .flags = flags,
                                                      .dummy_bits = flags & LP_DEST_HAS_DUMMY ? 0x3f80 : 0,
                                                      .slot_dim = slots ? 0 : -1,
                                                      .slot_count = slots ? (int32_t)shape[0] : 0},
                                    &index, &fix_err));
    return index;
}

/* src (a view of the whole tensor `name`) into dst; kind and offsets follow. */
static inline void fix_copy(lp_trace *t, const char *name, const lp_view *src, uint32_t dest, const lp_view *dst,
                            int64_t dst_bytes, uint32_t provenance)
{
    const lp_map *map;
    const int64_t index = lp_checkpoint_find(t->checkpoint, name);
    assert_true(index >= 0);
    FIX_OK(lp_map_copy(&map, dst, dst_bytes, src, lp_checkpoint_at(t->checkpoint, index)->bytes, NULL, &fix_err));
    const lp_record r = {.name = (uint32_t)index,
                         .dest = dest,
                         .src_dtype = map->src_elem == map->dst_elem ? LP_DTYPE_NONE : (uint8_t)src->dtype,
                         .dst_dtype = map->src_elem == map->dst_elem ? LP_DTYPE_NONE : (uint8_t)dst->dtype,
                         .map = map,
                         .provenance = provenance};
    FIX_OK(lp_trace_add_record(t, &r, &fix_err));
    lp_map_free(map, NULL);
}

static inline void fix_fill(lp_trace *t, uint32_t name, uint32_t dest, const lp_view *dst, int64_t dst_bytes,
                            uint64_t bits)
{
    const lp_map *map;
    uint64_t reduced;
    FIX_OK(lp_map_fill(&map, &reduced, dst, dst_bytes, bits, lp_dtype_bits(dst->dtype) / 8, NULL, &fix_err));
    FIX_OK(lp_trace_add_record(
        t, &(lp_record){.name = name, .dest = dest, .fill_bits = reduced, .map = map, .provenance = LP_NONE},
        &fix_err));
    lp_map_free(map, NULL);
}

static inline lp_view fix_view(lp_dtype dtype, int ndim, const int64_t *shape)
{
    lp_view v;
    FIX_OK(lp_view_contiguous(&v, dtype, ndim, shape, &fix_err));
    return v;
}

/* The layer's experts of one rank into slots, its norm as a cast, rank 1 transposed. */
static inline void fix_layer(lp_trace *t, int layer, int rank, uint32_t provenance)
{
    enum { LOCAL = FIX_EXPERTS / 2 };
    char name[96];
    snprintf(name, sizeof name, "layers.%d.w13", layer);
    const int64_t slots[] = {LOCAL, FIX_ROWS, FIX_COLUMNS}, one[] = {FIX_ROWS, FIX_COLUMNS}, norm[] = {FIX_COLUMNS};
    const uint32_t w13 = fix_dest(t, name, LP_BF16, 3, slots, NULL, 0, 0, 0);
    snprintf(name, sizeof name, "layers.%d.w13_scale", layer);
    const uint32_t scale = fix_dest(t, name, LP_F32, 1, (int64_t[]){LOCAL}, NULL, 0, 0, LP_DEST_HAS_DUMMY);
    for (int s = 0; s < LOCAL; s++) {
        lp_view dst = fix_view(LP_BF16, 3, slots);
        const lp_view src = fix_view(LP_BF16, 2, one);
        FIX_OK(lp_view_select(&dst, 0, s, &fix_err));
        snprintf(name, sizeof name, "layers.%d.experts.%d.up.weight", layer, rank * LOCAL + s);
        fix_copy(t, name, &src, w13, &dst, 2 * LOCAL * FIX_ROWS * FIX_COLUMNS, provenance);
        lp_view scale_dst = fix_view(LP_F32, 1, (int64_t[]){LOCAL});
        const lp_view scale_src = fix_view(LP_F32, 0, NULL);
        FIX_OK(lp_view_select(&scale_dst, 0, s, &fix_err));
        snprintf(name, sizeof name, "layers.%d.experts.%d.up.scale", layer, rank * LOCAL + s);
        fix_copy(t, name, &scale_src, scale, &scale_dst, 4 * LOCAL, LP_NONE);
    }
    snprintf(name, sizeof name, "layers.%d.norm_f32", layer);
    const uint32_t norm_dest = fix_dest(t, name, LP_F32, 1, norm, NULL, 0, 0, 0);
    snprintf(name, sizeof name, "layers.%d.norm", layer);
    const lp_view norm_src = fix_view(LP_BF16, 1, norm), norm_dst = fix_view(LP_F32, 1, norm);
    fix_copy(t, name, &norm_src, norm_dest, &norm_dst, 4 * FIX_COLUMNS, provenance);
}

/* A staged derive, a check over a destination, a refusal with a region and one without. */
static inline void fix_rest(lp_trace *t, uint32_t target, uint32_t provenance)
{
    const lp_map *whole, *region;
    uint64_t reduced;
    const lp_view dense = fix_view(LP_F32, 2, (int64_t[]){4, FIX_COLUMNS});
    const int64_t bytes = 16 * FIX_COLUMNS, count = 4 * FIX_COLUMNS;
    FIX_OK(lp_map_copy(&whole, &dense, bytes, &dense, bytes, NULL, &fix_err));
    FIX_OK(lp_map_fill(&region, &reduced, &dense, bytes, 0, 4, NULL, &fix_err));
    const uint32_t embed = (uint32_t)lp_checkpoint_find(t->checkpoint, "embed");
    const lp_derive_input staged = {.staged = true, .index = embed, .dtype = LP_F32, .count = count, .map = whole};
    const lp_node exp_node[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = count},
                                {.op = LP_OP_EXP, .dtype = LP_F32, .arg = {0}, .count = count}};
    FIX_OK(lp_trace_add_derive(t,
                               &(lp_derive){.dest = target,
                                            .nnode = 2,
                                            .ninput = 1,
                                            .node = exp_node,
                                            .input = &staged,
                                            .map = whole,
                                            .error_text = "",
                                            .provenance = provenance},
                               &fix_err));
    const lp_derive_input read = {.staged = false, .index = target, .dtype = LP_F32, .count = count, .map = whole};
    const lp_node close_node[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = count},
                                  {.op = LP_OP_CONST, .dtype = LP_F32, .bits = 0x3f800000, .count = 1},
                                  {.op = LP_OP_ALL_CLOSE, .arg = {0, 1}, .bits = 0x3727c5ac}};
    FIX_OK(lp_trace_add_derive(t,
                               &(lp_derive){.dest = LP_NONE,
                                            .nnode = 3,
                                            .ninput = 1,
                                            .node = close_node,
                                            .input = &read,
                                            .error_text = "embed {index} \"is\" not 1",
                                            .provenance = LP_NONE},
                               &fix_err));
    const uint32_t host_read = (uint32_t)lp_checkpoint_find(t->checkpoint, "host_read");
    FIX_OK(lp_trace_add_refusal(t,
                                &(lp_refusal){.name = host_read,
                                              .dest = target,
                                              .map = region,
                                              .operation = "aten.max",
                                              .reason = "reads a value\non the host",
                                              .provenance = provenance},
                                &fix_err));
    lp_map_free(whole, NULL);
    lp_map_free(region, NULL);
}

static inline void fix_scope(lp_trace *t, int rank)
{
    uint32_t line[2];
    const char *odd = "\xc3\xa4 \"quoted\" \\ name\n";
    FIX_OK(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = rank, .expert_parallel = true}, &fix_err));
    FIX_OK(lp_trace_add_provenance(
        t, &(lp_provenance){.file = "loader.py", .line = 40 + rank, .chain = "narrow(0,0,8)"}, &line[0], &fix_err));
    FIX_OK(lp_trace_add_provenance(
        t, &(lp_provenance){.file = "loader.py", .line = 9, .chain = "", .flags = LP_PROV_MATERIALISES}, &line[1],
        &fix_err));
    for (int l = 0; l < FIX_LAYERS; l++)
        fix_layer(t, l, rank, line[0]);
    const int64_t square[] = {4, FIX_COLUMNS}, bytes[] = {32};
    const uint32_t target = fix_dest(t, "embed.exp", LP_F32, 2, square, "pool", 1024, 256, LP_DEST_BUFFER);
    const uint32_t odd_dest = fix_dest(t, odd, LP_U8, 1, bytes, NULL, 0, 0, 0);
    const uint32_t tied = fix_dest(t, "tied", LP_U8, 1, bytes, odd, 32, 0, LP_DEST_TIED);
    fix_dest(t, "scratch", LP_F32, 1, (int64_t[]){7}, NULL, 0, 0, LP_DEST_NO_LOADER);
    (void)tied;
    /* Two names write the same bytes, the later wins; the rest is padding. */
    lp_view whole = fix_view(LP_U8, 1, bytes), tail = whole, head = whole, source = whole;
    FIX_OK(lp_view_narrow(&tail, 0, 8, 8, &fix_err));
    FIX_OK(lp_view_narrow(&head, 0, 0, 12, &fix_err));
    FIX_OK(lp_view_narrow(&source, 0, 16, 8, &fix_err));
    lp_view i8 = fix_view(LP_I8, 1, bytes);
    FIX_OK(lp_view_narrow(&i8, 0, 4, 12, &fix_err));
    fix_copy(t, odd, &source, odd_dest, &tail, 32, line[1]);
    fix_copy(t, "placeless", &i8, odd_dest, &head, 32, LP_NONE);
    lp_view pad = whole;
    FIX_OK(lp_view_narrow(&pad, 0, 16, 8, &fix_err));
    fix_fill(t, LP_NAME_BEGIN, odd_dest, &pad, 32, 0);
    FIX_OK(lp_view_contiguous(&pad, LP_U8, 1, bytes, &fix_err));
    FIX_OK(lp_view_narrow(&pad, 0, 24, 8, &fix_err));
    fix_fill(t, (uint32_t)lp_checkpoint_find(t->checkpoint, odd), odd_dest, &pad, 32, 0x5a);
    /* One name in two unlike pieces: a map of two boxes. */
    const uint32_t parts = fix_dest(t, "parts", LP_U8, 1, (int64_t[]){40}, NULL, 0, 0, 0);
    lp_view part = fix_view(LP_U8, 1, (int64_t[]){40}), from = fix_view(LP_U8, 1, (int64_t[]){64});
    FIX_OK(lp_view_narrow(&part, 0, 0, 16, &fix_err));
    FIX_OK(lp_view_narrow(&from, 0, 3, 16, &fix_err));
    fix_copy(t, "two parts", &from, parts, &part, 40, LP_NONE);
    FIX_OK(lp_view_contiguous(&part, LP_U8, 1, (int64_t[]){40}, &fix_err));
    FIX_OK(lp_view_contiguous(&from, LP_U8, 1, (int64_t[]){64}, &fix_err));
    FIX_OK(lp_view_narrow(&part, 0, 16, 24, &fix_err));
    FIX_OK(lp_view_narrow(&from, 0, 40, 24, &fix_err));
    fix_copy(t, "two parts", &from, parts, &part, 40, LP_NONE);
    fix_rest(t, target, line[1]);
}

/* Ranks in the given order of recording; the trace is sealed. */
static inline lp_trace *fix_trace(bool reversed)
{
    lp_trace *t;
    lp_checkpoint *c = fix_checkpoint();
    FIX_OK(lp_trace_new(&t, c,
                        &(lp_trace_header){.loader = "fixture",
                                           .loader_version = "1",
                                           .configuration = "a=1\nb=\xc3\xa4\n",
                                           .layout = {.tp = 2, .expert_parallel = true}},
                        NULL, &fix_err));
    lp_checkpoint_close(c);
    fix_scope(t, reversed ? 1 : 0);
    fix_scope(t, reversed ? 0 : 1);
    FIX_OK(lp_trace_seal(t, &fix_err));
    return t;
}

static inline const char *fix_path(const char *name)
{
    static char path[4][512];
    static int next;
    const char *folder = getenv("TMPDIR");
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/loadplan-%ld-%s", folder != NULL ? folder : "/tmp", (long)getpid(),
             name);
    return path[next];
}

static inline char *fix_read(const char *path, int64_t *bytes)
{
    char *text;
    FIX_OK(lp_read_file(NULL, path, 1 << 30, &text, bytes, &fix_err));
    return text;
}

/* Everything that is in one trace is in the other: catalogue, header, rows, provenance. */
static inline void fix_same_digests(const lp_trace *a, const lp_trace *b)
{
    uint8_t x[32], y[32];
    FIX_OK(lp_trace_set_digest(a, x, &fix_err));
    FIX_OK(lp_trace_set_digest(b, y, &fix_err));
    assert_memory_equal(x, y, 32);
    FIX_OK(lp_trace_structure_key(a, x, &fix_err));
    FIX_OK(lp_trace_structure_key(b, y, &fix_err));
    assert_memory_equal(x, y, 32);
}

static inline void fix_same_provenance(const lp_trace *a, uint32_t i, const lp_trace *b, uint32_t j)
{
    const lp_provenance *p = lp_trace_provenance(a, i), *q = lp_trace_provenance(b, j);
    assert_int_equal(p != NULL, q != NULL);
    if (p == NULL)
        return;
    assert_string_equal(p->file, q->file);
    assert_string_equal(p->chain, q->chain);
    assert_int_equal(p->line, q->line);
    assert_int_equal(p->flags, q->flags);
}

static inline void fix_same_catalogue(const lp_checkpoint *a, const lp_checkpoint *b)
{
    assert_int_equal(lp_checkpoint_count(a), lp_checkpoint_count(b));
    assert_int_equal(lp_checkpoint_file_count(a), lp_checkpoint_file_count(b));
    for (int32_t f = 0; f < lp_checkpoint_file_count(a); f++) {
        const lp_checkpoint_file *p = lp_checkpoint_file_at(a, f), *q = lp_checkpoint_file_at(b, f);
        assert_string_equal(p->path, q->path);
        assert_int_equal(p->size_bytes, q->size_bytes);
        assert_int_equal(p->sha256 != NULL, q->sha256 != NULL);
        if (p->sha256 != NULL)
            assert_string_equal(p->sha256, q->sha256);
    }
    for (int64_t i = 0; i < lp_checkpoint_count(a); i++) {
        const lp_checkpoint_tensor *p = lp_checkpoint_at(a, i), *q = lp_checkpoint_at(b, i);
        assert_string_equal(p->name, q->name);
        assert_int_equal(p->dtype, q->dtype);
        assert_int_equal(p->ndim, q->ndim);
        for (int32_t d = 0; d < p->ndim; d++)
            assert_int_equal(p->shape[d], q->shape[d]);
        assert_int_equal(p->file, q->file);
        assert_int_equal(p->file_off, q->file_off);
        assert_int_equal(p->bytes, q->bytes);
    }
}

static inline void fix_same(const lp_trace *a, const lp_trace *b, bool with_provenance)
{
    const lp_trace_header *h = lp_trace_header_of(a), *k = lp_trace_header_of(b);
    assert_string_equal(h->loader, k->loader);
    assert_string_equal(h->loader_version, k->loader_version);
    assert_string_equal(h->configuration, k->configuration);
    assert_string_equal(h->target, k->target);
    assert_int_equal(h->layout.pp, k->layout.pp);
    assert_int_equal(h->layout.dp, k->layout.dp);
    assert_int_equal(h->layout.tp, k->layout.tp);
    assert_int_equal(h->layout.expert_parallel, k->layout.expert_parallel);
    fix_same_catalogue(lp_trace_checkpoint(a), lp_trace_checkpoint(b));
    fix_same_digests(a, b);
    assert_int_equal(lp_trace_scope_count(a), lp_trace_scope_count(b));
    for (int32_t s = 0; s < lp_trace_scope_count(a); s++) {
        const lp_rows *x, *y;
        FIX_OK(lp_trace_rows(a, s, &x, &fix_err));
        FIX_OK(lp_trace_rows(b, s, &y, &fix_err));
        assert_memory_equal(x->digest, y->digest, 32);
        assert_int_equal(x->ndest, y->ndest);
        assert_int_equal(x->nrecord, y->nrecord);
        assert_int_equal(x->nderive, y->nderive);
        assert_int_equal(x->nrefusal, y->nrefusal);
        for (uint32_t i = 0; i < x->nrecord; i++) {
            const lp_record *p = &x->record[i], *q = &y->record[i];
            assert_int_equal(p->name, q->name);
            assert_int_equal(p->dest, q->dest);
            assert_int_equal(p->kind, q->kind);
            assert_int_equal(p->seq, q->seq);
            assert_int_equal(p->src_off, q->src_off);
            assert_int_equal(p->dst_off, q->dst_off);
            assert_int_equal(p->fill_bits, q->fill_bits);
            assert_true(lp_map_equal(p->map, q->map));
            if (with_provenance)
                fix_same_provenance(a, p->provenance, b, q->provenance);
        }
        for (uint32_t i = 0; with_provenance && i < x->nderive; i++)
            fix_same_provenance(a, x->derive[i].provenance, b, y->derive[i].provenance);
        for (uint32_t i = 0; with_provenance && i < x->nrefusal; i++)
            fix_same_provenance(a, x->refusal[i].provenance, b, y->refusal[i].provenance);
    }
}

#endif
