/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of names on the wire: a bit for each name, as lengths of runs of equal bits. Ranks read whole layers, or the
 * experts of a range, and everybody hears of everybody's: a large world could not afford the bits themselves. Private
 * to the replayer.
 */
#ifndef LOADPLAN_SYNC_BITS_H
#define LOADPLAN_SYNC_BITS_H

#include "traces/base.h"

/* Adds the first `bits` of the map to `out` (whose `failed` tells of memory): at most one byte more than the map takes.
 * map NULL: no bit is set. */
void lp_bits_put(const uint8_t *map, int64_t bits, lp_text *out);

/* Back, from *at on, which moves behind it; `map` has (bits + 7) / 8 bytes. LP_E_CORRUPT: it is not what lp_bits_put
 * writes of so many bits. */
lp_status lp_bits_get(const uint8_t *data, int64_t bytes, int64_t *at, uint8_t *map, int64_t bits, lp_error *err);

#endif
