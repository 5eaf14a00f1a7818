# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU memory arithmetic: bytes in, verdict out, with the sum written down.

Two rules of vLLM decide everything here. ``gpu_memory_utilization`` is a share of CUDA's total, which is nvidia-smi's
``memory.total`` minus ``memory.reserved``. And the engine demands ``free >= share x total`` at the moment it starts,
whatever it uses later; a fixed KV cache changes what it takes, not what it demands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Sequence

from .sizes import MIB, format_size

# What the first process on a card costs beside what it allocates; measured on an H200 with driver 580.
CUDA_CONTEXT = 520 * MIB
# memory.reserved / memory.total of an H200 (616 of 143771 MiB): for cards nobody has looked at yet.
RESERVED_SHARE = 616 / 143771
# vLLM's own default of gpu_memory_utilization.
DEFAULT_SHARE = 0.92


def card_total(memory_total: int, memory_reserved: int) -> int:
    """CUDA's total in bytes, from nvidia-smi's ``memory.total`` and ``memory.reserved``."""
    return max(0, memory_total - memory_reserved)


def needed(share: float, total: int) -> int:
    """What an engine with this share demands free at its start: rounded up, as vLLM does."""
    return math.ceil(total * share)


@dataclass(frozen=True)
class Holder:
    """A process that holds memory on a card."""

    used: int  # bytes
    pid: int = 0
    name: str = ""
    container: str = ""
    stack: str = ""  # our stack it belongs to, when it is one of ours
    orphan: bool = False  # an engine's process whose container is gone

    def __str__(self) -> str:
        who = f"stack {self.stack}" if self.stack else f"container {self.container}" if self.container else self.name
        notes = [f"pid {self.pid}"] if self.pid else []
        notes += ["orphaned engine process"] if self.orphan else []
        return " ".join([who or "a process", *([f"({', '.join(notes)})"] if notes else []), format_size(self.used)])


