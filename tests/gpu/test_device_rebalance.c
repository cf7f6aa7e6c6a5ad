/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that move in the memory of a GPU: the bytes are those of a cold start by the new map, and in every second
 * chain those of reloads by the plan that moved. */
#include "gpu_check.h"
#include "tests/unit/rebalance_testing.h"

int main(int argc, char **argv)
{
    const uint64_t chains = argc > 1 ? strtoull(argv[1], NULL, 10) : 40;
    lp_expert_device device;
    lp_error err;
    need_gpu();
    CHECK(lp_expert_device_open(&device, "cuda:0", &err) == LP_OK, "%s", err.text);
    for (uint64_t seed = 1; seed <= chains; seed++)
        check_chain(seed, &device, seed % 2 == 0 ? NULL : "cuda:0");
    lp_expert_device_close(&device);
    printf("%llu chains of four moves: equal to cold starts\n", (unsigned long long)chains);
    return 0;
}
