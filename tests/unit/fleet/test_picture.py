# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawn pictures: sound PNG files that show what they are said to show."""

from __future__ import annotations

import struct
import zlib
from random import Random

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import picture


def pixels(png: bytes) -> list[list[tuple[int, int, int]]]:
    """An independent reader: every chunk's checksum, then the rows."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, kinds = 8, b"", []
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", body)
            assert (depth, colour, rest) == (8, 2, [0, 0, 0])
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    raw, row = zlib.decompress(data), width * 3 + 1
    assert len(raw) == row * height
    lines = [raw[start + 1 : start + row] for start in range(0, len(raw), row)]
    return [[(line[x], line[x + 1], line[x + 2]) for x in range(0, len(line), 3)] for line in lines]


def count(rows: list[list[tuple[int, int, int]]], colour: tuple[int, int, int]) -> int:
    return sum(row.count(colour) for row in rows)


@pytest.mark.parametrize("seed", range(8))
def test_a_number_is_dark_on_white_and_large_enough(seed: int) -> None:
    rows = pixels(picture.number(Random(seed), "4821"))
    assert min(len(rows), len(rows[0])) >= 64
    assert (len(rows[0]), len(rows)) in picture.SIZES
    dark = [(x, y) for y, row in enumerate(rows) for x, pixel in enumerate(row) if sum(pixel) < 384]
    assert 0.02 < len(dark) / (len(rows) * len(rows[0])) < 0.25
    assert max(x for x, _ in dark) - min(x for x, _ in dark) > len(rows[0]) * 0.6
    assert rows[0][0] == rows[-1][-1] == (255, 255, 255)


def test_every_digit_looks_different() -> None:
    # The same random state: the same place, size and ink; only the digit differs.
    drawn = {digit: picture.number(Random(3), f"1{digit}11") for digit in "0123456789"}
    rows = {digit: pixels(png) for digit, png in drawn.items()}
    for digit in rows:
        for other in rows:
            if digit < other:
                differ = sum(a != b for mine, yours in zip(rows[digit], rows[other]) for a, b in zip(mine, yours))
                assert differ > 100, (digit, other)


@pytest.mark.parametrize("colour", list(picture.COLOURS))
@pytest.mark.parametrize("shape", picture.SHAPES)
def test_a_shape_is_whole_and_stands_out(colour: str, shape: str) -> None:
    rows = pixels(picture.coloured_shape(Random(f"{colour}{shape}"), colour, shape))
    paper, ink = rows[0][0], picture.COLOURS[colour]
    assert sum(abs(a - b) for a, b in zip(ink, paper)) > 130
    area = len(rows) * len(rows[0])
    assert 0.03 < count(rows, ink) / area < 0.5
    border = [*rows[0], *rows[-1], *(row[0] for row in rows), *(row[-1] for row in rows)]
    assert set(border) == {paper}
    # Smooth edges, and nothing else than ink, paper and what lies between.
    assert 0 < area - count(rows, ink) - count(rows, paper) < area * 0.05 or shape in ("square", "rectangle")


def test_the_areas_are_those_of_the_shapes() -> None:
    share = {}
    for shape in picture.SHAPES:
        rows = pixels(picture.coloured_shape(Random(5), "black", shape, size=(224, 224), paper=picture.GREY))
        share[shape] = sum(128 - row[x][0] for row in rows for x in range(224)) / 128
    unit = share["square"] / 3.24
    want = {"circle": 3.1416, "triangle": 1.8, "rectangle": 1.92, "diamond": 1.7, "cross": 4 * 0.34 * (2 - 0.34)}
    for shape, area in want.items():
        assert share[shape] / unit == pytest.approx(area, rel=0.02), shape


def test_the_same_seed_draws_the_same_picture_and_another_seed_another() -> None:
    assert picture.number(Random(7), "4821") == picture.number(Random(7), "4821")
    assert picture.number(Random(7), "4821") != picture.number(Random(8), "4821")


def test_pictures_are_small() -> None:
    assert len(picture.number(Random(1), "4821")) < 20_000
    assert len(picture.coloured_shape(Random(1), "red", "star")) < 20_000
