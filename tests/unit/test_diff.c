/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule of diff: two traces that differ in one thing, and the finding that names it. */
#include "findings_testing.h"

#include "traces/diff_private.h"

/* ---- the trace that everything is compared with ---- */

/* What a variant does otherwise. */
typedef struct variant {
    bool swap_gate_up;      /* gate and up exchange their halves */
    bool cast_norm;         /* the norm goes into F32 */
    float constant;         /* of the derive; 0: 1.0 */
    float tolerance;        /* of the check; 0: 1e-5 */
    bool wide_out;          /* l2_scale has two elements */
    const char *layout;     /* of w13 */
    int32_t layout_version; /* likewise */
    int64_t move;           /* l2_scale starts here in a pool */
    bool refuse_scales;     /* every w2_input_scale is a host read */
    bool without_extra, more_extra;
    bool overlap, overlap_reversed;
    bool pad;          /* a fill of the tail that was left alone */
    bool rename_dests; /* "model." in front */
    bool read_more;    /* the norm reads all of its tensor */
    bool stage;        /* the derive stages the checkpoint's scales instead */
    const char *group;
    int ranks;          /* 0: 1 */
    const char *prefix; /* of checkpoint names */
} variant;

enum { LAYERS = 3, EXPERTS = 4, HALF = 32 };

static const char *format_name(const char *format, int layer, int expert)
{
    static char ring[8][96];
    static int next;
    char *buffer = ring[next++ % 8];
    snprintf(buffer, sizeof ring[0], "layers.%d.%s", layer, format);
    if (expert >= 0)
        snprintf(buffer, sizeof ring[0], "layers.%d.experts.%d.%s", layer, expert, format);
    return buffer;
}

static const char *prefixed(const variant *v, const char *name)
{
    static char ring[8][128];
    static int next;
    char *buffer = ring[next++ % 8];
    snprintf(buffer, sizeof ring[0], "%s%s", v->prefix != NULL ? v->prefix : "", name);
    return buffer;
}

static void add_tensor(lp_checkpoint *c, const char *name, lp_dtype dtype, int64_t count)
{
    assert_ok(lp_checkpoint_add(
        c,
        &(lp_checkpoint_tensor){.name = name, .dtype = dtype, .ndim = 1, .shape = &count, .file = -1, .file_off = -1},
        ERR));
}

static lp_checkpoint *make_checkpoint(const variant *v)
{
    lp_checkpoint *c;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int l = 0; l < LAYERS; l++) {
        for (int e = 0; e < EXPERTS; e++) {
            add_tensor(c, prefixed(v, format_name("gate", l, e)), LP_U8, HALF);
            add_tensor(c, prefixed(v, format_name("up", l, e)), LP_U8, HALF);
            add_tensor(c, prefixed(v, format_name("w2_input_scale", l, e)), LP_F32, 1);
        }
        add_tensor(c, prefixed(v, format_name("norm", l, -1)), LP_BF16, 16);
    }
    add_tensor(c, prefixed(v, "extra"), LP_U8, 16);
    assert_ok(lp_checkpoint_seal(c, ERR));
    return c;
}

static uint32_t declare(lp_trace *t, const variant *v, const char *name, lp_dtype dtype, int64_t count)
{
    char text[128];
    snprintf(text, sizeof text, "%s%s", v->rename_dests ? "model." : "", name);
    return add_dest_with(t,
                         (lp_destination){.name = text, .dtype = dtype, .ndim = 1, .shape = &count, .group = v->group});
}

