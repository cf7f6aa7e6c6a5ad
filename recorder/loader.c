/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Built-in loaders: which there are, which one suits a model, and the loop over ranks that all of them share. A loader
 * itself is a function that composes rule sets (loader_*.c).
 */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"

typedef struct builtin {
    lp_loader loader;
    void (*load)(lp_rules *l);
    const char *layer_prefix; /* what stands before a layer's number */
} builtin;

static const builtin BUILTINS[] = {
    {{"bert", "1", "BERT and RoBERTa encoders"}, loader_bert, "encoder.layer."},
    {{"dense", "1", "decoders of the Llama, Qwen, Mistral, Gemma, Phi-3 and GLM-4 families"}, loader_dense, "layers."},
    {{"falcon", "1", "Falcon, with q, k and v fused in groups"}, loader_falcon, "h."},
    {{"gpt2", "1", "GPT-2, with transposed matrices"}, loader_gpt2, "h."},
    {{"mamba", "1", "Mamba 1 and 2"}, loader_mamba, "layers."},
    {{"megamoe", "1", "NVFP4 and MXFP4 experts in MegaMoE's kernel layouts, the rest as in dense"},
     loader_megamoe,
     "layers."},
    {{"megamoe-sm90", "1", "the same with experts packed by tiles, for lp_megamoe on Hopper"},
     loader_megamoe_sm90,
     "layers."},
    {{"moe", "1", "decoders with routed experts in the checkpoint's own dtypes, the rest as in dense"},
     loader_moe,
     "layers."},
    {{"neox", "1", "GPT-NeoX and Pythia"}, loader_neox, "layers."},
};

enum { BUILTIN_COUNT = sizeof BUILTINS / sizeof *BUILTINS };

int lp_loader_count(void)
{
    return BUILTIN_COUNT;
}

const lp_loader *lp_loader_at(int index)
{
    return index >= 0 && index < BUILTIN_COUNT ? &BUILTINS[index].loader : NULL;
}

static const builtin *find_builtin(const char *name)
{
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        if (strcmp(BUILTINS[i].loader.name, name) == 0)
            return &BUILTINS[i];
    }
    return NULL;
}

const lp_loader *lp_loader_find(const char *name)
{
    const builtin *b = find_builtin(name);
    return b != NULL ? &b->loader : NULL;
}

/* ---- which loader ---- */

static lp_status choose_loader(const builtin **out, const lp_checkpoint *checkpoint, const lp_loader_options *o,
                               const lp_config *config, lp_error *err)
{
    const char *name = o->loader;
    *out = NULL;
    if (name != NULL && strcmp(name, "auto") != 0) {
        *out = find_builtin(name);
        return *out != NULL ? LP_OK : lp_fail(err, LP_E_ARGUMENT, "there is no loader '%s'", name);
    }
    if (o->base != NULL)
        *out = find_builtin(lp_trace_header_of(o->base)->loader);
    if (*out != NULL)
        return LP_OK;
    LP_TRY(loader_auto(&name, checkpoint, config, err));
    *out = find_builtin(name);
    return LP_OK;
}

/* ---- configuration ---- */

/* Everything besides checkpoint and layout that decides what is recorded, as sorted lines. */
static void write_configuration(lp_text *out, const lp_config *config, const lp_loader_options *o)
{
    static const char *const rest[] = {"error", "copy", "decline"};
    lp_config_lines(config, out);
    lp_text_format(out, "option.rest=%s\n", rest[o->rest]);
    if (o->slots > 0)
        lp_text_format(out, "option.slots=%d\n", o->slots);
}

/* ---- the model's prefix and layers ---- */

/* Where a layer's number follows `mark` in a name, at the beginning or after a dot; NULL when nowhere. */
static const char *find_layer(const char *name, const char *mark)
{
    const size_t bytes = strlen(mark);
    for (const char *p = strstr(name, mark); p != NULL; p = strstr(p + 1, mark)) {
        if ((p == name || p[-1] == '.') && p[bytes] >= '0' && p[bytes] <= '9')
            return p;
    }
    return NULL;
}

/* The first name of a layer decides on the prefix: names are sorted, so equal checkpoints decide alike. Read once for
 * all ranks. */
static bool find_prefix(lp_rules *l, const char *mark)
{
    const size_t bytes = strlen(mark);
    size_t prefix_bytes = 0;
    bool found = false;
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        const char *name = lp_checkpoint_at(l->checkpoint, i)->name;
        const char *at = find_layer(name, mark);
        if (at == NULL)
            continue;
        if (!found) {
            prefix_bytes = (size_t)(at - name);
            l->prefix = lp_arena_text(&l->arena, name, prefix_bytes);
            if (l->prefix == NULL) {
                rec_no_memory(l->r);
                return true;
            }
            found = true;
        }
        if ((size_t)(at - name) != prefix_bytes || memcmp(name, l->prefix, prefix_bytes) != 0)
            continue;
        int64_t layer = 0;
        for (const char *p = at + bytes; *p >= '0' && *p <= '9' && layer < 100000; p++)
            layer = layer * 10 + (*p - '0');
        if (layer >= l->layers)
            l->layers = layer + 1;
    }
    return found;
}

