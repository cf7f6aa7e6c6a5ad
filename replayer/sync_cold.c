/* SPDX-License-Identifier: Apache-2.0 */
/* A cold start of several ranks: each reads its share once, sends others what they need of it, and reads the rest of
 * its own. */
#include "replayer/quiet_thread.h"
#include "replayer/sync_cold_alone.h"
#include "replayer/sync_cold_lane.h"
#include "replayer/sync_cold_read.h"
#include "replayer/sync_private.h"
#include "replayer/sync_world.h"

#include "replayer/transport_wire.h"

#include <pthread.h>

enum { READERS = 16 }; /* threads of a rank on a device */

/* A chunk of this rank's share, read by a thread of its own while the one before is exchanged. */
typedef struct reading {
    const struct start *x;
    uint8_t *buffer;
    int64_t *offset; /* where each stretch of the chunk stands in the buffer; NULL: there is no chunk */
    int64_t chunk, bytes;
    pthread_t thread;
    bool is_running;
    lp_status status;
    lp_error err;
} reading;

typedef struct start {
    lp_sync *s;
    lp_cold_world world;
    lp_session *session;
    const lp_sync_source *source;
    bool on_device;       /* chunks go by the memory of the plan's device */
    lp_cold_alone *alone; /* NULL: it loads by a session in every case */
    reading read[2];
    lp_outflow out;
    lp_inflow in;
} start;

/* Where a byte of the chunk stands: the stretches of a chunk are in order of names and bytes. */
static const uint8_t *find_in_chunk(const reading *r, uint32_t name, int64_t lo)
{
    const lp_pieces *share = &r->x->world.read;
    const lp_frame_span *frame = &share->frame[r->chunk];
    int64_t low = 0, high = frame->count; /* the last stretch that begins at or before it */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const lp_piece *p = &share->piece[frame->first + middle];
        if (p->name < name || (p->name == name && p->lo <= lo))
            low = middle;
        else
            high = middle;
    }
    const lp_piece *p = &share->piece[frame->first + low];
    /* A stretch may be several runs: those of a union with even gaps. */
    const int64_t step = p->count > 1 ? (lo - p->lo) / p->stride : 0;
    return r->buffer + r->offset[low] + step * p->run + (lo - p->lo - step * p->stride);
}

/* Packs what one receiver needs of the chunk. */
static void pack(const reading *r, const lp_pieces *p, uint8_t *to)
{
    const lp_frame_span *want = &p->frame[r->chunk];
    for (int64_t i = want->first; i < want->first + want->count; i++) {
        const lp_piece *piece = &p->piece[i];
        for (int64_t k = 0; k < piece->count; k++) {
            memcpy(to, find_in_chunk(r, piece->name, piece->lo + k * piece->stride), (size_t)piece->run);
            to += piece->run;
        }
    }
}

static lp_status push_pieces(const start *x, const lp_pieces *p, int64_t chunk, const uint8_t *payload, lp_error *err)
{
    const lp_frame_span *f = &p->frame[chunk];
    for (int64_t i = f->first; i < f->first + f->count; i++) {
        const lp_piece *piece = &p->piece[i];
        for (int64_t k = 0; k < piece->count; k++) {
            LP_TRY(
                lp_push_handle_range(x->session, piece->name, piece->lo + k * piece->stride, payload, piece->run, err));
            payload += piece->run;
        }
        lp_sync_alive(x->s);
    }
    return LP_OK;
}

static void *read_chunk(void *context)
{
    reading *r = context;
    const start *x = r->x;
    r->status = lp_sync_read_frame(x->s, x->source, &x->world.read, &x->world.read.frame[r->chunk], r->buffer, &r->err);
    return NULL;
}

/* Begins to read a chunk of this rank, if it has so many. */
static lp_status begin_reading(start *x, reading *r, int64_t chunk, lp_error *err)
{
    int64_t at = 0;
    if (chunk >= x->world.chunks[x->world.rank])
        return LP_OK;
    const lp_frame_span *f = &x->world.read.frame[chunk];
    r->offset = lp_allocate(x->s->alloc, ((size_t)f->count + 1) * sizeof *r->offset);
    if (r->offset == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < f->count; i++) {
        r->offset[i] = at;
        at += lp_piece_bytes(&x->world.read.piece[f->first + i]);
    }
    r->x = x;
    r->chunk = chunk;
    r->bytes = at;
    r->is_running = lp_quiet_thread(&r->thread, read_chunk, r) == 0;
    if (!r->is_running)
        (void)read_chunk(r); /* without a thread it is only slower */
    return LP_OK;
}

