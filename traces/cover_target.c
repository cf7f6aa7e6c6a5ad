/* SPDX-License-Identifier: Apache-2.0 */
/* The logical bytes of a destination as a set of bytes: which of them exist does not depend on the order of its
 * dimensions, so they become one nested box. */
#include "traces/base.h"
#include "traces/cover.h"

static void sort_outermost_first(lp_mode *mode, int n)
{
    for (int i = 1; i < n; i++) {
        const lp_mode moving = mode[i];
        int j = i;
        for (; j > 0 && mode[j - 1].dst_stride < moving.dst_stride; j--)
            mode[j] = mode[j - 1];
        mode[j] = moving;
    }
}

static lp_status fail_overlapping(const lp_destination *d, lp_error *err)
{
    return lp_fail_at(err, LP_E_UNSUPPORTED, d->name, -1, "elements of '%s' overlap each other by their strides",
                      d->name);
}

lp_status lp_cover_target_of(lp_cover_target *out, const lp_destination *d, lp_error *err)
{
    memset(out, 0, sizeof(*out));
    out->map.dst_elem = 1;
    out->map.box = &out->box;
    out->box.mode = out->mode;
    if (d->ndim < 0 || d->ndim > LP_VIEW_DIMS)
        return lp_fail_at(err, LP_E_LIMIT, d->name, -1, "'%s' has more than %d dimensions", d->name, LP_VIEW_DIMS);
    const int bits = lp_dtype_bits(d->dtype);
    int dims = d->ndim;
    int64_t run = bits / 8;
    if (bits % 8) { /* elements of less than a byte are packed along the last dimension */
        int64_t row_bits;
        if (!lp_mul(dims > 0 ? d->shape[--dims] : 1, bits, &row_bits))
            return lp_fail_at(err, LP_E_ARGUMENT, d->name, -1, "'%s' is larger than 64 bits can count", d->name);
        run = row_bits / 8 + (row_bits % 8 != 0);
    }
    int n = 0;
    bool empty = run == 0;
    for (int i = 0; i < dims; i++) {
        empty = empty || d->shape[i] == 0;
        if (d->shape[i] > 1 && d->stride[i] > 0) /* stride 0: an expanded view shows the same bytes again */
            out->mode[n++] = (lp_mode){.extent = d->shape[i], .dst_stride = d->stride[i]};
    }
    if (empty)
        return LP_OK;
    sort_outermost_first(out->mode, n);

    /* Join what is contiguous, from the inside out. */
    int last = n;
    while (last > 0 && out->mode[last - 1].dst_stride == run) {
        if (!lp_mul(run, out->mode[last - 1].extent, &run))
            return lp_fail_at(err, LP_E_ARGUMENT, d->name, -1, "'%s' is larger than 64 bits can count", d->name);
        last--;
    }
    int64_t span = run, bytes = run;
    for (int i = last; i-- > 0;) {
        int64_t reach;
        if (out->mode[i].dst_stride < span)
            return fail_overlapping(d, err);
        if (!lp_mul(out->mode[i].extent - 1, out->mode[i].dst_stride, &reach) || !lp_add(span, reach, &span) ||
            !lp_mul(bytes, out->mode[i].extent, &bytes))
            return lp_fail_at(err, LP_E_ARGUMENT, d->name, -1, "'%s' is larger than 64 bits can count", d->name);
    }
    out->box.run = run;
    out->box.rank = last;
    out->map.nbox = 1;
    out->map.nmode = last;
    out->map.dst_bytes = bytes;
    out->map.dst_hi = span;
    return LP_OK;
}