static void add_layer(lp_trace *t, const variant *v, int l)
{
    const bool odd = v->layout != NULL && l == 1;
    const int64_t fused = 2 * HALF * EXPERTS;
    char name[128];
    snprintf(name, sizeof name, "%s%s", v->rename_dests ? "model." : "", format_name("w13", l, -1));
    const uint32_t w13 = add_dest_with(t, (lp_destination){.name = name,
                                                           .dtype = LP_U8,
                                                           .ndim = 1,
                                                           .shape = &fused,
                                                           .layout = odd ? v->layout : "rows",
                                                           .layout_version = odd ? v->layout_version : 1,
                                                           .group = v->group});
    const uint32_t scales = declare(t, v, format_name("scales", l, -1), LP_F32, EXPERTS);
    const uint32_t norm = declare(t, v, format_name("norm", l, -1), v->cast_norm ? LP_F32 : LP_BF16, 8);
    for (int e = 0; e < EXPERTS; e++) {
        const int64_t at = 2 * HALF * e;
        add_copy(t, prefixed(v, format_name("gate", l, e)), w13, 0, at + (v->swap_gate_up ? HALF : 0), HALF);
        add_copy(t, prefixed(v, format_name("up", l, e)), w13, 0, at + (v->swap_gate_up ? 0 : HALF), HALF);
        const char *scale = prefixed(v, format_name("w2_input_scale", l, e));
        if (v->refuse_scales)
            add_refusal(t, scale, scales, NULL, place_at(t, "model_loader/experts.py", 412, 0));
        else
            add_copy(t, scale, scales, 0, 4 * e, 4);
    }
    const char *norm_name = prefixed(v, format_name("norm", l, -1));
    if (v->cast_norm) {
        const lp_box box = {.run = 8};
        const lp_map *map;
        assert_ok(lp_map_from_boxes(&map, 2, 4, 1, &box, NULL, ERR));
        assert_ok(lp_trace_add_record(t,
                                      &(lp_record){.name = name_index(t, norm_name),
                                                   .dest = norm,
                                                   .src_dtype = LP_BF16,
                                                   .dst_dtype = LP_F32,
                                                   .map = map,
                                                   .provenance = LP_NONE},
                                      ERR));
        lp_map_free(map, NULL);
    } else if (v->read_more) {
        add_map(t, norm_name, norm, byte_map(0, 0, 2, 8, 4, 2), LP_NONE);
    } else {
        add_map(t, norm_name, norm, byte_map(0, 0, 2, 8, 0, 2), LP_NONE); /* one element, repeated */
    }
    const char *out_name = format_name("l2_scale", l, -1);
    const int64_t count = v->wide_out ? 2 : 1;
    snprintf(name, sizeof name, "%s%s", v->rename_dests ? "model." : "", out_name);
    const uint32_t out = add_dest_with(t, (lp_destination){.name = name,
                                                           .dtype = LP_F32,
                                                           .ndim = 1,
                                                           .shape = &count,
                                                           .group = v->group,
                                                           .storage = v->move > 0 ? "pool" : NULL,
                                                           .storage_bytes = v->move > 0 ? 4096 : 0,
                                                           .offset = v->move > 0 ? v->move + 16 * l : 0});
    const float constant = v->constant > 0 ? v->constant : 1.0f;
    if (v->stage)
        add_max_derive(t, out, true, name_index(t, format_name("w2_input_scale", l, 0)), 1, constant);
    else
        add_max_derive(t, out, false, scales, EXPERTS, constant);
    add_close_check(t, scales, EXPERTS, v->tolerance > 0 ? v->tolerance : 1e-5f);
}

static lp_trace *make(variant v)
{
    lp_trace *t;
    lp_checkpoint *c = make_checkpoint(&v);
    const int ranks = v.ranks > 0 ? v.ranks : 1;
    const lp_trace_header header = {.loader = "test", .layout = {.dp = 4}};
    assert_ok(lp_trace_new(&t, c, &header, NULL, ERR));
    lp_checkpoint_close(c);
    for (int rank = 0; rank < ranks; rank++) {
        assert_ok(lp_trace_begin_scope(t, &(lp_scope){.dp = 4, .dp_rank = rank}, ERR));
        for (int l = 0; l < LAYERS; l++)
            add_layer(t, &v, l);
        if (!v.without_extra) {
            const uint32_t extra = declare(t, &v, "extra", LP_U8, 24);
            const char *norm = prefixed(&v, "layers.0.norm"), *name = prefixed(&v, "extra");
            if (v.overlap_reversed)
                add_copy(t, norm, extra, 0, 8, 8);
            add_copy(t, name, extra, 0, 0, 16);
            if (v.overlap)
                add_copy(t, norm, extra, 0, 8, 8);
            if (v.pad)
                add_fill(t, LP_NAME_BEGIN, extra, 16, 8, 0);
        }
        if (v.more_extra)
            declare(t, &v, "more", LP_U8, 4);
    }
    assert_ok(lp_trace_seal(t, ERR));
    return t;
}

