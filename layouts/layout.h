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

/* The layouts that this library knows. Indices may change with its version, ids do not. */
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

/* ---- chains: any permutation, in one line of text ---------------------------------------------------------------- */

/*
 * A chain describes a layout that is no row of the table above: another kernel's, or one that nobody has seen. It
 * splits the dimensions of one tensor into axes and lists the axes as memory runs through them:
 *
 *     N(r a=4 i=32) K(c k=4) -> r c (i a k)
 *
 * Left: the tensor as the checkpoint has it, row-major, one item a dimension: a name and its axes, outermost first, or
 * a single axis. Each dimension has at most one axis without an extent; it takes what remains. Right: the same axes,
 * from the outermost on; axes in brackets are one dimension of the result; '~' before an axis means that it runs
 * backwards, 'a^b' that the digit of b is exclusive-or'ed onto that of a (a swizzle), 'a+b' and 'a-b' that it is added
 * or taken away modulo the steps of a (a rotation),
 * 'a~b' that a runs the other way where the digit of b is odd (a snake), and 'a[2 0 1]' that its steps lie in this
 * order. 'K=33' or
 * '(i k)=33' gives a dimension of the result room for 33 steps: what its axes do not fill are zeros.
 *
 *     N(r i=4) B P(d=2 | q=16) -> r B (i d | i q)
 *
 * Bars cut one dimension into parts that lie one behind the other, on both sides: here each packet of 18 bytes becomes
 * its first 2 of four rows, then the other 16 of four rows. An axis outside the bars belongs to all parts; one that
 * stands in several parts of the left side is the same axis in each. Parts may lie in another order on the right: which
 * one is meant shows in its axes.
 *
 *     B(g w=3) N x(b=32) -> g w N b, (w b)[0 1 2 9 ...]
 *
 * Behind a comma stands a list over several axes: the steps of w and b, as one number, lie in this order.
 *
 * Units are elements of 1, 2, 4, 8, 16, 32 or 64 bits; in a byte the unit that comes first is the lowest one.
 */
enum { LP_CHAIN_DIMS = 8, LP_CHAIN_AXES = 24, LP_CHAIN_NAME = 16, LP_CHAIN_PARTS = 8, LP_CHAIN_LISTS = 256 };
enum { LP_CHAIN_JOINTS = 4, LP_CHAIN_JOINT_AXES = 4 };

typedef struct lp_chain_axis {
    char name[LP_CHAIN_NAME];
    int32_t dim;    /* dimension of the source that it splits */
    int64_t extent; /* 0: what remains of the dimension */
} lp_chain_axis;

/* An axis where memory runs through it. */
typedef struct lp_chain_place {
    int8_t axis;
    bool backwards;
    uint32_t swizzle;     /* bit a: the digit of axis a is exclusive-or'ed onto its own */
    uint32_t plus, minus; /* bit a: that digit is added to its own, or taken from it, modulo its extent */
    uint32_t flip;        /* bit a: it runs the other way where the digits of all such a make an odd sum */
    int16_t list_end; /* its steps in their order are chain->list[list_end - extent .. list_end - 1]; 0: as they are */
} lp_chain_place;

/* A list over several axes: their steps as one number, the first axis counting slowest, are renumbered before anything
 * else places them, in the parts that have all of these axes. Several such lists follow each other. */
typedef struct lp_chain_joint {
    int32_t axes;
    int8_t axis[LP_CHAIN_JOINT_AXES];
    int16_t steps;    /* all that they make, */
    int16_t list_end; /* in the order chain->list[list_end - steps .. list_end - 1] */
} lp_chain_joint;

/* What lies between two bars; a chain without bars has one part. */
typedef struct lp_chain_part {
    int32_t axes;                         /* in use */
    int8_t source[LP_CHAIN_AXES];         /* axes in the order of the source */
    lp_chain_place memory[LP_CHAIN_AXES]; /* the same from the outermost on */
    int8_t out_first[LP_CHAIN_AXES + 1];  /* dimension d of the result owns memory[out_first[d] .. out_first[d+1]-1] */
} lp_chain_part;

/* Plain data, no ownership. */
typedef struct lp_chain {
    int32_t ndim;                                /* of the source */
    char dim_name[LP_CHAIN_DIMS][LP_CHAIN_NAME]; /* empty where it has none */
    int32_t axes;                                /* in use */
    lp_chain_axis axis[LP_CHAIN_AXES];           /* as they first stand on the left */
    int32_t out_ndim;                            /* of the result */
    int64_t room[LP_CHAIN_AXES];                 /* steps that a dimension of the result has room for; 0: no more */
    int32_t split_dim, split_out;                /* dimensions of source and result that bars cut; -1: none */
    int32_t listed;                              /* in use of list */
    uint8_t list[LP_CHAIN_LISTS];                /* orders of steps, one behind the other */
    int32_t joints;
    lp_chain_joint joint[LP_CHAIN_JOINTS];
    int32_t parts;
    int8_t out_order[LP_CHAIN_PARTS]; /* parts as they lie in the result, the first one first */
    lp_chain_part part[LP_CHAIN_PARTS];
} lp_chain;

