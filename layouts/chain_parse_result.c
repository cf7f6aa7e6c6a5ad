/* SPDX-License-Identifier: Apache-2.0 */
/* From text to a chain: the right side, axes as memory runs through them. */
#include "layouts/chain_reader.h"

/* The list of axes that a sign behind "a" adds to; NULL: it is none. */
static uint32_t *turns_of(lp_chain_place *place, char sign)
{
    switch (sign) {
    case '^':
        return &place->swizzle;
    case '+':
        return &place->plus;
    case '-':
        return &place->minus;
    case '~':
        return &place->flip;
    default:
        return NULL;
    }
}

/* Whether a sign of one kind stands behind one of another: exclusive or, adding and running the other way do not mix.
 */
static bool mixes(const lp_chain_place *place, char sign)
{
    if (sign == '^')
        return lp_chain_late_turns(place) != 0;
    return place->swizzle != 0 || (sign == '~' ? (place->plus | place->minus) != 0 : place->flip != 0);
}

/* The axes behind "a": "^b^c", "+b-c", "~b", or nothing. */
static lp_status read_turns(lp_chain_reader *r, lp_chain_place *place)
{
    for (char sign = r->text[r->at]; turns_of(place, sign) != NULL; sign = r->text[r->at]) {
        char name[LP_CHAIN_NAME];
        if (place->list_end > 0)
            return lp_chain_wrong(r, r->at, "a turn of an axis with a list");
        if (mixes(place, sign))
            return lp_chain_wrong(r, r->at, "turns of two kinds of one axis");
        if (r->turn_at < 0)
            r->turn_at = r->at;
        const int64_t at = ++r->at;
        LP_TRY(lp_chain_read_name(r, name));
        const int32_t a = lp_chain_axis_named(r->chain, name);
        if (a < 0)
            return lp_chain_wrong(r, at, "an axis that does not stand on the left");
        if (a == place->axis || (lp_chain_turns(place) >> a & 1) != 0)
            return lp_chain_wrong(r, at, "an axis that is there already");
        *turns_of(place, sign) |= (uint32_t)1 << a;
    }
    return LP_OK;
}

/* The steps behind "a": "[2 0 1]" or nothing; as many as axis `a` has, each once. */
static lp_status read_list(lp_chain_reader *r, int32_t a, lp_chain_place *place)
{
    lp_chain *const c = r->chain;
    const int64_t begin = r->at;
    int32_t steps;
    if (r->text[begin] != '[')
        return LP_OK;
    if (place->backwards)
        return lp_chain_wrong(r, begin, "a list of an axis that runs backwards");
    LP_TRY(lp_chain_read_steps(r, &steps));
    if (c->axis[a].extent != 0 && c->axis[a].extent != steps)
        return lp_chain_wrong(r, begin, "a list of another length than its axis");
    c->axis[a].extent = steps;
    place->list_end = (int16_t)c->listed;
    return LP_OK;
}

/* One axis of parts first .. end-1, with what stands before and behind it. */
static lp_status read_place(lp_chain_reader *r, int32_t first, int32_t end)
{
    lp_chain *const c = r->chain;
    char name[LP_CHAIN_NAME];
    lp_chain_place place = {.backwards = r->text[r->at] == '~'};
    if (place.backwards)
        r->at++;
    const int64_t at = r->at;
    LP_TRY(lp_chain_read_name(r, name));
    const int32_t a = lp_chain_axis_named(c, name);
    if (a < 0)
        return lp_chain_wrong(r, at, "an axis that does not stand on the left");
    place.axis = (int8_t)a;
    LP_TRY(read_list(r, a, &place));
    LP_TRY(read_turns(r, &place));
    for (int32_t p = first; p < end; p++) {
        if (!lp_chain_lists(c->part[p].axes, c->part[p].source, a))
            return lp_chain_wrong(r, at,
                                  end - first > 1 ? "an axis that not every part has" : "an axis of another part");
        if ((r->seen[p] >> a & 1) != 0)
            return lp_chain_wrong(r, at, "an axis that is there already");
        c->part[p].memory[r->count[p]++] = place;
        r->seen[p] |= (uint32_t)1 << a;
    }
    return LP_OK;
}

static void start_out_dim(lp_chain_reader *r)
{
    lp_chain *const c = r->chain;
    for (int32_t p = 0; p < c->parts; p++)
        c->part[p].out_first[c->out_ndim] = (int8_t)r->count[p];
}

/* Axes that stand up to the next bar or bracket; what is no name of one is passed over. */
static uint32_t axes_ahead(const lp_chain_reader *r)
{
    lp_chain_reader ahead = *r;
    uint32_t axes = 0;
    ahead.err = NULL;
    while (strchr("|)", ahead.text[ahead.at]) == NULL) {
        char name[LP_CHAIN_NAME];
        const int64_t at = ahead.at;
        if (lp_chain_read_name(&ahead, name) != LP_OK)
            ahead.at = at + 1;
        else if (lp_chain_axis_named(r->chain, name) >= 0)
            axes |= (uint32_t)1 << lp_chain_axis_named(r->chain, name);
    }
    return axes;
}

