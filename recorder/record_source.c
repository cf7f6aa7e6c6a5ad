/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that a loader starts from, which are the checkpoint's, and what it may ask of any tensor. */
#include "recorder/record_private.h"

/* ---- checkpoint tensors ---- */

bool lp_has(const lp_recorder *r, const char *name)
{
    return lp_checkpoint_find(r->checkpoint, name) >= 0;
}

lp_tensor lp_source_index_at(const char *file, int line, lp_recorder *r, int64_t index)
{
    if (r->misuse.code != LP_OK)
        return rec_invalid(r);
    if (index < 0 || index >= lp_checkpoint_count(r->checkpoint))
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "there is no checkpoint tensor number %lld", (long long)index);
    const lp_checkpoint_tensor *c = lp_checkpoint_at(r->checkpoint, index);
    lp_tensor t = {.recorder = r, .base = (uint32_t)index, .kind = LP_TENSOR_SOURCE};
    lp_error err;
    if (lp_view_contiguous(&t.view, c->dtype, c->ndim, c->shape, &err) != LP_OK)
        return rec_misuse(file, line, r, err.code, "checkpoint tensor '%s': %s", c->name, err.text);
    return t;
}

/* The name that shares the longest beginning and end with a missing one: a hint, not a verdict. Bounded, because it
 * runs once: misuse is sticky. */
static const char *nearest_name(const lp_checkpoint *c, const char *name)
{
    const char *best = NULL;
    size_t best_score = 0;
    const size_t length = strlen(name);
    for (int64_t i = 0; i < lp_checkpoint_count(c); i++) {
        const char *other = lp_checkpoint_at(c, i)->name;
        const size_t other_length = strlen(other);
        const size_t least = length < other_length ? length : other_length;
        size_t head = 0, tail = 0;
        while (head < least && name[head] == other[head])
            head++;
        while (tail < least - head && name[length - 1 - tail] == other[other_length - 1 - tail])
            tail++;
        const size_t longest = length > other_length ? length : other_length;
        const size_t score = longest == 0 ? 0 : 1000 * (head + tail) / longest;
        if (score > best_score) {
            best_score = score;
            best = other;
        }
    }
    return best_score >= 500 ? best : NULL;
}

lp_tensor lp_source_at(const char *file, int line, lp_recorder *r, const char *name)
{
    if (r->misuse.code != LP_OK)
        return rec_invalid(r);
    const int64_t index = lp_checkpoint_find(r->checkpoint, name);
    if (index >= 0)
        return lp_source_index_at(file, line, r, index);
    lp_error err;
    lp_fail_at(&err, LP_E_UNKNOWN_NAME, name, -1, "no checkpoint tensor '%s'", name);
    const char *near = nearest_name(r->checkpoint, name);
    if (near != NULL)
        lp_hint(&err, "there is '%s'", near);
    return rec_misuse_error(file, line, r, &err);
}

void lp_decline(lp_recorder *r, const char *name)
{
    char family[1024];
    if (r->misuse.code != LP_OK || !lp_has(r, name))
        return;
    const size_t bytes = lp_family_template(name, family, sizeof family);
    if (bytes >= sizeof family)
        return; /* check will call it unused, which is a warning */
    const int64_t before = r->declined.count;
    const int64_t number = lp_strings_add(&r->declined, family, bytes);
    if (number < 0) {
        rec_no_memory(r);
        return;
    }
    lp_error err;
    if (number == before) {
        const lp_status status = lp_trace_decline(r->trace, name, &err);
        if (status != LP_OK && status != LP_E_LIMIT)
            rec_misuse_error(__FILE__, __LINE__, r, &err);
    }
}

lp_tensor lp_at_begin(lp_recorder *r)
{
    return (lp_tensor){.recorder = r, .kind = LP_TENSOR_BEGIN};
}

uint64_t lp_bits_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- asking ---- */

bool lp_is_valid(lp_tensor t)
{
    return t.kind != LP_TENSOR_INVALID && t.kind != LP_TENSOR_BEGIN;
}

int lp_dim(lp_tensor t)
{
    return lp_is_valid(t) ? t.view.ndim : 0;
}

int64_t lp_size(lp_tensor t, int dim)
{
    const int n = lp_dim(t);
    const int d = dim < 0 ? dim + n : dim;
    return d >= 0 && d < n ? t.view.size[d] : 1;
}

int64_t lp_count(lp_tensor t)
{
    return lp_is_valid(t) ? lp_view_count(&t.view) : 0;
}

lp_dtype lp_dtype_of(lp_tensor t)
{
    if (!lp_is_valid(t))
        return LP_DTYPE_NONE;
    return t.cast_to != 0 ? (lp_dtype)t.cast_to : t.view.dtype;
}
