/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of shared memory, what does not depend on which. */
#include "replayer/ipc_device.h"

lp_status lp_ipc_device_check(const lp_ipc_device *device, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, device->error_text(device->context, code));
}

#ifndef LOADPLAN_HAVE_CUDA

lp_status lp_ipc_device_open(lp_ipc_device *out, const char *name, const lp_alloc *alloc, lp_error *err)
{
    (void)out;
    (void)alloc;
    return lp_fail(err, LP_E_DEVICE, "cannot use device '%s': this build has only cpu", name);
}

void lp_ipc_device_close(lp_ipc_device *device, const lp_alloc *alloc)
{
    (void)device;
    (void)alloc;
}

#endif
