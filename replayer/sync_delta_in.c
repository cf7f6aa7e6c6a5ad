/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes into live tensors on a device: a frame is applied there as it came. Names that have to come whole are pushed
 * out of the frame like those of any other one.
 */
#include "replayer/sync_delta.h"
#include "replayer/sync_lane.h"

#include "replayer/device_patch.h"
#include "replayer/transport_wire.h"

/* What a sender's frames go by, while its share stays the same. */
typedef struct sender_list {
    lp_pieces share;
    lp_delta_list list;
    void *there; /* the stretches on the device */
} sender_list;

struct lp_applier {
    const lp_nccl_device *device;
    void *context;
    const lp_alloc *alloc;
    const lp_plan *plan;
    int64_t bucket;
    sender_list *sender;
    int32_t senders;
    uint32_t *first_target, *targets; /* by name */
    void *target, *flags, *damage;    /* on the device */
    uint8_t *name_flags;
    bool has_whole; /* some names have to come whole */
};

/* ---- what is made once ---- */

static lp_status check(const struct lp_applier *a, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, a->device->error_text(a->context, code));
}

static lp_status take(const struct lp_applier *a, int64_t bytes, void **out, lp_error *err)
{
    return check(a, a->device->allocate(a->context, bytes + 1, out), "take device memory for changes", err);
}

static void drop_sender(const struct lp_applier *a, sender_list *x)
{
    if (x->there != NULL)
        a->device->release(a->context, x->there);
    x->there = NULL;
    lp_pieces_free(&x->share);
    lp_delta_list_free(&x->list);
}

void lp_applier_close(struct lp_applier *a)
{
    if (a == NULL)
        return;
    for (int32_t i = 0; i < a->senders; i++)
        drop_sender(a, &a->sender[i]);
    void *const block[] = {a->target, a->flags, a->damage};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i] != NULL)
            a->device->release(a->context, block[i]);
    lp_release(a->alloc, a->sender);
    lp_release(a->alloc, a->first_target);
    lp_release(a->alloc, a->targets);
    lp_release(a->alloc, a->name_flags);
    lp_release(a->alloc, a);
}

static lp_status list_targets(struct lp_applier *a, const lp_sync *s, lp_error *err)
{
    const lp_fact *me = &s->fact[s->round.rank];
    lp_change_target *all = NULL;
    int64_t count = 0, capacity = 0;
    lp_status status = LP_OK;
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue) && status == LP_OK; i++) {
        lp_change_target mine[LP_PATCH_TARGETS];
        int found = 0;
        a->name_flags[i] = 0;
        a->first_target[i] = (uint32_t)count;
        a->targets[i] = 0;
        if (!lp_bit(me->used, i))
            continue;
        a->name_flags[i] = LP_CHANGE_READ | (lp_bit(me->whole, i) ? LP_CHANGE_WHOLE : 0);
        a->has_whole = a->has_whole || lp_bit(me->whole, i);
        if (lp_bit(me->whole, i))
            continue;
        void *items = all;
        if (!lp_device_patch_targets(a->plan, i, mine, &found))
            status = lp_fail(err, LP_E_INTERNAL, "'%s' takes no changes", lp_checkpoint_at(s->catalogue, i)->name);
        else if (!lp_grow(a->alloc, &items, &capacity, count + found, sizeof *all))
            status = lp_fail_memory(err);
        if (status != LP_OK)
            break;
        all = items;
        if (found > 0)
            memcpy(&all[count], mine, (size_t)found * sizeof *all);
        a->targets[i] = (uint32_t)found;
        count += found;
    }
    const int64_t bytes = count * (int64_t)sizeof *all;
    if (status == LP_OK)
        status = take(a, bytes, &a->target, err);
    if (status == LP_OK && count > 0)
        status = check(a, a->device->store(a->context, a->target, all, bytes), "copy to the device", err);
    lp_release(a->alloc, all);
    return status;
}

