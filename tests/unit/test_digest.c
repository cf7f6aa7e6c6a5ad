/* SPDX-License-Identifier: Apache-2.0 */
/* Value digests: published vectors, independence of order and strides, dependence on place; the sidecar file. */
#include "replay_testing.h"

#include "traces/base.h"

#include <unistd.h>

static void assert_digest(const void *data, int64_t bytes, const char *hex)
{
    uint8_t digest[LP_VALUE_DIGEST_BYTES];
    char text[2 * LP_VALUE_DIGEST_BYTES + 1];
    lp_value_digest(data, bytes, digest);
    lp_format_hex(text, digest, sizeof digest);
    assert_string_equal(text, hex);
}

/* Made by the Python lines of docs/value-digest.md. */
static void test_published_vectors(void **state)
{
    (void)state;
    uint8_t rising[256];
    for (int i = 0; i < 256; i++)
        rising[i] = (uint8_t)i;
    uint8_t *many = malloc(1000000);
    assert_non_null(many);
    memset(many, 0x5a, 1000000);
    assert_digest("", 0, "5d82907a95c0c338272565370a8006e2");
    assert_digest("\0", 1, "91118bd6ace327cf790d74cbb50ebaec");
    assert_digest("\0\0", 2, "91dc2bf289ab1e19ddb5811ad5dfa663");
    assert_digest("abc", 3, "43f3544ae9491f5ef6e4144e57beb315");
    assert_digest("01234567", 8, "d968209409ab78a9019b95d07fd3428d");
    assert_digest("76543210", 8, "609978d5a85b94dac5c4a73b4ea5a246");
    assert_digest(rising, 256, "50bc6bbdbf1fdab0d584504732aa755d");
    assert_digest(many, 1000000, "68385ea8c8bc1c27b1302461c648e798");
    free(many);
}

static void test_parts_in_any_order(void **state)
{
    (void)state;
    uint8_t data[1000], whole[LP_VALUE_DIGEST_BYTES], parts[LP_VALUE_DIGEST_BYTES];
    for (int i = 0; i < 1000; i++)
        data[i] = (uint8_t)(i * 37 + i / 7);
    lp_value_digest(data, 997, whole);
    lp_value_sum sum = {{0, 0}};
    lp_value_sum_add(&sum, 800, data + 800, 197);
    lp_value_sum_add(&sum, 0, data, 8);
    lp_value_sum_add(&sum, 80, data + 80, 720);
    lp_value_sum_add(&sum, 8, data + 8, 72);
    lp_value_sum_end(&sum, 997, parts);
    assert_memory_equal(whole, parts, sizeof whole);
}

static void test_swaps_and_lengths_are_seen(void **state)
{
    (void)state;
    uint8_t rows[2][64], a[LP_VALUE_DIGEST_BYTES], b[LP_VALUE_DIGEST_BYTES];
    for (int i = 0; i < 64; i++) {
        rows[0][i] = (uint8_t)(i * 3);
        rows[1][i] = (uint8_t)(200 - i);
    }
    lp_value_digest(rows, 128, a);
    uint8_t swapped[2][64];
    memcpy(swapped[0], rows[1], 64);
    memcpy(swapped[1], rows[0], 64);
    lp_value_digest(swapped, 128, b);
    assert_memory_not_equal(a, b, sizeof a);
    const uint8_t zero[32] = {0};
    for (int64_t n = 0; n < 31; n++) { /* zeros of different lengths */
        lp_value_digest(zero, n, a);
        lp_value_digest(zero, n + 1, b);
        assert_memory_not_equal(a, b, sizeof a);
    }
    for (int bit = 0; bit < 512; bit++) { /* one bit anywhere changes both lanes */
        uint8_t flipped[64];
        memcpy(flipped, rows[0], 64);
        flipped[bit / 8] ^= (uint8_t)(1u << bit % 8);
        lp_value_digest(rows[0], 64, a);
        lp_value_digest(flipped, 64, b);
        assert_memory_not_equal(a, b, 8);
        assert_memory_not_equal(a + 8, b + 8, 8);
    }
}

