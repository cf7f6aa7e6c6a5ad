/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts into the memory of a GPU: every kind of name, slots of several sizes, faults of files. The bytes are
 * those of the model, the digests those of the CPU.
 *
 *   test_device_cold [ROUNDS]     20, each with all sizes; sanitizers want fewer
 */
#include "gpu_check.h"
#include "tests/unit/cold_testing.h"

static int rounds = 20;

static void test_loads(void **state)
{
    static const lp_cold_options options[] = {
        {0},
        {.readers = 1, .pinned = 1},
        {.readers = 3, .staging = 8 * 4096},
        {.readers = 16, .staging = 8 * 20000, .pinned = (int64_t)1 << 30},
        {.readers = 5, .staging = 64 << 20, .pinned = 24 << 20},
    };
    cold_bed b;
    lp_cold_device d;
    (void)state;
    cold_open_bed(&b);
    assert_ok(&b.w, lp_cuda_device_open(&d, "cuda:0", &b.w.err));
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
            size_t before, after, total;
            lp_cold_report r;
            b.f.short_reads = b.f.interrupted = round % 2 == 1;
            CUDA(cudaMemGetInfo(&before, &total));
            assert_ok(&b.w, cold_try(&b, &d, &options[i], &r, &b.w.err));
            CUDA(cudaMemGetInfo(&after, &total));
            assert_true(round == 0 || before == after);
            assert_int_equal(r.derives_run, 4);
            assert_true(r.device_bytes > 0);
        }
    lp_cuda_device_close(&d);
    cold_close_bed(&b);
}

static void test_faults(void **state)
{
    cold_bed b;
    lp_cold_device d;
    lp_error err;
    const lp_cold_options o = {.readers = 4, .staging = 8 * 4096};
    (void)state;
    cold_open_bed(&b);
    assert_ok(&b.w, lp_cuda_device_open(&d, "cuda", &b.w.err));
    b.f.fail_at = 2;
    b.f.failure = -EIO;
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_IO);
    b.f.fail_at = -1;
    assert_ok(&b.w, cold_try(&b, &d, &o, NULL, &b.w.err));
    assert_int_equal(truncate(b.path, b.f.payload_off + 1000), 0);
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_CORRUPT);
    lp_cuda_device_close(&d);
    cold_close_bed(&b);
}

static void test_devices_that_are_not_there(void **state)
{
    static const char *const names[] = {"cuda:999", "cuda:", "cuda:x", "cuda:0x", "gpu", "cuda0", ""};
    lp_cold_device d;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        lp_error err;
        assert_int_equal(lp_cuda_device_open(&d, names[i], &err), LP_E_DEVICE);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_devices_that_are_not_there),
    };
    if (argc > 1)
        rounds = atoi(argv[1]);
    need_gpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
