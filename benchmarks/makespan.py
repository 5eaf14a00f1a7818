#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Eight stacks on four GPUs with loads of 2 to 8 s: the rollout against its longest chain and against one by one.

    benchmarks/makespan.py [--host ana-four] [--rounds 2]

Needs a lab host with four cards and the sim-vllm image. The time is that of the rollout itself, from the first
start to the last answer, without Ansible's own start. What a start costs beside its load (container, process,
questions, the card coming to rest) is measured in the run one by one, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Sequence

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
FOLDER = "/opt/bench-makespan"
LOADS = ((8, 2), (5, 5), (3, 6), (7, 2))  # seconds, for each GPU in order; the longest chain is 10


def ssh(host: str, command: str) -> str:
    return subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), host, command], check=True, capture_output=True, text=True
    ).stdout


def roll(host: str, chains: Sequence[Sequence[float]]) -> float:
    """Seconds from the first start to the last answer of these chains on a bare host."""
    image = json.loads((STATE / "images.json").read_text())["sim-vllm"]
    models: dict[str, Any] = {}
    stacks = []
    for gpu, loads in enumerate(chains):
        for place, load in enumerate(loads):
            name = f"bench-{gpu}-{place}"
            models[name] = {
                "source": "bench/makespan",
                "image": "sim",
                "args": {"max_model_len": 4096},
                "env": {"SIM_LOAD_SECONDS": str(load), "SIM_WEIGHTS_MIB": "1000"},
            }
            stacks.append(
                {"name": name, "model": name, "gpus": [gpu], "port": 8900 + len(stacks), "gpu_memory_utilization": 0.1}
            )
    variables = {
        "ansible_connection": "ssh",
        "ansible_ssh_common_args": f"-F {STATE}/ssh_config",
        "ansible_python_interpreter": "/usr/bin/python3",
        "fleet_images": {"sim": {**image, "engine": "0.32.0"}},
        "fleet_models": models,
        "fleet_gpus": [{"index": index} for index in range(4)],
        "fleet_stacks": stacks,
        "vllm_stack_root": FOLDER,
    }
    clean = f"docker ps -aq --filter label=modelfleet.stack | xargs -r docker rm -f; rm -rf {FOLDER}"
    ssh(host, clean)
    with tempfile.TemporaryDirectory() as name:
        hosts, play = Path(name) / "hosts.json", Path(name) / "play.yml"
        hosts.write_text(json.dumps({"gpu_hosts": {"hosts": {host: variables}}}))
        tasks: list[dict[str, Any]] = [
            {"ansible.builtin.include_role": {"name": "modelfleet.inference.vllm_stack"}},
        ]
        play.write_text(json.dumps([{"hosts": "gpu_hosts", "gather_facts": False, "tasks": tasks}]))
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(hosts), str(play)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        sys.exit(f"the rollout failed:\n{done.stdout[-2000:]}{done.stderr[-1000:]}")
    began = ssh(host, f"docker inspect -f '{{{{.Created}}}}' {' '.join('vllm-' + one['name'] for one in stacks)}")
    ends = ssh(host, f"stat -c %.Y {FOLDER}/*/.modelfleet/receipt.json").split()
    first = min(began.split())
    start = float(ssh(host, f"date -d {first} +%s.%N"))
    ssh(host, clean)
    return max(float(end) for end in ends) - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="ana-four")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.host not in json.loads((STATE / "hosts.json").read_text()) or not STATE.joinpath("images.json").exists():
        print(f"{options.host} is not up: lab/lab up --hosts {options.host}")
        return 0
    side_by_side = min(roll(options.host, LOADS) for _ in range(options.rounds))
    every_load = [load for chain in LOADS for load in chain]
    one_by_one = roll(options.host, (every_load,))
    longest, total = max(sum(chain) for chain in LOADS), sum(every_load)
    each = (one_by_one - total) / len(every_load)
    net = side_by_side - each * max(len(chain) for chain in LOADS)
    print(f"loads: the longest chain {longest} s, all of them {total} s")
    print(f"one by one: {one_by_one:.1f} s, so a start costs {each:.1f} s beside its load on this machine")
    print(f"four GPUs side by side: {side_by_side:.1f} s = {side_by_side / one_by_one:.2f} x one by one")
    print(f"less that cost of two starts: {net:.1f} s = {net / longest:.2f} x the longest chain; aim: 1.10 x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
