/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/recorder.h: how to record what a loader does.
 *
 * A loader written against this header never sees a byte: it declares destination tensors, takes views of checkpoint
 * tensors and of destinations, and copies. What the copies mean is kept as byte maps in a trace. Three things can
 * happen to a call that is not a view or a copy:
 *
 *   followed through   clone, contiguous, cat, stack, index by constants, repeat: bytes only move, so the map is
 *                      composed; the record says `materialises`
 *   a derive           value operations (max, add, exp, ...) build an expression that runs again on every load
 *   a refusal          a value that the host reads: the names it reads become fallbacks, with the loader's file and
 *                      line; the other names go on
 *
 * Misuse (a name that does not exist, a narrow out of range, tensors of two recorders) is sticky: the call returns an
 * invalid tensor, calls on invalid tensors do nothing, and lp_recorder_finish or _save reports the first one with its
 * file and line. So a loader needs no check on every line, and one at its end.
 *
 * The operations are macros over functions named lp_..._at, which take the file and line of the caller. All of them
 * take the arguments shown in the comments after these two.
 *
 * A recorder and its tensors belong to one thread. docs/recording.md is the guide.
 */
#ifndef LOADPLAN_RECORDER_H
#define LOADPLAN_RECORDER_H

#include "traces/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LP_HERE __FILE__, __LINE__

typedef struct lp_recorder lp_recorder;

/* What a tensor stands for while recording. */
typedef enum lp_tensor_kind {
    LP_TENSOR_INVALID = 0,
    LP_TENSOR_SOURCE = 1,    /* a checkpoint tensor */
    LP_TENSOR_DEST = 2,      /* a destination tensor */
    LP_TENSOR_TEMPORARY = 3, /* a dense buffer that a loader would have allocated */
    LP_TENSOR_VALUE = 4,     /* the dense result of an expression */
    LP_TENSOR_BEGIN = 5      /* no tensor: the begin of a load, see lp_at_begin */
} lp_tensor_kind;

/* A view of a tensor. Plain data, passed by value; valid until the recorder's scope ends. Members are private: use
 * lp_size, lp_dim, lp_dtype_of. */
typedef struct lp_tensor {
    lp_recorder *recorder;
    uint32_t base;
    uint8_t kind;     /* lp_tensor_kind */
    uint8_t flags;    /* LP_PROV_* that a copy of it earns */
    uint16_t cast_to; /* lp_dtype of a cast that is not done yet, or 0 */
    lp_view view;
} lp_tensor;

/* ---- the recorder ------------------------------------------------------------------------------------------------ */

typedef struct lp_recorder_options {
    const char *loader;         /* for the trace header; NULL: "c" */
    const char *loader_version; /* NULL: "" */
    const char *configuration;  /* sorted "key=value" lines; NULL: "" */
    const char *target;         /* NULL: "" (any) */
    const lp_platform *platform;
} lp_recorder_options;

/* Begins recording the scope `scope` (sizes of 0 mean 1). The checkpoint must outlive the recorder. On failure *out is
 * NULL. */
LP_API lp_status lp_recorder_open(lp_recorder **out, const lp_checkpoint *checkpoint, const lp_scope *scope,
                                  lp_error *err);
LP_API lp_status lp_recorder_open_with(lp_recorder **out, const lp_checkpoint *checkpoint, const lp_scope *scope,
                                       const lp_recorder_options *options, lp_error *err);

/* Ends the scope and begins another rank of the same layout, in the same trace. Destinations are declared anew; tensors
 * and names of the scope before are no longer valid. Reports misuse of the scope that ends. */
LP_API lp_status lp_recorder_next_scope(lp_recorder *r, const lp_scope *scope, lp_error *err);

/* The scope, normalised. */
LP_API lp_scope lp_recorder_scope(const lp_recorder *r);

/* Ends recording. *out is the caller's (lp_trace_close). Reports misuse; then *out is NULL. After it, and after save,
 * only close may be called. */
LP_API lp_status lp_recorder_finish(lp_recorder *r, lp_trace **out, lp_error *err);

/* Finish, and write the trace to `path`, which must not exist unless save_over is used. Refusals are saved too: `check`
 * judges them. */
LP_API lp_status lp_recorder_save(lp_recorder *r, const char *path, lp_error *err);
LP_API lp_status lp_recorder_save_over(lp_recorder *r, const char *path, lp_error *err);

