/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan send`: weights from a checkpoint folder, or from the memory of a trainer's rank. */
#include "replayer/sync_cli.h"

#include <inttypes.h>
#include <stdlib.h>

/* What an epoch is sent from. */
typedef struct sender {
    lp_cli_sync sync;
    lp_sync_source source;
    lp_checkpoint *checkpoint;
    lp_destinations *memory;
    lp_attachment *attachment;
    lp_plan *plan;
    int64_t retries;
} sender;

static void close_source(sender *s)
{
    lp_sync_source_close(&s->source);
    lp_plan_close(s->plan);
    lp_attachment_close(s->attachment);
    lp_destinations_free(s->memory);
    lp_checkpoint_close(s->checkpoint);
    s->plan = NULL;
    s->attachment = NULL;
    s->memory = NULL;
    s->checkpoint = NULL;
}

/* Of --device: NULL where memory is the host's. */
static const char *device_of(const sender *s)
{
    const char *device = lp_cli_text(s->sync.cli, "device", "cpu");
    return strcmp(device, "cpu") == 0 ? NULL : device;
}

static lp_status bind(sender *s, const lp_scope *scope, const lp_destination_memory *list, int64_t count, lp_error *err)
{
    const lp_bind_options o = {.device = device_of(s), .platform = lp_cli_platform(s->sync.cli)};
    return lp_bind(&s->plan, s->sync.trace, scope, list, count, &o, err);
}

/* The own rank, loaded into memory as a trainer's loader would have done. */
static lp_status load_shard(sender *s, const lp_scope *scope, lp_error *err)
{
    const lp_platform *platform = lp_cli_platform(s->sync.cli);
    const char *device = device_of(s);
    lp_session *session = NULL;
    int64_t count;
    LP_TRY(device == NULL ? lp_destinations_allocate(&s->memory, s->sync.trace, scope, false, platform, err)
                          : lp_destinations_allocate_on(&s->memory, s->sync.trace, scope, device, platform, err));
    const lp_destination_memory *list = lp_destinations_list(s->memory, &count);
    LP_TRY(bind(s, scope, list, count, err));
    LP_TRY(lp_begin(&session, s->plan, &(lp_session_options){.mode = LP_COLD, .allow_fallbacks = true}, err));
    lp_status status = lp_push_checkpoint(session, s->checkpoint, err);
    if (status == LP_OK)
        status = lp_finish(session, NULL, err);
    lp_session_close(session);
    return status;
}

static lp_status attach(sender *s, const char *path, const lp_scope *scope, lp_error *err)
{
    const lp_platform *platform = lp_cli_platform(s->sync.cli);
    int64_t count;
    const lp_attach_options o = {.device = device_of(s), .platform = platform};
    LP_TRY(lp_attach(&s->attachment, path, s->sync.trace, scope, &o, err));
    const lp_destination_memory *list = lp_attachment_list(s->attachment, &count);
    return bind(s, scope, list, count, err);
}

/* 0, or an exit code. */
static int open_source(sender *s, const char *from)
{
    const lp_platform *platform = lp_cli_platform(s->sync.cli);
    const char *socket = lp_cli_ipc_path(from);
    const bool is_plan = socket != NULL || lp_cli_flag(s->sync.cli, "sharded", false);
    const lp_scope *scope = is_plan ? lp_cli_sync_scope(&s->sync) : NULL;
    lp_error err;
    lp_status status = LP_OK;
    if (is_plan && scope == NULL)
        return LP_EXIT_USAGE;
    if (socket != NULL) {
        status = attach(s, socket, scope, &err);
    } else {
        status = lp_checkpoint_open_with(&s->checkpoint, from, platform, &err);
        if (status == LP_OK)
            status = lp_trace_match(s->sync.trace, s->checkpoint, &err);
        if (status == LP_OK && is_plan)
            status = load_shard(s, scope, &err);
    }
    if (status == LP_OK)
        status = is_plan ? lp_sync_source_plan(&s->source, s->plan, &err)
                         : lp_sync_source_checkpoint(&s->source, s->checkpoint, s->sync.trace, platform, &err);
    return status == LP_OK ? 0 : lp_cli_fail(s->sync.cli, &err);
}

static void tell(const sender *s, const lp_sync_report *r)
{
    char bytes[32], rate[64], memory[32], shadow[32] = "", content[17] = "";
    static const uint8_t none[32] = {0};
    if (memcmp(r->content, none, sizeof none) != 0)
        lp_format_hex(content, r->content, 8);
    if (r->shadow_bytes > 0)
        lp_format_bytes(shadow, r->shadow_bytes);
    lp_cli_summary(s->sync.cli, "send: epoch %" PRId64 ", %s: %s in %s; buckets %s%s%s%s%s", r->epoch,
                   lp_sync_mode_name(r->mode), lp_format_bytes(bytes, r->bytes_moved),
                   lp_cli_rate(rate, r->bytes_moved, r->nanoseconds), lp_format_bytes(memory, r->buffer_bytes),
                   shadow[0] == '\0' ? "" : ", shadow ", shadow, content[0] == '\0' ? "" : "; content ", content);
}

static int send_epoch(sender *s, const char *from)
{
    lp_error err;
    lp_sync_report report;
    lp_status status;
    const int exit_code = open_source(s, from);
    if (exit_code != 0) {
        close_source(s);
        return exit_code;
    }
    for (int64_t tries = 0;; tries++) {
        status = lp_sync_send(s->sync.sync, &s->source, s->sync.epoch, &report, &err);
        if (status == LP_OK) /* receivers may have files to write */
            status = lp_sync_vote(s->sync.sync, NULL, &err);
        if (status != LP_E_PEER || tries >= s->retries)
            break;
        lp_cli_warn(s->sync.cli, "epoch %" PRId64 " failed, trying again: %s", report.epoch, err.text);
    }
    close_source(s);
    if (status != LP_OK)
        return lp_cli_fail(s->sync.cli, &err);
    tell(s, &report);
    return 0;
}

/* Folders from standard input, one a line, one an epoch. */
static int send_lines(sender *s)
{
    char *line = NULL;
    size_t room = 0;
    int exit_code = 0;
    ssize_t bytes;
    while (exit_code == 0 && (bytes = getline(&line, &room, stdin)) > 0) {
        if (line[bytes - 1] == '\n')
            line[bytes - 1] = '\0';
        if (line[0] != '\0')
            exit_code = send_epoch(s, line);
    }
    free(line);
    return exit_code;
}

static lp_sync_mode mode_of(const char *text)
{
    return text[0] == 's' ? LP_SYNC_SLICED : text[0] == 'd' ? LP_SYNC_DELTA : LP_SYNC_PACKED;
}

int lp_cli_send(lp_cli *cli)
{
    const bool is_sliced = lp_cli_flag(cli, "sliced", false);
    const char *mode = lp_cli_text(cli, "mode", is_sliced ? "sliced" : "packed");
    const char *from = lp_cli_text(cli, "from", NULL);
    sender s = {.plan = NULL};
    lp_sync_options o = {.is_sender = true,
                         .mode = mode_of(mode),
                         .no_content_id = !lp_cli_flag(cli, "content-id", true),
                         .platform = lp_cli_platform(cli)};
    int64_t servers = 1;
    if (from == NULL)
        return lp_cli_usage(cli, "what shall be sent? name it with --from PLACE");
    if (is_sliced && o.mode != LP_SYNC_SLICED)
        return lp_cli_usage(cli, "--sliced is --mode sliced, not --mode %s", mode);
    if (lp_cli_text(cli, "device", NULL) != NULL && lp_cli_ipc_path(from) == NULL &&
        !lp_cli_flag(cli, "sharded", false))
        return lp_cli_usage(cli, "--device goes with ipc:SOCKET or --sharded: folders are read by the host");
    if (!lp_cli_bytes(cli, "bucket", 64 << 20, &o.bucket) || !lp_cli_integer(cli, "servers", 1, 1, 1 << 20, &servers) ||
        !lp_cli_integer(cli, "retries", 0, 0, 1 << 20, &s.retries))
        return LP_EXIT_USAGE;
    int exit_code = lp_cli_sync_open(&s.sync, cli);
    if (exit_code == 0)
        exit_code = lp_cli_sync_meet(&s.sync, &o, (int32_t)servers);
    if (exit_code == 0)
        exit_code = strcmp(from, "-") == 0 ? send_lines(&s) : send_epoch(&s, from);
    lp_cli_sync_close(&s.sync);
    return exit_code;
}
