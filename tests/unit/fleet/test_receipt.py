# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import receipt, rollout_report
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import RenderedFile, RenderedStack

STACK = RenderedStack.from_dict(json.loads((Path(__file__).parents[2] / "fixtures/docker/stack.json").read_text()))
ANSWER = {"question": "text", "code": "passed", "passed": True, "answer": "4", "pictures": ["iVBOR"], "exchanges": []}


def good(**more: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "at": "2026-11-30T120000Z",
        "seconds": 93.44,
        "phases": [("starting", 0.0), ("ready", 93.44)],
        "image": {"Id": "sha256:1", "RepoDigests": ["r@sha256:2"]},
        "engine": {"kv_cache_tokens": 100000},
        "memory": [{"gpu": 1, "used_mib": 38000, "free_mib": 1}],
        "asked": True,
        "answers": [ANSWER],
    }
    return receipt.good(STACK, **{**facts, **more})


def test_a_receipt_has_what_the_next_run_and_a_person_need_and_no_secret() -> None:
    proof = good()
    assert proof["hash"] == STACK.hash
    assert proof["phases"][-1] == {"phase": "ready", "at": 93.4}
    assert proof["image_digests"] == ["r@sha256:2"]
    assert proof["answers"][0]["pictures"]
    assert not any(secret in json.dumps(proof) for secret in STACK.secrets)


def test_the_brief_answers_have_no_pictures() -> None:
    assert receipt.brief([ANSWER]) == [{"question": "text", "code": "passed", "passed": True, "answer": "4"}]


OTHER_OPTIONS = replace(STACK, files={**STACK.files, "vllm.yaml": RenderedFile("max-num-seqs: 9\n")})


@pytest.mark.parametrize(
    ("stack", "tokens", "previous", "less"),
    [
        (STACK, 100000, good(), False),
        (STACK, 90000, good(), False),  # ten per cent
        (STACK, 89999, good(), True),
        (STACK, 20000, None, False),  # a first start has nothing to be compared with
        (STACK, None, good(), False),  # the engine did not say
        (OTHER_OPTIONS, 20000, good(), False),  # another configuration may have less
        (replace(STACK, share=0.2), 20000, good(), False),
        (replace(STACK, min_kv_tokens=50000), 49999, None, True),
        (replace(STACK, min_kv_tokens=50000), 50000, good(), False),  # the owner's word beats the memory
        (STACK, 20000, {"memory_basis": receipt.memory_basis(STACK)}, False),
    ],
)
def test_the_kv_contract(stack: RenderedStack, tokens: Any, previous: Any, less: bool) -> None:
    engine = {} if tokens is None else {"kv_cache_tokens": tokens}
    shortfall = receipt.kv_shortfall(stack, engine, previous)
    assert (shortfall is not None) == less
    if shortfall:
        assert str(tokens) in shortfall["what"]


@pytest.mark.parametrize(
    ("stack", "tokens", "previous", "whole"),
    [
        (STACK, 100000, good(), True),
        (STACK, 101000, good(), True),
        (STACK, 90000, good(), True),
        (STACK, 101001, good(), False),  # a neighbour ended while it measured
        (STACK, 121000, good(), False),
        (STACK, 89999, good(), False),  # one was loading
        (STACK, None, good(), True),  # it did not say
        (STACK, 121000, None, True),
        (OTHER_OPTIONS, 121000, good(), True),
        (replace(STACK, image="r@sha256:3"), 121000, good(), True),  # another engine measures in another way
    ],
)
def test_an_engine_that_did_not_start_in_its_turn_shows_by_its_kv_cache_whether_it_was_alone(
    stack: RenderedStack, tokens: Any, previous: Any, whole: bool
) -> None:
    wanted = receipt.kv_out_of_turn(stack, tokens, previous)
    assert wanted == (None if whole else "100000 tokens, as at its last good start")


def test_the_message_of_a_failure_is_the_diagnosis_in_about_twelve_lines() -> None:
    fact = {
        "code": "kv_cache_no_memory",
        "what": "the engine wrote\na line that ends its start",
        "why": "word " * 200,
        "change": "Raise gpu_memory_utilization. " * 30,
        "lines": ["x" * 400] * 9,
        "seconds": 23.1,
        "after": "put back to its last good configuration, which is running and answers",
        "kept": "/opt/docker/compose/two/.modelfleet/failed/2026-11-30T120000Z",
    }
    lines = rollout_report.failure("ana-ml2", "two", fact).splitlines()
    assert len(lines) <= 14
    assert max(len(line) for line in lines) <= 116
    assert lines[0] == "ana-ml2 two: [kv_cache_no_memory] the engine wrote a line that ends its start"
    assert lines[-2].startswith("  after 23.1 s: put back")