LP_API void lp_recorder_close(lp_recorder *r); /* NULL is allowed */

/* The first misuse so far, or LP_OK. */
LP_API lp_status lp_recorder_status(const lp_recorder *r, lp_error *err);

/* Reports a misuse of the loader's own, such as a shape that it cannot load. Keeps the first. (r, code, format, ...) */
#define lp_complain(...) lp_complain_at(LP_HERE, __VA_ARGS__)
LP_API void lp_complain_at(const char *file, int line, lp_recorder *r, lp_status code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A name made like printf's; memory of the recorder, valid until the scope ends. Never NULL ("" when out of memory,
 * which is kept as misuse). */
LP_API const char *lp_name(lp_recorder *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- checkpoint tensors ------------------------------------------------------------------------------------------ */

LP_API const lp_checkpoint *lp_recorder_checkpoint(const lp_recorder *r); /* the caller's, as it was opened with */
LP_API bool lp_has(const lp_recorder *r, const char *name); /* is there a checkpoint tensor of that name */

/* The checkpoint tensor `name`; unknown names are misuse, with the nearest name as hint. (r, name) */
#define lp_source(...) lp_source_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_source_at(const char *file, int line, lp_recorder *r, const char *name);
/* The same by catalogue index, without a lookup. (r, index) */
#define lp_source_index(...) lp_source_index_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_source_index_at(const char *file, int line, lp_recorder *r, int64_t index);

/* Says that the loader knows the family of `name` and loads none of it, on any rank; `check` then does not call it
 * unused. What a rank leaves out of a family that it loads needs no such word. Nothing when there is no such tensor. */
LP_API void lp_decline(lp_recorder *r, const char *name);

/* ---- destination tensors ----------------------------------------------------------------------------------------- */

/* Everything about a destination; zero members mean the defaults that are given. */
typedef struct lp_declaration {
    const char *name;
    lp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *stride; /* bytes, >= 0; NULL: row-major */
    const char *storage;   /* NULL: of its own. A name that several share; or the name of a destination to be tied to */
    int64_t offset;        /* of element [0, ..., 0] in the storage */
    int64_t storage_bytes; /* 0: just enough */
    const char *layout;    /* kernel layout id; NULL: "" */
    int32_t layout_version;
    const char *group;   /* commit group; NULL: the name up to its outermost index, else "root" */
    uint32_t flags;      /* LP_DEST_* */
    uint64_t dummy_bits; /* with LP_DEST_HAS_DUMMY */
    bool has_slots;      /* slot_dim counts expert slots */
    int32_t slot_dim;
} lp_declaration;

/* Declares a destination; the tensor is its whole view. Shapes and strings are copied. lp_declare: row-major, in a
 * storage of its own. (r, name, dtype, ndim, shape) and (r, &declaration) */
#define lp_declare(...)      lp_declare_at(LP_HERE, __VA_ARGS__)
#define lp_declare_with(...) lp_declare_with_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_declare_at(const char *file, int line, lp_recorder *r, const char *name, lp_dtype dtype, int ndim,
                               const int64_t *shape);
LP_API lp_tensor lp_declare_with_at(const char *file, int line, lp_recorder *r, const lp_declaration *d);

/* Declares `name` as another name of the destination `of`: same dtype, shape, strides and storage, marked as a tie.
 * (r, name, of) */
#define lp_declare_tied(...) lp_declare_tied_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_declare_tied_at(const char *file, int line, lp_recorder *r, const char *name, const char *of);

/* The destination `name`. (r, name) */
#define lp_dest(...) lp_dest_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_dest_at(const char *file, int line, lp_recorder *r, const char *name);
LP_API bool lp_has_dest(const lp_recorder *r, const char *name);

/* ---- asking ------------------------------------------------------------------------------------------------------ */

LP_API bool lp_is_valid(lp_tensor t);         /* false for the result of a misuse */
LP_API int lp_dim(lp_tensor t);               /* 0 when invalid */
LP_API int64_t lp_size(lp_tensor t, int dim); /* 1 when invalid or out of range, so that a loader may divide by it */
LP_API int64_t lp_count(lp_tensor t);         /* elements; 0 when invalid */
LP_API lp_dtype lp_dtype_of(lp_tensor t);     /* LP_DTYPE_NONE when invalid */

/* ---- views: no byte changes value, nothing is recorded ----------------------------------------------------------- */

