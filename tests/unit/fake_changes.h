/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of device_change.h in host memory: records are those of lp_change_put; what applies them reads them by
 * itself, element by element.
 */
#ifndef LOADPLAN_FAKE_CHANGES_H
#define LOADPLAN_FAKE_CHANGES_H

#include "replayer/device_change.h"

#include <stdlib.h>
#include <string.h>

static inline void fake_compare(const lp_change_compare *c)
{
    for (uint32_t n = 0; n < c->count; n++) {
        const uint32_t i = c->first + n;
        const lp_change_stretch *s = &c->stretch[i];
        const size_t bytes = (size_t)s->elements * s->elem;
        const int flags = c->flags == NULL ? 0 : c->flags[s->name];
        const bool whole = c->writes_whole || s->elements == 0 || (flags & LP_CHANGE_WHOLE) != 0;
        if ((uintptr_t)s->shadow % 16 != 0 || bytes > LP_CHANGE_STRETCH)
            abort();
        if (c->flags != NULL) {
            const uint64_t at = *c->used - c->base;
            const int64_t written =
                (flags & LP_CHANGE_READ) == 0
                    ? 0
                    : lp_change_put(s->name, s->off, (int)s->elem, s->elements, s->shadow, s->from, whole, c->out + at);
            c->place[i] = (lp_change_place){(uint32_t)at, (uint32_t)written};
            *c->used += (uint64_t)written;
        }
        if (bytes > 0)
            memcpy(s->shadow, s->from, bytes);
    }
}

static inline void fake_put_u32(uint8_t *out, uint32_t value)
{
    for (int b = 0; b < 4; b++)
        out[b] = (uint8_t)(value >> (8 * b));
}

static inline uint32_t fake_get_u32(const uint8_t *in)
{
    uint32_t value = 0;
    for (int b = 0; b < 4; b++)
        value |= (uint32_t)in[b] << (8 * b);
    return value;
}

static inline void fake_table_of_frame(const lp_change_table *t)
{
    uint8_t *out = t->out;
    for (uint32_t i = 0; i < t->count; i++) {
        fake_put_u32(out + (size_t)8 * i, t->place[t->first + i].begin);
        fake_put_u32(out + (size_t)8 * i + 4, t->place[t->first + i].bytes);
    }
    fake_put_u32(out + (size_t)8 * t->count, t->first);
    fake_put_u32(out + (size_t)8 * t->count + 4, t->count);
}

/* Into every target that takes the byte. */
static inline void fake_write(const lp_change_apply *a, const lp_change_stretch *s, int64_t off, const uint8_t *value)
{
    for (uint32_t k = s->first_target; k < s->first_target + s->targets; k++) {
        const lp_change_target *t = &a->target[k];
        int64_t left = off - t->lo;
        uint8_t *to = t->to;
        bool is_in = left >= 0;
        for (uint32_t m = 0; m < t->modes && is_in; m++) {
            const int64_t digit = left / t->src_stride[m];
            is_in = digit < t->extent[m];
            left -= digit * t->src_stride[m];
            to += digit * t->dst_stride[m];
        }
        if (is_in && left < t->run)
            memcpy(to + left, value, s->elem);
    }
}

static inline void fake_apply_record(const lp_change_apply *a, const lp_change_stretch *s, const uint8_t *data)
{
    const uint32_t form = data[4] | (uint32_t)data[5] << 8, count = fake_get_u32(data + 20);
    const uint8_t *index = data + LP_CHANGE_HEAD;
    bool *is_changed = calloc((size_t)s->elements + 1, sizeof *is_changed);
    if (is_changed == NULL || fake_get_u32(data) != s->name || fake_get_u32(data + 16) != s->elements ||
        (int64_t)(fake_get_u32(data + 8) | (uint64_t)fake_get_u32(data + 12) << 32) != s->off)
        abort();
    const size_t size[5] = {0, 0, (size_t)2 * count, (size_t)4 * count, ((size_t)s->elements + 7) / 8};
    const uint8_t *value = index + size[form];
    for (uint32_t i = 0, at = 0; i < (form == LP_CHANGE_PLACES || form == LP_CHANGE_RUNS ? count : 0); i++) {
        const uint32_t x = index[size[form] / count * i] | (uint32_t)index[size[form] / count * i + 1] << 8;
        uint32_t length = 1;
        if (form == LP_CHANGE_RUNS) {
            length = index[4 * i + 2] | (uint32_t)index[4 * i + 3] << 8;
            length = length == 0 ? LP_CHANGE_ELEMENTS : length;
            at += x;
        } else {
            at = x;
        }
        for (; length > 0; length--)
            is_changed[at++] = true;
    }
    for (uint32_t i = 0; i < s->elements; i++) {
        if (!(form == LP_CHANGE_ALL || (form == LP_CHANGE_BITS ? (index[i / 8] >> i % 8 & 1) != 0 : is_changed[i])))
            continue;
        fake_write(a, s, s->off + (int64_t)i * s->elem, value);
        value += s->elem;
    }
    free(is_changed);
}

static inline void fake_apply(const lp_change_apply *a)
{
    const uint8_t *table = a->frame + a->bytes - 8 - (size_t)8 * a->count;
    for (uint32_t i = 0; i < a->count; i++) {
        const lp_change_stretch *s = &a->stretch[a->first + i];
        if (fake_get_u32(table + (size_t)8 * i + 4) > 0 && a->flags[s->name] == LP_CHANGE_READ)
            fake_apply_record(a, s, a->frame + fake_get_u32(table + (size_t)8 * i));
    }
}

#endif
