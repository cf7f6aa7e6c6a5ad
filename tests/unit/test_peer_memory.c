/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that all ranks reach: threads of one process, two processes over sockets, ranks that differ, and every call of
 * the device and the allocator failing once. */
#include "ipc_testing.h"

#include "replayer/peer_memory.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { RANKS = 4, BYTES = 4096 };

static const int64_t PATIENCE_NS = 120000000000;

typedef struct member {
    lp_transport transport;
    fake_device fake;
    lp_ipc_device table;
    const char *terms;
    int64_t bytes;
    const lp_alloc *alloc;
    int32_t seen[RANKS]; /* what each rank has written */
    lp_peer_memory_info info;
    int reached;
    bool has_opened;
    lp_status status;
    lp_error err;
} member;

static int count_reach(void *context, void *memory)
{
    fake_device *const f = context;
    assert_non_null(memory);
    return fake_step(f);
}

/* Every rank writes its number into everybody's memory, and reads what all have written into its own. */
static void *run_member(void *context)
{
    member *const m = context;
    lp_peer_memory *memory = NULL;
    m->status = lp_peer_memory_open_on(&memory, &m->transport, &m->table, m->bytes, m->terms, m->alloc, &m->err);
    m->has_opened = m->status == LP_OK;
    if (m->status != LP_OK)
        return NULL;
    lp_peer_memory_get(memory, &m->info);
    for (int32_t i = 0; i < m->info.ranks; i++)
        ((int32_t *)m->info.at[i])[m->info.rank] = 100 + m->info.rank;
    m->status = lp_peer_memory_meet(memory, &m->err);
    for (int32_t i = 0; i < m->info.ranks; i++)
        m->seen[i] = ((const int32_t *)m->info.at[m->info.rank])[i];
    lp_peer_memory_close(memory);
    return NULL;
}

static void run_threads(member *members, int32_t ranks)
{
    lp_transport transport[RANKS];
    pthread_t thread[RANKS];
    lp_error err = {0};
    assert_int_equal(lp_transport_local(transport, ranks, ranks, PATIENCE_NS, NULL, &err), LP_OK);
    for (int32_t i = 0; i < ranks; i++) {
        members[i].transport = transport[i];
        assert_int_equal(pthread_create(&thread[i], NULL, run_member, &members[i]), 0);
    }
    for (int32_t i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    for (int32_t i = 0; i < ranks; i++)
        lp_transport_close(&transport[i]);
}

static void prepare(member *members, int32_t ranks)
{
    for (int32_t i = 0; i < ranks; i++) {
        char name[16];
        members[i] = (member){.terms = "the same", .bytes = BYTES};
        snprintf(name, sizeof name, "GPU-%d", i);
        members[i].table = fake_table(&members[i].fake, name);
        members[i].table.reach = count_reach;
    }
}

static void assert_reached(const member *m, int32_t ranks)
{
    if (m->status != LP_OK)
        fail_msg("rank %d: %s", m->info.rank, m->err.text);
    assert_int_equal(m->info.ranks, ranks);
    assert_int_equal(m->info.bytes, BYTES);
    for (int32_t i = 0; i < ranks; i++)
        assert_int_equal(m->seen[i], 100 + i);
    assert_int_equal(m->fake.open, 0);
}

static void test_threads(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= RANKS; ranks++) {
        member members[RANKS];
        prepare(members, ranks);
        run_threads(members, ranks);
        for (int32_t i = 0; i < ranks; i++) {
            assert_reached(&members[i], ranks);
            assert_int_equal(members[i].info.rank, i);
            assert_false(members[i].info.shares_device);
        }
    }
}

static void test_shared_device(void **state)
{
    (void)state;
    member members[RANKS];
    prepare(members, 3);
    snprintf(members[2].table.name, sizeof members[2].table.name, "GPU-0");
    run_threads(members, 3);
    assert_true(members[0].info.shares_device);
    assert_false(members[1].info.shares_device);
    assert_true(members[2].info.shares_device);
}

