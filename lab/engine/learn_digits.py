# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make ``glyphs.py``: prototypes of the ten digits, averaged over every typeface at hand.

For whoever wants the simulated engine to read more kinds of digits; nothing needs it at run time.
Needs Pillow and fonts: ``python learn_digits.py FONT_FOLDER… > glyphs.py.new && mv glyphs.py.new glyphs.py``.
Beside the fonts it learns three shapes every programmer knows: 5x7 and 3x5 pixel digits and seven segments.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

COLUMNS, ROWS, PER_DIGIT = 8, 12, 9
sys.modules["glyphs"] = type(sys)("glyphs")
sys.modules["glyphs"].__dict__.update(COLUMNS=COLUMNS, ROWS=ROWS, PROTOTYPES=[])
from sight import count_holes, shrink  # noqa: E402  (needs the stand-in above: sight imports glyphs)

PIXELS_5X7 = dict(
    zip(
        "0123456789",
        re.split(
            "/",
            "01110 10001 10011 10101 11001 10001 01110/00100 01100 00100 00100 00100 00100 01110/"
            "01110 10001 00001 00110 01000 10000 11111/01110 10001 00001 00110 00001 10001 01110/"
            "00010 00110 01010 10010 11111 00010 00010/11111 10000 11110 00001 00001 10001 01110/"
            "00110 01000 10000 11110 10001 10001 01110/11111 00001 00010 00100 01000 01000 01000/"
            "01110 10001 10001 01110 10001 10001 01110/01110 10001 10001 01111 00001 00010 01100",
        ),
    )
)
PIXELS_3X5 = dict(
    zip(
        "0123456789",
        re.split(
            "/",
            "111 101 101 101 111/010 110 010 010 111/111 001 111 100 111/111 001 111 001 111/101 101 111 001 001/"
            "111 100 111 001 111/111 100 111 101 111/111 001 001 010 010/111 101 111 101 111/111 101 111 001 111",
        ),
    )
)
SEGMENTS = dict(zip("0123456789", re.findall(r"\w+", "abcdef bc abged abgcd fgbc afgcd afgedc abc abcdefg abcdfg")))


def segments(digit: str, thick: int) -> Image.Image:
    w, h, t = 58, 100, thick
    box = {"a": (0, 0, w, t), "d": (0, h - t, w, h), "g": (0, h // 2 - t // 2, w, h // 2 + t - t // 2)}
    box |= {"f": (0, 0, t, h // 2), "b": (w - t, 0, w, h // 2), "e": (0, h // 2, t, h), "c": (w - t, h // 2, w, h)}
    picture = Image.new("L", (w + 4, h + 4))
    for name in SEGMENTS[digit]:
        x0, y0, x1, y1 = box[name]
        ImageDraw.Draw(picture).rectangle((x0 + 2, y0 + 2, x1 + 1, y1 + 1), fill=255)
    return picture


def pixels(rows: str) -> Image.Image:
    lines = rows.split()
    picture = Image.new("L", (len(lines[0]), len(lines)))
    picture.putdata([255 * int(v) for line in lines for v in line])
    return picture.resize((picture.width * 8, picture.height * 8), Image.NEAREST)


def samples(digit: str, fonts: list[str]) -> list[tuple[list[int], int, float]]:
    pictures = [pixels(PIXELS_5X7[digit]), pixels(PIXELS_3X5[digit])] * 4 + [
        segments(digit, t) for t in (7, 10, 14)
    ] * 2
    for path in fonts:
        for size in (14, 30, 60):
            try:
                font = ImageFont.truetype(path, size) if path else ImageFont.load_default(size)
                for turn in (0, random.uniform(-8, 8)):
                    picture = Image.new("L", (size * 2, size * 2))
                    ImageDraw.Draw(picture).text((size // 2, size // 3), digit, font=font, fill=255)
                    pictures.append(picture.rotate(turn, Image.BICUBIC))
            except (OSError, ValueError):
                continue
    out = []
    for picture in pictures:
        black = picture.point(lambda v: 255 if v > 110 else 0)
        if black.getbbox() is None:
            continue
        black = black.crop(black.getbbox())
        mask = [bytearray(1 if v else 0 for v in line) for line in _lines(black)]
        out.append((shrink(mask), count_holes(mask), black.width / black.height))
    return out


def _lines(picture: Image.Image) -> list[list[int]]:
    data = list(picture.getdata())
    return [data[y * picture.width : (y + 1) * picture.width] for y in range(picture.height)]


def cluster(points: list[tuple[list[int], int, float]], count: int) -> list[tuple[list[int], int, float]]:
    """k-medians by hand: a few hundred points, a few rounds."""
    middles = random.sample(points, min(count, len(points)))
    for _ in range(12):
        groups: list[list[tuple[list[int], int, float]]] = [[] for _ in middles]
        for p in points:
            distance = [sum(abs(a - b) for a, b in zip(p[0], m[0])) + 150 * abs(p[1] - m[1]) for m in middles]
            groups[distance.index(min(distance))].append(p)
        middles = [_middle(g) for g in groups if len(g) > 1]
    return middles


def _middle(group: list[tuple[list[int], int, float]]) -> tuple[list[int], int, float]:
    half = len(group) // 2
    cells = [sorted(p[0][i] for p in group)[half] for i in range(len(group[0][0]))]
    return cells, sorted(p[1] for p in group)[half], sorted(p[2] for p in group)[half]


def main() -> None:
    random.seed(7)
    fonts = [""]
    for folder in sys.argv[1:]:
        fonts += sorted(str(p) for p in Path(folder).rglob("*") if p.suffix.lower() in (".ttf", ".otf"))
    print("# Copyright: modelfleet contributors")
    print("# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)")
    print("# SPDX-License-Identifier: GPL-3.0-or-later")
    print('"""Prototypes of the ten digits, made by ``learn_digits.py``: digit, holes, slimness, cells in hex."""\n')
    print(f'COLUMNS, ROWS = {COLUMNS}, {ROWS}\n_LEARNED = """')
    for digit in "0123456789":
        for cells, holes, slim in cluster(samples(digit, fonts), PER_DIGIT):
            print(digit, holes, f"{slim:.2f}", "".join(f"{c:x}" for c in cells))
    print('"""')
    print("PROTOTYPES = [")
    print("    (line.split()[0], int(line.split()[1]), float(line.split()[2]), [int(c, 16) for c in line.split()[3]])")
    print("    for line in _LEARNED.strip().splitlines()\n]")


if __name__ == "__main__":
    main()
