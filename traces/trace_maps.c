/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interned maps. Loaders repeat themselves: every expert of every layer is moved by the same few byte functions at
 * other offsets. A pool therefore keeps one copy of each map, moved to (0, 0); a record adds its two offsets.
 */
#include "traces/trace_private.h"

#include <xxhash.h>

void lp_map_pool_init(lp_map_pool *pool, const lp_alloc *alloc)
{
    *pool = (lp_map_pool){.alloc = alloc};
    lp_arena_init(&pool->arena, alloc);
}

void lp_map_pool_free(lp_map_pool *pool)
{
    lp_arena_free(&pool->arena);
    lp_release(pool->alloc, pool->entry);
    lp_release(pool->alloc, pool->table);
    lp_release(pool->alloc, pool->digest);
    lp_release(pool->alloc, pool->has_digest);
    lp_map_pool_init(pool, pool->alloc);
}

/* Hash of the map as it will be once it is moved to (0, 0). */
static uint64_t hash_moved(const lp_map *map)
{
    const lp_box *first = &map->box[0];
    const int32_t kind[3] = {map->src_elem, map->dst_elem, map->nbox};
    uint64_t hash = lp_table_hash(kind, sizeof kind); /* a secret seed for what follows */
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *box = &map->box[b];
        const int64_t head[4] = {box->src_off - first->src_off, box->dst_off - first->dst_off, box->run, box->rank};
        hash = XXH3_64bits_withSeed(head, sizeof head, hash);
        if (box->rank > 0)
            hash = XXH3_64bits_withSeed(box->mode, (size_t)box->rank * sizeof *box->mode, hash);
    }
    return hash;
}

/* Whether `pooled` is `map` moved to (0, 0). */
static bool equal_moved(const lp_map *pooled, const lp_map *map)
{
    if (pooled->src_elem != map->src_elem || pooled->dst_elem != map->dst_elem || pooled->nbox != map->nbox ||
        pooled->nmode != map->nmode)
        return false;
    const int64_t src_off = map->box[0].src_off, dst_off = map->box[0].dst_off;
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *p = &pooled->box[b], *m = &map->box[b];
        if (p->src_off != m->src_off - src_off || p->dst_off != m->dst_off - dst_off || p->run != m->run ||
            p->rank != m->rank)
            return false;
        if (p->rank > 0 && memcmp(p->mode, m->mode, (size_t)p->rank * sizeof *p->mode) != 0)
            return false;
    }
    return true;
}

/* Copies header, boxes and modes to `block` and moves the copy by (-src_off, -dst_off). */
static void copy_map(lp_map *out, lp_box *box, lp_mode *mode, const lp_map *map, int64_t src_off, int64_t dst_off)
{
    *out = *map;
    out->box = box;
    for (int32_t b = 0; b < map->nbox; b++) {
        box[b] = map->box[b];
        box[b].src_off -= src_off;
        box[b].dst_off -= dst_off;
        box[b].mode = mode;
        if (box[b].rank > 0)
            memcpy(mode, map->box[b].mode, (size_t)box[b].rank * sizeof *mode);
        mode += box[b].rank;
    }
    if (map->nbox > 0) {
        if (map->src_elem != 0) {
            out->src_lo -= src_off;
            out->src_hi -= src_off;
        }
        out->dst_lo -= dst_off;
        out->dst_hi -= dst_off;
    }
}

const lp_map *lp_arena_map(lp_arena *arena, const lp_map *map)
{
    lp_map *out = lp_arena_get(arena, sizeof *out);
    lp_box *box = lp_arena_get(arena, (size_t)map->nbox * sizeof *box);
    lp_mode *mode = lp_arena_get(arena, (size_t)map->nmode * sizeof *mode);
    if (out == NULL || box == NULL || mode == NULL)
        return NULL;
    copy_map(out, box, mode, map, 0, 0);
    return out;
}

static bool enlarge_table(lp_map_pool *pool)
{
    const int64_t size = pool->table_size == 0 ? 64 : pool->table_size * 2;
    uint32_t *table = lp_allocate_zero(pool->alloc, (size_t)size * sizeof *table);
    if (table == NULL)
        return false;
    lp_release(pool->alloc, pool->table);
    pool->table = table;
    pool->table_size = size;
    for (int64_t n = 0; n < pool->count; n++) {
        uint64_t i = pool->entry[n]->hash & (uint64_t)(size - 1);
        while (table[i] != 0)
            i = (i + 1) & (uint64_t)(size - 1);
        table[i] = (uint32_t)n + 1;
    }
    return true;
}

