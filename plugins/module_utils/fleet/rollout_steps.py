# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout does for which difference, in which order, and when a card has room for the next start."""

from __future__ import annotations

from dataclasses import replace
from typing import Collection, Mapping, Optional, Sequence

from . import budget
from .budget import Holder
from .drift import CREATE, RECREATE, START
from .errors import nearest
from .gpus import MIB, Card
from .rendered import RenderedStack

STARTS = (START, RECREATE, CREATE)  # steps after which an engine loads
# What the host and the controller say to each other about a running engine that gateways send requests to.
HANDOVER, BACK = "handover", "back"  # phases: it is about to stop; it answers again
# The answers: no gateway uses it now; they go on, because nobody else could answer; a gateway could not be told.
BLOCKED, LEFT, FAILED = "blocked", "left", "failed"
STILL_MIB = 64  # free memory that moves less than this stands still


def waits_for(stacks: Sequence[RenderedStack]) -> dict[str, tuple[str, ...]]:
    """For each stack those that come before it on any of its GPUs, in inventory order.

    A tensor-parallel stack so waits for the chains of all its GPUs; a stack without a GPU waits for nobody.
    """
    ordered = sorted(stacks, key=lambda stack: stack.position)
    return {
        stack.name: tuple(earlier.name for earlier in ordered[:index] if set(earlier.gpus) & set(stack.gpus))
        for index, stack in enumerate(ordered)
    }


def startable(waits: Mapping[str, Sequence[str]], ended: Collection[str], begun: Collection[str]) -> list[str]:
    """Those whose turn it is: not begun, and everything before them has ended, well or not.

    A failed predecessor does not hold up the rest of its chain: it was put back or stopped, and the card is at rest.
    """
    return [name for name, before in waits.items() if name not in begun and all(one in ended for one in before)]


def unknown(only: str, names: Sequence[str], host: str) -> str:
    """What to say when ``only`` names a stack that the host does not have."""
    near = nearest(only, names)
    known = ", ".join(names) or "none"
    meant = f" Did you mean {near}?" if near else ""
    return f"only={only}: {host} has no stack of this name.{meant} Its stacks are: {known}."


def cards_of(stack: RenderedStack, cards: Sequence[Card]) -> list[Card]:
    """The stack's cards among those of the host, by UUID where the inventory has it."""
    uuids = {uuid for uuid in stack.gpu_uuids if uuid}
    indexes = {index for index, uuid in zip(stack.gpus, stack.gpu_uuids or ("",) * len(stack.gpus)) if not uuid}
    return [card for card in cards if card.uuid in uuids or card.index in indexes]


def room(stack: RenderedStack, cards: Sequence[Card], owners: Mapping[int, Holder]) -> Optional[budget.Verdict]:
    """Whether every card of the stack has room for its start now, with the arithmetic and who holds what.

    ``owners`` says more about a process id than its name. None when no card reports its memory: nothing to judge.
    """
    claim = budget.Claim(stack.name, stack.share, stack.kv_cache, cards=len(stack.gpus))
    known = []
    for card in cards_of(stack, cards):
        if card.cuda_total_mib is None or card.free_mib is None:
            continue
        holders = tuple(
            replace(owners.get(process.pid, Holder(0, process.pid, process.name)), used=(process.used_mib or 0) * MIB)
            for process in card.processes
        )
        known.append(budget.Card(card.index, card.cuda_total_mib * MIB, card.free_mib * MIB, holders))
    return budget.fits_all(claim, known) if known else None


def still(before: Sequence[Card], now: Sequence[Card]) -> bool:
    """Whether the free memory of these cards stands still between two looks."""
    free = {card.uuid: card.free_mib for card in before}
    return all(
        card.free_mib is None or free.get(card.uuid) is None or abs(card.free_mib - (free[card.uuid] or 0)) <= STILL_MIB
        for card in now
    )
