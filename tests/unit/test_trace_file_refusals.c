/* SPDX-License-Identifier: Apache-2.0 */
/* The trace file: what it refuses, by version, damage, contradiction and size (docs/format.md R1, R2, R14-R17). */
#include "trace_images.h"

static void put_big_endian(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_is_checked_before_sqlite),
        cmocka_unit_test(not_a_file_is_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(a_flipped_byte_never_lies),
        cmocka_unit_test(a_foreign_schema_is_refused),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(bombs_are_refused_before_they_burst),
        cmocka_unit_test(limits_grow_with_the_file),
        cmocka_unit_test(every_error_names_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
