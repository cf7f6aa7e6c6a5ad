/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace file in which one value is another, behind a checksum that is right: each value of each column of each table
 * in turn, and each byte inside each frame. It is refused as bad data, or it opens as a whole plan whose digests hold.
 */
#define FIX_SMALL
#include "trace_fixture.h"

#include "traces/trace_file.h"

#include <inttypes.h>
#include <string.h>

/* A trace file as a database that can be damaged, opened as a trace, and mended. */
typedef struct lp_specimen {
    sqlite3 *db;
    uint8_t *image; /* undamaged */
    int64_t bytes;
    uint8_t digest[32]; /* of the set of plans, undamaged */
    int64_t refused, opened;
} lp_specimen;

static sqlite3_stmt *prepare(lp_specimen *s, const char *format, ...)
{
    sqlite3_stmt *q = NULL;
    va_list list;
    va_start(list, format);
    char *sql = sqlite3_vmprintf(format, list);
    va_end(list);
    if (sqlite3_prepare_v2(s->db, sql, -1, &q, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(s->db));
    sqlite3_free(sql);
    return q;
}

/* The database is as it was at first. */
static void mend(lp_specimen *s)
{
    uint8_t *copy = sqlite3_malloc64((sqlite3_uint64)s->bytes);
    assert_non_null(copy);
    memcpy(copy, s->image, (size_t)s->bytes);
    sqlite3_close(s->db);
    assert_int_equal(sqlite3_open(":memory:", &s->db), SQLITE_OK);
    assert_int_equal(sqlite3_deserialize(s->db, "main", copy, s->bytes, s->bytes,
                                         SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE),
                     SQLITE_OK);
}

static void specimen_open(lp_specimen *s)
{
    lp_trace *t = fix_trace(false);
    *s = (lp_specimen){0};
    FIX_OK(lp_trace_image(t, &s->image, &s->bytes, &fix_err));
    FIX_OK(lp_trace_set_digest(t, s->digest, &fix_err));
    lp_trace_close(t);
    mend(s);
}

static void specimen_close(lp_specimen *s)
{
    sqlite3_close(s->db);
    sqlite3_free(s->image);
}

static lp_status open_whole(uint8_t *image, int64_t bytes, lp_trace **out, lp_error *err)
{
    lp_trace *t = NULL;
    *out = NULL;
    LP_TRY(lp_trace_open_image(&t, image, bytes, "x.lpt", NULL, err));
    for (int32_t i = 0; i < lp_trace_scope_count(t); i++) {
        const lp_rows *rows;
        const lp_status status = lp_trace_rows(t, i, &rows, err);
        if (status != LP_OK) {
            lp_error again = {0};
            assert_int_equal(lp_trace_rows(t, i, &rows, &again), status); /* what is damaged stays so */
            lp_trace_close(t);
            return status;
        }
    }
    *out = t;
    return LP_OK;
}

static int append(void *context, const char *text, size_t bytes)
{
    lp_text_add(context, text, bytes);
    return 0;
}

/* What opened is a trace like any other: its text form says the same. */
static void must_be_whole(const lp_trace *t, const char *what)
{
    lp_trace *back;
    lp_error err = {0};
    lp_text text;
    lp_text_init(&text, NULL);
    FIX_OK(lp_trace_dump(t, append, &text, &fix_err));
    if (lp_trace_undump(&back, text.data, (size_t)text.bytes, NULL, &err) != LP_OK)
        fail_msg("%s: opens, but its text does not: %s", what, err.text);
    fix_same_digests(t, back);
    lp_trace_close(back);
    lp_text_free(&text);
}

/* The database as it stands now, read as a trace. `is_plan`: what was changed is part of the plan, so that a file which
 * opens all the same must say the plan that it said before. */
static void judge(lp_specimen *s, bool is_plan, const char *what)
{
    lp_trace *t = NULL;
    lp_error err = {0};
    sqlite3_int64 bytes = 0;
    uint8_t *image = sqlite3_serialize(s->db, "main", &bytes, 0);
    assert_non_null(image);
    const lp_status status = open_whole(image, bytes, &t, &err);
    sqlite3_free(image);
    if (status != LP_OK) {
        const bool is_data = status == LP_E_CORRUPT || status == LP_E_HOSTILE || status == LP_E_FORMAT ||
                             status == LP_E_VERSION || status == LP_E_LIMIT;
        if (!is_data || err.code != status || err.text[0] == '\0')
            fail_msg("%s: %s: '%s'", what, lp_status_name(status), err.text);
        s->refused++;
        return;
    }
    uint8_t digest[32];
    FIX_OK(lp_trace_set_digest(t, digest, &fix_err));
    if (is_plan && memcmp(digest, s->digest, sizeof digest) != 0)
        fail_msg("%s: opens as another plan", what);
    must_be_whole(t, what);
    lp_trace_close(t);
    s->opened++;
}

/* ---- values ---- */

typedef struct lp_column_name {
    char table[32], column[32], type[16];
} lp_column_name;

static int list_columns(lp_specimen *s, lp_column_name *out, int most)
{
    int count = 0;
    sqlite3_stmt *q = prepare(s, "SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c");
    while (sqlite3_step(q) == SQLITE_ROW) {
        assert_true(count < most);
        snprintf(out[count].table, sizeof out->table, "%s", (const char *)sqlite3_column_text(q, 0));
        snprintf(out[count].column, sizeof out->column, "%s", (const char *)sqlite3_column_text(q, 1));
        snprintf(out[count].type, sizeof out->type, "%s", (const char *)sqlite3_column_text(q, 2));
        count++;
    }
    sqlite3_finalize(q);
    return count;
}

/* Tells nothing about where bytes go: how many ranks there are, who recorded it, from which files, and where in it. */
static bool is_of_plan(const lp_column_name *c)
{
    static const char *const outside[] = {"trace", "header", "files", "provenance", "provenance_rows", "catalogue"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (strcmp(c->table, outside[i]) == 0)
            return false;
    return true;
}

/* Every row of a column gets this value, then one row does. A change that the schema forbids is none. */
static void put_value(lp_specimen *s, const lp_column_name *c, const char *value)
{
    static const char *const where[] = {"", " WHERE _rowid_ = (SELECT max(_rowid_) FROM %w)"};
    const bool has_rows = strcmp(c->table, "header") != 0 && strcmp(c->table, "requires") != 0;
    for (int i = 0; i < 1 + has_rows; i++) {
        char what[300], *condition = sqlite3_mprintf(where[i], c->table);
        snprintf(what, sizeof what, "%.32s.%.32s = %.60s%.120s", c->table, c->column, value, condition);
        sqlite3_stmt *q = prepare(s, "UPDATE %w SET %w = %s%s", c->table, c->column, value, condition);
        const int code = sqlite3_step(q);
        sqlite3_finalize(q);
        if (code == SQLITE_DONE && sqlite3_changes(s->db) > 0)
            judge(s, is_of_plan(c), what);
        mend(s);
        sqlite3_free(condition);
    }
}

static void no_value_of_a_column_is_believed(void **state)
{
    (void)state;
    static const char *const integers[] = {"NULL",       "-1",         "0",       "3",       "2147483648",
                                           "4294967296", "1125899906", "1 << 50", "1 << 62", "-9223372036854775807"};
    static const char *const texts[] = {"NULL", "''", "'x'", "'a' || char(0)", "CAST(x'ff' AS TEXT)", "'../x'"};
    static const char *const blobs[] = {"x''", "x'00'", "zeroblob(8)", "zeroblob(9)", "zeroblob(32)", "x'ffffffffff'"};
    enum { VALUES = 10, OTHERS = 6, COLUMNS = 80 };
    lp_column_name column[COLUMNS];
    lp_specimen s;
    specimen_open(&s);
    const int columns = list_columns(&s, column, COLUMNS);
    assert_true(columns > 40);
    for (int c = 0; c < columns; c++) {
        const bool is_integer = strcmp(column[c].type, "INTEGER") == 0, is_text = strcmp(column[c].type, "TEXT") == 0;
        for (int v = 0; v < (is_integer ? VALUES : OTHERS); v++)
            put_value(&s, &column[c], is_integer ? integers[v] : is_text ? texts[v] : blobs[v]);
    }
    printf("%" PRId64 " changed columns were refused, %" PRId64 " opened\n", s.refused, s.opened);
    assert_true(s.refused > 400);
    assert_true(s.opened > 10); /* unknown sizes of files, another loader's name */
    specimen_close(&s);
}

/* ---- frames ---- */

typedef struct lp_frame_row {
    const char *table, *column;
    int64_t row, raw_bytes;
    uint8_t *raw;
} lp_frame_row;

/* The content of a frame column's row, expanded. */
static void read_frame(lp_specimen *s, lp_frame_row *f)
{
    lp_codec codec = {0};
    int64_t budget = 1 << 20;
    sqlite3_stmt *q = prepare(s, "SELECT %w FROM %w WHERE _rowid_ = %lld", f->column, f->table, (long long)f->row);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    FIX_OK(lp_frame_unpack(&codec, NULL, sqlite3_column_blob(q, 0), sqlite3_column_bytes(q, 0), &budget, f->table,
                           &f->raw, &f->raw_bytes, &fix_err));
    sqlite3_finalize(q);
    lp_codec_free(&codec);
}

/* Puts other content into it, behind a right length and checksum, and judges the file. */
static void put_frame(lp_specimen *s, const lp_frame_row *f, lp_codec *codec, const uint8_t *raw, int64_t bytes,
                      const char *what)
{
    lp_text frame;
    lp_text_init(&frame, NULL);
    FIX_OK(lp_frame_pack(codec, raw, bytes, &frame, &fix_err));
    sqlite3_stmt *q = prepare(s, "UPDATE %w SET %w = ?1 WHERE _rowid_ = %lld", f->table, f->column, (long long)f->row);
    assert_int_equal(sqlite3_bind_blob(q, 1, frame.data, (int)frame.bytes, SQLITE_STATIC), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_DONE);
    sqlite3_finalize(q);
    const bool is_plan = strcmp(f->table, "provenance_rows") != 0 && strcmp(f->table, "catalogue") != 0;
    judge(s, is_plan, what);
    lp_text_free(&frame);
}

/* Each byte becomes the next one; every second one the largest number; at every fourth place it becomes another, goes,
 * and the frame ends before it. */
static void damage_frame(lp_specimen *s, const lp_frame_row *f)
{
    static const uint8_t most[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1};
    lp_codec codec = {0};
    uint8_t *bad = malloc((size_t)f->raw_bytes + sizeof most);
    assert_non_null(bad);
    for (int64_t i = 0; i < f->raw_bytes; i++) {
        char what[100];
        snprintf(what, sizeof what, "%s %" PRId64 ", byte %" PRId64, f->table, f->row, i);
        const size_t rest = (size_t)(f->raw_bytes - i - 1);
        memcpy(bad, f->raw, (size_t)f->raw_bytes);
        bad[i]++;
        put_frame(s, f, &codec, bad, f->raw_bytes, what);
        if (i % 2 != 0)
            continue;
        memcpy(bad + i, most, sizeof most);
        memcpy(bad + i + sizeof most, f->raw + i + 1, rest);
        put_frame(s, f, &codec, bad, f->raw_bytes - 1 + (int64_t)sizeof most, what);
        if (i % 4 != 0)
            continue;
        memcpy(bad, f->raw, (size_t)f->raw_bytes);
        bad[i] ^= 0x82;
        put_frame(s, f, &codec, bad, f->raw_bytes, what);
        memmove(bad + i, f->raw + i + 1, rest);
        put_frame(s, f, &codec, bad, f->raw_bytes - 1, what);
        put_frame(s, f, &codec, f->raw, i, what);
    }
    lp_codec_free(&codec);
    free(bad);
}

static void no_byte_inside_a_frame_is_believed(void **state)
{
    (void)state;
    static const struct {
        const char *table, *column;
    } frames[] = {{"catalogue", "frame"}, {"maps", "frame"},      {"destinations", "frame"},   {"derives", "frame"},
                  {"refusals", "frame"},  {"members", "payload"}, {"provenance_rows", "frame"}};
    lp_specimen s;
    specimen_open(&s);
    for (size_t t = 0; t < sizeof frames / sizeof *frames; t++) {
        lp_frame_row f = {.table = frames[t].table, .column = frames[t].column};
        sqlite3_stmt *q = prepare(&s, "SELECT max(_rowid_) FROM %w", f.table);
        assert_int_equal(sqlite3_step(q), SQLITE_ROW);
        f.row = sqlite3_column_int64(q, 0);
        sqlite3_finalize(q);
        s.refused = s.opened = 0;
        read_frame(&s, &f);
        damage_frame(&s, &f);
        printf("%s %" PRId64 ", %" PRId64 " bytes: %" PRId64 " refused, %" PRId64 " opened\n", f.table, f.row,
               f.raw_bytes, s.refused, s.opened);
        assert_true(s.refused > f.raw_bytes / 2);
        lp_release(NULL, f.raw);
        mend(&s);
    }
    specimen_close(&s);
}

/* Each row of each page in turn states a length near 2^32 or 2^64: damage, and never a lack of memory. */
static void no_length_of_a_row_is_believed(void **state)
{
    (void)state;
    static const uint8_t length[][9] = {{0x8f, 0xff, 0xff, 0xff, 0x7e},
                                        {0x8f, 0xff, 0xff, 0xf0, 0x00},
                                        {0x90, 0x80, 0x80, 0x80, 0x10},
                                        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
    lp_specimen s;
    specimen_open(&s);
    uint8_t *image = malloc((size_t)s.bytes);
    int rows = 0;
    assert_non_null(image);
    for (int64_t page = 0; page < s.bytes; page += LP_TRACE_PAGE_BYTES) {
        const uint8_t *head = s.image + page + (page == 0 ? 100 : 0);
        const int cells = head[0] == 0x0d ? head[3] << 8 | head[4] : 0;
        for (int i = 0; i < cells; i++, rows++) {
            const int at = head[8 + 2 * i] << 8 | head[9 + 2 * i];
            for (size_t k = 0; k < sizeof length / sizeof *length; k++) {
                const int left = LP_TRACE_PAGE_BYTES - at, wanted = k == 3 ? 9 : 5;
                lp_error err = {0};
                lp_trace *t;
                memcpy(image, s.image, (size_t)s.bytes);
                memcpy(image + page + at, length[k], (size_t)(left < wanted ? left : wanted));
                const lp_status status = open_whole(image, s.bytes, &t, &err);
                if (status != LP_E_CORRUPT)
                    fail_msg("page %d, row %d, length %d: %d %s", (int)(page / LP_TRACE_PAGE_BYTES) + 1, i, (int)k,
                             status, err.text);
            }
        }
    }
    assert_true(rows > 20);

    /* The first row of the schema, moved into the free middle of its page: its length is near 2^32 and its head does
     * not end in the page. SQLite answers that with a lack of memory. */
    static const uint8_t row[] = {0x8f, 0xff, 0xff, 0xff, 0x7e, 1, 0xb8, 0x0f, 0x17, 0x15, 0x15, 1, 0xed, 0x3d};
    enum { PLACE = 200 };
    lp_error err = {0};
    lp_trace *t;
    memcpy(image, s.image, (size_t)s.bytes);
    assert_true((image[105] << 8 | image[106]) > PLACE + 600);
    memcpy(image + PLACE, row, sizeof row);
    image[108] = 0;
    image[109] = PLACE;
    assert_int_equal(open_whole(image, s.bytes, &t, &err), LP_E_CORRUPT);
    free(image);
    specimen_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_value_of_a_column_is_believed),
        cmocka_unit_test(no_byte_inside_a_frame_is_believed),
        cmocka_unit_test(no_length_of_a_row_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
