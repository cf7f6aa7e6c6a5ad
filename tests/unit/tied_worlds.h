/* SPDX-License-Identifier: Apache-2.0 */
/* Random worlds of one storage: tied destinations of several dtypes over the same bytes, and writes of many names to
 * parts of each other's elements. */
#ifndef LOADPLAN_TIED_WORLDS_H
#define LOADPLAN_TIED_WORLDS_H

#include "replay_testing.h"

enum { TIED_BYTES = 40 };

/* Bytes of storage "s" as a matrix of `columns`, from `offset` on; all but the first are tied to it. */
static inline int add_view(world *w, const char *name, lp_dtype dtype, int64_t columns, int64_t offset)
{
    const int64_t row = columns * elem(dtype);
    const int i = add_dest(w, name, dtype, (TIED_BYTES - offset) / row, columns, 0, "g");
    snprintf(w->dest[i].storage, sizeof w->dest[i].storage, "s");
    w->dest[i].offset = offset;
    w->dest[i].storage_bytes = TIED_BYTES;
    w->dest[i].flags = i > 0 ? LP_DEST_TIED : 0;
    return i;
}

/* A few elements of a destination, by a name or by a fill that it triggers. */
static inline void random_write(world *w)
{
    const dest *d = &w->dest[pick(w, w->ndest)];
    call c = {.dest = (int)(d - w->dest), .source = -1};
    for (int k = 0; k < 2; k++) {
        c.dst_at[k] = pick(w, d->shape[k]);
        c.size[k] = 1 + pick(w, d->shape[k] - c.dst_at[k]);
    }
    c.trigger = (int)pick(w, w->nsource + 1) - 1;
    c.bits = next_random(w) >> (64 - 8 * elem(d->dtype));
    if (c.trigger >= 0 && pick(w, 4) != 0) {
        const source *s = &w->source[c.trigger];
        const int64_t steps[2] = {pick(w, 2) * s->shape[1], pick(w, 3)};
        if ((s->dtype == LP_U8) == (d->dtype == LP_U8) &&
            (c.size[0] - 1) * steps[0] + (c.size[1] - 1) * steps[1] < s->shape[0] * s->shape[1]) {
            c.source = c.trigger;
            c.src_step[0] = steps[0];
            c.src_step[1] = steps[1];
        }
    }
    w->call[w->ncall++] = c;
}

static inline void random_storage(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = seed;
    add_source(w, "wide", LP_F32, 10, 5);
    add_source(w, "half", LP_BF16, 10, 5);
    add_source(w, "bytes", LP_U8, 8, TIED_BYTES);
    add_source(w, "more", LP_U8, 8, TIED_BYTES);
    add_source(w, "late", LP_F32, 10, 5);
    add_view(w, "f32", LP_F32, 2 + pick(w, 3), 0);
    add_view(w, "u8", LP_U8, 1 + pick(w, 7), pick(w, 4));
    add_view(w, "bf16", LP_BF16, 1 + pick(w, 4), 2 * pick(w, 3));
    const int64_t count = 2 + pick(w, 8);
    for (int64_t i = 0; i < count; i++)
        random_write(w);
    build_world(w, NULL);
}

#endif
