/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the text of a trace that is then used: judged, compared with itself, explained, bound to memory of
 * exactly its size, and loaded. Whatever the order of the pushes, and after a reload too, the memory is the same,
 * unless check denies that the order is free. The line of counts at the end of a text is written here, or few changes
 * of one would be accepted.
 */
#include "replayer/replayer.h"
#include "tests/fuzz/demand.h"
#include "traces/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { RANKS_MAX = 4, NAMES_MAX = 64, MEMORY_MAX = 1 << 16 };

static uint8_t payload[MEMORY_MAX];

/* What check says is sound, and a trace does not differ from itself. */
static void judge(const lp_trace *t)
{
    lp_findings *found = NULL;
    lp_error err = {0};
    const lp_status status = lp_check(&found, t, &err);
    if (status != LP_OK)
        demand_error(status, &err);
    for (int64_t i = 0; status == LP_OK && i < lp_findings_count(found); i++) {
        const lp_finding *f = lp_findings_at(found, i);
        demand(f->rule != NULL && !f->rule->of_diff && f->members > 0 && f->byte_lo <= f->byte_hi);
        demand(f->text[0] != '\0' && strlen(f->fingerprint) == 64);
    }
    lp_findings_free(found);
    found = NULL;
    demand(lp_diff(&found, t, t, &err) == LP_OK && lp_findings_count(found) == 0);
    lp_findings_free(found);
}

/* What all its families read is what the rank reads. */
static bool explain(const lp_trace *t, int32_t rank, lp_explanation *e)
{
    lp_family_costs *costs = NULL;
    lp_push_order *order = NULL;
    lp_error err = {0};
    lp_status status = lp_explain(e, t, rank, &err);
    if (status != LP_OK) {
        demand_error(status, &err);
        return false;
    }
    status = lp_explain_families(&costs, t, rank, &err);
    if (status == LP_OK) {
        int64_t read = 0;
        for (int64_t i = 0; i < lp_family_costs_count(costs); i++)
            read += lp_family_costs_at(costs, i)->bytes_read;
        demand(read == e->bytes_read);
    } else {
        demand_error(status, &err);
    }
    lp_family_costs_free(costs);
    status = lp_push_order_make(&order, t, rank, &err);
    if (status != LP_OK)
        demand_error(status, &err);
    lp_push_order_free(order);
    return true;
}

/* Pushes all names, from the first or from the last, whole or in two pieces. */
static lp_status load(lp_plan *plan, const lp_checkpoint *c, lp_load_mode mode, bool is_backwards, lp_error *err)
{
    lp_session *s = NULL;
    const lp_session_options o = {.mode = mode, .allow_fallbacks = true};
    const int64_t count = lp_checkpoint_count(c);
    lp_status status = lp_begin(&s, plan, &o, err);
    if (status != LP_OK)
        return status;
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        const int64_t name = is_backwards ? count - 1 - i : i;
        const int64_t bytes = lp_checkpoint_at(c, name)->bytes, cut = is_backwards ? bytes / 3 : bytes;
        const uint8_t *at = payload + name;
        status = lp_push_handle_range(s, (lp_handle)name, cut, at + cut, bytes - cut, err);
        if (status == LP_OK && cut > 0)
            status = lp_push_handle_range(s, (lp_handle)name, 0, at, cut, err);
    }
    if (status == LP_OK)
        status = lp_finish(s, NULL, err);
    lp_session_close(s);
    return status;
}

typedef struct bound {
    lp_destinations *memory;
    lp_plan *plan;
} bound;

static bool bind_rank(bound *b, const lp_trace *t, const lp_scope *scope)
{
    lp_error err = {0};
    int64_t count;
    *b = (bound){.memory = NULL};
    lp_status status = lp_destinations_allocate(&b->memory, t, scope, false, NULL, &err);
    if (status == LP_OK) {
        const lp_destination_memory *list = lp_destinations_list(b->memory, &count);
        const lp_bind_options o = {.threads = 1};
        status = lp_bind(&b->plan, t, scope, list, count, &o, &err);
    }
    if (status != LP_OK)
        demand_error(status, &err);
    return status == LP_OK;
}

