/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of the checkpoint names that no rule took. */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"

static void refuse_rest(lp_rules *l)
{
    enum { SHOWN = 3 };
    const char *text = "";
    int64_t count = 0;
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        if (l->taken[i])
            continue;
        if (count < SHOWN)
            text = lp_name(l->r, "%s%s'%s'", text, count > 0 ? ", " : "", lp_checkpoint_at(l->checkpoint, i)->name);
        count++;
    }
    if (count == 0)
        return;
    if (count > SHOWN)
        text = lp_name(l->r, "%s and %" PRId64 " more", text, count - SHOWN);
    rules_fail(l, LP_E_UNSUPPORTED, text, "no rule takes %s", text);
    if (l->r->misuse.hint[0] == '\0')
        lp_hint(&l->r->misuse, "--rest=copy loads such tensors whole on every rank, --rest=decline leaves them out");
}

static void copy_rest(lp_rules *l)
{
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint) && !rules_failed(l); i++) {
        if (l->taken[i])
            continue;
        const char *name = lp_checkpoint_at(l->checkpoint, i)->name;
        if (name[0] == '\0') {
            rules_fail(l, LP_E_UNSUPPORTED, name, "a tensor of the checkpoint has an empty name, a destination cannot");
            return;
        }
        const lp_tensor from = lp_source_index(l->r, i);
        lp_copy(rules_declare(l, name, lp_dtype_of(from), lp_dim(from), from.view.size), from);
    }
}

static void decline_rest(lp_rules *l)
{
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        if (!l->taken[i])
            lp_decline(l->r, lp_checkpoint_at(l->checkpoint, i)->name);
        l->taken[i] = 1;
    }
}

void rules_rest(lp_rules *l, lp_rest rest)
{
    switch (rest) {
    case LP_REST_ERROR:
        refuse_rest(l);
        break;
    case LP_REST_COPY:
        copy_rest(l);
        break;
    case LP_REST_DECLINE:
        decline_rest(l);
        break;
    }
}