static void find_model(lp_rules *l, const builtin *b)
{
    int64_t configured = 0;
    if (l->prefix != NULL)
        return;
    if (!find_prefix(l, b->layer_prefix)) {
        rules_fail(l, LP_E_UNSUPPORTED, b->layer_prefix, "the checkpoint has no layers: no name with '%sN.'",
                   b->layer_prefix);
        return;
    }
    if (!lp_config_integer(l->config, "num_hidden_layers", &configured)) {
        /* Work and memory go with the number of layers. */
        if (l->layers > lp_checkpoint_count(l->checkpoint))
            rules_fail(l, LP_E_LIMIT, b->layer_prefix,
                       "a name speaks of layer %" PRId64 ", the checkpoint has %" PRId64 " tensors", l->layers - 1,
                       lp_checkpoint_count(l->checkpoint));
        return;
    }
    if (configured < 1 || configured > l->layers)
        rules_fail(l, LP_E_MISMATCH, "num_hidden_layers",
                   "the configuration says %" PRId64 " layers, the checkpoint has %" PRId64, configured, l->layers);
    else
        l->layers = configured; /* layers behind are of another kind, such as a draft model's */
}

/* ---- recording ---- */

static void load_scope(lp_rules *l, const builtin *b, lp_rest rest)
{
    l->at = lp_recorder_scope(l->r);
    find_model(l, b);
    if (!rules_failed(l))
        b->load(l);
    if (!rules_failed(l))
        rules_rest(l, rest);
}

static lp_scope scope_of_rank(const lp_scope *layout, int32_t rank)
{
    lp_scope at = *layout;
    at.tp_rank = rank % layout->tp;
    at.dp_rank = rank / layout->tp % layout->dp;
    at.pp_rank = rank / layout->tp / layout->dp;
    return at;
}

static lp_status record_ranks(lp_rules *l, const builtin *b, const lp_scope *layout, const lp_loader_options *o,
                              const lp_recorder_options *recording, lp_trace **out, lp_error *err)
{
    const int32_t count = o->ranks != NULL ? o->rank_count : lp_scope_world(layout);
    for (int32_t i = 0; i < count; i++) {
        const int32_t rank = o->ranks != NULL ? o->ranks[i] : i;
        if (rank < 0 || rank >= lp_scope_world(layout))
            return lp_fail(err, LP_E_ARGUMENT, "there is no rank %d among %d", rank, lp_scope_world(layout));
        const lp_scope at = scope_of_rank(layout, rank);
        if (l->r == NULL)
            LP_TRY(lp_recorder_open_with(&l->r, l->checkpoint, &at, recording, err));
        else
            LP_TRY(lp_recorder_next_scope(l->r, &at, err));
        load_scope(l, b, o->rest);
        if (o->progress != NULL)
            o->progress(o->progress_context, i + 1, count);
    }
    if (l->r == NULL)
        return lp_fail(err, LP_E_ARGUMENT, "no rank is to be recorded");
    if (!rules_failed(l))
        rules_warn(l);
    return lp_recorder_finish(l->r, out, err);
}

lp_status lp_load_checkpoint(lp_trace **out, const lp_checkpoint *checkpoint, const lp_loader_options *options,
                             lp_error *err)
{
    const lp_loader_options o = options != NULL ? *options : (lp_loader_options){0};
    const lp_platform platform = lp_platform_resolve(o.platform);
    lp_config *config = NULL;
    lp_text configuration;
    const builtin *b = NULL;
    lp_status status = LP_OK;
    lp_scope layout = o.layout;
    lp_rules l = {.checkpoint = checkpoint, .alloc = platform.alloc, .slots = o.slots};
    *out = NULL;
    lp_arena_init(&l.arena, platform.alloc);
    layout.pp_rank = layout.dp_rank = layout.tp_rank = 0;
    LP_TRY(lp_scope_normalise(&layout, err));
    if (layout.pp > 1)
        return lp_fail(err, LP_E_UNSUPPORTED, "built-in loaders do not distribute layers: pp %d", layout.pp);
    if (o.slots < 0 || (unsigned)o.rest > LP_REST_DECLINE)
        return lp_fail(err, LP_E_ARGUMENT, "negative slots, or an unknown rest");

    lp_text_init(&configuration, platform.alloc);
    LP_TRY_GOTO(lp_config_find(&config, checkpoint, &o, &platform, err), done);
    l.config = config;
    LP_TRY_GOTO(choose_loader(&b, checkpoint, &o, config, err), done);
    write_configuration(&configuration, config, &o);
    l.taken = lp_allocate_zero(platform.alloc, (size_t)lp_checkpoint_count(checkpoint));
    if (configuration.failed || l.taken == NULL) {
        status = lp_fail_memory(err);
        goto done;
    }
    const lp_recorder_options recording = {.loader = b->loader.name,
                                           .loader_version = b->loader.version,
                                           .configuration = configuration.data,
                                           .target = o.target,
                                           .platform = &platform};
    status = record_ranks(&l, b, &layout, &o, &recording, out, err);
done:
    rules_free_experts(&l);
    lp_recorder_close(l.r);
    lp_arena_free(&l.arena);
    lp_release(platform.alloc, l.taken);
    lp_text_free(&configuration);
    lp_config_free(config);
    return status;
}
