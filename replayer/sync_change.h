/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of a stretch of a tensor, as bytes, a record: the smallest of four forms. Private to the replayer.
 *
 *   all       every element
 *   elements  places of the changed ones, then their values
 *   runs      gaps and lengths of changed runs, then their values
 *   bits      a bit for each element of the stretch, then the values of the changed ones
 *
 * Records are multiples of 8 bytes, filled up by zeros.
 */
#ifndef LOADPLAN_SYNC_CHANGE_H
#define LOADPLAN_SYNC_CHANGE_H

#include "traces/base.h"

#include <string.h>

enum {
    LP_CHANGE_HEAD = 24,
    LP_CHANGE_ELEMENTS = 65536, /* most elements of a record: places are 16 bits */
    LP_CHANGE_STRETCH = 16384   /* most bytes of a stretch: what blocks of a device keep in shared memory */
};

typedef enum lp_change_form {
    LP_CHANGE_ALL = 1,
    LP_CHANGE_PLACES = 2,
    LP_CHANGE_RUNS = 3,
    LP_CHANGE_BITS = 4
} lp_change_form;

/* The most that a record of so many bytes of a tensor takes. */
static inline int64_t lp_change_most(int64_t bytes)
{
    return (LP_CHANGE_HEAD + bytes + 7) / 8 * 8;
}

/* Writes the changes of `elements` elements of `elem` bytes, which lie `off` bytes into tensor `name`, to `out` (room
 * for lp_change_most of them). Returns the bytes written; 0: nothing changed. With `whole` all are
 * written, changed or not. */
int64_t lp_change_put(uint32_t name, int64_t off, int elem, int64_t elements, const uint8_t *was, const uint8_t *is,
                      bool whole, uint8_t *out);

/* Reads the changes at `data` and calls `write` for every run of changed bytes. *used gets the bytes read. Everything
 * is checked against the catalogue before the first call: LP_E_CORRUPT. */
typedef lp_status (*lp_change_write)(void *context, uint32_t name, int64_t off, const uint8_t *data, int64_t bytes,
                                     lp_change_form form, lp_error *err);
lp_status lp_change_get(const uint8_t *data, int64_t bytes, const lp_checkpoint *catalogue, lp_change_write write,
                        void *context, int64_t *used, lp_error *err);

/* memcpy, faster where the bytes are those of one element: most changes are. */
static inline void lp_change_copy(uint8_t *to, const uint8_t *from, int64_t bytes)
{
    if (bytes == 1)
        *to = *from;
    else if (bytes == 2)
        memcpy(to, from, 2);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, (size_t)bytes);
}

/* Bytes of an element of a dtype as changes count them: at least 1. */
int lp_change_elem(lp_dtype dtype);

#endif
