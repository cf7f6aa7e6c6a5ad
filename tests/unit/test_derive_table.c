/* SPDX-License-Identifier: Apache-2.0 */
/* Derives as device tables, interpreted on the host: the same bits as the evaluator, whatever the program. */
#include "derive_programs.h"

#include "replayer/device_derive.h"

#include <time.h>

enum { PROGRAMS = 3000 };

static void test_random_programs(void **state)
{
    (void)state;
    const uint64_t first = random_first_seed((uint64_t)time(NULL));
    uint64_t random = first;
    int spread = 0, near = 0, checks = 0, failed = 0;
    uint8_t *block = malloc(PROGRAM_REGION), *have = malloc(PROGRAM_RESULT), *want = malloc(PROGRAM_RESULT);
    print_message("seed %llu\n", (unsigned long long)first);
    for (int n = 0; n < PROGRAMS; n++) {
        derive_program p;
        lp_derive_table t = {.alloc = lp_alloc_default()};
        lp_derive_outcome outcome = {.index = 77};
        lp_derive_check check = {.failed = false};
        uint64_t region[PROGRAM_INPUTS];
        lp_error err;
        program_fill(&random, block, PROGRAM_REGION);
        memset(have, 0xab, PROGRAM_RESULT);
        memset(want, 0xab, PROGRAM_RESULT);
        make_program(&p, &random);
        for (uint32_t i = 0; i < p.derive.ninput; i++)
            region[i] = (uintptr_t)(block + p.region_off[i]);
        assert_int_equal(lp_derive_table_add(&t, &p.derive, region, (uintptr_t)have, &err), LP_OK);
        void *scratch = calloc(1, (size_t)t.scratch_bytes + 16);
        lp_derive_table_place(&t, (uintptr_t)scratch);
        for (int round = 0; round < 2; round++) /* scratch holds what the first run left */
            lp_derive_run_host(&t, 0, &outcome);
        evaluate_program(&p, block, want, &check);
        if (p.derive.dest == LP_NONE) {
            checks++;
            failed += check.failed;
            assert_int_equal(outcome.index, check.failed ? check.index : -1);
            if (check.failed) {
                assert_memory_equal(&outcome.a, &check.a, 4);
                assert_memory_equal(&outcome.b, &check.b, 4);
            }
        }
        spread += t.job[0].is_spread;
        near += t.job[0].is_near;
        if (memcmp(have, want, PROGRAM_RESULT) != 0)
            fail_msg("seed %llu: program %d of %u nodes differs", (unsigned long long)first, n, p.derive.nnode);
        free(scratch);
        lp_derive_table_free(&t);
        free_program(&p);
    }
    print_message("%d spread, %d near, %d checks, %d of them failed\n", spread, near, checks, failed);
    assert_true(spread > PROGRAMS / 20 && near > PROGRAMS / 10 && spread + near < PROGRAMS * 19 / 20 &&
                checks > PROGRAMS / 10 && failed > checks / 10 && failed < checks);
    free(block);
    free(have);
    free(want);
}

/* Jobs of one table have scratch of their own, and a reduction's work does not touch its neighbour's. */
static void test_jobs_do_not_share(void **state)
{
    (void)state;
    enum { JOBS = 40 };
    uint64_t random = 5;
    lp_derive_table t = {.alloc = lp_alloc_default()};
    derive_program p[JOBS];
    uint8_t *block = malloc(PROGRAM_REGION), *have = calloc(JOBS, PROGRAM_RESULT), *want = calloc(JOBS, PROGRAM_RESULT);
    lp_derive_outcome outcome[JOBS];
    lp_error err;
    program_fill(&random, block, PROGRAM_REGION);
    for (int n = 0; n < JOBS; n++) {
        uint64_t region[PROGRAM_INPUTS];
        lp_derive_check check;
        make_program(&p[n], &random);
        for (uint32_t i = 0; i < p[n].derive.ninput; i++)
            region[i] = (uintptr_t)(block + p[n].region_off[i]);
        assert_int_equal(lp_derive_table_add(&t, &p[n].derive, region, (uintptr_t)(have + n * PROGRAM_RESULT), &err),
                         LP_OK);
        evaluate_program(&p[n], block, want + n * PROGRAM_RESULT, &check);
    }
    void *scratch = calloc(1, (size_t)t.scratch_bytes + 16);
    lp_derive_table_place(&t, (uintptr_t)scratch);
    for (uint32_t n = JOBS; n-- > 0;)
        lp_derive_run_host(&t, n, outcome);
    assert_memory_equal(have, want, (size_t)JOBS * PROGRAM_RESULT);
    for (int n = 0; n < JOBS; n++)
        free_program(&p[n]);
    lp_derive_table_free(&t);
    free(scratch);
    free(block);
    free(have);
    free(want);
}

/* Every allocation fails once. */
typedef struct failing {
    int left;
} failing;

static void *fail_resize(void *context, void *old, size_t bytes)
{
    failing *f = context;
    if (bytes > 0 && f->left-- == 0)
        return NULL;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, bytes);
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    uint64_t random = 11;
    derive_program p;
    int failures = 0;
    make_program(&p, &random);
    for (int n = 0;; n++) {
        failing f = {n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = fail_resize};
        lp_derive_table t = {.alloc = &alloc};
        uint64_t region[PROGRAM_INPUTS] = {0};
        lp_error err;
        const lp_status status = lp_derive_table_add(&t, &p.derive, region, 0, &err);
        lp_derive_table_free(&t);
        if (status == LP_OK)
            break;
        assert_int_equal(status, LP_E_MEMORY);
        failures++;
    }
    assert_true(failures >= 2);
    free_program(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_jobs_do_not_share),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
