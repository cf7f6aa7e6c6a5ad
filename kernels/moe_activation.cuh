/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of gate and up, in FP32; a NaN goes through. megamoe.h has the formulas. */
#ifndef LOADPLAN_MOE_ACTIVATION_CUH
#define LOADPLAN_MOE_ACTIVATION_CUH

#include "kernels/megamoe.h"

/* 1 / (1 + exp(-x)). What the fast exponential and reciprocal lose below 2^-126 does not show beside the 1. */
__device__ __forceinline__ float moe_sigmoid(float x)
{
    float power, out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(1.0f + power));
    return out;
}

/* Where x is a NaN, so is the result. */
__device__ __forceinline__ float moe_at_most(float x, float limit)
{
    float out;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(x), "f"(limit));
    return out;
}
__device__ __forceinline__ float moe_at_least(float x, float limit)
{
    float out;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(x), "f"(limit));
    return out;
}

__device__ __forceinline__ float moe_activate(int kind, float alpha, float beta, float limit, float gate, float up)
{
    if (limit > 0.0f) {
        up = up > limit ? limit : up < -limit ? -limit : up;
        if (kind != LP_MOE_SWIGLU_STEP)
            gate = gate > limit ? limit : gate;
    }
    if (kind == LP_MOE_SITU)
        return alpha * tanhf(gate / alpha) * moe_sigmoid(gate) * (beta > 0.0f ? beta * tanhf(up / beta) : up);
    float h = gate * moe_sigmoid(alpha * gate);
    if (kind == LP_MOE_SWIGLU_STEP)
        return (h > limit ? limit : h) * up;
    return h * (up + beta);
}

#endif
