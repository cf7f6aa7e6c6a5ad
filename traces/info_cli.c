/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan info`: what a checkpoint holds, or what a trace says; the validator of safetensors files. */
#include "traces/info_groups.h"
#include "traces/trace_commands.h"

#include <fcntl.h>
#include <inttypes.h>

static const char *tensors_word(int64_t count)
{
    return count == 1 ? "tensor" : "tensors";
}

static void print_dtypes(FILE *out, const lp_checkpoint *c)
{
    lp_info_dtype row[LP_DTYPE_COUNT];
    const int count = lp_info_dtypes(row, c);
    char number[32], bytes[32];
    for (int i = 0; i < count; i++)
        fprintf(out, "  %-11s %11s %-7s  %10s\n", lp_dtype_name(row[i].dtype), lp_format_count(number, row[i].tensors),
                tensors_word(row[i].tensors), lp_format_bytes(bytes, row[i].bytes));
}

static void print_families(FILE *out, const lp_info_groups *g, int64_t most)
{
    char name[512], shape[192], number[32], bytes[32];
    const int64_t shown = g->count < most ? g->count : most;
    int name_width = 0, shape_width = 0;
    for (int64_t i = 0; i < shown; i++) {
        const int n = (int)strlen(lp_info_name(name, sizeof name, g->item[i].family));
        const int s = (int)strlen(lp_info_shape(shape, g->item[i].first));
        name_width = n > name_width ? n : name_width;
        shape_width = s > shape_width ? s : shape_width;
    }
    for (int64_t i = 0; i < shown; i++) {
        const lp_info_group *row = &g->item[i];
        fprintf(out, "  %-*s  %-8s %-*s  %9s %-7s  %10s\n", name_width, lp_info_name(name, sizeof name, row->family),
                lp_dtype_name(row->first->dtype), shape_width, lp_info_shape(shape, row->first),
                lp_format_count(number, row->tensors), tensors_word(row->tensors), lp_format_bytes(bytes, row->bytes));
    }
    if (shown < g->count)
        fprintf(out, "  ... and %s more (--all lists them)\n", lp_format_count(number, g->count - shown));
}

/* Shards repeat their metadata; each pair is shown once. */
static bool is_repeated(lp_strings *seen, const char *key, const char *value, bool *failed)
{
    char *pair = lp_arena_format(&seen->arena, "%s\n%s", key, value);
    const int64_t before = seen->count;
    const int64_t n = pair != NULL ? lp_strings_add(seen, pair, strlen(pair)) : -1;
    *failed = *failed || n < 0;
    return n < before;
}

static void print_metadata(FILE *out, const lp_checkpoint *c)
{
    lp_strings seen;
    char key_text[80], value_text[160];
    bool failed = false;
    lp_strings_init(&seen, NULL);
    const int64_t count = lp_checkpoint_metadata_count(c);
    for (int64_t i = 0; i < count; i++) {
        const char *value, *key = lp_checkpoint_metadata_at(c, i, &value);
        if (is_repeated(&seen, key, value, &failed) || seen.count > 8)
            continue;
        fprintf(out, "  metadata    %s = %s\n", lp_info_name(key_text, sizeof key_text, key),
                lp_info_name(value_text, sizeof value_text, value));
    }
    if (seen.count > 8)
        fprintf(out, "  metadata    ... and %" PRId64 " more (--format=json has them)\n", seen.count - 8);
    lp_strings_free(&seen);
}

static void print_text(lp_cli *cli, const lp_checkpoint *c, const char *path, const lp_info_groups *g, int64_t most)
{
    char bytes[32];
    fprintf(cli->out, "%s: %s in %s, %s\n", lp_cli_clean(path), lp_info_count(lp_checkpoint_count(c), "tensor"),
            lp_checkpoint_config(c) != NULL ? "a header bundle" : lp_info_count(lp_checkpoint_file_count(c), "file"),
            lp_format_bytes(bytes, lp_checkpoint_bytes(c)));
    print_dtypes(cli->out, c);
    print_families(cli->out, g, most);
    print_metadata(cli->out, c);
    if (lp_cli_flag(cli, "tensors", false))
        lp_info_print_tensors(cli, c);
}

static json_t *metadata_json(const lp_checkpoint *c, bool *failed)
{
    lp_strings seen;
    lp_strings_init(&seen, NULL);
    json_t *list = json_array();
    const int64_t count = lp_checkpoint_metadata_count(c);
    for (int64_t i = 0; i < count; i++) {
        const char *value, *key = lp_checkpoint_metadata_at(c, i, &value);
        if (!is_repeated(&seen, key, value, failed))
            json_array_append_new(
                list, json_pack("{s:o, s:o}", "key", lp_info_name_json(key), "value", lp_info_name_json(value)));
    }
    lp_strings_free(&seen);
    return list;
}

static json_t *files_json(const lp_checkpoint *c)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < lp_checkpoint_file_count(c); i++) {
        const lp_checkpoint_file *f = lp_checkpoint_file_at(c, i);
        json_t *row = json_pack("{s:s, s:I}", "path", lp_cli_clean(f->path), "size_bytes", (json_int_t)f->size_bytes);
        if (f->sha256 != NULL)
            json_object_set_new(row, "sha256", json_string(f->sha256));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *dtypes_json(const lp_checkpoint *c)
{
    lp_info_dtype row[LP_DTYPE_COUNT];
    const int count = lp_info_dtypes(row, c);
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "dtype", lp_dtype_name(row[i].dtype), "tensors",
                                              (json_int_t)row[i].tensors, "bytes", (json_int_t)row[i].bytes));
    return list;
}

static json_t *family_json(const void *groups, int64_t i)
{
    const lp_info_groups *g = groups;
    const lp_info_group *row = &g->item[i];
    return json_pack("{s:o, s:s, s:o, s:I, s:I}", "family", lp_info_name_json(row->family), "dtype",
                     lp_dtype_name(row->first->dtype), "shape", lp_info_shape_json(row->first), "tensors",
                     (json_int_t)row->tensors, "bytes", (json_int_t)row->bytes);
}

static bool print_json(lp_cli *cli, const lp_checkpoint *c, const char *path, const lp_info_groups *g, int64_t most)
{
    const lp_cli_list lists[] = {{"families", g->count < most ? g->count : most, family_json, g},
                                 {"catalogue", lp_checkpoint_count(c), lp_info_tensor_json, c}};
    const bool has_catalogue = lp_cli_flag(cli, "tensors", false);
    bool failed = false;
    json_t *root = json_pack("{s:i, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "format", 1, "kind", "checkpoint", "path",
                             lp_cli_clean(path), "tensors", (json_int_t)lp_checkpoint_count(c), "bytes",
                             (json_int_t)lp_checkpoint_bytes(c), "files", files_json(c), "dtypes", dtypes_json(c),
                             lists[0].key, json_array(), "metadata", metadata_json(c, &failed));
    if (has_catalogue)
        json_object_set_new(root, lists[1].key, json_array());
    if (failed) {
        json_decref(root);
        root = NULL;
    }
    return lp_cli_json_lists(cli, root, lists, has_catalogue ? 2 : 1);
}

/* Lists `most` families, unless all are asked for. */
static int info_checkpoint(lp_cli *cli, const char *path, int64_t most)
{
    lp_checkpoint *c = NULL;
    lp_error err;
    lp_info_groups groups;
    int exit_code = LP_EXIT_DONE;
    const bool is_json = strcmp(lp_cli_text(cli, "format", "text"), "json") == 0;
    const bool is_all = lp_cli_flag(cli, "all", is_json && lp_cli_text(cli, "families", NULL) == NULL);
    if (is_all)
        most = INT64_MAX;
    if (lp_checkpoint_open_with(&c, path, lp_cli_platform(cli), &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    const char *headers = lp_cli_text(cli, "save-headers", NULL);
    if (headers != NULL) {
        if (lp_checkpoint_save_headers(c, headers, lp_cli_flag(cli, "force", false), &err) != LP_OK)
            exit_code = lp_cli_fail(cli, &err);
        else
            lp_cli_summary(cli, "%s: the headers of %s in %s", lp_cli_clean(headers),
                           lp_info_count(lp_checkpoint_count(c), "tensor"),
                           lp_info_count(lp_checkpoint_file_count(c), "file"));
        goto close;
    }
    if (!lp_info_groups_make(&groups, c)) {
        lp_fail_memory(&err);
        exit_code = lp_cli_fail(cli, &err);
        goto close;
    }
    if (!is_json)
        print_text(cli, c, path, &groups, most);
    else if (!print_json(cli, c, path, &groups, most))
        exit_code = LP_EXIT_ENVIRONMENT;
    lp_info_groups_free(&groups);
    if (lp_checkpoint_unusable_name(c) != NULL) {
        char name[256];
        lp_cli_warn(cli, "tensor '%s' has a NUL in its name: this checkpoint cannot be recorded",
                    lp_info_name(name, sizeof name, lp_checkpoint_unusable_name(c)));
    }
close:
    lp_checkpoint_close(c);
    return exit_code;
}

/* By the first bytes, as the library tells them apart. A file that cannot be read is left to the library's error. */
static bool is_trace(const char *path)
{
    static const char magic[16] = "SQLite format 3";
    char start[sizeof magic] = {0};
    const lp_io *io = lp_io_default();
    const int fd = io->open(io->context, path, O_RDONLY, 0);
    if (fd < 0)
        return false;
    const bool is_whole = lp_read_exact(io, fd, path, start, sizeof start, 0, NULL) == LP_OK;
    io->close(io->context, fd);
    return is_whole && memcmp(start, magic, sizeof magic) == 0;
}

static int run_info(lp_cli *cli)
{
    const char *path = cli->argument[0], *output = lp_cli_text(cli, "output", NULL);
    int64_t most;
    if (!lp_cli_integer(cli, "families", 20, 0, INT64_MAX, &most))
        return LP_EXIT_USAGE;
    if (lp_cli_text(cli, "save-headers", NULL) != NULL && is_trace(path))
        return lp_cli_usage(cli, "'%s' is a trace and can be given as a checkpoint itself", lp_cli_clean(path));
    if (output != NULL) {
        const int exit_code = lp_cli_open_output(cli, output, lp_cli_flag(cli, "force", false));
        if (exit_code != 0)
            return exit_code;
    }
    const int exit_code = is_trace(path) ? lp_info_trace(cli, path) : info_checkpoint(cli, path, most);
    return exit_code != 0 ? exit_code : lp_cli_close_output(cli);
}

static const lp_option options[] = {
    {"format", 0, "FORMAT", "text|json", "how to print (default text)"},
    {"families", 0, "N", NULL, "families to list (default 20; all in JSON)"},
    {"all", 0, NULL, NULL, "list every family"},
    {"tensors", 0, NULL, NULL, "list every tensor: name, dtype, shape, bytes, file and offset"},
    {"save-headers", 0, "FILE", NULL,
     "write the headers of all shards and config.json to one small file, and print nothing"},
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},
    {"force", 'f', NULL, NULL, "replace an existing output"},
};

const lp_command lp_info_command = {
    .name = "info",
    .arguments = "PATH",
    .summary = "show what a checkpoint or a trace holds, and whether it is sound",
    .details =
        "PATH is a safetensors file, an index (*.safetensors.index.json), a folder with either, a header bundle, or a "
        "trace. Only headers are read. A family is the names that differ only in indices; those of one dtype and shape "
        "share a line, largest first.\n\n"
        "A checkpoint is refused with exit code 3 when any header is malformed, a file is short or long, two "
        "tensors overlap or leave a hole, or index and shards do not agree; the error names the tensor and the "
        "byte.\n\n"
        "A header bundle (--save-headers) is accepted wherever a checkpoint is, as long as no payload is needed: by "
        "record, check and info, on machines that do not have the weights.\n\n"
        "Example:  loadplan info ./ckpt --format=json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .least = 1,
    .most = 1,
    .run = run_info,
};
