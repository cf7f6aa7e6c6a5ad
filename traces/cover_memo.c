/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memo of the coverage sweep: clean problems under keys that hold all of them, scratch memory, and the work that is
 * left. Two problems are the same when target, maps and places are; tags play no part.
 */
#include "traces/cover_private.h"

#include <stdlib.h>

enum { MEMO_BYTES_MAX = 64 << 20, KEY_HEAD = 2, KEY_PER_ITEM = 3, SMALL_SORT = 64 };

lp_status lp_cover_memo_new(lp_cover_memo **out, const lp_alloc *alloc, lp_error *err)
{
    lp_cover_memo *m = lp_allocate_zero(alloc, sizeof(*m));
    if (!m)
        return lp_fail_memory(err);
    m->alloc = alloc;
    m->grid.alloc = alloc;
    m->work_left = LP_COVER_WORK_MAX;
    lp_arena_init(&m->arena, alloc);
    *out = m;
    return LP_OK;
}

void lp_cover_memo_limit(lp_cover_memo *m, int64_t visits)
{
    m->work_left = m->work_left < visits ? m->work_left : visits;
}

void lp_cover_memo_free(lp_cover_memo *m)
{
    if (!m)
        return;
    lp_cover_grid_free(&m->grid);
    lp_release(m->alloc, m->entry);
    lp_release(m->alloc, m->active);
    lp_release(m->alloc, m->item);
    lp_release(m->alloc, m->box);
    lp_release(m->alloc, m->word);
    lp_release(m->alloc, m->table);
    lp_arena_free(&m->arena);
    lp_release(m->alloc, m);
}

static lp_cover_key *memo_slot(lp_cover_key *table, int64_t capacity, const lp_cover_key *key)
{
    uint64_t at = key->hash & (uint64_t)(capacity - 1);
    for (; table[at].word; at = (at + 1) & (uint64_t)(capacity - 1))
        if (table[at].hash == key->hash && table[at].words == key->words &&
            memcmp(table[at].word, key->word, (size_t)key->words * sizeof(int64_t)) == 0)
            break;
    return &table[at];
}

bool lp_cover_memo_has(const lp_cover_memo *m, const lp_cover_key *key)
{
    return m->count > 0 && memo_slot(m->table, m->capacity, key)->word;
}

lp_status lp_cover_memo_add(lp_cover_memo *m, const lp_cover_key *key, lp_error *err)
{
    const int64_t bytes = key->words * (int64_t)sizeof(int64_t);
    if (bytes > MEMO_BYTES_MAX - m->stored_bytes)
        return LP_OK;
    if ((m->count + 1) * 2 > m->capacity) {
        const int64_t capacity = m->capacity ? m->capacity * 2 : 64;
        lp_cover_key *table = lp_allocate_zero(m->alloc, (size_t)capacity * sizeof(*table));
        if (!table)
            return lp_fail_memory(err);
        for (int64_t i = 0; i < m->capacity; i++)
            if (m->table[i].word)
                *memo_slot(table, capacity, &m->table[i]) = m->table[i];
        lp_release(m->alloc, m->table);
        m->table = table;
        m->capacity = capacity;
    }
    const int64_t *word = lp_arena_copy(&m->arena, key->word, (size_t)bytes);
    if (!word)
        return lp_fail_memory(err);
    *memo_slot(m->table, m->capacity, key) = (lp_cover_key){word, key->words, key->hash};
    m->stored_bytes += bytes;
    m->count++;
    return LP_OK;
}

/* ---- the problem in a fixed order ---- */

static int compare_items(const void *pa, const void *pb)
{
    const lp_cover_item *a = pa, *b = pb;
    if (a->dst_off != b->dst_off)
        return a->dst_off < b->dst_off ? -1 : 1;
    if (a->map != b->map)
        return (uintptr_t)a->map < (uintptr_t)b->map ? -1 : 1;
    if (a->loose != b->loose)
        return a->loose ? 1 : -1;
    return (a->tag > b->tag) - (a->tag < b->tag);
}

void lp_cover_sort_items(lp_cover_item *item, int64_t count)
{
    if (count > SMALL_SORT) {
        qsort(item, (size_t)count, sizeof(*item), compare_items);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        const lp_cover_item moving = item[i];
        int64_t j = i;
        for (; j > 0 && compare_items(&item[j - 1], &moving) > 0; j--)
            item[j] = item[j - 1];
        item[j] = moving;
    }
}

lp_status lp_cover_build_key(lp_cover_memo *m, lp_cover_key *key, const lp_map *target, int64_t count, lp_error *err)
{
    int64_t words = KEY_HEAD + count * KEY_PER_ITEM;
    for (int32_t b = 0; target && b < target->nbox; b++)
        words += 3 + 2 * (int64_t)target->box[b].rank;
    if (!lp_grow(m->alloc, (void **)&m->word, &m->word_capacity, words, sizeof(*m->word)))
        return lp_fail_memory(err);
    int64_t *w = m->word;
    *w++ = count;
    *w++ = target ? target->nbox : -1;
    for (int32_t b = 0; target && b < target->nbox; b++) {
        const lp_box *box = &target->box[b];
        *w++ = box->dst_off;
        *w++ = box->run * target->dst_elem;
        *w++ = box->rank;
        for (int32_t k = 0; k < box->rank; k++) {
            *w++ = box->mode[k].extent;
            *w++ = box->mode[k].dst_stride;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        *w++ = (int64_t)(intptr_t)m->item[i].map;
        *w++ = m->item[i].dst_off;
        *w++ = m->item[i].loose;
    }
    *key = (lp_cover_key){m->word, w - m->word, 0};
    key->hash = lp_hash(key->word, (size_t)key->words * sizeof(int64_t));
    return LP_OK;
}
