/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the control connections: a header of fixed size, then a body whose size it states. */
#include "replayer/transport_wire.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAGIC = 0x3150434c /* "LCP1" */, READ_STEP = 1 << 16, KEPT_BYTES = 1 << 20 };

void lp_wire_put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

uint32_t lp_wire_get_u32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

void lp_wire_put_i64(uint8_t *out, int64_t value)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)((uint64_t)value >> (8 * i));
}

int64_t lp_wire_get_i64(const uint8_t *in)
{
    return (int64_t)((uint64_t)lp_wire_get_u32(in) | (uint64_t)lp_wire_get_u32(in + 4) << 32);
}

void lp_wire_put_head(uint8_t out[LP_WIRE_HEADER], const lp_wire_head *head)
{
    lp_wire_put_u32(out, MAGIC);
    lp_wire_put_u32(out + 4, head->type);
    lp_wire_put_u32(out + 8, head->round);
    lp_wire_put_u32(out + 12, (uint32_t)head->argument);
    lp_wire_put_i64(out + 16, head->bytes);
}

bool lp_wire_get_head(const uint8_t in[LP_WIRE_HEADER], lp_wire_head *head)
{
    head->type = lp_wire_get_u32(in + 4);
    head->round = lp_wire_get_u32(in + 8);
    head->argument = (int32_t)lp_wire_get_u32(in + 12);
    head->bytes = lp_wire_get_i64(in + 16);
    return lp_wire_get_u32(in) == MAGIC && head->bytes >= 0;
}

void lp_wire_put_hello(uint8_t out[LP_WIRE_HELLO_BYTES], const lp_wire_hello *hello)
{
    lp_wire_put_u32(out, (hello->is_sender ? 1u : 0u) | (hello->is_alone ? 2u : 0u));
    lp_wire_put_u32(out + 4, (uint32_t)hello->rank);
    lp_wire_put_u32(out + 8, (uint32_t)hello->size);
    lp_wire_put_u32(out + 12, (uint32_t)hello->port);
    memcpy(out + 16, hello->group, LP_WIRE_NAME);
}

bool lp_wire_get_hello(const uint8_t in[LP_WIRE_HELLO_BYTES], lp_wire_hello *hello)
{
    const uint32_t flags = lp_wire_get_u32(in);
    hello->is_sender = (flags & 1) != 0;
    hello->is_alone = (flags & 2) != 0;
    hello->rank = (int32_t)lp_wire_get_u32(in + 4);
    hello->size = (int32_t)lp_wire_get_u32(in + 8);
    hello->port = (int32_t)lp_wire_get_u32(in + 12);
    memcpy(hello->group, in + 16, LP_WIRE_NAME);
    hello->group[LP_WIRE_NAME - 1] = '\0';
    return flags < 4 && hello->rank >= 0 && hello->rank < hello->size && hello->port > 0 && hello->port < 65536;
}

void lp_wire_member_name(const lp_wire_hello *hello, char out[128])
{
    char group[LP_WIRE_NAME];
    lp_sanitise(group, sizeof group, hello->group, strlen(hello->group));
    if (hello->is_alone)
        snprintf(out, 128, "rank %d", hello->rank);
    else if (hello->is_sender)
        snprintf(out, 128, "sender %d", hello->rank);
    else
        snprintf(out, 128, "receiver %d of '%s'", hello->rank, group);
}

/* ---- connections ---- */

void lp_wire_init(lp_wire *w, int fd, int64_t limit, const lp_alloc *alloc)
{
    *w = (lp_wire){.alloc = alloc, .fd = fd, .limit = limit};
}

void lp_wire_close(lp_wire *w)
{
    if (w->fd >= 0)
        close(w->fd);
    lp_release(w->alloc, w->in);
    lp_release(w->alloc, w->out);
    *w = (lp_wire){.alloc = w->alloc, .fd = -1};
}

static bool make_room(const lp_alloc *alloc, uint8_t **data, int64_t *capacity, int64_t bytes)
{
    void *items = *data;
    if (!lp_grow(alloc, &items, capacity, bytes, 1))
        return false;
    *data = items;
    return true;
}

bool lp_wire_put(lp_wire *w, const lp_wire_head *head, const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    if (w->fd < 0)
        return true; /* nobody is there to read it */
    lp_wire_head h = *head;
    h.bytes = a_bytes + b_bytes;
    if (!make_room(w->alloc, &w->out, &w->out_capacity, w->out_bytes + LP_WIRE_HEADER + h.bytes))
        return false;
    lp_wire_put_head(w->out + w->out_bytes, &h);
    w->out_bytes += LP_WIRE_HEADER;
    if (a_bytes > 0)
        memcpy(w->out + w->out_bytes, a, (size_t)a_bytes);
    w->out_bytes += a_bytes;
    if (b_bytes > 0)
        memcpy(w->out + w->out_bytes, b, (size_t)b_bytes);
    w->out_bytes += b_bytes;
    return true;
}

bool lp_wire_flush(lp_wire *w)
{
    while (w->fd >= 0 && w->out_sent < w->out_bytes) {
        const ssize_t n = send(w->fd, w->out + w->out_sent, (size_t)(w->out_bytes - w->out_sent), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        w->out_sent += n;
    }
    w->out_bytes = w->out_sent = 0;
    if (w->out_capacity > KEPT_BYTES) { /* what all ranks said is large, and a meeting point has many connections */
        lp_release(w->alloc, w->out);
        w->out = NULL;
        w->out_capacity = 0;
    }
    return true;
}

bool lp_wire_fill(lp_wire *w)
{
    /* No more than one message beyond what is looked at: the rest waits in the socket. */
    while (w->in_bytes <= w->limit + LP_WIRE_HEADER) {
        if (!make_room(w->alloc, &w->in, &w->in_capacity, w->in_bytes + READ_STEP))
            return false;
        const ssize_t n = recv(w->fd, w->in + w->in_bytes, (size_t)(w->in_capacity - w->in_bytes), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0)
            return false;
        w->in_bytes += n;
    }
    return true;
}

bool lp_wire_next(lp_wire *w, lp_wire_head *head, bool *broken)
{
    *broken = false;
    if (w->in_bytes < LP_WIRE_HEADER)
        return false;
    *broken = !lp_wire_get_head(w->in, head) || head->bytes > w->limit;
    return !*broken && w->in_bytes - LP_WIRE_HEADER >= head->bytes;
}

void lp_wire_drop(lp_wire *w, const lp_wire_head *head)
{
    const int64_t bytes = LP_WIRE_HEADER + head->bytes;
    memmove(w->in, w->in + bytes, (size_t)(w->in_bytes - bytes));
    w->in_bytes -= bytes;
}
