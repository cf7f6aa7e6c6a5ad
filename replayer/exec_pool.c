/* SPDX-License-Identifier: Apache-2.0 */
/* The thread pool: workers sleep until a round of tasks is posted and take tasks from one counter. */
#include "replayer/exec_pool.h"
#include "replayer/quiet_thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

struct lp_pool {
    const lp_alloc *alloc;
    int32_t threads; /* wanted, the caller included */
    int32_t started; /* workers */
    bool is_started, is_ending;
    pthread_t worker[LP_POOL_THREADS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t posted, left;
    uint64_t round;
    int32_t inside; /* workers that still work on the round */
    lp_pool_task task;
    void *context;
    int64_t tasks;
    atomic_int_fast64_t next;
};

/* ---- cores ---- */

static bool read_topology(size_t cpu, const char *what, int *out)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/%s", cpu, what);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    const bool ok = fscanf(f, "%d", out) == 1;
    fclose(f);
    return ok;
}

int32_t lp_pool_cores(void)
{
    cpu_set_t allowed;
    uint64_t seen[CPU_SETSIZE];
    int32_t count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int package, core;
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        if (!read_topology(cpu, "physical_package_id", &package) || !read_topology(cpu, "core_id", &core)) {
            package = -1; /* unknown: a core of its own */
            core = (int)cpu;
        }
        const uint64_t key = (uint64_t)(uint32_t)package << 32 | (uint32_t)core;
        bool is_new = true;
        for (int32_t i = 0; i < count; i++)
            is_new = is_new && seen[i] != key;
        if (is_new)
            seen[count++] = key;
    }
    return count > 0 ? count : 1;
}

/* ---- work ---- */

static void take_tasks(lp_pool *pool, lp_pool_task task, void *context, int64_t tasks)
{
    for (;;) {
        const int64_t i = (int64_t)atomic_fetch_add(&pool->next, 1);
        if (i >= tasks)
            return;
        task(context, i);
    }
}

static void *work(void *argument)
{
    lp_pool *pool = argument;
    uint64_t done = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->round == done && !pool->is_ending)
            pthread_cond_wait(&pool->posted, &pool->lock);
        if (pool->is_ending)
            break;
        done = pool->round;
        const lp_pool_task task = pool->task;
        void *context = pool->context;
        const int64_t tasks = pool->tasks;
        pthread_mutex_unlock(&pool->lock);
        take_tasks(pool, task, context, tasks);
        pthread_mutex_lock(&pool->lock);
        if (--pool->inside == 0)
            pthread_cond_signal(&pool->left);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void start(lp_pool *pool)
{
    pool->is_started = true;
    while (pool->started < pool->threads - 1 && lp_quiet_thread(&pool->worker[pool->started], work, pool) == 0)
        pool->started++;
}

void lp_pool_run(lp_pool *pool, int64_t tasks, lp_pool_task task, void *context)
{
    if (pool != NULL && tasks > 1 && pool->threads > 1 && !pool->is_started)
        start(pool);
    if (pool == NULL || tasks <= 1 || pool->started == 0) {
        for (int64_t i = 0; i < tasks; i++)
            task(context, i);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->context = context;
    pool->tasks = tasks;
    pool->inside = pool->started;
    atomic_store(&pool->next, 0);
    pool->round++;
    pthread_cond_broadcast(&pool->posted);
    pthread_mutex_unlock(&pool->lock);
    take_tasks(pool, task, context, tasks);
    pthread_mutex_lock(&pool->lock);
    while (pool->inside > 0)
        pthread_cond_wait(&pool->left, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- life ---- */

lp_status lp_pool_new(lp_pool **out, int32_t threads, const lp_alloc *alloc, lp_error *err)
{
    if (threads < 0 || threads > LP_POOL_THREADS_MAX)
        return lp_fail(err, LP_E_ARGUMENT, "cannot use %d threads: 0 to %d are possible", threads, LP_POOL_THREADS_MAX);
    const int32_t cores = threads == 0 ? lp_pool_cores() : threads;
    lp_pool *pool = lp_allocate_zero(alloc, sizeof *pool);
    if (pool == NULL)
        return lp_fail_memory(err);
    pool->alloc = alloc;
    pool->threads = cores < LP_POOL_THREADS_MAX ? cores : LP_POOL_THREADS_MAX;
    pthread_mutex_init(&pool->lock, NULL); /* default attributes: these cannot fail on Linux */
    pthread_cond_init(&pool->posted, NULL);
    pthread_cond_init(&pool->left, NULL);
    atomic_init(&pool->next, 0);
    *out = pool;
    return LP_OK;
}

void lp_pool_free(lp_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->is_ending = true;
    pthread_cond_broadcast(&pool->posted);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 0; i < pool->started; i++)
        pthread_join(pool->worker[i], NULL);
    pthread_cond_destroy(&pool->left);
    pthread_cond_destroy(&pool->posted);
    pthread_mutex_destroy(&pool->lock);
    lp_release(pool->alloc, pool);
}

int32_t lp_pool_threads(const lp_pool *pool)
{
    return pool == NULL ? 1 : pool->threads;
}
