/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict pull parser for the JSON that checkpoints are made of: safetensors headers and shard indices. It builds no
 * tree, keeps integers exact up to 2^64 - 1, and knows the byte offset of everything it complains about. What it
 * accepts is RFC 8259 with the limits of the reference reader: at most 127 open containers, no lone surrogates, no
 * number beyond a double. The text must be valid UTF-8 already.
 *
 * A reader enters a container, asks for the next item until there is none, and takes or skips each value:
 *
 *     LP_TRY(lp_json_enter(&j, '['));
 *     bool more;
 *     for (bool first = true;; first = false) {
 *         LP_TRY(lp_json_next(&j, ']', first, &more));
 *         if (!more)
 *             break;
 *         LP_TRY(lp_json_u64(&j, &value));
 *     }
 */
#ifndef LOADPLAN_JSON_PULL_H
#define LOADPLAN_JSON_PULL_H

#include "traces/base.h"

typedef struct lp_json {
    const char *text;
    int64_t bytes, off;
    int depth;
    /* for errors: "bad WHAT in 'PATH' at byte BASE + offset: tensor 'TENSOR': ..." */
    const char *what, *path;
    int64_t base;
    const char *tensor; /* NULL: not inside one */
    size_t tensor_bytes;
    lp_error *err;
    const lp_alloc *alloc;
    char *scratch; /* unescaped strings */
    int64_t scratch_capacity;
} lp_json;

void lp_json_init(lp_json *j, const char *text, int64_t bytes, const lp_alloc *alloc, lp_error *err);
void lp_json_free(lp_json *j);

/* LP_E_CORRUPT with where and what; `off` is an offset in the text. */
lp_status lp_json_fail(lp_json *j, int64_t off, const char *format, ...) __attribute__((format(printf, 3, 4)));

char lp_json_peek(lp_json *j);                  /* the first character of the next token; 0 at the end */
lp_status lp_json_enter(lp_json *j, char open); /* '{' or '[' */
/* Whether there is another item before `close`; takes the comma, or `close` itself. */
lp_status lp_json_next(lp_json *j, char close, bool is_first, bool *more);
/* A string, unescaped; it may hold NUL. Valid until the next string is read. */
lp_status lp_json_string(lp_json *j, const char **text, size_t *bytes);
lp_status lp_json_key(lp_json *j, const char **text, size_t *bytes); /* a string and the colon behind it */
lp_status lp_json_u64(lp_json *j, uint64_t *value);
lp_status lp_json_null(lp_json *j);
lp_status lp_json_skip(lp_json *j); /* any value */
lp_status lp_json_end(lp_json *j);  /* nothing but white space is left */

/* True when text is valid UTF-8 (no overlong forms, no surrogates; NUL is allowed); else *bad_off is where it stops. */
bool lp_utf8_is_valid(const char *text, size_t bytes, size_t *bad_off);

/* The text itself where it is UTF-8, as all texts of a trace are; else the same, escaped, in `buffer`. For names of
 * files, which may be any bytes. */
const char *lp_utf8_text(char *buffer, size_t buffer_bytes, const char *text);

/* Writes the one to four bytes of a code point that is no surrogate; returns their number. */
size_t lp_utf8_encode(char out[4], uint32_t code);

/* A name for an error text: sanitised, shortened to fit; returns `buffer`. */
const char *lp_show_name(char buffer[160], const char *name, size_t bytes);

#endif
