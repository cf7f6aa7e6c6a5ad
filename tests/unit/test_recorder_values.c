/* SPDX-License-Identifier: Apache-2.0 */
/* Value operations: the expressions that derives keep, and what is computed in place. */
#include "test_recorder_run.h"

#include <math.h>

static lp_checkpoint *some_values(void)
{
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "decay", LP_BF16, SHAPE(4, 2));
    add_tensor(c, "norm", LP_F32, SHAPE(6));
    add_tensor(c, "other", LP_F32, SHAPE(6));
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "scale.%d", i);
        add_tensor(c, name, LP_F32, 0, NULL);
    }
    seal_checkpoint(c);
    return c;
}

/* ---- a small evaluator: inputs by number, F32 only ---- */

typedef struct gathering {
    const uint8_t *memory;
    const char *name; /* of a staged input */
    uint8_t *out;
} gathering;

static int gather_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    gathering *g = context;
    for (int64_t i = 0; i < count; i++)
        g->out[dst_off + i] = g->name != NULL ? source_byte(g->name, src_off + i) : g->memory[src_off + i];
    return 0;
}

static void read_input(run *x, const lp_derive_input *in, float *out)
{
    uint8_t bytes[256];
    gathering g = {.out = bytes};
    assert_true(in->count <= 32);
    if (in->staged) {
        g.name = lp_checkpoint_at(lp_trace_checkpoint(x->trace), in->index)->name;
    } else {
        const lp_destination *d = &x->rows->dest[in->index];
        g.memory = storage_of(x, d)->byte + d->offset;
    }
    lp_map_walk(in->map, gather_run, &g);
    if (in->dtype == LP_F32)
        memcpy(out, bytes, (size_t)in->count * sizeof *out);
    else
        assert_int_equal(lp_cast_elements(in->dtype, bytes, LP_F32, out, in->count), LP_OK);
}

/* The last node's value; casts are taken as exact. */
static void evaluate(run *x, const lp_derive *d, float *out)
{
    float *value = calloc(d->nnode, 32 * sizeof *value);
    for (uint32_t n = 0; n < d->nnode; n++) {
        const lp_node *node = &d->node[n];
        float *v = value + 32 * n;
        const float *a = value + 32 * node->arg[0], *b = value + 32 * node->arg[1];
        const int64_t na = d->node[node->arg[0]].count, nb = d->node[node->arg[1]].count;
        const int64_t group = node->bits == 0 ? na : (int64_t)node->bits;
        if (node->op == LP_OP_INPUT) {
            read_input(x, &d->input[node->arg[0]], v);
            continue;
        }
        if (node->op == LP_OP_CONST) {
            memcpy(v, &node->bits, sizeof *v);
            continue;
        }
        for (int64_t i = 0; i < node->count; i++) {
            const float p = a[na == 1 ? 0 : i], q = b[nb == 1 ? 0 : i];
            switch ((int)node->op) {
            case LP_OP_CAST:
                v[i] = p;
                break;
            case LP_OP_MAX:
                v[i] = a[i * group];
                for (int64_t k = 1; k < group; k++)
                    v[i] = fmaxf(v[i], a[i * group + k]);
                break;
            case LP_OP_NEG:
                v[i] = -p;
                break;
            case LP_OP_EXP:
                v[i] = expf(p);
                break;
            case LP_OP_ADD:
                v[i] = p + q;
                break;
            case LP_OP_MUL:
                v[i] = p * q;
                break;
            case LP_OP_OR_IF_ZERO:
                v[i] = p == 0 ? q : p;
                break;
            default:
                fail_msg("operation %d", node->op);
            }
        }
    }
    memcpy(out, value + 32 * (d->nnode - 1), 32 * sizeof *out);
    free(value);
}

static const lp_derive *derive_of(const run *x, const char *dest)
{
    for (uint32_t i = 0; i < x->rows->nderive; i++) {
        if (x->rows->derive[i].dest != LP_NONE && strcmp(x->rows->dest[x->rows->derive[i].dest].name, dest) == 0)
            return &x->rows->derive[i];
    }
    fail_msg("no derive of '%s'", dest);
    return NULL;
}

static float source_f32(const char *name, int64_t element)
{
    uint8_t bytes[4];
    float value;
    for (int i = 0; i < 4; i++)
        bytes[i] = source_byte(name, 4 * element + i);
    memcpy(&value, bytes, sizeof value);
    return value;
}

