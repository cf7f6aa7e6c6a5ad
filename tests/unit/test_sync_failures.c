/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong between processes: ranks that are killed in the middle, stopped, late, or of another epoch, and bytes
 * that change on the way. Every rank is a process of its own that talks over sockets; the others must end with an
 * error that names it, and no receiver may report success.
 */
#include "sync_testing.h"

#include "replayer/transport_wire.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SENDERS = 2, RECEIVERS = 2, RANKS = SENDERS + RECEIVERS };

/* What ranks wait for is longer than any test, but for the one that is to be waited for in vain: that must be found out
 * within a short time, or within a longer one where the machine is too busy for the others to keep up. */
static const int64_t LONG_NS = 120LL * 1000000000, SHORT_NS = 600000000, SHORT_MOST_NS = 40LL * 1000000000;

/* What a rank does at its n-th message. */
typedef enum fault {
    FAULT_NONE,
    FAULT_KILL, /* kill -9 */
    FAULT_STOP, /* does nothing any more */
    FAULT_FLIP, /* sends a payload with one other bit */
    FAULT_FLIP_HEADER,
    FAULT_EPOCH /* sends the header of another epoch */
} fault;

typedef struct plan {
    fault what;
    int rank;          /* whose fault */
    int64_t countdown; /* messages that go well before */
    int64_t short_ns;  /* how long others wait for a rank that stops, or comes late */
    int64_t late_ns;   /* how much later than the others the rank comes */
    lp_sync_mode mode;
} plan;

/* ---- a transport that does it ---- */

typedef struct faulty {
    lp_transport inner;
    plan p;
    uint8_t *copy;
} faulty;

static lp_status faulty_join(void *context, lp_round *round, lp_error *err)
{
    faulty *f = context;
    return f->inner.join(f->inner.context, round, err);
}

static lp_status faulty_gather(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err)
{
    faulty *f = context;
    return f->inner.gather(f->inner.context, mine, bytes, all, err);
}

static lp_status faulty_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket, lp_error *err)
{
    faulty *f = context;
    lp_transfer other[8];
    assert_true(count <= 8);
    if (count > 0)
        memcpy(other, transfer, (size_t)count * sizeof *other);
    if (f->p.what != FAULT_NONE && f->p.countdown-- == 0) {
        if (f->p.what == FAULT_KILL)
            raise(SIGKILL);
        if (f->p.what == FAULT_STOP)
            raise(SIGSTOP);
        for (int64_t i = 0; i < count; i++) {
            if (!other[i].is_send || other[i].is_host != (f->p.what != FAULT_FLIP) || other[i].bytes == 0)
                continue;
            f->copy = malloc((size_t)other[i].bytes);
            if (f->copy == NULL)
                abort();
            memcpy(f->copy, other[i].data, (size_t)other[i].bytes);
            if (f->p.what == FAULT_EPOCH) { /* a header that is sound, but of another epoch */
                f->copy[24] = (uint8_t)(f->copy[24] + 1);
                lp_wire_put_i64(f->copy + 136, (int64_t)lp_hash(f->copy, 136));
            } else {
                f->copy[other[i].bytes / 2] ^= 0x10;
            }
            other[i].data = f->copy;
            break;
        }
    }
    return f->inner.start(f->inner.context, other, count, ticket, err);
}

static lp_status faulty_wait(void *context, int64_t ticket, lp_error *err)
{
    faulty *f = context;
    return f->inner.wait(f->inner.context, ticket, err);
}

static void faulty_cancel(void *context)
{
    faulty *f = context;
    f->inner.cancel(f->inner.context);
}

static void faulty_fail(void *context, const char *reason)
{
    faulty *f = context;
    (f->inner.fail)(f->inner.context, reason); /* cmocka has a macro of that name */
}

static const char *faulty_name(void *context, int32_t rank)
{
    faulty *f = context;
    return f->inner.name(f->inner.context, rank);
}

