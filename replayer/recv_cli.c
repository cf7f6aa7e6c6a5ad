/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan recv`: weights from senders into rank files or the memory of a served rank. */
#include "replayer/replay_cli.h"
#include "replayer/session_patch.h"
#include "replayer/sync_cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEASE_MS = 10000, PAUSE_US = 100000 };

static const char LOST[] = "the meeting point is gone";

typedef struct receiver {
    lp_cli_sync sync;
    lp_destinations *memory;      /* with files */
    lp_destinations *copy_memory; /* with files, where memory is a device's */
    lp_plan *copy;
    lp_attachment *attachment; /* with a socket */
    lp_plan *plan;
    bool is_on_device;
    const char *folder;
    lp_session_options session;
    char *path, *written; /* of the rank file, and as it is called until all have the epoch */
} receiver;

/* 0, or an exit code. */
static int bind_memory(receiver *r, const char *socket)
{
    lp_cli *cli = r->sync.cli;
    const lp_platform *platform = lp_cli_platform(cli);
    const lp_scope *scope = lp_cli_sync_scope(&r->sync);
    int64_t count = 0, staging = 0, threads = 0;
    const lp_destination_memory *list = NULL;
    const char *device = lp_cli_text(cli, "device", "cpu");
    const bool is_cpu = strcmp(device, "cpu") == 0;
    lp_error err;
    lp_status status;
    if (scope == NULL || !lp_cli_bytes(cli, "staging", 0, &staging) ||
        !lp_cli_integer(cli, "threads", 0, 0, 256, &threads))
        return LP_EXIT_USAGE;
    if (socket != NULL) {
        const lp_attach_options o = {.write = true, .device = device, .platform = platform};
        status = lp_attach(&r->attachment, socket, r->sync.trace, scope, &o, &err);
        if (status == LP_OK)
            list = lp_attachment_list(r->attachment, &count);
    } else {
        status = is_cpu ? lp_destinations_allocate(&r->memory, r->sync.trace, scope, false, platform, &err)
                        : lp_destinations_allocate_on(&r->memory, r->sync.trace, scope, device, platform, &err);
        if (status == LP_OK)
            list = lp_destinations_list(r->memory, &count);
    }
    r->is_on_device = !is_cpu;
    const lp_bind_options o = {
        .staging = staging, .threads = (int32_t)threads, .device = is_cpu ? NULL : device, .platform = platform};
    if (status == LP_OK)
        status = lp_bind(&r->plan, r->sync.trace, scope, list, count, &o, &err);
    return status == LP_OK ? 0 : lp_cli_fail(cli, &err);
}

static int name_file(receiver *r)
{
    char name[32];
    lp_error err;
    if (mkdir(r->folder, 0777) != 0 && errno != EEXIST) {
        (void)lp_fail_errno(&err, errno, "create", r->folder);
        return lp_cli_fail(r->sync.cli, &err);
    }
    lp_rank_file_name(name, r->sync.launch.rank);
    r->path = lp_cli_format("%s/%s", r->folder, name);
    r->written = lp_cli_format("%s/%s.new", r->folder, name);
    return r->path != NULL && r->written != NULL ? 0 : LP_EXIT_ENVIRONMENT;
}

/* A file is written under another name, and gets its own when every rank has come so far. */
static lp_status write_file(receiver *r, lp_error *err)
{
    lp_error mine = {.code = LP_OK};
    lp_status written = LP_OK;
    if (r->is_on_device)
        written = lp_cli_host_copy(r->sync.trace, lp_cli_sync_scope(&r->sync), r->plan, &r->copy_memory, &r->copy,
                                   lp_cli_platform(r->sync.cli), &mine);
    if (written == LP_OK)
        written = lp_rank_file_write(r->is_on_device ? r->copy : r->plan, r->written, true, NULL, NULL, NULL, &mine);
    const lp_status status = lp_sync_vote(r->sync.sync, written == LP_OK ? NULL : &mine, err);
    if (status == LP_OK && rename(r->written, r->path) != 0)
        return lp_fail_errno(err, errno, "rename", r->written);
    if (status != LP_OK)
        (void)unlink(r->written);
    return status;
}

static lp_status commit(receiver *r, const lp_sync_report *report, lp_status status, lp_error *err)
{
    static const uint8_t none[32] = {0};
    const bool is_known = memcmp(report->content, none, sizeof none) != 0;
    if (status == LP_OK)
        return lp_attachment_commit(r->attachment, is_known ? report->content : NULL, lp_plan_epoch(r->plan), err);
    lp_error other;
    (void)lp_attachment_abandon(r->attachment, lp_patch_is_stale(r->plan), &other);
    return status;
}

static lp_status receive(receiver *r, lp_sync_report *report, lp_error *err)
{
    lp_sync *s = r->sync.sync;
    *report = (lp_sync_report){.epoch = 0};
    if (r->attachment != NULL)
        LP_TRY(lp_attachment_lease(r->attachment, LEASE_MS, err));
    lp_status status = lp_sync_recv(s, r->plan, &r->session, r->sync.epoch, report, err);
    if (status == LP_OK)
        status = r->attachment != NULL ? lp_sync_vote(s, NULL, err) : write_file(r, err);
    return r->attachment != NULL ? commit(r, report, status, err) : status;
}

static void tell(const receiver *r, const lp_sync_report *p)
{
    char bytes[32], moved[32], rate[64], tensors[32];
    lp_cli_summary(r->sync.cli, "recv: epoch %" PRId64 ", %s: %s here, %s moved in %s; %s tensors", p->epoch,
                   lp_sync_mode_name(p->mode), lp_format_bytes(bytes, p->bytes_needed),
                   lp_format_bytes(moved, p->bytes_moved), lp_cli_rate(rate, p->bytes_moved, p->nanoseconds),
                   lp_format_count(tensors, p->load.tensors));
    if (p->load.derives_skipped > 0)
        lp_cli_warn(r->sync.cli, "%" PRId64 " derives were skipped: they need fallback names", p->load.derives_skipped);
}

/* One epoch, or all until the senders end, or for ever. */
static int receive_epochs(receiver *r, int64_t epochs, const lp_sync_options *options)
{
    const bool stays = epochs == 0 && lp_cli_flag(r->sync.cli, "stay", false);
    int exit_code = 0;
    for (int64_t i = 0; epochs == 0 || i < epochs; i++) {
        lp_sync_report report;
        lp_error err;
        const lp_status status = receive(r, &report, &err);
        const bool has_no_round = report.epoch == 0; /* ranks did not come to agree */
        if (status == LP_OK) {
            tell(r, &report);
            exit_code = 0;
        } else if (stays && has_no_round && (status == LP_E_INCOMPLETE || status == LP_E_PEER)) {
            /* A meeting point that went while nothing was under way is not worth a word. */
            const bool is_quiet = status == LP_E_INCOMPLETE || strncmp(err.text, LOST, strlen(LOST)) == 0;
            if (!is_quiet)
                lp_cli_warn(r->sync.cli, "%s", err.text);
            usleep(is_quiet ? PAUSE_US : 10 * PAUSE_US);
            const int met = lp_cli_sync_meet_again(&r->sync, options);
            if (met != 0)
                return met;
        } else if (status == LP_E_INCOMPLETE && has_no_round && epochs == 0) {
            break; /* the senders have ended */
        } else {
            exit_code = lp_cli_fail(r->sync.cli, &err);
            if (epochs == 1 || has_no_round)
                return exit_code;
        }
    }
    return exit_code;
}

static lp_load_mode mode_of(const char *text)
{
    return text[0] == 'd' ? LP_DIRECT : text[0] == 'l' ? LP_LAYERWISE : LP_COLD;
}

int lp_cli_recv(lp_cli *cli)
{
    const char *into = lp_cli_text(cli, "into", NULL);
    receiver r = {.plan = NULL};
    int64_t epochs = 1;
    if (into == NULL)
        return lp_cli_usage(cli, "where to? name it with --into PLACE");
    const char *socket = lp_cli_ipc_path(into);
    if (!lp_cli_integer(cli, "epochs", 1, 0, INT64_MAX, &epochs))
        return LP_EXIT_USAGE;
    if (lp_cli_flag(cli, "stay", false) && epochs != 0)
        return lp_cli_usage(cli, "--stay goes with --epochs 0");
    r.session.mode = mode_of(lp_cli_text(cli, "mode", socket != NULL ? "direct" : "cold"));
    r.session.allow_fallbacks = lp_cli_flag(cli, "allow-fallbacks", false);
    const lp_sync_options o = {.group = lp_cli_text(cli, "group", NULL), .platform = lp_cli_platform(cli)};
    int exit_code = lp_cli_sync_open(&r.sync, cli);
    if (exit_code == 0 && socket == NULL) {
        r.folder = into;
        exit_code = name_file(&r);
    }
    if (exit_code == 0)
        exit_code = bind_memory(&r, socket);
    if (exit_code == 0)
        exit_code = lp_cli_sync_meet(&r.sync, &o, 0);
    if (exit_code == 0)
        exit_code = receive_epochs(&r, epochs, &o);
    lp_plan_close(r.copy);
    lp_destinations_free(r.copy_memory);
    lp_plan_close(r.plan);
    lp_attachment_close(r.attachment);
    lp_destinations_free(r.memory);
    lp_cli_sync_close(&r.sync);
    free(r.path);
    free(r.written);
    return exit_code;
}
