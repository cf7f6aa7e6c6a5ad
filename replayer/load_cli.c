/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a rank from the command line: trace, checkpoint, ranks, names, and the load itself. */
#include "replayer/replay_cli.h"
#include "traces/glob.h"
#include "traces/row_choice.h"

#include <stdlib.h>

/* The ranks that the trace has, never those of its layout: a layout of 2^31 ranks costs a hostile trace nothing. */
static int take_all_ranks(lp_cli_job *job)
{
    const int32_t count = lp_trace_scope_count(job->trace);
    lp_error err;
    if (count == 0)
        return lp_cli_usage(job->cli, "the trace has no ranks");
    job->rank = malloc((size_t)count * sizeof *job->rank);
    if (job->rank == NULL) {
        (void)lp_fail_memory(&err);
        return lp_cli_fail(job->cli, &err);
    }
    for (int32_t i = 0; i < count; i++)
        job->rank[i] = lp_scope_rank(lp_trace_scope_at(job->trace, i));
    job->rank_count = count;
    return 0;
}

static int take_ranks(lp_cli_job *job, const char *default_rank)
{
    const lp_scope *layout = &lp_trace_header_of(job->trace)->layout;
    if (strcmp(lp_cli_text(job->cli, "rank", default_rank), "all") == 0)
        return take_all_ranks(job);
    if (!lp_cli_ranks(job->cli, "rank", default_rank, lp_scope_world(layout), &job->rank, &job->rank_count))
        return LP_EXIT_USAGE;
    for (int32_t i = 0; i < job->rank_count; i++)
        if (lp_trace_scope_find(job->trace, job->rank[i]) < 0)
            return lp_cli_usage(job->cli, "the trace has no rank %d", job->rank[i]);
    return 0;
}

static int match(const lp_cli_job *job)
{
    lp_error err, stale;
    if (lp_trace_match(job->trace, job->checkpoint, &err) == LP_OK)
        return 0;
    if (err.code != LP_E_STALE)
        return lp_cli_fail(job->cli, &err);
    (void)lp_fail(&stale, LP_E_STALE, "stale trace: %s", err.text);
    lp_hint(&stale, "%s", err.hint);
    return lp_cli_fail(job->cli, &stale);
}

