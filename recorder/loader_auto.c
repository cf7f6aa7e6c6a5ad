/* SPDX-License-Identifier: Apache-2.0 */
/* Which loader `auto` takes: docs/loaders.md has the same table, with what each row was tested on. */
#include "recorder/rule_sets.h"

/* Sorted by type. A type that is not here may still have an architecture that is. */
static const struct {
    const char *type, *architecture, *loader;
} MODELS[] = {
    {"bert", "BertModel", "bert"},
    {"cohere", "CohereForCausalLM", "dense"},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "moe"},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "moe"},
    {"falcon", "FalconForCausalLM", "falcon"},
    {"gemma", "GemmaForCausalLM", "dense"},
    {"gemma2", "Gemma2ForCausalLM", "dense"},
    {"gemma3", "Gemma3ForConditionalGeneration", "dense"},
    {"gemma3_text", "Gemma3ForCausalLM", "dense"},
    {"glm4", "Glm4ForCausalLM", "dense"},
    {"glm4_moe", "Glm4MoeForCausalLM", "moe"},
    {"gpt2", "GPT2LMHeadModel", "gpt2"},
    {"gpt_neox", "GPTNeoXForCausalLM", "neox"},
    {"gpt_oss", "GptOssForCausalLM", "moe"},
    {"granite", "GraniteForCausalLM", "dense"},
    {"granitemoe", "GraniteMoeForCausalLM", "moe"},
    {"kimi_k2", "KimiK2ForCausalLM", "moe"},
    {"llama", "LlamaForCausalLM", "dense"},
    {"llama4", "Llama4ForConditionalGeneration", "moe"},
    {"mamba", "MambaForCausalLM", "mamba"},
    {"mamba2", "Mamba2ForCausalLM", "mamba"},
    {"minimax_m2", "MiniMaxM2ForCausalLM", "moe"},
    {"mistral", "MistralForCausalLM", "dense"},
    {"mixtral", "MixtralForCausalLM", "moe"},
    {"nemotron", "NemotronForCausalLM", "dense"},
    {"olmo2", "Olmo2ForCausalLM", "dense"},
    {"phi", "PhiForCausalLM", "dense"},
    {"phi3", "Phi3ForCausalLM", "dense"},
    {"phimoe", "PhiMoEForCausalLM", "moe"},
    {"qwen2", "Qwen2ForCausalLM", "dense"},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "moe"},
    {"qwen3", "Qwen3ForCausalLM", "dense"},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "moe"},
    {"qwen3_next", "Qwen3NextForCausalLM", "moe"},
    {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "moe"},
    {"roberta", "RobertaModel", "bert"},
    {"smollm3", "SmolLM3ForCausalLM", "dense"},
    {"starcoder2", "Starcoder2ForCausalLM", "dense"},
    {"xlm-roberta", "XLMRobertaModel", "bert"},
};

static bool is_text(const char *text, const char *other)
{
    return text != NULL && strcmp(text, other) == 0;
}

static bool has_routed_experts(const lp_config *config)
{
    static const char *const keys[] = {"n_routed_experts", "num_experts", "num_local_experts"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t experts = 0;
        if (lp_config_integer(config, keys[i], &experts) && experts > 0)
            return true;
    }
    return false;
}

/* Experts that are stored one by one with two codes a byte: what the kernel layouts of MegaMoE are for. */
static bool has_fp4_experts(const lp_checkpoint *checkpoint)
{
    static const char *const ends[] = {".gate_proj.weight", ".w1.weight", ".gate_proj.weight_packed",
                                       ".w1.weight_packed"};
    for (int64_t i = 0; i < lp_checkpoint_count(checkpoint); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(checkpoint, i);
        const char *at = t->dtype == LP_U8 ? strstr(t->name, ".experts.0.") : NULL;
        for (size_t k = 0; at != NULL && k < sizeof ends / sizeof *ends; k++) {
            if (strcmp(at + sizeof ".experts.0" - 1, ends[k]) == 0)
                return true;
        }
    }
    return false;
}

lp_status loader_auto(const char **name, const lp_checkpoint *checkpoint, const lp_config *config, lp_error *err)
{
    const char *type = lp_config_text(config, "model_type"), *architecture = lp_config_text(config, "architectures");
    *name = NULL;
    if (type == NULL && architecture == NULL) {
        lp_fail(err, LP_E_ARGUMENT, "cannot choose a loader: the configuration has no 'model_type'");
        lp_hint(err, "name one with --loader, or the model's config.json with --config");
        return LP_E_ARGUMENT;
    }
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS && *name == NULL; i++) {
        if (is_text(type, MODELS[i].type) || is_text(architecture, MODELS[i].architecture))
            *name = MODELS[i].loader;
    }
    if (has_routed_experts(config) && (*name == NULL || strcmp(*name, "dense") == 0))
        *name = "moe";
    if (is_text(*name, "moe") && has_fp4_experts(checkpoint))
        *name = "megamoe";
    if (*name != NULL)
        return LP_OK;
    lp_fail(err, LP_E_UNSUPPORTED, "no loader is known for models of type '%s'", type != NULL ? type : architecture);
    lp_hint(err, "name the one that fits with --loader; `record --help` lists them");
    return LP_E_UNSUPPORTED;
}
