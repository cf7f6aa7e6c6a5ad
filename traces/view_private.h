/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How view operations build their results. Every operation reads *v, appends the dimensions of the result one by one to
 * a fresh view, outermost first, and copies it back at the end, so that a failure leaves *v alone.
 */
#ifndef LOADPLAN_VIEW_PRIVATE_H
#define LOADPLAN_VIEW_PRIVATE_H

#include "traces/base.h"

/* Addresses of a view stay inside +-LP_VIEW_FAR bits, so that sums of two of them cannot overflow. */
#define LP_VIEW_FAR ((int64_t)1 << 62)

/* A new view without dimensions, of v's dtype and offset. Only the members that count are written. */
void lp_view_start(lp_view *out, lp_dtype dtype, int64_t offset_bits);

/* Opens the next dimension; modes that follow belong to it. LP_E_LIMIT: too many dimensions. */
lp_status lp_view_add_dim(lp_view *out, int64_t size, lp_error *err);

/* Appends a mode to the last dimension, inside those that it has: extent 1 is dropped, and what continues the mode
 * before it is merged with that. LP_E_LIMIT: too many modes. */
lp_status lp_view_add_mode(lp_view *out, int64_t extent, int64_t stride_bits, lp_error *err);

/* Appends dimension `dim` of `from` as it is. */
lp_status lp_view_copy_dim(lp_view *out, const lp_view *from, int dim, lp_error *err);

/* Ends the result: an empty view keeps no modes. */
void lp_view_seal(lp_view *out);

/* Turns a torch dimension into 0 .. count-1; LP_E_ARGUMENT otherwise. A tensor without dimensions counts as one. */
lp_status lp_view_dim(const lp_view *v, int dim, int *out, lp_error *err);

/* "[2, 3]" into a buffer, shortened where it does not fit. */
const char *lp_view_shape_text(char *buffer, size_t buffer_bytes, int ndim, const int64_t *size);

#endif
