/* SPDX-License-Identifier: Apache-2.0 */
/* The table of derive operations and the rules for nodes, inputs and results. */
#include "model_testing.h"

static void the_table_is_consistent(void **state)
{
    (void)state;
    static const struct {
        lp_op op;
        const char *name;
        int arity;
        bool own;
    } rows[] = {{LP_OP_INPUT, "input", 0, false},
                {LP_OP_CONST, "const", 0, false},
                {LP_OP_CAST, "cast", 1, false},
                {LP_OP_MAX, "max", 1, false},
                {LP_OP_MIN, "min", 1, false},
                {LP_OP_SUM, "sum", 1, false},
                {LP_OP_ADD, "add", 2, false},
                {LP_OP_SUB, "sub", 2, false},
                {LP_OP_MUL, "mul", 2, false},
                {LP_OP_DIV, "div", 2, false},
                {LP_OP_NEG, "neg", 1, false},
                {LP_OP_RECIPROCAL, "reciprocal", 1, false},
                {LP_OP_SQRT, "sqrt", 1, false},
                {LP_OP_MAXIMUM, "maximum", 2, false},
                {LP_OP_MINIMUM, "minimum", 2, false},
                {LP_OP_ABS, "abs", 1, false},
                {LP_OP_WHERE, "where", 3, false},
                {LP_OP_OR_IF_ZERO, "or_if_zero", 2, false},
                {LP_OP_GREATER, "greater", 2, false},
                {LP_OP_EQUAL, "equal", 2, false},
                {LP_OP_EXP, "exp", 1, true},
                {LP_OP_LOG, "log", 1, true},
                {LP_OP_ALL_CLOSE, "all_close", 2, false}};
    int known = 0;
    for (int op = 0; op < 1000; op++)
        known += lp_op_arity((lp_op)op) >= 0;
    assert_int_equal(known, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(lp_op_name(rows[i].op), rows[i].name);
        assert_int_equal(lp_op_arity(rows[i].op), rows[i].arity);
        assert_int_equal(lp_op_is_own(rows[i].op), rows[i].own);
    }
    assert_string_equal(lp_op_name(LP_OP_NONE), "?");
    assert_int_equal(lp_op_arity(LP_OP_NONE), -1);
    assert_false(lp_op_is_own((lp_op)99));
}

/* Whether the second column of a row of the table names an operation. */
static bool is_named(const char *row, const char *name)
{
    const char *column = strchr(row, '|');
    char cell[64];
    column = column != NULL ? strchr(column + 1, '|') : NULL;
    if (column == NULL || sscanf(column, "| %63[^|]", cell) != 1)
        return false;
    for (char *rest = cell, *word; (word = strtok_r(rest, ", ", &rest)) != NULL;)
        if (strcmp(word, name) == 0)
            return true;
    return false;
}

static void every_operation_is_documented(void **state)
{
    (void)state;
    char *text = NULL;
    int64_t bytes;
    assert_ok(lp_read_file(NULL, TEST_CASES "/../../docs/derives.md", 1 << 20, &text, &bytes, ERR));
    const char *const table = strstr(text, "\n| number | name | value |");
    assert_non_null(table);
    for (int op = 0; op < 1000; op++) {
        if (lp_op_arity((lp_op)op) < 0)
            continue;
        bool is_told = false;
        for (const char *row = table; row != NULL && !is_told; row = strstr(row + 1, "\n| "))
            is_told = is_named(row, lp_op_name((lp_op)op));
        if (!is_told)
            fail_msg("docs/derives.md has no row for '%s'", lp_op_name((lp_op)op));
    }
    lp_release(NULL, text);
}

/* ---- nodes ---- */

#define IN(k, t, n)                                                                                                    \
    {                                                                                                                  \
        .op = LP_OP_INPUT, .dtype = (t), .arg = {(k)}, .count = (n)                                                    \
    }
#define ONE                                                                                                            \
    {                                                                                                                  \
        .op = LP_OP_CONST, .dtype = LP_F32, .bits = 0x3f800000, .count = 1                                             \
    }

typedef struct node_case {
    uint32_t nnode;
    lp_node node[5];
    const char *text; /* NULL: legal */
    bool is_check;
} node_case;

