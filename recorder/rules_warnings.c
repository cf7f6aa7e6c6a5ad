/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a checkpoint has or lacks that no rule can object to, and that makes a model wrong without a word: said once,
 * for all ranks, when everything was recorded.
 */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"

#include <inttypes.h>

static const char *name_at(const lp_rules *l, int64_t i)
{
    return lp_checkpoint_at(l->checkpoint, i)->name;
}

/* Whether what follows the stem of a weight in a name is a scale of it: `.weight_scale`, `_scale_inv`, `.scale`; not
 * `.input_scale` and `.k_scale`, which are of something else. */
static bool names_a_scale(const char *rest)
{
    static const char *const begins[] = {".weight", "_weight", "_scale", ".scale"};
    if (strstr(rest, "scale") == NULL)
        return false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(rest, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

/* Whether the weight at `index` has one: names are sorted, so those that begin as its own does lie around it. A weight
 * has few of them; a file that is made to have many is not searched for long. */
static bool has_scale(const lp_rules *l, int64_t index)
{
    enum { NEIGHBOURS = 64 };
    static const char weight[] = ".weight";
    const char *name = name_at(l, index);
    size_t stem = strlen(name);
    if (stem > sizeof weight - 1 && strcmp(name + stem - (sizeof weight - 1), weight) == 0)
        stem -= sizeof weight - 1;
    const int64_t end = lp_checkpoint_count(l->checkpoint);
    for (int64_t i = index - NEIGHBOURS < 0 ? 0 : index - NEIGHBOURS; i < end && i <= index + NEIGHBOURS; i++)
        if (strncmp(name_at(l, i), name, stem) == 0 && names_a_scale(name_at(l, i) + stem))
            return true;
    return false;
}

static bool is_fp8(lp_dtype dtype)
{
    return dtype == LP_F8_E4M3 || dtype == LP_F8_E5M2 || dtype == LP_F8_E4M3FNUZ || dtype == LP_F8_E5M2FNUZ;
}

static void warn_of_bare_fp8(lp_rules *l)
{
    int64_t count = 0, first = -1;
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(l->checkpoint, i);
        if (t->ndim < 2 || !is_fp8(t->dtype) || strstr(t->name, "scale") != NULL || has_scale(l, i))
            continue; /* NVFP4 has its block scales in FP8 */
        first = count == 0 ? i : first;
        count++;
    }
    if (count > 0)
        lp_log(&l->r->platform, LP_LOG_WARNING, "record",
               "%" PRId64 " weight%s in FP8 %s no scale, such as '%s': loaded as stored", count, count == 1 ? "" : "s",
               count == 1 ? "has" : "have", name_at(l, first));
}

void rules_warn(lp_rules *l)
{
    warn_of_bare_fp8(l);
    if (l->bare_experts != NULL)
        lp_log(&l->r->platform, LP_LOG_WARNING, "record", "the experts of '%s' have no router of a known name",
               l->bare_experts);
    if (l->untied_head != NULL)
        lp_log(&l->r->platform, LP_LOG_WARNING, "record",
               "the checkpoint has no '%s.weight', and the configuration does not tie it: it is taken for tied",
               l->untied_head);
}
