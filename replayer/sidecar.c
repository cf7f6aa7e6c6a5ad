/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sidecar of a trace: digests of loaded values. A text file,
 *
 *   loadplan-digests 1
 *   load PLAN-DIGEST CONTENT-ID RANK COUNT
 *   DIGEST NAME
 *   ...
 *   end
 *
 * in which names have backslashes and control characters as \xNN. It holds nothing that a load cannot make again.
 */
#include "replayer/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char HEADER[] = "loadplan-digests 1\n";

enum { FILE_BYTES_MAX = 1 << 28, LOADS_MAX = 4096, NAME_BYTES_MAX = 65536 };

typedef struct value {
    const char *name;
    uint8_t digest[LP_VALUE_DIGEST_BYTES];
} value;

typedef struct load {
    uint8_t plan[32], content[32];
    int32_t rank;
    int64_t count;
    value *value; /* by name */
} load;

struct lp_sidecar {
    lp_platform platform;
    lp_arena arena;
    load *load;
    int64_t count, capacity;
};

/* ---- reading ---- */

typedef struct cursor {
    const char *at, *end, *path;
    int64_t line;
} cursor;

static lp_status bad_line(const cursor *c, lp_error *err)
{
    lp_fail_at(err, LP_E_CORRUPT, c->path, -1, "line %lld of '%s' is not understood", (long long)c->line, c->path);
    lp_hint(err, "the file holds digests only and may be deleted");
    return LP_E_CORRUPT;
}

static bool take_hex(cursor *c, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < 2 * bytes; i++) {
        if (c->at >= c->end)
            return false;
        const char x = *c->at++;
        const int digit = x >= '0' && x <= '9' ? x - '0' : x >= 'a' && x <= 'f' ? x - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        out[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : out[i / 2] | digit);
    }
    return true;
}

static bool take_text(cursor *c, const char *text)
{
    const size_t bytes = strlen(text);
    if ((size_t)(c->end - c->at) < bytes || memcmp(c->at, text, bytes) != 0)
        return false;
    c->at += bytes;
    return true;
}

static bool take_number(cursor *c, int64_t most, int64_t *out)
{
    const char *start = c->at;
    for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        *out = *out * 10 + (*c->at - '0');
        if (*out > most)
            return false;
    }
    return c->at > start;
}

static bool is_escaped(uint8_t byte)
{
    return byte < 0x20 || byte == '\\' || byte == 0x7f;
}

/* The rest of the line, unescaped into the arena: what add_name writes, and nothing else. */
static lp_status take_name(lp_sidecar *s, cursor *c, const char **out, lp_error *err)
{
    const char *stop = memchr(c->at, '\n', (size_t)(c->end - c->at));
    if (stop == NULL || stop - c->at > NAME_BYTES_MAX)
        return bad_line(c, err);
    char *name = lp_arena_get(&s->arena, (size_t)(stop - c->at) + 1);
    size_t used = 0;
    if (name == NULL)
        return lp_fail_memory(err);
    while (c->at < stop) {
        uint8_t byte = (uint8_t)*c->at++;
        const bool is_escape = byte == '\\';
        if (is_escape && (!take_text(c, "x") || !take_hex(c, &byte, 1) || byte == 0))
            return bad_line(c, err);
        if (is_escape != is_escaped(byte))
            return bad_line(c, err);
        name[used++] = (char)byte;
    }
    name[used] = '\0';
    c->at = stop + 1;
    *out = name;
    return LP_OK;
}

static lp_status take_value(lp_sidecar *s, cursor *c, load *l, int64_t i, lp_error *err)
{
    c->line++;
    if (!take_hex(c, l->value[i].digest, LP_VALUE_DIGEST_BYTES) || !take_text(c, " "))
        return bad_line(c, err);
    LP_TRY(take_name(s, c, &l->value[i].name, err));
    return i > 0 && strcmp(l->value[i - 1].name, l->value[i].name) >= 0 ? bad_line(c, err) : LP_OK;
}

static lp_status add_load(lp_sidecar *s, const load *l, lp_error *err)
{
    void *items = s->load;
    if (!lp_grow(s->platform.alloc, &items, &s->capacity, s->count + 1, sizeof *s->load))
        return lp_fail_memory(err);
    s->load = items;
    s->load[s->count++] = *l;
    return LP_OK;
}

