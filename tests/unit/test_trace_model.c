/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a trace that is built: how calls become rows, which of them win, and when an order is kept. */
#include "model_testing.h"

/* ---- records ---- */

static void offsets_are_split_from_a_shared_map(void **state)
{
    (void)state;
    lp_trace *t = small_trace(3, 100, NULL);
    const uint32_t d = add_dest(t, "d", 100);
    for (int64_t e = 0; e < 3; e++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", (int)e);
        const lp_map *map = byte_map(5, 7 + 30 * e, 2, 4, 10, 5); /* 4 runs of 2 bytes */
        assert_ok(lp_trace_add_record(
            t, &(lp_record){.name = name_index(t, name), .dest = d, .map = map, .provenance = LP_NONE}, ERR));
        lp_map_free(map, NULL);
    }
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 3);
    for (uint32_t e = 0; e < 3; e++) {
        const lp_record *r = &rows->record[e];
        assert_ptr_equal(r->map, rows->record[0].map);
        assert_int_equal(r->name, e);
        assert_int_equal(r->src_off, 5);
        assert_int_equal(r->dst_off, 7 + 30 * e);
        assert_int_equal(r->kind, LP_KIND_COPY);
        assert_int_equal(r->seq, 0);
    }
    const lp_map *map = rows->record[0].map;
    assert_int_equal(map->nbox, 1);
    assert_int_equal(map->box[0].src_off, 0);
    assert_int_equal(map->box[0].dst_off, 0);
    assert_int_equal(map->dst_hi, 17);
    assert_int_equal(map->src_hi, 32);
    assert_int_equal(map->dst_bytes, 8);
    lp_trace_close(t);
}

static void maps_of_several_boxes_are_shared_too(void **state)
{
    (void)state;
    lp_trace *t = small_trace(5, 100, NULL);
    const uint32_t d = add_dest(t, "d", 100);
    for (int64_t e = 0; e < 5; e++) { /* n4 differs from the others in one source offset */
        const lp_mode backwards = {3, -2, 1};
        const lp_box box[] = {{.src_off = 9 + e, .dst_off = 20 * e, .run = 1, .rank = 1, .mode = &backwards},
                              {.src_off = 50 + e + (e == 4), .dst_off = 20 * e + 5, .run = 3}};
        const lp_map *map;
        assert_ok(lp_map_from_boxes(&map, 1, 1, 2, box, NULL, ERR));
        char name[8];
        snprintf(name, sizeof name, "n%d", (int)e);
        assert_ok(lp_trace_add_record(
            t, &(lp_record){.name = name_index(t, name), .dest = d, .map = map, .provenance = LP_NONE}, ERR));
        lp_map_free(map, NULL);
    }
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(t->shared->maps.count, 2);
    for (uint32_t e = 0; e < 5; e++) {
        const lp_record *r = &rows->record[e];
        assert_ptr_equal(r->map, rows->record[e == 4 ? 4 : 0].map);
        assert_int_equal(r->src_off, 9 + e);
        assert_int_equal(r->dst_off, 20 * e);
        assert_int_equal(r->map->src_lo, -4);
        assert_int_equal(r->map->dst_hi, 8);
        assert_int_equal(r->map->box[1].src_off, e == 4 ? 42 : 41);
    }
    lp_trace_close(t);
}

static void rows_are_sorted(void **state)
{
    (void)state;
    lp_trace *t = small_trace(12, 10, NULL);
    const uint32_t z = add_dest(t, "z", 20), a = add_dest(t, "a", 20);
    add_copy(t, "n9", z, 0, 10, 10);
    add_copy(t, "n10", a, 0, 0, 10);
    add_copy(t, "n10", z, 0, 0, 10);
    const lp_rows *rows = sealed_rows(t);
    assert_string_equal(rows->dest[0].name, "a");
    assert_string_equal(rows->dest[1].name, "z");
    assert_string_equal(rows->dest[1].storage, "z");
    assert_int_equal(rows->nrecord, 3);
    /* n10 comes before n9 in the order of bytes */
    assert_int_equal(rows->record[0].name, name_index(t, "n10"));
    assert_int_equal(rows->record[0].dest, 0);
    assert_int_equal(rows->record[1].dest, 1);
    assert_int_equal(rows->record[2].name, name_index(t, "n9"));
    lp_trace_close(t);
}

