/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sync, private to the replayer. An epoch goes through these steps:
 *
 *   agree   (sync_agree.c)   a round of the transport; every rank says what it has, all come to one verdict
 *   frames  (sync_flow.c)    buckets out and in, two a side, while the caller reads or replays the other one
 *           (sync_lane*.c)   the same where payloads stay in the memory of a device
 *           (sync_packed.c, sync_sliced.c, sync_delta.c decide what is in them, sync_frames.c goes through the lists)
 *   finish  (sync.c, sync_receive.c)  the session ends, and nobody reports success before all have
 */
#ifndef LOADPLAN_SYNC_PRIVATE_H
#define LOADPLAN_SYNC_PRIVATE_H

#include "replayer/plan.h"
#include "replayer/sync.h"
#include "replayer/sync_frame.h"
#include "replayer/sync_piece.h"

enum { LP_SYNC_GROUP = 64, LP_SYNC_BUCKET = 64 << 20, LP_SYNC_BUCKET_LEAST = 256 };

/* What a rank says of itself at the start of an epoch. */
typedef struct lp_fact {
    bool is_sender, takes_delta; /* takes_delta: a receiver in direct mode */
    lp_sync_mode mode;           /* of senders */
    int64_t bucket;
    int64_t seen;        /* the highest epoch it took part in */
    int64_t wanted;      /* the epoch it demands, or 0 */
    int64_t held;        /* receivers: the epoch whose bytes it holds; senders: that of the shadow; 0: none */
    uint8_t lineage[32]; /* agreement of that epoch */
    uint8_t catalogue[32], set[32];
    uint64_t share_key; /* what its shares were made of; 0: they have to be made anew */
    bool gives_content; /* senders: they speak for whole tensors */
    char group[LP_SYNC_GROUP];
    const uint8_t *used;  /* receivers, a bit for each name: it reads some of it */
    const uint8_t *whole; /* likewise: a delta has to bring all of it */
} lp_fact;

struct lp_slices;
struct lp_shadow;
struct lp_applier;
struct lp_sync_lane;

struct lp_sync {
    lp_platform platform;
    const lp_alloc *alloc;
    lp_transport transport;
    const lp_trace *trace;
    const lp_checkpoint *catalogue;
    lp_sync_options options;
    char group[LP_SYNC_GROUP];
    uint8_t set[32], catalogue_digest[32];
    int64_t seen, held;
    uint8_t lineage[32];
    lp_plan *plan; /* of the last lp_sync_recv */

    /* of the epoch */
    lp_round round;
    int64_t epoch, bucket, begin_ns;
    lp_sync_mode mode;
    uint8_t agreement[32], content[32];
    bool is_mismatch; /* all ranks found the same disagreement, so nobody has to be told */
    lp_fact *fact;    /* by rank; bitmaps are owned by facts_memory */
    uint8_t *facts_memory;
    bool *is_delta;    /* by rank: a receiver that gets changes only */
    lp_value_sum *sum; /* by name: what the senders' tensors add up to; NULL: not known */
    lp_sync_report report;

    /* buckets: of the transport; host: the same where the host can reach it, NULL where it need not. Two for frames out
     * and two for frames in, which are the same ones where a rank does only one of both. */
    void *bucket_memory[4];
    uint8_t *host[4];
    bool host_is_pinned[4]; /* by the lane */
    int64_t bucket_bytes;
    int bucket_count, first_in;
    struct lp_sync_lane *lane; /* NULL: never used */
    bool uses_lane;            /* of the epoch: payloads of packed and sliced frames stay on the device */

    lp_pieces *share; /* by sender, where senders hold parts; else NULL. Kept while ranks and plans stay the same */
    int32_t share_count;
    uint64_t share_key, share_serial; /* what they were made of; of a sender's source */
    struct lp_slices *slices;         /* schedule of sliced epochs, kept while ranks and plans stay the same */
    struct lp_shadow *shadow;         /* of delta epochs */
    struct lp_applier *applier;       /* of delta epochs into a device */
};

/* ---- sync.c: how an epoch ends ---- */

