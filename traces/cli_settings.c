/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration file: where it is, and which keys exist. */
#include "traces/cli_settings.h"
#include "traces/cli_private.h"

#include <stdlib.h>
#include <unistd.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* Every key of every command, so that a typing error is told by each of them. */
static const char *const known[] = {"fail-on", "suppressions", "rate.disk", "rate.link", "rate.device"};

static const char *known_at(int index)
{
    return known[index];
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(key, known[i]) == 0)
            return true;
    return strncmp(key, "rule.", 5) == 0 && lp_rule_find(key + 5) != NULL;
}

static bool has(const char *folder, const char *name)
{
    char *path = lp_cli_format("%s/%s", folder, name);
    const bool is_there = path != NULL && access(path, F_OK) == 0;
    free(path);
    return is_there;
}

/* The nearest folder at or above the current one that holds .git. */
static char *find_root(void)
{
    char *folder = getcwd(NULL, 0);
    while (folder != NULL && !has(folder, ".git")) {
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash == folder) {
            free(folder);
            return NULL;
        }
        *slash = '\0';
    }
    return folder;
}

int lp_cli_settings_open(lp_cli_settings *s, lp_cli *cli)
{
    const char *named = lp_cli_text(cli, "config", NULL);
    lp_error err;
    char *text;
    int64_t bytes;
    *s = (lp_cli_settings){.root = find_root()};
    if (named == NULL && (s->root == NULL || !has(s->root, LP_CLI_CONFIG_NAME)))
        return 0;
    s->path = named != NULL ? strdup(named) : lp_cli_format("%s/%s", s->root, LP_CLI_CONFIG_NAME);
    if (s->path == NULL) {
        lp_fail_memory(&err);
        return lp_cli_fail(cli, &err);
    }
    const char *shown = lp_cli_settings_relative(s, s->path);
    lp_status status = lp_read_file(NULL, s->path, CONFIG_BYTES_MAX, &text, &bytes, &err);
    if (status == LP_OK) {
        status = lp_settings_parse(&s->list, text, bytes, shown, NULL, &err);
        lp_release(NULL, text);
    }
    if (status != LP_OK)
        return lp_cli_fail(cli, &err);
    for (int32_t i = 0; i < s->list->count; i++) {
        const lp_setting *x = &s->list->item[i];
        if (is_known(x->key))
            continue;
        const char *near = lp_cli_nearest(x->key, known_at, sizeof known / sizeof known[0]);
        lp_fail(&err, LP_E_FORMAT, "'%s' line %d: there is no setting '%s'", shown, (int)x->line, x->key);
        if (near != NULL)
            lp_hint(&err, "did you mean '%s'?", near);
        return lp_cli_fail(cli, &err);
    }
    return 0;
}

void lp_cli_settings_close(lp_cli_settings *s)
{
    lp_settings_free(s->list);
    free(s->path);
    free(s->root);
    *s = (lp_cli_settings){.root = NULL};
}

char *lp_cli_settings_beside(const lp_cli_settings *s, const char *path)
{
    const char *slash = s->path != NULL ? strrchr(s->path, '/') : NULL;
    if (slash == NULL || path[0] == '/')
        return strdup(path);
    return lp_cli_format("%.*s/%s", (int)(slash - s->path), s->path, path);
}

const char *lp_cli_settings_relative(const lp_cli_settings *s, const char *path)
{
    const size_t n = s->root != NULL ? strlen(s->root) : 0;
    if (n > 0 && strncmp(path, s->root, n) == 0 && path[n] == '/')
        return path + n + 1;
    for (;;) {
        if (path[0] == '/')
            path += 1;
        else if (strncmp(path, "./", 2) == 0)
            path += 2;
        else if (strncmp(path, "../", 3) == 0)
            path += 3;
        else
            return path;
    }
}
