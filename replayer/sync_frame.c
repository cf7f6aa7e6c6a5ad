/* SPDX-License-Identifier: Apache-2.0 */
/* Frame headers. docs/distributed.md has the layout. */
#include "replayer/sync_frame.h"

#include "replayer/transport_wire.h"

#include <xxhash.h>

static const uint8_t MAGIC[8] = {'L', 'P', 'B', 'U', 'C', 'K', 'E', 'T'};

enum { CHECKED = LP_FRAME_BYTES - 8 };

void lp_frame_put(const lp_frame *frame, uint8_t out[LP_FRAME_BYTES])
{
    memset(out, 0, LP_FRAME_BYTES);
    memcpy(out, MAGIC, sizeof MAGIC);
    lp_wire_put_u32(out + 8, LP_FRAME_VERSION);
    lp_wire_put_u32(out + 12, LP_FRAME_BYTES);
    lp_wire_put_u32(out + 16, frame->round);
    lp_wire_put_u32(out + 20, (uint32_t)frame->sender);
    lp_wire_put_i64(out + 24, frame->epoch);
    lp_wire_put_i64(out + 32, frame->sequence);
    lp_wire_put_i64(out + 40, frame->bytes);
    lp_wire_put_i64(out + 48, frame->next_bytes);
    memcpy(out + 56, frame->agreement, 32);
    memcpy(out + 88, frame->payload, 16);
    lp_wire_put_u32(out + 104, frame->digest);
    /* 108 to 135 are zero, for later versions. */
    lp_wire_put_i64(out + CHECKED, (int64_t)lp_hash(out, CHECKED));
}

lp_status lp_frame_get(const uint8_t in[LP_FRAME_BYTES], lp_frame *frame, lp_error *err)
{
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0)
        return lp_fail(err, LP_E_CORRUPT, "what came is no frame: its magic is wrong");
    if (lp_wire_get_i64(in + CHECKED) != (int64_t)lp_hash(in, CHECKED))
        return lp_fail(err, LP_E_CORRUPT, "the header of a frame is damaged");
    if (lp_wire_get_u32(in + 8) != LP_FRAME_VERSION || lp_wire_get_u32(in + 12) != LP_FRAME_BYTES)
        return lp_fail(err, LP_E_VERSION, "a frame of version %u, this program knows version %d",
                       lp_wire_get_u32(in + 8), LP_FRAME_VERSION);
    frame->round = lp_wire_get_u32(in + 16);
    frame->sender = (int32_t)lp_wire_get_u32(in + 20);
    frame->epoch = lp_wire_get_i64(in + 24);
    frame->sequence = lp_wire_get_i64(in + 32);
    frame->bytes = lp_wire_get_i64(in + 40);
    frame->next_bytes = lp_wire_get_i64(in + 48);
    memcpy(frame->agreement, in + 56, 32);
    memcpy(frame->payload, in + 88, 16);
    frame->digest = lp_wire_get_u32(in + 104);
    if (frame->digest != LP_FRAME_VALUE && frame->digest != LP_FRAME_XXH3)
        return lp_fail(err, LP_E_VERSION, "a frame with a digest of kind %u, which this program does not know",
                       frame->digest);
    if (frame->bytes < 0 || frame->next_bytes < -1)
        return lp_fail(err, LP_E_CORRUPT, "a frame of %lld bytes before one of %lld", (long long)frame->bytes,
                       (long long)frame->next_bytes);
    return LP_OK;
}

lp_status lp_frame_expect(const lp_frame *have, const lp_frame *want, lp_error *err)
{
    if (have->epoch != want->epoch)
        return lp_fail(err, LP_E_MISMATCH, "a frame of epoch %lld came in epoch %lld", (long long)have->epoch,
                       (long long)want->epoch);
    if (memcmp(have->agreement, want->agreement, sizeof have->agreement) != 0)
        return lp_fail(err, LP_E_MISMATCH, "a frame belongs to other plans than the ones agreed on");
    if (have->round != want->round || have->sender != want->sender || have->sequence != want->sequence)
        return lp_fail(err, LP_E_CORRUPT, "frame %lld of sender %d came where frame %lld of sender %d was due",
                       (long long)have->sequence, have->sender, (long long)want->sequence, want->sender);
    if (have->bytes != want->bytes)
        return lp_fail(err, LP_E_CORRUPT, "frame %lld of sender %d has %lld bytes, it should have %lld",
                       (long long)have->sequence, have->sender, (long long)have->bytes, (long long)want->bytes);
    return LP_OK;
}

void lp_frame_digest(lp_frame_digest_kind kind, const void *data, int64_t bytes, uint8_t digest[16])
{
    if (kind == LP_FRAME_VALUE) {
        lp_value_digest(data, bytes, digest);
        return;
    }
    const XXH128_hash_t hash = XXH3_128bits(data, (size_t)bytes);
    lp_wire_put_i64(digest, (int64_t)hash.low64);
    lp_wire_put_i64(digest + 8, (int64_t)hash.high64);
}

lp_status lp_frame_compare(const lp_frame *frame, const uint8_t digest[16], lp_error *err)
{
    if (memcmp(frame->payload, digest, 16) == 0)
        return LP_OK;
    return lp_fail(err, LP_E_CORRUPT, "the payload of frame %lld of sender %d is damaged", (long long)frame->sequence,
                   frame->sender);
}

lp_status lp_frame_verify(const lp_frame *frame, const void *payload, lp_error *err)
{
    uint8_t digest[16];
    lp_frame_digest((lp_frame_digest_kind)frame->digest, payload, frame->bytes, digest);
    return lp_frame_compare(frame, digest, err);
}
