/* SPDX-License-Identifier: Apache-2.0 */
/* The moving part of a cold start: readers, lanes and slots. */
#ifndef LOADPLAN_DEVICE_COLD_PIPE_H
#define LOADPLAN_DEVICE_COLD_PIPE_H

#include "replayer/device_cold_batches.h"

typedef struct lp_cold_pipe lp_cold_pipe;

/* Takes all memory that reading needs, and the program. `plan` is bound to the device. */
lp_status lp_cold_pipe_open(lp_cold_pipe **out, const lp_cold_device *device, const lp_plan *plan,
                            const lp_cold_batches *batches, const lp_cold_options *options, lp_cold_report *report,
                            lp_error *err);
void lp_cold_pipe_close(lp_cold_pipe *pipe); /* NULL is allowed; waits for the device */

/* Clears the storages, fills, reads and moves everything; returns when the device has done it. */
lp_status lp_cold_pipe_run(lp_cold_pipe *pipe, const lp_cold_files *files, lp_error *err);

#endif
