# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated engine's eyes: pixels in, what is drawn out.

It knows nothing of the program that drew the picture. It decodes the PNG, parts the figures from the background,
reads digits by likeness to many typefaces (``glyphs``), names colours by their place in the colour cube and shapes by
their outline. Standard library only, fast enough for pictures of a few hundred pixels a side.
"""

from __future__ import annotations

import cmath
import math
import struct
import zlib
from dataclasses import dataclass, field

from glyphs import COLUMNS, PROTOTYPES, ROWS

Rgb = tuple[int, int, int]


class NotAPicture(ValueError):
    """The bytes are no picture this engine can decode."""


# ---------------------------------------------------------------------------------------------- PNG
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def decode_png(data: bytes) -> list[list[Rgb]]:
    """Rows of RGB pixels of an 8-bit, not interlaced PNG of any colour type; transparent parts become white."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise NotAPicture("not a PNG")
    at, palette, clear, packed, header = 8, b"", b"", b"", None
    while at + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if len(body) < size or zlib.crc32(kind + body) != struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0]:
            raise NotAPicture(f"chunk {kind!r} is damaged")
        at += 12 + size
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"PLTE":
            palette = body
        elif kind == b"tRNS":
            clear = body
        elif kind == b"IDAT":
            packed += body
        elif kind == b"IEND":
            break
    if header is None:
        raise NotAPicture("no header")
    width, height, depth, colour, _, _, interlaced = header
    if depth != 8 or interlaced or colour not in CHANNELS or not 0 < width * height <= 1 << 26:
        raise NotAPicture("only 8-bit pictures that are not interlaced")
    step = CHANNELS[colour]
    stride = width * step
    try:
        raw = zlib.decompress(packed)
    except zlib.error as error:
        raise NotAPicture(str(error)) from None
    if len(raw) < height * (stride + 1):
        raise NotAPicture("image file is truncated")
    rows, before = [], bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        before = _unfilter(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, step)
        rows.append(_pixels(before, colour, palette, clear))
    return rows


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    if kind == 1:
        for i in range(step, len(line)):
            line[i] = (line[i] + line[i - step]) & 255
    elif kind == 2:
        for i in range(len(line)):
            line[i] = (line[i] + above[i]) & 255
    elif kind == 3:
        for i in range(len(line)):
            left = line[i - step] if i >= step else 0
            line[i] = (line[i] + (left + above[i]) // 2) & 255
    elif kind == 4:
        for i in range(len(line)):
            left, up, corner = (line[i - step], above[i], above[i - step]) if i >= step else (0, above[i], 0)
            guess = left + up - corner
            a, b, c = abs(guess - left), abs(guess - up), abs(guess - corner)
            line[i] = (line[i] + (left if a <= b and a <= c else up if b <= c else corner)) & 255
    elif kind:
        raise NotAPicture(f"unknown filter {kind}")
    return line


def _pixels(line: bytearray, colour: int, palette: bytes, clear: bytes) -> list[Rgb]:
    if colour == 2:
        return list(zip(line[0::3], line[1::3], line[2::3]))
    if colour == 0:
        return [(v, v, v) for v in line]
    if colour == 3:
        table = [(*palette[3 * i : 3 * i + 3], clear[i] if i < len(clear) else 255) for i in range(len(palette) // 3)]
        if line and max(line) >= len(table):
            raise NotAPicture("a pixel outside the palette")
        return [_over_white(*table[v]) for v in line]
    if colour == 4:
        return [_over_white(v, v, v, a) for v, a in zip(line[0::2], line[1::2])]
    return [_over_white(*p) for p in zip(line[0::4], line[1::4], line[2::4], line[3::4])]


def _over_white(r: int, g: int, b: int, a: int) -> Rgb:
    if a == 255:
        return (r, g, b)
    return tuple((v * a + 255 * (255 - a)) // 255 for v in (r, g, b))  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------- figures
@dataclass
class Figure:
    """One connected patch that is not background. ``runs`` are (y, x from, x until) in pixels of the picture."""

    runs: list[tuple[int, int, int]]
    rgb: Rgb = (0, 0, 0)
    area: int = 0
    left: int = 0
    top: int = 0
    right: int = 0  # first column that is outside
    bottom: int = 0  # first row that is outside

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    def mask(self) -> list[bytearray]:
        rows = [bytearray(self.width) for _ in range(self.height)]
        for y, a, b in self.runs:
            rows[y - self.top][a - self.left : b - self.left] = b"\1" * (b - a)
        return rows


@dataclass
class Scene:
    """What one picture shows."""

    digits: str = ""
    shapes: list[tuple[str, str]] = field(default_factory=list)  # (colour, shape), largest first
    digit_colour: str = ""


LARGEST_SIDE = 320  # above it every second, third, ... pixel is looked at
CONTRAST = 96  # sum over the channels from which a pixel is not background


def look(data: bytes) -> Scene:
    """Describe a PNG. Raises NotAPicture."""
    rows = decode_png(data)
    stride = max(1, math.ceil(max(len(rows), len(rows[0])) / LARGEST_SIDE))
    if stride > 1:
        rows = [row[::stride] for row in rows[::stride]]
    figures = _figures(rows)
    number, used = _number(figures)
    scene = Scene(digits=number)
    if used:
        scene.digit_colour = colour_name(used[0].rgb)
    rest = [f for f in figures if f not in used and f.area * 300 >= len(rows) * len(rows[0])]
    for figure in sorted(rest, key=lambda f: -f.area):
        scene.shapes.append((colour_name(figure.rgb), shape_name(figure)))
    if not scene.shapes and figures:
        # A lone upright bar may be a one or a rectangle: keep both readings, the question decides.
        largest = max(figures, key=lambda f: f.area)
        scene.shapes.append((colour_name(largest.rgb), shape_name(largest)))
    return scene


def _figures(rows: list[list[Rgb]]) -> list[Figure]:
    width = len(rows[0])
    edge = rows[0] + rows[-1] + [row[0] for row in rows] + [row[-1] for row in rows]
    ground = [sorted(p[i] for p in edge)[len(edge) // 2] for i in range(3)]
    r0, g0, b0 = ground
    labels: list[int] = []  # union-find over runs

    def root(i: int) -> int:
        while labels[i] != i:
            labels[i] = labels[labels[i]]
            i = labels[i]
        return i

    runs: list[tuple[int, int, int]] = []
    before: list[int] = []
    for y, row in enumerate(rows):
        now: list[int] = []
        x = 0
        inside = [abs(r - r0) + abs(g - g0) + abs(b - b0) > CONTRAST for r, g, b in row]
        while x < width:
            if not inside[x]:
                x += 1
                continue
            start = x
            while x < width and inside[x]:
                x += 1
            number = len(runs)
            runs.append((y, start, x))
            labels.append(number)
            now.append(number)
            for other in before:
                if runs[other][1] <= x and runs[other][2] >= start:  # diagonal neighbours count
                    labels[root(number)] = root(other)
        before = now
    groups: dict[int, Figure] = {}
    for number, run in enumerate(runs):
        groups.setdefault(root(number), Figure([])).runs.append(run)
    figures = []
    for figure in groups.values():
        figure.area = sum(b - a for _, a, b in figure.runs)
        figure.left, figure.right = min(a for _, a, _ in figure.runs), max(b for _, _, b in figure.runs)
        figure.top, figure.bottom = figure.runs[0][0], figure.runs[-1][0] + 1
        if figure.area >= 5 and figure.height >= 4:
            figure.rgb = _colour(rows, figure, tuple(ground))  # type: ignore[arg-type]
            figures.append(figure)
    return figures


def _colour(rows: list[list[Rgb]], figure: Figure, ground: Rgb) -> Rgb:
    """The colour of the figure's inside: the pixels farthest from the background, so that soft edges do not count."""
    pixels = [p for y, a, b in figure.runs for p in rows[y][a:b]]
    pixels.sort(key=lambda p: -sum(abs(v - g) for v, g in zip(p, ground)))
    core = pixels[: max(1, len(pixels) * 3 // 4)]
    return tuple(sorted(p[i] for p in core)[len(core) // 2] for i in range(3))  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------- digits
def _number(figures: list[Figure]) -> tuple[str, list[Figure]]:
    """The longest row of figures of one height that all look like digits, and those figures."""
    best: tuple[float, str, list[Figure]] = (0.0, "", [])
    for seed in figures:
        row = [
            f
            for f in figures
            if abs(f.height - seed.height) <= 0.22 * seed.height + 1
            and abs(f.top - seed.top) <= 0.3 * seed.height + 1
            and f.width <= 1.35 * f.height
        ]
        row.sort(key=lambda f: f.left)
        read = [(f, *read_digit(f)) for f in row]
        read = [r for r in read if r[2] < UNLIKE]
        # A solid patch alone is a shape; a row of solid patches is not a number either.
        if not read or (len(read) == 1 and _fill(read[0][0]) > 0.8 and read[0][0].width > 0.45 * read[0][0].height):
            continue
        score = sum(UNLIKE - r[2] for r in read)
        if score > best[0]:
            best = (score, "".join(r[1] for r in read), [r[0] for r in read])
    return best[1], best[2]


UNLIKE = 0.34  # mean difference from the nearest prototype above which a figure is no digit


def _fill(figure: Figure) -> float:
    return figure.area / (figure.width * figure.height)


def read_digit(figure: Figure) -> tuple[str, float]:
    """The digit a figure looks most like, and how unlike it is (0: same)."""
    grid = shrink(figure.mask())
    holes = count_holes(figure.mask())
    slim = figure.width / figure.height
    best = ("", 9.0)
    for digit, its_holes, its_slim, prototype in PROTOTYPES:
        unlike = sum(abs(a - b) for a, b in zip(grid, prototype)) / (15 * len(grid))
        unlike += 0.10 * abs(holes - its_holes) + 0.12 * min(1.0, abs(slim - its_slim))
        if unlike < best[1]:
            best = (digit, unlike)
    return best


def shrink(mask: list[bytearray]) -> list[int]:
    """The mask stretched to ROWS x COLUMNS cells, each 0..15 by how much of it is covered."""
    height, width = len(mask), len(mask[0])
    cells = []
    for j in range(ROWS):
        y0, y1 = j * height / ROWS, (j + 1) * height / ROWS
        for i in range(COLUMNS):
            x0, x1 = i * width / COLUMNS, (i + 1) * width / COLUMNS
            covered = 0.0
            for y in range(int(y0), min(height, math.ceil(y1))):
                part = min(y + 1, y1) - max(y, y0)
                line = mask[y]
                for x in range(int(x0), min(width, math.ceil(x1))):
                    if line[x]:
                        covered += part * (min(x + 1, x1) - max(x, x0))
            cells.append(round(15 * covered / ((y1 - y0) * (x1 - x0))))
    return cells


def count_holes(mask: list[bytearray]) -> int:
    """Enclosed background areas of at least 1 % of the box (smaller ones are noise)."""
    height, width = len(mask), len(mask[0])
    grid = [bytearray(width + 2)] + [bytearray(1) + row + bytearray(1) for row in mask] + [bytearray(width + 2)]
    holes = 0
    for y0 in range(height + 2):
        for x0 in range(width + 2):
            if grid[y0][x0]:
                continue
            grid[y0][x0], todo, size = 2, [(y0, x0)], 0
            while todo:
                y, x = todo.pop()
                size += 1
                for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                    if 0 <= v < height + 2 and 0 <= u < width + 2 and not grid[v][u]:
                        grid[v][u] = 2
                        todo.append((v, u))
            if (y0, x0) != (0, 0) and size >= max(1, height * width / 100):
                holes += 1
    return holes


# ---------------------------------------------------------------------------------------------- colours
CUBE = {  # lowest and highest value per channel; the plain CSS colours lie inside
    "red": ((170, 0, 0), (255, 60, 60)),
    "green": ((0, 95, 0), (85, 255, 95)),
    "blue": ((0, 0, 150), (80, 125, 255)),
    "yellow": ((220, 195, 0), (255, 255, 95)),
    "orange": ((225, 110, 0), (255, 172, 50)),
    "purple": ((90, 0, 105), (165, 60, 200)),
    "pink": ((235, 95, 150), (255, 205, 220)),
    "black": ((0, 0, 0), (45, 45, 45)),
    "white": ((222, 222, 222), (255, 255, 255)),
    "grey": ((95, 95, 95), (190, 190, 190)),
    "brown": ((95, 45, 10), (165, 85, 45)),
    "cyan": ((0, 180, 180), (90, 255, 255)),
}


def colour_name(rgb: Rgb) -> str:
    """The name whose part of the colour cube is nearest."""

    def away(name: str) -> tuple[int, int]:
        low, high = CUBE[name]
        outside = sum(max(0, a - v, v - b) for v, a, b in zip(rgb, low, high))
        return outside, sum(abs(2 * v - a - b) for v, a, b in zip(rgb, low, high))

    return min(CUBE, key=away)


# ---------------------------------------------------------------------------------------------- shapes
Point = tuple[float, float]


def shape_name(figure: Figure) -> str:
    """circle, square, rectangle, diamond, triangle, star or cross, by the outline."""
    corners = [p for y, a, b in figure.runs for p in ((a, y), (b, y), (a, y + 1), (b, y + 1))]
    hull = _hull(corners)
    around = _area(hull)
    if figure.area < 0.86 * around:
        return _spiky(figure)
    if _largest_triangle(hull) > 0.82 * figure.area:
        return "triangle"
    length, breadth, angle = _tightest_box(hull)
    if figure.area > 0.88 * length * breadth:
        tilt = abs((math.degrees(angle) + 45) % 90 - 45)  # 0: upright, 45: on its corner
        if length > 1.3 * breadth:
            return "rectangle"
        return "diamond" if tilt > 25 else "square"
    cx, cy = sum(x for x, _ in hull) / len(hull), sum(y for _, y in hull) / len(hull)
    reach = max(math.hypot(x - cx, y - cy) for x, y in hull)
    if figure.area > 0.86 * math.pi * reach * reach:
        return "circle"
    if figure.area < 0.62 * figure.width * figure.height:
        return "diamond"
    return "circle"


def _spiky(figure: Figure) -> str:
    """A star has five arms, a cross four: the stronger harmonic of the outline's distance from the middle."""
    n = figure.area
    cx = sum((a + b) / 2 * (b - a) for _, a, b in figure.runs) / n
    cy = sum((y + 0.5) * (b - a) for y, a, b in figure.runs) / n
    reach = [0.0] * 60
    for y, a, b in figure.runs:
        for x in (a, b):
            angle = math.atan2(y + 0.5 - cy, x - cx)
            i = int((angle / (2 * math.pi) + 0.5) * 60) % 60
            reach[i] = max(reach[i], math.hypot(x - cx, y + 0.5 - cy))
    for i in range(60):
        if not reach[i]:
            reach[i] = max(reach[i - 1], reach[(i + 1) % 60])

    def power(k: int) -> float:
        return abs(sum(r * cmath.exp(-2j * math.pi * k * i / 60) for i, r in enumerate(reach)))

    arms = max((3, 4, 5, 6), key=power)
    return {4: "cross", 5: "star", 6: "star"}.get(arms, "triangle")


def _hull(points: list[tuple[int, int]]) -> list[Point]:
    ordered = sorted(set(points))

    def half(line: list[tuple[int, int]]) -> list[tuple[int, int]]:
        out: list[tuple[int, int]] = []
        for p in line:
            while len(out) > 1 and (out[-1][0] - out[-2][0]) * (p[1] - out[-2][1]) <= (out[-1][1] - out[-2][1]) * (
                p[0] - out[-2][0]
            ):
                out.pop()
            out.append(p)
        return out[:-1]

    return [(float(x), float(y)) for x, y in half(ordered) + half(ordered[::-1])]


def _area(polygon: list[Point]) -> float:
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(polygon, polygon[1:] + polygon[:1]))) / 2


def _largest_triangle(hull: list[Point]) -> float:
    points = hull[:: max(1, len(hull) // 24)]
    n = len(points)
    return max(
        (_area([points[i], points[j], points[k]]) for i in range(n) for j in range(i + 1, n) for k in range(j + 1, n)),
        default=0.0,
    )


def _tightest_box(hull: list[Point]) -> tuple[float, float, float]:
    """Longer side, shorter side and angle of the smallest rectangle around the hull."""
    best = (math.inf, 0.0, 0.0, 0.0)
    for degree in range(0, 90, 3):
        angle = math.radians(degree)
        c, s = math.cos(angle), math.sin(angle)
        us, vs = [x * c + y * s for x, y in hull], [y * c - x * s for x, y in hull]
        u, v = max(us) - min(us), max(vs) - min(vs)
        if u * v < best[0]:
            best = (u * v, max(u, v), min(u, v), angle)
    return best[1], best[2], best[3]
