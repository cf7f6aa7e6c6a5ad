/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a trace that is built: calls out of order, provenance, its catalogue, and allocations that fail. */
#include "model_testing.h"

static void calls_out_of_order_are_misuse(void **state)
{
    (void)state;
    lp_error err;
    lp_checkpoint *c = small_checkpoint(1, 10);
    lp_trace *t;
    const lp_rows *rows;
    uint8_t digest[32];
    assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.layout = {.tp = 2}}, NULL, ERR));
    assert_string_equal(lp_trace_header_of(t)->loader, "");
    assert_int_equal(lp_trace_header_of(t)->layout.dp, 1);
    assert_int_equal(lp_trace_add_refusal(t, &(lp_refusal){.dest = LP_NONE}, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_rows(t, 0, &rows, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_set_digest(t, digest, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_begin_scope(t, &(lp_scope){.tp = 4}, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "the scope's sizes pp 1, dp 1, tp 4 are not the trace's pp 1, dp 1, tp 2");
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = 1}, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = 0}, ERR));
    assert_ok(lp_trace_seal(t, ERR));
    assert_int_equal(lp_trace_seal(t, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_begin_scope(t, &(lp_scope){.tp = 2}, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_scope_count(t), 2);
    assert_int_equal(lp_trace_scope_at(t, 0)->tp_rank, 0); /* by rank, not by call */
    assert_int_equal(lp_trace_scope_find(t, 1), 1);
    assert_int_equal(lp_trace_scope_find(t, 2), -1);
    assert_null(lp_trace_scope_at(t, 2));
    assert_int_equal(lp_trace_rows(t, 2, &rows, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_trace_release_rows(t, 0), LP_OK);
    assert_ok(lp_trace_rows(t, 0, &rows, ERR)); /* a built trace keeps its rows */
    lp_trace_close(t);

    assert_ok(lp_trace_new(&t, c, NULL, NULL, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    assert_int_equal(lp_trace_seal(t, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "rank 0 was recorded twice");
    lp_trace_close(t);
    lp_checkpoint_close(c);
    lp_trace_close(NULL);
}

static void equal_provenance_is_stored_once(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 10, NULL);
    uint32_t index[300], again;
    for (int i = 0; i < 300; i++)
        assert_ok(lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.py", .line = i}, &index[i], ERR));
    assert_ok(lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.py", .line = 7, .chain = ""}, &again, ERR));
    assert_int_equal(again, index[7]);
    assert_ok(
        lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.py", .line = 7, .chain = "t()"}, &again, ERR));
    assert_int_equal(again, 300);
    assert_string_equal(lp_trace_provenance(t, index[7])->file, "loader.py");
    assert_int_equal(lp_trace_provenance(t, index[7])->line, 7);
    assert_null(lp_trace_provenance(t, LP_NONE));
    lp_error err;
    const lp_provenance bad[] = {{.file = "l\xf6"
                                          "ader.py",
                                  .line = 1},
                                 {.file = "a", .line = 1, .chain = "t(\xff)"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* a file could be written, but not be read */
        assert_int_equal(lp_trace_add_provenance(t, &bad[i], &again, &err), LP_E_ARGUMENT);
        assert_string_equal(err.text, "the place of an operation, or its chain, is not UTF-8");
    }
    lp_trace_close(t);
}

static void the_catalogue_is_copied_without_local_paths(void **state)
{
    (void)state;
    lp_checkpoint *c;
    lp_trace *t;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    assert_ok(lp_checkpoint_add_file(
        c, &(lp_checkpoint_file){.path = "/home/me/model/a.safetensors", .size_bytes = 500, .mtime_ns = 9, .inode = 8},
        ERR));
    assert_ok(lp_checkpoint_add_file(c, &(lp_checkpoint_file){.path = "/home/me/model/l\xf6we.safetensors"}, ERR));
    const int64_t shape[] = {2, 3};
    assert_ok(lp_checkpoint_add(
        c,
        &(lp_checkpoint_tensor){.name = "w", .dtype = LP_BF16, .ndim = 2, .shape = shape, .file = 0, .file_off = 400},
        ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    assert_ok(lp_trace_new(&t, c, NULL, NULL, ERR));
    lp_checkpoint_close(c);
    const lp_checkpoint *copy = lp_trace_checkpoint(t);
    const lp_checkpoint_file *file = lp_checkpoint_file_at(copy, 0);
    assert_string_equal(file->path, "a.safetensors");
    assert_int_equal(file->size_bytes, 500);
    assert_int_equal(file->mtime_ns, 0);
    assert_int_equal(file->inode, 0);
    assert_string_equal(lp_checkpoint_file_at(copy, 1)->path, "l\\xf6we.safetensors"); /* traces are UTF-8 */
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(copy, lp_checkpoint_find(copy, "w"));
    assert_int_equal(tensor->bytes, 12);
    assert_int_equal(tensor->file_off, 400);
    assert_int_equal(tensor->shape[1], 3);
    lp_trace_close(t);
}

/* Everything that the builder can be asked to keep, with overlaps and refusals. */
static lp_status build_busy_trace(const lp_checkpoint *c, const lp_platform *platform, const lp_map *copy,
                                  const lp_map *fill, const lp_map *gather, bool refuse_both, lp_error *err)
{
    lp_trace *t;
    LP_TRY(lp_trace_new(&t, c, &(lp_trace_header){.loader = "busy"}, platform, err));
    lp_status status = LP_OK;
    const int64_t bytes = 64, stride = 1;
    uint32_t d, place;
    const lp_destination dest = {
        .name = "d", .dtype = LP_U8, .ndim = 1, .shape = &bytes, .stride = &stride, .storage_bytes = 64};
    LP_TRY_GOTO(lp_trace_begin_scope(t, &(lp_scope){0}, err), close_trace);
    LP_TRY_GOTO(lp_trace_add_destination(t, &dest, &d, err), close_trace);
    LP_TRY_GOTO(lp_trace_add_provenance(t, &(lp_provenance){.file = "f", .line = 1}, &place, err), close_trace);
    const lp_map *moved = NULL;
    for (int64_t part = 0; part < 3; part++) { /* names alternate: their calls are taken apart */
        for (uint32_t name = 0; name < 4; name++) {
            LP_TRY_GOTO(lp_map_shift(&moved, copy, part, part * 7 + name * 3, NULL, err), close_trace);
            status =
                lp_trace_add_record(t, &(lp_record){.name = name, .dest = d, .map = moved, .provenance = place}, err);
            lp_map_free(moved, NULL);
            LP_TRY_GOTO(status, close_trace);
        }
    }
    LP_TRY_GOTO(
        lp_trace_add_record(t, &(lp_record){.name = LP_NAME_BEGIN, .dest = d, .map = fill, .provenance = LP_NONE}, err),
        close_trace);
    const lp_derive_input input[] = {{.staged = true, .index = 3, .dtype = LP_U8, .count = 64, .map = gather},
                                     {.staged = true, .index = 0, .dtype = LP_U8, .count = 64, .map = gather}};
    const lp_node node[] = {{.op = LP_OP_INPUT, .dtype = LP_U8, .count = 64}};
    const lp_derive derive = {
        .dest = d, .nnode = 1, .ninput = 1, .node = node, .input = &input[1], .map = gather, .provenance = LP_NONE};
    LP_TRY_GOTO(lp_trace_add_derive(t, &derive, err), close_trace);
    const lp_derive refused = {
        .dest = d, .nnode = 1, .ninput = 2, .node = node, .input = input, .map = gather, .provenance = LP_NONE};
    if (refuse_both)
        LP_TRY_GOTO(lp_trace_add_derive(t, &refused, err), close_trace);
    LP_TRY_GOTO(lp_trace_add_refusal(t, &(lp_refusal){.name = 3, .dest = LP_NONE, .operation = "o"}, err), close_trace);
    status = lp_trace_seal(t, err);

close_trace:
    lp_trace_close(t);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint(4, 100);
    const lp_map *copy = byte_map(0, 0, 5, 3, 9, 6), *fill = fill_map(0, 64, 1, 0),
                 *gather = byte_map(0, 0, 64, 1, 0, 0);
    failing_alloc failing = {0};
    const lp_alloc table = {.size = sizeof table, .context = &failing, .resize = failing_resize};
    const lp_platform platform = {.alloc = &table};
    for (int refuse_both = 0; refuse_both < 2; refuse_both++) {
        int64_t n = 0;
        lp_status status;
        do {
            lp_error err = {0};
            failing = (failing_alloc){.fail_at = ++n};
            status = build_busy_trace(c, &platform, copy, fill, gather, refuse_both, &err);
            assert_int_equal(failing.live, 0);
            if (status != LP_OK) {
                assert_int_equal(status, LP_E_MEMORY);
                assert_int_equal(err.code, LP_E_MEMORY);
            }
        } while (status != LP_OK && n < 10000);
        assert_int_equal(status, LP_OK);
        assert_true(n > 100); /* the loop did inject failures */
    }
    lp_map_free(copy, NULL);
    lp_map_free(fill, NULL);
    lp_map_free(gather, NULL);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_out_of_order_are_misuse),
        cmocka_unit_test(equal_provenance_is_stored_once),
        cmocka_unit_test(the_catalogue_is_copied_without_local_paths),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
