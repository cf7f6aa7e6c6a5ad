/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links between trainers and servers are in use all the time, as far as the order of messages goes: what ranks of
 * devices start in an epoch is noted down and goes over a model of links.
 */
#include "link_model.h"
#include "sync_device_world.h"

static link_list noted[RANKS_MOST];
static lp_status (*plain_start)(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket,
                                lp_error *err);

static lp_status note_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket, lp_error *err)
{
    int rank = 0;
    while (members[rank].transport.context != context)
        rank++;
    link_note(&noted[rank], transfer, count);
    return plain_start(context, transfer, count, ticket, err);
}

static void watch(member *m)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    plain_start = m->transport.start;
    pthread_mutex_unlock(&lock);
    m->transport.start = note_start;
}

static void check_links(lp_sync_mode mode, int senders, int receivers, double bar)
{
    char what[64];
    world w = {.senders = senders,
               .receivers = receivers,
               .is_sharded = true,
               .options = {.mode = mode, .bucket = 512},
               .load = LP_DIRECT,
               .watch = watch,
               .seed = 3};
    snprintf(what, sizeof what, "%s, %d to %d", lp_sync_mode_name(mode), senders, receivers);
    run_world(&w, mode == LP_SYNC_DELTA ? 3 : 1, what);
    const link_verdict v = link_run(noted, senders + receivers);
    link_free(noted, senders + receivers);
    print_message("%s: %.0f bytes of the fullest link in %.0f, %.3f; %d messages at a time\n", what, v.least, v.time,
                  v.least / v.time, v.most);
    assert_int_equal(v.most, senders < receivers ? senders : receivers);
    assert_true(v.time > 0 && v.least >= bar * v.time);
}

/* Each sender is at work for another receiver, and both sides have one message at a time. */
static void links_are_in_use(void **state)
{
    (void)state;
    static const int size[][2] = {{2, 2}, {4, 4}, {2, 4}, {4, 2}, {1, 3}, {8, 8}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        check_links(LP_SYNC_PACKED, size[i][0], size[i][1], 0.9);
        check_links(LP_SYNC_SLICED, size[i][0], size[i][1], 0.9);
        check_links(LP_SYNC_DELTA, size[i][0], size[i][1], 0.8);
    }
}

/* Two that have all receivers take from the same sender get half of a link each: the model says so. */
static void the_model_knows_shared_links(void **state)
{
    (void)state;
    link_list list[4] = {{.count = 0}};
    for (int turn = 0; turn < 5; turn++)
        for (int a = 0; a < 2; a++) {
            const lp_transfer out[2] = {{.peer = 2, .is_send = true, .bytes = 100},
                                        {.peer = 3, .is_send = true, .bytes = 100}};
            link_note(&list[a], out, 2);
            for (int b = 2; b < 4; b++)
                link_note(&list[b], &(lp_transfer){.peer = a, .bytes = 100}, 1);
        }
    const link_verdict v = link_run(list, 4);
    link_free(list, 4);
    assert_true(v.least > 999 && v.least < 1001 && v.time > 1999 && v.time < 2001 && v.most == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_knows_shared_links),
        cmocka_unit_test(links_are_in_use),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