@dataclass(frozen=True)
class Card:
    """A card at one moment. All memory in bytes; ``total`` is CUDA's, 0 when the card reports none."""

    index: int
    total: int
    free: int
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What a stack wants from each of its cards."""

    stack: str
    share: Optional[float] = None  # None: the engine's default
    kv_cache: Optional[int] = None  # bytes a card, instead of what the share leaves
    memory_floor: Optional[int] = None  # bytes of the whole model
    cards: int = 1

    @property
    def demanded_share(self) -> float:
        return DEFAULT_SHARE if self.share is None else self.share

    @property
    def floor(self) -> int:
        """Bytes below which the engine does not start, for each card."""
        return math.ceil((self.memory_floor or 0) / self.cards)

    def takes(self, total: int) -> int:
        """Bytes of a card that the running engine will hold."""
        if self.kv_cache is not None and (self.memory_floor is not None or self.share is None):
            return self.floor + self.kv_cache
        return needed(self.demanded_share, total)


@dataclass(frozen=True)
class Verdict:
    """Whether a claim can start on a card now. ``code`` is empty when it fits."""

    code: str
    stack: str
    card: int
    needed: int
    available: int
    arithmetic: str
    remedy: str = ""

    @property
    def fits(self) -> bool:
        return not self.code

    def __str__(self) -> str:
        return f"{self.arithmetic} {self.remedy}".rstrip()


def fits(claim: Claim, card: Card) -> Verdict:
    """Judge a start of ``claim`` on ``card`` now. What its own old container still holds there counts as free."""
    own = sum(holder.used for holder in card.holders if holder.stack == claim.stack)
    available = min(card.total, card.free + own)
    demand = needed(claim.demanded_share, card.total)
    share = f"{claim.demanded_share:.2f} x {format_size(card.total)} = {format_size(demand)}"

    def verdict(code: str, arithmetic: str, remedy: str = "", need: int = demand) -> Verdict:
        return Verdict(code, claim.stack, card.index, need, available, arithmetic, remedy)

    if card.total <= 0:
        return verdict("", f"GPU {card.index} reports no total memory, so the share cannot be judged.")
    below = below_floor(claim, card.total)
    if below:
        return verdict("below_memory_floor", *below, need=claim.floor)
    if claim.kv_cache is not None and claim.takes(card.total) > card.total:
        takes = claim.takes(card.total)
        parts = f"{format_size(claim.floor)} (floor) + {format_size(claim.kv_cache)} (kv_cache) = {format_size(takes)}"
        remedy = f"Set kv_cache to at most {format_size(max(0, card.total - claim.floor - CUDA_CONTEXT))}."
        return verdict("kv_cache_too_large", f"{parts}, GPU {card.index} has {format_size(card.total)}.", remedy, takes)
    freed = f" (of which {format_size(own)} is its own, which it gives back)" if own else ""
    if available < demand:
        arithmetic = f"needs {share} free at its start, GPU {card.index} has {format_size(available)}{freed}"
        foreign = [holder for holder in card.holders if holder.stack != claim.stack]
        held = f"; held by {', '.join(map(str, foreign))}" if foreign else ""
        return verdict("gpu_memory_not_free", f"{arithmetic}{held}.", _room(claim, card, available, foreign))
    after = available - claim.takes(card.total)
    return verdict("", f"needs {share}, free {format_size(available)}{freed}, leaves {format_size(after)}.")


def fits_all(claim: Claim, cards: Sequence[Card]) -> Verdict:
    """A tensor-parallel stack needs its share on every card: the first refusal, or the tightest card."""
    verdicts = [fits(claim, card) for card in cards]
    refused = next((verdict for verdict in verdicts if not verdict.fits), None)
    return refused or min(verdicts, key=lambda verdict: verdict.available - verdict.needed)


def below_floor(claim: Claim, total: int) -> Optional[tuple[str, str]]:
    """Arithmetic and remedy when the share can never hold the model, whatever is free; None when it can."""
    has = needed(claim.demanded_share, total)
    if claim.kv_cache is not None or has >= claim.floor or not total:
        return None
    split = f" ({format_size(claim.memory_floor or 0)} over {claim.cards} cards)" if claim.cards > 1 else ""
    arithmetic = (
        f"{claim.demanded_share:.2f} x {format_size(total)} = {format_size(has)}, "
        f"below the model's memory_floor of {format_size(claim.floor)}{split}."
    )
    share = math.ceil(100 * claim.floor / total) / 100
    if claim.floor + CUDA_CONTEXT > total:
        return arithmetic, "The model does not fit on this card: use a larger card or more of them."
    return arithmetic, f"Set gpu_memory_utilization to at least {share:.2f}."


def _room(claim: Claim, card: Card, available: int, foreign: Sequence[Holder]) -> str:
    orphans = [str(holder.pid) for holder in foreign if holder.orphan]
    if orphans:
        return f"End the orphaned engine process first (pid {', '.join(orphans)})."
    share = math.floor(100 * max(0, available - CUDA_CONTEXT) / card.total) / 100
    who = "Stop what holds the memory" if foreign else "Free the card"
    if share <= 0 or needed(share, card.total) < claim.floor:
        return f"{who}, or move the stack to another GPU: what is free is below what the model needs."
    return f"{who}, move the stack, or lower gpu_memory_utilization to at most {share:.2f}."


def start_in_order(claims: Sequence[Claim], gpu: int, total: int, foreign: int = 0) -> Optional[Verdict]:
    """Judge a whole card whose stacks start one after another: the first that would not start, or None."""
    free = total - foreign
    for position, claim in enumerate(claims):
        before = tuple(Holder(other.takes(total), stack=other.stack) for other in claims[:position])
        others = (Holder(foreign, name="other processes"),) if foreign else ()
        verdict = fits(claim, Card(gpu, total, free, before + others))
        if not verdict.fits:
            return verdict
        free -= claim.takes(total)
        if free < 0:
            parts = " + ".join(f"{format_size(other.takes(total))} ({other.stack})" for other in claims[: position + 1])
            arithmetic = f"{parts} exceed the {format_size(total)} of GPU {gpu} by {format_size(-free)}."
            remedy = "Lower kv_cache or a share, or move a stack to another GPU."
            return Verdict("gpu_overcommitted", claim.stack, gpu, claim.takes(total), free, arithmetic, remedy)
    return None
