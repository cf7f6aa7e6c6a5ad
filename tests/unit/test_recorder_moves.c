/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that only move bytes, followed through. Besides the plain cases, random chains of views and moving
 * operations are recorded and, in parallel, carried out on arrays that hold the number of every element's source byte.
 */
#include "test_recorder_run.h"

static lp_checkpoint *two_matrices(void)
{
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "a", LP_F32, SHAPE(4, 6));
    add_tensor(c, "b", LP_F32, SHAPE(4, 6));
    seal_checkpoint(c);
    return c;
}

static void assert_materialises(const run *x, bool wanted)
{
    for (uint32_t i = 0; i < x->rows->nrecord; i++) {
        const uint32_t flags = lp_trace_provenance(x->trace, x->rows->record[i].provenance)->flags;
        assert_int_equal(flags & LP_PROV_MATERIALISES, wanted ? LP_PROV_MATERIALISES : 0);
    }
}

static void clone_and_contiguous(void **state)
{
    (void)state;
    lp_checkpoint *c = two_matrices();
    lp_recorder *r = open_recorder(c);
    lp_tensor copy = lp_contiguous(lp_t(lp_clone(lp_source(r, "a"))));
    assert_int_equal(lp_size(copy, 0), 6);
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){3, 8}), lp_reshape(copy, 2, (int64_t[]){3, 8}));
    assert_int_equal(lp_contiguous(lp_source(r, "b")).kind, LP_TENSOR_SOURCE); /* nothing to do */
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_materialises(&x, true);
    for (int64_t i = 0; i < 24; i++)
        assert_source(&x, "d", 4 * i, "a", 4 * (i % 4 * 6 + i / 4), 4);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void cat_along_rows_and_columns(void **state)
{
    (void)state;
    lp_checkpoint *c = two_matrices();
    lp_recorder *r = open_recorder(c);
    lp_tensor parts[] = {lp_source(r, "a"), lp_source(r, "b")};
    lp_copy(lp_declare(r, "rows", LP_F32, 2, (int64_t[]){8, 6}), lp_cat(2, parts, 0));
    lp_copy(lp_declare(r, "columns", LP_F32, 2, (int64_t[]){12, 4}), lp_t(lp_cat(2, parts, -1)));
    lp_copy(lp_declare(r, "stack", LP_F32, 2, (int64_t[]){4, 6}), lp_select(lp_stack(2, parts, 1), 1, 1));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(records_of(&x, "a"), 2);
    assert_int_equal(records_of(&x, "b"), 3);
    assert_source(&x, "rows", 0, "a", 0, 96);
    assert_source(&x, "rows", 96, "b", 0, 96);
    for (int64_t i = 0; i < 48; i++) {
        const int64_t column = i / 4, row = i % 4;
        assert_source(&x, "columns", 4 * i, column < 6 ? "a" : "b", 4 * (row * 6 + column % 6), 4);
    }
    assert_source(&x, "stack", 0, "b", 0, 96);
    assert_materialises(&x, true);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void selected_and_repeated(void **state)
{
    (void)state;
    static const int64_t index[] = {3, 1, 2, 0, 3};
    lp_checkpoint *c = two_matrices();
    lp_recorder *r = open_recorder(c);
    lp_copy(lp_declare(r, "picked", LP_F32, 2, (int64_t[]){5, 6}), lp_index_select(lp_source(r, "a"), 0, 5, index));
    lp_copy(lp_declare(r, "inner", LP_F32, 2, (int64_t[]){4, 18}), lp_repeat_interleave(lp_source(r, "a"), 1, 3));
    lp_copy(lp_declare(r, "outer", LP_F32, 2, (int64_t[]){8, 6}), lp_repeat(lp_source(r, "b"), 0, 2));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    for (int64_t i = 0; i < 5; i++)
        assert_source(&x, "picked", 24 * i, "a", 24 * index[i], 24);
    for (int64_t i = 0; i < 72; i++)
        assert_source(&x, "inner", 4 * i, "a", i / 18 * 24 + i % 18 / 3 * 4, 4);
    assert_source(&x, "outer", 0, "b", 0, 96);
    assert_source(&x, "outer", 96, "b", 0, 96);
    for (uint32_t i = 0; i < x.rows->nrecord; i++) {
        if (strcmp(x.rows->dest[x.rows->record[i].dest].name, "picked") != 0)
            assert_int_equal(x.rows->record[i].kind, LP_KIND_REPLICATE);
    }
    assert_materialises(&x, true);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* Torch would copy here; a permuted reshape that does not cut stays a view. */
static void reshape_that_cuts_goes_through_a_temporary(void **state)
{
    (void)state;
    lp_checkpoint *c = two_matrices();
    lp_recorder *r = open_recorder(c);
    lp_tensor cut = lp_reshape(lp_narrow(lp_source(r, "a"), 1, 0, 5), 2, (int64_t[]){10, 2});
    lp_copy(lp_declare(r, "cut", LP_F32, 2, (int64_t[]){10, 2}), cut);
    lp_tensor whole = lp_reshape(lp_t(lp_source(r, "b")), 1, (int64_t[]){24});
    assert_int_equal(whole.kind, LP_TENSOR_SOURCE);
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    for (int64_t i = 0; i < 20; i++)
        assert_source(&x, "cut", 4 * i, "a", 4 * (i / 5 * 6 + i % 5), 4);
    assert_materialises(&x, true);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A buffer that is filled first and then partly written: what remains of the fill is triggered by its name. */
static void temporary_with_a_fill(void **state)
{
    (void)state;
    lp_checkpoint *c = two_matrices();
    lp_recorder *r = open_recorder(c);
    lp_tensor pad = lp_empty(r, LP_F32, 2, (int64_t[]){4, 8});
    lp_fill(pad, lp_bits_f32(3.0f), lp_source(r, "a"));
    lp_copy(lp_narrow(pad, 1, 1, 6), lp_source(r, "a"));
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){8, 4}), lp_t(pad));
    lp_copy(lp_declare(r, "h", LP_BF16, 2, (int64_t[]){4, 8}), lp_to(pad, LP_BF16));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    for (int64_t i = 0; i < 32; i++) {
        const int64_t column = i / 4, row = i % 4;
        float three;
        uint16_t bf16;
        memcpy(&three, element_of(&x, "d", (int64_t[]){column, row}), sizeof three);
        memcpy(&bf16, element_of(&x, "h", (int64_t[]){row, column}), sizeof bf16);
        if (column > 0 && column < 7) {
            assert_source(&x, "d", 4 * i, "a", 4 * (row * 6 + column - 1), 4);
        } else {
            assert_true(three == 3.0f);
            assert_int_equal(bf16, 0x4040);
        }
    }
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void bytes_that_nothing_wrote_are_not_copied(void **state)
{
    (void)state;
    lp_checkpoint *c = two_matrices();
    lp_recorder *r = open_recorder(c);
    lp_error err;
    lp_tensor pad = lp_empty(r, LP_F32, 2, (int64_t[]){4, 8});
    lp_copy(lp_narrow(pad, 1, 0, 6), lp_source(r, "a"));
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 8}), pad);
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    assert_non_null(strstr(err.text, "32 bytes that nothing was written to"));
    lp_recorder_close(r);
    lp_checkpoint_close(c);
}