int lp_cli_job_open(lp_cli_job *job, lp_cli *cli, bool needs_checkpoint, const char *default_rank)
{
    const lp_platform *platform = lp_cli_platform(cli);
    lp_error err;
    *job = (lp_cli_job){.cli = cli};
    lp_strings_init(&job->chosen, lp_alloc_default());
    const char *path = needs_checkpoint ? lp_cli_text(cli, "checkpoint", NULL) : NULL;
    if (needs_checkpoint && path == NULL)
        return lp_cli_usage(cli, "where are the weights? name them with --checkpoint PATH");
    if (lp_trace_open_with(&job->trace, cli->argument[0], platform, &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    const int exit_code = take_ranks(job, default_rank);
    if (exit_code != 0)
        return exit_code;
    if (path != NULL && lp_checkpoint_open_with(&job->checkpoint, path, platform, &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    return path == NULL ? 0 : match(job);
}

void lp_cli_job_close(lp_cli_job *job)
{
    free(job->rank);
    lp_strings_free(&job->chosen);
    lp_checkpoint_close(job->checkpoint);
    lp_trace_close(job->trace);
}

bool lp_cli_is_part(const lp_cli_job *job)
{
    return job->tensor != NULL || job->ops != NULL;
}

bool lp_cli_is_selected(void *context, const lp_destination *dest)
{
    const lp_cli_job *job = context;
    return (job->tensor == NULL || lp_glob_match(job->tensor, dest->name)) &&
           (job->ops == NULL || lp_strings_find(&job->chosen, dest->name, strlen(dest->name)) >= 0);
}

int lp_cli_choose_rows(lp_cli_job *job, int32_t rank)
{
    const lp_rows *rows;
    lp_error err;
    if (job->ops == NULL)
        return 0;
    if (lp_trace_rows(job->trace, lp_trace_scope_find(job->trace, rank), &rows, &err) != LP_OK)
        return lp_cli_fail(job->cli, &err);
    bool *dest = calloc(rows->ndest + 1, sizeof *dest);
    bool ok = dest != NULL;
    lp_strings_free(&job->chosen);
    if (ok)
        lp_chosen_destinations(rows, job->ops, dest);
    for (uint32_t i = 0; ok && i < rows->ndest; i++)
        if (dest[i])
            ok = lp_strings_add(&job->chosen, rows->dest[i].name, strlen(rows->dest[i].name)) >= 0;
    free(dest);
    (void)lp_fail_memory(&err);
    return ok ? 0 : lp_cli_fail(job->cli, &err);
}

int64_t lp_cli_selected_count(const lp_cli_job *job, const lp_rows *rows)
{
    lp_cli_job selection = *job;
    int64_t count = 0;
    for (uint32_t i = 0; i < rows->ndest; i++)
        count += (rows->dest[i].flags & LP_DEST_NO_LOADER) == 0 && lp_cli_is_selected(&selection, &rows->dest[i]);
    return count;
}

/* ---- the names that selected destinations need ---- */

/* One step of the closure: what a selected destination needs, and what those names feed, so that no derive is left with
 * a part of its inputs. */
static bool spread_once(const lp_rows *rows, bool *dest, bool *name)
{
    bool changed = false;
    for (uint32_t d = 0; d < rows->nderive; d++) {
        const lp_derive *derive = &rows->derive[d];
        bool is_needed = derive->dest != LP_NONE && dest[derive->dest];
        for (uint32_t i = 0; i < derive->ninput; i++) /* a derive runs when any of its inputs is pushed */
            is_needed =
                is_needed || (derive->input[i].staged ? name[derive->input[i].index] : dest[derive->input[i].index]);
        for (uint32_t i = 0; is_needed && i < derive->ninput; i++) {
            bool *input = derive->input[i].staged ? &name[derive->input[i].index] : &dest[derive->input[i].index];
            changed = changed || !*input;
            *input = true;
        }
    }
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        if (r->name == LP_NAME_BEGIN)
            continue;
        if (dest[r->dest] != name[r->name]) /* a name comes whole, to all of its destinations */
            changed = dest[r->dest] = name[r->name] = true;
    }
    return changed;
}

/* Names for the subset, in memory of malloc; NULL when out of memory. */
static const char **select_names(lp_cli_job *job, const lp_rows *rows, int64_t *count)
{
    const lp_checkpoint *catalogue = lp_trace_checkpoint(job->trace);
    const int64_t names = lp_checkpoint_count(catalogue);
    bool *dest = calloc(rows->ndest + 1, sizeof *dest), *name = calloc((size_t)names + 1, sizeof *name);
    const char **list = calloc((size_t)names + 1, sizeof *list);
    *count = 0;
    for (uint32_t i = 0; dest != NULL && i < rows->ndest; i++)
        dest[i] = lp_cli_is_selected(job, &rows->dest[i]);
    if (dest != NULL && name != NULL && list != NULL) {
        while (spread_once(rows, dest, name))
            ;
        for (int64_t i = 0; i < names; i++)
            if (name[i])
                list[(*count)++] = lp_checkpoint_at(catalogue, i)->name;
    }
    free(dest);
    free(name);
    return list;
}

/* ---- loading ---- */

static int show_progress(void *context, int64_t done, int64_t total)
{
    lp_cli_progress(context, "replay", done, total, true);
    return 0;
}

static lp_status run_session(const lp_cli_job *job, lp_cli_load *load, lp_error *err)
{
    lp_session_options o = {.mode = job->mode, .allow_fallbacks = job->allow_fallbacks};
    lp_session *s = NULL;
    const char **subset = NULL;
    if (lp_cli_is_part(job) && job->mode != LP_DUMMY) {
        lp_cli_job selection = *job;
        subset = select_names(&selection, lp_plan_rows(load->plan), &o.subset_count);
        if (subset == NULL)
            return lp_fail_memory(err);
        o.subset = subset;
        o.mode = job->mode == LP_COLD ? LP_DIRECT : job->mode; /* over memory that is zero already */
    }
    lp_status status = lp_begin(&s, load->plan, &o, err);
    if (status == LP_OK && job->checkpoint != NULL)
        status = lp_push_checkpoint_with(s, job->checkpoint, &load->reads, show_progress, job->cli, err);
    if (status == LP_OK && job->mode == LP_META)
        status = lp_cli_push_names(s, load->plan, err);
    if (status == LP_OK)
        status = lp_finish(s, &load->report, err);
    lp_cli_progress_end(job->cli);
    lp_session_close(s);
    free((void *)subset);
    return status;
}

int lp_cli_load_rank(const lp_cli_job *job, int32_t rank, lp_cli_load *load)
{
    lp_error err = {.code = LP_OK};
    *load = (lp_cli_load){.memory = NULL};
    const lp_platform *platform = lp_cli_platform(job->cli);
    const lp_scope *scope = lp_trace_scope_at(job->trace, lp_trace_scope_find(job->trace, rank));
    int64_t staging = 0, threads = 0, spill = 0, count = 0;
    const lp_destination_memory *list = NULL;
    if (!lp_cli_bytes(job->cli, "staging", 0, &staging) || !lp_cli_integer(job->cli, "threads", 0, 0, 256, &threads) ||
        (job->session_device != NULL && !lp_cli_bytes(job->cli, "spill", 0, &spill)))
        return LP_EXIT_USAGE;
    lp_status status = LP_OK;
    if (job->session_device != NULL && job->mode == LP_LAYERWISE && staging == 0)
        status = lp_cli_enough_staging(job->trace, rank, &staging, &err);
    if (status != LP_OK)
        return lp_cli_fail(job->cli, &err);
    if (job->is_shared)
        status = lp_shared_allocate(&load->shared, job->trace, scope, NULL, platform, &err);
    else if (job->session_device != NULL)
        status = lp_destinations_allocate_on(&load->memory, job->trace, scope, job->session_device, platform, &err);
    else
        status = lp_destinations_allocate(&load->memory, job->trace, scope, job->mode == LP_META, platform, &err);
    if (status != LP_OK)
        return lp_cli_fail(job->cli, &err);
    list = job->is_shared ? lp_shared_list(load->shared, &count) : lp_destinations_list(load->memory, &count);
    const lp_bind_options o = {.staging = staging,
                               .threads = (int32_t)threads,
                               .platform = platform,
                               .device = job->session_device,
                               .spill = spill};
    status = lp_bind(&load->plan, job->trace, scope, list, count, &o, &err);
    if (status == LP_OK)
        status = run_session(job, load, &err);
    if (status == LP_OK && job->session_device != NULL)
        status = lp_cli_copy_back(job, rank, load, &err);
    return status == LP_OK ? 0 : lp_cli_fail(job->cli, &err);
}

void lp_cli_load_free(lp_cli_load *load)
{
    lp_plan_close(load->copy);
    lp_destinations_free(load->copy_memory);
    lp_plan_close(load->plan);
    lp_cold_memory_give_back(&load->on_device);
    lp_destinations_free(load->memory);
    lp_shared_free(load->shared);
    lp_attachment_close(load->attachment);
    free(load->digest);
    *load = (lp_cli_load){.memory = NULL};
}

char *lp_cli_sidecar_path(const char *trace_path)
{
    return lp_cli_format("%s.digests", trace_path);
}
