/* SPDX-License-Identifier: Apache-2.0 */
/* Targets of changes: the steps of a name as maps from a byte of the tensor to its places. */
#include "replayer/device_patch.h"

enum { LEAST_ROW = 128 }; /* bytes: shorter ones are worth a slot and a program */

typedef struct target_list {
    lp_change_target *out;
    int count;
    int64_t elem;
} target_list;

/* Wider steps outside; each at least as wide as everything inside of it, so that a byte is in one place of it. */
static bool order_modes(lp_change_target *t)
{
    int64_t span = t->run;
    for (uint32_t i = 0; i < t->modes; i++)
        for (uint32_t k = i + 1; k < t->modes; k++)
            if (t->src_stride[k] > t->src_stride[i]) {
                const int64_t src = t->src_stride[i], dst = t->dst_stride[i];
                const uint32_t extent = t->extent[i];
                t->src_stride[i] = t->src_stride[k];
                t->dst_stride[i] = t->dst_stride[k];
                t->extent[i] = t->extent[k];
                t->src_stride[k] = src;
                t->dst_stride[k] = dst;
                t->extent[k] = extent;
            }
    for (uint32_t i = t->modes; i > 0; i--) {
        if (t->src_stride[i - 1] < span)
            return false;
        span += t->src_stride[i - 1] * (int64_t)(t->extent[i - 1] - 1);
    }
    return true;
}

static bool is_whole_elements(const lp_change_target *t, int64_t elem)
{
    bool is_whole = t->run % elem == 0 && t->lo % elem == 0;
    for (uint32_t i = 0; i < t->modes; i++)
        is_whole = is_whole && t->src_stride[i] % elem == 0;
    return is_whole;
}

/* Modes [mode, rank) of the box are left; those that repeat a source are written out. */
static bool add_modes(target_list *l, lp_change_target t, const lp_box *box, int32_t mode)
{
    for (; mode < box->rank && box->mode[mode].src_stride != 0; mode++) {
        const lp_mode *m = &box->mode[mode];
        if (t.modes == LP_CHANGE_MODES || m->src_stride < 0 || m->extent > INT32_MAX)
            return false;
        t.src_stride[t.modes] = m->src_stride;
        t.dst_stride[t.modes] = m->dst_stride;
        t.extent[t.modes++] = (uint32_t)m->extent;
    }
    if (mode < box->rank) {
        for (int64_t i = 0; i < box->mode[mode].extent; i++) {
            lp_change_target again = t;
            again.to += i * box->mode[mode].dst_stride;
            if (!add_modes(l, again, box, mode + 1))
                return false;
        }
        return true;
    }
    if (l->count == LP_PATCH_TARGETS || !order_modes(&t) || !is_whole_elements(&t, l->elem))
        return false;
    l->out[l->count++] = t;
    return true;
}

static bool add_step(target_list *l, const lp_plan *plan, const lp_step *step)
{
    if (step->stage != LP_NONE || (step->kind != LP_KIND_COPY && step->kind != LP_KIND_REPLICATE))
        return false;
    for (int32_t b = 0; b < step->map->nbox; b++) {
        const lp_box *box = &step->map->box[b];
        const lp_change_target t = {.to = plan->address[step->dest] + step->dst_off + box->dst_off,
                                    .lo = step->src_off + box->src_off,
                                    .run = box->run};
        if (!add_modes(l, t, box, 0))
            return false;
    }
    return true;
}

bool lp_device_patch_targets(const lp_plan *plan, uint32_t name, lp_change_target out[LP_PATCH_TARGETS], int *count)
{
    const uint32_t entry = plan->entry_of[name];
    target_list l = {.out = out, .elem = lp_change_elem(lp_checkpoint_at(plan->catalogue, name)->dtype)};
    *count = 0;
    if (entry == LP_NONE || plan->entry[entry].use != LP_USE_LOADED)
        return false;
    const lp_entry *e = &plan->entry[entry];
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        if (plan->step[i].kind != LP_KIND_FILL && !add_step(&l, plan, &plan->step[i])) /* what it fills stays filled */
            return false;
    *count = l.count;
    return true;
}

