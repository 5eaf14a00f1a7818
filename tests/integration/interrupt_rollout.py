#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts rollouts at random moments, then runs once more: is the host converged, and is nothing lost?

    tests/integration/interrupt_rollout.py INVENTORY [--host ana-ml2] [--runs 50] [--seed N]

Each run changes every stack (by one variable), is cut off after a random time (Ctrl-C on the controller, and half of
the times the host's own process is killed too), and may meet the one before, which went on. Needs the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STATE = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
FOLDER = "/opt/docker/compose"
KILL = f"kill -9 $(sed -n 's/^pid //p' {FOLDER}/.modelfleet/lock) 2>/dev/null && echo killed || true"


def ssh(host: str, command: str) -> str:
    return subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), host, command], check=True, capture_output=True, text=True
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inventory")
    parser.add_argument("--host", default="ana-ml2")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        play = Path(folder) / "play.json"
        roles = ["modelfleet.inference.vllm_stack"]
        play.write_text(json.dumps([{"hosts": options.host, "gather_facts": False, "roles": roles}]))

        def command(value: int) -> list[str]:
            extra = {"vllm_stack_compose": {"environment": {"INTERRUPT_TRIAL": str(value)}}}
            return [str(PLAYBOOK), "-i", options.inventory, str(play), "-e", json.dumps(extra)]

        for number in range(options.runs):
            run = subprocess.Popen(
                command(number), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            try:
                run.wait(timeout=chance.uniform(1.5, 15))
                counts["ended by itself"] += 1
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGINT)
                run.wait()
                counts["interrupted"] += 1
                if chance.random() < 0.5:
                    counts["killed on the host"] += "killed" in ssh(options.host, KILL)
            names = ssh(
                options.host, "docker ps -a --filter label=modelfleet.stack --format '{{.Label \"modelfleet.stack\"}}'"
            )
            twice = [name for name, times in Counter(names.split()).items() if times > 1]
            counts["two containers of one stack"] += len(twice)
            broken = ssh(
                options.host,
                f"for f in {FOLDER}/*/compose.yaml; do docker compose -f $f config -q 2>&1 || echo broken $f; done",
            )
            counts["half-written files"] += broken.count("broken")
        clean = subprocess.run(command(options.runs), cwd=ROOT, capture_output=True, text=True, check=False)
        again = subprocess.run(command(options.runs), cwd=ROOT, capture_output=True, text=True, check=False)
    left = ssh(options.host, f"find {FOLDER} -name '.modelfleet-*' -o -name '*.new' -o -name '*.old'").split()
    converged = clean.returncode == 0 and again.returncode == 0 and "changed=0" in again.stdout
    print(dict(counts))
    print(f"one clean run: {'converged' if converged else 'NOT converged'}; litter: {left or 'none'}")
    if not converged:
        print(clean.stdout[-2000:], again.stdout[-1000:])
    bad = counts["two containers of one stack"] + counts["half-written files"] + len(left)
    return 0 if converged and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
