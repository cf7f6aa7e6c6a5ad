/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a tile: each of two warpgroups has 64 tokens by 256 rows of weights, or half of the rows where no more
 * tokens are there (prefill_share). Element [128 sums] of a thread: sum 4 j + 2 r + c belongs to token g + 8 r of the
 * warp's 16 and to weight row 8 j + 2 q + c, with g = lane / 4, q = lane % 4.
 */
#ifndef LOADPLAN_PREFILL_MULTIPLY_CUH
#define LOADPLAN_PREFILL_MULTIPLY_CUH

#include "kernels/prefill_walk.cuh"

/* Scales of the two weight blocks of a tile, block by block along K: 32 at a time in the lanes of a warp. */
struct prefill_block_scales {
    const float *from[2] = {};
    float held[2] = {};
    int count = 0;
    /* Asks for the first ones; early, for they come from memory. */
    __device__ void start(const prefill_arguments &p, const prefill_task &task)
    {
        const int which = task.which, blocks = (which == 0 ? p.hidden : p.intermediate) / 128;
        const int inner = p.intermediate / 128, rows = which == 0 ? 2 * inner : p.hidden / 128;
        const int first = which == 0 ? task.n : 2 * task.n, second = which == 0 ? inner + task.n : 2 * task.n + 1;
        const int64_t base = static_cast<int64_t>(task.expert) * rows;
        from[0] = p.weight_scale[which] + (base + first) * blocks;
        from[1] = p.weight_scale[which] + (base + second) * blocks;
        count = blocks;
        load(0);
    }
    __device__ void load(int block)
    {
        const int at = block + static_cast<int>(threadIdx.x) % 32;
        for (int i = 0; i < 2; i++)
            held[i] = at < count ? __ldg(from[i] + at) : 0.0f;
    }
    __device__ float2 at(int block)
    {
        if (block % 32 == 0 && block > 0)
            load(block);
        return make_float2(__shfl_sync(~0u, held[0], block % 32), __shfl_sync(~0u, held[1], block % 32));
    }
};

/* sum += part * factor, for 64 tokens x 64 rows; factors of even and odd groups of eight rows. */
__device__ __forceinline__ void prefill_promote(float *sum, const float (&part)[32], float2 even, float2 odd)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 f = j & 1 ? odd : even;
            sum[4 * j + i] += part[4 * j + i] * (i < 2 ? f.x : f.y);
        }
}

/* Frees a stage for both blocks of the cluster, whose copies go to both, or `solo` twice for this one; by each warp. */
__device__ __forceinline__ void prefill_release(uint32_t empty, bool solo)
{
    const uint32_t lane = threadIdx.x % 32;
    __syncwarp();
    prefill::barrier_arrive_at(empty, solo ? prefill::cluster_rank() : lane, lane < 2);
}

/* Starts `Count` products of 32 bytes of K, from number `first` of the four of a piece on, for a quarter of the weight
 * rows, into fresh sums. */
template <int KIND, int Count>
__device__ __forceinline__ void prefill_start(float (&part)[32], uint64_t tokens, uint64_t weights, int first)
{
    using namespace hopper;
    using namespace prefill;
    constexpr int STEP = prefill_swizzles(KIND) ? 2 : 16;
    mma_begin();
#pragma unroll
    for (int i = first; i < first + Count; i++) {
        if (KIND == LP_PREFILL_FP8)
            mma_e4m3_n64(part, tokens + STEP * i, weights + 2 * i, i > first);
        else if (prefill_is_mx(KIND))
            mma_e4m3_e5m2_n64(part, tokens + STEP * i, weights + 2 * i, i > first);
        else
            mma_bf16_n64(part, tokens + STEP * i, weights + 2 * i, i > first);
    }
    mma_commit();
}

__device__ __forceinline__ float (&prefill_half(float (&sum)[128], int half))[64]
{
    return *reinterpret_cast<float(*)[64]>(sum + 64 * half);
}

