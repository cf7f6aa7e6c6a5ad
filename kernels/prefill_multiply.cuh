/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a tile: each of two warpgroups has 64 tokens by 256 rows of weights. Element [128 sums] of a thread: sum
 * 4 j + 2 r + c belongs to token g + 8 r of the warp's 16 and to weight row 8 j + 2 q + c, with g = lane / 4,
 * q = lane % 4.
 */
#ifndef LOADPLAN_PREFILL_MULTIPLY_CUH
#define LOADPLAN_PREFILL_MULTIPLY_CUH

#include "kernels/prefill_tile.cuh"

/* Scales of the two weight blocks of a tile, block by block along K: 32 at a time in the lanes of a warp. */
struct prefill_block_scales {
    const float *from[2];
    float held[2];
    int count;
    __device__ prefill_block_scales(const prefill_arguments &p, const prefill_task &task, int which, int blocks,
                                    bool used)
        : from(), held(), count(blocks)
    {
        if (!used)
            return;
        const int inner = p.intermediate / 128, rows = which == 0 ? 2 * inner : p.hidden / 128;
        const int first = which == 0 ? task.n : 2 * task.n, second = which == 0 ? inner + task.n : 2 * task.n + 1;
        const int64_t base = static_cast<int64_t>(task.expert) * rows;
        from[0] = p.weight_scale[which] + (base + first) * blocks;
        from[1] = p.weight_scale[which] + (base + second) * blocks;
    }
    __device__ float2 at(int block)
    {
        const int lane = threadIdx.x % 32;
        if (block % 32 == 0)
            for (int i = 0; i < 2; i++)
                held[i] = block + lane < count ? __ldg(from[i] + block + lane) : 0.0f;
        return make_float2(__shfl_sync(~0u, held[0], block % 32), __shfl_sync(~0u, held[1], block % 32));
    }
};

/* sum += part * factor, for 64 tokens x 128 rows; factors of even and odd groups of eight rows. */
__device__ __forceinline__ void prefill_promote(float *sum, const float (&part)[64], float2 even, float2 odd)
{
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 f = j & 1 ? odd : even;
            sum[4 * j + i] += part[4 * j + i] * (i < 2 ? f.x : f.y);
        }
}

/* Frees a stage for both blocks of the cluster, whose copies go to both, or `solo` for this one; by each warp. */
__device__ __forceinline__ void prefill_release(uint32_t empty, bool solo)
{
    __syncwarp();
    if (threadIdx.x % 32 < 2) {
        if (solo)
            hopper::barrier_arrive(empty);
        else
            prefill::barrier_arrive_at(empty, threadIdx.x % 32);
    }
}

/*
 * Turns: the two multiplying warpgroups start their products one after the other, so that one has products running
 * while the other adds up or waits. Left alone both would wait at the same time. Group 1 gives the first turn, to group
 * 0.
 */
__device__ __forceinline__ void prefill_take_turn()
{
    asm volatile("bar.sync %0, 256;" ::"r"(1 + threadIdx.x / 128) : "memory");
}
__device__ __forceinline__ void prefill_give_turn()
{
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - threadIdx.x / 128) : "memory");
}

/* A piece of 128 bytes of K for one half of the weight rows, into fresh sums. */
template <int KIND>
__device__ __forceinline__ void prefill_part(float (&part)[64], uint64_t tokens, uint64_t weights, bool turns)
{
    using namespace hopper;
    using namespace prefill;
    if (turns)
        prefill_take_turn();
    mma_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (KIND == LP_PREFILL_FP8)
            mma_e4m3_n128(part, tokens + 16 * i, weights + 2 * i, i > 0);
        else if (KIND == LP_PREFILL_MX)
            mma_e4m3_e5m2_n128(part, tokens + 16 * i, weights + 2 * i, i > 0);
        else
            mma_bf16_n128(part, tokens + 16 * i, weights + 2 * i, i > 0);
    }
    mma_commit();
    if (turns)
        prefill_give_turn();
    mma_wait<0>();
}

template <int KIND>
__device__ __forceinline__ void prefill_multiply(const prefill_arguments &p, prefill_shared<KIND> &sm,
                                                 prefill_ring<prefill_stages(KIND)> &ring, const prefill_task &task,
                                                 int which, int pieces, float (&sum)[128])
{
    using namespace hopper;
    using namespace prefill;
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
    const int token = group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    const bool idle = task.idle || group * 64 >= task.rows;
    const bool turns = task.rows > 64; /* else group 1 is idle */
    const bool solo = prefill_is_solo(p, sm.tables);
    const uint32_t full = shared_address(sm.full), empty = shared_address(sm.empty);
#pragma unroll
    for (int i = 0; i < 128; i++)
        sum[i] = 0.0f;
    if (idle) {
        for (int k = 0; k < pieces; k++, ring.next()) {
            barrier_wait(full + 8 * ring.stage, ring.phase);
            prefill_release(empty + 8 * ring.stage, solo);
        }
        return;
    }
    if constexpr (!prefill_is_scaled(KIND)) {
        for (int k = 0; k < pieces; k++, ring.next()) {
            barrier_wait(full + 8 * ring.stage, ring.phase);
            const uint64_t a = core_descriptor(shared_address(sm.tokens[ring.stage]) + group * 8192);
            const uint64_t b = swizzled_descriptor(shared_address(sm.weight[ring.stage]));
            if (turns)
                prefill_take_turn();
            mma_begin();
#pragma unroll
            for (int i = 0; i < 4; i++)
                mma_bf16_n256(sum, a + 16 * i, b + 2 * i, 1);
            mma_commit();
            if (turns)
                prefill_give_turn();
            mma_wait<0>();
            prefill_release(empty + 8 * ring.stage, solo);
        }
    } else {
        constexpr int PER_SCALE = prefill_element(KIND); /* pieces of a block of 128 columns */
        prefill_block_scales scales(p, task, which, pieces / PER_SCALE, prefill_has_blocks(KIND));
        float part[64];
        for (int k = 0; k < pieces; k++, ring.next()) {
            const float2 block = prefill_has_blocks(KIND) ? scales.at(k / PER_SCALE) : make_float2(1.0f, 1.0f);
            barrier_wait(full + 8 * ring.stage, ring.phase);
            const float low = sm.scale[ring.stage][token], high = sm.scale[ring.stage][token + 8];
            const uint64_t a = core_descriptor(shared_address(sm.tokens[ring.stage]) + group * 8192);
            const uint64_t b = swizzled_descriptor(shared_address(sm.weight[ring.stage]));
            const float2 first = make_float2(low * block.x, high * block.x);
            const float2 second = make_float2(low * block.y, high * block.y);
            /* First projection: gate and up alternate by eight. Second: a block of 128 rows after the other. */
            prefill_part<KIND>(part, a, b, turns);
            prefill_promote(sum, part, first, which == 0 ? second : first);
            prefill_part<KIND>(part, a, b + 1024, turns);
            prefill_release(empty + 8 * ring.stage, solo);
            prefill_promote(sum + 64, part, which == 0 ? first : second, second);
        }
    }
}

#endif
