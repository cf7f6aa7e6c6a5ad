/* SPDX-License-Identifier: Apache-2.0 */
/* Traces as images in memory: made, opened as a whole, and edited as a hostile author would. */
#ifndef LOADPLAN_TRACE_IMAGES_H
#define LOADPLAN_TRACE_IMAGES_H

#include "trace_fixture.h"

#include "traces/trace_file.h"

static inline uint8_t *image_of(const lp_trace *t, int64_t *bytes)
{
    uint8_t *image = NULL;
    FIX_OK(lp_trace_image(t, &image, bytes, &fix_err));
    return image;
}

/* Opens an image and expands every scope; the trace on success. */
static inline lp_status open_all(uint8_t *image, int64_t bytes, lp_trace **out, lp_error *err)
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

static inline lp_status open_and_close(uint8_t *image, int64_t bytes, lp_error *err)
{
    lp_trace *t;
    const lp_status status = open_all(image, bytes, &t, err);
    lp_trace_close(t);
    return status;
}

/* The image after SQL was run on it, as a hostile author would. */
static inline uint8_t *edited(const uint8_t *image, int64_t bytes, const char *sql, int64_t *out_bytes)
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
static inline void refused(const uint8_t *image, int64_t bytes, const char *sql, lp_status code, const char *text)
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

#endif
