/* SPDX-License-Identifier: Apache-2.0 */
/* The front of the fast executor: parts of maps become pieces, pieces become tasks. */
#include "replayer/exec_fast.h"

#include "replayer/exec_reference.h"

enum {
    SHORT_RUN = 64,           /* bytes; shorter runs are moved by tiles */
    TASK_BYTES = 256 << 10,   /* what makes waking another thread worth it */
    TASKS_PER_THREAD = 4,     /* so that a thread that is held up does not hold up the others */
    STREAM_BYTES = 512 << 10, /* written by one call: more than anybody reads again soon */
};

void lp_batch_init(lp_batch *b, lp_pool *pool)
{
    b->pool = pool;
    b->count = b->bytes = 0;
}

/* ---- tasks ---- */

typedef struct split {
    const lp_batch *batch;
    int64_t tasks;
} split;

/* Bytes [lo, hi) of the batch, rounded to units in the same way at both ends, so that tasks meet without gap. */
static void run_task(void *context, int64_t index)
{
    const split *s = context;
    const lp_batch *b = s->batch;
    const int64_t share = (b->bytes + s->tasks - 1) / s->tasks;
    int64_t lo = index * share, hi = lo + share;
    bool streamed = false;
    for (int64_t i = 0; i < b->count && hi > 0; i++) {
        const lp_piece *p = &b->piece[i];
        if (lo < p->bytes) {
            const int64_t unit = (p->bytes + p->units - 1) / p->units;
            const int64_t first = lo > 0 ? (lo + unit - 1) / unit : 0;
            const int64_t end = hi >= p->bytes ? p->units : (hi + unit - 1) / unit;
            const int64_t last = end < p->units ? end : p->units;
            if (first < last)
                p->move(p, first, last);
            streamed = streamed || p->streams;
        }
        lo -= p->bytes;
        hi -= p->bytes;
    }
    if (streamed)
        lp_stream_end();
}

void lp_batch_flush(lp_batch *b)
{
    const int64_t most = (int64_t)lp_pool_threads(b->pool) * TASKS_PER_THREAD;
    const int64_t wanted = lp_pool_threads(b->pool) > 1 ? b->bytes / TASK_BYTES : 1;
    split s = {b, wanted < 1 ? 1 : wanted < most ? wanted : most};
    for (int64_t i = 0; i < b->count; i++) {
        lp_piece *p = &b->piece[i];
        p->streams = b->bytes >= STREAM_BYTES;
        if (p->src == NULL)
            lp_piece_plan_fill(p);
        else if (p->is_cast)
            lp_piece_plan_cast(p);
        else if (p->run < SHORT_RUN && p->rank > 0)
            lp_piece_plan_words(p);
        else
            lp_piece_plan_rows(p);
    }
    if (b->count > 0)
        lp_pool_run(b->pool, s.tasks, run_task, &s);
    b->count = b->bytes = 0;
}

/* ---- clipping ---- */

typedef struct clipper {
    lp_batch *batch;
    lp_piece p;            /* modes as narrowed so far; extent 1 where one step was chosen */
    const uint8_t *origin; /* where source offset 0 of the tensor would be */
    uint8_t *dst;
    int64_t lo, hi, written;
    int32_t count;               /* in order */
    int8_t order[LP_PIECE_RANK]; /* modes that move the source, the longest stride first */
    int64_t inner_lo[LP_PIECE_RANK + 1], inner_hi[LP_PIECE_RANK + 1]; /* source bytes of order[level..] and the run */
} clipper;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a - 1) / b) - 1;
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static void emit(clipper *c, int64_t src, int64_t dst, int64_t run)
{
    if (c->batch->count == LP_BATCH_PIECES)
        lp_batch_flush(c->batch);
    lp_piece *to = &c->batch->piece[c->batch->count++];
    to->dst = c->dst + dst;
    to->src = c->p.src == NULL ? NULL : c->origin + src;
    to->run = run;
    to->bytes = run * c->p.dst_elem;
    to->fill_bits = c->p.fill_bits;
    to->src_elem = c->p.src_elem;
    to->dst_elem = c->p.dst_elem;
    to->src_dtype = c->p.src_dtype;
    to->dst_dtype = c->p.dst_dtype;
    to->is_cast = c->p.is_cast;
    to->rank = 0;
    for (int32_t m = 0; m < c->p.rank; m++)
        if (c->p.mode[m].extent > 1) {
            to->mode[to->rank++] = c->p.mode[m];
            to->bytes *= c->p.mode[m].extent;
        }
    c->batch->bytes += to->bytes;
    c->written += to->bytes;
}

