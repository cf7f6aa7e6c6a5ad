/* SPDX-License-Identifier: Apache-2.0 */
/* A chain as text, in the form that lp_chain_parse reads. */
#include "layouts/layout_private.h"

/* The axes of dimension d in one part; extents of those that have not been written yet. */
static void put_axes(lp_layout_writer *w, const lp_chain *chain, const lp_chain_part *part, int32_t d,
                     uint32_t *written)
{
    const char *space = "";
    for (int32_t i = 0; i < part->axes; i++) {
        const int32_t a = part->source[i];
        const lp_chain_axis *const axis = &chain->axis[a];
        if (axis->dim != d)
            continue;
        lp_layout_put(w, "%s%s", space, axis->name);
        if (axis->extent != 0 && (*written >> a & 1) == 0)
            lp_layout_put(w, "=%lld", (long long)axis->extent);
        *written |= (uint32_t)1 << a;
        space = " ";
    }
}

/* A dimension of one axis of the same name needs no brackets. */
static bool stands_alone(const lp_chain *chain, int32_t d)
{
    int32_t count = 0, last = 0;
    for (int32_t a = 0; a < chain->axes; a++)
        if (chain->axis[a].dim == d) {
            count++;
            last = a;
        }
    return count == 1 && d != chain->split_dim && strcmp(chain->dim_name[d], chain->axis[last].name) == 0;
}

static void put_places(lp_layout_writer *w, const lp_chain *chain, const lp_chain_part *part, int32_t d)
{
    for (int32_t i = part->out_first[d]; i < part->out_first[d + 1]; i++) {
        const lp_chain_place *const place = &part->memory[i];
        lp_layout_put(w, "%s%s%s", i == part->out_first[d] ? "" : " ", place->backwards ? "~" : "",
                      chain->axis[place->axis].name);
        const int32_t steps = place->list_end > 0 ? (int32_t)chain->axis[place->axis].extent : 0;
        for (int32_t s = 0; s < steps; s++)
            lp_layout_put(w, "%s%d", s == 0 ? "[" : " ", (int)chain->list[place->list_end - steps + s]);
        lp_layout_put(w, "%s", steps > 0 ? "]" : "");
        for (int32_t a = 0; a < chain->axes; a++)
            if ((lp_chain_turns(place) >> a & 1) != 0)
                lp_layout_put(w, "%c%s", lp_chain_turn_sign(place, a), chain->axis[a].name);
    }
}

/* ", (w b)[0 2 1 3]" */
static void put_joint(lp_layout_writer *w, const lp_chain *chain, const lp_chain_joint *joint)
{
    for (int32_t i = 0; i < joint->axes; i++)
        lp_layout_put(w, "%s%s", i == 0 ? ", (" : " ", chain->axis[joint->axis[i]].name);
    for (int32_t s = 0; s < joint->steps; s++)
        lp_layout_put(w, "%s%d", s == 0 ? ")[" : " ", (int)chain->list[joint->list_end - joint->steps + s]);
    lp_layout_put(w, "]");
}

char lp_chain_turn_sign(const lp_chain_place *place, int32_t axis)
{
    if ((place->swizzle >> axis & 1) != 0)
        return '^';
    if ((place->flip >> axis & 1) != 0)
        return '~';
    return (place->plus >> axis & 1) != 0 ? '+' : '-';
}

size_t lp_chain_text(const lp_chain *chain, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    uint32_t written = 0;
    for (int32_t d = 0; d < chain->ndim; d++) {
        const bool alone = stands_alone(chain, d);
        const int32_t parts = d == chain->split_dim ? chain->parts : 1;
        if (!alone)
            lp_layout_put(&w, "%s(", chain->dim_name[d]);
        for (int32_t p = 0; p < parts; p++) {
            lp_layout_put(&w, p == 0 ? "" : " | ");
            put_axes(&w, chain, &chain->part[p], d, &written);
        }
        lp_layout_put(&w, alone ? " " : ") ");
    }
    lp_layout_put(&w, "->");
    for (int32_t d = 0; d < chain->out_ndim; d++) {
        const lp_chain_part *const first = &chain->part[0];
        const int32_t parts = d == chain->split_out ? chain->parts : 1;
        const bool brackets = parts > 1 || first->out_first[d + 1] - first->out_first[d] > 1;
        lp_layout_put(&w, brackets ? " (" : " ");
        for (int32_t p = 0; p < parts; p++) {
            lp_layout_put(&w, p == 0 ? "" : " | ");
            put_places(&w, chain, &chain->part[d == chain->split_out ? chain->out_order[p] : 0], d);
        }
        lp_layout_put(&w, brackets ? ")" : "");
        if (chain->room[d] != 0)
            lp_layout_put(&w, "=%lld", (long long)chain->room[d]);
    }
    for (int32_t j = 0; j < chain->joints; j++)
        put_joint(&w, chain, &chain->joint[j]);
    return w.used;
}
