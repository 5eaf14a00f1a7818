#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cuts rollouts off at random moments, then runs once more: is the host converged, is nothing lost?

    benchmarks/kill.py [--host ana-ml2] [--runs 50] [--seed N]

Needs the lab with its sim-vllm image; brings three small stacks of its own, on two GPUs, and takes them away again.
Each run changes every stack (by one variable) and is cut off in one of four ways: Ctrl-C, ansible-playbook killed, its
ssh connection killed, the job on the host killed. What goes on on the host may meet the run after it. After each:
never two containers of one stack, never a file that is half there, always a last good set.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
FOLDER = "/opt/bench-kill"
STACKS = {"kill-a": 0, "kill-b": 0, "kill-c": 1}  # GPU
WAYS = ("Ctrl-C", "ansible-playbook killed", "ssh killed", "job on the host killed")
ENDS_WITHIN = 120  # seconds that a run whose other half was killed may need to notice, or to do its work after all
LOOK = r"""
import glob, json, os, subprocess
folder = "/opt/bench-kill"
found = {"containers": [], "broken": [], "no_last_good": [], "litter": []}
names = ["docker", "ps", "-a", "--filter", "label=modelfleet.stack", "--format", '{{.Label "modelfleet.stack"}}']
found["containers"] = [n for n in subprocess.check_output(names, text=True).split() if n.startswith("kill-")]
for path in glob.glob(folder + "/kill-*/.modelfleet/**/*.json", recursive=True):
    try:
        json.load(open(path))
    except FileNotFoundError:
        pass  # replaced while we looked
    except ValueError:
        found["broken"].append(path)
for path in glob.glob(folder + "/kill-*/compose.yaml"):
    done = subprocess.run(["docker", "compose", "-f", path, "config", "-q"], capture_output=True)
    if done.returncode or not open(path[:-12] + "vllm.yaml").read().endswith("\n"):
        found["broken"].append(path)
for one in glob.glob(folder + "/kill-*"):
    good = [one + "/.modelfleet/last_good" + end + "/stack.json" for end in ("", ".old")]
    if not any(os.path.exists(path) for path in good) and not any(os.path.exists(path) for path in good):
        found["no_last_good"].append(one)
for path in glob.glob(folder + "/**/*", recursive=True) + glob.glob(folder + "/**/.*", recursive=True):
    if os.path.basename(path).startswith(".modelfleet-") or path.endswith((".new", ".old")):
        found["litter"].append(path)
print(json.dumps(found))
"""
KILL_JOB = f"kill -9 $(sed -n 's/^pid //p' {FOLDER}/.modelfleet/lock) 2>/dev/null && echo killed"
CLEAN = f"""
for name in {" ".join(STACKS)}; do
  systemctl disable --now modelfleet-$name.service; rm -f /etc/systemd/system/modelfleet-$name.service
  docker rm -f vllm-$name
done >/dev/null 2>&1
rm -rf {FOLDER}; systemctl daemon-reload
"""


def ssh(host: str, command: str, check: bool = True) -> str:
    done = subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), host, command], capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        sys.exit(f"on {host}: {command[:80]}: {done.stderr}")
    return done.stdout


def inventory(folder: Path, host: str) -> None:
    image = json.loads((STATE / "images.json").read_text())["sim-vllm"]
    variables: dict[str, Any] = {
        "ansible_connection": "ssh",
        "ansible_ssh_common_args": f"-F {STATE}/ssh_config",
        "ansible_control_path": f"{folder}/ssh",  # so that we know whom to kill
        "ansible_python_interpreter": "/usr/bin/python3",
        "fleet_images": {"sim": {**image, "engine": "0.32.0"}},
        "fleet_models": {
            "kill": {
                "source": "bench/kill",
                "image": "sim",
                "args": {"max_model_len": 4096},
                "env": {"SIM_LOAD_SECONDS": "1", "SIM_WEIGHTS_MIB": "300"},
            }
        },
        "fleet_gpus": [{"index": 0}, {"index": 1}],
        "fleet_stacks": [
            {"name": name, "model": "kill", "gpus": [gpu], "port": 8991 + at, "gpu_memory_utilization": 0.01}
            for at, (name, gpu) in enumerate(STACKS.items())
        ],
        "vllm_stack_root": FOLDER,
        "vllm_stack_timeout": 120,
    }
    (folder / "hosts.json").write_text(json.dumps({"gpu_hosts": {"hosts": {host: variables}}}))
    play = {"hosts": "gpu_hosts", "gather_facts": False, "roles": ["modelfleet.inference.vllm_stack"]}
    (folder / "play.yml").write_text(json.dumps([play]))


