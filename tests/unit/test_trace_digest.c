/* SPDX-License-Identifier: Apache-2.0 */
/* Identities: the published vector, what they depend on and what not, staleness, and rows that come from a reader. */
#include "model_testing.h"

/* ---- the vector of docs/identities.md ---- */

typedef struct variant { /* each member changes one thing about the vector's trace; {0} is the vector */
    bool other_dest_name, other_group, other_layout_version, other_source, other_offset, other_fill, other_constant,
        group_by_number, other_refusal, refusal_reason, other_place, other_target, other_shape, reversed_calls, check;
} variant;

static void add_named_dest(lp_trace *t, const char *name, lp_dtype dtype, int32_t ndim, int64_t extent,
                           const variant *v)
{
    const int64_t elem = lp_dtype_bits(dtype) / 8;
    lp_destination dest = {.name = name,
                           .dtype = dtype,
                           .ndim = ndim,
                           .shape = &extent,
                           .stride = &elem,
                           .storage_bytes = ndim == 0 ? elem : extent * elem,
                           .group = v->other_group ? "layers.0" : "root",
                           .slot_dim = -1};
    if (ndim == 0) {
        dest.layout = "demo";
        dest.layout_version = v->other_layout_version ? 4 : 3;
        dest.flags = LP_DEST_HAS_DUMMY;
        dest.dummy_bits = 0x3f800000;
    }
    assert_ok(lp_trace_add_destination(t, &dest, NULL, ERR));
}

static void add_vector_records(lp_trace *t, const variant *v, bool first_half, uint32_t x, uint32_t y, uint32_t place)
{
    lp_view src, dst;
    const lp_map *map;
    const int64_t four = 4, two = 2;
    if (first_half) {
        assert_ok(lp_view_contiguous(&src, LP_U8, 1, &four, ERR));
        dst = src;
        if (!v->other_source)
            assert_ok(lp_view_slice(&src, 0, LP_SLICE_END, LP_SLICE_END, -1, ERR));
        assert_ok(lp_map_copy(&map, &dst, 4, &src, 4, NULL, ERR));
        assert_ok(lp_trace_add_record(t, &(lp_record){.name = 0, .dest = x, .map = map, .provenance = place}, ERR));
        lp_map_free(map, NULL);
        add_fill(t, LP_NAME_BEGIN, x, v->other_offset ? 1 : 0, v->other_offset ? 6 : 8, v->other_fill ? 6 : 5);
        return;
    }
    assert_ok(lp_view_contiguous(&src, LP_BF16, 1, &two, ERR));
    assert_ok(lp_view_contiguous(&dst, LP_F32, 1, &two, ERR));
    assert_ok(lp_map_copy(&map, &dst, 8, &src, 4, NULL, ERR));
    assert_ok(lp_trace_add_record(
        t,
        &(lp_record){
            .name = 1, .dest = y, .src_dtype = LP_BF16, .dst_dtype = LP_F32, .map = map, .provenance = LP_NONE},
        ERR));
    lp_map_free(map, NULL);
}

static void add_vector_derive(lp_trace *t, const variant *v, uint32_t y, uint32_t z)
{
    const lp_map *in = byte_map(0, 0, 8, 1, 0, 0), *out = byte_map(0, 0, 4, 1, 0, 0);
    const lp_derive_input input = {.index = y, .dtype = LP_F32, .count = 2, .map = in};
    const lp_node node[] = {
        {.op = LP_OP_INPUT, .dtype = LP_F32, .count = 2},
        {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .bits = v->group_by_number ? 2 : 0, .count = 1},
        {.op = LP_OP_CONST, .dtype = LP_F32, .bits = v->other_constant ? 0x40000000 : 0x3f800000, .count = 1},
        {.op = LP_OP_OR_IF_ZERO, .dtype = LP_F32, .arg = {1, 2}, .count = 1}};
    lp_derive derive = {.dest = z,
                        .nnode = 4,
                        .ninput = 1,
                        .node = node,
                        .input = &input,
                        .map = out,
                        .error_text = NULL,
                        .provenance = LP_NONE};
    assert_ok(lp_trace_add_derive(t, &derive, ERR));
    if (v->check) {
        const lp_node close[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = 2},
                                 {.op = LP_OP_ALL_CLOSE, .arg = {0, 0}, .bits = 0x3727c5ac}};
        derive.dest = LP_NONE;
        derive.nnode = 2;
        derive.node = close;
        derive.map = NULL;
        derive.error_text = "differ at {index}";
        assert_ok(lp_trace_add_derive(t, &derive, ERR));
    }
    lp_map_free(in, NULL);
    lp_map_free(out, NULL);
}

