/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form does not depend on what means nothing: the order of calls that touch different bytes, and where
 * calls are cut. Random calls of several names into two destinations that share a storage, against an oracle that looks
 * at every byte.
 */
#include "model_testing.h"
#include "tests/random_numbers.h"

enum { BYTES = 40, SHIFT = 12, NAMES = 4, CALLS_MAX = 10, PARTS_MAX = 2 * CALLS_MAX };

typedef struct call {
    uint32_t name, dest;
    const lp_map *map;
    uint64_t fill_bits;
} call;

typedef struct program {
    call item[PARTS_MAX];
    int count;
} program;

static uint64_t running_seed; /* 0: no round is running */

static int name_the_seed(void **state)
{
    (void)state;
    if (running_seed != 0)
        print_message("failed with LOADPLAN_TEST_SEED=%llu\n", (unsigned long long)running_seed);
    return 0;
}

static void random_program(program *p, uint64_t *random)
{
    p->count = 2 + (int)random_below(random, CALLS_MAX - 1);
    for (int i = 0; i < p->count; i++) {
        call *c = &p->item[i];
        const int64_t run = 1 + random_below(random, 4), times = 1 + random_below(random, 3);
        const int64_t step = run + random_below(random, 5), span = (times - 1) * step + run;
        const int64_t at = random_below(random, BYTES - span + 1);
        c->name = (uint32_t)random_below(random, NAMES + 1);
        c->dest = (uint32_t)random_below(random, 2);
        if (c->name == NAMES)
            c->name = LP_NAME_BEGIN;
        c->fill_bits = 0;
        if (c->name == LP_NAME_BEGIN || random_below(random, 5) == 0) {
            c->fill_bits = (uint64_t)random_below(random, 2);
            c->map = fill_map(at, run, times, step);
        } else {
            c->map = byte_map(random_below(random, 9), at, run, times, random_below(random, 9), step);
        }
    }
}

static void free_program(program *p)
{
    for (int i = 0; i < p->count; i++)
        lp_map_free(p->item[i].map, NULL);
}

static lp_trace *run_program(const program *p)
{
    lp_trace *t = small_trace(NAMES, 100, NULL);
    const int64_t bytes = BYTES, stride = 1;
    for (int d = 0; d < 2; d++) {
        const lp_destination dest = {.name = d ? "d1" : "d0",
                                     .dtype = LP_U8,
                                     .ndim = 1,
                                     .shape = &bytes,
                                     .stride = &stride,
                                     .storage = "s",
                                     .storage_bytes = BYTES + SHIFT,
                                     .offset = d * SHIFT,
                                     .flags = LP_DEST_TIED};
        assert_ok(lp_trace_add_destination(t, &dest, NULL, ERR));
    }
    for (int i = 0; i < p->count; i++) {
        const call *c = &p->item[i];
        assert_ok(lp_trace_add_record(
            t,
            &(lp_record){
                .name = c->name, .dest = c->dest, .map = c->map, .fill_bits = c->fill_bits, .provenance = LP_NONE},
            ERR));
    }
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

static bool share_bytes(const call *a, const call *b)
{
    const lp_map *both;
    const int64_t shift = ((int64_t)b->dest - (int64_t)a->dest) * SHIFT;
    assert_ok(lp_map_intersect(&both, a->map, b->map, shift, NULL, ERR));
    const bool any = both->nbox > 0;
    lp_map_free(both, NULL);
    return any;
}

/* ---- the oracle: what each name (the last one is begin) last did to each byte, through each destination ---- */

typedef struct deed {
    int time; /* 0: nothing; of records: seq + 1 */
    int64_t src;
} deed;

typedef struct picture {
    deed byte[NAMES + 1][2][BYTES + SHIFT];
} picture;

typedef struct brush {
    deed *byte; /* of one name and destination, from the destination's first byte */
    int time;
    bool is_fill, once;
    uint64_t fill_bits;
    int64_t src_off, dst_off;
} brush;

static int paint_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const brush *b = context;
    for (int64_t i = 0; i < count; i++) {
        deed *d = &b->byte[b->dst_off + dst_off + i];
        if (b->once)
            assert_int_equal(d->time, 0);
        *d = (deed){b->time, b->is_fill ? -1 - (int64_t)b->fill_bits : b->src_off + src_off + i};
    }
    return 0;
}

