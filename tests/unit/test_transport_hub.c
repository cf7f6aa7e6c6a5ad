/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose meeting point is played by the test: what it says wrongly, late or in the middle of something hurts no
 * memory and no descriptor of theirs. */
#include "sync_testing.h"

#include "replayer/transport_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, LARGE = 3 << 20 };
static const int64_t PATIENCE_NS = 120LL * 1000000000; /* nothing here waits for it */

/* ---- memory that runs out when it is told to ---- */

static atomic_bool is_memory_out;

static void *resize(void *context, void *old, size_t bytes)
{
    (void)context;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return atomic_load(&is_memory_out) ? NULL : realloc(old, bytes);
}

static const lp_alloc memory = {.size = sizeof memory, .resize = resize};
static const lp_platform platform = {.alloc = &memory};

/* ---- the meeting point ---- */

typedef struct seat {
    int fd;
    lp_wire wire;
    lp_wire_hello hello;
} seat;

static void say(seat *s, lp_wire_type type, uint32_t round, int32_t argument, const void *body, int64_t bytes)
{
    assert_true(lp_wire_put(&s->wire, &(lp_wire_head){type, round, argument, 0}, body, bytes, NULL, 0) &&
                lp_wire_flush(&s->wire));
}

/* The next message of a rank, which must be of this type. */
static void hear(seat *s, lp_wire_type type)
{
    lp_wire_head head;
    bool is_broken = false;
    while (!lp_wire_next(&s->wire, &head, &is_broken)) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        assert_false(is_broken);
        assert_int_equal(poll(&p, 1, -1), 1);
        assert_true(lp_wire_fill(&s->wire));
    }
    assert_int_equal(head.type, type);
    if (type == LP_WIRE_HELLO)
        assert_true(lp_wire_get_hello(s->wire.in + LP_WIRE_HEADER, &s->hello));
    lp_wire_drop(&s->wire, &head);
}

/* ---- ranks: each call is made by a thread of its own ---- */

typedef struct rank_thread {
    lp_transport transport;
    int32_t port;
    pthread_t thread;
    lp_round round;
    const lp_block *all;
    lp_status status;
    lp_error err;
    int64_t ticket;
} rank_thread;

static rank_thread rank_of[RANKS];
static seat seat_of[RANKS];

static void *open_rank(void *context)
{
    rank_thread *r = context;
    const lp_tcp_options o = {.host = "127.0.0.1",
                              .port = r->port,
                              .rank = (int32_t)(r - rank_of),
                              .size = RANKS,
                              .join_ns = PATIENCE_NS,
                              .stall_ns = PATIENCE_NS,
                              .platform = &platform};
    r->status = lp_transport_tcp(&r->transport, &o, &r->err);
    return NULL;
}

static void *join_rank(void *context)
{
    rank_thread *r = context;
    r->status = r->transport.join(r->transport.context, &r->round, &r->err);
    return NULL;
}

static void *gather_rank(void *context)
{
    rank_thread *r = context;
    r->status = r->transport.gather(r->transport.context, "x", 1, &r->all, &r->err);
    return NULL;
}

static void *wait_rank(void *context)
{
    rank_thread *r = context;
    r->status = r->transport.wait(r->transport.context, r->ticket, &r->err);
    return NULL;
}

static void begin(rank_thread *r, void *(*call)(void *))
{
    assert_int_equal(pthread_create(&r->thread, NULL, call, r), 0);
}

static lp_status end(rank_thread *r)
{
    pthread_join(r->thread, NULL);
    return r->status;
}

/* Connected, and asking for a round. */
static void open_all(void)
{
    int32_t port = 0;
    const int listener = lp_socket_listen("127.0.0.1", 0, &port, NULL);
    assert_true(listener >= 0);
    for (int i = 0; i < RANKS; i++) {
        rank_thread *r = &rank_of[i];
        seat *s = &seat_of[i];
        struct pollfd p = {.fd = listener, .events = POLLIN};
        *r = (rank_thread){.port = port};
        begin(r, open_rank);
        assert_int_equal(poll(&p, 1, -1), 1);
        s->fd = accept(listener, NULL, NULL);
        assert_true(s->fd >= 0 && lp_socket_prepare(s->fd));
        lp_wire_init(&s->wire, s->fd, LP_GATHER_MAX, lp_alloc_default());
        assert_int_equal(end(r), LP_OK);
        hear(s, LP_WIRE_HELLO);
        begin(r, join_rank);
        hear(s, LP_WIRE_READY);
    }
    close(listener);
}

