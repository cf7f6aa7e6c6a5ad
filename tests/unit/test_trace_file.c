/* SPDX-License-Identifier: Apache-2.0 */
/* The trace file: what it keeps (docs/format.md R4-R11). What it refuses: test_trace_file_refusals.c. */
#include "trace_images.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),           cmocka_unit_test(scopes_are_expanded_one_by_one),
        cmocka_unit_test(equal_content_gives_equal_bytes), cmocka_unit_test(grouping_never_changes_a_digest),
        cmocka_unit_test(an_empty_trace_is_legal),         cmocka_unit_test(storage_is_plain_sqlite),
        cmocka_unit_test(unknown_facts_have_no_value),     cmocka_unit_test(provenance_can_be_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
