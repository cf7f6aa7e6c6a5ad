/* SPDX-License-Identifier: Apache-2.0 */
/* Maps made by hand for the tests of the coverage sweep. Included by test programs only. */
#ifndef LOADPLAN_COVER_TESTING_H
#define LOADPLAN_COVER_TESTING_H

#include "traces/base.h"
#include "traces/cover.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BOXES_MAX = 4, MODES_MAX = 6 };

typedef struct shape {
    lp_map map;
    lp_box box[BOXES_MAX];
    lp_mode mode[BOXES_MAX][MODES_MAX];
} shape;

static inline void put_box(shape *s, int64_t off, int64_t run, int n, const int64_t (*modes)[2])
{
    const int b = s->map.nbox++;
    for (int i = 0; i < n; i++)
        s->mode[b][i] = (lp_mode){.extent = modes[i][0], .dst_stride = modes[i][1]};
    s->box[b] = (lp_box){.dst_off = off, .run = run, .rank = n, .mode = s->mode[b]};
    s->map.box = s->box;
    s->map.dst_elem = 1;
}

#define BOX(s, off, run, ...)                                                                                          \
    put_box(s, off, run, (int)(sizeof((const int64_t[][2])__VA_ARGS__) / sizeof(int64_t[2])),                          \
            (const int64_t[][2])__VA_ARGS__)

static inline shape whole(int64_t bytes)
{
    shape s = {0};
    put_box(&s, 0, bytes, 0, NULL);
    return s;
}

static inline void rebase(shape *s) /* after a copy of the struct */
{
    s->map.box = s->box;
    for (int b = 0; b < s->map.nbox; b++)
        s->box[b].mode = s->mode[b];
}

#endif