static void a_copy_is_one_record_however_it_is_cut(void **state)
{
    (void)state;
    uint8_t expected[32] = {0};
    uint64_t random = 1;
    for (int round = 0; round < 50; round++) {
        lp_trace *t = small_trace(2, 64, NULL);
        const uint32_t d = add_dest(t, "d", 64);
        bool done[64] = {false};
        int64_t left = round == 0 ? 0 : 64;
        if (round == 0)
            add_copy(t, "n0", d, 0, 0, 64);
        while (left > 0) { /* runs of random length at random places, until all is written */
            const int64_t at = random_below(&random, 64);
            int64_t n = 0;
            while (at + n < 64 && n < 9 && !done[at + n])
                done[at + n++] = true;
            if (n > 0)
                add_copy(t, "n0", d, at, at, n);
            left -= n;
        }
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nrecord, 1);
        assert_int_equal(rows->record[0].map->dst_bytes, 64);
        assert_int_equal(rows->record[0].map->nbox, 1);
        if (round == 0)
            memcpy(expected, rows->digest, 32);
        assert_memory_equal(rows->digest, expected, 32);
        lp_trace_close(t);
    }
}

static void a_later_write_of_a_name_wins(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 100, NULL);
    const uint32_t d = add_dest(t, "d", 10);
    add_copy(t, "n0", d, 0, 0, 10);
    add_copy(t, "n0", d, 50, 3, 4);
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 1);
    const lp_map *map = rows->record[0].map;
    assert_int_equal(map->nbox, 3);
    assert_int_equal(map->box[1].src_off, 50);
    assert_int_equal(map->box[1].dst_off, 3);
    assert_int_equal(map->box[1].run, 4);
    assert_int_equal(map->box[2].src_off, 7);
    assert_int_equal(rows->record[0].seq, 0);
    lp_trace_close(t);
}

static void a_fill_and_a_copy_of_a_name_trim_each_other(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 100, NULL);
    const uint32_t d = add_dest(t, "d", 10), e = add_dest(t, "e", 10);
    add_fill(t, 0, d, 0, 10, 7); /* zero first, then load the part that is there */
    add_copy(t, "n0", d, 0, 0, 6);
    add_copy(t, "n0", e, 0, 0, 10); /* the other way round */
    add_fill(t, 0, e, 6, 4, 7);
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 4);
    for (uint32_t i = 0; i < 4; i += 2) {
        assert_int_equal(rows->record[i].kind, LP_KIND_COPY);
        assert_int_equal(rows->record[i].dst_off, 0);
        assert_int_equal(rows->record[i].map->dst_bytes, 6);
        assert_int_equal(rows->record[i + 1].kind, LP_KIND_FILL);
        assert_int_equal(rows->record[i + 1].dst_off, 6);
        assert_int_equal(rows->record[i + 1].map->dst_bytes, 4);
        assert_int_equal(rows->record[i + 1].fill_bits, 7);
    }
    lp_trace_close(t);
}

static void begin_fills_give_way_to_everything(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        lp_trace *t = small_trace(2, 100, NULL);
        const uint32_t d = add_dest(t, "d", 10);
        if (!late)
            add_fill(t, LP_NAME_BEGIN, d, 0, 10, 0);
        add_copy(t, "n0", d, 0, 2, 3);
        add_copy(t, "n1", d, 0, 5, 3);
        if (late)
            add_fill(t, LP_NAME_BEGIN, d, 0, 10, 0);
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nrecord, 3);
        assert_int_equal(rows->record[2].name, LP_NAME_BEGIN);
        assert_int_equal(rows->record[2].dst_off, 0);
        assert_int_equal(rows->record[2].map->nbox, 1); /* bytes 0, 1 and 8, 9: two runs at one step */
        assert_int_equal(rows->record[2].map->box[0].run, 2);
        assert_int_equal(rows->record[2].map->box[0].mode[0].dst_stride, 8);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(rows->record[i].seq, 0);
        lp_trace_close(t);
    }
}

static void only_overlaps_between_names_get_a_seq(void **state)
{
    (void)state;
    lp_trace *t = small_trace(4, 100, NULL);
    const uint32_t d = add_dest(t, "d", 40);
    add_copy(t, "n3", d, 0, 0, 10);
    add_copy(t, "n2", d, 0, 30, 10); /* alone */
    add_copy(t, "n1", d, 0, 9, 10);  /* over n3 */
    add_copy(t, "n0", d, 0, 18, 10); /* over n1 only */
    const lp_rows *rows = sealed_rows(t);
    const uint32_t expected[] = {3, 2, 0, 1};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rows->record[i].seq, expected[i]);
    lp_trace_close(t);
}

