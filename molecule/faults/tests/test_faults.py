# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of the simulated engine in one run: named, in time, put back or stopped, the neighbours not touched.

Ten stacks serve (host_vars). One run then changes eight of them and adds the others, each with a fault of its own. What
had served must serve again, what is new must be stopped with its memory given back.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping

import pytest
import testinfra
import yaml

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
STATE = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
FOLDER = "/opt/faults"
HOST = "ana-ml2"
SERVING = yaml.safe_load((HERE / "host_vars" / HOST / "fleet.yml").read_text())["fleet_stacks"]
SHARE_MIB = 973  # 0.01 of a card
KEPT = 5


@dataclass(frozen=True)
class Fault:
    """What a stack is given, and what must come of it."""

    code: str  # of the diagnosis; empty: the stack becomes ready
    fault: str = ""
    ended: str = "stopped"
    model: str = "talker"
    within: float | None = None  # seconds from the start to the failure, for those whose deciding event is no death
    env: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)  # keys of the stack


FAULTS = {
    # These serve, and are changed into something that does not.
    "hang": Fault("answer_timeout", "hang", "put_back", within=120),
    "oom-killed": Fault("container_oom_killed", "oom_killed", "put_back", more={"compose": {"mem_limit": "200m"}}),
    "restart-loop": Fault("weights_corrupt", "restart_loop", "put_back", more={"compose": {"restart": "always"}}),
    "dead-engine": Fault("engine_dead", "dead_engine", "put_back", within=30),
    "wrong-model": Fault("served_name_mismatch", "wrong_model", "put_back", within=30),
    "blind": Fault("vision_blind", "blind", "put_back", within=60),
    "kv-small": Fault("kv_cache_too_small_for_context", "kv_small", "put_back"),
    "no-image": Fault("image_not_found", "", "not_touched", more={"image": "nowhere"}),
    # These are new: nothing is there to put back.
    "slow": Fault("", "slow"),
    "race-once": Fault("", "once:race"),
    "race-twice": Fault("gpu_memory_profiling_race", "race"),
    "crash-config": Fault("architecture_unsupported", "crash_at=config"),
    "crash-engine": Fault("engine_init_failed", "crash_at=engine"),
    "crash-weights": Fault("weights_corrupt", "crash_at=weights"),
    "crash-profiling": Fault("quant_tile_size", "crash_at=profiling"),
    "crash-kv-cache": Fault("mamba_blocks_exceeded", "crash_at=kv_cache"),
    "crash-graphs": Fault("cuda_graph_oom", "crash_at=graphs"),
    "crash-serving": Fault("engine_init_failed", "crash_at=serving"),
    "disk-full": Fault("disk_full", "disk_full"),
    "garbage": Fault("output_garbage", "garbage", within=30),
    "empty-content": Fault("reasoning_swallowed_content", "empty_content", model="thinker", within=30),
    "tool-call-lost": Fault("tool_parser_wrong", "tool_call_lost", model="caller", within=30),
    "exit-0": Fault("kernel_unsupported", "exit0", within=30),
    "unhealthy": Fault("engine_dead", "unhealthy", within=30),
    "port-in-container": Fault("port_in_use", "port_taken"),
    "port-on-host": Fault("port_in_use", within=30, more={"port": 8399}),
    "never-seen": Fault(
        "engine_init_failed", "last_words", env={"SIM_LAST_WORDS": "RuntimeError: the flux capacitor is out of phase"}
    ),
    "stuck": Fault("deadline", "stuck", within=75),
}
FAILING = [name for name, fault in FAULTS.items() if fault.code]
PUT_BACK = [name for name, fault in FAULTS.items() if fault.ended == "put_back"]
STOPPED = [name for name, fault in FAULTS.items() if fault.code and fault.ended == "stopped"]


@dataclass(frozen=True)
class Faulty:
    """The run with all faults, and the host before and after it."""

    status: int
    output: str
    begun: dict[str, float]  # stack: moment at which it was said to start, by this machine's clock
    seen: dict[str, float]  # stack: moment at which the line of its failure came
    before: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    events: list[tuple[float, str, str]]  # moment, action, stack


