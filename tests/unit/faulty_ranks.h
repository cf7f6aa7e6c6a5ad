/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of ranks of one process of which one does something wrong at a call of its transport, and what must hold of
 * all of them then. */
#ifndef LOADPLAN_FAULTY_RANKS_H
#define LOADPLAN_FAULTY_RANKS_H

#include "epoch_worlds.h"

#include "replayer/transport_wire.h"

#include <unistd.h>

enum { RANKS_MAX = 2048 };

static const int64_t SHORT_NS = 150000000;

static uint64_t seed = 1;

/* What a rank does at its n-th call of the faulty epoch. */
typedef enum fault {
    FAULT_NONE,
    FAULT_DELAY,       /* a millisecond */
    FAULT_KILL,        /* its connections end, and it does nothing any more */
    FAULT_FLIP,        /* one bit of a payload that it sends */
    FAULT_FLIP_HEADER, /* of a header */
    FAULT_EPOCH,       /* a header that is sound, of another epoch */
    FAULT_DROP         /* a message that never comes */
} fault;

static const char *const fault_name[] = {"nothing",          "a delay",       "a kill",           "a flipped payload",
                                         "a flipped header", "another epoch", "a dropped message"};

/* ---- one run ---- */

typedef struct run {
    const world *w;
    int tp;
    lp_sync_mode mode;
    fault what;
    int rank;      /* whose fault */
    int64_t count; /* calls that go well before */
    bool has_fired;
    bool is_told; /* FLIP, EPOCH: there was something to damage */
} run;

typedef struct member {
    run *r;
    int rank;
    lp_transport inner;
    int64_t countdown; /* -1: not in the faulty epoch, or over */
    bool is_dead;
    uint8_t *copy;
    lp_status status[EPOCHS + 1];
    bool is_loaded[EPOCHS + 1]; /* holds that epoch, after it */
    bool is_trusted;            /* after the faulty epoch: a part would be taken */
    char text[EPOCHS + 1][200];
} member;

static member members[RANKS_MAX];

static inline lp_status dead(lp_error *err)
{
    return lp_fail(err, LP_E_PEER, "killed");
}

/* Whether the fault is due with this call. A rank that is killed is gone for the others at once. */
static inline bool is_due(member *m)
{
    if (m->is_dead || m->countdown < 0 || m->countdown-- > 0)
        return false;
    m->r->has_fired = true;
    if (m->r->what == FAULT_DELAY)
        lp_sleep_ms(1);
    if (m->r->what == FAULT_KILL) {
        m->is_dead = true;
        m->inner.close(m->inner.context);
    }
    return true;
}

static inline lp_status faulty_join(void *context, lp_round *round, lp_error *err)
{
    member *m = context;
    (void)is_due(m);
    return m->is_dead ? dead(err) : m->inner.join(m->inner.context, round, err);
}

static inline lp_status faulty_gather(void *context, const void *mine, int64_t bytes, const lp_block **all,
                                      lp_error *err)
{
    member *m = context;
    (void)is_due(m);
    return m->is_dead ? dead(err) : m->inner.gather(m->inner.context, mine, bytes, all, err);
}

/* The first message of the call that the fault can be done to; -1: none. */
static inline int64_t find_victim(fault what, const lp_transfer *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (x[i].is_send && x[i].bytes > 0 && (what == FAULT_DROP || x[i].is_host != (what == FAULT_FLIP)))
            return i;
    return -1;
}

