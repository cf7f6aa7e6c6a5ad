/* SPDX-License-Identifier: Apache-2.0 */
/* The trace builder: canonical rows, however a loader orders and cuts its calls. */
#include "model_testing.h"

/* ---- records ---- */

static void offsets_are_split_from_a_shared_map(void **state)
{
    (void)state;
    lp_trace *t = small_trace(3, 100, NULL);
    const uint32_t d = add_dest(t, "d", 100);
    for (int64_t e = 0; e < 3; e++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", (int)e);
        const lp_map *map = byte_map(5, 7 + 30 * e, 2, 4, 10, 5); /* 4 runs of 2 bytes */
        assert_ok(lp_trace_add_record(
            t, &(lp_record){.name = name_index(t, name), .dest = d, .map = map, .provenance = LP_NONE}, ERR));
        lp_map_free(map, NULL);
    }
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 3);
    for (uint32_t e = 0; e < 3; e++) {
        const lp_record *r = &rows->record[e];
        assert_ptr_equal(r->map, rows->record[0].map);
        assert_int_equal(r->name, e);
        assert_int_equal(r->src_off, 5);
        assert_int_equal(r->dst_off, 7 + 30 * e);
        assert_int_equal(r->kind, LP_KIND_COPY);
        assert_int_equal(r->seq, 0);
    }
    const lp_map *map = rows->record[0].map;
    assert_int_equal(map->nbox, 1);
    assert_int_equal(map->box[0].src_off, 0);
    assert_int_equal(map->box[0].dst_off, 0);
    assert_int_equal(map->dst_hi, 17);
    assert_int_equal(map->src_hi, 32);
    assert_int_equal(map->dst_bytes, 8);
    lp_trace_close(t);
}

static void maps_of_several_boxes_are_shared_too(void **state)
{
    (void)state;
    lp_trace *t = small_trace(5, 100, NULL);
    const uint32_t d = add_dest(t, "d", 100);
    for (int64_t e = 0; e < 5; e++) { /* n4 differs from the others in one source offset */
        const lp_mode backwards = {3, -2, 1};
        const lp_box box[] = {{.src_off = 9 + e, .dst_off = 20 * e, .run = 1, .rank = 1, .mode = &backwards},
                              {.src_off = 50 + e + (e == 4), .dst_off = 20 * e + 5, .run = 3}};
        const lp_map *map;
        assert_ok(lp_map_from_boxes(&map, 1, 1, 2, box, NULL, ERR));
        char name[8];
        snprintf(name, sizeof name, "n%d", (int)e);
        assert_ok(lp_trace_add_record(
            t, &(lp_record){.name = name_index(t, name), .dest = d, .map = map, .provenance = LP_NONE}, ERR));
        lp_map_free(map, NULL);
    }
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(t->shared->maps.count, 2);
    for (uint32_t e = 0; e < 5; e++) {
        const lp_record *r = &rows->record[e];
        assert_ptr_equal(r->map, rows->record[e == 4 ? 4 : 0].map);
        assert_int_equal(r->src_off, 9 + e);
        assert_int_equal(r->dst_off, 20 * e);
        assert_int_equal(r->map->src_lo, -4);
        assert_int_equal(r->map->dst_hi, 8);
        assert_int_equal(r->map->box[1].src_off, e == 4 ? 42 : 41);
    }
    lp_trace_close(t);
}

static void rows_are_sorted(void **state)
{
    (void)state;
    lp_trace *t = small_trace(12, 10, NULL);
    const uint32_t z = add_dest(t, "z", 20), a = add_dest(t, "a", 20);
    add_copy(t, "n9", z, 0, 10, 10);
    add_copy(t, "n10", a, 0, 0, 10);
    add_copy(t, "n10", z, 0, 0, 10);
    const lp_rows *rows = sealed_rows(t);
    assert_string_equal(rows->dest[0].name, "a");
    assert_string_equal(rows->dest[1].name, "z");
    assert_string_equal(rows->dest[1].storage, "z");
    assert_int_equal(rows->nrecord, 3);
    /* n10 comes before n9 in the order of bytes */
    assert_int_equal(rows->record[0].name, name_index(t, "n10"));
    assert_int_equal(rows->record[0].dest, 0);
    assert_int_equal(rows->record[1].dest, 1);
    assert_int_equal(rows->record[2].name, name_index(t, "n9"));
    lp_trace_close(t);
}

