# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes of memory as people write them, with a unit, and as the core counts them, in bytes."""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

UNITS = {
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_UNIT_BY_LOWER = {name.lower(): name for name in UNITS}


class SizeError(ValueError):
    """Not a size: ``problem`` says why, ``remedy`` what to write instead."""

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        self.code, self.problem, self.remedy = code, problem, remedy
        super().__init__(f"{problem} {remedy}")


def parse_size(text: object) -> int:
    """Bytes of ``"34 GiB"``. A SizeError (a ValueError) for anything else, above all for a number without a unit."""
    match = _SIZE.fullmatch(str(text)) if isinstance(text, (str, int, float)) and not isinstance(text, bool) else None
    if match is None:
        raise SizeError("bad_size", f"{text!r} is not a size.", 'Write a number and a unit, such as "34 GiB".')
    number, unit = match.groups()
    if not unit:
        problem = f"{number} has no unit, so it could be bytes, MiB or GiB."
        raise SizeError("size_without_unit", problem, f'Write the unit, such as "{number} GiB" or "{number} MiB".')
    if unit not in UNITS:
        meant = _UNIT_BY_LOWER.get(unit.lower()) or _UNIT_BY_LOWER.get(f"{unit.lower()}ib")
        hint = f'Did you mean "{number} {meant}"? ' if meant else ""
        raise SizeError("bad_size", f'"{unit}" is not a unit of memory.', f"{hint}Known: {', '.join(UNITS)}.")
    return round(float(number) * UNITS[unit])


def format_size(size: int) -> str:
    """``"34.00 GiB"``: two decimals in GiB, the unit in which engines and people talk about cards."""
    if abs(size) < GIB // 10:
        return f"{size / MIB:.0f} MiB"
    return f"{size / GIB:.2f} GiB"
