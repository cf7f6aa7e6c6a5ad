/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline of cold starts on a device, with a device in host memory. */
#include "cold_device.h"

#include "replayer/device_cold_batches.h"
#include "replayer/device_cold_ring.h"
#include "replayer/source_ranges.h"

#include <fcntl.h>
#include <stdatomic.h>

static void test_loads(void **state)
{
    static const lp_cold_options options[] = {
        {0},
        {.readers = 1, .pinned = 1},
        {.readers = 3, .staging = 8 * 4096},
        {.readers = 16, .staging = 8 * 20000, .pinned = (int64_t)1 << 30},
        {.readers = 5, .staging = 64 << 20, .pinned = 24 << 20},
    };
    cold_bed b;
    host_device h;
    const lp_cold_device d = host_table(&h);
    (void)state;
    cold_open_bed(&b);
    const int64_t big = 1500 * 2048 * 2, columns = 3000 * 1024, near = 60 * 200, words = 512 * 640 * 4, tied = 90000;
    const int64_t needed = big + columns + near + words + tied + 2 * 3 * 2 + 7 * 33 + 48 + 2 * 48 + 40;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (int faults = 0; faults < 2; faults++) {
            lp_cold_report r;
            b.f.short_reads = b.f.interrupted = faults == 1;
            b.f.bytes = b.f.reads = 0;
            assert_ok(&b.w, cold_try(&b, &d, &options[i], &r, &b.w.err));
            assert_int_equal(b.f.bytes, needed); /* exactly what is needed; staged inputs once for each derive */
            assert_int_equal(r.bytes_read, needed);
            assert_int_equal(r.names, 11);
            assert_true(i != 2 || r.batches > 5); /* more than are planned before the first read */
            assert_int_equal(r.files, 1);
            assert_int_equal(r.derives_run, 4);
            assert_int_equal(r.bytes_written, needed - 2 * 48 - 12 + 24 + tied + 2 * 16 + 2 * 33 + 2 * 48 + 4);
            assert_true(r.pinned_bytes <= (options[i].pinned > LP_COLD_CHUNK ? options[i].pinned : (int64_t)128 << 20));
            assert_true(i == 0 || options[i].staging / 16 > big ||
                        r.bytes_straight >= (options[i].staging == 0 ? 0 : big));
            assert_int_equal(atomic_load(&h.blocks), 0);
        }
    cold_close_bed(&b);
}

/* Blocks of 4096 that hold a needed byte of the file, each once. */
static int64_t needed_blocks(const cold_bed *b)
{
    lp_cold_batches names = {.alloc = lp_alloc_default()};
    lp_plan *plan;
    image have = new_image(&b->w);
    uint8_t *is_needed;
    struct stat st;
    lp_error err;
    int64_t count = 0;
    assert_int_equal(stat(b->path, &st), 0);
    is_needed = calloc((size_t)st.st_size / 4096 + 1, 1);
    plan = bind_image((world *)(uintptr_t)&b->w, &have, NULL);
    assert_int_equal(lp_cold_names_list(&names, plan, b->ck, &err), LP_OK);
    for (int64_t n = 0; n < names.names; n++) {
        lp_ranges ranges;
        const int64_t at = names.name[n].tensor->file_off;
        lp_ranges_init(&ranges, lp_alloc_default());
        assert_int_equal(lp_plan_entry_ranges(plan, &plan->entry[names.name[n].entry], &ranges, &err), LP_OK);
        for (int64_t i = 0; i < ranges.count; i++)
            for (int64_t k = (at + ranges.item[i].lo) / 4096; k <= (at + ranges.item[i].hi - 1) / 4096; k++)
                is_needed[k] = 1;
        lp_ranges_free(&ranges);
    }
    for (int64_t k = 0; k <= st.st_size / 4096; k++)
        count += is_needed[k];
    lp_plan_close(plan);
    lp_cold_batches_free(&names);
    free(is_needed);
    free_image((world *)(uintptr_t)&b->w, &have);
    return count;
}

