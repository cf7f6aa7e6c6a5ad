/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the names of experts: layers.N.MODULE.experts.E.PROJECTION.KIND. */
#include "recorder/rules_experts_index.h"

#include "recorder/record_private.h"

/* What a few names can make the index hold, and what each name adds. */
enum { EXPERTS_MAX = 1 << 16, INDEX_BYTES_MAX = 16 << 20, INDEX_BYTES_A_NAME = 256 };

typedef struct expert_name {
    int64_t layer, expert;
    int projection, kind;
    const char *module;
    bool packed;
} expert_name;

const char *const EXPERT_KIND[EXPERT_KINDS] = {
    [EXPERT_WEIGHT] = "weight",
    [EXPERT_SCALE] = "weight_scale",
    [EXPERT_SCALE_2] = "weight_scale_2",
    [EXPERT_INPUT_SCALE] = "input_scale",
    [EXPERT_GLOBAL_SCALE] = "weight_global_scale",
    [EXPERT_INPUT_GLOBAL_SCALE] = "input_global_scale",
    [EXPERT_SCALE_INV] = "weight_scale_inv",
    [EXPERT_BIAS] = "bias",
    [EXPERT_WEIGHT_SHAPE] = "weight_shape",
};

static bool skip(const char **p, const char *text)
{
    const size_t bytes = strlen(text);
    if (strncmp(*p, text, bytes) != 0)
        return false;
    *p += bytes;
    return true;
}

static bool read_number(const char **p, int64_t *value)
{
    const char *start = *p;
    *value = 0;
    while (**p >= '0' && **p <= '9' && *p - start < 9)
        *value = *value * 10 + (*(*p)++ - '0');
    return *p > start && (start[0] != '0' || *p == start + 1);
}

/* Mixtral and its kin, and Llama 4, call the module otherwise. */
static bool read_module(const char **p, const char **module)
{
    static const char *const name[] = {"mlp", "block_sparse_moe", "feed_forward"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const char *after = *p;
        if (!skip(&after, ".") || !skip(&after, name[i]) || !skip(&after, ".experts."))
            continue;
        *p = after;
        *module = name[i];
        return true;
    }
    return false;
}

static bool read_kind(const lp_rules *l, const char *p, expert_name *out)
{
    const int kinds = l->expert_kinds > 0 ? l->expert_kinds : EXPERT_MEGAMOE_KINDS;
    out->packed = strcmp(p, "weight_packed") == 0;
    for (out->kind = 0; out->kind < kinds && !out->packed; out->kind++) {
        if (strcmp(p, EXPERT_KIND[out->kind]) == 0)
            return true;
    }
    if (out->packed)
        out->kind = EXPERT_WEIGHT;
    return out->packed;
}

static bool parse(const lp_rules *l, const char *name, expert_name *out)
{
    static const char *const projection[] = {"gate_proj.", "up_proj.", "down_proj.", "w1.", "w3.", "w2."};
    const char *p = name;
    if (!skip(&p, l->prefix) || !skip(&p, "layers.") || !read_number(&p, &out->layer) ||
        !read_module(&p, &out->module) || !read_number(&p, &out->expert) || !skip(&p, "."))
        return false;
    for (int i = 0; i < 2 * EXPERT_PROJECTIONS; i++) {
        if (!skip(&p, projection[i]))
            continue;
        out->projection = i % EXPERT_PROJECTIONS;
        return read_kind(l, p, out);
    }
    return false;
}

/* Layers and experts that the names speak of. */
static bool measure(lp_rules *l, rules_experts *x)
{
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        expert_name n;
        if (!parse(l, lp_checkpoint_at(l->checkpoint, i)->name, &n) || n.layer >= l->layers)
            continue;
        if (n.expert >= x->experts)
            x->experts = n.expert + 1;
        if (x->module == NULL) {
            x->module = n.module;
            x->packed = n.packed;
        } else if (x->module != n.module) {
            rules_fail(l, LP_E_UNSUPPORTED, "experts", "experts are in '%s' and in '%s'", x->module, n.module);
            return false;
        }
        x->packed = x->packed || n.packed;
    }
    x->layers = l->layers;
    if (x->experts > EXPERTS_MAX) {
        rules_fail(l, LP_E_LIMIT, "experts", "a layer of %" PRId64 " experts; at most %d are possible", x->experts,
                   EXPERTS_MAX);
        return false;
    }
    return true;
}

bool rules_expect_experts(lp_rules *l, int64_t layer, int64_t experts)
{
    int64_t expected = 0;
    if (!lp_config_integer(l->config, "n_routed_experts", &expected) &&
        !lp_config_integer(l->config, "num_experts", &expected))
        lp_config_integer(l->config, "num_local_experts", &expected);
    if (expected <= 0 || experts == expected)
        return true;
    rules_fail(l, LP_E_MISMATCH, "experts",
               "layer %" PRId64 " of the checkpoint has %" PRId64 " experts, the configuration says %" PRId64, layer,
               experts, expected);
    return false;
}

