# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import drift, pulling, rollout_steps
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.budget import Holder
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.drift import ACTIONS, REPORT, Difference
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.gpus import Card, Process
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import RenderedStack

STACK = RenderedStack.from_dict(json.loads((Path(__file__).parents[2] / "fixtures/docker/stack.json").read_text()))


def stack(name: str, position: int, *gpus: int, **more: Any) -> RenderedStack:
    return replace(STACK, name=name, position=position, gpus=gpus, gpu_uuids=("",) * len(gpus), **more)


@pytest.mark.parametrize(("first", "second"), list(product(ACTIONS, ACTIONS)))
def test_the_weightiest_action_is_the_step(first: str, second: str) -> None:
    differences = [Difference("s", item, "", "", action) for item, action in (("a", first), ("b", second))]
    expected = max(first, second, key=ACTIONS.index)
    assert drift.step(differences) == (drift.NOTHING if expected == REPORT else expected)


def test_nothing_differs() -> None:
    assert drift.step([]) == drift.NOTHING


@pytest.mark.parametrize(
    ("gpus", "waits"),
    [
        ([(0,), (0,), (0,)], [(), ("s0",), ("s0", "s1")]),
        ([(0,), (1,), (0,), (1,)], [(), (), ("s0",), ("s1",)]),
        ([(0,), (1,), (0, 1), (1,)], [(), (), ("s0", "s1"), ("s1", "s2")]),  # tensor parallel: all its cards
        ([(), (), (0,)], [(), (), ()]),
    ],
)
def test_stacks_wait_for_those_before_them_on_their_cards(gpus: Any, waits: Any) -> None:
    stacks = [stack(f"s{index}", index, *cards) for index, cards in enumerate(gpus)]
    Random(1).shuffle(stacks)
    assert rollout_steps.waits_for(stacks) == {f"s{index}": before for index, before in enumerate(waits)}


@pytest.mark.parametrize("seed", range(20))
def test_every_stack_has_its_turn_once_and_never_two_on_one_card(seed: int) -> None:
    random = Random(seed)
    stacks = [stack(f"s{index}", index, *random.sample(range(4), random.choice((0, 1, 1, 2)))) for index in range(12)]
    gpus = {one.name: set(one.gpus) for one in stacks}
    waits = rollout_steps.waits_for(stacks)
    begun: list[str] = []
    ended: set[str] = set()
    while len(ended) < len(stacks):
        for name in rollout_steps.startable(waits, ended, begun):
            assert not any(gpus[name] & gpus[other] for other in set(begun) - ended)
            begun.append(name)
        ended.add(random.choice(sorted(set(begun) - ended)))
    for card in range(4):
        on_card = [name for name in begun if card in gpus[name]]
        assert on_card == sorted(on_card, key=lambda name: int(name[1:]))


def card(index: int, free: int, *processes: Process, total: Any = 97887) -> Card:
    return Card(index, f"GPU-{index}", "RTX", total, 0, None, free, processes=processes)


@pytest.mark.parametrize(
    ("share", "kv_cache", "cards", "fits"),
    [
        (0.40, None, [card(0, 39155)], True),
        (0.40, None, [card(0, 39154)], False),
        (0.40, None, [card(0, 39155), card(1, 100)], True),  # the other card is not ours
        (None, None, [card(0, 97887)], True),
        (None, None, [card(0, 50000)], False),  # the engine's own default share
        (0.40, None, [card(0, 0, total=None)], None),
        (0.40, None, [], None),
    ],
)
def test_room_for_a_start(share: Any, kv_cache: Any, cards: Any, fits: Any) -> None:
    verdict = rollout_steps.room(stack("s", 0, 0, share=share, kv_cache=kv_cache), cards, {})
    assert (verdict and verdict.fits) == fits


def test_a_tensor_parallel_stack_needs_room_on_every_card() -> None:
    both = stack("s", 0, 0, 1, share=0.5)
    verdict = rollout_steps.room(both, [card(0, 97887), card(1, 1000)], {})
    assert verdict is not None
    assert (verdict.fits, verdict.card) == (False, 1)


def test_a_refusal_says_who_holds_what() -> None:
    full = card(0, 1000, Process(7, 96000, "VLLM::EngineCore"), Process(8, None, "x"))
    owners = {7: Holder(0, 7, "VLLM::EngineCore", orphan=True)}
    verdict = rollout_steps.room(stack("s", 0, 0, share=0.5), [full], owners)
    assert verdict is not None
    assert "orphaned engine process" in verdict.arithmetic
    assert "93.75 GiB" in verdict.arithmetic
    assert "pid 7" in verdict.remedy


def test_cards_by_uuid_beat_their_numbers() -> None:
    by_uuid = replace(stack("s", 0, 0), gpu_uuids=("GPU-1",))
    assert [one.index for one in rollout_steps.cards_of(by_uuid, [card(0, 1), card(1, 1)])] == [1]


@pytest.mark.parametrize(("free", "still"), [(1000, True), (1064, True), (1065, False), (900, False), (None, True)])
def test_free_memory_that_stands_still(free: Any, still: bool) -> None:
    assert rollout_steps.still([card(0, 1000)], [card(0, free)]) == still


@pytest.mark.parametrize(
    ("only", "said"), [("qwen35-v", "Did you mean qwen35-vl?"), ("zzz", "Its stacks are: granite, qwen35-vl.")]
)
def test_only_with_an_unknown_name(only: str, said: str) -> None:
    message = rollout_steps.unknown(only, ["granite", "qwen35-vl"], "ana-ml2")
    assert said in message
    assert message.startswith(f"only={only}: ana-ml2 has no stack")


def test_a_pull_never_goes_back_and_ends_at_a_hundred() -> None:
    events = [{"status": "Pulling from x", "id": "latest"}]
    for layer, size in (("a", 100), ("b", 900), ("c", 50)):
        events += [{"status": "Pulling fs layer", "id": layer}]
        events += [
            {"status": status, "id": layer, "progressDetail": {"current": done, "total": size}}
            for status in ("Downloading", "Extracting")
            for done in (0, size // 2, size)
        ]
        events += [{"status": "Pull complete", "id": layer}]
    events += [{"status": "Already exists", "id": "d"}, {"status": "Digest: sha256:0"}]
    progress, seen = pulling.PullProgress(), []
    for event in events:
        progress = progress.after(event)
        seen.append(progress.percent)
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 100)
