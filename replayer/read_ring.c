/* SPDX-License-Identifier: Apache-2.0 */
/* The ring: slots go from the owner to the readers and back in order of their numbers. */
#include "replayer/read_ring.h"
#include "replayer/quiet_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* Bytes that lie in a row in the file and in the buffer. */
typedef struct group {
    int64_t file_lo, file_hi; /* what is read; of a direct read whole units */
    int64_t last;             /* the last byte that is needed, plus one */
    int64_t buffer_off;
} group;

typedef struct piece {
    lp_handle handle;
    uint32_t entry;
    bool is_moved; /* by the reader; else the owner pushes it */
    int32_t group; /* that reads it */
    int64_t off, bytes, written;
    int64_t buffer_off;
} piece;

typedef struct slot {
    uint8_t *block, *buffer; /* as allocated; aligned */
    lp_ring_file file;
    piece piece[LP_SLOT_PIECES];
    group group[LP_SLOT_PIECES];
    int32_t pieces, groups;
    int64_t used; /* of the buffer */
    bool is_done;
    int32_t read; /* groups that were read; fewer than `groups` after a failure */
    lp_status status;
    lp_error error;
} slot;

struct lp_ring {
    lp_session *s;
    const lp_io *io;
    lp_ring_done done;
    void *context;
    slot *slot;
    int64_t slots;
    lp_ring_file file;
    bool is_open;             /* the slot number `submitted` takes pieces */
    int64_t submitted, taken; /* slots given to readers; slots whose pieces have arrived */
    int64_t claimed;          /* by readers; under lock */
    pthread_t thread[LP_POOL_THREADS_MAX];
    int32_t threads;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    bool is_ending;
    atomic_bool is_refused; /* a direct read was: later ones are buffered */
    atomic_int_fast64_t bytes, calls;
};

/* ---- reading: any thread ---- */

/* Some bytes at `lo`; the reader's rule of EINTR and EINVAL is here. */
static int64_t read_some(lp_ring *ring, const lp_ring_file *file, uint8_t *buffer, int64_t lo, int64_t bytes)
{
    const lp_io *io = ring->io;
    for (;;) {
        const bool direct = file->direct_fd >= 0 && !atomic_load(&ring->is_refused) && lo % LP_DIRECT_UNIT == 0;
        const int64_t got = io->pread(io->context, direct ? file->direct_fd : file->fd, buffer, (size_t)bytes, lo);
        atomic_fetch_add(&ring->calls, 1);
        if (got == -EINVAL && direct)
            atomic_store(&ring->is_refused, true);
        else if (got != -EINTR) {
            atomic_fetch_add(&ring->bytes, got > 0 ? got : 0);
            return got;
        }
    }
}

static lp_status read_group(lp_ring *ring, const slot *s, const group *g, lp_error *err)
{
    int64_t at = g->file_lo;
    while (at < g->last) {
        const int64_t got = read_some(ring, &s->file, s->buffer + g->buffer_off + (at - g->file_lo), at,
                                      (s->file.direct_fd >= 0 ? g->file_hi : g->last) - at);
        if (got < 0)
            return lp_fail_errno(err, (int)got, "read", s->file.path);
        if (got == 0)
            return lp_fail_at(err, LP_E_CORRUPT, s->file.path, at, "'%s' ends at byte %lld, %lld bytes too early",
                              s->file.path, (long long)at, (long long)(g->last - at));
        at += got;
    }
    return LP_OK;
}

static void do_slot(lp_ring *ring, slot *s)
{
    s->status = LP_OK;
    s->read = 0;
    while (s->read < s->groups && s->status == LP_OK) {
        s->status = read_group(ring, s, &s->group[s->read], &s->error);
        s->read += s->status == LP_OK;
    }
    for (int32_t i = 0; i < s->pieces && s->piece[i].group < s->read; i++) {
        piece *p = &s->piece[i];
        if (p->is_moved)
            p->written = lp_session_move(ring->s, p->entry, p->off, s->buffer + p->buffer_off, p->bytes, NULL);
    }
}

