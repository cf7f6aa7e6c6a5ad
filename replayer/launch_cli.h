/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers (torchrun, mpirun, srun) tell a process, read from its environment. Part of the program: the library
 * never reads the environment. */
#ifndef LOADPLAN_LAUNCH_CLI_H
#define LOADPLAN_LAUNCH_CLI_H

#include "traces/cli.h"

enum { LP_HOST_MAX = 256 };

typedef struct lp_launch {
    const char *by; /* "torchrun", "mpirun", "srun", "options", or "nobody": one rank alone */
    int32_t rank, size, local_rank;
    char host[LP_HOST_MAX]; /* of rank 0; "": not told */
    int32_t port;           /* 0: not told */
} lp_launch;

/* The first launcher that left its variables. 0, or an exit code. */
int lp_launch_environment(lp_cli *cli, lp_launch *out);
/* The same, but options --rank and --of come first. */
int lp_launch_read(lp_cli *cli, lp_launch *out);

/* "node0:7700", "[fe80::1]:7700". False when it is something else. */
bool lp_launch_address(const char *text, char host[LP_HOST_MAX], int32_t *port);

/* Options --join-timeout and --stall-timeout, in nanoseconds. False after a complaint. */
bool lp_launch_timeouts(lp_cli *cli, int64_t *join_ns, int64_t *stall_ns);

#endif