/* Through a temporary, a refusal still knows where the name would have gone. */
static void refusal_through_a_temporary(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "complex", LP_C64, SHAPE(4));
    add_tensor(c, "real", LP_F32, SHAPE(4));
    seal_checkpoint(c);
    lp_recorder *r = open_recorder(c);
    lp_tensor parts[] = {lp_to_f32(lp_source(r, "complex")), lp_source(r, "real")};
    parts[0] = lp_empty(r, LP_F32, 1, (int64_t[]){4});
    lp_copy(parts[0], lp_source(r, "complex"));
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){8}), lp_cat(2, parts, 0));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_non_null(refusal_of(&x, "complex"));
    assert_source(&x, "d", 16, "real", 0, 16);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A vocabulary's worth of scattered rows is one record; more slices than a record can hold are a refusal. */
static void scattered_rows(void **state)
{
    (void)state;
    enum { ROWS = 140000, FEW = 5000 };
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "table", LP_U8, SHAPE(ROWS, 2));
    seal_checkpoint(c);
    int64_t *index = malloc(ROWS * sizeof *index);
    for (int64_t i = 0; i < ROWS; i++)
        index[i] = i * i * 31 % ROWS;
    for (int many = 0; many < 2; many++) {
        const int64_t count = many ? ROWS : FEW;
        lp_recorder *r = open_recorder(c);
        lp_copy(lp_declare(r, "d", LP_U8, 2, (int64_t[]){count, 2}),
                lp_index_select(lp_source(r, "table"), 0, count, index));
        lp_trace *t = finish(r);
        run x = run_scope(t, 0);
        assert_int_equal(refusal_of(&x, "table") != NULL, many);
        assert_int_equal(x.rows->nrecord, many ? 0 : 1);
        for (int64_t i = 0; i < count && !many; i++)
            assert_source(&x, "d", 2 * i, "table", 2 * index[i], 2);
        assert_checked(t);
        free_run(&x);
        lp_trace_close(t);
    }
    free(index);
    lp_checkpoint_close(c);
}

