/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records, derives and refusals: every one is checked against the catalogue and the destinations before it is kept or
 * used, whether a loader or a file says it.
 */
#include "traces/trace_build.h"

#include <inttypes.h>

static const char *name_of(const lp_trace *t, uint32_t name)
{
    if (name == LP_NAME_BEGIN)
        return "begin";
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(t->checkpoint, name);
    return tensor != NULL ? tensor->name : "?";
}

/* ---- ranges ---- */

/* Bytes that a map reads or writes, moved by `off`, lie in [0, bytes). */
static bool is_inside(int64_t off, int64_t lo, int64_t hi, int64_t bytes)
{
    int64_t first, last;
    return lp_add(off, lo, &first) && lp_add(off, hi, &last) && first >= 0 && last <= bytes;
}

static lp_status outside(const lp_trace *t, const lp_rows *rows, uint32_t name, uint32_t dest, bool is_source,
                         int64_t off, lp_status code, lp_error *err)
{
    const char *source = name == LP_NONE ? "" : name_of(t, name), *target = rows->dest[dest].name;
    const char *subject = is_source ? source : target;
    return lp_fail_at(err, code, subject, off, "the copy of '%s' into '%s' %s", source, target,
                      is_source ? "reads bytes outside the checkpoint tensor" : "writes bytes outside the storage");
}

/* ---- records ---- */

/* A fill pattern has its shortest period: neither all halves equal nor a longer number than it needs. */
static bool is_reduced(uint64_t bits, int32_t bytes)
{
    if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
        return false;
    if (bytes < 8 && bits >> (bytes * 8) != 0)
        return false;
    if (bytes == 1)
        return true;
    const int half = bytes * 4;
    return bits >> half != (bits & (((uint64_t)1 << half) - 1));
}

lp_status lp_record_normalise(lp_record *record, lp_error *err)
{
    record->reserved = 0;
    if (record->map->src_elem == 0) {
        record->src_dtype = record->dst_dtype = LP_DTYPE_NONE;
        record->src_off = 0;
        if (record->map->dst_elem > 0 && record->map->dst_elem < 8)
            record->fill_bits &= ((uint64_t)1 << (record->map->dst_elem * 8)) - 1;
    } else {
        record->fill_bits = 0;
        const lp_dtype from = (lp_dtype)record->src_dtype, to = (lp_dtype)record->dst_dtype;
        if (from >= LP_DTYPE_COUNT || to >= LP_DTYPE_COUNT)
            return lp_fail(err, LP_E_ARGUMENT, "a record has an unknown dtype");
        if (from == to || lp_cast_kind_of(from, to) == LP_CAST_BYTES)
            record->src_dtype = record->dst_dtype = LP_DTYPE_NONE;
    }
    record->kind = (uint8_t)lp_pooled_kind(record->map, (lp_dtype)record->src_dtype, (lp_dtype)record->dst_dtype);
    return LP_OK;
}

static const char *record_fault(const lp_record *r)
{
    const lp_map *map = r->map;
    const lp_dtype from = (lp_dtype)r->src_dtype, to = (lp_dtype)r->dst_dtype;
    if (r->reserved != 0 || from >= LP_DTYPE_COUNT || to >= LP_DTYPE_COUNT)
        return "has fields that mean nothing";
    if (map->src_elem == 0) {
        if (from != LP_DTYPE_NONE || to != LP_DTYPE_NONE || r->src_off != 0)
            return "is a fill with a source";
        return is_reduced(r->fill_bits, map->dst_elem) ? NULL : "has a fill pattern that is not in its shortest form";
    }
    if (r->fill_bits != 0)
        return "has fill bits without being a fill";
    if (r->name == LP_NAME_BEGIN)
        return "reads no checkpoint tensor and is no fill";
    if (from == LP_DTYPE_NONE && to == LP_DTYPE_NONE)
        return map->src_elem == 1 && map->dst_elem == 1 ? NULL : "has elements of several bytes and no dtypes";
    if (lp_cast_kind_of(from, to) != LP_CAST_VALUES)
        return "is a cast that the cast table does not have";
    return map->src_elem * 8 == lp_dtype_bits(from) && map->dst_elem * 8 == lp_dtype_bits(to)
               ? NULL
               : "is a cast with other element sizes than its dtypes";
}

lp_status lp_record_check(const lp_trace *t, const lp_rows *rows, const lp_record *r, lp_status code, lp_error *err)
{
    if (r->dest >= rows->ndest)
        return lp_fail(err, code, "a record names destination %" PRIu32 " of %" PRIu32, r->dest, rows->ndest);
    if (r->name != LP_NAME_BEGIN && r->name >= lp_checkpoint_count(t->checkpoint))
        return lp_fail(err, code, "a record names checkpoint tensor %" PRIu32 " of %" PRId64, r->name,
                       lp_checkpoint_count(t->checkpoint));
    const lp_destination *dest = &rows->dest[r->dest];
    const char *fault = record_fault(r);
    if (fault == NULL && (lp_kind)r->kind != lp_pooled_kind(r->map, (lp_dtype)r->src_dtype, (lp_dtype)r->dst_dtype))
        fault = "has another kind than its map";
    if (fault != NULL)
        return lp_fail_at(err, code, dest->name, -1, "the record of '%s' into '%s' %s", name_of(t, r->name), dest->name,
                          fault);
    if (r->map->src_elem != 0) {
        const int64_t bytes = lp_checkpoint_at(t->checkpoint, r->name)->bytes;
        if (!is_inside(r->src_off, r->map->src_lo, r->map->src_hi, bytes))
            return outside(t, rows, r->name, r->dest, true, r->src_off, code, err);
    }
    if (!is_inside(r->dst_off, r->map->dst_lo, r->map->dst_hi, dest->storage_bytes - dest->offset))
        return outside(t, rows, r->name, r->dest, false, r->dst_off, code, err);
    return LP_OK;
}

