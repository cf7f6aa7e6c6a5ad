/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds. A round begins when everybody who is connected is ready and all groups are whole; then it has a number and
 * every member a rank. It ends when its members are ready for another one, or with a text that goes to all of them: a
 * member failed, was lost, or is to blame for a stall.
 *
 * Blame: a rank that waits too long complains about the rank that it waits for. Everybody is then asked what he waits
 * for. Waiting ranks answer at once, so the chain of answers leads to a rank that waits for nobody: it is busy, or it
 * does not answer at all. A rank that answers and has got something done since it was last asked gets more time.
 */
#include "replayer/transport_rounds.h"

#include <stdio.h>
#include <stdlib.h>

/* Connections that have not said who they are. */
enum { STRANGERS_MAX = 4096 };

static const char NO_MEMORY[] = "no memory at the meeting point";

void lp_rounds_init(lp_rounds *r, const lp_hub_options *options)
{
    *r = (lp_rounds){.alloc = options->alloc,
                     .servers = options->servers,
                     .join_ns = options->join_ns,
                     .stall_ns = options->stall_ns};
}

static void free_member(lp_rounds *r, lp_meeting *m)
{
    lp_wire_close(&m->wire);
    lp_release(r->alloc, m->block);
    lp_release(r->alloc, m);
}

void lp_rounds_free(lp_rounds *r)
{
    for (int64_t i = 0; i < r->count; i++)
        free_member(r, r->member[i]);
    lp_release(r->alloc, (void *)r->member);
    *r = (lp_rounds){.alloc = r->alloc};
}

bool lp_rounds_connect(lp_rounds *r, int fd)
{
    int64_t strangers = 0;
    for (int64_t i = 0; i < r->count; i++)
        strangers += !r->member[i]->is_known;
    if (strangers >= STRANGERS_MAX)
        return false;
    void *items = (void *)r->member;
    lp_meeting *m = lp_allocate_zero(r->alloc, sizeof *m);
    if (m == NULL || !lp_grow(r->alloc, &items, &r->capacity, r->count + 1, sizeof(lp_meeting *))) {
        lp_release(r->alloc, m);
        return false;
    }
    r->member = items;
    lp_wire_init(&m->wire, fd, LP_WIRE_SMALL, r->alloc);
    r->member[r->count++] = m;
    return true;
}

/* Where there is no memory for the text the end of the connection says it. */
static void send_text(lp_meeting *m, uint32_t round, const char *text)
{
    if (lp_wire_put(&m->wire, &(lp_wire_head){.type = LP_WIRE_ABORT, .round = round}, text, (int64_t)strlen(text), NULL,
                    0))
        return;
    lp_wire_close(&m->wire);
    m->is_ready = false;
}

static void drop_blocks(lp_rounds *r)
{
    for (int64_t i = 0; i < r->count; i++) {
        lp_release(r->alloc, r->member[i]->block);
        r->member[i]->block = NULL;
        r->member[i]->block_bytes = 0;
        r->member[i]->has_block = false;
    }
    r->gather_ns = 0;
}

/* Ends the current round with a reason. */
static void end_round(lp_rounds *r, const char *text)
{
    if (r->world == 0)
        return;
    for (int64_t i = 0; i < r->count; i++) {
        if (!r->member[i]->is_in)
            continue;
        r->member[i]->is_in = false;
        send_text(r->member[i], r->number, text);
    }
    drop_blocks(r);
    r->world = 0;
    r->blame_ns = 0;
}

static lp_meeting *find_rank(const lp_rounds *r, int32_t rank)
{
    for (int64_t i = 0; i < r->count; i++)
        if (r->member[i]->is_in && r->member[i]->rank == rank)
            return r->member[i];
    return NULL;
}

void lp_rounds_lost(lp_rounds *r, lp_meeting *m)
{
    char name[128], text[LP_WIRE_TEXT];
    lp_wire_close(&m->wire);
    m->is_ready = false;
    if (!m->is_in)
        return;
    m->is_in = false;
    lp_wire_member_name(&m->who.hello, name);
    snprintf(text, sizeof text, "%s is gone: its connection ended", name);
    end_round(r, text);
}

void lp_rounds_forget(lp_rounds *r)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < r->count; i++) {
        if (r->member[i]->wire.fd < 0)
            free_member(r, r->member[i]);
        else
            r->member[kept++] = r->member[i];
    }
    r->count = kept;
}

