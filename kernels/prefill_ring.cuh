/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoded weights between those who decode and those who multiply.
 *
 * The tiles of weights that a call needs are numbered in the order in which products meet them: experts that have
 * tokens, their rows by 256, first all of the first projection, then all of the second. Tile i lies in place
 * i % places of the workspace, as pieces of 256 rows by 128 bytes of K with the 128-byte swizzle: what a stage holds.
 * It may be written once tile i - places has been multiplied by all tiles of tokens of its expert. Nothing waits in a
 * circle: a tile is decoded when tiles before it have been multiplied, by blocks that need tiles before it only, and
 * all blocks of the launch run at once.
 */
#ifndef LOADPLAN_PREFILL_RING_CUH
#define LOADPLAN_PREFILL_RING_CUH

#include "kernels/prefill_walk.cuh"

constexpr int PREFILL_TILE_GROUPS = PREFILL_COLUMNS / 8; /* of eight rows, in a tile */

__device__ __forceinline__ int prefill_number(const prefill_arguments &p, const prefill_tables &tables, int which,
                                              int expert, int n)
{
    const int before = which == 0 ? 0 : tables.hits[p.experts] * prefill_walk::columns_of(p, 0);
    return before + tables.hits[expert] * prefill_walk::columns_of(p, which) + n;
}

__device__ __forceinline__ char *prefill_place_of(const prefill_arguments &p, int number)
{
    return p.made + number % p.places * p.place_bytes;
}

/* A tile of weights by its number; looked up by all lanes of a warp together. */
struct prefill_numbered {
    int which, expert, n = 0; /* which < 0: there is no such tile */
    __device__ __forceinline__ prefill_numbered(const prefill_arguments &p, const prefill_tables &tables, int number)
    {
        const int hits = tables.hits[p.experts], first = hits * prefill_walk::columns_of(p, 0);
        which = number >= first;
        const int columns = prefill_walk::columns_of(p, which), local = number - (which == 0 ? 0 : first);
        expert = 0;
        for (int e = 0; e < p.experts; e += 32) { /* experts whose tiles end before it */
            const int end = e + static_cast<int>(threadIdx.x) % 32 + 1;
            expert += __popc(__ballot_sync(~0u, end <= p.experts && tables.hits[end] * columns <= local));
        }
        if (expert >= p.experts)
            which = -1;
        else
            n = local - tables.hits[expert] * columns;
    }
    __device__ int64_t weight_tile(const prefill_arguments &p) const
    {
        return static_cast<int64_t>(expert) * prefill_walk::columns_of(p, which) + n;
    }
};

/* Until a tile has met all of its tokens; by a warp. */
__device__ __forceinline__ void prefill_wait_used(const prefill_arguments &p, const prefill_tables &tables, int number)
{
    const int expert = prefill_numbered(p, tables, number).expert;
    if (threadIdx.x % 32 == 0)
        prefill::wait_for_count(p.used + number, tables.tiles[expert + 1] - tables.tiles[expert]);
    __syncwarp();
}

/* Until a tile is there; by the thread that starts the copies which read it. */
__device__ __forceinline__ void prefill_wait_made(const prefill_arguments &p, int number)
{
    prefill::wait_for_count(p.made_groups + number, PREFILL_TILE_GROUPS);
    hopper::proxy_fence();
}

#endif
