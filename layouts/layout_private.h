/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room of layouts: the words in which the tables are written, and a layout with its sizes filled in. */
#ifndef LOADPLAN_LAYOUT_PRIVATE_H
#define LOADPLAN_LAYOUT_PRIVATE_H

#include "layouts/layout.h"

#include "traces/base.h"

/* ---- words for the tables ---- */

/* clang-format off */
#define N(n)           {LP_SIZE_ONE, n, 1}
#define E              {LP_SIZE_E, 1, 1}
#define H(times, over) {LP_SIZE_H, times, over}
#define I(times, over) {LP_SIZE_I, times, over}

/* The last argument is an extent; it is variadic because extents that come from another macro hold commas. */
#define EXPERT             {LP_AXIS_EXPERT, "e", E}
#define HALF               {LP_AXIS_HALF, "half", N(2)}
#define ROWS(name, ...)    {LP_AXIS_ROW, name, __VA_ARGS__}
#define COLUMNS(name, ...) {LP_AXIS_COLUMN, name, __VA_ARGS__}

#define MULTIPLES(h, i) .rule = {{LP_SIZE_H, h}, {LP_SIZE_I, i}}

/* The destination: rows, then columns. Row-major, or with the rows of a column side by side (MN-major). */
#define MATRICES(rows, ...)           .ndim = 3, .dim = {E, rows, __VA_ARGS__}, .dim_order = {0, 1, 2}, .slot_dim = 0
#define MATRICES_BY_COLUMN(rows, ...) .ndim = 3, .dim = {E, rows, __VA_ARGS__}, .dim_order = {0, 2, 1}, .slot_dim = 0
/* clang-format on */

/* Checkpoint dtypes. */
#define FP4_BYTES                                                                                                      \
    {                                                                                                                  \
        LP_U8, LP_I8, LP_F4                                                                                            \
    }
#define FP8_CODES                                                                                                      \
    {                                                                                                                  \
        LP_F8_E4M3, LP_U8                                                                                              \
    }
#define UE8M0                                                                                                          \
    {                                                                                                                  \
        LP_U8, LP_F8_E8M0                                                                                              \
    }
#define UE4M3                                                                                                          \
    {                                                                                                                  \
        LP_F8_E4M3, LP_U8                                                                                              \
    }

typedef struct lp_layout_list {
    const lp_layout *layout;
    int32_t count;
} lp_layout_list;

extern const lp_layout_list lp_layouts_gran8, lp_layouts_packed, lp_layouts_trt, lp_layouts_localised, lp_layouts_sm90;

/* ---- a layout of given sizes ---- */

typedef struct lp_layout_geometry {
    int64_t extent[LP_LAYOUT_AXES];
    int64_t stride[LP_LAYOUT_AXES]; /* bytes, in the destination */
    int64_t bytes;                  /* of the destination; its bits and twice as many fit int64_t */
    int64_t element;                /* bytes */
    int64_t rows, columns;          /* of one checkpoint tensor of gate, up or down; columns in destination elements */
} lp_layout_geometry;

lp_status lp_layout_resolve(const lp_layout *layout, const lp_layout_sizes *sizes, lp_layout_geometry *out,
                            lp_error *err);

/* Index of the axis of a role that occurs at most once (expert, half), or -1. */
int32_t lp_layout_axis_of(const lp_layout *layout, lp_axis_role role);

/* ---- chains ---- */

typedef struct lp_chain_list {
    const lp_chain_known *chain;
    int32_t count;
} lp_chain_list;

extern const lp_chain_list lp_chains_of_codes, lp_chains_elsewhere; /* the rest of the table */

/* Index of the axis of that name, or -1. */
int32_t lp_chain_axis_named(const lp_chain *chain, const char *name);

/* Whether a text is a format tag of oneDNN, such as "ABcd16b16a2b". */
bool lp_chain_is_tag(const char *text);

/* How the axis turns the one that stands there: '^', '+', '-' or '~'. */
char lp_chain_turn_sign(const lp_chain_place *place, int32_t axis);

/* The axes that turn the one that stands there. */
static inline uint32_t lp_chain_turns(const lp_chain_place *place)
{
    return place->swizzle | place->plus | place->minus | place->flip;
}

/* Those of them that are no exclusive or: an axis that they turn turns no other, so its digit comes last. */
static inline uint32_t lp_chain_late_turns(const lp_chain_place *place)
{
    return place->plus | place->minus | place->flip;
}

/* A digit of 0 .. extent-1 moved by `by` steps either way, round and round. */
static inline int64_t lp_chain_rotated(int64_t digit, int64_t by, int64_t extent)
{
    const int64_t moved = (digit + by % extent) % extent;
    return moved < 0 ? moved + extent : moved;
}

/* Whether a list over several axes is one of part p, and all axes of that part's lists of that kind. */
bool lp_chain_joint_in(const lp_chain *c, const lp_chain_joint *joint, int32_t p);
uint32_t lp_chain_joint_axes(const lp_chain *c, int32_t p);

/* That their axes make as many steps as the lists have. */
lp_status lp_chain_check_joints(const lp_chain *c, lp_error *err);

/* The digits of all axes of part p, as the source has them, become those that are placed, and back. */
void lp_chain_join_digits(const lp_chain_form *form, int32_t p, int64_t *digit);
void lp_chain_unjoin_digits(const lp_chain_form *form, int32_t p, int64_t *digit);

/* Where the digit of an axis stands, given those of all axes. */
int64_t lp_chain_step_at(const lp_chain_form *form, const lp_chain_place *place, const int64_t *digit);

/* The row-major number of the source element at a place; -1: padding. */
int64_t lp_chain_element_at(const lp_chain_form *form, int64_t off);

/* The part that a source element belongs to. */
int32_t lp_chain_part_at(const lp_chain_form *form, const int64_t *index);

/* ---- text into a buffer that may be too small, as snprintf does, in steps ---- */

typedef struct lp_layout_writer {
    char *buffer;
    size_t capacity, used; /* used: what the whole text takes so far */
} lp_layout_writer;

lp_layout_writer lp_layout_writer_start(char *buffer, size_t buffer_bytes);
void lp_layout_put(lp_layout_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
