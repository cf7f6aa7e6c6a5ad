/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads by NCCL: memory, and life; what is small goes by the sockets. */
#include "replayer/nccl_private.h"

lp_status lp_over_nccl_check(const lp_over_nccl *t, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, t->device.error_text(t->device.context, code));
}

/* ---- by the sockets ---- */

static lp_status gather(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err)
{
    lp_over_nccl *t = context;
    return t->sockets.gather(t->sockets.context, mine, bytes, all, err);
}

static void fail(void *context, const char *reason)
{
    lp_over_nccl *t = context;
    t->sockets.fail(t->sockets.context, reason);
}

static lp_status check(void *context, int32_t peer, int64_t since_ns, lp_error *err)
{
    lp_over_nccl *t = context;
    return t->sockets.check(t->sockets.context, peer, since_ns, err);
}

static void alive(void *context)
{
    lp_over_nccl *t = context;
    t->sockets.alive(t->sockets.context);
}

static const char *name_of(void *context, int32_t rank)
{
    lp_over_nccl *t = context;
    return t->sockets.name(t->sockets.context, rank);
}

/* ---- memory ---- */

static void *take(void *context, int64_t bytes)
{
    lp_over_nccl *t = context;
    void *memory = NULL;
    return t->device.allocate(t->device.context, bytes, &memory) == 0 ? memory : NULL;
}

static void give_back(void *context, void *memory)
{
    lp_over_nccl *t = context;
    t->device.release(t->device.context, memory);
}

static lp_status upload(void *context, void *to, const void *from, int64_t bytes, lp_error *err)
{
    lp_over_nccl *t = context;
    return lp_over_nccl_check(t, t->device.store(t->device.context, to, from, bytes), "copy to the device", err);
}

static lp_status download(void *context, void *to, const void *from, int64_t bytes, lp_error *err)
{
    lp_over_nccl *t = context;
    return lp_over_nccl_check(t, t->device.fetch(t->device.context, to, from, bytes), "copy from the device", err);
}

/* ---- open and close ---- */

static void close_nccl(void *context)
{
    lp_over_nccl *t = context;
    lp_over_nccl_cancel(t);
    lp_over_nccl_drop(t);
    for (int i = 0; i < LP_NCCL_TICKETS; i++)
        if (t->ticket[i].event != NULL)
            t->device.event_close(t->device.context, t->ticket[i].event);
    if (t->greeting != NULL)
        t->device.release(t->device.context, t->greeting);
    if (t->stream != NULL)
        t->device.stream_close(t->device.context, t->stream);
    lp_nccl_close(&t->nccl);
    lp_release(t->alloc, t);
}

static lp_status open_nccl(lp_over_nccl *t, const char *library, lp_error *err)
{
    LP_TRY(lp_nccl_open(&t->nccl, library, err));
    LP_TRY(lp_over_nccl_check(t, t->device.enter(t->device.context), "use the device", err));
    LP_TRY(lp_over_nccl_check(t, t->device.stream_open(t->device.context, true, &t->stream), "open a stream", err));
    for (int i = 0; i < LP_NCCL_TICKETS; i++)
        LP_TRY(
            lp_over_nccl_check(t, t->device.event_open(t->device.context, &t->ticket[i].event), "make an event", err));
    return LP_OK;
}

lp_status lp_transport_nccl_on(lp_transport *transport, const lp_transport *sockets, const lp_nccl_device *device,
                               const char *library, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    lp_over_nccl *t = lp_allocate_zero(p.alloc, sizeof *t);
    *transport = (lp_transport){.size = 0};
    if (t == NULL)
        return lp_fail_memory(err);
    t->alloc = p.alloc;
    t->sockets = *sockets;
    t->device = *device;
    const lp_status status = open_nccl(t, library, err);
    if (status != LP_OK) {
        close_nccl(t);
        return status;
    }
    *transport = (lp_transport){.size = sizeof *transport,
                                .context = t,
                                .join = lp_over_nccl_join,
                                .gather = gather,
                                .start = lp_over_nccl_start,
                                .wait = lp_over_nccl_wait,
                                .cancel = lp_over_nccl_cancel,
                                .check = check,
                                .fail = fail,
                                .alive = alive,
                                .name = name_of,
                                .take = take,
                                .give_back = give_back,
                                .upload = upload,
                                .download = download,
                                .close = close_nccl};
    t->lane = (lp_lane){.device = &t->device,
                        .after = lp_over_nccl_after,
                        .follow = lp_over_nccl_follow,
                        .meet = lp_over_nccl_meet,
                        .await = lp_over_nccl_await};
    if (device->stream_wait != NULL)
        transport->lane = &t->lane;
    return LP_OK;
}

lp_status lp_transport_nccl(lp_transport *transport, const lp_transport *sockets, int32_t device,
                            const lp_platform *platform, lp_error *err)
{
    lp_nccl_device cuda = {.context = NULL};
    *transport = (lp_transport){.size = 0};
    LP_TRY(lp_nccl_cuda(&cuda, device, err));
    return lp_transport_nccl_on(transport, sockets, &cuda, NULL, platform, err);
}

#ifndef LOADPLAN_HAVE_CUDA
lp_status lp_nccl_cuda(lp_nccl_device *out, int32_t device, lp_error *err)
{
    (void)out;
    (void)device;
    return lp_fail(err, LP_E_UNSUPPORTED, "this build has no CUDA, so ranks exchange bytes over sockets only");
}
#endif
