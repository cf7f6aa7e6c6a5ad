/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random chains of views and of operations that move bytes: recorded and, in parallel, carried out on arrays that hold
 * the number of every element's source byte.
 */
#include "test_recorder_run.h"
#include "tests/random_numbers.h"

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

/* Where the element at `index` comes from. */
typedef void (*pick)(const int64_t *index, int64_t *from, const int64_t *argument);

/* A new model of shape `size`, whose element at `index` is the old one's where from_index says. */
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
    lp_checkpoint *c = small_checkpoint();
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
    const uint64_t count = random_rounds(2000);
    for (uint64_t seed = 1; seed <= count; seed++)
        one_chain(seed * 7919);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_chains_move_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
