/* SPDX-License-Identifier: Apache-2.0 */
/* Writing what was judged: first all memory that it takes is reserved, so that writing itself cannot fail. */
#include "replayer/session.h"

#include "replayer/exec_fast.h"

uint8_t *lp_session_place(const lp_session *s, uint32_t dest)
{
    const lp_plan *plan = s->plan;
    uint8_t *shadow = s->shadow == NULL ? NULL : s->shadow[plan->storage_of[dest]];
    return shadow != NULL ? shadow + plan->rows->dest[dest].offset : plan->address[dest];
}

/* ---- reserve ---- */

static lp_status make_need(lp_session *s, uint32_t entry, lp_error *err)
{
    lp_track *track = &s->track[entry];
    lp_ranges *need = lp_allocate(s->alloc, sizeof *need);
    if (need == NULL)
        return lp_fail_memory(err);
    lp_ranges_init(need, s->alloc);
    const lp_status status = lp_plan_entry_ranges(s->plan, &s->plan->entry[entry], need, err);
    if (status != LP_OK) {
        lp_ranges_free(need);
        lp_release(s->alloc, need);
        return status;
    }
    track->need = need;
    track->need_left = need->bytes;
    return LP_OK;
}

/* Scratch for the staged inputs that this name feeds and that have none yet. */
static int64_t stages_wanted(const lp_session *s, const lp_entry *e)
{
    int64_t bytes = 0;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
        const uint32_t stage = s->plan->step[i].stage;
        if (stage != LP_NONE && s->stage[stage] == NULL && !s->job[s->plan->stage[stage].job].is_done)
            bytes += s->plan->stage[stage].bytes;
    }
    return bytes;
}

static lp_status take_stages(lp_session *s, const lp_entry *e, lp_error *err)
{
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
        const uint32_t stage = s->plan->step[i].stage;
        if (stage == LP_NONE || s->stage[stage] != NULL || s->job[s->plan->stage[stage].job].is_done)
            continue;
        s->stage[stage] = lp_allocate_zero(s->alloc, (size_t)s->plan->stage[stage].bytes);
        if (s->stage[stage] == NULL)
            return lp_fail_memory(err);
        s->staging_used += s->plan->stage[stage].bytes;
    }
    return LP_OK;
}

/* A name that a half-staged derive still waits for, or one of an open group. */
static const char *push_first(const lp_session *s, uint32_t entry)
{
    const lp_plan *plan = s->plan;
    for (uint32_t e = 0; e < plan->entry_count; e++) {
        if (e == entry || !s->track[e].is_expected || s->track[e].is_complete)
            continue;
        for (uint32_t i = 0; i < plan->entry[e].job_count; i++) {
            const lp_job *job = &plan->job[plan->entry_job[plan->entry[e].first_job + i]];
            for (uint32_t k = job->first_stage; k < job->first_stage + job->stage_count; k++)
                if (s->stage[k] != NULL)
                    return lp_checkpoint_at(plan->catalogue, plan->entry[e].name)->name;
        }
    }
    return lp_layers_push_first(s);
}

lp_status lp_session_reserve_track(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, lp_error *err)
{
    const lp_entry *e = &s->plan->entry[entry];
    lp_track *track = &s->track[entry];
    LP_TRY(lp_track_reserve(track, s->alloc, err));
    if (track->need == NULL && !track->is_complete && e->reads && (off > e->need_lo || off + bytes < e->need_hi))
        return make_need(s, entry, err);
    return LP_OK;
}

lp_status lp_session_reserve_need(lp_session *s, uint32_t entry, lp_error *err)
{
    const lp_track *track = &s->track[entry];
    return track->need == NULL && !track->is_complete ? make_need(s, entry, err) : LP_OK;
}

lp_status lp_session_reserve(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, lp_error *err)
{
    const lp_entry *e = &s->plan->entry[entry];
    lp_track *track = &s->track[entry];
    LP_TRY(lp_session_reserve_track(s, entry, off, bytes, err));
    if (s->mode == LP_META || track->is_complete)
        return LP_OK;
    if (e->has_cast)
        LP_TRY(lp_track_reserve_cells(track, s->alloc, err));
    const int64_t wanted = stages_wanted(s, e) + lp_layers_wanted(s, entry);
    if (wanted > s->staging_limit - s->staging_used) {
        const char *name = lp_checkpoint_at(s->plan->catalogue, e->name)->name,
                   *first = err == NULL ? NULL : push_first(s, entry);
        lp_fail_at(err, LP_E_LIMIT, name, -1, "'%s' needs %lld more bytes of staging, %lld of %lld are in use", name,
                   (long long)wanted, (long long)s->staging_used, (long long)s->staging_limit);
        if (first != NULL)
            lp_hint(err, "push '%s' first", first);
        return LP_E_LIMIT;
    }
    LP_TRY(take_stages(s, e, err));
    LP_TRY(lp_layers_open(s, entry, err));
    if (s->staging_used > s->report.staging_peak_bytes)
        s->report.staging_peak_bytes = s->staging_used;
    return LP_OK;
}

/* ---- write ---- */

