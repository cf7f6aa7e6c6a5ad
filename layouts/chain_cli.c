/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout` for chains: the description of one. */
#include "layouts/layout_cli.h"

static void put_list(FILE *out, int64_t count, const int64_t *value)
{
    char text[LP_CHAIN_AXES * 24];
    fputs(lp_layout_list_text(text, sizeof text, count, value), out);
}

/* A formula of several parts: a line for each. */
static void put_formula(FILE *out, const char *name, const char *text)
{
    const char *label = name;
    for (const char *end = strstr(text, "; "); end != NULL; text = end + 2, label = "", end = strstr(text, "; "))
        fprintf(out, "  %-11s %.*s\n", label, (int)(end - text), text);
    fprintf(out, "  %-11s %s\n", label, text);
}

static void show_sizes(lp_cli *cli, const lp_chain_form *form, int unit_bits)
{
    char text[LP_CHAIN_TEXT_BYTES], bytes[32];
    fputs("  source      ", cli->out);
    put_list(cli->out, form->chain.ndim, form->shape);
    if (memcmp(form->padded, form->shape, (size_t)form->chain.ndim * sizeof form->shape[0]) != 0) {
        fputs(", padded to ", cli->out);
        put_list(cli->out, form->chain.ndim, form->padded);
    }
    fputs("\n  result      ", cli->out);
    put_list(cli->out, form->chain.out_ndim, form->out_shape);
    fprintf(cli->out, ", %s\n", lp_format_bytes(bytes, (form->units * unit_bits + 7) / 8));
    lp_chain_forward_text(form, text, sizeof text);
    put_formula(cli->out, "forward", text);
    lp_chain_inverse_text(form, text, sizeof text);
    put_formula(cli->out, "inverse", text);
    fprintf(cli->out, "  where       off and indices count units of %d bits%s\n", unit_bits,
            unit_bits == 4  ? ", the low half of a byte first"
            : unit_bits < 8 ? ", the lowest of a byte first"
                            : "");
}

static int show_json(lp_cli *cli, const lp_chain_request *request, const lp_chain_form *form)
{
    char text[LP_CHAIN_TEXT_BYTES];
    const lp_chain_known *const known = request->known;
    lp_chain_text(&request->chain, text, sizeof text);
    json_t *const root = json_pack("{s:i, s:s, s:i, s:b}", "format", 1, "chain", text, "unit_bits", request->unit_bits,
                                   "pads", (int)request->pads);
    if (known != NULL)
        json_object_update_new(root, json_pack("{s:s, s:i, s:s, s:s, s:s}", "id", known->id, "layout_version",
                                               (int)known->version, "summary", known->summary, "kernels",
                                               known->kernels, "source", known->source));
    if (form != NULL) {
        json_object_set_new(root, "shape", lp_layout_integers(form->chain.ndim, form->shape));
        json_object_set_new(root, "padded", lp_layout_integers(form->chain.ndim, form->padded));
        json_object_set_new(root, "result", lp_layout_integers(form->chain.out_ndim, form->out_shape));
        json_object_set_new(root, "units", json_integer(form->units));
        lp_chain_forward_text(form, text, sizeof text);
        json_object_set_new(root, "forward", json_string(text));
        lp_chain_inverse_text(form, text, sizeof text);
        json_object_set_new(root, "inverse", json_string(text));
    }
    return lp_cli_json(cli, root) ? LP_EXIT_DONE : LP_EXIT_ENVIRONMENT;
}

int lp_chain_show(lp_cli *cli, const lp_chain_request *request, bool json)
{
    char text[LP_CHAIN_TEXT_BYTES];
    lp_chain_form form;
    lp_error err;
    const bool sized = request->sized;
    if (sized && lp_chain_resolve(&form, &request->chain, request->shape, request->pads, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    if (json)
        return show_json(cli, request, sized ? &form : NULL);
    if (request->known != NULL) {
        fprintf(cli->out, "%s version %d\n", request->known->id, (int)request->known->version);
        fprintf(cli->out, "  %s\n", request->known->summary);
        fprintf(cli->out, "  read by     %s\n", request->known->kernels);
        fprintf(cli->out, "  after       %s\n", request->known->source);
    }
    lp_chain_text(&request->chain, text, sizeof text);
    fprintf(cli->out, "  chain       %s\n", text);
    fprintf(cli->out, "  moves       units of %d bits; other sizes are %s\n", request->unit_bits,
            request->pads ? "padded with zeros" : "refused");
    if (sized)
        show_sizes(cli, &form, request->unit_bits);
    return LP_EXIT_DONE;
}