/* Semantics are torch's; dimensions may be negative. Arguments: (t, ...) as in the functions below. */
#define lp_narrow(...)       lp_narrow_at(LP_HERE, __VA_ARGS__)
#define lp_select(...)       lp_select_at(LP_HERE, __VA_ARGS__)
#define lp_slice(...)        lp_slice_at(LP_HERE, __VA_ARGS__)
#define lp_split(...)        lp_split_at(LP_HERE, __VA_ARGS__)
#define lp_chunk(...)        lp_chunk_at(LP_HERE, __VA_ARGS__)
#define lp_unbind(...)       lp_select_at(LP_HERE, __VA_ARGS__) /* part `index` of unbind(dim) */
#define lp_reshape(...)      lp_reshape_at(LP_HERE, __VA_ARGS__)
#define lp_flatten(...)      lp_flatten_at(LP_HERE, __VA_ARGS__)
#define lp_unflatten(...)    lp_unflatten_at(LP_HERE, __VA_ARGS__)
#define lp_permute(...)      lp_permute_at(LP_HERE, __VA_ARGS__)
#define lp_transpose(...)    lp_transpose_at(LP_HERE, __VA_ARGS__)
#define lp_t(...)            lp_t_at(LP_HERE, __VA_ARGS__)
#define lp_reverse_dims(...) lp_reverse_dims_at(LP_HERE, __VA_ARGS__)
#define lp_movedim(...)      lp_movedim_at(LP_HERE, __VA_ARGS__)
#define lp_squeeze(...)      lp_squeeze_at(LP_HERE, __VA_ARGS__)
#define lp_squeeze_all(...)  lp_squeeze_all_at(LP_HERE, __VA_ARGS__)
#define lp_unsqueeze(...)    lp_unsqueeze_at(LP_HERE, __VA_ARGS__)
#define lp_expand(...)       lp_expand_at(LP_HERE, __VA_ARGS__)
#define lp_diagonal(...)     lp_diagonal_at(LP_HERE, __VA_ARGS__)
#define lp_as_strided(...)   lp_as_strided_at(LP_HERE, __VA_ARGS__)
#define lp_reinterpret(...)  lp_reinterpret_at(LP_HERE, __VA_ARGS__) /* torch's view(dtype) */
#define lp_with_view(...)    lp_with_view_at(LP_HERE, __VA_ARGS__)

/* The functions behind the macros: `file` and `line` are the place in the loader, and all arguments are copied. An
 * invalid tensor stays invalid; a view that does not exist is misuse. lp_split: parts of part_size elements, the last
 * one the rest; lp_chunk: of ceil(size / chunks). */
LP_API lp_tensor lp_narrow_at(const char *file, int line, lp_tensor t, int dim, int64_t start, int64_t length);
LP_API lp_tensor lp_select_at(const char *file, int line, lp_tensor t, int dim, int64_t index);
LP_API lp_tensor lp_slice_at(const char *file, int line, lp_tensor t, int dim, int64_t start, int64_t stop,
                             int64_t step);
LP_API lp_tensor lp_split_at(const char *file, int line, lp_tensor t, int dim, int64_t part_size, int64_t index);
LP_API lp_tensor lp_chunk_at(const char *file, int line, lp_tensor t, int dim, int64_t chunks, int64_t index);
/* A reshape that cuts across strides becomes a temporary and is reported as `materialises`. */
LP_API lp_tensor lp_reshape_at(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape);
LP_API lp_tensor lp_flatten_at(const char *file, int line, lp_tensor t, int first_dim, int last_dim);
LP_API lp_tensor lp_unflatten_at(const char *file, int line, lp_tensor t, int dim, int ndim, const int64_t *sizes);
LP_API lp_tensor lp_permute_at(const char *file, int line, lp_tensor t, int ndim, const int *dims);
LP_API lp_tensor lp_transpose_at(const char *file, int line, lp_tensor t, int a, int b);
LP_API lp_tensor lp_t_at(const char *file, int line, lp_tensor t);
LP_API lp_tensor lp_reverse_dims_at(const char *file, int line, lp_tensor t);
LP_API lp_tensor lp_movedim_at(const char *file, int line, lp_tensor t, int from, int to);
LP_API lp_tensor lp_squeeze_at(const char *file, int line, lp_tensor t, int dim);
LP_API lp_tensor lp_squeeze_all_at(const char *file, int line, lp_tensor t);
LP_API lp_tensor lp_unsqueeze_at(const char *file, int line, lp_tensor t, int dim);
LP_API lp_tensor lp_expand_at(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape);
LP_API lp_tensor lp_diagonal_at(const char *file, int line, lp_tensor t, int64_t offset, int dim1, int dim2);
LP_API lp_tensor lp_as_strided_at(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape,
                                  const int64_t *stride_elements, int64_t offset_elements);
