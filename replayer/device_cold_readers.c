/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of a cold start: it takes parts in order, reads them into the buffer of their chunk, and sends the chunk
 * whose last part it was. What is in the page cache it reads call by call. Of direct reads it keeps several under way,
 * a part each, and then waits for nothing but them: what else it would wait for, a buffer or a slot, may need the very
 * chunks that they are parts of.
 */
#include "replayer/device_cold_chunks.h"

enum {
    UNDER_WAY_MOST = 16 /* parts of direct reads, of one reader */
};

/* A part that is being read, one read after another. */
typedef struct reading {
    bool is_used;
    int64_t part;
    const lp_cold_read *read, *end; /* the read at hand, and behind the last one of the part */
    int64_t done;                   /* bytes of it */
    uint8_t *buffer;
} reading;

typedef struct work {
    lp_cold_pipe *p;
    const lp_read_queue *table; /* NULL: there is none */
    void *queue;                /* NULL: not asked for yet */
    int32_t depth, under_way;   /* depth 0: the queue takes no more */
    reading reading[UNDER_WAY_MOST];
    int64_t held;                       /* a part that waits for its buffer, or -1 */
    int64_t full[LP_COLD_BUFFERS_MOST]; /* chunks to send, in their order: a later one may wait for an earlier one */
    int32_t full_count;
} work;

static const lp_read_queue *table_of(const lp_cold_pipe *p)
{
    if (p->options->queue != NULL)
        return p->options->queue;
    return p->plan->platform.io == lp_io_default() ? lp_read_queue_system() : NULL;
}

/* Asks for a queue; the first of all readers tells what it got. Without one there is no table any more. */
static bool open_queue(work *w)
{
    lp_cold_pipe *p = w->p;
    const int code = w->table->open(w->table->context, w->depth, &w->queue);
    const bool tells = !atomic_exchange(&p->has_told, true);
    if (code == 0) {
        atomic_fetch_add(&p->queues, 1);
        if (tells)
            lp_log(&p->plan->platform, LP_LOG_INFO, "replay", "direct reads by io_uring, %d under way for a reader",
                   w->depth);
        return true;
    }
    w->table = NULL;
    if (tells)
        lp_log(&p->plan->platform, LP_LOG_INFO, "replay", "direct reads one by one: no io_uring (%s)", strerror(-code));
    return false;
}

/* Whether the rest of the read at hand was given to the queue. */
static bool start_read(work *w, reading *x)
{
    const lp_cold_read *r = x->read;
    const lp_cold_file *file = &w->p->files->file[r->file];
    uint8_t *to = x->buffer + r->at + x->done;
    if (w->table == NULL || w->depth == 0 || r->room == 0 || file->direct_fd < 0 || atomic_load(&file->is_refused) ||
        (r->file_off + x->done) % LP_COLD_BLOCK != 0 || (uintptr_t)to % LP_COLD_BLOCK != 0)
        return false;
    if (w->queue == NULL && !open_queue(w))
        return false;
    const int code =
        w->table->start(w->table->context, w->queue, file->direct_fd, to, r->room - x->done, r->file_off + x->done, x);
    if (code != 0)
        w->depth = 0;
    else
        w->under_way++;
    return code == 0;
}

static void add_full(work *w, int64_t chunk)
{
    int32_t at = w->full_count++;
    for (; at > 0 && w->full[at - 1] > chunk; at--)
        w->full[at] = w->full[at - 1];
    w->full[at] = chunk;
}

/* Reads on: until a read is under way, or all of the part is there. */
static lp_status read_on(work *w, reading *x, lp_error *err)
{
    lp_cold_pipe *p = w->p;
    int64_t chunk;
    for (; x->read < x->end; x->read++, x->done = 0) {
        const lp_cold_read *r = x->read;
        if (x->done >= r->bytes)
            continue;
        if (start_read(w, x))
            return LP_OK;
        LP_TRY(lp_cold_files_read(p->files, r->file, r->file_off + x->done, x->buffer + r->at + x->done,
                                  r->bytes - x->done, r->room > 0 ? r->room - x->done : 0, err));
    }
    x->is_used = false;
    if (lp_cold_part_read(p, x->part, &chunk))
        add_full(w, chunk);
    return LP_OK;
}

