/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tile a block computes when.
 *
 * Two blocks of a cluster work on two tiles that share an operand, which each fetches half of for both: the weights,
 * with neighbouring token tiles; or, for token tiles that have no neighbour and wherever blocks decode, the tokens,
 * with neighbouring weight tiles. All tasks of the first projection come first, in the order of experts, then those of
 * the second; a token tile of the second waits for the tiles of the first that it reads. Clusters take tasks from a
 * counter as they come free, or each so-manieth: tasks are handed out in their order, so nobody waits for one that is
 * not. The order says nothing about results: each tile sums over K by itself, from the first column to the last.
 */
#ifndef LOADPLAN_PREFILL_WALK_CUH
#define LOADPLAN_PREFILL_WALK_CUH

#include "kernels/prefill_tile.cuh"

/* The warpgroup, in a way that tells the compiler that a warp has one. */
__device__ __forceinline__ int prefill_group()
{
    return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
}

/*
 * What a multiplying warpgroup has of a tile: 64 of its tokens and all weight rows; or, where the tile has no more than
 * 64 tokens, those and the warpgroup's half of the weight rows.
 */
struct prefill_share {
    int first_token;
    bool is_half, idle;
    int half; /* of the weight rows, where is_half, else 0 */
    __device__ prefill_share(int kind, const prefill_task &task)
    {
        const int group = prefill_group();
        is_half = prefill_splits(kind) && task.rows <= 64;
        first_token = is_half ? 0 : 64 * group;
        half = is_half ? group : 0;
        idle = task.idle || first_token >= task.rows;
    }
};

/*
 * Prefix sums over experts; by one warp. A last tile that is divided takes half as long as a whole one: beside one, a
 * block would wait for the other. With an even number of tiles the last two are then no pair.
 */
__device__ inline void prefill_count_tiles(const prefill_arguments &p, prefill_tables &sm, bool splits)
{
    const int lane = threadIdx.x % 32;
    int tiles = 0, pairs = 0, hits = 0;
    for (int base = 0; base < p.experts; base += 32) {
        const int e = base + lane;
        const int count = e < p.experts ? p.count[e] : 0, last = (count - 1) % PREFILL_ROWS + 1;
        int t = (count + PREFILL_ROWS - 1) / PREFILL_ROWS, c = (splits && count > 0 && last <= 64 ? t - 1 : t) / 2;
        const uint32_t hit = __ballot_sync(~0u, t > 0);
        for (int d = 1; d < 32; d *= 2) {
            const int more_t = __shfl_up_sync(~0u, t, d), more_c = __shfl_up_sync(~0u, c, d);
            if (lane >= d)
                t += more_t, c += more_c;
        }
        if (e < p.experts) {
            sm.tiles[e + 1] = tiles + t, sm.pairs[e + 1] = pairs + c;
            sm.hits[e + 1] = hits + __popc(hit & ~0u >> (31 - lane));
        }
        tiles += __shfl_sync(~0u, t, 31), pairs += __shfl_sync(~0u, c, 31), hits += __popc(hit);
    }
    if (lane == 0)
        sm.tiles[0] = sm.pairs[0] = sm.hits[0] = 0;
}

/* No expert has two tiles of tokens: then the blocks of a cluster share nothing, and neither waits for the other. */
__device__ __forceinline__ bool prefill_is_solo(const prefill_arguments &p, const prefill_tables &tables)
{
    return tables.pairs[p.experts] == 0;
}

/*
 * Walks a cluster's tasks, first those of the one projection, then those of the other; every role of a block that
 * walks does so alike.
 */
struct prefill_walk {
    const prefill_arguments &p;
    const prefill_tables &sm;
    uint32_t turns; /* shared address of `turn`, or 0: each so-manieth task is this cluster's */
    int rank, which = 0, expert = 0, number = 0; /* `number`: tasks that the cluster has had */

