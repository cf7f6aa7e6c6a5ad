/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every pair of the cast table on the device, bit for bit what the CPU makes of it: all patterns of elements of 8 and
 * 16 bits, else patterns near every exponent, specials and random ones.
 */
#include "gpu_testing.h"

enum { COUNT = 65536 };

static void fill_patterns(uint8_t *data, lp_dtype dtype, uint64_t *seed)
{
    const int bits = lp_dtype_bits(dtype), mantissa = bits == 64 ? 52 : 23;
    for (int64_t i = 0; i < COUNT; i++) {
        uint64_t word = (uint64_t)i;
        if (bits >= 32) {
            word = random_next(seed);
            if (i % 4 == 1) /* a small integer, as a float where it is one */
                word = (uint64_t)(i / 4 - COUNT / 8);
            if (i % 4 == 2) /* just around a power of two */
                word = ((uint64_t)(i / 4) << mantissa) + (uint64_t)(int64_t)(i / 4 % 5 - 2);
            if (i % 4 == 3) /* infinities and NaNs of few bits */
                word |= bits == 64 ? 0x7ff0000000000000u : 0x7f800000u;
            if (i % 16 == 15)
                word &= bits == 64 ? 0xfff0000000000001u : 0xff800001u;
        }
        memcpy(data + i * bits / 8, &word, (size_t)bits / 8);
    }
}

static void test_pair(lp_dtype from, lp_dtype to, char *source, char *dest, uint64_t *seed)
{
    static uint8_t host[COUNT * 8], wanted[COUNT * 8], seen[COUNT * 8];
    const int from_bytes = lp_dtype_bits(from) / 8, to_bytes = lp_dtype_bits(to) / 8;
    lp_error err;
    lp_device_program *program;
    lp_device_exec *exec;
    lp_device_push *push;
    const lp_box box = {.run = COUNT};
    lp_step step = {.kind = LP_KIND_CAST, .stage = LP_NONE, .src_dtype = (uint8_t)from, .dst_dtype = (uint8_t)to};
    fill_patterns(host, from, seed);
    CHECK(lp_cast_elements(from, host, to, wanted, COUNT) == LP_OK, "the reference cannot cast");
    CHECK(lp_map_from_boxes(&step.map, from_bytes, to_bytes, 1, &box, NULL, &err) == LP_OK, "%s", err.text);
    CHECK(lp_device_program_new(&program, 1, lp_alloc_default(), &err) == LP_OK, "%s", err.text);
    CHECK(lp_device_program_add(program, 0, &step, (uint64_t)(uintptr_t)dest, &err) == LP_OK, "%s", err.text);
    CHECK(lp_device_program_end(program, &err) == LP_OK, "%s", err.text);
    CUDA(lp_device_exec_open(&exec, program));
    CUDA(lp_device_push_open(&push, exec, 1));
    put_device(source, host, (size_t)COUNT * (size_t)from_bytes);
    const uint32_t item = 0;
    const void *base = source;
    CUDA(lp_device_push_set(push, &item, &base, 1, NULL));
    CUDA(lp_device_push_run(push, NULL));
    CUDA(cudaMemcpy(seen, dest, (size_t)COUNT * (size_t)to_bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        if (memcmp(seen + i * to_bytes, wanted + i * to_bytes, (size_t)to_bytes) != 0) {
            uint64_t in = 0, out = 0, right = 0;
            memcpy(&in, host + i * from_bytes, (size_t)from_bytes);
            memcpy(&out, seen + i * to_bytes, (size_t)to_bytes);
            memcpy(&right, wanted + i * to_bytes, (size_t)to_bytes);
            CHECK(false, "%s to %s: %llx becomes %llx, should be %llx", lp_dtype_name(from), lp_dtype_name(to),
                  (unsigned long long)in, (unsigned long long)out, (unsigned long long)right);
        }
    lp_device_push_close(push);
    lp_device_exec_close(exec);
    lp_device_program_free(program);
    lp_map_free(step.map, NULL);
}

int main(void)
{
    char *source, *dest;
    uint64_t seed = 3;
    int pairs = 0;
    need_gpu();
    CUDA(cudaMalloc((void **)&source, COUNT * 8));
    CUDA(cudaMalloc((void **)&dest, COUNT * 8));
    for (int from = 1; from < LP_DTYPE_COUNT; from++)
        for (int to = 1; to < LP_DTYPE_COUNT; to++)
            if (lp_cast_kind_of((lp_dtype)from, (lp_dtype)to) == LP_CAST_VALUES) {
                test_pair((lp_dtype)from, (lp_dtype)to, source, dest, &seed);
                pairs++;
            }
    printf("%d pairs of dtypes, %d elements each: equal to the CPU's\n", pairs, COUNT);
    CUDA(cudaFree(source));
    CUDA(cudaFree(dest));
    return 0;
}
