# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person reads of a rollout: the message of a failure and the differences of files, without a secret."""

from __future__ import annotations

import re
import textwrap
from typing import Any, Mapping, Sequence

from .drift import MANAGED, UNWANTED, Difference, LiveStack
from .rendered import RenderedStack

WIDTH = 110
LOG_ROWS = 5
# What was written by hand may hold a secret where none belongs.
_SECRET = re.compile(
    r"(\w*(?:TOKEN|PASSWORD|SECRET|API_KEY|ACCESS_KEY|CREDENTIAL)S?[\"']?\s*[:=]\s*)\S.*", re.IGNORECASE
)


def failure(host: str, stack: str, fact: Mapping[str, Any]) -> str:
    """About twelve lines: what happened, why, what to change, what shows it, how long it took, what runs now."""
    text = _wrapped(f"{host} {stack}: [{fact['code']}] {_clean(fact['what'])}", 4)
    for title in ("why", "change"):
        if fact.get(title):
            text += _wrapped(f"  {title}: {_clean(fact[title])}", 3)
    rows: list[str] = []
    for line in fact.get("lines") or ():
        # Two rows of a line: what is wrong often stands at its end.
        rows += textwrap.wrap(line, WIDTH, max_lines=2, placeholder=" …")
    text += [f"  | {row}" for row in rows[:LOG_ROWS]]
    after = fact.get("after") or "nothing was stopped"
    text += textwrap.wrap(
        f"  after {fact['seconds']} s: {after}", WIDTH, subsequent_indent="    ", break_on_hyphens=False
    )
    if fact.get("kept"):
        text.append(f"  kept: {fact['kept']} (files, log, answers)")
    return "\n".join(text)


def _wrapped(text: str, lines: int) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent="    ", max_lines=lines, placeholder=" …", break_on_hyphens=False
    )


def _clean(text: Any) -> str:
    return " ".join(str(text).split())


def diffs(rendered: RenderedStack, live: LiveStack, differences: Sequence[Difference]) -> list[dict[str, str]]:
    """For --diff: files before and after, and one block with what else of the stack differs."""
    found = []
    for name in (*MANAGED, *UNWANTED):
        wanted, there = rendered.files.get(name), live.files.get(name)
        before, after = there.content if there else "", wanted.content if wanted else ""
        if before == after:
            continue
        if name == ".env" or (wanted and wanted.secret):
            before, after = _names_only(before, after, "another"), _names_only(after, before, "the wanted one")
        before = _SECRET.sub(r"\1(not shown)", before)
        path = f"{rendered.directory}/{name}"
        found.append({"before_header": path, "after_header": path, "before": before, "after": after})
    rest = [one for one in differences if not one.item.startswith("file ") or one.item.endswith(" mode")]
    return [*found, *items(f"{rendered.name} on {rendered.host}", rest)]


def items(header: str, differences: Sequence[Difference]) -> list[dict[str, str]]:
    """For --diff: one block with what is no file; none where nothing differs."""
    if not differences:
        return []
    before = "".join(f"{one.item}: {one.have}\n" for one in differences)
    after = "".join(f"{one.item}: {one.want}\n" for one in differences)
    return [{"before_header": header, "after_header": header, "before": before, "after": after}]


def _names_only(text: str, other: str, marked: str) -> str:
    """The variables of a .env without values; a value that the other side does not have is marked."""
    known = set(other.splitlines())
    lines = []
    for line in text.splitlines():
        name, equals, _value = line.partition("=")
        if equals and not line.startswith("#"):
            lines.append(f"{name}=(not shown{'' if line in known else ', ' + marked})")
    return "".join(f"{line}\n" for line in lines)
