/* SPDX-License-Identifier: Apache-2.0 */
/* What `loadplan send` and `loadplan recv` share. Part of the program. */
#ifndef LOADPLAN_SYNC_CLI_H
#define LOADPLAN_SYNC_CLI_H

#include "replayer/launch_cli.h"
#include "replayer/sync.h"
#include "traces/base.h"

typedef struct lp_cli_sync {
    lp_cli *cli;
    lp_launch launch;
    lp_trace *trace;
    lp_transport sockets, transport; /* transport: what is used; the same unless bytes go by NCCL */
    lp_sync *sync;
    int64_t epoch; /* 0: the next one */
    int32_t gpu;   /* of payloads by NCCL */
} lp_cli_sync;

/* Reads launcher and options, opens the trace of argument 0. 0, or an exit code; close in every case. */
int lp_cli_sync_open(lp_cli_sync *s, lp_cli *cli);
/* Meets the others and opens the sync. servers: receiving groups that a sender waits for. */
int lp_cli_sync_meet(lp_cli_sync *s, const lp_sync_options *options, int32_t servers);
/* Meets again, after the senders have ended: waits for new ones as long as it takes. */
int lp_cli_sync_meet_again(lp_cli_sync *s, const lp_sync_options *options);
void lp_cli_sync_close(lp_cli_sync *s);

/* The scope that this process is of: that of its rank, or the only one of the trace. NULL after a complaint. */
const lp_scope *lp_cli_sync_scope(const lp_cli_sync *s);

/* The part behind "ipc:", or NULL. */
const char *lp_cli_ipc_path(const char *place);

/* "0.20 s (345.00 GB/s)" */
const char *lp_cli_rate(char buffer[64], int64_t bytes, int64_t nanoseconds);

int lp_cli_send(lp_cli *cli);
int lp_cli_recv(lp_cli *cli);

#endif
