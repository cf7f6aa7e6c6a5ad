/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each reader has a lane and some buffers of pinned memory, which it fills in turn: it reads a chunk, puts the copy on
 * its lane, and waits for that copy only when it needs the buffer again. The owner pushes a batch as soon as all its
 * chunks are on their lanes. A slot is written again when the push that reads it is on the owner's lane, and the copy
 * follows it on the device, so that nobody on the host waits for a kernel.
 *
 * Chunks are claimed in order. A reader that must wait for a slot waits for a batch all of whose chunks were claimed
 * before, so that somebody always gets on.
 */
#include "replayer/device_cold_pipe.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum {
    READERS_MOST = 16, /* more do not read faster */
    BUFFERS_MOST = 16, /* of one reader */
    SLOTS = 4,
    LARGE_SLOTS = 2, /* where one tensor makes slots larger than was asked for */
    PIN_ALIGN = 4096
};

typedef struct buffer {
    uint8_t *host;
    void *mark;
    int64_t batch; /* of the copy under way; -1: none yet */
} buffer;

typedef struct reader {
    lp_cold_pipe *pipe;
    void *lane;
    pthread_t thread;
    buffer buffer[BUFFERS_MOST];
} reader;

struct lp_cold_pipe {
    const lp_cold_device *device;
    const lp_plan *plan;
    const lp_alloc *alloc;
    const lp_cold_batches *b;
    const lp_cold_options *options;
    const lp_cold_files *files;
    void *program, *lane; /* of the owner */
    uint8_t *slots_block;
    int64_t slots;
    void *slot_free[SLOTS];
    uint8_t *host_block, *host; /* as allocated; aligned and pinned */
    bool is_pinned;
    reader reader[READERS_MOST];
    int32_t readers, started, buffers; /* buffers: of each reader */
    const void **data;                 /* of a push */

    pthread_mutex_t lock;
    pthread_cond_t arrived, moved;
    int64_t next_chunk;
    int64_t *on_lanes; /* by batch: chunks whose copies are on their lanes */
    int64_t pushed;    /* batches */
    bool is_ending;
    lp_status status; /* the first failure of a reader */
    lp_error error;
};

static uint8_t *slot_of(const lp_cold_pipe *p, int64_t batch)
{
    return p->slots_block + batch % p->slots * p->b->slot;
}

/* ---- readers ---- */

static lp_status read_chunk(const lp_cold_pipe *p, const lp_cold_chunk *c, uint8_t *to, lp_error *err)
{
    for (int64_t i = c->first_read; i < c->first_read + c->reads; i++) {
        const lp_cold_read *r = &p->b->read[i];
        LP_TRY(lp_cold_files_read(p->files, r->file, r->file_off, to + r->at, r->bytes, err));
    }
    return LP_OK;
}

/* Until the push that reads the slot of `batch` is on the owner's lane; false when the pipe is ending. */
static bool wait_for_slot(lp_cold_pipe *p, int64_t batch)
{
    pthread_mutex_lock(&p->lock);
    while (batch >= p->pushed + p->slots && !p->is_ending)
        pthread_cond_wait(&p->moved, &p->lock);
    const bool goes_on = !p->is_ending;
    pthread_mutex_unlock(&p->lock);
    return goes_on;
}

static int send_chunk(const lp_cold_pipe *p, const reader *r, const lp_cold_chunk *c, const buffer *b)
{
    const lp_cold_device *d = p->device;
    int code = c->batch < p->slots ? 0 : d->lane_follow(d->context, r->lane, p->slot_free[c->batch % p->slots]);
    for (int64_t i = c->first_copy; i < c->first_copy + c->copies && code == 0; i++) {
        const lp_cold_copy *copy = &p->b->copy[i];
        uint8_t *to = (copy->straight != NULL ? copy->straight : slot_of(p, c->batch)) + copy->to;
        code = d->copy(d->context, r->lane, to, copy->to_pitch, b->host + copy->at, copy->at_pitch, copy->bytes,
                       copy->rows);
    }
    return code == 0 ? d->mark_set(d->context, b->mark, r->lane) : code;
}