static void *read_slots(void *argument)
{
    lp_ring *ring = argument;
    pthread_mutex_lock(&ring->lock);
    for (;;) {
        while (ring->claimed == ring->submitted && !ring->is_ending)
            pthread_cond_wait(&ring->work, &ring->lock);
        if (ring->is_ending)
            break;
        slot *s = &ring->slot[ring->claimed++ % ring->slots];
        pthread_mutex_unlock(&ring->lock);
        do_slot(ring, s);
        pthread_mutex_lock(&ring->lock);
        s->is_done = true;
        pthread_cond_signal(&ring->ready);
    }
    pthread_mutex_unlock(&ring->lock);
    return NULL;
}

/* ---- the owner ---- */

static slot *open_slot(lp_ring *ring)
{
    slot *s = &ring->slot[ring->submitted % ring->slots];
    s->file = ring->file;
    if (atomic_load(&ring->is_refused))
        s->file.direct_fd = -1;
    s->pieces = s->groups = 0;
    s->used = 0;
    s->is_done = false;
    ring->is_open = true;
    return s;
}

static void submit(lp_ring *ring)
{
    if (!ring->is_open)
        return;
    ring->is_open = false;
    slot *s = &ring->slot[ring->submitted % ring->slots];
    if (ring->threads == 0) {
        do_slot(ring, s);
        s->is_done = true;
        ring->submitted++;
        return;
    }
    pthread_mutex_lock(&ring->lock);
    ring->submitted++;
    pthread_cond_signal(&ring->work);
    pthread_mutex_unlock(&ring->lock);
}

static slot *wait_for_oldest(lp_ring *ring)
{
    slot *s = &ring->slot[ring->taken % ring->slots];
    pthread_mutex_lock(&ring->lock);
    while (!s->is_done)
        pthread_cond_wait(&ring->ready, &ring->lock);
    pthread_mutex_unlock(&ring->lock);
    ring->taken++;
    return s;
}

static lp_status arrive(lp_ring *ring, const slot *s, const piece *p, lp_error *err)
{
    lp_session *session = ring->s;
    if (!p->is_moved)
        return lp_push_handle_range(session, p->handle, p->off, s->buffer + p->buffer_off, p->bytes, err);
    LP_TRY(lp_track_reserve(&session->track[p->entry], session->alloc, err));
    session->report.bytes_written += p->written;
    return lp_session_arrive(session, p->entry, p->off, p->bytes, err);
}

static lp_status take_oldest(lp_ring *ring, lp_error *err)
{
    const slot *s = wait_for_oldest(ring);
    for (int32_t i = 0; i < s->pieces && s->piece[i].group < s->read; i++) {
        LP_TRY(arrive(ring, s, &s->piece[i], err));
        LP_TRY(ring->done(ring->context, s->piece[i].bytes, err));
    }
    if (s->status != LP_OK && err != NULL)
        *err = s->error;
    return s->status;
}

/* Where a piece goes in the open slot; false when there is no room. */
static bool place(slot *s, int64_t file_off, piece *p)
{
    const int64_t unit = s->file.direct_fd >= 0 ? LP_DIRECT_UNIT : 1;
    const int64_t lo = file_off / unit * unit, hi = (file_off + p->bytes + unit - 1) / unit * unit;
    group *g = s->groups > 0 ? &s->group[s->groups - 1] : NULL;
    const bool joins = g != NULL && lo <= g->file_hi && file_off >= g->file_lo;
    const int64_t more = joins ? (hi > g->file_hi ? hi - g->file_hi : 0) : hi - lo;
    if (s->pieces == LP_SLOT_PIECES || s->used + more > LP_SLOT_BYTES)
        return false;
    if (!joins) {
        g = &s->group[s->groups++];
        *g = (group){.file_lo = lo, .file_hi = lo, .buffer_off = s->used};
    }
    g->file_hi += more;
    g->last = file_off + p->bytes > g->last ? file_off + p->bytes : g->last;
    s->used += more;
    p->group = s->groups - 1;
    p->buffer_off = g->buffer_off + (file_off - g->file_lo);
    return true;
}

