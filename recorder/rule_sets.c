/* SPDX-License-Identifier: Apache-2.0 */
/* What all rule sets use: taking names up, and failing. */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"

void rules_fail(lp_rules *l, lp_status code, const char *subject, const char *format, ...)
{
    if (rules_failed(l))
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lp_fail_at(&l->r->misuse, code, subject, -1, "%s", text);
}

bool rules_failed(const lp_rules *l)
{
    return lp_recorder_status(l->r, NULL) != LP_OK;
}

/* What no built-in loader knows is told by names: where something is missing or has another shape, they say why. */
static void hint_at_format(lp_rules *l)
{
    static const struct {
        const char *part, *what;
    } known[] = {
        {".qweight", "is packed by GPTQ or AWQ, which no built-in loader reads: record the engine's own loader"},
        {".absmax", "is of bitsandbytes, which no built-in loader reads: record the engine's own loader"},
        {".SCB", "is of bitsandbytes, which no built-in loader reads: record the engine's own loader"},
        {".lora_A.", "is an adapter: merge it into the model first"},
        {".base_layer.", "stands below an adapter: merge it into the model first"},
    };
    const int64_t count = lp_checkpoint_count(l->checkpoint);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        for (int64_t i = 0; i < count; i++) {
            const char *name = lp_checkpoint_at(l->checkpoint, i)->name;
            if (strstr(name, known[k].part) == NULL)
                continue;
            lp_hint(&l->r->misuse, "'%s' %s", name, known[k].what);
            return;
        }
}

int64_t rules_find(lp_rules *l, const char *name)
{
    return lp_checkpoint_find(l->checkpoint, l->prefix[0] != '\0' ? lp_name(l->r, "%s%s", l->prefix, name) : name);
}

lp_tensor rules_take(lp_rules *l, const char *name)
{
    const int64_t index = rules_find(l, name);
    if (index < 0) {
        if (!rules_failed(l)) {
            rules_fail(l, LP_E_UNKNOWN_NAME, name, "the checkpoint has no '%s%s'", l->prefix, name);
            hint_at_format(l);
        }
        return rec_invalid(l->r);
    }
    l->taken[index] = 1;
    return lp_source_index(l->r, index);
}

void rules_decline(lp_rules *l, const char *name)
{
    const int64_t index = rules_find(l, name);
    if (index < 0)
        return;
    l->taken[index] = 1;
    lp_decline(l->r, lp_checkpoint_at(l->checkpoint, index)->name);
}

static const char *shape_text(lp_rules *l, int ndim, const int64_t *shape)
{
    const char *text = "[";
    for (int d = 0; d < ndim; d++) {
        const char *comma = d > 0 ? ", " : "";
        text =
            shape[d] < 0 ? lp_name(l->r, "%s%s*", text, comma) : lp_name(l->r, "%s%s%" PRId64, text, comma, shape[d]);
    }
    return lp_name(l->r, "%s]", text);
}

bool rules_expect(lp_rules *l, lp_tensor t, int ndim, const int64_t *shape)
{
    if (!lp_is_valid(t))
        return false;
    bool fits = lp_dim(t) == ndim;
    for (int d = 0; fits && d < ndim; d++)
        fits = shape[d] < 0 || lp_size(t, d) == shape[d];
    if (fits)
        return true;
    const char *name = lp_checkpoint_at(l->checkpoint, t.base)->name;
    if (!rules_failed(l)) {
        rules_fail(l, LP_E_MISMATCH, name, "'%s' is %s %s, expected %s", name, lp_dtype_name(lp_dtype_of(t)),
                   shape_text(l, lp_dim(t), t.view.size), shape_text(l, ndim, shape));
        hint_at_format(l);
    }
    return false;
}

bool rules_whole_bytes(lp_rules *l, const char *dest, lp_dtype dtype, int ndim, const int64_t *shape)
{
    const int bits = lp_dtype_bits(dtype);
    if (ndim == 0 || bits % 8 == 0 || shape[ndim - 1] % 8 * bits % 8 == 0)
        return true;
    rules_fail(l, LP_E_UNSUPPORTED, dest, "'%s' would have rows of %" PRId64 " %s, which are not whole bytes", dest,
               shape[ndim - 1], lp_dtype_name(dtype));
    return false;
}

lp_tensor rules_declare(lp_rules *l, const char *dest, lp_dtype dtype, int ndim, const int64_t *shape)
{
    if (!rules_whole_bytes(l, dest, dtype, ndim, shape))
        return rec_invalid(l->r);
    return lp_declare(l->r, dest, dtype, ndim, shape);
}

int64_t rules_need(lp_rules *l, const char *key)
{
    int64_t value = 0;
    if (!lp_config_integer(l->config, key, &value)) {
        rules_fail(l, LP_E_MISMATCH, key, "the configuration has no '%s'", key);
        if (l->r->misuse.hint[0] == '\0')
            lp_hint(&l->r->misuse, "give the model's config.json with --config");
        return 1;
    }
    if (value < 1 || value > INT32_MAX) {
        rules_fail(l, LP_E_MISMATCH, key, "'%s' in the configuration is %" PRId64, key, value);
        return 1;
    }
    return value;
}

int64_t rules_share(lp_rules *l, const char *what, int64_t total, int64_t parts)
{
    if (parts > 0 && total % parts == 0 && total > 0)
        return total / parts;
    rules_fail(l, LP_E_ARGUMENT, what, "%s: %" PRId64 " cannot be split into %" PRId64 " equal parts", what, total,
               parts);
    return 1;
}
