/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session, private to the replayer: what has arrived, what waits, what is staged.
 *
 * A push goes through four steps, and only the third may write: judge (is it allowed), reserve (take all memory that
 * the write needs, within the budget), write, arrive (count, and set off what became complete).
 */
#ifndef LOADPLAN_SESSION_H
#define LOADPLAN_SESSION_H

#include "replayer/derive_eval.h"
#include "replayer/plan.h"
#include "replayer/source_ranges.h"

struct lp_device_session;
struct lp_patch_places;

/* Eight bytes of a tensor of which a part has arrived: casts wait for whole elements. */
typedef struct lp_cell {
    int64_t index; /* byte offset / 8 */
    uint8_t mask;
    uint8_t byte[8];
} lp_cell;

typedef struct lp_span {
    int64_t lo, hi;
} lp_span;

/* What has arrived of one entry. */
typedef struct lp_track {
    lp_span *span; /* sorted, disjoint, not touching; NULL while `one` is enough */
    lp_span one;
    int64_t count, capacity;
    lp_ranges *need; /* needed source bytes; NULL until a part arrives */
    int64_t need_left;
    lp_cell *cell; /* sorted */
    int64_t cell_count, cell_capacity;
    bool is_expected, is_seen, is_complete;
} lp_track;

typedef struct lp_job_state {
    uint32_t waiting; /* names and jobs of this session that have to come first */
    bool will_run, is_done;
} lp_job_state;

typedef struct lp_group_state {
    uint32_t waiting; /* names and jobs of this session that write into it */
    bool is_open;
} lp_group_state;

typedef enum lp_session_state { LP_SESSION_OPEN, LP_SESSION_DONE, LP_SESSION_POISONED } lp_session_state;

struct lp_session {
    lp_plan *plan;
    const lp_alloc *alloc;
    lp_load_mode mode;
    bool allow_fallbacks, is_subset, is_layered;
    lp_session_state state;
    char reason[400]; /* when poisoned */
    bool has_written;

    lp_track *track;   /* by entry */
    lp_job_state *job; /* by job */
    uint32_t *ready;   /* jobs that can run, a stack */
    uint32_t ready_count;
    uint8_t **stage;       /* by staged input; NULL until its first byte */
    uint8_t **shadow;      /* by storage: its next content while its group is open; else NULL */
    lp_group_state *group; /* by group */
    uint32_t *group_first; /* layerwise: entries of each group in group_entry */
    uint32_t *group_entry;
    uint32_t *group_job, *job_link;         /* layerwise: jobs of each group, as linked lists that end in LP_NONE */
    uint32_t *group_storage, *storage_link; /* and its storages */
    uint32_t *group_stamp;                  /* by group and by job: the last visit */
    uint32_t *job_stamp, *job_stack;
    uint32_t *entry_stamp; /* by entry: names that one call has judged */
    uint32_t stamp;

    int64_t staging_limit, staging_used;
    uint32_t failed_job; /* the first check that failed, LP_NONE */
    lp_derive_check failed;
    uint8_t (*before)[LP_VALUE_DIGEST_BYTES];
    int64_t begin_ns;
    lp_report report;
    struct lp_device_session *on;  /* NULL: on the host, or without bytes */
    struct lp_patch_places *patch; /* session_patch.c; NULL: no part of a name was replaced */
};

/* session_track.c */
bool lp_track_overlaps(const lp_track *t, int64_t lo, int64_t hi, int64_t *first);
int64_t lp_track_end(const lp_track *t, int64_t x); /* end of the span that holds byte x; x when none does */
lp_status lp_track_reserve(lp_track *t, const lp_alloc *alloc, lp_error *err);       /* room for one more span */
void lp_track_add(lp_track *t, int64_t lo, int64_t hi);                              /* after reserve */
lp_status lp_track_reserve_cells(lp_track *t, const lp_alloc *alloc, lp_error *err); /* room for two more */
lp_cell *lp_track_cell(lp_track *t, int64_t index);                                  /* the cell, made if needed */
void lp_track_drop_cell(lp_track *t, lp_cell *cell);
void lp_track_free(lp_track *t, const lp_alloc *alloc);

