/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a recorded permutation to digits that rotate others, or have them run the other way.
 *
 * Where axis a stands at a + b modulo its extent, place 0 of a has the element -b of it: from one step of b to the next
 * the source index moves by the step of b, and by that of a the other way round and round. So, from the innermost digit
 * on, each digit is read plain and as one that rotates steps of one inside it, whichever goes on for longest, and all
 * places up to its last step are checked. Of digits that turn those outside them, only such of two steps are found.
 */
#include "layouts/chain_digits.h"

enum {
    STEPS_MOST = 1 << 14, /* of what is rotated, and of what lies inside that */
    TRIES_MOST = 48,
    PASSES_MOST = 8 /* over all places, all tries together */
};

/* How a digit turns others. */
typedef enum turn { PLAIN, FORTH, BACK, FLIP, TURNS } turn;

/* How a digit is read: plain, or as turning `extent` steps of digit i, each of `inside` of its own. */
typedef struct reading {
    int32_t i;
    turn turn;
    int64_t inside, extent;
    int64_t step, run; /* of the digit itself */
} reading;

/* What the turned steps add at their first place after `times` steps of the digit that turns them. */
static int64_t wrapped(const lp_chain_digits *list, const reading *as, int64_t times)
{
    if (as->turn == PLAIN)
        return 0;
    const int64_t moved = as->turn == FLIP ? times % 2 * (as->extent - 1)
                                           : lp_chain_rotated(0, as->turn == FORTH ? -times : times, as->extent);
    return moved * as->inside * list->digit[as->i].step;
}

/* How far the digit at `below` goes on when it is read like this. */
static void read_as(reading *as, const lp_chain_digits *list, const lp_chain_recording *r, int64_t below)
{
    const int64_t most = r->count / below, first = r->place[0];
    as->step = r->place[below] - first - wrapped(list, as, 1);
    as->run = 2;
    while (as->run < most && r->place[as->run * below] - first == as->run * as->step + wrapped(list, as, as->run))
        as->run++;
}

/* Bits from i + 1 on move up by `by`. */
static uint64_t moved_up(uint64_t mask, int32_t i, int32_t by)
{
    const uint64_t low = mask & (((uint64_t)2 << i) - 1);
    return low | (mask & ~low) << by;
}

/* Cuts the steps that are rotated out of their digit, which becomes up to three. Returns their number in the list. */
static int32_t cut_out(lp_chain_digits *list, const reading *as)
{
    const lp_chain_digit whole = list->digit[as->i];
    const int32_t inner = as->inside > 1, outer = as->inside * as->extent < whole.extent, more = inner + outer;
    const int32_t i = as->i + inner;
    for (int32_t k = list->count - 1; k > as->i; k--)
        list->digit[k + more] = list->digit[k];
    list->count += more;
    list->digit[as->i] = (lp_chain_digit){.extent = as->inside, .step = whole.step};
    list->digit[i] = whole;
    list->digit[i].extent = as->extent;
    list->digit[i].step = whole.step * as->inside;
    if (outer)
        list->digit[i + 1] = (lp_chain_digit){.extent = whole.extent / as->inside / as->extent,
                                              .step = whole.step * as->inside * as->extent};
    for (int32_t k = 0; k < list->count; k++) { /* what turns digits lies outside them */
        list->digit[k].plus = moved_up(list->digit[k].plus, as->i, more);
        list->digit[k].minus = moved_up(list->digit[k].minus, as->i, more);
        list->digit[k].flip = moved_up(list->digit[k].flip, as->i, more);
    }
    return i;
}

/* The source digit of place digit i. */
static int64_t digit_at(const lp_chain_digits *list, int32_t i, const int64_t *at)
{
    const lp_chain_digit *const digit = &list->digit[i];
    int64_t by = 0;
    for (uint64_t left = digit->plus; left != 0; left &= left - 1)
        by -= at[__builtin_ctzll(left)];
    for (uint64_t left = digit->minus; left != 0; left &= left - 1)
        by += at[__builtin_ctzll(left)];
    int64_t odd = 0;
    for (uint64_t left = digit->flip; left != 0; left &= left - 1)
        odd += at[__builtin_ctzll(left)];
    if (odd % 2 != 0)
        return digit->extent - 1 - at[i];
    return by == 0 ? at[i] : lp_chain_rotated(at[i], by, digit->extent);
}

