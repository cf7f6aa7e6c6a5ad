/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device in host memory, as a table of calls. Work on its stream is kept and done when somebody waits, in order, so
 * that memory which is used again too early, or read before it is filled, shows in the result. It counts blocks that
 * are out, and its n-th call fails on demand.
 */
#ifndef LOADPLAN_FAKE_DEVICE_H
#define LOADPLAN_FAKE_DEVICE_H

#include "replayer/device_session.h"
#include "replayer/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FAKE_BLOCKS = 256, FAKE_FAILED = 7, FAKE_PUSH_MAX = 512 };

typedef enum fake_kind {
    FAKE_COPY,
    FAKE_GATHER,
    FAKE_CLEAR,
    FAKE_DUMMY,
    FAKE_PUSH,
    FAKE_DERIVES,
    FAKE_FORGET
} fake_kind;

typedef struct fake_work {
    fake_kind kind;
    void *to;
    const void *from;
    uint8_t *kept; /* of a copy out of pageable memory: the bytes when it was started */
    int64_t bytes, lo, hi;
    lp_form form;
    lp_dummy dummy;
    uint32_t count, number[FAKE_PUSH_MAX];
    const void *base[FAKE_PUSH_MAX];
} fake_work;

typedef struct fake_block {
    uint8_t *at;
    int64_t bytes;
    bool is_pinned;
} fake_block;

typedef struct fake_device {
    int calls, fail_at; /* fail_at: number of the call; -1: none */
    bool has_no_pinned; /* memory to give */
    bool is_bound;      /* no memory may be taken any more */
    bool is_captured;
    fake_block block[FAKE_BLOCKS];
    int blocks;
    fake_work *work;
    int64_t work_count, work_capacity;
    const lp_device_side *side;
    lp_derive_table table;
    lp_derive_outcome *outcome;
    void *scratch;
    int pushes, waves;
    lp_device_calls calls_table;
} fake_device;

static inline int fake_call(void *context)
{
    fake_device *f = context;
    return f->calls++ == f->fail_at ? FAKE_FAILED : 0;
}

static inline const char *fake_text(void *context, int code)
{
    (void)context;
    return code == FAKE_FAILED ? "it fails on demand" : "?";
}

static inline int fake_enter(void *context, int *before)
{
    *before = 3;
    return fake_call(context);
}

static inline void fake_leave(void *context, int before)
{
    (void)context;
    assert_int_equal(before, 3);
}

static inline int fake_take_block(fake_device *f, int64_t bytes, bool is_pinned, void **out)
{
    assert_true(f->blocks < FAKE_BLOCKS);
    *out = malloc((size_t)bytes + 1);
    assert_non_null(*out);
    memset(*out, 0xee, (size_t)bytes);
    f->block[f->blocks++] = (fake_block){*out, bytes, is_pinned};
    return 0;
}

static inline int fake_take(void *context, int64_t bytes, void **out)
{
    fake_device *f = context;
    assert_false(f->is_bound);
    const int code = fake_call(context);
    return code != 0 ? code : fake_take_block(f, bytes, false, out);
}

static inline int fake_take_pinned(void *context, int64_t bytes, void **out)
{
    fake_device *f = context; /* files are read into some of it after bind */
    const int code = f->has_no_pinned ? FAKE_FAILED : fake_call(context);
    return code != 0 ? code : fake_take_block(f, bytes, true, out);
}

static inline void fake_give(void *context, void *memory)
{
    fake_device *f = context;
    for (int i = 0; memory != NULL && i < f->blocks; i++)
        if (f->block[i].at == memory)
            f->block[i] = f->block[--f->blocks];
    free(memory);
}

static inline const fake_block *fake_find(const fake_device *f, const void *data)
{
    for (int i = 0; i < f->blocks; i++)
        if ((const uint8_t *)data >= f->block[i].at && (const uint8_t *)data < f->block[i].at + f->block[i].bytes)
            return &f->block[i];
    return NULL;
}

static inline int fake_is_ours(void *context, const void *data, bool *yes)
{
    const fake_block *b = fake_find(context, data);
    *yes = b != NULL && !b->is_pinned;
    return fake_call(context);
}

static inline int fake_is_captured(void *context, void *stream, bool *yes)
{
    (void)stream;
    *yes = ((fake_device *)context)->is_captured;
    return fake_call(context);
}

static inline fake_work *fake_add(fake_device *f, fake_kind kind)
{
    if (f->work_count == f->work_capacity) {
        f->work_capacity = f->work_capacity * 2 + 8;
        f->work = realloc(f->work, (size_t)f->work_capacity * sizeof *f->work);
        assert_non_null(f->work);
    }
    fake_work *w = &f->work[f->work_count++];
    memset(w, 0, sizeof *w);
    w->kind = kind;
    return w;
}

static inline int fake_copy(void *context, void *to, const void *from, int64_t bytes, void *stream)
{
    const int code = fake_call(context);
    fake_work *w;
    (void)stream;
    if (code != 0)
        return code;
    w = fake_add(context, FAKE_COPY);
    w->to = to;
    w->from = from;
    w->bytes = bytes;
    if (fake_find(context, from) == NULL) {
        w->kept = malloc((size_t)bytes + 1);
        assert_non_null(w->kept);
        memcpy(w->kept, from, (size_t)bytes);
    }
    return 0;
}

