/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/replayer.h: from a trace to bytes.
 *
 *   plan      a trace of one scope, bound to destination memory: every mismatch is found before a byte moves
 *   session   one load or reload: begin, push tensors in any order and any split, finish
 *   reports   value digests, their sidecar file, the rank file, explain
 *
 * The promise of every mode: a cold start with the checkpoint B, a reload from A to B, and that reload once more leave
 * the same bytes. docs/replay.md has the rules, docs/derives.md the arithmetic, docs/value-digest.md the digest.
 *
 * Conventions are those of loadplan/trace.h. A plan and its sessions are used by one thread at a time; different plans
 * are independent. A pushed buffer may be reused as soon as the call returns; where the plan is bound to a device,
 * docs/device.md says when.
 */
#ifndef LOADPLAN_REPLAYER_H
#define LOADPLAN_REPLAYER_H

#include "traces/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- destination memory ------------------------------------------------------------------------------------------ */

/* A destination as the caller has it. Bytes may be written in [storage, storage + storage_bytes) only. */
typedef struct lp_destination_memory {
    const char *name;
    lp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *stride; /* bytes; NULL: row-major without gaps */
    void *data;            /* element [0, ..., 0]; NULL for meta plans (and for destinations without bytes) */
    void *storage;         /* first byte of the storage; NULL: data - offset of the trace */
    int64_t storage_bytes; /* 0: what the trace says */
    const char *layout;    /* kernel layout id; NULL: the caller does not know, and it is not compared */
    int32_t layout_version;
} lp_destination_memory;

/* Fresh memory for all destinations of one scope, as a cold start needs it: one zeroed block for each storage. */
typedef struct lp_destinations lp_destinations;

/* With `meta` no memory is taken: data and storage are NULL. The trace must outlive the result. */
LP_API lp_status lp_destinations_allocate(lp_destinations **out, const lp_trace *trace, const lp_scope *scope,
                                          bool meta, const lp_platform *platform, lp_error *err);
/* The same in the memory of a device ("cuda:0"): one block. LP_E_DEVICE, also in builds without CUDA. */
LP_API lp_status lp_destinations_allocate_on(lp_destinations **out, const lp_trace *trace, const lp_scope *scope,
                                             const char *device, const lp_platform *platform, lp_error *err);
LP_API const lp_destination_memory *lp_destinations_list(const lp_destinations *d, int64_t *count);
LP_API int64_t lp_destinations_bytes(const lp_destinations *d); /* of all storages */
LP_API void lp_destinations_free(lp_destinations *d);

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Which logical expert each physical slot holds, over all ranks: slot s of expert rank r is logical[r * slots + s].
 * An expert may stand in several slots. The scopes that own an expert by default must be in the trace. */
typedef struct lp_expert_map {
    const int32_t *logical; /* count entries; copied by bind */
    int64_t count;          /* slots a rank x expert ranks */
    int64_t epoch;          /* the caller's number of this map, given back by lp_plan_epoch */
} lp_expert_map;

typedef struct lp_bind_options {
    int64_t staging; /* most bytes of staging in use at a time: of the host, or of `device`. 0: as much as the plan can
                      * need on the host; on a device twice the largest name, which is what direct sessions need */
    const lp_expert_map *experts; /* NULL: the default map of the trace */
    const char *target;           /* what the destinations will run on, such as "sm90"; NULL: not compared */
    const lp_platform *platform;  /* NULL: defaults */
    int32_t threads;              /* of the CPU, the caller included, for large moves; 0: one for each physical core */
    int64_t *experts_epoch_now;   /* the epoch that the memory is at, kept by the caller; NULL: see "expert maps" */
    const char *device; /* "cuda:0": destinations lie in its memory; NULL: in the host's. Meta plans need none */
    int64_t spill;      /* bytes of pinned host memory where layerwise sessions put what device staging cannot hold */
    bool captures;      /* pushes may be captured into a CUDA graph: a second list of the program's tiles is kept */
} lp_bind_options;

typedef struct lp_plan lp_plan;

