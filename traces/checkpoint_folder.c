/* SPDX-License-Identifier: Apache-2.0 */
/* Which file of a folder is the checkpoint, and what links say. The only place that looks at folders and links, which
 * lp_io does not serve: it always asks the operating system. */
#include "traces/checkpoint_catalogue.h"
#include "traces/glob.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Candidates of one kind: how many, and the two first in order of name, so that an error is the same every time. */
typedef struct candidates {
    int64_t count;
    char first[NAME_MAX + 1], second[NAME_MAX + 1];
    bool has_preferred;
} candidates;

static void consider(candidates *c, const char *name, const char *preferred)
{
    c->count++;
    if (strcmp(name, preferred) == 0)
        c->has_preferred = true;
    if (c->count == 1 || strcmp(name, c->first) < 0) {
        memcpy(c->second, c->first, sizeof c->second);
        snprintf(c->first, sizeof c->first, "%s", name);
    } else if (c->count == 2 || strcmp(name, c->second) < 0) {
        snprintf(c->second, sizeof c->second, "%s", name);
    }
}

/* What stands in folders without a checkpoint that can be read, and what to do about it. */
static const struct {
    const char *pattern, *what;
} remains[] = {
    {"*.safetensors.incomplete", "is an unfinished download: finish it"},
    {"*.incomplete", "is an unfinished download: finish it"},
    {"*.safetensors.part", "is an unfinished download: finish it"},
    {"*.safetensors.crdownload", "is an unfinished download: finish it"},
    {"*.gguf", "is a GGUF file: use the safetensors checkpoint that it was made from"},
    {"*.bin", "looks like a PyTorch file: convert it to safetensors first"},
    {"*.pt", "looks like a PyTorch file: convert it to safetensors first"},
    {"*.pth", "looks like a PyTorch file: convert it to safetensors first"},
    {"*.ckpt", "looks like a PyTorch file: convert it to safetensors first"},
    {"*.npz", "is an archive of NumPy: convert it to safetensors first"},
    {"*.h5", "is an HDF5 file: convert it to safetensors first"},
    {"*.msgpack", "is a file of Flax: convert it to safetensors first"},
    {"*.onnx", "is an ONNX file: use the checkpoint that it was made from"},
    {"model_index.json", "speaks of a pipeline of several models: give the folder of one of them"},
    {"models--*", "is a repository in the Hugging Face cache: give a folder in its 'snapshots'"},
    {"snapshots", "has the checkpoints of a repository in the Hugging Face cache: give a folder in it"},
};
enum { REMAINS = sizeof remains / sizeof *remains };

/* "model-00001-of-00002.safetensors" is shard 1 of 2. False: the name does not say so. */
static bool is_part(const char *name, long *number, long *count)
{
    static const char of[] = "-of-";
    const char *at = NULL;
    for (const char *next = strstr(name, of); next != NULL; next = strstr(next + 1, of))
        at = next;
    if (at == NULL || at == name || strspn(at + strlen(of), "0123456789") == 0)
        return false;
    const char *digits = at;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    if (digits == at)
        return false;
    *number = strtol(digits, NULL, 10);
    *count = strtol(at + strlen(of), NULL, 10);
    return *count > 1;
}

/* What a folder holds. */
typedef struct listing {
    candidates indices, singles, unfinished;
    candidates other[REMAINS];
} listing;

static const char index_name[] = "model.safetensors.index.json", single_name[] = "model.safetensors";

static lp_status list(const char *folder, listing *l, lp_error *err)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return lp_fail_errno(err, errno, "open", folder);
    const struct dirent *entry;
    for (errno = 0; (entry = readdir(dir)) != NULL; errno = 0) {
        if (entry->d_name[0] == '.')
            continue;
        if (has_suffix(entry->d_name, "safetensors.index.json"))
            consider(&l->indices, entry->d_name, index_name);
        else if (has_suffix(entry->d_name, ".safetensors"))
            consider(&l->singles, entry->d_name, single_name);
        else if (has_suffix(entry->d_name, ".safetensors.aria2"))
            consider(&l->unfinished, entry->d_name, "");
        for (int i = 0; i < REMAINS; i++)
            if (lp_glob_match(remains[i].pattern, entry->d_name))
                consider(&l->other[i], entry->d_name, "");
    }
    const int code = errno;
    closedir(dir);
    return code != 0 ? lp_fail_errno(err, code, "list", folder) : LP_OK;
}

