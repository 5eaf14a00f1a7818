# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries a rollout out: looks at all stacks of a host, and brings those that differ to where they answer.

It may be killed at any moment. What is true is never remembered, it is looked at again: the next run compares and goes
on from there. The only thing kept is the proof (receipt) and the set to put back (last good).
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import dataclass, field, fields, replace
from typing import Any, Callable, Mapping, Optional, Sequence

from ..fleet import drift, engine_log, readiness, receipt, rollout_steps, weights
from ..fleet.budget import Holder
from ..fleet.diagnosis import FATAL, diagnose
from ..fleet.drift import Difference, Endpoint
from ..fleet.gpus import Card
from ..fleet.rendered import LABEL_HASH, LABEL_STACK, RenderedStack
from ..fleet.units import unit_name
from ..fleet.verdict import conclude
from . import compose_cli, draining, files
from . import weights as hub
from .docker_engine import EngineError
from .live import Looked, Orders, View, endpoint, look, runs
from .nvidia_smi import Report
from .processes import container_of

POLL_SECONDS = 0.5
LAST_WORDS_SECONDS = 3.0  # what an engine wrote comes through Docker, and so after the answer that it died of
ANSWER_SECONDS = 60.0  # an engine that says it is ready and lets a short question wait for so long hangs
FAILED_STOP_SECONDS = 5
DRAIN_SECONDS = 60.0  # the driver gives the memory of an ended process back within seconds
STILL_SECONDS = 1.0
STILL_LIMIT_SECONDS = 15.0
GPU_LOCKS = "/run/modelfleet"
HOST = ""  # in reports: not one stack, the host
HANDOVER_SECONDS = 3600.0  # another host's replica of the same model may have to come back first


@dataclass(frozen=True)
class World(View):
    """Everything a rollout touches. Tests give other clocks and other hosts."""

    memory: Callable[[bool], Report]  # True: with the processes that hold it
    ask: Callable[..., list[dict[str, Any]]]
    report: Callable[[str, str, str], None]  # stack, phase, text for a person
    seed: Callable[[], int]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    compose: Any = compose_cli
    fetch_weights: Callable[..., dict[str, Any]] = hub.fetch
    # What the controller has answered about a stack that is to go: an empty text for nothing yet, None when it is gone.
    released: Callable[[str], Optional[str]] = lambda stack: None
    gpu_locks: str = GPU_LOCKS


@dataclass
class Outcome:
    """What became of one stack."""

    name: str
    differences: tuple[Difference, ...] = ()
    changed: bool = False
    ended: str = "unchanged"  # unchanged, written, ready, put_back, stopped, not_touched, removed, reported
    seconds: float = 0.0
    phases: list[tuple[str, float]] = field(default_factory=list)
    receipt: Optional[dict[str, Any]] = None
    failure: Optional[dict[str, Any]] = None

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "changed": self.changed,
            "differences": [difference.as_dict() for difference in self.differences],
            "ended": self.ended,
            "seconds": round(self.seconds, 1),
            "phases": [{"phase": phase, "at": round(at, 1)} for phase, at in self.phases],
        }
        if self.receipt is not None:
            plain["receipt"] = {**self.receipt, "answers": receipt.brief(self.receipt.get("answers") or ())}
            plain["receipt"].pop("options", None)
        if self.failure is not None:
            plain["failure"] = self.failure
        return plain


