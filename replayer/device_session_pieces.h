/* SPDX-License-Identifier: Apache-2.0 */
/* What a sync pushes into a session on a device: the payload of a frame as it came. Private to the replayer. */
#ifndef LOADPLAN_DEVICE_SESSION_PIECES_H
#define LOADPLAN_DEVICE_SESSION_PIECES_H

#include "replayer/session.h"
#include "replayer/sync_piece.h"

/* Pieces that lie one after the other in memory of the session's device. No byte of them may have arrived before, which
 * for pieces of several runs is not looked after. Names that are fallbacks or of other scopes are passed over.
 * Everything that reads `data` is on the session's stream when it returns; in direct mode all names that became
 * complete are one push. Errors as of lp_push; err must not be NULL. */
lp_status lp_device_push_pieces(lp_session *s, const lp_piece *piece, int64_t count, const void *data, lp_error *err);

#endif
