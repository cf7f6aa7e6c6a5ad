/* SPDX-License-Identifier: Apache-2.0 */
/* A cold start on the device, from end to end. */
#include "replayer/device_cold_pipe.h"
#include "replayer/session.h"

enum { BATCHES_FIRST = 4 }; /* 256 MiB by default: some milliseconds of reading, in which the others are planned */

static lp_status check(const lp_plan *plan, const lp_cold_options *o, lp_cold_report *report, lp_error *err)
{
    if (plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "a plan of meta tensors has nothing to load");
    if (plan->is_open)
        return lp_fail(err, LP_E_MISUSE, "the plan has an open session");
    if (o->pinned < 0 || o->staging < 0 || o->readers < 0 || o->reading < LP_COLD_READ_AUTO ||
        o->reading > LP_COLD_READ_DIRECT)
        return lp_fail(err, LP_E_ARGUMENT, "an option of a cold start is out of its range");
    const char *first = NULL;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        if (plan->entry[e].use == LP_USE_FALLBACK && report->fallbacks++ == 0)
            first = lp_checkpoint_at(plan->catalogue, plan->entry[e].name)->name;
    if (first == NULL || o->allow_fallbacks)
        return LP_OK;
    return lp_fail_at(err, LP_E_INCOMPLETE, first, -1, "%lld name%s missing: '%s' (a fallback)%s",
                      (long long)report->fallbacks, report->fallbacks == 1 ? " is" : "s are", first,
                      report->fallbacks > 1 ? ", ..." : "");
}

static void count_written(const lp_plan *plan, lp_cold_report *report)
{
    for (int64_t i = 0; i < plan->fill_count; i++)
        report->bytes_written += plan->fill[i].map->dst_bytes;
    for (int64_t i = 0; i < plan->step_count; i++)
        if (plan->step[i].stage == LP_NONE && plan->entry[plan->entry_of[plan->step[i].name]].use == LP_USE_LOADED)
            report->bytes_written += plan->step[i].map->dst_bytes;
}

typedef struct loading {
    const lp_cold_device *device;
    lp_plan *plan;
    const lp_checkpoint *checkpoint;
    const lp_cold_options *options;
    lp_cold_program *program;
    lp_cold_batches batches, rest; /* the first ones, those that are planned while these are read */
    lp_cold_files files;
    lp_cold_ring *ring;
    lp_cold_touch *touch;
    lp_cold_pipe *pipe;
} loading;

/* Bytes at most, and whether some of them are read directly. */
static int64_t needed_bytes(const loading *l, bool *is_direct)
{
    int64_t needed = 0;
    *is_direct = false;
    for (int32_t i = 0; i < l->files.count; i++) {
        needed += l->batches.file_needed[i] > 0 ? l->batches.file_needed[i] : 0;
        *is_direct = *is_direct || l->files.file[i].direct_fd >= 0;
    }
    return needed;
}

/* At most about so many chunks behind those that are planned: a ring that is too small is slower, no more. */
static int64_t chunks_to_come(const loading *l, int64_t needed, int64_t chunk)
{
    const lp_cold_batches *b = &l->batches;
    return b->cut == b->names ? 0 : needed / chunk + b->names - b->cut;
}

/* The program is made meanwhile. */
static lp_status set_up(loading *l, lp_cold_report *report, lp_error *err)
{
    const lp_cold_options *o = l->options;
    lp_cold_batches *b = &l->batches;
    const int64_t begin = lp_session_clock();
    bool is_direct;
    LP_TRY(lp_cold_program_start(&l->program, l->device, l->plan, err));
    LP_TRY(lp_cold_names_list(b, l->plan, l->checkpoint, err));
    LP_TRY(lp_cold_files_open(&l->files, &l->plan->platform, l->checkpoint, b->file_needed, o->reading, err));
    const int64_t needed = needed_bytes(l, &is_direct);
    const lp_cold_sizes sizes = lp_cold_sizes_of(o, needed, is_direct);
    LP_TRY(lp_cold_batches_make(b, l->plan, &l->files, sizes.slot, sizes.chunk, BATCHES_FIRST, err));
    report->plan_nanoseconds = lp_session_clock() - begin;
    const int64_t more = chunks_to_come(l, needed, sizes.chunk);
    LP_TRY(lp_cold_ring_fit(l->ring, o, &sizes, b->parts + more, b->chunks + more, b->batches + more, b->slot,
                            &l->touch, err));
    LP_TRY(lp_cold_pipe_open(&l->pipe, l->ring, l->plan, b, o, err));
    LP_TRY(lp_cold_ring_pin(l->ring, &l->touch, err));
    report->setup_nanoseconds = lp_session_clock() - begin;
    report->readers = l->ring->readers;
    report->pinned_bytes = l->ring->host_bytes;
    return LP_OK;
}