/* Whether the first `count` places are where the digits say. */
static bool fits(const lp_chain_digits *list, lp_chain_recording *r, int64_t count)
{
    int64_t at[LP_CHAIN_DIGITS] = {0};
    for (int64_t k = 0; k < count; k++) {
        int64_t index = r->place[0];
        for (int32_t i = 0; i < list->count; i++)
            index += digit_at(list, i, at) * list->digit[i].step;
        if (index != r->place[k]) {
            r->looked += k;
            return false;
        }
        for (int32_t i = 0; i < list->count && ++at[i] == list->digit[i].extent; i++)
            at[i] = 0;
    }
    r->looked += count;
    return true;
}

/* ---- the search ---- */

typedef struct search {
    lp_chain_recording *r;
    int32_t tries;       /* left */
    int64_t most;        /* places to look at, until that many have been */
    lp_chain_digits all; /* what was found */
} search;

static bool may_try(search *s)
{
    return --s->tries >= 0 && s->r->looked <= s->most;
}

static bool read_from(search *s, const lp_chain_digits *inside, int64_t below);

/* Goes on with the digit at `below` read like this, if all places up to its last step are then right. */
static bool go_on(search *s, const lp_chain_digits *inside, int64_t below, const reading *as)
{
    lp_chain_digits list = *inside;
    if (list.count + 3 > LP_CHAIN_DIGITS || s->r->count / below % as->run != 0 || !may_try(s))
        return false;
    if (as->turn != PLAIN) {
        const int32_t i = cut_out(&list, as);
        lp_chain_digit *const turned = &list.digit[i];
        uint64_t *const turns = as->turn == FORTH ? &turned->plus : as->turn == BACK ? &turned->minus : &turned->flip;
        *turns |= (uint64_t)1 << list.count;
    }
    list.digit[list.count++] = (lp_chain_digit){.extent = as->run, .step = as->step};
    return fits(&list, s->r, below * as->run) && read_from(s, &list, below * as->run);
}

/* One pass over the ways to rotate digit i: all steps of a rotated one, of another one each part that divides it. Looks
 * for the longest run (`use` false), or goes on with those that have it. */
static bool try_digit(search *s, const lp_chain_digits *list, int32_t i, int64_t below, bool use, int64_t *run)
{
    const lp_chain_digit *const digit = &list->digit[i];
    const bool rotated = (digit->plus | digit->minus) != 0, turned = rotated || digit->flip != 0;
    for (int64_t inside = 1; inside * 3 <= digit->extent && inside <= (turned ? 1 : STEPS_MOST); inside++) {
        const int64_t most = digit->extent / inside;
        if (digit->extent % inside != 0)
            continue;
        for (int64_t extent = turned ? most : 3; extent <= most && extent <= STEPS_MOST; extent++) {
            if (most % extent != 0) /* and of 2 steps: a swizzle */
                continue;
            for (turn t = FORTH; t < TURNS; t++) {
                reading as = {.i = i, .turn = t, .inside = inside, .extent = extent};
                if (turned && rotated == (t == FLIP)) /* one kind of turn for a digit */
                    continue;
                read_as(&as, list, s->r, below);
                if (use && as.run == *run && go_on(s, list, below, &as))
                    return true;
                *run = as.run > *run ? as.run : *run;
            }
        }
    }
    return false;
}

/* Goes on with the digit at `below` as one that is turned by digit j inside it, which has 2 steps: its second one
 * showed what the turn adds, too. */
