/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of one part of a tile: a warpgroup has 64 rows of weights by N tokens. Sum 4 j + 2 r + c of a thread belongs
 * to row g + 8 r of its warp's 16 and to token 8 j + 2 q + c, with g = lane / 4, q = lane % 4.
 *
 * Bits are those of the path of many tokens: the same products in the same order, 64 or 128 columns of E4M3 into fresh
 * sums and then, in FP32, times both scales, to the totals; BF16 into the same sums throughout.
 */
#ifndef LOADPLAN_F8_MULTIPLY_CUH
#define LOADPLAN_F8_MULTIPLY_CUH

#include "kernels/f8_block.cuh"

/* Scales of the weight blocks of a thread's two rows, block by block along K: 32 at a time in the lanes of a warp, and
 * the next 32 already asked for. */
struct f8_block_scales {
    const float *from[2];
    float held[2], next[2];
    int count;

    /* Of blocks `first` and `second` of 128 weight rows, of the thread's rows g and g + 8. */
    __device__ __forceinline__ f8_block_scales(const f8_arguments &p, const f8_item &item, int first, int second,
                                               bool used)
        : from(), held(), next(), count(p.projection[item.projection].pieces)
    {
        if (!used)
            return;
        from[0] = f8_scale_row(p, item, first);
        from[1] = f8_scale_row(p, item, second);
        load(0);
        advance(0);
    }
    __device__ __forceinline__ void load(int block)
    {
        const int at = block + static_cast<int>(threadIdx.x % 32);
#pragma unroll
        for (int i = 0; i < 2; i++)
            next[i] = at < count ? __ldg(from[i] + at) : 0.0f;
    }
    __device__ __forceinline__ void advance(int block)
    {
        held[0] = next[0], held[1] = next[1];
        load(block + 32);
    }
    __device__ __forceinline__ float2 at(int block)
    {
        if (block % 32 == 0 && block > 0)
            advance(block);
        return make_float2(__shfl_sync(~0u, held[0], block % 32), __shfl_sync(~0u, held[1], block % 32));
    }
};

/* Adds sums of one block of 128 columns, times the scales of weights and tokens, to the totals, one after the other. */
template <int N, int COUNT>
__device__ __forceinline__ void f8_promote(float (&total)[N / 2], const float (&sum)[COUNT][N / 2], float2 block,
                                           uint32_t at)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 scale = w4_load_floats(at + 32 * j);
        const float factor[4] = {scale.x * block.x, scale.y * block.x, scale.x * block.y, scale.y * block.y};
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                total[4 * j + r] = fmaf(sum[i][4 * j + r], factor[r], total[4 * j + r]);
    }
}

/* `Count` products of 32 bytes of K, from number `first` of the four of a piece on. */
template <int KIND, int N, int Count>
__device__ __forceinline__ void f8_products(float (&sum)[N / 2], uint32_t weights, uint32_t tokens, int first, int add)
{
#pragma unroll
    for (int i = 0; i < Count; i++)
        f8_mma<KIND == F8_BF16, N>(sum, w4_operand(weights, 2 * (first + i)), w4_operand(tokens, 2 * (first + i)),
                                   add | (i > 0));
}

/* A piece of BF16, into the totals. */
template <int N>
__device__ __forceinline__ void f8_multiply_bf16(float (&total)[N / 2], uint32_t weights, uint32_t tokens)
{
    hopper::mma_begin();
    f8_products<F8_BF16, N, 4>(total, weights, tokens, 0, 1);
    hopper::mma_commit();
    hopper::mma_wait<0>();
}

