/* SPDX-License-Identifier: Apache-2.0 */
/* Fresh memory for the destinations of a scope: one zeroed block for each storage. */
#include "replayer/device_session.h"

enum {
    LINE = 64, /* storages begin at cache lines, so that whole lines can be written around the cache */
    DEVICE_ALIGN = 512
};

struct lp_destinations {
    lp_platform platform;
    lp_destination_memory *memory;
    void **block;
    int64_t *block_bytes;
    int64_t count, block_count, bytes;
    lp_device_calls calls; /* of storages on a device; else zero */
    void *on_device;       /* their block */
};

void lp_destination_form(const lp_destination *dest, lp_form *form)
{
    const int bits = lp_dtype_bits(dest->dtype);
    *form = (lp_form){.unit = bits / 8, .ndim = dest->ndim};
    if (bits < 8) { /* a row of a sub-byte dtype is whole bytes without gaps */
        form->unit = dest->ndim > 0 ? dest->shape[dest->ndim - 1] * bits / 8 : 0;
        form->ndim = dest->ndim > 0 ? dest->ndim - 1 : 0;
    }
    form->bytes = form->span = form->unit;
    for (int32_t i = 0; i < form->ndim; i++) {
        form->shape[i] = dest->shape[i];
        form->stride[i] = dest->stride[i];
        form->bytes = form->shape[i] == 0 ? 0 : form->bytes * form->shape[i];
        form->span += (form->shape[i] - 1) * form->stride[i];
    }
    if (form->bytes == 0)
        form->span = 0;
}

int64_t lp_destination_payload(const lp_destination *dest)
{
    lp_form form;
    lp_destination_form(dest, &form);
    return form.bytes;
}

int64_t lp_destination_span(const lp_destination *dest)
{
    lp_form form;
    lp_destination_form(dest, &form);
    return form.span;
}

static lp_status find_scope(const lp_trace *trace, const lp_scope *scope, int32_t *index, lp_error *err)
{
    lp_scope at = scope == NULL ? (lp_scope){0} : *scope;
    LP_TRY(lp_scope_normalise(&at, err));
    if (lp_scope_world(&at) == 1 && lp_trace_scope_count(trace) == 1) {
        *index = 0;
        return LP_OK;
    }
    *index = lp_trace_scope_find(trace, lp_scope_rank(&at));
    if (*index < 0)
        return lp_fail(err, LP_E_UNKNOWN_NAME, "the trace has no rank %d", lp_scope_rank(&at));
    const lp_scope *have = lp_trace_scope_at(trace, *index);
    if (have->pp != at.pp || have->dp != at.dp || have->tp != at.tp || have->expert_parallel != at.expert_parallel)
        return lp_fail(err, LP_E_MISMATCH,
                       "rank %d is of another layout: pp %d dp %d tp %d%s, the trace has pp %d dp %d tp %d%s",
                       lp_scope_rank(&at), at.pp, at.dp, at.tp, at.expert_parallel ? " ep" : "", have->pp, have->dp,
                       have->tp, have->expert_parallel ? " ep" : "");
    return LP_OK;
}

lp_status lp_replay_rows(const lp_trace *trace, const lp_scope *scope, int32_t *index, const lp_rows **rows,
                         lp_error *err)
{
    LP_TRY(find_scope(trace, scope, index, err));
    return lp_trace_rows(trace, *index, rows, err);
}

