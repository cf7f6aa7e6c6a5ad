/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of lp_chain_identify: the digits in which the places of a permutation count. */
#ifndef LOADPLAN_CHAIN_DIGITS_H
#define LOADPLAN_CHAIN_DIGITS_H

#include "layouts/layout_private.h"

enum { LP_CHAIN_DIGITS = 64 };

typedef struct lp_chain_digit {
    int64_t extent, step; /* step: of the source index; negative when it runs backwards */
    int64_t below;        /* places from a step to the next; 0: as many as the digits inside it make */
    uint64_t swizzle;     /* digits whose places are exclusive-or'ed onto this one; all of them have 2 steps */
    uint64_t plus, minus; /* digits that are added to this one or taken from it in the source, round and round */
    uint64_t flip;        /* digits that have this one run the other way where their sum is odd */
    int16_t list_end;     /* steps in the order list[list_end - extent .. list_end - 1]; 0: one after the other */
} lp_chain_digit;

typedef struct lp_chain_digits {
    int32_t count, listed;
    bool turned; /* swizzles are of what the digits are in the source, onto places: the other way round */
    bool closed; /* all extents are those of the layout, and there may be room */
    uint8_t list[LP_CHAIN_LISTS];
    lp_chain_digit digit[LP_CHAIN_DIGITS]; /* innermost first */
} lp_chain_digits;

/* A permutation, as it was recorded. */
typedef struct lp_chain_recording {
    const int64_t *place;
    int64_t count;
    int64_t looked; /* places that were looked at, in all passes together */
    bool plain;     /* chains that turn axes are of no use */
} lp_chain_recording;

/* That it has as many places as the shape, and nothing but elements of it. Errors as lp_chain_identify. */
lp_status lp_chain_check_recording(lp_chain_recording *r, int ndim, const int64_t *shape, lp_error *err);

/* The chain of one that has been checked. */
lp_status lp_chain_identify_in(lp_chain *out, lp_chain_recording *r, int ndim, const int64_t *shape, lp_error *err);

/* The chain of a recording with more places than the shape has elements: places that hold none of them are padding.
 * LP_E_ARGUMENT: the shape; LP_E_UNSUPPORTED: no chain without turns, lists and parts says it. */
lp_status lp_chain_identify_padded(lp_chain *out, const int64_t *place, int64_t count, int ndim, const int64_t *shape,
                                   const lp_alloc *alloc, lp_error *err);

/* Two kinds of digits that lp_chain_identify looks for: bits that swizzle each other in any way, and digits that rotate
 * others inside them. False: the recording is of no such kind. */
bool lp_chain_find_bits(lp_chain_digits *out, lp_chain_recording *r, int ndim, const int64_t *shape);
bool lp_chain_find_rotations(lp_chain_digits *out, lp_chain_recording *r);

/* The chain of these digits over a source of this shape. LP_E_UNSUPPORTED: they cross its dimensions unevenly, leave
 * elements out, or are too many, or their room is uneven. LP_E_ARGUMENT: two
 * of them take the same places. */
lp_status lp_chain_from_digits(lp_chain *out, const lp_chain_digits *list, int ndim, const int64_t *shape,
                               lp_error *err);

/* What each digit takes of a dimension of the source. */
typedef struct lp_chain_piece_of {
    int64_t extent, stride, below; /* stride: of the source index */
    int32_t dim;
    bool backwards;
    uint32_t swizzle, plus, minus, flip; /* pieces */
    int16_t list_end;
} lp_chain_piece_of;

typedef struct lp_chain_pieces {
    int32_t count;
    lp_chain_piece_of piece[LP_CHAIN_AXES]; /* innermost of the result first */
} lp_chain_pieces;

/* Leaves one axis of each dimension open, the one that counts how many blocks there are. Axes that turn others, are
 * turned, have a list or lie in a dimension of the result with room keep their extents: a larger tensor has more of
 * such blocks, not larger ones. */
void lp_chain_open_dimensions(lp_chain *c);

/* The second half of lp_chain_from_digits: `cut` are the pieces of `list`. */
lp_status lp_chain_from_pieces(lp_chain *out, const lp_chain_pieces *cut, const lp_chain_digits *list, int ndim,
                               lp_error *err);

#endif
