/* SPDX-License-Identifier: Apache-2.0 */
/* SQL over a trace (docs/format.md Q1-Q6; rule R17): right rows, nothing but reading, bounded work. */
#include "trace_faults.h"
#include "trace_fixture.h"

#include "traces/query.h"
#include "traces/trace_file.h"

typedef struct answer {
    lp_text text; /* cells joined by |, rows by newlines */
    int64_t rows;
    int64_t stop_after; /* 0: never */
} answer;

static int take(void *context, int columns, const char *const *values, bool is_header)
{
    answer *a = context;
    for (int c = 0; c < columns; c++)
        lp_text_format(&a->text, "%s%s", c > 0 ? "|" : "", values[c] != NULL ? values[c] : "NULL");
    lp_text_add(&a->text, "\n", 1);
    a->rows += !is_header;
    return a->stop_after > 0 && a->rows >= a->stop_after;
}

static void expect(const lp_trace *t, const char *sql, const char *wanted)
{
    answer a = {0};
    lp_error err = {0};
    lp_text_init(&a.text, NULL);
    const lp_status status = lp_trace_query(t, sql, take, &a, &err);
    if (status != LP_OK)
        fail_msg("%s: %s", sql, err.text);
    assert_string_equal(a.text.data, wanted);
    lp_text_free(&a.text);
}

static void refused(const lp_trace *t, const char *sql, lp_status code, const char *message)
{
    answer a = {0};
    lp_error err = {0};
    lp_text_init(&a.text, NULL);
    const lp_status status = lp_trace_query(t, sql, take, &a, &err);
    if (status != code || strstr(err.text, message) == NULL)
        print_error("%s\n  gives %s: %s\n", sql, lp_status_name(status), err.text);
    assert_int_equal(status, code);
    assert_non_null(strstr(err.text, message));
    lp_text_free(&a.text);
}

static void tables_hold_the_rows(void **state) /* R5a, Q1-Q6 */
{
    (void)state;
    lp_trace *t = fix_trace(false);
    expect(t, "SELECT count(*), sum(bytes) FROM v_names", "count(*)|sum(bytes)\n81|9856\n");
    expect(t, "SELECT * FROM v_names WHERE name = 'embed'",
           "name|dtype|shape|bytes|file|file_offset\nembed|F32|[4,16]|256|sub/model-2.safetensors|1120\n");
    expect(t, "SELECT name, file, file_offset FROM v_names WHERE name LIKE 'placel%'",
           "name|file|file_offset\nplaceless|NULL|NULL\n");
    expect(t, "SELECT name FROM v_names WHERE name = 'absent'", "name\n");
    expect(t,
           "SELECT rank, pp_rank, dp_rank, tp_rank, destinations, records, derives, refusals, length(plan_digest)"
           " FROM v_scopes",
           "rank|pp_rank|dp_rank|tp_rank|destinations|records|derives|refusals|length(plan_digest)\n"
           "0|0|0|0|14|44|2|1|64\n1|0|0|1|14|44|2|1|64\n");
    expect(t, "SELECT * FROM v_destinations WHERE rank = 1 AND name = 'layers.0.w13'",
           "rank|name|dtype|shape|stride|storage|storage_bytes|storage_offset|layout|layout_version|commit_group|flags|"
           "dummy_bits|slot_dim|slot_count\n"
           "1|layers.0.w13|BF16|[6,8,16]|[256,32,2]|layers.0.w13|1536|0|w13_rows|2|layers.own||NULL|0|6\n");
    expect(t, "SELECT * FROM v_records WHERE rank = 1 AND name = 'layers.0.experts.10.up.weight'",
           "rank|name|destination|kind|src_dtype|dst_dtype|seq|src_offset|dst_offset|bytes|fill_bits|map|file|line|"
           "chain\n"
           "1|layers.0.experts.10.up.weight|layers.0.w13|copy|NULL|NULL|NULL|0|1024|256|NULL|256|loader.py|41|"
           "narrow(0,0,8)\n");
    expect(t, "SELECT kind, count(*) FROM v_records GROUP BY kind ORDER BY kind",
           "kind|count(*)\ncast|6\ncopy|78\nfill|4\n");
    expect(t, "SELECT kind, src_dtype, dst_dtype, map FROM v_records WHERE rank = 0 AND name = 'layers.0.norm'",
           "kind|src_dtype|dst_dtype|map\ncast|BF16|F32|2>4|16\n");
    expect(t, "SELECT name, kind, fill_bits, src_offset, bytes FROM v_records WHERE rank = 0 AND name IS NULL",
           "name|kind|fill_bits|src_offset|bytes\nNULL|fill|0|NULL|8\n");
    expect(t, "SELECT map FROM v_records WHERE name = 'two parts'", "map\n1>1 16 37+16:24\n1>1 16 37+16:24\n");
    expect(t, "SELECT seq, count(*) FROM v_records WHERE seq IS NOT NULL GROUP BY seq", "seq|count(*)\n1|2\n2|2\n");
    expect(t, "SELECT destination, error, inputs FROM v_derives WHERE rank = 0 ORDER BY destination",
           "destination|error|inputs\nNULL|embed {index} \"is\" not 1|dest \"embed.exp\" F32 64 256\n"
           "embed.exp|NULL|name \"embed\" F32 64 256\n");
    expect(t, "SELECT rank, name, destination, operation, file, line FROM v_refusals",
           "rank|name|destination|operation|file|line\n0|host_read|embed.exp|aten.max|loader.py|9\n"
           "1|host_read|embed.exp|aten.max|loader.py|9\n");
    lp_trace_close(t);
}

