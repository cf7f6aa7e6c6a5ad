/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device program: the steps of a plan as flat descriptors and tiles, in the form in which the GPU reads them.
 *
 *   item   one checkpoint tensor, the unit of a push
 *   desc   one box of a byte map: where it goes, what it reads relative to the item's base pointer, how it is moved
 *   tile   a piece of a desc, about LP_TILE_BYTES of it: what one thread block moves at a time
 *
 * Tiles stand in three lists, each in order of items, one for each kernel: rows that the copy engine of a
 * multiprocessor can move (of at least LP_ROW_BYTES, on addresses that are multiples of 16), transposed words of 4
 * bytes, all others. Everything but the items' base pointers is known when the plan is bound, so it is uploaded once.
 * Plain data, the same on host and device; private to the replayer.
 */
#ifndef LOADPLAN_DEVICE_PROGRAM_H
#define LOADPLAN_DEVICE_PROGRAM_H

#include "replayer/exec.h"

enum {
    LP_DEVICE_MODES = 8,
    LP_UNIT_BYTES = 4 << 10, /* what the kernel for rows moves at a time */
    LP_TILE_UNITS = 8,
    LP_TILE_BYTES = LP_UNIT_BYTES * LP_TILE_UNITS,
    LP_ROW_BYTES = 512,
    LP_SMALL_BYTES = 512,                   /* of other tiles that one warp moves */
    LP_TILE_WORDS = 4096,                   /* elements of a transposed tile */
    LP_TILE_BUFFER = LP_TILE_WORDS * 9 / 8, /* room for them with padding */
    LP_TILE_ROWS = 256,
    LP_WORD_BUFFER = 20 << 10, /* bytes of a tile in the kernel for words, with the padding between rows */
    /* Of a push, that travel as parameters of its kernel, in the 4 KiB that every driver takes; more are copied to the
     * device, and wait for what is on the link. */
    LP_NEAR_PUSH_ITEMS = 100
};

/* The shape of tiles that are a few bytes in one place, such as scalars. */
#define LP_SHAPE_SMALL UINT32_MAX

/* How a box is moved. */
typedef enum lp_device_class {
    LP_MOVE_RUNS = 1, /* rows of bytes: a tile is a piece of a long run, or some short ones */
    LP_MOVE_WORDS =
        2,            /* single elements whose source runs along another mode than the destination: a tiled transpose */
    LP_MOVE_CAST = 3, /* elements change dtype */
    LP_MOVE_FILL = 4  /* a constant */
} lp_device_class;

/* Division of a 31-bit number by a constant: (n * multiplier) >> 32 >> shift, exact for n < 2^31. */
typedef struct lp_divisor {
    uint32_t value, multiplier, shift;
} lp_divisor;

typedef struct lp_device_mode {
    lp_divisor extent;
    lp_divisor tile;  /* LP_MOVE_WORDS: extent of the mode inside a tile */
    lp_divisor tiles; /* LP_MOVE_WORDS: tiles along the mode */
    uint32_t pitch;   /* LP_MOVE_WORDS: distance in the tile's buffer, elements */
    int64_t src, dst; /* strides, bytes */
} lp_device_mode;

