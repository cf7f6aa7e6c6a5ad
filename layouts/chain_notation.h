/* SPDX-License-Identifier: Apache-2.0 */
/* Reading layouts in the notations of other projects: what their readers share. */
#ifndef LOADPLAN_CHAIN_NOTATION_H
#define LOADPLAN_CHAIN_NOTATION_H

#include "layouts/layout_private.h"

typedef struct lp_notation {
    const char *text;
    int64_t at;
    lp_error *err;
} lp_notation;

/* LP_E_ARGUMENT, with what is wrong where the reader stands. */
lp_status lp_notation_wrong(const lp_notation *r, const char *what);

/* Skips spaces; then whether `c` stands there, which is skipped too. */
bool lp_notation_skip(lp_notation *r, char c);

/* A number from 0 to 2^56; CuTe's mark of a static one, '_', may stand before it. */
lp_status lp_notation_number(lp_notation *r, int64_t *value);

/* What a reader returns: an order that no chain says is a wrong text. */
lp_status lp_notation_end(lp_status status, lp_error *err);

/* The readers; they have the contract of lp_chain_read. */
lp_status lp_chain_read_cute(lp_chain *out, const char *text, lp_error *err);
lp_status lp_chain_read_bases(lp_chain *out, const char *text, lp_error *err);
lp_status lp_chain_read_xla(lp_chain *out, const char *text, lp_error *err);
lp_status lp_chain_read_tag(lp_chain *out, const char *text, lp_error *err); /* of a text that is one */

#endif
