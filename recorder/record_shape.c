/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps by the shape of two views. A loader moves every expert of every layer in the same few ways: views that differ in
 * their offsets only have the same map, moved. So the map of a pair is made once, and a copy costs a look into a table.
 */
#include "recorder/record_private.h"

enum { KEY_WORDS_MAX = 2 * (2 + LP_VIEW_DIMS + (LP_VIEW_DIMS + 8) / 8 + 2 * LP_VIEW_MODES) };

/* A view without its offset, as words. */
static int add_view(int64_t *word, int n, const lp_view *v)
{
    word[n++] = (int64_t)v->dtype << 32 | (int64_t)v->ndim << 16 | v->nmode;
    int64_t packed = 0;
    for (int d = 0; d < v->ndim; d++) {
        word[n++] = v->size[d];
        packed = packed << 8 | v->first[d];
        if (d % 8 == 7 || d == v->ndim - 1) {
            word[n++] = packed;
            packed = 0;
        }
    }
    for (int m = 0; m < v->nmode; m++) {
        word[n++] = v->mode[m].extent;
        word[n++] = v->mode[m].stride_bits;
    }
    return n;
}

static bool enlarge(lp_recorder *r)
{
    const int64_t size = r->shape_table_size == 0 ? 64 : r->shape_table_size * 2;
    uint32_t *table = lp_allocate_zero(r->platform.alloc, (size_t)size * sizeof *table);
    if (table == NULL)
        return false;
    lp_release(r->platform.alloc, r->shape_table);
    r->shape_table = table;
    r->shape_table_size = size;
    for (int64_t n = 0; n < r->shape_count; n++) {
        uint64_t i = r->shape[n].hash & (uint64_t)(size - 1);
        while (table[i] != 0)
            i = (i + 1) & (uint64_t)(size - 1);
        table[i] = (uint32_t)n + 1;
    }
    return true;
}

/* Takes over `map` (also on failure). */
static lp_status remember(lp_recorder *r, const int64_t *word, uint32_t key_bytes, uint64_t hash, const lp_map *map,
                          int64_t src_delta, int64_t dst_delta, lp_error *err)
{
    if ((r->shape_count * 2 >= r->shape_table_size && !enlarge(r)) ||
        !lp_grow(r->platform.alloc, (void **)&r->shape, &r->shape_capacity, r->shape_count + 1, sizeof *r->shape))
        goto no_memory;
    const void *key = lp_arena_copy(&r->shape_arena, word, key_bytes);
    if (key == NULL)
        goto no_memory;
    const uint64_t mask = (uint64_t)r->shape_table_size - 1;
    uint64_t i = hash & mask;
    while (r->shape_table[i] != 0)
        i = (i + 1) & mask;
    r->shape_table[i] = (uint32_t)r->shape_count + 1;
    r->shape[r->shape_count++] = (rec_shape){
        .key = key, .key_bytes = key_bytes, .hash = hash, .map = map, .src_delta = src_delta, .dst_delta = dst_delta};
    return LP_OK;
no_memory:
    lp_map_free(map, r->platform.alloc);
    return lp_fail_memory(err);
}

static const rec_shape *find(const lp_recorder *r, const int64_t *word, uint32_t key_bytes, uint64_t hash)
{
    if (r->shape_table_size == 0)
        return NULL;
    const uint64_t mask = (uint64_t)r->shape_table_size - 1;
    for (uint64_t i = hash & mask; r->shape_table[i] != 0; i = (i + 1) & mask) {
        const rec_shape *s = &r->shape[r->shape_table[i] - 1];
        if (s->hash == hash && s->key_bytes == key_bytes && memcmp(s->key, word, key_bytes) == 0)
            return s;
    }
    return NULL;
}

/* Whether the moved map stays inside both tensors. */
static bool is_inside(const lp_map *map, int64_t src_off, int64_t src_bytes, int64_t dst_off, int64_t dst_bytes)
{
    int64_t src_lo, src_hi, dst_lo, dst_hi;
    return lp_add(map->src_lo, src_off, &src_lo) && lp_add(map->src_hi, src_off, &src_hi) &&
           lp_add(map->dst_lo, dst_off, &dst_lo) && lp_add(map->dst_hi, dst_off, &dst_hi) && src_lo >= 0 &&
           src_hi <= src_bytes && dst_lo >= 0 && dst_hi <= dst_bytes;
}

lp_status rec_map_copy(lp_recorder *r, const lp_view *dst, int64_t dst_bytes, const lp_view *src, int64_t src_bytes,
                       const lp_map **map, int64_t *src_off, int64_t *dst_off, lp_error *err)
{
    int64_t word[KEY_WORDS_MAX];
    const bool shared = dst->offset_bits % 8 == 0 && src->offset_bits % 8 == 0;
    const uint32_t key_bytes = (uint32_t)add_view(word, add_view(word, 0, dst), src) * (uint32_t)sizeof *word;
    const uint64_t hash = lp_table_hash(word, key_bytes);
    const int64_t src_start = src->offset_bits / 8, dst_start = dst->offset_bits / 8;

    const rec_shape *known = shared ? find(r, word, key_bytes, hash) : NULL;
    if (known != NULL) {
        *src_off = src_start + known->src_delta;
        *dst_off = dst_start + known->dst_delta;
        if (is_inside(known->map, *src_off, src_bytes, *dst_off, dst_bytes)) {
            *map = known->map;
            return LP_OK;
        }
    }
    /* Unknown, or out of bounds: then lp_map_copy says which bytes are outside. */
    const lp_map *made = NULL, *moved = NULL;
    LP_TRY(lp_map_copy(&made, dst, dst_bytes, src, src_bytes, r->platform.alloc, err));
    if (made->nbox == 0) {
        *src_off = *dst_off = 0;
        return rec_keep(r, made, map, err);
    }
    *src_off = made->box[0].src_off;
    *dst_off = made->box[0].dst_off;
    const lp_status status = lp_map_shift(&moved, made, -*src_off, -*dst_off, r->platform.alloc, err);
    lp_map_free(made, r->platform.alloc);
    if (status != LP_OK)
        return status;
    *map = moved;
    if (!shared || known != NULL)
        return rec_own(r, moved) != NULL ? LP_OK : lp_fail_memory(err);
    return remember(r, word, key_bytes, hash, moved, *src_off - src_start, *dst_off - dst_start, err);
}

void rec_free_shapes(lp_recorder *r)
{
    for (int64_t i = 0; i < r->shape_count; i++)
        lp_map_free(r->shape[i].map, r->platform.alloc);
    lp_release(r->platform.alloc, r->shape);
    lp_release(r->platform.alloc, r->shape_table);
    lp_arena_free(&r->shape_arena);
}
