/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocked layouts as oneDNN and XLA write them.
 *
 * oneDNN, "ABcd16b16a2b": the dimensions from the outermost in memory on, those in capitals counted in blocks; behind
 * them the blocks, from the outermost on. XLA, "{1,0:T(8,128)(2,1)}": the dimensions from the innermost on, then tiles
 * of the innermost dimensions, each of which tiles what the one before it left innermost.
 */
#include "layouts/chain_notation.h"

enum { TEXT_BYTES = 2048 }; /* more than all axes take, of as many digits as an extent has */

typedef struct block_axis {
    int64_t extent;     /* 0: what remains of the dimension */
    int32_t dim, depth; /* depth: how many axes of the dimension lie outside it in the source */
} block_axis;

typedef struct blocks {
    int32_t ndim, count;
    block_axis axis[LP_CHAIN_AXES]; /* as memory runs through them */
} blocks;

/* A block inside axis `outer` of the dimension that it has; it lies innermost in memory. False where there is no room.
 */
static bool add_block(blocks *b, int32_t outer, int64_t extent)
{
    if (b->count == LP_CHAIN_AXES)
        return false;
    const block_axis inner = {extent, b->axis[outer].dim, b->axis[outer].depth + 1};
    for (int32_t i = 0; i < b->count; i++)
        b->axis[i].depth += b->axis[i].dim == inner.dim && b->axis[i].depth >= inner.depth;
    b->axis[b->count++] = inner;
    return true;
}

/* The axis of dimension d at that depth, or -1. */
static int32_t axis_at(const blocks *b, int32_t d, int32_t depth)
{
    for (int32_t i = 0; i < b->count; i++)
        if (b->axis[i].dim == d && b->axis[i].depth == depth)
            return i;
    return -1;
}

/* ---- the chain ---- */

static bool is_alone(const blocks *b, int32_t d)
{
    for (int32_t i = 0; i < b->count; i++)
        if (b->axis[i].dim == d && b->axis[i].depth > 0 && b->axis[i].extent != 1)
            return false;
    return true;
}

static void put_name(lp_layout_writer *w, const blocks *b, const block_axis *axis)
{
    if (is_alone(b, axis->dim))
        lp_layout_put(w, "%c", 'A' + axis->dim);
    else
        lp_layout_put(w, "%c%d", 'a' + axis->dim, (int)axis->depth);
}

/* Blocks of one step are left out; those inside all open axes are one dimension of the result. */
static lp_status to_chain(lp_chain *out, const blocks *b, lp_error *err)
{
    char text[TEXT_BYTES];
    lp_layout_writer w = lp_layout_writer_start(text, sizeof text);
    for (int32_t d = 0; d < b->ndim; d++) {
        const bool alone = is_alone(b, d);
        lp_layout_put(&w, alone ? "%c" : "%c(", 'A' + d);
        for (int32_t depth = 0, i = axis_at(b, d, 0); i >= 0 && !alone; i = axis_at(b, d, ++depth)) {
            if (b->axis[i].extent == 1)
                continue;
            lp_layout_put(&w, depth > 0 ? " " : "");
            put_name(&w, b, &b->axis[i]);
            if (b->axis[i].extent != 0)
                lp_layout_put(&w, "=%lld", (long long)b->axis[i].extent);
        }
        lp_layout_put(&w, alone ? " " : ") ");
    }
    lp_layout_put(&w, "->");
    int32_t inside = 0; /* the first of these blocks */
    bool bracket = false;
    for (int32_t i = 0; i < b->count; i++)
        inside = b->axis[i].extent == 0 ? i + 1 : inside;
    for (int32_t i = 0; i < b->count; i++) {
        if (b->axis[i].extent == 1)
            continue;
        lp_layout_put(&w, i >= inside && !bracket ? " (" : " ");
        bracket = bracket || i >= inside;
        put_name(&w, b, &b->axis[i]);
    }
    lp_layout_put(&w, bracket ? ")" : "");
    return lp_chain_parse(out, text, err);
}

