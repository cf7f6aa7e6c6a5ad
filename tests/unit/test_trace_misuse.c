/* SPDX-License-Identifier: Apache-2.0 */
/* Building a trace in the wrong order or with the wrong things: what is said; and file names that no trace may carry.
 */
#include "model_testing.h"

#include "traces/trace_dump.h"
#include "traces/trace_file.h"

#include <string.h>

#define REFUSED(code, words, call)                                                                                     \
    do {                                                                                                               \
        lp_error error_ = {0};                                                                                         \
        const lp_status status_ = call;                                                                                \
        if (status_ != (code) || strcmp(error_.text, words) != 0)                                                      \
            fail_msg("%s: %s: '%s'", #call, lp_status_name(status_), error_.text);                                     \
    } while (0)

static const int64_t one = 1;
static const lp_destination dest = {.name = "d",
                                    .dtype = LP_U8,
                                    .ndim = 1,
                                    .shape = &one,
                                    .stride = &one,
                                    .storage_bytes = 1,
                                    .group = "root",
                                    .slot_dim = -1};

/* Every kind of row, to a trace that takes none. */
static void takes_no_rows(lp_trace *t, const char *words)
{
    const lp_map *map = byte_map(0, 0, 1, 1, 0, 0);
    const lp_record record = {.map = map, .provenance = LP_NONE};
    const lp_derive derive = {.dest = LP_NONE, .error_text = ""};
    const lp_refusal refusal = {.dest = LP_NONE, .operation = "o", .reason = "r"};
    uint32_t index;
    REFUSED(LP_E_MISUSE, words, lp_trace_add_destination(t, &dest, &index, ERR));
    REFUSED(LP_E_MISUSE, words, lp_trace_add_record(t, &record, ERR));
    REFUSED(LP_E_MISUSE, words, lp_trace_add_derive(t, &derive, ERR));
    REFUSED(LP_E_MISUSE, words, lp_trace_add_refusal(t, &refusal, ERR));
    lp_map_free(map, NULL);
}

static lp_trace *trace_with(lp_scope layout)
{
    lp_checkpoint *c = small_checkpoint(1, 1);
    lp_trace *t;
    assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.loader = "test", .layout = layout}, NULL, ERR));
    lp_checkpoint_close(c);
    return t;
}

static void rows_belong_to_a_scope_that_is_open(void **state)
{
    (void)state;
    uint32_t index;
    lp_trace *t = trace_with((lp_scope){.tp = 2});
    takes_no_rows(t, "no scope was begun");
    const struct {
        lp_scope scope;
        const char *words;
    } bad[] = {
        {{.tp = 1}, "the scope's sizes pp 1, dp 1, tp 1 are not the trace's pp 1, dp 1, tp 2"},
        {{.pp = 2, .tp = 2}, "the scope's sizes pp 2, dp 1, tp 2 are not the trace's pp 1, dp 1, tp 2"},
        {{.dp = 3, .tp = 2}, "the scope's sizes pp 1, dp 3, tp 2 are not the trace's pp 1, dp 1, tp 2"},
        {{.tp = 2, .expert_parallel = true}, "the scope's sizes pp 1, dp 1, tp 2 are not the trace's pp 1, dp 1, tp 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(LP_E_ARGUMENT, bad[i].words, lp_trace_begin_scope(t, &bad[i].scope, ERR));
    for (int rank = 0; rank < 2; rank++) {
        assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = rank}, ERR));
        assert_ok(lp_trace_add_destination(t, &dest, &index, ERR));
        REFUSED(LP_E_ARGUMENT, "destination 'd' is declared twice", lp_trace_add_destination(t, &dest, &index, ERR));
    }
    assert_ok(lp_trace_seal(t, ERR));
    takes_no_rows(t, "the trace is sealed and takes no more rows");
    REFUSED(LP_E_MISUSE, "the trace is sealed and takes no more scopes",
            lp_trace_begin_scope(t, &(lp_scope){.tp = 2}, ERR));
    REFUSED(LP_E_MISUSE, "the trace is sealed and takes no more provenance",
            lp_trace_add_provenance(t, &(lp_provenance){.file = "f", .chain = ""}, &index, ERR));
    REFUSED(LP_E_MISUSE, "the trace is sealed already", lp_trace_seal(t, ERR));
    assert_null(lp_trace_scope_at(t, -1));
    assert_null(lp_trace_scope_at(t, 2));
    assert_int_equal(lp_trace_scope_at(t, 1)->tp_rank, 1);
    assert_int_equal(lp_trace_scope_find(t, 2), -1);
    lp_trace_close(t);
}

