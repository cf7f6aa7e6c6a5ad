/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing: ids -> rows sorted by expert, and tokens gathered into them.
 *
 * Each block counts all routes, those before its own tokens too, and so knows where its own rows go without waiting for
 * another block. Counting 50,000 ids 132 times is cheaper than a second launch.
 */
#include "kernels/megamoe_private.h"
#include "kernels/moe_launch.cuh"
#include "kernels/w4_operand.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace
{

constexpr int THREADS = 512, WARPS = THREADS / 32, MOST_EXPERTS = 512, MOST_BLOCKS = 132;
constexpr int COLUMNS = 8, GROUP = 128, GROUP_THREADS = GROUP / COLUMNS; /* of x: a thread's, a scale's */

struct Counts {
    int all[MOST_EXPERTS];    /* routes of the expert */
    int before[MOST_EXPERTS]; /* of tokens before this block's, then of those walked so far */
    int start[MOST_EXPERTS];  /* first row */
    int first_chunk[MOST_EXPERTS];
    int warp_rows[WARPS], warp_chunks[WARPS];
};

__device__ int expert_of(const lp_moe_route_job &job, int64_t route)
{
    const int64_t id = job.id_dtype == LP_I64 ? static_cast<const int64_t *>(job.topk_ids)[route]
                                              : static_cast<const int32_t *>(job.topk_ids)[route];
    const int64_t expert = id - job.first_expert;
    return id >= 0 && expert >= 0 && expert < job.experts ? static_cast<int>(expert) : -1;
}

__device__ int round_up(int value, int unit)
{
    return (value + unit - 1) / unit * unit;
}

/* all and before, by atomics that one lane does for all lanes with the same expert. */
__device__ void count_routes(const lp_moe_route_job &job, Counts &c, int routes, int own)
{
    const int lane = threadIdx.x % 32;
    for (int base = threadIdx.x - lane; base < routes; base += THREADS) {
        const int route = base + lane, expert = route < routes ? expert_of(job, route) : -1;
        const unsigned same = __match_any_sync(~0u, expert);
        const unsigned early = __ballot_sync(~0u, route < own) & same;
        if (expert >= 0 && __ffs(same) - 1 == lane) {
            atomicAdd(&c.all[expert], __popc(same));
            if (early != 0)
                atomicAdd(&c.before[expert], __popc(early));
        }
    }
}

/* Inclusive sums of a pair over the threads of a block. */
__device__ int2 block_sums(Counts &c, int2 v)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int d = 1; d < 32; d *= 2) {
        const int rows = __shfl_up_sync(~0u, v.x, d), chunks = __shfl_up_sync(~0u, v.y, d);
        if (lane >= d)
            v.x += rows, v.y += chunks;
    }
    if (lane == 31)
        c.warp_rows[warp] = v.x, c.warp_chunks[warp] = v.y;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        v.x += c.warp_rows[w], v.y += c.warp_chunks[w];
    return v;
}

/* The tables that do not belong to a token; by one block. */
__device__ void write_tables(const lp_moe_route_job &job, const Counts &c, int rows, int chunks)
{
    const lp_moe_routes &to = job.routes;
    for (int e = threadIdx.x; e < job.experts; e += THREADS) {
        const int count = c.all[e], start = c.start[e], first = c.first_chunk[e];
        const int own_chunks = (count + job.chunk_rows - 1) / job.chunk_rows;
        to.count[e] = count;
        to.start[e] = start;
        to.first_chunk[e] = first;
        if (job.received != nullptr)
            job.received[e] += count;
        for (int i = 0; i < own_chunks; i++) {
            const int left = count - i * job.chunk_rows;
            lp_moe_chunk chunk = {};
            chunk.expert = e;
            chunk.row = start + i * job.chunk_rows;
            chunk.width = min(round_up(left, job.align), job.chunk_rows);
            chunk.valid = min(left, job.chunk_rows);
            chunk.first = first;
            chunk.count = own_chunks;
            to.chunk[first + i] = chunk;
        }
        for (int row = start + count; row < start + round_up(count, job.align); row++) {
            to.row_route[row] = -1;
            to.row_weight[row] = 0.0f;
        }
    }
    if (threadIdx.x == 0) {
        to.start[job.experts] = rows;
        *to.chunks = chunks;
    }
}

