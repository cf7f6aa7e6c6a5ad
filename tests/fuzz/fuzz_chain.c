/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line as a chain, or as another notation of one, the bytes behind it as sizes and as a permutation. What is accepted
 * reads the same again, has a place for each element and none twice, moves bytes there and back, and is found again
 * from its own permutation (with bars, swizzles or rotations only where it can be); a permutation that has a chain is
 * that chain's.
 */
#include "layouts/layout.h"
#include "tests/fuzz/demand.h"

#include <string.h>

enum { TEXT_BYTES = 1024, UNITS_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int64_t source_index(const lp_chain_form *form, const int64_t *index)
{
    int64_t flat = 0;
    for (int32_t d = 0; d < form->chain.ndim; d++)
        flat = flat * form->shape[d] + index[d];
    return flat;
}

/* The permutation has a chain: it is what the chain says, padding where it has none. */
static void check_found(lp_chain_form *form, const lp_chain *found, const int64_t *place, int64_t count,
                        const int64_t *shape, bool pads)
{
    char text[TEXT_BYTES];
    lp_chain again;
    demand(lp_chain_text(found, text, sizeof text) < sizeof text);
    demand(lp_chain_parse(&again, text, NULL) == LP_OK);
    demand(lp_chain_resolve(form, &again, shape, pads, NULL) == LP_OK);
    demand(form->units == count);
    for (int64_t k = 0; k < count; k++) {
        int64_t index[LP_CHAIN_DIMS];
        const bool there = lp_chain_origin(form, k, index);
        demand(there || pads);
        demand(there ? source_index(form, index) == place[k] : place[k] < 0);
    }
}

static bool is_plain(const lp_chain *chain)
{
    bool plain = chain->parts == 1 && chain->joints == 0;
    for (int32_t i = 0; i < chain->part[0].axes; i++) {
        const lp_chain_place *const place = &chain->part[0].memory[i];
        plain = plain && (place->swizzle | place->plus | place->minus | place->flip) == 0;
    }
    return plain;
}

/* The pieces have as many elements as the source, in the same shape on both sides. */
static void check_pieces(const lp_chain_form *form)
{
    int64_t elements = 0;
    for (int64_t cursor = 0;;) {
        lp_view region, source;
        const lp_status status = lp_chain_piece(form, LP_U8, &cursor, &region, &source, NULL);
        demand(status == LP_OK || status == LP_E_LIMIT);
        if (status != LP_OK)
            return;
        if (cursor < 0)
            break;
        demand(lp_view_count(&region) == lp_view_count(&source));
        elements += lp_view_count(&region);
    }
    demand(elements == form->source_units);
}

static void check_places(const lp_chain_form *form)
{
    int64_t place[UNITS_MAX], seen = 0;
    uint8_t in[UNITS_MAX], out[UNITS_MAX], back[UNITS_MAX];
    for (int64_t k = 0; k < form->units; k++) {
        int64_t index[LP_CHAIN_DIMS];
        place[k] = -1;
        if (!lp_chain_origin(form, k, index))
            continue;
        demand(lp_chain_locate(form, index) == k);
        place[k] = source_index(form, index);
        seen++;
    }
    demand(seen == form->source_units);
    for (int64_t i = 0; i < form->source_units; i++)
        in[i] = (uint8_t)(i * 37 + 1);
    demand(lp_chain_apply(form, 8, in, out, NULL) == LP_OK);
    for (int64_t k = 0; k < form->units; k++)
        demand(out[k] == (place[k] < 0 ? 0 : in[place[k]]));
    demand(lp_chain_undo(form, 8, out, back, NULL) == LP_OK);
    demand(memcmp(in, back, (size_t)form->source_units) == 0);
    lp_chain found;
    const bool pads = seen < form->units;
    const lp_status status =
        lp_chain_identify_parts(&found, place, form->units, form->chain.ndim, form->shape, NULL, NULL);
    demand(status == LP_OK || (status == LP_E_UNSUPPORTED && (pads || !is_plain(&form->chain))));
    lp_chain_form again;
    if (status != LP_OK)
        return;
    check_found(&again, &found, place, form->units, form->shape, pads);
    demand(lp_chain_same(form, &again, 0).verdict != LP_CHAIN_DIFFERS);
    demand(lp_chain_same(form, &again, UNITS_MAX).verdict == LP_CHAIN_SAME);
}

static void check_text(const char *line, const uint8_t *sizes, size_t count)
{
    char text[TEXT_BYTES], second[TEXT_BYTES];
    lp_chain chain, again;
    lp_chain_form form;
    lp_error err = {0};
    const lp_status status = lp_chain_read(&chain, line, &err);
    if (status != LP_OK) {
        demand_error(status, &err);
        demand(status == LP_E_ARGUMENT);
        return;
    }
    demand(lp_chain_text(&chain, text, sizeof text) < sizeof text);
    demand(lp_chain_parse(&again, text, &err) == LP_OK);
    lp_chain_text(&again, second, sizeof second);
    demand(strcmp(text, second) == 0);
    int64_t shape[LP_CHAIN_DIMS];
    for (int32_t d = 0; d < chain.ndim; d++)
        shape[d] = (size_t)d < count ? sizes[d] : 1;
    const lp_status resolved = lp_chain_resolve(&form, &chain, shape, true, &err);
    if (resolved != LP_OK) {
        demand_error(resolved, &err);
        demand(resolved == LP_E_ARGUMENT || resolved == LP_E_LIMIT);
    } else {
        demand(lp_chain_same(&form, &form, 0).verdict == LP_CHAIN_SAME);
    }
    if (resolved == LP_OK && form.units <= UNITS_MAX) {
        check_places(&form);
        check_pieces(&form);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char line[512];
    size_t n = 0;
    while (n < bytes && n < sizeof line - 1 && data[n] != '\n') {
        line[n] = (char)data[n];
        n++;
    }
    line[n] = '\0';
    const uint8_t *const rest = data + (n < bytes ? n + 1 : n);
    const size_t left = (size_t)(data + bytes - rest);
    check_text(line, rest, left);
    if (left < 2)
        return 0;
    int64_t place[256];
    const int64_t count = left - 1 < 256 ? (int64_t)left - 1 : 256, rows = rest[0] > 0 ? rest[0] : 1;
    const int64_t shape[2] = {rows, count / rows};
    lp_chain found;
    lp_chain_form form;
    for (int64_t k = 0; k < count; k++)
        place[k] = rest[1 + k];
    if (lp_chain_identify(&found, place, count, 2, shape, NULL) == LP_OK)
        check_found(&form, &found, place, count, shape, false);
    return 0;
}
