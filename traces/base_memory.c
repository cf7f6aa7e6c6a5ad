/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation through lp_alloc, arenas, growing arrays and the string set. */
#include "traces/base.h"

#include <stdio.h>
#include <stdlib.h>

static void *resize_malloc(void *context, void *old, size_t bytes)
{
    (void)context;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, bytes);
}

static const lp_alloc malloc_table = {.size = sizeof(lp_alloc), .resize = resize_malloc};

const lp_alloc *lp_alloc_default(void)
{
    return &malloc_table;
}

lp_platform lp_platform_resolve(const lp_platform *platform)
{
    lp_platform p = {0};
    if (platform != NULL)
        p = *platform;
    if (p.io == NULL)
        p.io = lp_io_default();
    if (p.alloc == NULL)
        p.alloc = lp_alloc_default();
    return p;
}

void *lp_allocate(const lp_alloc *alloc, size_t bytes)
{
    const lp_alloc *a = alloc != NULL ? alloc : &malloc_table;
    return a->resize(a->context, NULL, bytes > 0 ? bytes : 1);
}

void *lp_allocate_zero(const lp_alloc *alloc, size_t bytes)
{
    void *block = lp_allocate(alloc, bytes);
    if (block != NULL)
        memset(block, 0, bytes);
    return block;
}

void lp_release(const lp_alloc *alloc, void *block)
{
    const lp_alloc *a = alloc != NULL ? alloc : &malloc_table;
    if (block != NULL)
        a->resize(a->context, block, 0);
}

