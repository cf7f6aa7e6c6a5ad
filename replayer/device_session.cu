/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA as the device of sessions. */
extern "C" { /* headers of C rooms */
#include "replayer/device_digest.h"
#include "replayer/device_session.h"
}
#include "replayer/device_cast.cuh"
#include "replayer/device_cuda.cuh"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

constexpr int THREADS = 256, BLOCKS_MAX = 1 << 16;

struct cuda_context {
    int ordinal;
    bool captures;
};

/* The program of a plan, and the pushes of it: a captured one keeps its list for as long as its graph is launched. */
struct cuda_program {
    lp_device_exec *exec;
    lp_device_push *push, *captured;
    cudaStream_t aside; /* lists the tiles of a captured push at once */
};

static unsigned blocks_for(int64_t threads)
{
    const int64_t blocks = (threads + THREADS - 1) / THREADS;
    return static_cast<unsigned>(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
}

static int enter(void *context, int *before)
{
    const int ordinal = static_cast<cuda_context *>(context)->ordinal;
    cudaError_t code = cudaGetDevice(before);
    if (code == cudaSuccess && *before != ordinal)
        code = cudaSetDevice(ordinal);
    return lp_cuda_cleared(code);
}

static void leave(void *context, int before)
{
    if (before != static_cast<cuda_context *>(context)->ordinal)
        lp_cuda_cleared(cudaSetDevice(before));
}

static int take_pinned(void *, int64_t bytes, void **out)
{
    return lp_cuda_cleared(cudaHostAlloc(out, static_cast<size_t>(bytes), cudaHostAllocDefault));
}

static void give_pinned(void *, void *memory)
{
    lp_cuda_cleared(cudaFreeHost(memory));
}

static int is_ours(void *context, const void *data, bool *yes)
{
    cudaPointerAttributes a = {};
    const int code = lp_cuda_cleared(cudaPointerGetAttributes(&a, data));
    *yes = (a.type == cudaMemoryTypeDevice && a.device == static_cast<cuda_context *>(context)->ordinal) ||
           a.type == cudaMemoryTypeManaged;
    return code;
}

/* The legacy stream cannot be captured, and must not be asked while another one is. */
static int is_captured(void *, void *stream, bool *yes)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const int code = stream == nullptr ? 0 : lp_cuda_cleared(cudaStreamIsCapturing(lp_cuda_stream(stream), &status));
    *yes = status != cudaStreamCaptureStatusNone;
    return code;
}

static int copy(void *, void *to, const void *from, int64_t bytes, void *stream)
{
    return lp_cuda_cleared(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, lp_cuda_stream(stream)));
}

static int copy_rows(void *, void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t bytes,
                     int64_t rows, void *stream)
{
    return lp_cuda_cleared(cudaMemcpy2DAsync(to, static_cast<size_t>(to_pitch), from, static_cast<size_t>(from_pitch),
                                             static_cast<size_t>(bytes), static_cast<size_t>(rows), cudaMemcpyDefault,
                                             lp_cuda_stream(stream)));
}

static int clear(void *, void *memory, int64_t bytes, void *stream)
{
    return lp_cuda_cleared(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), lp_cuda_stream(stream)));
}

static int wait(void *, void *stream)
{
    return lp_cuda_cleared(cudaStreamSynchronize(lp_cuda_stream(stream)));
}

/* ---- strided tensors ---- */

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

static int gather(void *, void *to, const void *from, const lp_form *form, int64_t lo, int64_t hi, void *stream)
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

static int dummy(void *, const lp_dummy *values, void *stream)
{
    write_dummy<<<blocks_for(values->form.bytes / values->form.unit), THREADS, 0, lp_cuda_stream(stream)>>>(*values);
    return lp_cuda_cleared(cudaGetLastError());
}

/* ---- programs ---- */

static lp_status compile(lp_device_program *program, const lp_device_side *side, lp_error *err)
{
    for (uint32_t i = 0; i < side->item_count; i++)
        for (uint32_t k = 0; k < side->item[i].step_count; k++) {
            const lp_item_step *s = &side->step[side->item[i].first_step + k];
            LP_TRY(lp_device_program_add(program, i, s->step, reinterpret_cast<uintptr_t>(s->to), err));
        }
    return lp_device_program_end(program, err);
}

static void program_close(void *, void *program)
{
    cuda_program *p = static_cast<cuda_program *>(program);
    lp_device_push_close(p->push);
    lp_device_push_close(p->captured);
    lp_device_exec_close(p->exec);
    if (p->aside != nullptr)
        lp_cuda_cleared(cudaStreamDestroy(p->aside));
    free(p);
}

