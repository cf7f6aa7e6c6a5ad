/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of traces beyond the public call: a choice of what is in it, and its parts for other reports. */
#ifndef LOADPLAN_TRACE_DUMP_H
#define LOADPLAN_TRACE_DUMP_H

#include "traces/base.h"

/* lp_trace_dump with a choice: without provenance, two texts differ only where their traces mean something else. */
lp_status lp_trace_dump_with(const lp_trace *t, bool provenance, lp_write_fn write, void *context, lp_error *err);

/* What stands in the parentheses of a derive's line. */
void lp_dump_inputs(lp_text *out, const lp_trace *t, const lp_rows *rows, const lp_derive *derive);
void lp_dump_nodes(lp_text *out, const lp_derive *derive);

#endif
