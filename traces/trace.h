/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/trace.h: what a load plan and a checkpoint are.
 *
 * A trace says, for every checkpoint tensor name, which bytes go where. This header holds, from the bottom up:
 *
 *   errors and platform   lp_status, lp_error, lp_platform (files, memory, device: replaceable tables)
 *   dtypes and casts      lp_dtype, lp_cast_kind
 *   views                 lp_view: the geometry of torch-like views; no byte changes value
 *   byte maps             lp_map: the meaning of views + copy, in one canonical form
 *   checkpoints           lp_checkpoint: names, dtypes, shapes and places of the tensors of a safetensors checkpoint
 *   traces                lp_trace: destinations, records, derives and refusals of every scope (rank)
 *   judging               lp_check, lp_diff: findings under stable rule ids
 *
 * Conventions. Sizes, offsets and strides are bytes in int64_t unless a name says otherwise. Every fallible function
 * returns lp_status and fills a caller-owned lp_error (NULL is allowed; untouched on success). Handles are opaque and
 * come in open/close or new/free pairs; closing NULL is allowed. Objects may be read from several threads at once when
 * no thread changes them; functions that cache inside a handle say so. Nothing here prints, exits or reads the
 * environment.
 */
#ifndef LOADPLAN_TRACE_H
#define LOADPLAN_TRACE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LP_API __attribute__((visibility("default")))

/* Marks inline functions that host C and CUDA device code compile from one source. */
#ifdef __CUDACC__
#define LP_HOST_DEVICE __host__ __device__
#else
#define LP_HOST_DEVICE
#endif

#define LP_VERSION_MAJOR 0
#define LP_VERSION_MINOR 1
#define LP_VERSION_PATCH 0

/* Version of the library that is running, "0.1.0"; compare with the macros of the header that was compiled against. */
LP_API const char *lp_version(void);

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* Values are pinned and never renumbered; the gaps are for later members of a group. */
typedef enum lp_status {
    LP_OK = 0,
    /* the caller */
    LP_E_ARGUMENT = -1,    /* an argument is out of its documented range */
    LP_E_MISUSE = -2,      /* calls in a wrong order, a handle of another object */
    LP_E_UNSUPPORTED = -3, /* legal, but this build or version cannot do it */
    LP_E_LIMIT = -4,       /* a stated limit would be exceeded */
    LP_E_USAGE = -5,       /* a command line is wrong */
    /* data */
    LP_E_FORMAT = -20,  /* not a file of the expected kind */
    LP_E_CORRUPT = -21, /* of the expected kind, but its content contradicts itself */
    LP_E_VERSION = -22, /* written by a newer major version */
    LP_E_HOSTILE = -23, /* a limit against hostile input was hit */
    /* the environment */
    LP_E_IO = -40,
    LP_E_MEMORY = -41,
    LP_E_DEVICE = -42,
    LP_E_PEER = -43,
    LP_E_EXISTS = -44, /* the output exists and overwriting was not asked for */
    /* the plan and its session */
    LP_E_STALE = -60,        /* the trace was recorded for another checkpoint, loader or target */
    LP_E_MISMATCH = -61,     /* a destination or source is not what the plan says */
    LP_E_UNKNOWN_NAME = -62, /* a name that the plan does not have */
    LP_E_DUPLICATE = -63,    /* bytes that were pushed already */
    LP_E_INCOMPLETE = -64,   /* finish, with something missing */
    LP_E_POISONED = -65,     /* an earlier failure in the middle of a write */
    LP_E_REFUSED = -66,      /* the loader did something that is not views + copy */
    LP_E_VALUE = -67,        /* a declared check on loaded values failed */
    /* ours */
    LP_E_INTERNAL = -90
} lp_status;

/* Stable name of a status, such as "LP_E_STALE"; never NULL. */
LP_API const char *lp_status_name(lp_status status);

/* Short English for a status, such as "the trace is stale"; never NULL. */
LP_API const char *lp_strerror(lp_status status);

/* Where a failing call says what happened. Strings are complete, lower case, without full stop, and already sanitised:
 * control characters of names that came from files are escaped. */
typedef struct lp_error {
    lp_status code;
    char text[512];    /* one line: what failed first, then the object in single quotes */
    char subject[256]; /* the file or tensor that it is about, or "" */
    char hint[256];    /* what to try next, or "" */
    int64_t byte_off;  /* offset inside the subject where that is known, else -1 */
} lp_error;

/* ---- platform: files, memory, device ------------------------------------------------------------------------------
 */

typedef struct lp_file_stat {
    int64_t size_bytes, mtime_ns;
    uint64_t inode, device;
    bool is_regular, is_directory;
} lp_file_stat;

/* Files. Each call behaves like the POSIX call of its name but returns -errno instead of setting errno. Short reads and
 * writes are legal everywhere: callers loop. pread may be called by several threads at once. Replace the table to
 * inject faults or to serve files from elsewhere. */
typedef struct lp_io {
    size_t size; /* sizeof(lp_io) */
    void *context;
    int (*open)(void *context, const char *path, int flags, int mode);
    int (*close)(void *context, int fd);
    int64_t (*pread)(void *context, int fd, void *buffer, size_t bytes, int64_t off);
    int64_t (*pwrite)(void *context, int fd, const void *buffer, size_t bytes, int64_t off);
    int (*stat)(void *context, int fd, lp_file_stat *out);
    int (*fsync)(void *context, int fd);
    int (*rename)(void *context, const char *from, const char *to);
    int (*unlink)(void *context, const char *path);
} lp_io;

