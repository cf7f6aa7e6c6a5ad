/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of gate and up, in FP32; a NaN goes through. megamoe.h has the formulas. */
#ifndef LOADPLAN_MOE_ACTIVATION_CUH
#define LOADPLAN_MOE_ACTIVATION_CUH

#include "kernels/megamoe.h"

__device__ __forceinline__ float moe_sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
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