static void a_copy_is_one_record_however_it_is_cut(void **state)
{
    (void)state;
    uint8_t expected[32] = {0};
    uint64_t random = 1;
    for (int round = 0; round < 50; round++) {
        lp_trace *t = small_trace(2, 64, NULL);
        const uint32_t d = add_dest(t, "d", 64);
        bool done[64] = {false};
        int64_t left = round == 0 ? 0 : 64;
        if (round == 0)
            add_copy(t, "n0", d, 0, 0, 64);
        while (left > 0) { /* runs of random length at random places, until all is written */
            const int64_t at = random_below(&random, 64);
            int64_t n = 0;
            while (at + n < 64 && n < 9 && !done[at + n])
                done[at + n++] = true;
            if (n > 0)
                add_copy(t, "n0", d, at, at, n);
            left -= n;
        }
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nrecord, 1);
        assert_int_equal(rows->record[0].map->dst_bytes, 64);
        assert_int_equal(rows->record[0].map->nbox, 1);
        if (round == 0)
            memcpy(expected, rows->digest, 32);
        assert_memory_equal(rows->digest, expected, 32);
        lp_trace_close(t);
    }
}

static void a_later_write_of_a_name_wins(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 100, NULL);
    const uint32_t d = add_dest(t, "d", 10);
    add_copy(t, "n0", d, 0, 0, 10);
    add_copy(t, "n0", d, 50, 3, 4);
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 1);
    const lp_map *map = rows->record[0].map;
    assert_int_equal(map->nbox, 3);
    assert_int_equal(map->box[1].src_off, 50);
    assert_int_equal(map->box[1].dst_off, 3);
    assert_int_equal(map->box[1].run, 4);
    assert_int_equal(map->box[2].src_off, 7);
    assert_int_equal(rows->record[0].seq, 0);
    lp_trace_close(t);
}

static void a_fill_and_a_copy_of_a_name_trim_each_other(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 100, NULL);
    const uint32_t d = add_dest(t, "d", 10), e = add_dest(t, "e", 10);
    add_fill(t, 0, d, 0, 10, 7); /* zero first, then load the part that is there */
    add_copy(t, "n0", d, 0, 0, 6);
    add_copy(t, "n0", e, 0, 0, 10); /* the other way round */
    add_fill(t, 0, e, 6, 4, 7);
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 4);
    for (uint32_t i = 0; i < 4; i += 2) {
        assert_int_equal(rows->record[i].kind, LP_KIND_COPY);
        assert_int_equal(rows->record[i].dst_off, 0);
        assert_int_equal(rows->record[i].map->dst_bytes, 6);
        assert_int_equal(rows->record[i + 1].kind, LP_KIND_FILL);
        assert_int_equal(rows->record[i + 1].dst_off, 6);
        assert_int_equal(rows->record[i + 1].map->dst_bytes, 4);
        assert_int_equal(rows->record[i + 1].fill_bits, 7);
    }
    lp_trace_close(t);
}

static void begin_fills_give_way_to_everything(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        lp_trace *t = small_trace(2, 100, NULL);
        const uint32_t d = add_dest(t, "d", 10);
        if (!late)
            add_fill(t, LP_NAME_BEGIN, d, 0, 10, 0);
        add_copy(t, "n0", d, 0, 2, 3);
        add_copy(t, "n1", d, 0, 5, 3);
        if (late)
            add_fill(t, LP_NAME_BEGIN, d, 0, 10, 0);
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nrecord, 3);
        assert_int_equal(rows->record[2].name, LP_NAME_BEGIN);
        assert_int_equal(rows->record[2].dst_off, 0);
        assert_int_equal(rows->record[2].map->nbox, 1); /* bytes 0, 1 and 8, 9: two runs at one step */
        assert_int_equal(rows->record[2].map->box[0].run, 2);
        assert_int_equal(rows->record[2].map->box[0].mode[0].dst_stride, 8);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(rows->record[i].seq, 0);
        lp_trace_close(t);
    }
}

static void only_overlaps_between_names_get_a_seq(void **state)
{
    (void)state;
    lp_trace *t = small_trace(4, 100, NULL);
    const uint32_t d = add_dest(t, "d", 40);
    add_copy(t, "n3", d, 0, 0, 10);
    add_copy(t, "n2", d, 0, 30, 10); /* alone */
    add_copy(t, "n1", d, 0, 9, 10);  /* over n3 */
    add_copy(t, "n0", d, 0, 18, 10); /* over n1 only */
    const lp_rows *rows = sealed_rows(t);
    const uint32_t expected[] = {3, 2, 0, 1};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rows->record[i].seq, expected[i]);
    lp_trace_close(t);
}