static deed *canvas(picture *p, uint32_t name, uint32_t dest)
{
    return &p->byte[name == LP_NAME_BEGIN ? NAMES : name][dest][dest * SHIFT];
}

static void paint_calls(picture *p, const program *calls)
{
    for (int i = 0; i < calls->count; i++) {
        const call *c = &calls->item[i];
        brush b = {.byte = canvas(p, c->name, c->dest),
                   .time = i + 1,
                   .is_fill = c->map->src_elem == 0,
                   .fill_bits = c->fill_bits};
        lp_map_walk(c->map, paint_run, &b);
    }
    /* begin keeps what nothing else writes, and of two begin fills the later one */
    for (int s = 0; s < BYTES + SHIFT; s++) {
        deed *fill[] = {&p->byte[NAMES][0][s], &p->byte[NAMES][1][s]};
        for (int name = 0; name < NAMES; name++)
            for (int d = 0; d < 2; d++)
                if (p->byte[name][d][s].time > 0)
                    fill[0]->time = fill[1]->time = 0;
        if (fill[0]->time > 0 && fill[1]->time > 0)
            fill[fill[0]->time > fill[1]->time]->time = 0;
    }
}

static void paint_rows(picture *p, const lp_rows *rows)
{
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        brush b = {.byte = canvas(p, r->name, r->dest),
                   .time = (int)r->seq + 1,
                   .is_fill = r->kind == LP_KIND_FILL,
                   .once = true,
                   .fill_bits = r->fill_bits,
                   .src_off = r->src_off,
                   .dst_off = r->dst_off};
        lp_map_walk(r->map, paint_run, &b);
    }
}

static void compare_pictures(const picture *calls, const picture *rows)
{
    for (int s = 0; s < BYTES + SHIFT; s++)
        for (int x = 0; x < (NAMES + 1) * 2; x++) {
            const deed *c = &calls->byte[x / 2][x % 2][s], *r = &rows->byte[x / 2][x % 2][s];
            assert_int_equal(c->time > 0, r->time > 0);
            if (c->time == 0)
                continue;
            assert_int_equal(c->src, r->src);
            for (int y = 0; y < NAMES * 2 && x < NAMES * 2; y++) {
                const deed *later = &calls->byte[y / 2][y % 2][s];
                if (later->time <= c->time || (x / 2 == y / 2 && later->src == c->src))
                    continue; /* not later, or one name that puts the same byte there */
                assert_true(r->time > 1);
                assert_true(rows->byte[y / 2][y % 2][s].time > r->time);
            }
        }
}

/* ---- variations that mean nothing ---- */

static void commute(program *p, uint64_t *random)
{
    for (int step = 0; step < 30; step++) {
        const int i = (int)random_below(random, p->count - 1);
        if (share_bytes(&p->item[i], &p->item[i + 1]))
            continue;
        const call c = p->item[i];
        p->item[i] = p->item[i + 1];
        p->item[i + 1] = c;
    }
}

/* Cuts some calls in two, at a place in the destination. */
static void cut(program *p, uint64_t *random)
{
    program out = {0};
    for (int i = 0; i < p->count; i++) {
        const call *c = &p->item[i];
        const int64_t at = random_below(random, BYTES + 1);
        const lp_map *low = NULL, *high = NULL, *area = at == 0 ? NULL : fill_map(0, at, 1, 0);
        if (area != NULL && random_below(random, 2)) {
            assert_ok(lp_map_intersect(&low, c->map, area, 0, NULL, ERR));
            assert_ok(lp_map_subtract(&high, c->map, area, 0, NULL, ERR));
            out.item[out.count] = out.item[out.count + 1] = *c;
            out.item[out.count++].map = low;
            out.item[out.count++].map = high;
            lp_map_free(c->map, NULL);
        } else {
            out.item[out.count++] = *c;
        }
        lp_map_free(area, NULL);
    }
    *p = out;
}

