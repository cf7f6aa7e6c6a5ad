/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder's life, its sticky misuse, and small services of its other files. */
#include "recorder/record_private.h"
#include "traces/json_pull.h"

lp_status lp_recorder_open(lp_recorder **out, const lp_checkpoint *checkpoint, const lp_scope *scope, lp_error *err)
{
    return lp_recorder_open_with(out, checkpoint, scope, NULL, err);
}

static const char *text_or(const char *text, const char *fallback)
{
    return text != NULL ? text : fallback;
}

lp_status lp_recorder_open_with(lp_recorder **out, const lp_checkpoint *checkpoint, const lp_scope *scope,
                                const lp_recorder_options *options, lp_error *err)
{
    const lp_recorder_options o = options != NULL ? *options : (lp_recorder_options){0};
    *out = NULL;
    lp_scope at = *scope;
    LP_TRY(lp_scope_normalise(&at, err));
    const int64_t names = lp_checkpoint_count(checkpoint);
    if (names >= LP_NONE)
        return lp_fail(err, LP_E_LIMIT, "a checkpoint of %lld tensors has too many names", (long long)names);

    const lp_platform platform = lp_platform_resolve(o.platform);
    lp_recorder *r = lp_allocate_zero(platform.alloc, sizeof *r);
    if (r == NULL)
        return lp_fail_memory(err);
    r->platform = platform;
    r->checkpoint = checkpoint;
    lp_arena_init(&r->arena, platform.alloc);
    lp_arena_init(&r->shape_arena, platform.alloc);
    lp_strings_init(&r->dest_names, platform.alloc);
    lp_strings_init(&r->declined, platform.alloc);

    lp_trace_header header = {.loader = text_or(o.loader, "c"),
                              .loader_version = text_or(o.loader_version, ""),
                              .configuration = text_or(o.configuration, ""),
                              .target = text_or(o.target, ""),
                              .layout = at};
    header.layout.pp_rank = header.layout.dp_rank = header.layout.tp_rank = 0;
    lp_status status = LP_OK;
    r->name_flags = lp_allocate_zero(platform.alloc, (size_t)names);
    if (r->name_flags == NULL)
        LP_TRY_GOTO(lp_fail_memory(err), failed);
    LP_TRY_GOTO(lp_trace_new(&r->trace, checkpoint, &header, &platform, err), failed);
    LP_TRY_GOTO(rec_begin_scope(r, &at, err), failed);
    *out = r;
    return LP_OK;
failed:
    lp_recorder_close(r);
    return status;
}

lp_status lp_recorder_next_scope(lp_recorder *r, const lp_scope *scope, lp_error *err)
{
    lp_scope at = *scope;
    LP_TRY(lp_scope_normalise(&at, err));
    LP_TRY(rec_end_scope(r, err));
    return rec_begin_scope(r, &at, err);
}

lp_scope lp_recorder_scope(const lp_recorder *r)
{
    return r->scope;
}

const lp_checkpoint *lp_recorder_checkpoint(const lp_recorder *r)
{
    return r->checkpoint;
}

lp_status lp_recorder_finish(lp_recorder *r, lp_trace **out, lp_error *err)
{
    *out = NULL;
    if (r->finished)
        return lp_fail(err, LP_E_MISUSE, "recording has ended already");
    LP_TRY(rec_end_scope(r, err));
    r->finished = true;
    LP_TRY(lp_trace_seal(r->trace, err));
    *out = r->trace;
    r->trace = NULL;
    return LP_OK;
}

static lp_status finish_and_save(lp_recorder *r, const char *path, bool overwrite, lp_error *err)
{
    lp_trace *trace = NULL;
    LP_TRY(lp_recorder_finish(r, &trace, err));
    const lp_status status = lp_trace_save(trace, path, overwrite, err);
    lp_trace_close(trace);
    return status;
}

lp_status lp_recorder_save(lp_recorder *r, const char *path, lp_error *err)
{
    return finish_and_save(r, path, false, err);
}

lp_status lp_recorder_save_over(lp_recorder *r, const char *path, lp_error *err)
{
    return finish_and_save(r, path, true, err);
}

void lp_recorder_close(lp_recorder *r)
{
    if (r == NULL)
        return;
    rec_free_scope(r);
    rec_free_shapes(r);
    lp_strings_free(&r->declined);
    lp_trace_close(r->trace);
    lp_release(r->platform.alloc, r->name_flags);
    lp_release(r->platform.alloc, r);
}

/* ---- misuse ---- */

lp_status lp_recorder_status(const lp_recorder *r, lp_error *err)
{
    if (r->misuse.code != LP_OK && err != NULL)
        *err = r->misuse;
    return r->misuse.code;
}

lp_tensor rec_invalid(lp_recorder *r)
{
    return (lp_tensor){.recorder = r};
}

lp_tensor rec_misuse_error(const char *file, int line, lp_recorder *r, const lp_error *err)
{
    if (r->misuse.code == LP_OK) {
        lp_fail_at(&r->misuse, err->code, err->subject, err->byte_off, "%s:%d: %s", file, line, err->text);
        memcpy(r->misuse.hint, err->hint, sizeof r->misuse.hint);
    }
    return rec_invalid(r);
}