/* LP_E_ARGUMENT says what is wrong with the text and where (err->byte_off is the byte). */
LP_API lp_status lp_chain_parse(lp_chain *out, const char *text, lp_error *err);

/*
 * The same, or one of four other notations, which become the chain of the same order:
 *   CuTe     "(8,(4,2)):(1,(16,8))", compositions "A o B", swizzles "Sw<3,4,3> o (8,128):(128,1)": the modes are the
 *            dimensions, the offsets the places; offsets that are left out become room
 *   Triton   "register = [[0, 1], [0, 2]], lane = [[1, 0], [2, 1]]": for each bit of the place, the lowest first, which
 *            element lies there; the element at a sum is the exclusive or
 *   oneDNN   "ABcd16b16a2b": the dimensions as memory runs through them, in capitals where they have blocks; the blocks
 *   XLA      "{1,0:T(8,128)(2,1)}", with or without the shape before it: the innermost dimension first, tiles of tiles
 * Of the first two all extents are those of the text. LP_E_ARGUMENT: wrong text, or no order in which each element has
 * its own place.
 */
LP_API lp_status lp_chain_read(lp_chain *out, const char *text, lp_error *err);

/* The text again, in its usual form; always terminated; the length of the whole is returned, as snprintf does. */
LP_API size_t lp_chain_text(const lp_chain *chain, char *buffer, size_t buffer_bytes);

/* Gives axis `name` an extent, as if it stood in the text. LP_E_ARGUMENT: no such axis, or it has another extent. */
LP_API lp_status lp_chain_set(lp_chain *chain, const char *name, int64_t extent, lp_error *err);

/* Adds dimension `name`, one open axis, outermost on both sides: tensors stacked one behind the other, such as those of
 * experts. LP_E_ARGUMENT: an axis has that name; LP_E_LIMIT: no room for it. */
LP_API lp_status lp_chain_stack(lp_chain *chain, const char *name, lp_error *err);

/* A chain with sizes. Strides and offsets count units. */
typedef struct lp_chain_form {
    lp_chain chain;                                /* every axis has its extent */
    int64_t shape[LP_CHAIN_DIMS];                  /* of the source */
    int64_t padded[LP_CHAIN_DIMS];                 /* the same, rounded up to what the axes make */
    int64_t out_shape[LP_CHAIN_AXES];              /* of the result, row-major */
    int64_t source_units, units;                   /* of the source; of the result with its padding */
    int64_t stride[LP_CHAIN_PARTS][LP_CHAIN_AXES]; /* of an axis in the result, where the part has it */
    int64_t first[LP_CHAIN_PARTS + 1];             /* indices of the split dimension at which parts begin; the end */
    int64_t out_first[LP_CHAIN_PARTS];             /* where each part begins in the split dimension of the result, */
    int64_t out_end[LP_CHAIN_PARTS];               /* and where it ends */
    int64_t split_stride;                          /* units from one of those to the next */
    uint32_t undo[LP_CHAIN_PARTS][LP_CHAIN_AXES]; /* of a swizzled axis: those whose places exclusive-or to its digit */
    uint8_t where[LP_CHAIN_LISTS];                /* chain.list the other way round: the place of a step */
} lp_chain_form;

/* LP_E_ARGUMENT: a dimension is no multiple of the product of its extents and `pads` is false (the text says what it
 * would be padded to; a dimension with bars is never padded), its extent is open, a swizzle does not fit its axis,
 * swizzles give two elements one place, or a dimension of the result has more steps than room. LP_E_LIMIT: more than
 * 2^56 units. */
LP_API lp_status lp_chain_resolve(lp_chain_form *out, const lp_chain *chain, const int64_t *shape, bool pads,
                                  lp_error *err);

/* The place of a source element, and the source element of a place; the latter returns false for padding. Each is the
 * inverse of the other. Indices and offsets are not checked. */
LP_API int64_t lp_chain_locate(const lp_chain_form *form, const int64_t *index);
LP_API bool lp_chain_origin(const lp_chain_form *form, int64_t off, int64_t *index);

/* Moves a row-major source to its places, padding with zeros, or back. `unit_bits` is 1, 2, 4, 8, 16, 32 or 64; the
 * buffers hold whole bytes (so many units of less) and must not overlap. LP_E_ARGUMENT: another unit, or units that
 * do not fill their last byte. */
LP_API lp_status lp_chain_apply(const lp_chain_form *form, int unit_bits, const void *source, void *result,
                                lp_error *err);
LP_API lp_status lp_chain_undo(const lp_chain_form *form, int unit_bits, const void *result, void *source,
                               lp_error *err);

