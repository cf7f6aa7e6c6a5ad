/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint: a safetensors file, an index, a folder, a header bundle or a trace, told apart by content. */
#include "traces/checkpoint_bundle.h"
#include "traces/checkpoint_catalogue.h"
#include "traces/safetensors.h"

#include <errno.h>
#include <fcntl.h>

lp_status lp_checkpoint_open_file(const lp_checkpoint *c, const char *path, int *fd, lp_file_stat *st, lp_error *err)
{
    const lp_io *io = c->platform.io;
    /* O_NONBLOCK: a named pipe must not hold us up before it is refused. */
    *fd = io->open(io->context, path, O_RDONLY | O_NONBLOCK, 0);
    if (*fd < 0)
        return lp_fail_errno(err, *fd, "open", path);
    lp_status status = LP_OK;
    const int code = io->stat(io->context, *fd, st);
    if (code < 0)
        status = lp_fail_errno(err, code, "stat", path);
    else if (!st->is_regular && !st->is_directory)
        status = lp_fail_at(err, LP_E_FORMAT, path, -1, "'%s' is neither a file nor a folder", path);
    if (status != LP_OK)
        io->close(io->context, *fd);
    return status;
}

/* ---- one safetensors file ---- */

/* Extents of empty tensors may go up to 2^64 - 1; they are kept as the largest int64, which changes no size. */
static const int64_t *keep_shape(lp_checkpoint *c, const lp_safetensors_entry *e)
{
    int64_t *shape = lp_arena_get(&c->arena, (size_t)e->ndim * sizeof *shape);
    for (int32_t d = 0; shape != NULL && d < e->ndim; d++)
        shape[d] = e->shape[d] > INT64_MAX ? INT64_MAX : (int64_t)e->shape[d];
    return shape;
}

/* Metadata is for people: a NUL in it is kept as the bytes C0 80, as in names. */
static lp_status keep_metadata(lp_checkpoint *c, const lp_safetensors *s, lp_error *err)
{
    for (int64_t i = 0; i < s->metadata_keys.count; i++) {
        if (!lp_grow(c->platform.alloc, (void **)&c->metadata, &c->metadata_capacity, c->metadata_count + 1,
                     sizeof *c->metadata))
            return lp_fail_memory(err);
        const lp_metadata_pair pair = {
            .key = lp_checkpoint_keep_text(c, s->metadata_keys.text[i], s->metadata_keys.bytes[i]),
            .value = lp_checkpoint_keep_text(c, s->metadata_value[i].data, s->metadata_value[i].bytes),
        };
        if (pair.key == NULL || pair.value == NULL)
            return lp_fail_memory(err);
        c->metadata[c->metadata_count++] = pair;
    }
    return LP_OK;
}

lp_status lp_checkpoint_add_header(lp_checkpoint *c, const lp_safetensors *s, int32_t file, lp_error *err)
{
    LP_TRY(keep_metadata(c, s, err));
    for (int64_t i = 0; i < s->count; i++) {
        const lp_safetensors_entry *e = &s->entry[i];
        const lp_checkpoint_tensor tensor = {
            .name = lp_checkpoint_keep_name(c, e->name, e->name_bytes),
            .dtype = e->dtype,
            .ndim = e->ndim,
            .shape = keep_shape(c, e),
            .file = file,
            .file_off = file < 0 ? -1 : s->data_off + (int64_t)e->begin,
            .bytes = (int64_t)(e->end - e->begin),
        };
        if (tensor.name == NULL || tensor.shape == NULL)
            return lp_fail_memory(err);
        LP_TRY(lp_checkpoint_append(c, &tensor, err));
    }
    return LP_OK;
}

lp_status lp_checkpoint_add_safetensors(lp_checkpoint *c, const char *path, int fd, const lp_file_stat *st,
                                        lp_error *err)
{
    lp_status status;
    lp_safetensors s;
    char digits[65];
    LP_TRY(lp_safetensors_read(&s, &c->platform, fd, path, st->size_bytes, err));
    const lp_checkpoint_file file = {
        .path = path,
        .size_bytes = st->size_bytes,
        .mtime_ns = st->mtime_ns,
        .inode = st->inode,
        .sha256 = lp_checkpoint_blob_digest(path, digits) ? digits : NULL,
    };
    LP_TRY_GOTO(lp_checkpoint_add_file(c, &file, err), free_header);
    status = lp_checkpoint_add_header(c, &s, (int32_t)c->file_count - 1, err);
free_header:
    lp_safetensors_free(&s);
    return status;
}

/* ---- a trace ---- */

static lp_status add_trace(lp_checkpoint *c, const char *path, lp_error *err)
{
    lp_trace *trace = NULL;
    lp_status status = LP_OK;
    LP_TRY(lp_trace_open_with(&trace, path, &c->platform, err));
    const lp_checkpoint *from = lp_trace_checkpoint(trace);
    const int64_t count = lp_checkpoint_count(from);
    for (int64_t i = 0; i < count; i++) {
        lp_checkpoint_tensor tensor = *lp_checkpoint_at(from, i);
        tensor.file = -1; /* the trace does not say where the files are now */
        tensor.file_off = -1;
        LP_TRY_GOTO(lp_checkpoint_add(c, &tensor, err), close_trace);
    }
close_trace:
    lp_trace_close(trace);
    return status;
}

/* ---- telling them apart ---- */

typedef enum form { FORM_SAFETENSORS, FORM_INDEX, FORM_TRACE, FORM_BUNDLE } form;

