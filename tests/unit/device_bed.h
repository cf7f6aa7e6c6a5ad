/* SPDX-License-Identifier: Apache-2.0 */
/* One plan on the fake device with a payload in host memory and one in its own: what tests of its sessions stand on. */
#ifndef LOADPLAN_DEVICE_BED_H
#define LOADPLAN_DEVICE_BED_H

#include "device_testing.h"

typedef struct bed {
    world w;
    fake_device f;
    device_kit k;
    payload host, device;
    image live, want;
    lp_plan *plan;
    lp_session *s;
} bed;

/* Two layers of two tensors of 2 KiB each, and one that feeds both. */
static inline void layered_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->random = 12;
    for (int layer = 0; layer < 2; layer++) {
        char name[32], group[32];
        snprintf(group, sizeof group, "layers.%d", layer);
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "s%d.%c", layer, 'a' + i);
            const int from = add_source(w, name, LP_F32, 16, 32);
            snprintf(name, sizeof name, "layers.%d.%c", layer, 'a' + i);
            add_copy(w, from, add_dest(w, name, LP_F32, 16, 32, 0, group), 0, 16, 0);
        }
    }
    build_world(w, NULL);
}

static inline void open_bed(bed *b, void (*make)(world *w), const lp_bind_options *options)
{
    make(&b->w);
    b->k = open_kit(&b->f);
    b->host = make_payload(&b->w);
    b->device = device_payload(&b->k, &b->w, &b->host, 0);
    b->live = device_image(&b->k, &b->w);
    b->want = new_image(&b->w);
    put_image(&b->k, &b->w, &b->live, &b->want);
    model_load(&b->w, &b->host, &b->want);
    b->plan = bind_device(&b->k, &b->w, &b->live, options);
    b->s = NULL;
}

static inline void begin(bed *b, lp_load_mode mode)
{
    lp_session_close(b->s);
    assert_ok(&b->w, lp_begin(&b->s, b->plan, &(lp_session_options){.mode = mode}, &b->w.err));
}

static inline lp_status push(bed *b, int which, bool on_device)
{
    const payload *p = on_device ? &b->device : &b->host;
    return lp_push_range(b->s, b->w.source[which].name, 0, p->data[which], b->w.source[which].bytes, &b->w.err);
}

static inline void finish(bed *b, lp_report *report)
{
    assert_ok(&b->w, lp_finish(b->s, report, &b->w.err));
    assert_device_image(&b->k, &b->w, &b->live, &b->want, "after finish");
}

static inline void close_bed(bed *b)
{
    lp_session_close(b->s);
    lp_plan_close(b->plan);
    free_device_payload(&b->k, &b->w, &b->device, 0);
    free_device_image(&b->k, &b->w, &b->live);
    assert_int_equal(b->f.blocks, 0);
    fake_end(&b->f);
    free_payload(&b->w, &b->host);
    free_image(&b->w, &b->want);
    free_world(&b->w);
}

#endif
