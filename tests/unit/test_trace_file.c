/* SPDX-License-Identifier: Apache-2.0 */
/* The trace file: what it keeps, what it refuses, and what faults may not do (docs/format.md R1-R19). */
#include "trace_fixture.h"

#include "traces/trace_file.h"

#include <sys/stat.h>

/* ---- helpers ---- */

static uint8_t *image_of(const lp_trace *t, int64_t *bytes)
{
    uint8_t *image = NULL;
    FIX_OK(lp_trace_image(t, &image, bytes, &fix_err));
    return image;
}

/* Opens an image and expands every scope; the trace on success. */
static lp_status open_all(uint8_t *image, int64_t bytes, lp_trace **out, lp_error *err)
{
    lp_trace *t = NULL;
    *out = NULL;
    LP_TRY(lp_trace_open_image(&t, image, bytes, "x.lpt", NULL, err));
    for (int32_t s = 0; s < lp_trace_scope_count(t); s++) {
        const lp_rows *rows;
        const lp_status status = lp_trace_rows(t, s, &rows, err);
        if (status != LP_OK) {
            lp_trace_close(t);
            return status;
        }
    }
    *out = t;
    return LP_OK;
}

static lp_status open_and_close(uint8_t *image, int64_t bytes, lp_error *err)
{
    lp_trace *t;
    const lp_status status = open_all(image, bytes, &t, err);
    lp_trace_close(t);
    return status;
}

/* The image after SQL was run on it, as a hostile author would. */
static uint8_t *edited(const uint8_t *image, int64_t bytes, const char *sql, int64_t *out_bytes)
{
    sqlite3 *db;
    char *message = NULL;
    sqlite3_int64 size = 0;
    uint8_t *copy = sqlite3_malloc64((sqlite3_uint64)bytes);
    memcpy(copy, image, (size_t)bytes);
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sqlite3_deserialize(db, "main", copy, bytes, bytes,
                                         SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE),
                     SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", sql, message);
    assert_int_equal(sqlite3_exec(db, "VACUUM", NULL, NULL, NULL), SQLITE_OK);
    uint8_t *result = sqlite3_serialize(db, "main", &size, 0);
    assert_non_null(result);
    *out_bytes = size;
    sqlite3_close(db);
    return result;
}

/* After this SQL the file must be refused with this code, and the text must hold this. */
static void refused(const uint8_t *image, int64_t bytes, const char *sql, lp_status code, const char *text)
{
    lp_error err = {0};
    int64_t size;
    uint8_t *bad = edited(image, bytes, sql, &size);
    const lp_status status = open_and_close(bad, size, &err);
    if (status != code || strstr(err.text, text) == NULL)
        print_error("%s\n  gives %s: %s\n", sql, lp_status_name(status), err.text);
    assert_int_equal(status, code);
    assert_non_null(strstr(err.text, text));
    sqlite3_free(bad);
}

static void put_big_endian(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* ---- what it keeps ---- */

static void everything_comes_back(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false), *back;
    lp_error err = {0};
    const char *path = fix_path("a.lpt");
    FIX_OK(lp_trace_save(t, path, true, &fix_err));
    assert_int_equal(lp_trace_save(t, path, false, &err), LP_E_EXISTS); /* R9 */
    FIX_OK(lp_trace_open(&back, path, &fix_err));
    fix_same(t, back, true);
    lp_trace_close(back);
    lp_trace_close(t);
    unlink(path);
}

static void scopes_are_expanded_one_by_one(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false), *back;
    int64_t bytes;
    uint8_t *image = image_of(t, &bytes);
    FIX_OK(lp_trace_open_image(&back, image, bytes, "x.lpt", NULL, &fix_err));
    sqlite3_free(image); /* nothing points into it */
    const lp_rows *rows;
    FIX_OK(lp_trace_rows(back, 1, &rows, &fix_err));
    assert_false(back->scope[0].has_rows);
    FIX_OK(lp_trace_release_rows(back, 1));
    for (int i = 0; i < 50; i++) { /* the budget is of one expansion, not of a life */
        FIX_OK(lp_trace_rows(back, 1, &rows, &fix_err));
        FIX_OK(lp_trace_release_rows(back, 1));
    }
    lp_trace_close(back);
    lp_trace_close(t);
}

