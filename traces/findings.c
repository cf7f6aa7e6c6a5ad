/* SPDX-License-Identifier: Apache-2.0 */
/* Findings: grouped by family as they come in. */
#include "traces/findings_private.h"
#include "traces/glob.h"
#include "traces/row_choice.h"

#include <stdarg.h>
#include <stdio.h>

enum { TEMPLATE_MAX = 4200 };

lp_status lp_findings_new(lp_findings **out, const lp_alloc *alloc, lp_error *err)
{
    lp_findings *f = lp_allocate_zero(alloc, sizeof *f);
    if (f == NULL)
        return lp_fail_memory(err);
    f->alloc = alloc;
    f->summary = "";
    lp_arena_init(&f->arena, alloc);
    lp_strings_init(&f->names, alloc);
    lp_strings_init(&f->only_names, alloc);
    *out = f;
    return LP_OK;
}

lp_status lp_findings_only(lp_findings *f, const lp_trace *t, const lp_tensor_choice *choice, lp_error *err)
{
    f->only = choice->glob;
    f->has_only_names = choice->rows != NULL;
    return f->has_only_names ? lp_chosen_tensors(&f->only_names, t, choice->rows, err) : LP_OK;
}

static bool is_chosen(const lp_findings *f, const char *tensor)
{
    return (f->only == NULL || lp_glob_match(f->only, tensor)) &&
           (!f->has_only_names || lp_strings_find(&f->only_names, tensor, strlen(tensor)) >= 0);
}

void lp_findings_free(lp_findings *f)
{
    if (f == NULL)
        return;
    lp_arena_free(&f->arena);
    lp_strings_free(&f->names);
    lp_strings_free(&f->only_names);
    lp_release(f->alloc, f->item);
    lp_release(f->alloc, f->table);
    lp_release(f->alloc, f->fate);
    lp_release(f->alloc, f->member);
    lp_release(f->alloc, f);
}

/* ---- adding ---- */

/* Large tables grow by more: entering all groups anew costs a cache miss for each. */
static bool grow_table(lp_findings *f)
{
    const int64_t size = f->table_size == 0 ? 64 : f->table_size * (f->table_size < 65536 ? 2 : 4);
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
            uint64_t at = lp_table_hash(&f->member[i], sizeof f->member[i]) & (uint64_t)(size - 1);
            while (table[at] != 0)
                at = (at + 1) & (uint64_t)(size - 1);
            table[at] = f->member[i];
        }
        lp_release(f->alloc, f->member);
        f->member = table;
        f->member_size = size;
    }
    uint64_t at = lp_table_hash(&key, sizeof key) & (uint64_t)(f->member_size - 1);
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
        return LP_FATE_CHANGED;
    case LP_RULE_DEST_ADDED:
        return LP_FATE_ADDED;
    case LP_RULE_DEST_VANISHED:
        return LP_FATE_REMOVED;
    case LP_RULE_COPY_BECAME_REFUSAL:
        return LP_FATE_REFUSED;
    default:
        return 0;
    }
}

/* What makes a finding the same finding in another run. */
static const char *fingerprint_of(lp_findings *f, const lp_note *n)
{
    lp_sha256 h;
    uint8_t digest[32];
    char text[2 * sizeof digest + 1];
    lp_sha256_begin(&h);
    lp_sha256_text(&h, lp_rule_at((int)n->rule)->id);
    lp_sha256_text(&h, n->tensor);
    lp_sha256_text(&h, n->what);
    if (n->map != NULL) {
        lp_map_digest(n->map, digest);
        lp_sha256_add(&h, digest, sizeof digest);
    }
    if (!lp_sha256_end(&h, digest))
        return NULL;
    lp_format_hex(text, digest, sizeof digest);
    return lp_arena_text(&f->arena, text, sizeof text - 1);
}

/* Most findings come without a `what`, many without a place. */
static const char *keep(lp_findings *f, const char *text)
{
    return text[0] == '\0' ? "" : lp_arena_text(&f->arena, text, strlen(text));
}

