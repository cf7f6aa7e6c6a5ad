/* SPDX-License-Identifier: Apache-2.0 */
/* The recording API: a loader written in C, its misuse, its places in the source, and several scopes. */
#include "failing_memory.h"
#include "test_recorder_run.h"

/* ---- the loader of the guide ---- */

static void load_gate_up(lp_recorder *r, int layer, lp_scope at)
{
    static const char *const half[] = {"gate_proj", "up_proj"};
    lp_tensor fused = lp_dest(r, lp_name(r, "layers.%d.mlp.gate_up.weight", layer));
    for (int i = 0; i < 2; i++) {
        lp_tensor w = lp_source(r, lp_name(r, "model.layers.%d.mlp.%s.weight", layer, half[i]));
        int64_t rows = lp_size(w, 0) / at.tp;
        lp_copy(lp_narrow(fused, 0, i * rows, rows), lp_narrow(w, 0, at.tp_rank * rows, rows));
    }
}

static void fused_gate_up_is_the_ranks_rows(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 2; i++) {
            char name[64];
            snprintf(name, sizeof name, "model.layers.%d.mlp.%s.weight", layer, i == 0 ? "gate_proj" : "up_proj");
            add_tensor(c, name, LP_BF16, SHAPE(8, 4));
        }
    }
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){.tp = 4, .tp_rank = 1});
    const lp_scope at = lp_recorder_scope(r);
    assert_int_equal(at.dp, 1);
    for (int layer = 0; layer < 2; layer++) {
        lp_declare(r, lp_name(r, "layers.%d.mlp.gate_up.weight", layer), LP_BF16, 2, (int64_t[]){4, 4});
        load_gate_up(r, layer, at);
    }
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->ndest, 2);
    assert_int_equal(x.rows->nrecord, 4);
    assert_source(&x, "layers.1.mlp.gate_up.weight", 0, "model.layers.1.mlp.gate_proj.weight", 16, 16);
    assert_source(&x, "layers.1.mlp.gate_up.weight", 16, "model.layers.1.mlp.up_proj.weight", 16, 16);
    assert_string_equal(dest_of(&x, "layers.1.mlp.gate_up.weight")->group, "layers.1");
    assert_ptr_equal(x.rows->record[0].map, x.rows->record[3].map);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- misuse ---- */

static void misuse_is_sticky_and_says_where(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6});
    const int line = __LINE__ + 1;
    lp_tensor wrong = lp_narrow(lp_source(r, "a"), 0, 2, 9);
    assert_false(lp_is_valid(wrong));
    assert_int_equal(lp_size(wrong, 0), 1);
    lp_copy(d, lp_transpose(wrong, 0, 1));
    assert_false(lp_is_valid(lp_source(r, "no such tensor")));
    lp_trace *t = NULL;
    lp_error err;
    char place[64];
    assert_int_equal(lp_recorder_finish(r, &t, &err), LP_E_ARGUMENT);
    assert_null(t);
    snprintf(place, sizeof place, "test_recorder.c:%d: ", line);
    if (strstr(err.text, place) == NULL)
        fail_msg("'%s' does not name '%s'", err.text, place);
    lp_recorder_close(r);
    lp_checkpoint_close(c);
}

static void unknown_name_hints_at_the_nearest(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "model.layers.0.mlp.up_proj.weight", LP_F32, SHAPE(2));
    add_tensor(c, "model.norm.weight", LP_F32, SHAPE(2));
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_error err;
    assert_true(lp_has(r, "model.norm.weight"));
    assert_false(lp_has(r, "model.layers.0.mlp.up_proj.bias"));
    lp_source(r, "model.layers.0.mlp.upproj.weight");
    assert_int_equal(lp_recorder_save(r, "/nonexistent/x.lpt", &err), LP_E_UNKNOWN_NAME);
    assert_non_null(strstr(err.text, "no checkpoint tensor 'model.layers.0.mlp.upproj.weight'"));
    assert_string_equal(err.hint, "there is 'model.layers.0.mlp.up_proj.weight'");
    lp_recorder_close(r);

    r = open_scope(c, (lp_scope){0});
    lp_dest(r, "d");
    assert_int_equal(lp_recorder_status(r, &err), LP_E_UNKNOWN_NAME);
    lp_recorder_close(r);

    r = open_scope(c, (lp_scope){0});
    lp_declare(r, "d", LP_F32, 1, (int64_t[]){2});
    lp_declare(r, "d", LP_F32, 1, (int64_t[]){2});
    assert_int_equal(lp_recorder_status(r, &err), LP_E_DUPLICATE);
    lp_recorder_close(r);

    r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){2}), lp_cat(0, NULL, 0));
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    assert_non_null(strstr(err.text, "a tensor that stands for nothing"));
    lp_recorder_close(r);

    lp_recorder *other = open_scope(c, (lp_scope){0});
    r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){2}), lp_source(other, "model.norm.weight"));
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    lp_recorder_close(other);
    lp_recorder_close(r);
    lp_recorder_close(NULL);
    lp_checkpoint_close(c);
}

