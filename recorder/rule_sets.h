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
    int32_t slots;            /* 0: as many as the experts need */
    int expert_kinds;         /* how many of the kinds of rules_experts_index.h the loader knows; 0: MegaMoE's */
    bool expert_tiles;        /* MegaMoE's experts packed by tiles for Hopper */
    rules_experts *experts;   /* made at first use, for all scopes */
    uint8_t *taken;           /* by catalogue index: some rule took the name up, in any scope */
    const char *bare_experts; /* experts without a router, in the arena; NULL: there are none */
    const char *untied_head;  /* a head that is neither stored nor tied by the configuration; NULL: there is none */
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

/* A destination, row-major. Rows that are not whole bytes, which a split may leave of the smallest dtypes, are a
 * failure of the checkpoint; rules_whole_bytes: the question alone. */
lp_tensor rules_declare(lp_rules *l, const char *dest, lp_dtype dtype, int ndim, const int64_t *shape);
bool rules_whole_bytes(lp_rules *l, const char *dest, lp_dtype dtype, int ndim, const int64_t *shape);

/* An integer of the configuration that must be there and positive; 1 after a failure. */
int64_t rules_need(lp_rules *l, const char *key);

/* total / parts, which must divide; 1 after a failure. `what` names the total in the message. */
int64_t rules_share(lp_rules *l, const char *what, int64_t total, int64_t parts);

/* ---- rules_linear.c ---- */

/* A destination of the same dtype and shape on every rank; nothing when the checkpoint has no such name. */
void rules_whole(lp_rules *l, const char *name);
/* The same under another name. */
void rules_copy_as(lp_rules *l, const char *name, const char *dest);
/* NAME.weight and, where it exists, NAME.bias. */
void rules_whole_module(lp_rules *l, const char *name);
/* The same; nothing when the checkpoint has no NAME.weight. */
void rules_module_if_stored(lp_rules *l, const char *name);

/* STEM.weight, or STEM.weight_packed where the dialect packs it: whether it is there; the tensor, taken up. */
bool rules_has_weight(lp_rules *l, const char *stem);
lp_tensor rules_take_weight(lp_rules *l, const char *stem);

/* Rows [start, start + count) of the `rows` rows of STEM.weight, and of its bias and scales (rules_dialect.h). Parts
 * may be of one stem: then they are parts of a parameter that is fused on disk. */
typedef struct rules_rows {
    const char *stem;
    int64_t rows, start, count;
} rules_rows;

/* DEST.weight (and DEST.bias, where any part has one: others are zero there; and the scales, which all must have) of
 * the parts' rows, one below the other. */
void rules_stack_rows(lp_rules *l, const char *dest, int count, const rules_rows *part);

/* The same for parts that are split evenly over the tensor-parallel ranks. */
void rules_column_parallel(lp_rules *l, const char *dest, int count, const char *const *stem);

/* The same for `count` equal parts that are fused on disk, one below the other. */
void rules_column_parallel_fused(lp_rules *l, const char *dest, int count, const char *stem);
/* The same with every part whole on every rank. */
void rules_replicated(lp_rules *l, const char *dest, int count, const char *const *stem);

/* STEM.weight split along its input dimension; STEM.bias whole on every rank. */
void rules_row_parallel(lp_rules *l, const char *dest, const char *stem);

/* ---- rules_embedding.c ---- */

/* NAME.weight by rows over the tensor-parallel ranks, padded with zero rows; see docs/loaders.md. */
void rules_vocabulary(lp_rules *l, const char *name, const char *dest);
/* Embedding and output head, tied where the configuration or the checkpoint says so. */
void rules_embedding_and_head(lp_rules *l); /* embed_tokens and lm_head */
void rules_embedding_and_head_as(lp_rules *l, const char *embedding, const char *head);

/* ---- rules_attention.c ---- */

/* Heads [start, start + count) of one rank. With fewer heads than ranks, several ranks hold the same one, where that is
 * allowed. */
void rules_heads(lp_rules *l, const char *what, int64_t heads, bool may_repeat, int64_t *start, int64_t *count);

/* q, k and v of self_attn, apart or fused on disk; or what latent attention has instead of them. */
void rules_attention(lp_rules *l, int64_t layer);

/* ---- rules_latent.c ---- */

bool rules_has_latent_attention(lp_rules *l, const char *stem);
void rules_latent_attention(lp_rules *l, const char *stem);

/* ---- rules_grouped.c ---- */

/* STEM.{weight,bias} whose rows are, for each of `groups` key/value heads, its `queries` query heads, its key and its
 * value, of head_dim rows each: into DEST as q, k and v of this rank. */
