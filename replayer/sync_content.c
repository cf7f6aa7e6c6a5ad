/* SPDX-License-Identifier: Apache-2.0 */
/* The content id: what the tensors hold, whatever files, ranks and buckets they come in. The value digest is a sum, so
 * each sender adds up its share and the shares add up to the whole. */
#include "replayer/sync_private.h"

#include "replayer/transport_wire.h"

enum { ROW = 20, STEP = 256 << 10 };

static lp_status sum_share(lp_sync *s, const lp_sync_source *source, const lp_pieces *share, lp_text *out,
                           lp_error *err)
{
    uint8_t *scratch = lp_allocate(s->alloc, STEP);
    lp_status status = scratch == NULL ? lp_fail_memory(err) : LP_OK;
    for (int64_t i = 0; i < share->count && status == LP_OK; i++) {
        const lp_piece *p = &share->piece[i];
        lp_value_sum sum = {{0, 0}};
        uint8_t row[ROW];
        for (int64_t off = 0; off < p->run && status == LP_OK; off += STEP) {
            const int64_t bytes = p->run - off < STEP ? p->run - off : STEP;
            status = source->read(source->context, p->name, p->lo + off, bytes, 0, 1, scratch, err);
            if (status == LP_OK)
                lp_value_sum_add(&sum, p->lo + off, scratch, bytes);
            lp_sync_alive(s);
        }
        lp_wire_put_u32(row, p->name);
        lp_wire_put_i64(row + 4, (int64_t)sum.lane[0]);
        lp_wire_put_i64(row + 12, (int64_t)sum.lane[1]);
        lp_text_add(out, (const char *)row, sizeof row);
    }
    lp_release(s->alloc, scratch);
    return status != LP_OK ? status : out->failed ? lp_fail_memory(err) : LP_OK;
}

static lp_status add_rows(lp_sync *s, const lp_block *block, lp_error *err)
{
    const uint8_t *data = block->data;
    for (int64_t off = 0; off + ROW <= block->bytes; off += ROW) {
        const uint32_t name = lp_wire_get_u32(data + off);
        if (name >= lp_checkpoint_count(s->catalogue))
            return lp_fail(err, LP_E_CORRUPT, "a digest of a name that is not in the catalogue");
        s->sum[name].lane[0] += (uint64_t)lp_wire_get_i64(data + off + 4);
        s->sum[name].lane[1] += (uint64_t)lp_wire_get_i64(data + off + 12);
    }
    return LP_OK;
}

static lp_status make_id(lp_sync *s, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(s->catalogue);
    lp_sha256 h;
    lp_sha256_begin(&h);
    lp_sha256_text(&h, "loadplan content 1");
    lp_sha256_add(&h, s->catalogue_digest, 32);
    for (int64_t i = 0; i < names; i++) {
        uint8_t digest[LP_VALUE_DIGEST_BYTES];
        lp_value_sum_end(&s->sum[i], lp_checkpoint_at(s->catalogue, i)->bytes, digest);
        lp_sha256_add(&h, digest, sizeof digest);
    }
    if (!lp_sha256_end(&h, s->content))
        return lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
    /* Frames of this epoch belong to this content, too. */
    lp_sha256_begin(&h);
    lp_sha256_add(&h, s->agreement, 32);
    lp_sha256_add(&h, s->content, 32);
    return lp_sha256_end(&h, s->agreement) ? LP_OK : lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
}

lp_status lp_sync_content(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    const lp_block *all = NULL;
    lp_pieces share;
    lp_text rows;
    lp_status status = LP_OK;
    /* A sender with a part of the tensors cannot speak for the whole. */
    for (int32_t i = 0; i < s->round.senders; i++)
        if (!s->fact[i].gives_content)
            return LP_OK;
    lp_pieces_init(&share, s->alloc);
    lp_text_init(&rows, s->alloc);
    if (source != NULL) {
        status = lp_sync_share(s, &share, s->round.rank, s->round.senders, NULL, NULL, err);
        if (status == LP_OK)
            status = sum_share(s, source, &share, &rows, err);
    }
    if (status == LP_OK)
        status = s->transport.gather(s->transport.context, rows.data, rows.bytes, &all, err);
    if (status == LP_OK) {
        s->sum = lp_allocate_zero(s->alloc, ((size_t)lp_checkpoint_count(s->catalogue) + 1) * sizeof *s->sum);
        if (s->sum == NULL)
            status = lp_fail_memory(err);
        for (int32_t i = 0; i < s->round.senders && status == LP_OK; i++)
            status = add_rows(s, &all[i], err);
        if (status == LP_OK)
            status = make_id(s, err);
    }
    lp_text_free(&rows);
    lp_pieces_free(&share);
    memcpy(s->report.content, s->content, 32);
    return status;
}

lp_status lp_sync_content_verify(const lp_sync *s, uint32_t name, const lp_value_sum *sum, lp_error *err)
{
    const char *text = lp_checkpoint_at(s->catalogue, name)->name;
    if (s->sum == NULL || memcmp(&s->sum[name], sum, sizeof *sum) == 0)
        return LP_OK;
    return lp_fail_at(err, LP_E_CORRUPT, text, -1, "'%s' did not arrive as the senders announced it", text);
}
