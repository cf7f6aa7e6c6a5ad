/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange without a GPU: its places played through in memory for worlds of 1 to 64 ranks, with the arithmetic that
 * the kernels use, and everything that is refused before a launch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/exchange_private.h"
#include "tests/random_numbers.h"

#include <stdlib.h>
#include <string.h>

enum { TOP_K = 4, EACH = 3, UNTOUCHED = -7 };

typedef enum routing { UNIFORM, ALL_FOR_ONE, MASKED, BEYOND, ROUTINGS } routing;

typedef struct played {
    int32_t ranks, bound;
    int32_t *tokens;   /* [ranks] */
    int64_t *ids;      /* [ranks][bound][TOP_K] as the callers have them */
    int64_t *x;        /* [ranks][ranks * bound]: at each rank, the name of the token that lies there */
    int32_t *arrived;  /* [ranks][ranks * bound][TOP_K]: experts */
    int64_t *slot;     /* [ranks][bound * TOP_K]: what was computed for the route */
    int64_t rows_sent; /* of x, to whatever rank */
} played;

static void *filled(int64_t count, size_t bytes)
{
    void *const memory = malloc((size_t)count * bytes);
    assert_non_null(memory);
    memset(memory, 0xff, (size_t)count * bytes);
    return memory;
}

static int64_t id_of(routing how, int32_t ranks, uint64_t *state)
{
    const int64_t all = (int64_t)ranks * EACH;
    switch (how) {
    case ALL_FOR_ONE:
        return (ranks - 1) * (int64_t)EACH + random_below(state, EACH);
    case MASKED:
        return random_below(state, 3) == 0 ? -1 : random_below(state, all);
    case BEYOND:
        return random_below(state, 2 * all) - all / 2;
    case UNIFORM:
    case ROUTINGS:
        break;
    }
    return random_below(state, all);
}

static played make(int32_t ranks, int32_t bound, routing how, uint64_t *state)
{
    const int64_t all = (int64_t)ranks * bound;
    played p = {.ranks = ranks, .bound = bound};
    p.tokens = filled(ranks, sizeof *p.tokens);
    p.ids = filled(all * TOP_K, sizeof *p.ids);
    p.x = filled(ranks * all, sizeof *p.x);
    p.arrived = filled(ranks * all * TOP_K, sizeof *p.arrived);
    p.slot = filled(all * TOP_K, sizeof *p.slot);
    for (int64_t i = 0; i < all * TOP_K; i++) {
        p.ids[i] = id_of(how, ranks, state);
        p.slot[i] = UNTOUCHED;
    }
    for (int32_t r = 0; r < ranks; r++)
        p.tokens[r] = (int32_t)random_below(state, bound + 1);
    p.tokens[0] = ranks > 1 ? 0 : p.tokens[0]; /* a rank without tokens */
    p.tokens[ranks - 1] = bound;
    return p;
}

static void end(played *p)
{
    free(p->tokens);
    free(p->ids);
    free(p->x);
    free(p->arrived);
    free(p->slot);
}

/* What the sending launch of one rank does. */
static void send_tokens(played *p, int32_t rank)
{
    const int64_t all = (int64_t)p->ranks * p->bound;
    for (int32_t t = 0; t < p->bound; t++) {
        const int64_t row = lp_moe_sent_token(rank, p->bound, t);
        bool is_wanted[LP_MOE_EXCHANGE_RANKS] = {false};
        for (int j = 0; j < TOP_K; j++) {
            const int64_t id = p->ids[((int64_t)rank * p->bound + t) * TOP_K + j];
            const int32_t expert = t < p->tokens[rank] ? lp_moe_expert_of(id, 0, (int64_t)p->ranks * EACH) : -1;
            for (int32_t r = 0; r < p->ranks; r++)
                p->arrived[(r * all + row) * TOP_K + j] = expert;
            if (expert >= 0)
                is_wanted[lp_moe_rank_of(expert, EACH)] = true;
        }
        for (int32_t r = 0; r < p->ranks; r++)
            if (is_wanted[r]) {
                assert_int_equal(p->x[r * all + row], -1); /* once */
                p->x[r * all + row] = (int64_t)rank * 1000000 + t;
                p->rows_sent++;
            }
    }
}

static int64_t computed(int64_t token, int32_t expert)
{
    return token * 1000 + expert;
}

