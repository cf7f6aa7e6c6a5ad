/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing: ids -> rows sorted by expert, and tokens gathered into them.
 *
 * Each block counts all routes, those before its own tokens too, and so knows
 * where its own rows go without waiting for another block. Where there are
 * thousands, a launch before it has counted those of each block. The last block
 * has no tokens: it writes the tables.
 *
 * A kernel that runs once reads its code from memory, and here that takes longer
 * than the work: loops stay loops where their iterations are few.
 */
#include "kernels/m8_operand.cuh"
#include "kernels/megamoe_private.h"
#include "kernels/moe_items.cuh"
#include "kernels/moe_launch.cuh"
#include "kernels/prefill_ptx.cuh"
#include "kernels/prefill_store.cuh"
#include "kernels/w4_gather.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace
{

constexpr int THREADS = 1024, MOST_EXPERTS = 512, MOST_BLOCKS = LP_MOE_ROUTE_BLOCKS;
constexpr int EARLY_ROUTES = 4;                         /* of a thread, asked for before the tokens are known */
constexpr int64_t MANY_ROUTES = EARLY_ROUTES * THREADS; /* from here on they are counted first */
constexpr int BATCH = 512;                              /* routes whose places are kept at once */
constexpr int COLUMNS = 8, GROUP = 128, GROUP_THREADS = GROUP / COLUMNS; /* of x: a thread's, a scale's */

/*
 * Division of many numbers by one, a scale of at least 1e-10 / 448 by which none of them is more than 448 in amount:
 * the same quotient as of a division, but for quotients below 2^-60. Written out, because each division would bring the
 * code of all special cases along, and a kernel that runs once reads its code from memory.
 */
struct Divisor {
    float by, inverse;
    __device__ __forceinline__ explicit Divisor(float scale) : by(scale)
    {
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scale));
        inverse = fmaf(inverse, fmaf(-by, inverse, 1.0f), inverse);
    }
    __device__ __forceinline__ float divide(float v) const
    {
        float quotient = v * inverse;
        quotient = fmaf(inverse, fmaf(-by, quotient, v), quotient);
        return fmaf(inverse, fmaf(-by, quotient, v), quotient);
    }
};

