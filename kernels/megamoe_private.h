/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room of kernels: how a call is made of stages, and what one stage leaves in the workspace for the next.
 *
 *   route + gather    ids -> rows sorted by expert; x into those rows, quantised where the format says so
 *   projections       one path of the table below: rows -> h -> BF16 rows [rows, H]
 *   combine           rows -> y
 *
 * Shared experts are computed first, as a call of one expert that every token has, whose rows combine adds last.
 *
 * Rows. Every route (token t, choice j; route number t * k + j) of a local expert gets a row. Rows of one expert lie
 * together in ascending route number, experts in ascending order, and each expert starts at a multiple of `align`; rows
 * between its last route and the next multiple are padding. Nothing a row holds depends on where the row lies.
 *
 * C and CUDA both include this file.
 */
#ifndef LOADPLAN_MEGAMOE_PRIVATE_H
#define LOADPLAN_MEGAMOE_PRIVATE_H

#include "kernels/megamoe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---- */

typedef enum lp_moe_family {
    LP_MOE_CONTRACT = 0, /* the layouts of SM100 kernels: mxfp4_l1_weight .. */
    LP_MOE_PACKED = 1    /* the tile-packed layouts of this GPU: mxfp4_sm90_l1_weight .. */
} lp_moe_family;

/* Of weights that passed lp_megamoe_check. */
lp_moe_family lp_moe_family_of(const lp_megamoe_weights *weights);

/* Whether E4M3 tokens are multiplied as BF16 values. The matrix unit keeps about 14 bits while it adds FP8 products:
 * over many columns of h that evens out, over few of them a single flipped code shows. A rule of the shape alone, so
 * that results do not depend on the number of tokens. */
bool lp_moe_wide_products(const lp_megamoe_shape *shape);

/* Columns of products of E4M3 weights and tokens that the matrix unit adds before they go to totals in FP32: those of
 * gate and up, whose errors flip codes of h; and those of down, or of gate and up too where a shape says `fast`. */
enum { LP_MOE_SUM_COLUMNS = 64, LP_MOE_LONG_SUM_COLUMNS = 128 };

/* Checks sizes and switches of a shape alone. */
lp_status lp_moe_check_shape(const lp_megamoe_shape *shape, lp_error *err);

/* ---- routing ---- */

/* What the gather makes of a token's row of x. `width` is the columns of K in one unit. */
typedef enum lp_moe_gather {
    LP_MOE_GATHER_NONE = 0,    /* routes only */
    LP_MOE_GATHER_F8 = 1,      /* as f8_operand.cuh orders the operand, E4M3, and its scales */
    LP_MOE_GATHER_F8_BF16 = 2, /* the same, BF16 */
    LP_MOE_GATHER_W4_FP8 = 3,  /* as w4_operand.cuh orders the operand of register-A products, E4M3 */
    LP_MOE_GATHER_W4_BF16 = 4, /* the same, BF16 */
    LP_MOE_GATHER_W4_WIDE = 5, /* the same, the values of LP_MOE_GATHER_W4_FP8 as BF16, and its scales */
    LP_MOE_GATHER_M8 = 7,      /* as m8_operand.cuh orders the operand, MXFP8 tokens as BF16 values */
    LP_MOE_GATHER_PREFILL = 6  /* each token once, [cap, H] as prefill_round.cu makes it of prefill_kind */
} lp_moe_gather;

/* At most `chunk_rows` rows of one expert: what one pass over its weights serves. Chunks are numbered in the order of
 * experts, and of rows within an expert. */
typedef struct lp_moe_chunk {
    int32_t expert;
    int32_t row;   /* its first row */
    int32_t width; /* rows up to the next multiple of `align`, at most chunk_rows */
    int32_t valid; /* rows that are routes; the others are padding at the end */
    int32_t first; /* number of the expert's first chunk */
    int32_t count; /* chunks of the expert */
    int32_t unused[2];
} lp_moe_chunk;

enum { LP_MOE_ROUTE_BLOCKS = 132 }; /* of the routing launch, at most */

/* Device memory that routing fills. */
typedef struct lp_moe_routes {
    int32_t *count;       /* [E] routes of the expert */
    int32_t *start;       /* [E + 1] its first row; start[E] is the number of rows with padding */
    int32_t *first_chunk; /* [E] */
    int32_t *row_route;   /* [rows] route number, -1 in padding */
    float *row_weight;    /* [rows] topk_weight of the route, 0 in padding */
    int32_t *route_row;   /* [cap * k] row of the route, -1 when masked or past the last token */
    lp_moe_chunk *chunk;  /* [chunks_cap] */
    int32_t *chunks;      /* [1] in use */
    int32_t *block_count; /* [LP_MOE_ROUTE_BLOCKS, E] routes of each block of the routing launch, if there are many */
    int32_t *sync;        /* [sync_words] set to 0: counters of the projections */
} lp_moe_routes;

typedef struct lp_moe_route_job {
    lp_moe_routes routes;
    int64_t experts, hidden, top_k, max_tokens; /* max_tokens: the tokens_bound in force */
    int64_t first_expert;
    int32_t align, chunk_rows; /* both multiples of 8; chunk_rows is a multiple of align */
    int32_t even_rows;         /* a multiple of align: an expert of more than chunk_rows has equal chunks of at most so
                                * many; 0: chunks of chunk_rows, and one of the rest */
    int32_t sync_words;
    lp_dtype x_dtype, id_dtype;
    lp_moe_gather gather;
    const void *x, *topk_ids;
    const float *x_scale, *topk_weight;
    const int32_t *tokens;
    int32_t *received;    /* or NULL */
    void *rows;           /* gathered x */
    float *row_scale;     /* gathered scales of E4M3 rows */
    int32_t prefill_kind; /* lp_prefill_kind */
    bool early;           /* the kernel before makes the inputs: start while it runs, and wait for its end */
} lp_moe_route_job;

