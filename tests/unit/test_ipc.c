/* SPDX-License-Identifier: Apache-2.0 */
/* Served weights: the key, reloads under a lease, and what is left when a process dies. */
#include "ipc_testing.h"

#include <signal.h>
#include <sys/file.h>

static void test_attached_bytes_are_the_served_ones(void **state)
{
    served v;
    lp_attachment *a;
    lp_shared_state now;
    int64_t count, bytes;
    (void)state;
    open_served(&v, 1, NULL, NULL);
    assert_ok(&v, attach_as(&v, &a, CONTENT_A, false));
    const lp_destination_memory *list = lp_attachment_list(a, &count);
    assert_int_equal(count, 4);
    assert_holds(&v.w, list, count, &v.first);
    bytes = lp_attachment_bytes(a);
    assert_int_equal(bytes, lp_shared_bytes(v.shared));
    lp_attachment_peek(a, &now);
    assert_true(now.epoch == 1 && !now.is_writing && !now.is_torn);
    assert_ok(&v, lp_attachment_state(a, &now, &v.err));
    assert_true(now.epoch == 1 && now.has_content && now.writer == 0);
    assert_memory_equal(now.content, CONTENT_A, 32);
    assert_int_equal(lp_attachment_lease(a, 0, &v.err), LP_E_MISUSE);
    assert_string_equal(v.err.text, "the attachment is not for writing");
    /* The bytes are shared, not copied: what the owner writes is seen. */
    int64_t own_count;
    const lp_destination_memory *own = lp_shared_list(v.shared, &own_count);
    ((uint8_t *)own[3].data)[7] ^= 0xff;
    assert_memory_equal(own[3].data, list[3].data, 100);
    lp_attachment_close(a);
    close_served(&v);
}

static void test_the_key_is_strict(void **state)
{
    served v;
    world other;
    lp_attachment *a = NULL;
    (void)state;
    open_served(&v, 2, NULL, &(lp_serve_options){.experts_epoch = 5});
    assert_int_equal(attach_as(&v, &a, CONTENT_B, false), LP_E_MISMATCH);
    assert_non_null(strstr(v.err.text, "serves other content than this checkpoint's"));
    static const uint8_t nothing[32];
    assert_int_equal(attach_as(&v, &a, nothing, false), LP_E_MISMATCH);
    assert_int_equal(attach_as(&v, &a, CONTENT_A, false), LP_E_MISMATCH);
    assert_non_null(strstr(v.err.text, "serves weights by expert map 5"));
    const lp_attach_options right = {.content = CONTENT_A, .experts_epoch = 5, .timeout_ms = PATIENCE_MS};
    assert_ok(&v, lp_attach(&a, v.path, v.w.trace, NULL, &right, &v.err));
    lp_attachment_close(a);

    memset(&other, 0, sizeof other);
    other.random = 2;
    const int s = add_source(&other, "a", LP_F32, 8, 6), d = add_dest(&other, "x", LP_F32, 8, 6, 0, "g");
    add_copy(&other, s, d, 0, 8, 0);
    build_world(&other, NULL);
    assert_int_equal(lp_attach(&a, v.path, other.trace, NULL, &right, &v.err), LP_E_MISMATCH);
    assert_non_null(strstr(v.err.text, "serves weights of another plan"));
    free_world(&other);

    fake_device f = {.fail_at = 0};
    const lp_ipc_device table = fake_table(&f, "GPU-1");
    assert_int_equal(lp_attach_on(&a, v.path, v.w.trace, NULL, &right, &table, &v.err), LP_E_MISMATCH);
    assert_non_null(strstr(v.err.text, "serves weights on device 'cpu'"));
    close_served(&v);
}

static bool is_second_epoch(const lp_attachment *a)
{
    lp_shared_state now;
    lp_attachment_peek(a, &now);
    return now.epoch == 2 && !now.is_writing;
}

