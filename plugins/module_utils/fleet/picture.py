# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures drawn at run time, so that no answer about them can be guessed, cached or remembered.

A number in clean sans digits, or one coloured shape on plain paper; edges are smooth, as in pictures that models were
trained on. PNG bytes out, standard library only: the targets have nothing else.
"""

from __future__ import annotations

import math
import struct
import zlib
from random import Random
from typing import Mapping, Optional, Sequence

Colour = tuple[int, int, int]
Point = tuple[float, float]

COLOURS: Mapping[str, Colour] = {
    "red": (225, 20, 20),
    "green": (0, 140, 30),
    "blue": (20, 40, 230),
    "yellow": (255, 235, 0),
    "orange": (255, 150, 0),
    "purple": (128, 0, 140),
    "pink": (255, 170, 195),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
}
SHAPES = ("circle", "square", "triangle", "star", "rectangle", "diamond", "cross")
SIZES = ((224, 224), (256, 256), (320, 240), (336, 224))  # pixels; each side at least 64, or engines scale it up
FRAME = (160, 120)  # pixels; a video is many of them

GREY: Colour = (128, 128, 128)
_PAPERS: Sequence[Colour] = ((255, 255, 255), GREY, (0, 0, 0))
_INKS: Sequence[Colour] = ((0, 0, 0), (150, 0, 20), (0, 40, 140), (0, 90, 30))  # all dark: numbers stand on white


def number(rng: Random, digits: str) -> bytes:
    """The digits, one line, dark on white, somewhere near the middle."""
    width, height = rng.choice(SIZES)
    canvas = _Canvas(width, height, COLOURS["white"])
    # A digit is 6 wide and 10 high, with 1.6 between two; the line takes most of the width.
    unit = min(width * rng.uniform(0.70, 0.84) / (7.6 * len(digits) - 1.6), height * 0.06)
    left = (width - unit * (7.6 * len(digits) - 1.6)) / 2
    top = (height - unit * 10) / 2 + height * rng.uniform(-0.12, 0.12)
    ink, thickness = rng.choice(_INKS), unit * rng.uniform(1.05, 1.45)
    for place, digit in enumerate(digits):
        origin = left + place * 7.6 * unit
        lines = [[(origin + x * unit, top + y * unit) for x, y in line] for line in _DIGITS[digit]]
        canvas.stroke(lines, thickness, ink)
    return canvas.png()


def coloured_shape(
    rng: Random,
    colour: str,
    shape: str,
    *,
    size: Optional[tuple[int, int]] = None,
    paper: Optional[Colour] = None,
) -> bytes:
    """One shape of one colour, somewhere on plain paper that it stands out from."""
    width, height = size or rng.choice(SIZES)
    ink = COLOURS[colour]
    canvas = _Canvas(width, height, paper or rng.choice([each for each in _PAPERS if _stands_out(ink, each)]))
    reach = rng.uniform(0.24, 0.40) * min(width, height)
    x, y = rng.uniform(reach + 4, width - reach - 4), rng.uniform(reach + 4, height - reach - 4)
    canvas.fill([(x + reach * across, y + reach * down) for across, down in _OUTLINES[shape]], ink)
    return canvas.png()


def _stands_out(ink: Colour, paper: Colour) -> bool:
    # Weights of the eye, so that yellow on white and blue on black are refused as the hard pictures they are.
    light = [0.30 * red + 0.59 * green + 0.11 * blue for red, green, blue in (ink, paper)]
    return abs(light[0] - light[1]) > 60 or (paper == GREY and sum(abs(a - b) for a, b in zip(ink, paper)) > 200)


class _Canvas:
    """RGB pixels, eight bits each."""

    def __init__(self, width: int, height: int, paper: Colour) -> None:
        self.width, self.height = width, height
        self.pixels = bytearray(bytes(paper) * (width * height))

    def stroke(self, lines: Sequence[Sequence[Point]], thickness: float, ink: Colour) -> None:
        """Lines with round ends and joints."""
        reach = thickness / 2 + 0.5  # the last half pixel fades out
        cover: dict[int, float] = {}
        for line in lines:
            for (x0, y0), (x1, y1) in zip(line, line[1:]):
                dx, dy = x1 - x0, y1 - y0
                length = dx * dx + dy * dy or 1e-9
                columns = self._range(min(x0, x1) - reach, max(x0, x1) + reach, self.width)
                for y in self._range(min(y0, y1) - reach, max(y0, y1) + reach, self.height):
                    down = y + 0.5 - y0
                    for x in columns:
                        across = x + 0.5 - x0
                        along = (across * dx + down * dy) / length
                        along = 0.0 if along < 0 else 1.0 if along > 1 else along
                        away = (across - along * dx) ** 2 + (down - along * dy) ** 2
                        if away < reach * reach:
                            # The largest, not the sum: where two segments meet the ink is one.
                            inside, at = reach - math.sqrt(away), y * self.width + x
                            if inside > cover.get(at, 0.0):
                                cover[at] = inside
        for at, inside in cover.items():
            self._mix(at, ink, min(1.0, inside))

    def fill(self, outline: Sequence[Point], ink: Colour) -> None:
        """A polygon; each pixel takes as much ink as the polygon covers of it (exact across, in quarters down)."""
        edges, solid = list(zip(outline, [*outline[1:], outline[0]])), bytes(ink)
        columns = self._range(min(x for x, _ in outline), max(x for x, _ in outline), self.width)
        for y in self._range(min(y for _, y in outline), max(y for _, y in outline), self.height):
            steps = [0.0] * (self.width + 2)  # how much the cover changes from one pixel to the next
            for quarter in (0.125, 0.375, 0.625, 0.875):
                level = y + quarter
                cuts = sorted(
                    min(float(self.width), max(0.0, x0 + (level - y0) * (x1 - x0) / (y1 - y0)))
                    for (x0, y0), (x1, y1) in edges
                    if (y0 <= level) != (y1 <= level)
                )
                for sign, cut in zip((1, -1) * len(cuts), cuts):
                    whole = int(cut)
                    steps[whole] += sign * 0.25 * (1 - (cut - whole))
                    steps[whole + 1] += sign * 0.25 * (cut - whole)
            cover = 0.0
            for x in columns:
                cover += steps[x]
                if cover > 0.999:
                    self.pixels[(y * self.width + x) * 3 : (y * self.width + x) * 3 + 3] = solid
                elif cover > 0.001:
                    self._mix(y * self.width + x, ink, cover)

    def png(self) -> bytes:
        row = self.width * 3
        lines = b"".join(b"\0" + self.pixels[start : start + row] for start in range(0, len(self.pixels), row))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )

    @staticmethod
    def _range(low: float, high: float, limit: int) -> range:
        return range(max(0, math.floor(low)), min(limit, math.ceil(high)))

    def _mix(self, at: int, ink: Colour, share: float) -> None:
        for channel, colour in enumerate(ink, at * 3):
            old = self.pixels[channel]
            self.pixels[channel] = round(old + (colour - old) * share)


def _arc(x: float, y: float, across: float, down: float, start: float, end: float) -> list[Point]:
    """Part of an ellipse around (x, y), in degrees; 0 is to the right, 90 is down."""
    steps = max(2, round(abs(end - start) / 15))
    angles = [math.radians(start + (end - start) * step / steps) for step in range(steps + 1)]
    return [(x + across * math.cos(angle), y + down * math.sin(angle)) for angle in angles]


# The digits as pen strokes in a box 6 wide and 10 high.
_SIX = [
    _arc(3, 6.8, 2.6, 2.7, 0, 360),
    _arc(5.6, 6.8, 5.2, 6.4, 180, 258),
]
_DIGITS: Mapping[str, Sequence[Sequence[Point]]] = {
    "0": [_arc(3, 5, 2.6, 4.6, 0, 360)],
    "1": [[(1.2, 2.3), (3.5, 0.4), (3.5, 9.6)]],
    "2": [[*_arc(3, 2.95, 2.4, 2.55, 190, 395), (0.6, 9.6), (5.5, 9.6)]],
    "3": [[*_arc(2.8, 2.65, 2.2, 2.25, 200, 450), (2.2, 4.9)], _arc(2.8, 7.25, 2.6, 2.35, 270, 520)],
    "4": [[(4.3, 9.6), (4.3, 0.4), (0.4, 6.9), (5.8, 6.9)]],
    "5": [[(5.2, 0.4), (1.2, 0.4), (0.9, 4.7), *_arc(2.9, 6.6, 2.7, 3.0, 222, 510)]],
    "6": _SIX,
    "7": [[(0.5, 0.4), (5.5, 0.4), (2.3, 9.6)]],
    "8": [_arc(3, 2.65, 2.1, 2.25, 0, 360), _arc(3, 7.25, 2.6, 2.35, 0, 360)],
    "9": [[(6 - x, 10 - y) for x, y in line] for line in _SIX],
}

# The shapes in a square from -1 to 1.
_ARM = 0.34  # half the width of the cross's arms
_OUTLINES: Mapping[str, Sequence[Point]] = {
    "circle": [(math.cos(math.radians(angle)), math.sin(math.radians(angle))) for angle in range(0, 360, 4)],
    "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "triangle": [(0, -1), (1, 0.8), (-1, 0.8)],
    "star": [
        (ray * math.sin(point * math.pi / 5), -ray * math.cos(point * math.pi / 5))
        for point in range(10)
        for ray in ((1.0, 0.42)[point % 2],)
    ],
    "rectangle": [(-1, -0.48), (1, -0.48), (1, 0.48), (-1, 0.48)],
    "diamond": [(0, -1), (0.85, 0), (0, 1), (-0.85, 0)],
    "cross": [
        (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM),
        (_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM),
    ],
}  # fmt: skip
