/* SPDX-License-Identifier: Apache-2.0 */
/* The device calls that ranks need beside NCCL. */
extern "C" { /* headers of C rooms */
#include "replayer/device_change.h"
#include "replayer/device_digest.h"
#include "replayer/nccl_transport.h"
}
#include "replayer/device_cuda.cuh"

#include <cuda_runtime.h>

#include <stdint.h>

/* The context is the number of the device. */
static void *context_of(int32_t device)
{
    return (void *)(intptr_t)device;
}

static const char *error_text(void *context, int code)
{
    (void)context;
    (void)cudaGetLastError(); /* an error that was told is over */
    return cudaGetErrorString((cudaError_t)code);
}

static int enter(void *context)
{
    return cudaSetDevice((int)(intptr_t)context);
}

static int allocate(void *context, int64_t bytes, void **out)
{
    const int code = enter(context);
    return code != 0 ? code : cudaMalloc(out, (size_t)bytes);
}

/* Streams do not wait for the default stream, on which lp_cuda_store and lp_cuda_fetch copy. */
static int stream_open(void *context, bool is_urgent, void **stream)
{
    int least = 0, most = 0, code = enter(context);
    if (code == 0)
        code = cudaDeviceGetStreamPriorityRange(&least, &most);
    return code != 0
               ? code
               : cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking, is_urgent ? most : least);
}

static void stream_close(void *context, void *stream)
{
    (void)context;
    (void)cudaStreamDestroy((cudaStream_t)stream);
}

static int event_open(void *context, void **event)
{
    const int code = enter(context);
    return code != 0 ? code : cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming);
}

static void event_close(void *context, void *event)
{
    (void)context;
    (void)cudaEventDestroy((cudaEvent_t)event);
}

static int event_set(void *context, void *event, void *stream)
{
    (void)context;
    return cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream);
}

static int event_done(void *context, void *event, bool *done)
{
    (void)context;
    const cudaError_t code = cudaEventQuery((cudaEvent_t)event);
    *done = code == cudaSuccess;
    return code == cudaErrorNotReady ? 0 : code;
}

static int stream_wait(void *context, void *stream, void *event)
{
    (void)context;
    return cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}

static int stream_settle(void *context, void *stream)
{
    (void)context;
    return cudaStreamSynchronize((cudaStream_t)stream);
}

static int take_pinned(void *context, int64_t bytes, void **out)
{
    const int code = enter(context);
    return code != 0 ? code : cudaHostAlloc(out, (size_t)bytes, cudaHostAllocDefault);
}

static void give_pinned(void *context, void *memory)
{
    (void)context;
    (void)cudaFreeHost(memory);
}

static int copy(void *context, void *to, const void *from, int64_t bytes, void *stream)
{
    (void)context;
    return cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, (cudaStream_t)stream);
}

static int clear(void *context, void *memory, int64_t bytes, void *stream)
{
    (void)context;
    return cudaMemsetAsync(memory, 0, (size_t)bytes, (cudaStream_t)stream);
}

static int sum(void *context, const struct lp_digest_job *job, const void *data, void *sums, void *stream)
{
    (void)context;
    return lp_device_value_sum(job, data, (uint64_t *)sums, stream);
}

static int compare(void *context, const struct lp_change_compare *work, void *stream)
{
    (void)context;
    return lp_device_change_compare(work, stream);
}

static int table(void *context, const struct lp_change_table *work, void *stream)
{
    (void)context;
    return lp_device_change_table(work, stream);
}

static int apply(void *context, const struct lp_change_apply *work, void *stream)
{
    (void)context;
    return lp_device_change_apply(work, stream);
}

extern "C" lp_status lp_nccl_cuda(lp_nccl_device *out, int32_t device, lp_error *err)
{
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || device < 0 || device >= count)
        return lp_fail(err, LP_E_DEVICE, "there is no device %d: %s", device,
                       code != cudaSuccess ? error_text(NULL, code) : "this host has fewer");
    *out = lp_nccl_device{context_of(device),
                          error_text,
                          enter,
                          allocate,
                          lp_cuda_release,
                          lp_cuda_store,
                          lp_cuda_fetch,
                          stream_open,
                          stream_close,
                          event_open,
                          event_close,
                          event_set,
                          event_done,
                          stream_wait,
                          stream_settle,
                          take_pinned,
                          give_pinned,
                          copy,
                          clear,
                          sum,
                          compare,
                          table,
                          apply};
    return LP_OK;
}
