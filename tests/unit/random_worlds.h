/* SPDX-License-Identifier: Apache-2.0 */
/* Random worlds with fills, casts, replication, overlaps and derives, and random orders and splits of their tensors. */
#ifndef LOADPLAN_RANDOM_WORLDS_H
#define LOADPLAN_RANDOM_WORLDS_H

#include "replay_testing.h"

/* ---- random worlds ---- */

static inline void random_sources(world *w)
{
    static const lp_dtype dtype[] = {LP_F32, LP_BF16, LP_U8, LP_F32, LP_BF16};
    const int count = 3 + (int)pick(w, 6);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.layers.%d.t%d", i % 3, i);
        add_source(w, name, dtype[pick(w, 5)], 1 + pick(w, 6), 1 + pick(w, 6));
    }
    add_source(w, "twin.0", LP_F32, 2, 3);
    add_source(w, "twin.1", LP_F32, 2, 3);
}

/* Another source of the same type and shape, or i itself. */
static inline int twin_of(const world *w, int i)
{
    for (int j = 0; j < w->nsource; j++)
        if (j != i && w->source[j].dtype == w->source[i].dtype &&
            memcmp(w->source[j].shape, w->source[i].shape, sizeof w->source[i].shape) == 0)
            return j;
    return i;
}

/* Row-major or transposed, with gaps, sometimes at an offset of its storage. */
static inline void random_dests(world *w)
{
    static const lp_dtype dtype[] = {LP_F32, LP_F32, LP_BF16, LP_U8, LP_F32};
    const int count = 2 + (int)pick(w, 5);
    for (int i = 0; i < count; i++) {
        char name[32], group[32];
        snprintf(name, sizeof name, "layers.%d.d%d", i % 3, i);
        snprintf(group, sizeof group, "layers.%d", i % 3);
        const int64_t rows = 2 + pick(w, 6), columns = 1 + pick(w, 5);
        const int at = add_dest(w, name, dtype[pick(w, 5)], rows, columns, 0, group);
        dest *d = &w->dest[at];
        const int64_t e = elem(d->dtype);
        if (pick(w, 3) == 0) {
            d->stride[0] = e * (1 + pick(w, 2));
            d->stride[1] = d->stride[0] * (rows - 1) + e + e * pick(w, 3);
        } else {
            d->stride[1] = e * (1 + pick(w, 2));
            d->stride[0] = d->stride[1] * (columns - 1) + e + e * pick(w, 3);
        }
        d->offset = pick(w, 2) * 8;
        d->storage_bytes = d->offset + (rows - 1) * d->stride[0] + (columns - 1) * d->stride[1] + e + pick(w, 9);
    }
}

/* A source that can fill size elements of `to`, with steps inside it; false when this pick does not fit. */
static inline bool random_read(world *w, call *c)
{
    const source *s = &w->source[c->source];
    const dest *d = &w->dest[c->dest];
    const int64_t count = s->shape[0] * s->shape[1];
    if (s->dtype != d->dtype && lp_cast_kind_of(s->dtype, d->dtype) != LP_CAST_VALUES)
        return false;
    if (s->dtype != d->dtype && (s->dtype == LP_U8 || d->dtype == LP_U8))
        return false; /* values out of range have no place in this test */
    c->src_step[0] = pick(w, 3) == 0 ? 0 : pick(w, s->shape[1] + 1);
    c->src_step[1] = pick(w, 3);
    const int64_t reach = (c->size[0] - 1) * c->src_step[0] + (c->size[1] - 1) * c->src_step[1];
    if (reach >= count)
        return false;
    c->src_at = pick(w, count - reach);
    return true;
}

/* Disjoint row bands of every destination, each written by a name or filled, and now and then a second write. */
static inline void random_calls(world *w, bool with_overlaps)
{
    call list[CALLS_MAX];
    int count = 0;
    for (int d = 0; d < w->ndest; d++) {
        for (int64_t row = 0; row < w->dest[d].shape[0] && count < 40;) {
            int64_t rows = 1 + pick(w, 3);
            rows = rows < w->dest[d].shape[0] - row ? rows : w->dest[d].shape[0] - row;
            call c = {.dest = d, .dst_at = {row, 0}, .size = {rows, w->dest[d].shape[1]}, .source = -1};
            const int64_t kind = pick(w, 8);
            row += rows;
            if (kind == 0)
                continue; /* bytes that nobody owns */
            c.bits = next_random(w) & (pick(w, 2) != 0 ? 0x0101u : 0x3f800000u);
            c.trigger = kind == 1 ? -1 : (int)pick(w, w->nsource);
            if (kind > 2) {
                int tries = 20;
                do {
                    c.source = c.trigger = (int)pick(w, w->nsource);
                } while (!random_read(w, &c) && --tries > 0);
                c.source = tries > 0 ? c.source : -1;
            }
            list[count++] = c;
            if (with_overlaps && pick(w, 4) == 0 && c.trigger >= 0) { /* the same rows by another name */
                call again = c;
                again.trigger = (int)pick(w, w->nsource);
                again.source = -1;
                again.bits = 0x7777;
                if (again.trigger != c.trigger)
                    list[count++] = again;
            }
        }
    }
    for (int s = -1; s < w->nsource; s++) /* a loader goes name by name */
        for (int i = 0; i < count; i++)
            if (list[i].trigger == s)
                w->call[w->ncall++] = list[i];
}

