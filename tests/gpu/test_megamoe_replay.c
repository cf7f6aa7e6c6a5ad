/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From checkpoint bytes to a layer's output: a safetensors file is written, its trace recorded by the built-in loader,
 * saved, read again and replayed into memory; lp_megamoe on those bytes must give what the reference computes from the
 * checkpoint. Then the same plan reloads another checkpoint under a captured call.
 */
#include "gpu_testing.h"
#include "kernels/number_formats.h"
#include "megamoe_problem.h"
#include "recorder/recorder.h"
#include "replayer/replayer.h"

#include <string.h>
#include <unistd.h>

enum { EXPERTS = 4, HIDDEN = 512, INNER = 256, SHARED = 384, CHOICES = 2, CAP = 64, THREADS = 8 };

static const char *const part[3] = {"gate_proj", "up_proj", "down_proj"};

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        lp_error err_ = {0}, *const err = &err_;                                                                       \
        CHECK((call) == LP_OK, "%s: %s", #call, err_.text);                                                            \
    } while (0)

/* ---- the checkpoint ---- */

typedef struct named_bytes {
    char name[96];
    const char *dtype;
    int64_t rows, columns; /* columns 0: a scalar */
    const uint8_t *data;
    int64_t bytes;
} named_bytes;

static void write_file(const char *path, const named_bytes *tensor, int count)
{
    FILE *const f = fopen(path, "wb");
    CHECK(f != NULL, "cannot write '%s'", path);
    static char header[1 << 16];
    int64_t at = 0;
    int used = snprintf(header, sizeof header, "{");
    for (int i = 0; i < count; i++) {
        const named_bytes *const t = &tensor[i];
        char shape[48] = "";
        if (t->columns > 0)
            snprintf(shape, sizeof shape, "%lld,%lld", (long long)t->rows, (long long)t->columns);
        used += snprintf(header + used, sizeof header - (size_t)used,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}", i > 0 ? "," : "",
                         t->name, t->dtype, shape, (long long)at, (long long)(at + t->bytes));
        at += t->bytes;
    }
    used += snprintf(header + used, sizeof header - (size_t)used, "}");
    while (used % 8 != 0)
        header[used++] = ' ';
    const uint64_t length = (uint64_t)used;
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, (size_t)used, f);
    for (int i = 0; i < count; i++)
        fwrite(tensor[i].data, 1, (size_t)tensor[i].bytes, f);
    CHECK(fclose(f) == 0, "cannot write '%s'", path);
}

/* The shared experts, MXFP8: six tensors. */
static int shared_tensors(named_bytes *tensor, const moe_problem *p)
{
    const void *const code[3] = {p->weights.gate, p->weights.up, p->weights.down};
    const void *const scale[3] = {p->weights.gate_scale, p->weights.up_scale, p->weights.down_scale};
    for (int i = 0; i < 3; i++) {
        const int64_t rows = i < 2 ? SHARED : HIDDEN, columns = i < 2 ? HIDDEN : SHARED;
        named_bytes *const t = &tensor[2 * i];
        t[0] = (named_bytes){"", "F8_E4M3", rows, columns, code[i], rows * columns};
        t[1] = (named_bytes){"", "F8_E8M0", rows, columns / 32, scale[i], rows * columns / 32};
        for (int k = 0; k < 2; k++)
            snprintf(t[k].name, sizeof t[k].name, "model.layers.0.mlp.shared_experts.%s.%s", part[i],
                     k == 0 ? "weight" : "weight_scale");
    }
    return 6;
}