LP_API lp_tensor lp_reinterpret_at(const char *file, int line, lp_tensor t, lp_dtype dtype);
/* The tensor seen through a view that was made by other means, such as a kernel layout's; bounds are checked when it is
 * copied. */
LP_API lp_tensor lp_with_view_at(const char *file, int line, lp_tensor t, const lp_view *view);

/* ---- writes ------------------------------------------------------------------------------------------------------ */

/* dst.copy_(src), src broadcast to dst's shape. dst: a destination or a temporary. A dtype that changes by this copy
 * alone is a cast and reported as `implicit_cast`; use lp_to to mean it. A computed src becomes a derive. Copying from
 * a destination copies what was written there so far. Returns dst. (dst, src) */
#define lp_copy(...) lp_copy_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_copy_at(const char *file, int line, lp_tensor dst, lp_tensor src);

/* dst.fill_(): `bits` is one element, little endian. `trigger` is a tensor of the checkpoint name whose arrival issues
 * the fill, or lp_at_begin(r). A fill of a checkpoint tensor (the loader zeroes its source) turns later copies of it
 * into fills that the name triggers; there `trigger` is ignored. Returns dst. (dst, bits, trigger) */
#define lp_fill(...) lp_fill_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_fill_at(const char *file, int line, lp_tensor dst, uint64_t bits, lp_tensor trigger);
LP_API lp_tensor lp_at_begin(lp_recorder *r);
LP_API uint64_t lp_bits_f32(float value); /* the bits of an F32 element */

/* t.zero_(). (dst, trigger) */
#define lp_zero(...) lp_zero_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_zero_at(const char *file, int line, lp_tensor dst, lp_tensor trigger);

/* ---- operations that only move bytes: followed through, reported as `materialises` ------------------------------- */

/* A temporary: torch's semantics, arguments as in the functions below. */
#define lp_clone(...)             lp_clone_at(LP_HERE, __VA_ARGS__)
#define lp_contiguous(...)        lp_contiguous_at(LP_HERE, __VA_ARGS__)
#define lp_cat(...)               lp_cat_at(LP_HERE, __VA_ARGS__)
#define lp_stack(...)             lp_stack_at(LP_HERE, __VA_ARGS__)
#define lp_index_select(...)      lp_index_select_at(LP_HERE, __VA_ARGS__)
#define lp_repeat_interleave(...) lp_repeat_interleave_at(LP_HERE, __VA_ARGS__)
#define lp_repeat(...)            lp_repeat_at(LP_HERE, __VA_ARGS__)
#define lp_empty(...)             lp_empty_at(LP_HERE, __VA_ARGS__)

/* Parts have one dtype, and one shape but for `dim` (cat) or altogether (stack); indices may repeat, and count from 0.
 */
LP_API lp_tensor lp_clone_at(const char *file, int line, lp_tensor t);
LP_API lp_tensor lp_contiguous_at(const char *file, int line, lp_tensor t); /* t itself when it is contiguous */
LP_API lp_tensor lp_cat_at(const char *file, int line, int count, const lp_tensor *parts, int dim);
LP_API lp_tensor lp_stack_at(const char *file, int line, int count, const lp_tensor *parts, int dim);
LP_API lp_tensor lp_index_select_at(const char *file, int line, lp_tensor t, int dim, int64_t count,
                                    const int64_t *index);
LP_API lp_tensor lp_repeat_interleave_at(const char *file, int line, lp_tensor t, int dim, int64_t times);
LP_API lp_tensor lp_repeat_at(const char *file, int line, lp_tensor t, int dim, int64_t times);
/* A temporary that copies may fill; bytes that nothing wrote must not be copied on. */
LP_API lp_tensor lp_empty_at(const char *file, int line, lp_recorder *r, lp_dtype dtype, int ndim,
                             const int64_t *shape);

