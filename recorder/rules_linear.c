/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule sets for plain tensors and linear layers: whole, by rows, by columns. A layer is its weight and whatever stands
 * beside it under the same stem: a bias, and the scales of the quantised dialects (rules_dialect.c).
 */
#include "recorder/rule_sets.h"

#include "recorder/rules_dialect.h"

#include <assert.h>

void rules_copy_as(lp_rules *l, const char *name, const char *dest)
{
    if (rules_find(l, name) < 0)
        return;
    const lp_tensor from = rules_take(l, name);
    lp_copy(rules_declare(l, dest, lp_dtype_of(from), lp_dim(from), from.view.size), from);
}

void rules_whole(lp_rules *l, const char *name)
{
    rules_copy_as(l, name, name);
}

void rules_whole_module(lp_rules *l, const char *name)
{
    const lp_tensor weight = rules_take(l, lp_name(l->r, "%s.weight", name));
    if (!lp_is_valid(weight))
        return;
    lp_copy(rules_declare(l, lp_name(l->r, "%s.weight", name), lp_dtype_of(weight), lp_dim(weight), weight.view.size),
            weight);
    rules_whole(l, lp_name(l->r, "%s.bias", name));
}

void rules_module_if_stored(lp_rules *l, const char *name)
{
    if (rules_find(l, lp_name(l->r, "%s.weight", name)) >= 0)
        rules_whole_module(l, name);
}

/* ---- rows of several layers, one below the other ---- */

enum { PARTS_MAX = 8 };

/* One tensor of each part, such as the weights or the biases. */
typedef struct stack {
    lp_rules *l;
    const char *dest, *what;
    dialect_role role;
    int count, first; /* first: the first part that has it, or -1 */
    const rules_rows *part;
    lp_tensor from[PARTS_MAX];
    int64_t start[PARTS_MAX], rows[PARTS_MAX], columns;
} stack;

/* Takes part i up, and says which of its rows are wanted. False after a failure. */
static bool take_part(stack *s, int i)
{
    lp_rules *l = s->l;
    const rules_rows *part = &s->part[i];
    const char *name = lp_name(l->r, "%s.%s", part->stem, s->what);
    s->from[i] = (lp_tensor){0};
    s->start[i] = part->start;
    s->rows[i] = part->count;
    if (s->role != DIALECT_WEIGHT && rules_find(l, name) < 0)
        return true;
    const lp_tensor from = s->from[i] = rules_take(l, name);
    if (s->role == DIALECT_SCALE) {
        const int64_t columns = s->first < 0 ? -1 : s->columns;
        const int ndim = s->first < 0 ? (lp_dim(from) == 1 ? 1 : 2) : lp_dim(s->from[s->first]);
        if (!rules_expect(l, from, ndim, (int64_t[]){-1, columns}) ||
            !dialect_rows(l, from, part->rows, i + 1 < s->count, &s->start[i], &s->rows[i]))
            return false;
    } else if (!rules_expect(l, from, s->role == DIALECT_WEIGHT ? 2 : 1,
                             (int64_t[]){part->rows, s->first < 0 ? -1 : s->columns})) {
        return false;
    }
    if (s->first < 0) {
        s->first = i;
        s->columns = lp_size(from, 1);
    } else if (lp_dtype_of(from) != lp_dtype_of(s->from[s->first])) {
        rules_fail(l, LP_E_MISMATCH, name, "'%s%s' is %s, but '%s%s.%s' is %s", l->prefix, name,
                   lp_dtype_name(lp_dtype_of(from)), l->prefix, s->part[s->first].stem, s->what,
                   lp_dtype_name(lp_dtype_of(s->from[s->first])));
        return false;
    }
    return true;
}

static void stack_rows(stack *s)
{
    lp_rules *l = s->l;
    int64_t shape[2] = {0, 0}, start = 0;
    for (int i = 0; i < s->count; i++) {
        if (!take_part(s, i))
            return;
    }
    if (s->first < 0)
        return;
    for (int i = 0; i < s->count; i++) {
        if (s->role == DIALECT_SCALE && !lp_is_valid(s->from[i])) {
            rules_take(l, lp_name(l->r, "%s.%s", s->part[i].stem, s->what)); /* fails: the others have one */
            return;
        }
        shape[0] += s->rows[i];
    }
    shape[1] = s->columns;
    const lp_tensor first = s->from[s->first];
    const lp_tensor into =
        rules_declare(l, lp_name(l->r, "%s.%s", s->dest, s->what), lp_dtype_of(first), lp_dim(first), shape);
    for (int i = 0; i < s->count; i++) {
        const lp_tensor rows = lp_narrow(into, 0, start, s->rows[i]);
        if (lp_is_valid(s->from[i]))
            lp_copy(rows, lp_narrow(s->from[i], 0, s->start[i], s->rows[i]));
        else
            lp_zero(rows, lp_at_begin(l->r)); /* a part without a bias: no name brings it, and it must not keep
                                                 what was there */
        start += s->rows[i];
    }
}

/* A scale for a whole tensor: an element for each part. */
static void stack_scalars(lp_rules *l, const char *dest, int count, const rules_rows *part, const char *what)
{
    lp_tensor into = {0};
    for (int i = 0; i < count; i++) {
        const lp_tensor from = rules_take(l, lp_name(l->r, "%s.%s", part[i].stem, what));
        if (!dialect_is_scalar(from)) {
            rules_expect(l, from, 0, NULL);
            return;
        }
        if (i == 0)
            into =
                rules_declare(l, lp_name(l->r, "%s.%s", dest, what), lp_dtype_of(from), 1, (int64_t[]){(int64_t)count});
        lp_copy(lp_narrow(into, 0, i, 1), lp_reshape(from, 1, (int64_t[]){1}));
    }
}

