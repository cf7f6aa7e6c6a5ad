/* SPDX-License-Identifier: Apache-2.0 */
/* Random plans for executors, and what they mean byte by byte: for the device, and for its program on the host. */
#ifndef RANDOM_PLANS_H
#define RANDOM_PLANS_H

#include "replayer/device_program.h"
#include "tests/random_numbers.h"

#include <stdlib.h>

enum { PLAN_ITEMS = 64, PLAN_STEPS = 3, PLAN_ARENA_BYTES = 24 << 20, PLAN_SOURCE_BYTES = 24 << 20, PLAN_POISON = 0xa5 };

typedef struct random_plan {
    lp_step step[PLAN_ITEMS][PLAN_STEPS];
    int64_t dst[PLAN_ITEMS][PLAN_STEPS]; /* offset in the arena that dst_off 0 means */
    int steps[PLAN_ITEMS];
    int64_t base[PLAN_ITEMS]; /* offset of the item's payload in the source */
} random_plan;

/* A box whose destination is nested with random gaps and whose source is dense in another order of the modes, reversed
 * or repeated here and there. */
static inline const lp_map *random_map(uint64_t *state, int kind, int src_elem, int dst_elem, int64_t *span,
                                       int64_t *src_span)
{
    static const int64_t runs[] = {1,  1,  2,  2,  4,  4,   4,   8,   16,  3,   5,    7,   12,
                                   17, 32, 48, 64, 96, 100, 128, 256, 333, 512, 1024, 4096};
    lp_error err;
    lp_mode mode[5];
    const int rank = (int)random_below(state, 6);
    int64_t budget = 1 + random_below(state, 1 << random_below(state, 18));
    lp_box box = {.run = 1, .rank = rank, .mode = mode};
    if (kind == LP_KIND_COPY || kind == LP_KIND_REPLICATE)
        box.run = runs[random_below(state, sizeof runs / sizeof runs[0])];
    else
        box.run = 1 + random_below(state, 40);
    if (random_below(state, 12) == 0)
        box.run = 1 + random_below(state, 150000);
    int64_t dst = box.run * dst_elem, order[5];
    for (int k = rank - 1; k >= 0; k--) { /* outermost first in the box */
        int64_t extent = 1 + random_below(state, random_below(state, 3) == 0 ? 70 : 9);
        if (extent * box.run > budget * 64)
            extent = 2;
        if (dst * extent > 2 << 20)
            extent = 1;
        if (random_below(state, 3) == 0)
            dst += random_below(state, 20);
        mode[k] = (lp_mode){.extent = extent, .dst_stride = dst};
        dst *= extent;
        order[k] = k;
    }
    for (int k = rank - 1; k > 0; k--) {
        const int64_t j = random_below(state, k + 1), swap = order[k];
        order[k] = order[j];
        order[j] = swap;
    }
    int64_t src = box.run * src_elem;
    if (rank > 0 && box.run <= 8 && random_below(state, 2) == 0)
        src = box.run * src_elem; /* a transpose: the next mode in source order continues the run */
    for (int i = rank - 1; i >= 0; i--) {
        lp_mode *m = &mode[order[i]];
        if (src_elem == 0)
            continue;
        if (random_below(state, 5) == 0)
            src += random_below(state, 16);
        if (kind == LP_KIND_REPLICATE && random_below(state, 2) == 0)
            continue;
        m->src_stride = src;
        if (random_below(state, 8) == 0) {
            box.src_off += src * (m->extent - 1);
            m->src_stride = -src;
        }
        src *= m->extent;
        if (src > 4 << 20)
            break;
    }
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, src_elem, dst_elem, 1, &box, NULL, &err) != LP_OK)
        return NULL; /* what the generator must not make, such as a source before the tensor's start */
    if (map->nbox == 0 || map->src_lo < 0) {
        lp_map_free(map, NULL);
        return NULL;
    }
    *span = map->dst_hi;
    *src_span = map->src_hi;
    return map;
}