static void calls_on_both_sides_of_an_overlap_stay_apart(void **state)
{
    (void)state;
    lp_trace *t = small_trace(2, 100, NULL);
    const uint32_t d = add_dest(t, "d", 40);
    add_copy(t, "n0", d, 0, 0, 10);
    add_copy(t, "n0", d, 30, 30, 10); /* overlaps nothing */
    add_copy(t, "n1", d, 0, 5, 10);   /* over the first call */
    add_copy(t, "n0", d, 50, 12, 6);  /* over n1 */
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 4);
    const struct {
        int64_t dst_off;
        uint32_t seq;
    } expected[] = {{0, 1}, {12, 3}, {30, 0}, {5, 2}};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rows->record[i].dst_off, expected[i].dst_off);
        assert_int_equal(rows->record[i].seq, expected[i].seq);
    }
    lp_trace_close(t);
}

/* ---- shared storages ---- */

static uint32_t add_tied(lp_trace *t, const char *name, int64_t offset)
{
    uint32_t index;
    const int64_t bytes = 10, stride = 1;
    const lp_destination dest = {.name = name,
                                 .dtype = LP_U8,
                                 .ndim = 1,
                                 .shape = &bytes,
                                 .stride = &stride,
                                 .storage = "shared",
                                 .storage_bytes = 20,
                                 .offset = offset,
                                 .flags = LP_DEST_TIED};
    assert_ok(lp_trace_add_destination(t, &dest, &index, ERR));
    return index;
}

static void tied_destinations_are_judged_by_storage(void **state)
{
    (void)state;
    lp_trace *t = small_trace(3, 10, NULL);
    const uint32_t a = add_tied(t, "a", 0), b = add_tied(t, "b", 0), c = add_tied(t, "c", 5);
    add_copy(t, "n0", a, 0, 0, 10); /* tied weights: one name, the same bytes, two destinations */
    add_copy(t, "n0", b, 0, 0, 10);
    add_copy(t, "n1", c, 0, 5, 5); /* bytes 10..15 of the storage: free */
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rows->record[i].seq, 0);
    lp_trace_close(t);

    t = small_trace(3, 10, NULL);
    const uint32_t d = add_tied(t, "a", 0), e = add_tied(t, "b", 5);
    add_copy(t, "n1", d, 0, 0, 10);
    add_copy(t, "n0", e, 0, 0, 10); /* bytes 5..15: over n1 */
    rows = sealed_rows(t);
    assert_int_equal(rows->record[0].seq, 2);
    assert_int_equal(rows->record[1].seq, 1);
    lp_trace_close(t);

    t = small_trace(3, 10, NULL);
    const uint32_t f = add_tied(t, "a", 0), g = add_tied(t, "b", 0);
    add_copy(t, "n0", f, 0, 0, 5);
    add_copy(t, "n0", g, 5, 0, 5); /* one name, other bytes: the order decides */
    rows = sealed_rows(t);
    assert_int_equal(rows->record[0].seq, 1);
    assert_int_equal(rows->record[1].seq, 2);
    lp_trace_close(t);
}

