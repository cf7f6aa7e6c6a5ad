/* SPDX-License-Identifier: Apache-2.0 */
/* Findings: grouped by family as they come in, sorted and summed up at the end. */
#include "traces/findings.h"

#include "traces/family.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEMPLATE_MAX = 4200 };

/* What happened to a tensor, for the counts of diff's first line. */
enum { IS_CHANGED = 1, IS_ADDED = 2, IS_REMOVED = 4, BECAME_REFUSAL = 8 };

typedef struct group {
    lp_finding finding;
    const char *what;
    uint64_t hash;
    lp_rule_number number;
} group;

struct lp_findings {
    const lp_alloc *alloc;
    lp_arena arena;
    group *item;
    int64_t count, capacity;
    uint32_t *table; /* index + 1, open addressing; free once sealed */
    int64_t table_size;
    lp_strings names; /* tensors */
    uint8_t *fate;    /* per tensor */
    int64_t fate_capacity;
    uint64_t *member; /* (group + 1) << 32 | tensor, open addressing: tensors that are counted already */
    int64_t member_count, member_size;
    lp_tally tally;
    const char *summary;
};

lp_status lp_findings_new(lp_findings **out, const lp_alloc *alloc, lp_error *err)
{
    lp_findings *f = lp_allocate_zero(alloc, sizeof *f);
    if (f == NULL)
        return lp_fail_memory(err);
    f->alloc = alloc;
    f->summary = "";
    lp_arena_init(&f->arena, alloc);
    lp_strings_init(&f->names, alloc);
    *out = f;
    return LP_OK;
}

void lp_findings_free(lp_findings *f)
{
    if (f == NULL)
        return;
    lp_arena_free(&f->arena);
    lp_strings_free(&f->names);
    lp_release(f->alloc, f->item);
    lp_release(f->alloc, f->table);
    lp_release(f->alloc, f->fate);
    lp_release(f->alloc, f->member);
    lp_release(f->alloc, f);
}

/* ---- adding ---- */

static bool grow_table(lp_findings *f)
{
    const int64_t size = f->table_size > 0 ? f->table_size * 2 : 64;
    uint32_t *table = lp_allocate_zero(f->alloc, (size_t)size * sizeof *table);
    if (table == NULL)
        return false;
    for (int64_t i = 0; i < f->count; i++) {
        uint64_t at = f->item[i].hash & (uint64_t)(size - 1);
        while (table[at] != 0)
            at = (at + 1) & (uint64_t)(size - 1);
        table[at] = (uint32_t)i + 1;
    }
    lp_release(f->alloc, f->table);
    f->table = table;
    f->table_size = size;
    return true;
}

