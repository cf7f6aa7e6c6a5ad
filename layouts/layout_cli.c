/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout`: its options, the list, and what they ask for. */
#include "layouts/layout_cli.h"
#include "traces/cli_private.h"

/* "E=32,H=4096,I=2048", in any order; E is 1 unless given. */
static bool parse_sizes(const char *text, lp_layout_sizes *sizes)
{
    *sizes = (lp_layout_sizes){1, 0, 0};
    while (*text != '\0') {
        int64_t *const size = text[0] == 'E'   ? &sizes->experts
                              : text[0] == 'H' ? &sizes->hidden
                              : text[0] == 'I' ? &sizes->intermediate
                                               : NULL;
        if (size == NULL || text[1] != '=' || text[2] < '0' || text[2] > '9')
            return false;
        int64_t value = 0;
        for (text += 2; *text >= '0' && *text <= '9'; text++)
            if (!lp_mul(value, 10, &value) || !lp_add(value, *text - '0', &value))
                return false;
        *size = value;
        if (*text == ',' && text[1] != '\0')
            text++;
        else if (*text != '\0')
            return false;
    }
    return sizes->hidden > 0 && sizes->intermediate > 0;
}

/* ---- list ---- */

/* The table of layout.h, then the chains of public kernels. */
static int list_layouts(lp_cli *cli, bool json)
{
    json_t *const rows = json ? json_array() : NULL;
    json_t *const chains = json ? json_array() : NULL;
    for (int32_t i = 0; i < lp_layout_count(); i++) {
        const lp_layout *const layout = lp_layout_at(i);
        if (json)
            json_array_append_new(rows,
                                  json_pack("{s:s, s:i, s:s, s:s}", "id", layout->id, "version", (int)layout->version,
                                            "summary", layout->summary, "kernels", layout->kernels));
        else
            fprintf(cli->out, "%-26s  %s\n", layout->id, layout->summary);
    }
    for (int32_t i = 0; i < lp_chain_known_count(); i++) {
        const lp_chain_known *const k = lp_chain_known_at(i);
        if (json)
            json_array_append_new(chains, json_pack("{s:s, s:i, s:s, s:s, s:i, s:s}", "id", k->id, "version",
                                                    (int)k->version, "summary", k->summary, "kernels", k->kernels,
                                                    "unit_bits", (int)k->unit_bits, "chain", k->chain));
        else
            fprintf(cli->out, "%-26s  %s\n", k->id, k->summary);
    }
    if (json && !lp_cli_json(cli, json_pack("{s:i, s:o, s:o}", "format", 1, "layouts", rows, "chains", chains)))
        return LP_EXIT_ENVIRONMENT;
    return LP_EXIT_DONE;
}

/* ---- the command ---- */

/* Of a picture for which no sizes are given: a usual model, legal for every layout. */
static const lp_layout_sizes picture_sizes = {.experts = 32, .hidden = 4096, .intermediate = 2048};

static const char *id_at(int index)
{
    const int32_t layouts = lp_layout_count();
    return index < layouts ? lp_layout_at(index)->id : lp_chain_known_at(index - layouts)->id;
}

int lp_layout_unknown(lp_cli *cli, const char *id)
{
    const int all = (int)(lp_layout_count() + lp_chain_known_count());
    const char *const near = lp_cli_nearest(id, id_at, all);
    char names[256];
    lp_layout_writer w = lp_layout_writer_start(names, sizeof names);
    int found = 0;
    for (int i = 0; i < all; i++)
        if (strstr(id_at(i), id) != NULL && ++found <= 4)
            lp_layout_put(&w, "%s%s", found == 1 ? "" : ", ", id_at(i));
    if (lp_layout_is_chain_text(id))
        return lp_cli_usage(cli, "no layout has the name '%s': a layout of one's own goes behind '--chain'",
                            lp_cli_clean(id));
    if (found > 1)
        return lp_cli_usage(cli, "unknown layout '%s'; there are %s%s", lp_cli_clean(id), names,
                            found > 4 ? ", ..." : "");
    if (near != NULL)
        return lp_cli_usage(cli, "unknown layout '%s'; did you mean '%s'?", lp_cli_clean(id), near);
    return lp_cli_usage(cli, "unknown layout '%s'; 'loadplan layout' lists them", lp_cli_clean(id));
}

static int run_layout(lp_cli *cli)
{
    const char *const in = lp_cli_text(cli, "apply", NULL), *const out = lp_cli_text(cli, "output", NULL);
    const char *const sizes_text = lp_cli_text(cli, "shape", NULL);
    const char *const format = lp_cli_text(cli, "format", "text");
    const bool json = strcmp(format, "json") == 0, svg = strcmp(format, "svg") == 0;
    const bool force = lp_cli_flag(cli, "force", false), inverse = lp_cli_flag(cli, "inverse", false);
    const lp_layout *layout = NULL;
    lp_layout_sizes sizes;

    const char *const chain = lp_cli_text(cli, "chain", NULL), *const record = lp_cli_text(cli, "identify", NULL);
    const bool named = cli->argument_count > 0;
    if (named && chain != NULL)
        return lp_cli_usage(cli, "'--chain' stands for the name of a layout: give one of them");
    const lp_chain_known *const known = named ? lp_chain_known_find(cli->argument[0]) : NULL;
    if (known != NULL || chain != NULL || (record != NULL && !named))
        return lp_chain_run(cli, known, chain);
    if (named) {
        layout = lp_layout_find(cli->argument[0]);
        if (layout == NULL)
            return lp_layout_unknown(cli, cli->argument[0]);
    }
    static const char *const of_chains[] = {"identify", "compare", "then"};
    for (size_t i = 0; i < sizeof of_chains / sizeof of_chains[0]; i++) {
        if (lp_cli_text(cli, of_chains[i], NULL) == NULL)
            continue;
        if (named)
            return lp_cli_usage(cli, "'--%s' is about chains, and %s is none", of_chains[i], layout->id);
        return lp_cli_usage(cli, "'--%s' needs a chain: its name, or '--chain'", of_chains[i]);
    }
    if (!named && (in != NULL || sizes_text != NULL || svg))
        return lp_cli_usage(cli, "'--%s' needs the name of a layout",
                            in != NULL           ? "apply"
                            : sizes_text != NULL ? "shape"
                                                 : "format=svg");
    if (inverse && in == NULL)
        return lp_cli_usage(cli, "'--inverse' needs '--apply'");
    if (in != NULL && out == NULL)
        return lp_cli_usage(cli, "'--apply' needs '-o FILE'");
    if (sizes_text != NULL) {
        lp_error err;
        if (!parse_sizes(sizes_text, &sizes))
            return lp_cli_usage(cli, "'%s' is not of the form E=32,H=4096,I=2048", lp_cli_clean(sizes_text));
        if (lp_layout_check(layout, &sizes, &err) != LP_OK)
            return lp_cli_usage(cli, "%s", err.text);
    } else if (svg) {
        sizes = picture_sizes;
        if (layout->slot_dim < 0)
            sizes.experts = 1;
    }
    if (in != NULL)
        return lp_layout_transform_file(cli, layout, sizes_text == NULL ? NULL : &sizes, in, out, force, inverse);

    int exit_code = out == NULL ? 0 : lp_cli_open_output(cli, out, force);
    if (exit_code != 0)
        return exit_code;
    if (layout == NULL)
        exit_code = list_layouts(cli, json);
    else if (svg)
        exit_code = lp_layout_show_svg(cli, layout, &sizes);
    else if (json)
        exit_code = lp_layout_show_json(cli, layout, sizes_text == NULL ? NULL : &sizes);
    else
        exit_code = lp_layout_show_text(cli, layout, sizes_text == NULL ? NULL : &sizes);
    const int close_code = lp_cli_close_output(cli);
    return exit_code != 0 ? exit_code : close_code;
}

static const lp_option options[] = {
    {"shape", 0, "SIZES", NULL, "show it for these sizes: E=32,H=4096,I=2048, or N=4096,K=512"},
    {"chain", 0, "TEXT", NULL,
     "a layout that has no name: 'N(r a=4 i=32) K(c k=4) -> r c (i a k)', '(8,32):(33,1)', 'BA16a64b'"},
    {"unit", 0, "BITS", NULL, "with --chain or --identify: what moves: 1, 2, 4, 8 (default), 16, 32 or 64 bits"},
    {"pad", 0, NULL, NULL, "with a chain: round sizes up with zeros (default where the kernels want it)"},
    {"identify", 0, "FILE", NULL, "print the chain of the permutation recorded in this file"},
    {"compare", 0, "CHAIN", NULL, "say whether this layout or chain is the same at this shape"},
    {"then", 0, "CHAIN", NULL, "with a chain and --shape: go on with this one, and be both"},
    {"apply", 0, "FILE", NULL, "transform the checkpoint tensors of this safetensors file"},
    {"inverse", 0, NULL, NULL,
     "with --apply: from the layout back to checkpoint tensors; else the chain of the way back"},
    {"format", 0, "FORMAT", "text|json|svg", "text (default), json, or svg: a picture"},
    {"output", 'o', "FILE", NULL, "write there"},
    {"force", 'f', NULL, NULL, "replace an existing output"},
};

const lp_command lp_layout_commands[] = {{
    .name = "layout",
    .arguments = "[NAME]",
    .summary = "list kernel layouts, show one, or transform a file",
    .details =
        "Without NAME: one line for each layout. With NAME: what it needs and how it orders memory; with --shape also\n"
        "the tensor's shape and strides and the index formula in both directions. E are the experts of this rank (1\n"
        "unless given), H is the hidden size and I the intermediate size.\n"
        "\n"
        "--format=svg draws it: rows of the checkpoint, the memory that they go to, and the axes in memory order "
        "(sizes\n"
        "of E=32,H=4096,I=2048 unless --shape gives others).\n"
        "\n"
        "--apply reads checkpoint tensors from a safetensors file: w1 and w3, or w13 (rows of w1, then of w3), or w2;\n"
        "each [E, rows, columns], or [rows, columns] for one expert. The output holds one tensor with the layout's\n"
        "name, its dimensions in the order of memory; its metadata gives the logical shape and strides. --inverse\n"
        "turns such a file back. Files are read whole into memory.\n"
        "\n"
        "Layouts of other kernels are chains: the dimensions of one tensor, split into axes, and the axes as memory\n"
        "runs through them. --chain says one that has no name; axes in brackets are one dimension, '~a' turns an\n"
        "axis round, 'a^b' swizzles it by another one, 'a+b' and 'a-b' rotate it, 'a~b' has it run to and fro,\n"
        "'a[2 0 1]' lists its steps and ', (a b)[...]' behind all dimensions those of two, 'K=33' gives a dimension\n"
        "of the result room, and bars cut a dimension into parts on both sides: 'N P(d=2 | q=16) -> (N d | N q)'.\n"
        "--apply takes a file of one tensor, or of one for each part, in the order of their names. Layouts of CuTe\n"
        "('Sw<3,4,3> o (8,128):(128,1)'), Triton ('[[0, 1], [0, 2], [1, 0]]'), oneDNN ('BA16a64b4a') and XLA\n"
        "('{1,0:T(8,128)(2,1)}') are taken as they are.\n"
        "\n"
        "--identify reads what a transform made of 0, 1, 2, ... of the shape in --shape, and prints its chain, or "
        "with\n"
        "NAME or --chain whether that is the same: one tensor of integers, or several, sorted by name, made of the\n"
        "lowest unit of each index, of the next one, and so on. --compare does the same with another chain. --then\n"
        "goes on with another chain, --inverse turns the way round: both show the chain that results.\n"
        "\n"
        "Exit codes: 1 not the same, 2 sizes that the kernels cannot use, 3 a file whose tensors do not fit the\n"
        "layout, or a permutation that no chain says.\n"
        "\n"
        "Example:  loadplan layout nvfp4_l1_scale --shape E=32,H=4096,I=2048",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .least = 0,
    .most = 1,
    .run = run_layout,
}};
const int lp_layout_command_count = 1;
