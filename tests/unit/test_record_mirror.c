/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors: what a framework tells the recorder about its storages, and what becomes of it. */
#include "failing_memory.h"
#include "mirror_testing.h"

static void a_view_is_its_storage_and_strides(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), w = destination(&b, "w", LP_F32, SHAPE(6, 2));
    lp_strided part = narrowed(a, 0, 1, 2); /* rows 1 and 2, transposed */
    const int64_t sizes[2] = {part.extent[1], part.extent[0]}, strides[2] = {part.extent[3], part.extent[2]};
    memcpy(part.extent, sizes, sizeof sizes);
    memcpy(part.extent + 2, strides, sizeof strides);
    assert_int_equal(copy(&b, w, part), LP_OK);
    lp_trace *t = end(&b);
    run r = run_scope(t, 0);
    const storage *s = storage_of(&r, &r.rows->dest[0]);
    for (int64_t i = 0; i < 12; i++) {
        for (int64_t byte = 0; byte < 4; byte++)
            assert_int_equal(s->byte[4 * i + byte], source_byte("a", 4 * ((1 + i % 2) * 6 + i / 2) + byte));
    }
    const lp_provenance *p = lp_trace_provenance(t, r.rows->record[0].provenance);
    assert_string_equal(p->file, "loader.py");
    assert_int_equal(p->line, 7);
    free_run(&r);
    lp_trace_close(t);
}

static void negative_steps_and_moved_elements(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided h = source(&b, "h"), w = destination(&b, "w", LP_BF16, SHAPE(16));
    lp_strided flipped = h;
    flipped.offset = 7;
    flipped.extent[1] = -1;
    assert_int_equal(copy(&b, narrowed(w, 0, 0, 8), flipped), LP_OK);
    const lp_strided upper = narrowed(w, 0, 8, 8);
    const int64_t to[8] = {0, 1, 2, 3, 4, 5, 6, 7}, from[8] = {0, 2, 4, 6, 7, 7, 1, 0};
    assert_int_equal(lp_mirror_move(b.mirror, "l", 1, &upper, &h, 8, to, from, &b.err), LP_OK);
    lp_trace *t = end(&b);
    run r = run_scope(t, 0);
    const storage *s = storage_of(&r, &r.rows->dest[0]);
    for (int64_t i = 0; i < 16; i++) {
        const int64_t which = i < 8 ? 7 - i : from[i - 8];
        assert_int_equal(s->byte[2 * i], source_byte("h", 2 * which));
        assert_int_equal(s->byte[2 * i + 1], source_byte("h", 2 * which + 1));
    }
    free_run(&r);
    lp_trace_close(t);
}

static void a_cast_is_one_record_or_a_derives_input(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided h = source(&b, "h"), w = destination(&b, "w", LP_F32, SHAPE(4)),
                     v = destination(&b, "v", LP_F32, SHAPE(8));
    const lp_strided cast = temporary(&b, LP_F32, SHAPE(8)), twice = temporary(&b, LP_F32, SHAPE(8));
    assert_int_equal(lp_mirror_cast(b.mirror, "l", 1, &cast, &h, &b.err), LP_OK);
    const lp_strided *const operands[2] = {&cast, NULL};
    assert_int_equal(lp_mirror_compute(b.mirror, "l", 2, LP_OP_MUL, &twice, 2, operands, (double[]){0, 2}, 0, &b.err),
                     LP_OK);
    assert_int_equal(copy(&b, v, twice), LP_OK);
    assert_int_equal(copy(&b, w, narrowed(cast, 0, 4, 4)), LP_OK);
    lp_trace *t = end(&b);
    const lp_rows *rows = rows_of(t);
    assert_int_equal(rows->nrecord, 1);
    assert_int_equal(rows->record[0].kind, LP_KIND_CAST);
    assert_int_equal(rows->record[0].src_off, 8);
    assert_int_equal(rows->nderive, 1);
    assert_true(rows->derive[0].input[0].staged);
    lp_trace_close(t);
}

static void misuse_refuses_its_name_only(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), other = source(&b, "b"), w = destination(&b, "w", LP_F32, SHAPE(4, 6)),
                     v = destination(&b, "v", LP_F32, SHAPE(4, 6)), hole = temporary(&b, LP_F32, SHAPE(4, 6));
    lp_strided outside = a;
    outside.offset = 1 << 20;
    assert_int_equal(copy(&b, w, outside), LP_E_REFUSED);
    assert_int_equal(copy(&b, w, hole), LP_E_UNSUPPORTED); /* nothing was written to it: no name to refuse */
    lp_strided nowhere = a;
    nowhere.storage = 99;
    assert_int_equal(copy(&b, w, nowhere), LP_E_ARGUMENT);
    assert_int_equal(copy(&b, v, other), LP_OK);
    const lp_strided *const operands[1] = {&a};
    assert_int_equal(lp_mirror_refuse(b.mirror, "l", 3, &hole, 1, operands, "sort", "no", &b.err), LP_E_REFUSED);
    assert_int_equal(copy(&b, w, hole), LP_OK); /* holds its place */
    lp_trace *t = end(&b);
    const lp_rows *rows = rows_of(t);
    assert_int_equal(rows->nrecord, 1);
    assert_string_equal(lp_checkpoint_at(lp_trace_checkpoint(t), rows->record[0].name)->name, "b");
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        assert_string_equal(lp_checkpoint_at(lp_trace_checkpoint(t), rows->refusal[i].name)->name, "a");
    assert_true(rows->nrefusal > 0);
    lp_trace_close(t);
}