/* Binds the rows of `scope` to `dest`: recomputes the plan digest, then compares every destination by name, dtype,
 * shape, byte strides, place in its storage, storage size and (where known) layout. Writes nothing to the
 * destinations. LP_E_MISMATCH names the first mismatch in err->text and the others in err->hint, as far as they fit.
 * LP_E_STALE: the trace was recorded for another target. LP_E_DEVICE: no such device (there is none in a build
 * without CUDA), or it has not enough memory: all that sessions use there is taken here. LP_E_UNKNOWN_NAME: the trace
 * has no such scope. A scope of all zeros means the only scope of the trace, or rank 0. The trace and the
 * destination memory must outlive the plan; `dest` itself is not kept. options may be NULL. */
LP_API lp_status lp_bind(lp_plan **out, const lp_trace *trace, const lp_scope *scope, const lp_destination_memory *dest,
                         int64_t ndest, const lp_bind_options *options, lp_error *err);
LP_API void lp_plan_close(lp_plan *plan); /* sessions must be closed before */

/* ---- expert maps ---- */

/* What a rank has to do so that its slots hold the experts of a new map: slot to_slot gets what from_slot of expert
 * rank from_rank holds by the old map. */
typedef struct lp_expert_move {
    int32_t from_rank, from_slot, to_slot;
} lp_expert_move;

/* The moves of one expert rank, at most one for each of its `slots` slots, in the order of to_slot; slots whose expert
 * stays have none. Taken from the same rank where it has the expert, else replicas take turns. A function of the maps
 * alone, so that every rank can compute those of all others. LP_E_INCOMPLETE: an expert that the old map has nowhere.
 * platform may be NULL. */
LP_API lp_status lp_expert_moves(lp_expert_move *moves, int64_t *count, const lp_expert_map *from,
                                 const lp_expert_map *to, int64_t slots, int32_t rank, const lp_platform *platform,
                                 lp_error *err);

/*
 * Moves whole experts in the memory of a plan until it holds what a cold start by the map `to` would load, byte for
 * byte, and makes the plan one of that map. Nothing is read from a checkpoint. Experts move in slices, whose number and
 * sizes are the same on every rank that gives the same staging (bytes in all; 0: 64 MiB). For each slice in order:
 *
 *   gather               every rank reads what it moves itself; lp_rebalance_outgoing reads what other ranks get
 *   (exchange)           the caller carries bytes into lp_rebalance_incoming of each move from another rank
 *   (barrier)            no rank may scatter a slice before all have gathered it
 *   scatter
 *
 * and then finish, which runs the derives over experts again and gives the plan its new epoch. Handles stay valid. At
 * begin, before a byte has moved: LP_E_STALE (the memory is at another epoch), LP_E_POISONED (unfinished loads),
 * LP_E_UNSUPPORTED (experts that cannot be moved), errors of lp_bind and lp_expert_moves. Closed unfinished after a
 * scatter, the plan takes full sessions only. device: where the plan's memory is (NULL: where it is bound to, "cpu",
 * "cuda:N"); buffers of outgoing and incoming are memory of that device, and every call returns when its copies are
 * done. On a device the new plan's memory is taken at begin, and that of the old one given back at close.
 *
 * Several plans of the same memory give the same lp_bind_options.experts_epoch_now, which outlives them: finish and
 * cold starts set it, and every plan of another epoch is refused from then on.
 */
typedef struct lp_rebalance lp_rebalance;
LP_API lp_status lp_rebalance_begin(lp_rebalance **out, lp_plan *plan, const lp_expert_map *to, int64_t staging,
                                    const char *device, lp_error *err);
