/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that people choose by number (--ops SET), and the tensors that these speak of. A rank's rows are counted from 0
 * as `dump` prints them: records, then derives, then refusals. Private. */
#ifndef LOADPLAN_ROW_CHOICE_H
#define LOADPLAN_ROW_CHOICE_H

#include "traces/number_set.h"

/* Sets dest[i] for every destination that a chosen row writes. `dest` has rows->ndest entries. */
void lp_chosen_destinations(const lp_rows *rows, const lp_number_set *set, bool *dest);

/* Adds the names of all checkpoint tensors and destinations that chosen rows of any rank speak of. */
lp_status lp_chosen_tensors(lp_strings *names, const lp_trace *t, const lp_number_set *set, lp_error *err);

#endif