/* Around the page cache: at most 1.01 times the blocks that hold needed bytes, and one for each batch that begins in a
 * block of the one before. A refusal in the middle ends it without harm. */
static void test_direct_reads(void **state)
{
    static const lp_cold_options options[] = {
        {.reading = LP_COLD_READ_DIRECT},
        {.reading = LP_COLD_READ_DIRECT, .pinned = 1, .staging = 1},
        {.reading = LP_COLD_READ_DIRECT, .readers = 3, .pinned = 1 << 20, .staging = 8 << 20},
    };
    cold_bed b;
    host_device h;
    const lp_cold_device d = host_table(&h);
    (void)state;
    cold_open_bed(&b);
    const int64_t blocks = needed_blocks(&b);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (int faults = 0; faults < 4; faults++) {
            lp_cold_report r;
            b.f.short_reads = b.f.interrupted = faults == 1;
            b.f.refuses_direct = faults == 2;
            b.f.reads = b.f.direct_reads = b.f.blocks = 0;
            b.f.fail_at = faults == 3 ? 2 : -1; /* one that fails for another reason */
            b.f.failure = -EIO;
            assert_ok(&b.w, cold_try(&b, &d, &options[i], &r, &b.w.err));
            if (b.f.direct_reads == 0)
                continue; /* the file system does not do it */
            assert_int_equal(r.files_direct, faults < 2);
            assert_true(faults != 0 || b.f.blocks <= blocks + blocks / 100 + r.batches + 3); /* 3: staged inputs */
            assert_true(faults != 2 || r.bytes_read == r.bytes_needed || r.bytes_read < (blocks + r.batches) * 4096);
        }
    cold_close_bed(&b);
}

static void test_random_plans(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        cold_bed b;
        host_device h;
        lp_cold_report r;
        const lp_cold_device d = host_table(&h);
        cold_open_world(&b, seed, cold_random_world);
        const lp_cold_options o = {.readers = (int32_t)(1 + seed % 5),
                                   .pinned = seed % 3 == 0 ? 0 : (int64_t)1 << (17 + seed % 6),
                                   .staging = seed % 2 == 0 ? 0 : (int64_t)8 << (16 + seed % 5),
                                   .reading = seed % 4 < 2 ? LP_COLD_READ_CACHED : LP_COLD_READ_DIRECT};
        b.f.short_reads = seed % 7 == 0;
        assert_ok(&b.w, cold_try(&b, &d, &o, &r, &b.w.err));
        if (r.files_direct == 0)
            assert_int_equal(r.bytes_read, r.bytes_needed);
        cold_close_bed(&b);
    }
}

/* A ring serves loads of several sizes one after another, also behind one that failed. */
static void test_a_ring_is_kept(void **state)
{
    static const lp_cold_options options[] = {
        {.staging = 1, .pinned = 1, .readers = 1}, {0}, {.staging = 1 << 20, .pinned = 2 << 20}, {.readers = 5}};
    cold_bed b;
    host_device h;
    lp_cold_ring *ring;
    lp_error err;
    const lp_cold_device d = host_table(&h);
    (void)state;
    cold_open_bed(&b);
    assert_ok(&b.w, lp_cold_ring_new(&ring, &d, &b.platform, &b.w.err));
    assert_true(lp_cold_ring_link_rate(ring) == 0);
    for (size_t i = 0; i < 8; i++) {
        lp_cold_options o = options[i % 4];
        lp_cold_report r;
        o.ring = ring;
        b.f.reads = 0;
        b.f.fail_at = 3;
        b.f.failure = -EIO;
        assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_IO);
        b.f.fail_at = -1;
        assert_ok(&b.w, cold_try(&b, &d, &o, &r, &b.w.err));
    }
    assert_true(lp_cold_ring_link_rate(ring) > 0);
    assert_true(atomic_load(&h.blocks) > 0);
    lp_cold_ring_free(ring);
    assert_int_equal(atomic_load(&h.blocks), 0);
    cold_close_bed(&b);
}