static void a_failed_trace_stays_failed(void **state)
{
    (void)state;
    lp_trace *t = trace_with((lp_scope){0});
    const char *words = "an earlier scope of the trace failed";
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    REFUSED(LP_E_ARGUMENT, "rank 0 was recorded twice", lp_trace_seal(t, ERR));
    takes_no_rows(t, words);
    REFUSED(LP_E_MISUSE, words, lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    REFUSED(LP_E_MISUSE, words, lp_trace_seal(t, ERR));
    lp_trace_close(t);
}

static void texts_are_utf8_and_no_longer_than_they_may_be(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint(1, 1);
    lp_trace *t = NULL;
    uint32_t index;
    char *long_text = malloc((size_t)LP_CONFIGURATION_BYTES_MAX + 2);
    assert_non_null(long_text);
    memset(long_text, 'x', (size_t)LP_CONFIGURATION_BYTES_MAX + 1);
    long_text[LP_CONFIGURATION_BYTES_MAX + 1] = '\0';
    REFUSED(LP_E_ARGUMENT, "a text of the trace header is not UTF-8: '\\xff'",
            lp_trace_new(&t, c, &(lp_trace_header){.loader = "\xff"}, NULL, ERR));
    assert_int_equal(lp_trace_new(&t, c, &(lp_trace_header){.configuration = long_text}, NULL, NULL), LP_E_LIMIT);
    assert_null(t);
    long_text[LP_CONFIGURATION_BYTES_MAX] = '\0';
    assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.configuration = long_text}, NULL, ERR));
    const char *odd[] = {"\xff", "ok"};
    for (int i = 0; i < 2; i++)
        REFUSED(LP_E_ARGUMENT, "the place of an operation, or its chain, is not UTF-8",
                lp_trace_add_provenance(t, &(lp_provenance){.file = odd[i], .chain = odd[1 - i]}, &index, ERR));
    assert_null(lp_trace_provenance(t, 0));
    free(long_text);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A trace of a checkpoint whose one file has this path can be opened again, and names it so. */
static void named(const char *path, const char *name)
{
    lp_checkpoint *c;
    lp_trace *t, *back;
    uint8_t *image = NULL;
    int64_t bytes;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    assert_ok(lp_checkpoint_add_file(c, &(lp_checkpoint_file){.path = path, .size_bytes = 1}, ERR));
    assert_ok(lp_checkpoint_add(
        c, &(lp_checkpoint_tensor){.name = "n", .dtype = LP_U8, .ndim = 1, .shape = &one, .file = 0, .file_off = 0},
        ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    assert_ok(lp_trace_new(&t, c, NULL, NULL, ERR));
    lp_checkpoint_close(c);
    assert_ok(lp_trace_seal(t, ERR));
    assert_ok(lp_trace_image(t, &image, &bytes, ERR));
    assert_ok(lp_trace_open_image(&back, image, bytes, "x.lpt", NULL, ERR));
    assert_string_equal(lp_checkpoint_file_at(lp_trace_checkpoint(back), 0)->path, name);
    lp_trace_close(back);
    lp_trace_close(t);
    sqlite3_free(image);
}

static void no_path_in_a_trace_leads_elsewhere(void **state)
{
    (void)state;
    named("model.safetensors", "model.safetensors");
    named("sub/model.safetensors", "sub/model.safetensors");
    named("./..x/model", "./..x/model");
    named("/abs/model", "model");
    named("../model", "model");
    named("a/../model", "model");
    named("a/..", "unnamed");
    named("..", "unnamed");
    named("/", "unnamed");
    named("", "unnamed");
    static const char *const bad[] = {"/abs", "../up", "a/../b", "..", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[200], words[100];
        lp_trace *t = NULL;
        const int n = snprintf(text, sizeof text,
                               "loadplan-trace 1000\nlayout pp=1 dp=1 tp=1 ep=0\nfile \"%s\" bytes=1\n"
                               "END names=0 scopes=0 records=0 derives=0 refusals=0\n",
                               bad[i]);
        snprintf(words, sizeof words, "line 3: file '%s' is absolute or goes upwards", bad[i]);
        REFUSED(LP_E_CORRUPT, words, lp_trace_undump(&t, text, (size_t)n, NULL, ERR));
        assert_null(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_belong_to_a_scope_that_is_open),
        cmocka_unit_test(a_failed_trace_stays_failed),
        cmocka_unit_test(texts_are_utf8_and_no_longer_than_they_may_be),
        cmocka_unit_test(no_path_in_a_trace_leads_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
