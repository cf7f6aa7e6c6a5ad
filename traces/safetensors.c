/* SPDX-License-Identifier: Apache-2.0 */
/* Reading safetensors headers: see safetensors.h. */
#include "traces/safetensors.h"
#include "traces/checkpoint_catalogue.h"
#include "traces/json_pull.h"
#include "traces/mistaken_file.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct reader {
    lp_json json;
    lp_safetensors *out;
    uint64_t *dims; /* of the tensor at hand */
    int64_t dims_capacity;
    int64_t file_bytes;
} reader;

/* ---- JSON ---- */

static lp_status read_metadata(reader *r)
{
    lp_json *j = &r->json;
    lp_safetensors *s = r->out;
    const char *text;
    size_t bytes;
    bool more;
    if (lp_json_peek(j) == 'n')
        return lp_json_null(j);
    LP_TRY(lp_json_enter(j, '{'));
    for (bool first = true;; first = false) {
        LP_TRY(lp_json_next(j, '}', first, &more));
        if (!more)
            return LP_OK;
        LP_TRY(lp_json_key(j, &text, &bytes));
        const int64_t key = lp_strings_add(&s->metadata_keys, text, bytes);
        if (key < 0 ||
            !lp_grow(j->alloc, (void **)&s->metadata_value, &s->metadata_capacity, key + 1, sizeof *s->metadata_value))
            return lp_fail_memory(j->err);
        LP_TRY(lp_json_string(j, &text, &bytes));
        const char *value = lp_arena_text(&s->arena, text, bytes);
        if (value == NULL)
            return lp_fail_memory(j->err);
        s->metadata_value[key] = (lp_bytes){value, bytes};
    }
}

/* A name, or what the reference reader takes for one too: {"F32": null}. */
static lp_status read_dtype(reader *r, lp_dtype *dtype)
{
    lp_json *j = &r->json;
    const char *text;
    size_t bytes;
    bool more = false;
    const bool is_tagged = lp_json_peek(j) == '{';
    const int64_t start = j->off;
    if (is_tagged) {
        LP_TRY(lp_json_enter(j, '{'));
        LP_TRY(lp_json_next(j, '}', true, &more));
        if (!more)
            return lp_json_fail(j, start, "dtype is an empty object");
        LP_TRY(lp_json_key(j, &text, &bytes));
    } else {
        LP_TRY(lp_json_string(j, &text, &bytes));
    }
    *dtype = lp_dtype_parse(text, bytes);
    if (*dtype == LP_DTYPE_NONE) {
        char shown[160];
        return lp_json_fail(j, start, "unknown dtype '%s'", lp_show_name(shown, text, bytes));
    }
    if (!is_tagged)
        return LP_OK;
    LP_TRY(lp_json_null(j));
    LP_TRY(lp_json_next(j, '}', false, &more));
    return more ? lp_json_fail(j, start, "dtype is not a name") : LP_OK;
}

static lp_status read_shape(reader *r, int64_t *ndim)
{
    lp_json *j = &r->json;
    bool more;
    *ndim = 0;
    LP_TRY(lp_json_enter(j, '['));
    for (bool first = true;; first = false) {
        LP_TRY(lp_json_next(j, ']', first, &more));
        if (!more)
            return LP_OK;
        if (!lp_grow(j->alloc, (void **)&r->dims, &r->dims_capacity, *ndim + 1, sizeof *r->dims))
            return lp_fail_memory(j->err);
        LP_TRY(lp_json_u64(j, &r->dims[*ndim]));
        ++*ndim;
    }
}

static lp_status read_offsets(reader *r, uint64_t *begin, uint64_t *end)
{
    lp_json *j = &r->json;
    bool more;
    LP_TRY(lp_json_enter(j, '['));
    const int64_t start = j->off - 1;
    LP_TRY(lp_json_next(j, ']', true, &more));
    if (more) {
        LP_TRY(lp_json_u64(j, begin));
        LP_TRY(lp_json_next(j, ']', false, &more));
    }
    if (more) {
        LP_TRY(lp_json_u64(j, end));
        LP_TRY(lp_json_next(j, ']', false, &more));
        if (!more)
            return LP_OK;
    }
    return lp_json_fail(j, start, "data_offsets needs two numbers");
}