def variables() -> dict[str, Any]:
    there = {stack["name"]: stack for stack in SERVING}
    stacks = []
    for name in [*there, *(name for name in FAULTS if name not in there)]:
        fault = FAULTS.get(name)
        number = len(stacks)
        stack = there.get(name) or {
            "name": name, "model": fault.model, "gpus": [number % 2], "port": 8300 + number,
            "gpu_memory_utilization": 0.01,
        }  # fmt: skip
        if fault:
            env = {**({"SIM_FAULT": fault.fault} if fault.fault else {}), **fault.env}
            stack = {**stack, **({"env": env} if env else {}), **fault.more}
        stacks.append(stack)
    images = json.loads((STATE / "images.json").read_text())
    good = {**images["sim-vllm"], "engine": "0.32.0"}
    nowhere = {**good, "digest": "sha256:" + "0" * 64}
    return {"fleet_stacks": stacks, "fleet_images": {"sim-vllm": good, "nowhere": nowhere}}


def play(*arguments: str, book: str = f"{HERE}/play.yml") -> subprocess.Popen[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}
    return subprocess.Popen(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", f"{HERE}/hosts.yml", book, *arguments],
        cwd=ROOT, env={**environment, "ANSIBLE_NOCOLOR": "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def containers(host: Any) -> dict[str, dict[str, Any]]:
    """By name of the stack."""
    numbers = host.check_output("docker ps -aq --filter label=modelfleet.stack").split()
    every = json.loads(host.check_output(f"docker inspect {' '.join(numbers)}")) if numbers else []
    found: dict[str, dict[str, Any]] = {}
    for one in every:
        name = one["Config"]["Labels"]["modelfleet.stack"]
        assert name not in found, f"two containers of {name}"
        found[name] = one
    return found


@pytest.fixture(scope="module")
def host() -> Any:
    return testinfra.get_host(f"ssh://{HOST}", ssh_config=str(STATE / "ssh_config"))


@pytest.fixture(scope="module")
def faulty(host: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    extra = tmp_path_factory.mktemp("faults") / "faults.json"
    extra.write_text(json.dumps(variables()))
    host.check_output("rm -rf /run/lab-gpu/faults/.spent")
    for number in range(7):
        host.check_output(f"mkdir -m 700 -p {FOLDER}/blind/.modelfleet/failed/2020-01-01T00000{number}Z")
    taken = "systemd-run --unit faults-port --collect python3 -m http.server 8399 --bind 0.0.0.0"
    host.check_output(f"systemctl stop faults-port faults-events 2>/dev/null; {taken} 2>&1")
    # The daemon remembers 256 events only, and every health check is two of them.
    watch = (
        "docker events --filter type=container --filter event=start --filter event=die "
        "--format '{{.TimeNano}} {{.Action}} {{index .Actor.Attributes \"modelfleet.stack\"}}'"
    )
    host.check_output(
        f"systemd-run --unit faults-events sh -c {shlex.quote(f'exec {watch} > /run/faults-events')} 2>&1"
    )
    before = containers(host)
    lines, begun, seen = [], {}, {}
    run = play("-e", f"@{extra}")
    for line in run.stdout:
        lines.append(line)
        starting = re.match(rf"{HOST} (\S+): starting$", line)
        if starting:
            begun.setdefault(starting.group(1), time.time())
        failed = re.match(rf"{HOST} (\S+): .*\[\w+\]$", line)
        if failed and "trying once more" not in line:
            seen.setdefault(failed.group(1), time.time())
    run.wait()
    events = [
        (int(moment) / 1e9, action, name)
        for moment, action, name in (
            line.split(" ") for line in host.check_output("cat /run/faults-events").splitlines()
        )
    ]
    yield Faulty(run.returncode, "".join(lines), begun, seen, before, containers(host), events)
    host.check_output("systemctl stop faults-port faults-events; rm /run/faults-events")


def started(faulty: Faulty, name: str) -> float:
    return next(moment for moment, action, stack in faulty.events if (action, stack) == ("start", name))


def died(faulty: Faulty, name: str) -> float:
    """When the engine whose failure counts died: the last death before the line of the failure."""
    after = started(faulty, name)
    deaths = [
        moment
        for moment, action, stack in faulty.events
        if (action, stack) == ("die", name) and after < moment < faulty.seen[name]
    ]
    return deaths[-1]


def test_the_run_failed_and_said_all_of_it_once(faulty):
    assert faulty.status == 2
    for name in FAILING:
        title = f"{HOST} {name}: [{FAULTS[name].code}]"
        assert faulty.output.count(title) == 1, f"{title} stands {faulty.output.count(title)} times in what was printed"


@pytest.mark.parametrize("name", FAILING)
def test_the_message_is_short_and_says_what_to_change(faulty, name):
    text = message(faulty.output, name)
    assert 3 <= len(text) <= 14, text
    assert any(line.startswith("change: ") for line in text), text
    assert re.match(r"after [\d.]+ s: ", text[-1] if FAULTS[name].ended == "not_touched" else text[-2]), text
    if FAULTS[name].ended != "not_touched":
        assert text[-1].startswith(f"kept: {FOLDER}/{name}/.modelfleet/failed/"), text


def message(output: str, name: str) -> list[str]:
    lines = [line.strip() for line in output.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith(f"{HOST} {name}: ["))
    ends = [number for number in range(at, len(lines)) if not lines[number] or lines[number].startswith("stacks:")]
    return lines[at : ends[0]]


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.code and fault.within is None])
def test_the_wait_ends_with_the_engine(faulty, name):
    """Not to the second: this machine has two cores, and all faults happen side by side. benchmarks/failfast.py has."""
    if FAULTS[name].ended != "not_touched":
        assert faulty.seen[name] - died(faulty, name) < 8


def test_half_of_the_waits_end_within_two_seconds(faulty):
    waits = {
        name: round(faulty.seen[name] - died(faulty, name), 2)
        for name, fault in FAULTS.items()
        if fault.code and fault.within is None and fault.ended != "not_touched"
    }
    print(waits)
    assert statistics.median(waits.values()) <= 2.0, waits


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.within])
def test_the_wait_ends_when_the_answers_are_known(faulty, name):
    assert faulty.seen[name] - faulty.begun[name] < FAULTS[name].within


