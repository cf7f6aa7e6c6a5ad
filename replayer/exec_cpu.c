/* SPDX-License-Identifier: Apache-2.0 */
/* The reference executor: walks the boxes of a map and moves run by run. It skips what lies outside the source range at
 * hand level by level, so that many small ranges of a large tensor cost no more than one large one. */
#include "replayer/exec_reference.h"

/* A nested map of extents >= 2 spans at least 2^rank bytes. */
enum { RANK_MAX = 64 };

typedef struct job {
    const lp_step *step;
    const lp_box *box;
    const uint8_t *src; /* byte src_first of the tensor */
    uint8_t *dst;
    int64_t src_first, lo, hi;
    int64_t inner_lo[RANK_MAX + 1]; /* source bytes inside level i, relative to its start: [inner_lo, inner_hi) */
    int64_t inner_hi[RANK_MAX + 1];
    int32_t src_elem, dst_elem;
    int64_t written;
} job;

static void move_run(job *j, int64_t src, int64_t dst, int64_t count)
{
    const uint8_t *from = j->src + (src - j->src_first);
    if (j->step->kind == LP_KIND_CAST) /* bind has checked the pair */
        (void)lp_cast_elements(j->step->src_dtype, from, j->step->dst_dtype, j->dst + dst, count);
    else
        memcpy(j->dst + dst, from, (size_t)count);
    j->written += count * j->dst_elem;
}

/* ceil(a / b) for b > 0 */
static int64_t ceil_div(int64_t a, int64_t b)
{
    return a > 0 ? (a - 1) / b + 1 : -(-a / b);
}

static void clip_run(job *j, int64_t src, int64_t dst)
{
    int64_t first = 0, end = j->box->run;
    if (src < j->lo)
        first = ceil_div(j->lo - src, j->src_elem);
    if (src + end * j->src_elem > j->hi)
        end = j->hi > src ? (j->hi - src) / j->src_elem : 0;
    if (first < end)
        move_run(j, src + first * j->src_elem, dst + first * j->dst_elem, end - first);
}

/* `count` whole runs of a byte map. Fixed sizes let the compiler move words instead of calling memcpy. */
static void copy_runs(uint8_t *dst, int64_t dst_stride, const uint8_t *src, int64_t src_stride, int64_t run,
                      int64_t count)
{
#define COPY_RUNS(bytes)                                                                                               \
    for (int64_t i = 0; i < count; i++)                                                                                \
    memcpy(dst + i * dst_stride, src + i * src_stride, (bytes))
    switch (run) {
    case 1:
        COPY_RUNS(1);
        break;
    case 2:
        COPY_RUNS(2);
        break;
    case 4:
        COPY_RUNS(4);
        break;
    case 8:
        COPY_RUNS(8);
        break;
    case 16:
        COPY_RUNS(16);
        break;
    default:
        COPY_RUNS((size_t)run);
        break;
    }
#undef COPY_RUNS
}

/* Steps i of a mode whose source bytes meet [lo, hi): [*first, *end). */
static void steps_inside(const job *j, int32_t level, int64_t src, int64_t *first, int64_t *end)
{
    const lp_mode *m = &j->box->mode[level];
    const int64_t below = j->lo - (src + j->inner_hi[level + 1]); /* step i meets when i * stride > below */
    const int64_t above = j->hi - (src + j->inner_lo[level + 1]); /* and i * stride < above */
    *first = 0;
    *end = m->extent;
    if (m->src_stride > 0) {
        if (below >= 0)
            *first = below / m->src_stride + 1;
        const int64_t stop = ceil_div(above, m->src_stride);
        *end = stop < *end ? stop : *end;
    } else if (m->src_stride < 0) {
        const int64_t stride = -m->src_stride;
        if (above <= 0)
            *first = -above / stride + 1;
        const int64_t stop = below < 0 ? ceil_div(-below, stride) : 0;
        *end = stop < *end ? stop : *end;
    } else if (below >= 0 || above <= 0) {
        *end = 0;
    }
}

