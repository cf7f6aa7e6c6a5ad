/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How trace files say much in few bytes: integer columns, sorted names and compressed frames. Private.
 *
 * A packer is an lp_text (append only, failures are sticky). An unpacker walks over bytes from outside: every read is
 * checked, the first failure sticks, and readers ask once at the end. docs/format.md holds the byte layout (F1-F6).
 */
#ifndef LOADPLAN_COLUMN_CODEC_H
#define LOADPLAN_COLUMN_CODEC_H

#include "traces/base.h"

/* ---- packing ---- */

void lp_pack_u64(lp_text *out, uint64_t value); /* LEB128: 7 bits a byte, low bits first */
void lp_pack_i64(lp_text *out, int64_t value);  /* the same after zigzag */
void lp_pack_text(lp_text *out, const char *text);
/* `count` values in the shortest of the forms of lp_column_form. */
void lp_pack_column(lp_text *out, const int64_t *value, int64_t count);

/* ---- unpacking ---- */

typedef struct lp_unpacker {
    const uint8_t *at, *end;
    bool failed;
} lp_unpacker;

uint64_t lp_unpack_u64(lp_unpacker *in);
int64_t lp_unpack_i64(lp_unpacker *in);
/* A value in [least, most]; anything else fails the unpacker and gives `least`. */
int64_t lp_unpack_range(lp_unpacker *in, int64_t least, int64_t most);
/* A copy with a NUL in `arena`; NULL on failure (of either kind: arena_failed tells them apart). */
const char *lp_unpack_text_copy(lp_unpacker *in, lp_arena *arena, bool *arena_failed);
/* Exactly `count` values of one column. */
void lp_unpack_column(lp_unpacker *in, int64_t *value, int64_t count);

/* ---- frames: varint raw length, XXH3-64 of the raw bytes, one zstd frame ---- */

/* Compression contexts, reused over many frames. Zeroed before use, freed by lp_codec_free. One thread at a time. */
typedef struct lp_codec {
    void *compress, *expand;
} lp_codec;

void lp_codec_free(lp_codec *codec);

/* Appends the frame of `raw` to *out. */
lp_status lp_frame_pack(lp_codec *codec, const void *raw, int64_t bytes, lp_text *out, lp_error *err);

/* What a frame claims to hold; -1 when it has no readable head. */
int64_t lp_frame_raw_bytes(const void *frame, int64_t bytes);

/* Expands a frame into a block of `alloc` that the caller releases. The claimed length is checked against *budget
 * before anything is allocated, and taken from it. `what` names the frame in errors ("catalogue frame 3 of 'x.lpt'").
 */
lp_status lp_frame_unpack(lp_codec *codec, const lp_alloc *alloc, const void *frame, int64_t bytes, int64_t *budget,
                          const char *what, uint8_t **raw, int64_t *raw_bytes, lp_error *err);

/* ---- names, front-coded ---- */

enum { LP_NAME_BYTES_MAX = 65535 };

/* Texts are best sorted, need not be; each is terminated, at most LP_NAME_BYTES_MAX bytes. */
lp_status lp_pack_names(lp_text *out, const char *const *name, int64_t count, const lp_alloc *alloc, lp_error *err);

/* `count` names into `name`, UTF-8, terminated, memory of `arena`. `sorted` demands rising order. The unpacker fails
 * on bad data; LP_E_MEMORY is the only status. */
lp_status lp_unpack_names(lp_unpacker *in, const char **name, int64_t count, bool sorted, int64_t *budget,
                          lp_arena *arena, lp_error *err);

#endif
