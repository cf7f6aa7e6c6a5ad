/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/megamoe.h: the mixture-of-experts layer of one rank, computed on the weights that a replay puts in place.
 *
 *   y[t] = sum over j < top_k of w[t][j] * down_e( act(gate_e(x[t]), up_e(x[t])) ),   e = ids[t][j]
 *          + down_s( act(gate_s(x[t]), up_s(x[t])) ), where there are shared experts s, which every token has
 *
 * for NVIDIA Hopper (compute capability 9.0). One call is a few launches on one stream: routing, both projections,
 * combination. It allocates nothing, never waits on the host, and reads token count, ids, scales and weights on the
 * device, so that it can be captured into a CUDA graph whose buffers change afterwards. Results are bitwise
 * reproducible: the order of every sum depends on hidden, intermediate and the format only, not on how tokens are
 * routed, on how many there are, or on how many experts this rank holds.
 *
 * Symbols: E experts of this rank, H hidden, I intermediate, k top_k, T tokens of a call, cap = max_tokens.
 *
 * Arithmetic. Codes times block scales are exact. FP8 products are added by the matrix unit over 128 columns, which
 * keeps about 14 bits there, and then in FP32; over 64 for gate and up of LP_FP8_BLOCK128 unless the shape says `fast`.
 * BF16 products (LP_NVFP4, LP_MOE_BF16, LP_MXFP8, and with I < 2048 also LP_MXFP4 and LP_FP8_BLOCK128, whose E4M3
 * tokens are then multiplied as BF16) are added in FP32 throughout. gate and up stay FP32 until h.
 *
 *   format            x                    h, the input of the second projection           the weight w[t][j] goes
 *   LP_MXFP4          E4M3, scale per 128  E4M3, scale per 128: max(amax, 1e-10) / 448     into h, before its scale
 *   LP_FP8_BLOCK128   the same             the same                                        the same
 *   LP_MXFP8          E4M3, UE8M0 per 32   E4M3, UE8M0 per 32                              the same
 *   LP_NVFP4          BF16                 BF16 (nearest even), see lp_megamoe_weights     into the combination
 *   LP_MOE_BF16       BF16                 BF16                                            into h
 *
 * Codes of h are the products of h and 448 / amax, rounded. x may be given as BF16 where E4M3 is wanted: then it is
 * quantised per token and 128 columns with the same scale, and its codes are x / scale, rounded. Scales of LP_MXFP8 are
 * the least powers of two that are not below amax / 448, amax of x being at least 1e-4; tokens, h and weights are
 * multiplied as the BF16 values that codes times scales are, from 2^-133 to BF16's largest.
 * Rows of the second projection are rounded to BF16 (after l2_alpha), added in FP32 in ascending j, and rounded to
 * BF16. The row of the shared experts, of the format that they have, is rounded alike and added last. A token whose ids
 * are all masked gets zeros, or that row.
 *
 * Thread rule: calls of different workspaces are independent; one workspace is in use by one stream at a time.
 */
#ifndef LOADPLAN_MEGAMOE_H
#define LOADPLAN_MEGAMOE_H

#include "layouts/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is computed -------------------------------------------------------------------------------------------- */

typedef enum lp_moe_format {
    LP_MXFP4 = 1,        /* E2M1 weights, an UE8M0 scale per row and 32 columns */
    LP_NVFP4 = 2,        /* E2M1 weights, an UE4M3 scale per row and 16 columns, FP32 alphas per expert */
    LP_MXFP8 = 3,        /* E4M3 weights, an UE8M0 scale per row and 32 columns */
    LP_FP8_BLOCK128 = 4, /* E4M3 weights, an FP32 scale per 128 x 128 block */
    LP_MOE_BF16 = 5      /* BF16 weights */
} lp_moe_format;

/* g gate, u up, after the clamp where there is one: g = min(g, limit), u = max(min(u, limit), -limit). */
typedef enum lp_moe_activation {
    LP_MOE_SWIGLU = 0,     /* g * sigmoid(alpha * g) * (u + beta); alpha 1, beta 0 is plain SwiGLU */
    LP_MOE_SITU = 1,       /* alpha * tanh(g / alpha) * sigmoid(g) * (beta > 0 ? beta * tanh(u / beta) : u) */
    LP_MOE_SWIGLU_STEP = 2 /* SwiGLU whose g is clipped after its sigmoid: min(g * sigmoid(alpha * g), limit) * u */
} lp_moe_activation;