/* Whether some name does one thing to one destination in several records: its calls were ordered one by one. */
static bool was_split(const lp_rows *rows)
{
    for (uint32_t i = 1; i < rows->nrecord; i++) {
        const lp_record *a = &rows->record[i];
        for (uint32_t j = 0; j < i; j++) {
            const lp_record *b = &rows->record[j];
            if (a->name == b->name && a->dest == b->dest && a->map->src_elem == b->map->src_elem &&
                a->fill_bits == b->fill_bits)
                return true;
        }
    }
    return false;
}

static void what_means_nothing_changes_nothing(void **state)
{
    (void)state;
    const uint64_t base = random_first_seed(20261130);
    const int64_t count = (int64_t)random_cases(2500);
    int64_t ordered = 0, split = 0;
    for (int64_t round = 0; round < count; round++) {
        uint64_t random = running_seed = base + (uint64_t)round;
        program p;
        random_program(&p, &random);
        lp_trace *t = run_program(&p), *other;
        const lp_rows *rows, *other_rows;
        picture calls = {0}, records = {0};
        assert_ok(lp_trace_rows(t, 0, &rows, ERR));
        paint_calls(&calls, &p);
        paint_rows(&records, rows);
        compare_pictures(&calls, &records);
        for (uint32_t i = 0; i < rows->nrecord; i++)
            if (rows->record[i].seq > 0) {
                ordered++;
                break;
            }

        commute(&p, &random);
        other = run_program(&p);
        assert_ok(lp_trace_rows(other, 0, &other_rows, ERR));
        assert_memory_equal(rows->digest, other_rows->digest, 32);
        lp_trace_close(other);

        cut(&p, &random);
        commute(&p, &random);
        other = run_program(&p);
        assert_ok(lp_trace_rows(other, 0, &other_rows, ERR));
        if (was_split(rows) || was_split(other_rows)) {
            picture again = {0}; /* calls in place of whole writes: then cuts may show, but not in what bytes get */
            paint_rows(&again, other_rows);
            compare_pictures(&calls, &again);
            split++;
        } else {
            assert_memory_equal(rows->digest, other_rows->digest, 32);
        }
        lp_trace_close(other);
        lp_trace_close(t);
        free_program(&p);
    }
    running_seed = 0;
    if (count >= 1000) { /* the generator reaches what is to be tested */
        assert_true(ordered > count / 4);
        assert_true(split > count / 100 && split < count * 3 / 4);
    }
}

/* A circle of whole names: no two of them alternate, but all three together do. */
static void a_circle_of_names_is_taken_apart(void **state)
{
    (void)state;
    lp_trace *t = small_trace(3, 100, NULL);
    const uint32_t d = add_dest(t, "d", 60);
    add_copy(t, "n0", d, 0, 0, 10);
    add_copy(t, "n1", d, 0, 5, 10); /* n0 before n1 */
    add_copy(t, "n1", d, 0, 20, 10);
    add_copy(t, "n2", d, 0, 25, 10); /* n1 before n2 */
    add_copy(t, "n2", d, 0, 40, 10);
    add_copy(t, "n0", d, 0, 45, 10); /* n2 before n0 */
    const lp_rows *rows = sealed_rows(t);
    const struct {
        uint32_t name;
        int64_t dst_off, bytes;
        uint32_t seq;
    } expected[] = {{0, 0, 10, 1}, {0, 45, 10, 2}, {1, 5, 10, 2}, {1, 20, 10, 1}, {2, 25, 10, 2}, {2, 40, 10, 1}};
    assert_int_equal(rows->nrecord, 6);
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        assert_int_equal(rows->record[i].name, expected[i].name);
        assert_int_equal(rows->record[i].dst_off, expected[i].dst_off);
        assert_int_equal(rows->record[i].map->dst_bytes, expected[i].bytes);
        assert_int_equal(rows->record[i].seq, expected[i].seq);
    }
    lp_trace_close(t);
}

