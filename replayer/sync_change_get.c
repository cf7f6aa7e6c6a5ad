/* SPDX-License-Identifier: Apache-2.0 */
/* Changes as bytes, read: nothing of a record is believed before all of it was checked. */
#include "replayer/sync_change.h"

#include "replayer/transport_wire.h"

static uint32_t get_u16(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8;
}

typedef struct change {
    uint32_t name;
    lp_change_form form;
    int elem;
    int64_t off, elements, count;
    const uint8_t *index, *values; /* index: places, runs or bits */
} change;

static lp_status corrupt(lp_error *err, const char *what)
{
    return lp_fail(err, LP_E_CORRUPT, "changes that came are damaged: %s", what);
}

static lp_status get_head(change *c, const uint8_t *data, int64_t bytes, const lp_checkpoint *catalogue, lp_error *err)
{
    if (bytes < LP_CHANGE_HEAD)
        return corrupt(err, "they end in a header");
    c->name = lp_wire_get_u32(data);
    c->form = (lp_change_form)get_u16(data + 4);
    c->elem = (int)get_u16(data + 6);
    c->off = lp_wire_get_i64(data + 8);
    c->elements = lp_wire_get_u32(data + 16);
    c->count = lp_wire_get_u32(data + 20);
    if (c->name >= lp_checkpoint_count(catalogue))
        return corrupt(err, "a name that is not in the catalogue");
    const lp_checkpoint_tensor *t = lp_checkpoint_at(catalogue, c->name);
    if (c->elem != lp_change_elem(t->dtype) || c->elements > LP_CHANGE_ELEMENTS || c->count > c->elements)
        return corrupt(err, "an element size or a count");
    if (c->off < 0 || c->off % c->elem != 0 || c->off > t->bytes || c->elements * c->elem > t->bytes - c->off)
        return corrupt(err, "bytes outside of their tensor");
    return LP_OK;
}

/* 64 bits of the index from element `at` on, which is a multiple of 64; zeros behind its end. */
static uint64_t bits_at(const change *c, int64_t at)
{
    const int64_t bytes = (c->elements + 7) / 8 - at / 8;
    uint64_t word = 0;
    for (int64_t i = 0; i < bytes && i < 8; i++)
        word |= (uint64_t)c->index[at / 8 + i] << (8 * i);
    return word;
}

/* Number of elements that the index names, or -1 when it is not in order. */
static int64_t count_index(const change *c)
{
    int64_t at = 0, total = 0;
    switch (c->form) {
    case LP_CHANGE_ALL:
        return c->elements;
    case LP_CHANGE_PLACES:
        for (int64_t i = 0; i < c->count; i++) {
            const int64_t place = get_u16(c->index + 2 * i);
            if (place < at || place >= c->elements)
                return -1;
            at = place + 1;
        }
        return c->count;
    case LP_CHANGE_RUNS:
        for (int64_t i = 0; i < c->count; i++) {
            const int64_t length = get_u16(c->index + 4 * i + 2);
            at += (int64_t)get_u16(c->index + 4 * i) + (length == 0 ? LP_CHANGE_ELEMENTS : length);
            total += length == 0 ? LP_CHANGE_ELEMENTS : length;
            if (at > c->elements)
                return -1;
        }
        return total;
    case LP_CHANGE_BITS:
        for (at = 0; at < c->elements; at += 64) {
            const uint64_t word = bits_at(c, at);
            if (c->elements - at < 64 && word >> (c->elements - at) != 0)
                return -1;
            total += __builtin_popcountll(word);
        }
        return total == c->count ? total : -1;
    }
    return -1;
}

static lp_status get_body(change *c, const uint8_t *data, int64_t bytes, int64_t *used, lp_error *err)
{
    int64_t index = 0;
    switch (c->form) {
    case LP_CHANGE_ALL:
        break;
    case LP_CHANGE_PLACES:
        index = 2 * c->count;
        break;
    case LP_CHANGE_RUNS:
        index = 4 * c->count;
        break;
    case LP_CHANGE_BITS:
        index = (c->elements + 7) / 8;
        break;
    default:
        return corrupt(err, "a form that is not known");
    }
    if (index > bytes - LP_CHANGE_HEAD)
        return corrupt(err, "they end in a list");
    c->index = data + LP_CHANGE_HEAD;
    c->values = c->index + index;
    const int64_t changed = count_index(c);
    if (changed < 0)
        return corrupt(err, "a list that is out of order");
    if (changed * c->elem > bytes - LP_CHANGE_HEAD - index)
        return corrupt(err, "they end in values");
    const int64_t end = LP_CHANGE_HEAD + index + changed * c->elem;
    *used = lp_change_most(index + changed * c->elem);
    if (*used > bytes)
        return corrupt(err, "they end before they are filled up");
    for (int64_t i = end; i < *used; i++)
        if (data[i] != 0)
            return corrupt(err, "they are filled up by something");
    return LP_OK;
}

/* Whether element i follows the one before it, in the index of a form that lists single elements. */
static int64_t next_element(const change *c, int64_t *cursor)
{
    if (c->form == LP_CHANGE_PLACES)
        return *cursor < c->count ? (int64_t)get_u16(c->index + 2 * (*cursor)++) : -1;
    for (; *cursor < c->elements; *cursor = (*cursor / 64 + 1) * 64) {
        const uint64_t word = bits_at(c, *cursor / 64 * 64) >> (*cursor % 64);
        if (word != 0) {
            *cursor += __builtin_ctzll(word) + 1;
            return *cursor - 1;
        }
    }
    return -1;
}

static lp_status write_elements(const change *c, lp_change_write write, void *context, lp_error *err)
{
    const uint8_t *value = c->values;
    int64_t cursor = 0, first = next_element(c, &cursor);
    while (first >= 0) {
        int64_t end = first + 1, next = next_element(c, &cursor);
        while (next == end) {
            end++;
            next = next_element(c, &cursor);
        }
        const int64_t bytes = (end - first) * c->elem;
        LP_TRY(write(context, c->name, c->off + first * c->elem, value, bytes, c->form, err));
        value += bytes;
        first = next;
    }
    return LP_OK;
}

static lp_status write_runs(const change *c, lp_change_write write, void *context, lp_error *err)
{
    const uint8_t *value = c->values;
    int64_t at = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t length = get_u16(c->index + 4 * i + 2);
        const int64_t run = length == 0 ? LP_CHANGE_ELEMENTS : length;
        at += (int64_t)get_u16(c->index + 4 * i);
        LP_TRY(write(context, c->name, c->off + at * c->elem, value, run * c->elem, c->form, err));
        value += run * c->elem;
        at += run;
    }
    return LP_OK;
}

lp_status lp_change_get(const uint8_t *data, int64_t bytes, const lp_checkpoint *catalogue, lp_change_write write,
                        void *context, int64_t *used, lp_error *err)
{
    change c = {0};
    LP_TRY(get_head(&c, data, bytes, catalogue, err));
    LP_TRY(get_body(&c, data, bytes, used, err));
    if (c.form == LP_CHANGE_ALL)
        return write(context, c.name, c.off, c.values, c.elements * c.elem, c.form, err);
    return c.form == LP_CHANGE_RUNS ? write_runs(&c, write, context, err) : write_elements(&c, write, context, err);
}
