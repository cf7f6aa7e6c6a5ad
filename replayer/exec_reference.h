/* SPDX-License-Identifier: Apache-2.0 */
/* The reference executor (exec_cpu.c): one thread, run by run, obviously right. The contract is that of exec.h. What
 * sessions use must give the same bytes. */
#ifndef LOADPLAN_EXEC_REFERENCE_H
#define LOADPLAN_EXEC_REFERENCE_H

#include "replayer/exec.h"

int64_t lp_reference_part(const lp_step *step, uint8_t *dst, const uint8_t *src, int64_t src_first, int64_t lo,
                          int64_t hi);
int64_t lp_reference_fill(const lp_step *step, uint8_t *dst);

#endif