static void stack_one(lp_rules *l, const char *dest, int count, const rules_rows *part, const dialect_kind *kind)
{
    stack s = {.l = l, .dest = dest, .what = kind->suffix, .role = kind->role, .count = count, .part = part};
    s.first = -1;
    if (kind->role == DIALECT_DECLINED) {
        for (int i = 0; i < count; i++)
            rules_decline(l, lp_name(l->r, "%s.%s", part[i].stem, kind->suffix));
        return;
    }
    const int64_t index = rules_find(l, lp_name(l->r, "%s.%s", part[0].stem, kind->suffix));
    if (kind->role == DIALECT_SCALE && index >= 0 && dialect_is_scalar(lp_source_index(l->r, index)))
        stack_scalars(l, dest, count, part, kind->suffix);
    else
        stack_rows(&s);
}

void rules_stack_rows(lp_rules *l, const char *dest, int count, const rules_rows *part)
{
    assert(count > 0 && count <= PARTS_MAX);
    const dialect_kind *weight = dialect_weight(l, part[0].stem);
    stack_one(l, dest, count, part, weight);
    for (int k = 0; k < DIALECT_KINDS && !rules_failed(l); k++) {
        if (DIALECT_KIND[k].role != DIALECT_WEIGHT)
            stack_one(l, dest, count, part, &DIALECT_KIND[k]);
    }
}

lp_tensor rules_take_weight(lp_rules *l, const char *stem)
{
    return rules_take(l, lp_name(l->r, "%s.%s", stem, dialect_weight(l, stem)->suffix));
}

void rules_column_parallel(lp_rules *l, const char *dest, int count, const char *const *stem)
{
    rules_rows part[PARTS_MAX];
    for (int i = 0; i < count; i++) {
        const lp_tensor weight = rules_take_weight(l, stem[i]);
        const int64_t rows = lp_size(weight, 0), share = rules_share(l, stem[i], rows, l->at.tp);
        part[i] = (rules_rows){.stem = stem[i], .rows = rows, .start = share * l->at.tp_rank, .count = share};
    }
    if (!rules_failed(l))
        rules_stack_rows(l, dest, count, part);
}

void rules_column_parallel_fused(lp_rules *l, const char *dest, int count, const char *stem)
{
    rules_rows part[PARTS_MAX];
    const int64_t rows = lp_size(rules_take_weight(l, stem), 0);
    const int64_t half = rules_share(l, stem, rows, count), share = rules_share(l, stem, half, l->at.tp);
    for (int i = 0; i < count; i++)
        part[i] = (rules_rows){.stem = stem, .rows = rows, .start = i * half + share * l->at.tp_rank, .count = share};
    if (!rules_failed(l))
        rules_stack_rows(l, dest, count, part);
}

void rules_replicated(lp_rules *l, const char *dest, int count, const char *const *stem)
{
    rules_rows part[PARTS_MAX];
    for (int i = 0; i < count; i++) {
        const int64_t rows = lp_size(rules_take_weight(l, stem[i]), 0);
        part[i] = (rules_rows){.stem = stem[i], .rows = rows, .start = 0, .count = rows};
    }
    if (!rules_failed(l))
        rules_stack_rows(l, dest, count, part);
}

/* ---- by columns ---- */

/* This rank's columns of a weight or of its scales. */
static void split_columns(lp_rules *l, const char *dest, const char *stem, const char *what, int64_t weight_columns)
{
    const lp_tensor from = rules_take(l, lp_name(l->r, "%s.%s", stem, what));
    int64_t start, columns;
    if (!rules_expect(l, from, 2, (int64_t[]){-1, -1}) ||
        !dialect_columns(l, from, stem, weight_columns, l->at.tp, l->at.tp_rank, &start, &columns))
        return;
    const lp_tensor into = rules_declare(l, lp_name(l->r, "%s.%s", dest, what), lp_dtype_of(from), 2,
                                         (int64_t[]){lp_size(from, 0), columns});
    lp_copy(into, lp_narrow(from, 1, start, columns));
}

void rules_row_parallel(lp_rules *l, const char *dest, const char *stem)
{
    const dialect_kind *kind = dialect_weight(l, stem);
    const lp_tensor weight = rules_take_weight(l, stem);
    if (!rules_expect(l, weight, 2, (int64_t[]){-1, -1}))
        return;
    split_columns(l, dest, stem, kind->suffix, lp_size(weight, 1));
    for (int k = 0; k < DIALECT_KINDS && !rules_failed(l); k++) {
        const dialect_kind *other = &DIALECT_KIND[k];
        const char *name = lp_name(l->r, "%s.%s", stem, other->suffix);
        if (other->role == DIALECT_WEIGHT || rules_find(l, name) < 0)
            continue;
        if (other->role == DIALECT_DECLINED) {
            rules_decline(l, name);
            continue;
        }
        const lp_tensor from = rules_take(l, name);
        const rules_rows whole = {.stem = stem, .rows = lp_size(weight, 0), .count = lp_size(weight, 0)};
        if (other->role == DIALECT_SCALE && lp_dim(from) == 2)
            split_columns(l, dest, stem, other->suffix, lp_size(weight, 1));
        else
            stack_one(l, dest, 1, &whole, other);
    }
}