void rules_grouped_qkv(lp_rules *l, const char *dest, const char *stem, int64_t groups, int64_t queries,
                       int64_t head_dim);

/* ---- rules_decoder.c ---- */

/* A decoder layer but for its experts: attention, norms, and the MLP where the layer has one. `partial`: parts may be
 * missing. */
void rules_decoder_layer(lp_rules *l, int64_t layer, bool partial);
/* Fails where shapes of a layer contradict one another, or `hidden_size` and the heads of the configuration. Part of
 * rules_decoder_layer. */
void rules_check_widths(lp_rules *l, int64_t layer);
/* The MLP of a layer that has no experts; false when the checkpoint has none. */
bool rules_decoder_mlp(lp_rules *l, int64_t layer);
/* The norm behind the last layer. */
void rules_last_norm(lp_rules *l);
/* Takes up without loading what stands behind the layers: those of a draft model, as many as the configuration says. */
void rules_draft_layers(lp_rules *l);

/* ---- rules_mlp.c ---- */

/* gate_proj, up_proj and down_proj below `stem`. */
void rules_gated_mlp(lp_rules *l, const char *stem);
/* The MLP of a layer, whatever its projections are called; false when the checkpoint has none below `stem`. */
bool rules_mlp(lp_rules *l, const char *stem);

/* ---- rules_router.c ---- */

/* The router of the experts below `stem`: whole on every rank, its correction bias in F32. Fails where it chooses among
 * another number of them. False then, and where none is stored. */
bool rules_router(lp_rules *l, const char *stem, int64_t experts);

/* ---- rules_experts_split.c ---- */

/* How one layer's experts are spread: over ranks whole, or each of them by its intermediate dimension. */
typedef struct rules_split {
    int64_t experts;           /* of the layer */
    int64_t slots, first;      /* slots of this rank, and the number of the first one among all */
    int64_t share, share_rank; /* the intermediate dimension is split into so many parts; ours */
} rules_split;

/* Logical experts fill the slots of all ranks in order; where there are more slots, they start again from the first.
 * False after a failure. `stem` names the experts in it. */
bool rules_split_experts(lp_rules *l, const char *stem, int64_t experts, rules_split *out);

static inline int64_t rules_expert_of_slot(const rules_split *s, int64_t slot)
{
    return (s->first + slot) % s->experts;
}

/* ---- rules_experts_moe.c, rules_experts_fused.c ---- */

/* Experts of a layer into fused parameters w13 and w2, as the checkpoint's dtypes have them. rules_moe: stored by
 * expert. rules_fused_experts: as tensors of all experts below `module`; false when there are none, else *experts is
 * how many. */
void rules_moe(lp_rules *l, int64_t layer);
bool rules_fused_experts(lp_rules *l, const char *module, int64_t *experts);

/* ---- rules_experts.c ---- */

bool rules_has_experts(lp_rules *l, int64_t layer);
void rules_megamoe(lp_rules *l, int64_t layer);
void rules_free_experts(lp_rules *l);

/* ---- rules_shared_experts.c ---- */

void rules_shared_experts(lp_rules *l, int64_t layer);

/* ---- rules_mamba.c ---- */

/* The mixer of a state-space layer. */
void rules_mamba1(lp_rules *l, const char *stem);
void rules_mamba2(lp_rules *l, const char *stem);
/* Linear attention by a gated delta rule. */
void rules_delta_net(lp_rules *l, const char *stem);

/* ---- rules_rest.c ---- */

/* What no rule took: a failure that names the first ones, copied whole on every rank, or declined. */
void rules_rest(lp_rules *l, lp_rest rest);

/* ---- rules_warnings.c ---- */

/* Logs what is wrong with a checkpoint without being an error: FP8 weights without scales, experts without a router, a
 * head that is nowhere. */
void rules_warn(lp_rules *l);

/* ---- loader_auto.c ---- */

/* The loader that fits a model's configuration. LP_E_ARGUMENT: the configuration does not say what the model is;
 * LP_E_UNSUPPORTED: none is known. */
lp_status loader_auto(const char **name, const lp_checkpoint *checkpoint, const lp_config *config, lp_error *err);

/* ---- loader_*.c ---- */

void loader_bert(lp_rules *l);
void loader_dense(lp_rules *l);
void loader_falcon(lp_rules *l);
void loader_gpt2(lp_rules *l);
void loader_mamba(lp_rules *l);
void loader_megamoe(lp_rules *l);
void loader_megamoe_sm90(lp_rules *l);
void loader_moe(lp_rules *l);
void loader_neox(lp_rules *l);

#endif
