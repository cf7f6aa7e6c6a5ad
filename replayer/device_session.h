/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans and sessions whose destinations lie in the memory of a device. Private to the replayer.
 *
 *   calls   what a device can do, as a table, so that tests run everything in host memory and with faults
 *   side    what a plan on a device has besides: its program, its derives, all the memory that its sessions use
 *   item    what the program moves at a time: the part of one name that one unit takes, or that derives stage
 *   unit    commit groups that become live together: those that a derive joins are one
 *   slot    where the bytes of a name wait: a part of device staging, or of the host spill
 *
 * The host decides and counts as in any session (session.h); bytes only ever move by calls on the session's stream, in
 * the order in which they are given, so that memory may be used again as soon as the call that reads it was made.
 */
#ifndef LOADPLAN_DEVICE_SESSION_H
#define LOADPLAN_DEVICE_SESSION_H

#include "replayer/device_arena.h"
#include "replayer/device_derive.h"
#include "replayer/dummy_values.h"
#include "replayer/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lp_session;
struct lp_device_side;

/* Calls return 0 or a code for error_text, unless they take an lp_error. A stream is the caller's, NULL the default
 * one. Everything that takes a stream is done in its order and may be under way when the call returns. */
typedef struct lp_device_calls {
    void *context;
    const char *(*error_text)(void *context, int code);
    int (*enter)(void *context, int *before);              /* makes the device current, */
    void (*leave)(void *context, int before);              /* and the one before again */
    int (*take)(void *context, int64_t bytes, void **out); /* device memory */
    void (*give)(void *context, void *memory);             /* NULL is allowed, here and below */
    int (*take_pinned)(void *context, int64_t bytes, void **out);
    void (*give_pinned)(void *context, void *memory);
    int (*is_ours)(void *context, const void *data, bool *yes); /* whether it is memory of this device */
    int (*is_captured)(void *context, void *stream, bool *yes); /* whether the stream is being captured */
    /* Between any two kinds of memory. Bytes of pageable memory have been read when it returns. */
    int (*copy)(void *context, void *to, const void *from, int64_t bytes, void *stream);
    /* `rows` rows of `bytes`, both kinds as above; a pitch is below 2^31. */
    int (*copy_rows)(void *context, void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t bytes,
                     int64_t rows, void *stream);
    /* Bytes [lo, hi) of a strided tensor in row-major order; `to` is where byte lo goes. */
    int (*gather)(void *context, void *to, const void *from, const lp_form *form, int64_t lo, int64_t hi, void *stream);
    int (*clear)(void *context, void *memory, int64_t bytes, void *stream);
    int (*dummy)(void *context, const lp_dummy *values, void *stream);
    int (*wait)(void *context, void *stream);

    lp_status (*program_open)(void *context, void **program, const struct lp_device_side *side, lp_error *err);
    void (*program_close)(void *context, void *program);
    int64_t (*program_bytes)(void *context, const void *program);
    /* Pushes from now on leave so many processors to what runs beside them. NULL: there are none to leave. */
    void (*program_leave)(void *context, void *program, int processors);
    /* `item` rises; base[i] is where byte 0 of the name of item[i] would be. */
    lp_status (*program_push)(void *context, void *program, const uint32_t *item, const void *const *base,
                              uint32_t count, void *stream, lp_error *err);

    int (*derives_open)(void *context, void **derives, lp_derive_table *table);
    void (*derives_close)(void *context, void *derives);
    int64_t (*derives_bytes)(void *context, const void *derives);
    int (*derives_run)(void *context, void *derives, const uint32_t *job, uint32_t count, void *stream);
    int (*derives_forget)(void *context, void *derives, void *stream);
    int (*derives_outcomes)(void *context, void *derives, lp_derive_outcome *out, void *stream); /* waits */

    /* Of `count` destinations from `first` on; sums: device memory for that many lp_value_sum. Waits. */
    lp_status (*digests)(void *context, const lp_plan *plan, uint32_t first, uint32_t count, void *sums,
                         uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err);
} lp_device_calls;

/* "cuda:0". LP_E_DEVICE: there is none, or the build is without CUDA. */
lp_status lp_cuda_calls(lp_device_calls *out, const char *name, bool captures, lp_error *err);
void lp_cuda_calls_close(lp_device_calls *calls);

/* LP_E_DEVICE with the device's words when code is not 0. */
lp_status lp_device_check(const lp_device_calls *calls, int code, const char *verb, lp_error *err);

