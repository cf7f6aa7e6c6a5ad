/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan serve`: loads a rank and lets other processes attach to it; and attaching, for `loadplan replay`. */
#include "replayer/replay_cli.h"
#include "replayer/session.h"

#include <inttypes.h>
#include <signal.h>

enum { STEP_MS = 1000, GRACE_MS = 5000 };

static volatile sig_atomic_t is_ending;

static void end_serving(int signal_number)
{
    (void)signal_number;
    is_ending = 1;
}

/* Without SA_RESTART, so that a signal ends the wait for clients. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = end_serving};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* Clients of a device must unmap before the memory goes; those of host memory keep theirs. */
static lp_status serve_until_told(lp_server *server, bool waits_for_clients, lp_error *err)
{
    while (!is_ending)
        LP_TRY(lp_serve_step(server, STEP_MS, err));
    const int64_t end = lp_session_clock() + (int64_t)GRACE_MS * 1000000;
    while (waits_for_clients && lp_serve_clients(server) > 0 && lp_session_clock() < end)
        LP_TRY(lp_serve_step(server, 50, err));
    return LP_OK;
}

static int serve_rank(const lp_cli_job *job, int32_t rank, lp_cli_load *load, const char *path)
{
    lp_cli *cli = job->cli;
    lp_shared *shared = load->shared, *own = NULL;
    lp_server *server = NULL;
    lp_error err;
    uint8_t content[32];
    char bytes[32];
    lp_status status = lp_checkpoint_local_id(job->checkpoint, content, &err);
    if (status == LP_OK && job->device != NULL) {
        status = lp_shared_of(&own, load->plan, lp_cli_text(cli, "device", "cpu"), &err);
        shared = own;
    }
    const lp_serve_options o = {.content = content,
                                .experts_epoch = lp_plan_epoch(load->plan),
                                .any_user = lp_cli_flag(cli, "any-user", false),
                                .platform = lp_cli_platform(cli)};
    if (status == LP_OK)
        status = lp_serve_open(&server, path, shared, &o, &err);
    if (status == LP_OK) {
        lp_cli_summary(cli, "serve: rank %d, %s, at '%s'; loaded in %.2f s", rank,
                       lp_format_bytes(bytes, lp_shared_bytes(shared)), lp_cli_clean(path),
                       (double)load->report.nanoseconds / 1e9);
        status = serve_until_told(server, job->device != NULL, &err);
    }
    lp_serve_close(server);
    lp_shared_free(own);
    return status == LP_OK ? 0 : lp_cli_fail(cli, &err);
}

int lp_cli_serve(lp_cli *cli)
{
    const char *device = lp_cli_text(cli, "device", "cpu"), *path = lp_cli_text(cli, "socket", NULL);
    lp_cli_job job;
    lp_cli_load load = {.memory = NULL};
    if (path == NULL)
        return lp_cli_usage(cli, "where shall it be served? name a socket with --socket PATH");
    int exit_code = lp_cli_job_open(&job, cli, true, "all");
    job.allow_fallbacks = lp_cli_flag(cli, "allow-fallbacks", false);
    if (exit_code == 0 && job.rank_count != 1)
        exit_code = lp_cli_usage(cli, "a process serves one rank: name it with --rank N");
    if (exit_code == 0 && strcmp(device, "cpu") != 0)
        exit_code = lp_cli_device_open(&job, device);
    if (exit_code == 0) {
        catch_signals(); /* a signal during the load is obeyed after it */
        job.is_shared = true;
        exit_code = job.device != NULL ? lp_cli_load_rank_on_device(&job, job.rank[0], &load)
                                       : lp_cli_load_rank(&job, job.rank[0], &load);
    }
    if (exit_code == 0)
        exit_code = serve_rank(&job, job.rank[0], &load, path);
    lp_cli_load_free(&load);
    lp_cli_device_close(&job);
    lp_cli_job_close(&job);
    return exit_code;
}

/* ---- attaching ---- */

static lp_status attach(const lp_cli_job *job, int32_t rank, const char *path, lp_cli_load *load, lp_error *err)
{
    const lp_scope *scope = lp_trace_scope_at(job->trace, lp_trace_scope_find(job->trace, rank));
    const lp_platform *platform = lp_cli_platform(job->cli);
    uint8_t content[32];
    int64_t count;
    const lp_attach_options o = {
        .content = content, .device = lp_cli_text(job->cli, "device", "cpu"), .platform = platform};
    const int64_t begin = lp_session_clock();
    LP_TRY(lp_checkpoint_local_id(job->checkpoint, content, err));
    LP_TRY(lp_attach(&load->attachment, path, job->trace, scope, &o, err));
    load->report.nanoseconds = lp_session_clock() - begin;
    const lp_destination_memory *list = lp_attachment_list(load->attachment, &count);
    LP_TRY(lp_bind(&load->plan, job->trace, scope, list, count, &(lp_bind_options){.platform = platform}, err));
    const bool is_read = lp_cli_flag(job->cli, "verify", false) || lp_cli_text(job->cli, "output", NULL) != NULL;
    return job->device != NULL && is_read ? lp_cli_device_results(job, rank, load, err) : LP_OK;
}

int lp_cli_attach_rank(const lp_cli_job *job, int32_t rank, const char *path, lp_cli_load *load)
{
    lp_error err;
    *load = (lp_cli_load){.memory = NULL};
    const lp_status status = attach(job, rank, path, load, &err);
    if (status == LP_OK)
        return 0;
    lp_cli_load_free(load);
    if (status != LP_E_PEER && status != LP_E_MISMATCH && status != LP_E_POISONED)
        return lp_cli_fail(job->cli, &err);
    lp_cli_warn(job->cli, "not attached, loading instead: %s", err.text);
    return LP_CLI_NOT_ATTACHED;
}

int lp_cli_attachment_held(const lp_cli_job *job, const lp_cli_load *load, int64_t epoch)
{
    lp_shared_state now;
    lp_error err;
    lp_attachment_peek(load->attachment, &now);
    if (now.epoch == epoch && !now.is_writing)
        return 0;
    (void)lp_fail(&err, LP_E_POISONED, "the served weights were replaced while they were read");
    return lp_cli_fail(job->cli, &err);
}
