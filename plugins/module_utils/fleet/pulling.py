# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a pull is, from the events of the daemon."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

_DONE = ("Already exists", "Pull complete")
# Extracting takes about as long as the download on a server's network; each counts half.
_HALVES = {"Downloading": 0.0, "Verifying Checksum": 0.5, "Download complete": 0.5, "Extracting": 0.5}


@dataclass(frozen=True)
class PullProgress:
    """``percent`` never goes back, although layers become known one after another."""

    layers: Mapping[str, tuple[float, int]] = field(default_factory=dict)  # id -> part done, bytes (1: unknown)
    percent: int = 0

    def after(self, event: Mapping[str, Any]) -> PullProgress:
        layer, status = event.get("id"), str(event.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return self
        detail = event.get("progressDetail") or {}
        part, size = self.layers.get(layer, (0.0, 1))
        if status in _DONE:
            part = 1.0
        elif status in _HALVES:
            total = int(detail.get("total") or 0)
            size = max(size, total) if status == "Downloading" else size
            part = max(part, _HALVES[status] + (0.5 * int(detail.get("current") or 0) / total if total else 0.0))
        layers = {**self.layers, layer: (min(part, 1.0), size)}
        done = sum(fraction * weight for fraction, weight in layers.values())
        percent = int(100 * done / sum(weight for _fraction, weight in layers.values()))
        return PullProgress(layers, max(self.percent, min(percent, 100)))
