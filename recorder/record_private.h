/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder from the inside. Writes of a scope are kept in order and handed to the trace when the scope ends,
 * because later calls can still change them: a refusal turns a name's writes into fallback regions, an expression that
 * is computed in place replaces the copy that it reads.
 */
#ifndef LOADPLAN_RECORD_PRIVATE_H
#define LOADPLAN_RECORD_PRIVATE_H

#include "recorder/recorder.h"
#include "traces/base.h"

#include <stdio.h>

enum {
    REC_PIECES_MAX = LP_MAP_BOXES_MAX, /* of a temporary */
    REC_RUNS_MAX = 1 << 20             /* of a copy that has to be cut run by run */
};

/* A map whose first box lies at (0, 0), and what a pair of views at offset 0 must add to get there. */
typedef struct rec_shape {
    const void *key; /* the two views, without their offsets */
    uint32_t key_bytes;
    uint64_t hash;
    const lp_map *map;
    int64_t src_delta, dst_delta;
} rec_shape;

typedef enum rec_write_kind {
    REC_DROPPED = 0,
    REC_BYTES = 1,  /* copy, cast or fill: `map`, shifted */
    REC_DERIVE = 2, /* derive number `name` */
} rec_write_kind;

typedef struct rec_write {
    const lp_map *map; /* moved by the offsets; of a derive: from its dense result, absolute */
    int64_t src_off, dst_off;
    uint64_t fill_bits;
    uint32_t name, dest;
    uint32_t provenance;
    uint32_t previous; /* the write to the same destination before this one, or LP_NONE */
    uint8_t kind;      /* rec_write_kind */
    uint8_t src_dtype, dst_dtype;
} rec_write;

typedef struct rec_destination {
    lp_destination row;
    lp_view view;
    int64_t bytes;         /* of the storage, from element [0, ..., 0] on */
    uint32_t last_write;   /* LP_NONE: none */
    uint32_t first_reader; /* inputs of expressions that read it; LP_NONE: none */
    bool is_computed;      /* a derive has written to it */
} rec_destination;

/* Bytes of a temporary (or of a destination that is copied from) and where they come from; absolute map. */
typedef struct rec_piece {
    const lp_map *map;
    uint64_t fill_bits;
    uint32_t name;     /* of a fill its trigger; of a computed value its node, whose dense result the map reads */
    uint8_t src_dtype; /* of a cast */
    uint8_t dst_dtype;
    uint8_t flags; /* LP_PROV_* that a copy of it earns */
    bool is_fill, is_value;
} rec_piece;

typedef struct rec_temporary {
    int64_t bytes;
    rec_piece *piece;
    int64_t count, capacity;
    bool is_disjoint;   /* while it is put together: pieces cannot overlap, nothing has to be trimmed */
    uint32_t shadow_of; /* the checkpoint tensor that it stands for since the loader wrote to it, or LP_NONE */
} rec_temporary;

/* One node of an expression; arguments have lower numbers. */
typedef struct rec_value {
    lp_node node;
    /* of LP_OP_INPUT */
    bool staged;
    uint32_t index;
    lp_dtype dtype;
    const lp_map *map;
    int64_t written_before; /* writes of the scope when the loader read it */
    bool is_lost;           /* what it read was overwritten, and cannot be read elsewhere */
    bool reads_last;        /* what is there when a load is complete is meant, not what was there when it was read */
} rec_value;

/* An expression node that reads a destination, in the list of that destination. */
typedef struct rec_reader {
    uint32_t node, next; /* LP_NONE: the last one */
} rec_reader;

typedef struct rec_derive {
    uint32_t dest, root;
    const lp_map *map; /* from the dense result, absolute; NULL for a check */
    const char *text;
    uint32_t provenance;
    bool dropped;
    bool is_visited; /* while names are collected */
} rec_derive;

typedef struct rec_refusal {
    uint32_t name, dest;
    const lp_map *map;
    const char *operation, *reason;
    uint32_t provenance;
} rec_refusal;

