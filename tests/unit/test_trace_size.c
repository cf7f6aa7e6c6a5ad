/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace file costs: experts over ranks next to nothing, records without anything in common a bounded number. */
#include "trace_fixture.h"

#include "traces/trace_file.h"

enum { SIZE_LAYERS = 12, SIZE_EXPERTS = 128, SIZE_RANKS = 8, SIZE_LOCAL = SIZE_EXPERTS / SIZE_RANKS };

static const char *const parts[] = {"gate_proj.weight", "gate_proj.scale",  "up_proj.weight",
                                    "up_proj.scale",    "down_proj.weight", "down_proj.scale"};
enum { PARTS = sizeof parts / sizeof parts[0], PART_BYTES = 4096 };

static void part_name(char name[96], int layer, int expert, int part)
{
    snprintf(name, 96, "model.layers.%d.mlp.experts.%d.%s", layer, expert, parts[part]);
}

static void add_rank(lp_trace *t, int rank)
{
    char name[96];
    const lp_view src = fix_view(LP_U8, 1, (int64_t[]){PART_BYTES});
    const int64_t slots[] = {SIZE_LOCAL, PARTS, PART_BYTES};
    FIX_OK(lp_trace_begin_scope(t, &(lp_scope){.tp = SIZE_RANKS, .tp_rank = rank, .expert_parallel = true}, &fix_err));
    for (int l = 0; l < SIZE_LAYERS; l++) {
        snprintf(name, sizeof name, "layers.%d.experts", l);
        const uint32_t dest = fix_dest(t, name, LP_U8, 3, slots, NULL, 0, 0, 0);
        for (int s = 0; s < SIZE_LOCAL; s++)
            for (int p = 0; p < PARTS; p++) {
                lp_view dst = fix_view(LP_U8, 3, slots);
                FIX_OK(lp_view_select(&dst, 0, s, &fix_err));
                FIX_OK(lp_view_select(&dst, 0, p, &fix_err));
                part_name(name, l, rank * SIZE_LOCAL + s, p);
                fix_copy(t, name, &src, dest, &dst, (int64_t)SIZE_LOCAL * PARTS * PART_BYTES, LP_NONE);
            }
    }
}

static lp_trace *expert_trace(void)
{
    lp_checkpoint *c;
    lp_trace *t;
    char name[96];
    int64_t off = 80;
    FIX_OK(lp_checkpoint_new(&c, NULL, &fix_err));
    FIX_OK(lp_checkpoint_add_file(c, &(lp_checkpoint_file){.path = "model.safetensors", .size_bytes = -1}, &fix_err));
    for (int l = 0; l < SIZE_LAYERS; l++)
        for (int e = 0; e < SIZE_EXPERTS; e++)
            for (int p = 0; p < PARTS; p++) {
                part_name(name, l, e, p);
                fix_add(c, name, LP_U8, 1, (int64_t[]){PART_BYTES}, 0, &off);
            }
    FIX_OK(lp_checkpoint_seal(c, &fix_err));
    FIX_OK(
        lp_trace_new(&t, c, &(lp_trace_header){.layout = {.tp = SIZE_RANKS, .expert_parallel = true}}, NULL, &fix_err));
    lp_checkpoint_close(c);
    for (int r = 0; r < SIZE_RANKS; r++)
        add_rank(t, r);
    FIX_OK(lp_trace_seal(t, &fix_err));
    return t;
}

static int64_t image_bytes(const lp_trace *t, bool compare)
{
    uint8_t *image;
    int64_t bytes;
    lp_trace *back;
    FIX_OK(lp_trace_image(t, &image, &bytes, &fix_err));
    FIX_OK(lp_trace_open_image(&back, image, bytes, "x.lpt", NULL, &fix_err));
    fix_same(t, back, compare);
    lp_trace_close(back);
    sqlite3_free(image);
    return bytes;
}

