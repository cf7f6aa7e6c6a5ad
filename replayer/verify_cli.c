/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan verify`: loads again, and compares with what an earlier load left behind. */
#include "replayer/replay_cli.h"

#include <inttypes.h>
#include <stdlib.h>

enum { SHOWN_MAX = 20 };

typedef struct outcome {
    lp_cli *cli;
    int32_t rank;
    int64_t compared, differing;
} outcome;

static void report_difference(void *context, const lp_destination *dest, const char *how, int64_t byte)
{
    outcome *o = context;
    if (o->differing++ >= SHOWN_MAX)
        return;
    fprintf(o->cli->out, "rank %d: '%s' %s", o->rank, lp_cli_clean(dest->name), how);
    if (byte >= 0)
        fprintf(o->cli->out, " from byte %" PRId64 " on", byte);
    fputc('\n', o->cli->out);
}

static lp_status against_file(outcome *o, const lp_plan *plan, const char *folder, lp_error *err)
{
    char name[32];
    lp_rank_file_name(name, o->rank);
    char *path = lp_cli_format("%s/%s", folder, name);
    if (path == NULL)
        return lp_fail_memory(err);
    const lp_status status = lp_rank_file_compare(plan, path, report_difference, o, err);
    free(path);
    return status;
}

/* The content id whose digests to compare with: that of these files, else the newest of this plan and rank. */
static lp_status choose_content(const outcome *o, const lp_sidecar *s, const lp_rows *rows, uint8_t content[32],
                                lp_error *err)
{
    if (lp_sidecar_has(s, rows->digest, content, o->rank))
        return LP_OK;
    if (lp_sidecar_newest(s, rows->digest, o->rank, content)) {
        lp_cli_warn(o->cli, "the files of the checkpoint are not those that the digests of rank %d were taken from",
                    o->rank);
        return LP_OK;
    }
    lp_fail(err, LP_E_FORMAT, "there are no digests of rank %d to compare with", o->rank);
    lp_hint(err, "'loadplan replay' keeps them; --against DIR compares with rank files");
    return LP_E_FORMAT;
}

static lp_status against_digests(outcome *o, const lp_plan *plan, const lp_checkpoint *checkpoint, lp_error *err)
{
    const lp_rows *rows = lp_plan_rows(plan);
    uint8_t content[32], now[LP_VALUE_DIGEST_BYTES];
    lp_sidecar *s = NULL;
    char *path = lp_cli_sidecar_path(o->cli->argument[0]);
    if (path == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_checkpoint_local_id(checkpoint, content, err);
    if (status == LP_OK)
        status = lp_sidecar_open(&s, path, lp_cli_platform(o->cli), err);
    if (status == LP_OK)
        status = choose_content(o, s, rows, content, err);
    for (uint32_t i = 0; status == LP_OK && i < rows->ndest; i++) {
        if ((rows->dest[i].flags & LP_DEST_NO_LOADER) != 0)
            continue;
        const uint8_t *kept = lp_sidecar_find(s, rows->digest, content, o->rank, rows->dest[i].name);
        status = lp_plan_value_digest(plan, i, now, err);
        if (status == LP_OK && kept == NULL)
            report_difference(o, &rows->dest[i], "has no digest", -1);
        else if (status == LP_OK && memcmp(kept, now, sizeof now) != 0)
            report_difference(o, &rows->dest[i], "has other bytes than the digest says", -1);
    }
    lp_sidecar_close(s);
    free(path);
    return status;
}

static int verify_rank(const lp_cli_job *job, int32_t rank, outcome *total)
{
    lp_cli_load load;
    lp_error err;
    outcome o = {.cli = job->cli, .rank = rank};
    const char *folder = lp_cli_text(job->cli, "against", NULL);
    int exit_code = lp_cli_load_rank(job, rank, &load);
    if (exit_code == 0) {
        o.compared = lp_cli_selected_count(job, lp_plan_rows(load.plan));
        const lp_status status = folder != NULL ? against_file(&o, load.plan, folder, &err)
                                                : against_digests(&o, load.plan, job->checkpoint, &err);
        if (status != LP_OK)
            exit_code = lp_cli_fail(job->cli, &err);
    }
    if (o.differing > SHOWN_MAX)
        fprintf(job->cli->out, "rank %d: and %" PRId64 " more\n", rank, o.differing - SHOWN_MAX);
    total->compared += o.compared;
    total->differing += o.differing;
    lp_cli_load_free(&load);
    return exit_code;
}

int lp_cli_verify(lp_cli *cli)
{
    lp_cli_job job;
    outcome total = {.cli = cli};
    char equal[32], all[32];
    if (lp_cli_flag(cli, "sync", false))
        return lp_cli_verify_sync(cli);
    if (strcmp(lp_cli_text(cli, "device", "cpu"), "cpu") != 0)
        return lp_cli_usage(cli, "--device goes with --sync; 'loadplan replay --device' verifies single loads");
    int exit_code = lp_cli_job_open(&job, cli, true, "all");
    job.allow_fallbacks = lp_cli_flag(cli, "allow-fallbacks", false);
    for (int32_t i = 0; exit_code == 0 && i < job.rank_count; i++)
        exit_code = verify_rank(&job, job.rank[i], &total);
    if (exit_code == 0) {
        lp_cli_summary(cli, "verify: %s of %s tensors equal", lp_format_count(equal, total.compared - total.differing),
                       lp_format_count(all, total.compared));
        exit_code = total.differing > 0 ? LP_EXIT_NO : 0;
    }
    lp_cli_job_close(&job);
    return exit_code;
}
