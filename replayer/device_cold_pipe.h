/* SPDX-License-Identifier: Apache-2.0 */
/* The moving part of a cold start: readers, lanes and slots. */
#ifndef LOADPLAN_DEVICE_COLD_PIPE_H
#define LOADPLAN_DEVICE_COLD_PIPE_H

#include "replayer/device_cold_batches.h"
#include "replayer/device_cold_ring.h"

/* ---- device_cold_program.c: the program, made while other things are done ---- */

typedef struct lp_cold_program lp_cold_program;

lp_status lp_cold_program_start(lp_cold_program **out, const lp_cold_device *device, const lp_plan *plan,
                                lp_error *err);
/* Until it is made; the errors of making it. */
lp_status lp_cold_program_wait(lp_cold_program *p, void **program, lp_error *err);
void lp_cold_program_close(lp_cold_program *p); /* NULL is allowed; what it launched must be complete */

/* ---- device_cold_clear.c ---- */

/* Zeroes, on a lane, the storages of which the plan's steps and fills do not write every byte. */
lp_status lp_cold_clear(const lp_cold_device *device, const lp_plan *plan, void *lane, lp_error *err);

/* ---- device_cold_pipe.c ---- */

typedef struct lp_cold_pipe lp_cold_pipe;

/* The ring fits the batches, which may be the first ones only; `plan` is bound to the device. */
lp_status lp_cold_pipe_open(lp_cold_pipe **out, lp_cold_ring *ring, const lp_plan *plan, const lp_cold_batches *batches,
                            const lp_cold_options *options, lp_error *err);
void lp_cold_pipe_close(lp_cold_pipe *pipe); /* NULL is allowed; waits for the device */

/* Clears what is not written, fills, reads and moves everything; returns when the device has done it. When the readers
 * have been started, the batches that are still to be planned are, into *rest, which outlives the pipe, and the program
 * is waited for. */
lp_status lp_cold_pipe_run(lp_cold_pipe *pipe, const lp_cold_files *files, lp_cold_program *program,
                           lp_cold_batches *rest, lp_error *err);
int32_t lp_cold_pipe_queues(const lp_cold_pipe *pipe); /* readers that had one */

#endif