typedef struct lp_device_desc {
    uint64_t dst;    /* address of the box's first destination byte */
    int64_t src_off; /* of its first source byte, from the item's base pointer */
    int64_t run;     /* bytes in a row (elements for a cast, patterns for a fill) */
    int64_t runs;    /* product of all extents */
    uint64_t fill_bits;
    uint64_t src_align;   /* what is added to the item's base pointer, or'ed: low bits bound the access width */
    uint64_t dst_align;   /* the same for destination addresses */
    lp_divisor run_bytes; /* run, as a divisor, when it is shorter than a tile */
    uint32_t run_tiles;   /* tiles of one run, when a run has at least a tile; else 0 */
    uint32_t tile_runs;   /* runs of one tile, otherwise */
    uint32_t run_units;   /* rows: units of one run, when a run has at least a unit and less than a tile; else 0 */
    uint32_t unit_runs;   /* rows: runs of one unit, when a run has less than a unit; else 0 */
    uint32_t tile_count;  /* LP_MOVE_WORDS: elements of a whole tile */
    uint32_t shape;       /* of the list of words: equal for descs that differ only in src_off and dst; or SMALL */
    uint8_t move;         /* lp_device_class */
    uint8_t rank;
    uint8_t src_dtype, dst_dtype; /* of a cast */
    uint8_t src_elem, dst_elem;
    uint8_t src_vector, dst_vector;       /* LP_MOVE_WORDS: elements that lie in a row on that side, 1, 2 or 4 */
    uint8_t src_order[LP_DEVICE_MODES];   /* LP_MOVE_WORDS: modes by rising source stride */
    lp_device_mode mode[LP_DEVICE_MODES]; /* innermost first (by destination stride) */
} lp_device_desc;

typedef struct lp_device_tile {
    uint32_t desc, part;  /* part: its number inside the desc */
    uint32_t item, shape; /* shape: that of the desc */
} lp_device_tile;

/* Where a piece of a tile lies: offset from the tile's first byte in memory, and place in the buffer, bytes. */
typedef struct lp_tile_slot {
    uint32_t off, place;
} lp_tile_slot;

/* A tile for the kernel of words: rows as they lie in the source, and vectors of four words as the destination wants
 * them. Words of a vector are `step` bytes apart in the buffer. */
typedef struct lp_tile_shape {
    uint32_t rows, row_bytes, vectors, step;
    lp_tile_slot row[LP_TILE_ROWS], vector[LP_TILE_WORDS / 4];
} lp_tile_shape;

/* All tiles of a desc, one after the other in a list. */
typedef struct lp_tile_run {
    uint32_t desc, item, shape;
    uint32_t first, tiles; /* first: place of part 0 in the list */
} lp_tile_run;

/* The tiles themselves are written on the device: a program is small, whatever it moves. */
typedef struct lp_tile_list {
    lp_tile_run *run;
    int64_t runs, capacity;
    int64_t count;       /* of tiles */
    uint32_t *item_tile; /* items + 1: first tile of each item */
    lp_tile_run *whole;  /* the runs in the order in which a push of all items takes them; NULL: as they stand */
} lp_tile_list;

typedef struct lp_device_program {
    const lp_alloc *alloc;
    uint32_t items, last_item;
    int64_t desc_count, desc_capacity;
    lp_device_desc *desc;
    int64_t shape_count, shape_capacity;
    lp_tile_shape *shape;
    lp_tile_list rows, words, others;
    int64_t bytes; /* written by a push of all items */
} lp_device_program;

/* Begins a program of `items` items. Steps are added item by item, in rising order of items. */
lp_status lp_device_program_new(lp_device_program **out, uint32_t items, const lp_alloc *alloc, lp_error *err);

/* Takes memory for so many steps at once; a program may be larger or smaller. */
lp_status lp_device_program_reserve(lp_device_program *p, int64_t steps, lp_error *err);

/* Adds a copy, cast, replicate or fill. `dst` is the device address that destination offset 0 means. LP_E_LIMIT when
 * the program has too many tiles for 32 bits. */
lp_status lp_device_program_add(lp_device_program *p, uint32_t item, const lp_step *step, uint64_t dst, lp_error *err);
lp_status lp_device_program_end(lp_device_program *p, lp_error *err);
void lp_device_program_free(lp_device_program *p); /* NULL is allowed */

lp_divisor lp_divisor_of(uint32_t value);

/* device_shapes.c: gives the newest desc, a transpose, its shape when the kernel for words can move it. */
lp_status lp_device_find_shape(lp_device_program *p, bool *found, lp_error *err);

#endif
