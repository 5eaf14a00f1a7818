# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole rollout against a host that exists only here: its daemon, its cards, its clock. Files are real.

What the world does to a container stands in ``Host.behaviour``: a list of what its next starts will be like.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import files, rollout_runner
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.compose_cli import Outcome as Composed
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import EngineError
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.http import HttpAnswer
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.live import Orders
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.nvidia_smi import Report
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.rollout_runner import Rollout, World
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import ports
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.drift import Difference
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.gpus import Card
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.ports import Ports
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import LABEL_STACK, RenderedStack
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.units import LiveUnit

FIXTURES = Path(__file__).parents[1] / "fixtures" / "docker"
IMAGE = json.loads((FIXTURES / "image.json").read_text())
STACK = RenderedStack.from_dict(json.loads((FIXTURES / "stack.json").read_text()))
TOTAL = 97887

GOOD = "good"
CRASH = "crash"
BLIND = "blind"
RACE = "race"
NO_KV = "less kv"
DIES = "dies of the question"
CRASH_LINE = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
RACE_LINE = (
    "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB. This "
    "happens when other processes sharing the same container release GPU memory while vLLM is profiling during "
    "initialization."
)


class Units:
    """systemd: a unit that is stopped takes its container along, and one that is started finds it running."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.known: dict[str, LiveUnit] = {}

    def look(self, stacks: list[str], directories: list[str]) -> dict[str, LiveUnit]:
        return {stack: self.known.get(stack, LiveUnit()) for stack in stacks}

    def stacks(self) -> list[str]:
        return sorted(self.known)

    def adopt(self, stack: str, directory: str, text: str) -> None:
        self.host.acts.append(f"adopt {stack}")
        self.known[stack] = LiveUnit(text, True, "enabled", "active", "success")

    def stop(self, stack: str) -> None:
        if stack in self.known:
            if self.known[stack].active == "active":
                self.host.stop(f"vllm-{stack}")
            self.known[stack] = replace(self.known[stack], active="inactive")

    def release(self, stack: str) -> None:
        self.stop(stack)
        if stack in self.known:
            self.known[stack] = replace(self.known[stack], enabled="disabled")

    def remove(self, stack: str) -> None:
        self.stop(stack)
        self.known.pop(stack, None)

    def not_active(self, stacks: list[str], sleep: Any) -> list[str]:
        return [stack for stack in stacks if self.known[stack].active != "active"]


class Firewall:
    """Who may reach the engines. ``wanted`` is what it should have; what it is told to set, it has."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.differences: tuple[Difference, ...] = (Difference("", ports.NOW, "few", "everybody", ports.SET),)
        self.more: list[tuple[str, int]] = []
        self.says = "few"

    def look(self, wanted: Ports, more: list[tuple[str, int]], *, bare: bool) -> Firewall:
        self.more = more
        return self

    def apply(self, seen: Firewall) -> None:
        self.host.acts.append("set the ports")
        self.differences = ()


