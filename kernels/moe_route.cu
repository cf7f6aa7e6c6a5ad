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
#include "kernels/moe_gather.cuh"
#include "kernels/moe_launch.cuh"
#include "kernels/moe_places.cuh"

namespace
{

constexpr int THREADS = 1024, MOST_EXPERTS = 512, MOST_BLOCKS = LP_MOE_ROUTE_BLOCKS;
constexpr int EARLY_ROUTES = 4;                         /* of a thread, asked for before the tokens are known */
constexpr int64_t MANY_ROUTES = EARLY_ROUTES * THREADS; /* from here on they are counted first */
constexpr int CLEARING_THREADS = 128;
constexpr int BATCH = 512; /* routes whose places are kept at once */

struct Counts {
    moe_expert_place of[MOST_EXPERTS];
    int before[MOST_EXPERTS]; /* of tokens before this block's, then of those walked so far */
};

/* Counts and `before`. early: the experts of routes threadIdx.x, THREADS further on, ... */
__device__ void count_routes(const lp_moe_route_job &job, Counts &c, const int (&early)[EARLY_ROUTES], int routes,
                             int own)
{
#pragma unroll
    for (int i = 0; i < EARLY_ROUTES; i++) {
        const int route = static_cast<int>(threadIdx.x) + i * THREADS;
        if (route < routes && early[i] >= 0) {
            atomicAdd(&c.of[early[i]].count, 1);
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

/* By one block, before it lets the next kernel start, which counts in sync before it waits for the end of this one. */
__device__ void clear_sync(const lp_moe_route_job &job)
{
    for (int i = static_cast<int>(threadIdx.x); i < job.sync_words; i += static_cast<int>(blockDim.x))
        job.routes.sync[i] = 0;
    __threadfence();
    __syncthreads();
}

/* Routes of each block of the launch that follows. Its last block has none and is not counted: here it sets sync to 0,
 * and where the projections route themselves it is the only one. */
__global__ void __launch_bounds__(THREADS) count_blocks(const __grid_constant__ lp_moe_route_job job)
{
    __shared__ int count[MOST_EXPERTS];
    const bool is_last = blockIdx.x == gridDim.x - 1;
    if (is_last)
        clear_sync(job);
    moe_let_next_start();
    if (job.early)
        moe_wait_for_inputs();
    if (is_last)
        return;
    const int choices = static_cast<int>(job.top_k), experts = static_cast<int>(job.experts);
    const int tokens = max(0, min(*job.tokens, static_cast<int>(job.max_tokens))), each = tokens_of_block(job);
    const int first = min(tokens, static_cast<int>(blockIdx.x) * each), end = min(tokens, first + each);
    for (int e = threadIdx.x; e < experts; e += THREADS)
        count[e] = 0;
    __syncthreads();
    for (int route = first * choices + threadIdx.x; route < end * choices; route += THREADS) {
        const int expert = moe_expert_of(job, route);
        if (expert >= 0)
            atomicAdd(&count[expert], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < experts; e += THREADS)
        job.routes.block_count[static_cast<int>(blockIdx.x) * experts + e] = count[e];
}

/* Counts and `before`, from what count_blocks counted. */
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
            atomicAdd(&c.of[expert].count, count[i]);
            if (entry / experts < static_cast<int>(blockIdx.x))
                atomicAdd(&c.before[expert], count[i]);
        }
    }
}

/* Rows of routes in ascending number; by one warp. */
__device__ void place_routes(const lp_moe_route_job &job, Counts &c, moe_spot *spots, int first, int end)
{
    const int lane = threadIdx.x;
#pragma unroll 1
    for (int base = first; base < end; base += 32) {
        const int route = base + lane, expert = route < end ? moe_expert_of(job, route) : -1;
        const unsigned same = __match_any_sync(~0u, expert);
        moe_spot spot = {-1, 0, 0, 0};
        if (expert >= 0)
            spot = moe_spot_of(job, c.of[expert], c.before[expert] + __popc(same & ((1u << lane) - 1)));
        __syncwarp();
        if (expert >= 0 && __ffs(same) - 1 == lane)
            c.before[expert] += __popc(same);
        __syncwarp();
        if (route < end)
            spots[route - first] = spot;
    }
}

/* The tables of these routes. `early` is the weight of this thread's first one if `is_early`. */
__device__ void write_routes(const lp_moe_route_job &job, const moe_spot *spots, int first, int end, bool is_early,
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

/* The pieces of x that a thread works on next, eight columns each: 16 bytes of BF16, or 8 of E4M3 in x and y. THREADS
 * threads have the pieces of tokens in turns; a warp works on one token, for 32 divides a token's pieces. */
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
        behind = static_cast<const char *>(job.x) + (token * (job.hidden / MOE_COLUMNS) + threadIdx.x) * bytes;
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

/* Rows of the tokens up to `end`; spots: of their routes. By THREADS threads, numbers 0 up, that have loaded the pieces
 * `ahead` of these tokens. */
template <int GATHER, moe_x_form FORM>
__device__ __forceinline__ void gather_as(const lp_moe_route_job &job, const moe_spot *spots, int token, int end,
                                          Pieces &ahead)
{
    const int pieces = static_cast<int>(job.hidden / MOE_COLUMNS), tasks = (end - token) * pieces;
    const int choices = static_cast<int>(job.top_k);
#pragma unroll 1
    for (int task = static_cast<int>(threadIdx.x); task < tasks; task += THREADS) {
        const uint4 piece = ahead.next(task + 4 * THREADS, tasks);
        const int t = task / pieces, k = task % pieces * MOE_COLUMNS;
        moe_gather_piece<GATHER, FORM>(job, spots + t * choices, token + t, k, piece);
    }
}

__device__ void gather(const lp_moe_route_job &job, const moe_spot *spots, int token, int end, Pieces &ahead)
{
    if (job.gather == LP_MOE_GATHER_W4_FP8)
        gather_as<LP_MOE_GATHER_W4_FP8, MOE_X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_W4_BF16)
        gather_as<LP_MOE_GATHER_W4_BF16, MOE_X_AS_GIVEN>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_W4_WIDE)
        gather_as<LP_MOE_GATHER_W4_WIDE, MOE_X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_F8)
        gather_as<LP_MOE_GATHER_F8, MOE_X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_F8_BF16)
        gather_as<LP_MOE_GATHER_F8_BF16, MOE_X_AS_GIVEN>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_M8)
        gather_as<LP_MOE_GATHER_M8, MOE_X_MXFP8>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_PREFILL && job.prefill_kind == LP_PREFILL_CODES)
        gather_as<LP_MOE_GATHER_PREFILL, MOE_X_MXFP8>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_PREFILL && prefill_takes_e4m3(job.prefill_kind))
        gather_as<LP_MOE_GATHER_PREFILL, MOE_X_E4M3>(job, spots, token, end, ahead);
    else if (job.gather == LP_MOE_GATHER_PREFILL)
        gather_as<LP_MOE_GATHER_PREFILL, MOE_X_AS_GIVEN>(job, spots, token, end, ahead);
}

