/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random derives for tests of device tables: inputs of several dtypes, dense and strided, chains of every operation,
 * reductions over groups, checks; results dense and strided. All regions lie in one block of memory, which the test
 * places where it likes; what must come out is the evaluator's affair.
 */
#ifndef LOADPLAN_DERIVE_PROGRAMS_H
#define LOADPLAN_DERIVE_PROGRAMS_H

#include "replayer/derive_eval.h"
#include "replayer/exec.h"
#include "tests/random_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROGRAM_NODES = 20, PROGRAM_INPUTS = 3, PROGRAM_REGION = 1 << 16, PROGRAM_RESULT = 1 << 15 };

typedef struct derive_program {
    lp_derive derive;
    lp_derive_input input[PROGRAM_INPUTS];
    lp_node node[PROGRAM_NODES];
    int64_t region_off[PROGRAM_INPUTS]; /* where each input's region (or staged bytes) begins in the block */
} derive_program;

/* Numbers of every kind: ordinary ones mostly, zeros, infinities, NaN, subnormals. */
static inline void program_fill(uint64_t *state, uint8_t *block, int64_t bytes)
{
    static const uint32_t odd[] = {0, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00001u, 1, 0x807fffffu};
    for (int64_t at = 0; at + 4 <= bytes; at += 4) {
        const float value = (float)(random_below(state, 20001) - 10000) / 700.0f;
        memcpy(block + at, &value, 4);
        if (random_below(state, 40) == 0)
            memcpy(block + at, &odd[random_below(state, 7)], 4);
    }
}

/* Rows and columns of `dtype` in the region of input n, gathered into a dense array. */
static inline void program_input(derive_program *p, uint64_t *state, lp_dtype dtype, int64_t count)
{
    const uint32_t n = p->derive.ninput++;
    const int64_t e = lp_dtype_bits(dtype) / 8, rows = count % 4 == 0 && random_below(state, 2) == 0 ? 4 : 1;
    const int64_t shape[2] = {rows, count / rows};
    int64_t stride[2] = {shape[1] * e, e};
    lp_view from, to;
    lp_error err;
    p->input[n] = (lp_derive_input){.staged = random_below(state, 3) == 0, .dtype = dtype, .count = count};
    p->region_off[n] = (int64_t)n * 20000 + 16 * random_below(state, 8);
    if (!p->input[n].staged && random_below(state, 2) == 0) {
        stride[1] = e * (1 + random_below(state, 2));
        stride[0] = stride[1] * shape[1] + e * random_below(state, 3);
    }
    const int64_t off = p->input[n].staged ? 0 : e * random_below(state, 3);
    assert_int_equal(lp_view_strided(&from, dtype, 2, shape, stride, off, &err), LP_OK);
    assert_int_equal(lp_view_contiguous(&to, dtype, 2, shape, &err), LP_OK);
    assert_int_equal(lp_map_copy(&p->input[n].map, &to, count * e, &from, 19000, NULL, &err), LP_OK);
    p->node[p->derive.nnode++] = (lp_node){.op = LP_OP_INPUT, .dtype = (uint16_t)dtype, .arg = {n}, .count = count};
}

static inline uint32_t program_node(derive_program *p, lp_op op, lp_dtype dtype, uint32_t a, uint32_t b, uint32_t c,
                                    uint64_t bits, int64_t count)
{
    p->node[p->derive.nnode] =
        (lp_node){.op = (uint16_t)op, .dtype = (uint16_t)dtype, .arg = {a, b, c}, .bits = bits, .count = count};
    return p->derive.nnode++;
}

/* An F32 node: an input, cast where it is of another dtype, or a constant. */
static inline uint32_t program_leaf(derive_program *p, uint64_t *state, int64_t count)
{
    static const lp_dtype dtype[] = {LP_F32, LP_F32, LP_BF16, LP_F8_E4M3, LP_F8_E8M0, LP_I32, LP_F32};
    if (p->derive.ninput == PROGRAM_INPUTS || (p->derive.ninput > 0 && random_below(state, 4) == 0))
        return program_node(p, LP_OP_CONST, LP_F32, 0, 0, 0, 0x3f000000u + (uint32_t)random_below(state, 1 << 24), 1);
    const lp_dtype of = dtype[random_below(state, 7)];
    program_input(p, state, of, count);
    const uint32_t at = p->derive.nnode - 1;
    return of == LP_F32 ? at : program_node(p, LP_OP_CAST, LP_F32, at, 0, 0, 0, count);
}

