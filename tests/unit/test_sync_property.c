/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever goes wrong at whichever message of an epoch, in worlds of ranks of one process: every rank ends; who reports
 * success holds the epoch, byte by byte; who failed believes nothing of what it holds; and the next epoch is right.
 *
 *   test_sync_property [SEED [RANKS [RUNS]]]
 *
 * RANKS: one more world, of so many ranks, with RUNS (3) faults that are drawn.
 */
#include "faulty_ranks.h"

/* ---- tests ---- */

static const fault quick[] = {FAULT_KILL, FAULT_FLIP, FAULT_FLIP_HEADER, FAULT_EPOCH, FAULT_DELAY};

enum { QUICK = sizeof quick / sizeof *quick };

/* Every call that a rank makes in an epoch of eight ranks, each with a fault that is drawn. */
static void each_message_of_an_epoch_may_go_wrong(void **state)
{
    world w;
    int64_t runs = 0;
    (void)state;
    open_world(&w, 4, 1, 4);
    const int ranks[] = {0, 3, 4, 7};
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_DELTA; mode++)
        for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
            bool has_fired = true;
            for (int64_t n = 0; has_fired; n++, runs++) {
                const fault what = quick[random_mix(seed * 977 + (uint64_t)runs) % QUICK];
                has_fired = run_and_check(&w, 4, (lp_sync_mode)mode, what, ranks[k], n);
            }
        }
    print_message("seed %llu: %lld epochs of 8 ranks with a fault each\n", (unsigned long long)seed, (long long)runs);
    assert_true(runs > 100);
    close_world(&w, 4);
}

/* Who waits gives up after a time that is too short for a busy machine: then more may fail than must, but nothing is
 * believed that is not there. */
static void a_message_that_never_comes_ends_the_epoch(void **state)
{
    world w;
    (void)state;
    open_world(&w, 2, 1, 2);
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_DELTA; mode++)
        (void)run_and_check(&w, 2, (lp_sync_mode)mode, FAULT_DROP, (int)(random_mix(seed + (uint64_t)mode) % 2),
                            (int64_t)(random_mix(seed * 31 + (uint64_t)mode) % 12));
    close_world(&w, 2);
}

static void faults_in_a_world(int senders, int dp, int tp, int runs)
{
    world w;
    open_world(&w, senders, dp, tp);
    for (int i = 0; i < runs; i++) {
        const uint64_t draw = random_mix(seed * 7919 + (uint64_t)i);
        const int rank = (int)(draw / 8 % (uint64_t)(senders + dp * tp));
        (void)run_and_check(&w, tp, (lp_sync_mode)(LP_SYNC_PACKED + i % 3), quick[(uint64_t)i / 3 % QUICK], rank,
                            (int64_t)(draw / 65536 % 40));
    }
    close_world(&w, tp);
}

static void faults_among_64_ranks(void **state)
{
    (void)state;
    faults_in_a_world(16, 12, 4, 6);
}

static int ranks_asked, runs_asked = 3;

static void faults_among_as_many_as_asked(void **state)
{
    (void)state;
    if (ranks_asked > 0)
        faults_in_a_world(ranks_asked / 4, (ranks_asked - ranks_asked / 4) / 4, 4, runs_asked);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    ranks_asked = argc > 2 ? atoi(argv[2]) : 0;
    runs_asked = argc > 3 ? atoi(argv[3]) : runs_asked;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_of_an_epoch_may_go_wrong),
        cmocka_unit_test(a_message_that_never_comes_ends_the_epoch),
        cmocka_unit_test(faults_among_64_ranks),
        cmocka_unit_test(faults_among_as_many_as_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