/* Inputs: 0 is F32 [6], 1 is BF16 [6], 2 is F32 [1]. */
static const node_case NODES[] = {
    {1, {IN(0, LP_F32, 6)}, NULL, false},
    {3, {IN(0, LP_F32, 6), ONE, {.op = LP_OP_MUL, .dtype = LP_F32, .arg = {0, 1}, .count = 6}}, NULL, false},
    {2, {IN(1, LP_BF16, 6), {.op = LP_OP_CAST, .dtype = LP_F32, .arg = {0}, .count = 6}}, NULL, false},
    {2, {IN(0, LP_F32, 6), {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .bits = 3, .count = 2}}, NULL, false},
    {2, {IN(0, LP_F32, 6), {.op = LP_OP_SUM, .dtype = LP_F32, .arg = {0}, .count = 1}}, NULL, false},
    {4,
     {IN(0, LP_F32, 6), IN(2, LP_F32, 1), ONE, {.op = LP_OP_WHERE, .dtype = LP_F32, .arg = {0, 1, 2}, .count = 6}},
     NULL,
     false},
    {2, {IN(0, LP_F32, 6), {.op = LP_OP_ALL_CLOSE, .arg = {0, 0}, .bits = 0x3727c5ac}}, NULL, true},
    {1, {ONE}, NULL, false},

    {1, {{.op = 5}}, "node 0 ('?') of a derive is of no known operation", false},
    {1, {IN(3, LP_F32, 6)}, "node 0 ('input') of a derive reads an input that does not exist", false},
    {1, {IN(0, LP_F32, 5)}, "node 0 ('input') of a derive has another dtype or count than its input", false},
    {1, {IN(0, LP_BF16, 6)}, "node 0 ('input') of a derive has another dtype or count than its input", false},
    {1,
     {{.op = LP_OP_CONST, .dtype = LP_F32, .bits = 1ull << 32, .count = 1}},
     "node 0 ('const') of a derive has more bits than its dtype",
     false},
    {1,
     {{.op = LP_OP_CONST, .dtype = LP_F4, .count = 1}},
     "node 0 ('const') of a derive has a dtype that is not whole bytes",
     false},
    {1,
     {{.op = LP_OP_CONST, .dtype = 999, .count = 1}},
     "node 0 ('const') of a derive has a dtype that is not whole bytes",
     false},
    {1,
     {{.op = LP_OP_CONST, .dtype = LP_F32, .count = 2}},
     "node 0 ('const') of a derive is a constant of more than one element",
     false},
    {1,
     {{.op = LP_OP_NEG, .dtype = LP_F32, .arg = {0}, .count = 1}},
     "node 0 ('neg') of a derive uses a node that does not come before it",
     false},
    {2,
     {ONE, {.op = LP_OP_ADD, .dtype = LP_F32, .arg = {0, 1}, .count = 1}},
     "node 1 ('add') of a derive uses a node that does not come before it",
     false},
    {2,
     {ONE, {.op = LP_OP_NEG, .dtype = LP_F32, .arg = {0, 0, 1}, .count = 1}},
     "node 1 ('neg') of a derive has more operands than its operation",
     false},
    {2,
     {IN(1, LP_BF16, 6), {.op = LP_OP_NEG, .dtype = LP_BF16, .arg = {0}, .count = 6}},
     "node 1 ('neg') of a derive is not over F32: cast first",
     false},
    {2,
     {IN(1, LP_BF16, 6), {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .count = 1}},
     "node 1 ('max') of a derive is not over F32: cast first",
     false},
    {2,
     {ONE, {.op = LP_OP_NEG, .dtype = LP_F64, .arg = {0}, .count = 1}},
     "node 1 ('neg') of a derive is not F32",
     false},
    {2,
     {ONE, {.op = LP_OP_CAST, .dtype = LP_C64, .arg = {0}, .count = 1}},
     "node 1 ('cast') of a derive is a cast that the cast table does not have",
     false},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_CAST, .dtype = LP_BF16, .arg = {0}, .count = 5}},
     "node 1 ('cast') of a derive has a wrong count",
     false},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .bits = 4, .count = 1}},
     "node 1 ('max') of a derive has groups that do not divide its operand",
     false},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .bits = UINT64_MAX, .count = 1}},
     "node 1 ('max') of a derive has groups that do not divide its operand",
     false},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .bits = 3, .count = 3}},
     "node 1 ('max') of a derive has a wrong count",
     false},
    {4,
     {IN(0, LP_F32, 6),
      {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .bits = 3, .count = 2},
      {.op = LP_OP_ADD, .dtype = LP_F32, .arg = {0, 1}, .count = 6}},
     "node 2 ('add') of a derive has operands of different counts",
     false},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_NEG, .dtype = LP_F32, .arg = {0}, .bits = 1, .count = 6}},
     "node 1 ('neg') of a derive has bits that mean nothing",
     false},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_ALL_CLOSE, .dtype = LP_F32, .arg = {0, 0}, .count = 6}},
     "node 1 ('all_close') of a derive is a check and has no value",
     true},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_ALL_CLOSE, .arg = {0, 0}, .bits = 1ull << 32}},
     "node 1 ('all_close') of a derive has a tolerance that is not an F32",
     true},
    {2,
     {IN(0, LP_F32, 6), {.op = LP_OP_ALL_CLOSE, .arg = {0, 0}}},
     "node 1 ('all_close') of a derive is not the last one of a check",
     false},
    {3,
     {IN(0, LP_F32, 6), {.op = LP_OP_ALL_CLOSE, .arg = {0, 0}}, IN(0, LP_F32, 6)},
     "node 1 ('all_close') of a derive is not the last one of a check",
     true},
    {1, {IN(0, LP_F32, 6)}, "a derive has neither a destination nor a check", true},
    {0, {{0}}, "a derive has 0 nodes and 3 inputs; 1 to 65536 and 0 to 4096 are legal", false},
};

