/* SPDX-License-Identifier: Apache-2.0 */
/* Served weights for tests: a small world, a server on a thread of its own, and a device that is host memory. */
#ifndef LOADPLAN_IPC_TESTING_H
#define LOADPLAN_IPC_TESTING_H

#include "replay_testing.h"

#include "replayer/ipc_device.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALLOCATIONS_MAX = 64, PATIENCE_MS = 120000 /* nothing that goes well waits for it */ };

/* ---- a device that is host memory: a handle says which descriptor of which process to open ---- */

typedef struct allocation {
    int fd; /* -1: taken from another process */
    uint8_t *base;
    int64_t bytes;
} allocation;

typedef struct fake_device {
    allocation of[ALLOCATIONS_MAX];
    int count, open, fail_at, calls;
} fake_device;

typedef struct fake_handle {
    int32_t pid, fd;
    int64_t bytes;
} fake_handle;

static inline int fake_step(fake_device *f)
{
    return ++f->calls == f->fail_at ? 7 : 0;
}

static inline const char *fake_text(void *context, int code)
{
    (void)context;
    return code == 7 ? "a made-up failure" : "?";
}

static inline int fake_enter(void *context)
{
    return fake_step(context);
}

static inline int fake_keep(fake_device *f, int fd, bool is_own, int64_t bytes, void **out)
{
    void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || f->count == ALLOCATIONS_MAX)
        return 8;
    f->of[f->count++] = (allocation){.fd = is_own ? fd : -1, .base = at, .bytes = bytes};
    f->open++;
    *out = at;
    return 0;
}

static inline int fake_allocate(void *context, int64_t bytes, void **out)
{
    fake_device *f = context;
    if (fake_step(f) != 0)
        return 7;
    const int fd = memfd_create("device", 0);
    return fd < 0 || ftruncate(fd, bytes) != 0 ? 8 : fake_keep(f, fd, true, bytes, out);
}

static inline void fake_release(void *context, void *memory)
{
    fake_device *f = context;
    for (int i = 0; i < f->count; i++) {
        if (f->of[i].base != memory)
            continue;
        munmap(memory, (size_t)f->of[i].bytes);
        if (f->of[i].fd >= 0)
            close(f->of[i].fd);
        f->of[i] = (allocation){.fd = -1};
        f->open--;
    }
}

static inline int fake_give(void *context, void *memory, uint8_t handle[LP_IPC_HANDLE_BYTES], void **base,
                            int64_t *bytes)
{
    fake_device *f = context;
    if (fake_step(f) != 0)
        return 7;
    for (int i = 0; i < f->count; i++) {
        const allocation *a = &f->of[i];
        if ((uint8_t *)memory < a->base || (uint8_t *)memory >= a->base + a->bytes)
            continue;
        const fake_handle made = {.pid = getpid(), .fd = a->fd, .bytes = a->bytes};
        memset(handle, 0, LP_IPC_HANDLE_BYTES);
        memcpy(handle, &made, sizeof made);
        *base = a->base;
        *bytes = a->bytes;
        return 0;
    }
    return 9;
}

static inline int fake_take(void *context, const uint8_t handle[LP_IPC_HANDLE_BYTES], void **base)
{
    fake_device *f = context;
    fake_handle given;
    char path[64];
    if (fake_step(f) != 0)
        return 7;
    memcpy(&given, handle, sizeof given);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", given.pid, given.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 8;
    const int code = fake_keep(f, fd, false, given.bytes, base);
    close(fd);
    return code;
}

static inline lp_ipc_device fake_table(fake_device *f, const char *name)
{
    lp_ipc_device d = {.context = f,
                       .error_text = fake_text,
                       .enter = fake_enter,
                       .allocate = fake_allocate,
                       .release = fake_release,
                       .give = fake_give,
                       .take = fake_take,
                       .put_back = fake_release};
    snprintf(d.name, sizeof d.name, "%s", name);
    return d;
}

/* ---- a world that is served ---- */

typedef struct served {
    world w;
    payload first, second; /* what is loaded, and what replaces it */
    lp_shared *shared;
    lp_server *server;
    char folder[64], path[96];
    pthread_t thread;
    atomic_bool stop;
    bool is_running;
    lp_error err;
} served;

static const uint8_t CONTENT_A[32] = {1, 2, 3}, CONTENT_B[32] = {4, 5, 6};

static inline void make_world(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = failing_seed = seed;
    const int a = add_source(w, "a", LP_F32, 8, 6), b = add_source(w, "b", LP_BF16, 5, 4);
    const int c = add_source(w, "c", LP_U8, 3, 100);
    const int x = add_dest(w, "x", LP_F32, 8, 6, 0, "g"), y = add_dest(w, "y", LP_F32, 5, 4, 16, "g");
    const int z = add_dest(w, "z", LP_U8, 4, 100, 0, "h"), m = add_dest(w, "m", LP_F32, 1, 1, 0, "h");
    add_copy(w, a, x, 0, 8, 0);
    add_copy(w, b, y, 0, 5, 0);
    add_copy(w, c, z, 1, 3, 0);
    add_fill(w, -1, z, 0, 1, 0x5a);
    w->derive[w->nderive++] = (derive){.kind = DERIVE_MAX, .dest = m, .input = x};
    build_world(w, NULL);
}

