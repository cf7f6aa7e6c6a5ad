/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel of many tokens is given, and what its shared memory holds. A tile is 128 tokens of one expert by 256
 * rows of weights; which block computes which is said in prefill_walk.cuh.
 */
#ifndef LOADPLAN_PREFILL_TILE_CUH
#define LOADPLAN_PREFILL_TILE_CUH

#include "kernels/prefill.h"
#include "kernels/prefill_operand.cuh"
#include "kernels/prefill_ptx.cuh"

constexpr int PREFILL_COLUMNS = 256, PREFILL_MOST_EXPERTS = 512, PREFILL_WARPS = 8; /* that multiply */
constexpr int PREFILL_WEIGHT_BYTES = PREFILL_COLUMNS * 128, PREFILL_SCALE_BYTES = PREFILL_ROWS * 4;
constexpr int PREFILL_TURNS = 8; /* tasks that are remembered, more than roles are apart */

/* What a kind of product is made of. `decodes`: weights come as codes and seven warps decode them. */
__host__ __device__ constexpr bool prefill_decodes(int kind)
{
    return kind != LP_PREFILL_FP8 && kind != LP_PREFILL_BF16 && !prefill_is_ahead(kind);
}
__host__ __device__ constexpr bool prefill_is_fp4(int kind)
{
    return prefill_is_mx(kind) || prefill_is_nv(kind) || kind == LP_PREFILL_MX_WIDE;
}
__host__ __device__ constexpr bool prefill_has_blocks(int kind) /* FP32 scales of 128 x 128 weights */
{
    return kind == LP_PREFILL_FP8 || kind == LP_PREFILL_FP8_WIDE;
}
__host__ __device__ constexpr bool prefill_is_scaled(int kind)
{
    return kind != LP_PREFILL_BF16 && !prefill_is_nv(kind) && !prefill_is_codes(kind);
}
__host__ __device__ constexpr int prefill_row_bits(int kind) /* of a weight, as it is stored */
{
    return prefill_is_fp4(kind) ? 4 : kind == LP_PREFILL_BF16 ? 16 : 8;
}
__host__ __device__ constexpr int prefill_stages(int kind)
{
    return prefill_decodes(kind) ? 3 : 4;
}

/* Eight warps multiply. Beside them are two warps that feed and two that are idle; or one that feeds and three that
 * decode ahead; or seven that decode for the block and one that feeds. */
constexpr int PREFILL_MAKERS = 3; /* that decode ahead */
__host__ __device__ constexpr int prefill_threads(int kind)
{
    return prefill_decodes(kind) ? 512 : 384;
}
/* Registers of a thread that multiplies, and of another: together not more than a launch has. Decoding is as fast as
 * its loads are early, and so takes what the products leave; a spilled register there is worth a trip to the L2 cache,
 * for waiting on counters in memory empties the first level. */
__host__ __device__ constexpr int prefill_registers(int kind)
{
    const bool is_plain = prefill_is_nv(kind) || prefill_is_codes(kind); /* no sums but the totals */
    return prefill_decodes(kind) ? (is_plain ? 168 : 184) : is_plain ? 200 : 224;
}
__host__ __device__ constexpr int prefill_registers_beside(int kind)
{
    return prefill_decodes(kind) ? 256 - prefill_registers(kind) : 504 - 2 * prefill_registers(kind);
}

/* Whether a tile of few tokens is divided by weight rows: where products are what takes time. */
__host__ __device__ constexpr bool prefill_splits(int kind)
{
    return kind == LP_PREFILL_FP8;
}

/* Whether clusters take tasks from a counter as they come free, instead of every so-manieth. */
__host__ __device__ constexpr bool prefill_takes_turns(int kind)
{
    return kind == LP_PREFILL_FP8;
}

struct prefill_arguments {
    const char *x;         /* [tokens, H], where rows are fetched one by one */
    const char *tokens[2]; /* operands of both projections: x and h */
    const float *token_scale[2];
    const float *weight_scale[2];         /* LP_PREFILL_FP8 */
    const char *codes[2], *code_scale[2]; /* of kinds that decode */
    int packed;                           /* they are in the layouts packed by tiles */
    int in_block;                         /* blocks decode them for themselves: they share tokens only */
    char *made;                           /* decoded ahead: places for tiles of decoded weights, prefill_ring.cuh */
    int64_t place_bytes;                  /* of one of them */
    int places;
    int32_t *made_groups, *used; /* by tile: groups of rows that are decoded, tiles of tokens that are multiplied */
    uint8_t *reference;          /* MXFP4 decoded ahead: by tile, for each row, what prefill_rare_rows.cuh says */
    char *h;
    float *h_scale;
    uint16_t *out;
    lp_moe_sink sink;
    const int32_t *count, *start, *row_route;
    const float *row_weight;
    int32_t *ready; /* tiles of the first projection that are done, for each tile of 128 tokens */
    int32_t *taken; /* tasks that clusters have taken beyond their first ones */
    const float *l1_alpha, *l2_alpha, *l2_activation_scale;
    int l1_alpha_columns;
    int weight_in_h; /* the router weight multiplies h */
    bool fast;       /* lp_megamoe_shape.fast */
    int experts;
    int hidden, intermediate;
    int activation;
    float alpha, beta, limit;
};

