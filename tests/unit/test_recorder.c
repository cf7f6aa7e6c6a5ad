/* SPDX-License-Identifier: Apache-2.0 */
/* The recording API: what loaders written in C become. */
#include "failing_memory.h"
#include "test_recorder_run.h"

/* A checkpoint that most tests share. */
static lp_checkpoint *small_checkpoint(void)
{
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "a", LP_F32, SHAPE(4, 6));
    add_tensor(c, "b", LP_F32, SHAPE(4, 6));
    add_tensor(c, "half", LP_BF16, SHAPE(8));
    add_tensor(c, "scale", LP_F32, 0, NULL);
    add_tensor(c, "bytes", LP_U8, SHAPE(16));
    seal_checkpoint(c);
    return c;
}

/* ---- the loader of the guide ---- */

static void load_gate_up(lp_recorder *r, int layer, lp_scope at)
{
    static const char *const half[] = {"gate_proj", "up_proj"};
    lp_tensor fused = lp_dest(r, lp_name(r, "layers.%d.mlp.gate_up.weight", layer));
    for (int i = 0; i < 2; i++) {
        lp_tensor w = lp_source(r, lp_name(r, "model.layers.%d.mlp.%s.weight", layer, half[i]));
        int64_t rows = lp_size(w, 0) / at.tp;
        lp_copy(lp_narrow(fused, 0, i * rows, rows), lp_narrow(w, 0, at.tp_rank * rows, rows));
    }
}

static void fused_gate_up_is_the_ranks_rows(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 2; i++) {
            char name[64];
            snprintf(name, sizeof name, "model.layers.%d.mlp.%s.weight", layer, i == 0 ? "gate_proj" : "up_proj");
            add_tensor(c, name, LP_BF16, SHAPE(8, 4));
        }
    }
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){.tp = 4, .tp_rank = 1});
    const lp_scope at = lp_recorder_scope(r);
    assert_int_equal(at.dp, 1);
    for (int layer = 0; layer < 2; layer++) {
        lp_declare(r, lp_name(r, "layers.%d.mlp.gate_up.weight", layer), LP_BF16, 2, (int64_t[]){4, 4});
        load_gate_up(r, layer, at);
    }
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->ndest, 2);
    assert_int_equal(x.rows->nrecord, 4);
    assert_source(&x, "layers.1.mlp.gate_up.weight", 0, "model.layers.1.mlp.gate_proj.weight", 16, 16);
    assert_source(&x, "layers.1.mlp.gate_up.weight", 16, "model.layers.1.mlp.up_proj.weight", 16, 16);
    assert_string_equal(dest_of(&x, "layers.1.mlp.gate_up.weight")->group, "layers.1");
    assert_ptr_equal(x.rows->record[0].map, x.rows->record[3].map);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- misuse ---- */

static void misuse_is_sticky_and_says_where(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6});
    const int line = __LINE__ + 1;
    lp_tensor wrong = lp_narrow(lp_source(r, "a"), 0, 2, 9);
    assert_false(lp_is_valid(wrong));
    assert_int_equal(lp_size(wrong, 0), 1);
    lp_copy(d, lp_transpose(wrong, 0, 1));
    assert_false(lp_is_valid(lp_source(r, "no such tensor")));
    lp_trace *t = NULL;
    lp_error err;
    char place[64];
    assert_int_equal(lp_recorder_finish(r, &t, &err), LP_E_ARGUMENT);
    assert_null(t);
    snprintf(place, sizeof place, "test_recorder.c:%d: ", line);
    if (strstr(err.text, place) == NULL)
        fail_msg("'%s' does not name '%s'", err.text, place);
    lp_recorder_close(r);
    lp_checkpoint_close(c);
}