struct Counts {
    int all[MOST_EXPERTS];    /* routes of the expert */
    int before[MOST_EXPERTS]; /* of tokens before this block's, then of those
                                 walked so far */
    int start[MOST_EXPERTS];  /* first row */
    int first_chunk[MOST_EXPERTS];
    int chunk_rows[MOST_EXPERTS]; /* of each chunk but the last */
    int rows, chunks;             /* of all experts */
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

/* all and before. early: the experts of routes threadIdx.x, THREADS further on, ... */
__device__ void count_routes(const lp_moe_route_job &job, Counts &c, const int (&early)[EARLY_ROUTES], int routes,
                             int own)
{
#pragma unroll
    for (int i = 0; i < EARLY_ROUTES; i++) {
        const int route = static_cast<int>(threadIdx.x) + i * THREADS;
        if (route < routes && early[i] >= 0) {
            atomicAdd(&c.all[early[i]], 1);
            if (route < own)
                atomicAdd(&c.before[early[i]], 1);
        }
    }
}

/* Tokens of a block: `each`, from each * its number on. The last block has none. */
__device__ int tokens_of_block(const lp_moe_route_job &job)
{
    const int bound = static_cast<int>(job.max_tokens), blocks = static_cast<int>(gridDim.x) - 1;
    return (bound + blocks - 1) / blocks;
}

/* Routes of each block of the launch that follows; its last block has none and is not counted. */
__global__ void __launch_bounds__(THREADS) count_blocks(const __grid_constant__ lp_moe_route_job job)
{
    __shared__ int count[MOST_EXPERTS];
    if (job.early)
        moe_wait_for_inputs();
    moe_let_next_start();
    const int choices = static_cast<int>(job.top_k), experts = static_cast<int>(job.experts);
    const int tokens = max(0, min(*job.tokens, static_cast<int>(job.max_tokens))), each = tokens_of_block(job);
    const int first = min(tokens, static_cast<int>(blockIdx.x) * each), end = min(tokens, first + each);
    for (int e = threadIdx.x; e < experts; e += THREADS)
        count[e] = 0;
    __syncthreads();
    if (blockIdx.x == gridDim.x - 1)
        return;
    for (int route = first * choices + threadIdx.x; route < end * choices; route += THREADS) {
        const int expert = expert_of(job, route);
        if (expert >= 0)
            atomicAdd(&count[expert], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += THREADS)
        job.routes.block_count[static_cast<int>(blockIdx.x) * experts + e] = count[e];
}

/* all and before, from what count_blocks counted. */
__device__ void add_counts(const lp_moe_route_job &job, Counts &c)
{
    constexpr int AT_ONCE = 8; /* loads in flight */
    const int experts = static_cast<int>(job.experts), entries = (static_cast<int>(gridDim.x) - 1) * experts;
    for (int base = threadIdx.x; base < entries; base += AT_ONCE * THREADS) {
        int count[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            count[i] = base + i * THREADS < entries ? job.routes.block_count[base + i * THREADS] : 0;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int entry = base + i * THREADS, expert = entry % experts;
            if (count[i] == 0)
                continue;
            atomicAdd(&c.all[expert], count[i]);
            if (entry / experts < static_cast<int>(blockIdx.x))
                atomicAdd(&c.before[expert], count[i]);
        }
    }
}

/* First rows and chunks of all experts; by one warp. */
__device__ void place_experts(const lp_moe_route_job &job, Counts &c)
{
    const int lane = threadIdx.x;
    int rows = 0, chunks = 0;
    for (int base = 0; base < job.experts; base += 32) {
        const int e = base + lane, count = e < job.experts ? c.all[e] : 0;
        const int chunk_rows = moe_chunk_rows(count, job.chunk_rows, job.even_rows, job.align);
        const int own_rows = round_up(count, job.align), own_chunks = (count + chunk_rows - 1) / chunk_rows;
        int2 sum = make_int2(own_rows, own_chunks); /* becomes that of lanes up to this one */
        for (int d = 1; d < 32; d *= 2) {
            const int x = __shfl_up_sync(~0u, sum.x, d), y = __shfl_up_sync(~0u, sum.y, d);
            if (lane >= d)
                sum.x += x, sum.y += y;
        }
        if (e < job.experts) {
            c.start[e] = rows + sum.x - own_rows;
            c.first_chunk[e] = chunks + sum.y - own_chunks;
            c.chunk_rows[e] = chunk_rows;
        }
        rows += __shfl_sync(~0u, sum.x, 31);
        chunks += __shfl_sync(~0u, sum.y, 31);
    }
    if (lane == 0)
        c.rows = rows, c.chunks = chunks;
    __syncwarp();
}

/* The tables that do not belong to a token; by one block. */
__device__ void write_tables(const lp_moe_route_job &job, const Counts &c)
{
    const lp_moe_routes &to = job.routes;
    for (int e = threadIdx.x; e < job.experts; e += THREADS) {
        const int count = c.all[e], start = c.start[e], first = c.first_chunk[e];
        const int chunk_rows = c.chunk_rows[e], own_chunks = (count + chunk_rows - 1) / chunk_rows;
        to.count[e] = count;
        to.start[e] = start;
        to.first_chunk[e] = first;
        if (job.received != nullptr)
            job.received[e] += count;
        for (int i = 0; i < own_chunks; i++) {
            const int left = count - i * chunk_rows;
            lp_moe_chunk chunk = {};
            chunk.expert = e;
            chunk.row = start + i * chunk_rows;
            chunk.width = min(round_up(left, job.align), chunk_rows);
            chunk.valid = min(left, chunk_rows);
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
        to.start[job.experts] = c.rows;
        *to.chunks = c.chunks;
    }
}

/* Where the row of a route lies: its number in its chunk, the chunk's first row
 * and width. */
struct Spot {
    int row, n, width, first_row; /* row -1: masked */
};

__device__ Spot spot_of(const lp_moe_route_job &job, const Counts &c, int expert, int row)
{
    const int rank = row - c.start[expert], rows = c.chunk_rows[expert], first = rank / rows * rows;
    Spot s;
    s.row = row;
    s.n = rank - first;
    s.width = min(round_up(c.all[expert] - first, job.align), rows);
    s.first_row = c.start[expert] + first;
    return s;
}

/* Rows of routes in ascending number; by one warp. */
__device__ void place_routes(const lp_moe_route_job &job, Counts &c, Spot *spots, int first, int end)
{
    const int lane = threadIdx.x;
#pragma unroll 1
    for (int base = first; base < end; base += 32) {
        const int route = base + lane, expert = route < end ? expert_of(job, route) : -1;
        const unsigned same = __match_any_sync(~0u, expert);
        Spot spot = {-1, 0, 0, 0};
        if (expert >= 0)
            spot = spot_of(job, c, expert, c.start[expert] + c.before[expert] + __popc(same & ((1u << lane) - 1)));
        __syncwarp();
        if (expert >= 0 && __ffs(same) - 1 == lane)
            c.before[expert] += __popc(same);
        __syncwarp();
        if (route < end)
            spots[route - first] = spot;
    }
}

/* The tables of these routes. `early` is the weight of this thread's first one if `is_early`. */
__device__ void write_routes(const lp_moe_route_job &job, const Spot *spots, int first, int end, bool is_early,
                             float early)
{
    for (int route = first + threadIdx.x; route < end; route += THREADS) {
        const int row = spots[route - first].row;
        job.routes.route_row[route] = row;
        if (row >= 0) {
            job.routes.row_route[row] = route;
            job.routes.row_weight[row] =
                is_early && route == first + static_cast<int>(threadIdx.x) ? early : job.topk_weight[route];
        }
    }
}

/* ---- gather ---- */

/* Scale max(amax, 1e-10) / 448 of the 128 columns that 16 lanes hold, and the
 * values divided by it. */
__device__ __forceinline__ uint2 quantise(uint4 x, float *scale)
{
    const uint32_t pair[4] = {x.x, x.y, x.z, x.w};
    float v[COLUMNS], most = 1e-10f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(pair[i] << 16), v[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
        most = fmaxf(most, fmaxf(fabsf(v[2 * i]), fabsf(v[2 * i + 1])));
    }
#pragma unroll
    for (int d = 1; d < GROUP_THREADS; d *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    *scale = __fdiv_rn(most, 448.0f);
    const Divisor by(*scale);
    uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        two[i] = prefill::e4m3_pair(by.divide(v[2 * i]), by.divide(v[2 * i + 1]));
    return make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
}

/* 8 E4M3 values of column k, a multiple of 8, as the projections of whole-byte weights read them. */
template <int GATHER>
__device__ void store_fp8(const lp_moe_route_job &job, const Spot &s, int k, uint2 value, float scale)
{
    const int64_t hidden = job.hidden, blocks = hidden / GROUP, block = k / GROUP;
    char *const rows = static_cast<char *>(job.rows);
    if (GATHER == LP_MOE_GATHER_F8) {
        *reinterpret_cast<uint2 *>(rows + s.first_row * hidden + f8_operand_byte(s.width, s.n, k)) = value;
        if (k % GROUP == 0)
            job.row_scale[s.first_row * blocks + block * s.width + s.n] = scale;
        return;
    }
    prefill_store_codes(job.prefill_kind, rows + s.row * hidden * prefill_element(job.prefill_kind), k, value);
    if (k % GROUP == 0)
        job.row_scale[s.row * blocks + block] = scale;
}

template <int GATHER> __device__ void store_bf16(const lp_moe_route_job &job, const Spot &s, int k, uint4 value)
{
    const int64_t hidden = job.hidden;
    char *const rows = static_cast<char *>(job.rows);
    if (GATHER == LP_MOE_GATHER_F8_BF16)
        *reinterpret_cast<uint4 *>(rows + s.first_row * hidden * 2 + f8_operand_byte(s.width, s.n, 2 * k)) = value;
    else if (GATHER == LP_MOE_GATHER_M8)
        *reinterpret_cast<uint4 *>(rows + s.first_row * hidden * 2 +
                                   m8_operand_byte(s.width, s.n, k / 16 * 16 + k / 8 % 2)) = value;
    else
        prefill_store_bf16(job.prefill_kind, rows + s.row * hidden * 2, k, value);
}

/* E4M3 codes as BF16 values. */
__device__ uint4 widened(uint2 code)
{
    const uint32_t word[2] = {code.x, code.y};
    uint32_t pair[4];
    for (int i = 0; i < 4; i++) {
        __nv_fp8_e4m3 low, high;
        low.__x = static_cast<__nv_fp8_storage_t>(word[i / 2] >> (i % 2 * 16));
        high.__x = static_cast<__nv_fp8_storage_t>(word[i / 2] >> (i % 2 * 16 + 8));
        pair[i] =
            __float_as_uint(static_cast<float>(low)) >> 16 | (__float_as_uint(static_cast<float>(high)) & 0xffff0000u);
    }
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* The rows of a token's routes as the projections of 4-bit weights read them; by 16 lanes for a block of 128 columns,
 * that of column k. `code`: E4M3, or `value`: BF16. */
template <int GATHER>
__device__ __forceinline__ void store_w4(const lp_moe_route_job &job, const Spot *spot, int k, uint2 code, uint4 value,
                                         float scale)
{
    constexpr bool IS_FP8 = GATHER == LP_MOE_GATHER_W4_FP8;
    constexpr int ELEMENT = IS_FP8 ? 1 : 2, STEP = IS_FP8 ? 2 : 1; /* of E4M3, two lanes have the same 16 bytes */
    const int lane = static_cast<int>(threadIdx.x) % 16;
    const int64_t hidden = job.hidden, block = k / GROUP;
    const uint4 turned = IS_FP8 ? w4_turn_codes(code) : w4_turn_values(value);
#pragma unroll 1
    for (int j = IS_FP8 ? lane / 8 : 0; j < static_cast<int>(job.top_k); j += STEP) {
        const Spot s = spot[j];
        if (s.row < 0)
            continue;
        char *const to =
            static_cast<char *>(job.rows) + s.first_row * hidden * ELEMENT + block * w4_block_bytes(ELEMENT, s.width);
        *reinterpret_cast<uint4 *>(to + (IS_FP8 ? w4_turned_code_byte(s.n) : w4_turned_value_byte(s.width, s.n))) =
            turned;
        if (GATHER != LP_MOE_GATHER_W4_BF16 && lane % (16 / STEP) == 0)
            job.row_scale[s.first_row * (hidden / GROUP) + block * s.width + s.n] = scale;
    }
}

/* Eight columns of MXFP8 tokens in BF16, of x as Pieces gives it; four lanes hold the 32 columns of a scale. */
__device__ __forceinline__ uint4 mx_values(const lp_moe_route_job &job, uint4 piece, int64_t at)
{
    if (job.x_dtype != LP_BF16)
        return e4m3_values(make_uint2(piece.x, piece.y),
                           lp_ue8m0_value(reinterpret_cast<const uint8_t *>(job.x_scale)[at / 32]));
    const uint32_t pair[4] = {piece.x, piece.y, piece.z, piece.w};
    uint32_t out[4];
    float most = E4M3_LEAST_X;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = fmaxf(most, fmaxf(fabsf(__uint_as_float(pair[i] << 16)), fabsf(__uint_as_float(pair[i] & 0xffff0000u))));
#pragma unroll
    for (int d = 1; d < 4; d *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    const uint32_t code = e4m3_scale_above(most);
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = e4m3_rounded(__uint_as_float(pair[i] << 16), __uint_as_float(pair[i] & 0xffff0000u), code);
    return make_uint4(out[0], out[1], out[2], out[3]);
}

/* The pieces of x that a thread works on next, eight columns each: 16 bytes of BF16, or 8 of E4M3 in x and y. Threads
 * have the pieces of tokens in turns; a warp works on one token, for 32 divides a token's pieces. */
struct Pieces {
    uint4 of[4];
    const char *behind; /* the piece that comes after those */
    int bytes;          /* of a piece */
    __device__ __forceinline__ uint4 load_next()
    {
        const char *const at = behind;
        behind += THREADS * bytes;
        if (bytes == 16)
            return *reinterpret_cast<const uint4 *>(at);
        const uint2 code = *reinterpret_cast<const uint2 *>(at);
        return make_uint4(code.x, code.y, 0, 0);
    }
    /* Of tokens from `token` on, `tasks` pieces in all. */
    __device__ __forceinline__ void load(const lp_moe_route_job &job, int token, int tasks)
    {
        bytes = job.x_dtype == LP_BF16 ? 16 : 8;
        behind = static_cast<const char *>(job.x) + (token * (job.hidden / COLUMNS) + threadIdx.x) * bytes;
#pragma unroll
        for (int i = 0; i < 4; i++)
            of[i] = static_cast<int>(threadIdx.x) + i * THREADS < tasks ? load_next() : make_uint4(0, 0, 0, 0);
    }
    /* The first one; one more is loaded behind the others if `task` is that one. */
    __device__ __forceinline__ uint4 next(int task, int tasks)
    {
        const uint4 first = of[0];
        of[0] = of[1], of[1] = of[2], of[2] = of[3];
        if (task < tasks)
            of[3] = load_next();
        return first;
    }
};

enum x_form { X_AS_GIVEN, X_E4M3, X_MXFP8 }; /* MXFP8: as BF16 values */

template <int GATHER, x_form FORM>
__device__ __forceinline__ void gather_as(const lp_moe_route_job &job, const Spot *spots, int token, int end,
                                          Pieces &ahead)
{
    const int pieces = static_cast<int>(job.hidden / COLUMNS), tasks = (end - token) * pieces;
    const int choices = static_cast<int>(job.top_k);
    constexpr bool IS_FP8 = FORM == X_E4M3;
#pragma unroll 1
    for (int task = static_cast<int>(threadIdx.x); task < tasks; task += THREADS) {
        uint4 piece = ahead.next(task + 4 * THREADS, tasks);
        const int t = task / pieces, k = task % pieces * COLUMNS;
        if (FORM == X_MXFP8)
            piece = mx_values(job, piece, (token + t) * job.hidden + k);
        if (GATHER == LP_MOE_GATHER_M8)
            piece = m8_turn_values(piece);
        uint2 code = make_uint2(piece.x, piece.y);
        float scale = 0.0f;
        if (IS_FP8 && job.x_dtype == LP_BF16)
            code = quantise(piece, &scale);
        else if (IS_FP8)
            scale = job.x_scale[((token + t) * job.hidden + k) / GROUP];
        if constexpr (GATHER == LP_MOE_GATHER_W4_FP8 || GATHER == LP_MOE_GATHER_W4_BF16 ||
                      GATHER == LP_MOE_GATHER_W4_WIDE) {
            const uint4 value = GATHER == LP_MOE_GATHER_W4_WIDE ? widened(code) : piece;
            store_w4<GATHER>(job, spots + t * choices, k, code, value, scale);
        } else {
            /* Prefill gathers in a launch of its own: it wants each token once. */
#pragma unroll 1
            for (int j = 0; j < (GATHER == LP_MOE_GATHER_PREFILL ? 1 : choices); j++) {
                Spot s = spots[t * choices + j];
                if (GATHER == LP_MOE_GATHER_PREFILL)
                    s.row = token + t;
                if (s.row < 0)
                    continue;
                if (IS_FP8)
                    store_fp8<GATHER>(job, s, k, code, scale);
                else
                    store_bf16<GATHER>(job, s, k, piece);
            }
        }
    }
}

__device__ void gather(const lp_moe_route_job &job, const Spot *spots, int token, int end, Pieces &ahead)
{
    if (job.gather == LP_MOE_GATHER_W4_FP8)
        gather_as<LP_MOE_GATHER_W4_FP8, X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_W4_BF16)
        gather_as<LP_MOE_GATHER_W4_BF16, X_AS_GIVEN>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_W4_WIDE)
        gather_as<LP_MOE_GATHER_W4_WIDE, X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_F8)
        gather_as<LP_MOE_GATHER_F8, X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_F8_BF16)
        gather_as<LP_MOE_GATHER_F8_BF16, X_AS_GIVEN>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_M8)
        gather_as<LP_MOE_GATHER_M8, X_MXFP8>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_PREFILL && job.prefill_kind == LP_PREFILL_CODES)
        gather_as<LP_MOE_GATHER_PREFILL, X_MXFP8>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_PREFILL && prefill_takes_e4m3(job.prefill_kind))
        gather_as<LP_MOE_GATHER_PREFILL, X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_PREFILL)
        gather_as<LP_MOE_GATHER_PREFILL, X_AS_GIVEN>(job, spots, token, end, ahead);
}