static lp_tensor misuse_list(const char *file, int line, lp_recorder *r, lp_status code, const char *format,
                             va_list args) __attribute__((format(printf, 5, 0)));

static lp_tensor misuse_list(const char *file, int line, lp_recorder *r, lp_status code, const char *format,
                             va_list args)
{
    if (r->misuse.code == LP_OK) {
        lp_error err = {.code = code, .byte_off = -1};
        vsnprintf(err.text, sizeof err.text, format, args);
        rec_misuse_error(file, line, r, &err);
    }
    return rec_invalid(r);
}

lp_tensor rec_misuse(const char *file, int line, lp_recorder *r, lp_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const lp_tensor t = misuse_list(file, line, r, code, format, args);
    va_end(args);
    return t;
}

void lp_complain_at(const char *file, int line, lp_recorder *r, lp_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    misuse_list(file, line, r, code, format, args);
    va_end(args);
}

lp_tensor rec_no_memory(lp_recorder *r)
{
    if (r->misuse.code == LP_OK)
        lp_fail_memory(&r->misuse);
    return rec_invalid(r);
}

bool rec_usable(const char *file, int line, lp_recorder *r, const lp_tensor *t)
{
    if (r->misuse.code != LP_OK)
        return false;
    if (t->kind == LP_TENSOR_INVALID) {
        rec_misuse(file, line, r, LP_E_MISUSE, "a tensor that stands for nothing");
        return false;
    }
    if (t->recorder != r) {
        rec_misuse(file, line, r, LP_E_MISUSE, "a tensor of another recorder");
        return false;
    }
    return true;
}

/* ---- small services ---- */

const char *lp_name(lp_recorder *r, const char *format, ...)
{
    char buffer[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    char *name = NULL;
    if (n >= 0 && (size_t)n < sizeof buffer) {
        name = lp_arena_text(&r->arena, buffer, (size_t)n);
    } else if (n >= 0 && (name = lp_arena_get(&r->arena, (size_t)n + 1)) != NULL) {
        va_start(args, format);
        vsnprintf(name, (size_t)n + 1, format, args);
        va_end(args);
    }
    if (name == NULL) {
        rec_no_memory(r);
        return "";
    }
    return name;
}

/* Compilers are often given absolute paths; a trace must not depend on where its loader was built. */
static const char *relative_path(const char *file)
{
    if (file[0] != '/')
        return file;
    const char *cut = file + 1;
    int parts = 0;
    for (const char *p = file + strlen(file); p > file; p--) {
        if (p[-1] == '/' && ++parts == 2) {
            cut = p;
            break;
        }
    }
    return cut;
}

uint32_t rec_provenance(lp_recorder *r, const char *file, int line, uint32_t flags)
{
    const uint64_t mixed = ((uint64_t)(uintptr_t)file >> 3) * 31 + (uint64_t)line * 7 + flags;
    struct rec_place *place = &r->place[mixed & (REC_PLACES - 1)];
    if (place->used && place->file == file && place->line == line && place->flags == flags)
        return place->index;
    char shown[4096];
    const lp_provenance provenance = {
        .file = lp_utf8_text(shown, sizeof shown, relative_path(file)), .line = line, .chain = "", .flags = flags};
    uint32_t index;
    lp_error err;
    if (lp_trace_add_provenance(r->trace, &provenance, &index, &err) != LP_OK) {
        rec_misuse_error(file, line, r, &err);
        return LP_NONE;
    }
    *place = (struct rec_place){.file = file, .line = line, .flags = flags, .index = index, .used = true};
    return index;
}

const lp_map *rec_own(lp_recorder *r, const lp_map *map)
{
    if (!lp_grow(r->platform.alloc, (void **)&r->scope_map, &r->scope_map_capacity, r->scope_map_count + 1,
                 sizeof *r->scope_map)) {
        lp_map_free(map, r->platform.alloc);
        rec_no_memory(r);
        return NULL;
    }
    r->scope_map[r->scope_map_count++] = map;
    return map;
}

lp_status rec_keep(lp_recorder *r, const lp_map *map, const lp_map **out, lp_error *err)
{
    *out = rec_own(r, map);
    return *out != NULL ? LP_OK : lp_fail_memory(err);
}

int64_t rec_memory_bytes(const lp_recorder *r, const lp_tensor *t)
{
    switch ((lp_tensor_kind)t->kind) {
    case LP_TENSOR_SOURCE:
        return lp_checkpoint_at(r->checkpoint, t->base)->bytes;
    case LP_TENSOR_DEST:
        return r->dest[t->base].bytes;
    case LP_TENSOR_TEMPORARY:
        return r->temporary[t->base].bytes;
    case LP_TENSOR_VALUE: {
        const lp_node *node = &r->value[t->base].node;
        return node->count * (lp_dtype_bits((lp_dtype)node->dtype) / 8);
    }
    case LP_TENSOR_INVALID:
    case LP_TENSOR_BEGIN:
        break;
    }
    return 0;
}