static inline int fake_gather(void *context, void *to, const void *from, const lp_form *form, int64_t lo, int64_t hi,
                              void *stream)
{
    const int code = fake_call(context);
    (void)stream;
    if (code != 0)
        return code;
    fake_work *w = fake_add(context, FAKE_GATHER);
    w->to = to;
    w->from = from;
    w->form = *form;
    w->lo = lo;
    w->hi = hi;
    return 0;
}

static inline int fake_clear(void *context, void *memory, int64_t bytes, void *stream)
{
    const int code = fake_call(context);
    (void)stream;
    if (code != 0)
        return code;
    fake_work *w = fake_add(context, FAKE_CLEAR);
    w->to = memory;
    w->bytes = bytes;
    return 0;
}

static inline int fake_dummy(void *context, const lp_dummy *values, void *stream)
{
    const int code = fake_call(context);
    (void)stream;
    if (code == 0)
        fake_add(context, FAKE_DUMMY)->dummy = *values;
    return code;
}

/* ---- what work does ---- */

typedef struct fake_window {
    uint8_t *to;
    int64_t at, lo, hi;
} fake_window;

static inline lp_status fake_piece(void *context, const void *data, int64_t bytes, lp_error *err)
{
    fake_window *w = context;
    (void)err;
    for (int64_t i = 0; i < bytes; i++, w->at++)
        if (w->at >= w->lo && w->at < w->hi)
            w->to[w->at - w->lo] = ((const uint8_t *)data)[i];
    return LP_OK;
}

static inline void fake_items(const fake_device *f, const fake_work *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const lp_device_item *item = &f->side->item[w->number[i]];
        for (uint32_t k = item->first_step; k < item->first_step + item->step_count; k++) {
            const lp_step *step = f->side->step[k].step;
            const int64_t lo = step->src_off + step->map->src_lo, hi = step->src_off + step->map->src_hi;
            if (step->kind == LP_KIND_FILL)
                lp_exec_fill(step, f->side->step[k].to);
            else
                lp_exec_part(step, f->side->step[k].to, (const uint8_t *)((uintptr_t)w->base[i] + (uintptr_t)lo), lo,
                             lo, hi);
        }
    }
}

static inline void fake_dummy_fill(const lp_dummy *d, uint64_t *index, int32_t dim, uint8_t *at)
{
    if (dim < d->form.ndim) {
        for (int64_t i = 0; i < d->form.shape[dim]; i++)
            fake_dummy_fill(d, index, dim + 1, at + i * d->form.stride[dim]);
        return;
    }
    const float value = lp_dummy_number(d->seed, (*index)++);
    if (d->is_stated)
        memcpy(at, &d->element, (size_t)d->form.unit);
    else if (d->dtype == LP_F32)
        memcpy(at, &value, 4);
    else
        assert_int_equal(lp_cast_elements(LP_F32, &value, d->dtype, at, 1), LP_OK);
}

static inline void fake_do(fake_device *f, fake_work *w)
{
    uint64_t index = 0;
    fake_window window = {w->to, 0, w->lo, w->hi};
    switch (w->kind) {
    case FAKE_COPY:
        memmove(w->to, w->kept != NULL ? w->kept : w->from, (size_t)w->bytes);
        break;
    case FAKE_GATHER:
        assert_int_equal(lp_form_walk(&w->form, w->from, lp_alloc_default(), fake_piece, &window, NULL), LP_OK);
        break;
    case FAKE_CLEAR:
        memset(w->to, 0, (size_t)w->bytes);
        break;
    case FAKE_DUMMY:
        fake_dummy_fill(&w->dummy, &index, 0, w->dummy.data);
        break;
    case FAKE_PUSH:
        fake_items(f, w);
        break;
    case FAKE_DERIVES:
        for (uint32_t i = 0; i < w->count; i++)
            lp_derive_run_host(&f->table, w->number[i], f->outcome);
        break;
    case FAKE_FORGET:
        for (int64_t i = 0; i < f->table.outcomes; i++)
            f->outcome[i].index = -1;
        break;
    }
    free(w->kept);
}

static inline void fake_do_all(fake_device *f)
{
    for (int64_t i = 0; i < f->work_count; i++)
        fake_do(f, &f->work[i]);
    f->work_count = 0;
}

static inline int fake_wait(void *context, void *stream)
{
    (void)stream;
    fake_do_all(context);
    return fake_call(context);
}

/* ---- programs and derives ---- */

