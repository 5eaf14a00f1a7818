# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory situations: what is on the card, what a stack wants, whether it can start, and what the person is told."""

from __future__ import annotations

from typing import Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import budget
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.budget import Card, Claim, Holder, fits
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.sizes import GIB, MIB

# An H200 as it printed itself: total, reserved, and free with a 4 GiB tensor and its context on it (MiB).
H200_TOTAL = budget.card_total(143771 * MIB, 616 * MIB)
H200_FREE = 138534 * MIB
CARD = 96 * GIB  # a card of 96 GiB as CUDA counts it, for round figures


def held(gib: float, stack: str = "", **more: object) -> Holder:
    return Holder(round(gib * GIB), stack=stack, **more)  # type: ignore[arg-type]


def card(free: float, *holders: Holder, total: int = CARD, index: int = 1) -> Card:
    return Card(index, total, round(free * GIB), holders)


def test_total_is_cudas_and_not_nvidia_smis() -> None:
    assert H200_TOTAL == 143155 * MIB
    # torch on that card said 150109880320 bytes, 143155 MiB and a fraction that nvidia-smi rounds away.
    assert abs(H200_TOTAL - 150109880320) < MIB


@pytest.mark.parametrize(
    ("name", "claim", "where", "code", "says"),
    [
        # A card to itself.
        ("empty card", Claim("a", 0.40), card(95.5), "", "0.40 x 96.00 GiB = 38.40 GiB"),
        ("exactly what is free", Claim("a", 0.50), card(48), "", "leaves 0 MiB"),
        ("a byte less", Claim("a", 0.50), Card(1, CARD, 48 * GIB - 1), "gpu_memory_not_free", "48.00 GiB"),
        ("context alone leaves no room for 1.0", Claim("a", 1.0), card(95.5), "gpu_memory_not_free", "at most 0.98"),
        ("the engine's default share", Claim("a"), card(90), "", "0.92 x 96.00 GiB"),
        ("the default beside a neighbour", Claim("a"), card(80), "gpu_memory_not_free", "at most 0.82"),
        # The H200 of the fixtures.
        ("H200, 0.90 beside 4 GiB", Claim("a", 0.90), Card(0, H200_TOTAL, H200_FREE), "", "139.80 GiB"),
        ("H200, 0.96 beside 4 GiB", Claim("a", 0.96), Card(0, H200_TOTAL, H200_FREE), "", "134.21 GiB"),
        ("H200, 0.97 beside 4 GiB", Claim("a", 0.97), Card(0, H200_TOTAL, H200_FREE), "gpu_memory_not_free", "0.96"),
        ("H200, idle", Claim("a", 0.99), Card(0, H200_TOTAL, 143156 * MIB), "", "0.99 x 139.80 GiB"),
        # Somebody else is there.
        (
            "a foreign process",
            Claim("a", 0.60),
            card(50, held(45, name="python3", pid=427)),
            "gpu_memory_not_free",
            "python3 (pid 427) 45.00 GiB",
        ),
        (
            "a foreign container",
            Claim("a", 0.60),
            card(50, held(45, container="comfyui", pid=9)),
            "gpu_memory_not_free",
            "container comfyui (pid 9)",
        ),
        ("a foreign process that leaves room", Claim("a", 0.50), card(50, held(45, name="python3")), "", "leaves"),
        (
            "an orphaned engine",
            Claim("a", 0.60),
            card(50, held(45, name="VLLM::Worker", pid=88, orphan=True)),
            "gpu_memory_not_free",
            "End the orphaned engine process first (pid 88)",
        ),
        (
            "a process without a name",
            Claim("a", 0.60),
            card(50, held(45)),
            "gpu_memory_not_free",
            "a process 45.00 GiB",
        ),
        ("memory that nobody owns", Claim("a", 0.60), card(50), "gpu_memory_not_free", "Free the card"),
        # Neighbours of our own.
        ("a neighbour", Claim("a", 0.40), card(56, held(39, "b")), "", "leaves 17.60 GiB"),
        ("a neighbour too large", Claim("a", 0.40), card(30, held(65, "b")), "gpu_memory_not_free", "stack b 65.00"),
        ("three neighbours", Claim("d", 0.20), card(20, held(38, "a"), held(19, "b"), held(19, "c")), "", "needs"),
        # Its own old container.
        ("its own restart", Claim("a", 0.40), card(56, held(39, "a")), "", "of which 39.00 GiB is its own"),
        ("its own restart on a full card", Claim("a", 0.40), card(1, held(39, "a"), held(55, "b")), "", "its own"),
        (
            "its own restart with a larger share",
            Claim("a", 0.50),
            card(1, held(39, "a"), held(55, "b")),
            "gpu_memory_not_free",
            "has 40.00 GiB (of which 39.00 GiB is its own, which it gives back); held by stack b 55.00 GiB",
        ),
        ("its own beside a foreigner", Claim("a", 0.90), card(40, held(50, "a"), held(5, name="x")), "", "90.00 GiB"),
        ("own and free never exceed the card", Claim("a", 1.0), card(95, held(39, "a")), "", "free 96.00 GiB"),
        # The floor.
        ("above the floor", Claim("a", 0.40, memory_floor=34 * GIB), card(95), "", "38.40 GiB"),
        (
            "below the floor",
            Claim("a", 0.30, memory_floor=34 * GIB),
            card(95),
            "below_memory_floor",
            "0.30 x 96.00 GiB = 28.80 GiB, below the model's memory_floor of 34.00 GiB. "
            "Set gpu_memory_utilization to at least 0.36.",
        ),
        (
            "no share is enough",
            Claim("a", 0.90, memory_floor=120 * GIB),
            card(95),
            "below_memory_floor",
            "does not fit on this card",
        ),
        (
            "what is free is below the floor",
            Claim("a", 0.40, memory_floor=34 * GIB),
            card(30, held(65, "b")),
            "gpu_memory_not_free",
            "below what the model needs",
        ),
        (
            "a floor over two cards",
            Claim("a", 0.40, memory_floor=70 * GIB, cards=2),
            card(95),
            "",
            "38.40 GiB",
        ),
        (
            "a floor over two cards, too little on each",
            Claim("a", 0.30, memory_floor=70 * GIB, cards=2),
            card(95),
            "below_memory_floor",
            "35.00 GiB (70.00 GiB over 2 cards)",
        ),
        # A fixed KV cache.
        ("a fixed KV cache", Claim("a", 0.40, 6 * GIB, 20 * GIB), card(95), "", "leaves 69.00 GiB"),
        (
            "it still demands its share free",
            Claim("a", 0.40, 6 * GIB, 20 * GIB),
            card(30),
            "gpu_memory_not_free",
            "38.40",
        ),
        (
            "and without a share the default",
            Claim("a", None, 6 * GIB, 20 * GIB),
            card(80),
            "gpu_memory_not_free",
            "0.92",
        ),
        (
            "a KV cache beyond the card",
            Claim("a", 0.9, 80 * GIB, 20 * GIB),
            card(95),
            "kv_cache_too_large",
            "100.00 GiB",
        ),
        ("without a floor the share counts", Claim("a", 0.5, 6 * GIB), card(95), "", "leaves 47.00 GiB"),
        # Machines that do not say.
        ("no total reported", Claim("a", 0.5), card(10, total=0), "", "cannot be judged"),
    ],
)
def test_situations(name: str, claim: Claim, where: Card, code: str, says: str) -> None:
    verdict = fits(claim, where)
    assert verdict.code == code, str(verdict)
    assert verdict.fits is not bool(code)
    assert says in str(verdict)