static void close_all(void)
{
    for (int i = 0; i < RANKS; i++)
        lp_wire_close(&seat_of[i].wire);
    for (int i = 0; i < RANKS; i++)
        lp_transport_close(&rank_of[i].transport);
}

static void put_table(uint8_t table[RANKS * LP_WIRE_MEMBER_BYTES])
{
    memset(table, 0, RANKS * LP_WIRE_MEMBER_BYTES);
    for (int i = 0; i < RANKS; i++) {
        uint8_t *row = table + i * LP_WIRE_MEMBER_BYTES;
        lp_wire_put_hello(row, &seat_of[i].hello);
        memcpy(row + LP_WIRE_HELLO_BYTES, "127.0.0.1", sizeof "127.0.0.1");
    }
}

static void begin_round(int i, const uint8_t *table)
{
    say(&seat_of[i], LP_WIRE_ROUND, 1, i, table, RANKS * LP_WIRE_MEMBER_BYTES);
}

static void open_round(void)
{
    uint8_t table[RANKS * LP_WIRE_MEMBER_BYTES];
    open_all();
    put_table(table);
    for (int i = 0; i < RANKS; i++)
        begin_round(i, table);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(end(&rank_of[i]), LP_OK);
}

/* ---- what it says wrongly ---- */

/* A table with a row that is none: descriptor 0, which rows begin with in zeroed memory, stays open. */
static void a_bad_row_closes_nothing(void **state)
{
    uint8_t table[RANKS * LP_WIRE_MEMBER_BYTES];
    (void)state;
    const int before = fcntl(0, F_GETFD) >= 0 ? -1 : open("/dev/null", O_RDONLY);
    open_all();
    put_table(table);
    lp_wire_put_u32(table + 4, 1000); /* a rank of 1000 among 2 */
    for (int i = 0; i < RANKS; i++)
        begin_round(i, table);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(end(&rank_of[i]), LP_E_PEER);
    close_all();
    assert_true(fcntl(0, F_GETFD) >= 0);
    if (before >= 0)
        close(before);
}

/* Sizes of blocks that do not add up to what came: no block may be believed, least of all one of the gather before. */
static void blocks_that_do_not_add_up(void **state)
{
    static const int64_t sizes[][2] = {
        {3, 3}, {5, 1}, {1, 0}, {-1, 4}, {4, -1}, {INT64_MAX, 1}, {INT64_MAX, INT64_MAX}};
    (void)state;
    for (size_t k = 0; k <= sizeof sizes / sizeof *sizes; k++) {
        rank_thread *r = &rank_of[0];
        seat *s = &seat_of[0];
        uint8_t body[20] = {0};
        open_round();
        lp_wire_put_i64(body, 1);
        lp_wire_put_i64(body + 8, 3);
        memcpy(body + 16, "abcd", 4);
        begin(r, gather_rank);
        hear(s, LP_WIRE_GATHER);
        say(s, LP_WIRE_GATHERED, 1, 0, body, sizeof body);
        assert_int_equal(end(r), LP_OK);
        assert_true(r->all[0].bytes == 1 && r->all[1].bytes == 3 && memcmp(r->all[1].data, "bcd", 3) == 0);

        const bool is_short = k == sizeof sizes / sizeof *sizes;
        lp_wire_put_i64(body, is_short ? 0 : sizes[k][0]);
        lp_wire_put_i64(body + 8, is_short ? 0 : sizes[k][1]);
        begin(r, gather_rank);
        hear(s, LP_WIRE_GATHER);
        say(s, LP_WIRE_GATHERED, 1, 0, body, is_short ? 15 : sizeof body);
        assert_int_equal(end(r), LP_E_PEER);
        assert_non_null(strstr(r->err.text, "the meeting point is gone"));
        close_all();
    }
}

