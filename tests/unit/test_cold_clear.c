/* SPDX-License-Identifier: Apache-2.0 */
/* What a cold start on a device zeroes: the storages of which it does not write every byte, and no others. */
#include "cold_device.h"
#include "random_worlds.h"

/* Columns [first, first + columns) of a destination from a source of that shape. */
static void add_columns(world *w, int from, int to, int64_t first)
{
    const int64_t rows = w->source[from].shape[0], columns = w->source[from].shape[1];
    w->call[w->ncall++] = (call){.source = from,
                                 .trigger = from,
                                 .dest = to,
                                 .dst_at = {0, first},
                                 .size = {rows, columns},
                                 .src_step = {columns, 1}};
}

static void mixed_world(world *w)
{
    const int left = add_source(w, "left", LP_F32, 4, 3), right = add_source(w, "right", LP_F32, 4, 5);
    const int rows = add_source(w, "rows", LP_F32, 3, 8), wide = add_source(w, "wide", LP_BF16, 4, 8);
    const int both = add_dest(w, "both", LP_F32, 4, 8, 0, "g"); /* two names, side by side */
    add_columns(w, left, both, 0);
    add_columns(w, right, both, 3);
    const int filled = add_dest(w, "filled", LP_F32, 4, 8, 0, "g"); /* a name and a constant */
    add_copy(w, rows, filled, 0, 3, 0);
    add_fill(w, -1, filled, 3, 1, 0x3f800000);
    add_copy(w, wide, add_dest(w, "cast", LP_F32, 4, 8, 0, "g"), 0, 4, 0);
    add_copy(w, rows, add_dest(w, "gaps", LP_F32, 3, 8, 8, "g"), 0, 3, 0); /* bytes that nobody owns */
    add_copy(w, rows, add_dest(w, "part", LP_F32, 4, 8, 0, "g"), 1, 3, 0);
    w->derive[w->nderive++] = (derive){DERIVE_MAX, add_dest(w, "most", LP_F32, 1, 1, 0, "g"), both, -1};
    build_world(w, NULL);
}

static int64_t bytes_of(const world *w, const char *name)
{
    int i = 0;
    while (strcmp(w->dest[i].name, name) != 0)
        i++;
    return w->dest[i].storage_bytes;
}

static void test_only_what_is_not_written(void **state)
{
    cold_bed b;
    host_device h;
    const lp_cold_device d = host_table(&h);
    (void)state;
    cold_open_world(&b, 3, mixed_world);
    assert_ok(&b.w, cold_try(&b, &d, NULL, NULL, &b.w.err)); /* device memory that is taken holds 0xee */
    assert_int_equal(h.cleared, bytes_of(&b.w, "gaps") + bytes_of(&b.w, "part") + bytes_of(&b.w, "most"));
    cold_close_bed(&b);
}

/* Where memory for the proof fails everything is cleared, or the load ends. */
static void test_every_allocation_fails_once(void **state)
{
    cold_bed b;
    host_device h;
    const lp_cold_device d = host_table(&h);
    int failed = 0;
    (void)state;
    cold_open_world(&b, 3, mixed_world);
    for (int64_t n = 0;; n++) {
        failing_once f = {.countdown = -1};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_once_resize};
        const lp_platform platform = {.io = b.platform.io, .alloc = &alloc};
        image live = new_image(&b.w);
        lp_error err;
        for (int i = 0; i < b.w.ndest; i++)
            memset(live.data[i], 0x5a, (size_t)b.w.dest[i].storage_bytes);
        lp_plan *plan = bind_image(&b.w, &live, &(lp_bind_options){.platform = &platform, .threads = 1});
        f.countdown = n;
        const lp_status status = lp_cold_load(&d, plan, b.ck, &(lp_cold_options){.readers = 1}, NULL, &err);
        if (status == LP_OK)
            assert_same_image(&b.w, &live, &b.want, "after a failed allocation");
        else
            assert_int_equal(status, LP_E_MEMORY);
        failed += status != LP_OK;
        assert_int_equal(atomic_load(&h.blocks), 0);
        lp_plan_close(plan);
        free_image(&b.w, &live);
        if (f.failed == 0)
            break;
    }
    assert_true(failed > 20);
    cold_close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_not_written),
        cmocka_unit_test(test_every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