static void constraints_only_narrow(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false);
    static const char *const same[][2] = {
        {"SELECT count(*) FROM v_records WHERE rank = 1", "SELECT count(*) FROM v_records WHERE +rank = 1"},
        {"SELECT count(*) FROM v_records WHERE rank = 7", "SELECT count(*) FROM v_records WHERE +rank = 7"},
        {"SELECT count(*) FROM v_records WHERE rank = -1", "SELECT count(*) FROM v_records WHERE +rank = -1"},
        {"SELECT count(*) FROM v_records WHERE rank = '1'", "SELECT count(*) FROM v_records WHERE +rank = 1"},
        {"SELECT count(*) FROM v_records WHERE rank = 1.5", "SELECT count(*) FROM v_records WHERE +rank = 1.5"},
        {"SELECT count(*) FROM v_records WHERE rank = 1e300", "SELECT count(*) FROM v_records WHERE +rank = 1e300"},
        {"SELECT count(*) FROM v_records WHERE rank IS NULL", "SELECT count(*) FROM v_records WHERE +rank IS NULL"},
        {"SELECT count(*) FROM v_records WHERE rank = NULL", "SELECT count(*) FROM v_records WHERE +rank = NULL"},
        {"SELECT count(*) FROM v_records WHERE rank IN (0, 1)", "SELECT count(*) FROM v_records"},
        {"SELECT count(*) FROM v_scopes WHERE rank = 1", "SELECT count(*) FROM v_scopes WHERE +rank = 1"},
        {"SELECT count(*) FROM v_records WHERE name = 'placeless'",
         "SELECT count(*) FROM v_records WHERE +name = 'placeless'"},
        {"SELECT count(*) FROM v_records WHERE name = 'PLACELESS' COLLATE NOCASE",
         "SELECT count(*) FROM v_records WHERE +name = 'PLACELESS' COLLATE NOCASE"},
        {"SELECT count(*) FROM v_records WHERE name = ''", "SELECT count(*) FROM v_records WHERE +name = ''"},
        {"SELECT count(*) FROM v_records WHERE name IN ('placeless', 'layers.0.norm', 'x') AND rank = 0",
         "SELECT count(*) FROM v_records WHERE +name IN ('placeless', 'layers.0.norm', 'x') AND +rank = 0"},
        {"SELECT count(*) FROM v_names n JOIN v_records r ON r.name = n.name WHERE r.rank = 0",
         "SELECT count(*) FROM v_records WHERE rank = 0 AND name IS NOT NULL"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        answer a = {0}, b = {0};
        lp_text_init(&a.text, NULL);
        lp_text_init(&b.text, NULL);
        FIX_OK(lp_trace_query(t, same[i][0], take, &a, &fix_err));
        FIX_OK(lp_trace_query(t, same[i][1], take, &b, &fix_err));
        assert_string_equal(a.text.data, b.text.data);
        lp_text_free(&a.text);
        lp_text_free(&b.text);
    }
    lp_trace_close(t);
}

static void one_rank_expands_one_scope(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false), *opened;
    uint8_t *image;
    int64_t bytes;
    FIX_OK(lp_trace_image(t, &image, &bytes, &fix_err));
    FIX_OK(lp_trace_open_image(&opened, image, bytes, "x.lpt", NULL, &fix_err));
    expect(opened, "SELECT count(*) FROM v_records WHERE rank = 1", "count(*)\n44\n");
    assert_false(opened->scope[0].has_rows);
    assert_true(opened->scope[1].has_rows);
    expect(opened, "SELECT count(*) FROM v_names", "count(*)\n81\n");
    assert_false(opened->scope[0].has_rows);
    lp_trace_close(opened);
    lp_trace_close(t);
    sqlite3_free(image);
}