static lp_status take_load(lp_sidecar *s, cursor *c, lp_error *err)
{
    load l;
    int64_t rank;
    const int64_t most = (c->end - c->at) / (2 * LP_VALUE_DIGEST_BYTES); /* a value takes more bytes than that */
    if (!take_text(c, "load ") || !take_hex(c, l.plan, 32) || !take_text(c, " ") || !take_hex(c, l.content, 32) ||
        !take_text(c, " ") || !take_number(c, INT32_MAX, &rank) || !take_text(c, " ") ||
        !take_number(c, most, &l.count) || !take_text(c, "\n") || s->count >= LOADS_MAX)
        return bad_line(c, err);
    l.rank = (int32_t)rank;
    l.value = lp_arena_get(&s->arena, (size_t)(l.count + 1) * sizeof *l.value);
    if (l.value == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < l.count; i++)
        LP_TRY(take_value(s, c, &l, i, err));
    return add_load(s, &l, err);
}

static lp_status parse(lp_sidecar *s, const char *text, int64_t bytes, const char *path, lp_error *err)
{
    cursor c = {text, text + bytes, path, 1};
    if (!take_text(&c, HEADER))
        return bad_line(&c, err);
    for (c.line = 2; !take_text(&c, "end\n"); c.line++)
        LP_TRY(take_load(s, &c, err));
    return c.at == c.end ? LP_OK : bad_line(&c, err);
}

static bool is_absent(const lp_platform *p, const char *path)
{
    const int fd = p->io->open(p->io->context, path, O_RDONLY, 0);
    if (fd >= 0)
        p->io->close(p->io->context, fd);
    return fd == -ENOENT;
}

lp_status lp_sidecar_open(lp_sidecar **out, const char *path, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    lp_status status = LP_OK;
    char *text = NULL;
    int64_t bytes = 0;
    lp_sidecar *s = lp_allocate_zero(p.alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(err);
    s->platform = p;
    lp_arena_init(&s->arena, p.alloc);
    if (!is_absent(&p, path)) {
        status = lp_read_file(&p, path, FILE_BYTES_MAX, &text, &bytes, err);
        if (status == LP_OK)
            status = parse(s, text, bytes, path, err);
        lp_release(p.alloc, text);
    }
    if (status != LP_OK) {
        lp_sidecar_close(s);
        return status;
    }
    *out = s;
    return LP_OK;
}

void lp_sidecar_close(lp_sidecar *s)
{
    if (s == NULL)
        return;
    lp_arena_free(&s->arena);
    lp_release(s->platform.alloc, s->load);
    lp_release(s->platform.alloc, s);
}

/* ---- asking ---- */

static const load *find_load(const lp_sidecar *s, const uint8_t plan[32], const uint8_t content[32], int32_t rank)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->load[i].rank == rank && memcmp(s->load[i].plan, plan, 32) == 0 &&
            memcmp(s->load[i].content, content, 32) == 0)
            return &s->load[i];
    return NULL;
}

bool lp_sidecar_has(const lp_sidecar *s, const uint8_t plan_digest[32], const uint8_t content[32], int32_t rank)
{
    return find_load(s, plan_digest, content, rank) != NULL;
}

bool lp_sidecar_newest(const lp_sidecar *s, const uint8_t plan_digest[32], int32_t rank, uint8_t content[32])
{
    for (int64_t i = s->count; i-- > 0;) {
        if (s->load[i].rank != rank || memcmp(s->load[i].plan, plan_digest, 32) != 0)
            continue;
        memcpy(content, s->load[i].content, 32);
        return true;
    }
    return false;
}