static lp_status diff_once(void *context, lp_error *err)
{
    lp_trace *const *t = context;
    lp_findings *f = NULL;
    const lp_status status = lp_diff(&f, t[0], t[1], err);
    assert_true((status == LP_OK) == (f != NULL));
    lp_findings_free(f);
    return status;
}

/* Whatever is found, in either direction, no allocation on the way to it is relied on. */
static void diff_without_memory(lp_trace *a, lp_trace *b)
{
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize, .exact = true};
    lp_trace *t[] = {a, b, a};
    for (int i = 0; i < 2; i++) {
        const lp_alloc *usual = t[i + 1]->platform.alloc;
        t[i + 1]->platform.alloc = &alloc;
        assert_true(fail_every_allocation(&faults, diff_once, &t[i]) > 1);
        t[i + 1]->platform.alloc = usual;
    }
}

static lp_findings *diff(variant base, variant changed)
{
    lp_trace *a = make(base), *b = make(changed);
    lp_findings *f;
    diff_without_memory(a, b);
    assert_ok(lp_diff(&f, a, b, ERR));
    lp_trace_close(a);
    lp_trace_close(b);
    return f; /* strings of findings are their own */
}

/* ---- cases ---- */

static void equal_traces_end_at_once(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.ranks = 2}, (variant){.ranks = 2});
    assert_int_equal(lp_findings_count(f), 0);
    assert_string_equal(lp_findings_summary(f), "no change: 2 ranks with equal plan digests");
    lp_findings_free(f);
}

static void a_gate_up_swap_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.swap_gate_up = true});
    const lp_finding *gate = expect(f, 2, "map_changed", "layers.*.experts.*.gate");
    assert_int_equal(gate->level, LP_DENY);
    assert_int_equal(gate->members, LAYERS * EXPERTS);
    assert_string_equal(gate->tensor, "layers.0.experts.0.gate");
    assert_int_equal(gate->byte_lo, HALF);
    assert_int_equal(gate->byte_hi, 2 * HALF);
    const lp_finding *up = expect(f, 2, "map_changed", "layers.*.experts.*.up");
    assert_int_equal(up->byte_lo, 0);
    assert_string_equal(lp_findings_summary(f), "2 families worse, 0 better: 24 tensors changed, 0 added, 0 removed");
    lp_findings_free(f);
}

static void a_changed_derive_constant_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.constant = 0.5f});
    const lp_finding *x = expect(f, 1, "derive_changed", "layers.*.l2_scale");
    assert_int_equal(x->members, LAYERS);
    assert_int_equal(x->level, LP_DENY);
    expect_text(x, "the derive of 'layers.0.l2_scale' has the constant 0.5, was 1");
    assert_string_equal(lp_findings_summary(f), "1 family worse, 0 better: layers.*.l2_scale (3 tensors)");
    lp_findings_free(f);
}

static void a_changed_tolerance_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.tolerance = 0.5f});
    expect_text(expect(f, 1, "derive_changed", "layers.*.scales"), "the tolerance 0.5, was 9.99999975e-06");
    lp_findings_free(f);
}

static void a_cast_in_place_of_a_copy_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.read_more = true}, (variant){.cast_norm = true});
    const lp_finding *x = finding_of(f, "kind_changed", "layers.*.norm");
    assert_non_null(x);
    assert_int_equal(x->level, LP_DENY);
    assert_int_equal(x->members, LAYERS);
    expect_text(x, "is a cast, was a copy (now cast from BF16 to F32)");
    const lp_finding *type = finding_of(f, "dest_type_changed", "layers.*.norm");
    assert_non_null(type);
    expect_text(type, "'layers.0.norm' is F32 [8], was BF16 [8]");
    lp_findings_free(f);
}

static void a_copy_in_place_of_a_replicate_reads_more(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.read_more = true});
    expect_text(expect(f, 2, "kind_changed", "layers.*.norm"), "is a copy, was a replicate");
    const lp_finding *x = expect(f, 2, "more_bytes_read", "layers.*.norm");
    assert_int_equal(x->level, LP_WARN);
    expect_text(x, "14 more bytes");
    lp_findings_free(f);
}