lp_status lp_sync_all_say_yes(lp_sync *s, lp_error *err); /* nobody returns before all have come so far */
/* Tells all ranks of a failure, unless they know. Returns status. */
lp_status lp_sync_end_badly(lp_sync *s, lp_status status, const lp_error *err);
/* Of an epoch that came to `status`: what is held from now on, or the failure; and the report, unless NULL. Returns
 * status. */
lp_status lp_sync_end(lp_sync *s, lp_status status, lp_sync_report *report, const lp_error *err);
void lp_sync_spoil(lp_sync *s); /* what was loaded is whole, but not everywhere */

/* ---- sync_agree.c ---- */

/* mine->used and mine->whole may be NULL (senders). Afterwards everything "of the epoch" is set but content and sum. */
lp_status lp_sync_agree(lp_sync *s, lp_fact *mine, lp_error *err);
void lp_sync_forget(lp_sync *s); /* what belongs to an epoch */
int64_t lp_bitmap_bytes(const lp_sync *s);
static inline bool lp_bit(const uint8_t *map, uint32_t i)
{
    return map != NULL && (map[i / 8] >> (i % 8) & 1) != 0;
}

/* ---- sync_content.c ---- */

/* The value digest of every tensor, from the senders' shares, and the content id of all: docs/distributed.md. Receivers
 * give NULL as source. Adds content to the agreement. */
lp_status lp_sync_content(lp_sync *s, const lp_sync_source *source, lp_error *err);
/* What came of a tensor, taken together, against what the senders announced. */
lp_status lp_sync_content_verify(const lp_sync *s, uint32_t name, const lp_value_sum *sum, lp_error *err);
/* ---- sync_share.c ---- */

struct lp_holdings;

/* Pieces of sender `index` of `count` when tensors are dealt out in order of the catalogue by bytes. use NULL: all
 * names. */
lp_status lp_sync_share(const lp_sync *s, lp_pieces *out, int32_t index, int32_t count,
                        bool (*use)(void *context, uint32_t name), void *context, lp_error *err);
/* Before ranks agree, by senders: forgets shares that were made of another source. */
void lp_sync_shares_of(lp_sync *s, const lp_sync_source *source);
void lp_sync_shares_free(lp_sync *s);
/* Comes to shares of the names that some receiver reads; receivers give NULL. Then what of them one sender speaks for:
 * whole ranges, or pieces with steps where senders hold parts. */
lp_status lp_sync_shares(lp_sync *s, const lp_sync_source *source, lp_error *err);
lp_status lp_sync_share_of(const lp_sync *s, lp_pieces *out, int32_t sender, bool (*use)(void *context, uint32_t name),
                           void *context, lp_error *err);
/* What a sender holds, as a block for gather, and back. */
lp_status lp_sync_say_holdings(lp_sync *s, const lp_sync_source *source, lp_text *out, lp_error *err);
lp_status lp_sync_take_holdings(lp_sync *s, const lp_block *all, struct lp_holdings *h, lp_error *err);

/* ---- sync_flow.c ---- */

/* Takes them, or keeps those that will do. is_seen: the host reads or writes what is in them. */
lp_status lp_flow_buckets(lp_sync *s, bool both_ways, bool is_seen, lp_error *err);
void lp_flow_release(lp_sync *s); /* them, and the lane */

typedef struct lp_outflow {
    lp_sync *s;
    int64_t ticket[2];
    bool is_under_way[2];
    int slot;
    uint8_t header[2][LP_FRAME_BYTES];
    lp_transfer *transfer;
    int64_t transfer_capacity;
} lp_outflow;

void lp_out_init(lp_outflow *f, lp_sync *s);
/* The bucket that is free next, for the caller to fill. */
lp_status lp_out_bucket(lp_outflow *f, uint8_t **bucket, lp_error *err);
/* Sends the filled bucket to some ranks. */
lp_status lp_out_send(lp_outflow *f, const int32_t *peer, int32_t peers, int64_t sequence, int64_t bytes,
                      int64_t next_bytes, lp_error *err);
lp_status lp_out_drain(lp_outflow *f, lp_error *err);
void lp_out_free(lp_outflow *f); /* before its memory goes: what is still under way is cancelled */

