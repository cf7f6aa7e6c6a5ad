/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA as the device that experts move in. */
extern "C" { /* headers of C rooms */
#include "replayer/expert_device.h"
}

#include <cuda_runtime_api.h>

static int move(void *, void *lane, void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t bytes,
                int64_t rows)
{
    const cudaStream_t stream = static_cast<cudaStream_t>(lane);
    const size_t width = static_cast<size_t>(bytes);
    cudaError_t code;
    if (rows == 1 || (to_pitch == bytes && from_pitch == bytes))
        code = cudaMemcpyAsync(to, from, width * static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream);
    else
        code = cudaMemcpy2DAsync(to, static_cast<size_t>(to_pitch), from, static_cast<size_t>(from_pitch), width,
                                 static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream);
    if (code != cudaSuccess)
        cudaGetLastError();
    return static_cast<int>(code);
}

extern "C" lp_status lp_expert_device_open(lp_expert_device *out, const char *name, lp_error *err)
{
    *out = {};
    LP_TRY(lp_cuda_device_open(&out->table, name, err));
    out->move = move;
    return LP_OK;
}

extern "C" void lp_expert_device_close(lp_expert_device *device)
{
    lp_cuda_device_close(&device->table);
    *device = {};
}
