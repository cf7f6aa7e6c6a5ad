/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device in host memory with streams and events that work as a GPU's do: what is put on a stream is done later, in
 * order, and streams wait for one another by events only. Which stream goes on is drawn by lot whenever the host asks
 * for something, so that memory which is used again too early, or read before it is filled, shows in the result. Plans
 * run as compiled programs by the interpreter. Any call fails on demand. Each rank has its own, used by one thread.
 */
#ifndef LOADPLAN_DEVICE_STREAMS_H
#define LOADPLAN_DEVICE_STREAMS_H

#include "device_interpreter.h"
#include "fake_device.h"
#include "fake_nccl.h"

#include "fake_changes.h"

#include "replayer/device_digest.h"
#include "replayer/nccl_transport.h"

#include <sched.h>
#include <time.h>

enum { GPU_STREAMS = 10, GPU_PATIENCE_S = 300 };

typedef struct gpu_event {
    long set, done; /* how often it was set, and how often the streams have come to that */
} gpu_event;

typedef enum gpu_kind {
    GPU_WORK,
    GPU_PUSH,
    GPU_ROWS,
    GPU_SUM,
    GPU_COMPARE,
    GPU_TABLE,
    GPU_APPLY,
    GPU_WAIT,
    GPU_SET,
    GPU_MESSAGE
} gpu_kind;

typedef struct gpu_item {
    struct gpu_item *next;
    gpu_kind kind;
    fake_work work; /* GPU_WORK; GPU_PUSH: count, number, base */
    const lp_device_program *program;
    uint8_t *to; /* GPU_ROWS */
    const uint8_t *from;
    int64_t to_pitch, from_pitch, bytes, rows;
    lp_digest_job job; /* GPU_SUM, of from to to */
    lp_change_compare compare;
    lp_change_table table;
    lp_change_apply apply;
    gpu_event *event;
    long number; /* of the event's setting */
    fake_op *op;
} gpu_item;

struct gpu;

typedef struct gpu_stream {
    fake_stream base;
    struct gpu *owner;
    gpu_item *first, *last;
    bool is_open;
} gpu_stream;

typedef struct gpu {
    fake_device f; /* first: blocks, faults, derives */
    uint64_t random;
    gpu_stream stream[GPU_STREAMS]; /* 0: the default one */
    int events;
    lp_device_calls calls;
    lp_nccl_device nccl;
} gpu;

static inline uint64_t gpu_random(gpu *g)
{
    g->random ^= g->random << 13;
    g->random ^= g->random >> 7;
    g->random ^= g->random << 17;
    return g->random;
}

/* ---- what is on streams ---- */

static inline gpu_stream *gpu_stream_of(gpu *g, void *stream)
{
    return stream == NULL ? &g->stream[0] : (gpu_stream *)stream;
}

static inline void gpu_pump(gpu *g, int steps);

/* The device is at work while the host gives it more. */
static inline gpu_item *gpu_add(gpu *g, void *stream, gpu_kind kind)
{
    gpu_pump(g, (int)(gpu_random(g) % 12));
    gpu_stream *s = gpu_stream_of(g, stream);
    gpu_item *item = calloc(1, sizeof *item);
    if (item == NULL || s->owner != g || !s->is_open)
        abort();
    item->kind = kind;
    if (s->last != NULL)
        s->last->next = item;
    else
        s->first = item;
    s->last = item;
    return item;
}

static inline void gpu_enqueue(fake_stream *stream, fake_op *op)
{
    gpu_add(((gpu_stream *)stream)->owner, stream, GPU_MESSAGE)->op = op;
}

static inline void gpu_run_list(const lp_tile_list *list, const lp_device_program *p, uint32_t item,
                                const uint8_t *base, int which)
{
    for (uint32_t i = list->item_tile[item]; i < list->item_tile[item + 1]; i++) {
        const lp_device_tile tile = tile_at(list->run, list->runs, i);
        const lp_device_desc *d = &p->desc[tile.desc];
        bool ok;
        if (which == 0 && (uintptr_t)base % 16 == 0)
            ok = run_row_tile(d, tile.part, base);
        else
            ok = run_other_tile(d, tile.part, base);
        if (!ok)
            abort();
    }
}

static inline void gpu_run_push(const gpu_item *w)
{
    for (uint32_t i = 0; i < w->work.count; i++) {
        const uint32_t item = w->work.number[i];
        gpu_run_list(&w->program->rows, w->program, item, w->work.base[i], 0);
        gpu_run_list(&w->program->words, w->program, item, w->work.base[i], 1);
        gpu_run_list(&w->program->others, w->program, item, w->work.base[i], 2);
    }
}

