#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chains of public kernels against their orders composed step by step in numpy.

Every order below is written from the kernel's side, the way that the project named by `loadplan layout ID` states it:
lists of indices, tile formulas, shifts into words. Nothing is shared with the chains. Each is run on 0, 1, 2, ...; the
result must be what `--identify` says that it is, random data moved by `--apply` must land there, padding must be zeros,
and `--inverse` must give the data back. Results that are no permutation of whole units would fail to identify.
"""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not there")
    sys.exit(77)
import chain_orders_more
import chain_orders_other

SEED = 20261130
PADDING = -1


def pad(x, *multiples):
    """Rounds the dimensions up; what is added is no source element."""
    return np.pad(x, [(0, -n % m) for n, m in zip(x.shape, multiples)], constant_values=PADDING)


def place(x, multiples, formula, size=None):
    """Element [i, j, ...] of the padded x goes to formula(i, j, ...)."""
    x = pad(x, *multiples)
    out = np.full(x.size if size is None else size, PADDING - 1)
    out[formula(*np.indices(x.shape), x.shape)] = x
    return out


def gather_rows(x, order):
    """In every len(order) rows row r is what stood at order[r]."""
    n = len(order)
    return np.concatenate([x[b:b + n][order] for b in range(0, len(x), n)])


def gather_columns(x, order):
    return gather_rows(x.T, order).T


# ---- scales ----

def tiles_128x4(x, columns=4):
    def offset(i, j, shape):
        return (i // 128) * 128 * shape[1] + (j // 4) * 512 + (i % 32) * 16 + (i % 128 // 32) * 4 + j % 4
    return place(x, (128, columns), offset)


def tiles_8x4(x):
    return place(x, (8, 4), lambda i, j, s: (i // 8 * (s[1] // 4) + j // 4) * 32 + i % 8 * 4 + j % 4)


def hopper_scale(x, warps):
    x = pad(x, 32 * warps, 2)
    m, k = x.shape
    y = x.reshape(m // (32 * warps), 2, warps, 2, 8, k // 2, 2)
    return y.transpose(0, 2, 5, 1, 4, 6, 3).ravel()


def by_column(x, rows):
    return pad(x, rows, 1).T.ravel()


def words_by_column(x, slots=False):
    x = pad(x, 128 if slots else 4, 4)
    words = x.reshape(len(x), -1, 4)
    if slots:
        words = np.concatenate([b.reshape(4, 32, *b.shape[1:]).swapaxes(0, 1).reshape(b.shape)
                                for b in np.split(words, len(words) // 128)])
    return words.transpose(1, 0, 2).ravel()


def aiter_scale(x):
    x = pad(x, 256, 8)
    m, n = x.shape
    return x.reshape(m // 32, 2, 16, n // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1).ravel()


def aiter_scale_gate_up(x):
    half = len(x) // 2

    def offset(i, j, shape):
        block, lane = i % half // 16, i % half % 16
        return block * (shape[1] // 8) * 256 + j // 8 * 256 + j % 4 * 64 + lane * 4 + j % 8 // 4 * 2 + i // half
    return place(x, (1, 1), offset)


def trtllm_scale(rows):
    """Rows shuffled first, as for the weights, then the tiles."""
    return lambda x: tiles_128x4(rows(x))


# ---- shared memory ----

def swizzle(x, width, bits):
    """The lowest `bits` of the chunk's number, exclusive-or'ed with the bits of the address from 128 on."""
    out = np.empty(x.size, x.dtype)
    for i, j in np.ndindex(x.shape):
        address = j // width * width * len(x) + i * width + j % width
        out[address ^ (address >> 3 & ((1 << bits) - 1) << 4)] = x[i, j]
    return out


# ---- matrix cores of AMD ----

def aiter_weight(x, columns, lane):
    n, k = x.shape
    return x.reshape(n // 16, 16, k // columns, columns // lane, lane).transpose(0, 2, 3, 1, 4).ravel()


def hipblaslt(x, lane):
    """Tiles of 16 'columns' (rows here) and 4 * lane 'rows', as the manual has the offset in a tile."""
    def offset(col, row, shape):
        tile = col // 16 * (shape[1] // (4 * lane)) + row // (4 * lane)
        row = row % (4 * lane)
        return tile * 64 * lane + row % lane + lane * (col % 16) + row // lane * 16 * lane
    return place(x, (1, 1), offset)


def amd_gate_up(x):
    gate, up = np.split(x, 2)
    return aiter_weight(interleave(gate, up, 16), 64, 16)


# ---- rows ----

def interleave(gate, up, rows):
    parts = [half[b:b + rows] for b in range(0, len(gate), rows) for half in (gate, up)]
    return np.concatenate(parts)


def gate_up(rows):
    return lambda x: interleave(*np.split(x, 2), rows)


ROWS_16 = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
ROWS_32 = [s // 4 + s % 4 * 8 for s in range(32)]


def scatter_rows(x, to):
    out = np.empty_like(x)
    for row in range(len(x)):
        out[row // len(to) * len(to) + to[row % len(to)]] = x[row]
    return out


def block_major_k(x):
    return np.concatenate([x[:, b:b + 128].ravel() for b in range(0, x.shape[1], 128)])


def rope_halves(x, heads):
    return np.concatenate([np.concatenate([h[0::2], h[1::2]]) for h in np.split(x, heads)])


def rope_pairs(x, heads):
    out = []
    for h in np.split(x, heads):
        first, second = np.split(h, 2)
        out += [row for pair in zip(first, second) for row in pair]
    return np.array(out)


def qkv_groups(x, heads, width):
    """Rows of all query heads, all key heads, all value heads; `heads` queries for each key."""
    groups = len(x) // ((heads + 2) * width)
    query, key, value = np.split(x, [groups * heads * width, groups * (heads + 1) * width])
    return np.concatenate([part[g * rows:(g + 1) * rows] for g in range(groups)
                           for part, rows in ((query, heads * width), (key, width), (value, width))])


def from_groups(x, *widths):
    ends = np.cumsum(widths)
    return np.concatenate([x[:, end - width:end].reshape(-1, x.shape[2]) for end, width in zip(ends, widths)])


def paged_key(x):
    b, t, h, d = x.shape
    out = np.empty((b, h, d // 8, t, 8), x.dtype)
    for i in np.ndindex(x.shape):
        out[i[0], i[2], i[3] // 8, i[1], i[3] % 8] = x[i]
    return out


# ---- words of codes: the first axis that is packed becomes the place in the word ----

def pack_rows(x, per_word):
    """Codes of a column, `per_word` of them in a word."""
    return np.array([[x[w * per_word:(w + 1) * per_word, n] for n in range(x.shape[1])]
                     for w in range(len(x) // per_word)])


EVEN_FIRST = [0, 2, 4, 6, 1, 3, 5, 7]


def marlin_perm(bits):
    perm = []
    for lane in range(32):
        one = []
        for block in (0, 1):
            for row in (2 * (lane % 4), 2 * (lane % 4) + 1, 2 * (lane % 4 + 4), 2 * (lane % 4 + 4) + 1):
                one.append(16 * row + lane // 4 + 8 * block)
        for j in range(4):
            perm += [p + 256 * j for p in one]
    order = EVEN_FIRST if bits == 4 else [0, 2, 1, 3]
    return [group[i] for group in np.array(perm).reshape(-1, len(order)) for i in order]


def marlin(codes, bits):
    """codes [K, N]: tiles of 16 x 16 side by side, each 1,024 of them permuted."""
    k, n = codes.shape
    tiles = codes.reshape(k // 16, 16, n // 16, 16).transpose(0, 2, 1, 3).reshape(-1, 1024)
    return tiles[:, marlin_perm(bits)].ravel()


def marlin_a8(codes, bits):
    """codes [K, N] for 8-bit activations: tiles of 32 x 16 side by side, two of them permuted together."""
    k, n = codes.shape
    perm = []
    for lane in range(32):
        one = [16 * (4 * (lane % 4) + 16 * high + low) + lane // 4 + 8 * block
               for block in (0, 1) for high in (0, 1) for low in range(4)]
        for j in range(2):
            perm += [p + 512 * j for p in one]
    if bits == 4:
        perm = [perm[g + i] for g in range(0, len(perm), 8) for i in (0, 4, 1, 5, 2, 6, 3, 7)]
    tiles = codes.reshape(k // 32, 32, n // 16, 16).transpose(0, 2, 1, 3).reshape(-1, 1024)
    return tiles[:, perm].ravel()


def allspark(x):
    """What each thread reads and writes: 4 rows of 16 bytes in, 8 rows of 8 bytes out."""
    x = pad(x, 16, 32)
    k, n = x.shape
    out = np.full((n // 4, k * 4), PADDING - 1)
    for tile, block, lane, i, j in np.ndindex(k // 16, n // 32, 8, 4, 16):
        row = tile * 16 + lane // 2 * 2 + i // 2 * 8 + i % 2
        out[block * 8 + j % 8, tile * 64 + lane * 8 + i + j // 8 * 4] = x[row, block * 32 + lane % 2 * 16 + j]
    return out


def codes_of_gptq(words):
    """[K / per word, N, per word] -> [K, N]"""
    return words.transpose(0, 2, 1).reshape(-1, words.shape[1])


def codes_of_awq(words):
    """[K, N / 8, 8], even columns first -> [K, N]"""
    out = np.empty_like(words)
    for slot, column in enumerate(EVEN_FIRST):
        out[..., column] = words[..., slot]
    return out.reshape(len(words), -1)


SCALE_PERM = [i + 8 * j for i in range(8) for j in range(8)]
SCALE_PERM_SINGLE = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]


def awq_fast(x):
    n, k = x.shape
    order = np.arange(32).reshape(4, 4, 2).transpose(1, 0, 2).ravel()
    y = gather_columns(gather_columns(x, list(order)), EVEN_FIRST)
    return y.reshape(n // 4, 4, k // 64, 64).transpose(0, 2, 1, 3).ravel()


def tinygemm(x, inner):
    """The word of a lane holds two k tiles; its slots are v0 v2 v4 v6 v1 v3 v5 v7."""
    n, k = x.shape
    out = np.empty((n // 8, k // (16 * inner), 32, inner // 2, 8), x.dtype)
    for tile, outer, t, word in np.ndindex(out.shape[:4]):
        base = (outer * inner + 2 * word) * 16 + t % 4 * 2
        v = [x[tile * 8 + t // 4, base + d] for d in (0, 1, 8, 9, 16, 17, 24, 25)]
        out[tile, outer, t, word] = [v[i] for i in EVEN_FIRST]
    return out


def int4pack_cpu(x, rows):
    half = rows // 2
    return np.array([[x[b + j + h * half, k] for j in range(half) for h in (0, 1)]
                     for b in range(0, len(x), rows) for k in range(x.shape[1])])


def qserve(x):
    n, k = x.shape
    y = x.reshape(n // 32, 2, 2, 8, k // 32, 2, 4, 4).transpose(0, 4, 3, 6, 1, 5, 2, 7)
    return y.transpose(0, 1, 2, 3, 5, 6, 7, 4).ravel()


def hqq(x):
    high, low = np.split(x, 2)
    return np.stack([low, high], axis=-1)


def exllama_2bit(words):
    """Even codes into the lower half of a word, odd ones into the upper."""
    return np.concatenate([words[..., 0::2], words[..., 1::2]], axis=-1)


def hqq_bits(x, parts):
    """The first part of the rows in the highest bits."""
    return np.stack(np.split(x, parts)[::-1], axis=-1)


def bitnet(x):
    out = np.empty((len(x), x.shape[1] // 128, 32, 4), x.dtype)
    for i, j in np.ndindex(x.shape):
        group, position = j % 128 // 32, j % 32
        out[i, j // 128, position, (6 - 2 * group) // 2] = x[i, j]
    return out


def fp6(bits):
    """bits [M, K, 6], the highest first. Threads collect their codes, split into 2 and 4 bits; words hold their bytes
    turned round, and then the fragments are put into the kernel's order, counted from the highest bit."""
    m, k, _ = bits.shape
    segments = {2: [[] for _ in range(32)], 4: [[] for _ in range(32)]}
    for i, j, block in np.ndindex(m // 64, k // 16, 4):
        row, column = i * 64 + block * 16, j * 16
        for line, thread in np.ndindex(8, 4):
            for code in range(8):
                corner = code // 2
                at = bits[row + line + corner % 2 * 8, column + corner // 2 * 8 + thread * 2 + code % 2]
                segments[2][line * 4 + thread] += [at[:2]]
                segments[4][line * 4 + thread] += [at[2:]]
    orders = {2: [2, 6, 10, 14, 4, 8, 12, 16, 1, 5, 9, 13, 3, 7, 11, 15], 4: [2, 6, 4, 8, 1, 5, 3, 7]}
    out = []
    for width in (2, 4):
        order = orders[width]
        for word in range(0, len(segments[width][0]), len(order)):
            for thread in range(32):
                fragments = segments[width][thread][word:word + len(order)]
                from_highest = np.concatenate([fragments[o - 1] for o in order])
                out += list(from_highest[::-1])
    return np.array(out)


def hopper_bits(x):
    """Four bytes: the low codes go to the lower 16 bits, the high ones to the upper, as the shifts of the kernel say."""
    out = np.empty((len(x) // 32, 32), x.dtype)
    for word, byte, half, bit in np.ndindex(len(x) // 32, 4, 2, 4):
        if byte < 3:
            to = (15 if bit == 3 else 6 + bit) - 3 * byte
        else:
            to = (13, 10, 11, 14)[bit]
        out[word, 16 * half + to] = x[word * 32 + byte * 8 + half * 4 + bit]
    return out


def packets(x, rows, head, chunk):
    """What the first `head` bytes of `rows` blocks, then their other bytes in turns of `chunk`, make."""
    out = []
    for r in range(0, len(x), rows):
        for b in range(x.shape[1]):
            block = x[r:r + rows, b]
            out += list(block[:, :head].ravel())
            for at in range(head, x.shape[2], chunk):
                out += [v for row in block for v in row[at:at + chunk]]
    return np.array(out)


def indexer(x):
    return np.concatenate([part for page in np.split(x, len(x) // 64) for part in (page[:, :128].ravel(), page[:, 128:].ravel())])


def triton_blackwell(x):
    x = pad(x, 256, 128)
    return np.concatenate([x[n:n + 256, k:k + 64].ravel() for k in range(0, x.shape[1], 64) for n in range(0, len(x), 256)])


def triton_hopper(x):
    m, k = x.shape
    y = x.reshape(m // 16, 1, 2, 4, 2, 1, k // 32, 4, 2, 4, 1, 1)
    return y.transpose(0, 3, 6, 10, 4, 9, 7, 1, 8, 2, 5, 11).ravel()


# ---- 2:4 metadata, INT8 orders ----

def sparse_meta(x, groups):
    """Rows of `groups` eights take turns, each 2 x 2 is transposed, then two columns of all rows lie together."""
    rows = 8 * groups
    turns = np.concatenate([x[b + g * 8 + i:b + g * 8 + i + 1] for b in range(0, len(x), rows)
                            for i in range(8) for g in range(groups)])
    blocks = turns.reshape(len(x) // 2, 2, -1, 2).swapaxes(1, 3)
    return blocks.reshape(len(x), -1, 2).swapaxes(0, 1).ravel()


def sparse_meta_marlin(x):
    def offset(i, j, shape):
        row = i // 64 * 64 + i % 2 * 2 + i % 8 // 4 + i % 4 // 2 * 32 + i % 64 // 8 * 4
        move = ((row % 2 == 0) & (j % 2 == 1)).astype(int) - ((row % 2 == 1) & (j % 2 == 0)).astype(int)
        row, j = row + move, j - move
        return j // 2 * shape[0] * 2 + row * 2 + j % 2
    return place(x, (1, 1), offset)


def col4(i, j, shape):
    right = 4 * (j % 8 >= 4)
    place_in_column = ((i // 8 * 8 + i % 2 * 4 + j % 32 // 8) << 5) + ((right + i % 8 // 2) << 2) + j % 4
    return j // 32 * 32 * shape[0] + place_in_column


def col32_2r(i, j, shape):
    row = i % 32
    return (j // 32 * (shape[0] // 32) + i // 32) * 1024 + ((row % 8 // 2 * 4 + row // 8) * 2 + row % 2) * 32 + j % 32


# ---- CPUs and others ----

def vnni(x, k):
    x = pad(x, k, 1)
    return np.array([x[b:b + k].T for b in range(0, len(x), k)])


def blocked(x, multiples, inner):
    """Inner blocks, outermost first, as (dimension, size); the outer dimensions in the order of `multiples`' keys."""
    order = list(multiples)
    x = pad(x, *(multiples[d] for d in sorted(multiples)))
    out = {}
    for index in np.ndindex(x.shape):
        rest, digits = list(index), []
        for d, size in reversed(inner):
            digits.append(rest[d] % size)
            rest[d] //= size
        out[tuple(rest[d] for d in order) + tuple(reversed(digits))] = x[index]
    return np.array([out[key] for key in sorted(out)])


def tenstorrent(x):
    x = pad(x, 32, 32)
    tiles = []
    for r in range(0, len(x), 32):
        for c in range(0, x.shape[1], 32):
            tiles += [x[r + a:r + a + 16, c + b:c + b + 16].ravel() for a in (0, 16) for b in (0, 16)]
    return np.concatenate(tiles)


# id: order, then source shapes (in units); a dict among them sets axes
ORDERS = {
    "scale_128x4": (tiles_128x4, (256, 12), (100, 5), (1, 1)),
    "scale_8x4": (tiles_8x4, (24, 8), (3, 9)),
    "scale_blackwell_triton": (lambda x: tiles_128x4(x, 8), (256, 24), (129, 4)),
    "scale_hopper_triton_w8": (lambda x: hopper_scale(x, 8), (512, 6), (300, 3)),
    "scale_hopper_triton_w4": (lambda x: hopper_scale(x, 4), (384, 6), (100, 3)),
    "scale_by_column_ue8m0": (words_by_column, (12, 8), (5, 6)),
    "scale_by_column_f32": (lambda x: by_column(x, 4), (12, 3), (5, 7)),
    "scale_utccp": (lambda x: words_by_column(x, True), (256, 12), (130, 5)),
    "scale_aiter": (aiter_scale, (512, 24), (40, 9)),
    "scale_aiter_gate_up": (aiter_scale_gate_up, (96, 24)),
    "amd_16x32_8bit": (lambda x: aiter_weight(x, 32, 16), (48, 96)),
    "amd_16x32_16bit": (lambda x: aiter_weight(x, 32, 8), (48, 96)),
    "amd_16x64_8bit": (lambda x: hipblaslt(x, 16), (48, 192)),
    "amd_16x64_gate_up": (amd_gate_up, (96, 192)),
    **{f"gate_up_by_{rows}": (gate_up(rows), (6 * rows, 5)) for rows in (1, 8, 16, 32, 64, 128)},
    "up_gate": (lambda x: np.concatenate(np.split(x, 2)[::-1]), (14, 5)),
    "trtllm_rows_16": (lambda x: scatter_rows(x, ROWS_16), (48, 3)),
    "trtllm_rows_32": (lambda x: scatter_rows(x, ROWS_32), (96, 3)),
    "trtllm_gated_rows_32": (lambda x: scatter_rows(gate_up(1)(x), ROWS_32), (96, 3)),
    "trtllm_up_gate_rows_32": (lambda x: scatter_rows(gate_up(1)(np.concatenate(np.split(x, 2)[::-1])), ROWS_32), (96, 3)),
    "trtllm_scale_rows_32": (trtllm_scale(lambda x: scatter_rows(x, ROWS_32)), (384, 12)),
    "trtllm_scale_gated_rows_32": (trtllm_scale(lambda x: scatter_rows(gate_up(1)(x), ROWS_32)), (384, 12)),
    "swizzle_128b": (lambda x: swizzle(x, 128, 3), (24, 384)),
    "swizzle_64b": (lambda x: swizzle(x, 64, 2), (24, 192)),
    "swizzle_32b": (lambda x: swizzle(x, 32, 1), (24, 96)),
    "qkv_groups": (lambda x: qkv_groups(x, 4, 6), {"n": 4, "d": 6}, (108, 5)),
    "qkv_from_groups": (lambda x: from_groups(x, 24, 6, 6), {"d": 6}, (3, 36, 5)),
    "qkvz_from_groups": (lambda x: from_groups(x, 6, 6, 8, 8), {"d": 6, "v": 4}, (3, 28, 5)),
    "sglang_amx_16bit": (lambda x: np.array([vnni(b.T, 2) for b in np.split(x, 3)]), (96, 6)),
    "sglang_amx_fp8": (lambda x: np.array([vnni(b.T, 2) for b in np.split(x, 3)]), (96, 6)),
    "block_major_k": (block_major_k, (6, 384)),
    "rope_pairs_to_halves": (lambda x: rope_halves(x, 3), (48, 5), {"h": 3}),
    "rope_halves_to_pairs": (lambda x: rope_pairs(x, 3), (48, 5), {"h": 3}),
    "paged_key_16bit": (paged_key, (3, 5, 2, 24)),
    "gptq_int4": (lambda x: pack_rows(x, 8), (24, 6)),
    "gptq_int8": (lambda x: pack_rows(x, 4), (24, 5)),
    "awq_int4": (lambda x: gather_columns(x, EVEN_FIRST), (3, 24)),
    "awq_gemv_fast": (awq_fast, (12, 192)),
    "exllama_int4": (lambda x: x[..., EVEN_FIRST], (3, 5, 8)),
    "marlin_int4": (lambda x: marlin(codes_of_gptq(x), 4), (6, 192, 8)),
    "marlin_int4_awq": (lambda x: marlin(codes_of_awq(x), 4), (48, 24, 8)),
    "marlin_fp4": (lambda x: marlin(x.T, 4), (192, 48)),
    "marlin_int8": (lambda x: marlin(codes_of_gptq(x), 8), (12, 192, 4)),
    "marlin_fp8": (lambda x: marlin(x.T, 8), (192, 48)),
    "marlin_int4_a8": (lambda x: marlin_a8(codes_of_gptq(x), 4), (12, 96, 8)),
    "marlin_fp4_a8": (lambda x: marlin_a8(x.T, 4), (96, 96)),
    "marlin_int8_a8": (lambda x: marlin_a8(codes_of_gptq(x), 8), (24, 96, 4)),
    "marlin_zero_int4_a8": (lambda x: gather_columns(x, SCALE_PERM), (3, 192)),
    "marlin_zero_int8": (lambda x: gather_columns(gather_columns(x, SCALE_PERM), [0, 2, 1, 3]), (3, 192)),
    "allspark_int8": (allspark, (48, 96), (16, 48)),
    "allspark_scale": (lambda x: place(x, (32,), lambda j, s: j // 32 * 32 + j % 8 * 4 + j % 32 // 8), (96,), (40,)),
    "marlin_scale": (lambda x: gather_columns(x, SCALE_PERM), (3, 192)),
    "marlin_scale_channel": (lambda x: gather_columns(x, SCALE_PERM_SINGLE), (1, 96), (2, 64)),
    "marlin_scale_mxfp4": (lambda x: gather_columns(gather_columns(x.T, SCALE_PERM), [0, 2, 1, 3]), (192, 5)),
    "marlin_zero_int4": (lambda x: gather_columns(gather_columns(x, SCALE_PERM), EVEN_FIRST), (3, 192)),
    "tinygemm_int4_8": (lambda x: tinygemm(x, 8), (24, 384)),
    "tinygemm_int4_4": (lambda x: tinygemm(x, 4), (24, 192)),
    "tinygemm_int4_2": (lambda x: tinygemm(x, 2), (24, 96)),
    "int4pack_cpu_64": (lambda x: int4pack_cpu(x, 64), (192, 6)),
    "int4pack_cpu_32": (lambda x: int4pack_cpu(x, 32), (96, 6)),
    "qserve_int4": (qserve, (96, 160)),
    "qserve_scale": (lambda x: gather_columns(x.T, [i % 4 * 8 + i // 4 for i in range(32)]), (96, 5)),
    "hqq_int4": (hqq, (12, 6)),
    "hqq_int2": (lambda x: hqq_bits(x, 4), (12, 8)),
    "hqq_int1": (lambda x: hqq_bits(x, 8), (24, 8)),
    "exllama_int2": (exllama_2bit, (3, 5, 16)),
    "bitnet_i2_s": (bitnet, (3, 384)),
    "high_bit_first": (lambda x: x.reshape(-1, 8)[:, ::-1], (72,)),
    "fp6_llm": (fp6, (128, 64, 6)),
    "triton_hopper_bits": (hopper_bits, (96,)),
    "triton_blackwell_mxfp4": (triton_blackwell, (512, 256), (300, 100)),
    "gguf_q8_0_4x4": (lambda x: packets(x, 4, 2, 4), (12, 3, 34)),
    "gguf_q8_0_4x8": (lambda x: packets(x, 4, 2, 8), (12, 3, 34)),
    "gguf_iq4_nl_4x4": (lambda x: packets(x, 4, 2, 4), (12, 3, 18)),
    "gguf_iq4_nl_8x8": (lambda x: packets(x, 8, 2, 8), (24, 3, 18)),
    "gguf_mxfp4_4x4": (lambda x: packets(x, 4, 1, 4), (12, 3, 17)),
    "gguf_mxfp4_8x8": (lambda x: packets(x, 8, 1, 8), (24, 3, 17)),
    "indexer_key_cache": (indexer, (192, 132)),
    "high_nibble_first": (lambda x: x.reshape(-1, 2)[:, ::-1], (34,)),
    "triton_hopper_mxfp4": (triton_hopper, (48, 96)),
    "sparse_meta_16bit": (lambda x: sparse_meta(x, 4), (96, 6)),
    "sparse_meta_32bit": (lambda x: sparse_meta(x, 2), (48, 6)),
    "sparse_meta_marlin": (sparse_meta_marlin, (192, 6)),
    "cublaslt_col32": (lambda x: place(x, (1, 32), lambda i, j, s: j // 32 * 32 * s[0] + i * 32 + j % 32), (5, 96), (3, 33)),
    "cublaslt_col4_4r2_8c": (lambda x: place(x, (8, 32), col4), (24, 96), (9, 33)),
    "cublaslt_col32_2r_4r4": (lambda x: place(x, (32, 32), col32_2r), (96, 64), (1, 33)),
    "vnni_16bit": (lambda x: vnni(x, 2), (12, 5), (11, 5)),
    "vnni_8bit": (lambda x: vnni(x, 4), (12, 5), (9, 5)),
    "onednn_BA16a64b2a": (lambda x: blocked(x, {1: 64, 0: 32}, [(0, 16), (1, 64), (0, 2)]), (96, 128), (33, 70)),
    "onednn_BA16a64b4a": (lambda x: blocked(x, {1: 64, 0: 64}, [(0, 16), (1, 64), (0, 4)]), (128, 128), (33, 70)),
    "onednn_OIhw16i16o": (lambda x: blocked(x, {0: 16, 1: 16, 2: 1, 3: 1}, [(1, 16), (0, 16)]), (48, 32, 2, 3), (17, 3, 1, 1)),
    "onednn_OIhw8i16o2i": (lambda x: blocked(x, {0: 16, 1: 16, 2: 1, 3: 1}, [(1, 8), (0, 16), (1, 2)]), (48, 32, 2, 3)),
    "onednn_OIhw4i16o4i": (lambda x: blocked(x, {0: 16, 1: 16, 2: 1, 3: 1}, [(1, 4), (0, 16), (1, 4)]), (48, 32, 2, 3)),
    "onednn_nChw16c": (lambda x: blocked(x, {0: 1, 1: 16, 2: 1, 3: 1}, [(1, 16)]), (2, 48, 2, 3), (2, 17, 2, 3)),
    "onednn_nChw8c": (lambda x: blocked(x, {0: 1, 1: 8, 2: 1, 3: 1}, [(1, 8)]), (2, 24, 2, 3)),
    "ascend_nz_16bit": (lambda x: blocked(x, {1: 16, 0: 16}, [(0, 16), (1, 16)]), (48, 80), (17, 33)),
    "ascend_nz_8bit": (lambda x: blocked(x, {1: 32, 0: 16}, [(0, 16), (1, 32)]), (48, 96), (17, 33)),
    "tenstorrent_tile_16bit": (tenstorrent, (96, 64), (33, 5)),
}


ORDERS.update(chain_orders_other.ORDERS)
ORDERS.update(chain_orders_more.ORDERS)


# ---- files ----

def write_safetensors(path, dtype, shape, *raws):
    """Tensors t00, t01, ... of one dtype and shape."""
    header = {f"t{i:02}": {"dtype": dtype, "shape": list(shape), "data_offsets": [i * len(raw), (i + 1) * len(raw)]}
              for i, raw in enumerate(raws)}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(raws))


def read_safetensors(path):
    blob = path.read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8:8 + length])
    return header.get("__metadata__", {}), header["t00"], blob[8 + length:]


def pack_codes(values, bits):
    """Several codes a byte, the first in the lowest bits."""
    codes = np.asarray(values).reshape(-1, 8 // bits)
    return sum(codes[:, i] << bits * i for i in range(8 // bits)).astype(np.uint8).tobytes()


class List:
    """The steps of a list, read from the chain's text: what the formulas call by the names of its axes."""

    def __init__(self, steps):
        self.steps = np.array(steps)

    def __getitem__(self, at):
        return self.steps[at % len(self.steps)] # formulas of parts are calculated everywhere, and used where they hold

    def index(self, step):
        return np.argsort(self.steps)[step % len(self.steps)]


def clauses(text):
    """The formula, or the formulas of several parts with the condition of each."""
    return [part.split(": ") if ": " in part else ["True", part] for part in text.split("; ")]


def calculate(text, names):
    return eval(text.replace("/", "//"), {}, names)


def check_formula(name, info, expected):
    """The printed formulas, for every element and every place."""
    lists = {axis: List(list(map(int, steps.split()))) for axis, steps in re.findall(r"(\w+)\[([\d ]+)\]", info["chain"])}
    lists.update({"_".join(axes.split()): List(list(map(int, steps.split())))
                  for axes, steps in re.findall(r"\(([\w ]+)\)\[([\d ]+)\]", info["chain"])})
    names = [part.split(" = ")[0] for part in clauses(info["inverse"])[0][1].split(", ")]
    indices = dict(zip(names, np.indices(info["shape"])))
    off = np.full(info["shape"], -1)
    for condition, formula in clauses(info["forward"]):
        here = (off == -1) & calculate(condition, indices)
        off = np.where(here, calculate(formula.split(" = ")[1], {**indices, **lists}), off)
    real = expected != PADDING
    assert info["units"] == expected.size and (expected[off] == np.arange(off.size).reshape(off.shape)).all(), name
    places, left = {"off": np.arange(expected.size)}, np.ones(expected.size, bool)
    for condition, formulas in clauses(info["inverse"]):
        here = left & calculate(condition, places)
        left &= ~here
        for part, dimension in zip(formulas.split(", "), range(len(names))):
            seen = calculate(part.split(" = ")[1], {**places, **lists}) + 0 * expected
            assert (seen[here & real] == np.unravel_index(expected[here & real], info["shape"])[dimension]).all(), f"{name}: {part}"
    assert not left.any(), name


def check(loadplan, folder, row, order, shape, axes, rng):
    name, bits = row["id"], row["unit_bits"]
    sizes = ",".join([*map(str, shape), *(f"{axis}={extent}" for axis, extent in axes.items())])
    source = np.arange(np.prod(shape)).reshape(shape)
    expected = np.asarray(order(source)).ravel()
    real = expected != PADDING
    assert sorted(expected[real]) == list(range(source.size)), f"{name}: the order above is no permutation"

    def run(*arguments):
        return subprocess.run([loadplan, "layout", name, "--shape", sizes, *map(str, arguments)], check=True,
                              capture_output=True, text=True).stdout

    info = json.loads(run("--format=json"))
    check_formula(name, info, expected)
    before, after, back = (folder / f"{name}.{what}" for what in ("in", "out", "back"))
    write_safetensors(before, "I32", [expected.size], expected.astype("<i4").tobytes())
    assert run("--identify", before) == "the same\n", name
    pack = (lambda values: pack_codes(values, bits)) if bits < 8 else lambda values: values.astype(f"<u{bits // 8}").tobytes()
    planes = [pack(expected >> shift & 2**bits - 1) for shift in range(0, int(source.size - 1).bit_length() or 1, bits)]
    write_safetensors(before, "U8", [len(planes[0])], *planes)
    assert run("--identify", before) == "the same\n", f"{name}: by units"

    values = rng.integers(0, 2**bits, source.size, np.uint64)
    moved = np.where(real, values[expected], 0)
    if bits < 8:
        dtype, dims, raw, wanted = "U8", [*shape[:-1], shape[-1] * bits // 8], pack(values), pack(moved)
        if len(shape) == 3 and shape[-1] * bits == 32:  # words
            dtype, dims = "I32", shape[:-1]
        elif len(shape) == 3 and shape[-1] * bits < 8:  # rows of a bit stream
            dims = [shape[0], shape[1] * shape[2] * bits // 8]
    else:
        dtype, dims, raw, wanted = f"U{bits}", shape, pack(values), pack(moved)
    write_safetensors(before, dtype, dims, raw)
    run("--apply", before, "-o", after, "-q")
    metadata, tensor, data = read_safetensors(after)
    assert data == wanted, f"{name} {shape}: other bytes"
    assert metadata["loadplan.layout"] == name and metadata["loadplan.layout_version"] == str(row["version"])
    run("--apply", after, "--inverse", "-o", back, "-q")
    _, tensor, data = read_safetensors(back)
    assert data == raw and tensor["dtype"] == dtype and tensor["shape"] == list(dims), f"{name} {shape}: inverse"
    for path in (before, after, back):
        path.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    loadplan = parser.parse_args().build / "loadplan"
    listing = json.loads(subprocess.run([loadplan, "layout", "--format=json"], check=True, capture_output=True).stdout)
    rows = listing["chains"]
    described = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "layouts.md").read_text()
    missing = [row["id"] for row in rows if f"| {row['id']} | " not in described or
               "`{}`".format(row["chain"].replace("|", "\\|")) not in described]
    assert not missing, f"docs/layouts.md does not list {missing} as they are"
    assert sorted(ORDERS) == sorted(row["id"] for row in rows), "orders and table differ"
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}, {len(rows)} chains")
    with tempfile.TemporaryDirectory(prefix="loadplan-chains-") as folder:
        for row in rows:
            order, *cases = ORDERS[row["id"]]
            axes = next((case for case in cases if isinstance(case, dict)), {})
            for shape in cases:
                if isinstance(shape, tuple):
                    check(loadplan, pathlib.Path(folder), row, order, shape, axes, rng)


main()