static void equal_content_gives_equal_bytes(void **state) /* R8b, R11 */
{
    (void)state;
    lp_trace *a = fix_trace(false), *b = fix_trace(true), *back;
    int64_t a_bytes, b_bytes, again_bytes;
    uint8_t *x = image_of(a, &a_bytes), *y = image_of(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(x, y, (size_t)a_bytes);
    FIX_OK(lp_trace_open_image(&back, x, a_bytes, "x.lpt", NULL, &fix_err));
    uint8_t *z = image_of(back, &again_bytes);
    assert_int_equal(a_bytes, again_bytes);
    assert_memory_equal(x, z, (size_t)a_bytes);
    lp_trace_close(back);
    lp_trace_close(a);
    lp_trace_close(b);
    sqlite3_free(x);
    sqlite3_free(y);
    sqlite3_free(z);
}

static void grouping_never_changes_a_digest(void **state) /* R8a */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    int64_t plain_bytes, bytes;
    uint8_t *plain = image_of(t, &plain_bytes);
    int different = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint8_t *image;
        lp_trace *back;
        FIX_OK(lp_trace_image_regrouped(t, seed, &image, &bytes, &fix_err));
        different += bytes != plain_bytes || memcmp(plain, image, (size_t)bytes) != 0;
        FIX_OK(lp_trace_open_image(&back, image, bytes, "x.lpt", NULL, &fix_err));
        fix_same(t, back, true);
        /* What was read is grouped well again. */
        int64_t again_bytes;
        uint8_t *again = image_of(back, &again_bytes);
        assert_int_equal(again_bytes, plain_bytes);
        assert_memory_equal(again, plain, (size_t)plain_bytes);
        sqlite3_free(again);
        lp_trace_close(back);
        sqlite3_free(image);
    }
    assert_true(different > 40); /* most groupings are other files */
    sqlite3_free(plain);
    lp_trace_close(t);
}

static void an_empty_trace_is_legal(void **state)
{
    (void)state;
    lp_trace *t, *back;
    lp_checkpoint *c;
    int64_t bytes;
    FIX_OK(lp_checkpoint_new(&c, NULL, &fix_err));
    FIX_OK(lp_checkpoint_seal(c, &fix_err));
    FIX_OK(lp_trace_new(&t, c, NULL, NULL, &fix_err));
    lp_error err;
    uint8_t *none = NULL;
    assert_int_equal(lp_trace_image(t, &none, &bytes, &err), LP_E_MISUSE);
    FIX_OK(lp_trace_begin_scope(t, &(lp_scope){0}, &fix_err));
    FIX_OK(lp_trace_seal(t, &fix_err));
    uint8_t *image = image_of(t, &bytes);
    assert_int_equal(open_all(image, bytes, &back, &err), LP_OK);
    fix_same(t, back, true);
    lp_trace_close(back);
    lp_trace_close(t);
    lp_checkpoint_close(c);
    sqlite3_free(image);
}

static void storage_is_plain_sqlite(void **state) /* R5, R5a, R7 */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    sqlite3 *db;
    sqlite3_stmt *q;
    const char *path = fix_path("plain.lpt");
    FIX_OK(lp_trace_save(t, path, true, &fix_err));
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT count(*), sum(type = 'table'), sum(sql LIKE '%STRICT%'),"
                                        " sum(sql LIKE '%REAL%'), sum(sql LIKE '%AUTOINCREMENT%') FROM sqlite_schema",
                                        -1, &q, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(q, 0), LP_TRACE_TABLES);
    assert_int_equal(sqlite3_column_int(q, 1), LP_TRACE_TABLES);
    assert_int_equal(sqlite3_column_int(q, 2), LP_TRACE_TABLES);
    assert_int_equal(sqlite3_column_int(q, 3), 0);
    assert_int_equal(sqlite3_column_int(q, 4), 0);
    sqlite3_finalize(q);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT name FROM families ORDER BY id", -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    assert_string_equal(sqlite3_column_text(q, 0), "layers.*.experts.*.up.scale");
    sqlite3_finalize(q);
    sqlite3_close(db);
    lp_trace_close(t);
    unlink(path);
}

