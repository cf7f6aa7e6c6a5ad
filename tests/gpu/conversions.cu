/* SPDX-License-Identifier: Apache-2.0 */
/* What the conversions of the kernels give, for test_conversions.c. */
#include "conversions.h"

#include "kernels/number_formats.h"
#include "kernels/prefill_ptx.cuh"
#include "kernels/w4_codes.cuh"

#include <cuda_runtime.h>

namespace
{

constexpr int BLOCKS = 132 * 8, THREADS = 256;

/* Equal, or NaNs of either sign: what is above `largest` without its sign. */
__device__ bool agree(uint32_t seen, uint32_t wanted, uint32_t magnitude, uint32_t largest)
{
    return (wanted & magnitude) > largest ? (seen & magnitude) > largest : seen == wanted;
}

__global__ void narrow_all(unsigned long long *result)
{
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x; i < 1ull << 32; i += step) {
        const float value = __uint_as_float(static_cast<uint32_t>(i));
        const uint32_t e4m3 = lp_e4m3_code(value), bf16 = lp_bf16_code(value);
        const bool fine = agree(prefill::e4m3_pair(value, 1.0f) & 0xff, e4m3, 0x7f, 0x7e) &&
                          agree(prefill::e4m3_pair(1.0f, value) >> 8, e4m3, 0x7f, 0x7e) &&
                          agree(prefill::bf16_pair(value, 1.0f) & 0xffff, bf16, 0x7fff, 0x7f80) &&
                          agree(prefill::bf16_pair(1.0f, value) >> 16, bf16, 0x7fff, 0x7f80);
        if (!fine) {
            atomicAdd(&result[0], 1ull);
            result[1] = i;
        }
    }
}

__host__ __device__ void convert(conversion kind, uint32_t input, uint32_t *out)
{
    const uint32_t word = (input & 15) * 0x11111111u, scale = input >> 4 & 255;
    uint32_t pair[4] = {0, 0, 0, 0};
    if (kind == CONVERT_MX) {
        const uint32_t reference = w4_reference(input >> 12);
        w4_decode_mx(word, w4_magnitudes_low(scale, reference), w4_magnitudes_high(scale, reference), pair[0], pair[1]);
    } else {
        w4_decode_nv(word, kind == CONVERT_NV ? w4_scale_nv(scale & 127) : w4_scale_mx(60 + scale % 121, 120), pair);
    }
    for (int i = 0; i < 4; i++)
        out[i] = pair[i];
}

__global__ void convert_all(uint32_t *out, conversion kind, uint32_t inputs)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < inputs)
        convert(kind, i, out + 4 * static_cast<size_t>(i));
}

} // namespace

extern "C" int conversions_narrow(unsigned long long *result)
{
    narrow_all<<<BLOCKS, THREADS>>>(result);
    return static_cast<int>(cudaGetLastError());
}

extern "C" uint32_t conversions_inputs(conversion kind)
{
    return kind == CONVERT_MX ? 255u << 12 : 256u << 4;
}

extern "C" int conversions_decode(uint32_t *out, conversion kind)
{
    const uint32_t inputs = conversions_inputs(kind);
    convert_all<<<(inputs + THREADS - 1) / THREADS, THREADS>>>(out, kind, inputs);
    return static_cast<int>(cudaGetLastError());
}

extern "C" void conversions_on_host(conversion kind, uint32_t input, uint32_t out[4])
{
    convert(kind, input, out);
}
