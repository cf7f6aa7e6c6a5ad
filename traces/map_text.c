/* SPDX-License-Identifier: Apache-2.0 */
/* What is read out of a map: its runs, its digest, one line of text. */
#include "traces/map_private.h"

#include <stdio.h>

int lp_map_walk(const lp_map *map, int (*run)(void *context, int64_t dst_off, int64_t src_off, int64_t count),
                void *context)
{
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *box = &map->box[b];
        int64_t digit[LP_MAP_RANK];
        for (int32_t m = 0; m < box->rank; m++)
            digit[m] = 0;
        int64_t dst_off = box->dst_off, src_off = box->src_off;
        for (;;) {
            const int stop = run(context, dst_off, src_off, box->run);
            if (stop != 0)
                return stop;
            int32_t m = box->rank - 1;
            for (; m >= 0; m--) {
                const lp_mode *mode = &box->mode[m];
                if (++digit[m] < mode->extent) {
                    dst_off += mode->dst_stride;
                    src_off += mode->src_stride;
                    break;
                }
                digit[m] = 0;
                dst_off -= (mode->extent - 1) * mode->dst_stride;
                src_off -= (mode->extent - 1) * mode->src_stride;
            }
            if (m < 0)
                break;
        }
    }
    return 0;
}

void lp_map_digest(const lp_map *map, uint8_t digest[32])
{
    lp_sha256 h;
    lp_sha256_begin(&h);
    lp_sha256_i64(&h, map->src_elem);
    lp_sha256_i64(&h, map->dst_elem);
    lp_sha256_i64(&h, map->nbox);
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *box = &map->box[b];
        lp_sha256_i64(&h, box->src_off);
        lp_sha256_i64(&h, box->dst_off);
        lp_sha256_i64(&h, box->run);
        lp_sha256_i64(&h, box->rank);
        for (int32_t m = 0; m < box->rank; m++) {
            lp_sha256_i64(&h, box->mode[m].extent);
            lp_sha256_i64(&h, box->mode[m].src_stride);
            lp_sha256_i64(&h, box->mode[m].dst_stride);
        }
    }
    if (!lp_sha256_end(&h, digest))
        memset(digest, 0, 32);
}

/* snprintf that appends and goes on counting behind the end of the buffer. */
typedef struct line {
    char *buffer;
    size_t capacity, length;
} line;

static void add(line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(line *l, const char *format, ...)
{
    char piece[128];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    const size_t bytes = n < 0 ? 0 : (size_t)n;
    if (l->length + 1 < l->capacity) {
        const size_t room = l->capacity - 1 - l->length;
        const size_t taken = bytes < room ? bytes : room;
        memcpy(l->buffer + l->length, piece, taken);
        l->buffer[l->length + taken] = '\0';
    }
    l->length += bytes;
}

size_t lp_map_text(const lp_map *map, char *buffer, size_t buffer_bytes)
{
    const bool are_bytes = map->dst_elem == 1 && map->src_elem <= 1;
    line l = {buffer, buffer_bytes, 0};
    if (buffer_bytes > 0)
        buffer[0] = '\0';
    if (map->nbox == 0)
        add(&l, "[]");
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *box = &map->box[b];
        add(&l, "%s[", b > 0 ? " " : "");
        if (map->src_elem != 0)
            add(&l, "s%lld,", (long long)box->src_off);
        add(&l, "d%lld", (long long)box->dst_off);
        for (int32_t m = 0; m < box->rank; m++) {
            add(&l, " (%lld:", (long long)box->mode[m].extent);
            if (map->src_elem != 0)
                add(&l, "s%lld,", (long long)box->mode[m].src_stride);
            add(&l, "d%lld)", (long long)box->mode[m].dst_stride);
        }
        add(&l, " run %lld", (long long)box->run);
        if (!are_bytes)
            add(&l, " of %d", map->dst_elem);
        if (!are_bytes && map->src_elem != 0)
            add(&l, " from %d", map->src_elem);
        add(&l, "]");
    }
    return l.length;
}
