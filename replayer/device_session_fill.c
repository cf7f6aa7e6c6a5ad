/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading ahead for a session on a device, without a thread that pushes: reads of one half of the block run beside the
 * copies out of the other one, and a half is read into again behind a wait for the stream that everything goes by.
 */
#include "replayer/device_session_fill.h"

#include <pthread.h>

enum {
    HALF_MOST = 32 << 20,
    PINNED_LEAST = 16 << 20, /* less is not worth the time that pinning takes */
    PART_MOST = 1 << 20,     /* that one thread reads at a time */
    PART_LEAST = 64 << 10
};

/* Bytes that lie in a row in a file and in the block, of one name or of several. */
typedef struct run {
    int32_t file;
    int64_t file_off, at, bytes;
} run;

typedef struct piece {
    lp_handle handle;
    int64_t lo, at, bytes;
} piece;

struct lp_device_fill {
    lp_session *s;
    const lp_cold_files *files;
    int (*progress)(void *context, int64_t done, int64_t total);
    void *context;
    int64_t done, total, read;
    uint8_t *block;
    bool is_pinned, is_second; /* half that is being filled */
    bool is_under_way;         /* the device may still copy out of the other half */
    int64_t half, used;
    run *run, *part; /* parts are runs, cut for the threads */
    piece *piece;
    int64_t runs, run_capacity, parts, part_capacity, pieces, piece_capacity;
    pthread_mutex_t lock; /* of what follows */
    int64_t failed;       /* the first part that could not be read; INT64_MAX: none */
    lp_status status;
    lp_error error;
};

static uint8_t *half_of(const lp_device_fill *f)
{
    return f->block + (f->is_second ? f->half : 0);
}

/* ---- reading ---- */

static lp_status cut_runs(lp_device_fill *f, lp_error *err)
{
    const int64_t share = f->used / lp_pool_threads(f->s->plan->pool);
    const int64_t most = share > PART_MOST ? PART_MOST : share < PART_LEAST ? PART_LEAST : share;
    f->parts = 0;
    for (int64_t i = 0; i < f->runs; i++)
        for (int64_t done = 0, bytes; done < f->run[i].bytes; done += bytes) {
            bytes = f->run[i].bytes - done < most ? f->run[i].bytes - done : most;
            if (!lp_grow(f->s->alloc, (void **)&f->part, &f->part_capacity, f->parts + 1, sizeof *f->part))
                return lp_fail_memory(err);
            f->part[f->parts++] = (run){f->run[i].file, f->run[i].file_off + done, f->run[i].at + done, bytes};
        }
    return LP_OK;
}

static void note_failure(lp_device_fill *f, int64_t number, lp_status status, const lp_error *err)
{
    pthread_mutex_lock(&f->lock);
    if (number < f->failed) {
        f->failed = number;
        f->status = status;
        f->error = *err;
    }
    pthread_mutex_unlock(&f->lock);
}

static bool is_behind_failure(lp_device_fill *f, int64_t number)
{
    pthread_mutex_lock(&f->lock);
    const bool is = number > f->failed;
    pthread_mutex_unlock(&f->lock);
    return is;
}

static void read_part(void *context, int64_t number)
{
    lp_device_fill *f = context;
    const run *p = &f->part[number];
    lp_error err = {.code = LP_OK};
    if (is_behind_failure(f, number))
        return;
    const lp_status status = lp_cold_files_read(f->files, p->file, p->file_off, half_of(f) + p->at, p->bytes, 0, &err);
    if (status != LP_OK)
        note_failure(f, number, status, &err);
}

/* ---- pushing ---- */

/* What lies before `end` in the half. */
static lp_status push_pieces(lp_device_fill *f, int64_t end, lp_error *err)
{
    for (int64_t i = 0; i < f->pieces && f->piece[i].at + f->piece[i].bytes <= end; i++) {
        const piece *p = &f->piece[i];
        f->is_under_way = f->is_pinned;
        LP_TRY(lp_device_push_range(f->s, p->handle, p->lo, half_of(f) + p->at, p->bytes, LP_SOURCE_HOST, err));
        f->done += p->bytes;
        if (f->progress != NULL && p->bytes > 0 && f->progress(f->context, f->done, f->total) != 0)
            return lp_fail(err, LP_E_IO, "reading was stopped by the caller");
    }
    return LP_OK;
}

static lp_status wait_for_copies(lp_device_fill *f, lp_error *err)
{
    const lp_device_calls *c = &f->s->on->side->calls;
    int before, code;
    if (!f->is_under_way)
        return LP_OK;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    code = c->wait(c->context, f->s->on->stream);
    c->leave(c->context, before);
    f->is_under_way = false;
    return lp_device_check(c, code, "copy to the device", err);
}