static void two_sizes_of_one_storage_are_refused(void **state)
{
    (void)state;
    lp_error err;
    lp_trace *t = small_trace(1, 10, NULL);
    add_tied(t, "a", 0);
    const int64_t bytes = 10, stride = 1;
    const lp_destination dest = {.name = "b",
                                 .dtype = LP_U8,
                                 .ndim = 1,
                                 .shape = &bytes,
                                 .stride = &stride,
                                 .storage = "shared",
                                 .storage_bytes = 21};
    assert_ok(lp_trace_add_destination(t, &dest, NULL, ERR));
    assert_int_equal(lp_trace_seal(t, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "destinations 'a' and 'b' give storage 'shared' two sizes");
    assert_int_equal(lp_trace_seal(t, &err), LP_E_MISUSE);
    lp_trace_close(t);
}

/* ---- refusals ---- */

static void a_refused_name_keeps_no_record(void **state)
{
    (void)state;
    lp_trace *t = small_trace(2, 100, NULL);
    const uint32_t d = add_dest(t, "d", 20);
    add_copy(t, "n0", d, 0, 0, 4);
    add_copy(t, "n0", d, 10, 4, 4);
    add_fill(t, 0, d, 8, 4, 1);
    add_copy(t, "n1", d, 0, 0, 12); /* would be an overlap, but n0 writes nothing */
    assert_ok(lp_trace_add_refusal(t,
                                   &(lp_refusal){.name = 0,
                                                 .dest = LP_NONE,
                                                 .operation = "aten.max",
                                                 .reason = "reads a value on the host",
                                                 .provenance = LP_NONE},
                                   ERR));
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 1);
    assert_int_equal(rows->record[0].name, 1);
    assert_int_equal(rows->record[0].seq, 0);
    /* the regions stay known: 8 bytes of the copies, 4 of the fill, and the refusal itself without a region */
    assert_int_equal(rows->nrefusal, 3);
    assert_int_equal(rows->refusal[0].dest, 0);
    assert_int_equal(rows->refusal[0].map->dst_lo, 0);
    assert_int_equal(rows->refusal[0].map->dst_bytes, 8);
    assert_int_equal(rows->refusal[0].map->src_elem, 0);
    assert_string_equal(rows->refusal[0].operation, "aten.max");
    assert_int_equal(rows->refusal[1].map->dst_lo, 8);
    assert_int_equal(rows->refusal[1].map->dst_bytes, 4);
    assert_int_equal(rows->refusal[2].dest, LP_NONE);
    lp_trace_close(t);
}

/* dest[0..3] = max of two staged names, as F32 */
static void add_staged_derive(lp_trace *t, uint32_t dest, int64_t dst_off, const char *a, const char *b)
{
    const lp_map *in = byte_map(0, 0, 4, 1, 0, 0), *out = byte_map(0, dst_off, 4, 1, 0, 0);
    const lp_derive_input input[] = {
        {.staged = true, .index = name_index(t, a), .dtype = LP_F32, .count = 1, .map = in},
        {.staged = true, .index = name_index(t, b), .dtype = LP_F32, .count = 1, .map = in}};
    const lp_node node[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .arg = {0}, .count = 1},
                            {.op = LP_OP_INPUT, .dtype = LP_F32, .arg = {1}, .count = 1},
                            {.op = LP_OP_MAXIMUM, .dtype = LP_F32, .arg = {0, 1}, .count = 1}};
    const lp_derive derive = {.dest = dest,
                              .nnode = 3,
                              .ninput = 2,
                              .node = node,
                              .input = input,
                              .map = out,
                              .error_text = "",
                              .provenance = LP_NONE};
    assert_ok(lp_trace_add_derive(t, &derive, ERR));
    lp_map_free(in, NULL);
    lp_map_free(out, NULL);
}

static void a_derive_of_a_refused_name_takes_its_other_names_along(void **state)
{
    (void)state;
    lp_trace *t = small_trace(6, 4, NULL);
    const uint32_t d = add_dest(t, "d", 16);
    add_staged_derive(t, d, 0, "n0", "n1");
    add_staged_derive(t, d, 4, "n1", "n2"); /* a chain: n0 refuses n1, n1 refuses n2 */
    add_staged_derive(t, d, 8, "n3", "n4"); /* stays */
    add_copy(t, "n2", d, 0, 12, 4);
    assert_ok(lp_trace_add_refusal(
        t, &(lp_refusal){.name = 0, .dest = LP_NONE, .operation = "aten.item", .reason = "why", .provenance = LP_NONE},
        ERR));
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nderive, 1);
    assert_int_equal(rows->nrecord, 0);
    const struct {
        uint32_t name, dest;
        int64_t lo;
        const char *operation, *reason;
    } expected[] = {{0, 0, 0, "aten.item", "why"},
                    {0, LP_NONE, -1, "aten.item", "why"},
                    {1, 0, 0, "derive", "a derive reads it together with 'n0', a fallback"},
                    {1, 0, 4, "derive", "a derive reads it together with 'n0', a fallback"},
                    {2, 0, 4, "derive", "a derive reads it together with 'n1', a fallback"},
                    {2, 0, 12, "derive", "a derive reads it together with 'n1', a fallback"}};
    assert_int_equal(rows->nrefusal, sizeof expected / sizeof *expected);
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        assert_int_equal(rows->refusal[i].name, expected[i].name);
        assert_int_equal(rows->refusal[i].dest, expected[i].dest);
        assert_int_equal(rows->refusal[i].map != NULL ? rows->refusal[i].map->dst_lo : -1, expected[i].lo);
        assert_string_equal(rows->refusal[i].operation, expected[i].operation);
        assert_string_equal(rows->refusal[i].reason, expected[i].reason);
    }
    lp_trace_close(t);
}

