/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the text reader share: trace_undump.c (the whole) and undump_rows.c (rows of a scope). */
#ifndef LOADPLAN_TRACE_UNDUMP_H
#define LOADPLAN_TRACE_UNDUMP_H

#include "traces/dump_text.h"
#include "traces/trace_private.h"

typedef struct lp_undump {
    lp_platform platform;
    lp_arena arena; /* strings and rows of the part that is being read */
    lp_line line;
    lp_map_texts maps;
    lp_trace_header header;
    lp_checkpoint *checkpoint; /* until the trace takes it over */
    lp_trace *trace;
    int64_t records, derives, refusals;
    lp_error *err;
} lp_undump;

/* Whether a file may be the text of a trace, by its first bytes (lp_read_judged). */
lp_status lp_undump_judge(const char *path, const char *start, int64_t start_bytes, int64_t file_bytes, lp_error *err);

lp_status lp_undump_dtype(lp_line *l, lp_dtype *dtype); /* "-" is LP_DTYPE_NONE */

/* The rows of a scope, up to a line that is none. Arrays and strings live in u->arena, maps in u->maps. */
lp_status lp_undump_rows(lp_undump *u, lp_rows *rows);

#endif
