/* SPDX-License-Identifier: Apache-2.0 */
/* A sync from open to close, how epochs end, and whole epochs at senders. */
#include "replayer/sync_private.h"

#include "replayer/sync_delta.h"
#include "replayer/sync_source.h"
#include "replayer/transport_wire.h"

#include <stdio.h>

const char *lp_sync_mode_name(lp_sync_mode mode)
{
    switch (mode) {
    case LP_SYNC_PACKED:
        return "packed";
    case LP_SYNC_SLICED:
        return "sliced";
    case LP_SYNC_DELTA:
        return "delta";
    }
    return "?";
}

/* ---- open and close ---- */

static lp_status digest_catalogue(lp_sync *s, lp_error *err)
{
    lp_sha256 h;
    lp_sha256_begin(&h);
    lp_sha256_text(&h, "loadplan catalogue 1");
    lp_sha256_i64(&h, lp_checkpoint_count(s->catalogue));
    for (int64_t i = 0; i < lp_checkpoint_count(s->catalogue); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(s->catalogue, i);
        lp_sha256_text(&h, t->name);
        lp_sha256_i64(&h, t->dtype);
        lp_sha256_i64(&h, t->ndim);
        for (int32_t k = 0; k < t->ndim; k++)
            lp_sha256_i64(&h, t->shape[k]);
    }
    return lp_sha256_end(&h, s->catalogue_digest) ? LP_OK : lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
}

lp_status lp_sync_open(lp_sync **out, const lp_transport *transport, const lp_trace *trace,
                       const lp_sync_options *options, lp_error *err)
{
    const lp_platform platform = lp_platform_resolve(options->platform);
    const char *group = options->is_sender ? "" : options->group == NULL ? "server" : options->group;
    if (strlen(group) >= LP_SYNC_GROUP || options->bucket < 0 ||
        (options->bucket > 0 && options->bucket < LP_SYNC_BUCKET_LEAST))
        return lp_fail(err, LP_E_ARGUMENT, "a bucket of %lld bytes in a group '%s'", (long long)options->bucket, group);
    lp_sync *s = lp_allocate_zero(platform.alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(err);
    s->platform = platform;
    s->alloc = platform.alloc;
    s->transport = *transport;
    s->trace = trace;
    s->catalogue = lp_trace_checkpoint(trace);
    s->options = *options;
    s->options.mode = options->mode == 0 ? LP_SYNC_PACKED : options->mode;
    s->options.bucket = options->bucket == 0 ? LP_SYNC_BUCKET : options->bucket;
    snprintf(s->group, sizeof s->group, "%s", group);
    lp_status status = lp_trace_set_digest(trace, s->set, err);
    if (status == LP_OK)
        status = digest_catalogue(s, err);
    if (status != LP_OK) {
        lp_sync_close(s);
        return status;
    }
    *out = s;
    return LP_OK;
}

void lp_sync_detach(lp_sync *s)
{
    lp_sync_forget(s);
    lp_flow_release(s);
    s->transport = (lp_transport){.size = 0};
}

void lp_sync_attach(lp_sync *s, const lp_transport *transport)
{
    s->transport = *transport;
}

void lp_sync_close(lp_sync *s)
{
    if (s == NULL)
        return;
    lp_sync_forget(s);
    lp_flow_release(s);
    lp_slices_free(s->slices);
    lp_sync_shares_free(s);
    lp_shadow_free(s->shadow, s->alloc);
    lp_release(s->alloc, s);
}

/* ---- the end of an epoch ---- */

lp_status lp_sync_end_badly(lp_sync *s, lp_status status, const lp_error *err)
{
    if (status != LP_E_PEER && !s->is_mismatch)
        s->transport.fail(s->transport.context, err->text);
    return status;
}

lp_status lp_sync_all_say_yes(lp_sync *s, lp_error *err)
{
    const lp_block *all = NULL;
    return s->transport.gather(s->transport.context, NULL, 0, &all, err);
}

lp_status lp_sync_end(lp_sync *s, lp_status status, lp_sync_report *report, const lp_error *err)
{
    if (status == LP_OK) {
        s->held = s->epoch;
        memcpy(s->lineage, s->agreement, sizeof s->lineage);
        s->report.nanoseconds = lp_clock_ns() - s->begin_ns;
    } else {
        (void)lp_sync_end_badly(s, status, err);
    }
    if (report != NULL)
        *report = s->report;
    return status;
}

void lp_sync_spoil(lp_sync *s)
{
    s->held = 0;
    if (s->plan != NULL)
        s->plan->is_all_dirty = true;
}

lp_status lp_sync_vote(lp_sync *s, const lp_error *mine, lp_error *err)
{
    if (mine != NULL && mine->code != LP_OK) {
        if (err != NULL && err != mine)
            *err = *mine;
        lp_sync_spoil(s);
        return lp_sync_end_badly(s, mine->code, mine);
    }
    lp_error own = {.code = LP_OK};
    err = err == NULL ? &own : err;
    const lp_status status = lp_sync_all_say_yes(s, err);
    if (status == LP_OK)
        return LP_OK;
    lp_sync_spoil(s);
    return lp_sync_end_badly(s, status, err);
}

/* ---- senders ---- */

static lp_status send_frames(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    switch (s->mode) {
    case LP_SYNC_SLICED:
        return lp_sliced_send(s, source, err);
    case LP_SYNC_DELTA:
        LP_TRY(lp_delta_send(s, source, err)); /* a short one, if any, comes first */
        return lp_packed_send(s, source, false, err);
    case LP_SYNC_PACKED:
        break;
    }
    return lp_packed_send(s, source, false, err);
}

static lp_status send_epoch(lp_sync *s, const lp_sync_source *source, int64_t epoch, lp_error *err)
{
    lp_fact mine = {.is_sender = true,
                    .mode = s->options.mode,
                    .bucket = s->options.bucket,
                    .wanted = epoch,
                    .gives_content = source->holds == NULL && !s->options.no_content_id};
    lp_sync_shares_of(s, source);
    LP_TRY(lp_sync_agree(s, &mine, err));
    LP_TRY(lp_sync_content(s, source, err));
    if (s->mode != LP_SYNC_SLICED)
        LP_TRY(lp_sync_shares(s, source, err));
    s->uses_lane = s->transport.lane != NULL;
    const bool is_host_delta = s->mode == LP_SYNC_DELTA && !lp_delta_is_on_device(s, source);
    LP_TRY(lp_flow_buckets(s, false, source->packer == NULL || is_host_delta, err));
    s->held = 0; /* from here on shadow and receivers are between two epochs */
    LP_TRY(send_frames(s, source, err));
    return lp_sync_all_say_yes(s, err);
}

lp_status lp_sync_send(lp_sync *s, const lp_sync_source *source, int64_t epoch, lp_sync_report *report, lp_error *err)
{
    lp_error own = {.code = LP_OK};
    err = err == NULL ? &own : err;
    if (!s->options.is_sender || epoch < 0)
        return lp_fail(err, LP_E_MISUSE, epoch < 0 ? "an epoch below 0" : "this sync was opened to receive");
    const lp_status status = send_epoch(s, source, epoch, err);
    return lp_sync_end(s, status, report, err);
}