struct prefill_task {
    int which;         /* projection */
    int expert, m, n;  /* tile of tokens, of weight rows; expert < 0: there are no more of them */
    bool share_tokens; /* else the weights */
    bool idle;         /* no such tile: take part in the traffic only */
    int rows, row;     /* tokens in the tile, its first row */
};

struct prefill_told {
    prefill_task task;
    int number;
};

struct prefill_tables {
    int tiles[PREFILL_MOST_EXPERTS + 1]; /* token tiles before an expert */
    int pairs[PREFILL_MOST_EXPERTS + 1]; /* pairs of them */
    int hits[PREFILL_MOST_EXPERTS + 1];  /* experts that have tokens */
};

/* Codes and scales of 256 rows x 64 bytes, on their way to be decoded. */
template <int KIND> struct prefill_raw {
    static constexpr int RING = 3, CODES = PREFILL_COLUMNS * 64,
                         SCALES = PREFILL_COLUMNS * (KIND == LP_PREFILL_NV ? 8 : 4);
    static constexpr bool SCALED = KIND != LP_PREFILL_FP8_WIDE;
    uint8_t codes[RING][CODES], scales[RING][SCALES];
    uint64_t full[RING], empty[RING];
    uint8_t reference[4][PREFILL_COLUMNS]; /* LP_PREFILL_MX, for the last tasks, as prefill_rare_rows.cuh has them */
};
template <int KIND, bool DECODES> struct prefill_raw_or_none {
    prefill_raw<KIND> raw;
};
template <int KIND> struct prefill_raw_or_none<KIND, false> {
};

/* 128 columns of eight rows on their way from memory: codes row after row, and all scales of a row after each other. */
template <int KIND> struct prefill_unit_of_codes {
    static constexpr int ROW = prefill_is_fp4(KIND) ? 64 : 128, SCALES = prefill_is_nv(KIND) ? 2 : 1; /* bytes, words */
    alignas(16) uint8_t codes[8][ROW];
    uint32_t scales[8][SCALES];
};

/* Those of the warps that decode ahead, each with a ring of its own. */
template <int KIND, bool IS_AHEAD> struct prefill_making {
    static constexpr int DEPTH = prefill_is_fp4(KIND) ? 4 : 3;
    prefill_unit_of_codes<KIND> unit[PREFILL_MAKERS][DEPTH];
    /* MXFP4, for the last tasks, as prefill_rare_rows.cuh has them; copies are ahead by as many tasks as stages. */
    alignas(16) uint8_t reference[2 * prefill_stages(KIND)][prefill_is_mx(KIND) ? PREFILL_COLUMNS : 1];
};
template <int KIND> struct prefill_making<KIND, false> {
};

template <int KIND> struct prefill_shared : prefill_raw_or_none<KIND, prefill_decodes(KIND)> {
    static constexpr int STAGES = prefill_stages(KIND);
    alignas(1024) uint8_t weight[STAGES][PREFILL_WEIGHT_BYTES];
    uint8_t tokens[STAGES][PREFILL_PIECE];
    uint8_t staging[2][8192]; /* of the two multiplying warpgroups */
    float scale[STAGES][PREFILL_ROWS];
    float most[2][2][64]; /* of |h|, of the two halves of a tile that is divided; for every other such tile */
    uint64_t full[STAGES], empty[STAGES];
    uint64_t staged[2], unstaged[2]; /* prefill_hand_over.cuh */
    uint64_t turn[PREFILL_TURNS]; /* of the cluster's task i, in place i % PREFILL_TURNS: i, and which of all it is */
    prefill_told told[PREFILL_TURNS]; /* the block's tasks, number i in place i % PREFILL_TURNS */
    prefill_tables tables;
    prefill_making<KIND, prefill_is_ahead(KIND)> making;
};
static_assert(sizeof(prefill_shared<LP_PREFILL_CODES | PREFILL_AHEAD>) <= 232448 &&
                  sizeof(prefill_shared<LP_PREFILL_NV | PREFILL_AHEAD>) <= 232448,
              "a block's most on this GPU");
static_assert(sizeof(prefill_shared<LP_PREFILL_NV>) <= 232448 && sizeof(prefill_shared<LP_PREFILL_FP8>) <= 232448,
              "a block's most on this GPU");

/* A ring of stages; every role steps through it alike. */
template <int COUNT> struct prefill_ring {
    int stage = 0;
    uint32_t phase = 0;
    __device__ void next()
    {
        if (++stage == COUNT) {
            stage = 0;
            phase ^= 1;
        }
    }
};

#endif
