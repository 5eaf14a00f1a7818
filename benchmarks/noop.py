#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run that changes nothing costs, beside what people do by hand: six stacks. Needs the lab.

    benchmarks/noop.py [-i INVENTORY] [--host ana-ml2] [--rounds 5]

Interleaved in one run: the rollout of this collection (health, live comparison and receipts included); a shell loop of
`docker compose up -d` in one ssh, which looks at none of that; the same with an ssh for each stack, as a script that
deploys one does it; and, where community.docker is installed, the usual playbook of copy and docker_compose_v2. From
the playbooks the start-up of an empty one is taken off; what Ansible's own smallest module costs above that is shown
beside them. Wall seconds are minima; host CPU is the lab container's own account. What the lab's inventory has not is
removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Optional

ROOT = Path(__file__).resolve().parent.parent
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
LAB = os.environ.get("LAB_NAME", "modelfleet")
FOLDER = "/opt/docker/compose"
LOOP = "ssh, loop of docker compose up -d"

EMPTY = "- {hosts: HOST, gather_facts: false}\n"
PING = "- {hosts: HOST, gather_facts: false, tasks: [{ansible.builtin.ping: {}}]}\n"
OURS = """
- hosts: HOST
  gather_facts: false
  roles: [modelfleet.inference.vllm_stack]
"""
USUAL = """
- hosts: HOST
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {src: "{{ item.compose }}", dest: "{{ item.folder }}/compose.yaml"}
      loop: "{{ stacks }}"
    - community.docker.docker_compose_v2: {project_src: "{{ item.folder }}", pull: never}
      loop: "{{ stacks }}"
"""


def ssh(host: str, command: str) -> str:
    state = ROOT / ".cache" / "lab" / LAB
    port = json.loads((state / "hosts.json").read_text())[host]["port"]
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    done = subprocess.run(
        ["ssh", *options, "-i", str(state / "id_ed25519"), "-p", str(port), "root@127.0.0.1", command],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def play(
    inventory: str, host: str, text: str, folder: str, extra: Optional[dict[str, Any]] = None, changes: bool = False
) -> str:
    path = Path(folder) / "play.yml"
    path.write_text(text.replace("HOST", host))
    command = [str(PLAYBOOK), "-i", inventory, str(path), "-e", json.dumps(extra or {})]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or ("changed=0" not in done.stdout and text != EMPTY and not changes):
        sys.exit(f"not a converged host, or a failure:\n{done.stdout[-2000:]}{done.stderr[-500:]}")
    return done.stdout


def six_stacks(inventory: str, host: str) -> list[dict[str, object]]:
    """Those of the inventory, and as many small ones more as make six."""
    said = subprocess.run(
        [str(PLAYBOOK.with_name("ansible-inventory")), "-i", inventory, "--host", host],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    stacks: list[dict[str, object]] = json.loads(said)["fleet_stacks"]
    small = min(stacks, key=lambda stack: float(str(stack["gpu_memory_utilization"])))
    while len(stacks) < 6:
        more = len(stacks)
        stacks.append({**small, "name": f"bench-{more}", "port": 8990 + more, "gpu_memory_utilization": 0.04})
    return stacks


def host_cpu(host: str) -> float:
    """CPU seconds that the lab host has used so far, by the machine's control groups."""
    name = f"{LAB}-{host}"
    identity = subprocess.run(
        ["docker", "inspect", "-f", "{{.Id}}", name], check=True, capture_output=True, text=True
    ).stdout.strip()
    for path in (
        Path(f"/sys/fs/cgroup/cpuacct/docker/{identity}/cpuacct.usage"),
        Path(f"/sys/fs/cgroup/system.slice/docker-{identity}.scope/cpu.stat"),
    ):
        if path.exists():
            words = path.read_text().split()
            return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6
    return 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", default=str(ROOT / "inventories" / "lab"))
    parser.add_argument("--host", default="ana-ml2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    wanted: dict[str, Any] = {"fleet_stacks": six_stacks(options.inventory, options.host)}
    stacks = [str(stack["name"]) for stack in wanted["fleet_stacks"]]
    by_hand = [f"cd {FOLDER}/{name} && docker compose up -d" for name in stacks]
    with tempfile.TemporaryDirectory() as folder:
        play(options.inventory, options.host, OURS, folder, wanted, changes=True)
        kept = []
        for name in stacks:
            (Path(folder) / name).write_text(ssh(options.host, f"cat {FOLDER}/{name}/compose.yaml"))
            kept.append({"compose": f"{folder}/{name}", "folder": f"{FOLDER}/{name}"})
        ways: dict[str, Callable[[], object]] = {
            "empty play": lambda: play(options.inventory, options.host, EMPTY, folder),
            "ansible.builtin.ping": lambda: play(options.inventory, options.host, PING, folder),
            "modelfleet rollout": lambda: play(options.inventory, options.host, OURS, folder, wanted),
            LOOP: lambda: ssh(options.host, "; ".join(by_hand)),
            "ssh for each stack": lambda: [ssh(options.host, command) for command in by_hand],
        }
        doc = subprocess.run(
            [str(PLAYBOOK.with_name("ansible-doc")), "-t", "module", "-l", "community.docker"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "docker_compose_v2" in doc.stdout:
            ways["copy + docker_compose_v2"] = lambda: play(
                options.inventory, options.host, USUAL, folder, {"stacks": kept}
            )
        wall: dict[str, list[float]] = {name: [] for name in ways}
        cpu: dict[str, list[float]] = {name: [] for name in ways}
        for _round in range(options.rounds):
            for name, way in ways.items():
                before, started = host_cpu(options.host), time.monotonic()
                way()
                wall[name].append(time.monotonic() - started)
                cpu[name].append(host_cpu(options.host) - before)
        play(options.inventory, options.host, OURS, folder, {"vllm_stack_prune": True}, changes=True)
    print(f"{len(stacks)} stacks on {options.host}, {options.rounds} rounds, minima")
    start_up = min(wall["empty play"])
    yardstick = min(wall[LOOP])
    for name in ways:
        net = min(wall[name]) - (0.0 if name.startswith("ssh") else start_up)
        ratio = f"{net / yardstick:5.2f} x the ssh loop" if name != "empty play" else ""
        print(f"{name:36} wall {min(wall[name]):6.2f} s  less start-up {net:6.2f} s  "
              f"host CPU {min(cpu[name]):5.2f} s  {ratio}")  # fmt: skip
    ours = min(wall["modelfleet rollout"]) - start_up
    print(f"aim: at most 1.0 x the ssh loop: {'met' if ours <= yardstick else 'missed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
