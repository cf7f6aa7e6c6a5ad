/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors: the storages of another framework, and the recorder's tensor that a view of one stands for. */
#include "recorder/record_mirror.h"

lp_status lp_mirror_open(lp_mirror **out, lp_recorder *r, lp_error *err)
{
    *out = NULL;
    LP_TRY(lp_recorder_status(r, err));
    lp_mirror *m = lp_allocate_zero(r->platform.alloc, sizeof *m);
    if (m == NULL)
        return lp_fail_memory(err);
    m->recorder = r;
    m->alloc = r->platform.alloc;
    *out = m;
    return LP_OK;
}

void lp_mirror_close(lp_mirror *m)
{
    if (m == NULL)
        return;
    lp_release(m->alloc, m->storage);
    lp_release(m->alloc, m->cast);
    lp_release(m->alloc, m->next);
    lp_release(m->alloc, m);
}

/* ---- storages ---- */

static int64_t add_storage(lp_mirror *m, mirror_kind kind, uint32_t base, int64_t bytes)
{
    if (!lp_grow(m->alloc, (void **)&m->storage, &m->storage_capacity, m->storages + 1, sizeof *m->storage))
        return LP_E_MEMORY;
    m->storage[m->storages] = (mirror_storage){.bytes = bytes, .base = base, .kind = (uint8_t)kind};
    return m->storages++;
}

int64_t lp_mirror_source(lp_mirror *m, int64_t index)
{
    if (index < 0 || index >= lp_checkpoint_count(m->recorder->checkpoint))
        return LP_E_ARGUMENT;
    return add_storage(m, MIRROR_SOURCE, (uint32_t)index, lp_checkpoint_at(m->recorder->checkpoint, index)->bytes);
}

int64_t lp_mirror_temporary(lp_mirror *m, int64_t bytes)
{
    if (bytes < 0)
        return LP_E_ARGUMENT;
    const int64_t temporary = rec_new_temporary(m->recorder, bytes);
    return temporary < 0 ? LP_E_MEMORY : add_storage(m, MIRROR_TEMPORARY, (uint32_t)temporary, bytes);
}

bool mirror_make_temporary(lp_mirror *m, int64_t storage)
{
    const int64_t temporary = rec_new_temporary(m->recorder, m->storage[storage].bytes);
    if (temporary < 0)
        return false;
    m->storage[storage].kind = MIRROR_TEMPORARY;
    m->storage[storage].base = (uint32_t)temporary;
    m->storage[storage].is_condition = false;
    return true;
}

/* ---- geometry ---- */

/* Strides in bytes; false when g is out of range. */
static bool byte_strides(const lp_strided *g, int64_t *stride, int64_t *offset)
{
    const int bits = lp_dtype_bits((lp_dtype)g->dtype);
    if (g->ndim < 0 || g->ndim > LP_VIEW_DIMS || bits % 8 != 0 || bits == 0)
        return false;
    for (int64_t d = 0; d < g->ndim; d++) {
        if (g->extent[d] < 0 || !lp_mul(g->extent[g->ndim + d], bits / 8, &stride[d]))
            return false;
    }
    return lp_mul(g->offset, bits / 8, offset) && *offset >= 0;
}

/* Bytes [lo, hi) that g spans; empty without elements. */
static bool span_of(const lp_strided *g, int64_t *lo, int64_t *hi)
{
    int64_t stride[LP_VIEW_DIMS], reach;
    if (!byte_strides(g, stride, lo))
        return false;
    *hi = *lo + lp_dtype_bits((lp_dtype)g->dtype) / 8;
    for (int64_t d = 0; d < g->ndim; d++) {
        if (g->extent[d] == 0) {
            *hi = *lo;
            return true;
        }
        if (!lp_mul(g->extent[d] - 1, stride[d], &reach) || reach < 0 || !lp_add(*hi, reach, hi))
            return false;
    }
    return true;
}

bool mirror_is_whole(const lp_mirror *m, const lp_strided *g)
{
    int64_t dense = 1;
    for (int64_t d = g->ndim - 1; d >= 0; d--) {
        if (g->extent[d] != 1 && g->extent[g->ndim + d] != dense)
            return false;
        if (!lp_mul(dense, g->extent[d], &dense))
            return false;
    }
    const int bytes = lp_dtype_bits((lp_dtype)g->dtype) / 8;
    return g->offset == 0 && lp_mul(dense, bytes, &dense) && dense == m->storage[g->storage].bytes;
}

/* ---- tensors ---- */

static lp_tensor strided_tensor(const char *file, int line, lp_mirror *m, const lp_strided *g, lp_tensor_kind kind,
                                uint32_t base, int64_t origin)
{
    lp_recorder *r = m->recorder;
    int64_t stride[LP_VIEW_DIMS], offset;
    lp_error err;
    lp_tensor t = {.recorder = r, .base = base, .kind = (uint8_t)kind};
    if (!byte_strides(g, stride, &offset) || offset < origin)
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "a tensor outside its storage");
    if (lp_view_strided(&t.view, (lp_dtype)g->dtype, (int)g->ndim, g->extent, stride, offset - origin, &err) != LP_OK)
        return rec_misuse_error(file, line, r, &err);
    return t;
}

