/* SPDX-License-Identifier: Apache-2.0 */
/* The loader of docs/recording.md, before and after: what they record, and that the document shows this very code. */
int record_guide_main(int argc, char **argv);
#define main record_guide_main
#include "../tools/record_guide.c"
#undef main

#include "test_recorder_run.h"

enum { EXPERTS = 3, ROWS = 8, COLUMNS = 4 };

static lp_checkpoint *experts(void)
{
    lp_checkpoint *c = new_checkpoint();
    for (int layer = 0; layer < 2; layer++) {
        for (int e = 0; e < EXPERTS; e++) {
            char name[128];
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.down_proj.weight_scale", layer, e);
            add_tensor(c, name, LP_F8_E4M3, SHAPE(ROWS, COLUMNS));
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.down_proj.input_scale", layer, e);
            add_tensor(c, name, LP_F32, 0, NULL);
        }
    }
    seal_checkpoint(c);
    return c;
}

static lp_trace *record(const lp_checkpoint *c, bool after)
{
    lp_recorder *r = NULL;
    lp_trace *t = NULL;
    lp_error err;
    assert_int_equal(lp_recorder_open(&r, c, &(lp_scope){0}, &err), LP_OK);
    load_model(r, after);
    if (lp_recorder_finish(r, &t, &err) != LP_OK)
        fail_msg("%s", err.text);
    lp_recorder_close(r);
    return t;
}

static void both_move_the_same_scales(void **state)
{
    (void)state;
    lp_checkpoint *c = experts();
    for (int after = 0; after < 2; after++) {
        lp_trace *t = record(c, after);
        run x = run_scope(t, 0);
        assert_checked(t);
        for (int64_t i = 0; i < EXPERTS * ROWS * COLUMNS; i++) {
            const int64_t e = i / (ROWS * COLUMNS), column = i / ROWS % COLUMNS, row = i % ROWS;
            char name[128];
            snprintf(name, sizeof name, "model.layers.1.mlp.experts.%d.down_proj.weight_scale", (int)e);
            assert_source(&x, "layers.1.experts.w2_weight_scale", i, name, row * COLUMNS + column, 1);
        }
        assert_int_equal(x.rows->nrefusal > 0, !after);
        assert_int_equal(x.rows->nderive, after ? 2 : 0);
        free_run(&x);
        lp_trace_close(t);
    }
    lp_checkpoint_close(c);
}

static void the_diff_denies_the_way_back(void **state)
{
    (void)state;
    lp_checkpoint *c = experts();
    lp_trace *before = record(c, false), *after = record(c, true);
    lp_findings *f = NULL;
    lp_error err;
    assert_int_equal(lp_diff(&f, after, before, &err), LP_OK);
    bool found = false;
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        const lp_finding *x = lp_findings_at(f, i);
        if (strcmp(x->rule->id, "copy_became_refusal") != 0)
            continue;
        found = true;
        assert_int_equal(x->level, LP_DENY);
        assert_int_equal(x->members, 2 * EXPERTS);
        assert_non_null(strstr(x->file, "record_guide.c"));
        assert_true(x->line > 0);
    }
    assert_true(found);
    lp_findings_free(f);
    lp_trace_close(before);
    lp_trace_close(after);
    lp_checkpoint_close(c);
}

/* ---- the document ---- */

static char *read_text(const char *path)
{
    char *text = NULL;
    int64_t bytes;
    lp_error err;
    if (lp_read_file(NULL, path, 1 << 20, &text, &bytes, &err) != LP_OK)
        fail_msg("%s", err.text);
    return text;
}

static void the_document_shows_this_code(void **state)
{
    (void)state;
    static const struct {
        const char *function, *file;
    } shown[] = {
        {"static void load_gate_up(", TEST_CASES "/../unit/test_recorder.c"},
        {"static void load_scales_before(", TEST_CASES "/../tools/record_guide.c"},
        {"static void load_scales_after(", TEST_CASES "/../tools/record_guide.c"},
    };
    char *document = read_text(TEST_CASES "/../../docs/recording.md");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        char *source = read_text(shown[i].file);
        const char *said = strstr(document, shown[i].function), *real = strstr(source, shown[i].function);
        assert_non_null(said);
        assert_non_null(real);
        const char *end = strstr(real, "\n}\n");
        assert_non_null(end);
        if (strncmp(said, real, (size_t)(end - real) + 3) != 0)
            fail_msg("docs/recording.md shows another '%s'", shown[i].function);
        lp_release(NULL, source);
    }
    lp_release(NULL, document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_move_the_same_scales),
        cmocka_unit_test(the_diff_denies_the_way_back),
        cmocka_unit_test(the_document_shows_this_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
