/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct reads of cold starts that are under way at the same time: with the system's own queue, and with one that
 * answers in any order, in parts, with errors, or not at all. What is loaded must not show it, and nothing may wait
 * for ever.
 */
#include "cold_device.h"

/* ---- a queue that reads when it is asked ---- */

typedef struct fake_queue {
    cold_faults *faults; /* of the reads themselves */
    pthread_mutex_t lock;
    uint64_t random;
    bool is_refused;
    int64_t started, start_fails_at; /* number of the start; -1: none */
    int64_t under_way, most, open;
} fake_queue;

enum { DEPTH = 64 };

typedef struct fake_read {
    int fd;
    void *to, *tag;
    int64_t bytes, off;
} fake_read;

typedef struct fake_ring {
    fake_read read[DEPTH];
    int32_t depth, count;
    bool is_broken;
} fake_ring;

static int fake_open(void *context, int32_t depth, void **queue)
{
    fake_queue *f = context;
    *queue = NULL;
    if (f->is_refused)
        return -EPERM;
    fake_ring *r = calloc(1, sizeof *r);
    if (r == NULL || depth < 1 || depth > DEPTH)
        abort();
    r->depth = depth;
    pthread_mutex_lock(&f->lock);
    f->open++;
    pthread_mutex_unlock(&f->lock);
    *queue = r;
    return 0;
}

static int fake_start(void *context, void *queue, int fd, void *to, int64_t bytes, int64_t off, void *tag)
{
    fake_queue *f = context;
    fake_ring *r = queue;
    if (r->is_broken || r->count == r->depth || off % 4096 != 0 || bytes % 4096 != 0 || (uintptr_t)to % 4096 != 0)
        abort(); /* what the kernel, or the contract, does not allow */
    pthread_mutex_lock(&f->lock);
    r->is_broken = f->started++ == f->start_fails_at;
    f->under_way += !r->is_broken;
    f->most = f->under_way > f->most ? f->under_way : f->most;
    pthread_mutex_unlock(&f->lock);
    if (r->is_broken)
        return -EAGAIN;
    memset(to, 0xdd, (size_t)bytes); /* it is the queue's until the answer */
    r->read[r->count++] = (fake_read){fd, to, tag, bytes, off};
    return 0;
}

static void fake_answer(void *context, void *queue, void **tag, int64_t *got)
{
    fake_queue *f = context;
    fake_ring *r = queue;
    if (r->count == 0)
        abort();
    pthread_mutex_lock(&f->lock);
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    f->under_way--;
    const int32_t which = (int32_t)((f->random >> 33) % (uint64_t)r->count);
    pthread_mutex_unlock(&f->lock);
    const fake_read read = r->read[which];
    r->read[which] = r->read[--r->count];
    *tag = read.tag;
    *got = cold_pread(f->faults, read.fd, read.to, (size_t)read.bytes, read.off);
}

static void fake_close(void *context, void *queue)
{
    fake_queue *f = context;
    fake_ring *r = queue;
    void *tag;
    int64_t got;
    while (r->count > 0)
        fake_answer(context, queue, &tag, &got);
    pthread_mutex_lock(&f->lock);
    f->open--;
    pthread_mutex_unlock(&f->lock);
    free(r);
}

static lp_read_queue fake_table(fake_queue *f, cold_bed *b, uint64_t seed)
{
    *f = (fake_queue){.faults = &b->f, .random = seed, .start_fails_at = -1};
    pthread_mutex_init(&f->lock, NULL);
    return (lp_read_queue){f, fake_open, fake_start, fake_answer, fake_close};
}

static void end_fake(fake_queue *f)
{
    assert_int_equal(f->open, 0);
    assert_int_equal(f->under_way, 0);
    pthread_mutex_destroy(&f->lock);
}

/* ---- tests ---- */

static bool has_direct_reads(const cold_bed *b)
{
    const int fd = open(b->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) {
        print_message("this file system has no direct reads\n");
        return false;
    }
    close(fd);
    return true;
}

