/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form: it is that of the definition, whatever pieces a function is given in, and huge maps reach it
 * without being expanded. Environment: LP_TEST_SEED, LP_TEST_ROUNDS.
 */
#include "map_oracle.h"

/* A random nested box that is likely to have joins: steps are often just what continues. */
static function random_box_function(rng *r, int32_t src_elem, int32_t dst_elem)
{
    function f = function_new(src_elem, dst_elem);
    int64_t run = rng_between(r, 1, 3), dst_span = run * dst_elem, src_span = run * src_elem;
    const int rank = (int)rng_between(r, 0, 4);
    pair block[1024];
    int64_t count = 0;
    for (int64_t i = 0; i < run; i++)
        block[count++] = (pair){i * dst_elem, i * src_elem};
    for (int m = 0; m < rank; m++) {
        const int64_t extent = rng_between(r, 2, 4);
        if (count * extent > 1024)
            break;
        const int64_t dst = dst_span + (rng_chance(r, 60) ? 0 : rng_between(r, 0, 3) * dst_elem);
        const int64_t src = (rng_chance(r, 50) ? src_span : rng_between(r, -2, 9) * src_elem);
        const int64_t inner = count;
        for (int64_t i = 1; i < extent; i++)
            for (int64_t k = 0; k < inner; k++)
                block[count++] = (pair){block[k].dst + i * dst, block[k].src + i * src};
        dst_span += (extent - 1) * dst;
        src_span = block[count - 1].src + src_elem; /* so that the next step may join */
    }
    for (int64_t i = 0; i < count; i++)
        function_add(&f, block[i].dst + 1000, block[i].src + 5000);
    return f;
}

/* Several of those one behind another. */
static function random_function(rng *r)
{
    static const int32_t elems[][2] = {{1, 1}, {1, 1}, {0, 1}, {0, 4}, {2, 4}, {4, 2}};
    const int64_t pick = rng_between(r, 0, 5);
    function f = random_box_function(r, elems[pick][0], elems[pick][1]);
    const int more = rng_chance(r, 50) ? 0 : (int)rng_between(r, 1, 3);
    for (int i = 0; i < more; i++) {
        function g = random_box_function(r, f.src_elem, f.dst_elem);
        const pair end = f.at[f.count - 1];
        const int64_t dst = end.dst + f.dst_elem + (rng_chance(r, 50) ? 0 : rng_between(r, 0, 5));
        const int64_t src = rng_chance(r, 50) ? end.src + f.src_elem : rng_between(r, 0, 100);
        const pair start = g.at[0];
        for (int64_t k = 0; k < g.count && f.count < 2048; k++)
            function_add(&f, g.at[k].dst - start.dst + dst, g.at[k].src - start.src + src);
        function_free(&g);
    }
    return f;
}

/* ---- any pieces give the one form ---- */

typedef struct piece {
    lp_box box;
    lp_mode mode[6];
} piece;

/* Cuts a function into boxes at random, each grown from a random unit by random steps, then shuffles them and turns
 * strides around. */
