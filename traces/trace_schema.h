/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema of trace files: identity, limits and the text of every table, in one place for reader and writer. Private.
 * docs/format.md explains each table. A change here is a change of the format: raise the minor version when old readers
 * can ignore it, the major version when they cannot.
 */
#ifndef LOADPLAN_TRACE_SCHEMA_H
#define LOADPLAN_TRACE_SCHEMA_H

#include <stdint.h>

enum {
    LP_TRACE_APPLICATION_ID = 0x4c505431, /* "LPT1" */
    LP_TRACE_MAJOR = 1,
    LP_TRACE_MINOR = 0,
    LP_TRACE_USER_VERSION = LP_TRACE_MAJOR * 1000 + LP_TRACE_MINOR,
    LP_TRACE_PAGE_BYTES = 4096
};

/* Limits against hostile files. They bound time and memory before anything is expanded, and they grow with what is in a
 * file, so that a small file cannot ask for what only a large one needs. Traces of loaders stay far below: the largest
 * seen decode to 60 bytes a byte and have 4 records a name and scope. */
static const int64_t LP_TRACE_FILE_BYTES_MAX = INT64_C(1) << 30;

static inline int64_t lp_trace_limit(int64_t base, int64_t factor, int64_t count, int64_t most)
{
    return count >= (most - base) / factor ? most : base + factor * count;
}

/* Records of all scopes together. */
static inline int64_t lp_trace_records_max(int64_t names)
{
    return lp_trace_limit(INT64_C(1) << 22, 1024, names, INT64_C(1) << 26);
}

static inline int64_t lp_trace_scope_records_max(int64_t names)
{
    return lp_trace_limit(INT64_C(1) << 20, 64, names, INT64_C(1) << 24);
}

/* Bytes that all frames of a trace together decode to. */
static inline int64_t lp_trace_decoded_bytes_max(int64_t file_bytes)
{
    return lp_trace_limit(INT64_C(1) << 24, 1024, file_bytes, INT64_C(1) << 30);
}

/* Catalogue and map rows are cut into frames of this many items. */
enum { LP_CATALOGUE_FRAME_NAMES = 16384, LP_MAP_FRAME_MAPS = 4096 };

/* A family needs this many records in a scope to be stored as a member of its own: below it, the rows that describe it
 * would outweigh its records. */
enum { LP_FAMILY_RECORDS_MIN = 16 };

typedef struct lp_trace_table {
    const char *name, *sql;
} lp_trace_table;

/* In the order in which they are created and filled. Rows of provenance and provenance_rows are outside every digest
 * and may be removed. */
static const lp_trace_table lp_trace_tables[] = {
    {"header", "CREATE TABLE header(key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT, WITHOUT ROWID"},
    {"requires", "CREATE TABLE requires(feature TEXT PRIMARY KEY NOT NULL) STRICT, WITHOUT ROWID"},
    {"trace", "CREATE TABLE trace(id INTEGER PRIMARY KEY, pp INTEGER NOT NULL, dp INTEGER NOT NULL,"
              " tp INTEGER NOT NULL, expert_parallel INTEGER NOT NULL, files INTEGER NOT NULL,"
              " names INTEGER NOT NULL, maps INTEGER NOT NULL, scopes INTEGER NOT NULL,"
              " records INTEGER NOT NULL) STRICT"},
    {"files", "CREATE TABLE files(id INTEGER PRIMARY KEY, path TEXT NOT NULL, bytes INTEGER, sha256 TEXT) STRICT"},
    {"catalogue", "CREATE TABLE catalogue(first INTEGER PRIMARY KEY, names INTEGER NOT NULL,"
                  " frame BLOB NOT NULL) STRICT"},
    {"maps", "CREATE TABLE maps(first INTEGER PRIMARY KEY, maps INTEGER NOT NULL, frame BLOB NOT NULL) STRICT"},
    {"destinations", "CREATE TABLE destinations(id INTEGER PRIMARY KEY, rows INTEGER NOT NULL,"
                     " frame BLOB NOT NULL) STRICT"},
    {"derives", "CREATE TABLE derives(id INTEGER PRIMARY KEY, rows INTEGER NOT NULL, frame BLOB NOT NULL) STRICT"},
    {"refusals", "CREATE TABLE refusals(id INTEGER PRIMARY KEY, rows INTEGER NOT NULL,"
                 " frame BLOB NOT NULL) STRICT"},
    {"scopes", "CREATE TABLE scopes(id INTEGER PRIMARY KEY, pp_rank INTEGER NOT NULL, dp_rank INTEGER NOT NULL,"
               " tp_rank INTEGER NOT NULL, destinations INTEGER, derives INTEGER, refusals INTEGER,"
               " records INTEGER NOT NULL, plan_digest BLOB NOT NULL) STRICT"},
    {"families", "CREATE TABLE families(id INTEGER PRIMARY KEY, name TEXT NOT NULL, destination TEXT NOT NULL,"
                 " kind INTEGER NOT NULL, src_dtype INTEGER NOT NULL, dst_dtype INTEGER NOT NULL,"
                 " fill_bits INTEGER NOT NULL, map INTEGER NOT NULL) STRICT"},
    {"members", "CREATE TABLE members(id INTEGER PRIMARY KEY, scope INTEGER NOT NULL, family INTEGER,"
                " records INTEGER NOT NULL, base INTEGER, payload BLOB NOT NULL) STRICT"},
    {"provenance", "CREATE TABLE provenance(id INTEGER PRIMARY KEY, file TEXT NOT NULL, line INTEGER NOT NULL,"
                   " chain TEXT NOT NULL, flags INTEGER NOT NULL) STRICT"},
    {"provenance_rows", "CREATE TABLE provenance_rows(scope INTEGER PRIMARY KEY, frame BLOB NOT NULL) STRICT"},
};

enum { LP_TRACE_TABLES = sizeof lp_trace_tables / sizeof lp_trace_tables[0] };

#endif
