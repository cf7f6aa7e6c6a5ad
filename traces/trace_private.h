/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace in memory, private to the traces room: what the builder makes and what the reader of trace files fills.
 *
 * A scope's rows are expanded rows (lp_rows) in canonical order. A built trace has the rows of all scopes. An opened
 * trace has, for each scope, its coordinates and stored plan digest, and a function of the file reader that expands the
 * rows at the first call of lp_trace_rows. Whatever comes out of that function is validated row by row and its digest
 * recomputed, so the reader may fill arrays straight from the file.
 */
#ifndef LOADPLAN_TRACE_PRIVATE_H
#define LOADPLAN_TRACE_PRIVATE_H

#include "traces/base.h"

/* ---- limits on outside data ---- */

enum {
    LP_CONFIGURATION_BYTES_MAX = 1 << 20,
    LP_DEST_DIMS_MAX = 16, /* LP_VIEW_DIMS: a destination must be a view */
    LP_DERIVE_NODES_MAX = 65536,
    LP_DERIVE_INPUTS_MAX = 4096,
    LP_SCOPES_MAX = 65536
};

/* ---- walking over records ---- */

/* Names lie all over a large catalogue, and waiting for one costs more than what is done with it. A walk therefore asks
 * for the rows and names of the records that come soon. */
static inline void lp_look_ahead(const lp_checkpoint *c, const lp_record *record, uint32_t count, uint32_t at)
{
    enum { NAME_AHEAD = 6, ROW_AHEAD = 12 };
    const lp_checkpoint_tensor *row = at + ROW_AHEAD < count ? lp_checkpoint_at(c, record[at + ROW_AHEAD].name) : NULL;
    const lp_checkpoint_tensor *near =
        at + NAME_AHEAD < count ? lp_checkpoint_at(c, record[at + NAME_AHEAD].name) : NULL;
    if (row != NULL)
        __builtin_prefetch(row);
    if (near != NULL)
        __builtin_prefetch(near->name);
}

/* ---- interned maps ----------------------------------------------------------------------------------------------- */

/* A map of a pool: moved so that its first box lies at (0, 0). `map` is the first member, so that the `const lp_map *`
 * of a record leads back here. Numbers follow the order of arrival and are nothing to store: the pool may also hold
 * maps that no row uses any more. */
typedef struct lp_pooled_map {
    lp_map map;
    uint32_t number;
    lp_kind kind; /* copy, replicate, fill, or cast where the element sizes say so: see lp_pooled_kind */
    uint64_t hash;
} lp_pooled_map;

typedef struct lp_map_pool {
    const lp_alloc *alloc;
    lp_arena arena;
    lp_pooled_map **entry;
    int64_t count, capacity;
    uint32_t *table; /* number + 1, open addressing by hash */
    int64_t table_size;
    uint8_t (*digest)[32]; /* by number, filled at first use */
    bool *has_digest;
    int64_t digest_capacity;
} lp_map_pool;

void lp_map_pool_init(lp_map_pool *pool, const lp_alloc *alloc);
void lp_map_pool_free(lp_map_pool *pool);

/* Interns a copy of `map`, moved to (0, 0). *src_off and *dst_off get how far it was moved (src_off is 0 for fills).
 * The map must have at least one box. */
lp_status lp_map_pool_add(lp_map_pool *pool, const lp_map *map, const lp_map **out, int64_t *src_off, int64_t *dst_off,
                          lp_error *err);

/* lp_map_digest of a pooled map, computed once; NULL when out of memory. */
const uint8_t *lp_map_pool_digest(lp_map_pool *pool, const lp_map *pooled);

uint32_t lp_pooled_number(const lp_map *pooled);
lp_kind lp_pooled_kind(const lp_map *pooled, lp_dtype src_dtype, lp_dtype dst_dtype); /* lp_record_kind, O(1) */

/* ---- traces ------------------------------------------------------------------------------------------------------ */

typedef struct lp_provenance_table {
    lp_provenance *row;
    int64_t count, capacity;
    uint32_t *table; /* index + 1, open addressing */
    int64_t table_size;
} lp_provenance_table;

/* What the rows of all scopes share. Strings of rows are interned here; it grows while scopes are expanded, also
 * through a `const lp_trace *`. */
typedef struct lp_trace_shared {
    lp_strings strings;
    lp_map_pool maps;
    lp_provenance_table provenance;
} lp_trace_shared;

typedef struct lp_scope_entry {
    lp_scope scope;     /* normalised */
    uint8_t digest[32]; /* plan digest: computed for a built scope, as stored in the file for an opened one */
    bool has_rows;
    lp_rows rows;
    lp_arena arena; /* holds the rows; the strings and maps that they point to are shared */
} lp_scope_entry;

typedef struct lp_scope_build lp_scope_build; /* trace_build.h: the scope that is being built */

/*
 * The file reader's side of an opened trace. expand fills counts and arrays of *rows in canonical order (scope and
 * digest are the caller's), with memory from `arena` or memory that lives as long as the source; strings may come from
 * there too, maps of records must come from lp_map_pool_add(&t->shared->maps, ...). Maps of derives and refusals only
 * have to live as long as the arena: lp_arena_map copies one.
 */
typedef struct lp_rows_source {
    void *context;
    lp_status (*expand)(void *context, const lp_trace *t, int32_t scope_index, lp_rows *rows, lp_arena *arena,
                        lp_error *err);
    void (*close)(void *context);
    const char *path; /* for errors; NULL: the rows are of no file */
} lp_rows_source;