static inline void random_derives(world *w)
{
    for (int i = 0; i < w->ndest - 1 && w->nderive < 3; i++) {
        const dest *from = &w->dest[i];
        if (from->dtype != LP_F32 || pick(w, 2) == 0 || w->ndest >= DESTS_MAX - 2)
            continue;
        char name[32], group[32];
        snprintf(group, sizeof group, "%s", from->group);
        snprintf(name, sizeof name, "layers.%d.max%d", (int)pick(w, 3), i);
        const int to = add_dest(w, name, LP_F32, 1, 1, 0, group);
        w->derive[w->nderive++] = (derive){DERIVE_MAX, to, i, -1};
    }
    for (int i = 0; i < w->nsource && w->nderive < DERIVES_MAX - 1; i++) {
        const source *s = &w->source[i];
        if (s->dtype != LP_F32 || pick(w, 2) == 0 || w->ndest >= DESTS_MAX)
            continue;
        char name[32];
        snprintf(name, sizeof name, "layers.%d.exp%d", (int)pick(w, 3), i);
        const int to = add_dest(w, name, LP_F32, s->shape[0], s->shape[1], 4, "layers.1");
        w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, to, -1, i};
        if (w->ndest < DESTS_MAX && pick(w, 2) == 0) { /* a chain: reads the result of the other */
            snprintf(name, sizeof name, "layers.%d.sum%d", (int)pick(w, 3), i);
            const int sum = add_dest(w, name, LP_F32, s->shape[0], s->shape[1], 0, "layers.2");
            w->derive[w->nderive++] = (derive){DERIVE_ADD, sum, to, twin_of(w, i)};
        }
    }
}

static inline void random_world(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = seed;
    random_sources(w);
    random_dests(w);
    random_calls(w, seed % 2 == 0);
    random_derives(w);
    build_world(w, NULL);
}

/* Casts, overlaps, staged and chained derives, two groups. */
static inline void rich_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->random = 5;
    const int a = add_source(w, "a", LP_F32, 4, 4), b = add_source(w, "b", LP_BF16, 4, 4);
    const int c = add_source(w, "c", LP_F32, 2, 3), d = add_source(w, "d", LP_F32, 2, 3);
    const int one = add_dest(w, "layers.0.one", LP_F32, 4, 4, 4, "layers.0");
    const int two = add_dest(w, "layers.1.two", LP_F32, 4, 4, 0, "layers.1");
    add_fill(w, -1, one, 3, 1, 0x3f800000);
    add_copy(w, a, one, 0, 3, 0);
    add_copy(w, b, two, 0, 4, 0);
    add_copy(w, c, add_dest(w, "layers.1.three", LP_F32, 2, 3, 0, "layers.1"), 0, 2, 0);
    w->call[w->ncall++] = (call){.source = -1, .trigger = d, .dest = one, .dst_at = {1, 0}, .size = {1, 4}, .bits = 7};
    const int exp = add_dest(w, "layers.0.exp", LP_F32, 2, 3, 0, "layers.0");
    w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, exp, -1, c};
    w->derive[w->nderive++] = (derive){DERIVE_ADD, add_dest(w, "layers.0.sum", LP_F32, 2, 3, 0, "layers.0"), exp, d};
    w->derive[w->nderive++] = (derive){DERIVE_MAX, add_dest(w, "layers.1.max", LP_F32, 1, 1, 0, "layers.1"), two, -1};
    build_world(w, NULL);
}

/* ---- orders and splits ---- */

/* Pieces of all tensors in one random order. */
typedef struct piece {
    int source;
    int64_t lo, hi;
} piece;

static inline int cut_pieces(world *w, piece *list, int most, bool is_whole)
{
    int count = 0;
    for (int i = 0; i < w->nsource; i++) {
        for (int64_t lo = 0; lo < w->source[i].bytes && count < most;) {
            int64_t hi = is_whole || count > most / 2 ? w->source[i].bytes : lo + 1 + pick(w, 40);
            hi = hi < w->source[i].bytes ? hi : w->source[i].bytes;
            list[count++] = (piece){i, lo, hi};
            lo = hi;
        }
    }
    for (int i = count - 1; i > 0; i--) {
        const int j = (int)pick(w, i + 1);
        const piece keep = list[i];
        list[i] = list[j];
        list[j] = keep;
    }
    return count;
}

#endif
