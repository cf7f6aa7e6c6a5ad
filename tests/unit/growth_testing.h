/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of how work grows with its size. They count the time of the processor that this process was given, not that of
 * the clock, and one good measurement of several is enough: other work on the machine only ever makes it worse. */
#ifndef LOADPLAN_GROWTH_TESTING_H
#define LOADPLAN_GROWTH_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

static inline double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* seconds_for 10 * n things takes less than 40 times as long as for n: the square would be a hundred times. */
static inline void assert_grows_linearly(double (*seconds_for)(int n), int n)
{
    for (int attempt = 0; attempt < 5; attempt++) {
        const double small = seconds_for(n), large = seconds_for(10 * n);
        print_message("%d: %.3f s, %d: %.3f s\n", n, small, 10 * n, large);
        if (large < 40 * small)
            return;
    }
    fail_msg("the time grows too fast");
}

#endif