/* As the kernel reads it, word by word. */
static inline void gpu_run_sum(const lp_digest_job *job, const uint8_t *data, lp_value_sum *sum)
{
    for (uint64_t p = 0; p < job->packets; p++) {
        int64_t off = 0;
        uint64_t pos = job->first, index = p;
        if (job->is_odd)
            abort(); /* never used here */
        for (uint32_t k = 0; k < job->rank; k++) {
            const lp_digest_mode *m = &job->mode[k];
            const uint64_t rest = k + 1 == job->rank ? 0 : run_divide((uint32_t)index, m->extent);
            const uint64_t digit = index - rest * m->extent.value;
            off += (int64_t)digit * m->off;
            pos += digit * m->pos;
            index = rest;
        }
        for (uint32_t w = 0; w < job->words; w++) {
            uint64_t word = 0;
            for (uint32_t k = 0; k < job->parts; k++)
                memcpy((uint8_t *)&word + (size_t)k * job->part_bytes,
                       data + off + (int64_t)w * job->word_off + (int64_t)k * job->part_off, job->part_bytes);
            lp_value_sum_add(sum, (int64_t)(pos + w * job->word_pos) * 8, &word, 8);
        }
    }
}

/* Whether the first item of the stream is done now. */
static inline bool gpu_step(gpu *g, gpu_stream *s)
{
    gpu_item *w = s->first;
    if (w == NULL)
        return false;
    switch (w->kind) {
    case GPU_WORK:
        fake_do(&g->f, &w->work);
        break;
    case GPU_PUSH:
        gpu_run_push(w);
        break;
    case GPU_ROWS:
        for (int64_t i = 0; i < w->rows; i++)
            memcpy(w->to + i * w->to_pitch, w->from + i * w->from_pitch, (size_t)w->bytes);
        break;
    case GPU_SUM:
        gpu_run_sum(&w->job, w->from, (lp_value_sum *)(void *)w->to);
        break;
    case GPU_COMPARE:
        fake_compare(&w->compare);
        break;
    case GPU_TABLE:
        fake_table_of_frame(&w->table);
        break;
    case GPU_APPLY:
        fake_apply(&w->apply);
        break;
    case GPU_WAIT:
        if (w->event->done < w->number)
            return false;
        break;
    case GPU_SET:
        w->event->done = w->number > w->event->done ? w->number : w->event->done;
        break;
    case GPU_MESSAGE:
        if (!w->op->step(w->op))
            return false;
        break;
    }
    s->first = w->next;
    if (s->first == NULL)
        s->last = NULL;
    free(w);
    return true;
}

static inline void gpu_pump(gpu *g, int steps)
{
    for (int i = 0; i < steps; i++)
        (void)gpu_step(g, &g->stream[gpu_random(g) % GPU_STREAMS]);
}

/* Until the stream is empty: a stream that never will be ends the test. */
static inline void gpu_settle(gpu *g, gpu_stream *s)
{
    const time_t until = time(NULL) + GPU_PATIENCE_S;
    while (s->first != NULL) {
        gpu_pump(g, 16);
        sched_yield();
        if (time(NULL) > until) {
            fprintf(stderr, "a stream waits for ever\n");
            abort();
        }
    }
}

/* ---- calls of sessions: the fake's, whose work goes to the stream ---- */

static inline int gpu_take_over(gpu *g, void *stream, int code)
{
    if (code == 0 && g->f.work_count > 0)
        gpu_add(g, stream, GPU_WORK)->work = g->f.work[--g->f.work_count];
    return code;
}

static inline int gpu_copy(void *context, void *to, const void *from, int64_t bytes, void *stream)
{
    return gpu_take_over(context, stream, fake_copy(context, to, from, bytes, stream));
}

static inline int gpu_copy_rows(void *context, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                                int64_t bytes, int64_t rows, void *stream)
{
    const int code = fake_call(context);
    if (code != 0)
        return code;
    gpu_item *w = gpu_add(context, stream, GPU_ROWS);
    w->to = to;
    w->to_pitch = to_pitch;
    w->from = from;
    w->from_pitch = from_pitch;
    w->bytes = bytes;
    w->rows = rows;
    return 0;
}

static inline int gpu_gather(void *context, void *to, const void *from, const lp_form *form, int64_t lo, int64_t hi,
                             void *stream)
{
    return gpu_take_over(context, stream, fake_gather(context, to, from, form, lo, hi, stream));
}

static inline int gpu_clear(void *context, void *memory, int64_t bytes, void *stream)
{
    return gpu_take_over(context, stream, fake_clear(context, memory, bytes, stream));
}

static inline int gpu_dummy(void *context, const lp_dummy *values, void *stream)
{
    return gpu_take_over(context, stream, fake_dummy(context, values, stream));
}

static inline int gpu_derives_run(void *context, void *derives, const uint32_t *job, uint32_t count, void *stream)
{
    return gpu_take_over(context, stream, fake_derives_run(context, derives, job, count, stream));
}