/* The elements of one run that lie whole in [lo, hi). */
static void clip_run(clipper *c, int64_t src, int64_t dst)
{
    const int64_t elem = c->p.src_elem;
    const int64_t first = clamp(-floor_div(src - c->lo, elem), 0, c->p.run);
    const int64_t end = clamp(floor_div(c->hi - src, elem), 0, c->p.run);
    if (first < end)
        emit(c, src + first * elem, dst + first * c->p.dst_elem, end - first);
}

/* Steps of the longest mode that is left: those in the middle are whole and make one piece, the others go on. */
static void clip(clipper *c, int32_t level, int64_t src, int64_t dst)
{
    if (src + c->inner_lo[level] >= c->hi || src + c->inner_hi[level] <= c->lo)
        return;
    if (src + c->inner_lo[level] >= c->lo && src + c->inner_hi[level] <= c->hi) {
        emit(c, src, dst, c->p.run);
        return;
    }
    if (level == c->count) {
        clip_run(c, src, dst);
        return;
    }
    lp_mode *m = &c->p.mode[c->order[level]];
    const lp_mode all = *m;
    const bool is_falling = all.src_stride < 0;
    /* Counted from the low end of the source. */
    const int64_t stride = is_falling ? -all.src_stride : all.src_stride;
    const int64_t low = is_falling ? src + (all.extent - 1) * all.src_stride : src;
    const int64_t bottom = low + c->inner_lo[level + 1], top = low + c->inner_hi[level + 1];
    const int64_t first = clamp(floor_div(c->lo - top, stride) + 1, 0, all.extent);   /* ends behind lo */
    const int64_t end = clamp(-floor_div(bottom - c->hi, stride), first, all.extent); /* starts before hi */
    const int64_t whole = clamp(-floor_div(bottom - c->lo, stride), first, end);      /* starts at lo or behind */
    const int64_t part = clamp(floor_div(c->hi - top, stride) + 1, whole, end);       /* ends at hi or before */
    for (int64_t i = first; i < end;) {
        const bool is_whole = i >= whole && i < part;
        const int64_t next = is_whole ? part : i + 1;
        const int64_t step = is_falling ? all.extent - next : i; /* the first one in the order of the map */
        m->extent = next - i;
        if (is_whole)
            emit(c, src + step * all.src_stride, dst + step * all.dst_stride, c->p.run);
        else
            clip(c, level + 1, src + step * all.src_stride, dst + step * all.dst_stride);
        i = next;
    }
    *m = all;
}

/* Takes the modes of a box; false when it has too many. */
static bool take_box(clipper *c, const lp_box *box)
{
    if (box->rank > LP_PIECE_RANK)
        return false;
    c->p.run = box->run;
    c->p.rank = box->rank;
    c->count = 0;
    for (int32_t m = 0; m < box->rank; m++) {
        c->p.mode[m] = box->mode[m];
        if (box->mode[m].src_stride == 0)
            continue;
        const int64_t stride = box->mode[m].src_stride < 0 ? -box->mode[m].src_stride : box->mode[m].src_stride;
        int32_t at = c->count++;
        for (; at > 0; at--) {
            const int64_t before = c->p.mode[c->order[at - 1]].src_stride;
            if ((before < 0 ? -before : before) >= stride)
                break;
            c->order[at] = c->order[at - 1];
        }
        c->order[at] = (int8_t)m;
    }
    c->inner_lo[c->count] = 0;
    c->inner_hi[c->count] = box->run * c->p.src_elem;
    for (int32_t level = c->count - 1; level >= 0; level--) {
        const lp_mode *m = &c->p.mode[c->order[level]];
        const int64_t reach = (m->extent - 1) * m->src_stride;
        c->inner_lo[level] = c->inner_lo[level + 1] + (reach < 0 ? reach : 0);
        c->inner_hi[level] = c->inner_hi[level + 1] + (reach > 0 ? reach : 0);
    }
    return true;
}

