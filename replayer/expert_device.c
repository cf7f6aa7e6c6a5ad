/* SPDX-License-Identifier: Apache-2.0 */
/* Devices for moving experts, in builds without any. */
#include "replayer/expert_device.h"

#ifndef LOADPLAN_HAVE_CUDA

lp_status lp_expert_device_open(lp_expert_device *out, const char *name, lp_error *err)
{
    (void)out;
    return lp_fail(err, LP_E_DEVICE, "cannot use device '%s': this build has only cpu", name);
}

void lp_expert_device_close(lp_expert_device *device)
{
    (void)device;
}

#endif
