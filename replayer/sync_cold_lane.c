/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cold start of several ranks on devices. Chunks are read into pinned memory and uploaded one behind the other; while
 * one is on its way, the one before is sent from the device to those that need some of it, and replayed:
 *
 *   up        uploads, each behind the replay of what was in its place before
 *   out, in   lanes of their own (sync_lane.h): parts packed and digested; what came digested
 *   session   the caller's: replay
 *
 * Every step sends to one rank and receives from another, in one group of messages; the next one is started before the
 * last one is looked at.
 */
#include "replayer/sync_cold_lane.h"

#include "replayer/session.h"
#include "replayer/device_session.h"
#include "replayer/device_session_pieces.h"
#include "replayer/sync_cold_read.h"
#include "replayer/sync_lane.h"
#include "replayer/transport_wire.h"

typedef struct step {
    bool is_open, sends, gets;
    int32_t to, from;
    int64_t chunk, out_bytes, in_bytes;
    int64_t payload, header_in, header_out; /* tickets */
    uint8_t mine[LP_FRAME_BYTES], theirs[LP_FRAME_BYTES];
} step;

typedef struct cold_lane {
    lp_sync *s;
    const lp_cold_world *w;
    lp_session *session;
    void *stream;
    const lp_nccl_device *d;
    void *context;
    const lp_device_calls *calls;
    const lp_lane *lane;
    void *owner;
    lp_sync_lane *out, *in;
    lp_pieces own; /* of names that nobody else needs */
    lp_cold_reader *reader;
    uint8_t *pinned[LP_COLD_AHEAD];
    void *chunk[2], *got[2], *packed[2], *packed_here;
    void *up, *uploaded[2], *used[2]; /* used: what read the chunk on the session's stream */
    bool was_used[2];
    int64_t uploads, released, all; /* chunks of this rank: uploaded, given back to the reader, in all */
    step step[2];
    int64_t steps;
} cold_lane;

static lp_status check(const cold_lane *x, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, x->d->error_text(x->context, code));
}

lp_status lp_cold_lane_is_there(lp_sync *s, const lp_plan *plan, bool *yes, lp_error *err)
{
    const lp_transport *t = &s->transport;
    *yes = false;
    if (t->lane == NULL || plan->side == NULL)
        return LP_OK;
    const lp_device_calls *c = &plan->side->calls;
    void *own = t->take(t->context, LP_SYNC_BUCKET_LEAST);
    const int code = own == NULL ? 0 : c->is_ours(c->context, own, yes);
    if (own != NULL)
        t->give_back(t->context, own);
    return lp_device_check(c, code, "ask where messages lie", err);
}

/* ---- life ---- */

static lp_status take(const cold_lane *x, void **out, lp_error *err)
{
    return check(x, x->d->allocate(x->context, x->s->bucket, out), "take device memory for a chunk", err);
}

/* Whether all of a chunk goes to the rank, so that it is sent from where it is. */
static bool is_direct(const cold_lane *x, int32_t to, int64_t chunk)
{
    return x->w->out[to].frame[chunk].bytes == x->w->read.frame[chunk].bytes;
}

static bool needs_packing(const cold_lane *x, int32_t to)
{
    for (int64_t c = 0; c < x->w->chunks[x->w->rank]; c++)
        if (x->w->out[to].frame[c].bytes > 0 && !is_direct(x, to, c))
            return true;
    return false;
}

typedef struct own_list {
    lp_pieces *to;
    uint32_t name;
    lp_status status;
    lp_error *err;
} own_list;

static int add_own(void *context, int64_t lo, int64_t hi)
{
    own_list *l = context;
    l->status = lp_pieces_add_range(l->to, l->name, lo, hi, l->err);
    return l->status != LP_OK;
}

static lp_status list_own(cold_lane *x, lp_error *err)
{
    const lp_plan *plan = x->session->plan;
    own_list l = {.to = &x->own, .status = LP_OK, .err = err};
    for (uint32_t i = 0; i < lp_checkpoint_count(x->s->catalogue); i++) {
        if (x->w->is_shared[i] || lp_plan_use(plan, i) != LP_USE_LOADED)
            continue;
        l.name = i;
        LP_TRY(lp_plan_reads(plan, i, add_own, &l, err));
        LP_TRY(l.status);
    }
    return lp_pieces_cut(&x->own, x->s->bucket, err);
}