static void unknown_facts_have_no_value(void **state) /* R4 */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    int64_t bytes, size;
    uint8_t *image = image_of(t, &bytes);
    /* The statement fails unless unknown facts are absent or NULL. */
    uint8_t *same = edited(image, bytes,
                           "CREATE TABLE proof(ok INTEGER NOT NULL CHECK(ok = 1));"
                           "INSERT INTO proof SELECT count(*) = 0 FROM header WHERE key = 'target';"
                           "INSERT INTO proof SELECT bytes IS NULL FROM files WHERE id = 1;"
                           "INSERT INTO proof SELECT bytes = 1048576 FROM files WHERE id = 0;"
                           "DROP TABLE proof",
                           &size);
    sqlite3_free(same);
    sqlite3_free(image);
    lp_trace_close(t);
}

/* ---- versions ---- */

static void head_is_checked_before_sqlite(void **state) /* R1, R2, R14 */
{
    (void)state;
    enum { PAGES = 28, FREE_PAGES = 36, USER_VERSION = 60, APPLICATION_ID = 68 };
    lp_trace *t = fix_trace(false), *back;
    lp_error err = {0};
    int64_t bytes;
    uint8_t *image = image_of(t, &bytes);
    const struct {
        int at;
        uint32_t value;
        lp_status code;
        const char *text;
    } cases[] = {
        {0, 0x53514c70, LP_E_FORMAT, "is not a trace"},
        {APPLICATION_ID, 0, LP_E_FORMAT, "SQLite database but not a trace"},
        {USER_VERSION, 2000, LP_E_VERSION, "format version 2.0; this program reads 1.0"},
        {USER_VERSION, 7003, LP_E_VERSION, "format version 7.3"},
        {USER_VERSION, 12, LP_E_CORRUPT, "format version 0.12"},
        {16, 0x20000101, LP_E_CORRUPT, "a head that no trace has"}, /* page size 8192 */
        {16, 0x10000202, LP_E_CORRUPT, "a head that no trace has"}, /* write-ahead log */
        {FREE_PAGES, 1, LP_E_CORRUPT, "a head that no trace has"},
        {PAGES, 3, LP_E_CORRUPT, "its head says 12288"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t before[4];
        memcpy(before, image + cases[i].at, 4);
        put_big_endian(image + cases[i].at, cases[i].value);
        assert_int_equal(open_and_close(image, bytes, &err), cases[i].code);
        assert_non_null(strstr(err.text, cases[i].text));
        memcpy(image + cases[i].at, before, 4);
    }
    /* A newer minor version is read as long as it requires nothing that we do not know. */
    put_big_endian(image + USER_VERSION, LP_TRACE_USER_VERSION + 5);
    assert_int_equal(open_all(image, bytes, &back, &err), LP_OK);
    fix_same(t, back, true);
    lp_trace_close(back);
    int64_t size;
    uint8_t *more = edited(image, bytes,
                           "CREATE TABLE later(id INTEGER PRIMARY KEY) STRICT;"
                           "INSERT INTO header VALUES('later', 'x')",
                           &size);
    put_big_endian(more + USER_VERSION, LP_TRACE_USER_VERSION + 5);
    assert_int_equal(open_and_close(more, size, &err), LP_OK);
    sqlite3_free(more);
    refused(image, bytes, "INSERT INTO requires VALUES('wings')", LP_E_VERSION, "requires 'wings'");
    lp_trace_close(t);
    sqlite3_free(image);
}

static void not_a_file_is_refused(void **state) /* R14 */
{
    (void)state;
    lp_trace *t = NULL;
    lp_error err = {0};
    assert_int_equal(lp_trace_open(&t, "/", &err), LP_E_FORMAT);
    assert_int_equal(lp_trace_open(&t, fix_path("absent"), &err), LP_E_IO);
    assert_non_null(strstr(err.text, "cannot open"));
    const char *path = fix_path("short.lpt");
    FILE *f = fopen(path, "wb");
    fputs("SQLite format 3", f);
    fclose(f);
    assert_int_equal(lp_trace_open(&t, path, &err), LP_E_FORMAT);
    unlink(path);
    assert_null(t);
}

/* ---- damage ---- */

static void cut_files_are_refused(void **state) /* R14 */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    lp_error err;
    int64_t bytes;
    uint8_t *image = image_of(t, &bytes);
    for (int64_t cut = 0; cut < bytes; cut += 997) {
        uint8_t *part = malloc((size_t)cut + 1); /* so that a read beyond it is seen */
        memcpy(part, image, (size_t)cut);
        assert_true(open_and_close(part, cut, &err) != LP_OK);
        free(part);
    }
    lp_trace_close(t);
    sqlite3_free(image);
}

