/* SPDX-License-Identifier: Apache-2.0 */
/* What `loadplan replay` does rank by rank (replay_rank_cli.c), and what its summary (replay_cli.c) is told of it. Part
 * of the program. */
#ifndef LOADPLAN_REPLAY_RANK_H
#define LOADPLAN_REPLAY_RANK_H

#include "replayer/replay_cli.h"

/* Totals over ranks, for the summary. */
typedef struct lp_replay_totals {
    lp_cli *cli;
    int64_t read, written, ranges, names, tensors, nanoseconds, differing;
    int64_t file_nanoseconds;                    /* that writing rank files took besides */
    int64_t needed, files, files_direct, pinned; /* of loads into device memory */
    int32_t readers;
    double link;
    bool has_kept, is_attached;
} lp_replay_totals;

/* Loads a rank, or attaches to it, and adds it to the totals. 0, or an exit code having complained. */
int lp_cli_replay_rank(lp_cli_job *job, int32_t rank, lp_replay_totals *t);

#endif