LP_API const lp_expert_move *lp_rebalance_moves(const lp_rebalance *r, int64_t *count);
LP_API int64_t lp_rebalance_slices(const lp_rebalance *r);
LP_API int64_t lp_rebalance_slice_bytes(const lp_rebalance *r, int64_t slice); /* of each expert */
LP_API lp_status lp_rebalance_gather(lp_rebalance *r, int64_t slice, lp_error *err);
LP_API lp_status lp_rebalance_outgoing(const lp_rebalance *r, int64_t slice, int32_t slot, void *buffer, lp_error *err);
LP_API void *lp_rebalance_incoming(const lp_rebalance *r, int64_t move); /* where its slice is to be put */
LP_API lp_status lp_rebalance_scatter(lp_rebalance *r, int64_t slice, lp_error *err);
/* LP_E_VALUE: done, but a declared check on the experts of this rank failed. */
LP_API lp_status lp_rebalance_finish(lp_rebalance *r, lp_error *err);
LP_API void lp_rebalance_close(lp_rebalance *r);

/* The whole of it where all experts come from this rank; LP_E_UNSUPPORTED, and nothing moved, where some do not. */
LP_API lp_status lp_plan_move_experts(lp_plan *plan, const lp_expert_map *to, int64_t staging, const char *device,
                                      lp_error *err);

/* ---- names of a plan ---- */

/* A checkpoint tensor of the plan, resolved once: O(1). LP_NONE when the trace's catalogue lacks the name. Valid for
 * the plan's life. */
typedef uint32_t lp_handle;
LP_API lp_handle lp_plan_handle(const lp_plan *plan, const char *name);
LP_API const char *lp_plan_name(const lp_plan *plan, lp_handle handle); /* NULL when out of range */

/* What the plan does with a name. */
typedef enum lp_name_use {
    LP_USE_NONE = 0,    /* in the catalogue, but not for this scope: pushes are accepted and ignored */
    LP_USE_LOADED = 1,  /* records or derives need it */
    LP_USE_FALLBACK = 2 /* the loader's own code must load it: refused by push, see lp_mark_loaded */
} lp_name_use;
LP_API lp_name_use lp_plan_use(const lp_plan *plan, lp_handle handle);

LP_API const lp_rows *lp_plan_rows(const lp_plan *plan);          /* the scope's rows in the trace; never NULL */
LP_API int64_t lp_plan_epoch(const lp_plan *plan);                /* of the expert map, 0 by default */
LP_API void *lp_plan_address(const lp_plan *plan, uint32_t dest); /* of element [0, ..., 0] */

/* Bytes of a checkpoint tensor that the plan reads, as sorted disjoint ranges that do not touch. `range` is called in
 * rising order and stops the walk with a non-zero result. */
LP_API lp_status lp_plan_reads(const lp_plan *plan, lp_handle handle,
                               int (*range)(void *context, int64_t lo, int64_t hi), void *context, lp_error *err);

/* Plans on a device: the outcome of the checks that ran last, when all work on the stream is done; finish asks by
 * itself, this is for graphs that are launched after it. LP_E_VALUE as of finish; LP_E_DEVICE: the work failed. */
LP_API lp_status lp_plan_checks(const lp_plan *plan, void *stream, lp_error *err);
LP_API int64_t lp_plan_device_bytes(const lp_plan *plan); /* device memory that bind took; 0 on the host */

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

typedef enum lp_load_mode {
    LP_COLD = 0,      /* fresh memory: zeroed at begin, storages whole */
    LP_DIRECT = 1,    /* live tensors, written as bytes arrive; bytes that nobody owns keep their values */
    LP_LAYERWISE = 2, /* live tensors; a commit group appears when all of it has arrived */
    LP_DUMMY = 3,     /* no pushes: dummy values */
    LP_META = 4       /* no bytes at all: the protocol only */
} lp_load_mode;

/* Where pushed bytes lie. */
typedef enum lp_source_memory {
    LP_SOURCE_ASK = 0,   /* the driver is asked about every pointer; on the host there is nothing to ask */
    LP_SOURCE_HOST = 1,  /* host memory, pinned or not */
    LP_SOURCE_DEVICE = 2 /* memory of the plan's device */
} lp_source_memory;

typedef struct lp_session_options {
    lp_load_mode mode;
    const char *const *subset; /* names that this round updates; NULL: all of the plan. Not for cold starts. */
    int64_t subset_count;
    bool digests;         /* report tensors_changed and tensors_unchanged (reads all destinations twice) */
    bool allow_fallbacks; /* finish without the fallback names; derives that need them are skipped and counted */
    void *stream;         /* a cudaStream_t, on which everything is done; NULL: the default stream. NULL on the CPU */
    lp_source_memory sources; /* of all pushes that do not say it themselves */
} lp_session_options;

