/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may stand beside a weight in the dialects of quantised checkpoints, and how it is cut when the weight is. One
 * table for linear layers and experts; docs/loaders.md, "Dialects". Private to recorder/.
 */
#ifndef LOADPLAN_RULES_DIALECT_H
#define LOADPLAN_RULES_DIALECT_H

#include "recorder/rule_sets.h"

typedef enum dialect_role {
    DIALECT_WEIGHT,  /* [rows, columns], or columns packed several to an element */
    DIALECT_BIAS,    /* [rows] */
    DIALECT_SCALE,   /* [] or [1]: of the whole tensor; [rows]; or two dimensions: a row of it is one or more rows */
    DIALECT_DECLINED /* known, and of no use to an engine */
} dialect_role;

typedef struct dialect_kind {
    const char *suffix;
    dialect_role role;
} dialect_kind;

enum {
    DIALECT_PLAIN = 0,
    DIALECT_PACKED,
    DIALECT_WEIGHT_SCALE,
    DIALECT_SCALE_INV,
    DIALECT_SCALE_2,
    DIALECT_GLOBAL_SCALE,
    DIALECT_INPUT_SCALE,
    DIALECT_INPUT_GLOBAL_SCALE,
    DIALECT_A_BIAS,
    DIALECT_WEIGHT_SHAPE,
    DIALECT_KINDS
};
extern const dialect_kind DIALECT_KIND[DIALECT_KINDS];

/* The kind of weight that a stem has; `weight` where it has none. */
const dialect_kind *dialect_weight(lp_rules *l, const char *stem);

/* Whether a scale is of the whole tensor. A block scale of one block has two dimensions, and is none. */
bool dialect_is_scalar(lp_tensor t);

/* How many of `total` rows or columns share one of `blocks` scales, or one element of packed codes; 0: they do not. The
 * last block may be cut short, so that division does not say: 1,000 rows in 8 blocks are blocks of 128, not of 125.
 * Formats have powers of two, so the smallest that fits is meant; where none does, equal parts are. */
int64_t dialect_block(int64_t total, int64_t blocks);

/* Fails, and returns false: `cut` of `total` rows or columns ("rows", "columns": `what`) of the weight are on a rank,
 * or have another part below them, and are not whole blocks of the scale, a tensor of the checkpoint. */
bool dialect_cuts_block(lp_rules *l, lp_tensor scale, const char *what, int64_t block, int64_t cut, int64_t total);

/* Rows [*start, *start + *count) of a weight of `rows` rows become those of its scale, which has a row for a block of
 * them. `aligned`: something follows below, so that the last block must be full. False after a failure: the cut goes
 * through a block. */
bool dialect_rows(lp_rules *l, lp_tensor scale, int64_t rows, bool aligned, int64_t *start, int64_t *count);

/* This rank's columns of a tensor that belongs to a weight of `columns` columns, or is it. One column serves all. */
bool dialect_columns(lp_rules *l, lp_tensor t, const char *what, int64_t columns, int64_t parts, int64_t part,
                     int64_t *start, int64_t *count);

#endif