static lp_status do_chunk(lp_cold_pipe *p, const reader *r, int64_t number, buffer *b, lp_error *err)
{
    const lp_cold_device *d = p->device;
    const lp_cold_chunk *c = &p->b->chunk[number];
    if (b->batch >= 0)
        LP_TRY(lp_cold_check(d, d->mark_wait(d->context, b->mark), "copy to the device", err));
    LP_TRY(read_chunk(p, c, b->host, err));
    if (!wait_for_slot(p, c->batch))
        return LP_OK;
    LP_TRY(lp_cold_check(d, send_chunk(p, r, c, b), "copy to the device", err));
    pthread_mutex_lock(&p->lock);
    b->batch = c->batch;
    if (++p->on_lanes[c->batch] == p->b->batch[c->batch].chunks)
        pthread_cond_signal(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

static void fail(lp_cold_pipe *p, lp_status status, const lp_error *err)
{
    pthread_mutex_lock(&p->lock);
    if (p->status == LP_OK) {
        p->status = status;
        p->error = *err;
    }
    p->is_ending = true;
    pthread_cond_broadcast(&p->arrived);
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
}

static void *read_chunks(void *argument)
{
    reader *r = argument;
    lp_cold_pipe *p = r->pipe;
    lp_error err = {.code = LP_OK};
    lp_status status = lp_cold_check(p->device, p->device->enter(p->device->context), "use the device", &err);
    for (int32_t turn = 0; status == LP_OK; turn = (turn + 1) % p->buffers) {
        pthread_mutex_lock(&p->lock);
        const int64_t number = p->is_ending || p->next_chunk == p->b->chunks ? -1 : p->next_chunk++;
        pthread_mutex_unlock(&p->lock);
        if (number < 0)
            return NULL;
        status = do_chunk(p, r, number, &r->buffer[turn], &err);
    }
    fail(p, status, &err);
    return NULL;
}

/* ---- the owner ---- */

/* Waits until all chunks of a batch are on their lanes, and lets the owner's lane follow them. */
static lp_status follow_chunks(lp_cold_pipe *p, int64_t batch, lp_error *err)
{
    const lp_cold_device *d = p->device;
    int code = 0;
    pthread_mutex_lock(&p->lock);
    while (p->on_lanes[batch] < p->b->batch[batch].chunks && !p->is_ending)
        pthread_cond_wait(&p->arrived, &p->lock);
    const bool goes_on = !p->is_ending;
    /* A buffer that has gone on to a later batch was waited for by its reader. */
    for (int32_t r = 0; r < p->readers && goes_on; r++)
        for (int32_t i = 0; i < p->buffers && code == 0; i++)
            if (p->reader[r].buffer[i].batch == batch)
                code = d->lane_follow(d->context, p->lane, p->reader[r].buffer[i].mark);
    pthread_mutex_unlock(&p->lock);
    if (!goes_on)
        return LP_E_IO; /* fail() has the error */
    return lp_cold_check(d, code, "follow copies to the device", err);
}

static lp_status push_batch(lp_cold_pipe *p, int64_t number, lp_error *err)
{
    const lp_cold_device *d = p->device;
    const lp_cold_batch *batch = &p->b->batch[number];
    const int64_t *base = p->b->base + batch->first_item;
    for (int64_t i = 0; i < batch->items; i++)
        p->data[i] = base[i] == LP_COLD_NO_BYTES ? NULL : slot_of(p, number) + base[i];
    LP_TRY(follow_chunks(p, number, err));
    if (batch->items > 0)
        LP_TRY(d->program_push(d->context, p->program, p->b->handle + batch->first_item, p->data, batch->items, p->lane,
                               err));
    LP_TRY(lp_cold_check(d, d->mark_set(d->context, p->slot_free[number % p->slots], p->lane), "mark a slot", err));
    pthread_mutex_lock(&p->lock);
    p->pushed = number + 1;
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    return LP_OK;
}

static lp_status push_all(lp_cold_pipe *p, lp_error *err)
{
    const lp_cold_options *o = p->options;
    int64_t done = 0;
    for (int64_t i = 0; i < p->b->batches; i++) {
        LP_TRY(push_batch(p, i, err));
        done += p->b->batch[i].bytes;
        if (o->progress != NULL && o->progress(o->progress_context, done, p->b->bytes) != 0)
            return lp_fail(err, LP_E_IO, "reading was stopped by the caller");
    }
    return lp_cold_check(p->device, p->device->lane_wait(p->device->context, p->lane), "load on the device", err);
}

static lp_status start_readers(lp_cold_pipe *p, lp_error *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->started < p->readers &&
           pthread_create(&p->reader[p->started].thread, NULL, read_chunks, &p->reader[p->started]) == 0)
        p->started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return p->started > 0 ? LP_OK : lp_fail(err, LP_E_MEMORY, "cannot start a thread");
}

/* The lane is empty afterwards: readers write straight into storages. */
static lp_status clear(lp_cold_pipe *p, lp_error *err)
{
    const lp_cold_device *d = p->device;
    int code = 0;
    for (uint32_t i = 0; i < p->plan->storage_count && code == 0; i++)
        if (p->plan->storage[i].bytes > 0)
            code = d->clear(d->context, p->lane, p->plan->storage[i].base, p->plan->storage[i].bytes);
    LP_TRY(lp_cold_check(d, code, "clear device memory", err));
    LP_TRY(d->program_fill(d->context, p->program, p->lane, err));
    return lp_cold_check(d, d->lane_wait(d->context, p->lane), "clear device memory", err);
}

lp_status lp_cold_pipe_run(lp_cold_pipe *p, const lp_cold_files *files, lp_error *err)
{
    lp_error own = {.code = LP_OK};
    p->files = files;
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

static int32_t reader_count(const lp_cold_pipe *p)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t count = p->options->readers > 0 ? p->options->readers : processors > 2 ? processors : 2;
    const int64_t pinned = p->options->pinned > 0 ? p->options->pinned : (int64_t)128 << 20;
    if (count > READERS_MOST)
        count = READERS_MOST;
    if (count > pinned / LP_COLD_CHUNK)
        count = pinned / LP_COLD_CHUNK;
    if (count > p->b->chunks)
        count = p->b->chunks;
    return count < 1 ? 1 : (int32_t)count;
}

static int32_t buffer_count(const lp_cold_pipe *p)
{
    const int64_t pinned = p->options->pinned > 0 ? p->options->pinned : (int64_t)128 << 20;
    const int64_t most = pinned / LP_COLD_CHUNK / p->readers, useful = (p->b->chunks + p->readers - 1) / p->readers;
    const int64_t count = most < useful ? most : useful;
    return count < 1 ? 1 : count > BUFFERS_MOST ? BUFFERS_MOST : (int32_t)count;
}

/* Pinned memory is touched before it is registered, which is ten times as fast as the other way round. */
static lp_status take_host(lp_cold_pipe *p, int64_t bytes, lp_error *err)
{
    const lp_cold_device *d = p->device;
    p->host_block = lp_allocate(p->alloc, (size_t)bytes + PIN_ALIGN);
    p->data = lp_allocate(p->alloc, ((size_t)p->b->most_items + 1) * sizeof *p->data);
    p->on_lanes = lp_allocate_zero(p->alloc, ((size_t)p->b->batches + 1) * sizeof *p->on_lanes);
    if (p->host_block == NULL || p->data == NULL || p->on_lanes == NULL)
        return lp_fail_memory(err);
    p->host = p->host_block + (-(uintptr_t)p->host_block & (PIN_ALIGN - 1));
    memset(p->host, 0, (size_t)bytes);
    const int code = d->pin(d->context, p->host, bytes);
    p->is_pinned = code == 0;
    return lp_cold_check(d, code, "pin host memory", err);
}

static lp_status take_lanes(lp_cold_pipe *p, lp_error *err)
{
    const lp_cold_device *d = p->device;
    uint8_t *host = p->host;
    int code = d->lane_open(d->context, &p->lane);
    for (int64_t i = 0; i < p->slots && code == 0; i++)
        code = d->mark_open(d->context, &p->slot_free[i]);
    for (int32_t r = 0; r < p->readers && code == 0; r++) {
        p->reader[r].pipe = p;
        code = d->lane_open(d->context, &p->reader[r].lane);
        for (int32_t i = 0; i < p->buffers && code == 0; i++, host += LP_COLD_CHUNK) {
            p->reader[r].buffer[i] = (buffer){.host = host, .batch = -1};
            code = d->mark_open(d->context, &p->reader[r].buffer[i].mark);
        }
    }
    return lp_cold_check(d, code, "set up lanes to the device", err);
}

static lp_status take_all(lp_cold_pipe *p, int64_t wanted_slot, lp_cold_report *report, lp_error *err)
{
    const lp_cold_device *d = p->device;
    p->readers = reader_count(p);
    p->buffers = buffer_count(p);
    p->slots = p->b->slot > wanted_slot ? LARGE_SLOTS : SLOTS;
    if (p->slots > p->b->batches)
        p->slots = p->b->batches > 0 ? p->b->batches : 1;
    report->readers = p->readers;
    report->pinned_bytes = (int64_t)p->readers * p->buffers * LP_COLD_CHUNK;
    LP_TRY(take_host(p, report->pinned_bytes, err));
    const int code = d->allocate(d->context, p->slots * p->b->slot, (void **)&p->slots_block);
    if (code != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot take %lld bytes of device memory for staging: %s",
                       (long long)(p->slots * p->b->slot), d->error_text(d->context, code));
    LP_TRY(take_lanes(p, err));
    LP_TRY(d->program_open(d->context, &p->program, p->plan, err));
    report->device_bytes = p->slots * p->b->slot + d->program_bytes(d->context, p->program);
    return LP_OK;
}

lp_status lp_cold_pipe_open(lp_cold_pipe **out, const lp_cold_device *device, const lp_plan *plan,
                            const lp_cold_batches *batches, const lp_cold_options *options, lp_cold_report *report,
                            lp_error *err)
{
    lp_cold_pipe *p = lp_allocate_zero(plan->platform.alloc, sizeof *p);
    if (p == NULL)
        return lp_fail_memory(err);
    p->device = device;
    p->plan = plan;
    p->alloc = plan->platform.alloc;
    p->b = batches;
    p->options = options;
    pthread_mutex_init(&p->lock, NULL); /* default attributes: these cannot fail on Linux */
    pthread_cond_init(&p->arrived, NULL);
    pthread_cond_init(&p->moved, NULL);
    const lp_status status = take_all(p, options->slot > 0 ? options->slot : LP_COLD_SLOT, report, err);
    if (status != LP_OK) {
        lp_cold_pipe_close(p);
        return status;
    }
    *out = p;
    return LP_OK;
}

void lp_cold_pipe_close(lp_cold_pipe *p)
{
    if (p == NULL)
        return;
    const lp_cold_device *d = p->device;
    for (int32_t r = 0; r < p->readers; r++)
        if (p->reader[r].lane != NULL)
            (void)d->lane_wait(d->context, p->reader[r].lane);
    if (p->lane != NULL)
        (void)d->lane_wait(d->context, p->lane);
    for (int32_t r = 0; r < p->readers; r++) {
        for (int32_t i = 0; i < p->buffers; i++)
            d->mark_close(d->context, p->reader[r].buffer[i].mark);
        d->lane_close(d->context, p->reader[r].lane);
    }
    for (int64_t i = 0; i < SLOTS; i++)
        d->mark_close(d->context, p->slot_free[i]);
    d->program_close(d->context, p->program);
    d->lane_close(d->context, p->lane);
    d->release(d->context, p->slots_block);
    if (p->is_pinned)
        d->unpin(d->context, p->host);
    pthread_cond_destroy(&p->arrived);
    pthread_cond_destroy(&p->moved);
    pthread_mutex_destroy(&p->lock);
    lp_release(p->alloc, p->host_block);
    lp_release(p->alloc, (void *)p->data);
    lp_release(p->alloc, p->on_lanes);
    lp_release(p->alloc, p);
}