def command(folder: Path, trial: int) -> list[str]:
    extra = {"vllm_stack_compose": {"environment": {"KILL_TRIAL": str(trial)}}}
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    return [playbook, "-i", f"{folder}/hosts.json", f"{folder}/play.yml", "-e", json.dumps(extra)]


def cut(run: subprocess.Popen[bytes], way: str, folder: Path, host: str) -> str:
    """Cut the run off and wait for its end; what came of that, for the counts."""
    if way == "job on the host killed":
        killed = "killed" in ssh(host, KILL_JOB, check=False)
        run.wait(ENDS_WITHIN)
        return way if killed else "ended by itself"
    if way == "ssh killed":
        asked = subprocess.run(
            ["ssh", "-O", "check", "-o", f"ControlPath={folder}/ssh", host], capture_output=True, text=True, check=False
        )
        master = re.search(r"pid=(\d+)", asked.stderr)
        if master:
            os.kill(int(master.group(1)), signal.SIGKILL)
        run.wait(ENDS_WITHIN)
        return way if master else "ended by itself"
    os.killpg(run.pid, signal.SIGINT if way == "Ctrl-C" else signal.SIGKILL)
    run.wait(ENDS_WITHIN)
    return way


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="ana-ml2")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    counts: Counter[str] = Counter()
    ssh(options.host, CLEAN)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inventory(folder, options.host)
        began = time.monotonic()
        first = subprocess.run(command(folder, -1), cwd=ROOT, capture_output=True, text=True, check=False)
        whole = time.monotonic() - began
        if first.returncode:
            sys.exit(f"the first run, which nobody interrupts, failed:\n{first.stdout[-2000:]}{first.stderr[-1000:]}")
        print(f"seed {options.seed}; one whole run takes {whole:.1f} s", flush=True)
        for trial in range(options.runs):
            run = subprocess.Popen(
                command(folder, trial), cwd=ROOT, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            moment, way = chance.uniform(0.3, whole), chance.choice(WAYS)
            try:
                run.wait(moment)
                outcome = "ended by itself"
            except subprocess.TimeoutExpired:
                outcome = cut(run, way, folder, options.host)
            counts[outcome] += 1
            found = json.loads(ssh(options.host, f"python3 - <<'LOOK'\n{LOOK}\nLOOK"))
            twice = [each for each, times in Counter(found["containers"]).items() if times > 1]
            for what, where in (
                ("two containers of one stack", twice),
                ("half-written files", found["broken"]),
                ("last good sets lost", found["no_last_good"]),
            ):
                counts[what] += len(where)
                if where:
                    print(f"run {trial} ({outcome} after {moment:.1f} s): {what}: {where}", flush=True)
        clean = subprocess.run(command(folder, options.runs), cwd=ROOT, capture_output=True, text=True, check=False)
        again = subprocess.run(command(folder, options.runs), cwd=ROOT, capture_output=True, text=True, check=False)
        subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={folder}/ssh", options.host], capture_output=True)
    found = json.loads(ssh(options.host, f"python3 - <<'LOOK'\n{LOOK}\nLOOK"))
    served = 0
    for at, name in enumerate(STACKS):
        environment = ssh(options.host, f"docker inspect -f '{{{{.Config.Env}}}}' vllm-{name}", check=False)
        health = ssh(
            options.host, f"curl -sS -m 5 -w '%{{http_code}}' http://127.0.0.1:{8991 + at}/health", check=False
        )
        served += health == "200" and f"KILL_TRIAL={options.runs}" in environment
    converged = clean.returncode == 0 and again.returncode == 0 and "changed=0" in again.stdout
    for what in (*WAYS, "ended by itself", "two containers of one stack", "half-written files", "last good sets lost"):
        print(f"{counts[what]:5}  {what}")
    print(
        f"then one clean run: {'converged' if converged else 'NOT converged'}, {served} of {len(STACKS)} stacks serve "
        f"its configuration, containers: {len(found['containers'])}, litter: {found['litter'] or 'none'}"
    )
    if not converged:
        print(clean.stdout[-3000:], clean.stderr[-1000:], again.stdout[-2000:])
    else:
        ssh(options.host, CLEAN)
    bad = counts["two containers of one stack"] + counts["half-written files"] + counts["last good sets lost"]
    fine = converged and not bad and served == len(STACKS) == len(found["containers"]) and not found["litter"]
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
