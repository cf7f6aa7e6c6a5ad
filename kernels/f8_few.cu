/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both projections of experts with whole-byte weights for few tokens an expert, in one launch.
 *
 * Few tokens leave the weights as the cost: every byte of them is read once, as fast as memory gives it. Weights are
 * the first operand of the matrix unit, straight from shared memory, and tokens are its columns, 8 to 64 at a time.
 * Blocks stay for the whole launch and draw tiles from one counter; the ring of each fills with weights while routes
 * are counted and rows of x gathered, by a launch in front or by the multipliers (moe_start.cuh). The multipliers
 * finish their own tiles: the ring is deep enough meanwhile.
 */
#include "kernels/f8_feed.cuh"
#include "kernels/f8_finish.cuh"
#include "kernels/f8_launch.cuh"
#include "kernels/f8_multiply.cuh"

namespace
{

using form = f8_few_form;
using threads = f8_threads<form>;
constexpr int HEADER_BYTES = 2048;
constexpr int ROUTING = 2; /* a named barrier of the threads that multiply; they end tiles with 1 */
static_assert(sizeof(f8_few_header) <= HEADER_BYTES, "tokens start behind it");

/* A warpgroup's part of an item. */
template <int KIND, int N>
__device__ __forceinline__ void do_part(const f8_arguments &p, f8_few_header &h, f8_rings &rings, const f8_item &item,
                                        int part, int number)
{
    float total[N / 2];
    const bool is_first = __shfl_sync(~0u, item.projection, 0) == 0;
    if (KIND == F8_BLOCKS && is_first && !p.fast)
        f8_multiply<KIND, N, LP_MOE_SUM_COLUMNS>(p, h, rings, item, part, total);
    else
        f8_multiply<KIND, N, LP_MOE_LONG_SUM_COLUMNS>(p, h, rings, item, part, total);
    if (is_first)
        f8_finish_h<KIND, N>(p, h, item, part, number, total);
    else
        f8_finish_out<N>(p, item, part, total);
}

template <int KIND>
__device__ __forceinline__ void do_width(const f8_arguments &p, f8_few_header &h, f8_rings &rings, const f8_item &item,
                                         int part, int number)
{
    const int width = __shfl_sync(~0u, item.width, 0);
    if (width == 8)
        do_part<KIND, 8>(p, h, rings, item, part, number);
    else if (width == 16)
        do_part<KIND, 16>(p, h, rings, item, part, number);
    else if (width == 24)
        do_part<KIND, 24>(p, h, rings, item, part, number);
    else if (width == 32)
        do_part<KIND, 32>(p, h, rings, item, part, number);
    else if (width == 48)
        do_part<KIND, 48>(p, h, rings, item, part, number);
    else
        do_part<KIND, 64>(p, h, rings, item, part, number);
}

template <int KIND> __device__ void work(const f8_arguments &p, f8_few_header &h, f8_rings &rings)
{
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    f8_turn slot = {0, F8_QUEUE, 0};
    for (int number = 0;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const f8_item &item = h.item[slot.at];                       /* stays there until it is done */
        const int projection = __shfl_sync(~0u, item.projection, 0); /* tells the compiler that warps do not diverge */
        if (projection < 0)
            return;
        const int parts = p.projection[projection].parts, part = group - __shfl_sync(~0u, item.first_group, 0);
        const int stages = __shfl_sync(~0u, item.stages, 0);
        if (__shfl_sync(~0u, item.dropped, 0)) {
            f8_pass(h, rings, stages);
        } else if (part >= 0 && part < parts) {
            do_width<KIND>(p, h, rings, item, part, number);
            number += projection == 0;
        } else {
            f8_pass_item(h, rings, stages, parts);
        }
        f8_release(&h.taken[slot.at]);
    }
}

template <int KIND>
__device__ void feed(const f8_arguments &p, f8_few_header &h, char *memory, const CUtensorMap *map1,
                     const CUtensorMap *map2)
{
    if (threadIdx.x == threads::WEIGHT_FEEDER)
        f8_feed_weights<form>(p, h, memory, map1, map2);
    else if (threadIdx.x == threads::TOKEN_FEEDER)
        f8_feed_tokens<form, KIND>(p, h, hopper::shared_address(memory));
}

template <int GATHER, moe_x_form FORM>
__device__ __forceinline__ void route(const f8_arguments &p, f8_few_header &h, char *memory)
{
    moe_route_inside<GATHER, FORM, threads::MULTIPLIERS, ROUTING>(p.start, h.start, memory + p.space.tokens);
}

/* One kernel for both kinds: either is a part of its code. */
__global__ void __launch_bounds__(threads::ALL, 1)
    products_of_few(const __grid_constant__ f8_arguments p, const __grid_constant__ CUtensorMap map1,
                    const __grid_constant__ CUtensorMap map2)
{
    extern __shared__ __align__(1024) char memory[];
    f8_few_header &h = *reinterpret_cast<f8_few_header *>(memory);
    const uint32_t shared = hopper::shared_address(memory);
    f8_rings rings = {shared, {0, p.stages, 0}, {0, form::TOKEN_STAGES, 0}};
    if (threadIdx.x == 0) { /* threads load scales of tokens themselves */
        f8_init_queue<form>(h, p.stages, threads::WARPS, threads::MULTIPLIERS, 0);
        f8_init_done();
    }
    if (threadIdx.x < LP_F8_SOME_ROWS)
        h.most[0][threadIdx.x] = 0;
    __syncthreads();
    moe_let_next_start();
    /* Registers move to the multipliers; together no more than at launch (640 x 96), or the kernel hangs. */
    if (threadIdx.x >= threads::MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (p.kind == F8_BF16)
            feed<F8_BF16>(p, h, memory, &map1, &map2);
        else
            feed<F8_BLOCKS>(p, h, memory, &map1, &map2);
    } else {
        if (p.start.inside && p.kind == F8_BF16)
            route<LP_MOE_GATHER_F8_BF16, MOE_X_AS_GIVEN>(p, h, memory);
        else if (p.start.inside)
            route<LP_MOE_GATHER_F8, MOE_X_E4M3>(p, h, memory);
        asm volatile("setmaxnreg.inc.sync.aligned.u32 104;"); /* behind routing, which makes do without */
        moe_wait_for_inputs();
        if (p.kind == F8_BF16)
            work<F8_BF16>(p, h, rings);
        else
            work<F8_BLOCKS>(p, h, rings);
    }
}

/* Places behind the header, by the most tokens of a chunk. */
f8_space space_of(int chunk_rows)
{
    const int scales = form::PIECES * chunk_rows * F8_PIECE;
    f8_space s = {};
    s.tokens = HEADER_BYTES, s.scales = s.tokens + scales;
    s.token_stage = s.scale_stage = (scales + form::PIECES * chunk_rows * 4 + 1023) / 1024 * 1024;
    s.weights = s.tokens + form::TOKEN_STAGES * s.token_stage;
    return s;
}

} // namespace

extern "C" lp_status lp_f8_few_run(const lp_moe_call *call, lp_error *err)
{
    const int chunk_rows = lp_f8_chunk_rows(call->shape);
    if (chunk_rows == LP_F8_MANY_ROWS)
        return lp_f8_many_run(call, err);
    return f8_run<form>(call, products_of_few, space_of(chunk_rows), chunk_rows, 0, err);
}