static lp_status open_group(lp_findings *f, const lp_note *n, uint32_t family, uint32_t name, uint64_t hash,
                            lp_error *err)
{
    if (!lp_grow(f->alloc, (void **)&f->item, &f->capacity, f->count + 1, sizeof *f->item))
        return lp_fail_memory(err);
    lp_finding_group *g = &f->item[f->count];
    *g = (lp_finding_group){.hash = hash, .family = family, .witness = name, .born = f->count, .number = n->rule};
    g->what = keep(f, n->what);
    lp_finding *x = &g->finding;
    x->rule = lp_rule_at((int)n->rule);
    x->level = x->rule->level;
    x->family = f->names.text[family];
    x->members = 1;
    x->tensor = f->names.text[name];
    x->rank = n->rank;
    x->byte_lo = n->byte_lo;
    x->byte_hi = n->byte_hi;
    x->file = keep(f, n->file);
    x->line = n->line;
    x->text = x->hint = "";
    x->fingerprint = fingerprint_of(f, n);
    if (g->what == NULL || x->file == NULL || x->fingerprint == NULL)
        return lp_fail_memory(err);
    f->count++;
    return LP_OK;
}

static bool says(const lp_finding_group *g, const lp_note *n, uint32_t family, uint64_t hash)
{
    return g->hash == hash && g->number == n->rule && g->family == family && g->finding.line == n->line &&
           strcmp(g->what, n->what) == 0 && strcmp(g->finding.file, n->file) == 0;
}

/* The numbers of a tensor and of its family. */
static bool number_tensor(lp_findings *f, const char *tensor, int64_t *family, int64_t *name)
{
    char template[TEMPLATE_MAX];
    const size_t length = lp_family_template(tensor, template, sizeof template);
    *name = lp_strings_add(&f->names, tensor, strlen(tensor));
    *family = *name;
    if (*name >= 0 && strcmp(template, tensor) != 0)
        *family = lp_strings_add(&f->names, template, length < sizeof template ? length : sizeof template - 1);
    const int64_t known = f->fate_capacity;
    if (*family < 0 || !lp_grow(f->alloc, (void **)&f->fate, &f->fate_capacity, f->names.count, 1))
        return false;
    if (f->fate_capacity > known)
        memset(f->fate + known, 0, (size_t)(f->fate_capacity - known));
    return true;
}

lp_status lp_findings_note(lp_findings *f, const lp_note *note, bool *is_first, lp_error *err)
{
    lp_note n = *note;
    n.what = n.what != NULL ? n.what : "";
    n.file = n.file != NULL ? n.file : "";
    *is_first = false;
    if (!is_chosen(f, n.tensor))
        return LP_OK;
    int64_t family, name;
    if (!number_tensor(f, n.tensor, &family, &name))
        return lp_fail_memory(err);
    f->fate[name] |= fate_of(n.rule);
    if ((f->count + 1) * 2 > f->table_size && !grow_table(f))
        return lp_fail_memory(err);
    const uint64_t hash = mix(f->names.hash[family] ^ mix(lp_table_hash(n.what, strlen(n.what))) ^
                              mix(lp_table_hash(n.file, strlen(n.file)) + (uint64_t)n.line * 64 + (uint64_t)n.rule));
    uint64_t at = hash & (uint64_t)(f->table_size - 1);
    while (f->table[at] != 0 && !says(&f->item[f->table[at] - 1], &n, (uint32_t)family, hash))
        at = (at + 1) & (uint64_t)(f->table_size - 1);
    if (f->table[at] == 0) {
        LP_TRY(open_group(f, &n, (uint32_t)family, (uint32_t)name, hash, err));
        f->table[at] = (uint32_t)f->count;
        *is_first = true;
        return LP_OK;
    }
    const uint32_t number = f->table[at];
    lp_finding_group *g = &f->item[number - 1];
    bool failed = false;
    if (g->witness != (uint32_t)name)
        g->finding.members += is_new_member(f, (uint64_t)number << 32 | (uint64_t)name, &failed);
    return failed ? lp_fail_memory(err) : LP_OK;
}

lp_status lp_findings_text(lp_findings *f, lp_error *err, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
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

/* ---- access ---- */

int64_t lp_findings_count(const lp_findings *f)
{
    return f->count;
}

const lp_finding *lp_findings_at(const lp_findings *f, int64_t index)
{
    return index >= 0 && index < f->count ? &f->item[index].finding : NULL;
}

int64_t lp_findings_family(const lp_findings *f, int64_t index)
{
    return f->item[index].family;
}

int64_t lp_findings_families(const lp_findings *f)
{
    return f->names.count;
}

lp_level lp_findings_worst(const lp_findings *f)
{
    return f->count > 0 && f->item[0].finding.suppressed == NULL ? f->item[0].finding.level : LP_ALLOW;
}

const char *lp_findings_summary(const lp_findings *f)
{
    return f->summary;
}
