/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers fill buffers of pinned memory, several of them the same one, part by part in the order of the plan. Who reads
 * the last part of a chunk sends it with one copy. The owner pushes a batch behind all of its copies. Copies are on one
 * lane and pushes on another: a slot is written again behind the push that reads it, on the device, so that nobody on
 * the host waits for a kernel.
 *
 * Who waits does so for something earlier. Buffers are given to chunks in order, so the first chunk that is not sent
 * has one; a chunk waits for a slot until a batch is pushed all of whose chunks come before it; and what is put on a
 * lane waits at most for what is on the lanes already.
 */
#include "replayer/device_cold_chunks.h"
#include "replayer/quiet_thread.h"

/* ---- the owner ---- */

/* Makes what readers and owner note of batches; whoever calls says when readers may see them. */
static lp_status add_section(lp_cold_pipe *p, const lp_cold_batches *b, lp_error *err)
{
    lp_cold_section *s = &p->section[p->sections];
    if (p->sections > 0) {
        const lp_cold_section *before = s - 1;
        s->first_part = before->first_part + before->b->parts;
        s->first_chunk = before->first_chunk + before->b->chunks;
        s->first_batch = before->first_batch + before->b->batches;
    }
    s->b = b;
    s->flight = lp_allocate(p->alloc, ((size_t)b->chunks + 1) * sizeof *s->flight);
    s->unsent = lp_allocate(p->alloc, ((size_t)b->batches + 1) * sizeof *s->unsent);
    if (s->flight == NULL || s->unsent == NULL ||
        !lp_grow(p->alloc, (void **)&p->data, &p->data_room, b->most_items + 1, sizeof *p->data))
        return lp_fail_memory(err);
    for (int64_t c = 0; c < b->chunks; c++) {
        atomic_init(&s->flight[c].buffer, -1);
        s->flight[c].missing = b->chunk[c].parts;
    }
    for (int64_t i = 0; i < b->batches; i++)
        s->unsent[i] = b->batch[i].chunks;
    return LP_OK;
}

static lp_status start_readers(lp_cold_pipe *p, lp_error *err)
{
    for (; p->started < p->ring->readers; p->started++) {
        lp_cold_reader *r = &p->reader[p->started];
        r->pipe = p;
        if (lp_quiet_thread(&r->thread, lp_cold_reader_run, r) != 0)
            break;
    }
    return p->started > 0 ? LP_OK : lp_fail(err, LP_E_MEMORY, "cannot start a thread");
}

