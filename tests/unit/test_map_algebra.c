/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composition, inverse, subtract, intersect, source range and shift against functions handled unit by unit.
 * Environment: LP_TEST_SEED, LP_TEST_ROUNDS.
 */
#include "map_oracle.h"

/* A random nested or multi-box function with destinations in about [0, 300) and sources likewise. */
static const lp_map *random_map(rng *r, int32_t src_elem, int32_t dst_elem, function *f)
{
    lp_box box[4];
    lp_mode mode[4][4];
    int64_t dst = rng_between(r, 0, 8) * dst_elem;
    const int count = rng_chance(r, 60) ? 1 : (int)rng_between(r, 2, 4);
    const int64_t base = 40 * src_elem;
    for (int b = 0; b < count; b++) {
        int64_t span, run = rng_between(r, 1, 6), inner = run;
        box[b] = (lp_box){base + rng_between(r, 0, 60) * src_elem, dst, run, (int32_t)rng_between(r, 0, 3), mode[b]};
        span = run * dst_elem;
        for (int m = box[b].rank - 1; m >= 0; m--) {
            const int64_t extent = rng_between(r, 2, 4);
            const int64_t step = span + (rng_chance(r, 50) ? 0 : rng_between(r, 0, 4) * dst_elem);
            const int64_t src = rng_chance(r, 60) ? inner * src_elem : rng_between(r, -4, 12) * src_elem;
            mode[b][m] = (lp_mode){extent, src, step};
            span += (extent - 1) * step;
            inner *= extent;
        }
        dst += span + (rng_chance(r, 50) ? 0 : rng_between(r, 0, 9) * dst_elem);
    }
    const lp_map *map;
    lp_error err = {0};
    if (lp_map_from_boxes(&map, src_elem, dst_elem, count, box, NULL, &err) != LP_OK)
        fail_msg("%s", err.text);
    *f = function_of_map(map);
    return map;
}

static const pair *find_dst(const function *f, int64_t dst)
{
    const pair key = {dst, 0};
    return bsearch(&key, f->at, (size_t)f->count, sizeof key, pair_order);
}

/* Whether some unit of `f` covers byte `at`. */
static bool covers(const function *f, int64_t at)
{
    for (int32_t b = 0; b < f->dst_elem; b++)
        if (find_dst(f, at - b) != NULL)
            return true;
    return false;
}

static void must_be(const lp_map *map, const function *want, uint64_t seed)
{
    function g = function_of_map(map);
    if (!function_equal(want, &g) || !is_canonical(map, want))
        print_map("wrong", map);
    MUST(function_equal(want, &g), seed);
    MUST(is_canonical(map, want), seed);
    MUST(has_right_bounds(map, want), seed);
    function_free(&g);
}

/* Parts f by the bytes of g, shifted: units inside, units outside. False when a unit is cut. */
static bool part_units(const function *f, const function *g, int64_t shift, function *inside, function *outside)
{
    bool whole = true;
    for (int64_t i = 0; i < f->count; i++) {
        int covered = 0;
        for (int32_t b = 0; b < f->dst_elem; b++)
            covered += covers(g, f->at[i].dst + b - shift);
        if (covered == f->dst_elem)
            function_add(inside, f->at[i].dst, f->at[i].src);
        else if (covered == 0)
            function_add(outside, f->at[i].dst, f->at[i].src);
        else
            whole = false;
    }
    return whole;
}