void lp_rounds_end(lp_rounds *r)
{
    for (int64_t i = 0; i < r->count; i++)
        (void)lp_wire_put(&r->member[i]->wire, &(lp_wire_head){.type = LP_WIRE_END}, NULL, 0, NULL, 0);
}

/* ---- joining ---- */

static bool same_place(const lp_wire_hello *a, const lp_wire_hello *b)
{
    return a->is_sender == b->is_sender && a->rank == b->rank && (a->is_sender || strcmp(a->group, b->group) == 0);
}

static void hello(lp_rounds *r, lp_meeting *m, const uint8_t *body, int64_t bytes)
{
    char name[128], text[LP_WIRE_TEXT];
    if (m->is_known || bytes != LP_WIRE_HELLO_BYTES || !lp_wire_get_hello(body, &m->who.hello) ||
        !lp_socket_peer_host(m->wire.fd, m->who.host)) {
        lp_rounds_lost(r, m);
        return;
    }
    lp_wire_member_name(&m->who.hello, name);
    for (int64_t i = 0; i < r->count; i++) {
        const lp_meeting *other = r->member[i];
        const lp_wire_hello *h = &other->who.hello;
        if (other == m || !other->is_known || other->wire.fd < 0)
            continue;
        const bool same_group =
            h->is_sender == m->who.hello.is_sender && (h->is_sender || strcmp(h->group, m->who.hello.group) == 0);
        if (same_place(h, &m->who.hello))
            snprintf(text, sizeof text, "%s is here already", name);
        else if (same_group && h->size != m->who.hello.size)
            snprintf(text, sizeof text, "%s says that there are %d of them, others say %d", name, m->who.hello.size,
                     h->size);
        else if (h->is_alone != m->who.hello.is_alone)
            snprintf(text, sizeof text, "%s is of another kind of group", name);
        else
            continue;
        send_text(m, 0, text);
        return;
    }
    m->is_known = true;
    m->wire.limit = LP_GATHER_MAX;
}

static int by_place(const void *a, const void *b)
{
    const lp_meeting *const *x = a, *const *y = b;
    const lp_wire_hello *h = &(*x)->who.hello, *g = &(*y)->who.hello;
    if ((*x)->is_known != (*y)->is_known)
        return (*x)->is_known ? -1 : 1;
    if (h->is_sender != g->is_sender)
        return h->is_sender ? -1 : 1;
    const int order = h->is_sender ? 0 : strcmp(h->group, g->group);
    return order != 0 ? order : h->rank - g->rank;
}

static const char *name_of(const lp_wire_hello *group, int32_t rank, char text[LP_WIRE_TEXT])
{
    lp_wire_hello h = *group;
    char name[128];
    h.rank = rank;
    lp_wire_member_name(&h, name);
    snprintf(text, LP_WIRE_TEXT, "%s (of %d)", name, h.size);
    return text;
}

/* NULL when a round can begin, else who is missing. Puts members in order of their places. */
static const char *who_is_missing(lp_rounds *r, char text[LP_WIRE_TEXT])
{
    const lp_wire_hello *last = NULL;
    int32_t next = 0, servers = 0;
    qsort((void *)r->member, (size_t)r->count, sizeof(lp_meeting *), by_place);
    for (int64_t i = 0; i < r->count && r->member[i]->is_known; i++) {
        const lp_wire_hello *h = &r->member[i]->who.hello;
        if (i == 0 && !h->is_sender)
            return "sender 0";
        if (last == NULL || h->is_sender != last->is_sender || (!h->is_sender && strcmp(h->group, last->group) != 0)) {
            if (last != NULL && next < last->size)
                return name_of(last, next, text);
            next = 0;
            servers += !h->is_sender;
        }
        if (h->rank != next)
            return name_of(h, next, text);
        if (!r->member[i]->is_ready)
            return name_of(h, h->rank, text);
        next++;
        last = h;
    }
    if (last == NULL)
        return "sender 0";
    if (next < last->size)
        return name_of(last, next, text);
    if (!last->is_alone && servers < r->servers) {
        snprintf(text, LP_WIRE_TEXT, "%d of %d groups of receivers", r->servers - servers, r->servers);
        return text;
    }
    return NULL;
}

static void refuse_round(lp_rounds *r, const char *text)
{
    for (int64_t i = 0; i < r->count; i++) {
        if (!r->member[i]->is_ready)
            continue;
        r->member[i]->is_ready = false;
        send_text(r->member[i], 0, text);
    }
    r->ready_ns = 0;
}