static void derives_are_sorted_and_equal_ones_are_one(void **state)
{
    (void)state;
    uint8_t digest[2][32];
    for (int order = 0; order < 2; order++) {
        lp_trace *t = small_trace(4, 4, NULL);
        const uint32_t b = add_dest(t, "b", 8), a = add_dest(t, "a", 8);
        add_staged_derive(t, order ? a : b, 0, "n0", "n1");
        add_staged_derive(t, order ? b : a, 0, "n0", "n1");
        add_staged_derive(t, b, 4, order ? "n2" : "n3", "n1");
        add_staged_derive(t, b, 4, order ? "n3" : "n2", "n1");
        add_staged_derive(t, b, 4, "n2", "n1"); /* again */
        const lp_rows *rows = sealed_rows(t);
        assert_int_equal(rows->nderive, 4);
        assert_int_equal(rows->derive[0].dest, 0);
        assert_int_equal(rows->derive[1].dest, 1);
        memcpy(digest[order], rows->digest, 32);
        lp_trace_close(t);
    }
    assert_memory_equal(digest[0], digest[1], 32);
}

/* ---- random traces against an oracle that looks at every byte ---- */

enum { BYTES = 48, NAMES = 5, CALLS_MAX = 12 };

typedef struct byte_state { /* what one name last did to one destination byte */
    int time;               /* 0: nothing */
    int64_t src;            /* source byte, or -1 - value of a fill */
} byte_state;

typedef struct oracle {
    byte_state byte[NAMES + 1][BYTES]; /* the last one is begin */
} oracle;

typedef struct seen {
    byte_state (*byte)[BYTES]; /* time is the record's seq + 1 */
    const lp_record *record;
    uint32_t name;
} seen;

static int see_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const seen *s = context;
    for (int64_t i = 0; i < count; i++) {
        byte_state *byte = &s->byte[s->name][s->record->dst_off + dst_off + i];
        assert_int_equal(byte->time, 0); /* records of one name never overlap */
        byte->time = (int)s->record->seq + 1;
        byte->src = s->record->kind == LP_KIND_FILL ? -1 - (int64_t)s->record->fill_bits
                                                    : s->record->src_off + src_off + i * s->record->map->src_elem;
    }
    return 0;
}

static void random_call(lp_trace *t, uint64_t *random, uint32_t dest, int time, oracle *o)
{
    const uint32_t name = (uint32_t)random_below(random, NAMES + 1);
    const int64_t run = 1 + random_below(random, 4), times = 1 + random_below(random, 4);
    const int64_t dst_step = run + random_below(random, 6), src_step = random_below(random, 12);
    const int64_t span = (times - 1) * dst_step + run;
    const int64_t dst_off = random_below(random, BYTES - span + 1), src_off = random_below(random, 50);
    const bool is_fill = name == NAMES || random_below(random, 4) == 0;
    const uint64_t value = (uint64_t)random_below(random, 2);
    const lp_map *map =
        is_fill ? fill_map(dst_off, run, times, dst_step) : byte_map(src_off, dst_off, run, times, src_step, dst_step);
    assert_ok(lp_trace_add_record(t,
                                  &(lp_record){.name = name == NAMES ? LP_NAME_BEGIN : name,
                                               .dest = dest,
                                               .map = map,
                                               .fill_bits = is_fill ? value : 0,
                                               .provenance = LP_NONE},
                                  ERR));
    lp_map_free(map, NULL);
    for (int64_t k = 0; k < times; k++)
        for (int64_t i = 0; i < run; i++)
            o->byte[name][dst_off + k * dst_step + i] =
                (byte_state){time, is_fill ? -1 - (int64_t)value : src_off + k * src_step + i};
}

/* Begin fills hold only bytes that nothing else writes. */
static void trim_begin(oracle *o)
{
    for (int name = 0; name < NAMES; name++)
        for (int b = 0; b < BYTES; b++)
            if (o->byte[name][b].time > 0)
                o->byte[NAMES][b].time = 0;
}