static int32_t random_pieces(rng *r, const function *f, piece *out)
{
    char *used = calloc((size_t)f->count + 1, 1);
    int32_t count = 0;
    const int grow = (int)rng_between(r, 0, 100);
    for (int64_t i = 0; i < f->count; i++) {
        if (used[i])
            continue;
        /* Members of the piece as indices, in iteration order. */
        static int64_t member[4096];
        int64_t members = 1;
        member[0] = i;
        used[i] = 1;
        piece *p = &out[count++];
        *p = (piece){.box = {.src_off = f->at[i].src, .dst_off = f->at[i].dst, .run = 1}};
        int rank = 0;
        bool run_open = true;
        for (int attempt = 0; attempt < 6 && rank < 5 && rng_chance(r, grow); attempt++) {
            const int64_t other = rng_chance(r, 70) ? i + members : rng_between(r, 0, f->count - 1);
            if (other <= i || other >= f->count)
                continue;
            const int64_t dst = f->at[other].dst - f->at[i].dst, src = f->at[other].src - f->at[i].src;
            int64_t extent = 1;
            for (;; extent++) {
                int64_t k = 0;
                for (; k < members && (extent + 1) * members <= 4096; k++) {
                    const pair want = {f->at[member[k]].dst + extent * dst, f->at[member[k]].src + extent * src};
                    const pair *found = bsearch(&want, f->at, (size_t)f->count, sizeof want, pair_order);
                    if (found == NULL || found->src != want.src || used[found - f->at])
                        break;
                    member[extent * members + k] = found - f->at;
                }
                if (k < members)
                    break;
                for (int64_t t = 0; t < members; t++)
                    used[member[extent * members + t]] = 1;
                if (rng_chance(r, 15)) {
                    extent++;
                    break;
                }
            }
            if (extent == 1)
                continue;
            if (run_open && dst == p->box.run * f->dst_elem && src == p->box.run * f->src_elem && rng_chance(r, 50))
                p->box.run *= extent;
            else
                p->mode[rank++] = (lp_mode){extent, src, dst};
            run_open = rank == 0;
            members *= extent;
        }
        for (int m = 0; m < rank; m++) { /* any order, any sign, and extents of 1 */
            const int other = (int)rng_between(r, 0, rank - 1);
            const lp_mode t = p->mode[m];
            p->mode[m] = p->mode[other];
            p->mode[other] = t;
        }
        for (int m = 0; m < rank; m++) {
            lp_mode *mode = &p->mode[m];
            if (rng_chance(r, 30)) {
                p->box.dst_off += (mode->extent - 1) * mode->dst_stride;
                p->box.src_off += (mode->extent - 1) * mode->src_stride;
                mode->dst_stride = -mode->dst_stride;
                mode->src_stride = -mode->src_stride;
            }
        }
        if (rng_chance(r, 20))
            p->mode[rank++] = (lp_mode){1, rng_between(r, -9, 9), rng_between(r, -9, 9)};
        p->box.rank = rank;
    }
    for (int32_t i = count - 1; i > 0; i--) {
        const int64_t other = rng_between(r, 0, i);
        const piece t = out[i];
        out[i] = out[other];
        out[other] = t;
    }
    free(used);
    return count;
}

static void any_pieces_give_one_form(void **state)
{
    (void)state;
    const uint64_t seed = (uint64_t)count_from("LP_TEST_SEED", 1);
    const int64_t rounds = count_from("LP_TEST_ROUNDS", 4000);
    piece *pieces = malloc(4096 * sizeof *pieces);
    lp_box *box = malloc(4096 * sizeof *box);
    for (int64_t i = 0; i < rounds; i++) {
        const uint64_t own = seed * 1000003u + (uint64_t)i;
        rng r = {own};
        function f = random_function(&r);
        const lp_map *first = NULL;
        for (int again = 0; again < 3; again++) {
            const int32_t count = random_pieces(&r, &f, pieces);
            for (int32_t b = 0; b < count; b++) {
                box[b] = pieces[b].box;
                box[b].mode = pieces[b].mode;
            }
            lp_error err;
            const lp_map *map;
            MUST(lp_map_from_boxes(&map, f.src_elem, f.dst_elem, count, box, NULL, &err) == LP_OK, own);
            function g = function_of_map(map);
            MUST(function_equal(&f, &g), own);
            MUST(has_right_bounds(map, &f), own);
            if (!is_canonical(map, &f))
                print_map("not canonical", map);
            MUST(is_canonical(map, &f), own);
            if (first == NULL) {
                first = map;
            } else {
                uint8_t a[32], b[32];
                lp_map_digest(first, a);
                lp_map_digest(map, b);
                MUST(lp_map_equal(first, map) && memcmp(a, b, 32) == 0, own);
                lp_map_free(map, NULL);
            }
            function_free(&g);
        }
        /* A byte written twice is seen wherever it lies. */
        const int32_t count = random_pieces(&r, &f, pieces);
        for (int32_t b = 0; b < count; b++) {
            box[b] = pieces[b].box;
            box[b].mode = pieces[b].mode;
        }
        box[count] = (lp_box){.src_off = 0, .dst_off = f.at[rng_between(&r, 0, f.count - 1)].dst, .run = 1};
        const lp_map *none = NULL;
        MUST(lp_map_from_boxes(&none, f.src_elem, f.dst_elem, count + 1, box, NULL, NULL) == LP_E_ARGUMENT, own);
        MUST(none == NULL, own);
        lp_map_free(first, NULL);
        function_free(&f);
    }
    free(pieces);
    free(box);
}

