/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds. A round begins when everybody who is connected is ready and all groups are whole; then it has a number and
 * every member a rank. It ends when its members are ready for another one, or with a text that goes to all of them: a
 * member failed, was lost, or is to blame for a stall.
 */
#include "replayer/transport_rounds.h"

#include <stdio.h>

/* Connections that have not said who they are. */
enum { STRANGERS_MAX = 4096 };

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
void lp_rounds_tell(lp_meeting *m, uint32_t round, const char *text)
{
    if (lp_wire_put(&m->wire, &(lp_wire_head){.type = LP_WIRE_ABORT, .round = round}, text, (int64_t)strlen(text), NULL,
                    0))
        return;
    lp_wire_close(&m->wire);
    m->is_ready = false;
}

void lp_rounds_drop_blocks(lp_rounds *r)
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
void lp_rounds_end_round(lp_rounds *r, const char *text)
{
    if (r->world == 0)
        return;
    for (int64_t i = 0; i < r->count; i++) {
        if (!r->member[i]->is_in)
            continue;
        r->member[i]->is_in = false;
        lp_rounds_tell(r->member[i], r->number, text);
    }
    lp_rounds_drop_blocks(r);
    r->world = 0;
    r->blame_ns = 0;
}

lp_meeting *lp_rounds_find(const lp_rounds *r, int32_t rank)
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
    lp_rounds_end_round(r, text);
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

/* ---- gather ---- */

static void gathered(lp_rounds *r)
{
    uint8_t *sizes = lp_allocate(r->alloc, (size_t)r->world * 8);
    lp_meeting *deaf = NULL;
    lp_text all;
    lp_text_init(&all, r->alloc);
    for (int32_t rank = 0; rank < r->world; rank++) {
        const lp_meeting *m = lp_rounds_find(r, rank);
        if (m == NULL || !m->has_block)
            goto out;
        if (sizes != NULL)
            lp_wire_put_i64(sizes + 8 * rank, m->block_bytes);
        if (m->block_bytes > 0)
            lp_text_add(&all, (const char *)m->block, (size_t)m->block_bytes);
    }
    if (sizes == NULL || all.failed) {
        lp_rounds_end_round(r, LP_ROUNDS_NO_MEMORY);
        goto out;
    }
    lp_rounds_drop_blocks(r);
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
        lp_rounds_end_round(r, LP_ROUNDS_NO_MEMORY);
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

/* ---- time ---- */

void lp_rounds_tick(lp_rounds *r, int64_t now)
{
    char text[LP_WIRE_TEXT];
    if (r->world > 0 && r->blame_ns != 0 && now >= r->blame_ns)
        lp_rounds_judge(r);
    if (r->world > 0 && r->gather_ns != 0 && now - r->gather_ns > r->stall_ns)
        lp_rounds_ask(r, LP_WAITS_GATHER);
    if (r->ready_ns == 0)
        return;
    const char *missing = lp_rounds_missing(r, text);
    if (missing == NULL)
        lp_rounds_begin(r);
    else if (now - r->ready_ns > r->join_ns)
        lp_rounds_miss(r, missing);
}

/* ---- messages ---- */

void lp_rounds_message(lp_rounds *r, lp_meeting *m, const lp_wire_head *head, const uint8_t *body)
{
    const bool is_current = m->is_in && head->round == r->number;
    char text[LP_WIRE_TEXT], name[128];
    switch (head->type) {
    case LP_WIRE_HELLO:
        lp_rounds_hello(r, m, body, head->bytes);
        break;
    case LP_WIRE_READY:
        lp_rounds_ready(r, m);
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
        lp_rounds_end_round(r, text);
        break;
    case LP_WIRE_STALL:
        if (is_current)
            lp_rounds_ask(r, head->argument);
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
