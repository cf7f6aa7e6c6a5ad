/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter of derive tables: one source for the host, where one thread does everything, and for a thread block.
 * Every thread runs it with its number and the number of threads; barriers are LP_DERIVE_BARRIER(), casts
 * LP_DERIVE_CAST(bits, from, to), both defined by who includes this.
 */
#ifndef LOADPLAN_DEVICE_DERIVE_RUN_H
#define LOADPLAN_DEVICE_DERIVE_RUN_H

#include "replayer/derive_ops.h"
#include "replayer/device_derive.h"

#ifdef __CUDACC__
#define LP_DERIVE_FUNCTION __device__ static inline
#else
#define LP_DERIVE_FUNCTION static inline
#endif

/* A thread of those that share a job. */
typedef struct lp_derive_lane {
    int64_t index, count;
} lp_derive_lane;

LP_DERIVE_FUNCTION uint64_t lp_derive_load(uint64_t address, unsigned bytes)
{
    switch (bytes) {
    case 1:
        return *(const uint8_t *)(uintptr_t)address;
    case 2:
        return *(const uint16_t *)(uintptr_t)address;
    case 4:
        return *(const uint32_t *)(uintptr_t)address;
    default:
        return *(const uint64_t *)(uintptr_t)address;
    }
}

LP_DERIVE_FUNCTION void lp_derive_store(uint64_t address, unsigned bytes, uint64_t bits)
{
    switch (bytes) {
    case 1:
        *(uint8_t *)(uintptr_t)address = (uint8_t)bits;
        return;
    case 2:
        *(uint16_t *)(uintptr_t)address = (uint16_t)bits;
        return;
    case 4:
        *(uint32_t *)(uintptr_t)address = (uint32_t)bits;
        return;
    default:
        *(uint64_t *)(uintptr_t)address = bits;
    }
}

LP_DERIVE_FUNCTION bool lp_derive_is_reduction(unsigned op)
{
    return op == LP_OP_MAX || op == LP_OP_MIN || op == LP_OP_SUM;
}

/* ---- moves ---- */

LP_DERIVE_FUNCTION void lp_derive_move_words(const lp_derive_table *t, const lp_derive_move *m, uint64_t near_base,
                                             lp_derive_lane lane)
{
    const uint64_t source = m->from + (m->from_scratch ? near_base : 0),
                   target = m->to + (m->to_scratch ? near_base : 0);
    for (int64_t i = lane.index; i < m->words; i += lane.count) {
        int64_t left = i, from = 0, to = 0;
        for (uint32_t k = 0; k < m->rank; k++) {
            const lp_mode *mode = &t->mode[m->first_mode + k];
            const int64_t step = left % mode->extent;
            left /= mode->extent;
            from += step * mode->src_stride;
            to += step * mode->dst_stride;
        }
        lp_derive_store(target + (uint64_t)to, m->word, lp_derive_load(source + (uint64_t)from, m->word));
    }
}

/* ---- one element ---- */

/* What an elementwise code makes of operands given as bits. */
LP_DERIVE_FUNCTION uint64_t lp_derive_element(const lp_derive_code *c, uint64_t a, uint64_t b, uint64_t d)
{
    if (c->op == LP_OP_CAST)
        return c->from == LP_DTYPE_NONE ? a : LP_DERIVE_CAST(a, c->from, c->dtype);
    return lp_f32_bits(
        lp_op_compute(c->op, lp_f32_of_bits((uint32_t)a), lp_f32_of_bits((uint32_t)b), lp_f32_of_bits((uint32_t)d)));
}

/* Operand n of code c at element i, from memory; one element is broadcast. */
LP_DERIVE_FUNCTION uint64_t lp_derive_operand(const lp_derive_code *code, const lp_derive_code *c, int n, int64_t i)
{
    const lp_derive_code *from = &code[c->arg[n]];
    return lp_derive_load(from->value + (uint64_t)(from->count == 1 ? 0 : i) * from->element, from->element);
}

LP_DERIVE_FUNCTION int lp_derive_arity(unsigned op)
{
    switch (op) {
    case LP_OP_INPUT:
    case LP_OP_CONST:
        return 0;
    case LP_OP_WHERE:
        return 3;
    case LP_OP_CAST:
    case LP_OP_NEG:
    case LP_OP_RECIPROCAL:
    case LP_OP_SQRT:
    case LP_OP_ABS:
    case LP_OP_EXP:
    case LP_OP_LOG:
        return 1;
    default:
        return 2;
    }
}

/* ---- spread jobs ---- */

/* Every thread evaluates all codes for its elements, values in registers. */
LP_DERIVE_FUNCTION void lp_derive_run_spread(const lp_derive_table *t, const lp_derive_job *job, lp_derive_lane lane)
{
    const lp_derive_code *code = &t->code[job->first_code], *last = &code[job->codes - 1];
    uint64_t value[LP_DERIVE_SPREAD_NODES] = {0};
    for (int64_t i = lane.index; i < last->count; i += lane.count) {
        for (uint32_t n = 0; n < job->codes; n++) {
            const lp_derive_code *c = &code[n];
            const int arity = lp_derive_arity(c->op);
            if (c->op == LP_OP_INPUT)
                value[n] = lp_derive_load(c->value + (uint64_t)(c->count == 1 ? 0 : i) * c->element, c->element);
            else if (c->op == LP_OP_CONST)
                value[n] = c->bits;
            else
                value[n] = lp_derive_element(c, value[c->arg[0]], arity > 1 ? value[c->arg[1]] : 0,
                                             arity > 2 ? value[c->arg[2]] : 0);
        }
        lp_derive_store(job->result + (uint64_t)i * last->element, last->element, value[job->codes - 1]);
    }
}