static bool go_on_turned(search *s, const lp_chain_digits *inside, int64_t below, lp_chain_digit outer, int32_t j,
                         turn t)
{
    lp_chain_digits list = *inside;
    if (list.count == LP_CHAIN_DIGITS || !may_try(s))
        return false;
    *(t == FORTH ? &outer.plus : t == BACK ? &outer.minus : &outer.flip) |= (uint64_t)1 << j;
    list.digit[j].step -= (t == BACK ? 1 : outer.extent - 1) * outer.step;
    list.digit[list.count++] = outer;
    return fits(&list, s->r, below * outer.extent) && read_from(s, &list, below * outer.extent);
}

static bool try_turned(search *s, const lp_chain_digits *inside, int64_t below, const reading *plain)
{
    for (int32_t j = 0; j < inside->count; j++) {
        const lp_chain_digit *const digit = &inside->digit[j];
        if (digit->extent != 2 || (digit->plus | digit->minus | digit->flip) != 0)
            continue;
        for (int64_t extent = plain->run; extent > 2; extent--) { /* of 2 steps: a swizzle */
            const lp_chain_digit outer = {.extent = extent, .step = plain->step};
            if (extent > STEPS_MOST || s->r->count / below % extent != 0)
                continue;
            for (turn t = FORTH; t < TURNS; t++)
                if (go_on_turned(s, inside, below, outer, j, t))
                    return true;
        }
    }
    return false;
}

/* The digits from `below` on, given those inside. The longest run wins; where several are equally long, the first one
 * with which everything fits. No deeper than there are digits. */
static bool read_from(search *s, const lp_chain_digits *inside, int64_t below)
{
    uint64_t turning = 0;
    reading plain = {.turn = PLAIN};
    if (below >= s->r->count) {
        s->all = *inside;
        return true;
    }
    read_as(&plain, inside, s->r, below);
    int64_t run = plain.run;
    for (int32_t i = 0; i < inside->count; i++)
        turning |= inside->digit[i].plus | inside->digit[i].minus | inside->digit[i].flip;
    for (int use = 0; use < 2; use++) {
        if (use && run == plain.run && go_on(s, inside, below, &plain))
            return true;
        for (int32_t i = 0; i < inside->count; i++)
            if ((turning >> i & 1) == 0 && try_digit(s, inside, i, below, use != 0, &run))
                return true;
    }
    return try_turned(s, inside, below, &plain);
}

/* From steps of places to those of the source: an axis that runs backwards is rotated the other way round, and one that
 * rotates others starts with its last step. False where that is no whole number of rounds. */
static bool turn_backwards(lp_chain_digits *list)
{
    for (int32_t i = 0; i < list->count; i++) {
        lp_chain_digit *const digit = &list->digit[i];
        for (uint64_t left = digit->flip; left != 0; left &= left - 1) {
            const lp_chain_digit *const turning = &list->digit[__builtin_ctzll(left)];
            if (turning->step < 0 && turning->extent % 2 == 0) /* odd places are even digits: it starts the other way */
                digit->step = -digit->step;
        }
        uint64_t other_way = digit->step < 0 ? digit->plus | digit->minus : 0;
        for (uint64_t left = digit->plus | digit->minus; left != 0; left &= left - 1) {
            const lp_chain_digit *const turning = &list->digit[__builtin_ctzll(left)];
            if (turning->step < 0 && (turning->extent - 1) % digit->extent != 0)
                return false;
            other_way ^= turning->step < 0 ? left & -left : 0;
        }
        const uint64_t plus = digit->plus;
        digit->plus = (plus & ~other_way) | (digit->minus & other_way);
        digit->minus = (digit->minus & ~other_way) | (plus & other_way);
    }
    return true;
}

bool lp_chain_find_rotations(lp_chain_digits *out, lp_chain_recording *r)
{
    const lp_chain_digits none = {0};
    search s = {.r = r, .tries = TRIES_MOST, .most = r->looked + PASSES_MOST * r->count};
    if (!read_from(&s, &none, 1) || !turn_backwards(&s.all))
        return false;
    *out = s.all;
    return true;
}