/* A flip may be harmless (an unused byte, provenance), but what opens says the same. */
static void a_flipped_byte_never_lies(void **state) /* R8a, R14, R15 */
{
    (void)state;
    lp_trace *t = fix_trace(false), *back;
    lp_error err;
    int64_t bytes, opened = 0, refusals = 0;
    uint8_t *image = image_of(t, &bytes), wanted[32], got[32];
    FIX_OK(lp_trace_set_digest(t, wanted, &fix_err));
    for (int64_t i = 0; i < bytes; i += 29) {
        const uint8_t before = image[i];
        image[i] ^= (uint8_t)(1 << (i / 29 % 8));
        if (open_all(image, bytes, &back, &err) == LP_OK) {
            FIX_OK(lp_trace_set_digest(back, got, &fix_err));
            assert_memory_equal(got, wanted, 32);
            lp_trace_close(back);
            opened++;
        } else {
            assert_true(err.code == LP_E_CORRUPT || err.code == LP_E_HOSTILE || err.code == LP_E_FORMAT ||
                        err.code == LP_E_VERSION);
            refusals++;
        }
        image[i] = before;
    }
    printf("%lld flips opened, %lld were refused\n", (long long)opened, (long long)refusals);
    assert_true(refusals > 50);
    lp_trace_close(t);
    sqlite3_free(image);
}

static void a_foreign_schema_is_refused(void **state) /* R5, R14, R17 */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    int64_t bytes;
    uint8_t *image = image_of(t, &bytes);
    refused(image, bytes, "CREATE INDEX i ON members(scope)", LP_E_CORRUPT, "sqlite_schema");
    refused(image, bytes, "CREATE VIEW v AS SELECT 1", LP_E_CORRUPT, "sqlite_schema");
    refused(image, bytes, "CREATE TRIGGER g AFTER INSERT ON files BEGIN SELECT 1; END", LP_E_CORRUPT, "sqlite_schema");
    refused(image, bytes, "CREATE TABLE extra(a)", LP_E_CORRUPT, "sqlite_schema");
    refused(image, bytes, "DROP TABLE provenance", LP_E_CORRUPT, "sqlite_schema");
    refused(image, bytes, "DROP TABLE provenance_rows", LP_E_CORRUPT, "a table is missing");
    refused(image, bytes,
            "DROP TABLE provenance_rows; CREATE TABLE provenance_rows(scope INTEGER PRIMARY KEY, frame BLOB)",
            LP_E_CORRUPT, "is not the table");
    lp_trace_close(t);
    sqlite3_free(image);
}

