/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of a cold start: which buffer each is read into, and how it is sent. The buffer that was freed last is taken
 * first, since it is still in the processor's cache.
 */
#include "replayer/device_cold_chunks.h"

#include <sched.h>
#include <time.h>

enum {
    SPINS = 200, /* looks for a buffer that another reader is about to get */
    POLLS = 200  /* looks for a copy to end before a reader sleeps until it does: waking up takes as long as a copy */
};

lp_cold_section *lp_cold_section_of_part(lp_cold_pipe *p, int64_t part)
{
    return &p->section[part < p->section[0].b->parts ? 0 : 1];
}

static lp_cold_section *section_of_chunk(lp_cold_pipe *p, int64_t chunk)
{
    return &p->section[chunk < p->section[0].b->chunks ? 0 : 1];
}

lp_cold_section *lp_cold_section_of_batch(lp_cold_pipe *p, int64_t batch)
{
    return &p->section[batch < p->section[0].b->batches ? 0 : 1];
}

static lp_cold_flight *flight_of(lp_cold_pipe *p, int64_t chunk)
{
    const lp_cold_section *s = section_of_chunk(p, chunk);
    return &s->flight[chunk - s->first_chunk];
}

/* Of a part, through all sections. */
static int64_t chunk_of(lp_cold_pipe *p, int64_t part)
{
    const lp_cold_section *s = lp_cold_section_of_part(p, part);
    return s->first_chunk + s->b->part[part - s->first_part].chunk;
}

uint8_t *lp_cold_slot_at(const lp_cold_pipe *p, int64_t batch)
{
    return p->ring->slots_block + batch % p->ring->slots * p->ring->slot;
}

static uint8_t *buffer_at(const lp_cold_pipe *p, int buffer)
{
    return p->ring->host + buffer * p->ring->chunk;
}

void lp_cold_pipe_fail(lp_cold_pipe *p, lp_status status, const lp_error *err)
{
    pthread_mutex_lock(&p->lock);
    if (p->status == LP_OK) {
        p->status = status;
        p->error = *err;
    }
    atomic_store(&p->is_ending, true);
    pthread_cond_broadcast(&p->planned);
    pthread_cond_broadcast(&p->assigned);
    pthread_cond_broadcast(&p->sent);
    pthread_cond_broadcast(&p->pushed);
    pthread_mutex_unlock(&p->lock);
}

/* ---- buffers ---- */

/* Frees the buffers whose copies are complete; lane_lock is held. */
static int reap(lp_cold_pipe *p)
{
    const lp_cold_device *d = p->device;
    while (p->busy_count > 0) {
        const int buffer = p->busy[p->busy_first];
        bool is_past = false;
        const int code = d->mark_query(d->context, p->ring->copied[buffer], &is_past);
        if (code != 0 || !is_past)
            return code;
        p->busy_first = (p->busy_first + 1) % LP_COLD_BUFFERS_MOST;
        p->busy_count--;
        p->free[p->free_count++] = buffer;
    }
    return 0;
}

/* A buffer, or what to wait for: *wait_for is a mark when neither is free. */
static int try_buffer(lp_cold_pipe *p, int *buffer, void **wait_for)
{
    *buffer = -1;
    *wait_for = NULL;
    pthread_mutex_lock(&p->lane_lock);
    const int code = reap(p);
    if (code == 0 && p->free_count > 0)
        *buffer = p->free[--p->free_count];
    else if (code == 0 && p->busy_count > 0)
        *wait_for = p->ring->copied[p->busy[p->busy_first]];
    pthread_mutex_unlock(&p->lane_lock);
    return code;
}

static bool is_turn(lp_cold_pipe *p, int64_t chunk, bool waits)
{
    pthread_mutex_lock(&p->lock);
    while (waits && p->assigned_count != chunk && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->assigned, &p->lock);
    const bool is = p->assigned_count == chunk;
    pthread_mutex_unlock(&p->lock);
    return is;
}

