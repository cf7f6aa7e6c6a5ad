/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversions of the kernels, for every input there is: all 2^32 floats to E4M3 and BF16 by the hardware, held
 * against the functions that host and device share (test_number_formats.c holds those against the definitions), and all
 * codes with all scales through the decoding of 4-bit codes, held against the same on the host (w4_codes_test.cu).
 */
#include "conversions.h"
#include "gpu_check.h"

static void check_narrowing(void)
{
    unsigned long long *device, result[2];
    CUDA(cudaMalloc((void **)&device, sizeof result));
    fill_device(device, 0, sizeof result);
    CUDA(conversions_narrow(device));
    CUDA(cudaMemcpy(result, device, sizeof result, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(device));
    CHECK(result[0] == 0, "%llu floats narrow differently, such as the one of bits %08llx", result[0], result[1]);
    printf("4294967296 floats to E4M3 and BF16: as on the host\n");
}

static void check_decoding(conversion kind)
{
    const uint32_t inputs = conversions_inputs(kind);
    const size_t bytes = (size_t)inputs * 16;
    uint32_t *device, *const seen = malloc(bytes);
    CHECK(seen != NULL, "out of memory");
    CUDA(cudaMalloc((void **)&device, bytes));
    CUDA(conversions_decode(device, kind));
    CUDA(cudaMemcpy(seen, device, bytes, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < inputs; i++) {
        uint32_t wanted[4];
        conversions_on_host(kind, i, wanted);
        for (size_t k = 0; k < 4; k++)
            CHECK(seen[4 * (size_t)i + k] == wanted[k], "kind %d, input %08x, word %zu: %08x, not %08x", (int)kind, i,
                  k, seen[4 * (size_t)i + k], wanted[k]);
    }
    CUDA(cudaFree(device));
    free(seen);
    printf("kind %d: %u codes and scales decode as on the host\n", (int)kind, inputs);
}

int main(void)
{
    need_gpu();
    check_narrowing();
    for (int kind = 0; kind < CONVERT_KINDS; kind++)
        check_decoding((conversion)kind);
    return 0;
}
