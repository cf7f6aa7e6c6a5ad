/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake NCCL (tests/unit/fake/fake_nccl.c) and its test share: a stream of host memory, which counts the
 * messages on it that have not met their other half yet.
 */
#ifndef LOADPLAN_TEST_FAKE_NCCL_H
#define LOADPLAN_TEST_FAKE_NCCL_H

#include <stdatomic.h>

typedef struct fake_stream {
    atomic_long waiting;
} fake_stream;

/* Entry points of the fake beside NCCL's. The n-th call of any entry from now on fails, n = 0: none. */
typedef void (*fake_fail_at)(long n);
typedef long (*fake_calls)(void); /* so far */
typedef long (*fake_open)(void);  /* communicators that were neither aborted nor destroyed */

#endif