static inline int gpu_derives_forget(void *context, void *derives, void *stream)
{
    return gpu_take_over(context, stream, fake_derives_forget(context, derives, stream));
}

static inline int gpu_wait(void *context, void *stream)
{
    gpu_settle(context, gpu_stream_of(context, stream));
    return fake_call(context);
}

static inline int gpu_derives_outcomes(void *context, void *derives, lp_derive_outcome *out, void *stream)
{
    gpu_settle(context, gpu_stream_of(context, stream));
    return fake_derives_outcomes(context, derives, out, stream);
}

static inline lp_status gpu_digests(void *context, const lp_plan *plan, uint32_t first, uint32_t count, void *sums,
                                    uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err)
{
    gpu_settle(context, gpu_stream_of(context, stream));
    return fake_digests(context, plan, first, count, sums, digest, stream, err);
}

/* Compiled as for the kernels. */
static inline lp_status gpu_program_open(void *context, void **program, const lp_device_side *side, lp_error *err)
{
    lp_device_program *p = NULL;
    lp_status status = LP_OK;
    if (fake_call(context) != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot upload the plan: it fails on demand");
    LP_TRY(lp_device_program_new(&p, side->item_count > 0 ? side->item_count : 1, side->alloc, err));
    for (uint32_t i = 0; i < side->item_count && status == LP_OK; i++)
        for (uint32_t k = 0; k < side->item[i].step_count && status == LP_OK; k++) {
            const lp_item_step *s = &side->step[side->item[i].first_step + k];
            status = lp_device_program_add(p, i, s->step, (uintptr_t)s->to, err);
        }
    if (status == LP_OK)
        status = lp_device_program_end(p, err);
    if (status != LP_OK)
        lp_device_program_free(p);
    else
        *program = p;
    return status;
}

static inline void gpu_program_close(void *context, void *program)
{
    const gpu *g = context;
    for (int i = 0; i < GPU_STREAMS; i++)
        for (const gpu_item *w = g->stream[i].first; w != NULL; w = w->next)
            if (w->kind == GPU_PUSH && w->program == program)
                abort(); /* it is still needed */
    lp_device_program_free(program);
}

static inline int64_t gpu_program_bytes(void *context, const void *program)
{
    (void)context;
    (void)program;
    return 1000;
}

static inline lp_status gpu_program_push(void *context, void *program, const uint32_t *item, const void *const *base,
                                         uint32_t count, void *stream, lp_error *err)
{
    if (fake_call(context) != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot start a push: it fails on demand");
    if (count == 0 || count > FAKE_PUSH_MAX)
        abort();
    gpu_item *w = gpu_add(context, stream, GPU_PUSH);
    w->program = program;
    w->work.count = count;
    for (uint32_t i = 0; i < count; i++) {
        if (base[i] == NULL || (i > 0 && item[i] <= item[i - 1]))
            abort();
        w->work.number[i] = item[i];
        w->work.base[i] = base[i];
    }
    return LP_OK;
}

/* ---- calls of messages ---- */

static inline int gpu_enter(void *context)
{
    return fake_call(context);
}

static inline int gpu_allocate(void *context, int64_t bytes, void **out)
{
    const int code = fake_call(context);
    return code != 0 ? code : fake_take_block(context, bytes, false, out);
}

static inline int gpu_take_pinned(void *context, int64_t bytes, void **out)
{
    const int code = fake_call(context);
    return code != 0 ? code : fake_take_block(context, bytes, true, out);
}

static inline int gpu_move_now(void *context, void *to, const void *from, int64_t bytes)
{
    memcpy(to, from, (size_t)bytes);
    return fake_call(context);
}

static inline int gpu_stream_open(void *context, bool is_urgent, void **stream)
{
    (void)is_urgent;
    gpu *g = context;
    const int code = fake_call(context);
    *stream = NULL;
    for (int i = 1; i < GPU_STREAMS && *stream == NULL && code == 0; i++)
        if (!g->stream[i].is_open) {
            g->stream[i] = (gpu_stream){.base = {.enqueue = gpu_enqueue}, .owner = g, .is_open = true};
            *stream = &g->stream[i];
        }
    if (code == 0 && *stream == NULL)
        abort();
    return code;
}

static inline void gpu_stream_close(void *context, void *stream)
{
    (void)context;
    gpu_stream *s = stream;
    if (s->first != NULL)
        abort(); /* something is still under way on it */
    s->is_open = false;
}

static inline int gpu_event_open(void *context, void **event)
{
    const int code = fake_call(context);
    *event = code == 0 ? calloc(1, sizeof(gpu_event)) : NULL;
    ((gpu *)context)->events += code == 0;
    return code;
}

static inline void gpu_event_close(void *context, void *event)
{
    gpu *g = context;
    for (int i = 0; i < GPU_STREAMS; i++)
        for (const gpu_item *w = g->stream[i].first; w != NULL; w = w->next)
            if (w->event == event)
                abort(); /* somebody waits for it */
    g->events--;
    free(event);
}

static inline int gpu_event_set(void *context, void *event, void *stream)
{
    const int code = fake_call(context);
    if (code != 0)
        return code;
    gpu_item *w = gpu_add(context, stream, GPU_SET);
    w->event = event;
    w->number = ++w->event->set;
    return 0;
}

static inline int gpu_stream_wait(void *context, void *stream, void *event)
{
    const int code = fake_call(context);
    if (code != 0)
        return code;
    gpu_item *w = gpu_add(context, stream, GPU_WAIT);
    w->event = event;
    w->number = w->event->set;
    return 0;
}

static inline int gpu_event_done(void *context, void *event, bool *done)
{
    gpu *g = context;
    const gpu_event *e = event;
    gpu_pump(g, (int)(gpu_random(g) % 24));
    *done = e->done >= e->set;
    return 0; /* how often it is asked depends on the weather */
}

static inline int gpu_stream_settle(void *context, void *stream)
{
    gpu_settle(context, gpu_stream_of(context, stream));
    return fake_call(context);
}

static inline int gpu_sum(void *context, const struct lp_digest_job *job, const void *data, void *sum, void *stream)
{
    const int code = fake_call(context);
    if (code != 0)
        return code;
    gpu_item *w = gpu_add(context, stream, GPU_SUM);
    w->job = *job;
    w->from = data;
    w->to = sum;
    return 0;
}

static inline int gpu_compare(void *context, const struct lp_change_compare *work, void *stream)
{
    const int code = fake_call(context);
    if (code == 0)
        gpu_add(context, stream, GPU_COMPARE)->compare = *work;
    return code;
}

static inline int gpu_table(void *context, const struct lp_change_table *work, void *stream)
{
    const int code = fake_call(context);
    if (code == 0)
        gpu_add(context, stream, GPU_TABLE)->table = *work;
    return code;
}

static inline int gpu_apply(void *context, const struct lp_change_apply *work, void *stream)
{
    const int code = fake_call(context);
    if (code == 0)
        gpu_add(context, stream, GPU_APPLY)->apply = *work;
    return code;
}

/* ---- life ---- */

static inline void gpu_open(gpu *g, uint64_t seed)
{
    memset(g, 0, sizeof *g);
    lp_device_calls c = fake_table(&g->f);
    g->random = seed * 2654435761u + 88172645463325252u;
    g->stream[0] = (gpu_stream){.owner = g, .is_open = true};
    c.context = g;
    c.copy = gpu_copy;
    c.copy_rows = gpu_copy_rows;
    c.gather = gpu_gather;
    c.clear = gpu_clear;
    c.dummy = gpu_dummy;
    c.wait = gpu_wait;
    c.program_open = gpu_program_open;
    c.program_close = gpu_program_close;
    c.program_bytes = gpu_program_bytes;
    c.program_push = gpu_program_push;
    c.derives_run = gpu_derives_run;
    c.derives_forget = gpu_derives_forget;
    c.derives_outcomes = gpu_derives_outcomes;
    c.digests = gpu_digests;
    g->calls = c;
    g->nccl = (lp_nccl_device){.context = g,
                               .error_text = fake_text,
                               .enter = gpu_enter,
                               .allocate = gpu_allocate,
                               .release = fake_give,
                               .store = gpu_move_now,
                               .fetch = gpu_move_now,
                               .stream_open = gpu_stream_open,
                               .stream_close = gpu_stream_close,
                               .event_open = gpu_event_open,
                               .event_close = gpu_event_close,
                               .event_set = gpu_event_set,
                               .event_done = gpu_event_done,
                               .stream_wait = gpu_stream_wait,
                               .stream_settle = gpu_stream_settle,
                               .take_pinned = gpu_take_pinned,
                               .give_pinned = fake_give,
                               .copy = gpu_copy,
                               .clear = gpu_clear,
                               .sum = gpu_sum,
                               .compare = gpu_compare,
                               .table = gpu_table,
                               .apply = gpu_apply};
}

/* Everything was given back, and nothing is under way. */
static inline void gpu_close(gpu *g)
{
    for (int i = 0; i < GPU_STREAMS; i++)
        assert_null(g->stream[i].first);
    for (int i = 1; i < GPU_STREAMS; i++)
        assert_false(g->stream[i].is_open);
    assert_int_equal(g->events, 0);
    assert_int_equal(g->f.blocks, 0);
    fake_end(&g->f);
}

#endif
