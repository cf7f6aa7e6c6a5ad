/* SPDX-License-Identifier: Apache-2.0 */
/* The trace whose digests docs/identities.md publishes, and traces in which one thing of it is another. */
#ifndef LOADPLAN_VECTOR_TRACE_H
#define LOADPLAN_VECTOR_TRACE_H

#include "model_testing.h"

typedef struct variant { /* each member changes one thing about the vector's trace; {0} is the vector */
    bool other_dest_name, other_group, other_layout_version, other_source, other_offset, other_fill, other_constant,
        group_by_number, other_refusal, refusal_reason, other_place, other_target, other_shape, reversed_calls, check;
} variant;

static inline void add_named_dest(lp_trace *t, const char *name, lp_dtype dtype, int32_t ndim, int64_t extent,
                                  const variant *v)
{
    const int64_t elem = lp_dtype_bits(dtype) / 8;
    lp_destination dest = {.name = name,
                           .dtype = dtype,
                           .ndim = ndim,
                           .shape = &extent,
                           .stride = &elem,
                           .storage_bytes = ndim == 0 ? elem : extent * elem,
                           .group = v->other_group ? "layers.0" : "root",
                           .slot_dim = -1};
    if (ndim == 0) {
        dest.layout = "demo";
        dest.layout_version = v->other_layout_version ? 4 : 3;
        dest.flags = LP_DEST_HAS_DUMMY;
        dest.dummy_bits = 0x3f800000;
    }
    assert_ok(lp_trace_add_destination(t, &dest, NULL, ERR));
}

static inline void add_vector_records(lp_trace *t, const variant *v, bool first_half, uint32_t x, uint32_t y,
                                      uint32_t place)
{
    lp_view src, dst;
    const lp_map *map;
    const int64_t four = 4, two = 2;
    if (first_half) {
        assert_ok(lp_view_contiguous(&src, LP_U8, 1, &four, ERR));
        dst = src;
        if (!v->other_source)
            assert_ok(lp_view_slice(&src, 0, LP_SLICE_END, LP_SLICE_END, -1, ERR));
        assert_ok(lp_map_copy(&map, &dst, 4, &src, 4, NULL, ERR));
        assert_ok(lp_trace_add_record(t, &(lp_record){.name = 0, .dest = x, .map = map, .provenance = place}, ERR));
        lp_map_free(map, NULL);
        add_fill(t, LP_NAME_BEGIN, x, v->other_offset ? 1 : 0, v->other_offset ? 6 : 8, v->other_fill ? 6 : 5);
        return;
    }
    assert_ok(lp_view_contiguous(&src, LP_BF16, 1, &two, ERR));
    assert_ok(lp_view_contiguous(&dst, LP_F32, 1, &two, ERR));
    assert_ok(lp_map_copy(&map, &dst, 8, &src, 4, NULL, ERR));
    assert_ok(lp_trace_add_record(
        t,
        &(lp_record){
            .name = 1, .dest = y, .src_dtype = LP_BF16, .dst_dtype = LP_F32, .map = map, .provenance = LP_NONE},
        ERR));
    lp_map_free(map, NULL);
}

static inline void add_vector_derive(lp_trace *t, const variant *v, uint32_t y, uint32_t z)
{
    const lp_map *in = byte_map(0, 0, 8, 1, 0, 0), *out = byte_map(0, 0, 4, 1, 0, 0);
    const lp_derive_input input = {.index = y, .dtype = LP_F32, .count = 2, .map = in};
    const lp_node node[] = {
        {.op = LP_OP_INPUT, .dtype = LP_F32, .count = 2},
        {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .bits = v->group_by_number ? 2 : 0, .count = 1},
        {.op = LP_OP_CONST, .dtype = LP_F32, .bits = v->other_constant ? 0x40000000 : 0x3f800000, .count = 1},
        {.op = LP_OP_OR_IF_ZERO, .dtype = LP_F32, .arg = {1, 2}, .count = 1}};
    lp_derive derive = {.dest = z,
                        .nnode = 4,
                        .ninput = 1,
                        .node = node,
                        .input = &input,
                        .map = out,
                        .error_text = NULL,
                        .provenance = LP_NONE};
    assert_ok(lp_trace_add_derive(t, &derive, ERR));
    if (v->check) {
        const lp_node close[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = 2},
                                 {.op = LP_OP_ALL_CLOSE, .arg = {0, 0}, .bits = 0x3727c5ac}};
        derive.dest = LP_NONE;
        derive.nnode = 2;
        derive.node = close;
        derive.map = NULL;
        derive.error_text = "differ at {index}";
        assert_ok(lp_trace_add_derive(t, &derive, ERR));
    }
    lp_map_free(in, NULL);
    lp_map_free(out, NULL);
}

static inline lp_trace *vector_trace(const variant *v)
{
    lp_checkpoint *c;
    lp_trace *t;
    const int64_t extent[] = {4, v->other_shape ? 3 : 2, 1};
    const lp_dtype dtype[] = {LP_U8, LP_BF16, LP_U8};
    const char *const name[] = {"a", "b", "c"};
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int i = 2; i >= 0; i--)
        assert_ok(lp_checkpoint_add(
            c,
            &(lp_checkpoint_tensor){
                .name = name[i], .dtype = dtype[i], .ndim = 1, .shape = &extent[i], .file = -1, .file_off = -1},
            ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    assert_ok(lp_trace_new(&t, c,
                           &(lp_trace_header){.loader = "vector",
                                              .loader_version = "1",
                                              .configuration = "k=v",
                                              .target = v->other_target ? "sm100" : "sm90"},
                           NULL, ERR));
    lp_checkpoint_close(c);
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    add_named_dest(t, "z", LP_F32, 0, 0, v);
    add_named_dest(t, v->other_dest_name ? "w" : "x", LP_U8, 1, 8, v);
    add_named_dest(t, "y", LP_F32, 1, 2, v);
    uint32_t place = LP_NONE;
    if (v->other_place)
        assert_ok(lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.c", .line = 3}, &place, ERR));
    add_vector_records(t, v, !v->reversed_calls, 1, 2, place);
    add_vector_records(t, v, v->reversed_calls, 1, 2, place);
    add_vector_derive(t, v, 2, 0);
    assert_ok(lp_trace_add_refusal(t,
                                   &(lp_refusal){.name = 2,
                                                 .dest = v->other_refusal ? 0 : LP_NONE,
                                                 .operation = v->refusal_reason ? "aten.max" : "aten.item",
                                                 .reason = "why",
                                                 .provenance = place},
                                   ERR));
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

#endif