/* Memory. resize(NULL, n) allocates, resize(p, 0) frees and returns NULL; alignment is that of malloc. */
typedef struct lp_alloc {
    size_t size; /* sizeof(lp_alloc) */
    void *context;
    void *(*resize)(void *context, void *old, size_t bytes);
    bool exact; /* no pieces are cut from larger blocks: slower, but each of them can fail, and a checker sees its ends
                 */
} lp_alloc;

/* Device. The CPU build has none; a table given here runs plans on an accelerator. Streams and events are opaque. Calls
 * return 0 or a driver code, for which error_text has a sentence. */
typedef struct lp_device {
    size_t size; /* sizeof(lp_device) */
    void *context;
    int (*copy)(void *context, void *dst, const void *src, size_t bytes, void *stream);
    int (*launch)(void *context, const void *program, void *stream);
    int (*record)(void *context, void *event, void *stream);
    int (*wait)(void *context, void *event, void *stream);
    const char *(*error_text)(void *context, int code);
} lp_device;

enum { LP_LOG_ERROR = 0, LP_LOG_WARNING = 1, LP_LOG_INFO = 2, LP_LOG_DEBUG = 3 };

/* Zero members mean the defaults: the operating system's files, malloc, no device, no log. Whatever is opened with a
 * platform keeps a copy of this struct; the tables behind its pointers must outlive it. */
typedef struct lp_platform {
    const lp_io *io;
    const lp_alloc *alloc;
    const lp_device *device;
    void (*log)(void *context, int level, const char *module, const char *line);
    void *log_context;
} lp_platform;

/* The default tables, to be wrapped by tables that inject faults. */
LP_API const lp_io *lp_io_default(void);
LP_API const lp_alloc *lp_alloc_default(void);

/* ---- dtypes ------------------------------------------------------------------------------------------------------ */

/* The 22 dtypes of safetensors, in its order. Values are pinned: they stand in trace files. */
typedef enum lp_dtype {
    LP_DTYPE_NONE = 0,
    LP_BOOL = 1,
    LP_F4 = 2,      /* 4 bits, E2M1 */
    LP_F6_E2M3 = 3, /* 6 bits */
    LP_F6_E3M2 = 4, /* 6 bits */
    LP_U8 = 5,
    LP_I8 = 6,
    LP_F8_E5M2 = 7,
    LP_F8_E4M3 = 8,
    LP_F8_E8M0 = 9,
    LP_F8_E4M3FNUZ = 10,
    LP_F8_E5M2FNUZ = 11,
    LP_I16 = 12,
    LP_U16 = 13,
    LP_F16 = 14,
    LP_BF16 = 15,
    LP_I32 = 16,
    LP_U32 = 17,
    LP_F32 = 18,
    LP_C64 = 19, /* 64 bits: two F32 */
    LP_F64 = 20,
    LP_I64 = 21,
    LP_U64 = 22,
    LP_DTYPE_COUNT = 23
} lp_dtype;

LP_API const char *lp_dtype_name(lp_dtype dtype); /* "BF16"; "?" when out of range */
LP_API lp_dtype lp_dtype_parse(const char *text,
                               size_t text_bytes); /* exact, case-sensitive; LP_DTYPE_NONE if unknown */
LP_API int lp_dtype_bits(lp_dtype dtype);          /* 4, 6, 8, 16, 32 or 64; 0 when out of range */

/* What a copy between two dtypes does to bytes. */
typedef enum lp_cast_kind {
    LP_CAST_BYTES = 0,      /* nothing: same dtype, or integers of equal width */
    LP_CAST_VALUES = 1,     /* a pair of the cast table, docs/casts.md */
    LP_CAST_UNSUPPORTED = 2 /* a refusal */
} lp_cast_kind;

/* What a change of dtype is; LP_CAST_UNSUPPORTED for a dtype that does not exist, too. */
LP_API lp_cast_kind lp_cast_kind_of(lp_dtype from, lp_dtype to);

/* Casts `count` elements, both sides dense (stride = element size), the buffers must not overlap. Round to nearest
 * even; NaN and overflow results are those of docs/casts.md (torch's). LP_E_UNSUPPORTED when the pair is not in the
 * table. */
LP_API lp_status lp_cast_elements(lp_dtype from, const void *src, lp_dtype to, void *dst, int64_t count);

/* ---- views ------------------------------------------------------------------------------------------------------- */

enum { LP_VIEW_DIMS = 16, LP_VIEW_MODES = 32 };

/* One step of an address: `extent` steps of `stride_bits`. */
typedef struct lp_view_mode {
    int64_t extent, stride_bits;
} lp_view_mode;

/*
 * A view of a tensor: an offset and logical dimensions, each a list of modes, outermost first. A permuted tensor that
 * is reshaped stays a view (a dimension of two modes), where torch would copy. Strides are kept in bits so that F4 and
 * F6 obey the same algebra; whole bytes are demanded where a view meets a byte map. Plain data: copy freely, no
 * ownership. A dimension of extent 1 has no mode. Any extent 0 makes the view empty.
 */
typedef struct lp_view {
    lp_dtype dtype;
    int8_t ndim;
    int8_t nmode;
    int8_t first[LP_VIEW_DIMS + 1]; /* dimension d owns modes first[d] .. first[d + 1] - 1; first[ndim] == nmode */
    int64_t offset_bits;            /* of element [0, ..., 0], from the tensor's first byte */
    int64_t size[LP_VIEW_DIMS];     /* logical extents, elements */
    lp_view_mode mode[LP_VIEW_MODES];
} lp_view;

