/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for q, k and v that are fused on disk head by head (GPT-NeoX, Falcon): the rows of each key/value head are
 * its query heads, its key, its value. All of it is views: the groups become a dimension of their own.
 */
#include "recorder/rule_sets.h"

/* Which part of the groups, and of the query heads of each, is this rank's. */
typedef struct group_share {
    int64_t group, groups, query, queries;
} group_share;

/* Whole groups where there are enough of them; else the query heads of one group are split. */
static group_share share_of_rank(lp_rules *l, int64_t groups, int64_t queries)
{
    group_share s = {.queries = queries};
    rules_heads(l, "key/value heads", groups, true, &s.group, &s.groups);
    if (groups >= l->at.tp)
        return s;
    const int64_t ranks = rules_share(l, "ranks of a key/value head", l->at.tp, groups);
    s.queries =
        rules_share(l, lp_name(l->r, "query heads of each of %" PRId64 " key/value heads", groups), queries, ranks);
    s.query = l->at.tp_rank % ranks * s.queries;
    return s;
}

static void load_one(lp_rules *l, const char *name, const char *dest, int64_t groups, int64_t queries, int64_t head_dim,
                     const group_share *s)
{
    const lp_tensor from = rules_take(l, name);
    const int ndim = lp_dim(from) == 1 ? 1 : 2;
    const int64_t columns = lp_size(from, 1);
    if (!rules_expect(l, from, ndim, (int64_t[]){groups * (queries + 2) * head_dim, -1}))
        return;
    const int64_t heads[3] = {s->groups * s->queries, s->groups, s->groups};
    const int64_t rows = (heads[0] + heads[1] + heads[2]) * head_dim;
    const lp_tensor into = rules_declare(l, dest, lp_dtype_of(from), ndim, (int64_t[]){rows, columns});
    const lp_tensor ours =
        lp_narrow(lp_reshape(from, 4, (int64_t[]){groups, queries + 2, head_dim, columns}), 0, s->group, s->groups);
    int64_t start = 0;
    for (int i = 0; i < 3; i++) {
        const lp_tensor part =
            i == 0 ? lp_narrow(ours, 1, s->query, s->queries) : lp_narrow(ours, 1, queries + i - 1, 1);
        const int64_t part_heads = i == 0 ? s->queries : 1;
        const lp_tensor to = lp_narrow(into, 0, start, heads[i] * head_dim);
        lp_copy(lp_reshape(to, 4, (int64_t[]){s->groups, part_heads, head_dim, columns}), part);
        start += heads[i] * head_dim;
    }
}

void rules_grouped_qkv(lp_rules *l, const char *dest, const char *stem, int64_t groups, int64_t queries,
                       int64_t head_dim)
{
    static const char *const kind[] = {"weight", "bias"};
    const group_share s = share_of_rank(l, groups, queries);
    for (int i = 0; i < 2 && !rules_failed(l); i++) {
        const char *name = lp_name(l->r, "%s.%s", stem, kind[i]);
        if (i == 0 || rules_find(l, name) >= 0)
            load_one(l, name, lp_name(l->r, "%s.%s", dest, kind[i]), groups, queries, head_dim, &s);
    }
}