static void a_replaced_destination_is_what_it_is_now(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), w = destination(&b, "w", LP_F32, SHAPE(4, 6));
    assert_int_equal(copy(&b, w, a), LP_OK);
    const lp_strided turned = temporary(&b, LP_F32, SHAPE(6, 4));
    lp_strided across = w;
    across.extent[0] = 6, across.extent[1] = 4, across.extent[2] = 1, across.extent[3] = 6;
    assert_int_equal(copy(&b, turned, across), LP_OK);
    assert_int_equal(lp_mirror_rebind(b.mirror, "l", 1, "w", &turned, NULL, &b.err), LP_OK);
    assert_true(lp_mirror_is_loaded(b.mirror, &w)); /* the old memory still holds what was written to it */
    lp_trace *t = end(&b);
    const lp_rows *rows = rows_of(t);
    assert_int_equal(rows->dest[0].shape[0], 6);
    assert_int_equal(rows->nrecord, 1);
    run r = run_scope(t, 0);
    const storage *s = storage_of(&r, &r.rows->dest[0]);
    for (int64_t i = 0; i < 24; i++)
        assert_int_equal(s->byte[4 * i], source_byte("a", 4 * (i % 4 * 6 + i / 4)));
    free_run(&r);
    lp_trace_close(t);
}

static void destinations_of_one_storage_are_told_apart(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), h = source(&b, "h");
    lp_strided one = strided(-1, LP_F32, SHAPE(4, 6));
    one.storage = lp_mirror_destination(b.mirror, "one", &one, 112, LP_DEST_TIED, NULL, &b.err);
    lp_strided two = strided(one.storage, LP_BF16, SHAPE(8));
    two.offset = 48;
    assert_int_equal(lp_mirror_destination(b.mirror, "two", &two, 112, LP_DEST_TIED, NULL, &b.err), one.storage);
    assert_false(lp_mirror_is_loaded(b.mirror, &two));
    assert_int_equal(copy(&b, two, h), LP_OK);
    assert_true(lp_mirror_is_loaded(b.mirror, &two));
    assert_false(lp_mirror_is_loaded(b.mirror, &one));
    assert_false(lp_mirror_leave(b.mirror, "two"));
    assert_int_equal(copy(&b, one, a), LP_OK);
    lp_trace *t = end(&b);
    const lp_rows *rows = rows_of(t);
    assert_int_equal(rows->nrecord, 2);
    assert_string_equal(rows->dest[1].storage, "one");
    assert_int_equal(rows->dest[1].offset, 96);
    lp_trace_close(t);
}

/* ---- memory that runs out ---- */

/* Goes on whatever fails, as a framework's loader would. */
static lp_status record_all(const lp_checkpoint *c, const lp_platform *platform)
{
    bench b = {.checkpoint = (lp_checkpoint *)(uintptr_t)c};
    const lp_recorder_options options = {.platform = platform};
    lp_trace *t = NULL;
    lp_status status = lp_recorder_open_with(&b.recorder, c, &(lp_scope){0}, &options, &b.err);
    if (status != LP_OK)
        return status;
    status = lp_mirror_open(&b.mirror, b.recorder, &b.err);
    if (status != LP_OK)
        goto done;
    lp_strided w = strided(-1, LP_F32, SHAPE(4, 6));
    w.storage = lp_mirror_destination(b.mirror, "w", &w, 96, 0, NULL, &b.err);
    lp_strided v = strided(-1, LP_F32, SHAPE(8));
    v.storage = lp_mirror_destination(b.mirror, "v", &v, 32, 0, NULL, &b.err);
    const lp_strided a = source(&b, "a"), h = source(&b, "h"), made = temporary(&b, LP_F32, SHAPE(4, 6)),
                     cast = temporary(&b, LP_F32, SHAPE(8)), twice = temporary(&b, LP_F32, SHAPE(8));
    copy(&b, made, a);
    copy(&b, w, made);
    lp_mirror_fill(b.mirror, "l", 1, &made, 0, 0, &b.err);
    lp_mirror_cast(b.mirror, "l", 1, &cast, &h, &b.err);
    lp_mirror_compute(b.mirror, "l", 2, LP_OP_ADD, &twice, 2, (const lp_strided *const[]){&cast, NULL},
                      (double[]){0, 1}, 0, &b.err);
    copy(&b, v, twice);
    const lp_strided tail = narrowed(v, 0, 6, 2);
    lp_mirror_move(b.mirror, "l", 3, &tail, &cast, 2, (int64_t[]){0, 1}, (int64_t[]){5, 1}, &b.err);
    lp_mirror_refuse(b.mirror, "l", 4, &twice, 1, (const lp_strided *const[]){&h}, "item", "no", &b.err);
    lp_mirror_rebind(b.mirror, "l", 5, "w", &made, NULL, &b.err);
    status = lp_recorder_finish(b.recorder, &t, &b.err);
done:
    lp_mirror_close(b.mirror);
    lp_recorder_close(b.recorder);
    lp_trace_close(t);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lp_checkpoint *c = some_checkpoint();
    int64_t failures = 0;
    for (int64_t n = 1;; n++) {
        failing_alloc f = {.fail_at = n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_resize};
        const lp_platform platform = {.alloc = &alloc};
        const lp_status status = record_all(c, &platform);
        assert_int_equal(f.live, 0);
        if (f.calls < n)
            break;
        failures += status != LP_OK;
        assert_true(n < 100000);
    }
    assert_true(failures > 50);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_is_its_storage_and_strides),
        cmocka_unit_test(negative_steps_and_moved_elements),
        cmocka_unit_test(a_cast_is_one_record_or_a_derives_input),
        cmocka_unit_test(misuse_refuses_its_name_only),
        cmocka_unit_test(a_replaced_destination_is_what_it_is_now),
        cmocka_unit_test(destinations_of_one_storage_are_told_apart),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
