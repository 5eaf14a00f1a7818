# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged fleet disturbed by hand, in rounds: one disturbance a place, as many places as there are.

Each round is disturbed, looked at, predicted by ``--check``, repaired by a run and looked at again. What it is asked
about afterwards is one test for each disturbance, and some for the round.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import testinfra

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from conftest import DIGEST  # noqa: E402

STATE = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
FOLDER = "/opt/docker/compose"
GPU_HOST, GATEWAY = "ana-ml2", "ana-docker"
STACKS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
SOCKETS = "ss -Hltn | awk '{print $4}' | sort -u; ss -Hlx | awk '{print $5}' | grep -v '^@' | sort -u\n"


@dataclass(frozen=True)
class By:
    """What a hand did at a place, and the items it must be found as: item -> part of (want, have)."""

    place: str  # a stack, "host" or "gateway"
    what: str
    command: str
    items: dict[str, tuple[str, str]]
    maybe: tuple[str, ...] = ()  # items that time may add


def by_hand(stack: str, what: str, fragment: str, items: dict[str, tuple[str, str]], maybe: tuple[str, ...] = ()) -> By:
    """Recreate the container by hand as Compose would with this fragment over its service; the files stay as they are.

    The unit is stopped first: it would take part. Without it the container is started by hand, a difference of its own.
    """
    lines = f"services:\n  {stack}:\n" + "".join(f"    {line}\n" for line in fragment.splitlines())
    command = (
        f"cd {FOLDER}/{stack} && cat > /run/hand-{stack}.yaml <<'END'\n{lines}END\n"
        f"systemctl stop modelfleet-{stack} && docker compose -f compose.yaml -f /run/hand-{stack}.yaml up -d && "
        # The next one would measure the card beside it.
        f"for i in $(seq 40); do docker logs vllm-{stack} 2>&1 | grep -q 'startup complete' && break; sleep 0.5; done"
    )
    return By(stack, what, command, {"unit active": ("active", "started by hand"), **items}, maybe)


def file(stack: str, name: str) -> str:
    return f"{FOLDER}/{stack}/{name}"


