/* SPDX-License-Identifier: Apache-2.0 */
/* The dialects of quantised checkpoints: ModelOpt, compressed-tensors, and blocks of FP8 with inverse scales. */
#include "recorder/rules_dialect.h"

const dialect_kind DIALECT_KIND[DIALECT_KINDS] = {
    [DIALECT_PLAIN] = {"weight", DIALECT_WEIGHT},
    [DIALECT_PACKED] = {"weight_packed", DIALECT_WEIGHT},
    [DIALECT_WEIGHT_SCALE] = {"weight_scale", DIALECT_SCALE},
    [DIALECT_SCALE_INV] = {"weight_scale_inv", DIALECT_SCALE},
    [DIALECT_SCALE_2] = {"weight_scale_2", DIALECT_SCALE},
    [DIALECT_GLOBAL_SCALE] = {"weight_global_scale", DIALECT_SCALE},
    [DIALECT_INPUT_SCALE] = {"input_scale", DIALECT_SCALE},
    [DIALECT_INPUT_GLOBAL_SCALE] = {"input_global_scale", DIALECT_SCALE},
    [DIALECT_A_BIAS] = {"bias", DIALECT_BIAS},
    [DIALECT_WEIGHT_SHAPE] = {"weight_shape", DIALECT_DECLINED},
};

const dialect_kind *dialect_weight(lp_rules *l, const char *stem)
{
    const char *packed = lp_name(l->r, "%s.%s", stem, DIALECT_KIND[DIALECT_PACKED].suffix);
    return &DIALECT_KIND[rules_find(l, packed) >= 0 ? DIALECT_PACKED : DIALECT_PLAIN];
}

bool rules_has_weight(lp_rules *l, const char *stem)
{
    return rules_find(l, lp_name(l->r, "%s.%s", stem, dialect_weight(l, stem)->suffix)) >= 0;
}

bool dialect_is_scalar(lp_tensor t)
{
    return lp_is_valid(t) && lp_dim(t) < 2 && lp_count(t) == 1;
}

int64_t dialect_block(int64_t total, int64_t blocks)
{
    if (blocks < 1 || blocks > total)
        return 0;
    for (int bit = 0; bit < 62; bit++)
        if (((total - 1) >> bit) + 1 == blocks)
            return INT64_C(1) << bit;
    return total % blocks == 0 ? total / blocks : 0;
}

bool dialect_cuts_block(lp_rules *l, lp_tensor scale, const char *what, int64_t block, int64_t cut, int64_t total)
{
    const char *name = lp_checkpoint_at(l->checkpoint, scale.base)->name;
    const lp_status code = l->at.tp > 1 ? LP_E_ARGUMENT : LP_E_MISMATCH;
    if (block < 1)
        rules_fail(l, code, name, "the scales of '%s' are of no equal blocks of %" PRId64 " %s", name, total, what);
    else
        rules_fail(l, code, name,
                   "'%s' has a scale for a block of %" PRId64 " %s, and %" PRId64 " of %" PRId64
                   " on a rank are not whole blocks",
                   name, block, what, cut, total);
    return false;
}

bool dialect_rows(lp_rules *l, lp_tensor scale, int64_t rows, bool aligned, int64_t *start, int64_t *count)
{
    const int64_t blocks = lp_size(scale, 0), block = dialect_block(rows, blocks);
    if (*start == 0 && *count == rows && !aligned) {
        *count = blocks;
        return true;
    }
    if (block < 1 || *start % block != 0 || *count % block != 0)
        return dialect_cuts_block(l, scale, "rows", block, *count, rows);
    *start /= block;
    *count /= block;
    return true;
}

bool dialect_columns(lp_rules *l, lp_tensor t, const char *what, int64_t columns, int64_t parts, int64_t part,
                     int64_t *start, int64_t *count)
{
    const int64_t own = lp_size(t, 1);
    *start = 0;
    *count = own;
    if (parts == 1 || (own == 1 && columns != 1))
        return true;
    const int64_t block = dialect_block(columns, own);
    if (own != columns && (block < 1 || columns % (block * parts) != 0))
        return dialect_cuts_block(l, t, "columns", block, columns / parts, columns);
    *count = rules_share(l, what, own, parts);
    *start = *count * part;
    return !rules_failed(l);
}
