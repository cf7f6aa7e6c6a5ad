/* SPDX-License-Identifier: Apache-2.0 */
/* Derives over experts that have moved. Bind has seen to it that none of them needs staged checkpoint tensors. */
#include "replayer/derive_eval.h"
#include "replayer/expert_device.h"

/* The bytes of a destination, fetched where they are not the host's. *image is freed by the caller in that case. */
static lp_status image_of(const lp_plan *plan, const lp_expert_device *device, uint32_t dest, uint8_t **image,
                          lp_error *err)
{
    const int64_t bytes = lp_destination_span(&plan->rows->dest[dest]);
    if (device == NULL) {
        *image = plan->address[dest];
        return LP_OK;
    }
    *image = lp_allocate(plan->platform.alloc, (size_t)bytes);
    if (*image == NULL)
        return lp_fail_memory(err);
    const lp_cold_device *d = &device->table;
    const lp_status status = bytes == 0 ? LP_OK
                                        : lp_cold_check(d, d->fetch(d->context, *image, plan->address[dest], bytes),
                                                        "copy a tensor to the host", err);
    if (status != LP_OK)
        lp_release(plan->platform.alloc, *image);
    return status;
}

static lp_status put_back(const lp_plan *plan, const lp_expert_device *device, const lp_derive *derive,
                          const void *result, lp_error *err)
{
    uint8_t *image;
    lp_status status = LP_OK;
    LP_TRY(image_of(plan, device, derive->dest, &image, err));
    lp_exec_map(derive->map, image, result);
    if (device == NULL)
        return LP_OK;
    const lp_cold_device *d = &device->table;
    const int64_t bytes = lp_destination_span(&plan->rows->dest[derive->dest]);
    if (bytes > 0)
        status = lp_cold_check(d, d->store(d->context, plan->address[derive->dest], image, bytes),
                               "copy a tensor to the device", err);
    lp_release(plan->platform.alloc, image);
    return status;
}

static lp_status gather(const lp_plan *plan, const lp_expert_device *device, const lp_derive *derive, void **input,
                        lp_error *err)
{
    for (uint32_t i = 0; i < derive->ninput; i++) {
        const lp_derive_input *in = &derive->input[i];
        int64_t bytes;
        uint8_t *image;
        if (!lp_mul(in->count, lp_dtype_bits(in->dtype) / 8, &bytes) || in->map->dst_hi > bytes)
            return lp_fail(err, LP_E_CORRUPT, "a derive gathers more than its input holds");
        input[i] = lp_allocate_zero(plan->platform.alloc, (size_t)bytes);
        if (input[i] == NULL)
            return lp_fail_memory(err);
        LP_TRY(image_of(plan, device, in->index, &image, err));
        lp_exec_map(in->map, input[i], image);
        if (device != NULL)
            lp_release(plan->platform.alloc, image);
    }
    return LP_OK;
}

static lp_status run(const lp_plan *plan, const lp_expert_device *device, const lp_derive *derive, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    lp_derive_check check = {.failed = false};
    void *result = NULL;
    void **input = lp_allocate_zero(alloc, ((size_t)derive->ninput + 1) * sizeof *input);
    if (input == NULL)
        return lp_fail_memory(err);
    lp_status status = gather(plan, device, derive, input, err);
    if (status == LP_OK)
        status = lp_derive_evaluate(derive, (const void *const *)input, alloc, &result, &check, err);
    if (status == LP_OK && derive->dest != LP_NONE)
        status = put_back(plan, device, derive, result, err);
    if (status == LP_OK && check.failed) {
        char text[400];
        lp_derive_check_text(derive, &check, text, sizeof text);
        status = lp_fail(err, LP_E_VALUE, "%s", text);
    }
    for (uint32_t i = 0; i < derive->ninput; i++)
        lp_release(alloc, input[i]);
    lp_release(alloc, (void *)input);
    lp_release(alloc, result);
    return status;
}

/* Which derives read what has moved, directly or through others; jobs come in an order in which each stands behind
 * those that it waits for. */
static bool reads_moved(const lp_derive *derive, bool *has_moved, bool *is_staged)
{
    bool reads = false;
    *is_staged = false;
    for (uint32_t i = 0; i < derive->ninput; i++) {
        *is_staged = *is_staged || derive->input[i].staged;
        reads = reads || (!derive->input[i].staged && has_moved[derive->input[i].index]);
    }
    if (reads && derive->dest != LP_NONE)
        has_moved[derive->dest] = true;
    return reads;
}

lp_status lp_experts_derive(const lp_plan *plan, const lp_expert_device *device, bool only_check, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    lp_status status = LP_OK, failed = LP_OK;
    bool *has_moved = lp_allocate_zero(plan->platform.alloc, (size_t)rows->ndest + 1);
    if (has_moved == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < rows->ndest; i++)
        has_moved[i] = rows->dest[i].slot_dim >= 0;
    for (uint32_t j = 0; status == LP_OK && j < plan->job_count; j++) {
        bool is_staged;
        if (!reads_moved(plan->job[j].derive, has_moved, &is_staged) || plan->job[j].needs_fallback)
            continue;
        if (is_staged)
            status = lp_fail(err, LP_E_UNSUPPORTED,
                             "a derive reads both experts and staged checkpoint tensors, so that no move can rerun it");
        else if (!only_check)
            status = run(plan, device, plan->job[j].derive, failed == LP_OK ? err : NULL);
        if (status == LP_E_VALUE) { /* the others still run: what is there is whole */
            failed = status;
            status = LP_OK;
        }
    }
    lp_release(plan->platform.alloc, has_moved);
    return status == LP_OK ? failed : status;
}
