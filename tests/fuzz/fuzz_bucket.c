/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what comes from another rank: the first byte says as what. A frame header that is accepted says the same
 * when it is written again; changes touch bytes of their tensor only; a list of pieces that is accepted lies in its
 * tensors and is cut without a byte lost; whatever is read of a connection's messages lies inside of them.
 */
#include "replayer/sync_change.h"
#include "replayer/sync_delta.h"
#include "replayer/sync_frame.h"
#include "replayer/sync_piece.h"
#include "replayer/transport_wire.h"
#include "tests/fuzz/demand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { AS_FRAME, AS_CHANGES, AS_PIECES, AS_MESSAGE, AS_CHANGED, AS_CHANGES_FRAME, AS_COUNT };

/* Three tensors: of single bytes, of two and of four, and one without any. */
static const lp_checkpoint *catalogue(void)
{
    static lp_checkpoint *c;
    const struct {
        const char *name;
        lp_dtype dtype;
        int64_t count;
    } tensor[] = {{"a", LP_F8_E4M3, 1000}, {"b", LP_BF16, 70000}, {"c", LP_F32, 300}, {"d", LP_F32, 0}};
    if (c != NULL)
        return c;
    demand(lp_checkpoint_new(&c, NULL, NULL) == LP_OK);
    for (size_t i = 0; i < sizeof tensor / sizeof *tensor; i++)
        demand(lp_checkpoint_add(c,
                                 &(lp_checkpoint_tensor){.name = tensor[i].name,
                                                         .dtype = tensor[i].dtype,
                                                         .ndim = 1,
                                                         .shape = &tensor[i].count,
                                                         .file = -1,
                                                         .file_off = -1},
                                 NULL) == LP_OK);
    demand(lp_checkpoint_seal(c, NULL) == LP_OK);
    return c;
}

static void as_frame(const uint8_t *data, size_t bytes)
{
    uint8_t again[LP_FRAME_BYTES];
    lp_frame frame;
    lp_error err = {0};
    if (bytes < LP_FRAME_BYTES)
        return;
    const lp_status status = lp_frame_get(data, &frame, &err);
    if (status != LP_OK) {
        demand_error(status, &err);
        return;
    }
    lp_frame want = frame;
    demand(lp_frame_expect(&frame, &want, &err) == LP_OK);
    want.sequence ^= 1;
    demand(lp_frame_expect(&frame, &want, &err) == LP_E_CORRUPT);
    lp_frame_put(&frame, again);
    demand(memcmp(again, data, 108) == 0);
}

typedef struct image {
    uint8_t *byte; /* of the largest tensor */
    int64_t last;  /* changes of one stretch rise */
    uint32_t name;
} image;

static lp_status write(void *context, uint32_t name, int64_t off, const uint8_t *data, int64_t bytes,
                       lp_change_form form, lp_error *err)
{
    image *m = context;
    const lp_checkpoint_tensor *t = lp_checkpoint_at(catalogue(), name);
    (void)form;
    (void)err;
    demand(off >= 0 && bytes >= 0 && bytes <= t->bytes - off);
    demand(off % lp_change_elem(t->dtype) == 0 && bytes % lp_change_elem(t->dtype) == 0);
    demand(off >= m->last);
    m->last = off + bytes;
    m->name = name;
    if (bytes > 0)
        memcpy(m->byte + off, data, (size_t)bytes);
    return LP_OK;
}

static void as_changes(const uint8_t *data, size_t bytes)
{
    image m = {.byte = calloc(1, 140000)};
    demand(m.byte != NULL);
    int64_t left = (int64_t)bytes;
    while (left > 0) {
        int64_t used = 0;
        lp_error err = {0};
        m.last = 0;
        const lp_status status = lp_change_get(data, left, catalogue(), write, &m, &used, &err);
        if (status != LP_OK) {
            demand_error(status, &err);
            break;
        }
        demand(used >= LP_CHANGE_HEAD && used <= left);
        data += used;
        left -= used;
    }
    free(m.byte);
}

/* A frame of them: what it writes lies in its tensors, in any order. */
static lp_status write_any(void *context, uint32_t name, int64_t off, const uint8_t *data, int64_t bytes,
                           lp_change_form form, lp_error *err)
{
    image *m = context;
    m->last = 0;
    return write(context, name, off, data, bytes, form, err);
}

static void as_changes_frame(const uint8_t *data, size_t bytes)
{
    image m = {.byte = calloc(1, 140000)};
    lp_error err = {0};
    demand(m.byte != NULL);
    const lp_status status = lp_delta_get_frame(data, (int64_t)bytes, catalogue(), write_any, &m, &err);
    if (status != LP_OK)
        demand_error(status, &err);
    free(m.byte);
}

