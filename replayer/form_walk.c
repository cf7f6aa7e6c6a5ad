/* SPDX-License-Identifier: Apache-2.0 */
/* Strided memory as one stream of bytes, in pieces: what digests, rank files and strided pushes read. */
#include "replayer/plan.h"

/* A multiple of eight, so that every piece but the last one is whole words and whole elements. */
enum { PIECE_BYTES = 1 << 18 };

typedef struct stream {
    const lp_form *form;
    uint8_t *buffer;
    int64_t used;
    lp_piece_fn piece;
    void *context;
    lp_error *err;
} stream;

/* Passes bytes on in pieces that start at multiples of PIECE_BYTES of the stream. */
static lp_status feed(stream *s, const uint8_t *data, int64_t bytes)
{
    while (bytes > 0) {
        const int64_t room = PIECE_BYTES - s->used;
        const int64_t part = bytes < room ? bytes : room;
        if (part == PIECE_BYTES) { /* no need to copy */
            LP_TRY(s->piece(s->context, data, part, s->err));
        } else {
            memcpy(s->buffer + s->used, data, (size_t)part);
            s->used += part;
            if (s->used == PIECE_BYTES) {
                LP_TRY(s->piece(s->context, s->buffer, s->used, s->err));
                s->used = 0;
            }
        }
        data += part;
        bytes -= part;
    }
    return LP_OK;
}

/* Units of the last dimension, copied one by one into the buffer while it has room for them. */
static lp_status feed_units(stream *s, const uint8_t *at, int64_t count, int64_t stride, int64_t unit)
{
    for (int64_t i = 0; i < count; i++, at += stride) {
        if (s->used + unit < PIECE_BYTES) {
            if (unit == 4)
                memcpy(s->buffer + s->used, at, 4);
            else if (unit == 2)
                memcpy(s->buffer + s->used, at, 2);
            else if (unit == 1)
                s->buffer[s->used] = *at;
            else
                memcpy(s->buffer + s->used, at, (size_t)unit);
            s->used += unit;
        } else {
            LP_TRY(feed(s, at, unit));
        }
    }
    return LP_OK;
}

static lp_status walk(stream *s, int32_t dim, const uint8_t *at)
{
    const lp_form *f = s->form;
    if (dim == f->ndim)
        return feed(s, at, f->unit);
    if (dim == f->ndim - 1)
        return feed_units(s, at, f->shape[dim], f->stride[dim], f->unit);
    for (int64_t i = 0; i < f->shape[dim]; i++)
        LP_TRY(walk(s, dim + 1, at + i * f->stride[dim]));
    return LP_OK;
}

/* Dimensions that continue each other become one, and dense inner ones a larger unit. */
static void simplify(lp_form *f)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < f->ndim; i++) {
        if (f->shape[i] == 1)
            continue;
        if (kept > 0 && f->stride[kept - 1] == f->stride[i] * f->shape[i]) {
            f->shape[kept - 1] *= f->shape[i];
            f->stride[kept - 1] = f->stride[i];
        } else {
            f->shape[kept] = f->shape[i];
            f->stride[kept++] = f->stride[i];
        }
    }
    f->ndim = kept;
    if (kept > 0 && f->stride[kept - 1] == f->unit) {
        f->unit *= f->shape[kept - 1];
        f->ndim--;
    }
}

lp_status lp_form_walk(const lp_form *form, const void *data, const lp_alloc *alloc, lp_piece_fn piece, void *context,
                       lp_error *err)
{
    lp_form simple = *form;
    if (form->bytes == 0)
        return LP_OK;
    simplify(&simple);
    stream s = {&simple, lp_allocate(alloc, PIECE_BYTES), 0, piece, context, err};
    if (s.buffer == NULL)
        return lp_fail_memory(err);
    lp_status status = walk(&s, 0, data);
    if (status == LP_OK && s.used > 0)
        status = piece(context, s.buffer, s.used, err);
    lp_release(alloc, s.buffer);
    return status;
}