static void contradictions_are_refused(void **state) /* R14, R15, R16 */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    int64_t bytes;
    uint8_t *image = image_of(t, &bytes);
    refused(image, bytes, "UPDATE files SET path = '../up' WHERE id = 0", LP_E_CORRUPT, "goes upwards");
    refused(image, bytes, "UPDATE files SET path = 'a/../../b' WHERE id = 0", LP_E_CORRUPT, "goes upwards");
    refused(image, bytes, "UPDATE files SET path = '/etc/x' WHERE id = 0", LP_E_CORRUPT, "absolute");
    refused(image, bytes, "UPDATE files SET bytes = 10 WHERE id = 0", LP_E_CORRUPT, "do not fit their files");
    refused(image, bytes, "UPDATE files SET path = CAST(x'ff' AS TEXT) WHERE id = 0", LP_E_CORRUPT, "not UTF-8");
    refused(image, bytes, "UPDATE header SET value = 'a' || char(0) WHERE key = 'loader'", LP_E_CORRUPT, "not UTF-8");
    refused(image, bytes, "INSERT INTO header VALUES('unheard', 'x')", LP_E_CORRUPT, "unknown key");
    refused(image, bytes, "DELETE FROM trace", LP_E_CORRUPT, "'trace'");
    refused(image, bytes, "UPDATE trace SET names = names + 1", LP_E_CORRUPT, "number of names");
    refused(image, bytes, "UPDATE trace SET scopes = 1", LP_E_CORRUPT, "number of scopes");
    refused(image, bytes, "UPDATE trace SET maps = maps - 1", LP_E_CORRUPT, "maps");
    refused(image, bytes, "DELETE FROM files WHERE id = 1", LP_E_CORRUPT, "number of files");
    refused(image, bytes, "DELETE FROM catalogue", LP_E_CORRUPT, "number of names");
    refused(image, bytes, "UPDATE scopes SET tp_rank = 0", LP_E_CORRUPT, "order of ranks");
    refused(image, bytes, "UPDATE scopes SET tp_rank = 2 WHERE id = 1", LP_E_CORRUPT, "rank");
    refused(image, bytes, "UPDATE trace SET pp = 0", LP_E_CORRUPT, "out of range");
    refused(image, bytes, "UPDATE scopes SET destinations = NULL", LP_E_CORRUPT, "out of range");
    refused(image, bytes, "UPDATE scopes SET destinations = 9", LP_E_CORRUPT, "out of range");
    refused(image, bytes, "UPDATE scopes SET plan_digest = zeroblob(32) WHERE id = 1", LP_E_CORRUPT, "digest");
    refused(image, bytes, "UPDATE scopes SET refusals = NULL; DELETE FROM provenance_rows", LP_E_CORRUPT, "digest");
    refused(image, bytes, "UPDATE families SET map = 99", LP_E_CORRUPT, "families");
    refused(image, bytes, "UPDATE families SET kind = 2", LP_E_CORRUPT, "");
    refused(image, bytes, "UPDATE families SET map = 1 - map", LP_E_CORRUPT, "");
    refused(image, bytes, "UPDATE members SET scope = 0", LP_E_CORRUPT, "more records than its scope");
    refused(image, bytes, "UPDATE members SET base = 2 WHERE id = 3", LP_E_CORRUPT, "its base");
    refused(image, bytes, "UPDATE members SET base = 4 WHERE id = 4", LP_E_CORRUPT, "out of range");
    refused(image, bytes, "DELETE FROM members WHERE id = 5", LP_E_CORRUPT, "number of records");
    refused(image, bytes, "UPDATE members SET payload = zeroblob(300) WHERE id = 0", LP_E_CORRUPT, "");
    /* Sixty-three: every name moved by -32, which leaves the catalogue. */
    refused(image, bytes,
            "UPDATE members SET payload = CAST(x'3f' || substr(payload, 2) AS BLOB) WHERE base IS NOT NULL",
            LP_E_CORRUPT, "out of range");
    refused(image, bytes, "UPDATE provenance SET line = -1", LP_E_CORRUPT, "provenance");
    refused(image, bytes, "UPDATE provenance_rows SET scope = 7 WHERE scope = 1", LP_E_CORRUPT, "no such scope");
    lp_trace_close(t);
    sqlite3_free(image);
}

