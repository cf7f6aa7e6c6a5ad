/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `loadplan explain` share. Part of the program. */
#ifndef LOADPLAN_EXPLAIN_CLI_H
#define LOADPLAN_EXPLAIN_CLI_H

#include "replayer/replay_cli.h"

/* Bytes a second, for estimates. */
typedef struct lp_cli_rates {
    int64_t disk;   /* of the disk that a checkpoint lies on */
    int64_t link;   /* from memory of the host to the device */
    int64_t device; /* of bytes that a reload writes on the device */
} lp_cli_rates;

/* The rates of --rate, --disk-rate and --link-rate, else of the settings (rate.NAME), else the defaults. 0, or an exit
 * code after a complaint. */
int lp_cli_rates_read(lp_cli_rates *rates, lp_cli *cli);
void lp_cli_rates_default(lp_cli_rates *rates);

/* "0.38 s", "38 ms": how long `bytes` take at a rate. */
const char *lp_cli_duration(char buffer[32], int64_t bytes, int64_t rate);
int64_t lp_cli_duration_ns(int64_t bytes, int64_t rate);

/* explain_tensor_cli.c: one destination and its sources, as text or as a picture. 0, or an exit code. */
int lp_cli_explain_tensor(lp_cli_job *job, const char *name);

/* explain_order_cli.c: the order of pushes of every rank of the job. 0, or an exit code. */
int lp_cli_explain_order(const lp_cli_job *job, bool is_json);

#endif