static void unknown_name_hints_at_the_nearest(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "model.layers.0.mlp.up_proj.weight", LP_F32, SHAPE(2));
    add_tensor(c, "model.norm.weight", LP_F32, SHAPE(2));
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_error err;
    assert_true(lp_has(r, "model.norm.weight"));
    assert_false(lp_has(r, "model.layers.0.mlp.up_proj.bias"));
    lp_source(r, "model.layers.0.mlp.upproj.weight");
    assert_int_equal(lp_recorder_save(r, "/nonexistent/x.lpt", &err), LP_E_UNKNOWN_NAME);
    assert_non_null(strstr(err.text, "no checkpoint tensor 'model.layers.0.mlp.upproj.weight'"));
    assert_string_equal(err.hint, "there is 'model.layers.0.mlp.up_proj.weight'");
    lp_recorder_close(r);

    r = open_scope(c, (lp_scope){0});
    lp_dest(r, "d");
    assert_int_equal(lp_recorder_status(r, &err), LP_E_UNKNOWN_NAME);
    lp_recorder_close(r);

    r = open_scope(c, (lp_scope){0});
    lp_declare(r, "d", LP_F32, 1, (int64_t[]){2});
    lp_declare(r, "d", LP_F32, 1, (int64_t[]){2});
    assert_int_equal(lp_recorder_status(r, &err), LP_E_DUPLICATE);
    lp_recorder_close(r);

    r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){2}), lp_cat(0, NULL, 0));
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    assert_non_null(strstr(err.text, "a tensor that stands for nothing"));
    lp_recorder_close(r);

    lp_recorder *other = open_scope(c, (lp_scope){0});
    r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){2}), lp_source(other, "model.norm.weight"));
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    lp_recorder_close(other);
    lp_recorder_close(r);
    lp_recorder_close(NULL);
    lp_checkpoint_close(c);
}

static void scope_must_exist(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = NULL;
    lp_error err;
    assert_int_equal(lp_recorder_open(&r, c, &(lp_scope){.tp = 2, .tp_rank = 2}, &err), LP_E_ARGUMENT);
    assert_null(r);
    lp_checkpoint_close(c);
}

/* ---- refusals ---- */

/* The running maximum of the guide: only the names that the host looked at fall back, with their place. */
static void host_read_refuses_that_name_only(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6});
    lp_tensor s = lp_declare(r, "s", LP_F32, 0, NULL);
    lp_copy(d, lp_source(r, "a"));
    lp_copy(s, lp_source(r, "scale"));
    const int line = __LINE__ + 1;
    assert_true(lp_max_value(lp_reshape(lp_source(r, "scale"), 1, (int64_t[]){1})) == 0.0);
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(records_of(&x, "a"), 1);
    assert_int_equal(records_of(&x, "scale"), 0);
    const lp_refusal *refusal = refusal_of(&x, "scale");
    assert_non_null(refusal);
    assert_null(refusal_of(&x, "a"));
    assert_string_equal(refusal->operation, "max");
    assert_string_equal(refusal->reason, "reads a value on the host");
    const lp_provenance *place = lp_trace_provenance(t, refusal->provenance);
    assert_int_equal(place->line, line);
    assert_non_null(strstr(place->file, "test_recorder.c"));
    assert_int_not_equal(place->file[0], '/');
    assert_checked(t); /* the scalar's destination counts as fallback, not as a hole */
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void places_may_have_any_path(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6});
    lp_copy_at("src/l\xf6"
               "der.c",
               7, d, lp_source(r, "a"));
    lp_trace *t = finish(r);
    const lp_rows *rows = NULL;
    assert_int_equal(lp_trace_rows(t, 0, &rows, NULL), LP_OK);
    const lp_provenance *place = lp_trace_provenance(t, rows->record[0].provenance);
    assert_string_equal(place->file, "src/l\\xf6der.c"); /* what a trace holds is UTF-8 */
    assert_int_equal(place->line, 7);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void refusal_of_a_destination_is_of_what_was_written_there(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 3, (int64_t[]){2, 4, 6});
    lp_copy(lp_select(d, 0, 0), lp_source(r, "a"));
    lp_copy(lp_select(d, 0, 1), lp_source(r, "b"));
    lp_item(lp_select(lp_select(lp_select(d, 0, 1), 0, 0), 0, 0));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_null(refusal_of(&x, "a"));
    assert_non_null(refusal_of(&x, "b"));
    assert_int_equal(x.rows->nrecord, 1);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void write_to_a_source_is_refused(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_source(r, "a"), lp_source(r, "b"));
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_non_null(refusal_of(&x, "a"));
    assert_int_equal(x.rows->nrecord, 0);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void cast_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "complex", LP_C64, SHAPE(4));
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){4}), lp_to_f32(lp_source(r, "complex")));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    const lp_refusal *refusal = refusal_of(&x, "complex");
    assert_non_null(refusal);
    assert_int_equal(x.rows->nrecord, 0);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- casts ---- */