static inline void damage(member *m, lp_transfer *x)
{
    m->copy = malloc((size_t)x->bytes);
    if (m->copy == NULL)
        abort();
    memcpy(m->copy, x->data, (size_t)x->bytes);
    if (m->r->what == FAULT_EPOCH) {
        m->copy[24] = (uint8_t)(m->copy[24] + 1);
        lp_wire_put_i64(m->copy + 136, (int64_t)lp_hash(m->copy, 136));
    } else {
        const uint64_t bit = random_mix(seed + (uint64_t)m->r->count) % ((uint64_t)x->bytes * 8);
        m->copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    x->data = m->copy;
}

static inline lp_status faulty_start(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket,
                                     lp_error *err)
{
    member *m = context;
    const fault what = m->r->what;
    lp_transfer *other = malloc(((size_t)count + 1) * sizeof *other);
    if (other == NULL)
        abort();
    if (count > 0)
        memcpy(other, transfer, (size_t)count * sizeof *other);
    const bool is_victim = is_due(m) && what >= FAULT_FLIP;
    const int64_t at = is_victim ? find_victim(what, other, count) : -1;
    if (is_victim && at < 0)
        m->countdown = 0; /* with the next call */
    if (at >= 0)
        m->r->is_told = true;
    if (at >= 0 && what == FAULT_DROP)
        memmove(&other[at], &other[at + 1], (size_t)(--count - at) * sizeof *other);
    else if (at >= 0)
        damage(m, &other[at]);
    const lp_status status = m->is_dead ? dead(err) : m->inner.start(m->inner.context, other, count, ticket, err);
    free(other);
    return status;
}

static inline lp_status faulty_wait(void *context, int64_t ticket, lp_error *err)
{
    member *m = context;
    return m->is_dead ? dead(err) : m->inner.wait(m->inner.context, ticket, err);
}

static inline void faulty_cancel(void *context)
{
    member *m = context;
    if (!m->is_dead)
        m->inner.cancel(m->inner.context);
}

static inline lp_status faulty_check(void *context, int32_t peer, int64_t since_ns, lp_error *err)
{
    member *m = context;
    return m->is_dead ? dead(err) : m->inner.check(m->inner.context, peer, since_ns, err);
}

static inline void faulty_fail(void *context, const char *reason)
{
    member *m = context;
    if (!m->is_dead)
        (m->inner.fail)(m->inner.context, reason); /* cmocka has a macro of that name */
}

static inline void faulty_alive(void *context)
{
    (void)context;
}

static inline const char *faulty_name(void *context, int32_t rank)
{
    member *m = context;
    return m->is_dead ? "nobody" : m->inner.name(m->inner.context, rank);
}

static inline void *faulty_take(void *context, int64_t bytes)
{
    (void)context;
    return malloc((size_t)bytes);
}

static inline void faulty_give_back(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static inline lp_transport around(member *m)
{
    return (lp_transport){.size = sizeof(lp_transport),
                          .context = m,
                          .join = faulty_join,
                          .gather = faulty_gather,
                          .start = faulty_start,
                          .wait = faulty_wait,
                          .cancel = faulty_cancel,
                          .check = faulty_check,
                          .fail = faulty_fail,
                          .alive = faulty_alive,
                          .name = faulty_name,
                          .take = faulty_take,
                          .give_back = faulty_give_back};
}

static inline void look_at_memory(member *m, int epoch)
{
    const world *w = m->r->w;
    const int receiver = m->rank - w->senders;
    if (receiver < 0)
        return;
    m->is_loaded[epoch] = find_difference(&w->memory[receiver], &w->want[epoch][receiver % m->r->tp]) == NULL;
    if (epoch == FAULTY && m->status[epoch] != LP_OK)
        m->is_trusted = trusts(w->memory[receiver].plan);
}

static inline void *run_member(void *context)
{
    member *m = context;
    const world *w = m->r->w;
    const bool is_sender = m->rank < w->senders;
    const lp_transport t = around(m);
    const lp_sync_options o = {.is_sender = is_sender, .mode = m->r->mode, .bucket = 4096};
    lp_sync *s = NULL;
    lp_error err;
    m->status[0] = lp_sync_open(&s, &t, w->trace, &o, &err);
    for (int e = GOOD; e <= EPOCHS && m->status[0] == LP_OK && !m->is_dead; e++) {
        const lp_sync_source whole = {.context = (void *)(uintptr_t)&w->epoch[e], .read = read_payload};
        m->countdown = e == FAULTY && m->rank == m->r->rank && m->r->what != FAULT_NONE ? m->r->count : -1;
        m->status[e] = is_sender ? lp_sync_send(s, &whole, 0, NULL, &err)
                                 : lp_sync_recv(s, w->memory[m->rank - w->senders].plan,
                                                &(lp_session_options){.mode = LP_DIRECT}, 0, NULL, &err);
        if (m->status[e] != LP_OK)
            snprintf(m->text[e], sizeof m->text[e], "%.199s", err.text);
        look_at_memory(m, e);
    }
    lp_sync_close(s);
    if (!m->is_dead)
        m->inner.close(m->inner.context);
    free(m->copy);
    return NULL;
}

static inline void run_all(run *r)
{
    static lp_transport transport[RANKS_MAX];
    static pthread_t thread[RANKS_MAX];
    const int size = r->w->senders + r->w->receivers;
    pthread_attr_t small;
    assert_true(size <= RANKS_MAX);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 1 << 20), 0);
    assert_ok(
        lp_transport_local(transport, size, r->w->senders, r->what == FAULT_DROP ? SHORT_NS : LONG_NS, NULL, ERR));
    for (int i = 0; i < size; i++)
        members[i] = (member){.r = r, .rank = i, .inner = transport[i], .countdown = -1};
    alarm(LONG_S); /* a rank that does not end ends the test */
    for (int i = 0; i < size; i++)
        assert_int_equal(pthread_create(&thread[i], &small, run_member, &members[i]), 0);
    for (int i = 0; i < size; i++)
        pthread_join(thread[i], NULL);
    alarm(0);
    pthread_attr_destroy(&small);
}

