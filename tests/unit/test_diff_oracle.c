/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What diff says of random pairs of loaders against an oracle that keeps, for every destination byte of every rank, who
 * writes it in which order and with what. Pairs say the same in other words, or differ in one call: diff is silent if
 * no byte differs, and only then. Where names come before each other in a circle, writes are taken apart into calls
 * (docs/identities.md, I8), so other words may be another plan there: only a change has to be seen.
 */
#include "findings_testing.h"

enum { NAMES = 5, NAME_BYTES = 100, DESTS = 3, BYTES = 40, CALLS_MAX = 8, RANKS = 2 };

typedef struct call {
    int name, dest; /* name NAMES: at the beginning, a fill */
    bool is_fill;
    int64_t value, run, times, dst_off, dst_step, src_off, src_step;
} call;

typedef struct program {
    int ranks, calls;
    call call[RANKS][CALLS_MAX];
} program;

/* ---- programs ---- */

static call random_call(uint64_t *random)
{
    call c = {.name = (int)random_below(random, NAMES + 1), .dest = (int)random_below(random, DESTS)};
    c.is_fill = c.name == NAMES || random_below(random, 4) == 0;
    c.value = random_below(random, 2);
    c.run = 1 + random_below(random, 4);
    c.times = 1 + random_below(random, 4);
    c.dst_step = c.run + random_below(random, 4);
    c.src_step = random_below(random, 4) == 0 ? 0 : random_below(random, 8);
    c.dst_off = random_below(random, BYTES - (c.times - 1) * c.dst_step - c.run + 1);
    c.src_off = random_below(random, 50);
    return c;
}

static program random_program(uint64_t *random)
{
    program p = {.ranks = 1 + (int)random_below(random, RANKS), .calls = 1 + (int)random_below(random, CALLS_MAX)};
    for (int r = 0; r < p.ranks; r++)
        for (int i = 0; i < p.calls; i++)
            p.call[r][i] = random_call(random);
    return p;
}

/* One call is another, does something else, or changes places with the next. */
static program changed_program(const program *p, uint64_t *random)
{
    program q = *p;
    call *c = &q.call[random_below(random, q.ranks)][random_below(random, q.calls)];
    switch (random_below(random, 7)) {
    case 0:
        c->src_off++;
        break;
    case 1:
        c->dst_off -= c->dst_off > 0;
        break;
    case 2:
        c->value = !c->value;
        break;
    case 3:
        c->name = (c->name + 1) % (c->is_fill ? NAMES + 1 : NAMES);
        break;
    case 4:
        c->times -= c->times > 1;
        break;
    case 5:
        *c = random_call(random);
        break;
    default:
        if (c != &q.call[0][q.calls - 1] && c != &q.call[RANKS - 1][q.calls - 1]) {
            const call other = c[1];
            c[1] = c[0];
            c[0] = other;
        }
    }
    return q;
}

/* ---- the same as a trace ---- */

static void add_piece(lp_trace *t, const call *c, int64_t from, int64_t times)
{
    const int64_t dst = c->dst_off + from * c->dst_step;
    const lp_map *map = c->is_fill
                            ? fill_map(dst, c->run, times, c->dst_step)
                            : byte_map(c->src_off + from * c->src_step, dst, c->run, times, c->src_step, c->dst_step);
    assert_ok(lp_trace_add_record(t,
                                  &(lp_record){.name = c->name == NAMES ? LP_NAME_BEGIN : (uint32_t)c->name,
                                               .dest = (uint32_t)c->dest,
                                               .map = map,
                                               .fill_bits = c->is_fill ? (uint64_t)c->value : 0,
                                               .provenance = LP_NONE},
                                  ERR));
    lp_map_free(map, NULL);
}

/* Each call as it is, or where `random` is given, in two pieces of which the second may come first. */
static void add_call(lp_trace *t, const call *c, uint64_t *random)
{
    const int64_t cut = random != NULL ? random_below(random, c->times + 1) : c->times;
    const bool second_first = random != NULL && random_below(random, 2) == 0;
    if (second_first && cut < c->times)
        add_piece(t, c, cut, c->times - cut);
    if (cut > 0)
        add_piece(t, c, 0, cut);
    if (!second_first && cut < c->times)
        add_piece(t, c, cut, c->times - cut);
}

static lp_trace *trace_of(const program *p, uint64_t *random)
{
    static const char *const dests[DESTS] = {"w0", "w1", "w2"};
    lp_checkpoint *c = small_checkpoint(NAMES, NAME_BYTES);
    lp_trace *t;
    assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.loader = "test", .layout = {.tp = p->ranks}}, NULL, ERR));
    lp_checkpoint_close(c);
    for (int r = 0; r < p->ranks; r++) {
        assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = p->ranks, .tp_rank = r}, ERR));
        for (int i = 0; i < DESTS; i++)
            add_dest(t, dests[i], BYTES);
        for (int i = 0; i < p->calls; i++)
            add_call(t, &p->call[r][i], random);
    }
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

/* ---- the oracle ---- */