static lp_cold_options random_options(uint64_t seed, const lp_read_queue *queue)
{
    return (lp_cold_options){.readers = (int32_t)(1 + seed % 4),
                             .pinned = seed % 3 == 0 ? 1 : (int64_t)1 << (17 + seed % 8),
                             .staging = seed % 2 == 0 ? 1 : (int64_t)8 << (16 + seed % 5),
                             .reading = LP_COLD_READ_DIRECT,
                             .queue = queue};
}

static void answers_come_in_any_order(void **state)
{
    int64_t most = 0, queues = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        cold_bed b;
        host_device h;
        fake_queue f;
        lp_cold_report r;
        const lp_cold_device d = host_table(&h);
        cold_open_world(&b, seed, seed % 8 == 0 ? cold_world : cold_random_world);
        const lp_read_queue table = fake_table(&f, &b, seed);
        const lp_cold_options o = random_options(seed, &table);
        b.f.short_reads = seed % 7 == 0;
        b.f.interrupted = seed % 7 == 1;
        assert_ok(&b.w, cold_try(&b, &d, &o, &r, &b.w.err));
        most = f.most > most ? f.most : most;
        queues += r.queues;
        assert_true(r.bytes_read >= r.bytes_needed - 4096 * 3);
        end_fake(&f);
        cold_close_bed(&b);
    }
    print_message("%lld queues, at most %lld reads under way\n", (long long)queues, (long long)most);
    cold_bed b;
    cold_open_bed(&b);
    assert_true(!has_direct_reads(&b) || (queues > 0 && most > 2));
    cold_close_bed(&b);
}

/* A start, or a read, fails in each way; all direct reads do; there is no queue. */
static void what_fails_is_read_again(void **state)
{
    enum { REFUSED_QUEUE, FAILED_START, FAILED_READ, EARLY_END, REFUSED_READS, WAYS };
    cold_bed b;
    (void)state;
    cold_open_bed(&b);
    for (int way = 0; way < WAYS; way++)
        for (int64_t n = 0; n < 9; n += n < 3 ? 1 : 2) {
            host_device h;
            fake_queue f;
            lp_cold_report r;
            const lp_cold_device d = host_table(&h);
            b.f.reads = 0;
            const lp_read_queue table = fake_table(&f, &b, (uint64_t)n);
            const lp_cold_options o = random_options((uint64_t)n, &table);
            f.is_refused = way == REFUSED_QUEUE;
            f.start_fails_at = way == FAILED_START ? n : -1;
            b.f.fail_at = way == FAILED_READ || way == EARLY_END ? n : -1;
            b.f.failure = way == FAILED_READ ? -EIO : 0;
            b.f.refuses_direct = way == REFUSED_READS;
            assert_ok(&b.w, cold_try(&b, &d, &o, &r, &b.w.err));
            assert_true(way != REFUSED_QUEUE || r.queues == 0);
            assert_true(way != REFUSED_READS || r.files_direct == 0);
            end_fake(&f);
            if (way == REFUSED_QUEUE || way == REFUSED_READS)
                break;
        }
    cold_close_bed(&b);
}

/* The device fails in the middle: nothing is under way when the load has returned. */
static void a_failure_waits_for_what_is_under_way(void **state)
{
    int failures = 0;
    cold_bed b;
    (void)state;
    cold_open_world(&b, 11, cold_random_world);
    for (int n = 0;; n += 3) {
        host_device h;
        fake_queue f;
        lp_cold_report r;
        const lp_cold_device d = host_table(&h);
        const lp_read_queue table = fake_table(&f, &b, (uint64_t)n);
        const lp_cold_options o = random_options((uint64_t)n, &table);
        lp_cold_memory memory;
        lp_plan *plan = NULL;
        assert_ok(&b.w, lp_cold_memory_take(&memory, &d, b.w.trace, NULL, &b.platform, &b.w.err));
        const lp_bind_options bind = {.platform = &b.platform, .threads = 1};
        assert_ok(&b.w, lp_bind(&plan, b.w.trace, NULL, memory.list, memory.count, &bind, &b.w.err));
        h.fail_at = atomic_load(&h.calls) + n;
        const lp_status status = lp_cold_load(&d, plan, b.ck, &o, &r, &b.w.err);
        const bool was_hit = atomic_load(&h.calls) > h.fail_at;
        h.fail_at = -1;
        assert_true(status == LP_OK || (was_hit && status == LP_E_DEVICE)); /* giving back cannot fail */
        failures += status != LP_OK;
        end_fake(&f);
        lp_plan_close(plan);
        lp_cold_memory_give_back(&memory);
        if (!was_hit)
            break;
    }
    cold_close_bed(&b);
    assert_true(failures > 10);
}