static void scope_must_exist(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = NULL;
    lp_error err;
    assert_int_equal(lp_recorder_open(&r, c, &(lp_scope){.tp = 2, .tp_rank = 2}, &err), LP_E_ARGUMENT);
    assert_null(r);
    lp_checkpoint_close(c);
}

/* ---- places and scopes ---- */

static void places_may_have_any_path(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6});
    lp_copy_at("src/l\xf6"
               "der.c",
               7, d, lp_source(r, "a"));
    lp_trace *t = finish(r);
    const lp_rows *rows = NULL;
    assert_int_equal(lp_trace_rows(t, 0, &rows, NULL), LP_OK);
    const lp_provenance *place = lp_trace_provenance(t, rows->record[0].provenance);
    assert_string_equal(place->file, "src/l\\xf6der.c"); /* what a trace holds is UTF-8 */
    assert_int_equal(place->line, 7);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void scopes_share_a_trace(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){.tp = 2});
    lp_error err;
    for (int rank = 0; rank < 2; rank++) {
        if (rank > 0)
            assert_int_equal(lp_recorder_next_scope(r, &(lp_scope){.tp = 2, .tp_rank = rank}, &err), LP_OK);
        lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){2, 6}), lp_chunk(lp_source(r, "a"), 0, 2, rank));
    }
    lp_trace *t = finish(r);
    assert_int_equal(lp_trace_scope_count(t), 2);
    for (int rank = 0; rank < 2; rank++) {
        run x = run_scope(t, rank);
        assert_source(&x, "d", 0, "a", rank * 48, 48);
        free_run(&x);
    }
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- memory ---- */

static lp_status record_something(const lp_checkpoint *c, const lp_platform *platform, lp_error *err)
{
    lp_recorder *r = NULL;
    lp_trace *t = NULL;
    const lp_recorder_options options = {.platform = platform};
    LP_TRY(lp_recorder_open_with(&r, c, &(lp_scope){0}, &options, err));
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){8, 6});
    lp_tensor e = lp_declare(r, "e", LP_F32, 2, (int64_t[]){4, 6});
    lp_copy(d, lp_cat(2, (lp_tensor[]){lp_source(r, "a"), lp_source(r, "b")}, 0));
    lp_zero(lp_source(r, "a"), lp_source(r, "a"));
    lp_copy(e, lp_source(r, "a"));
    lp_copy(lp_declare(r, "h", LP_F32, 1, (int64_t[]){8}), lp_source(r, "half"));
    lp_copy(lp_dest(r, "h"), lp_neg(lp_exp(lp_dest(r, "h"))));
    lp_item(lp_source(r, "bytes"));
    lp_require_close(r, lp_select(d, 0, 0), lp_select(d, 0, 4), 1e-5f, lp_name(r, "row {index} of %s", "d"));
    const lp_status status = lp_recorder_finish(r, &t, err);
    lp_trace_close(t);
    lp_recorder_close(r);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    int64_t n = 1;
    for (;; n++) {
        failing_alloc f = {.fail_at = n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_resize};
        const lp_platform platform = {.alloc = &alloc};
        lp_error err = {0};
        const lp_status status = record_something(c, &platform, &err);
        assert_int_equal(f.live, 0);
        if (status == LP_OK && f.calls < n)
            break;
        if (status != LP_E_MEMORY)
            fail_msg("allocation %lld: %s: %s", (long long)n, lp_status_name(status), err.text);
    }
    assert_true(n > 20);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_gate_up_is_the_ranks_rows),   cmocka_unit_test(misuse_is_sticky_and_says_where),
        cmocka_unit_test(unknown_name_hints_at_the_nearest), cmocka_unit_test(scope_must_exist),
        cmocka_unit_test(places_may_have_any_path),          cmocka_unit_test(scopes_share_a_trace),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
