/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the sidecar of a trace: refused with a reason, or what it says is found again. */
#include "replayer/replayer.h"
#include "tests/fuzz/memory_io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void take_hex(const char *text, uint8_t out[32])
{
    for (size_t i = 0; i < 32; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

/* The keys of the first load of a file that was taken: "load PLAN CONTENT RANK COUNT". */
static bool first_keys(const char *text, size_t bytes, uint8_t plan[32], uint8_t content[32], int32_t *rank)
{
    const char *line = memmem(text, bytes, "\nload ", 6);
    if (line == NULL)
        return false;
    take_hex(line + 6, plan);
    take_hex(line + 71, content);
    for (const char *digit = line + 136; *digit != ' '; digit++)
        *rank = *rank * 10 + (*digit - '0');
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    memory_io io;
    lp_sidecar *s = NULL;
    lp_error err = {0};
    memory_io_init(&io, "", (memory_file){data, bytes}, (memory_file){NULL, 0});
    const lp_platform platform = {.io = &io.table};
    const lp_status status = lp_sidecar_open(&s, "fuzz", &platform, &err);
    demand(io.open_files == 0);
    if (status != LP_OK) {
        demand_error(status, &err);
        demand(status != LP_E_INTERNAL && status != LP_E_ARGUMENT);
        return 0;
    }
    uint8_t plan[32] = {0}, content[32] = {0}, newest[32];
    int32_t rank = 0;
    const bool has_one = first_keys((const char *)data, bytes, plan, content, &rank);
    demand(lp_sidecar_has(s, plan, content, rank) == has_one);
    demand(lp_sidecar_newest(s, plan, rank, newest) == has_one);
    demand(lp_sidecar_find(s, plan, content, rank, "x") == NULL || has_one);
    lp_sidecar_close(s);
    return 0;
}