/* What one rank computes for its experts, row by row in any order, and where it puts the rows. */
static void compute(played *p, int32_t rank)
{
    const int64_t all = (int64_t)p->ranks * p->bound, routes = (int64_t)p->bound * TOP_K;
    for (int64_t route = all * TOP_K - 1; route >= 0; route--) {
        const int32_t expert = p->arrived[rank * all * TOP_K + route];
        if (expert < 0 || expert < rank * EACH || expert >= (rank + 1) * EACH)
            continue;
        const int64_t token = p->x[rank * all + route / TOP_K];
        assert_int_not_equal(token, -1); /* its row of x has arrived */
        const lp_moe_slot_place place = lp_moe_slot_of((int32_t)route, (int32_t)routes);
        int64_t *const slot = &p->slot[place.rank * routes + place.slot];
        assert_int_equal(*slot, UNTOUCHED);
        *slot = computed(token, expert);
    }
}

/* Every route has its own row at its owner, in its order of choices, and no other slot was touched. */
static void check_slots(const played *p)
{
    int64_t wanted = 0;
    for (int32_t rank = 0; rank < p->ranks; rank++)
        for (int32_t t = 0; t < p->bound; t++) {
            uint64_t ranks = 0;
            for (int j = 0; j < TOP_K; j++) {
                const int64_t route = ((int64_t)rank * p->bound + t) * TOP_K + j, id = p->ids[route];
                const bool is_route = t < p->tokens[rank] && id >= 0 && id < (int64_t)p->ranks * EACH;
                assert_int_equal(p->slot[route],
                                 is_route ? computed((int64_t)rank * 1000000 + t, (int32_t)id) : UNTOUCHED);
                if (is_route)
                    ranks |= (uint64_t)1 << (id / EACH);
            }
            wanted += __builtin_popcountll(ranks);
        }
    assert_int_equal(p->rows_sent, wanted); /* once to each rank that has an expert of the token */
}

static void test_places(void **state)
{
    (void)state;
    static const int32_t worlds[] = {1, 2, 3, 8, 64};
    uint64_t random = 20261130;
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
        for (int how = 0; how < ROUTINGS; how++)
            for (int32_t bound = 1; bound <= 17; bound += 8) {
                played p = make(worlds[w], bound, (routing)how, &random);
                for (int32_t r = 0; r < p.ranks; r++)
                    send_tokens(&p, r);
                for (int32_t r = p.ranks - 1; r >= 0; r--)
                    compute(&p, r);
                check_slots(&p);
                end(&p);
            }
}

static void test_ids(void **state)
{
    (void)state;
    assert_int_equal(lp_moe_expert_of(5, 0, 6), 5);
    assert_int_equal(lp_moe_expert_of(6, 0, 6), -1);
    assert_int_equal(lp_moe_expert_of(-1, 0, 6), -1);
    assert_int_equal(lp_moe_expert_of(15, 10, 6), 5);
    assert_int_equal(lp_moe_expert_of(9, 10, 6), -1);
    assert_int_equal(lp_moe_expert_of(INT64_MAX, 10, 6), -1);
    assert_int_equal(lp_moe_expert_of(INT64_MIN, 10, 6), -1);
    assert_int_equal(lp_moe_rank_of(-1, 32), -1);
    assert_int_equal(lp_moe_rank_of(31, 32), 0);
    assert_int_equal(lp_moe_rank_of(32, 32), 1);
}

static void test_failure_words(void **state)
{
    (void)state;
    const lp_moe_failure f = lp_moe_unpack_failure(lp_moe_pack_failure(LP_MOE_NO_ROWS, 63, 17, 0xfffffffe));
    assert_int_equal(f.kind, LP_MOE_NO_ROWS);
    assert_int_equal(f.rank, 63);
    assert_int_equal(f.by, 17);
    assert_int_equal(f.call, 0xfffffffe);
    assert_true(lp_moe_pack_failure(LP_MOE_NO_TOKENS, 0, 0, 0) != 0);
    assert_int_equal(lp_moe_unpack_failure(0).kind, LP_MOE_NO_FAILURE);
}

/* ---- sizes and refusals ---- */

static lp_megamoe_shape flash(void)
{
    return (lp_megamoe_shape){.size = sizeof(lp_megamoe_shape),
                              .experts = 32,
                              .hidden = 4096,
                              .intermediate = 2048,
                              .top_k = 6,
                              .max_tokens = 4096,
                              .first_expert = 100,
                              .format = LP_MXFP4,
                              .x_dtype = LP_BF16,
                              .id_dtype = LP_I64};
}