static void shapes_layouts_and_places_are_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.wide_out = true});
    expect_text(expect(f, 1, "dest_type_changed", "layers.*.l2_scale"), "is F32 [2], was F32 [1]");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.layout = "rows", .layout_version = 2});
    const lp_finding *x = expect(f, 1, "layout_changed", "layers.*.w13");
    assert_int_equal(x->members, 1);
    expect_text(x, "layout 'rows' version 2, had 'rows' version 1");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.layout = "columns", .layout_version = 1});
    expect_text(expect(f, 1, "layout_changed", "layers.*.w13"), "layout 'columns'");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.move = 64});
    expect_text(expect(f, 1, "dest_moved", "layers.*.l2_scale"),
                "at byte 64 of storage 'pool' (4096 bytes), was at byte 0");
    lp_findings_free(f);

    f = diff((variant){.move = 64}, (variant){.move = 128});
    expect_text(expect(f, 1, "dest_moved", "layers.*.l2_scale"), "at byte 128");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.group = "late"});
    assert_int_equal(lp_findings_worst(f), LP_DENY);
    expect_text(finding_of(f, "dest_type_changed", "layers.*.w13"), "commit group 'late', was 'root'");
    lp_findings_free(f);
}

static void copies_that_became_refusals_are_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.ranks = 2}, (variant){.refuse_scales = true, .ranks = 2});
    const lp_finding *x = expect(f, 1, "copy_became_refusal", "layers.*.experts.*.w2_input_scale");
    assert_int_equal(x->level, LP_DENY);
    assert_int_equal(x->members, LAYERS * EXPERTS);
    assert_string_equal(x->file, "model_loader/experts.py");
    assert_int_equal(x->line, 412);
    assert_string_equal(x->text,
                        "aten.max (over a CPU copy) at model_loader/experts.py:412: the name now falls back to "
                        "the engine on every load");
    assert_string_equal(x->hint, "write each value into its own slot and let a derive take the maximum");
    assert_string_equal(lp_findings_summary(f),
                        "1 family worse, 0 better: layers.*.experts.*.w2_input_scale (12 tensors)");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.refuse_scales = true, .more_extra = true});
    assert_string_equal(lp_findings_summary(f), "2 families worse, 0 better: 0 tensors changed, 1 added, 0 removed; "
                                                "12 copies became refusals");
    lp_findings_free(f);

    f = diff((variant){.refuse_scales = true}, (variant){0});
    assert_int_equal(expect(f, 1, "refusal_became_copy", NULL)->level, LP_ALLOW);
    assert_string_equal(lp_findings_summary(f), "0 families worse, 1 better: 0 tensors changed, 0 added, 0 removed");
    lp_findings_free(f);
}

static void a_name_that_was_not_loaded_may_be_refused(void **unused)
{
    (void)unused;
    lp_trace *a = small_trace(2, 16, NULL), *b = small_trace(2, 16, NULL);
    add_copy(a, "n0", add_dest(a, "w", 16), 0, 0, 16);
    add_copy(b, "n0", add_dest(b, "w", 16), 0, 0, 16);
    add_refusal(b, "n1", LP_NONE, NULL, place_at(b, "l.py", 7, 0));
    lp_findings *f;
    assert_ok(lp_trace_seal(a, ERR));
    assert_ok(lp_trace_seal(b, ERR));
    assert_ok(lp_diff(&f, a, b, ERR));
    assert_int_equal(expect(f, 1, "new_refusal", "n1")->line, 7);
    lp_findings_free(f);
    assert_ok(lp_diff(&f, b, a, ERR));
    expect_text(expect(f, 1, "map_changed", "n1"), "neither loaded nor refused");
    lp_findings_free(f);
    lp_trace_close(a);
    lp_trace_close(b);
}

static void destinations_come_and_go(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.without_extra = true});
    const lp_finding *x = expect(f, 1, "dest_vanished", "extra");
    assert_int_equal(x->level, LP_DENY);
    assert_string_equal(lp_findings_summary(f), "1 family worse, 0 better: extra (1 tensor)");
    lp_findings_free(f);
    f = diff((variant){0}, (variant){.more_extra = true});
    assert_int_equal(expect(f, 1, "dest_added", "more")->level, LP_WARN);
    lp_findings_free(f);
}

