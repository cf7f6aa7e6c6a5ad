/* SPDX-License-Identifier: Apache-2.0 */
/* Whether every unit that has begun can still be completed, played through: for device_session_room.c alone. */
#ifndef LOADPLAN_DEVICE_SESSION_PLAY_H
#define LOADPLAN_DEVICE_SESSION_PLAY_H

#include "replayer/device_session.h"
#include "replayer/session.h"

/* Still to come, and without a slot. */
bool lp_play_is_coming(const lp_session *s, uint32_t entry);
/* A play costs the square of the number of shared names: not with too many of them. */
bool lp_play_is_possible(const lp_session *s);

/* Starts over: nothing has been committed or has come in the play. Before the two below are asked. */
void lp_play_begin(lp_session *s);
/* The largest name that may come last for a unit, but for `taking`; LP_NONE: none is left, or all have to wait for
 * other units. `taking`: a name that is given a slot, or LP_NONE; here and below. */
uint32_t lp_play_last(lp_session *s, uint32_t unit, uint32_t taking);
/* Bytes of slots that a unit needs until its last name comes. */
int64_t lp_play_need(lp_session *s, uint32_t unit, uint32_t taking);

/* Whether a slot for this name leaves room to complete every unit that has begun. */
bool lp_play_is_safe(lp_session *s, uint32_t entry);

#endif