static void an_unrelated_call_between_does_not_show(void **state)
{
    (void)state;
    uint8_t digest[3][32];
    for (int i = 0; i < 3; i++) {
        lp_trace *t = small_trace(2, 100, NULL);
        const uint32_t d = add_dest(t, "d", 60);
        if (i == 0)
            add_copy(t, "n0", d, 20, 20, 10);
        add_copy(t, "n0", d, 0, 0, 10);
        if (i == 1)
            add_copy(t, "n0", d, 20, 20, 10);
        add_copy(t, "n1", d, 0, 5, 10);
        if (i == 2)
            add_copy(t, "n0", d, 20, 20, 10); /* after n1, but far from it */
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nrecord, 2);
        assert_int_equal(rows->record[0].seq, 1);
        assert_int_equal(rows->record[0].map->dst_bytes, 20);
        assert_int_equal(rows->record[1].seq, 2);
        memcpy(digest[i], rows->digest, 32);
        lp_trace_close(t);
    }
    assert_memory_equal(digest[0], digest[1], 32);
    assert_memory_equal(digest[0], digest[2], 32);
}

/* More names on one place than pairs are listed: the order of all is kept. */
static void very_many_overlaps_keep_their_order(void **state)
{
    (void)state;
    enum { COUNT = 600 };
    lp_trace *t = small_trace(COUNT, 10, NULL);
    const uint32_t d = add_dest(t, "d", 10);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i * 7 % COUNT);
        add_copy(t, name, d, 0, 0, 10);
    }
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, COUNT);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i * 7 % COUNT);
        assert_int_equal(rows->record[name_index(t, name)].seq, i + 1);
    }
    lp_trace_close(t);
}

static void casts_are_merged_and_trimmed_by_elements(void **state)
{
    (void)state;
    uint8_t digest[2][32];
    for (int cut_it = 0; cut_it < 2; cut_it++) {
        lp_trace *t = small_trace(1, 100, NULL);
        const uint32_t d = add_dest(t, "d", 64);
        for (int64_t at = 0; at < 16; at += cut_it ? 4 : 16) { /* 16 elements of BF16 to F32 */
            const lp_box box = {.src_off = 2 * at, .dst_off = 4 * at, .run = cut_it ? 4 : 16};
            const lp_map *map;
            assert_ok(lp_map_from_boxes(&map, 2, 4, 1, &box, NULL, ERR));
            assert_ok(lp_trace_add_record(
                t,
                &(lp_record){.dest = d, .src_dtype = LP_BF16, .dst_dtype = LP_F32, .map = map, .provenance = LP_NONE},
                ERR));
            lp_map_free(map, NULL);
        }
        add_copy(t, "n0", d, 0, 8, 8); /* raw bytes over elements 2 and 3 */
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nrecord, 2);
        assert_int_equal(rows->record[0].kind, LP_KIND_CAST);
        assert_int_equal(rows->record[0].map->dst_bytes, 56);
        assert_int_equal(rows->record[1].kind, LP_KIND_COPY);
        memcpy(digest[cut_it], rows->digest, 32);
        lp_trace_close(t);
    }
    assert_memory_equal(digest[0], digest[1], 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_means_nothing_changes_nothing, name_the_seed),
        cmocka_unit_test(a_circle_of_names_is_taken_apart),
        cmocka_unit_test(an_unrelated_call_between_does_not_show),
        cmocka_unit_test(very_many_overlaps_keep_their_order),
        cmocka_unit_test(casts_are_merged_and_trimmed_by_elements),
    };
    return cmocka_run_group_tests_name("order of writes", tests, NULL, NULL);
}