static void parts_are_exact(void **state)
{
    (void)state;
    static const int32_t elems[][2] = {{1, 1}, {1, 1}, {1, 1}, {0, 1}, {0, 2}, {2, 4}, {4, 2}};
    const uint64_t seed = (uint64_t)count_from("LP_TEST_SEED", 1);
    const int64_t rounds = count_from("LP_TEST_ROUNDS", 3000);
    int64_t cut_units = 0;
    for (int64_t i = 0; i < rounds; i++) {
        const uint64_t own = seed * 1000003u + (uint64_t)i;
        rng r = {own};
        function f, g;
        const int64_t a = rng_between(&r, 0, 6), b = rng_between(&r, 0, 6);
        const lp_map *map = random_map(&r, elems[a][0], elems[a][1], &f);
        const lp_map *with = rng_chance(&r, 10) ? NULL : random_map(&r, elems[b][0], elems[b][1], &g);
        if (with == NULL) { /* against itself, perhaps shifted */
            with = map;
            g = function_of_map(map);
        }
        const int64_t shift = rng_chance(&r, 40) ? 0 : rng_between(&r, -60, 60) * f.dst_elem;
        function inside = function_new(f.src_elem, f.dst_elem), outside = function_new(f.src_elem, f.dst_elem);
        const bool whole = part_units(&f, &g, shift, &inside, &outside);
        const lp_map *in = NULL, *out = NULL;
        const lp_status got_in = lp_map_intersect(&in, map, with, shift, NULL, NULL);
        const lp_status got_out = lp_map_subtract(&out, map, with, shift, NULL, NULL);
        MUST(got_in == got_out, own);
        if (!whole)
            MUST(got_in == LP_E_UNSUPPORTED, own);
        /* Where blocks of the other map touch inside a unit, the library may refuse too. */
        if (f.dst_elem == 1)
            MUST(got_in == LP_OK, own);
        if (got_in == LP_OK) {
            must_be(in, &inside, own);
            must_be(out, &outside, own);
        } else {
            cut_units++;
        }
        lp_map_free(in, NULL);
        lp_map_free(out, NULL);
        if (with != map)
            lp_map_free(with, NULL);
        lp_map_free(map, NULL);
        function_free(&f);
        function_free(&g);
        function_free(&inside);
        function_free(&outside);
    }
    assert_true(cut_units < rounds / 2);
}

/* outer o inner by units of bytes; a result unit is one of `unit` bytes. False: something is not written or cut. */
static bool compose_units(const function *outer, const function *inner, function *out, bool *cut)
{
    *cut = false;
    if (outer->dst_elem == 1 && outer->src_elem == 1 && inner->dst_elem != 1) {
        /* whole elements only */
        const int64_t e = inner->dst_elem;
        for (int64_t i = 0; i < outer->count; i++)
            if (!covers(inner, outer->at[i].src))
                return false;
        for (int64_t i = 0; i < outer->count;) {
            const pair *from = find_dst(inner, outer->at[i].src);
            bool fits = from != NULL && i + e <= outer->count;
            for (int64_t b = 1; fits && b < e; b++)
                fits = outer->at[i + b].dst == outer->at[i].dst + b && outer->at[i + b].src == outer->at[i].src + b;
            if (!fits) {
                *cut = true;
                return false;
            }
            function_add(out, outer->at[i].dst, from->src);
            i += e;
        }
        return true;
    }
    for (int64_t i = 0; i < outer->count; i++) {
        const pair *first = find_dst(inner, outer->at[i].src);
        if (first == NULL)
            return false;
        for (int32_t b = 1; b < outer->src_elem && inner->dst_elem == 1; b++) {
            const pair *next = find_dst(inner, outer->at[i].src + b);
            if (next == NULL)
                return false;
            if (next->src != first->src + b)
                *cut = true;
        }
        function_add(out, outer->at[i].dst, first->src);
    }
    return !*cut;
}