@pytest.mark.parametrize("name", PUT_BACK)
def test_what_served_serves_again(host, faulty, name):
    container = faulty.after[name]
    before = faulty.before[name]
    assert container["State"]["Running"]
    assert container["Config"]["Labels"]["modelfleet.hash"] == before["Config"]["Labels"]["modelfleet.hash"]
    assert container["Image"] == before["Image"]
    assert not any(line.startswith("SIM_FAULT") for line in container["Config"]["Env"])
    receipt = json.loads(host.file(f"{FOLDER}/{name}/.modelfleet/receipt.json").content_string)
    assert receipt["outcome"] == "good"
    assert receipt["answers"], "it was put back, but not asked"
    assert all(answer["passed"] for answer in receipt["answers"])
    assert "put back to its last good configuration, which is running and answers" in " ".join(
        message(faulty.output, name)
    )


@pytest.mark.parametrize("name", STOPPED)
def test_what_is_new_is_stopped(faulty, name):
    assert not faulty.after[name]["State"]["Running"]
    assert "stopped, its GPU is free" in " ".join(message(faulty.output, name))


def test_the_memory_is_free_again(host, faulty):
    """No more is claimed than what runs may have: the neighbours, what was put back, and the two that became ready."""
    running = [one for one in faulty.after.values() if one["State"]["Running"]]
    used = host.check_output("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits").split()
    if len(running) == len(SERVING) + 2:  # nothing but this scenario runs on the host
        assert sum(map(int, used)) <= len(running) * SHARE_MIB


@pytest.mark.parametrize("name", ["neighbour-0", "neighbour-1", "no-image"])
def test_the_neighbours_are_not_touched(faulty, name):
    before, after = faulty.before[name], faulty.after[name]
    assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])
    assert after["RestartCount"] == before["RestartCount"]


