/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that may start while the kernel before them still runs, and their errors. */
#ifndef LOADPLAN_MOE_LAUNCH_CUH
#define LOADPLAN_MOE_LAUNCH_CUH

extern "C" { /* a header of a C room */
#include "traces/base.h"
}

#include <cuda_runtime.h>

/* With `early`, a programmatic dependent launch: the kernel must call moe_wait_for_inputs before it reads what the
 * kernel before it wrote. */
struct moe_launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attribute;
    moe_launch(int blocks, int threads, size_t shared_bytes, void *stream, bool early) : config(), attribute()
    {
        config.gridDim = dim3(static_cast<unsigned>(blocks));
        config.blockDim = dim3(static_cast<unsigned>(threads));
        config.dynamicSmemBytes = shared_bytes;
        config.stream = static_cast<cudaStream_t>(stream);
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        config.attrs = &attribute;
        config.numAttrs = early ? 1 : 0;
    }
    moe_launch(const moe_launch &) = delete;
};

__device__ __forceinline__ void moe_wait_for_inputs()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* Lets the next kernel start now, if it was launched early; it still waits for the end of this one. */
__device__ __forceinline__ void moe_let_next_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

inline lp_status moe_launched(cudaError_t code, const char *what, lp_error *err)
{
    if (code == cudaSuccess)
        return LP_OK;
    (void)cudaGetLastError(); /* the error is reported here; it must not surface in a later call */
    return lp_fail(err, LP_E_DEVICE, "cannot launch %s: %s", what, cudaGetErrorString(code));
}

/* Multiprocessors of the current device, which must be the GPU that these kernels are built for. */
inline lp_status moe_device_blocks(int *blocks, lp_error *err)
{
    int device, major, minor;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(blocks, cudaDevAttrMultiProcessorCount, device);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        return lp_fail(err, LP_E_DEVICE, "cannot read the GPU's properties: %s", cudaGetErrorString(code));
    }
    if (major != 9 || minor != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "the GPU has compute capability %d.%d, the kernels need 9.0", major,
                       minor);
    return LP_OK;
}

#endif
