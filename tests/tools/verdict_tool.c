/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_tool < FILES: our verdict on many safetensors files in memory, for the oracle that compares verdicts. The
 * input is a sequence of (uint32 length, bytes); for each the output is a line "accept N" (tensors) or "refuse TEXT".
 */
#include "traces/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t read_memory(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    (void)fd;
    memcpy(buffer, (const unsigned char *)context + off, bytes); /* the reader stays inside the size it is given */
    return (int64_t)bytes;
}

int main(void)
{
    uint32_t bytes;
    while (fread(&bytes, sizeof bytes, 1, stdin) == 1) {
        unsigned char *data = malloc((size_t)bytes + 1);
        if (data == NULL || fread(data, 1, bytes, stdin) != bytes)
            return 1;
        const lp_io io = {.size = sizeof io, .context = data, .pread = read_memory};
        const lp_platform platform = {.io = &io};
        lp_safetensors s;
        lp_error err;
        if (lp_safetensors_read(&s, &platform, 0, "x", bytes, &err) == LP_OK) {
            printf("accept %lld\n", (long long)s.count);
            lp_safetensors_free(&s);
        } else {
            printf("refuse %s\n", err.text);
        }
        free(data);
    }
    return 0;
}