static uint32_t flags_of(const lp_trace *t, const lp_record *record)
{
    return lp_trace_provenance(t, record->provenance)->flags;
}

static void casts_say_whether_they_were_meant(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "implicit", LP_BF16, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_copy(lp_declare(r, "meant", LP_BF16, 2, (int64_t[]){6, 4}), lp_t(lp_to(lp_source(r, "a"), LP_BF16)));
    lp_copy(lp_declare(r, "other", LP_I8, 1, (int64_t[]){16}), lp_source(r, "bytes"));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nrecord, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const lp_record *record = &x.rows->record[i];
        const char *dest = x.rows->dest[record->dest].name;
        if (strcmp(dest, "other") == 0) {
            assert_int_equal(record->kind, LP_KIND_COPY);
            assert_int_equal(flags_of(t, record), 0);
            continue;
        }
        assert_int_equal(record->kind, LP_KIND_CAST);
        assert_int_equal(record->src_dtype, LP_F32);
        assert_int_equal(record->dst_dtype, LP_BF16);
        assert_int_equal(flags_of(t, record), strcmp(dest, "implicit") == 0 ? LP_PROV_IMPLICIT_CAST : 0);
    }
    for (int64_t i = 0; i < 24; i++) { /* the transposed one has the same values elsewhere */
        const uint8_t *one = element_of(&x, "implicit", (int64_t[]){i / 6, i % 6});
        const uint8_t *two = element_of(&x, "meant", (int64_t[]){i % 6, i / 6});
        assert_memory_equal(one, two, 2);
    }
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- fills ---- */

static void fills_carry_their_trigger(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){5, 6});
    lp_tensor a = lp_source(r, "a");
    lp_copy(lp_narrow(d, 0, 0, 4), a);
    lp_fill(lp_narrow(d, 0, 4, 1), lp_bits_f32(1.0f), a);
    lp_zero(lp_declare(r, "begin", LP_F32, 1, (int64_t[]){3}), lp_at_begin(r));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_checked(t);
    int fills = 0;
    for (uint32_t i = 0; i < x.rows->nrecord; i++) {
        const lp_record *record = &x.rows->record[i];
        if (record->kind != LP_KIND_FILL)
            continue;
        fills++;
        const bool begin = strcmp(x.rows->dest[record->dest].name, "begin") == 0;
        assert_int_equal(record->name, begin ? LP_NAME_BEGIN : name_index(&x, "a"));
    }
    assert_int_equal(fills, 2);
    assert_zero(&x, "begin", 0, 12);
    float one;
    memcpy(&one, element_of(&x, "d", (int64_t[]){4, 5}), sizeof one);
    assert_true(one == 1.0f);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A loader that zeroes its source before loading it: the plan fills the destination and leaves the source alone. */
static void zeroed_source_becomes_a_fill(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor a = lp_source(r, "a");
    lp_zero(lp_narrow(a, 0, 1, 2), a);
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6}), a);
    lp_copy(lp_declare(r, "other", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "b"));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nrefusal, 0);
    assert_source(&x, "d", 0, "a", 0, 24);
    assert_zero(&x, "d", 24, 48);
    assert_source(&x, "d", 72, "a", 72, 24);
    assert_source(&x, "other", 0, "b", 0, 96);
    for (uint32_t i = 0; i < x.rows->nrecord; i++)
        assert_int_not_equal(x.rows->record[i].name, LP_NAME_BEGIN);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- destinations ---- */

