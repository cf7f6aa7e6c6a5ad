/* SPDX-License-Identifier: Apache-2.0 */
/* Rule set for vocabularies: rows over the ranks, padded so that every rank has equally many. */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"

#include <assert.h>

enum { VOCABULARY_PADDING = 64 };

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Rows of one rank: the vocabulary padded to a multiple of 64, and of the number of ranks. */
static int64_t rows_of_rank(int64_t vocabulary, int64_t ranks)
{
    assert(ranks > 0);
    const int64_t step = VOCABULARY_PADDING / greatest_common_divisor(VOCABULARY_PADDING, ranks) * ranks;
    return (vocabulary + step - 1) / step * step / ranks;
}

/* More rows than tokens are padding; a token without a row is a checkpoint of another configuration. */
static bool has_all_tokens(lp_rules *l, lp_tensor from, int64_t rows)
{
    int64_t tokens;
    if (!lp_config_integer(l->config, "vocab_size", &tokens) || rows >= tokens)
        return true;
    const char *name = lp_checkpoint_at(l->checkpoint, from.base)->name;
    rules_fail(l, LP_E_MISMATCH, name, "'%s' has %" PRId64 " rows, the configuration says a vocab_size of %" PRId64,
               name, rows, tokens);
    return false;
}

static void vocabulary_tensor(lp_rules *l, const char *name, const char *dest, int ndim)
{
    const lp_tensor from = rules_take(l, name);
    int64_t hidden = -1;
    lp_config_integer(l->config, "hidden_size", &hidden);
    if (!rules_expect(l, from, ndim, (int64_t[]){-1, hidden}))
        return;
    const int64_t vocabulary = lp_size(from, 0), rows = rows_of_rank(vocabulary, l->at.tp);
    if (!has_all_tokens(l, from, vocabulary))
        return;
    const int64_t start = rows * l->at.tp_rank;
    const int64_t left = vocabulary > start ? vocabulary - start : 0, own = left < rows ? left : rows;
    const lp_tensor into = rules_declare(l, dest, lp_dtype_of(from), ndim, (int64_t[]){rows, lp_size(from, 1)});
    if (own > 0)
        lp_copy(lp_narrow(into, 0, 0, own), lp_narrow(from, 0, start, own));
    if (own < rows)
        lp_zero(lp_narrow(into, 0, own, rows - own), from);
}

void rules_vocabulary(lp_rules *l, const char *name, const char *dest)
{
    vocabulary_tensor(l, lp_name(l->r, "%s.weight", name), lp_name(l->r, "%s.weight", dest), 2);
    const char *bias = lp_name(l->r, "%s.bias", name);
    if (rules_find(l, bias) >= 0)
        vocabulary_tensor(l, bias, lp_name(l->r, "%s.bias", dest), 1);
}

/* The head stands outside the model's prefix: beside it, or, where the model is a part of a larger one, in that part.
 */
static const char *prefix_of_head(lp_rules *l, const char *head)
{
    static const char model[] = "model.";
    const char *inner = l->prefix;
    const size_t bytes = strlen(inner), tail = sizeof model - 1;
    if (lp_checkpoint_find(l->checkpoint, lp_name(l->r, "%s.weight", head)) >= 0 || bytes <= tail ||
        strcmp(inner + bytes - tail, model) != 0)
        return "";
    const char *outer = lp_name(l->r, "%.*s", (int)(bytes - tail), inner);
    return lp_checkpoint_find(l->checkpoint, lp_name(l->r, "%s%s.weight", outer, head)) >= 0 ? outer : "";
}

/* Once for all ranks. Headers do not tell a redundant copy from a head of its own under a wrong configuration. */
static void warn_of_stored_head(lp_rules *l, const char *weight, const char *embedding)
{
    const int64_t index = rules_find(l, weight);
    if (index < 0 || l->taken[index])
        return;
    lp_log(&l->r->platform, LP_LOG_WARNING, "record",
           "'%s' is stored but not loaded: the configuration ties it to '%s'; where they differ it is wrong",
           lp_checkpoint_at(l->checkpoint, index)->name, embedding);
}

static void output_head(lp_rules *l, const char *embedding, const char *head)
{
    const char *prefix = l->prefix, *weight = lp_name(l->r, "%s.weight", head);
    l->prefix = prefix_of_head(l, head);
    const bool stored = rules_find(l, weight) >= 0;
    if (!stored || lp_config_flag(l->config, "tie_word_embeddings", false)) {
        warn_of_stored_head(l, weight, embedding);
        if (!stored && !lp_config_flag(l->config, "tie_word_embeddings", true))
            l->untied_head = head;
        rules_decline(l, weight);
        lp_declare_tied(l->r, weight, lp_name(l->r, "%s.weight", embedding));
    } else {
        rules_vocabulary(l, head, head);
    }
    l->prefix = prefix;
}

void rules_embedding_and_head_as(lp_rules *l, const char *embedding, const char *head)
{
    rules_vocabulary(l, embedding, embedding);
    output_head(l, embedding, head);
}

void rules_embedding_and_head(lp_rules *l)
{
    rules_embedding_and_head_as(l, "embed_tokens", "lm_head");
}