static float source_bf16(const char *name, int64_t element)
{
    const uint32_t bits = (uint32_t)source_byte(name, 2 * element) << 16 | (uint32_t)source_byte(name, 2 * element + 1)
                                                                               << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void assert_float(float seen, float wanted)
{
    if (!(seen == wanted || (isnan(seen) && isnan(wanted))))
        fail_msg("%g, wanted %g", (double)seen, (double)wanted);
}

/* ---- derives ---- */

static void maximum_of_a_destination(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor scales = lp_declare(r, "scales", LP_F32, 1, (int64_t[]){4});
    lp_tensor result = lp_declare(r, "result", LP_F32, 0, NULL);
    lp_derive(r, result, lp_or_if_zero(lp_max(scales), 1.0f)); /* declared before its inputs are loaded */
    for (int i = 0; i < 4; i++)
        lp_copy(lp_select(scales, 0, i), lp_source(r, lp_name(r, "scale.%d", i)));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    const lp_derive *d = derive_of(&x, "result");
    assert_int_equal(d->ninput, 1);
    assert_false(d->input[0].staged);
    assert_int_equal(d->nnode, 4);
    assert_int_equal(d->node[d->nnode - 1].op, LP_OP_OR_IF_ZERO);
    float out[32], wanted = source_f32("scale.0", 0);
    for (int i = 1; i < 4; i++)
        wanted = fmaxf(wanted, source_f32(lp_checkpoint_at(c, lp_checkpoint_find(c, "scale.0") + i)->name, 0));
    evaluate(&x, d, out);
    assert_float(out[0], wanted);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void check_of_two_rows(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor scales = lp_declare(r, "scales", LP_F32, 2, (int64_t[]){2, 2});
    for (int i = 0; i < 4; i++)
        lp_copy(lp_select(lp_select(scales, 0, i / 2), 0, i % 2), lp_source(r, lp_name(r, "scale.%d", i)));
    lp_require_close(r, lp_select(scales, 0, 0), lp_select(scales, 0, 1), 1e-5f, "they differ for expert {index}");
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nderive, 1);
    const lp_derive *d = &x.rows->derive[0];
    assert_int_equal(d->dest, LP_NONE);
    assert_null(d->map);
    assert_string_equal(d->error_text, "they differ for expert {index}");
    assert_int_equal(d->node[d->nnode - 1].op, LP_OP_ALL_CLOSE);
    assert_int_equal(d->node[d->nnode - 1].bits, lp_bits_f32(1e-5f));
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void reduction_over_a_dimension_and_broadcast(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor decay = lp_source(r, "decay"); /* [4, 2] */
    lp_copy(lp_declare(r, "columns", LP_F32, 1, (int64_t[]){2}), lp_max_over(decay, 0));
    lp_tensor norm = lp_reshape(lp_source(r, "norm"), 2, (int64_t[]){3, 2});
    lp_copy(lp_declare(r, "sum", LP_F32, 2, (int64_t[]){3, 2}), lp_plus(norm, lp_select(decay, 0, 1)));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    float out[32];
    evaluate(&x, derive_of(&x, "columns"), out);
    for (int64_t column = 0; column < 2; column++) {
        float wanted = source_bf16("decay", column);
        for (int64_t row = 1; row < 4; row++)
            wanted = fmaxf(wanted, source_bf16("decay", 2 * row + column));
        assert_float(out[column], wanted);
    }
    evaluate(&x, derive_of(&x, "sum"), out);
    for (int64_t i = 0; i < 6; i++)
        assert_float(out[i], source_f32("norm", i) + source_bf16("decay", 2 + i % 2));
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- in place ---- */

/* Mamba's decay: copied with a cast, then x = -exp(x). Replayed, it must read the checkpoint, never its own output. */
static void copy_then_negated_exponential(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){2, 4});
    lp_copy(d, lp_t(lp_source(r, "decay")));
    lp_copy(d, lp_neg(lp_exp(d)));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nrecord, 0);
    assert_int_equal(x.rows->nderive, 1);
    const lp_derive *derive = derive_of(&x, "d");
    assert_int_equal(derive->ninput, 1);
    assert_true(derive->input[0].staged);
    assert_int_equal(derive->input[0].dtype, LP_BF16);
    float out[32];
    evaluate(&x, derive, out);
    for (int64_t i = 0; i < 8; i++)
        assert_float(out[i], -expf(source_bf16("decay", i % 4 * 2 + i / 4)));
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* Two steps in place, and a part of the destination only. */
static void two_steps_in_place(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor d = lp_declare(r, "d", LP_F32, 1, (int64_t[]){6});
    lp_copy(d, lp_source(r, "norm"));
    lp_tensor half = lp_narrow(d, 0, 3, 3);
    lp_copy(half, lp_plus(half, lp_constant(r, 1.0f)));
    lp_copy(half, lp_times(half, lp_constant(r, 2.0f)));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nderive, 1);
    assert_int_equal(x.rows->nrecord, 1);
    assert_source(&x, "d", 0, "norm", 0, 12);
    float out[32];
    evaluate(&x, derive_of(&x, "d"), out);
    for (int64_t i = 0; i < 3; i++)
        assert_float(out[i], (source_f32("norm", 3 + i) + 1.0f) * 2.0f);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* What no derive can say in place is a refusal of the names concerned, never a wrong value. */
static void in_place_over_several_names_is_refused(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){2, 6});
    lp_copy(lp_select(d, 0, 0), lp_source(r, "norm"));
    lp_copy(lp_select(d, 0, 1), lp_source(r, "other"));
    lp_copy(d, lp_exp(d));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_non_null(refusal_of(&x, "norm"));
    assert_non_null(refusal_of(&x, "other"));
    assert_int_equal(x.rows->nderive, 0);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void value_of_bytes_that_are_overwritten_since(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor d = lp_declare(r, "d", LP_F32, 1, (int64_t[]){6});
    lp_copy(d, lp_source(r, "norm"));
    lp_tensor old = lp_exp(d);
    lp_copy(d, lp_source(r, "other"));
    lp_copy(d, old);
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nrefusal, 0);
    const lp_derive *derive = derive_of(&x, "d");
    assert_int_equal(derive->ninput, 1);
    assert_true(derive->input[0].staged);
    assert_int_equal(derive->input[0].index, lp_checkpoint_find(c, "norm"));
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A refused operand refuses what is computed from it, and where that would have gone is known to be a fallback. */
static void values_of_refused_operands_hold_their_place(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "complex", LP_C64, SHAPE(6));
    add_tensor(c, "norm", LP_F32, SHAPE(6));
    seal_checkpoint(c);
    lp_recorder *r = open_recorder(c);
    lp_tensor bad = lp_source(r, "complex");
    lp_copy(lp_declare(r, "one", LP_F32, 1, (int64_t[]){6}), lp_exp(lp_plus(lp_source(r, "norm"), bad)));
    lp_derive(r, lp_declare(r, "two", LP_F32, 0, NULL), lp_max(bad));
    lp_copy(lp_declare(r, "three", LP_BF16, 1, (int64_t[]){3}), lp_narrow(lp_neg(bad), 0, 0, 3));
    lp_copy(lp_declare(r, "four", LP_F32, 1, (int64_t[]){6}), lp_source(r, "norm"));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_non_null(refusal_of(&x, "complex"));
    assert_null(refusal_of(&x, "norm"));
    assert_int_equal(x.rows->nderive, 0);
    assert_int_equal(x.rows->nrecord, 1);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void value_into_another_dtype_is_an_implicit_cast(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_copy(lp_declare(r, "d", LP_BF16, 1, (int64_t[]){6}), lp_neg(lp_source(r, "norm")));
    lp_copy(lp_declare(r, "e", LP_BF16, 1, (int64_t[]){6}), lp_to(lp_neg(lp_source(r, "norm")), LP_BF16));
    lp_copy(lp_declare(r, "f", LP_BF16, 1, (int64_t[]){6}), lp_to(lp_to(lp_source(r, "norm"), LP_F16), LP_BF16));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(lp_trace_provenance(t, derive_of(&x, "d")->provenance)->flags, LP_PROV_IMPLICIT_CAST);
    assert_int_equal(lp_trace_provenance(t, derive_of(&x, "e")->provenance)->flags, 0);
    const lp_derive *twice = derive_of(&x, "f");
    assert_int_equal(twice->nnode, 3);
    assert_int_equal(twice->node[1].dtype, LP_F16);
    assert_int_equal(twice->node[2].dtype, LP_BF16);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void long_expressions_are_fine(void **state)
{
    (void)state;
    lp_checkpoint *c = some_values();
    lp_recorder *r = open_recorder(c);
    lp_tensor sum = lp_source(r, "norm");
    for (int i = 0; i < 20000; i++)
        sum = lp_plus(sum, lp_constant(r, 1.0f));
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){6}), sum);
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(derive_of(&x, "d")->nnode, 40001);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maximum_of_a_destination),
        cmocka_unit_test(check_of_two_rows),
        cmocka_unit_test(reduction_over_a_dimension_and_broadcast),
        cmocka_unit_test(copy_then_negated_exponential),
        cmocka_unit_test(two_steps_in_place),
        cmocka_unit_test(in_place_over_several_names_is_refused),
        cmocka_unit_test(value_of_bytes_that_are_overwritten_since),
        cmocka_unit_test(values_of_refused_operands_hold_their_place),
        cmocka_unit_test(value_into_another_dtype_is_an_implicit_cast),
        cmocka_unit_test(long_expressions_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
