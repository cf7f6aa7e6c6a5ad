/* SPDX-License-Identifier: Apache-2.0 */
/* What the files share that call CUDA from the host: errors, streams, memory, and devices by their names. */
#ifndef LOADPLAN_DEVICE_CUDA_CUH
#define LOADPLAN_DEVICE_CUDA_CUH

extern "C" { /* headers of C rooms */
#include "replayer/device_exec.h"
#include "traces/base.h"
}

#include <cuda_runtime_api.h>

/* An error that a caller hears of is over: CUDA would report it again at the next call. */
static inline int lp_cuda_cleared(cudaError_t code)
{
    if (code != cudaSuccess)
        cudaGetLastError();
    return static_cast<int>(code);
}

/* "cannot VERB: ..." unless the code is 0. */
static inline lp_status lp_cuda_fail(lp_error *err, int code, const char *verb)
{
    return code == 0 ? LP_OK : lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, lp_cuda_text(code));
}

static inline cudaStream_t lp_cuda_stream(void *stream)
{
    return static_cast<cudaStream_t>(stream);
}

/* For tables of device calls; the context is not looked at. */
const char *lp_cuda_error_text(void *context, int code);
int lp_cuda_allocate(void *context, int64_t bytes, void **out);
void lp_cuda_release(void *context, void *memory);
/* Both return when the bytes are there, for whichever stream. */
int lp_cuda_fetch(void *context, void *host, const void *device, int64_t bytes);
int lp_cuda_store(void *context, void *device, const void *host, int64_t bytes);

/* "cuda" is 0, "cuda:3" is 3; false for anything else. */
bool lp_cuda_ordinal(const char *name, int *ordinal);

/* The device of that name: that it is there and that this build runs on it. The current device stays what it was. */
lp_status lp_cuda_find(const char *name, int *ordinal, lp_error *err);

#endif