/* ---- random chains ---- */

/* An array of what a tensor holds: element i is element source[i] of tensor name[i]. */
typedef struct model {
    int ndim;
    int64_t size[8], count;
    int32_t *source;
    uint8_t *name;
} model;

typedef struct chain {
    uint64_t seed;
    lp_recorder *r;
} chain;

static uint32_t draw(chain *c, uint32_t below)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->seed >> 33) % below;
}

static model new_model(int ndim, const int64_t *size)
{
    model m = {.ndim = ndim, .count = 1};
    for (int d = 0; d < ndim; d++) {
        m.size[d] = size[d];
        m.count *= size[d];
    }
    m.source = calloc((size_t)m.count + 1, sizeof *m.source);
    m.name = calloc((size_t)m.count + 1, 1);
    return m;
}

static void free_model(model *m)
{
    free(m->source);
    free(m->name);
}

static int64_t offset_of(const model *m, const int64_t *index)
{
    int64_t off = 0;
    for (int d = 0; d < m->ndim; d++)
        off = off * m->size[d] + index[d];
    return off;
}

/* A new model of shape `size`, whose element at `index` is the old one's at map(index). */
typedef void (*pick)(const int64_t *index, int64_t *from, const int64_t *argument);

static void rebuild(model *m, int ndim, const int64_t *size, pick from_index, const int64_t *argument)
{
    model made = new_model(ndim, size);
    int64_t index[8] = {0}, from[8] = {0};
    for (int64_t i = 0; i < made.count; i++) {
        int64_t rest = i;
        for (int d = ndim - 1; d >= 0; d--) {
            index[d] = rest % size[d];
            rest /= size[d];
        }
        from_index(index, from, argument);
        const int64_t at = offset_of(m, from);
        made.source[i] = m->source[at];
        made.name[i] = m->name[at];
    }
    free_model(m);
    *m = made;
}

/* argument: dim, start, step */
static void pick_slice(const int64_t *index, int64_t *from, const int64_t *argument)
{
    memcpy(from, index, 8 * sizeof *from);
    from[argument[0]] = argument[1] + index[argument[0]] * argument[2];
}

static void pick_permuted(const int64_t *index, int64_t *from, const int64_t *argument)
{
    for (int d = 0; d < 8; d++)
        from[argument[d]] = index[d];
}

