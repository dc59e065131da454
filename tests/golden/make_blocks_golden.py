#!/usr/bin/env python3
"""Writes blocks.safetensors: random blocks of each of ggml's types, and the numbers that the package `gguf` makes of them.

Usage: make_blocks_golden.py, with the packages gguf 0.19.0, numpy and safetensors.
"""

import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

ROWS, COLUMNS = 5, 512
# Where a block has f16 numbers, which are made small; every other byte may be anything.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def main():
    generator, tensors = np.random.default_rng(7), {}
    for name, places in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = generator.integers(0, 256, (ROWS * COLUMNS // size, block_bytes), dtype=np.uint8)
        for place in places:
            halves = (generator.standard_normal(len(blocks)) * 0.01).astype(np.float16)
            halves[:3] = [6e-8, -0.0, 65504]  # the least and the largest
            blocks[:, place:place + 2] = halves.view(np.uint8).reshape(-1, 2)
        rows = blocks.reshape(ROWS, -1)
        tensors[f"{name}.blocks"], tensors[f"{name}.numbers"] = rows, gguf.quants.dequantize(rows, kind)
    save_file(tensors, pathlib.Path(__file__).with_name("blocks.safetensors"))


if __name__ == "__main__":
    main()
