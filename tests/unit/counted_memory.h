/* SPDX-License-Identifier: Apache-2.0 */
/* Allocators for tests with several threads: one that counts bytes, and one that has so many blocks and no more. */
#ifndef LOADPLAN_COUNTED_MEMORY_H
#define LOADPLAN_COUNTED_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- bytes ---- */

typedef struct meter {
    pthread_mutex_t lock;
    int64_t now, peak;
} meter;

/* Sizes stand before the blocks. */
static inline void *metered_resize(void *context, void *old, size_t bytes)
{
    meter *m = context;
    size_t *head = old == NULL ? NULL : (size_t *)old - 2;
    const int64_t before = head == NULL ? 0 : (int64_t)head[0];
    if (bytes == 0) {
        free(head);
        head = NULL;
    } else {
        head = realloc(head, bytes + 2 * sizeof *head);
        if (head == NULL)
            abort();
        head[0] = bytes;
    }
    pthread_mutex_lock(&m->lock);
    m->now += (int64_t)bytes - before;
    m->peak = m->now > m->peak ? m->now : m->peak;
    pthread_mutex_unlock(&m->lock);
    return head == NULL ? NULL : head + 2;
}

/* ---- blocks ---- */

typedef struct scarce {
    pthread_mutex_t lock;
    long left; /* blocks; below 0: no limit */
    long blocks;
} scarce;

static inline void *scarce_resize(void *context, void *old, size_t bytes)
{
    scarce *s = context;
    pthread_mutex_lock(&s->lock);
    const bool fails = bytes > 0 && s->left == 0;
    if (bytes > 0 && s->left > 0)
        s->left--;
    if (!fails)
        s->blocks += (old == NULL && bytes > 0) - (old != NULL && bytes == 0);
    pthread_mutex_unlock(&s->lock);
    if (fails)
        return NULL;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, bytes);
}

#endif