static void test_reload_under_a_lease(void **state)
{
    served v;
    lp_attachment *reader, *writer, *late;
    lp_shared_state now;
    int64_t count;
    (void)state;
    open_served(&v, 3, NULL, NULL);
    assert_ok(&v, attach_as(&v, &reader, CONTENT_A, false));
    assert_ok(&v, attach_as(&v, &writer, NULL, true));
    const lp_destination_memory *list = lp_attachment_list(writer, &count);
    assert_int_equal(lp_attachment_commit(writer, CONTENT_B, 0, &v.err), LP_E_MISUSE);
    assert_ok(&v, lp_attachment_lease(writer, 0, &v.err));
    lp_attachment_peek(reader, &now);
    assert_true(now.is_writing && now.epoch == 1);
    assert_int_equal(attach_as(&v, &late, CONTENT_A, false), LP_E_MISMATCH);
    assert_non_null(strstr(v.err.text, "is writing to the weights at"));
    load_into(&v.w, list, count, &v.second, LP_DIRECT);
    assert_ok(&v, lp_attachment_commit(writer, CONTENT_B, 9, &v.err));
    assert_true(is_second_epoch(reader));
    assert_ok(&v, lp_attachment_state(reader, &now, &v.err));
    assert_memory_equal(now.content, CONTENT_B, 32);
    assert_int_equal(now.experts_epoch, 9);
    const lp_destination_memory *seen = lp_attachment_list(reader, &count);
    assert_holds(&v.w, seen, count, &v.second);
    assert_int_equal(attach_as(&v, &late, CONTENT_A, false), LP_E_MISMATCH);
    const lp_attach_options right = {.content = CONTENT_B, .experts_epoch = 9, .timeout_ms = PATIENCE_MS};
    assert_ok(&v, lp_attach(&late, v.path, v.w.trace, NULL, &right, &v.err));
    lp_attachment_close(late);

    /* Nothing written: the epoch stays. Content that nobody knows: no key can ask for it. */
    assert_ok(&v, lp_attachment_lease(writer, 0, &v.err));
    assert_ok(&v, lp_attachment_abandon(writer, false, &v.err));
    assert_true(is_second_epoch(reader));
    assert_ok(&v, lp_attachment_lease(writer, 0, &v.err));
    assert_ok(&v, lp_attachment_commit(writer, NULL, 0, &v.err));
    assert_int_equal(attach_as(&v, &late, CONTENT_B, false), LP_E_MISMATCH);
    assert_ok(&v, attach_as(&v, &late, NULL, false));
    lp_attachment_close(late);
    lp_attachment_close(writer);
    lp_attachment_close(reader);
    close_served(&v);
}

static void test_one_writer_at_a_time(void **state)
{
    served v;
    lp_attachment *one, *two;
    (void)state;
    open_served(&v, 4, NULL, NULL);
    assert_ok(&v, attach_as(&v, &one, CONTENT_A, true));
    assert_ok(&v, attach_as(&v, &two, CONTENT_A, true));
    assert_ok(&v, lp_attachment_lease(one, 0, &v.err));
    assert_int_equal(lp_attachment_lease(one, 0, &v.err), LP_E_MISUSE);
    assert_int_equal(lp_attachment_lease(two, 10, &v.err), LP_E_PEER);
    char want[64];
    snprintf(want, sizeof want, "process %d writes to the weights", (int)getpid());
    assert_non_null(strstr(v.err.text, want));
    assert_ok(&v, lp_attachment_abandon(one, false, &v.err));
    assert_ok(&v, lp_attachment_lease(two, 0, &v.err));
    assert_ok(&v, lp_attachment_commit(two, CONTENT_A, 0, &v.err));
    lp_attachment_close(one);
    lp_attachment_close(two);

    /* The server itself. */
    stop_server(&v);
    assert_int_equal(lp_serve_commit(v.server, CONTENT_B, 0, &v.err), LP_E_MISUSE);
    assert_ok(&v, lp_serve_lease(v.server, &v.err));
    assert_int_equal(lp_serve_lease(v.server, &v.err), LP_E_MISUSE);
    assert_ok(&v, lp_serve_commit(v.server, CONTENT_B, 0, &v.err));
    lp_shared_state now;
    lp_serve_state(v.server, &now);
    assert_true(now.epoch == 3 && !now.is_writing);
    start_server(&v);
    assert_ok(&v, attach_as(&v, &one, CONTENT_B, false));
    lp_attachment_close(one);
    close_served(&v);
}

static bool is_torn(const lp_attachment *a)
{
    lp_shared_state now;
    lp_attachment_peek(a, &now);
    return now.is_torn && !now.is_writing;
}

