# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which troubles this engine has now. README.md lists them; engine.py acts on them.

From the environment (``SIM_FAULT=name,name=value``), or, stronger, from a file of the host that may change while the
engine runs: ``<gpu folder>/faults/<served model name, SIM_NAME or host name>``. A file that says ``none`` switches the
environment's faults off. ``once:name`` happens one time on this host and never again until the mark is removed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable, Mapping, Optional

KNOWN = {
    "slow", "crash_at", "exit0", "restart_loop", "oom_killed", "hang", "dead_engine", "unhealthy", "wrong_model",
    "blind", "garbage", "mojibake", "vision_garbage", "empty_content", "empty_answer", "tool_call_lost", "kv_small",
    "kv_quarter", "race", "disk_full", "port_taken", "no_chat_template", "no_tokenizer", "last_words", "stuck",
    "ignore_sigterm",
}  # fmt: skip
PHASES = ("config", "engine", "weights", "profiling", "kv_cache", "graphs", "serving")


class UnknownFault(ValueError):
    """A name that is not in KNOWN: a test that asks for it would silently test nothing."""


class Faults:
    def __init__(self, folder: Path, names: Iterable[str], environment: Mapping[str, str]) -> None:
        self.folder = folder / "faults"
        self.names = [n.replace("/", "_") for n in names if n]
        self.fixed = environment.get("SIM_FAULT", "")
        self.live: Optional[str] = None  # set by POST /sim/fault, the strongest

    def now(self) -> dict[str, str]:
        """Active faults with their values. Raises UnknownFault."""
        text = self.live if self.live is not None else self._from_file()
        return self._parse(self.fixed if text is None else text)

    def has(self, name: str) -> bool:
        return name in self.now()

    def spend(self, name: str) -> None:
        """Remember that a fault asked for ``once`` has happened."""
        mark = self._mark(name)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def _from_file(self) -> Optional[str]:
        for name in self.names:
            try:
                return (self.folder / name).read_text()
            except OSError:
                continue
        return None

    def _mark(self, name: str) -> Path:
        folder = self.folder if self.folder.is_dir() else Path("/tmp")
        return folder / ".spent" / f"{self.names[0] if self.names else os.uname().nodename}.{name}"

    def _parse(self, text: str) -> dict[str, str]:
        found = {}
        for word in text.replace("\n", ",").split(","):
            name, _, value = word.strip().partition("=")
            once = name.startswith("once:")
            name = name[5:] if once else name
            if not name or name == "none":
                continue
            if name not in KNOWN:
                raise UnknownFault(f"unknown fault {name!r}; known: {', '.join(sorted(KNOWN))}")
            if name == "crash_at" and value not in PHASES:
                raise UnknownFault(f"crash_at={value!r}; phases: {', '.join(PHASES)}")
            if not (once and self._mark(name).exists()):
                found[name] = value
        return found