static inline lp_status fake_program_open(void *context, void **program, const lp_device_side *side, lp_error *err)
{
    ((fake_device *)context)->side = side;
    if (fake_call(context) != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot upload the plan: it fails on demand");
    *program = context;
    return LP_OK;
}

static inline void fake_program_close(void *context, void *program)
{
    assert_ptr_equal(context, program);
}

static inline int64_t fake_program_bytes(void *context, const void *program)
{
    assert_ptr_equal(context, program);
    return 1000;
}

static inline lp_status fake_program_push(void *context, void *program, const uint32_t *item, const void *const *base,
                                          uint32_t count, void *stream, lp_error *err)
{
    fake_device *f = context;
    (void)program;
    (void)stream;
    if (fake_call(context) != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot start a push: it fails on demand");
    assert_in_range(count, 1, FAKE_PUSH_MAX);
    fake_work *w = fake_add(f, FAKE_PUSH);
    w->count = count;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(item[i] < f->side->item_count && (i == 0 || item[i] > item[i - 1]));
        assert_non_null(base[i]);
        w->number[i] = item[i];
        w->base[i] = base[i];
    }
    f->pushes++;
    return LP_OK;
}

static inline int fake_derives_open(void *context, void **derives, lp_derive_table *table)
{
    fake_device *f = context;
    const int code = fake_call(context);
    if (code != 0)
        return code;
    f->scratch = calloc(1, (size_t)table->scratch_bytes + 16);
    lp_derive_table_place(table, (uintptr_t)f->scratch);
    f->table = *table; /* takes the arrays over */
    *table = (lp_derive_table){.alloc = table->alloc};
    f->outcome = calloc((size_t)f->table.outcomes + 1, sizeof *f->outcome);
    *derives = f;
    return 0;
}

static inline void fake_derives_close(void *context, void *derives)
{
    fake_device *f = context;
    (void)derives;
    lp_derive_table_free(&f->table);
    free(f->scratch);
    free(f->outcome);
    f->outcome = NULL;
    f->scratch = NULL;
}

static inline int64_t fake_derives_bytes(void *context, const void *derives)
{
    (void)derives;
    return ((fake_device *)context)->table.scratch_bytes;
}

static inline int fake_derives_run(void *context, void *derives, const uint32_t *job, uint32_t count, void *stream)
{
    fake_device *f = context;
    const int code = fake_call(context);
    (void)derives;
    (void)stream;
    if (code != 0)
        return code;
    assert_in_range(count, 1, FAKE_PUSH_MAX);
    fake_work *w = fake_add(f, FAKE_DERIVES);
    w->count = count;
    memcpy(w->number, job, count * sizeof *job);
    f->waves++;
    return 0;
}

static inline int fake_derives_forget(void *context, void *derives, void *stream)
{
    const int code = fake_call(context);
    (void)derives;
    (void)stream;
    if (code == 0)
        fake_add(context, FAKE_FORGET);
    return code;
}

static inline int fake_derives_outcomes(void *context, void *derives, lp_derive_outcome *out, void *stream)
{
    fake_device *f = context;
    const int code = fake_call(context);
    (void)derives;
    (void)stream;
    if (code != 0)
        return code; /* and nothing was waited for */
    fake_do_all(f);
    if (f->table.outcomes > 0)
        memcpy(out, f->outcome, (size_t)f->table.outcomes * sizeof *out);
    return 0;
}

static inline lp_status fake_digests(void *context, const lp_plan *plan, uint32_t first, uint32_t count, void *sums,
                                     uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err)
{
    (void)stream;
    fake_do_all(context);
    if (fake_call(context) != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot digest the tensors: it fails on demand");
    memset(sums, 0, count * sizeof(lp_value_sum));
    for (uint32_t i = 0; i < count; i++) {
        lp_form form;
        lp_destination_form(&plan->rows->dest[first + i], &form);
        uint8_t *dense = malloc((size_t)form.bytes + 1);
        fake_window window = {dense, 0, 0, form.bytes};
        assert_int_equal(lp_form_walk(&form, plan->address[first + i], lp_alloc_default(), fake_piece, &window, NULL),
                         LP_OK);
        lp_value_digest(dense, form.bytes, digest[i]);
        free(dense);
    }
    return LP_OK;
}

static inline lp_device_calls fake_table(fake_device *f)
{
    memset(f, 0, sizeof *f);
    f->fail_at = -1;
    return (lp_device_calls){.context = f,
                             .error_text = fake_text,
                             .enter = fake_enter,
                             .leave = fake_leave,
                             .take = fake_take,
                             .give = fake_give,
                             .take_pinned = fake_take_pinned,
                             .give_pinned = fake_give,
                             .is_ours = fake_is_ours,
                             .is_captured = fake_is_captured,
                             .copy = fake_copy,
                             .gather = fake_gather,
                             .clear = fake_clear,
                             .dummy = fake_dummy,
                             .wait = fake_wait,
                             .program_open = fake_program_open,
                             .program_close = fake_program_close,
                             .program_bytes = fake_program_bytes,
                             .program_push = fake_program_push,
                             .derives_open = fake_derives_open,
                             .derives_close = fake_derives_close,
                             .derives_bytes = fake_derives_bytes,
                             .derives_run = fake_derives_run,
                             .derives_forget = fake_derives_forget,
                             .derives_outcomes = fake_derives_outcomes,
                             .digests = fake_digests};
}

static inline void fake_end(fake_device *f)
{
    fake_do_all(f);
    free(f->work);
    f->work = NULL;
    f->work_capacity = 0;
}

#endif