/* What the kernel for words takes, or nearly takes: dense modes of even extents in another order on either side. */
static inline const lp_map *random_transpose(uint64_t *state, int64_t *span, int64_t *src_span)
{
    static const int64_t extents[] = {4, 4, 8, 8, 16, 32, 64, 12, 24, 48, 56, 2, 3};
    lp_error err;
    lp_mode mode[5];
    const int rank = 2 + (int)random_below(state, 4);
    const int64_t gap = random_below(state, 4) == 0 ? 4 : random_below(state, 3) == 0 ? 16 : 0;
    lp_box box = {.run = random_below(state, 6) == 0 ? 2 : 4, .rank = rank, .mode = mode};
    int64_t dst = box.run, src = box.run;
    int order[5];
    for (int k = rank - 1; k >= 0; k--) {
        int64_t extent = extents[random_below(state, sizeof extents / sizeof extents[0])];
        if (dst * extent > 1 << 20)
            extent = 2;
        mode[k] = (lp_mode){.extent = extent, .dst_stride = dst};
        dst = dst * extent + (random_below(state, 3) == 0 ? gap : 0);
        order[k] = k;
    }
    const int fast = (int)random_below(state, rank - 1); /* not the destination's */
    order[fast] = order[rank - 1];
    order[rank - 1] = fast;
    for (int k = rank - 2; k > 0; k--) {
        const int j = (int)random_below(state, k + 1), swap = order[k];
        order[k] = order[j];
        order[j] = swap;
    }
    for (int i = rank - 1; i >= 0; i--) {
        mode[order[i]].src_stride = src;
        src = src * mode[order[i]].extent + (random_below(state, 5) == 0 ? gap : 0);
    }
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, 1, 1, 1, &box, NULL, &err) != LP_OK)
        return NULL;
    *span = map->dst_hi;
    *src_span = map->src_hi;
    return map;
}

/* What the kernel for rows takes, or nearly takes: runs of some hundred bytes to some ten thousand, most of them and
 * most strides multiples of 16. */
static inline const lp_map *random_rows(uint64_t *state, int64_t *span, int64_t *src_span)
{
    static const int64_t runs[] = {512,  768,  1024,  1360,  2048,  4080,  4096, 4112,
                                   5120, 8192, 16384, 28672, 32752, 32768, 40960};
    lp_error err;
    lp_mode mode[3];
    const int rank = (int)random_below(state, 4);
    lp_box box = {.run = runs[random_below(state, sizeof runs / sizeof runs[0])], .rank = rank, .mode = mode};
    if (random_below(state, 8) == 0)
        box.run += 1 + random_below(state, 15);
    int64_t dst = box.run, src = box.run;
    for (int k = rank - 1; k >= 0; k--) {
        const int64_t extent = 1 + random_below(state, random_below(state, 3) == 0 ? 40 : 6);
        mode[k].extent = dst * extent > 1 << 20 ? 1 : extent;
        dst += random_below(state, 2) == 0 ? 16 * random_below(state, 40) : 0;
        mode[k].dst_stride = dst;
        dst *= mode[k].extent;
    }
    for (int k = 0; k < rank; k++) { /* the source runs the other way round */
        src += random_below(state, 3) == 0 ? 16 * random_below(state, 9) : 0;
        mode[k].src_stride = src;
        src *= mode[k].extent;
    }
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, 1, 1, 1, &box, NULL, &err) != LP_OK)
        return NULL;
    *span = map->dst_hi;
    *src_span = map->src_hi;
    return map;
}