/* ---- huge maps ---- */

static const lp_map *must_build(int32_t nbox, const lp_box *box)
{
    lp_error err = {0};
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, 1, 1, nbox, box, NULL, &err) != LP_OK)
        fail_msg("%s", err.text);
    return map;
}

static void halves_of_a_huge_matrix_are_one_box(void **state)
{
    (void)state;
    const lp_mode half[] = {{3000000, 64, 128}};
    const lp_box two[] = {{0, 0, 32, 1, half}, {3000000LL * 64, 3000000LL * 128, 32, 1, half}};
    const lp_map *map = must_build(2, two);
    assert_int_equal(map->nbox, 1);
    assert_int_equal(map->box[0].rank, 1);
    assert_int_equal(map->box[0].mode[0].extent, 6000000);
    lp_map_free(map, NULL);

    /* another source offset: two steps of the half */
    const lp_box apart[] = {{0, 0, 32, 1, half}, {1LL << 40, 3000000LL * 128, 32, 1, half}};
    map = must_build(2, apart);
    assert_int_equal(map->nbox, 1);
    assert_int_equal(map->box[0].rank, 2);
    assert_int_equal(map->box[0].mode[0].extent, 2);
    lp_map_free(map, NULL);
}

static void interleaved_rows_are_one_box(void **state)
{
    (void)state;
    const int64_t rows = 20000000, up = 1LL << 40;
    const lp_mode step[] = {{rows, 64, 128}};
    const lp_box two[] = {{up, 64, 64, 1, step}, {0, 0, 64, 1, step}};
    const lp_map *map = must_build(2, two);
    assert_int_equal(map->nbox, 1);
    assert_int_equal(map->box[0].rank, 2);
    assert_int_equal(map->box[0].mode[0].extent, rows);
    assert_int_equal(map->box[0].mode[1].extent, 2);
    assert_int_equal(map->box[0].mode[1].src_stride, up);
    lp_map_free(map, NULL);

    /* the odd ones end earlier */
    const lp_mode less[] = {{rows - 5, 64, 128}};
    const lp_box three[] = {{up, 64, 64, 1, less}, {0, 0, 64, 1, step}};
    map = must_build(2, three);
    assert_int_equal(map->nbox, 2);
    assert_int_equal(map->dst_bytes, (2 * rows - 5) * 64);
    lp_map_free(map, NULL);
}

/* Every other row of three, destination dense: the last row of a group goes on in the first of the next. */
static void joins_do_not_break_a_nested_box(void **state)
{
    (void)state;
    const lp_mode joined[] = {{1000000, 96, 64}, {2, 64, 32}};
    const lp_box box = {0, 0, 32, 2, joined};
    const lp_map *map = must_build(1, &box);
    assert_int_equal(map->nbox, 1);
    assert_int_equal(map->box[0].rank, 2);

    /* and cut in the middle of a group it is found again */
    const lp_mode head[] = {{499999, 96, 64}, {2, 64, 32}}, tail[] = {{500000, 96, 64}, {2, 64, 32}};
    const lp_box cut[] = {{500000LL * 96, 500000LL * 64, 32, 2, tail},
                          {499999LL * 96, 499999LL * 64, 32, 0, NULL},
                          {499999LL * 96 + 64, 499999LL * 64 + 32, 32, 0, NULL},
                          {0, 0, 32, 2, head}};
    const lp_map *again = must_build(4, cut);
    assert_true(lp_map_equal(map, again));
    lp_map_free(map, NULL);
    lp_map_free(again, NULL);
}

