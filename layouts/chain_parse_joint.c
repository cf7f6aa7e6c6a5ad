/* SPDX-License-Identifier: Apache-2.0 */
/* From text to a chain: lists, of one axis and of several together. */
#include "layouts/chain_reader.h"

lp_status lp_chain_read_steps(lp_chain_reader *r, int32_t *steps)
{
    lp_chain *const c = r->chain;
    const int64_t begin = r->at++;
    const int32_t first = c->listed;
    bool seen[LP_CHAIN_LISTS] = {false};
    for (lp_chain_skip_space(r); lp_chain_is_digit(r->text[r->at]); lp_chain_skip_space(r)) {
        const int64_t at = r->at;
        int32_t step = 0;
        for (; lp_chain_is_digit(r->text[r->at]) && step < LP_CHAIN_LISTS; r->at++)
            step = step * 10 + (r->text[r->at] - '0');
        if (step >= LP_CHAIN_LISTS || c->listed == LP_CHAIN_LISTS)
            return lp_chain_wrong(r, at, "lists of more than 256 steps");
        if (seen[step])
            return lp_chain_wrong(r, at, "a step that is there already");
        seen[step] = true;
        c->list[c->listed++] = (uint8_t)step;
    }
    if (r->text[r->at] != ']')
        return lp_chain_wrong(r, r->at, "a step or ']' should stand");
    r->at++;
    *steps = c->listed - first;
    for (int32_t step = 0; step < *steps; step++)
        if (!seen[step])
            return lp_chain_wrong(r, begin, "a list that leaves out steps");
    return *steps == 0 ? lp_chain_wrong(r, begin, "a list without steps") : LP_OK;
}

/* "(w x)[2 0 1 ...]" */
static lp_status read_joint(lp_chain_reader *r)
{
    lp_chain *const c = r->chain;
    lp_chain_skip_space(r);
    const int64_t begin = r->at;
    int32_t steps, parts = 0;
    uint32_t seen = 0;
    if (c->joints == LP_CHAIN_JOINTS)
        return lp_chain_wrong(r, begin, "more than 4 lists of several axes");
    lp_chain_joint *const joint = &c->joint[c->joints];
    if (r->text[r->at] != '(')
        return lp_chain_wrong(r, r->at, "'(' and the axes of a list should stand");
    r->at++;
    for (lp_chain_skip_space(r); r->text[r->at] != ')'; lp_chain_skip_space(r)) {
        char name[LP_CHAIN_NAME];
        const int64_t at = r->at;
        LP_TRY(lp_chain_read_name(r, name));
        const int32_t a = lp_chain_axis_named(c, name);
        if (a < 0 || (seen >> a & 1) != 0)
            return lp_chain_wrong(r, at,
                                  a < 0 ? "an axis that does not stand on the left" : "an axis that is there already");
        if (joint->axes == LP_CHAIN_JOINT_AXES)
            return lp_chain_wrong(r, at, "a list of more than 4 axes");
        joint->axis[joint->axes++] = (int8_t)a;
        seen |= (uint32_t)1 << a;
    }
    r->at++;
    if (joint->axes < 2)
        return lp_chain_wrong(r, begin, "a list of fewer than two axes: the list of one stands behind it, 'a[1 0]'");
    if (r->text[r->at] != '[')
        return lp_chain_wrong(r, r->at, "'[' and steps should stand");
    LP_TRY(lp_chain_read_steps(r, &steps));
    joint->steps = (int16_t)steps;
    joint->list_end = (int16_t)c->listed;
    for (int32_t p = 0; p < c->parts; p++) {
        if (!lp_chain_joint_in(c, joint, p))
            continue;
        parts++;
        for (int32_t i = 0; i < c->part[p].axes; i++) {
            const lp_chain_place *const place = &c->part[p].memory[i];
            const bool own = (seen >> place->axis & 1) != 0;
            if ((lp_chain_turns(place) & seen) != 0 || (own && (lp_chain_turns(place) != 0 || place->list_end > 0)))
                return lp_chain_wrong(r, begin, "a list of axes that turn others, are turned, or have one themselves");
        }
    }
    if (parts == 0)
        return lp_chain_wrong(r, begin, "a list of axes of different parts");
    c->joints++;
    lp_chain_skip_space(r);
    return LP_OK;
}

lp_status lp_chain_read_joints(lp_chain_reader *r)
{
    while (r->text[r->at] == ',') {
        r->at++;
        LP_TRY(read_joint(r));
    }
    return r->text[r->at] == '\0' ? LP_OK : lp_chain_wrong(r, r->at, "',' or the end should stand");
}