/* ---- what it says late ---- */

/* Rank 1 hears of the round first, and has connected to rank 0 and sent when that one hears of it. */
static void a_peer_may_be_ahead(void **state)
{
    uint8_t table[RANKS * LP_WIRE_MEMBER_BYTES];
    uint8_t out[1000], in[1000] = {0};
    const lp_transfer send_it = {.peer = 0, .is_send = true, .data = out, .bytes = sizeof out};
    const lp_transfer take_it = {.peer = 1, .data = in, .bytes = sizeof in};
    rank_thread *early = &rank_of[1], *late = &rank_of[0];
    (void)state;
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (uint8_t)random_mix(i);
    open_all();
    put_table(table);
    begin_round(1, table);
    assert_int_equal(end(early), LP_OK);
    assert_int_equal(early->transport.start(early->transport.context, &send_it, 1, &early->ticket, &early->err), LP_OK);
    begin(early, wait_rank);
    assert_int_equal(end(early), LP_OK); /* it is in the socket of the other one */
    lp_sleep_ms(50);                     /* so that the other one has most likely seen the connection */
    begin_round(0, table);
    assert_int_equal(end(late), LP_OK);
    assert_int_equal(late->transport.start(late->transport.context, &take_it, 1, &late->ticket, &late->err), LP_OK);
    begin(late, wait_rank);
    assert_int_equal(end(late), LP_OK);
    assert_memory_equal(in, out, sizeof out);
    close_all();
}

/* ---- a start that fails takes back what was started before ---- */

static void a_failed_start_cancels(void **state)
{
    uint8_t *in = malloc(LARGE), *out = malloc(LARGE);
    rank_thread *taker = &rank_of[0], *giver = &rank_of[1];
    const lp_transfer take_it = {.peer = 1, .data = in, .bytes = LARGE};
    const lp_transfer send_it = {.peer = 0, .is_send = true, .data = out, .bytes = LARGE};
    int64_t second = 0;
    (void)state;
    memset(in, 0xee, LARGE);
    memset(out, 0x11, LARGE);
    open_round();
    assert_int_equal(taker->transport.start(taker->transport.context, &take_it, 1, &taker->ticket, &taker->err), LP_OK);
    atomic_store(&is_memory_out, true);
    assert_int_equal(taker->transport.start(taker->transport.context, &take_it, 1, &second, &taker->err), LP_E_MEMORY);
    atomic_store(&is_memory_out, false);
    assert_int_equal(giver->transport.start(giver->transport.context, &send_it, 1, &giver->ticket, &giver->err), LP_OK);
    begin(giver, wait_rank);
    lp_sleep_ms(50); /* what is not cancelled has most likely come by then */
    for (int i = 0; i < RANKS; i++)
        say(&seat_of[i], LP_WIRE_ABORT, 1, 0, "enough", 6);
    const lp_status given = end(giver); /* sockets may have taken all of it */
    assert_true(given == LP_OK || (given == LP_E_PEER && strcmp(giver->err.text, "enough") == 0));
    for (int i = 0; i < LARGE; i++)
        if (in[i] != 0xee)
            fail_msg("byte %d was written", i);
    close_all();
    free(in);
    free(out);
}

/* ---- signals ---- */

static atomic_int handled;

static void handle(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

/* A signal that the application's threads block waits for one of them. */
static void signals_are_the_applications(void **state)
{
    const struct sigaction noting = {.sa_handler = handle};
    struct sigaction before;
    sigset_t one, old;
    (void)state;
    open_round();
    assert_int_equal(sigaction(SIGUSR1, &noting, &before), 0);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &old), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    lp_sleep_ms(20);
    assert_int_equal(sigtimedwait(&one, NULL, &(struct timespec){.tv_sec = 0}), SIGUSR1);
    assert_int_equal(atomic_load(&handled), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_row_closes_nothing),     cmocka_unit_test(blocks_that_do_not_add_up),
        cmocka_unit_test(a_peer_may_be_ahead),          cmocka_unit_test(a_failed_start_cancels),
        cmocka_unit_test(signals_are_the_applications),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
