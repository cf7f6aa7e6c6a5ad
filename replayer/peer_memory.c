/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that all ranks reach. Ranks say what they have in one gather, open what others have, and say in a second one
 * whether they could; a rank that fails in between fails the round, so that nobody waits for it. Ranks of one process
 * take each other's addresses as they are, since a handle cannot be opened by the process that made it.
 */
#include "replayer/peer_memory.h"

#include "replayer/transport_wire.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

enum { MAGIC = 0x4d50504c /* "LPPM" */, TOKEN = 16 };
enum { AT_PID = 4, AT_BYTES = 8, AT_ADDRESS = 16, AT_OFFSET = 24, AT_PROCESS = 32, AT_DEVICE = AT_PROCESS + TOKEN };
enum { AT_HANDLE = AT_DEVICE + LP_IPC_DEVICE_BYTES, FIXED = AT_HANDLE + LP_IPC_HANDLE_BYTES };

struct lp_peer_memory {
    const lp_alloc *alloc;
    lp_transport transport;
    lp_ipc_device device, owned; /* owned: opened here, to be closed */
    lp_round round;
    int64_t bytes;
    void *own;
    bool has_joined, shares_device;
    void **at;      /* [world] */
    void **mapping; /* [world] what take gave, NULL: nothing */
};

/* ---- which process ---- */

static uint8_t process_token[TOKEN];

static void make_token(void)
{
    if (getrandom(process_token, TOKEN, 0) != TOKEN)
        lp_wire_put_i64(process_token, lp_clock_ns()); /* never on a system that has started */
}

/* Its number and random bytes: a number alone is only unique on its host, bytes alone come with a fork. */
static void name_process(uint8_t *row)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_token);
    lp_wire_put_u32(row + AT_PID, (uint32_t)getpid());
    memcpy(row + AT_PROCESS, process_token, TOKEN);
}

static bool is_this_process(const uint8_t *row)
{
    uint8_t own[FIXED];
    name_process(own);
    return memcmp(row + AT_PID, own + AT_PID, 4) == 0 && memcmp(row + AT_PROCESS, own + AT_PROCESS, TOKEN) == 0;
}

/* ---- what a rank says ---- */

static lp_status describe(lp_peer_memory *m, const char *terms, uint8_t **out, int64_t *bytes, lp_error *err)
{
    const size_t terms_bytes = strlen(terms) + 1;
    void *base = NULL;
    int64_t base_bytes = 0;
    uint8_t *const row = lp_allocate_zero(m->alloc, FIXED + terms_bytes);
    if (row == NULL)
        return lp_fail_memory(err);
    const int code = m->device.give(m->device.context, m->own, row + AT_HANDLE, &base, &base_bytes);
    if (code != 0) {
        lp_release(m->alloc, row);
        return lp_ipc_device_check(&m->device, code, "share memory of the device", err);
    }
    lp_wire_put_u32(row, MAGIC);
    lp_wire_put_i64(row + AT_BYTES, m->bytes);
    lp_wire_put_i64(row + AT_ADDRESS, (int64_t)(uintptr_t)m->own);
    lp_wire_put_i64(row + AT_OFFSET, (char *)m->own - (char *)base);
    name_process(row);
    memcpy(row + AT_DEVICE, m->device.name, LP_IPC_DEVICE_BYTES);
    memcpy(row + FIXED, terms, terms_bytes);
    *out = row;
    *bytes = (int64_t)(FIXED + terms_bytes);
    return LP_OK;
}

/* From what all have said alone, so that all ranks come to the same. */
static lp_status compare(const lp_peer_memory *m, const lp_block *all, lp_error *err)
{
    for (int32_t i = 0; i < m->round.world; i++) {
        const uint8_t *const row = all[i].data;
        if (all[i].bytes <= FIXED || all[i].bytes > FIXED + LP_PEER_TERMS_MAX + 1 || lp_wire_get_u32(row) != MAGIC ||
            row[all[i].bytes - 1] != '\0')
            return lp_fail(err, LP_E_MISMATCH, "rank %d shares no memory", (int)i);
        const uint8_t *const first = all[0].data;
        if (all[i].bytes != all[0].bytes || memcmp(row + FIXED, first + FIXED, (size_t)(all[i].bytes - FIXED)) != 0)
            return lp_fail(err, LP_E_MISMATCH, "rank %d has '%s', rank 0 has '%s'", (int)i, (const char *)row + FIXED,
                           (const char *)first + FIXED);
        const int64_t bytes = lp_wire_get_i64(row + AT_BYTES), wanted = lp_wire_get_i64(first + AT_BYTES);
        if (bytes != wanted)
            return lp_fail(err, LP_E_MISMATCH, "rank %d shares %lld bytes, rank 0 %lld", (int)i, (long long)bytes,
                           (long long)wanted);
    }
    return LP_OK;
}

/* ---- what a rank opens ---- */