/* Three destinations with the same logical values: dense, with gaps, transposed. */
static void test_strides_do_not_matter(void **state)
{
    (void)state;
    world w;
    memset(&w, 0, sizeof w);
    w.random = 3;
    const int from = add_source(&w, "x", LP_F32, 5, 7);
    const int dense = add_dest(&w, "dense", LP_F32, 5, 7, 0, "g"), gaps = add_dest(&w, "gaps", LP_F32, 5, 7, 12, "g");
    const int turned = add_dest(&w, "turned", LP_F32, 5, 7, 0, "g");
    w.dest[turned].stride[0] = 4;
    w.dest[turned].stride[1] = 20;
    add_copy(&w, from, dense, 0, 5, 0);
    add_copy(&w, from, gaps, 0, 5, 0);
    add_copy(&w, from, turned, 0, 5, 0);
    build_world(&w, NULL);
    payload p = make_payload(&w);
    image live = new_image(&w);
    lp_plan *plan = bind_image(&w, &live, NULL);
    lp_session *s;
    assert_ok(&w, lp_begin(&s, plan, NULL, &w.err));
    push_all(&w, s, &p);
    assert_ok(&w, lp_finish(s, NULL, &w.err));
    lp_session_close(s);
    uint8_t want[LP_VALUE_DIGEST_BYTES], have[LP_VALUE_DIGEST_BYTES];
    lp_value_digest(p.data[0], 140, want);
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(&w, lp_plan_value_digest(plan, i, have, &w.err));
        assert_memory_equal(have, want, sizeof want);
    }
    memset(live.data[gaps] + 28, 0xff, 12); /* a gap */
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(&w, lp_plan_value_digest(plan, i, have, &w.err));
        assert_memory_equal(have, want, sizeof want);
    }
    lp_plan_close(plan);
    free_image(&w, &live);
    free_payload(&w, &p);
    free_world(&w);
}

/* ---- the sidecar ---- */

typedef struct kept {
    world w;
    payload p;
    image live;
    lp_plan *plan;
    char path[64];
} kept;

static void open_kept(kept *k)
{
    memset(k, 0, sizeof *k);
    const int from = add_source(&k->w, "x", LP_F32, 2, 3);
    add_copy(&k->w, from, add_dest(&k->w, "a\\b\n", LP_F32, 2, 3, 0, "g"), 0, 2, 0);
    add_copy(&k->w, from, add_dest(&k->w, "layers.0.w", LP_F32, 2, 3, 0, "g"), 0, 2, 0);
    const int scratch = add_dest(&k->w, "scratch", LP_F32, 1, 1, 0, "g");
    k->w.dest[scratch].flags = LP_DEST_NO_LOADER;
    build_world(&k->w, NULL);
    k->p = make_payload(&k->w);
    k->live = new_image(&k->w);
    k->plan = bind_image(&k->w, &k->live, NULL);
    snprintf(k->path, sizeof k->path, "/tmp/loadplan-digests-%d", (int)getpid());
    unlink(k->path);
}

static void close_kept(kept *k)
{
    unlink(k->path);
    lp_plan_close(k->plan);
    free_image(&k->w, &k->live);
    free_payload(&k->w, &k->p);
    free_world(&k->w);
}

static void test_sidecar_round_trip(void **state)
{
    (void)state;
    kept k;
    lp_sidecar *s;
    uint8_t one[32] = {1}, two[32] = {2}, digest[LP_VALUE_DIGEST_BYTES], newest[32];
    open_kept(&k);
    const uint8_t *plan = lp_plan_rows(k.plan)->digest;
    assert_ok(&k.w, lp_sidecar_open(&s, k.path, NULL, &k.w.err));
    assert_false(lp_sidecar_has(s, plan, one, 0));
    assert_false(lp_sidecar_newest(s, plan, 0, newest));
    assert_ok(&k.w, lp_sidecar_put(s, k.plan, one, &k.w.err));
    k.live.data[0][0] ^= 1;
    assert_ok(&k.w, lp_sidecar_put(s, k.plan, two, &k.w.err));
    assert_ok(&k.w, lp_sidecar_save(s, k.path, &k.w.err));
    lp_sidecar_close(s);
    assert_ok(&k.w, lp_sidecar_open(&s, k.path, NULL, &k.w.err));
    assert_true(lp_sidecar_has(s, plan, one, 0) && lp_sidecar_has(s, plan, two, 0));
    assert_false(lp_sidecar_has(s, plan, one, 1));
    assert_ok(&k.w, lp_plan_value_digest(k.plan, 0, digest, &k.w.err));
    assert_memory_equal(lp_sidecar_find(s, plan, two, 0, "a\\b\n"), digest, sizeof digest);
    assert_memory_not_equal(lp_sidecar_find(s, plan, one, 0, "a\\b\n"), digest, sizeof digest);
    assert_non_null(lp_sidecar_find(s, plan, one, 0, "layers.0.w"));
    assert_null(lp_sidecar_find(s, plan, one, 0, "scratch")); /* nobody loads it */
    assert_null(lp_sidecar_find(s, plan, one, 0, "nobody"));
    assert_true(lp_sidecar_newest(s, plan, 0, newest));
    assert_memory_equal(newest, two, 32);
    assert_ok(&k.w, lp_sidecar_put(s, k.plan, one, &k.w.err)); /* replaces, and is the newest now */
    assert_true(lp_sidecar_newest(s, plan, 0, newest));
    assert_memory_equal(newest, one, 32);
    assert_memory_equal(lp_sidecar_find(s, plan, one, 0, "a\\b\n"), digest, sizeof digest);
    lp_sidecar_close(s);
    close_kept(&k);
}

