/* SPDX-License-Identifier: Apache-2.0 */
/* The trace that others are compared with, its variants, and comparing them while each allocation fails once. */
#ifndef LOADPLAN_DIFF_TESTING_H
#define LOADPLAN_DIFF_TESTING_H

#include "findings_testing.h"

#include "traces/diff_private.h"

/* What a variant does otherwise. */
typedef struct variant {
    bool swap_gate_up;      /* gate and up exchange their halves */
    bool cast_norm;         /* the norm goes into F32 */
    float constant;         /* of the derive; 0: 1.0 */
    float tolerance;        /* of the check; 0: 1e-5 */
    bool wide_out;          /* l2_scale has two elements */
    const char *layout;     /* of w13 */
    int32_t layout_version; /* likewise */
    int64_t move;           /* l2_scale starts here in a pool */
    bool refuse_scales;     /* every w2_input_scale is a host read */
    bool without_extra, more_extra;
    bool overlap, overlap_reversed;
    bool pad;          /* a fill of the tail that was left alone */
    bool rename_dests; /* "model." in front */
    bool read_more;    /* the norm reads all of its tensor */
    bool stage;        /* the derive stages the checkpoint's scales instead */
    const char *group;
    int ranks;          /* 0: 1 */
    const char *prefix; /* of checkpoint names */
} variant;

enum { LAYERS = 3, EXPERTS = 4, HALF = 32 };

static inline const char *format_name(const char *format, int layer, int expert)
{
    static char ring[8][96];
    static int next;
    char *buffer = ring[next++ % 8];
    snprintf(buffer, sizeof ring[0], "layers.%d.%s", layer, format);
    if (expert >= 0)
        snprintf(buffer, sizeof ring[0], "layers.%d.experts.%d.%s", layer, expert, format);
    return buffer;
}

static inline const char *prefixed(const variant *v, const char *name)
{
    static char ring[8][128];
    static int next;
    char *buffer = ring[next++ % 8];
    snprintf(buffer, sizeof ring[0], "%s%s", v->prefix != NULL ? v->prefix : "", name);
    return buffer;
}

static inline void add_tensor(lp_checkpoint *c, const char *name, lp_dtype dtype, int64_t count)
{
    assert_ok(lp_checkpoint_add(
        c,
        &(lp_checkpoint_tensor){.name = name, .dtype = dtype, .ndim = 1, .shape = &count, .file = -1, .file_off = -1},
        ERR));
}

static inline lp_checkpoint *make_checkpoint(const variant *v)
{
    lp_checkpoint *c;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int l = 0; l < LAYERS; l++) {
        for (int e = 0; e < EXPERTS; e++) {
            add_tensor(c, prefixed(v, format_name("gate", l, e)), LP_U8, HALF);
            add_tensor(c, prefixed(v, format_name("up", l, e)), LP_U8, HALF);
            add_tensor(c, prefixed(v, format_name("w2_input_scale", l, e)), LP_F32, 1);
        }
        add_tensor(c, prefixed(v, format_name("norm", l, -1)), LP_BF16, 16);
    }
    add_tensor(c, prefixed(v, "extra"), LP_U8, 16);
    assert_ok(lp_checkpoint_seal(c, ERR));
    return c;
}

static inline uint32_t declare(lp_trace *t, const variant *v, const char *name, lp_dtype dtype, int64_t count)
{
    char text[128];
    snprintf(text, sizeof text, "%s%s", v->rename_dests ? "model." : "", name);
    return add_dest_with(t,
                         (lp_destination){.name = text, .dtype = dtype, .ndim = 1, .shape = &count, .group = v->group});
}

