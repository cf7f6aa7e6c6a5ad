/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan verify --sync`: a cold start, a reload with every tensor's elements rolled by one, a reload with the real
 * ones. The first reload shows that reloads write, the second that they write what the cold start wrote, in place.
 */
#include "replayer/replay_cli.h"
#include "replayer/rolled_io.h"
#include "replayer/rolled_verdict.h"

#include <inttypes.h>
#include <stdlib.h>

enum { SHOWN_MAX = 20, COLD = 0, ROLLED = 1, REAL = 2, STAGES = 3 };

typedef struct sync_totals {
    int64_t tensors;
    int64_t changed, constant, derived, not_loaded; /* of the scrambled sync; those that stayed by the reason */
    int64_t stuck, restored, lost, moved;           /* stuck: had to change and did not; lost: did not come back */
    int64_t failed_checks;
} sync_totals;

/* One rank. */
typedef struct syncing {
    const lp_cli_job *job;
    int32_t rank;
    lp_rolled_io rolled;
    lp_platform platform; /* whose files are those of `rolled` */
    lp_cli_load load;
    uint8_t (*digest[STAGES])[LP_VALUE_DIGEST_BYTES];
    void **address; /* of every destination, as it was at first */
    sync_totals *totals;
    int64_t shown;
} syncing;

static void complain(syncing *s, uint32_t dest, const char *what)
{
    if (s->shown++ < SHOWN_MAX)
        fprintf(s->job->cli->out, "rank %d: '%s' %s\n", s->rank,
                lp_cli_clean(lp_plan_rows(s->load.plan)->dest[dest].name), what);
}

/* ---- the three loads ---- */

static lp_status open_rank(syncing *s, lp_error *err)
{
    const lp_cli_job *job = s->job;
    const lp_scope *scope = lp_trace_scope_at(job->trace, lp_trace_scope_find(job->trace, s->rank));
    const char *name = lp_cli_text(job->cli, "device", "cpu"), *device = strcmp(name, "cpu") == 0 ? NULL : name;
    int64_t count, staging = 0, threads = 0, spill = 0;
    if (!lp_cli_bytes(job->cli, "staging", 0, &staging) || !lp_cli_integer(job->cli, "threads", 0, 0, 256, &threads) ||
        (device != NULL && job->mode == LP_LAYERWISE && !lp_cli_bytes(job->cli, "spill", 0, &spill)))
        return lp_fail(err, LP_E_USAGE, "a number is out of its range");
    if (device != NULL && job->mode == LP_LAYERWISE && staging == 0)
        LP_TRY(lp_cli_enough_staging(job->trace, s->rank, &staging, err));
    LP_TRY(lp_rolled_io_make(&s->rolled, job->checkpoint, lp_cli_platform(job->cli), err));
    s->platform = *lp_cli_platform(job->cli);
    s->platform.io = &s->rolled.table;
    if (device == NULL)
        LP_TRY(lp_destinations_allocate(&s->load.memory, job->trace, scope, false, &s->platform, err));
    else
        LP_TRY(lp_destinations_allocate_on(&s->load.memory, job->trace, scope, device, &s->platform, err));
    const lp_destination_memory *list = lp_destinations_list(s->load.memory, &count);
    const lp_bind_options o = {
        .staging = staging, .threads = (int32_t)threads, .platform = &s->platform, .device = device, .spill = spill};
    LP_TRY(lp_bind(&s->load.plan, job->trace, scope, list, count, &o, err));
    const size_t tensors = (size_t)lp_plan_rows(s->load.plan)->ndest + 1;
    s->address = calloc(tensors, sizeof *s->address);
    for (int i = 0; i < STAGES; i++)
        s->digest[i] = calloc(tensors, sizeof *s->digest[i]);
    return s->address == NULL || s->digest[COLD] == NULL || s->digest[ROLLED] == NULL || s->digest[REAL] == NULL
               ? lp_fail_memory(err)
               : LP_OK;
}

static void close_rank(syncing *s)
{
    lp_cli_load_free(&s->load);
    lp_rolled_io_free(&s->rolled);
    for (int i = 0; i < STAGES; i++)
        free(s->digest[i]);
    free(s->address);
}

static int show_progress(void *context, int64_t done, int64_t total)
{
    lp_cli_progress(context, "verify", done, total, true);
    return 0;
}

static lp_status load(syncing *s, lp_load_mode mode, lp_error *err)
{
    const lp_session_options o = {.mode = mode, .allow_fallbacks = s->job->allow_fallbacks};
    lp_session *session = NULL;
    lp_status status = lp_begin(&session, s->load.plan, &o, err);
    if (status == LP_OK)
        status = lp_push_checkpoint_with(session, s->job->checkpoint, NULL, show_progress, s->job->cli, err);
    if (status == LP_OK)
        status = lp_finish(session, NULL, err);
    lp_cli_progress_end(s->job->cli);
    lp_session_close(session);
    return status;
}

static lp_status take_digests(syncing *s, int stage, lp_error *err)
{
    const uint32_t tensors = lp_plan_rows(s->load.plan)->ndest;
    for (uint32_t i = 0; i < tensors; i++)
        LP_TRY(lp_plan_value_digest(s->load.plan, i, s->digest[stage][i], err));
    return LP_OK;
}

static lp_status run_loads(syncing *s, lp_error *err)
{
    const uint32_t tensors = lp_plan_rows(s->load.plan)->ndest;
    LP_TRY(load(s, LP_COLD, err));
    LP_TRY(take_digests(s, COLD, err));
    for (uint32_t i = 0; i < tensors; i++)
        s->address[i] = lp_plan_address(s->load.plan, i);
    s->rolled.is_rolled = true;
    lp_status status = load(s, s->job->mode, err);
    s->rolled.is_rolled = false;
    if (status == LP_E_VALUE) { /* all of it is loaded; checked values may well differ when rolled */
        lp_cli_note(s->job->cli, "rank %d: a declared check failed on the scrambled values: %s", s->rank, err->text);
        s->totals->failed_checks++;
        status = LP_OK;
    }
    LP_TRY(status);
    LP_TRY(take_digests(s, ROLLED, err));
    LP_TRY(load(s, s->job->mode, err));
    return take_digests(s, REAL, err);
}

/* ---- the verdict ---- */

static bool is_equal(const syncing *s, int a, int b, uint32_t dest)
{
    return memcmp(s->digest[a][dest], s->digest[b][dest], LP_VALUE_DIGEST_BYTES) == 0;
}

static void count_unchanged(syncing *s, const uint8_t *verdict, const bool *is_derived)
{
    const uint32_t tensors = lp_plan_rows(s->load.plan)->ndest;
    for (uint32_t i = 0; i < tensors; i++) {
        if (!is_equal(s, COLD, ROLLED, i)) {
            s->totals->changed++;
        } else if (verdict[i] == LP_ROLLED_OTHER) {
            s->totals->stuck++;
            complain(s, i, "did not change when its sources did");
        } else if (verdict[i] == LP_ROLLED_SAME) {
            s->totals->constant++;
        } else if (is_derived[i]) {
            s->totals->derived++;
        } else {
            s->totals->not_loaded++;
        }
    }
}

static lp_status judge_unchanged(syncing *s, lp_error *err)
{
    const lp_rows *rows = lp_plan_rows(s->load.plan);
    uint8_t *verdict = calloc((size_t)rows->ndest + 1, sizeof *verdict);
    bool *is_derived = calloc((size_t)rows->ndest + 1, sizeof *is_derived);
    lp_status status = LP_OK;
    if (verdict == NULL || is_derived == NULL)
        status = lp_fail_memory(err);
    for (uint32_t i = 0; status == LP_OK && i < rows->ndest; i++)
        verdict[i] = is_equal(s, COLD, ROLLED, i) ? LP_ROLLED_OTHER : LP_ROLLED_NOT_LOADED;
    for (uint32_t d = 0; status == LP_OK && d < rows->nderive; d++)
        if (rows->derive[d].dest != LP_NONE)
            is_derived[rows->derive[d].dest] = true;
    if (status == LP_OK)
        status = lp_rolled_judge(s->load.plan, s->job->checkpoint, verdict, err);
    if (status == LP_OK)
        count_unchanged(s, verdict, is_derived);
    free(verdict);
    free(is_derived);
    return status;
}

static void count_restored(syncing *s)
{
    const uint32_t tensors = lp_plan_rows(s->load.plan)->ndest;
    for (uint32_t i = 0; i < tensors; i++) {
        const bool is_back = is_equal(s, COLD, REAL, i), has_moved = lp_plan_address(s->load.plan, i) != s->address[i];
        s->totals->restored += is_back;
        s->totals->lost += !is_back;
        s->totals->moved += has_moved;
        if (!is_back)
            complain(s, i, "did not come back to the bytes of the cold start");
        if (has_moved)
            complain(s, i, "has moved");
    }
    s->totals->tensors += tensors;
}

static int sync_rank(const lp_cli_job *job, int32_t rank, sync_totals *totals)
{
    lp_error err;
    syncing s = {.job = job, .rank = rank, .totals = totals};
    lp_status status = open_rank(&s, &err);
    if (status == LP_OK)
        status = run_loads(&s, &err);
    if (status == LP_OK)
        status = judge_unchanged(&s, &err);
    if (status == LP_OK)
        count_restored(&s);
    if (s.shown > SHOWN_MAX)
        fprintf(job->cli->out, "rank %d: and %" PRId64 " more\n", rank, s.shown - SHOWN_MAX);
    close_rank(&s);
    return status == LP_OK ? 0 : lp_cli_fail(job->cli, &err);
}

static int report(lp_cli *cli, const sync_totals *t)
{
    char a[32], b[32];
    const int64_t stayed = t->constant + t->derived + t->not_loaded;
    fprintf(cli->out, "cold start      %s tensors digested\n", lp_format_count(a, t->tensors));
    fprintf(cli->out, "scrambled sync  %s changed%s", lp_format_count(a, t->changed),
            t->stuck == 0 ? ", as they should" : "");
    if (t->stuck > 0)
        fprintf(cli->out, ", %s should have changed and did not", lp_format_count(b, t->stuck));
    if (stayed > 0)
        fprintf(cli->out,
                "; %" PRId64 " stayed: %" PRId64 " from constant or single values, %" PRId64 " derived, %" PRId64
                " not loaded",
                stayed, t->constant, t->derived, t->not_loaded);
    fprintf(cli->out, "\nreal sync       %s of %s equal to the cold start, %" PRId64 " moved\n",
            lp_format_count(a, t->restored), lp_format_count(b, t->tensors), t->moved);
    return t->stuck + t->lost + t->moved > 0 ? LP_EXIT_NO : 0;
}

int lp_cli_verify_sync(lp_cli *cli)
{
    lp_cli_job job;
    sync_totals totals = {.tensors = 0};
    if (lp_cli_text(cli, "against", NULL) != NULL)
        return lp_cli_usage(cli, "--sync compares with its own cold start, not with --against");
    int exit_code = lp_cli_job_open(&job, cli, true, "all");
    job.allow_fallbacks = lp_cli_flag(cli, "allow-fallbacks", false);
    job.mode = strcmp(lp_cli_text(cli, "mode", "direct"), "layerwise") == 0 ? LP_LAYERWISE : LP_DIRECT;
    for (int32_t i = 0; exit_code == 0 && i < job.rank_count; i++)
        exit_code = sync_rank(&job, job.rank[i], &totals);
    if (exit_code == 0)
        exit_code = report(cli, &totals);
    lp_cli_job_close(&job);
    return exit_code;
}