/* Row-major view of a whole tensor of `ndim` dimensions. LP_E_LIMIT: more than LP_VIEW_DIMS dimensions, or a size whose
 * bits do not fit int64. */
LP_API lp_status lp_view_contiguous(lp_view *out, lp_dtype dtype, int ndim, const int64_t *shape, lp_error *err);

/* The same with strides and offset in bytes (dtypes of whole bytes only). Strides may be zero or negative. */
LP_API lp_status lp_view_strided(lp_view *out, lp_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride,
                                 int64_t offset, lp_error *err);

LP_API int64_t lp_view_count(const lp_view *v);      /* logical elements */
LP_API bool lp_view_is_empty(const lp_view *v);      /* some dimension is 0 */
LP_API bool lp_view_is_contiguous(const lp_view *v); /* row-major without gaps, in torch's sense */

/* View operations: in place on *v, which is unchanged on failure. Dimensions may be negative, as in torch; starts may
 * be negative where torch allows it. All are O(modes). Semantics are torch's unless said otherwise. */
LP_API lp_status lp_view_narrow(lp_view *v, int dim, int64_t start, int64_t length, lp_error *err);
LP_API lp_status lp_view_select(lp_view *v, int dim, int64_t index, lp_error *err);
/* numpy's slice: step of any sign but 0; bounds are clipped as Python's slice.indices does; use LP_SLICE_END for an
 * omitted bound. */
#define LP_SLICE_END INT64_MIN
LP_API lp_status lp_view_slice(lp_view *v, int dim, int64_t start, int64_t stop, int64_t step, lp_error *err);
LP_API lp_status lp_view_split(lp_view *v, int dim, int64_t part_size, int64_t index,
                               lp_error *err); /* part `index` of torch.split */
LP_API lp_status lp_view_chunk(lp_view *v, int dim, int64_t chunks, int64_t index,
                               lp_error *err); /* part `index` of torch.chunk */
LP_API lp_status lp_view_reshape(lp_view *v, int ndim, const int64_t *shape, lp_error *err); /* one extent may be -1 */
LP_API lp_status lp_view_flatten(lp_view *v, int first_dim, int last_dim, lp_error *err);
LP_API lp_status lp_view_unflatten(lp_view *v, int dim, int ndim, const int64_t *sizes, lp_error *err);
LP_API lp_status lp_view_permute(lp_view *v, int ndim, const int *dims, lp_error *err);
LP_API lp_status lp_view_transpose(lp_view *v, int a, int b, lp_error *err);
LP_API lp_status lp_view_t(lp_view *v, lp_error *err);            /* at most two dimensions */
LP_API lp_status lp_view_reverse_dims(lp_view *v, lp_error *err); /* torch's .T, any rank */
LP_API lp_status lp_view_movedim(lp_view *v, int from, int to, lp_error *err);
LP_API lp_status lp_view_squeeze(lp_view *v, int dim, lp_error *err); /* a dimension of extent 1, else nothing */
LP_API lp_status lp_view_squeeze_all(lp_view *v, lp_error *err);
LP_API lp_status lp_view_unsqueeze(lp_view *v, int dim, lp_error *err);
LP_API lp_status lp_view_expand(lp_view *v, int ndim, const int64_t *shape, lp_error *err); /* -1 keeps an extent */
LP_API lp_status lp_view_diagonal(lp_view *v, int64_t offset, int dim1, int dim2, lp_error *err);
/* Strides and offset in elements of v's dtype over the tensor that v is a view of, as in torch; bounds are the caller's
 * affair until a map is made, which checks them against the tensor's bytes. */
LP_API lp_status lp_view_as_strided(lp_view *v, int ndim, const int64_t *shape, const int64_t *stride_elements,
                                    int64_t offset_elements, lp_error *err);
/* view(dtype): a wider dtype needs the innermost dimension contiguous and divisible, and aligned strides and offset. */
LP_API lp_status lp_view_dtype(lp_view *v, lp_dtype dtype, lp_error *err);

/* lp_view_reshape returns LP_E_UNSUPPORTED when the new shape cuts across strides, and err->text names the dimension
 * that cuts. Then the reshaped tensor is still a byte map of several boxes: compose the map of the old view with a
 * contiguous view of the new shape (lp_map_compose), as the recorder does. */

/* ---- byte maps --------------------------------------------------------------------------------------------------- */

enum { LP_MAP_BOXES_MAX = 65536 };

typedef struct lp_mode {
    int64_t extent, src_stride, dst_stride; /* extent >= 2; dst_stride > 0; strides in bytes */
} lp_mode;

/*
 * run elements in a row, repeated by every combination of the modes (outermost first). Element i of a run lies at
 * dst_off + i * dst_elem and comes from src_off + i * src_elem. Boxes of a map are nested: each mode's dst_stride is at
 * least the span of everything inside it, so that iteration order is the order of destination addresses.
 */
typedef struct lp_box {
    int64_t src_off, dst_off, run;
    int32_t rank;
    const lp_mode *mode;
} lp_box;

/*
 * A byte map in canonical form: the boxes in order of destination address, disjoint in the destination. Immutable.
 *   copy, replicate   src_elem == dst_elem == 1: elements are absorbed, runs are bytes
 *   cast              element sizes of the two dtypes
 *   fill              src_elem == 0, all source strides and offsets 0; dst_elem is the pattern's size (1, 2, 4 or 8)
 * Equal byte functions have equal forms (docs/canonical-form.md states the work bound and proves it).
 */