static void begin_round(lp_rounds *r)
{
    uint8_t *table = lp_allocate(r->alloc, (size_t)r->count * LP_WIRE_MEMBER_BYTES + 1);
    if (table == NULL) {
        refuse_round(r, NO_MEMORY);
        return;
    }
    r->world = 0;
    r->number++;
    drop_blocks(r);
    for (int64_t i = 0; i < r->count; i++) {
        lp_meeting *m = r->member[i];
        if (!m->is_ready)
            continue;
        uint8_t *row = table + (int64_t)r->world * LP_WIRE_MEMBER_BYTES;
        lp_wire_put_hello(row, &m->who.hello);
        memcpy(row + LP_WIRE_HELLO_BYTES, m->who.host, LP_WIRE_NAME);
        m->rank = r->world++;
        m->is_in = true;
        m->is_ready = false;
        m->judged_progress = m->progress;
    }
    lp_meeting *deaf = NULL;
    for (int64_t i = 0; i < r->count; i++)
        if (r->member[i]->is_in &&
            !lp_wire_put(&r->member[i]->wire,
                         &(lp_wire_head){.type = LP_WIRE_ROUND, .round = r->number, .argument = r->member[i]->rank},
                         table, (int64_t)r->world * LP_WIRE_MEMBER_BYTES, NULL, 0))
            deaf = r->member[i];
    r->ready_ns = r->blame_ns = 0;
    lp_release(r->alloc, table);
    if (deaf != NULL) /* there is no memory to tell it */
        lp_rounds_lost(r, deaf);
}

static void miss(lp_rounds *r, const char *who)
{
    char text[LP_WIRE_TEXT];
    snprintf(text, sizeof text, "%.200s did not come within %.3g s", who, (double)r->join_ns / 1e9);
    refuse_round(r, text);
}

static void ready(lp_rounds *r, lp_meeting *m)
{
    if (!m->is_known)
        return; /* it was told why */
    m->is_in = false;
    m->is_ready = true;
    if (m->who.hello.is_sender && r->ready_ns == 0)
        r->ready_ns = lp_clock_ns();
    bool is_over = true;
    for (int64_t i = 0; i < r->count; i++)
        is_over = is_over && !r->member[i]->is_in;
    if (is_over)
        r->world = 0;
}

/* ---- gather ---- */

static void gathered(lp_rounds *r)
{
    uint8_t *sizes = lp_allocate(r->alloc, (size_t)r->world * 8);
    lp_meeting *deaf = NULL;
    lp_text all;
    lp_text_init(&all, r->alloc);
    for (int32_t rank = 0; rank < r->world; rank++) {
        const lp_meeting *m = find_rank(r, rank);
        if (m == NULL || !m->has_block)
            goto out;
        if (sizes != NULL)
            lp_wire_put_i64(sizes + 8 * rank, m->block_bytes);
        if (m->block_bytes > 0)
            lp_text_add(&all, (const char *)m->block, (size_t)m->block_bytes);
    }
    if (sizes == NULL || all.failed) {
        end_round(r, NO_MEMORY);
        goto out;
    }
    drop_blocks(r);
    for (int64_t i = 0; i < r->count; i++)
        if (r->member[i]->is_in &&
            !lp_wire_put(&r->member[i]->wire, &(lp_wire_head){.type = LP_WIRE_GATHERED, .round = r->number}, sizes,
                         8 * (int64_t)r->world, all.data, all.bytes))
            deaf = r->member[i];
    if (deaf != NULL) /* there is no memory to tell it */
        lp_rounds_lost(r, deaf);
out:
    lp_text_free(&all);
    lp_release(r->alloc, sizes);
}

static void take_block(lp_rounds *r, lp_meeting *m, const uint8_t *body, int64_t bytes)
{
    int32_t count = 0;
    if (bytes > LP_GATHER_MAX || m->has_block) {
        lp_rounds_lost(r, m);
        return;
    }
    m->block = lp_allocate(r->alloc, (size_t)bytes + 1);
    if (m->block == NULL) {
        end_round(r, NO_MEMORY);
        return;
    }
    memcpy(m->block, body, (size_t)bytes);
    m->block_bytes = bytes;
    m->has_block = true;
    if (r->gather_ns == 0)
        r->gather_ns = lp_clock_ns();
    for (int64_t i = 0; i < r->count; i++)
        count += r->member[i]->is_in && r->member[i]->has_block;
    if (count == r->world)
        gathered(r);
}

/* ---- blame ---- */

