/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule sets for the state-space blocks of Mamba 1 and 2, and for the gated delta nets of Qwen3-Next. Everything is a
 * view and a copy but A: it is stored as a logarithm, and engines keep -exp of it in F32, so it is a derive, which runs
 * again on every load. Engines of delta nets compute with the logarithm itself.
 */
#include "recorder/rule_sets.h"

/* One part of a fused dimension: `count` from `from` on are this rank's. */
typedef struct band {
    int64_t from, count;
} band;

/* Bands of the rows of a tensor, one below the other. */
static void load_bands(lp_rules *l, const char *name, int64_t rows, int count, const band *bands)
{
    int64_t shape[3], start = 0;
    if (rules_find(l, name) < 0 && strstr(name, ".bias") != NULL)
        return;
    const lp_tensor from = rules_take(l, name);
    const int ndim = lp_dim(from);
    if (!rules_expect(l, from, ndim >= 1 && ndim <= 3 ? ndim : 2, (int64_t[]){rows, -1, -1}))
        return;
    shape[0] = 0;
    shape[1] = lp_size(from, 1);
    shape[2] = lp_size(from, 2);
    for (int i = 0; i < count; i++)
        shape[0] += bands[i].count;
    const lp_tensor into = rules_declare(l, name, lp_dtype_of(from), ndim, shape);
    for (int i = 0; i < count; i++) {
        lp_copy(lp_narrow(into, 0, start, bands[i].count), lp_narrow(from, 0, bands[i].from, bands[i].count));
        start += bands[i].count;
    }
}

/* A = -exp(A_log) of this rank's rows. */
static void derive_a(lp_rules *l, const char *stem, int64_t rows, band own)
{
    const lp_tensor log = rules_take(l, lp_name(l->r, "%s.A_log", stem));
    const int ndim = lp_dim(log);
    if (!rules_expect(l, log, ndim == 1 ? 1 : 2, (int64_t[]){rows, lp_size(log, 1) > 0 ? -1 : 1}))
        return;
    const lp_tensor a =
        rules_declare(l, lp_name(l->r, "%s.A", stem), LP_F32, ndim, (int64_t[]){own.count, lp_size(log, 1)});
    lp_derive(l->r, a, lp_neg(lp_exp(lp_to_f32(lp_narrow(log, 0, own.from, own.count)))));
}

void rules_mamba1(lp_rules *l, const char *stem)
{
    const int64_t inner = lp_size(rules_take(l, lp_name(l->r, "%s.out_proj.weight", stem)), 1);
    const int64_t share = rules_share(l, lp_name(l->r, "channels of '%s'", stem), inner, l->at.tp);
    const band own = {share * l->at.tp_rank, share};
    const band both[] = {own, {inner + own.from, share}}; /* x, then z */
    const char *back = lp_name(l->r, "%s.out_proj", stem), *x_proj = lp_name(l->r, "%s.x_proj", stem);
    if (rules_failed(l))
        return;
    load_bands(l, lp_name(l->r, "%s.in_proj.weight", stem), 2 * inner, 2, both);
    load_bands(l, lp_name(l->r, "%s.in_proj.bias", stem), 2 * inner, 2, both);
    load_bands(l, lp_name(l->r, "%s.conv1d.weight", stem), inner, 1, &own);
    load_bands(l, lp_name(l->r, "%s.conv1d.bias", stem), inner, 1, &own);
    load_bands(l, lp_name(l->r, "%s.dt_proj.weight", stem), inner, 1, &own);
    load_bands(l, lp_name(l->r, "%s.dt_proj.bias", stem), inner, 1, &own);
    load_bands(l, lp_name(l->r, "%s.D", stem), inner, 1, &own);
    derive_a(l, stem, inner, own);
    rules_row_parallel(l, x_proj, x_proj);
    rules_row_parallel(l, back, back);
}