static lp_trace *vector_trace(const variant *v)
{
    lp_checkpoint *c;
    lp_trace *t;
    const int64_t extent[] = {4, v->other_shape ? 3 : 2, 1};
    const lp_dtype dtype[] = {LP_U8, LP_BF16, LP_U8};
    const char *const name[] = {"a", "b", "c"};
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int i = 2; i >= 0; i--)
        assert_ok(lp_checkpoint_add(
            c,
            &(lp_checkpoint_tensor){
                .name = name[i], .dtype = dtype[i], .ndim = 1, .shape = &extent[i], .file = -1, .file_off = -1},
            ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    assert_ok(lp_trace_new(&t, c,
                           &(lp_trace_header){.loader = "vector",
                                              .loader_version = "1",
                                              .configuration = "k=v",
                                              .target = v->other_target ? "sm100" : "sm90"},
                           NULL, ERR));
    lp_checkpoint_close(c);
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    add_named_dest(t, "z", LP_F32, 0, 0, v);
    add_named_dest(t, v->other_dest_name ? "w" : "x", LP_U8, 1, 8, v);
    add_named_dest(t, "y", LP_F32, 1, 2, v);
    uint32_t place = LP_NONE;
    if (v->other_place)
        assert_ok(lp_trace_add_provenance(t, &(lp_provenance){.file = "loader.c", .line = 3}, &place, ERR));
    add_vector_records(t, v, !v->reversed_calls, 1, 2, place);
    add_vector_records(t, v, v->reversed_calls, 1, 2, place);
    add_vector_derive(t, v, 2, 0);
    assert_ok(lp_trace_add_refusal(t,
                                   &(lp_refusal){.name = 2,
                                                 .dest = v->other_refusal ? 0 : LP_NONE,
                                                 .operation = v->refusal_reason ? "aten.max" : "aten.item",
                                                 .reason = "why",
                                                 .provenance = place},
                                   ERR));
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

static void assert_hex(const uint8_t digest[32], const char *hex)
{
    char text[65];
    lp_format_hex(text, digest, 32);
    assert_string_equal(text, hex);
}

static void the_published_vector_holds(void **state)
{
    (void)state;
    lp_trace *t = vector_trace(&(variant){0});
    const lp_rows *rows;
    uint8_t digest[32];
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_int_equal(rows->nderive, 1);
    assert_ok(lp_derive_digest(t, rows, &rows->derive[0], digest, ERR));
    assert_hex(digest, "6386465dd84a55367485c9191921c8ac79bdc317c713be73b0ca5b5b8d61d127");
    assert_hex(rows->digest, "d6fdeb177447970bd59415ee62f145902a196222f95ae80e7a2db2d1a87f0ccf");
    assert_ok(lp_trace_set_digest(t, digest, ERR));
    assert_hex(digest, "8fca547c256abe98817f133d03b22b9430dcf27acc4c6e95e70dea8633d2e7df");
    assert_ok(lp_trace_structure_key(t, digest, ERR));
    assert_hex(digest, "c84f595acf6be681d92d6155e8fc71b92815f50f9746b9f5726cbe172a312b55");
    lp_trace_close(t);
}

/* ---- what identities depend on ---- */

static void digests_of(const variant *v, uint8_t plan[32], uint8_t key[32])
{
    lp_trace *t = vector_trace(v);
    const lp_rows *rows;
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    memcpy(plan, rows->digest, 32);
    assert_ok(lp_trace_structure_key(t, key, ERR));
    lp_trace_close(t);
}

static void identities_see_what_matters_and_nothing_else(void **state)
{
    (void)state;
    const struct {
        const char *what;
        variant v;
        bool same_plan, same_key;
    } cases[] = {
        {"destination name", {.other_dest_name = true}, false, true},
        {"commit group", {.other_group = true}, false, true},
        {"layout version", {.other_layout_version = true}, false, false},
        {"source bytes", {.other_source = true}, false, true},
        {"destination bytes", {.other_offset = true}, false, true},
        {"fill pattern", {.other_fill = true}, false, true},
        {"derive constant", {.other_constant = true}, false, true},
        {"group of all elements by number", {.group_by_number = true}, true, true},
        {"a check", {.check = true}, false, true},
        {"refused region", {.other_refusal = true}, false, true},
        {"reason of a refusal", {.refusal_reason = true}, true, true},
        {"loader file and line", {.other_place = true}, true, true},
        {"target", {.other_target = true}, true, false},
        {"shape of a tensor", {.other_shape = true}, true, false},
        {"order of independent calls", {.reversed_calls = true}, true, true},
    };
    uint8_t plan[32], key[32], other_plan[32], other_key[32];
    digests_of(&(variant){0}, plan, key);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        digests_of(&cases[i].v, other_plan, other_key);
        if ((memcmp(plan, other_plan, 32) == 0) != cases[i].same_plan ||
            (memcmp(key, other_key, 32) == 0) != cases[i].same_key)
            fail_msg("wrong for a change of: %s", cases[i].what);
    }
}

static void the_order_of_overlapping_names_is_structure(void **state)
{
    (void)state;
    uint8_t key[4][32], plan[4][32];
    for (int i = 0; i < 4; i++) {
        lp_trace *t = small_trace(4, 100, NULL);
        const uint32_t d = add_dest(t, "d", 40);
        const char *first = i & 1 ? "n1" : "n0", *second = i & 1 ? "n0" : "n1";
        if (i & 2) /* n2 is free: its place among the calls is nothing */
            add_copy(t, "n2", d, 0, 20, 10);
        add_copy(t, first, d, 0, 0, 10);
        add_copy(t, second, d, 0, 5, 10);
        if (!(i & 2))
            add_copy(t, "n2", d, 0, 20, 10);
        memcpy(plan[i], sealed_rows(t)->digest, 32);
        assert_ok(lp_trace_structure_key(t, key[i], ERR));
        lp_trace_close(t);
    }
    assert_memory_equal(key[0], key[2], 32);
    assert_memory_equal(plan[0], plan[2], 32);
    assert_memory_equal(key[1], key[3], 32);
    assert_memory_not_equal(key[0], key[1], 32);
    assert_memory_not_equal(plan[0], plan[1], 32);
}

static void the_set_digest_knows_which_rank_does_what(void **state)
{
    (void)state;
    uint8_t digest[3][32];
    for (int i = 0; i < 3; i++) {
        lp_checkpoint *c = small_checkpoint(2, 10);
        lp_trace *t;
        assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.layout = {.tp = 2}}, NULL, ERR));
        lp_checkpoint_close(c);
        for (int k = 0; k < 2; k++) {
            const int rank = i == 1 ? 1 - k : k; /* 1: the same in another order of calls; 2: the ranks swapped */
            assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = rank}, ERR));
            add_copy(t, (i == 2 ? 1 - rank : rank) == 0 ? "n0" : "n1", add_dest(t, "d", 10), 0, 0, 10);
        }
        assert_ok(lp_trace_seal(t, ERR));
        assert_ok(lp_trace_set_digest(t, digest[i], ERR));
        lp_trace_close(t);
    }
    assert_memory_equal(digest[0], digest[1], 32);
    assert_memory_not_equal(digest[0], digest[2], 32);
}

