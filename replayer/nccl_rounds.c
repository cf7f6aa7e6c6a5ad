/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds over NCCL: communicators of their ranks, made while the ranks go on. */
#include "replayer/nccl_private.h"
#include "replayer/transport_wire.h"

#include <sched.h>

/* A frame takes a fraction of a millisecond on a fast link, so naps are for those who wait for somebody slow. */
enum { SPIN_NS = 10000000, NAP_MS = 1 };

static const int64_t GRACE_NS = 3000000000;

void lp_over_nccl_drop(lp_over_nccl *t)
{
    if (t->comm != NULL)
        (void)t->nccl.ncclCommAbort(t->comm);
    t->comm = NULL;
    t->key = 0;
    t->is_connecting = false;
    lp_release(t->alloc, t->has_met);
    t->has_met = NULL;
}

void lp_over_nccl_rest(int64_t since)
{
    if (lp_clock_ns() - since > SPIN_NS)
        lp_sleep_ms(NAP_MS);
    else
        sched_yield();
}

/* An error of the library may be the first sign that another rank is gone. It does not say which, and would look like
 * one of this rank's own: so the sockets, which know, are given time to say so. */
lp_status lp_over_nccl_result(lp_over_nccl *t, int result, int32_t peer, const char *verb, lp_error *err)
{
    const bool is_good = result == LP_NCCL_SUCCESS || result == LP_NCCL_IN_PROGRESS;
    const int64_t since = lp_clock_ns();
    while (!is_good && lp_clock_ns() - since < GRACE_NS) {
        LP_TRY(t->sockets.check(t->sockets.context, peer, since, err));
        lp_sleep_ms(NAP_MS);
    }
    return lp_nccl_check(&t->nccl, result, verb, err);
}

lp_status lp_over_nccl_settle(lp_over_nccl *t, int result, int32_t peer, const char *verb, lp_error *err)
{
    const int64_t since = lp_clock_ns();
    if (result != LP_NCCL_IN_PROGRESS && result != LP_NCCL_REMOTE)
        return lp_nccl_check(&t->nccl, result, verb, err); /* the call itself */
    while (result == LP_NCCL_IN_PROGRESS) {
        const lp_status status = t->sockets.check(t->sockets.context, LP_WAITS_NOT, since, err);
        if (status != LP_OK)
            return status;
        const int asked = t->nccl.ncclCommGetAsyncError(t->comm, &result);
        if (asked != LP_NCCL_SUCCESS)
            return lp_nccl_check(&t->nccl, asked, verb, err);
        if (result == LP_NCCL_IN_PROGRESS)
            lp_over_nccl_rest(since);
    }
    return lp_over_nccl_result(t, result, peer, verb, err);
}

static uint64_t key_of(const lp_over_nccl *t)
{
    uint64_t key = (uint64_t)t->round.rank * 2 + 1;
    for (int32_t i = 0; i < t->round.world; i++) {
        const char *name = t->sockets.name(t->sockets.context, i);
        key = (key ^ lp_hash(name, strlen(name))) * 0x9e3779b97f4a7c15u;
    }
    return key | 1;
}

/* Begins to: ranks read and plan while the library connects them. */
static lp_status begin_to_connect(lp_over_nccl *t, const lp_nccl_id *id, lp_error *err)
{
    lp_nccl_config config = {
        .size = sizeof config, .magic = LP_NCCL_CONFIG_MAGIC, .version = LP_NCCL_LEAST, .blocking = 0};
    t->has_met = lp_allocate_zero(t->alloc, (size_t)t->round.world * sizeof *t->has_met);
    if (t->has_met == NULL)
        return lp_fail_memory(err);
    const int result = t->nccl.ncclCommInitRankConfig(&t->comm, t->round.world, *id, t->round.rank, &config);
    LP_TRY(lp_nccl_check(&t->nccl, result, "connect ranks", err));
    t->is_connecting = true;
    return LP_OK;
}

lp_status lp_over_nccl_connect(lp_over_nccl *t, int32_t peer, lp_error *err)
{
    if (t->is_connecting)
        LP_TRY(lp_over_nccl_settle(t, LP_NCCL_IN_PROGRESS, peer, "connect ranks", err));
    t->is_connecting = false;
    return LP_OK;
}

/* What ranks tell one another when they meet. */
typedef struct meeting {
    uint8_t is_good, has_id;
    lp_nccl_id id; /* of rank 0, which takes one where its communicator is not good: that starts threads and sockets */
} meeting;

/* *all_good: whether everybody's communicator is. */
static lp_status exchange_ids(lp_over_nccl *t, meeting *mine, lp_nccl_id *id, bool *has_id, bool *all_good,
                              lp_error *err)
{
    const lp_block *all = NULL;
    if (mine->has_id)
        LP_TRY(lp_nccl_check(&t->nccl, t->nccl.ncclGetUniqueId(&mine->id), "get an id for the ranks", err));
    LP_TRY(t->sockets.gather(t->sockets.context, mine, sizeof *mine, &all, err));
    *all_good = true;
    for (int32_t i = 0; i < t->round.world; i++) {
        if (all[i].bytes != sizeof *mine)
            return lp_fail(err, LP_E_PEER, "%s sends payloads another way", t->sockets.name(t->sockets.context, i));
        *all_good = *all_good && *(const uint8_t *)all[i].data == 1;
    }
    *has_id = ((const uint8_t *)all[0].data)[offsetof(meeting, has_id)] == 1;
    memcpy(id, (const uint8_t *)all[0].data + offsetof(meeting, id), sizeof *id);
    return LP_OK;
}

/* One communicator serves as long as the ranks stay the same and nothing fails: all say whether theirs is good. */
static lp_status meet(lp_over_nccl *t, lp_error *err)
{
    const uint64_t key = key_of(t);
    lp_nccl_id id;
    bool has_id, all_good;
    meeting mine;
    memset(&mine, 0, sizeof mine);
    mine.is_good = t->comm != NULL && t->key == key;
    mine.has_id = t->round.rank == 0 && mine.is_good == 0;
    LP_TRY(exchange_ids(t, &mine, &id, &has_id, &all_good, err));
    if (all_good)
        return LP_OK;
    if (!has_id) { /* another rank's is not good */
        mine.has_id = t->round.rank == 0;
        LP_TRY(exchange_ids(t, &mine, &id, &has_id, &all_good, err));
    }
    lp_over_nccl_drop(t);
    LP_TRY(begin_to_connect(t, &id, err));
    t->key = key;
    return LP_OK;
}

lp_status lp_over_nccl_join(void *context, lp_round *round, lp_error *err)
{
    lp_over_nccl *t = context;
    lp_over_nccl_cancel(t); /* what a failed round left behind */
    LP_TRY(t->sockets.join(t->sockets.context, &t->round, err));
    *round = t->round;
    LP_TRY(lp_over_nccl_check(t, t->device.enter(t->device.context), "use the device", err));
    const lp_status status = meet(t, err);
    if (status != LP_OK && status != LP_E_PEER)
        t->sockets.fail(t->sockets.context, err->text);
    return status;
}
