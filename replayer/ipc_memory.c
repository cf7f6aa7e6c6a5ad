/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other processes can map: sealed memory of the host, or allocations of a device with their handles. */
#include "replayer/ipc_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

lp_status lp_ipc_memory_new(int *fd, uint8_t **map, const char *name, int64_t bytes, lp_error *err)
{
    const int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return lp_fail_errno(err, errno, "make memory to share for", name);
    /* Whoever maps it may rely on its size: nobody can cut it off below a mapping. */
    if (ftruncate(made, bytes) != 0 || fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        goto failed;
    void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (at == MAP_FAILED)
        goto failed;
    *fd = made;
    *map = at;
    return LP_OK;
failed:
    (void)lp_fail(err, LP_E_MEMORY, "no memory to share for %s, %lld bytes", name, (long long)bytes);
    close(made);
    return LP_E_MEMORY;
}

static lp_status new_shared(lp_shared **out, const lp_rows *rows, const lp_ipc_device *device, const lp_alloc *alloc,
                            lp_error *err)
{
    lp_shared *s = lp_allocate_zero(alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(err);
    s->alloc = alloc;
    s->device = device;
    s->fd = -1;
    memcpy(s->name, device == NULL ? "cpu" : device->name, device == NULL ? sizeof "cpu" : sizeof s->name);
    const lp_status status = lp_ipc_places_make(&s->places, rows, alloc, err);
    if (status != LP_OK) {
        lp_release(alloc, s);
        return status;
    }
    s->block = lp_allocate_zero(alloc, ((size_t)s->places.count + 1) * sizeof *s->block);
    s->storage = lp_allocate_zero(alloc, ((size_t)s->places.count + 1) * sizeof *s->storage);
    if (s->block == NULL || s->storage == NULL) {
        lp_shared_free(s);
        return lp_fail_memory(err);
    }
    *out = s;
    return LP_OK;
}

/* All storages one after the other in one block; *bytes is never 0. */
static lp_status lay_out(lp_shared *s, int64_t *bytes, lp_error *err)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < s->places.count; i++) {
        int64_t end;
        if (!lp_add(at, s->places.bytes[i], &end) || !lp_add(end, LP_IPC_ALIGN - 1, &end))
            return lp_fail(err, LP_E_LIMIT, "the destinations have more bytes than can be counted");
        s->storage[i] = (lp_ipc_storage){.offset = at, .bytes = s->places.bytes[i]};
        at = end / LP_IPC_ALIGN * LP_IPC_ALIGN;
    }
    *bytes = at > 0 ? at : LP_IPC_ALIGN;
    s->block_count = 1;
    return LP_OK;
}

static lp_status take_memory(lp_shared *s, lp_error *err)
{
    int64_t bytes = 0, whole;
    void *base;
    LP_TRY(lay_out(s, &bytes, err));
    if (s->device == NULL) {
        LP_TRY(lp_ipc_memory_new(&s->fd, &s->map, "the weights", bytes, err));
        s->map_bytes = whole = bytes;
        base = s->map;
    } else {
        const lp_ipc_device *d = s->device;
        LP_TRY(lp_ipc_device_check(d, d->enter(d->context), "use the device", err));
        LP_TRY(lp_ipc_device_check(d, d->allocate(d->context, bytes, &s->device_block), "take device memory", err));
        LP_TRY(lp_ipc_device_check(d, d->give(d->context, s->device_block, s->block[0].handle, &base, &whole),
                                   "share device memory", err));
        for (uint32_t i = 0; i < s->places.count; i++) /* an allocation may be part of a larger one */
            s->storage[i].offset += (uint8_t *)s->device_block - (uint8_t *)base;
    }
    s->block[0].bytes = whole;
    for (uint32_t i = 0; i < s->places.count; i++)
        s->places.base[i] = (uint8_t *)base + s->storage[i].offset;
    return LP_OK;
}

lp_status lp_shared_allocate_on(lp_shared **out, const lp_trace *trace, const lp_scope *scope,
                                const lp_ipc_device *device, const lp_alloc *alloc, lp_error *err)
{
    const lp_rows *rows;
    lp_shared *s;
    int32_t index;
    LP_TRY(lp_replay_rows(trace, scope, &index, &rows, err));
    LP_TRY(new_shared(&s, rows, device, alloc, err));
    const lp_status status = take_memory(s, err);
    if (status != LP_OK) {
        lp_shared_free(s);
        return status;
    }
    lp_ipc_places_list(&s->places);
    *out = s;
    return LP_OK;
}

/* ---- memory that is there already ---- */

static int by_address(const void *a, const void *b)
{
    const lp_storage *const *x = a, *const *y = b;
    const uintptr_t p = (uintptr_t)(*x)->base, q = (uintptr_t)(*y)->base;
    return p < q ? -1 : p > q;
}

