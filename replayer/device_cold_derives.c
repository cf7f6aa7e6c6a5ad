/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derives of a cold start on the device: by the evaluator of the CPU, on values that are copied to the host and back.
 * They are scales and such, a few bytes each. Staged inputs are read from the files here, after everything else.
 */
#include "replayer/device_cold_batches.h"
#include "replayer/session.h"

typedef struct runner {
    const lp_cold_device *device;
    const lp_plan *plan;
    const lp_cold_files *files;
    const lp_alloc *alloc;
    uint32_t *stage_step, *step_link; /* steps of each stage, as linked lists that end in LP_NONE */
    bool *is_skipped;                 /* by job */
    int64_t bytes_read;
    uint32_t failed_job;
    lp_derive_check failed; /* of it */
} runner;

static lp_status take(const runner *r, int64_t bytes, uint8_t **out, lp_error *err)
{
    *out = lp_allocate_zero(r->alloc, (size_t)bytes);
    return *out == NULL ? lp_fail_memory(err) : LP_OK;
}

/* The part of one step that fills a staged input. */
static lp_status run_stage_step(runner *r, const lp_step *step, uint8_t *stage, lp_error *err)
{
    const lp_checkpoint *checkpoint = r->files->checkpoint;
    const char *name = lp_checkpoint_at(r->plan->catalogue, step->name)->name;
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(checkpoint, lp_checkpoint_find(checkpoint, name));
    const int64_t lo = step->src_off + step->map->src_lo, hi = step->src_off + step->map->src_hi;
    uint8_t *bytes;
    if (step->kind == LP_KIND_FILL) {
        lp_exec_fill(step, stage);
        return LP_OK;
    }
    if (lo == hi)
        return LP_OK;
    LP_TRY(take(r, hi - lo, &bytes, err));
    const lp_status status = lp_cold_files_read(r->files, tensor->file, tensor->file_off + lo, bytes, hi - lo, 0, err);
    r->bytes_read += hi - lo;
    if (status == LP_OK)
        lp_exec_part(step, stage, bytes, lo, lo, hi);
    lp_release(r->alloc, bytes);
    return status;
}

static lp_status stage_input(runner *r, uint32_t stage, uint8_t **out, lp_error *err)
{
    LP_TRY(take(r, r->plan->stage[stage].bytes, out, err));
    for (uint32_t i = r->stage_step[stage]; i != LP_NONE; i = r->step_link[i])
        LP_TRY(run_stage_step(r, &r->plan->step[i], *out, err));
    return LP_OK;
}

static lp_status gather_input(const runner *r, const lp_derive_input *in, uint8_t **out, lp_error *err)
{
    const int64_t lo = in->map->src_lo, hi = in->map->src_hi;
    int64_t bytes;
    uint8_t *host;
    if (!lp_mul(in->count, lp_dtype_bits(in->dtype) / 8, &bytes) || in->map->dst_hi > bytes)
        return lp_fail(err, LP_E_CORRUPT, "a derive gathers more than its input holds");
    LP_TRY(take(r, bytes, out, err));
    LP_TRY(take(r, hi - lo, &host, err));
    const lp_status status =
        lp_cold_check(r->device, r->device->fetch(r->device->context, host, r->plan->address[in->index] + lo, hi - lo),
                      "copy the input of a derive", err);
    if (status == LP_OK)
        lp_exec_map(in->map, *out, host - lo);
    lp_release(r->alloc, host);
    return status;
}

/* Reads the region first where the result leaves gaps in it. */
static lp_status store_result(const runner *r, const lp_derive *derive, const void *result, int64_t *written,
                              lp_error *err)
{
    const lp_map *map = derive->map;
    const lp_cold_device *d = r->device;
    const int64_t lo = map->dst_lo, bytes = map->dst_hi - lo;
    uint8_t *place = r->plan->address[derive->dest] + lo, *host;
    LP_TRY(take(r, bytes, &host, err));
    int code = map->dst_bytes < bytes ? d->fetch(d->context, host, place, bytes) : 0;
    if (code == 0) {
        *written += lp_exec_map(map, host - lo, result);
        code = d->store(d->context, place, host, bytes);
    }
    lp_release(r->alloc, host);
    return lp_cold_check(d, code, "copy the result of a derive", err);
}