/* A ring that takes its memory while other things are done, with every call failing once, whoever makes it: what fails
 * for the ring is taken again by the load. */
static void test_a_ring_starts_early(void **state)
{
    cold_bed b;
    host_device h;
    lp_error err;
    lp_cold_memory memory;
    lp_plan *plan = NULL;
    lp_cold_report r;
    const lp_cold_device d = host_table(&h);
    const lp_bind_options bind = {.platform = &b.platform, .threads = 1};
    int loads = 0;
    bool is_past = false;
    (void)state;
    cold_open_bed(&b);
    lp_cold_options o = {.readers = 2, .pinned = 1, .staging = 8 * 4096};
    assert_ok(&b.w, lp_cold_ring_new(&o.ring, &d, &b.platform, &b.w.err));
    lp_cold_ring_start(o.ring, NULL);
    assert_ok(&b.w, cold_try(&b, &d, &o, &r, &b.w.err)); /* the bytes are right */
    assert_int_equal(r.pinned_bytes, LP_COLD_PINNED);
    lp_cold_ring_free(o.ring);
    assert_ok(&b.w, lp_cold_memory_take(&memory, &d, b.w.trace, NULL, &b.platform, &b.w.err));
    assert_ok(&b.w, lp_bind(&plan, b.w.trace, NULL, memory.list, memory.count, &bind, &b.w.err));
    for (int n = 0; !is_past; n += n < 12 ? 1 : 41) { /* the ring's calls, some of the load's */
        assert_ok(&b.w, lp_cold_ring_new(&o.ring, &d, &b.platform, &b.w.err));
        atomic_store(&h.calls, 0);
        h.fail_at = n;
        lp_cold_ring_start(o.ring, &o);
        if (n % 3 == 0)
            lp_cold_ring_start(o.ring, &o);
        if (n != 7) { /* it may never be used */
            const lp_status status = lp_cold_load(&d, plan, b.ck, &o, NULL, &err);
            assert_true(status == LP_OK || status == LP_E_DEVICE);
            loads += status == LP_OK;
            is_past = atomic_load(&h.calls) <= n;
            assert_true(!is_past || status == LP_OK);
        }
        lp_cold_ring_free(o.ring);
        assert_int_equal(atomic_load(&h.blocks), 1); /* the destinations */
    }
    assert_true(loads > 1);
    lp_plan_close(plan);
    h.fail_at = -1;
    lp_cold_memory_give_back(&memory);
    cold_close_bed(&b);
}

/* Files that answer late, as those of a network do. */
static void test_slow_files(void **state)
{
    cold_bed b;
    host_device h;
    lp_cold_report r;
    const lp_cold_device d = host_table(&h);
    const lp_cold_options o = {.readers = 16, .pinned = 1 << 20};
    (void)state;
    cold_open_bed(&b);
    b.f.slow = true;
    b.f.reads = 0;
    assert_ok(&b.w, cold_try(&b, &d, &o, &r, &b.w.err));
    assert_true(b.f.inside_most >= COLD_COMPANY); /* readers wait side by side */
    cold_close_bed(&b);
}

static void test_faults_of_files(void **state)
{
    static const struct {
        int64_t at, failure;
        lp_status status;
    } faults[] = {{0, -EIO, LP_E_IO}, {3, -EIO, LP_E_IO}, {2, 0, LP_E_CORRUPT}};
    cold_bed b;
    host_device h;
    lp_error err;
    const lp_cold_device d = host_table(&h);
    const lp_cold_options o = {.readers = 4, .staging = 8 * 4096};
    (void)state;
    cold_open_bed(&b);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        b.f.reads = 0;
        b.f.fail_at = faults[i].at;
        b.f.failure = faults[i].failure;
        assert_int_equal(cold_try(&b, &d, &o, NULL, &err), faults[i].status);
        assert_non_null(strstr(err.text, "model.safetensors"));
        assert_int_equal(atomic_load(&h.blocks), 0);
    }
    b.f.reads = 0;
    b.f.fail_at = 1;
    b.f.touch = b.path;
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_CORRUPT);
    assert_non_null(strstr(err.text, "changed since its header was read"));
    b.f.fail_at = -1;
    b.f.touch = NULL;
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_CORRUPT); /* it is not the file whose header was read */
    lp_checkpoint_close(b.ck);
    assert_ok(&b.w, lp_checkpoint_open_with(&b.ck, b.folder, &b.platform, &b.w.err));
    assert_ok(&b.w, cold_try(&b, &d, &o, NULL, &b.w.err));
    assert_int_equal(truncate(b.path, b.f.payload_off + 1000), 0);
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_CORRUPT);
    unlink(b.path);
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_IO);
    cold_close_bed(&b);
}

