/* SPDX-License-Identifier: Apache-2.0 */
/* Identities: the vector of docs/identities.md, what digests and structure keys depend on, and what makes a trace
 * stale. */
#include "vector_trace.h"

static void assert_hex(const uint8_t digest[32], const char *hex)
{
    char text[65];
    lp_format_hex(text, digest, 32);
    assert_string_equal(text, hex);
}

static void the_published_vector_holds(void **state)
{
    (void)state;
    lp_trace *t = vector_trace(&(variant){0});
    const lp_rows *rows;
    uint8_t digest[32];
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_int_equal(rows->nderive, 1);
    assert_ok(lp_derive_digest(t, rows, &rows->derive[0], digest, ERR));
    assert_hex(digest, "6386465dd84a55367485c9191921c8ac79bdc317c713be73b0ca5b5b8d61d127");
    assert_hex(rows->digest, "d6fdeb177447970bd59415ee62f145902a196222f95ae80e7a2db2d1a87f0ccf");
    assert_ok(lp_trace_set_digest(t, digest, ERR));
    assert_hex(digest, "8fca547c256abe98817f133d03b22b9430dcf27acc4c6e95e70dea8633d2e7df");
    assert_ok(lp_trace_structure_key(t, digest, ERR));
    assert_hex(digest, "c84f595acf6be681d92d6155e8fc71b92815f50f9746b9f5726cbe172a312b55");
    lp_trace_close(t);
}

/* ---- what identities depend on ---- */

static void digests_of(const variant *v, uint8_t plan[32], uint8_t key[32])
{
    lp_trace *t = vector_trace(v);
    const lp_rows *rows;
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    memcpy(plan, rows->digest, 32);
    assert_ok(lp_trace_structure_key(t, key, ERR));
    lp_trace_close(t);
}

static void identities_see_what_matters_and_nothing_else(void **state)
{
    (void)state;
    const struct {
        const char *what;
        variant v;
        bool same_plan, same_key;
    } cases[] = {
        {"destination name", {.other_dest_name = true}, false, true},
        {"commit group", {.other_group = true}, false, true},
        {"layout version", {.other_layout_version = true}, false, false},
        {"source bytes", {.other_source = true}, false, true},
        {"destination bytes", {.other_offset = true}, false, true},
        {"fill pattern", {.other_fill = true}, false, true},
        {"derive constant", {.other_constant = true}, false, true},
        {"group of all elements by number", {.group_by_number = true}, true, true},
        {"a check", {.check = true}, false, true},
        {"refused region", {.other_refusal = true}, false, true},
        {"reason of a refusal", {.refusal_reason = true}, true, true},
        {"loader file and line", {.other_place = true}, true, true},
        {"target", {.other_target = true}, true, false},
        {"shape of a tensor", {.other_shape = true}, true, false},
        {"order of independent calls", {.reversed_calls = true}, true, true},
    };
    uint8_t plan[32], key[32], other_plan[32], other_key[32];
    digests_of(&(variant){0}, plan, key);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        digests_of(&cases[i].v, other_plan, other_key);
        if ((memcmp(plan, other_plan, 32) == 0) != cases[i].same_plan ||
            (memcmp(key, other_key, 32) == 0) != cases[i].same_key)
            fail_msg("wrong for a change of: %s", cases[i].what);
    }
}

static void the_order_of_overlapping_names_is_structure(void **state)
{
    (void)state;
    uint8_t key[4][32], plan[4][32];
    for (int i = 0; i < 4; i++) {
        lp_trace *t = small_trace(4, 100, NULL);
        const uint32_t d = add_dest(t, "d", 40);
        const char *first = i & 1 ? "n1" : "n0", *second = i & 1 ? "n0" : "n1";
        if (i & 2) /* n2 is free: its place among the calls is nothing */
            add_copy(t, "n2", d, 0, 20, 10);
        add_copy(t, first, d, 0, 0, 10);
        add_copy(t, second, d, 0, 5, 10);
        if (!(i & 2))
            add_copy(t, "n2", d, 0, 20, 10);
        memcpy(plan[i], sealed_rows(t)->digest, 32);
        assert_ok(lp_trace_structure_key(t, key[i], ERR));
        lp_trace_close(t);
    }
    assert_memory_equal(key[0], key[2], 32);
    assert_memory_equal(plan[0], plan[2], 32);
    assert_memory_equal(key[1], key[3], 32);
    assert_memory_not_equal(key[0], key[1], 32);
    assert_memory_not_equal(plan[0], plan[1], 32);
}

