/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint catalogue built by hand, and checkpoints of one file and of folders. Shards: test_checkpoint_shards.c.
 */
#include "checkpoint_opening.h"

#include <inttypes.h>

/* ---- by hand ---- */

static lp_status add(lp_checkpoint *c, const char *name, lp_dtype dtype, int32_t ndim, const int64_t *shape,
                     lp_error *err)
{
    const lp_checkpoint_tensor t = {
        .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = -1, .file_off = -1};
    return lp_checkpoint_add(c, &t, err);
}

static void a_catalogue_by_hand_is_sorted_and_searchable(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    faulty_memory m;
    faulty_memory_init(&m, -1);
    const lp_platform platform = {.alloc = &m.table};
    const uint32_t seed = (uint32_t)time(NULL);
    print_message("seed %" PRIu32 "\n", seed);
    uint32_t x = seed | 1;
    lp_checkpoint *c;
    lp_error err;
    assert_int_equal(lp_checkpoint_new(&c, &platform, &err), LP_OK);
    for (int i = 0; i < COUNT; i++) {
        char name[64];
        const int64_t shape[2] = {i % 7, 3};
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        snprintf(name, sizeof name, "%s%" PRIu32 ".%d", i % 3 == 0 ? "model.layers." : "m", x % 100, i);
        assert_int_equal(add(c, name, LP_BF16, 2, shape, &err), LP_OK);
        memset(name, 'x', sizeof name); /* strings are copied */
    }
    assert_int_equal(lp_checkpoint_find(c, "x"), -1); /* not sealed yet */
    assert_int_equal(lp_checkpoint_seal(c, &err), LP_OK);
    assert_int_equal(lp_checkpoint_count(c), COUNT);
    int64_t bytes = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i);
        if (i > 0)
            assert_true(strcmp(lp_checkpoint_at(c, i - 1)->name, t->name) < 0);
        assert_int_equal(lp_checkpoint_find(c, t->name), i);
        assert_int_equal(t->bytes, t->shape[0] * 3 * 2);
        bytes += t->bytes;
    }
    assert_int_equal(lp_checkpoint_bytes(c), bytes);
    assert_int_equal(lp_checkpoint_find(c, "model.layers.1"), -1);
    assert_int_equal(lp_checkpoint_find(c, ""), -1);
    assert_null(lp_checkpoint_at(c, -1));
    assert_null(lp_checkpoint_at(c, COUNT));
    assert_null(lp_checkpoint_file_at(c, 0));
    assert_null(lp_checkpoint_unusable_name(c));
    assert_string_equal(lp_checkpoint_folder(c), "");
    lp_checkpoint_close(c);
    lp_checkpoint_close(NULL);
    assert_int_equal(m.live, 0);
}

