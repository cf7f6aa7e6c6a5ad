/* SPDX-License-Identifier: Apache-2.0 */
/* Globs. Only the last '*' has to be tried again: whatever an earlier one could give, the later one can take. */
#include "traces/glob.h"

#include <stddef.h>

bool lp_glob_match(const char *glob, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text != '\0') {
        const bool is_escaped = *glob == '\\' && glob[1] != '\0';
        if (!is_escaped && *glob == '*') {
            star = ++glob;
            resume = text;
        } else if ((!is_escaped && *glob == '?') || (*glob != '\0' && glob[is_escaped] == *text)) {
            glob += 1 + is_escaped;
            text++;
        } else if (star != NULL) {
            glob = star;
            text = ++resume;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return *glob == '\0';
}
