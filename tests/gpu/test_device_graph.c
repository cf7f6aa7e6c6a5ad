/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A push in a CUDA graph: captured once, replayed after the sources have changed, it gives the new bytes. For a push of
 * all items and for one of some, whose list of tiles was written before the capture.
 */
#include "gpu_testing.h"

enum { ITEMS = 3, ROWS = 64, COLUMNS = 128, BYTES = ROWS * COLUMNS * 4, TAIL = 12 };

static void must(lp_status status, const lp_error *err)
{
    CHECK(status == LP_OK, "%s", err->text);
}

/* A plain tensor, a transposed one, and one of a few odd bytes: one for each kernel. */
static void make_steps(lp_step step[ITEMS], int64_t dst[ITEMS])
{
    lp_error err;
    const lp_box rows = {.run = BYTES};
    lp_mode mode[2] = {{.extent = COLUMNS, .src_stride = 4, .dst_stride = 4 * ROWS},
                       {.extent = ROWS, .src_stride = 4 * COLUMNS, .dst_stride = 4}};
    const lp_box words = {.run = 4, .rank = 2, .mode = mode};
    const lp_box tail = {.run = TAIL};
    const lp_box *box[ITEMS] = {&rows, &words, &tail};
    for (int i = 0; i < ITEMS; i++) {
        step[i] = (lp_step){.kind = LP_KIND_COPY, .stage = LP_NONE};
        must(lp_map_from_boxes(&step[i].map, 1, 1, 1, box[i], NULL, &err), &err);
        dst[i] = (int64_t)i * BYTES;
    }
}

int main(void)
{
    enum { ALL = ITEMS * BYTES };
    static uint8_t host[ALL], wanted[ALL], seen[ALL];
    lp_error err;
    lp_step step[ITEMS];
    int64_t dst[ITEMS];
    char *source, *dest;
    uint64_t seed = 5;
    need_gpu();
    make_steps(step, dst);
    CUDA(cudaMalloc((void **)&source, ALL));
    CUDA(cudaMalloc((void **)&dest, ALL));
    lp_device_program *program;
    lp_device_exec *exec;
    lp_device_push *push;
    must(lp_device_program_new(&program, ITEMS, lp_alloc_default(), &err), &err);
    for (uint32_t i = 0; i < ITEMS; i++)
        must(lp_device_program_add(program, i, &step[i], (uint64_t)(uintptr_t)(dest + dst[i]), &err), &err);
    must(lp_device_program_end(program, &err), &err);
    CHECK(program->rows.count > 0 && program->words.count > 0 && program->others.count > 0, "a kernel is not used");
    CUDA(lp_device_exec_open(&exec, program));
    CUDA(lp_device_push_open(&push, exec, ITEMS));
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    for (uint32_t first = 0; first < 2; first++) {
        const uint32_t item[ITEMS] = {0, 1, 2};
        const void *base[ITEMS];
        for (int i = 0; i < ITEMS; i++)
            base[i] = source + i * BYTES;
        cudaGraph_t graph;
        cudaGraphExec_t runnable;
        CUDA(lp_device_push_set(push, item + first, base + first, ITEMS - first, stream));
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CUDA(lp_device_push_run(push, stream));
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphInstantiate(&runnable, graph, 0));
        for (int round = 0; round < 3; round++) {
            for (int64_t i = 0; i < ALL; i += 8) {
                const uint64_t word = random_next(&seed);
                memcpy(host + i, &word, 8);
            }
            memset(wanted, 0xa5, ALL);
            for (uint32_t i = first; i < ITEMS; i++)
                reference_copy(step[i].map, wanted + dst[i], host + i * BYTES);
            CUDA(cudaMemcpyAsync(source, host, ALL, cudaMemcpyHostToDevice, stream));
            CUDA(cudaMemsetAsync(dest, 0xa5, ALL, stream));
            CUDA(cudaGraphLaunch(runnable, stream));
            CUDA(cudaMemcpyAsync(seen, dest, ALL, cudaMemcpyDeviceToHost, stream));
            CUDA(cudaStreamSynchronize(stream));
            for (int64_t i = 0; i < ALL; i++)
                CHECK(seen[i] == wanted[i], "from item %u, round %d: byte %lld is %02x, should be %02x", first, round,
                      (long long)i, seen[i], wanted[i]);
        }
        CUDA(cudaGraphExecDestroy(runnable));
        CUDA(cudaGraphDestroy(graph));
    }
    for (int i = 0; i < ITEMS; i++)
        lp_map_free(step[i].map, NULL);
    CUDA(cudaStreamDestroy(stream));
    lp_device_push_close(push);
    lp_device_exec_close(exec);
    lp_device_program_free(program);
    CUDA(cudaFree(source));
    CUDA(cudaFree(dest));
    printf("captured pushes read their sources anew\n");
    return 0;
}
