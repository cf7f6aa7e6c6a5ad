/* SPDX-License-Identifier: Apache-2.0 */
/* A choice of rows of a dump. Works on its lines: the text form is a promise, and has every name in quotes. */
#include "traces/dump_filter.h"
#include "traces/glob.h"

/* The text between the quotes at `p`, as it is printed; NULL when there are none. */
static const char *quoted(const char *p, size_t *bytes)
{
    if (*p != '"')
        return NULL;
    const char *end = ++p;
    while (*end != '\0' && *end != '"')
        end += end[0] == '\\' && end[1] != '\0' ? 2 : 1;
    *bytes = (size_t)(end - p);
    return p;
}

static bool matches(const lp_dump_filter *f, const char *p, bool *failed)
{
    size_t bytes;
    const char *name = quoted(p, &bytes);
    if (name == NULL)
        return false;
    lp_text copy;
    lp_text_init(&copy, f->line.alloc);
    lp_text_add(&copy, name, bytes);
    const bool is_match = !copy.failed && lp_glob_match(f->tensor, copy.data);
    *failed = *failed || copy.failed;
    lp_text_free(&copy);
    return is_match;
}

/* A line names its tensor first, and where that goes after an arrow. */
static bool is_about(const lp_dump_filter *f, const char *line, bool *failed)
{
    if (f->tensor == NULL)
        return true;
    const char *blank = strchr(line, ' '), *arrow = strstr(line, "\" -> \"");
    return (blank != NULL && matches(f, blank + 1, failed)) || (arrow != NULL && matches(f, arrow + 5, failed));
}

static bool begins(const char *line, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(line, word, n) == 0 && line[n] == ' ';
}

static bool is_wanted(lp_dump_filter *f, const char *line, bool *failed)
{
    static const char *const rows[] = {"copy", "cast", "replicate", "fill", "derive", "refuse"};
    if (begins(line, "scope")) {
        f->number = 0;
        return true;
    }
    if (begins(line, "dest") || begins(line, "name"))
        return f->rows == NULL && is_about(f, line, failed);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (begins(line, rows[i])) {
            const int64_t number = f->number++;
            return (f->rows == NULL || lp_number_set_has(f->rows, number)) && is_about(f, line, failed);
        }
    return false;
}

int lp_dump_filter_write(void *filter, const char *text, size_t bytes)
{
    lp_dump_filter *f = filter;
    bool failed = false;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t piece = end != NULL ? (size_t)(end - text) - at : bytes - at;
        lp_text_add(&f->line, text + at, piece);
        if (f->line.failed)
            return 1;
        at += piece + (end != NULL);
        if (end == NULL)
            break;
        if (is_wanted(f, f->line.data, &failed)) {
            lp_text_add(&f->line, "\n", 1);
            if (f->line.failed || f->write(f->context, f->line.data, (size_t)f->line.bytes) != 0)
                return 1;
        }
        f->line.bytes = 0;
    }
    return failed;
}
