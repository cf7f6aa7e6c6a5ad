/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of chunks: threads take parts of pieces in order, as long as their chunk has memory. */
#include "replayer/sync_cold_read.h"

#include "replayer/quiet_thread.h"

#include <pthread.h>

enum { PART = 4 << 20 };

/* The next part to be read. */
typedef struct cursor {
    int64_t chunk;            /* of all lists */
    int list;                 /* of it */
    int64_t frame, piece, at; /* in the list; of the frame; byte of the piece, or 0 where it has several runs */
    int64_t to;               /* byte of the chunk */
} cursor;

struct lp_cold_reader {
    const lp_sync *s;
    const lp_sync_source *source;
    const lp_pieces *const *list;
    int lists;
    uint8_t *const *memory;
    int64_t chunks, taken, given;
    int64_t left[LP_COLD_AHEAD]; /* bytes of a chunk that are not read yet */
    cursor next;
    bool has_ended;
    pthread_mutex_t lock, runs; /* runs: pieces of several runs share what the source has for them */
    pthread_cond_t changed;
    pthread_t thread[LP_COLD_THREADS];
    int threads;
    lp_status status;
    lp_error err;
};

static const lp_frame_span *frame_of(const lp_cold_reader *r, const cursor *c)
{
    return lp_pieces_frame(r->list[c->list], c->frame);
}

/* Goes to where there is something to read, over what is empty. */
static void settle(lp_cold_reader *r)
{
    cursor *c = &r->next;
    while (c->list < r->lists) {
        if (c->frame == r->list[c->list]->frame_count) {
            c->list++;
            c->frame = 0;
        } else if (c->piece == frame_of(r, c)->count) {
            c->frame++;
            c->chunk++;
            c->piece = c->to = 0;
        } else if (lp_piece_bytes(&r->list[c->list]->piece[frame_of(r, c)->first + c->piece]) == 0) {
            c->piece++;
        } else {
            return;
        }
    }
}

/* Begins the chunks that have got memory: what is left of them is known before the first part. */
static void open_chunks(lp_cold_reader *r, int64_t from, int64_t to)
{
    int64_t chunk = 0;
    for (int l = 0; l < r->lists; l++)
        for (int64_t f = 0; f < r->list[l]->frame_count; f++, chunk++)
            if (chunk >= from && chunk < to)
                r->left[chunk % LP_COLD_AHEAD] = r->list[l]->frame[f].bytes;
}

static lp_status read_part(lp_cold_reader *r, const lp_piece *p, int64_t at, int64_t bytes, uint8_t *to, lp_error *err)
{
    const lp_sync_source *source = r->source;
    if (p->count == 1)
        return source->read(source->context, p->name, p->lo + at, bytes, 0, 1, to, err);
    pthread_mutex_lock(&r->runs);
    const lp_status status = source->read(source->context, p->name, p->lo, p->run, p->stride, p->count, to, err);
    pthread_mutex_unlock(&r->runs);
    return status;
}

/* With the lock; false: there is nothing more for this thread. */
static bool read_next(lp_cold_reader *r)
{
    while (!r->has_ended && r->next.list < r->lists && r->next.chunk >= r->given + LP_COLD_AHEAD)
        pthread_cond_wait(&r->changed, &r->lock);
    if (r->has_ended || r->next.list == r->lists)
        return false;
    cursor *c = &r->next;
    const int64_t chunk = c->chunk, at = c->at;
    const lp_piece *p = &r->list[c->list]->piece[frame_of(r, c)->first + c->piece];
    const int64_t all = lp_piece_bytes(p), bytes = p->count > 1 || all - at < PART ? all - at : PART;
    uint8_t *to = r->memory[chunk % LP_COLD_AHEAD] + c->to;
    c->to += bytes;
    c->at += bytes;
    if (c->at == all) {
        c->at = 0;
        c->piece++;
    }
    settle(r);
    pthread_mutex_unlock(&r->lock);
    lp_error err;
    const lp_status status = read_part(r, p, at, bytes, to, &err);
    pthread_mutex_lock(&r->lock);
    r->left[chunk % LP_COLD_AHEAD] -= bytes;
    if (status != LP_OK && r->status == LP_OK) {
        r->status = status;
        r->err = err;
        r->has_ended = true;
    }
    if (r->left[chunk % LP_COLD_AHEAD] == 0 || status != LP_OK)
        pthread_cond_broadcast(&r->changed);
    return true;
}

static void *run_reader(void *context)
{
    lp_cold_reader *r = context;
    pthread_mutex_lock(&r->lock);
    while (read_next(r))
        continue;
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Sources open a file when they first read of it, which is not for several threads. */
static lp_status open_files(const lp_cold_reader *r, lp_error *err)
{
    uint8_t none;
    for (int l = 0; l < r->lists; l++)
        for (int64_t i = 0; i < r->list[l]->count; i++) {
            const lp_piece *p = &r->list[l]->piece[i];
            if (i == 0 || p->name != p[-1].name)
                LP_TRY(r->source->read(r->source->context, p->name, p->lo, 0, 0, 1, &none, err));
        }
    return LP_OK;
}

lp_status lp_cold_reader_open(lp_cold_reader **out, const lp_sync *s, const lp_sync_source *source,
                              const lp_pieces *const *list, int lists, uint8_t *const *memory, int threads,
                              lp_error *err)
{
    lp_cold_reader *r = lp_allocate_zero(s->alloc, sizeof *r);
    if (r == NULL)
        return lp_fail_memory(err);
    *r = (lp_cold_reader){.s = s, .source = source, .list = list, .lists = lists, .memory = memory};
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->runs, NULL);
    pthread_cond_init(&r->changed, NULL);
    for (int l = 0; l < lists; l++)
        r->chunks += list[l]->frame_count;
    open_chunks(r, 0, LP_COLD_AHEAD);
    settle(r);
    lp_status status = open_files(r, err);
    for (int i = 0; i < threads && i < LP_COLD_THREADS && status == LP_OK; i++) {
        if (lp_quiet_thread(&r->thread[i], run_reader, r) != 0)
            break;
        r->threads++;
    }
    if (status == LP_OK && r->threads == 0)
        status = lp_fail(err, LP_E_MEMORY, "no thread could be started to read");
    if (status != LP_OK) {
        lp_cold_reader_close(r);
        return status;
    }
    *out = r;
    return LP_OK;
}

lp_status lp_cold_reader_take(lp_cold_reader *r, const uint8_t **data, lp_error *err)
{
    const int slot = (int)(r->taken % LP_COLD_AHEAD);
    pthread_mutex_lock(&r->lock);
    while (r->status == LP_OK && r->left[slot] > 0)
        pthread_cond_wait(&r->changed, &r->lock);
    const lp_status status = r->status;
    if (status != LP_OK)
        *err = r->err;
    pthread_mutex_unlock(&r->lock);
    *data = r->memory[slot];
    r->taken++;
    return status;
}

void lp_cold_reader_give(lp_cold_reader *r)
{
    pthread_mutex_lock(&r->lock);
    r->given++;
    open_chunks(r, r->given + LP_COLD_AHEAD - 1, r->given + LP_COLD_AHEAD);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void lp_cold_reader_close(lp_cold_reader *r)
{
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    r->has_ended = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->threads; i++)
        pthread_join(r->thread[i], NULL);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->runs);
    pthread_mutex_destroy(&r->lock);
    lp_release(r->s->alloc, r);
}