static void *faulty_take(void *context, int64_t bytes)
{
    faulty *f = context;
    return f->inner.take(f->inner.context, bytes);
}

static void faulty_give_back(void *context, void *memory)
{
    faulty *f = context;
    f->inner.give_back(f->inner.context, memory);
}

/* ---- one rank ---- */

/* What a process writes into its pipe. */
typedef struct outcome {
    int32_t status;     /* of the epoch */
    int32_t again;      /* of one more, where there is one */
    int32_t is_same;    /* whether that was epoch 2, and memory is as it should be */
    int32_t can_subset; /* a receiver that failed: whether its plan believes that it holds anything */
    char text[512];
} outcome;

typedef struct process {
    pid_t pid;
    int pipe;
    outcome seen;
    bool has_seen;
} process;

static outcome run_rank(int rank, int32_t port, int listener, const plan *p, const lp_trace *t, const payload *data)
{
    faulty f = {.p = {.what = FAULT_NONE}};
    outcome o = {.status = LP_E_INTERNAL};
    lp_error err = {.code = LP_OK};
    lp_sync *s = NULL;
    const bool is_sender = rank < SENDERS;
    const lp_tcp_options tcp = {.host = "127.0.0.1",
                                .port = port,
                                .is_sender = is_sender,
                                .rank = is_sender ? rank : rank - SENDERS,
                                .size = is_sender ? SENDERS : RECEIVERS,
                                .listener = rank == 0 ? listener : 0,
                                .join_ns = p->late_ns > 0 ? p->short_ns : LONG_NS,
                                .stall_ns = p->what == FAULT_STOP ? p->short_ns : LONG_NS};
    if (rank == p->rank)
        f.p = *p;
    if (rank == p->rank && p->late_ns > 0) {
        f.p.what = FAULT_NONE;
        lp_sleep_ms((int)(p->late_ns / 1000000));
    }
    if (lp_transport_tcp(&f.inner, &tcp, &err) != LP_OK) {
        o.status = err.code;
        snprintf(o.text, sizeof o.text, "%s", err.text);
        return o;
    }
    const lp_transport around = {.size = sizeof around,
                                 .context = &f,
                                 .join = faulty_join,
                                 .gather = faulty_gather,
                                 .start = faulty_start,
                                 .wait = faulty_wait,
                                 .cancel = faulty_cancel,
                                 .fail = faulty_fail,
                                 .name = faulty_name,
                                 .take = faulty_take,
                                 .give_back = faulty_give_back};
    const lp_sync_options options = {.is_sender = is_sender, .mode = p->mode, .bucket = 512};
    const lp_sync_source source = {.context = (void *)(uintptr_t)data, .read = read_payload};
    rank_memory m = {.plan = NULL};
    if (!is_sender)
        m = bind_rank(t, rank - SENDERS);
    if (lp_sync_open(&s, &around, t, &options, &err) == LP_OK) {
        o.status = is_sender ? lp_sync_send(s, &source, 0, NULL, &err) : lp_sync_recv(s, m.plan, NULL, 0, NULL, &err);
        snprintf(o.text, sizeof o.text, "%s", o.status == LP_OK ? "" : err.text);
    }
    if (!is_sender && o.status != LP_OK && p->what != FAULT_NONE) {
        /* A part of the names must be refused: nothing that is there may be believed. */
        lp_session *session = NULL;
        const char *one = "norm";
        const lp_session_options part = {.mode = LP_DIRECT, .subset = &one, .subset_count = 1};
        o.can_subset = lp_begin(&session, m.plan, &part, &err) == LP_OK;
        lp_session_close(session);
    }
    if (o.status != LP_OK && p->what >= FAULT_FLIP && s != NULL) { /* a fault that is over: a new epoch */
        lp_sync_report report;
        o.again =
            is_sender ? lp_sync_send(s, &source, 0, &report, &err) : lp_sync_recv(s, m.plan, NULL, 0, &report, &err);
        o.is_same = o.again == LP_OK && report.epoch == 2;
        if (!is_sender && o.is_same) {
            rank_memory want = bind_rank(t, rank - SENDERS);
            load_whole(&want, data);
            o.is_same = find_difference(&m, &want) == NULL;
            free_rank(&want);
        }
    }
    lp_sync_close(s);
    lp_transport_close(&f.inner);
    free(f.copy);
    if (!is_sender)
        free_rank(&m);
    return o;
}