/* session_begin.c */
int64_t lp_session_clock(void); /* nanoseconds */
lp_status lp_session_digests(const lp_plan *plan, uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], lp_error *err);
/* The same of the session's destinations, on its stream where it has one. */
lp_status lp_session_take_digests(const lp_session *s, uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], lp_error *err);

/* session_push.c. A poisoned session keeps the text of *err, which must not be NULL. */
lp_status lp_session_poison(lp_session *s, lp_status status, lp_error *err); /* returns status */
lp_status lp_session_usable(const lp_session *s, lp_error *err);
/* Whether a push is allowed; *entry is LP_NONE for a name that this scope does not use. */
lp_status lp_session_judge(const lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                           uint32_t *entry, lp_error *err);
/* Counts bytes that have been written, or will be in the order of a stream; *is_complete: now all needed ones are in.
 */
void lp_session_count(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, bool *is_complete);
/* The same of `count` runs, the first at lo, of which no byte has arrived before, after lp_session_reserve_need. */
void lp_session_count_runs(lp_session *s, uint32_t entry, int64_t lo, int64_t run, int64_t stride, int64_t count,
                           bool *is_complete);
/* The two halves of a push, for readers that have several under way: everything up to the first written byte (*entry is
 * LP_NONE for a name that this scope ignores), and everything after the last one. */
lp_status lp_session_admit(lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                           uint32_t *entry, lp_error *err);
lp_status lp_session_arrive(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, lp_error *err);

/* session_write.c */
/* The part of it that is not staging: what counting takes. */
lp_status lp_session_reserve_track(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, lp_error *err);
lp_status lp_session_reserve_need(lp_session *s, uint32_t entry, lp_error *err); /* what lp_session_count_runs takes */
lp_status lp_session_reserve(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, lp_error *err);
void lp_session_start_writing(lp_session *s);               /* the fills of begin, once */
void lp_session_first_touch(lp_session *s, uint32_t entry); /* the fills of the name, once */
void lp_session_write(lp_session *s, uint32_t entry, int64_t off, const uint8_t *data, int64_t bytes);
/* The part of it that is not casts, after which the caller counts: adds nothing up and changes nothing of the session,
 * so that several threads may do it for bytes that have been admitted. Returns what counts as written. */
int64_t lp_session_move(const lp_session *s, uint32_t entry, int64_t off, const uint8_t *data, int64_t bytes,
                        lp_pool *pool);
/* The casts of whole elements, at once. */
void lp_session_write_casts(lp_session *s, uint32_t entry, int64_t off, const uint8_t *data, int64_t bytes);
/* All needed bytes are here: cells that still lack some lack only bytes that no cast reads. */
void lp_session_flush_cells(lp_session *s, uint32_t entry);
uint8_t *lp_session_place(const lp_session *s, uint32_t dest); /* element [0, ..., 0], in the shadow if there is one */

/* session_jobs.c: a name is complete: jobs run and groups commit. */
lp_status lp_session_complete(lp_session *s, uint32_t entry, lp_error *err);
lp_status lp_session_run_ready(lp_session *s, lp_error *err);

/* session_finish.c: LP_E_VALUE with the text of a failed check, about the tensor of its first input. */
lp_status lp_session_check_failed(const lp_plan *plan, uint32_t job, const lp_derive_check *check, lp_error *err);

/* session_layers.c */
lp_status lp_layers_begin(lp_session *s, lp_error *err);
/* Bytes that opening the groups of this entry takes; marks nothing. */
int64_t lp_layers_wanted(lp_session *s, uint32_t entry);
lp_status lp_layers_open(lp_session *s, uint32_t entry, lp_error *err);
void lp_layers_less(lp_session *s, uint32_t group); /* one thing less to wait for; commits at none */
void lp_layers_entry_done(lp_session *s, uint32_t entry);
void lp_layers_refresh(lp_session *s, uint32_t entry); /* a fallback's region, written live by other code */
void lp_layers_commit_open(lp_session *s);
const char *lp_layers_push_first(const lp_session *s); /* a missing name of an open group, or NULL */
void lp_layers_free(lp_session *s);

/* dummy_values.c */
void lp_dummy_fill(const lp_plan *plan, uint32_t dest);

#endif
