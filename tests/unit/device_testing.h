/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle of device_loads.h on the device of fake_device.h. */
#ifndef LOADPLAN_DEVICE_TESTING_H
#define LOADPLAN_DEVICE_TESTING_H

#include "device_loads.h"
#include "fake_device.h"

/* ---- the kit ---- */

static inline void *fake_kit_take(void *context, int64_t bytes)
{
    void *memory;
    assert_int_equal(fake_take_block(context, bytes, false, &memory), 0);
    return memory;
}

static inline void fake_kit_copy(void *context, void *to, const void *from, int64_t bytes)
{
    (void)context;
    memcpy(to, from, (size_t)bytes);
}

static inline void fake_kit_settle(void *context)
{
    fake_do_all(context);
}

static inline void fake_kit_bind(void *context, lp_plan **out, world *w, const lp_destination_memory *memory,
                                 const lp_bind_options *o)
{
    fake_device *f = context;
    assert_ok(w, lp_bind_with(out, w->trace, NULL, memory, w->ndest, o, &f->calls_table, &w->err));
    f->is_bound = true; /* no memory is taken after bind */
}

static inline device_kit open_kit(fake_device *f)
{
    const lp_device_calls calls = fake_table(f); /* clears *f */
    f->calls_table = calls;
    return (device_kit){f, fake_kit_take, fake_give, fake_kit_copy, fake_kit_copy, fake_kit_bind, fake_kit_settle, f};
}

#endif
