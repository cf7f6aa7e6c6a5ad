/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file: refused with a reason, or every tensor lies where the header says and nowhere else.
 */
#include "tests/fuzz/memory_io.h"
#include "traces/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    memory_io io;
    lp_safetensors s;
    lp_error err = {0};
    memory_io_init(&io, "", (memory_file){data, bytes}, (memory_file){NULL, 0});
    const lp_platform platform = {.io = &io.table};
    const lp_status status = lp_safetensors_read(&s, &platform, 0, "fuzz", (int64_t)bytes, &err);
    if (status != LP_OK) {
        demand_error(status, &err);
        return 0;
    }
    uint64_t end = 0;
    for (int64_t i = 0; i < s.count; i++) {
        const lp_safetensors_entry *e = &s.entry[i];
        demand(e->begin == end && e->end >= e->begin);
        demand(lp_dtype_bits(e->dtype) > 0 && strlen(e->name) <= e->name_bytes);
        demand(lp_strings_find(&s.names, e->name, e->name_bytes) >= 0);
        end = e->end;
    }
    demand((uint64_t)s.data_off + end == bytes);
    demand(s.names.count == s.count);
    lp_safetensors_free(&s);
    return 0;
}
