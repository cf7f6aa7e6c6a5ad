/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs for the device, run on the host: tiles in random order, some by the kernel of their list, some by the one
 * for all others, as when base pointers are not aligned. The bytes are those of the maps, and nothing else is written.
 */
#include <setjmp.h>
#include <stdarg.h>

#include "device_interpreter.h"
#include "tests/gpu/random_plans.h"

#include <stdio.h>

#include <cmocka.h>

typedef struct bed {
    uint8_t *source, *arena, *wanted;
    random_plan plan;
    long moves[5], tiles[3], small;
} bed;

static lp_device_program *compile(const random_plan *p, uint8_t *arena)
{
    lp_device_program *program;
    lp_error err;
    assert_int_equal(lp_device_program_new(&program, PLAN_ITEMS, lp_alloc_default(), &err), LP_OK);
    for (uint32_t i = 0; i < PLAN_ITEMS; i++)
        for (int k = 0; k < p->steps[i]; k++)
            assert_int_equal(
                lp_device_program_add(program, i, &p->step[i][k], (uint64_t)(uintptr_t)(arena + p->dst[i][k]), &err),
                LP_OK);
    assert_int_equal(lp_device_program_end(program, &err), LP_OK);
    return program;
}

/* Each tile once; `start` and an odd `stride` give an order. */
static void run_list(bed *b, const lp_device_program *program, const lp_tile_list *list, int kernel, uint64_t *state)
{
    const lp_tile_run *runs = list->whole != NULL && random_below(state, 2) == 0 ? list->whole : list->run;
    const int64_t start = list->count > 0 ? random_below(state, list->count) : 0;
    for (int64_t n = 0; n < list->count; n++) {
        const lp_device_tile tile = tile_at(runs, list->runs, (uint32_t)((start + n) % list->count)), *t = &tile;
        const lp_device_desc *d = &program->desc[t->desc];
        const uint8_t *base = b->source + b->plan.base[t->item];
        const bool is_aligned = (uintptr_t)base % 16 == 0;
        bool done;
        assert_true(t->item < PLAN_ITEMS);
        assert_int_equal(t->shape, d->shape);
        if (kernel == 0 && is_aligned)
            done = run_row_tile(d, t->part, base);
        else if (kernel == 1 && is_aligned)
            done = run_word_tile(d, &program->shape[t->shape - 1], t->part, base);
        else if (t->shape == LP_SHAPE_SMALL)
            done = run_small_tile(d, base);
        else
            done = run_other_tile(d, t->part, base);
        b->small += t->shape == LP_SHAPE_SMALL;
        assert_true(done);
    }
    b->tiles[kernel] += (long)list->count;
}

static void lists_follow_items(const lp_tile_list *list)
{
    assert_int_equal(list->item_tile[0], 0);
    assert_int_equal(list->item_tile[PLAN_ITEMS], list->count);
    for (uint32_t i = 0; i < PLAN_ITEMS; i++)
        for (uint32_t t = list->item_tile[i]; t < list->item_tile[i + 1]; t++)
            assert_int_equal(tile_at(list->run, list->runs, t).item, i);
}

static long one_plan(bed *b, uint64_t seed)
{
    random_plan *p = &b->plan;
    uint64_t state = seed;
    long steps = 0;
    const int64_t used = make_plan(p, &state);
    lp_device_program *program = compile(p, b->arena);
    lists_follow_items(&program->rows);
    lists_follow_items(&program->words);
    lists_follow_items(&program->others);
    for (int64_t i = 0; i < program->desc_count; i++)
        b->moves[program->desc[i].move]++;
    memset(b->arena, PLAN_POISON, (size_t)used);
    memset(b->wanted, PLAN_POISON, (size_t)used);
    run_list(b, program, &program->rows, 0, &state);
    run_list(b, program, &program->words, 1, &state);
    run_list(b, program, &program->others, 2, &state);
    int64_t written = 0;
    for (int i = 0; i < PLAN_ITEMS; i++)
        for (int k = 0; k < p->steps[i]; k++) {
            walk w = {&p->step[i][k], b->source + p->base[i], b->wanted + p->dst[i][k]};
            assert_int_equal(lp_map_walk(w.step->map, reference_run, &w), 0);
            written += w.step->map->dst_bytes;
            lp_map_free(w.step->map, NULL);
            steps++;
        }
    assert_int_equal(program->bytes, written);
    if (memcmp(b->arena, b->wanted, (size_t)used) != 0)
        fail_msg("plan seed %llu gives other bytes", (unsigned long long)seed);
    lp_device_program_free(program);
    return steps;
}

static void random_plans_give_the_bytes_of_their_maps(void **unused)
{
    (void)unused;
    static bed b;
    const char *count = getenv("COUNT");
    const long rounds = count != NULL ? strtol(count, NULL, 10) : 12;
    uint64_t seed = 20261130, state = seed;
    long steps = 0;
    b.source = aligned_alloc(16, PLAN_SOURCE_BYTES);
    b.arena = aligned_alloc(16, PLAN_ARENA_BYTES);
    b.wanted = malloc(PLAN_ARENA_BYTES);
    assert_true(b.source != NULL && b.arena != NULL && b.wanted != NULL);
    for (int64_t i = 0; i < PLAN_SOURCE_BYTES; i += 8) {
        const uint64_t word = random_next(&state);
        memcpy(b.source + i, &word, 8);
    }
    for (long n = 0; n < rounds; n++)
        steps += one_plan(&b, seed * 1000003 + (uint64_t)n);
    printf("%ld steps of %ld plans; tiles: %ld rows, %ld words, %ld others\n", steps, rounds, b.tiles[0], b.tiles[1],
           b.tiles[2]);
    for (int m = LP_MOVE_RUNS; m <= LP_MOVE_FILL; m++)
        assert_true(b.moves[m] > 0);
    for (int t = 0; t < 3; t++)
        assert_true(b.tiles[t] > 0);
    assert_true(b.small > 0);
    free(b.source);
    free(b.arena);
    free(b.wanted);
}

static void divisors_are_exact(void **unused)
{
    (void)unused;
    uint64_t state = 7;
    for (long n = 0; n < 200000; n++) {
        const uint32_t bits = 1 + (uint32_t)random_below(&state, 31);
        const uint32_t value = (uint32_t)(random_next(&state) & ((1u << bits) - 1)) + 1;
        uint32_t number = (uint32_t)(random_next(&state) & 0x7fffffff);
        if (n % 3 == 0) /* just around multiples */
            number = number / value * value - (n % 2 == 0 && number >= value);
        assert_int_equal(run_divide(number, lp_divisor_of(value)), number / value);
    }
    assert_int_equal(run_divide(0x7fffffff, lp_divisor_of(0x7fffffff)), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_plans_give_the_bytes_of_their_maps),
                                       cmocka_unit_test(divisors_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