/* Two rows that a check wants alike, and that are not. */
static void world_of_a_failing_check(world *w)
{
    const int from = add_source(w, "w13", LP_F32, 2, 3), to = add_dest(w, "w13", LP_F32, 2, 3, 0, "g");
    add_copy(w, from, to, 0, 2, 0);
    w->derive[w->nderive++] = (derive){DERIVE_CLOSE, -1, to, -1};
    build_world(w, NULL);
}

/* A check that fails is told, but not where the files changed under it. */
static void test_failed_checks(void **state)
{
    cold_bed b;
    host_device h;
    lp_error err;
    const lp_cold_device d = host_table(&h);
    const lp_cold_options o = {.readers = 1};
    (void)state;
    cold_open_world(&b, 5, world_of_a_failing_check);
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_VALUE);
    assert_non_null(strstr(err.text, "w1 and w3 differ for expert 0: "));
    assert_string_equal(err.subject, b.w.dest[b.w.derive[0].input].name); /* as sessions say it */
    b.f.reads = 0;
    b.f.fail_at = 0;
    b.f.touch = b.path;
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_CORRUPT);
    assert_non_null(strstr(err.text, "changed since its header was read"));
    assert_int_equal(atomic_load(&h.blocks), 0);
    cold_close_bed(&b);
}

/* A fallback that a derive waits for, and a name that has nothing to do with it. */
static void world_of_a_fallback(world *w)
{
    add_source(w, "scale", LP_F32, 1, 4);
    const int plain = add_source(w, "plain", LP_F32, 2, 4);
    const int scale = add_dest(w, "scales", LP_F32, 1, 4, 0, "g");
    add_copy(w, plain, add_dest(w, "copy", LP_F32, 2, 4, 0, "g"), 0, 2, 0);
    w->derive[w->nderive++] = (derive){DERIVE_MAX, add_dest(w, "most", LP_F32, 1, 1, 0, "g"), scale, -1};
    build_world(w, refuse_scale);
}

static void test_fallbacks(void **state)
{
    cold_bed b;
    host_device h;
    lp_error err;
    lp_cold_report r;
    const lp_cold_device d = host_table(&h);
    (void)state;
    cold_open_world(&b, 6, world_of_a_fallback);
    memset(b.want.data[2], 0, 4); /* what it feeds is skipped */
    assert_int_equal(cold_try(&b, &d, &(lp_cold_options){.readers = 1}, NULL, &err), LP_E_INCOMPLETE);
    assert_string_equal(err.text, "1 name is missing: 'scale' (a fallback)");
    assert_ok(&b.w, cold_try(&b, &d, &(lp_cold_options){.readers = 1, .allow_fallbacks = true}, &r, &b.w.err));
    assert_int_equal(r.fallbacks, 1);
    assert_int_equal(r.derives_skipped, 1);
    assert_int_equal(r.derives_run, 0);
    assert_int_equal(r.bytes_needed, 32);
    cold_close_bed(&b);
}