/* Every slot that another expert of the layer has must be there. */
static bool check_complete(lp_rules *l, rules_experts *x)
{
    static const char *const projection[] = {"gate_proj", "up_proj", "down_proj"};
    for (int64_t layer = 0; layer < x->layers; layer++) {
        const int64_t experts = x->of_layer[layer];
        if (experts > 0 && !rules_expect_experts(l, layer, experts))
            return false;
        for (int64_t e = 0; e < experts; e++) {
            for (int p = 0; p < EXPERT_PROJECTIONS; p++) {
                for (int k = 0; k < EXPERT_KINDS; k++) {
                    if (rules_expert_tensor(x, layer, e, p, k) >= 0 || rules_expert_tensor(x, layer, 0, p, k) < 0)
                        continue;
                    rules_fail(l, LP_E_UNKNOWN_NAME, "experts",
                               "the checkpoint has no '%slayers.%" PRId64 ".%s.experts.%" PRId64 ".%s.%s'", l->prefix,
                               layer, x->module, e, projection[p], EXPERT_KIND[k]);
                    return false;
                }
            }
        }
    }
    return true;
}

static bool fill(lp_rules *l, rules_experts *x)
{
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        expert_name n;
        const char *name = lp_checkpoint_at(l->checkpoint, i)->name;
        if (!parse(l, name, &n) || n.layer >= l->layers)
            continue;
        int32_t *slot =
            &x->index[((n.layer * x->experts + n.expert) * EXPERT_PROJECTIONS + n.projection) * EXPERT_KINDS + n.kind];
        if (*slot >= 0) {
            rules_fail(l, LP_E_DUPLICATE, name, "'%s' and '%s' are the same part of one expert", name,
                       lp_checkpoint_at(l->checkpoint, *slot)->name);
            return false;
        }
        *slot = (int32_t)i;
        l->taken[i] = 1;
        if (n.expert >= x->of_layer[n.layer])
            x->of_layer[n.layer] = n.expert + 1;
    }
    return check_complete(l, x);
}

const rules_experts *rules_experts_of(lp_rules *l)
{
    if (l->experts != NULL || rules_failed(l))
        return l->experts;
    rules_experts *x = lp_allocate_zero(l->alloc, sizeof *x);
    if (x == NULL) {
        rec_no_memory(l->r);
        return NULL;
    }
    l->experts = x;
    if (lp_checkpoint_count(l->checkpoint) > INT32_MAX) {
        rules_fail(l, LP_E_LIMIT, "checkpoint", "too many tensors");
        return NULL;
    }
    if (!measure(l, x))
        return NULL;
    int64_t count, bytes;
    if (!lp_mul(x->layers, x->experts * EXPERT_PROJECTIONS * EXPERT_KINDS, &count) ||
        !lp_mul(count, (int64_t)sizeof *x->index, &bytes) ||
        bytes > INDEX_BYTES_MAX + lp_checkpoint_count(l->checkpoint) * INDEX_BYTES_A_NAME) {
        rules_fail(l, LP_E_LIMIT, "experts", "%" PRId64 " layers of %" PRId64 " experts are too many", x->layers,
                   x->experts);
        return NULL;
    }
    x->index = lp_allocate(l->alloc, (size_t)bytes);
    x->of_layer = lp_allocate_zero(l->alloc, (size_t)x->layers * sizeof *x->of_layer);
    if (x->index == NULL || x->of_layer == NULL) {
        rec_no_memory(l->r);
        return NULL;
    }
    memset(x->index, 0xff, (size_t)bytes);
    return fill(l, x) ? x : NULL;
}

const char *rules_experts_module(lp_rules *l, int64_t layer)
{
    return lp_name(l->r, "layers.%" PRId64 ".%s", layer, l->experts->module);
}

bool rules_has_experts(lp_rules *l, int64_t layer)
{
    const rules_experts *x = rules_experts_of(l);
    return x != NULL && !rules_failed(l) && x->of_layer[layer] > 0;
}

int64_t rules_experts_count(lp_rules *l, int64_t layer)
{
    const rules_experts *x = rules_experts_of(l);
    return x != NULL ? x->of_layer[layer] : 0;
}

void rules_free_experts(lp_rules *l)
{
    if (l->experts == NULL)
        return;
    lp_release(l->alloc, l->experts->index);
    lp_release(l->alloc, l->experts->of_layer);
    lp_release(l->alloc, l->experts);
    l->experts = NULL;
}
