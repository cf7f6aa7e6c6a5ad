/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the CUDA table of sessions (lp_device_calls in device_session.h) that have files of their own. The context
 * is not looked at. */
#ifndef LOADPLAN_DEVICE_SESSION_CUDA_CUH
#define LOADPLAN_DEVICE_SESSION_CUDA_CUH

extern "C" { /* headers of C rooms */
#include "replayer/device_session.h"
}
#include "replayer/device_cuda.cuh"

/* device_session_strided.cu */
int lp_cuda_gather(void *context, void *to, const void *from, const lp_form *form, int64_t lo, int64_t hi,
                   void *stream);
int lp_cuda_dummy(void *context, const lp_dummy *values, void *stream);

/* device_session_digest.cu */
lp_status lp_cuda_digests(void *context, const lp_plan *plan, uint32_t first, uint32_t count, void *sums,
                          uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err);

#endif
