/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates the nodes of a derive over dense inputs; docs/derives.md says what each operation does. */
#ifndef LOADPLAN_DERIVE_EVAL_H
#define LOADPLAN_DERIVE_EVAL_H

#include "traces/base.h"

/* Outcome of a check. */
typedef struct lp_derive_check {
    bool failed;
    int64_t index; /* first failing element */
    float a, b;    /* its values */
} lp_derive_check;

/* input[i] is the dense array of derive input i, aligned for its dtype. The result goes to *result, count * element
 * size bytes that the caller releases by `alloc`, or to *check when the derive is one. */
lp_status lp_derive_evaluate(const lp_derive *derive, const void *const *input, const lp_alloc *alloc, void **result,
                             lp_derive_check *check, lp_error *err);

/* The error text of a failed check: "{index}" replaced, then the two values. */
void lp_derive_check_text(const lp_derive *derive, const lp_derive_check *check, char *out, size_t out_bytes);

#endif
