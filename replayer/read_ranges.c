/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a checkpoint for a session: of every name that is still missing, the needed bytes and no others, in the order
 * in which they lie in the files. Names that the staging budget refuses are put off and tried again when others have
 * made room.
 */
#include "replayer/session.h"

#include <fcntl.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 8 << 20 };

typedef struct todo {
    uint32_t entry;
    const lp_checkpoint_tensor *tensor; /* in the checkpoint at hand */
} todo;

typedef struct reader {
    lp_session *s;
    const lp_checkpoint *checkpoint;
    const lp_io *io;
    uint8_t *chunk;
    int64_t chunk_bytes;
    int32_t file; /* that is open, or -1 */
    int fd;
    lp_file_stat opened;
    lp_read_stats stats;
    int64_t total;
    int (*progress)(void *context, int64_t done, int64_t total);
    void *context;
} reader;

/* ---- files ---- */

static const lp_checkpoint_file *open_file(const reader *r)
{
    return lp_checkpoint_file_at(r->checkpoint, r->file);
}

static lp_status stat_file(const reader *r, lp_file_stat *out, lp_error *err)
{
    const int code = r->io->stat(r->io->context, r->fd, out);
    return code < 0 ? lp_fail_errno(err, code, "stat", open_file(r)->path) : LP_OK;
}

static lp_status changed(const reader *r, lp_error *err)
{
    const char *path = open_file(r)->path;
    lp_fail_at(err, LP_E_CORRUPT, path, -1, "'%s' changed since its header was read", path);
    lp_hint(err, "wait until the checkpoint is complete, then load again");
    return LP_E_CORRUPT;
}

/* A file that changed while it was read may have given bytes of two versions. */
static lp_status close_file(reader *r, lp_error *err)
{
    if (r->file < 0)
        return LP_OK;
    lp_file_stat now;
    lp_status status = stat_file(r, &now, err);
    if (status == LP_OK && (now.size_bytes != r->opened.size_bytes || now.mtime_ns != r->opened.mtime_ns))
        status = lp_session_poison(r->s, changed(r, err), err);
    r->io->close(r->io->context, r->fd);
    r->file = -1;
    return status;
}

static lp_status use_file(reader *r, int32_t file, lp_error *err)
{
    if (r->file == file)
        return LP_OK;
    LP_TRY(close_file(r, err));
    const lp_checkpoint_file *f = lp_checkpoint_file_at(r->checkpoint, file);
    r->fd = r->io->open(r->io->context, f->path, O_RDONLY, 0);
    if (r->fd < 0)
        return lp_fail_errno(err, r->fd, "open", f->path);
    r->file = file;
    r->stats.files++;
    LP_TRY(stat_file(r, &r->opened, err));
    if (f->size_bytes >= 0 && r->opened.size_bytes < f->size_bytes)
        return lp_fail_at(err, LP_E_CORRUPT, f->path, r->opened.size_bytes,
                          "'%s' has %lld bytes, it had %lld when its header was read", f->path,
                          (long long)r->opened.size_bytes, (long long)f->size_bytes);
    if ((f->size_bytes >= 0 && r->opened.size_bytes != f->size_bytes) ||
        (f->mtime_ns != 0 && (r->opened.mtime_ns != f->mtime_ns || r->opened.inode != f->inode)))
        return changed(r, err);
    return LP_OK;
}

/* ---- ranges ---- */

static lp_status read_range(reader *r, const todo *t, int64_t lo, int64_t hi, lp_error *err)
{
    const lp_handle handle = r->s->plan->entry[t->entry].name;
    const lp_checkpoint_file *f = open_file(r);
    r->stats.ranges++;
    while (lo < hi) {
        /* Cuts at multiples of eight keep elements whole. */
        int64_t end = (lo + r->chunk_bytes) / 8 * 8;
        end = end < hi ? end : hi;
        LP_TRY(lp_read_exact(r->io, r->fd, f->path, r->chunk, end - lo, t->tensor->file_off + lo, err));
        LP_TRY(lp_push_handle_range(r->s, handle, lo, r->chunk, end - lo, err));
        r->stats.bytes_read += end - lo;
        if (r->progress != NULL && r->progress(r->context, r->stats.bytes_read, r->total) != 0)
            return lp_fail(err, LP_E_IO, "reading was stopped by the caller");
        lo = end;
    }
    return LP_OK;
}

/* The parts of [lo, hi) that have not arrived yet. */
static lp_status read_absent(reader *r, const todo *t, int64_t lo, int64_t hi, lp_error *err)
{
    const lp_track *track = &r->s->track[t->entry];
    int64_t first;
    while (lo < hi) {
        if (!lp_track_overlaps(track, lo, hi, &first))
            return read_range(r, t, lo, hi, err);
        if (first > lo)
            LP_TRY(read_range(r, t, lo, first, err));
        lo = lp_track_end(track, first);
    }
    return LP_OK;
}

static lp_status read_name(reader *r, const todo *t, lp_error *err)
{
    const lp_entry *e = &r->s->plan->entry[t->entry];
    lp_ranges ranges;
    lp_ranges_init(&ranges, r->s->alloc);
    lp_status status = lp_plan_entry_ranges(r->s->plan, e, &ranges, err);
    if (status == LP_OK && ranges.count == 0 && !r->s->track[t->entry].is_complete)
        status = lp_push_handle_range(r->s, e->name, 0, r->chunk, 0, err);
    if (status == LP_OK && ranges.count > 0)
        status = use_file(r, t->tensor->file, err);
    for (int64_t i = 0; status == LP_OK && i < ranges.count; i++)
        status = read_absent(r, t, ranges.item[i].lo, ranges.item[i].hi, err);
    lp_ranges_free(&ranges);
    return status;
}

