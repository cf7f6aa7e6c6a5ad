/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands inside the frames of a trace file: maps, destinations, derives and refusals, and the catalogue. Private.
 * docs/format.md P1-P5 has the layouts. Packing appends to a sticky lp_text; unpacking marks the unpacker as failed for
 * bad data and returns a status for everything else. Values are range-checked only as far as their C types need: the
 * meaning of rows is checked where a scope is expanded.
 */
#ifndef LOADPLAN_ROW_CODEC_H
#define LOADPLAN_ROW_CODEC_H

#include "traces/column_codec.h"

void lp_pack_map(lp_text *out, const lp_map *map);

/* A map of `alloc`, to be freed by lp_map_free. Boxes that are not nested, in canonical form each,
 * and one behind the other fail the unpacker. */
lp_status lp_unpack_map(lp_unpacker *in, const lp_alloc *alloc, const lp_map **out, lp_error *err);

lp_status lp_pack_destinations(lp_text *out, const lp_destination *dest, int64_t count, const lp_alloc *alloc,
                               lp_error *err);
/* Rows, strings and arrays live in `arena`. */
lp_status lp_unpack_destinations(lp_unpacker *in, int64_t count, int64_t *budget, lp_arena *arena, lp_destination **out,
                                 lp_error *err);

/* Provenance is left out, and LP_NONE when read. */
void lp_pack_derives(lp_text *out, const lp_derive *derive, int64_t count);
lp_status lp_unpack_derives(lp_unpacker *in, int64_t count, lp_arena *arena, lp_derive **out, lp_error *err);

void lp_pack_refusals(lp_text *out, const lp_refusal *refusal, int64_t count);
lp_status lp_unpack_refusals(lp_unpacker *in, int64_t count, lp_arena *arena, lp_refusal **out, lp_error *err);

/* Place of a tensor in its file: its position in order of offsets, and the bytes between it and the end of the one
 * before it (for the first: its offset). Position -1: no file, or no known offset. */
typedef struct lp_place {
    int64_t position, gap;
} lp_place;

/* Tensors first .. first + count - 1. */
lp_status lp_pack_catalogue(lp_text *out, const lp_checkpoint *c, const lp_place *place, int64_t first, int64_t count,
                            const lp_alloc *alloc, lp_error *err);
/* Appends to the catalogue `c`, with file_off still unknown, and to place[0 .. count - 1]. */
lp_status lp_unpack_catalogue(lp_unpacker *in, int64_t count, int32_t file_count, int64_t *budget, lp_checkpoint *c,
                              lp_place *place, lp_error *err);

/* Places of all tensors of a sealed catalogue. `place` has room for all. */
lp_status lp_catalogue_places(const lp_checkpoint *c, lp_place *place, lp_error *err);
/* The reverse: sets file_off. *fits is false when the positions of a file are not 0 .. n-1, or an offset overflows. */
lp_status lp_catalogue_offsets(lp_checkpoint *c, const lp_place *place, bool *fits, lp_error *err);

/* LP_E_CORRUPT unless the frame was read without failure and to its last byte. */
lp_status lp_unpack_end(const lp_unpacker *in, const char *what, lp_error *err);

/* A growing column. A failed push is remembered; the owner frees `value`. */
typedef struct lp_column {
    const lp_alloc *alloc;
    int64_t *value;
    int64_t count, capacity;
    bool failed;
} lp_column;

void lp_column_push(lp_column *c, int64_t value);
void lp_column_flush(lp_column *c, lp_text *out); /* packs it, empties it, and passes its failure on to *out */
/* Room for `count` values and their reading; false when out of memory. */
bool lp_column_read(lp_column *c, lp_unpacker *in, int64_t count);

#endif