typedef struct lp_session lp_session;

/* One session of a plan at a time. LP_E_ARGUMENT: a subset that leaves out staged inputs of a derive whose other inputs
 * are in, or a subset in a cold start. LP_E_UNKNOWN_NAME: a subset name that the plan does not load. LP_E_POISONED: an
 * earlier session ended unfinished and wrote names that this subset leaves out. LP_E_LIMIT: a commit group that exceeds
 * the staging budget by itself. LP_E_STALE: the memory is at another epoch of the expert map than the plan, and is not
 * loaded anew. options may be NULL. */
LP_API lp_status lp_begin(lp_session **out, lp_plan *plan, const lp_session_options *options, lp_error *err);

/* A tensor. Size and type are compared with the catalogue before anything is written. */
typedef struct lp_buffer {
    const void *data; /* element [0, ..., 0]; may be NULL in LP_META and where there are no bytes */
    lp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *stride;   /* bytes, any sign; NULL: row-major without gaps */
    int64_t bytes;           /* logical bytes when not 0: must be what shape and dtype say */
    lp_source_memory memory; /* LP_SOURCE_ASK: as the session's options say */
} lp_buffer;

/* All of a tensor. Refusals before the first write leave the session as it was: LP_E_UNKNOWN_NAME (not in the catalogue
 * or not in the subset), LP_E_MISMATCH (dtype, shape, size), LP_E_DUPLICATE (some byte arrived before), LP_E_REFUSED (a
 * fallback), LP_E_LIMIT (staging budget: err->hint names a tensor to push first), LP_E_MISUSE (mode; a push that cannot
 * be captured). Any other failure poisons the session. */
LP_API lp_status lp_push(lp_session *s, const char *name, const lp_buffer *buffer, lp_error *err);

/* Bytes [off, off + bytes) of the tensor's row-major payload. A range of 0 bytes marks the name as seen, which is all
 * that names without bytes need. */
LP_API lp_status lp_push_range(lp_session *s, const char *name, int64_t off, const void *data, int64_t bytes,
                               lp_error *err);
LP_API lp_status lp_push_handle_range(lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                                      lp_error *err);

/* `count` whole tensors, row-major without gaps, by resolved handles. All are judged before the first is written; only
 * the staging budget is judged one by one, so that after LP_E_LIMIT those before the named one are in. A call with
 * tensors in device memory only is all or nothing there too, and names whose commit group it completes need no
 * staging. */
LP_API lp_status lp_push_many(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                              lp_error *err);

/* Reads what the session still lacks from the files of `checkpoint`, own ranges only, in file order, on the threads of
 * the plan (lp_io.pread is then called by several at once). LP_E_STALE when a tensor's type or shape is not the plan's;
 * LP_E_CORRUPT when a file ends early or changes under the read; LP_E_IO.
 * After an error the call may be repeated: what has arrived is not read again. progress may be NULL; a non-zero result
 * stops with LP_E_IO. */
typedef struct lp_read_stats {
    int64_t bytes_read, ranges, files;
} lp_read_stats;
LP_API lp_status lp_push_checkpoint(lp_session *s, const lp_checkpoint *checkpoint, lp_error *err);
LP_API lp_status lp_push_checkpoint_with(lp_session *s, const lp_checkpoint *checkpoint, lp_read_stats *stats,
                                         int (*progress)(void *context, int64_t done, int64_t total), void *context,
                                         lp_error *err);

/* The caller has loaded this fallback name by its own code. LP_E_ARGUMENT for other names. */
LP_API lp_status lp_mark_loaded(lp_session *s, const char *name, lp_error *err);