static void the_set_digest_knows_which_rank_does_what(void **state)
{
    (void)state;
    uint8_t digest[3][32];
    for (int i = 0; i < 3; i++) {
        lp_checkpoint *c = small_checkpoint(2, 10);
        lp_trace *t;
        assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.layout = {.tp = 2}}, NULL, ERR));
        lp_checkpoint_close(c);
        for (int k = 0; k < 2; k++) {
            const int rank = i == 1 ? 1 - k : k; /* 1: the same in another order of calls; 2: the ranks swapped */
            assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = rank}, ERR));
            add_copy(t, (i == 2 ? 1 - rank : rank) == 0 ? "n0" : "n1", add_dest(t, "d", 10), 0, 0, 10);
        }
        assert_ok(lp_trace_seal(t, ERR));
        assert_ok(lp_trace_set_digest(t, digest[i], ERR));
        lp_trace_close(t);
    }
    assert_memory_equal(digest[0], digest[1], 32);
    assert_memory_not_equal(digest[0], digest[2], 32);
}

/* ---- staleness ---- */

typedef struct tensor_row {
    const char *name;
    lp_dtype dtype;
    int32_t ndim;
    int64_t shape[2];
} tensor_row;

static lp_checkpoint *checkpoint_of(const tensor_row *row, int count)
{
    lp_checkpoint *c;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int i = 0; i < count; i++)
        assert_ok(lp_checkpoint_add(c,
                                    &(lp_checkpoint_tensor){.name = row[i].name,
                                                            .dtype = row[i].dtype,
                                                            .ndim = row[i].ndim,
                                                            .shape = row[i].shape,
                                                            .file = -1,
                                                            .file_off = -1},
                                    ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    return c;
}

static void match_names_the_first_difference(void **state)
{
    (void)state;
    const tensor_row recorded[] = {{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
                                   {"norm", LP_F32, 1, {4096}},
                                   {"z", LP_F32, 0, {0}}};
    const struct {
        tensor_row row[4];
        int count;
        const char *text;
    } cases[] = {
        {{{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
          {"norm", LP_F32, 1, {4096}},
          {"z", LP_F32, 0, {0}}},
         3,
         NULL},
        {{{"layers.3.mlp.gate_proj.weight", LP_BF16, 2, {4096, 4096}},
          {"norm", LP_F32, 1, {4096}},
          {"z", LP_F32, 0, {0}}},
         3,
         "'layers.3.mlp.gate_proj.weight' is BF16 [4096, 4096], was F8_E4M3 [4096, 4096]"},
        {{{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
          {"norm", LP_F32, 1, {4097}},
          {"z", LP_F32, 0, {0}}},
         3,
         "'norm' is F32 [4097], was F32 [4096]"},
        {{{"norm", LP_F32, 1, {4096}}, {"z", LP_F32, 0, {0}}},
         2,
         "'layers.3.mlp.gate_proj.weight' is not there, was F8_E4M3 [4096, 4096]"},
        {{{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
          {"lm_head", LP_BF16, 1, {2}},
          {"norm", LP_F32, 1, {4096}},
          {"z", LP_F32, 0, {0}}},
         4,
         "'lm_head' is BF16 [2], was not there"},
        {{{"norm", LP_BF16, 1, {4096}}},
         1,
         "'layers.3.mlp.gate_proj.weight' is not there, was F8_E4M3 [4096, 4096] (and 2 other differences)"},
        {{{NULL, LP_U8, 0, {0}}},
         0,
         "'layers.3.mlp.gate_proj.weight' is not there, was F8_E4M3 [4096, 4096] (and 2 other differences)"},
    };
    lp_checkpoint *c = checkpoint_of(recorded, 3);
    lp_trace *t;
    assert_ok(lp_trace_new(&t, c, NULL, NULL, ERR));
    lp_checkpoint_close(c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_error err = {0};
        c = checkpoint_of(cases[i].row, cases[i].count);
        const lp_status status = lp_trace_match(t, c, &err);
        lp_checkpoint_close(c);
        assert_int_equal(status, cases[i].text == NULL ? LP_OK : LP_E_STALE);
        if (cases[i].text != NULL) {
            assert_string_equal(err.text, cases[i].text);
            assert_string_equal(err.hint, "record again");
        }
    }
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vector_holds),
        cmocka_unit_test(identities_see_what_matters_and_nothing_else),
        cmocka_unit_test(the_order_of_overlapping_names_is_structure),
        cmocka_unit_test(the_set_digest_knows_which_rank_does_what),
        cmocka_unit_test(match_names_the_first_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
