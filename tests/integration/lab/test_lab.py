# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What everything else stands on: lab hosts that behave like GPU hosts. Needs a lab that is up (`lab/lab up`).

Containers and folders made here are removed; faults are switched off again. The last test restarts the GPU host.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Iterator

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAME = os.environ.get("LAB_NAME", "modelfleet")
STATE = ROOT / ".cache" / "lab" / NAME

# A process that holds 38,000 MiB of the first card it can see, as an engine would.
CLAIM = """
import fcntl, glob, json, os, time
card = int(sorted(glob.glob("/dev/nvidia[0-9]"))[0][-1])
path = f"/run/lab-gpu/claims/test-{os.uname().nodename}"
file = open(path + ".new", "w")
fcntl.flock(file, fcntl.LOCK_EX)
json.dump({"gpu": card, "mib": 38000, "name": "VLLM::EngineCore"}, file)
file.flush()
os.rename(path + ".new", path + ".json")
time.sleep(600)
"""


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "lab" / "lab", *words], capture_output=True, text=True, check=False)


def host(command: str, name: str = "ana-ml2", status: int | None = 0) -> str:
    done = lab("ssh", name, command)
    assert status is None or done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
    return (done.stdout + done.stderr).strip()


def wait_until(command: str, wanted: str, seconds: int = 30) -> None:
    deadline = time.monotonic() + seconds
    while (said := host(command, status=None)) != wanted:
        assert time.monotonic() < deadline, f"{command} says {said!r}, not {wanted!r}, after {seconds} s"
        time.sleep(0.3)


@pytest.fixture(scope="module")
def image() -> str:
    """The simulated engine's image, pulled by digest from the lab's registry."""
    entry = json.loads((STATE / "images.json").read_text())["sim-vllm"]
    reference = f"{entry['repository']}@{entry['digest']}"
    host(f"docker pull -q {reference}")
    return reference


@pytest.fixture
def engine(image: str) -> Iterator[str]:
    host(
        "docker run -d --init --name lab-test --restart unless-stopped --gpus '\"device=1\"' "
        f"--entrypoint python3 {image} -c {shlex.quote(CLAIM)}"
    )
    wait_until(USED, "0\n38000")
    yield "lab-test"
    host("docker rm -f lab-test", status=None)


USED = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"


@pytest.mark.parametrize("name", ["ana-ml2", "ana-docker"])
def test_hosts_are_whole(name: str) -> None:
    assert host("systemctl is-system-running", name) == "running"
    assert host("docker info --format '{{.Driver}}'", name) == "overlay2"
    assert host("docker compose version --short", name).startswith(("2.", "5."))
    assert host("python3 -c 'import docker; print(docker.from_env().ping())'", name) == "True"


def test_the_gateway_host_has_no_gpu(image: str) -> None:
    assert host("ls /dev | grep -c nvidia", "ana-docker", status=1) == "0"
    said = host(f"docker run --rm --gpus all {image}", "ana-docker", status=125)
    assert "could not select device driver" in said


@pytest.mark.parametrize(
    ("options", "cards"),
    [
        ("--gpus '\"device=1\"'", [1]),
        ("--gpus '\"device=0\"'", [0]),
        ("--gpus '\"device={uuid1}\"'", [1]),
        ("--gpus all", [0, 1]),
        ("--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=1", [1]),
        ("--runtime nvidia -e NVIDIA_VISIBLE_DEVICES={uuid0}", [0]),
        ("--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=void", []),
        ("--device nvidia.com/gpu=1", [1]),
        ("--device nvidia.com/gpu={uuid0}", [0]),
        ("--device nvidia.com/gpu=all", [0, 1]),
        ("", []),
    ],
)
def test_a_container_gets_the_cards_it_was_given(image: str, options: str, cards: list[int]) -> None:
    uuids = host("nvidia-smi --query-gpu=uuid --format=csv,noheader").splitlines()
    given = options.format(uuid0=uuids[0], uuid1=uuids[1])
    said = host(
        f"docker run --rm {given} --entrypoint sh {image} -c "
        "'ls /dev | grep -E \"nvidia[0-9]\"; nvidia-smi --query-gpu=uuid --format=csv,noheader 2>&1; true'"
    )
    expected = [f"nvidia{card}" for card in cards] + [uuids[card] for card in cards]
    assert said.splitlines() == expected or (not cards and "nvidia-smi" in said)