static void test_lost_writer_leaves_torn_weights(void **state)
{
    served v;
    lp_attachment *reader, *writer;
    int64_t count;
    int status, ready[2];
    char byte;
    (void)state;
    open_served(&v, 5, NULL, NULL);
    assert_ok(&v, attach_as(&v, &reader, CONTENT_A, false));
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (attach_as(&v, &writer, NULL, true) == LP_OK && lp_attachment_lease(writer, 0, NULL) == LP_OK &&
            write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(becomes_true(is_torn, reader));
    assert_int_equal(attach_as(&v, &writer, CONTENT_A, false), LP_E_POISONED);
    assert_non_null(strstr(v.err.text, "were left half written"));
    assert_int_equal(attach_as(&v, &writer, NULL, false), LP_E_POISONED);

    /* Whoever writes all of it repairs it. */
    assert_ok(&v, attach_as(&v, &writer, NULL, true));
    assert_ok(&v, lp_attachment_lease(writer, 0, &v.err));
    const lp_destination_memory *list = lp_attachment_list(writer, &count);
    load_into(&v.w, list, count, &v.second, LP_DIRECT);
    assert_ok(&v, lp_attachment_commit(writer, CONTENT_B, 0, &v.err));
    assert_false(is_torn(reader));
    lp_attachment_close(writer);
    list = lp_attachment_list(reader, &count);
    assert_holds(&v.w, list, count, &v.second);
    lp_attachment_close(reader);
    close(ready[0]);
    close(ready[1]);
    close_served(&v);
}

static void test_dead_server_is_told_and_replaced(void **state)
{
    served v;
    lp_attachment *a;
    int64_t count;
    int status, ready[2];
    char byte;
    (void)state;
    open_served(&v, 6, NULL, NULL);
    stop_server(&v);
    lp_serve_close(v.server);
    v.server = NULL;
    assert_int_equal(attach_as(&v, &a, CONTENT_A, false), LP_E_PEER);
    assert_non_null(strstr(v.err.text, "No such file or directory"));
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (lp_serve_open(&v.server, v.path, v.shared, &(lp_serve_options){.content = CONTENT_A}, NULL) == LP_OK &&
            write(ready[1], "x", 1) == 1)
            while (lp_serve_step(v.server, -1, NULL) == LP_OK)
                ;
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_ok(&v, attach_as(&v, &a, CONTENT_A, false));
    lp_server *second;
    assert_int_equal(lp_serve_open(&second, v.path, v.shared, NULL, &v.err), LP_E_EXISTS);
    assert_non_null(strstr(v.err.text, "another process listens there"));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);

    /* Who is attached keeps the bytes, and is told. */
    lp_shared_state now;
    assert_int_equal(lp_attachment_state(a, &now, &v.err), LP_E_PEER);
    const lp_destination_memory *list = lp_attachment_list(a, &count);
    assert_holds(&v.w, list, count, &v.first);
    lp_attachment_close(a);
    assert_int_equal(access(v.path, F_OK), 0);
    assert_int_equal(attach_as(&v, &a, CONTENT_A, false), LP_E_PEER);
    assert_non_null(strstr(v.err.text, "nobody serves at"));
    assert_ok(&v, lp_serve_open(&v.server, v.path, v.shared, &(lp_serve_options){.content = CONTENT_A}, &v.err));
    start_server(&v);
    assert_ok(&v, attach_as(&v, &a, CONTENT_A, false));
    lp_attachment_close(a);
    close(ready[0]);
    close(ready[1]);
    close_served(&v);
}

