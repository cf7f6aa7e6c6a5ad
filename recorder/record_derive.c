/* SPDX-License-Identifier: Apache-2.0 */
/* Derives: where expressions end, in a destination or in a check. */
#include "recorder/record_private.h"

static bool add_derive(lp_recorder *r, const rec_derive *d)
{
    if (!lp_grow(r->platform.alloc, (void **)&r->derive, &r->derive_capacity, r->derive_count + 1, sizeof *r->derive)) {
        rec_no_memory(r);
        return false;
    }
    r->derive[r->derive_count++] = *d;
    return true;
}

/* The expression in dst's dtype, and the map from its dense result. */
static lp_status place_result(const char *file, int line, lp_tensor dst, lp_tensor *value, const lp_map **out,
                              uint8_t *flags, lp_error *err)
{
    lp_recorder *r = dst.recorder;
    const bool is_value = value->kind == LP_TENSOR_VALUE && value->cast_to == 0;
    if (!is_value || value->view.dtype != dst.view.dtype) {
        if (lp_dtype_of(*value) != dst.view.dtype) {
            *flags |= LP_PROV_IMPLICIT_CAST;
            if (lp_cast_kind_of(lp_dtype_of(*value), dst.view.dtype) != LP_CAST_VALUES)
                return lp_fail(err, LP_E_UNSUPPORTED, "no cast from %s to %s", lp_dtype_name(lp_dtype_of(*value)),
                               lp_dtype_name(dst.view.dtype));
        }
        int64_t node = rec_value_of(file, line, *value);
        if (node >= 0 && r->value[node].node.dtype != (uint16_t)dst.view.dtype) {
            const rec_value cast = {.node = {.op = LP_OP_CAST,
                                             .dtype = (uint16_t)dst.view.dtype,
                                             .arg = {(uint32_t)node, 0, 0},
                                             .count = r->value[node].node.count}};
            node = rec_add_value(r, &cast);
        }
        *value = rec_value_tensor(file, line, r, node, value->view.ndim, value->view.size);
        if (value->kind == LP_TENSOR_INVALID)
            return LP_E_REFUSED; /* said already */
    }
    const lp_map *map = NULL;
    LP_TRY(lp_map_copy(&map, &dst.view, rec_memory_bytes(r, &dst), &value->view, rec_memory_bytes(r, value),
                       r->platform.alloc, err));
    return rec_keep(r, map, out, err);
}

lp_status rec_place_value(const char *file, int line, lp_tensor dst, uint32_t node, const lp_map *out, uint8_t flags,
                          bool in_place, lp_error *err)
{
    lp_recorder *r = dst.recorder;
    LP_TRY(rec_resolve_inputs(r, node, dst.base, out, in_place, err));
    if (in_place) {
        LP_TRY(rec_leave_readers(file, line, r, dst.base, out, 0, err));
        LP_TRY(rec_trim_writes(r, dst.base, out, 0, false, err));
    }
    const uint32_t provenance = rec_provenance(r, file, line, flags);
    const rec_derive d = {.dest = dst.base, .root = node, .map = out, .text = "", .provenance = provenance};
    if (!add_derive(r, &d))
        return LP_OK; /* kept as misuse */
    const rec_write w = {.map = out,
                         .name = (uint32_t)(r->derive_count - 1),
                         .dest = dst.base,
                         .provenance = provenance,
                         .kind = REC_DERIVE};
    r->dest[dst.base].is_computed = true;
    rec_add_write(r, &w);
    return LP_OK;
}

void rec_copy_value(const char *file, int line, lp_tensor dst, lp_tensor value, bool in_place)
{
    lp_recorder *r = dst.recorder;
    const lp_tensor whole = value;
    uint8_t flags = value.flags;
    const lp_map *out = NULL;
    lp_error err;
    lp_status status = place_result(file, line, dst, &value, &out, &flags, &err);
    if (r->misuse.code != LP_OK)
        return;
    if (status == LP_E_REFUSED) {
        rec_refuse_tensor(file, line, whole, dst, "copy_", "computes on a refused value");
        return;
    }
    if (status == LP_OK && out->nbox == 0)
        return;
    if (status == LP_OK && dst.kind == LP_TENSOR_DEST) {
        status = rec_place_value(file, line, dst, value.base, out, flags, in_place, &err);
    } else if (status == LP_OK) {
        const rec_piece piece = {.map = out, .name = value.base, .flags = flags, .is_value = true};
        status = rec_write_piece(r, dst.base, &piece, &err);
    }
    if (status != LP_OK)
        rec_copy_failed(file, line, dst, whole, &err);
}

void lp_derive_at(const char *file, int line, lp_recorder *r, lp_tensor dest, lp_tensor expression)
{
    if (!rec_usable(file, line, r, &dest) || !rec_usable(file, line, r, &expression))
        return;
    if (dest.kind != LP_TENSOR_DEST)
        rec_misuse(file, line, r, LP_E_MISUSE, "a derive into something that is not a destination");
    else
        rec_copy_value(file, line, dest, expression, false);
}

void lp_require_close_at(const char *file, int line, lp_recorder *r, lp_tensor a, lp_tensor b, double rtol,
                         const char *text)
{
    if (!rec_usable(file, line, r, &a) || !rec_usable(file, line, r, &b))
        return;
    const lp_tensor left = lp_to_f32_at(file, line, a), right = lp_to_f32_at(file, line, b);
    const int64_t x = rec_value_of(file, line, left), y = x >= 0 ? rec_value_of(file, line, right) : -1;
    if (x < 0 || y < 0)
        return;
    const int64_t nx = r->value[x].node.count, ny = r->value[y].node.count;
    if (nx != ny && nx != 1 && ny != 1) {
        rec_misuse(file, line, r, LP_E_ARGUMENT, "compares %lld elements with %lld", (long long)nx, (long long)ny);
        return;
    }
    const rec_value check = {
        .node = {.op = LP_OP_ALL_CLOSE, .arg = {(uint32_t)x, (uint32_t)y, 0}, .bits = lp_bits_f32((float)rtol)}};
    const int64_t root = rec_add_value(r, &check);
    const char *kept = lp_arena_text(&r->arena, text, strlen(text));
    if (root < 0 || kept == NULL) {
        rec_no_memory(r);
        return;
    }
    const rec_derive d = {
        .dest = LP_NONE, .root = (uint32_t)root, .text = kept, .provenance = rec_provenance(r, file, line, 0)};
    add_derive(r, &d);
}