/* t.to(dtype), meant: a cast record, or a cast in an expression. Equal-width integers are a reinterpretation. */
#define lp_to(...)     lp_to_at(LP_HERE, __VA_ARGS__)
#define lp_to_f32(...) lp_to_f32_at(LP_HERE, __VA_ARGS__)
LP_API lp_tensor lp_to_at(const char *file, int line, lp_tensor t, lp_dtype dtype);
LP_API lp_tensor lp_to_f32_at(const char *file, int line, lp_tensor t);

/* ---- value operations: expressions in IEEE single ---------------------------------------------------------------- */

/* Operands are destinations (regions fed by the checkpoint), checkpoint tensors (staged) and other values; other dtypes
 * are cast to F32. Operands of one element are broadcast, others must have equal shapes. Nothing runs until the result
 * is copied or derived. */
#define lp_max(...)        lp_unary_at(LP_HERE, LP_OP_MAX, __VA_ARGS__)
#define lp_min(...)        lp_unary_at(LP_HERE, LP_OP_MIN, __VA_ARGS__)
#define lp_sum(...)        lp_unary_at(LP_HERE, LP_OP_SUM, __VA_ARGS__)
#define lp_max_over(...)   lp_reduce_at(LP_HERE, LP_OP_MAX, __VA_ARGS__) /* (t, dim): dim disappears */
#define lp_min_over(...)   lp_reduce_at(LP_HERE, LP_OP_MIN, __VA_ARGS__)
#define lp_sum_over(...)   lp_reduce_at(LP_HERE, LP_OP_SUM, __VA_ARGS__)
#define lp_neg(...)        lp_unary_at(LP_HERE, LP_OP_NEG, __VA_ARGS__)
#define lp_reciprocal(...) lp_unary_at(LP_HERE, LP_OP_RECIPROCAL, __VA_ARGS__)
#define lp_sqrt(...)       lp_unary_at(LP_HERE, LP_OP_SQRT, __VA_ARGS__)
#define lp_abs(...)        lp_unary_at(LP_HERE, LP_OP_ABS, __VA_ARGS__)
#define lp_exp(...)        lp_unary_at(LP_HERE, LP_OP_EXP, __VA_ARGS__)
#define lp_log_of(...)     lp_unary_at(LP_HERE, LP_OP_LOG, __VA_ARGS__)
#define lp_plus(...)       lp_binary_at(LP_HERE, LP_OP_ADD, __VA_ARGS__)
#define lp_minus(...)      lp_binary_at(LP_HERE, LP_OP_SUB, __VA_ARGS__)
#define lp_times(...)      lp_binary_at(LP_HERE, LP_OP_MUL, __VA_ARGS__)
#define lp_divide(...)     lp_binary_at(LP_HERE, LP_OP_DIV, __VA_ARGS__)
#define lp_maximum(...)    lp_binary_at(LP_HERE, LP_OP_MAXIMUM, __VA_ARGS__)
#define lp_minimum(...)    lp_binary_at(LP_HERE, LP_OP_MINIMUM, __VA_ARGS__)
#define lp_greater(...)    lp_binary_at(LP_HERE, LP_OP_GREATER, __VA_ARGS__)
#define lp_equal(...)      lp_binary_at(LP_HERE, LP_OP_EQUAL, __VA_ARGS__)
#define lp_where(...)      lp_where_at(LP_HERE, __VA_ARGS__)
#define lp_or_if_zero(...) lp_or_if_zero_at(LP_HERE, __VA_ARGS__)

/* The functions behind the macros. lp_reduce_at: over one dimension; a reduction by lp_unary_at is over all. A constant
 * result of a comparison is 1.0 or 0.0. Invalid operands give an invalid result. */
LP_API lp_tensor lp_unary_at(const char *file, int line, lp_op op, lp_tensor t);
LP_API lp_tensor lp_reduce_at(const char *file, int line, lp_op op, lp_tensor t, int dim);
LP_API lp_tensor lp_binary_at(const char *file, int line, lp_op op, lp_tensor a, lp_tensor b);
LP_API lp_tensor lp_where_at(const char *file, int line, lp_tensor condition, lp_tensor yes, lp_tensor no);
LP_API lp_tensor lp_or_if_zero_at(const char *file, int line, lp_tensor t, float value); /* t == 0 ? value : t */
LP_API lp_tensor lp_constant(lp_recorder *r, float value);                               /* one F32 element */