/* Waits for a read and goes on with its part. One that failed, or met the end of the file, is made again without the
 * queue, which tells what is wrong or reads through the page cache. */
static lp_status finish_read(work *w, lp_error *err)
{
    void *tag;
    int64_t got;
    w->table->wait(w->table->context, w->queue, &tag, &got);
    w->under_way--;
    reading *x = tag;
    const lp_cold_read *r = x->read;
    if (got > 0) {
        x->done += got;
        lp_cold_files_note(w->p->files, r->file, got);
    } else {
        LP_TRY(lp_cold_files_read(w->p->files, r->file, r->file_off + x->done, x->buffer + r->at + x->done,
                                  r->bytes - x->done, r->room - x->done, err));
        x->done = r->bytes;
    }
    return read_on(w, x, err);
}

static reading *free_reading(work *w)
{
    int32_t i = 0;
    while (w->reading[i].is_used)
        i++;
    return &w->reading[i];
}

/* Begins parts until enough is under way, a chunk is complete, or there is no buffer. */
static lp_status begin_parts(work *w, lp_error *err)
{
    lp_cold_pipe *p = w->p;
    while (w->full_count == 0 && (w->under_way == 0 || w->under_way < w->depth)) {
        uint8_t *buffer = NULL;
        if (w->held < 0)
            w->held = lp_cold_part_next(p, w->under_way == 0);
        if (w->held < 0)
            return LP_OK;
        LP_TRY(lp_cold_part_buffer(p, w->held, w->under_way == 0, &buffer, err));
        if (buffer == NULL)
            return LP_OK;
        reading *x = free_reading(w);
        const lp_cold_section *s = lp_cold_section_of_part(p, w->held);
        const lp_cold_part *part = &s->b->part[w->held - s->first_part];
        const lp_cold_read *first = &s->b->read[part->first_read];
        *x = (reading){.is_used = true, .part = w->held, .read = first, .end = first + part->reads, .buffer = buffer};
        w->held = -1;
        LP_TRY(read_on(w, x, err));
    }
    return LP_OK;
}

static lp_status send_full(work *w, lp_error *err)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < w->full_count; i++) {
        bool is_sent;
        LP_TRY(lp_cold_chunk_send(w->p, w->full[i], w->under_way == 0, &is_sent, err));
        if (!is_sent)
            w->full[kept++] = w->full[i];
    }
    w->full_count = kept;
    return LP_OK;
}

static lp_status read_all(work *w, lp_error *err)
{
    while (!atomic_load(&w->p->is_ending)) {
        LP_TRY(begin_parts(w, err));
        if (w->full_count == 0 && w->under_way == 0)
            return LP_OK; /* no part is left, or the pipe is ending */
        LP_TRY(send_full(w, err));
        if (w->under_way > 0)
            LP_TRY(finish_read(w, err));
    }
    return LP_OK;
}

void *lp_cold_reader_run(void *reader)
{
    lp_cold_pipe *p = ((lp_cold_reader *)reader)->pipe;
    lp_error err = {.code = LP_OK};
    const int32_t share = LP_COLD_UNDER_WAY / p->ring->readers;
    work w = {.p = p, .table = table_of(p), .held = -1};
    w.depth = share < 1 ? 1 : share > UNDER_WAY_MOST ? UNDER_WAY_MOST : share;
    lp_status status = lp_cold_check(p->device, p->device->enter(p->device->context), "use the device", &err);
    if (status == LP_OK)
        status = read_all(&w, &err);
    if (status != LP_OK)
        lp_cold_pipe_fail(p, status, &err);
    if (w.queue != NULL)
        w.table->close(w.table->context, w.queue); /* also what a failure left under way: buffers outlive readers */
    return NULL;
}
