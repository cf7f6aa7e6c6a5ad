/* SPDX-License-Identifier: Apache-2.0 */
/* The coverage sweep against an oracle that marks bytes one by one. */
#include "cover_testing.h"
#include "tests/random_numbers.h"

enum { UNIVERSE = 1 << 13, ITEMS_MAX = 24 };

/* ---- the oracle ---- */

static uint64_t state, case_seed;

static int print_seed(void **unused) /* as a teardown, so that a failed case names its seed */
{
    (void)unused;
    if (case_seed)
        print_message("failed with LOADPLAN_TEST_SEED=%llu\n", (unsigned long long)case_seed);
    return 0;
}

static int64_t below(int64_t n)
{
    return random_below(&state, n);
}

/* Calls for every byte of a box, by plain counting; returns how many there are. */
static int64_t bytes_of(const lp_box *b, int32_t elem, int64_t shift, int64_t *out)
{
    int64_t n = 0, index[MODES_MAX] = {0};
    for (;;) {
        int64_t at = b->dst_off + shift;
        for (int i = 0; i < b->rank; i++)
            at += index[i] * b->mode[i].dst_stride;
        for (int64_t i = 0; i < b->run * elem; i++)
            out[n++] = at + i;
        int k = b->rank - 1;
        while (k >= 0 && ++index[k] == b->mode[k].extent)
            index[k--] = 0;
        if (k < 0)
            return n;
    }
}

typedef struct oracle {
    uint32_t owners[UNIVERSE]; /* bit set of strict items */
    bool loose[UNIVERSE], wanted[UNIVERSE];
} oracle;

enum { ZERO = 1024 }; /* byte 0 of the destination in the arrays, so that negative offsets fit */

static void mark(oracle *o, const shape *s, int64_t shift, int item, bool loose)
{
    static int64_t at[UNIVERSE * 2];
    for (int b = 0; b < s->map.nbox; b++) {
        const int64_t n = bytes_of(&s->box[b], s->map.dst_elem, shift, at);
        for (int64_t i = 0; i < n; i++) {
            assert_in_range(at[i] + ZERO, 0, UNIVERSE - 1);
            if (item < 0)
                o->wanted[at[i] + ZERO] = true;
            else if (loose)
                o->loose[at[i] + ZERO] = true;
            else
                o->owners[at[i] + ZERO] |= UINT32_C(1) << item;
        }
    }
}

static void compare(const lp_cover_report *r, const oracle *o, const lp_cover_item *item, int n, bool has_target)
{
    int64_t uncovered = 0, gap = -1, outside = -1, pairs = 0;
    static int64_t witness[ITEMS_MAX][ITEMS_MAX];
    memset(witness, 0xff, sizeof(witness));
    for (int64_t at = 0; at < UNIVERSE; at++) {
        const uint32_t owners = o->owners[at];
        if (has_target && o->wanted[at] && !owners && !o->loose[at]) {
            uncovered++;
            gap = gap < 0 ? at : gap;
        }
        if (has_target && !o->wanted[at] && owners && outside < 0)
            outside = at;
        for (int a = 0; a < n && (owners & (owners - 1)); a++)
            for (int b = 0; b < n; b++)
                if (item[a].tag < item[b].tag && owners >> a & 1 && owners >> b & 1 &&
                    witness[item[a].tag][item[b].tag] < 0) {
                    witness[item[a].tag][item[b].tag] = at;
                    pairs++;
                }
    }
    assert_false(r->undecided);
    assert_int_equal(r->uncovered_bytes, uncovered);
    assert_int_equal(r->gap_lo, gap < 0 ? -1 : gap - ZERO);
    for (int64_t at = r->gap_lo; gap >= 0 && at < r->gap_hi; at++)
        assert_true(o->wanted[at + ZERO] && !o->owners[at + ZERO] && !o->loose[at + ZERO]);
    assert_int_equal(r->outside, outside >= 0);
    if (outside < 0) {
        assert_int_equal(r->outside_lo, -1);
    } else {
        assert_int_equal(r->outside_lo, outside - ZERO);
        bool owned = false;
        for (int a = 0; a < n; a++)
            owned |= item[a].tag == r->outside_tag && (o->owners[outside] >> a & 1);
        assert_true(owned);
        for (int64_t at = r->outside_lo; at < r->outside_hi; at++)
            assert_true(!o->wanted[at + ZERO] && o->owners[at + ZERO]);
    }
    assert_int_equal(r->npair, pairs);
    for (int64_t i = 0; i < r->npair; i++) {
        assert_true(r->pair[i].a < r->pair[i].b);
        assert_int_equal(r->pair[i].byte_lo, witness[r->pair[i].a][r->pair[i].b] - ZERO);
        assert_true(r->pair[i].byte_hi > r->pair[i].byte_lo);
        if (i > 0)
            assert_true(r->pair[i - 1].a < r->pair[i].a ||
                        (r->pair[i - 1].a == r->pair[i].a && r->pair[i - 1].b < r->pair[i].b));
    }
}

/* ---- random problems ---- */

static int64_t span_of(const lp_box *b)
{
    int64_t span = b->run;
    for (int i = 0; i < b->rank; i++)
        span += (b->mode[i].extent - 1) * b->mode[i].dst_stride;
    return span;
}

