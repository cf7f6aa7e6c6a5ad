/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace of a loader that copies tensor `plain` of a checkpoint through a chain into `packed`.
 *
 *   record_chain LAYOUT|CHAIN CHECKPOINT TRACE [NAME=EXTENT...]
 *
 * LAYOUT names a chain of `loadplan layout`. Its unit must be an element of the tensor; padding is zeroed by the same
 * tensor, as in PyTorch.
 */
#include "layouts/layout.h"
#include "recorder/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lp_status set_extents(lp_chain *chain, int count, char **extents, lp_error *err)
{
    for (int i = 0; i < count; i++) {
        char *const equals = strchr(extents[i], '=');
        if (equals == NULL)
            return LP_E_ARGUMENT;
        *equals = '\0';
        const lp_status status = lp_chain_set(chain, extents[i], strtoll(equals + 1, NULL, 10), err);
        if (status != LP_OK)
            return status;
    }
    return LP_OK;
}

/* Whole where one view says it, else in pieces. */
static lp_status copy_all(lp_recorder *r, const lp_chain_form *form, lp_dtype dtype, lp_error *err)
{
    lp_view region, source;
    if (lp_chain_region(form, dtype, &region, NULL) == LP_OK) {
        lp_copy(lp_with_view(lp_dest(r, "packed"), &region), lp_source(r, "plain"));
        return LP_OK;
    }
    for (int64_t at = 0;;) {
        const lp_status status = lp_chain_piece(form, dtype, &at, &region, &source, err);
        if (status != LP_OK || at < 0)
            return status;
        lp_copy(lp_with_view(lp_dest(r, "packed"), &region), lp_with_view(lp_source(r, "plain"), &source));
    }
}

static lp_status record(lp_recorder *r, const lp_checkpoint *ck, const char *name, int count, char **extents,
                        lp_error *err)
{
    const lp_checkpoint_tensor *const t = lp_checkpoint_at(ck, 0);
    const lp_chain_known *const known = lp_chain_known_find(name);
    lp_chain chain;
    lp_chain_form form;
    lp_status status = lp_chain_parse(&chain, known != NULL ? known->chain : name, err);
    if (status == LP_OK)
        status = set_extents(&chain, count, extents, err);
    if (status == LP_OK)
        status = lp_chain_resolve(&form, &chain, t->shape, known == NULL || known->pads, err);
    if (status != LP_OK)
        return status;
    lp_declare(r, "packed", t->dtype, form.chain.out_ndim, form.out_shape);
    if (form.units != form.source_units)
        lp_zero(lp_dest(r, "packed"), lp_source(r, "plain"));
    return copy_all(r, &form, t->dtype, err);
}

int main(int argc, char **argv)
{
    lp_error err = {0};
    lp_checkpoint *ck = NULL;
    lp_recorder *r = NULL;
    int code = 1;
    if (argc < 4) {
        fputs("usage: record_chain LAYOUT|CHAIN CHECKPOINT TRACE [NAME=EXTENT...]\n", stderr);
        return 2;
    }
    if (lp_checkpoint_open(&ck, argv[2], &err) == LP_OK && lp_recorder_open(&r, ck, &(lp_scope){0}, &err) == LP_OK &&
        record(r, ck, argv[1], argc - 4, argv + 4, &err) == LP_OK && lp_recorder_save_over(r, argv[3], &err) == LP_OK)
        code = 0;
    if (code != 0)
        fprintf(stderr, "record_chain: %s\n", err.text);
    lp_recorder_close(r);
    lp_checkpoint_close(ck);
    return code;
}