enum { REC_NAME_REFUSED = 1, REC_NAME_SHADOWED = 2 };
enum { REC_PLACES = 64 }; /* a power of two */

struct lp_recorder {
    lp_platform platform;
    const lp_checkpoint *checkpoint;
    lp_trace *trace;
    lp_scope scope;
    bool finished;

    lp_error misuse; /* code LP_OK: none */

    /* of the scope */
    lp_arena arena;
    lp_strings dest_names;
    rec_destination *dest;
    int64_t dest_capacity;
    rec_write *write;
    int64_t write_count, write_capacity;
    rec_temporary *temporary;
    int64_t temporary_count, temporary_capacity;
    rec_value *value;
    int64_t value_count, value_capacity;
    uint32_t *value_number; /* scratch of rec_walk_from, all 0 between walks */
    int64_t value_number_count, value_number_capacity;
    rec_derive *derive;
    int64_t derive_count, derive_capacity;
    rec_reader *reader;
    int64_t reader_count, reader_capacity;
    rec_refusal *refusal;
    int64_t refusal_count, refusal_capacity;
    uint8_t *name_flags; /* REC_NAME_*, one per checkpoint tensor */
    uint32_t *marked;    /* names whose flags are not 0 */
    int64_t marked_count, marked_capacity;
    const lp_map **scope_map; /* to be freed with the scope */
    int64_t scope_map_count, scope_map_capacity;

    /* of all scopes */
    lp_strings declined; /* family templates */
    lp_arena shape_arena;
    rec_shape *shape;
    int64_t shape_count, shape_capacity;
    uint32_t *shape_table; /* index + 1, open addressing */
    int64_t shape_table_size;

    /* provenance of the places that were seen last */
    struct rec_place {
        const char *file;
        int line;
        uint32_t flags;
        uint32_t index;
        bool used;
    } place[REC_PLACES];
};

/* ---- recorder.c ---- */

lp_tensor rec_invalid(lp_recorder *r);

