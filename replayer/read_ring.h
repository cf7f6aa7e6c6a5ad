/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading ahead. A slot is a few megabytes of one file; threads fill slots and move their bytes to the destinations
 * while they are in the cache. The session is told slot by slot, in the order of submission, by the thread that owns
 * it: what it sees is what it would see without threads.
 *
 * Which bytes are read. Buffered: exactly those that were asked for; pieces that follow one another in the file come
 * with one call. Direct: the LP_DIRECT_UNIT blocks that hold them; pieces whose blocks touch come with one call, and no
 * gap is read.
 */
#ifndef LOADPLAN_READ_RING_H
#define LOADPLAN_READ_RING_H

#include "replayer/session.h"

enum {
    LP_SLOT_BYTES = 2 << 20, /* stays in the second-level cache between reading and moving */
    LP_SLOT_PIECES = 256,
    LP_DIRECT_UNIT = 4096
};

/* A file that is open. Readers use it until the ring is drained. */
typedef struct lp_ring_file {
    const char *path;
    int fd;        /* buffered */
    int direct_fd; /* opened with O_DIRECT, or -1 */
} lp_ring_file;

typedef struct lp_ring lp_ring;

/* Calls `done` on the owner's thread for every piece that has arrived; an error of it ends the walk. */
typedef lp_status (*lp_ring_done)(void *context, int64_t bytes, lp_error *err);

/* `threads` read and move besides the owner; 0: the owner does it in lp_ring_add. */
lp_status lp_ring_open(lp_ring **out, lp_session *s, int32_t threads, lp_ring_done done, void *context, lp_error *err);
void lp_ring_close(lp_ring *ring); /* waits for readers and drops what has not been taken; NULL is allowed */

/* The pieces that follow are of this file; its content must stay until the ring is drained. */
void lp_ring_use(lp_ring *ring, const lp_ring_file *file);

/* Bytes [off, off + bytes) of a tensor that the plan needs, which lie at file_off; at most LP_SLOT_BYTES -
 * 2 * LP_DIRECT_UNIT. The call may take slots that are done, so that errors can be those of earlier pieces. */
lp_status lp_ring_add(lp_ring *ring, lp_handle handle, int64_t off, int64_t bytes, int64_t file_off, lp_error *err);

/* Everything that was added has arrived. After an error the rest is dropped: it has not arrived and can be read again.
 */
lp_status lp_ring_drain(lp_ring *ring, lp_error *err);
void lp_ring_drop(lp_ring *ring);

/* Bytes that calls of pread returned, and how many calls. */
int64_t lp_ring_bytes(const lp_ring *ring, int64_t *calls);
/* Whether a direct read was refused, so that the file was read through the cache after all. */
bool lp_ring_fell_back(const lp_ring *ring);

#endif