static void compositions_are_exact(void **state)
{
    (void)state;
    const uint64_t seed = (uint64_t)count_from("LP_TEST_SEED", 1);
    const int64_t rounds = count_from("LP_TEST_ROUNDS", 3000);
    int64_t composed = 0;
    for (int64_t i = 0; i < rounds; i++) {
        const uint64_t own = seed * 1000033u + (uint64_t)i;
        rng r = {own};
        function f, g;
        const int64_t way = rng_between(&r, 0, 9);
        const int32_t casts[3][2] = {{2, 4}, {4, 2}, {0, 4}};
        const int64_t pick = rng_between(&r, 0, 2);
        const lp_map *inner = way == 0 ? random_map(&r, casts[pick][0], casts[pick][1], &f) : random_map(&r, 1, 1, &f);
        const lp_map *outer;
        if (way == 1) {
            outer = random_map(&r, casts[pick & 1][0], casts[pick & 1][1], &g);
        } else if (way < 5) { /* reads the inner destinations in another order: whole units of a few bytes */
            g = function_new(1, 1);
            const int64_t unit = way == 0 ? f.dst_elem : 1, skip = rng_between(&r, 1, 3);
            int64_t dst = 0;
            for (int64_t start = 0; start < skip; start++)
                for (int64_t k = start; k < f.count; k += skip)
                    for (int64_t b = 0; b < unit; b++)
                        function_add(&g, dst++, f.at[k].dst + b);
            lp_box *box = malloc((size_t)g.count * sizeof *box);
            for (int64_t k = 0; k < g.count; k++)
                box[k] = (lp_box){g.at[k].src, g.at[k].dst, 1, 0, NULL};
            MUST(lp_map_from_boxes(&outer, 1, 1, (int32_t)g.count, box, NULL, NULL) == LP_OK, own);
            free(box);
        } else {
            const lp_map *raw = random_map(&r, 1, 1, &g);
            /* move its sources to where the inner map writes, so that reads mostly hit */
            MUST(lp_map_shift(&outer, raw, inner->dst_lo - raw->src_lo, 0, NULL, NULL) == LP_OK, own);
            lp_map_free(raw, NULL);
            function_free(&g);
            g = function_of_map(outer);
        }
        const int32_t unit = way == 1 ? g.src_elem : f.dst_elem;
        function want = function_new(way == 1 ? unit : f.src_elem, way == 1 ? g.dst_elem : unit);
        bool cut;
        const bool legal = compose_units(&g, &f, &want, &cut);
        const lp_map *map = NULL;
        const lp_status status = lp_map_compose(&map, outer, inner, NULL, NULL);
        if (legal && (way > 1 || status == LP_OK)) {
            MUST(status == LP_OK, own);
            must_be(map, &want, own);
            composed++;
        } else if (way > 1) {
            MUST(status == LP_E_ARGUMENT, own);
        } else {
            MUST(status == LP_E_ARGUMENT || status == LP_E_UNSUPPORTED, own);
        }
        lp_map_free(map, NULL);
        lp_map_free(outer, NULL);
        lp_map_free(inner, NULL);
        function_free(&f);
        function_free(&g);
        function_free(&want);
    }
    assert_true(composed > rounds / 4);
}

static void inverses_and_ranges_are_exact(void **state)
{
    (void)state;
    const uint64_t seed = (uint64_t)count_from("LP_TEST_SEED", 1);
    const int64_t rounds = count_from("LP_TEST_ROUNDS", 3000);
    int64_t inverted = 0;
    for (int64_t i = 0; i < rounds; i++) {
        const uint64_t own = seed * 1000037u + (uint64_t)i;
        rng r = {own};
        function f;
        const bool cast = rng_chance(&r, 15);
        const lp_map *map = random_map(&r, cast ? 2 : 1, cast ? 4 : 1, &f);
        function turned = function_new(1, 1);
        for (int64_t k = 0; k < f.count && !cast; k++)
            function_add(&turned, f.at[k].src, f.at[k].dst);
        const bool legal = function_sort(&turned) && !cast;
        const lp_map *inverse = NULL;
        const lp_status status = lp_map_inverse(&inverse, map, NULL, NULL);
        MUST(status == (legal ? LP_OK : LP_E_UNSUPPORTED), own);
        const lp_kind kind = lp_record_kind(map, LP_DTYPE_NONE, LP_DTYPE_NONE);
        MUST(kind == (cast ? LP_KIND_CAST : legal ? LP_KIND_COPY : LP_KIND_REPLICATE), own);
        if (legal) {
            const lp_map *back = NULL;
            must_be(inverse, &turned, own);
            MUST(lp_map_inverse(&back, inverse, NULL, NULL) == LP_OK && lp_map_equal(back, map), own);
            lp_map_free(back, NULL);
            inverted++;
        }
        /* a range of sources */
        const int64_t lo = rng_between(&r, map->src_lo - 5, map->src_hi + 5), hi = lo + rng_between(&r, -2, 60);
        function part = function_new(f.src_elem, f.dst_elem);
        bool whole = true;
        for (int64_t k = 0; k < f.count; k++) {
            const int64_t at = f.at[k].src, end = at + f.src_elem;
            if (at >= lo && end <= hi)
                function_add(&part, f.at[k].dst, at);
            else if (at < hi && end > lo && lo < hi)
                whole = false;
        }
        const lp_map *range = NULL;
        const lp_status got = lp_map_source_range(&range, map, lo, hi, NULL, NULL);
        MUST(got == (whole ? LP_OK : LP_E_UNSUPPORTED), own);
        if (whole)
            must_be(range, &part, own);
        /* a shift moves everything and keeps the form */
        const int64_t by = rng_between(&r, -1000, 1000), to = rng_between(&r, -1000, 1000);
        const lp_map *moved = NULL;
        MUST(lp_map_shift(&moved, map, by, to, NULL, NULL) == LP_OK, own);
        for (int64_t k = 0; k < f.count; k++)
            f.at[k] = (pair){f.at[k].dst + to, f.at[k].src + by};
        must_be(moved, &f, own);
        lp_map_free(moved, NULL);
        lp_map_free(range, NULL);
        lp_map_free(inverse, NULL);
        lp_map_free(map, NULL);
        function_free(&f);
        function_free(&part);
        function_free(&turned);
    }
    assert_true(inverted > rounds / 10);
}

