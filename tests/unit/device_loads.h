/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle for sessions on a device: random worlds, loaded in every mode, order and split from host and device
 * memory, must leave the model's bytes, and report what a session in host memory reports. Who includes this says what a
 * device is.
 */
#ifndef LOADPLAN_DEVICE_LOADS_H
#define LOADPLAN_DEVICE_LOADS_H

#include "random_worlds.h"

/* What the tests need of a device besides sessions. Nothing of it fails. */
typedef struct device_kit {
    void *context;
    void *(*take)(void *context, int64_t bytes);
    void (*give)(void *context, void *memory);
    void (*put)(void *context, void *device, const void *host, int64_t bytes);
    void (*get)(void *context, void *host, const void *device, int64_t bytes);
    void (*bind)(void *context, lp_plan **out, world *w, const lp_destination_memory *memory, const lp_bind_options *o);
    void (*settle)(void *context); /* ends everything that is under way */
    void *stream;
} device_kit;

/* One block for each storage, by destination. */
static inline image device_image(const device_kit *k, const world *w)
{
    image m = {{NULL}};
    for (int i = 0; i < w->ndest; i++) {
        const int owner = owner_of(w, i);
        m.data[i] = owner < i ? m.data[owner] : k->take(k->context, w->dest[i].storage_bytes);
    }
    return m;
}

static inline void free_device_image(const device_kit *k, const world *w, image *m)
{
    for (int i = 0; i < w->ndest; i++)
        if (owner_of(w, i) == i)
            k->give(k->context, m->data[i]);
}

static inline void put_image(const device_kit *k, const world *w, const image *device, const image *host)
{
    for (int i = 0; i < w->ndest; i++)
        k->put(k->context, device->data[i], host->data[i], w->dest[i].storage_bytes);
}

static inline void assert_device_image(const device_kit *k, const world *w, const image *device, const image *want,
                                       const char *what)
{
    image have = new_image(w);
    k->settle(k->context);
    for (int i = 0; i < w->ndest; i++)
        k->get(k->context, have.data[i], device->data[i], w->dest[i].storage_bytes);
    assert_same_image(w, &have, want, what);
    free_image(w, &have);
}

/* Payloads on the device, each `shift` bytes beside its block's beginning. */
static inline payload device_payload(const device_kit *k, const world *w, const payload *p, int64_t shift)
{
    payload on = {{NULL}};
    for (int i = 0; i < w->nsource; i++) {
        on.data[i] = k->take(k->context, w->source[i].bytes + 16);
        on.data[i] += shift;
        k->put(k->context, on.data[i], p->data[i], w->source[i].bytes);
    }
    return on;
}

static inline void free_device_payload(const device_kit *k, const world *w, payload *p, int64_t shift)
{
    for (int i = 0; i < w->nsource; i++)
        k->give(k->context, p->data[i] - shift);
}

static inline lp_plan *bind_device(const device_kit *k, world *w, const image *m, const lp_bind_options *options)
{
    lp_destination_memory memory[DESTS_MAX];
    lp_plan *plan = NULL;
    describe_image(w, m, memory);
    k->bind(k->context, &plan, w, memory, options);
    return plan;
}

/* ---- ways to push ---- */

/* Transposed in memory, rows sometimes from the last to the first, so that lp_push gets strides of either sign; an
 * element a gap, on the host or the device. */
static inline lp_status push_turned(const device_kit *k, world *w, lp_session *s, const payload *p, int i,
                                    bool on_device)
{
    const source *src = &w->source[i];
    const int64_t e = elem(src->dtype), rows = src->shape[0], columns = src->shape[1];
    const bool turns = pick(w, 2) == 0;
    const int64_t stride[2] = {turns ? -e : e, rows * e + e};
    const int64_t bytes = columns * stride[1], first = turns ? (rows - 1) * e : 0;
    uint8_t *turned = calloc(1, (size_t)bytes);
    void *memory = turned;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            memcpy(turned + first + r * stride[0] + c * stride[1], p->data[i] + (r * columns + c) * e, (size_t)e);
    if (on_device) {
        memory = k->take(k->context, bytes);
        k->put(k->context, memory, turned, bytes);
    }
    const lp_buffer buffer = {
        .data = (uint8_t *)memory + first, .dtype = src->dtype, .ndim = 2, .shape = src->shape, .stride = stride};
    const lp_status status = lp_push(s, src->name, &buffer, &w->err);
    if (on_device) {
        k->settle(k->context); /* the device may be reading it */
        k->give(k->context, memory);
    }
    free(turned);
    return status;
}

typedef struct piece_list {
    piece item[600];
    int count;
} piece_list;

static inline lp_status push_piece(const device_kit *k, world *w, lp_session *s, const payload *host,
                                   const payload *device, const piece *x)
{
    const int64_t way = pick(w, 6);
    const source *src = &w->source[x->source];
    if (x->lo == 0 && x->hi == src->bytes && way < 2)
        return push_turned(k, w, s, host, x->source, way == 0);
    if (way == 2 || way == 3)
        return lp_push_range(s, src->name, x->lo, host->data[x->source] + x->lo, x->hi - x->lo, &w->err);
    return lp_push_range(s, src->name, x->lo, device->data[x->source] + x->lo, x->hi - x->lo, &w->err);
}

/* Pieces one by one in a random order; what is refused for want of room comes again later. */
static inline void push_device_pieces(const device_kit *k, world *w, lp_session *s, const payload *host,
                                      const payload *device, bool is_whole)
{
    piece_list *list = malloc(sizeof *list);
    list->count = cut_pieces(w, list->item, 600, is_whole);
    while (list->count > 0) {
        int kept = 0;
        for (int i = 0; i < list->count; i++) {
            const lp_status status = push_piece(k, w, s, host, device, &list->item[i]);
            if (status == LP_E_LIMIT)
                list->item[kept++] = list->item[i];
            else
                assert_ok(w, status);
        }
        assert_true(kept < list->count); /* else no order would fit the budget */
        list->count = kept;
    }
    free(list);
}

