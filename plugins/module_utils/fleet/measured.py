# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stacks of a host really took at their last good start, beside what the inventory gives them.

A receipt has the engine's own figures for one card (weights, graphs, KV cache) and what the card had less after the
start. The rest of that is CUDA's context and what the engine keeps beside. A share also covers the peak while it
profiles, which it gives back: a smaller share may come off the KV cache only, and not below the model's floor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping, Optional, Sequence

from .gpus import Card

GIB_MIB = 1024


@dataclass(frozen=True)
class Measured:
    """One stack on one of its cards. GiB; None where nobody measured."""

    stack: str
    gpu: int
    share: Optional[float]
    took: Optional[float]
    weights: Optional[float]
    graphs: Optional[float]
    kv: Optional[float]
    kv_tokens: Optional[int]
    length: Optional[int]  # tokens of the longest request
    rest: Optional[float]  # CUDA context and more
    peak: Optional[float]  # what the share covered beside all these: given back, but without it the engine cannot start
    least_share: Optional[float]  # still has KV cache for one request of that length, and the model's floor

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def read(
    receipts: Sequence[Mapping[str, Any]], cards: Sequence[Card], floors: Mapping[str, int] = MappingProxyType({})
) -> list[Measured]:
    """Every stack with a receipt, on each of its cards. ``floors``: ``memory_floor`` of its model, bytes, by stack."""
    totals = {card.index: card.cuda_total_mib for card in cards}
    return [
        _measured(receipt, entry, totals.get(entry["gpu"]), floors.get(receipt["stack"], 0))
        for receipt in receipts
        for entry in receipt.get("memory") or ()
    ]


def _measured(receipt: Mapping[str, Any], entry: Mapping[str, Any], total_mib: Optional[int], floor: int) -> Measured:
    engine = receipt.get("engine") or {}
    weights, graphs, kv = (engine.get(name) for name in ("weights_gib", "graph_capture_gib", "kv_cache_gib"))
    took = None if entry.get("took_mib") is None else entry["took_mib"] / GIB_MIB
    rest = None if took is None or weights is None or kv is None else max(0.0, took - weights - (graphs or 0.0) - kv)
    share, tokens, length = receipt.get("share"), engine.get("kv_cache_tokens"), engine.get("max_model_len")
    least = peak = None
    # With a fixed KV cache the share decides nothing but whether the engine may start.
    if share and kv and total_mib and not receipt.get("kv_cache"):
        if weights is not None and rest is not None:
            peak = max(0.0, share * total_mib / GIB_MIB - kv - weights - rest)
        if tokens and length:
            spare = kv * (1 - min(1.0, length / tokens)) * GIB_MIB / total_mib
            of_floor = floor / len(receipt["memory"]) / 2**20 / total_mib
            least = math.ceil(max(share - spare, min(share, of_floor)) * 100 - 1e-9) / 100
    stack = receipt["stack"]
    return Measured(stack, entry["gpu"], share, took, weights, graphs, kv, tokens, length, rest, peak, least)


def report(measured: Sequence[Measured], cards: Sequence[Card], wanted: Mapping[str, Optional[float]]) -> list[str]:
    """For a person: each card, then its stacks. ``wanted``: the shares of the inventory by stack."""
    lines = []
    for card in cards:
        here = [one for one in measured if one.gpu == card.index]
        if not here and card.processes == ():
            continue
        lines.append(_card(card, here))
        lines += [f"  {line}" for one in here for line in _stack(one, wanted)]
    missing = sorted(set(wanted) - {one.stack for one in measured})
    if missing:
        lines.append(f"not measured yet: {', '.join(missing)}")
    return lines


def _card(card: Card, here: Sequence[Measured]) -> str:
    text = f"GPU {card.index} {card.name}"
    total, free = card.cuda_total_mib, card.free_mib
    if not total or free is None:
        return f"{text}: reports no memory"
    shares = sum(one.share or 0.0 for one in here)
    most = math.floor(free / total * 100) / 100
    text += f": {total / GIB_MIB:.1f} GiB, shares {shares:.2f}, free now {free / GIB_MIB:.1f} GiB"
    text += f": a share of up to {most:.2f} could start beside them"
    least = sum(one.least_share or one.share or 0.0 for one in here)
    if least < shares:
        text += f", {max(most, math.floor((most + shares - least) * 100 + 1e-6) / 100):.2f} with the least shares below"
    return text


def _stack(one: Measured, wanted: Mapping[str, Optional[float]]) -> list[str]:
    share = "no share" if one.share is None else f"share {one.share:.2f}"
    if wanted.get(one.stack, one.share) != one.share:
        share += f" (the inventory now says {wanted[one.stack]})"
    parts = [("weights", one.weights), ("graphs", one.graphs), ("KV cache", one.kv), ("context and more", one.rest)]
    said = ", ".join(f"{name} {size:.2f}" for name, size in parts if size is not None)
    took = "not measured" if one.took is None else f"took {one.took:.2f} GiB"
    if one.peak:
        said += f"; {one.peak:.2f} more for the peak at its start"
    lines = [f"{one.stack}: {share}, {took}: {said or 'the engine named no figures'}"]
    if one.kv_tokens and one.length:
        fits = one.kv_tokens / one.length
        text = f"    {one.kv_tokens:,} tokens of KV cache are {fits:.1f} requests of {one.length:,}"
        if one.least_share is not None and one.share is not None and one.least_share < one.share:
            text += f"; one fits with a share of {one.least_share:.2f}"
        lines.append(text)
    return lines