static lp_pooled_map *append(lp_map_pool *pool, const lp_map *map, uint64_t hash)
{
    if (!lp_grow(pool->alloc, (void **)&pool->entry, &pool->capacity, pool->count + 1, sizeof *pool->entry))
        return NULL;
    lp_pooled_map *entry = lp_arena_get(&pool->arena, sizeof *entry);
    lp_box *box = lp_arena_get(&pool->arena, (size_t)map->nbox * sizeof *box);
    lp_mode *mode = lp_arena_get(&pool->arena, (size_t)map->nmode * sizeof *mode);
    if (entry == NULL || box == NULL || mode == NULL)
        return NULL;
    copy_map(&entry->map, box, mode, map, map->box[0].src_off, map->box[0].dst_off);
    entry->number = (uint32_t)pool->count;
    entry->hash = hash;
    entry->kind = lp_record_kind(&entry->map, LP_DTYPE_NONE, LP_DTYPE_NONE);
    pool->entry[pool->count++] = entry;
    return entry;
}

lp_status lp_map_pool_add(lp_map_pool *pool, const lp_map *map, const lp_map **out, int64_t *src_off, int64_t *dst_off,
                          lp_error *err)
{
    if (map->nbox < 1)
        return lp_fail(err, LP_E_ARGUMENT, "a map without boxes cannot be shared");
    if (pool->count >= UINT32_MAX - 1)
        return lp_fail(err, LP_E_LIMIT, "more than 4,294,967,294 different maps in one trace");
    if (pool->count * 2 >= pool->table_size && !enlarge_table(pool))
        return lp_fail_memory(err);
    const uint64_t hash = hash_moved(map), mask = (uint64_t)pool->table_size - 1;
    uint64_t i = hash & mask;
    lp_pooled_map *found = NULL;
    for (; pool->table[i] != 0 && found == NULL; i = (i + 1) & mask) {
        lp_pooled_map *entry = pool->entry[pool->table[i] - 1];
        if (entry->hash == hash && equal_moved(&entry->map, map))
            found = entry;
    }
    if (found == NULL) {
        found = append(pool, map, hash);
        if (found == NULL)
            return lp_fail_memory(err);
        pool->table[i] = found->number + 1;
    }
    *out = &found->map;
    *src_off = map->box[0].src_off;
    *dst_off = map->box[0].dst_off;
    return LP_OK;
}

static const lp_pooled_map *pooled_of(const lp_map *map)
{
    return (const lp_pooled_map *)map;
}

uint32_t lp_pooled_number(const lp_map *pooled)
{
    return pooled_of(pooled)->number;
}

lp_kind lp_pooled_kind(const lp_map *pooled, lp_dtype src_dtype, lp_dtype dst_dtype)
{
    const lp_kind kind = pooled_of(pooled)->kind;
    if (kind == LP_KIND_FILL || (src_dtype == LP_DTYPE_NONE && dst_dtype == LP_DTYPE_NONE))
        return kind;
    return lp_record_kind(pooled, src_dtype, dst_dtype);
}

const uint8_t *lp_map_pool_digest(lp_map_pool *pool, const lp_map *pooled)
{
    const uint32_t number = lp_pooled_number(pooled);
    if (number >= pool->digest_capacity) {
        const int64_t old = pool->digest_capacity;
        int64_t capacity = old, flags = old;
        if (!lp_grow(pool->alloc, (void **)&pool->digest, &capacity, pool->count, sizeof *pool->digest) ||
            !lp_grow(pool->alloc, (void **)&pool->has_digest, &flags, pool->count, sizeof *pool->has_digest))
            return NULL;
        pool->digest_capacity = capacity < flags ? capacity : flags;
        memset(pool->has_digest + old, 0, (size_t)(pool->digest_capacity - old) * sizeof *pool->has_digest);
    }
    if (!pool->has_digest[number]) {
        lp_map_digest(pooled, pool->digest[number]);
        pool->has_digest[number] = true;
    }
    return pool->digest[number];
}
