# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run does to a gateway that takes, refuses or ignores its new configuration. Files are real, Docker is not."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Sequence

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.command import Outcome
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import NoEngine
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.gateway_runner import (
    WORKER,
    GatewayFailed,
    GatewayRollout,
    Orders,
    World,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.http import HttpAnswer
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import gateway_files, inventory, routes
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.gateway_files import RenderedGateway
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import LABEL_HASH

from ..fleet.fleets import GATEWAYS, GPU_HOSTS, MASTER_KEY, changed

GATEWAY = "ana-docker/fleet_gateway"
QUIET = Orders(ask=False)


def render(root: Path, *edits: tuple[str, Any]) -> RenderedGateway:
    fleet = inventory.parse(changed(*edits), gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)
    settings = gateway_files.GatewaySettings(root=str(root), user=f"{os.getuid()}:{os.getgid()}", timeout=20)
    return gateway_files.render(routes.make(fleet, fleet.gateways["ana-docker"]), settings, "# keys\n")


class Lab:
    """A host with a gateway that reads its files when it is told to: the state that Docker and LiteLLM would keep."""

    def __init__(self, now: RenderedGateway, *, running: bool = True) -> None:
        self.directory = Path(now.directory)
        self.asked = 0
        self.reloads = 0
        self.execs = True  # whether docker exec works
        self.takes = True  # whether a reload makes it read its files
        self.given_up = 0  # reloads that come to nothing, as when a new worker dies
        self.finishing = 0.0  # seconds for which an old worker finishes a long answer, and the other one stays old
        self.until = 0.0  # when that ends
        self.old: list[dict[str, Any]] = []  # what workers of before have read
        self.workers = 2
        self.counts: int = now.models
        self.time = 0.0
        self.commands: list[str] = []
        self.container: Any = None
        self.read: list[dict[str, Any]] = []
        if running:
            for name, file in now.files.items():
                path = self.directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.content)
                path.chmod(int(file.mode, 8))
            self.start(now)

    def start(self, now: RenderedGateway) -> None:
        labels = {LABEL_HASH: now.hash, "com.docker.compose.project.working_dir": now.directory}
        config = {"Image": now.image, "Labels": labels}
        self.container = {"Image": now.image.split("@")[1], "Config": config, "State": {"Status": "running"}}
        self.read_files()

    def read_files(self) -> None:
        text = (self.directory / "config/config.yaml").read_text()
        self.read = []
        for block in text.split("  - model_name:")[1:]:
            info: dict[str, Any] = {"id": re.search(r" id: (\S+)", block)[1]}  # type: ignore[index]
            info["supports_vision"] = "supports_vision: true" in block
            info["blocked"] = "blocked: true" in block
            mark = re.search(r"modelfleet_config: (\S+)", block)
            if mark:
                info["modelfleet_config"] = mark[1].strip("'\"")
            self.read.append({"model_info": info})

    def fetch(self, method: str, url: str, *_more: Any, **_named: Any) -> HttpAnswer:
        if self.container is None:
            return HttpAnswer(0, error="connection refused")
        self.asked += 1
        old = self.time < self.until and self.asked % 2
        body = {"data": self.old if old else self.read} if url.endswith("/model/info") else {}
        return HttpAnswer(200, json.dumps(body).encode())

    def run(self, words: Sequence[str], *_more: Any, **_named: Any) -> Outcome:
        self.commands.append(" ".join(words))
        if "--validate_config" in words:
            assert MASTER_KEY not in self.commands[-1]
            return Outcome(0, f"LiteLLM: config OK ({self.counts} models)")
        if not self.execs:
            return Outcome(1, "no such container")
        self.reloads += 1
        self.given_up -= 1
        if self.takes and self.given_up < 0:
            self.old, self.until = self.read, self.time + self.finishing
            self.read_files()
        return Outcome(0, "")

    def up(self, directory: str, *, timeout: float) -> Outcome:
        self.commands.append("up")
        self.start(self.wanted)
        return Outcome(0, "")

    def inspect(self, _name: str) -> Any:
        return self.container

    def image(self, _name: str) -> Any:
        return {"Id": "sha256:config", "RepoDigests": []}

    def processes(self, _name: str) -> list[tuple[int, str]]:
        count = self.workers + (self.time < self.until)
        return [(1, "litellm"), *((10 + each, "python3 -c from " + WORKER) for each in range(count))]

    def logs(self, _name: str) -> list[tuple[float, str]]:
        return []

    def clock(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    wanted: RenderedGateway


def rollout(lab: Lab, wanted: RenderedGateway, orders: Orders = QUIET) -> GatewayRollout:
    lab.wanted = wanted
    engine = SimpleNamespace(
        container=lab.inspect, image=lab.image, logs=lab.logs, ours=lambda label: [], processes=lab.processes
    )
    world = World(engine, lab.fetch, lambda: 1, lab.run, lab.clock, lab.sleep, lab)  # type: ignore[arg-type]
    return GatewayRollout(wanted, orders, world)


def contents(lab: Lab) -> dict[str, str]:
    return {
        name: (lab.directory / name).read_text() for name in gateway_files.MANAGED if (lab.directory / name).exists()
    }


def wanted_contents(gateway: RenderedGateway) -> dict[str, str]:
    return {name: file.content for name, file in gateway.files.items()}


NEW_ALIAS = (f"{GATEWAY}/aliases", {"vision": "qwen-vl", "see": "qwen-vl"})


def test_nothing_to_do(tmp_path: Path) -> None:
    gateway = render(tmp_path)
    lab = Lab(gateway)
    assert not rollout(lab, gateway).run().changed
    assert lab.commands == []


@pytest.mark.parametrize(("status", "code"), [(0, "route_to_nothing"), (503, "route_cooled_down")])
def test_a_look_says_which_routes_get_no_request_and_a_run_does_not_wait_for_them(
    tmp_path: Path, status: int, code: str
) -> None:
    gateway = render(tmp_path)
    lab = Lab(gateway)
    silent = gateway.routes[0]
    engines: list[str] = []

    def fetch(method: str, url: str, *more: Any, **named: Any) -> HttpAnswer:
        if url == f"{gateway.url}/health":
            return HttpAnswer(
                200, json.dumps({"unhealthy_endpoints": [{"model_id": silent.id, "error": "x"}]}).encode()
            )
        if not url.startswith(gateway.url):
            engines.append(url)
            return HttpAnswer(status, error="refused")
        return Lab.fetch(lab, method, url, *more, **named)

    lab.fetch = fetch  # type: ignore[method-assign]
    looked = rollout(lab, gateway).look()
    assert [(each.code, each.stack) for each in looked.findings] == [(code, silent.stack)]
    assert engines == [f"{silent.url}/health"]
    assert (looked.changed, looked.differences) == (False, ())
    assert not rollout(lab, gateway).run().changed


@pytest.mark.parametrize(("state", "unpaused"), [("paused", True), ("exited", False)])
def test_a_paused_gateway_goes_on_before_compose_starts_it(tmp_path: Path, state: str, unpaused: bool) -> None:
    gateway = render(tmp_path)
    lab = Lab(gateway)
    lab.container["State"]["Status"] = state
    assert rollout(lab, gateway).run().step == "start"
    assert lab.commands == [*["docker unpause litellm"] * unpaused, "up"]


def test_a_new_route_is_read_first_and_reloaded_then(tmp_path: Path) -> None:
    wanted = render(tmp_path, NEW_ALIAS)
    lab = Lab(render(tmp_path))
    lab.counts = wanted.models
    outcome = rollout(lab, wanted).run()
    assert (outcome.changed, outcome.step) == (True, "reload")
    assert ["--validate_config" in each for each in lab.commands] == [True, False]
    assert lab.commands[1] == "docker exec litellm sh -c kill -HUP 1"
    assert contents(lab) == wanted_contents(wanted)
    assert not rollout(lab, wanted).look().changed


def test_a_route_that_is_only_blocked_is_not_read_first(tmp_path: Path) -> None:
    fleet = inventory.parse(changed(), gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)
    settings = gateway_files.GatewaySettings(root=str(tmp_path), user=f"{os.getuid()}:{os.getgid()}", timeout=20)
    plan = routes.make(fleet, fleet.gateways["ana-docker"])
    blocked = gateway_files.render(plan, settings, "# keys\n", ["ana-ml2--vl"])
    lab = Lab(render(tmp_path))
    assert rollout(lab, blocked).run().step == "reload"
    assert rollout(lab, render(tmp_path)).run().step == "reload"
    assert lab.commands == ["docker exec litellm sh -c kill -HUP 1"] * 2


def test_check_mode_sees_the_same_and_writes_nothing(tmp_path: Path) -> None:
    before, wanted = render(tmp_path), render(tmp_path, NEW_ALIAS)
    lab = Lab(before)
    outcome = rollout(lab, wanted).look()
    assert (outcome.changed, outcome.step, lab.commands) == (True, "reload", [])
    assert contents(lab) == wanted_contents(before)
    assert not (lab.directory / ".modelfleet").exists()


def test_a_model_that_litellm_drops_keeps_the_configuration_out(tmp_path: Path) -> None:
    before, wanted = render(tmp_path), render(tmp_path, NEW_ALIAS)
    lab = Lab(before)
    lab.counts = wanted.models - 1
    with pytest.raises(GatewayFailed, match="not all were taken") as failed:
        rollout(lab, wanted).run()
    assert failed.value.code == "gateway_config_refused"
    assert contents(lab) == wanted_contents(before)
    assert lab.reloads == 0


def test_workers_that_do_not_take_it_get_the_files_before_back(tmp_path: Path) -> None:
    before, wanted = render(tmp_path), render(tmp_path, NEW_ALIAS)
    lab = Lab(before)
    lab.counts, lab.takes = wanted.models, False
    with pytest.raises(GatewayFailed, match="put back") as failed:
        rollout(lab, wanted).run()
    assert failed.value.code == "gateway_reload_failed"
    assert contents(lab) == wanted_contents(before)
    assert lab.reloads == 3  # asked again after a while, and for the files before


@pytest.mark.parametrize(("given_up", "timeout", "reloads"), [(1, 20, 2), (2, 60, 3), (3, 300, 4)])
def test_a_reload_that_came_to_nothing_is_asked_for_again_but_not_for_ever(
    tmp_path: Path, given_up: int, timeout: int, reloads: int
) -> None:
    before, wanted = render(tmp_path), replace(render(tmp_path, NEW_ALIAS), timeout=timeout)
    lab = Lab(before)
    lab.counts, lab.given_up = wanted.models, given_up
    if given_up == 3:
        with pytest.raises(GatewayFailed, match="put back"):
            rollout(lab, wanted).run()
    else:
        assert rollout(lab, wanted).run().step == "reload"
    assert lab.reloads == reloads


def test_a_long_answer_of_an_old_worker_is_waited_for(tmp_path: Path) -> None:
    wanted = replace(render(tmp_path, NEW_ALIAS), drain_seconds=60)
    lab = Lab(render(tmp_path))
    lab.counts, lab.finishing = wanted.models, 100
    assert rollout(lab, wanted).run().step == "reload"
    assert (lab.reloads, contents(lab)) == (1, wanted_contents(wanted))


def test_an_answer_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    before, wanted = render(tmp_path), replace(render(tmp_path, NEW_ALIAS), drain_seconds=60)
    lab = Lab(before)
    lab.counts, lab.finishing = wanted.models, 10000
    with pytest.raises(GatewayFailed, match="put back"):
        rollout(lab, wanted).run()
    assert contents(lab) == wanted_contents(before)
    assert lab.time < 20 + 2 * 60 + 2


def test_a_new_worker_that_never_comes_up_is_not_waited_for(tmp_path: Path) -> None:
    lab = Lab(render(tmp_path))
    wanted = render(tmp_path, NEW_ALIAS)
    lab.counts, lab.takes, lab.workers = wanted.models, False, 3
    with pytest.raises(GatewayFailed, match="within 20 s"):
        rollout(lab, wanted).run()
    assert lab.reloads == 2


def test_a_client_key_needs_no_reload(tmp_path: Path) -> None:
    wanted = render(tmp_path, (f"{GATEWAY}/keys/0/rpm", 60))
    lab = Lab(render(tmp_path))
    assert rollout(lab, wanted).run().step == "write"
    assert lab.commands == []
    assert contents(lab) == wanted_contents(wanted)


def test_the_first_start(tmp_path: Path) -> None:
    wanted = render(tmp_path)
    lab = Lab(wanted, running=False)
    outcome = rollout(lab, wanted).run()
    assert outcome.step == "create"
    assert ["--validate_config" in lab.commands[0], lab.commands[1]] == [True, "up"]
    assert {name: oct((lab.directory / name).stat().st_mode & 0o777) for name in (".env", "config/keys.json")} == {
        ".env": "0o600",
        "config/keys.json": "0o640",
    }


def test_a_run_for_other_hosts_never_replaces_the_container(tmp_path: Path) -> None:
    wanted = render(tmp_path, NEW_ALIAS, (f"{GATEWAY}/port", 4001))
    lab = Lab(render(tmp_path))
    lab.counts = wanted.models
    outcome = rollout(lab, wanted, Orders(replace=False, ask=False)).run()
    assert outcome.step == "reload"
    assert outcome.needs_replacing
    assert "site.yml -l ana-docker" in outcome.warnings[0]
    assert "up" not in lab.commands
    assert "4000:4000" in contents(lab)["compose.yaml"]
    assert contents(lab)["config/config.yaml"] == wanted.files["config/config.yaml"].content


def test_a_gateway_that_does_not_run_is_left_alone_by_a_run_for_other_hosts(tmp_path: Path) -> None:
    wanted = render(tmp_path)
    lab = Lab(wanted, running=False)
    outcome = rollout(lab, wanted, Orders(replace=False, ask=False)).run()
    assert (outcome.changed, outcome.needs_replacing, lab.commands) == (False, True, [])


def test_a_container_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    wanted = render(tmp_path)
    lab = Lab(wanted, running=False)
    lab.container = {
        "Image": "sha256:other",
        "Config": {"Image": "other", "Labels": None},
        "State": {"Status": "exited"},
    }
    with pytest.raises(GatewayFailed) as failed:
        rollout(lab, wanted).run()
    assert failed.value.code == "container_taken"
    assert "up" not in lab.commands


def test_a_check_of_a_bare_host_foresees_all_of_it_and_writes_nothing(tmp_path: Path) -> None:
    gateway = render(tmp_path)
    world = World(engine=NoEngine(), fetch=lambda *_asked, **_how: HttpAnswer(0), seed=lambda: 1)  # type: ignore[arg-type]
    outcome = GatewayRollout(gateway, QUIET, world).look()
    files = [f"file {name}" for name in gateway.files]
    assert [each.item for each in outcome.differences] == [*files, "image", "container"]
    assert (outcome.changed, outcome.step) == (True, "create")
    assert not list(tmp_path.iterdir())


def test_a_diff_names_what_is_no_file(tmp_path: Path) -> None:
    gateway = render(tmp_path)
    lab = Lab(gateway)
    lab.container["State"]["Status"] = "exited"
    (lab.directory / ".env").write_text("LITELLM_MASTER_KEY=sk-by-hand\n")
    (block,) = rollout(lab, gateway).look().diff
    assert block["before"].splitlines() == ["file .env: (not shown)", "state: exited"]
    assert block["after"].splitlines() == ["file .env: as rendered", "state: running"]


def test_a_check_of_a_gateway_that_hangs_says_what_it_did_not_see(tmp_path: Path) -> None:
    gateway = render(tmp_path)
    lab = Lab(gateway)
    lab.fetch = lambda *_asked, **_how: HttpAnswer(0, error="timed out after 10 s")  # type: ignore[method-assign]
    looked = rollout(lab, gateway).look()
    (warning,) = looked.warnings
    assert "does not answer (timed out after 10 s), so which routes it has cannot be seen" in warning
    assert [each.item for each in looked.differences] == ["readiness"]
    assert looked.findings == []


def test_a_diff_shows_no_secret(tmp_path: Path) -> None:
    lab = Lab(render(tmp_path))
    wanted = render(tmp_path, (f"{GATEWAY}/master_key", "sk-another-0123456789abcdef"), NEW_ALIAS)
    shown = json.dumps(rollout(lab, wanted).look().diff)
    assert "see: qwen-vl" in shown
    assert MASTER_KEY not in shown
    assert "sk-another" not in shown


class Balancer:
    """HAProxy: who is up, and what it was told, beside what Docker was."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.drained: set[str] = set()

    def say(self, _path: str, command: str) -> str:
        found = re.fullmatch(r"set server litellm/(\S+) state (drain|ready)", command)
        if found:
            self.lab.commands.append(f"{found[2]} {found[1]}")
            (self.drained.add if found[2] == "drain" else self.drained.discard)(found[1])
        return "done"

    def serving(self, _path: str, _backend: str) -> set[str]:
        return {"litellm", "litellm-2"} - self.drained


BALANCED = (
    ("*/fleet_images/haproxy", {"repository": "haproxy", "digest": "sha256:" + "f" * 64}),
    (f"{GATEWAY}/balancer", "haproxy"),
)


class Two(Lab):
    """Two instances; each start of one is noted by its name."""

    def up(self, directory: str, *, timeout: float, service: str = "") -> Outcome:
        self.commands.append(f"up {service}".strip())
        self.start(self.wanted)
        return Outcome(0, "")

    def inspect(self, name: str) -> Any:
        networks = {"one": {"IPAddress": "172.18.0.2" if name == "litellm" else "172.18.0.3"}}
        return {**self.container, "NetworkSettings": {"Networks": networks}}


def two(root: Path, *edits: tuple[str, Any]) -> RenderedGateway:
    fleet = inventory.parse(changed(*BALANCED, *edits), gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)
    settings = gateway_files.GatewaySettings(
        root=str(root), user=f"{os.getuid()}:{os.getgid()}", timeout=20, instances=2
    )
    return gateway_files.render(routes.make(fleet, fleet.gateways["ana-docker"]), settings, "# keys\n")


def rollout_of_two(lab: Two, wanted: RenderedGateway) -> GatewayRollout:
    made = rollout(lab, wanted)
    labels = {LABEL_HASH: "old", "com.docker.compose.project.working_dir": wanted.directory}
    state = {"Id": "2", "Config": {"Labels": labels}, "State": {"Status": "running"}}
    beside = [{"Name": "/litellm-2", **state}, {"Name": "/litellm-front", **state}]
    beside[1]["Config"] = {"Labels": {LABEL_HASH: wanted.front_hash}}
    made.world.engine.ours = lambda label: beside  # type: ignore[method-assign]
    return GatewayRollout(wanted, QUIET, replace(made.world, balancer=Balancer(lab)))


def test_instances_are_replaced_one_after_another_and_out_of_use(tmp_path: Path) -> None:
    wanted = two(tmp_path, (f"{GATEWAY}/master_key", "sk-another-0123456789abcdef"))
    lab = Two(two(tmp_path))
    assert rollout_of_two(lab, wanted).run().step == "recreate"
    assert lab.commands[1:] == [
        *("drain litellm", "up litellm", "ready litellm"),
        *("drain litellm-2", "up litellm-2", "ready litellm-2"),
        "up litellm-front",
    ]


def test_instances_read_their_files_one_after_another_and_out_of_use(tmp_path: Path) -> None:
    wanted = two(tmp_path, NEW_ALIAS)
    lab = Two(two(tmp_path))
    lab.counts = wanted.models
    made = rollout_of_two(lab, wanted)
    made.world.engine.ours("")[0]["Config"]["Labels"][LABEL_HASH] = wanted.hash
    assert made.run().step == "reload"
    hang_up = "docker exec {} sh -c kill -HUP 1"
    assert lab.commands[1:] == [
        *("drain litellm", hang_up.format("litellm"), "ready litellm"),
        *("drain litellm-2", hang_up.format("litellm-2"), "ready litellm-2"),
    ]


def test_an_instance_that_cannot_be_told_gets_requests_again(tmp_path: Path) -> None:
    wanted = two(tmp_path, NEW_ALIAS)
    lab = Two(two(tmp_path))
    lab.counts, lab.execs = wanted.models, False
    made = rollout_of_two(lab, wanted)
    made.world.engine.ours("")[0]["Config"]["Labels"][LABEL_HASH] = wanted.hash
    with pytest.raises(GatewayFailed, match="no such container"):
        made.run()
    assert lab.commands[-1] == "ready litellm"
