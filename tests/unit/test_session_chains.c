/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of sessions on plans of the host and of a device in host memory, with cold starts by the pipeline between. */
#include "cold_device.h"
#include "device_testing.h"
#include "session_chains.h"

#include <time.h>

enum { WORLDS = 120 };

/* ---- the kit of the host ---- */

static void *host_kit_take(void *context, int64_t bytes)
{
    (void)context;
    return calloc(1, (size_t)bytes + 1);
}

static void host_kit_give(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static void host_kit_copy(void *context, void *to, const void *from, int64_t bytes)
{
    (void)context;
    memcpy(to, from, (size_t)bytes);
}

static void host_kit_bind(void *context, lp_plan **out, world *w, const lp_destination_memory *memory,
                          const lp_bind_options *o)
{
    (void)context;
    assert_ok(w, lp_bind(out, w->trace, NULL, memory, w->ndest, o, &w->err));
}

static void host_kit_settle(void *context)
{
    (void)context;
}

static device_kit host_kit(void)
{
    return (device_kit){NULL,          host_kit_take, host_kit_give,   host_kit_copy,
                        host_kit_copy, host_kit_bind, host_kit_settle, NULL};
}

/* ---- chains ---- */

static void cold_start(chain *c)
{
    static host_device pipe;
    const lp_cold_device table = host_table(&pipe);
    cold_start_on(c, &table);
}

static void chain_on_device(uint64_t seed, const lp_bind_options *options, chain_counts *counts)
{
    fake_device f;
    const device_kit k = open_kit(&f);
    run_chain(&k, seed, options, cold_start, counts);
    assert_int_equal(f.blocks, 0);
    fake_end(&f);
}

static void test_chains(void **state)
{
    static const lp_bind_options options[] = {{.threads = 1, .staging = 1 << 20},
                                              {.threads = 2, .staging = 1 << 16, .spill = 1 << 20},
                                              {.threads = 1, .staging = 8192, .spill = 1 << 16}};
    const uint64_t first = random_first_seed((uint64_t)time(NULL) * 1000), chains = random_cases(WORLDS);
    const device_kit host = host_kit();
    chain_counts n = {0};
    (void)state;
    print_message("seed %llu\n", (unsigned long long)first);
    for (uint64_t seed = first; seed < first + chains; seed++) {
        run_chain(&host, seed, &options[seed % 3], cold_start, &n);
        chain_on_device(seed, &options[seed % 3], &n);
    }
    print_message("%d loads ended (%d of some names, %d cold starts), %d given up, %d refused; files in %d\n", n.ended,
                  n.subsets, n.starts, n.given_up, n.refused_begin, n.files);
    if (chains >= WORLDS)
        assert_true(n.ended > 600 && n.given_up > 150 && n.refused_begin > 60 && n.subsets > 60 && n.files > 150 &&
                    n.starts > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