void lp_log(const lp_platform *platform, int level, const char *module, const char *format, ...)
{
    if (platform == NULL || platform->log == NULL)
        return;
    char raw[1024], line[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    lp_sanitise(line, sizeof line, raw, n < 0 ? 0 : (size_t)n < sizeof raw ? (size_t)n : sizeof raw - 1);
    platform->log(platform->log_context, level, module, line);
}

bool lp_grow(const lp_alloc *alloc, void **items, int64_t *capacity, int64_t count, size_t item_bytes)
{
    if (count <= *capacity)
        return true;
    int64_t wanted = *capacity < 8 ? 16 : *capacity * 2;
    if (wanted < count)
        wanted = count;
    size_t bytes;
    if (__builtin_mul_overflow((size_t)wanted, item_bytes, &bytes))
        return false;
    const lp_alloc *a = alloc != NULL ? alloc : &malloc_table;
    void *grown = a->resize(a->context, *items, bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* ---- arena ---- */

enum { ARENA_ALIGN = 16, ARENA_BLOCK = 64 << 10 };

struct lp_arena_block {
    lp_arena_block *previous;
    _Alignas(16) unsigned char data[];
};

void lp_arena_init(lp_arena *a, const lp_alloc *alloc)
{
    *a = (lp_arena){.alloc = alloc != NULL ? alloc : &malloc_table};
}

/* Tables of callers that were built before the member came are shorter. */
static bool is_exact(const lp_alloc *alloc)
{
    return alloc->size >= offsetof(lp_alloc, exact) + sizeof alloc->exact && alloc->exact;
}

void *lp_arena_get(lp_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    const bool exact = is_exact(a->alloc);
    const size_t rounded = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (exact || a->last == NULL || a->capacity - a->used < rounded) {
        /* Blocks double up to 4 MiB, so that a large arena is few blocks and a small one wastes little. */
        size_t capacity = a->last == NULL                   ? ARENA_BLOCK
                          : a->capacity < ((size_t)4 << 20) ? a->capacity * 2
                                                            : a->capacity;
        if (exact || capacity < rounded)
            capacity = exact ? bytes : rounded;
        lp_arena_block *block = lp_allocate(a->alloc, sizeof *block + capacity);
        if (block == NULL)
            return NULL;
        block->previous = a->last;
        a->last = block;
        a->capacity = capacity;
        a->used = 0;
    }
    void *item = a->last->data + a->used;
    a->used += rounded;
    return item;
}

void *lp_arena_copy(lp_arena *a, const void *data, size_t bytes)
{
    void *item = lp_arena_get(a, bytes);
    if (item != NULL && bytes > 0)
        memcpy(item, data, bytes);
    return item;
}

char *lp_arena_text(lp_arena *a, const char *text, size_t text_bytes)
{
    if (text_bytes == SIZE_MAX)
        return NULL;
    char *item = lp_arena_get(a, text_bytes + 1);
    if (item != NULL) {
        if (text_bytes > 0)
            memcpy(item, text, text_bytes);
        item[text_bytes] = '\0';
    }
    return item;
}

char *lp_arena_format(lp_arena *a, const char *format, ...)
{
    char buffer[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    if (n < 0)
        return NULL;
    if ((size_t)n < sizeof buffer)
        return lp_arena_text(a, buffer, (size_t)n);
    char *item = lp_arena_get(a, (size_t)n + 1);
    if (item == NULL)
        return NULL;
    va_start(args, format);
    vsnprintf(item, (size_t)n + 1, format, args);
    va_end(args);
    return item;
}

void lp_arena_free(lp_arena *a)
{
    while (a->last != NULL) {
        lp_arena_block *previous = a->last->previous;
        lp_release(a->alloc, a->last);
        a->last = previous;
    }
    a->used = a->capacity = 0;
}

/* ---- string set ---- */

void lp_strings_init(lp_strings *s, const lp_alloc *alloc)
{
    *s = (lp_strings){.alloc = alloc != NULL ? alloc : &malloc_table};
    lp_arena_init(&s->arena, alloc);
}

static int64_t find_slot(const lp_strings *s, const char *text, size_t bytes, uint64_t hash)
{
    const uint64_t mask = (uint64_t)s->table_size - 1;
    for (uint64_t i = hash & mask;; i = (i + 1) & mask) {
        const uint32_t entry = s->table[i];
        if (entry == 0)
            return (int64_t)i;
        const uint32_t n = entry - 1;
        if (s->hash[n] == hash && s->bytes[n] == bytes && memcmp(s->text[n], text, bytes) == 0)
            return (int64_t)i;
    }
}

/* Large tables grow by more: entering all strings anew costs a cache miss for each. */
static bool enlarge_table(lp_strings *s)
{
    const int64_t size = s->table_size == 0 ? 64 : s->table_size * (s->table_size < 65536 ? 2 : 4);
    uint32_t *table = lp_allocate_zero(s->alloc, (size_t)size * sizeof *table);
    if (table == NULL)
        return false;
    lp_release(s->alloc, s->table);
    s->table = table;
    s->table_size = size;
    const uint64_t mask = (uint64_t)size - 1;
    for (int64_t n = 0; n < s->count; n++) {
        uint64_t i = s->hash[n] & mask;
        while (table[i] != 0)
            i = (i + 1) & mask;
        table[i] = (uint32_t)n + 1;
    }
    return true;
}

int64_t lp_strings_find(const lp_strings *s, const char *text, size_t bytes)
{
    if (s->count == 0)
        return -1;
    const int64_t slot = find_slot(s, text, bytes, lp_table_hash(text, bytes));
    return (int64_t)s->table[slot] - 1;
}

int64_t lp_strings_add(lp_strings *s, const char *text, size_t bytes)
{
    if (bytes > UINT32_MAX || s->count >= UINT32_MAX - 1)
        return -1;
    if (s->count * 2 >= s->table_size && !enlarge_table(s))
        return -1;
    const uint64_t hash = lp_table_hash(text, bytes);
    const int64_t slot = find_slot(s, text, bytes, hash);
    if (s->table[slot] != 0)
        return (int64_t)s->table[slot] - 1;
    int64_t capacity = s->capacity;
    if (!lp_grow(s->alloc, (void **)&s->text, &capacity, s->count + 1, sizeof *s->text))
        return -1;
    capacity = s->capacity;
    if (!lp_grow(s->alloc, (void **)&s->bytes, &capacity, s->count + 1, sizeof *s->bytes))
        return -1;
    capacity = s->capacity;
    if (!lp_grow(s->alloc, (void **)&s->hash, &capacity, s->count + 1, sizeof *s->hash))
        return -1;
    s->capacity = capacity;
    char *copy = lp_arena_text(&s->arena, text, bytes);
    if (copy == NULL)
        return -1;
    s->text[s->count] = copy;
    s->bytes[s->count] = (uint32_t)bytes;
    s->hash[s->count] = hash;
    s->table[slot] = (uint32_t)s->count + 1;
    return s->count++;
}

void lp_strings_free(lp_strings *s)
{
    lp_arena_free(&s->arena);
    lp_release(s->alloc, s->text);
    lp_release(s->alloc, s->bytes);
    lp_release(s->alloc, s->hash);
    lp_release(s->alloc, s->table);
    lp_strings_init(s, s->alloc);
}