/* ---- what bind makes ---- */

/* Stands for the address of a name of which no byte is read. */
#define LP_NO_BYTES ((const void *)(uintptr_t)4096)

typedef struct lp_item_step {
    const lp_step *step;
    uint8_t *to; /* what destination offset 0 means */
} lp_item_step;

typedef struct lp_device_item {
    uint32_t entry; /* LP_NONE: the fills of begin */
    uint32_t unit;  /* LP_NONE: staged inputs of derives */
    uint32_t first_step, step_count;
    int64_t bytes; /* written to destinations */
} lp_device_item;

typedef struct lp_device_unit {
    uint32_t first_item, item_count;   /* in unit_item: what a commit pushes, staged inputs of its derives too */
    uint32_t first_entry, entry_count; /* in unit_entry: names that it waits for, by falling size */
    uint32_t first_job, job_count;     /* in unit_job: derives into it, in order */
    uint32_t group;                    /* one of its commit groups */
} lp_device_unit;

typedef struct lp_device_side {
    lp_device_calls calls;
    bool owns_calls; /* made by bind */
    bool captures;   /* pushes may be captured */
    const lp_alloc *alloc;
    char name[64];

    lp_item_step *step; /* by item */
    lp_device_item *item;
    uint32_t item_count;
    uint32_t *entry_item; /* by entry, and one more: its first item */
    uint32_t fill_item;   /* LP_NONE: no fills of begin */

    uint32_t *unit_of_group;
    lp_device_unit *unit;
    uint32_t unit_count;
    uint32_t *unit_item, *unit_entry, *unit_job;
    uint32_t *entry_first_unit, *entry_unit; /* by entry, and one more: units that wait for it */
    uint32_t *shared;                        /* names that several units wait for */
    uint32_t shared_count;

    uint8_t **stage; /* by staged input */
    int64_t stage_bytes;
    int64_t largest; /* slot of the largest name */
    uint8_t *block;  /* stages, sums, then staging */
    void *sums;
    uint8_t *staging;
    int64_t staging_bytes; /* without the stages */
    uint8_t *spill;
    int64_t spill_bytes;
    int64_t device_bytes; /* everything that was taken */

    void *program, *derives;
    uint32_t *check_job; /* by outcome: its job */
    uint32_t check_count;
    lp_derive_outcome *outcome;
} lp_device_side;

/* device_bind.c. `calls` NULL: those of options->device. */
lp_status lp_device_bind(lp_plan *plan, const lp_bind_options *options, const lp_device_calls *calls, lp_error *err);
void lp_device_unbind(lp_plan *plan); /* a plan of the host is allowed */
/* As lp_bind, on a device given by a table (NULL: as options say). */
lp_status lp_bind_with(lp_plan **out, const lp_trace *trace, const lp_scope *scope, const lp_destination_memory *dest,
                       int64_t ndest, const lp_bind_options *options, const lp_device_calls *calls, lp_error *err);

/* device_units.c: units, items and who waits for whom. */
lp_status lp_device_units(const lp_plan *plan, lp_device_side *side, lp_error *err);
void lp_device_units_free(lp_device_side *side);

/* Where the slot of an entry begins and ends, in bytes of its tensor: multiples of LP_SLOT_ALIGN, so that what lies at
 * an even address in a tensor lies at one in its slot. */
enum { LP_SLOT_ALIGN = 256, LP_SHARED_MAX = 256 /* more shared names are not played through */ };
static inline int64_t lp_slot_lo(const lp_entry *e)
{
    return e->need_lo / LP_SLOT_ALIGN * LP_SLOT_ALIGN;
}
static inline int64_t lp_slot_bytes(const lp_entry *e)
{
    const int64_t bytes = e->need_hi - lp_slot_lo(e);
    return (bytes + LP_SLOT_ALIGN - 1) / LP_SLOT_ALIGN * LP_SLOT_ALIGN;
}

/* ---- sessions ---- */

typedef enum lp_slot_place { LP_SLOT_NONE = 0, LP_SLOT_STAGING, LP_SLOT_SPILL, LP_SLOT_BOUNCE } lp_slot_place;

typedef struct lp_device_name {
    const void *base; /* of byte 0 of a name that is complete; NULL: it is not, or it is done with */
    int64_t slot_off;
    lp_slot_place place;
    bool is_placed;      /* parts go to their places as they come */
    uint32_t units_left; /* that have not taken it yet */
} lp_device_name;

