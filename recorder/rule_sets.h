/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule sets: the parts that built-in loaders are composed of. A rule takes up checkpoint names, declares what the
 * engine reads, and copies. Names are given relative to the model's prefix ("model." or ""), and destinations are named
 * without it. Private to recorder/.
 *
 * Failures are sticky, like every misuse of the recorder: rules go on with invalid tensors, and the first failure is
 * reported at the end of the scope.
 */
#ifndef LOADPLAN_RULES_H
#define LOADPLAN_RULES_H

#include "recorder/config.h"
#include "recorder/recorder.h"

#include <inttypes.h>

typedef struct rules_experts rules_experts; /* rules_experts_index.c */

typedef struct lp_rules {
    lp_recorder *r;
    const lp_checkpoint *checkpoint;
    const lp_config *config;
    const lp_alloc *alloc;
    lp_arena arena; /* for all scopes */
    lp_scope at;
    const char *prefix; /* in the arena; NULL until the names were looked at */
    int64_t layers;
    int32_t slots;          /* 0: as many as the experts need */
    rules_experts *experts; /* made at first use, for all scopes */
    uint8_t *taken;         /* by catalogue index: some rule took the name up, in any scope */
} lp_rules;

/* ---- rule_sets.c ---- */

/* Keeps a failure that is the checkpoint's or the configuration's: no place in our source is of use to the reader. */
void rules_fail(lp_rules *l, lp_status code, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool rules_failed(const lp_rules *l);

/* Catalogue index of a name, or -1. */
int64_t rules_find(lp_rules *l, const char *name);
/* The tensor, taken up; a missing one is a failure. */
lp_tensor rules_take(lp_rules *l, const char *name);
/* Takes a name up without loading it; an absent one is fine. */
void rules_decline(lp_rules *l, const char *name);

/* Fails unless t has that shape; dimensions of -1 may be anything. False after a failure. */
bool rules_expect(lp_rules *l, lp_tensor t, int ndim, const int64_t *shape);

/* An integer of the configuration that must be there and positive; 1 after a failure. */
int64_t rules_need(lp_rules *l, const char *key);

/* total / parts, which must divide; 1 after a failure. `what` names the total in the message. */
int64_t rules_share(lp_rules *l, const char *what, int64_t total, int64_t parts);

/* ---- rules_linear.c ---- */

/* A destination of the same dtype and shape on every rank; nothing when the checkpoint has no such name. */
void rules_whole(lp_rules *l, const char *name);
/* NAME.weight and, where it exists, NAME.bias. */
void rules_whole_module(lp_rules *l, const char *name);

/* Rows [start, start + count) of the `rows` rows of STEM.weight and STEM.bias. */
typedef struct rules_rows {
    const char *stem;
    int64_t rows, start, count;
} rules_rows;

/* DEST.weight (and DEST.bias, where any part has one: others are zero there) of the parts' rows, one below the other.
 */
void rules_stack_rows(lp_rules *l, const char *dest, int count, const rules_rows *part);

/* The same for parts that are split evenly over the tensor-parallel ranks. */
void rules_column_parallel(lp_rules *l, const char *dest, int count, const char *const *stem);

/* STEM.weight split along its input dimension; STEM.bias whole on every rank. */
void rules_row_parallel(lp_rules *l, const char *dest, const char *stem);

/* ---- rules_embedding.c ---- */

/* NAME.weight by rows over the tensor-parallel ranks, padded with zero rows; see docs/loaders.md. */
void rules_vocabulary(lp_rules *l, const char *name, const char *dest);
/* Embedding and output head, tied where the configuration or the checkpoint says so. */
void rules_embedding_and_head(lp_rules *l);

/* ---- rules_attention.c ---- */

void rules_attention(lp_rules *l, int64_t layer);

/* ---- rules_mlp.c ---- */

/* gate_proj, up_proj and down_proj below `stem`. */
void rules_gated_mlp(lp_rules *l, const char *stem);

/* ---- rules_experts.c ---- */

bool rules_has_experts(lp_rules *l, int64_t layer);
void rules_megamoe(lp_rules *l, int64_t layer);
void rules_free_experts(lp_rules *l);

/* ---- rules_shared_experts.c ---- */

void rules_shared_experts(lp_rules *l, int64_t layer);

/* ---- loader_*.c ---- */

void loader_bert(lp_rules *l);
void loader_dense(lp_rules *l);
void loader_megamoe(lp_rules *l);

#endif