static uint64_t mix(uint64_t x)
{
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

/* Whether the tensor is new to the group; *failed when out of memory. */
static bool is_new_member(lp_findings *f, uint64_t key, bool *failed)
{
    if ((f->member_count + 1) * 2 > f->member_size) {
        const int64_t size = f->member_size > 0 ? f->member_size * 2 : 64;
        uint64_t *table = lp_allocate_zero(f->alloc, (size_t)size * sizeof *table);
        if (table == NULL) {
            *failed = true;
            return false;
        }
        for (int64_t i = 0; i < f->member_size; i++) {
            if (f->member[i] == 0)
                continue;
            uint64_t at = mix(f->member[i]) & (uint64_t)(size - 1);
            while (table[at] != 0)
                at = (at + 1) & (uint64_t)(size - 1);
            table[at] = f->member[i];
        }
        lp_release(f->alloc, f->member);
        f->member = table;
        f->member_size = size;
    }
    uint64_t at = mix(key) & (uint64_t)(f->member_size - 1);
    for (; f->member[at] != 0; at = (at + 1) & (uint64_t)(f->member_size - 1))
        if (f->member[at] == key)
            return false;
    f->member[at] = key;
    f->member_count++;
    return true;
}

static uint8_t fate_of(lp_rule_number rule)
{
    switch ((int)rule) {
    case LP_RULE_MAP_CHANGED:
    case LP_RULE_KIND_CHANGED:
    case LP_RULE_DERIVE_CHANGED:
    case LP_RULE_DEST_TYPE_CHANGED:
    case LP_RULE_LAYOUT_CHANGED:
    case LP_RULE_DEST_MOVED:
    case LP_RULE_NEW_ORDER_DEPENDENCE:
        return IS_CHANGED;
    case LP_RULE_DEST_ADDED:
        return IS_ADDED;
    case LP_RULE_DEST_VANISHED:
        return IS_REMOVED;
    case LP_RULE_COPY_BECAME_REFUSAL:
        return BECAME_REFUSAL;
    default:
        return 0;
    }
}

static lp_status open_group(lp_findings *f, const lp_note *n, const char *family, uint64_t hash, lp_error *err)
{
    if (!lp_grow(f->alloc, (void **)&f->item, &f->capacity, f->count + 1, sizeof *f->item))
        return lp_fail_memory(err);
    group *g = &f->item[f->count];
    *g = (group){.hash = hash, .number = n->rule};
    g->what = lp_arena_text(&f->arena, n->what, strlen(n->what));
    lp_finding *x = &g->finding;
    x->rule = lp_rule_at((int)n->rule);
    x->level = x->rule->level;
    x->family = lp_arena_text(&f->arena, family, strlen(family));
    x->tensor = lp_arena_text(&f->arena, n->tensor, strlen(n->tensor));
    x->rank = n->rank;
    x->byte_lo = n->byte_lo;
    x->byte_hi = n->byte_hi;
    x->file = lp_arena_text(&f->arena, n->file, strlen(n->file));
    x->line = n->line;
    x->text = x->hint = "";
    if (g->what == NULL || x->family == NULL || x->tensor == NULL || x->file == NULL)
        return lp_fail_memory(err);
    f->count++;
    return LP_OK;
}

static bool says(const group *g, const lp_note *n, const char *family, uint64_t hash)
{
    return g->hash == hash && g->number == n->rule && g->finding.line == n->line && strcmp(g->what, n->what) == 0 &&
           strcmp(g->finding.family, family) == 0 && strcmp(g->finding.file, n->file) == 0;
}

lp_status lp_findings_note(lp_findings *f, const lp_note *note, bool *is_first, lp_error *err)
{
    char family[TEMPLATE_MAX];
    lp_note n = *note;
    n.what = n.what != NULL ? n.what : "";
    n.file = n.file != NULL ? n.file : "";
    const size_t length = lp_family_template(n.tensor, family, sizeof family);
    const size_t bytes = length < sizeof family ? length : sizeof family - 1;
    const uint64_t hash = mix(lp_hash(family, bytes) ^ mix(lp_hash(n.what, strlen(n.what))) ^
                              mix(lp_hash(n.file, strlen(n.file)) + (uint64_t)n.line * 64 + (uint64_t)n.rule));
    *is_first = false;
    if ((f->count + 1) * 2 > f->table_size && !grow_table(f))
        return lp_fail_memory(err);
    uint64_t at = hash & (uint64_t)(f->table_size - 1);
    while (f->table[at] != 0 && !says(&f->item[f->table[at] - 1], &n, family, hash))
        at = (at + 1) & (uint64_t)(f->table_size - 1);
    if (f->table[at] == 0) {
        LP_TRY(open_group(f, &n, family, hash, err));
        f->table[at] = (uint32_t)f->count;
        *is_first = true;
    }
    const uint32_t number = f->table[at];
    const int64_t name = lp_strings_add(&f->names, n.tensor, strlen(n.tensor));
    if (name < 0)
        return lp_fail_memory(err);
    const int64_t known = f->fate_capacity;
    if (!lp_grow(f->alloc, (void **)&f->fate, &f->fate_capacity, name + 1, 1))
        return lp_fail_memory(err);
    if (f->fate_capacity > known)
        memset(f->fate + known, 0, (size_t)(f->fate_capacity - known));
    f->fate[name] |= fate_of(n.rule);
    bool failed = false;
    f->item[number - 1].finding.members += is_new_member(f, (uint64_t)number << 32 | (uint64_t)name, &failed);
    return failed ? lp_fail_memory(err) : LP_OK;
}

lp_status lp_findings_text(lp_findings *f, lp_error *err, const char *format, ...)
{
    lp_text t;
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    lp_text_init(&t, f->alloc);
    char clean[sizeof line];
    lp_sanitise(clean, sizeof clean, line, strlen(line));
    const char *text = lp_arena_text(&f->arena, clean, strlen(clean));
    if (text == NULL)
        return lp_fail_memory(err);
    f->item[f->count - 1].finding.text = text;
    return LP_OK;
}

lp_status lp_findings_hint(lp_findings *f, const char *hint, lp_error *err)
{
    const char *text = lp_arena_text(&f->arena, hint, strlen(hint));
    if (text == NULL)
        return lp_fail_memory(err);
    f->item[f->count - 1].finding.hint = text;
    return LP_OK;
}

/* ---- order and first line ---- */

static int compare_groups(const void *pa, const void *pb)
{
    const group *a = pa, *b = pb;
    if (a->finding.level != b->finding.level)
        return a->finding.level > b->finding.level ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    int order = lp_family_compare(a->finding.family, b->finding.family);
    if (order == 0)
        order = strcmp(a->finding.file, b->finding.file);
    if (order == 0)
        order = (a->finding.line > b->finding.line) - (a->finding.line < b->finding.line);
    return order != 0 ? order : strcmp(a->what, b->what);
}

static const char *plural(int64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

static int64_t members_with(const lp_findings *f, uint8_t fate)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->names.count; i++)
        n += (f->fate[i] & fate) != 0;
    return n;
}

/* Distinct families among findings of at least one level; groups are sorted, so equal families of one rule meet. */
static int64_t families_of(lp_findings *f, bool worse, bool *failed)
{
    lp_strings seen;
    lp_strings_init(&seen, f->alloc);
    for (int64_t i = 0; i < f->count && !*failed; i++) {
        const lp_finding *x = &f->item[i].finding;
        const bool counts = worse ? x->level > LP_ALLOW : f->item[i].number == LP_RULE_REFUSAL_BECAME_COPY;
        if (counts && lp_strings_add(&seen, x->family, strlen(x->family)) < 0)
            *failed = true;
    }
    const int64_t count = seen.count;
    lp_strings_free(&seen);
    return count;
}

