/* SPDX-License-Identifier: Apache-2.0 */
/* Destination rows: what is legal, and the one form that equal ones have. */
#include "traces/json_pull.h"
#include "traces/trace_build.h"

#include <inttypes.h>

static const uint32_t KNOWN_FLAGS = LP_DEST_NO_LOADER | LP_DEST_TIED | LP_DEST_HAS_DUMMY | LP_DEST_BUFFER;

static lp_status fault(const lp_destination *dest, lp_status code, const char *what, lp_error *err)
{
    return lp_fail_at(err, code, dest->name, -1, "destination '%s' %s", dest->name, what);
}

bool lp_text_is_fit(const char *text)
{
    size_t bad_off;
    const size_t bytes = text == NULL ? 0 : strlen(text);
    return bytes <= LP_TEXT_BYTES_MAX && (bytes == 0 || lp_utf8_is_valid(text, bytes, &bad_off));
}

bool lp_destination_strides(lp_dtype dtype, int32_t ndim, const int64_t *shape, int64_t *stride)
{
    int64_t bits = lp_dtype_bits(dtype);
    for (int32_t d = ndim - 1; d >= 0; d--) {
        stride[d] = bits / 8;
        if (!lp_mul(bits, shape[d] > 1 ? shape[d] : 1, &bits))
            return false;
    }
    return true;
}

/* Bytes from element [0, ..., 0] to the end of the last element; false when they overflow or are not whole. */
static bool span_of(const lp_destination *dest, int64_t *span)
{
    const int64_t elem_bits = lp_dtype_bits(dest->dtype);
    *span = 0;
    int64_t row_bits = elem_bits;
    if (elem_bits < 8 && dest->ndim > 0 && !lp_mul(row_bits, dest->shape[dest->ndim - 1], &row_bits))
        return false;
    if (row_bits % 8 != 0)
        return false;
    for (int32_t d = 0; d < dest->ndim; d++)
        if (dest->shape[d] == 0)
            return true;
    *span = row_bits / 8;
    const int32_t outer = elem_bits < 8 ? dest->ndim - 1 : dest->ndim;
    for (int32_t d = 0; d < outer; d++) {
        int64_t reach;
        if (!lp_mul(dest->shape[d] - 1, dest->stride[d], &reach) || !lp_add(*span, reach, span))
            return false;
    }
    return true;
}

/* Strides nest when, in order of size, each is at least the span of all smaller ones: then no two elements share a
 * byte. Strided tensors of engines nest; what does not could only be told from sharing by trying every element. */