static void bombs_are_refused_before_they_burst(void **state) /* R15 */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    int64_t bytes;
    uint8_t *image = image_of(t, &bytes);
    refused(image, bytes, "UPDATE trace SET records = 1 << 40", LP_E_HOSTILE, "records");
    refused(image, bytes, "UPDATE trace SET scopes = 1 << 20", LP_E_HOSTILE, "scopes");
    refused(image, bytes, "UPDATE scopes SET records = 1 << 30", LP_E_HOSTILE, "records in a scope");
    /* A frame head that claims 2^34 bytes. */
    refused(image, bytes, "UPDATE destinations SET frame = CAST(x'8080808040' || substr(frame, 3) AS BLOB)",
            LP_E_HOSTILE, "decoded frames");
    /* A legal claim that the frame does not keep. */
    refused(image, bytes, "UPDATE destinations SET frame = CAST(x'8040' || substr(frame, 3) AS BLOB)", LP_E_CORRUPT,
            "destination set 0");
    /* What a large file may claim, a small one may not: 5 million records in all, 2 million in a scope, 100 MiB. */
    refused(image, bytes, "UPDATE trace SET records = 5000000", LP_E_HOSTILE, "5000000 records, more than");
    refused(image, bytes, "UPDATE scopes SET records = 2000000", LP_E_HOSTILE, "2000000 records in a scope");
    refused(image, bytes, "UPDATE destinations SET frame = CAST(x'80808032' || substr(frame, 3) AS BLOB)", LP_E_HOSTILE,
            "decoded frames");
    refused(image, bytes, "UPDATE destinations SET rows = 1 << 30", LP_E_CORRUPT, "");
    refused(image, bytes, "UPDATE catalogue SET names = 1 << 30; UPDATE trace SET names = 1 << 30", LP_E_CORRUPT,
            "more names than bytes");
    lp_trace_close(t);
    sqlite3_free(image);
}

static void limits_grow_with_the_file(void **state) /* R15 */
{
    (void)state;
    assert_int_equal(lp_trace_scope_records_max(0), 1 << 20);
    assert_int_equal(lp_trace_scope_records_max(1000), (1 << 20) + 64000);
    assert_int_equal(lp_trace_scope_records_max(276480), 1 << 24);
    assert_int_equal(lp_trace_records_max(10), (1 << 22) + 10240);
    assert_int_equal(lp_trace_records_max(INT64_MAX), 1 << 26);
    assert_int_equal(lp_trace_decoded_bytes_max(61440), (1 << 24) + 61440 * 1024);
    assert_int_equal(lp_trace_decoded_bytes_max(INT64_C(1) << 30), 1 << 30);
}