/* ---- staleness ---- */

typedef struct tensor_row {
    const char *name;
    lp_dtype dtype;
    int32_t ndim;
    int64_t shape[2];
} tensor_row;

static lp_checkpoint *checkpoint_of(const tensor_row *row, int count)
{
    lp_checkpoint *c;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int i = 0; i < count; i++)
        assert_ok(lp_checkpoint_add(c,
                                    &(lp_checkpoint_tensor){.name = row[i].name,
                                                            .dtype = row[i].dtype,
                                                            .ndim = row[i].ndim,
                                                            .shape = row[i].shape,
                                                            .file = -1,
                                                            .file_off = -1},
                                    ERR));
    assert_ok(lp_checkpoint_seal(c, ERR));
    return c;
}

static void match_names_the_first_difference(void **state)
{
    (void)state;
    const tensor_row recorded[] = {{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
                                   {"norm", LP_F32, 1, {4096}},
                                   {"z", LP_F32, 0, {0}}};
    const struct {
        tensor_row row[4];
        int count;
        const char *text;
    } cases[] = {
        {{{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
          {"norm", LP_F32, 1, {4096}},
          {"z", LP_F32, 0, {0}}},
         3,
         NULL},
        {{{"layers.3.mlp.gate_proj.weight", LP_BF16, 2, {4096, 4096}},
          {"norm", LP_F32, 1, {4096}},
          {"z", LP_F32, 0, {0}}},
         3,
         "'layers.3.mlp.gate_proj.weight' is BF16 [4096, 4096], was F8_E4M3 [4096, 4096]"},
        {{{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
          {"norm", LP_F32, 1, {4097}},
          {"z", LP_F32, 0, {0}}},
         3,
         "'norm' is F32 [4097], was F32 [4096]"},
        {{{"norm", LP_F32, 1, {4096}}, {"z", LP_F32, 0, {0}}},
         2,
         "'layers.3.mlp.gate_proj.weight' is not there, was F8_E4M3 [4096, 4096]"},
        {{{"layers.3.mlp.gate_proj.weight", LP_F8_E4M3, 2, {4096, 4096}},
          {"lm_head", LP_BF16, 1, {2}},
          {"norm", LP_F32, 1, {4096}},
          {"z", LP_F32, 0, {0}}},
         4,
         "'lm_head' is BF16 [2], was not there"},
        {{{"norm", LP_BF16, 1, {4096}}},
         1,
         "'layers.3.mlp.gate_proj.weight' is not there, was F8_E4M3 [4096, 4096] (and 2 other differences)"},
        {{{NULL, LP_U8, 0, {0}}},
         0,
         "'layers.3.mlp.gate_proj.weight' is not there, was F8_E4M3 [4096, 4096] (and 2 other differences)"},
    };
    lp_checkpoint *c = checkpoint_of(recorded, 3);
    lp_trace *t;
    assert_ok(lp_trace_new(&t, c, NULL, NULL, ERR));
    lp_checkpoint_close(c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_error err = {0};
        c = checkpoint_of(cases[i].row, cases[i].count);
        const lp_status status = lp_trace_match(t, c, &err);
        lp_checkpoint_close(c);
        assert_int_equal(status, cases[i].text == NULL ? LP_OK : LP_E_STALE);
        if (cases[i].text != NULL) {
            assert_string_equal(err.text, cases[i].text);
            assert_string_equal(err.hint, "record again");
        }
    }
    lp_trace_close(t);
}

/* ---- rows from a reader ---- */

typedef struct fake_file {
    const lp_trace *original;
    int fault; /* 0: none */
    int expansions, closed;
} fake_file;

enum {
    FAULT_DESTINATIONS_SWAPPED = 1,
    FAULT_RECORDS_SWAPPED,
    FAULT_RECORD_TWICE,
    FAULT_NAME,
    FAULT_DEST,
    FAULT_SRC_OFF,
    FAULT_DST_OFF,
    FAULT_KIND,
    FAULT_FILL,
    FAULT_REFUSAL_NAME,
    FAULT_DERIVE_DEST,
    FAULT_SEQ, /* legal by itself: only the digest tells */
    FAULT_COUNT
};

static lp_status fake_expand(void *context, const lp_trace *t, int32_t scope, lp_rows *rows, lp_arena *arena,
                             lp_error *err)
{
    fake_file *file = context;
    file->expansions++;
    const lp_rows *from;
    LP_TRY(lp_trace_rows(file->original, scope, &from, err));
    *rows = *from;
    lp_destination *dest = lp_arena_copy(arena, from->dest, from->ndest * sizeof *dest);
    lp_record *record = lp_arena_copy(arena, from->record, from->nrecord * sizeof *record);
    lp_refusal *refusal = lp_arena_copy(arena, from->refusal, from->nrefusal * sizeof *refusal);
    lp_derive *derive = lp_arena_copy(arena, from->derive, from->nderive * sizeof *derive);
    for (uint32_t i = 0; i < from->nrecord; i++) {
        int64_t src_off, dst_off;
        LP_TRY(lp_map_pool_add(&t->shared->maps, from->record[i].map, &record[i].map, &src_off, &dst_off, err));
    }
    const lp_destination first = dest[0];
    const lp_record first_record = record[0];
    switch (file->fault) {
    case FAULT_DESTINATIONS_SWAPPED:
        dest[0] = dest[1];
        dest[1] = first;
        break;
    case FAULT_RECORDS_SWAPPED:
        record[0] = record[1];
        record[1] = first_record;
        break;
    case FAULT_RECORD_TWICE:
        record[1] = record[0];
        break;
    case FAULT_NAME:
        record[0].name = 77;
        break;
    case FAULT_DEST:
        record[0].dest = 77;
        break;
    case FAULT_SRC_OFF:
        record[0].src_off = INT64_MAX;
        break;
    case FAULT_DST_OFF:
        record[0].dst_off = -1;
        break;
    case FAULT_KIND:
        record[0].kind = LP_KIND_REPLICATE;
        break;
    case FAULT_FILL:
        record[2].fill_bits = 256;
        break;
    case FAULT_REFUSAL_NAME:
        refusal[0].name = 77;
        break;
    case FAULT_DERIVE_DEST:
        derive[0].dest = 77;
        break;
    case FAULT_SEQ:
        record[0].seq = 9;
        break;
    default:
        break;
    }
    rows->dest = dest;
    rows->record = record;
    rows->refusal = refusal;
    rows->derive = derive;
    return LP_OK;
}

static void fake_close(void *context)
{
    ((fake_file *)context)->closed++;
}

static lp_trace *opened_trace(fake_file *file)
{
    lp_checkpoint *c;
    lp_trace *t;
    uint8_t digest[32];
    const lp_rows *rows;
    assert_ok(lp_checkpoint_copy(&c, lp_trace_checkpoint(file->original), NULL, ERR));
    assert_ok(lp_trace_new_with(&t, c, lp_trace_header_of(file->original), NULL, ERR));
    assert_ok(lp_trace_rows(file->original, 0, &rows, ERR));
    memcpy(digest, rows->digest, 32);
    assert_ok(lp_trace_add_stored_scope(t, &rows->scope, digest, ERR));
    lp_trace_end_stored(t, &(lp_rows_source){.context = file, .expand = fake_expand, .close = fake_close});
    return t;
}

static void rows_of_a_file_are_expanded_at_first_use(void **state)
{
    (void)state;
    lp_trace *original = vector_trace(&(variant){0});
    fake_file file = {.original = original};
    lp_trace *t = opened_trace(&file);
    const lp_rows *rows;
    uint8_t digest[2][32];
    assert_ok(lp_trace_set_digest(original, digest[0], ERR));
    assert_ok(lp_trace_set_digest(t, digest[1], ERR));
    assert_memory_equal(digest[0], digest[1], 32);
    assert_int_equal(file.expansions, 0);
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_int_equal(file.expansions, 1);
    assert_int_equal(rows->nrecord, 3);
    assert_int_equal(lp_trace_release_rows(t, 0), LP_OK);
    assert_ok(lp_trace_structure_key(original, digest[0], ERR));
    assert_ok(lp_trace_structure_key(t, digest[1], ERR)); /* expands, and drops again */
    assert_memory_equal(digest[0], digest[1], 32);
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_int_equal(file.expansions, 3);
    lp_trace_close(t);
    assert_int_equal(file.closed, 1);
    lp_trace_close(original);
}

static void wrong_rows_of_a_file_are_corrupt(void **state)
{
    (void)state;
    lp_trace *original = vector_trace(&(variant){.check = true});
    for (int fault = 1; fault < FAULT_COUNT; fault++) {
        fake_file file = {.original = original, .fault = fault};
        lp_trace *t = opened_trace(&file);
        const lp_rows *rows;
        lp_error err = {0};
        if (lp_trace_rows(t, 0, &rows, &err) != LP_E_CORRUPT)
            fail_msg("fault %d was not seen", fault);
        if (fault == FAULT_SEQ)
            assert_string_equal(err.text, "the rows of rank 0 do not have the plan digest that is stored");
        file.fault = 0; /* a failed expansion leaves nothing behind */
        assert_ok(lp_trace_rows(t, 0, &rows, ERR));
        lp_trace_close(t);
    }
    lp_trace_close(original);
}

static void rows_made_by_hand_give_the_same_trace(void **state)
{
    (void)state;
    lp_trace *original = vector_trace(&(variant){.check = true}), *t;
    lp_checkpoint *c;
    const lp_rows *from, *rows;
    assert_ok(lp_trace_rows(original, 0, &from, ERR));
    assert_ok(lp_checkpoint_copy(&c, lp_trace_checkpoint(original), NULL, ERR));
    assert_ok(lp_trace_new_with(&t, c, lp_trace_header_of(original), NULL, ERR));
    lp_record reversed[3];
    for (int i = 0; i < 3; i++)
        reversed[i] = from->record[2 - i];
    lp_rows given = *from;
    given.record = reversed;
    assert_ok(lp_trace_add_rows(t, &given, ERR));
    assert_ok(lp_trace_seal(t, ERR));
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_memory_equal(rows->digest, from->digest, 32);
    lp_trace_close(t);

    lp_error err;
    assert_ok(lp_checkpoint_copy(&c, lp_trace_checkpoint(original), NULL, ERR));
    assert_ok(lp_trace_new_with(&t, c, NULL, NULL, ERR));
    reversed[1] = reversed[0];
    assert_int_equal(lp_trace_add_rows(t, &given, &err), LP_E_CORRUPT);
    assert_int_equal(lp_trace_seal(t, &err), LP_E_MISUSE);
    lp_trace_close(t);
    lp_trace_close(original);
}

static void stored_scopes_come_in_order_of_ranks(void **state)
{
    (void)state;
    lp_trace *t;
    lp_error err;
    const uint8_t digest[32] = {0};
    assert_ok(lp_trace_new_with(&t, small_checkpoint(1, 1), &(lp_trace_header){.layout = {.tp = 4}}, NULL, ERR));
    assert_ok(lp_trace_add_stored_scope(t, &(lp_scope){.tp = 4, .tp_rank = 1}, digest, ERR));
    assert_int_equal(lp_trace_add_stored_scope(t, &(lp_scope){.tp = 4, .tp_rank = 1}, digest, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "scope 1 is not in the order of ranks");
    assert_int_equal(lp_trace_add_stored_scope(t, &(lp_scope){.tp = 2, .tp_rank = 1}, digest, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "scope 1 has other sizes than the trace");
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vector_holds),
        cmocka_unit_test(identities_see_what_matters_and_nothing_else),
        cmocka_unit_test(the_order_of_overlapping_names_is_structure),
        cmocka_unit_test(the_set_digest_knows_which_rank_does_what),
        cmocka_unit_test(match_names_the_first_difference),
        cmocka_unit_test(rows_of_a_file_are_expanded_at_first_use),
        cmocka_unit_test(wrong_rows_of_a_file_are_corrupt),
        cmocka_unit_test(rows_made_by_hand_give_the_same_trace),
        cmocka_unit_test(stored_scopes_come_in_order_of_ranks),
    };
    return cmocka_run_group_tests_name("identities", tests, NULL, NULL);
}