static lp_status open_with_name(kept *k, const char *name, size_t name_bytes)
{
    static const char head[] = "loadplan-digests 1\nload ", digest[] = "00000000000000000000000000000000 ";
    lp_sidecar *s;
    FILE *f = fopen(k->path, "wb");
    assert_non_null(f);
    fprintf(f, "%s%064d %064d 0 1\n%s", head, 0, 0, digest);
    assert_int_equal(fwrite(name, 1, name_bytes, f), name_bytes);
    fputs("\nend\n", f);
    fclose(f);
    const lp_status status = lp_sidecar_open(&s, k->path, NULL, &k->w.err);
    if (status == LP_OK)
        lp_sidecar_close(s);
    return status;
}

/* Names are read as they are written: control characters and backslashes escaped, all else as it is. */
static void test_names_of_sidecars(void **state)
{
    (void)state;
    kept k;
    open_kept(&k);
    assert_int_equal(open_with_name(&k, "a\\x0ab\\x5c\\x7f", 14), LP_OK);
    assert_int_equal(open_with_name(&k, "", 0), LP_OK);
    assert_int_equal(open_with_name(&k, "a\0b", 3), LP_E_CORRUPT);
    assert_int_equal(open_with_name(&k, "a\x1b", 2), LP_E_CORRUPT);
    assert_int_equal(open_with_name(&k, "a\x7f", 2), LP_E_CORRUPT);
    assert_int_equal(open_with_name(&k, "\\x00", 4), LP_E_CORRUPT);
    assert_int_equal(open_with_name(&k, "\\x41", 4), LP_E_CORRUPT);
    assert_int_equal(open_with_name(&k, "\\x0A", 4), LP_E_CORRUPT);
    assert_int_equal(open_with_name(&k, "\\", 1), LP_E_CORRUPT);
    close_kept(&k);
}

/* Every cut and every changed byte of a sidecar is either the same content or a clean refusal. */
static void test_damaged_sidecars(void **state)
{
    (void)state;
    kept k;
    lp_sidecar *s;
    const uint8_t one[32] = {1};
    char text[4096];
    open_kept(&k);
    assert_ok(&k.w, lp_sidecar_open(&s, k.path, NULL, &k.w.err));
    assert_ok(&k.w, lp_sidecar_put(s, k.plan, one, &k.w.err));
    assert_ok(&k.w, lp_sidecar_save(s, k.path, &k.w.err));
    lp_sidecar_close(s);
    FILE *f = fopen(k.path, "rb");
    assert_non_null(f);
    const size_t bytes = fread(text, 1, sizeof text, f);
    fclose(f);
    int refused = 0;
    for (size_t n = 0; n < 2 * bytes; n++) {
        char damaged[4096];
        const size_t kept_bytes = n < bytes ? n : bytes;
        memcpy(damaged, text, bytes);
        if (n >= bytes)
            damaged[n - bytes] = (char)(damaged[n - bytes] ^ 0x15);
        f = fopen(k.path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(damaged, 1, kept_bytes, f), kept_bytes);
        fclose(f);
        const lp_status status = lp_sidecar_open(&s, k.path, NULL, &k.w.err);
        assert_true(status == LP_OK || status == LP_E_CORRUPT);
        if (status == LP_OK)
            lp_sidecar_close(s);
        refused += status != LP_OK;
        if (n < bytes)
            assert_int_equal(status, LP_E_CORRUPT);
    }
    assert_true(refused > (int)bytes);
    close_kept(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),          cmocka_unit_test(test_parts_in_any_order),
        cmocka_unit_test(test_swaps_and_lengths_are_seen), cmocka_unit_test(test_strides_do_not_matter),
        cmocka_unit_test(test_sidecar_round_trip),         cmocka_unit_test(test_damaged_sidecars),
        cmocka_unit_test(test_names_of_sidecars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