/* A box with more modes than a piece can hold. */
static int64_t move_deep_box(const lp_step *step, const lp_box *box, uint8_t *dst, const uint8_t *src,
                             int64_t src_first, int64_t lo, int64_t hi)
{
    lp_map map = *step->map;
    lp_step alone = *step;
    map.nbox = 1;
    map.nmode = box->rank;
    map.box = box;
    alone.map = &map;
    if (src == NULL) {
        lp_reference_fill(&alone, dst);
        return 0;
    }
    return lp_reference_part(&alone, dst, src, src_first, lo, hi);
}

/* Offsets count from `src`, so that no address outside the buffer is ever made. */
static int64_t gather(lp_batch *b, const lp_step *step, uint8_t *dst, const uint8_t *src, int64_t src_first, int64_t lo,
                      int64_t hi)
{
    const lp_map *map = step->map;
    clipper c;
    c.batch = b;
    c.dst = dst;
    c.origin = src;
    c.lo = lo - src_first;
    c.hi = hi - src_first;
    c.written = 0;
    c.p.src = src;
    c.p.fill_bits = step->fill_bits;
    c.p.src_elem = map->src_elem;
    c.p.dst_elem = map->dst_elem;
    c.p.src_dtype = step->src_dtype;
    c.p.dst_dtype = step->dst_dtype;
    c.p.is_cast = step->kind == LP_KIND_CAST;
    for (int32_t i = 0; i < map->nbox; i++) {
        const lp_box *box = &map->box[i];
        const int64_t from = step->src_off + box->src_off - src_first, to = step->dst_off + box->dst_off;
        if (!take_box(&c, box))
            c.written += move_deep_box(step, box, dst, src, src_first, lo, hi);
        else if (src == NULL)
            emit(&c, 0, to, box->run);
        else
            clip(&c, 0, from, to);
    }
    return c.written;
}

int64_t lp_batch_part(lp_batch *b, const lp_step *step, uint8_t *dst, const uint8_t *src, int64_t src_first, int64_t lo,
                      int64_t hi)
{
    if (step->src_off + step->map->src_lo >= hi || step->src_off + step->map->src_hi <= lo)
        return 0;
    return gather(b, step, dst, src, src_first, lo, hi);
}

int64_t lp_batch_fill(lp_batch *b, const lp_step *step, uint8_t *dst)
{
    gather(b, step, dst, NULL, 0, 0, 0);
    return step->map->dst_bytes;
}

/* ---- the calls of exec.h ---- */

int64_t lp_exec_part(const lp_step *step, uint8_t *dst, const uint8_t *src, int64_t src_first, int64_t lo, int64_t hi)
{
    lp_batch b;
    lp_batch_init(&b, NULL);
    const int64_t written = lp_batch_part(&b, step, dst, src, src_first, lo, hi);
    lp_batch_flush(&b);
    return written;
}

int64_t lp_exec_fill(const lp_step *step, uint8_t *dst)
{
    lp_batch b;
    lp_batch_init(&b, NULL);
    const int64_t written = lp_batch_fill(&b, step, dst);
    lp_batch_flush(&b);
    return written;
}

int64_t lp_exec_map(const lp_map *map, uint8_t *dst, const uint8_t *src)
{
    const lp_step step = {.map = map, .kind = LP_KIND_COPY};
    return lp_exec_part(&step, dst, src, 0, map->src_lo, map->src_hi);
}
