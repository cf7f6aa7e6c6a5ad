/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned memory is touched before it is registered, which is ten times as fast as the other way round, by several
 * threads and in large pages, which is ten times as fast again; the owner does something else meanwhile.
 */
#include "replayer/device_cold_ring.h"
#include "replayer/quiet_thread.h"
#include "replayer/session.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
    HUGE_PAGE = 2 << 20,
    TOUCHERS_MOST = 16,
    TOUCH_LEAST = 4 << 20, /* by one thread */
    CHUNK_LEAST = 64 << 10,
    CHUNKS_LEAST = 8,          /* of a load that is not small: pinning memory takes time */
    SLOT_ALIGN = 512,          /* so that tensors in every slot lie as well as in the first */
    READERS_DEFAULT_MOST = 16, /* more do not read faster from memory */
    LINK_ROUNDS = 4
};

/* ---- touching ---- */

typedef struct slice {
    uint8_t *from;
    int64_t bytes;
    pthread_t thread;
} slice;

struct lp_cold_touch {
    const lp_alloc *alloc;
    int32_t threads; /* that run */
    slice slice[TOUCHERS_MOST];
};

static void *touch_slice(void *argument)
{
    const slice *s = argument;
    memset(s->from, 0, (size_t)s->bytes);
    return NULL;
}

/* What no thread could be started for is touched at once. */
static lp_status start_touch(lp_cold_touch **out, const lp_cold_ring *ring, lp_error *err)
{
    const int64_t parts = (ring->host_bytes + TOUCH_LEAST - 1) / TOUCH_LEAST;
    const int64_t count = parts < TOUCHERS_MOST ? parts : TOUCHERS_MOST;
    const int64_t each = (parts + count - 1) / count * TOUCH_LEAST;
    lp_cold_touch *t = lp_allocate_zero(ring->alloc, sizeof *t);
    if (t == NULL)
        return lp_fail_memory(err);
    t->alloc = ring->alloc;
    for (int64_t at = 0; at < ring->host_bytes; at += each) {
        const int64_t left = ring->host_bytes - at;
        slice *s = &t->slice[t->threads];
        s->from = ring->host + at;
        s->bytes = left < each ? left : each;
        if (lp_quiet_thread(&s->thread, touch_slice, s) == 0)
            t->threads++;
        else
            touch_slice(s);
    }
    *out = t;
    return LP_OK;
}

void lp_cold_touch_end(lp_cold_touch *t)
{
    if (t == NULL)
        return;
    for (int32_t i = 0; i < t->threads; i++)
        pthread_join(t->slice[i].thread, NULL);
    lp_release(t->alloc, t);
}

/* ---- what a load needs ---- */

static void await_start(lp_cold_ring *ring)
{
    if (ring->is_starting)
        pthread_join(ring->starter, NULL);
    ring->is_starting = false;
}

lp_cold_sizes lp_cold_sizes_of(const lp_cold_options *o, int64_t needed, bool is_direct)
{
    const int64_t pinned = o->pinned > 0 ? o->pinned : LP_COLD_PINNED;
    const int64_t staging = o->staging > 0 ? o->staging : LP_COLD_STAGING;
    lp_cold_sizes s = {.chunk = pinned / 4 / CHUNK_LEAST * CHUNK_LEAST, .slot = staging / LP_COLD_SLOTS};
    const int64_t share = is_direct ? 0 : needed / CHUNKS_LEAST;
    const int64_t most = share > LP_COLD_CHUNK         ? LP_COLD_CHUNK
                         : share < LP_COLD_CHUNK_SMALL ? LP_COLD_CHUNK_SMALL
                                                       : share / CHUNK_LEAST * CHUNK_LEAST;
    s.chunk = s.chunk > most ? most : s.chunk < CHUNK_LEAST ? CHUNK_LEAST : s.chunk;
    s.buffers = pinned / s.chunk;
    s.buffers = s.buffers > LP_COLD_BUFFERS_MOST ? LP_COLD_BUFFERS_MOST : s.buffers < 4 ? 4 : s.buffers;
    s.slot = s.slot < CHUNK_LEAST ? CHUNK_LEAST : s.slot / SLOT_ALIGN * SLOT_ALIGN;
    return s;
}