    __device__ prefill_walk(const prefill_arguments &p, const prefill_tables &sm, int rank, uint32_t turns)
        : p(p), sm(sm), turns(turns), rank(rank)
    {
    }
    __device__ static int columns_of(const prefill_arguments &p, int which)
    {
        return which == 0 ? p.intermediate / 128 : p.hidden / 256;
    }
    __device__ int columns() const { return columns_of(p, which); }
    /* Tasks of a projection before an expert. */
    __device__ int before(int projection, int e) const
    {
        const int tiles = sm.tiles[e], pairs = p.in_block ? 0 : sm.pairs[e], columns = columns_of(p, projection);
        return pairs * columns + (tiles - 2 * pairs) * ((columns + 1) / 2);
    }
    /* The blocks of a cluster must wait for one another where it takes turns. */
    __device__ bool takes_turns() const { return turns != 0 && !prefill_is_solo(p, sm); }
    __device__ static int clusters() { return static_cast<int>(gridDim.x / 2); }

    /* The next task, of all of both projections. */
    __device__ int at() const
    {
        if (number == 0 || !takes_turns())
            return static_cast<int>(blockIdx.x / 2) + number * clusters();
        uint64_t turn;
        do
            turn = prefill::load_shared_now(turns + static_cast<uint32_t>(number % PREFILL_TURNS * 8));
        while (static_cast<int>(turn >> 32) != number);
        return static_cast<int>(turn);
    }
    /* The next task of this projection, if there is one left. */
    __device__ bool next(prefill_task &task)
    {
        const int here = at() - (which == 0 ? 0 : before(0, p.experts));
        if (here >= before(which, p.experts))
            return false;
        while (here >= before(which, expert + 1))
            expert++;
        const int tiles = sm.tiles[expert + 1] - sm.tiles[expert], local = here - before(which, expert);
        const int pairs = p.in_block ? 0 : sm.pairs[expert + 1] - sm.pairs[expert];
        task.which = which;
        task.expert = expert;
        task.share_tokens = local >= pairs * columns();
        if (task.share_tokens) {
            const int single = tiles - 2 * pairs, in_single = local - pairs * columns();
            task.m = 2 * pairs + in_single % single;
            task.n = 2 * (in_single / single) + rank;
        } else {
            task.m = 2 * (local % pairs) + rank;
            task.n = local / pairs;
        }
        task.idle = task.n >= columns();
        task.rows = min(PREFILL_ROWS, p.count[expert] - task.m * PREFILL_ROWS);
        task.row = p.start[expert] + task.m * PREFILL_ROWS;
        number++;
        return true;
    }
    __device__ void to_second() { which = 1, expert = 0; }
    /* Of all experts' weights, in units of 256 rows. */
    __device__ int weight_tile(const prefill_task &task) const { return task.expert * columns() + task.n; }
};

/*
 * The tasks of a block from the thread that feeds tokens, which walks ahead, to those that multiply: finding out a task
 * takes them longer than reading it. Numbered from 1 on; the last one says that there are no more. The feeder is never
 * so far ahead that a place is written again before it was read: a task has two stages at least, and can be fed when
 * all but the last few before it were multiplied.
 */
struct prefill_teller {
    prefill_told *told;
    int number = 0;
    __device__ explicit prefill_teller(prefill_told *told) : told(told) {}
    __device__ __forceinline__ void tell(const prefill_task &task)
    {
        prefill_told &to = told[++number % PREFILL_TURNS];
        to.task = task;
        prefill::store_shared_release(hopper::shared_address(&to.number), number);
    }
    __device__ __forceinline__ void tell_end()
    {
        prefill_task none = {};
        none.expert = -1;
        tell(none);
    }
};
struct prefill_listener {
    const prefill_told *told;
    int number = 0;
    __device__ explicit prefill_listener(const prefill_told *told) : told(told) {}
    __device__ __forceinline__ bool next(prefill_task &task)
    {
        const prefill_told &from = told[++number % PREFILL_TURNS];
        while (prefill::load_shared_acquire(hopper::shared_address(&from.number)) < number)
            ;
        task = from.task;
        return task.expert >= 0;
    }
};

/* For prefill_walk. */
template <int KIND> __device__ __forceinline__ uint32_t prefill_turns_of(const prefill_shared<KIND> &sm)
{
    return prefill_takes_turns(KIND) ? hopper::shared_address(sm.turn) : 0;
}

#endif
