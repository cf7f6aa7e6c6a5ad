/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check, names: families of the checkpoint that no scope took up, and where another checkpoint is given, whether it has
 * what the trace reads. A family that the loader took up in any scope makes the rest of it declined; families that a
 * loader declines as a whole stand in the configuration, as lines "decline=FAMILY".
 */
#include "traces/check_private.h"
#include "traces/family.h"

#include <inttypes.h>
#include <stdio.h>

static lp_status add_declined(lp_families *known, const char *configuration, const lp_alloc *alloc, lp_error *err)
{
    const char *family;
    size_t bytes;
    while ((family = lp_next_decline(&configuration, &bytes)) != NULL) {
        char *copy = lp_allocate(alloc, bytes + 1);
        if (copy == NULL)
            return lp_fail_memory(err);
        memcpy(copy, family, bytes);
        copy[bytes] = '\0';
        const bool added = lp_families_add(known, copy) >= 0; /* a template is its own template */
        lp_release(alloc, copy);
        if (!added)
            return lp_fail_memory(err);
    }
    return LP_OK;
}

static lp_status note_unused(lp_checker *c, const char *name, lp_error *err)
{
    bool first;
    const lp_note note = lp_check_note(c, LP_RULE_CHECKPOINT_NAME_UNUSED, name, "");
    LP_TRY(lp_findings_note(c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(c->findings, err, "nothing loads, derives from, refuses or declines '%s' on any rank",
                            name);
}

static lp_status check_unused(lp_checker *c, lp_error *err)
{
    lp_families known;
    lp_status status = LP_OK;
    const int64_t names = lp_checkpoint_count(c->checkpoint);
    lp_families_init(&known, c->alloc);
    LP_TRY_GOTO(add_declined(&known, lp_trace_header_of(c->t)->configuration, c->alloc, err), free_known);
    for (int64_t i = 0; i < names; i++)
        if (c->used[i] && lp_families_add(&known, lp_checkpoint_at(c->checkpoint, i)->name) < 0) {
            status = lp_fail_memory(err);
            goto free_known;
        }
    for (int64_t i = 0; i < names; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c->checkpoint, i);
        /* Of a tensor without bytes, a loader that copies it leaves no more behind than one that does not. */
        if (!c->used[i] && t->bytes > 0 && lp_families_find(&known, t->name) < 0)
            LP_TRY_GOTO(note_unused(c, t->name, err), free_known);
    }

free_known:
    lp_families_free(&known);
    return status;
}

static bool is_same_tensor(const lp_checkpoint_tensor *a, const lp_checkpoint_tensor *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (int32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

static const char *shape_text(char *buffer, size_t bytes, const lp_checkpoint_tensor *t)
{
    size_t used = (size_t)snprintf(buffer, bytes, "%s [", lp_dtype_name(t->dtype));
    for (int32_t d = 0; d < t->ndim && used < bytes; d++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%" PRId64, d > 0 ? ", " : "", t->shape[d]);
    if (used < bytes)
        snprintf(buffer + used, bytes - used, "]");
    return buffer;
}

static lp_status check_other(lp_checker *c, const lp_checkpoint *other, lp_error *err)
{
    for (int64_t i = 0; i < lp_checkpoint_count(c->checkpoint); i++) {
        if (!c->used[i])
            continue;
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c->checkpoint, i);
        const int64_t at = lp_checkpoint_find(other, t->name);
        bool first;
        if (at < 0) {
            const lp_note note = lp_check_note(c, LP_RULE_NAME_NOT_IN_CHECKPOINT, t->name, "");
            LP_TRY(lp_findings_note(c->findings, &note, &first, err));
            if (first)
                LP_TRY(lp_findings_text(c->findings, err, "the trace reads '%s', which the checkpoint does not have",
                                        t->name));
            continue;
        }
        const lp_checkpoint_tensor *now = lp_checkpoint_at(other, at);
        if (is_same_tensor(t, now))
            continue;
        char was[320], is[320];
        const lp_note note = lp_check_note(c, LP_RULE_SHAPE_MISMATCH, t->name, "");
        LP_TRY(lp_findings_note(c->findings, &note, &first, err));
        if (first)
            LP_TRY(lp_findings_text(c->findings, err, "'%s' is %s, was %s", t->name, shape_text(is, sizeof is, now),
                                    shape_text(was, sizeof was, t)));
    }
    return LP_OK;
}

lp_status lp_check_names(lp_checker *c, const lp_checkpoint *other, lp_error *err)
{
    c->rank = -1;
    LP_TRY(check_unused(c, err));
    return other != NULL ? check_other(c, other, err) : LP_OK;
}
