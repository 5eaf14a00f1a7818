# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engine may go when, for a fleet with three replicas of one model on two hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible import constants as C
from ansible_collections.modelfleet.inference.plugins.plugin_utils.handover import BLOCK, LEAVE, WAIT, Handover

from ..fleet.fleets import GATEWAYS, GPU_HOSTS, changed

GATEWAY = "ana-docker/fleet_gateway"
SMALL = {"source": "o/small", "image": "vllm", "args": {"max_model_len": 8192}}
STACK = {"name": "small", "model": "small", "gpus": [2], "port": 8010, "gpu_memory_utilization": 0.2}
WITH_SMALL = [("*/fleet_models/small", SMALL), ("ana-ml2/fleet_stacks/3", STACK)]


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: Any) -> Any:
    """hosts(*edits) -> one Handover for each GPU host, as two workers of one ansible-playbook have them."""
    monkeypatch.setattr(C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    told: list[tuple[str, list[str]]] = []

    def make(*edits: tuple[str, Any]) -> tuple[Handover, Handover, list[tuple[str, list[str]]]]:
        variables = {"hostvars": changed(*edits)}
        made = [
            Handover(host, GPU_HOSTS, GATEWAYS, variables, lambda name, blocked: not told.append((name, blocked)))
            for host in GPU_HOSTS
        ]
        return made[0], made[1], told

    return make


def test_hosts_take_turns_so_that_a_replica_always_answers(hosts: Any) -> None:
    first, second, told = hosts()
    assert first.routed(["vl", "wide", "embed", "other"]) == ["vl", "wide", "embed"]
    assert first.decide("vl") == (BLOCK, "")
    assert second.decide("vl") == (BLOCK, "")
    second.settle()
    assert first.decide("wide")[0] == WAIT
    assert second.back("vl")
    assert first.decide("wide") == (BLOCK, "")
    first.settle()
    assert told == [
        ("ana-docker", ["ana-ml2--vl", "ana-ml3--vl"]),
        ("ana-docker", ["ana-ml2--vl", "ana-ml2--wide"]),
    ]


def test_what_is_not_there_yet_stands_in_for_nobody(hosts: Any) -> None:
    first, second, _told = hosts()
    first.absent(["vl", "wide"])
    decision, text = second.decide("vl")
    assert decision == LEAVE
    assert "[WARNING] qwen-vl has no other replica and no fallback" in text


def test_a_last_replica_goes_only_where_a_fallback_answers(hosts: Any) -> None:
    first, _second, told = hosts(*WITH_SMALL, (f"{GATEWAY}/fallbacks", {"small": ["vision"]}))
    assert first.decide("small") == (BLOCK, "vision answers for small meanwhile")
    first.settle()
    assert told == [("ana-docker", ["ana-ml2--small"])]
    alone, _second, _told = hosts(*WITH_SMALL)
    alone.back("small")
    assert alone.decide("small")[0] == LEAVE
    assert not alone.back("small")
