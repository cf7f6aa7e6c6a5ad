/* SPDX-License-Identifier: Apache-2.0 */
/* What calls of the device take in a cold start, all threads together. Wraps the table of the device. */
#ifndef COLD_CALLS_H
#define COLD_CALLS_H

#include "cold_bench.h"
#include "replayer/session.h"

enum { CALL_KINDS = 7 };
static const char *const call_name[CALL_KINDS] = {"allocate", "pin",  "lanes and marks", "program",
                                                  "clear",    "push", "first copy"};
static lp_cold_device calls_real;
static _Atomic int64_t call_ns[CALL_KINDS];

static inline void timed(int kind, int64_t begin)
{
    (void)atomic_fetch_add(&call_ns[kind], lp_session_clock() - begin);
}

static inline int timed_allocate(void *context, int64_t bytes, void **out)
{
    const int64_t begin = lp_session_clock();
    const int code = calls_real.allocate(context, bytes, out);
    timed(0, begin);
    return code;
}

static inline int timed_pin(void *context, void *host, int64_t bytes)
{
    const int64_t begin = lp_session_clock();
    const int code = calls_real.pin(context, host, bytes);
    timed(1, begin);
    return code;
}

static inline int timed_lane(void *context, void **lane)
{
    const int64_t begin = lp_session_clock();
    const int code = calls_real.lane_open(context, lane);
    timed(2, begin);
    return code;
}

static inline int timed_mark(void *context, void **mark)
{
    const int64_t begin = lp_session_clock();
    const int code = calls_real.mark_open(context, mark);
    timed(2, begin);
    return code;
}

static inline lp_status timed_program(void *context, void **program, const lp_plan *plan, lp_error *err)
{
    const int64_t begin = lp_session_clock();
    const lp_status status = calls_real.program_open(context, program, plan, err);
    timed(3, begin);
    return status;
}

static inline int timed_clear(void *context, void *lane, void *device, int64_t bytes)
{
    const int64_t begin = lp_session_clock();
    const int code = calls_real.clear(context, lane, device, bytes);
    timed(4, begin);
    return code;
}

static inline lp_status timed_push(void *context, void *program, const lp_handle *handle, const void *const *data,
                                   int64_t count, void *lane, lp_error *err)
{
    const int64_t begin = lp_session_clock();
    const lp_status status = calls_real.program_push(context, program, handle, data, count, lane, err);
    timed(5, begin);
    return status;
}

static inline int timed_copy(void *context, void *lane, void *device, int64_t device_pitch, const void *host,
                             int64_t host_pitch, int64_t bytes, int64_t rows)
{
    static atomic_bool has_copied;
    const int64_t begin = lp_session_clock();
    const int code = calls_real.copy(context, lane, device, device_pitch, host, host_pitch, bytes, rows);
    if (!atomic_exchange(&has_copied, true))
        timed(6, begin);
    return code;
}

static inline void time_calls(lp_cold_device *d)
{
    calls_real = *d;
    d->allocate = timed_allocate;
    d->pin = timed_pin;
    d->lane_open = timed_lane;
    d->mark_open = timed_mark;
    d->program_open = timed_program;
    d->clear = timed_clear;
    d->program_push = timed_push;
    d->copy = timed_copy;
}

static inline void print_calls(const cold_run *r, bool is_first)
{
    if (is_first)
        printf("opening: trace %.1f ms, checkpoint %.1f, device memory %.1f, binding %.1f\n", r->trace_ms,
               r->checkpoint_ms, r->memory_ms, r->bind_ms);
    printf("calls:");
    for (int i = 0; i < CALL_KINDS; i++)
        printf(" %s %.2f ms%s", call_name[i], (double)atomic_exchange(&call_ns[i], 0) / 1e6,
               i + 1 < CALL_KINDS ? "," : "\n");
}

#endif
