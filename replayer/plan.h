/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan, private to the replayer: the steps of one scope by name, the memory that they write, and who waits for whom.
 *
 *   entry     a checkpoint name that this scope loads (or falls back on), with its steps
 *   storage   one block of memory; destinations lie in it
 *   group     commit group; groups that share a storage are one
 *   job       a derive, in an order in which each comes after those that it reads
 */
#ifndef LOADPLAN_PLAN_H
#define LOADPLAN_PLAN_H

#include "replayer/exec.h"
#include "replayer/exec_pool.h"
#include "replayer/replayer.h"

struct lp_ranges;
struct lp_device_side;

typedef struct lp_entry {
    uint32_t name; /* catalogue index */
    uint32_t first_step, step_count;
    uint32_t first_job, job_count; /* in plan->entry_job: derives that wait for this name */
    uint8_t use;                   /* lp_name_use */
    bool has_cast, reads;          /* reads: some step needs source bytes */
    bool is_dirty;                 /* an unfinished session wrote it */
    int64_t bytes;                 /* of the whole tensor */
    int64_t need_lo, need_hi;      /* all needed bytes lie inside */
} lp_entry;

typedef struct lp_storage {
    const char *name;
    uint8_t *base; /* NULL in a meta plan */
    int64_t bytes;
    uint32_t group;
    bool is_written; /* by a step or a derive */
} lp_storage;

typedef struct lp_plan_group {
    const char *name;
    int64_t bytes; /* of its written storages */
} lp_plan_group;

/* Staged inputs of a job are numbered in plan->stage. */
typedef struct lp_stage {
    uint32_t job, input;
    int64_t bytes;
} lp_stage;

typedef struct lp_job {
    const lp_derive *derive;
    uint32_t first_stage, stage_count;
    uint32_t first_next, next_count; /* in plan->job_next: jobs that wait for this one */
    uint32_t group;                  /* of the output; LP_NONE for a check */
    bool needs_fallback;             /* some input region belongs to a fallback name */
} lp_job;

struct lp_plan {
    lp_platform platform;
    lp_arena arena;
    const lp_trace *trace;
    const lp_checkpoint *catalogue;
    const lp_rows *rows;
    int32_t scope_index;
    bool is_meta;
    bool is_open;      /* a session is */
    bool is_all_dirty; /* a cold start ended unfinished */
    int64_t staging, epoch;
    lp_pool *pool;

    lp_step *step; /* by entry */
    int64_t step_count, step_capacity;
    lp_step *fill; /* of begin */
    int64_t fill_count, fill_capacity;
    lp_entry *entry; /* by name */
    uint32_t entry_count;
    uint32_t *entry_of; /* by catalogue index; LP_NONE */

    const uint8_t (
        *known_digest)[LP_VALUE_DIGEST_BYTES]; /* by destination, where memory is not the host's; else NULL */
    uint8_t **address;                         /* by destination: element [0, ..., 0] */
    uint32_t *storage_of;                      /* by destination */
    lp_storage *storage;
    uint32_t storage_count;
    lp_plan_group *group;
    uint32_t group_count;

    lp_derive *derive; /* copies: an expert map may move them */
    uint32_t job_count;
    lp_job *job;
    uint32_t *job_of; /* by derive in `derive`: its job */
    uint32_t *job_next, *entry_job;
    lp_stage *stage;
    uint32_t stage_count;

    struct lp_device_side *side; /* NULL: destinations lie in host memory */

    const lp_map **owned; /* maps made by bind */
    int64_t owned_count, owned_capacity;

    const int32_t *expert_map; /* a copy of the map that it is bound by; NULL: the default one */
    int64_t *epoch_now;        /* lp_bind_options.experts_epoch_now */
};

enum { LP_FORM_DIMS = 16 };

/* A destination as equal units of bytes in a strided grid: elements, or whole rows of a sub-byte dtype. Traces hold
 * destinations only whose strides nest and whose sizes do not overflow. */
