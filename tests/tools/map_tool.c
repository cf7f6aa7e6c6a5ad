/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte maps for an oracle outside: each line of the input is a copy, "VIEW into VIEW", where VIEW is a dtype, a rank, a
 * shape and operations; the answer is the runs of its map, or the name of the status. An operation that is no view
 * ends the line with "view STATUS", so that the oracle can judge that too.
 */
#include "traces/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBERS = 16 };

static char *next_token(void)
{
    return strtok(NULL, " \n");
}

static int64_t next_number(void)
{
    const char *token = next_token();
    if (token == NULL)
        exit(2);
    return strcmp(token, "none") == 0 ? LP_SLICE_END : strtoll(token, NULL, 10);
}

static int next_list(int64_t *list)
{
    const int count = (int)next_number();
    if (count < 0 || count > MAX_NUMBERS)
        exit(2);
    for (int i = 0; i < count; i++)
        list[i] = next_number();
    return count;
}

static lp_status apply(lp_view *v, const char *op)
{
    int64_t list[MAX_NUMBERS];
    int dims[MAX_NUMBERS];
    if (strcmp(op, "permute") == 0) {
        const int count = next_list(list);
        for (int i = 0; i < count; i++)
            dims[i] = (int)list[i];
        return lp_view_permute(v, count, dims, NULL);
    }
    if (strcmp(op, "reshape") == 0) {
        const int count = next_list(list);
        return lp_view_reshape(v, count, list, NULL);
    }
    if (strcmp(op, "expand") == 0) {
        const int count = next_list(list);
        return lp_view_expand(v, count, list, NULL);
    }
    if (strcmp(op, "dtype") == 0) {
        const char *name = next_token();
        return lp_view_dtype(v, lp_dtype_parse(name, strlen(name)), NULL);
    }
    const int64_t a = next_number(), b = next_number(), c = next_number(), d = next_number();
    if (strcmp(op, "narrow") == 0)
        return lp_view_narrow(v, (int)a, b, c, NULL);
    if (strcmp(op, "select") == 0)
        return lp_view_select(v, (int)a, b, NULL);
    if (strcmp(op, "slice") == 0)
        return lp_view_slice(v, (int)a, b, c, d, NULL);
    if (strcmp(op, "diagonal") == 0)
        return lp_view_diagonal(v, a, (int)b, (int)c, NULL);
    exit(2);
}

/* Up to "into" or the end of the line; *bytes: of the tensor below the view. */
static lp_status read_view(const char *dtype, lp_view *v, int64_t *bytes)
{
    int64_t shape[MAX_NUMBERS];
    const lp_dtype type = lp_dtype_parse(dtype, strlen(dtype));
    const int ndim = next_list(shape);
    lp_status status = lp_view_contiguous(v, type, ndim, shape, NULL);
    *bytes = status == LP_OK ? lp_view_count(v) * lp_dtype_bits(type) / 8 : 0;
    for (const char *op = next_token(); op != NULL && strcmp(op, "into") != 0; op = next_token()) {
        const lp_status one = apply(v, op);
        status = status == LP_OK ? one : status;
    }
    return status;
}

static int print_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    (void)context;
    printf(" %lld %lld %lld", (long long)dst_off, (long long)src_off, (long long)count);
    return 0;
}

int main(void)
{
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        lp_view src, dst;
        int64_t src_bytes, dst_bytes;
        const char *src_dtype = strtok(line, " \n");
        if (src_dtype == NULL)
            continue;
        const lp_status src_status = read_view(src_dtype, &src, &src_bytes);
        const char *dst_dtype = next_token();
        if (dst_dtype == NULL)
            return 2;
        const lp_status dst_status = read_view(dst_dtype, &dst, &dst_bytes);
        if (src_status != LP_OK || dst_status != LP_OK) {
            printf("view %s %s\n", lp_status_name(src_status), lp_status_name(dst_status));
            continue;
        }
        const lp_map *map = NULL;
        const lp_status status = lp_map_copy(&map, &dst, dst_bytes, &src, src_bytes, NULL, NULL);
        if (status != LP_OK) {
            printf("copy %s\n", lp_status_name(status));
            continue;
        }
        printf("ok %d", map->nbox);
        lp_map_walk(map, print_run, NULL);
        printf("\n");
        lp_map_free(map, NULL);
    }
    return 0;
}
