/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the benches of lp_megamoe. All return a cudaError_t. */
#ifndef LOADPLAN_MEGAMOE_BENCH_H
#define LOADPLAN_MEGAMOE_BENCH_H

#include "kernels/megamoe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Random device data that gives ordinary numbers. */
typedef enum lp_moe_random {
    LP_MOE_RANDOM_BYTES = 0,
    LP_MOE_RANDOM_UE8M0 = 1, /* 2^-13 .. 2^-10 */
    LP_MOE_RANDOM_UE4M3 = 2, /* 2^-3 .. 2 */
    LP_MOE_RANDOM_E4M3 = 3,  /* below 2 */
    LP_MOE_RANDOM_BF16 = 4,  /* .25 to 1, both signs */
    LP_MOE_RANDOM_F32 = 5    /* 2^-10 .. 2^-9 */
} lp_moe_random;

/* What fills that slot of a layer of the format. */
static inline lp_moe_random lp_moe_bench_kind(lp_moe_format format, int slot)
{
    const bool is_scale = slot == LP_MOE_L1_SCALE || slot == LP_MOE_L2_SCALE;
    switch (format) {
    case LP_MXFP4:
        return is_scale ? LP_MOE_RANDOM_UE8M0 : LP_MOE_RANDOM_BYTES;
    case LP_NVFP4:
        return is_scale ? LP_MOE_RANDOM_UE4M3 : LP_MOE_RANDOM_BYTES;
    case LP_MXFP8:
        return is_scale ? LP_MOE_RANDOM_UE8M0 : LP_MOE_RANDOM_E4M3;
    case LP_FP8_BLOCK128:
        return is_scale ? LP_MOE_RANDOM_F32 : LP_MOE_RANDOM_E4M3;
    case LP_MOE_BF16:
        break;
    }
    return LP_MOE_RANDOM_BF16;
}

int lp_moe_bench_fill(void *to, int64_t bytes, lp_moe_random kind, void *stream);

/* Reads `bytes` as fast as a plain kernel can. */
int lp_moe_bench_read(const void *from, int64_t bytes, void *sink, void *stream);

/* Ticks of a multiprocessor and the nanoseconds that they took, into two uint64_t on the device. */
int lp_moe_bench_clock(void *ticks, void *stream);

#ifdef __cplusplus
}
#endif

#endif
