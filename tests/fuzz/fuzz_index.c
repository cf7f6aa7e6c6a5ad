/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the index of a checkpoint whose every shard holds the tensors "a" and "b". */
#include "tests/fuzz/memory_io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char shard[] = "\x71\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                "\"b\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[1,5]}}     12345";
    memory_io io;
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    memory_io_init(&io, ".index.json", (memory_file){data, bytes}, (memory_file){shard, sizeof shard - 1});
    const lp_platform platform = {.io = &io.table};
    const lp_status status = lp_checkpoint_open_with(&c, "fuzz.safetensors.index.json", &platform, &err);
    demand(io.open_files == 0);
    if (status != LP_OK) {
        demand(c == NULL);
        demand_error(status, &err);
        return 0;
    }
    const int64_t count = lp_checkpoint_count(c);
    for (int64_t i = 0; i < count; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i);
        demand(lp_checkpoint_find(c, t->name) == i);
        demand(i == 0 || strcmp(lp_checkpoint_at(c, i - 1)->name, t->name) < 0);
        demand(t->file >= 0 && t->file < lp_checkpoint_file_count(c));
        demand(t->file_off >= 0 && t->file_off + t->bytes <= lp_checkpoint_file_at(c, t->file)->size_bytes);
    }
    lp_checkpoint_close(c);
    return 0;
}
