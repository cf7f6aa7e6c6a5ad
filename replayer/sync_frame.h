/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame: what comes before the payload of a bucket, and how both are believed. Private to the replayer.
 *
 * Sizes are known before a frame comes: from the schedule that both sides made, or from the frame before. A header that
 * is not the expected one ends the epoch, so a payload is never read as a header.
 */
#ifndef LOADPLAN_SYNC_FRAME_H
#define LOADPLAN_SYNC_FRAME_H

#include "replayer/replayer.h"
#include "traces/base.h"

enum { LP_FRAME_BYTES = 144, LP_FRAME_VERSION = 1 };

typedef struct lp_frame {
    uint32_t round;
    int32_t sender;
    int64_t epoch, sequence; /* sequence: of this sender to this receiver, from 0 */
    int64_t bytes;           /* of the payload */
    int64_t next_bytes;      /* of the next frame of this sender; -1: this is the last one */
    uint8_t agreement[32];   /* digest of everything that the ranks agreed on, set digests among it */
    uint32_t digest;         /* lp_frame_digest_kind of the payload */
    uint8_t payload[16];     /* digest of the payload */
} lp_frame;

/* Host memory is digested fastest by XXH3, device memory by the value digest, which both sides can compute. */
typedef enum lp_frame_digest_kind { LP_FRAME_VALUE = 1, LP_FRAME_XXH3 = 2 } lp_frame_digest_kind;
void lp_frame_digest(lp_frame_digest_kind kind, const void *data, int64_t bytes, uint8_t digest[16]);

void lp_frame_put(const lp_frame *frame, uint8_t out[LP_FRAME_BYTES]);
/* LP_E_CORRUPT: no frame header, or a damaged one; LP_E_VERSION. */
lp_status lp_frame_get(const uint8_t in[LP_FRAME_BYTES], lp_frame *frame, lp_error *err);
/* LP_E_CORRUPT or LP_E_MISMATCH when `have` is not the frame that comes now: everything but next_bytes and payload is
 * compared. */
lp_status lp_frame_expect(const lp_frame *have, const lp_frame *want, lp_error *err);
lp_status lp_frame_verify(const lp_frame *frame, const void *payload, lp_error *err); /* host memory */
/* Compares the digest that its header gives with that of what came, of the same kind. */
lp_status lp_frame_compare(const lp_frame *frame, const uint8_t digest[16], lp_error *err);

#endif