/* Gives a chunk a buffer, when those before it have one. */
static lp_status assign_buffer(lp_cold_pipe *p, int64_t chunk, bool waits, lp_error *err)
{
    const lp_cold_device *d = p->device;
    const struct timespec moment = {.tv_nsec = 50000};
    void *wait_for;
    int buffer = -1, code = 0;
    if (!is_turn(p, chunk, waits))
        return LP_OK;
    for (int polls = 0; code == 0 && buffer < 0 && !atomic_load(&p->is_ending); polls++) {
        code = try_buffer(p, &buffer, &wait_for);
        if (code != 0 || buffer >= 0 || !waits)
            break;
        if (polls < POLLS)
            sched_yield();
        else if (wait_for != NULL)
            code = d->mark_wait(d->context, wait_for);
        else
            (void)nanosleep(&moment, NULL); /* other readers are filling all of them */
    }
    LP_TRY(lp_cold_check(d, code, "copy to the device", err));
    if (buffer < 0)
        return LP_OK;
    pthread_mutex_lock(&p->lock);
    atomic_store(&flight_of(p, chunk)->buffer, buffer);
    p->assigned_count++;
    pthread_cond_broadcast(&p->assigned);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

/* The buffer of a chunk whose first part another reader has. */
static void follow_buffer(lp_cold_pipe *p, lp_cold_flight *flight)
{
    for (int i = 0; i < SPINS && atomic_load(&flight->buffer) < 0; i++)
        sched_yield();
    if (atomic_load(&flight->buffer) >= 0)
        return;
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&flight->buffer) < 0 && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->assigned, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* ---- parts ---- */

/* Of all sections so far; the lock is held. */
static int64_t parts_planned(const lp_cold_pipe *p)
{
    const lp_cold_section *last = &p->section[p->sections - 1];
    return last->first_part + last->b->parts;
}

int64_t lp_cold_part_next(lp_cold_pipe *p, bool waits)
{
    int64_t part = -1;
    pthread_mutex_lock(&p->lock);
    while (waits && p->next_part == parts_planned(p) && !p->is_planned && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->planned, &p->lock);
    if (p->next_part < parts_planned(p) && !atomic_load(&p->is_ending))
        part = p->next_part++;
    pthread_mutex_unlock(&p->lock);
    return part;
}

lp_status lp_cold_part_buffer(lp_cold_pipe *p, int64_t part, bool waits, uint8_t **out, lp_error *err)
{
    const lp_cold_section *s = lp_cold_section_of_part(p, part);
    const int64_t chunk = chunk_of(p, part);
    lp_cold_flight *flight = flight_of(p, chunk);
    if (part - s->first_part == s->b->chunk[chunk - s->first_chunk].first_part)
        LP_TRY(assign_buffer(p, chunk, waits, err));
    else if (waits)
        follow_buffer(p, flight);
    const int buffer = atomic_load(&flight->buffer);
    *out = buffer < 0 ? NULL : buffer_at(p, buffer);
    return LP_OK;
}

bool lp_cold_part_read(lp_cold_pipe *p, int64_t part, int64_t *chunk)
{
    *chunk = chunk_of(p, part);
    pthread_mutex_lock(&p->lock);
    const bool is_last = --flight_of(p, *chunk)->missing == 0;
    pthread_mutex_unlock(&p->lock);
    return is_last;
}

/* ---- sending ---- */

/* The lock is held. Whether the push that reads the slot of `batch` is on its lane, or storages may be written. */
static bool is_free(const lp_cold_pipe *p, int64_t batch, bool is_straight)
{
    return batch < p->pushed_count + p->ring->slots && (p->is_cleared || !is_straight);
}

static bool is_place_free(lp_cold_pipe *p, int64_t batch, bool is_straight, bool waits)
{
    pthread_mutex_lock(&p->lock);
    while (waits && !is_free(p, batch, is_straight) && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->pushed, &p->lock);
    const bool is = is_free(p, batch, is_straight) && !atomic_load(&p->is_ending);
    pthread_mutex_unlock(&p->lock);
    return is;
}

/* lane_lock is held; `batch` counts through all sections, c->batch does not. */
static int copy_chunk(lp_cold_pipe *p, const lp_cold_batches *b, const lp_cold_chunk *c, int64_t batch, int buffer)
{
    const lp_cold_device *d = p->device;
    const lp_cold_ring *ring = p->ring;
    int code = 0;
    if (batch >= ring->slots && p->followed[batch % ring->slots] != batch) { /* later copies are on the same lane */
        code = d->lane_follow(d->context, ring->copy_lane, ring->slot_free[batch % ring->slots]);
        p->followed[batch % ring->slots] = batch;
    }
    if (code == 0 && b->copy[c->first_copy].straight != NULL && !p->follows_cleared) { /* then all of the chunk's are */
        code = d->lane_follow(d->context, ring->copy_lane, ring->cleared);
        p->follows_cleared = true;
    }
    for (int64_t i = c->first_copy; i < c->first_copy + c->copies && code == 0; i++) {
        const lp_cold_copy *copy = &b->copy[i];
        uint8_t *to = (copy->straight != NULL ? copy->straight : lp_cold_slot_at(p, batch)) + copy->to;
        code = d->copy(d->context, ring->copy_lane, to, copy->to_pitch, buffer_at(p, buffer) + copy->at, copy->at_pitch,
                       copy->bytes, copy->rows);
    }
    if (code == 0)
        code = d->mark_set(d->context, ring->copied[buffer], ring->copy_lane);
    if (code == 0)
        p->busy[(p->busy_first + p->busy_count++) % LP_COLD_BUFFERS_MOST] = buffer;
    return code;
}

lp_status lp_cold_chunk_send(lp_cold_pipe *p, int64_t chunk, bool waits, bool *is_sent, lp_error *err)
{
    const lp_cold_section *s = section_of_chunk(p, chunk);
    const lp_cold_chunk *c = &s->b->chunk[chunk - s->first_chunk];
    const int64_t batch = s->first_batch + c->batch;
    *is_sent = is_place_free(p, batch, s->b->copy[c->first_copy].straight != NULL, waits);
    if (!*is_sent)
        return LP_OK;
    pthread_mutex_lock(&p->lane_lock);
    const int code = copy_chunk(p, s->b, c, batch, atomic_load(&flight_of(p, chunk)->buffer));
    pthread_mutex_unlock(&p->lane_lock);
    LP_TRY(lp_cold_check(p->device, code, "copy to the device", err));
    pthread_mutex_lock(&p->lock);
    if (--s->unsent[c->batch] == 0)
        pthread_cond_signal(&p->sent);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}
