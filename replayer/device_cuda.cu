/* SPDX-License-Identifier: Apache-2.0 */
#include "replayer/device_cuda.cuh"

#include <stdlib.h>
#include <string.h>

const char *lp_cuda_error_text(void *, int code)
{
    return lp_cuda_text(code);
}

int lp_cuda_allocate(void *, int64_t bytes, void **out)
{
    return lp_cuda_cleared(cudaMalloc(out, static_cast<size_t>(bytes)));
}

void lp_cuda_release(void *, void *memory)
{
    lp_cuda_cleared(cudaFree(memory));
}

int lp_cuda_fetch(void *, void *host, const void *device, int64_t bytes)
{
    return lp_cuda_cleared(cudaMemcpy(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}

int lp_cuda_store(void *, void *device, const void *host, int64_t bytes)
{
    /* From pageable memory it returns before the last bytes are there, and our streams do not wait for its stream. */
    const int code = lp_cuda_cleared(cudaMemcpy(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
    return code != 0 ? code : lp_cuda_cleared(cudaStreamSynchronize(cudaStreamLegacy));
}

bool lp_cuda_ordinal(const char *name, int *ordinal)
{
    char *end = nullptr;
    const bool has_digits = strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9';
    const long number = has_digits ? strtol(name + 5, &end, 10) : strcmp(name, "cuda") == 0 ? 0 : -1;
    if (number < 0 || number > 1023 || (end != nullptr && *end != '\0'))
        return false;
    *ordinal = static_cast<int>(number);
    return true;
}

lp_status lp_cuda_find(const char *name, int *ordinal, lp_error *err)
{
    int count = 0, major = 0, driver = 0, before = 0;
    if (!lp_cuda_ordinal(name, ordinal))
        return lp_fail(err, LP_E_DEVICE, "cannot use device '%s': devices are named cpu, cuda:0, cuda:1, ...", name);
    cudaError_t code = cudaDriverGetVersion(&driver);
    if (code == cudaSuccess && driver == 0)
        return lp_fail(err, LP_E_DEVICE, "cannot use device '%s': no NVIDIA driver is installed", name);
    if (code == cudaSuccess)
        code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && *ordinal >= count)
        code = count == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice;
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, *ordinal);
    if (code == cudaSuccess)
        code = cudaGetDevice(&before);
    if (code == cudaSuccess)
        code = cudaSetDevice(*ordinal); /* makes the context */
    if (code == cudaSuccess)
        code = cudaSetDevice(before);
    if (lp_cuda_cleared(code) != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot use device '%s': %s", name, lp_cuda_text(static_cast<int>(code)));
    if (major != 9)
        return lp_fail(err, LP_E_DEVICE, "cannot use device '%s': its compute capability is %d, this build is for 9.0",
                       name, major);
    return LP_OK;
}