@pytest.mark.parametrize(
    ("cards", "code", "index"),
    [
        ([card(95, index=0), card(95, index=1)], "", 0),
        ([card(95, index=0), card(60, index=1)], "", 1),
        ([card(95, index=0), card(30, index=1)], "gpu_memory_not_free", 1),
        ([card(30, index=0), card(20, index=1)], "gpu_memory_not_free", 0),
    ],
)
def test_tensor_parallel_needs_every_card(cards: list[Card], code: str, index: int) -> None:
    verdict = budget.fits_all(Claim("a", 0.60, cards=2), cards)
    assert (verdict.code, verdict.card) == (code, index)


@pytest.mark.parametrize(
    ("claims", "foreign", "stack", "code"),
    [
        ([Claim("a", 0.40), Claim("b", 0.40)], 0, None, None),
        ([Claim("a", 0.40), Claim("b", 0.70)], 0, "b", "gpu_memory_not_free"),
        ([Claim("a", 0.40), Claim("b", 0.50)], 12 * GIB, "b", "gpu_memory_not_free"),
        # The first takes little but demands its default of a free card: it may start only while the card is empty.
        ([Claim("a", None, 6 * GIB, 10 * GIB), Claim("b", 0.50)], 0, None, None),
        ([Claim("b", 0.50), Claim("a", None, 6 * GIB, 10 * GIB)], 0, "a", "gpu_memory_not_free"),
        # It demands little and takes much.
        ([Claim("b", 0.50), Claim("a", 0.10, 30 * GIB, 30 * GIB)], 0, "a", "gpu_overcommitted"),
    ],
)
def test_a_card_whose_stacks_start_in_order(
    claims: list[Claim], foreign: int, stack: Optional[str], code: Optional[str]
) -> None:
    verdict = budget.start_in_order(claims, 1, CARD, foreign)
    assert (verdict and verdict.stack, verdict and verdict.code) == (stack, code)
