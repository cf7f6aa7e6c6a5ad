/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of the parts of a recorded permutation, as text, which lp_chain_parse then reads. */
#include "layouts/chain_split.h"

/* How many axes of the same dimension lie outside axis i. */
static int outside(const lp_split_part *list, int32_t i)
{
    int count = 0;
    for (int32_t j = 0; j < list->count; j++)
        count += list->axis[j].dim == list->axis[i].dim && list->axis[j].below > list->axis[i].below;
    return count;
}

static int of_dim(const lp_split_part *list, int dim)
{
    int count = 0;
    for (int32_t i = 0; i < list->count; i++)
        count += list->axis[i].dim == dim;
    return count;
}

static void put_dim(lp_layout_writer *w, const lp_split_search *s, int d)
{
    if (s->ndim == 2)
        lp_layout_put(w, "%s", d == 0 ? "N" : "K");
    else
        lp_layout_put(w, "D%d", d);
}

/* Axes that count blocks are one in all parts, and so are those of the dimensions that no bars cut. */
static void put_name(lp_layout_writer *w, const lp_split_search *s, int p, int32_t i)
{
    const lp_split_part *const list = &s->part[p];
    const int d = list->axis[i].dim;
    if (d == s->dim && i < list->outer)
        lp_layout_put(w, "b%d", (int)i);
    else if (d == s->dim)
        lp_layout_put(w, "%c%d", 'p' + p, outside(list, i));
    else if (of_dim(list, d) == 1)
        put_dim(w, s, d);
    else if (s->ndim == 2)
        lp_layout_put(w, "%s%d", d == 0 ? "n" : "k", outside(list, i));
    else
        lp_layout_put(w, "d%d_%d", d, outside(list, i));
}

/* "(n0 n1=4)" of a dimension in one part, by falling steps; the outermost axis is left open. In the dimension with bars
 * that is the first one that counts blocks. */
static void put_source(lp_layout_writer *w, const lp_split_search *s, int p, int d)
{
    const lp_split_part *const list = &s->part[p];
    const int count = of_dim(list, d);
    if (count == 0)
        lp_layout_put(w, "%c0=1", 'p' + p);
    for (int rank = 0; rank < count; rank++)
        for (int32_t i = 0; i < list->count; i++) {
            if (list->axis[i].dim != d || outside(list, i) != rank)
                continue;
            bool open = d == s->dim ? i < list->outer : rank == 0;
            for (int32_t j = 0; j < i && d == s->dim; j++)
                open = open && list->axis[j].dim != d;
            lp_layout_put(w, "%s", rank > 0 ? " " : "");
            put_name(w, s, p, i);
            if (!open)
                lp_layout_put(w, "=%lld", (long long)list->axis[i].extent);
        }
}

static void put_result(lp_layout_writer *w, const lp_split_search *s, int p, int32_t from, int32_t until)
{
    for (int32_t i = from; i < until; i++) {
        lp_layout_put(w, "%s%s", i > from ? " " : "", s->part[p].axis[i].backwards ? "~" : "");
        put_name(w, s, p, i);
    }
}

void lp_split_text(lp_layout_writer *w, const lp_split_search *s)
{
    for (int d = 0; d < s->ndim; d++) {
        const int parts = d == s->dim ? s->parts : 1, count = of_dim(&s->part[0], d);
        put_dim(w, s, d);
        if (parts == 1 && count < 2) {
            lp_layout_put(w, " ");
            continue;
        }
        for (int p = 0; p < parts; p++) {
            lp_layout_put(w, p == 0 ? "(" : " | ");
            put_source(w, s, p, d);
        }
        lp_layout_put(w, ") ");
    }
    lp_layout_put(w, "->");
    for (int d = 0; d < s->ndim; d++)
        if (d != s->dim && of_dim(&s->part[0], d) == 0) { /* a dimension of one element: it lies outermost */
            lp_layout_put(w, " ");
            put_dim(w, s, d);
        }
    lp_layout_put(w, " ");
    put_result(w, s, 0, 0, s->part[0].outer);
    for (int k = 0; k < s->parts; k++) {
        const int p = s->order[k];
        lp_layout_put(w, k == 0 ? " (" : " | ");
        if (of_dim(&s->part[p], s->dim) == 0)
            lp_layout_put(w, "%c0%s", 'p' + p, s->part[p].outer < s->part[p].count ? " " : "");
        put_result(w, s, p, s->part[p].outer, s->part[p].count);
    }
    lp_layout_put(w, ")");
}
