/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan layout CHAIN --apply`: a safetensors file of one tensor to a file of the same tensor in another order, and
 * back. Files of several tensors are for chain_packet_cli.c.
 *
 * Where elements are wider than units (words of eight 4-bit codes), the last dimension of the file's tensor counts its
 * units, or the chain has one dimension more, for the units of an element. A tensor of one dimension more is a stack,
 * of experts say. Any other number of dimensions is taken as the one that --shape gives. The metadata of the result
 * says the chain, the unit, the dtype and shape that it was made of and, where that came from --shape, the shape in
 * units, which is all that the way back needs.
 */
#include "layouts/layout_cli.h"

#include <inttypes.h>
#include <stdlib.h>

/* The only tensor of the file. */
static lp_status find_tensor(const lp_checkpoint *ck, const lp_checkpoint_tensor **out, lp_error *err)
{
    if (lp_checkpoint_count(ck) != 1)
        return lp_fail(err, LP_E_MISMATCH, "the file has %lld tensors: a chain takes one",
                       (long long)lp_checkpoint_count(ck));
    *out = lp_checkpoint_at(ck, 0);
    return LP_OK;
}

/* Whether the chain's last dimension counts the units of one element. */
static bool counts_words(const lp_chain *chain, int64_t ratio)
{
    int64_t product = chain->split_dim == chain->ndim - 1 ? 0 : 1;
    for (int32_t a = 0; a < chain->axes; a++) /* an open axis makes 0 */
        if (chain->axis[a].dim == chain->ndim - 1 && !lp_mul(product, chain->axis[a].extent, &product))
            return false;
    return ratio > 1 && product == ratio;
}

/* Whether the tensor has as many units as the shape that was asked for. */
static bool fills_shape(const lp_chain_request *request, int64_t ratio, int64_t ndim, const int64_t *dims)
{
    int64_t has = ratio, wanted = 1;
    for (int64_t d = 0; d < ndim; d++)
        if (!lp_mul(has, dims[d], &has))
            return false;
    for (int32_t d = 0; d < request->chain.ndim; d++)
        if (!lp_mul(wanted, request->shape[d], &wanted))
            return false;
    return has == wanted;
}

/* The chain's source shape, in units, of a tensor. A tensor of one dimension more is a stack: *chain gets it too. Any
 * shape is a row to a chain of one dimension. One of other dimensions is taken as the shape that was asked for. */
static lp_status units_of(const lp_chain_request *request, lp_dtype dtype, int64_t ndim, const int64_t *dims,
                          lp_chain *chain, int64_t shape[LP_CHAIN_DIMS], lp_error *err)
{
    char text[128];
    const int bits = lp_dtype_bits(dtype), unit = request->unit_bits;
    const int64_t ratio = bits / unit, wanted = request->chain.ndim;
    const bool words = counts_words(&request->chain, ratio), flat = wanted == 1;
    const bool stacked = !flat && ndim == wanted - words + 1;
    *chain = request->chain;
    if (bits % unit != 0)
        return lp_fail(err, LP_E_MISMATCH, "the chain moves units of %d bits, %s has %d", unit, lp_dtype_name(dtype),
                       bits);
    const bool fits = ndim > 0 && (flat || stacked || ndim == wanted - words);
    if (!fits && request->sized && fills_shape(request, ratio, ndim, dims)) {
        memcpy(shape, request->shape, sizeof request->shape);
        return LP_OK;
    }
    if (!fits)
        return lp_fail(err, LP_E_MISMATCH, "the tensor has shape %s, the chain takes %d dimensions%s",
                       lp_layout_list_text(text, sizeof text, ndim, dims), (int)wanted,
                       request->sized ? " of another size" : ": '--shape' can say them");
    if (stacked)
        LP_TRY(lp_chain_stack(chain, "E", err));
    int64_t last = ratio;
    for (int64_t d = 0; d < ndim; d++) {
        if ((flat || (!words && d == ndim - 1)) && !lp_mul(dims[d], last, &last))
            return lp_fail(err, LP_E_LIMIT, "dimension %d is too large", (int)d);
        if (!flat)
            shape[d] = dims[d];
    }
    shape[chain->ndim - 1] = last;
    for (int32_t d = 0; d < request->chain.ndim; d++) {
        const int64_t seen = shape[d + stacked];
        if (request->shape[d] != 0 && request->shape[d] != seen)
            return lp_fail(err, LP_E_MISMATCH, "the tensor has %lld units in dimension %d, not %lld", (long long)seen,
                           (int)d, (long long)request->shape[d]);
    }
    return LP_OK;
}

lp_status lp_chain_result_shape(const lp_chain_form *form, int unit, lp_dtype source, lp_dtype *dtype, int64_t *shape,
                                lp_error *err)
{
    const int32_t last = form->chain.out_ndim - 1;
    *dtype = source;
    memcpy(shape, form->out_shape, (size_t)(last + 1) * sizeof shape[0]);
    if (form->out_shape[last] * unit % lp_dtype_bits(source) != 0)
        *dtype = LP_U8;
    if (form->out_shape[last] * unit % lp_dtype_bits(*dtype) != 0)
        return lp_fail(err, LP_E_MISMATCH, "the innermost dimension has %lld units of %d bits: no whole bytes",
                       (long long)form->out_shape[last], unit);
    shape[last] = form->out_shape[last] * unit / lp_dtype_bits(*dtype);
    return LP_OK;
}

lp_status lp_chain_write_file(lp_outfile *file, json_t *metadata, const char *name, lp_dtype dtype, int64_t ndim,
                              const int64_t *shape, const void *data, int64_t bytes, lp_error *err)
{
    json_t *const header = json_object();
    if (metadata != NULL)
        json_object_set_new(header, "__metadata__", metadata);
    if (json_object_set_new(header, name, lp_layout_tensor_entry(dtype, ndim, shape, 0, bytes)) != 0) {
        json_decref(header);
        return lp_fail_memory(err);
    }
    lp_status status = lp_layout_write_header(file, header, err);
    json_decref(header);
    if (status == LP_OK)
        status = lp_outfile_write(file, data, bytes, err);
    return status;
}

static json_t *describe(const lp_chain_request *request, const lp_chain *used, const int64_t *units,
                        const lp_checkpoint_tensor *t)
{
    char chain[LP_CHAIN_TEXT_BYTES], shape[256], number[16], version[16];
    lp_chain_text(used, chain, sizeof chain);
    snprintf(number, sizeof number, "%d", request->unit_bits);
    json_t *const m = json_pack("{s:s, s:s, s:s, s:s}", "loadplan.chain", chain, "loadplan.unit_bits", number,
                                "loadplan.source_dtype", lp_dtype_name(t->dtype), "loadplan.source_shape",
                                lp_layout_list_text(shape, sizeof shape, t->ndim, t->shape));
    if (request->sized)
        json_object_set_new(m, "loadplan.chain_shape",
                            json_string(lp_layout_list_text(shape, sizeof shape, used->ndim, units)));
    if (request->known != NULL) {
        snprintf(version, sizeof version, "%d", (int)request->known->version);
        json_object_set_new(m, "loadplan.layout", json_string(request->known->id));
        json_object_set_new(m, "loadplan.layout_version", json_string(version));
    }
    return m;
}

static lp_status apply(const lp_chain_request *request, const lp_checkpoint *ck, const lp_platform *platform,
                       lp_outfile *file, lp_error *err)
{
    const lp_checkpoint_tensor *t = NULL;
    int64_t shape[LP_CHAIN_DIMS], out_shape[LP_CHAIN_AXES];
    lp_chain chain;
    lp_chain_form form;
    lp_dtype dtype;
    LP_TRY(find_tensor(ck, &t, err));
    LP_TRY(units_of(request, t->dtype, t->ndim, t->shape, &chain, shape, err));
    lp_status status = lp_chain_resolve(&form, &chain, shape, request->pads, err);
    if (status == LP_E_ARGUMENT && err != NULL)
        err->code = LP_E_MISMATCH; /* the sizes are the file's */
    LP_TRY(status == LP_E_ARGUMENT ? LP_E_MISMATCH : status);
    LP_TRY(lp_chain_result_shape(&form, request->unit_bits, t->dtype, &dtype, out_shape, err));
    const int64_t bytes = form.units * request->unit_bits / 8;
    unsigned char *in = NULL;
    unsigned char *const out = lp_allocate(platform->alloc, (size_t)bytes);
    if (out == NULL)
        return lp_fail_memory(err);
    LP_TRY_GOTO(lp_layout_read_tensor(ck, platform, t, &in, err), free_out);
    LP_TRY_GOTO(lp_chain_apply(&form, request->unit_bits, in, out, err), free_in);
    status = lp_chain_write_file(file, describe(request, &chain, shape, t), t->name, dtype, form.chain.out_ndim,
                                 out_shape, out, bytes, err);
free_in:
    lp_release(platform->alloc, in);
free_out:
    lp_release(platform->alloc, out);
    return status;
}

/* ---- back ---- */

/* "[256, 512]" */
static bool parse_list(const char *text, int64_t list[LP_CHAIN_DIMS], int64_t *count)
{
    *count = 0;
    if (*text++ != '[')
        return false;
    while (*count < LP_CHAIN_DIMS) {
        char *end;
        if (*text < '0' || *text > '9')
            return false;
        const long long value = strtoll(text, &end, 10);
        list[(*count)++] = value;
        if (*end == ']')
            return end[1] == '\0';
        if (strncmp(end, ", ", 2) != 0)
            return false;
        text = end + 2;
    }
    return false;
}

/* What the file was made of. */
static lp_status made_of(const lp_checkpoint *ck, lp_dtype *dtype, int64_t *ndim, int64_t dims[LP_CHAIN_DIMS],
                         lp_error *err)
{
    const char *const made = lp_layout_metadata(ck, "loadplan.chain");
    const char *const type = lp_layout_metadata(ck, "loadplan.source_dtype");
    const char *const shape = lp_layout_metadata(ck, "loadplan.source_shape");
    if (made == NULL || type == NULL || shape == NULL)
        return lp_fail(err, LP_E_MISMATCH, "the file does not say what it was made of");
    *dtype = lp_dtype_parse(type, strlen(type));
    if (*dtype == LP_DTYPE_NONE || !parse_list(shape, dims, ndim))
        return lp_fail(err, LP_E_FORMAT, "the file was made of '%s %s', which is no tensor", type, shape);
    return LP_OK;
}

lp_status lp_chain_take_sizes(const lp_checkpoint *ck, lp_chain_request *request, lp_error *err)
{
    const char *const text = lp_layout_metadata(ck, "loadplan.chain_shape");
    const char *const made = lp_layout_metadata(ck, "loadplan.chain");
    lp_chain chain;
    int64_t count;
    if (made != NULL && lp_chain_parse(&chain, made, NULL) == LP_OK)
        for (int32_t a = 0; a < chain.axes; a++)
            if (chain.axis[a].extent != 0) /* another one is said later, with both chains */
                (void)lp_chain_set(&request->chain, chain.axis[a].name, chain.axis[a].extent, NULL);
    if (text == NULL || request->sized)
        return LP_OK;
    if (!parse_list(text, request->shape, &count))
        return lp_fail(err, LP_E_FORMAT, "the file was made of the shape '%s', which is none", text);
    if (count == request->chain.ndim + 1)
        LP_TRY(lp_chain_stack(&request->chain, "E", err));
    if (count != request->chain.ndim)
        return lp_fail(err, LP_E_MISMATCH, "the file was made of the shape %s, the chain takes %d dimensions", text,
                       (int)request->chain.ndim);
    request->sized = true;
    return LP_OK;
}

lp_status lp_chain_check_made(const lp_checkpoint *ck, const lp_chain *used, lp_error *err)
{
    char chain[LP_CHAIN_TEXT_BYTES];
    const char *const made = lp_layout_metadata(ck, "loadplan.chain");
    lp_chain_text(used, chain, sizeof chain);
    if (made == NULL || strcmp(made, chain) != 0)
        return lp_fail(err, LP_E_MISMATCH, "the file was made by '%s', not by '%s'", made != NULL ? made : "", chain);
    return LP_OK;
}

static lp_status undo(const lp_chain_request *asked, const lp_checkpoint *ck, const lp_platform *platform,
                      lp_outfile *file, lp_error *err)
{
    const lp_checkpoint_tensor *t = NULL;
    int64_t dims[LP_CHAIN_DIMS], ndim = 0, shape[LP_CHAIN_DIMS];
    lp_chain chain;
    lp_chain_form form;
    lp_dtype dtype = LP_DTYPE_NONE;
    LP_TRY(find_tensor(ck, &t, err));
    LP_TRY(made_of(ck, &dtype, &ndim, dims, err));
    lp_chain_request request = *asked;
    LP_TRY(lp_chain_take_sizes(ck, &request, err));
    LP_TRY(units_of(&request, dtype, ndim, dims, &chain, shape, err));
    LP_TRY(lp_chain_check_made(ck, &chain, err));
    const lp_status resolved = lp_chain_resolve(&form, &chain, shape, true, err);
    if (resolved != LP_OK || form.units * request.unit_bits != t->bytes * 8)
        return lp_fail(err, LP_E_MISMATCH, "tensor '%s' has %lld bytes, which is not what its metadata says", t->name,
                       (long long)t->bytes);
    const int64_t bytes = form.source_units * request.unit_bits / 8;
    unsigned char *in = NULL;
    lp_status status = LP_OK;
    unsigned char *const out = lp_allocate_zero(platform->alloc, (size_t)bytes);
    if (out == NULL)
        return lp_fail_memory(err);
    LP_TRY_GOTO(lp_layout_read_tensor(ck, platform, t, &in, err), free_out);
    LP_TRY_GOTO(lp_chain_undo(&form, request.unit_bits, in, out, err), free_in);
    status = lp_chain_write_file(file, NULL, t->name, dtype, ndim, dims, out, bytes, err);
free_in:
    lp_release(platform->alloc, in);
free_out:
    lp_release(platform->alloc, out);
    return status;
}

int lp_chain_transform_file(lp_cli *cli, const lp_chain_request *request, const char *in, const char *out,
                            bool overwrite, bool inverse)
{
    lp_layout_files f;
    lp_error err;
    lp_status status = lp_layout_open_files(&f, cli, in, out, overwrite, &err);
    if (status == LP_OK) {
        const bool packet =
            inverse ? lp_chain_is_packet(f.ck) : request->chain.parts > 1 && lp_checkpoint_count(f.ck) > 1;
        if (packet)
            status =
                (inverse ? lp_chain_undo_packet : lp_chain_apply_packet)(request, f.ck, &f.platform, &f.file, &err);
        else
            status = (inverse ? undo : apply)(request, f.ck, &f.platform, &f.file, &err);
    }
    return lp_layout_close_files(&f, cli, request->known != NULL ? request->known->id : "chain", inverse, status, &err);
}
