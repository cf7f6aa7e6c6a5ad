/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of `loadplan replay`: loaded or attached to, compared with digests that were kept, written to its file. */
#include "replayer/replay_rank.h"
#include "replayer/session.h"

#include <inttypes.h>

enum { SHOWN_MAX = 10 }; /* tensors that differ */

static void note_difference(void *context, const lp_destination *dest, const char *how, int64_t byte)
{
    lp_replay_totals *t = context;
    (void)how;
    (void)byte;
    if (t->differing++ >= SHOWN_MAX)
        return;
    lp_error err;
    lp_fail_at(&err, LP_E_VALUE, dest->name, -1, "'%s' was not written as it was loaded", dest->name);
    (void)lp_cli_fail(t->cli, &err);
}

/* Earlier digests of the same plan and content must be those of this load. */
static int64_t compare_kept(lp_cli *cli, const lp_sidecar *s, const lp_plan *plan, const uint8_t content[32],
                            lp_error *err)
{
    const lp_rows *rows = lp_plan_rows(plan);
    int64_t differing = 0;
    for (uint32_t i = 0; i < rows->ndest; i++) {
        uint8_t now[LP_VALUE_DIGEST_BYTES];
        const uint8_t *kept =
            lp_sidecar_find(s, rows->digest, content, lp_scope_rank(&rows->scope), rows->dest[i].name);
        if (kept == NULL)
            continue;
        if (lp_plan_value_digest(plan, i, now, err) != LP_OK)
            return -1;
        if (memcmp(kept, now, sizeof now) != 0) {
            differing++;
            fprintf(cli->out, "'%s' differs from the digest of an earlier load\n", lp_cli_clean(rows->dest[i].name));
        }
    }
    return differing;
}

/* Digests go next to the trace; where that folder cannot be written, the load still counts. */
static int keep_digests(const lp_cli_job *job, const lp_plan *plan, bool verify, lp_replay_totals *t)
{
    lp_error err;
    uint8_t content[32];
    lp_sidecar *s = NULL;
    char *path = lp_cli_sidecar_path(job->cli->argument[0]);
    int64_t differing = 0;
    if (path == NULL || job->checkpoint == NULL || lp_cli_is_part(job) ||
        lp_checkpoint_local_id(job->checkpoint, content, &err) != LP_OK) {
        free(path);
        return 0;
    }
    lp_status status = lp_sidecar_open(&s, path, lp_cli_platform(job->cli), &err);
    if (status == LP_OK && verify)
        differing = compare_kept(job->cli, s, plan, content, &err);
    if (status == LP_OK && differing == 0) {
        status = lp_sidecar_put(s, plan, content, &err);
        if (status == LP_OK)
            status = lp_sidecar_save(s, path, &err);
        t->has_kept = status == LP_OK;
    }
    if (status != LP_OK)
        lp_cli_warn(job->cli, "digests are not kept: %s", err.text);
    lp_sidecar_close(s);
    free(path);
    if (differing > 0)
        t->differing += differing;
    return differing < 0 ? lp_cli_fail(job->cli, &err) : 0;
}

static int write_rank(const lp_cli_job *job, int32_t rank, const lp_cli_load *load, bool verify, lp_replay_totals *t)
{
    const char *folder = lp_cli_text(job->cli, "output", NULL);
    char name[32];
    lp_error err;
    lp_cli_job selection = *job;
    if (folder == NULL)
        return 0;
    lp_rank_file_name(name, rank);
    char *path = lp_cli_format("%s/%s", folder, name);
    if (path == NULL)
        return LP_EXIT_ENVIRONMENT;
    int exit_code = 0;
    const int64_t began = lp_session_clock();
    const lp_plan *plan = load->copy != NULL ? load->copy : load->plan;
    if (lp_rank_file_write(plan, path, lp_cli_flag(job->cli, "force", false), lp_cli_is_selected, &selection, NULL,
                           &err) != LP_OK ||
        (verify && !lp_cli_is_part(job) && lp_rank_file_compare(plan, path, note_difference, t, &err) != LP_OK))
        exit_code = lp_cli_fail(job->cli, &err);
    t->file_nanoseconds += lp_session_clock() - began;
    free(path);
    return exit_code;
}

static int load_rank(const lp_cli_job *job, int32_t rank, lp_cli_load *load)
{
    const char *socket = lp_cli_text(job->cli, "attach", NULL);
    const int exit_code = socket == NULL ? LP_CLI_NOT_ATTACHED : lp_cli_attach_rank(job, rank, socket, load);
    if (exit_code != LP_CLI_NOT_ATTACHED)
        return exit_code;
    return job->device != NULL ? lp_cli_load_rank_on_device(job, rank, load) : lp_cli_load_rank(job, rank, load);
}