static int32_t reader_count(const lp_cold_options *o, int64_t parts)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t count = o->readers;
    if (count == 0)
        count = processors < 2 ? 2 : processors > READERS_DEFAULT_MOST ? READERS_DEFAULT_MOST : processors;
    if (count > LP_COLD_READERS_MOST)
        count = LP_COLD_READERS_MOST;
    if (count > parts)
        count = parts;
    return count < 1 ? 1 : (int32_t)count;
}

static void give_back_host(lp_cold_ring *ring)
{
    if (ring->is_pinned)
        ring->device->unpin(ring->device->context, ring->host);
    lp_release(ring->alloc, ring->host_block);
    ring->host_block = ring->host = NULL;
    ring->host_bytes = 0;
    ring->is_pinned = false;
}

static lp_status take_host(lp_cold_ring *ring, lp_cold_touch **touch, lp_error *err)
{
    const int64_t bytes = ring->buffers * ring->chunk;
    if (ring->is_pinned && ring->host_bytes >= bytes)
        return LP_OK;
    give_back_host(ring);
    ring->host_block = lp_allocate(ring->alloc, (size_t)bytes + HUGE_PAGE);
    if (ring->host_block == NULL)
        return lp_fail_memory(err);
    ring->host = ring->host_block + (-(uintptr_t)ring->host_block & (HUGE_PAGE - 1));
    ring->host_bytes = bytes;
    (void)madvise(ring->host, (size_t)bytes, MADV_HUGEPAGE); /* a wish */
    return start_touch(touch, ring, err);
}

static lp_status take_slots(lp_cold_ring *ring, int64_t slot, int64_t slots, lp_error *err)
{
    const lp_cold_device *d = ring->device;
    ring->slot = slot;
    ring->slots = slots;
    if (ring->slots_bytes >= slot * slots)
        return LP_OK;
    d->release(d->context, ring->slots_block);
    ring->slots_block = NULL;
    ring->slots_bytes = 0;
    const int code = d->allocate(d->context, slot * slots, (void **)&ring->slots_block);
    if (code != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot take %lld bytes of device memory for staging: %s",
                       (long long)(slot * slots), d->error_text(d->context, code));
    ring->slots_bytes = slot * slots;
    return LP_OK;
}

static int open_mark(const lp_cold_device *d, void **mark)
{
    return *mark != NULL ? 0 : d->mark_open(d->context, mark);
}

static int open_lane(const lp_cold_device *d, void **lane)
{
    return *lane != NULL ? 0 : d->lane_open(d->context, lane);
}

static lp_status take_lanes(lp_cold_ring *ring, lp_error *err)
{
    const lp_cold_device *d = ring->device;
    int code = open_lane(d, &ring->copy_lane);
    if (code == 0)
        code = open_lane(d, &ring->push_lane);
    if (code == 0)
        code = open_mark(d, &ring->cleared);
    for (int64_t i = 0; i < ring->slots && code == 0; i++)
        code = open_mark(d, &ring->slot_full[i]);
    for (int64_t i = 0; i < ring->slots && code == 0; i++)
        code = open_mark(d, &ring->slot_free[i]);
    for (int64_t i = 0; i < ring->buffers && code == 0; i++)
        code = open_mark(d, &ring->copied[i]);
    return lp_cold_check(d, code, "set up lanes to the device", err);
}

/* ---- before the load ---- */

static void *start(void *argument)
{
    lp_cold_ring *ring = argument;
    const lp_cold_device *d = ring->device;
    const lp_cold_sizes sizes = lp_cold_sizes_of(&(lp_cold_options){.pinned = ring->starts_with}, INT64_MAX, false);
    lp_cold_touch *touch = NULL;
    lp_error err;
    ring->chunk = sizes.chunk;
    ring->buffers = sizes.buffers;
    ring->slots = LP_COLD_SLOTS;
    if (d->enter(d->context) != 0 || take_host(ring, &touch, &err) != LP_OK || take_lanes(ring, &err) != LP_OK)
        lp_cold_touch_end(touch);
    else
        (void)lp_cold_ring_pin(ring, &touch, &err);
    return NULL;
}

void lp_cold_ring_start(lp_cold_ring *ring, const lp_cold_options *options)
{
    await_start(ring);
    ring->starts_with = options == NULL ? 0 : options->pinned;
    ring->is_starting = lp_quiet_thread(&ring->starter, start, ring) == 0;
}