/* Several destinations may lie in one storage: the first one that holds all of g. */
static lp_tensor destination_tensor(const char *file, int line, lp_mirror *m, const lp_strided *g)
{
    lp_recorder *r = m->recorder;
    int64_t lo, hi;
    if (!span_of(g, &lo, &hi))
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "a tensor outside its storage");
    for (uint32_t i = m->storage[g->storage].base; i != LP_NONE; i = m->next[i]) {
        const lp_destination *row = &r->dest[i].row;
        int64_t end = row->offset;
        for (int32_t d = 0; d < row->ndim; d++)
            end += row->shape[d] > 0 ? (row->shape[d] - 1) * row->stride[d] : 0;
        end += lp_dtype_bits(row->dtype) / 8;
        if (lo >= row->offset && hi <= end)
            return strided_tensor(file, line, m, g, LP_TENSOR_DEST, i, row->offset);
    }
    return rec_misuse(file, line, r, LP_E_UNSUPPORTED, "a tensor that no declared destination holds");
}

/* A cast that is not done yet: seen whole it stays so, else it is done now. */
static lp_tensor cast_tensor(const char *file, int line, lp_mirror *m, const lp_strided *g)
{
    lp_recorder *r = m->recorder;
    mirror_storage *s = &m->storage[g->storage];
    const mirror_cast *cast = &m->cast[s->base];
    if (m->storage[cast->storage].writes != cast->writes)
        return rec_misuse(file, line, r, LP_E_UNSUPPORTED, "reads the cast of bytes that were overwritten since");
    if (g->dtype == cast->tensor.cast_to && mirror_is_whole(m, g)) {
        lp_tensor t = cast->tensor;
        if (lp_view_reshape(&t.view, (int)g->ndim, g->extent, NULL) == LP_OK)
            return t;
    }
    const lp_tensor done = lp_clone_at(file, line, cast->tensor);
    if (done.kind != LP_TENSOR_TEMPORARY)
        return rec_invalid(r);
    s->kind = MIRROR_TEMPORARY;
    s->base = done.base;
    return strided_tensor(file, line, m, g, LP_TENSOR_TEMPORARY, done.base, 0);
}

static lp_tensor value_tensor(const char *file, int line, lp_mirror *m, const lp_strided *g)
{
    lp_recorder *r = m->recorder;
    const mirror_storage *s = &m->storage[g->storage];
    if (s->is_condition && g->dtype == LP_BOOL) {
        lp_strided numbers = *g;
        numbers.dtype = LP_F32;
        return strided_tensor(file, line, m, &numbers, LP_TENSOR_VALUE, s->base, 0);
    }
    if (g->dtype != r->value[s->base].node.dtype)
        return rec_misuse(file, line, r, LP_E_UNSUPPORTED, "other bytes of a computed value");
    return strided_tensor(file, line, m, g, LP_TENSOR_VALUE, s->base, 0);
}

lp_tensor mirror_tensor(const char *file, int line, lp_mirror *m, const lp_strided *g)
{
    lp_recorder *r = m->recorder;
    if (r->misuse.code != LP_OK)
        return rec_invalid(r);
    if (g->storage < 0 || g->storage >= m->storages)
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "there is no storage number %lld", (long long)g->storage);
    const mirror_storage *s = &m->storage[g->storage];
    lp_tensor t;
    switch ((mirror_kind)s->kind) {
    case MIRROR_SOURCE:
        return strided_tensor(file, line, m, g, LP_TENSOR_SOURCE, s->base, 0);
    case MIRROR_DESTINATION:
        return destination_tensor(file, line, m, g);
    case MIRROR_TEMPORARY:
        t = strided_tensor(file, line, m, g, LP_TENSOR_TEMPORARY, s->base, 0);
        t.flags = LP_PROV_MATERIALISES;
        return t;
    case MIRROR_VALUE:
        return value_tensor(file, line, m, g);
    case MIRROR_CAST:
        return cast_tensor(file, line, m, g);
    }
    return rec_invalid(r);
}

bool lp_mirror_is_loaded(const lp_mirror *m, const lp_strided *g)
{
    int64_t lo, hi;
    if (g->storage < 0 || g->storage >= m->storages)
        return false;
    const mirror_storage *s = &m->storage[g->storage];
    if (s->kind != MIRROR_DESTINATION)
        return true;
    if (!span_of(g, &lo, &hi) || lo == hi)
        return false;
    const lp_recorder *r = m->recorder;
    for (uint32_t d = s->base; d != LP_NONE; d = m->next[d]) {
        const int64_t origin = r->dest[d].row.offset;
        for (uint32_t i = r->dest[d].last_write; i != LP_NONE; i = r->write[i].previous) {
            const rec_write *w = &r->write[i];
            if (w->kind != REC_DROPPED && w->map->dst_lo + w->dst_off < hi - origin &&
                lo - origin < w->map->dst_hi + w->dst_off)
                return true;
        }
    }
    return false;
}