enum { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, FIELD_COUNT };
static const char *const field_name[FIELD_COUNT] = {"dtype", "shape", "data_offsets"};

static int find_field(const char *text, size_t bytes)
{
    int f = 0;
    while (f < FIELD_COUNT && (strlen(field_name[f]) != bytes || memcmp(field_name[f], text, bytes) != 0))
        f++;
    return f;
}

static lp_status read_fields(reader *r, lp_safetensors_entry *e)
{
    lp_json *j = &r->json;
    bool seen[FIELD_COUNT] = {false}, more;
    const char *text;
    size_t bytes;
    int64_t ndim = 0;
    const char c = lp_json_peek(j);
    const int64_t start = j->off;
    if (c == '[')
        return lp_json_fail(j, start, "the entry is an array, not an object");
    LP_TRY(lp_json_enter(j, '{'));
    for (bool first = true;; first = false) {
        LP_TRY(lp_json_next(j, '}', first, &more));
        if (!more)
            break;
        const int64_t key_off = j->off;
        LP_TRY(lp_json_key(j, &text, &bytes));
        const int field = find_field(text, bytes);
        if (field == FIELD_COUNT) {
            LP_TRY(lp_json_skip(j));
            continue;
        }
        if (seen[field])
            return lp_json_fail(j, key_off, "'%s' appears twice", field_name[field]);
        seen[field] = true;
        if (field == FIELD_DTYPE)
            LP_TRY(read_dtype(r, &e->dtype));
        else if (field == FIELD_SHAPE)
            LP_TRY(read_shape(r, &ndim));
        else
            LP_TRY(read_offsets(r, &e->begin, &e->end));
    }
    for (int f = 0; f < FIELD_COUNT; f++)
        if (!seen[f])
            return lp_json_fail(j, start, "'%s' is missing", field_name[f]);
    e->ndim = (int32_t)ndim; /* the cap on the header keeps it below 10^8 */
    e->shape = lp_arena_copy(&r->out->arena, r->dims, (size_t)ndim * sizeof *r->dims);
    return e->shape == NULL ? lp_fail_memory(j->err) : LP_OK;
}

static lp_status read_entry(reader *r, const char *name, size_t name_bytes, int64_t key_off)
{
    lp_json *j = &r->json;
    lp_safetensors *s = r->out;
    const int64_t number = lp_strings_add(&s->names, name, name_bytes);
    if (number < 0 || !lp_grow(j->alloc, (void **)&s->entry, &s->capacity, s->count + 1, sizeof *s->entry))
        return lp_fail_memory(j->err);
    j->tensor = s->names.text[number];
    j->tensor_bytes = name_bytes;
    if (number < s->count)
        return lp_json_fail(j, key_off, "the name appears twice, first at byte %lld",
                            (long long)s->entry[number].header_off);
    lp_safetensors_entry *e = &s->entry[s->count++];
    *e = (lp_safetensors_entry){.name = j->tensor, .name_bytes = name_bytes, .header_off = j->base + key_off};
    LP_TRY(read_fields(r, e));
    j->tensor = NULL;
    return LP_OK;
}

static lp_status read_header(reader *r)
{
    static const char metadata[] = "__metadata__";
    lp_json *j = &r->json;
    const char *text;
    size_t bytes;
    bool has_metadata = false, more;
    LP_TRY(lp_json_enter(j, '{'));
    for (bool first = true;; first = false) {
        LP_TRY(lp_json_next(j, '}', first, &more));
        if (!more)
            return lp_json_end(j);
        const int64_t key_off = j->off;
        LP_TRY(lp_json_key(j, &text, &bytes));
        if (bytes != sizeof metadata - 1 || memcmp(text, metadata, bytes) != 0) {
            LP_TRY(read_entry(r, text, bytes, key_off));
            continue;
        }
        if (has_metadata)
            return lp_json_fail(j, key_off, "'__metadata__' appears twice");
        has_metadata = true;
        LP_TRY(read_metadata(r));
    }
}