static lp_status open_pushes(cuda_program *p, const lp_device_program *compiled, uint32_t items, bool captures,
                             lp_error *err)
{
    LP_TRY(lp_cuda_fail(err, lp_device_exec_open(&p->exec, compiled), "upload the plan"));
    LP_TRY(lp_cuda_fail(err, lp_device_push_open(&p->push, p->exec, items), "prepare pushes"));
    if (!captures)
        return LP_OK;
    LP_TRY(lp_cuda_fail(err, lp_device_push_open(&p->captured, p->exec, items), "prepare pushes"));
    return lp_cuda_fail(err, lp_cuda_cleared(cudaStreamCreateWithFlags(&p->aside, cudaStreamNonBlocking)),
                        "open a stream");
}

static lp_status program_open(void *context, void **program, const lp_device_side *side, lp_error *err)
{
    lp_device_program *compiled = NULL;
    const uint32_t items = side->item_count > 0 ? side->item_count : 1;
    cuda_program *p = static_cast<cuda_program *>(calloc(1, sizeof *p));
    if (p == nullptr)
        return lp_fail_memory(err);
    lp_status status = lp_device_program_new(&compiled, items, side->alloc, err);
    if (status == LP_OK)
        status = compile(compiled, side, err);
    if (status == LP_OK)
        status = open_pushes(p, compiled, items, static_cast<cuda_context *>(context)->captures, err);
    lp_device_program_free(compiled);
    if (status != LP_OK)
        program_close(context, p);
    else
        *program = p;
    return status;
}

static int64_t program_bytes(void *, const void *program)
{
    const cuda_program *p = static_cast<const cuda_program *>(program);
    const int64_t bytes = lp_device_exec_bytes(p->exec) + lp_device_push_bytes(p->push);
    return bytes + (p->captured == nullptr ? 0 : lp_device_push_bytes(p->captured));
}

static void program_leave(void *, void *program, int processors)
{
    lp_device_exec_leave(static_cast<cuda_program *>(program)->exec, processors);
}

/* The list of a captured push is made now, beside the stream: a graph repeats the moves, not the list. */
static int list_aside(cuda_program *p, const uint32_t *item, const void *const *base, uint32_t count)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int code = lp_cuda_cleared(cudaThreadExchangeStreamCaptureMode(&mode));
    if (code != 0)
        return code;
    code = lp_device_push_set(p->captured, item, base, count, p->aside);
    if (code == 0)
        code = lp_cuda_cleared(cudaStreamSynchronize(p->aside));
    const int back = lp_cuda_cleared(cudaThreadExchangeStreamCaptureMode(&mode));
    return code != 0 ? code : back;
}

static lp_status program_push(void *context, void *program, const uint32_t *item, const void *const *base,
                              uint32_t count, void *stream, lp_error *err)
{
    cuda_program *p = static_cast<cuda_program *>(program);
    bool captured = false;
    LP_TRY(lp_cuda_fail(err, is_captured(context, stream, &captured), "ask about the stream"));
    if (captured && p->captured == nullptr)
        return lp_fail(err, LP_E_MISUSE, "the plan was bound without room for captured pushes");
    lp_device_push *push = captured ? p->captured : p->push;
    const int code = captured ? list_aside(p, item, base, count) : lp_device_push_set(push, item, base, count, stream);
    LP_TRY(lp_cuda_fail(err, code, "list the tensors of a push"));
    return lp_cuda_fail(err, lp_device_push_run(push, stream), "start a push");
}

/* ---- derives ---- */

static int derives_open(void *, void **derives, lp_derive_table *table)
{
    return lp_device_derives_open(reinterpret_cast<lp_device_derives **>(derives), table);
}

static void derives_close(void *, void *derives)
{
    lp_device_derives_close(static_cast<lp_device_derives *>(derives));
}

static int64_t derives_bytes(void *, const void *derives)
{
    return lp_device_derives_bytes(static_cast<const lp_device_derives *>(derives));
}

static int derives_run(void *, void *derives, const uint32_t *job, uint32_t count, void *stream)
{
    return lp_device_derives_run(static_cast<const lp_device_derives *>(derives), job, count, stream);
}

static int derives_forget(void *, void *derives, void *stream)
{
    return lp_device_derives_forget(static_cast<const lp_device_derives *>(derives), stream);
}

static int derives_outcomes(void *, void *derives, lp_derive_outcome *out, void *stream)
{
    return lp_device_derives_outcomes(static_cast<const lp_device_derives *>(derives), out, stream);
}

/* ---- digests ---- */