__global__ void __launch_bounds__(THREADS) route(const __grid_constant__ lp_moe_route_job job)
{
    __shared__ Counts c;
    __shared__ Spot spots[BATCH];
    const int bound = static_cast<int>(job.max_tokens), choices = static_cast<int>(job.top_k);
    const int experts = static_cast<int>(job.experts), thread = static_cast<int>(threadIdx.x);
    const int each = tokens_of_block(job);
    const int first_token = min(bound, static_cast<int>(blockIdx.x) * each);
    const bool is_last = blockIdx.x == gridDim.x - 1;
    if (is_last) {
        for (int i = thread; i < job.sync_words; i += THREADS)
            job.routes.sync[i] = 0;
        __threadfence(); /* the next kernel counts in sync before it waits for the
                            end of this one */
        __syncthreads();
    }
    moe_let_next_start();
    if (job.early)
        moe_wait_for_inputs();
    /* These are asked for before it is known how many tokens there are. */
    const int own = is_last ? 0 : max(0, min(each, bound - first_token));
    int early_expert[EARLY_ROUTES];
#pragma unroll
    for (int i = 0; i < EARLY_ROUTES; i++) {
        const int route = thread + i * THREADS;
        early_expert[i] = job.routes.block_count == nullptr && route < bound * choices ? expert_of(job, route) : -1;
    }
    const float early_weight = thread < own * choices ? job.topk_weight[first_token * choices + thread] : 0.0f;
    const int pieces = job.gather == LP_MOE_GATHER_NONE ? 0 : static_cast<int>(job.hidden / COLUMNS);
    const int batch = BATCH / choices;
    Pieces ahead;
    ahead.load(job, first_token, min(own, batch) * pieces);
    const int tokens = max(0, min(*job.tokens, bound));
    const int token = is_last ? tokens : min(tokens, first_token),
              token_end = is_last ? tokens : min(tokens, token + each);
#pragma unroll 1
    for (int e = thread; e < experts; e += THREADS)
        c.all[e] = c.before[e] = 0;
    __syncthreads();
    if (job.routes.block_count != nullptr)
        add_counts(job, c);
    else
        count_routes(job, c, early_expert, tokens * choices, token * choices);
    __syncthreads();
    if (thread < 32)
        place_experts(job, c);
    if (is_last) {
        __syncthreads();
        write_tables(job, c);
    }
#pragma unroll 1
    for (int t = token; t < token_end; t += batch) {
        const int end = min(token_end, t + batch);
        if (thread < 32)
            place_routes(job, c, spots, t * choices, end * choices);
        __syncthreads();
        if (t > first_token)
            ahead.load(job, t, (end - t) * pieces);
        gather(job, spots, t, end, ahead);
        write_routes(job, spots, t * choices, end * choices, t == first_token, early_weight);
        __syncthreads();
    }
}

} // namespace

extern "C" lp_status lp_moe_route(const lp_moe_route_job *job, void *stream, lp_error *err)
{
    const int blocks = static_cast<int>(job->max_tokens < MOST_BLOCKS ? job->max_tokens + 1 : MOST_BLOCKS);
    lp_moe_route_job counted = *job;
    counted.early = true;
    const moe_launch first(blocks, THREADS, 0, stream, job->early), second(blocks, THREADS, 0, stream, true);
    if (job->max_tokens * job->top_k >= MANY_ROUTES) {
        LP_TRY(moe_launched(cudaLaunchKernelEx(&first.config, count_blocks, *job), "the counting of routes", err));
        return moe_launched(cudaLaunchKernelEx(&second.config, route, counted), "routing", err);
    }
    counted.early = job->early;
    counted.routes.block_count = nullptr;
    return moe_launched(cudaLaunchKernelEx(&first.config, route, counted), "routing", err);
}