typedef struct lp_map {
    int32_t src_elem, dst_elem;
    int32_t nbox;
    int32_t nmode; /* over all boxes */
    const lp_box *box;
    int64_t dst_bytes;      /* bytes written */
    int64_t src_lo, src_hi; /* source bytes touched lie in [src_lo, src_hi); both 0 when empty */
    int64_t dst_lo, dst_hi;
} lp_map;

/* Maps are allocated from `alloc` (NULL: malloc) in one block and freed with lp_map_free by the same allocator. */
LP_API void lp_map_free(const lp_map *map, const lp_alloc *alloc);

/* dst.copy_(src): broadcasts src to dst's shape. Equal-width byte-preserving dtypes give a byte map, others a cast map.
 * src_bytes and dst_bytes are the sizes of the two tensors' memory: every touched byte must lie inside (LP_E_ARGUMENT).
 * LP_E_UNSUPPORTED: no such cast; rows that are not whole bytes; a destination that writes one byte twice.
 * LP_E_LIMIT: more than LP_MAP_BOXES_MAX boxes. */
LP_API lp_status lp_map_copy(const lp_map **out, const lp_view *dst, int64_t dst_bytes, const lp_view *src,
                             int64_t src_bytes, const lp_alloc *alloc, lp_error *err);

/* dst.fill_(pattern): `pattern_bytes` (1, 2, 4, 8; dst's element size) low bytes of `pattern`, little endian. The
 * pattern is reduced to its shortest period: *reduced gets its value; the map's dst_elem its size. */
LP_API lp_status lp_map_fill(const lp_map **out, uint64_t *reduced, const lp_view *dst, int64_t dst_bytes,
                             uint64_t pattern, int pattern_bytes, const lp_alloc *alloc, lp_error *err);

/* Canonical map of given boxes (any order, modes in any order, extents >= 0, strides of any sign): the entry for files
 * and for algebra. Validates everything that the type promises; overlap of destinations is LP_E_ARGUMENT. */
LP_API lp_status lp_map_from_boxes(const lp_map **out, int32_t src_elem, int32_t dst_elem, int32_t nbox,
                                   const lp_box *box, const lp_alloc *alloc, lp_error *err);

/* outer after inner: inner maps A to B, outer maps B to C; the result maps A to C. Bytes of B that inner does not write
 * must not be read by outer (LP_E_ARGUMENT). At most one of the two may be a cast. */
LP_API lp_status lp_map_compose(const lp_map **out, const lp_map *outer, const lp_map *inner, const lp_alloc *alloc,
                                lp_error *err);

/* Exchanges source and destination. LP_E_UNSUPPORTED for fills, casts and maps that read a byte twice. */
LP_API lp_status lp_map_inverse(const lp_map **out, const lp_map *map, const lp_alloc *alloc, lp_error *err);

/* The part of `map` whose destination bytes `cut` (shifted by cut_shift in the destination) does not write. *out may
 * have no boxes. */
LP_API lp_status lp_map_subtract(const lp_map **out, const lp_map *map, const lp_map *cut, int64_t cut_shift,
                                 const lp_alloc *alloc, lp_error *err);

/* The part of `map` whose destination bytes lie in those of `with` (shifted likewise). */
LP_API lp_status lp_map_intersect(const lp_map **out, const lp_map *map, const lp_map *with, int64_t with_shift,
                                  const lp_alloc *alloc, lp_error *err);

/* The part of a byte map whose source bytes lie in [lo, hi). */
LP_API lp_status lp_map_source_range(const lp_map **out, const lp_map *map, int64_t lo, int64_t hi,
                                     const lp_alloc *alloc, lp_error *err);

/* Same boxes, offsets moved. */
LP_API lp_status lp_map_shift(const lp_map **out, const lp_map *map, int64_t src_shift, int64_t dst_shift,
                              const lp_alloc *alloc, lp_error *err);

LP_API bool lp_map_equal(const lp_map *a, const lp_map *b); /* same canonical form */

/* SHA-256 over the canonical form: element sizes, boxes, offsets, as little-endian int64. */
LP_API void lp_map_digest(const lp_map *map, uint8_t digest[32]);

/* Calls `run` for every innermost run in destination order: `count` elements, dst_off and src_off in bytes. Stops at
 * the first non-zero result and returns it. */
LP_API int lp_map_walk(const lp_map *map, int (*run)(void *context, int64_t dst_off, int64_t src_off, int64_t count),
                       void *context);

/* One line such as "[0+ (12:s1024,d2048) run 512]"; always terminated; returns the length that the whole text has. */
LP_API size_t lp_map_text(const lp_map *map, char *buffer, size_t buffer_bytes);

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

typedef struct lp_checkpoint lp_checkpoint;

typedef struct lp_checkpoint_tensor {
    const char *name; /* UTF-8 without NUL; lives as long as the checkpoint */
    lp_dtype dtype;
    int32_t ndim;
    const int64_t *shape; /* an extent beyond int64, legal where there are no bytes, is given as INT64_MAX */
    int32_t file;         /* index for lp_checkpoint_file; -1 in a catalogue without files */
    int64_t file_off;     /* absolute offset of the first payload byte in that file; -1 when unknown */
    int64_t bytes;
} lp_checkpoint_tensor;

