/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that read a chain's text, left and right of the arrow, and its lists. */
#ifndef LOADPLAN_CHAIN_READER_H
#define LOADPLAN_CHAIN_READER_H

#include "layouts/layout_private.h"

/* Axes of one dimension, part by part. */
typedef struct lp_chain_lists_of {
    int32_t parts, count[LP_CHAIN_PARTS];
    int8_t axis[LP_CHAIN_PARTS][LP_CHAIN_AXES];
} lp_chain_lists_of;

typedef struct lp_chain_reader {
    const char *text;
    int64_t at;
    lp_chain *chain;
    lp_error *err;
    lp_chain_lists_of now, split;  /* of the dimension that is being read; of the one with bars */
    uint32_t seen[LP_CHAIN_PARTS]; /* axes of each part that stand on the right already, */
    int32_t count[LP_CHAIN_PARTS]; /* and how many those are */
    int64_t turn_at;               /* byte of the first '^', '+' or '-' */
} lp_chain_reader;

void lp_chain_skip_space(lp_chain_reader *r);
bool lp_chain_is_digit(char c);

/* LP_E_ARGUMENT, with what is wrong at byte `at`. */
lp_status lp_chain_wrong(lp_chain_reader *r, int64_t at, const char *what);

lp_status lp_chain_read_name(lp_chain_reader *r, char name[LP_CHAIN_NAME]);

/* What stands behind the name of an axis, or behind a dimension of the result: "=32", or nothing, which gives 0. */
lp_status lp_chain_read_extent(lp_chain_reader *r, int64_t *extent);

/* Whether `axis` is among the `count` of the list. */
bool lp_chain_lists(int32_t count, const int8_t *list, int32_t axis);

/* The steps of a list, its bracket not yet read, into the chain's; each once. */
lp_status lp_chain_read_steps(lp_chain_reader *r, int32_t *steps);

/* Lists over several axes, ", (a b)[...]" as often as they stand, up to the end of the text. */
lp_status lp_chain_read_joints(lp_chain_reader *r);

/* Everything behind the arrow, once the left side has been read. */
lp_status lp_chain_read_result(lp_chain_reader *r);

#endif
