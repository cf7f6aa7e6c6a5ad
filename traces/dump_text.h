/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of the text form of traces: quoted strings, numbers, maps. Private. Writing appends to a sticky lp_text;
 * reading moves a cursor over one line at a time, and the first failure ends it with the line's number.
 * docs/format.md T1-T9 is the grammar.
 */
#ifndef LOADPLAN_DUMP_TEXT_H
#define LOADPLAN_DUMP_TEXT_H

#include "traces/base.h"

/* Names of LP_DEST_* and LP_PROV_*, lowest bit first. */
enum { LP_DEST_FLAG_NAMES = 4, LP_PROV_FLAG_NAMES = 2 };
extern const char *const lp_dest_flag_names[LP_DEST_FLAG_NAMES], *const lp_prov_flag_names[LP_PROV_FLAG_NAMES];

/* ---- writing ---- */

/* "text": JSON escapes for quotes, backslashes, controls and everything beyond ASCII; \xNN for a byte that is not part
 * of UTF-8. */
void lp_dump_string(lp_text *out, const char *text);
void lp_dump_numbers(lp_text *out, const int64_t *number, int32_t count); /* [1,2,3] */
/* Names of the set bits joined by +; bits beyond the names as one number. */
void lp_dump_flags(lp_text *out, const char *const *names, int count, uint32_t flags);
/* A map of one box in place, any other as @ID. */
void lp_dump_map_ref(lp_text *out, const lp_map *map);
/* SRC_ELEM>DST_ELEM and every box: what stands behind "map @ID". */
void lp_dump_map_boxes(lp_text *out, const lp_map *map);
uint64_t lp_dump_map_id(const lp_map *map); /* the first 8 bytes of lp_map_digest */

/* ---- reading ---- */

typedef struct lp_line {
    const char *at, *end;    /* of the line that is being read, without its newline */
    const char *next, *stop; /* the text behind it */
    int64_t number;          /* of the line, from 1 */
    lp_arena *arena;         /* for strings */
    lp_error *err;
} lp_line;

/* The next line that is neither empty nor a comment (#); false at the end of the text. */
bool lp_line_next(lp_line *l);
/* "line 12: ..." with LP_E_CORRUPT. */
lp_status lp_line_fail(const lp_line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Passes on what another layer said about the line: with its number, and as bad data where it calls it a bad argument.
 */
lp_status lp_line_pass(const lp_line *l, int64_t number, lp_status status);

/* Takes `text` if it stands at the cursor. */
bool lp_line_take(lp_line *l, const char *text);
lp_status lp_line_expect(lp_line *l, const char *text);
lp_status lp_line_end(lp_line *l);                                    /* nothing may be left */
lp_status lp_line_word(lp_line *l, const char **word, size_t *bytes); /* up to a blank or the end of the line */
lp_status lp_line_integer(lp_line *l, int64_t least, int64_t most, int64_t *value);
lp_status lp_line_hex(lp_line *l, uint64_t *value); /* 0x... */
lp_status lp_line_string(lp_line *l, const char **text);
lp_status lp_line_flags(lp_line *l, const char *const *names, int count, uint32_t *flags);
/* [1,2,3] into memory of the arena. */
lp_status lp_line_numbers(lp_line *l, int32_t most, const int64_t **number, int32_t *count);

/* Maps by their texts, so that a text that comes again costs one look-up. */
typedef struct lp_map_texts {
    const lp_alloc *alloc;
    lp_strings text;
    const lp_map **map;
    int64_t capacity;
} lp_map_texts;

void lp_map_texts_init(lp_map_texts *m, const lp_alloc *alloc);
void lp_map_texts_free(lp_map_texts *m);
lp_status lp_line_map_ref(lp_line *l, lp_map_texts *m, const lp_map **map);
lp_status lp_line_map_definition(lp_line *l, lp_map_texts *m); /* "@ID 1>1 BOX BOX..." */

#endif
