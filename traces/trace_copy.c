/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace keeps of the things it is given: copies of derives, refusals, provenance and the checkpoint catalogue.
 */
#include "traces/json_pull.h"
#include "traces/trace_build.h"

/* ---- rows ---- */

lp_status lp_derive_copy(const lp_trace *t, lp_arena *arena, const lp_derive *derive, lp_derive *out, lp_error *err)
{
    *out = *derive;
    out->error_text = lp_trace_text(t, derive->error_text);
    lp_node *node = lp_arena_copy(arena, derive->node, derive->nnode * sizeof *derive->node);
    lp_derive_input *input = lp_arena_copy(arena, derive->input, derive->ninput * sizeof *derive->input);
    if (out->error_text == NULL || node == NULL || input == NULL)
        return lp_fail_memory(err);
    for (uint32_t n = 0; n < derive->nnode; n++) {
        const bool reduces = node[n].op == LP_OP_MAX || node[n].op == LP_OP_MIN || node[n].op == LP_OP_SUM;
        if (reduces && node[n].bits == (uint64_t)node[node[n].arg[0]].count)
            node[n].bits = 0; /* one group of all elements has one form */
    }
    out->node = node;
    for (uint32_t i = 0; i < derive->ninput; i++) {
        input[i].map = lp_arena_map(arena, derive->input[i].map);
        if (input[i].map == NULL)
            return lp_fail_memory(err);
    }
    out->input = input;
    if (derive->map != NULL) {
        out->map = lp_arena_map(arena, derive->map);
        if (out->map == NULL)
            return lp_fail_memory(err);
    }
    return LP_OK;
}

lp_status lp_refusal_copy(const lp_trace *t, lp_arena *arena, const lp_refusal *refusal, lp_refusal *out, lp_error *err)
{
    *out = *refusal;
    out->operation = lp_trace_text(t, refusal->operation);
    out->reason = lp_trace_text(t, refusal->reason);
    if (out->operation == NULL || out->reason == NULL)
        return lp_fail_memory(err);
    if (refusal->map != NULL) {
        out->map = lp_arena_map(arena, refusal->map);
        if (out->map == NULL)
            return lp_fail_memory(err);
    }
    return LP_OK;
}

/* ---- provenance ---- */

/* Texts are interned, so equal texts are equal pointers. */
static bool equal_provenance(const lp_provenance *a, const lp_provenance *b)
{
    return a->file == b->file && a->chain == b->chain && a->line == b->line && a->flags == b->flags;
}

static uint64_t hash_provenance(const lp_provenance *p)
{
    const uint64_t key[4] = {(uint64_t)(uintptr_t)p->file, (uint64_t)(uintptr_t)p->chain, (uint64_t)(uint32_t)p->line,
                             p->flags};
    return lp_table_hash(key, sizeof key);
}

static uint64_t provenance_slot(const lp_provenance_table *table, const lp_provenance *row)
{
    const uint64_t mask = (uint64_t)table->table_size - 1;
    uint64_t i = hash_provenance(row) & mask;
    while (table->table[i] != 0 && !equal_provenance(&table->row[table->table[i] - 1], row))
        i = (i + 1) & mask;
    return i;
}

static bool enlarge_provenance(lp_provenance_table *table, const lp_alloc *alloc)
{
    const int64_t size = table->table_size == 0 ? 64 : table->table_size * 2;
    uint32_t *slots = lp_allocate_zero(alloc, (size_t)size * sizeof *slots);
    if (slots == NULL)
        return false;
    lp_release(alloc, table->table);
    table->table = slots;
    table->table_size = size;
    for (int64_t n = 0; n < table->count; n++)
        slots[provenance_slot(table, &table->row[n])] = (uint32_t)n + 1;
    return true;
}

static bool is_utf8(const char *text)
{
    size_t bad_off;
    return text == NULL || lp_utf8_is_valid(text, strlen(text), &bad_off);
}