/* The operands of a stage, as products name them. */
struct prefill_operands {
    uint64_t tokens, weights;
    template <int KIND>
    __device__ __forceinline__ prefill_operands(const prefill_shared<KIND> &sm, int ring_stage,
                                                const prefill_share &share)
    {
        const int stage = __shfl_sync(~0u, ring_stage, 0); /* tells the compiler that a warp has one */
        const uint32_t first = hopper::shared_address(sm.tokens[stage]);
        tokens = (prefill_swizzles(KIND) ? prefill::swizzled_descriptor(first) : prefill::core_descriptor(first)) +
                 share.first_token * (128 / 16);
        weights =
            prefill::swizzled_descriptor(hopper::shared_address(sm.weight[stage])) + share.half * (128 * 128 / 16);
    }
};

/* Sums in place, of kinds whose sums have no scales. One stage's products run while the next are started. */
template <int KIND>
__device__ __forceinline__ void
prefill_multiply_plain(prefill_shared<KIND> &sm, prefill_ring<prefill_stages(KIND)> &ring, const prefill_share &share,
                       int pieces, bool solo, float (&sum)[128])
{
    using namespace hopper;
    using namespace prefill;
    const uint32_t full = shared_address(sm.full), empty = shared_address(sm.empty);
    uint32_t last = 0; /* stage whose products may still run */
    for (int k = 0; k < pieces; k++, ring.next()) {
        barrier_wait(full + 8 * ring.stage, ring.phase);
        const prefill_operands at(sm, ring.stage, share);
        mma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (prefill_decodes(KIND)) { /* a launch of 512 threads has no 128 registers for one product */
                mma_bf16_n128(prefill_half(sum, 0), at.tokens + 16 * i, at.weights + 2 * i, 1);
                mma_bf16_n128(prefill_half(sum, 1), at.tokens + 16 * i, at.weights + 1024 + 2 * i, 1);
            } else {
                mma_bf16_n256(sum, at.tokens + 16 * i, at.weights + 2 * i, 1);
            }
        }
        mma_commit();
        mma_wait<1>();
        if (last != 0)
            prefill_release(last, solo);
        last = empty + 8 * ring.stage;
    }
    mma_wait<0>();
    prefill_release(last, solo);
}

/* The scales of a stage's sums: those of two tokens, times the scale of a block of weights where there is one. */
struct prefill_factors {
    float2 first, second; /* of the tile's two blocks */
    template <int KIND>
    __device__ __forceinline__ prefill_factors(const prefill_shared<KIND> &sm, int stage, const prefill_share &share,
                                               float2 block)
    {
        const int token = share.first_token + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const float low = sm.scale[stage][token], high = sm.scale[stage][token + 8];
        first = make_float2(low * block.x, high * block.x);
        second = make_float2(low * block.y, high * block.y);
    }
};

/*
 * A stage: quarter by quarter of the weight rows, COLUMNS bytes of K go into fresh sums, and are added to the totals
 * while the next are multiplied. `even` and `odd`: the factors of a quarter's groups of eight rows.
 */
template <int KIND, int COLUMNS, int QUARTERS>
__device__ __forceinline__ void prefill_multiply_stage(float (&sum)[128], const prefill_operands &at,
                                                       const float2 (&even)[QUARTERS], const float2 (&odd)[QUARTERS],
                                                       uint32_t empty, bool solo)
{
    constexpr int EACH = 128 / COLUMNS, STEPS = QUARTERS * EACH; /* sums of a quarter, of all */
    float part[2][32];
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        prefill_start<KIND, 4 / EACH>(part[i % 2], at.tokens, at.weights + 512 * (i / EACH), i % EACH * (4 / EACH));
        if (i == 0)
            continue;
        const int done = (i - 1) / EACH;
        hopper::mma_wait<1>();
        prefill_promote(sum + 32 * done, part[(i - 1) % 2], even[done], odd[done]);
    }
    hopper::mma_wait<0>();
    prefill_release(empty, solo);
    prefill_promote(sum + 32 * (QUARTERS - 1), part[(STEPS - 1) % 2], even[QUARTERS - 1], odd[QUARTERS - 1]);
}