static void declarations_are_kept(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_declare_with(r, &(lp_declaration){.name = "model.layers.3.experts.7.w",
                                         .dtype = LP_I32,
                                         .ndim = 3,
                                         .shape = (int64_t[]){2, 4, 3},
                                         .stride = (int64_t[]){64, 4, 16},
                                         .layout = "nvfp4_l1_scale",
                                         .layout_version = 2,
                                         .flags = LP_DEST_HAS_DUMMY,
                                         .dummy_bits = 7,
                                         .has_slots = true,
                                         .slot_dim = 0});
    lp_declare_with(r, &(lp_declaration){.name = "plain",
                                         .dtype = LP_U8,
                                         .ndim = 1,
                                         .shape = (int64_t[]){5},
                                         .group = "mine",
                                         .storage = "pool",
                                         .offset = 8});
    lp_declare_with(r, &(lp_declaration){.name = "scratch",
                                         .dtype = LP_U8,
                                         .ndim = 1,
                                         .shape = (int64_t[]){8},
                                         .storage = "pool",
                                         .flags = LP_DEST_NO_LOADER});
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    const lp_destination *d = dest_of(&x, "model.layers.3.experts.7.w");
    assert_string_equal(d->group, "layers.3");
    assert_string_equal(d->storage, "model.layers.3.experts.7.w");
    assert_int_equal(d->storage_bytes, 64 + 12 + 32 + 4);
    assert_int_equal(d->layout_version, 2);
    assert_string_equal(d->layout, "nvfp4_l1_scale");
    assert_int_equal(d->slot_dim, 0);
    assert_int_equal(d->slot_count, 2);
    assert_int_equal(d->dummy_bits, 7);
    d = dest_of(&x, "plain");
    assert_string_equal(d->group, "mine");
    assert_int_equal(d->slot_dim, -1);
    assert_int_equal(d->storage_bytes, 13);
    assert_int_equal(dest_of(&x, "scratch")->storage_bytes, 13); /* the one pool */
    assert_string_equal(dest_of(&x, "scratch")->group, "root");
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void impossible_destinations_are_misuse(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    const struct {
        lp_declaration d;
        lp_status status;
        const char *text;
    } cases[] = {
        {{.name = "x", .dtype = LP_F32, .ndim = 17}, LP_E_LIMIT, "17 dimensions"},
        {{.name = "x", .ndim = 0}, LP_E_ARGUMENT, "no dtype"},
        {{.name = "x", .dtype = LP_F32, .ndim = 1, .shape = (const int64_t[]){-1}}, LP_E_ARGUMENT, "negative extent"},
        {{.name = "x", .dtype = LP_F32, .ndim = 2, .shape = (const int64_t[]){INT64_MAX / 4, 8}}, LP_E_LIMIT, "large"},
        {{.name = "x", .dtype = LP_F4, .ndim = 2, .shape = (const int64_t[]){2, 3}}, LP_E_UNSUPPORTED, "whole bytes"},
        {{.name = "x", .dtype = LP_F32, .ndim = 1, .shape = (const int64_t[]){4}, .storage_bytes = 12},
         LP_E_ARGUMENT,
         "needs 16 bytes of a storage of 12"},
        {{.name = "x", .dtype = LP_F32, .ndim = 1, .shape = (const int64_t[]){4}, .has_slots = true, .slot_dim = 1},
         LP_E_ARGUMENT,
         "no dimension 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_error err;
        lp_recorder *r = open_scope(c, (lp_scope){0});
        lp_declare_with(r, &cases[i].d);
        assert_int_equal(lp_recorder_status(r, &err), cases[i].status);
        if (strstr(err.text, cases[i].text) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
        lp_recorder_close(r);
    }
    lp_error err;
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor scratch = lp_declare_with(
        r, &(lp_declaration){
               .name = "scratch", .dtype = LP_F32, .ndim = 2, .shape = (int64_t[]){4, 6}, .flags = LP_DEST_NO_LOADER});
    lp_copy(scratch, lp_source(r, "a"));
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    assert_non_null(strstr(err.text, "a copy into 'scratch', which no loader writes"));
    lp_recorder_close(r);
    lp_checkpoint_close(c);
}

/* Four-bit elements move as the bytes that two of them make. */
static void sub_byte_destinations(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "codes", LP_F4, SHAPE(4, 6));
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F4, 2, (int64_t[]){2, 6}), lp_narrow(lp_source(r, "codes"), 0, 1, 2));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(dest_of(&x, "d")->storage_bytes, 6);
    assert_source(&x, "d", 0, "codes", 3, 6);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void tied_destinations_share_bytes(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "embed", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_declare_tied(r, "head", "embed");
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_string_equal(dest_of(&x, "head")->storage, "embed");
    assert_true(dest_of(&x, "head")->flags & LP_DEST_TIED);
    assert_true(dest_of(&x, "embed")->flags & LP_DEST_TIED);
    assert_int_equal(x.rows->nrecord, 1);
    assert_source(&x, "head", 0, "a", 0, 96);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* One name into two places keeps both. */
static void one_name_feeds_two_destinations(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor one = lp_declare(r, "one", LP_F32, 2, (int64_t[]){4, 6});
    lp_copy(one, lp_source(r, "a"));
    lp_copy(lp_declare(r, "two", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_copy(lp_declare(r, "side", LP_F32, 2, (int64_t[]){6, 2}),
            lp_t(lp_narrow(one, 0, 2, 2))); /* from a destination */
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(records_of(&x, "a"), 3);
    assert_source(&x, "one", 0, "a", 0, 96);
    assert_source(&x, "two", 0, "a", 0, 96);
    for (int64_t i = 0; i < 12; i++)
        assert_memory_equal(element_of(&x, "side", (int64_t[]){i / 2, i % 2}),
                            element_of(&x, "one", (int64_t[]){2 + i % 2, i / 2}), 4);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void scopes_share_a_trace(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){.tp = 2});
    lp_error err;
    for (int rank = 0; rank < 2; rank++) {
        if (rank > 0)
            assert_int_equal(lp_recorder_next_scope(r, &(lp_scope){.tp = 2, .tp_rank = rank}, &err), LP_OK);
        lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){2, 6}), lp_chunk(lp_source(r, "a"), 0, 2, rank));
    }
    lp_trace *t = finish(r);
    assert_int_equal(lp_trace_scope_count(t), 2);
    for (int rank = 0; rank < 2; rank++) {
        run x = run_scope(t, rank);
        assert_source(&x, "d", 0, "a", rank * 48, 48);
        free_run(&x);
    }
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- memory ---- */

static lp_status record_something(const lp_checkpoint *c, const lp_platform *platform, lp_error *err)
{
    lp_recorder *r = NULL;
    lp_trace *t = NULL;
    const lp_recorder_options options = {.platform = platform};
    LP_TRY(lp_recorder_open_with(&r, c, &(lp_scope){0}, &options, err));
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){8, 6});
    lp_tensor e = lp_declare(r, "e", LP_F32, 2, (int64_t[]){4, 6});
    lp_copy(d, lp_cat(2, (lp_tensor[]){lp_source(r, "a"), lp_source(r, "b")}, 0));
    lp_zero(lp_source(r, "a"), lp_source(r, "a"));
    lp_copy(e, lp_source(r, "a"));
    lp_copy(lp_declare(r, "h", LP_F32, 1, (int64_t[]){8}), lp_source(r, "half"));
    lp_copy(lp_dest(r, "h"), lp_neg(lp_exp(lp_dest(r, "h"))));
    lp_item(lp_source(r, "bytes"));
    lp_require_close(r, lp_select(d, 0, 0), lp_select(d, 0, 4), 1e-5f, lp_name(r, "row {index} of %s", "d"));
    const lp_status status = lp_recorder_finish(r, &t, err);
    lp_trace_close(t);
    lp_recorder_close(r);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    int64_t n = 1;
    for (;; n++) {
        failing_alloc f = {.fail_at = n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_resize};
        const lp_platform platform = {.alloc = &alloc};
        lp_error err = {0};
        const lp_status status = record_something(c, &platform, &err);
        assert_int_equal(f.live, 0);
        if (status == LP_OK && f.calls < n)
            break;
        if (status != LP_E_MEMORY)
            fail_msg("allocation %lld: %s: %s", (long long)n, lp_status_name(status), err.text);
    }
    assert_true(n > 20);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_gate_up_is_the_ranks_rows),
        cmocka_unit_test(misuse_is_sticky_and_says_where),
        cmocka_unit_test(unknown_name_hints_at_the_nearest),
        cmocka_unit_test(scope_must_exist),
        cmocka_unit_test(host_read_refuses_that_name_only),
        cmocka_unit_test(places_may_have_any_path),
        cmocka_unit_test(refusal_of_a_destination_is_of_what_was_written_there),
        cmocka_unit_test(write_to_a_source_is_refused),
        cmocka_unit_test(cast_that_does_not_exist_is_refused),
        cmocka_unit_test(casts_say_whether_they_were_meant),
        cmocka_unit_test(fills_carry_their_trigger),
        cmocka_unit_test(zeroed_source_becomes_a_fill),
        cmocka_unit_test(declarations_are_kept),
        cmocka_unit_test(impossible_destinations_are_misuse),
        cmocka_unit_test(sub_byte_destinations),
        cmocka_unit_test(tied_destinations_share_bytes),
        cmocka_unit_test(one_name_feeds_two_destinations),
        cmocka_unit_test(scopes_share_a_trace),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