const uint8_t *lp_sidecar_find(const lp_sidecar *s, const uint8_t plan_digest[32], const uint8_t content[32],
                               int32_t rank, const char *name)
{
    const load *l = find_load(s, plan_digest, content, rank);
    int64_t low = 0, high = l == NULL ? 0 : l->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = strcmp(l->value[middle].name, name);
        if (order == 0)
            return l->value[middle].digest;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- writing ---- */

lp_status lp_sidecar_put(lp_sidecar *s, const lp_plan *plan, const uint8_t content[32], lp_error *err)
{
    const lp_rows *rows = plan->rows;
    load l = {.rank = lp_scope_rank(&rows->scope)};
    memcpy(l.plan, rows->digest, 32);
    memcpy(l.content, content, 32);
    l.value = lp_arena_get(&s->arena, (rows->ndest + 1) * sizeof *l.value);
    if (l.value == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < rows->ndest; i++) {
        if ((rows->dest[i].flags & LP_DEST_NO_LOADER) != 0)
            continue;
        value *v = &l.value[l.count++];
        v->name = lp_arena_text(&s->arena, rows->dest[i].name, strlen(rows->dest[i].name));
        if (v->name == NULL)
            return lp_fail_memory(err);
        LP_TRY(lp_plan_value_digest(plan, i, v->digest, err));
    }
    const load *old = find_load(s, l.plan, l.content, l.rank);
    int64_t gone = old != NULL ? old - s->load : s->count >= LOADS_MAX ? 0 : -1; /* the same, or the oldest */
    if (gone >= 0) {
        s->count--;
        memmove(s->load + gone, s->load + gone + 1, (size_t)(s->count - gone) * sizeof *s->load);
    }
    return add_load(s, &l, err);
}

static void add_hex(lp_text *t, const uint8_t *data, size_t bytes)
{
    char hex[65];
    lp_format_hex(hex, data, bytes);
    lp_text_add(t, hex, 2 * bytes);
}

static void add_name(lp_text *t, const char *name)
{
    for (; *name != '\0'; name++) {
        const uint8_t byte = (uint8_t)*name;
        if (is_escaped(byte))
            lp_text_format(t, "\\x%02x", byte);
        else
            lp_text_add(t, name, 1);
    }
}

lp_status lp_sidecar_save(const lp_sidecar *s, const char *path, lp_error *err)
{
    lp_status status;
    lp_outfile file = {.fd = -1};
    lp_text t;
    lp_text_init(&t, s->platform.alloc);
    lp_text_add(&t, HEADER, sizeof HEADER - 1);
    for (int64_t i = 0; i < s->count; i++) {
        const load *l = &s->load[i];
        lp_text_add(&t, "load ", 5);
        add_hex(&t, l->plan, 32);
        lp_text_add(&t, " ", 1);
        add_hex(&t, l->content, 32);
        lp_text_format(&t, " %" PRId32 " %" PRId64 "\n", l->rank, l->count);
        for (int64_t k = 0; k < l->count; k++) {
            add_hex(&t, l->value[k].digest, LP_VALUE_DIGEST_BYTES);
            lp_text_add(&t, " ", 1);
            add_name(&t, l->value[k].name);
            lp_text_add(&t, "\n", 1);
        }
    }
    lp_text_add(&t, "end\n", 4);
    if (t.failed) {
        status = lp_fail_memory(err);
        goto free_text;
    }
    LP_TRY_GOTO(lp_outfile_open(&file, &s->platform, path, true, err), free_text);
    LP_TRY_GOTO(lp_outfile_write(&file, t.data, t.bytes, err), abandon);
    status = lp_outfile_commit(&file, err);
    goto free_text;
abandon:
    lp_outfile_abandon(&file);
free_text:
    lp_text_free(&t);
    return status;
}

/* ---- local content id ---- */

static int by_path(const void *a, const void *b)
{
    return strcmp((*(const lp_checkpoint_file *const *)a)->path, (*(const lp_checkpoint_file *const *)b)->path);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

lp_status lp_checkpoint_local_id(const lp_checkpoint *checkpoint, uint8_t id[32], lp_error *err)
{
    const int32_t count = lp_checkpoint_file_count(checkpoint);
    const lp_checkpoint_file **file = lp_allocate(NULL, ((size_t)count + 1) * sizeof *file);
    lp_status status = LP_OK;
    lp_sha256 h;
    if (file == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < count; i++) {
        file[i] = lp_checkpoint_file_at(checkpoint, i);
        if (file[i]->size_bytes < 0 || file[i]->mtime_ns == 0)
            status = LP_E_UNSUPPORTED;
    }
    if (count == 0 || status != LP_OK) {
        status = lp_fail(err, LP_E_UNSUPPORTED, "a catalogue without files has no local identity");
        goto release;
    }
    qsort((void *)file, (size_t)count, sizeof *file, by_path);
    lp_sha256_begin(&h);
    lp_sha256_text(&h, "loadplan local content 1");
    for (int32_t i = 0; i < count; i++) {
        lp_sha256_text(&h, base_name(file[i]->path));
        lp_sha256_i64(&h, file[i]->size_bytes);
        lp_sha256_i64(&h, file[i]->mtime_ns);
        lp_sha256_i64(&h, (int64_t)file[i]->inode);
    }
    if (!lp_sha256_end(&h, id))
        status = lp_fail(err, LP_E_INTERNAL, "SHA-256 is not available");
release:
    lp_release(NULL, (void *)file);
    return status;
}
