/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan layout --identify`: which chain a recorded permutation is; `--compare`: whether two chains are the same.
 *
 * The file holds what somebody's transform made of 0, 1, 2, ...: one tensor of 32- or 64-bit integers, whose elements
 * are source indices, or, for transforms that take bytes or packed codes only, several tensors of equal size, sorted by
 * name: the first was made of the lowest unit of each index, the next of the unit above it, and so on.
 */
#include "layouts/layout_cli.h"

#include <inttypes.h>

/* Unit k of packed data, the lowest of a byte first. */
static uint64_t unit_at(const unsigned char *data, int64_t k, int bits)
{
    if (bits < 8)
        return (uint64_t)data[k * bits / 8] >> (k * bits % 8) & ((UINT64_C(1) << bits) - 1);
    uint64_t value = 0;
    memcpy(&value, data + k * (bits / 8), (size_t)bits / 8);
    return value;
}

/* Adds tensor t as the units `shift` bits up. */
static lp_status add_plane(const lp_checkpoint *ck, const lp_platform *platform, const lp_checkpoint_tensor *t,
                           int bits, int shift, int64_t *place, int64_t count, lp_error *err)
{
    unsigned char *data = NULL;
    LP_TRY(lp_layout_read_tensor(ck, platform, t, &data, err));
    for (int64_t k = 0; k < count; k++) {
        const uint64_t sum = (uint64_t)place[k] | unit_at(data, k, bits) << shift;
        memcpy(&place[k], &sum, sizeof sum);
    }
    lp_release(platform->alloc, data);
    return LP_OK;
}

/* The permutation, read in units of *unit_bits; the caller releases it. *unit_bits becomes that of the file's integers
 * where it holds such. */
static lp_status read_places(const lp_checkpoint *ck, const lp_platform *platform, int *unit_bits, int64_t **out,
                             int64_t *out_count, lp_error *err)
{
    const int64_t tensors = lp_checkpoint_count(ck);
    if (tensors == 0)
        return lp_fail(err, LP_E_MISMATCH, "the file has no tensor");
    const lp_checkpoint_tensor *const first = lp_checkpoint_at(ck, 0);
    const bool whole = tensors == 1 && (first->dtype == LP_I32 || first->dtype == LP_U32 || first->dtype == LP_I64 ||
                                        first->dtype == LP_U64);
    const int bits = whole ? lp_dtype_bits(first->dtype) : *unit_bits;
    if (tensors * bits > 64)
        return lp_fail(err, LP_E_MISMATCH, "%lld tensors of units of %d bits make more than 64 bits",
                       (long long)tensors, bits);
    const int64_t count = first->bytes * 8 / bits;
    int64_t *const place = lp_allocate_zero(platform->alloc, (size_t)(count > 0 ? count : 1) * sizeof *place);
    if (place == NULL)
        return lp_fail_memory(err);
    lp_status status = LP_OK;
    for (int64_t i = 0; i < tensors && status == LP_OK; i++) {
        const lp_checkpoint_tensor *const t = lp_checkpoint_at(ck, i);
        if (t->bytes != first->bytes)
            status = lp_fail_at(err, LP_E_MISMATCH, t->name, -1, "tensors '%s' and '%s' differ in size", first->name,
                                t->name);
        else
            status = add_plane(ck, platform, t, bits, (int)i * bits, place, count, err);
    }
    if (status != LP_OK) {
        lp_release(platform->alloc, place);
        return status;
    }
    *unit_bits = bits;
    *out = place;
    *out_count = count;
    return LP_OK;
}

/* Where zeros are padding, the transform was run on 1, 2, 3, ...: then there are more places than elements, and the
 * largest number is how many there are. Afterwards elements count from 0, and padding is -1. */
static void count_from_zero(const lp_chain_request *request, int64_t *place, int64_t count)
{
    int64_t elements = 1, largest = 0;
    for (int32_t d = 0; d < request->chain.ndim; d++)
        if (!lp_mul(elements, request->shape[d], &elements))
            return;
    for (int64_t k = 0; k < count && elements < count; k++)
        largest = place[k] > largest ? place[k] : largest;
    for (int64_t k = 0; k < count && largest == elements; k++)
        place[k]--;
}

static int fail_identify(lp_cli *cli, const lp_chain_request *request, const lp_platform *platform, int bits,
                         const int64_t *place, int64_t count, lp_error *err)
{
    char text[LP_CHAIN_TEXT_BYTES];
    lp_chain chain;
    int64_t value;
    bool adds;
    if (err->code == LP_E_UNSUPPORTED &&
        lp_chain_find_change(place, count, bits, request, platform, &value, &adds, &chain)) {
        lp_chain_text(&chain, text, sizeof text);
        lp_fail(err, LP_E_UNSUPPORTED, "values change: each unit is %s 0x%" PRIx64 "; no chain says that",
                adds ? "more by" : "exclusive-or'ed with", (uint64_t)value);
        lp_hint(err, "the order alone is %s", text);
    }
    return lp_cli_fail(cli, err);
}

/* The first place where the chain has another source element; -1: none. What a file has where the chain has padding is
 * not looked at. */
static int64_t first_difference(const lp_chain_form *form, const int64_t *place, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        const int64_t element = lp_chain_element_at(form, k);
        if (element >= 0 && element != place[k])
            return k;
    }
    return -1;
}

/* Known chains that give this permutation at this shape. */
static json_t *known_like(int32_t ndim, const int64_t *shape, const int64_t *place, int64_t count)
{
    json_t *const list = json_array();
    for (int32_t i = 0; i < lp_chain_known_count(); i++) {
        const lp_chain_known *const known = lp_chain_known_at(i);
        lp_chain chain;
        lp_chain_form form;
        if (lp_chain_parse(&chain, known->chain, NULL) == LP_OK && chain.ndim == ndim &&
            lp_chain_resolve(&form, &chain, shape, known->pads, NULL) == LP_OK && form.units == count &&
            first_difference(&form, place, count) < 0)
            json_array_append_new(list, json_string(known->id));
    }
    return list;
}

/* Axes that count blocks by this recording, but had so few steps, 2, 4 or 8, that they may be the layout's own. */
static json_t *unsure_axes(const lp_chain *chain, const int64_t *shape)
{
    json_t *const list = json_array();
    for (int32_t a = 0; a < chain->axes; a++) {
        const int32_t d = chain->axis[a].dim;
        int64_t inside = 1;
        for (int32_t b = 0; b < chain->axes; b++)
            if (chain->axis[b].dim == d && b != a)
                inside *= chain->axis[b].extent;
        const int64_t steps = chain->axis[a].extent != 0 || inside <= 1 ? 1 : (shape[d] - 1) / inside + 1;
        if (d != chain->split_dim && (steps == 2 || steps == 4 || steps == 8))
            json_array_append_new(list, json_string(chain->axis[a].name));
    }
    return list;
}

static int report(lp_cli *cli, const lp_chain *chain, const int64_t *shape, json_t *like, bool json)
{
    char text[LP_CHAIN_TEXT_BYTES];
    json_t *const unsure = json_array_size(like) > 0 ? json_array() : unsure_axes(chain, shape);
    lp_chain_text(chain, text, sizeof text);
    if (json)
        return lp_cli_json(
                   cli, json_pack("{s:i, s:s, s:o, s:o}", "format", 1, "chain", text, "known", like, "unsure", unsure))
                   ? LP_EXIT_DONE
                   : LP_EXIT_ENVIRONMENT;
    fprintf(cli->out, "%s\n", text);
    for (size_t i = 0; i < json_array_size(like); i++)
        fprintf(cli->out, "  at this shape the same as %s\n", json_string_value(json_array_get(like, i)));
    for (size_t i = 0; i < json_array_size(unsure); i++)
        fprintf(cli->out,
                "  %s may have as many steps at all sizes: a recording of an odd number of tiles would tell\n",
                json_string_value(json_array_get(unsure, i)));
    json_decref(like);
    json_decref(unsure);
    return LP_EXIT_DONE;
}

static bool compare_json(lp_cli *cli, const lp_chain_form *form, const int64_t *place, int64_t count, int64_t at)
{
    char text[LP_CHAIN_TEXT_BYTES];
    lp_chain_text(&form->chain, text, sizeof text);
    json_t *const root =
        json_pack("{s:i, s:s, s:b, s:I, s:I}", "format", 1, "chain", text, "same", form->units == count && at < 0,
                  "chain_places", (json_int_t)form->units, "file_places", (json_int_t)count);
    if (at >= 0)
        json_object_update_new(root, json_pack("{s:I, s:I, s:I}", "place", (json_int_t)at, "chain_element",
                                               (json_int_t)lp_chain_element_at(form, at), "file_element",
                                               (json_int_t)place[at]));
    return lp_cli_json(cli, root);
}

/* Whether the chain that was given is the recorded one. */
static int compare(lp_cli *cli, const lp_chain_request *request, const int64_t *place, int64_t count, bool json)
{
    lp_chain_form form;
    lp_error err;
    if (lp_chain_resolve(&form, &request->chain, request->shape, request->pads, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    const int64_t at = form.units == count ? first_difference(&form, place, count) : -1;
    if (json && !compare_json(cli, &form, place, count, at))
        return LP_EXIT_ENVIRONMENT;
    if (!json && form.units != count)
        fprintf(cli->out, "not the same: the chain has %" PRId64 " places, the file %" PRId64 "\n", form.units, count);
    else if (!json && at < 0)
        fprintf(cli->out, "the same\n");
    else if (!json)
        fprintf(cli->out,
                "not the same: at place %" PRId64 " the chain has element %" PRId64 ", the file %" PRId64 "\n", at,
                lp_chain_element_at(&form, at), place[at]);
    return form.units == count && at < 0 ? LP_EXIT_DONE : LP_EXIT_NO;
}

/* The chain of the recording, or else a named one that it is. */
static int search(lp_cli *cli, const lp_chain_request *request, const lp_platform *platform, int bits,
                  const int64_t *place, int64_t count, bool json)
{
    lp_chain found;
    lp_error err;
    const int32_t ndim = request->chain.ndim;
    lp_status status = lp_chain_identify_parts(&found, place, count, ndim, request->shape, platform->alloc, &err);
    json_t *const like = known_like(ndim, request->shape, place, count);
    if (status == LP_E_UNSUPPORTED && json_array_size(like) > 0)
        status = lp_chain_parse(&found, lp_chain_known_find(json_string_value(json_array_get(like, 0)))->chain, &err);
    if (status == LP_OK)
        return report(cli, &found, request->shape, like, json);
    json_decref(like);
    return fail_identify(cli, request, platform, bits, place, count, &err);
}

int lp_chain_identify_file(lp_cli *cli, const lp_chain_request *request, const char *in, bool json)
{
    const lp_platform platform = lp_platform_resolve(lp_cli_platform(cli));
    lp_checkpoint *ck = NULL;
    int64_t *place = NULL, count = 0;
    int bits = request->unit_bits;
    lp_error err;
    lp_status status = lp_checkpoint_open_with(&ck, in, &platform, &err);
    if (status == LP_OK)
        status = read_places(ck, &platform, &bits, &place, &count, &err);
    lp_checkpoint_close(ck);
    if (status != LP_OK)
        return lp_cli_fail(cli, &err);
    int code;
    count_from_zero(request, place, count);
    if (request->chain.axes > 0)
        code = compare(cli, request, place, count, json);
    else
        code = search(cli, request, &platform, bits, place, count, json);
    lp_release(platform.alloc, place);
    return code;
}

/* ---- two chains ---- */

enum { COMPARE_MOST = 1 << 22 }; /* elements, of each group of digits that depend on each other */

static const char *const verdict_name[] = {"same", "differs", "undecided"};

static int put_comparison(lp_cli *cli, const lp_chain_form *one, const lp_chain_form *other,
                          const lp_chain_comparison *seen, bool json)
{
    const int64_t at = seen->place, element = at < 0 ? -1 : lp_chain_element_at(one, at);
    const int64_t other_element = at < 0 ? -1 : lp_chain_element_at(other, at);
    const bool same = seen->verdict == LP_CHAIN_SAME;
    if (json) {
        json_t *const root =
            json_pack("{s:i, s:b, s:s, s:I, s:I}", "format", 1, "same", same, "verdict", verdict_name[seen->verdict],
                      "chain_places", (json_int_t)one->units, "other_places", (json_int_t)other->units);
        if (at >= 0)
            json_object_update_new(root, json_pack("{s:I, s:I, s:I}", "place", (json_int_t)at, "chain_element",
                                                   (json_int_t)element, "other_element", (json_int_t)other_element));
        if (!lp_cli_json(cli, root))
            return LP_EXIT_ENVIRONMENT;
    } else if (same) {
        fprintf(cli->out, "the same\n");
    } else if (seen->verdict == LP_CHAIN_UNDECIDED) {
        fprintf(cli->out, "undecided: more than %d elements depend on each other; smaller sizes would tell\n",
                (int)COMPARE_MOST);
    } else if (at < 0) {
        fprintf(cli->out, "not the same: one has %" PRId64 " places, the other %" PRId64 "\n", one->units,
                other->units);
    } else {
        fprintf(cli->out, "not the same: at place %" PRId64 " one has element %" PRId64 ", the other %" PRId64 "\n", at,
                element, other_element);
    }
    return same ? LP_EXIT_DONE : LP_EXIT_NO;
}

int lp_chain_compare(lp_cli *cli, const lp_chain_request *request, const lp_chain_request *with, bool json)
{
    lp_chain_form one, other;
    lp_error err;
    if (lp_chain_resolve(&one, &request->chain, request->shape, request->pads, &err) != LP_OK ||
        lp_chain_resolve(&other, &with->chain, with->shape, with->pads, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    if (one.source_units != other.source_units)
        return lp_cli_usage(cli, "one takes %" PRId64 " units, the other %" PRId64, one.source_units,
                            other.source_units);
    const lp_chain_comparison seen = lp_chain_same(&one, &other, COMPARE_MOST);
    return put_comparison(cli, &one, &other, &seen, json);
}