static lp_status end_reading(reading *r, lp_error *err)
{
    if (r->is_running)
        pthread_join(r->thread, NULL);
    r->is_running = false;
    if (r->offset != NULL && r->status != LP_OK && err != NULL)
        *err = r->err;
    return r->offset == NULL ? LP_OK : r->status;
}

static void forget_reading(const start *x, reading *r)
{
    (void)end_reading(r, NULL);
    lp_release(x->s->alloc, r->offset);
    r->offset = NULL;
}

/* Frames of one pair of ranks are numbered by chunk. */
static lp_status exchange_chunk(start *x, int64_t chunk, const reading *r, lp_error *err)
{
    const lp_cold_world *w = &x->world;
    for (int32_t step = 0; step < w->ranks; step++) {
        const int32_t to = (w->rank + step) % w->ranks, from = (w->rank - step + w->ranks) % w->ranks;
        const bool sends = r->offset != NULL && w->out[to].frame[chunk].bytes > 0;
        const bool gets = chunk < w->chunks[from] && w->in[from].frame[chunk].bytes > 0;
        if (step == 0) {
            if (gets) { /* its own part */
                uint8_t *bucket = NULL;
                LP_TRY(lp_out_bucket(&x->out, &bucket, err));
                pack(r, &w->out[to], bucket);
                LP_TRY(push_pieces(x, &w->in[from], chunk, bucket, err));
            }
            continue;
        }
        if (gets)
            LP_TRY(lp_in_post(&x->in, from, chunk, w->in[from].frame[chunk].bytes, err));
        if (sends) {
            uint8_t *bucket = NULL;
            LP_TRY(lp_out_bucket(&x->out, &bucket, err));
            pack(r, &w->out[to], bucket);
            LP_TRY(lp_out_send(&x->out, &to, 1, chunk, w->out[to].frame[chunk].bytes, 0, err));
        }
        if (gets) {
            lp_frame frame;
            const uint8_t *payload = NULL;
            LP_TRY(lp_in_take(&x->in, &frame, &payload, err));
            LP_TRY(push_pieces(x, &w->in[from], chunk, payload, err));
        }
    }
    return LP_OK;
}

static lp_status exchange_all(start *x, int64_t *bytes_read, lp_error *err)
{
    const lp_cold_world *w = &x->world;
    int64_t chunks = 0;
    lp_status status = LP_OK;
    for (int32_t i = 0; i < w->ranks; i++)
        chunks = w->chunks[i] > chunks ? w->chunks[i] : chunks;
    status = begin_reading(x, &x->read[0], 0, err);
    for (int64_t chunk = 0; chunk < chunks && status == LP_OK; chunk++) {
        reading *now = &x->read[chunk % 2];
        status = end_reading(now, err);
        if (status == LP_OK)
            status = begin_reading(x, &x->read[(chunk + 1) % 2], chunk + 1, err);
        if (status == LP_OK)
            status = exchange_chunk(x, chunk, now, err);
        *bytes_read += now->offset != NULL ? now->bytes : 0;
        forget_reading(x, now);
    }
    for (int i = 0; i < 2; i++)
        forget_reading(x, &x->read[i]);
    return status == LP_OK ? lp_out_drain(&x->out, err) : status;
}

static lp_status load_by_lane(start *x, void *stream, lp_cold_world_report *report, lp_error *err)
{
    uint8_t *const memory = lp_cold_alone_memory(x->alone, LP_COLD_AHEAD * x->s->bucket);
    return lp_cold_lane_load(x->s, &x->world, x->session, stream, x->source, memory, READERS, report, err);
}

static lp_status load(start *x, lp_plan *plan, const lp_checkpoint *checkpoint, const lp_session_options *o,
                      lp_cold_world_report *report, lp_error *err)
{
    lp_read_stats own = {.bytes_read = 0};
    if (x->alone != NULL && lp_cold_world_is_apart(&x->world))
        return lp_cold_alone_load(x->alone, plan, checkpoint, o->allow_fallbacks, x->s->begin_ns, report, err);
    LP_TRY(lp_begin(&x->session, plan, o, err));
    LP_TRY(x->on_device ? load_by_lane(x, o->stream, report, err) : exchange_all(x, &report->bytes_read, err));
    LP_TRY(lp_push_checkpoint_with(x->session, checkpoint, &own, NULL, NULL, err));
    report->bytes_read += own.bytes_read;
    return lp_finish(x->session, &report->load, err);
}

static lp_status add_up(lp_sync *s, lp_cold_world_report *report, lp_error *err)
{
    const lp_block *all = NULL;
    uint8_t mine[8];
    lp_wire_put_i64(mine, report->bytes_read);
    LP_TRY(s->transport.gather(s->transport.context, mine, sizeof mine, &all, err));
    for (int32_t i = 0; i < s->round.world; i++)
        report->bytes_read_by_all += all[i].bytes == 8 ? lp_wire_get_i64(all[i].data) : 0;
    return LP_OK;
}