/* A piece of E4M3, `COLUMNS` of its 128 columns to a fresh sum: both halves at once where registers allow. */
template <int N, int COLUMNS>
__device__ __forceinline__ void f8_multiply_blocks(float (&total)[N / 2], uint32_t weights, uint32_t tokens,
                                                   float2 block, uint32_t scale)
{
    constexpr int SUMS = 128 / COLUMNS, EACH = 4 / SUMS, AT_ONCE = N <= 48 ? SUMS : 1;
#pragma unroll
    for (int first = 0; first < SUMS; first += AT_ONCE) {
        float sum[AT_ONCE][N / 2];
        hopper::mma_begin();
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            f8_products<F8_BLOCKS, N, EACH>(sum[i], weights, tokens, (first + i) * EACH, 0);
        hopper::mma_commit();
        hopper::mma_wait<0>();
        f8_promote<N, AT_ONCE>(total, sum, block, scale);
    }
}

/* Where a warpgroup is in the rings. Every warpgroup walks through every stage, the ones that others read too: a parity
 * tells one round from the next only to who has seen all of them. */
struct f8_rings {
    uint32_t shared; /* address of shared memory */
    f8_turn turn, token_turn;
};

/* Lets weights pass that this warpgroup does not read. */
__device__ __forceinline__ void f8_pass(f8_queue &h, f8_rings &rings, int stages)
{
    for (int i = 0; i < stages; i++, rings.turn.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.full[rings.turn.at]), rings.turn.phase);
        f8_release(&h.empty[rings.turn.at]);
    }
}

/* The same of all of an item that other warpgroups work on. */
__device__ __forceinline__ void f8_pass_item(f8_queue &h, f8_rings &rings, int stages, int parts)
{
    for (int i = 0; i < stages; i += parts, rings.token_turn.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.tokens_full[rings.token_turn.at]), rings.token_turn.phase);
        f8_pass(h, rings, parts);
        hopper::barrier_arrive(hopper::shared_address(&h.tokens_empty[rings.token_turn.at]));
    }
}

/* `part` of a tile. COLUMNS: of E4M3, to a fresh sum. */
template <int KIND, int N, int COLUMNS>
__device__ __forceinline__ void f8_multiply(const f8_arguments &p, f8_queue &h, f8_rings &rings, const f8_item &item,
                                            int part, float (&total)[N / 2])
{
    using Form = f8_few_form;
    const f8_projection &projection = p.projection[item.projection];
    const int q = threadIdx.x % 4;
    const int up = item.projection == 0 ? p.intermediate / 128 : 0; /* rows g are gate then, rows g + 8 up */
    f8_block_scales scales(p, item, item.tile, item.tile + up, KIND == F8_BLOCKS);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = 0.0f;
    for (int k = 0; k < projection.pieces; k += Form::PIECES) {
        const int pieces = min(Form::PIECES, projection.pieces - k);
        hopper::barrier_wait(hopper::shared_address(&h.tokens_full[rings.token_turn.at]), rings.token_turn.phase);
        f8_pass(h, rings, part);
        hopper::barrier_wait(hopper::shared_address(&h.full[rings.turn.at]), rings.turn.phase);
        const int stage = __shfl_sync(~0u, rings.turn.at, 0), token_stage = __shfl_sync(~0u, rings.token_turn.at, 0);
        const uint32_t weights = rings.shared + p.space.weights + stage * f8_stage_bytes<Form>;
        const uint32_t tokens = rings.shared + p.space.tokens + token_stage * p.space.token_stage;
        const uint32_t token_scales = rings.shared + p.space.scales + token_stage * p.space.scale_stage + 8 * q;
        for (int i = 0; i < pieces; i++) {
            const uint32_t a = weights + i * f8_piece_bytes<Form>, b = tokens + i * N * F8_PIECE;
            if constexpr (KIND == F8_BF16)
                f8_multiply_bf16<N>(total, a, b);
            else
                f8_multiply_blocks<N, COLUMNS>(total, a, b, scales.at(k + i), token_scales + i * N * 4);
        }
        f8_release(&h.empty[rings.turn.at]);
        rings.turn.next();
        f8_pass(h, rings, projection.parts - part - 1);
        hopper::barrier_arrive(hopper::shared_address(&h.tokens_empty[rings.token_turn.at]));
        rings.token_turn.next();
    }
}

#endif