static bool has_nested_strides(const lp_destination *dest)
{
    int32_t order[LP_DEST_DIMS_MAX];
    int32_t n = 0;
    for (int32_t d = 0; d < dest->ndim; d++) {
        if (dest->shape[d] == 0)
            return true;
        if (dest->shape[d] == 1)
            continue;
        int32_t at = n++;
        for (; at > 0 && dest->stride[order[at - 1]] > dest->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    int64_t span = lp_dtype_bits(dest->dtype) / 8;
    for (int32_t i = 0; i < n; i++) {
        const int32_t d = order[i];
        if (dest->stride[d] < span)
            return false;
        span += (dest->shape[d] - 1) * dest->stride[d];
    }
    return true;
}

lp_status lp_destination_check(const lp_destination *dest, lp_status code, lp_error *err)
{
    if (dest->name == NULL || dest->name[0] == '\0')
        return lp_fail(err, code, "a destination has no name");
    if (!lp_text_is_fit(dest->name) || !lp_text_is_fit(dest->storage) || !lp_text_is_fit(dest->layout) ||
        !lp_text_is_fit(dest->group))
        return fault(dest, code, "has a text that is too long or not UTF-8", err);
    if (lp_dtype_bits(dest->dtype) == 0)
        return fault(dest, code, "has no dtype", err);
    if (dest->ndim < 0 || dest->ndim > LP_DEST_DIMS_MAX)
        return fault(dest, code, "has more than 16 dimensions", err);
    if (dest->ndim > 0 && (dest->shape == NULL || dest->stride == NULL))
        return fault(dest, code, "has no shape or no strides", err);
    for (int32_t d = 0; d < dest->ndim; d++)
        if (dest->shape[d] < 0 || dest->stride[d] < 0)
            return fault(dest, code, "has a negative extent or stride", err);
    int64_t span, end;
    if (dest->offset < 0 || dest->storage_bytes < 0 || !span_of(dest, &span) || !lp_add(dest->offset, span, &end))
        return fault(dest, code, "has an illegal size, offset or row that is not whole bytes", err);
    if (end > dest->storage_bytes)
        return lp_fail_at(err, code, dest->name, -1,
                          "destination '%s' ends at byte %" PRId64 " of a storage of %" PRId64 " bytes", dest->name,
                          end, dest->storage_bytes);
    if (lp_dtype_bits(dest->dtype) < 8) {
        int64_t stride[LP_DEST_DIMS_MAX];
        if (!lp_destination_strides(dest->dtype, dest->ndim, dest->shape, stride))
            return fault(dest, code, "has a size that overflows", err);
        for (int32_t d = 0; d < dest->ndim; d++)
            if (dest->shape[d] > 1 && dest->stride[d] != stride[d])
                return fault(dest, code, "has elements of less than a byte and is not contiguous", err);
    } else if (!has_nested_strides(dest)) {
        return fault(dest, code, "has strides that do not nest: elements could share bytes", err);
    }
    if ((dest->flags & ~KNOWN_FLAGS) != 0 || dest->layout_version < 0)
        return fault(dest, code, "has unknown flags or a negative layout version", err);
    const int bits = lp_dtype_bits(dest->dtype);
    if ((dest->flags & LP_DEST_HAS_DUMMY) != 0 && bits < 64 && dest->dummy_bits >> bits != 0)
        return fault(dest, code, "has a dummy value of more bits than its dtype", err);
    if (dest->slot_count != 0 &&
        (dest->slot_dim < 0 || dest->slot_dim >= dest->ndim || dest->slot_count != dest->shape[dest->slot_dim]))
        return fault(dest, code, "has expert slots that are not one of its dimensions", err);
    return LP_OK;
}

void lp_destination_normalise(lp_destination *dest, int64_t *stride)
{
    bool is_empty = false;
    for (int32_t d = 0; d < dest->ndim; d++)
        is_empty = is_empty || dest->shape[d] == 0;
    if (is_empty) {
        if (!lp_destination_strides(dest->dtype, dest->ndim, dest->shape, stride))
            memset(stride, 0, (size_t)dest->ndim * sizeof *stride);
    } else if (lp_dtype_bits(dest->dtype) >= 8) {
        int64_t natural = lp_dtype_bits(dest->dtype) / 8;
        for (int32_t d = dest->ndim - 1; d >= 0; d--) {
            if (dest->shape[d] == 1)
                stride[d] = natural;
            else if (!lp_mul(stride[d], dest->shape[d], &natural))
                natural = 0;
        }
    } else {
        lp_destination_strides(dest->dtype, dest->ndim, dest->shape, stride);
    }
    dest->stride = stride;
    if ((dest->flags & LP_DEST_HAS_DUMMY) == 0)
        dest->dummy_bits = 0;
    if (dest->slot_count == 0)
        dest->slot_dim = -1;
    if (dest->layout[0] == '\0')
        dest->layout_version = 0;
}

lp_status lp_destination_view(const lp_destination *dest, lp_view *view, int64_t *bytes, lp_error *err)
{
    *bytes = dest->storage_bytes - dest->offset;
    if (lp_dtype_bits(dest->dtype) < 8)
        return lp_view_contiguous(view, dest->dtype, dest->ndim, dest->shape, err);
    return lp_view_strided(view, dest->dtype, dest->ndim, dest->shape, dest->stride, 0, err);
}