/* How long an answer may take: a rank that is alive has a thread for it, but hosts may be busy. */
static int64_t clamp_ns(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static void ask(lp_rounds *r, int32_t stalled)
{
    if (r->blame_ns != 0 || r->world == 0)
        return;
    r->stalled = stalled;
    r->blame_ns = lp_clock_ns() + clamp_ns(r->stall_ns / 4, 500000000, 5000000000);
    for (int64_t i = 0; i < r->count; i++) {
        r->member[i]->has_answered = false;
        if (r->member[i]->is_in)
            (void)lp_wire_put(&r->member[i]->wire, &(lp_wire_head){.type = LP_WIRE_ASK, .round = r->number}, NULL, 0,
                              NULL, 0);
    }
}

static void judge(lp_rounds *r)
{
    char name[128], text[LP_WIRE_TEXT];
    int32_t at = r->stalled;
    lp_meeting *m = NULL;
    /* As many steps as there are ranks lead to the end of any chain that has one. */
    for (int32_t step = 0; step <= r->world; step++) {
        if (at == LP_WAITS_GATHER) {
            m = NULL;
            for (int32_t rank = 0; rank < r->world && m == NULL; rank++) {
                lp_meeting *one = find_rank(r, rank);
                if (one != NULL && !one->has_block)
                    m = one;
            }
        } else {
            m = find_rank(r, at);
        }
        if (m == NULL || !m->has_answered || m->answer == LP_WAITS_NOT)
            break;
        at = m->answer;
    }
    r->blame_ns = 0;
    if (m == NULL)
        return;
    if (m->has_answered && m->progress != m->judged_progress) {
        m->judged_progress = m->progress;
        r->gather_ns = r->gather_ns == 0 ? 0 : lp_clock_ns();
        for (int64_t i = 0; i < r->count; i++)
            if (r->member[i]->is_in)
                (void)lp_wire_put(&r->member[i]->wire, &(lp_wire_head){.type = LP_WIRE_PATIENCE, .round = r->number},
                                  NULL, 0, NULL, 0);
        return;
    }
    lp_wire_member_name(&m->who.hello, name);
    snprintf(text, sizeof text, m->has_answered ? "%s made no progress for %.3g s" : "%s did not answer for %.3g s",
             name, (double)r->stall_ns / 1e9);
    end_round(r, text);
}

void lp_rounds_tick(lp_rounds *r, int64_t now)
{
    char text[LP_WIRE_TEXT];
    if (r->world > 0 && r->blame_ns != 0 && now >= r->blame_ns)
        judge(r);
    if (r->world > 0 && r->gather_ns != 0 && now - r->gather_ns > r->stall_ns)
        ask(r, LP_WAITS_GATHER);
    if (r->ready_ns == 0)
        return;
    const char *missing = who_is_missing(r, text);
    if (missing == NULL)
        begin_round(r);
    else if (now - r->ready_ns > r->join_ns)
        miss(r, missing);
}

/* ---- messages ---- */

void lp_rounds_message(lp_rounds *r, lp_meeting *m, const lp_wire_head *head, const uint8_t *body)
{
    const bool is_current = m->is_in && head->round == r->number;
    char text[LP_WIRE_TEXT], name[128];
    switch (head->type) {
    case LP_WIRE_HELLO:
        hello(r, m, body, head->bytes);
        break;
    case LP_WIRE_READY:
        ready(r, m);
        break;
    case LP_WIRE_GATHER:
        if (is_current)
            take_block(r, m, body, head->bytes);
        break;
    case LP_WIRE_FAIL:
        if (!is_current)
            break;
        lp_wire_member_name(&m->who.hello, name);
        snprintf(text, sizeof text, "%s: %.*s", name, (int)(head->bytes < 240 ? head->bytes : 240), (const char *)body);
        end_round(r, text);
        break;
    case LP_WIRE_STALL:
        if (is_current)
            ask(r, head->argument);
        break;
    case LP_WIRE_ANSWER:
        if (is_current) {
            m->has_answered = head->bytes == 8;
            m->answer = head->argument;
            m->progress = m->has_answered ? lp_wire_get_i64(body) : 0;
        }
        break;
    case LP_WIRE_BYE:
        /* Leaving a round that all have finished is no loss. */
        m->is_in = m->is_in && r->gather_ns != 0;
        m->has_left = true;
        lp_rounds_lost(r, m);
        break;
    default:
        lp_rounds_lost(r, m);
        break;
    }
}
