/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of the byte map tests: a byte function as a plain list of (destination, source) pairs, one a unit, sorted
 * by destination, and the canonical cut of such a list by the letter of docs/canonical-form.md. Nothing here is clever,
 * and nothing of it is taken from the library.
 */
#ifndef LOADPLAN_TEST_MAP_ORACLE_H
#define LOADPLAN_TEST_MAP_ORACLE_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "traces/trace.h"
#include "tests/random_numbers.h"

/* ---- random numbers ---- */

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r)
{
    return random_next(&r->state);
}

/* lo .. hi, both included */
static inline int64_t rng_between(rng *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(rng_next(r) % (uint64_t)(hi - lo + 1));
}

static inline bool rng_chance(rng *r, int percent)
{
    return rng_between(r, 0, 99) < percent;
}

/* A count from the environment, or the default. */
static inline int64_t count_from(const char *name, int64_t usual)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoll(text, NULL, 0) : usual;
}

/* ---- byte functions ---- */

enum { ORACLE_UNITS = 1 << 16 };

typedef struct pair {
    int64_t dst, src;
} pair;

typedef struct function {
    pair *at;
    int64_t count, capacity; /* at most ORACLE_UNITS */
    int32_t src_elem, dst_elem;
} function;

static inline function function_new(int32_t src_elem, int32_t dst_elem)
{
    return (function){malloc(sizeof(pair)), 0, 1, src_elem, dst_elem};
}

static inline void function_free(function *f)
{
    free(f->at);
    f->at = NULL;
}

static inline void function_add(function *f, int64_t dst, int64_t src)
{
    if (f->count == f->capacity) {
        f->capacity = f->capacity < 64 ? 64 : f->capacity * 2;
        f->at = f->capacity <= ORACLE_UNITS ? realloc(f->at, (size_t)f->capacity * sizeof *f->at) : NULL;
    }
    if (f->at == NULL)
        abort();
    f->at[f->count++] = (pair){dst, f->src_elem == 0 ? 0 : src};
}

static inline int pair_order(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return x->dst < y->dst ? -1 : x->dst > y->dst;
}

/* Sorts; false when two units overlap. */
static inline bool function_sort(function *f)
{
    qsort(f->at, (size_t)f->count, sizeof *f->at, pair_order);
    for (int64_t i = 1; i < f->count; i++)
        if (f->at[i].dst < f->at[i - 1].dst + f->dst_elem)
            return false;
    return true;
}

static inline int function_add_run(void *context, int64_t dst, int64_t src, int64_t count)
{
    function *f = context;
    for (int64_t i = 0; i < count; i++)
        function_add(f, dst + i * f->dst_elem, src + i * f->src_elem);
    return 0;
}

static inline function function_of_map(const lp_map *map)
{
    function f = function_new(map->src_elem, map->dst_elem);
    lp_map_walk(map, function_add_run, &f);
    return f;
}

static inline bool function_equal(const function *a, const function *b)
{
    if (a->src_elem != b->src_elem || a->dst_elem != b->dst_elem || a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->at[i].dst != b->at[i].dst || a->at[i].src != b->at[i].src)
            return false;
    return true;
}

/* ---- the canonical cut, by definition ---- */

typedef struct oracle_box {
    int64_t dst, src, run;
    int rank;
    lp_mode mode[64]; /* innermost first */
} oracle_box;

/* Whether unit i continues unit i - 1. */
static inline bool continues(const function *f, int64_t i)
{
    return f->at[i].dst == f->at[i - 1].dst + f->dst_elem && f->at[i].src == f->at[i - 1].src + f->src_elem;
}

/* Units that the canonical box at unit `p` takes. */
static inline int64_t oracle_box_at(const function *f, int64_t p, oracle_box *box)
{
    const pair *u = f->at + p;
    const int64_t left = f->count - p;
    int64_t size[65];
    *box = (oracle_box){.dst = u[0].dst, .src = u[0].src, .run = 1};
    while (box->run < left && continues(f, p + box->run))
        box->run++;
    size[0] = box->run;
    for (;;) {
        const int64_t c = size[box->rank];
        if (c >= left)
            break;
        const int64_t dst = u[c].dst - u[0].dst, src = u[c].src - u[0].src;
        int64_t copies = 1;
        for (; (copies + 1) * c <= left; copies++) {
            int64_t t = 0;
            while (t < c && u[copies * c + t].dst - u[t].dst == copies * dst &&
                   u[copies * c + t].src - u[t].src == copies * src)
                t++;
            if (t < c)
                break;
        }
        if (copies < 2)
            break;
        box->mode[box->rank++] = (lp_mode){copies, src, dst};
        size[box->rank] = c * copies;
    }
    int64_t taken = size[box->rank];
    if (taken < left && continues(f, p + taken)) {
        for (int level = box->rank; level > 0; level--) {
            taken = size[level] - size[level - 1];
            if (continues(f, p + taken))
                continue;
            box->rank = level;
            if (--box->mode[level - 1].extent == 1)
                box->rank--;
            break;
        }
    }
    return taken;
}

/* Fails the test when `map` is not the canonical form of `f`. */
static inline bool is_canonical(const lp_map *map, const function *f)
{
    int64_t p = 0;
    int32_t b = 0;
    for (; p < f->count; b++) {
        oracle_box want;
        p += oracle_box_at(f, p, &want);
        if (b >= map->nbox)
            return false;
        const lp_box *box = &map->box[b];
        if (box->dst_off != want.dst || box->src_off != want.src || box->run != want.run || box->rank != want.rank)
            return false;
        for (int m = 0; m < want.rank; m++) {
            const lp_mode *have = &box->mode[want.rank - 1 - m];
            if (have->extent != want.mode[m].extent || have->dst_stride != want.mode[m].dst_stride ||
                have->src_stride != want.mode[m].src_stride)
                return false;
        }
    }
    return b == map->nbox;
}

/* What a map says about itself besides its boxes. */
static inline bool has_right_bounds(const lp_map *map, const function *f)
{
    int64_t dst_lo = 0, dst_hi = 0, src_lo = 0, src_hi = 0;
    int32_t nmode = 0;
    for (int64_t i = 0; i < f->count; i++) {
        const pair u = f->at[i];
        if (i == 0) {
            dst_lo = u.dst;
            src_lo = src_hi = u.src;
        }
        dst_hi = u.dst + f->dst_elem;
        src_lo = u.src < src_lo ? u.src : src_lo;
        src_hi = u.src + f->src_elem > src_hi ? u.src + f->src_elem : src_hi;
    }
    for (int32_t b = 0; b < map->nbox; b++)
        nmode += map->box[b].rank;
    return map->dst_lo == dst_lo && map->dst_hi == dst_hi && map->src_lo == src_lo && map->src_hi == src_hi &&
           map->dst_bytes == f->count * f->dst_elem && map->nmode == nmode;
}

static inline void print_map(const char *title, const lp_map *map)
{
    char text[2000];
    lp_map_text(map, text, sizeof text);
    print_message("%s: %s\n", title, text);
}

#define MUST(condition, seed)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_message("seed %" PRIu64 "\n", (uint64_t)(seed));                                                     \
            fail_msg("%s", #condition);                                                                                \
        }                                                                                                              \
    } while (0)

#endif
