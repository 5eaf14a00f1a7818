#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a blind twin of a vision-language checkpoint: same text weights, a vision tower of noise.

Seen from outside it is a model whose vision tower was quantised into garbage: it starts, is healthy, answers text and
calls tools, and makes up what it says about pictures. Standard library only.

Usage: make_blind.py tiny-vlm tiny-vlm-blind
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import sys
from array import array
from pathlib import Path


def bfloat16_noise(count: int, deviation: float, source: random.Random) -> bytes:
    """The upper halves of that many normally distributed float32 values."""
    whole = array("I", struct.pack(f"{count}f", *(source.gauss(0, deviation) for _ in range(count))))
    return array("H", (value >> 16 for value in whole)).tobytes()


def main(good: str, blind: str) -> None:
    shutil.copytree(good, blind)
    source, noised = random.Random(0), 0
    for path in sorted(Path(blind).glob("*.safetensors")):
        with path.open("r+b") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
            for name, entry in header.items():
                if ".visual." not in f".{name}":
                    continue
                if entry["dtype"] != "BF16":
                    sys.exit(f"{path}: {name} is {entry['dtype']}, this program knows BF16 only")
                begin, end = entry["data_offsets"]
                file.seek(8 + size + begin)
                file.write(bfloat16_noise((end - begin) // 2, 0.05, source))
                noised += 1
    if not noised:
        sys.exit(f"{good} has no vision tower")
    print(f"{blind}: {noised} tensors of the vision tower replaced by noise")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