static void test_inner_shape(void **state)
{
    (void)state;
    lp_error err = {0};
    lp_megamoe_shape shape = flash(), inner;
    shape.tokens_bound = 64;
    assert_int_equal(lp_moe_exchange_inner(&inner, &shape, 3, 8, &err), LP_OK);
    assert_int_equal(inner.max_tokens, 8 * 4096);
    assert_int_equal(inner.tokens_bound, 8 * 64);
    assert_int_equal(inner.first_expert, 3 * 32); /* experts are numbered from 0 on their way */
    assert_int_equal(inner.x_dtype, LP_F8_E4M3);
    assert_int_equal(inner.id_dtype, LP_I32);
    shape.format = LP_NVFP4;
    shape.tokens_bound = 0;
    assert_int_equal(lp_moe_exchange_inner(&inner, &shape, 0, 16, &err), LP_OK);
    assert_int_equal(inner.x_dtype, LP_BF16);
    assert_int_equal(inner.tokens_bound, 16 * 4096);
    assert_int_equal(lp_moe_exchange_inner(&inner, &shape, 0, 17, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "of 17 ranks together: max_tokens is 69632, not 1 to 65536");
    assert_int_equal(lp_moe_exchange_inner(&inner, &shape, 0, 65, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "ranks is 65, not 1 to 64");
    assert_int_equal(lp_moe_exchange_inner(&inner, &shape, 2, 2, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "rank 2 is not one of 2");
}

static void test_layout(void **state)
{
    (void)state;
    lp_error err = {0};
    lp_megamoe_shape shape = flash();
    const lp_moe_exchange_places p = lp_moe_exchange_layout(&shape, 2);
    assert_int_equal(p.x, 2048);
    assert_int_equal(p.x_scale - p.x, 2 * 4096 * 4096);
    assert_int_equal(p.ids - p.x_scale, 2 * 4096 * 32 * 4);
    assert_int_equal(p.weights - p.ids, 2 * 4096 * 6 * 4);
    assert_int_equal(p.slots - p.weights, 2 * 4096 * 6 * 4);
    assert_int_equal(p.bytes - p.slots, (int64_t)4096 * 6 * 4096 * 2);
    assert_int_equal(lp_moe_exchange_bytes(&shape, 2, &err), p.bytes);
    shape.format = LP_MOE_BF16;
    const lp_moe_exchange_places wide = lp_moe_exchange_layout(&shape, 2);
    assert_int_equal(wide.ids - wide.x, 2 * 4096 * 8192);
    assert_int_equal(wide.x_scale, wide.ids);
    assert_int_equal(lp_moe_exchange_bytes(&shape, 0, &err), 0);
    shape.hidden = 100;
    assert_int_equal(lp_moe_exchange_workspace(&shape, 2, &err), 0);
}

typedef struct call {
    lp_megamoe_shape shape;
    lp_megamoe_weights weights;
    lp_megamoe_io io;
    lp_moe_exchange exchange;
    char *memory;
    int64_t workspace_bytes;
} call;

/* A call that nothing is wrong with; its pointers are never followed. */
static call good_call(void)
{
    lp_error err = {0};
    call c = {.shape = flash(), .weights.size = sizeof(lp_megamoe_weights)};
    c.memory = (char *)(uintptr_t)4096;
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
        assert_int_equal(lp_megamoe_tensor_in(&c.weights.tensor[slot], &c.shape,
                                              lp_megamoe_layout(LP_MXFP4, (lp_moe_slot)slot, 0), c.memory, &err),
                         LP_OK);
    c.io = (lp_megamoe_io){.size = sizeof c.io,
                           .x = c.memory,
                           .topk_ids = c.memory,
                           .topk_weight = (const float *)(void *)c.memory,
                           .tokens = (const int32_t *)(void *)c.memory,
                           .y = c.memory};
    c.exchange = (lp_moe_exchange){.size = sizeof c.exchange,
                                   .rank = 1,
                                   .ranks = 2,
                                   .buffer = {c.memory, c.memory + 256},
                                   .buffer_bytes = lp_moe_exchange_bytes(&c.shape, 2, &err)};
    c.workspace_bytes = lp_moe_exchange_workspace(&c.shape, 2, &err);
    assert_true(c.exchange.buffer_bytes > 0 && c.workspace_bytes > 0);
    return c;
}

static lp_status check(const call *c)
{
    return lp_moe_exchange_check(&c->shape, &c->weights, &c->io, &c->exchange, c->memory, c->workspace_bytes, NULL);
}

static void expect(const call *c, lp_status status, const char *text)
{
    lp_error err = {0};
    assert_int_equal(
        lp_moe_exchange_check(&c->shape, &c->weights, &c->io, &c->exchange, c->memory, c->workspace_bytes, &err),
        status);
    if (text != NULL)
        assert_string_equal(err.text, text);
}

static void test_refusals(void **state)
{
    (void)state;
    call c = good_call();
    expect(&c, LP_OK, NULL);
    c.exchange.size = 8;
    expect(&c, LP_E_ARGUMENT, "the exchange's size field is not sizeof(lp_moe_exchange)");
    c = good_call();
    c.exchange.timeout_ns = -1;
    expect(&c, LP_E_ARGUMENT, "the exchange's timeout is negative");
    c = good_call();
    c.exchange.buffer[0] = NULL;
    expect(&c, LP_E_ARGUMENT, "the buffer of rank 0 is missing");
    c = good_call();
    c.exchange.buffer[1] = c.memory + 128;
    expect(&c, LP_E_ARGUMENT, "the buffer of rank 1 is not aligned to 256 bytes");
    c = good_call();
    c.exchange.buffer[1] = c.memory;
    expect(&c, LP_E_ARGUMENT, "ranks 0 and 1 have one buffer");
    c = good_call();
    c.exchange.buffer_bytes--;
    expect(&c, LP_E_ARGUMENT, NULL);
    c = good_call();
    c.workspace_bytes--;
    expect(&c, LP_E_ARGUMENT, NULL);
    c = good_call();
    c.io.y = NULL;
    expect(&c, LP_E_ARGUMENT, "y is missing");
    c = good_call();
    c.exchange.rank = 2;
    expect(&c, LP_E_ARGUMENT, "rank 2 is not one of 2");
}

static void test_terms(void **state)
{
    (void)state;
    char one[256], other[256];
    lp_megamoe_shape shape = flash();
    lp_moe_exchange_terms(&shape, 2, one, sizeof one);
    shape.tokens_bound = 9; /* may change from call to call */
    lp_moe_exchange_terms(&shape, 2, other, sizeof other);
    assert_string_equal(one, other);
    shape.hidden = 7168;
    lp_moe_exchange_terms(&shape, 2, other, sizeof other);
    assert_string_not_equal(one, other);
    assert_string_equal(one, "2 ranks, format 1, 32 experts a rank from 100, hidden 4096, intermediate 2048, top 6, at "
                             "most 4096 tokens, activation 0 (0, 0, 0), shared 0 of format 0");
    shape = flash();
    shape.fast = true;
    lp_moe_exchange_terms(&shape, 2, other, sizeof other);
    assert_string_not_equal(one, other);
    shape = flash();
    shape.shared_intermediate = 2048;
    lp_moe_exchange_terms(&shape, 2, other, sizeof other);
    assert_string_not_equal(one, other);
}

/* Shared experts are each rank's own: peers see nothing of them, the workspace holds them. */
static void test_shared_experts(void **state)
{
    (void)state;
    call c = good_call();
    const int64_t before = c.workspace_bytes, buffer = lp_moe_exchange_bytes(&c.shape, 2, NULL);
    lp_megamoe_weights shared = {.size = sizeof shared};
    c.shape.shared_intermediate = 4096, c.shape.shared_format = LP_MXFP8;
    const lp_megamoe_shape one = lp_megamoe_shared_shape(&c.shape);
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
        assert_int_equal(lp_megamoe_tensor_in(&shared.tensor[slot], &one,
                                              lp_megamoe_layout(LP_MXFP8, (lp_moe_slot)slot, 0), c.memory, NULL),
                         LP_OK);
    expect(&c, LP_E_ARGUMENT, "the weights of the shared experts are missing");
    c.weights.shared = &shared;
    assert_int_equal(check(&c), LP_E_ARGUMENT); /* the workspace is too small */
    c.workspace_bytes = lp_moe_exchange_workspace(&c.shape, 2, NULL);
    assert_true(c.workspace_bytes >= before + lp_megamoe_workspace(&one, NULL));
    assert_int_equal(lp_moe_exchange_bytes(&c.shape, 2, NULL), buffer);
    assert_int_equal(check(&c), LP_OK);
    c.workspace_bytes--;
    assert_int_equal(check(&c), LP_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_failure_words), cmocka_unit_test(test_inner_shape),
        cmocka_unit_test(test_layout),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_terms),         cmocka_unit_test(test_shared_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
