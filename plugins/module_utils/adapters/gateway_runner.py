# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a gateway to where it routes as the inventory says, without losing a request where that is possible.

A configuration reaches the running gateway only after LiteLLM, in the pinned image and without a network, has read it
and counted as many models as we do. Then the workers take turns, and only when every answer names the new
configuration is it done; otherwise the files before are put back and the workers take turns again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from ..fleet import drift, gateway_files, rollout_report
from ..fleet.drift import Difference, LiveFile
from ..fleet.errors import Finding
from ..fleet.gateway_files import Asked, LiveGateway, RenderedGateway, Silent, Told
from ..fleet.verdict import conclude
from . import asker, balancer, command, compose_cli, draining, files
from .docker_engine import Engine, EngineError
from .http import Fetch, HttpAnswer

HTTP_SECONDS = 10.0
ASKED_AT_ONCE = 8  # idle workers are woken one after another only when they are asked at the same time
POLL_SECONDS = 1.0
REST_SECONDS = 15.0  # without a change of its workers; uvicorn looks twice a second whether it was asked to reload
ASKED_AGAIN = 2  # times; it works off all of them, so more would only keep it busy
WORKER = "multiprocessing.spawn import spawn_main"  # how uvicorn starts one
WRONG_KEY = "sk-modelfleet-nobody-has-this-key"
NO_MODEL = "modelfleet-no-such-model"


@dataclass(frozen=True)
class World:
    """Everything a gateway's rollout touches. Tests give other clocks and hosts."""

    engine: Engine
    fetch: Fetch
    seed: Callable[[], int]
    run: Callable[..., command.Outcome] = command.run
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    compose: Any = compose_cli
    balancer: Any = balancer


@dataclass(frozen=True)
class Orders:
    replace: bool = True  # False: only what a reload can do; the container is another play's business
    ask: bool = True
    drain_seconds: int = 0  # how long to wait until the engines of blocked routes have nothing to do
    drained: tuple[str, ...] = ()  # addresses of those engines


@dataclass
class Outcome:
    differences: tuple[Difference, ...] = ()
    changed: bool = False
    step: str = ""
    needs_replacing: bool = False
    warnings: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)  # what no run changes and somebody should know
    answers: list[dict[str, Any]] = field(default_factory=list)
    diff: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0


