/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a device program on a GPU. C edges of the CUDA files; private to the replayer.
 *
 * A push is a list of items with their base pointers on the device. It costs at most three launches whatever the number
 * of tensors, one for each list of tiles of the program, and one more where not all of the program's items are pushed
 * or their addresses are odd. Calls return 0 or a cudaError_t, for which lp_cuda_text has words; the sticky error is
 * cleared.
 */
#ifndef LOADPLAN_DEVICE_EXEC_H
#define LOADPLAN_DEVICE_EXEC_H

#include "replayer/device_program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lp_device_exec lp_device_exec;
typedef struct lp_device_push lp_device_push;

const char *lp_cuda_text(int code);

/* Uploads the program. It may be freed afterwards. */
int lp_device_exec_open(lp_device_exec **out, const lp_device_program *program);
void lp_device_exec_close(lp_device_exec *exec);          /* NULL is allowed */
int64_t lp_device_exec_bytes(const lp_device_exec *exec); /* device memory that it holds */
/* Runs from now on leave so many processors to others, of rows and words at least: kernels that come to stay for a
 * while, such as those of messages, need whole ones and would wait for the end of a run. */
void lp_device_exec_leave(lp_device_exec *exec, int processors);

/* A prepared push of at most `capacity` items, used on one stream at a time. All device memory is taken here. */
int lp_device_push_open(lp_device_push **out, lp_device_exec *exec, uint32_t capacity);
void lp_device_push_close(lp_device_push *push); /* NULL is allowed; its last run must be complete */

int64_t lp_device_push_bytes(const lp_device_push *push); /* device memory that it holds */

/* Says what to move: ascending items and where each begins in device memory. Waits until the run before has taken its
 * list, uploads, and lists the tiles on `stream`. */
int lp_device_push_set(lp_device_push *push, const uint32_t *item, const void *const *base, uint32_t count,
                       void *stream);

/* Launches of the next run of the push. */
int lp_device_push_launches(const lp_device_push *push);

/* Moves the bytes; can be captured into a CUDA graph and replayed as often as the sources change. */
int lp_device_push_run(lp_device_push *push, void *stream);

#ifdef __cplusplus
}
#endif

#endif
