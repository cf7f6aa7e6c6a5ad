/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/layout.h: the memory layouts that MegaMoE kernels read, each declared once, as data.
 *
 * A layout says where every byte of an expert's checkpoint tensors lies in the tensor that the kernel reads. It is a
 * row of a table: the checkpoint rows and columns split into axes, and the order in which memory runs through the axes.
 * From the row follow the shapes and strides, the destination region of a checkpoint tensor as an lp_view, and the
 * index formula both ways. All of them are pure permutations of bytes.
 *
 * Sizes: E local experts, H hidden, I intermediate. The first projection of an expert has a gate (w1, [I, H]) and an up
 * part (w3, [I, H]), the second one is down (w2, [H, I]).
 */
#ifndef LOADPLAN_LAYOUT_H
#define LOADPLAN_LAYOUT_H

#include "traces/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef struct lp_layout_sizes {
    int64_t experts, hidden, intermediate;
} lp_layout_sizes;

/* symbol * times / over, which the size rules make exact. */
typedef enum lp_size_symbol { LP_SIZE_ONE = 0, LP_SIZE_E = 1, LP_SIZE_H = 2, LP_SIZE_I = 3 } lp_size_symbol;

typedef struct lp_extent {
    lp_size_symbol symbol;
    int32_t times, over;
} lp_extent;

/* Expert and half come from which checkpoint tensor it is (half 0 is gate, 1 is up); rows and columns split its two
 * dimensions. */
typedef enum lp_axis_role { LP_AXIS_EXPERT = 1, LP_AXIS_HALF = 2, LP_AXIS_ROW = 3, LP_AXIS_COLUMN = 4 } lp_axis_role;

typedef struct lp_axis {
    lp_axis_role role;
    const char *name;
    lp_extent extent;
} lp_axis;

typedef struct lp_size_rule {
    lp_size_symbol symbol; /* must be a multiple of this; LP_SIZE_ONE ends the list */
    int32_t multiple;
} lp_size_rule;

enum { LP_LAYOUT_AXES = 10, LP_LAYOUT_DIMS = 4, LP_LAYOUT_SOURCES = 4, LP_LAYOUT_RULES = 3 };

typedef struct lp_layout {
    const char *id;                      /* stable name; stands in trace files together with the version */
    int32_t version;                     /* raised when the bytes move */
    const char *summary;                 /* one line */
    const char *kernels;                 /* who reads it */
    lp_dtype dtype;                      /* of the destination: the unit that moves */
    lp_dtype source[LP_LAYOUT_SOURCES];  /* checkpoint dtypes, the usual one first; LP_DTYPE_NONE ends the list */
    lp_size_rule rule[LP_LAYOUT_RULES];  /* what the kernels demand */
    int32_t axes;                        /* in use */
    lp_axis axis[LP_LAYOUT_AXES];        /* checkpoint order, outermost first: expert, half, rows, columns */
    int8_t memory_order[LP_LAYOUT_AXES]; /* axes as memory runs through them, outermost first */
    bool up_first;                       /* up lies where half 0 is counted, gate where half 1 is */
    int32_t ndim;                        /* logical destination */
    lp_extent dim[LP_LAYOUT_DIMS];
    int8_t dim_order[LP_LAYOUT_DIMS]; /* logical dimensions as memory runs through them, outermost first */
    int32_t slot_dim;                 /* logical dimension that counts experts, or -1 */
} lp_layout;

LP_API int32_t lp_layout_count(void);
LP_API const lp_layout *lp_layout_at(int32_t index);    /* NULL when out of range */
LP_API const lp_layout *lp_layout_find(const char *id); /* NULL when unknown */

/* ---- sizes and shapes -------------------------------------------------------------------------------------------- */

/* Whether the kernels can use these sizes: LP_E_ARGUMENT with the multiple that is needed and the size to pad to. The
 * functions below check it too. Layouts without an expert axis want experts 0 or 1. */
LP_API lp_status lp_layout_check(const lp_layout *layout, const lp_layout_sizes *sizes, lp_error *err);

typedef struct lp_layout_shape {
    lp_dtype dtype;
    int32_t ndim;
    int64_t shape[LP_LAYOUT_DIMS];
    int64_t stride[LP_LAYOUT_DIMS]; /* bytes */
    int64_t bytes;                  /* of the whole destination; it has no gaps */
    int32_t slot_dim;               /* dimension that counts experts, or -1 */
    int64_t slot_stride;            /* bytes from an expert to the next one; 0 without that dimension */
} lp_layout_shape;

/* The tensor that the kernel reads. */
LP_API lp_status lp_layout_describe(const lp_layout *layout, const lp_layout_sizes *sizes, lp_layout_shape *out,
                                    lp_error *err);