/* All names in two calls of push_many, each in a random order; mixed: some from the host. */
static inline void push_device_many(world *w, lp_session *s, lp_plan *plan, const payload *host, const payload *device,
                                    bool mixed)
{
    lp_handle handle[SOURCES_MAX];
    const void *data[SOURCES_MAX];
    for (int i = 0; i < w->nsource; i++) {
        handle[i] = lp_plan_handle(plan, w->source[i].name);
        data[i] = mixed && pick(w, 2) == 0 ? host->data[i] : device->data[i];
    }
    for (int i = w->nsource - 1; i > 0; i--) {
        const int j = (int)pick(w, i + 1);
        const lp_handle h = handle[i];
        const void *const d = data[i];
        handle[i] = handle[j];
        data[i] = data[j];
        handle[j] = h;
        data[j] = d;
    }
    const int64_t cut = pick(w, w->nsource + 1);
    assert_ok(w, lp_push_many(s, handle, data, cut, &w->err));
    assert_ok(w, lp_push_many(s, handle + cut, data + cut, w->nsource - cut, &w->err));
}

static inline void device_load(const device_kit *k, world *w, lp_plan *plan, const payload *host, const payload *device,
                               lp_load_mode mode, int way, lp_report *report)
{
    lp_session *s;
    const lp_session_options o = {.mode = mode, .digests = true, .stream = k->stream};
    assert_ok(w, lp_begin(&s, plan, &o, &w->err));
    if (way < 2)
        push_device_pieces(k, w, s, host, device, way == 0);
    else
        push_device_many(w, s, plan, host, device, way == 3);
    assert_ok(w, lp_finish(s, report, &w->err));
    lp_session_close(s);
}

/* ---- the oracle ---- */

/* Numbers that do not depend on where the memory lies. */
static inline void assert_same_report(const lp_report *device, const lp_report *host)
{
    assert_int_equal(device->bytes_pushed, host->bytes_pushed);
    assert_int_equal(device->bytes_written, host->bytes_written);
    assert_int_equal(device->names_loaded, host->names_loaded);
    assert_int_equal(device->derives_run, host->derives_run);
    assert_int_equal(device->tensors_changed, host->tensors_changed);
    assert_int_equal(device->tensors_unchanged, host->tensors_unchanged);
}

static inline void host_report(world *w, const payload *from, const payload *to, lp_report *report)
{
    const payload *const p[2] = {from, to};
    image live = new_image(w);
    lp_plan *plan = bind_image(w, &live, NULL);
    for (int i = 0; i < 2; i++) {
        lp_session *s;
        assert_ok(w, lp_begin(&s, plan, &(lp_session_options){.mode = i == 0 ? LP_COLD : LP_DIRECT, .digests = true},
                              &w->err));
        push_all(w, s, p[i]);
        assert_ok(w, lp_finish(s, report, &w->err));
        lp_session_close(s);
    }
    lp_plan_close(plan);
    free_image(w, &live);
}

/* cold(A), then for each mode: A to B, B again, back to A. `make` draws the world. */
static inline void check_world(const device_kit *k, void (*make)(world *w, uint64_t seed), uint64_t seed,
                               const lp_bind_options *options)
{
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    world w;
    char what[64];
    lp_report report, want_report;
    make(&w, seed);
    failing_seed = seed;
    const int64_t shift = (int64_t)(seed % 3) * 4;
    payload a = make_payload(&w), b = make_payload(&w);
    payload device_a = device_payload(k, &w, &a, shift), device_b = device_payload(k, &w, &b, shift);
    image live = device_image(k, &w), old = new_image(&w), want_a = new_image(&w), want_b = new_image(&w);
    model_load(&w, &a, &want_a);
    model_load(&w, &b, &want_b);
    host_report(&w, &a, &b, &want_report);
    for (int i = 0; i < w.ndest; i++)
        memset(old.data[i], 0x5a, (size_t)w.dest[i].storage_bytes);
    put_image(k, &w, &live, &old);
    lp_plan *plan = bind_device(k, &w, &live, options);
    device_load(k, &w, plan, &a, &device_a, LP_COLD, (int)(seed % 4), &report);
    assert_device_image(k, &w, &live, &want_a, "cold start with A");
    for (int m = 0; m < 3; m++) {
        snprintf(what, sizeof what, "mode %d after %s", (int)modes[m], m == 0 ? "A" : "another");
        device_load(k, &w, plan, &b, &device_b, modes[m], (int)(seed + 1) % 4, &report);
        assert_device_image(k, &w, &live, &want_b, what);
        if (modes[m] != LP_COLD)
            assert_same_report(&report, &want_report);
        device_load(k, &w, plan, &b, &device_b, modes[m], (int)(seed + 2) % 4, &report);
        assert_device_image(k, &w, &live, &want_b, "B again");
        if (modes[m] != LP_COLD)
            assert_int_equal(report.tensors_changed, 0);
        device_load(k, &w, plan, &a, &device_a, modes[(m + 1) % 3], (int)(seed + 3) % 4, &report);
        assert_device_image(k, &w, &live, &want_a, "back to A");
    }
    lp_plan_close(plan);
    free_device_image(k, &w, &live);
    free_device_payload(k, &w, &device_a, shift);
    free_device_payload(k, &w, &device_b, shift);
    free_image(&w, &old);
    free_image(&w, &want_a);
    free_image(&w, &want_b);
    free_payload(&w, &a);
    free_payload(&w, &b);
    free_world(&w);
}

#endif
