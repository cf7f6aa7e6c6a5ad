/* SPDX-License-Identifier: Apache-2.0 */
/* Receivers of one model for several epochs, and what each of them must hold after each. */
#ifndef LOADPLAN_EPOCH_WORLDS_H
#define LOADPLAN_EPOCH_WORLDS_H

#include "sync_testing.h"

enum { GOOD = 1, FAULTY = 2, AFTER = 3, EPOCHS = 3, LONG_S = 240 };

static const int64_t LONG_NS = LONG_S * 1000000000LL;

typedef struct world {
    lp_checkpoint *model;
    lp_trace *trace;
    payload epoch[EPOCHS + 1];
    int senders, receivers;
    rank_memory *memory, *want[EPOCHS + 1]; /* of receivers; want is the same for ranks that hold the same */
} world;

static inline void open_world(world *w, int senders, int dp, int tp)
{
    *w = (world){.model = make_model(), .senders = senders, .receivers = dp * tp};
    w->trace = record_layout(w->model, dp, tp, false);
    w->memory = calloc((size_t)w->receivers, sizeof *w->memory);
    assert_non_null(w->memory);
    for (int i = 0; i < w->receivers; i++)
        w->memory[i] = bind_rank(w->trace, i);
    for (int e = GOOD; e <= EPOCHS; e++) {
        w->epoch[e] = make_payload(w->model, e);
        w->want[e] = calloc((size_t)tp, sizeof **w->want);
        assert_non_null(w->want[e]);
        for (int i = 0; i < tp; i++) {
            w->want[e][i] = bind_rank(w->trace, i);
            load_whole(&w->want[e][i], &w->epoch[e]);
        }
    }
}

static inline void close_world(world *w, int tp)
{
    for (int i = 0; i < w->receivers; i++)
        free_rank(&w->memory[i]);
    free(w->memory);
    for (int e = GOOD; e <= EPOCHS; e++) {
        for (int i = 0; i < tp; i++)
            free_rank(&w->want[e][i]);
        free(w->want[e]);
        free_payload(&w->epoch[e]);
    }
    lp_trace_close(w->trace);
    lp_checkpoint_close(w->model);
}

/* Whether a session of one name is begun: only a plan that holds the rest takes it. */
static inline bool trusts(const lp_plan *plan)
{
    const char *one = "norm";
    const lp_session_options part = {.mode = LP_DIRECT, .subset = &one, .subset_count = 1};
    lp_session *s = NULL;
    lp_error err;
    const bool is_begun = lp_begin(&s, (lp_plan *)(uintptr_t)plan, &part, &err) == LP_OK;
    lp_session_close(s);
    return is_begun;
}

#endif
