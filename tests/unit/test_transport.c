/* SPDX-License-Identifier: Apache-2.0 */
/* The transports: messages and blocks of any size arrive whole and in order, rounds form and end as they say, and
 * strangers who talk nonsense disturb nobody. */
#include "counted_memory.h"
#include "sync_testing.h"

#include "replayer/transport_wire.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 5, ROUNDS = 4, LARGE = 3 << 20 };
static const int64_t PATIENCE_NS = 120LL * 1000000000; /* nothing that goes well waits for it */

typedef struct member {
    lp_transport transport;
    int rank;
    int32_t port;
    int listener;
    bool is_local;
    const char *failure; /* of an assertion: threads cannot end a test */
} member;

static uint8_t pattern(int from, int to, int64_t i)
{
    return (uint8_t)random_mix((uint64_t)from * 7919 + (uint64_t)to * 104729 + (uint64_t)i / 8);
}

#define check(m, condition)                                                                                            \
    do {                                                                                                               \
        if (!(condition) && (m)->failure == NULL)                                                                      \
            (m)->failure = #condition;                                                                                 \
    } while (0)

/* Everybody sends to everybody, several messages of several sizes at once. */
static void exchange(member *m, const lp_round *round, int turn)
{
    static const int64_t sizes[] = {0, 1, 4096, LARGE};
    const lp_transport *t = &m->transport;
    const int count = 4 * (round->world - 1) * 2;
    lp_transfer *x = calloc((size_t)count + 1, sizeof *x);
    int64_t ticket = 0;
    int n = 0;
    for (int peer = 0; peer < round->world; peer++) {
        for (int k = 0; k < 4 && peer != round->rank; k++) {
            const int64_t bytes = turn == 0 ? sizes[k] : sizes[k] / 64;
            uint8_t *out = malloc((size_t)bytes + 1), *in = calloc(1, (size_t)bytes + 1);
            for (int64_t i = 0; i < bytes; i++)
                out[i] = pattern(round->rank, peer + k, i);
            x[n++] = (lp_transfer){.peer = peer, .is_send = true, .data = out, .bytes = bytes};
            x[n++] = (lp_transfer){.peer = peer, .data = in, .bytes = bytes, .is_host = k == 1};
        }
    }
    lp_error err = {.code = LP_OK};
    check(m, t->start(t->context, x, n, &ticket, &err) == LP_OK);
    check(m, t->wait(t->context, ticket, &err) == LP_OK);
    for (int i = 0, k = 0; i < n; i++) {
        if (!x[i].is_send) {
            bool same = true;
            for (int64_t b = 0; b < x[i].bytes; b++)
                same = same && ((uint8_t *)x[i].data)[b] == pattern(x[i].peer, round->rank + k % 4, b);
            check(m, same);
            k++;
        }
        free(x[i].data);
    }
    free(x);
}

static void gather_blocks(member *m, const lp_round *round, int turn)
{
    const lp_transport *t = &m->transport;
    const lp_block *all = NULL;
    uint8_t mine[RANKS * 1000];
    const int64_t bytes = (int64_t)round->rank * 900 * (turn % 2);
    lp_error err = {.code = LP_OK};
    for (int64_t i = 0; i < bytes; i++)
        mine[i] = pattern(round->rank, turn, i);
    const lp_status status = t->gather(t->context, mine, bytes, &all, &err);
    check(m, status == LP_OK);
    for (int r = 0; status == LP_OK && r < round->world; r++) {
        check(m, all[r].bytes == (int64_t)r * 900 * (turn % 2));
        for (int64_t i = 0; i < all[r].bytes; i++)
            check(m, ((const uint8_t *)all[r].data)[i] == pattern(r, turn, i));
    }
}

/* Large messages with another rank: one of the two takes them back at once, and their memory goes before it says that
 * the round is over. The other one's may have arrived by then. */
static void give_up(member *m, int peer)
{
    const lp_transport *t = &m->transport;
    const bool waits = m->rank != 3;
    lp_transfer x[2] = {{.peer = peer, .is_send = true, .bytes = LARGE}, {.peer = peer, .bytes = LARGE}};
    lp_error err = {.code = LP_OK};
    int64_t ticket = 0;
    for (int i = 0; i < 2; i++)
        x[i].data = calloc(1, LARGE);
    lp_status status = t->start(t->context, x, 2, &ticket, &err);
    if (status == LP_OK && waits)
        status = t->wait(t->context, ticket, &err);
    check(m, status == LP_OK || (waits && status == LP_E_PEER && strstr(err.text, "had enough") != NULL));
    if (!waits)
        t->cancel(t->context);
    for (int i = 0; i < 2; i++) {
        memset(x[i].data, 0xee, LARGE);
        free(x[i].data);
    }
}