static inline void add_layer(lp_trace *t, const variant *v, int l)
{
    const bool odd = v->layout != NULL && l == 1;
    const int64_t fused = 2 * HALF * EXPERTS;
    char name[128];
    snprintf(name, sizeof name, "%s%s", v->rename_dests ? "model." : "", format_name("w13", l, -1));
    const uint32_t w13 = add_dest_with(t, (lp_destination){.name = name,
                                                           .dtype = LP_U8,
                                                           .ndim = 1,
                                                           .shape = &fused,
                                                           .layout = odd ? v->layout : "rows",
                                                           .layout_version = odd ? v->layout_version : 1,
                                                           .group = v->group});
    const uint32_t scales = declare(t, v, format_name("scales", l, -1), LP_F32, EXPERTS);
    const uint32_t norm = declare(t, v, format_name("norm", l, -1), v->cast_norm ? LP_F32 : LP_BF16, 8);
    for (int e = 0; e < EXPERTS; e++) {
        const int64_t at = 2 * HALF * e;
        add_copy(t, prefixed(v, format_name("gate", l, e)), w13, 0, at + (v->swap_gate_up ? HALF : 0), HALF);
        add_copy(t, prefixed(v, format_name("up", l, e)), w13, 0, at + (v->swap_gate_up ? 0 : HALF), HALF);
        const char *scale = prefixed(v, format_name("w2_input_scale", l, e));
        if (v->refuse_scales)
            add_refusal(t, scale, scales, NULL, place_at(t, "model_loader/experts.py", 412, 0));
        else
            add_copy(t, scale, scales, 0, 4 * e, 4);
    }
    const char *norm_name = prefixed(v, format_name("norm", l, -1));
    if (v->cast_norm) {
        const lp_box box = {.run = 8};
        const lp_map *map;
        assert_ok(lp_map_from_boxes(&map, 2, 4, 1, &box, NULL, ERR));
        assert_ok(lp_trace_add_record(t,
                                      &(lp_record){.name = name_index(t, norm_name),
                                                   .dest = norm,
                                                   .src_dtype = LP_BF16,
                                                   .dst_dtype = LP_F32,
                                                   .map = map,
                                                   .provenance = LP_NONE},
                                      ERR));
        lp_map_free(map, NULL);
    } else if (v->read_more) {
        add_map(t, norm_name, norm, byte_map(0, 0, 2, 8, 4, 2), LP_NONE);
    } else {
        add_map(t, norm_name, norm, byte_map(0, 0, 2, 8, 0, 2), LP_NONE); /* one element, repeated */
    }
    const char *out_name = format_name("l2_scale", l, -1);
    const int64_t count = v->wide_out ? 2 : 1;
    snprintf(name, sizeof name, "%s%s", v->rename_dests ? "model." : "", out_name);
    const uint32_t out = add_dest_with(t, (lp_destination){.name = name,
                                                           .dtype = LP_F32,
                                                           .ndim = 1,
                                                           .shape = &count,
                                                           .group = v->group,
                                                           .storage = v->move > 0 ? "pool" : NULL,
                                                           .storage_bytes = v->move > 0 ? 4096 : 0,
                                                           .offset = v->move > 0 ? v->move + 16 * l : 0});
    const float constant = v->constant > 0 ? v->constant : 1.0f;
    if (v->stage)
        add_max_derive(t, out, true, name_index(t, format_name("w2_input_scale", l, 0)), 1, constant);
    else
        add_max_derive(t, out, false, scales, EXPERTS, constant);
    add_close_check(t, scales, EXPERTS, v->tolerance > 0 ? v->tolerance : 1e-5f);
}

static inline lp_trace *make(variant v)
{
    lp_trace *t;
    lp_checkpoint *c = make_checkpoint(&v);
    const int ranks = v.ranks > 0 ? v.ranks : 1;
    const lp_trace_header header = {.loader = "test", .layout = {.dp = 4}};
    assert_ok(lp_trace_new(&t, c, &header, NULL, ERR));
    lp_checkpoint_close(c);
    for (int rank = 0; rank < ranks; rank++) {
        assert_ok(lp_trace_begin_scope(t, &(lp_scope){.dp = 4, .dp_rank = rank}, ERR));
        for (int l = 0; l < LAYERS; l++)
            add_layer(t, &v, l);
        if (!v.without_extra) {
            const uint32_t extra = declare(t, &v, "extra", LP_U8, 24);
            const char *norm = prefixed(&v, "layers.0.norm"), *name = prefixed(&v, "extra");
            if (v.overlap_reversed)
                add_copy(t, norm, extra, 0, 8, 8);
            add_copy(t, name, extra, 0, 0, 16);
            if (v.overlap)
                add_copy(t, norm, extra, 0, 8, 8);
            if (v.pad)
                add_fill(t, LP_NAME_BEGIN, extra, 16, 8, 0);
        }
        if (v.more_extra)
            declare(t, &v, "more", LP_U8, 4);
    }
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

static inline lp_status diff_once(void *context, lp_error *err)
{
    lp_trace *const *t = context;
    lp_findings *f = NULL;
    const lp_status status = lp_diff(&f, t[0], t[1], err);
    assert_true((status == LP_OK) == (f != NULL));
    lp_findings_free(f);
    return status;
}

/* Whatever is found, in either direction, no allocation on the way to it is relied on. */
static inline void diff_without_memory(lp_trace *a, lp_trace *b)
{
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize, .exact = true};
    lp_trace *t[] = {a, b, a};
    for (int i = 0; i < 2; i++) {
        const lp_alloc *usual = t[i + 1]->platform.alloc;
        t[i + 1]->platform.alloc = &alloc;
        assert_true(fail_every_allocation(&faults, diff_once, &t[i]) > 1);
        t[i + 1]->platform.alloc = usual;
    }
}

static inline lp_findings *diff(variant base, variant changed)
{
    lp_trace *a = make(base), *b = make(changed);
    lp_findings *f;
    diff_without_memory(a, b);
    assert_ok(lp_diff(&f, a, b, ERR));
    lp_trace_close(a);
    lp_trace_close(b);
    return f; /* strings of findings are their own */
}

#endif