/* A nested box of any strides, no wider than `room` bytes. */
static void random_box(shape *s, int64_t off, int64_t room)
{
    const int b = s->map.nbox++;
    lp_mode inner[MODES_MAX];
    const int64_t run = 1 + below(room < 8 ? room : 8);
    int64_t span = run;
    int n = 0;
    while (n < MODES_MAX && below(4)) {
        const int64_t stride = below(2) ? span + below(8) : span * (1 + below(3)), extent = 2 + below(5);
        if (span + (extent - 1) * stride > room)
            break;
        inner[n++] = (lp_mode){.extent = extent, .dst_stride = stride};
        span += (extent - 1) * stride;
    }
    for (int i = 0; i < n; i++)
        s->mode[b][i] = inner[n - 1 - i];
    s->box[b] = (lp_box){.dst_off = off, .run = run, .rank = n, .mode = s->mode[b]};
    s->map.box = s->box;
    s->map.dst_elem = 1;
}

/* Up to three boxes that do not share bytes. */
static void random_shape(shape *s, int64_t room)
{
    *s = (shape){0};
    int64_t off = below(room), boxes = 1 + below(3);
    for (int64_t i = 0; i < boxes && off < room; i++) {
        random_box(s, off, room - off);
        off += span_of(&s->box[s->map.nbox - 1]) + below(3);
    }
}

/* Cuts the digits of a random grid among items, so that they cover it exactly. */
static int partition(shape *item, int64_t *bytes)
{
    int64_t radix[4], stride[5] = {1};
    for (int k = 0; k < 4; k++) {
        radix[k] = 1 + below(5);
        stride[k + 1] = stride[k] * radix[k];
    }
    *bytes = stride[4];
    int64_t lo[ITEMS_MAX][4], hi[ITEMS_MAX][4];
    int n = 1;
    for (int k = 0; k < 4; k++) {
        lo[0][k] = 0;
        hi[0][k] = radix[k];
    }
    for (int cuts = 0; cuts < 40 && n < ITEMS_MAX - 2; cuts++) {
        const int64_t i = below(n), k = below(4);
        if (hi[i][k] - lo[i][k] < 2)
            continue;
        const int64_t middle = lo[i][k] + 1 + below(hi[i][k] - lo[i][k] - 1);
        memcpy(lo[n], lo[i], sizeof(lo[n]));
        memcpy(hi[n], hi[i], sizeof(hi[n]));
        lo[n][k] = middle;
        hi[i][k] = middle;
        n++;
    }
    for (int i = 0; i < n; i++) {
        item[i] = (shape){0};
        int64_t off = 0, modes[4][2];
        int nmode = 0;
        for (int k = 0; k < 4; k++)
            off += lo[i][k] * stride[k];
        for (int k = 3; k >= 1; k--)
            if (hi[i][k] - lo[i][k] > 1) {
                modes[nmode][0] = hi[i][k] - lo[i][k];
                modes[nmode++][1] = stride[k];
            }
        put_box(&item[i], off, hi[i][0] - lo[i][0], nmode, (const int64_t(*)[2])modes);
    }
    return n;
}

static void random_case(void)
{
    static shape shapes[ITEMS_MAX + 1];
    static oracle o;
    memset(&o, 0, sizeof(o));
    lp_cover_item item[ITEMS_MAX];
    shape target = {0};
    int n;
    int64_t bytes;
    if (below(2)) {
        n = partition(shapes, &bytes);
        target = whole(bytes);
    } else {
        n = (int)below(7);
        for (int i = 0; i < n; i++)
            random_shape(&shapes[i], 200);
        if (below(2))
            target = whole(1 + below(250));
        else
            random_shape(&target, 200);
    }
    rebase(&target);
    const int64_t drop = below(3) ? -1 : below(ITEMS_MAX), move = below(3) ? -1 : below(ITEMS_MAX),
                  loose = below(3) ? -1 : below(ITEMS_MAX);
    int used = 0;
    for (int i = 0; i < n; i++) {
        if (i == drop)
            continue;
        rebase(&shapes[i]);
        item[used] = (lp_cover_item){
            .map = &shapes[i].map, .dst_off = i == move ? below(40) - 20 : 0, .tag = (uint32_t)i, .loose = i == loose};
        used++;
    }
    if (used > 1 && !below(4))
        item[0].tag = item[1].tag;
    for (int i = used - 1; i > 0; i--) {
        const int64_t j = below(i + 1);
        const lp_cover_item swapped = item[i];
        item[i] = item[j];
        item[j] = swapped;
    }
    for (int i = 0; i < used; i++) {
        const shape *s = (const shape *)(const void *)item[i].map;
        mark(&o, s, item[i].dst_off, i, item[i].loose);
    }
    const bool has_target = below(5) > 0;
    if (has_target)
        mark(&o, &target, 0, -1, false);
    lp_cover_memo *memo = NULL;
    lp_error err;
    assert_int_equal(lp_cover_memo_new(&memo, NULL, &err), LP_OK);
    for (int round = 0; round < 2; round++) { /* the second one may come from the memo */
        lp_cover_report r;
        assert_int_equal(lp_cover(&r, has_target ? &target.map : NULL, item, used, memo, NULL, &err), LP_OK);
        compare(&r, &o, item, used, has_target);
        lp_cover_report_free(&r, NULL);
    }
    lp_cover_memo_free(memo);
}

static void agrees_with_counting_bytes(void **unused)
{
    (void)unused;
    const int64_t n = (int64_t)random_cases(20000);
    const uint64_t seed = random_first_seed(20260101);
    for (int64_t i = 0; i < n; i++) {
        state = seed + (uint64_t)i;
        case_seed = state;
        random_case();
    }
    case_seed = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(agrees_with_counting_bytes, print_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