static void open_rank(member *m)
{
    lp_error err = {.code = LP_OK};
    const lp_tcp_options o = {.host = "127.0.0.1",
                              .port = m->port,
                              .is_sender = m->rank < 2,
                              .rank = m->rank < 2 ? m->rank : m->rank - 2,
                              .size = m->rank < 2 ? 2 : RANKS - 2,
                              .listener = m->rank == 0 ? m->listener : 0,
                              .join_ns = PATIENCE_NS,
                              .stall_ns = PATIENCE_NS};
    if (!m->is_local)
        check(m, lp_transport_tcp(&m->transport, &o, &err) == LP_OK);
}

static void *run_rank(void *context)
{
    member *m = context;
    open_rank(m);
    for (int r = 0; r < ROUNDS && m->failure == NULL; r++) {
        lp_round round;
        lp_error err = {.code = LP_OK};
        if (m->transport.join(m->transport.context, &round, &err) != LP_OK) {
            m->failure = "join";
            break;
        }
        check(m, round.world == RANKS && round.rank == m->rank && round.senders == 2);
        gather_blocks(m, &round, r);
        exchange(m, &round, r);
        gather_blocks(m, &round, r + 1);
        if (r == 1) { /* one of them has enough: everybody ends this round, and the next one is sound */
            const lp_block *all = NULL;
            if (m->rank == 0 || m->rank == 3)
                give_up(m, 3 - m->rank);
            if (m->rank == 3) {
                lp_sleep_ms(30);
                (m->transport.fail)(m->transport.context, "had enough");
            }
            check(m, m->transport.gather(m->transport.context, NULL, 0, &all, &err) == LP_E_PEER);
            check(m, strstr(err.text, "had enough") != NULL);
        }
    }
    lp_transport_close(&m->transport);
    return NULL;
}

static member members[RANKS];

static void run_all(bool is_local)
{
    pthread_t thread[RANKS];
    lp_transport local[RANKS];
    int32_t port = 0;
    int listener = -1;
    if (is_local)
        assert_ok(lp_transport_local(local, RANKS, 2, PATIENCE_NS, NULL, ERR));
    else
        listener = lp_socket_listen("127.0.0.1", 0, &port, NULL);
    for (int i = 0; i < RANKS; i++) {
        members[i] = (member){.rank = i, .port = port, .listener = listener, .is_local = is_local};
        if (is_local)
            members[i].transport = local[i];
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, &members[i]), 0);
    }
    if (!is_local) /* somebody who talks nonsense at the meeting point, and one who says nothing */
        for (int k = 0; k < 3; k++) {
            const char nonsense[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
            const int fd = lp_socket_connect("127.0.0.1", port, NULL);
            if (fd >= 0 && k < 2 && send(fd, nonsense, k == 0 ? sizeof nonsense : 7, MSG_NOSIGNAL) < 0)
                close(fd);
            else if (fd >= 0 && k == 0)
                close(fd);
        }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < RANKS; i++)
        if (members[i].failure != NULL)
            fail_msg("rank %d: %s", i, members[i].failure);
}

static void everything_arrives_over_sockets(void **state)
{
    (void)state;
    run_all(false);
}

static void everything_arrives_inside_a_process(void **state)
{
    (void)state;
    run_all(true);
}

/* ---- addresses ---- */

static void one_rank_alone_needs_nobody(void **state)
{
    (void)state;
    lp_transport t;
    lp_round round;
    const lp_block *all;
    assert_ok(lp_transport_local(&t, 1, 1, 0, NULL, ERR));
    for (int i = 0; i < 3; i++) {
        assert_ok(t.join(t.context, &round, ERR));
        assert_ok(t.gather(t.context, "x", 1, &all, ERR));
        assert_int_equal(all[0].bytes, 1);
    }
    lp_transport_close(&t);
    lp_transport_close(NULL);
}

static void *join_once(void *context)
{
    member *m = context;
    lp_round round;
    lp_error err;
    check(m, m->transport.join(m->transport.context, &round, &err) == LP_OK);
    return NULL;
}

/* A rank that waits for the next round hears nothing of what another still says of the last one. */
static void a_failure_is_that_of_its_round(void **state)
{
    (void)state;
    meter used = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &used, .resize = metered_resize};
    const lp_platform platform = {.alloc = &alloc};
    lp_transport local[2];
    pthread_t thread[2];
    member m[2] = {{.rank = 0}, {.rank = 1}};
    assert_ok(lp_transport_local(local, 2, 1, PATIENCE_NS, &platform, ERR));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            m[i].transport = local[i];
            assert_int_equal(pthread_create(&thread[i], NULL, join_once, &m[i]), 0);
            if (round == 1 && i == 0) {
                const lp_block *all;
                lp_error err;
                lp_sleep_ms(20); /* by now it waits, most likely */
                (local[1].fail)(local[1].context, "it was too late");
                for (int k = 0; k < 2; k++)
                    assert_int_equal(local[1].gather(local[1].context, "x", 1, &all, &err), LP_E_PEER);
            }
        }
        for (int i = 0; i < 2; i++)
            pthread_join(thread[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        assert_null(m[i].failure);
        lp_transport_close(&local[i]);
    }
    assert_int_equal(used.now, 0);
}

