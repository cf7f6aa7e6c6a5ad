/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that move between the ranks of a world: afterwards every rank holds what a cold start by the new map loads.
 */
#include "sync_testing.h"

enum { RANKS = 4, SLOTS = 3, ALL = RANKS * SLOTS, ROWS = 5, COLUMNS = 7, MAPS = 6 };

static lp_checkpoint *make_experts(void)
{
    lp_checkpoint *c = NULL;
    char name[32];
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int i = 0; i < ALL; i++) {
        snprintf(name, sizeof name, "experts.%d.w", i);
        add_tensor_to(c, name, LP_BF16, 2, ROWS, COLUMNS);
    }
    add_tensor_to(c, "router", LP_F32, 1, ALL, 1);
    assert_ok(lp_checkpoint_seal(c, ERR));
    return c;
}

static lp_trace *record_experts(const lp_checkpoint *c)
{
    lp_recorder *r = NULL;
    lp_trace *t = NULL;
    const int64_t shape[3] = {SLOTS, ROWS, COLUMNS};
    for (int rank = 0; rank < RANKS; rank++) {
        const lp_scope at = {.dp = RANKS, .dp_rank = rank, .expert_parallel = true};
        if (r == NULL)
            assert_ok(lp_recorder_open(&r, c, &at, ERR));
        else
            assert_ok(lp_recorder_next_scope(r, &at, ERR));
        lp_declare_with(r,
                        &(lp_declaration){.name = "w", .dtype = LP_BF16, .ndim = 3, .shape = shape, .has_slots = true});
        declare(r, "router", LP_F32, 1, ALL, 1);
        lp_copy(lp_dest(r, "router"), lp_source(r, "router"));
        for (int i = 0; i < SLOTS; i++)
            lp_copy(lp_select(lp_dest(r, "w"), 0, i), lp_source(r, lp_name(r, "experts.%d.w", rank * SLOTS + i)));
    }
    assert_ok(lp_recorder_finish(r, &t, ERR));
    lp_recorder_close(r);
    return t;
}

/* Any experts in any slots, each somewhere. */
static void shuffle(int32_t *map, uint64_t seed)
{
    for (int i = 0; i < ALL; i++)
        map[i] = i;
    for (int i = ALL - 1; i > 0; i--) {
        const int k = (int)(random_mix(seed + (uint64_t)i) % (uint64_t)(i + 1));
        const int32_t x = map[i];
        map[i] = map[k];
        map[k] = x;
    }
}

typedef struct member {
    lp_transport transport;
    const lp_trace *trace;
    rank_memory memory;
    lp_expert_map *maps;
    int64_t staging;
    lp_status status;
    lp_error err;
} member;

static void *run_member(void *context)
{
    member *m = context;
    lp_sync *s = NULL;
    m->status = lp_sync_open(&s, &m->transport, m->trace, &(lp_sync_options){.is_sender = true}, &m->err);
    for (int i = 0; i < MAPS && m->status == LP_OK; i++)
        m->status = lp_sync_rebalance(s, m->memory.plan, &m->maps[i], m->staging, &m->err);
    lp_sync_close(s);
    lp_transport_close(&m->transport);
    return NULL;
}

static rank_memory bind_by_map(const lp_trace *t, int32_t rank, const lp_expert_map *map)
{
    rank_memory m = {.plan = NULL};
    int64_t count;
    const lp_scope *scope = lp_trace_scope_at(t, rank);
    assert_ok(lp_destinations_allocate(&m.memory, t, scope, false, NULL, ERR));
    const lp_destination_memory *list = lp_destinations_list(m.memory, &count);
    const lp_bind_options o = {.threads = 1, .experts = map};
    assert_ok(lp_bind(&m.plan, t, scope, list, count, &o, ERR));
    return m;
}

static void moved_experts_are_those_of_a_cold_start(void **state)
{
    (void)state;
    static int32_t logical[MAPS][ALL];
    lp_expert_map maps[MAPS];
    lp_checkpoint *c = make_experts();
    lp_trace *t = record_experts(c);
    payload p = make_payload(c, 1);
    for (int64_t staging = 64; staging <= 1 << 20; staging *= 128) {
        lp_transport transport[RANKS];
        pthread_t thread[RANKS];
        member m[RANKS];
        for (int i = 0; i < MAPS; i++) {
            shuffle(logical[i], (uint64_t)(i * 977 + staging));
            maps[i] = (lp_expert_map){logical[i], ALL, i + 1};
        }
        assert_ok(lp_transport_local(transport, RANKS, RANKS, 120000000000, NULL, ERR));
        for (int i = 0; i < RANKS; i++) {
            m[i] = (member){.transport = transport[i], .trace = t, .maps = maps, .staging = staging};
            m[i].memory = bind_rank(t, i);
            load_whole(&m[i].memory, &p);
            assert_int_equal(pthread_create(&thread[i], NULL, run_member, &m[i]), 0);
        }
        for (int i = 0; i < RANKS; i++)
            pthread_join(thread[i], NULL);
        for (int i = 0; i < RANKS; i++) {
            if (m[i].status != LP_OK)
                fail_msg("rank %d: %s", i, m[i].err.text);
            rank_memory want = bind_by_map(t, i, &maps[MAPS - 1]);
            load_whole(&want, &p);
            assert_same_memory(&m[i].memory, &want, "moved", i);
            assert_int_equal(lp_plan_epoch(m[i].memory.plan), MAPS);
            free_rank(&want);
            free_rank(&m[i].memory);
        }
    }
    free_payload(&p);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(moved_experts_are_those_of_a_cold_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