static void experts_over_ranks_cost_next_to_nothing(void **state)
{
    (void)state;
    const int64_t records = (int64_t)SIZE_LAYERS * SIZE_EXPERTS * PARTS;
    lp_trace *t = expert_trace();
    /* Empty tables take a page each: that is not a cost of records. */
    const int64_t empty = (LP_TRACE_TABLES + 1) * LP_TRACE_PAGE_BYTES, bytes = image_bytes(t, true);
    printf("%lld records: %lld bytes, %.2f a record beyond the empty file\n", (long long)records, (long long)bytes,
           (double)(bytes - empty) / (double)records);
    assert_true(bytes - empty <= 4 * records);
    lp_trace_close(t);
}

static uint64_t random_state = 20240611;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Names, shapes, destinations, offsets and maps of no pattern at all. */
static lp_trace *random_trace(int records)
{
    lp_checkpoint *c;
    lp_trace *t;
    char name[96];
    int64_t off = 8;
    FIX_OK(lp_checkpoint_new(&c, NULL, &fix_err));
    FIX_OK(lp_checkpoint_add_file(c, &(lp_checkpoint_file){.path = "model.safetensors", .size_bytes = -1}, &fix_err));
    for (int i = 0; i < records; i++) {
        snprintf(name, sizeof name, "%016llx", (unsigned long long)next_random());
        const int64_t shape[] = {1024 + (int64_t)(next_random() % 4096), 1024 + (int64_t)(next_random() % 4096)};
        fix_add(c, name, next_random() % 2 == 0 ? LP_U8 : LP_I8, 2, shape, 0, &off);
    }
    FIX_OK(lp_checkpoint_seal(c, &fix_err));
    FIX_OK(lp_trace_new(&t, c, NULL, NULL, &fix_err));
    FIX_OK(lp_trace_begin_scope(t, &(lp_scope){0}, &fix_err));
    for (int i = 0; i < records; i++) {
        const lp_checkpoint_tensor *tensor = lp_checkpoint_at(c, i);
        const int64_t rows = 2 + (int64_t)(next_random() % (uint64_t)(tensor->shape[0] - 2));
        const int64_t run = 1 + (int64_t)(next_random() % (uint64_t)(tensor->shape[1] - 1));
        const int64_t stride = run + 1 + (int64_t)(next_random() % 500), gap = (int64_t)(next_random() % 100000);
        const int64_t least = gap + rows * stride;
        snprintf(name, sizeof name, "d.%012llx", (unsigned long long)next_random());
        const uint32_t dest = fix_dest(t, name, LP_U8, 1, &least, NULL, 0, 0, 0);
        const lp_mode mode = {.extent = rows, .src_stride = tensor->shape[1], .dst_stride = stride};
        const int64_t room = tensor->bytes - ((rows - 1) * tensor->shape[1] + run) + 1;
        const lp_box box = {
            .src_off = (int64_t)(next_random() % (uint64_t)room), .dst_off = gap, .run = run, .rank = 1, .mode = &mode};
        const lp_map *map;
        FIX_OK(lp_map_from_boxes(&map, 1, 1, 1, &box, NULL, &fix_err));
        FIX_OK(lp_trace_add_record(
            t, &(lp_record){.name = (uint32_t)i, .dest = dest, .map = map, .provenance = LP_NONE}, &fix_err));
        lp_map_free(map, NULL);
    }
    lp_checkpoint_close(c);
    FIX_OK(lp_trace_seal(t, &fix_err));
    return t;
}

static void nothing_in_common_costs_a_bounded_number(void **state)
{
    (void)state;
    const int records = 8000;
    lp_trace *t = random_trace(records);
    const int64_t bytes = image_bytes(t, false);
    printf("%d records: %lld bytes, %.1f a record\n", records, (long long)bytes, (double)bytes / records);
    assert_true(bytes <= 60 * records);
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_over_ranks_cost_next_to_nothing),
        cmocka_unit_test(nothing_in_common_costs_a_bounded_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
