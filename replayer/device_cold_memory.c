/* SPDX-License-Identifier: Apache-2.0 */
/* Memory on a device for the destinations of a scope, and the way back to the host. */
#include "replayer/device_cold.h"
#include "replayer/plan.h"

enum { STORAGE_ALIGN = 512 };

lp_status lp_cold_check(const lp_cold_device *device, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, device->error_text(device->context, code));
}

/* Where each storage begins in the block; at[] goes by the numbers of `names`. */
static lp_status lay_out(lp_cold_memory *m, const lp_rows *rows, lp_strings *names, int64_t *at, int64_t *size,
                         lp_error *err)
{
    for (uint32_t i = 0; i < rows->ndest; i++) {
        const lp_destination *dest = &rows->dest[i];
        const int64_t number = lp_strings_add(names, dest->storage, strlen(dest->storage));
        if (number < 0)
            return lp_fail_memory(err);
        if (size[number] < dest->storage_bytes)
            size[number] = dest->storage_bytes;
    }
    for (int64_t i = 0; i < names->count; i++) {
        at[i] = m->bytes;
        if (!lp_add(m->bytes, size[i], &m->bytes) || !lp_add(m->bytes, STORAGE_ALIGN - 1, &m->bytes))
            return lp_fail(err, LP_E_LIMIT, "the destinations have more bytes than can be counted");
        m->bytes = m->bytes / STORAGE_ALIGN * STORAGE_ALIGN;
    }
    return LP_OK;
}

static lp_status take(lp_cold_memory *m, const lp_rows *rows, lp_strings *names, int64_t *at, int64_t *size,
                      lp_error *err)
{
    const lp_cold_device *d = m->device;
    LP_TRY(lay_out(m, rows, names, at, size, err));
    const int code = d->allocate(d->context, m->bytes + STORAGE_ALIGN, &m->block);
    if (code != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot take %lld bytes of device memory for the tensors: %s",
                       (long long)m->bytes, d->error_text(d->context, code));
    for (uint32_t i = 0; i < rows->ndest; i++) {
        const lp_destination *dest = &rows->dest[i];
        const int64_t number = lp_strings_find(names, dest->storage, strlen(dest->storage));
        m->list[i] = lp_memory_of(dest, (uint8_t *)m->block + at[number], size[number]);
    }
    m->count = rows->ndest;
    return LP_OK;
}

lp_status lp_cold_memory_take(lp_cold_memory *out, const lp_cold_device *device, const lp_trace *trace,
                              const lp_scope *scope, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    const lp_rows *rows;
    int32_t index;
    *out = (lp_cold_memory){.device = device, .alloc = p.alloc};
    LP_TRY(lp_replay_rows(trace, scope, &index, &rows, err));
    lp_strings names;
    lp_strings_init(&names, p.alloc);
    int64_t *at = lp_allocate_zero(p.alloc, ((size_t)rows->ndest + 1) * sizeof *at);
    int64_t *size = lp_allocate_zero(p.alloc, ((size_t)rows->ndest + 1) * sizeof *size);
    out->list = lp_allocate_zero(p.alloc, ((size_t)rows->ndest + 1) * sizeof *out->list);
    const lp_status status =
        at == NULL || size == NULL || out->list == NULL ? lp_fail_memory(err) : take(out, rows, &names, at, size, err);
    lp_strings_free(&names);
    lp_release(p.alloc, at);
    lp_release(p.alloc, size);
    if (status != LP_OK)
        lp_cold_memory_give_back(out);
    return status;
}

void lp_cold_memory_give_back(lp_cold_memory *memory)
{
    if (memory->device == NULL)
        return;
    memory->device->release(memory->device->context, memory->block);
    lp_release(memory->alloc, memory->list);
    *memory = (lp_cold_memory){.device = NULL};
}

lp_status lp_cold_fetch(const lp_cold_device *device, const lp_plan *from, lp_plan *to, lp_error *err)
{
    if (from->storage_count != to->storage_count)
        return lp_fail(err, LP_E_INTERNAL, "the plans are not of the same rows");
    for (uint32_t i = 0; i < from->storage_count; i++) {
        if (from->storage[i].bytes != to->storage[i].bytes)
            return lp_fail(err, LP_E_INTERNAL, "the plans are not of the same rows");
        if (from->storage[i].bytes > 0)
            LP_TRY(lp_cold_check(
                device,
                device->fetch(device->context, to->storage[i].base, from->storage[i].base, from->storage[i].bytes),
                "copy a tensor to the host", err));
    }
    return LP_OK;
}
