/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in the memory of a GPU, served by one process to another: the bytes arrive, a direct session under a lease is
 * seen by the server, a server that was killed is told. Both for memory of lp_shared_allocate and for live tensors.
 *
 *   test_device_ipc                      the client and the test
 *   test_device_ipc own|live SOCKET      the server, started by it
 */
#include "gpu_check.h"
#include "tests/unit/ipc_testing.h"

#include <signal.h>
#include <time.h>

#define DEVICE "cuda:0"

typedef struct model {
    world w;
    payload payload[2];
    lp_destinations *loaded[2]; /* in host memory */
} model;

static const lp_destination_memory *host_list(const model *m, int which, int64_t *count)
{
    return lp_destinations_list(m->loaded[which], count);
}

/* The same in both processes. */
static void open_model(model *m)
{
    int64_t count;
    make_world(&m->w, 4711);
    for (int i = 0; i < 2; i++) {
        m->payload[i] = make_payload(&m->w);
        assert_ok(&m->w, lp_destinations_allocate(&m->loaded[i], m->w.trace, NULL, false, NULL, &m->w.err));
        const lp_destination_memory *list = host_list(m, i, &count);
        load_into(&m->w, list, count, &m->payload[i], LP_COLD);
    }
}

static void close_model(model *m)
{
    for (int i = 0; i < 2; i++) {
        lp_destinations_free(m->loaded[i]);
        free_payload(&m->w, &m->payload[i]);
    }
    free_world(&m->w);
}

static void store(const model *m, int which, const lp_destination_memory *device)
{
    int64_t count;
    const lp_destination_memory *host = host_list(m, which, &count);
    for (int64_t i = 0; i < count; i++)
        put_device(device[i].storage, host[i].storage, (size_t)host[i].storage_bytes);
    CUDA(cudaDeviceSynchronize());
}

static bool holds(const model *m, int which, const lp_destination_memory *device)
{
    int64_t count;
    const lp_destination_memory *host = host_list(m, which, &count);
    bool is_equal = true;
    for (int64_t i = 0; i < count; i++) {
        uint8_t *seen = malloc((size_t)host[i].storage_bytes);
        CUDA(cudaMemcpy(seen, device[i].storage, (size_t)host[i].storage_bytes, cudaMemcpyDeviceToHost));
        is_equal = is_equal && memcmp(seen, host[i].storage, (size_t)host[i].storage_bytes) == 0;
        free(seen);
    }
    return is_equal;
}

/* ---- the server ---- */

/* Live tensors: two of them in each of two allocations, not at the beginning. */
static lp_plan *bind_live(model *m, lp_destination_memory list[DESTS_MAX])
{
    int64_t count;
    char *block[2];
    lp_plan *plan = NULL;
    const lp_destination_memory *host = host_list(m, 0, &count);
    for (int i = 0; i < 2; i++)
        CUDA(cudaMalloc((void **)&block[i], 8192));
    for (int64_t i = 0; i < count; i++) {
        list[i] = host[i];
        list[i].storage = block[i % 2] + 512 + 2048 * (i / 2);
        list[i].data = (uint8_t *)list[i].storage + ((uint8_t *)host[i].data - (uint8_t *)host[i].storage);
    }
    CHECK(lp_bind(&plan, m->w.trace, NULL, list, count, NULL, &m->w.err) == LP_OK, "%s", m->w.err.text);
    return plan;
}

/* Serves the first payload until somebody has committed the second one and left. */
static int serve(const char *kind, const char *path)
{
    model m;
    lp_error err;
    lp_shared *shared;
    lp_server *server;
    lp_shared_state state;
    lp_plan *plan = NULL;
    lp_destination_memory live[DESTS_MAX];
    const lp_destination_memory *list = live;
    int64_t count;
    open_model(&m);
    if (strcmp(kind, "own") == 0) {
        CHECK(lp_shared_allocate(&shared, m.w.trace, NULL, DEVICE, NULL, &err) == LP_OK, "%s", err.text);
        list = lp_shared_list(shared, &count);
    } else {
        CUDA(cudaSetDevice(0));
        plan = bind_live(&m, live);
        CHECK(lp_shared_of(&shared, plan, DEVICE, &err) == LP_OK, "%s", err.text);
    }
    store(&m, 0, list);
    CHECK(lp_serve_open(&server, path, shared, &(lp_serve_options){.content = CONTENT_A}, &err) == LP_OK, "%s",
          err.text);
    do {
        CHECK(lp_serve_step(server, 1000, &err) == LP_OK, "%s", err.text);
        lp_serve_state(server, &state);
    } while (state.epoch < 2 || lp_serve_clients(server) > 0);
    CHECK(memcmp(state.content, CONTENT_B, 32) == 0 && !state.is_torn, "the commit did not arrive");
    CHECK(holds(&m, 1, list), "the server does not see what the client wrote");
    lp_serve_close(server);
    lp_shared_free(shared);
    lp_plan_close(plan);
    close_model(&m);
    return 0;
}

