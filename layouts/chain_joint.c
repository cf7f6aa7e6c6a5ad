/* SPDX-License-Identifier: Apache-2.0 */
/* Lists over several axes together: their digits renumbered before anything else places them, and back. */
#include "layouts/layout_private.h"

static bool has_axis(const lp_chain_part *part, int32_t axis)
{
    for (int32_t i = 0; i < part->axes; i++)
        if (part->source[i] == axis)
            return true;
    return false;
}

bool lp_chain_joint_in(const lp_chain *c, const lp_chain_joint *joint, int32_t p)
{
    for (int32_t i = 0; i < joint->axes; i++)
        if (!has_axis(&c->part[p], joint->axis[i]))
            return false;
    return true;
}

uint32_t lp_chain_joint_axes(const lp_chain *c, int32_t p)
{
    uint32_t axes = 0;
    for (int32_t j = 0; j < c->joints; j++)
        for (int32_t i = 0; i < c->joint[j].axes && lp_chain_joint_in(c, &c->joint[j], p); i++)
            axes |= (uint32_t)1 << c->joint[j].axis[i];
    return axes;
}

lp_status lp_chain_check_joints(const lp_chain *c, lp_error *err)
{
    for (int32_t j = 0; j < c->joints; j++) {
        const lp_chain_joint *const joint = &c->joint[j];
        int64_t steps = 1;
        for (int32_t i = 0; i < joint->axes; i++)
            if (!lp_mul(steps, c->axis[joint->axis[i]].extent, &steps))
                return lp_fail(err, LP_E_LIMIT, "axes of a list with more than 2^63 steps");
        if (steps != joint->steps)
            return lp_fail(err, LP_E_ARGUMENT, "axis '%s' and those beside it make %lld steps, their list has %d",
                           c->axis[joint->axis[0]].name, (long long)steps, (int)joint->steps);
    }
    return LP_OK;
}

/* The digits of a list's axes as one number become what the table has for it. */
static void renumber(const lp_chain *c, const lp_chain_joint *joint, const uint8_t *table, int64_t *digit)
{
    int64_t step = 0;
    for (int32_t i = 0; i < joint->axes; i++)
        step = step * c->axis[joint->axis[i]].extent + digit[joint->axis[i]];
    step = table[joint->list_end - joint->steps + step];
    for (int32_t i = joint->axes - 1; i >= 0; i--) {
        digit[joint->axis[i]] = step % c->axis[joint->axis[i]].extent;
        step /= c->axis[joint->axis[i]].extent;
    }
}

void lp_chain_join_digits(const lp_chain_form *form, int32_t p, int64_t *digit)
{
    const lp_chain *const c = &form->chain;
    for (int32_t j = 0; j < c->joints; j++)
        if (lp_chain_joint_in(c, &c->joint[j], p))
            renumber(c, &c->joint[j], form->where, digit);
}

void lp_chain_unjoin_digits(const lp_chain_form *form, int32_t p, int64_t *digit)
{
    const lp_chain *const c = &form->chain;
    for (int32_t j = c->joints - 1; j >= 0; j--)
        if (lp_chain_joint_in(c, &c->joint[j], p))
            renumber(c, &c->joint[j], c->list, digit);
}
