/* SPDX-License-Identifier: Apache-2.0 */
/* Rule sets for plain tensors and linear layers: whole, by rows, by columns. */
#include "recorder/rule_sets.h"

void rules_whole(lp_rules *l, const char *name)
{
    if (rules_find(l, name) < 0)
        return;
    const lp_tensor from = rules_take(l, name);
    lp_copy(lp_declare(l->r, name, lp_dtype_of(from), lp_dim(from), from.view.size), from);
}

void rules_whole_module(lp_rules *l, const char *name)
{
    const lp_tensor weight = rules_take(l, lp_name(l->r, "%s.weight", name));
    if (!lp_is_valid(weight))
        return;
    lp_copy(lp_declare(l->r, lp_name(l->r, "%s.weight", name), lp_dtype_of(weight), lp_dim(weight), weight.view.size),
            weight);
    rules_whole(l, lp_name(l->r, "%s.bias", name));
}

/* One of weight and bias: what is below the first dimension must be equal in all parts. */
static void stack_one(lp_rules *l, const char *dest, int count, const rules_rows *part, const char *what, int ndim)
{
    lp_tensor from[8], into = {0};
    int64_t shape[2] = {0, -1}, start = 0;
    int first = -1;
    for (int i = 0; i < count; i++) {
        const char *name = lp_name(l->r, "%s.%s", part[i].stem, what);
        from[i] = (lp_tensor){0};
        shape[0] += part[i].count;
        if (ndim == 1 && rules_find(l, name) < 0)
            continue;
        from[i] = rules_take(l, name);
        if (!rules_expect(l, from[i], ndim, (int64_t[]){part[i].rows, shape[1]}))
            return;
        if (first < 0) {
            first = i;
            shape[1] = lp_size(from[i], 1);
        } else if (lp_dtype_of(from[i]) != lp_dtype_of(from[first])) {
            rules_fail(l, LP_E_MISMATCH, name, "'%s%s' is %s, but '%s%s.%s' is %s", l->prefix, name,
                       lp_dtype_name(lp_dtype_of(from[i])), l->prefix, part[first].stem, what,
                       lp_dtype_name(lp_dtype_of(from[first])));
            return;
        }
    }
    if (first < 0)
        return;
    into = lp_declare(l->r, lp_name(l->r, "%s.%s", dest, what), lp_dtype_of(from[first]), ndim, shape);
    for (int i = 0; i < count; i++) {
        const lp_tensor rows = lp_narrow(into, 0, start, part[i].count);
        if (lp_is_valid(from[i]))
            lp_copy(rows, lp_narrow(from[i], 0, part[i].start, part[i].count));
        else
            lp_zero(rows, lp_at_begin(l->r)); /* a part without a bias: no name brings it, and it must not keep
                                                 what was there */
        start += part[i].count;
    }
}

void rules_stack_rows(lp_rules *l, const char *dest, int count, const rules_rows *part)
{
    stack_one(l, dest, count, part, "weight", 2);
    stack_one(l, dest, count, part, "bias", 1);
}

void rules_column_parallel(lp_rules *l, const char *dest, int count, const char *const *stem)
{
    rules_rows part[8];
    for (int i = 0; i < count; i++) {
        const lp_tensor weight = rules_take(l, lp_name(l->r, "%s.weight", stem[i]));
        const int64_t rows = lp_size(weight, 0), share = rules_share(l, stem[i], rows, l->at.tp);
        part[i] = (rules_rows){.stem = stem[i], .rows = rows, .start = share * l->at.tp_rank, .count = share};
    }
    if (!rules_failed(l))
        rules_stack_rows(l, dest, count, part);
}

void rules_row_parallel(lp_rules *l, const char *dest, const char *stem)
{
    const lp_tensor from = rules_take(l, lp_name(l->r, "%s.weight", stem));
    if (!rules_expect(l, from, 2, (int64_t[]){-1, -1}))
        return;
    const int64_t share = rules_share(l, stem, lp_size(from, 1), l->at.tp);
    const lp_tensor into =
        lp_declare(l->r, lp_name(l->r, "%s.weight", dest), lp_dtype_of(from), 2, (int64_t[]){lp_size(from, 0), share});
    lp_copy(into, lp_narrow(from, 1, share * l->at.tp_rank, share));

    const char *bias_name = lp_name(l->r, "%s.bias", stem);
    if (rules_find(l, bias_name) < 0)
        return;
    const lp_tensor bias = rules_take(l, bias_name);
    if (rules_expect(l, bias, 1, (int64_t[]){lp_size(from, 0)}))
        lp_copy(lp_declare(l->r, lp_name(l->r, "%s.bias", dest), lp_dtype_of(bias), 1, bias.view.size), bias);
}
