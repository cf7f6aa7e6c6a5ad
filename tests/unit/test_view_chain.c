/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random chains of view operations, done by the library and by a model that moves addresses one by one, then copies
 * between such views against the byte function that the addresses say. Environment: LP_TEST_SEED, LP_TEST_CHAINS.
 */
#include "view_steps.h"

/* A tensor and a chain of operations on it; *bytes: its memory. */
static void random_chain(rng *r, lp_view *v, model *m, int64_t *bytes, int64_t *unsupported, uint64_t seed)
{
    const lp_dtype dtype = (lp_dtype)rng_between(r, LP_BOOL, LP_U64);
    int64_t size[8] = {0}, count = 1;
    const int ndim = (int)rng_between(r, 0, 8);
    for (int d = 0; d < ndim; d++) {
        size[d] = rng_chance(r, 3) ? 0 : rng_chance(r, 25) ? 1 : rng_between(r, 2, 6);
        if (count * size[d] > 480)
            size[d] = 1;
        count = count * size[d] > 0 ? count * size[d] : count;
    }
    MUST(lp_view_contiguous(v, dtype, ndim, size, NULL) == LP_OK, seed);
    model_contiguous(m, dtype, ndim, size);
    *bytes = (m->count * lp_dtype_bits(dtype) + 7) / 8;
    MUST(view_is(v, m), seed);
    const int steps = (int)rng_between(r, 0, 8);
    for (int i = 0; i < steps; i++) {
        static model before;
        const lp_view old = *v;
        before = *m;
        step s = {0};
        const int64_t pick = rng_between(r, 0, 99);
        if (pick < 25) {
            s = step_pick(r, v, m);
        } else if (pick < 50) {
            s = step_shape(r, v, m);
        } else if (pick < 78) {
            s = step_dims(r, v, m);
        } else if (pick < 84) {
            s = step_diagonal(r, v, m);
        } else if (pick < 90) {
            s = step_expand(r, v, m);
        } else if (pick < 97) {
            s = step_dtype(r, v, m);
        } else {
            s = step_as_strided(r, v, m, *bytes);
        }
        if (m->ndim > 8) { /* the model stops here, not the library */
            *m = before;
            *v = old;
            continue;
        }
        if (s.want == LP_OK && s.cuts && s.got == LP_E_UNSUPPORTED) {
            *m = before;
            (*unsupported)++;
            MUST(view_is(v, m), seed);
            continue;
        }
        MUST(s.got == s.want, seed);
        MUST(view_is(v, m), seed);
    }
}

/* ---- copies ---- */

/* A destination of m's shape: a tensor with its dimensions in another order and with gaps, or one that was reshaped
 * from another shape, or anything at all (which may write a byte twice). */
static bool random_destination(rng *r, const model *m, lp_dtype dtype, lp_view *v, model *out, int64_t *bytes,
                               uint64_t seed)
{
    int64_t size[MODEL_DIMS];
    int dims[MODEL_DIMS], back[MODEL_DIMS];
    const int64_t way = rng_between(r, 0, 9);
    if (way < 6 || m->count == 0) {
        for (int d = 0; d < m->ndim; d++)
            dims[d] = d;
        for (int d = m->ndim - 1; d > 0 && way > 0; d--) {
            const int k = (int)rng_between(r, 0, d), t = dims[d];
            dims[d] = dims[k];
            dims[k] = t;
        }
        int64_t count = 1;
        for (int d = 0; d < m->ndim; d++) {
            size[d] = m->size[dims[d]] + (rng_chance(r, 25) ? rng_between(r, 1, 2) : 0);
            back[dims[d]] = d;
            count *= size[d];
        }
        if (count > MODEL_ELEMENTS)
            return false;
        MUST(lp_view_contiguous(v, dtype, m->ndim, size, NULL) == LP_OK, seed);
        model_contiguous(out, dtype, m->ndim, size);
        *bytes = (count * lp_dtype_bits(dtype) + 7) / 8;
        for (int d = 0; d < m->ndim; d++) {
            const int64_t start = rng_between(r, 0, size[d] - m->size[dims[d]]);
            MUST(lp_view_narrow(v, d, start, m->size[dims[d]], NULL) == LP_OK, seed);
            model_pick(out, d, start, 1, m->size[dims[d]]);
            if (rng_chance(r, 15) && m->size[dims[d]] > 0) {
                MUST(lp_view_slice(v, d, LP_SLICE_END, LP_SLICE_END, -1, NULL) == LP_OK, seed);
                model_pick(out, d, m->size[dims[d]] - 1, -1, m->size[dims[d]]);
            }
        }
        MUST(lp_view_permute(v, m->ndim, back, NULL) == LP_OK, seed);
        model_permute(out, back);
    } else if (way < 9) {
        const int ndim = random_factors(r, m->count, size, 5);
        MUST(lp_view_contiguous(v, dtype, ndim, size, NULL) == LP_OK, seed);
        model_contiguous(out, dtype, ndim, size);
        *bytes = (m->count * lp_dtype_bits(dtype) + 7) / 8;
        for (int d = 0; d < ndim; d++)
            dims[d] = ndim - 1 - d;
        MUST(lp_view_permute(v, ndim, dims, NULL) == LP_OK, seed);
        model_permute(out, dims);
        if (lp_view_reshape(v, m->ndim, m->size, NULL) != LP_OK)
            return false;
        model_shape(out, m->ndim, m->size);
    } else {
        int64_t stride[MODEL_DIMS], last = 0;
        for (int d = 0; d < m->ndim; d++) {
            stride[d] = rng_between(r, 0, 12);
            last += (m->size[d] - 1) * stride[d];
        }
        model_contiguous(out, dtype, 1, (int64_t[]){1});
        MUST(lp_view_contiguous(v, dtype, 1, (int64_t[]){last + 1}, NULL) == LP_OK, seed);
        *bytes = ((last + 1) * lp_dtype_bits(dtype) + 7) / 8;
        MUST(lp_view_as_strided(v, m->ndim, m->size, stride, 0, NULL) == LP_OK, seed);
        model_shape(out, m->ndim, m->size);
        for (int64_t i = 0; i < m->count; i++) {
            int64_t index[MODEL_DIMS], at = 0;
            index_of(out, i, index);
            for (int d = 0; d < m->ndim; d++)
                at += index[d] * stride[d];
            out->at[i] = at * lp_dtype_bits(dtype);
        }
    }
    MUST(view_is(v, out), seed);
    return true;
}

