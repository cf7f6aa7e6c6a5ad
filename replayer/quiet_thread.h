/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library. Private to the replayer. */
#ifndef LOADPLAN_QUIET_THREAD_H
#define LOADPLAN_QUIET_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts a thread that takes no signals: these are the application's, and it says which of its threads waits for them.
 * Returns what pthread_create returns. */
static inline int lp_quiet_thread(pthread_t *thread, void *(*run)(void *context), void *context)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int code = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code;
}

#endif
