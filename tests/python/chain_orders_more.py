# SPDX-License-Identifier: Apache-2.0
"""More orders for chain_numpy.py, each from the way that the kernel's project states it: mixed products of CUTLASS,
FasterTransformer and Marlin 2:4, codes of 4 and 5 bits, caches, and tiles of other libraries and accelerators."""
import numpy as np

PADDING = -1
EVEN_FIRST = [0, 2, 4, 6, 1, 3, 5, 7]


def padded(x, *multiples):
    return np.pad(x, [(0, -n % m) for n, m in zip(x.shape, multiples)], constant_values=PADDING)


def ravelled(parts):
    return np.concatenate([np.asarray(part).ravel() for part in parts])


# ---- products of two types ----

def ft_int8(x):
    """[K, N]: rows by the map of the matrix loads, columns one by one, two of them in turns of 64 rows, and in each word
    the two inner bytes exchanged."""
    rows = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
    x = np.concatenate([tile[rows] for tile in np.split(x, len(x) // 16)])
    columns = x.T
    out = []
    for pair in range(0, len(columns), 2):
        for row in range(0, columns.shape[1], 64):
            out += [columns[pair][row:row + 64], columns[pair + 1][row:row + 64]]
    words = np.concatenate(out).reshape(-1, 4)
    return words[:, [0, 2, 1, 3]].ravel()


def cutlass_mixed(x, columns, owner):
    """Tiles of 16 rows, one below the other first. owner(lane, value): its place in a tile. A lane's values lie
    together, those of each eight in the order 0 2 4 6 1 3 5 7."""
    values = columns // 2
    out = []
    for k in range(0, x.shape[1], columns):
        for n in range(0, len(x), 16):
            for lane in range(32):
                mine = [x[n + i, k + j] for i, j in (owner(lane, value) for value in range(values))]
                out += [mine[at + e] for at in range(0, values, 8) for e in EVEN_FIRST]
    return np.array(out)


def wgmma_a_16bit(lane, value):
    return lane // 4 + 8 * (value >> 1 & 1), lane % 4 * 2 + (value & 1) + 8 * (value >> 2)


def wgmma_a_8bit(lane, value):
    return lane // 4 + 8 * (value >> 2 & 1), lane % 4 * 4 + (value & 3) + 16 * (value >> 3)


def marlin_24(codes, interleave):
    """[K / 2, N]: tiles of 16 x 16 side by side, 1,024 codes permuted together."""
    k, n = codes.shape
    perm = []
    for lane in range(32):
        column = lane // 4
        rows = (2 * (lane % 4), 2 * (lane % 4) + 1, 2 * (lane % 4) + 8, 2 * (lane % 4) + 9)
        for j in range(4):
            perm += [16 * row + column // 2 * 256 + 8 * (column % 2) + 4 * block + j for block in (0, 1) for row in rows]
    perm = [perm[at + i] for at in range(0, 1024, len(interleave)) for i in interleave]
    tiles = codes.reshape(k // 16, 16, n // 16, 16).swapaxes(1, 2).reshape(-1, 1024)
    return tiles[:, perm].ravel()


# ---- codes ----

def fp5(bits):
    """bits [M, K, 5], the highest first. Each thread collects its 32 codes of a block of 64 x 16: the highest bits make
    one word, the others four. Fragments are counted from a word's highest bit."""
    m, k, _ = bits.shape
    orders = {1: [4 * q + r for r in (1, 3, 0, 2) for q in range(8)], 4: [1, 5, 3, 7, 0, 4, 2, 6]}
    ones, fours = [], []
    for i in range(0, m, 64):
        for j in range(0, k, 16):
            thread = [[] for _ in range(32)]
            for block in range(4):
                for lane in range(32):
                    for code in range(8):
                        row = i + 16 * block + lane // 4 + 8 * (code // 2 % 2)
                        column = j + lane % 4 * 2 + code % 2 + 8 * (code // 4)
                        thread[lane].append(bits[row, column])
            for codes in thread:
                ones += [codes[c][0] for c in orders[1]][::-1]
            for word in range(4):
                for codes in thread:
                    fours += list(np.concatenate([codes[8 * word + c][1:] for c in orders[4]])[::-1])
    return np.array(ones + fours)


def words_of(x, order):
    """[N, K] -> rows of words of eight, code order[i] in place i."""
    return np.array([[row[w:w + 8][order] for w in range(0, len(row), 8)] for row in x])


def flydsl(x):
    """The tiles of the 8-bit pre-shuffle, one code a byte; then byte j of four holds codes j and j + 4 of eight."""
    n, k = x.shape
    tiles = x.reshape(n // 16, 16, k // 32, 2, 16).transpose(0, 2, 3, 1, 4).reshape(-1, 8)
    return ravelled([half for eight in tiles for half in np.stack([eight[:4], eight[4:]], axis=-1)])


def flat_q4_0(x):
    """Blocks of 36 halves of bytes: four of the scale, then 16 bytes with elements i and i + 16."""
    out = []
    for block in x:
        codes = block[4:].reshape(16, 2)
        out += list(codes[:, 0]) + list(codes[:, 1])
    return ravelled([out, x[:, :4]])


def exllama_bits(x, bits):
    """[words, N, 32], as many words for 32 codes as they have bits: of each column, 32 codes that run through the words.
    Each half of a word gets whole codes, even ones below, odd ones above; the last two codes fill the bits that are left,
    their lowest in the first word."""
    x = x.reshape(-1, bits, *x.shape[1:])
    out = np.empty_like(x)
    for group, column in np.ndindex(len(x), x.shape[2]):
        stream = x[group, :, column].ravel()
        codes = [stream[c * bits:(c + 1) * bits] for c in range(32)]
        for word in range(bits):
            to = out[group, word, column]
            each = 15 // bits
            for code in range(each):
                to[code * bits:(code + 1) * bits] = codes[2 * (word * each + code)]
                to[16 + code * bits:16 + (code + 1) * bits] = codes[2 * (word * each + code) + 1]
            to[15], to[31] = codes[30][word], codes[31][word]
    return out


def scales_of(field):
    """Twelve bytes, as bits: eight scales and eight minima of 6 bits, as llama.cpp reads them."""
    byte = field.reshape(12, 8)
    scales = [byte[j][:6] if j < 4 else [*byte[j + 4][:4], *byte[j - 4][6:]] for j in range(8)]
    minima = [byte[j + 4][:6] if j < 4 else [*byte[j + 4][4:], *byte[j][6:]] for j in range(8)]
    return scales, minima


def field_of(scales, minima):
    low = [[*values[j], *values[j + 4][4:]] for values in (scales, minima) for j in range(4)]
    return low + [[*scales[j][:4], *minima[j][:4]] for j in range(4, 8)]


def q4_k_8x8(x):
    out = []
    for rows in np.split(x, len(x) // 8):
        for block in rows.swapaxes(0, 1):
            fields = [scales_of(row[32:128]) for row in block]
            out += [block[:, :16], block[:, 16:32]]
            for j in range(8):
                out += field_of([scales[j] for scales, _ in fields], [minima[j] for _, minima in fields])
            out += [row[at:at + 64] for at in range(128, 1152, 64) for row in block]
    return ravelled(out)


# ---- rows, heads, caches ----

def block_major_rows(x):
    rows = [s // 4 + s % 4 * 8 for s in range(32)] # where row s goes
    shuffled = np.empty_like(x)
    for r in range(len(x)):
        shuffled[r // 32 * 32 + rows[r % 32]] = x[r]
    return ravelled(shuffled[:, b:b + 128] for b in range(0, x.shape[1], 128))


def from_heads(x, width):
    heads = x.reshape(-1, 3, width, x.shape[1])
    return ravelled(heads[:, which] for which in range(3))


def value_pages(x, tokens):
    b, t, h, d = x.shape
    out = np.empty((b, h, t // tokens, d, tokens), x.dtype)
    for i in np.ndindex(x.shape):
        out[i[0], i[2], i[1] // tokens, i[3], i[1] % tokens] = x[i]
    return out


def data_then_scales(x, data):
    return ravelled(part for page in np.split(x, len(x) // 64) for part in (page[:, :data], page[:, data:]))


# ---- tiles ----

def lanes(x, rows, columns, values, owner):
    """Tiles, row after row of them; in each the values of lane 0, of lane 1, ..."""
    return np.array([x[i + a, j + b] for i in range(0, len(x), rows) for j in range(0, x.shape[1], columns)
                     for lane in range(rows * columns // values)
                     for a, b in (owner(lane, value) for value in range(values))])


def kt_amx(x, block_k, columns):
    """BufferB: a block of rows, in it of columns, tiles of 32 rows: two transposes of 16 x 16 words of 32 bits."""
    out = []
    for n0 in range(0, len(x), 256):
        for k0 in range(0, x.shape[1], block_k):
            for n in range(n0, n0 + 256, 32):
                for k in range(k0, k0 + block_k, columns):
                    for half in (0, 16):
                        tile = x[n + half:n + half + 16, k:k + columns].reshape(16, 16, -1)
                        out.append(tile.swapaxes(0, 1))
    return ravelled(out)


def channels(x, each, last):
    x = padded(x, 1, each, 1, 1)
    if last:
        return x.transpose(0, 2, 3, 1).ravel()
    return ravelled(np.moveaxis(x[n, c:c + each], 0, -1) for n in range(len(x)) for c in range(0, x.shape[1], each))


def convolution_16i16o2i(x):
    x = padded(x, 16, 32, 1, 1)
    o, i, h, w = x.shape
    return np.array([x[a + oo, b + 2 * ii + two, p, q] for a in range(0, o, 16) for b in range(0, i, 32) for p in range(h)
                     for q in range(w) for ii in range(16) for oo in range(16) for two in range(2)])


def nz(x, columns):
    x = padded(x, 16, columns)
    return ravelled(x[n:n + 16, k:k + columns] for k in range(0, x.shape[1], columns) for n in range(0, len(x), 16))


def tpu_4bit(x):
    """T(8,128), then inside each tile T(8,1)."""
    x = padded(x, 8, 128)
    return ravelled(x[r:r + 8, c:c + 128].T for r in range(0, len(x), 8) for c in range(0, x.shape[1], 128))


# id: order, then source shapes (in units); a dict among them sets axes
ORDERS = {
    "ft_int8_sm80": (ft_int8, (128, 6)),
    "cutlass_int4_16bit": (lambda x: cutlass_mixed(x, 16, wgmma_a_16bit), (48, 80)),
    "cutlass_int4_fp8": (lambda x: cutlass_mixed(x, 32, wgmma_a_8bit), (48, 96)),
    "marlin_24_int4": (lambda x: marlin_24(x, EVEN_FIRST), (48, 192)),
    "marlin_24_int8": (lambda x: marlin_24(x, [0, 2, 1, 3]), (48, 192)),
    "marlin_24_scale": (lambda x: x.reshape(len(x), -1, 8)[:, :, [0, 4, 1, 5, 2, 6, 3, 7]], (3, 40)),
    "fp5_llm": (fp5, (128, 48, 5)),
    "exllama_rows_int4": (lambda x: words_of(x, EVEN_FIRST), (5, 24)),
    "flydsl_int4": (flydsl, (48, 96)),
    "mlc_q4f16_0": (lambda x: words_of(x, list(range(8))).swapaxes(0, 1), (5, 24)),
    "aqlm_codes_8bit": (lambda x: x.swapaxes(0, 1), (5, 7, 2)),
    "exllama_int3": (lambda x: exllama_bits(x, 3), (6, 5, 32)),
    "exllama_int5": (lambda x: exllama_bits(x, 5), (10, 3, 32)),
    "gguf_q4_k_8x8": (q4_k_8x8, (16, 3, 1152)),
    "gguf_q4_0_flat": (flat_q4_0, (6, 36)),
    "trtllm_block_major_rows_32": (block_major_rows, (96, 384)),
    "qkv_from_heads": (lambda x: from_heads(x, 4), {"d": 4}, (60, 3)),
    "kv_heads_first": (lambda x: [page[:, head] for page in x for head in range(x.shape[2])], (3, 5, 2, 4)),
    "paged_value_aiter_16bit": (lambda x: value_pages(x, 8), (3, 16, 2, 5)),
    "flashmla_page_584": (lambda x: data_then_scales(x, 576), (128, 584)),
    "amd_32x32_8bit": (lambda x: lanes(x, 32, 32, 16, lambda lane, i: (lane % 32, lane // 32 * 16 + i)), (96, 64)),
    "wmma_16x16x16_a": (lambda x: lanes(x, 16, 16, 8, lambda lane, i: (lane % 16, lane // 16 * 8 + i)), (48, 32)),
    "kt_amx_16bit": (lambda x: kt_amx(x, 96, 32), {"k": 3}, (512, 192)),
    "kt_amx_8bit": (lambda x: kt_amx(x, 128, 64), {"k": 2}, (512, 256)),
    "tensorrt_chw32": (lambda x: channels(x, 32, False), (2, 64, 2, 3), (2, 33, 3, 1)),
    "tensorrt_hwc8": (lambda x: channels(x, 8, True), (2, 24, 2, 3), (2, 5, 3, 2)),
    "onednn_OIhw16i16o2i": (convolution_16i16o2i, (32, 64, 2, 3), (17, 5, 3, 1)),
    "ascend_nz_4bit": (lambda x: nz(x, 64), (48, 192), (17, 66)),
    "tpu_8x128_4bit": (tpu_4bit, (16, 256), (9, 130)),
}