/* ---- oneDNN ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c < 'a' + LP_CHAIN_DIMS) || (c >= 'A' && c < 'A' + LP_CHAIN_DIMS);
}

static int32_t dim_of(char c)
{
    return c >= 'a' ? c - 'a' : c - 'A';
}

bool lp_chain_is_tag(const char *text)
{
    uint32_t seen = 0, capital = 0, blocked = 0;
    for (; is_letter(*text); text++) {
        const uint32_t bit = (uint32_t)1 << dim_of(*text);
        if ((seen & bit) != 0)
            return false;
        seen |= bit;
        capital |= *text < 'a' ? bit : 0;
    }
    while (*text >= '1' && *text <= '9') {
        text += strspn(text, "0123456789");
        if (!is_letter(*text) || *text < 'a')
            return false;
        blocked |= (uint32_t)1 << dim_of(*text++);
    }
    return *text == '\0' && seen != 0 && (seen & (seen + 1)) == 0 && blocked == capital;
}

lp_status lp_chain_read_tag(lp_chain *out, const char *text, lp_error *err)
{
    blocks b = {0};
    lp_notation r = {.text = text, .err = err};
    for (; is_letter(text[r.at]); r.at++)
        b.axis[b.count++] = (block_axis){.dim = dim_of(text[r.at])};
    b.ndim = b.count;
    while (text[r.at] != '\0') {
        int64_t extent;
        LP_TRY(lp_notation_number(&r, &extent));
        const int32_t d = dim_of(text[r.at]);
        int32_t innermost = 0;
        while (axis_at(&b, d, innermost + 1) >= 0)
            innermost++;
        if (!add_block(&b, axis_at(&b, d, innermost), extent))
            return lp_notation_wrong(&r, "more axes than a chain has");
        r.at++;
    }
    return to_chain(out, &b, err);
}

/* ---- XLA ---- */

/* "1,0": dimensions from the innermost on. */
static lp_status read_order(lp_notation *r, blocks *b)
{
    uint32_t seen = 0;
    do {
        int64_t d;
        LP_TRY(lp_notation_number(r, &d));
        if (d >= LP_CHAIN_DIMS || (seen >> d & 1) != 0)
            return lp_notation_wrong(r, d >= LP_CHAIN_DIMS ? "more than 8 dimensions" : "a dimension twice");
        seen |= (uint32_t)1 << d;
        memmove(&b->axis[1], &b->axis[0], (size_t)b->count++ * sizeof b->axis[0]);
        b->axis[0] = (block_axis){.dim = (int32_t)d};
    } while (lp_notation_skip(r, ','));
    b->ndim = b->count;
    return (seen & (seen + 1)) == 0 ? LP_OK : lp_notation_wrong(r, "not all dimensions, before");
}

/* "(8,128)" behind its bracket. */
static lp_status read_tile(lp_notation *r, blocks *b)
{
    int64_t tile[LP_CHAIN_DIMS];
    int32_t count = 0;
    do {
        if (count == LP_CHAIN_DIMS)
            return lp_notation_wrong(r, "more than 8 dimensions");
        LP_TRY(lp_notation_number(r, &tile[count]));
        if (tile[count++] == 0)
            return lp_notation_wrong(r, "a tile of 0 before");
    } while (lp_notation_skip(r, ','));
    if (!lp_notation_skip(r, ')') || count > b->count)
        return lp_notation_wrong(r, count > b->count ? "a tile of more dimensions than there are, before"
                                                     : "',' or ')' should stand");
    const int32_t first = b->count - count;
    for (int32_t i = 0; i < count; i++) {
        block_axis *const axis = &b->axis[first + i];
        if (axis->extent % tile[i] != 0)
            return lp_notation_wrong(r, "a tile that does not divide the one before it");
        axis->extent /= tile[i];
        if (!add_block(b, first + i, tile[i]))
            return lp_notation_wrong(r, "more axes than a chain has");
    }
    return LP_OK;
}

lp_status lp_chain_read_xla(lp_chain *out, const char *text, lp_error *err)
{
    blocks b = {0};
    lp_notation r = {.text = text, .at = (int64_t)strcspn(text, "{") + 1, .err = err};
    LP_TRY(read_order(&r, &b));
    if (lp_notation_skip(&r, ':')) {
        if (!lp_notation_skip(&r, 'T') || !lp_notation_skip(&r, '('))
            return lp_notation_wrong(&r, "'T(' should stand");
        do {
            LP_TRY(read_tile(&r, &b));
        } while (lp_notation_skip(&r, '('));
    }
    if (!lp_notation_skip(&r, '}') || text[r.at] != '\0')
        return lp_notation_wrong(&r, "'(', or '}' and the end, should stand");
    return to_chain(out, &b, err);
}
