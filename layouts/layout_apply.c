/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts at work on bytes in memory, by the byte map that the recorder stores too. */
#include "layouts/layout_private.h"

typedef struct move {
    const unsigned char *from;
    unsigned char *to;
    bool undo;
} move;

static int move_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const move *const m = context;
    if (m->undo)
        memcpy(m->to + src_off, m->from + dst_off, (size_t)count);
    else
        memcpy(m->to + dst_off, m->from + src_off, (size_t)count);
    return 0;
}

static lp_status run(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert, move *m,
                     const lp_alloc *alloc, lp_error *err)
{
    lp_view region, source;
    lp_layout_shape shape;
    const lp_map *map;
    LP_TRY(lp_layout_describe(layout, sizes, &shape, err));
    LP_TRY(lp_layout_region(layout, sizes, shard, expert, &region, &source, err));
    const int64_t source_bytes = lp_view_count(&source) * (lp_dtype_bits(source.dtype) / 8);
    LP_TRY(lp_map_copy(&map, &region, shape.bytes, &source, source_bytes, alloc, err));
    lp_map_walk(map, move_run, m);
    lp_map_free(map, alloc);
    return LP_OK;
}

lp_status lp_layout_apply(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                          const void *source, void *destination, const lp_alloc *alloc, lp_error *err)
{
    move m = {source, destination, false};
    return run(layout, sizes, shard, expert, &m, alloc, err);
}

lp_status lp_layout_undo(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                         const void *destination, void *source, const lp_alloc *alloc, lp_error *err)
{
    move m = {destination, source, true};
    return run(layout, sizes, shard, expert, &m, alloc, err);
}
