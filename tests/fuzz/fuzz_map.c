/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as boxes of a byte map. Numbers are read one byte at a time: up to 0xdf a small value around zero, above it
 * the next eight bytes as they are. What is accepted is canonical: disjoint boxes in order that write what they say,
 * equal to the form of themselves, of themselves shifted back, and of their pieces. Some thirty bytes can reach the
 * stated bound of work, which takes seconds: with little memory most such inputs end early, so that others have time.
 */
#include "tests/fuzz/demand.h"
#include "traces/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { BOXES = 8, MODES = 6, WALK_MAX = 1 << 14, LITTLE = 1 << 20, MUCH = 1 << 23 };

/* Memory of which there are `left` bytes; what is freed does not come back, so that this bounds the work too. */
static void *resize(void *context, void *old, size_t bytes)
{
    size_t *left = context;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    if (bytes > *left)
        return NULL;
    *left -= bytes;
    return realloc(old, bytes);
}

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static int64_t number(reader *r)
{
    if (r->at == r->end)
        return 0;
    const uint8_t first = *r->at++;
    if (first < 0xe0)
        return (int64_t)first - 32;
    uint64_t value = 0;
    for (int i = 0; i < 8 && r->at < r->end; i++)
        value = value << 8 | *r->at++;
    return (int64_t)value;
}

typedef struct walk {
    const lp_map *map;
    int64_t end, bytes, runs;
} walk;

static int in_order(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    walk *w = context;
    demand(dst_off >= w->end && count > 0);
    demand(w->map->src_elem == 0 ? src_off == 0
                                 : src_off >= w->map->src_lo && src_off + count * w->map->src_elem <= w->map->src_hi);
    w->end = dst_off + count * w->map->dst_elem;
    w->bytes += count * w->map->dst_elem;
    return ++w->runs > WALK_MAX;
}

static void pieces_fold(const lp_map *map)
{
    /* Each box on its own, last first: the form may not depend on how the function was cut. */
    lp_box box[BOXES * 4];
    lp_error err = {0};
    const lp_map *again = NULL;
    if (map->nbox > BOXES * 4)
        return;
    for (int32_t i = 0; i < map->nbox; i++)
        box[i] = map->box[map->nbox - 1 - i];
    const lp_status status = lp_map_from_boxes(&again, map->src_elem, map->dst_elem, map->nbox, box, NULL, &err);
    demand(status == LP_OK && lp_map_equal(map, again));
    lp_map_free(again, NULL);
}

static void shift_returns(const lp_map *map)
{
    const lp_map *there = NULL, *back = NULL;
    const int64_t src = map->src_elem == 0 ? 0 : 5;
    lp_error err = {0};
    if (lp_map_shift(&there, map, src, 3, NULL, &err) == LP_OK) {
        demand(lp_map_shift(&back, there, -src, -3, NULL, &err) == LP_OK && lp_map_equal(map, back));
        lp_map_free(back, NULL);
        lp_map_free(there, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const int32_t elements[][2] = {{1, 1}, {2, 4}, {4, 2}, {0, 1}, {0, 4}, {8, 8}};
    if (bytes < 2)
        return 0;
    const int32_t *elem = elements[data[0] % (sizeof elements / sizeof elements[0])];
    const int32_t boxes = data[1] % (BOXES + 1);
    reader r = {data + 2, data + bytes};
    lp_box box[BOXES];
    lp_mode mode[BOXES][MODES];
    for (int32_t i = 0; i < boxes; i++) {
        box[i] = (lp_box){.src_off = number(&r), .dst_off = number(&r), .run = number(&r), .mode = mode[i]};
        box[i].rank = (int32_t)((uint64_t)number(&r) % (MODES + 1));
        for (int32_t m = 0; m < box[i].rank; m++)
            mode[i][m] = (lp_mode){.extent = number(&r), .src_stride = number(&r), .dst_stride = number(&r)};
    }
    const lp_map *map = NULL;
    lp_error err = {0};
    size_t left = data[0] < 0xf8 ? LITTLE : MUCH;
    const lp_alloc alloc = {.size = sizeof alloc, .context = &left, .resize = resize};
    const lp_status status = lp_map_from_boxes(&map, elem[0], elem[1], boxes, box, &alloc, &err);
    if (status != LP_OK) {
        demand_error(status, &err);
        return 0;
    }
    walk w = {.map = map, .end = INT64_MIN};
    if (lp_map_walk(map, in_order, &w) == 0)
        demand(w.bytes == map->dst_bytes);
    pieces_fold(map);
    shift_returns(map);
    lp_map_free(map, &alloc);
    return 0;
}