__global__ void __launch_bounds__(THREADS) route(const __grid_constant__ lp_moe_route_job job)
{
    __shared__ Counts c;
    __shared__ moe_spot spots[BATCH];
    const int bound = static_cast<int>(job.max_tokens), choices = static_cast<int>(job.top_k);
    const int experts = static_cast<int>(job.experts), thread = static_cast<int>(threadIdx.x);
    const int each = tokens_of_block(job);
    const int first_token = min(bound, static_cast<int>(blockIdx.x) * each);
    const bool is_last = blockIdx.x == gridDim.x - 1;
    if (is_last)
        clear_sync(job);
    moe_let_next_start();
    if (job.early)
        moe_wait_for_inputs();
    /* These are asked for before it is known how many tokens there are. */
    const int own = is_last ? 0 : max(0, min(each, bound - first_token));
    int early_expert[EARLY_ROUTES];
#pragma unroll
    for (int i = 0; i < EARLY_ROUTES; i++) {
        const int route = thread + i * THREADS;
        early_expert[i] = job.routes.block_count == nullptr && route < bound * choices ? moe_expert_of(job, route) : -1;
    }
    const float early_weight = thread < own * choices ? job.topk_weight[first_token * choices + thread] : 0.0f;
    const int pieces = job.gather == LP_MOE_GATHER_NONE ? 0 : static_cast<int>(job.hidden / MOE_COLUMNS);
    const int batch = BATCH / choices;
    Pieces ahead;
    ahead.load(job, first_token, min(own, batch) * pieces);
    const int tokens = max(0, min(*job.tokens, bound));
    const int token = is_last ? tokens : min(tokens, first_token),
              token_end = is_last ? tokens : min(tokens, token + each);
#pragma unroll 1
    for (int e = thread; e < experts; e += THREADS)
        c.of[e].count = c.before[e] = 0;
    __syncthreads();
    if (job.routes.block_count != nullptr)
        add_counts(job, c);
    else
        count_routes(job, c, early_expert, tokens * choices, token * choices);
    __syncthreads();
    int2 all = make_int2(0, 0);
    if (thread < 32)
        all = moe_place_experts(job, c.of);
    if (is_last) {
        __syncthreads();
        moe_write_tables(job, c.of, all, thread, THREADS);
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

extern "C" lp_status lp_moe_clear(const lp_moe_route_job *job, void *stream, lp_error *err)
{
    const moe_launch launch(1, CLEARING_THREADS, 0, stream, job->early);
    return moe_launched(cudaLaunchKernelEx(&launch.config, count_blocks, *job), "the start of routing", err);
}

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
