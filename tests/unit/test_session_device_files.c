/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint from disk through a session on a device: exactly the bytes needed, in every mode, with faults of
 * files. The device is one in host memory. */
#include "cold_testing.h"
#include "device_testing.h"

#include <time.h>

enum { WORLDS = 40 };

typedef struct file_bed {
    cold_bed c;
    fake_device f;
    device_kit k;
    image live;
    lp_plan *plan;
} file_bed;

static void bind_bed(file_bed *b, int64_t staging, int32_t threads)
{
    b->k = open_kit(&b->f);
    b->live = device_image(&b->k, &b->c.w);
    b->plan = bind_device(&b->k, &b->c.w, &b->live,
                          &(lp_bind_options){.platform = &b->c.platform, .threads = threads, .staging = staging});
}

static void open_bed(file_bed *b, int64_t staging)
{
    cold_open_bed(&b->c);
    bind_bed(b, staging, 1);
}

static void unbind_bed(file_bed *b)
{
    lp_plan_close(b->plan);
    free_device_image(&b->k, &b->c.w, &b->live);
    assert_int_equal(b->f.blocks, 0);
    fake_end(&b->f);
}

static void close_bed(file_bed *b)
{
    unbind_bed(b);
    cold_close_bed(&b->c);
}

static lp_status load(file_bed *b, lp_load_mode mode, lp_read_stats *stats, lp_error *err)
{
    lp_session *s = NULL;
    const lp_session_options o = {.mode = mode};
    assert_ok(&b->c.w, lp_begin(&s, b->plan, &o, &b->c.w.err));
    lp_status status = lp_push_checkpoint_with(s, b->c.ck, stats, NULL, NULL, err);
    if (status == LP_OK)
        status = lp_finish(s, NULL, err);
    lp_session_close(s);
    return status;
}

static void clear_live(file_bed *b)
{
    fake_do_all(&b->f);
    for (int i = 0; i < b->c.w.ndest; i++)
        memset(b->live.data[i], 0, (size_t)b->c.w.dest[i].storage_bytes);
}

static const lp_load_mode MODES[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};

static void test_every_mode(void **state)
{
    file_bed b;
    lp_read_stats stats;
    int64_t needed = 0;
    (void)state;
    open_bed(&b, 64 << 20);
    for (int m = 0; m < 6; m++) {
        clear_live(&b);
        b.c.f.short_reads = b.c.f.interrupted = m >= 3;
        b.c.f.reads = b.c.f.bytes = 0;
        assert_ok(&b.c.w, load(&b, MODES[m % 3], &stats, &b.c.w.err));
        assert_device_image(&b.k, &b.c.w, &b.live, &b.c.want, "from files");
        assert_int_equal(stats.bytes_read, b.c.f.bytes);
        needed = needed == 0 ? stats.bytes_read : needed;
        assert_int_equal(stats.bytes_read, needed); /* no byte twice, whatever the mode */
        assert_int_equal(stats.files, 1);
    }
    close_bed(&b);
}

/* After an error that is not of the file's content the call is repeated and reads what is missing. */
static void test_read_errors(void **state)
{
    file_bed b;
    lp_session *s;
    lp_error err;
    lp_read_stats first, second;
    (void)state;
    open_bed(&b, 64 << 20);
    clear_live(&b);
    b.c.f.fail_at = 5;
    b.c.f.failure = -EIO;
    assert_ok(&b.c.w, lp_begin(&s, b.plan, &(lp_session_options){.mode = LP_DIRECT}, &b.c.w.err));
    assert_int_equal(lp_push_checkpoint_with(s, b.c.ck, &first, NULL, NULL, &err), LP_E_IO);
    assert_non_null(strstr(err.text, "model.safetensors"));
    assert_ok(&b.c.w, lp_push_checkpoint_with(s, b.c.ck, &second, NULL, NULL, &b.c.w.err));
    assert_ok(&b.c.w, lp_finish(s, NULL, &b.c.w.err));
    lp_session_close(s);
    assert_device_image(&b.k, &b.c.w, &b.live, &b.c.want, "after a read error");
    b.c.f.reads = b.c.f.bytes = 0;
    b.c.f.fail_at = 2;
    b.c.f.failure = 0;
    assert_int_equal(load(&b, LP_COLD, NULL, &err), LP_E_CORRUPT);
    assert_non_null(strstr(err.text, "ends at byte"));
    b.c.f.reads = 0;
    b.c.f.fail_at = 1;
    b.c.f.touch = b.c.path;
    assert_int_equal(load(&b, LP_COLD, NULL, &err), LP_E_CORRUPT);
    assert_non_null(strstr(err.text, "changed since its header was read"));
    close_bed(&b);
}