/* The places of the source's elements as a view of the result, in the source's shape: what a recorder copies to.
 * LP_E_UNSUPPORTED: no one view says it (lp_chain_piece does, in several), or elements of less than a byte. */
LP_API lp_status lp_chain_region(const lp_chain_form *form, lp_dtype dtype, lp_view *out, lp_error *err);

/*
 * The same in pieces, for parts, swizzles, lists and padded tails: start with *cursor = 0, copy `source` (of the tensor
 * as the checkpoint has it, dense) to `region` (of the result; both have the same shape) and go on until *cursor is -1.
 * Each element is in one piece. LP_E_UNSUPPORTED: elements of less than a byte.
 */
LP_API lp_status lp_chain_piece(const lp_chain_form *form, lp_dtype dtype, int64_t *cursor, lp_view *region,
                                lp_view *source, lp_error *err);

/* "off = 512*(n/128) + ...", n the index of dimension N (i0, i1, ... where it has no name), and back; as snprintf. Of
 * several parts: "p<2: off = ...; p<18: off = ...", the first that holds; of the way back, "off%144<16: p = ...". A
 * list is named by its axis: "b.index(k%32)", and back "b[off%32]". */
LP_API size_t lp_chain_forward_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes);
LP_API size_t lp_chain_inverse_text(const lp_chain_form *form, char *buffer, size_t buffer_bytes);

/*
 * The chain of a permutation that was recorded: place[k] is the row-major index of the source element that lies at k.
 * Run the transform on 0, 1, 2, ... of the given shape to get it. The outermost axis of each dimension is left open.
 * LP_E_UNSUPPORTED: no chain says it (elements are missing, repeated, or not in even steps); err->byte_off is the first
 * place that does not fit.
 */
LP_API lp_status lp_chain_identify(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                                   lp_error *err);

/* The same, with bars where nothing else says it, and with padding where `count` is more than the elements of the
 * shape: then a place that holds none of them (-1, say) is padding, and the chain may have to be resolved with `pads`.
 * `alloc` (NULL: malloc) gives three more arrays of that size while the search lasts; it looks at each place some
 * sixty times at most, then it gives up. LP_E_UNSUPPORTED as above. */
LP_API lp_status lp_chain_identify_parts(lp_chain *out, const int64_t *place, int64_t count, int ndim,
                                         const int64_t *shape, const lp_alloc *alloc, lp_error *err);

/*
 * The chain that does what `second` does to the result of `first`, and the chain of the way back from the result of
 * `form`. Both are found at the sizes of their forms, by a table of all places that `alloc` (NULL: malloc) gives while
 * the call lasts; names and open extents are as in lp_chain_identify, and padding has to be resolved with `pads`.
 * LP_E_ARGUMENT: the result of the first is not as large as the source of the second. LP_E_UNSUPPORTED: no chain says
 * it; a way back drops padding, or has more than 8 dimensions.
 */
LP_API lp_status lp_chain_compose(lp_chain *out, const lp_chain_form *first, const lp_chain_form *second,
                                  const lp_alloc *alloc, lp_error *err);
LP_API lp_status lp_chain_invert(lp_chain *out, const lp_chain_form *form, const lp_alloc *alloc, lp_error *err);

/* Whether two chains with sizes put every element, by its row-major number, in the same place. */
typedef enum lp_chain_verdict { LP_CHAIN_SAME = 0, LP_CHAIN_DIFFERS = 1, LP_CHAIN_UNDECIDED = 2 } lp_chain_verdict;

typedef struct lp_chain_comparison {
    lp_chain_verdict verdict;
    int64_t place;  /* where they differ; -1: nowhere, or their numbers of elements or places do */
    int64_t looked; /* elements and places that were looked at */
} lp_chain_comparison;

/*
 * Decided by the digits in which both count: what depends on each other is run through by itself, most often some
 * ten elements of 2^50. `most` bounds each such run; chains of at most so many places whose digits say nothing, or
 * that differ, are walked through from place 0, so that `place` is the first one. Beyond that `place` is one of those
 * that differ, or the verdict LP_CHAIN_UNDECIDED.
 */
LP_API lp_chain_comparison lp_chain_same(const lp_chain_form *one, const lp_chain_form *other, int64_t most);

/* Chains of public kernels. Ids never change their meaning and are none of those of lp_layout_find. */
typedef struct lp_chain_known {
    const char *id;
    int32_t version;
    int32_t unit_bits;
    bool pads; /* kernels want the padding as zeros; otherwise sizes must be multiples */
    const char *chain, *summary, *kernels;
    const char *source; /* where the order is written down */
} lp_chain_known;

/* Those that this library knows; indices may change with its version. */
LP_API int32_t lp_chain_known_count(void);
LP_API const lp_chain_known *lp_chain_known_at(int32_t index);    /* NULL when out of range */
LP_API const lp_chain_known *lp_chain_known_find(const char *id); /* NULL when unknown */

#ifdef __cplusplus
}
#endif

#endif