/* ---- offsets ---- */

static int compare_entries(const void *a, const void *b)
{
    const lp_safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->header_off < y->header_off ? -1 : x->header_off > y->header_off;
}

static lp_status check_entry(reader *r, const lp_safetensors_entry *e, uint64_t expected_begin)
{
    lp_json *j = &r->json;
    lp_error inner;
    int64_t bytes;
    j->tensor = e->name;
    j->tensor_bytes = e->name_bytes;
    const int64_t off = e->header_off - j->base;
    if (e->begin != expected_begin)
        return lp_json_fail(j, off, "its data begin at %" PRIu64 " where the tensors before end at %" PRIu64 " (%s)",
                            e->begin, expected_begin, e->begin < expected_begin ? "overlap" : "hole");
    if (e->end < e->begin)
        return lp_json_fail(j, off, "its data end at %" PRIu64 ", before they begin at %" PRIu64, e->end, e->begin);
    /* The reason is what stands behind the name in the text of the inner error. */
    if (lp_tensor_bytes(&bytes, "", e->dtype, e->ndim, e->shape, &inner) != LP_OK)
        return lp_json_fail(j, off, "%s", inner.text + strlen("tensor '': "));
    if (e->end - e->begin != (uint64_t)bytes)
        return lp_json_fail(j, off, "data_offsets give %" PRIu64 " bytes, dtype and shape %" PRId64, e->end - e->begin,
                            bytes);
    return LP_OK;
}

static lp_status check_end(reader *r, uint64_t data_end)
{
    const lp_safetensors *s = r->out;
    const uint64_t present = (uint64_t)(r->file_bytes - s->data_off);
    lp_error *err = r->json.err;
    const char *path = r->json.path;
    char name[160];
    if (data_end < present)
        return lp_fail_at(err, LP_E_CORRUPT, path, s->data_off + (int64_t)data_end,
                          "'%s' has %" PRIu64 " byte%s after the last tensor, from byte %" PRId64 " on", path,
                          present - data_end, present - data_end == 1 ? "" : "s", s->data_off + (int64_t)data_end);
    for (int64_t i = 0; i < s->count; i++)
        if (s->entry[i].end > present)
            return lp_fail_at(err, LP_E_CORRUPT, path, r->file_bytes,
                              "'%s' ends at byte %" PRId64 ", %" PRIu64 " byte%s too early: tensor '%s' is cut off",
                              path, r->file_bytes, data_end - present, data_end - present == 1 ? "" : "s",
                              lp_show_name(name, s->entry[i].name, s->entry[i].name_bytes));
    return LP_OK;
}

static lp_status check_entries(reader *r)
{
    lp_safetensors *s = r->out;
    if (s->count > 1)
        qsort(s->entry, (size_t)s->count, sizeof *s->entry, compare_entries);
    uint64_t end = 0;
    for (int64_t i = 0; i < s->count; i++) {
        LP_TRY(check_entry(r, &s->entry[i], end));
        end = s->entry[i].end;
    }
    return check_end(r, end);
}

lp_status lp_safetensors_parse(lp_safetensors *out, const char *header, int64_t bytes, int64_t file_bytes,
                               const char *path, const lp_alloc *alloc, lp_error *err)
{
    lp_status status;
    size_t bad;
    reader r = {.out = out, .file_bytes = file_bytes};
    *out = (lp_safetensors){.data_off = LP_SAFETENSORS_PREFIX_BYTES + bytes};
    lp_strings_init(&out->names, alloc);
    lp_strings_init(&out->metadata_keys, alloc);
    lp_arena_init(&out->arena, alloc);
    lp_json_init(&r.json, header, bytes, alloc, err);
    r.json.what = "safetensors header";
    r.json.path = path;
    r.json.base = LP_SAFETENSORS_PREFIX_BYTES;
    if (!lp_utf8_is_valid(header, (size_t)bytes, &bad))
        status = lp_json_fail(&r.json, (int64_t)bad, "not UTF-8");
    else
        status = read_header(&r);
    if (status == LP_OK)
        status = check_entries(&r);
    lp_json_free(&r.json);
    lp_release(alloc, r.dims);
    if (status != LP_OK)
        lp_safetensors_free(out);
    return status;
}

