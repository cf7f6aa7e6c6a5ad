/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output: ASCII only, indented in one way, and long lists made and written one element at a time. */
#include "traces/base.h"
#include "traces/cli_private.h"

#include <stdlib.h>

enum { FORM = JSON_INDENT(1) | JSON_REAL_PRECISION(17) };

/* DEL is the one control character that JSON_ENSURE_ASCII lets through; it can only stand in a string. */
static int write_json(const char *text, size_t bytes, void *file)
{
    for (size_t i = 0; i < bytes;) {
        const char *del = memchr(text + i, 0x7f, bytes - i);
        const size_t plain = del != NULL ? (size_t)(del - text) - i : bytes - i;
        if (fwrite(text + i, 1, plain, file) != plain || (del != NULL && fputs("\\u007f", file) == EOF))
            return -1;
        i += plain + (del != NULL);
    }
    return 0;
}

bool lp_cli_dump_json(FILE *out, const json_t *value, size_t flags)
{
    return json_dump_callback(value, write_json, out, flags | JSON_ENSURE_ASCII) == 0;
}

/* ---- lists ---- */

typedef struct deeper {
    FILE *out;
    int blanks;
} deeper;

/* Puts what is printed so many blanks to the right. Newlines stand between values only: strings have them escaped. */
static int write_deeper(const char *text, size_t bytes, void *context)
{
    const deeper *d = context;
    for (size_t i = 0; i < bytes;) {
        const char *newline = memchr(text + i, '\n', bytes - i);
        const size_t length = newline != NULL ? (size_t)(newline - text) + 1 - i : bytes - i;
        if (write_json(text + i, length, d->out) != 0 || (newline != NULL && fprintf(d->out, "%*s", d->blanks, "") < 0))
            return -1;
        i += length;
    }
    return 0;
}

static bool print_list(FILE *out, const lp_cli_list *list, int depth)
{
    deeper d = {.out = out, .blanks = depth + 1};
    for (int64_t i = 0; i < list->count; i++) {
        json_t *value = list->at(list->context, i);
        const bool is_printed = value != NULL && fprintf(out, "%s\n%*s", i > 0 ? "," : "", d.blanks, "") > 0 &&
                                json_dump_callback(value, write_deeper, &d, FORM | JSON_ENSURE_ASCII) == 0;
        json_decref(value);
        if (!is_printed)
            return false;
    }
    return list->count == 0 || fprintf(out, "\n%*s", depth, "") > 0;
}

/* Where the empty list of this key stands in the text of an object: behind its '['. A quote inside a string is escaped,
 * so this text stands for the list alone. */
static const char *find_list(const char *text, const char *key, int *depth)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\": []", key);
    const char *found = strstr(text, wanted);
    if (found == NULL)
        return NULL;
    for (*depth = 0; found - *depth > text && found[-*depth - 1] == ' ';)
        ++*depth;
    return found + strlen(wanted) - 1;
}

bool lp_cli_dump_lists(FILE *out, const json_t *root, const lp_cli_list *list, int lists)
{
    char *text = root != NULL ? json_dumps(root, FORM | JSON_ENSURE_ASCII) : NULL;
    const char *at = text;
    bool ok = text != NULL;
    for (int i = 0; ok && i < lists; i++) {
        int depth;
        const char *place = find_list(at, list[i].key, &depth);
        ok = place != NULL && write_json(at, (size_t)(place - at), out) == 0 && print_list(out, &list[i], depth);
        at = place;
    }
    ok = ok && write_json(at, strlen(at), out) == 0 && fputc('\n', out) != EOF;
    free(text);
    return ok;
}

/* Drops `root`. A failed write is told where the output is closed. */
static bool end_json(lp_cli *cli, json_t *root, bool is_printed)
{
    json_decref(root);
    if (is_printed || ferror(cli->out))
        return true;
    lp_error err;
    lp_fail_memory(&err);
    lp_cli_fail(cli, &err);
    return false;
}

bool lp_cli_json(lp_cli *cli, json_t *value)
{
    return end_json(cli, value,
                    value != NULL && lp_cli_dump_json(cli->out, value, FORM) && fputc('\n', cli->out) != EOF);
}

bool lp_cli_json_lists(lp_cli *cli, json_t *root, const lp_cli_list *list, int lists)
{
    return end_json(cli, root, lp_cli_dump_lists(cli->out, root, list, lists));
}
