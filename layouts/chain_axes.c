/* SPDX-License-Identifier: Apache-2.0 */
/* From the pieces of dimensions that a permutation moves to a chain: their names, extents and dimensions of the result.
 */
#include "layouts/chain_digits.h"

#include <stdio.h>

static void name_axis(char name[LP_CHAIN_NAME], const char *dim, int number, bool alone)
{
    char text[LP_CHAIN_NAME + 16];
    snprintf(text, sizeof text, alone ? "%s" : "%s%d", dim, number);
    if (!alone && text[0] >= 'A' && text[0] <= 'Z')
        text[0] = (char)(text[0] - 'A' + 'a');
    memcpy(name, text, LP_CHAIN_NAME);
    name[LP_CHAIN_NAME - 1] = '\0';
}

/* The piece of dimension d with the largest stride below `above`, or -1. */
static int32_t next_piece(const lp_chain_pieces *list, int d, int64_t above)
{
    int32_t next = -1;
    for (int32_t i = 0; i < list->count; i++)
        if (list->piece[i].dim == d && list->piece[i].stride < above &&
            (next < 0 || list->piece[i].stride > list->piece[next].stride))
            next = i;
    return next;
}

/* Axes in the order of the source, by falling stride, all with their extents. */
static lp_status name_axes(lp_chain *c, const lp_chain_pieces *list, int ndim, int32_t axis_of[LP_CHAIN_AXES],
                           lp_error *err)
{
    lp_chain_part *const part = &c->part[0];
    int32_t outermost = 0;
    c->ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        if (ndim == 2)
            memcpy(c->dim_name[d], d == 0 ? "N" : "K", 2);
        else
            snprintf(c->dim_name[d], LP_CHAIN_NAME, "D%d", d);
        int of_dim = 0, number = 0;
        for (int32_t i = 0; i < list->count; i++)
            of_dim += list->piece[i].dim == d;
        for (int64_t above = INT64_MAX; number < of_dim || number == 0; number++) {
            const int32_t next = next_piece(list, d, above);
            if (c->axes == LP_CHAIN_AXES)
                return lp_fail(err, LP_E_UNSUPPORTED, "no chain has this order: it takes more than %d axes",
                               (int)LP_CHAIN_AXES);
            lp_chain_axis *const axis = &c->axis[c->axes];
            *axis = (lp_chain_axis){.dim = d};
            name_axis(axis->name, c->dim_name[d], number, of_dim < 2);
            if (next >= 0) {
                axis->extent = list->piece[next].extent;
                axis_of[next] = c->axes;
                above = list->piece[next].stride;
            } else { /* a dimension of one element: it lies outermost */
                axis->extent = 1;
                part->memory[outermost++].axis = (int8_t)c->axes;
            }
            part->source[c->axes] = (int8_t)c->axes;
            c->axes++;
        }
    }
    for (int32_t i = list->count - 1; i >= 0; i--) {
        lp_chain_place *const place = &part->memory[outermost++];
        *place = (lp_chain_place){
            .axis = (int8_t)axis_of[i], .backwards = list->piece[i].backwards, .list_end = list->piece[i].list_end};
        for (int32_t j = 0; j < list->count; j++) {
            place->swizzle |= (list->piece[i].swizzle >> j & 1) << axis_of[j];
            place->plus |= (list->piece[i].plus >> j & 1) << axis_of[j];
            place->minus |= (list->piece[i].minus >> j & 1) << axis_of[j];
            place->flip |= (list->piece[i].flip >> j & 1) << axis_of[j];
        }
    }
    part->axes = c->axes;
    return LP_OK;
}

static uint32_t axes_of_blocks(const lp_chain *c)
{
    const lp_chain_part *const part = &c->part[0];
    uint32_t kept = 0;
    for (int32_t i = 0; i < part->axes; i++) {
        const lp_chain_place *const place = &part->memory[i];
        if (lp_chain_turns(place) != 0 || place->list_end > 0)
            kept |= (uint32_t)1 << place->axis;
        kept |= place->swizzle;
    }
    for (int32_t d = 0; d < c->out_ndim; d++)
        for (int32_t i = part->out_first[d]; i < part->out_first[d + 1] && c->room[d] != 0; i++)
            kept |= (uint32_t)1 << part->memory[i].axis;
    return kept;
}

