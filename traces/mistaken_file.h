/* SPDX-License-Identifier: Apache-2.0 */
/* What people give by mistake, and what failed downloads leave: told by the first bytes, for hints. Private. */
#ifndef LOADPLAN_MISTAKEN_FILE_H
#define LOADPLAN_MISTAKEN_FILE_H

#include "traces/base.h"

enum { LP_MISTAKEN_BYTES = 64 }; /* so many first bytes tell all kinds */

/* Adds what a file that begins with these bytes looks like, though it was taken for something else, as a hint to an
 * error that is already filled and has none. err may be NULL. */
void lp_hint_mistaken(lp_error *err, const char *start, size_t bytes);

/* The same where a trace or its text is wanted, for which people also give the checkpoint itself. */
void lp_hint_no_trace(lp_error *err, const char *start, size_t bytes);

#endif