/* dest becomes the value of `expression`, again on every load, once everything it reads is loaded. (r, dest,
 * expression) */
#define lp_derive(...) lp_derive_at(LP_HERE, __VA_ARGS__)
LP_API void lp_derive_at(const char *file, int line, lp_recorder *r, lp_tensor dest, lp_tensor expression);

/* A check on every load: |a - b| <= rtol (as F32) * |b| for every element, else the load fails with `text`, in which
 * {index} stands for the first element that fails. (r, a, b, rtol, text) */
#define lp_require_close(...) lp_require_close_at(LP_HERE, __VA_ARGS__)
LP_API void lp_require_close_at(const char *file, int line, lp_recorder *r, lp_tensor a, lp_tensor b, double rtol,
                                const char *text);

/* ---- refusals: a loader that looks at values --------------------------------------------------------------------- */

/* Each refuses the names that `t` reads and returns 0. (t) */
#define lp_max_value(...) lp_host_read_at(LP_HERE, "max", __VA_ARGS__)
#define lp_min_value(...) lp_host_read_at(LP_HERE, "min", __VA_ARGS__)
#define lp_sum_value(...) lp_host_read_at(LP_HERE, "sum", __VA_ARGS__)
#define lp_item(...)      lp_host_read_at(LP_HERE, "item", __VA_ARGS__)
LP_API double lp_host_read_at(const char *file, int line, const char *operation, lp_tensor t);

/* Any other operation that no view, copy or derive can say. (t, operation, reason) */
#define lp_refuse(...) lp_refuse_at(LP_HERE, __VA_ARGS__)
LP_API void lp_refuse_at(const char *file, int line, lp_tensor t, const char *operation, const char *reason);

/* ---- tensors whose geometry another framework keeps -------------------------------------------------------------- */

/*
 * PyTorch and its like compute views themselves. A mirror knows what each of the framework's storages holds; a tensor
 * is then the number of a storage with sizes and strides, and only what writes, moves or computes has to be told. The
 * Python package in recorder/torch is built on it.
 *
 * Misuse is not sticky here, because a framework's loader cannot be changed for one bad name: calls return LP_OK,
 * LP_E_REFUSED (the names concerned are fallbacks now), LP_E_UNSUPPORTED (refused, but no name is known that could fall
 * back; *err says why) or a real error such as LP_E_MEMORY. `file` must stay valid and be the same pointer for the same
 * file. A mirror must be closed before its recorder, and ends with the recorder's scope.
 */
typedef struct lp_mirror lp_mirror;

typedef struct lp_strided {
    int64_t storage;                  /* number that the mirror gave */
    int64_t dtype;                    /* lp_dtype of whole bytes */
    int64_t ndim;                     /* at most LP_VIEW_DIMS */
    int64_t offset;                   /* elements, from the storage's first byte */
    int64_t extent[2 * LP_VIEW_DIMS]; /* ndim sizes, then ndim strides in elements; no more is read */
} lp_strided;

/* A mirror of the scope that the recorder is at. NULL is allowed for lp_mirror_close. */
LP_API lp_status lp_mirror_open(lp_mirror **out, lp_recorder *r, lp_error *err);
LP_API void lp_mirror_close(lp_mirror *m);

/* New storages; the result is their number, or a negative lp_status. A source is the checkpoint tensor of that
 * catalogue index. A destination is declared: g->storage is the storage it lies in, or -1 for a storage of its own of
 * `storage_bytes`; flags are LP_DEST_*, group NULL the default. A temporary holds nothing yet. */
LP_API int64_t lp_mirror_source(lp_mirror *m, int64_t index);
LP_API int64_t lp_mirror_destination(lp_mirror *m, const char *name, const lp_strided *g, int64_t storage_bytes,
                                     uint32_t flags, const char *group, lp_error *err);
LP_API int64_t lp_mirror_temporary(lp_mirror *m, int64_t bytes);

/* Whether any byte that g spans comes from a load (always so for what is no destination). */
LP_API bool lp_mirror_is_loaded(const lp_mirror *m, const lp_strided *g);

/* dst.copy_(src). `meant`: a change of dtype was asked for, rather than done by the copy. */
LP_API lp_status lp_mirror_copy(lp_mirror *m, const char *file, int line, const lp_strided *dst, const lp_strided *src,
                                bool meant, lp_error *err);

