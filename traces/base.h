/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every room builds on, private to the project: error helpers, checked arithmetic, an arena, a growing array, a
 * string builder, a string set and SHA-256. All memory comes from an lp_alloc, so that each allocation can be made to
 * fail.
 */
#ifndef LOADPLAN_BASE_H
#define LOADPLAN_BASE_H

#include "traces/trace.h"

#include <string.h>

/* ---- errors ---- */

/* Fills *err (NULL is allowed) and returns `code`. The text is sanitised, so names from files may be printed into it.
 */
lp_status lp_fail(lp_error *err, lp_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same, and tells what it is about and where (off < 0: unknown). */
lp_status lp_fail_at(lp_error *err, lp_status code, const char *subject, int64_t off, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds a hint to an error that is already filled. */
void lp_hint(lp_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What is wrong with the content of a file is found where its name is not known: puts the name before the text of an
 * error about bad data, unless it is in it. err may be NULL or hold no error. */
void lp_error_of_file(lp_error *err, const char *path);

/* "cannot VERB 'path': No such file or directory"; errno_value is positive or negative. */
lp_status lp_fail_errno(lp_error *err, int errno_value, const char *verb, const char *path);

lp_status lp_fail_memory(lp_error *err);

/* A static analyser sees one file at a time: this tells it that a failure is not LP_OK (`make analyse`). */
#ifdef LOADPLAN_ANALYSE
#define lp_fail(err, code, ...)    ((void)lp_fail(err, code, __VA_ARGS__), (code))
#define lp_fail_at(err, code, ...) ((void)lp_fail_at(err, code, __VA_ARGS__), (code))
#define lp_fail_errno(err, ...)    ((void)lp_fail_errno(err, __VA_ARGS__), LP_E_IO)
#define lp_fail_memory(err)        ((void)lp_fail_memory(err), LP_E_MEMORY)
#endif

/* Passes a failure on. */
#define LP_TRY(call)                                                                                                   \
    do {                                                                                                               \
        const lp_status status_ = (call);                                                                              \
        if (status_ != LP_OK)                                                                                          \
            return status_;                                                                                            \
    } while (0)

/* Passes a failure on through the clean-up ladder of a function that has `lp_status status`. */
#define LP_TRY_GOTO(call, label)                                                                                       \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != LP_OK)                                                                                           \
            goto label;                                                                                                \
    } while (0)

/* ---- checked arithmetic: false on overflow ---- */

static inline bool lp_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool lp_sub(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_sub_overflow(a, b, out);
}
static inline bool lp_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* ---- platform ---- */

/* A copy of *platform (or of the defaults when NULL) in which io and alloc are never NULL. */
lp_platform lp_platform_resolve(const lp_platform *platform);

void *lp_allocate(const lp_alloc *alloc, size_t bytes); /* NULL when out of memory; bytes 0 gives a block */
void *lp_allocate_zero(const lp_alloc *alloc, size_t bytes);
void lp_release(const lp_alloc *alloc, void *block); /* NULL is allowed */
void lp_log(const lp_platform *platform, int level, const char *module, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Loops over short reads and EINTR. A file that ends early is LP_E_CORRUPT with the offset. */
lp_status lp_read_exact(const lp_io *io, int fd, const char *path, void *buffer, int64_t bytes, int64_t off,
                        lp_error *err);
lp_status lp_write_exact(const lp_io *io, int fd, const char *path, const void *buffer, int64_t bytes, int64_t off,
                         lp_error *err);

/* A whole small file, terminated by a NUL that *bytes does not count; more than `limit` bytes is LP_E_HOSTILE. */
lp_status lp_read_file(const lp_platform *platform, const char *path, int64_t limit, char **text, int64_t *bytes,
                       lp_error *err);

/* The same of a file whose first bytes, up to LP_JUDGED_BYTES of them, `judge` takes for what is wanted: asked before
 * the size is compared with the limit, and before memory is taken. What it returns but LP_OK is returned. */
enum { LP_JUDGED_BYTES = 512 };
typedef lp_status (*lp_judge)(const char *path, const char *start, int64_t start_bytes, int64_t file_bytes,
                              lp_error *err);
lp_status lp_read_judged(const lp_platform *platform, const char *path, int64_t limit, lp_judge judge, char **text,
                         int64_t *bytes, lp_error *err);

/* An output file that appears whole or not at all: it is written as PATH.partial, then fsynced and renamed, and the
 * folder is fsynced. open refuses an existing PATH unless `overwrite`, one that is no regular file always, and one that
 * another process (or another object of this one) is writing: two never write one file. abandon removes the partial
 * file; both end the object. */
typedef struct lp_outfile {
    const lp_io *io;
    const lp_alloc *alloc;
    char *path, *partial;
    int fd;
    int64_t off;
} lp_outfile;

lp_status lp_outfile_open(lp_outfile *f, const lp_platform *platform, const char *path, bool overwrite, lp_error *err);
lp_status lp_outfile_write(lp_outfile *f, const void *data, int64_t bytes, lp_error *err); /* appends */
lp_status lp_outfile_commit(lp_outfile *f, lp_error *err);                                 /* on failure it abandons */
void lp_outfile_abandon(lp_outfile *f); /* a zeroed object is allowed */
/* Why `partial`, in which `path` is to be written, could not be created: -errno is what lp_io's open returned. */
lp_status lp_fail_output(lp_error *err, int code, const char *path, const char *partial);

/* ---- arena: memory that lives as long as its owner ---- */

typedef struct lp_arena_block lp_arena_block;
typedef struct lp_arena {
    const lp_alloc *alloc;
    lp_arena_block *last;
    size_t used, capacity; /* of the last block */
} lp_arena;

void lp_arena_init(lp_arena *a, const lp_alloc *alloc);
void *lp_arena_get(lp_arena *a, size_t bytes); /* 16-byte aligned, not cleared; NULL when out of memory */
void *lp_arena_copy(lp_arena *a, const void *data, size_t bytes);
char *lp_arena_text(lp_arena *a, const char *text, size_t text_bytes); /* copy with a NUL */
char *lp_arena_format(lp_arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lp_arena_free(lp_arena *a); /* all blocks; the arena can be used again */

/* ---- growing array of any type ---- */

/* Makes room for `count` items of `item_bytes` in *items (*capacity counts items). false when out of memory. */
bool lp_grow(const lp_alloc *alloc, void **items, int64_t *capacity, int64_t count, size_t item_bytes);

/* ---- string builder ---- */

typedef struct lp_text {
    const lp_alloc *alloc;
    char *data; /* NUL-terminated once something was added */
    int64_t bytes, capacity;
    bool failed; /* sticky: out of memory */
} lp_text;

void lp_text_init(lp_text *t, const lp_alloc *alloc);
void lp_text_add(lp_text *t, const char *data, size_t bytes);
void lp_text_format(lp_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lp_text_free(lp_text *t);

/* Names of destinations, storages, layouts and groups, and texts of refusals, have no more bytes in a trace. */
enum { LP_TEXT_BYTES_MAX = 4096 };

/* Copies text with control characters, quotes of terminals and invalid UTF-8 escaped as \xNN; returns the whole length.
 */
size_t lp_sanitise(char *out, size_t out_bytes, const char *text, size_t text_bytes);

/* "63.1 GiB", "512 B" */
const char *lp_format_bytes(char buffer[32], int64_t bytes);
/* "179,976" */
const char *lp_format_count(char buffer[32], int64_t count);
/* lower-case hex, terminated */
void lp_format_hex(char *out, const uint8_t *data, size_t bytes);

/* ---- string set: interned strings, numbered from 0 in order of arrival ---- */

typedef struct lp_strings {
    lp_arena arena;
    const lp_alloc *alloc;
    const char **text;
    uint32_t *bytes;
    uint64_t *hash;
    int64_t count, capacity;
    uint32_t *table; /* index + 1, open addressing */
    int64_t table_size;
} lp_strings;

void lp_strings_init(lp_strings *s, const lp_alloc *alloc);
int64_t lp_strings_add(lp_strings *s, const char *text,
                       size_t bytes); /* its number, old or new; -1 when out of memory */
int64_t lp_strings_find(const lp_strings *s, const char *text, size_t bytes); /* -1 when absent */
void lp_strings_free(lp_strings *s);

/* ---- hashes ---- */

uint64_t lp_hash(const void *data, size_t bytes); /* XXH3: the same in every process, and no secret */
/* For tables in memory, whose keys come from files: other places in every process, so that nobody can choose keys that
 * all go to one place, which would make a table as slow as a list. Never stored, sent, or told. */
uint64_t lp_table_hash(const void *data, size_t bytes);

/* ---- SHA-256, streamed ---- */

typedef struct lp_sha256 {
    void *state; /* EVP_MD_CTX */
    bool failed;
} lp_sha256;

void lp_sha256_begin(lp_sha256 *h);
void lp_sha256_add(lp_sha256 *h, const void *data, size_t bytes);
void lp_sha256_i64(lp_sha256 *h, int64_t value);      /* little endian */
void lp_sha256_text(lp_sha256 *h, const char *text);  /* length as int64, then the bytes */
bool lp_sha256_end(lp_sha256 *h, uint8_t digest[32]); /* false when the library failed */

#endif
