/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that lie, stall or vanish, on both ends of the socket; and memory that runs out. */
#include "failing_memory.h"
#include "ipc_testing.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- clients ---- */

static int connect_raw(const served *v)
{
    int fd = -1;
    lp_error err;
    assert_int_equal(lp_ipc_connect(&fd, v->path, PATIENCE_MS, &err), LP_OK);
    return fd;
}

static lp_ipc_packet hello_of(const served *v)
{
    lp_ipc_packet p = {
        .header = {
            .magic = LP_IPC_MAGIC, .version = LP_IPC_VERSION, .type = LP_IPC_HELLO, .bytes = sizeof p.body.hello}};
    memcpy(p.body.hello.plan, v->shared->places.rows->digest, 32);
    memcpy(p.body.hello.content, CONTENT_A, 32);
    memcpy(p.body.hello.device, "cpu", 4);
    return p;
}

static void send_raw(int fd, const void *packet, size_t bytes)
{
    assert_int_equal(send(fd, packet, bytes, MSG_NOSIGNAL), bytes);
}

/* The server hangs up on this connection, whatever it says first. */
static void assert_hung_up(int fd)
{
    char buffer[1024];
    for (;;) {
        const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            break;
        assert_true(got > 0);
    }
    close(fd);
}

static void assert_still_serves(served *v)
{
    lp_attachment *a;
    assert_ok(v, attach_as(v, &a, CONTENT_A, false));
    lp_attachment_close(a);
}

static void test_packets_that_are_none_cost_the_connection(void **state)
{
    served v;
    (void)state;
    open_served(&v, 11, NULL, NULL);
    const lp_ipc_packet right = hello_of(&v);
    const size_t whole = sizeof right.header + sizeof right.body.hello;
    for (int k = 0; k < 9; k++) {
        uint8_t bytes[4096] = {0};
        size_t count = whole;
        lp_ipc_packet p = right;
        if (k == 0)
            p.header.magic ^= 1;
        if (k == 1)
            p.header.bytes += 8;
        if (k == 2)
            p.header.bytes = UINT32_MAX;
        if (k == 3)
            p.header.type = LP_IPC_LEASE; /* before a hello */
        if (k == 4)
            p.header.type = 999;
        if (k == 5)
            count = 3;
        if (k == 6)
            count = whole - 1;
        if (k == 7)
            count = sizeof bytes;
        if (k == 8)
            p.header.version = LP_IPC_VERSION + 1;
        memcpy(bytes, &p, sizeof p);
        const int fd = connect_raw(&v);
        send_raw(fd, bytes, count);
        assert_hung_up(fd);
        assert_still_serves(&v);
    }
    close_served(&v);
}

static void test_random_packets(void **state)
{
    served v;
    (void)state;
    open_served(&v, 12, NULL, NULL);
    const int before = open_descriptors();
    for (int round = 0; round < 300; round++) {
        const int fd = connect_raw(&v);
        lp_ipc_packet p = hello_of(&v);
        if (pick(&v.w, 2) == 0) /* attached first */
            send_raw(fd, &p, sizeof p.header + sizeof p.body.hello);
        for (int n = (int)pick(&v.w, 4); n >= 0; n--) {
            const int64_t flips = pick(&v.w, 6), count = 1 + pick(&v.w, (int64_t)sizeof p);
            p.header.type = (uint16_t)(1 + pick(&v.w, 8));
            p.header.bytes = (uint32_t)(count > 16 ? count - 16 : 0);
            for (int64_t i = 0; i < flips; i++)
                ((uint8_t *)&p)[pick(&v.w, (int64_t)sizeof p)] ^= (uint8_t)next_random(&v.w);
            (void)!send(fd, &p, (size_t)count, MSG_NOSIGNAL);
        }
        close(fd);
    }
    /* A random commit may have changed what is served; that it serves is what counts. */
    lp_attachment *a;
    assert_ok(&v, attach_as(&v, &a, NULL, true));
    assert_ok(&v, lp_attachment_lease(a, PATIENCE_MS, &v.err));
    assert_ok(&v, lp_attachment_commit(a, CONTENT_A, 0, &v.err));
    lp_attachment_close(a);
    assert_still_serves(&v);
    assert_descriptors_become(before);
    close_served(&v);
}