/* The byte function of a copy; false when there is none. */
static bool copy_function(function *f, const model *dst, const model *src)
{
    const int dst_bits = lp_dtype_bits(dst->dtype), src_bits = lp_dtype_bits(src->dtype);
    const lp_cast_kind kind = lp_cast_kind_of(src->dtype, dst->dtype);
    if (kind == LP_CAST_UNSUPPORTED)
        return false;
    const bool bytes = kind == LP_CAST_BYTES, whole = dst_bits % 8 == 0;
    *f = function_new(bytes ? 1 : src_bits / 8, bytes ? 1 : dst_bits / 8);
    if (!bytes || whole) {
        for (int64_t i = 0; i < dst->count; i++)
            for (int64_t b = 0; b < (bytes ? dst_bits / 8 : 1); b++)
                function_add(f, dst->at[i] / 8 + b, src->at[i] / 8 + b);
        return function_sort(f);
    }
    /* bits first; then every destination byte must be whole, from one source byte, in order */
    static function bits = {NULL, 0, 0, 1, 1};
    if (bits.at == NULL)
        bits = function_new(1, 1);
    bits.count = 0;
    for (int64_t i = 0; i < dst->count; i++)
        for (int64_t b = 0; b < dst_bits; b++)
            function_add(&bits, dst->at[i] + b, src->at[i] + b);
    if (!function_sort(&bits) || bits.count % 8 != 0)
        return false;
    for (int64_t i = 0; i < bits.count; i += 8) {
        const pair first = bits.at[i];
        for (int64_t b = 0; b < 8; b++)
            if (bits.at[i + b].dst != first.dst + b || bits.at[i + b].src != first.src + b)
                return false;
        if (first.dst % 8 != 0 || first.src % 8 != 0)
            return false;
        function_add(f, first.dst / 8, first.src / 8);
    }
    return true;
}