static void compare_with_oracle(const lp_rows *rows, const oracle *o)
{
    byte_state byte[NAMES + 1][BYTES] = {0};
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const uint32_t name = rows->record[i].name == LP_NAME_BEGIN ? NAMES : rows->record[i].name;
        seen s = {byte, &rows->record[i], name};
        lp_map_walk(rows->record[i].map, see_run, &s);
    }
    for (int name = 0; name <= NAMES; name++)
        for (int b = 0; b < BYTES; b++) {
            assert_int_equal(byte[name][b].time > 0, o->byte[name][b].time > 0);
            if (byte[name][b].time > 0)
                assert_int_equal(byte[name][b].src, o->byte[name][b].src);
        }
    for (int x = 0; x < NAMES; x++)
        for (int y = 0; y < NAMES; y++)
            for (int b = 0; b < BYTES && x != y; b++)
                if (o->byte[x][b].time > 0 && o->byte[y][b].time > o->byte[x][b].time) {
                    assert_true(byte[x][b].time > 1); /* seq of at least 1 */
                    assert_true(byte[y][b].time > byte[x][b].time);
                }
}

/* A record with a seq shares a byte with another name. */
static void seq_is_needed(const lp_rows *rows)
{
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        bool found = rows->record[i].seq == 0;
        for (uint32_t j = 0; j < rows->nrecord && !found; j++) {
            const lp_map *both;
            if (rows->record[i].name == rows->record[j].name)
                continue;
            assert_ok(lp_map_intersect(&both, rows->record[i].map, rows->record[j].map,
                                       rows->record[j].dst_off - rows->record[i].dst_off, NULL, ERR));
            found = both->nbox > 0;
            lp_map_free(both, NULL);
        }
        assert_true(found);
    }
}

static uint64_t running_seed; /* 0: no round is running */

static int name_the_seed(void **state)
{
    (void)state;
    if (running_seed != 0)
        print_message("failed with LOADPLAN_SEED=%llu LOADPLAN_ROUNDS=1\n", (unsigned long long)running_seed);
    return 0;
}

static void random_traces_agree_with_the_oracle(void **state)
{
    (void)state;
    const char *seed = getenv("LOADPLAN_SEED"), *rounds = getenv("LOADPLAN_ROUNDS");
    const uint64_t base = seed != NULL ? strtoull(seed, NULL, 10) : 20261130;
    const int64_t count = rounds != NULL ? strtoll(rounds, NULL, 10) : 4000;
    for (int64_t round = 0; round < count; round++) {
        uint64_t random = running_seed = base + (uint64_t)round;
        oracle o = {0};
        lp_trace *t = small_trace(NAMES, 100, NULL);
        const uint32_t d = add_dest(t, "d", BYTES);
        const int calls = 1 + (int)random_below(&random, CALLS_MAX);
        for (int call = 0; call < calls; call++)
            random_call(t, &random, d, call + 1, &o);
        trim_begin(&o);
        const lp_rows *rows = sealed_rows(t);
        compare_with_oracle(rows, &o);
        seq_is_needed(rows);
        assert_ok(lp_rows_check(t, rows, ERR));
        lp_trace_close(t);
    }
    running_seed = 0;
}

/* ---- life ---- */

