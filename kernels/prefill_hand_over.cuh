/* SPDX-License-Identifier: Apache-2.0 */
/*
 * h of FP8 blocks from the warps that multiply to memory, by two warps that have nothing else to do, one for each
 * multiplying warpgroup: to see that a store has arrived, and to tell other multiprocessors so, takes longer than to
 * hand over 8 KiB in shared memory, and the next tile need not wait for it.
 */
#ifndef LOADPLAN_PREFILL_HAND_OVER_CUH
#define LOADPLAN_PREFILL_HAND_OVER_CUH

#include "kernels/prefill_walk.cuh"

/* A multiplying warp's end. */
struct prefill_hand_over {
    int tiles = 0; /* that were handed over */
    /* Until staging may be written. */
    template <int KIND> __device__ __forceinline__ void wait(prefill_shared<KIND> &sm) const
    {
        hopper::barrier_wait(hopper::shared_address(&sm.unstaged[prefill_group()]), (tiles & 1) ^ 1);
    }
    /* What the warp has written of it goes to memory, and that of the scales of h with it. */
    template <int KIND> __device__ __forceinline__ void give(prefill_shared<KIND> &sm)
    {
        prefill::proxy_fence_shared();
        const uint32_t staged = hopper::shared_address(&sm.staged[prefill_group()]);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            hopper::barrier_arrive(staged);
        tiles++;
    }
};

/* The other end, of warpgroup `group`; by one thread. */
template <int KIND> __device__ void prefill_store_h(const prefill_arguments &p, prefill_shared<KIND> &sm, int group)
{
    using namespace hopper;
    using namespace prefill;
    const uint32_t staging = shared_address(sm.staging[group]);
    const int64_t pieces = p.intermediate / 128;
    prefill_listener tasks(sm.told);
    prefill_task task;
    uint32_t phase = 0;
    while (tasks.next(task) && task.which == 0) {
        if (task.idle)
            continue;
        const bool is_half = task.rows <= 64; /* then the warps store for themselves */
        const int first = is_half ? 0 : 64 * group, rows = min(64, task.rows - first);
        barrier_wait(shared_address(&sm.staged[group]), phase);
        if (!is_half) {
            const int64_t row = task.row + first;
            char *const to = p.h + (row / PREFILL_ROWS * pieces + task.n) * PREFILL_PIECE + row % PREFILL_ROWS * 128;
            bulk_store(to, staging, static_cast<uint32_t>((rows + 7) / 8 * 1024));
            bulk_store_commit();
            bulk_store_wait_read();
        }
        barrier_arrive(shared_address(&sm.unstaged[group]));
        bulk_store_wait();
        add_release(p.ready + sm.tables.tiles[task.expert] + task.m, PREFILL_WARPS / 2);
        phase ^= 1;
    }
}

#endif