static lp_status load(loading *l, lp_cold_report *report, lp_error *err)
{
    const lp_cold_batches *b = &l->batches;
    void *program;
    LP_TRY(set_up(l, report, err));
    lp_plan_start_over(l->plan);
    LP_TRY(lp_cold_pipe_run(l->pipe, &l->files, l->program, &l->rest, err));
    const int64_t moved = lp_session_clock();
    const lp_status derived = lp_cold_derives(l->device, l->plan, &l->files, report, err);
    report->derive_nanoseconds = lp_session_clock() - moved;
    if (derived != LP_OK && derived != LP_E_VALUE)
        return derived;
    LP_TRY(lp_cold_files_unchanged(&l->files, err)); /* which may be why a check failed */
    LP_TRY(derived);
    LP_TRY(lp_cold_program_wait(l->program, &program, err)); /* it is made */
    l->plan->is_all_dirty = false;
    report->device_bytes = l->ring->slots * l->ring->slot + l->device->program_bytes(l->device->context, program);
    report->bytes_needed += b->bytes + l->rest.bytes; /* after those of derives */
    report->bytes_straight = b->straight_bytes + l->rest.straight_bytes;
    report->reads = b->reads + l->rest.reads;
    report->names = b->names;
    report->batches = b->batches + l->rest.batches;
    report->queues = lp_cold_pipe_queues(l->pipe);
    count_written(l->plan, report);
    return LP_OK;
}

void lp_cold_report_load(const lp_cold_report *r, lp_report *out)
{
    *out = (lp_report){.bytes_written = r->bytes_written,
                       .names_loaded = r->names,
                       .fallbacks = r->fallbacks,
                       .derives_run = r->derives_run,
                       .derives_skipped = r->derives_skipped,
                       .staging_peak_bytes = r->pinned_bytes,
                       .nanoseconds = r->nanoseconds};
}

lp_status lp_cold_load(const lp_cold_device *device, lp_plan *plan, const lp_checkpoint *checkpoint,
                       const lp_cold_options *options, lp_cold_report *report, lp_error *err)
{
    const lp_cold_options none = {0};
    loading l = {.device = device,
                 .plan = plan,
                 .checkpoint = checkpoint,
                 .options = options == NULL ? &none : options,
                 .batches = {.alloc = plan->platform.alloc},
                 .rest = {.alloc = plan->platform.alloc, .follows = true}};
    lp_cold_report own, *r = report == NULL ? &own : report;
    const int64_t begin = lp_session_clock();
    *r = (lp_cold_report){0};
    LP_TRY(check(plan, l.options, r, err));
    l.ring = l.options->ring;
    if (l.ring == NULL)
        LP_TRY(lp_cold_ring_new(&l.ring, device, &plan->platform, err));
    plan->is_open = true;
    const lp_status status = load(&l, r, err);
    r->nanoseconds = lp_session_clock() - begin;
    lp_cold_touch_end(l.touch);
    lp_cold_pipe_close(l.pipe);
    lp_cold_program_close(l.program);
    lp_cold_files_count(&l.files, r);
    lp_cold_files_close(&l.files);
    lp_cold_batches_free(&l.rest);
    lp_cold_batches_free(&l.batches);
    if (l.options->ring == NULL)
        lp_cold_ring_free(l.ring);
    plan->is_open = false;
    return status;
}
