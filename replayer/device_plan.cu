/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on the device: items of the program are the plan's entries. */
extern "C" { /* headers of C rooms */
#include "replayer/device_program.h"
#include "replayer/plan.h"
}
#include "replayer/device_cuda.cuh"
#include "replayer/device_plan.h"

struct lp_device_plan {
    const lp_plan *plan;
    const lp_alloc *alloc;
    lp_device_exec *exec, *fill_exec;
    lp_device_push *push, *fill_push;
    const void **base_of; /* by entry; NULL: not in the push */
    const void **base;    /* of the push, as `item` */
    uint32_t *item;
};

/* Stands for the address of a tensor of which no byte is read. */
static const void *const NO_BYTES = reinterpret_cast<const void *>(16);

static uint64_t address_of(const lp_plan *plan, const lp_step *step)
{
    return reinterpret_cast<uintptr_t>(plan->address[step->dest]);
}

static lp_status compile_entries(lp_device_program *program, const lp_plan *plan, lp_error *err)
{
    LP_TRY(lp_device_program_reserve(program, plan->step_count, err));
    for (uint32_t e = 0; e < plan->entry_count; e++) {
        const lp_entry *entry = &plan->entry[e];
        for (uint32_t s = 0; s < entry->step_count; s++) {
            const lp_step *step = &plan->step[entry->first_step + s];
            if (step->stage == LP_NONE) /* inputs of derives are staged on the host */
                LP_TRY(lp_device_program_add(program, e, step, address_of(plan, step), err));
        }
    }
    return lp_device_program_end(program, err);
}

static lp_status compile_fills(lp_device_program *program, const lp_plan *plan, lp_error *err)
{
    for (int64_t f = 0; f < plan->fill_count; f++)
        LP_TRY(lp_device_program_add(program, 0, &plan->fill[f], address_of(plan, &plan->fill[f]), err));
    return lp_device_program_end(program, err);
}

/* A program and its push; the program's host copy is not needed after that. */
static lp_status open_program(lp_device_exec **exec, lp_device_push **push, const lp_plan *plan, uint32_t items,
                              uint32_t most, lp_status (*compile)(lp_device_program *, const lp_plan *, lp_error *),
                              lp_error *err)
{
    lp_device_program *program = NULL;
    LP_TRY(lp_device_program_new(&program, items, plan->platform.alloc, err));
    lp_status status = compile(program, plan, err);
    if (status == LP_OK)
        status = lp_cuda_fail(err, lp_device_exec_open(exec, program), "upload the plan");
    if (status == LP_OK)
        status = lp_cuda_fail(err, lp_device_push_open(push, *exec, most), "prepare pushes");
    lp_device_program_free(program);
    return status;
}

static lp_status open_all(lp_device_plan *d, uint32_t most, lp_error *err)
{
    const lp_plan *plan = d->plan;
    const size_t entries = static_cast<size_t>(plan->entry_count);
    d->base_of = static_cast<const void **>(lp_allocate_zero(d->alloc, entries * sizeof *d->base_of));
    d->base = static_cast<const void **>(lp_allocate(d->alloc, entries * sizeof *d->base));
    d->item = static_cast<uint32_t *>(lp_allocate(d->alloc, entries * sizeof *d->item));
    if (d->base_of == NULL || d->base == NULL || d->item == NULL)
        return lp_fail_memory(err);
    LP_TRY(open_program(&d->exec, &d->push, plan, plan->entry_count, most, compile_entries, err));
    if (plan->fill_count == 0)
        return LP_OK;
    LP_TRY(open_program(&d->fill_exec, &d->fill_push, plan, 1, 1, compile_fills, err));
    const uint32_t item = 0;
    return lp_cuda_fail(err, lp_device_push_set(d->fill_push, &item, &NO_BYTES, 1, NULL), "list the fills");
}