static lp_status open_device(cold_lane *x, lp_error *err)
{
    const lp_cold_world *w = x->w;
    bool packs = false;
    LP_TRY(lp_sync_lane_new(x->s, &x->out, err));
    LP_TRY(lp_sync_lane_new(x->s, &x->in, err));
    LP_TRY(check(x, x->d->stream_open(x->context, false, &x->up), "open a stream", err));
    for (int32_t i = 0; i < w->ranks; i++)
        packs = packs || (i != w->rank && needs_packing(x, i));
    for (int i = 0; i < 2; i++) {
        LP_TRY(check(x, x->d->event_open(x->context, &x->uploaded[i]), "make an event", err));
        LP_TRY(check(x, x->d->event_open(x->context, &x->used[i]), "make an event", err));
        LP_TRY(take(x, &x->chunk[i], err));
        LP_TRY(take(x, &x->got[i], err));
        if (packs)
            LP_TRY(take(x, &x->packed[i], err));
    }
    if (needs_packing(x, w->rank))
        LP_TRY(take(x, &x->packed_here, err));
    for (int i = 0; i < LP_COLD_AHEAD; i++) {
        void *memory = NULL;
        LP_TRY(check(x, x->d->take_pinned(x->context, x->s->bucket, &memory), "pin memory", err));
        x->pinned[i] = memory;
    }
    return LP_OK;
}

static void close_device(cold_lane *x)
{
    void *const block[] = {x->chunk[0], x->chunk[1], x->got[0], x->got[1], x->packed[0], x->packed[1], x->packed_here};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i] != NULL)
            x->d->release(x->context, block[i]);
    void *const event[] = {x->uploaded[0], x->uploaded[1], x->used[0], x->used[1]};
    for (size_t i = 0; i < sizeof event / sizeof *event; i++)
        if (event[i] != NULL)
            x->d->event_close(x->context, event[i]);
    for (int i = 0; i < LP_COLD_AHEAD; i++)
        if (x->pinned[i] != NULL)
            x->d->give_pinned(x->context, x->pinned[i]);
    if (x->up != NULL)
        x->d->stream_close(x->context, x->up);
    lp_sync_lane_close(x->out, x->s->alloc);
    lp_sync_lane_close(x->in, x->s->alloc);
}

/* ---- chunks ---- */

static int slot_of(int64_t number)
{
    return (int)(number % 2);
}

/* The pinned memory of chunks is the reader's again when they are up. */
static lp_status release(cold_lane *x, int64_t until, lp_error *err)
{
    for (; x->released < until; x->released++) {
        LP_TRY(x->lane->await(x->owner, x->uploaded[slot_of(x->released)], -1, err));
        lp_cold_reader_give(x->reader);
    }
    return LP_OK;
}

static int64_t bytes_of_upload(const cold_lane *x, int64_t number)
{
    const int64_t shared = x->w->chunks[x->w->rank];
    return number < shared ? x->w->read.frame[number].bytes : x->own.frame[number - shared].bytes;
}

/* Starts uploads up to chunk `last`; one may be under way while the next is. */
static lp_status upload(cold_lane *x, int64_t last, int64_t *bytes_read, lp_error *err)
{
    for (; x->uploads <= last && x->uploads < x->all; x->uploads++) {
        const int k = slot_of(x->uploads);
        const int64_t bytes = bytes_of_upload(x, x->uploads);
        const uint8_t *data = NULL;
        LP_TRY(lp_cold_reader_take(x->reader, &data, err));
        LP_TRY(release(x, x->uploads - 1, err)); /* its event is used again */
        if (x->was_used[k])
            LP_TRY(check(x, x->d->stream_wait(x->context, x->up, x->used[k]), "order an upload", err));
        if (bytes > 0)
            LP_TRY(check(x, x->d->copy(x->context, x->chunk[k], data, bytes, x->up), "copy to the device", err));
        LP_TRY(check(x, x->d->event_set(x->context, x->uploaded[k], x->up), "mark a stream", err));
        *bytes_read += bytes;
        LP_TRY(release(x, x->uploads, err));
        lp_sync_alive(x->s);
    }
    return LP_OK;
}

/* ---- parts of a chunk ---- */