lp_status lp_trace_add_provenance(lp_trace *t, const lp_provenance *provenance, uint32_t *index, lp_error *err)
{
    if (t->sealed)
        return lp_fail(err, LP_E_MISUSE, "the trace is sealed and takes no more provenance");
    if (!is_utf8(provenance->file) || !is_utf8(provenance->chain))
        return lp_fail(err, LP_E_ARGUMENT, "the place of an operation, or its chain, is not UTF-8");
    lp_provenance_table *table = &t->shared->provenance;
    const lp_alloc *alloc = t->platform.alloc;
    if (table->count >= UINT32_MAX - 1)
        return lp_fail(err, LP_E_LIMIT, "more than 4,294,967,294 different places in one trace");
    const lp_provenance row = {.file = lp_trace_text(t, provenance->file),
                               .line = provenance->line,
                               .chain = lp_trace_text(t, provenance->chain),
                               .flags = provenance->flags};
    if (row.file == NULL || row.chain == NULL ||
        (table->count * 2 >= table->table_size && !enlarge_provenance(table, alloc)) ||
        !lp_grow(alloc, (void **)&table->row, &table->capacity, table->count + 1, sizeof *table->row))
        return lp_fail_memory(err);
    const uint64_t slot = provenance_slot(table, &row);
    if (table->table[slot] == 0) {
        table->row[table->count++] = row;
        table->table[slot] = (uint32_t)table->count;
    }
    *index = table->table[slot] - 1;
    return LP_OK;
}

const lp_provenance *lp_trace_provenance(const lp_trace *t, uint32_t index)
{
    const lp_provenance_table *table = &t->shared->provenance;
    return index < table->count ? &table->row[index] : NULL;
}

/* ---- catalogue ---- */

bool lp_path_is_safe(const char *path)
{
    if (path[0] == '/' || path[0] == '\0')
        return false;
    for (const char *part = path;;) {
        const char *end = strchr(part, '/');
        const size_t bytes = end == NULL ? strlen(part) : (size_t)(end - part);
        if (bytes == 2 && part[0] == '.' && part[1] == '.')
            return false;
        if (end == NULL)
            return true;
        part = end + 1;
    }
}

/* The file's name below the checkpoint's folder, else its last part: never a path that a trace may not have. */
static const char *relative_path(const char *path, const char *folder)
{
    const size_t n = strlen(folder);
    const char *rest = path;
    if (n > 0)
        rest = strncmp(path, folder, n) == 0 && (path[n] == '/' || folder[n - 1] == '/') ? path + n : "";
    while (n > 0 && *rest == '/')
        rest++;
    if (lp_path_is_safe(rest))
        return rest;
    const char *slash = strrchr(path, '/'), *last = slash != NULL ? slash + 1 : path;
    return lp_path_is_safe(last) ? last : "unnamed";
}

lp_status lp_checkpoint_copy(lp_checkpoint **out, const lp_checkpoint *from, const lp_platform *platform, lp_error *err)
{
    lp_checkpoint *c;
    LP_TRY(lp_checkpoint_new(&c, platform, err));
    lp_status status = LP_OK;
    const char *folder = lp_checkpoint_folder(from);
    const int32_t file_count = lp_checkpoint_file_count(from);
    for (int32_t f = 0; f < file_count; f++) {
        const lp_checkpoint_file *file = lp_checkpoint_file_at(from, f);
        char shown[4096];
        const lp_checkpoint_file copy = {.path = lp_utf8_text(shown, sizeof shown, relative_path(file->path, folder)),
                                         .size_bytes = file->size_bytes};
        LP_TRY_GOTO(lp_checkpoint_add_file(c, &copy, err), close_copy);
    }
    const int64_t count = lp_checkpoint_count(from);
    for (int64_t i = 0; i < count; i++)
        LP_TRY_GOTO(lp_checkpoint_add(c, lp_checkpoint_at(from, i), err), close_copy);
    LP_TRY_GOTO(lp_checkpoint_seal(c, err), close_copy);
    *out = c;
    return LP_OK;

close_copy:
    lp_checkpoint_close(c);
    return status;
}