/* A safetensors file begins with a length below 10^8, so that its bytes 4 to 7 are 0; JSON text has no such byte. */
static form form_of(const char *path, const char *start, size_t bytes)
{
    static const char sqlite[] = "SQLite format 3";
    if (bytes >= sizeof sqlite && memcmp(start, sqlite, sizeof sqlite) == 0)
        return FORM_TRACE;
    if (bytes >= sizeof LP_BUNDLE_MAGIC - 1 && memcmp(start, LP_BUNDLE_MAGIC, sizeof LP_BUNDLE_MAGIC - 1) == 0)
        return FORM_BUNDLE;
    if (bytes >= LP_SAFETENSORS_PREFIX_BYTES && memchr(start, '\0', LP_SAFETENSORS_PREFIX_BYTES) != NULL)
        return FORM_SAFETENSORS;
    const size_t length = strlen(path);
    if (length >= 5 && strcmp(path + length - 5, ".json") == 0)
        return FORM_INDEX;
    size_t i = 0;
    while (i < bytes && (start[i] == ' ' || start[i] == '\t' || start[i] == '\n' || start[i] == '\r'))
        i++;
    return i < bytes && start[i] == '{' ? FORM_INDEX : FORM_SAFETENSORS;
}

static lp_status read_form(const lp_checkpoint *c, const char *path, int fd, const lp_file_stat *st, form *out,
                           lp_error *err)
{
    char start[16];
    const size_t bytes = st->size_bytes < (int64_t)sizeof start ? (size_t)st->size_bytes : sizeof start;
    LP_TRY(lp_read_exact(c->platform.io, fd, path, start, (int64_t)bytes, 0, err));
    *out = form_of(path, start, bytes);
    return LP_OK;
}

static const char *keep_folder_of(lp_checkpoint *c, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return ".";
    return lp_arena_text(&c->arena, path, slash == path ? 1 : (size_t)(slash - path));
}

/* "owner/model", as models are called on a hub: two words, neither of which is a place here. */
static bool looks_like_a_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash != NULL && slash > path && slash[1] != '\0' && strchr(slash + 1, '/') == NULL && path[0] != '.' &&
           path[0] != '~' && strstr(path, ".safetensors") == NULL;
}

/* Opens *path, or where that is a folder, the checkpoint file in it. */
static lp_status open_first(lp_checkpoint *c, const char **path, int *fd, lp_file_stat *st, lp_error *err)
{
    const lp_io *io = c->platform.io;
    const lp_status found = lp_checkpoint_open_file(c, *path, fd, st, err);
    if (found != LP_OK && *fd == -ENOENT && looks_like_a_hub_name(*path))
        lp_hint(err, "a model of the Hugging Face hub? 'hf download %s --local-dir DIR' brings it here", *path);
    if (found != LP_OK)
        return found;
    if (!st->is_directory)
        return LP_OK;
    io->close(io->context, *fd);
    size_t length = strlen(*path);
    while (length > 1 && (*path)[length - 1] == '/')
        length--;
    const char *folder = lp_arena_text(&c->arena, *path, length);
    if (folder == NULL)
        return lp_fail_memory(err);
    LP_TRY(lp_checkpoint_choose_file(c, folder, path, err));
    const lp_status status = lp_checkpoint_open_file(c, *path, fd, st, err);
    if (status != LP_OK && *fd == -ENOENT) /* its name is in the folder */
        lp_hint(err, "it is a link to nothing: the cache that it leads into is not complete");
    if (status != LP_OK)
        return status;
    if (!st->is_directory)
        return LP_OK;
    io->close(io->context, *fd);
    return lp_fail_at(err, LP_E_FORMAT, *path, -1, "'%s' is a folder, not a file", *path);
}

static lp_status add_path(lp_checkpoint *c, const char *path, lp_error *err)
{
    lp_status status;
    lp_file_stat st;
    form kind = FORM_SAFETENSORS;
    int fd;
    LP_TRY(open_first(c, &path, &fd, &st, err));
    c->folder = keep_folder_of(c, path);
    if (c->folder == NULL) {
        status = lp_fail_memory(err);
        goto close_file;
    }
    LP_TRY_GOTO(read_form(c, path, fd, &st, &kind, err), close_file);
    if (kind == FORM_SAFETENSORS)
        status = lp_checkpoint_add_safetensors(c, path, fd, &st, err);
close_file:
    c->platform.io->close(c->platform.io->context, fd);
    if (status != LP_OK || kind == FORM_SAFETENSORS)
        return status;
    if (kind == FORM_INDEX)
        return lp_checkpoint_add_index(c, path, err);
    c->folder = "";
    return kind == FORM_BUNDLE ? lp_checkpoint_add_bundle(c, path, err) : add_trace(c, path, err);
}

lp_status lp_checkpoint_open_with(lp_checkpoint **out, const char *path, const lp_platform *platform, lp_error *err)
{
    lp_checkpoint *c;
    lp_status status;
    LP_TRY(lp_checkpoint_new(&c, platform, err));
    LP_TRY_GOTO(add_path(c, path, err), close);
    LP_TRY_GOTO(lp_checkpoint_seal(c, err), close);
    *out = c;
    return LP_OK;
close:
    lp_checkpoint_close(c);
    return status;
}

lp_status lp_checkpoint_open(lp_checkpoint **out, const char *path, lp_error *err)
{
    return lp_checkpoint_open_with(out, path, NULL, err);
}
