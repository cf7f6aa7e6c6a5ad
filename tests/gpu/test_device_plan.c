/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans bound to device memory: a trace of copies, casts, fills and writes over one another, pushed by handles in any
 * order and any split, gives the bytes of the model. Then a reload from other values, and what is refused.
 */
#include "gpu_check.h"
#include "replayer/device_plan.h"
#include "tests/unit/replay_testing.h"

/* An image of device blocks, filled with `poison`. */
static image device_image(const world *w, int poison)
{
    image m = {{NULL}};
    for (int i = 0; i < w->ndest; i++) {
        CUDA(cudaMalloc((void **)&m.data[i], (size_t)w->dest[i].storage_bytes));
        fill_device(m.data[i], poison, (size_t)w->dest[i].storage_bytes);
    }
    return m;
}

static void free_device_image(const world *w, image *m)
{
    for (int i = 0; i < w->ndest; i++)
        CUDA(cudaFree(m->data[i]));
}

static void assert_device(const world *w, const image *device, const image *want, const char *what)
{
    image have = new_image(w);
    for (int i = 0; i < w->ndest; i++)
        CUDA(cudaMemcpy(have.data[i], device->data[i], (size_t)w->dest[i].storage_bytes, cudaMemcpyDeviceToHost));
    assert_same_image(w, &have, want, what);
    free_image(w, &have);
}

static void make_world(world *w)
{
    const int gate = add_source(w, "a.gate", LP_BF16, 64, 96), up = add_source(w, "a.up", LP_BF16, 64, 96);
    const int scale = add_source(w, "b.scale", LP_F32, 32, 64), bias = add_source(w, "c.bias", LP_F32, 1, 40);
    const int bytes = add_source(w, "d.bytes", LP_U8, 7, 33), norm = add_source(w, "e.norm", LP_BF16, 1, 96);
    const int fused = add_dest(w, "fused", LP_BF16, 128, 96, 0, "a"),
              turned = add_dest(w, "turned", LP_F32, 64, 32, 0, "b");
    const int padded = add_dest(w, "padded", LP_F32, 3, 40, 24, "c"), odd = add_dest(w, "odd", LP_U8, 9, 33, 5, "d");
    const int wide = add_dest(w, "wide", LP_F32, 1, 96, 0, "e"), zero = add_dest(w, "zero", LP_F32, 4, 16, 0, "e");
    add_copy(w, gate, fused, 0, 64, 0);
    add_copy(w, up, fused, 64, 64, 0);
    w->call[w->ncall++] = (call){
        .source = scale, .trigger = scale, .dest = turned, .size = {64, 32}, .src_step = {1, 64}}; /* a transpose */
    add_fill(w, bias, padded, 0, 1, 0x3f800000);
    add_copy(w, bias, padded, 1, 1, 0);
    add_copy(w, bias, padded, 2, 1, 0);
    add_copy(w, bytes, odd, 2, 7, 0);
    add_fill(w, -1, odd, 0, 2, 0x77);
    add_copy(w, norm, wide, 0, 1, 0); /* a cast */
    add_fill(w, -1, zero, 0, 4, 0x40490fdb);
    build_world(w, NULL);
}

static void push(world *w, lp_device_plan *d, const lp_plan *plan, const payload *on_device, const int *order,
                 int count)
{
    lp_handle handle[SOURCES_MAX];
    const void *data[SOURCES_MAX];
    for (int i = 0; i < count; i++) {
        handle[i] = lp_plan_handle(plan, w->source[order[i]].name);
        data[i] = on_device->data[order[i]];
    }
    assert_ok(w, lp_device_plan_set(d, handle, data, count, NULL, &w->err));
    assert_ok(w, lp_device_plan_run(d, NULL, &w->err));
}

/* Uploads a payload, `shift` bytes beside multiples of 256. */
static payload upload(const world *w, const payload *p, char *arena, int64_t shift)
{
    payload on_device = {{NULL}};
    int64_t at = shift;
    for (int i = 0; i < w->nsource; i++) {
        put_device(arena + at, p->data[i], (size_t)w->source[i].bytes);
        on_device.data[i] = (uint8_t *)arena + at;
        at += (w->source[i].bytes + 255) / 256 * 256;
    }
    return on_device;
}

static void test_loads_and_reloads(void **state)
{
    static const int orders[3][6] = {{0, 1, 2, 3, 4, 5}, {5, 3, 1, 0, 2, 4}, {2, 5, 4, 3, 1, 0}};
    world w = {.random = 4};
    (void)state;
    make_world(&w);
    image live = device_image(&w, 0xee), want = new_image(&w);
    for (int i = 0; i < w.ndest; i++)
        memset(want.data[i], 0xee, (size_t)w.dest[i].storage_bytes);
    lp_plan *plan = bind_image(&w, &live, NULL);
    lp_device_plan *d;
    char *arena;
    assert_ok(&w, lp_device_plan_open(&d, plan, 0, &w.err));
    assert_true(lp_device_plan_bytes(d) > 0);
    CUDA(cudaMalloc((void **)&arena, 1 << 20));
    for (int round = 0; round < 6; round++) {
        payload p = make_payload(&w);
        const payload on_device = upload(&w, &p, arena, round % 2 * 4);
        const int *order = orders[round % 3], cut = round < 3 ? 6 : round - 2;
        assert_ok(&w, lp_device_plan_begin(d, NULL, &w.err));
        push(&w, d, plan, &on_device, order, cut);
        push(&w, d, plan, &on_device, order + cut, 6 - cut);
        CUDA(cudaDeviceSynchronize());
        model_load(&w, &p, &want);
        assert_device(&w, &live, &want, "after a reload");
        free_payload(&w, &p);
    }
    CUDA(cudaFree(arena));
    lp_device_plan_close(d);
    lp_plan_close(plan);
    free_device_image(&w, &live);
    free_image(&w, &want);
    free_world(&w);
}

static void test_refusals(void **state)
{
    world w = {.random = 9};
    (void)state;
    make_world(&w);
    image live = device_image(&w, 0);
    lp_plan *plan = bind_image(&w, &live, NULL);
    lp_device_plan *d;
    lp_error err;
    assert_ok(&w, lp_device_plan_open(&d, plan, 0, &w.err));
    const lp_handle gate = lp_plan_handle(plan, "a.gate");
    const lp_handle twice[2] = {gate, gate}, unknown[1] = {1000};
    const void *const data[2] = {live.data[0], live.data[0]}, *const none[1] = {NULL};
    assert_int_equal(lp_device_plan_set(d, twice, data, 2, NULL, &err), LP_E_DUPLICATE);
    assert_string_equal(err.text, "'a.gate' is pushed twice");
    assert_int_equal(lp_device_plan_set(d, unknown, data, 1, NULL, &err), LP_E_UNKNOWN_NAME);
    assert_int_equal(lp_device_plan_set(d, twice, none, 1, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_device_plan_set(d, twice, data, 1, NULL, &err), LP_OK); /* nothing of it was kept */
    lp_device_plan_close(d);
    lp_plan_close(plan);
    free_device_image(&w, &live);
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_and_reloads),
        cmocka_unit_test(test_refusals),
    };
    need_gpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