static void what_a_catalogue_refuses(void **state)
{
    (void)state;
    lp_checkpoint *c;
    lp_error err;
    assert_int_equal(lp_checkpoint_new(&c, NULL, &err), LP_OK);
    const int64_t huge[3] = {INT64_MAX, 3, 0}, negative[1] = {-1}, odd[1] = {3}, bits[1] = {INT64_MAX};
    assert_int_equal(add(c, NULL, LP_U8, 0, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(add(c, "a", LP_U8, -1, odd, &err), LP_E_ARGUMENT);
    assert_int_equal(add(c, "\xff\xc0\x80", LP_U8, 0, NULL, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "tensor name '\\xff\\xc0\\x80' is not UTF-8");
    assert_int_equal(add(c, "\xc0", LP_U8, 0, NULL, &err), LP_E_CORRUPT);
    assert_int_equal(add(c, "a\xc0\x80", LP_U8, 0, NULL, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "tensor 'a...' has a NUL in its name: this checkpoint cannot be recorded");
    assert_int_equal(add(c, "a", LP_DTYPE_NONE, 0, NULL, &err), LP_E_CORRUPT);
    assert_int_equal(add(c, "a", (lp_dtype)23, 0, NULL, &err), LP_E_CORRUPT);
    assert_int_equal(add(c, "a", LP_U8, 1, negative, &err), LP_E_CORRUPT);
    assert_int_equal(add(c, "a", LP_U8, 3, huge, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "tensor 'a': the product of its shape overflows 64 bits");
    assert_int_equal(add(c, "a", LP_F4, 1, odd, &err), LP_E_CORRUPT);
    assert_int_equal(add(c, "a", LP_F32, 1, bits, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "tensor 'a': its size in bits overflows 64 bits");

    const lp_checkpoint_file file = {.path = "f", .size_bytes = 100};
    assert_int_equal(lp_checkpoint_add_file(c, &file, &err), LP_OK);
    const lp_checkpoint_file bad_digest = {.path = "f", .size_bytes = 100, .sha256 = "12"};
    assert_int_equal(lp_checkpoint_add_file(c, &bad_digest, &err), LP_E_CORRUPT);
    lp_checkpoint_tensor t = {.name = "in file", .dtype = LP_U8, .ndim = 1, .shape = odd, .file = 1, .file_off = 0};
    assert_int_equal(lp_checkpoint_add(c, &t, &err), LP_E_CORRUPT); /* no such file */
    t.file = 0;
    t.file_off = 98;
    assert_int_equal(lp_checkpoint_add(c, &t, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "tensor 'in file' ends after its file 'f'");
    t.file_off = INT64_MAX;
    assert_int_equal(lp_checkpoint_add(c, &t, &err), LP_E_CORRUPT);
    t.file_off = 97;
    assert_int_equal(lp_checkpoint_add(c, &t, &err), LP_OK);
    assert_int_equal(lp_checkpoint_add(c, &t, &err), LP_OK);
    assert_int_equal(lp_checkpoint_seal(c, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "tensor 'in file' appears twice");
    lp_checkpoint_close(c);

    assert_int_equal(lp_checkpoint_new(&c, NULL, &err), LP_OK);
    assert_int_equal(lp_checkpoint_seal(c, &err), LP_OK);
    assert_int_equal(lp_checkpoint_count(c), 0);
    assert_int_equal(lp_checkpoint_find(c, "a"), -1);
    assert_int_equal(lp_checkpoint_seal(c, &err), LP_E_MISUSE);
    assert_int_equal(add(c, "a", LP_U8, 1, odd, &err), LP_E_MISUSE);
    assert_int_equal(lp_checkpoint_add_file(c, &file, NULL), LP_E_MISUSE);
    lp_checkpoint_close(c);
}

/* ---- one file ---- */

static void one_file_is_listed_with_places(void **state)
{
    (void)state;
    const char *folder = make_folder("single"), *path = in_folder("single/some.safetensors");
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\",\"a\":\"x\\u0000y\"},\"w\":{\"dtype\":\"BF16\",\"shape\":"
        "[2,3],\"data_offsets\":[4,16]},\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}";
    write_safetensors(path, header, 16);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    char slashed[600];
    snprintf(slashed, sizeof slashed, "%s//", folder);
    const char *const ways[] = {path, folder, slashed};
    for (int i = 0; i < 3; i++) {
        lp_checkpoint *c = open_good(ways[i]);
        assert_int_equal(lp_checkpoint_count(c), 2);
        assert_int_equal(lp_checkpoint_bytes(c), 16);
        assert_string_equal(lp_checkpoint_folder(c), folder);
        assert_int_equal(lp_checkpoint_file_count(c), 1);
        const lp_checkpoint_file *f = lp_checkpoint_file_at(c, 0);
        assert_string_equal(f->path, path);
        assert_int_equal(f->size_bytes, st.st_size);
        assert_int_equal(f->mtime_ns, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
        assert_int_equal(f->inode, st.st_ino);
        assert_null(f->sha256);
        const lp_checkpoint_tensor *b = lp_checkpoint_at(c, 0), *w = lp_checkpoint_at(c, 1);
        assert_string_equal(b->name, "b");
        assert_int_equal(b->ndim, 0);
        assert_int_equal(b->file_off, 8 + (int64_t)strlen(header));
        assert_string_equal(w->name, "w");
        assert_int_equal(w->dtype, LP_BF16);
        assert_true(w->ndim == 2 && w->shape[0] == 2 && w->shape[1] == 3);
        assert_int_equal(w->file, 0);
        assert_int_equal(w->file_off, 8 + (int64_t)strlen(header) + 4);
        assert_int_equal(w->bytes, 12);
        const char *value;
        assert_int_equal(lp_checkpoint_metadata_count(c), 2);
        assert_string_equal(lp_checkpoint_metadata_at(c, 0, &value), "format");
        assert_string_equal(value, "pt");
        assert_string_equal(lp_checkpoint_metadata_at(c, 1, &value), "a");
        assert_string_equal(value, "x\xc0\x80y");
        assert_null(lp_checkpoint_metadata_at(c, 2, &value));
        assert_null(lp_checkpoint_unusable_name(c)); /* a NUL in metadata harms no name */
        lp_checkpoint_close(c);
    }
}

static void a_path_without_slash_is_in_the_current_folder(void **state)
{
    (void)state;
    char back[4096];
    assert_non_null(getcwd(back, sizeof back));
    write_safetensors(in_folder("here.safetensors"), FOUR("a"), 4);
    assert_int_equal(chdir(test_folder), 0);
    lp_checkpoint *c = open_good("here.safetensors");
    assert_int_equal(chdir(back), 0);
    assert_string_equal(lp_checkpoint_folder(c), ".");
    assert_string_equal(lp_checkpoint_file_at(c, 0)->path, "here.safetensors");
    lp_checkpoint_close(c);
}

static void odd_but_legal_files_open(void **state)
{
    (void)state;
    const char *path = in_folder("odd.bin"); /* content decides, not the name */
    write_safetensors(path, "{}", 0);
    lp_checkpoint *c = open_good(path);
    assert_int_equal(lp_checkpoint_count(c), 0);
    lp_checkpoint_close(c);

    write_safetensors(
        path, "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0,18446744073709551615],\"data_offsets\":[0,0]}}", 0);
    c = open_good(path);
    assert_string_equal(lp_checkpoint_unusable_name(c), "a\xc0\x80"
                                                        "b");
    assert_string_equal(lp_checkpoint_at(c, 0)->name, "a\xc0\x80"
                                                      "b");
    assert_true(lp_checkpoint_at(c, 0)->shape[1] == INT64_MAX);
    assert_int_equal(lp_checkpoint_at(c, 0)->bytes, 0);
    lp_checkpoint_close(c);

    /* A header of 123 bytes begins with '{', as an index does. */
    char header[124];
    memset(header, ' ', sizeof header);
    memcpy(header, FOUR("a"), strlen(FOUR("a")));
    write_safetensors_bytes(path, header, 123, 4);
    c = open_good(path);
    assert_int_equal(lp_checkpoint_count(c), 1);
    lp_checkpoint_close(c);
}

static void what_cannot_be_opened_says_so(void **state)
{
    (void)state;
    expect_error(in_folder("absent"), LP_E_IO, "cannot open '", "");
    const char *fifo = in_folder("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    expect_error(fifo, LP_E_FORMAT, "is neither a file nor a folder", "");
    const char *path = in_folder("lfs.safetensors");
    write_text(path, "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n");
    expect_error(path, LP_E_FORMAT, "is not a safetensors file", "git lfs pull");
    write_text(path, "");
    expect_error(path, LP_E_FORMAT, "it has 0 bytes", "");
    make_folder("lying");
    make_folder("lying/model.safetensors");
    expect_error(in_folder("lying"), LP_E_FORMAT, "is a folder, not a file", "");
}

/* ---- folders ---- */

static void a_folder_gives_its_only_checkpoint(void **state)
{
    (void)state;
    const char *folder = make_folder("choice");
    expect_error(folder, LP_E_FORMAT, "no checkpoint in '", "expected a .safetensors file");
    write_text(in_folder("choice/config.json"), "{}");
    write_text(in_folder("choice/._x.safetensors"), "left by another system");
    write_safetensors(in_folder("choice/z.safetensors"), FOUR("z"), 4);
    lp_checkpoint *c = open_good(folder);
    assert_int_equal(lp_checkpoint_find(c, "z"), 0);
    lp_checkpoint_close(c);

    write_safetensors(in_folder("choice/m.safetensors"), FOUR("m"), 4);
    write_safetensors(in_folder("choice/n.safetensors"), FOUR("n"), 4);
    expect_error(folder, LP_E_FORMAT,
                 "has 3 safetensors files and no index, such as 'm.safetensors' and 'n.safetensors'",
                 "give the file that you mean");
    write_safetensors(in_folder("choice/model.safetensors"), FOUR("model"), 4);
    c = open_good(folder);
    assert_int_equal(lp_checkpoint_find(c, "model"), 0);
    lp_checkpoint_close(c);

    write_text(in_folder("choice/a.safetensors.index.json"), "{\"weight_map\":{\"z\":\"z.safetensors\"}}");
    c = open_good(folder);
    assert_int_equal(lp_checkpoint_find(c, "z"), 0);
    lp_checkpoint_close(c);
    write_text(in_folder("choice/b.safetensors.index.json"), "{\"weight_map\":{\"m\":\"m.safetensors\"}}");
    expect_error(folder, LP_E_FORMAT, "has 2 checkpoint indices, such as 'a.safetensors.index.json' and 'b.",
                 "give the");
    write_text(in_folder("choice/model.safetensors.index.json"), "{\"weight_map\":{\"n\":\"n.safetensors\"}}");
    c = open_good(folder);
    assert_int_equal(lp_checkpoint_find(c, "n"), 0);
    assert_int_equal(lp_checkpoint_count(c), 1);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_catalogue_by_hand_is_sorted_and_searchable),
        cmocka_unit_test(what_a_catalogue_refuses),
        cmocka_unit_test(one_file_is_listed_with_places),
        cmocka_unit_test(a_path_without_slash_is_in_the_current_folder),
        cmocka_unit_test(odd_but_legal_files_open),
        cmocka_unit_test(what_cannot_be_opened_says_so),
        cmocka_unit_test(a_folder_gives_its_only_checkpoint),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