/* Files of the system's own table are read by its own queue. */
static void the_system_has_a_queue(void **state)
{
    const lp_read_queue *system = lp_read_queue_system();
    void *queue = NULL;
    (void)state;
    const int code = system == NULL ? -ENOSYS : system->open(system->context, 8, &queue);
    if (code != 0) {
        print_message("no io_uring here: %s\n", strerror(-code));
        skip();
    }
    system->close(system->context, queue);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        cold_bed b;
        host_device h;
        lp_cold_report r;
        const lp_cold_device d = host_table(&h);
        cold_open_world(&b, seed, seed % 6 == 0 ? cold_world : cold_random_world);
        const lp_cold_options o = random_options(seed, seed % 2 == 0 ? system : NULL);
        if (seed % 2 == 1)
            b.platform.io = lp_io_default();
        assert_ok(&b.w, cold_try(&b, &d, &o, &r, &b.w.err));
        assert_true(r.files_direct == 0 || r.bytes_needed < 4096 || r.queues > 0);
        cold_close_bed(&b);
    }
}

/* Reads of a whole file in pieces, out of order; a bad descriptor answers as pread does. */
static void a_system_queue_reads(void **state)
{
    enum { PIECES = 16, PIECE = 5000 };
    const lp_read_queue *q = lp_read_queue_system();
    static uint8_t want[PIECES * PIECE], have[PIECES * PIECE];
    char path[] = "/tmp/loadplan-queue-XXXXXX";
    void *queue = NULL, *tag;
    int64_t got;
    (void)state;
    if (q == NULL || q->open(q->context, PIECES, &queue) != 0)
        skip();
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < PIECES * PIECE; i++)
        want[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(write(fd, want, sizeof want), sizeof want);
    for (int round = 0; round < 3; round++) {
        bool seen[PIECES] = {false};
        memset(have, 0, sizeof have);
        for (int i = 0; i < PIECES; i++)
            assert_int_equal(q->start(q->context, queue, fd, have + i * PIECE, PIECE, (int64_t)i * PIECE, &seen[i]), 0);
        for (int i = 0; i < PIECES; i++) {
            q->wait(q->context, queue, &tag, &got);
            assert_int_equal(got, PIECE);
            assert_false(*(bool *)tag);
            *(bool *)tag = true;
        }
        assert_memory_equal(have, want, sizeof want);
    }
    assert_int_equal(q->start(q->context, queue, fd, have, 100, (int64_t)sizeof want - 30, have), 0);
    q->wait(q->context, queue, &tag, &got);
    assert_ptr_equal(tag, have);
    assert_int_equal(got, 30);
    assert_int_equal(q->start(q->context, queue, -1, have, 100, 0, NULL), 0);
    q->wait(q->context, queue, &tag, &got);
    assert_int_equal(got, -EBADF);
    assert_int_equal(q->start(q->context, queue, fd, have, 100, 0, NULL), 0);
    q->close(q->context, queue); /* with one under way */
    q->close(q->context, NULL);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_in_any_order),
        cmocka_unit_test(what_fails_is_read_again),
        cmocka_unit_test(a_failure_waits_for_what_is_under_way),
        cmocka_unit_test(the_system_has_a_queue),
        cmocka_unit_test(a_system_queue_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
