/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of a checkpoint into pinned memory, read by several threads a few chunks ahead. Private to the replayer.
 *
 * A chunk is a frame of a list of pieces. Chunks are taken in order and given back in order.
 */
#ifndef LOADPLAN_SYNC_COLD_READ_H
#define LOADPLAN_SYNC_COLD_READ_H

#include "replayer/sync_private.h"

enum {
    LP_COLD_AHEAD = 4,
    LP_COLD_THREADS = 64,
    LP_COLD_MOST = 32 << 20 /* bytes of a chunk on a device: more take longer to pin than they save */
};

typedef struct lp_cold_reader lp_cold_reader;

/* One list after the other. `memory` has LP_COLD_AHEAD blocks with room for any frame; it and everything else outlive
 * the reader. The source's read is called by several threads for single runs, and by one at a time for others. */
lp_status lp_cold_reader_open(lp_cold_reader **out, const lp_sync *s, const lp_sync_source *source,
                              const lp_pieces *const *list, int lists, uint8_t *const *memory, int threads,
                              lp_error *err);
/* The next chunk, when it is read. Errors are those of reading. */
lp_status lp_cold_reader_take(lp_cold_reader *r, const uint8_t **data, lp_error *err);
void lp_cold_reader_give(lp_cold_reader *r); /* the oldest one taken */
void lp_cold_reader_close(lp_cold_reader *r);

#endif
