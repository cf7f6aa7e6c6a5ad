/* SPDX-License-Identifier: Apache-2.0 */
/* Derives on a GPU. Compiled with -fmad=false: every operation rounds once, as on the host. */
extern "C" { /* headers of C rooms */
#include "replayer/device_derive.h"
}
#include "replayer/device_cast.cuh"
#include "replayer/device_cuda.cuh"

#define LP_DERIVE_BARRIER()            __syncthreads()
#define LP_DERIVE_CAST(bits, from, to) cast_bits(bits, from, to)
#include "replayer/device_derive_run.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

/* The jobs of a launch; job i has the blocks from first_block[i] on. */
struct wave {
    uint32_t count;
    uint32_t job[LP_DERIVE_JOBS_MAX], first_block[LP_DERIVE_JOBS_MAX];
};

struct lp_device_derives {
    lp_derive_table table; /* pointers into device memory, except for `job`, which is a host copy */
    lp_derive_job *device_job;
    void *block; /* all of it */
    lp_derive_outcome *outcome;
    int64_t bytes;
};

__global__ void run_wave(const lp_derive_table table, lp_derive_outcome *outcome, const __grid_constant__ wave w)
{
    __shared__ unsigned long long first;
    __shared__ lp_derive_code near_code[LP_DERIVE_NEAR_CODES];
    __shared__ __align__(16) uint64_t near[LP_DERIVE_NEAR_BYTES / 8];
    uint32_t low = 0, high = w.count;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (w.first_block[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    const lp_derive_job *job = &table.job[w.job[low]];
    if (job->is_spread) {
        const int64_t block = blockIdx.x - w.first_block[low];
        lp_derive_run_spread(&table, job,
                             {block * blockDim.x + threadIdx.x, static_cast<int64_t>(job->blocks) * blockDim.x});
        return;
    }
    const lp_derive_lane lane = {threadIdx.x, blockDim.x};
    if (threadIdx.x == 0)
        first = INT64_MAX;
    const uint64_t near_base = job->is_near ? reinterpret_cast<uintptr_t>(near) : 0;
    const lp_derive_code *code = &table.code[job->first_code];
    if (job->is_near) {
        lp_derive_come_near(&table, job, near_code, near_base, lane);
        code = near_code;
    }
    lp_derive_run_codes(&table, job, code, near_base, lane); /* has a barrier */
    if (job->outcome == LP_NONE)
        return;
    const lp_derive_code *c = &code[job->codes - 1];
    const int64_t mine = lp_derive_first_far(code, c, lane);
    if (mine != INT64_MAX)
        atomicMin(&first, static_cast<unsigned long long>(mine));
    __syncthreads();
    if (threadIdx.x == 0)
        lp_derive_note(code, c, static_cast<int64_t>(first), &outcome[job->outcome]);
}

/* Takes the next part of the block; *at counts. */
static char *part(char *block, int64_t *at, int64_t bytes)
{
    char *result = block + *at;
    *at += (bytes + 255) / 256 * 256;
    return result;
}

extern "C" int lp_device_derives_open(lp_device_derives **out, lp_derive_table *t)
{
    int64_t at = 0;
    lp_device_derives *d = static_cast<lp_device_derives *>(calloc(1, sizeof *d));
    lp_derive_job *jobs = static_cast<lp_derive_job *>(malloc((t->jobs + 1) * sizeof *jobs));
    if (d == nullptr || jobs == nullptr) {
        free(d);
        free(jobs);
        return cudaErrorMemoryAllocation;
    }
    d->table = *t;
    d->table.job = jobs;
    memcpy(jobs, t->job, t->jobs * sizeof *jobs);
    const int64_t size[] = {
        t->codes * static_cast<int64_t>(sizeof *t->code),       t->moves * static_cast<int64_t>(sizeof *t->move),
        t->modes * static_cast<int64_t>(sizeof *t->mode),       t->jobs * static_cast<int64_t>(sizeof *t->job),
        t->outcomes * static_cast<int64_t>(sizeof *d->outcome), t->scratch_bytes};
    for (int64_t bytes : size)
        d->bytes += (bytes + 255) / 256 * 256;
    cudaError_t code = d->bytes == 0 ? cudaSuccess : cudaMalloc(&d->block, d->bytes);
    char *block = static_cast<char *>(d->block);
    if (code == cudaSuccess && d->bytes > 0) {
        d->table.code = reinterpret_cast<lp_derive_code *>(part(block, &at, size[0]));
        d->table.move = reinterpret_cast<lp_derive_move *>(part(block, &at, size[1]));
        d->table.mode = reinterpret_cast<lp_mode *>(part(block, &at, size[2]));
        d->device_job = reinterpret_cast<lp_derive_job *>(part(block, &at, size[3]));
        d->outcome = reinterpret_cast<lp_derive_outcome *>(part(block, &at, size[4]));
        char *scratch = part(block, &at, size[5]);
        lp_derive_table_place(t, reinterpret_cast<uintptr_t>(scratch));
        const void *from[] = {t->code, t->move, t->mode, t->job};
        void *to[] = {d->table.code, d->table.move, d->table.mode, d->device_job};
        code = cudaMemset(d->block, 0, d->bytes);
        for (int i = 0; i < 4 && code == cudaSuccess; i++)
            if (size[i] > 0)
                code = cudaMemcpy(to[i], from[i], size[i], cudaMemcpyHostToDevice);
    }
    if (code == cudaSuccess)
        code = static_cast<cudaError_t>(lp_device_derives_forget(d, nullptr));
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(nullptr);
    if (lp_cuda_cleared(code) != 0) {
        lp_device_derives_close(d);
        return static_cast<int>(code);
    }
    *out = d;
    return 0;
}

extern "C" void lp_device_derives_close(lp_device_derives *d)
{
    if (d == nullptr)
        return;
    cudaFree(d->block);
    free(d->table.job);
    free(d);
}

extern "C" int64_t lp_device_derives_bytes(const lp_device_derives *d)
{
    return d->bytes;
}

extern "C" int lp_device_derives_run(const lp_device_derives *d, const uint32_t *job, uint32_t count, void *stream)
{
    lp_derive_table table = d->table;
    table.job = d->device_job;
    for (uint32_t at = 0; at < count;) {
        wave w;
        uint32_t blocks = 0;
        for (w.count = 0; w.count < LP_DERIVE_JOBS_MAX && at < count; w.count++, at++) {
            w.job[w.count] = job[at];
            w.first_block[w.count] = blocks;
            blocks += d->table.job[job[at]].blocks;
        }
        run_wave<<<blocks, LP_DERIVE_THREADS, 0, static_cast<cudaStream_t>(stream)>>>(table, d->outcome, w);
        const int code = lp_cuda_cleared(cudaGetLastError());
        if (code != 0)
            return code;
    }
    return 0;
}

extern "C" int lp_device_derives_forget(const lp_device_derives *d, void *stream)
{
    if (d->table.outcomes == 0)
        return 0;
    /* all bits set: index -1 */
    return lp_cuda_cleared(
        cudaMemsetAsync(d->outcome, 0xff, d->table.outcomes * sizeof *d->outcome, static_cast<cudaStream_t>(stream)));
}

extern "C" int lp_device_derives_outcomes(const lp_device_derives *d, lp_derive_outcome *out, void *stream)
{
    const cudaStream_t s = static_cast<cudaStream_t>(stream);
    cudaError_t code = cudaSuccess;
    if (d->table.outcomes > 0)
        code = cudaMemcpyAsync(out, d->outcome, d->table.outcomes * sizeof *out, cudaMemcpyDeviceToHost, s);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(s);
    return lp_cuda_cleared(code);
}
