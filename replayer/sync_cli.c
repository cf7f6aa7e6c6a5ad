/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that move weights between ranks, and what they share. */
#include "replayer/sync_cli.h"

#include "replayer/nccl_transport.h"

#include <stdlib.h>

static const lp_option send_options[] = {
    {"from", 0, "PLACE", NULL,
     "a checkpoint folder, ipc:SOCKET of a served rank, or - for folders from standard input, one an epoch"},
    {"rendezvous", 0, "HOST:PORT", NULL, "where both sides meet: this host's address at sender 0"},
    {"mode", 0, "MODE", "packed|sliced|delta",
     "what travels: all, what each rank needs, what changed (default packed)"},
    {"sliced", 0, NULL, NULL, "short for --mode sliced"},
    {"sharded", 0, NULL, NULL, "load the own rank of TRACE first, as a trainer does, and send only what it holds"},
    {"device", 0, "DEVICE", NULL,
     "where the memory behind ipc:SOCKET lies, or that of --sharded is taken: cpu (default) or cuda:N"},
    {"bucket", 0, "BYTES", NULL, "payload of a frame; each side takes two (default 64MiB)"},
    {"servers", 0, "N", NULL, "groups of receivers to wait for (default 1)"},
    {"epoch", 0, "N", NULL, "number of the epoch, higher than all before (default: the next one)"},
    {"retries", 0, "N", NULL, "how often an epoch that failed elsewhere is sent again (default 0)"},
    {"content-id", 0, NULL, NULL, "read everything once more, before, for the content id (default yes)"},
    {"transport", 0, "KIND", "tcp|nccl", "what carries payloads (default tcp)"},
    {"gpu", 0, "N", NULL,
     "of --transport nccl: the GPU that they go through (default: that of --device, else the local rank)"},
    {"join-timeout", 0, "SECONDS", NULL, "how long to wait for ranks that are late (default 300)"},
    {"stall-timeout", 0, "SECONDS", NULL, "how long nothing may move before a rank is named (default 60)"},
    {"rank", 0, "N", NULL, "rank of this process, where no launcher says it"},
    {"of", 0, "N", NULL, "number of senders, likewise"},
};

static const lp_option recv_options[] = {
    {"into", 0, "PLACE", NULL, "a folder for rank files, or ipc:SOCKET of a served rank"},
    {"device", 0, "DEVICE", NULL,
     "where the memory behind ipc:SOCKET lies, or that of rank files is taken: cpu (default) or cuda:N"},
    {"rendezvous", 0, "HOST:PORT", NULL, "where both sides meet: the address of sender 0"},
    {"group", 0, "NAME", NULL, "name of the server that these ranks make up (default server)"},
    {"mode", 0, "MODE", "cold|direct|layerwise", "how to load (default cold; direct with ipc)"},
    {"epochs", 0, "N", NULL, "epochs to take part in; 0: until the senders end (default 1)"},
    {"stay", 0, NULL, NULL, "with --epochs 0: when the senders have ended, or are lost, wait for new ones"},
    {"epoch", 0, "N", NULL, "demand this number (default: any)"},
    {"allow-fallbacks", 0, NULL, NULL, "leave out names that the trace cannot load"},
    {"transport", 0, "KIND", "tcp|nccl", "what carries payloads (default tcp)"},
    {"gpu", 0, "N", NULL,
     "of --transport nccl: the GPU that they go through (default: that of --device, else the local rank)"},
    {"staging", 0, "BYTES", NULL,
     "most memory to stage in, of the host or of --device (default: as much as needed; twice the largest name)"},
    {"threads", 'j', "N", NULL, "threads that move (default 0: one for each physical core)"},
    {"join-timeout", 0, "SECONDS", NULL, "how long to look for sender 0 (default 300)"},
    {"stall-timeout", 0, "SECONDS", NULL, "how long nothing may move before a rank is named (default 60)"},
    {"rank", 0, "N", NULL, "rank of this process, where no launcher says it"},
    {"of", 0, "N", NULL, "number of receivers in the group, likewise"},
};

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