/* One layer's experts, named as ModelOpt names them. */
static void write_checkpoint(const char *path, const moe_problem *p)
{
    static named_bytes tensor[EXPERTS * 3 * 4 + 6];
    const void *const code[3] = {p->weights.gate, p->weights.up, p->weights.down};
    const void *const scale[3] = {p->weights.gate_scale, p->weights.up_scale, p->weights.down_scale};
    const bool nvfp4 = p->shape.format == LP_NVFP4;
    const int64_t per = nvfp4 ? 16 : 32;
    int count = 0;
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; i < 3; i++) {
            const int64_t rows = i < 2 ? INNER : HIDDEN, columns = i < 2 ? HIDDEN : INNER;
            const int64_t code_bytes = rows * columns / 2, scale_bytes = rows * columns / per;
            named_bytes *const t = &tensor[count];
            t[0] = (named_bytes){"", "U8", rows, columns / 2, (const uint8_t *)code[i] + e * code_bytes, code_bytes};
            t[1] = (named_bytes){"",
                                 nvfp4 ? "F8_E4M3" : "F8_E8M0",
                                 rows,
                                 columns / per,
                                 (const uint8_t *)scale[i] + e * scale_bytes,
                                 scale_bytes};
            for (int k = 0; k < 2; k++)
                snprintf(t[k].name, sizeof t[k].name, "model.layers.0.mlp.experts.%d.%s.%s", e, part[i],
                         k == 0 ? "weight" : "weight_scale");
            count += 2;
            if (!nvfp4)
                continue;
            const float *const alpha = i < 2 ? &p->weights.l1_alpha[2 * e + i] : &p->weights.l2_alpha[e];
            t[2] = (named_bytes){"", "F32", 0, 0, (const uint8_t *)alpha, 4};
            t[3] = (named_bytes){"", "F32", 0, 0, (const uint8_t *)p->weights.l2_activation_scale, 4};
            for (int k = 2; k < 4; k++)
                snprintf(t[k].name, sizeof t[k].name, "model.layers.0.mlp.experts.%d.%s.%s", e, part[i],
                         k == 2 ? "weight_scale_2" : "input_scale");
            count += 2;
        }
    count += shared_tensors(tensor + count, p->shared);
    write_file(path, tensor, count);
}

/* ---- replay ---- */

static const lp_destination_memory *find(const lp_destinations *d, const char *name)
{
    int64_t count;
    const lp_destination_memory *const list = lp_destinations_list(d, &count);
    for (int64_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    CHECK(false, "the trace has no destination '%s'", name);
    return NULL;
}

static void replay(lp_plan *plan, const char *path, lp_load_mode mode)
{
    lp_checkpoint *checkpoint;
    lp_session *session;
    lp_report report;
    OK(lp_checkpoint_open(&checkpoint, path, err));
    OK(lp_begin(&session, plan, &(lp_session_options){.mode = mode}, err));
    OK(lp_push_checkpoint(session, checkpoint, err));
    OK(lp_finish(session, &report, err));
    lp_session_close(session);
    lp_checkpoint_close(checkpoint);
}

/* ---- the layer ---- */

typedef struct layer {
    lp_megamoe_weights weights, shared;
    lp_megamoe_io io;
    void *workspace;
    int64_t workspace_bytes;
} layer;

static const char *const slot_name[LP_MOE_SLOTS] = {"w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"};
static const char *const shared_name[LP_MOE_SLOTS] = {"shared_l1_weight", "shared_l1_weight_scale", "shared_l2_weight",
                                                      "shared_l2_weight_scale"};

static void *device(int64_t bytes)
{
    void *memory;
    CUDA(cudaMalloc(&memory, (size_t)bytes));
    return memory;
}

static const lp_destination_memory *expert_tensor(const lp_destinations *d, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "layers.0.mlp.experts.%s", name);
    return find(d, full);
}

static void copy_to(const void *to, const void *from, int64_t bytes)
{
    put_device((void *)(uintptr_t)to, from, (size_t)bytes);
}

static void upload_experts(lp_megamoe_weights *weights, const lp_megamoe_shape *shape, const lp_destinations *d,
                           const char *const name[LP_MOE_SLOTS])
{
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        const lp_destination_memory *const m = expert_tensor(d, name[slot]);
        lp_megamoe_tensor *const t = &weights->tensor[slot];
        if (t->data == NULL) {
            const void *const memory = device(m->storage_bytes);
            /* what the trace says about the tensor, and nothing that this test knows */
            OK(lp_megamoe_tensor_in(t, shape, m->layout, memory, err));
            t->version = m->layout_version;
            t->dtype = m->dtype;
            memcpy(t->shape, m->shape, (size_t)m->ndim * sizeof t->shape[0]);
            memcpy(t->stride, m->stride, (size_t)m->ndim * sizeof t->stride[0]);
        }
        copy_to(t->data, m->data, m->storage_bytes);
    }
}