/* ---- what must not be expanded ---- */

static const lp_map *must_build(int32_t nbox, const lp_box *box)
{
    lp_error err = {0};
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, 1, 1, nbox, box, NULL, &err) != LP_OK)
        fail_msg("%s", err.text);
    return map;
}

static void huge_maps_stay_folded(void **state)
{
    (void)state;
    lp_error err = {0};
    /* 10^10 four-byte words, transposed in blocks */
    const lp_mode words[] = {{100000, 4 * 100000, 4 * 100000}, {25000, 4, 16}, {4, 100000, 4}};
    const lp_box box = {0, 0, 4, 3, words};
    const lp_map *map = must_build(1, &box), *inverse, *same = NULL, *part, *rest;
    if (lp_map_inverse(&inverse, map, NULL, &err) != LP_OK || lp_map_compose(&same, inverse, map, NULL, &err) != LP_OK)
        fail_msg("%s", err.text);
    assert_int_equal(same->nbox, 1);
    assert_int_equal(same->box[0].rank, 0);
    assert_int_equal(same->box[0].run, map->dst_bytes);
    lp_map_free(same, NULL);
    lp_map_free(inverse, NULL);

    /* one row of it, by source */
    assert_int_equal(lp_map_source_range(&part, map, 400000, 800000, NULL, &err), LP_OK);
    assert_int_equal(part->dst_bytes, 400000);
    assert_int_equal(part->nbox, 1);
    /* and everything but that row */
    assert_int_equal(lp_map_subtract(&rest, map, part, 0, NULL, &err), LP_OK);
    assert_int_equal(rest->dst_bytes, map->dst_bytes - 400000);
    assert_int_equal(rest->nbox, 2);
    lp_map_free(rest, NULL);
    /* a map with itself */
    assert_int_equal(lp_map_subtract(&rest, map, map, 0, NULL, &err), LP_OK);
    assert_int_equal(rest->nbox, 0);
    lp_map_free(rest, NULL);
    assert_int_equal(lp_map_intersect(&rest, map, map, 0, NULL, &err), LP_OK);
    assert_true(lp_map_equal(rest, map));
    lp_map_free(rest, NULL);
    lp_map_free(part, NULL);

    /* the words of every fourth place against all of them */
    const lp_mode quarter[] = {{100000, 0, 4 * 100000}, {25000, 0, 16}};
    const lp_box one = {0, 4, 4, 2, quarter};
    const lp_map *places = must_build(1, &one);
    assert_int_equal(lp_map_intersect(&part, map, places, 0, NULL, &err), LP_OK);
    assert_int_equal(part->nbox, 1);
    assert_int_equal(part->dst_bytes, map->dst_bytes / 4);
    lp_map_free(part, NULL);
    /* what is left of each group is two unlike pieces, and there are too many of those */
    assert_int_equal(lp_map_subtract(&rest, map, places, 0, NULL, &err), LP_E_LIMIT);
    lp_map_free(places, NULL);

    /* two words of four leave two alike */
    const lp_mode half[] = {{100000, 0, 4 * 100000}, {25000, 0, 16}, {2, 0, 8}};
    const lp_box two = {0, 4, 4, 3, half};
    places = must_build(1, &two);
    assert_int_equal(lp_map_subtract(&rest, map, places, 0, NULL, &err), LP_OK);
    assert_int_equal(rest->nbox, 1);
    assert_int_equal(rest->dst_bytes, map->dst_bytes / 2);
    lp_map_free(rest, NULL);
    lp_map_free(places, NULL);

    /* steps that have nothing in common end in a limit, soon */
    const lp_mode seven[] = {{1 << 28, 1, 7}}, eleven[] = {{1 << 28, 1, 11}};
    const lp_box a = {0, 0, 1, 1, seven}, b = {0, 3, 1, 1, eleven};
    const lp_map *x = must_build(1, &a), *y = must_build(1, &b);
    assert_int_equal(lp_map_intersect(&part, x, y, 0, NULL, &err), LP_E_LIMIT);
    lp_map_free(x, NULL);
    lp_map_free(y, NULL);
    lp_map_free(map, NULL);
}

