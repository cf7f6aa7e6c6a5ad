/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA as the device of a cold start. */
extern "C" { /* headers of C rooms */
#include "replayer/device_cold.h"
#include "replayer/device_digest.h"
#include "replayer/device_program.h"
}
#include "replayer/device_cuda.cuh"
#include "replayer/device_plan.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

typedef struct cuda_context {
    int ordinal;
} cuda_context;

static int enter(void *context)
{
    return lp_cuda_cleared(cudaSetDevice(static_cast<cuda_context *>(context)->ordinal));
}

static int pin(void *, void *host, int64_t bytes)
{
    return lp_cuda_cleared(cudaHostRegister(host, static_cast<size_t>(bytes), cudaHostRegisterDefault));
}

static void unpin(void *, void *host)
{
    lp_cuda_cleared(cudaHostUnregister(host));
}

static int lane_open(void *, void **lane)
{
    return lp_cuda_cleared(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t *>(lane), cudaStreamNonBlocking));
}

static void lane_close(void *, void *lane)
{
    if (lane != nullptr)
        lp_cuda_cleared(cudaStreamDestroy(lp_cuda_stream(lane)));
}

static int lane_wait(void *, void *lane)
{
    return lp_cuda_cleared(cudaStreamSynchronize(lp_cuda_stream(lane)));
}

/* A waiting thread sleeps: there are as many readers as processors. */
static int mark_open(void *, void **mark)
{
    return lp_cuda_cleared(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t *>(mark),
                                                    cudaEventDisableTiming | cudaEventBlockingSync));
}

static void mark_close(void *, void *mark)
{
    if (mark != nullptr)
        lp_cuda_cleared(cudaEventDestroy(static_cast<cudaEvent_t>(mark)));
}

static int mark_set(void *, void *mark, void *lane)
{
    return lp_cuda_cleared(cudaEventRecord(static_cast<cudaEvent_t>(mark), lp_cuda_stream(lane)));
}

static int mark_wait(void *, void *mark)
{
    return lp_cuda_cleared(cudaEventSynchronize(static_cast<cudaEvent_t>(mark)));
}

static int mark_query(void *, void *mark, bool *is_past)
{
    const cudaError_t code = cudaEventQuery(static_cast<cudaEvent_t>(mark));
    *is_past = code == cudaSuccess;
    return code == cudaErrorNotReady ? 0 : lp_cuda_cleared(code);
}

static int lane_follow(void *, void *lane, void *mark)
{
    return lp_cuda_cleared(cudaStreamWaitEvent(lp_cuda_stream(lane), static_cast<cudaEvent_t>(mark), 0));
}

static int clear(void *, void *lane, void *device, int64_t bytes)
{
    return lp_cuda_cleared(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), lp_cuda_stream(lane)));
}