static void calls_out_of_order_are_misuse(void **state)
{
    (void)state;
    lp_error err;
    lp_checkpoint *c = small_checkpoint(1, 10);
    lp_trace *t;
    const lp_rows *rows;
    uint8_t digest[32];
    assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.layout = {.tp = 2}}, NULL, ERR));
    assert_string_equal(lp_trace_header_of(t)->loader, "");
    assert_int_equal(lp_trace_header_of(t)->layout.dp, 1);
    assert_int_equal(lp_trace_add_refusal(t, &(lp_refusal){.dest = LP_NONE}, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_rows(t, 0, &rows, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_set_digest(t, digest, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_begin_scope(t, &(lp_scope){.tp = 4}, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "the scope's sizes pp 1, dp 1, tp 4 are not the trace's pp 1, dp 1, tp 2");
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = 1}, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = 0}, ERR));
    assert_ok(lp_trace_seal(t, ERR));
    assert_int_equal(lp_trace_seal(t, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_begin_scope(t, &(lp_scope){.tp = 2}, &err), LP_E_MISUSE);
    assert_int_equal(lp_trace_scope_count(t), 2);
    assert_int_equal(lp_trace_scope_at(t, 0)->tp_rank, 0); /* by rank, not by call */
    assert_int_equal(lp_trace_scope_find(t, 1), 1);
    assert_int_equal(lp_trace_scope_find(t, 2), -1);
    assert_null(lp_trace_scope_at(t, 2));
    assert_int_equal(lp_trace_rows(t, 2, &rows, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_trace_release_rows(t, 0), LP_OK);
    assert_ok(lp_trace_rows(t, 0, &rows, ERR)); /* a built trace keeps its rows */
    lp_trace_close(t);

    assert_ok(lp_trace_new(&t, c, NULL, NULL, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    assert_int_equal(lp_trace_seal(t, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "rank 0 was recorded twice");
    lp_trace_close(t);
    lp_checkpoint_close(c);
    lp_trace_close(NULL);
}

static void equal_provenance_is_stored_once(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 10, NULL);
    uint32_t index[300], again;
    for (int i = 0; i < 300; i++)
        assert_ok(lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.py", .line = i}, &index[i], ERR));
    assert_ok(lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.py", .line = 7, .chain = ""}, &again, ERR));
    assert_int_equal(again, index[7]);
    assert_ok(
        lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.py", .line = 7, .chain = "t()"}, &again, ERR));
    assert_int_equal(again, 300);
    assert_string_equal(lp_trace_provenance(t, index[7])->file, "loader.py");
    assert_int_equal(lp_trace_provenance(t, index[7])->line, 7);
    assert_null(lp_trace_provenance(t, LP_NONE));
    lp_error err;
    const lp_provenance bad[] = {{.file = "l\xf6"
                                          "ader.py",
                                  .line = 1},
                                 {.file = "a", .line = 1, .chain = "t(\xff)"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* a file could be written, but not be read */
        assert_int_equal(lp_trace_add_provenance(t, &bad[i], &again, &err), LP_E_ARGUMENT);
        assert_string_equal(err.text, "the place of an operation, or its chain, is not UTF-8");
    }
    lp_trace_close(t);
}

static void the_catalogue_is_copied_without_local_paths(void **state)
{
    (void)state;
    lp_checkpoint *c;
    lp_trace *t;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    assert_ok(lp_checkpoint_add_file(
        c, &(lp_checkpoint_file){.path = "/home/me/model/a.safetensors", .size_bytes = 500, .mtime_ns = 9, .inode = 8},
        ERR));
    assert_ok(lp_checkpoint_add_file(c, &(lp_checkpoint_file){.path = "/home/me/model/l\xf6we.safetensors"}, ERR));
    const int64_t shape[] = {2, 3};
    assert_ok(lp_checkpoint_add(
        c,
        &(lp_checkpoint_tensor){.name = "w", .dtype = LP_BF16, .ndim = 2, .shape = shape, .file = 0, .file_off = 400},
        ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    assert_ok(lp_trace_new(&t, c, NULL, NULL, ERR));
    lp_checkpoint_close(c);
    const lp_checkpoint *copy = lp_trace_checkpoint(t);
    const lp_checkpoint_file *file = lp_checkpoint_file_at(copy, 0);
    assert_string_equal(file->path, "a.safetensors");
    assert_int_equal(file->size_bytes, 500);
    assert_int_equal(file->mtime_ns, 0);
    assert_int_equal(file->inode, 0);
    assert_string_equal(lp_checkpoint_file_at(copy, 1)->path, "l\\xf6we.safetensors"); /* traces are UTF-8 */
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(copy, lp_checkpoint_find(copy, "w"));
    assert_int_equal(tensor->bytes, 12);
    assert_int_equal(tensor->file_off, 400);
    assert_int_equal(tensor->shape[1], 3);
    lp_trace_close(t);
}

/* Everything that the builder can be asked to keep, with overlaps and refusals. */
static lp_status build_busy_trace(const lp_checkpoint *c, const lp_platform *platform, const lp_map *copy,
                                  const lp_map *fill, const lp_map *gather, bool refuse_both, lp_error *err)
{
    lp_trace *t;
    LP_TRY(lp_trace_new(&t, c, &(lp_trace_header){.loader = "busy"}, platform, err));
    lp_status status = LP_OK;
    const int64_t bytes = 64, stride = 1;
    uint32_t d, place;
    const lp_destination dest = {
        .name = "d", .dtype = LP_U8, .ndim = 1, .shape = &bytes, .stride = &stride, .storage_bytes = 64};
    LP_TRY_GOTO(lp_trace_begin_scope(t, &(lp_scope){0}, err), close_trace);
    LP_TRY_GOTO(lp_trace_add_destination(t, &dest, &d, err), close_trace);
    LP_TRY_GOTO(lp_trace_add_provenance(t, &(lp_provenance){.file = "f", .line = 1}, &place, err), close_trace);
    const lp_map *moved = NULL;
    for (int64_t part = 0; part < 3; part++) { /* names alternate: their calls are taken apart */
        for (uint32_t name = 0; name < 4; name++) {
            LP_TRY_GOTO(lp_map_shift(&moved, copy, part, part * 7 + name * 3, NULL, err), close_trace);
            status =
                lp_trace_add_record(t, &(lp_record){.name = name, .dest = d, .map = moved, .provenance = place}, err);
            lp_map_free(moved, NULL);
            LP_TRY_GOTO(status, close_trace);
        }
    }
    LP_TRY_GOTO(
        lp_trace_add_record(t, &(lp_record){.name = LP_NAME_BEGIN, .dest = d, .map = fill, .provenance = LP_NONE}, err),
        close_trace);
    const lp_derive_input input[] = {{.staged = true, .index = 3, .dtype = LP_U8, .count = 64, .map = gather},
                                     {.staged = true, .index = 0, .dtype = LP_U8, .count = 64, .map = gather}};
    const lp_node node[] = {{.op = LP_OP_INPUT, .dtype = LP_U8, .count = 64}};
    const lp_derive derive = {
        .dest = d, .nnode = 1, .ninput = 1, .node = node, .input = &input[1], .map = gather, .provenance = LP_NONE};
    LP_TRY_GOTO(lp_trace_add_derive(t, &derive, err), close_trace);
    const lp_derive refused = {
        .dest = d, .nnode = 1, .ninput = 2, .node = node, .input = input, .map = gather, .provenance = LP_NONE};
    if (refuse_both)
        LP_TRY_GOTO(lp_trace_add_derive(t, &refused, err), close_trace);
    LP_TRY_GOTO(lp_trace_add_refusal(t, &(lp_refusal){.name = 3, .dest = LP_NONE, .operation = "o"}, err), close_trace);
    status = lp_trace_seal(t, err);

close_trace:
    lp_trace_close(t);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint(4, 100);
    const lp_map *copy = byte_map(0, 0, 5, 3, 9, 6), *fill = fill_map(0, 64, 1, 0),
                 *gather = byte_map(0, 0, 64, 1, 0, 0);
    failing_alloc failing = {0};
    const lp_alloc table = {.size = sizeof table, .context = &failing, .resize = failing_resize};
    const lp_platform platform = {.alloc = &table};
    for (int refuse_both = 0; refuse_both < 2; refuse_both++) {
        int64_t n = 0;
        lp_status status;
        do {
            lp_error err = {0};
            failing = (failing_alloc){.fail_at = ++n};
            status = build_busy_trace(c, &platform, copy, fill, gather, refuse_both, &err);
            assert_int_equal(failing.live, 0);
            if (status != LP_OK) {
                assert_int_equal(status, LP_E_MEMORY);
                assert_int_equal(err.code, LP_E_MEMORY);
            }
        } while (status != LP_OK && n < 10000);
        assert_int_equal(status, LP_OK);
        assert_true(n > 100); /* the loop did inject failures */
    }
    lp_map_free(copy, NULL);
    lp_map_free(fill, NULL);
    lp_map_free(gather, NULL);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_are_split_from_a_shared_map),
        cmocka_unit_test(maps_of_several_boxes_are_shared_too),
        cmocka_unit_test(rows_are_sorted),
        cmocka_unit_test(a_copy_is_one_record_however_it_is_cut),
        cmocka_unit_test(a_later_write_of_a_name_wins),
        cmocka_unit_test(a_fill_and_a_copy_of_a_name_trim_each_other),
        cmocka_unit_test(begin_fills_give_way_to_everything),
        cmocka_unit_test(only_overlaps_between_names_get_a_seq),
        cmocka_unit_test(calls_on_both_sides_of_an_overlap_stay_apart),
        cmocka_unit_test(tied_destinations_are_judged_by_storage),
        cmocka_unit_test(two_sizes_of_one_storage_are_refused),
        cmocka_unit_test(a_refused_name_keeps_no_record),
        cmocka_unit_test(a_derive_of_a_refused_name_takes_its_other_names_along),
        cmocka_unit_test(derives_are_sorted_and_equal_ones_are_one),
        cmocka_unit_test_teardown(random_traces_agree_with_the_oracle, name_the_seed),
        cmocka_unit_test(calls_out_of_order_are_misuse),
        cmocka_unit_test(equal_provenance_is_stored_once),
        cmocka_unit_test(the_catalogue_is_copied_without_local_paths),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("trace model", tests, NULL, NULL);
}