/* The stretch of the chunk that a byte is in, and where it is. */
static const lp_piece *find_stretch(const cold_lane *x, int64_t chunk, const lp_piece *p, int64_t lo, int64_t *at)
{
    const lp_pieces *share = &x->w->read;
    const lp_frame_span *frame = &share->frame[chunk];
    const lp_piece *found = &share->piece[frame->first];
    int64_t before = 0;
    *at = 0;
    for (int64_t i = 0; i < frame->count; i++) {
        const lp_piece *stretch = &share->piece[frame->first + i];
        if (stretch->name > p->name || (stretch->name == p->name && stretch->lo > lo))
            break;
        found = stretch;
        *at = before;
        before += lp_piece_bytes(stretch);
    }
    const int64_t run = found->count > 1 ? (lo - found->lo) / found->stride : 0;
    *at += run * found->run + (lo - found->lo - run * found->stride);
    return found;
}

static lp_status pack_piece(const cold_lane *x, int64_t chunk, const lp_piece *p, uint8_t *to, void *stream,
                            lp_error *err)
{
    const uint8_t *from = x->chunk[slot_of(chunk)];
    int64_t first, last;
    const lp_piece *stretch = find_stretch(x, chunk, p, p->lo, &first);
    const bool is_one = p->count > 1 &&
                        stretch == find_stretch(x, chunk, p, p->lo + (p->count - 1) * p->stride, &last) &&
                        (stretch->count == 1 || stretch->stride == p->stride) && p->stride <= INT32_MAX;
    if (is_one)
        return check(x,
                     x->calls->copy_rows(x->calls->context, to, p->run, from + first,
                                         stretch->count == 1 ? p->stride : stretch->run, p->run, p->count, stream),
                     "pack a part", err);
    for (int64_t k = 0; k < p->count; k++) {
        (void)find_stretch(x, chunk, p, p->lo + k * p->stride, &first);
        LP_TRY(check(x, x->calls->copy(x->calls->context, to + k * p->run, from + first, p->run, stream), "pack a part",
                     err));
    }
    return LP_OK;
}

/* What a rank needs of a chunk that is up, packed in the order of the stream, or where it is. */
static lp_status pack(const cold_lane *x, int64_t chunk, int32_t to, void *room, void *stream, void **data,
                      lp_error *err)
{
    const lp_frame_span *want = &x->w->out[to].frame[chunk];
    LP_TRY(check(x, x->d->stream_wait(x->context, stream, x->uploaded[slot_of(chunk)]), "order a part", err));
    *data = is_direct(x, to, chunk) ? x->chunk[slot_of(chunk)] : room;
    uint8_t *at = *data;
    for (int64_t i = want->first; i < want->first + want->count && *data == room; i++) {
        LP_TRY(pack_piece(x, chunk, &x->w->out[to].piece[i], at, stream, err));
        at += lp_piece_bytes(&x->w->out[to].piece[i]);
    }
    return LP_OK;
}

static lp_status push(const cold_lane *x, const lp_pieces *p, const lp_frame_span *f, const void *data, lp_error *err)
{
    return lp_device_push_pieces(x->session, &p->piece[f->first], f->count, data, err);
}

static lp_status mark_used(cold_lane *x, int64_t number, lp_error *err)
{
    x->was_used[slot_of(number)] = true;
    return check(x, x->d->event_set(x->context, x->used[slot_of(number)], x->stream), "mark a stream", err);
}

/* This rank's own part of a chunk that it has read. */
static lp_status push_here(cold_lane *x, int64_t chunk, lp_error *err)
{
    const int32_t me = x->w->rank;
    void *data = NULL;
    if (x->w->out[me].frame[chunk].bytes == 0)
        return LP_OK;
    LP_TRY(pack(x, chunk, me, x->packed_here, x->stream, &data, err));
    LP_TRY(push(x, &x->w->out[me], &x->w->out[me].frame[chunk], data, err));
    return mark_used(x, chunk, err);
}

/* ---- steps ---- */