/* ---- the client ---- */

static pid_t start(const char *kind, const char *path)
{
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test_device_ipc", kind, path, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 3000 && access(path, F_OK) != 0; i++) {
        CHECK(waitpid(child, NULL, WNOHANG) == 0, "the server ended by itself");
        usleep(10000);
    }
    return child;
}

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The second payload, by a direct session into memory of the other process. */
static void reload(model *m, lp_attachment *a)
{
    lp_plan *plan = NULL;
    lp_session *s;
    int64_t count;
    const lp_destination_memory *list = lp_attachment_list(a, &count);
    const lp_bind_options o = {.device = DEVICE};
    assert_ok(&m->w, lp_bind(&plan, m->w.trace, NULL, list, count, &o, &m->w.err));
    assert_ok(&m->w, lp_begin(&s, plan, &(lp_session_options){.mode = LP_DIRECT}, &m->w.err));
    push_all(&m->w, s, &m->payload[1]);
    assert_ok(&m->w, lp_finish(s, NULL, &m->w.err));
    lp_session_close(s);
    lp_plan_close(plan);
    CUDA(cudaDeviceSynchronize());
}

static void use(const char *kind, const char *path, model *m)
{
    const lp_attach_options right = {.content = CONTENT_A, .device = DEVICE},
                            other = {.content = CONTENT_B, .device = DEVICE}, host = {.content = CONTENT_A},
                            writing = {.device = DEVICE, .write = true};
    lp_attachment *a;
    lp_error err;
    int64_t count;
    int status;
    const pid_t child = start(kind, path);
    CHECK(lp_attach(&a, path, m->w.trace, NULL, &other, &err) == LP_E_MISMATCH, "other content was attached");
    CHECK(lp_attach(&a, path, m->w.trace, NULL, &host, &err) == LP_E_MISMATCH, "another device was attached");
    double least = 1e9;
    for (int i = 0; i < 5; i++) {
        const double begin = milliseconds();
        CHECK(lp_attach(&a, path, m->w.trace, NULL, &right, &err) == LP_OK, "%s", err.text);
        const double took = milliseconds() - begin;
        least = took < least ? took : least;
        CHECK(holds(m, 0, lp_attachment_list(a, &count)), "the client does not see what is served");
        lp_attachment_close(a);
    }
    CHECK(lp_attach(&a, path, m->w.trace, NULL, &writing, &err) == LP_OK, "%s", err.text);
    CHECK(lp_attachment_lease(a, 0, &err) == LP_OK, "%s", err.text);
    reload(m, a);
    CHECK(lp_attachment_commit(a, CONTENT_B, 0, &err) == LP_OK, "%s", err.text);
    lp_attachment_close(a);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the server failed");

    const pid_t second = start(kind, path);
    kill(second, SIGKILL);
    CHECK(waitpid(second, &status, 0) == second, "the server lives on");
    CHECK(lp_attach(&a, path, m->w.trace, NULL, &right, &err) == LP_E_PEER, "a dead server was attached");
    CHECK(unlink(path) == 0, "no socket was left");
    printf("%s memory: attached in %.2f ms at best, reloaded, seen by the server; a killed server is told\n", kind,
           least);
}

int main(int argc, char **argv)
{
    model m;
    char folder[] = "/tmp/loadplan-ipc-XXXXXX", path[64];
    if (argc == 3)
        return serve(argv[1], argv[2]);
    need_gpu();
    CHECK(mkdtemp(folder) != NULL, "no folder for the socket");
    snprintf(path, sizeof path, "%s/s", folder);
    open_model(&m);
    use("own", path, &m);
    use("live", path, &m);
    close_model(&m);
    rmdir(folder);
    return 0;
}
