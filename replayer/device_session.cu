/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA as the device of sessions: the table of its calls. */
#include "replayer/device_session_cuda.cuh"

#include <cuda_runtime_api.h>
#include <stdlib.h>

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
    c.gather = lp_cuda_gather;
    c.clear = clear;
    c.dummy = lp_cuda_dummy;
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
    c.digests = lp_cuda_digests;
    *out = c;
    return LP_OK;
}

extern "C" void lp_cuda_calls_close(lp_device_calls *calls)
{
    free(calls->context);
    calls->context = nullptr;
}