static void new_order_is_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.overlap = true});
    const lp_finding *x = finding_of(f, "new_order_dependence", "extra");
    assert_non_null(x);
    assert_int_equal(x->level, LP_DENY);
    assert_non_null(finding_of(f, "map_changed", "layers.*.norm"));
    lp_findings_free(f);
    /* the other one wins */
    f = diff((variant){.overlap = true}, (variant){.overlap_reversed = true});
    assert_int_equal(lp_findings_count(f), 2);
    expect_text(finding_of(f, "map_changed", "extra"),
                "number 2 of the names that write the same bytes of 'extra', was 1");
    lp_findings_free(f);
}

static void fills_and_staging_are_seen(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.pad = true});
    const lp_finding *x = expect(f, 1, "fill_added", "extra");
    assert_int_equal(x->level, LP_ALLOW);
    assert_int_equal(x->byte_lo, 16);
    assert_int_equal(x->byte_hi, 24);
    lp_findings_free(f);
    f = diff((variant){.pad = true}, (variant){0});
    expect_text(expect(f, 1, "map_changed", "extra"), "no longer writes bytes [16, 24)");
    lp_findings_free(f);
    f = diff((variant){0}, (variant){.stage = true});
    assert_non_null(finding_of(f, "derive_changed", "layers.*.l2_scale"));
    const lp_finding *staged = finding_of(f, "more_bytes_staged", "layers.*.experts.*.w2_input_scale");
    assert_non_null(staged);
    assert_int_equal(staged->level, LP_WARN);
    assert_int_equal(staged->members, LAYERS);
    expect_text(staged, "4 more bytes of 'layers.0.experts.0.w2_input_scale' are staged");
    lp_findings_free(f);
}

static void renamed_families_are_not_changes(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.rename_dests = true});
    assert_int_equal(lp_findings_worst(f), LP_ALLOW);
    const lp_finding *x = finding_of(f, "family_renamed", "model.layers.*.w13");
    assert_non_null(x);
    assert_int_equal(x->members, LAYERS);
    expect_text(x, "'layers.0.w13' is now called 'model.layers.0.w13'");
    lp_findings_free(f);

    f = diff((variant){0}, (variant){.prefix = "language_model."});
    assert_int_equal(lp_findings_worst(f), LP_ALLOW);
    assert_non_null(finding_of(f, "family_renamed", "language_model.layers.*.experts.*.gate"));
    lp_findings_free(f);

    /* renamed and changed: the change is still seen */
    f = diff((variant){0}, (variant){.rename_dests = true, .constant = 2.0f});
    assert_non_null(finding_of(f, "derive_changed", "model.layers.*.l2_scale"));
    lp_findings_free(f);
}

static void scopes_of_one_side_are_told(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){.ranks = 2}, (variant){.ranks = 1});
    const lp_finding *x = finding_of(f, "dest_vanished", "layers.*.w13");
    assert_non_null(x);
    assert_int_equal(x->rank, 1);
    expect_text(x, "rank 1 is no longer in the trace");
    lp_findings_free(f);
    f = diff((variant){.ranks = 1}, (variant){.ranks = 2});
    x = finding_of(f, "dest_added", "layers.*.w13");
    assert_non_null(x);
    expect_text(x, "rank 1 is new in the trace");
    lp_findings_free(f);
}

static void findings_come_worst_first(void **unused)
{
    (void)unused;
    lp_findings *f = diff((variant){0}, (variant){.pad = true, .swap_gate_up = true, .more_extra = true});
    lp_level last = LP_DENY;
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        assert_true(lp_findings_at(f, i)->level <= last);
        last = lp_findings_at(f, i)->level;
    }
    assert_int_equal(last, LP_ALLOW);
    /* other levels sort and sum up again */
    assert_ok(lp_findings_set_level(f, lp_rule_find("map_changed"), LP_ALLOW, ERR));
    assert_int_equal(lp_findings_worst(f), LP_WARN);
    assert_string_equal(lp_findings_at(f, 0)->rule->id, "dest_added");
    lp_findings_free(f);
}

