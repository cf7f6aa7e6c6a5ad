/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA memory that several processes use, by the handles of cudaIpcGetMemHandle. */
extern "C" { /* headers of C rooms */
#include "replayer/ipc_device.h"
}
#include "replayer/device_cuda.cuh"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef CUresult (*address_range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);

typedef struct cuda_sharing {
    int ordinal;
    address_range range;
} cuda_sharing;

static int enter(void *context)
{
    return lp_cuda_cleared(cudaSetDevice(static_cast<cuda_sharing *>(context)->ordinal));
}

/* A handle stands for a whole allocation, so the address is looked up in it first. */
static int give(void *context, void *memory, uint8_t handle[LP_IPC_HANDLE_BYTES], void **base, int64_t *bytes)
{
    cudaIpcMemHandle_t made;
    CUdeviceptr first = 0;
    size_t size = 0;
    static_assert(sizeof made == LP_IPC_HANDLE_BYTES, "the protocol has room for one handle");
    const CUresult found =
        static_cast<cuda_sharing *>(context)->range(&first, &size, reinterpret_cast<CUdeviceptr>(memory));
    if (found != CUDA_SUCCESS)
        return static_cast<int>(cudaErrorInvalidDevicePointer);
    const int code = lp_cuda_cleared(cudaIpcGetMemHandle(&made, reinterpret_cast<void *>(first)));
    if (code != 0)
        return code;
    memcpy(handle, &made, sizeof made);
    *base = reinterpret_cast<void *>(first);
    *bytes = static_cast<int64_t>(size);
    return 0;
}

static int take(void *, const uint8_t handle[LP_IPC_HANDLE_BYTES], void **base)
{
    cudaIpcMemHandle_t given;
    memcpy(&given, handle, sizeof given);
    return lp_cuda_cleared(cudaIpcOpenMemHandle(base, given, cudaIpcMemLazyEnablePeerAccess));
}

static void put_back(void *, void *base)
{
    lp_cuda_cleared(cudaIpcCloseMemHandle(base));
}

static int reach(void *context, void *memory)
{
    cudaPointerAttributes attributes;
    int code = lp_cuda_cleared(cudaPointerGetAttributes(&attributes, memory));
    if (code != 0 || attributes.device == static_cast<cuda_sharing *>(context)->ordinal)
        return code;
    code = lp_cuda_cleared(cudaDeviceEnablePeerAccess(attributes.device, 0));
    return code == static_cast<int>(cudaErrorPeerAccessAlreadyEnabled) ? 0 : code;
}

/* An ordinal depends on what each process may see; the UUID does not. */
static void name_device(char out[LP_IPC_DEVICE_BYTES], const cudaUUID_t &uuid)
{
    size_t used = static_cast<size_t>(snprintf(out, LP_IPC_DEVICE_BYTES, "GPU-"));
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        used += static_cast<size_t>(snprintf(out + used, LP_IPC_DEVICE_BYTES - used, "%s%02x", dash,
                                             static_cast<unsigned char>(uuid.bytes[i])));
    }
}

static int find_device(int ordinal, char name[LP_IPC_DEVICE_BYTES], address_range *range)
{
    cudaDeviceProp properties;
    cudaDriverEntryPointQueryResult found;
    void *entry = nullptr;
    int code = lp_cuda_cleared(cudaGetDeviceProperties(&properties, ordinal));
    if (code == 0)
        code = lp_cuda_cleared(cudaSetDevice(ordinal));
    if (code == 0)
        code = lp_cuda_cleared(
            cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000, cudaEnableDefault, &found));
    if (code == 0 && (found != cudaDriverEntryPointSuccess || entry == nullptr))
        code = static_cast<int>(cudaErrorNotSupported);
    if (code != 0)
        return code;
    name_device(name, properties.uuid);
    *range = reinterpret_cast<address_range>(entry);
    return 0;
}

extern "C" lp_status lp_ipc_device_open(lp_ipc_device *out, const char *name, const lp_alloc *alloc, lp_error *err)
{
    int ordinal = 0;
    if (!lp_cuda_ordinal(name, &ordinal))
        return lp_fail(err, LP_E_ARGUMENT, "there is no device '%s': name cpu or cuda:N", name);
    *out = {};
    address_range range = nullptr;
    const int code = find_device(ordinal, out->name, &range);
    if (code != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot use device '%s': %s", name, lp_cuda_text(code));
    cuda_sharing *context = static_cast<cuda_sharing *>(lp_allocate(alloc, sizeof *context));
    if (context == nullptr)
        return lp_fail_memory(err);
    *context = {ordinal, range};
    out->context = context;
    out->error_text = lp_cuda_error_text;
    out->enter = enter;
    out->allocate = lp_cuda_allocate;
    out->release = lp_cuda_release;
    out->give = give;
    out->take = take;
    out->put_back = put_back;
    out->reach = reach;
    return LP_OK;
}

extern "C" void lp_ipc_device_close(lp_ipc_device *device, const lp_alloc *alloc)
{
    lp_release(alloc, device->context);
    *device = {};
}
