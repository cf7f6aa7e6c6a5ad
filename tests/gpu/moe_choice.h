/* SPDX-License-Identifier: Apache-2.0 */
/* Which cases a command line of a MegaMoE test chooses. */
#ifndef MOE_CHOICE_H
#define MOE_CHOICE_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether a name contains one of the parts, which commas divide. */
static inline bool is_wanted(const char *name, const char *parts)
{
    for (const char *at = parts;; at++) {
        const size_t length = strcspn(at, ",");
        char part[64];
        snprintf(part, sizeof part, "%.*s", (int)length, at);
        if (strstr(name, part) != NULL)
            return true;
        at += length;
        if (*at == '\0')
            return false;
    }
}

#endif
