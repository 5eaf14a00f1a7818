# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small correct fleet, and a way to make one thing about it wrong."""

from __future__ import annotations

import copy
from typing import Any, Union

from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import inventory, plan
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import Finding, FleetError

GPU_HOSTS = ["ana-ml2", "ana-ml3"]
GATEWAYS = ["ana-docker"]
DIGEST = "sha256:" + "0123456789abcdef" * 4
MASTER_KEY = "sk-4f1d0c86a7b2e953"
REMOVED = object()

SHARED: dict[str, Any] = {
    "fleet_images": {
        "vllm": {"repository": "vllm/vllm-openai", "tag": "v0.33.0", "digest": DIGEST, "engine": "0.33.0"},
        "old": {"repository": "vllm/vllm-openai", "digest": DIGEST, "engine": "0.19.1"},
        "litellm": {"repository": "ghcr.io/berriai/litellm", "digest": DIGEST, "engine": "1.108.7"},
    },
    "fleet_models": {
        "qwen-vl": {
            "source": "Qwen/Qwen3-VL-8B-Instruct",
            "task": "chat",
            "modalities": ["text", "image"],
            "image": "vllm",
            "memory_floor": "20 GiB",
            "args": {"max_model_len": 32768},
            "env": {"OMP_NUM_THREADS": 14},
            "checks": [{"ask": "What do you see?", "expect": [["cat", "cats"], "sofa"]}],
        },
        "embedder": {
            "source": "/opt/models/embedder",
            "task": "embed",
            "image": "vllm",
            "args": {"max-model-len": 8192},
        },
    },
}
FLEET: dict[str, dict[str, Any]] = {
    "ana-ml2": {
        **SHARED,
        "fleet_gpus": [
            {"index": 0, "keep_free": "hot-reloading"},
            {"index": 1, "memory": "96 GiB", "compute_capability": "12.0"},
            {"index": 2, "memory": "96 GiB", "compute_capability": "12.0"},
        ],
        "fleet_stacks": [
            {"name": "vl", "model": "qwen-vl", "gpus": [1], "port": 8007, "gpu_memory_utilization": 0.40},
            {"name": "embed", "model": "embedder", "gpus": [1], "port": 8004, "gpu_memory_utilization": 0.10},
            {"name": "wide", "model": "qwen-vl", "gpus": [1, 2], "port": 8008, "gpu_memory_utilization": 0.30},
        ],
    },
    "ana-ml3": {
        **SHARED,
        "fleet_gpus": [{"index": 0}],
        "fleet_stacks": [
            {"name": "vl", "model": "qwen-vl", "gpus": [0], "port": 8007, "gpu_memory_utilization": 0.90},
        ],
    },
    "ana-docker": {
        **SHARED,
        "fleet_gateway": {
            "image": "litellm",
            "master_key": MASTER_KEY,
            "aliases": {"vision": "qwen-vl"},
            "keys": [{"name": "team-a", "key": "sk-team-a-0123456789", "models": ["vision"]}],
        },
    },
}

Step = Union[str, int]


def changed(*edits: tuple[str, Any]) -> dict[str, dict[str, Any]]:
    """FLEET with some values set (or REMOVED) at paths such as ``ana-ml2/fleet_stacks/0/port``; ``*`` is every host."""
    # Each host by itself: what hosts share must not be one object here, nor is it in Ansible.
    fleet = {name: copy.deepcopy(variables) for name, variables in FLEET.items()}
    for path, value in edits:
        host, *steps = path.split("/")
        for name in fleet if host == "*" else [host]:
            at: Any = fleet[name]
            for step in steps[:-1]:
                at = at[int(step) if isinstance(at, list) else step]
            last: Step = int(steps[-1]) if isinstance(at, list) else steps[-1]
            if value is REMOVED:
                del at[last]
            elif isinstance(at, list) and last == len(at):
                at.append(copy.deepcopy(value))
            else:
                at[last] = copy.deepcopy(value)
    return fleet


def findings_of(raw: dict[str, dict[str, Any]], **defaults: Any) -> list[Finding]:
    """All that reading and planning have to say."""
    try:
        fleet = inventory.parse(raw, gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)
    except FleetError as refused:
        return list(refused.findings)
    return list(plan.make(fleet, defaults=plan.PlanDefaults(**defaults)).findings)


def plan_of(*edits: tuple[str, Any]) -> plan.FleetPlan:
    return plan.make(inventory.parse(changed(*edits), gpu_hosts=GPU_HOSTS, gateways=GATEWAYS))