/* Which checkpoint tensor. */
typedef enum lp_shard {
    LP_SHARD_GATE = 0,       /* w1 [I, *] */
    LP_SHARD_UP = 1,         /* w3 [I, *] */
    LP_SHARD_DOWN = 2,       /* w2 [H, *] */
    LP_SHARD_GATE_UP = 3,    /* w13 [2I, *]: gate rows, then up rows */
    LP_SHARD_ALTERNATING = 4 /* w13 [2I, *]: a gate row, its up row, the next gate row */
} lp_shard;

/* Whether the layout takes that checkpoint tensor: w2 goes into the layouts of the second projection, the others into
 * those of the first. */
LP_API bool lp_layout_takes(const lp_layout *layout, lp_shard shard);

/* Shape [rows, columns] that one expert's checkpoint tensor has in `dtype`, which must be one of layout->source
 * (LP_E_ARGUMENT, with the ones that would do). */
LP_API lp_status lp_layout_source_shape(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard,
                                        lp_dtype dtype, int64_t shape[2], lp_error *err);

/*
 * Where an expert's checkpoint tensor goes: `region` is a view of the destination and `source` a view of the checkpoint
 * tensor, both of shape [rows, columns] in layout->dtype, so that lp_map_copy of the two is the layout's byte map. With
 * expert -1 both have a leading dimension of all experts (a stacked checkpoint tensor). The region of expert e is that
 * of expert 0, moved by e * slot_stride. `source` may be NULL: any view of that shape and dtype will do, such as
 * lp_view_dtype of the checkpoint tensor.
 */
LP_API lp_status lp_layout_region(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                                  lp_view *region, lp_view *source, lp_error *err);

/*
 * The same for block scales: a checkpoint tensor of source_rows x source_columns bytes, each of which stands for a
 * block of rows and of columns (one scale for 128 x 128 weights where the layout wants one for 1 x 32, say). Both views
 * are U8 of the full shape; in `source` the repeated bytes have stride 0, which makes the map a replicate. For scale
 * layouts of words only. LP_E_ARGUMENT when the blocks do not divide the shape.
 */
LP_API lp_status lp_layout_region_blocks(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard,
                                         int64_t expert, int64_t source_rows, int64_t source_columns, lp_view *region,
                                         lp_view *source, lp_error *err);

/* Moves the bytes of one expert's checkpoint tensor, dense in `source`, to their places in `destination`, or back. With
 * expert -1 `source` holds all experts. The buffers have the sizes that the functions above state and must not overlap.
 * The byte map is made with `alloc` (NULL: malloc) and freed again. Fails before the first byte moves or not at all. */
LP_API lp_status lp_layout_apply(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                                 const void *source, void *destination, const lp_alloc *alloc, lp_error *err);
LP_API lp_status lp_layout_undo(const lp_layout *layout, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert,
                                const void *destination, void *source, const lp_alloc *alloc, lp_error *err);

/* ---- the index formula ------------------------------------------------------------------------------------------- */

/* One byte of a checkpoint tensor. */
typedef struct lp_layout_place {
    lp_shard shard;
    int64_t expert, row, byte; /* byte: inside its row */
} lp_layout_place;

/* The destination offset of a checkpoint byte, and the checkpoint byte of a destination offset (as gate, up or down).
 * Each is the inverse of the other. LP_E_ARGUMENT when out of range. */
LP_API lp_status lp_layout_locate(const lp_layout *layout, const lp_layout_sizes *sizes, const lp_layout_place *place,
                                  int64_t *off, lp_error *err);
LP_API lp_status lp_layout_origin(const lp_layout *layout, const lp_layout_sizes *sizes, int64_t off,
                                  lp_layout_place *place, lp_error *err);

/* Texts, made from the table; always terminated; the length of the whole text is returned, as snprintf does.
 *   chain     "[E,2,I/8,8,H/2] as (e,half,g,i,c) -> memory (e,g,half,i,c)"
 *   forward   "off = 2097152*e + 2048*half + 4096*(t/8) + 256*(t%8) + c": expert e, row t, byte c of its row
 *   inverse   "e = off/2097152, half = off/2048%2, ..."
 * The formulas need sizes that pass lp_layout_check; 0 is returned otherwise. */
LP_API size_t lp_layout_chain_text(const lp_layout *layout, char *buffer, size_t buffer_bytes);
LP_API size_t lp_layout_forward_text(const lp_layout *layout, const lp_layout_sizes *sizes, char *buffer,
                                     size_t buffer_bytes);
LP_API size_t lp_layout_inverse_text(const lp_layout *layout, const lp_layout_sizes *sizes, char *buffer,
                                     size_t buffer_bytes);

#ifdef __cplusplus
}
#endif

#endif