/* What the kernel cannot count goes through the host. */
static lp_status add_on_host(const lp_plan *plan, uint32_t dest, lp_value_sum *sum, lp_error *err)
{
    const int64_t span = lp_destination_span(&plan->rows->dest[dest]);
    lp_form form;
    lp_destination_form(&plan->rows->dest[dest], &form);
    void *host = lp_allocate(plan->platform.alloc, static_cast<size_t>(span));
    if (host == nullptr)
        return lp_fail_memory(err);
    struct adder {
        lp_value_sum *sum;
        int64_t off;
        static lp_status add(void *context, const void *data, int64_t bytes, lp_error *)
        {
            adder *a = static_cast<adder *>(context);
            lp_value_sum_add(a->sum, a->off, data, bytes);
            a->off += bytes;
            return LP_OK;
        }
    } adder = {sum, 0};
    lp_status status = lp_cuda_fail(
        err, lp_cuda_cleared(cudaMemcpy(host, plan->address[dest], static_cast<size_t>(span), cudaMemcpyDeviceToHost)),
        "copy a tensor to the host");
    if (status == LP_OK)
        status = lp_form_walk(&form, host, plan->platform.alloc, adder::add, &adder, err);
    lp_release(plan->platform.alloc, host);
    return status;
}

static lp_status start_sums(const lp_plan *plan, uint32_t first, uint32_t count, uint64_t *sums, bool *on_host,
                            cudaStream_t stream, lp_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        lp_digest_job job;
        lp_form form;
        lp_destination_form(&plan->rows->dest[first + i], &form);
        const void *data = plan->address[first + i];
        on_host[i] = lp_digest_job_of(&job, &form, reinterpret_cast<uintptr_t>(data), NULL) != LP_OK;
        if (on_host[i] || form.bytes == 0)
            continue;
        LP_TRY(lp_cuda_fail(err, lp_device_value_sum(&job, data, sums + 2 * static_cast<size_t>(i), stream),
                            "digest a tensor"));
    }
    return LP_OK;
}

static lp_status digests(void *, const lp_plan *plan, uint32_t first, uint32_t count, void *sums,
                         uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    const size_t bytes = count * sizeof(lp_value_sum);
    lp_value_sum *host = static_cast<lp_value_sum *>(lp_allocate(alloc, bytes + 1));
    bool *on_host = static_cast<bool *>(lp_allocate(alloc, count + 1));
    lp_status status = host == nullptr || on_host == nullptr ? lp_fail_memory(err) : LP_OK;
    if (status == LP_OK)
        status = lp_cuda_fail(err, lp_cuda_cleared(cudaMemsetAsync(sums, 0, bytes, lp_cuda_stream(stream))),
                              "digest the tensors");
    if (status == LP_OK)
        status = start_sums(plan, first, count, static_cast<uint64_t *>(sums), on_host, lp_cuda_stream(stream), err);
    if (status == LP_OK)
        status = lp_cuda_fail(
            err, lp_cuda_cleared(cudaMemcpyAsync(host, sums, bytes, cudaMemcpyDeviceToHost, lp_cuda_stream(stream))),
            "digest the tensors");
    if (status == LP_OK)
        status = lp_cuda_fail(err, wait(nullptr, stream), "digest the tensors");
    for (uint32_t i = 0; i < count && status == LP_OK; i++) {
        if (on_host[i]) {
            host[i] = {};
            status = add_on_host(plan, first + i, &host[i], err);
        }
        lp_value_sum_end(&host[i], lp_destination_payload(&plan->rows->dest[first + i]), digest[i]);
    }
    lp_release(alloc, host);
    lp_release(alloc, on_host);
    return status;
}

/* ---- life ---- */

extern "C" lp_status lp_cuda_calls(lp_device_calls *out, const char *name, bool captures, lp_error *err)
{
    int ordinal;
    LP_TRY(lp_cuda_find(name, &ordinal, err));
    cuda_context *context = static_cast<cuda_context *>(malloc(sizeof *context));
    if (context == nullptr)
        return lp_fail_memory(err);
    *context = {ordinal, captures};
    lp_device_calls c = {};
    c.context = context;
    c.error_text = lp_cuda_error_text;
    c.enter = enter;
    c.leave = leave;
    c.take = lp_cuda_allocate;
    c.give = lp_cuda_release;
    c.take_pinned = take_pinned;
    c.give_pinned = give_pinned;
    c.is_ours = is_ours;
    c.is_captured = is_captured;
    c.copy = copy;
    c.copy_rows = copy_rows;
    c.gather = gather;
    c.clear = clear;
    c.dummy = dummy;
    c.wait = wait;
    c.program_open = program_open;
    c.program_close = program_close;
    c.program_bytes = program_bytes;
    c.program_leave = program_leave;
    c.program_push = program_push;
    c.derives_open = derives_open;
    c.derives_close = derives_close;
    c.derives_bytes = derives_bytes;
    c.derives_run = derives_run;
    c.derives_forget = derives_forget;
    c.derives_outcomes = derives_outcomes;
    c.digests = digests;
    *out = c;
    return LP_OK;
}

extern "C" void lp_cuda_calls_close(lp_device_calls *calls)
{
    free(calls->context);
    calls->context = nullptr;
}
