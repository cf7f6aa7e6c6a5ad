/* SPDX-License-Identifier: Apache-2.0 */
/* Header bundles: written from a checkpoint's files, read as a catalogue without files. */
#include "traces/checkpoint_bundle.h"
#include "traces/column_codec.h"
#include "traces/json_pull.h"
#include "traces/safetensors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

enum { KIND_SHARD = 1, KIND_CONFIG = 2, HEAD_BYTES = sizeof LP_BUNDLE_MAGIC - 1 + 4 };

static lp_status corrupt(const char *path, lp_error *err, const char *what)
{
    return lp_fail_at(err, LP_E_CORRUPT, path, -1, "'%s' is not a sound header bundle: %s", path, what);
}

static uint64_t little_endian(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

/* ---- reading ---- */

typedef struct item {
    uint64_t kind;
    const char *name;
    int64_t file_bytes, bytes;
    const uint8_t *data;
} item;

static lp_status read_shard(lp_checkpoint *c, const item *x, const char *path, lp_error *err)
{
    lp_safetensors s;
    if (x->bytes < LP_SAFETENSORS_PREFIX_BYTES)
        return corrupt(path, err, "a header is cut short");
    const int64_t header_bytes = x->bytes - LP_SAFETENSORS_PREFIX_BYTES;
    if (header_bytes > LP_SAFETENSORS_HEADER_MAX ||
        little_endian(x->data, LP_SAFETENSORS_PREFIX_BYTES) != (uint64_t)header_bytes || x->file_bytes < x->bytes)
        return corrupt(path, err, "a header has another length than it says");
    LP_TRY(lp_safetensors_parse(&s, (const char *)x->data + LP_SAFETENSORS_PREFIX_BYTES, header_bytes, x->file_bytes,
                                x->name, c->platform.alloc, err));
    const lp_status status = lp_checkpoint_add_header(c, &s, -1, err);
    lp_safetensors_free(&s);
    return status;
}

static lp_status read_config(lp_checkpoint *c, const item *x, const char *path, lp_error *err)
{
    size_t bad;
    if (c->config[0] != '\0')
        return corrupt(path, err, "it has two configurations");
    if (x->bytes > LP_BUNDLE_CONFIG_MAX || !lp_utf8_is_valid((const char *)x->data, (size_t)x->bytes, &bad) ||
        memchr(x->data, '\0', (size_t)x->bytes) != NULL)
        return corrupt(path, err, "its configuration is no text");
    c->config = lp_arena_text(&c->arena, (const char *)x->data, (size_t)x->bytes);
    return c->config != NULL ? LP_OK : lp_fail_memory(err);
}

lp_status lp_bundle_read_items(lp_checkpoint *c, const uint8_t *raw, int64_t bytes, const char *path, lp_error *err)
{
    lp_unpacker in = {.at = raw, .end = raw + bytes};
    c->config = "";
    while (in.at < in.end) {
        bool no_memory = false;
        item x = {.kind = lp_unpack_u64(&in)};
        x.name = lp_unpack_text_copy(&in, &c->arena, &no_memory);
        if (no_memory)
            return lp_fail_memory(err);
        x.file_bytes = lp_unpack_range(&in, 0, INT64_MAX);
        x.bytes = lp_unpack_range(&in, 0, bytes);
        if (in.failed || x.bytes > in.end - in.at)
            return corrupt(path, err, "an item is cut short");
        x.data = in.at;
        in.at += x.bytes;
        if (x.kind != KIND_SHARD && x.kind != KIND_CONFIG)
            return corrupt(path, err, "an item is of no known kind");
        LP_TRY(x.kind == KIND_SHARD ? read_shard(c, &x, path, err) : read_config(c, &x, path, err));
    }
    return LP_OK;
}

lp_status lp_checkpoint_add_bundle(lp_checkpoint *c, const char *path, lp_error *err)
{
    char *file = NULL;
    uint8_t *raw = NULL;
    int64_t bytes = 0, raw_bytes = 0, budget = LP_BUNDLE_RAW_MAX;
    lp_codec codec = {NULL, NULL};
    lp_status status;
    char what[300];
    snprintf(what, sizeof what, "header bundle '%.250s'", path);
    LP_TRY(lp_read_file(&c->platform, path, LP_BUNDLE_FILE_MAX, &file, &bytes, err));
    const uint8_t *head = (const uint8_t *)file;
    if (bytes < HEAD_BYTES) {
        status = corrupt(path, err, "it is cut short");
        goto free_all;
    }
    const uint64_t version = little_endian(head + HEAD_BYTES - 4, 4);
    if (version != LP_BUNDLE_VERSION) {
        status = lp_fail_at(err, LP_E_VERSION, path, HEAD_BYTES - 4,
                            "'%s' is a header bundle of version %" PRIu64 ", this program reads %d", path, version,
                            LP_BUNDLE_VERSION);
        goto free_all;
    }
    LP_TRY_GOTO(lp_frame_unpack(&codec, c->platform.alloc, head + HEAD_BYTES, bytes - HEAD_BYTES, &budget, what, &raw,
                                &raw_bytes, err),
                free_all);
    status = lp_bundle_read_items(c, raw, raw_bytes, path, err);

free_all:
    lp_release(c->platform.alloc, raw);
    lp_codec_free(&codec);
    lp_release(c->platform.alloc, file);
    return status;
}

const char *lp_checkpoint_config(const lp_checkpoint *c)
{
    return c->config;
}

/* ---- writing ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void add_item(lp_text *raw, int kind, const char *name, int64_t file_bytes, const void *data, int64_t bytes)
{
    lp_pack_u64(raw, (uint64_t)kind);
    lp_pack_text(raw, name);
    lp_pack_i64(raw, file_bytes);
    lp_pack_i64(raw, bytes);
    lp_text_add(raw, data, (size_t)bytes);
}

/* The head of one file as it is now; the catalogue was read from it a moment ago, and reading the bundle judges again.
 */
static lp_status add_shard(lp_text *raw, const lp_platform *p, const lp_checkpoint_file *file, lp_error *err)
{
    uint8_t prefix[LP_SAFETENSORS_PREFIX_BYTES];
    lp_status status;
    char *head = NULL;
    const int fd = p->io->open(p->io->context, file->path, O_RDONLY, 0);
    if (fd < 0)
        return lp_fail_errno(err, fd, "open", file->path);
    LP_TRY_GOTO(lp_read_exact(p->io, fd, file->path, prefix, sizeof prefix, 0, err), close_file);
    const uint64_t header_bytes = little_endian(prefix, sizeof prefix);
    if (header_bytes > LP_SAFETENSORS_HEADER_MAX) {
        status = lp_fail_at(err, LP_E_CORRUPT, file->path, 0, "'%s' changed while it was read", file->path);
        goto close_file;
    }
    const int64_t bytes = (int64_t)header_bytes + LP_SAFETENSORS_PREFIX_BYTES;
    head = lp_allocate(p->alloc, (size_t)bytes);
    if (head == NULL) {
        status = lp_fail_memory(err);
        goto close_file;
    }
    LP_TRY_GOTO(lp_read_exact(p->io, fd, file->path, head, bytes, 0, err), close_file);
    add_item(raw, KIND_SHARD, base_name(file->path), file->size_bytes, head, bytes);
    if (raw->bytes > LP_BUNDLE_RAW_MAX)
        status = lp_fail(err, LP_E_LIMIT, "the headers have more than %d bytes", LP_BUNDLE_RAW_MAX);

close_file:
    lp_release(p->alloc, head);
    p->io->close(p->io->context, fd);
    return status;
}

/* config.json is taken where it is; a folder without one is legal. */
static lp_status add_config(lp_text *raw, const lp_platform *p, const char *folder, lp_error *err)
{
    lp_text path;
    char *text;
    int64_t bytes;
    lp_status status = LP_OK;
    lp_text_init(&path, p->alloc);
    lp_text_format(&path, "%s/config.json", folder);
    if (path.failed) {
        status = lp_fail_memory(err);
        goto free_path;
    }
    const int fd = p->io->open(p->io->context, path.data, O_RDONLY, 0);
    if (fd < 0)
        goto free_path;
    p->io->close(p->io->context, fd);
    LP_TRY_GOTO(lp_read_file(p, path.data, LP_BUNDLE_CONFIG_MAX, &text, &bytes, err), free_path);
    add_item(raw, KIND_CONFIG, "config.json", bytes, text, bytes);
    lp_release(p->alloc, text);

free_path:
    lp_text_free(&path);
    return status;
}

lp_status lp_checkpoint_save_headers(const lp_checkpoint *c, const char *path, bool overwrite, lp_error *err)
{
    static const uint8_t version[4] = {LP_BUNDLE_VERSION, 0, 0, 0};
    const lp_platform *p = &c->platform;
    lp_codec codec = {NULL, NULL};
    lp_outfile out = {.io = NULL};
    lp_text raw, frame;
    lp_status status = LP_OK;
    if (c->file_count == 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "a trace or a header bundle has no headers to save");
    lp_text_init(&raw, p->alloc);
    lp_text_init(&frame, p->alloc);
    for (int64_t i = 0; i < c->file_count; i++)
        LP_TRY_GOTO(add_shard(&raw, p, &c->file[i], err), free_all);
    LP_TRY_GOTO(add_config(&raw, p, c->folder, err), free_all);
    lp_text_add(&frame, LP_BUNDLE_MAGIC, HEAD_BYTES - 4);
    lp_text_add(&frame, (const char *)version, sizeof version);
    if (raw.failed || frame.failed) {
        status = lp_fail_memory(err);
        goto free_all;
    }
    LP_TRY_GOTO(lp_frame_pack(&codec, raw.data, raw.bytes, &frame, err), free_all);
    LP_TRY_GOTO(lp_outfile_open(&out, p, path, overwrite, err), free_all);
    status = lp_outfile_write(&out, frame.data, frame.bytes, err);
    if (status == LP_OK)
        status = lp_outfile_commit(&out, err);
    else
        lp_outfile_abandon(&out);

free_all:
    lp_codec_free(&codec);
    lp_text_free(&frame);
    lp_text_free(&raw);
    return status;
}