static void expect_difference(const member *members, int32_t ranks, const char *text)
{
    for (int32_t i = 0; i < ranks; i++) {
        assert_int_equal(members[i].status, LP_E_MISMATCH);
        assert_string_equal(members[i].err.text, text);
        assert_int_equal(members[i].fake.open, 0);
    }
}

static void test_differences(void **state)
{
    (void)state;
    member members[RANKS];
    prepare(members, 3);
    members[2].terms = "hidden 7168";
    run_threads(members, 3);
    expect_difference(members, 3, "rank 2 has 'hidden 7168', rank 0 has 'the same'");
    prepare(members, 3);
    members[1].bytes = 2 * BYTES;
    run_threads(members, 3);
    expect_difference(members, 3, "rank 1 shares 8192 bytes, rank 0 4096");
}

static void test_arguments(void **state)
{
    (void)state;
    static char long_terms[LP_PEER_TERMS_MAX + 2];
    member m;
    lp_peer_memory *memory = NULL;
    prepare(&m, 1);
    assert_int_equal(lp_peer_memory_open_on(&memory, &m.transport, &m.table, 0, "", NULL, &m.err), LP_E_ARGUMENT);
    memset(long_terms, 'x', LP_PEER_TERMS_MAX + 1);
    assert_int_equal(lp_peer_memory_open_on(&memory, &m.transport, &m.table, 1, long_terms, NULL, &m.err),
                     LP_E_ARGUMENT);
    lp_peer_memory_close(NULL);
}

/* Whatever fails on one rank, both hear of it and nothing stays open. */
static void test_failing_device(void **state)
{
    (void)state;
    for (int n = 1;; n++) {
        member members[RANKS];
        prepare(members, 2);
        members[1].fake.fail_at = n;
        run_threads(members, 2);
        assert_int_equal(members[1].fake.open, 0);
        assert_int_equal(members[0].fake.open, 0);
        if (members[1].fake.calls < n) {
            assert_reached(&members[0], 2);
            assert_true(n > 4); /* enter, allocate, give, reach */
            return;
        }
        assert_int_equal(members[1].status, LP_E_DEVICE);
        assert_int_equal(members[0].status, LP_E_PEER);
        assert_non_null(strstr(members[0].err.text, "a made-up failure"));
    }
}

/* ---- processes ---- */

static int listen_anywhere(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void connect_member(member *m, int32_t rank, int port, int listener)
{
    const lp_tcp_options options = {.host = "127.0.0.1",
                                    .port = port,
                                    .is_sender = true,
                                    .is_alone = true,
                                    .rank = rank,
                                    .size = 2,
                                    .listener = listener};
    lp_error err = {0};
    if (lp_transport_tcp(&m->transport, &options, &err) != LP_OK)
        fail_msg("rank %d: %s", rank, err.text);
}

static void test_processes(void **state)
{
    (void)state;
    member m;
    int port = 0, outcome = -1;
    const int listener = listen_anywhere(&port);
    const pid_t child = fork();
    assert_true(child >= 0);
    prepare(&m, 1);
    const int32_t rank = child == 0 ? 1 : 0;
    if (child == 0)
        close(listener);
    connect_member(&m, rank, port, child == 0 ? 0 : listener);
    (void)run_member(&m);
    lp_transport_close(&m.transport);
    const bool is_right = m.status == LP_OK && m.seen[0] == 100 && m.seen[1] == 101 && m.fake.open == 0 &&
                          m.info.rank == rank && m.info.shares_device &&
                          m.fake.calls == 4; /* enter, allocate, give, take */
    if (child == 0)
        _exit(is_right ? 0 : 1);
    assert_int_equal(waitpid(child, &outcome, 0), child);
    if (m.status != LP_OK)
        fail_msg("%s", m.err.text);
    assert_true(is_right);
    assert_int_equal(outcome, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), /* first: forks before there are threads */
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_shared_device),  cmocka_unit_test(test_differences),
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_failing_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