static inline lp_plan *bind_list(world *w, const lp_destination_memory *list, int64_t count)
{
    lp_plan *plan = NULL;
    assert_ok(w, lp_bind(&plan, w->trace, NULL, list, count, NULL, &w->err));
    return plan;
}

static inline void load_into(world *w, const lp_destination_memory *list, int64_t count, const payload *p,
                             lp_load_mode mode)
{
    lp_plan *plan = bind_list(w, list, count);
    lp_session *s;
    assert_ok(w, lp_begin(&s, plan, &(lp_session_options){.mode = mode}, &w->err));
    push_all(w, s, p);
    assert_ok(w, lp_finish(s, NULL, &w->err));
    lp_session_close(s);
    lp_plan_close(plan);
}

/* The list holds what the payload makes of zeroed memory. */
static inline void assert_holds(world *w, const lp_destination_memory *list, int64_t count, const payload *p)
{
    image want = new_image(w);
    lp_plan *have = bind_list(w, list, count), *model = bind_image(w, &want, NULL);
    lp_session *s;
    assert_ok(w, lp_begin(&s, model, NULL, &w->err));
    push_all(w, s, p);
    assert_ok(w, lp_finish(s, NULL, &w->err));
    lp_session_close(s);
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        uint8_t a[LP_VALUE_DIGEST_BYTES], b[LP_VALUE_DIGEST_BYTES];
        assert_ok(w, lp_plan_value_digest(have, i, a, &w->err));
        assert_ok(w, lp_plan_value_digest(model, i, b, &w->err));
        assert_memory_equal(a, b, sizeof a);
    }
    lp_plan_close(have);
    lp_plan_close(model);
    free_image(w, &want);
}

static inline void *run_server(void *context)
{
    served *v = context;
    while (!atomic_load(&v->stop))
        if (lp_serve_step(v->server, 5, NULL) != LP_OK)
            break;
    return NULL;
}

static inline void start_server(served *v)
{
    atomic_store(&v->stop, false);
    assert_int_equal(pthread_create(&v->thread, NULL, run_server, v), 0);
    v->is_running = true;
}

static inline void stop_server(served *v)
{
    if (!v->is_running)
        return;
    atomic_store(&v->stop, true);
    pthread_join(v->thread, NULL);
    v->is_running = false;
}

static inline void open_folder(served *v)
{
    snprintf(v->folder, sizeof v->folder, "/tmp/loadplan-ipc-XXXXXX");
    assert_non_null(mkdtemp(v->folder));
    snprintf(v->path, sizeof v->path, "%s/s.sock", v->folder);
}

/* Serves payload `first` as CONTENT_A, from host memory or by a device's table. */
static inline void open_served(served *v, uint64_t seed, const lp_ipc_device *device, const lp_serve_options *more)
{
    lp_serve_options o = more == NULL ? (lp_serve_options){0} : *more;
    int64_t count;
    memset(v, 0, sizeof *v);
    make_world(&v->w, seed);
    v->first = make_payload(&v->w);
    v->second = make_payload(&v->w);
    open_folder(v);
    assert_ok(&v->w, lp_shared_allocate_on(&v->shared, v->w.trace, NULL, device, lp_alloc_default(), &v->w.err));
    const lp_destination_memory *list = lp_shared_list(v->shared, &count);
    load_into(&v->w, list, count, &v->first, LP_COLD);
    o.content = CONTENT_A;
    o.timeout_ms = o.timeout_ms == 0 ? PATIENCE_MS : o.timeout_ms;
    assert_ok(&v->w, lp_serve_open(&v->server, v->path, v->shared, &o, &v->w.err));
    start_server(v);
}

static inline void close_served(served *v)
{
    stop_server(v);
    lp_serve_close(v->server);
    assert_int_not_equal(access(v->path, F_OK), 0);
    assert_int_equal(rmdir(v->folder), 0);
    lp_shared_free(v->shared);
    free_payload(&v->w, &v->first);
    free_payload(&v->w, &v->second);
    free_world(&v->w);
}

static inline lp_status attach_as(served *v, lp_attachment **a, const uint8_t *content, bool write)
{
    *a = NULL;
    memset(&v->err, 0, sizeof v->err);
    const lp_attach_options o = {.content = content, .write = write, .timeout_ms = PATIENCE_MS};
    return lp_attach(a, v->path, v->w.trace, NULL, &o, &v->err);
}

static inline bool becomes_true(bool (*is_true)(const lp_attachment *a), const lp_attachment *a)
{
    for (int i = 0; i < PATIENCE_MS / 2; i++) {
        if (is_true(a))
            return true;
        usleep(2000);
    }
    return false;
}

static inline int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* The server closes connections in its own time. */
static inline void assert_descriptors_become(int count)
{
    for (int i = 0; i < PATIENCE_MS / 2 && open_descriptors() != count; i++)
        usleep(2000);
    assert_int_equal(open_descriptors(), count);
}

#endif