/* ---- the end of a call ---- */

/* "file.py:12: a reason" without the place, which the refusal keeps by itself. */
static const char *reason_of(lp_recorder *r, const char *file, int line, const char *text)
{
    const char *place = lp_name(r, "%s:%d: ", file, line);
    const size_t bytes = strlen(place);
    return lp_name(r, "%s", strncmp(text, place, bytes) == 0 ? text + bytes : text);
}

static void count_name(lp_recorder *r, uint32_t name, void *context)
{
    (void)r;
    (void)name;
    ++*(int64_t *)context;
}

bool mirror_reads_names(lp_recorder *r, int count, const lp_tensor *tensor)
{
    int64_t names = 0;
    for (int i = 0; i < count; i++) {
        if (lp_is_valid(tensor[i]))
            rec_names_of(r, tensor[i], count_name, &names);
    }
    return names > 0;
}

lp_status mirror_settle(const char *file, int line, lp_mirror *m, int count, const lp_tensor *tensor, lp_tensor dst,
                        const char *operation, int64_t refusals_before, lp_error *err)
{
    lp_recorder *r = m->recorder;
    if (r->misuse.code == LP_OK)
        return r->refusal_count > refusals_before ? LP_E_REFUSED : LP_OK;
    const lp_error said = r->misuse;
    if (err != NULL)
        *err = said;
    if (said.code == LP_E_MEMORY || said.code == LP_E_INTERNAL)
        return said.code;
    r->misuse.code = LP_OK;
    const char *reason = reason_of(r, file, line, said.text);
    for (int i = 0; i < count && r->misuse.code == LP_OK; i++) {
        if (lp_is_valid(tensor[i]))
            rec_refuse_tensor(file, line, tensor[i], dst, operation, reason);
        if (r->misuse.code != LP_E_MEMORY)
            r->misuse.code = LP_OK;
    }
    if (r->misuse.code != LP_OK)
        return r->misuse.code;
    return mirror_reads_names(r, count, tensor) ? LP_E_REFUSED : LP_E_UNSUPPORTED;
}

/* ---- destinations ---- */

int64_t lp_mirror_destination(lp_mirror *m, const char *name, const lp_strided *g, int64_t storage_bytes,
                              uint32_t flags, const char *group, lp_error *err)
{
    lp_recorder *r = m->recorder;
    int64_t stride[LP_VIEW_DIMS], offset;
    if (!byte_strides(g, stride, &offset) || g->storage >= m->storages ||
        (g->storage >= 0 && m->storage[g->storage].kind != MIRROR_DESTINATION))
        return lp_fail_at(err, LP_E_ARGUMENT, name, -1, "destination '%s' is not a tensor of whole bytes", name);
    const bool shares = g->storage >= 0;
    const lp_declaration d = {.name = name,
                              .dtype = (lp_dtype)g->dtype,
                              .ndim = (int32_t)g->ndim,
                              .shape = g->extent,
                              .stride = stride,
                              .storage = shares ? r->dest[m->storage[g->storage].base].row.name : NULL,
                              .offset = offset,
                              .storage_bytes = storage_bytes,
                              .group = group,
                              .flags = flags};
    const lp_tensor t = lp_declare_with_at("", 0, r, &d);
    if (t.kind != LP_TENSOR_DEST) {
        const lp_status status = lp_recorder_status(r, err);
        if (status != LP_E_MEMORY)
            r->misuse.code = LP_OK;
        return status;
    }
    if (!lp_grow(m->alloc, (void **)&m->next, &m->next_capacity, (int64_t)t.base + 1, sizeof *m->next))
        return lp_fail_memory(err);
    m->next[t.base] = LP_NONE;
    if (!shares)
        return add_storage(m, MIRROR_DESTINATION, t.base, storage_bytes);
    uint32_t last = m->storage[g->storage].base;
    while (m->next[last] != LP_NONE)
        last = m->next[last];
    m->next[last] = t.base;
    return g->storage;
}

bool lp_mirror_leave(lp_mirror *m, const char *name)
{
    lp_recorder *r = m->recorder;
    const int64_t dest = lp_strings_find(&r->dest_names, name, strlen(name));
    if (dest < 0 || r->dest[dest].last_write != LP_NONE)
        return false;
    for (int64_t f = 0; f < r->refusal_count; f++) {
        if (r->refusal[f].dest == (uint32_t)dest)
            return false;
    }
    r->dest[dest].row.flags |= LP_DEST_NO_LOADER;
    return true;
}