/* Compares, and keeps nothing: the bytes may be replaced while they are read, which is found out afterwards. */
static int compare_attached(const lp_cli_job *job, const lp_plan *plan, lp_replay_totals *t)
{
    const lp_rows *rows = lp_plan_rows(plan);
    lp_error err;
    uint8_t content[32];
    lp_sidecar *s = NULL;
    int64_t differing = 0;
    char *path = lp_cli_sidecar_path(job->cli->argument[0]);
    lp_status status = path == NULL ? lp_fail_memory(&err) : lp_checkpoint_local_id(job->checkpoint, content, &err);
    if (status == LP_OK)
        status = lp_sidecar_open(&s, path, lp_cli_platform(job->cli), &err);
    if (status == LP_OK && !lp_sidecar_has(s, rows->digest, content, lp_scope_rank(&rows->scope))) {
        status = lp_fail(&err, LP_E_FORMAT, "there are no digests of an earlier load to compare with");
        lp_hint(&err, "'loadplan replay' without --attach keeps them");
    }
    if (status == LP_OK)
        differing = compare_kept(job->cli, s, plan, content, &err);
    lp_sidecar_close(s);
    free(path);
    if (differing > 0)
        t->differing += differing;
    return status != LP_OK || differing < 0 ? lp_cli_fail(job->cli, &err) : 0;
}

/* Only what is asked for is read. */
static int use_attached(const lp_cli_job *job, int32_t rank, const lp_cli_load *load, bool verify, lp_replay_totals *t)
{
    char bytes[32];
    lp_shared_state state;
    lp_attachment_peek(load->attachment, &state);
    int exit_code = write_rank(job, rank, load, verify, t);
    if (exit_code == 0 && verify)
        exit_code = compare_attached(job, load->plan, t);
    if (exit_code == 0)
        exit_code = lp_cli_attachment_held(job, load, state.epoch);
    if (exit_code == 0)
        lp_cli_summary(job->cli, "replay: attached to %s in %.1f ms; epoch %" PRId64 "%s",
                       lp_format_bytes(bytes, lp_attachment_bytes(load->attachment)),
                       (double)load->report.nanoseconds / 1e6, state.epoch,
                       verify && t->differing == 0 ? "; verified" : "");
    return exit_code;
}

int lp_cli_replay_rank(lp_cli_job *job, int32_t rank, lp_replay_totals *t)
{
    lp_cli_load load;
    const bool verify = lp_cli_flag(job->cli, "verify", false);
    int exit_code = lp_cli_choose_rows(job, rank);
    if (exit_code != 0)
        return exit_code;
    exit_code = load_rank(job, rank, &load);
    if (exit_code == 0 && load.attachment != NULL) {
        exit_code = use_attached(job, rank, &load, verify, t);
        t->is_attached = true;
        lp_cli_load_free(&load);
        return exit_code;
    }
    if (exit_code == 0)
        exit_code = write_rank(job, rank, &load, verify, t);
    if (exit_code == 0 && load.report.fallbacks == 0)
        exit_code = keep_digests(job, load.plan, verify, t);
    if (exit_code == 0) {
        lp_cli_note(job->cli,
                    "rank %d: %" PRId64 " bytes read in %" PRId64 " ranges, %" PRId64 " written, %" PRId64
                    " derives, staging peak %" PRId64,
                    rank, load.reads.bytes_read, load.reads.ranges, load.report.bytes_written, load.report.derives_run,
                    load.report.staging_peak_bytes);
        t->read += load.reads.bytes_read;
        t->ranges += load.reads.ranges;
        t->written += load.report.bytes_written;
        t->names += load.report.names_loaded;
        t->tensors += lp_cli_selected_count(job, lp_plan_rows(load.plan));
        t->nanoseconds += load.report.nanoseconds;
        t->needed += load.cold.bytes_needed;
        t->files += load.cold.files;
        t->files_direct += load.cold.files_direct;
        t->readers = load.cold.readers;
        t->link = load.link > t->link ? load.link : t->link;
        t->pinned = load.cold.pinned_bytes;
        if (load.report.derives_skipped > 0)
            lp_cli_warn(job->cli, "rank %d: %" PRId64 " derives were skipped: they need fallback names", rank,
                        load.report.derives_skipped);
    }
    lp_cli_load_free(&load);
    return exit_code;
}
