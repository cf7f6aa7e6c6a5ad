/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs between devices whose payloads never leave their memory, over a fake library and devices in host memory whose
 * streams go on in any order that events allow: equal to a load, and clean when any call fails.
 */
#include "sync_device_world.h"

#include "replayer/sync_sum.h"

static const lp_load_mode LOADS[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};

static void packed_frames_stay_on_the_device(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int senders = 1; senders <= 2; senders++)
        for (int load = 0; load < 3; load++)
            for (int64_t bucket = 512; bucket <= 65536; bucket *= 128) {
                world w = {.senders = senders,
                           .receivers = 2,
                           .options = {.bucket = bucket, .no_content_id = seed % 2 == 0},
                           .load = LOADS[load],
                           .seed = seed};
                run_world(&w, 2, "packed");
                for (int i = 0; i < senders + 2; i++) /* two buckets a side, and two for what a sender reads */
                    assert_int_equal(members[i].report[2].buffer_bytes, (i < senders ? 4 : 2) * bucket);
                seed++;
            }
}

static void sliced_frames_stay_on_the_device(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int receivers = 1; receivers <= 4; receivers *= 2)
        for (int load = 0; load < 3; load++)
            for (int64_t bucket = 512; bucket <= 65536; bucket *= 128) {
                world w = {.senders = 2,
                           .receivers = receivers,
                           .options = {.mode = LP_SYNC_SLICED, .bucket = bucket},
                           .load = LOADS[load],
                           .seed = seed++};
                run_world(&w, 2, "sliced");
            }
}

/* One sender never leaves more names in part than a plan has room for by itself. */
static void one_sender_needs_no_more_staging(void **state)
{
    (void)state;
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_SLICED; mode++)
        for (int64_t bucket = 256; bucket <= 16384; bucket *= 8) {
            world w = {.senders = 1,
                       .receivers = 2,
                       .options = {.mode = (lp_sync_mode)mode, .bucket = bucket},
                       .load = LP_DIRECT,
                       .staging = -1,
                       .seed = 77};
            run_world(&w, 1, "least staging");
        }
}

/* The two ways are the same on the wire: some receivers' plans are of host memory. */
static void devices_and_hosts_take_the_same_frames(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_SLICED; mode++) {
        world w = {.senders = 1,
                   .receivers = 4,
                   .hosts = 2,
                   .options = {.mode = (lp_sync_mode)mode, .bucket = 2048},
                   .load = LP_DIRECT,
                   .seed = seed++};
        run_world(&w, 2, "mixed");
    }
}

/* From a trainer's sharded tensors, rows, columns and transposed ones, packed by a program of its device. */
static void devices_send_what_they_hold(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_SLICED; mode++)
        for (int senders = 1; senders <= 4; senders *= 2)
            for (int over_host = 0; over_host < 2; over_host++) {
                world w = {.senders = senders,
                           .receivers = senders == 1 ? 4 : 2,
                           .is_sharded = true,
                           .over_host = over_host == 1,
                           .options = {.mode = (lp_sync_mode)mode, .bucket = senders == 2 ? 512 : 16384},
                           .load = LOADS[seed % 3],
                           .seed = seed};
                w.reopens = seed % 2 == 0;
                run_world(&w, 3, over_host ? "fetched" : "packed on the device");
                seed++;
                /* Who holds what is said once, and again of another source. */
                for (int i = 0; mode == LP_SYNC_PACKED && i < senders + w.receivers; i++) {
                    assert_int_equal(members[i].gathered[2], members[i].gathered[1] - 1);
                    assert_int_equal(members[i].gathered[3], members[i].gathered[w.reopens ? 1 : 2]);
                }
            }
}

