/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of trace files, front-coded: a column of shared prefix lengths, a column of suffix lengths, then all suffixes.
 * Three streams rather than one, because the lengths of a checkpoint's names repeat exactly where the digits in the
 * names do not.
 */
#include "traces/column_codec.h"
#include "traces/json_pull.h"

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

/* Puts names together one behind the other; the lengths are known to fit. */
static void join_names(lp_unpacker *in, const char **name, int64_t count, const int64_t *shared, const int64_t *length,
                       bool sorted, char *text)
{
    const char *before = "";
    for (int64_t i = 0; i < count; i++) {
        char *tail = text + shared[i];
        memcpy(text, before, (size_t)shared[i]);
        memcpy(tail, in->at, (size_t)length[i]);
        tail[length[i]] = '\0';
        if (sorted && i > 0 && strcmp(before + shared[i], tail) >= 0) {
            in->failed = true;
            return;
        }
        in->at += length[i];
        name[i] = before = text;
        text = tail + length[i] + 1;
    }
}

lp_status lp_unpack_names(lp_unpacker *in, const char **name, int64_t count, bool sorted, int64_t *budget,
                          lp_arena *arena, lp_error *err)
{
    int64_t *length = lp_allocate(arena->alloc, 2 * (size_t)count * sizeof *length);
    if (length == NULL)
        return lp_fail_memory(err);
    int64_t *shared = length + count;
    int64_t before_bytes = 0, total = 0, tails = 0;
    lp_unpack_column(in, shared, count);
    lp_unpack_column(in, length, count);
    for (int64_t i = 0; i < count && !in->failed; i++) {
        const bool sane = shared[i] >= 0 && shared[i] <= before_bytes && length[i] >= 0 &&
                          length[i] <= LP_NAME_BYTES_MAX - shared[i] && length[i] <= in->end - in->at - tails &&
                          shared[i] + length[i] <= *budget;
        if (!sane) {
            in->failed = true;
            break;
        }
        before_bytes = shared[i] + length[i];
        *budget -= before_bytes;
        total += before_bytes + 1;
        tails += length[i];
    }
    in->failed = in->failed || memchr(in->at, 0, (size_t)tails) != NULL;
    lp_status status = LP_OK;
    if (!in->failed) {
        char *text = lp_arena_get(arena, (size_t)total);
        size_t bad_off;
        if (text == NULL) {
            status = lp_fail_memory(err);
        } else {
            join_names(in, name, count, shared, length, sorted, text);
            /* In one go: the NUL between two names is no part of any longer sequence. */
            in->failed = in->failed || !lp_utf8_is_valid(text, (size_t)total, &bad_off);
        }
    }
    lp_release(arena->alloc, length);
    return status;
}
