/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What crosses GPUs: tokens are pushed to the ranks of their experts, ranks meet.
 *
 * A meeting is a flag for each pair of ranks: the writer stores the number of the call into the reader's memory behind
 * everything it has written there, the reader watches its own memory. Data needs no flags of its own: rows of the
 * second projection are stored by its own kernel, whose end is before the meeting.
 */
#include "kernels/exchange_private.h"
#include "kernels/moe_launch.cuh"
#include "kernels/moe_quantise.cuh"

namespace
{

constexpr int THREADS = 256, MOST_BLOCKS = 132 * 8, GROUP = 128; /* columns of a scale */
constexpr int RANKS = LP_MOE_EXCHANGE_RANKS;

__device__ __forceinline__ lp_moe_exchange_header *header_of(const lp_moe_exchange &e, int rank)
{
    return static_cast<lp_moe_exchange_header *>(e.buffer[rank]);
}

/* ---- meetings ---- */

__device__ __forceinline__ void store_release(uint64_t *to, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t load_acquire(const uint64_t *from)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ uint64_t nanoseconds()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* To all ranks; of several failures each buffer keeps the first that reaches it. */
__device__ void tell_failure(const lp_moe_exchange &e, uint64_t failure)
{
    for (int r = 0; r < e.ranks; r++)
        atomicCAS_system(reinterpret_cast<unsigned long long *>(&header_of(e, r)->failure), 0ull, failure);
}

/* Thread r of a block: tells rank r that this rank has got to the meeting, and waits until rank r has. Everything that
 * this rank has written before must be visible to the thread. */
__device__ void meet(const lp_moe_exchange &e, int meeting, uint32_t call, int bound)
{
    constexpr int POLLS = 64; /* between two looks at the clock */
    const int r = static_cast<int>(threadIdx.x);
    lp_moe_exchange_header *const own = header_of(e, e.rank);
    const uint64_t word = static_cast<uint64_t>(bound) << 32 | call;
    if (r >= e.ranks || load_acquire(&own->failure) != 0)
        return;
    store_release(&header_of(e, r)->arrived[meeting][e.rank], word);
    const uint64_t *const from = &own->arrived[meeting][r];
    const uint64_t since = nanoseconds();
    for (;;) {
        for (int i = 0; i < POLLS; i++) {
            const uint64_t seen = load_acquire(from);
            /* The peer may be a call ahead in the other meeting only, so this is the word of this call or of the last.
             */
            if (static_cast<uint32_t>(seen) == call) {
                if (seen != word)
                    tell_failure(e, lp_moe_pack_failure(LP_MOE_OTHER_BOUND, r, e.rank, call));
                return;
            }
        }
        if (load_acquire(&own->failure) != 0)
            return;
        if (nanoseconds() - since > static_cast<uint64_t>(e.timeout_ns)) {
            const lp_moe_failure_kind kind = meeting == LP_MOE_TOKENS_HERE ? LP_MOE_NO_TOKENS : LP_MOE_NO_ROWS;
            tell_failure(e, lp_moe_pack_failure(kind, r, e.rank, call));
            return;
        }
    }
}

__global__ void __launch_bounds__(RANKS) meet_for_rows(const __grid_constant__ lp_moe_exchange e, int bound)
{
    lp_moe_exchange_header *const own = header_of(e, e.rank);
    moe_let_next_start();
    moe_wait_for_inputs();
    const uint32_t call = own->call + 1;
    meet(e, LP_MOE_ROWS_HERE, call, bound);
    __syncthreads();
    if (threadIdx.x == 0)
        own->call = call;
}

/* ---- tokens ---- */

__device__ int expert_of(const lp_moe_send_job &job, int64_t route)
{
    const int64_t id = job.id_dtype == LP_I64 ? static_cast<const int64_t *>(job.topk_ids)[route]
                                              : static_cast<const int32_t *>(job.topk_ids)[route];
    return lp_moe_expert_of(id, job.first_expert, static_cast<int64_t>(job.experts) * job.exchange.ranks);
}

__device__ __forceinline__ char *area(const lp_moe_send_job &job, int rank, int64_t offset)
{
    return static_cast<char *>(job.exchange.buffer[rank]) + offset;
}

/* Ids and weights of a token to all ranks; thread j of each warp has choice j. Returns the ranks that hold one of its
 * experts. */
__device__ uint64_t send_routes(const lp_moe_send_job &job, int token, bool is_token)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t route = static_cast<int64_t>(token) * job.choices + lane;
    const int64_t at = lp_moe_sent_token(job.exchange.rank, job.bound, token) * job.choices + lane;
    const bool is_choice = lane < job.choices;
    const int expert = is_token && is_choice ? expert_of(job, route) : -1;
    const int rank = lp_moe_rank_of(expert, job.experts);
    const uint32_t low = __reduce_or_sync(~0u, rank >= 0 && rank < 32 ? 1u << rank : 0u);
    const uint32_t high = __reduce_or_sync(~0u, rank >= 32 ? 1u << (rank - 32) : 0u);
    if (is_choice) {
        const float weight = is_token ? job.topk_weight[route] : 0.0f;
        for (int r = warp; r < job.exchange.ranks; r += THREADS / 32) {
            reinterpret_cast<int32_t *>(area(job, r, job.places.ids))[at] = expert;
            reinterpret_cast<float *>(area(job, r, job.places.weights))[at] = weight;
        }
        if (warp == 0)
            job.route_row[route] = expert < 0 ? -1 : static_cast<int32_t>(route);
    }
    return static_cast<uint64_t>(high) << 32 | low;
}

/* 16 bytes of a row of x as it travels, and the scale of the 128 columns that begin there, if it is E4M3: of MXFP8, the
 * bits of four UE8M0 codes. */
struct Piece {
    uint4 value;
    float scale;
    bool is_in, has_scale;
};

/* H is a multiple of 256, so that the eight lanes of a scale are in the row together; the whole warp takes part. */
template <bool QUANTISES> __device__ __forceinline__ Piece load_piece(const lp_moe_send_job &job, int64_t token, int i)
{
    Piece piece;
    piece.is_in = i < job.places.row_bytes / 16;
    const int64_t at = token * (job.places.row_bytes / 16) + (piece.is_in ? i : 0);
    piece.scale = 0.0f;
    piece.has_scale = i % 8 == 0 && job.has_scales;
    if (QUANTISES) {
        const moe_values x = moe_load_bf16(job.x, at * MOE_QUANTISE_COLUMNS);
        piece.value = job.is_mx ? moe_quantise_mx(x, &piece.scale) : moe_quantise(x, &piece.scale);
    } else {
        piece.value = __ldg(static_cast<const uint4 *>(job.x) + at);
        if (piece.is_in && piece.has_scale)
            piece.scale = __ldg(job.x_scale + at / 8);
    }
    return piece;
}

/* Stores it at every rank of `ranks`. */
__device__ __forceinline__ void push(const lp_moe_send_job &job, uint64_t ranks, int64_t token, int i,
                                     const Piece &piece)
{
    const int64_t row = lp_moe_sent_token(job.exchange.rank, job.bound, token);
    for (; piece.is_in && ranks != 0; ranks &= ranks - 1) {
        const int r = __ffsll(static_cast<long long>(ranks)) - 1;
        reinterpret_cast<uint4 *>(area(job, r, job.places.x))[row * (job.places.row_bytes / 16) + i] = piece.value;
        if (piece.has_scale)
            reinterpret_cast<float *>(area(job, r, job.places.x_scale))[row * (job.hidden / GROUP) + i / 8] =
                piece.scale;
    }
}

/* A token by one block; x is on its way while the ranks are found out. */
template <bool QUANTISES> __device__ __forceinline__ void send_token(const lp_moe_send_job &job, int token, int tokens)
{
    const int pieces = static_cast<int>(job.places.row_bytes / 16), first = static_cast<int>(threadIdx.x);
    Piece piece = load_piece<QUANTISES>(job, min(token, max(0, tokens - 1)), first);
    const uint64_t ranks = send_routes(job, token, token < tokens);
    push(job, ranks, token, first, piece);
    for (int i = first + THREADS; i - first % 32 < pieces && ranks != 0; i += THREADS)
        push(job, ranks, token, i, load_piece<QUANTISES>(job, token, i));
}

/* A block does a token at a time; the last block to be done meets the other ranks. */
__global__ void __launch_bounds__(THREADS) send(const __grid_constant__ lp_moe_send_job job)
{
    __shared__ bool is_last;
    const lp_moe_exchange &e = job.exchange;
    lp_moe_exchange_header *const own = header_of(e, e.rank);
    moe_let_next_start();
    const int tokens = max(0, min(*job.tokens, job.bound));
    const bool has_failed = __any_sync(~0u, load_acquire(&own->failure) != 0); /* a warp goes on as one */
    for (int token = blockIdx.x; token < job.bound && !has_failed; token += static_cast<int>(gridDim.x)) {
        if (job.quantises)
            send_token<true>(job, token, tokens);
        else
            send_token<false>(job, token, tokens);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system(); /* the block's stores, before the flags that another block sets */
        is_last = atomicAdd(&own->blocks, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    meet(e, LP_MOE_TOKENS_HERE, own->call + 1, job.bound);
    __syncthreads();
    if (threadIdx.x == 0) {
        own->blocks = 0;
        own->tokens = load_acquire(&own->failure) == 0 ? job.bound * e.ranks : 0;
    }
}

} // namespace

extern "C" lp_status lp_moe_send(const lp_moe_send_job *job, void *stream, lp_error *err)
{
    const moe_launch launch(job->bound < MOST_BLOCKS ? job->bound : MOST_BLOCKS, THREADS, 0, stream, false);
    return moe_launched(cudaLaunchKernelEx(&launch.config, send, *job), "the sending of tokens", err);
}

extern "C" lp_status lp_moe_meet(const lp_moe_exchange *exchange, int32_t bound, void *stream, lp_error *err)
{
    const moe_launch launch(1, RANKS, 0, stream, true);
    return moe_launched(cudaLaunchKernelEx(&launch.config, meet_for_rows, *exchange, static_cast<int>(bound)),
                        "the meeting of ranks", err);
}

extern "C" lp_status lp_moe_fill_header(void *buffer, void *stream, lp_error *err)
{
    return moe_launched(cudaMemsetAsync(buffer, 0, sizeof(lp_moe_exchange_header), static_cast<cudaStream_t>(stream)),
                        "the clearing of an exchange's buffer", err);
}

extern "C" lp_status lp_moe_read_failure(const lp_moe_exchange *exchange, void *stream, uint64_t *failure,
                                         lp_error *err)
{
    cudaStream_t const on = static_cast<cudaStream_t>(stream);
    const auto *const own = static_cast<const lp_moe_exchange_header *>(exchange->buffer[exchange->rank]);
    cudaError_t code = cudaMemcpyAsync(failure, &own->failure, sizeof *failure, cudaMemcpyDeviceToHost, on);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(on);
    if (code == cudaSuccess)
        return LP_OK;
    (void)cudaGetLastError();
    return lp_fail(err, LP_E_DEVICE, "cannot read what an exchange has come to: %s", cudaGetErrorString(code));
}
