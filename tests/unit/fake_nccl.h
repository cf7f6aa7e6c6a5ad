/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake NCCL (tests/unit/fake/fake_nccl.c) and its tests share: a stream of host memory. A simple one counts
 * the messages on it that have not met their other half yet. One that has `enqueue` does its work in order: the library
 * gives it an operation for each group of messages.
 */
#ifndef LOADPLAN_TEST_FAKE_NCCL_H
#define LOADPLAN_TEST_FAKE_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>

/* `step` is called when the stream has come to the operation, again and again until it returns true, by one thread. It
 * frees the operation then. */
typedef struct fake_op {
    bool (*step)(struct fake_op *op);
} fake_op;

typedef struct fake_stream {
    atomic_long waiting;
    void (*enqueue)(struct fake_stream *s, fake_op *op); /* NULL: a simple one */
} fake_stream;

/* Entry points of the fake beside NCCL's. The n-th call of any entry from now on fails, n = 0: none. */
typedef void (*fake_fail_at)(long n);
typedef long (*fake_calls)(void); /* so far */
typedef long (*fake_open)(void);  /* communicators that were neither aborted nor destroyed */
typedef long (*fake_ids)(void);   /* ids that were handed out */
/* Whether two ranks connect with their first message: until both have come to it, starting it is in progress. */
typedef void (*fake_connects)(bool yes);
typedef void (*fake_flip)(long n); /* the n-th message that is copied from now on arrives with a flipped bit */

#endif
