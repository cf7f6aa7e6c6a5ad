/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verdict of check on random traces against one that looks at every byte: several ranks, tied and untied
 * destinations in one storage, gaps, copies, casts, fills, derives of destinations and of the checkpoint, and refusals.
 * Rules must agree, and for those that speak of one tensor, the tensors too.
 */
#include "check_oracle.h"

enum { RANKS = 3 };

/* ---- random traces ---- */

static const lp_map *strided(int64_t src_elem, int64_t dst_elem, int64_t src_off, int64_t dst_off, int64_t run,
                             int64_t times, int64_t src_step, int64_t dst_step)
{
    const lp_mode mode = {times, src_step, dst_step};
    const lp_box box = {.src_off = src_off, .dst_off = dst_off, .run = run, .rank = times > 1 ? 1 : 0, .mode = &mode};
    const lp_map *map;
    assert_ok(lp_map_from_boxes(&map, (int32_t)src_elem, (int32_t)dst_elem, 1, &box, NULL, ERR));
    return map;
}

/* Adds what fits and releases its map. */
static void add_record(lp_trace *t, const lp_record *r)
{
    lp_error err = {0}; /* a region beyond the storage of its destination is not added */
    (void)lp_trace_add_record(t, r, &err);
    lp_map_free(r->map, NULL);
}

/* F32 in one or two dimensions, in either order and with gaps; its own storage, or one that several share. */
static void random_dest(lp_trace *t, uint64_t *random, int which)
{
    const int64_t rows = 1 + random_below(random, 3), columns = 1 + random_below(random, 4);
    const int64_t inner = 4 * (1 + random_below(random, 4) / 3), outer_gap = 4 * (random_below(random, 4) / 3);
    const bool turned = random_below(random, 2) == 0, shares = random_below(random, 2) == 0;
    int64_t shape[2] = {rows, columns}, stride[2] = {inner * columns + outer_gap, inner};
    if (turned) {
        stride[0] = inner;
        stride[1] = inner * rows + outer_gap;
    }
    const int64_t span = (rows - 1) * stride[0] + (columns - 1) * stride[1] + 4;
    const int64_t offset = shares ? 4 * random_below(random, (STORAGE - span) / 4 + 1) : 0;
    const uint32_t dest =
        add_dest_with(t, (lp_destination){.name = dests[which],
                                          .dtype = LP_F32,
                                          .ndim = 2,
                                          .shape = shape,
                                          .stride = stride,
                                          .storage = shares ? "shared" : NULL,
                                          .storage_bytes = STORAGE,
                                          .offset = offset,
                                          .flags = (random_below(random, 3) > 0 ? LP_DEST_TIED : 0) |
                                                   (random_below(random, 12) == 0 ? LP_DEST_NO_LOADER : 0)});
    const bool is_filled = random_below(random, 4) > 0; /* at the beginning, where nothing else writes */
    for (int64_t i = 0; i < rows && is_filled; i++)
        add_record(t, &(lp_record){.name = LP_NAME_BEGIN,
                                   .dest = dest,
                                   .fill_bits = (uint64_t)which / 2,
                                   .map = strided(0, 1, 0, i * stride[0], 4, columns, 0, stride[1]),
                                   .provenance = LP_NONE});
}

/* Somewhere in the first bytes of a destination, `unit` bytes at a time; where[] is offset, run, times, step. */
static void random_region(uint64_t *random, int64_t unit, int64_t room, int64_t where[4])
{
    where[1] = 1 + random_below(random, 8);
    where[2] = 1 + random_below(random, 3);
    where[3] = unit * (where[1] + random_below(random, 3));
    const int64_t span = (where[2] - 1) * where[3] + unit * where[1];
    if (span > room)
        where[1] = where[2] = 1;
    where[0] = span > room ? 0 : unit * random_below(random, (room - span) / unit + 1);
}

static void random_record(lp_trace *t, uint64_t *random, int64_t room)
{
    lp_record r = {.dest = (uint32_t)random_below(random, DESTS), .provenance = LP_NONE};
    const int64_t what = random_below(random, 8), unit = random_below(random, 3) > 0 ? 4 : 1;
    int64_t to[4];
    r.name = what == 0 ? LP_NAME_BEGIN : (uint32_t)random_below(random, NAMES);
    if (what == 2) { /* a cast: elements of two bytes become four */
        random_region(random, 4, room, to);
        r.src_dtype = LP_BF16;
        r.dst_dtype = LP_F32;
        r.map = strided(2, 4, 0, to[0], to[1], to[2], 2 * to[1], to[3]);
    } else if (what < 2) {
        random_region(random, unit, room, to);
        r.fill_bits = (uint64_t)random_below(random, 2);
        r.map = strided(0, 1, 0, to[0], unit * to[1], to[2], 0, to[3]);
    } else {
        random_region(random, unit, room, to);
        const int64_t step = random_below(random, 2) * unit * to[1], span = (to[2] - 1) * step + unit * to[1];
        if (span <= NAME_BYTES) {
            const bool is_whole = random_below(random, 2) == 0;
            r.map = strided(1, 1, is_whole ? 0 : random_below(random, NAME_BYTES - span + 1), to[0], unit * to[1],
                            to[2], step, to[3]);
        }
    }
    if (r.map != NULL)
        add_record(t, &r);
}