ROUNDS: tuple[tuple[By, ...], ...] = (
    (
        By("one", "a secret changed", f"sed -i s/lab-only/other/ {file('one', '.env')}",
           {"file .env": ("as rendered", "(not shown)")}),
        By("two", "options edited", f"echo '# hand' >> {file('two', 'vllm.yaml')}",
           {"file vllm.yaml": ("as rendered", "differs")}),
        By("three", "options unreadable for others", f"chmod 600 {file('three', 'vllm.yaml')}",
           {"file vllm.yaml mode": ("0644", "0600")}),
        By("four", "a file deleted", f"rm {file('four', 'compose.yaml')}",
           {"file compose.yaml": ("present", "(none)")}),
        By("five", "stopped", "docker stop -t 5 vllm-five",
           {"container.state": ("running", "exited"), "unit active": ("active", "stopped by hand")}),
        By("six", "removed", "docker rm -f vllm-six",
           {"container": ("vllm-six", "(none)"), "unit active": ("active", "")}),
        By("seven", "renamed", "docker rename vllm-seven seven-old",
           {"container.name": ("vllm-seven", "seven-old")}),
        By("eight", "another restart policy", "docker update --restart always vllm-eight",
           {"restart": ("no", "always")}),
        By("old-model", "a stack nobody knows",
           "docker run -d --name old-model --label modelfleet.stack=old-model --entrypoint sleep $IMAGE 600",
           {"stack": ("(none)", "old-model")}),
        By("gateway", "configuration edited", f"echo '# hand' >> {FOLDER}/litellm/config/config.yaml",
           {"file config/config.yaml": ("as rendered", "")}),
    ),
    (
        By("one", "secrets readable for all", f"chmod 644 {file('one', '.env')}",
           {"file .env mode": ("0600", "0644")}),
        By("two", "options deleted", f"rm {file('two', 'vllm.yaml')}", {"file vllm.yaml": ("present", "(none)")}),
        By("three", "paused", "docker pause vllm-three", {"container.state": ("running", "paused")}),
        By("four", "unit edited", "sed -i 's/^Description=/Description=My /' $UNITS/modelfleet-four.service",
           {"unit": ("as rendered", "differs")}),
        By("five", "not started at boot any more", "rm $UNITS/*.wants/modelfleet-five.service",
           {"unit enabled": ("enabled", "")}),
        By("six", "unit deleted", "systemctl disable --now modelfleet-six; rm -f $UNITS/modelfleet-six.service; "
           "systemctl daemon-reload; docker start vllm-six", {"unit": ("present", "(none)")}),
        By("seven", "card lost in the container", "docker exec vllm-seven rm /dev/nvidia1",
           {"cards in the container": ("1", "0")}, maybe=("container.state",)),
        By("eight", "a file that Compose would read too", f"echo '{{}}' > {file('eight', 'docker-compose.yml')}",
           {"file docker-compose.yml": ("(none)", "present")}),
        By("host", "runtime taken out of daemon.json",
           "python3 - <<'END'\nimport json\np = '/etc/docker/daemon.json'\nd = json.load(open(p))\ndel d['runtimes']\n"
           "json.dump(d, open(p, 'w'))\nEND\nsystemctl reload docker",
           {"daemon.json runtimes.nvidia": ("nvidia-container-runtime", "not set")}),
        By("gateway", "keys readable for others", f"chmod 644 {FOLDER}/litellm/config/keys.json",
           {"file config/keys.json mode": ("0640", "0644")}),
    ),
    (
        by_hand("one", "a variable changed", "environment: {SIM_WEIGHTS_MIB: '400'}",
                {"environment SIM_WEIGHTS_MIB": ("300", "400")}),
        by_hand("two", "a variable added", "environment: {ADDED: by-hand}",
                {"environment ADDED": ("(none)", "(not shown)")}),
        by_hand("three", "another port", "ports: !override ['0.0.0.0:8503:8000']", {"ports": ("8403", "8503")}),
        by_hand("four", "a mount added", "volumes: ['/tmp:/t']", {"mounts": ("", "/tmp:/t:rw")}),
        by_hand("five", "on the host's network", "network_mode: host\nports: !reset []\n",
                {"network": ("default", "host"), "ports": ("8405", "(none)")}),
        by_hand("six", "the host's IPC", "ipc: host", {"ipc": ("private", "host")}),
        by_hand("seven", "less shared memory", "shm_size: 1gb", {"shm_size": ("8589934592", "1073741824")}),
        by_hand("eight", "a label added", "labels: {added: by-hand}", {"label added": ("(none)", "by-hand")}),
        By("gateway", "stopped", "docker stop -t 5 litellm", {"state": ("running", "exited")}),
    ),
    (
        by_hand("one", "arguments added",
                "command: ['--config', '/etc/modelfleet/vllm.yaml', '--max-num-seqs', '8']",
                {"command": ("/etc/modelfleet/vllm.yaml", "--max-num-seqs 8")}),
        by_hand("two", "moved to the other card", "deploy:\n  resources:\n    reservations:\n      devices: !override\n"
                "      - {driver: nvidia, device_ids: ['1'], capabilities: [gpu]}",
                {"devices": ("nvidia 0", "nvidia 1")}),
        by_hand("three", "another image", "image: hand/sim:latest", {"image": ("sha256:", "hand/sim:latest")}),
        by_hand("four", "as another user", "user: '0:0'", {"user": ("", "0:0")}),
        by_hand("five", "a capability added", "cap_add: [SYS_NICE]",
                {"capabilities": ("(none)", "CAP_SYS_NICE")}),
        By("six", "started without Compose",
           "systemctl stop modelfleet-six; docker rm -f vllm-six; "
           "docker run -d --name vllm-six --label modelfleet.stack=six $IMAGE",
           dict.fromkeys(("hash", "project", "command", "devices", "mounts", "ports", "network", "shm_size",
                          "environment DO_NOT_TRACK", "environment HF_HOME", "environment SIM_LOAD_SECONDS",
                          "environment SIM_MODALITIES", "environment SIM_WEIGHTS_MIB",
                          "environment VLLM_NO_USAGE_STATS", "unit active", "container.state"), ("", "")),
           maybe=("container.state",)),
        by_hand("seven", "read only", "read_only: true", {"read_only": ("False", "True")}),
        by_hand("eight", "a memory limit", "mem_limit: 900m", {"memory limit": ("0", "943718400")}),
        By("gateway", "a file that Compose would read too", f"echo '{{}}' > {FOLDER}/litellm/docker-compose.yml",
           {"file docker-compose.yml": ("(none)", "present")}),
    ),
    (
        By("one", "a file that Compose would add", f"echo '{{}}' > {file('one', 'compose.override.yaml')}",
           {"file compose.override.yaml": ("(none)", "present")}),
        By("two", "receipt deleted", f"rm {file('two', '.modelfleet/receipt.json')}",
           {"receipt": ("of this configuration", "(none)")}),
        By("three", "stopped by its unit", "systemctl stop modelfleet-three",
           {"container.state": ("running", "exited"), "unit active": ("active", "")}),
        By("four", "runs with another context length than its file says",
           f"cp -p {file('four', 'vllm.yaml')} /run/hand-four.txt; systemctl stop modelfleet-four; "
           f"sed -i 's/^max-model-len: .*/max-model-len: 2048/' {file('four', 'vllm.yaml')}; docker start vllm-four; "
           "for i in $(seq 120); do curl -fs 127.0.0.1:8404/health && break; sleep 0.5; done; "
           f"cp -p /run/hand-four.txt {file('four', 'vllm.yaml')}",
           {"max_model_len": ("4096", "2048"), "unit active": ("active", "started by hand")}),
        By("five", "another of the same stack",
           "docker run -d --name five-too --label modelfleet.stack=five --entrypoint sleep $IMAGE 600",
           {"container.duplicate": ("(none)", "five-too")}),
        by_hand("six", "unhealthy", "healthcheck: {test: [CMD, 'false'], interval: 1s, retries: 1, start_period: 0s}",
                {"container.state": ("healthy", "unhealthy")}),
        by_hand("seven", "a shorter load", "environment: {SIM_LOAD_SECONDS: '0.5'}",
                {"environment SIM_LOAD_SECONDS": ("0.6", "0.5")}),
        By("eight", "container's unit stopped, container started", "systemctl stop modelfleet-eight; "
           "docker start vllm-eight", {"unit active": ("active", "started by hand")}),
        By("gateway", "proof deleted", f"rm {FOLDER}/litellm/.modelfleet/receipt.json",
           {"receipt": ("answered through the gateway", "no proof")}),
    ),
)  # fmt: skip
CASES = [(number, by) for number, round_ in enumerate(ROUNDS) for by in round_]
NUMBERS = range(len(ROUNDS))