static void upload_weights(layer *l, const lp_megamoe_shape *shape, const lp_destinations *d)
{
    const lp_megamoe_shape shared = lp_megamoe_shared_shape(shape);
    upload_experts(&l->weights, shape, d, slot_name);
    upload_experts(&l->shared, &shared, d, shared_name);
    l->weights.shared = &l->shared;
    if (shape->format != LP_NVFP4)
        return;
    /* Row 0 is what the kernel reads; l2_alpha has the scale of SM100's quantised h folded in, as its loaders do. */
    const float *const l1 = expert_tensor(d, "w13_weight_scale_2")->data, *const l2 =
                                                                              expert_tensor(d, "w2_weight_scale_2")
                                                                                  ->data;
    const float *const activation = expert_tensor(d, "l2_activation_scale")->data;
    float folded[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        folded[e] = l2[e] * *activation;
    if (l->weights.l1_alpha == NULL) {
        l->weights.l1_alpha = device(EXPERTS * 4), l->weights.l2_alpha = device(EXPERTS * 4);
        l->weights.l2_activation_scale = device(16);
        l->weights.l1_alpha_columns = 1;
    }
    copy_to(l->weights.l1_alpha, l1, EXPERTS * 4);
    copy_to(l->weights.l2_alpha, folded, EXPERTS * 4);
    copy_to(l->weights.l2_activation_scale, activation, 4);
}

static void upload_tokens(layer *l, const moe_problem *p)
{
    const int32_t tokens = (int32_t)p->input.tokens;
    copy_to(l->io.x, p->input.x, tokens * HIDDEN * 2);
    copy_to(l->io.topk_ids, p->input.ids, tokens * CHOICES * 8);
    copy_to(l->io.topk_weight, p->input.weight, tokens * CHOICES * 4);
    copy_to(l->io.tokens, &tokens, 4);
    fill_device(l->io.y, 0xff, CAP * HIDDEN * 2);
    CUDA(cudaDeviceSynchronize());
}

static void check(const char *what, const layer *l, const moe_problem *p)
{
    static uint16_t y[CAP * HIDDEN];
    static double rounded[CAP * HIDDEN], exact[CAP * HIDDEN];
    int64_t token[CAP];
    for (int64_t i = 0; i < p->input.tokens; i++)
        token[i] = i;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(y, l->io.y, sizeof y, cudaMemcpyDeviceToHost));
    /* The loaded scale is folded in and divided out again: the reference has neither. */
    reference_weights w = p->weights;
    w.l2_activation_scale = NULL;
    reference_tokens(&p->shape, &w, &p->input, token, p->input.tokens, THREADS, rounded, exact);
    const reference_error e = reference_compare(y, rounded, token, p->input.tokens, HIDDEN);
    printf("%-28s error %.2e, worst row %.2e, unrounded %.2e\n", what, e.relative, e.worst_row,
           reference_compare(y, exact, token, p->input.tokens, HIDDEN).relative);
    CHECK(e.relative <= 5e-3 && e.wrong_nan == 0, "%s is wrong", what); /* E4M3 activations of the shared experts */
}

/* ---- one format ---- */

static void make(moe_problem *p, const lp_megamoe_shape *shape, uint64_t seed, int64_t tokens)
{
    OK(problem_make(p, shape, 0, SCALES_USUAL, seed, err));
    problem_route(p, tokens, ROUTE_UNIFORM, 0, seed);
    if (shape->format == LP_NVFP4) /* gate and up share a scale in such checkpoints */
        for (int e = 0; e < EXPERTS; e++)
            ((float *)(uintptr_t)p->weights.l1_alpha)[2 * e + 1] = p->weights.l1_alpha[2 * e];
}