class GatewayFailed(Exception):
    """It is not as wanted; the message says why and what is running now. ``code`` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} [{code}]")
        self.code = code


def tell(
    gateway: RenderedGateway, fetch: Fetch, times: int = ASKED_AT_ONCE, url: str = "", probes: bool = False
) -> Told:
    """What the running gateway (one instance with ``url``) says, asked so often that every worker has its say."""
    url = url or gateway.url
    ready = fetch("GET", f"{url}/health/readiness", timeout=HTTP_SECONDS)
    if ready.status != 200:
        return Told(ready.status, error=ready.error)
    headers = {"Authorization": f"Bearer {gateway.master_key}"}
    paths = ["/model/info", *(["/health"] if probes else [])]
    with ThreadPoolExecutor(times * len(paths)) as pool:
        asked = {
            path: [pool.submit(fetch, "GET", f"{url}{path}", None, headers, HTTP_SECONDS) for _each in range(times)]
            for path in paths
        }
        got: dict[str, list[HttpAnswer]] = {path: [each.result() for each in asked[path]] for path in paths}
    for answer in got["/model/info"]:
        if answer.status != 200:
            return Told(answer.status, error=answer.error or "/model/info")
    return Told(
        200,
        tuple((answer.json() or {}).get("data") or () for answer in got["/model/info"]),
        # A worker that is new has probed nothing yet; one that does not say is no reason not to compare.
        probes=tuple(answer.json() or {} for answer in got.get("/health", ()) if answer.status == 200),
    )


class GatewayRollout:
    """One run for one gateway. Use ``look`` or ``run``, once."""

    def __init__(self, gateway: RenderedGateway, orders: Orders, world: World) -> None:
        self.gateway = gateway
        self.orders = orders
        self.world = world
        self.state = os.path.join(gateway.directory, files.STATE)

    # --- looking ---------------------------------------------------------------------------------------------------

    def live(self, probes: bool = False) -> LiveGateway:
        gateway, engine = self.gateway, self.world.engine
        container = engine.container(gateway.container)
        runs = container is not None and container["State"]["Status"] == "running"
        project = {each["Name"].lstrip("/"): each for each in engine.ours(gateway_files.LABEL_GATEWAY)}
        times = ASKED_AT_ONCE * len(gateway.instances)
        return LiveGateway(
            files=files.read(gateway.directory, (*gateway_files.MANAGED, *drift.UNWANTED)),
            container=container,
            image=engine.image(container["Image"]) if container else None,
            wanted_image=engine.image(gateway.image),
            told=tell(gateway, self.world.fetch, times, probes=probes) if runs else None,
            receipt=files.read_json(files.receipt_path(gateway.directory)),
            beside={name: each for name, each in project.items() if name != gateway.container},
        )

    def look(self) -> Outcome:
        """What a run would do, and what it could do nothing about. Reads only."""
        live = self.live(probes=True)
        outcome = self._outcome(live)
        if live.told is not None:
            if live.told.silence and self.orders.replace:
                outcome.warnings.append(
                    f"The gateway on {self.gateway.host} does not answer ({live.told.silence}), so which routes it has "
                    f"cannot be seen. A run waits for it. Look at `docker logs {self.gateway.container}` there."
                )
            silent = gateway_files.silent(self.gateway, live.told)
            outcome.findings = gateway_files.hazards(self.gateway, [(each, self._answers(each)) for each in silent])
        return outcome

    def _answers(self, silence: Silent) -> bool:
        base = silence.api_base
        url = f"{base[: -len('/v1')] if base.endswith('/v1') else base}/health"
        return self.world.fetch("GET", url, timeout=HTTP_SECONDS).status != 0

    def _outcome(self, live: LiveGateway) -> Outcome:
        gateway = self.gateway
        differences = gateway_files.compare(gateway, live, ask=self.orders.ask)
        outcome = Outcome(tuple(differences), step=gateway_files.step(differences))
        if not self.orders.replace and outcome.step in gateway_files.REPLACES:
            outcome.needs_replacing = True
            why = "; ".join(each.item for each in differences if each.action in gateway_files.REPLACES)
            outcome.warnings.append(
                f"The gateway on {gateway.host} must be started or replaced ({why}), which a run for other hosts does "
                f"not do: run site.yml -l {gateway.host}."
            )
            outcome.step = gateway_files.step(each for each in differences if each.action not in gateway_files.REPLACES)
        if not self.orders.replace and (live.told is None or live.told.silence):
            if live.told is not None:
                outcome.warnings.append(
                    f"The gateway on {gateway.host} does not answer ({live.told.silence}); its routes stay."
                )
            outcome.step = ""
        outcome.changed = outcome.step not in ("", drift.REPORT)
        changed = {each.item for each in differences}
        shown = {  # a secret file only where nothing of it is there
            name: file
            for name, file in gateway.files.items()
            if f"file {name}" in changed and (not file.secret or live.files.get(name) is None)
        }
        outcome.diff = [
            {
                "before_header": os.path.join(gateway.directory, name),
                "after_header": os.path.join(gateway.directory, name),
                "before": _shown(live.files.get(name), file.secret),
                "after": drift.NOT_SHOWN + "\n" if file.secret else file.content,
            }
            for name, file in shown.items()
        ]
        rest = [each for each in differences if each.item not in {f"file {name}" for name in shown}]
        outcome.diff += rollout_report.items(f"gateway on {gateway.host}", rest)
        return outcome

    # --- doing -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Do what differs. Raises GatewayFailed with what is running now."""
        began = self.world.clock()
        outcome = self._outcome(self.live())
        drains = bool(self.orders.drained and self.orders.drain_seconds)
        if not outcome.changed and not drains:
            outcome.seconds = self.world.clock() - began
            return outcome  # not even a lock is left behind
        with files.lock(os.path.join(self.state, "lock")):
            live = self.live()
            outcome = self._outcome(live)
            if outcome.changed:
                self._do(outcome, live)
            if drains:
                outcome.warnings += self._drain()
        outcome.seconds = self.world.clock() - began
        return outcome

    def _do(self, outcome: Outcome, live: LiveGateway) -> None:
        gateway, step = self.gateway, outcome.step
        restarts = step in gateway_files.REPLACES
        if restarts:
            for image in filter(None, (gateway.image, gateway.front_image)):
                if self.world.engine.image(image) is None:
                    self._pull(image)
        writes = [each for each in outcome.differences if each.item.startswith("file ")]
        if writes:
            staged = self._stage(restarts)
            try:
                if restarts or self._needs_validation(writes, live):
                    self._validate(staged, live)
                self._swap(staged, live, restarts)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
        if restarts:
            self._start(live)
        elif step == gateway_files.RELOAD:
            self._reload(live)
        elif step == drift.WAIT:
            self._wait()
        if self.orders.ask:
            outcome.answers, warnings = ask(gateway, self.world)
            outcome.warnings += warnings
            wrong = [each for each in outcome.answers if not each["passed"]]
            if wrong:
                said = "\n".join(f"{each['name']}: {each['message']} {each['remedy']}".rstrip() for each in wrong)
                raise GatewayFailed(wrong[0]["code"], f"The gateway on {gateway.host} runs, but:\n{said}")
            if not outcome.needs_replacing:
                brief = [{key: each[key] for key in ("name", "code", "route")} for each in outcome.answers]
                files.write_json(
                    files.receipt_path(gateway.directory), {"proof": gateway_files.proof(gateway), "answers": brief}
                )

    def _pull(self, image: str) -> None:
        try:
            self.world.engine.pull(image, lambda percent: None)
        except EngineError as error:
            raise GatewayFailed("pull_failed", f"{image} could not be pulled: {error}. Nothing was changed.") from error

    def _stage(self, everything: bool) -> str:
        """All files in a folder beside the live ones, with owner and mode, so that a rename is all that is left."""
        staged = os.path.join(self.state, "staged")
        shutil.rmtree(staged, ignore_errors=True)
        for name in self.gateway.files:
            os.makedirs(os.path.join(staged, os.path.dirname(name)), mode=0o755, exist_ok=True)
        group = _number(self.gateway.user.partition(":")[2])
        for name, file in self.gateway.files.items():
            path = os.path.join(staged, name)
            files.write(path, file.content, file.mode)
            if name.startswith("config/") and group is not None:
                os.chown(path, -1, group)  # the gateway's own user reads its secrets by the group
        return staged

    def _needs_validation(self, writes: Sequence[Difference], live: LiveGateway) -> bool:
        """Not where routes are only blocked or opened: an engine waits, and LiteLLM has taken the rest before."""
        items = [each.item for each in writes if each.action == gateway_files.RELOAD]
        name = "config/config.yaml"
        if items != [f"file {name}"] or name not in live.files:
            return bool(items)
        return not gateway_files.only_blocked(live.files[name].content, self.gateway.files[name].content)

    def _validate(self, staged: str, live: LiveGateway) -> None:
        """LiteLLM's own opinion, in the image that will read it."""
        gateway = self.gateway
        image = gateway.image
        if not self.orders.replace and live.container is not None:
            image = live.container["Image"]  # what runs is what will read it
        done = self.world.run(
            [
                *("docker", "run", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp:size=64m,mode=1777"),
                *("--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--user", gateway.user),
                *("--env-file", self._plain_environment(staged)),
                *("--env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "--env", "HOME=/tmp"),
                *("--volume", f"{os.path.join(staged, 'config')}:{gateway_files.CONFIG_FOLDER}:ro", image),
                *("--config", f"{gateway_files.CONFIG_FOLDER}/config.yaml", "--validate_config"),
            ],
            gateway.timeout,
            together=True,
        )
        counted = re.search(r"config OK \((\d+) models\)", done.output)
        if done.status == 0 and counted and int(counted[1]) == gateway.models:
            return
        if done.status == 0 and counted:
            why = f"it counts {counted[1]} models, with aliases, where there are {gateway.models}: not all were taken"
        else:
            why = f"it ended with status {done.status}"
        lines = "\n".join(done.output.strip().splitlines()[-8:])
        raise GatewayFailed(
            "gateway_config_refused",
            f"LiteLLM refuses the new configuration of {gateway.host}: {why}. Nothing was changed.\n{lines}",
        )

    def _plain_environment(self, staged: str) -> str:
        """``docker run --env-file`` knows no quotes, and no value of ours matters to the check: only the names do."""
        path = os.path.join(staged, "names.env")
        names = re.findall(r"^([A-Z0-9_]+)=", self.gateway.files[".env"].content, re.MULTILINE)
        # A database would be connected to.
        values = {name: "sk-only-to-validate-0000" for name in names if name != "DATABASE_URL"}
        files.write(path, "".join(f"{name}={value}\n" for name, value in values.items()), "0600")
        return path

    def _swap(self, staged: str, live: LiveGateway, everything: bool) -> None:
        directory = self.gateway.directory
        for name in self.gateway.files:
            os.makedirs(os.path.join(directory, os.path.dirname(name)), mode=0o755, exist_ok=True)
            # Without the order to replace, compose.yaml stays that of the container that runs.
            if everything or self.orders.replace or name.startswith("config/"):
                os.replace(os.path.join(staged, name), os.path.join(directory, name))
        for name in live.files:
            if name not in self.gateway.files and (self.orders.replace or name.startswith("config/")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(directory, name))

    def _restore(self, live: LiveGateway) -> None:
        """The files as they were before this run."""
        group = _number(self.gateway.user.partition(":")[2])
        for name in self.gateway.files:
            path = os.path.join(self.gateway.directory, name)
            if name in live.files:
                files.write(path, live.files[name].content, live.files[name].mode)
                if name.startswith("config/") and group is not None:
                    os.chown(path, -1, group)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    def _start(self, live: LiveGateway) -> None:
        gateway = self.gateway
        foreign = live.container
        labels = (foreign["Config"].get("Labels") or {}) if foreign else {}
        if foreign is not None and labels.get("com.docker.compose.project.working_dir") != gateway.directory:
            raise GatewayFailed(
                "container_taken",
                f"{gateway.host} has a container {gateway.container} that is not ours. Rename or remove it.",
            )
        reason = self._up(live)
        if not reason:
            return
        lines = [text for _moment, text in self.world.engine.logs(gateway.container)][-12:]
        after = "It is its first start here, so nothing else was running."
        if live.container is not None and live.files:
            self._restore(live)
            self.world.compose.up(gateway.directory, timeout=900)
            for name in gateway.instances:
                self._use(name, "ready")
            back = self._until_ready()
            after = "The one before is put back" + (" and ready." if back else ", and is not ready either.")
        raise GatewayFailed(
            "gateway_not_ready",
            f"The gateway on {gateway.host} did not come up: {reason}. {after}\n" + "\n".join(lines),
        )

    def _up(self, live: LiveGateway) -> str:
        """Start what the files say; why it did not come up. Several instances one after another, out of use first."""
        gateway, compose = self.gateway, self.world.compose
        for name, there in {gateway.container: live.container, **live.beside}.items():
            if there is not None and there["State"]["Status"] == "paused":  # Compose cannot start it
                self.world.run(["docker", "unpause", name], together=True)
        for name in sorted(set(live.beside) - {*gateway.instances, gateway_files.FRONT if gateway.front_image else ""}):
            self.world.engine.stop(live.beside[name]["Id"])
            self.world.engine.remove(live.beside[name]["Id"])
        if not gateway.front_image:
            up = compose.up(gateway.directory, timeout=900)
            return _said(self._until_as_wanted()) if up.ok else up.output.strip()[-1500:]
        self._front_folder()
        for name in gateway.instances:
            with self._out_of_use(name):
                up = compose.up(gateway.directory, timeout=900, service=name)
                differences = self._until_as_wanted(name) if up.ok else []
            if not up.ok or differences:
                return f"{name}: {_said(differences) if up.ok else up.output.strip()[-1500:]}"
            self._until_used(name)
        up = compose.up(gateway.directory, timeout=900, service=gateway_files.FRONT)
        return _said(self._until_as_wanted()) if up.ok else up.output.strip()[-1500:]

    def _front_folder(self) -> None:
        """HAProxy makes its socket there, as a user that owns nothing else on the host."""
        folder = os.path.join(self.gateway.directory, os.path.dirname(gateway_files.FRONT_SOCKET))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        user, _colon, group = self.gateway.user.partition(":")
        os.chown(folder, -1 if _number(user) is None else int(user), -1 if _number(group) is None else int(group))

    @contextlib.contextmanager
    def _out_of_use(self, instance: str) -> Iterator[None]:
        """It gets no new request, where there is another instance to get them."""
        self._use(instance, "drain")
        try:
            yield
        finally:
            self._use(instance, "ready")

    def _use(self, instance: str, state: str) -> None:
        """``drain`` sends an instance no new request, where another one is there to answer; ``ready`` does again."""
        path = os.path.join(self.gateway.directory, gateway_files.FRONT_SOCKET)
        if state == "drain" and not self.world.balancer.serving(path, gateway_files.PROJECT) - {instance}:
            return
        self.world.balancer.say(path, f"set server {gateway_files.PROJECT}/{instance} state {state}")
        self.world.sleep(POLL_SECONDS)  # what HAProxy had chosen it for is on its way

    def _until_used(self, instance: str) -> None:
        """Before the next instance goes, HAProxy must have seen that this one is there; where it runs at all."""
        path = os.path.join(self.gateway.directory, gateway_files.FRONT_SOCKET)
        deadline = self.world.clock() + self.gateway.timeout
        while self.world.clock() < deadline:
            serving = self.world.balancer.serving(path, gateway_files.PROJECT)
            if instance in serving or not self.world.balancer.say(path, "show info"):
                return
            self.world.sleep(POLL_SECONDS)

    def _address(self, instance: str) -> str:
        """Where this host reaches one of several instances."""
        container = self.world.engine.container(instance) or {}
        networks = container.get("NetworkSettings", {}).get("Networks", {}).values()
        address = next((each["IPAddress"] for each in networks if each.get("IPAddress")), "127.0.0.1")
        return f"http://{address}:{gateway_files.PORT}"

    def _wait(self) -> None:
        if not self._until_ready():
            problem = f"The gateway on {self.gateway.host} runs and is not ready after {self.gateway.timeout} s."
            lines = [text for _moment, text in self.world.engine.logs(self.gateway.container)][-12:]
            raise GatewayFailed("gateway_not_ready", "\n".join([problem, *lines]))

    def _reload(self, live: LiveGateway) -> None:
        gateway = self.gateway
        if live.told is None or live.told.status != 200:
            self._wait()
        began = self.world.clock()
        differences = self._take_turns()
        if not differences:
            return
        self._restore(live)
        for name in gateway.instances:
            self._hang_up(name)
        raise GatewayFailed(
            "gateway_reload_failed",
            f"The gateway on {gateway.host} did not take the new configuration within "
            f"{self.world.clock() - began:.0f} s: {_said(differences)}. The files before are put back and read again.",
        )

    def _take_turns(self) -> list[Difference]:
        """Every instance reads its files, one after another; what differs at the end."""
        if not self.gateway.front_image:
            self._hang_up(self.gateway.container)
            return self._until_as_wanted(reloads=self.gateway.container)
        for name in self.gateway.instances:
            # A worker that leaves closes the connections on which it has read nothing yet, so it must get none.
            with self._out_of_use(name):
                self._hang_up(name)
                differences = self._until_as_wanted(name, reloads=name)
            if differences:
                return differences
            self._until_used(name)
        return []

    def _hang_up(self, instance: str) -> None:
        # Not `docker kill --signal HUP`: after that Docker 20.10 takes the container for stopped on purpose, and a
        # later crash stays down.
        words = ["docker", "exec", instance, "sh", "-c", "kill -HUP 1"]
        done = self.world.run(words, together=True)
        if not done.ok:
            raise GatewayFailed("gateway_reload_failed", f"{self.gateway.host}: {done.output.strip()[-500:]}")

    def _until_as_wanted(self, instance: str = "", reloads: str = "") -> list[Difference]:
        """Wait until every answer (of one instance) is as planned, twice in a row; what still differs at the end.

        ``reloads`` is the container that was asked to reload. uvicorn starts a new worker, lets the old one finish its
        requests, and only then turns to the next. It gives up, with a line in its log, when a new one dies or is slow.
        """
        gateway, clock = self.gateway, self.world.clock
        began = looked = since = clock()
        deadline, latest = began + gateway.timeout, began + gateway.timeout + gateway.workers * gateway.drain_seconds
        workers: set[int] = set()
        in_a_row = asked_again = 0
        differences: list[Difference] = []
        while clock() < deadline:
            told = tell(gateway, self.world.fetch, url=self._address(instance) if instance else "")
            differences = gateway_files.differing(gateway, told)
            in_a_row = 0 if differences else in_a_row + 1
            if in_a_row == 2:
                return []
            before, workers, now = workers, self._workers(reloads) if reloads else set(), clock()
            since = since if workers == before else now
            if len(workers) > gateway.workers:
                if gateway_files.some_as_wanted(gateway, told):
                    deadline = min(deadline + now - looked, latest)  # a long answer of an old worker is no failure
            elif workers and differences and now - since >= REST_SECONDS and asked_again < ASKED_AGAIN:
                self._hang_up(reloads)
                asked_again, since = asked_again + 1, now
            looked = now
            self.world.sleep(POLL_SECONDS)
        return differences or [Difference(gateway_files.PROJECT, "answers", "as planned", "now and then", "reload")]

    def _workers(self, instance: str) -> set[int]:
        return {number for number, line in self.world.engine.processes(instance) if WORKER in line}

    def _until_ready(self) -> bool:
        deadline = self.world.clock() + self.gateway.timeout
        while self.world.clock() < deadline:
            if tell(self.gateway, self.world.fetch, 1).status == 200:
                return True
            self.world.sleep(POLL_SECONDS)
        return False

    def _drain(self) -> list[str]:
        """Wait until the engines of blocked routes have no request left; a warning for each that still has some."""
        world, limit = self.world, self.orders.drain_seconds
        busy = draining.until_idle(self.orders.drained, limit, world.fetch, world.clock, world.sleep)
        return [f"{url} still has requests after {limit} s." for url in busy]


def _said(differences: Sequence[Difference]) -> str:
    return "; ".join(f"{each.item} is {each.have}, not {each.want}" for each in differences[:4])


def _shown(file: Optional[LiveFile], secret: bool) -> str:
    if file is None:
        return ""
    return drift.NOT_SHOWN + "\n" if secret else file.content


def _number(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None


# --- asking through the gateway -------------------------------------------------------------------------------------


def ask(gateway: RenderedGateway, world: World) -> tuple[list[dict[str, Any]], list[str]]:
    """(what came of every name and every refusal, warnings). A wrong answer is compared with the engine's own."""
    seed = world.seed()
    results: list[dict[str, Any]] = []
    warnings: list[str] = []
    for asked in gateway.asked:
        result = _ask_name(gateway, asked, seed, world.fetch)
        if result["code"] == "engine_not_answering":
            warnings.append(f"{result['name']}: {result['message']}")
        results.append(result)
    return [*results, *_refusals(gateway, world.fetch)], warnings


def _ask_name(gateway: RenderedGateway, asked: Asked, seed: int, fetch: Fetch) -> dict[str, Any]:
    seen: list[str] = []

    def watched(method: str, url: str, *rest: Any, **more: Any) -> HttpAnswer:
        got = fetch(method, url, *rest, **more)
        seen.append(got.headers.get("x-litellm-model-id", ""))
        return got

    verdicts = asker.ask(
        f"{gateway.url}{asked.path}", asked.name, asked.asks, seed=seed, api_key=gateway.master_key, fetch=watched
    )
    route = next((name for name in reversed(seen) if name), asked.path)
    strangers = sorted({name for name in seen if name} - set(asked.route_ids))
    result = {"name": asked.name, "alias_of": asked.alias_of, "route": route, **conclude(verdicts)}
    result["questions"] = [each["question"] for each in verdicts]
    if asked.route_ids and set(strangers) - set(asked.stand_ins):
        code = "gateway_wrong_group"
        message = f"is answered by {', '.join(strangers)}, which is no route of it ({', '.join(asked.route_ids)})."
        return {**result, "passed": False, "code": code, "message": message, "remedy": REMEDIES[code]}
    if not result["passed"]:
        return _against_the_engine(gateway, asked, seed, fetch, result, verdicts)
    if strangers and asked.route_ids:
        # Right answers of somebody else: the one that was asked for is away.
        message = f"is answered by {', '.join(strangers)} instead of {', '.join(asked.route_ids)}."
        result.update(passed=True, code="engine_not_answering", message=message)
    return result


def _against_the_engine(
    gateway: RenderedGateway,
    asked: Asked,
    seed: int,
    fetch: Fetch,
    result: dict[str, Any],
    through: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The same questions to the engines themselves: is it the gateway, or who is behind it?"""
    wrong = next(each for each in through if not each["passed"])
    for route in gateway.routes:
        if route.id not in asked.route_ids:
            continue
        model = asked.alias_of or asked.name
        one = {**asked.asks, "checks": [], "questions": [wrong["question"]]}
        if wrong["question"].startswith("check"):
            one = dict(asked.asks)
        direct = asker.ask(route.url, model, one, seed=seed, api_key=route.api_key, fetch=fetch)
        if all(each["passed"] for each in direct):
            code = _lost(str(wrong["question"]))
            message = (
                f"{wrong['ask']} is answered right by {route.id} itself ({direct[-1]['answer']}) and wrong through the "
                f"gateway ({wrong['answer'] or wrong['detail'] or wrong['code']})."
            )
            return {**result, "code": code, "message": message, "remedy": REMEDIES[code]}
        if direct[0]["code"] != "no_connection":
            return result  # the engine's own trouble, under its own code
    if asked.route_ids:
        message = (
            f"no engine of {asked.name} answers ({', '.join(asked.route_ids)}); the gateway itself is in order. Where "
            f"the engine answers on its own host, that host keeps {gateway.host} away: say where it comes from by "
            "addresses of its fleet_gateway, or by vllm_stack_reach."
        )
        return {**result, "passed": True, "code": "engine_not_answering", "message": message}
    return result


REMEDIES = {
    "gateway_wrong_group": "Look at model_group_alias and fallbacks in config.yaml, and at rows in LiteLLM's database.",
    "gateway_picture_dropped": "The gateway loses pictures: see the request in the engine's log; pin another release.",
    "gateway_reasoning_lost": "Clients of this gateway do not get the reasoning: pin another LiteLLM release.",
    "gateway_parameter_swallowed": "drop_params takes away what the engine knows: pin another LiteLLM release.",
    "gateway_answer_differs": "Ask again with vllm_smoke against both addresses, and compare.",
}


def _lost(question: str) -> str:
    if question.startswith(("image", "video")):
        return "gateway_picture_dropped"
    if question == "thinking_on":
        return "gateway_reasoning_lost"
    if question.startswith(("tool", "structured", "thinking_off")):  # which is a parameter too
        return "gateway_parameter_swallowed"
    return "gateway_answer_differs"


def _refusals(gateway: RenderedGateway, fetch: Fetch) -> list[dict[str, Any]]:
    """What must not work."""
    listing = f"{gateway.url}/v1/models"
    results = [
        _refused("no key", "gateway_open", fetch("GET", listing, timeout=HTTP_SECONDS), (401,)),
        _refused("wrong key", "gateway_open", fetch("GET", listing, None, _bearer(WRONG_KEY), HTTP_SECONDS), (401,)),
    ]
    chat = f"{gateway.url}/v1/chat/completions"

    def chatted(model: str, words: str, key: str) -> HttpAnswer:
        body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": words}]}
        return fetch("POST", chat, body, _bearer(key), 60.0)

    unknown = chatted(NO_MODEL, "hi", gateway.master_key)
    results.append(_refused("unknown model", "gateway_unknown_model_answered", unknown, (400, 404)))
    for client in gateway.clients:
        others = [each.name for each in gateway.asked if each.route_ids and not each.alias_of]
        barred = [name for name in others if client["models"] and name not in client["models"]]
        known = fetch("GET", listing, None, _bearer(client["key"]), HTTP_SECONDS)
        results.append(_refused(f"key of {client['name']}", "gateway_key_refused", known, (200,)))
        if barred:
            refused = chatted(barred[0], "hi", client["key"])
            name = f"key of {client['name']} for {barred[0]}"
            results.append(_refused(name, "gateway_key_too_wide", refused, (401, 403)))
    model, length = gateway.smallest_context
    if model and model not in gateway.replaced_on_overflow:
        long = chatted(model, "word " * (length + 100), gateway.master_key)
        # 500: no engine is there to say it.
        results.append(_refused(f"too long for {model}", "gateway_overflow_answered", long, (400, 413, 429, 500, 503)))
    return results


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _refused(name: str, code: str, got: HttpAnswer, right: Sequence[int]) -> dict[str, Any]:
    passed = got.status in right
    wanted = " or ".join(map(str, right[:2]))
    said = f"HTTP {got.status}" if got.status else got.error
    return {
        "name": name,
        "alias_of": "",
        "route": "",
        "passed": passed,
        "code": "passed" if passed else code,
        "message": f"{said}, as it must be." if passed else f"{said}, where HTTP {wanted} is right.",
        "remedy": "" if passed else "Look at general_settings.custom_auth in config.yaml and at the gateway's log.",
    }
