/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout` for chains: which chain and which sizes the command line means. */
#include "layouts/layout_cli.h"

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

/* "N,K": what --shape may give. */
static const char *dims_text(const lp_chain *chain, char *buffer, size_t bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, bytes);
    for (int32_t d = 0; d < chain->ndim; d++)
        lp_layout_put(&w, "%s%s", d == 0 ? "" : ",", chain->dim_name[d][0] != '\0' ? chain->dim_name[d] : "?");
    return buffer;
}

/* Reads --shape, "N=100,K=5" (dimensions and open axes, in any order) or "100,5", into the request: its shape and the
 * extents of axes. `text` may be NULL. Returns 0, or an exit code having complained. */
static int read_sizes(lp_cli *cli, lp_chain_request *request, const char *text)
{
    lp_chain *const chain = &request->chain;
    int32_t given = 0;
    char dims[LP_CHAIN_DIMS * (LP_CHAIN_NAME + 1)];
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
            return lp_cli_usage(cli, "'--shape' gives more sizes than there are dimensions: %s",
                                dims_text(chain, dims, sizeof dims));
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
        return lp_cli_usage(cli, "'--shape' gives no %s: the dimensions are %s", chain->dim_name[missing],
                            dims_text(chain, dims, sizeof dims));
    if (sizes > 0 && missing >= 0)
        return lp_cli_usage(cli, "'--shape' gives %d of %d dimensions", (int)sizes, (int)chain->ndim);
    return 0;
}

/* ---- chains ---- */

/* As many dimensions as there are sizes, with the names that they have. What is wrong is said later. */
static void name_dims(lp_chain *chain, const char *sizes)
{
    int64_t value;
    while (*sizes != '\0' && chain->ndim < LP_CHAIN_DIMS && read_size(&sizes, chain->dim_name[chain->ndim], &value))
        chain->ndim++;
}

void lp_chain_take_only_shape(lp_chain_request *request)
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

int lp_chain_read_request(lp_cli *cli, lp_chain_request *out, const lp_chain_known *known, const char *text)
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
    return read_sizes(cli, out, sizes);
}