void rules_mamba2(lp_rules *l, const char *stem)
{
    const int64_t inner = lp_size(rules_take(l, lp_name(l->r, "%s.out_proj.weight", stem)), 1);
    const int64_t heads = rules_need(l, "num_heads"), groups = rules_need(l, "n_groups");
    const int64_t state = rules_need(l, "state_size"), head = rules_share(l, "channels over the heads", inner, heads);
    const char *back = lp_name(l->r, "%s.out_proj", stem);
    int64_t group, group_count;
    band own;
    rules_heads(l, "state-space heads", heads, false, &own.from, &own.count);
    rules_heads(l, "state-space groups", groups, true, &group, &group_count);
    if (rules_failed(l))
        return;
    const band x = {own.from * head, own.count * head}, b = {inner + group * state, group_count * state};
    const band c = {b.from + groups * state, b.count};
    const int64_t convolved = inner + 2 * groups * state;
    const band conv[] = {x, b, c};
    const band in[] = {x, /* z, then what is convolved, then dt */
                       {inner + x.from, x.count},
                       {inner + b.from, b.count},
                       {inner + c.from, c.count},
                       {inner + convolved + own.from, own.count}};
    load_bands(l, lp_name(l->r, "%s.in_proj.weight", stem), inner + convolved + heads, 5, in);
    load_bands(l, lp_name(l->r, "%s.in_proj.bias", stem), inner + convolved + heads, 5, in);
    load_bands(l, lp_name(l->r, "%s.conv1d.weight", stem), convolved, 3, conv);
    load_bands(l, lp_name(l->r, "%s.conv1d.bias", stem), convolved, 3, conv);
    load_bands(l, lp_name(l->r, "%s.dt_bias", stem), heads, 1, &own);
    load_bands(l, lp_name(l->r, "%s.D", stem), heads, 1, &own);
    load_bands(l, lp_name(l->r, "%s.norm.weight", stem), inner, 1, &x);
    derive_a(l, stem, heads, own);
    rules_row_parallel(l, back, back);
}

void rules_delta_net(lp_rules *l, const char *stem)
{
    static const char *const by_value[] = {"A_log", "dt_bias"};
    const int64_t keys = rules_need(l, "linear_num_key_heads"), key = rules_need(l, "linear_key_head_dim");
    const int64_t share = rules_share(l, "key heads of linear attention", keys, l->at.tp);
    const lp_tensor conv = rules_take(l, lp_name(l->r, "%s.conv1d.weight", stem));
    const int64_t rows = lp_size(conv, 0), values = rows - 2 * keys * key;
    const int64_t part = rules_share(l, lp_name(l->r, "value rows of '%s.conv1d'", stem), values, l->at.tp);
    /* Their rows stand by key heads, each with what belongs to it: equal parts are whole heads. */
    const char *const by_key[] = {lp_name(l->r, "%s.in_proj_qkvz", stem), lp_name(l->r, "%s.in_proj_ba", stem)};
    const char *back = lp_name(l->r, "%s.out_proj", stem);
    if (rules_failed(l))
        return;
    const band q = {share * key * l->at.tp_rank, share * key}, k = {keys * key + q.from, q.count};
    const band bands[] = {q, k, {2 * keys * key + part * l->at.tp_rank, part}};
    load_bands(l, lp_name(l->r, "%s.conv1d.weight", stem), rows, 3, bands);
    for (int i = 0; i < 2; i++) {
        const char *name = lp_name(l->r, "%s.%s", stem, by_value[i]);
        const int64_t heads = lp_size(rules_take(l, name), 0), own = rules_share(l, name, heads, l->at.tp);
        const band mine = {own * l->at.tp_rank, own};
        if (rules_failed(l))
            return;
        load_bands(l, name, heads, 1, &mine);
        rules_column_parallel(l, by_key[i], 1, &by_key[i]);
    }
    rules_whole_module(l, lp_name(l->r, "%s.norm", stem));
    rules_row_parallel(l, back, back);
}
