/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout` for chains: sizes from the command line, and the description of one. */
#include "layouts/layout_cli.h"

#include <inttypes.h>

/* ---- sizes ---- */

/* One "NAME=VALUE" or "VALUE" of the list; *at moves behind it and its comma. */
static bool read_size(const char **at, char name[LP_CHAIN_NAME], int64_t *value)
{
    const char *p = *at;
    const size_t letters = strcspn(p, "=,x");
    const bool named = p[letters] == '=';
    name[0] = '\0';
    if (named) {
        if (letters == 0 || letters >= LP_CHAIN_NAME)
            return false;
        memcpy(name, p, letters);
        name[letters] = '\0';
        p += letters + 1;
    }
    if (*p < '0' || *p > '9')
        return false;
    for (*value = 0; *p >= '0' && *p <= '9'; p++)
        if (!lp_mul(*value, 10, value) || !lp_add(*value, *p - '0', value))
            return false;
    if ((*p == ',' || (*p == 'x' && !named)) && p[1] != '\0')
        p++;
    else if (*p != '\0')
        return false;
    *at = p;
    return true;
}

static int32_t dim_named(const lp_chain *chain, const char *name)
{
    for (int32_t d = 0; d < chain->ndim; d++)
        if (name[0] != '\0' && strcmp(chain->dim_name[d], name) == 0)
            return d;
    return -1;
}

int lp_chain_sizes(lp_cli *cli, lp_chain_request *request, const char *text)
{
    lp_chain *const chain = &request->chain;
    int32_t given = 0;
    memset(request->shape, 0, sizeof request->shape);
    request->sized = false;
    if (text == NULL)
        return 0;
    for (const char *at = text; *at != '\0';) {
        char name[LP_CHAIN_NAME];
        int64_t value;
        lp_error err;
        if (!read_size(&at, name, &value))
            return lp_cli_usage(cli, "'%s' is not of the form N=4096,K=512 or 4096,512", lp_cli_clean(text));
        const int32_t d = name[0] != '\0' ? dim_named(chain, name) : given < chain->ndim ? given++ : -1;
        if (d < 0 && name[0] == '\0')
            return lp_cli_usage(cli, "the layout has %d dimensions, not more", (int)chain->ndim);
        if (d < 0 && lp_chain_set(chain, name, value, &err) != LP_OK)
            return lp_cli_usage(cli, "%s", err.text);
        if (d >= 0)
            request->shape[d] = value;
    }
    int32_t missing = -1, sizes = 0;
    for (int32_t d = 0; d < chain->ndim; d++)
        if (request->shape[d] != 0)
            sizes++;
        else if (missing < 0)
            missing = d;
    request->sized = missing < 0;
    if (sizes > 0 && missing >= 0 && chain->dim_name[missing][0] != '\0')
        return lp_cli_usage(cli, "'--shape' gives no %s", chain->dim_name[missing]);
    if (sizes > 0 && missing >= 0)
        return lp_cli_usage(cli, "'--shape' gives %d of %d dimensions", (int)sizes, (int)chain->ndim);
    return 0;
}

/* ---- show ---- */

static void put_list(FILE *out, int64_t count, const int64_t *value)
{
    for (int64_t i = 0; i < count; i++)
        fprintf(out, "%s%" PRId64, i == 0 ? "[" : ", ", value[i]);
    fputs("]", out);
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

static json_t *integers(int64_t count, const int64_t *value)
{
    json_t *const list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(value[i]));
    return list;
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
        json_object_set_new(root, "shape", integers(form->chain.ndim, form->shape));
        json_object_set_new(root, "padded", integers(form->chain.ndim, form->padded));
        json_object_set_new(root, "result", integers(form->chain.out_ndim, form->out_shape));
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

/* ---- the command, once it is clear that it is about a chain ---- */

/* As many dimensions as there are sizes, with the names that they have. What is wrong is said later. */
static void name_dims(lp_chain *chain, const char *sizes)
{
    int64_t value;
    while (*sizes != '\0' && chain->ndim < LP_CHAIN_DIMS && read_size(&sizes, chain->dim_name[chain->ndim], &value))
        chain->ndim++;
}

/* Where all extents are constants the chain says its only shape itself. */
static void take_only_shape(lp_chain_request *request)
{
    const lp_chain *const c = &request->chain;
    int64_t size[LP_CHAIN_DIMS] = {0};
    for (int32_t p = 0; p < c->parts; p++)
        for (int32_t d = 0; d < c->ndim; d++) {
            int64_t part = 1;
            for (int32_t i = 0; i < c->part[p].axes; i++) {
                const lp_chain_axis *const axis = &c->axis[c->part[p].source[i]];
                if (axis->dim == d && (axis->extent == 0 || !lp_mul(part, axis->extent, &part)))
                    return;
            }
            if ((p == 0 || d == c->split_dim) && !lp_add(size[d], part, &size[d]))
                return;
        }
    request->sized = c->axes > 0;
    memcpy(request->shape, size, sizeof size);
}

/* A chain of the table, of the text of --chain, or none but a shape, for --identify. */
static int chain_request(lp_cli *cli, lp_chain_request *out, const lp_chain_known *known, const char *text)
{
    const char *const sizes = lp_cli_text(cli, "shape", NULL);
    lp_error err;
    int64_t unit;
    if (!lp_cli_integer(cli, "unit", known != NULL ? known->unit_bits : 8, 1, 64, &unit))
        return LP_EXIT_USAGE;
    if ((unit & (unit - 1)) != 0)
        return lp_cli_usage(cli, "'--unit' is 1, 2, 4, 8, 16, 32 or 64");
    *out = (lp_chain_request){.known = known, .unit_bits = (int)unit};
    out->pads = lp_cli_flag(cli, "pad", known != NULL && known->pads);
    if (known != NULL)
        text = known->chain;
    if (text != NULL && lp_chain_read(&out->chain, text, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    if (text == NULL && sizes != NULL)
        name_dims(&out->chain, sizes);
    if (text != NULL && sizes != NULL && strstr(sizes, "E=") != NULL && dim_named(&out->chain, "E") < 0 &&
        lp_chain_stack(&out->chain, "E", &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    return lp_chain_sizes(cli, out, sizes);
}

/* The chain of --compare: a name or a text, at the same shape. Its unit is that of its table, or of the first one. */
static int run_compare(lp_cli *cli, const lp_chain_request *request, const char *text, bool json)
{
    const lp_chain_known *const known = lp_chain_known_find(text);
    lp_chain_request with;
    if (!request->sized)
        return lp_cli_usage(cli, "'--compare' needs '--shape' with all dimensions of the source");
    if (known == NULL && strstr(text, "->") == NULL && strpbrk(text, ":[") == NULL)
        return lp_cli_usage(cli, "unknown chain '%s'; 'loadplan layout' lists them", lp_cli_clean(text));
    const int code = chain_request(cli, &with, known, known != NULL ? NULL : text);
    if (code != 0)
        return code;
    if (!with.sized)
        take_only_shape(&with);
    if (!with.sized && with.chain.ndim == request->chain.ndim) {
        memcpy(with.shape, request->shape, sizeof with.shape);
        with.sized = true;
    }
    with.unit_bits = known != NULL ? known->unit_bits : request->unit_bits;
    if (!with.sized)
        return lp_cli_usage(cli, "'%s' takes another shape", lp_cli_clean(text));
    return lp_chain_compare(cli, request, &with, json);
}

int lp_chain_run(lp_cli *cli, const lp_chain_known *known, const char *text)
{
    const char *const in = lp_cli_text(cli, "apply", NULL), *const out = lp_cli_text(cli, "output", NULL);
    const char *const record = lp_cli_text(cli, "identify", NULL), *const other = lp_cli_text(cli, "compare", NULL);
    const char *const format = lp_cli_text(cli, "format", "text");
    const bool json = strcmp(format, "json") == 0, svg = strcmp(format, "svg") == 0;
    const bool inverse = lp_cli_flag(cli, "inverse", false);
    const bool force = lp_cli_flag(cli, "force", false);
    lp_chain_request request;
    int code = chain_request(cli, &request, known, text);
    if (code != 0)
        return code;
    if (!request.sized && in == NULL && lp_cli_text(cli, "shape", NULL) == NULL)
        take_only_shape(&request);
    if (svg && (record != NULL || other != NULL || in != NULL || request.chain.axes == 0))
        return lp_cli_usage(cli, "'--format=svg' draws one layout");
    if (record != NULL && !request.sized)
        return lp_cli_usage(cli, "'--identify' needs '--shape' with all dimensions of the source");
    if (inverse && in == NULL)
        return lp_cli_usage(cli, "'--inverse' needs '--apply'");
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
