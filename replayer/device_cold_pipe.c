/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers fill buffers of pinned memory, several of them the same one, part by part in the order of the plan. Who reads
 * the last part of a chunk sends it with one copy. The owner pushes a batch behind all of its copies. Copies are on one
 * lane and pushes on another: a slot is written again behind the push that reads it, on the device, so that nobody on
 * the host waits for a kernel.
 *
 * The buffer that was freed last is taken first, since it is still in the processor's cache.
 *
 * Who waits does so for something earlier. Buffers are given to chunks in order, so the first chunk that is not sent
 * has one; a chunk waits for a slot until a batch is pushed all of whose chunks come before it; and what is put on a
 * lane waits at most for what is on the lanes already.
 */
#include "replayer/device_cold_pipe.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

enum {
    SPINS = 200, /* looks for a buffer that another reader is about to get */
    POLLS = 200  /* looks for a copy to end before a reader sleeps until it does: waking up takes as long as a copy */
};

typedef struct reader {
    lp_cold_pipe *pipe;
    pthread_t thread;
} reader;

/* A chunk under way. */
typedef struct flight {
    atomic_int buffer; /* -1: none yet */
    int64_t missing;   /* parts; under the pipe's lock */
} flight;

struct lp_cold_pipe {
    const lp_cold_device *device;
    const lp_plan *plan;
    const lp_alloc *alloc;
    const lp_cold_batches *b;
    const lp_cold_options *options;
    const lp_cold_files *files;
    lp_cold_ring *ring;
    lp_cold_program *maker;
    void *program; /* NULL: not made yet */
    reader reader[LP_COLD_READERS_MOST];
    int32_t started;
    const void **data; /* of a push */

    pthread_mutex_t lane_lock;                              /* of the lane of copies, and of */
    int free[LP_COLD_BUFFERS_MOST], free_count;             /* a stack */
    int busy[LP_COLD_BUFFERS_MOST], busy_first, busy_count; /* a queue, in the order of copies */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t assigned, sent, pushed;
    int64_t next_part;
    flight *flight;         /* by chunk */
    int64_t assigned_count; /* chunks that have, or had, a buffer */
    int64_t *unsent;        /* by batch: chunks */
    int64_t pushed_count;   /* batches */
    atomic_bool is_ending;
    lp_status status; /* the first failure */
    lp_error error;
};

static uint8_t *slot_of(const lp_cold_pipe *p, int64_t batch)
{
    return p->ring->slots_block + batch % p->ring->slots * p->ring->slot;
}

static uint8_t *buffer_at(const lp_cold_pipe *p, int buffer)
{
    return p->ring->host + buffer * p->ring->chunk;
}

