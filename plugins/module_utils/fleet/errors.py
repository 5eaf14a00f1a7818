# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the core has to say when something is wrong: one type, always with the place and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Iterable, Optional, Sequence

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One thing the inventory, the plan or a live host has wrong.

    ``code`` is stable (lower case, underscores) and is what tests, reports and people's scripts match on.
    ``place`` says where to edit: ``host_vars of ana-ml2: fleet_stacks[2].gpus``.
    ``problem`` says what is wrong, with the value; ``remedy`` says what to change.
    """

    code: str
    place: str
    problem: str
    remedy: str
    severity: str = ERROR
    host: Optional[str] = None
    stack: Optional[str] = None

    def __str__(self) -> str:
        return f"{self.place}: {self.problem} {self.remedy} [{self.code}]"


class FleetError(Exception):
    """The only exception the core raises on purpose. It carries every finding at once, never only the first."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that forbid a run; the others are warnings."""
    return [finding for finding in findings if finding.severity == ERROR]


def nearest(word: str, known: Iterable[str]) -> Optional[str]:
    """The known word somebody most likely meant, or None when nothing is close."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
