/* SPDX-License-Identifier: Apache-2.0 */
/* Declines: families of the checkpoint that a loader leaves alone on purpose, kept as lines of the configuration. */
#include "traces/trace_private.h"

enum { FAMILY_MAX = 4200 };

static const char key[] = "decline=";

/* The next line that is a decline, or is none. */
static const char *next_line(const char **configuration, bool declines, size_t *bytes)
{
    while (**configuration != '\0') {
        const char *line = *configuration;
        *bytes = strcspn(line, "\n");
        *configuration = line + *bytes + (line[*bytes] == '\n');
        if ((strncmp(line, key, sizeof key - 1) == 0) == declines)
            return line;
    }
    return NULL;
}

const char *lp_next_setting(const char **configuration, size_t *bytes)
{
    return next_line(configuration, false, bytes);
}

const char *lp_next_decline(const char **configuration, size_t *bytes)
{
    const char *line = next_line(configuration, true, bytes);
    if (line == NULL)
        return NULL;
    *bytes -= sizeof key - 1;
    return line + sizeof key - 1;
}

/* Where `line` belongs among the sorted lines of `text`: before it, or at it (*known). */
static const char *find_line(const char *text, const char *line, size_t bytes, bool *known)
{
    *known = false;
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        const size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        const int order = memcmp(text, line, length < bytes ? length : bytes);
        *known = order == 0 && length == bytes;
        if (order > 0 || (order == 0 && length >= bytes))
            return text;
        text += length + (end != NULL);
    }
    return text;
}

lp_status lp_trace_decline(lp_trace *t, const char *name, lp_error *err)
{
    char line[sizeof key + FAMILY_MAX];
    if (t->sealed)
        return lp_fail(err, LP_E_MISUSE, "the trace is sealed already");
    memcpy(line, key, sizeof key);
    const size_t family = lp_family_template(name, line + sizeof key - 1, FAMILY_MAX);
    if (family >= FAMILY_MAX || strchr(line, '\n') != NULL)
        return LP_OK; /* no line could hold it; check tells it as unused */
    const size_t bytes = sizeof key - 1 + family;
    const char *text = t->header.configuration;
    bool known;
    const char *at = find_line(text, line, bytes, &known);
    if (known)
        return LP_OK;
    const size_t length = strlen(text), before = (size_t)(at - text);
    if (length + bytes + 2 > LP_CONFIGURATION_BYTES_MAX)
        return lp_fail(err, LP_E_LIMIT, "the configuration is longer than %d bytes", LP_CONFIGURATION_BYTES_MAX);
    lp_text out;
    lp_text_init(&out, t->platform.alloc);
    lp_text_add(&out, text, before);
    if (before > 0 && text[before - 1] != '\n')
        lp_text_add(&out, "\n", 1);
    lp_text_add(&out, line, bytes);
    lp_text_add(&out, "\n", 1);
    lp_text_add(&out, at, length - before);
    const char *configuration = out.failed ? NULL : lp_trace_text(t, out.data);
    lp_text_free(&out);
    if (configuration == NULL)
        return lp_fail_memory(err);
    t->header.configuration = configuration;
    return LP_OK;
}