lp_status lp_device_fill_flush(lp_device_fill *f, lp_error *err)
{
    if (f->pieces == 0)
        return LP_OK;
    LP_TRY(cut_runs(f, err));
    f->failed = INT64_MAX;
    lp_pool_run(f->s->plan->pool, f->parts, read_part, f);
    const bool is_whole = f->failed == INT64_MAX;
    const int64_t end = is_whole ? f->used : f->part[f->failed].at;
    f->read += end;
    lp_status status = wait_for_copies(f, err);
    if (status == LP_OK)
        status = push_pieces(f, end, err);
    if (status == LP_OK && !is_whole) {
        *err = f->error;
        status = f->status;
    }
    f->is_second = !f->is_second;
    f->used = f->runs = f->pieces = 0;
    return status;
}

/* ---- gathering ---- */

static lp_status add_piece(lp_device_fill *f, lp_handle handle, int64_t lo, int64_t bytes, int32_t file,
                           int64_t file_off, lp_error *err)
{
    run *last = f->runs > 0 ? &f->run[f->runs - 1] : NULL;
    const bool joins = last != NULL && last->file == file && last->file_off + last->bytes == file_off;
    if (!lp_grow(f->s->alloc, (void **)&f->piece, &f->piece_capacity, f->pieces + 1, sizeof *f->piece) ||
        (!joins && !lp_grow(f->s->alloc, (void **)&f->run, &f->run_capacity, f->runs + 1, sizeof *f->run)))
        return lp_fail_memory(err);
    f->piece[f->pieces++] = (piece){handle, lo, f->used, bytes};
    if (joins)
        last->bytes += bytes;
    else if (bytes > 0)
        f->run[f->runs++] = (run){file, file_off, f->used, bytes};
    f->used += bytes;
    return LP_OK;
}

lp_status lp_device_fill_add(lp_device_fill *f, lp_handle handle, int64_t lo, int64_t bytes, int32_t file,
                             int64_t file_off, lp_error *err)
{
    int64_t done = 0;
    do {
        const int64_t room = f->half - f->used, some = bytes - done < room ? bytes - done : room;
        LP_TRY(add_piece(f, handle, lo + done, some, file, file_off + done, err));
        done += some;
        if (f->used == f->half)
            LP_TRY(lp_device_fill_flush(f, err));
    } while (done < bytes);
    return LP_OK;
}

int64_t lp_device_fill_read(const lp_device_fill *f)
{
    return f->read;
}

/* ---- life ---- */

/* Pinned where it is worth it and can be had. */
static lp_status take_block(lp_device_fill *f, lp_error *err)
{
    const lp_device_calls *c = &f->s->on->side->calls;
    void *pinned = NULL;
    int before;
    if (f->total >= PINNED_LEAST && c->enter(c->context, &before) == 0) {
        f->is_pinned = c->take_pinned(c->context, 2 * f->half, &pinned) == 0;
        c->leave(c->context, before);
    }
    f->block = f->is_pinned ? pinned : lp_allocate(f->s->alloc, (size_t)(2 * f->half));
    return f->block != NULL ? LP_OK : lp_fail_memory(err);
}

lp_status lp_device_fill_open(lp_device_fill **out, lp_session *s, const lp_cold_files *files, int64_t bytes,
                              int (*progress)(void *context, int64_t done, int64_t total), void *context, lp_error *err)
{
    lp_device_fill *f = lp_allocate_zero(s->alloc, sizeof *f);
    if (f == NULL)
        return lp_fail_memory(err);
    f->s = s;
    f->files = files;
    f->progress = progress;
    f->context = context;
    f->total = bytes;
    f->half = bytes > HALF_MOST ? HALF_MOST : bytes > 0 ? bytes : 1;
    pthread_mutex_init(&f->lock, NULL); /* default attributes: this cannot fail on Linux */
    *out = f;
    return take_block(f, err);
}

static void give_block(lp_device_fill *f)
{
    const lp_device_calls *c = &f->s->on->side->calls;
    int before;
    lp_error err;
    if (!f->is_pinned) {
        lp_release(f->s->alloc, f->block);
        return;
    }
    (void)wait_for_copies(f, &err); /* a failure is the session's, which waits too */
    if (c->enter(c->context, &before) == 0) {
        c->give_pinned(c->context, f->block);
        c->leave(c->context, before);
    }
}

void lp_device_fill_close(lp_device_fill *f)
{
    if (f == NULL)
        return;
    give_block(f);
    pthread_mutex_destroy(&f->lock);
    lp_release(f->s->alloc, f->run);
    lp_release(f->s->alloc, f->part);
    lp_release(f->s->alloc, f->piece);
    lp_release(f->s->alloc, f);
}