/* ---- memory ---- */

typedef struct failing {
    int64_t left, live;
} failing;

static void *resize_failing(void *context, void *old, size_t bytes)
{
    failing *f = context;
    if (bytes == 0) {
        f->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (f->left-- <= 0)
        return NULL;
    f->live += old == NULL;
    return realloc(old, bytes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    failing f = {0, 0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = resize_failing};
    const lp_mode even[] = {{30, 64, 128}}, odd[] = {{20, 64, 128}}, wild[] = {{5, 3, 10}, {3, 1, 4}};
    const lp_box boxes[] = {{5000, 64, 64, 1, odd}, {0, 0, 64, 1, even}, {0, 10000, 1, 2, wild}};
    const lp_map *reference = must_build(3, boxes);
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        assert_true(n < 500);
        const lp_map *map[8] = {NULL};
        lp_error err;
        f = (failing){n, 0};
        lp_status status = lp_map_from_boxes(&map[0], 1, 1, 3, boxes, &alloc, &err);
        if (status == LP_OK)
            status = lp_map_inverse(&map[1], map[0], &alloc, &err);
        if (status == LP_E_UNSUPPORTED)
            status = lp_map_shift(&map[1], map[0], 8, 8, &alloc, &err);
        if (status == LP_OK)
            status = lp_map_subtract(&map[2], map[0], map[1], 40, &alloc, &err);
        if (status == LP_OK)
            status = lp_map_intersect(&map[3], map[0], map[1], 40, &alloc, &err);
        if (status == LP_OK)
            status = lp_map_source_range(&map[4], map[0], 70, 1000, &alloc, &err);
        if (status == LP_OK)
            status = lp_map_compose(&map[5], map[4], map[0], &alloc, &err);
        if (status == LP_E_ARGUMENT)
            status = LP_OK;
        done = status == LP_OK;
        if (!done)
            assert_int_equal(status, LP_E_MEMORY);
        if (map[0] != NULL)
            assert_true(lp_map_equal(map[0], reference));
        for (int i = 0; i < 8; i++)
            lp_map_free(map[i], &alloc);
        assert_int_equal(f.live, 0);
    }
    lp_map_free(reference, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_exact),
        cmocka_unit_test(compositions_are_exact),
        cmocka_unit_test(inverses_and_ranges_are_exact),
        cmocka_unit_test(huge_maps_stay_folded),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
