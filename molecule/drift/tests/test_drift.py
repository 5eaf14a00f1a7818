# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged fleet disturbed by hand, in rounds: as many disturbances as hide nothing of each other.

Each round is disturbed, looked at, predicted by ``--check``, repaired by a run and looked at again. What it is asked
about afterwards is one test for each disturbance, and some for the round. At the end nothing can be looked at.
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
from concurrent.futures import ThreadPoolExecutor
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


def by_hand(stack: str, what: str, fragment: str, items: dict[str, tuple[str, str]]) -> By:
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
    return By(stack, what, command, {"unit active": ("active", "started by hand"), **items})


def file(stack: str, name: str) -> str:
    return f"{FOLDER}/{stack}/{name}"


LEAD_ASTRAY = r"""
import pathlib, re
path = pathlib.Path("/opt/docker/compose/litellm/config/config.yaml")
text = path.read_text()
first = text[text.index("  - model_name:") : text.index("  - model_name:", text.index("  - model_name:") + 1)]
added = re.sub(r" *modelfleet_config: .*\n", "", first).replace("ana-ml2--one", "by-hand")
text = text.replace("      id: ana-ml2--two\n", "      id: ana-ml2--two\n      blocked: true\n")
text = text.replace("http://ana-ml2:8403/v1", "http://ana-ml2:9/v1")
path.write_text(text.replace(first, first + added))
"""
MOVED = "moved to the other card"
# Several hands at one place, where neither hides what the other did.
ROUNDS: tuple[tuple[By, ...], ...] = (
    (
        by_hand("one", "a variable changed", "environment: {SIM_WEIGHTS_MIB: '400'}",
                {"environment SIM_WEIGHTS_MIB": ("300", "400")}),
        By("one", "a secret changed", f"sed -i s/lab-only/other/ {file('one', '.env')}",
           {"file .env": ("as rendered", "(not shown)")}),
        By("one", "secrets readable for all", f"chmod 644 {file('one', '.env')}",
           {"file .env mode": ("0600", "0644")}),
        by_hand("two", "a variable and a label added", "environment: {ADDED: by-hand}\nlabels: {added: by-hand}",
                {"environment ADDED": ("(none)", "(not shown)"), "label added": ("(none)", "by-hand")}),
        By("two", "options edited", f"echo '# hand' >> {file('two', 'vllm.yaml')}",
           {"file vllm.yaml": ("as rendered", "differs")}),
        by_hand("three", "another port", "ports: !override ['0.0.0.0:8503:8000']", {"ports": ("8403", "8503")}),
        By("three", "options unreadable for others", f"chmod 600 {file('three', 'vllm.yaml')}",
           {"file vllm.yaml mode": ("0644", "0600")}),
        by_hand("four", "a mount added", "volumes: ['/tmp:/t']", {"mounts": ("", "/tmp:/t:rw")}),
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
        By("eight", "a file that Compose would read too", f"echo '{{}}' > {file('eight', 'docker-compose.yml')}",
           {"file docker-compose.yml": ("(none)", "present")}),
        By("old-model", "a stack nobody knows",
           "docker run -d --name old-model --label modelfleet.stack=old-model --entrypoint sleep $IMAGE 600",
           {"stack": ("(none)", "old-model")}),
        By("gateway", "routes added, blocked and led to nothing",
           f"python3 - <<'END'{LEAD_ASTRAY}END\ndocker exec litellm sh -c 'kill -HUP 1'",
           {"file config/config.yaml": ("as rendered", ""), "routes": ("8 as in", "with by-hand"),
            "route ana-ml2--two blocked": ("False", "True"),
            "route ana-ml2--three api_base": ("http://ana-ml2:8403/v1", "http://ana-ml2:9/v1")}),
    ),
    (
        # First, as it takes time until the one is unhealthy and the other has restarted.
        By("seven", "card lost in the container", "docker exec vllm-seven rm /dev/nvidia1",
           {"cards in the container": ("1", "0")}, maybe=("container.state",)),
        by_hand("eight", "restarted for ever", "entrypoint: [sh, -c, 'echo startup complete; exit 3']\nrestart: always",
                {"entrypoint": ("engine.py", "exit 3"), "restart": ("no", "always"),
                 "container.state": ("running", "restarting"), "unit active": ("active", "inactive")}),
        by_hand("one", "arguments added",
                "command: ['--config', '/etc/modelfleet/vllm.yaml', '--max-num-seqs', '8']",
                {"command": ("/etc/modelfleet/vllm.yaml", "--max-num-seqs 8")}),
        By("one", "a file that Compose would add", f"echo '{{}}' > {file('one', 'compose.override.yaml')}",
           {"file compose.override.yaml": ("(none)", "present")}),
        By("three", "paused", "docker pause vllm-three", {"container.state": ("running", "paused")}),
        by_hand("four", "as another user", "user: '0:0'", {"user": ("", "0:0")}),
        By("four", "options deleted", f"rm {file('four', 'vllm.yaml')}", {"file vllm.yaml": ("present", "(none)")}),
        By("four", "unit edited", "sed -i 's/^Description=/Description=My /' $UNITS/modelfleet-four.service",
           {"unit": ("as rendered", "differs")}),
        by_hand("five", "on the host's network", "network_mode: host\nports: !reset []\n",
                {"network": ("default", "host"), "ports": ("8405", "(none)")}),
        By("five", "not started at boot any more", "rm $UNITS/*.wants/modelfleet-five.service",
           {"unit enabled": ("enabled", "")}),
        By("six", "unit deleted", "systemctl disable --now modelfleet-six; rm -f $UNITS/modelfleet-six.service; "
           "systemctl daemon-reload; docker start vllm-six", {"unit": ("present", "(none)")}),
        by_hand("two", MOVED, "deploy:\n  resources:\n    reservations:\n      devices: !override\n"
                "      - {driver: nvidia, device_ids: ['1'], capabilities: [gpu]}",
                {"devices": ("nvidia 0", "nvidia 1")}),
        By("host", "runtime taken out of daemon.json",
           "python3 - <<'END'\nimport json\np = '/etc/docker/daemon.json'\nd = json.load(open(p))\ndel d['runtimes']\n"
           "json.dump(d, open(p, 'w'))\nEND\nsystemctl reload docker",
           {"daemon.json runtimes.nvidia": ("nvidia-container-runtime", "not set")}),
        By("gateway", "stopped", "docker stop -t 5 litellm", {"state": ("running", "exited")}),
        By("gateway", "keys readable for others", f"chmod 644 {FOLDER}/litellm/config/keys.json",
           {"file config/keys.json mode": ("0640", "0644")}),
        By("gateway", "a file that Compose would read too", f"echo '{{}}' > {FOLDER}/litellm/docker-compose.yml",
           {"file docker-compose.yml": ("(none)", "present")}),
    ),
    (
        by_hand("one", "another image, the host's IPC, less shared memory",
                "image: hand/sim:latest\nipc: host\nshm_size: 1gb",
                {"image": ("sha256:", "hand/sim:latest"), "ipc": ("private", "host"),
                 "shm_size": ("8589934592", "1073741824")}),
        by_hand("two", "a capability added, read only, a memory limit",
                "cap_add: [SYS_NICE]\nread_only: true\nmem_limit: 900m",
                {"capabilities": ("(none)", "CAP_SYS_NICE"), "read_only": ("False", "True"),
                 "memory limit": ("0", "943718400")}),
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
        By("seven", "started without Compose",
           "systemctl stop modelfleet-seven; docker rm -f vllm-seven; "
           "docker run -d --name vllm-seven --label modelfleet.stack=seven $IMAGE",
           dict.fromkeys(("hash", "project", "command", "devices", "mounts", "ports", "network", "shm_size",
                          "environment DO_NOT_TRACK", "environment HF_HOME", "environment SIM_LOAD_SECONDS",
                          "environment SIM_MODALITIES", "environment SIM_WEIGHTS_MIB",
                          "environment VLLM_NO_USAGE_STATS", "unit active", "container.state"), ("", "")),
           maybe=("container.state",)),
        By("eight", "started beside its unit", "systemctl stop modelfleet-eight; docker start vllm-eight",
           {"unit active": ("active", "started by hand")}),
        By("eight", "receipt deleted", f"rm {file('eight', '.modelfleet/receipt.json')}",
           {"receipt": ("of this configuration", "(none)")}),
        By("gateway", "paused", "docker pause litellm", {"state": ("running", "paused")}),
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
    names = (GPU_HOST, GATEWAY)
    with ThreadPoolExecutor() as pool:  # Docker may be stopped: then it is part of the digest that it says nothing
        found = dict(zip(names, pool.map(lambda name: str(on(name).run(DIGEST + SOCKETS).stdout), names)))
    assert all("etc/docker/daemon.json" in text for text in found.values())
    return found


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
    disturb(number)
    settle(number)
    before = digests()
    with ThreadPoolExecutor() as pool:  # both only read
        looking, checking = pool.submit(look), pool.submit(run, "--check", "--diff")
        looked, checked = looking.result(), checking.result()
    after = digests()
    was = started()
    done = run()
    now = started()
    touched = {stack for stack in STACKS if was.get(stack) != now.get(stack)}
    if number == NUMBERS[-1]:
        # What runs now would not start again beside that.
        on(GPU_HOST).check_output("systemd-run -q --unit=foreign lab-gpu hold 1 80000; sleep 1")
    again = look()
    if number == NUMBERS[-1]:
        on(GPU_HOST).check_output("systemctl stop foreign")
    return Round(looked, before, after, checked, done, touched, again)


def disturb(number: int) -> None:
    """Side by side, but one after another on a card: an engine that starts measures what others take meanwhile."""
    image = on(GPU_HOST).check_output("docker inspect --format '{{.Config.Image}}' vllm-one").strip()
    lanes: dict[str, list[str]] = {}
    for by in ROUNDS[number]:
        card = (STACKS.index(by.place) // 4) ^ (by.what == MOVED) if by.place in STACKS else None
        lane = by.place if card is None else f"card {card}"
        lanes.setdefault(lane, []).append(f"{{\n{by.command}\n}} >/dev/null 2>&1")

    def play_lane(lane: str) -> None:
        host = on(GATEWAY if lane == "gateway" else GPU_HOST)
        host.check_output("\n".join(["set -e", f"export IMAGE={image} UNITS=/etc/systemd/system", *lanes[lane]]))

    with ThreadPoolExecutor() as pool:
        list(pool.map(play_lane, lanes))


def settle(number: int) -> None:
    """Wait until what was started by hand answers, and what must not is seen not to."""
    health = "docker inspect -f '{{.State.Health.Status}}'"
    asked = "curl -fsH 'Authorization: Bearer '$(. /opt/docker/compose/litellm/.env; echo $LITELLM_MASTER_KEY)"
    eight = "1 2 3 4 5 6 7 8"
    conditions = {
        0: (
            # A unit writes down that its container was stopped by hand some seconds after that.
            "! systemctl is-active -q modelfleet-five && ! systemctl is-active -q modelfleet-six && "
            "for p in 8401 8402 8404 8407 8408 8503; do curl -fs 127.0.0.1:$p/health || exit 1; done",
            # Every worker has read what a hand wrote, and has probed what it leads to.
            f"for i in {eight}; do {asked} 127.0.0.1:4000/model/info | grep by-hand || exit 1; done; "
            f"for i in {eight}; do {asked} 127.0.0.1:4000/health | grep 'ana-ml2:9' || exit 1; done",
        ),
        1: (
            f"{health} vllm-seven | grep -q unhealthy && "
            "[ $(docker inspect -f '{{.RestartCount}}' vllm-eight) -gt 2 ] && "
            "for p in 8401 8402 8404 8406; do curl -fs 127.0.0.1:$p/health || exit 1; done",
            "true",
        ),
        2: (
            "for p in 8401 8402 8404 8405 8408; do curl -fs 127.0.0.1:$p/health || exit 1; done; "
            f"{health} vllm-six | grep -q unhealthy",
            "true",
        ),
    }
    for name, condition in zip((GPU_HOST, GATEWAY), conditions[number]):
        on(name).check_output(
            f"for i in $(seq 120); do ( {condition} ) >/dev/null 2>&1 && exit 0; sleep 1; done; exit 1"
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
def test_what_a_hand_did_is_found(number: int, by: By) -> None:
    found = {item: one for (place, item), one in played(number).looked.found().items() if place == by.place}
    assert set(by.items) - set(by.maybe) <= set(found), played(number).looked.output
    for item, (want, have) in by.items.items():
        if item in found:
            assert want in found[item]["want"], found[item]
            assert have in found[item]["have"], found[item]


@pytest.mark.parametrize("number", NUMBERS)
def test_nothing_else_is_named(number: int) -> None:
    hands = ROUNDS[number]
    maybe = {(by.place, item) for by in hands for item in by.maybe}
    assert set(played(number).looked.found()) - maybe == {(by.place, item) for by in hands for item in by.items} - maybe
    assert played(number).looked.status == 2, played(number).looked.output


def test_a_route_that_leads_to_nothing_is_a_warning() -> None:
    """Led to nothing by hand, or its engine stopped; the one that is blocked is probed by nobody."""
    warned = played(0).looked.report["hosts"][GATEWAY]["warnings"]
    # One whose probe came late on a busy machine is cooled down, and no matter here.
    to_nothing = {one["stack"] for one in warned if one["code"] == "route_to_nothing"}
    assert to_nothing == {"three", "five", "six"}, warned
    three = next(one for one in warned if one["stack"] == "three")
    said = "route ana-ml2--three (http://ana-ml2:9/v1) leads to nothing: Cannot connect to host ana-ml2:9."
    assert said in three["problem"]


def test_who_else_holds_the_memory_of_a_restart_is_a_warning_and_no_drift() -> None:
    again = played(NUMBERS[-1]).again
    assert again is not None
    assert again.status == 0, again.output
    assert [one["code"] for one in again.report["hosts"][GPU_HOST]["warnings"]] == ["restart_would_not_fit"]


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


@dataclass(frozen=True)
class Blind:
    """A look, and a check of each host, where neither can be looked at; and a run, where one still stands still."""

    looked: Looked
    engine_checked: subprocess.CompletedProcess[str]
    gateway_checked: subprocess.CompletedProcess[str]
    before: dict[str, str]
    after: dict[str, str]
    done: set[tuple[str, ...]]
    again: Looked


@pytest.fixture(scope="module")
def blind() -> Blind:
    """The engine of one host is stopped; the gateway of the other hangs."""
    signal = "for one in $(docker top litellm -eo pid | tail -n +2); do kill -{} $one; done"
    on(GATEWAY).check_output(signal.format("STOP"))
    on(GPU_HOST).check_output("systemctl stop docker.socket docker")
    before = digests()
    with ThreadPoolExecutor() as pool:
        looking = pool.submit(look)
        checking = [pool.submit(ansible, "site.yml", "--check", "--diff", "-l", name) for name in (GPU_HOST, GATEWAY)]
        looked, engine, gateway = looking.result(), *(one.result() for one in checking)
    after = digests()
    on(GATEWAY).check_output(signal.format("CONT"))
    done = run()
    return Blind(looked, engine, gateway, before, after, done, look())


def test_what_cannot_be_looked_at_is_no_drift(blind: Blind) -> None:
    hosts = blind.looked.report["hosts"]
    assert {name: [one["code"] for one in host["trouble"]] for name, host in hosts.items()} == {
        GPU_HOST: ["container_engine_down"], GATEWAY: ["gateway_unreachable"],
    }, blind.looked.output  # fmt: skip
    assert [host["differences"] for host in hosts.values()] == [[], []]
    assert blind.looked.status == 4
    assert blind.after == blind.before


def test_a_check_of_a_host_whose_engine_is_stopped_fails_and_names_its_start(blind: Blind) -> None:
    said = " ".join(blind.engine_checked.stdout.split())
    assert blind.engine_checked.returncode == 2
    assert re.search(r"Start the engine now and at boot\] \[CHECK MODE\] \*+ changed: \[ana-ml2\]", said)
    assert "Until it answers, nothing of its containers can be seen: look at `systemctl status docker`" in said
    assert said.count("changed: [") == 1


def test_a_check_of_a_gateway_that_hangs_names_only_that_it_waits(blind: Blind) -> None:
    said = " ".join(blind.gateway_checked.stdout.split())
    assert blind.gateway_checked.returncode == 0
    assert "The gateway on ana-docker does not answer (timed out after 10 s), so which routes it has" in said
    assert "-readiness: unreachable (timed out after 10 s) +readiness: HTTP 200" in said
    assert said.count("changed: [") == 1


def test_a_run_starts_the_engine_and_what_stood_still_with_it(blind: Blind) -> None:
    items = {(place, item) for place, item, *_more in blind.done}
    # The first units of a chain may have started by themselves before the run looks.
    assert items <= {(stack, item) for stack in STACKS for item in ("container.state", "unit active")}
    assert (blind.again.report["status"], blind.again.status) == ("none", 0), blind.again.output


def steady(named: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Without what goes on by itself between two looks, such as how long ago something ended."""
    return {
        (place, item, want, re.sub(r"\d+ (second|minute)s? ago|restarting|running|exited.*", "…", have), action)
        for place, item, want, have, action in named
    }