static lp_status evaluate(runner *r, uint32_t number, int64_t *written, lp_error *err)
{
    const lp_derive *derive = r->plan->job[number].derive;
    uint32_t stage = r->plan->job[number].first_stage;
    lp_status status = LP_OK;
    lp_derive_check check = {.failed = false};
    void *result = NULL;
    uint8_t **input = lp_allocate_zero(r->alloc, (derive->ninput + 1) * sizeof *input);
    if (input == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < derive->ninput && status == LP_OK; i++)
        status = derive->input[i].staged ? stage_input(r, stage++, &input[i], err)
                                         : gather_input(r, &derive->input[i], &input[i], err);
    if (status == LP_OK)
        status = lp_derive_evaluate(derive, (const void *const *)input, r->alloc, &result, &check, err);
    if (status == LP_OK && derive->dest != LP_NONE)
        status = store_result(r, derive, result, written, err);
    if (status == LP_OK && derive->dest == LP_NONE && check.failed && r->failed_job == LP_NONE) {
        r->failed_job = number;
        r->failed = check;
    }
    for (uint32_t i = 0; i < derive->ninput; i++)
        lp_release(r->alloc, input[i]);
    lp_release(r->alloc, (void *)input);
    lp_release(r->alloc, result);
    return status;
}

/* A staged input that is a fallback has no bytes here, and no session would start with it. */
static lp_status check_stages(const runner *r, const lp_job *job, lp_error *err)
{
    for (uint32_t i = 0; i < job->derive->ninput; i++) {
        const lp_derive_input *in = &job->derive->input[i];
        if (!in->staged)
            continue;
        const uint32_t entry = r->plan->entry_of[in->index];
        const char *name = lp_checkpoint_at(r->plan->catalogue, in->index)->name;
        if (entry == LP_NONE || r->plan->entry[entry].use != LP_USE_LOADED)
            return lp_fail_at(err, LP_E_UNSUPPORTED, name, -1, "'%s' is a fallback, but a tensor is derived from it",
                              name);
    }
    return LP_OK;
}

static lp_status run_all(runner *r, lp_cold_report *report, lp_error *err)
{
    const lp_plan *plan = r->plan;
    for (uint32_t k = 0; k < plan->stage_count; k++)
        r->stage_step[k] = LP_NONE;
    for (uint32_t i = (uint32_t)plan->step_count; i-- > 0;) {
        const uint32_t stage = plan->step[i].stage;
        if (stage == LP_NONE)
            continue;
        r->step_link[i] = r->stage_step[stage];
        r->stage_step[stage] = i;
    }
    for (uint32_t j = 0; j < plan->job_count; j++) { /* each stands behind those that it waits for */
        const lp_job *job = &plan->job[j];
        LP_TRY(check_stages(r, job, err));
        r->is_skipped[j] = r->is_skipped[j] || job->needs_fallback;
        for (uint32_t i = 0; i < job->next_count && r->is_skipped[j]; i++)
            r->is_skipped[plan->job_next[job->first_next + i]] = true;
        if (r->is_skipped[j]) {
            report->derives_skipped++;
            continue;
        }
        LP_TRY(evaluate(r, j, &report->bytes_written, err));
        report->derives_run++;
    }
    return r->failed_job == LP_NONE ? LP_OK : lp_session_check_failed(plan, r->failed_job, &r->failed, err);
}

lp_status lp_cold_derives(const lp_cold_device *device, const lp_plan *plan, const lp_cold_files *files,
                          lp_cold_report *report, lp_error *err)
{
    runner r = {.device = device, .plan = plan, .files = files, .alloc = plan->platform.alloc, .failed_job = LP_NONE};
    if (plan->job_count == 0)
        return LP_OK;
    r.stage_step = lp_allocate(r.alloc, ((size_t)plan->stage_count + 1) * sizeof *r.stage_step);
    r.step_link = lp_allocate(r.alloc, ((size_t)plan->step_count + 1) * sizeof *r.step_link);
    r.is_skipped = lp_allocate_zero(r.alloc, ((size_t)plan->job_count + 1) * sizeof *r.is_skipped);
    const bool is_whole = r.stage_step != NULL && r.step_link != NULL && r.is_skipped != NULL;
    const lp_status status = is_whole ? run_all(&r, report, err) : lp_fail_memory(err);
    report->bytes_needed += r.bytes_read;
    lp_release(r.alloc, r.stage_step);
    lp_release(r.alloc, r.step_link);
    lp_release(r.alloc, r.is_skipped);
    return status;
}