/* ---- what must hold ---- */

static inline void say_wrong(const run *r, int rank, int epoch, const char *what)
{
    fail_msg("seed %llu: %s, %s of rank %d after %lld calls: rank %d %s epoch %d: '%s'", (unsigned long long)seed,
             lp_sync_mode_name(r->mode), fault_name[r->what], r->rank, (long long)r->count, rank, what, epoch,
             members[rank].text[epoch]);
}

static inline void check_run(const run *r)
{
    const int size = r->w->senders + r->w->receivers;
    const bool is_harmless = r->what <= FAULT_DELAY || !r->has_fired || (r->what >= FAULT_FLIP && !r->is_told);
    bool some_succeed = false;
    for (int i = 0; i < size; i++)
        some_succeed = some_succeed || members[i].status[FAULTY] == LP_OK;
    for (int i = 0; i < size; i++) {
        const member *m = &members[i];
        const bool is_receiver = i >= r->w->senders;
        for (int e = 0; e <= EPOCHS; e++)
            if (m->status[e] == LP_OK && e > 0 && is_receiver && !m->is_loaded[e] && !m->is_dead)
                say_wrong(r, i, e, "reports success without");
        if (r->what != FAULT_DROP && m->status[GOOD] != LP_OK)
            say_wrong(r, i, GOOD, "fails before the fault, in");
        /* Who says yes has heard that everybody has verified what came. */
        if (some_succeed && is_receiver && !m->is_loaded[FAULTY] && !m->is_dead)
            say_wrong(r, i, FAULTY, "lacks, while another one reports success,");
        if (is_receiver && m->status[FAULTY] != LP_OK && m->status[GOOD] == LP_OK && m->is_trusted &&
            !m->is_loaded[GOOD] && !m->is_loaded[FAULTY])
            say_wrong(r, i, FAULTY, "believes what it holds after");
        if (is_harmless && m->status[FAULTY] != LP_OK && r->what != FAULT_DROP)
            say_wrong(r, i, FAULTY, "fails");
        if (!is_harmless && r->what != FAULT_KILL && m->status[FAULTY] == LP_OK)
            say_wrong(r, i, FAULTY, "reports success in spite of it in");
        if (r->what != FAULT_KILL && r->what != FAULT_DROP && m->status[AFTER] != LP_OK)
            say_wrong(r, i, AFTER, "does not recover in");
    }
}

static inline bool run_and_check(const world *w, int tp, lp_sync_mode mode, fault what, int rank, int64_t count)
{
    run r = {.w = w, .tp = tp, .mode = mode, .what = what, .rank = rank, .count = count};
    run_all(&r);
    check_run(&r);
    return r.has_fired;
}

#endif
