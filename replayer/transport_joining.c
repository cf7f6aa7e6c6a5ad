/* SPDX-License-Identifier: Apache-2.0 */
/* Who comes to the meeting point, and when all that a round needs are ready for it. */
#include "replayer/transport_rounds.h"

#include <stdio.h>
#include <stdlib.h>

static bool same_place(const lp_wire_hello *a, const lp_wire_hello *b)
{
    return a->is_sender == b->is_sender && a->rank == b->rank && (a->is_sender || strcmp(a->group, b->group) == 0);
}

void lp_rounds_hello(lp_rounds *r, lp_meeting *m, const uint8_t *body, int64_t bytes)
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
        lp_rounds_tell(m, 0, text);
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

const char *lp_rounds_missing(lp_rounds *r, char text[LP_WIRE_TEXT])
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
        lp_rounds_tell(r->member[i], 0, text);
    }
    r->ready_ns = 0;
}

void lp_rounds_begin(lp_rounds *r)
{
    uint8_t *table = lp_allocate(r->alloc, (size_t)r->count * LP_WIRE_MEMBER_BYTES + 1);
    if (table == NULL) {
        refuse_round(r, LP_ROUNDS_NO_MEMORY);
        return;
    }
    r->world = 0;
    r->number++;
    lp_rounds_drop_blocks(r);
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

void lp_rounds_miss(lp_rounds *r, const char *who)
{
    char text[LP_WIRE_TEXT];
    snprintf(text, sizeof text, "%.200s did not come within %.3g s", who, (double)r->join_ns / 1e9);
    refuse_round(r, text);
}

void lp_rounds_ready(lp_rounds *r, lp_meeting *m)
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