static lp_status open_applier(struct lp_applier *a, const lp_sync *s, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(s->catalogue);
    a->sender = lp_allocate_zero(a->alloc, (size_t)s->round.senders * sizeof *a->sender);
    a->first_target = lp_allocate(a->alloc, ((size_t)names + 1) * sizeof *a->first_target);
    a->targets = lp_allocate(a->alloc, ((size_t)names + 1) * sizeof *a->targets);
    a->name_flags = lp_allocate(a->alloc, (size_t)names + 1);
    if (a->sender == NULL || a->first_target == NULL || a->targets == NULL || a->name_flags == NULL)
        return lp_fail_memory(err);
    a->senders = s->round.senders;
    for (int32_t i = 0; i < a->senders; i++)
        lp_pieces_init(&a->sender[i].share, a->alloc);
    LP_TRY(take(a, names, &a->flags, err));
    LP_TRY(take(a, sizeof(uint32_t), &a->damage, err));
    LP_TRY(list_targets(a, s, err));
    return check(a, a->device->store(a->context, a->flags, a->name_flags, names), "copy to the device", err);
}

static lp_status take_applier(lp_sync *s, const lp_plan *plan, lp_error *err)
{
    struct lp_applier *a = s->applier;
    if (a != NULL && a->plan == plan && a->bucket == s->bucket && a->senders == s->round.senders)
        return LP_OK;
    lp_applier_close(a);
    s->applier = a = lp_allocate_zero(s->alloc, sizeof *a);
    if (a == NULL)
        return lp_fail_memory(err);
    *a = (struct lp_applier){
        .device = s->lane->device, .context = s->lane->context, .alloc = s->alloc, .plan = plan, .bucket = s->bucket};
    return open_applier(a, s, err);
}

/* The stretches of a sender's share, which it has the same. */
static lp_status take_list(const struct lp_applier *a, const lp_sync *s, int32_t sender, lp_error *err)
{
    sender_list *x = &a->sender[sender];
    lp_pieces share;
    lp_pieces_init(&share, s->alloc);
    lp_status status = lp_delta_share(s, sender, &share, err);
    if (status != LP_OK || (x->there != NULL && lp_delta_same_share(&x->share, &share))) {
        lp_pieces_free(&share);
        return status;
    }
    drop_sender(a, x);
    x->share = share;
    LP_TRY(lp_delta_list_make(&x->list, s, &share, err));
    for (int64_t i = 0; i < x->list.count; i++) {
        lp_change_stretch *stretch = &x->list.stretch[i];
        stretch->first_target = a->first_target[stretch->name];
        stretch->targets = a->targets[stretch->name];
    }
    const int64_t bytes = x->list.count * (int64_t)sizeof *x->list.stretch;
    void *there = NULL;
    LP_TRY(take(a, bytes, &there, err));
    status = bytes == 0
                 ? LP_OK
                 : check(a, a->device->store(a->context, there, x->list.stretch, bytes), "copy to the device", err);
    if (status == LP_OK)
        x->there = there;
    else
        a->device->release(a->context, there);
    return status;
}

static lp_status prepare(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err)
{
    const uint32_t none = 0;
    LP_TRY(take_applier(s, plan, err));
    for (int32_t i = 0; i < s->round.senders; i++)
        LP_TRY(take_list(s->applier, s, i, err));
    LP_TRY(check(s->applier, s->applier->device->store(s->applier->context, s->applier->damage, &none, sizeof none),
                 "clear device memory", err));
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue); i++)
        if (s->applier->name_flags[i] == LP_CHANGE_READ)
            LP_TRY(sink->open(sink->context, i, err));
    return LP_OK;
}

/* ---- frames ---- */

/* What stands at the end of a frame. */
static lp_status read_table(const struct lp_applier *a, const sender_list *x, const uint8_t *bucket, int64_t bytes,
                            uint32_t *first, uint32_t *count, lp_error *err)
{
    uint8_t tail[8];
    if (bytes < (int64_t)sizeof tail)
        return lp_fail(err, LP_E_CORRUPT, "a frame of changes of %lld bytes came", (long long)bytes);
    LP_TRY(check(a, a->device->fetch(a->context, tail, bucket + bytes - sizeof tail, sizeof tail),
                 "copy from the device", err));
    *first = lp_wire_get_u32(tail);
    *count = lp_wire_get_u32(tail + 4);
    if (*count > (bytes - (int64_t)sizeof tail) / (int64_t)sizeof(lp_change_place) || *first > x->list.count ||
        *count > x->list.count - *first)
        return lp_fail(err, LP_E_CORRUPT, "changes that came are damaged: their places do not fit");
    return LP_OK;
}