static void test_descriptors_from_clients_are_closed(void **state)
{
    served v;
    (void)state;
    open_served(&v, 13, NULL, NULL);
    const int before = open_descriptors();
    const lp_ipc_packet p = hello_of(&v);
    const int fd = connect_raw(&v), fds[2] = {0, 1};
    assert_true(lp_ipc_send(fd, LP_IPC_HELLO, &p.body, sizeof p.body.hello, fds, 2));
    assert_hung_up(fd);
    assert_still_serves(&v);
    assert_descriptors_become(before);
    close_served(&v);
}

static void test_too_many_clients(void **state)
{
    served v;
    lp_attachment *a;
    (void)state;
    open_served(&v, 14, NULL, &(lp_serve_options){.clients = 2});
    const int one = connect_raw(&v), two = connect_raw(&v);
    assert_int_equal(attach_as(&v, &a, CONTENT_A, false), LP_E_PEER);
    assert_non_null(strstr(v.err.text, "has as many clients as it takes"));
    close(one);
    close(two);
    close_served(&v);
}

/* What a loop of the caller's own sees of a server. */
static bool has_work(const lp_server *server)
{
    struct pollfd fd = {.fd = lp_serve_fd(server), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

/* One that has said in time what it wants may be silent from then on, however late the server comes to hear it. */
static void test_silent_clients(void **state)
{
    served v;
    (void)state;
    open_served(&v, 19, NULL, &(lp_serve_options){.timeout_ms = 20});
    stop_server(&v);
    const lp_ipc_packet p = hello_of(&v);
    assert_false(has_work(v.server));
    const int attached = connect_raw(&v), silent = connect_raw(&v);
    assert_true(has_work(v.server));
    for (int i = 0; i < 2; i++) /* takes one at a time */
        assert_int_equal(lp_serve_step(v.server, 0, &v.err), LP_OK);
    send_raw(attached, &p, sizeof p.header + sizeof p.body.hello);
    usleep(30000);
    start_server(&v);
    assert_hung_up(silent);
    lp_ipc_packet answer;
    int fds[LP_IPC_FDS_MAX];
    assert_int_equal(lp_ipc_receive(attached, &answer, fds), sizeof answer.body.welcome);
    assert_int_equal(answer.body.welcome.answer, LP_IPC_YES);
    assert_true(lp_ipc_send(attached, LP_IPC_QUERY, NULL, 0, NULL, 0));
    int none[LP_IPC_FDS_MAX];
    assert_int_equal(lp_ipc_receive(attached, &answer, none), sizeof answer.body.state);
    close(fds[0]);
    close(fds[1]);
    close(attached);
    close_served(&v);
}

/* ---- servers ---- */

typedef struct liar {
    int listener;
    lp_ipc_welcome welcome;
    uint16_t type, version;
    uint32_t bytes;
    int fds[2], fd_count;
    bool is_silent;
} liar;

static void *lie(void *context)
{
    const liar *l = context;
    lp_ipc_packet p;
    int fds[LP_IPC_FDS_MAX];
    const int fd = accept(l->listener, NULL, NULL);
    if (fd < 0)
        return NULL;
    (void)lp_ipc_receive(fd, &p, fds);
    if (l->version != LP_IPC_VERSION) {
        p = (lp_ipc_packet){.header = {.magic = LP_IPC_MAGIC, .version = l->version, .type = 77}};
        (void)!send(fd, &p, sizeof p.header, MSG_NOSIGNAL);
    } else if (!l->is_silent) {
        (void)lp_ipc_send(fd, (lp_ipc_type)l->type, &l->welcome, l->bytes, l->fds, l->fd_count);
    }
    (void)lp_ipc_receive(fd, &p, fds); /* the question after the welcome, or the end */
    if (l->is_silent)
        (void)lp_ipc_receive(fd, &p, fds);
    close(fd);
    return NULL;
}

/* Attaches to a server that answers as *l says. */
static lp_status attach_to_liar(served *v, liar *l, lp_attachment **a)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/liar", v->folder);
    l->listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(l->listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(l->listener, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, lie, l), 0);
    const lp_attach_options o = {.content = CONTENT_A, .timeout_ms = l->is_silent ? 50 : PATIENCE_MS};
    *a = NULL;
    const lp_status status = lp_attach(a, address.sun_path, v->w.trace, NULL, &o, &v->err);
    shutdown(l->listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(l->listener);
    unlink(address.sun_path);
    return status;
}

static liar honest(const served *v)
{
    liar l = {.type = LP_IPC_WELCOME, .version = LP_IPC_VERSION, .bytes = sizeof l.welcome, .fd_count = 2};
    memcpy(l.welcome.device, "cpu", 4);
    l.fds[1] = v->shared->fd;
    return l;
}

/* A description as the server makes it, open to changes. */
static uint8_t *describe(const served *v, int *fd, int64_t *bytes)
{
    uint8_t *map;
    lp_error err;
    *bytes = lp_ipc_description_bytes(1, v->shared->places.count);
    assert_int_equal(lp_ipc_memory_new(fd, &map, "test", *bytes, &err), LP_OK);
    *(lp_ipc_head *)(void *)map = (lp_ipc_head){.magic = LP_IPC_MAGIC,
                                                .version = LP_IPC_VERSION,
                                                .kind = LP_IPC_HOST,
                                                .block_count = 1,
                                                .storage_count = v->shared->places.count,
                                                .word = 1 << LP_IPC_WORD_EPOCH};
    memcpy(map + sizeof(lp_ipc_head), v->shared->block, sizeof(lp_ipc_block));
    memcpy(map + sizeof(lp_ipc_head) + sizeof(lp_ipc_block), v->shared->storage,
           v->shared->places.count * sizeof(lp_ipc_storage));
    return map;
}

static void test_servers_that_lie_are_told(void **state)
{
    served v;
    lp_attachment *a;
    int64_t bytes;
    int fd;
    (void)state;
    open_served(&v, 15, NULL, NULL);
    uint8_t *map = describe(&v, &fd, &bytes);
    const int plain = memfd_create("unsealed", MFD_CLOEXEC);
    assert_int_equal(ftruncate(plain, 1 << 16), 0);
    const int before = open_descriptors();
    for (int k = 0; k < 10; k++) {
        liar l = honest(&v);
        const char *want = "is no weight server";
        l.fds[0] = fd;
        if (k == 0)
            l.fd_count = 0;
        if (k == 1)
            l.fd_count = 1; /* no memory */
        if (k == 2)
            l.fds[0] = plain; /* could be cut off under our hands */
        if (k == 3)
            l.fds[1] = plain;
        if (k == 4)
            l.type = LP_IPC_STATE;
        if (k == 5)
            l.bytes = 8;
        if (k == 6)
            l.welcome.answer = 4711;
        if (k == 7) {
            l.version = 9;
            want = "speaks version 9 of the protocol, this is 1";
        }
        if (k == 8) {
            l.is_silent = true;
            want = "does not answer";
        }
        if (k == 9) /* everything is right, until the server leaves instead of answering */
            want = "is gone";
        assert_int_equal(attach_to_liar(&v, &l, &a), LP_E_PEER);
        if (strstr(v.err.text, want) == NULL)
            fail_msg("case %d: %s", k, v.err.text);
        assert_int_equal(open_descriptors(), before);
    }
    munmap(map, (size_t)bytes);
    close(fd);
    close(plain);
    close_served(&v);
}

/* Whatever stands in the description: refused, or every storage lies inside what is mapped. */
static void test_random_descriptions(void **state)
{
    served v;
    lp_attachment *a;
    int64_t bytes;
    int fd;
    (void)state;
    open_served(&v, 16, NULL, NULL);
    uint8_t *map = describe(&v, &fd, &bytes), *copy = malloc((size_t)bytes);
    memcpy(copy, map, (size_t)bytes);
    const int before = open_descriptors();
    for (int round = 0; round < 400; round++) {
        memcpy(map, copy, (size_t)bytes);
        for (int64_t n = pick(&v.w, 3); n >= 0; n--) {
            const int64_t at = pick(&v.w, bytes / 4) * 4;
            const uint32_t extreme[4] = {0, 1, UINT32_MAX, INT32_MAX};
            const uint32_t value = pick(&v.w, 2) == 0 ? extreme[pick(&v.w, 4)] : (uint32_t)next_random(&v.w);
            memcpy(map + at, &value, sizeof value);
        }
        liar l = honest(&v);
        l.fds[0] = fd;
        assert_int_equal(attach_to_liar(&v, &l, &a), LP_E_PEER); /* at the latest when it leaves */
    }
    assert_int_equal(open_descriptors(), before);
    free(copy);
    munmap(map, (size_t)bytes);
    close(fd);
    close_served(&v);
}

/* ---- failures of our own ---- */

static void test_every_allocation_may_fail(void **state)
{
    served v;
    (void)state;
    open_served(&v, 17, NULL, NULL);
    const int before = open_descriptors();
    char path[120];
    snprintf(path, sizeof path, "%s/t", v.folder);
    bool is_whole = false;
    for (int n = 0; !is_whole; n++) {
        scarce_alloc f = {.left = n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = scarce_resize};
        const lp_platform platform = {.alloc = &alloc};
        lp_shared *shared = NULL;
        lp_server *server = NULL;
        lp_attachment *a = NULL;
        lp_status status = lp_shared_allocate(&shared, v.w.trace, NULL, NULL, &platform, &v.err);
        if (status == LP_OK)
            status = lp_serve_open(&server, path, shared, &(lp_serve_options){.platform = &platform}, &v.err);
        const lp_attach_options o = {.content = CONTENT_A, .timeout_ms = PATIENCE_MS, .platform = &platform};
        if (status == LP_OK)
            status = lp_attach(&a, v.path, v.w.trace, NULL, &o, &v.err);
        is_whole = status == LP_OK;
        if (!is_whole)
            assert_int_equal(status, LP_E_MEMORY);
        lp_attachment_close(a);
        lp_serve_close(server);
        lp_shared_free(shared);
        assert_true(n < 200);
    }
    assert_descriptors_become(before);
    close_served(&v);
}

static void test_every_device_call_may_fail(void **state)
{
    served v;
    lp_attachment *a;
    lp_shared *shared;
    fake_device f = {.fail_at = 0}, g = {.fail_at = 0}, h = {.fail_at = 0};
    const lp_ipc_device table = fake_table(&f, "GPU-7"), theirs = fake_table(&g, "GPU-7"),
                        own = fake_table(&h, "GPU-7");
    const lp_attach_options o = {.content = CONTENT_A, .timeout_ms = PATIENCE_MS};
    (void)state;
    open_served(&v, 18, &table, NULL);
    for (g.fail_at = 1; g.fail_at <= 2; g.fail_at++) { /* enter, take */
        g.calls = 0;
        const lp_status status = lp_attach_on(&a, v.path, v.w.trace, NULL, &o, &theirs, &v.err);
        assert_int_equal(status, g.fail_at == 1 ? LP_E_DEVICE : LP_E_PEER);
        assert_non_null(strstr(v.err.text, "a made-up failure"));
        assert_int_equal(g.open, 0);
    }
    for (h.fail_at = 1; h.fail_at <= 3; h.fail_at++) { /* enter, allocate, give */
        h.calls = 0;
        assert_int_equal(lp_shared_allocate_on(&shared, v.w.trace, NULL, &own, lp_alloc_default(), &v.err),
                         LP_E_DEVICE);
        assert_int_equal(h.open, 0);
    }
    close_served(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packets_that_are_none_cost_the_connection),
        cmocka_unit_test(test_random_packets),
        cmocka_unit_test(test_descriptors_from_clients_are_closed),
        cmocka_unit_test(test_too_many_clients),
        cmocka_unit_test(test_silent_clients),
        cmocka_unit_test(test_servers_that_lie_are_told),
        cmocka_unit_test(test_random_descriptions),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_every_device_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