typedef struct lp_inflow {
    lp_sync *s;
    int64_t ticket[2];
    lp_frame want[2];
    uint8_t header[2][LP_FRAME_BYTES];
    int first, posted;
} lp_inflow;

void lp_in_init(lp_inflow *f, lp_sync *s);
/* Says which frame comes after those already posted; at most two wait. */
lp_status lp_in_post(lp_inflow *f, int32_t sender, int64_t sequence, int64_t bytes, lp_error *err);
/* The oldest frame that was posted, verified; its payload lives until the next but one is posted. */
lp_status lp_in_take(lp_inflow *f, lp_frame *frame, const uint8_t **payload, lp_error *err);
void lp_in_free(lp_inflow *f); /* as lp_out_free */

/* ---- where a receiver's bytes go ---- */

typedef struct lp_sync_sink {
    void *context;
    lp_status (*push)(void *context, uint32_t name, int64_t off, const void *data, int64_t bytes, lp_error *err);
    /* Replaces a part of what an earlier epoch loaded: whole elements. */
    lp_status (*patch)(void *context, uint32_t name, int64_t off, const void *data, int64_t bytes, lp_error *err);
    /* Everything of the name that did not come is as it was. */
    lp_status (*keep)(void *context, uint32_t name, lp_error *err);
    /* Of sessions on a device: pieces that lie one after the other in its memory; what reads them is on the stream. */
    lp_status (*pieces)(void *context, const lp_piece *piece, int64_t count, const void *data, lp_error *err);
    void *stream;
    /* Likewise: parts of the name are going to be replaced on the stream. */
    lp_status (*open)(void *context, uint32_t name, lp_error *err);
} lp_sync_sink;

/* ---- sync_frames.c: frames of one pass, in the order in which they go ---- */

typedef struct lp_frame_out {
    const lp_pieces *pieces;
    int64_t number; /* of the frame in `pieces`, and its sequence */
    const int32_t *peer;
    int32_t peers;
} lp_frame_out;

typedef struct lp_frame_in {
    const lp_pieces *pieces;
    int64_t number;
    int32_t sender;
} lp_frame_in;

lp_status lp_frames_send(lp_sync *s, const lp_sync_source *source, const lp_frame_out *frame, int64_t count,
                         lp_error *err);
/* is_whole: names come whole, and are compared with what the senders announced where that is known. */
lp_status lp_frames_receive(lp_sync *s, const lp_frame_in *frame, int64_t count, const lp_sync_sink *sink,
                            bool is_whole, lp_error *err);

/* ---- sync_packed.c, sync_sliced.c, sync_delta.c ---- */

/* Who takes part in a pass: receivers whose is_delta is the given one. A sender goes through them by the steps of
 * sync_schedule.h, and a receiver through the senders, so that all links are in use. peer: room for all ranks; returns
 * how many they are, of a receiver all senders. Afterwards messages between all of them do not wait for others. */
lp_status lp_sync_partners(lp_sync *s, bool is_delta, int32_t *peer, int32_t *peers, lp_error *err);
lp_status lp_packed_send(lp_sync *s, const lp_sync_source *source, bool to_delta, lp_error *err);
lp_status lp_packed_receive(lp_sync *s, const lp_sync_sink *sink, lp_error *err);
lp_status lp_sliced_send(lp_sync *s, const lp_sync_source *source, lp_error *err);
lp_status lp_sliced_receive(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err);
void lp_slices_free(struct lp_slices *slices);
lp_status lp_delta_send(lp_sync *s, const lp_sync_source *source, lp_error *err);
lp_status lp_delta_receive(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err);
void lp_shadow_free(struct lp_shadow *shadow, const lp_alloc *alloc);
void lp_shadow_release(lp_sync *s);                /* what of it lies on a device */
void lp_applier_close(struct lp_applier *applier); /* NULL is allowed */

/* sync_frames.c: pieces of one frame from a source into a bucket in host memory. */
lp_status lp_sync_read_frame(lp_sync *s, const lp_sync_source *source, const lp_pieces *p, const lp_frame_span *frame,
                             uint8_t *bucket, lp_error *err);
static inline void lp_sync_alive(const lp_sync *s)
{
    if (s->transport.alive != NULL)
        s->transport.alive(s->transport.context);
}

#endif
