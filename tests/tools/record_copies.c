/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records a loader that copies every tensor of a checkpoint as it is:  record_copies CHECKPOINT TRACE
 * What tests/bench/cold_peers.py compares with loaders that hand out tensors as they lie in the files.
 */
#include "recorder/recorder.h"

#include <stdio.h>

static void load(lp_recorder *r, const lp_checkpoint *checkpoint)
{
    for (int64_t i = 0; i < lp_checkpoint_count(checkpoint); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(checkpoint, i);
        lp_declare(r, t->name, t->dtype, t->ndim, t->shape);
        lp_copy(lp_dest(r, t->name), lp_source(r, t->name));
    }
}

int main(int argc, char **argv)
{
    lp_error err;
    lp_checkpoint *checkpoint = NULL;
    lp_recorder *r = NULL;
    lp_status status = LP_OK;
    if (argc != 3) {
        fputs("usage: record_copies CHECKPOINT TRACE\n", stderr);
        return 2;
    }
    status = lp_checkpoint_open(&checkpoint, argv[1], &err);
    if (status == LP_OK)
        status = lp_recorder_open(&r, checkpoint, &(lp_scope){0}, &err);
    if (status == LP_OK) {
        load(r, checkpoint);
        status = lp_recorder_save(r, argv[2], &err);
    }
    if (status != LP_OK)
        fprintf(stderr, "%s\n", err.text);
    lp_recorder_close(r);
    lp_checkpoint_close(checkpoint);
    return status == LP_OK ? 0 : 1;
}