static void nodes_obey_the_rules(void **state)
{
    (void)state;
    const lp_derive_input input[] = {
        {.dtype = LP_F32, .count = 6}, {.dtype = LP_BF16, .count = 6}, {.dtype = LP_F32, .count = 1}};
    for (size_t i = 0; i < sizeof NODES / sizeof *NODES; i++) {
        const node_case *c = &NODES[i];
        lp_error err = {0};
        const lp_derive derive = {
            .dest = c->is_check ? LP_NONE : 0, .nnode = c->nnode, .ninput = 3, .node = c->node, .input = input};
        const lp_status status = lp_derive_nodes_check(&derive, LP_E_ARGUMENT, &err);
        if (c->text == NULL && status != LP_OK)
            fail_msg("case %d: %s", (int)i, err.text);
        if (c->text != NULL) {
            assert_int_equal(status, LP_E_ARGUMENT);
            assert_string_equal(err.text, c->text);
        }
    }
}

static void illegal_inputs_are_refused(void **state)
{
    (void)state;
    static const lp_derive_input bad[] = {{.dtype = LP_F4, .count = 6},
                                          {.dtype = LP_DTYPE_NONE, .count = 6},
                                          {.dtype = (lp_dtype)77, .count = 6},
                                          {.dtype = LP_F32, .count = 0},
                                          {.dtype = LP_F32, .count = INT64_MAX / 2}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lp_error err;
        const lp_node node[] = {ONE};
        const lp_derive derive = {.nnode = 1, .ninput = 1, .node = node, .input = &bad[i]};
        assert_int_equal(lp_derive_nodes_check(&derive, LP_E_CORRUPT, &err), LP_E_CORRUPT);
        assert_string_equal(err.text, "input 0 of a derive has an illegal dtype or count");
    }
}

