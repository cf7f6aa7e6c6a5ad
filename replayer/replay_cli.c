/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan replay`: loads ranks and writes one file for each. */
#include "replayer/replay_rank.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

enum { SHOWN_MAX = 10 }; /* fallbacks */

static lp_load_mode mode_of(const char *name)
{
    switch (name[0]) {
    case 'l':
        return LP_LAYERWISE;
    case 'c':
        return LP_COLD;
    case 'm':
        return LP_META;
    default:
        return strcmp(name, "dummy") == 0 ? LP_DUMMY : LP_DIRECT;
    }
}

static void warn_fallback(const lp_cli_job *job, int32_t rank, const lp_refusal *r)
{
    const lp_provenance *at = lp_trace_provenance(job->trace, r->provenance);
    char place[300] = "";
    if (at != NULL && at->file[0] != '\0')
        snprintf(place, sizeof place, " at %.200s:%d", lp_cli_clean(at->file), at->line);
    lp_cli_warn(job->cli, "rank %d: '%s' is a fallback: %s: %s%s", rank,
                lp_cli_clean(lp_checkpoint_at(lp_trace_checkpoint(job->trace), r->name)->name),
                lp_cli_clean(r->operation), lp_cli_clean(r->reason), place);
}

/* Lists the fallback names of all ranks; the number of them, or -1. */
static int64_t list_fallbacks(const lp_cli_job *job, lp_error *err)
{
    int64_t count = 0;
    for (int32_t i = 0; i < job->rank_count; i++) {
        const lp_rows *rows;
        if (lp_trace_rows(job->trace, lp_trace_scope_find(job->trace, job->rank[i]), &rows, err) != LP_OK)
            return -1;
        for (uint32_t k = 0; k < rows->nrefusal; k++)
            if (count++ < SHOWN_MAX)
                warn_fallback(job, job->rank[i], &rows->refusal[k]);
    }
    if (count > SHOWN_MAX)
        lp_cli_warn(job->cli, "and %" PRId64 " more", count - SHOWN_MAX);
    return count;
}

static void summarise_device(const lp_cli_job *job, const lp_replay_totals *t, const char *end)
{
    char bytes[32], pinned[32], link[48] = "", ranks[32] = "", source[64];
    const double seconds = (double)t->nanoseconds / 1e9;
    const double rate = seconds > 0 ? (double)t->needed / seconds : 0;
    if (t->link > 0)
        lp_cli_note(job->cli, "the link carried %.1f GB/s from pinned memory", t->link / 1e9);
    if (t->link > rate) /* else something disturbed the measurement */
        snprintf(link, sizeof link, ", %.2f of the link", rate / t->link);
    if (job->rank_count > 1)
        snprintf(ranks, sizeof ranks, "%d ranks, ", job->rank_count);
    if (t->files_direct == 0 || t->files_direct == t->files)
        snprintf(source, sizeof source, "%s", t->files_direct == 0 ? "page cache" : "direct reads");
    else
        snprintf(source, sizeof source, "page cache, %" PRId64 " of %" PRId64 " files directly", t->files_direct,
                 t->files);
    lp_cli_summary(job->cli, "replay: %s in %.2f s (%.1f GB/s%s); %s%s, %d reader%s, %s pinned%s",
                   lp_format_bytes(bytes, t->needed), seconds, rate / 1e9, link, ranks, source, t->readers,
                   t->readers == 1 ? "" : "s", lp_format_bytes(pinned, t->pinned), end);
}

/* How much, and how fast: of bytes only where some were loaded. */
static void summarise(const lp_cli_job *job, const lp_replay_totals *t, const char *end)
{
    char count[32], tensors[32], what[80];
    const double seconds = (double)t->nanoseconds / 1e9;
    if (job->mode == LP_META)
        snprintf(what, sizeof what, "%s names, none of their bytes", lp_format_count(count, t->names));
    else if (job->mode == LP_DUMMY)
        snprintf(what, sizeof what, "dummy values in %.2f s", seconds);
    else
        snprintf(what, sizeof what, "%s in %.2f s (%.2f GB/s)", lp_format_bytes(count, t->written), seconds,
                 seconds > 0 ? (double)t->written / 1e9 / seconds : 0.0);
    lp_cli_summary(job->cli, "replay: %s; %d rank%s, %s tensor%s%s", what, job->rank_count,
                   job->rank_count == 1 ? "" : "s", lp_format_count(tensors, t->tensors), t->tensors == 1 ? "" : "s",
                   end);
}

static int replay_all(lp_cli_job *job)
{
    lp_replay_totals t = {.cli = job->cli};
    char files[40] = "", end[96];
    for (int32_t i = 0; i < job->rank_count; i++) {
        const int exit_code = lp_cli_replay_rank(job, job->rank[i], &t);
        if (exit_code != 0)
            return exit_code;
    }
    if (t.is_attached)
        return t.differing > 0 ? LP_EXIT_NO : 0;
    if (t.file_nanoseconds > 0)
        snprintf(files, sizeof files, "; files in %.2f s", (double)t.file_nanoseconds / 1e9);
    snprintf(end, sizeof end, "%s%s%s", files,
             lp_cli_flag(job->cli, "verify", false) && t.differing == 0 ? "; verified" : "",
             t.has_kept ? "; digests kept" : "");
    if (job->device != NULL)
        summarise_device(job, &t, end);
    else
        summarise(job, &t, end);
    return t.differing > 0 ? LP_EXIT_NO : 0;
}

static int make_folder(lp_cli *cli, const char *folder)
{
    struct stat st;
    lp_error err;
    if (mkdir(folder, 0777) == 0)
        return 0;
    const int code = errno;
    if (code == EEXIST && stat(folder, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    (void)lp_fail_errno(&err, code == EEXIST ? ENOTDIR : code, "create", folder);
    return lp_cli_fail(cli, &err);
}

/* A word that matches nothing is a mistake, on which no files should be written. */
static int refuse_empty_choice(lp_cli_job *job)
{
    int64_t count = 0;
    lp_error err;
    if (!lp_cli_is_part(job))
        return 0;
    for (int32_t i = 0; i < job->rank_count && count == 0; i++) {
        const lp_rows *rows;
        const int exit_code = lp_cli_choose_rows(job, job->rank[i]);
        if (exit_code != 0)
            return exit_code;
        if (lp_trace_rows(job->trace, lp_trace_scope_find(job->trace, job->rank[i]), &rows, &err) != LP_OK)
            return lp_cli_fail(job->cli, &err);
        count = lp_cli_selected_count(job, rows);
    }
    return count > 0 ? 0 : lp_cli_usage(job->cli, "--tensor and --ops choose no destination");
}

static int run(lp_cli_job *job)
{
    lp_cli *cli = job->cli;
    const char *folder = lp_cli_text(cli, "output", NULL);
    lp_error err;
    const int64_t fallbacks = job->mode == LP_DUMMY || job->mode == LP_META ? 0 : list_fallbacks(job, &err);
    if (fallbacks < 0)
        return lp_cli_fail(cli, &err);
    if (fallbacks > 0 && !job->allow_fallbacks) {
        lp_fail(&err, LP_E_INCOMPLETE, "%" PRId64 " name%s cannot be loaded from the trace", fallbacks,
                fallbacks == 1 ? "" : "s");
        lp_hint(&err, "--allow-fallbacks leaves them out");
        return lp_cli_fail(cli, &err);
    }
    int exit_code = refuse_empty_choice(job);
    if (exit_code == 0 && folder != NULL)
        exit_code = make_folder(cli, folder);
    return exit_code != 0 ? exit_code : replay_all(job);
}

int lp_cli_replay(lp_cli *cli)
{
    const char *device = lp_cli_text(cli, "device", "cpu"), *ops = lp_cli_text(cli, "ops", NULL);
    lp_cli_job job;
    lp_number_set rows = {.alloc = NULL};
    lp_error err;
    if (lp_cli_flag(cli, "dry-run", false))
        return lp_cli_explain(cli);
    if (lp_cli_flag(cli, "world", false))
        return lp_cli_replay_world(cli);
    const bool is_cpu = strcmp(device, "cpu") == 0, attaches = lp_cli_text(cli, "attach", NULL) != NULL;
    const lp_load_mode mode = mode_of(lp_cli_text(cli, "mode", "cold"));
    const bool has_output = lp_cli_text(cli, "output", NULL) != NULL || lp_cli_flag(cli, "verify", false);
    if (mode == LP_META && has_output)
        return lp_cli_usage(cli, "--mode meta loads no bytes: it takes neither -o nor --verify");
    if (is_cpu && mode != LP_META && !has_output && !attaches &&
        (mode == LP_DUMMY || lp_cli_text(cli, "checkpoint", NULL) != NULL)) /* else that is asked for first */
        return lp_cli_usage(cli, "host memory ends with this command: name a folder with -o DIR, or --verify");
    int exit_code = lp_cli_job_open(&job, cli, mode != LP_DUMMY && mode != LP_META, "all");
    job.mode = mode;
    job.allow_fallbacks = mode == LP_META || lp_cli_flag(cli, "allow-fallbacks", false);
    job.tensor = lp_cli_text(cli, "tensor", NULL);
    job.ops = ops != NULL ? &rows : NULL;
    if (exit_code == 0 && ops != NULL && lp_number_set_parse(&rows, ops, NULL, &err) != LP_OK)
        exit_code = lp_cli_fail(cli, &err);
    if (exit_code == 0 && attaches && (job.rank_count != 1 || mode != LP_COLD))
        exit_code = lp_cli_usage(cli, "--attach takes one rank, and no mode but cold");
    const bool is_whole = mode == LP_COLD && !lp_cli_is_part(&job); /* parts load into memory that is zero */
    if (!is_cpu && mode != LP_META && !is_whole)
        job.session_device = device;
    else if (exit_code == 0 && !is_cpu && is_whole)
        exit_code = lp_cli_device_open(&job, device);
    if (exit_code == 0)
        exit_code = run(&job);
    lp_cli_device_close(&job);
    lp_cli_job_close(&job);
    lp_number_set_free(&rows);
    return exit_code;
}
