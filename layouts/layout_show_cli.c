/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout NAME` of a layout of the table: what it needs, and at given sizes its tensor and its formulas. */
#include "layouts/layout_cli.h"

#include <inttypes.h>

enum { TEXT_BYTES = 1024 };

static const char *const shard_name[] = {"w1", "w3", "w2", "w13"};

const char *lp_layout_list_text(char *buffer, size_t buffer_bytes, int64_t count, const int64_t *value)
{
    size_t used = 0;
    for (int64_t i = 0; i < count && used < buffer_bytes; i++)
        used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%" PRId64, i == 0 ? "[" : ", ", value[i]);
    if (used < buffer_bytes)
        snprintf(buffer + used, buffer_bytes - used, count == 0 ? "[]" : "]");
    return buffer;
}

json_t *lp_layout_integers(int64_t count, const int64_t *value)
{
    json_t *const list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(value[i]));
    return list;
}

static void dtype_names(const lp_layout *layout, char *buffer, size_t buffer_bytes)
{
    size_t used = 0;
    for (int i = 0; i < LP_LAYOUT_SOURCES && layout->source[i] != LP_DTYPE_NONE && used < buffer_bytes; i++)
        used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%s", i == 0 ? "" : " or ",
                                 lp_dtype_name(layout->source[i]));
}

int lp_layout_show_text(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes)
{
    char text[TEXT_BYTES], shape[128], stride[128], bytes[32];
    const bool down = lp_layout_takes(layout, LP_SHARD_DOWN);
    fprintf(cli->out, "%s version %d\n", layout->id, (int)layout->version);
    fprintf(cli->out, "  %s\n", layout->summary);
    fprintf(cli->out, "  read by     %s\n", layout->kernels);
    fprintf(cli->out, "  needs       H a multiple of %d, I a multiple of %d\n", (int)layout->rule[0].multiple,
            (int)layout->rule[1].multiple);
    lp_layout_chain_text(layout, text, sizeof text);
    fprintf(cli->out, "  chain       %s\n", text);
    dtype_names(layout, text, sizeof text);
    if (sizes == NULL) {
        fprintf(cli->out, "  checkpoint  %s, %s\n", down ? "w2" : "w1 and w3, or w13 = w1 rows, then w3 rows", text);
        fprintf(cli->out, "  tensor      %s\n", lp_dtype_name(layout->dtype));
        return LP_EXIT_DONE;
    }
    lp_layout_shape d;
    int64_t source[2];
    lp_error err;
    if (lp_layout_describe(layout, sizes, &d, &err) != LP_OK ||
        lp_layout_source_shape(layout, sizes, down ? LP_SHARD_DOWN : LP_SHARD_GATE, layout->source[0], source, &err) !=
            LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    fprintf(cli->out, "  checkpoint  %s %s %s%s%s%s\n", down ? "w2" : "w1 and w3 each",
            lp_dtype_name(layout->source[0]), lp_layout_list_text(shape, sizeof shape, 2, source),
            layout->slot_dim < 0 ? "" : " an expert", layout->source[1] == LP_DTYPE_NONE ? "" : "; dtype ",
            layout->source[1] == LP_DTYPE_NONE ? "" : text);
    fprintf(cli->out, "  tensor      %s %s, strides %s bytes, %s\n", lp_dtype_name(d.dtype),
            lp_layout_list_text(shape, sizeof shape, d.ndim, d.shape),
            lp_layout_list_text(stride, sizeof stride, d.ndim, d.stride), lp_format_bytes(bytes, d.bytes));
    lp_layout_forward_text(layout, sizes, text, sizeof text);
    fprintf(cli->out, "  forward     %s\n", text);
    lp_layout_inverse_text(layout, sizes, text, sizeof text);
    fprintf(cli->out, "  inverse     %s\n", text);
    fprintf(cli->out, "  where       %s%st the row of %s, c the byte in that row, off the byte in the tensor\n",
            layout->slot_dim < 0 ? "" : "e is the expert, ", down ? "" : "half 0 for w1 and 1 for w3, ",
            down ? "w2" : "w1 or w3");
    return LP_EXIT_DONE;
}

static json_t *sources(const lp_layout *layout, const lp_layout_sizes *sizes)
{
    json_t *const list = json_array();
    for (int shard = LP_SHARD_GATE; shard <= LP_SHARD_GATE_UP; shard++) {
        int64_t shape[2];
        if (lp_layout_source_shape(layout, sizes, (lp_shard)shard, layout->source[0], shape, NULL) == LP_OK)
            json_array_append_new(list,
                                  json_pack("{s:s, s:s, s:o}", "name", shard_name[shard], "dtype",
                                            lp_dtype_name(layout->source[0]), "shape", lp_layout_integers(2, shape)));
    }
    return list;
}

int lp_layout_show_json(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes)
{
    char text[TEXT_BYTES];
    lp_layout_chain_text(layout, text, sizeof text);
    json_t *const root = json_pack("{s:i, s:s, s:i, s:s, s:s, s:{s:i, s:i}, s:s, s:s}", "format", 1, "id", layout->id,
                                   "layout_version", (int)layout->version, "summary", layout->summary, "kernels",
                                   layout->kernels, "multiples", "H", (int)layout->rule[0].multiple, "I",
                                   (int)layout->rule[1].multiple, "chain", text, "dtype", lp_dtype_name(layout->dtype));
    if (sizes != NULL) {
        lp_layout_shape d;
        lp_error err;
        if (lp_layout_describe(layout, sizes, &d, &err) != LP_OK) {
            json_decref(root);
            return lp_cli_usage(cli, "%s", err.text);
        }
        json_object_set_new(root, "sizes",
                            json_pack("{s:I, s:I, s:I}", "E", (json_int_t)sizes->experts, "H",
                                      (json_int_t)sizes->hidden, "I", (json_int_t)sizes->intermediate));
        json_object_set_new(root, "checkpoint", sources(layout, sizes));
        json_object_set_new(root, "shape", lp_layout_integers(d.ndim, d.shape));
        json_object_set_new(root, "stride_bytes", lp_layout_integers(d.ndim, d.stride));
        json_object_set_new(root, "bytes", json_integer(d.bytes));
        lp_layout_forward_text(layout, sizes, text, sizeof text);
        json_object_set_new(root, "forward", json_string(text));
        lp_layout_inverse_text(layout, sizes, text, sizeof text);
        json_object_set_new(root, "inverse", json_string(text));
    }
    return lp_cli_json(cli, root) ? LP_EXIT_DONE : LP_EXIT_ENVIRONMENT;
}