typedef struct lp_checkpoint_file {
    const char *path;   /* as opened; relative to the checkpoint folder in a trace; no ".." */
    int64_t size_bytes; /* -1 when unknown */
    int64_t mtime_ns;   /* local identity; 0 when unknown */
    uint64_t inode;
    const char *sha256; /* 64 hex digits where the Hugging Face cache names the blob so, else NULL */
} lp_checkpoint_file;

/* Opens a safetensors file, an index (*.index.json), a folder, a header bundle or a trace (these two: no files). Reads
 * headers only. Verdicts on safetensors files are those of the reference reader, stricter where docs/checkpoints.md
 * says so. The index is the authority: files that it does not list are not opened. */
LP_API lp_status lp_checkpoint_open(lp_checkpoint **out, const char *path, lp_error *err);
LP_API lp_status lp_checkpoint_open_with(lp_checkpoint **out, const char *path, const lp_platform *platform,
                                         lp_error *err);
LP_API void lp_checkpoint_close(lp_checkpoint *checkpoint);

/* Builds a catalogue by hand (trace reader, tests): add tensors in any order, then seal. Duplicate names fail in seal.
 * What a file could have caused (a bad name, dtype, shape or range) is LP_E_CORRUPT. */
LP_API lp_status lp_checkpoint_new(lp_checkpoint **out, const lp_platform *platform, lp_error *err);
LP_API lp_status lp_checkpoint_add_file(lp_checkpoint *c, const lp_checkpoint_file *file,
                                        lp_error *err); /* strings are copied */
LP_API lp_status lp_checkpoint_add(lp_checkpoint *c, const lp_checkpoint_tensor *tensor,
                                   lp_error *err); /* likewise; bytes is computed */
LP_API lp_status lp_checkpoint_seal(lp_checkpoint *c, lp_error *err);

/* Tensors are numbered 0 .. count-1 in order of their names (bytes, as memcmp). */
LP_API int64_t lp_checkpoint_count(const lp_checkpoint *c);
LP_API const lp_checkpoint_tensor *lp_checkpoint_at(const lp_checkpoint *c, int64_t index);
/* Index, or -1; O(1). The first call builds a table inside the handle, with its allocator; several threads may look
 * names up at once, also the first time. */
LP_API int64_t lp_checkpoint_find(const lp_checkpoint *c, const char *name);
LP_API int32_t lp_checkpoint_file_count(const lp_checkpoint *c);
LP_API const lp_checkpoint_file *lp_checkpoint_file_at(const lp_checkpoint *c, int32_t index);
LP_API const char *lp_checkpoint_folder(const lp_checkpoint *c); /* where config.json would be; "" when there is none */
LP_API int64_t lp_checkpoint_bytes(const lp_checkpoint *c);      /* payload bytes of all tensors */

/* Header bundles hold the headers of all shards and config.json in one small file, for machines without the payload.
 * lp_checkpoint_open takes them like a folder; the catalogue then has no files. Saving needs a checkpoint that was
 * opened from its files; an existing `path` is LP_E_EXISTS unless `overwrite`. */
LP_API lp_status lp_checkpoint_save_headers(const lp_checkpoint *c, const char *path, bool overwrite, lp_error *err);
/* The config.json that a header bundle carries, "" where it carries none; NULL for what is no bundle. */
LP_API const char *lp_checkpoint_config(const lp_checkpoint *c);

/* A safetensors header may hold names with a NUL, which no trace can record. The catalogue lists such a name with the
 * bytes C0 80 in place of the NUL (valid UTF-8 never holds them, so it is no other tensor's name). This gives the first
 * one, or NULL when every name can be recorded. */
LP_API const char *lp_checkpoint_unusable_name(const lp_checkpoint *c);

/* The `__metadata__` pairs of its safetensors files, in the order of files and keys. Returns the key, or NULL when the
 * index is out of range. */
LP_API int64_t lp_checkpoint_metadata_count(const lp_checkpoint *c);
LP_API const char *lp_checkpoint_metadata_at(const lp_checkpoint *c, int64_t index, const char **value);

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

/* One rank of a parallel layout. Sizes of 0 mean 1. Global rank = (pp_rank * dp + dp_rank) * tp + tp_rank. Without
 * expert_parallel experts are split like everything else, by tp; with it whole experts are split over dp x tp
 * flattened. */
typedef struct lp_scope {
    int32_t pp, pp_rank, dp, dp_rank, tp, tp_rank;
    bool expert_parallel;
} lp_scope;

LP_API lp_status lp_scope_normalise(lp_scope *scope, lp_error *err); /* sizes of 0 become 1; ranks are checked */
LP_API int32_t lp_scope_rank(const lp_scope *scope);                 /* global rank of a normalised scope */
LP_API int32_t lp_scope_world(const lp_scope *scope);                /* pp * dp * tp */
LP_API int32_t lp_scope_experts_size(const lp_scope *scope);         /* EP size: dp * tp, or 1 */
LP_API int32_t lp_scope_experts_rank(const lp_scope *scope);         /* EP rank: dp_rank * tp + tp_rank, or 0 */

/* ---- what a scope holds ------------------------------------------------------------------------------------------ */

enum {
    LP_DEST_NO_LOADER = 1, /* loader_bytes = 0: no record may write it, nothing waits for it (scratch, caches) */
    LP_DEST_TIED = 2,      /* shares its storage with another destination on purpose */
    LP_DEST_HAS_DUMMY = 4, /* dummy_bits is its value in a dummy load */
    LP_DEST_BUFFER = 8     /* a buffer or plain attribute rather than a parameter */
};

