/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes. XXH3 can be run backwards, so anybody can make a million names whose hashes end alike; tables take a form of
 * it that mixes in 192 bytes which each process draws for itself.
 */
#include "traces/base.h"

#include <pthread.h>
#include <sys/random.h>
#include <time.h>
#include <xxhash.h>

static uint8_t secret[192]; /* 192: as many as XXH3 has itself */

static void draw_secret(void)
{
    size_t have = 0;
    while (have < sizeof secret) {
        const ssize_t got = getrandom(secret + have, sizeof secret - have, 0);
        if (got <= 0)
            break; /* a kernel without it, or a filter of system calls that refuses it */
        have += (size_t)got;
    }
    /* What nobody outside knows beforehand, if not what nobody could guess: where this process lies, and when. */
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t guess = (uint64_t)(uintptr_t)&now ^ (uint64_t)(uintptr_t)&draw_secret << 17 ^ (uint64_t)now.tv_nsec << 34;
    for (; have < sizeof secret; have++) {
        guess = XXH3_64bits_withSeed(&guess, sizeof guess, have);
        secret[have] = (uint8_t)guess;
    }
}

uint64_t lp_hash(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

uint64_t lp_table_hash(const void *data, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, draw_secret);
    return XXH3_64bits_withSecret(data, bytes, secret, sizeof secret);
}
