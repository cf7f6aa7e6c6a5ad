/* SPDX-License-Identifier: Apache-2.0 */
/* Which file of a folder is the checkpoint, and what links say. The only place that looks at folders and links, which
 * lp_io does not serve: it always asks the operating system. */
#include "traces/checkpoint_catalogue.h"

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

static const char index_name[] = "model.safetensors.index.json", single_name[] = "model.safetensors";

static lp_status list(const char *folder, candidates *indices, candidates *singles, lp_error *err)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return lp_fail_errno(err, errno, "open", folder);
    const struct dirent *entry;
    for (errno = 0; (entry = readdir(dir)) != NULL; errno = 0) {
        if (entry->d_name[0] == '.')
            continue;
        if (has_suffix(entry->d_name, "safetensors.index.json"))
            consider(indices, entry->d_name, index_name);
        else if (has_suffix(entry->d_name, ".safetensors"))
            consider(singles, entry->d_name, single_name);
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

lp_status lp_checkpoint_choose_file(lp_checkpoint *c, const char *folder, const char **path, lp_error *err)
{
    candidates indices = {0}, singles = {0};
    const char *name;
    LP_TRY(list(folder, &indices, &singles, err));
    if (indices.count > 0) {
        if (!indices.has_preferred && indices.count > 1)
            return ambiguous(folder, &indices, "checkpoint indices", err);
        name = indices.has_preferred ? index_name : indices.first;
    } else {
        if (singles.count == 0) {
            lp_fail_at(err, LP_E_FORMAT, folder, -1, "no checkpoint in '%s'", folder);
            lp_hint(err, "expected a .safetensors file, or shards with a .safetensors.index.json");
            return LP_E_FORMAT;
        }
        if (!singles.has_preferred && singles.count > 1) {
            ambiguous(folder, &singles, "safetensors files and no index", err);
            lp_hint(err, "give the file that you mean, or add the index that lists the shards");
            return LP_E_FORMAT;
        }
        name = singles.has_preferred ? single_name : singles.first;
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