static void limits_and_bad_boxes(void **state)
{
    (void)state;
    lp_error err;
    const lp_map *map;
    const lp_mode wide[] = {{INT64_MAX, 1, INT64_MAX}}, zero[] = {{3, 1, 0}}, minus[] = {{-1, 1, 1}};
    const lp_mode none[] = {{INT64_MAX, 1, 0}, {0, 1, 1}};
    const lp_box bad_wide = {0, 0, 1, 1, wide}, bad_zero = {0, 0, 1, 1, zero}, bad_minus = {0, 0, 1, 1, minus};
    const lp_box bad_run = {0, 0, -4, 0, NULL}, empty = {0, 0, 1, 2, none}, far_off = {INT64_MAX, 0, 1, 0, NULL};
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 1, &bad_wide, NULL, &err), LP_E_LIMIT);
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 1, &bad_zero, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 1, &bad_minus, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 1, &bad_run, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 1, &far_off, NULL, &err), LP_E_LIMIT);
    assert_int_equal(lp_map_from_boxes(&map, 3, 1, 0, NULL, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_map_from_boxes(&map, 1, 0, 0, NULL, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 1, &empty, NULL, &err), LP_OK);
    assert_int_equal(map->nbox, 0);
    char text[8];
    assert_int_equal(lp_map_text(map, text, sizeof text), 2);
    assert_string_equal(text, "[]");
    lp_map_free(map, NULL);
    lp_map_free(NULL, NULL);

    /* coprime steps over the same addresses: billions of runs that interleave */
    const lp_mode seven[] = {{1 << 28, 1, 7}}, eleven[] = {{1 << 28, 1, 11}};
    const lp_box coprime[] = {{0, 0, 1, 1, seven}, {0, 3, 1, 1, eleven}};
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 2, coprime, NULL, &err), LP_E_LIMIT);

    /* more boxes than a record may have: sources without any structure */
    lp_box *many = malloc(200000 * sizeof *many);
    rng r = {7};
    for (int i = 0; i < 200000; i++)
        many[i] = (lp_box){rng_between(&r, 0, 1 << 30), 16 * (int64_t)i, 8, 0, NULL};
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 200000, many, NULL, &err), LP_E_LIMIT);
    assert_int_equal(lp_map_from_boxes(&map, 1, 1, 60000, many, NULL, &err), LP_OK);
    lp_map_free(map, NULL);
    free(many);
}

static void text_is_one_line(void **state)
{
    (void)state;
    const lp_mode mode[] = {{12, 1024, 2048}};
    const lp_box box = {64, 0, 512, 1, mode};
    const lp_map *map = must_build(1, &box);
    char text[100], small[6];
    const size_t length = lp_map_text(map, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, "[s64,d0 (12:s1024,d2048) run 512]");
    assert_int_equal(lp_map_text(map, small, sizeof small), length);
    assert_string_equal(small, "[s64,");
    assert_int_equal(lp_map_text(map, NULL, 0), length);
    lp_map_free(map, NULL);
}

static int stop_at_third(void *context, int64_t dst, int64_t src, int64_t count)
{
    int *calls = context;
    (void)dst;
    (void)src;
    (void)count;
    return ++*calls == 3 ? 42 : 0;
}

static void walk_stops_when_told(void **state)
{
    (void)state;
    const lp_mode mode[] = {{12, 1024, 2048}};
    const lp_box box = {64, 0, 512, 1, mode};
    const lp_map *map = must_build(1, &box);
    int calls = 0;
    assert_int_equal(lp_map_walk(map, stop_at_third, &calls), 42);
    assert_int_equal(calls, 3);
    lp_map_free(map, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pieces_give_one_form),     cmocka_unit_test(halves_of_a_huge_matrix_are_one_box),
        cmocka_unit_test(interleaved_rows_are_one_box), cmocka_unit_test(joins_do_not_break_a_nested_box),
        cmocka_unit_test(limits_and_bad_boxes),         cmocka_unit_test(text_is_one_line),
        cmocka_unit_test(walk_stops_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
