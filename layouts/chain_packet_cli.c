/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan layout CHAIN --apply` with a file of several tensors: a chain whose bars cut a dimension, one tensor for
 * each part, in the order of their names. They are joined along that dimension, and go into one tensor of bytes: codes
 * and scales that a kernel reads as packets. The metadata says what it was made of, so that the way back is a file of
 * the same tensors.
 */
#include "layouts/layout_cli.h"

static const char made_of_key[] = "loadplan.chain_parts";

/* What one part is a tensor of. */
typedef struct part_tensor {
    const char *name;
    lp_dtype dtype;
    int64_t ndim, shape[LP_CHAIN_DIMS];
} part_tensor;

typedef struct packet {
    int32_t parts;
    part_tensor part[LP_CHAIN_PARTS];
    int64_t shape[LP_CHAIN_DIMS];      /* of all joined, in units */
    int64_t rows;                      /* what the dimensions before the split one make */
    int64_t row_bytes[LP_CHAIN_PARTS]; /* of a part in each of them */
} packet;

/* ---- shapes ---- */

/* Takes a tensor as the next part: its dimensions but the split one are those of the parts before it. */
static lp_status add_part(packet *p, const lp_chain_request *request, const part_tensor *t, lp_error *err)
{
    const lp_chain *const c = &request->chain;
    const int64_t bits = lp_dtype_bits(t->dtype), ratio = bits / request->unit_bits;
    int64_t inside = request->unit_bits, outside = 1;
    if (bits % request->unit_bits != 0)
        return lp_fail(err, LP_E_MISMATCH, "tensor '%s': the chain moves units of %d bits, %s has %d", t->name,
                       request->unit_bits, lp_dtype_name(t->dtype), (int)bits);
    if (t->ndim != c->ndim)
        return lp_fail(err, LP_E_MISMATCH, "tensor '%s' has %d dimensions, the chain takes %d", t->name, (int)t->ndim,
                       (int)c->ndim);
    for (int32_t d = 0; d < c->ndim; d++) {
        int64_t size = t->shape[d];
        if (d == c->ndim - 1 && !lp_mul(size, ratio, &size))
            return lp_fail(err, LP_E_LIMIT, "tensor '%s' is too large", t->name);
        if (d != c->split_dim && p->parts > 0 && p->shape[d] != size)
            return lp_fail(err, LP_E_MISMATCH, "tensor '%s' has %lld units in dimension %d, '%s' has %lld", t->name,
                           (long long)size, (int)d, p->part[0].name, (long long)p->shape[d]);
        if (!lp_mul(d < c->split_dim ? outside : inside, size, d < c->split_dim ? &outside : &inside))
            return lp_fail(err, LP_E_LIMIT, "tensor '%s' is too large", t->name);
        const int64_t before = d == c->split_dim ? p->shape[d] : 0;
        if (!lp_add(before, size, &p->shape[d]))
            return lp_fail(err, LP_E_LIMIT, "tensor '%s' is too large", t->name);
    }
    if (inside % 8 != 0)
        return lp_fail(err, LP_E_MISMATCH, "tensor '%s' has rows of %lld bits: no whole bytes", t->name,
                       (long long)inside);
    p->rows = outside;
    p->row_bytes[p->parts] = inside / 8;
    p->part[p->parts++] = *t;
    return LP_OK;
}

/* The chain at the sizes of the joined tensors; each has the size of its part. */
static lp_status resolve_packet(lp_chain_form *form, const packet *p, const lp_chain_request *request, lp_error *err)
{
    const lp_chain *const c = &request->chain;
    int64_t begin = 0;
    if (lp_chain_resolve(form, c, p->shape, request->pads, err) != LP_OK) {
        if (err != NULL)
            err->code = LP_E_MISMATCH; /* the sizes are the file's */
        return LP_E_MISMATCH;
    }
    for (int32_t i = 0; i < p->parts; i++) {
        const int64_t ratio = c->split_dim == c->ndim - 1 ? lp_dtype_bits(p->part[i].dtype) / request->unit_bits : 1;
        const int64_t has = p->part[i].shape[c->split_dim] * ratio, wanted = form->first[i + 1] - form->first[i];
        if (form->first[i] != begin || has != wanted)
            return lp_fail(err, LP_E_MISMATCH, "tensor '%s' has %lld units in dimension %d, its part of the chain %lld",
                           p->part[i].name, (long long)has, (int)c->split_dim, (long long)wanted);
        begin += has;
    }
    return LP_OK;
}

/* Copies a part's rows between its own bytes and those of all parts joined. */
static void move_rows(const packet *p, int32_t part, unsigned char *joined, unsigned char *own, bool join)
{
    int64_t before = 0, all = 0;
    for (int32_t i = 0; i < p->parts; i++) {
        before += i < part ? p->row_bytes[i] : 0;
        all += p->row_bytes[i];
    }
    for (int64_t row = 0; row < p->rows; row++) {
        unsigned char *const a = joined + row * all + before, *const b = own + row * p->row_bytes[part];
        memcpy(join ? a : b, join ? b : a, (size_t)p->row_bytes[part]);
    }
}

/* ---- forward ---- */

static json_t *describe(const packet *p, const lp_chain_request *request)
{
    char text[LP_CHAIN_TEXT_BYTES], shape[256], number[16];
    json_t *const parts = json_array();
    for (int32_t i = 0; i < p->parts; i++)
        json_array_append_new(parts, json_pack("{s:s, s:s, s:o}", "name", p->part[i].name, "dtype",
                                               lp_dtype_name(p->part[i].dtype), "shape",
                                               lp_layout_integers(p->part[i].ndim, p->part[i].shape)));
    char *const made_of = json_dumps(parts, JSON_COMPACT);
    json_decref(parts);
    lp_chain_text(&request->chain, text, sizeof text);
    snprintf(number, sizeof number, "%d", request->unit_bits);
    json_t *const m =
        json_pack("{s:s, s:s, s:s, s:s}", "loadplan.chain", text, "loadplan.unit_bits", number, "loadplan.chain_shape",
                  lp_layout_list_text(shape, sizeof shape, request->chain.ndim, p->shape), made_of_key,
                  made_of != NULL ? made_of : "");
    free(made_of);
    return m;
}

static lp_status join_tensors(const packet *p, const lp_checkpoint *ck, const lp_platform *platform,
                              unsigned char *joined, lp_error *err)
{
    for (int32_t i = 0; i < p->parts; i++) {
        unsigned char *own = NULL;
        LP_TRY(lp_layout_read_tensor(ck, platform, lp_checkpoint_at(ck, i), &own, err));
        move_rows(p, i, joined, own, true);
        lp_release(platform->alloc, own);
    }
    return LP_OK;
}

lp_status lp_chain_apply_packet(const lp_chain_request *request, const lp_checkpoint *ck, const lp_platform *platform,
                                lp_outfile *file, lp_error *err)
{
    packet p = {0};
    lp_chain_form form;
    int64_t out_shape[LP_CHAIN_AXES];
    lp_dtype dtype;
    if (lp_checkpoint_count(ck) != request->chain.parts)
        return lp_fail(err, LP_E_MISMATCH, "the file has %lld tensors, the chain %d parts: one of each, sorted by name",
                       (long long)lp_checkpoint_count(ck), (int)request->chain.parts);
    for (int32_t i = 0; i < request->chain.parts; i++) {
        const lp_checkpoint_tensor *const t = lp_checkpoint_at(ck, i);
        part_tensor part = {t->name, t->dtype, t->ndim, {0}};
        memcpy(part.shape, t->shape,
               (size_t)(t->ndim < LP_CHAIN_DIMS ? t->ndim : LP_CHAIN_DIMS) * sizeof part.shape[0]);
        LP_TRY(add_part(&p, request, &part, err));
    }
    LP_TRY(resolve_packet(&form, &p, request, err));
    LP_TRY(lp_chain_result_shape(&form, request->unit_bits, LP_U8, &dtype, out_shape, err));
    const int64_t bytes = form.units * request->unit_bits / 8;
    lp_status status = LP_OK;
    unsigned char *const joined = lp_allocate(platform->alloc, (size_t)(form.source_units * request->unit_bits / 8));
    unsigned char *const out = lp_allocate(platform->alloc, (size_t)bytes);
    if (joined == NULL || out == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    LP_TRY_GOTO(join_tensors(&p, ck, platform, joined, err), release);
    LP_TRY_GOTO(lp_chain_apply(&form, request->unit_bits, joined, out, err), release);
    status = lp_chain_write_file(file, describe(&p, request), request->known != NULL ? request->known->id : "packed",
                                 dtype, form.chain.out_ndim, out_shape, out, bytes, err);
release:
    lp_release(platform->alloc, out);
    lp_release(platform->alloc, joined);
    return status;
}

/* ---- back ---- */

/* What the metadata says that the parts were; `list` keeps their names. */
static lp_status read_parts(packet *p, const lp_chain_request *request, const json_t *list, lp_error *err)
{
    if (json_array_size(list) != (size_t)request->chain.parts)
        return lp_fail(err, LP_E_MISMATCH, "the file was not made of %d parts", (int)request->chain.parts);
    for (int32_t i = 0; i < request->chain.parts; i++) {
        const json_t *const row = json_array_get(list, (size_t)i), *const shape = json_object_get(row, "shape");
        const char *const type = json_string_value(json_object_get(row, "dtype"));
        part_tensor part = {.name = json_string_value(json_object_get(row, "name")),
                            .ndim = (int64_t)json_array_size(shape)};
        part.dtype = type != NULL ? lp_dtype_parse(type, strlen(type)) : LP_DTYPE_NONE;
        if (part.name == NULL || strcmp(part.name, "__metadata__") == 0 || part.dtype == LP_DTYPE_NONE ||
            part.ndim > LP_CHAIN_DIMS)
            return lp_fail(err, LP_E_FORMAT, "the file does not say what its part %d was", (int)i);
        for (int64_t d = 0; d < part.ndim; d++) {
            part.shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
            if (part.shape[d] < 1)
                return lp_fail(err, LP_E_FORMAT, "the file does not say what its part %d was", (int)i);
        }
        LP_TRY(add_part(p, request, &part, err));
    }
    return LP_OK;
}

static lp_status write_parts(const packet *p, lp_outfile *file, unsigned char *joined, const lp_platform *platform,
                             lp_error *err)
{
    json_t *const header = json_object();
    int64_t end = 0;
    bool fits = header != NULL;
    for (int32_t i = 0; i < p->parts && fits; i++) {
        const part_tensor *const t = &p->part[i];
        const int64_t begin = end;
        end += p->rows * p->row_bytes[i];
        fits =
            json_object_get(header, t->name) == NULL &&
            json_object_set_new(header, t->name, lp_layout_tensor_entry(t->dtype, t->ndim, t->shape, begin, end)) == 0;
    }
    lp_status status = fits ? lp_layout_write_header(file, header, err)
                            : lp_fail(err, LP_E_FORMAT, "the file was made of parts that no file can hold");
    json_decref(header);
    for (int32_t i = 0; i < p->parts && status == LP_OK; i++) {
        unsigned char *const own = lp_allocate(platform->alloc, (size_t)(p->rows * p->row_bytes[i]));
        if (own == NULL)
            return lp_fail_memory(err);
        move_rows(p, i, joined, own, false);
        status = lp_outfile_write(file, own, p->rows * p->row_bytes[i], err);
        lp_release(platform->alloc, own);
    }
    return status;
}

bool lp_chain_is_packet(const lp_checkpoint *ck)
{
    return lp_layout_metadata(ck, made_of_key) != NULL;
}

lp_status lp_chain_undo_packet(const lp_chain_request *asked, const lp_checkpoint *ck, const lp_platform *platform,
                               lp_outfile *file, lp_error *err)
{
    const lp_checkpoint_tensor *const t = lp_checkpoint_count(ck) == 1 ? lp_checkpoint_at(ck, 0) : NULL;
    lp_chain_request request = *asked;
    packet p = {0};
    lp_chain_form form;
    unsigned char *in = NULL, *joined = NULL;
    json_t *const list = json_loads(lp_layout_metadata(ck, made_of_key), 0, NULL);
    lp_status status;
    LP_TRY_GOTO(lp_chain_take_sizes(ck, &request, err), release);
    LP_TRY_GOTO(lp_chain_check_made(ck, &request.chain, err), release);
    LP_TRY_GOTO(read_parts(&p, &request, list, err), release);
    request.pads = true;
    LP_TRY_GOTO(resolve_packet(&form, &p, &request, err), release);
    if (t == NULL || form.units * request.unit_bits != t->bytes * 8) {
        status = lp_fail(err, LP_E_MISMATCH, "the file has not the bytes that its metadata says");
        goto release;
    }
    joined = lp_allocate(platform->alloc, (size_t)(form.source_units * request.unit_bits / 8));
    if (joined == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    LP_TRY_GOTO(lp_layout_read_tensor(ck, platform, t, &in, err), release);
    LP_TRY_GOTO(lp_chain_undo(&form, request.unit_bits, in, joined, err), release);
    status = write_parts(&p, file, joined, platform, err);
release:
    lp_release(platform->alloc, in);
    lp_release(platform->alloc, joined);
    json_decref(list);
    return status;
}