static lp_status start_step(cold_lane *x, int64_t chunk, int32_t number, lp_error *err)
{
    const lp_cold_world *w = x->w;
    const lp_transport *t = &x->s->transport;
    const int k = slot_of(x->steps);
    step *e = &x->step[k];
    lp_transfer transfer[2];
    int64_t count = 0;
    void *data = NULL;
    *e = (step){.to = (w->rank + number) % w->ranks, .from = (w->rank - number + w->ranks) % w->ranks, .chunk = chunk};
    e->out_bytes = chunk < w->chunks[w->rank] ? w->out[e->to].frame[chunk].bytes : 0;
    e->in_bytes = chunk < w->chunks[e->from] ? w->in[e->from].frame[chunk].bytes : 0;
    e->sends = e->out_bytes > 0;
    e->gets = e->in_bytes > 0;
    if (!e->sends && !e->gets)
        return LP_OK;
    x->steps++;
    if (e->sends) {
        LP_TRY(pack(x, chunk, e->to, x->packed[k], x->out->aside, &data, err));
        LP_TRY(check(x, x->d->event_set(x->context, x->out->bucket[k].packed, x->out->aside), "mark a stream", err));
        LP_TRY(x->lane->after(x->owner, x->out->bucket[k].packed, err));
        transfer[count++] = (lp_transfer){.peer = e->to, .is_send = true, .data = data, .bytes = e->out_bytes};
    }
    if (e->gets) {
        const lp_transfer header = {.peer = e->from, .is_host = true, .data = e->theirs, .bytes = LP_FRAME_BYTES};
        LP_TRY(t->start(t->context, &header, 1, &e->header_in, err));
        if (x->in->bucket[k].was_replayed)
            LP_TRY(x->lane->after(x->owner, x->in->bucket[k].freed, err));
        transfer[count++] = (lp_transfer){.peer = e->from, .data = x->got[k], .bytes = e->in_bytes};
    }
    LP_TRY(t->start(t->context, transfer, count, &e->payload, err));
    e->is_open = true;
    if (e->sends)
        LP_TRY(lp_lane_digest(x->out, k, data, e->out_bytes, err));
    if (!e->gets)
        return LP_OK;
    LP_TRY(x->lane->follow(x->owner, e->payload, x->in->aside, err));
    return lp_lane_digest(x->in, k, x->got[k], e->in_bytes, err);
}

static lp_frame frame_of(const cold_lane *x, int32_t sender, int64_t chunk, int64_t bytes)
{
    lp_frame f = {.round = x->s->round.number,
                  .sender = sender,
                  .epoch = x->s->epoch,
                  .sequence = chunk,
                  .bytes = bytes,
                  .digest = LP_FRAME_VALUE};
    memcpy(f.agreement, x->s->agreement, sizeof f.agreement);
    return f;
}

static lp_status send_header(cold_lane *x, int k, lp_error *err)
{
    const lp_transport *t = &x->s->transport;
    step *e = &x->step[k];
    lp_frame f = frame_of(x, x->w->rank, e->chunk, e->out_bytes);
    const lp_transfer header = {
        .peer = e->to, .is_send = true, .is_host = true, .data = e->mine, .bytes = LP_FRAME_BYTES};
    LP_TRY(x->lane->await(x->owner, x->out->bucket[k].filled, -1, err));
    lp_lane_found(x->out, k, e->out_bytes, f.payload);
    lp_frame_put(&f, e->mine);
    return t->start(t->context, &header, 1, &e->header_out, err);
}

static lp_status replay(cold_lane *x, int k, lp_error *err)
{
    const step *e = &x->step[k];
    const lp_frame want = frame_of(x, e->from, e->chunk, e->in_bytes);
    uint8_t digest[16];
    lp_frame have;
    LP_TRY(lp_frame_get(e->theirs, &have, err));
    LP_TRY(lp_frame_expect(&have, &want, err));
    if (have.digest != LP_FRAME_VALUE)
        return lp_fail(err, LP_E_VERSION, "a frame with a digest of kind %u came for a device", have.digest);
    lp_lane_found(x->in, k, e->in_bytes, digest);
    LP_TRY(lp_frame_compare(&have, digest, err));
    LP_TRY(push(x, &x->w->in[e->from], &x->w->in[e->from].frame[e->chunk], x->got[k], err));
    LP_TRY(check(x, x->d->event_set(x->context, x->in->bucket[k].freed, x->stream), "mark a stream", err));
    x->in->bucket[k].was_replayed = true;
    return LP_OK;
}