/* Of `sync`, where the projections route themselves: in front of the other counters. */
enum { LP_MOE_START_WORDS = 3 };

/* One launch. The following kernel may start early (programmatic launch) and must wait on the grid dependency before it
 * reads anything of these. */
lp_status lp_moe_route(const lp_moe_route_job *job, void *stream, lp_error *err);

/* One launch in the place of lp_moe_route, for projections that route themselves: sets `sync` to 0. */
lp_status lp_moe_clear(const lp_moe_route_job *job, void *stream, lp_error *err);

/* Most rows with padding, and most chunks, that any routing of `routes` routes over E experts makes. */
int64_t lp_moe_rows_cap(int64_t routes, int64_t experts, int64_t align);
int64_t lp_moe_chunks_cap(int64_t routes, int64_t experts, int64_t chunk_rows);

typedef struct lp_moe_combine_job {
    int64_t hidden, top_k, max_tokens;
    const int32_t *tokens, *route_row;
    const float *topk_weight; /* multiplies rows in FP32, or NULL: rows are added as they are */
    const void *rows;         /* BF16 [rows, H] */
    const void *shared_rows;  /* BF16 [cap, H], added last; or NULL */
    void *y;                  /* BF16 [cap, H] */
} lp_moe_combine_job;

/* One launch, as a programmatic dependent of the projections when `early`. */
lp_status lp_moe_combine(const lp_moe_combine_job *job, bool early, void *stream, lp_error *err);

/* ---- paths: the projections of one format ---- */

enum { LP_MOE_MOST_RANKS = 64 };

/* Where rows of the second projection go when they are not combined here: rank n's routes are numbers n * routes up to
 * (n + 1) * routes, and the row of each goes to its place in slots[n], BF16 [routes, H], which may be a peer's memory.
 * moe_row_place says it on the device. */
typedef struct lp_moe_sink {
    int32_t routes; /* of a rank; 0: rows stay in the workspace */
    bool early;     /* routing may start before the kernel in front of it has ended */
    char *slots[LP_MOE_MOST_RANKS];
} lp_moe_sink;

typedef struct lp_moe_call {
    const lp_megamoe_shape *shape; /* defaults filled in: tokens_bound > 0, activation_alpha != 0 */
    const lp_megamoe_weights *weights;
    const lp_megamoe_io *io;
    lp_moe_family family;
    char *workspace; /* 256-byte aligned */
    void *stream;
    const lp_moe_sink *sink; /* NULL: rows are combined into y; else they go there, and nothing is combined */
    const void *shared_rows; /* of lp_moe_combine_job */
} lp_moe_call;

/* The last stage of a path: combines the routes' rows, or does nothing where the call has a sink. */
lp_status lp_moe_finish(const lp_moe_call *call, const int32_t *route_row, const void *rows, lp_error *err);

typedef struct lp_moe_path {
    const char *name;
    /* Whether it computes this shape on weights of this family. Sizes have passed lp_moe_check_shape. */
    bool (*takes)(const lp_megamoe_shape *shape, lp_moe_family family);
    int64_t (*workspace)(const lp_megamoe_shape *shape);      /* bytes, for max_tokens; -1: overflow */
    lp_status (*run)(const lp_moe_call *call, lp_error *err); /* enqueues all stages; NULL without CUDA */
} lp_moe_path;

/* The call after its checks: defaults, and the first path that takes it. Shared experts are left out; `shared_rows` are
 * theirs, or NULL. */
lp_status lp_moe_enqueue(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights, const lp_megamoe_io *io,
                         void *workspace, void *stream, const lp_moe_sink *sink, const void *shared_rows,
                         lp_error *err);

/* In megamoe.c: the paths in order of preference; the first that takes a call runs it. Those that obey a sink are
 * listed there once more. */
extern const lp_moe_path lp_moe_path_w4_decode, lp_moe_path_f8_few, lp_moe_path_m8, lp_moe_path_prefill_w4,
    lp_moe_path_prefill;

/* ---- shared experts ---- */

/* Bytes of the workspace that they take, a multiple of 256, 0 where there are none; -1 with *err: not supported. */
int64_t lp_moe_shared_workspace(const lp_megamoe_shape *shape, lp_error *err);

/* Enqueues them on checked arguments. *rows: theirs, in `workspace`, or NULL where there are none. */
lp_status lp_moe_shared_enqueue(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights,
                                const lp_megamoe_io *io, void *workspace, void *stream, const void **rows,
                                lp_error *err);

/* One launch: ids 0 and weights 1 for `tokens` tokens. */
lp_status lp_moe_fill_shared_routes(int32_t *ids, float *weights, int64_t tokens, void *stream, lp_error *err);

/* ---- workspace ---- */

/* Hands out 256-byte aligned pieces of a workspace, or only counts when base is NULL. */
typedef struct lp_moe_space {
    char *base;
    int64_t used; /* -1: overflow */
} lp_moe_space;

void *lp_moe_take(lp_moe_space *space, int64_t count, int64_t element_bytes);

/* The tables of routing. */
void lp_moe_take_routes(lp_moe_space *space, lp_moe_routes *routes, int64_t experts, int64_t routes_cap, int64_t align,
                        int64_t chunk_rows, int64_t sync_words);

#ifdef __cplusplus
}
#endif

#endif
