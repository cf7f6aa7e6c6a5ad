/* SPDX-License-Identifier: Apache-2.0 */
/* Casts standard input to standard output: cast_tool FROM TO. For the oracle tests/python/cast_numpy.py. */
#include "traces/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const lp_dtype from = lp_dtype_parse(argv[1], strlen(argv[1])), to = lp_dtype_parse(argv[2], strlen(argv[2]));
    if (lp_cast_kind_of(from, to) == LP_CAST_UNSUPPORTED)
        return 3;
    const size_t in_bytes = (size_t)lp_dtype_bits(from) / 8, out_bytes = (size_t)lp_dtype_bits(to) / 8;
    size_t capacity = (size_t)1 << 24, used = 0;
    char *const in = malloc(capacity), *const out = malloc(capacity / in_bytes * out_bytes);
    if (in == NULL || out == NULL)
        return 4;
    used = fread(in, 1, capacity, stdin);
    const size_t count = used / in_bytes;
    const int failed = used == capacity || lp_cast_elements(from, in, to, out, (int64_t)count) != LP_OK ||
                       fwrite(out, out_bytes, count, stdout) != count || fflush(stdout) != 0;
    free(in);
    free(out);
    return failed;
}
