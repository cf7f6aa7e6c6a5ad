/* SPDX-License-Identifier: Apache-2.0 */
#include "traces/map_parts.h"

#include "traces/base.h"

/* ---- bytes that two maps write ---- */

static lp_status shared_part(const lp_map **out, const lp_placed_map *of, const lp_placed_map *with,
                             const lp_alloc *alloc, lp_error *err)
{
    const lp_map *part;
    LP_TRY(lp_map_intersect(&part, of->map, with->map, with->dst_off - of->dst_off, alloc, err));
    const lp_status status = lp_map_shift(out, part, of->src_off, of->dst_off, alloc, err);
    lp_map_free(part, alloc);
    return status;
}

lp_status lp_maps_agree(bool *agree, const lp_placed_map *a, const lp_placed_map *b, const lp_alloc *alloc,
                        lp_error *err)
{
    const lp_map *of_a = NULL, *of_b = NULL;
    lp_status status = shared_part(&of_a, a, b, alloc, err);
    if (status == LP_OK)
        status = shared_part(&of_b, b, a, alloc, err);
    *agree = status == LP_OK && lp_map_equal(of_a, of_b);
    lp_map_free(of_a, alloc);
    lp_map_free(of_b, alloc);
    return status == LP_E_UNSUPPORTED || status == LP_E_LIMIT || status == LP_E_ARGUMENT ? LP_OK : status;
}

/* ---- bytes of elements ---- */

lp_status lp_map_element_byte(const lp_map **out, const lp_map *map, int64_t byte, const lp_alloc *alloc, lp_error *err)
{
    lp_status status = LP_OK;
    lp_box *box = lp_allocate(alloc, (size_t)map->nbox * sizeof *box);
    lp_mode *mode = lp_allocate(alloc, ((size_t)map->nmode + (size_t)map->nbox) * sizeof *mode);
    lp_mode *next = mode;
    if (box == NULL || mode == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *x = &map->box[b];
        box[b] = (lp_box){.dst_off = x->dst_off + byte, .run = 1, .rank = x->rank, .mode = next};
        for (int32_t i = 0; i < x->rank; i++)
            *next++ = (lp_mode){.extent = x->mode[i].extent, .dst_stride = x->mode[i].dst_stride};
        if (x->run > 1) { /* the elements of a run lie apart now */
            box[b].rank++;
            *next++ = (lp_mode){.extent = x->run, .dst_stride = map->dst_elem};
        }
    }
    status = lp_map_from_boxes(out, 0, 1, map->nbox, box, alloc, err);
release:
    lp_release(alloc, box);
    lp_release(alloc, mode);
    return status;
}