void lp_session_start_writing(lp_session *s)
{
    lp_plan *plan = s->plan;
    if (s->has_written)
        return;
    s->has_written = true;
    lp_batch batch;
    lp_batch_init(&batch, plan->pool);
    for (int64_t i = 0; i < plan->fill_count; i++) {
        if (s->mode != LP_META)
            lp_batch_fill(&batch, &plan->fill[i], plan->address[plan->fill[i].dest]);
        s->report.bytes_written += plan->fill[i].map->dst_bytes;
    }
    lp_batch_flush(&batch);
}

static uint8_t *target(const lp_session *s, const lp_step *step)
{
    return step->stage != LP_NONE ? s->stage[step->stage] : lp_session_place(s, step->dest);
}

static void write_casts(lp_session *s, const lp_entry *e, int64_t off, const uint8_t *data, int64_t lo, int64_t hi)
{
    lp_batch batch;
    lp_batch_init(&batch, s->plan->pool);
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
        const lp_step *step = &s->plan->step[i];
        if (step->kind != LP_KIND_CAST)
            continue;
        const int64_t written = lp_batch_part(&batch, step, target(s, step), data, off, lo, hi);
        s->report.bytes_written += step->stage == LP_NONE ? written : 0;
    }
    lp_batch_flush(&batch);
}

void lp_session_write_casts(lp_session *s, uint32_t entry, int64_t off, const uint8_t *data, int64_t bytes)
{
    write_casts(s, &s->plan->entry[entry], off, data, off, off + bytes);
}

/* Bytes [lo, hi) of one cell: kept until the cell is whole. */
static void write_cell(lp_session *s, uint32_t entry, const uint8_t *data, int64_t lo, int64_t hi)
{
    const lp_entry *e = &s->plan->entry[entry];
    lp_cell *cell = lp_track_cell(&s->track[entry], lo / 8);
    const int64_t start = lo / 8 * 8, bytes = e->bytes - start < 8 ? e->bytes - start : 8;
    for (int64_t i = lo; i < hi; i++) {
        cell->byte[i - start] = data[i - lo];
        cell->mask = (uint8_t)(cell->mask | 1u << (i - start));
    }
    if (cell->mask == (1u << bytes) - 1) {
        write_casts(s, e, start, cell->byte, start, start + bytes);
        lp_track_drop_cell(&s->track[entry], cell);
    }
}

void lp_session_flush_cells(lp_session *s, uint32_t entry)
{
    const lp_entry *e = &s->plan->entry[entry];
    lp_track *track = &s->track[entry];
    for (int64_t i = 0; i < track->cell_count; i++) {
        const int64_t start = track->cell[i].index * 8, bytes = e->bytes - start < 8 ? e->bytes - start : 8;
        write_casts(s, e, start, track->cell[i].byte, start, start + bytes);
    }
    track->cell_count = 0;
}

/* Elements never lie across a multiple of eight bytes, so casts do the whole eights at once and keep the edges. */
static void write_cast_range(lp_session *s, uint32_t entry, int64_t off, const uint8_t *data, int64_t bytes)
{
    const lp_entry *e = &s->plan->entry[entry];
    const int64_t end = off + bytes;
    int64_t lo = (off + 7) / 8 * 8, hi = end == e->bytes ? end : end / 8 * 8;
    if (lo > end)
        lo = end;
    if (off < lo)
        write_cell(s, entry, data, off, lo);
    if (hi < lo)
        return; /* all of it was in one cell */
    if (lo < hi)
        write_casts(s, e, off, data, lo, hi);
    if (hi < end)
        write_cell(s, entry, data + (hi - off), hi, end);
}

void lp_session_first_touch(lp_session *s, uint32_t entry)
{
    lp_entry *e = &s->plan->entry[entry];
    if (s->track[entry].is_seen)
        return;
    s->track[entry].is_seen = true;
    e->is_dirty = true;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
        const lp_step *step = &s->plan->step[i];
        if (step->kind != LP_KIND_FILL)
            continue;
        if (s->mode != LP_META)
            lp_exec_fill(step, lp_session_place(s, step->dest));
        s->report.bytes_written += step->map->dst_bytes;
    }
}

int64_t lp_session_move(const lp_session *s, uint32_t entry, int64_t off, const uint8_t *data, int64_t bytes,
                        lp_pool *pool)
{
    const lp_entry *e = &s->plan->entry[entry];
    int64_t counted = 0;
    lp_batch batch;
    lp_batch_init(&batch, pool);
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
        const lp_step *step = &s->plan->step[i];
        if (step->kind == LP_KIND_FILL || step->kind == LP_KIND_CAST || (step->stage != LP_NONE && !target(s, step)))
            continue;
        const int64_t written = lp_batch_part(&batch, step, target(s, step), data, off, off, off + bytes);
        counted += step->stage == LP_NONE ? written : 0;
    }
    lp_batch_flush(&batch);
    return counted;
}

void lp_session_write(lp_session *s, uint32_t entry, int64_t off, const uint8_t *data, int64_t bytes)
{
    if (bytes == 0 || s->mode == LP_META || s->track[entry].is_complete)
        return; /* bytes beyond what the plan needs */
    s->report.bytes_written += lp_session_move(s, entry, off, data, bytes, s->plan->pool);
    if (s->plan->entry[entry].has_cast)
        write_cast_range(s, entry, off, data, bytes);
}
