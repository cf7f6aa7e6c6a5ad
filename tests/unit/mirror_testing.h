/* SPDX-License-Identifier: Apache-2.0 */
/* A recorder behind a mirror, and the tensors that a framework would tell it about. Included by test programs only. */
#ifndef LOADPLAN_MIRROR_TESTING_H
#define LOADPLAN_MIRROR_TESTING_H

#include "test_recorder_run.h"

/* A tensor of the framework's: row-major unless strides are set afterwards. */
static inline lp_strided strided(int64_t number, lp_dtype dtype, int ndim, const int64_t *shape)
{
    lp_strided g = {.storage = number, .dtype = dtype, .ndim = ndim};
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        g.extent[d] = shape[d];
        g.extent[ndim + d] = step;
        step *= shape[d];
    }
    return g;
}

static inline lp_strided narrowed(lp_strided g, int dim, int64_t start, int64_t length)
{
    g.offset += start * g.extent[g.ndim + dim];
    g.extent[dim] = length;
    return g;
}

typedef struct bench {
    lp_checkpoint *checkpoint;
    lp_recorder *recorder;
    lp_mirror *mirror;
    lp_error err;
} bench;

static inline lp_checkpoint *some_checkpoint(void)
{
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "a", LP_F32, SHAPE(4, 6));
    add_tensor(c, "b", LP_F32, SHAPE(4, 6));
    add_tensor(c, "h", LP_BF16, SHAPE(8));
    seal_checkpoint(c);
    return c;
}

static inline void begin(bench *b)
{
    *b = (bench){.checkpoint = some_checkpoint()};
    if (lp_recorder_open(&b->recorder, b->checkpoint, &(lp_scope){0}, &b->err) != LP_OK ||
        lp_mirror_open(&b->mirror, b->recorder, &b->err) != LP_OK)
        fail_msg("%s", b->err.text);
}

static inline lp_trace *end(bench *b)
{
    lp_trace *t = NULL;
    lp_mirror_close(b->mirror);
    if (lp_recorder_finish(b->recorder, &t, &b->err) != LP_OK)
        fail_msg("%s", b->err.text);
    lp_recorder_close(b->recorder);
    lp_checkpoint_close(b->checkpoint);
    return t;
}

static inline lp_strided source(bench *b, const char *name)
{
    const int64_t index = lp_checkpoint_find(b->checkpoint, name);
    const lp_checkpoint_tensor *c = lp_checkpoint_at(b->checkpoint, index);
    return strided(lp_mirror_source(b->mirror, index), c->dtype, c->ndim, c->shape);
}

static inline lp_strided destination(bench *b, const char *name, lp_dtype dtype, int ndim, const int64_t *shape)
{
    lp_strided g = strided(-1, dtype, ndim, shape);
    int64_t bytes = lp_dtype_bits(dtype) / 8;
    for (int d = 0; d < ndim; d++)
        bytes *= shape[d];
    g.storage = lp_mirror_destination(b->mirror, name, &g, bytes, 0, NULL, &b->err);
    if (g.storage < 0)
        fail_msg("%s", b->err.text);
    return g;
}

static inline lp_strided temporary(bench *b, lp_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t bytes = lp_dtype_bits(dtype) / 8;
    for (int d = 0; d < ndim; d++)
        bytes *= shape[d];
    return strided(lp_mirror_temporary(b->mirror, bytes), dtype, ndim, shape);
}

static inline lp_status copy(bench *b, lp_strided dst, lp_strided src)
{
    return lp_mirror_copy(b->mirror, "loader.py", 7, &dst, &src, false, &b->err);
}

static inline const lp_rows *rows_of(const lp_trace *t)
{
    const lp_rows *rows = NULL;
    assert_int_equal(lp_trace_rows(t, 0, &rows, NULL), LP_OK);
    return rows;
}

#endif
