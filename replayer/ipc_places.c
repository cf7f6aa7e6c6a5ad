/* SPDX-License-Identifier: Apache-2.0 */
/* The storages of a scope, numbered as its rows name them first, and the destinations in them. */
#include "replayer/ipc_protocol.h"

int64_t lp_ipc_description_bytes(uint32_t blocks, uint32_t storages)
{
    return (int64_t)sizeof(lp_ipc_head) + (int64_t)blocks * (int64_t)sizeof(lp_ipc_block) +
           (int64_t)storages * (int64_t)sizeof(lp_ipc_storage);
}

static lp_status number(lp_ipc_places *p, lp_strings *names, lp_error *err)
{
    for (uint32_t i = 0; i < p->rows->ndest; i++) {
        const lp_destination *dest = &p->rows->dest[i];
        const int64_t storage = lp_strings_add(names, dest->storage, strlen(dest->storage));
        if (storage < 0)
            return lp_fail_memory(err);
        p->of[i] = (uint32_t)storage;
        if (p->bytes[storage] < dest->storage_bytes)
            p->bytes[storage] = dest->storage_bytes;
    }
    p->count = (uint32_t)names->count;
    return LP_OK;
}

lp_status lp_ipc_places_make(lp_ipc_places *p, const lp_rows *rows, const lp_alloc *alloc, lp_error *err)
{
    const size_t room = (size_t)rows->ndest + 1;
    lp_strings names;
    *p = (lp_ipc_places){.alloc = alloc, .rows = rows};
    p->of = lp_allocate(alloc, room * sizeof *p->of);
    p->bytes = lp_allocate_zero(alloc, room * sizeof *p->bytes);
    p->base = lp_allocate_zero(alloc, room * sizeof *p->base);
    p->list = lp_allocate_zero(alloc, room * sizeof *p->list);
    lp_strings_init(&names, alloc);
    const lp_status status = p->of == NULL || p->bytes == NULL || p->base == NULL || p->list == NULL
                                 ? lp_fail_memory(err)
                                 : number(p, &names, err);
    lp_strings_free(&names);
    if (status != LP_OK)
        lp_ipc_places_free(p);
    return status;
}

void lp_ipc_places_list(lp_ipc_places *p)
{
    for (uint32_t i = 0; i < p->rows->ndest; i++) {
        p->list[i] = lp_memory_of(&p->rows->dest[i], p->base[p->of[i]], p->bytes[p->of[i]]);
    }
}

void lp_ipc_places_free(lp_ipc_places *p)
{
    if (p->alloc == NULL)
        return;
    lp_release(p->alloc, p->of);
    lp_release(p->alloc, p->bytes);
    lp_release(p->alloc, (void *)p->base);
    lp_release(p->alloc, p->list);
    *p = (lp_ipc_places){.alloc = NULL};
}