/* Until all chunks of a batch are on their lane; false when the pipe is ending. */
static bool wait_for_batch(lp_cold_pipe *p, int64_t number)
{
    const lp_cold_section *s = lp_cold_section_of_batch(p, number);
    pthread_mutex_lock(&p->lock);
    while (s->unsent[number - s->first_batch] > 0 && !atomic_load(&p->is_ending))
        pthread_cond_wait(&p->sent, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return !atomic_load(&p->is_ending);
}

static lp_status push_batch(lp_cold_pipe *p, int64_t number, lp_error *err)
{
    const lp_cold_device *d = p->device;
    const lp_cold_ring *ring = p->ring;
    const lp_cold_section *s = lp_cold_section_of_batch(p, number);
    const lp_cold_batch *batch = &s->b->batch[number - s->first_batch];
    const int64_t *base = s->b->base + batch->first_item;
    void *full = ring->slot_full[number % ring->slots];
    for (int64_t i = 0; i < batch->items; i++)
        p->data[i] = base[i] == LP_COLD_NO_BYTES ? NULL : lp_cold_slot_at(p, number) + base[i];
    LP_TRY(lp_cold_check(d, d->mark_set(d->context, full, ring->copy_lane), "mark a slot", err));
    LP_TRY(lp_cold_check(d, d->lane_follow(d->context, ring->push_lane, full), "follow copies to the device", err));
    if (batch->items > 0)
        LP_TRY(d->program_push(d->context, p->program, s->b->handle + batch->first_item, p->data, batch->items,
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
    int64_t number = 0, done = 0, total = 0;
    for (int32_t i = 0; i < p->sections; i++)
        total += p->section[i].b->bytes;
    LP_TRY(lp_cold_program_wait(p->maker, &p->program, err));
    LP_TRY(d->program_fill(d->context, p->program, p->ring->push_lane, err));
    for (int32_t i = 0; i < p->sections; i++)
        for (int64_t k = 0; k < p->section[i].b->batches; k++, number++) {
            if (!wait_for_batch(p, number))
                return LP_E_IO; /* the pipe has the error */
            LP_TRY(push_batch(p, number, err));
            done += p->section[i].b->batch[k].bytes;
            if (o->progress != NULL && o->progress(o->progress_context, done, total) != 0)
                return lp_fail(err, LP_E_IO, "reading was stopped by the caller");
        }
    return lp_cold_check(d, d->lane_wait(d->context, p->ring->push_lane), "load on the device", err);
}

/* Plans the rest while the first batches are read. */
static lp_status plan_rest(lp_cold_pipe *p, lp_cold_batches *rest, lp_error *err)
{
    const lp_cold_batches *first = p->section[0].b;
    LP_TRY(lp_cold_batches_rest(rest, first, p->plan, p->files, err));
    LP_TRY(add_section(p, rest, err));
    pthread_mutex_lock(&p->lock);
    p->sections = 2;
    p->is_planned = true;
    pthread_cond_broadcast(&p->planned);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

/* Copies straight into storages wait for the mark and follow it, pushes follow the lane. */
static lp_status clear(lp_cold_pipe *p, lp_error *err)
{
    const lp_cold_device *d = p->device;
    LP_TRY(lp_cold_clear(d, p->plan, p->ring->push_lane, err));
    LP_TRY(lp_cold_check(d, d->mark_set(d->context, p->ring->cleared, p->ring->push_lane), "clear device memory", err));
    pthread_mutex_lock(&p->lock);
    p->is_cleared = true;
    pthread_cond_broadcast(&p->pushed);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

lp_status lp_cold_pipe_run(lp_cold_pipe *p, const lp_cold_files *files, lp_cold_program *program, lp_cold_batches *rest,
                           lp_error *err)
{
    lp_error own = {.code = LP_OK};
    p->files = files;
    p->maker = program;
    lp_status status = start_readers(p, &own);
    if (status == LP_OK && !p->is_planned)
        status = plan_rest(p, rest, &own);
    if (status == LP_OK)
        status = clear(p, &own);
    if (status == LP_OK)
        status = push_all(p, &own);
    if (status != LP_OK)
        lp_cold_pipe_fail(p, status, &own);
    for (; p->started > 0; p->started--)
        pthread_join(p->reader[p->started - 1].thread, NULL);
    if (p->status != LP_OK && err != NULL)
        *err = p->error;
    return p->status;
}

int32_t lp_cold_pipe_queues(const lp_cold_pipe *p)
{
    return atomic_load(&p->queues);
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
    p->options = options;
    p->ring = ring;
    pthread_mutex_init(&p->lock, NULL); /* default attributes: these cannot fail on Linux */
    pthread_mutex_init(&p->lane_lock, NULL);
    pthread_cond_init(&p->planned, NULL);
    pthread_cond_init(&p->assigned, NULL);
    pthread_cond_init(&p->sent, NULL);
    pthread_cond_init(&p->pushed, NULL);
    atomic_init(&p->is_ending, false);
    atomic_init(&p->queues, 0);
    atomic_init(&p->has_told, false);
    for (int i = 0; i < LP_COLD_SLOTS; i++)
        p->followed[i] = -1;
    for (int i = (int)ring->buffers - 1; i >= 0; i--)
        p->free[p->free_count++] = i;
    const lp_status status = add_section(p, batches, err);
    if (status != LP_OK) {
        lp_cold_pipe_close(p);
        return status;
    }
    p->sections = 1;
    p->is_planned = batches->cut == batches->names;
    *out = p;
    return LP_OK;
}

void lp_cold_pipe_close(lp_cold_pipe *p)
{
    if (p == NULL)
        return;
    lp_cold_ring_wait(p->ring);
    pthread_cond_destroy(&p->planned);
    pthread_cond_destroy(&p->assigned);
    pthread_cond_destroy(&p->sent);
    pthread_cond_destroy(&p->pushed);
    pthread_mutex_destroy(&p->lane_lock);
    pthread_mutex_destroy(&p->lock);
    lp_release(p->alloc, (void *)p->data);
    for (int i = 0; i < 2; i++) {
        lp_release(p->alloc, p->section[i].flight);
        lp_release(p->alloc, p->section[i].unsent);
    }
    lp_release(p->alloc, p);
}