/* Zero-initialise; fields may be added at the end, so `size` says which of them the caller knows. */
typedef struct lp_megamoe_shape {
    size_t size;          /* sizeof(lp_megamoe_shape) */
    int64_t experts;      /* E, 1..512: experts that this rank holds */
    int64_t hidden;       /* H, a multiple of 256 (FP8_BLOCK128: 512); see lp_layout_check for the padding rule */
    int64_t intermediate; /* I, a multiple of 128 (FP8_BLOCK128: 256) */
    int64_t top_k;        /* k, 1..32 */
    int64_t max_tokens;   /* cap, 1..65536: the workspace is made for it, the token count on the device obeys it */
    int64_t tokens_bound; /* of the next calls, 0: max_tokens. A promise that lets the launch choose its tiles; it
                             changes speed, never a bit of the result. 1..max_tokens */
    int64_t first_expert; /* ids count from here: id - first_expert outside 0..E-1 belongs to another rank and is
                             masked here, as -1 is */
    lp_moe_format format;
    lp_dtype x_dtype;  /* LP_BF16, or LP_F8_E4M3 with x_scale (not with LP_NVFP4 and LP_MOE_BF16) */
    lp_dtype id_dtype; /* of topk_ids: LP_I32 or LP_I64 */
    lp_moe_activation activation;
    float activation_alpha; /* 0: 1. SiTU: its a, which must be > 0 */
    float activation_beta;
    float activation_limit;      /* of the clamp; 0: none */
    int64_t shared_intermediate; /* of the shared experts together, which are computed as one expert; 0: none */
    bool fast; /* LP_FP8_BLOCK128: let the matrix unit add 128 columns of gate and up; see above. Other formats, and
                  I < 2048, have one way of adding only */
    lp_moe_format shared_format; /* of the shared experts; 0: format. It must take x_dtype, and the same x_scale */
} lp_megamoe_shape;

/* What one call for the shared experts alone would have as its shape: E = 1, I = shared_intermediate, k = 1, their
 * format, all else as in *shape. Their tensors are described by it: lp_megamoe_tensor_in, lp_megamoe_layout. */
LP_API lp_megamoe_shape lp_megamoe_shared_shape(const lp_megamoe_shape *shape);

/* ---- weights ----------------------------------------------------------------------------------------------------- */

typedef enum lp_moe_order { LP_MOE_GATE_FIRST = 0, LP_MOE_UP_FIRST = 1 } lp_moe_order;

/*
 * A tensor in device memory and what it is. All of it is checked: a layout that the format does not read, another
 * version than the one this library was built for, sizes, strides or alignment that differ from the layout's are
 * refused. That a transform was applied twice, or never, cannot be seen in bytes: `layout` is what a trace's
 * destination row says, and whoever transforms a tensor changes it. `transforms` counts how often a layout was applied
 * since the checkpoint; it must be 1.
 */
typedef struct lp_megamoe_tensor {
    const void *data;   /* 16-byte aligned */
    const char *layout; /* id of the layout table, such as "mxfp4_sm90_l1_weight" */
    int32_t version;    /* of that layout */
    int32_t transforms; /* 1 */
    lp_moe_order order; /* as the layout has it: LP_MOE_UP_FIRST for the trt layouts only */
    lp_dtype dtype;
    int32_t ndim;
    int64_t shape[LP_LAYOUT_DIMS];
    int64_t stride[LP_LAYOUT_DIMS]; /* bytes */
} lp_megamoe_tensor;

typedef enum lp_moe_slot {
    LP_MOE_L1_WEIGHT = 0,
    LP_MOE_L1_SCALE = 1,
    LP_MOE_L2_WEIGHT = 2,
    LP_MOE_L2_SCALE = 3,
    LP_MOE_SLOTS = 4
} lp_moe_slot;