static void check_copy(rng *r, const lp_view *src, const model *src_model, int64_t src_bytes, int64_t *copies,
                       uint64_t seed)
{
    static model wide, dst_model;
    lp_view dst, narrow_src = *src;
    int64_t dst_bytes;
    /* sometimes the source is broadcast */
    wide = *src_model;
    for (int d = 0; d < wide.ndim && wide.count > 0; d++) {
        if (wide.size[d] == 1 && wide.count <= 200 && rng_chance(r, 30)) {
            int64_t size[MODEL_DIMS];
            memcpy(size, wide.size, sizeof size);
            size[d] = rng_between(r, 1, 4);
            model_expand(&wide, size);
        }
    }
    const bool lead = wide.ndim < 8 && wide.count <= 500 && rng_chance(r, 10);
    if (lead) {
        int64_t size[MODEL_DIMS];
        model_insert_dim(&wide, 0, 1);
        memcpy(size, wide.size, sizeof size);
        size[0] = rng_between(r, 1, 3);
        model_expand(&wide, size);
    }
    const lp_dtype dtype = rng_chance(r, 70) ? src->dtype : (lp_dtype)rng_between(r, LP_BOOL, LP_U64);
    if (wide.count * lp_dtype_bits(dtype) > ORACLE_UNITS / 2 || wide.count > 2000)
        return;
    if (!random_destination(r, &wide, dtype, &dst, &dst_model, &dst_bytes, seed))
        return;
    function f = {NULL, 0, 0, 1, 1};
    lp_error err = {0};
    const lp_map *map = NULL;
    const bool legal = copy_function(&f, &dst_model, &wide);
    const lp_status status = lp_map_copy(&map, &dst, dst_bytes, &narrow_src, src_bytes, NULL, &err);
    if (!legal && dst_model.count == 0 && f.at != NULL)
        MUST(status == LP_OK, seed);
    MUST(status == (legal ? LP_OK : LP_E_UNSUPPORTED), seed);
    if (legal) {
        function g = function_of_map(map);
        MUST(function_equal(&f, &g), seed);
        MUST(is_canonical(map, &f), seed);
        MUST(has_right_bounds(map, &f), seed);
        if (f.count > 0) {
            /* memory that is one byte short is an error on either side */
            const lp_map *none = NULL;
            MUST(lp_map_copy(&none, &dst, map->dst_hi - 1, &narrow_src, src_bytes, NULL, NULL) == LP_E_ARGUMENT, seed);
            MUST(lp_map_copy(&none, &dst, dst_bytes, &narrow_src, map->src_hi - 1, NULL, NULL) == LP_E_ARGUMENT, seed);
        }
        function_free(&g);
        lp_map_free(map, NULL);
        (*copies)++;
    }
    function_free(&f);
}

static void check_fill(rng *r, const lp_view *v, const model *m, int64_t bytes, uint64_t seed)
{
    const int bits = lp_dtype_bits(m->dtype);
    const int size = bits % 8 == 0 ? bits / 8 : 1;
    uint64_t pattern = rng_next(r), reduced = 0;
    if (rng_chance(r, 50))
        pattern = (pattern & 0xff) * 0x0101010101010101u;
    else if (rng_chance(r, 30))
        pattern = (pattern & 0xffff) * 0x0001000100010001u;
    if (m->count * bits > ORACLE_UNITS / 2)
        return;
    const lp_map *map = NULL;
    const lp_status status = lp_map_fill(&map, &reduced, v, bytes, pattern, size, NULL, NULL);
    /* the bits that must be written, and their values */
    function want = function_new(0, 1);
    for (int64_t i = 0; i < m->count; i++)
        for (int64_t b = 0; b < bits; b++)
            function_add(&want, m->at[i] + b, 0);
    bool legal = function_sort(&want) && want.count % 8 == 0;
    for (int64_t i = 0; legal && i < want.count; i++)
        legal = want.at[i].dst == want.at[i / 8 * 8].dst + i % 8 && want.at[i / 8 * 8].dst % 8 == 0;
    MUST(status == (legal ? LP_OK : LP_E_UNSUPPORTED), seed);
    if (legal) {
        function g = function_of_map(map);
        MUST(map->src_elem == 0 && is_canonical(map, &g) && has_right_bounds(map, &g), seed);
        MUST(g.count * g.dst_elem * 8 == want.count, seed);
        for (int64_t i = 0; i < g.count * g.dst_elem; i++) {
            const int64_t at = g.at[i / g.dst_elem].dst + i % g.dst_elem;
            MUST(at == want.at[i * 8].dst / 8, seed);
            /* every byte gets what the pattern has for its place in the element */
            const int64_t place = bits % 8 == 0 ? i % size : 0;
            MUST((uint8_t)(reduced >> (i % g.dst_elem * 8)) == (uint8_t)(pattern >> (place * 8)), seed);
        }
        function_free(&g);
        lp_map_free(map, NULL);
    }
    function_free(&want);
}

static void chains_and_copies(void **state)
{
    (void)state;
    static model m;
    const uint64_t seed = (uint64_t)count_from("LP_TEST_SEED", 1);
    const int64_t chains = count_from("LP_TEST_CHAINS", 8000);
    int64_t unsupported = 0, copies = 0;
    for (int64_t i = 0; i < chains; i++) {
        const uint64_t own = seed * 1000003u + (uint64_t)i;
        rng r = {own};
        lp_view v;
        int64_t bytes;
        random_chain(&r, &v, &m, &bytes, &unsupported, own);
        check_copy(&r, &v, &m, bytes, &copies, own);
        check_fill(&r, &v, &m, bytes, own);
    }
    print_message("%" PRId64 " chains, %" PRId64 " copies, %" PRId64 " operations that are no views\n", chains, copies,
                  unsupported);
    assert_true(copies > chains / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chains_and_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