uint8_t *lp_cold_ring_memory(lp_cold_ring *ring, int64_t bytes)
{
    await_start(ring);
    if (!ring->is_pinned || ring->host_bytes < bytes)
        lp_cold_ring_start(ring, &(lp_cold_options){.pinned = bytes});
    await_start(ring);
    return ring->is_pinned && ring->host_bytes >= bytes ? ring->host : NULL;
}

/* ---- the load ---- */

lp_status lp_cold_ring_fit(lp_cold_ring *ring, const lp_cold_options *o, const lp_cold_sizes *sizes, int64_t parts,
                           int64_t chunks, int64_t batches, int64_t slot, lp_cold_touch **touch, lp_error *err)
{
    await_start(ring);
    int64_t slots = slot > sizes->slot ? LP_COLD_LARGE_SLOTS : LP_COLD_SLOTS;
    if (slots > batches)
        slots = batches > 0 ? batches : 1;
    ring->readers = reader_count(o, parts);
    ring->chunk = sizes->chunk;
    ring->buffers = sizes->buffers < chunks ? sizes->buffers : chunks > 0 ? chunks : 1;
    LP_TRY(take_host(ring, touch, err));
    LP_TRY(take_slots(ring, slot, slots, err));
    return take_lanes(ring, err);
}

lp_status lp_cold_ring_pin(lp_cold_ring *ring, lp_cold_touch **touch, lp_error *err)
{
    const lp_cold_device *d = ring->device;
    lp_cold_touch_end(*touch);
    *touch = NULL;
    if (ring->is_pinned)
        return LP_OK;
    const int code = d->pin(d->context, ring->host, ring->host_bytes);
    ring->is_pinned = code == 0;
    return lp_cold_check(d, code, "pin host memory", err);
}

/* ---- life ---- */

lp_status lp_cold_ring_new(lp_cold_ring **out, const lp_cold_device *device, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    lp_cold_ring *ring = lp_allocate_zero(p.alloc, sizeof *ring);
    if (ring == NULL)
        return lp_fail_memory(err);
    ring->device = device;
    ring->alloc = p.alloc;
    *out = ring;
    return LP_OK;
}

void lp_cold_ring_wait(lp_cold_ring *ring)
{
    const lp_cold_device *d = ring->device;
    if (ring->copy_lane != NULL)
        (void)d->lane_wait(d->context, ring->copy_lane);
    if (ring->push_lane != NULL)
        (void)d->lane_wait(d->context, ring->push_lane);
}

void lp_cold_ring_free(lp_cold_ring *ring)
{
    if (ring == NULL)
        return;
    const lp_cold_device *d = ring->device;
    await_start(ring);
    lp_cold_ring_wait(ring);
    for (int32_t i = 0; i < LP_COLD_BUFFERS_MOST; i++)
        d->mark_close(d->context, ring->copied[i]);
    for (int32_t i = 0; i < LP_COLD_SLOTS; i++) {
        d->mark_close(d->context, ring->slot_full[i]);
        d->mark_close(d->context, ring->slot_free[i]);
    }
    d->mark_close(d->context, ring->cleared);
    d->lane_close(d->context, ring->copy_lane);
    d->lane_close(d->context, ring->push_lane);
    d->release(d->context, ring->slots_block);
    give_back_host(ring);
    lp_release(ring->alloc, ring);
}

/* From pinned memory to the slots, again and again. */
static bool copy_once(const lp_cold_ring *ring, int64_t bytes)
{
    const lp_cold_device *d = ring->device;
    const int64_t room = ring->slots_bytes < ring->host_bytes ? ring->slots_bytes : ring->host_bytes;
    int code = 0;
    for (int64_t done = 0; done < bytes && code == 0; done += room)
        code = d->copy(d->context, ring->copy_lane, ring->slots_block, room, ring->host, room, room, 1);
    if (code == 0)
        code = d->lane_wait(d->context, ring->copy_lane);
    return code == 0;
}

double lp_cold_ring_link_rate(lp_cold_ring *ring)
{
    await_start(ring);
    const int64_t room = ring->slots_bytes < ring->host_bytes ? ring->slots_bytes : ring->host_bytes;
    double best = 0;
    if (!ring->is_pinned || room == 0)
        return 0;
    const int64_t bytes = ((int64_t)LP_COLD_PINNED + room - 1) / room * room;
    for (int i = 0; i < LINK_ROUNDS; i++) {
        const int64_t begin = lp_session_clock();
        if (!copy_once(ring, bytes))
            return 0;
        const double rate = (double)bytes / (double)(lp_session_clock() - begin) * 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}
