/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What delta epochs share: where frames end, how they are read, the stretches of a share. Private to the replayer.
 *
 * A share is compared stretch by stretch, runs of its pieces cut at LP_CHANGE_STRETCH bytes. Stretches
 * make up windows, the unit in which a device compares; a frame is the records (sync_change.h) of whole windows, as
 * many as fit whatever changed in the next one. Behind the records of a frame stand the places of those of all of its
 * stretches (where each begins and its bytes, 32 bits each), the number of its first stretch, and how many they are.
 * Records of a device come in the order in which they were found.
 */
#ifndef LOADPLAN_SYNC_DELTA_H
#define LOADPLAN_SYNC_DELTA_H

#include "replayer/device_change.h"
#include "replayer/sync_private.h"

/* ---- sync_delta_frame.c ---- */

typedef struct lp_delta_rule {
    int64_t bucket;  /* most bytes of a frame */
    int64_t stretch; /* most bytes of a stretch, a multiple of 64 */
    int64_t window;  /* most that the records of a window and their ends take */
    int64_t
        reach; /* most stretches of a frame: several frames make an epoch, so that one is applied while others come */
} lp_delta_rule;

/* share: bytes of all that the sender compares. */
lp_delta_rule lp_delta_rule_of(int64_t bucket, int64_t share);

/* Most bytes of a stretch of elements of so many bytes. */
static inline int64_t lp_delta_most(const lp_delta_rule *r, int elem)
{
    const int64_t elements = r->stretch / elem < LP_CHANGE_ELEMENTS ? r->stretch / elem : LP_CHANGE_ELEMENTS;
    return elements * elem;
}

/* What a stretch takes of its window. */
static inline int64_t lp_delta_room(int64_t bytes)
{
    return lp_change_most(bytes) + (int64_t)sizeof(lp_change_place);
}

static inline int64_t lp_delta_frame_bytes(int64_t records, int64_t count)
{
    return records + (count + 1) * (int64_t)sizeof(lp_change_place);
}

/* Whether no window goes into a frame any more that holds so many bytes of records of `count` stretches: one that would
 * not fit whatever changed in it, or is left to the next frame, which is compared while this one is on its way. */
static inline bool lp_delta_is_full(const lp_delta_rule *r, int64_t records, int64_t count)
{
    return count >= r->reach || lp_delta_frame_bytes(records, count) + r->window > r->bucket;
}

/* Writes what stands behind the records. */
void lp_delta_put_table(uint8_t *out, const lp_change_place *place, uint32_t first, uint32_t count);

/* Reads a frame and calls `write` for each change (lp_change_get). LP_E_CORRUPT; the calls before it stand. */
lp_status lp_delta_get_frame(const uint8_t *data, int64_t bytes, const lp_checkpoint *catalogue, lp_change_write write,
                             void *context, lp_error *err);

/* ---- sync_delta_list.c ---- */

/* Stretches of a share, as they lie on a device. */
typedef struct lp_delta_list {
    const lp_alloc *alloc;
    lp_change_stretch *stretch; /* without addresses */
    int64_t count, capacity;
    uint32_t *window; /* windows + 1: first stretch of each */
    int64_t windows, window_capacity;
} lp_delta_list;

lp_status lp_delta_list_make(lp_delta_list *l, const lp_sync *s, const lp_pieces *share, lp_error *err);
void lp_delta_list_free(lp_delta_list *l);

/* The share of a sender, of everything that somebody reads. */
lp_status lp_delta_share(const lp_sync *s, int32_t sender, lp_pieces *out, lp_error *err);
bool lp_delta_same_share(const lp_pieces *a, const lp_pieces *b);

/* ---- shadows ---- */

struct lp_shadow {
    lp_pieces share;
    uint8_t *bytes; /* of the pieces, one after the other; NULL: it is on a device */
    bool is_filled; /* else there is nothing to compare with yet */
    struct lp_device_shadow *on;
};

/* Whether the name is read by a receiver of changes, and by one that needs all of it. */
bool lp_delta_is_read(const lp_sync *s, uint32_t name);
bool lp_delta_is_whole(const lp_sync *s, uint32_t name);

/* ---- receivers: frames of all senders, in turns ---- */

typedef struct lp_delta_turns {
    const lp_alloc *alloc;
    int32_t *sender, senders; /* in the order of a turn */
    int64_t *next;     /* by sender: bytes of its next frame, of which the first is empty and says how long the second
                          one is; -1: it has no more */
    int64_t *sequence; /* by sender */
    int32_t at;
} lp_delta_turns;

lp_status lp_delta_turns_open(lp_delta_turns *t, lp_sync *s, lp_error *err);
void lp_delta_turns_close(lp_delta_turns *t); /* also after an open that failed */
/* The sender of the next frame; -1: none has one. */
int32_t lp_delta_turn(lp_delta_turns *t);

/* ---- sync_delta_compare.c: senders whose weights the host reads ---- */

/* peers 0: the shadow alone is brought up to date. */
lp_status lp_delta_send_from_host(lp_sync *s, const lp_sync_source *source, const int32_t *peer, int32_t peers,
                                  lp_error *err);

/* ---- sync_delta_shadow.c, sync_delta_out.c: senders whose weights and shadow lie on a device ---- */

/* The shadow of s->shadow->share on the device. */
lp_status lp_device_shadow_open(lp_sync *s, lp_error *err);
void lp_device_shadow_close(struct lp_device_shadow *d);
/* Whether this sender compares on the device. */
bool lp_delta_is_on_device(const lp_sync *s, const lp_sync_source *source);
/* peers 0: the shadow alone is brought up to date. */
lp_status lp_device_shadow_send(lp_sync *s, const lp_sync_source *source, const int32_t *peer, int32_t peers,
                                lp_error *err);

/* ---- sync_delta_in.c: receivers on a device ---- */

lp_status lp_delta_apply(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err);

#endif