/* The largest name has 6,144,000 bytes. */
static void test_room(void **state)
{
    file_bed b;
    lp_error err;
    (void)state;
    open_bed(&b, 4 << 20);
    assert_int_equal(load(&b, LP_COLD, NULL, &err), LP_E_LIMIT);
    assert_non_null(strstr(err.text, "'z.big' needs 6144000 bytes of device staging"));
    close_bed(&b);
    open_bed(&b, 0); /* what direct sessions need */
    clear_live(&b);
    assert_ok(&b.c.w, load(&b, LP_DIRECT, NULL, &b.c.w.err));
    assert_device_image(&b.k, &b.c.w, &b.live, &b.c.want, "with the default staging");
    close_bed(&b);
}

static void large_world(world *w)
{
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        const int from = add_source(w, name, LP_U8, 900, 4096);
        add_copy(w, from, add_dest(w, name, LP_U8, 900, 4096, 0, "g"), 0, 900, 0);
    }
    build_world(w, NULL);
}

/* Through both halves of pinned memory, which a device that is slow to copy still reads when they are asked for again;
 * without it where it cannot be had. */
static void test_large_files(void **state)
{
    file_bed b;
    (void)state;
    cold_open_world(&b.c, 9, large_world);
    for (int m = 0; m < 4; m++) {
        lp_read_stats stats;
        bind_bed(&b, 32 << 20, 3);
        clear_live(&b);
        b.f.has_no_pinned = m == 3;
        assert_ok(&b.c.w, load(&b, m == 3 ? LP_DIRECT : MODES[m], &stats, &b.c.w.err));
        assert_device_image(&b.k, &b.c.w, &b.live, &b.c.want, "of large files");
        assert_int_equal(stats.bytes_read, 5 * 900 * 4096);
        unbind_bed(&b);
    }
    cold_close_bed(&b.c);
}

/* With the least room, in powers of two, that bind accepts. */
static void bind_tightly(file_bed *b, int32_t threads)
{
    world *w = &b->c.w;
    lp_destination_memory memory[DESTS_MAX];
    lp_bind_options o = {.platform = &b->c.platform, .threads = threads, .staging = 64};
    lp_status status = LP_E_LIMIT;
    b->k = open_kit(&b->f);
    b->live = device_image(&b->k, w);
    describe_image(w, &b->live, memory);
    for (; status == LP_E_LIMIT; o.staging *= 2)
        status = lp_bind_with(&b->plan, w->trace, NULL, memory, w->ndest, &o, &b->f.calls_table, &w->err);
    assert_ok(w, status);
    b->f.is_bound = true;
}

/* Random worlds, read in every mode with little room, or with some. What finds none in the order of the files, and
 * after others have made some, is refused. */
static void test_random_worlds(void **state)
{
    const uint64_t first = random_first_seed((uint64_t)time(NULL) * 1000);
    int refused = 0;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)first);
    for (uint64_t n = 0; n < random_cases(WORLDS); n++) {
        file_bed b;
        lp_error err;
        memset(&b.c, 0, sizeof b.c);
        random_world(&b.c.w, first + n);
        cold_write_world(&b.c, first + n);
        if (n % 2 == 0)
            bind_tightly(&b, 1 + (int32_t)(n % 4));
        else
            bind_bed(&b, (int64_t)4096 << n % 6, 1 + (int32_t)(n % 4));
        for (int m = 0; m < 3; m++) {
            clear_live(&b);
            b.c.f.short_reads = pick(&b.c.w, 2) == 0;
            const lp_status status = load(&b, m == 0 ? LP_COLD : MODES[1 + pick(&b.c.w, 2)], NULL, &err);
            refused += status == LP_E_LIMIT;
            if (status != LP_OK && status != LP_E_LIMIT)
                print_error("seed %llu: %s\n", (unsigned long long)(first + n), err.text);
            assert_true(status == LP_OK || status == LP_E_LIMIT);
            if (status == LP_OK)
                assert_device_image(&b.k, &b.c.w, &b.live, &b.c.want, "of a random world");
            else if (m == 0)
                break; /* too little room for this world */
        }
        close_bed(&b);
    }
    print_message("%d loads had no room\n", refused);
    assert_true(refused < WORLDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mode),  cmocka_unit_test(test_read_errors),   cmocka_unit_test(test_room),
        cmocka_unit_test(test_large_files), cmocka_unit_test(test_random_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
