/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of tests and test tools: SplitMix64 (Steele, Lea and Flood, 2014). The state is the seed; who draws
 * prints it on a failure. */
#ifndef RANDOM_NUMBERS_H
#define RANDOM_NUMBERS_H

#include <stdint.h>
#include <stdlib.h>

/* A word that depends on every bit of x. */
static inline uint64_t random_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t random_next(uint64_t *state)
{
    const uint64_t word = random_mix(*state);
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return word;
}

/* 0 .. limit - 1 */
static inline int64_t random_below(uint64_t *state, int64_t limit)
{
    return (int64_t)(random_next(state) % (uint64_t)limit);
}

/* ---- which cases a test takes ---- */

/* The seed of the first case: LOADPLAN_TEST_SEED, as a failure prints it, or else this one. */
static inline uint64_t random_first_seed(uint64_t otherwise)
{
    const char *text = getenv("LOADPLAN_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* How many cases there are to be: LOADPLAN_TEST_ROUNDS, or else so many. */
static inline uint64_t random_rounds(uint64_t otherwise)
{
    const char *text = getenv("LOADPLAN_TEST_ROUNDS");
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* The same where a seed that is given means its one case. */
static inline uint64_t random_cases(uint64_t otherwise)
{
    return random_rounds(getenv("LOADPLAN_TEST_SEED") != NULL ? 1 : otherwise);
}

#endif