/* A rank that is not let in may hear of it before it joins: then joining says so, and does not wait. */
static void who_is_not_let_in_is_told(void **state)
{
    (void)state;
    int32_t port = 0;
    lp_error err = {.code = LP_OK};
    lp_transport t[3];
    lp_round round;
    const int listener = lp_socket_listen("127.0.0.1", 0, &port, &err);
    assert_true(listener >= 0);
    for (int i = 0; i < 3; i++) { /* a sender, a receiver, and another one in its place */
        const lp_tcp_options o = {.host = "127.0.0.1",
                                  .port = port,
                                  .is_sender = i == 0,
                                  .size = 1,
                                  .listener = i == 0 ? listener : 0,
                                  .join_ns = PATIENCE_NS,
                                  .stall_ns = PATIENCE_NS};
        assert_ok(lp_transport_tcp(&t[i], &o, ERR));
        lp_sleep_ms(60); /* by now the meeting point has answered, most likely */
    }
    assert_int_equal(t[2].join(t[2].context, &round, &err), LP_E_PEER);
    assert_string_equal(err.text, "receiver 0 of 'server' is here already");
    for (int i = 2; i >= 0; i--)
        lp_transport_close(&t[i]);
}

/* A meeting point of this test's own, which says two things at once. */
static void *speak(void *context)
{
    const int listener = *(const int *)context;
    const char text[] = "rank 3 did not come";
    lp_wire w;
    lp_wire_head head;
    bool is_broken = false, is_ready = false;
    int fd;
    while ((fd = accept(listener, NULL, NULL)) < 0)
        lp_sleep_ms(1);
    if (!lp_socket_prepare(fd))
        return NULL;
    lp_wire_init(&w, fd, 4096, NULL);
    while (!is_ready && lp_wire_fill(&w))
        while (lp_wire_next(&w, &head, &is_broken)) {
            is_ready = is_ready || head.type == LP_WIRE_READY;
            lp_wire_drop(&w, &head);
        }
    if (lp_wire_put(&w, &(lp_wire_head){.type = LP_WIRE_ABORT}, text, (int64_t)strlen(text), NULL, 0) &&
        lp_wire_put(&w, &(lp_wire_head){.type = LP_WIRE_END}, NULL, 0, NULL, 0))
        (void)lp_wire_flush(&w);
    while (lp_wire_fill(&w)) /* until the rank has gone */
        lp_sleep_ms(1);
    lp_wire_close(&w);
    return NULL;
}

/* A round that fails and a meeting point that ends behind it: the failure is what the rank hears, not a good end. */
static void a_failure_before_the_end_counts(void **state)
{
    (void)state;
    int32_t port = 0;
    pthread_t thread;
    lp_transport t;
    lp_round round;
    lp_error err = {.code = LP_OK};
    int listener = lp_socket_listen("127.0.0.1", 0, &port, &err);
    assert_true(listener >= 0);
    assert_int_equal(pthread_create(&thread, NULL, speak, &listener), 0);
    const lp_tcp_options o = {
        .host = "127.0.0.1", .port = port, .size = 1, .join_ns = PATIENCE_NS, .stall_ns = PATIENCE_NS};
    assert_ok(lp_transport_tcp(&t, &o, ERR));
    assert_int_equal(t.join(t.context, &round, &err), LP_E_PEER);
    assert_string_equal(err.text, "rank 3 did not come");
    assert_int_equal(t.join(t.context, &round, &err), LP_E_INCOMPLETE); /* now it is the end */
    assert_string_equal(err.text, "the senders have ended");
    lp_transport_close(&t);
    pthread_join(thread, NULL);
    close(listener);
}

static void nobody_listens(void **state)
{
    (void)state;
    lp_transport t;
    lp_error err;
    /* Bound and not listening: nobody else can get the port meanwhile. */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    const lp_tcp_options o = {.host = "127.0.0.1", .port = ntohs(at.sin_port), .size = 1, .join_ns = 200000000};
    assert_int_equal(lp_transport_tcp(&t, &o, &err), LP_E_PEER);
    assert_non_null(strstr(err.text, "cannot reach '127.0.0.1'"));
    close(fd);
    char name[80] = {0}; /* longer than a name may be: the resolver knows that without asking anybody */
    memset(name, 'x', sizeof name - 1);
    const lp_tcp_options bad = {.host = name, .port = 1, .size = 1, .join_ns = 1};
    assert_int_not_equal(lp_transport_tcp(&t, &bad, &err), LP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_arrives_inside_a_process),
        cmocka_unit_test(everything_arrives_over_sockets),
        cmocka_unit_test(one_rank_alone_needs_nobody),
        cmocka_unit_test(a_failure_is_that_of_its_round),
        cmocka_unit_test(who_is_not_let_in_is_told),
        cmocka_unit_test(a_failure_before_the_end_counts),
        cmocka_unit_test(nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
