/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint catalogue: built by hand or by an opener, sealed once, then read only. */
#include "traces/checkpoint_catalogue.h"
#include "traces/json_pull.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Record rows number names with 32 bits and reserve the two highest values. */
static const int64_t TENSORS_MAX = UINT32_MAX - 2;

lp_status lp_tensor_bytes(int64_t *bytes, const char *name, lp_dtype dtype, int64_t ndim, const uint64_t *shape,
                          lp_error *err)
{
    uint64_t count = 1, bits;
    for (int64_t d = 0; d < ndim; d++)
        if (__builtin_mul_overflow(count, shape[d], &count))
            return lp_fail_at(err, LP_E_CORRUPT, name, -1, "tensor '%s': the product of its shape overflows 64 bits",
                              name);
    if (__builtin_mul_overflow(count, (uint64_t)lp_dtype_bits(dtype), &bits))
        return lp_fail_at(err, LP_E_CORRUPT, name, -1, "tensor '%s': its size in bits overflows 64 bits", name);
    if (bits % 8 != 0)
        return lp_fail_at(err, LP_E_CORRUPT, name, -1, "tensor '%s': %llu elements of %s are not whole bytes", name,
                          (unsigned long long)count, lp_dtype_name(dtype));
    *bytes = (int64_t)(bits / 8);
    return LP_OK;
}

lp_status lp_checkpoint_new(lp_checkpoint **out, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    lp_checkpoint *c = lp_allocate_zero(p.alloc, sizeof *c);
    if (c == NULL)
        return lp_fail_memory(err);
    c->platform = p;
    c->folder = "";
    lp_arena_init(&c->arena, p.alloc);
    c->lookup = lp_allocate_zero(p.alloc, sizeof *c->lookup);
    if (c->lookup == NULL) {
        lp_release(p.alloc, c);
        return lp_fail_memory(err);
    }
    *out = c;
    return LP_OK;
}

void lp_checkpoint_close(lp_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    const lp_alloc *alloc = checkpoint->platform.alloc;
    lp_arena_free(&checkpoint->arena);
    lp_release(alloc, checkpoint->tensor);
    lp_release(alloc, checkpoint->file);
    lp_release(alloc, checkpoint->metadata);
    lp_release(alloc, atomic_load(&checkpoint->lookup->table));
    lp_release(alloc, checkpoint->lookup);
    lp_release(alloc, checkpoint);
}

lp_status lp_checkpoint_append(lp_checkpoint *c, const lp_checkpoint_tensor *tensor, lp_error *err)
{
    if (c->is_sealed)
        return lp_fail(err, LP_E_MISUSE, "a sealed checkpoint catalogue takes no more tensors");
    if (c->count >= TENSORS_MAX)
        return lp_fail(err, LP_E_LIMIT, "a checkpoint catalogue holds at most %lld tensors", (long long)TENSORS_MAX);
    if (!lp_grow(c->platform.alloc, (void **)&c->tensor, &c->capacity, c->count + 1, sizeof *c->tensor))
        return lp_fail_memory(err);
    int64_t total;
    if (!lp_add(c->bytes, tensor->bytes, &total))
        return lp_fail_at(err, LP_E_CORRUPT, tensor->name, -1, "tensor '%s': the checkpoint's size overflows 64 bits",
                          tensor->name);
    c->bytes = total;
    c->tensor[c->count++] = *tensor;
    return LP_OK;
}

const char *lp_checkpoint_keep_text(lp_checkpoint *c, const char *from, size_t bytes)
{
    size_t nuls = 0;
    for (const char *p = from; (p = memchr(p, '\0', bytes - (size_t)(p - from))) != NULL; p++)
        nuls++;
    if (nuls == 0)
        return lp_arena_text(&c->arena, from, bytes);
    char *text = lp_arena_get(&c->arena, bytes + nuls + 1);
    if (text == NULL)
        return NULL;
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (from[i] == '\0') {
            text[n++] = (char)0xc0;
            text[n++] = (char)0x80;
        } else {
            text[n++] = from[i];
        }
    }
    text[n] = '\0';
    return text;
}

const char *lp_checkpoint_keep_name(lp_checkpoint *c, const char *name, size_t bytes)
{
    const char *text = lp_checkpoint_keep_text(c, name, bytes);
    if (c->unusable_name == NULL && memchr(name, '\0', bytes) != NULL)
        c->unusable_name = text;
    return text;
}

