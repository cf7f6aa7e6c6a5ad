/* SPDX-License-Identifier: Apache-2.0 */
/* Reads memory as fast as a plain kernel can: the ceiling of whatever only reads. */
#include <cuda_runtime.h>
#include <stdint.h>

static __global__ void read_all(const uint4 *data, size_t count, uint32_t *out)
{
    const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
    uint32_t all = 0;
    size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = data[i + j * stride];
#pragma unroll
        for (int j = 0; j < 4; j++)
            all ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < count; i += stride)
        all ^= data[i].x;
    if (all == 0x9e3779b9u) /* so that the loads are not dropped */
        *out = all;
}

extern "C" int read_ceiling(const void *data, size_t bytes, void *out, void *stream)
{
    read_all<<<132 * 8, 512, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4 *>(data), bytes / 16,
                                                                     static_cast<uint32_t *>(out));
    return static_cast<int>(cudaGetLastError());
}
