/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a header bundle: as its items, and as a whole file. What is taken is a sound catalogue without files. */
#include "tests/fuzz/memory_io.h"
#include "traces/checkpoint_bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void judge(lp_checkpoint *c, lp_status status, lp_error *err)
{
    if (status == LP_OK)
        status = lp_checkpoint_seal(c, err);
    if (status != LP_OK) {
        demand_error(status, err);
        demand(status != LP_E_INTERNAL && status != LP_E_ARGUMENT);
        return;
    }
    demand(lp_checkpoint_file_count(c) == 0 && lp_checkpoint_config(c) != NULL);
    int64_t sum = 0;
    for (int64_t i = 0; i < lp_checkpoint_count(c); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i);
        demand(t->file == -1 && t->file_off == -1 && t->bytes >= 0);
        demand(i == 0 || strcmp(lp_checkpoint_at(c, i - 1)->name, t->name) < 0);
        sum += t->bytes;
    }
    demand(sum == lp_checkpoint_bytes(c));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    lp_error err = {0};
    lp_checkpoint *c = NULL, *whole = NULL;
    demand(lp_checkpoint_new(&c, NULL, &err) == LP_OK);
    judge(c, lp_bundle_read_items(c, data, (int64_t)bytes, "fuzz", &err), &err);
    lp_checkpoint_close(c);

    memory_io io;
    memory_io_init(&io, "", (memory_file){data, bytes}, (memory_file){NULL, 0});
    const lp_platform platform = {.io = &io.table};
    demand(lp_checkpoint_new(&whole, &platform, &err) == LP_OK);
    judge(whole, lp_checkpoint_add_bundle(whole, "fuzz", &err), &err);
    demand(io.open_files == 0);
    lp_checkpoint_close(whole);
    return 0;
}
