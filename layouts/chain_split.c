/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a recorded permutation to a chain with bars.
 *
 * Without the elements of the other parts, those of one part are a permutation that an ordinary chain says. So, for
 * each dimension of the source: the longest run of its indices from 0 on whose elements alone have a chain is a part,
 * then the longest one behind it, and so on, or a shorter one where the rest has none. At first only such ends are
 * tried where the place of an index stops following that of the index before it in the same step; then, in small
 * dimensions, all. In the result the parts take turns, in blocks of equal sizes; the axes of a part that count those
 * blocks are common to all parts and stand outside the bars.
 */
#include "layouts/chain_split.h"

#define LOOKS_EACH 56                 /* times that each place is looked at, on average, before the search gives up, */
#define LOOKS_FREE ((int64_t)1 << 24) /* but this often in all at least */
#define ALL_ENDS   512                /* indices of a dimension, each of which may end a part */

/* ---- parts of the source ---- */

static void find_places(lp_split_search *s)
{
    for (int64_t k = 0; k < s->count; k++) {
        const int64_t above = s->place[k] / s->stride;
        s->index[k] = above % s->shape[s->dim];
        if (s->place[k] % s->stride == 0 && above < s->shape[s->dim])
            s->where[above] = k;
    }
    s->looked += s->count;
}

/* The axes of a plain chain in memory order; false where it turns axes or has lists. */
static bool take_axes(const lp_chain_form *form, lp_split_part *out)
{
    const lp_chain *const c = &form->chain;
    int64_t below[LP_CHAIN_AXES], inner[LP_CHAIN_DIMS];
    for (int32_t d = 0; d < c->ndim; d++)
        inner[d] = 1;
    for (int32_t i = c->part[0].axes - 1; i >= 0; i--) {
        const int32_t a = c->part[0].source[i];
        below[a] = inner[c->axis[a].dim];
        inner[c->axis[a].dim] *= c->axis[a].extent;
    }
    *out = (lp_split_part){0};
    for (int32_t i = 0; i < c->part[0].axes; i++) {
        const lp_chain_place *const p = &c->part[0].memory[i];
        if (lp_chain_turns(p) != 0 || p->list_end > 0)
            return false;
        if (c->axis[p->axis].extent > 1)
            out->axis[out->count++] =
                (lp_split_axis){c->axis[p->axis].dim, c->axis[p->axis].extent, below[p->axis], p->backwards};
    }
    return true;
}

/* Whether, of the elements from index `from` on, those below `until` and the others take turns in runs of two lengths,
 * as a part and those around it do. Others may come first, and last what is missing of a run of them. */
static bool takes_turns(lp_split_search *s, int64_t from, int64_t until)
{
    int64_t length[2] = {0, 0}, head = 0, run = 0, turns = 0, k = 0;
    bool below = false, first = false;
    for (; k < s->count; k++) {
        const bool kind = s->index[k] < until;
        if (s->index[k] < from)
            continue;
        if (turns == 0 && run == 0)
            first = below = kind;
        if (kind != below) {
            if (turns == 0)
                head = run;
            else if (length[below] != 0 && run != length[below])
                break;
            else
                length[below] = run;
            turns++;
            below = kind;
            run = 0;
        }
        run++;
    }
    s->looked += k;
    if (k < s->count || turns == 0)
        return k == s->count && until == s->shape[s->dim];
    if (first == below)
        return !first && (length[first] == 0 || head + run == length[first]);
    return (length[first] == 0 || head == length[first]) && (length[below] == 0 || run == length[below]);
}

/* Whether the elements of indices from .. until-1 alone have a chain. */
static bool is_part(lp_split_search *s, int64_t from, int64_t until, lp_split_part *out)
{
    int64_t shape[LP_CHAIN_DIMS], count = 0;
    lp_chain chain;
    lp_chain_form form;
    memcpy(shape, s->shape, (size_t)s->ndim * sizeof shape[0]);
    shape[s->dim] = until - from;
    s->looked += s->count;
    for (int64_t k = 0; k < s->count; k++) {
        const int64_t index = s->index[k];
        if (index < from || index >= until)
            continue;
        const int64_t above = s->place[k] / (s->stride * s->shape[s->dim]);
        s->compact[count++] = s->place[k] - (above * (s->shape[s->dim] - until + from) + from) * s->stride;
    }
    lp_chain_recording part = {.place = s->compact, .count = count, .plain = true};
    const lp_status status = lp_chain_identify_in(&chain, &part, s->ndim, shape, NULL);
    s->looked += part.looked;
    return status == LP_OK && lp_chain_resolve(&form, &chain, shape, false, NULL) == LP_OK && take_axes(&form, out);
}

