/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharded checkpoints. The index is the authority for which shard holds a name: the two must agree in both directions,
 * and files that it does not list are not opened.
 */
#include "traces/checkpoint_catalogue.h"
#include "traces/json_pull.h"
#include "traces/mistaken_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Far above 10^6 names, and what one read may ask of memory. */
static const int64_t INDEX_BYTES_MAX = (int64_t)512 << 20;

typedef struct shard_index {
    lp_checkpoint *c;
    lp_json json;
    const char *path;
    lp_strings names, files;
    uint32_t *file_of; /* for each name the number of its file */
    int64_t file_of_capacity;
    bool *is_found; /* for each name */
    int64_t last;   /* the name that was looked up last */
    lp_error *err;
} shard_index;

/* A path that stays inside the folder of the index, in its one spelling. */
static bool is_plain_path(const char *text, size_t bytes)
{
    if (bytes == 0 || memchr(text, '\0', bytes) != NULL || memchr(text, '\\', bytes) != NULL)
        return false;
    for (size_t start = 0; start <= bytes;) {
        const char *slash = memchr(text + start, '/', bytes - start);
        const size_t length = (slash != NULL ? (size_t)(slash - text) : bytes) - start;
        if (length == 0 || (length == 1 && text[start] == '.') || (length == 2 && memcmp(text + start, "..", 2) == 0))
            return false;
        start += length + 1;
    }
    return true;
}

static lp_status read_placement(shard_index *x)
{
    lp_json *j = &x->json;
    const char *text;
    size_t bytes;
    char shown[160];
    lp_json_peek(j);
    const int64_t key_off = j->off;
    LP_TRY(lp_json_key(j, &text, &bytes));
    /* Names are compared with those of the catalogue, so they take its form. */
    if (memchr(text, '\0', bytes) != NULL) {
        text = lp_checkpoint_keep_name(x->c, text, bytes);
        if (text == NULL)
            return lp_fail_memory(x->err);
        bytes = strlen(text);
    }
    const int64_t before = x->names.count, name = lp_strings_add(&x->names, text, bytes);
    if (name < 0 || !lp_grow(j->alloc, (void **)&x->file_of, &x->file_of_capacity, name + 1, sizeof *x->file_of))
        return lp_fail_memory(x->err);
    j->tensor = x->names.text[name];
    j->tensor_bytes = bytes;
    if (name < before)
        return lp_json_fail(j, key_off, "the name appears twice");
    lp_json_peek(j);
    const int64_t value_off = j->off;
    LP_TRY(lp_json_string(j, &text, &bytes));
    if (!is_plain_path(text, bytes))
        return lp_json_fail(j, value_off, "'%s' is not a path inside the folder of the index",
                            lp_show_name(shown, text, bytes));
    const int64_t file = lp_strings_add(&x->files, text, bytes);
    if (file < 0)
        return lp_fail_memory(x->err);
    x->file_of[name] = (uint32_t)file;
    j->tensor = NULL;
    return LP_OK;
}

static lp_status read_weight_map(shard_index *x)
{
    bool more;
    LP_TRY(lp_json_enter(&x->json, '{'));
    for (bool first = true;; first = false) {
        LP_TRY(lp_json_next(&x->json, '}', first, &more));
        if (!more)
            return LP_OK;
        LP_TRY(read_placement(x));
    }
}