/* Rows of this block's routes, in ascending route number; by one warp. */
__device__ void place_routes(const lp_moe_route_job &job, Counts &c, int own, int end)
{
    const int lane = threadIdx.x;
    for (int base = own; base < end; base += 32) {
        const int route = base + lane, expert = route < end ? expert_of(job, route) : -1;
        const unsigned same = __match_any_sync(~0u, expert);
        int row = -1;
        if (expert >= 0) {
            row = c.start[expert] + c.before[expert] + __popc(same & ((1u << lane) - 1));
            job.routes.row_route[row] = route;
            job.routes.row_weight[row] = job.topk_weight[route];
        }
        __syncwarp();
        if (expert >= 0 && __ffs(same) - 1 == lane)
            c.before[expert] += __popc(same);
        __syncwarp();
        if (route < end)
            job.routes.route_row[route] = row;
    }
}

/* ---- gather ---- */

struct Eight {
    float v[COLUMNS];
};

__device__ Eight load_bf16(const void *x, int64_t at)
{
    const uint4 raw = *reinterpret_cast<const uint4 *>(static_cast<const __nv_bfloat16 *>(x) + at);
    const uint32_t pair[4] = {raw.x, raw.y, raw.z, raw.w};
    Eight out;
    for (int i = 0; i < 4; i++) {
        out.v[2 * i] = __uint_as_float(pair[i] << 16);
        out.v[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
    }
    return out;
}

/* Scale max(amax, 1e-10) / 448 of the 128 columns that 16 lanes hold, and the values divided by it. */
__device__ uint2 quantise(const Eight &x, float *scale)
{
    float most = 0.0f;
    for (float v : x.v)
        most = fmaxf(most, fabsf(v));
    for (int d = 1; d < GROUP_THREADS; d *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    *scale = __fdiv_rn(fmaxf(most, 1e-10f), 448.0f);
    uint32_t word[2] = {};
    for (int i = 0; i < COLUMNS; i++)
        word[i / 4] |=
            static_cast<uint32_t>(__nv_cvt_float_to_fp8(__fdiv_rn(x.v[i], *scale), __NV_SATFINITE, __NV_E4M3))
            << (i % 4 * 8);
    return make_uint2(word[0], word[1]);
}

/* Where a row of a chunk lies: chunk-relative number and the chunk's first row and width. */
struct Spot {
    int row, n, width, first_row;
};

__device__ Spot spot_of(const lp_moe_route_job &job, const Counts &c, int expert, int row)
{
    const int rank = row - c.start[expert], chunk = rank / job.chunk_rows, first = chunk * job.chunk_rows;
    Spot s;
    s.row = row;
    s.n = rank - first;
    s.width = min(round_up(c.all[expert] - first, job.align), job.chunk_rows);
    s.first_row = c.start[expert] + first;
    return s;
}

/* 8 E4M3 values of column k, a multiple of 8, as the projections read them. */
__device__ void store_fp8(const lp_moe_route_job &job, const Spot &s, int k, uint2 value, float scale)
{
    const int64_t hidden = job.hidden, blocks = hidden / GROUP, block = k / GROUP;
    char *const rows = static_cast<char *>(job.rows);
    if (job.gather == LP_MOE_GATHER_FP8) {
        *reinterpret_cast<uint2 *>(rows + s.row * hidden + k) = value;
        if (k % GROUP == 0)
            job.row_scale[s.row * blocks + block] = scale;
        return;
    }
    char *const to = rows + s.first_row * hidden + block * w4_block_bytes(1, s.width);
    *reinterpret_cast<uint32_t *>(to + w4_operand_byte(1, s.width, s.n, k % GROUP)) = value.x;
    *reinterpret_cast<uint32_t *>(to + w4_operand_byte(1, s.width, s.n, k % GROUP + 4)) = value.y;
    if (k % GROUP == 0)
        job.row_scale[s.first_row * blocks + block * s.width + s.n] = scale;
}

__device__ void store_bf16(const lp_moe_route_job &job, const Spot &s, int k, uint4 value)
{
    const int64_t hidden = job.hidden, block = k / GROUP;
    char *const rows = static_cast<char *>(job.rows);
    if (job.gather == LP_MOE_GATHER_BF16) {
        *reinterpret_cast<uint4 *>(rows + (s.row * hidden + k) * 2) = value;
        return;
    }
    char *const to = rows + s.first_row * hidden * 2 + block * w4_block_bytes(2, s.width);
    const uint32_t pair[4] = {value.x, value.y, value.z, value.w};
    for (int t = 0; t < 4; t++) { /* columns t and t + 4 are neighbours */
        const uint32_t low = pair[t / 2] >> (t % 2 * 16) & 0xffff, high = pair[2 + t / 2] >> (t % 2 * 16) & 0xffff;
        *reinterpret_cast<uint32_t *>(to + w4_operand_byte(2, s.width, s.n, k % GROUP + t)) = low | high << 16;
    }
}

__device__ void gather(const lp_moe_route_job &job, const Counts &c, int token, int end)
{
    const int pieces = static_cast<int>(job.hidden / COLUMNS), tasks = (end - token) * pieces;
    const bool is_fp8 = job.gather == LP_MOE_GATHER_FP8 || job.gather == LP_MOE_GATHER_W4_FP8;
    for (int task = threadIdx.x; task < tasks; task += THREADS) { /* a warp works on one token: 32 divides pieces */
        const int t = token + task / pieces, k = task % pieces * COLUMNS;
        const int64_t at = t * job.hidden + k;
        uint4 raw = {};
        uint2 code = {};
        float scale = 0.0f;
        if (!is_fp8)
            raw = *reinterpret_cast<const uint4 *>(static_cast<const __nv_bfloat16 *>(job.x) + at);
        else if (job.x_dtype == LP_BF16)
            code = quantise(load_bf16(job.x, at), &scale);
        else {
            code = *reinterpret_cast<const uint2 *>(static_cast<const char *>(job.x) + at);
            scale = job.x_scale[at / GROUP];
        }
        for (int j = 0; j < job.top_k; j++) {
            const int64_t route = t * job.top_k + j;
            const int row = job.routes.route_row[route];
            if (row < 0)
                continue;
            const Spot s = spot_of(job, c, expert_of(job, route), row);
            if (is_fp8)
                store_fp8(job, s, k, code, scale);
            else
                store_bf16(job, s, k, raw);
        }
    }
}

__global__ void __launch_bounds__(THREADS) route(const __grid_constant__ lp_moe_route_job job)
{
    __shared__ Counts c;
    const int tokens = max(0, min(*job.tokens, static_cast<int>(job.max_tokens))),
              choices = static_cast<int>(job.top_k);
    const int each = (tokens + gridDim.x - 1) / gridDim.x;
    const int token = min(tokens, static_cast<int>(blockIdx.x) * each), token_end = min(tokens, token + each);
    const int experts = static_cast<int>(job.experts);
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < job.sync_words; i += THREADS)
            job.routes.sync[i] = 0;
    __threadfence(); /* the next kernel counts in sync before it waits for the end of this one */
    moe_let_next_start();
    for (int e = threadIdx.x; e < experts; e += THREADS)
        c.all[e] = c.before[e] = 0;
    __syncthreads();
    count_routes(job, c, tokens * choices, token * choices);
    __syncthreads();
    const int count = static_cast<int>(threadIdx.x) < experts ? c.all[threadIdx.x] : 0;
    const int rows = round_up(count, job.align), chunks = (count + job.chunk_rows - 1) / job.chunk_rows;
    const int2 sum = block_sums(c, make_int2(rows, chunks));
    if (static_cast<int>(threadIdx.x) < experts) {
        c.start[threadIdx.x] = sum.x - rows;
        c.first_chunk[threadIdx.x] = sum.y - chunks;
    }
    __syncthreads();
    if (blockIdx.x == 0) {
        const int all_rows = c.start[experts - 1] + round_up(c.all[experts - 1], job.align);
        const int last = (c.all[experts - 1] + job.chunk_rows - 1) / job.chunk_rows;
        write_tables(job, c, all_rows, c.first_chunk[experts - 1] + last);
    }
    if (threadIdx.x < 32)
        place_routes(job, c, token * choices, token_end * choices);
    __syncthreads();
    if (job.gather != LP_MOE_GATHER_NONE)
        gather(job, c, token, token_end);
}

} // namespace

extern "C" lp_status lp_moe_route(const lp_moe_route_job *job, void *stream, lp_error *err)
{
    const int blocks = static_cast<int>(job->max_tokens < MOST_BLOCKS ? job->max_tokens : MOST_BLOCKS);
    const moe_launch launch(blocks, THREADS, 0, stream, false);
    return moe_launched(cudaLaunchKernelEx(&launch.config, route, *job), "routing", err);
}