/* ---- names ---- */

static int by_place(const void *a, const void *b)
{
    const lp_checkpoint_tensor *x = ((const todo *)a)->tensor, *y = ((const todo *)b)->tensor;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->file_off != y->file_off)
        return x->file_off < y->file_off ? -1 : 1;
    return ((const todo *)a)->entry < ((const todo *)b)->entry ? -1 : 1;
}

static lp_status same_type(const lp_checkpoint_tensor *want, const lp_checkpoint_tensor *have, lp_error *err)
{
    if (have != NULL && have->dtype == want->dtype && have->ndim == want->ndim &&
        (want->ndim == 0 || memcmp(have->shape, want->shape, (size_t)want->ndim * sizeof *want->shape) == 0))
        return LP_OK;
    lp_fail_at(err, LP_E_STALE, want->name, -1,
               have == NULL ? "stale trace: the checkpoint has no '%s'"
                            : "stale trace: '%s' has another dtype or shape than when it was recorded",
               want->name);
    lp_hint(err, "record again");
    return LP_E_STALE;
}

static lp_status list_names(reader *r, todo **out, int64_t *count, lp_error *err)
{
    const lp_session *s = r->s;
    const lp_plan *plan = s->plan;
    todo *list = lp_allocate(s->alloc, (plan->entry_count + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    *out = list;
    for (uint32_t e = 0; e < plan->entry_count; e++) {
        if (!s->track[e].is_expected || s->track[e].is_complete || plan->entry[e].use != LP_USE_LOADED)
            continue;
        const lp_checkpoint_tensor *want = lp_checkpoint_at(plan->catalogue, plan->entry[e].name);
        const int64_t index = lp_checkpoint_find(r->checkpoint, want->name);
        const lp_checkpoint_tensor *have = index < 0 ? NULL : lp_checkpoint_at(r->checkpoint, index);
        LP_TRY(same_type(want, have, err));
        if (plan->entry[e].reads && (have->file < 0 || have->file_off < 0))
            return lp_fail_at(err, LP_E_ARGUMENT, want->name, -1,
                              "'%s' has no file: the checkpoint is a catalogue only", want->name);
        list[(*count)++] = (todo){e, have};
        r->total += plan->entry[e].need_hi - plan->entry[e].need_lo;
    }
    if (*count > 0)
        qsort(list, (size_t)*count, sizeof *list, by_place);
    return LP_OK;
}

/* One round over the list; what the budget refuses stays on it. */
static lp_status read_round(reader *r, todo *list, int64_t *count, lp_error *err)
{
    int64_t kept = 0;
    lp_status refusal = LP_OK;
    const int64_t before = *count;
    for (int64_t i = 0; i < before; i++) {
        const lp_entry *e = &r->s->plan->entry[list[i].entry];
        const lp_status status =
            lp_session_reserve(r->s, list[i].entry, e->need_lo, e->need_hi - e->need_lo, kept == 0 ? err : NULL);
        if (status == LP_E_LIMIT) {
            refusal = status;
            list[kept++] = list[i];
            continue;
        }
        LP_TRY(status);
        LP_TRY(read_name(r, &list[i], err));
    }
    *count = kept;
    return kept == before ? refusal : LP_OK; /* nothing moved: *err says why */
}

lp_status lp_push_checkpoint_with(lp_session *s, const lp_checkpoint *checkpoint, lp_read_stats *stats,
                                  int (*progress)(void *context, int64_t done, int64_t total), void *context,
                                  lp_error *err)
{
    lp_error own = {.code = LP_OK}, *e = err == NULL ? &own : err;
    LP_TRY(lp_session_usable(s, e));
    if (s->mode == LP_DUMMY || s->mode == LP_META)
        return lp_fail(e, LP_E_MISUSE, "a session without bytes reads no checkpoint");
    reader r = {
        .s = s,
        .checkpoint = checkpoint,
        .io = s->plan->platform.io,
        .chunk_bytes = CHUNK_BYTES,
        .file = -1,
        .fd = -1,
        .progress = progress,
        .context = context,
    };
    todo *list = NULL;
    int64_t count = 0;
    lp_status status = LP_OK;
    r.chunk = lp_allocate(s->alloc, CHUNK_BYTES);
    if (r.chunk == NULL) {
        status = lp_fail_memory(e);
        goto release;
    }
    LP_TRY_GOTO(list_names(&r, &list, &count, e), release);
    while (status == LP_OK && count > 0)
        status = read_round(&r, list, &count, e);
release:
    if (r.file >= 0) {
        lp_error second = {.code = LP_OK};
        const lp_status closed = close_file(&r, status == LP_OK ? e : &second);
        status = status == LP_OK ? closed : status;
    }
    lp_release(s->alloc, list);
    lp_release(s->alloc, r.chunk);
    if (stats != NULL)
        *stats = r.stats;
    return status;
}

lp_status lp_push_checkpoint(lp_session *s, const lp_checkpoint *checkpoint, lp_error *err)
{
    return lp_push_checkpoint_with(s, checkpoint, NULL, NULL, NULL, err);
}