@dataclass
class Host:
    """Docker, the cards and the engines of one host. ``load`` is the seconds a start takes."""

    root: Path
    time: float = 1_800_000_000.0
    load: float = 3.0
    behaviour: dict[str, list[str]] = field(default_factory=dict)
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)
    unpullable: set[str] = field(default_factory=set)
    loads_until: dict[str, tuple[str, str]] = field(default_factory=dict)
    foreign_mib: int = 0
    told: list[tuple[str, str]] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    stacks: dict[str, RenderedStack] = field(default_factory=dict)
    templates: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)
    units: Any = None
    firewall: Any = None
    weights: list[dict[str, Any]] = field(default_factory=list)  # what the program that fetches says, line by line

    def __post_init__(self) -> None:
        self.units = Units(self)
        self.firewall = Firewall(self)

    def names(self) -> set[str]:
        return {stack.name for stack in self.stacks.values()}

    def world(self) -> World:
        return World(
            engine=self,  # type: ignore[arg-type]
            compose=self,
            fetch=self.fetch,
            memory=self.memory,
            ask=self.ask,
            report=lambda stack, phase, text: self.told.append((stack, phase)),
            seed=lambda: 7,
            clock=lambda: self.time,
            wall=lambda: self.time,
            sleep=self.sleep,
            gpu_locks=str(self.root / "locks"),
            units=self.units,
            firewall=self.firewall,
            fetch_weights=self.fetch_weights,
        )

    def fetch_weights(self, one: Any, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        self.acts.append(f"fetch {one.label} for {', '.join(one.stacks)}")
        for event in self.weights:
            tell(event)
        return self.weights[-1]

    def sleep(self, seconds: float) -> None:
        with self.lock:
            self.time += seconds

    # --- the daemon

    def ours(self) -> list[dict[str, Any]]:
        return [
            one for one in map(self.container, list(self.containers)) if one and LABEL_STACK in one["Config"]["Labels"]
        ]

    def container(self, name: str) -> Optional[dict[str, Any]]:
        with self.lock:
            found = [one for one in self.containers.values() if name in (one["Id"], one["Name"].lstrip("/"))]
            if not found:
                return None
            self._advance(found[0])
            return copy.deepcopy(found[0])

    def _advance(self, container: dict[str, Any]) -> None:
        if (
            container["State"]["Status"] == "running"
            and container["like"] in (CRASH, RACE)
            and self._age(container) >= 1
        ):
            container["State"].update(Status="exited", ExitCode=1)

    def _age(self, container: dict[str, Any]) -> float:
        return self.time - float(container["began"])

    def image(self, reference: str) -> Optional[dict[str, Any]]:
        digest = reference.rpartition("@")[2]
        if digest not in self.images:
            return None
        return {**IMAGE, "Id": digest, "RepoDigests": [f"r@{digest}"]}

    def pull(self, reference: str, progress: Callable[[int], None]) -> None:
        self.acts.append(f"pull {reference.rpartition('@')[2][-1]}")
        if reference.rpartition("@")[2] in self.unpullable:
            raise EngineError("manifest unknown: manifest unknown")
        progress(50)
        self.images.add(reference.rpartition("@")[2])

    def logs(self, container: str, after: float = 0.0) -> list[tuple[float, str]]:
        one = self.container(container)
        if one is None or one["State"]["StartedAt"] == "":
            return []
        began = float(one["began"])
        kv = 50_000 if one["like"] == NO_KV else 100_000
        lines = [(began + 0.1, "INFO 11-30 12:00:00 [api_server.py:1] vLLM API server version 0.32.0")]
        lines += {
            CRASH: [(began + 1, CRASH_LINE)],
            RACE: [(began + 1, RACE_LINE)],
            DIES: [(float(one.get("asked", math.inf)) + 1, CRASH_LINE)],  # after the answer
        }.get(one["like"], [(began + 1, f"INFO 11-30 12:00:01 [kv_cache_utils.py:1] GPU KV cache size: {kv:,} tokens")])
        return [line for line in lines if after < line[0] <= self.time]

    def ends(self, container: str, since: float, until: float) -> list[tuple[int, bool]]:
        return []

    def stop(self, container: str, seconds: int = 30) -> None:
        with self.lock:
            for one in self.containers.values():
                if container in (one["Id"], one["Name"].lstrip("/")):
                    self.acts.append(f"stop {one['Name'].lstrip('/')}")
                    one["State"].update(Status="exited", ExitCode=0)

    def remove(self, container: str) -> None:
        with self.lock:
            for name, one in list(self.containers.items()):
                if one["Id"] == container:
                    del self.containers[name]

    def rename(self, container: str, name: str) -> None:
        with self.lock:
            for one in self.containers.values():
                if one["Id"] == container:
                    one["Name"] = f"/{name}"

    def restart_policy(self, container: str, policy: Any) -> None:
        self.acts.append(f"restart policy {policy['Name']}")

    def start(self, container: str) -> None:
        for one in self.containers.values():
            if one["Id"] == container:
                one["State"]["Status"] = "running"

    # --- Compose

    def up(self, directory: str) -> Composed:
        """Start what compose.yaml says: the container of the hash that stands in it."""
        with self.lock:
            text = (Path(directory) / "compose.yaml").read_text()
            stack = next(stack for hashed, stack in self.stacks.items() if hashed in text)
            self.acts.append(f"up {stack.name}")
            old = self.containers.get(stack.container)
            one = copy.deepcopy(self.templates[stack.hash])
            behaviour = self.behaviour.get(stack.name)
            one.update(
                Id=old["Id"] if old else f"id-{len(self.acts)}",
                RestartCount=0,
                State={"Status": "running", "ExitCode": 0, "StartedAt": _stamp(self.time)},
                began=self.time,
                like=behaviour.pop(0) if behaviour else GOOD,
                share=stack.share,
                gpus=stack.gpus,
                hash=stack.hash,
            )
            one["Config"]["Labels"]["com.docker.compose.project.working_dir"] = directory
            self.containers[stack.container] = one
            return Composed(0, "")

    def down(self, directory: str) -> Composed:
        return Composed(0, "")

    # --- engines and cards

    def fetch(self, method: str, url: str, *rest: Any, **more: Any) -> HttpAnswer:
        for stack in self.stacks.values():
            one = self.container(stack.container)
            if url.startswith(stack.url) and one and one["hash"] == stack.hash and one["State"]["Status"] == "running":
                event = self.loads_until.get(stack.name)
                if self._age(one) < self.load or (event and event not in self.told):
                    break
                model = {"id": stack.served_model_name, "root": stack.root, "max_model_len": stack.max_model_len}
                return HttpAnswer(200, json.dumps({"data": [model]}).encode() if "models" in url else b"")
        return HttpAnswer(0, error="connection refused")

    def ask(self, url: str, model: str, asks: Any, **more: Any) -> list[dict[str, Any]]:
        stack = next(one for one in self.stacks.values() if one.url == url)
        container = self.container(stack.container)
        code = {BLIND: "answer_wrong", DIES: "engine_dead"}.get(container["like"], "passed") if container else ""
        right = code == "passed"
        if container:
            self.containers[container["Name"].lstrip("/")]["asked"] = self.time
        return [
            {
                "question": "image_number", "code": code, "passed": right,
                "severity": "passed" if right else "error", "retryable": False, "ask": "?", "expected": "4711",
                "answer": "4711" if right else "blue", "detail": "", "remedy": "look", "seconds": 0.1,
                "pictures": ["x"],
            }
        ]  # fmt: skip

    def memory(self, processes: bool) -> Report:
        with self.lock:
            cards = []
            for index in (0, 1):
                used = self.foreign_mib
                for one in self.containers.values():
                    if one["State"]["Status"] == "running" and index in one.get("gpus", ()):
                        used += int((one["share"] or 0) * TOTAL)
                cards.append(Card(index, f"GPU-{index}", "RTX", TOTAL, 0, used, TOTAL - used))
            return Report(tuple(cards))


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.0Z", time.gmtime(seconds))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def stack(host: Host, name: str, *gpus: int, version: str = "1", share: float = 0.3, **more: Any) -> RenderedStack:
    """A stack of this host, made from the fixtures by renaming. Another ``version`` is another configuration."""
    position = next((one.position for one in host.stacks.values() if one.name == name), len(host.names()))
    digest = more.pop("digest", "a" * 64)
    hashed = (name.encode().hex() + version.encode().hex()).ljust(64, "0")

    def renamed(text: str) -> Any:
        for old, new in (
            (STACK.directory, str(host.root / name)),
            (STACK.container, f"vllm-{name}"),
            ("two_default", f"{name}_default"),
            ('"two"', f'"{name}"'),
            ("name: two", f"name: {name}"),
            ("8002", str(8010 + position)),
            (STACK.hash, hashed),
            (STACK.image.rpartition(":")[2], digest),
        ):
            text = text.replace(old, new)
        return json.loads(text)

    fields = renamed((FIXTURES / "stack.json").read_text())
    container = renamed((FIXTURES / "container.json").read_text())
    ids = [str(gpu) for gpu in gpus]
    fields["service_definition"]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] = ids
    container["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] = ids
    container["Image"] = f"sha256:{digest}"
    fields.update(gpus=gpus, gpu_uuids=[""] * len(gpus), position=position, share=share, **more)
    made = RenderedStack.from_dict(fields)
    host.stacks[made.hash] = made
    host.templates[made.hash] = container
    return made


def roll(host: Host, *stacks: RenderedStack, **orders: Any) -> dict[str, rollout_runner.Outcome]:
    return Rollout(stacks, Orders(root=str(host.root), **orders), host.world()).run()


def ids(host: Host) -> dict[str, str]:
    return {name: one["Id"] for name, one in host.containers.items() if one["State"]["Status"] == "running"}


def test_a_bare_host_becomes_a_converged_one_and_stays_so(host: Host) -> None:
    stacks = [stack(host, "one", 0), stack(host, "two", 0), stack(host, "three", 1)]
    outcomes = roll(host, *stacks)
    assert {name: one.ended for name, one in outcomes.items()} == dict.fromkeys(("one", "two", "three"), "ready")
    assert host.acts[0] == "pull a"  # before anything is started, and once
    before, acts = ids(host), list(host.acts)
    again = roll(host, *stacks)
    assert {one.ended for one in again.values()} == {"unchanged"}
    assert not any(one.changed for one in again.values())
    assert (ids(host), host.acts) == (before, acts)


def test_stacks_on_one_card_start_one_after_another_and_cards_side_by_side(host: Host) -> None:
    places = (("a", 0), ("b", 0), ("c", 1), ("d", 1))
    stacks = [stack(host, name, gpu, timeout_s=10_000_000) for name, gpu in places]
    host.loads_until["a"] = ("c", "starting")  # on another card; if that one waited for a, this would never end
    outcomes = roll(host, *stacks)
    assert {one.ended for one in outcomes.values()} == {"ready"}
    order = [(name, phase) for name, phase in host.told if phase in ("starting", "answered")]
    for first, second in (("a", "b"), ("c", "d")):
        assert order.index((first, "answered")) < order.index((second, "starting"))


def test_a_changed_stack_is_replaced_and_its_neighbours_are_not_touched(host: Host) -> None:
    roll(host, stack(host, "a", 0), stack(host, "b", 0), stack(host, "c", 0))
    before = ids(host)
    outcomes = roll(host, stack(host, "a", 0), stack(host, "b", 0, version="2"), stack(host, "c", 0))
    assert [one.ended for one in outcomes.values()] == ["unchanged", "ready", "unchanged"]
    after = ids(host)
    assert {name for name in before if before[name] != after[name]} == {"vllm-b"}


@pytest.mark.parametrize("like", [CRASH, BLIND, DIES])
def test_a_first_deployment_that_fails_is_stopped_and_its_card_is_free(host: Host, like: str) -> None:
    host.behaviour["b"] = [like]
    outcomes = roll(host, stack(host, "a", 0), stack(host, "b", 0), stack(host, "c", 0))
    assert [one.ended for one in outcomes.values()] == ["ready", "stopped", "ready"]
    failure = outcomes["b"].failure
    assert failure is not None
    assert failure["code"] == {BLIND: "vision_blind"}.get(like, "kv_cache_no_memory")
    assert "first deployment" in failure["after"]
    assert set(ids(host)) == {"vllm-a", "vllm-c"}
    kept = Path(failure["kept"])
    assert sorted(path.name for path in kept.iterdir()) == [
        "answers.json", "compose.yaml", "container.log", "failure.json", "vllm.yaml",
    ]  # fmt: skip
    assert "vLLM API server" in (kept / "container.log").read_text()
    # The next run tries again, and a success clears the failure.
    again = roll(host, *(stack(host, name, 0) for name in "abc"))
    assert [one.ended for one in again.values()] == ["unchanged", "ready", "unchanged"]
    assert not (host.root / "b" / ".modelfleet" / "failed.json").exists()


@pytest.mark.parametrize("like", [CRASH, BLIND])
def test_a_change_that_fails_is_put_back_and_asked_again(host: Host, like: str) -> None:
    roll(host, stack(host, "a", 0), stack(host, "b", 0))
    good = (host.root / "b" / "compose.yaml").read_text()
    host.behaviour["b"] = [like]
    outcomes = roll(host, stack(host, "a", 0), stack(host, "b", 0, version="2"))
    assert [one.ended for one in outcomes.values()] == ["unchanged", "put_back"]
    assert (host.root / "b" / "compose.yaml").read_text() == good
    assert set(ids(host)) == {"vllm-a", "vllm-b"}
    receipt = files.read_json(files.receipt_path(str(host.root / "b")))
    assert receipt is not None
    assert receipt["hash"] == stack(host, "b", 0).hash
    failed = files.read_json(files.failure_path(str(host.root / "b")))
    assert failed is not None
    assert (failed["ended"], failed["hash"]) == ("put_back", stack(host, "b", 0, version="2").hash)


def test_what_is_put_back_and_fails_too_is_stopped(host: Host) -> None:
    roll(host, stack(host, "b", 0))
    host.behaviour["b"] = [CRASH, CRASH]
    outcomes = roll(host, stack(host, "b", 0, version="2"))
    assert outcomes["b"].ended == "stopped"
    assert outcomes["b"].failure is not None
    assert "fails too" in outcomes["b"].failure["after"]
    assert ids(host) == {}


@pytest.mark.parametrize(
    ("behaviour", "retries", "ended"), [([RACE], 1, "ready"), ([RACE, RACE], 1, "stopped"), ([RACE], 0, "stopped")]
)
def test_what_may_pass_by_itself_is_tried_once_more(host: Host, behaviour: list[str], retries: int, ended: str) -> None:
    host.behaviour["a"] = list(behaviour)
    outcomes = roll(host, stack(host, "a", 0), retries=retries)
    assert outcomes["a"].ended == ended
    assert (("a", "retrying") in host.told) == bool(retries)


def test_an_image_that_cannot_be_pulled_stops_nothing(host: Host) -> None:
    roll(host, stack(host, "a", 0), stack(host, "b", 0))
    before = ids(host)
    host.unpullable.add(f"sha256:{'b' * 64}")
    outcomes = roll(host, stack(host, "a", 0, version="2", digest="b" * 64), stack(host, "b", 0))
    assert (outcomes["a"].ended, outcomes["a"].changed) == ("not_touched", False)
    assert outcomes["a"].failure is not None
    assert ids(host) == before


def from_hub(host: Host, name: str, gpu: int, revision: str, **more: Any) -> RenderedStack:
    cache = str(host.root / "hub")
    weights = {"repo": "Qwen/Qwen3.5-9B", "revision": revision, "cache": cache, "home": "/root/.cache/huggingface"}
    return stack(host, name, gpu, folders={cache: "0755"}, weights=weights, version=revision, **more)


def test_weights_are_fetched_once_and_before_anything_stops(host: Host) -> None:
    host.weights = [
        {"event": "size", "total": 100, "missing": 100, "free": 999},
        *({"event": "progress", "have": have, "total": 100} for have in (1, 5, 12, 13, 99)),
        {"event": "done", "fetched": 100, "total": 100},
    ]
    roll(host, from_hub(host, "one", 0, "a"), from_hub(host, "two", 1, "a"), prefetch=True)
    assert host.acts[:2] == ["pull a", "fetch Qwen/Qwen3.5-9B@a for one, two"]
    assert (host.root / "hub").stat().st_mode & 0o7777 == 0o755
    assert host.told.count(("one, two", "fetching")) == 4  # the size, and a line each 10 %
    host.acts.clear()
    roll(host, from_hub(host, "one", 0, "b"), from_hub(host, "two", 1, "a"), prefetch=True)
    assert host.acts[:2] == ["fetch Qwen/Qwen3.5-9B@b for one", "stop vllm-one"]


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ({"event": "no_space", "total": 9, "missing": 9, "free": 1}, "weights_no_space"),
        ({"event": "failed", "text": "ConnectError: [Errno 111] Connection refused"}, "hub_unreachable"),
        ({"event": "failed", "text": "GatedRepoError: 401\nCannot access gated repo for url x."}, "hub_gated"),
        ({"event": "failed", "text": "the container ended with status 137"}, "weights_not_fetched"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_that_cannot_be_had_stop_nothing(host: Host, last: dict[str, Any], code: str) -> None:
    host.weights = [{"event": "done", "fetched": 0, "total": 9}]
    roll(host, from_hub(host, "one", 0, "a"), from_hub(host, "two", 1, "a"), prefetch=True)
    before = ids(host)
    host.weights, host.acts = [last], []
    outcomes = roll(host, from_hub(host, "one", 0, "b"), stack(host, "two", 1, version="2"), prefetch=True)
    assert outcomes["one"].failure is not None
    assert (outcomes["one"].failure["code"], outcomes["one"].ended) == (code, "not_touched")
    assert ids(host)["vllm-one"] == before["vllm-one"]
    assert "stop vllm-one" not in host.acts
    assert outcomes["two"].ended == "ready"


@pytest.mark.parametrize("orders", [{"prefetch": True}, {"prefetch": False}], ids=["no library", "switched off"])
def test_weights_may_be_left_to_the_engine(host: Host, orders: dict[str, Any]) -> None:
    host.weights = [{"event": "no_library", "text": "No module named 'huggingface_hub'"}]
    assert roll(host, from_hub(host, "one", 0, "a"), **orders)["one"].ended == "ready"
    assert any(act.startswith("fetch") for act in host.acts) == orders["prefetch"]


def test_a_folder_for_caches_is_made_without_a_restart(host: Host) -> None:
    one = from_hub(host, "one", 0, "a")
    roll(host, one)
    before = ids(host)
    (host.root / "hub").rmdir()
    outcome = roll(host, one)["one"]
    assert [difference.item for difference in outcome.differences] == [f"folder {host.root / 'hub'}"]
    assert (outcome.ended, ids(host)) == ("written", before)
    assert (host.root / "hub").is_dir()
    assert roll(host, one)["one"].ended == "unchanged"


def test_a_start_waits_for_memory_and_refuses_with_the_arithmetic(host: Host) -> None:
    host.foreign_mib = 80000
    outcomes = roll(host, stack(host, "a", 0, share=0.4))
    assert outcomes["a"].ended == "stopped"
    assert outcomes["a"].failure is not None
    assert outcomes["a"].failure["code"] == "gpu_memory_not_free"
    assert "0.40 " in outcomes["a"].failure["what"]
    assert "up a" not in host.acts


def test_a_larger_share_makes_those_that_change_too_give_way_first(host: Host) -> None:
    roll(host, stack(host, "a", 0, share=0.3), stack(host, "b", 0, share=0.6))
    outcomes = roll(host, stack(host, "a", 0, version="2", share=0.6), stack(host, "b", 0, version="2", share=0.3))
    assert [one.ended for one in outcomes.values()] == ["ready", "ready"]


def test_a_stack_that_moves_frees_its_old_card_before_anything_starts(host: Host) -> None:
    roll(host, stack(host, "a", 0, share=0.8))
    host.acts.clear()
    outcomes = roll(host, stack(host, "a", 1, version="2", share=0.8), stack(host, "b", 0, share=0.8))
    assert [one.ended for one in outcomes.values()] == ["ready", "ready"]
    assert host.acts[0] == "stop vllm-a"


def test_less_kv_cache_than_the_last_good_start_fails_the_gate(host: Host) -> None:
    roll(host, stack(host, "a", 0))
    host.containers["vllm-a"]["State"]["Status"] = "exited"
    host.behaviour["a"] = [NO_KV, NO_KV]
    outcomes = roll(host, stack(host, "a", 0))
    assert outcomes["a"].failure is not None
    assert outcomes["a"].failure["code"] == "kv_cache_less_than_expected"


def test_only_leaves_everything_else_alone(host: Host) -> None:
    roll(host, stack(host, "a", 0), stack(host, "b", 0))
    outcomes = roll(host, stack(host, "b", 0, version="2"), only="b")
    assert list(outcomes) == ["b"]
    assert set(ids(host)) == {"vllm-a", "vllm-b"}


def test_a_stack_that_left_the_inventory_is_reported_and_removed_only_when_asked(host: Host) -> None:
    a, b = stack(host, "a", 0), stack(host, "b", 0)
    roll(host, a, b)
    kept = roll(host, a)
    assert (kept["b"].ended, kept["b"].changed) == ("reported", False)
    assert set(ids(host)) == {"vllm-a", "vllm-b"}
    pruned = roll(host, a, prune=True)
    assert (pruned["b"].ended, pruned["b"].changed) == ("removed", True)
    assert set(ids(host)) == {"vllm-a"}
    (archived,) = (host.root / ".modelfleet" / "archive").iterdir()
    assert archived.name.startswith("b-")
    assert (archived / "compose.yaml").exists()
    assert not (host.root / "b").exists()


def test_the_ports_are_set_before_anything_is_pulled_or_started_and_once(host: Host) -> None:
    assert host.acts == []
    roll(host, stack(host, "a", 0))
    assert "set the ports" not in host.acts  # nobody said who may reach them
    host.acts.clear()
    roll(host, stack(host, "a", 0, version="2"), stack(host, "b", 0, digest="b" * 64), ports=Ports())
    roll(host, stack(host, "a", 0, version="2"), stack(host, "b", 0, digest="b" * 64), ports=Ports())
    assert host.acts[0] == "set the ports"
    assert host.acts.count("set the ports") == 1


def test_an_engine_that_left_the_inventory_stays_closed_as_long_as_it_runs(host: Host) -> None:
    stacks = stack(host, "a", 0), stack(host, "b", 0)
    roll(host, *stacks)
    roll(host, stacks[0], ports=Ports())
    assert host.firewall.more == [("", 8011)]
    roll(host, stacks[0], ports=Ports(), prune=True)
    assert host.firewall.more == []


def test_what_somebody_made_by_hand_is_put_back_when_taking_over_fails(host: Host) -> None:
    a = stack(host, "a", 0)
    by_hand = copy.deepcopy(host.templates[a.hash])
    by_hand.update(Id="by-hand", like=GOOD, began=0.0, hash="", share=0.0, gpus=(), RestartCount=0)
    by_hand["State"] = {"Status": "running", "ExitCode": 0, "StartedAt": _stamp(host.time)}
    by_hand["Config"]["Labels"] = {}
    host.containers["by-hand"] = by_hand
    host.behaviour["a"] = [CRASH]
    outcomes = roll(host, a)
    assert outcomes["a"].ended == "put_back"
    (left,) = [one for one in host.containers.values() if one["State"]["Status"] == "running"]
    assert (left["Id"], left["Name"]) == ("by-hand", "/vllm-a")
    again = roll(host, a)
    assert again["a"].ended == "ready"
    assert host.containers["by-hand"]["Name"].startswith("/vllm-a-before-modelfleet-")
    assert host.containers["by-hand"]["State"]["Status"] == "exited"


def with_unit(host: Host, name: str, *gpus: int, **more: Any) -> RenderedStack:
    return stack(host, name, *gpus, **{"unit": f"unit of {name}", **more})


def test_what_answered_is_handed_to_its_unit_and_what_does_not_change_stays_there(host: Host) -> None:
    roll(host, with_unit(host, "a", 0), with_unit(host, "b", 0))
    assert [act for act in host.acts if act.split()[0] in ("up", "adopt")] == ["up a", "adopt a", "up b", "adopt b"]
    before, acts = ids(host), len(host.acts)
    again = roll(host, with_unit(host, "a", 0), with_unit(host, "b", 0, unit="another order"))
    assert (again["a"].ended, again["b"].ended) == ("unchanged", "written")
    assert (ids(host), host.acts[acts:]) == (before, ["adopt b"])


def test_a_unit_is_stopped_before_its_container_is_replaced_and_put_back_with_it(host: Host) -> None:
    roll(host, with_unit(host, "a", 0))
    host.behaviour["a"] = [CRASH, GOOD]
    outcome = roll(host, with_unit(host, "a", 0, version="2", unit="new"))["a"]
    assert (outcome.ended, host.units.known["a"].text) == ("put_back", "unit of a")
    assert host.units.known["a"].active == "active"


def test_nothing_starts_what_failed(host: Host) -> None:
    host.behaviour["a"] = [CRASH]
    assert roll(host, with_unit(host, "a", 0))["a"].ended == "stopped"
    assert "a" not in host.units.known  # it never answered: it never got one
    roll(host, with_unit(host, "b", 0))
    host.containers["vllm-b"]["like"] = BLIND
    host.units.known["b"] = replace(host.units.known["b"], active="inactive")  # so it is asked again
    assert roll(host, with_unit(host, "b", 0))["b"].ended == "stopped"
    assert (host.units.known["b"].enabled, host.units.known["b"].active) == ("disabled", "inactive")


def test_what_was_started_by_hand_beside_a_loading_neighbour_starts_again_in_its_turn(host: Host) -> None:
    roll(host, with_unit(host, "a", 0))
    before = ids(host)
    host.units.known["a"] = replace(host.units.known["a"], active="inactive")
    host.containers["vllm-a"]["like"] = NO_KV
    outcome = roll(host, with_unit(host, "a", 0))["a"]
    assert outcome.ended == "ready"
    assert outcome.receipt is not None
    assert outcome.receipt["engine"]["kv_cache_tokens"] == 100_000
    assert ids(host) != before


def test_the_unit_of_a_removed_stack_goes_only_when_asked(host: Host) -> None:
    roll(host, with_unit(host, "a", 0), with_unit(host, "b", 0))
    assert roll(host, with_unit(host, "a", 0))["b"].ended == "reported"
    assert host.units.known["b"].active == "active"
    roll(host, with_unit(host, "a", 0), prune=True)
    assert set(host.units.known) == {"a"}


class Killed(BaseException):
    """The process was killed here."""


@pytest.mark.parametrize("act", range(1, 12))
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next_one(host: Host, act: int, monkeypatch: Any) -> None:
    roll(host, stack(host, "a", 0), stack(host, "b", 1))
    wanted = [stack(host, "a", 0, version="2", digest="b" * 64), stack(host, "b", 1), stack(host, "c", 1)]
    calls = 0
    real = {name: getattr(Host, name) for name in ("pull", "up", "stop", "remove", "ask")}

    def counted(name: str) -> Any:
        def call(self: Host, *args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == act:
                raise Killed
            return real[name](self, *args, **more)

        return call

    for name in real:
        monkeypatch.setattr(Host, name, counted(name))
    with contextlib.suppress(Killed):
        roll(host, *wanted)
    monkeypatch.undo()
    roll(host, *wanted)
    assert set(ids(host)) == {"vllm-a", "vllm-b", "vllm-c"}
    assert {one.ended for one in roll(host, *wanted).values()} == {"unchanged"}
    assert len(host.containers) == 3
