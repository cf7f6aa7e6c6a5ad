/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan replay --world`: this process loads one rank, together with the others of its launcher. */
#include "replayer/launch_cli.h"
#include "replayer/replay_cli.h"
#include "replayer/sync.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct together {
    lp_cli *cli;
    lp_launch launch;
    lp_trace *trace;
    lp_checkpoint *checkpoint;
    lp_transport sockets, transport; /* transport: what goes over the sockets, or they */
    lp_sync *sync;
    char device[32]; /* empty: host memory */
    int32_t gpu;
    lp_destinations *memory, *copy_memory;
    lp_plan *plan, *copy; /* copy: of a plan on a device, to be written */
} together;

/* Beside the launcher's own store, unless told otherwise. */
static int find_place(together *t, char host[LP_HOST_MAX], int32_t *port)
{
    const char *place = lp_cli_text(t->cli, "rendezvous", NULL);
    if (place != NULL)
        return lp_launch_address(place, host, port) ? 0
                                                    : lp_cli_usage(t->cli, "'%s' is no HOST:PORT", lp_cli_clean(place));
    if (t->launch.host[0] == '\0' || t->launch.port == 0)
        return lp_cli_usage(t->cli, "%s does not say %s: name it with --rendezvous HOST:PORT", t->launch.by,
                            t->launch.host[0] == '\0' ? "where rank 0 is"
                                                      : "at which port of rank 0's host ranks meet");
    memcpy(host, t->launch.host, LP_HOST_MAX);
    *port = t->launch.port + 1;
    return 0;
}

static int meet(together *t)
{
    const lp_platform *platform = lp_cli_platform(t->cli);
    const lp_sync_options o = {.is_sender = true, .platform = platform};
    char host[LP_HOST_MAX];
    int64_t join_ns, stall_ns;
    lp_error err;
    lp_status status;
    if (!lp_launch_timeouts(t->cli, &join_ns, &stall_ns))
        return LP_EXIT_USAGE;
    if (t->launch.size == 1) {
        status = lp_transport_local(&t->sockets, 1, 1, 0, platform, &err);
    } else {
        lp_tcp_options tcp = {.host = host,
                              .is_sender = true,
                              .is_alone = true,
                              .rank = t->launch.rank,
                              .size = t->launch.size,
                              .join_ns = join_ns,
                              .stall_ns = stall_ns,
                              .platform = platform};
        const int exit_code = find_place(t, host, &tcp.port);
        if (exit_code != 0)
            return exit_code;
        status = lp_transport_tcp(&t->sockets, &tcp, &err);
    }
    t->transport = t->sockets;
    if (status == LP_OK && t->device[0] != '\0') {
        status = lp_transport_nccl(&t->transport, &t->sockets, t->gpu, platform, &err);
        if (status != LP_OK)
            t->transport = t->sockets;
    }
    if (status == LP_OK)
        status = lp_sync_open(&t->sync, &t->transport, t->trace, &o, &err);
    return status == LP_OK ? 0 : lp_cli_fail(t->cli, &err);
}

/* Names come in part from every rank: two of each, and one more. */
static int64_t room_for_parts(const together *t)
{
    const lp_checkpoint *c = lp_trace_checkpoint(t->trace);
    int64_t largest = 0;
    for (int64_t i = 0; i < lp_checkpoint_count(c); i++)
        largest = lp_checkpoint_at(c, i)->bytes > largest ? lp_checkpoint_at(c, i)->bytes : largest;
    return (2 * (int64_t)t->launch.size + 1) * (largest + 512);
}

static lp_status bind_rank(together *t, int64_t staging, int64_t threads, lp_error *err)
{
    const lp_platform *platform = lp_cli_platform(t->cli);
    const int32_t index = lp_trace_scope_find(t->trace, t->launch.rank);
    int64_t count;
    if (index < 0)
        return lp_fail(err, LP_E_UNKNOWN_NAME, "the trace has no rank %d", t->launch.rank);
    const lp_scope *scope = lp_trace_scope_at(t->trace, index);
    const char *device = t->device[0] == '\0' ? NULL : t->device;
    LP_TRY(device == NULL ? lp_destinations_allocate(&t->memory, t->trace, scope, false, platform, err)
                          : lp_destinations_allocate_on(&t->memory, t->trace, scope, device, platform, err));
    const lp_destination_memory *list = lp_destinations_list(t->memory, &count);
    const lp_bind_options o = {.device = device,
                               .staging = staging == 0 && device != NULL ? room_for_parts(t) : staging,
                               .threads = (int32_t)threads,
                               .platform = platform};
    return lp_bind(&t->plan, t->trace, scope, list, count, &o, err);
}

/* The file gets its name when every rank has come so far. */
static lp_status write_file(together *t, const char *folder, lp_error *err)
{
    char name[32], path[4096], fresh[4096];
    lp_error mine = {.code = LP_OK};
    lp_status status = LP_OK;
    lp_rank_file_name(name, t->launch.rank);
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    const int m = snprintf(fresh, sizeof fresh, "%s/%s.new", folder, name);
    struct stat st;
    if (n < 0 || m < 0 || (size_t)m >= sizeof fresh)
        status = lp_fail(&mine, LP_E_ARGUMENT, "the name of the folder is too long");
    else if (stat(path, &st) == 0 && !lp_cli_flag(t->cli, "force", false))
        status = lp_fail(&mine, LP_E_EXISTS, "'%s' exists", path);
    else if (t->device[0] != '\0')
        status = lp_cli_host_copy(t->trace, lp_trace_scope_at(t->trace, lp_trace_scope_find(t->trace, t->launch.rank)),
                                  t->plan, &t->copy_memory, &t->copy, lp_cli_platform(t->cli), &mine);
    if (status == LP_OK)
        status = lp_rank_file_write(t->copy != NULL ? t->copy : t->plan, fresh, true, NULL, NULL, NULL, &mine);
    status = lp_sync_vote(t->sync, status == LP_OK ? NULL : &mine, err);
    if (status == LP_OK && rename(fresh, path) != 0)
        return lp_fail_errno(err, errno, "rename", fresh);
    if (status != LP_OK && m > 0 && (size_t)m < sizeof fresh)
        (void)unlink(fresh);
    return status;
}

static int load(together *t, const char *folder, bool allow_fallbacks)
{
    char written[32], read[32], all[32];
    lp_cold_world_report r;
    lp_error err;
    const lp_session_options o = {.mode = LP_COLD, .allow_fallbacks = allow_fallbacks};
    lp_status status = lp_sync_cold(t->sync, t->plan, t->checkpoint, &o, NULL, &r, &err);
    if (status == LP_OK && folder != NULL)
        status = write_file(t, folder, &err);
    if (status != LP_OK)
        return lp_cli_fail(t->cli, &err);
    const double seconds = (double)r.nanoseconds / 1e9;
    char setup[48] = "";
    if (r.setup_nanoseconds > 0)
        snprintf(setup, sizeof setup, ", %.3f s of that before the first read", (double)r.setup_nanoseconds / 1e9);
    lp_cli_summary(t->cli, "replay: rank %d of %d: %s in %.2f s%s; read %s here, %s by all (%.3f of what they need)",
                   t->launch.rank, t->launch.size, lp_format_bytes(written, r.load.bytes_written), seconds, setup,
                   lp_format_bytes(read, r.bytes_read), lp_format_bytes(all, r.bytes_read_by_all),
                   r.costs.bytes_union > 0 ? (double)r.bytes_read_by_all / (double)r.costs.bytes_union : 1.0);
    return 0;
}

/* "cuda" is the GPU of the local rank. */
static int find_device(together *t)
{
    const char *device = lp_cli_text(t->cli, "device", "cpu");
    if (strcmp(device, "cpu") == 0)
        return 0;
    if (strcmp(device, "cuda") != 0 && strncmp(device, "cuda:", 5) != 0)
        return lp_cli_usage(t->cli, "there is no device '%s': cpu, cuda or cuda:N", lp_cli_clean(device));
    t->gpu = device[4] == ':' ? (int32_t)strtol(device + 5, NULL, 10) : t->launch.local_rank;
    snprintf(t->device, sizeof t->device, "cuda:%d", t->gpu);
    return 0;
}

int lp_cli_replay_world(lp_cli *cli)
{
    together t = {.cli = cli};
    const char *path = lp_cli_text(cli, "checkpoint", NULL), *folder = lp_cli_text(cli, "output", NULL);
    int64_t staging = 0, threads = 0;
    lp_error err;
    if (path == NULL)
        return lp_cli_usage(cli, "where are the weights? name them with --checkpoint PATH");
    if (!lp_cli_bytes(cli, "staging", 0, &staging) || !lp_cli_integer(cli, "threads", 0, 0, 256, &threads))
        return LP_EXIT_USAGE;
    if (lp_cli_text(cli, "tensor", NULL) != NULL || lp_cli_text(cli, "ops", NULL) != NULL ||
        lp_cli_text(cli, "attach", NULL) != NULL || strcmp(lp_cli_text(cli, "mode", "cold"), "cold") != 0)
        return lp_cli_usage(cli, "--world is a cold start of everything");
    int exit_code = lp_launch_environment(cli, &t.launch);
    if (exit_code == 0)
        exit_code = find_device(&t);
    const lp_platform *platform = lp_cli_platform(cli);
    if (exit_code == 0 && folder != NULL && mkdir(folder, 0777) != 0 && errno != EEXIST) {
        (void)lp_fail_errno(&err, errno, "create", folder);
        exit_code = lp_cli_fail(cli, &err);
    }
    if (exit_code == 0 &&
        (lp_trace_open_with(&t.trace, cli->argument[0], platform, &err) != LP_OK ||
         lp_checkpoint_open_with(&t.checkpoint, path, platform, &err) != LP_OK ||
         lp_trace_match(t.trace, t.checkpoint, &err) != LP_OK || bind_rank(&t, staging, threads, &err) != LP_OK))
        exit_code = lp_cli_fail(cli, &err);
    if (exit_code == 0)
        exit_code = meet(&t);
    if (exit_code == 0)
        exit_code = load(&t, folder, lp_cli_flag(cli, "allow-fallbacks", false));
    lp_sync_close(t.sync);
    if (t.transport.context != t.sockets.context)
        lp_transport_close(&t.transport);
    lp_transport_close(&t.sockets);
    lp_plan_close(t.copy);
    lp_destinations_free(t.copy_memory);
    lp_plan_close(t.plan);
    lp_destinations_free(t.memory);
    lp_checkpoint_close(t.checkpoint);
    lp_trace_close(t.trace);
    return exit_code;
}