static lp_status finish_step(cold_lane *x, int k, lp_error *err)
{
    const lp_transport *t = &x->s->transport;
    step *e = &x->step[k];
    if (!e->is_open)
        return LP_OK;
    e->is_open = false;
    if (e->sends)
        LP_TRY(send_header(x, k, err));
    if (e->gets) {
        LP_TRY(t->wait(t->context, e->header_in, err));
        LP_TRY(x->lane->await(x->owner, x->in->bucket[k].filled, e->from, err));
    }
    LP_TRY(t->wait(t->context, e->payload, err));
    if (e->gets)
        LP_TRY(replay(x, k, err));
    x->s->report.bytes_moved += e->in_bytes + e->out_bytes;
    x->s->report.frames += e->gets + e->sends;
    lp_sync_alive(x->s);
    return e->sends ? t->wait(t->context, e->header_out, err) : LP_OK;
}

static lp_status exchange_chunk(cold_lane *x, int64_t chunk, lp_error *err)
{
    for (int32_t number = 1; number < x->w->ranks; number++) {
        LP_TRY(start_step(x, chunk, number, err));
        LP_TRY(finish_step(x, slot_of(x->steps), err)); /* the one before */
    }
    LP_TRY(finish_step(x, 0, err));
    return finish_step(x, 1, err);
}

static lp_status load_all(cold_lane *x, int64_t *bytes_read, lp_error *err)
{
    const int64_t mine = x->w->chunks[x->w->rank];
    int64_t chunks = 0;
    for (int32_t i = 0; i < x->w->ranks; i++)
        chunks = x->w->chunks[i] > chunks ? x->w->chunks[i] : chunks;
    LP_TRY(upload(x, 0, bytes_read, err));
    for (int64_t c = 0; c < chunks; c++) {
        if (c < mine) {
            LP_TRY(upload(x, c + 1, bytes_read, err));
            LP_TRY(push_here(x, c, err));
        }
        LP_TRY(exchange_chunk(x, c, err));
    }
    for (int64_t o = 0; o < x->own.frame_count; o++) {
        LP_TRY(upload(x, mine + o + 1, bytes_read, err));
        LP_TRY(check(x, x->d->stream_wait(x->context, x->stream, x->uploaded[slot_of(mine + o)]), "order a push", err));
        LP_TRY(push(x, &x->own, &x->own.frame[o], x->chunk[slot_of(mine + o)], err));
        LP_TRY(mark_used(x, mine + o, err));
    }
    return release(x, x->uploads, err);
}

/* Whatever is under way is waited for, when what it may wait for was ended. */
static lp_status settle(cold_lane *x, lp_status status, lp_error *err)
{
    lp_error later = {.code = LP_OK};
    lp_status settled = LP_OK;
    if (status != LP_OK)
        x->s->transport.cancel(x->s->transport.context);
    void *const stream[] = {x->up, x->out == NULL ? NULL : x->out->aside, x->in == NULL ? NULL : x->in->aside,
                            x->stream};
    for (size_t i = 0; i < sizeof stream / sizeof *stream; i++) {
        if (stream[i] == NULL && i < 3)
            continue;
        const int code = x->d->stream_settle(x->context, stream[i]);
        if (settled == LP_OK)
            settled = check(x, code, "load", &later);
    }
    if (status != LP_OK || settled == LP_OK)
        return status;
    *err = later;
    return settled;
}

lp_status lp_cold_lane_load(lp_sync *s, const lp_cold_world *world, lp_session *session, void *stream,
                            const lp_sync_source *source, int threads, lp_cold_world_report *report, lp_error *err)
{
    const lp_lane *lane = s->transport.lane;
    cold_lane x = {.s = s,
                   .w = world,
                   .session = session,
                   .stream = stream,
                   .d = lane->device,
                   .context = lane->device->context,
                   .calls = &session->plan->side->calls,
                   .lane = lane,
                   .owner = s->transport.context};
    const lp_pieces *const list[2] = {&world->read, &x.own};
    lp_pieces_init(&x.own, s->alloc);
    lp_status status = list_own(&x, err);
    if (status == LP_OK)
        status = open_device(&x, err);
    if (status == LP_OK)
        status = lp_cold_reader_open(&x.reader, s, source, list, 2, x.pinned, threads, err);
    report->setup_nanoseconds = lp_clock_ns() - s->begin_ns;
    x.all = world->chunks[world->rank] + x.own.frame_count;
    if (status == LP_OK)
        status = load_all(&x, &report->bytes_read, err);
    lp_cold_reader_close(x.reader);
    status = settle(&x, status, err);
    close_device(&x);
    lp_pieces_free(&x.own);
    return status;
}
