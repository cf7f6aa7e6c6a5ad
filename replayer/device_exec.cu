/* SPDX-License-Identifier: Apache-2.0 */
/* The launches of a push, and the memory that they need. */
#include "replayer/device_cuda.cuh"
#include "replayer/device_exec.h"
#include "replayer/device_others.cuh"
#include "replayer/device_rows.cuh"
#include "replayer/device_tables.cuh"
#include "replayer/device_words.cuh"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

struct lp_device_exec {
    char *memory; /* of all tables */
    lp_device_desc *desc;
    lp_tile_shape *shape;
    host_list rows, words, others;
    uint32_t items;
    int64_t tiles, bytes;
    int processors, other_blocks;
    int left; /* processors that runs do without */
};

struct lp_device_push {
    lp_device_exec *exec;
    uint32_t capacity;
    int64_t bytes;
    uint32_t rows, words, others; /* tiles of the list that is set */
    bool is_all;                  /* all items with aligned pointers: the program's own lists serve */
    char *memory;                 /* of work and list */
    work_item *work;              /* rows, then words, then others */
    char *pinned, *list;          /* what the host says about each item, where there are many; host and device */
    cudaEvent_t taken;            /* the upload of the last list is complete */
    base_list bases;
};

#define CUDA_TRY(call, label)                                                                                          \
    do {                                                                                                               \
        code = lp_cuda_cleared(call);                                                                                  \
        if (code != cudaSuccess)                                                                                       \
            goto label;                                                                                                \
    } while (0)

extern "C" const char *lp_cuda_text(int code)
{
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}

/* ---- the program on the device ---- */

static int open_lists(lp_device_exec *e, const lp_device_program *p, char *tiles, cudaStream_t stream)
{
    host_list *const list[] = {&e->rows, &e->words, &e->others};
    const lp_tile_list *const from[] = {&p->rows, &p->words, &p->others};
    int code = 0;
    for (int i = 0; i < 3 && code == 0; i++) {
        code = keep_list(list[i], from[i], p->items);
        if (code == 0)
            code = write_list(list[i], from[i], &tiles, stream);
    }
    const int waited = lp_cuda_cleared(cudaStreamSynchronize(stream));
    return code != 0 ? code : waited;
}

extern "C" int lp_device_exec_open(lp_device_exec **out, const lp_device_program *p)
{
    int code = 0, device = 0, processors = 0, resident = 0;
    tables t = {};
    cudaStream_t stream;
    lp_device_exec *e = static_cast<lp_device_exec *>(calloc(1, sizeof *e));
    if (e == nullptr)
        return cudaErrorMemoryAllocation;
    e->items = p->items;
    e->tiles = p->rows.count + p->words.count + p->others.count;
    CUDA_TRY(cudaGetDevice(&device), failed);
    CUDA_TRY(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), failed);
    CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, move_others, LP_BLOCK, 0), failed);
    CUDA_TRY(cudaFuncSetAttribute(move_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, LP_ROW_SHARED), failed);
    CUDA_TRY(cudaFuncSetAttribute(move_words, cudaFuncAttributeMaxDynamicSharedMemorySize, LP_WORD_SHARED), failed);
    e->processors = processors;
    e->other_blocks = processors * resident;
    add_table(&t, &e->desc, p->desc, static_cast<size_t>(p->desc_count) * sizeof *p->desc);
    add_table(&t, &e->shape, p->shape, static_cast<size_t>(p->shape_count) * sizeof *p->shape);
    add_list(&t, &e->rows, &p->rows, p->items);
    add_list(&t, &e->words, &p->words, p->items);
    add_list(&t, &e->others, &p->others, p->items);
    e->bytes = static_cast<int64_t>(t.total + tile_bytes(&p->rows) + tile_bytes(&p->words) + tile_bytes(&p->others));
    CUDA_TRY(cudaMalloc(&e->memory, static_cast<size_t>(e->bytes)), failed);
    CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), failed);
    code = upload_tables(&t, e->memory, stream);
    if (code == 0)
        code = open_lists(e, p, e->memory + t.total, stream);
    cudaStreamDestroy(stream);
