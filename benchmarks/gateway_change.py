# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients notice while the gateway changes: requests, failures and the slowest request, at a steady rate.

    gateway_change.py [--requests 2000] [--rate 8] [--reloads 5] [reload] [backend] [crash] [image]

reload   a route is blocked and opened in turn, --reloads times, while --requests requests come
backend  one of two replicas is rolled out with another configuration: blocked, drained, replaced, asked, opened
crash    one of two replicas is killed and stays away for a while
image    both instances of the gateway itself get another image, which the host pulls from the lab's registry

Needs the lab, converged with two replicas of one model and two instances of the gateway:
    ansible-playbook -i inventories/lab -i molecule/gateway/two_hosts.yml site.yml
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
INVENTORY = ("-i", "inventories/lab", "-i", "molecule/gateway/two_hosts.yml")
MODEL = "summary"
HOST, REPLICA, CONTAINER, PORT = "ana-ml2", "granite-summarizer", "vllm-granite-summarizer", 8003
ROUTE = f"{HOST}--{REPLICA}"
INSTANCES = ("litellm", "litellm-2")
UNIT = "modelfleet-granite-summarizer.service"
VAULT = ROOT / "inventories" / "lab" / "group_vars" / "gateways" / "vault.yml"
KEY = re.search(r"sk-lab-only-\w+", VAULT.read_text(encoding="utf-8")).group()


def lab(*words: str) -> str:
    done = subprocess.run([ROOT / "lab" / "lab", *words], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return done.stdout


def on(host: str, command: str) -> str:
    return lab("ssh", host, command)


class Load:
    """Requests at a steady rate, each on a connection of its own, until ``stop``."""

    def __init__(self, address: str, rate: float, at_least: int) -> None:
        self.address = address
        self.rate = rate
        self.at_least = at_least
        self.seconds: list[float] = []
        self.failures: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _send(self) -> None:
        began, sent = time.monotonic(), 0
        with ThreadPoolExecutor(256) as pool:
            while sent < self.at_least or not self._stopped.is_set():
                pool.submit(self._ask)
                sent += 1
                time.sleep(max(0.0, began + sent / self.rate - time.monotonic()))

    def _ask(self) -> None:
        body = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "What is 2 + 3?"}]}
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        began = time.monotonic()
        try:
            connection = http.client.HTTPConnection(self.address, 4000, timeout=120)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                self.failures[f"HTTP {answer.status}: {content[:150]!r}"] += 1
        except (OSError, http.client.HTTPException) as error:
            self.failures[type(error).__name__] += 1
        self.seconds.append(time.monotonic() - began)


def reload(times: int) -> None:
    """The module blocks and opens one replica in turn: each time all workers of both instances change."""
    for number in range(times + times % 2):  # it ends open
        began = time.monotonic()
        words = "gpu_hosts=ana-ml2,ana-docker gateways=ana-docker replace=false ask=false blocked="
        words += "" if number % 2 else ROUTE
        run([str(BIN / "ansible"), *INVENTORY, "ana-docker", "-m", "modelfleet.inference.litellm_gateway", "-a", words])
        print(f"  reload {number + 1}: {time.monotonic() - began:.0f} s", flush=True)


def crash() -> None:
    time.sleep(3)
    on(HOST, f"docker kill {CONTAINER}; systemctl stop {UNIT}")
    time.sleep(20)
    on(HOST, f"systemctl start {UNIT}; until curl -fs -o /dev/null http://127.0.0.1:{PORT}/health; do sleep 1; done")
    time.sleep(5)


def backend() -> None:
    another = {"vllm_stack_compose": {"environment": {"ROUND": str(time.time_ns())}}}
    site("-l", HOST, "-e", f"only={REPLICA}", "--tags", "vllm_stack", "-e", json.dumps(another))


def image() -> None:
    images = another_image()
    site("-l", "ana-docker", "--tags", "litellm_gateway", "-e", json.dumps({"lab_images": images}))
    digests = on("ana-docker", f"docker inspect -f '{{{{.Config.Image}}}}' {' '.join(INSTANCES)}").split()
    if {each.partition("@")[2] for each in digests} != {images["litellm"]["digest"]}:
        sys.exit(f"the gateway still runs {digests}")


def another_image() -> dict[str, Any]:
    """The lab's images with a release of LiteLLM that no host has yet: a label more makes it another image."""
    state = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet") / "images.json"
    images: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
    now, tag = images["litellm"], f"release-{time.time_ns()}"
    new = f"{now['repository']}:{tag}"
    words = f"FROM {now['repository']}@{now['digest']}\nLABEL release={tag}\n"
    said = on(
        "ana-docker",
        f"printf '{words}' | docker build --quiet --tag {new} - && docker push {new} && docker image rm {new}",
    )
    return {**images, "litellm": {**now, "tag": tag, "digest": re.search(r"digest: (sha256:[0-9a-f]{64})", said)[1]}}


def site(*arguments: str) -> None:
    began = time.monotonic()
    run([str(BIN / "ansible-playbook"), *INVENTORY, "site.yml", *arguments])
    print(f"  the run: {time.monotonic() - began:.0f} s", flush=True)


def run(words: list[str]) -> None:
    done = subprocess.run(words, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(done.stdout)


def main() -> None:
    cases: dict[str, Callable[[], None]] = {
        "reload": lambda: reload(wanted.reloads),
        "backend": backend,
        "crash": crash,
        "image": image,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(cases), metavar="case", help=", ".join(cases))
    parser.add_argument("--requests", type=int, default=2000, help="at least so many during the reloads")
    parser.add_argument("--rate", type=float, default=8, help="requests a second")
    parser.add_argument("--reloads", type=int, default=5)
    wanted = parser.parse_args()
    os.environ.setdefault("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    address = json.loads(lab("status", "--json"))["ana-docker"]["address"]
    failed = 0
    for name in wanted.cases:
        print(f"{name}:", flush=True)
        with Load(address, wanted.rate, wanted.requests if name == "reload" else 0) as load:
            cases[name]()
        ordered = sorted(load.seconds)
        failed += sum(load.failures.values())
        print(
            f"  {len(ordered)} requests, {sum(load.failures.values())} failed, "
            f"median {ordered[len(ordered) // 2]:.2f} s, slowest {ordered[-1]:.2f} s; "
            f"load of the machine {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
        )
        for what, count in load.failures.most_common(5):
            print(f"    {count} x {what}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
