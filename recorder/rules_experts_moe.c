/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for experts that are stored one by one, outside MegaMoE: gate and up of all slots in w13, down in w2, each
 * with its scales and biases beside it. S slots, I the intermediate rows of this rank, H hidden:
 *
 *   w13_weight  [S, 2 I, H]   gate rows before up rows          w2_weight  [S, H, I]
 *   w13_SCALE   [S, 2 I / block, H / block], or [S, 2]          w2_SCALE   [S, H / block, I / block], or [S]
 *   w13_bias    [S, 2 I]                                        w2_bias    [S, H], zero on all tensor-parallel ranks
 *                                                                          but the first, because outputs are added up
 */
#include "recorder/record_private.h"
#include "recorder/rules_dialect.h"
#include "recorder/rules_experts_index.h"

/* One layer on one rank. */
typedef struct moe_layer {
    lp_rules *l;
    const rules_experts *x;
    const char *stem;
    int64_t layer;
    rules_split split;
    int64_t rows[EXPERT_PROJECTIONS], columns[EXPERT_PROJECTIONS]; /* of the stored weights */
} moe_layer;

/* One kind of tensors of gate and up, or of down. */
typedef struct moe_part {
    const moe_layer *m;
    const char *dest;
    int kind, first, count; /* projections */
    lp_dtype dtype;
    int ndim;
    int64_t size[2];          /* as stored */
    int64_t start[2], own[2]; /* what of it is this rank's */
} moe_part;

static lp_tensor tensor_of(const moe_layer *m, int64_t expert, int projection, int kind)
{
    return lp_source_index(m->l->r, rules_expert_tensor(m->x, m->layer, expert, projection, kind));
}

static bool has_kind(const moe_layer *m, int projection, int kind)
{
    return rules_expert_tensor(m->x, m->layer, 0, projection, kind) >= 0;
}

static bool missing(const moe_layer *m, int projection, int kind)
{
    static const char *const name[] = {"gate_proj", "up_proj", "down_proj"};
    const bool packed = kind == EXPERT_WEIGHT && m->x->packed;
    rules_fail(m->l, LP_E_UNKNOWN_NAME, m->stem, "the checkpoint has no '%s%s.0.%s.%s'", m->l->prefix, m->stem,
               name[projection], packed ? "weight_packed" : EXPERT_KIND[kind]);
    return false;
}

/* ---- what of a tensor is this rank's ---- */

/* Gate and up are cut by rows, down by columns, and scales where their blocks are. */
static bool cut_part(moe_part *p, lp_tensor t)
{
    const moe_layer *m = p->m;
    const rules_split *s = &m->split;
    const int64_t rows = m->rows[p->first];
    for (int d = 0; d < 2; d++) {
        p->start[d] = 0;
        p->own[d] = p->size[d] = lp_size(t, d);
    }
    if (s->share == 1)
        return true;
    if (p->first == EXPERT_DOWN)
        return p->ndim < 2 || dialect_columns(m->l, t, m->stem, m->columns[p->first], s->share, s->share_rank,
                                              &p->start[1], &p->own[1]);
    const int64_t share = rules_share(m->l, lp_name(m->l->r, "rows of '%s%s'", m->l->prefix, m->stem), rows, s->share);
    p->start[0] = share * s->share_rank;
    p->own[0] = share;
    if (p->kind == EXPERT_WEIGHT || p->kind == EXPERT_BIAS)
        return !rules_failed(m->l);
    return dialect_rows(m->l, t, rows, false, &p->start[0], &p->own[0]);
}

/* Everything that must be equal in all experts, from the first. */
static bool describe_part(moe_part *p)
{
    const moe_layer *m = p->m;
    const lp_tensor t = tensor_of(m, 0, p->first, p->kind);
    if (!lp_is_valid(t))
        return false;
    p->dtype = lp_dtype_of(t);
    p->ndim = lp_dim(t);
    const int64_t rows = m->rows[p->first];
    if (p->kind == EXPERT_BIAS && !rules_expect(m->l, t, 1, (int64_t[]){rows}))
        return false;
    if (p->kind != EXPERT_BIAS && dialect_is_scalar(t)) {
        p->ndim = 0;
        return true;
    }
    if (p->ndim != 1 && !rules_expect(m->l, t, 2, (int64_t[]){p->kind == EXPERT_WEIGHT ? rows : -1, -1}))
        return false;
    return cut_part(p, t);
}

static bool fits(const moe_part *p, lp_tensor t)
{
    lp_rules *l = p->m->l;
    if (!(p->ndim == 0 && dialect_is_scalar(t)) && !rules_expect(l, t, p->ndim, p->size))
        return false;
    if (lp_dtype_of(t) == p->dtype)
        return true;
    const char *name = lp_checkpoint_at(l->checkpoint, t.base)->name;
    rules_fail(l, LP_E_MISMATCH, name, "'%s' is %s, where other experts have %s", name, lp_dtype_name(lp_dtype_of(t)),
               lp_dtype_name(p->dtype));
    return false;
}