/* Who writes a byte, the last one last, and with which source byte, or -1 - value of a fill. */
typedef struct byte_story {
    int writers;
    int name[NAMES + 1];
    int64_t source[NAMES + 1];
} byte_story;

/* A later write of a name is its only one. */
static void write_byte(byte_story *b, int name, int64_t source)
{
    int kept = 0;
    for (int i = 0; i < b->writers; i++)
        if (b->name[i] != name) {
            b->name[kept] = b->name[i];
            b->source[kept++] = b->source[i];
        }
    b->name[kept] = name;
    b->source[kept] = source;
    b->writers = kept + 1;
}

/* The beginning comes before all names: where one of them writes, nothing is left of it. */
static void drop_begin(byte_story *b)
{
    for (int i = 0; i < b->writers && b->writers > 1; i++)
        if (b->name[i] == NAMES) {
            memmove(&b->name[i], &b->name[i + 1], (size_t)(b->writers - i - 1) * sizeof *b->name);
            memmove(&b->source[i], &b->source[i + 1], (size_t)(b->writers - i - 1) * sizeof *b->source);
            b->writers--;
        }
}

static void tell(const program *p, int rank, byte_story story[DESTS][BYTES])
{
    memset(story, 0, DESTS * sizeof *story);
    for (int i = 0; i < p->calls; i++) {
        const call *c = &p->call[rank][i];
        for (int64_t k = 0; k < c->times; k++)
            for (int64_t j = 0; j < c->run; j++)
                write_byte(&story[c->dest][c->dst_off + k * c->dst_step + j], c->name,
                           c->is_fill ? -1 - c->value : c->src_off + k * c->src_step + j);
    }
    for (int d = 0; d < DESTS; d++)
        for (int b = 0; b < BYTES; b++)
            drop_begin(&story[d][b]);
}

static bool is_same_story(const byte_story *a, const byte_story *b)
{
    return a->writers == b->writers && memcmp(a->name, b->name, (size_t)a->writers * sizeof *a->name) == 0 &&
           memcmp(a->source, b->source, (size_t)a->writers * sizeof *a->source) == 0;
}

static bool is_same(const program *p, const program *q)
{
    static byte_story a[DESTS][BYTES], b[DESTS][BYTES];
    for (int r = 0; r < p->ranks; r++) {
        tell(p, r, a);
        tell(q, r, b);
        for (int d = 0; d < DESTS; d++)
            for (int i = 0; i < BYTES; i++)
                if (!is_same_story(&a[d][i], &b[d][i]))
                    return false;
    }
    return true;
}

/* Whether names come before each other in a circle, at different bytes of one destination. */
static bool has_circle(const program *p)
{
    static byte_story story[DESTS][BYTES];
    for (int r = 0; r < p->ranks; r++) {
        tell(p, r, story);
        for (int d = 0; d < DESTS; d++) {
            bool before[NAMES + 1][NAMES + 1] = {{false}};
            for (int b = 0; b < BYTES; b++)
                for (int i = 0; i < story[d][b].writers; i++)
                    for (int j = 0; j < i; j++)
                        before[story[d][b].name[j]][story[d][b].name[i]] = true;
            for (int k = 0; k < NAMES; k++)
                for (int i = 0; i < NAMES; i++)
                    for (int j = 0; j < NAMES; j++)
                        before[i][j] |= before[i][k] && before[k][j];
            for (int i = 0; i < NAMES; i++)
                if (before[i][i])
                    return true;
        }
    }
    return false;
}

/* ---- both ---- */

static void compare(const lp_trace *base, const lp_trace *changed, bool same, bool may_tell)
{
    lp_findings *f;
    assert_ok(lp_diff(&f, base, changed, ERR));
    if ((lp_findings_count(f) == 0) != same && !(same && may_tell)) {
        print_findings(f);
        fail_msg("the oracle says that %s", same ? "nothing changed" : "bytes changed");
    }
    lp_findings_free(f);
}

static void diff_agrees_with_the_oracle(void **state)
{
    (void)state;
    const uint64_t base = random_first_seed(20261201);
    const int64_t count = (int64_t)random_cases(2000);
    int64_t equal = 0, circles = 0;
    for (int64_t round = 0; round < count; round++) {
        uint64_t random = running_seed = base + (uint64_t)round;
        const program p = random_program(&random);
        const program q = random_below(&random, 3) > 0 ? changed_program(&p, &random) : p;
        lp_trace *t = trace_of(&p, NULL), *u = trace_of(&q, &random);
        const bool same = is_same(&p, &q);
        if (count == 1) {
            assert_ok(lp_trace_dump(t, show, NULL, ERR));
            assert_ok(lp_trace_dump(u, show, NULL, ERR));
        }
        const bool is_circle = has_circle(&p) || has_circle(&q);
        compare(t, u, same, is_circle);
        compare(u, t, same, is_circle);
        circles += is_circle;
        equal += same;
        lp_trace_close(t);
        lp_trace_close(u);
    }
    running_seed = 0;
    if (count >= 1000) {
        assert_in_range(equal, count / 5, count - count / 5);
        assert_in_range(circles, 1, count / 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(diff_agrees_with_the_oracle, name_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
