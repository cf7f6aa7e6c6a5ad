/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes: judged before anything is done, counted after everything is done. */
#include "replayer/device_session.h"
#include "replayer/session.h"

#include <stdio.h>

/* ---- state ---- */

lp_status lp_session_poison(lp_session *s, lp_status status, lp_error *err)
{
    s->state = LP_SESSION_POISONED;
    snprintf(s->reason, sizeof s->reason, "%.399s", err != NULL ? err->text : lp_strerror(status));
    return status;
}

lp_status lp_session_usable(const lp_session *s, lp_error *err)
{
    if (s->state == LP_SESSION_POISONED)
        return lp_fail(err, LP_E_POISONED, "the session is poisoned: %s", s->reason);
    if (s->state == LP_SESSION_DONE)
        return lp_fail(err, LP_E_MISUSE, "the session is finished");
    return LP_OK;
}

/* ---- judge ---- */

lp_status lp_session_judge(const lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                           uint32_t *entry, lp_error *err)
{
    const lp_plan *plan = s->plan;
    LP_TRY(lp_session_usable(s, err));
    if (s->mode == LP_DUMMY)
        return lp_fail(err, LP_E_MISUSE, "a dummy load takes no pushes");
    if (handle >= lp_checkpoint_count(plan->catalogue))
        return lp_fail(err, LP_E_UNKNOWN_NAME, "there is no name with the handle %u", handle);
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(plan->catalogue, handle);
    if (off < 0 || bytes < 0 || off > tensor->bytes || bytes > tensor->bytes - off)
        return lp_fail_at(err, LP_E_MISMATCH, tensor->name, off, "bytes %lld to %lld do not lie in '%s' of %lld bytes",
                          (long long)off, (long long)off + (bytes > 0 ? bytes : 0), tensor->name,
                          (long long)tensor->bytes);
    if (data == NULL && bytes > 0 && s->mode != LP_META)
        return lp_fail_at(err, LP_E_ARGUMENT, tensor->name, -1, "'%s' is pushed without data", tensor->name);
    *entry = plan->entry_of[handle];
    if (*entry == LP_NONE)
        return LP_OK;
    if (plan->entry[*entry].use == LP_USE_FALLBACK) {
        lp_fail_at(err, LP_E_REFUSED, tensor->name, -1, "'%s' is a fallback: its loader is not views and copies",
                   tensor->name);
        lp_hint(err, "load it by its own code, then mark it as loaded");
        return LP_E_REFUSED;
    }
    const lp_track *track = &s->track[*entry];
    if (!track->is_expected)
        return lp_fail_at(err, LP_E_UNKNOWN_NAME, tensor->name, -1, "'%s' is not in the subset of this session",
                          tensor->name);
    int64_t first = 0;
    if (lp_track_overlaps(track, off, off + bytes, &first) || (tensor->bytes == 0 && track->is_seen))
        return lp_fail_at(err, LP_E_DUPLICATE, tensor->name, first, "byte %lld of '%s' was pushed before",
                          (long long)first, tensor->name);
    return LP_OK;
}

/* ---- arrive ---- */

/* True when nothing of the name is missing any more. */
static bool count_needed(lp_session *s, lp_track *track, int64_t bytes)
{
    track->need_left -= bytes;
    if (track->need_left > 0)
        return false;
    lp_ranges_free(track->need);
    lp_release(s->alloc, track->need);
    track->need = NULL;
    return true;
}

void lp_session_count(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, bool *is_complete)
{
    const lp_entry *e = &s->plan->entry[entry];
    lp_track *track = &s->track[entry];
    *is_complete = false;
    lp_track_add(track, off, off + bytes);
    s->report.bytes_pushed += bytes;
    if (track->is_complete)
        return;
    if (track->need != NULL) {
        *is_complete = count_needed(s, track, lp_ranges_covered(track->need, off, off + bytes));
        return;
    }
    *is_complete = !e->reads || (off <= e->need_lo && off + bytes >= e->need_hi);
}

