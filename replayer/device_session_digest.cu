/* SPDX-License-Identifier: Apache-2.0 */
/* Value digests of destinations in the memory of a device: by its kernel, and by the host what that cannot count. */
extern "C" { /* headers of C rooms */
#include "replayer/device_digest.h"
}
#include "replayer/device_session_cuda.cuh"

/* What the kernel cannot count goes through the host. */
static lp_status add_on_host(const lp_plan *plan, uint32_t dest, lp_value_sum *sum, lp_error *err)
{
    const int64_t span = lp_destination_span(&plan->rows->dest[dest]);
    lp_form form;
    lp_destination_form(&plan->rows->dest[dest], &form);
    void *host = lp_allocate(plan->platform.alloc, static_cast<size_t>(span));
    if (host == nullptr)
        return lp_fail_memory(err);
    struct adder {
        lp_value_sum *sum;
        int64_t off;
        static lp_status add(void *context, const void *data, int64_t bytes, lp_error *)
        {
            adder *a = static_cast<adder *>(context);
            lp_value_sum_add(a->sum, a->off, data, bytes);
            a->off += bytes;
            return LP_OK;
        }
    } adder = {sum, 0};
    lp_status status = lp_cuda_fail(
        err, lp_cuda_cleared(cudaMemcpy(host, plan->address[dest], static_cast<size_t>(span), cudaMemcpyDeviceToHost)),
        "copy a tensor to the host");
    if (status == LP_OK)
        status = lp_form_walk(&form, host, plan->platform.alloc, adder::add, &adder, err);
    lp_release(plan->platform.alloc, host);
    return status;
}

static lp_status start_sums(const lp_plan *plan, uint32_t first, uint32_t count, uint64_t *sums, bool *on_host,
                            cudaStream_t stream, lp_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        lp_digest_job job;
        lp_form form;
        lp_destination_form(&plan->rows->dest[first + i], &form);
        const void *data = plan->address[first + i];
        on_host[i] = lp_digest_job_of(&job, &form, reinterpret_cast<uintptr_t>(data), NULL) != LP_OK;
        if (on_host[i] || form.bytes == 0)
            continue;
        LP_TRY(lp_cuda_fail(err, lp_device_value_sum(&job, data, sums + 2 * static_cast<size_t>(i), stream),
                            "digest a tensor"));
    }
    return LP_OK;
}

lp_status lp_cuda_digests(void *, const lp_plan *plan, uint32_t first, uint32_t count, void *sums,
                          uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    const size_t bytes = count * sizeof(lp_value_sum);
    lp_value_sum *host = static_cast<lp_value_sum *>(lp_allocate(alloc, bytes + 1));
    bool *on_host = static_cast<bool *>(lp_allocate(alloc, count + 1));
    lp_status status = host == nullptr || on_host == nullptr ? lp_fail_memory(err) : LP_OK;
    if (status == LP_OK)
        status = lp_cuda_fail(err, lp_cuda_cleared(cudaMemsetAsync(sums, 0, bytes, lp_cuda_stream(stream))),
                              "digest the tensors");
    if (status == LP_OK)
        status = start_sums(plan, first, count, static_cast<uint64_t *>(sums), on_host, lp_cuda_stream(stream), err);
    if (status == LP_OK)
        status = lp_cuda_fail(
            err, lp_cuda_cleared(cudaMemcpyAsync(host, sums, bytes, cudaMemcpyDeviceToHost, lp_cuda_stream(stream))),
            "digest the tensors");
    if (status == LP_OK)
        status =
            lp_cuda_fail(err, lp_cuda_cleared(cudaStreamSynchronize(lp_cuda_stream(stream))), "digest the tensors");
    for (uint32_t i = 0; i < count && status == LP_OK; i++) {
        if (on_host[i]) {
            host[i] = {};
            status = add_on_host(plan, first + i, &host[i], err);
        }
        lp_value_sum_end(&host[i], lp_destination_payload(&plan->rows->dest[first + i]), digest[i]);
    }
    lp_release(alloc, host);
    lp_release(alloc, on_host);
    return status;
}
