/* SPDX-License-Identifier: Apache-2.0 */
/* Marks inline functions that host C and CUDA device code compile from one source. */
#ifndef LOADPLAN_HOST_DEVICE_H
#define LOADPLAN_HOST_DEVICE_H

#ifdef __CUDACC__
#define LP_HOST_DEVICE __host__ __device__
#else
#define LP_HOST_DEVICE
#endif

#endif