/* The fresh temporary `dst` is src.to(dtype of dst). Done when it is used, so that a cast is one record. */
LP_API lp_status lp_mirror_cast(lp_mirror *m, const char *file, int line, const lp_strided *dst, const lp_strided *src,
                                lp_error *err);

/* Fills by one element, little endian; `trigger` is the catalogue index of the name that issues it, or -1. */
LP_API lp_status lp_mirror_fill(lp_mirror *m, const char *file, int line, const lp_strided *dst, uint64_t bits,
                                int64_t trigger, lp_error *err);

/* Element to[i] of dst becomes element from[i] of src, both counted in row-major order, for i < count, in this order.
 */
LP_API lp_status lp_mirror_move(lp_mirror *m, const char *file, int line, const lp_strided *dst, const lp_strided *src,
                                int64_t count, const int64_t *to, const int64_t *from, lp_error *err);

/* The fresh temporary `dst`, row-major, becomes `op` of `count` operands, one where arg[i] is NULL being constant[i].
 * Reductions are over the dimensions in the bits of `dims` (0: all). dst is F32, BF16 or F16; BOOL for the comparisons.
 */
LP_API lp_status lp_mirror_compute(lp_mirror *m, const char *file, int line, lp_op op, const lp_strided *dst, int count,
                                   const lp_strided *const *arg, const double *constant, uint32_t dims, lp_error *err);

/* Refuses the names that the operands read; `dst` (NULL: nowhere) holds their place. */
LP_API lp_status lp_mirror_refuse(lp_mirror *m, const char *file, int line, const lp_strided *dst, int count,
                                  const lp_strided *const *arg, const char *operation, const char *reason,
                                  lp_error *err);

/* A check on every load that |a - b| <= rtol * |b|, see lp_require_close. */
LP_API lp_status lp_mirror_require_close(lp_mirror *m, const char *file, int line, const lp_strided *a,
                                         const lp_strided *b, double rtol, const char *text, lp_error *err);

/* The destination `name` (declared before) is `src` now, in a new storage of its own, or in that of the destination
 * `with`, which is a tensor of the same storage: where it lies inside that one it is tied to it, and needs no second
 * copy. What it held is forgotten. */
LP_API lp_status lp_mirror_rebind(lp_mirror *m, const char *file, int line, const char *name, const lp_strided *src,
                                  const char *with, lp_error *err);

/* Says that no loader writes the destination `name`, if nothing did: nothing will wait for it. To be called before the
 * recorder ends. Returns whether it was so. */
LP_API bool lp_mirror_leave(lp_mirror *m, const char *name);

/* ---- built-in loaders -------------------------------------------------------------------------------------------- */

typedef struct lp_loader {
    const char *name;    /* "dense" */
    const char *version; /* part of the structure key */
    const char *summary; /* one line */
} lp_loader;

/* The loaders of this library, in order of their names. */
LP_API int lp_loader_count(void);
LP_API const lp_loader *lp_loader_at(int index);          /* NULL when out of range */
LP_API const lp_loader *lp_loader_find(const char *name); /* NULL when there is none */

/* What happens to checkpoint names that no rule takes. */
typedef enum lp_rest {
    LP_REST_ERROR = 0,  /* an error that names the first ones */
    LP_REST_COPY = 1,   /* a destination of the same name, dtype and shape, on every rank */
    LP_REST_DECLINE = 2 /* not loaded */
} lp_rest;

typedef struct lp_loader_options {
    const char *loader;   /* NULL or "auto": by the model's configuration */
    lp_scope layout;      /* sizes; its ranks are ignored */
    const int32_t *ranks; /* global ranks to record, ascending; NULL: all */
    int32_t rank_count;
    lp_rest rest;
    int32_t slots;      /* expert slots on a rank; 0: experts / EP size */
    const char *target; /* "sm90" or NULL */
    const char *config; /* text of config.json; NULL: read from the checkpoint's folder, or from the trace below */
    int64_t config_bytes;
    const lp_trace *base; /* a trace whose recorded configuration is taken when there is no config.json; or NULL */
    void (*progress)(void *context, int64_t done, int64_t total); /* ranks; may be NULL */
    void *progress_context;
    const lp_platform *platform;
} lp_loader_options;

/* Records a checkpoint with a built-in loader. *out is the caller's. */
LP_API lp_status lp_load_checkpoint(lp_trace **out, const lp_checkpoint *checkpoint, const lp_loader_options *options,
                                    lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
