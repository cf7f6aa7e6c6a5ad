/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls of a builder against an oracle that looks at every byte: what each name left there, and what needs an
 * order. */
#include "model_testing.h"
#include "tests/random_numbers.h"

enum { BYTES = 48, NAMES = 5, CALLS_MAX = 12 };

typedef struct byte_state { /* what one name last did to one destination byte */
    int time;               /* 0: nothing */
    int64_t src;            /* source byte, or -1 - value of a fill */
} byte_state;

typedef struct oracle {
    byte_state byte[NAMES + 1][BYTES]; /* the last one is begin */
} oracle;

typedef struct seen {
    byte_state (*byte)[BYTES]; /* time is the record's seq + 1 */
    const lp_record *record;
    uint32_t name;
} seen;

static int see_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const seen *s = context;
    for (int64_t i = 0; i < count; i++) {
        byte_state *byte = &s->byte[s->name][s->record->dst_off + dst_off + i];
        assert_int_equal(byte->time, 0); /* records of one name never overlap */
        byte->time = (int)s->record->seq + 1;
        byte->src = s->record->kind == LP_KIND_FILL ? -1 - (int64_t)s->record->fill_bits
                                                    : s->record->src_off + src_off + i * s->record->map->src_elem;
    }
    return 0;
}

static void random_call(lp_trace *t, uint64_t *random, uint32_t dest, int time, oracle *o)
{
    const uint32_t name = (uint32_t)random_below(random, NAMES + 1);
    const int64_t run = 1 + random_below(random, 4), times = 1 + random_below(random, 4);
    const int64_t dst_step = run + random_below(random, 6), src_step = random_below(random, 12);
    const int64_t span = (times - 1) * dst_step + run;
    const int64_t dst_off = random_below(random, BYTES - span + 1), src_off = random_below(random, 50);
    const bool is_fill = name == NAMES || random_below(random, 4) == 0;
    const uint64_t value = (uint64_t)random_below(random, 2);
    const lp_map *map =
        is_fill ? fill_map(dst_off, run, times, dst_step) : byte_map(src_off, dst_off, run, times, src_step, dst_step);
    assert_ok(lp_trace_add_record(t,
                                  &(lp_record){.name = name == NAMES ? LP_NAME_BEGIN : name,
                                               .dest = dest,
                                               .map = map,
                                               .fill_bits = is_fill ? value : 0,
                                               .provenance = LP_NONE},
                                  ERR));
    lp_map_free(map, NULL);
    for (int64_t k = 0; k < times; k++)
        for (int64_t i = 0; i < run; i++)
            o->byte[name][dst_off + k * dst_step + i] =
                (byte_state){time, is_fill ? -1 - (int64_t)value : src_off + k * src_step + i};
}

/* Begin fills hold only bytes that nothing else writes. */
static void trim_begin(oracle *o)
{
    for (int name = 0; name < NAMES; name++)
        for (int b = 0; b < BYTES; b++)
            if (o->byte[name][b].time > 0)
                o->byte[NAMES][b].time = 0;
}

static void compare_with_oracle(const lp_rows *rows, const oracle *o)
{
    byte_state byte[NAMES + 1][BYTES] = {0};
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const uint32_t name = rows->record[i].name == LP_NAME_BEGIN ? NAMES : rows->record[i].name;
        seen s = {byte, &rows->record[i], name};
        lp_map_walk(rows->record[i].map, see_run, &s);
    }
    for (int name = 0; name <= NAMES; name++)
        for (int b = 0; b < BYTES; b++) {
            assert_int_equal(byte[name][b].time > 0, o->byte[name][b].time > 0);
            if (byte[name][b].time > 0)
                assert_int_equal(byte[name][b].src, o->byte[name][b].src);
        }
    for (int x = 0; x < NAMES; x++)
        for (int y = 0; y < NAMES; y++)
            for (int b = 0; b < BYTES && x != y; b++)
                if (o->byte[x][b].time > 0 && o->byte[y][b].time > o->byte[x][b].time) {
                    assert_true(byte[x][b].time > 1); /* seq of at least 1 */
                    assert_true(byte[y][b].time > byte[x][b].time);
                }
}

/* A record with a seq shares a byte with another name. */
static void seq_is_needed(const lp_rows *rows)
{
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        bool found = rows->record[i].seq == 0;
        for (uint32_t j = 0; j < rows->nrecord && !found; j++) {
            const lp_map *both;
            if (rows->record[i].name == rows->record[j].name)
                continue;
            assert_ok(lp_map_intersect(&both, rows->record[i].map, rows->record[j].map,
                                       rows->record[j].dst_off - rows->record[i].dst_off, NULL, ERR));
            found = both->nbox > 0;
            lp_map_free(both, NULL);
        }
        assert_true(found);
    }
}

static uint64_t running_seed; /* 0: no round is running */

static int name_the_seed(void **state)
{
    (void)state;
    if (running_seed != 0)
        print_message("failed with LOADPLAN_TEST_SEED=%llu\n", (unsigned long long)running_seed);
    return 0;
}

static void random_traces_agree_with_the_oracle(void **state)
{
    (void)state;
    const uint64_t base = random_first_seed(20261130);
    const int64_t count = (int64_t)random_cases(4000);
    for (int64_t round = 0; round < count; round++) {
        uint64_t random = running_seed = base + (uint64_t)round;
        oracle o = {0};
        lp_trace *t = small_trace(NAMES, 100, NULL);
        const uint32_t d = add_dest(t, "d", BYTES);
        const int calls = 1 + (int)random_below(&random, CALLS_MAX);
        for (int call = 0; call < calls; call++)
            random_call(t, &random, d, call + 1, &o);
        trim_begin(&o);
        const lp_rows *rows = sealed_rows(t);
        compare_with_oracle(rows, &o);
        seq_is_needed(rows);
        assert_ok(lp_rows_check(t, rows, ERR));
        lp_trace_close(t);
    }
    running_seed = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_traces_agree_with_the_oracle, name_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