/* The factors of a stage's four quarters, for their even and odd groups of eight rows: gate and up, the blocks of the
 * first projection, alternate by eight rows; in the second one block of 128 rows follows the other. */
struct prefill_quarter_factors {
    float2 even[4], odd[4];
    __device__ __forceinline__ prefill_quarter_factors(const prefill_factors &by, int which)
        : even{by.first, by.first, which == 0 ? by.first : by.second, which == 0 ? by.first : by.second},
          odd{which == 0 ? by.second : by.first, which == 0 ? by.second : by.first, by.second, by.second}
    {
    }
};

/*
 * AT_ONCE stages of a tile that is not divided, from number k on, as prefill_multiply_stage. The last products of a
 * stage are added while the first of the next one run, but for those of the last: the compiler does not follow products
 * around a loop, and would let none run beside another.
 */
template <int KIND, int COLUMNS, int AT_ONCE>
__device__ __forceinline__ void prefill_multiply_stages(prefill_shared<KIND> &sm,
                                                        prefill_ring<prefill_stages(KIND)> &ring,
                                                        prefill_block_scales &scales, const prefill_share &share,
                                                        int which, int k, bool solo, float (&sum)[128])
{
    constexpr int EACH = 128 / COLUMNS, STEPS = 4 * EACH, COUNT = 4 / EACH;
    const uint32_t full = hopper::shared_address(sm.full), empty = hopper::shared_address(sm.empty);
    float part[2][32];
    float2 even = {}, odd = {}; /* of the last quarter of the stage before */
    uint32_t last = 0;
#pragma unroll
    for (int s = 0; s < AT_ONCE; s++, ring.next()) {
        const float2 block = scales.at(k + s);
        hopper::barrier_wait(full + 8 * ring.stage, ring.phase);
        const prefill_factors factors(sm, ring.stage, share, block);
        const prefill_operands at(sm, ring.stage, share);
        prefill_start<KIND, COUNT>(part[0], at.tokens, at.weights, 0);
        if (s > 0) {
            hopper::mma_wait<1>();
            prefill_release(last, solo);
            prefill_promote(sum + 96, part[1], even, odd);
        }
        const prefill_quarter_factors by(factors, which);
#pragma unroll
        for (int i = 1; i < STEPS; i++) {
            prefill_start<KIND, COUNT>(part[i % 2], at.tokens, at.weights + 512 * (i / EACH), i % EACH * COUNT);
            hopper::mma_wait<1>();
            const int done = (i - 1) / EACH;
            prefill_promote(sum + 32 * done, part[(i - 1) % 2], by.even[done], by.odd[done]);
        }
        last = empty + 8 * ring.stage, even = by.even[3], odd = by.odd[3];
    }
    hopper::mma_wait<0>();
    prefill_release(last, solo);
    prefill_promote(sum + 96, part[1], even, odd);
}

/* FP8 blocks. Two stages together are faster only where sums are long. */
template <int KIND, int COLUMNS>
__device__ __forceinline__ void prefill_multiply_blocks(const prefill_arguments &p, prefill_shared<KIND> &sm,
                                                        prefill_ring<prefill_stages(KIND)> &ring,
                                                        prefill_block_scales &scales, const prefill_share &share,
                                                        int which, int pieces, bool solo, float (&sum)[128])
{
    const uint32_t full = hopper::shared_address(sm.full), empty = hopper::shared_address(sm.empty);
    if (share.is_half) {
#pragma unroll 1
        for (int k = 0; k < pieces; k++, ring.next()) {
            const float2 block = scales.at(k);
            hopper::barrier_wait(full + 8 * ring.stage, ring.phase);
            const prefill_factors by(sm, ring.stage, share, block);
            const prefill_operands at(sm, ring.stage, share);
            const float2 one = which == 1 && share.half == 1 ? by.second : by.first;
            const float2 other = which == 1 && share.half == 0 ? by.first : by.second;
            const float2 even[2] = {one, one}, odd[2] = {other, other};
            prefill_multiply_stage<KIND, COLUMNS, 2>(sum, at, even, odd, empty + 8 * ring.stage, solo);
        }
        return;
    }
    constexpr int AT_ONCE = COLUMNS == 128 ? 2 : 1;
    int k = 0;
#pragma unroll 1
    for (; k + AT_ONCE <= pieces; k += AT_ONCE)
        prefill_multiply_stages<KIND, COLUMNS, AT_ONCE>(sm, ring, scales, share, which, k, solo, sum);
    if (k < pieces)
        prefill_multiply_stages<KIND, COLUMNS, 1>(sm, ring, scales, share, which, k, solo, sum);
}