/* Changes come to devices and hosts alike, in the same frames, wherever they were found. */
static void deltas_are_found_and_applied_on_devices(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int sharded = 0; sharded < 2; sharded++)
        for (int hosts = 0; hosts <= 4; hosts += 2)
            for (int64_t bucket = 256; bucket <= 262144; bucket *= 32) {
                world w = {.senders = 2,
                           .receivers = 4,
                           .hosts = hosts,
                           .is_sharded = sharded == 1,
                           .options = {.mode = LP_SYNC_DELTA, .bucket = bucket},
                           .load = hosts == 2 ? LP_COLD : LP_DIRECT,
                           .seed = seed++};
                open_world(&w, 3);
                open_members(&w);
                run_members(&w);
                assert_loaded(&w, "delta");
                assert_true(members[0].report[3].shadow_bytes > 0);
                for (int i = 0; i < 4; i++) {
                    assert_int_equal(members[2 + i].report[3].mode, LP_SYNC_DELTA);
                    assert_int_equal(members[2 + i].report[3].bytes_moved, members[2].report[3].bytes_moved);
                }
                close_members(&w);
                close_world(&w);
            }
}

/* Found by the host or by the device, the same bytes go. */
static void hosts_and_devices_find_the_same_changes(void **state)
{
    (void)state;
    for (int64_t bucket = 256; bucket <= 262144; bucket *= 32) {
        int64_t moved[2], frames[2];
        for (int host = 0; host < 2; host++) {
            world w = {.senders = 2,
                       .receivers = 2,
                       .is_sharded = true,
                       .finds_on_host = host == 1,
                       .options = {.mode = LP_SYNC_DELTA, .bucket = bucket},
                       .load = LP_DIRECT,
                       .seed = (uint64_t)bucket};
            open_world(&w, 3);
            open_members(&w);
            run_members(&w);
            assert_loaded(&w, "delta");
            moved[host] = members[0].report[3].bytes_moved + members[1].report[3].bytes_moved;
            frames[host] = members[0].report[3].frames + members[1].report[3].frames;
            close_members(&w);
            close_world(&w);
        }
        assert_true(moved[0] > 0);
        assert_int_equal(moved[0], moved[1]);
        assert_int_equal(frames[0], frames[1]);
    }
}

/* Layerwise sessions take whole tensors, and for them alone nothing is kept. */
static void layerwise_sessions_take_no_deltas(void **state)
{
    (void)state;
    for (int hosts = 0; hosts <= 2; hosts += 2) {
        world w = {.senders = 2,
                   .receivers = 2,
                   .hosts = hosts,
                   .options = {.mode = LP_SYNC_DELTA, .bucket = 4096},
                   .load = LP_LAYERWISE,
                   .seed = (uint64_t)(3 + hosts)};
        open_world(&w, 3);
        open_members(&w);
        run_members(&w);
        assert_loaded(&w, "delta");
        assert_int_equal(members[0].report[3].shadow_bytes, 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(members[2 + i].report[3].mode, LP_SYNC_PACKED);
        close_members(&w);
        close_world(&w);
    }
}

/* 8 ranks, and 64 of them: a trainer of 16 and 12 servers of 4. */
static void larger_worlds_of_devices(void **state)
{
    (void)state;
    const uint64_t seed = first_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_SLICED; mode++)
        for (int is_large = 0; is_large < mode; is_large++) { /* the largest one sliced only, for the time it takes */
            world w = {.senders = is_large ? 16 : 4,
                       .receivers = is_large ? 48 : 4,
                       .tp = is_large ? 4 : 2,
                       .is_sharded = true,
                       .options = {.mode = (lp_sync_mode)mode, .bucket = 16384},
                       .load = LP_DIRECT,
                       .seed = seed};
            run_world(&w, is_large ? 1 : 2, "larger");
        }
}