typedef struct lp_destination {
    const char *name;
    lp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *stride; /* bytes, >= 0 */
    const char *storage;   /* name of the storage; the destination's own name unless it is shared */
    int64_t storage_bytes;
    int64_t offset;     /* of element [0, ..., 0] in the storage */
    const char *layout; /* kernel layout id such as "nvfp4_l1_scale", or "" */
    int32_t layout_version;
    const char *group;   /* commit group, such as "layers.12" or "root" */
    uint32_t flags;      /* LP_DEST_* */
    uint64_t dummy_bits; /* one element, little endian */
    int32_t slot_dim;    /* logical dimension that counts expert slots, or -1 */
    int32_t slot_count;  /* its extent; 0: no expert slots */
} lp_destination;

typedef enum lp_kind { LP_KIND_COPY = 1, LP_KIND_CAST = 2, LP_KIND_REPLICATE = 3, LP_KIND_FILL = 4 } lp_kind;

LP_API const char *lp_kind_name(lp_kind kind); /* "copy"; "?" for no kind */

#define LP_NAME_BEGIN UINT32_MAX /* a fill that is issued when the session begins */
#define LP_NONE       UINT32_MAX

/* One entry of a trace. Offsets in `map` are relative: add src_off to its sources (from the tensor's first payload
 * byte) and dst_off to its destinations (from the address of the destination's element [0, ..., 0]). The first box of a
 * map lies at (0, 0), so that experts share one map. */
typedef struct lp_record {
    uint32_t name;                /* index in the catalogue; for fills the name that triggers it, or LP_NAME_BEGIN */
    uint32_t dest;                /* index in the scope's destinations */
    uint8_t kind;                 /* lp_kind: follows from the map and the dtypes, see lp_record_kind */
    uint8_t src_dtype, dst_dtype; /* of a cast; 0 otherwise */
    uint8_t reserved;
    uint32_t seq; /* > 0 where records of different names overlap: apply in rising order, equal ones in any; else 0 */
    int64_t src_off, dst_off;
    uint64_t fill_bits;  /* of a fill: map->dst_elem low bytes */
    const lp_map *map;   /* shared, owned by the trace */
    uint32_t provenance; /* index for lp_trace_provenance, or LP_NONE */
} lp_record;

/* The kind that a map has: fill when src_elem is 0, cast when element sizes or dtypes say so, replicate when a source
 * stride is 0 or bytes are read twice within one run, else copy. */
LP_API lp_kind lp_record_kind(const lp_map *map, lp_dtype src_dtype, lp_dtype dst_dtype);

/* ---- derives: declared post-load processing ---------------------------------------------------------------------- */

/* An open, numbered table; docs/derives.md gives each operation's arithmetic. Values are IEEE single unless a cast says
 * otherwise, element by element in row-major order; an operand of one element is broadcast. */
typedef enum lp_op {
    LP_OP_NONE = 0,
    LP_OP_INPUT = 1, /* input number arg[0], as its dtype */
    LP_OP_CONST = 2, /* one element of `dtype`: bits */
    LP_OP_CAST = 3,  /* arg[0] to `dtype`, by the cast table */
    /* reductions of arg[0] over groups of `bits` consecutive elements (0: all), fixed tree: see docs/derives.md */
    LP_OP_MAX = 16,
    LP_OP_MIN = 17,
    LP_OP_SUM = 18,
    /* exact, elementwise */
    LP_OP_ADD = 32,
    LP_OP_SUB = 33,
    LP_OP_MUL = 34,
    LP_OP_DIV = 35,
    LP_OP_NEG = 36,
    LP_OP_RECIPROCAL = 37,
    LP_OP_SQRT = 38,
    LP_OP_MAXIMUM = 39,
    LP_OP_MINIMUM = 40,
    LP_OP_ABS = 41,
    LP_OP_WHERE = 42,      /* arg[0] != 0 ? arg[1] : arg[2] */
    LP_OP_OR_IF_ZERO = 43, /* arg[0] == 0 ? arg[1] : arg[0] */
    LP_OP_GREATER = 44,    /* 1.0 or 0.0 */
    LP_OP_EQUAL = 45,
    /* own class: one routine of ours on host and device, within stated ulps of the engine's */
    LP_OP_EXP = 96,
    LP_OP_LOG = 97,
    /* checks: no output; the derive fails with its error text */
    LP_OP_ALL_CLOSE = 112 /* |arg[0] - arg[1]| <= value(bits as F32) * |arg[1]| for every element, NaN fails */
} lp_op;

LP_API const char *lp_op_name(lp_op op); /* as in docs/derives.md; "?" when unknown */
LP_API int lp_op_arity(lp_op op);        /* operands, -1 when unknown */
LP_API bool lp_op_is_own(lp_op op);      /* of the own class */

typedef struct lp_node {
    uint16_t op;     /* lp_op */
    uint16_t dtype;  /* lp_dtype of the value */
    uint32_t arg[3]; /* earlier nodes (or an input number) */
    uint64_t bits;
    int64_t count; /* elements of the value */
} lp_node;

/* Where a derive reads: a region of a destination, or a staged view of a checkpoint tensor. `map` gathers it into a
 * dense row-major array of dtype: its destination offsets are those of the array. */
typedef struct lp_derive_input {
    bool staged;    /* source is a checkpoint tensor */
    uint32_t index; /* checkpoint name or destination */
    lp_dtype dtype;
    int64_t count;
    const lp_map *map; /* absolute offsets inside the tensor, see lp_record for the origin */
} lp_derive_input;