/* ---- all ranks ---- */

static process process_of[RANKS];

static void run_all(const plan *p)
{
    lp_checkpoint *c = make_model();
    lp_trace *t = record_layout(c, 1, RECEIVERS, false);
    payload data = make_payload(c, 1);
    int32_t port = 0;
    const int listener = lp_socket_listen("127.0.0.1", 0, &port, NULL);
    assert_true(listener >= 0);
    fflush(NULL);
    for (int i = 0; i < RANKS; i++) {
        int end[2];
        assert_int_equal(pipe(end), 0);
        process_of[i] = (process){.pid = fork(), .pipe = end[0]};
        assert_true(process_of[i].pid >= 0);
        if (process_of[i].pid == 0) {
            if (i != 0)
                close(listener);
            const outcome o = run_rank(i, port, listener, p, t, &data);
            const ssize_t n = write(end[1], &o, sizeof o);
            _exit(n == (ssize_t)sizeof o ? 0 : 1);
        }
        close(end[1]);
    }
    close(listener);
    for (int i = 0; i < RANKS; i++) {
        process *x = &process_of[i];
        if (p->what == FAULT_STOP && i == p->rank)
            continue; /* when the others are done */
        x->has_seen = read(x->pipe, &x->seen, sizeof x->seen) == (ssize_t)sizeof x->seen;
    }
    for (int i = 0; i < RANKS; i++) {
        int status;
        if (p->what == FAULT_STOP && i == p->rank)
            kill(process_of[i].pid, SIGKILL);
        close(process_of[i].pipe);
        assert_int_equal(waitpid(process_of[i].pid, &status, 0), process_of[i].pid);
    }
    free_payload(&data);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static const char *const names[RANKS] = {"sender 0", "sender 1", "receiver 0 of 'server'", "receiver 1 of 'server'"};

static char wrong[1000];

/* Everybody but `apart` ends with an error; some text must be in that of each. False, and `wrong` says why. */
static bool all_end(int apart, const char *text, const char *other)
{
    wrong[0] = '\0';
    for (int i = 0; i < RANKS && wrong[0] == '\0'; i++) {
        const process *x = &process_of[i];
        if (i == apart)
            continue;
        if (!x->has_seen)
            snprintf(wrong, sizeof wrong, "%s says nothing", names[i]);
        else if (x->seen.status == LP_OK)
            snprintf(wrong, sizeof wrong, "%s reports success", names[i]);
        else if (strstr(x->seen.text, text) == NULL && (other == NULL || strstr(x->seen.text, other) == NULL))
            snprintf(wrong, sizeof wrong, "%s says '%.500s', not '%.300s'", names[i], x->seen.text, text);
        else if (x->seen.can_subset)
            snprintf(wrong, sizeof wrong, "%s believes a part of what it holds", names[i]);
    }
    return wrong[0] == '\0';
}

static void assert_all_end(int apart, const char *text, const char *other)
{
    if (!all_end(apart, text, other))
        fail_msg("%s", wrong);
}

static void nothing_goes_wrong(void **state)
{
    (void)state;
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_DELTA; mode++) {
        run_all(&(plan){.what = FAULT_NONE, .rank = -1, .mode = (lp_sync_mode)mode});
        for (int i = 0; i < RANKS; i++)
            if (!process_of[i].has_seen || process_of[i].seen.status != LP_OK)
                fail_msg("%s: %s", names[i], process_of[i].seen.text);
    }
}