static inline void random_step(uint64_t *state, lp_step *step, int64_t *span, int64_t *src_span)
{
    static const uint8_t pairs[][2] = {{LP_BF16, LP_F32},    {LP_F32, LP_BF16},    {LP_F16, LP_BF16},
                                       {LP_F8_E4M3, LP_F32}, {LP_F32, LP_F8_E4M3}, {LP_F8_E8M0, LP_F32},
                                       {LP_I64, LP_I32},     {LP_I32, LP_I64}};
    for (;;) {
        *step = (lp_step){.dest = 0, .stage = LP_NONE};
        const int64_t draw = random_below(state, 10);
        int src_elem = 1, dst_elem = 1;
        step->kind = draw < 6 ? LP_KIND_COPY : draw < 7 ? LP_KIND_REPLICATE : draw < 9 ? LP_KIND_CAST : LP_KIND_FILL;
        if (step->kind == LP_KIND_CAST) {
            const uint8_t *pair = pairs[random_below(state, sizeof pairs / sizeof pairs[0])];
            step->src_dtype = pair[0];
            step->dst_dtype = pair[1];
            src_elem = lp_dtype_bits(pair[0]) / 8;
            dst_elem = lp_dtype_bits(pair[1]) / 8;
        } else if (step->kind == LP_KIND_FILL) {
            src_elem = 0;
            dst_elem = 1 << random_below(state, 4);
            step->fill_bits = random_next(state);
            if (dst_elem < 8)
                step->fill_bits &= ((uint64_t)1 << (8 * dst_elem)) - 1;
        }
        const int64_t tidy = step->kind == LP_KIND_COPY ? random_below(state, 6) : 6;
        if (tidy < 2)
            step->map = random_transpose(state, span, src_span);
        else if (tidy < 3)
            step->map = random_rows(state, span, src_span);
        else
            step->map = random_map(state, step->kind, src_elem, dst_elem, span, src_span);
        if (step->map != NULL)
            return;
    }
}

static inline int64_t make_plan(random_plan *p, uint64_t *state)
{
    const bool is_aligned = random_below(state, 2) == 0; /* only then a push of all items is one for the device */
    int64_t at = random_below(state, 64), source = 0;
    for (int i = 0; i < PLAN_ITEMS; i++) {
        int64_t needs = 0;
        p->steps[i] = (int)random_below(state, PLAN_STEPS + 1);
        for (int s = 0; s < p->steps[i]; s++) {
            int64_t span, src_span;
            lp_step *step = &p->step[i][s];
            random_step(state, step, &span, &src_span);
            step->src_off = random_below(state, 4) == 0 ? random_below(state, 40) : 0;
            step->dst_off = random_below(state, 4) == 0 ? random_below(state, 40) : 0;
            if (step->kind == LP_KIND_FILL)
                step->src_off = 0;
            const int64_t start = random_below(state, 2) == 0 ? (at + 15) / 16 * 16 : at;
            if (start + step->dst_off + span > PLAN_ARENA_BYTES ||
                source + step->src_off + src_span + 64 > PLAN_SOURCE_BYTES) {
                lp_map_free(step->map, NULL);
                p->steps[i] = s;
                break;
            }
            p->dst[i][s] = start;
            at = start + step->dst_off + span + random_below(state, 24);
            if (step->src_off + src_span > needs)
                needs = step->src_off + src_span;
        }
        source += is_aligned || random_below(state, 2) == 0 ? (16 - source % 16) % 16 : random_below(state, 16);
        p->base[i] = source;
        source += needs;
        if (source > PLAN_SOURCE_BYTES - (1 << 20))
            source = random_below(state, 1 << 12) * 16;
    }
    return at;
}

typedef struct walk {
    const lp_step *step;
    const uint8_t *src;
    uint8_t *dst;
} walk;

static inline int reference_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const walk *w = context;
    const lp_step *s = w->step;
    uint8_t *to = w->dst + s->dst_off + dst_off;
    const uint8_t *from = w->src + s->src_off + src_off;
    if (s->kind == LP_KIND_CAST)
        return lp_cast_elements(s->src_dtype, from, s->dst_dtype, to, count) != LP_OK;
    if (s->kind == LP_KIND_FILL) {
        for (int64_t i = 0; i < count * s->map->dst_elem; i++)
            to[i] = (uint8_t)(s->fill_bits >> (8 * (i % s->map->dst_elem)));
        return 0;
    }
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
    return 0;
}

#endif