/* ---- jobs alone ---- */

LP_DERIVE_FUNCTION float lp_derive_float(uint64_t address, int64_t i)
{
    return lp_f32_of_bits((uint32_t)lp_derive_load(address + (uint64_t)i * 4, 4));
}

/* Level by level, all groups at once: each level reads one array and writes the other. */
LP_DERIVE_FUNCTION void lp_derive_reduce(const lp_derive_code *code, const lp_derive_code *c, lp_derive_lane lane)
{
    const int64_t total = code[c->arg[0]].count;
    uint64_t from = code[c->arg[0]].value, to = c->work;
    for (int64_t size = c->group; size > 1; size = size / 2 + size % 2) {
        const int64_t half = size / 2 + size % 2;
        for (int64_t i = lane.index; i < c->count * half; i += lane.count) {
            const int64_t at = i / half * c->group, k = i % half;
            float x = lp_derive_float(from, at + 2 * k);
            if (2 * k + 1 < size)
                x = lp_op_combine(c->op, x, lp_derive_float(from, at + 2 * k + 1));
            lp_derive_store(to + (uint64_t)(at + k) * 4, 4, lp_f32_bits(x));
        }
        LP_DERIVE_BARRIER();
        from = to;
        to = to == c->work ? c->work + (uint64_t)total * 4 : c->work;
    }
    for (int64_t i = lane.index; i < c->count; i += lane.count)
        lp_derive_store(c->value + (uint64_t)i * 4, 4,
                        lp_f32_bits(lp_f32_one_nan(lp_derive_float(from, i * c->group))));
}

/* The first failing element that this thread finds; elements beyond `first` need no look. INT64_MAX: none. */
LP_DERIVE_FUNCTION int64_t lp_derive_first_far(const lp_derive_code *code, const lp_derive_code *c, lp_derive_lane lane)
{
    const int64_t a = code[c->arg[0]].count, b = code[c->arg[1]].count, count = a > b ? a : b;
    const float tolerance = lp_f32_of_bits((uint32_t)c->bits);
    for (int64_t i = lane.index; i < count; i += lane.count)
        if (!lp_op_is_close(lp_f32_of_bits((uint32_t)lp_derive_operand(code, c, 0, i)),
                            lp_f32_of_bits((uint32_t)lp_derive_operand(code, c, 1, i)), tolerance))
            return i;
    return INT64_MAX;
}

LP_DERIVE_FUNCTION void lp_derive_note(const lp_derive_code *code, const lp_derive_code *c, int64_t first,
                                       lp_derive_outcome *outcome)
{
    const bool is_far = first != INT64_MAX;
    outcome->index = is_far ? first : -1;
    outcome->a = is_far ? lp_f32_of_bits((uint32_t)lp_derive_operand(code, c, 0, first)) : 0.0f;
    outcome->b = is_far ? lp_f32_of_bits((uint32_t)lp_derive_operand(code, c, 1, first)) : 0.0f;
}

/* Brings a near job's codes and its scratch, zeroed, to `code` and `near_base`, which all threads share. */
LP_DERIVE_FUNCTION void lp_derive_come_near(const lp_derive_table *t, const lp_derive_job *job, lp_derive_code *code,
                                            uint64_t near_base, lp_derive_lane lane)
{
    for (int64_t i = lane.index; i < job->near_bytes / 8; i += lane.count)
        lp_derive_store(near_base + (uint64_t)i * 8, 8, 0);
    for (int64_t n = lane.index; n < job->codes; n += lane.count) {
        code[n] = t->code[job->first_code + n];
        code[n].value += code[n].in_scratch ? near_base : 0;
        code[n].work += near_base;
    }
    LP_DERIVE_BARRIER();
}

/* Everything of a job but checks, which end in a comparison over all threads. near_base: 0 where it is not near. */
LP_DERIVE_FUNCTION void lp_derive_run_codes(const lp_derive_table *t, const lp_derive_job *job,
                                            const lp_derive_code *code, uint64_t near_base, lp_derive_lane lane)
{
    for (uint32_t g = 0; g < job->gathers; g++)
        lp_derive_move_words(t, &t->move[job->first_gather + g], near_base, lane);
    LP_DERIVE_BARRIER();
    for (uint32_t n = 0; n < job->codes; n++) {
        const lp_derive_code *c = &code[n];
        if (c->op == LP_OP_INPUT || c->op == LP_OP_ALL_CLOSE)
            continue;
        if (lp_derive_is_reduction(c->op)) {
            lp_derive_reduce(code, c, lane);
        } else {
            const int arity = lp_derive_arity(c->op);
            for (int64_t i = lane.index; i < c->count; i += lane.count)
                lp_derive_store(c->value + (uint64_t)i * c->element, c->element,
                                c->op == LP_OP_CONST
                                    ? c->bits
                                    : lp_derive_element(c, lp_derive_operand(code, c, 0, i),
                                                        arity > 1 ? lp_derive_operand(code, c, 1, i) : 0,
                                                        arity > 2 ? lp_derive_operand(code, c, 2, i) : 0));
        }
        LP_DERIVE_BARRIER();
    }
    for (uint32_t s = 0; s < job->scatters; s++)
        lp_derive_move_words(t, &t->move[job->first_scatter + s], near_base, lane);
}

#endif