void lp_session_count_runs(lp_session *s, uint32_t entry, int64_t lo, int64_t run, int64_t stride, int64_t count,
                           bool *is_complete)
{
    lp_track *track = &s->track[entry];
    s->report.bytes_pushed += run * count;
    *is_complete =
        !track->is_complete && count_needed(s, track, lp_ranges_covered_runs(track->need, lo, run, stride, count));
}

lp_status lp_session_arrive(lp_session *s, uint32_t entry, int64_t off, int64_t bytes, lp_error *err)
{
    bool is_complete;
    lp_session_count(s, entry, off, bytes, &is_complete);
    if (!is_complete)
        return LP_OK;
    lp_session_flush_cells(s, entry);
    const lp_status status = lp_session_complete(s, entry, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}

/* A failure needs a reason to be kept even when the caller does not ask for one. */
#define WITH_ERROR(err)                                                                                                \
    lp_error own_error_ = {.code = LP_OK};                                                                             \
    (err) = (err) == NULL ? &own_error_ : (err)

lp_status lp_session_admit(lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                           uint32_t *entry, lp_error *err)
{
    LP_TRY(lp_session_judge(s, handle, off, data, bytes, entry, err));
    if (*entry == LP_NONE)
        return LP_OK;
    LP_TRY(lp_session_reserve(s, *entry, off, bytes, err));
    lp_session_start_writing(s);
    lp_session_first_touch(s, *entry);
    return LP_OK;
}

lp_status lp_push_handle_range(lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                               lp_error *err)
{
    uint32_t entry = LP_NONE;
    WITH_ERROR(err);
    if (s->on != NULL)
        return lp_device_push_range(s, handle, off, data, bytes, LP_SOURCE_ASK, err);
    LP_TRY(lp_session_admit(s, handle, off, data, bytes, &entry, err));
    if (entry == LP_NONE) {
        s->report.names_ignored += off == 0;
        return LP_OK;
    }
    lp_session_write(s, entry, off, data, bytes);
    return lp_session_arrive(s, entry, off, bytes, err);
}

static lp_status find_handle(const lp_session *s, const char *name, lp_handle *handle, lp_error *err)
{
    LP_TRY(lp_session_usable(s, err));
    *handle = lp_plan_handle(s->plan, name);
    if (*handle == LP_NONE)
        return lp_fail_at(err, LP_E_UNKNOWN_NAME, name, -1, "the plan does not know '%s'", name);
    return LP_OK;
}

lp_status lp_push_range(lp_session *s, const char *name, int64_t off, const void *data, int64_t bytes, lp_error *err)
{
    lp_handle handle;
    LP_TRY(find_handle(s, name, &handle, err));
    return lp_push_handle_range(s, handle, off, data, bytes, err);
}

/* ---- whole tensors ---- */

static const char *shape_text(char *buffer, size_t buffer_bytes, lp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    size_t used = (size_t)snprintf(buffer, buffer_bytes, "%s [", lp_dtype_name(dtype));
    for (int32_t i = 0; i < ndim && used + 24 < buffer_bytes; i++)
        used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    snprintf(buffer + used, buffer_bytes - used, "]");
    return buffer;
}

static lp_status compare_type(const lp_checkpoint_tensor *tensor, const lp_buffer *b, lp_error *err)
{
    char have[160], want[160];
    if (b->dtype != tensor->dtype || b->ndim != tensor->ndim ||
        (b->ndim > 0 && memcmp(b->shape, tensor->shape, (size_t)b->ndim * sizeof *b->shape) != 0))
        return lp_fail_at(err, LP_E_MISMATCH, tensor->name, -1, "'%s' is pushed as %s, the plan knows it as %s",
                          tensor->name, shape_text(have, sizeof have, b->dtype, b->ndim, b->shape),
                          shape_text(want, sizeof want, tensor->dtype, tensor->ndim, tensor->shape));
    if (b->bytes != 0 && b->bytes != tensor->bytes)
        return lp_fail_at(err, LP_E_MISMATCH, tensor->name, -1, "'%s' is pushed with %lld bytes, it has %lld",
                          tensor->name, (long long)b->bytes, (long long)tensor->bytes);
    return LP_OK;
}

/* Whether the buffer is row-major without gaps. */
static bool is_dense(const lp_checkpoint_tensor *tensor, const lp_buffer *b)
{
    const int bits = lp_dtype_bits(b->dtype);
    int64_t dense = bits; /* of the row below, in bits */
    if (b->stride == NULL || tensor->bytes == 0)
        return true;
    for (int32_t i = b->ndim - 1; i >= 0; i--) {
        const bool has_no_stride = bits < 8 && i == b->ndim - 1; /* strides are bytes */
        if (b->shape[i] > 1 && !has_no_stride && b->stride[i] * 8 != dense)
            return false;
        dense *= b->shape[i];
    }
    return true;
}

typedef struct strided_push {
    lp_session *s;
    uint32_t entry;
    int64_t off;
} strided_push;

static lp_status write_piece(void *context, const void *data, int64_t bytes, lp_error *err)
{
    strided_push *p = context;
    (void)err;
    lp_session_write(p->s, p->entry, p->off, data, bytes);
    p->off += bytes;
    return LP_OK;
}

lp_status lp_push(lp_session *s, const char *name, const lp_buffer *buffer, lp_error *err)
{
    lp_handle handle;
    uint32_t entry = LP_NONE;
    lp_form form;
    WITH_ERROR(err);
    LP_TRY(find_handle(s, name, &handle, err));
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(s->plan->catalogue, handle);
    LP_TRY(compare_type(tensor, buffer, err));
    if (s->on != NULL && is_dense(tensor, buffer))
        return lp_device_push_range(s, handle, 0, buffer->data, tensor->bytes, buffer->memory, err);
    if (s->mode == LP_META || is_dense(tensor, buffer))
        return lp_push_handle_range(s, handle, 0, buffer->data, tensor->bytes, err);
    if (buffer->ndim > LP_FORM_DIMS)
        return lp_fail_at(err, LP_E_LIMIT, name, -1, "'%s' is pushed with %d strided dimensions, %d are supported",
                          name, buffer->ndim, LP_FORM_DIMS);
    const lp_destination like = {
        .dtype = buffer->dtype, .ndim = buffer->ndim, .shape = buffer->shape, .stride = buffer->stride};
    lp_destination_form(&like, &form);
    if (s->on != NULL)
        return lp_device_push_strided(s, handle, &form, buffer->data, buffer->memory, err);
    LP_TRY(lp_session_judge(s, handle, 0, buffer->data, tensor->bytes, &entry, err));
    if (entry == LP_NONE) {
        s->report.names_ignored++;
        return LP_OK;
    }
    LP_TRY(lp_session_reserve(s, entry, 0, tensor->bytes, err));
    strided_push p = {.s = s, .entry = entry};
    lp_session_start_writing(s);
    lp_session_first_touch(s, entry);
    const lp_status status = lp_form_walk(&form, buffer->data, s->alloc, write_piece, &p, err);
    if (status != LP_OK)
        return lp_session_poison(s, status, err);
    return lp_session_arrive(s, entry, 0, tensor->bytes, err);
}

lp_status lp_push_many(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count, lp_error *err)
{
    uint32_t entry = LP_NONE;
    WITH_ERROR(err);
    if (s->on != NULL)
        return lp_device_push_many(s, handle, data, count, err);
    s->stamp++;
    for (int64_t i = 0; i < count; i++) {
        const bool is_known = handle[i] < lp_checkpoint_count(s->plan->catalogue);
        const int64_t bytes = is_known ? lp_checkpoint_at(s->plan->catalogue, handle[i])->bytes : 0;
        LP_TRY(lp_session_judge(s, handle[i], 0, data[i], bytes, &entry, err));
        if (entry != LP_NONE && s->entry_stamp[entry] == s->stamp) {
            const char *name = lp_checkpoint_at(s->plan->catalogue, handle[i])->name;
            return lp_fail_at(err, LP_E_DUPLICATE, name, 0, "'%s' is pushed twice in one call", name);
        }
        if (entry != LP_NONE)
            s->entry_stamp[entry] = s->stamp;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t bytes = lp_checkpoint_at(s->plan->catalogue, handle[i])->bytes;
        LP_TRY(lp_push_handle_range(s, handle[i], 0, data[i], bytes, err));
    }
    return LP_OK;
}
