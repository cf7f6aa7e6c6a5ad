/* SPDX-License-Identifier: Apache-2.0 */
/* From the parts of the source that were found in a recorded permutation to a chain: in the result they take turns, in
 * blocks of equal sizes. */
#include "layouts/chain_split.h"

static int part_at(const lp_split_search *s, int64_t k)
{
    int p = 0;
    while (s->index[k] >= s->first[p + 1])
        p++;
    return p;
}

int64_t lp_split_count_blocks(lp_split_search *s)
{
    int64_t length[LP_CHAIN_PARTS] = {0}, run = 0, turns = 0;
    int p = -1;
    s->looked += s->count;
    for (int64_t k = 0; k < s->count; k++, run++) {
        if (s->index[k] >= s->first[s->parts]) {
            run--;
            continue;
        }
        const int next = part_at(s, k);
        if (next == p)
            continue;
        if (p >= 0 && length[p] != 0 && run != length[p])
            return 0;
        if (p >= 0)
            length[p] = run;
        if (turns < s->parts && length[next] != 0) /* again, before all have been there */
            return 0;
        if (turns < s->parts)
            s->order[turns] = next;
        else if (next != s->order[turns % s->parts])
            return 0;
        turns++;
        p = next;
        run = 0;
    }
    const bool whole = length[p] == 0 || run == length[p];
    return whole && turns % s->parts == 0 ? turns / s->parts : 0;
}

/* Cuts axis i in two, the inner one of `inner` steps. */
static bool cut_axis(lp_split_part *list, int32_t i, int64_t inner)
{
    if (list->axis[i].extent % inner != 0 || list->count == LP_CHAIN_AXES)
        return false;
    memmove(&list->axis[i + 1], &list->axis[i], (size_t)(list->count - i) * sizeof list->axis[0]);
    list->count++;
    list->axis[i].extent /= inner;
    list->axis[i].below *= inner;
    list->axis[i + 1].extent = inner;
    list->outer += i < list->outer;
    return true;
}

/* The axes that count blocks, one of them cut where it has to be. */
static bool cut_blocks(lp_split_part *list, int64_t blocks)
{
    int64_t counted = 1;
    for (list->outer = 0; counted < blocks && list->outer < list->count; list->outer++) {
        const int64_t left = blocks / counted, extent = list->axis[list->outer].extent;
        if (blocks % counted != 0 ||
            (extent > left && (extent % left != 0 || !cut_axis(list, list->outer, extent / left))))
            return false;
        counted *= list->axis[list->outer].extent;
    }
    return counted == blocks;
}

/* Cuts axes of the common dimensions until all parts cut them in the same places. */
static bool agree(lp_split_search *s)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int p = 0; p < s->parts; p++)
            for (int q = 0; q < s->parts; q++)
                for (int32_t j = 0; j < s->part[q].count; j++)
                    for (int32_t i = 0; i < s->part[p].count; i++) {
                        const lp_split_axis *const a = &s->part[p].axis[i], *const b = &s->part[q].axis[j];
                        if (a->dim != b->dim || a->dim == s->dim || b->below <= a->below ||
                            b->below >= a->below * a->extent)
                            continue;
                        if (b->below % a->below != 0 || !cut_axis(&s->part[p], i, b->below / a->below))
                            return false;
                        changed = true;
                    }
    }
    return true;
}

/* That the text is a chain which gives the permutation. */
static bool says_it(const lp_split_search *s, const char *text, lp_chain *chain)
{
    lp_chain_form form;
    if (lp_chain_parse(chain, text, NULL) != LP_OK || lp_chain_resolve(&form, chain, s->shape, false, NULL) != LP_OK ||
        form.units != s->count)
        return false;
    for (int64_t k = 0; k < s->count; k++)
        if (lp_chain_element_at(&form, k) != s->place[k])
            return false;
    return true;
}

bool lp_split_join(const lp_split_search *found, lp_chain *out)
{
    lp_split_search s = *found;
    char text[2048];
    lp_layout_writer w = lp_layout_writer_start(text, sizeof text);
    const int64_t blocks = lp_split_count_blocks(&s);
    if (s.parts < 2 || blocks == 0)
        return false;
    for (int p = 0; p < s.parts; p++)
        if (!cut_blocks(&s.part[p], blocks))
            return false;
    if (!agree(&s))
        return false;
    lp_split_text(&w, &s);
    return w.used < sizeof text && says_it(&s, text, out);
}
