/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_tool < FILES: our verdict on many safetensors files in memory, for the oracle that compares verdicts. The
 * input is a sequence of (uint32 length, bytes); for each the output is a line "accept N SUM" (tensors, and the sum of
 * Adler-32 over name, dtype, shape and data of each) or "refuse TEXT".
 */
#include "traces/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t read_memory(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    (void)fd;
    memcpy(buffer, (const unsigned char *)context + off, bytes); /* the reader stays inside the size it is given */
    return (int64_t)bytes;
}

static uint32_t adler32(uint32_t sum, const void *data, size_t bytes)
{
    uint32_t a = sum & 0xffff, b = sum >> 16;
    for (size_t i = 0; i < bytes; i++) {
        a = (a + ((const uint8_t *)data)[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static uint64_t sum_of(const lp_safetensors *s, const unsigned char *file)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const lp_safetensors_entry *e = &s->entry[i];
        const char *dtype = lp_dtype_name(e->dtype);
        uint32_t one = adler32(1, e->name, e->name_bytes);
        one = adler32(one, dtype, strlen(dtype));
        for (int32_t d = 0; d < e->ndim; d++) {
            char extent[24];
            one = adler32(one, extent, (size_t)snprintf(extent, sizeof extent, ",%" PRIu64, e->shape[d]));
        }
        sum += adler32(one, file + s->data_off + e->begin, (size_t)(e->end - e->begin));
    }
    return sum;
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
            printf("accept %" PRId64 " %" PRIu64 "\n", s.count, sum_of(&s, data));
            lp_safetensors_free(&s);
        } else {
            printf("refuse %s\n", err.text);
        }
        free(data);
    }
    return 0;
}