/* Messages through another device than that of the plan: a receiver takes them by way of the host, a sender says so. */
static void plans_on_another_device(void **state)
{
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        world w = {.senders = 1,
                   .receivers = 2,
                   .is_sharded = sharded == 1,
                   .is_apart = true,
                   .options = {.mode = LP_SYNC_SLICED, .bucket = 4096},
                   .load = LP_DIRECT,
                   .seed = 21};
        if (!w.is_sharded) {
            run_world(&w, 2, "apart");
            continue;
        }
        open_world(&w, 1);
        open_members(&w);
        run_members(&w);
        for (int i = 0; i < 3; i++)
            assert_int_equal(members[i].status[1], i == 0 ? LP_E_UNSUPPORTED : LP_E_PEER);
        assert_string_equal(members[0].err.text,
                            "messages go through another device than 'device', where the weights lie");
        assert_non_null(strstr(members[1].err.text, "messages go through another device"));
        close_members(&w);
        close_world(&w);
    }
}

/* ---- failures ---- */

static int count_bad(const world *w, int epoch)
{
    int bad = 0;
    for (int i = 0; i < w->senders + w->receivers; i++)
        bad += members[i].status[epoch] != LP_OK;
    return bad;
}

/* One epoch with a fault; true when it was reached. All ranks fail, or all have what they should. */
static bool try_fault(world *w, const char *what, long calls_before, int *failures)
{
    fake_calls calls;
    void *symbol = entry("fakeCalls");
    memcpy(&calls, &symbol, sizeof calls);
    open_members(w);
    run_members(w);
    const int bad = count_bad(w, w->epochs), all = w->senders + w->receivers;
    const bool hit = w->fault_at > 0 ? members[w->fault_rank].device.f.calls >= w->fault_at : calls() >= calls_before;
    if (bad > 0 && bad < all)
        fail_msg("%s: %d of %d ranks failed", what, bad, all);
    if (bad == 0)
        assert_loaded(w, what);
    else if (!hit)
        fail_msg("%s: rank 0: %s", what, members[0].err.text);
    *failures += bad > 0;
    close_members(w);
    return hit;
}

/* Nothing hangs, nothing is used after it was given back, and nobody but those who all have everything says yes. */
static void every_call_may_fail(void **state)
{
    (void)state;
    fake_fail_at fail_at;
    void *symbol = entry("fakeFailAt");
    memcpy(&fail_at, &symbol, sizeof fail_at);
    int failures = 0;
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_DELTA; mode++) {
        char what[64];
        const int epochs = mode == LP_SYNC_DELTA ? 2 : 1;
        world w = {.senders = 1,
                   .receivers = 1,
                   .is_sharded = mode != LP_SYNC_PACKED,
                   .options = {.mode = (lp_sync_mode)mode, .bucket = 24576},
                   .load = LP_DIRECT,
                   .seed = 5};
        open_world(&w, epochs);
        for (long n = 1;; n++) {
            snprintf(what, sizeof what, "mode %d, call %ld of the library", mode, n);
            fail_at(n);
            if (!try_fault(&w, what, n, &failures))
                break;
        }
        fail_at(0);
        for (w.fault_rank = 0; w.fault_rank < 2; w.fault_rank++)
            for (w.fault_at = 1;; w.fault_at++) {
                snprintf(what, sizeof what, "mode %d, call %d of the device of rank %d", mode, w.fault_at,
                         w.fault_rank);
                w.seed++;
                if (!try_fault(&w, what, 0, &failures))
                    break;
            }
        close_world(&w);
    }
    print_message("%d failing calls\n", failures);
    assert_true(failures > 150);
}

/* A failed epoch leaves poison, and the next one loads everything. */
static void a_failed_epoch_is_followed_by_a_good_one(void **state)
{
    (void)state;
    for (int load = 1; load < 3; load++) {
        world w = {.senders = 2, .receivers = 2, .options = {.bucket = 512}, .load = LOADS[load], .seed = 9};
        w.is_torn = true;
        w.options.no_content_id = true;
        open_world(&w, 2);
        open_members(&w);
        run_members(&w);
        assert_int_equal(count_bad(&w, 1), 4);
        for (int i = 0; i < 4; i++)
            members[i].status[1] = LP_OK;
        assert_loaded(&w, "after a torn epoch");
        close_members(&w);
        close_world(&w);
    }
}