static void each_side_is_killed_in_the_middle(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++)
        for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_SLICED; mode++) {
            run_all(&(plan){.what = FAULT_KILL, .rank = rank, .countdown = 7, .mode = (lp_sync_mode)mode});
            assert_false(process_of[rank].has_seen);
            /* With sender 0 the meeting point is gone. */
            assert_all_end(rank, names[rank], rank == 0 ? "the meeting point is gone" : NULL);
        }
}

static void stop_and_be_named(int rank)
{
    char text[128];
    for (int64_t short_ns = SHORT_NS;; short_ns *= 4) {
        run_all(
            &(plan){.what = FAULT_STOP, .rank = rank, .countdown = 5, .short_ns = short_ns, .mode = LP_SYNC_PACKED});
        snprintf(text, sizeof text, "%s did not answer for %.3g s", names[rank], (double)short_ns / 1e9);
        if (all_end(rank, rank == 0 ? "the meeting point does not answer" : text, NULL))
            return;
        if (short_ns > SHORT_MOST_NS / 4)
            fail_msg("%s", wrong);
        print_message("%s; with more patience:\n", wrong);
    }
}

static void a_stalled_rank_is_named(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++)
        stop_and_be_named(rank);
}

static void assert_all_recover(void)
{
    for (int i = 0; i < RANKS; i++)
        if (process_of[i].seen.again != LP_OK || !process_of[i].seen.is_same)
            fail_msg("%s does not recover: %d", names[i], process_of[i].seen.again);
}

static void a_flipped_bit_ends_the_epoch(void **state)
{
    (void)state;
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_SLICED; mode++) {
        run_all(&(plan){.what = FAULT_FLIP, .rank = 1, .countdown = 3, .mode = (lp_sync_mode)mode});
        assert_all_end(-1, "of sender 1 is damaged", NULL);
        assert_all_recover();
        run_all(&(plan){.what = FAULT_FLIP_HEADER, .rank = 1, .countdown = 3, .mode = (lp_sync_mode)mode});
        assert_all_end(-1, "the header of a frame is damaged", NULL);
    }
}

static void a_frame_of_another_epoch_ends_the_epoch(void **state)
{
    (void)state;
    run_all(&(plan){.what = FAULT_EPOCH, .rank = 1, .countdown = 3, .mode = LP_SYNC_PACKED});
    assert_all_end(-1, "a frame of epoch 2 came in epoch 1", NULL);
    assert_all_recover();
}

static void a_late_rank_is_waited_for(void **state)
{
    (void)state;
    run_all(&(plan){.rank = 3, .late_ns = 200000000, .short_ns = LONG_NS, .mode = LP_SYNC_PACKED});
    for (int i = 0; i < RANKS; i++)
        if (!process_of[i].has_seen || process_of[i].seen.status != LP_OK)
            fail_msg("%s: %s", names[i], process_of[i].seen.text);
}

static void a_rank_that_is_too_late_is_named(void **state)
{
    char text[128];
    (void)state;
    for (int64_t short_ns = SHORT_NS;; short_ns *= 4) {
        run_all(&(plan){.rank = 3, .late_ns = 2 * short_ns, .short_ns = short_ns, .mode = LP_SYNC_PACKED});
        snprintf(text, sizeof text, "receiver 1 of 'server' (of 2) did not come within %.3g s", (double)short_ns / 1e9);
        if (all_end(3, text, NULL) && process_of[3].seen.status != LP_OK)
            return;
        if (short_ns > SHORT_MOST_NS / 4)
            fail_msg("%s", wrong);
        print_message("%s; with more patience:\n", wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_goes_wrong),
        cmocka_unit_test(each_side_is_killed_in_the_middle),
        cmocka_unit_test(a_stalled_rank_is_named),
        cmocka_unit_test(a_flipped_bit_ends_the_epoch),
        cmocka_unit_test(a_frame_of_another_epoch_ends_the_epoch),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(a_rank_that_is_too_late_is_named),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
