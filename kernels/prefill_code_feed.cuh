/* SPDX-License-Identifier: Apache-2.0 */
/* The warp beside those that decode: fetches codes with their scales ahead of them, and tokens. */
#ifndef LOADPLAN_PREFILL_CODE_FEED_CUH
#define LOADPLAN_PREFILL_CODE_FEED_CUH

#include "kernels/prefill_feed.cuh"

/*
 * Fetches codes ahead of the decoding warps; by one lane. A step is 256 rows of 64 bytes of codes, 128 columns or 64 of
 * E4M3, as both families of layouts give them, and the scales. Packed layouts have a step's scales in one piece, row
 * after row; the contract has them by words of four, the words of all rows of a column together, in slots.
 */
template <int KIND> struct prefill_code_feed {
    using R = prefill_raw<KIND>;
    static constexpr int COLUMNS = prefill_is_fp4(KIND) ? 128 : 64; /* of a step */
    prefill_walk walk;
    prefill_task task;
    prefill_ring<R::RING> ring;
    const CUtensorMap *map1, *map2; /* of the contract's codes: boxes of 256 rows x 64 bytes */
    int step, steps, which;
    bool some;

    __device__ prefill_code_feed(const prefill_arguments &p, const prefill_tables &tables, const CUtensorMap *map1,
                                 const CUtensorMap *map2, int rank)
        : walk(p, tables, rank, 0), map1(map1), map2(map2), step(0), steps(p.hidden / COLUMNS), which(0), some(true)
    {
        find();
    }
    /* The next task that has weights. */
    __device__ void find()
    {
        do {
            while (!walk.next(task)) {
                if (which == 1) {
                    some = false;
                    return;
                }
                which = 1;
                steps = walk.p.intermediate / COLUMNS;
                walk.to_second();
            }
        } while (task.idle);
        step = 0;
    }
    __device__ void fetch_packed(uint32_t codes, uint32_t scales, uint32_t full)
    {
        const int64_t at = static_cast<int64_t>(walk.weight_tile(task)) * steps + step;
        hopper::bulk_load(codes, walk.p.codes[which] + at * R::CODES, R::CODES, full);
        hopper::bulk_load(scales, walk.p.code_scale[which] + at * R::SCALES, R::SCALES, full);
    }
    __device__ void fetch_contract(uint32_t codes, uint32_t scales, uint32_t full)
    {
        constexpr int WORDS = R::SCALES / PREFILL_COLUMNS / 4, BYTES = PREFILL_COLUMNS * 4;
        const int64_t rows = static_cast<int64_t>(walk.columns()) * PREFILL_COLUMNS;
        prefill::tensor_load(codes, which == 0 ? map1 : map2, step * 64, walk.weight_tile(task) * PREFILL_COLUMNS,
                             full);
        for (int w = 0; R::SCALED && w < WORDS; w++) {
            const int64_t word = (static_cast<int64_t>(task.expert) * steps + step) * COLUMNS / 128 * WORDS + w;
            hopper::bulk_load(scales + w * BYTES,
                              walk.p.code_scale[which] + (word * rows + task.n * PREFILL_COLUMNS) * 4, BYTES, full);
        }
    }
    __device__ void fetch(prefill_raw<KIND> &raw)
    {
        using namespace hopper;
        using namespace prefill;
        if (!some)
            return;
        const uint32_t full = shared_address(&raw.full[ring.stage]), codes = shared_address(raw.codes[ring.stage]),
                       scales = shared_address(raw.scales[ring.stage]);
        barrier_wait(shared_address(&raw.empty[ring.stage]), ring.phase ^ 1);
        barrier_expect(full, R::CODES + (R::SCALED ? R::SCALES : 0));
        if (walk.p.packed)
            fetch_packed(codes, scales, full);
        else
            fetch_contract(codes, scales, full);
        ring.next();
        if (++step == steps)
            find();
    }
};

/* Codes ahead of the decoders, and tokens; by one thread. */
template <int KIND>
__device__ void prefill_feed_codes(const prefill_arguments &p, prefill_shared<KIND> &sm, const CUtensorMap *map1,
                                   const CUtensorMap *map2, int pieces1, int pieces2, uint32_t rank)
{
    constexpr int HALVES = prefill_is_fp4(KIND) ? prefill_element(KIND) : 1;
    prefill_ring<prefill_stages(KIND)> ring;
    prefill_code_feed<KIND> feed(p, sm.tables, map1, map2, static_cast<int>(rank));
    for (int i = 0; i < prefill_raw<KIND>::RING - 1; i++)
        feed.fetch(sm.raw);
    prefill_walk walk(p, sm.tables, static_cast<int>(rank), 0);
    prefill_teller teller(sm.told);
    for (int which = 0; which < 2; which++) {
        const int pieces = which == 0 ? pieces1 : pieces2;
        prefill_task task;
        while (walk.next(task)) {
            teller.tell(task);
            for (int k = 0; k < pieces; k++, ring.next()) {
                if (k % HALVES == 0 && !task.idle)
                    feed.fetch(sm.raw);
                if (which == 1 && k == 0)
                    prefill_wait_for_h(p, sm.tables, task);
                prefill_feed_piece(p, sm, ring, task, which, k, pieces, rank);
            }
        }
        if (which == 0)
            walk.to_second();
    }
    teller.tell_end();
}

#endif