typedef struct lp_derive {
    uint32_t dest; /* destination that is written, or LP_NONE for a check */
    uint32_t nnode, ninput;
    const lp_node *node; /* the last one is the result */
    const lp_derive_input *input;
    const lp_map *map;      /* from the dense result to the destination; NULL for a check */
    const char *error_text; /* of a check; "{index}" stands for the failing element; else "" */
    uint32_t provenance;
} lp_derive;

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

typedef struct lp_refusal {
    uint32_t name;         /* the fallback */
    uint32_t dest;         /* destination where known, else LP_NONE */
    const lp_map *map;     /* destination region where known (a fill map, absolute), else NULL: the whole destination */
    const char *operation; /* "aten.max" */
    const char *reason;    /* "reads a value on the host" */
    uint32_t provenance;
} lp_refusal;

/* ---- provenance: outside every digest ---------------------------------------------------------------------------- */

enum { LP_PROV_MATERIALISES = 1, LP_PROV_IMPLICIT_CAST = 2 };

typedef struct lp_provenance {
    const char *file;  /* of the loader, or "" */
    int32_t line;      /* 0 when unknown */
    const char *chain; /* operations, such as "narrow(0,0,16).t()", or "" */
    uint32_t flags;    /* LP_PROV_* */
} lp_provenance;

/* ---- traces ------------------------------------------------------------------------------------------------------ */

typedef struct lp_trace lp_trace;

/* What a trace was recorded for; all strings "" when unknown. Part of the structure key, except where noted. */
typedef struct lp_trace_header {
    const char *loader; /* "dense", "megamoe", "torch:vllm" ... */
    const char *loader_version;
    const char *configuration; /* sorted "key=value" lines */
    const char *target;        /* "sm90" or "" for any */
    lp_scope layout;           /* sizes; ranks are 0 */
} lp_trace_header;

/* The expanded rows of one scope, in canonical order: destinations by name, records by (name, dest, dst_off), derives
 * by (dest name, content), refusals by name. Owned by the trace. */
typedef struct lp_rows {
    lp_scope scope;
    uint32_t ndest, nrecord, nderive, nrefusal;
    const lp_destination *dest;
    const lp_record *record;
    const lp_derive *derive;
    const lp_refusal *refusal;
    uint8_t digest[32]; /* plan digest, computed from these very rows */
} lp_rows;

/* Building. A builder takes the rows of one scope after the other; lp_trace_seal makes them canonical: sorts, trims
 * what a later write of the same name covers, numbers overlaps between names, checks ranges, computes digests. Strings
 * and maps are copied. The checkpoint is copied too (catalogue only). */
LP_API lp_status lp_trace_new(lp_trace **out, const lp_checkpoint *checkpoint, const lp_trace_header *header,
                              const lp_platform *platform, lp_error *err);
LP_API lp_status lp_trace_begin_scope(lp_trace *t, const lp_scope *scope, lp_error *err);
LP_API lp_status lp_trace_add_destination(lp_trace *t, const lp_destination *dest, uint32_t *index, lp_error *err);
/* `map` has absolute offsets here; src_off, dst_off, kind and seq of the record are ignored and computed. Order of
 * calls is the order of writes. Takes the index that lp_trace_add_destination gave. */
LP_API lp_status lp_trace_add_record(lp_trace *t, const lp_record *record, lp_error *err);
LP_API lp_status lp_trace_add_derive(lp_trace *t, const lp_derive *derive, lp_error *err);
LP_API lp_status lp_trace_add_refusal(lp_trace *t, const lp_refusal *refusal, lp_error *err);
LP_API lp_status lp_trace_add_provenance(lp_trace *t, const lp_provenance *provenance, uint32_t *index,
                                         lp_error *err); /* equal ones share an index */
/* Says that the loader leaves the family of `name` alone on purpose: check then does not call it unused. Kept as a line
 * "decline=FAMILY" of the configuration; before lp_trace_seal. */
LP_API lp_status lp_trace_decline(lp_trace *t, const char *name, lp_error *err);
LP_API lp_status lp_trace_seal(lp_trace *t, lp_error *err);

/* Joins `count` traces of some ranks each into a sealed one of all their ranks; parts stay the caller's, with their
 * rows expanded. They must hold different ranks and agree on loader, version, target, sizes of the layout and
 * configuration (LP_E_MISMATCH), and on names, dtypes and shapes of the checkpoint (LP_E_STALE). Declined families are
 * united; the files of the checkpoint are those of the first part. Plan digests stay what they were. On failure
 * *culprit, unless it is NULL, is the part that the error is about, or -1. */
LP_API lp_status lp_trace_join(lp_trace **out, const lp_trace *const *part, int32_t count, int32_t *culprit,
                               const lp_platform *platform, lp_error *err);

/* Files. Saving writes X.partial, fsyncs and renames; an existing file is LP_E_EXISTS unless `overwrite`. Opening is
 * safe on hostile files. */
LP_API lp_status lp_trace_save(const lp_trace *t, const char *path, bool overwrite, lp_error *err);
LP_API lp_status lp_trace_open(lp_trace **out, const char *path, lp_error *err);
LP_API lp_status lp_trace_open_with(lp_trace **out, const char *path, const lp_platform *platform, lp_error *err);
LP_API void lp_trace_close(lp_trace *t);

