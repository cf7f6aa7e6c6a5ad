/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report shows of a trace: destinations that are filled alike as one row, and for one of them which source each
 * of its bytes comes from. Private.
 */
#ifndef LOADPLAN_REPORT_H
#define LOADPLAN_REPORT_H

#include "traces/base.h"

/* ---- rows: destinations of one family, over all ranks, that are filled in the same way ---- */

typedef struct lp_report_row {
    const char *family;
    const lp_destination *dest; /* the first member */
    int32_t scope;              /* of the first member: index in the trace */
    uint32_t index;             /* of the first member in its scope */
    int64_t members, ranks;     /* destinations, and ranks that have any */
    int64_t bytes;              /* of one member: from its first to its last byte, gaps included */
    uint8_t digest[32];         /* of what makes members alike */
    int64_t changed;            /* members that the base fills otherwise, or does not have */
    int64_t born;               /* place before sorting */
    int32_t last_scope;         /* while counting */
} lp_report_row;

/* The records of each destination of one scope, and what makes it alike to others. */
typedef struct lp_report_scope {
    const lp_rows *rows;
    uint32_t *record;      /* by destination, then by place */
    uint32_t *first;       /* ndest + 1 */
    uint8_t (*digest)[32]; /* per destination: with names and source places, for comparing with another trace */
    uint32_t *row;         /* per destination: its row, by `born` */
    uint32_t *shared;      /* the destinations that share their storage with others, in order */
    uint32_t shared_count;
} lp_report_scope;

typedef struct lp_report_rows {
    const lp_trace *trace;
    const lp_alloc *alloc;
    lp_strings family;    /* of checkpoint names and destinations */
    int64_t *name_family; /* per checkpoint name */
    lp_report_scope *scope;
    int32_t scope_count;
    lp_report_row *item; /* most bytes of all members first */
    int64_t count, capacity;
} lp_report_rows;

/* Expands all scopes and groups their destinations. O(records log records). Free also after a failure. */
lp_status lp_report_rows_make(lp_report_rows *r, const lp_trace *trace, const lp_platform *platform, lp_error *err);
void lp_report_rows_free(lp_report_rows *r);

/* Counts in each row of `r` the members that `base` fills otherwise: same rank and name, another digest, or absent. */
lp_status lp_report_rows_compare(lp_report_rows *r, const lp_report_rows *base, lp_error *err);

/* The destination of the same rank and name; false when there is none. */
bool lp_report_rows_find(const lp_report_rows *r, int32_t rank, const char *name, int32_t *scope, uint32_t *index);

/* Bytes from the first element of a destination to the end of its last, gaps included; 0 when it has none. */
int64_t lp_report_span(const lp_destination *dest);

/* The records of one destination, by place. */
const uint32_t *lp_report_records(const lp_report_rows *r, int32_t scope, uint32_t index, uint32_t *count);

/* ---- strips: who fills which bytes of one destination ---- */

enum { LP_STRIP_BINS = 256, LP_STRIP_UNITS = 16, LP_STRIP_SOURCES = 16, LP_STRIP_CODES = 2 * LP_STRIP_SOURCES };

typedef enum lp_strip_kind {
    LP_STRIP_NOTHING = 0, /* gaps, and what nothing writes */
    LP_STRIP_COPY = LP_KIND_COPY,
    LP_STRIP_CAST = LP_KIND_CAST,
    LP_STRIP_REPLICATE = LP_KIND_REPLICATE,
    LP_STRIP_FILL = LP_KIND_FILL,
    LP_STRIP_DERIVE = 5,
    LP_STRIP_FALLBACK = 6,
    LP_STRIP_OTHERS = 7 /* families beyond the limit, and bytes beyond the work limit */
} lp_strip_kind;

/* One source of a destination: all records of one family and kind. */
typedef struct lp_strip_source {
    lp_strip_kind kind;
    const char *family; /* of checkpoint names; "" for fills at the beginning, derives and nothing */
    int64_t records, names, bytes;
    uint32_t provenance; /* of the first record that has one, or LP_NONE */
    const char *note;    /* the operation of a fallback; else "" */
    int colour;          /* its own number, until a strip is coloured like another */
} lp_strip_source;

/* How much of one part of the destination each source has: LP_STRIP_UNITS in all, by code, which is source * 2 + shade.
 * Members of a family take the shades in turns, so that experts can be told apart. */
typedef struct lp_strip_bin {
    uint8_t units[LP_STRIP_CODES];
} lp_strip_bin;

typedef struct lp_strip {
    int64_t bytes; /* from the first byte of the destination to its last */
    int32_t bins;  /* at most LP_STRIP_BINS; 0 for a destination without bytes */
    int32_t sources;
    lp_strip_source source[LP_STRIP_SOURCES];
    lp_strip_bin bin[LP_STRIP_BINS];
} lp_strip;

/* Counts exactly, box by box: O(boxes of the destination x bins). *looks is the work that is left, taken down; when
 * there is none, what remains is shown as others, never as written by nothing. */
lp_status lp_report_strip(lp_strip *out, const lp_report_rows *r, int32_t scope, uint32_t index, int64_t *looks,
                          lp_error *err);

/* Gives the sources of `s` the colours that they have in `like`. */
void lp_report_strip_recolour(lp_strip *s, const lp_strip *like);

#endif
