/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a rank: a safetensors file that any reader opens. A tensor's dimensions are in physical order, so its
 * payload is its memory without the gaps; __metadata__ says for each name how the engine sees it:
 *
 *   "loadplan"      {"format": 1, "rank": 3, "plan_digest": "..."}
 *   "tensor:NAME"   {"shape": [...], "stride": [...], "order": [...], "layout": "...", "layout_version": 1}
 *                   with "alias_of" and "offset" (bytes from the owner's first one) where the bytes are another's
 */
#include "replayer/rank_form.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

void lp_rank_file_name(char out[32], int32_t rank)
{
    snprintf(out, 32, "rank-%05d.safetensors", rank);
}

/* ---- header ---- */

/* What jansson makes is NULL when memory is out, and NULL is taken by none of its calls: *ok stays true when all went
 * well. */
static void put(json_t *object, const char *key, json_t *value, bool *ok)
{
    *ok = json_object_set_new(object, key, value) == 0 && *ok;
}

static json_t *whole(json_t *object, bool ok)
{
    if (!ok)
        json_decref(object);
    return ok ? object : NULL;
}

static json_t *int_list(int32_t count, const int64_t *value)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int32_t i = 0; i < count; i++)
        ok = json_array_append_new(list, json_integer(value[i])) == 0 && ok;
    return whole(list, ok);
}

/* NULL when memory is out; the caller frees it. The text is measured first: where json_dumps finds no memory to grow,
 * it may leave out a key and not say so (jansson 2.14). */
static char *as_text(const json_t *value, size_t *bytes)
{
    *bytes = json_dumpb(value, NULL, 0, JSON_COMPACT);
    char *text = *bytes == 0 ? NULL : malloc(*bytes + 1);
    if (text == NULL)
        return NULL;
    if (json_dumpb(value, text, *bytes, JSON_COMPACT) != *bytes) {
        free(text);
        return NULL;
    }
    text[*bytes] = '\0';
    return text;
}

/* A JSON text as a JSON string: values of __metadata__ are strings. */
static json_t *as_string(json_t *value)
{
    size_t bytes;
    char *text = as_text(value, &bytes);
    json_t *string = text == NULL ? NULL : json_string(text);
    free(text);
    json_decref(value);
    return string;
}

static json_t *describe(const lp_plan *plan, const lp_rank_row *row)
{
    const lp_destination *dest = &plan->rows->dest[row->dest], *owner = &plan->rows->dest[row->owner];
    int64_t order[LP_FORM_DIMS];
    json_t *entry = json_object();
    bool ok = entry != NULL;
    for (int32_t i = 0; i < row->ndim; i++)
        order[i] = row->order[i];
    if (row->owner != row->dest) {
        put(entry, "alias_of", json_string(owner->name), &ok);
        put(entry, "offset", json_integer(dest->offset - owner->offset), &ok);
        put(entry, "dtype", json_string(lp_dtype_name(dest->dtype)), &ok);
    }
    put(entry, "shape", int_list(dest->ndim, dest->shape), &ok);
    put(entry, "stride", int_list(dest->ndim, dest->stride), &ok);
    put(entry, "order", int_list(row->ndim, order), &ok);
    if (dest->layout[0] != '\0') {
        put(entry, "layout", json_string(dest->layout), &ok);
        put(entry, "layout_version", json_integer(dest->layout_version), &ok);
    }
    return as_string(whole(entry, ok));
}

static json_t *make_metadata(const lp_plan *plan, const lp_rank_row *row, int64_t count)
{
    char digest[65];
    json_t *about = json_object(), *metadata = json_object();
    bool ok = about != NULL && metadata != NULL;
    lp_format_hex(digest, plan->rows->digest, 32);
    put(about, "format", json_integer(1), &ok);
    put(about, "rank", json_integer(lp_scope_rank(&plan->rows->scope)), &ok);
    put(about, "plan_digest", json_string(digest), &ok);
    put(metadata, "loadplan", as_string(about), &ok);
    for (int64_t i = 0; i < count && ok; i++) {
        lp_text key;
        lp_text_init(&key, plan->platform.alloc);
        lp_text_format(&key, "tensor:%s", plan->rows->dest[row[i].dest].name);
        ok = !key.failed;
        if (ok)
            put(metadata, key.data, describe(plan, &row[i]), &ok);
        lp_text_free(&key);
    }
    return whole(metadata, ok);
}