typedef struct lp_device_session {
    lp_device_side *side;
    void *stream;
    lp_source_memory sources;
    lp_arena_map staging, spill;
    int64_t bounce_off;   /* layerwise: a slot for the largest name that waits for nothing; -1: none */
    bool is_bounce_used;  /* by a name that is the last of its units */
    bool has_filled;      /* the fills of begin are under way */
    bool is_spill_read;   /* copies out of the spill may be under way */
    bool is_moving;       /* something was started on the stream */
    lp_device_name *name; /* by entry */
    uint32_t *unit_left;  /* by unit: names that it waits for */
    uint8_t *unit_state;  /* 1: committed */
    uint32_t *unit_ready; /* units to commit, a list */
    uint32_t unit_ready_count;
    uint32_t *done; /* entries whose items wait for the next push, in order of arrival */
    uint32_t done_count;
    uint32_t *push_item; /* work space: a push, a wave */
    const void **push_base;
    uint32_t *wave, *next_wave;
    uint32_t *unit_stamp, *unit_guess; /* of one call */
    int64_t *unit_coming, *unit_held;  /* by unit: bytes that have no slot yet, and that are in slots of it alone */
    uint32_t *unit_top;                /* by unit: no name before this one is still to come */
    bool *is_unit_open;
    uint8_t *play;              /* by unit: its part in one play, zero between */
    uint32_t *open, open_count; /* units that hold slots, oldest first */
    uint32_t *shared_left;      /* by shared name, of one play: units that still wait for it */
    bool *shared_came;
    int64_t staging_peak, spill_peak;
} lp_device_session;

/* device_session_begin.c */
lp_status lp_device_begin(struct lp_session *s, const lp_session_options *o, lp_error *err); /* before any write */
lp_status lp_device_start(struct lp_session *s, lp_error *err);                              /* the writes of begin */
lp_status lp_device_finish(struct lp_session *s, lp_error *err);
void lp_device_end(struct lp_session *s);
lp_status lp_device_digests(const lp_plan *plan, uint32_t first, uint32_t count,
                            uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err);
/* Copies all storages of a plan on a device into those of a plan of the same rows in host memory. */
lp_status lp_device_fetch(const lp_plan *from, lp_plan *to, lp_error *err);

/* device_session_push.c */
lp_status lp_device_push_range(struct lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                               lp_source_memory memory, lp_error *err);
lp_status lp_device_push_strided(struct lp_session *s, lp_handle handle, const lp_form *form, const void *data,
                                 lp_source_memory memory, lp_error *err);
lp_status lp_device_mark(struct lp_session *s, uint32_t entry, lp_error *err); /* loaded by the caller */
/* device_session_many.c */
lp_status lp_device_push_many(struct lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                              lp_error *err);

/* device_session_room.c */
lp_status lp_device_take_slot(struct lp_session *s, uint32_t entry, lp_error *err); /* an entry may have one already */
void lp_device_drop_slot(struct lp_session *s, uint32_t entry);                     /* or none */
lp_status lp_device_no_room(struct lp_session *s, uint32_t entry, lp_error *err);   /* LP_E_LIMIT with its words */
/* Whether a push of all of an entry from host memory would find room. LP_E_LIMIT as a push. */
lp_status lp_device_has_room(struct lp_session *s, uint32_t entry, lp_error *err);

/* device_session_play.c */
bool lp_device_is_last(const struct lp_session *s, uint32_t entry); /* all of its units wait for it alone */
/* The bytes of a name count as coming to its units (sign 1), or no longer (-1). */
void lp_device_note_coming(struct lp_session *s, uint32_t entry, int sign);
/* A slot that only one unit waits for is free when that unit has committed. */
void lp_device_note_held(struct lp_session *s, uint32_t entry, int sign);

/* device_session_commit.c */
lp_status lp_device_complete(struct lp_session *s, uint32_t entry, const void *base, lp_error *err);
/* Direct mode: the name is complete as it is in memory; what waits for it runs at the next flush. */
void lp_device_keep(struct lp_session *s, uint32_t entry);
lp_status lp_device_flush(struct lp_session *s, lp_error *err); /* pushes what is complete, runs what became ready */
lp_status lp_device_commit_rest(struct lp_session *s, lp_error *err);

/* device_session_read.c: lp_push_checkpoint_with. */
lp_status lp_device_read(struct lp_session *s, const lp_checkpoint *checkpoint, lp_read_stats *stats,
                         int (*progress)(void *context, int64_t done, int64_t total), void *context, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