lp_status lp_ring_add(lp_ring *ring, lp_handle handle, int64_t off, int64_t bytes, int64_t file_off, lp_error *err)
{
    piece p = {.handle = handle, .off = off, .bytes = bytes};
    slot *s;
    for (;;) {
        if (!ring->is_open && ring->submitted - ring->taken == ring->slots)
            LP_TRY(take_oldest(ring, err));
        s = ring->is_open ? &ring->slot[ring->submitted % ring->slots] : open_slot(ring);
        if (place(s, file_off, &p))
            break;
        submit(ring);
    }
    p.entry = ring->s->plan->entry_of[handle];
    p.is_moved = !ring->s->plan->entry[p.entry].has_cast && !ring->s->track[p.entry].is_complete;
    if (p.is_moved)
        LP_TRY(lp_session_admit(ring->s, handle, off, s->buffer, bytes, &p.entry, err));
    s->piece[s->pieces++] = p;
    return LP_OK;
}

lp_status lp_ring_drain(lp_ring *ring, lp_error *err)
{
    submit(ring);
    while (ring->taken < ring->submitted)
        LP_TRY(take_oldest(ring, err));
    return LP_OK;
}

void lp_ring_drop(lp_ring *ring)
{
    ring->is_open = false;
    while (ring->slot != NULL && ring->taken < ring->submitted) /* it may not have been opened in full */
        (void)wait_for_oldest(ring);
}

void lp_ring_use(lp_ring *ring, const lp_ring_file *file)
{
    ring->file = *file;
    atomic_store(&ring->is_refused, false);
}

int64_t lp_ring_bytes(const lp_ring *ring, int64_t *calls)
{
    *calls = atomic_load(&ring->calls);
    return atomic_load(&ring->bytes);
}

bool lp_ring_fell_back(const lp_ring *ring)
{
    return atomic_load(&ring->is_refused);
}

/* ---- life ---- */

static void start(lp_ring *ring, int32_t threads)
{
    while (ring->threads < threads && ring->threads < LP_POOL_THREADS_MAX &&
           lp_quiet_thread(&ring->thread[ring->threads], read_slots, ring) == 0)
        ring->threads++;
}

lp_status lp_ring_open(lp_ring **out, lp_session *s, int32_t threads, lp_ring_done done, void *context, lp_error *err)
{
    const size_t bytes = LP_SLOT_BYTES + LP_DIRECT_UNIT;
    lp_ring *ring = lp_allocate_zero(s->alloc, sizeof *ring);
    if (ring == NULL)
        return lp_fail_memory(err);
    ring->s = s;
    ring->io = s->plan->platform.io;
    ring->done = done;
    ring->context = context;
    atomic_init(&ring->is_refused, false);
    atomic_init(&ring->bytes, 0);
    atomic_init(&ring->calls, 0);
    pthread_mutex_init(&ring->lock, NULL); /* default attributes: these cannot fail on Linux */
    pthread_cond_init(&ring->work, NULL);
    pthread_cond_init(&ring->ready, NULL);
    const int64_t wanted = threads == 0 ? 1 : threads + 2; /* two more: one that is filled, one that is taken */
    ring->slot = lp_allocate_zero(s->alloc, (size_t)wanted * sizeof *ring->slot);
    for (; ring->slot != NULL && ring->slots < wanted; ring->slots++) {
        slot *next = &ring->slot[ring->slots];
        next->block = lp_allocate(s->alloc, bytes);
        if (next->block == NULL)
            break;
        next->buffer = next->block + (-(uintptr_t)next->block & (LP_DIRECT_UNIT - 1));
    }
    if (ring->slots < wanted) {
        lp_ring_close(ring);
        return lp_fail_memory(err);
    }
    start(ring, threads);
    *out = ring;
    return LP_OK;
}

void lp_ring_close(lp_ring *ring)
{
    if (ring == NULL)
        return;
    const lp_alloc *alloc = ring->s->alloc;
    lp_ring_drop(ring);
    pthread_mutex_lock(&ring->lock);
    ring->is_ending = true;
    pthread_cond_broadcast(&ring->work);
    pthread_mutex_unlock(&ring->lock);
    for (int32_t i = 0; i < ring->threads; i++)
        pthread_join(ring->thread[i], NULL);
    for (int64_t i = 0; i < ring->slots; i++)
        lp_release(alloc, ring->slot[i].block);
    pthread_cond_destroy(&ring->ready);
    pthread_cond_destroy(&ring->work);
    pthread_mutex_destroy(&ring->lock);
    lp_release(alloc, ring->slot);
    lp_release(alloc, ring);
}