struct lp_trace {
    lp_platform platform;
    lp_trace_header header;    /* strings are interned; layout is normalised with ranks 0 */
    lp_checkpoint *checkpoint; /* our own copy, catalogue only */
    lp_trace_shared *shared;
    lp_scope_entry *scope; /* by global rank once sealed */
    int32_t scope_count;
    int64_t scope_capacity;
    lp_scope_build *build; /* NULL outside lp_trace_begin_scope .. next scope or seal */
    bool sealed;
    bool failed;           /* a scope could not be made canonical: the builder is good for lp_trace_close only */
    lp_rows_source source; /* of an opened trace, else zeroed */
};

/* A trace without scopes that takes over `checkpoint` (also on failure). For readers: then lp_trace_add_provenance,
 * lp_trace_add_stored_scope in order of rank, and lp_trace_end_stored. */
lp_status lp_trace_new_with(lp_trace **out, lp_checkpoint *checkpoint, const lp_trace_header *header,
                            const lp_platform *platform, lp_error *err);

/* A scope whose rows are in the file. LP_E_CORRUPT: ranks do not rise, sizes are not those of the header. */
lp_status lp_trace_add_stored_scope(lp_trace *t, const lp_scope *scope, const uint8_t digest[32], lp_error *err);

/* Ends the reading of a header: the trace counts as sealed, and `source` (copied) answers lp_trace_rows from now on and
 * is closed by lp_trace_close. */
void lp_trace_end_stored(lp_trace *t, const lp_rows_source *source);

/* Walks through the lines of a configuration: those that are no declines, and the families of those that are. *bytes is
 * the length of what is returned, which ends with its line; NULL behind the last one. */
const char *lp_next_setting(const char **configuration, size_t *bytes);
const char *lp_next_decline(const char **configuration, size_t *bytes);

/* For readers that have whole rows at hand (the text form): adds a scope whose rows were made by hand. The rows and
 * their arrays are copied, their strings and maps too; they are sorted, validated, and their digest is computed into
 * the entry. Call in any order of ranks, then lp_trace_seal. */
lp_status lp_trace_add_rows(lp_trace *t, const lp_rows *rows, lp_error *err);

/* Drops an expansion; it comes back at the next lp_trace_rows. */
void lp_scope_entry_release(lp_scope_entry *entry);

/* Interned copy of a string of this trace, NULL (also for text NULL) counting as "". NULL when out of memory. */
const char *lp_trace_text(const lp_trace *t, const char *text);

/* A copy of a map in an arena; NULL when out of memory. */
const lp_map *lp_arena_map(lp_arena *arena, const lp_map *map);

/* Relative, and nowhere upwards: a path in a trace is joined to a checkpoint's folder. */
bool lp_path_is_safe(const char *path);

/* Catalogue copy for a trace: files under their names relative to the checkpoint's folder, nothing local. */
lp_status lp_checkpoint_copy(lp_checkpoint **out, const lp_checkpoint *from, const lp_platform *platform,
                             lp_error *err);

/* ---- rows: validation and identities ----------------------------------------------------------------------------- */

/* A text that rows may carry: NULL, or UTF-8 of at most LP_TEXT_BYTES_MAX bytes. */
bool lp_text_is_fit(const char *text);

/* Each names the row in its text and fails with `code` (LP_E_ARGUMENT for callers of the builder, LP_E_CORRUPT for
 * files). */
lp_status lp_destination_check(const lp_destination *dest, lp_status code, lp_error *err);
lp_status lp_record_check(const lp_trace *t, const lp_rows *rows, const lp_record *record, lp_status code,
                          lp_error *err);
lp_status lp_derive_check(const lp_trace *t, const lp_rows *rows, const lp_derive *derive, lp_status code,
                          lp_error *err);
lp_status lp_refusal_check(const lp_trace *t, const lp_rows *rows, const lp_refusal *refusal, lp_status code,
                           lp_error *err);

/* All of the above for all rows, and their canonical order. LP_E_CORRUPT. */
lp_status lp_rows_check(const lp_trace *t, const lp_rows *rows, lp_error *err);

/* Canonical order of refusals: (name, destination, region, operation, reason). */
int lp_refusal_compare(const lp_refusal *x, const lp_refusal *y);

/* Row-major byte strides; a sub-byte dtype's are rounded down to whole bytes. false on overflow. */
bool lp_destination_strides(lp_dtype dtype, int32_t ndim, const int64_t *shape, int64_t *stride);

/* The destination as a view from its element [0, ..., 0], and the bytes from there to the end of its storage. */
lp_status lp_destination_view(const lp_destination *dest, lp_view *view, int64_t *bytes, lp_error *err);

/* Rules of docs/derives.md for the nodes alone: operations known, arguments earlier, dtypes and counts fit. */
lp_status lp_derive_nodes_check(const lp_derive *derive, lp_status code, lp_error *err);

/* Plan digest of rows whose record maps are pooled; docs/identities.md. */
lp_status lp_plan_digest(const lp_trace *t, const lp_rows *rows, uint8_t digest[32], lp_error *err);

/* SHA-256 of what a derive means (everything but its provenance), for sorting and comparing. */
lp_status lp_derive_digest(const lp_trace *t, const lp_rows *rows, const lp_derive *derive, uint8_t digest[32],
                           lp_error *err);

#endif
