# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the fleet to what will run where and in which order, or to all that cannot work, before a host is touched.

Findings are what the inventory alone can decide. A large fleet repeats the same few recipes (a model with its
options, environment and image) on thousands of cards, so each recipe is judged once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Mapping, Optional, Sequence

from . import budget, gateway_files, known_problems, options, routes
from .compose import StackSettings, contradictions
from .errors import ERROR, WARNING, Finding, FleetError, errors
from .model import Fleet, Gateway, Gpu, Host, Image, Stack
from .sizes import format_size

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
PLACEHOLDER = "placeholder"
SECRET_NAME = re.compile(r"(^|_)(TOKEN|PASSWORD|SECRET|API_KEY|ACCESS_KEY|CREDENTIALS?)$")


@dataclass(frozen=True)
class PlanDefaults:
    """What the inventory does not say and the plan has to assume."""

    reserved_share: float = budget.RESERVED_SHARE  # of memory.total, until somebody has looked at the card
    allow_placeholders: bool = False  # a secret that starts with "placeholder" is enough to look, not to deploy
    settings: StackSettings = field(default_factory=StackSettings)


@dataclass(frozen=True)
class HostPlan:
    """One host: its stacks in inventory order, and per GPU the names that start one after another."""

    host: str
    stacks: tuple[Stack, ...]
    chains: Mapping[int, tuple[str, ...]]

    def predecessors(self, stack: str) -> tuple[str, ...]:
        """The stacks that must be ready before this one starts: the one before it on each of its GPUs."""
        before = [
            chain[chain.index(stack) - 1] for chain in self.chains.values() if stack in chain and chain[0] != stack
        ]
        return tuple(dict.fromkeys(before))


@dataclass(frozen=True)
class FleetPlan:
    fleet: Fleet
    findings: tuple[Finding, ...]
    hosts: Mapping[str, HostPlan]

    @property
    def refused(self) -> bool:
        return bool(errors(self.findings))

    def raise_if_refused(self) -> None:
        """FleetError with every error; warnings stay in ``findings``."""
        if self.refused:
            raise FleetError(errors(self.findings))


def make(fleet: Fleet, *, defaults: PlanDefaults = PlanDefaults()) -> FleetPlan:
    """Judge the whole fleet at once. Never raises: the findings say what is refused."""
    planner = _Planner(defaults)
    hosts = {host.name: planner.host(host) for host in fleet.hosts.values()}
    planner.shared(fleet)
    for gateway in fleet.gateways.values():
        planner.gateway(gateway, fleet)
    return FleetPlan(fleet, tuple(planner.findings.values()), hosts)


