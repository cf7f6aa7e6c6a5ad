/* SPDX-License-Identifier: Apache-2.0 */
/* A push into device memory, as its own files see it: one of them from its judgement to its last byte
 * (device_session_push.c), the copies into slots (device_session_copy.c), several at a time (device_session_many.c).
 * All are called between lp_push_enter and lp_push_leave; err must not be NULL where a call may poison the session. */
#ifndef LOADPLAN_DEVICE_SESSION_PUSH_H
#define LOADPLAN_DEVICE_SESSION_PUSH_H

#include "replayer/device_session.h"
#include "replayer/session.h"
#include "replayer/sync_piece.h"

/* One push under way. */
typedef struct lp_device_push {
    uint32_t entry;
    int64_t off, bytes;
    const void *data;
    const lp_form *form; /* NULL: row-major without gaps */
    bool on_device;
    const lp_piece *piece; /* of a frame; else NULL */
    const lp_piece *runs;  /* several runs, of which [off, off + bytes) is the span, dense at `data`; else NULL */
} lp_device_push;

/* Makes the device current, and the one before again. */
lp_status lp_push_enter(lp_session *s, int *before, lp_error *err);
void lp_push_leave(lp_session *s, int before);

/* ---- device_session_push.c ---- */

lp_status lp_push_locate(const lp_session *s, const void *data, lp_source_memory memory, bool *on_device,
                         lp_error *err);
lp_status lp_push_ask_capture(const lp_session *s, bool *is_captured, lp_error *err);
/* A graph repeats what is on the stream, nothing that the host did meanwhile. */
lp_status lp_push_check_capture(const lp_session *s, const lp_device_push *p, bool is_captured, lp_error *err);
/* Room, before anything is written; in direct mode what is complete makes room first. */
lp_status lp_push_reserve(lp_session *s, const lp_device_push *p, bool is_committed_by_call, lp_error *err);
/* Copies and counts. */
lp_status lp_push_put(lp_session *s, const lp_device_push *p, bool is_committed_by_call, lp_error *err);
/* All of that for bytes [off, off + bytes), or for a strided tensor. ends_call: what became complete is moved. */
lp_status lp_push_one(lp_session *s, lp_handle handle, const lp_form *form, int64_t off, const void *data,
                      int64_t bytes, lp_source_memory memory, bool ends_call, lp_error *err);
/* What was taken is moved, also when something behind it was refused; a session that failed moves nothing more. */
lp_status lp_push_flush_after(lp_session *s, lp_status status, lp_error *err);

/* ---- device_session_copy.c ---- */

/* The needed bytes of a push into the slot that its name has. */
lp_status lp_push_copy_in(lp_session *s, const lp_device_push *p, lp_error *err);
/* Where byte 0 of a tensor with a slot would be: an address that need not exist. */
const void *lp_push_slot_base(const lp_session *s, uint32_t entry);

#endif