typedef struct lp_report {
    int64_t bytes_pushed;  /* source bytes accepted, of names that the plan loads */
    int64_t bytes_written; /* destination bytes, by records, fills and derives; commits are not counted twice */
    int64_t names_loaded, names_ignored, names_missing;
    int64_t fallbacks; /* names that the plan cannot load, of this session */
    int64_t derives_run, derives_skipped;
    int64_t groups_committed;                   /* layerwise */
    int64_t staging_peak_bytes;                 /* host staging really used; on a device, the spill */
    int64_t tensors;                            /* destinations of the scope */
    int64_t tensors_changed, tensors_unchanged; /* -1 unless digests were asked for */
    int64_t nanoseconds;                        /* since begin */
    int64_t device_staging_peak_bytes;          /* device staging really used */
} lp_report;

/* Ends the session when everything has arrived. LP_E_INCOMPLETE names the first missing names and their count; the
 * session stays open and the rest may be pushed. LP_E_VALUE: a declared check failed, with its text; the destinations
 * hold what was loaded, as they do where only digests failed that the options asked for. *report (NULL is allowed) is
 * filled in every case. */
LP_API lp_status lp_finish(lp_session *s, lp_report *report, lp_error *err);

/* The names that finish would miss: start with *cursor = 0, NULL at the end. */
LP_API const char *lp_session_missing(const lp_session *s, int64_t *cursor);

/* Gives up: later calls are LP_E_POISONED with this reason (copied). */
LP_API void lp_abort(lp_session *s, const char *reason);

/* Frees; a session that did not finish is aborted. Names that it wrote must be in the plan's next session. */
LP_API void lp_session_close(lp_session *s);

/* ---- value digests ----------------------------------------------------------------------------------------------- */

/* 128 bits over the logical bytes of a tensor in row-major order: independent of strides, storage and the order in
 * which parts are added; not against forgery. docs/value-digest.md has the definition and vectors. */
enum { LP_VALUE_DIGEST_BYTES = 16 };

typedef struct lp_value_sum {
    uint64_t lane[2];
} lp_value_sum;

/* Adds bytes [off, off + bytes) of the tensor. off is a multiple of 8, and bytes too unless the tensor ends there. */
LP_API void lp_value_sum_add(lp_value_sum *sum, int64_t off, const void *data, int64_t bytes);
/* The digest once every byte of the tensor was added, in any order. */
LP_API void lp_value_sum_end(const lp_value_sum *sum, int64_t total_bytes, uint8_t digest[LP_VALUE_DIGEST_BYTES]);

/* Of bytes in host memory; of the logical bytes of a destination, on the device where the plan is (LP_E_DEVICE). */
LP_API void lp_value_digest(const void *data, int64_t bytes, uint8_t digest[LP_VALUE_DIGEST_BYTES]);
LP_API lp_status lp_plan_value_digest(const lp_plan *plan, uint32_t dest, uint8_t digest[LP_VALUE_DIGEST_BYTES],
                                      lp_error *err);

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* One safetensors file with every destination of the plan that holds loaded bytes, docs/replay.md: dimensions in
 * physical memory order, logical shape, strides, layout and aliases in __metadata__. select (NULL: all) is asked for
 * each destination. */
LP_API lp_status lp_rank_file_write(const lp_plan *plan, const char *path, bool overwrite,
                                    bool (*select)(void *context, const lp_destination *dest), void *context,
                                    int64_t *bytes_written, lp_error *err);

/* Compares the plan's memory with a rank file. `differs` is called for every destination that is absent there, of
 * another form or of other bytes, with the first differing byte of the tensor's payload or -1. */
LP_API lp_status lp_rank_file_compare(const lp_plan *plan, const char *path,
                                      void (*differs)(void *context, const lp_destination *dest, const char *how,
                                                      int64_t byte),
                                      void *context, lp_error *err);

/* "rank-00003.safetensors" */
LP_API void lp_rank_file_name(char out[32], int32_t rank);

/* SHA-256 of name, size, mtime and inode of each file: what this host can know about a checkpoint without reading it.
 * LP_E_UNSUPPORTED for a catalogue without files. */
LP_API lp_status lp_checkpoint_local_id(const lp_checkpoint *checkpoint, uint8_t id[32], lp_error *err);

