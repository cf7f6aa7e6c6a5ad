# SPDX-License-Identifier: Apache-2.0
"""Orders of chain_known_other.c, composed step by step in numpy from what their projects state; for chain_numpy.py."""
import numpy as np

PADDING = -1


def fill(size, pairs):
    """Elements at their places, padding elsewhere; pairs of (place, element)."""
    out = np.full(size, PADDING)
    for place, element in pairs:
        assert out[place] == PADDING
        out[place] = element
    return out


def padded(x, *multiples):
    return np.pad(x, [(0, -n % m) for n, m in zip(x.shape, multiples)], constant_values=PADDING)


def tiles(x, rows, columns):
    """Tiles of a matrix whose sizes are multiples, row after row of tiles."""
    return [x[r:r + rows, c:c + columns] for r in range(0, len(x), rows) for c in range(0, x.shape[1], columns)]


def padded_tiles(x):
    rows = [np.append(row, PADDING) for tile in tiles(x, 32, 32) for row in tile]
    return np.concatenate(rows)


def skewed_tiles(x):
    return np.concatenate([np.roll(row, i) for tile in tiles(x, 32, 32) for i, row in enumerate(tile)])


def morton(x):
    out = []
    for tile in tiles(x, 8, 8):
        at = {sum((j >> b & 1) << 2 * b | (i >> b & 1) << 2 * b + 1 for b in range(3)): tile[i, j]
              for i in range(8) for j in range(8)}
        out += [at[k] for k in range(64)]
    return np.array(out)


def cannon_left(x):
    return np.array([np.roll(row, -i) for i, row in enumerate(x)])


def cannon_right(x):
    return np.array([np.roll(column, -j) for j, column in enumerate(x.T)]).T


def zigzag(x, ranks):
    chunks = np.split(x, 2 * ranks)
    return np.concatenate([np.concatenate([chunks[r], chunks[2 * ranks - 1 - r]]) for r in range(ranks)])


def with_room(x, units, room):
    return np.array([list(block) + [PADDING] * (room - units) for block in x.reshape(-1, units)])


def fragments(x, rows, columns, values, where):
    """Tiles by lane: where(lane, i) is row and column of value i of a lane."""
    lanes = rows * columns // values
    return np.array([tile[where(lane, i)] for tile in tiles(x, rows, columns) for lane in range(lanes) for i in range(values)])


def mma_a_16bit(lane, i):
    group, thread = lane >> 2, lane % 4
    row = group if i in (0, 1, 4, 5) else group + 8
    return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)


def mma_b_16bit(lane, i):
    group, thread = lane >> 2, lane % 4
    return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group


def mma_a_8bit(lane, i):
    group, thread = lane >> 2, lane % 4
    row = group if i < 4 or 8 <= i < 12 else group + 8
    return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)


def apart(x, *cuts):
    """The fields of all blocks, one after the other, in the order of `cuts`."""
    return np.concatenate([x[:, begin:end].ravel() for begin, end in cuts])


def tpu(x, packed):
    """T(8,128), then inside each tile T(packed,1)."""
    out = []
    for tile in tiles(padded(x, 8, 128), 8, 128):
        for words in tiles(tile, packed, 1):
            out += list(words.ravel())
    return np.array(out)


def fractal_z(x):
    x = padded(x, 16, 16, 1, 1)
    n, c, h, w = x.shape
    return np.array([x[n1 * 16 + n0, c1 * 16 + c0, i, j] for c1 in range(c // 16) for i in range(h) for j in range(w)
                     for n1 in range(n // 16) for n0 in range(16) for c0 in range(16)])


def crouton(x, width, place):
    x = padded(x, 1, 8, width, 32)
    n, h, w, c = x.shape
    blocks = [(b, i, j, k) for b in range(n) for i in range(h // 8) for j in range(w // width) for k in range(c // 32)]
    return np.concatenate([fill(8 * width * 32, (
        (place(p, q, r), x[b, i * 8 + p, j * width + q, k * 32 + r])
        for p in range(8) for q in range(width) for r in range(32))) for b, i, j, k in blocks])


# id: order, then source shapes (in units)
ORDERS = {
    "padded_32x33_32bit": (padded_tiles, (64, 96)),
    "skewed_32x32_32bit": (skewed_tiles, (64, 96)),
    "morton_8x8": (morton, (24, 40)),
    "cannon_left": (cannon_left, (5, 5), (3, 7), (9, 4)),
    "cannon_right": (cannon_right, (5, 5), (3, 7), (9, 4)),
    "zigzag_ring": (lambda x: zigzag(x, 5), {"w": 5}, (30, 3)),
    "tma_b4x16_p64": (lambda x: with_room(x, 16, 32), (96,)),
    "tma_b6x16_p32": (lambda x: with_room(x, 96, 128), (288,)),
    "tma_b6p2x16": (lambda x: with_room(x, 6, 8), (72,)),
    "mma_m16n8k16_a": (lambda x: fragments(x, 16, 16, 8, mma_a_16bit), (48, 32)),
    "mma_m16n8k16_b": (lambda x: fragments(x, 16, 8, 4, mma_b_16bit), (48, 24)),
    "mma_m16n8k32_a": (lambda x: fragments(x, 16, 32, 16, mma_a_8bit), (48, 64)),
    "mfma_32x32x8_a": (lambda x: fragments(x, 32, 8, 4, lambda lane, i: (lane % 32, lane // 32 * 4 + i)), (64, 24)),
    "gguf_q4_0_soa": (lambda x: apart(x, (2, 18), (0, 2)), (7, 18)),
    "gguf_q4_k_soa": (lambda x: apart(x, (16, 144), (4, 16), (0, 4)), (5, 144)),
    "gguf_q6_k_soa": (lambda x: apart(x, (0, 128), (128, 192), (192, 208), (208, 210)), (5, 210)),
    "tpu_8x128_32bit": (lambda x: tpu(x, 1), (16, 256), (9, 130)),
    "tpu_8x128_16bit": (lambda x: tpu(x, 2), (16, 256), (9, 130)),
    "tpu_8x128_8bit": (lambda x: tpu(x, 4), (16, 256), (9, 130)),
    "ascend_fractal_z_16bit": (fractal_z, (32, 48, 2, 3), (17, 5, 3, 1)),
    "hexagon_8h8w32c": (lambda x: crouton(x, 8, lambda p, q, r: p * 256 + q * 32 + r), (2, 16, 8, 64), (1, 9, 3, 33)),
    "hexagon_8h2w32c2w": (lambda x: crouton(x, 4, lambda p, q, r: p * 128 + q // 2 * 64 + r * 2 + q % 2),
                          (2, 16, 12, 64), (1, 9, 3, 33)),
}