/* Weights that are decoded, with scales of tokens. Blocks that decode them have registers for one quarter at a time. */
template <int KIND>
__device__ __forceinline__ void prefill_multiply_scaled(const prefill_arguments &p, prefill_shared<KIND> &sm,
                                                        prefill_ring<prefill_stages(KIND)> &ring,
                                                        const prefill_task &task, const prefill_share &share, int which,
                                                        int pieces, bool solo, float (&sum)[128])
{
    using namespace hopper;
    constexpr int PER_SCALE = prefill_element(KIND); /* pieces of a block of 128 columns */
    const uint32_t full = shared_address(sm.full), empty = shared_address(sm.empty);
    prefill_block_scales scales;
    if (prefill_has_blocks(KIND))
        scales.start(p, task);
    float part[32];
#pragma unroll 1
    for (int k = 0; k < pieces; k++, ring.next()) {
        const float2 block = prefill_has_blocks(KIND) ? scales.at(k / PER_SCALE) : make_float2(1.0f, 1.0f);
        barrier_wait(full + 8 * ring.stage, ring.phase);
        const prefill_factors by(sm, ring.stage, share, block);
        const prefill_operands at(sm, ring.stage, share);
        if constexpr (prefill_is_ahead(KIND)) {
            const float2 all[4] = {by.first, by.first, by.first, by.first};
            prefill_multiply_stage<KIND, 128, 4>(sum, at, all, all, empty + 8 * ring.stage, solo);
            continue;
        }
        const float2 low_odd = which == 0 ? by.second : by.first, high_even = which == 0 ? by.first : by.second;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            prefill_start<KIND, 4>(part, at.tokens, at.weights + 512 * n, 0);
            mma_wait<0>();
            if (n == 3)
                prefill_release(empty + 8 * ring.stage, solo);
            prefill_promote(sum + 32 * n, part, n < 2 ? by.first : high_even, n < 2 ? low_odd : by.second);
        }
    }
}

template <int KIND>
__device__ __forceinline__ void prefill_multiply(const prefill_arguments &p, prefill_shared<KIND> &sm,
                                                 prefill_ring<prefill_stages(KIND)> &ring, const prefill_task &task,
                                                 prefill_block_scales &scales, const prefill_share &share, int which,
                                                 int pieces, float (&sum)[128])
{
    using namespace hopper;
    const bool solo = prefill_is_solo(p, sm.tables);
#pragma unroll
    for (int i = 0; i < 128; i++)
        sum[i] = 0.0f;
    if (share.idle) {
        for (int k = 0; k < pieces; k++, ring.next()) {
            barrier_wait(shared_address(&sm.full[ring.stage]), ring.phase);
            prefill_release(shared_address(&sm.empty[ring.stage]), solo);
        }
    } else if constexpr (KIND == LP_PREFILL_FP8) {
        if (which == 0 && !p.fast)
            prefill_multiply_blocks<KIND, LP_MOE_SUM_COLUMNS>(p, sm, ring, scales, share, which, pieces, solo, sum);
        else
            prefill_multiply_blocks<KIND, LP_MOE_LONG_SUM_COLUMNS>(p, sm, ring, scales, share, which, pieces, solo,
                                                                   sum);
    } else if constexpr (prefill_is_scaled(KIND)) {
        prefill_multiply_scaled(p, sm, ring, task, share, which, pieces, solo, sum);
    } else {
        prefill_multiply_plain(sm, ring, share, pieces, solo, sum);
    }
}

#endif