/* The part that stands next on the right: the first one that has all of those axes, and no others that only some parts
 * have. Where none does, the first one left, which then says what is wrong with it. */
static int32_t part_ahead(const lp_chain_reader *r, uint32_t taken)
{
    const lp_chain *const c = r->chain;
    const uint32_t wanted = axes_ahead(r);
    uint32_t has[LP_CHAIN_PARTS] = {0}, common = UINT32_MAX;
    for (int32_t p = 0; p < c->parts; p++) {
        for (int32_t i = 0; i < c->part[p].axes; i++)
            has[p] |= (uint32_t)1 << c->part[p].source[i];
        common &= has[p];
    }
    int32_t first = -1;
    for (int32_t p = 0; p < c->parts; p++) {
        if ((taken >> p & 1) != 0)
            continue;
        if ((wanted & ~has[p]) == 0 && (has[p] & ~common & ~wanted) == 0)
            return p;
        first = first < 0 ? p : first;
    }
    return first;
}

/* "(i a k)" or "(i d | i q)", the bracket not yet read. */
static lp_status read_group(lp_chain_reader *r)
{
    lp_chain *const c = r->chain;
    const bool bars = memchr(r->text + r->at, '|', strcspn(r->text + r->at, ")")) != NULL;
    int64_t begin = r->at++;
    if (bars && c->split_out >= 0)
        return lp_chain_wrong(r, begin, "a second dimension with bars");
    if (bars)
        c->split_out = c->out_ndim;
    uint32_t taken = 0;
    int32_t parts = 0, part = -1;
    for (bool empty = true;;) {
        lp_chain_skip_space(r);
        const int64_t at = r->at;
        if (bars && part < 0) {
            part = part_ahead(r, taken);
            taken |= (uint32_t)1 << part;
            c->out_order[parts++] = (int8_t)part;
        }
        if (r->text[at] != ')' && r->text[at] != '|') {
            LP_TRY(read_place(r, bars ? part : 0, bars ? part + 1 : c->parts));
            empty = false;
            continue;
        }
        if (empty)
            return lp_chain_wrong(r, begin, bars ? "a part without axes" : "a dimension without axes");
        r->at++;
        if (r->text[at] == ')')
            return bars && parts != c->parts ? lp_chain_wrong(r, at, "fewer parts than on the left") : LP_OK;
        if (parts == c->parts)
            return lp_chain_wrong(r, at, "more parts than on the left");
        begin = at;
        part = -1;
        empty = true;
    }
}

/* Axes turn others of their own part only; those that are rotated, or run both ways, turn none. */
static lp_status check_turns(lp_chain_reader *r)
{
    const lp_chain *const c = r->chain;
    for (int32_t p = 0; p < c->parts; p++) {
        const lp_chain_part *const part = &c->part[p];
        uint32_t late = 0, turning = 0;
        for (int32_t i = 0; i < part->axes; i++) {
            const lp_chain_place *const place = &part->memory[i];
            turning |= lp_chain_turns(place);
            if (lp_chain_late_turns(place) != 0)
                late |= 1u << place->axis;
        }
        if ((turning & late) != 0)
            return lp_chain_wrong(r, r->turn_at, "an axis that is turned by a rotated one");
        if ((turning & ~r->seen[p]) != 0)
            return lp_chain_wrong(r, r->turn_at, "an axis that is turned by one of another part");
    }
    return LP_OK;
}

lp_status lp_chain_read_result(lp_chain_reader *r)
{
    lp_chain *const c = r->chain;
    for (;; c->out_ndim++) {
        lp_chain_skip_space(r);
        start_out_dim(r);
        if (r->text[r->at] == '\0' || r->text[r->at] == ',')
            break;
        /* each dimension takes an axis of every part or fails: no more than LP_CHAIN_AXES */
        LP_TRY(r->text[r->at] == '(' ? read_group(r) : read_place(r, 0, c->parts));
        LP_TRY(lp_chain_read_extent(r, &c->room[c->out_ndim]));
    }
    if (c->parts > 1 && c->split_out < 0)
        return lp_chain_wrong(r, r->at, "no bars on the right");
    for (int32_t p = 0; p < c->parts; p++)
        for (int32_t i = 0; i < c->part[p].axes; i++)
            if ((r->seen[p] >> c->part[p].source[i] & 1) == 0)
                return lp_fail_at(r->err, LP_E_ARGUMENT, "chain", -1,
                                  "chain '%s': axis '%s' does not stand on the right%s", r->text,
                                  c->axis[c->part[p].source[i]].name, c->parts > 1 ? " in every part" : "");
    LP_TRY(check_turns(r));
    return lp_chain_read_joints(r);
}