/* One block of the device, zeroed, with all storages one after the other. */
static lp_status take_device_block(lp_destinations *d, int64_t count, lp_error *err)
{
    const lp_device_calls *c = &d->calls;
    int64_t bytes = 0;
    void *block = NULL;
    int before;
    for (int64_t i = 0; i < count; i++)
        if (!lp_add(bytes, d->block_bytes[i], &bytes) || !lp_add(bytes, DEVICE_ALIGN - 1, &bytes))
            return lp_fail(err, LP_E_LIMIT, "the destinations have more bytes than can be counted");
        else
            bytes = bytes / DEVICE_ALIGN * DEVICE_ALIGN;
    if (bytes == 0)
        return LP_OK;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    int code = c->take(c->context, bytes, &block);
    d->on_device = code == 0 ? block : NULL;
    if (code == 0)
        code = c->clear(c->context, block, bytes, NULL);
    if (code == 0)
        code = c->wait(c->context, NULL);
    c->leave(c->context, before);
    if (code != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot take %lld bytes of device memory for the tensors: %s",
                       (long long)bytes, c->error_text(c->context, code));
    uint8_t *at = d->on_device;
    for (int64_t i = 0; i < count; i++) {
        d->block[i] = at;
        at += (d->block_bytes[i] + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
    }
    return LP_OK;
}

/* One block for each storage name, of the largest size that a destination states for it. */
static lp_status take_blocks(lp_destinations *d, const lp_rows *rows, lp_strings *names, bool meta, lp_error *err)
{
    const bool on_device = d->calls.take != NULL;
    for (uint32_t i = 0; i < rows->ndest; i++) {
        const lp_destination *dest = &rows->dest[i];
        const int64_t number = lp_strings_add(names, dest->storage, strlen(dest->storage));
        if (number < 0)
            return lp_fail_memory(err);
        if (d->block_bytes[number] < dest->storage_bytes)
            d->block_bytes[number] = dest->storage_bytes;
    }
    for (int64_t i = 0; i < names->count; i++) {
        if (!lp_add(d->bytes, d->block_bytes[i], &d->bytes))
            return lp_fail(err, LP_E_LIMIT, "the destinations have more bytes than can be counted");
        if (meta || on_device)
            continue;
        d->block[i] = lp_allocate_zero(d->platform.alloc, (size_t)d->block_bytes[i] + LINE - 1);
        if (d->block[i] == NULL)
            return lp_fail_at(err, LP_E_MEMORY, names->text[i], -1, "no memory for storage '%s' of %lld bytes",
                              names->text[i], (long long)d->block_bytes[i]);
        d->block_count = i + 1;
    }
    return on_device ? take_device_block(d, names->count, err) : LP_OK;
}

lp_destination_memory lp_memory_of(const lp_destination *dest, uint8_t *storage, int64_t storage_bytes)
{
    return (lp_destination_memory){
        .name = dest->name,
        .dtype = dest->dtype,
        .ndim = dest->ndim,
        .shape = dest->shape,
        .stride = dest->stride,
        .data = storage == NULL ? NULL : storage + dest->offset,
        .storage = storage,
        .storage_bytes = storage_bytes,
        .layout = dest->layout,
        .layout_version = dest->layout_version,
    };
}

static lp_status give_memory(lp_destinations *d, const lp_rows *rows, bool meta, lp_error *err)
{
    lp_strings names;
    lp_strings_init(&names, d->platform.alloc);
    const lp_status status = take_blocks(d, rows, &names, meta, err);
    for (uint32_t i = 0; status == LP_OK && i < rows->ndest; i++) {
        const lp_destination *dest = &rows->dest[i];
        const int64_t number = lp_strings_find(&names, dest->storage, strlen(dest->storage));
        uint8_t *base = d->block[number];
        if (base != NULL)
            base += -(uintptr_t)base & (LINE - 1);
        d->memory[i] = lp_memory_of(dest, base, d->block_bytes[number]);
    }
    lp_strings_free(&names);
    return status;
}

static lp_status allocate(lp_destinations **out, const lp_trace *trace, const lp_scope *scope, bool meta,
                          const char *device, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    const lp_rows *rows;
    int32_t index;
    LP_TRY(lp_replay_rows(trace, scope, &index, &rows, err));
    lp_destinations *d = lp_allocate_zero(p.alloc, sizeof *d);
    if (d == NULL)
        return lp_fail_memory(err);
    d->platform = p;
    d->count = rows->ndest;
    d->memory = lp_allocate_zero(p.alloc, rows->ndest * sizeof *d->memory);
    d->block = lp_allocate_zero(p.alloc, rows->ndest * sizeof *d->block);
    d->block_bytes = lp_allocate_zero(p.alloc, rows->ndest * sizeof *d->block_bytes);
    lp_status status = d->block_bytes == NULL || d->memory == NULL || d->block == NULL ? lp_fail_memory(err) : LP_OK;
    if (status == LP_OK && device != NULL)
        status = lp_cuda_calls(&d->calls, device, false, err);
    if (status == LP_OK)
        status = give_memory(d, rows, meta, err);
    if (status != LP_OK) {
        lp_destinations_free(d);
        return status;
    }
    *out = d;
    return LP_OK;
}

lp_status lp_destinations_allocate(lp_destinations **out, const lp_trace *trace, const lp_scope *scope, bool meta,
                                   const lp_platform *platform, lp_error *err)
{
    return allocate(out, trace, scope, meta, NULL, platform, err);
}

lp_status lp_destinations_allocate_on(lp_destinations **out, const lp_trace *trace, const lp_scope *scope,
                                      const char *device, const lp_platform *platform, lp_error *err)
{
    return allocate(out, trace, scope, false, device, platform, err);
}

const lp_destination_memory *lp_destinations_list(const lp_destinations *d, int64_t *count)
{
    *count = d->count;
    return d->memory;
}

int64_t lp_destinations_bytes(const lp_destinations *d)
{
    return d->bytes;
}

void lp_destinations_free(lp_destinations *d)
{
    if (d == NULL)
        return;
    for (int64_t i = 0; d->block != NULL && i < d->block_count; i++)
        lp_release(d->platform.alloc, d->block[i]);
    if (d->calls.take != NULL) {
        int before;
        const lp_device_calls *c = &d->calls;
        if (d->on_device != NULL && c->enter(c->context, &before) == 0) {
            c->give(c->context, d->on_device);
            c->leave(c->context, before);
        }
        lp_cuda_calls_close(&d->calls);
    }
    lp_release(d->platform.alloc, d->block_bytes);
    lp_release(d->platform.alloc, d->block);
    lp_release(d->platform.alloc, d->memory);
    lp_release(d->platform.alloc, d);
}