/* argument: dim, times */
static void pick_interleaved(const int64_t *index, int64_t *from, const int64_t *argument)
{
    memcpy(from, index, 8 * sizeof *from);
    from[argument[0]] = index[argument[0]] / argument[1];
}

/* argument: dim, indices... */
static void pick_listed(const int64_t *index, int64_t *from, const int64_t *argument)
{
    memcpy(from, index, 8 * sizeof *from);
    from[argument[0]] = argument[1 + index[argument[0]]];
}

static lp_tensor step_slice(chain *c, lp_tensor t, model *m)
{
    const int dim = (int)draw(c, (uint32_t)m->ndim);
    const int64_t extent = m->size[dim];
    int64_t step = 1 + draw(c, 2), start = draw(c, (uint32_t)extent), size[8];
    if (draw(c, 3) == 0)
        step = -step;
    const int64_t most = step > 0 ? (extent - 1 - start) / step + 1 : start / -step + 1;
    const int64_t length = 1 + draw(c, (uint32_t)most), last = start + (length - 1) * step;
    memcpy(size, m->size, sizeof size);
    size[dim] = length;
    rebuild(m, m->ndim, size, pick_slice, (int64_t[]){dim, start, step});
    return lp_slice(t, dim, start, step > 0 ? last + 1 : last == 0 ? LP_SLICE_END : last - 1, step);
}

static lp_tensor step_permute(chain *c, lp_tensor t, model *m)
{
    int dims[8];
    int64_t argument[8], size[8];
    for (int d = 0; d < 8; d++)
        dims[d] = d;
    for (int d = m->ndim - 1; d > 0; d--) {
        const int other = (int)draw(c, (uint32_t)d + 1), kept = dims[d];
        dims[d] = dims[other];
        dims[other] = kept;
    }
    for (int d = 0; d < 8; d++) {
        argument[d] = dims[d];
        size[d] = d < m->ndim ? m->size[dims[d]] : 0;
    }
    rebuild(m, m->ndim, size, pick_permuted, argument);
    return lp_permute(t, m->ndim, dims);
}

static lp_tensor step_reshape(chain *c, lp_tensor t, model *m)
{
    int64_t rest = m->count;
    m->ndim = 1 + (int)draw(c, 4);
    for (int d = 0; d < m->ndim - 1; d++) {
        m->size[d] = 1;
        for (int tries = 0; tries < 4; tries++) {
            const int64_t factor = 2 + draw(c, 3);
            if (rest % factor == 0) {
                m->size[d] = factor;
                rest /= factor;
                break;
            }
        }
    }
    m->size[m->ndim - 1] = rest;
    return lp_reshape(t, m->ndim, m->size);
}

static lp_tensor step_interleave(chain *c, lp_tensor t, model *m)
{
    const int dim = (int)draw(c, (uint32_t)m->ndim);
    int64_t size[8];
    if (m->count > 200)
        return t;
    memcpy(size, m->size, sizeof size);
    size[dim] *= 2;
    rebuild(m, m->ndim, size, pick_interleaved, (int64_t[]){dim, 2});
    return lp_repeat_interleave(t, dim, 2);
}

static lp_tensor step_index(chain *c, lp_tensor t, model *m)
{
    const int dim = (int)draw(c, (uint32_t)m->ndim);
    int64_t argument[16] = {dim}, size[8];
    const int64_t count = 1 + draw(c, 6);
    for (int64_t i = 0; i < count; i++)
        argument[1 + i] = draw(c, (uint32_t)m->size[dim]);
    memcpy(size, m->size, sizeof size);
    size[dim] = count;
    rebuild(m, m->ndim, size, pick_listed, argument);
    return lp_index_select(t, dim, count, argument + 1);
}