static void calls_on_both_sides_of_an_overlap_stay_apart(void **state)
{
    (void)state;
    lp_trace *t = small_trace(2, 100, NULL);
    const uint32_t d = add_dest(t, "d", 40);
    add_copy(t, "n0", d, 0, 0, 10);
    add_copy(t, "n0", d, 30, 30, 10); /* overlaps nothing */
    add_copy(t, "n1", d, 0, 5, 10);   /* over the first call */
    add_copy(t, "n0", d, 50, 12, 6);  /* over n1 */
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 4);
    const struct {
        int64_t dst_off;
        uint32_t seq;
    } expected[] = {{0, 1}, {12, 3}, {30, 0}, {5, 2}};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rows->record[i].dst_off, expected[i].dst_off);
        assert_int_equal(rows->record[i].seq, expected[i].seq);
    }
    lp_trace_close(t);
}

/* ---- shared storages ---- */

static uint32_t add_tied(lp_trace *t, const char *name, int64_t offset)
{
    uint32_t index;
    const int64_t bytes = 10, stride = 1;
    const lp_destination dest = {.name = name,
                                 .dtype = LP_U8,
                                 .ndim = 1,
                                 .shape = &bytes,
                                 .stride = &stride,
                                 .storage = "shared",
                                 .storage_bytes = 20,
                                 .offset = offset,
                                 .flags = LP_DEST_TIED};
    assert_ok(lp_trace_add_destination(t, &dest, &index, ERR));
    return index;
}

static void tied_destinations_are_judged_by_storage(void **state)
{
    (void)state;
    lp_trace *t = small_trace(3, 10, NULL);
    const uint32_t a = add_tied(t, "a", 0), b = add_tied(t, "b", 0), c = add_tied(t, "c", 5);
    add_copy(t, "n0", a, 0, 0, 10); /* tied weights: one name, the same bytes, two destinations */
    add_copy(t, "n0", b, 0, 0, 10);
    add_copy(t, "n1", c, 0, 5, 5); /* bytes 10..15 of the storage: free */
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rows->record[i].seq, 0);
    lp_trace_close(t);

    t = small_trace(3, 10, NULL);
    const uint32_t d = add_tied(t, "a", 0), e = add_tied(t, "b", 5);
    add_copy(t, "n1", d, 0, 0, 10);
    add_copy(t, "n0", e, 0, 0, 10); /* bytes 5..15: over n1 */
    rows = sealed_rows(t);
    assert_int_equal(rows->record[0].seq, 2);
    assert_int_equal(rows->record[1].seq, 1);
    lp_trace_close(t);

    t = small_trace(3, 10, NULL);
    const uint32_t f = add_tied(t, "a", 0), g = add_tied(t, "b", 0);
    add_copy(t, "n0", f, 0, 0, 5);
    add_copy(t, "n0", g, 5, 0, 5); /* one name, other bytes: the order decides */
    rows = sealed_rows(t);
    assert_int_equal(rows->record[0].seq, 1);
    assert_int_equal(rows->record[1].seq, 2);
    lp_trace_close(t);
}

static void two_sizes_of_one_storage_are_refused(void **state)
{
    (void)state;
    lp_error err;
    lp_trace *t = small_trace(1, 10, NULL);
    add_tied(t, "a", 0);
    const int64_t bytes = 10, stride = 1;
    const lp_destination dest = {.name = "b",
                                 .dtype = LP_U8,
                                 .ndim = 1,
                                 .shape = &bytes,
                                 .stride = &stride,
                                 .storage = "shared",
                                 .storage_bytes = 21};
    assert_ok(lp_trace_add_destination(t, &dest, NULL, ERR));
    assert_int_equal(lp_trace_seal(t, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "destinations 'a' and 'b' give storage 'shared' two sizes");
    assert_int_equal(lp_trace_seal(t, &err), LP_E_MISUSE);
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_are_split_from_a_shared_map),
        cmocka_unit_test(maps_of_several_boxes_are_shared_too),
        cmocka_unit_test(rows_are_sorted),
        cmocka_unit_test(a_copy_is_one_record_however_it_is_cut),
        cmocka_unit_test(a_later_write_of_a_name_wins),
        cmocka_unit_test(a_fill_and_a_copy_of_a_name_trim_each_other),
        cmocka_unit_test(begin_fills_give_way_to_everything),
        cmocka_unit_test(only_overlaps_between_names_get_a_seq),
        cmocka_unit_test(calls_on_both_sides_of_an_overlap_stay_apart),
        cmocka_unit_test(tied_destinations_are_judged_by_storage),
        cmocka_unit_test(two_sizes_of_one_storage_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
