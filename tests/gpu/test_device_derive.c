/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derives on a GPU: random programs give the evaluator's bits, `own` operations over all kinds of numbers too, a
 * spread job of many blocks, and a captured wave that sees new inputs.
 */
#include "gpu_check.h"
#include "replayer/device_derive.h"
#include "replayer/own_math.h"
#include "tests/unit/derive_programs.h"

enum { WAVE = 600 };

static void upload(void *device, const void *host, size_t bytes)
{
    put_device(device, host, bytes);
}

/* A wave of many jobs, more than one launch holds. */
static void test_waves(void **state)
{
    (void)state;
    uint64_t random = 20;
    derive_program *p = calloc(WAVE, sizeof *p);
    uint8_t *block = malloc(PROGRAM_REGION), *have = malloc((size_t)WAVE * PROGRAM_RESULT),
            *want = malloc((size_t)WAVE * PROGRAM_RESULT);
    char *device_block, *device_result;
    uint32_t job[WAVE];
    lp_derive_outcome *outcome = calloc(WAVE, sizeof *outcome);
    CUDA(cudaMalloc((void **)&device_block, PROGRAM_REGION));
    CUDA(cudaMalloc((void **)&device_result, (size_t)WAVE * PROGRAM_RESULT));
    for (int round = 0; round < 4; round++) {
        lp_derive_table t = {.alloc = lp_alloc_default()};
        lp_device_derives *d;
        lp_error err;
        program_fill(&random, block, PROGRAM_REGION);
        upload(device_block, block, PROGRAM_REGION);
        for (int n = 0; n < WAVE; n++) {
            uint64_t region[PROGRAM_INPUTS];
            make_program(&p[n], &random);
            for (uint32_t i = 0; i < p[n].derive.ninput; i++)
                region[i] = (uintptr_t)(device_block + p[n].region_off[i]);
            assert_int_equal(lp_derive_table_add(&t, &p[n].derive, region,
                                                 (uintptr_t)(device_result + (size_t)n * PROGRAM_RESULT), &err),
                             LP_OK);
            job[n] = (uint32_t)n;
        }
        CUDA(lp_device_derives_open(&d, &t));
        fill_device(device_result, 0xab, (size_t)WAVE * PROGRAM_RESULT);
        cudaStream_t stream;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        CUDA(cudaStreamCreate(&stream));
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CUDA(lp_device_derives_run(d, job, WAVE, stream));
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        for (int again = 0; again < 2; again++) {
            if (again == 1) { /* other values, the same graph */
                program_fill(&random, block, PROGRAM_REGION);
                upload(device_block, block, PROGRAM_REGION);
                fill_device(device_result, 0xab, (size_t)WAVE * PROGRAM_RESULT);
            }
            CUDA(cudaDeviceSynchronize());
            CUDA(cudaGraphLaunch(exec, stream));
            CUDA(lp_device_derives_outcomes(d, outcome, stream));
            CUDA(cudaMemcpy(have, device_result, (size_t)WAVE * PROGRAM_RESULT, cudaMemcpyDeviceToHost));
            memset(want, 0xab, (size_t)WAVE * PROGRAM_RESULT);
            for (int n = 0, c = 0; n < WAVE; n++) {
                lp_derive_check check;
                evaluate_program(&p[n], block, want + (size_t)n * PROGRAM_RESULT, &check);
                CHECK(memcmp(have + (size_t)n * PROGRAM_RESULT, want + (size_t)n * PROGRAM_RESULT, PROGRAM_RESULT) == 0,
                      "round %d: program %d of %u nodes differs", round, n, p[n].derive.nnode);
                if (p[n].derive.dest != LP_NONE)
                    continue;
                CHECK(outcome[c].index == (check.failed ? check.index : -1), "round %d: check %d", round, n);
                CHECK(!check.failed ||
                          (memcmp(&outcome[c].a, &check.a, 4) == 0 && memcmp(&outcome[c].b, &check.b, 4) == 0),
                      "round %d: values of check %d", round, n);
                c++;
            }
        }
        CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
        CUDA(cudaStreamDestroy(stream));
        lp_device_derives_close(d);
        lp_derive_table_free(&t);
        for (int n = 0; n < WAVE; n++)
            free_program(&p[n]);
    }
    CUDA(cudaFree(device_block));
    CUDA(cudaFree(device_result));
    free(p);
    free(block);
    free(have);
    free(want);
    free(outcome);
}

/* exp and log of 2^22 patterns, spread over many blocks. */
static void test_own_operations(void **state)
{
    (void)state;
    enum { COUNT = 1 << 22 };
    uint32_t *bits = malloc((size_t)COUNT * 4), *have = malloc((size_t)COUNT * 4);
    char *device, *result;
    for (uint32_t i = 0; i < COUNT; i++)
        bits[i] = i * 1024u + i % 1024u;
    CUDA(cudaMalloc((void **)&device, (size_t)COUNT * 4));
    CUDA(cudaMalloc((void **)&result, (size_t)COUNT * 4));
    upload(device, bits, (size_t)COUNT * 4);
    for (int which = 0; which < 2; which++) {
        const int64_t count = COUNT;
        lp_view dense;
        lp_error err;
        const lp_map *map;
        lp_device_derives *d;
        assert_int_equal(lp_view_contiguous(&dense, LP_F32, 1, &count, &err), LP_OK);
        assert_int_equal(lp_map_copy(&map, &dense, count * 4, &dense, count * 4, NULL, &err), LP_OK);
        const lp_derive_input input = {.dtype = LP_F32, .count = count, .map = map};
        const lp_node node[2] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = count},
                                 {.op = which == 0 ? LP_OP_EXP : LP_OP_LOG, .dtype = LP_F32, .count = count}};
        const lp_derive derive = {.nnode = 2, .ninput = 1, .node = node, .input = &input, .map = map, .error_text = ""};
        lp_derive_table t = {.alloc = lp_alloc_default()};
        const uint64_t region = (uintptr_t)device;
        const uint32_t job = 0;
        assert_int_equal(lp_derive_table_add(&t, &derive, &region, (uintptr_t)result, &err), LP_OK);
        assert_true(t.job[0].is_spread && t.job[0].blocks > 100);
        CUDA(lp_device_derives_open(&d, &t));
        CUDA(lp_device_derives_run(d, &job, 1, NULL));
        CUDA(cudaMemcpy(have, result, (size_t)COUNT * 4, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < COUNT; i++) {
            const float x = lp_f32_of_bits(bits[i]), want = which == 0 ? lp_own_exp(x) : lp_own_log(x);
            CHECK(have[i] == lp_f32_bits(want), "%s of %08x is %08x, not %08x", which == 0 ? "exp" : "log", bits[i],
                  have[i], lp_f32_bits(want));
        }
        lp_device_derives_close(d);
        lp_derive_table_free(&t);
        lp_map_free(map, NULL);
    }
    CUDA(cudaFree(device));
    CUDA(cudaFree(result));
    free(bits);
    free(have);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_own_operations),
    };
    need_gpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