/* Puts the tensor and its reverse along a dimension one behind the other. */
static lp_tensor step_cat(chain *c, lp_tensor t, model *m)
{
    const int dim = (int)draw(c, (uint32_t)m->ndim);
    const int64_t extent = m->size[dim];
    int64_t argument[64] = {dim}, size[8];
    if (m->count > 200 || extent > 30)
        return t;
    for (int64_t i = 0; i < 2 * extent; i++)
        argument[1 + i] = i < extent ? i : 2 * extent - 1 - i;
    memcpy(size, m->size, sizeof size);
    size[dim] = 2 * extent;
    rebuild(m, m->ndim, size, pick_listed, argument);
    const lp_tensor parts[] = {t, lp_slice(t, dim, LP_SLICE_END, LP_SLICE_END, -1)};
    return lp_cat(2, parts, dim);
}

static lp_tensor random_step(chain *c, lp_tensor t, model *m)
{
    switch (draw(c, 8)) {
    case 0:
    case 1:
        return step_slice(c, t, m);
    case 2:
        return step_permute(c, t, m);
    case 3:
    case 4:
        return step_reshape(c, t, m);
    case 5:
        return step_interleave(c, t, m);
    case 6:
        return draw(c, 2) ? lp_clone(t) : lp_contiguous(t);
    default:
        return draw(c, 2) ? step_index(c, t, m) : step_cat(c, t, m);
    }
}

static void one_chain(uint64_t seed)
{
    static const char *const name[] = {"a", "b"};
    lp_checkpoint *c = two_matrices();
    chain ch = {.seed = seed, .r = open_recorder(c)};
    model m = new_model(2, (int64_t[]){8, 6});
    for (int i = 0; i < 48; i++) {
        m.name[i] = i >= 24;
        m.source[i] = i % 24;
    }
    const lp_tensor parts[] = {lp_source(ch.r, "a"), lp_source(ch.r, "b")};
    lp_tensor t = lp_cat(2, parts, 0);
    const int steps = 1 + (int)draw(&ch, 6);
    for (int i = 0; i < steps; i++) {
        t = random_step(&ch, t, &m);
        if (!lp_is_valid(t) || lp_dim(t) != m.ndim)
            fail_msg("seed %llu: step %d went wrong", (unsigned long long)seed, i);
    }
    lp_copy(lp_declare(ch.r, "d", LP_F32, m.ndim, m.size), t);
    lp_trace *trace = finish(ch.r);
    run x = run_scope(trace, 0);
    if (x.rows->nrefusal != 0)
        fail_msg("seed %llu: %s", (unsigned long long)seed, x.rows->refusal[0].reason);
    const storage *s = storage_of(&x, dest_of(&x, "d"));
    for (int64_t i = 0; i < 4 * m.count; i++) {
        const uint8_t wanted = source_byte(name[m.name[i / 4]], 4 * (int64_t)m.source[i / 4] + i % 4);
        if (s->byte[i] != wanted || s->written[i] != 1)
            fail_msg("seed %llu: byte %lld", (unsigned long long)seed, (long long)i);
    }
    free_run(&x);
    free_model(&m);
    lp_trace_close(trace);
    lp_checkpoint_close(c);
}

static void random_chains_move_the_same_bytes(void **state)
{
    (void)state;
    const char *text = getenv("LOADPLAN_TEST_CHAINS");
    const uint64_t count = text != NULL ? strtoull(text, NULL, 10) : 2000;
    for (uint64_t seed = 1; seed <= count; seed++)
        one_chain(seed * 7919);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clone_and_contiguous),
        cmocka_unit_test(cat_along_rows_and_columns),
        cmocka_unit_test(selected_and_repeated),
        cmocka_unit_test(reshape_that_cuts_goes_through_a_temporary),
        cmocka_unit_test(temporary_with_a_fill),
        cmocka_unit_test(bytes_that_nothing_wrote_are_not_copied),
        cmocka_unit_test(refusal_through_a_temporary),
        cmocka_unit_test(scattered_rows),
        cmocka_unit_test(random_chains_move_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