const lp_command lp_sync_commands[] = {
    {.name = "send",
     .arguments = "TRACE --from PLACE",
     .summary = "send weights to servers, epoch by epoch",
     .details =
         "One process for each sending rank; sender 0 is where all meet. TRACE is the servers' trace, or the trainer's "
         "own with --sharded and ipc sockets: then each sender gives what its rank holds. All ranks agree on names, "
         "plans, content and epoch before the first byte, and none reports success before all have verified what they "
         "got.\n\n"
         "Exit codes: 0 every rank has the weights; 3 ranks disagree or data was damaged; 4 a rank failed, is gone or "
         "stalled, and is named; 5 the trace is of another checkpoint.\n\n"
         "Example:  torchrun --nproc-per-node 8 --no-python loadplan send v4.lpt --from ./step-200 --rendezvous "
         "node0:7700",
     .options = send_options,
     .option_count = COUNT(send_options),
     .least = 1,
     .most = 1,
     .run = lp_cli_send},
    {.name = "recv",
     .arguments = "TRACE --into PLACE",
     .summary = "receive weights from senders",
     .details = "One process for each rank of TRACE. With --epochs 0 it stays until the senders end, and with --stay "
                "until it is killed: an epoch that fails is told and the next one awaited, and a rank that was "
                "restarted is brought up with everything while the others "
                "go on. A rank file appears only when every rank has the epoch.\n\n"
                "Exit codes: 0 loaded; 1 incomplete, or a check of loaded values failed; 3 ranks disagree or data was "
                "damaged; "
                "4 a rank failed, is gone or stalled, and is named.\n\n"
                "Example:  torchrun --nproc-per-node 8 --no-python loadplan recv v4.lpt --into ipc:/run/engine.sock "
                "--rendezvous node0:7700",
     .options = recv_options,
     .option_count = COUNT(recv_options),
     .least = 1,
     .most = 1,
     .run = lp_cli_recv},
};

const int lp_sync_command_count = COUNT(lp_sync_commands);

/* ---- what both share ---- */