/* `metadata`, which is often wrong, and members that we do not know are skipped; twice the same key is refused. */
static lp_status read_members(shard_index *x, lp_strings *keys)
{
    static const char weight_map[] = "weight_map";
    lp_json *j = &x->json;
    const char *text;
    size_t bytes;
    bool more;
    LP_TRY(lp_json_enter(j, '{'));
    for (bool first = true;; first = false) {
        LP_TRY(lp_json_next(j, '}', first, &more));
        if (!more)
            break;
        const int64_t key_off = j->off, before = keys->count;
        LP_TRY(lp_json_key(j, &text, &bytes));
        const int64_t key = lp_strings_add(keys, text, bytes);
        if (key < 0)
            return lp_fail_memory(x->err);
        if (key < before)
            return lp_json_fail(j, key_off, "a key appears twice");
        if (bytes == sizeof weight_map - 1 && memcmp(text, weight_map, bytes) == 0)
            LP_TRY(read_weight_map(x));
        else
            LP_TRY(lp_json_skip(j));
    }
    LP_TRY(lp_json_end(j));
    if (lp_strings_find(keys, weight_map, sizeof weight_map - 1) >= 0)
        return LP_OK;
    lp_fail_at(x->err, LP_E_FORMAT, x->path, -1, "'%s' is not a checkpoint index: it has no 'weight_map'", x->path);
    /* What is called a safetensors file and is JSON came from a server that did not have the file. */
    const size_t length = strlen(x->path), suffix = strlen(".safetensors");
    if (length >= suffix && strcmp(x->path + length - suffix, ".safetensors") == 0)
        lp_hint(x->err, "it looks like JSON, such as a server's answer instead of the file: download it again");
    else
        lp_hint(x->err, "give a safetensors file, its .safetensors.index.json, or their folder");
    return LP_E_FORMAT;
}

static lp_status read_index(shard_index *x)
{
    char *text = NULL;
    int64_t bytes;
    size_t bad;
    lp_status status;
    lp_strings keys;
    const lp_alloc *alloc = x->c->platform.alloc;
    LP_TRY(lp_read_file(&x->c->platform, x->path, INDEX_BYTES_MAX, &text, &bytes, x->err));
    lp_strings_init(&keys, alloc);
    lp_json_init(&x->json, text, bytes, alloc, x->err);
    x->json.what = "checkpoint index";
    x->json.path = x->path;
    if (lp_utf8_is_valid(text, (size_t)bytes, &bad))
        status = read_members(x, &keys);
    else
        status = lp_json_fail(&x->json, (int64_t)bad, "not UTF-8");
    /* A text that is no object at all is another file than it was taken for. */
    if (status != LP_OK && (bytes == 0 || text[0] != '{'))
        lp_hint_mistaken(x->err, text, (size_t)bytes);
    lp_json_free(&x->json);
    lp_strings_free(&keys);
    lp_release(alloc, text);
    return status;
}

/* ---- shards ---- */

static lp_status mismatch(shard_index *x)
{
    lp_hint(x->err, "index and shards do not belong together: download the checkpoint again");
    return LP_E_CORRUPT;
}

/* Most shards have their tensors in the order of the index, where the one behind the last is a good guess. */
static int64_t find_name(shard_index *x, const char *tensor, size_t bytes)
{
    const int64_t next = x->last + 1;
    const bool is_next =
        next < x->names.count && x->names.bytes[next] == bytes && memcmp(x->names.text[next], tensor, bytes) == 0;
    x->last = is_next ? next : lp_strings_find(&x->names, tensor, bytes);
    return x->last;
}

/* The tensors that the shard `file` added, from `first` on, are those that the index places in it. */
static lp_status check_shard(shard_index *x, int64_t first, uint32_t file)
{
    char name[160], other[160];
    const char *shard = x->files.text[file];
    for (int64_t i = first; i < x->c->count; i++) {
        const char *tensor = x->c->tensor[i].name;
        const size_t bytes = strlen(tensor);
        const int64_t n = find_name(x, tensor, bytes);
        if (n < 0) {
            lp_fail_at(x->err, LP_E_CORRUPT, x->path, -1, "tensor '%s' of shard '%s' is not in the index '%s'",
                       lp_show_name(name, tensor, bytes), shard, x->path);
            return mismatch(x);
        }
        if (x->file_of[n] != file) {
            const uint32_t placed = x->file_of[n];
            lp_fail_at(x->err, LP_E_CORRUPT, x->path, -1,
                       "tensor '%s' is in shard '%s', the index '%s' places it in '%s'",
                       lp_show_name(name, tensor, bytes), shard, x->path,
                       lp_show_name(other, x->files.text[placed], x->files.bytes[placed]));
            return mismatch(x);
        }
        x->is_found[n] = true;
    }
    return LP_OK;
}