static bool is_power_of_2(int64_t extent)
{
    return (extent & (extent - 1)) == 0;
}

enum { HALVES_MOST = 8 }; /* steps that an outermost axis of the layout itself may have: gate and up, parts of rows */

/* The axis of dimension d that counts how many blocks there are, or -1. Most often it is the outermost one. Where that
 * has 2, 4 or 8 steps, and a single other one has a number of steps that is no power of 2, it is that one: so rows of
 * gate, then of up, are told from two blocks as long as a recording has an odd number of tiles. */
static int32_t open_axis(const lp_chain *c, int32_t d, uint32_t kept)
{
    int32_t outermost = -1, other = -1, others = 0;
    for (int32_t a = c->axes - 1; a >= 0; a--) {
        if (c->axis[a].dim != d)
            continue;
        outermost = a;
        if ((kept >> a & 1) == 0 && !is_power_of_2(c->axis[a].extent)) {
            other = a;
            others++;
        }
    }
    if (others == 1 && is_power_of_2(c->axis[outermost].extent) && c->axis[outermost].extent <= HALVES_MOST)
        return other;
    return (kept >> outermost & 1) != 0 ? -1 : outermost;
}

void lp_chain_open_dimensions(lp_chain *c)
{
    const uint32_t kept = axes_of_blocks(c);
    for (int32_t d = 0; d < c->ndim; d++) {
        const int32_t open = open_axis(c, d, kept);
        if (open >= 0)
            c->axis[open].extent = 0;
    }
}

/* Open axes count blocks; what lies inside the last of them is a block, one dimension of the result. */
static void group(lp_chain *c)
{
    lp_chain_part *const part = &c->part[0];
    int32_t block = 0;
    for (int32_t i = 0; i < c->axes; i++)
        if (c->axis[part->memory[i].axis].extent == 0)
            block = i + 1;
    c->out_ndim = 0;
    for (int32_t i = 0; i < block; i++)
        part->out_first[c->out_ndim++] = (int8_t)i;
    if (block < c->axes)
        part->out_first[c->out_ndim++] = (int8_t)block;
    part->out_first[c->out_ndim] = (int8_t)c->axes;
}

/* One dimension of the result, cut where axes leave room between them. Pieces are the last places of the part, the
 * innermost first. */
static lp_status group_by_room(lp_chain *c, const lp_chain_pieces *list, lp_error *err)
{
    lp_chain_part *const part = &c->part[0];
    int32_t first[LP_CHAIN_AXES + 1] = {c->axes}, dims = 0; /* from the innermost on */
    int64_t room[LP_CHAIN_AXES] = {0}, base = 1, covered = 1;
    for (int32_t i = 0; i < list->count; i++) {
        const lp_chain_piece_of *const piece = &list->piece[i];
        if (piece->below < covered)
            return lp_fail(err, LP_E_ARGUMENT, "a step of %lld places where %lld are taken", (long long)piece->below,
                           (long long)covered);
        if (piece->below > covered) {
            if (i == 0 || piece->below % base != 0)
                return lp_fail(err, LP_E_UNSUPPORTED, "no chain has a step of %lld places over blocks of %lld",
                               (long long)piece->below, (long long)(i == 0 ? 1 : base));
            room[dims++] = piece->below / base;
            first[dims] = c->axes - i;
            base = piece->below;
        }
        covered = piece->below * piece->extent;
    }
    c->out_ndim = dims + 1;
    for (int32_t d = 0; d <= dims; d++) {
        part->out_first[dims + 1 - d] = (int8_t)first[d];
        c->room[dims - d] = room[d];
    }
    part->out_first[0] = 0;
    return LP_OK;
}

lp_status lp_chain_from_pieces(lp_chain *out, const lp_chain_pieces *cut, const lp_chain_digits *list, int ndim,
                               lp_error *err)
{
    lp_chain chain = {.split_dim = -1, .split_out = -1, .parts = 1, .listed = list->listed};
    int32_t axis_of[LP_CHAIN_AXES] = {0};
    LP_TRY(name_axes(&chain, cut, ndim, axis_of, err));
    memcpy(chain.list, list->list, sizeof chain.list);
    if (list->closed) {
        LP_TRY(group_by_room(&chain, cut, err));
    } else {
        lp_chain_open_dimensions(&chain);
        group(&chain);
    }
    *out = chain;
    return LP_OK;
}