typedef struct lp_form {
    int64_t unit, bytes, span;
    int32_t ndim;
    int64_t shape[LP_FORM_DIMS], stride[LP_FORM_DIMS];
} lp_form;
void lp_destination_form(const lp_destination *dest, lp_form *form);

/* form_walk.c: the bytes of `form` at `data` (element [0, ..., 0]; strides of any sign) in row-major order, in pieces
 * of a multiple of eight bytes except for the last one. */
typedef lp_status (*lp_piece_fn)(void *context, const void *data, int64_t bytes, lp_error *err);
lp_status lp_form_walk(const lp_form *form, const void *data, const lp_alloc *alloc, lp_piece_fn piece, void *context,
                       lp_error *err);

/* The bytes from element [0, ..., 0] to one past the last one. */
int64_t lp_destination_span(const lp_destination *dest);
int64_t lp_destination_payload(const lp_destination *dest); /* logical bytes */

/* destinations.c: the scope of a trace that `scope` means (see lp_bind), and its rows. */
lp_status lp_replay_rows(const lp_trace *trace, const lp_scope *scope, int32_t *index, const lp_rows **rows,
                         lp_error *err);

/* plan_places.c: destinations against the memory that the caller has; storages and groups. */
lp_status lp_plan_places(lp_plan *plan, const lp_destination_memory *dest, int64_t ndest, lp_error *err);
void lp_plan_group_bytes(lp_plan *plan); /* once it is known which storages are written */

/* plan_steps.c: records and derives of the scope, order made free, sorted by name. */
lp_status lp_plan_steps(lp_plan *plan, const lp_expert_map *experts, lp_error *err);
lp_status lp_plan_keep_map(lp_plan *plan, const lp_map *map, lp_error *err); /* owns it, also on failure */
lp_status lp_plan_add_step(lp_plan *plan, const lp_step *step, lp_error *err);

/* What the records of one scope do: a step for each, further ones behind them, and derives in place of those whose step
 * has no map. In memory of plan->platform.alloc, freed with lp_scope_steps_free. */
typedef struct lp_scope_steps {
    lp_step *step;
    int64_t count, capacity;
    lp_derive *derive;
    int64_t derive_count, derive_capacity;
} lp_scope_steps;
void lp_scope_steps_free(const lp_plan *plan, lp_scope_steps *steps);

/* plan_order.c: cuts from the steps of records with seq what later ones overwrite. */
lp_status lp_plan_free_order(lp_plan *plan, const lp_rows *rows, lp_scope_steps *steps, lp_error *err);

/* plan_overlap.c: refuses two steps of names that write one byte, unless they write the same. */
lp_status lp_plan_check_overlaps(const lp_plan *plan, lp_error *err);

/* plan_experts.c: steps and derives of slotted destinations by another expert map. */
lp_status lp_plan_experts(lp_plan *plan, const lp_expert_map *experts, lp_error *err);
/* Steps of a scope's records, order made free, which the caller frees. */
lp_status lp_plan_scope_steps(lp_plan *plan, const lp_rows *rows, lp_scope_steps *out, lp_error *err);

/* plan_bind.c: all of the memory is written anew from here on, by the plan's own expert map. */
void lp_plan_start_over(lp_plan *plan);

/* plan_bind.c: the source bytes that an entry needs; `ranges` is initialised and gets them, normalised. */
lp_status lp_plan_entry_ranges(const lp_plan *plan, const lp_entry *entry, struct lp_ranges *ranges, lp_error *err);

/* destinations.c: a row's place in its storage, which may be NULL (meta). */
lp_destination_memory lp_memory_of(const lp_destination *dest, uint8_t *storage, int64_t storage_bytes);

/* plan_jobs.c: who waits for whom. */
lp_status lp_plan_jobs(lp_plan *plan, lp_error *err);

#endif
