/* SPDX-License-Identifier: Apache-2.0 */
/* Checked CUDA calls, checks that print and end the program, and the loud skip. */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        const cudaError_t cuda_code_ = (cudaError_t)(call);                                                            \
        if (cuda_code_ != cudaSuccess) {                                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(cuda_code_));             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Returns when the device has the bytes: streams that were made not to block do not wait for those that CUDA's own
 * calls go by, and these may return before. */
static inline void fill_device(void *to, int value, size_t bytes)
{
    CUDA(cudaMemset(to, value, bytes));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

/* The same for bytes of the host. */
static inline void put_device(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

/* Exits with 77 and the reason on the first line when there is no usable GPU. */
static inline void need_gpu(void)
{
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count > 0)
        return;
    printf("SKIPPED: no GPU (%s)\n", code != cudaSuccess ? cudaGetErrorString(code) : "no device");
    exit(77);
}

#endif
