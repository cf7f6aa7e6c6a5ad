/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of any strides in the memory of a device, unit by unit: gathered into a stream of bytes, or filled. */
#include "replayer/device_cast.cuh"
#include "replayer/device_session_cuda.cuh"

constexpr int THREADS = 256, BLOCKS_MAX = 1 << 16;

static unsigned blocks_for(int64_t threads)
{
    const int64_t blocks = (threads + THREADS - 1) / THREADS;
    return static_cast<unsigned>(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
}

__device__ __forceinline__ int64_t offset_of(const lp_form &form, int64_t index)
{
    int64_t off = 0;
    for (int d = form.ndim - 1; d >= 0; d--) {
        off += index % form.shape[d] * form.stride[d];
        index /= form.shape[d];
    }
    return off;
}

/* Units, which are elements or whole rows of sub-byte ones, byte by byte where they are of an odd size. */
__global__ void gather_units(char *to, const char *from, const __grid_constant__ lp_form form, int64_t lo, int64_t hi)
{
    const int64_t units = form.bytes / form.unit, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < units; i += step) {
        const int64_t at = i * form.unit;
        if (at + form.unit <= lo || at >= hi)
            continue;
        const char *source = from + offset_of(form, i);
        for (int64_t b = 0; b < form.unit; b++)
            if (at + b >= lo && at + b < hi)
                to[at + b - lo] = source[b];
    }
}

int lp_cuda_gather(void *, void *to, const void *from, const lp_form *form, int64_t lo, int64_t hi, void *stream)
{
    if (form->bytes == 0)
        return 0;
    gather_units<<<blocks_for(form->bytes / form->unit), THREADS, 0, lp_cuda_stream(stream)>>>(
        static_cast<char *>(to), static_cast<const char *>(from), *form, lo, hi);
    return lp_cuda_cleared(cudaGetLastError());
}

__global__ void write_dummy(const __grid_constant__ lp_dummy d)
{
    const int64_t units = d.form.bytes / d.form.unit, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < units; i += step) {
        uint64_t bits = d.element;
        if (!d.is_stated) {
            bits = __float_as_uint(lp_dummy_number(d.seed, static_cast<uint64_t>(i)));
            if (d.dtype != LP_F32)
                bits = cast_bits(bits, LP_F32, d.dtype);
        }
        uint8_t *to = d.data + offset_of(d.form, i);
        for (int64_t b = 0; b < d.form.unit; b++)
            to[b] = static_cast<uint8_t>(bits >> (8 * b));
    }
}

int lp_cuda_dummy(void *, const lp_dummy *values, void *stream)
{
    write_dummy<<<blocks_for(values->form.bytes / values->form.unit), THREADS, 0, lp_cuda_stream(stream)>>>(*values);
    return lp_cuda_cleared(cudaGetLastError());
}