static void release(bound *b)
{
    lp_plan_close(b->plan);
    lp_destinations_free(b->memory);
}

/* Whatever is bound gives the same bytes in every order: two writers of one byte without an order are refused there. */
static void demand_same(const bound *a, const bound *b)
{
    int64_t count;
    const lp_destination_memory *x = lp_destinations_list(a->memory, &count),
                                *y = lp_destinations_list(b->memory, &count);
    for (int64_t i = 0; i < count; i++)
        if (x[i].storage_bytes > 0)
            demand(memcmp(x[i].storage, y[i].storage, (size_t)x[i].storage_bytes) == 0);
}

static void load_rank(const lp_trace *t, const lp_scope *scope)
{
    bound a, b;
    lp_error err = {0};
    const lp_checkpoint *c = lp_trace_checkpoint(t);
    const bool is_bound = bind_rank(&a, t, scope);
    demand(bind_rank(&b, t, scope) == is_bound);
    if (is_bound) {
        const lp_status status = load(a.plan, c, LP_COLD, false, &err);
        if (status != LP_OK)
            demand_error(status, &err);
        demand(load(b.plan, c, LP_COLD, true, &err) == status);
        if (status == LP_OK) {
            demand_same(&a, &b);
            demand(load(b.plan, c, LP_DIRECT, false, &err) == LP_OK);
            demand_same(&a, &b);
            demand(load(b.plan, c, LP_LAYERWISE, true, &err) == LP_OK);
            demand_same(&a, &b);
        }
    }
    release(&a);
    release(&b);
}

/* Little enough to be loaded many times a second. */
static bool is_small(const lp_checkpoint *c)
{
    const int64_t count = lp_checkpoint_count(c);
    for (int64_t i = 0; i < count && i < NAMES_MAX; i++)
        if (lp_checkpoint_at(c, i)->bytes > MEMORY_MAX - NAMES_MAX)
            return false;
    return count <= NAMES_MAX;
}

/* The lines before one that begins with END, and their counts. */
static lp_text with_counts(const char *line, size_t bytes)
{
    static const char *const kinds[] = {"name ",      "scope ", "copy ",   "cast ",
                                        "replicate ", "fill ",  "derive ", "refuse "};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    int count[KINDS] = {0};
    lp_text text;
    lp_text_init(&text, NULL);
    while (bytes > 0 && !(bytes >= 3 && memcmp(line, "END", 3) == 0)) {
        const char *newline = memchr(line, '\n', bytes);
        const size_t length = newline != NULL ? (size_t)(newline - line) + 1 : bytes;
        for (int k = 0; k < KINDS; k++)
            count[k] += length > strlen(kinds[k]) && memcmp(line, kinds[k], strlen(kinds[k])) == 0;
        lp_text_add(&text, line, length);
        line += length;
        bytes -= length;
    }
    lp_text_format(&text, "END names=%d scopes=%d records=%d derives=%d refusals=%d\n", count[0], count[1],
                   count[2] + count[3] + count[4] + count[5], count[6], count[7]);
    demand(!text.failed);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    lp_trace *t = NULL;
    lp_text text = with_counts((const char *)data, bytes);
    const lp_status status = lp_trace_undump(&t, text.data, (size_t)text.bytes, NULL, NULL);
    lp_text_free(&text);
    if (status != LP_OK)
        return 0;
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 37 + (i >> 8) * 11);
    judge(t);
    const bool is_loaded = is_small(lp_trace_checkpoint(t));
    for (int32_t i = 0; i < lp_trace_scope_count(t) && i < RANKS_MAX; i++) {
        lp_explanation e;
        if (explain(t, i, &e) && is_loaded && e.bytes_storage <= MEMORY_MAX && e.bytes_staged <= MEMORY_MAX)
            load_rank(t, lp_trace_scope_at(t, i));
    }
    lp_trace_close(t);
    return 0;
}