/* Names that come whole: each of their records is all of its stretch. */
static lp_status push_whole(const struct lp_applier *a, const sender_list *x, const lp_sync_sink *sink,
                            const uint8_t *bucket, const lp_change_apply *work, lp_error *err)
{
    const int64_t table_bytes = (int64_t)sizeof(lp_change_place) * work->count, records = work->bytes - 8 - table_bytes;
    uint8_t *table = lp_allocate(a->alloc, (size_t)table_bytes + 1);
    lp_status status = table == NULL ? lp_fail_memory(err)
                                     : check(a, a->device->fetch(a->context, table, bucket + records, table_bytes),
                                             "copy from the device", err);
    for (uint32_t i = 0; i < work->count && status == LP_OK; i++) {
        const lp_change_stretch *stretch = &x->list.stretch[work->first + i];
        const uint8_t *entry = table + sizeof(lp_change_place) * i;
        const int64_t begin = lp_wire_get_u32(entry), bytes = lp_wire_get_u32(entry + 4);
        const int64_t all = (int64_t)stretch->elements * stretch->elem;
        const lp_piece piece = {.name = stretch->name, .lo = stretch->off, .run = all, .count = 1};
        if ((a->name_flags[stretch->name] & LP_CHANGE_WHOLE) == 0)
            continue;
        status = bytes == lp_change_most(all) && begin <= records && bytes <= records - begin
                     ? sink->pieces(sink->context, &piece, 1, bucket + begin + LP_CHANGE_HEAD, err)
                     : lp_fail(err, LP_E_CORRUPT, "changes came where the whole of a tensor was due");
    }
    lp_release(a->alloc, table);
    return status;
}

static lp_status apply_frame(lp_sync *s, int32_t sender, int k, int64_t bytes, const lp_sync_sink *sink, lp_error *err)
{
    const struct lp_applier *a = s->applier;
    const sender_list *x = &a->sender[sender];
    const uint8_t *bucket = s->bucket_memory[k];
    lp_change_apply work = {.frame = bucket,
                            .bytes = bytes,
                            .stretch = x->there,
                            .target = a->target,
                            .flags = a->flags,
                            .damage = a->damage};
    LP_TRY(read_table(a, x, bucket, bytes, &work.first, &work.count, err));
    LP_TRY(check(a, a->device->apply(a->context, &work, sink->stream), "apply changes", err));
    return a->has_whole ? push_whole(a, x, sink, bucket, &work, err) : LP_OK;
}

static lp_status receive_frames(lp_lane_in *in, lp_delta_turns *t, const lp_sync_sink *sink, lp_error *err)
{
    lp_sync *s = in->s;
    int32_t sender = lp_delta_turn(t);
    if (sender >= 0)
        LP_TRY(lp_lane_in_post(in, 0, sender, t->next[sender], err));
    for (int k = 0; sender >= 0; k = 1 - k) {
        lp_frame frame;
        LP_TRY(lp_lane_in_head(in, k, sender, t->sequence[sender]++, t->next[sender], &frame, err));
        if (frame.next_bytes > s->bucket)
            return lp_fail(err, LP_E_CORRUPT, "sender %d announces a frame of %lld bytes for buckets of %lld", sender,
                           (long long)frame.next_bytes, (long long)s->bucket);
        t->next[sender] = frame.next_bytes;
        const int32_t other = lp_delta_turn(t);
        if (other >= 0)
            LP_TRY(lp_lane_in_post(in, 1 - k, other, t->next[other], err));
        LP_TRY(lp_lane_in_take(in, k, &frame, err));
        if (frame.bytes > 0)
            LP_TRY(apply_frame(s, sender, k, frame.bytes, sink, err));
        LP_TRY(lp_lane_in_done(in, k, err));
        lp_sync_alive(s);
        sender = other;
    }
    return LP_OK;
}

static lp_status check_damage(const struct lp_applier *a, lp_error *err)
{
    uint32_t damage = 0;
    LP_TRY(check(a, a->device->fetch(a->context, &damage, a->damage, sizeof damage), "copy from the device", err));
    return damage == 0 ? LP_OK : lp_fail(err, LP_E_CORRUPT, "changes that came are damaged");
}

lp_status lp_delta_apply(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err)
{
    lp_lane_in in;
    lp_delta_turns turns;
    lp_lane_in_open(&in, s, sink->stream);
    lp_status status = lp_delta_turns_open(&turns, s, err);
    if (status == LP_OK)
        status = prepare(s, plan, sink, err);
    if (status == LP_OK)
        status = receive_frames(&in, &turns, sink, err);
    status = lp_lane_in_close(&in, status, err);
    lp_delta_turns_close(&turns);
    return status == LP_OK ? check_damage(s->applier, err) : status;
}