static void run(lp_moe_format format, const char *folder)
{
    const lp_megamoe_shape shape = {.size = sizeof shape,
                                    .experts = EXPERTS,
                                    .hidden = HIDDEN,
                                    .intermediate = INNER,
                                    .top_k = CHOICES,
                                    .max_tokens = CAP,
                                    .format = format,
                                    .x_dtype = LP_BF16,
                                    .id_dtype = LP_I64,
                                    .shared_intermediate = SHARED,
                                    .shared_format = LP_MXFP8};
    const char *const kind = format == LP_NVFP4 ? "nvfp4" : "mxfp4";
    char path[2][512], trace_path[512];
    moe_problem p[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s-%d.safetensors", folder, kind, i);
        make(&p[i], &shape, 77 + (uint64_t)i, i == 0 ? 40 : 19);
        write_checkpoint(path[i], &p[i]);
    }
    snprintf(trace_path, sizeof trace_path, "%s/%s.lpt", folder, kind);
    static const char config[] = "{\"num_hidden_layers\":1,\"hidden_size\":512,\"moe_intermediate_size\":256}";
    lp_checkpoint *checkpoint;
    lp_trace *recorded, *trace;
    lp_destinations *memory;
    lp_plan *plan;
    OK(lp_checkpoint_open(&checkpoint, path[0], err));
    OK(lp_load_checkpoint(
        &recorded, checkpoint,
        &(lp_loader_options){.loader = "megamoe", .config = config, .config_bytes = sizeof config - 1}, err));
    OK(lp_trace_save(recorded, trace_path, true, err));
    lp_trace_close(recorded);
    lp_checkpoint_close(checkpoint);
    OK(lp_trace_open(&trace, trace_path, err));
    OK(lp_destinations_allocate(&memory, trace, &(lp_scope){0}, false, NULL, err));
    int64_t count;
    const lp_destination_memory *const list = lp_destinations_list(memory, &count);
    OK(lp_bind(&plan, trace, &(lp_scope){0}, list, count, NULL, err));
    replay(plan, path[0], LP_COLD);

    layer l = {.weights.size = sizeof l.weights, .shared.size = sizeof l.shared, .io.size = sizeof l.io};
    lp_error err = {0};
    l.workspace_bytes = lp_megamoe_workspace(&shape, &err);
    CHECK(l.workspace_bytes > 0, "%s", err.text);
    l.workspace = device(l.workspace_bytes);
    l.io.x = device(CAP * HIDDEN * 2), l.io.topk_ids = device(CAP * CHOICES * 8),
    l.io.topk_weight = device(CAP * CHOICES * 4);
    l.io.tokens = device(16), l.io.y = device(CAP * HIDDEN * 2);
    upload_weights(&l, &shape, memory);
    upload_tokens(&l, &p[0]);

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(lp_megamoe(&shape, &l.weights, &l.io, l.workspace, l.workspace_bytes, stream, &err) == LP_OK, "%s", err.text);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, stream));
    check(kind, &l, &p[0]);

    replay(plan, path[1], LP_DIRECT);
    upload_weights(&l, &shape, memory);
    upload_tokens(&l, &p[1]);
    CUDA(cudaGraphLaunch(exec, stream));
    check(format == LP_NVFP4 ? "nvfp4, other weights" : "mxfp4, other weights", &l, &p[1]);

    lp_plan_close(plan);
    lp_destinations_free(memory);
    lp_trace_close(trace);
    for (int i = 0; i < 2; i++) {
        problem_free(&p[i]);
        unlink(path[i]);
    }
    unlink(trace_path);
}

int main(void)
{
    char folder[] = "/tmp/megamoe-XXXXXX";
    need_gpu();
    CHECK(mkdtemp(folder) != NULL, "no temporary folder");
    run(LP_MXFP4, folder);
    run(LP_NVFP4, folder);
    rmdir(folder);
    return 0;
}
