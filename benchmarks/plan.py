#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long it takes to read and plan a large fleet. Needs nothing but Python.

    benchmarks/plan.py [--hosts 1000] [--gpus 16] [--stacks 32] [--limit SECONDS]

Every host's variables are objects of their own, as Ansible hands them out, so nothing is won by identity. One stack
in four overrides an option of its model. Exits 1 when parse and plan together take more CPU time than the limit.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / ".ansible" / "collections"))

from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import inventory, plan

MODELS = 24


def variables(gpus: int, stacks: int) -> dict[str, Any]:
    return {
        "fleet_images": {
            "vllm": {"repository": "vllm/vllm-openai", "digest": "sha256:" + "0123456789abcdef" * 4, "engine": "0.33.0"}
        },
        "fleet_models": {
            f"model-{number}": {
                "source": f"example/model-{number}",
                "image": "vllm",
                "memory_floor": "10 GiB",
                "args": {"max_model_len": 32768, "max_num_seqs": 64, "enable_prefix_caching": True},
                "env": {"OMP_NUM_THREADS": 14},
            }
            for number in range(MODELS)
        },
        "fleet_gpus": [{"index": gpu, "memory": "143771 MiB", "compute_capability": "9.0"} for gpu in range(gpus)],
        "fleet_stacks": [
            {
                "name": f"stack-{number}",
                "model": f"model-{number % MODELS}",
                "gpus": [number % gpus],
                "port": 8000 + number,
                "gpu_memory_utilization": 0.45,
                **({"args": {"max_model_len": 8192 + number}} if number % 4 == 0 else {}),
            }
            for number in range(stacks)
        ],
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--hosts", type=int, default=1000)
    options.add_argument("--gpus", type=int, default=16)
    options.add_argument("--stacks", type=int, default=32)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--limit", type=float, default=2.0, help="seconds of CPU for parse and plan")
    given = options.parse_args()
    one = variables(given.gpus, given.stacks)
    raw = {f"host-{number}": copy.deepcopy(one) for number in range(given.hosts)}
    parsing, planning, cpu = [], [], []
    for _run in range(given.runs):
        used, start = time.process_time(), time.perf_counter()
        fleet = inventory.parse(raw, gpu_hosts=list(raw), gateways=[])
        parsed = time.perf_counter()
        made = plan.make(fleet)
        parsing.append(parsed - start)
        planning.append(time.perf_counter() - parsed)
        cpu.append(time.process_time() - used)
    if made.refused or sum(len(host.stacks) for host in made.hosts.values()) != given.hosts * given.stacks:
        print("the fleet was not planned", *made.findings[:5], sep="\n")
        return 1
    # The fastest run is the one that other work on the machine disturbed least. The limit is held against CPU time,
    # which on a quiet machine is the wall time: there is one thread and no waiting.
    wall, whole = min(map(sum, zip(parsing, planning))), min(cpu)
    print(f"{given.hosts} hosts x {given.gpus} GPUs x {given.stacks} stacks, fastest of {given.runs}:")
    print(f"  parse {min(parsing):.2f} s, plan {min(planning):.2f} s, both {wall:.2f} s (CPU {whole:.2f} s)")
    print(f"  limit {given.limit:g} s of CPU: {'kept' if whole <= given.limit else 'EXCEEDED'}")
    return int(whole > given.limit)


if __name__ == "__main__":
    sys.exit(main())
