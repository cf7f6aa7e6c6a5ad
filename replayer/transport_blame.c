/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who keeps the others waiting. A rank that waits too long complains about the rank that it waits for. Everybody is
 * then asked what he waits for. Waiting ranks answer at once, so the chain of answers leads to a rank that waits for
 * nobody: it is busy, or it does not answer at all. A rank that answers and has got something done since it was last
 * asked gets more time.
 */
#include "replayer/transport_rounds.h"

#include <stdio.h>

/* How long an answer may take: a rank that is alive has a thread for it, but hosts may be busy. */
static int64_t clamp_ns(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

void lp_rounds_ask(lp_rounds *r, int32_t stalled)
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

void lp_rounds_judge(lp_rounds *r)
{
    char name[128], text[LP_WIRE_TEXT];
    int32_t at = r->stalled;
    lp_meeting *m = NULL;
    /* As many steps as there are ranks lead to the end of any chain that has one. */
    for (int32_t step = 0; step <= r->world; step++) {
        if (at == LP_WAITS_GATHER) {
            m = NULL;
            for (int32_t rank = 0; rank < r->world && m == NULL; rank++) {
                lp_meeting *one = lp_rounds_find(r, rank);
                if (one != NULL && !one->has_block)
                    m = one;
            }
        } else {
            m = lp_rounds_find(r, at);
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
    lp_rounds_end_round(r, text);
}
