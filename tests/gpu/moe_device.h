/* SPDX-License-Identifier: Apache-2.0 */
/* A problem of the MegaMoE reference in device memory: weights, tokens in any order, poisoned outputs, one call. */
#ifndef LOADPLAN_MOE_DEVICE_H
#define LOADPLAN_MOE_DEVICE_H

#include "gpu_testing.h"
#include "megamoe_problem.h"

typedef struct device_problem {
    lp_megamoe_weights weights, shared;
    lp_megamoe_io io;
    void *workspace;
    int64_t workspace_bytes;
    void *allocation[32];
    int count;
} device_problem;

static inline void *device_bytes(device_problem *d, const void *from, int64_t bytes)
{
    void *memory;
    CUDA(cudaMalloc(&memory, (size_t)(bytes > 0 ? bytes : 16)));
    if (from != NULL && bytes > 0)
        put_device(memory, from, (size_t)bytes);
    d->allocation[d->count++] = memory;
    return memory;
}

static inline void upload_experts(device_problem *d, lp_megamoe_weights *weights, const moe_problem *p)
{
    lp_error err = {0};
    *weights = (lp_megamoe_weights){.size = sizeof *weights};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
        if (p->layout[slot] != NULL) {
            const void *const data = device_bytes(d, p->packed[slot], p->packed_bytes[slot]);
            CHECK(lp_megamoe_tensor_in(&weights->tensor[slot], &p->shape, p->layout[slot], data, &err) == LP_OK, "%s",
                  err.text);
        }
    if (p->weights.l1_alpha != NULL) {
        weights->l1_alpha = device_bytes(d, p->weights.l1_alpha, p->shape.experts * 8);
        weights->l2_alpha = device_bytes(d, p->weights.l2_alpha, p->shape.experts * 4);
        weights->l2_activation_scale = device_bytes(d, p->weights.l2_activation_scale, 4);
        weights->l1_alpha_columns = p->weights.l1_alpha_columns;
    }
}

static inline void upload_weights(device_problem *d, const moe_problem *p)
{
    lp_error err = {0};
    *d = (device_problem){.io.size = sizeof d->io};
    upload_experts(d, &d->weights, p);
    if (p->shared != NULL) {
        upload_experts(d, &d->shared, p->shared);
        d->weights.shared = &d->shared;
    }
    const int64_t cap = p->shape.max_tokens, x_bytes = p->shape.x_dtype == LP_BF16 ? 2 : 1;
    d->io.x = device_bytes(d, NULL, cap * p->shape.hidden * x_bytes);
    if (x_bytes == 1)
        d->io.x_scale = device_bytes(d, NULL, cap * (p->shape.hidden / 128) * 4);
    d->io.topk_ids = device_bytes(d, NULL, cap * p->shape.top_k * 8);
    d->io.topk_weight = device_bytes(d, NULL, cap * p->shape.top_k * 4);
    d->io.tokens = device_bytes(d, NULL, 4);
    d->io.received = device_bytes(d, NULL, p->shape.experts * 4);
    d->io.y = device_bytes(d, NULL, cap * p->shape.hidden * 2);
    d->workspace_bytes = lp_megamoe_workspace(&p->shape, &err);
    CHECK(d->workspace_bytes > 0, "%s", err.text);
    d->workspace = device_bytes(d, NULL, d->workspace_bytes);
}

static inline void put(const void *to, const void *from, int64_t bytes)
{
    if (bytes > 0)
        put_device((void *)(uintptr_t)to, from, (size_t)bytes);
}

/* Tokens in the order token -> (token * step) % tokens. */
static inline void upload_tokens(device_problem *d, const moe_problem *p, int64_t step)
{
    const lp_megamoe_shape *const s = &p->shape;
    const int64_t tokens = p->input.tokens, row = s->hidden * (s->x_dtype == LP_BF16 ? 2 : 1),
                  blocks = s->hidden / 128 * 4;
    const int32_t count = (int32_t)tokens;
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t from = t * step % tokens, k = s->top_k;
        if (step == 1 && t > 0)
            break; /* all at once */
        const int64_t rows = step == 1 ? tokens : 1;
        put((const char *)d->io.x + t * row, (const char *)p->input.x + from * row, rows * row);
        if (d->io.x_scale != NULL)
            put((const char *)d->io.x_scale + t * blocks, (const char *)p->input.x_scale + from * blocks,
                rows * blocks);
        put((const char *)d->io.topk_weight + t * k * 4, p->input.weight + from * k, rows * k * 4);
        if (s->id_dtype == LP_I64) {
            put((const char *)d->io.topk_ids + t * k * 8, p->input.ids + from * k, rows * k * 8);
            continue;
        }
        for (int64_t i = 0; i < rows * k; i++) {
            const int32_t id = (int32_t)p->input.ids[from * k + i];
            put((const char *)d->io.topk_ids + (t * k + i) * 4, &id, 4);
        }
    }
    put(d->io.tokens, &count, 4);
}

static inline void poison(const moe_problem *p, device_problem *d)
{
    fill_device(d->workspace, 0xff, (size_t)d->workspace_bytes);
    fill_device(d->io.y, 0xff, (size_t)(p->shape.max_tokens * p->shape.hidden * 2));
    fill_device(d->io.received, 0, (size_t)p->shape.experts * 4);
}

static inline void fetch(const moe_problem *p, const device_problem *d, uint16_t *y)
{
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(y, d->io.y, (size_t)(p->shape.max_tokens * p->shape.hidden * 2), cudaMemcpyDeviceToHost));
}

static inline void run(const moe_problem *p, device_problem *d, uint16_t *y)
{
    lp_error err = {0};
    poison(p, d);
    CHECK(lp_megamoe(&p->shape, &d->weights, &d->io, d->workspace, d->workspace_bytes, NULL, &err) == LP_OK, "%s",
          err.text);
    fetch(p, d, y);
}

static inline void free_device(const device_problem *d)
{
    for (int i = 0; i < d->count; i++)
        CUDA(cudaFree(d->allocation[i]));
}

#endif