static lp_status ambiguous(const char *folder, const candidates *c, const char *kind, lp_error *err)
{
    lp_fail_at(err, LP_E_FORMAT, folder, -1, "'%s' has %lld %s, such as '%s' and '%s'", folder, (long long)c->count,
               kind, c->first, c->second);
    lp_hint(err, "give the file that you mean");
    return LP_E_FORMAT;
}

static lp_status nothing(const char *folder, const listing *l, lp_error *err)
{
    lp_fail_at(err, LP_E_FORMAT, folder, -1, "no checkpoint in '%s'", folder);
    lp_hint(err, "expected a .safetensors file, or shards with a .safetensors.index.json");
    for (int i = REMAINS - 1; i >= 0; i--)
        if (l->other[i].count > 0)
            lp_hint(err, "'%s' %s", l->other[i].first, remains[i].what);
    return LP_E_FORMAT;
}

/* The only safetensors file of a folder, which says of itself that it is not all. */
static lp_status lonely(const char *folder, const char *name, long number, long count, lp_error *err)
{
    lp_fail_at(err, LP_E_FORMAT, folder, -1, "'%s' has '%s', shard %ld of %ld, but neither the others nor an index",
               folder, name, number, count);
    lp_hint(err, "the download may be incomplete; to use this shard alone, give the file");
    return LP_E_FORMAT;
}

lp_status lp_checkpoint_choose_file(lp_checkpoint *c, const char *folder, const char **path, lp_error *err)
{
    listing l = {0};
    const candidates *indices = &l.indices, *singles = &l.singles;
    const char *name;
    long number, count;
    LP_TRY(list(folder, &l, err));
    if (l.unfinished.count > 0) {
        /* aria2 gives a file its full size at once, so that only this says that there are holes in it. */
        lp_fail_at(err, LP_E_CORRUPT, folder, -1, "a download into '%s' is unfinished: there is '%s'", folder,
                   l.unfinished.first);
        lp_hint(err, "let aria2 finish it; remove that file if it is stale");
        return LP_E_CORRUPT;
    }
    if (indices->count > 0) {
        if (!indices->has_preferred && indices->count > 1)
            return ambiguous(folder, indices, "checkpoint indices", err);
        name = indices->has_preferred ? index_name : indices->first;
    } else {
        if (singles->count == 0)
            return nothing(folder, &l, err);
        if (!singles->has_preferred && singles->count > 1) {
            ambiguous(folder, singles, "safetensors files and no index", err);
            lp_hint(err, "give the file that you mean, or add the index that lists the shards");
            return LP_E_FORMAT;
        }
        name = singles->has_preferred ? single_name : singles->first;
        if (is_part(name, &number, &count))
            return lonely(folder, name, number, count, err);
    }
    *path = lp_checkpoint_join(c, folder, name);
    return *path == NULL ? lp_fail_memory(err) : LP_OK;
}

const char *lp_checkpoint_join(lp_checkpoint *c, const char *folder, const char *name)
{
    if (strcmp(folder, ".") == 0)
        return lp_arena_text(&c->arena, name, strlen(name));
    return lp_arena_format(&c->arena, has_suffix(folder, "/") ? "%s%s" : "%s/%s", folder, name);
}

bool lp_checkpoint_blob_digest(const char *path, char digits[65])
{
    char target[PATH_MAX];
    if (realpath(path, target) == NULL)
        return false;
    const char *slash = strrchr(target, '/');
    const char *name = slash != NULL ? slash + 1 : target;
    if (strlen(name) != 64 || strspn(name, "0123456789abcdef") != 64)
        return false;
    memcpy(digits, name, 65);
    return true;
}
