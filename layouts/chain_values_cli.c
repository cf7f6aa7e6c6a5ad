/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout --identify` of a transform that changes values: whether one change of every unit leaves a chain. */
#include "layouts/layout_cli.h"

/* The index, each of whose units was changed to give `seen`: by an exclusive or with `value`, or by adding it. */
static int64_t unchanged(int64_t seen, int64_t value, int bits, bool adds)
{
    const int64_t mask = ((int64_t)1 << bits) - 1;
    int64_t index = 0;
    for (int shift = 0; shift + bits <= 63 && seen >> shift != 0; shift += bits) {
        const int64_t unit = seen >> shift & mask;
        index |= ((adds ? unit - value : unit ^ value) & mask) << shift;
    }
    return index;
}

/* How often the highest unit of an index has each value: in the file, and among 0 .. count-1. */
typedef struct unit_counts {
    int64_t seen[256], made[256];
} unit_counts;

static void count_units(const int64_t *place, int64_t count, int bits, unit_counts *out)
{
    int64_t all = count - 1;
    for (int64_t k = 0; k < count; k++)
        all |= place[k];
    int shift = 0;
    while (shift + 2 * bits <= 63 && all >> (shift + bits) != 0)
        shift += bits;
    const int64_t mask = ((int64_t)1 << bits) - 1;
    *out = (unit_counts){{0}, {0}};
    for (int64_t k = 0; k < count; k++) {
        out->seen[place[k] >> shift & mask]++;
        out->made[k >> shift & mask]++;
    }
}

/* Whether the change makes the one out of the other. */
static bool could_be(const unit_counts *counts, int64_t value, int bits, bool adds)
{
    const int64_t mask = ((int64_t)1 << bits) - 1;
    for (int64_t unit = 0; unit <= mask; unit++)
        if (counts->made[unit] != counts->seen[(adds ? unit + value : unit ^ value) & mask])
            return false;
    return true;
}

bool lp_chain_find_change(const int64_t *place, int64_t count, int bits, const lp_chain_request *request,
                          const lp_platform *platform, int64_t *value, bool *adds, lp_chain *chain)
{
    if (bits > 8) /* whole integers, or units too wide to try each change */
        return false;
    int64_t *const order = lp_allocate(platform->alloc, (size_t)count * sizeof *order);
    if (order == NULL)
        return false;
    bool found = false;
    unit_counts counts;
    count_units(place, count, bits, &counts);
    for (int64_t change = 2; change < (int64_t)2 << bits && !found; change++) {
        *value = change / 2;
        *adds = change % 2 != 0;
        bool inside = could_be(&counts, *value, bits, *adds);
        for (int64_t k = 0; k < count && inside; k++) {
            order[k] = unchanged(place[k], *value, bits, *adds);
            inside = order[k] < count;
        }
        found = inside && lp_chain_identify(chain, order, count, request->chain.ndim, request->shape, NULL) == LP_OK;
    }
    lp_release(platform->alloc, order);
    return found;
}
