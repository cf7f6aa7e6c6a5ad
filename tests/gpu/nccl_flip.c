/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL with a fault: stands in for libnccl.so.2, hands everything on to the real one, and writes over sixteen bytes of
 * what one message brought, on its stream, before anybody can have looked at it.
 *
 *   NCCL_FLIP_OF  path of the real library
 *   NCCL_FLIP_AT  number of the message, from 1
 */
#include "replayer/nccl_table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* NCCL's own headers declare what this exports */

static lp_nccl real;
static long received, flip_at;
static uint8_t *target; /* of the message, until it is on the stream */
static void *stream;
static int (*write_over)(unsigned long long device, unsigned char value, size_t bytes, void *stream);

static bool find(void *library, const char *name, void *entry, size_t bytes)
{
    void *symbol = library == NULL ? NULL : dlsym(library, name);
    if (symbol == NULL)
        fprintf(stderr, "nccl_flip: there is no %s\n", name);
    else
        memcpy(entry, &symbol, bytes);
    return symbol != NULL;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("NCCL_FLIP_OF"), *at = getenv("NCCL_FLIP_AT");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    bool is_whole = find(dlopen("libcuda.so.1", RTLD_NOW), "cuMemsetD8Async", &write_over, sizeof write_over);
#define FIND(name, result, parameters) is_whole = find(library, #name, &real.name, sizeof real.name) && is_whole;
    LP_NCCL_ENTRIES(FIND)
#undef FIND
    if (!is_whole)
        exit(2);
    flip_at = at == NULL ? 0 : strtol(at, NULL, 10);
}

/* The stream has the message: what is put on it now comes behind. */
static void flip(void)
{
    if (target != NULL && write_over((unsigned long long)(uintptr_t)target, 0x5a, 16, stream) != 0)
        fprintf(stderr, "nccl_flip: nothing was written\n");
    target = NULL;
}

__attribute__((visibility("default"))) int ncclGetVersion(int *version)
{
    return real.ncclGetVersion(version);
}

__attribute__((visibility("default"))) int ncclGetUniqueId(lp_nccl_id *id)
{
    return real.ncclGetUniqueId(id);
}

__attribute__((visibility("default"))) int ncclCommInitRankConfig(void **comm, int size, lp_nccl_id id, int rank,
                                                                  lp_nccl_config *config)
{
    return real.ncclCommInitRankConfig(comm, size, id, rank, config);
}

__attribute__((visibility("default"))) int ncclCommGetAsyncError(void *comm, int *result)
{
    const int code = real.ncclCommGetAsyncError(comm, result);
    if (code == LP_NCCL_SUCCESS && *result == LP_NCCL_SUCCESS)
        flip();
    return code;
}

__attribute__((visibility("default"))) int ncclCommAbort(void *comm)
{
    return real.ncclCommAbort(comm);
}

__attribute__((visibility("default"))) const char *ncclGetErrorString(int result)
{
    return real.ncclGetErrorString(result);
}

__attribute__((visibility("default"))) int ncclGroupStart(void)
{
    return real.ncclGroupStart();
}

__attribute__((visibility("default"))) int ncclGroupEnd(void)
{
    const int code = real.ncclGroupEnd();
    if (code == LP_NCCL_SUCCESS)
        flip();
    return code;
}

__attribute__((visibility("default"))) int ncclSend(const void *data, size_t count, int type, int peer, void *comm,
                                                    void *on)
{
    return real.ncclSend(data, count, type, peer, comm, on);
}

__attribute__((visibility("default"))) int ncclRecv(void *data, size_t count, int type, int peer, void *comm, void *on)
{
    if (++received == flip_at) {
        target = (uint8_t *)data + count / 32 * 16;
        stream = on;
    }
    return real.ncclRecv(data, count, type, peer, comm, on);
}
