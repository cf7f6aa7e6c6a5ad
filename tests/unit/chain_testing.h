/* SPDX-License-Identifier: Apache-2.0 */
/* Chains from text in one call, what walks over their elements, and chains drawn at random. */
#ifndef LOADPLAN_CHAIN_TESTING_H
#define LOADPLAN_CHAIN_TESTING_H

#include "layouts/layout.h"

#include "layout_testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline lp_chain parsed(const char *text)
{
    lp_chain chain;
    lp_error err;
    if (lp_chain_parse(&chain, text, &err) != LP_OK)
        fail_msg("'%s': %s", text, err.text);
    return chain;
}

static inline lp_chain_form resolved(const char *text, const int64_t *shape, bool pads)
{
    const lp_chain chain = parsed(text);
    lp_chain_form form;
    lp_error err;
    if (lp_chain_resolve(&form, &chain, shape, pads, &err) != LP_OK)
        fail_msg("'%s': %s", text, err.text);
    return form;
}

/* Index of the next element in row-major order; false behind the last. */
static inline bool next(const lp_chain_form *form, int64_t *index)
{
    for (int32_t d = form->chain.ndim - 1; d >= 0; d--) {
        if (++index[d] < form->shape[d])
            return true;
        index[d] = 0;
    }
    return false;
}

/* What the transform would record. */
static inline int64_t *record(const lp_chain_form *form)
{
    int64_t *const place = malloc((size_t)form->units * sizeof *place);
    for (int64_t k = 0; k < form->units; k++) {
        int64_t index[LP_CHAIN_DIMS], flat = 0;
        assert_true(lp_chain_origin(form, k, index));
        for (int32_t d = 0; d < form->chain.ndim; d++)
            flat = flat * form->shape[d] + index[d];
        place[k] = flat;
    }
    return place;
}

/* The places of a chain of two dimensions are identified as the chain of that text. */
static inline void expect_identified(const char *chain, const int64_t *shape, const char *text)
{
    const lp_chain_form form = resolved(chain, shape, false);
    int64_t *const place = record(&form);
    lp_chain found;
    lp_error err;
    char seen[256];
    if (lp_chain_identify(&found, place, form.units, 2, shape, &err) != LP_OK)
        fail_msg("%s: %s", chain, err.text);
    lp_chain_text(&found, seen, sizeof seen);
    assert_string_equal(seen, text);
    free(place);
}

/* The chain of a text has these places. */
static inline void expect_places(const char *text, const int64_t *shape, const int64_t *place, int round)
{
    const lp_chain_form form = resolved(text, shape, false);
    int64_t *const seen = record(&form);
    if (memcmp(place, seen, (size_t)form.units * sizeof *place) != 0)
        fail_msg("round %d: %s gives another order", round, text);
    free(seen);
}

/* Turns axes of the only part of a chain by others where extents allow: swizzles by axes that come before in memory, so
 * that some can be swizzled by swizzled ones, rotations, and axes that run both ways. */
static inline void turn_at_random(lp_chain *c, uint32_t *seed)
{
    lp_chain_part *const part = &c->part[0];
    uint32_t rotated = 0, turning = 0;
    for (int32_t i = 1; i < c->axes; i++) {
        lp_chain_place *const place = &part->memory[i];
        const int32_t b = part->memory[formula_byte((*seed)++, 7) % i].axis;
        const int64_t extent = c->axis[place->axis].extent, with = c->axis[b].extent;
        if (formula_byte((*seed)++, 8) % 2 == 0 || (rotated >> b & 1) != 0)
            continue;
        if (with <= extent && (extent & (extent - 1)) == 0) {
            place->swizzle = (uint32_t)1 << b;
        } else if ((turning >> place->axis & 1) == 0) {
            uint32_t *const turns[] = {&place->plus, &place->minus, &place->flip};
            *turns[formula_byte((*seed)++, 9) % 3] = (uint32_t)1 << b;
            rotated |= (uint32_t)1 << place->axis;
        }
        turning |= (uint32_t)1 << b;
    }
}

/* A chain of up to 4 dimensions and 12 axes, and a shape that it fits; with swizzles where extents allow. */
static inline lp_chain random_chain(uint32_t *seed, int64_t shape[LP_CHAIN_DIMS], bool swizzles)
{
    lp_chain c = {.ndim = 1 + (int32_t)(formula_byte((*seed)++, 0) % 4), .split_dim = -1, .split_out = -1, .parts = 1};
    lp_chain_part *const part = &c.part[0];
    int64_t units = 1;
    for (int32_t d = 0; d < c.ndim; d++) {
        shape[d] = 1;
        for (int axes = 1 + formula_byte((*seed)++, 1) % 3; axes > 0; axes--) {
            int64_t extent = 1 + formula_byte((*seed)++, 2) % 5;
            if (units > 1000)
                extent = 1;
            part->source[c.axes] = (int8_t)c.axes;
            part->memory[c.axes].axis = (int8_t)c.axes;
            part->memory[c.axes].backwards = formula_byte((*seed)++, 3) % 4 == 0;
            c.axis[c.axes++] = (lp_chain_axis){.dim = d, .extent = extent};
            shape[d] *= extent;
            units *= extent;
        }
    }
    part->axes = c.axes;
    for (int32_t i = c.axes - 1; i > 0; i--) {
        const int32_t other = formula_byte((*seed)++, 4) % (i + 1);
        const lp_chain_place kept = part->memory[i];
        part->memory[i] = part->memory[other];
        part->memory[other] = kept;
    }
    for (int32_t i = 0; i < c.axes && swizzles; i++) {
        const int32_t other = formula_byte((*seed)++, 5) % c.axes;
        const int64_t extent = c.axis[part->memory[i].axis].extent, with = c.axis[part->memory[other].axis].extent;
        uint32_t turning = 0;
        for (int32_t j = 0; j < c.axes; j++)
            turning |= part->memory[j].swizzle;
        if (other != i && part->memory[other].swizzle == 0 && (turning >> part->memory[i].axis & 1) == 0 &&
            with <= extent && (extent & (extent - 1)) == 0 && (with & (with - 1)) == 0)
            part->memory[i].swizzle = (uint32_t)1 << part->memory[other].axis;
    }
    c.out_ndim = 1;
    part->out_first[1] = (int8_t)c.axes;
    return c;
}

#endif
