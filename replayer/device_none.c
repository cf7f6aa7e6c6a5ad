/* SPDX-License-Identifier: Apache-2.0 */
/* Builds without CUDA: there is no device to bind to. */
#include "replayer/device_session.h"

#ifndef LOADPLAN_HAVE_CUDA

lp_status lp_cuda_calls(lp_device_calls *out, const char *name, bool captures, lp_error *err)
{
    (void)out;
    (void)captures;
    lp_fail(err, LP_E_DEVICE, "cannot use device '%s': this build has only cpu", name);
    lp_hint(err, "build with -DLOADPLAN_CUDA=on, or bind to host memory");
    return LP_E_DEVICE;
}

void lp_cuda_calls_close(lp_device_calls *calls)
{
    (void)calls;
}

#endif