def test_others_on_the_host_are_not_touched(faulty):
    ours = {stack["name"] for stack in SERVING} | set(FAULTS)
    others = {name for name in faulty.before if name not in ours}
    assert {name: faulty.after[name]["Id"] for name in others} == {name: faulty.before[name]["Id"] for name in others}


@pytest.mark.parametrize("name", ["slow", "race-once"])
def test_what_only_takes_longer_becomes_ready(faulty, name):
    assert faulty.after[name]["State"]["Running"]
    assert re.search(rf"^{HOST} {name}: ready and answering after", faulty.output, re.MULTILINE)


@pytest.mark.parametrize(("name", "failures"), [("race-once", 1), ("race-twice", 2)])
def test_a_race_is_tried_once_more_and_that_is_said(host, faulty, name, failures):
    assert faulty.output.count("this may pass: trying once more") == 2
    assert re.search(rf"^{HOST} {name}: .*gpu_memory_profiling_race.*trying once more", faulty.output, re.MULTILINE)
    assert len(host.check_output(f"ls {FOLDER}/{name}/.modelfleet/failed").split()) == failures


@pytest.mark.parametrize("name", [*PUT_BACK, *STOPPED])
def test_nothing_of_the_attempt_is_lost(host, faulty, name):
    failed = f"{FOLDER}/{name}/.modelfleet/failed"
    kept = sorted(host.check_output(f"ls {failed}").split())
    assert len(kept) <= KEPT
    newest = f"{failed}/{kept[-1]}"
    files = set(host.check_output(f"ls {newest}").split())
    assert {"compose.yaml", "vllm.yaml", "container.log", "failure.json", "answers.json"} <= files
    assert json.loads(host.file(f"{newest}/failure.json").content_string)["code"] == FAULTS[name].code
    assert "SIM_FAULT" in host.file(f"{newest}/compose.yaml").content_string or name == "port-on-host"
    if name not in ("port-on-host", "stuck"):
        assert host.file(f"{newest}/container.log").size > 0


def test_the_newest_five_are_kept(host, faulty):
    kept = sorted(host.check_output(f"ls {FOLDER}/blind/.modelfleet/failed").split())
    assert len(kept) == KEPT
    assert [each[:4] for each in kept].count("2020") == KEPT - 1


def test_diagnose_explains_what_stands_still(faulty):
    """The playbook for afterwards reads the same logs and comes to the same names."""
    del faulty
    explained = play("-e", json.dumps({"only": ["crash-weights", "disk-full"]}), book="playbooks/diagnose.yml")
    said, _nothing = explained.communicate()
    assert explained.returncode == 0, said
    assert "weights_corrupt" in said
    assert "disk_full" in said


def test_after_the_faults_nothing_is_left_to_do(faulty):
    """What was put back is what the inventory without the faults asks for."""
    del faulty
    run = play()
    said, _nothing = run.communicate()
    assert run.returncode == 0, said
    assert re.search(rf"^{HOST}\s+: ok=\d+\s+changed=0 ", said, re.MULTILINE), said


@pytest.mark.parametrize(("allowed", "good"), [(0, False), (1, True)])
def test_restarts_while_it_starts(host, faulty, allowed, good):
    """The first start crashes, Docker's own policy starts the engine again: a failure, or within what is allowed."""
    del faulty
    host.check_output("rm -rf /run/lab-gpu/faults/.spent")
    stack = {
        "name": ("crash-config", "crash-engine")[allowed], "model": "talker", "gpus": [0], "port": 8390 + allowed,
        "gpu_memory_utilization": 0.01, "env": {"SIM_FAULT": "once:crash_at=weights"}, "compose": {"restart": "always"},
    }  # fmt: skip
    extra = {"fleet_stacks": [*SERVING, stack], "vllm_stack_max_restarts": allowed, "only": stack["name"]}
    run = play("-e", json.dumps(extra))
    said, _nothing = run.communicate()
    assert (run.returncode == 0) == good, said
    container = containers(host)[stack["name"]]
    assert container["State"]["Running"] == good
    assert ("weights_corrupt" in said) != good
    if good:
        assert container["RestartCount"] == 1
