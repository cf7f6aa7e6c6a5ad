/* SPDX-License-Identifier: Apache-2.0 */
/* lp_trace_dump with a choice: without provenance, two texts differ only where their traces mean something else. */
#ifndef LOADPLAN_TRACE_DUMP_H
#define LOADPLAN_TRACE_DUMP_H

#include "traces/trace.h"

lp_status lp_trace_dump_with(const lp_trace *t, bool provenance, lp_write_fn write, void *context, lp_error *err);

#endif