static void fail(lp_cold_pipe *p, lp_status status, const lp_error *err)
{
    pthread_mutex_lock(&p->lock);
    if (p->status == LP_OK) {
        p->status = status;
        p->error = *err;
    }
    atomic_store(&p->is_ending, true);
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

/* Gives a chunk a buffer, when those before it have one. */
static lp_status assign_buffer(lp_cold_pipe *p, int64_t chunk, lp_error *err)
{
    const lp_cold_device *d = p->device;
    const struct timespec moment = {.tv_nsec = 50000};
    void *wait_for;
    int buffer = -1, code = 0;
    pthread_mutex_lock(&p->lock);
    while (p->assigned_count != chunk && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->assigned, &p->lock);
    pthread_mutex_unlock(&p->lock);
    for (int polls = 0; code == 0 && buffer < 0 && !atomic_load(&p->is_ending); polls++) {
        code = try_buffer(p, &buffer, &wait_for);
        if (code != 0 || buffer >= 0)
            break;
        if (polls < POLLS)
            sched_yield();
        else if (wait_for != NULL)
            code = d->mark_wait(d->context, wait_for);
        else
            (void)nanosleep(&moment, NULL); /* other readers are filling all of them */
    }
    LP_TRY(lp_cold_check(d, code, "copy to the device", err));
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->flight[chunk].buffer, buffer);
    p->assigned_count++;
    pthread_cond_broadcast(&p->assigned);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

/* The buffer of a chunk whose first part another reader has; -1 when the pipe is ending. */
static int follow_buffer(lp_cold_pipe *p, int64_t chunk)
{
    for (int i = 0; i < SPINS && atomic_load(&p->flight[chunk].buffer) < 0; i++)
        sched_yield();
    if (atomic_load(&p->flight[chunk].buffer) < 0) {
        pthread_mutex_lock(&p->lock);
        while (atomic_load(&p->flight[chunk].buffer) < 0 && !atomic_load(&p->is_ending))
            pthread_cond_wait(&p->assigned, &p->lock);
        pthread_mutex_unlock(&p->lock);
    }
    return atomic_load(&p->flight[chunk].buffer);
}

/* ---- readers ---- */

static lp_status read_part(const lp_cold_pipe *p, const lp_cold_part *part, uint8_t *to, lp_error *err)
{
    for (int64_t i = part->first_read; i < part->first_read + part->reads; i++) {
        const lp_cold_read *r = &p->b->read[i];
        LP_TRY(lp_cold_files_read(p->files, r->file, r->file_off, to + r->at, r->bytes, r->room, err));
    }
    return LP_OK;
}

/* Until the push that reads the slot of `batch` is on its lane; false when the pipe is ending. */
static bool wait_for_slot(lp_cold_pipe *p, int64_t batch)
{
    pthread_mutex_lock(&p->lock);
    while (batch >= p->pushed_count + p->ring->slots && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->pushed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return !atomic_load(&p->is_ending);
}

/* lane_lock is held. */
static int copy_chunk(lp_cold_pipe *p, const lp_cold_chunk *c, int buffer)
{
    const lp_cold_device *d = p->device;
    const lp_cold_ring *ring = p->ring;
    int code = 0;
    if (c->batch >= ring->slots)
        code = d->lane_follow(d->context, ring->copy_lane, ring->slot_free[c->batch % ring->slots]);
    if (code == 0 && p->b->copy[c->first_copy].straight != NULL) /* then all copies of the chunk are */
        code = d->lane_follow(d->context, ring->copy_lane, ring->cleared);
    for (int64_t i = c->first_copy; i < c->first_copy + c->copies && code == 0; i++) {
        const lp_cold_copy *copy = &p->b->copy[i];
        uint8_t *to = (copy->straight != NULL ? copy->straight : slot_of(p, c->batch)) + copy->to;
        code = d->copy(d->context, ring->copy_lane, to, copy->to_pitch, buffer_at(p, buffer) + copy->at, copy->at_pitch,
                       copy->bytes, copy->rows);
    }
    if (code == 0)
        code = d->mark_set(d->context, ring->copied[buffer], ring->copy_lane);
    if (code == 0)
        p->busy[(p->busy_first + p->busy_count++) % LP_COLD_BUFFERS_MOST] = buffer;
    return code;
}

static lp_status send_chunk(lp_cold_pipe *p, int64_t number, lp_error *err)
{
    const lp_cold_chunk *c = &p->b->chunk[number];
    if (!wait_for_slot(p, c->batch))
        return LP_OK;
    pthread_mutex_lock(&p->lane_lock);
    const int code = copy_chunk(p, c, atomic_load(&p->flight[number].buffer));
    pthread_mutex_unlock(&p->lane_lock);
    LP_TRY(lp_cold_check(p->device, code, "copy to the device", err));
    pthread_mutex_lock(&p->lock);
    if (--p->unsent[c->batch] == 0)
        pthread_cond_signal(&p->sent);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

static lp_status do_part(lp_cold_pipe *p, int64_t number, lp_error *err)
{
    const lp_cold_part *part = &p->b->part[number];
    flight *f = &p->flight[part->chunk];
    if (number == p->b->chunk[part->chunk].first_part)
        LP_TRY(assign_buffer(p, part->chunk, err));
    const int buffer = follow_buffer(p, part->chunk);
    if (buffer < 0)
        return LP_OK;
    LP_TRY(read_part(p, part, buffer_at(p, buffer), err));
    pthread_mutex_lock(&p->lock);
    const bool is_last = --f->missing == 0;
    pthread_mutex_unlock(&p->lock);
    return is_last ? send_chunk(p, part->chunk, err) : LP_OK;
}

static void *read_parts(void *argument)
{
    lp_cold_pipe *p = ((reader *)argument)->pipe;
    lp_error err = {.code = LP_OK};
    lp_status status = lp_cold_check(p->device, p->device->enter(p->device->context), "use the device", &err);
    while (status == LP_OK) {
        pthread_mutex_lock(&p->lock);
        const int64_t number = p->next_part < p->b->parts ? p->next_part++ : -1;
        pthread_mutex_unlock(&p->lock);
        if (number < 0 || atomic_load(&p->is_ending))
            return NULL;
        status = do_part(p, number, &err);
    }
    fail(p, status, &err);
    return NULL;
}

static lp_status start_readers(lp_cold_pipe *p, lp_error *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (; p->started < p->ring->readers; p->started++) {
        reader *r = &p->reader[p->started];
        r->pipe = p;
        if (pthread_create(&r->thread, NULL, read_parts, r) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return p->started > 0 ? LP_OK : lp_fail(err, LP_E_MEMORY, "cannot start a thread");
}

/* ---- the owner ---- */

/* Until all chunks of a batch are on their lane; false when the pipe is ending. */
static bool wait_for_batch(lp_cold_pipe *p, int64_t number)
{
    pthread_mutex_lock(&p->lock);
    while (p->unsent[number] > 0 && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->sent, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return !atomic_load(&p->is_ending);
}

static lp_status push_batch(lp_cold_pipe *p, int64_t number, lp_error *err)
{
    const lp_cold_device *d = p->device;
    const lp_cold_ring *ring = p->ring;
    const lp_cold_batch *batch = &p->b->batch[number];
    const int64_t *base = p->b->base + batch->first_item;
    void *full = ring->slot_full[number % ring->slots];
    for (int64_t i = 0; i < batch->items; i++)
        p->data[i] = base[i] == LP_COLD_NO_BYTES ? NULL : slot_of(p, number) + base[i];
    LP_TRY(lp_cold_check(d, d->mark_set(d->context, full, ring->copy_lane), "mark a slot", err));
    LP_TRY(lp_cold_check(d, d->lane_follow(d->context, ring->push_lane, full), "follow copies to the device", err));
    if (batch->items > 0)
        LP_TRY(d->program_push(d->context, p->program, p->b->handle + batch->first_item, p->data, batch->items,
                               ring->push_lane, err));
    LP_TRY(lp_cold_check(d, d->mark_set(d->context, ring->slot_free[number % ring->slots], ring->push_lane),
                         "mark a slot", err));
    pthread_mutex_lock(&p->lock);
    p->pushed_count = number + 1;
    pthread_cond_broadcast(&p->pushed);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

/* Reading goes on while the program is waited for, as far as there are slots. */
static lp_status push_all(lp_cold_pipe *p, lp_error *err)
{
    const lp_cold_device *d = p->device;
    const lp_cold_options *o = p->options;
    int64_t done = 0;
    LP_TRY(lp_cold_program_wait(p->maker, &p->program, err));
    LP_TRY(d->program_fill(d->context, p->program, p->ring->push_lane, err));
    for (int64_t i = 0; i < p->b->batches; i++) {
        if (!wait_for_batch(p, i))
            return LP_E_IO; /* fail() has the error */
        LP_TRY(push_batch(p, i, err));
        done += p->b->batch[i].bytes;
        if (o->progress != NULL && o->progress(o->progress_context, done, p->b->bytes) != 0)
            return lp_fail(err, LP_E_IO, "reading was stopped by the caller");
    }
    return lp_cold_check(d, d->lane_wait(d->context, p->ring->push_lane), "load on the device", err);
}

/* Copies straight into storages follow the mark, pushes the lane. */
static lp_status clear(const lp_cold_pipe *p, lp_error *err)
{
    const lp_cold_device *d = p->device;
    int code = 0;
    for (uint32_t i = 0; i < p->plan->storage_count && code == 0; i++)
        if (p->plan->storage[i].bytes > 0)
            code = d->clear(d->context, p->ring->push_lane, p->plan->storage[i].base, p->plan->storage[i].bytes);
    if (code == 0)
        code = d->mark_set(d->context, p->ring->cleared, p->ring->push_lane);
    return lp_cold_check(d, code, "clear device memory", err);
}

lp_status lp_cold_pipe_run(lp_cold_pipe *p, const lp_cold_files *files, lp_cold_program *program, lp_error *err)
{
    lp_error own = {.code = LP_OK};
    p->files = files;
    p->maker = program;
    LP_TRY(clear(p, err));
    lp_status status = start_readers(p, &own);
    if (status == LP_OK)
        status = push_all(p, &own);
    if (status != LP_OK)
        fail(p, status, &own);
    for (; p->started > 0; p->started--)
        pthread_join(p->reader[p->started - 1].thread, NULL);
    if (p->status != LP_OK && err != NULL)
        *err = p->error;
    return p->status;
}

/* ---- life ---- */

lp_status lp_cold_pipe_open(lp_cold_pipe **out, lp_cold_ring *ring, const lp_plan *plan, const lp_cold_batches *batches,
                            const lp_cold_options *options, lp_error *err)
{
    lp_cold_pipe *p = lp_allocate_zero(plan->platform.alloc, sizeof *p);
    if (p == NULL)
        return lp_fail_memory(err);
    p->device = ring->device;
    p->plan = plan;
    p->alloc = plan->platform.alloc;
    p->b = batches;
    p->options = options;
    p->ring = ring;
    pthread_mutex_init(&p->lock, NULL); /* default attributes: these cannot fail on Linux */
    pthread_mutex_init(&p->lane_lock, NULL);
    pthread_cond_init(&p->assigned, NULL);
    pthread_cond_init(&p->sent, NULL);
    pthread_cond_init(&p->pushed, NULL);
    atomic_init(&p->is_ending, false);
    p->data = lp_allocate(p->alloc, ((size_t)batches->most_items + 1) * sizeof *p->data);
    p->flight = lp_allocate(p->alloc, ((size_t)batches->chunks + 1) * sizeof *p->flight);
    p->unsent = lp_allocate(p->alloc, ((size_t)batches->batches + 1) * sizeof *p->unsent);
    if (p->data == NULL || p->flight == NULL || p->unsent == NULL) {
        lp_cold_pipe_close(p);
        return lp_fail_memory(err);
    }
    for (int64_t c = 0; c < batches->chunks; c++) {
        atomic_init(&p->flight[c].buffer, -1);
        p->flight[c].missing = batches->chunk[c].parts;
    }
    for (int64_t i = 0; i < batches->batches; i++)
        p->unsent[i] = batches->batch[i].chunks;
    for (int i = (int)ring->buffers - 1; i >= 0; i--)
        p->free[p->free_count++] = i;
    *out = p;
    return LP_OK;
}

void lp_cold_pipe_close(lp_cold_pipe *p)
{
    if (p == NULL)
        return;
    lp_cold_ring_wait(p->ring);
    pthread_cond_destroy(&p->assigned);
    pthread_cond_destroy(&p->sent);
    pthread_cond_destroy(&p->pushed);
    pthread_mutex_destroy(&p->lane_lock);
    pthread_mutex_destroy(&p->lock);
    lp_release(p->alloc, (void *)p->data);
    lp_release(p->alloc, p->flight);
    lp_release(p->alloc, p->unsent);
    lp_release(p->alloc, p);
}