/* What a trace holds; all of it lives as long as the trace. NULL: no such scope. */
LP_API const lp_trace_header *lp_trace_header_of(const lp_trace *t);
LP_API const lp_checkpoint *lp_trace_checkpoint(const lp_trace *t);
LP_API int32_t lp_trace_scope_count(const lp_trace *t);
LP_API const lp_scope *lp_trace_scope_at(const lp_trace *t, int32_t index);
LP_API int32_t lp_trace_scope_find(const lp_trace *t, int32_t global_rank); /* index, or -1 */
/* Rows of a scope; an opened trace expands them at the first call and keeps them (not thread-safe until then). The plan
 * digest is recomputed and compared with the stored one: LP_E_CORRUPT when they differ. */
LP_API lp_status lp_trace_rows(const lp_trace *t, int32_t scope_index, const lp_rows **out, lp_error *err);
LP_API lp_status lp_trace_release_rows(lp_trace *t, int32_t scope_index); /* drops an expansion; pointers into it end */
LP_API const lp_provenance *lp_trace_provenance(const lp_trace *t, uint32_t index); /* NULL when none */

/* Identities, docs/identities.md. set digest: over the plan digests of all scopes. structure key: staleness. */
LP_API lp_status lp_trace_set_digest(const lp_trace *t, uint8_t digest[32], lp_error *err);
LP_API lp_status lp_trace_structure_key(const lp_trace *t, uint8_t key[32], lp_error *err);
/* LP_OK when `checkpoint` has the names, dtypes and shapes that the trace was recorded for, else LP_E_STALE naming the
 * first difference. Other sharding and other metadata are not differences. */
LP_API lp_status lp_trace_match(const lp_trace *t, const lp_checkpoint *checkpoint, lp_error *err);

/* Text twin: a version header, sorted lines, an END line; undump(dump(x)) has the same digests. `write` gets chunks and
 * returns 0 to go on. */
typedef int (*lp_write_fn)(void *context, const char *text, size_t bytes);
LP_API lp_status lp_trace_dump(const lp_trace *t, lp_write_fn write, void *context, lp_error *err);
LP_API lp_status lp_trace_undump(lp_trace **out, const char *text, size_t text_bytes, const lp_platform *platform,
                                 lp_error *err);

/* Read-only SQL over v_records, v_destinations, v_derives, v_refusals, v_names, v_scopes. `row` gets column texts (NULL
 * for SQL NULL), the first call the column names; a non-zero result stops. */
LP_API lp_status lp_trace_query(const lp_trace *t, const char *sql,
                                int (*row)(void *context, int columns, const char *const *values, bool is_header),
                                void *context, lp_error *err);

/* ---- families ---------------------------------------------------------------------------------------------------- */

/* "layers.12.experts.3.up" becomes "layers.*.experts.*.up": every run of decimal digits that stands alone between dots
 * (or at an end) is an index. Writes at most buffer_bytes, always terminated; returns the whole length. */
LP_API size_t lp_family_template(const char *name, char *buffer, size_t buffer_bytes);

/* ---- check and diff ---------------------------------------------------------------------------------------------- */

typedef enum lp_level { LP_ALLOW = 0, LP_WARN = 1, LP_DENY = 2 } lp_level;

typedef struct lp_rule {
    const char *id;       /* stable snake_case */
    const char *sentence; /* what it means, one sentence */
    lp_level level;       /* default */
    bool of_diff;         /* of diff rather than of check */
} lp_rule;

/* The rules of check and diff, in the order in which findings of one level come. NULL: out of range, no such id. */
LP_API int lp_rule_count(void);
LP_API const lp_rule *lp_rule_at(int index);
LP_API const lp_rule *lp_rule_find(const char *id);

/* One finding stands for a family: all members say the same. Strings live as long as the findings. */
typedef struct lp_finding {
    const lp_rule *rule;
    lp_level level;
    const char *family;       /* template of the tensor concerned */
    int64_t members;          /* tensors (over all scopes) that it stands for */
    const char *tensor;       /* witness: the first member */
    int32_t rank;             /* witness scope, -1 when it is not about one */
    int64_t byte_lo, byte_hi; /* witness range in the destination, -1 when not about bytes */
    const char *file;         /* loader location, "" when unknown */
    int32_t line;
    const char *text; /* one sentence about the witness */
    const char *hint; /* or "" */
    /* 64 hex digits over the rule, the witness and the canonical form of the byte map concerned: the same as long as
     * the finding is the same, whatever line the loader is on. */
    const char *fingerprint;
    const char *suppressed; /* why it was accepted, or NULL: it counts */
} lp_finding;

typedef struct lp_findings lp_findings;

/* What check or diff found; the caller frees it. NULL is allowed for lp_findings_free. */
LP_API int64_t lp_findings_count(const lp_findings *f);
LP_API const lp_finding *lp_findings_at(const lp_findings *f,
                                        int64_t index);       /* deny first, then by rule, family; suppressed last */
LP_API lp_level lp_findings_worst(const lp_findings *f);      /* of those that count */
LP_API const char *lp_findings_summary(const lp_findings *f); /* the first line of the text report */
LP_API void lp_findings_free(lp_findings *f);

/* Proves or refutes the contract of docs/check.md for every scope. LP_OK also when there are findings. */
LP_API lp_status lp_check(lp_findings **out, const lp_trace *t, lp_error *err);

/* The same, and whether `checkpoint` (may be NULL) has the names that the trace reads, with the same dtypes and shapes.
 */
LP_API lp_status lp_check_against(lp_findings **out, const lp_trace *t, const lp_checkpoint *checkpoint, lp_error *err);

/* What changed in meaning from base to changed. Equal plan digests end it at once. */
LP_API lp_status lp_diff(lp_findings **out, const lp_trace *base, const lp_trace *changed, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