class _Planner:
    def __init__(self, defaults: PlanDefaults) -> None:
        self.defaults = defaults
        self.findings: dict[tuple[str, str, str], Finding] = {}  # one of a kind for each place
        self._recipes: set[tuple[int, ...]] = set()
        self._cards: set[tuple[int, int, int, int, str]] = set()
        self._parallel: dict[int, Optional[int]] = {}
        self._users: dict[int, tuple[Image, list[str]]] = {}
        self._replicas: dict[str, list[Stack]] = {}

    def add(self, code: str, place: str, problem: str, remedy: str, stack: Optional[Stack] = None, **more: str) -> None:
        host, name = (stack.host, stack.name) if stack else (None, None)
        finding = Finding(code, place, problem, remedy, host=host, stack=name)
        self.findings.setdefault((code, place, problem), replace(finding, **more) if more else finding)

    def warn(self, code: str, place: str, problem: str, remedy: str, stack: Optional[Stack] = None) -> None:
        self.add(code, place, problem, remedy, stack, severity=WARNING)

    # --- one host

    def host(self, host: Host) -> HostPlan:
        gpus = {gpu.index: gpu for gpu in host.gpus}
        on_gpu: dict[int, list[Stack]] = {}
        ports: dict[int, Stack] = {}
        containers: dict[str, Stack] = {}
        for stack in host.stacks:
            for index in stack.gpus:
                on_gpu.setdefault(index, []).append(stack)
            other = ports.setdefault(stack.port, stack)
            if other is not stack:
                problem = f"is {stack.port}, as in {other.name} (fleet_stacks[{other.position}])."
                self.add("port_taken", f"{stack.place}.port", problem, "Give each stack of the host its own.", stack)
            other = containers.setdefault(stack.container, stack)
            if other is not stack:
                problem = f'is "{stack.container}", as in {other.name} (fleet_stacks[{other.position}]).'
                remedy = "Give each stack of the host its own container name."
                self.add("container_taken", f"{stack.place}.container", problem, remedy, stack)
            self._replicas.setdefault(stack.model.name, []).append(stack)
            self._users.setdefault(id(stack.image), (stack.image, []))[1].append(stack.name)
            recipe = (id(stack.model), id(stack.args), id(stack.env), id(stack.secrets), id(stack.image))
            if recipe not in self._recipes:
                self._recipes.add(recipe)
                self._recipe(stack)
            self._placement(stack, gpus)
            if stack.compose or "CUDA_VISIBLE_DEVICES" in stack.env:
                self._overrides(stack)
        for index, stacks in on_gpu.items():
            gpu = gpus.get(index)
            if gpu is None:
                self._no_such_gpu(host, index, stacks)
            elif gpu.keep_free:
                for stack in stacks:
                    problem = f"names GPU {index}, which is kept free: {gpu.keep_free}."
                    remedy = "Move the stack to another GPU, or remove keep_free."
                    self.add("gpu_kept_free", f"{stack.place}.gpus", problem, remedy, stack)
            else:
                self._card(gpu, stacks)
        chains = {index: tuple(stack.name for stack in on_gpu[index]) for index in sorted(on_gpu)}
        return HostPlan(host.name, host.stacks, chains)

    def _placement(self, stack: Stack, gpus: Mapping[int, Gpu]) -> None:
        size = self._parallel_size(stack)
        if stack.gpus and size is not None and size != len(stack.gpus):
            parts = [
                f"{name} {stack.args[name]}"
                for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
                if name in stack.args
            ]
            problem = f"names {len(stack.gpus)} GPU(s), {' x '.join(parts)} needs {size}."
            remedy = f"Name {size} GPU(s), or make the product of the parallel sizes {len(stack.gpus)}."
            self.add("parallel_size_mismatch", f"{stack.place}.gpus", problem, remedy, stack)
        share = stack.gpu_memory_utilization
        if share is None:
            if stack.gpus and stack.kv_cache is None:
                problem = f"is missing: the engine would demand its default, {budget.DEFAULT_SHARE} of the card."
                remedy = "Write the share, such as gpu_memory_utilization: 0.40, or kv_cache: 6 GiB beside it."
                self.warn("share_missing", f"{stack.place}.gpu_memory_utilization", problem, remedy, stack)
        elif share > 0.95:
            problem = (
                f"is {share:g}: above 0.95 the memory for CUDA graphs is often missing after the KV cache is taken."
            )
            remedy = "Lower it to at most 0.95."
            self.warn("share_high", f"{stack.place}.gpu_memory_utilization", problem, remedy, stack)
        for index in stack.gpus:
            gpu = gpus.get(index)
            if gpu and gpu.compute_capability:
                key = (id(stack.model), id(stack.args), id(stack.env), id(stack.image), gpu.compute_capability)
                if key not in self._cards:
                    refused = known_problems.card_refuses(stack, gpu.compute_capability)
                    if refused is None:
                        self._cards.add(key)
                    else:
                        severity, problem, remedy = refused
                        place = f"{stack.place}.gpus"
                        text = f"names GPU {index}: {problem}"
                        self.add("quantisation_unsupported", place, text, remedy, stack, severity=severity)

    def _parallel_size(self, stack: Stack) -> Optional[int]:
        """GPUs that the options ask for; None when they follow from the number of GPUs, or are not numbers."""
        key = id(stack.args)
        if key not in self._parallel:
            sizes = [
                stack.args.get(name)
                for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
            ]
            size: Optional[int] = None
            if any(value is not None for value in sizes) and all(
                value is None or isinstance(value, int) for value in sizes
            ):
                tensor, pipeline, data = sizes
                others = (pipeline or 1) * (data or 1)
                if tensor is not None:
                    size = tensor * others
                elif others > 1:
                    # Without a size of its own the stack is tensor parallel over all its GPUs.
                    return others * len(stack.gpus)
            self._parallel[key] = size
        return self._parallel[key]

    def _no_such_gpu(self, host: Host, index: int, stacks: Sequence[Stack]) -> None:
        known = ", ".join(str(gpu.index) for gpu in host.gpus)
        for stack in stacks:
            problem = f"names GPU {index}, which {host.name} does not have."
            remedy = f"fleet_gpus lists {known}." if known else f"List the cards of {host.name} in fleet_gpus."
            self.add("gpu_unknown", f"{stack.place}.gpus", problem, remedy, stack)

    def _card(self, gpu: Gpu, stacks: Sequence[Stack]) -> None:
        """Whether all stacks of a card fit when they start one after another, with nothing else on it."""
        if gpu.memory is None:
            self._shares(gpu, stacks)
            return
        total = budget.card_total(gpu.memory, round(gpu.memory * self.defaults.reserved_share))
        claims = [claim(stack) for stack in stacks]
        below = False
        for stack, wanted in zip(stacks, claims):
            why = budget.below_floor(wanted, total)
            if why:
                below = True
                place = f"{stack.place}.gpu_memory_utilization"
                self.add("below_memory_floor", place, f"on GPU {gpu.index}: {why[0]}", why[1], stack)
        if below:
            return
        if all(stack.kv_cache is None for stack in stacks):
            # Shares that add up to at most 1 also start in order, whatever the card's size.
            if not self._shares(gpu, stacks, total):
                self._tight(gpu, stacks, claims, total)
            return
        verdict = budget.start_in_order(claims, gpu.index, total)
        if verdict is None:
            self._tight(gpu, stacks, claims, total)
            return
        stack = next(stack for stack in stacks if stack.name == verdict.stack)
        key = "gpu_memory_utilization" if stack.kv_cache is None else "kv_cache"
        code = "gpu_overcommitted" if verdict.code == "gpu_memory_not_free" else verdict.code
        self.add(code, f"{stack.place}.{key}", f"cannot start: {verdict.arithmetic}", verdict.remedy, stack)

    def _shares(self, gpu: Gpu, stacks: Sequence[Stack], total: int = 0) -> bool:
        """Whether the plain sum of shares is refused."""
        fixed = [stack for stack in stacks if stack.kv_cache is not None]
        if fixed and len(stacks) > 1:
            place = f"host_vars of {fixed[0].host}: fleet_gpus"
            problem = f"GPU {gpu.index} has no memory:, so kv_cache of {fixed[0].name} cannot be added to the shares."
            self.warn("gpu_memory_unknown", place, problem, "Add memory:, as in nvidia-smi's memory.total.", fixed[0])
        asked = 0.0
        for stack in stacks:
            share = stack.gpu_memory_utilization
            asked += budget.DEFAULT_SHARE if share is None else share
        if round(asked, 4) <= 1 or fixed:
            return False
        last = stacks[-1]
        parts = " + ".join(f"{claim(stack).demanded_share:g} ({stack.name})" for stack in stacks)
        size = f" ({format_size(round(asked * total))} of {format_size(total)})" if total else ""
        problem = f"on GPU {gpu.index}: {parts} = {asked:.2f} of the card{size}, more than 1."
        remedy = f"Lower the shares by {asked - 1:.2f} together, or move a stack to another GPU."
        self.add("gpu_overcommitted", f"{last.place}.gpu_memory_utilization", problem, remedy, last)
        return True

    def _tight(self, gpu: Gpu, stacks: Sequence[Stack], claims: Sequence[budget.Claim], total: int) -> None:
        takes = sum(wanted.takes(total) for wanted in claims)
        contexts = len(claims) * budget.CUDA_CONTEXT
        if takes + contexts <= total:
            return
        last = stacks[-1]
        problem = (
            f"on GPU {gpu.index}: {format_size(takes)} for the stacks + {len(claims)} x "
            f"{format_size(budget.CUDA_CONTEXT)} for CUDA contexts = {format_size(takes + contexts)}, "
            f"the card has {format_size(total)}."
        )
        remedy = f"The last to start may find too little free: leave {format_size(takes + contexts - total)} more."
        self.warn("gpu_tight", f"{last.place}.gpu_memory_utilization", problem, remedy, last)

    def _overrides(self, stack: Stack) -> None:
        for finding in contradictions(stack, self.defaults.settings):
            self.findings.setdefault((finding.code, finding.place, finding.problem), finding)
        place = f"{stack.place}.compose"
        if stack.compose.get("network_mode") == "host":
            inside = stack.args.get("port")
            if inside is not None and inside != stack.port:
                problem = (
                    f"asks for the host's network, where the engine's args.port {inside} is not port {stack.port}."
                )
                remedy = f"Remove args.port: the engine is told to listen on {stack.port}."
                self.add("port_contradiction", f"{place}.network_mode", problem, remedy, stack)
            problem = "is host: no port is published, the engine itself listens on "
            problem += f"{stack.listen or 'every address of the host'}, port {stack.port}."
            remedy = "Set listen: on the stack to narrow it." if not stack.listen else "Nothing to do if that is meant."
            self.warn("host_network", f"{place}.network_mode", problem, remedy, stack)
        settings = self.defaults.settings
        restart = str({**settings.extra, **stack.compose}.get("restart", settings.restart))
        if settings.units and restart not in ("no", "False", "None"):
            problem = f"is {restart}: after a reboot Docker starts this container whenever it likes, before its turn."
            remedy = "Remove it: the stack's own unit starts it again, in order."
            self.warn("restart_defeats_order", f"{place}.restart", problem, remedy, stack)

    # --- one recipe: a model with its options, environment and image, wherever it runs

    def _recipe(self, stack: Stack) -> None:
        model, args = stack.model, stack.args
        explained: set[str] = set()
        for known in known_problems.engine_problems(stack):
            place = where(stack, known.option)
            problem = known.problem.format(engine=stack.image.engine)
            remedy = f"{known.remedy} See {known.source}."
            explained.add(place)
            self.add(known.code, place, problem, remedy, self._owner(stack, place), severity=known.severity)
        for finding in options.lint(stack):
            # A known problem says more about the same place than a list of names can.
            if finding.place not in explained:
                self.findings.setdefault((finding.code, finding.place, finding.problem), finding)
        for code, applies, key, problem, remedy, severity in (
            (
                "reasoning_parser_missing",
                model.thinking and not args.get("reasoning_parser"),
                "args.reasoning_parser",
                "is missing, but the model thinks: its reasoning would be mixed into the answers.",
                "Set the parser of the model's family, such as reasoning_parser: qwen3.",
                WARNING,
            ),
            (
                "tool_choice_missing",
                args.get("tool_call_parser") and not args.get("enable_auto_tool_choice"),
                "args.tool_call_parser",
                "has no effect without enable_auto_tool_choice.",
                "Add enable_auto_tool_choice: true, or remove the parser.",
                WARNING,
            ),
            (
                "remote_code",
                args.get("trust_remote_code"),
                "args.trust_remote_code",
                "lets the checkpoint run its own Python in the engine.",
                "Remove it unless the model needs it; with it, pin revision: or use a local folder.",
                WARNING,
            ),
            (
                "context_unset",
                args.get("max_model_len") is None,
                "args.max_model_len",
                "is not set: the model's own maximum may not fit the KV cache.",
                "Set the context length that is wanted, such as max_model_len: 32768.",
                WARNING,
            ),
        ):
            if applies:
                place = where(stack, key)
                self.add(code, place, problem, remedy, self._owner(stack, place), severity=severity)
        for name in stack.env:
            place = where(stack, f"env.{name}")
            if name in stack.secrets:
                problem = "is set under secrets: as well."
                self.add("duplicate_variable", place, problem, "Keep one of them.", self._owner(stack, place))
            elif SECRET_NAME.search(name):
                problem = "looks like a secret, and env: stands in compose.yaml for everybody to read."
                remedy = "Move it to secrets: beside env:, which lands in .env (0600) only."
                self.warn("secret_in_env", place, problem, remedy, self._owner(stack, place))

    @staticmethod
    def _owner(stack: Stack, place: str) -> Optional[Stack]:
        return stack if place.startswith(stack.place) else None

    # --- what concerns the whole fleet

    def shared(self, fleet: Fleet) -> None:
        for gateway in fleet.gateways.values():
            self._users.setdefault(id(gateway.image), (gateway.image, []))[1].append(f"gateway {gateway.host}")
        for image, users in self._users.values():
            self._digest(image, users)
        for name, stacks in self._replicas.items():
            if len(stacks) == 1:
                continue
            first = stacks[0].model
            for stack in stacks[1:]:
                if stack.model is not first and (stack.model.source, stack.model.task) != (first.source, first.task):
                    problem = (
                        f"{name} is {stack.model.source} ({stack.model.task}) on {stack.host} and {first.source} "
                        f"({first.task}) on {stacks[0].host}: the gateway would answer from either."
                    )
                    remedy = "Give one of them another name in fleet_models."
                    self.add("gateway_name_taken", f"{stack.place}.model", problem, remedy, stack)

    def _digest(self, image: Image, users: Sequence[str]) -> None:
        if DIGEST.fullmatch(image.digest):
            return
        place = f"group_vars: fleet_images.{image.name}.digest"
        names = list(dict.fromkeys(users))
        used = f"{', '.join(names[:6])}{' and others' if len(names) > 6 else ''} cannot be started"
        source = f"{image.repository}:{image.tag or 'TAG'}"
        remedy = (
            f"Get the whole digest with: docker buildx imagetools inspect {source} (the line Digest), or on a host "
            f"that runs it: docker image inspect --format '{{{{index .RepoDigests 0}}}}' {source}"
        )
        digits = image.digest[len("sha256:") :] if image.digest.startswith("sha256:") else ""
        if not image.digest:
            self.add("digest_missing", place, f"is missing: {used} without one.", f"{remedy}.")
        elif re.fullmatch(r"[0-9a-f]{1,63}(…|\.\.\.)?|[0-9a-f]{0,63}(…|\.\.\.)", digits):
            count = len(digits.rstrip(".…"))
            problem = f"has {count} of 64 hexadecimal digits ({image.digest}): {used}."
            self.add("digest_incomplete", place, problem, f"{remedy}. A tag moves; the digest does not.")
        else:
            problem = f'is "{image.digest}", which is not sha256: and 64 lower-case hexadecimal digits: {used}.'
            self.add("digest_malformed", place, problem, f"{remedy}.")

    def gateway(self, gateway: Gateway, fleet: Fleet) -> None:
        place = "fleet_gateway"
        where_from = f"group_vars: {place}" if len(fleet.gateways) > 1 else f"variables of {gateway.host}: {place}"
        host = fleet.hosts.get(gateway.host)

        def refuse(code: str, key: str, problem: str, remedy: str, severity: str = ERROR) -> None:
            self.add(code, f"{where_from}.{key}", problem, remedy, severity=severity, host=gateway.host)

        for stack in host.stacks if host else ():
            if stack.port == gateway.port:
                problem = f"is {gateway.port}, as the stack {stack.name} on the same host {gateway.host}."
                refuse("gateway_port_taken", "port", problem, "Give one of them another port.")
            if gateway_files.PROJECT in (stack.name, stack.container):
                problem = f'is "{gateway_files.PROJECT}", which is the gateway\'s project on {gateway.host}.'
                self.add("folder_taken", f"{stack.place}.name", problem, "Give the stack another name.", stack)
        if gateway.master_key.lower().startswith(PLACEHOLDER):
            allowed = self.defaults.allow_placeholders
            problem = "is a placeholder: enough to plan, not to deploy." if allowed else "is still a placeholder."
            remedy = "Set it from Ansible Vault; openssl rand -hex 24 makes a strong one."
            refuse("gateway_master_key_placeholder", "master_key", problem, remedy, WARNING if allowed else ERROR)
        for finding in routes.check(fleet, gateway):
            self.findings.setdefault((finding.code, finding.place, finding.problem), finding)


def where(stack: Stack, key: str) -> str:
    """Where to edit: the model's variables, unless the stack brings this key (or, for a missing one, any) itself."""
    kind, _dot, name = key.partition(".")
    mine, its = getattr(stack, kind, None), getattr(stack.model, kind, None)
    if not isinstance(mine, Mapping) or not isinstance(its, Mapping):
        return f"group_vars: fleet_models.{stack.model.name}.{key}"
    if mine is its or (name in its and mine.get(name) is its[name]) or (name not in mine and name not in its):
        return f"group_vars: fleet_models.{stack.model.name}.{key}"
    return f"{stack.place}.{key}"


def claim(stack: Stack) -> budget.Claim:
    """What the stack wants from each of its cards."""
    return budget.Claim(
        stack.name, stack.gpu_memory_utilization, stack.kv_cache, stack.model.memory_floor, len(stack.gpus) or 1
    )
