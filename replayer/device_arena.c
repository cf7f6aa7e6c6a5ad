/* SPDX-License-Identifier: Apache-2.0 */
/* First fit over a sorted list. There are at most as many free parts as taken ones and one more, and room for that many
 * is made when a part is taken, so that giving back cannot fail. */
#include "replayer/device_arena.h"

lp_status lp_arena_map_init(lp_arena_map *m, int64_t bytes, const lp_alloc *alloc, lp_error *err)
{
    *m = (lp_arena_map){.alloc = alloc, .bytes = bytes};
    if (!lp_grow(alloc, (void **)&m->part, &m->capacity, 2, sizeof *m->part))
        return lp_fail_memory(err);
    if (bytes > 0)
        m->part[m->count++] = (lp_arena_part){0, bytes};
    return LP_OK;
}

void lp_arena_map_free(lp_arena_map *m)
{
    lp_release(m->alloc, m->part);
    m->part = NULL;
}

bool lp_arena_map_fits(const lp_arena_map *m, int64_t bytes)
{
    for (int64_t i = 0; i < m->count; i++)
        if (m->part[i].bytes >= bytes)
            return true;
    return false;
}

lp_status lp_arena_map_take(lp_arena_map *m, int64_t bytes, int64_t *off, lp_error *err)
{
    *off = -1;
    if (!lp_grow(m->alloc, (void **)&m->part, &m->capacity, m->parts_out + 3, sizeof *m->part))
        return lp_fail_memory(err);
    for (int64_t i = 0; i < m->count; i++) {
        lp_arena_part *part = &m->part[i];
        if (part->bytes < bytes)
            continue;
        *off = part->off;
        part->off += bytes;
        part->bytes -= bytes;
        if (part->bytes == 0) {
            memmove(part, part + 1, (size_t)(m->count - i - 1) * sizeof *part);
            m->count--;
        }
        m->parts_out++;
        m->used += bytes;
        return LP_OK;
    }
    return LP_OK;
}

void lp_arena_map_give(lp_arena_map *m, int64_t off, int64_t bytes)
{
    int64_t low = 0, high = m->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (m->part[middle].off < off)
            low = middle + 1;
        else
            high = middle;
    }
    lp_arena_part *at = &m->part[low];
    const bool joins_left = low > 0 && at[-1].off + at[-1].bytes == off;
    const bool joins_right = low < m->count && off + bytes == at->off;
    m->parts_out--;
    m->used -= bytes;
    if (joins_left && joins_right) {
        at[-1].bytes += bytes + at->bytes;
        memmove(at, at + 1, (size_t)(m->count - low - 1) * sizeof *at);
        m->count--;
    } else if (joins_left) {
        at[-1].bytes += bytes;
    } else if (joins_right) {
        at->off = off;
        at->bytes += bytes;
    } else {
        memmove(at + 1, at, (size_t)(m->count - low) * sizeof *at);
        *at = (lp_arena_part){off, bytes};
        m->count++;
    }
}

void lp_arena_map_join(lp_arena_map *m, int64_t end)
{
    m->count = 0;
    if (end < m->bytes)
        m->part[m->count++] = (lp_arena_part){end, m->bytes - end};
}
