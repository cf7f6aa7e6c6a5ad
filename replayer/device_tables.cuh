/* SPDX-License-Identifier: Apache-2.0 */
/* How a program comes to the device: its tables in one copy, its tiles written there from runs. */
#ifndef LOADPLAN_DEVICE_TABLES_CUH
#define LOADPLAN_DEVICE_TABLES_CUH

#include "replayer/device_cuda.cuh"
#include "replayer/device_work.cuh"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    TABLES_MOST = 11,
    TILE_THREADS = 128,
    TABLE_ALIGN = 256,
    PIN_LEAST = 64 << 10, /* bytes that are not worth it below */
    HUGE_PAGE = 2 << 20
};

struct host_list {
    device_list device;
    lp_tile_run *run, *whole; /* on the device, of its lists */
    uint32_t *item_tile;      /* of the list, on the host */
};

/* ---- tables ---- */

/* The tables of a program, which lie in one block. A cold start keeps the link full, and calls that take memory, pin it
 * or copy wait for what is on it, some with all other callers behind them: so there is one of each. */
struct tables {
    void **place[TABLES_MOST]; /* where the address of each goes */
    const void *from[TABLES_MOST];
    size_t bytes[TABLES_MOST], at[TABLES_MOST], total;
    int count;
};

static void add_table(tables *t, void *place, const void *from, size_t bytes)
{
    const int n = t->count++;
    t->place[n] = static_cast<void **>(place);
    t->from[n] = from;
    t->bytes[n] = bytes;
    t->at[n] = t->total;
    t->total += (bytes + TABLE_ALIGN) / TABLE_ALIGN * TABLE_ALIGN; /* none is empty */
}

static void add_list(tables *t, host_list *list, const lp_tile_list *from, uint32_t items)
{
    const size_t run_bytes = static_cast<size_t>(from->runs) * sizeof *from->run;
    add_table(t, &list->run, from->run, run_bytes);
    if (from->whole != NULL)
        add_table(t, &list->whole, from->whole, run_bytes);
    add_table(t, &list->device.item_tile, from->item_tile, (static_cast<size_t>(items) + 1) * sizeof *from->item_tile);
}

/* The tables in a row, as they are to lie on the device; in large pages, which are quicker to pin. */
static char *gather_tables(const tables *t)
{
    const size_t room = (t->total + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    char *host = static_cast<char *>(aligned_alloc(HUGE_PAGE, room));
    if (host == nullptr)
        return nullptr;
    if (t->total >= HUGE_PAGE)
        (void)madvise(host, room, MADV_HUGEPAGE); /* a wish */
    for (int i = 0; i < t->count; i++)
        if (t->bytes[i] > 0)
            memcpy(host + t->at[i], t->from[i], t->bytes[i]);
    return host;
}

/* Returns when the tables are there. Pageable memory would go piece by piece, and each wait behind the link. */
static int send_tables(const tables *t, char *memory, char *host, cudaStream_t stream)
{
    const bool is_pinned =
        t->total >= PIN_LEAST && lp_cuda_cleared(cudaHostRegister(host, t->total, cudaHostRegisterDefault)) == 0;
    int code = lp_cuda_cleared(cudaMemcpyAsync(memory, host, t->total, cudaMemcpyHostToDevice, stream));
    if (code == 0)
        code = lp_cuda_cleared(cudaStreamSynchronize(stream));
    if (is_pinned)
        (void)lp_cuda_cleared(cudaHostUnregister(host));
    return code;
}

static int upload_tables(const tables *t, char *memory, cudaStream_t stream)
{
    char *host = gather_tables(t);
    if (host == nullptr)
        return cudaErrorMemoryAllocation;
    const int code = send_tables(t, memory, host, stream);
    free(host);
    for (int i = 0; i < t->count; i++)
        *t->place[i] = memory + t->at[i];
    return code;
}

/* ---- tiles ---- */

static size_t tile_bytes(const lp_tile_list *from)
{
    return static_cast<size_t>(from->count) * (from->whole != NULL ? 2 : 1) * sizeof(lp_device_tile);
}

/* Writes the tiles of a list: a block those of one run. */
__global__ void write_tiles(lp_device_tile *tile, const lp_tile_run *run)
{
    const lp_tile_run r = run[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < r.tiles; i += blockDim.x)
        tile[r.first + i] = {r.desc, i, r.item, r.shape};
}

/* From its runs to *at, which moves behind it. */
static int write_list(host_list *list, const lp_tile_list *from, char **at, cudaStream_t stream)
{
    const uint32_t runs = static_cast<uint32_t>(from->runs);
    list->device.tile = list->device.whole = reinterpret_cast<lp_device_tile *>(*at);
    if (from->whole != NULL)
        list->device.whole += from->count;
    *at += tile_bytes(from);
    if (runs == 0)
        return 0;
    write_tiles<<<runs, TILE_THREADS, 0, stream>>>(list->device.tile, list->run);
    if (from->whole != NULL)
        write_tiles<<<runs, TILE_THREADS, 0, stream>>>(list->device.whole, list->whole);
    return lp_cuda_cleared(cudaGetLastError());
}

/* What the host needs of a list later. */
static int keep_list(host_list *list, const lp_tile_list *from, uint32_t items)
{
    const size_t item_bytes = (static_cast<size_t>(items) + 1) * sizeof *from->item_tile;
    list->item_tile = static_cast<uint32_t *>(malloc(item_bytes));
    if (list->item_tile == nullptr)
        return cudaErrorMemoryAllocation;
    memcpy(list->item_tile, from->item_tile, item_bytes);
    return 0;
}

#endif