/* A bit that flips under way: the frame is named, and nothing of it was written. */
static void a_damaged_frame_is_not_replayed(void **state)
{
    (void)state;
    fake_flip flip;
    void *symbol = entry("fakeFlip");
    memcpy(&flip, &symbol, sizeof flip);
    for (int n = 1; n < 6; n += 2) {
        world w = {.senders = 1, .receivers = 1, .options = {.bucket = 4096}, .load = LP_DIRECT, .seed = (uint64_t)n};
        char want[96];
        w.options.no_content_id = true;
        open_world(&w, 1);
        open_members(&w);
        for (int64_t k = 0; k < members[1].count; k++)
            memset(members[1].on[k].storage, 0x5a, (size_t)members[1].on[k].storage_bytes);
        flip(n);
        run_members(&w);
        flip(0);
        assert_int_equal(count_bad(&w, 1), 2);
        snprintf(want, sizeof want, "the payload of frame %d of sender 0 is damaged", n - 1);
        assert_string_equal(members[1].err.text, want);
        if (n == 1)
            for (int64_t k = 0; k < members[1].count; k++)
                for (int64_t b = 0; b < members[1].on[k].storage_bytes; b++)
                    assert_int_equal(((const uint8_t *)members[1].on[k].storage)[b], 0x5a);
        close_members(&w);
        close_world(&w);
    }
}

/* Sums of bytes anywhere in a tensor, at any address, by jobs that begin where they do. */
static void sums_of_parts_are_those_of_the_host(void **state)
{
    (void)state;
    static uint8_t data[4096 + 64];
    uint64_t random = 99;
    int vectors = 0;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(random = random_mix(random));
    for (int n = 0; n < 3000; n++) {
        static const int64_t grid[] = {1, 8, 16, 32, 256};
        random = random_mix(random);
        const int64_t step = grid[random % 5], far = n % 50 == 0 ? 5000000000 : 40;
        const int64_t bytes = (int64_t)(random / 5 % 4096) / step * step, off = (int64_t)(random >> 32) % far * 8;
        const uint8_t *at = data + random / 7 % 16 * (size_t)(n % 3);
        lp_sum_part part[LP_SUM_PARTS];
        lp_value_sum have = {{0, 0}}, want = {{0, 0}};
        int count;
        assert_ok(lp_sum_parts(part, &count, off, (uintptr_t)at, bytes, ERR));
        for (int i = 0; i < count; i++) {
            const lp_digest_job *job = &part[i].job;
            vectors += job->has_vectors;
            assert_true(job->rank <= LP_DIGEST_MODES && !job->is_odd);
            assert_true(!job->has_vectors || job->first + (uint64_t)job->bytes / 8 <= INT32_MAX);
            for (uint32_t k = 0; job->has_vectors && k < job->rank; k++) {
                assert_int_equal(job->near_mode[k].off16 * 16, job->mode[k].off);
                assert_int_equal(job->near_mode[k].pos, job->mode[k].pos);
            }
            gpu_run_sum(job, at + part[i].at, &have);
        }
        lp_value_sum_add(&want, off, at, bytes);
        assert_memory_equal(&have, &want, sizeof want);
    }
    assert_true(vectors > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_frames_stay_on_the_device),
        cmocka_unit_test(sliced_frames_stay_on_the_device),
        cmocka_unit_test(devices_and_hosts_take_the_same_frames),
        cmocka_unit_test(one_sender_needs_no_more_staging),
        cmocka_unit_test(devices_send_what_they_hold),
        cmocka_unit_test(deltas_are_found_and_applied_on_devices),
        cmocka_unit_test(hosts_and_devices_find_the_same_changes),
        cmocka_unit_test(layerwise_sessions_take_no_deltas),
        cmocka_unit_test(larger_worlds_of_devices),
        cmocka_unit_test(plans_on_another_device),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(a_failed_epoch_is_followed_by_a_good_one),
        cmocka_unit_test(a_damaged_frame_is_not_replayed),
        cmocka_unit_test(sums_of_parts_are_those_of_the_host),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
