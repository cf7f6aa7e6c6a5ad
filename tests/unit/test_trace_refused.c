/* SPDX-License-Identifier: Apache-2.0 */
/* Names that the loader refused keep no record, nor a derive that reads them; equal derives are one. */
#include "model_testing.h"

static void a_refused_name_keeps_no_record(void **state)
{
    (void)state;
    lp_trace *t = small_trace(2, 100, NULL);
    const uint32_t d = add_dest(t, "d", 20);
    add_copy(t, "n0", d, 0, 0, 4);
    add_copy(t, "n0", d, 10, 4, 4);
    add_fill(t, 0, d, 8, 4, 1);
    add_copy(t, "n1", d, 0, 0, 12); /* would be an overlap, but n0 writes nothing */
    assert_ok(lp_trace_add_refusal(t,
                                   &(lp_refusal){.name = 0,
                                                 .dest = LP_NONE,
                                                 .operation = "aten.max",
                                                 .reason = "reads a value on the host",
                                                 .provenance = LP_NONE},
                                   ERR));
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 1);
    assert_int_equal(rows->record[0].name, 1);
    assert_int_equal(rows->record[0].seq, 0);
    /* the regions stay known: 8 bytes of the copies, 4 of the fill, and the refusal itself without a region */
    assert_int_equal(rows->nrefusal, 3);
    assert_int_equal(rows->refusal[0].dest, 0);
    assert_int_equal(rows->refusal[0].map->dst_lo, 0);
    assert_int_equal(rows->refusal[0].map->dst_bytes, 8);
    assert_int_equal(rows->refusal[0].map->src_elem, 0);
    assert_string_equal(rows->refusal[0].operation, "aten.max");
    assert_int_equal(rows->refusal[1].map->dst_lo, 8);
    assert_int_equal(rows->refusal[1].map->dst_bytes, 4);
    assert_int_equal(rows->refusal[2].dest, LP_NONE);
    lp_trace_close(t);
}

/* dest[0..3] = max of two staged names, as F32 */
static void add_staged_derive(lp_trace *t, uint32_t dest, int64_t dst_off, const char *a, const char *b)
{
    const lp_map *in = byte_map(0, 0, 4, 1, 0, 0), *out = byte_map(0, dst_off, 4, 1, 0, 0);
    const lp_derive_input input[] = {
        {.staged = true, .index = name_index(t, a), .dtype = LP_F32, .count = 1, .map = in},
        {.staged = true, .index = name_index(t, b), .dtype = LP_F32, .count = 1, .map = in}};
    const lp_node node[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .arg = {0}, .count = 1},
                            {.op = LP_OP_INPUT, .dtype = LP_F32, .arg = {1}, .count = 1},
                            {.op = LP_OP_MAXIMUM, .dtype = LP_F32, .arg = {0, 1}, .count = 1}};
    const lp_derive derive = {.dest = dest,
                              .nnode = 3,
                              .ninput = 2,
                              .node = node,
                              .input = input,
                              .map = out,
                              .error_text = "",
                              .provenance = LP_NONE};
    assert_ok(lp_trace_add_derive(t, &derive, ERR));
    lp_map_free(in, NULL);
    lp_map_free(out, NULL);
}

static void a_derive_of_a_refused_name_takes_its_other_names_along(void **state)
{
    (void)state;
    lp_trace *t = small_trace(6, 4, NULL);
    const uint32_t d = add_dest(t, "d", 16);
    add_staged_derive(t, d, 0, "n0", "n1");
    add_staged_derive(t, d, 4, "n1", "n2"); /* a chain: n0 refuses n1, n1 refuses n2 */
    add_staged_derive(t, d, 8, "n3", "n4"); /* stays */
    add_copy(t, "n2", d, 0, 12, 4);
    assert_ok(lp_trace_add_refusal(
        t, &(lp_refusal){.name = 0, .dest = LP_NONE, .operation = "aten.item", .reason = "why", .provenance = LP_NONE},
        ERR));
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nderive, 1);
    assert_int_equal(rows->nrecord, 0);
    const struct {
        uint32_t name, dest;
        int64_t lo;
        const char *operation, *reason;
    } expected[] = {{0, 0, 0, "aten.item", "why"},
                    {0, LP_NONE, -1, "aten.item", "why"},
                    {1, 0, 0, "derive", "a derive reads it together with 'n0', a fallback"},
                    {1, 0, 4, "derive", "a derive reads it together with 'n0', a fallback"},
                    {2, 0, 4, "derive", "a derive reads it together with 'n1', a fallback"},
                    {2, 0, 12, "derive", "a derive reads it together with 'n1', a fallback"}};
    assert_int_equal(rows->nrefusal, sizeof expected / sizeof *expected);
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        assert_int_equal(rows->refusal[i].name, expected[i].name);
        assert_int_equal(rows->refusal[i].dest, expected[i].dest);
        assert_int_equal(rows->refusal[i].map != NULL ? rows->refusal[i].map->dst_lo : -1, expected[i].lo);
        assert_string_equal(rows->refusal[i].operation, expected[i].operation);
        assert_string_equal(rows->refusal[i].reason, expected[i].reason);
    }
    lp_trace_close(t);
}

static void derives_are_sorted_and_equal_ones_are_one(void **state)
{
    (void)state;
    uint8_t digest[2][32];
    for (int order = 0; order < 2; order++) {
        lp_trace *t = small_trace(4, 4, NULL);
        const uint32_t b = add_dest(t, "b", 8), a = add_dest(t, "a", 8);
        add_staged_derive(t, order ? a : b, 0, "n0", "n1");
        add_staged_derive(t, order ? b : a, 0, "n0", "n1");
        add_staged_derive(t, b, 4, order ? "n2" : "n3", "n1");
        add_staged_derive(t, b, 4, order ? "n3" : "n2", "n1");
        add_staged_derive(t, b, 4, "n2", "n1"); /* again */
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nderive, 4);
        assert_int_equal(rows->derive[0].dest, 0);
        assert_int_equal(rows->derive[1].dest, 1);
        memcpy(digest[order], rows->digest, 32);
        lp_trace_close(t);
    }
    assert_memory_equal(digest[0], digest[1], 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_name_keeps_no_record),
        cmocka_unit_test(a_derive_of_a_refused_name_takes_its_other_names_along),
        cmocka_unit_test(derives_are_sorted_and_equal_ones_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