/* Whatever the numbers in a hostile file are: an answer, and no access outside (the sanitizers watch). */
static void random_nodes_are_answered(void **state)
{
    (void)state;
    uint64_t random = 42;
    static const uint16_t op[] = {1, 2, 3, 16, 17, 32, 37, 42, 43, 96, 112, 7};
    int legal = 0;
    for (int round = 0; round < 200000; round++) {
        lp_derive_input input[2];
        lp_node node[4];
        for (int i = 0; i < 2; i++)
            input[i] = (lp_derive_input){.dtype = random_below(&random, 3) ? LP_F32 : LP_BF16,
                                         .count = 1 + random_below(&random, 3)};
        const uint32_t count = 1 + (uint32_t)random_below(&random, 4);
        for (uint32_t n = 0; n < count; n++) {
            node[n] =
                (lp_node){.op = op[random_below(&random, sizeof op / sizeof *op)],
                          .dtype = random_below(&random, 4) ? LP_F32 : (uint16_t)random_below(&random, 30),
                          .arg = {(uint32_t)random_below(&random, 3), random_below(&random, 4) ? 0 : 1, 0},
                          .bits = random_below(&random, 4) ? 0 : random_next(&random) >> random_below(&random, 64),
                          .count = random_below(&random, 4)};
            if (random_below(&random, 50) == 0)
                node[n].arg[0] = UINT32_MAX;
        }
        const lp_derive derive = {
            .dest = random_below(&random, 2) ? 0 : LP_NONE, .nnode = count, .ninput = 2, .node = node, .input = input};
        legal += lp_derive_nodes_check(&derive, LP_E_CORRUPT, NULL) == LP_OK;
    }
    assert_true(legal > 100); /* the generator reaches legal ones too */
}

/* ---- whole derives ---- */

static void derives_stay_inside_their_tensors(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 16, NULL);
    const uint32_t d = add_dest(t, "d", 16);
    const lp_map *whole = byte_map(0, 0, 16, 1, 0, 0), *behind = byte_map(4, 0, 16, 1, 0, 0),
                 *hole = byte_map(0, 0, 4, 2, 8, 12), *moved = byte_map(0, 4, 16, 1, 0, 0),
                 *out = byte_map(0, 0, 16, 1, 0, 0), *outside = byte_map(0, 4, 16, 1, 0, 0),
                 *beyond = byte_map(8, 0, 16, 1, 0, 0);
    const struct {
        bool staged;
        uint32_t index;
        const lp_map *in, *out;
        const char *text;
    } cases[] = {
        {true, 0, whole, out, NULL},
        {false, d, whole, out, NULL},
        {true, 1, whole, out, "input 0 of the derive of 'd' names row 1 of 1"},
        {false, 1, whole, out, "input 0 of the derive of 'd' names row 1 of 1"},
        {true, 0, behind, out, "input 0 of the derive of 'd' lies outside 'n0'"},
        {false, d, behind, out, "input 0 of the derive of 'd' lies outside 'd'"},
        {true, 0, hole, out, "input 0 of the derive of 'd' is not gathered densely"},
        {true, 0, moved, out, "input 0 of the derive of 'd' is not gathered densely"},
        {true, 0, NULL, out, "input 0 of the derive of 'd' is not gathered densely"},
        {true, 0, whole, outside, "the derive of 'd' writes bytes outside the storage"},
        {true, 0, whole, beyond, "the derive of 'd' does not write its own result"},
        {true, 0, whole, NULL, "the derive of 'd' does not write its own result"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_error err = {0};
        const lp_node node[] = {IN(0, LP_F32, 4)};
        const lp_derive_input input = {
            .staged = cases[i].staged, .index = cases[i].index, .dtype = LP_F32, .count = 4, .map = cases[i].in};
        const lp_derive derive = {.dest = d,
                                  .nnode = 1,
                                  .ninput = 1,
                                  .node = node,
                                  .input = &input,
                                  .map = cases[i].out,
                                  .error_text = "",
                                  .provenance = LP_NONE};
        const lp_status status = lp_trace_add_derive(t, &derive, &err);
        assert_int_equal(status, cases[i].text == NULL ? LP_OK : LP_E_ARGUMENT);
        if (cases[i].text != NULL)
            assert_string_equal(err.text, cases[i].text);
    }
    const lp_map *maps[] = {whole, behind, hole, moved, out, outside, beyond};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        lp_map_free(maps[i], NULL);
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_consistent),   cmocka_unit_test(every_operation_is_documented),
        cmocka_unit_test(nodes_obey_the_rules),      cmocka_unit_test(illegal_inputs_are_refused),
        cmocka_unit_test(random_nodes_are_answered), cmocka_unit_test(derives_stay_inside_their_tensors),
    };
    return cmocka_run_group_tests_name("derive operations", tests, NULL, NULL);
}
