# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One program, run to its end. That it is missing or hangs is an outcome, not an exception."""

from __future__ import annotations

import subprocess
from typing import Mapping, NamedTuple, Optional, Sequence

SECONDS = 60.0
MISSING, HANGS = 127, 124


class Outcome(NamedTuple):
    status: int  # its exit status; MISSING; HANGS
    output: str
    errors: str = ""  # empty where they stand in the output, in their turn

    @property
    def ok(self) -> bool:
        return self.status == 0


def run(
    words: Sequence[str],
    seconds: Optional[float] = SECONDS,
    *,
    together: bool = False,
    folder: Optional[str] = None,
    environment: Optional[Mapping[str, str]] = None,
) -> Outcome:
    """``seconds``: when it counts as hanging and is ended; None waits for ever. ``together``: errors in the output."""
    try:
        done = subprocess.run(
            list(words),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as error:
        return _failed(MISSING, f"{error.filename} is not there", together)
    except subprocess.TimeoutExpired:
        return _failed(HANGS, f"{' '.join(words[:2])} did not end within {seconds:g} s", together)
    return Outcome(done.returncode, done.stdout, done.stderr or "")


def _failed(status: int, why: str, together: bool) -> Outcome:
    return Outcome(status, why) if together else Outcome(status, "", why)
