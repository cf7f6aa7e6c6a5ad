/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a stretch, found and put as bytes. docs/distributed.md has the layout. */
#include "replayer/sync_change.h"

#include "replayer/transport_wire.h"

int lp_change_elem(lp_dtype dtype)
{
    const int bits = lp_dtype_bits(dtype);
    return bits <= 8 ? 1 : bits / 8;
}

static void put_u16(uint8_t *out, uint32_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
}

static void put_head(uint8_t *out, uint32_t name, lp_change_form form, int elem, int64_t off, int64_t elements,
                     int64_t count)
{
    lp_wire_put_u32(out, name);
    put_u16(out + 4, form);
    put_u16(out + 6, (uint32_t)elem);
    lp_wire_put_i64(out + 8, off);
    lp_wire_put_u32(out + 16, (uint32_t)elements);
    lp_wire_put_u32(out + 20, (uint32_t)count);
}

/* A bit for each element of a stretch: it changed. */
typedef struct marks {
    uint64_t word[LP_CHANGE_ELEMENTS / 64 + 1];
    int64_t elements;
} marks;

static inline bool differs(const uint8_t *was, const uint8_t *is, int elem, int64_t i)
{
    const int64_t at = i * elem;
    switch (elem) { /* constant sizes, so that this is a compare of words */
    case 1:
        return was[at] != is[at];
    case 2:
        return memcmp(was + at, is + at, 2) != 0;
    case 4:
        return memcmp(was + at, is + at, 4) != 0;
    default:
        return memcmp(was + at, is + at, (size_t)elem) != 0;
    }
}

/* Without a branch for each element: which ones change here and there is not to be foreseen. */
static void mark_changes(const uint8_t *was, const uint8_t *is, int elem, int64_t elements, marks *m)
{
    m->elements = elements;
    for (int64_t first = 0; first < elements; first += 64) {
        const int64_t count = elements - first < 64 ? elements - first : 64;
        uint64_t word = 0;
        if (memcmp(was + first * elem, is + first * elem, (size_t)(count * elem)) != 0)
            for (int64_t i = 0; i < count; i++)
                word |= (uint64_t)differs(was, is, elem, first + i) << i;
        m->word[first / 64] = word;
    }
}

static void count_changes(const marks *m, int64_t *changed, int64_t *runs)
{
    uint64_t before = 0;
    *changed = *runs = 0;
    for (int64_t i = 0; i < (m->elements + 63) / 64; i++) {
        const uint64_t word = m->word[i];
        *changed += __builtin_popcountll(word);
        *runs += __builtin_popcountll(word & ~(word << 1 | before));
        before = word >> 63;
    }
}

/* The first element from `at` on that is marked, or is not; m->elements where there is none. */
static int64_t find_mark(const marks *m, int64_t at, bool is_marked)
{
    while (at < m->elements) {
        const uint64_t word = (is_marked ? m->word[at / 64] : ~m->word[at / 64]) >> (at % 64);
        if (word != 0) {
            at += __builtin_ctzll(word);
            break;
        }
        at = (at / 64 + 1) * 64;
    }
    return at < m->elements ? at : m->elements;
}

/* The first run of changed elements from *end on: [returned, *end); m->elements where there is none. */
static int64_t next_run(const marks *m, int64_t *end)
{
    const int64_t first = find_mark(m, *end, true);
    *end = find_mark(m, first, false);
    return first;
}

static void put_values(const marks *m, const uint8_t *is, int elem, uint8_t *out)
{
    for (int64_t end = 0, first; (first = next_run(m, &end)) < m->elements; out += (end - first) * elem)
        lp_change_copy(out, is + first * elem, (end - first) * elem);
}

static void put_places(const marks *m, uint8_t *out)
{
    for (int64_t end = 0, first; (first = next_run(m, &end)) < m->elements;)
        for (int64_t i = first; i < end; i++, out += 2)
            put_u16(out, (uint32_t)i);
}

/* Length 0 stands for 65,536: a run is never empty. */
static void put_runs(const marks *m, uint8_t *out)
{
    int64_t before = 0;
    for (int64_t end = 0, first; (first = next_run(m, &end)) < m->elements; out += 4) {
        put_u16(out, (uint32_t)(first - before));
        put_u16(out + 2, (uint32_t)(end - first));
        before = end;
    }
}

static void put_bits(const marks *m, uint8_t *out)
{
    for (int64_t i = 0; i < (m->elements + 7) / 8; i++)
        out[i] = (uint8_t)(m->word[i / 8] >> (i % 8 * 8));
}

int64_t lp_change_put(uint32_t name, int64_t off, int elem, int64_t elements, const uint8_t *was, const uint8_t *is,
                      bool whole, uint8_t *out)
{
    marks m;
    int64_t changed, runs;
    uint8_t *to = out + LP_CHANGE_HEAD;
    mark_changes(was, is, elem, elements, &m);
    count_changes(&m, &changed, &runs);
    if (changed == 0 && !whole)
        return 0;
    const int64_t values = changed * elem;
    const int64_t size[5] = {0, elements * elem, 2 * changed + values, 4 * runs + values, (elements + 7) / 8 + values};
    lp_change_form best = LP_CHANGE_ALL;
    for (int f = LP_CHANGE_PLACES; f <= LP_CHANGE_BITS && !whole; f++)
        if (size[f] < size[best])
            best = (lp_change_form)f;
    put_head(out, name, best, elem, off, elements, best == LP_CHANGE_RUNS ? runs : changed);
    switch (best) {
    case LP_CHANGE_ALL:
        memcpy(to, is, (size_t)(elements * elem));
        break;
    case LP_CHANGE_PLACES:
        put_places(&m, to);
        break;
    case LP_CHANGE_RUNS:
        put_runs(&m, to);
        break;
    case LP_CHANGE_BITS:
        put_bits(&m, to);
        break;
    }
    if (best != LP_CHANGE_ALL)
        put_values(&m, is, elem, to + size[best] - values);
    const int64_t bytes = LP_CHANGE_HEAD + size[best], padded = lp_change_most(size[best]);
    memset(out + bytes, 0, (size_t)(padded - bytes));
    return padded;
}
