/* SPDX-License-Identifier: Apache-2.0 */
/* Which notation a text is in, and what the readers of the others share. */
#include "layouts/chain_notation.h"

lp_status lp_notation_wrong(const lp_notation *r, const char *what)
{
    return lp_fail_at(r->err, LP_E_ARGUMENT, "layout", r->at, "layout '%s': %s at byte %lld", r->text, what,
                      (long long)r->at);
}

bool lp_notation_skip(lp_notation *r, char c)
{
    while (r->text[r->at] == ' ' || r->text[r->at] == '\n' || r->text[r->at] == '\t')
        r->at++;
    if (r->text[r->at] != c || c == '\0')
        return false;
    r->at++;
    return true;
}

lp_status lp_notation_number(lp_notation *r, int64_t *value)
{
    (void)lp_notation_skip(r, '_');
    const int64_t begin = r->at;
    *value = 0;
    for (; r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        if (!lp_mul(*value, 10, value) || !lp_add(*value, r->text[r->at] - '0', value) || *value > (int64_t)1 << 56)
            return lp_notation_wrong(r, "a number of more than 2^56");
    return r->at == begin ? lp_notation_wrong(r, "a number should stand") : LP_OK;
}

lp_status lp_notation_end(lp_status status, lp_error *err)
{
    if (status != LP_E_UNSUPPORTED)
        return status;
    if (err != NULL)
        err->code = LP_E_ARGUMENT;
    return LP_E_ARGUMENT;
}

lp_status lp_chain_read(lp_chain *out, const char *text, lp_error *err)
{
    if (strstr(text, "->") != NULL)
        return lp_chain_parse(out, text, err);
    if (lp_chain_is_tag(text))
        return lp_chain_read_tag(out, text, err);
    const char *const brace = strchr(text, '{');
    if (brace != NULL && brace[1] >= '0' && brace[1] <= '9')
        return lp_chain_read_xla(out, text, err);
    if (strchr(text, ':') != NULL)
        return lp_chain_read_cute(out, text, err);
    if (strstr(text, "[[") != NULL || strstr(text, "[ [") != NULL)
        return lp_chain_read_bases(out, text, err);
    return lp_fail(err, LP_E_ARGUMENT,
                   "'%s' is no layout: a chain has '->' ('N(r i=16) K -> r K i'); CuTe '(8,4):(4,1)', Triton '[[0, 1], "
                   "[1, 0]]', oneDNN 'BA16a64b' and XLA '{1,0:T(8,128)}' are read too",
                   text);
}
