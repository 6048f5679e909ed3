#!/usr/bin/env python3
"""Makes tests/data/formats/*.vectors with PyPI `gguf` and numpy:

    make_dequantize_vectors.py OUT_DIRECTORY

One file per tensor type: rows and columns (uint32, little endian), the rows as a model file stores them,
then the same rows dequantised by `gguf` (float32). Run again only when a type is added.
"""

import sys
from pathlib import Path

import gguf
import numpy as np

ROWS, COLS = 7, 96
BLOCK = 32
SUPER_ROWS, SUPER_COLS, SUPER_BLOCK = 3, 512, 256
# Scales and minima at the edges of the half format: zeros, subnormals, the largest, negative ones.
EDGES = np.array([0.0, -0.0, 6e-8, -6e-8, 5e-5, 65504, -65504, 1, -1], dtype=np.float16)


def random_halves(random: np.random.Generator, count: int) -> np.ndarray:
    values = (random.standard_normal(count) * 0.05).astype(np.float16)
    edges = random.random(count) < 0.3
    values[edges] = random.choice(EDGES, edges.sum())
    return values


def blocks(random: np.random.Generator, halves: int, quants: np.ndarray) -> np.ndarray:
    count = ROWS * COLS // BLOCK
    scales = random_halves(random, count * halves).reshape(count, halves)
    return np.concatenate([scales.view(np.uint8), quants.reshape(count, -1)], axis=1).reshape(ROWS, -1)


def super_blocks(random: np.random.Generator, halves: int, other_bytes: int, halves_last: bool) -> np.ndarray:
    count = SUPER_ROWS * SUPER_COLS // SUPER_BLOCK
    scales = random_halves(random, count * halves).reshape(count, halves).view(np.uint8)
    others = random.integers(0, 256, (count, other_bytes), dtype=np.uint8)
    return np.concatenate([others, scales] if halves_last else [scales, others], axis=1).reshape(SUPER_ROWS, -1)


def stored_rows(kind: gguf.GGMLQuantizationType, random: np.random.Generator) -> np.ndarray:
    types = gguf.GGMLQuantizationType
    elements = ROWS * COLS
    if kind == types.Q4_0:
        return blocks(random, 1, random.integers(0, 256, elements // 2, dtype=np.uint8))
    if kind == types.Q4_1:
        return blocks(random, 2, random.integers(0, 256, elements // 2, dtype=np.uint8))
    if kind == types.Q5_0:
        return blocks(random, 1, random.integers(0, 256, elements * 5 // 8, dtype=np.uint8))
    if kind == types.Q5_1:
        return blocks(random, 2, random.integers(0, 256, elements * 5 // 8, dtype=np.uint8))
    if kind == types.Q8_0:
        return blocks(random, 1, random.integers(-127, 128, elements, dtype=np.int8).view(np.uint8))
    if kind == types.Q4_K:
        return super_blocks(random, 2, 140, False)
    if kind == types.Q5_K:
        return super_blocks(random, 2, 172, False)
    if kind == types.Q6_K:
        return super_blocks(random, 1, 208, True)
    if kind == types.F16:
        return random_halves(random, elements).reshape(ROWS, COLS).view(np.uint8)
    singles = (random.standard_normal(elements) * 0.05).astype(np.float32).reshape(ROWS, COLS)
    singles[0, :4] = [0.0, -0.0, 1e-40, 3e38]
    if kind == types.F32:
        return singles.view(np.uint8)
    return (singles.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def main() -> None:
    out = Path(sys.argv[1])
    names = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q5_0", "Q4_K", "Q5_K", "Q6_K", "Q5_1"]
    for number, name in enumerate(names):
        kind = gguf.GGMLQuantizationType[name]
        rows = stored_rows(kind, np.random.default_rng(number))
        values = rows.view(np.float32) if name == "F32" else gguf.dequantize(rows, kind)
        assert values.shape in [(ROWS, COLS), (SUPER_ROWS, SUPER_COLS)] and np.isfinite(values).all()
        content = np.array(values.shape, dtype="<u4").tobytes() + rows.tobytes()
        (out / f"{name.lower()}.vectors").write_bytes(content + values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