/* Every call of the device fails once: always a clean error, and everything is given back. */
static void test_faults_of_the_device(void **state)
{
    cold_bed b;
    host_device h;
    lp_cold_report r;
    const lp_cold_device d = host_table(&h);
    const lp_cold_options o = {.readers = 2, .staging = 8 * 4096};
    lp_error err;
    (void)state;
    cold_open_bed(&b);
    int failures = 0;
    for (int n = 1;; n++) { /* call 0 takes the destinations */
        lp_cold_memory memory;
        lp_plan *plan = NULL;
        atomic_store(&h.calls, 0);
        h.fail_at = n;
        assert_ok(&b.w, lp_cold_memory_take(&memory, &d, b.w.trace, NULL, &b.platform, &b.w.err));
        const lp_bind_options bind = {.platform = &b.platform, .threads = 1};
        assert_ok(&b.w, lp_bind(&plan, b.w.trace, NULL, memory.list, memory.count, &bind, &b.w.err));
        const lp_status status = lp_cold_load(&d, plan, b.ck, &o, &r, &err);
        const bool is_past = atomic_load(&h.calls) <= n;
        lp_plan_close(plan);
        lp_cold_memory_give_back(&memory);
        assert_int_equal(atomic_load(&h.blocks), 0);
        if (is_past) {
            assert_int_equal(status, LP_OK);
            break;
        }
        if (status != LP_OK) { /* the last calls are those of closing */
            assert_int_equal(status, LP_E_DEVICE);
            failures++;
        }
    }
    assert_true(failures > 40);
    h.fail_at = 0;
    atomic_store(&h.calls, 0);
    lp_cold_memory memory;
    assert_int_equal(lp_cold_memory_take(&memory, &d, b.w.trace, NULL, &b.platform, &err), LP_E_DEVICE);
    assert_non_null(strstr(err.text, "of device memory for the tensors: it fails on demand"));
    cold_close_bed(&b);
}

static int stop_at_once(void *context, int64_t done, int64_t total)
{
    (void)context;
    assert_true(done >= 0 && done <= total);
    return 1;
}

static void test_the_caller_can_stop(void **state)
{
    cold_bed b;
    host_device h;
    lp_error err;
    const lp_cold_device d = host_table(&h);
    const lp_cold_options o = {.readers = 4, .staging = 8 * 4096, .progress = stop_at_once};
    (void)state;
    cold_open_bed(&b);
    assert_int_equal(cold_try(&b, &d, &o, NULL, &err), LP_E_IO);
    assert_string_equal(err.text, "reading was stopped by the caller");
    assert_int_equal(cold_try(&b, &d, &(lp_cold_options){.staging = -1}, NULL, &err), LP_E_ARGUMENT);
    cold_close_bed(&b);
}

/* Copies are as large as pays, and pinned memory no more than a small load can use. */
static void test_sizes(void **state)
{
    static const struct {
        int64_t pinned, needed, chunk, buffers;
        bool is_direct;
    } c[] = {
        {0, INT64_MAX, 16 << 20, 8, false},
        {0, (int64_t)2 << 30, 16 << 20, 8, false},
        {0, (int64_t)2 << 30, 8 << 20, 16, true},
        {0, 1000, 8 << 20, 16, false},
        {0, 100 << 20, 12800 << 10, 10, false},
        {1 << 20, (int64_t)2 << 30, 256 << 10, 4, false},
        {1, 0, 64 << 10, 4, false},
        {(int64_t)1 << 30, (int64_t)2 << 30, 16 << 20, 64, false},
        {(int64_t)1 << 40, 0, 8 << 20, 64, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        const lp_cold_sizes s =
            lp_cold_sizes_of(&(lp_cold_options){.pinned = c[i].pinned}, c[i].needed, c[i].is_direct);
        assert_int_equal(s.chunk, c[i].chunk);
        assert_int_equal(s.buffers, c[i].buffers);
        assert_int_equal(s.slot, LP_COLD_STAGING / LP_COLD_SLOTS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_direct_reads),
        cmocka_unit_test(test_random_plans),
        cmocka_unit_test(test_a_ring_is_kept),
        cmocka_unit_test(test_a_ring_starts_early),
        cmocka_unit_test(test_slow_files),
        cmocka_unit_test(test_faults_of_files),
        cmocka_unit_test(test_failed_checks),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_faults_of_the_device),
        cmocka_unit_test(test_the_caller_can_stop),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
