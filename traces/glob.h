/* SPDX-License-Identifier: Apache-2.0 */
/* How people select tensors by name. Private. */
#ifndef LOADPLAN_GLOB_H
#define LOADPLAN_GLOB_H

#include <stdbool.h>

/* Whether all of `text` matches `glob`: '*' any bytes (dots too), '?' one byte, '\' takes the next character as it is.
 * Brackets mean themselves: names hold them. O(glob x text) whatever the pattern, so both may come from outside. */
bool lp_glob_match(const char *glob, const char *text);

#endif