failed:
    if (code != 0)
        lp_device_exec_close(e);
    else
        *out = e;
    return code;
}

extern "C" void lp_device_exec_close(lp_device_exec *e)
{
    if (e == nullptr)
        return;
    cudaFree(e->memory);
    free(e->rows.item_tile);
    free(e->words.item_tile);
    free(e->others.item_tile);
    free(e);
}

extern "C" int64_t lp_device_exec_bytes(const lp_device_exec *e)
{
    return e->bytes;
}

/* ---- pushes ---- */

extern "C" int lp_device_push_open(lp_device_push **out, lp_device_exec *exec, uint32_t capacity)
{
    int code = 0;
    /* Items are distinct, so no push has more tiles than the program. */
    const size_t work_bytes = static_cast<size_t>(exec->tiles + 1) * sizeof(work_item);
    const size_t list_bytes = capacity > LP_NEAR_PUSH_ITEMS ? static_cast<size_t>(capacity) * sizeof(push_item) : 0;
    lp_device_push *p = static_cast<lp_device_push *>(calloc(1, sizeof *p));
    if (p == nullptr)
        return cudaErrorMemoryAllocation;
    p->exec = exec;
    p->capacity = capacity;
    p->bytes = static_cast<int64_t>(work_bytes + list_bytes);
    CUDA_TRY(cudaMalloc(&p->memory, work_bytes + list_bytes), failed);
    p->work = reinterpret_cast<work_item *>(p->memory);
    if (list_bytes > 0) {
        p->list = p->memory + work_bytes; /* which a list's alignment divides */
        CUDA_TRY(cudaMallocHost(&p->pinned, list_bytes), failed);
        CUDA_TRY(cudaEventCreateWithFlags(&p->taken, cudaEventDisableTiming), failed);
    }
    *out = p;
    return 0;
failed:
    lp_device_push_close(p);
    return code;
}

extern "C" void lp_device_push_close(lp_device_push *p)
{
    if (p == nullptr)
        return;
    if (p->taken != nullptr)
        cudaEventDestroy(p->taken);
    cudaFreeHost(p->pinned);
    cudaFree(p->memory);
    free(p);
}

extern "C" int64_t lp_device_push_bytes(const lp_device_push *p)
{
    return p->bytes;
}

static uint32_t tiles_of(const host_list *list, uint32_t item)
{
    return list->item_tile[item + 1] - list->item_tile[item];
}

/* Copies the list that the host wrote to p->pinned. */
static cudaError_t send_list(lp_device_push *p, size_t bytes, cudaStream_t stream)
{
    const cudaError_t code = cudaMemcpyAsync(p->list, p->pinned, bytes, cudaMemcpyHostToDevice, stream);
    return code == cudaSuccess ? cudaEventRecord(p->taken, stream) : code;
}

/* All items, all aligned: only the base pointers are new. */
static cudaError_t set_all(lp_device_push *p, const void *const *base, uint32_t count, cudaStream_t stream)
{
    const bool is_near = count <= LP_NEAR_ITEMS;
    uint64_t *bases = is_near ? p->bases.near : reinterpret_cast<uint64_t *>(p->pinned);
    p->bases.far = is_near ? nullptr : reinterpret_cast<const uint64_t *>(p->list);
    for (uint32_t i = 0; i < count; i++)
        bases[i] = reinterpret_cast<uintptr_t>(base[i]);
    return is_near ? cudaSuccess : send_list(p, count * sizeof *bases, stream);
}