/* ---- derives ---- */

static lp_status input_check(const lp_trace *t, const lp_rows *rows, const lp_derive *derive, uint32_t index,
                             lp_status code, lp_error *err)
{
    const lp_derive_input *input = &derive->input[index];
    const char *subject = derive->dest < rows->ndest ? rows->dest[derive->dest].name : "a check";
    const int64_t limit = input->staged ? lp_checkpoint_count(t->checkpoint) : rows->ndest;
    if (input->index >= limit)
        return lp_fail(err, code, "input %" PRIu32 " of the derive of '%s' names row %" PRIu32 " of %" PRId64, index,
                       subject, input->index, limit);
    const int64_t bytes = input->staged ? lp_checkpoint_at(t->checkpoint, input->index)->bytes
                                        : rows->dest[input->index].storage_bytes - rows->dest[input->index].offset;
    const int64_t dense = input->count * (lp_dtype_bits(input->dtype) / 8);
    const lp_map *map = input->map;
    if (map == NULL || map->nbox < 1 || map->src_elem != 1 || map->dst_elem != 1 || map->dst_bytes != dense ||
        map->dst_lo != 0 || map->dst_hi != dense)
        return lp_fail_at(err, code, subject, -1, "input %" PRIu32 " of the derive of '%s' is not gathered densely",
                          index, subject);
    if (map->src_lo < 0 || map->src_hi > bytes)
        return lp_fail_at(err, code, subject, map->src_lo, "input %" PRIu32 " of the derive of '%s' lies outside '%s'",
                          index, subject, input->staged ? name_of(t, input->index) : rows->dest[input->index].name);
    return LP_OK;
}

lp_status lp_derive_check(const lp_trace *t, const lp_rows *rows, const lp_derive *derive, lp_status code,
                          lp_error *err)
{
    if (derive->dest != LP_NONE && derive->dest >= rows->ndest)
        return lp_fail(err, code, "a derive names destination %" PRIu32 " of %" PRIu32, derive->dest, rows->ndest);
    if (!lp_text_is_fit(derive->error_text))
        return lp_fail(err, code, "the error text of a derive is too long or not UTF-8");
    LP_TRY(lp_derive_nodes_check(derive, code, err));
    for (uint32_t i = 0; i < derive->ninput; i++)
        LP_TRY(input_check(t, rows, derive, i, code, err));
    if (derive->dest == LP_NONE)
        return derive->map == NULL ? LP_OK : lp_fail(err, code, "a check derive has a map but no destination");
    const lp_destination *dest = &rows->dest[derive->dest];
    const lp_node *result = &derive->node[derive->nnode - 1];
    int64_t dense;
    if (!lp_mul(result->count, lp_dtype_bits((lp_dtype)result->dtype) / 8, &dense))
        return lp_fail(err, code, "the derive of '%s' has a result that overflows", dest->name);
    const lp_map *map = derive->map;
    if (map == NULL || map->nbox < 1 || map->src_elem != 1 || map->dst_elem != 1 || map->src_lo < 0 ||
        map->src_hi > dense)
        return lp_fail_at(err, code, dest->name, -1, "the derive of '%s' does not write its own result", dest->name);
    if (map->dst_lo < 0 || map->dst_hi > dest->storage_bytes - dest->offset)
        return lp_fail_at(err, code, dest->name, map->dst_lo, "the derive of '%s' writes bytes outside the storage",
                          dest->name);
    return LP_OK;
}

/* ---- refusals ---- */

lp_status lp_refusal_check(const lp_trace *t, const lp_rows *rows, const lp_refusal *refusal, lp_status code,
                           lp_error *err)
{
    if (refusal->name >= lp_checkpoint_count(t->checkpoint))
        return lp_fail(err, code, "a refusal names checkpoint tensor %" PRIu32 " of %" PRId64, refusal->name,
                       lp_checkpoint_count(t->checkpoint));
    const char *name = name_of(t, refusal->name);
    if (!lp_text_is_fit(refusal->operation) || !lp_text_is_fit(refusal->reason))
        return lp_fail_at(err, code, name, -1, "a text of the refusal of '%s' is too long or not UTF-8", name);
    if (refusal->dest == LP_NONE)
        return refusal->map == NULL
                   ? LP_OK
                   : lp_fail_at(err, code, name, -1, "the refusal of '%s' has a region but no destination", name);
    if (refusal->dest >= rows->ndest)
        return lp_fail(err, code, "a refusal names destination %" PRIu32 " of %" PRIu32, refusal->dest, rows->ndest);
    const lp_destination *dest = &rows->dest[refusal->dest];
    const lp_map *map = refusal->map;
    if (map != NULL && (map->nbox < 1 || map->src_elem != 0 || map->dst_elem != 1))
        return lp_fail_at(err, code, name, -1, "the region of the refusal of '%s' is not a set of bytes", name);
    if (map != NULL && (map->dst_lo < 0 || map->dst_hi > dest->storage_bytes - dest->offset))
        return lp_fail_at(err, code, name, map->dst_lo, "the refusal of '%s' covers bytes outside '%s'", name,
                          dest->name);
    return LP_OK;
}
