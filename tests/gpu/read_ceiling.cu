/* SPDX-License-Identifier: Apache-2.0 */
/* Reads memory as fast as a plain kernel can, the ceiling of whatever only reads; and the clock of the GPU. */
#include "kernels/ceilings.cuh"

static __global__ void read_all(const uint4 *data, size_t count, uint32_t *out)
{
    lp_read_all(data, count, out);
}

static __global__ void count_ticks(uint64_t *out)
{
    lp_count_ticks(out);
}

extern "C" int sm_clock(uint64_t *out, void *stream)
{
    count_ticks<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(out);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int read_ceiling(const void *data, size_t bytes, void *out, void *stream)
{
    read_all<<<132 * 8, 512, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4 *>(data), bytes / 16,
                                                                     static_cast<uint32_t *>(out));
    return static_cast<int>(cudaGetLastError());
}