def test_compose_reserves_a_card(image: str) -> None:
    project = {
        "services": {
            "one": {
                "image": image,
                "entrypoint": ["nvidia-smi", "-L"],
                "deploy": {
                    "resources": {
                        "reservations": {
                            "devices": [{"driver": "nvidia", "device_ids": ["1"], "capabilities": ["gpu"]}]
                        }
                    }
                },
            }
        }
    }
    host(f"mkdir -p /tmp/lab-test && echo {shlex.quote(json.dumps(project))} > /tmp/lab-test/compose.yaml")
    said = host("cd /tmp/lab-test && docker compose up --no-color 2>&1; docker compose down 2>&1; rm -r /tmp/lab-test")
    assert "GPU 0: NVIDIA RTX PRO 6000 Blackwell" in said
    assert "GPU 1:" not in said


def test_an_unknown_card_is_refused(image: str) -> None:
    said = host(f"docker run --rm --gpus '\"device=7\"' --entrypoint true {image}", status=125)
    assert "nvidia-container-cli: device error: 7: unknown device" in said


def test_memory_is_free_again_when_the_container_dies(engine: str) -> None:
    pid = host("nvidia-smi --query-compute-apps=pid --format=csv,noheader")
    assert "lab-test" not in pid
    assert pid in host(f"docker top {engine} -o pid")
    host(f"docker kill {engine}")
    assert host(USED) == "0\n0"


def test_memory_stays_held_over_a_restart_of_the_daemon(engine: str) -> None:
    host("systemctl restart docker")
    wait_until("docker ps --format '{{.Names}}' --filter name=lab-test", engine)
    wait_until(USED, "0\n38000")


def test_lost_cards(engine: str) -> None:
    host(f"lab-gpu lose {engine}")
    assert host(f"docker exec {engine} nvidia-smi", status=255) == "Failed to initialize NVML: Unknown Error"
    host(f"docker restart -t 1 {engine}")
    wait_until(f"docker exec {engine} nvidia-smi -L | wc -l", "1")


def test_a_fault_of_the_driver_reaches_containers_too(image: str) -> None:
    host("lab-gpu fault mismatch")
    try:
        assert "Driver/library version mismatch" in host("nvidia-smi", status=18)
        said = host(f"docker run --rm --gpus all --entrypoint true {image}", status=125)
        assert "nvml error: driver/library version mismatch" in said
        host("lab-gpu fault missing")
        assert "not found" in host("nvidia-smi", status=127)
    finally:
        host("lab-gpu fault none")
    assert host("nvidia-smi -L | wc -l") == "2"


def test_names_of_the_lab_resolve_in_containers(image: str) -> None:
    ask = "import socket; print(*[socket.gethostbyname(n) for n in ('ana-ml2', 'ana-docker', 'registry')])"
    hosts = json.loads(lab("status", "--json").stdout)
    expected = [hosts[name]["address"] for name in ("ana-ml2", "ana-docker", "registry")]
    host("docker network create lab-test")
    try:
        for network in ("bridge", "lab-test"):
            said = host(f"docker run --rm --network {network} --entrypoint python3 {image} -c {shlex.quote(ask)}")
            assert said.split() == expected, network
    finally:
        host("docker network rm lab-test")


def test_a_host_restart_brings_everything_back(engine: str) -> None:
    subprocess.run(["docker", "restart", f"{NAME}-ana-ml2"], check=True, capture_output=True)
    wait_until("systemctl is-system-running", "running", seconds=60)
    wait_until("docker ps --format '{{.Names}}' --filter name=lab-test", engine)
    wait_until(USED, "0\n38000")
    assert host("ls -d /dev/nvidia0 /dev/nvidia1 /run/lab-gpu/claims | wc -l") == "3"