static void test_socket_file(void **state)
{
    served v;
    struct stat st;
    lp_server *second;
    (void)state;
    open_served(&v, 7, NULL, NULL);
    assert_int_equal(stat(v.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    /* A file of another kind is left alone, and so is one that took the socket's place. */
    char other[120];
    snprintf(other, sizeof other, "%s/file", v.folder);
    const int fd = open(other, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(lp_serve_open(&second, other, v.shared, NULL, &v.err), LP_E_EXISTS);
    assert_non_null(strstr(v.err.text, "it exists and is not a socket"));
    stop_server(&v);
    assert_int_equal(rename(other, v.path), 0);
    lp_serve_close(v.server);
    v.server = NULL;
    assert_int_equal(access(v.path, F_OK), 0);
    assert_int_equal(unlink(v.path), 0);

    /* Somebody holds the folder's lock: later, but not never. */
    const int folder = open(v.folder, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(folder, LOCK_EX), 0);
    assert_ok(&v, lp_serve_open(&second, v.path, v.shared, NULL, &v.err));
    lp_serve_close(second);
    close(folder);

    char longer[160];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(lp_serve_open(&second, longer, v.shared, NULL, &v.err), LP_E_ARGUMENT);
    assert_int_equal(lp_serve_open(&second, "/no/such/folder/s", v.shared, NULL, &v.err), LP_E_IO);
    close_served(&v);
}

/* Device memory goes through handles; storages of one allocation share one. */
static void test_device_memory(void **state)
{
    served v;
    lp_attachment *a;
    int64_t count;
    fake_device f = {.fail_at = 0}, g = {.fail_at = 0};
    const lp_ipc_device table = fake_table(&f, "GPU-7"), theirs = fake_table(&g, "GPU-7");
    const lp_ipc_device wrong = fake_table(&g, "GPU-8");
    const lp_attach_options o = {.content = CONTENT_A, .write = true, .timeout_ms = PATIENCE_MS};
    (void)state;
    open_served(&v, 8, &table, NULL);
    assert_int_equal(f.open, 1);
    assert_ok(&v, lp_attach_on(&a, v.path, v.w.trace, NULL, &o, &theirs, &v.err));
    const lp_destination_memory *list = lp_attachment_list(a, &count);
    assert_int_equal(g.open, 1);
    assert_holds(&v.w, list, count, &v.first);
    assert_ok(&v, lp_attachment_lease(a, 0, &v.err));
    load_into(&v.w, list, count, &v.second, LP_DIRECT);
    assert_ok(&v, lp_attachment_commit(a, CONTENT_B, 0, &v.err));
    lp_attachment_close(a);
    assert_int_equal(g.open, 0);
    list = lp_shared_list(v.shared, &count);
    assert_holds(&v.w, list, count, &v.second);
    assert_int_equal(lp_attach_on(&a, v.path, v.w.trace, NULL, &o, &wrong, &v.err), LP_E_MISMATCH);
    assert_non_null(strstr(v.err.text, "serves weights on device 'GPU-7'"));
    close_served(&v);
    assert_int_equal(f.open, 0);
}

/* Live tensors in several allocations, as an engine has them. */
static void test_memory_of_a_plan(void **state)
{
    served v;
    lp_attachment *a;
    lp_shared *shared;
    void *block[2] = {NULL, NULL};
    int64_t count;
    fake_device f = {.fail_at = 0}, g = {.fail_at = 0};
    const lp_ipc_device table = fake_table(&f, "GPU-7"), theirs = fake_table(&g, "GPU-7");
    (void)state;
    open_served(&v, 9, NULL, NULL);
    stop_server(&v);
    lp_serve_close(v.server);
    assert_int_equal(fake_allocate(&f, 4096, &block[0]), 0);
    assert_int_equal(fake_allocate(&f, 8192, &block[1]), 0);
    const lp_destination_memory *from = lp_shared_list(v.shared, &count);
    lp_destination_memory list[8];
    assert_int_equal(count, 4);
    for (int i = 0; i < 4; i++) { /* two in each, not at the beginning */
        list[i] = from[i];
        list[i].storage = (uint8_t *)block[i % 2] + 512 + 1024 * (i / 2);
        list[i].data = (uint8_t *)list[i].storage + ((uint8_t *)from[i].data - (uint8_t *)from[i].storage);
    }
    load_into(&v.w, list, 4, &v.second, LP_COLD);
    lp_plan *plan = bind_list(&v.w, list, 4);
    assert_ok(&v, lp_shared_of_on(&shared, plan, &table, &v.err));
    assert_int_equal(shared->block_count, 2);
    assert_int_equal(lp_shared_of(&shared, plan, NULL, &v.err), LP_E_UNSUPPORTED);
    assert_ok(&v, lp_serve_open(&v.server, v.path, shared, &(lp_serve_options){.content = CONTENT_B}, &v.err));
    start_server(&v);
    const lp_attach_options o = {.content = CONTENT_B, .timeout_ms = PATIENCE_MS};
    assert_ok(&v, lp_attach_on(&a, v.path, v.w.trace, NULL, &o, &theirs, &v.err));
    assert_int_equal(g.open, 2);
    from = lp_attachment_list(a, &count);
    assert_holds(&v.w, from, count, &v.second);
    lp_attachment_close(a);
    assert_int_equal(g.open, 0);
    stop_server(&v);
    lp_serve_close(v.server);
    v.server = NULL;
    lp_shared_free(shared);
    lp_plan_close(plan);
    fake_release(&f, block[0]);
    fake_release(&f, block[1]);
    close_served(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attached_bytes_are_the_served_ones),
        cmocka_unit_test(test_the_key_is_strict),
        cmocka_unit_test(test_reload_under_a_lease),
        cmocka_unit_test(test_one_writer_at_a_time),
        cmocka_unit_test(test_lost_writer_leaves_torn_weights),
        cmocka_unit_test(test_dead_server_is_told_and_replaced),
        cmocka_unit_test(test_socket_file),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_memory_of_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