/* ---- parts of whole loads ---- */

bool lp_device_place_targets(const lp_plan *plan, uint32_t entry, lp_change_target out[LP_PATCH_TARGETS], int *count)
{
    const lp_entry *e = &plan->entry[entry];
    if (!lp_device_patch_targets(plan, e->name, out, count) || *count == 0 || *count > 2)
        return false;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        if (plan->step[i].kind == LP_KIND_FILL)
            return false;
    for (int i = 0; i < *count; i++)
        if (out[i].modes > 1 || (out[i].modes == 1 && out[i].run < LEAST_ROW))
            return false;
    return true;
}

/* One run: row by row of the target. */
static int place_run(const lp_device_calls *c, const lp_change_target *t, int64_t lo, int64_t bytes,
                     const uint8_t *data, void *stream, int64_t *written)
{
    const int64_t step = t->modes == 0 ? INT64_MAX : t->src_stride[0], rows = t->modes == 0 ? 1 : t->extent[0];
    const int64_t pitch = t->modes == 0 ? 0 : t->dst_stride[0];
    int code = 0;
    for (int64_t row = lo <= t->lo ? 0 : (lo - t->lo) / step; row < rows && code == 0; row++) {
        const int64_t first = t->lo + (row == 0 ? 0 : row * step);
        const int64_t from = lo > first ? lo : first, end = lo + bytes < first + t->run ? lo + bytes : first + t->run;
        if (first >= lo + bytes)
            break;
        if (from >= end)
            continue;
        code = c->copy(c->context, t->to + row * pitch + (from - first), data + (from - lo), end - from, stream);
        *written += end - from;
    }
    return code;
}

/* Runs that are rows of the target, or lie in its one row, by one call. */
static bool are_rows(const lp_change_target *t, const lp_piece *p, uint8_t **to, int64_t *pitch)
{
    const int64_t end = p->lo + (p->count - 1) * p->stride + p->run;
    if (p->count < 2 || p->lo < t->lo)
        return false;
    if (t->modes == 0) {
        *to = t->to + (p->lo - t->lo);
        *pitch = p->stride;
        return end <= t->lo + t->run && p->stride <= INT32_MAX;
    }
    const int64_t row = (p->lo - t->lo) / t->src_stride[0], at = (p->lo - t->lo) % t->src_stride[0];
    *to = t->to + row * t->dst_stride[0] + at;
    *pitch = t->dst_stride[0];
    return p->stride == t->src_stride[0] && at + p->run <= t->run && row + p->count <= t->extent[0] &&
           *pitch <= INT32_MAX;
}

int lp_device_place(const lp_device_calls *c, const lp_change_target *target, int count, const lp_piece *piece,
                    const void *data, void *stream, int64_t *written)
{
    const uint8_t *from = data;
    int code = 0;
    for (int i = 0; i < count && code == 0; i++) {
        uint8_t *to = NULL;
        int64_t pitch = 0;
        if (are_rows(&target[i], piece, &to, &pitch)) {
            code = c->copy_rows(c->context, to, pitch, from, piece->run, piece->run, piece->count, stream);
            *written += lp_piece_bytes(piece);
            continue;
        }
        for (int64_t k = 0; k < piece->count && code == 0; k++)
            code = place_run(c, &target[i], piece->lo + k * piece->stride, piece->run, from + k * piece->run, stream,
                             written);
    }
    return code;
}

lp_status lp_device_patch_open(lp_session *s, uint32_t name, lp_error *err)
{
    LP_TRY(lp_session_usable(s, err));
    const uint32_t entry = s->plan->entry_of[name];
    if (entry == LP_NONE)
        return LP_OK;
    s->plan->entry[entry].is_dirty = true;
    s->track[entry].is_seen = true;
    s->has_written = true;
    s->on->is_moving = true;
    return LP_OK;
}