/* Keeps the first misuse, with its place, and returns an invalid tensor. */
lp_tensor rec_misuse(const char *file, int line, lp_recorder *r, lp_status code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
lp_tensor rec_misuse_error(const char *file, int line, lp_recorder *r, const lp_error *err);
lp_tensor rec_no_memory(lp_recorder *r);

/* False when a tensor is invalid, or belongs to another recorder; either is kept as misuse. */
bool rec_usable(const char *file, int line, lp_recorder *r, const lp_tensor *t);

/* Index of a place for lp_trace_provenance; LP_NONE (and kept as misuse) when that fails. */
uint32_t rec_provenance(lp_recorder *r, const char *file, int line, uint32_t flags);

/* Hands a map to the scope; NULL (and kept as misuse) when out of memory, after freeing it. */
const lp_map *rec_own(lp_recorder *r, const lp_map *map);
/* The same where a failure is returned: *out is the map. */
lp_status rec_keep(lp_recorder *r, const lp_map *map, const lp_map **out, lp_error *err);

/* Bytes of the memory that a tensor is a view of, counted from the view's origin. */
int64_t rec_memory_bytes(const lp_recorder *r, const lp_tensor *t);

/* ---- record_shape.c: maps by the shape of two views ---- */

/* The map of dst.copy_(src), relative, and its offsets: two views that differ in their offsets only share one map. */
lp_status rec_map_copy(lp_recorder *r, const lp_view *dst, int64_t dst_bytes, const lp_view *src, int64_t src_bytes,
                       const lp_map **map, int64_t *src_off, int64_t *dst_off, lp_error *err);
void rec_free_shapes(lp_recorder *r);

/* ---- record_copy.c ---- */

/* Appends a write to its destination's list. */
void rec_add_write(lp_recorder *r, const rec_write *w);

/* Puts a copied or filled piece where dst is: a record of a destination, or a piece of a temporary. */
void rec_put(const char *file, int line, lp_recorder *r, const lp_tensor *dst, const rec_piece *piece, int64_t src_off,
             int64_t dst_off);

/* What a failed map of a copy means: a refusal of the names of src where no map can say it, else a misuse. */
void rec_copy_failed(const char *file, int line, lp_tensor dst, lp_tensor src, const lp_error *err);

/* ---- record_temporary.c: bytes put together from several names ---- */

/* A temporary of `bytes` bytes; -1 (and kept as misuse) when out of memory. */
int64_t rec_new_temporary(lp_recorder *r, int64_t bytes);

/* Appends a piece (absolute map, owned by the scope) and trims what it covers of earlier ones. */
lp_status rec_write_piece(lp_recorder *r, int64_t temporary, const rec_piece *piece, lp_error *err);

/* The temporary that stands for a checkpoint tensor that the loader writes to; -1 as above. `make`: unless there is
 * one, make it. */
int64_t rec_shadow(lp_recorder *r, uint32_t name, bool make);

/* Fills a fresh temporary with the result of a node. */
lp_status rec_hold_value(lp_recorder *r, int64_t temporary, uint32_t node, lp_error *err);

/* Sets REC_NAME_* of a name until the scope ends; false when out of memory. */
bool rec_mark_name(lp_recorder *r, uint32_t name, uint8_t flag);

/* What was written to a destination so far, as a temporary; *computed: some of it by a derive, which has no piece. -1
 * as above. */
int64_t rec_written(lp_recorder *r, uint32_t dest, bool *computed);

/* ---- record_cut.c ---- */

/* The part of `copy` that reads what `piece` wrote, the recorder's; NULL when that is nothing. LP_E_LIMIT and
 * LP_E_UNSUPPORTED: no map can say it. */
lp_status rec_cut_to_piece(lp_recorder *r, const lp_map *copy, const lp_map *piece, const lp_map **out, lp_error *err);

/* ---- record_pieces.c ---- */

/* Copies from a temporary (its number in src.base), piece by piece. */
void rec_copy_pieces(const char *file, int line, lp_tensor dst, lp_tensor src);

/* What `gather` reads in the temporary, as a piece of the one name, and of the one cast, that put it there;
 * LP_E_UNSUPPORTED: there are others. */
lp_status rec_through_pieces(lp_recorder *r, int64_t temporary, const lp_map *gather, rec_piece *out, lp_error *err);
/* A map of elements that casts, as the map of bytes that moves its elements uncast, each of `elem` bytes at both ends:
 * with src_elem, what gathers the source densely, in the order of a dense destination; with dst_elem, what reads a
 * dense value that was cast before. *out is the recorder's. */
lp_status rec_map_as_bytes(lp_recorder *r, const lp_map *cast, int64_t elem, const lp_map **out, lp_error *err);

/* ---- record_value.c ---- */

/* t as an expression node of its own dtype (cast_to applied), in row-major order; -1 after keeping a misuse or refusing
 * the names that t reads. */
int64_t rec_value_of(const char *file, int line, lp_tensor t);

/* A view of a value as a node of its own, row-major: in record_value_view.c. LP_E_UNSUPPORTED and LP_E_LIMIT say what
 * cannot be viewed. */
lp_status rec_view_value(lp_recorder *r, lp_tensor t, uint32_t *made, lp_error *err);

/* A node of `count` elements; -1 when out of memory. */
int64_t rec_add_value(lp_recorder *r, const rec_value *value);

/* The node cast to a dtype; -1 when out of memory. */
int64_t rec_cast_value(lp_recorder *r, int64_t node, lp_dtype to);

/* A value tensor of the node, row-major. */
lp_tensor rec_value_tensor(const char *file, int line, lp_recorder *r, int64_t node, int ndim, const int64_t *shape);

/* ---- record_expression.c: nodes below a root ---- */

/* A walk over the nodes below a root: `order` has each once, arguments before their users. Meanwhile r->value_number
 * holds each one's position + 1. */
typedef struct rec_walk {
    uint32_t *order, *stack;
    int64_t count, order_capacity;
    int64_t depth, stack_capacity;
    int64_t inputs; /* nodes that are LP_OP_INPUT */
} rec_walk;

/* One walk at a time; *walk is zeroed before. False when out of memory. rec_end_walk is due in either case. */
bool rec_walk_from(lp_recorder *r, rec_walk *walk, uint32_t root);
void rec_end_walk(lp_recorder *r, rec_walk *walk);

/* Whether the node is in the expression below `root`. */
lp_status rec_expression_has(lp_recorder *r, uint32_t root, uint32_t node, bool *has, lp_error *err);

/* The nodes below `root` in a row, inputs numbered; arrays belong to the scope. */
lp_status rec_flatten_value(lp_recorder *r, uint32_t root, lp_derive *out, lp_error *err);

/* ---- record_in_place.c: expressions that read what they write ---- */

/* Nothing below `root` may be lost, nor, when it is computed in place, read where `out` writes to `dest`. */
lp_status rec_resolve_inputs(lp_recorder *r, uint32_t root, uint32_t dest, const lp_map *out, bool in_place,
                             lp_error *err);

/* Makes input `at`, which reads destination `dest` where `out` (NULL: all of it) is about to write, read the source of
 * the copy that wrote it. *overwritten: whether `out` concerns it at all. */
lp_status rec_resolve_input(lp_recorder *r, uint32_t at, uint32_t dest, const lp_map *out, bool *overwritten,
                            lp_error *err);

/* Makes `at`, an input, read what the piece reads, and cast as it does. */
lp_status rec_read_piece(lp_recorder *r, rec_value *at, const rec_piece *piece, lp_error *err);

/* Takes the bytes that `out`, moved by `shift`, writes out of what was written to the destination so far: the later
 * write counts. Needed where an order of names cannot say so: beside derives, and before a fill that comes first in a
 * load. */
lp_status rec_trim_writes(lp_recorder *r, uint32_t dest, const lp_map *out, int64_t shift, bool derives_only,
                          lp_error *err);

/* ---- record_derive.c ---- */

/* dst becomes a value. in_place: what dst itself held before is read through the copies that wrote it. */
void rec_copy_value(const char *file, int line, lp_tensor dst, lp_tensor value, bool in_place);

/* The bytes of dst that `out` writes become those of the dense result of `node`. */
lp_status rec_place_value(const char *file, int line, lp_tensor dst, uint32_t node, const lp_map *out, uint8_t flags,
                          bool in_place, lp_error *err);

/* ---- record_readers.c: expressions that read destinations ---- */

/* Lists a node that reads a destination with it; a node that came to read another one is in both lists. */
void rec_note_reader(lp_recorder *r, uint32_t node);

/* Before `out`, moved by `shift` (NULL: all), is written to the destination: what reads those bytes reads their source
 * instead, or is lost and refused. */
lp_status rec_leave_readers(const char *file, int line, lp_recorder *r, uint32_t dest, const lp_map *out, int64_t shift,
                            lp_error *err);

/* ---- record_refuse.c ---- */

typedef void (*rec_each_name)(lp_recorder *r, uint32_t name, void *context);

/* Calls `each` for every checkpoint name that t reads. */
void rec_names_of(lp_recorder *r, lp_tensor t, rec_each_name each, void *context);

/* Refuses the names that t reads; dst is where they would have gone (invalid: unknown). Texts must live as long as the
 * scope. */
void rec_refuse_tensor(const char *file, int line, lp_tensor t, lp_tensor dst, const char *operation,
                       const char *reason);

/* What a value operation on a refused operand t results in: a temporary of that shape in which the names hold their
 * place, so that a copy of it still says where they would have gone. Invalid after a misuse. */
lp_tensor rec_refused_value(const char *file, int line, lp_tensor t, int ndim, const int64_t *shape);

/* ---- record_scope.c ---- */

lp_status rec_begin_scope(lp_recorder *r, const lp_scope *scope, lp_error *err);
lp_status rec_end_scope(lp_recorder *r, lp_error *err);
void rec_free_scope(lp_recorder *r);

#endif