static lp_status check_all_found(shard_index *x)
{
    char name[160];
    int64_t missing = 0, witness = -1;
    for (int64_t n = 0; n < x->names.count; n++)
        if (!x->is_found[n]) {
            if (witness < 0 || strcmp(x->names.text[n], x->names.text[witness]) < 0)
                witness = n;
            missing++;
        }
    if (missing == 0)
        return LP_OK;
    lp_fail_at(x->err, LP_E_CORRUPT, x->path, -1,
               "tensor '%s' of the index '%s' is not in its shard '%s' (%" PRId64 " missing in all)",
               lp_show_name(name, x->names.text[witness], x->names.bytes[witness]), x->path,
               x->files.text[x->file_of[witness]], missing);
    return mismatch(x);
}

static lp_status add_shard(shard_index *x, uint32_t file)
{
    const lp_io *io = x->c->platform.io;
    lp_file_stat st;
    int fd;
    const char *path = lp_checkpoint_join(x->c, x->c->folder, x->files.text[file]);
    if (path == NULL)
        return lp_fail_memory(x->err);
    const int64_t first = x->c->count;
    lp_status status = lp_checkpoint_open_file(x->c, path, &fd, &st, x->err);
    if (status != LP_OK && fd == -ENOENT) {
        lp_fail_at(x->err, LP_E_CORRUPT, path, -1, "shard '%s' does not exist, the index '%s' lists it", path, x->path);
        lp_hint(x->err, "the download may be incomplete, or a link in a cache broken");
        return LP_E_CORRUPT;
    }
    if (status != LP_OK)
        return status;
    status = st.is_directory ? lp_fail_at(x->err, LP_E_FORMAT, path, -1, "shard '%s' is a folder", path)
                             : lp_checkpoint_add_safetensors(x->c, path, fd, &st, x->err);
    io->close(io->context, fd);
    return status == LP_OK ? check_shard(x, first, file) : status;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Shards are read in order of their names, so that errors and file numbers do not depend on the order of the index. */
static lp_status add_shards(shard_index *x)
{
    const lp_alloc *alloc = x->c->platform.alloc;
    const size_t count = (size_t)x->files.count;
    lp_status status = LP_OK;
    const char **order = lp_allocate(alloc, count * sizeof *order);
    x->is_found = lp_allocate_zero(alloc, (size_t)x->names.count * sizeof *x->is_found);
    if (order == NULL || x->is_found == NULL) {
        status = lp_fail_memory(x->err);
        goto free_order;
    }
    if (count > 0) {
        memcpy(order, x->files.text, count * sizeof *order);
        qsort(order, count, sizeof *order, compare_texts);
    }
    for (size_t i = 0; i < count; i++)
        LP_TRY_GOTO(add_shard(x, (uint32_t)lp_strings_find(&x->files, order[i], strlen(order[i]))), free_order);
    status = check_all_found(x);
free_order:
    lp_release(alloc, order);
    return status;
}

lp_status lp_checkpoint_add_index(lp_checkpoint *c, const char *path, lp_error *err)
{
    const lp_alloc *alloc = c->platform.alloc;
    shard_index x = {.c = c, .path = path, .err = err};
    lp_strings_init(&x.names, alloc);
    lp_strings_init(&x.files, alloc);
    lp_status status = read_index(&x);
    if (status == LP_OK)
        status = add_shards(&x);
    lp_strings_free(&x.names);
    lp_strings_free(&x.files);
    lp_release(alloc, x.file_of);
    lp_release(alloc, x.is_found);
    return status;
}
