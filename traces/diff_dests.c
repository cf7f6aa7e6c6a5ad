/* SPDX-License-Identifier: Apache-2.0 */
/* diff, destinations: what vanished, what is new, and what has another type, layout or place. */
#include "traces/diff_private.h"

#include <inttypes.h>
#include <stdio.h>

static const char *type_text(char *buffer, size_t bytes, const lp_destination *d, const int64_t *extent)
{
    size_t used = (size_t)snprintf(buffer, bytes, "%s [", lp_dtype_name(d->dtype));
    for (int32_t i = 0; i < d->ndim && used < bytes; i++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%" PRId64, i > 0 ? ", " : "", extent[i]);
    if (used < bytes)
        snprintf(buffer + used, bytes - used, "]");
    return buffer;
}

static bool same_extents(const lp_destination *a, const lp_destination *b, bool strides)
{
    const int64_t *x = strides ? a->stride : a->shape, *y = strides ? b->stride : b->shape;
    for (int32_t i = 0; i < a->ndim; i++)
        if (x[i] != y[i])
            return false;
    return true;
}

static lp_status compare_types(lp_differ *d, const lp_destination *a, const lp_destination *b, lp_error *err)
{
    const bool same_shape = a->dtype == b->dtype && a->ndim == b->ndim && same_extents(a, b, false);
    if (same_shape && same_extents(a, b, true))
        return LP_OK;
    bool first;
    char is[320], was[320];
    const lp_note note = lp_diff_note(d, LP_RULE_DEST_TYPE_CHANGED, b->name, same_shape ? "strides" : "");
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return lp_findings_text(d->findings, err, "'%s' is %s%s, was %s", b->name,
                            type_text(is, sizeof is, b, same_shape ? b->stride : b->shape),
                            same_shape ? " (strides)" : "",
                            type_text(was, sizeof was, a, same_shape ? a->stride : a->shape));
}

static const char *flag_text(uint32_t flags, char buffer[96])
{
    snprintf(buffer, 96, "%s%s%s%s%s", flags & LP_DEST_NO_LOADER ? " no_loader" : "",
             flags & LP_DEST_TIED ? " tied" : "", flags & LP_DEST_HAS_DUMMY ? " dummy" : "",
             flags & LP_DEST_BUFFER ? " buffer" : "", flags == 0 ? " none" : "");
    return buffer + 1;
}

static lp_status note_declaration(lp_differ *d, const lp_destination *b, const char *what, const char *text,
                                  lp_error *err)
{
    bool first;
    const lp_note note = lp_diff_note(d, LP_RULE_DEST_TYPE_CHANGED, b->name, what);
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    return first ? lp_findings_text(d->findings, err, "'%s' declares %s", b->name, text) : LP_OK;
}

/* What else a destination declares: it changes no byte, but what waits for it, commits with it or moves with it. Each
 * is a finding of its own, so that one which is suppressed does not hide another. */
static lp_status compare_declarations(lp_differ *d, const lp_destination *a, const lp_destination *b, lp_error *err)
{
    char text[800], is[96], was[96];
    if (strcmp(a->group, b->group) != 0) {
        snprintf(text, sizeof text, "commit group '%s', was '%s'", b->group, a->group);
        LP_TRY(note_declaration(d, b, "group", text, err));
    }
    if (a->flags != b->flags) {
        snprintf(text, sizeof text, "flags %s, were %s", flag_text(b->flags, is), flag_text(a->flags, was));
        LP_TRY(note_declaration(d, b, "flags", text, err));
    }
    if (a->slot_dim != b->slot_dim || a->slot_count != b->slot_count) {
        snprintf(text, sizeof text, "%d expert slots in dimension %d, were %d in %d", (int)b->slot_count,
                 (int)b->slot_dim, (int)a->slot_count, (int)a->slot_dim);
        LP_TRY(note_declaration(d, b, "slots", text, err));
    }
    if (a->dummy_bits != b->dummy_bits) {
        snprintf(text, sizeof text, "dummy value 0x%" PRIx64 ", was 0x%" PRIx64, b->dummy_bits, a->dummy_bits);
        LP_TRY(note_declaration(d, b, "dummy", text, err));
    }
    return LP_OK;
}

static lp_status compare_layouts(lp_differ *d, const lp_destination *a, const lp_destination *b, lp_error *err)
{
    if (strcmp(a->layout, b->layout) == 0 && a->layout_version == b->layout_version)
        return LP_OK;
    bool first;
    const lp_note note = lp_diff_note(d, LP_RULE_LAYOUT_CHANGED, b->name, "");
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    return first ? lp_findings_text(d->findings, err, "'%s' has layout '%s' version %d, had '%s' version %d", b->name,
                                    b->layout, (int)b->layout_version, a->layout, (int)a->layout_version)
                 : LP_OK;
}

/* A destination that owns its storage owns it under any name. */
static const char *storage_of(const lp_destination *d)
{
    return strcmp(d->storage, d->name) == 0 ? "" : d->storage;
}

static lp_status compare_places(lp_differ *d, const lp_destination *a, const lp_destination *b, lp_error *err)
{
    const bool same_storage = strcmp(storage_of(a), storage_of(b)) == 0;
    const bool resized = a->storage_bytes != b->storage_bytes && a->dtype == b->dtype && a->ndim == b->ndim &&
                         same_extents(a, b, false) && same_extents(a, b, true);
    if (same_storage && a->offset == b->offset && !resized)
        return LP_OK;
    bool first;
    const lp_note note = lp_diff_note(d, LP_RULE_DEST_MOVED, b->name, "");
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    return first ? lp_findings_text(d->findings, err,
                                    "'%s' lies at byte %" PRId64 " of storage '%s' (%" PRId64
                                    " bytes), was at byte %" PRId64 " of '%s' (%" PRId64 " bytes)",
                                    b->name, b->offset, b->storage, b->storage_bytes, a->offset, a->storage,
                                    a->storage_bytes)
                 : LP_OK;
}

static lp_status note_lone(lp_differ *d, int side, const lp_destination *dest, bool whole_scope, lp_error *err)
{
    bool first;
    const lp_note note =
        lp_diff_note(d, side == 0 ? LP_RULE_DEST_VANISHED : LP_RULE_DEST_ADDED, dest->name, whole_scope ? "scope" : "");
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    if (whole_scope)
        return lp_findings_text(d->findings, err, "rank %d is %s, and with it '%s'", (int)d->rank,
                                side == 0 ? "no longer in the trace" : "new in the trace", dest->name);
    return lp_findings_text(d->findings, err,
                            side == 0 ? "'%s' is no longer a destination" : "'%s' is a new destination", dest->name);
}

lp_status lp_diff_lone_scope(lp_differ *d, int side, const lp_rows *rows, lp_error *err)
{
    for (uint32_t i = 0; i < rows->ndest; i++)
        LP_TRY(note_lone(d, side, &rows->dest[i], true, err));
    return LP_OK;
}

lp_status lp_diff_dests(lp_differ *d, lp_error *err)
{
    for (uint32_t n = 0; n < d->dests; n++) {
        const uint32_t at[2] = {d->dest_at[0][n], d->dest_at[1][n]};
        if (at[0] == LP_NONE && at[1] == LP_NONE)
            continue; /* renamed: its partner has the number */
        if (at[0] == LP_NONE || at[1] == LP_NONE) {
            const int side = at[0] == LP_NONE;
            LP_TRY(note_lone(d, side, &d->rows[side]->dest[at[side]], false, err));
            continue;
        }
        const lp_destination *a = &d->rows[0]->dest[at[0]], *b = &d->rows[1]->dest[at[1]];
        LP_TRY(compare_types(d, a, b, err));
        LP_TRY(compare_declarations(d, a, b, err));
        LP_TRY(compare_layouts(d, a, b, err));
        LP_TRY(compare_places(d, a, b, err));
    }
    return LP_OK;
}
