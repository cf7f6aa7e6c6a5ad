/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of shards with an index, links into a cache, and opening them while memory and files fail. */
#include "checkpoint_opening.h"

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
        cmocka_unit_test(shards_are_joined),
        cmocka_unit_test(index_and_shards_must_agree),
        cmocka_unit_test(an_index_is_read_strictly),
        cmocka_unit_test(links_into_a_cache_keep_the_digest_of_the_blob),
        cmocka_unit_test(out_of_memory_anywhere_leaks_nothing),
        cmocka_unit_test(failing_files_are_reported_and_closed),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
