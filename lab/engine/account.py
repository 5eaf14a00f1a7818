# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated cards' account: who holds how many MiB.

``<folder>/cards.json`` lists the cards; ``<folder>/claims/*.json`` are claims. A claim counts while the process that
made it keeps its file locked, so the memory of a killed engine is free again by itself, as on a real card.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence


@dataclass(frozen=True)
class Card:
    index: int
    uuid: str
    name: str
    total: int  # MiB that CUDA sees: memory.total minus memory.reserved
    capability: str
    minor: int  # of the device node /dev/nvidia<minor>


class OutOfMemory(Exception):
    """The card has less free memory than was asked for."""


def cards(folder: Path) -> list[Card]:
    listed = json.loads((folder / "cards.json").read_text())
    if isinstance(listed, Mapping):
        listed = listed["cards"]
    return [
        Card(
            index=int(c["index"]),
            uuid=str(c["uuid"]),
            name=str(c["name"]),
            total=int(c["memory_total_mib"]) - int(c.get("memory_reserved_mib", 0)),
            capability=str(c.get("compute_cap", "")),
            minor=int(c.get("minor", c["index"])),
        )
        for c in listed
    ]


def visible(every: Sequence[Card], environment: Mapping[str, str], nodes: Path = Path("/dev")) -> list[Card]:
    """The cards this process may use, in the order it was given them."""
    wanted = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if wanted in ("", "void", "none"):
        # CDI says "void" and hands over device nodes instead.
        chosen = [card for card in every if (nodes / f"nvidia{card.minor}").exists()]
    else:
        chosen = list(every) if wanted == "all" else [_pick(every, word.strip()) for word in wanted.split(",")]
    inner = environment.get("CUDA_VISIBLE_DEVICES")
    if inner is not None:
        # Engines parse this variable as numbers: a UUID here raises the ValueError that people report.
        chosen = [chosen[int(word)] for word in inner.split(",") if int(word) < len(chosen)]
    return chosen


def _pick(every: Sequence[Card], word: str) -> Card:
    for card in every:
        if word == str(card.index) or (word.startswith("GPU-") and card.uuid.startswith(word)):
            return card
    raise LookupError(f"no card {word}")


class Claim:
    """What this process holds on one card. Freed by ``close`` or by the end of the process."""

    def __init__(self, folder: Path, card: Card, name: str) -> None:
        self.folder, self.card, self.name, self.held = folder, card, name, 0
        claims = folder / "claims"
        claims.mkdir(parents=True, exist_ok=True)
        self.path = claims / f"{os.uname().nodename}-{os.getpid()}-{card.index}.json"
        fresh = self.path.with_suffix(".new")
        self.file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        fcntl.flock(self.file, fcntl.LOCK_EX)  # before the name exists: nobody may ever see it unlocked
        self._write()
        fresh.rename(self.path)

    def take(self, mib: int) -> None:
        """Hold ``mib`` more. Raises OutOfMemory when the card has not that much free."""
        with _exclusive(self.folder):
            if mib > free(self.folder, self.card):
                raise OutOfMemory
            self.held += mib
            self._write()

    def give(self, mib: int) -> None:
        self.held -= mib
        self._write()

    def close(self) -> None:
        with suppress(FileNotFoundError):
            self.path.unlink()
        os.close(self.file)

    def _write(self) -> None:
        body: dict[str, Any] = {"gpu": self.card.index, "mib": self.held, "name": self.name}
        # One write of fixed length: a reader sees the old or the new text, never half of it.
        os.pwrite(self.file, json.dumps(body).ljust(160).encode(), 0)


def used(folder: Path, card: Card) -> int:
    """MiB that living processes hold on a card."""
    total = 0
    for path in (folder / "claims").glob("*.json"):
        try:
            with path.open("rb") as file:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    continue  # nobody holds it: its process has ended
                claim = json.loads(file.read())
        except (FileNotFoundError, ValueError):
            continue
        if claim.get("gpu") in (card.index, card.uuid):
            total += int(claim["mib"])
    return total


def free(folder: Path, card: Card) -> int:
    """MiB free on a card, as CUDA would say."""
    return max(0, card.total - used(folder, card))


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    with (folder / "claims" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