int lp_cli_sync_open(lp_cli_sync *s, lp_cli *cli)
{
    lp_error err;
    *s = (lp_cli_sync){.cli = cli};
    const int exit_code = lp_launch_read(cli, &s->launch);
    if (exit_code != 0)
        return exit_code;
    const char *device = lp_cli_text(cli, "device", "cpu");
    int64_t gpu;
    const int64_t usual = strncmp(device, "cuda:", 5) == 0 ? strtol(device + 5, NULL, 10) : s->launch.local_rank;
    if (!lp_cli_integer(cli, "epoch", 0, 1, INT64_MAX - 1, &s->epoch) ||
        !lp_cli_integer(cli, "gpu", usual, 0, 1023, &gpu))
        return LP_EXIT_USAGE;
    s->gpu = (int32_t)gpu;
    if (lp_trace_open_with(&s->trace, cli->argument[0], lp_cli_platform(cli), &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    return 0;
}

static int read_meeting(lp_cli_sync *s, lp_tcp_options *tcp, char host[LP_HOST_MAX])
{
    const char *place = lp_cli_text(s->cli, "rendezvous", NULL);
    if (place == NULL)
        return lp_cli_usage(s->cli, "where do both sides meet? name it with --rendezvous HOST:PORT");
    if (!lp_launch_address(place, host, &tcp->port))
        return lp_cli_usage(s->cli, "'%s' is no HOST:PORT", lp_cli_clean(place));
    if (!lp_launch_timeouts(s->cli, &tcp->join_ns, &tcp->stall_ns))
        return LP_EXIT_USAGE;
    tcp->host = host;
    return 0;
}

/* Sockets, and what goes over them. */
static lp_status connect_ranks(lp_cli_sync *s, const lp_tcp_options *tcp, lp_error *err)
{
    const lp_platform *platform = lp_cli_platform(s->cli);
    LP_TRY(lp_transport_tcp(&s->sockets, tcp, err));
    s->transport = s->sockets;
    if (strcmp(lp_cli_text(s->cli, "transport", "tcp"), "nccl") != 0)
        return LP_OK;
    const lp_status status = lp_transport_nccl(&s->transport, &s->sockets, s->gpu, platform, err);
    if (status != LP_OK)
        s->transport = s->sockets;
    return status;
}

static void disconnect(lp_cli_sync *s)
{
    if (s->transport.context != s->sockets.context)
        lp_transport_close(&s->transport);
    lp_transport_close(&s->sockets);
    s->transport = s->sockets;
}

static lp_tcp_options tcp_options(const lp_cli_sync *s, const lp_sync_options *options, int32_t servers)
{
    return (lp_tcp_options){.is_sender = options->is_sender,
                            .group = options->group,
                            .rank = s->launch.rank,
                            .size = s->launch.size,
                            .servers = servers,
                            .platform = options->platform};
}

int lp_cli_sync_meet(lp_cli_sync *s, const lp_sync_options *options, int32_t servers)
{
    char host[LP_HOST_MAX];
    lp_error err;
    lp_tcp_options tcp = tcp_options(s, options, servers);
    const int exit_code = read_meeting(s, &tcp, host);
    if (exit_code != 0)
        return exit_code;
    if (connect_ranks(s, &tcp, &err) != LP_OK ||
        lp_sync_open(&s->sync, &s->transport, s->trace, options, &err) != LP_OK)
        return lp_cli_fail(s->cli, &err);
    return 0;
}

int lp_cli_sync_meet_again(lp_cli_sync *s, const lp_sync_options *options)
{
    char host[LP_HOST_MAX];
    lp_error err;
    lp_tcp_options tcp = tcp_options(s, options, 0);
    const int exit_code = read_meeting(s, &tcp, host);
    if (exit_code != 0)
        return exit_code;
    lp_sync_detach(s->sync);
    disconnect(s);
    lp_status status;
    do
        status = connect_ranks(s, &tcp, &err);
    while (status == LP_E_PEER);
    if (status != LP_OK)
        return lp_cli_fail(s->cli, &err);
    lp_sync_attach(s->sync, &s->transport);
    return 0;
}

void lp_cli_sync_close(lp_cli_sync *s)
{
    lp_sync_close(s->sync);
    disconnect(s);
    lp_trace_close(s->trace);
    *s = (lp_cli_sync){.cli = s->cli};
}

const lp_scope *lp_cli_sync_scope(const lp_cli_sync *s)
{
    const int32_t index =
        lp_trace_scope_count(s->trace) == 1 && s->launch.size == 1 ? 0 : lp_trace_scope_find(s->trace, s->launch.rank);
    if (index < 0) {
        (void)lp_cli_usage(s->cli, "the trace has no rank %d", s->launch.rank);
        return NULL;
    }
    const lp_scope *scope = lp_trace_scope_at(s->trace, index);
    if (lp_scope_world(scope) != s->launch.size && lp_trace_scope_count(s->trace) != 1) {
        (void)lp_cli_usage(s->cli, "the trace is for %d ranks, this is one of %d", lp_scope_world(scope),
                           s->launch.size);
        return NULL;
    }
    return scope;
}

const char *lp_cli_ipc_path(const char *place)
{
    return strncmp(place, "ipc:", 4) == 0 ? place + 4 : NULL;
}

const char *lp_cli_rate(char buffer[64], int64_t bytes, int64_t nanoseconds)
{
    const double seconds = (double)nanoseconds / 1e9;
    snprintf(buffer, 64, "%.2f s (%.2f GB/s)", seconds, seconds > 0 ? (double)bytes / 1e9 / seconds : 0.0);
    return buffer;
}
