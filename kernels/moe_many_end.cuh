/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a tile whose sums are in registers, for the kernels of many tokens: activations, and rows of out.
 *
 * Sums of all widths are in the same registers, [part][4j + 2r + c] of token 8j + 2q + c and of row g + 8r of the
 * warp's 16 of a part, with g = lane / 4, q = lane % 4; r = 0 is gate and r = 1 up of a column of h. So the end of a
 * tile is the same code for all widths. Code that a block has not run yet comes from memory, which takes longer than to
 * run it: what is long is a function, and what has to be unrolled stops at the width.
 */
#ifndef LOADPLAN_MOE_MANY_END_CUH
#define LOADPLAN_MOE_MANY_END_CUH

#include "kernels/moe_activation.cuh"
#include "kernels/moe_rows.cuh"
#include "kernels/prefill_ptx.cuh"

/* Gate and up of a thread's rows by some tokens, and what becomes of them. */
struct moe_gate_up {
    float gate[8], up[8];
};
struct moe_eight {
    float of[8];
};

/* One value after the other: the code of these activations is long, and they are rare. */
static __device__ __noinline__ moe_eight moe_activate_any(moe_gate_up in, int kind, float alpha, float beta,
                                                          float limit)
{
    moe_eight out;
#pragma unroll 1
    for (int i = 0; i < 8; i++)
        out.of[i] = moe_activate(kind, alpha, beta, limit, in.gate[i], in.up[i]);
    return out;
}

/* LP_MOE_SWIGLU with a limit that may be infinite. SCALED: of gate and up times factors. */
template <bool SCALED>
__device__ __noinline__ moe_eight moe_swiglu(moe_gate_up in, float gate_factor, float up_factor, float alpha,
                                             float beta, float limit)
{
    moe_eight out;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float gate = moe_at_most(SCALED ? in.gate[i] * gate_factor : in.gate[i], limit);
        const float up = moe_at_least(moe_at_most(SCALED ? in.up[i] * up_factor : in.up[i], limit), -limit);
        out.of[i] = gate * moe_sigmoid(alpha * gate) * (up + beta);
    }
    return out;
}

/* total[part][4j + c] <- h of gate total[part][4j + c] and up total[part][4j + 2 + c], times their factors if SCALED.
 * Arguments: what has the activation of a call. */
template <bool SCALED, int PARTS, int SUMS, typename Arguments>
__device__ __forceinline__ void moe_many_activate(const Arguments &p, int width, float gate_factor, float up_factor,
                                                  float (&total)[PARTS][SUMS])
{
    constexpr int AT_ONCE = 4 / PARTS; /* eights of tokens */
    const float limit = p.limit > 0.0f ? p.limit : __int_as_float(0x7f800000);
#pragma unroll
    for (int first = 0; first < SUMS / 4; first += AT_ONCE) {
        if (8 * first >= width)
            break;
        moe_gate_up in;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int part = k / 2 / AT_ONCE, at = 4 * (first + k / 2 % AT_ONCE) + k % 2;
            in.gate[k] = total[part][at];
            in.up[k] = total[part][at + 2];
        }
        moe_eight out;
        if (p.activation == LP_MOE_SWIGLU) {
            out = moe_swiglu<SCALED>(in, gate_factor, up_factor, p.alpha, p.beta, limit);
        } else {
#pragma unroll
            for (int k = 0; SCALED && k < 8; k++)
                in.gate[k] *= gate_factor, in.up[k] *= up_factor;
            out = moe_activate_any(in, p.activation, p.alpha, p.beta, p.limit);
        }
#pragma unroll
        for (int k = 0; k < 8; k++)
            total[k / 2 / AT_ONCE][4 * (first + k / 2 % AT_ONCE) + k % 2] = out.of[k];
    }
}

/* Bytes that a token has of a warp's rows in BF16. */
template <int PARTS> constexpr int moe_turned_row = 32 * PARTS;

/*
 * Rows of out, BF16: the totals times `alpha`. AT_ONCE tokens at a time through `turned`, the shared address of the
 * warp's AT_ONCE * moe_turned_row bytes, so that a lane writes 16 bytes of a row, from byte in_row on: what the warp
 * has of chunk lane % (2 PARTS) of sixteen of its bytes. Chunks change places with the tokens, for the banks' sake.
 */
template <int PARTS, int SUMS, int AT_ONCE, typename Arguments, typename Item>
__device__ __forceinline__ void moe_many_store(const Arguments &p, const Item &item, int width, uint32_t turned,
                                               int in_row, float alpha, const float (&total)[PARTS][SUMS])
{
    constexpr int CHUNKS = 2 * PARTS, ROW = moe_turned_row<PARTS>, TOKENS = 32 / CHUNKS;
    const int lane = threadIdx.x % 32;
    const int to_token = lane % 8 + lane / (8 * CHUNKS) * 8, token = lane / CHUNKS, chunk = lane % CHUNKS;
    const uint32_t to = turned + to_token * ROW + (lane / 8 % CHUNKS ^ to_token * CHUNKS / 8 % CHUNKS) * 16;
    const uint32_t from = turned + token * ROW + (chunk ^ token * CHUNKS / 8 % CHUNKS) * 16;
#pragma unroll
    for (int first = 0; first < SUMS / 4; first += AT_ONCE / 8) {
        if (8 * first >= width)
            break;
#pragma unroll
        for (int j = first; j < SUMS / 4 && j < first + AT_ONCE / 8; j += 4 / CHUNKS) {
            if (8 * j >= width)
                break;
            uint32_t pair[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int part = i % CHUNKS / 2, at = 4 * (j + i / CHUNKS) + i % 2 * 2;
                pair[i] = prefill::bf16_pair(total[part][at] * alpha, total[part][at + 1] * alpha);
            }
            prefill::store_matrices_turned(to + (j - first) * (8 * ROW), pair[0], pair[1], pair[2], pair[3]);
        }
        __syncwarp();
        const int end = min(item.valid, 8 * first + AT_ONCE);
#pragma unroll 1
        for (int n = 8 * first + token; n < end; n += TOKENS) {
            const uint4 out = hopper::load16(from + (n - token - 8 * first) * ROW);
            *reinterpret_cast<uint4 *>(moe_row_place(p.sink, p.routes.row_route, p.out, item.row + n, p.hidden) +
                                       in_row) = out;
        }
        __syncwarp();
    }
}

#endif