extern "C" int lp_device_push_set(lp_device_push *p, const uint32_t *item, const void *const *base, uint32_t count,
                                  void *stream)
{
    int code = 0;
    const lp_device_exec *e = p->exec;
    cudaStream_t s = static_cast<cudaStream_t>(stream);
    const bool is_near = count <= LP_NEAR_PUSH_ITEMS;
    push_list few;
    push_item *list = is_near ? few.near : reinterpret_cast<push_item *>(p->pinned);
    uint64_t low_bits = 0;
    if (count > p->capacity)
        return cudaErrorInvalidValue;
    for (uint32_t i = 0; i < count; i++) {
        if (item[i] >= e->items || (i > 0 && item[i] <= item[i - 1]))
            return cudaErrorInvalidValue;
        low_bits |= reinterpret_cast<uintptr_t>(base[i]);
    }
    p->is_all = count == e->items && low_bits % 16 == 0;
    if (!is_near && !(p->is_all && count <= LP_NEAR_ITEMS))
        CUDA_TRY(cudaEventSynchronize(p->taken), failed);
    if (p->is_all) {
        p->rows = e->rows.item_tile[e->items];
        p->words = e->words.item_tile[e->items];
        p->others = e->others.item_tile[e->items];
        return lp_cuda_cleared(set_all(p, base, count, s));
    }
    p->rows = p->words = p->others = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t n = item[i];
        const uint64_t address = reinterpret_cast<uintptr_t>(base[i]);
        const bool aligned = address % 16 == 0;
        list[i] = {address, n, p->rows, p->words, p->others, aligned, 0};
        p->rows += aligned ? tiles_of(&e->rows, n) : 0;
        p->words += aligned ? tiles_of(&e->words, n) : 0;
        p->others += tiles_of(&e->others, n) + (aligned ? 0 : tiles_of(&e->rows, n) + tiles_of(&e->words, n));
    }
    if (count == 0)
        return 0;
    few.far = is_near ? nullptr : reinterpret_cast<const push_item *>(p->list);
    if (!is_near)
        CUDA_TRY(send_list(p, count * sizeof(push_item), s), failed);
    list_tiles<<<(count + 7) / 8, 256, 0, s>>>(p->work, p->work + p->rows, p->work + p->rows + p->words, e->rows.device,
                                               e->words.device, e->others.device, few, count);
    CUDA_TRY(cudaGetLastError(), failed);
failed:
    return code;
}

extern "C" void lp_device_exec_leave(lp_device_exec *e, int processors)
{
    e->left = processors < e->processors ? processors : e->processors - 1;
}

/* How the kernels of one push are launched: all but the first may start before the one before it has ended. */
typedef struct launcher {
    cudaStream_t stream;
    bool is_later;
} launcher;

template <class... Parameters, class... Arguments>
static cudaError_t launch(launcher *l, void (*kernel)(Parameters...), uint32_t units, int most_blocks, int threads,
                          int shared_bytes, const Arguments &...arguments)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = units < static_cast<uint32_t>(most_blocks) ? units : static_cast<uint32_t>(most_blocks);
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = l->stream;
    config.attrs = &overlap;
    config.numAttrs = l->is_later ? 1 : 0;
    l->is_later = true;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

extern "C" int lp_device_push_launches(const lp_device_push *p)
{
    return (p->is_all ? 0 : 1) + (p->rows > 0) + (p->words > 0) + (p->others > 0);
}

extern "C" int lp_device_push_run(lp_device_push *p, void *stream)
{
    int code = 0;
    const lp_device_exec *e = p->exec;
    const int processors = e->processors - e->left;
    launcher l = {static_cast<cudaStream_t>(stream), false};
    const work_item *row_work = p->work, *word_work = row_work + p->rows, *other_work = word_work + p->words;
    const work_list rows = {p->is_all ? nullptr : row_work, e->rows.device.whole, p->rows};
    const work_list words = {p->is_all ? nullptr : word_work, e->words.device.whole, p->words};
    const work_list others = {p->is_all ? nullptr : other_work, e->others.device.whole, p->others};
    if (p->rows > 0)
        CUDA_TRY(launch(&l, move_rows, p->rows <= UINT32_MAX / LP_TILE_UNITS ? p->rows * LP_TILE_UNITS : UINT32_MAX,
                        processors, LP_ROW_THREADS, LP_ROW_SHARED, e->desc, rows, p->bases),
                 failed);
    if (p->words > 0)
        CUDA_TRY(launch(&l, move_words, p->words, processors * LP_WORD_BLOCKS, LP_WORD_THREADS, LP_WORD_SHARED, e->desc,
                        e->shape, words, p->bases),
                 failed);
    if (p->others > 0)
        CUDA_TRY(launch(&l, move_others, p->others, e->other_blocks, LP_BLOCK, 0, e->desc, others, p->bases), failed);
failed:
    return code;
}
