/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint from disk through a session on a device: exactly the bytes needed, in every mode, with faults of
 * files. The device is one in host memory. */
#include "cold_testing.h"
#include "device_testing.h"

typedef struct file_bed {
    cold_bed c;
    fake_device f;
    device_kit k;
    image live;
    lp_plan *plan;
} file_bed;

static void open_bed(file_bed *b, int64_t staging)
{
    cold_open_bed(&b->c);
    b->k = open_kit(&b->f);
    b->live = device_image(&b->k, &b->c.w);
    b->plan = bind_device(&b->k, &b->c.w, &b->live,
                          &(lp_bind_options){.platform = &b->c.platform, .threads = 1, .staging = staging});
}

static void close_bed(file_bed *b)
{
    lp_plan_close(b->plan);
    free_device_image(&b->k, &b->c.w, &b->live);
    assert_int_equal(b->f.blocks, 0);
    fake_end(&b->f);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mode),
        cmocka_unit_test(test_read_errors),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