/* ---- other forms of the same bytes ---- */

static lp_record record_of(const lp_map *map, int64_t src_off, int64_t dst_off)
{
    return (lp_record){.kind = LP_KIND_COPY, .map = map, .src_off = src_off, .dst_off = dst_off};
}

/* Beyond the work bound of the canonical form two forms may mean the same: they are walked side by side. */
static void other_forms_of_the_same_bytes_are_equal(void **unused)
{
    (void)unused;
    const int64_t n = INT64_C(5) << 20;
    /* 4-byte runs every 8 bytes: once as one mode, once as pairs, and once with a last pair that reads elsewhere */
    const lp_mode one[] = {{.extent = n, .src_stride = 4, .dst_stride = 8}};
    const lp_mode pairs[] = {{.extent = n / 2, .src_stride = 8, .dst_stride = 16},
                             {.extent = 2, .src_stride = 4, .dst_stride = 8}};
    const lp_mode most[] = {{.extent = n / 2 - 1, .src_stride = 8, .dst_stride = 16},
                            {.extent = 2, .src_stride = 4, .dst_stride = 8}};
    const lp_box one_box[] = {{.run = 4, .rank = 1, .mode = one}}, pair_box[] = {{.run = 4, .rank = 2, .mode = pairs}};
    const lp_box odd_box[] = {{.run = 4, .rank = 2, .mode = most},
                              {.run = 4, .dst_off = (n - 2) * 8, .src_off = (n - 2) * 4, .rank = 0, .mode = most},
                              {.run = 4, .dst_off = (n - 1) * 8, .src_off = (n - 3) * 4, .rank = 0, .mode = most}};
    const lp_map base = {.src_elem = 1, .dst_elem = 1, .dst_bytes = 4 * n, .dst_hi = n * 8 - 4, .src_hi = n * 4};
    lp_pooled_map a = {.map = base}, b = {.map = base}, c = {.map = base};
    a.map.nbox = b.map.nbox = 1;
    a.map.box = one_box;
    b.map.box = pair_box;
    c.map.nbox = 3;
    c.map.box = odd_box;
    lp_differ d = {.runs_left = LP_DIFF_RUNS_MAX};
    bool same, known;
    const lp_record x = record_of(&a.map, 8, 16), y = record_of(&b.map, 8, 16), z = record_of(&c.map, 8, 16);
    assert_ok(lp_diff_same_bytes(&d, &x, &y, &same, &known, ERR));
    assert_true(same && known);
    assert_ok(lp_diff_same_bytes(&d, &x, &z, &same, &known, ERR));
    assert_true(!same && known);
    const lp_record moved = record_of(&b.map, 12, 16);
    assert_ok(lp_diff_same_bytes(&d, &x, &moved, &same, &known, ERR));
    assert_true(!same && known);
    d.runs_left = 1000; /* too large to be compared: never silently the same */
    assert_ok(lp_diff_same_bytes(&d, &x, &y, &same, &known, ERR));
    assert_true(!same && !known);
    lp_release(NULL, (void *)d.equal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_traces_end_at_once),
        cmocka_unit_test(a_gate_up_swap_is_seen),
        cmocka_unit_test(a_changed_derive_constant_is_seen),
        cmocka_unit_test(a_changed_tolerance_is_seen),
        cmocka_unit_test(a_cast_in_place_of_a_copy_is_seen),
        cmocka_unit_test(a_copy_in_place_of_a_replicate_reads_more),
        cmocka_unit_test(shapes_layouts_and_places_are_seen),
        cmocka_unit_test(copies_that_became_refusals_are_seen),
        cmocka_unit_test(a_name_that_was_not_loaded_may_be_refused),
        cmocka_unit_test(destinations_come_and_go),
        cmocka_unit_test(new_order_is_seen),
        cmocka_unit_test(fills_and_staging_are_seen),
        cmocka_unit_test(renamed_families_are_not_changes),
        cmocka_unit_test(scopes_of_one_side_are_told),
        cmocka_unit_test(findings_come_worst_first),
        cmocka_unit_test(other_forms_of_the_same_bytes_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