void lp_safetensors_free(lp_safetensors *s)
{
    const lp_alloc *alloc = s->names.alloc;
    lp_strings_free(&s->names);
    lp_strings_free(&s->metadata_keys);
    lp_arena_free(&s->arena);
    lp_release(alloc, s->metadata_value);
    lp_release(alloc, s->entry);
    s->metadata_value = NULL;
    s->entry = NULL;
    s->count = s->capacity = s->metadata_capacity = 0;
}

/* ---- files ---- */

/* The file is not what it was taken for: adds what it looks like. Bytes that cannot be read hint at nothing. */
static lp_status mistaken(const lp_platform *p, int fd, int64_t file_bytes, lp_status status, lp_error *err)
{
    char start[LP_MISTAKEN_BYTES];
    const size_t bytes = file_bytes < LP_MISTAKEN_BYTES ? (size_t)file_bytes : sizeof start;
    if (lp_read_exact(p->io, fd, "", start, (int64_t)bytes, 0, NULL) == LP_OK)
        lp_hint_mistaken(err, start, bytes);
    return status;
}

lp_status lp_safetensors_read(lp_safetensors *out, const lp_platform *platform, int fd, const char *path,
                              int64_t file_bytes, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    unsigned char prefix[LP_SAFETENSORS_PREFIX_BYTES];
    if (file_bytes < LP_SAFETENSORS_PREFIX_BYTES)
        return mistaken(&p, fd, file_bytes,
                        lp_fail_at(err, LP_E_FORMAT, path, file_bytes,
                                   "'%s' is not a safetensors file: it has %" PRId64 " bytes, fewer than 8", path,
                                   file_bytes),
                        err);
    LP_TRY(lp_read_exact(p.io, fd, path, prefix, sizeof prefix, 0, err));
    uint64_t header_bytes = 0;
    for (int i = LP_SAFETENSORS_PREFIX_BYTES - 1; i >= 0; i--)
        header_bytes = header_bytes << 8 | prefix[i];
    if (header_bytes > LP_SAFETENSORS_HEADER_MAX)
        return mistaken(&p, fd, file_bytes,
                        lp_fail_at(err, LP_E_FORMAT, path, 0,
                                   "'%s' is not a safetensors file: its first 8 bytes give a header of %" PRIu64
                                   " bytes, more than %d",
                                   path, header_bytes, LP_SAFETENSORS_HEADER_MAX),
                        err);
    if ((int64_t)header_bytes > file_bytes - LP_SAFETENSORS_PREFIX_BYTES)
        return mistaken(&p, fd, file_bytes,
                        lp_fail_at(err, LP_E_CORRUPT, path, file_bytes,
                                   "'%s' ends at byte %" PRId64 ", inside its header of %" PRIu64 " bytes", path,
                                   file_bytes, header_bytes),
                        err);
    char *header = lp_allocate(p.alloc, (size_t)header_bytes);
    if (header == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_read_exact(p.io, fd, path, header, (int64_t)header_bytes, LP_SAFETENSORS_PREFIX_BYTES, err);
    if (status == LP_OK)
        status = lp_safetensors_parse(out, header, (int64_t)header_bytes, file_bytes, path, p.alloc, err);
    lp_release(p.alloc, header);
    return status != LP_OK && header_bytes == 0 ? mistaken(&p, fd, file_bytes, status, err) : status;
}