/* Two images of a tensor out of the input: what is written of their difference makes the one into the other. */
static void as_changed(const uint8_t *data, size_t bytes)
{
    const uint32_t name = bytes > 0 ? data[0] % 3 : 0;
    const lp_checkpoint_tensor *t = lp_checkpoint_at(catalogue(), name);
    const int elem = lp_change_elem(t->dtype);
    int64_t elements = t->bytes / elem < 2000 ? t->bytes / elem : 2000;
    uint8_t *was = calloc(1, (size_t)t->bytes), *is = calloc(1, (size_t)t->bytes),
            *out = malloc((size_t)lp_change_most(2000 * 8));
    demand(was != NULL && is != NULL && out != NULL);
    for (size_t i = 1; i + 1 < bytes; i += 2)
        is[((size_t)data[i] * 31 + i) % (size_t)(elements * elem)] = data[i + 1];
    const int64_t written = lp_change_put(name, 0, elem, elements, was, is, false, out);
    demand(written <= lp_change_most(elements * elem) && written % 8 == 0);
    if (written > 0) {
        image m = {.byte = was};
        int64_t used = 0;
        demand(lp_change_get(out, written, catalogue(), write, &m, &used, NULL) == LP_OK && used == written);
    }
    demand(memcmp(was, is, (size_t)t->bytes) == 0);
    free(was);
    free(is);
    free(out);
}

static void as_pieces(const uint8_t *data, size_t bytes)
{
    lp_pieces p;
    lp_error err = {0};
    lp_pieces_init(&p, NULL);
    const int64_t bucket = bytes > 0 ? 256 + 64 * (int64_t)data[0] : 256;
    lp_status status = bytes == 0 ? LP_OK : lp_pieces_get(&p, data + 1, (int64_t)bytes - 1, catalogue(), &err);
    if (status != LP_OK)
        demand_error(status, &err);
    const int64_t total = p.bytes;
    if (status == LP_OK && lp_pieces_cut(&p, bucket, &err) == LP_OK) {
        int64_t sum = 0, pieces = 0;
        for (int64_t i = 0; i < p.frame_count; i++) {
            demand(p.frame[i].bytes <= bucket && p.frame[i].first == pieces);
            sum += p.frame[i].bytes;
            pieces += p.frame[i].count;
        }
        demand(sum == total && pieces == p.count && p.bytes == total);
        for (int64_t i = 0; i < p.count; i++) {
            const lp_piece *x = &p.piece[i];
            const int64_t end = x->lo + (x->count - 1) * x->stride + x->run;
            demand(x->lo >= 0 && end <= lp_checkpoint_at(catalogue(), x->name)->bytes);
        }
    }
    lp_pieces_free(&p);
}

static void as_message(const uint8_t *data, size_t bytes)
{
    lp_wire w;
    lp_wire_head head;
    lp_wire_hello hello;
    bool is_broken = false;
    char name[128];
    lp_wire_init(&w, -1, LP_GATHER_MAX, NULL);
    w.in = malloc(bytes + 1);
    demand(w.in != NULL);
    if (bytes > 0)
        memcpy(w.in, data, bytes);
    w.in_bytes = (int64_t)bytes;
    w.in_capacity = (int64_t)bytes + 1;
    while (lp_wire_next(&w, &head, &is_broken)) {
        demand(head.bytes >= 0 && head.bytes + LP_WIRE_HEADER <= w.in_bytes);
        if (head.bytes >= LP_WIRE_HELLO_BYTES && lp_wire_get_hello(w.in + LP_WIRE_HEADER, &hello)) {
            demand(hello.rank < hello.size && hello.port > 0);
            lp_wire_member_name(&hello, name);
            for (const char *c = name; *c != '\0'; c++)
                demand((unsigned char)*c >= 0x20);
        }
        lp_wire_drop(&w, &head);
    }
    lp_wire_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    switch (data[0] % AS_COUNT) {
    case AS_FRAME:
        as_frame(data + 1, bytes - 1);
        break;
    case AS_CHANGES:
        as_changes(data + 1, bytes - 1);
        break;
    case AS_PIECES:
        as_pieces(data + 1, bytes - 1);
        break;
    case AS_MESSAGE:
        as_message(data + 1, bytes - 1);
        break;
    case AS_CHANGES_FRAME:
        as_changes_frame(data + 1, bytes - 1);
        break;
    default:
        as_changed(data + 1, bytes - 1);
        break;
    }
    return 0;
}