/* In rising address, so that storages of one allocation come in a row and its handle is asked for once. */
static lp_status share_storages(lp_shared *s, const lp_plan *plan, const lp_storage **sorted, lp_error *err)
{
    const lp_ipc_device *d = s->device;
    lp_ipc_block *block = NULL;
    uint8_t *base = NULL;
    for (uint32_t i = 0; i < plan->storage_count; i++)
        sorted[i] = &plan->storage[i];
    if (plan->storage_count > 0)
        qsort(sorted, plan->storage_count, sizeof *sorted, by_address);
    for (uint32_t i = 0; i < plan->storage_count; i++) {
        const lp_storage *from = sorted[i];
        lp_ipc_storage *to = &s->storage[from - plan->storage];
        to->bytes = from->bytes;
        if (from->bytes == 0)
            continue;
        if (block == NULL || from->base - base >= block->bytes) {
            void *at;
            block = &s->block[s->block_count];
            LP_TRY(lp_ipc_device_check(d, d->give(d->context, from->base, block->handle, &at, &block->bytes),
                                       "share device memory", err));
            base = at;
            s->block_count++;
        }
        to->block = s->block_count - 1;
        to->offset = from->base - base;
        if (to->offset < 0 || to->offset > block->bytes - from->bytes)
            return lp_fail_at(err, LP_E_UNSUPPORTED, from->name, -1,
                              "storage '%s' lies in several allocations, which cannot be shared", from->name);
    }
    return LP_OK;
}

lp_status lp_shared_of_on(lp_shared **out, const lp_plan *plan, const lp_ipc_device *device, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    lp_status status = LP_OK;
    lp_shared *s;
    if (plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "a plan of meta tensors has nothing to share");
    LP_TRY(lp_ipc_device_check(device, device->enter(device->context), "use the device", err));
    LP_TRY(new_shared(&s, plan->rows, device, alloc, err));
    const lp_storage **sorted = lp_allocate(alloc, ((size_t)plan->storage_count + 1) * sizeof *sorted);
    if (sorted == NULL)
        status = lp_fail_memory(err);
    else
        status = share_storages(s, plan, sorted, err);
    lp_release(alloc, (void *)sorted);
    if (status != LP_OK) {
        lp_shared_free(s);
        return status;
    }
    for (uint32_t i = 0; i < plan->storage_count; i++)
        s->places.base[i] = plan->storage[i].base;
    lp_ipc_places_list(&s->places);
    *out = s;
    return LP_OK;
}

/* ---- by the name of a device ---- */

static lp_status open_device(lp_ipc_device **out, const char *name, const lp_alloc *alloc, lp_error *err)
{
    lp_ipc_device *d = lp_allocate_zero(alloc, sizeof *d);
    if (d == NULL)
        return lp_fail_memory(err);
    const lp_status status = lp_ipc_device_open(d, name, alloc, err);
    if (status == LP_OK)
        *out = d;
    else
        lp_release(alloc, d);
    return status;
}

/* Gives the device to what was made with it, or closes it. */
static lp_status keep_device(lp_status status, lp_shared *const *shared, lp_ipc_device *device, const lp_alloc *alloc)
{
    if (status == LP_OK) {
        (*shared)->own_device = device;
        return LP_OK;
    }
    lp_ipc_device_close(device, alloc);
    lp_release(alloc, device);
    return status;
}

lp_status lp_shared_allocate(lp_shared **out, const lp_trace *trace, const lp_scope *scope, const char *device,
                             const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    lp_ipc_device *d = NULL;
    if (device == NULL || strcmp(device, "cpu") == 0)
        return lp_shared_allocate_on(out, trace, scope, NULL, p.alloc, err);
    LP_TRY(open_device(&d, device, p.alloc, err));
    const lp_status status = lp_shared_allocate_on(out, trace, scope, d, p.alloc, err);
    return keep_device(status, out, d, p.alloc);
}

lp_status lp_shared_of(lp_shared **out, const lp_plan *plan, const char *device, lp_error *err)
{
    lp_ipc_device *d = NULL;
    if (device == NULL || strcmp(device, "cpu") == 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "host memory can be shared only when lp_shared_allocate made it");
    LP_TRY(open_device(&d, device, plan->platform.alloc, err));
    const lp_status status = lp_shared_of_on(out, plan, d, err);
    return keep_device(status, out, d, plan->platform.alloc);
}

const lp_destination_memory *lp_shared_list(const lp_shared *shared, int64_t *count)
{
    *count = shared->places.rows->ndest;
    return shared->places.list;
}

int64_t lp_shared_bytes(const lp_shared *shared)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < shared->places.count; i++)
        bytes += shared->places.bytes[i];
    return bytes;
}

void lp_shared_free(lp_shared *shared)
{
    if (shared == NULL)
        return;
    const lp_alloc *alloc = shared->alloc;
    if (shared->map != NULL)
        munmap(shared->map, (size_t)shared->map_bytes);
    if (shared->fd >= 0)
        close(shared->fd);
    if (shared->device_block != NULL)
        shared->device->release(shared->device->context, shared->device_block);
    if (shared->own_device != NULL)
        lp_ipc_device_close(shared->own_device, alloc);
    lp_release(alloc, shared->own_device);
    lp_ipc_places_free(&shared->places);
    lp_release(alloc, shared->block);
    lp_release(alloc, shared->storage);
    lp_release(alloc, shared);
}