lp_status lp_checkpoint_add_file(lp_checkpoint *c, const lp_checkpoint_file *file, lp_error *err)
{
    if (c->is_sealed)
        return lp_fail(err, LP_E_MISUSE, "a sealed checkpoint catalogue takes no more files");
    if (file->path == NULL || file->size_bytes < -1)
        return lp_fail(err, LP_E_ARGUMENT, "a checkpoint file needs a path and a size of at least -1");
    if (file->sha256 != NULL && strlen(file->sha256) != 64)
        return lp_fail_at(err, LP_E_CORRUPT, file->path, -1, "file '%s': its SHA-256 has not 64 digits", file->path);
    if (c->file_count >= INT32_MAX)
        return lp_fail(err, LP_E_LIMIT, "too many checkpoint files");
    if (!lp_grow(c->platform.alloc, (void **)&c->file, &c->file_capacity, c->file_count + 1, sizeof *c->file))
        return lp_fail_memory(err);
    lp_checkpoint_file copy = *file;
    copy.path = lp_arena_text(&c->arena, file->path, strlen(file->path));
    if (file->sha256 != NULL)
        copy.sha256 = lp_arena_text(&c->arena, file->sha256, 64);
    if (copy.path == NULL || (file->sha256 != NULL && copy.sha256 == NULL))
        return lp_fail_memory(err);
    c->file[c->file_count++] = copy;
    return LP_OK;
}

lp_status lp_checkpoint_add(lp_checkpoint *c, const lp_checkpoint_tensor *tensor, lp_error *err)
{
    lp_checkpoint_tensor copy = *tensor;
    size_t bad;
    if (tensor->name == NULL || tensor->ndim < 0 || (tensor->ndim > 0 && tensor->shape == NULL))
        return lp_fail(err, LP_E_ARGUMENT, "a tensor needs a name and a shape");
    const size_t name_bytes = strlen(tensor->name);
    if (!lp_utf8_is_valid(tensor->name, name_bytes, &bad) && memcmp(tensor->name + bad, "\xc0\x80", 2) == 0)
        return lp_fail_at(err, LP_E_CORRUPT, tensor->name, -1,
                          "tensor '%.*s...' has a NUL in its name: this checkpoint cannot be recorded",
                          bad < 200 ? (int)bad : 200, tensor->name);
    if (!lp_utf8_is_valid(tensor->name, name_bytes, &bad))
        return lp_fail_at(err, LP_E_CORRUPT, tensor->name, -1, "tensor name '%s' is not UTF-8", tensor->name);
    if (lp_dtype_bits(tensor->dtype) == 0)
        return lp_fail_at(err, LP_E_CORRUPT, tensor->name, -1, "tensor '%s': unknown dtype %d", tensor->name,
                          (int)tensor->dtype);
    for (int32_t d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] < 0)
            return lp_fail_at(err, LP_E_CORRUPT, tensor->name, -1, "tensor '%s': extent %lld is negative", tensor->name,
                              (long long)tensor->shape[d]);
    LP_TRY(
        lp_tensor_bytes(&copy.bytes, tensor->name, tensor->dtype, tensor->ndim, (const uint64_t *)tensor->shape, err));
    if (tensor->file < -1 || tensor->file >= c->file_count || tensor->file_off < -1)
        return lp_fail_at(err, LP_E_CORRUPT, tensor->name, -1, "tensor '%s': no file %d in this catalogue",
                          tensor->name, (int)tensor->file);
    if (tensor->file >= 0 && tensor->file_off >= 0 && c->file[tensor->file].size_bytes >= 0) {
        int64_t end;
        if (!lp_add(tensor->file_off, copy.bytes, &end) || end > c->file[tensor->file].size_bytes)
            return lp_fail_at(err, LP_E_CORRUPT, tensor->name, tensor->file_off, "tensor '%s' ends after its file '%s'",
                              tensor->name, c->file[tensor->file].path);
    }
    copy.name = lp_arena_text(&c->arena, tensor->name, name_bytes);
    copy.shape = lp_arena_copy(&c->arena, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
    if (copy.name == NULL || copy.shape == NULL)
        return lp_fail_memory(err);
    return lp_checkpoint_append(c, &copy, err);
}

/* ---- sealing ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const lp_checkpoint_tensor *)a)->name, ((const lp_checkpoint_tensor *)b)->name);
}

/* Names hold no NUL, so strcmp orders them as memcmp over their bytes does. */
static bool names_rise(const lp_checkpoint *c)
{
    for (int64_t i = 1; i < c->count; i++)
        if (strcmp(c->tensor[i - 1].name, c->tensor[i].name) >= 0)
            return false;
    return true;
}

static lp_status sort_by_name(lp_checkpoint *c, lp_error *err)
{
    if (names_rise(c))
        return LP_OK; /* the catalogue of a trace */
    if (c->count > 1)
        qsort(c->tensor, (size_t)c->count, sizeof *c->tensor, compare_names);
    for (int64_t i = 1; i < c->count; i++)
        if (strcmp(c->tensor[i - 1].name, c->tensor[i].name) == 0)
            return lp_fail_at(err, LP_E_CORRUPT, c->tensor[i].name, -1, "tensor '%s' appears twice", c->tensor[i].name);
    return LP_OK;
}

