/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint catalogue built by hand, and checkpoints of one file, of shards with an index, and of folders. */
#include "tests/unit/checkpoint_files.h"

#include <inttypes.h>

#define FOUR(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}"
#define TWO(name1, name2)                                                                                              \
    "{\"" name1 "\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"" name2                                  \
    "\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]}}"

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

static lp_checkpoint *open_good(const char *path)
{
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    if (lp_checkpoint_open(&c, path, &err) != LP_OK)
        fail_msg("%s", err.text);
    return c;
}

static void expect_error(const char *path, lp_status expected, const char *text, const char *hint)
{
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    const lp_status status = lp_checkpoint_open(&c, path, &err);
    if (status != expected || strstr(err.text, text) == NULL || strstr(err.hint, hint) == NULL)
        fail_msg("%s: %s '%s' (%s), expected %s '%s' (%s)", path, lp_status_name(status), err.text, err.hint,
                 lp_status_name(expected), text, hint);
    assert_null(c);
    assert_int_equal(lp_checkpoint_open(&c, path, NULL), expected);
}

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

/* ---- shards ---- */

static const char *make_sharded(const char *name)
{
    const char *folder = make_folder(name);
    char path[256];
    snprintf(path, sizeof path, "%s/s2.safetensors", folder);
    write_safetensors(path, TWO("b", "d"), 16);
    snprintf(path, sizeof path, "%s/part", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/part/s1.safetensors", folder);
    write_safetensors(path, TWO("a", "c"), 16);
    snprintf(path, sizeof path, "%s/stray.safetensors", folder);
    write_text(path, "not to be opened");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    write_text(path, "\n{\"metadata\":{\"total_size\":\"wrong\",\"total_size\":1.5},\"more\":[],\n\"weight_map\":{"
                     "\"d\":\"s2.safetensors\",\"a\":\"part/s1.safetensors\",\"c\":\"part/s1.safetensors\","
                     "\"b\":\"s2.safetensors\"}}\n");
    return folder;
}

static void shards_are_joined(void **state)
{
    (void)state;
    const char *folder = make_sharded("sharded");
    const char *const ways[] = {folder, in_folder("sharded/model.safetensors.index.json")};
    for (int i = 0; i < 2; i++) {
        lp_checkpoint *c = open_good(ways[i]);
        assert_int_equal(lp_checkpoint_count(c), 4);
        assert_int_equal(lp_checkpoint_file_count(c), 2); /* in order of their names, the stray one untouched */
        assert_string_equal(lp_checkpoint_file_at(c, 0)->path, in_folder("sharded/part/s1.safetensors"));
        assert_string_equal(lp_checkpoint_file_at(c, 1)->path, in_folder("sharded/s2.safetensors"));
        for (int64_t n = 0; n < 4; n++) {
            const lp_checkpoint_tensor *t = lp_checkpoint_at(c, n);
            assert_int_equal(t->name[0], 'a' + n);
            assert_int_equal(t->file, n % 2);
            assert_int_equal(t->bytes, n < 2 ? 4 : 12);
            assert_int_equal(t->file_off, 8 + (int64_t)strlen(TWO("b", "d")) + (n < 2 ? 0 : 4));
        }
        assert_string_equal(lp_checkpoint_folder(c), folder);
        lp_checkpoint_close(c);
    }
}

static void index_and_shards_must_agree(void **state)
{
    (void)state;
    const char *folder = make_folder("disagree"), *index = in_folder("disagree/model.safetensors.index.json");
    const char *one = in_folder("disagree/one.safetensors"), *two = in_folder("disagree/two.safetensors");
    write_safetensors(one, TWO("a", "b"), 16);
    write_safetensors(two, FOUR("c"), 4);
#define ONE_AND "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\","
    write_text(index, ONE_AND "\"c\":\"two.safetensors\",\"ghost\":\"two.safetensors\",\"zz\":\"one.safetensors\"}}");
    expect_error(folder, LP_E_CORRUPT, "tensor 'ghost' of the index '", "download the checkpoint again");
    expect_error(folder, LP_E_CORRUPT, "is not in its shard 'two.safetensors' (2 missing in all)", "");
    write_text(index, "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}");
    expect_error(folder, LP_E_CORRUPT, "tensor 'b' of shard 'one.safetensors' is not in the index '", "download");
    write_text(index,
               "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"two.safetensors\"}}");
    expect_error(folder, LP_E_CORRUPT, "tensor 'b' is in shard 'one.safetensors', the index '", "");
    expect_error(folder, LP_E_CORRUPT, "places it in 'two.safetensors'", "");
    write_text(index, ONE_AND "\"c\":\"three.safetensors\"}}");
    expect_error(folder, LP_E_CORRUPT, "/three.safetensors' does not exist, the index '", "download may be incomplete");
    assert_int_equal(symlink("nowhere", in_folder("disagree/three.safetensors")), 0);
    expect_error(folder, LP_E_CORRUPT, "/three.safetensors' does not exist", "a link in a cache broken");
    make_folder("disagree/four.safetensors");
    write_text(index, ONE_AND "\"c\":\"four.safetensors\"}}");
    expect_error(folder, LP_E_FORMAT, "/four.safetensors' is a folder", "");
    write_text(index, ONE_AND "\"c\":\"two.safetensors\"}}");
    lp_checkpoint *c = open_good(folder);
    assert_int_equal(lp_checkpoint_count(c), 3);
    lp_checkpoint_close(c);
    assert_int_equal(truncate(one, 8 + (off_t)strlen(TWO("a", "b")) + 15), 0);
    expect_error(folder, LP_E_CORRUPT, "/one.safetensors' ends at byte ", "");
    expect_error(folder, LP_E_CORRUPT, "1 byte too early: tensor 'b' is cut off", "");
#undef ONE_AND
}

static void an_index_is_read_strictly(void **state)
{
    (void)state;
    make_folder("strict");
    const char *index = in_folder("strict/x.safetensors.index.json");
    write_safetensors(in_folder("strict/f"), FOUR("a"), 4);
    static const struct {
        const char *text, *says;
        lp_status status;
    } bad[] = {
        {"", "at byte 0: the text ends where an object was expected", LP_E_CORRUPT},
        {"{}", "has no 'weight_map'", LP_E_FORMAT},
        {"{\"architectures\":[\"X\"],\"rope\":1.5e3}", "has no 'weight_map'", LP_E_FORMAT},
        {"[]", "found '[' where an object was expected", LP_E_CORRUPT},
        {"{\"weight_map\":[]}", "at byte 14: found '['", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":1}}", "at byte 19: tensor 'a': found '1' where a string was expected", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"f\"}} x", "found 'x' where the end was expected", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"f\",}}", "comma before '}'", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"f\",\"\\u0061\":\"f\"}}", "at byte 23: tensor 'a': the name appears twice",
         LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"f\"},\"weight_map\":{}}", "a key appears twice", LP_E_CORRUPT},
        {"{\"metadata\":1,\"metadata\":1,\"weight_map\":{\"a\":\"f\"}}", "a key appears twice", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"/etc/f\"}}", "'/etc/f' is not a path inside the folder of the index", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"../strict/f\"}}", "'../strict/f' is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"x/../f\"}}", "is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"x/..\"}}", "is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"./f\"}}", "is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"x//f\"}}", "is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"f/\"}}", "is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"\"}}", "is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"x\\\\f\"}}", "is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"f\\u0000\"}}", "'f\\x00' is not a path inside", LP_E_CORRUPT},
        {"{\"weight_map\":{\"a\":\"f\xff\"}}", "at byte 21: not UTF-8", LP_E_CORRUPT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text(index, bad[i].text);
        expect_error(index, bad[i].status, bad[i].says, "");
    }
    write_text(index, "{\"weight_map\":{\"a\":\"f\"}}");
    lp_checkpoint *c = open_good(index);
    assert_int_equal(lp_checkpoint_count(c), 1);
    lp_checkpoint_close(c);
    write_text(index, "{\"weight_map\":{}}");
    c = open_good(index);
    assert_int_equal(lp_checkpoint_count(c), 0);
    lp_checkpoint_close(c);

    /* A name with a NUL is the same in the index and in its shard. */
    write_safetensors(in_folder("strict/f"), FOUR("a\\u0000"), 4);
    write_text(index, "{\"weight_map\":{\"a\\u0000\":\"f\"}}");
    c = open_good(index);
    assert_string_equal(lp_checkpoint_unusable_name(c), "a\xc0\x80");
    lp_checkpoint_close(c);
}

/* ---- the Hugging Face cache ---- */

static void links_into_a_cache_keep_the_digest_of_the_blob(void **state)
{
    (void)state;
    static const char digest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    char blob[256], target[256];
    make_folder("cache");
    make_folder("cache/blobs");
    const char *snapshot = make_folder("cache/snapshot");
    snprintf(blob, sizeof blob, "cache/blobs/%s", digest);
    snprintf(target, sizeof target, "../blobs/%s", digest);
    write_safetensors(in_folder(blob), FOUR("a"), 4);
    assert_int_equal(symlink(target, in_folder("cache/snapshot/model-00001-of-00002.safetensors")), 0);
    write_safetensors(in_folder("cache/blobs/short"), FOUR("b"), 4);
    assert_int_equal(symlink("../blobs/short", in_folder("cache/snapshot/model-00002-of-00002.safetensors")), 0);
    write_text(
        in_folder("cache/blobs/index"),
        "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"model-00002-of-00002.safetensors\"}}");
    assert_int_equal(symlink("../blobs/index", in_folder("cache/snapshot/model.safetensors.index.json")), 0);
    lp_checkpoint *c = open_good(snapshot);
    assert_int_equal(lp_checkpoint_count(c), 2);
    assert_string_equal(lp_checkpoint_folder(c), snapshot); /* of the link, where config.json lies */
    assert_string_equal(lp_checkpoint_file_at(c, 0)->path,
                        in_folder("cache/snapshot/model-00001-of-00002.safetensors"));
    assert_string_equal(lp_checkpoint_file_at(c, 0)->sha256, digest);
    assert_null(lp_checkpoint_file_at(c, 1)->sha256);
    lp_checkpoint_close(c);
    c = open_good(in_folder(blob)); /* the blob itself, without extension */
    assert_string_equal(lp_checkpoint_file_at(c, 0)->sha256, digest);
    lp_checkpoint_close(c);
}

/* ---- faults ---- */

static void out_of_memory_anywhere_leaks_nothing(void **state)
{
    (void)state;
    const char *folder = make_sharded("memory");
    lp_status status = LP_E_MEMORY;
    int64_t n = 0;
    for (; status != LP_OK; n++) {
        faulty_memory m;
        faulty_io io;
        faulty_memory_init(&m, n);
        faulty_io_init(&io, -1, 0);
        const lp_platform platform = {.alloc = &m.table, .io = &io.table};
        lp_checkpoint *c = NULL;
        lp_error err = {0};
        status = lp_checkpoint_open_with(&c, folder, &platform, &err);
        if (status == LP_OK)
            lp_checkpoint_close(c);
        else
            assert_int_equal(status, LP_E_MEMORY);
        assert_int_equal(m.live, 0);
        assert_int_equal(io.open_files, 0);
    }
    assert_true(n > 30);
}

static void failing_files_are_reported_and_closed(void **state)
{
    (void)state;
    const char *folder = make_sharded("faults");
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    faulty_io io;
    faulty_io_init(&io, -1, 0);
    io.piece = 7;
    const lp_platform platform = {.io = &io.table};
    assert_int_equal(lp_checkpoint_open_with(&c, folder, &platform, &err), LP_OK);
    lp_checkpoint_close(c);
    const int64_t calls = io.calls;
    assert_true(calls > 20);
    static const int errors[] = {-EIO, -ENOENT, -EACCES, 0};
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++)
        for (int64_t n = 0; n < calls; n++) {
            faulty_io_init(&io, n, errors[e]);
            io.piece = 7;
            io.is_once = true;
            const lp_status status = lp_checkpoint_open_with(&c, folder, &platform, &err);
            assert_int_equal(io.open_files, 0);
            if (status == LP_OK) /* the call was a close, whose failure loses nothing that was read */
                lp_checkpoint_close(c);
            else
                assert_true(status == LP_E_IO || status == LP_E_CORRUPT);
        }
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
        cmocka_unit_test(shards_are_joined),
        cmocka_unit_test(index_and_shards_must_agree),
        cmocka_unit_test(an_index_is_read_strictly),
        cmocka_unit_test(links_into_a_cache_keep_the_digest_of_the_blob),
        cmocka_unit_test(out_of_memory_anywhere_leaks_nothing),
        cmocka_unit_test(failing_files_are_reported_and_closed),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
