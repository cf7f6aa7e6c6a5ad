/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a checkpoint for a session on a device: needed ranges in file order. Names that find no room are put off and
 * tried again when others have made some. Cold starts that are to run at the speed of the link have a pipeline of their
 * own (device_cold.h).
 */
#include "replayer/device_session_fill.h"
#include "replayer/read_names.h"

typedef struct reader {
    lp_session *s;
    const lp_checkpoint *checkpoint;
    lp_cold_files files;
    lp_device_fill *fill;
    int64_t *needed; /* bytes by file; -1: none */
    bool is_alone;   /* the name that was added last is to be pushed before the next one is judged */
    lp_read_stats stats;
    int (*progress)(void *context, int64_t done, int64_t total);
    void *context;
} reader;

/* ---- ranges ---- */

/* The parts of [lo, hi) that have not arrived yet. */
static lp_status read_absent(reader *r, const lp_read_name *t, int64_t lo, int64_t hi, lp_error *err)
{
    const lp_handle handle = r->s->plan->entry[t->entry].name;
    for (int64_t end; lp_read_absent(&r->s->track[t->entry], &lo, hi, &end); lo = end)
        LP_TRY(lp_device_fill_add(r->fill, handle, lo, end - lo, t->tensor->file, t->tensor->file_off + lo, err));
    return LP_OK;
}

static lp_status read_name(reader *r, const lp_read_name *t, lp_error *err)
{
    const lp_entry *e = &r->s->plan->entry[t->entry];
    lp_ranges ranges;
    lp_ranges_init(&ranges, r->s->alloc);
    lp_status status = lp_plan_entry_ranges(r->s->plan, e, &ranges, err);
    if (status == LP_OK && ranges.count == 0 && !r->s->track[t->entry].is_complete)
        status = lp_device_fill_add(r->fill, e->name, 0, 0, t->tensor->file, 0, err);
    for (int64_t i = 0; status == LP_OK && i < ranges.count; i++) {
        r->stats.ranges++;
        status = read_absent(r, t, ranges.item[i].lo, ranges.item[i].hi, err);
    }
    lp_ranges_free(&ranges);
    return status;
}

/* ---- names ---- */

/* Whether the name keeps room when it has arrived. Others may be judged before it has: all that it can do is make
 * some. */
static bool keeps_room(const lp_session *s, uint32_t entry)
{
    const lp_entry *e = &s->plan->entry[entry];
    bool keeps = s->mode == LP_LAYERWISE;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        keeps = keeps || s->plan->step[i].stage != LP_NONE;
    return keeps;
}

/* One round over the list; what finds no room stays on it. */
static lp_status read_round(reader *r, lp_read_name *list, int64_t *count, lp_error *err)
{
    const int64_t before = *count;
    int64_t kept = 0;
    for (int64_t i = 0; i < before; i++) {
        const bool keeps = keeps_room(r->s, list[i].entry);
        if (r->is_alone || keeps)
            LP_TRY(lp_device_fill_flush(r->fill, err));
        r->is_alone = keeps;
        if (lp_device_has_room(r->s, list[i].entry, kept == 0 ? err : NULL) == LP_E_LIMIT) {
            list[kept++] = list[i];
            continue;
        }
        LP_TRY(read_name(r, &list[i], err));
    }
    *count = kept;
    return kept == before ? LP_E_LIMIT : lp_device_fill_flush(r->fill, err); /* nothing moved: *err says why */
}

static lp_status read_all(reader *r, lp_read_name *list, lp_error *err)
{
    const lp_session *s = r->s;
    int64_t count = 0, total = 0;
    LP_TRY(lp_read_names(s->plan, s, r->checkpoint, list, &count, r->needed, err));
    LP_TRY(lp_cold_files_open(&r->files, &s->plan->platform, r->checkpoint, r->needed, LP_COLD_READ_CACHED, err));
    for (int32_t i = 0; i < lp_checkpoint_file_count(r->checkpoint); i++) {
        r->stats.files += r->needed[i] >= 0;
        total += r->needed[i] >= 0 ? r->needed[i] : 0;
    }
    LP_TRY(lp_device_fill_open(&r->fill, r->s, &r->files, total, r->progress, r->context, err));
    while (count > 0)
        LP_TRY(read_round(r, list, &count, err));
    return LP_OK;
}

lp_status lp_device_read(lp_session *s, const lp_checkpoint *checkpoint, lp_read_stats *stats,
                         int (*progress)(void *context, int64_t done, int64_t total), void *context, lp_error *err)
{
    reader r = {.s = s, .checkpoint = checkpoint, .progress = progress, .context = context};
    lp_error second = {.code = LP_OK};
    lp_status status;
    lp_read_name *list = lp_allocate(s->alloc, ((size_t)s->plan->entry_count + 1) * sizeof *list);
    r.needed = lp_allocate(s->alloc, ((size_t)lp_checkpoint_file_count(checkpoint) + 1) * sizeof *r.needed);
    if (list == NULL || r.needed == NULL)
        status = lp_fail_memory(err);
    else
        status = read_all(&r, list, err);
    r.stats.bytes_read = r.fill != NULL ? lp_device_fill_read(r.fill) : 0;
    lp_device_fill_close(r.fill);
    /* A file that changed while it was read may have given bytes of two versions. */
    if (r.stats.bytes_read > 0 && s->state == LP_SESSION_OPEN) {
        const lp_status changed = lp_cold_files_unchanged(&r.files, status == LP_OK ? err : &second);
        if (changed != LP_OK) {
            (void)lp_session_poison(s, changed, status == LP_OK ? err : &second);
            status = status == LP_OK ? changed : status;
        }
    }
    lp_cold_files_close(&r.files);
    lp_release(s->alloc, list);
    lp_release(s->alloc, r.needed);
    if (stats != NULL)
        *stats = r.stats;
    return status;
}
