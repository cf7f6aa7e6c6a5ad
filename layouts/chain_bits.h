/* SPDX-License-Identifier: Apache-2.0 */
/* Square matrices of bits, where adding is an exclusive or: what a swizzle makes of the bits of a place. */
#ifndef LOADPLAN_CHAIN_BITS_H
#define LOADPLAN_CHAIN_BITS_H

#include <stdint.h>

enum { LP_BITS_MOST = 64 };

/* Row i of a matrix has bit j where input j is exclusive-or'ed into output i. Makes `inverse`, and `row` the identity.
 * Returns -1, or an input that cannot be told from the outputs; then both are spoilt. */
int32_t lp_bits_invert(int32_t count, uint64_t *row, uint64_t *inverse);

/* Gives each row a bit of its own among those that it has, of[i] for row i: rows of few bits choose first. Every matrix
 * that can be inverted has such bits. Returns -1, or a row that is left without. */
int32_t lp_bits_match(int32_t count, const uint64_t *row, int32_t *of);

#endif
