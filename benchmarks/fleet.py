#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a drift check of a fleet costs, and how it grows with hosts and with stacks. Needs the lab, converged.

    benchmarks/fleet.py [-i INVENTORY] [--host ana-ml2] [--hosts 1,10,50] [--stacks 1,8,32] [--rounds 3]

Hosts: the one lab host under so many names, each with an ssh connection of its own. Where all of them are this machine,
the wall clock shows what this machine can do and only the controller's CPU (Ansible and its ssh clients) is a result.
Stacks: so many simulated engines without a card, rolled out beside what runs there, and removed at the end.
Figures are minima; the start-up of an empty play is shown, and taken off where it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from noop import LAB, PLAYBOOK, ROOT, host_cpu, ssh

FOLDER = "/opt/fleet-bench"
EMPTY = "- {hosts: all, gather_facts: false}\n"
ROLLOUT = "- {hosts: all, gather_facts: false, roles: [modelfleet.inference.vllm_stack]}\n"
REMOVE = f"""
for folder in {FOLDER}/*/; do
  name=$(basename "$folder")
  systemctl disable --now "modelfleet-$name.service"
  rm -f "/etc/systemd/system/modelfleet-$name.service"
  docker rm -f "vllm-$name"
  docker network rm "${{name}}_default"
done >/dev/null 2>&1
rm -rf {FOLDER}; systemctl daemon-reload
"""


@dataclass(frozen=True)
class Cost:
    wall: float
    controller: float  # CPU seconds of ansible-playbook and everything it started here
    host: float  # CPU seconds of the lab host


def play(inventory: str, book: str, lab_host: str, *arguments: str, statuses: tuple[int, ...] = (0,)) -> Cost:
    before, began, host = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), host_cpu(lab_host)
    done = subprocess.run(
        [str(PLAYBOOK), "-i", inventory, book, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in statuses:
        sys.exit(f"{book}: exit status {done.returncode}\n{done.stdout[-2500:]}{done.stderr[-1500:]}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, spent, host_cpu(lab_host) - host)


def best(costs: list[Cost]) -> Cost:
    return Cost(*(min(getattr(cost, name) for cost in costs) for name in ("wall", "controller", "host")))


def variables(inventory: str, host: str) -> dict[str, Any]:
    """Of the lab host, with nothing left to be looked up for another name."""
    done = subprocess.run(
        [str(PLAYBOOK.with_name("ansible-inventory")), "-i", inventory, "--host", host],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    state = ROOT / ".cache" / "lab" / LAB
    found["lab_state"] = str(state)
    found["ansible_port"] = json.loads((state / "hosts.json").read_text())[host]["port"]
    found["lab_images"] = json.loads((state / "images.json").read_text())
    return found


def write(folder: str, name: str, hosts: dict[str, Any], shared: dict[str, Any]) -> str:
    path = Path(folder) / name
    path.write_text(yaml.safe_dump({"all": {"children": {"gpu_hosts": {"hosts": hosts, "vars": shared}}}}))
    return str(path)


def many(folder: str, count: int, shared: dict[str, Any]) -> str:
    """The lab host under ``count`` names. sshd lets ten in at once; who is refused tries again."""
    hosts = {
        f"bench-{number:02}": {"ansible_control_path": f"{folder}/ssh-{number:02}", "ansible_ssh_retries": 8}
        for number in range(count)
    }
    return write(folder, f"hosts-{count}.yml", hosts, shared)


def stacked(folder: str, host: str, count: int, shared: dict[str, Any]) -> str:
    model = {
        "source": "lab/talker", "task": "chat", "image": "sim-vllm", "args": {"max_model_len": 4096},
        "env": {"SIM_DEVICE": "cpu", "SIM_LOAD_SECONDS": "0.5", "SIM_MODALITIES": "text"},
    }  # fmt: skip
    stacks = [
        {"name": f"bench-{number:02}", "model": "talker", "gpus": [], "port": 9100 + number} for number in range(count)
    ]
    # All on Docker's own bridge: with a network for each, its address pools end at about thirty.
    bridge = {"vllm_stack_compose": {"network_mode": "bridge"}}
    own = {"fleet_models": {"talker": model}, "fleet_stacks": stacks, "fleet_gpus": [], "vllm_stack_root": FOLDER}
    return write(folder, f"stacks-{count}.yml", {host: {}}, {**shared, **own, **bridge, "vllm_stack_ask": False})


def row(name: str, cost: Cost, note: str = "") -> None:
    figures = f"wall {cost.wall:6.2f} s   controller CPU {cost.controller:6.2f} s   host CPU {cost.host:6.2f} s"
    print(f"{name:28} {figures}   {note}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", default=str(ROOT / "inventories" / "lab"))
    parser.add_argument("--host", default="ana-ml2")
    parser.add_argument("--hosts", default="1,10,50")
    parser.add_argument("--stacks", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    lab_host, rounds = options.host, range(options.rounds)
    shared = variables(options.inventory, lab_host)
    look = ("playbooks/drift.yml", lab_host, "-e", "drift_fail=false")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.rounds} rounds, minima")
    with tempfile.TemporaryDirectory() as folder:
        empty_book, rollout_book = Path(folder) / "empty.yml", Path(folder) / "rollout.yml"
        empty_book.write_text(EMPTY)
        rollout_book.write_text(ROLLOUT)

        start_up = best([play(options.inventory, str(empty_book), lab_host) for _round in rounds])
        row("empty play", start_up)
        limit = ("-l", lab_host)
        noop, drift = [], []
        for _round in rounds:
            noop.append(play(options.inventory, "playbooks/site.yml", lab_host, *limit))
            drift.append(play(options.inventory, *look, *limit))
        row("site.yml, nothing to do", best(noop))
        ratio = (best(drift).wall - start_up.wall) / (best(noop).wall - start_up.wall)
        row("drift.yml", best(drift), f"less start-up {ratio:4.2f} x site.yml; aim at most 1: {_met(ratio <= 1)}")

        first: Optional[tuple[int, Cost]] = None
        for count in map(int, options.hosts.split(",")):
            inventory = many(folder, count, shared)
            cost = best([play(inventory, *look) for _round in rounds[: 1 if count > 10 else None]])
            note = f"{cost.wall / count:5.2f} s a host"
            if first:
                each = (cost.controller - first[1].controller) / (count - first[0])
                note += f", controller {each:4.2f} s of CPU for each more; aim less than 0.5: {_met(each < 0.5)}"
            first = first or (count, cost)
            row(f"drift.yml, {count} hosts", cost, note)

        fewest: Optional[tuple[int, Cost]] = None
        try:
            for count in map(int, options.stacks.split(",")):
                inventory = stacked(folder, lab_host, count, shared)
                play(inventory, str(rollout_book), lab_host)
                cost = best([play(inventory, *look) for _round in rounds])
                note = ""
                if fewest:
                    more = count - fewest[0]
                    note = (f"{(cost.wall - fewest[1].wall) / more * 1000:4.0f} ms of wall and "
                            f"{(cost.controller - fewest[1].controller) / more * 1000:3.0f} ms of the controller's CPU "
                            "for each more")  # fmt: skip
                fewest = fewest or (count, cost)
                row(f"drift.yml, {count} stacks", cost, note)
        finally:
            ssh(lab_host, REMOVE)
    return 0


def _met(good: bool) -> str:
    return "met" if good else "missed"


if __name__ == "__main__":
    sys.exit(main())
