/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a checkpoint for a session: of every name that is still missing, the needed bytes and no others, in the order
 * in which they lie in the files. Names that the staging budget refuses are put off and tried again when others have
 * made room. Reading itself runs ahead, see read_ring.h.
 */
#include "replayer/device_session.h"
#include "replayer/file_residency.h"
#include "replayer/read_names.h"
#include "replayer/read_ring.h"

#include <fcntl.h>

enum {
    CHUNK_BYTES = 1 << 20,
    READERS_MAX = 16,             /* more do not read faster, and each has a slot */
    ALONE_BYTES = 4 << 20,        /* less is read before a thread is started */
    DIRECT_LEAST_BYTES = 16 << 20 /* of a file, to be worth a look at what is cached */
};

typedef struct reader {
    lp_session *s;
    const lp_checkpoint *checkpoint;
    const lp_io *io;
    lp_ring *ring;
    int32_t file; /* that is open, or -1 */
    lp_ring_file open;
    int64_t *file_bytes; /* by file: needed of it, at most; -1: none */
    lp_file_stat opened;
    lp_read_stats stats;
    int64_t done, total;
    int (*progress)(void *context, int64_t done, int64_t total);
    void *context;
} reader;

/* ---- files ---- */

static lp_status stat_file(const reader *r, lp_file_stat *out, lp_error *err)
{
    const int code = r->io->stat(r->io->context, r->open.fd, out);
    return code < 0 ? lp_fail_errno(err, code, "stat", r->open.path) : LP_OK;
}

static lp_status changed(const reader *r, lp_error *err)
{
    lp_fail_at(err, LP_E_CORRUPT, r->open.path, -1, "'%s' changed since its header was read", r->open.path);
    lp_hint(err, "wait until the checkpoint is complete, then load again");
    return LP_E_CORRUPT;
}

/* A file that changed while it was read may have given bytes of two versions. No read of it is under way. */
static lp_status close_file(reader *r, lp_error *err)
{
    if (r->file < 0)
        return LP_OK;
    const lp_platform *platform = &r->s->plan->platform;
    lp_file_stat now;
    lp_status status = stat_file(r, &now, err);
    if (status == LP_OK && (now.size_bytes != r->opened.size_bytes || now.mtime_ns != r->opened.mtime_ns))
        status = lp_session_poison(r->s, changed(r, err), err);
    if (r->open.direct_fd >= 0) {
        if (lp_ring_fell_back(r->ring))
            lp_log(platform, LP_LOG_INFO, "replay", "'%s': a direct read was refused, read through the cache",
                   r->open.path);
        r->io->close(r->io->context, r->open.direct_fd);
    }
    r->io->close(r->io->context, r->open.fd);
    r->file = -1;
    return status;
}

/* Around the page cache where most of the file is not in it: then the cache only costs. */
static int open_direct(const reader *r, int64_t needed)
{
    const lp_platform *platform = &r->s->plan->platform;
    const char *path = r->open.path;
    if (needed < DIRECT_LEAST_BYTES)
        return -1;
    const int resident = lp_file_residency(r->open.fd, r->opened.size_bytes);
    if (resident < 0 || resident >= 50) {
        lp_log(platform, LP_LOG_INFO, "replay", "'%s': read through the cache, %s", path,
               resident < 0 ? "which cannot be asked what it holds" : "which holds most of it");
        return -1;
    }
    const int fd = r->io->open(r->io->context, path, O_RDONLY | O_DIRECT, 0);
    lp_log(platform, LP_LOG_INFO, "replay", "'%s': %d%% in the cache, %s", path, resident,
           fd < 0 ? "but it cannot be opened for direct reads" : "read directly");
    return fd < 0 ? -1 : fd;
}

static lp_status use_file(reader *r, int32_t file, lp_error *err)
{
    if (r->file == file)
        return LP_OK;
    LP_TRY(lp_ring_drain(r->ring, err));
    LP_TRY(close_file(r, err));
    const lp_checkpoint_file *f = lp_checkpoint_file_at(r->checkpoint, file);
    r->open = (lp_ring_file){f->path, r->io->open(r->io->context, f->path, O_RDONLY, 0), -1};
    if (r->open.fd < 0)
        return lp_fail_errno(err, r->open.fd, "open", f->path);
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
    r->open.direct_fd = open_direct(r, r->file_bytes[file]);
    lp_ring_use(r->ring, &r->open);
    return LP_OK;
}

/* ---- ranges ---- */

static lp_status note_arrival(void *context, int64_t bytes, lp_error *err)
{
    reader *r = context;
    r->done += bytes;
    if (r->progress != NULL && r->progress(r->context, r->done, r->total) != 0)
        return lp_fail(err, LP_E_IO, "reading was stopped by the caller");
    return LP_OK;
}

/* Cuts at multiples of the direct unit in the file, so that no unit is read for two chunks. */
static lp_status read_range(reader *r, const lp_read_name *t, int64_t lo, int64_t hi, lp_error *err)
{
    const lp_handle handle = r->s->plan->entry[t->entry].name;
    const int64_t start = t->tensor->file_off;
    r->stats.ranges++;
    while (lo < hi) {
        const int64_t cut = (start + lo + CHUNK_BYTES) / LP_DIRECT_UNIT * LP_DIRECT_UNIT - start;
        const int64_t end = cut < hi ? cut : hi;
        LP_TRY(lp_ring_add(r->ring, handle, lo, end - lo, start + lo, err));
        lo = end;
    }
    return LP_OK;
}

