# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main process of a stack's systemd unit: starts the Compose project, says READY when the model is, watches it.

This file is installed on the host below a #! line, so it imports the standard library alone. It holds a lock per GPU
while it starts, so that two engines never load on one card at the same time, whoever started them: a boot, a crash or
a rollout, which takes the same locks.

A container that answers already is taken over as it is: it loads nothing, so it needs no turn.

Exit status: 0 stopped on purpose (by systemd, or by hand, which is remembered); 1 anything else, so that systemd
starts it again; 3 the crash fuse has blown, and systemd leaves it. An engine's death is a failure even when the engine
exits with 0.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from types import FrameType
from typing import Any, Iterator, Optional, Sequence

LOCK_DIRECTORY = "/run/modelfleet"
DOCKER_SOCKET = "/run/docker.sock"
POLL_SECONDS = 0.5
STILL_SECONDS = 1.0  # free memory unchanged for so long counts as still
STILL_LIMIT_SECONDS = 30.0
STILL_TOLERANCE_MIB = 64
HAND_STOP_SECONDS = 4.0  # a restart or recreation by hand is back within this
STOP_SECONDS = 60
STOP_SIGNALS = ("2", "3", "9", "15")  # others, such as HUP, end nothing
BLOWN = 3


class Stopped(Exception):
    """systemd asked the unit to stop."""


class StoppedByHand(Exception):
    """Somebody stopped the container; it stays down until the next run."""


class Failed(Exception):
    """The stack is not running; the message is the reason. Counts against the crash fuse."""


class Docker:
    """The few questions for the daemon, over its socket."""

    def __init__(self, path: str = DOCKER_SOCKET) -> None:
        self.path = path

    def request(self, method: str, url: str, timeout: Optional[float] = 30) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("localhost", timeout=timeout)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(timeout)
        connection.sock.connect(self.path)
        connection.request(method, url)
        return connection.getresponse()

    def state(self, container: str) -> dict[str, Any]:
        """The container's State; empty when there is none. OSError when the daemon is away."""
        answer = self.request("GET", f"/containers/{urllib.parse.quote(container)}/json")
        body = answer.read()
        if answer.status == 404:
            return {}
        if answer.status != 200:
            raise OSError(f"the Docker daemon answered {answer.status}: {body[:200]!r}")
        state: dict[str, Any] = json.loads(body)["State"]
        return state

    def stop(self, container: str, seconds: int) -> None:
        url = f"/containers/{urllib.parse.quote(container)}/stop?t={seconds}"
        self.request("POST", url, timeout=seconds + 30).read()

    def events(self, container: str, past: str = "") -> Iterator[dict[str, Any]]:
        """kill and die of this container: from now on, as they happen, until the daemon goes away; or the ``past``."""
        filters = json.dumps({"type": ["container"], "container": [container], "event": ["kill", "die"]})
        answer = self.request("GET", f"/events?{past}filters={urllib.parse.quote(filters)}", timeout=None)
        return (json.loads(line) for line in answer if line.strip())

    def killed(self, container: str, since: float) -> bool:
        """Whether somebody has stopped or killed it since then (seconds since the epoch)."""
        return any(map(stops, self.events(container, f"since={since:.6f}&until={time.time():.6f}&")))


def stops(event: dict[str, Any]) -> bool:
    """Whether this is a signal by hand that ends a container."""
    kill = event.get("Action", event.get("status")) == "kill"
    return kill and event["Actor"]["Attributes"].get("signal", "9") in STOP_SIGNALS


@contextlib.contextmanager
def gpu_locks(gpus: Sequence[int], directory: str = LOCK_DIRECTORY) -> Iterator[None]:
    """Hold the start lock of each GPU. Always taken in ascending order, so that two stacks never block each other."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    with contextlib.ExitStack() as held:
        for gpu in sorted(set(gpus)):
            lock = held.enter_context(open(os.path.join(directory, f"gpu-{gpu}.lock"), "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def notify(text: str) -> None:
    """Tell systemd; without it (run by hand) say nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)


def free_mib(gpus: Sequence[int]) -> list[str]:
    """Free memory of the GPUs as nvidia-smi prints it; empty where it cannot tell."""
    if not gpus:
        return []
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", ",".join(map(str, gpus))]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()


def wait_until_still(gpus: Sequence[int]) -> None:
    """Until the cards' free memory has stopped moving: a neighbour that still grows would be mis-measured."""
    deadline = time.monotonic() + STILL_LIMIT_SECONDS
    before, since = free_mib(gpus), time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < STILL_SECONDS:
        time.sleep(POLL_SECONDS)
        now = free_mib(gpus)
        if _moved(before, now):
            before, since = now, time.monotonic()


def _moved(before: Sequence[str], now: Sequence[str]) -> bool:
    try:
        return any(abs(int(old) - int(new)) > STILL_TOLERANCE_MIB for old, new in zip(before, now))
    except ValueError:
        return False  # "[N/A]": nothing to wait for


