/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of trace files, front-coded: a column of shared prefix lengths, a column of suffix lengths, then all suffixes.
 * Three streams rather than one, because the lengths of a checkpoint's names repeat exactly where the digits in the
 * names do not.
 */
#include "traces/column_codec.h"

static int64_t shared_prefix(const char *a, const char *b)
{
    int64_t n = 0;
    while (a[n] != '\0' && a[n] == b[n])
        n++;
    return n;
}

lp_status lp_pack_names(lp_text *out, const char *const *name, int64_t count, const lp_alloc *alloc, lp_error *err)
{
    lp_status status = LP_OK;
    const char *before = "";
    int64_t *length = lp_allocate(alloc, 2 * (size_t)count * sizeof *length);
    if (length == NULL)
        return lp_fail_memory(err);
    int64_t *shared = length + count;
    for (int64_t i = 0; i < count; i++) {
        shared[i] = shared_prefix(before, name[i]);
        length[i] = (int64_t)strlen(name[i] + shared[i]);
        if (shared[i] + length[i] > LP_NAME_BYTES_MAX) {
            status = lp_fail(err, LP_E_LIMIT, "a name of %lld bytes is longer than the limit of %d: '%.64s...'",
                             (long long)(shared[i] + length[i]), LP_NAME_BYTES_MAX, name[i]);
            goto release;
        }
        before = name[i];
    }
    lp_pack_column(out, shared, count);
    lp_pack_column(out, length, count);
    for (int64_t i = 0; i < count; i++)
        lp_text_add(out, name[i] + shared[i], (size_t)length[i]);
    if (out->failed)
        status = lp_fail_memory(err);
release:
    lp_release(alloc, length);
    return status;
}

lp_status lp_unpack_names(lp_unpacker *in, const char **name, int64_t count, bool sorted, int64_t *budget,
                          lp_arena *arena, lp_error *err)
{
    const char *before = "";
    int64_t before_bytes = 0;
    int64_t *length = lp_allocate(arena->alloc, 2 * (size_t)count * sizeof *length);
    if (length == NULL)
        return lp_fail_memory(err);
    int64_t *shared = length + count;
    lp_unpack_column(in, shared, count);
    lp_unpack_column(in, length, count);
    for (int64_t i = 0; i < count && !in->failed; i++) {
        const bool sane = shared[i] >= 0 && shared[i] <= before_bytes && length[i] >= 0 &&
                          length[i] <= LP_NAME_BYTES_MAX - shared[i] && length[i] <= in->end - in->at &&
                          shared[i] + length[i] <= *budget;
        if (!sane || memchr(in->at, 0, (size_t)length[i]) != NULL) {
            in->failed = true;
            break;
        }
        const int64_t bytes = shared[i] + length[i];
        char *text = lp_arena_get(arena, (size_t)bytes + 1);
        if (text == NULL) {
            lp_release(arena->alloc, length);
            return lp_fail_memory(err);
        }
        memcpy(text, before, (size_t)shared[i]);
        memcpy(text + shared[i], in->at, (size_t)length[i]);
        text[bytes] = '\0';
        in->at += length[i];
        *budget -= bytes;
        if (sorted && i > 0 && strcmp(before, text) >= 0)
            in->failed = true;
        name[i] = before = text;
        before_bytes = bytes;
    }
    lp_release(arena->alloc, length);
    return LP_OK;
}
