/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long messages take over links, without a clock: ranks start them in the order in which they were noted down, each
 * has one link out and one in, and messages that share a link share what it moves. A rank goes on with the next message
 * of its list when the ones before are over, as on the stream of a device; messages that were started together, and may
 * go beside one another, do.
 */
#ifndef LOADPLAN_LINK_MODEL_H
#define LOADPLAN_LINK_MODEL_H

#include "replayer/sync.h"

#include <stdlib.h>
#include <string.h>

enum { LINK_RANKS = 64 };

typedef struct link_message {
    int32_t peer;
    bool is_send;
    int group; /* messages of a rank that go at the same time */
    double left;
    struct link_message *other; /* the peer's half */
} link_message;

/* What a rank has started. */
typedef struct link_list {
    link_message *item;
    int count, capacity, groups;
} link_list;

static inline void link_note(link_list *l, const lp_transfer *transfer, int64_t count)
{
    bool is_first = true;
    for (int64_t i = 0; i < count; i++) {
        const lp_transfer *x = &transfer[i];
        if (x->is_host || x->bytes == 0)
            continue;
        if (l->count == l->capacity) {
            l->capacity = 2 * l->capacity + 64;
            l->item = realloc(l->item, (size_t)l->capacity * sizeof *l->item);
            if (l->item == NULL)
                abort();
        }
        l->groups += is_first || x->is_behind;
        is_first = false;
        l->item[l->count++] = (link_message){
            .peer = x->peer, .is_send = x->is_send, .group = l->groups, .left = (double)x->bytes, .other = NULL};
    }
}

typedef struct link_verdict {
    double time;  /* with links that move one byte in one unit of time */
    double least; /* the same if the link that moves most never stood still */
    int most;     /* messages that were under way at the same time */
} link_verdict;

/* The n-th message from a to b is what b takes from a for the n-th time. False: their numbers or sizes differ. */
static inline bool link_join(link_list *list, int ranks)
{
    for (int a = 0; a < ranks; a++)
        for (int i = 0; i < list[a].count; i++) {
            link_message *m = &list[a].item[i];
            for (int k = 0; m->is_send && m->other == NULL && k < list[m->peer].count; k++) {
                link_message *o = &list[m->peer].item[k];
                if (o->is_send || o->peer != a || o->other != NULL)
                    continue;
                m->other = o;
                o->other = m;
            }
            if (m->is_send && (m->other == NULL || m->other->left != m->left)) /* NOLINT: both are whole numbers */
                return false;
        }
    return true;
}

static inline void link_free(link_list *list, int ranks)
{
    for (int a = 0; a < ranks; a++) {
        free(list[a].item);
        list[a] = (link_list){.count = 0};
    }
}

static inline bool link_is_next(const link_list *l, const int next, const link_message *m)
{
    return next < l->count && m->group == l->item[next].group && m->left > 0;
}

/* time -1: ranks wait for one another for ever, or messages do not fit together. */
static inline link_verdict link_run(link_list *list, int ranks)
{
    link_verdict v = {.time = 0};
    int next[LINK_RANKS] = {0};
    if (!link_join(list, ranks))
        return (link_verdict){.time = -1};
    for (int a = 0; a < ranks; a++) {
        double bytes[2] = {0, 0};
        for (int i = 0; i < list[a].count; i++)
            bytes[list[a].item[i].is_send] += list[a].item[i].left;
        v.least = bytes[0] > v.least ? bytes[0] : v.least;
        v.least = bytes[1] > v.least ? bytes[1] : v.least;
    }
    for (;;) {
        int sharing[2][LINK_RANKS] = {{0}}, flying = 0;
        double step = -1;
        for (int a = 0; a < ranks; a++)
            while (next[a] < list[a].count && list[a].item[next[a]].left <= 0)
                next[a]++;
        for (int pass = 0; pass < 3; pass++) /* who shares a link; how long until one is over; on until then */
            for (int a = 0; a < ranks; a++)
                for (int i = next[a]; i < list[a].count && list[a].item[i].group == list[a].item[next[a]].group; i++) {
                    link_message *m = &list[a].item[i];
                    if (!m->is_send || m->left <= 0 || !link_is_next(&list[m->peer], next[m->peer], m->other))
                        continue;
                    const int most = sharing[1][a] > sharing[0][m->peer] ? sharing[1][a] : sharing[0][m->peer];
                    if (pass == 0) {
                        sharing[1][a]++;
                        sharing[0][m->peer]++;
                        flying++;
                    } else if (pass == 1) {
                        step = step < 0 || m->left * most < step ? m->left * most : step;
                    } else {
                        m->left -= step / most;
                        m->left = m->left < 1e-6 ? 0 : m->left;
                        m->other->left = m->left;
                    }
                }
        if (flying == 0)
            break;
        v.most = flying > v.most ? flying : v.most;
        v.time += step;
    }
    for (int a = 0; a < ranks; a++)
        if (next[a] < list[a].count)
            v.time = -1;
    return v;
}

#endif