/* The largest of some elements goes to one element. */
static void random_derive(lp_trace *t, uint64_t *random, int64_t room)
{
    int64_t from[4];
    random_region(random, 4, room < NAME_BYTES ? room : NAME_BYTES, from);
    const bool is_staged = random_below(random, 4) == 0;
    const int64_t count = from[1] * from[2];
    const lp_map *read = strided(1, 1, from[0], 0, 4 * from[1], from[2], from[3], 4 * from[1]);
    const lp_map *write = strided(1, 1, 0, 4 * random_below(random, room / 4), 4, 1, 0, 0);
    const lp_derive_input input = {.staged = is_staged,
                                   .index = (uint32_t)random_below(random, is_staged ? NAMES : DESTS),
                                   .dtype = LP_F32,
                                   .count = count,
                                   .map = read};
    const lp_node node[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = count},
                            {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .count = 1}};
    lp_error err = {0};
    (void)lp_trace_add_derive(t,
                              &(lp_derive){.dest = (uint32_t)random_below(random, DESTS),
                                           .nnode = 2,
                                           .ninput = 1,
                                           .node = node,
                                           .input = &input,
                                           .map = write,
                                           .error_text = "",
                                           .provenance = LP_NONE},
                              &err);
    lp_map_free(read, NULL);
    lp_map_free(write, NULL);
}

static void random_refusal(lp_trace *t, uint64_t *random, int64_t room)
{
    int64_t to[4];
    random_region(random, 4, room, to);
    const int64_t what = random_below(random, 3);
    const lp_map *region = what == 0 ? strided(0, 1, 0, to[0], 4 * to[1], to[2], 0, to[3]) : NULL;
    const uint32_t dest = what == 2 ? LP_NONE : (uint32_t)random_below(random, DESTS);
    lp_error err = {0};
    (void)lp_trace_add_refusal(t,
                               &(lp_refusal){.name = (uint32_t)random_below(random, NAMES),
                                             .dest = dest,
                                             .map = region,
                                             .operation = "max",
                                             .reason = "read on the host",
                                             .provenance = LP_NONE},
                               &err);
    lp_map_free(region, NULL);
}

static lp_trace *random_trace(uint64_t *random)
{
    static const int64_t shape[] = {NAME_BYTES};
    const int ranks = 1 + (int)random_below(random, RANKS);
    lp_checkpoint *c;
    lp_trace *t;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int i = 0; i < NAMES; i++)
        assert_ok(lp_checkpoint_add(
            c,
            &(lp_checkpoint_tensor){
                .name = names[i], .dtype = LP_U8, .ndim = 1, .shape = shape, .file = -1, .file_off = -1},
            ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    const lp_trace_header header = {.loader = "test",
                                    .configuration = random_below(random, 4) == 0 ? "decline=c.*\n" : "",
                                    .layout = {.tp = ranks}};
    assert_ok(lp_trace_new(&t, c, &header, NULL, ERR));
    lp_checkpoint_close(c);
    const int recorded = ranks - (random_below(random, 4) == 0 && ranks > 1);
    const int64_t room = 4 * (1 + random_below(random, 12)); /* little: much overlap; much: many holes */
    const int records = (int)random_below(random, 10) * (random_below(random, 4) > 0),
              derives = (int)random_below(random, 12) / 4, refusals = (int)random_below(random, 12) / 9;
    for (int rank = 0; rank < recorded; rank++) {
        assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = ranks, .tp_rank = rank}, ERR));
        for (int i = 0; i < DESTS; i++)
            random_dest(t, random, i);
        for (int i = 0; i < records; i++)
            random_record(t, random, room);
        for (int i = 0; i < derives; i++)
            random_derive(t, random, room);
        for (int i = 0; i < refusals; i++)
            random_refusal(t, random, room);
    }
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

/* The same rows, of which some lie elsewhere, or have another place in the order or none: as a text may say. NULL where
 * these rows are refused. */