/* The parts of [lo, hi) that have not arrived yet. */
static lp_status read_absent(reader *r, const lp_read_name *t, int64_t lo, int64_t hi, lp_error *err)
{
    for (int64_t end; lp_read_absent(&r->s->track[t->entry], &lo, hi, &end); lo = end)
        LP_TRY(read_range(r, t, lo, end, err));
    return LP_OK;
}

static lp_status read_name(reader *r, const lp_read_name *t, lp_error *err)
{
    const lp_entry *e = &r->s->plan->entry[t->entry];
    lp_ranges ranges;
    lp_ranges_init(&ranges, r->s->alloc);
    lp_status status = lp_plan_entry_ranges(r->s->plan, e, &ranges, err);
    if (status == LP_OK && ranges.count == 0 && !r->s->track[t->entry].is_complete)
        status = lp_push_handle_range(r->s, e->name, 0, r, 0, err);
    if (status == LP_OK && ranges.count > 0)
        status = use_file(r, t->tensor->file, err);
    for (int64_t i = 0; status == LP_OK && i < ranges.count; i++)
        status = read_absent(r, t, ranges.item[i].lo, ranges.item[i].hi, err);
    lp_ranges_free(&ranges);
    return status;
}

/* ---- names ---- */

/* One round over the list; what the budget refuses stays on it. */
static lp_status read_round(reader *r, lp_read_name *list, int64_t *count, lp_error *err)
{
    int64_t kept = 0;
    lp_status refusal = LP_OK;
    const int64_t before = *count;
    for (int64_t i = 0; i < before; i++) {
        const lp_entry *e = &r->s->plan->entry[list[i].entry];
        /* What is under way may be about to give memory back: groups are opened one after the other. */
        if (lp_layers_wanted(r->s, list[i].entry) > 0)
            LP_TRY(lp_ring_drain(r->ring, err));
        lp_status status = lp_session_reserve(r->s, list[i].entry, e->need_lo, e->need_hi - e->need_lo, NULL);
        if (status == LP_E_LIMIT) {
            LP_TRY(lp_ring_drain(r->ring, err));
            status =
                lp_session_reserve(r->s, list[i].entry, e->need_lo, e->need_hi - e->need_lo, kept == 0 ? err : NULL);
        } else if (status != LP_OK)
            return lp_fail_memory(err);
        if (status == LP_E_LIMIT) {
            refusal = status;
            list[kept++] = list[i];
            continue;
        }
        LP_TRY(status);
        LP_TRY(read_name(r, &list[i], err));
    }
    *count = kept;
    LP_TRY(lp_ring_drain(r->ring, err));
    return kept == before ? refusal : LP_OK; /* nothing moved: *err says why */
}

static int32_t readers(const reader *r)
{
    const int32_t threads = lp_pool_threads(r->s->plan->pool);
    if (threads == 1 || r->total < ALONE_BYTES)
        return 0;
    return threads < READERS_MAX ? threads : READERS_MAX;
}

lp_status lp_push_checkpoint_with(lp_session *s, const lp_checkpoint *checkpoint, lp_read_stats *stats,
                                  int (*progress)(void *context, int64_t done, int64_t total), void *context,
                                  lp_error *err)
{
    lp_error own = {.code = LP_OK}, *e = err == NULL ? &own : err;
    LP_TRY(lp_session_usable(s, e));
    if (s->mode == LP_DUMMY || s->mode == LP_META)
        return lp_fail(e, LP_E_MISUSE, "a session without bytes reads no checkpoint");
    if (s->on != NULL)
        return lp_device_read(s, checkpoint, stats, progress, context, e);
    reader r = {
        .s = s,
        .checkpoint = checkpoint,
        .io = s->plan->platform.io,
        .file = -1,
        .progress = progress,
        .context = context,
    };
    lp_read_name *list = NULL;
    int64_t count = 0, calls;
    lp_status status = LP_OK;
    const int32_t files = lp_checkpoint_file_count(checkpoint);
    r.file_bytes = lp_allocate(s->alloc, ((size_t)files + 1) * sizeof *r.file_bytes);
    list = lp_allocate(s->alloc, ((size_t)s->plan->entry_count + 1) * sizeof *list);
    if (r.file_bytes == NULL || list == NULL) {
        status = lp_fail_memory(e);
        goto release;
    }
    LP_TRY_GOTO(lp_read_names(s->plan, s, checkpoint, list, &count, r.file_bytes, e), release);
    for (int32_t i = 0; i < files; i++)
        r.total += r.file_bytes[i] > 0 ? r.file_bytes[i] : 0;
    LP_TRY_GOTO(lp_ring_open(&r.ring, s, readers(&r), note_arrival, &r, e), release);
    while (status == LP_OK && count > 0)
        status = read_round(&r, list, &count, e);
    lp_ring_drop(r.ring);
    r.stats.bytes_read = lp_ring_bytes(r.ring, &calls);
    if (r.file >= 0) {
        lp_error second = {.code = LP_OK};
        const lp_status closed = close_file(&r, status == LP_OK ? e : &second);
        status = status == LP_OK ? closed : status;
    }
release:
    lp_ring_close(r.ring);
    lp_release(s->alloc, list);
    lp_release(s->alloc, r.file_bytes);
    if (stats != NULL)
        *stats = r.stats;
    return status;
}

lp_status lp_push_checkpoint(lp_session *s, const lp_checkpoint *checkpoint, lp_error *err)
{
    return lp_push_checkpoint_with(s, checkpoint, NULL, NULL, NULL, err);
}