/* Ranks are scopes, in order. */
static bool has_all_ranks(const lp_sync *s)
{
    if (lp_trace_scope_count(s->trace) != s->round.world)
        return false;
    for (int32_t i = 0; i < s->round.world; i++)
        if (lp_scope_rank(lp_trace_scope_at(s->trace, i)) != i)
            return false;
    return true;
}

static lp_status start_together(start *x, lp_plan *plan, const lp_checkpoint *checkpoint, const lp_session_options *o,
                                const lp_cold_rates *rates, lp_cold_world_report *report, lp_error *err)
{
    lp_sync *s = x->s;
    lp_world_bytes needs;
    lp_fact mine = {.is_sender = true, .mode = LP_SYNC_PACKED, .bucket = s->options.bucket};
    if (x->on_device && mine.bucket > LP_COLD_MOST)
        mine.bucket = LP_COLD_MOST;
    if (x->on_device)
        LP_TRY(lp_cold_alone_open(&x->alone, plan, err));
    LP_TRY(lp_sync_agree(s, &mine, err));
    if (!has_all_ranks(s))
        return lp_fail(err, LP_E_MISMATCH, "the trace has %d ranks, here are %d", lp_trace_scope_count(s->trace),
                       s->round.world);
    if (!x->on_device)
        LP_TRY(lp_flow_buckets(s, true, true, err));
    LP_TRY(lp_world_bytes_make(&needs, s->trace, false, &s->platform, err));
    lp_status status = lp_cold_world_make(&x->world, &needs, s->round.rank, s->bucket, rates, err);
    lp_world_bytes_free(&needs);
    LP_TRY(status);
    report->costs = x->world.costs;
    for (int i = 0; i < 2 && !x->on_device; i++) {
        x->read[i].buffer = lp_allocate(s->alloc, (size_t)s->bucket);
        if (x->read[i].buffer == NULL)
            return lp_fail_memory(err);
    }
    status = load(x, plan, checkpoint, o, report, err);
    if (status != LP_OK && x->session != NULL)
        lp_abort(x->session, err->text);
    lp_session_close(x->session);
    LP_TRY(status);
    status = add_up(s, report, err); /* nobody reports success before all are done */
    if (status != LP_OK)
        plan->is_all_dirty = true;
    return status;
}

lp_status lp_sync_cold(lp_sync *s, lp_plan *plan, const lp_checkpoint *checkpoint, const lp_session_options *options,
                       const lp_cold_rates *rates, lp_cold_world_report *report, lp_error *err)
{
    const lp_session_options cold = {.mode = LP_COLD};
    lp_error own = {.code = LP_OK};
    lp_cold_world_report r = {.bytes_read = 0};
    lp_sync_source source;
    start x = {.s = s, .source = &source};
    err = err == NULL ? &own : err;
    if (!s->options.is_sender || plan->trace != s->trace)
        return lp_fail(err, LP_E_MISUSE, "a cold start needs a sync of senders over the plan's trace");
    /* In one step a rank sends and receives; a transport that does one after the other would wait in a circle. */
    if (s->transport.download != NULL && plan->side == NULL)
        return lp_fail(err, LP_E_UNSUPPORTED, "cold starts into host memory exchange bytes over sockets only");
    LP_TRY(lp_cold_lane_is_there(s, plan, &x.on_device, err));
    if (s->transport.download != NULL && !x.on_device)
        return lp_fail(err, LP_E_UNSUPPORTED, "messages go through another device than that of the plan");
    LP_TRY(lp_sync_source_checkpoint(&source, checkpoint, s->trace, &s->platform, err));
    lp_out_init(&x.out, s);
    lp_in_init(&x.in, s);
    const lp_status status = start_together(&x, plan, checkpoint, options == NULL ? &cold : options, rates, &r, err);
    if (status != LP_OK && status != LP_E_PEER && !s->is_mismatch)
        s->transport.fail(s->transport.context, err->text);
    r.nanoseconds = lp_clock_ns() - s->begin_ns;
    r.bytes_moved = s->report.bytes_moved;
    lp_cold_alone_close(x.alone);
    lp_out_free(&x.out);
    lp_in_free(&x.in);
    lp_cold_world_free(&x.world);
    for (int i = 0; i < 2; i++)
        lp_release(s->alloc, x.read[i].buffer);
    lp_sync_source_close(&source);
    if (report != NULL)
        *report = r;
    return status;
}