/* ---- one after the other ---- */

/* Parts from index `from` on, the longest first: a shorter one where the rest does not go on from there. */
static bool find_parts(lp_split_search *s, int64_t from, lp_chain *out)
{
    const int64_t size = s->shape[s->dim];
    if (from == size)
        return lp_split_join(s, out);
    if (s->parts == LP_CHAIN_PARTS)
        return false;
    const int here = s->parts;
    const int64_t most = from == 0 ? size - 1 : size; /* the whole has no chain */
    for (int64_t until = most; until > from && s->looked <= LOOKS_FREE + LOOKS_EACH * s->count; until--) {
        const bool end = size <= s->ends_most || until == size || until == from + 1 ||
                         s->where[until] - s->where[until - 1] != s->where[from + 1] - s->where[from];
        if (!end || !takes_turns(s, from, until) || !is_part(s, from, until, &s->part[here]))
            continue;
        s->first[here + 1] = until;
        s->parts = here + 1;
        if (lp_split_count_blocks(s) > 0 && find_parts(s, until, out))
            return true;
        s->parts = here;
    }
    return false;
}

/* Looks for parts in each dimension, the innermost first; then again with ends wherever they may be. */
static lp_status search_dims(lp_split_search *s, const lp_alloc *alloc, lp_chain *out)
{
    int64_t *const memory = lp_allocate(alloc, (size_t)s->count * 3 * sizeof *memory);
    bool found = false;
    if (memory == NULL)
        return LP_E_MEMORY;
    s->index = memory;
    s->where = memory + s->count;
    s->compact = memory + 2 * s->count;
    for (int round = 0; round < 2 && !found; round++) {
        s->ends_most = round * ALL_ENDS;
        s->stride = 1;
        for (s->dim = s->ndim - 1; s->dim >= 0 && !found; s->dim--) {
            memset(s->where, 0, (size_t)s->count * sizeof *s->where);
            find_places(s);
            found = find_parts(s, 0, out);
            s->stride *= s->shape[s->dim];
        }
    }
    lp_release(alloc, memory);
    return found ? LP_OK : LP_E_UNSUPPORTED;
}

/* More places than elements. What is wrong with the shape is said later. */
static bool has_padding(int64_t count, int ndim, const int64_t *shape)
{
    int64_t elements = 1;
    bool valid = ndim >= 1 && ndim <= LP_CHAIN_DIMS;
    for (int d = 0; d < ndim && valid; d++)
        valid = shape[d] >= 1 && lp_mul(elements, shape[d], &elements);
    return valid && elements < count;
}

lp_status lp_split_identify(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                            const lp_alloc *alloc, int64_t *looked, lp_error *err)
{
    lp_error plain;
    lp_chain_recording whole = {.place = place, .count = count};
    *looked = count;
    if (has_padding(count, ndim, shape))
        return lp_chain_identify_padded(out, place, count, ndim, shape, alloc, err);
    LP_TRY(lp_chain_check_recording(&whole, ndim, shape, err));
    lp_status status = lp_chain_identify_in(out, &whole, ndim, shape, &plain);
    *looked = whole.looked;
    if (status != LP_E_UNSUPPORTED)
        return status;
    lp_split_search s = {.place = place, .shape = shape, .count = count, .looked = whole.looked, .ndim = ndim};
    status = search_dims(&s, alloc, out);
    *looked = s.looked;
    if (status == LP_E_MEMORY)
        return lp_fail_memory(err);
    if (status != LP_OK && err != NULL)
        *err = plain;
    return status;
}

lp_status lp_chain_identify_parts(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                                  const lp_alloc *alloc, lp_error *err)
{
    int64_t looked;
    return lp_split_identify(out, place, count, ndim, shape, alloc, &looked, err);
}