static lp_status open_peer(lp_peer_memory *m, int32_t rank, const uint8_t *row, lp_error *err)
{
    char verb[96];
    snprintf(verb, sizeof verb, "reach the memory of rank %d", (int)rank);
    if (memcmp(row + AT_DEVICE, m->device.name, LP_IPC_DEVICE_BYTES) == 0)
        m->shares_device = true;
    if (is_this_process(row)) {
        m->at[rank] = (void *)(uintptr_t)lp_wire_get_i64(row + AT_ADDRESS);
        const int code = m->device.reach != NULL ? m->device.reach(m->device.context, m->at[rank]) : 0;
        return lp_ipc_device_check(&m->device, code, verb, err);
    }
    LP_TRY(lp_ipc_device_check(&m->device, m->device.take(m->device.context, row + AT_HANDLE, &m->mapping[rank]), verb,
                               err));
    m->at[rank] = (char *)m->mapping[rank] + lp_wire_get_i64(row + AT_OFFSET);
    return LP_OK;
}

static lp_status open_peers(lp_peer_memory *m, const lp_block *all, lp_error *err)
{
    m->at = lp_allocate_zero(m->alloc, (size_t)m->round.world * sizeof *m->at);
    m->mapping = lp_allocate_zero(m->alloc, (size_t)m->round.world * sizeof *m->mapping);
    if (m->at == NULL || m->mapping == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < m->round.world; i++)
        if (i != m->round.rank)
            LP_TRY(open_peer(m, i, all[i].data, err));
    m->at[m->round.rank] = m->own;
    return LP_OK;
}

static lp_status share(lp_peer_memory *m, const char *terms, lp_error *err)
{
    const lp_block *all = NULL;
    uint8_t *row = NULL;
    int64_t bytes = 0;
    LP_TRY(lp_ipc_device_check(&m->device, m->device.enter(m->device.context), "use the device", err));
    LP_TRY(lp_ipc_device_check(&m->device, m->device.allocate(m->device.context, m->bytes, &m->own),
                               "allocate memory for peers", err));
    LP_TRY(describe(m, terms, &row, &bytes, err));
    const lp_status status = m->transport.gather(m->transport.context, row, bytes, &all, err);
    lp_release(m->alloc, row);
    LP_TRY(status);
    LP_TRY(compare(m, all, err));
    LP_TRY(open_peers(m, all, err));
    return lp_peer_memory_meet(m, err);
}

lp_status lp_peer_memory_meet(lp_peer_memory *m, lp_error *err)
{
    const lp_block *all = NULL;
    return m->transport.gather(m->transport.context, NULL, 0, &all, err);
}

/* ---- open and close ---- */

lp_status lp_peer_memory_open_on(lp_peer_memory **out, const lp_transport *transport, const lp_ipc_device *device,
                                 int64_t bytes, const char *terms, const lp_alloc *alloc, lp_error *err)
{
    lp_error why = {0};
    if (bytes < 1)
        return lp_fail(err, LP_E_ARGUMENT, "memory for peers of %lld bytes", (long long)bytes);
    if (strlen(terms) > LP_PEER_TERMS_MAX)
        return lp_fail(err, LP_E_ARGUMENT, "terms of more than %d bytes", LP_PEER_TERMS_MAX);
    lp_peer_memory *const m = lp_allocate_zero(alloc, sizeof *m);
    if (m == NULL)
        return lp_fail_memory(err);
    m->alloc = alloc;
    m->transport = *transport;
    m->device = *device;
    m->bytes = bytes;
    lp_status status = transport->join(transport->context, &m->round, &why);
    m->has_joined = status == LP_OK;
    if (status == LP_OK)
        status = share(m, terms, &why);
    if (status == LP_OK) {
        *out = m;
        return LP_OK;
    }
    if (m->has_joined && status != LP_E_MISMATCH) /* of that all know */
        transport->fail(transport->context, why.text);
    m->has_joined = false; /* the round is over: nobody to meet */
    lp_peer_memory_close(m);
    return lp_fail(err, status, "%s", why.text);
}

lp_status lp_peer_memory_open(lp_peer_memory **out, const lp_transport *transport, const char *device, int64_t bytes,
                              const char *terms, const lp_platform *platform, lp_error *err)
{
    const lp_alloc *const alloc = platform != NULL ? platform->alloc : NULL;
    lp_ipc_device table = {0};
    LP_TRY(lp_ipc_device_open(&table, device, alloc, err));
    const lp_status status = lp_peer_memory_open_on(out, transport, &table, bytes, terms, alloc, err);
    if (status != LP_OK)
        lp_ipc_device_close(&table, alloc);
    else
        (*out)->owned = table;
    return status;
}

void lp_peer_memory_get(const lp_peer_memory *m, lp_peer_memory_info *out)
{
    *out = (lp_peer_memory_info){m->round.rank, m->round.world, m->bytes, m->shares_device, m->at};
}

void lp_peer_memory_close(lp_peer_memory *m)
{
    if (m == NULL)
        return;
    for (int32_t i = 0; m->mapping != NULL && i < m->round.world; i++)
        if (m->mapping[i] != NULL)
            m->device.put_back(m->device.context, m->mapping[i]);
    lp_error ignored = {0};
    if (m->has_joined)
        (void)lp_peer_memory_meet(m, &ignored); /* a peer that is gone has nothing open */
    if (m->own != NULL)
        m->device.release(m->device.context, m->own);
    const lp_alloc *const alloc = m->alloc;
    if (m->owned.context != NULL)
        lp_ipc_device_close(&m->owned, alloc);
    lp_release(alloc, m->at);
    lp_release(alloc, m->mapping);
    lp_release(alloc, m);
}