static int copy(void *, void *lane, void *device, int64_t device_pitch, const void *host, int64_t host_pitch,
                int64_t bytes, int64_t rows)
{
    const cudaStream_t stream = lp_cuda_stream(lane);
    if (rows == 1)
        return lp_cuda_cleared(
            cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
    return lp_cuda_cleared(cudaMemcpy2DAsync(device, static_cast<size_t>(device_pitch), host,
                                             static_cast<size_t>(host_pitch), static_cast<size_t>(bytes),
                                             static_cast<size_t>(rows), cudaMemcpyHostToDevice, stream));
}

static lp_status program_open(void *, void **program, const lp_plan *plan, lp_error *err)
{
    return lp_device_plan_open(reinterpret_cast<lp_device_plan **>(program), plan, LP_NEAR_PUSH_ITEMS, err);
}

static void program_close(void *, void *program)
{
    lp_device_plan_close(static_cast<lp_device_plan *>(program));
}

static int64_t program_bytes(void *, const void *program)
{
    return lp_device_plan_bytes(static_cast<const lp_device_plan *>(program));
}

static lp_status program_fill(void *, void *program, void *lane, lp_error *err)
{
    return lp_device_plan_begin(static_cast<lp_device_plan *>(program), lane, err);
}

static lp_status program_push(void *, void *program, const lp_handle *handle, const void *const *data, int64_t count,
                              void *lane, lp_error *err)
{
    lp_device_plan *plan = static_cast<lp_device_plan *>(program);
    LP_TRY(lp_device_plan_set(plan, handle, data, count, lane, err));
    return lp_device_plan_run(plan, lane, err);
}

/* ---- digests ---- */

static bool is_digested(const lp_plan *plan, uint32_t dest)
{
    return (plan->rows->dest[dest].flags & LP_DEST_NO_LOADER) == 0;
}

/* Starts the sums of all destinations; sum: two numbers each, on the device. */
static lp_status start_sums(const lp_plan *plan, uint64_t *sum, lp_error *err)
{
    for (uint32_t i = 0; i < plan->rows->ndest; i++) {
        lp_digest_job job;
        lp_form form;
        if (!is_digested(plan, i))
            continue;
        lp_destination_form(&plan->rows->dest[i], &form);
        LP_TRY(lp_digest_job_of(&job, &form, reinterpret_cast<uintptr_t>(plan->address[i]), err));
        const int code = lp_device_value_sum(&job, plan->address[i], sum + 2 * static_cast<size_t>(i), nullptr);
        if (code != 0)
            return lp_fail(err, LP_E_DEVICE, "cannot digest '%s': %s", plan->rows->dest[i].name, lp_cuda_text(code));
    }
    return LP_OK;
}

static lp_status digests(void *, const lp_plan *plan, uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], lp_error *err)
{
    const size_t bytes = (static_cast<size_t>(plan->rows->ndest) + 1) * sizeof(lp_value_sum);
    const lp_alloc *alloc = plan->platform.alloc;
    lp_status status = LP_OK;
    void *sum = nullptr;
    lp_value_sum *host = static_cast<lp_value_sum *>(lp_allocate(alloc, bytes));
    if (host == nullptr)
        return lp_fail_memory(err);
    int code = lp_cuda_cleared(cudaMalloc(&sum, bytes));
    if (code == 0)
        code = lp_cuda_cleared(cudaMemset(sum, 0, bytes));
    if (code == 0)
        status = start_sums(plan, static_cast<uint64_t *>(sum), err);
    if (code == 0 && status == LP_OK)
        code = lp_cuda_fetch(nullptr, host, sum, static_cast<int64_t>(bytes));
    if (code != 0)
        status = lp_fail(err, LP_E_DEVICE, "cannot digest the tensors: %s", lp_cuda_text(code));
    for (uint32_t i = 0; i < plan->rows->ndest && status == LP_OK; i++)
        if (is_digested(plan, i))
            lp_value_sum_end(&host[i], lp_destination_payload(&plan->rows->dest[i]), digest[i]);
    lp_cuda_release(nullptr, sum);
    lp_release(alloc, host);
    return status;
}

/* ---- life ---- */

extern "C" lp_status lp_cuda_device_open(lp_cold_device *out, const char *name, lp_error *err)
{
    int ordinal = 0;
    LP_TRY(lp_cuda_find(name, &ordinal, err));
    cuda_context *context = static_cast<cuda_context *>(malloc(sizeof *context));
    if (context == nullptr)
        return lp_fail_memory(err);
    context->ordinal = ordinal;
    const int entered = enter(context); /* the caller works on it from here on */
    if (entered != 0) {
        free(context);
        return lp_cuda_fail(err, entered, "enter the device");
    }
    lp_cold_device d = {};
    d.context = context;
    d.error_text = lp_cuda_error_text;
    d.enter = enter;
    d.allocate = lp_cuda_allocate;
    d.release = lp_cuda_release;
    d.pin = pin;
    d.unpin = unpin;
    d.fetch = lp_cuda_fetch;
    d.store = lp_cuda_store;
    d.lane_open = lane_open;
    d.lane_close = lane_close;
    d.lane_wait = lane_wait;
    d.mark_open = mark_open;
    d.mark_close = mark_close;
    d.mark_set = mark_set;
    d.mark_wait = mark_wait;
    d.mark_query = mark_query;
    d.lane_follow = lane_follow;
    d.clear = clear;
    d.copy = copy;
    d.program_open = program_open;
    d.program_close = program_close;
    d.program_bytes = program_bytes;
    d.program_fill = program_fill;
    d.program_push = program_push;
    d.digests = digests;
    *out = d;
    return LP_OK;
}

extern "C" void lp_cuda_device_close(lp_cold_device *device)
{
    free(device->context);
    device->context = nullptr;
}