/* The sidecar: digests of loaded values by plan digest, local content id and rank. Text, written whole or not at all,
 * safe to delete. */
typedef struct lp_sidecar lp_sidecar;
LP_API lp_status lp_sidecar_open(lp_sidecar **out, const char *path, const lp_platform *platform,
                                 lp_error *err); /* a missing file is an empty sidecar */
LP_API void lp_sidecar_close(lp_sidecar *s);
/* The digest of a destination, or NULL when the sidecar has none for these keys. */
LP_API const uint8_t *lp_sidecar_find(const lp_sidecar *s, const uint8_t plan_digest[32], const uint8_t content[32],
                                      int32_t rank, const char *name);
LP_API bool lp_sidecar_has(const lp_sidecar *s, const uint8_t plan_digest[32], const uint8_t content[32], int32_t rank);
/* Content id of the newest load of this plan and rank; false when there is none. */
LP_API bool lp_sidecar_newest(const lp_sidecar *s, const uint8_t plan_digest[32], int32_t rank, uint8_t content[32]);
/* Takes the digests of all loaded destinations of `plan` now; replaces an older entry of the same keys. */
LP_API lp_status lp_sidecar_put(lp_sidecar *s, const lp_plan *plan, const uint8_t content[32], lp_error *err);
LP_API lp_status lp_sidecar_save(const lp_sidecar *s, const char *path, lp_error *err);

/* ---- DLPack ------------------------------------------------------------------------------------------------------ */

/* The tensor of DLPack, as its ABI has it (github.com/dmlc/dlpack, DLTensor): what torch, jax, cupy and others hand
 * out. `dl_tensor` of a DLManagedTensor is one. Strides count elements. */