static char *check_summary(lp_findings *f)
{
    int64_t denied = 0, warned = 0;
    char derives[32];
    for (int64_t i = 0; i < f->count; i++) {
        denied += f->item[i].finding.level == LP_DENY;
        warned += f->item[i].finding.level == LP_WARN;
    }
    if (denied == 0 && warned == 0)
        return lp_arena_format(&f->arena,
                               "ok: every destination byte written exactly once, in any order and any split; %s "
                               "%s, 0 fallbacks",
                               lp_format_count(derives, f->tally.derives),
                               plural(f->tally.derives, "derive", "derives"));
    const lp_finding *worst = &f->item[0].finding;
    char count[32], family[512];
    lp_sanitise(family, sizeof family, worst->family, strlen(worst->family));
    return lp_arena_format(&f->arena, "%" PRId64 " denied, %" PRId64 " %s: %s in %s (%s %s)%s", denied, warned,
                           plural(warned, "warning", "warnings"), worst->rule->id, family,
                           lp_format_count(count, worst->members), plural(worst->members, "tensor", "tensors"),
                           denied + warned > 1 ? ", ..." : "");
}

static char *diff_summary(lp_findings *f)
{
    bool failed = false;
    const int64_t worse = families_of(f, true, &failed), better = families_of(f, false, &failed);
    if (failed)
        return NULL;
    if (f->count == 0) {
        if (f->tally.changed_scopes > 0)
            return lp_arena_format(&f->arena, "no change in meaning: same bytes, other form");
        return lp_arena_format(&f->arena, "no change: %" PRId64 " %s with equal plan digests", f->tally.scopes,
                               plural(f->tally.scopes, "rank", "ranks"));
    }
    const lp_finding *first = &f->item[0].finding;
    char a[32], b[32], c[32], d[32], family[512];
    char *head = lp_arena_format(&f->arena, "%s %s worse, %s better", lp_format_count(a, worse),
                                 plural(worse, "family", "families"), lp_format_count(b, better));
    if (head == NULL)
        return NULL;
    if (worse == 1 && better == 0) {
        lp_sanitise(family, sizeof family, first->family, strlen(first->family));
        return lp_arena_format(&f->arena, "%s: %s (%s %s)", head, family, lp_format_count(a, first->members),
                               plural(first->members, "tensor", "tensors"));
    }
    const int64_t changed = members_with(f, IS_CHANGED), refused = members_with(f, BECAME_REFUSAL);
    head = lp_arena_format(&f->arena, "%s: %s %s changed, %s added, %s removed", head, lp_format_count(a, changed),
                           plural(changed, "tensor", "tensors"), lp_format_count(b, members_with(f, IS_ADDED)),
                           lp_format_count(c, members_with(f, IS_REMOVED)));
    if (head != NULL && refused > 0)
        head = lp_arena_format(
            &f->arena, "%s; %s", head,
            refused == 1 ? "1 copy became a refusal"
                         : lp_arena_format(&f->arena, "%s copies became refusals", lp_format_count(d, refused)));
    return head;
}

static lp_status arrange(lp_findings *f, lp_error *err)
{
    if (f->count > 1)
        qsort(f->item, (size_t)f->count, sizeof *f->item, compare_groups);
    const char *summary = f->tally.of_diff ? diff_summary(f) : check_summary(f);
    if (summary == NULL)
        return lp_fail_memory(err);
    f->summary = summary;
    return LP_OK;
}

lp_status lp_findings_seal(lp_findings *f, const lp_tally *tally, lp_error *err)
{
    f->tally = *tally;
    return arrange(f, err);
}

lp_status lp_findings_set_level(lp_findings *f, const lp_rule *rule, lp_level level, lp_error *err)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->item[i].finding.rule == rule)
            f->item[i].finding.level = level;
    return arrange(f, err);
}

/* ---- access ---- */

int64_t lp_findings_count(const lp_findings *f)
{
    return f->count;
}

const lp_finding *lp_findings_at(const lp_findings *f, int64_t index)
{
    return index >= 0 && index < f->count ? &f->item[index].finding : NULL;
}

lp_level lp_findings_worst(const lp_findings *f)
{
    return f->count > 0 ? f->item[0].finding.level : LP_ALLOW;
}

const char *lp_findings_summary(const lp_findings *f)
{
    return f->summary;
}

const char *lp_refusal_hint(const char *operation)
{
    static const struct {
        const char *part, *hint;
    } hints[] = {
        {"max", "write each value into its own slot and let a derive take the maximum"},
        {"min", "write each value into its own slot and let a derive take the minimum"},
        {"item", "keep the value on the device: declare a derive of it"},
        {"reciprocal", "declare a derive with the reciprocal"},
        {"div", "declare a derive with the division"},
        {"mul", "declare a derive with the product"},
        {"exp", "declare a derive with the exponential"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strstr(operation, hints[i].part) != NULL)
            return hints[i].hint;
    return "say it with views and a copy, or declare a derive";
}