extern "C" lp_status lp_device_plan_open(lp_device_plan **out, const lp_plan *plan, uint32_t most, lp_error *err)
{
    if (plan->is_meta)
        return lp_fail(err, LP_E_UNSUPPORTED, "a plan of meta tensors has nothing to move");
    lp_device_plan *d = static_cast<lp_device_plan *>(lp_allocate_zero(plan->platform.alloc, sizeof *d));
    if (d == NULL)
        return lp_fail_memory(err);
    d->plan = plan;
    d->alloc = plan->platform.alloc;
    const uint32_t all = plan->entry_count;
    const lp_status status = open_all(d, most > 0 && most < all ? most : all, err);
    if (status != LP_OK) {
        lp_device_plan_close(d);
        return status;
    }
    *out = d;
    return LP_OK;
}

extern "C" void lp_device_plan_close(lp_device_plan *d)
{
    if (d == NULL)
        return;
    lp_device_push_close(d->push);
    lp_device_push_close(d->fill_push);
    lp_device_exec_close(d->exec);
    lp_device_exec_close(d->fill_exec);
    lp_release(d->alloc, d->base_of);
    lp_release(d->alloc, d->base);
    lp_release(d->alloc, d->item);
    lp_release(d->alloc, d);
}

extern "C" int64_t lp_device_plan_bytes(const lp_device_plan *d)
{
    int64_t bytes = lp_device_exec_bytes(d->exec) + lp_device_push_bytes(d->push);
    if (d->fill_exec != NULL)
        bytes += lp_device_exec_bytes(d->fill_exec) + lp_device_push_bytes(d->fill_push);
    return bytes;
}

extern "C" lp_status lp_device_plan_begin(lp_device_plan *d, void *stream, lp_error *err)
{
    return d->fill_push == NULL ? LP_OK : lp_cuda_fail(err, lp_device_push_run(d->fill_push, stream), "fill");
}

/* Enters one tensor in base_of; *entered is the entry, or LP_NONE. */
static lp_status enter(lp_device_plan *d, lp_handle handle, const void *data, uint32_t *entered, lp_error *err)
{
    *entered = LP_NONE;
    const char *name = lp_plan_name(d->plan, handle);
    if (name == NULL)
        return lp_fail(err, LP_E_UNKNOWN_NAME, "there is no tensor of handle %u", handle);
    const uint32_t e = d->plan->entry_of[handle];
    if (e == LP_NONE)
        return LP_OK;
    const lp_entry *entry = &d->plan->entry[e];
    if (entry->use == LP_USE_FALLBACK)
        return lp_fail(err, LP_E_REFUSED, "the loader's own code must load '%s'", name);
    if (d->base_of[e] != NULL)
        return lp_fail(err, LP_E_DUPLICATE, "'%s' is pushed twice", name);
    if (data == NULL && lp_device_plan_reads(d->plan, entry))
        return lp_fail(err, LP_E_ARGUMENT, "'%s' has no address", name);
    d->base_of[e] = data != NULL ? data : NO_BYTES;
    *entered = e;
    return LP_OK;
}

extern "C" lp_status lp_device_plan_set(lp_device_plan *d, const lp_handle *handle, const void *const *data,
                                        int64_t count, void *stream, lp_error *err)
{
    lp_status status = LP_OK;
    bool is_rising = true;
    uint32_t n = 0;
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        uint32_t e;
        status = enter(d, handle[i], data[i], &e, err);
        if (e == LP_NONE)
            continue;
        is_rising = is_rising && (n == 0 || e > d->item[n - 1]);
        d->item[n++] = e; /* no entry twice: n stays below entry_count */
    }
    if (status == LP_OK && !is_rising) {
        n = 0;
        for (uint32_t e = 0; e < d->plan->entry_count; e++)
            if (d->base_of[e] != NULL)
                d->item[n++] = e;
    }
    for (uint32_t i = 0; i < n; i++) {
        d->base[i] = d->base_of[d->item[i]];
        d->base_of[d->item[i]] = NULL;
    }
    if (status != LP_OK)
        return status;
    return lp_cuda_fail(err, lp_device_push_set(d->push, d->item, d->base, n, stream), "list the tensors of a push");
}

extern "C" lp_status lp_device_plan_run(lp_device_plan *d, void *stream, lp_error *err)
{
    return lp_cuda_fail(err, lp_device_push_run(d->push, stream), "start a push");
}