/* What is wrong may be found far from where the file is known: its name stands in the text all the same. */
static void every_error_names_the_file(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false);
    int64_t bytes;
    uint8_t *image = image_of(t, &bytes);
    static const struct {
        const char *sql;
        lp_status code;
        const char *text;
    } edits[] = {
        {"UPDATE scopes SET tp_rank = 1000000", LP_E_CORRUPT,
         "'x.lpt' is damaged: tp rank 1000000 is not below the tp size 2"},
        {"UPDATE files SET sha256 = 'zz'", LP_E_CORRUPT,
         "'x.lpt' is damaged: file 'model-1.safetensors': its SHA-256 has not 64"},
        {"UPDATE header SET value = hex(zeroblob(600000))", LP_E_LIMIT,
         "'x.lpt' is damaged: a text of the trace header"},
        {"UPDATE scopes SET plan_digest = zeroblob(32)", LP_E_CORRUPT,
         "'x.lpt' is damaged: the rows of rank 0 do not have the plan digest that is stored"},
        {"UPDATE catalogue SET frame = CAST(substr(frame, 1, 20) AS BLOB)", LP_E_CORRUPT, "'x.lpt'"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        refused(image, bytes, edits[i].sql, edits[i].code, edits[i].text);
    lp_trace_close(t);
    sqlite3_free(image);
}

static void provenance_can_be_removed(void **state) /* R7 */
{
    (void)state;
    lp_trace *t = fix_trace(false), *back;
    lp_error err = {0};
    int64_t bytes, size;
    uint8_t *image = image_of(t, &bytes);
    static const char *const removal[] = {"DELETE FROM provenance; DELETE FROM provenance_rows",
                                          "DELETE FROM provenance", "DELETE FROM provenance_rows"};
    for (size_t i = 0; i < sizeof removal / sizeof *removal; i++) {
        uint8_t *without = edited(image, bytes, removal[i], &size);
        assert_int_equal(open_all(without, size, &back, &err), LP_OK);
        fix_same(t, back, false);
        const lp_rows *rows;
        FIX_OK(lp_trace_rows(back, 0, &rows, &fix_err));
        for (uint32_t r = 0; r < rows->nrecord; r++)
            assert_null(lp_trace_provenance(back, rows->record[r].provenance));
        lp_trace_close(back);
        sqlite3_free(without);
    }
    lp_trace_close(t);
    sqlite3_free(image);
}

/* ---- faults ---- */

static lp_platform faulty(fix_faults *f, lp_alloc *alloc, lp_io *io)
{
    *alloc = (lp_alloc){.size = sizeof *alloc, .context = f, .resize = fix_resize};
    *io = fix_io(f);
    return (lp_platform){.io = io, .alloc = alloc};
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Opens, expands, saves to another path; everything is closed again. */
static lp_status work(const char *from, const char *to, const lp_platform *platform, lp_error *err)
{
    lp_trace *t = NULL;
    LP_TRY(lp_trace_open_with(&t, from, platform, err));
    lp_status status = LP_OK;
    for (int32_t s = 0; s < lp_trace_scope_count(t) && status == LP_OK; s++) {
        const lp_rows *rows;
        status = lp_trace_rows(t, s, &rows, err);
    }
    if (status == LP_OK)
        status = lp_trace_save(t, to, true, err);
    lp_trace_close(t);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lp_alloc alloc;
    lp_io io;
    fix_faults f = {.code = 5};
    const lp_platform platform = faulty(&f, &alloc, &io);
    const char *from = fix_path("from.lpt"), *to = fix_path("to.lpt");
    char partial[600];
    snprintf(partial, sizeof partial, "%s.partial", to);
    lp_trace *t = fix_trace(false);
    FIX_OK(lp_trace_save(t, from, true, &fix_err));
    FIX_OK(lp_trace_save(t, to, true, &fix_err));
    lp_trace_close(t);
    int64_t bytes, after_bytes;
    char *old = fix_read(to, &bytes);
    lp_error err = {0};
    assert_int_equal(work(from, to, &platform, &err), LP_OK);
    assert_int_equal(f.live, 0);
    const int64_t allocations = f.allocations;
    assert_true(allocations > 50);
    for (int64_t n = 1; n <= allocations; n++) {
        f = (fix_faults){.fail_allocation = n, .code = 5};
        assert_int_equal(work(from, to, &platform, &err), LP_E_MEMORY);
        assert_int_equal(f.live, 0);
        assert_false(exists(partial));
    }
    char *now = fix_read(to, &after_bytes);
    assert_int_equal(bytes, after_bytes);
    assert_memory_equal(old, now, (size_t)bytes);
    lp_release(NULL, old);
    lp_release(NULL, now);
    printf("%lld allocations failed in turn\n", (long long)allocations);
    unlink(from);
    unlink(to);
}

static void every_file_call_may_fail(void **state) /* R9 */
{
    (void)state;
    lp_alloc alloc;
    lp_io io;
    fix_faults f = {.code = 28};
    const lp_platform platform = faulty(&f, &alloc, &io);
    const char *from = fix_path("io-from.lpt"), *to = fix_path("io-to.lpt");
    char partial[600];
    snprintf(partial, sizeof partial, "%s.partial", to);
    lp_trace *t = fix_trace(false), *back;
    FIX_OK(lp_trace_save(t, from, true, &fix_err));
    FILE *old = fopen(to, "wb");
    fputs("the old file", old);
    fclose(old);
    lp_error err = {0};
    assert_int_equal(work(from, fix_path("io-other.lpt"), &platform, &err), LP_OK);
    const int64_t calls = f.calls;
    assert_true(calls > 10);
    int64_t failed = 0;
    for (int64_t n = 1; n <= calls; n++) {
        f = (fix_faults){.fail_call = n, .code = 28};
        const lp_status status = work(from, to, &platform, &err);
        assert_int_equal(f.live, 0);
        assert_false(exists(partial));
        int64_t bytes;
        char *now = fix_read(to, &bytes);
        const bool is_old = bytes == 12 && memcmp(now, "the old file", 12) == 0;
        lp_release(NULL, now);
        if (status != LP_OK) {
            failed++;
            assert_int_equal(status, LP_E_IO);
        }
        /* Whole, whichever it is; the old one until the rename has happened. */
        if (!is_old) {
            FIX_OK(lp_trace_open(&back, to, &fix_err));
            fix_same(t, back, true);
            lp_trace_close(back);
            FILE *again = fopen(to, "wb");
            fputs("the old file", again);
            fclose(again);
        } else {
            assert_int_not_equal(status, LP_OK);
        }
    }
    printf("%lld of %lld file calls made it fail\n", (long long)failed, (long long)calls);
    assert_true(failed >= calls - 6); /* failures to close what was only read do not matter */
    lp_trace_close(t);
    unlink(from);
    unlink(to);
    unlink(fix_path("io-other.lpt"));
}

/* ---- faults inside SQLite, whose memory does not come from the platform ---- */

static sqlite3_mem_methods sqlite_memory;
static int64_t sqlite_allocations, sqlite_fail;

static void *failing_malloc(int bytes)
{
    return ++sqlite_allocations == sqlite_fail ? NULL : sqlite_memory.xMalloc(bytes);
}

static void *failing_realloc(void *old, int bytes)
{
    return ++sqlite_allocations == sqlite_fail ? NULL : sqlite_memory.xRealloc(old, bytes);
}

static void every_allocation_of_sqlite_may_fail(void **state)
{
    (void)state;
    lp_alloc alloc;
    lp_io io;
    fix_faults f = {.code = 5};
    const lp_platform platform = faulty(&f, &alloc, &io);
    const char *from = fix_path("sql-from.lpt"), *to = fix_path("sql-to.lpt");
    lp_trace *t = fix_trace(false), *back;
    lp_error err = {0};
    FIX_OK(lp_trace_save(t, from, true, &fix_err));
    sqlite_allocations = 0;
    assert_int_equal(work(from, to, &platform, &err), LP_OK);
    const int64_t allocations = sqlite_allocations;
    assert_true(allocations > 100);
    int64_t failed = 0;
    for (int64_t n = 1; n <= allocations; n += n < 200 ? 1 : 5) {
        sqlite_allocations = 0;
        sqlite_fail = n;
        const lp_status status = work(from, to, &platform, &err);
        sqlite_fail = 0;
        assert_int_equal(f.live, 0);
        /* SQLite does without some of its caches: then everything must be right. */
        if (status == LP_OK) {
            FIX_OK(lp_trace_open(&back, to, &fix_err));
            fix_same_digests(t, back);
            lp_trace_close(back);
        } else {
            failed++;
            if (status != LP_E_MEMORY)
                print_error("allocation %lld: %s: %s\n", (long long)n, lp_status_name(status), err.text);
            assert_int_equal(status, LP_E_MEMORY);
        }
    }
    printf("%lld of %lld allocations of SQLite made it fail\n", (long long)failed, (long long)allocations);
    assert_true(failed > 50);
    lp_trace_close(t);
    unlink(from);
    unlink(to);
}

int main(void)
{
    sqlite3_mem_methods failing;
    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory) != SQLITE_OK)
        return 1;
    failing = sqlite_memory;
    failing.xMalloc = failing_malloc;
    failing.xRealloc = failing_realloc;
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) != SQLITE_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),           cmocka_unit_test(scopes_are_expanded_one_by_one),
        cmocka_unit_test(equal_content_gives_equal_bytes), cmocka_unit_test(grouping_never_changes_a_digest),
        cmocka_unit_test(an_empty_trace_is_legal),         cmocka_unit_test(storage_is_plain_sqlite),
        cmocka_unit_test(unknown_facts_have_no_value),     cmocka_unit_test(head_is_checked_before_sqlite),
        cmocka_unit_test(not_a_file_is_refused),           cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(a_flipped_byte_never_lies),       cmocka_unit_test(a_foreign_schema_is_refused),
        cmocka_unit_test(contradictions_are_refused),      cmocka_unit_test(bombs_are_refused_before_they_burst),
        cmocka_unit_test(limits_grow_with_the_file),       cmocka_unit_test(every_error_names_the_file),
        cmocka_unit_test(provenance_can_be_removed),       cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_file_call_may_fail),        cmocka_unit_test(every_allocation_of_sqlite_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