/* The result goes to `dest`; checks have none. */
static inline void make_program(derive_program *p, uint64_t *state)
{
    static const lp_op ops[] = {LP_OP_ADD,     LP_OP_SUB,        LP_OP_MUL,        LP_OP_DIV,
                                LP_OP_NEG,     LP_OP_RECIPROCAL, LP_OP_SQRT,       LP_OP_MAXIMUM,
                                LP_OP_ABS,     LP_OP_WHERE,      LP_OP_OR_IF_ZERO, LP_OP_GREATER,
                                LP_OP_MINIMUM, LP_OP_EQUAL,      LP_OP_EXP,        LP_OP_LOG};
    static const lp_dtype results[] = {LP_F32, LP_F32, LP_BF16, LP_F8_E4M3, LP_F8_E8M0, LP_F16};
    int64_t count = random_below(state, 4) == 0 ? 1 : 1 + random_below(state, 600);
    lp_error err;
    memset(p, 0, sizeof *p);
    p->derive = (lp_derive){.dest = 0, .error_text = "", .provenance = LP_NONE};
    uint32_t last = program_leaf(p, state, count);
    while (p->derive.nnode < PROGRAM_NODES - 8) {
        const int64_t now = p->node[last].count;
        if (random_below(state, 5) == 0 && now > 1) { /* a reduction, over everything or over groups */
            const int64_t group = now % 3 == 0 && random_below(state, 2) == 0 ? now / 3 : now;
            const lp_op op = (lp_op)(LP_OP_MAX + random_below(state, 3));
            last = program_node(p, op, LP_F32, last, 0, 0, group == now ? 0 : (uint64_t)group, now / group);
            continue;
        }
        const lp_op op = ops[random_below(state, 16)];
        const uint32_t other = random_below(state, 2) == 0 ? program_leaf(p, state, now) : last;
        const uint32_t third = lp_op_arity(op) > 2 ? last : 0;
        const int64_t wide = p->node[other].count > now ? p->node[other].count : now;
        last = program_node(p, op, LP_F32, last, lp_op_arity(op) > 1 ? other : 0, third, 0,
                            lp_op_arity(op) > 1 ? wide : now);
        if (random_below(state, 5) == 0)
            break;
    }
    count = p->node[last].count;
    p->derive.node = p->node;
    p->derive.input = p->input;
    if (random_below(state, 5) == 0) {
        const uint32_t other = random_below(state, 2) == 0 ? program_leaf(p, state, count) : last;
        program_node(p, LP_OP_ALL_CLOSE, LP_DTYPE_NONE, last, other, 0,
                     random_below(state, 2) == 0 ? 0x3727c5acu : 0x41200000u, 0);
        p->derive.dest = LP_NONE;
        return;
    }
    const lp_dtype to = results[random_below(state, 6)];
    if (to != LP_F32)
        program_node(p, LP_OP_CAST, to, last, 0, 0, 0, count);
    const int64_t e = lp_dtype_bits(to) / 8, stride = e * (1 + random_below(state, 3)),
                  off = e * random_below(state, 4);
    lp_view from, at;
    assert_int_equal(lp_view_contiguous(&from, to, 1, &count, &err), LP_OK);
    assert_int_equal(lp_view_strided(&at, to, 1, &count, &stride, off, &err), LP_OK);
    assert_int_equal(lp_map_copy(&p->derive.map, &at, PROGRAM_RESULT, &from, count * e, NULL, &err), LP_OK);
}

static inline void free_program(derive_program *p)
{
    for (uint32_t i = 0; i < p->derive.ninput; i++)
        lp_map_free(p->input[i].map, NULL);
    lp_map_free(p->derive.map, NULL);
}

/* By the evaluator: the result goes on top of `result`, or the outcome to *check. */
static inline void evaluate_program(const derive_program *p, const uint8_t *block, uint8_t *result,
                                    lp_derive_check *check)
{
    void *input[PROGRAM_INPUTS] = {NULL}, *value;
    lp_error err;
    for (uint32_t i = 0; i < p->derive.ninput; i++) {
        const lp_derive_input *in = &p->input[i];
        const size_t bytes = (size_t)(in->count * lp_dtype_bits(in->dtype) / 8);
        input[i] = calloc(1, bytes);
        assert_non_null(input[i]);
        if (in->staged)
            memcpy(input[i], block + p->region_off[i], bytes);
        else
            lp_exec_map(in->map, input[i], block + p->region_off[i]);
    }
    assert_int_equal(lp_derive_evaluate(&p->derive, (const void *const *)input, NULL, &value, check, &err), LP_OK);
    if (p->derive.dest != LP_NONE)
        lp_exec_map(p->derive.map, result, value);
    free(value);
    for (uint32_t i = 0; i < p->derive.ninput; i++)
        free(input[i]);
}

#endif
