#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the event that decides a start to the end of the playbook that failed. Needs the lab with its sim-vllm image.

    benchmarks/failfast.py [--host ana-ml2] [--trials 20]

A stack of its own is deployed for the first time and fails in another phase each time. The deciding event is the
engine's last word or its death, whichever comes first, by the container's own clock; the end is the exit of
ansible-playbook, the stopped container and a free GPU included. The time limit of the stack is 600 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
NAME = "bench-failfast"
FAULTS = ("crash_at=config", "crash_at=weights", "crash_at=kv_cache", "crash_at=graphs", "exit0", "disk_full")


def ssh(host: str, command: str) -> str:
    return subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), host, command], check=True, capture_output=True, text=True
    ).stdout


def inventory(folder: Path, host: str, fault: str) -> None:
    image = json.loads((STATE / "images.json").read_text())["sim-vllm"]
    variables: dict[str, Any] = {
        "ansible_connection": "ssh",
        "ansible_ssh_common_args": f"-F {STATE}/ssh_config",
        "ansible_python_interpreter": "/usr/bin/python3",
        "fleet_images": {"sim": {**image, "engine": "0.32.0"}},
        "fleet_models": {
            NAME: {
                "source": "bench/failfast",
                "image": "sim",
                "args": {"max_model_len": 4096},
                "env": {"SIM_LOAD_SECONDS": "2", "SIM_WEIGHTS_MIB": "1000", "SIM_FAULT": fault},
            }
        },
        "fleet_gpus": [{"index": 0}],
        "fleet_stacks": [{"name": NAME, "model": NAME, "gpus": [0], "port": 8999, "gpu_memory_utilization": 0.05}],
        "vllm_stack_root": "/opt/bench-failfast",
        "vllm_stack_timeout": 600,
        "vllm_stack_retries": 0,
    }
    (folder / "hosts.json").write_text(json.dumps({"gpu_hosts": {"hosts": {host: variables}}}))
    play = {"hosts": "gpu_hosts", "gather_facts": False, "roles": ["modelfleet.inference.vllm_stack"]}
    (folder / "play.yml").write_text(json.dumps([play]))


def decided(host: str, since: float) -> float:
    """Seconds since the epoch of the engine's last line before its first death, or of that death."""
    events = ssh(
        host,
        f"docker events --since {since:.3f} --until {time.time():.3f} --filter container=vllm-{NAME} "
        "--filter event=die --format '{{.TimeNano}}'",
    ).split()
    return int(events[0]) / 1e9 if events else time.time()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="ana-ml2")
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    playbook = Path(sys.executable).with_name("ansible-playbook")
    clean = f"docker rm -f vllm-{NAME} >/dev/null 2>&1; rm -rf /opt/bench-failfast"
    seconds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for trial in range(options.trials):
            fault = FAULTS[trial % len(FAULTS)]
            ssh(options.host, clean)
            inventory(folder, options.host, fault)
            began = time.time()
            done = subprocess.run(
                [str(playbook), "-i", str(folder / "hosts.json"), str(folder / "play.yml")],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            ended = time.time()
            if done.returncode != 2:
                sys.exit(f"{fault} did not fail the run:\n{done.stdout[-1500:]}{done.stderr[-500:]}")
            seconds.append(ended - decided(options.host, began))
            code = done.stdout.partition("code: ")[2].split("\n")[0]
            at = datetime.fromtimestamp(ended, timezone.utc).strftime("%H:%M:%S")
            print(f"{at} {fault:18} {code:32} {seconds[-1]:5.2f} s after the engine's death", flush=True)
        ssh(options.host, clean)
    median = statistics.median(seconds)
    print(f"{len(seconds)} trials: median {median:.2f} s, worst {max(seconds):.2f} s; aim: 2 s, time limit 600 s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
