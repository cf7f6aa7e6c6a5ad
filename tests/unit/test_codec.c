/* SPDX-License-Identifier: Apache-2.0 */
/* Columns, names and frames of trace files (docs/format.md F1-F6; rules R6, R10, R15). */
#include "traces/column_codec.h"
#include "tests/random_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void round_trip(const int64_t *value, int64_t count, int64_t most_bytes)
{
    lp_text packed;
    lp_text_init(&packed, NULL);
    lp_pack_column(&packed, value, count);
    assert_false(packed.failed);
    if (most_bytes >= 0)
        assert_true(packed.bytes <= most_bytes);
    if (count == 0)
        return; /* no value takes no byte */
    int64_t *back = malloc((size_t)count * sizeof *back);
    lp_unpacker in = {.at = (const uint8_t *)packed.data, .end = (const uint8_t *)packed.data + packed.bytes};
    lp_unpack_column(&in, back, count);
    assert_false(in.failed);
    assert_ptr_equal(in.at, in.end);
    assert_memory_equal(back, value, (size_t)count * sizeof *value);
    /* Every shorter input fails, and never reads beyond its end. */
    for (int64_t cut = 0; cut<packed.bytes; cut += packed.bytes> 64 ? 17 : 1) {
        uint8_t *part = malloc((size_t)cut + 1);
        memcpy(part, packed.data, (size_t)cut);
        in = (lp_unpacker){.at = part, .end = part + cut};
        lp_unpack_column(&in, back, count);
        assert_true(in.failed);
        free(part);
    }
    free(back);
    lp_text_free(&packed);
}

static void columns_of_every_form_come_back(void **state)
{
    (void)state;
    enum { N = 1000 };
    int64_t value[N] = {0};
    round_trip(value, 0, 0);
    value[0] = INT64_MIN;
    round_trip(value, 1, 11);
    for (int i = 0; i < N; i++)
        value[i] = 1 << 20;
    round_trip(value, N, 11);
    for (int i = 0; i < N; i++)
        value[i] = 7 + 12345 * (int64_t)i;
    round_trip(value, N, 21);
    for (int i = 0; i < N; i++)
        value[i] = (int64_t)i * i;
    round_trip(value, N, N + 4);
    for (int i = 0; i < N; i++)
        value[i] = 1000000 + (i * 7919) % 50;
    round_trip(value, N, 2 * N);
    for (int i = 0; i < N; i++)
        value[i] = i % 2 == 0 ? INT64_MAX : INT64_MIN;
    round_trip(value, N, -1);
}

static void random_columns_come_back(void **state)
{
    (void)state;
    const uint64_t seed = random_first_seed(20240607);
    printf("seed %llu\n", (unsigned long long)seed);
    random_state = seed | 1;
    int64_t value[64];
    for (int round = 0; round < 3000; round++) {
        const int64_t count = (int64_t)(next_random() % 64);
        const int width = (int)(next_random() % 64);
        for (int64_t i = 0; i < count; i++)
            value[i] = (int64_t)(next_random() >> width) * (next_random() % 2 == 0 ? 1 : -1);
        round_trip(value, count, -1);
    }
}

static void varints_have_one_spelling(void **state)
{
    (void)state;
    const uint8_t longer[] = {0x80, 0x00}, too_wide[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
                  widest[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    lp_unpacker in = {.at = longer, .end = longer + sizeof longer};
    lp_unpack_u64(&in);
    assert_true(in.failed);
    in = (lp_unpacker){.at = too_wide, .end = too_wide + sizeof too_wide};
    lp_unpack_u64(&in);
    assert_true(in.failed);
    in = (lp_unpacker){.at = widest, .end = widest + sizeof widest};
    assert_true(lp_unpack_u64(&in) == UINT64_MAX);
    assert_false(in.failed);
}

static void names_come_back(void **state)
{
    (void)state;
    enum { N = 500 };
    static char text[N][64];
    const char *name[N], *back[N];
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "model.layers.%03d.mlp.experts.%d.up_proj.weight", i / 10, i % 10);
        name[i] = text[i];
    }
    lp_text packed;
    lp_text_init(&packed, NULL);
    lp_error err;
    assert_int_equal(lp_pack_names(&packed, name, N, NULL, &err), LP_OK);
    lp_arena arena;
    lp_arena_init(&arena, NULL);
    lp_unpacker in = {.at = (const uint8_t *)packed.data, .end = (const uint8_t *)packed.data + packed.bytes};
    int64_t budget = 1 << 20;
    assert_int_equal(lp_unpack_names(&in, back, N, true, &budget, &arena, &err), LP_OK);
    assert_false(in.failed);
    for (int i = 0; i < N; i++)
        assert_string_equal(back[i], name[i]);
    /* Names that expand beyond the budget are refused: front coding multiplies. */
    in = (lp_unpacker){.at = (const uint8_t *)packed.data, .end = (const uint8_t *)packed.data + packed.bytes};
    budget = 1000;
    assert_int_equal(lp_unpack_names(&in, back, N, true, &budget, &arena, &err), LP_OK);
    assert_true(in.failed);
    /* Twice the same name is not sorted. */
    name[1] = name[0];
    packed.bytes = 0;
    assert_int_equal(lp_pack_names(&packed, name, N, NULL, &err), LP_OK);
    in = (lp_unpacker){.at = (const uint8_t *)packed.data, .end = (const uint8_t *)packed.data + packed.bytes};
    budget = 1 << 20;
    assert_int_equal(lp_unpack_names(&in, back, N, true, &budget, &arena, &err), LP_OK);
    assert_true(in.failed);
    lp_arena_free(&arena);
    lp_text_free(&packed);
}