static void walk(job *j, int32_t level, int64_t src, int64_t dst)
{
    if (level == j->box->rank) {
        clip_run(j, src, dst);
        return;
    }
    const lp_mode *m = &j->box->mode[level];
    int64_t first, end;
    steps_inside(j, level, src, &first, &end);
    if (first >= end)
        return;
    const int64_t low = src + (m->src_stride < 0 ? (end - 1) * m->src_stride : first * m->src_stride);
    const int64_t high = src + (m->src_stride < 0 ? first * m->src_stride : (end - 1) * m->src_stride);
    const bool is_inside = low + j->inner_lo[level + 1] >= j->lo && high + j->inner_hi[level + 1] <= j->hi;
    if (level + 1 == j->box->rank && is_inside && j->step->kind != LP_KIND_CAST) {
        copy_runs(j->dst + dst + first * m->dst_stride, m->dst_stride,
                  j->src + (src + first * m->src_stride - j->src_first), m->src_stride, j->box->run, end - first);
        j->written += (end - first) * j->box->run;
        return;
    }
    for (int64_t i = first; i < end; i++)
        walk(j, level + 1, src + i * m->src_stride, dst + i * m->dst_stride);
}

int64_t lp_reference_part(const lp_step *step, uint8_t *dst, const uint8_t *src, int64_t src_first, int64_t lo,
                          int64_t hi)
{
    job j = {
        .step = step,
        .src = src,
        .dst = dst,
        .src_first = src_first,
        .lo = lo,
        .hi = hi,
        .src_elem = step->map->src_elem,
        .dst_elem = step->map->dst_elem,
    };
    for (int32_t b = 0; b < step->map->nbox; b++) {
        j.box = &step->map->box[b];
        if (j.box->rank > RANK_MAX)
            continue; /* not reachable: see RANK_MAX */
        j.inner_lo[j.box->rank] = 0;
        j.inner_hi[j.box->rank] = j.box->run * j.src_elem;
        for (int32_t level = j.box->rank - 1; level >= 0; level--) {
            const int64_t reach = (j.box->mode[level].extent - 1) * j.box->mode[level].src_stride;
            j.inner_lo[level] = j.inner_lo[level + 1] + (reach < 0 ? reach : 0);
            j.inner_hi[level] = j.inner_hi[level + 1] + (reach > 0 ? reach : 0);
        }
        const int64_t start = step->src_off + j.box->src_off;
        if (start + j.inner_lo[0] < hi && start + j.inner_hi[0] > lo)
            walk(&j, 0, start, step->dst_off + j.box->dst_off);
    }
    return j.written;
}

typedef struct fill_job {
    uint8_t *dst;
    uint8_t pattern[8];
    int32_t elem;
} fill_job;

static int fill_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const fill_job *f = context;
    uint8_t *to = f->dst + dst_off;
    (void)src_off;
    if (f->elem == 1)
        memset(to, f->pattern[0], (size_t)count);
    else
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * f->elem, f->pattern, (size_t)f->elem);
    return 0;
}

int64_t lp_reference_fill(const lp_step *step, uint8_t *dst)
{
    fill_job f = {.dst = dst + step->dst_off, .elem = step->map->dst_elem};
    for (int i = 0; i < 8; i++)
        f.pattern[i] = (uint8_t)(step->fill_bits >> (8 * i));
    lp_map_walk(step->map, fill_run, &f);
    return step->map->dst_bytes;
}

typedef struct place_job {
    uint8_t *to;
    const uint8_t *from;
    int32_t elem;
} place_job;

static int copy_place(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const place_job *p = context;
    (void)src_off;
    memcpy(p->to + dst_off, p->from + dst_off, (size_t)(count * p->elem));
    return 0;
}

void lp_exec_same_place(const lp_map *map, int64_t dst_off, uint8_t *to, const uint8_t *from)
{
    place_job p = {to + dst_off, from + dst_off, map->dst_elem};
    lp_map_walk(map, copy_place, &p);
}