class StackFailed(Exception):
    """A gate was not passed."""

    def __init__(
        self,
        code: str,
        what: str,
        why: str = "",
        change: str = "",
        lines: Sequence[str] = (),
        retryable: bool = False,
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(what)
        self.retryable = retryable
        self.answers: list[Mapping[str, Any]] = list(answers)
        self.fact = {"code": code, "what": what, "why": why, "change": change, "lines": list(lines)[:6]}


class Rollout:
    """One run over all stacks of one host. ``run`` is called once."""

    def __init__(self, stacks: Sequence[RenderedStack], orders: Orders, world: World) -> None:
        self.stacks = {stack.name: stack for stack in sorted(stacks, key=lambda stack: stack.position)}
        self.orders = orders
        self.world = world
        self.ports: tuple[Difference, ...] = ()  # what was set of who may reach the engines
        self.handed: set[str] = set()  # stacks that gateways were asked not to use

    def run(self) -> dict[str, Outcome]:
        """Do what differs; an outcome for each stack, and for each container that no stack knows."""
        lock = os.path.join(self.orders.root, files.STATE, "lock")

        def waiting(holder: str) -> None:
            self.world.report(HOST, "waiting", f"another rollout of this host is running ({holder}); waiting for it")

        with files.lock(lock, waiting):
            looked = look(list(self.stacks.values()), self.orders, self.world)
            outcomes = {name: Outcome(name, looked.differences[name]) for name in self.stacks}
            outcomes.update(self._extra(looked))
            self._set_ports(looked)
            barred = self._pull(looked)
            barred.update(self._fetch_weights(looked, barred))
            self._free_moved(looked, barred)
            self._chains(looked, outcomes, barred)
            adopted = [name for name, one in outcomes.items() if one.ended in ("ready", "put_back", "written")]
            cared = [name for name in adopted if self.stacks[name].unit]
            for name in self.world.units.not_active(cared, self.world.sleep):
                self.world.report(name, "unit", f"its unit is not active: systemctl status {unit_name(name)}")
            return outcomes

    # --- before the chains -----------------------------------------------------------------------------------------

    def _extra(self, looked: Looked) -> dict[str, Outcome]:
        """Stacks that left the inventory: removed when asked to, and their GPU free before anything starts."""
        outcomes = {}
        for difference in looked.extra:
            outcome = outcomes[difference.stack] = Outcome(difference.stack, (difference,), ended="reported")
            if difference.action != drift.REMOVE:
                continue
            self.world.report(difference.stack, "removing", "not in the inventory any more: stopping and removing")
            self.world.units.remove(difference.stack)
            outcome.changed, outcome.ended = True, "removed"
            container = looked.extra_containers.get(difference.stack)
            if container is None:
                continue
            directory = container["Config"]["Labels"].get("com.docker.compose.project.working_dir", "")
            ours = os.path.dirname(directory) == self.orders.root.rstrip("/") and os.path.isdir(directory)
            if ours:
                self.world.compose.down(directory)
            self.world.engine.remove(container["Id"])
            if ours:
                stamp = _stamp(self.world.wall())
                target = os.path.join(self.orders.root, files.STATE, "archive", f"{difference.stack}-{stamp}")
                files.archive(directory, target)
        return outcomes

    def _set_ports(self, looked: Looked) -> None:
        """Before an engine starts, so that nobody reaches it who should not."""
        if looked.ports:
            self.world.firewall.apply(looked.reach)
            self.ports = looked.ports
            self.world.report(HOST, "ports", f"engine ports: {looked.reach.says}")

    def _pull(self, looked: Looked) -> dict[str, StackFailed]:
        """All images, before the first container is stopped. Stacks whose image could not be had, and why."""
        wanted: dict[str, list[str]] = {}
        for name, stack in self.stacks.items():
            if looked.step(name) in rollout_steps.STARTS and looked.live[name].wanted_image is None:
                wanted.setdefault(stack.image, []).append(name)
        failed = {}
        for reference, names in wanted.items():
            shown = -1

            def progress(percent: int, names: list[str] = names) -> None:
                nonlocal shown
                if percent // 20 > shown // 20:
                    shown = percent
                    self.world.report(", ".join(names), "pulling", f"pulling {percent} %")

            try:
                progress(0)
                self.world.engine.pull(reference, progress)
            except EngineError as error:
                explained = self._explained(
                    str(error).splitlines(),
                    StackFailed("pull_failed", f"image {reference} could not be pulled: {error}"),
                )
                failed.update(dict.fromkeys(names, explained))
        return failed

    def _fetch_weights(self, looked: Looked, barred: Mapping[str, StackFailed]) -> dict[str, StackFailed]:
        """What the engines will load from the hub, while what they replace still serves."""
        failed: dict[str, StackFailed] = {}
        if not self.orders.prefetch:
            return failed
        # What only stands still loads what it loaded before; a hub that is down must not keep it from that.
        new = (drift.RECREATE, drift.CREATE)
        starting = [name for name in self.stacks if looked.step(name) in new and name not in barred]
        for one in weights.wanted([self.stacks[name] for name in starting]):
            shown = -1
            names = ", ".join(one.stacks)

            def tell(event: dict[str, Any], one: weights.Wanted = one, names: str = names) -> None:
                nonlocal shown
                if event["event"] == "size" and event["missing"]:
                    self.world.report(names, "fetching", weights.told(one, event))
                elif event["event"] == "progress" and weights.percent(event) // 10 > shown // 10:
                    shown = weights.percent(event)
                    self.world.report(names, "fetching", weights.told(one, event))

            files.make_folder(one.cache, self.stacks[one.stacks[0]].folders.get(one.cache, "0755"), one.user)
            last = self.world.fetch_weights(one, tell)
            if last["event"] in ("done", "no_library"):
                self.world.report(names, "fetched", weights.told(one, last))
            elif last["event"] == "no_space":
                problem = weights.no_space(one, last, self.orders.host)
                failed.update(dict.fromkeys(one.stacks, StackFailed(**problem)))
            else:
                ours = StackFailed(**weights.failed(one, last["text"]))
                known = self._explained(last["text"].splitlines(), ours)
                failed.update(dict.fromkeys(one.stacks, ours if known.fact["code"] == "unknown_failure" else known))
        return failed

    def _free_moved(self, looked: Looked, barred: Mapping[str, StackFailed]) -> None:
        """A stack that changes its GPU leaves the old one first: another may be about to start there."""
        for name, stack in self.stacks.items():
            items = {difference.item for difference in looked.differences[name]}
            container = looked.live[name].container
            moves = items & {"devices", "environment NVIDIA_VISIBLE_DEVICES"}
            if moves and runs(container) and container is not None and name not in barred:
                before = ", ".join(drift.gpus_of(container)) or "none"
                now = ", ".join(str(gpu) for gpu in stack.gpus) or "none"
                self.hand_over(name)
                self.world.report(name, "stopping", f"stopping: moves from GPU {before} to GPU {now}")
                self.world.units.stop(name)
                self.world.engine.stop(container["Id"])

    def hand_over(self, name: str) -> None:
        """Before a running engine stops: nobody new is sent to it, and it finishes what it has. Both are bounded."""
        world, stack = self.world, self.stacks[name]
        if name not in self.orders.routed or name in self.handed or not runs(world.engine.container(stack.container)):
            return
        self.handed.add(name)
        world.report(name, rollout_steps.HANDOVER, "asking the gateways to send it no more requests")
        deadline = world.clock() + HANDOVER_SECONDS
        answer: Optional[str] = ""
        while answer == "" and world.clock() < deadline:
            world.sleep(POLL_SECONDS)
            answer = world.released(name)
        if answer == rollout_steps.LEFT:
            return  # it gets requests to the end, so it never has none
        if answer != rollout_steps.BLOCKED:
            world.report(name, "draining", "[WARNING] a gateway was not told: requests may fail while it is away")
            return
        world.report(name, "draining", "finishing the requests it has")
        if draining.until_idle([stack.url], self.orders.drain_seconds, world.fetch, world.clock, world.sleep):
            limit = self.orders.drain_seconds
            world.report(name, "draining", f"[WARNING] still has requests after {limit} s: they are cut off")

    # --- the chains ------------------------------------------------------------------------------------------------

    def _chains(self, looked: Looked, outcomes: dict[str, Outcome], barred: Mapping[str, StackFailed]) -> None:
        waits = rollout_steps.waits_for(list(self.stacks.values()))
        begun: set[str] = set()
        ended: set[str] = set()
        turn = threading.Condition()
        broken: list[BaseException] = []

        def work(name: str) -> None:
            try:
                _OneStack(self, self.stacks[name], looked, outcomes[name]).roll(barred.get(name))
            except BaseException as error:  # a defect of ours must end the run, not hang it
                broken.append(error)
            with turn:
                ended.add(name)
                turn.notify()

        with turn:
            while len(ended) < len(waits):
                for name in rollout_steps.startable(waits, ended, begun):
                    begun.add(name)
                    if looked.step(name) == drift.NOTHING:
                        ended.add(name)
                    else:
                        threading.Thread(target=work, args=(name,), daemon=True).start()
                if begun - ended:
                    turn.wait()
        if broken:
            raise broken[0]

    def _explained(self, lines: Sequence[str], otherwise: StackFailed) -> StackFailed:
        """The failure as the table of known failures explains these lines, or as it is."""
        found = [one for one in diagnose(list(lines)) if one.severity == FATAL]
        if not found:
            return otherwise
        first = found[0]
        return StackFailed(
            first.code, first.line or str(otherwise), first.cause, first.remedy, first.lines, first.retryable
        )


class _OneStack:
    """One stack on its way: write, stop, start, ready, answers; or back."""

    def __init__(self, rollout: Rollout, stack: RenderedStack, looked: Looked, outcome: Outcome) -> None:
        self.rollout = rollout
        self.orders = rollout.orders
        self.world = rollout.world
        self.stack = stack
        self.live = looked.live[stack.name]
        self.looked = looked
        self.outcome = outcome
        self.began = self.world.clock()
        self.free_before: dict[int, Optional[int]] = {}  # MiB of each card, before the start
        self.foreign: Optional[Mapping[str, Any]] = None  # a container that had our name and was not ours

    def roll(self, barred: Optional[StackFailed]) -> None:
        """``barred``: why it must not be begun, for want of its image or its weights."""
        outcome, step = self.outcome, self.looked.step(self.stack.name)
        try:
            if barred is not None and step in rollout_steps.STARTS:
                outcome.failure, outcome.ended = {**barred.fact, "seconds": 0.0}, "not_touched"
                return
            outcome.changed = True
            if step in (drift.WRITE, drift.ADOPT):
                self._write(self.stack)
                self._adopt(self.stack)
                outcome.ended = "written"
                return
            if step in rollout_steps.STARTS:
                self.rollout.hand_over(self.stack.name)
                self.world.units.stop(self.stack.name)  # it may hold the lock, waiting for what we replace
            with files.gpu_locks(self.world.gpu_locks, self.stack.gpus):
                try:
                    outcome.receipt = self._with_retries(step)
                    outcome.ended = "ready"
                except StackFailed as failure:
                    self._fail(failure)
            if outcome.ended in ("ready", "put_back") and self.stack.name in self.orders.routed:
                self.world.report(self.stack.name, rollout_steps.BACK, "the gateways may use it again")
            if self._followed():
                self._settle()
        finally:
            outcome.seconds = self.world.clock() - self.began

    def _report(self, phase: str, text: str) -> None:
        if not self.outcome.phases or self.outcome.phases[-1][0] != phase:
            self.outcome.phases.append((phase, self.world.clock() - self.began))
        self.world.report(self.stack.name, phase, text)

    def _with_retries(self, step: str) -> dict[str, Any]:
        for attempt in range(self.orders.retries + 1):
            try:
                return self._bring(self.stack, step, self.live.receipt)
            except StackFailed as failure:
                if not failure.retryable or attempt == self.orders.retries:
                    raise
                self._keep(self.stack, failure)
                self._report("retrying", f"{failure} [{failure.fact['code']}]; this may pass: trying once more")
                step = drift.RECREATE
        raise AssertionError("the loop returns or raises")

    def _bring(self, stack: RenderedStack, step: str, before: Optional[Mapping[str, Any]]) -> dict[str, Any]:
        """From the files to the proof. Raises StackFailed at the first gate that is not passed."""
        self._write(stack)
        since = drift.started_at(self.live.container) if self.live.container else None
        if step in rollout_steps.STARTS:
            self._clear(stack, step)
            self._make_room(stack)
            self.free_before = {card.index: card.free_mib for card in self._cards(stack)}
            since = self.world.wall()
            self._report("starting", "starting")
            started = self.world.compose.up(stack.directory)
            if not started.ok:
                lines = started.output.splitlines()
                raise self.rollout._explained(
                    lines,
                    StackFailed("compose_failed", "docker compose up failed", "", "read its last lines", lines[-4:]),
                )
        restarts = 0 if step in rollout_steps.STARTS else (self.live.container or {}).get("RestartCount") or 0
        lines = self._wait_ready(stack, since or 0.0, restarts)
        answers = self._ask(stack, since or 0.0)
        engine = engine_log.facts(lines)
        less = receipt.kv_shortfall(stack, engine, before)
        if less is not None:
            raise StackFailed(answers=answers, **less)
        proof = self._proved(stack, engine, answers)
        self._adopt(stack)
        return proof

    def _adopt(self, stack: RenderedStack) -> None:
        """From now on the stack's unit cares for it."""
        if stack.unit:
            self.world.units.adopt(stack.name, stack.directory, stack.unit)
        else:
            self.world.units.release(stack.name)

    def _write(self, stack: RenderedStack) -> None:
        files.clean(stack.directory)
        for folder, mode in stack.folders.items():
            files.make_folder(folder, mode, str(stack.service_definition.get("user", "")))
        names = (*drift.MANAGED, *drift.UNWANTED)
        there = files.read(stack.directory, names)
        composed = [file.content for name, file in there.items() if "compose" in name]
        if composed and not any(LABEL_HASH in content for content in composed):
            files.keep_before(stack.directory, names)
        for name, wanted in stack.files.items():
            live = there.get(name)
            if live is None or (live.content, live.mode) != (wanted.content, wanted.mode):
                files.write(os.path.join(stack.directory, name), wanted.content, wanted.mode)
        for name in set(there) - set(stack.files):
            os.unlink(os.path.join(stack.directory, name))

    def _clear(self, stack: RenderedStack, step: str) -> None:
        """Nothing of the old may be left: never two containers of one stack, never two engines on its memory."""
        engine = self.world.engine
        self.world.units.stop(stack.name)
        labelled = [one for one in engine.ours() if one["Config"]["Labels"].get(LABEL_STACK) == stack.name]
        named = engine.container(stack.container)
        old = {one["Id"]: one for one in [*labelled, *([named] if named else [])]}
        if step == drift.START and len(old) == 1 and named:
            return  # it only stands still
        if old:
            self._report("stopping", "stopping the old container")
        for identity, container in old.items():
            engine.stop(identity)
            labels = container["Config"]["Labels"] or {}
            if LABEL_STACK in labels or labels.get("com.docker.compose.project") == stack.name:
                engine.remove(identity)
            else:  # somebody made it by hand: out of the way, but not lost
                self.foreign = container
                engine.restart_policy(identity, {"Name": "no"})
                engine.rename(identity, f"{stack.container}-before-modelfleet-{_stamp(self.world.wall())}")

    def _make_room(self, stack: RenderedStack) -> None:
        """Wait until the cards have the memory that the engine demands at its start; refuse when they never will.

        When the memory is held by stacks later in the chain that will be replaced anyway, those are stopped now.
        """
        if not stack.gpus:
            return
        deadline = self.world.clock() + DRAIN_SECONDS
        moved_at, before = self.world.clock(), self._cards(stack)
        told = False
        while True:
            cards = self._cards(stack)
            verdict = rollout_steps.room(stack, cards, {})
            now = self.world.clock()
            if verdict is None or verdict.fits:
                return
            if not told:
                self._report("waiting for memory", f"waiting for GPU memory: {verdict.arithmetic}")
                told = True
            if not rollout_steps.still(before, cards):
                moved_at, before = now, cards
            if now - moved_at > 3.0 or now > deadline:
                if self._stop_later(stack):
                    moved_at = self.world.clock()
                    continue
                break
            self.world.sleep(POLL_SECONDS)
        report = self.world.memory(True)
        verdict = rollout_steps.room(stack, report.cards, self._owners(report.cards)) or verdict
        raise StackFailed(verdict.code, f"too little free GPU memory: {verdict.arithmetic}", "", verdict.remedy)

    def _stop_later(self, stack: RenderedStack) -> bool:
        """Stop one running stack after this one in the chain that is to be replaced; False when there is none."""
        for later in self.rollout.stacks.values():
            replaced = self.looked.step(later.name) == drift.RECREATE
            if later.position > stack.position and set(later.gpus) & set(stack.gpus) and replaced:
                container = self.world.engine.container(later.container)
                if runs(container) and container is not None:
                    self.rollout.hand_over(later.name)
                    self.world.report(later.name, "stopping", f"stopping early: {stack.name} needs its memory first")
                    self.world.units.stop(later.name)
                    self.world.engine.stop(container["Id"])
                    return True
        return False

    def _cards(self, stack: RenderedStack) -> list[Card]:
        return rollout_steps.cards_of(stack, self.world.memory(False).cards)

    def _owners(self, cards: Sequence[Card]) -> dict[int, Holder]:
        """Which container a process belongs to. An engine's process in a container that is gone is an orphan."""
        owners = {}
        for process in (process for card in cards for process in card.processes):
            identity = container_of(process.pid)
            container = self.world.engine.container(identity) if identity else None
            orphan = container is None and (bool(identity) or process.name.startswith("VLLM::"))
            labels = (container or {}).get("Config", {}).get("Labels") or {}
            owners[process.pid] = Holder(
                0,
                process.pid,
                process.name,
                str((container or {}).get("Name", "")).lstrip("/"),
                str(labels.get(LABEL_STACK, "")),
                orphan,
            )
        return owners

    def _followed(self) -> bool:
        """Whether another engine will load on one of these cards after this one."""
        return any(
            later.position > self.stack.position
            and set(later.gpus) & set(self.stack.gpus)
            and self.looked.step(later.name) in rollout_steps.STARTS
            for later in self.rollout.stacks.values()
        )

    def _settle(self) -> None:
        """The next engine of the chain measures the card when it starts: it must have come to rest."""
        deadline = self.world.clock() + STILL_LIMIT_SECONDS
        before, since = self._cards(self.stack), self.world.clock()
        while before and self.world.clock() < deadline and self.world.clock() - since < STILL_SECONDS:
            self.world.sleep(POLL_SECONDS / 2)
            now = self._cards(self.stack)
            if not rollout_steps.still(before, now):
                before, since = now, self.world.clock()

    # --- ready and answering ---------------------------------------------------------------------------------------

    def _wait_ready(self, stack: RenderedStack, since: float, restarts: int) -> list[str]:
        """Until the engine is ready; the log lines of its start. Raises as soon as it is known that it will not be.

        ``restarts``: how often Docker had started the container again before, which is nothing against this start.
        """
        started, seen = self.world.clock(), since
        state = readiness.State(restarts_before=restarts)
        weights = files.checkpoint_bytes(stack.root, stack.service_definition.get("volumes") or ())
        limit = readiness.deadline_seconds(weights, stack.timeout_s)
        wanted = readiness.Wanted(stack.served_model_name, stack.root, limit, self.orders.max_restarts)
        lines: list[str] = []
        while True:
            container = self.world.engine.container(stack.container)
            new = self.world.engine.logs(container["Id"], seen) if container else []
            seen = new[-1][0] if new else seen
            lines += [text for _moment, text in new]
            answer = endpoint(stack, self.world.fetch) if runs(container) else Endpoint()
            texts = tuple(text for _moment, text in new)
            seen_now = _observation(container, texts, answer, self.world.clock() - started)
            if container and container["RestartCount"] - restarts > self.orders.max_restarts:
                # Docker has started it again and forgotten why it ended; its events have not.
                ends = self.world.engine.ends(container["Id"], since, self.world.wall())
                code, oom = ends[0] if ends else (None, False)
                seen_now = replace(seen_now, status="restarting", exit_code=code, oom_killed=oom)
            state = readiness.observe(state, seen_now, wanted)
            if state.verdict != readiness.FAILED:
                for event in state.events:
                    # "loading weights 2/3 (66 %)" and "ready after 4 s" are the phases without their figures.
                    self._report(re.sub(r"( after)? \d.*", "", event), event)
            if state.verdict == readiness.READY:
                return lines
            if state.verdict == readiness.FAILED:
                raise StackFailed(state.code, state.reason, state.cause, state.remedy, state.lines, state.retryable)
            self.world.sleep(POLL_SECONDS)

    def _ask(self, stack: RenderedStack, since: float) -> list[dict[str, Any]]:
        if not self.orders.ask:
            return []
        self._report("asking", "asking")
        answers = self.world.ask(
            stack.url,
            stack.served_model_name,
            stack.asks,
            seed=self.world.seed(),
            api_key=stack.api_key,
            fetch=self.world.fetch,
            timeout=ANSWER_SECONDS,
        )
        verdict = conclude(answers)
        if verdict["passed"]:
            self._report("answers", verdict["message"])
            return answers
        failure = StackFailed(verdict["code"], verdict["message"], "", verdict["remedy"], (), False, answers)
        raise self._why(failure, since)

    def _why(self, failure: StackFailed, since: float) -> StackFailed:
        """A wrong answer as it is. Where the engine died of the question, its log knows more than "no connection"."""
        until = self.world.clock() + LAST_WORDS_SECONDS
        while True:
            container = self.world.engine.container(self.stack.container)
            ended = not runs(container) or (container and container["RestartCount"])
            if not ended and failure.fact["code"] not in ("engine_dead", "no_connection"):
                return failure
            log = [text for _moment, text in self.world.engine.logs(container["Id"], since)] if container else []
            explained = self.rollout._explained(log, failure)
            if explained is not failure or ended or self.world.clock() >= until:
                explained.answers = failure.answers
                return explained
            self.world.sleep(POLL_SECONDS)

    def _proved(
        self, stack: RenderedStack, engine: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        container = self.world.engine.container(stack.container)
        proof = receipt.good(
            stack,
            at=_stamp(self.world.wall()),
            seconds=self.world.clock() - self.began,
            phases=self.outcome.phases,
            image=self.world.engine.image(container["Image"]) if container else None,
            engine=engine,
            memory=[self._memory_of(card) for card in self._cards(stack)],
            asked=self.orders.ask,
            answers=answers,
        )
        kept = {name: (file.content, file.mode) for name, file in stack.files.items()}
        files.keep_last_good(stack.directory, kept, stack.as_dict())
        files.write_json(files.receipt_path(stack.directory), proof)
        files.forget_failure(stack.directory)
        self._report("answered", f"ready and answering after {self.world.clock() - self.began:.0f} s")
        return proof

    def _memory_of(self, card: Card) -> dict[str, Optional[int]]:
        """What the card holds now, and what this start took of it; MiB, None where nobody measured."""
        before = self.free_before.get(card.index)
        took = None if before is None or card.free_mib is None else before - card.free_mib
        return {"gpu": card.index, "used_mib": card.used_mib, "free_mib": card.free_mib, "took_mib": took}

    # --- when it failed --------------------------------------------------------------------------------------------

    def _fail(self, failure: StackFailed) -> None:
        outcome, stack = self.outcome, self.stack
        seconds = self.world.clock() - self.began
        self._report("failed", f"{failure} [{failure.fact['code']}]")
        kept = self._keep(stack, failure)
        good = files.last_good(stack.directory)
        if good is not None and good.get("hash") != stack.hash:
            ended, text = self._put_back(_restored(good, stack))
        elif good is None and self._put_back_foreign(stack):
            ended, text = "put_back", "put back to what ran here before by hand; that is started, but not asked"
        else:
            self._stop(stack)
            ended = "stopped"
            which = "its first deployment" if good is None else "the last good configuration"
            freed = ", its GPU is free" if stack.gpus else ""
            text = f"stopped{freed}: there is nothing to put back, this is {which}"
        outcome.ended = ended
        outcome.failure = {**failure.fact, "seconds": round(seconds, 1), "kept": kept, "after": text}
        files.write_json(
            files.failure_path(stack.directory),
            receipt.failed(
                stack,
                at=_stamp(self.world.wall()),
                seconds=seconds,
                phases=outcome.phases,
                failure=failure.fact,
                kept=kept,
                ended=ended,
            ),
        )

    def _put_back(self, good: RenderedStack) -> tuple[str, str]:
        self._report("putting back", "putting back the last good configuration")
        try:
            self.outcome.receipt = self._bring(good, drift.RECREATE, None)
        except StackFailed as again:
            self._keep(good, again)
            self._stop(good)
            return "stopped", f"stopped: put back to its last good configuration, which fails too: {again}"
        return "put_back", "put back to its last good configuration, which is running and answers"

    def _put_back_foreign(self, stack: RenderedStack) -> bool:
        """Start again what somebody had made by hand here before us; False when there was nothing."""
        engine = self.world.engine
        ours = engine.container(stack.container)
        by_hand = self.foreign is not None or os.path.isdir(os.path.join(stack.directory, files.STATE, "before"))
        if not by_hand:
            return False
        self._report("putting back", "putting back what ran here before")
        self.world.units.remove(stack.name)
        if ours:
            engine.stop(ours["Id"])
            engine.remove(ours["Id"])
        restored = files.restore_before(stack.directory, (*drift.MANAGED, *drift.UNWANTED))
        if self.foreign is not None:
            engine.rename(self.foreign["Id"], stack.container)
            engine.restart_policy(self.foreign["Id"], self.foreign["HostConfig"]["RestartPolicy"])
            engine.start(self.foreign["Id"])
            return True
        return restored and bool(self.world.compose.up(stack.directory).ok)

    def _stop(self, stack: RenderedStack) -> None:
        self.world.units.release(stack.name)  # nothing may start it again
        # What failed has no requests to finish: it gets no long grace.
        self.world.engine.stop(stack.container, FAILED_STOP_SECONDS)
        self._report("stopped", "stopped")

    def _keep(self, stack: RenderedStack, failure: StackFailed) -> str:
        """Files, log and answers of the attempt, for a person to look at later."""
        container = self.world.engine.container(stack.container)
        log = self.world.engine.logs(container["Id"]) if container else []
        kept = {name: (file.content, file.mode) for name, file in stack.files.items() if not file.secret}
        kept["container.log"] = ("".join(f"{text}\n" for _moment, text in log), "0600")
        kept["failure.json"] = (json.dumps(failure.fact, indent=2) + "\n", "0600")
        kept["answers.json"] = (json.dumps(failure.answers, indent=2) + "\n", "0600")
        return files.keep_failed(stack.directory, _stamp(self.world.wall()), kept)


def _restored(good: Mapping[str, Any], stack: RenderedStack) -> RenderedStack:
    """The last good stack. An older release may have kept other fields; what it lacks is as it is now."""
    known = {each.name for each in fields(RenderedStack)}
    kept = {name: value for name, value in good.items() if name in known}
    return RenderedStack.from_dict({**stack.as_dict(), **kept})


def _observation(
    container: Optional[Mapping[str, Any]], lines: Sequence[str], answer: Endpoint, elapsed: float
) -> readiness.Observation:
    state = (container or {}).get("State") or {}
    return readiness.Observation(
        status=state.get("Status", "missing"),
        exit_code=state.get("ExitCode"),
        oom_killed=bool(state.get("OOMKilled")),
        restart_count=(container or {}).get("RestartCount") or 0,
        started_at=state.get("StartedAt", ""),
        health=(state.get("Health") or {}).get("Status", ""),
        lines=tuple(lines),
        http_health=answer.health,
        http_models=answer.models_status,
        models=answer.models,
        elapsed=elapsed,
    )


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime(seconds))