static void a_name_beyond_the_limit_is_refused(void **state) /* R6 */
{
    (void)state;
    char *text = malloc(LP_NAME_BYTES_MAX + 2);
    memset(text, 'a', LP_NAME_BYTES_MAX + 1);
    text[LP_NAME_BYTES_MAX + 1] = '\0';
    const char *name = text;
    lp_text packed;
    lp_text_init(&packed, NULL);
    lp_error err;
    assert_int_equal(lp_pack_names(&packed, &name, 1, NULL, &err), LP_E_LIMIT);
    text[LP_NAME_BYTES_MAX] = '\0';
    assert_int_equal(lp_pack_names(&packed, &name, 1, NULL, &err), LP_OK);
    lp_text_free(&packed);
    free(text);
}

/* `expected` is what a frame that is accepted must hold, whatever was done to it. */
static lp_status unpack(const lp_text *frame, int64_t bytes, int64_t budget, const char *expected, lp_error *err)
{
    lp_codec codec = {0};
    uint8_t *copy = malloc((size_t)bytes + 1), *raw = NULL;
    memcpy(copy, frame->data, (size_t)bytes);
    int64_t raw_bytes = 0;
    const lp_status status =
        lp_frame_unpack(&codec, NULL, copy, bytes, &budget, "frame 1 of 'x'", &raw, &raw_bytes, err);
    if (status == LP_OK)
        assert_memory_equal(raw, expected, (size_t)raw_bytes);
    lp_release(NULL, raw);
    lp_codec_free(&codec);
    free(copy);
    return status;
}

static void a_damaged_frame_is_refused(void **state) /* R15 */
{
    (void)state;
    lp_codec codec = {0};
    lp_text frame;
    lp_text_init(&frame, NULL);
    lp_error err = {0};
    char raw[300];
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (char)(i * i % 251);
    assert_int_equal(lp_frame_pack(&codec, raw, sizeof raw, &frame, &err), LP_OK);
    assert_int_equal(lp_frame_raw_bytes(frame.data, frame.bytes), sizeof raw);
    assert_int_equal(unpack(&frame, frame.bytes, sizeof raw, raw, &err), LP_OK);
    assert_int_equal(unpack(&frame, frame.bytes, (int64_t)sizeof raw - 1, raw, &err), LP_E_HOSTILE);
    assert_non_null(strstr(err.text, "frame 1 of 'x'"));
    for (int64_t cut = 0; cut < frame.bytes; cut++)
        assert_int_equal(unpack(&frame, cut, 1 << 20, raw, &err), LP_E_CORRUPT);
    /* zstd ignores a few bits of its heads: such a flip is accepted, but only with the right content. */
    int accepted = 0;
    for (int64_t i = 0; i < frame.bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            frame.data[i] = (char)(frame.data[i] ^ (1 << bit));
            accepted += unpack(&frame, frame.bytes, 1 << 20, raw, &err) == LP_OK;
            frame.data[i] = (char)(frame.data[i] ^ (1 << bit));
        }
    printf("%d flips change nothing\n", accepted);
    assert_true(accepted <= 8);
    lp_text_add(&frame, "x", 1);
    assert_int_equal(unpack(&frame, frame.bytes, 1 << 20, raw, &err), LP_E_CORRUPT);
    lp_text_free(&frame);
    lp_codec_free(&codec);
}

static void equal_input_gives_equal_frames(void **state) /* R10 */
{
    (void)state;
    lp_codec one = {0}, other = {0};
    lp_text a, b;
    lp_text_init(&a, NULL);
    lp_text_init(&b, NULL);
    lp_error err;
    char raw[5000];
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (char)(i / 7);
    assert_int_equal(lp_frame_pack(&one, raw, 100, &a, &err), LP_OK);
    a.bytes = 0;
    assert_int_equal(lp_frame_pack(&one, raw, sizeof raw, &a, &err), LP_OK);
    assert_int_equal(lp_frame_pack(&other, raw, sizeof raw, &b, &err), LP_OK);
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_equal(a.data, b.data, (size_t)a.bytes);
    lp_text_free(&a);
    lp_text_free(&b);
    lp_codec_free(&one);
    lp_codec_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_of_every_form_come_back),    cmocka_unit_test(random_columns_come_back),
        cmocka_unit_test(varints_have_one_spelling),          cmocka_unit_test(names_come_back),
        cmocka_unit_test(a_name_beyond_the_limit_is_refused), cmocka_unit_test(a_damaged_frame_is_refused),
        cmocka_unit_test(equal_input_gives_equal_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