/*
 * Layouts that are read (lp_megamoe_layout lists them): FORMAT_sm90_* of the layout table, which are packed by tiles
 * for this GPU, and for LP_MXFP4 and LP_NVFP4 also the DeepGEMM contract (mxfp4_l1_weight ..). Both tensors of one
 * projection must be of the same family. LP_MOE_BF16 has no scales: leave those slots zero. Shared experts of
 * LP_MXFP8 may also be in mxfp8_shared_*, which have the same bytes without a dimension for experts.
 *
 * Alphas, LP_NVFP4 only (NULL elsewhere), read on the device at each call:
 *   l1_alpha             FP32 [E] or [E, 2] (gate, up), contiguous: multiplies gate and up before the activation
 *   l2_alpha             FP32 [E]: multiplies the rows of the second projection
 *   l2_activation_scale  FP32 [1] or NULL. Loaders of SM100 kernels fold the scale of the quantised h into l2_alpha;
 *                        h is not quantised here, so l2_alpha is divided by this value. NULL: nothing was folded in.
 */
typedef struct lp_megamoe_weights {
    size_t size; /* sizeof(lp_megamoe_weights) */
    lp_megamoe_tensor tensor[LP_MOE_SLOTS];
    const float *l1_alpha, *l2_alpha, *l2_activation_scale;
    int32_t l1_alpha_columns;                /* 1 or 2 */
    const struct lp_megamoe_weights *shared; /* host memory: the shared experts as one, in their format; or NULL */
} lp_megamoe_weights;

/* The n-th layout that `format` reads in `slot`, the fastest first; NULL past the last. */
LP_API const char *lp_megamoe_layout(lp_moe_format format, lp_moe_slot slot, int32_t n);

/* Fills *tensor for data that is in `layout`, with the shape and strides of the table. LP_E_ARGUMENT as in
 * lp_megamoe_check. */
LP_API lp_status lp_megamoe_tensor_in(lp_megamoe_tensor *tensor, const lp_megamoe_shape *shape, const char *layout,
                                      const void *data, lp_error *err);

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* Device memory. Rows are dense; x, x_scale and y are 16-byte aligned. */
typedef struct lp_megamoe_io {
    size_t size;              /* sizeof(lp_megamoe_io) */
    const void *x;            /* x_dtype [cap, H] */
    const void *x_scale;      /* when x is E4M3: FP32 [cap, H/128], of LP_MXFP8 UE8M0 [cap, H/32]; else NULL */
    const void *topk_ids;     /* id_dtype [cap, k]; an expert may occur twice in a row: both are added */
    const float *topk_weight; /* FP32 [cap, k] */
    const int32_t *tokens;    /* T, 0..cap; more than cap (or tokens_bound) is cut to it */
    void *y;                  /* BF16 [cap, H]; rows from T on are left as they are */
    int32_t *received;        /* int32 [E] or NULL: += routes that each expert received */
} lp_megamoe_io;

/* Bytes of device memory that calls of this shape need, 256-byte aligned, with any content before a call; 0 when the
 * shape is not supported, with the multiple needed and the size to pad to in *err. Where max_tokens means many routes
 * an expert, LP_MXFP4, LP_NVFP4 and LP_MXFP8 have 264 tiles of decoded weights in it besides, or all where there are
 * fewer: 256 * max(H, I) bytes each for LP_MXFP4, twice that for the others. */
LP_API int64_t lp_megamoe_workspace(const lp_megamoe_shape *shape, lp_error *err);

/* Everything that lp_megamoe refuses before it launches anything, without a GPU. Pointers are not followed. */
LP_API lp_status lp_megamoe_check(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights,
                                  const lp_megamoe_io *io, const void *workspace, int64_t workspace_bytes,
                                  lp_error *err);

/*
 * Enqueues one layer on `stream` (a cudaStream_t; NULL is the default stream). Errors, all before the first launch:
 *   LP_E_ARGUMENT     a size, alignment, dtype, shape or stride that is not as documented
 *   LP_E_MISMATCH     a layout, version, order or number of transforms that the kernel does not read
 *   LP_E_UNSUPPORTED  built without CUDA, not a GPU of compute capability 9.0, or a shape that this version lacks
 *   LP_E_DEVICE       the driver refused a launch; nothing after it was enqueued
 */
LP_API lp_status lp_megamoe(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights, const lp_megamoe_io *io,
                            void *workspace, int64_t workspace_bytes, void *stream, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