def answers(url: str, model: str) -> bool:
    """Whether /health is 200 and /v1/models lists the served name.

    An engine with an API key refuses the second question: 401 is an answer too, and the key stays out of here.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}/health", timeout=5):
            pass
        with direct.open(f"{url}/v1/models", timeout=5) as listing:
            return model in [entry["id"] for entry in json.load(listing)["data"]]
    except urllib.error.HTTPError as error:
        return error.code == 401
    except (OSError, ValueError, KeyError):
        return False


def start(docker: Docker, wanted: argparse.Namespace) -> None:
    """Bring the project up and return when the model is ready. Raises Failed with the reason."""
    compose = ["docker", "compose", "up", "--detach", "--pull", "never", "--no-build"]
    up = subprocess.run(compose, cwd=wanted.directory, capture_output=True, text=True, check=False)
    if up.returncode:
        raise Failed(f"docker compose up failed: {up.stderr.strip()[-500:]}")
    began, deadline = time.time(), time.monotonic() + wanted.start_seconds
    while time.monotonic() < deadline:
        state = docker.state(wanted.container)
        if state.get("Status") != "running":
            if docker.killed(wanted.container, began) and not returns(docker, wanted.container):
                raise StoppedByHand
            raise Failed(died(wanted.container, state))
        if answers(wanted.url, wanted.model):
            return
        time.sleep(POLL_SECONDS)
    raise Failed(f"not ready after {wanted.start_seconds} s")


def died(container: str, state: dict[str, Any]) -> str:
    if not state:
        return f"container {container} is gone"
    memory = ", killed for memory" if state.get("OOMKilled") else ""
    return f"container {container} is {state.get('Status')} with exit status {state.get('ExitCode')}{memory}"


def watch(docker: Docker, container: str) -> None:
    """Raises StoppedByHand or Failed when the container ends, and OSError when the daemon goes away."""
    killed = False
    events = docker.events(container)
    state = docker.state(container)  # it may have died before the events were listened to
    if state.get("Status") != "running":
        raise Failed(died(container, state))
    for event in events:
        if event.get("Action", event.get("status")) == "kill":
            killed = killed or stops(event)
        elif not killed:
            raise Failed(died(container, docker.state(container)))
        elif not returns(docker, container):
            raise StoppedByHand
        else:
            killed = False
    raise OSError("the Docker daemon went away")


def returns(docker: Docker, container: str) -> bool:
    """Whether the container runs again in a moment, as after a restart or a recreation by hand."""
    deadline = time.monotonic() + HAND_STOP_SECONDS
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        if docker.state(container).get("Status") == "running":
            return True
    return False


def record(directory: str, name: str, content: dict[str, Any]) -> None:
    """Leave a small JSON file beside the receipt, whole or not at all."""
    folder = os.path.join(directory, ".modelfleet")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(temporary, "w") as file:
        json.dump({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **content}, file)
    os.replace(temporary, os.path.join(folder, name))


def fuse_blown(directory: str, restarts: int, start_seconds: float, now: float) -> bool:
    """Count one more death; whether there were more than ``restarts`` in the time that so many whole starts take."""
    window = (restarts + 1) * (start_seconds + STOP_SECONDS)
    try:
        with open(os.path.join(directory, ".modelfleet", "deaths.json")) as file:
            before = [float(moment) for moment in json.load(file)["moments"]]
    except (OSError, ValueError, KeyError, TypeError):
        before = []
    moments = [moment for moment in before if now - window < moment <= now] + [now]
    record(directory, "deaths.json", {"moments": moments[-100:]})
    return len(moments) > restarts


def serve(docker: Docker, wanted: argparse.Namespace) -> None:
    if docker.state(wanted.container).get("Status") != "running" or not answers(wanted.url, wanted.model):
        notify("STATUS=waiting for its turn on the GPU")
        with gpu_locks(wanted.gpu):
            notify("STATUS=starting")
            wait_until_still(wanted.gpu)
            start(docker, wanted)
            wait_until_still(wanted.gpu)
    notify(f"READY=1\nSTATUS=serving {wanted.model}")
    watch(docker, wanted.container)


def arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs one modelfleet stack under systemd.")
    parser.add_argument("--directory", required=True)
    parser.add_argument("--container", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gpu", type=int, action="append", default=[])
    parser.add_argument("--start-seconds", type=float, required=True)
    parser.add_argument("--crash-restarts", type=int, required=True)
    return parser.parse_args(argv)


def _stop(signum: int, frame: Optional[FrameType]) -> None:
    raise Stopped


def main(argv: Optional[Sequence[str]] = None) -> int:
    wanted = arguments(argv)
    docker = Docker()
    signal.signal(signal.SIGTERM, _stop)
    try:
        serve(docker, wanted)
    except Stopped:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        notify("STOPPING=1")
        with contextlib.suppress(OSError):  # the daemon may be gone already, and the container with it
            docker.stop(wanted.container, STOP_SECONDS)
        return 0
    except Failed as failure:
        blown = fuse_blown(wanted.directory, wanted.crash_restarts, wanted.start_seconds, time.time())
        what = f"more than {wanted.crash_restarts} restarts: it stays down" if blown else "it is started again"
        print(f"{wanted.container}: {failure}; {what}", file=sys.stderr)
        record(wanted.directory, "last-failure.json", {"container": wanted.container, "reason": str(failure)})
        if blown:
            with contextlib.suppress(OSError, http.client.HTTPException):  # it may hang instead of being dead
                docker.stop(wanted.container, STOP_SECONDS)
        return BLOWN if blown else 1
    except (OSError, http.client.HTTPException) as error:
        print(f"{wanted.container}: {error}", file=sys.stderr)
        return 1
    except StoppedByHand:
        print(f"{wanted.container}: stopped by hand; it stays down until the next run", file=sys.stderr)
        record(wanted.directory, "stopped-by-hand", {"container": wanted.container})
    return 0


if __name__ == "__main__":
    sys.exit(main())