/* Widest dtype first, then by name, as the reference writer does: every tensor is then aligned to its element. */
static int by_width(const void *a, const void *b)
{
    const lp_rank_row *x = *(const lp_rank_row *const *)a, *y = *(const lp_rank_row *const *)b;
    if (x->bits != y->bits)
        return x->bits > y->bits ? -1 : 1;
    return x->dest < y->dest ? -1 : x->dest > y->dest;
}

/* The tensors that stand in the file, in order, with their offsets. The caller releases *out. */
static lp_status place(const lp_plan *plan, lp_rank_row *row, int64_t count, lp_rank_row ***out, int64_t *placed,
                       lp_error *err)
{
    int64_t off = 0;
    lp_rank_row **list = lp_allocate(plan->platform.alloc, (size_t)(count + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    *placed = 0;
    for (int64_t i = 0; i < count; i++)
        if (row[i].owner == row[i].dest)
            list[(*placed)++] = &row[i];
    if (*placed > 0)
        qsort((void *)list, (size_t)*placed, sizeof *list, by_width);
    for (int64_t i = 0; i < *placed; i++) {
        list[i]->off = off;
        off += list[i]->form.bytes;
    }
    *out = list;
    return LP_OK;
}

/* The header as text, padded so that the payload starts at a multiple of eight. NULL when out of memory. */
static char *make_header(const lp_plan *plan, const lp_rank_row *row, int64_t count, lp_rank_row *const *list,
                         int64_t placed, size_t *bytes)
{
    json_t *header = json_object(), *metadata = make_metadata(plan, row, count);
    bool ok = true;
    put(header, "__metadata__", metadata, &ok);
    for (int64_t i = 0; ok && i < placed; i++) {
        const lp_destination *dest = &plan->rows->dest[list[i]->dest];
        const int64_t range[2] = {list[i]->off, list[i]->off + list[i]->form.bytes};
        json_t *entry = json_object();
        put(entry, "dtype", json_string(lp_dtype_name(dest->dtype)), &ok);
        put(entry, "shape", int_list(list[i]->ndim, list[i]->shape), &ok);
        put(entry, "data_offsets", int_list(2, range), &ok);
        put(header, dest->name, entry, &ok);
    }
    size_t used;
    char *text = ok ? as_text(header, &used) : NULL;
    json_decref(header);
    if (text == NULL)
        return NULL;
    *bytes = (used + 7) / 8 * 8;
    char *padded = realloc(text, *bytes + 1);
    if (padded == NULL) {
        free(text);
        return NULL;
    }
    memset(padded + used, ' ', *bytes - used);
    padded[*bytes] = '\0';
    return padded;
}

/* ---- writing ---- */

static lp_status write_piece(void *context, const void *data, int64_t bytes, lp_error *err)
{
    return lp_outfile_write(context, data, bytes, err);
}

static lp_status write_payload(const lp_plan *plan, lp_rank_row *const *list, int64_t placed, lp_outfile *file,
                               lp_error *err)
{
    for (int64_t i = 0; i < placed; i++)
        LP_TRY(
            lp_form_walk(&list[i]->form, plan->address[list[i]->dest], plan->platform.alloc, write_piece, file, err));
    return LP_OK;
}

lp_status lp_rank_file_write(const lp_plan *plan, const char *path, bool overwrite,
                             bool (*select)(void *context, const lp_destination *dest), void *context,
                             int64_t *bytes_written, lp_error *err)
{
    lp_status status;
    lp_rank_row *row = NULL, **list = NULL;
    lp_outfile file = {.fd = -1};
    char *header = NULL;
    size_t header_bytes = 0;
    int64_t count, placed;
    uint8_t length[8];
    if (plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "a plan of meta tensors has no values");
    if (plan->side != NULL)
        return lp_fail(err, LP_E_UNSUPPORTED, "the plan's tensors lie on a device: rank files are made in host memory");
    LP_TRY(lp_rank_rows(plan, select, context, &row, &count, err));
    LP_TRY_GOTO(place(plan, row, count, &list, &placed, err), release);
    header = make_header(plan, row, count, list, placed, &header_bytes);
    if (header == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header_bytes >> (8 * i));
    LP_TRY_GOTO(lp_outfile_open(&file, &plan->platform, path, overwrite, err), release);
    LP_TRY_GOTO(lp_outfile_write(&file, length, sizeof length, err), abandon);
    LP_TRY_GOTO(lp_outfile_write(&file, header, (int64_t)header_bytes, err), abandon);
    LP_TRY_GOTO(write_payload(plan, list, placed, &file, err), abandon);
    if (bytes_written != NULL)
        *bytes_written = file.off;
    status = lp_outfile_commit(&file, err);
    goto release;
abandon:
    lp_outfile_abandon(&file);
release:
    free(header);
    lp_release(plan->platform.alloc, (void *)list);
    lp_release(plan->platform.alloc, row);
    return status;
}

/* ---- comparing ---- */

typedef struct comparison {
    const lp_plan *plan;
    int fd;
    const char *path;
    int64_t off;     /* in the file */
    int64_t done;    /* of the tensor */
    int64_t differs; /* first differing byte, -1 */
    uint8_t *buffer;
    int64_t buffer_bytes;
} comparison;

static lp_status compare_piece(void *context, const void *data, int64_t bytes, lp_error *err)
{
    comparison *c = context;
    const uint8_t *mine = data;
    for (int64_t at = 0; at < bytes && c->differs < 0;) {
        const int64_t part = bytes - at < c->buffer_bytes ? bytes - at : c->buffer_bytes;
        LP_TRY(lp_read_exact(c->plan->platform.io, c->fd, c->path, c->buffer, part, c->off + c->done + at, err));
        if (memcmp(c->buffer, mine + at, (size_t)part) != 0)
            for (int64_t i = 0; c->differs < 0; i++)
                if (c->buffer[i] != mine[at + i])
                    c->differs = c->done + at + i;
        at += part;
    }
    c->done += bytes;
    return LP_OK;
}

static lp_status compare_row(comparison *c, const lp_rank_row *row, const lp_checkpoint_tensor *tensor,
                             void (*differs)(void *context, const lp_destination *dest, const char *how, int64_t byte),
                             void *context, lp_error *err)
{
    const lp_destination *dest = &c->plan->rows->dest[row->dest];
    if (tensor == NULL) {
        differs(context, dest, "is not in the file", -1);
        return LP_OK;
    }
    if (tensor->dtype != dest->dtype || tensor->ndim != row->ndim ||
        (row->ndim > 0 && memcmp(tensor->shape, row->shape, (size_t)row->ndim * sizeof *row->shape) != 0)) {
        differs(context, dest, "has another dtype or shape in the file", -1);
        return LP_OK;
    }
    c->off = tensor->file_off;
    c->done = 0;
    c->differs = -1;
    LP_TRY(lp_form_walk(&row->form, c->plan->address[row->dest], c->plan->platform.alloc, compare_piece, c, err));
    if (c->differs >= 0)
        differs(context, dest, "has other bytes in the file", c->differs);
    return LP_OK;
}

lp_status lp_rank_file_compare(const lp_plan *plan, const char *path,
                               void (*differs)(void *context, const lp_destination *dest, const char *how,
                                               int64_t byte),
                               void *context, lp_error *err)
{
    lp_status status;
    lp_checkpoint *file = NULL;
    lp_rank_row *row = NULL;
    int64_t count = 0;
    comparison c = {.plan = plan, .path = path, .fd = -1, .buffer_bytes = 1 << 18};
    const lp_platform *p = &plan->platform;
    if (plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "a plan of meta tensors has no values");
    if (plan->side != NULL)
        return lp_fail(err, LP_E_UNSUPPORTED, "the plan's tensors lie on a device: rank files are made in host memory");
    LP_TRY(lp_checkpoint_open_with(&file, path, p, err));
    LP_TRY_GOTO(lp_rank_rows(plan, NULL, NULL, &row, &count, err), release);
    c.buffer = lp_allocate(p->alloc, (size_t)c.buffer_bytes);
    if (c.buffer == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    c.fd = p->io->open(p->io->context, path, O_RDONLY, 0);
    if (c.fd < 0) {
        status = lp_fail_errno(err, c.fd, "open", path);
        goto release;
    }
    for (int64_t i = 0; status == LP_OK && i < count; i++) {
        const int64_t index = lp_checkpoint_find(file, plan->rows->dest[row[i].dest].name);
        if (row[i].owner == row[i].dest)
            status = compare_row(&c, &row[i], index < 0 ? NULL : lp_checkpoint_at(file, index), differs, context, err);
    }
    p->io->close(p->io->context, c.fd);
release:
    lp_release(p->alloc, c.buffer);
    lp_release(p->alloc, row);
    lp_checkpoint_close(file);
    return status;
}