lp_status lp_checkpoint_seal_sorted(lp_checkpoint *c, lp_error *err)
{
    if (c->is_sealed)
        return lp_fail(err, LP_E_MISUSE, "the checkpoint catalogue is sealed already");
    c->is_sealed = true;
    return LP_OK;
}

lp_status lp_checkpoint_seal(lp_checkpoint *c, lp_error *err)
{
    if (!c->is_sealed)
        LP_TRY(sort_by_name(c, err));
    return lp_checkpoint_seal_sorted(c, err);
}

/* ---- looking names up ---- */

/* NULL when out of memory. */
static lp_name_table *build_table(const lp_checkpoint *c)
{
    int64_t size = 16;
    while (size < c->count * 2)
        size *= 2;
    lp_name_table *t = lp_allocate_zero(c->platform.alloc, sizeof *t + (size_t)size * sizeof *t->slot);
    if (t == NULL)
        return NULL;
    t->slot_count = size;
    const uint64_t mask = (uint64_t)size - 1;
    for (int64_t n = 0; n < c->count; n++) {
        const uint64_t hash = lp_table_hash(c->tensor[n].name, strlen(c->tensor[n].name));
        uint64_t i = hash & mask;
        while (t->slot[i].index != 0)
            i = (i + 1) & mask;
        t->slot[i] = (lp_name_slot){.index = (uint32_t)n + 1, .tag = (uint32_t)(hash >> 32)};
    }
    return t;
}

/* Built by the first lookup: traces are opened far more often than asked for a name. Threads may race to build it; the
 * first one's is kept. */
static const lp_name_table *table_of(const lp_checkpoint *c)
{
    lp_name_table *kept = atomic_load(&c->lookup->table);
    if (kept != NULL)
        return kept;
    lp_name_table *mine = build_table(c);
    if (mine == NULL || atomic_compare_exchange_strong(&c->lookup->table, &kept, mine))
        return mine;
    lp_release(c->platform.alloc, mine);
    return kept;
}

/* Without a table, for want of memory. */
static int64_t find_slowly(const lp_checkpoint *c, const char *name)
{
    int64_t lo = 0, hi = c->count;
    while (lo < hi) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (strcmp(c->tensor[middle].name, name) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < c->count && strcmp(c->tensor[lo].name, name) == 0 ? lo : -1;
}

int64_t lp_checkpoint_find(const lp_checkpoint *c, const char *name)
{
    if (!c->is_sealed)
        return -1;
    const lp_name_table *t = table_of(c);
    if (t == NULL)
        return find_slowly(c, name);
    const uint64_t hash = lp_table_hash(name, strlen(name)), mask = (uint64_t)t->slot_count - 1;
    const uint32_t tag = (uint32_t)(hash >> 32);
    for (uint64_t i = hash & mask; t->slot[i].index != 0; i = (i + 1) & mask)
        if (t->slot[i].tag == tag && strcmp(c->tensor[t->slot[i].index - 1].name, name) == 0)
            return (int64_t)t->slot[i].index - 1;
    return -1;
}

/* ---- reading ---- */

int64_t lp_checkpoint_count(const lp_checkpoint *c)
{
    return c->count;
}

const lp_checkpoint_tensor *lp_checkpoint_at(const lp_checkpoint *c, int64_t index)
{
    return index >= 0 && index < c->count ? &c->tensor[index] : NULL;
}

int32_t lp_checkpoint_file_count(const lp_checkpoint *c)
{
    return (int32_t)c->file_count;
}

const lp_checkpoint_file *lp_checkpoint_file_at(const lp_checkpoint *c, int32_t index)
{
    return index >= 0 && index < c->file_count ? &c->file[index] : NULL;
}

const char *lp_checkpoint_folder(const lp_checkpoint *c)
{
    return c->folder;
}

int64_t lp_checkpoint_bytes(const lp_checkpoint *c)
{
    return c->bytes;
}

const char *lp_checkpoint_unusable_name(const lp_checkpoint *c)
{
    return c->unusable_name;
}

int64_t lp_checkpoint_metadata_count(const lp_checkpoint *c)
{
    return c->metadata_count;
}

const char *lp_checkpoint_metadata_at(const lp_checkpoint *c, int64_t index, const char **value)
{
    if (index < 0 || index >= c->metadata_count)
        return NULL;
    *value = c->metadata[index].value;
    return c->metadata[index].key;
}