typedef struct lp_dl_tensor {
    void *data;
    struct {
        int32_t type, id; /* 1: host, 2: CUDA, 3: pinned host, 13: CUDA managed */
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    const int64_t *shape;
    const int64_t *strides; /* NULL: row-major without gaps */
    uint64_t byte_offset;
} lp_dl_tensor;

enum { LP_DL_DIMS = 16 };

/* The tensor as a destination, or as what is pushed. `stride` gets its byte strides; it, the name and the tensor's
 * shape must outlive the result. LP_E_UNSUPPORTED: a dtype that safetensors does not have, lanes, sub-byte elements
 * with strides, a device that is neither the host nor CUDA. LP_E_LIMIT: more than LP_DL_DIMS dimensions. */
LP_API lp_status lp_destination_of_dlpack(lp_destination_memory *out, int64_t stride[LP_DL_DIMS],
                                          const lp_dl_tensor *tensor, const char *name, lp_error *err);
LP_API lp_status lp_buffer_of_dlpack(lp_buffer *out, int64_t stride[LP_DL_DIMS], const lp_dl_tensor *tensor,
                                     lp_error *err);

/* ---- explain ----------------------------------------------------------------------------------------------------- */

/* What a load of one scope costs, from the trace alone. */
typedef struct lp_explanation {
    int64_t bytes_read, ranges_read, names_read;
    int64_t bytes_written, tensors_written;
    int64_t bytes_storage;   /* of all destinations, gaps included */
    int64_t bytes_staged;    /* scratch for staged inputs of derives, all together */
    int64_t bytes_layerwise; /* staging of the largest commit group */
    int64_t groups, records, fills, casts, replicates;
    int64_t derives, derives_own; /* own: results within stated ulps of the engine's */
    int64_t fallbacks;
    int64_t order_dependent; /* records that must be applied in order */
    int64_t names_unused;    /* in the catalogue, not for this scope */
} lp_explanation;

/* LP_E_ARGUMENT: no such scope. */
LP_API lp_status lp_explain(lp_explanation *out, const lp_trace *trace, int32_t scope_index, lp_error *err);

/* The same by family of checkpoint names: largest read first. */
typedef struct lp_family_cost {
    const char *family;
    const char *kinds; /* "copy", "copy, fill" */
    int64_t names, bytes_read, ranges_read, bytes_written;
} lp_family_cost;
typedef struct lp_family_costs lp_family_costs;
LP_API lp_status lp_explain_families(lp_family_costs **out, const lp_trace *trace, int32_t scope_index, lp_error *err);
LP_API int64_t lp_family_costs_count(const lp_family_costs *f);
LP_API const lp_family_cost *lp_family_costs_at(const lp_family_costs *f, int64_t index);
LP_API void lp_family_costs_free(lp_family_costs *f);

/* ---- sharing weights between processes --------------------------------------------------------------------------- */

/*
 * One process holds the weights of a rank and serves them at a Unix socket; others attach in milliseconds, by the plan
 * digest, the content id and the device, all three of which must agree. docs/ipc.md has rules and protocol.
 *
 * Every object of this section is used by one thread at a time.
 */

/* Memory for all destinations of one scope that other processes can map: host memory, or one allocation of a device.
 * Zeroed on the host, not cleared on a device. device: NULL or "cpu", or "cuda:N". The trace must outlive the result.
 */
typedef struct lp_shared lp_shared;
LP_API lp_status lp_shared_allocate(lp_shared **out, const lp_trace *trace, const lp_scope *scope, const char *device,
                                    const lp_platform *platform, lp_error *err);

/* The same for device memory that a plan is bound to already, such as the live tensors of an engine, which the result
 * does not own. LP_E_UNSUPPORTED: memory of the host, or allocations that the driver cannot share by handle (memory of
 * the virtual memory interface, such as PyTorch's expandable segments). The plan must outlive the result. */
LP_API lp_status lp_shared_of(lp_shared **out, const lp_plan *plan, const char *device, lp_error *err);

LP_API const lp_destination_memory *lp_shared_list(const lp_shared *shared, int64_t *count); /* for lp_bind */
LP_API int64_t lp_shared_bytes(const lp_shared *shared);                                     /* of all storages */
LP_API void lp_shared_free(lp_shared *shared); /* after its server; host memory lives on in those who attached */

/* How the bytes of served weights stand. */
typedef struct lp_shared_state {
    int64_t epoch; /* 1 at first; rises whenever a writer is done, or was lost */
    bool is_writing;
    bool is_torn;        /* the last writer was lost in the middle: no defined bytes until another one is done */
    bool has_content;    /* false: the last writer did not say */
    uint8_t content[32]; /* content id, such as lp_checkpoint_local_id gives */
    int64_t experts_epoch;
    int32_t writer; /* process that writes, else 0 */
} lp_shared_state;

typedef struct lp_serve_options {
    const uint8_t *content; /* 32 bytes: what the memory holds; NULL: not known, and nobody can ask for it */
    int64_t experts_epoch;  /* lp_plan_epoch of the plan that loaded it */
    bool any_user;          /* let other users attach; by default only processes of this effective user */
    int32_t clients;        /* most at a time; 0: 64 */
    int32_t timeout_ms;     /* for a new client to say what it wants; 0: 10,000 */
    const lp_platform *platform;
} lp_serve_options;

typedef struct lp_server lp_server;

/* Serves at `path`. The memory must be loaded, and outlive the server. The socket of a server that died is replaced;
 * LP_E_EXISTS: a server answers there, or the file is no socket. */
LP_API lp_status lp_serve_open(lp_server **out, const char *path, lp_shared *shared, const lp_serve_options *options,
                               lp_error *err);
/* Answers what has come, and waits up to timeout_ms (-1: for ever) for the first of it. Returns early on a signal. What
 * a client does wrong costs that client its connection and is no error. */
LP_API lp_status lp_serve_step(lp_server *server, int32_t timeout_ms, lp_error *err);
LP_API int lp_serve_fd(const lp_server *server); /* readable when lp_serve_step has something to do */
LP_API void lp_serve_state(const lp_server *server, lp_shared_state *out);
LP_API int32_t lp_serve_clients(const lp_server *server); /* attached now */
/* The serving process writes itself: LP_E_PEER while a client does. Commit as for attachments. */
LP_API lp_status lp_serve_lease(lp_server *server, lp_error *err);
LP_API lp_status lp_serve_commit(lp_server *server, const uint8_t content[32], int64_t experts_epoch, lp_error *err);
LP_API void lp_serve_close(lp_server *server); /* disconnects all clients and removes the socket */

typedef struct lp_attach_options {
    const uint8_t *content; /* 32 bytes that it must hold; NULL: whatever it holds, for those who overwrite it */
    int64_t experts_epoch;  /* must be the server's, unless content is NULL */
    const char *device;     /* NULL or "cpu", or "cuda:N" */
    bool write;             /* map for writing; host memory is mapped read-only otherwise */
    bool any_user;          /* trust a server of another user */
    int32_t timeout_ms;     /* for each answer of the server; 0: 10,000 */
    const lp_platform *platform;
} lp_attach_options;

typedef struct lp_attachment lp_attachment;

/* Maps what the server at `path` holds. The trace must outlive the result. Load instead when this returns
 *   LP_E_PEER      nobody serves there, or the server is dead, silent, full, of another user or of another version
 *   LP_E_MISMATCH  it serves another plan, other content, another device or expert map, or is being written
 *   LP_E_POISONED  it was left half written
 * and err->text says which in one line. With `write` and no content, memory that is torn or being written is taken
 * too. */
LP_API lp_status lp_attach(lp_attachment **out, const char *path, const lp_trace *trace, const lp_scope *scope,
                           const lp_attach_options *options, lp_error *err);
LP_API const lp_destination_memory *lp_attachment_list(const lp_attachment *a, int64_t *count); /* for lp_bind */
LP_API int64_t lp_attachment_bytes(const lp_attachment *a);

/* Epoch and flags now, without a call to the server; the other members are those of the last answer. */
LP_API void lp_attachment_peek(const lp_attachment *a, lp_shared_state *out);
/* The same from the server. LP_E_PEER: it is gone; host memory stays mapped and keeps its bytes. */
LP_API lp_status lp_attachment_state(lp_attachment *a, lp_shared_state *out, lp_error *err);

/* The exclusive right to write, for example by a direct session. Readers are not held up: they see is_writing and the
 * next epoch. Waits up to wait_ms for another writer, then LP_E_PEER naming its process. LP_E_MISUSE: not attached for
 * writing, or has the lease. */
LP_API lp_status lp_attachment_lease(lp_attachment *a, int32_t wait_ms, lp_error *err);
/* All bytes are those of `content` now (NULL: of something without an id). On a device the work must be complete. */
LP_API lp_status lp_attachment_commit(lp_attachment *a, const uint8_t content[32], int64_t experts_epoch,
                                      lp_error *err);
/* Gives the lease back: nothing was written, or (is_torn) the bytes are of no use until the next commit. */
LP_API lp_status lp_attachment_abandon(lp_attachment *a, bool is_torn, lp_error *err);
/* Unmaps. A lease that is still held counts as torn. Plans that are bound to the memory must be closed before. */
LP_API void lp_attachment_close(lp_attachment *a);

/* ---- the order of pushes ----------------------------------------------------------------------------------------- */

/* An order in which layerwise sessions need little staging: commit group by commit group, the largest name of each
 * last. Names that the plan does not load are not in it. */
typedef struct lp_push_order lp_push_order;
typedef struct lp_push_step {
    const char *name, *group; /* group: of the commit group that it belongs to; "" when only checks read it */
    lp_handle handle;
    int64_t host_staging, device_staging; /* bytes that wait when it has been pushed */
} lp_push_step;
LP_API lp_status lp_push_order_make(lp_push_order **out, const lp_trace *trace, int32_t scope_index, lp_error *err);
LP_API int64_t lp_push_order_count(const lp_push_order *o);
LP_API const lp_push_step *lp_push_order_at(const lp_push_order *o, int64_t index); /* NULL when out of range */
/* The smallest budgets with which this order is never refused: staging of sessions in host memory, and on a device
 * (without a spill) for tensors in device memory. */
LP_API void lp_push_order_peaks(const lp_push_order *o, int64_t *host, int64_t *device);
LP_API void lp_push_order_free(lp_push_order *o);

#ifdef __cplusplus
}
#endif

#endif