/* ---- copying ---- */

static lp_tensor declare_part(const moe_part *p)
{
    lp_rules *l = p->m->l;
    const char *dest = lp_name(l->r, "%s.%s", p->m->stem, p->dest);
    int64_t shape[3] = {p->m->split.slots, p->count, p->own[1]};
    int ndim = p->count > 1 ? 2 : 1;
    if (p->ndim > 0) {
        shape[1] *= p->own[0];
        ndim = p->ndim + 1;
    }
    if (!rules_whole_bytes(l, dest, p->dtype, ndim, shape))
        return rec_invalid(l->r);
    return lp_declare_with(
        l->r, &(lp_declaration){
                  .name = dest, .dtype = p->dtype, .ndim = ndim, .shape = shape, .has_slots = true, .slot_dim = 0});
}

static void copy_expert(const moe_part *p, lp_tensor slot, int64_t expert)
{
    for (int i = 0; i < p->count; i++) {
        const lp_tensor from = tensor_of(p->m, expert, p->first + i, p->kind);
        if (!lp_is_valid(from) || !fits(p, from))
            return;
        if (p->ndim == 0) {
            lp_copy(p->count > 1 ? lp_select(slot, 0, i) : slot, lp_reshape(from, 0, NULL));
            continue;
        }
        const lp_tensor to = lp_narrow(slot, 0, i * p->own[0], p->own[0]);
        if (p->kind == EXPERT_BIAS && p->first == EXPERT_DOWN && p->m->split.share_rank > 0) {
            lp_zero(to, from);
            continue;
        }
        const lp_tensor rows = lp_narrow(from, 0, p->start[0], p->own[0]);
        lp_copy(to, p->ndim == 2 ? lp_narrow(rows, 1, p->start[1], p->own[1]) : rows);
    }
}

static void load_part(const moe_layer *m, const char *dest, int kind, int first, int count)
{
    moe_part p = {.m = m, .dest = dest, .kind = kind, .first = first, .count = count};
    for (int i = 0; i < count; i++) {
        if (!has_kind(m, first + i, kind) && !missing(m, first + i, kind))
            return;
    }
    if (!describe_part(&p))
        return;
    const lp_tensor into = declare_part(&p);
    for (int64_t slot = 0; slot < m->split.slots && !rules_failed(m->l); slot++)
        copy_expert(&p, lp_select(into, 0, slot), rules_expert_of_slot(&m->split, slot));
}

static void load_kind(const moe_layer *m, int kind)
{
    lp_rules *l = m->l;
    const char *suffix = kind == EXPERT_WEIGHT && m->x->packed ? "weight_packed" : EXPERT_KIND[kind];
    const bool first = has_kind(m, EXPERT_GATE, kind) || has_kind(m, EXPERT_UP, kind);
    if (first)
        load_part(m, lp_name(l->r, "w13_%s", suffix), kind, EXPERT_GATE, 2);
    if (has_kind(m, EXPERT_DOWN, kind))
        load_part(m, lp_name(l->r, "w2_%s", suffix), kind, EXPERT_DOWN, 1);
}

static bool find_sizes(moe_layer *m)
{
    for (int p = 0; p < EXPERT_PROJECTIONS; p++) {
        if (!has_kind(m, p, EXPERT_WEIGHT))
            return missing(m, p, EXPERT_WEIGHT);
        const lp_tensor t = tensor_of(m, 0, p, EXPERT_WEIGHT);
        if (!rules_expect(m->l, t, 2, (int64_t[]){p == EXPERT_UP ? m->rows[EXPERT_GATE] : -1, -1}))
            return false;
        m->rows[p] = lp_size(t, 0);
        m->columns[p] = lp_size(t, 1);
    }
    return true;
}

static void decline_kind(const moe_layer *m, int kind)
{
    for (int p = 0; p < EXPERT_PROJECTIONS; p++) {
        if (has_kind(m, p, kind))
            lp_decline(m->l->r, lp_checkpoint_at(m->l->checkpoint, tensor_of(m, 0, p, kind).base)->name);
    }
}

void rules_moe(lp_rules *l, int64_t layer)
{
    moe_layer m = {.l = l, .x = rules_experts_of(l), .layer = layer};
    if (m.x == NULL)
        return;
    m.stem = lp_name(l->r, "%s.experts", rules_experts_module(l, layer));
    if (!find_sizes(&m) || !rules_split_experts(l, m.stem, m.x->of_layer[layer], &m.split))
        return;
    for (int kind = 0; kind < EXPERT_KINDS && !rules_failed(l); kind++) {
        if (kind == EXPERT_WEIGHT_SHAPE)
            decline_kind(&m, kind);
        else
            load_kind(&m, kind);
    }
}