@dataclass(frozen=True)
class Looked:
    """One run of drift.yml."""

    status: int
    output: str
    report: dict[str, Any]
    page: str

    def found(self) -> dict[tuple[str, str], dict[str, str]]:
        """(place, item) -> the difference."""
        return {
            (one["stack"] if one["part"] == "stack" else one["part"], one["item"]): one
            for host in self.report["hosts"].values()
            for one in host["differences"]
        }


@dataclass(frozen=True)
class Round:
    looked: Looked
    before: dict[str, str]
    after: dict[str, str]
    checked: set[tuple[str, ...]]
    done: set[tuple[str, ...]]
    touched: set[str] = field(default_factory=set)  # stacks whose container the run started anew
    again: Looked | None = None


def ansible(book: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", f"{HERE}/hosts.yml", book, *arguments],
        cwd=ROOT, env={**environment, "ANSIBLE_NOCOLOR": "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
    )  # fmt: skip


def look(*arguments: str) -> Looked:
    with tempfile.TemporaryDirectory() as folder:
        run = ansible("playbooks/drift.yml", "-e", f"drift_report_dir={folder}", *arguments)
        report = json.loads((Path(folder) / "drift.json").read_text())
        return Looked(run.returncode, run.stdout, report, (Path(folder) / "drift.html").read_text())


@functools.cache
def on(name: str) -> Any:
    return testinfra.get_host(f"ssh://{name}", ssh_config=str(STATE / "ssh_config"))


def digests() -> dict[str, str]:
    """All that looking could have changed."""
    return {name: on(name).check_output(DIGEST + SOCKETS) for name in (GPU_HOST, GATEWAY)}


def run(*arguments: str) -> set[tuple[str, ...]]:
    """site.yml, and what it says of itself: (place, item, want, have, action)."""
    with tempfile.TemporaryDirectory() as folder:
        done = ansible(str(HERE / "play.yml"), "-e", f"said_in={folder}", *arguments)
        said = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    assert len(said) == 2, done.stdout[-3000:]
    named = set()
    for one in said:
        for stack in (one["stacks"].get("stacks") or {}).values():
            named |= {tuple(each[key] for key in KEYS) for each in stack["differences"]}
        named |= {("gateway", *(each[key] for key in KEYS[1:])) for each in one["gateway"].get("differences") or ()}
        named |= {
            ("host", f"daemon.json {each['key']}", json.dumps(each["want"]), str(each["have"]), each["how"])
            for each in one["daemon"].get("changes") or ()
        }
    return named


PLAYED: dict[int, Round | None] = {}
KEYS = ("stack", "item", "want", "have", "action")


def started() -> dict[str, str]:
    """Stack -> when its container started."""
    template = '{{index .Config.Labels "modelfleet.stack"}} {{.Id}} {{.State.StartedAt}}'
    every = on(GPU_HOST).check_output("docker ps -aq --filter label=modelfleet.stack").split()
    said = on(GPU_HOST).check_output(f"docker inspect --format '{template}' {' '.join(every)}")
    return dict(line.split(" ", 1) for line in said.splitlines())


def played(number: int) -> Round:
    """The round, played once. One that broke off is not played again for each of its tests."""
    if number not in PLAYED:
        PLAYED[number] = None
        PLAYED[number] = play(number)
    round_ = PLAYED[number]
    assert round_ is not None, "this round broke off"
    return round_


def play(number: int) -> Round:
    ready = "curl -fs 127.0.0.1:4000/health/readiness"
    on(GATEWAY).check_output(f"for i in $(seq 120); do {ready} >/dev/null && exit 0; sleep 1; done; exit 1")
    image = on(GPU_HOST).check_output("docker inspect --format '{{.Config.Image}}' vllm-one").strip()
    for by in ROUNDS[number]:
        host = on(GATEWAY if by.place == "gateway" else GPU_HOST)
        names = f"IMAGE={image} UNITS=/etc/systemd/system"
        host.check_output(f"export {names}\n{{\n{by.command}\n}} >/dev/null 2>&1")
    settle(number)
    before = digests()
    looked = look()
    after = digests()
    checked = run("--check", "--diff")
    was = started()
    done = run()
    now = started()
    touched = {stack for stack in STACKS if was.get(stack) != now.get(stack)}
    return Round(looked, before, after, checked, done, touched, look())


def settle(number: int) -> None:
    """Wait until what was started by hand answers, and what must not is seen not to."""
    health = "docker inspect -f '{{.State.Health.Status}}'"
    conditions = {
        # A unit writes down that its container was stopped by hand some seconds after that.
        0: "! systemctl is-active -q modelfleet-five && ! systemctl is-active -q modelfleet-six",
        1: f"{health} vllm-seven | grep -q unhealthy",
        2: "for p in 8401 8402 8404 8406 8407 8408 8503; do curl -fs 127.0.0.1:$p/health || exit 1; done",
        3: "for p in 8401 8402 8403 8404 8405 8408; do curl -fs 127.0.0.1:$p/health || exit 1; done",
        4: "for p in 8402 8404 8405 8408; do curl -fs 127.0.0.1:$p/health || exit 1; done; "
        f"{health} vllm-six | grep -q unhealthy",
    }
    if number in conditions:
        on(GPU_HOST).check_output(
            f"for i in $(seq 120); do ( {conditions[number]} ) >/dev/null 2>&1 && exit 0; sleep 1; done; exit 1"
        )


@pytest.fixture(scope="module", autouse=True)
def another_image() -> Iterator[None]:
    """The same engine under another id, for whoever runs that instead."""
    image = on(GPU_HOST).check_output("docker inspect --format '{{.Config.Image}}' vllm-one").strip()
    on(GPU_HOST).check_output(f"printf 'FROM {image}\\nLABEL hand=1\\n' | docker build -q -t hand/sim:latest -")
    yield
    on(GPU_HOST).check_output("docker image rm -f hand/sim:latest; rm -f /run/hand-*.yaml")


@pytest.mark.parametrize(
    ("number", "by"), CASES, ids=[f"{number}-{by.place}-{by.what}".replace(" ", "_") for number, by in CASES]
)
def test_what_a_hand_did_is_found_and_nothing_else(number: int, by: By) -> None:
    found = {item: one for (place, item), one in played(number).looked.found().items() if place == by.place}
    assert set(found) - set(by.maybe) == set(by.items) - set(by.maybe), played(number).looked.output
    for item, (want, have) in by.items.items():
        if item in found:
            assert want in found[item]["want"], found[item]
            assert have in found[item]["have"], found[item]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_nobody_touched_is_not_named(number: int) -> None:
    places = {place for place, _item in played(number).looked.found()}
    assert places == {by.place for by in ROUNDS[number]}
    assert played(number).looked.status == 2, played(number).looked.output


@pytest.mark.parametrize("number", NUMBERS)
def test_looking_changes_nothing(number: int) -> None:
    assert played(number).after == played(number).before


@pytest.mark.parametrize("number", NUMBERS)
def test_the_set_that_check_names_is_the_set_that_the_run_changes(number: int) -> None:
    assert steady(played(number).checked) == steady(played(number).done)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_report_names_what_check_names(number: int) -> None:
    looked = {
        (place, one["item"], one["want"], one["have"], one["action"])
        for (place, _item), one in played(number).looked.found().items()
        if place != "host"
    }
    assert steady(looked) == steady({one for one in played(number).checked if one[0] != "host"})


@pytest.mark.parametrize("number", NUMBERS)
def test_exactly_the_containers_it_said_were_started(number: int) -> None:
    starts = {stack for stack, _item, _want, _have, action in played(number).checked
              if action in ("start", "recreate", "create") and stack in STACKS}  # fmt: skip
    assert played(number).touched == starts


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_repairs_it(number: int) -> None:
    again = played(number).again
    assert again is not None
    assert again.report["status"] == "none", again.output
    assert again.status == 0


def steady(named: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Without what goes on by itself between two looks, such as how long ago something ended."""
    return {
        (place, item, want, re.sub(r"\d+ (second|minute)s? ago|restarting|running|exited.*", "…", have), action)
        for place, item, want, have, action in named
    }
