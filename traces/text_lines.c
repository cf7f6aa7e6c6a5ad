/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a file that people write. */
#include "traces/text_lines.h"
#include "traces/json_pull.h"

#include <inttypes.h>

lp_lines lp_lines_of(const char *text, int64_t bytes, const char *path)
{
    return (lp_lines){.path = path, .next = text, .start = text, .end = text + bytes};
}

bool lp_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

void lp_lines_skip_blanks(lp_lines *l)
{
    while (l->at < l->stop && lp_is_blank(*l->at))
        l->at++;
}

lp_status lp_lines_wrong(const lp_lines *l, const char *what, const char *subject, lp_error *err)
{
    lp_fail_at(err, LP_E_FORMAT, l->path, -1, "'%s' line %" PRId32 ": %s%s%s%s", l->path, l->line, what,
               subject != NULL ? " '" : "", subject != NULL ? subject : "", subject != NULL ? "'" : "");
    if (l->line == 1 && l->end - l->start >= 3 && memcmp(l->start, "\xef\xbb\xbf", 3) == 0)
        lp_hint(err, "it begins with a byte order mark: save it as UTF-8 without one");
    return LP_E_FORMAT;
}

lp_status lp_lines_next(lp_lines *l, bool *is_one, lp_error *err)
{
    size_t bad;
    *is_one = false;
    while (!*is_one && l->next < l->end) {
        if (l->line == INT32_MAX)
            return lp_fail(err, LP_E_LIMIT, "'%s' has too many lines", l->path);
        const char *stop = memchr(l->next, '\n', (size_t)(l->end - l->next));
        l->line++;
        l->at = l->next;
        l->stop = stop != NULL ? stop : l->end;
        l->next = stop != NULL ? stop + 1 : l->end;
        while (l->stop > l->at && lp_is_blank(l->stop[-1]))
            l->stop--;
        lp_lines_skip_blanks(l);
        *is_one = l->at < l->stop && *l->at != '#';
    }
    const size_t bytes = (size_t)(l->stop - l->at);
    if (*is_one && (memchr(l->at, '\0', bytes) != NULL || !lp_utf8_is_valid(l->at, bytes, &bad)))
        return lp_lines_wrong(l, "this is not text in UTF-8", NULL, err);
    return LP_OK;
}
