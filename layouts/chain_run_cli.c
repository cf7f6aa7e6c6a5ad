/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout`, once it is clear that it is about a chain. */
#include "layouts/layout_cli.h"

bool lp_layout_is_chain_text(const char *text)
{
    return strstr(text, "->") != NULL || strpbrk(text, ":[{") != NULL || lp_chain_is_tag(text);
}

/* A chain that an option names, by its id or its text; without sizes unless its text has all. */
static int read_other(lp_cli *cli, lp_chain_request *out, const lp_chain_request *first, const char *text)
{
    const lp_chain_known *const known = lp_chain_known_find(text);
    lp_error err;
    *out = (lp_chain_request){.known = known, .unit_bits = known != NULL ? known->unit_bits : first->unit_bits};
    out->pads = lp_cli_flag(cli, "pad", known != NULL && known->pads);
    if (known == NULL && !lp_layout_is_chain_text(text))
        return lp_layout_unknown(cli, text);
    if (lp_chain_read(&out->chain, known != NULL ? known->chain : text, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    if (out->unit_bits != first->unit_bits)
        return lp_cli_usage(cli, "one moves units of %d bits, the other of %d: '--unit' is that of a text",
                            first->unit_bits, out->unit_bits);
    lp_chain_take_only_shape(out);
    return 0;
}

/* Whether dimension d has axes without an extent, which its size alone does not give. */
static bool has_open_axes(const lp_chain *c, int32_t d)
{
    int32_t open = 0;
    for (int32_t a = 0; a < c->axes; a++)
        open += c->axis[a].dim == d && c->axis[a].extent == 0;
    return open > 1;
}

/* Gives another chain the sizes of the first one: by place, for its dimensions may have other names, and by name for
 * axes of which --shape said the extent. A stack of matrices is one for both. */
static void take_sizes(lp_chain_request *other, const lp_chain_request *first)
{
    lp_chain *const c = &other->chain;
    if (c->ndim + 1 == first->chain.ndim && strcmp(first->chain.dim_name[0], "E") == 0)
        (void)lp_chain_stack(c, "E", NULL);
    for (int32_t a = 0; a < c->axes; a++) {
        const int32_t same = lp_chain_axis_named(&first->chain, c->axis[a].name);
        if (c->axis[a].extent == 0 && same >= 0 && first->chain.axis[same].extent != 0 &&
            has_open_axes(c, c->axis[a].dim))
            (void)lp_chain_set(c, c->axis[a].name, first->chain.axis[same].extent, NULL);
    }
    if (c->ndim != first->chain.ndim)
        return;
    memcpy(other->shape, first->shape, sizeof other->shape);
    other->sized = true;
}

/* The chain of --compare: a name or a text, at the same shape. Its unit is that of its table, or of the first one. */
static int run_compare(lp_cli *cli, const lp_chain_request *request, const char *text, bool json)
{
    lp_chain_request with;
    if (!request->sized)
        return lp_cli_usage(cli, "'--compare' needs '--shape' with all dimensions of the source");
    const int code = read_other(cli, &with, request, text);
    if (code != 0)
        return code;
    if (!with.sized)
        take_sizes(&with, request);
    if (!with.sized)
        return lp_cli_usage(cli, "'%s' takes %d dimensions, not %d", lp_cli_clean(text), (int)with.chain.ndim,
                            (int)request->chain.ndim);
    lp_chain_request first = *request; /* a text pads where the layout with a name does */
    first.pads = first.pads || (first.known == NULL && with.pads);
    with.pads = with.pads || (with.known == NULL && first.pads);
    return lp_chain_compare(cli, &first, &with, json);
}

/* --then: the request becomes the chain that does both at its sizes. The second chain takes the result of the first in
 * its dimensions, or in a single one. */
static int take_next(lp_cli *cli, lp_chain_request *request, const char *text)
{
    const lp_platform platform = lp_platform_resolve(lp_cli_platform(cli));
    lp_chain_request next;
    lp_chain_form first, second;
    lp_error err;
    if (!request->sized || request->chain.axes == 0)
        return lp_cli_usage(cli, "'--then' needs a chain and '--shape' with all dimensions of its source");
    const int code = read_other(cli, &next, request, text);
    if (code != 0)
        return code;
    if (lp_chain_resolve(&first, &request->chain, request->shape, request->pads, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    if (!next.sized && next.chain.ndim == 1)
        next.shape[0] = first.units;
    else if (!next.sized && next.chain.ndim != first.chain.out_ndim)
        return lp_cli_usage(cli, "'--then' takes %d dimensions, the result has %d", (int)next.chain.ndim,
                            (int)first.chain.out_ndim);
    else if (!next.sized)
        memcpy(next.shape, first.out_shape, (size_t)next.chain.ndim * sizeof next.shape[0]);
    if (lp_chain_resolve(&second, &next.chain, next.shape, next.pads, &err) != LP_OK)
        return lp_cli_usage(cli, "'--then': %s", err.text);
    if (lp_chain_compose(&request->chain, &first, &second, platform.alloc, &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    request->known = NULL;
    request->pads = request->pads || next.pads;
    return 0;
}

/* --inverse without a file: the request becomes the chain of the way back. */
static int turn_round(lp_cli *cli, lp_chain_request *request)
{
    const lp_platform platform = lp_platform_resolve(lp_cli_platform(cli));
    lp_chain_form form;
    lp_error err;
    if (!request->sized || request->chain.axes == 0)
        return lp_cli_usage(cli, "'--inverse' needs '--apply', or a chain and '--shape'");
    if (lp_chain_resolve(&form, &request->chain, request->shape, request->pads, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    if (lp_chain_invert(&request->chain, &form, platform.alloc, &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    request->known = NULL;
    memcpy(request->shape, form.out_shape, sizeof request->shape);
    return 0;
}

int lp_chain_run(lp_cli *cli, const lp_chain_known *known, const char *text)
{
    const char *const in = lp_cli_text(cli, "apply", NULL), *const out = lp_cli_text(cli, "output", NULL);
    const char *const record = lp_cli_text(cli, "identify", NULL), *const other = lp_cli_text(cli, "compare", NULL);
    const char *const then = lp_cli_text(cli, "then", NULL);
    const char *const format = lp_cli_text(cli, "format", "text");
    const bool json = strcmp(format, "json") == 0, svg = strcmp(format, "svg") == 0;
    const bool inverse = lp_cli_flag(cli, "inverse", false);
    const bool force = lp_cli_flag(cli, "force", false);
    lp_chain_request request;
    int code = lp_chain_read_request(cli, &request, known, text);
    if (code != 0)
        return code;
    if (!request.sized && in == NULL && lp_cli_text(cli, "shape", NULL) == NULL)
        lp_chain_take_only_shape(&request);
    code = then == NULL ? 0 : take_next(cli, &request, then);
    if (code == 0 && inverse && in == NULL)
        code = turn_round(cli, &request);
    if (code != 0)
        return code;
    if (svg && (record != NULL || other != NULL || in != NULL || request.chain.axes == 0))
        return lp_cli_usage(cli, "'--format=svg' draws one layout, without '--apply', '--compare' and '--identify'");
    if (record != NULL && !request.sized)
        return lp_cli_usage(cli, "'--identify' needs '--shape' with all dimensions of the source");
    if (in != NULL && out == NULL)
        return lp_cli_usage(cli, "'--apply' needs '-o FILE'");
    if (other != NULL && (in != NULL || record != NULL || request.chain.axes == 0))
        return lp_cli_usage(cli, "'--compare' takes the name of a layout, or '--chain', and '--shape'");
    if (in != NULL)
        return lp_chain_transform_file(cli, &request, in, out, force, inverse);
    code = out == NULL ? 0 : lp_cli_open_output(cli, out, force);
    if (code != 0)
        return code;
    if (record != NULL)
        code = lp_chain_identify_file(cli, &request, record, json);
    else if (other != NULL)
        code = run_compare(cli, &request, other, json);
    else if (svg)
        code = lp_chain_show_svg(cli, &request);
    else
        code = lp_chain_show(cli, &request, json);
    const int close_code = lp_cli_close_output(cli);
    return code != 0 ? code : close_code;
}