static void only_reading_is_allowed(void **state) /* R14, R17 */
{
    (void)state;
    static const char *const bad[] = {
        "ATTACH '/tmp/x.db' AS x",
        "PRAGMA query_only = 0",
        "PRAGMA table_info(v_records)",
        "SELECT * FROM pragma_database_list",
        "CREATE TABLE t(a)",
        "CREATE TEMP TABLE t(a)",
        "CREATE TEMP VIEW t AS SELECT 1",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "INSERT INTO v_records(rank) VALUES(1)",
        "UPDATE v_records SET rank = 0",
        "DELETE FROM v_records",
        "DROP TABLE v_records",
        "SELECT load_extension('x')",
        "SELECT * FROM sqlite_schema",
        "SELECT count(*) FROM pragma_database_list",
        "SELECT * FROM sqlite_temp_schema",
        "VACUUM INTO '/tmp/x.db'",
        "BEGIN",
        "REINDEX",
        "ANALYZE",
        "SAVEPOINT s",
        "SELECT nothing FROM v_records",
        "SELECT * FROM v_nothing",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE v_records",
        "",
        "-- nothing",
        "SELECT \"rank",
        "SELECT \"no such column\" FROM v_scopes",
    };
    lp_trace *t = fix_trace(false);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(t, bad[i], LP_E_ARGUMENT, "the query");
    refused(t, "ATTACH 'x' AS x", LP_E_ARGUMENT, "may only read the tables v_*");
    refused(t, "SELECT zeroblob(1 << 30)", LP_E_ARGUMENT, "too big");
    expect(t, "SELECT 1;  -- and a comment", "1\n1\n");
    expect(t, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3) SELECT max(x) FROM c",
           "max(x)\n3\n");
    lp_trace_close(t);
}

static int take_typed(void *context, int columns, const char *const *values, const lp_cell_type *types, bool is_header)
{
    (void)values;
    answer *a = context;
    for (int c = 0; c < columns && !is_header; c++)
        lp_text_format(&a->text, "%d", (int)types[c]);
    return 0;
}

static void endless_queries_end(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false);
    answer a = {0};
    lp_error err = {0};
    lp_text_init(&a.text, NULL);
    assert_int_equal(lp_trace_query_with(t,
                                         "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
                                         " SELECT count(*) FROM c",
                                         1000, take_typed, &a, &err),
                     LP_E_LIMIT);
    assert_non_null(strstr(err.text, "too many steps"));
    assert_int_equal(lp_trace_query_with(t, "SELECT 1, 2.5, 'x', NULL, x'41', x''", 1000, take_typed, &a, &err), LP_OK);
    assert_string_equal(a.text.data, "123033");
    lp_text_free(&a.text);
    lp_trace_close(t);
}

static void the_caller_can_stop(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false);
    answer a = {.stop_after = 3};
    lp_text_init(&a.text, NULL);
    FIX_OK(lp_trace_query(t, "SELECT name FROM v_records", take, &a, &fix_err));
    assert_int_equal(a.rows, 3);
    lp_text_free(&a.text);
    lp_trace_close(t);
}

/* A trace that is damaged where only the expansion sees it: its own error comes through SQL. */
static void a_damaged_scope_is_reported_as_such(void **state)
{
    (void)state;
    lp_trace *t = fix_trace(false), *opened;
    uint8_t *image;
    int64_t bytes;
    FIX_OK(lp_trace_image(t, &image, &bytes, &fix_err));
    FIX_OK(lp_trace_open_image(&opened, image, bytes, "x.lpt", NULL, &fix_err));
    opened->scope[1].digest[0] ^= 1;
    refused(opened, "SELECT count(*) FROM v_records", LP_E_CORRUPT, "digest");
    expect(opened, "SELECT count(*) FROM v_records WHERE rank = 0", "count(*)\n44\n");
    lp_trace_close(opened);
    lp_trace_close(t);
    sqlite3_free(image);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fix_faults f = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = fix_resize};
    lp_trace *t = fix_trace(false);
    t->platform.alloc = &alloc; /* nothing that it holds is freed before this is undone */
    for (int64_t n = 0; n == 0 || n <= 200; n++) {
        f = (fix_faults){.fail_allocation = n};
        answer a = {0};
        lp_error err = {0};
        lp_text_init(&a.text, NULL);
        const lp_status status =
            lp_trace_query(t, "SELECT shape, stride, flags FROM v_destinations WHERE rank = 0", take, &a, &err);
        lp_text_free(&a.text);
        assert_int_equal(f.live, 0);
        if (status == LP_OK && n > 0)
            break; /* there are not that many */
        assert_int_equal(status, n == 0 ? LP_OK : LP_E_MEMORY);
    }
    t->platform.alloc = lp_alloc_default();
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_hold_the_rows),       cmocka_unit_test(constraints_only_narrow),
        cmocka_unit_test(one_rank_expands_one_scope), cmocka_unit_test(only_reading_is_allowed),
        cmocka_unit_test(endless_queries_end),        cmocka_unit_test(the_caller_can_stop),
        cmocka_unit_test(every_allocation_may_fail),  cmocka_unit_test(a_damaged_scope_is_reported_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