static lp_trace *reordered(const lp_trace *t, uint64_t *random)
{
    lp_trace *other;
    lp_error err = {0};
    lp_status status = LP_OK;
    assert_ok(lp_trace_new(&other, lp_trace_checkpoint(t), lp_trace_header_of(t), NULL, ERR));
    for (int32_t s = 0; status == LP_OK && s < lp_trace_scope_count(t); s++) {
        const lp_rows *rows;
        lp_record record[WRITERS];
        assert_ok(lp_trace_rows(t, s, &rows, ERR));
        assert_true(rows->nrecord <= WRITERS);
        for (uint32_t i = 0; i < rows->nrecord; i++) {
            record[i] = rows->record[i];
            if (random_below(random, 3) == 0)
                record[i].seq = (uint32_t)random_below(random, 4);
            if (random_below(random, 6) == 0)
                record[i].dst_off += 4 * random_below(random, 3) - 4;
        }
        lp_rows changed = *rows;
        changed.record = record;
        status = lp_trace_add_rows(other, &changed, &err);
    }
    if (status == LP_OK) {
        assert_ok(lp_trace_seal(other, ERR));
        return other;
    }
    lp_trace_close(other);
    return NULL;
}

/* ---- both verdicts ---- */

static bool has_finding(const lp_findings *f, lp_rule_number rule, const char *tensor)
{
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        const lp_finding *x = lp_findings_at(f, i);
        char family[64];
        lp_family_template(tensor, family, sizeof family);
        if (x->rule == lp_rule_at((int)rule) && (tensor[0] == '\0' || strcmp(x->family, family) == 0))
            return true;
    }
    return false;
}

/* For families, one member is enough. */
static void expect_same(const lp_findings *f, lp_rule_number rule, const char *const *tensor, const bool *is_found,
                        int count)
{
    for (int i = 0; i < count; i++) {
        bool of_family = false;
        char family[64], other[64];
        lp_family_template(tensor[i], family, sizeof family);
        for (int k = 0; k < count; k++) {
            lp_family_template(tensor[k], other, sizeof other);
            of_family = of_family || (is_found[k] && strcmp(family, other) == 0);
        }
        if (has_finding(f, rule, tensor[i]) != of_family)
            fail_msg("%s of '%s': the oracle says %s", lp_rule_at((int)rule)->id, tensor[i], of_family ? "yes" : "no");
    }
}

/* Of these the tensor depends on which writer comes first. */
static const lp_rule_number plain[] = {LP_RULE_DEST_OVERLAP,    LP_RULE_DEST_ALIAS,  LP_RULE_DERIVE_CYCLE,
                                       LP_RULE_ORDER_DEPENDENT, LP_RULE_NON_VIEW_OP, LP_RULE_DERIVE_NOT_IDEMPOTENT};
static const lp_rule_number of_tensors[] = {LP_RULE_DEST_UNCOVERED, LP_RULE_SHAPE_MISMATCH,
                                            LP_RULE_CHECKPOINT_NAME_UNUSED, LP_RULE_CHECKPOINT_BYTES_UNUSED};
enum { PLAIN_RULES = sizeof plain / sizeof *plain };

static void compare(const lp_trace *t, int64_t found[LP_RULE_COUNT])
{
    lp_findings *f;
    const verdict v = judge(t);
    assert_ok(lp_check(&f, t, ERR));
    for (int i = 0; i < PLAIN_RULES; i++)
        if (has_finding(f, plain[i], "") != v.rule[plain[i]])
            fail_msg("%s: the oracle says %s", lp_rule_at((int)plain[i])->id, v.rule[plain[i]] ? "yes" : "no");
    expect_same(f, LP_RULE_DEST_UNCOVERED, dests, v.uncovered, DESTS);
    expect_same(f, LP_RULE_SHAPE_MISMATCH, dests, v.outside, DESTS);
    expect_same(f, LP_RULE_CHECKPOINT_NAME_UNUSED, names, v.unused, NAMES);
    expect_same(f, LP_RULE_CHECKPOINT_BYTES_UNUSED, names, v.unread, NAMES);
    assert_false(has_finding(f, LP_RULE_UNDECIDED, ""));
    for (int r = 0; r < LP_RULE_COUNT; r++)
        found[r] += has_finding(f, (lp_rule_number)r, "");
    lp_findings_free(f);
}

static void check_agrees_with_the_oracle(void **state)
{
    (void)state;
    const uint64_t base = random_first_seed(20261201);
    const int64_t count = (int64_t)random_cases(2000);
    int64_t found[LP_RULE_COUNT] = {0};
    for (int64_t round = 0; round < count; round++) {
        uint64_t random = running_seed = base + (uint64_t)round;
        lp_trace *t = random_trace(&random), *other = reordered(t, &random);
        if (count == 1)
            assert_ok(lp_trace_dump(other != NULL ? other : t, show, NULL, ERR));
        compare(t, found);
        if (other != NULL)
            compare(other, found);
        lp_trace_close(other);
        lp_trace_close(t);
    }
    running_seed = 0;
    for (int i = 0; i < PLAIN_RULES && count >= 1000; i++) /* each is broken by some traces and kept by others */
        assert_in_range(found[plain[i]], 3, 2 * count - 30);
    for (int i = 0; i < 4 && count >= 1000; i++)
        assert_in_range(found[of_tensors[i]], 3, 2 * count - 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(check_agrees_with_the_oracle, name_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
