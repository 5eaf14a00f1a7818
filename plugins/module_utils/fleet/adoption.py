# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody set up by hand, as the variables of the inventory.

Everything a service says becomes a value, or a ``Finding`` that names its place: ``not_expressed`` (the inventory has
no word for it), ``to_decide`` (a word is missing that only a person knows), ``replaced`` (the collection does this in
its own way), ``left_alone`` (no model server). Nothing is guessed, and no secret is in any of it: ``secrets`` holds
the values beside the names of the vault variables that stand for them.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional, Sequence

from . import adopt_container, compose, options, secrecy, vllm_command
from .compose import StackSettings
from .compose_reader import Project, Service, size
from .errors import WARNING, Finding
from .model import Image, Model, Stack
from .option_changes import OWNED as OWNED_OPTIONS
from .rendered import LABEL_STACK
from .sizes import GIB, KIB, MIB

ENGINE, GATEWAY, OTHER = "engine", "gateway", "other"
PLACEHOLDER_TASK = "embed|rerank|classify|reward"
NO_DIGEST = "sha256:" + "0" * 64
TASKS_OF_OPTIONS = {
    ("task", "embed"): "embed",
    ("task", "embedding"): "embed",
    ("task", "classify"): "classify",
    ("task", "reward"): "reward",
    ("task", "generate"): "chat",
    ("convert", "embed"): "embed",
}
REPLACED = {
    "restart": "the stack's own unit starts it again, in its turn on the GPU",
    "healthcheck": "each stack gets a health check that also looks at the GPU",
    "logging": "each stack's log is kept to three files of 50 MB",
    "stop_grace_period": "an engine gets 30 s to stop",
    "depends_on": "stacks on one GPU start one after another, in the order of fleet_stacks",
    "stop_signal": "an engine is stopped as Docker does it",
    "init": "",
    "pull_policy": "the digest is pulled before anything is stopped",
    "container_name": "",
    "labels": "",
    "expose": "",
    "build": "",
}
# Keys of a service that go into the stack's `compose` as they are.
KEPT = (
    *("network_mode", "ipc", "pid", "privileged", "user", "working_dir", "hostname", "domainname", "init"),
    *("cap_add", "cap_drop", "security_opt", "ulimits", "sysctls", "extra_hosts", "dns", "dns_search", "tmpfs"),
    *(
        "mem_limit",
        "memswap_limit",
        "mem_reservation",
        "mem_swappiness",
        "cpus",
        "cpuset",
        "cpu_shares",
        "oom_score_adj",
    ),
    *("read_only", "devices", "group_add", "runtime", "stdin_open", "tty", "userns_mode", "uts", "cgroup_parent"),
)


@dataclass(frozen=True)
class Candidate:
    """One service or container, with what was found out beside its definition."""

    service: Service
    kind: str
    project: str
    directory: str
    sole: bool  # the only service of its project
    repository: str
    tag: str = ""
    digest: str = ""  # of a registry
    engine: str = ""  # version, where it is known
    entrypoint: tuple[str, ...] = ()  # the image's own
    config: Mapping[str, Any] = field(default_factory=dict)  # what --config names, parsed
    stack: str = ""  # the name of the stack, when this collection started it
    hidden: frozenset[str] = frozenset()  # variables that are secrets whatever they are called
    asked: tuple[str, ...] = ()  # questions that it has answered for this collection
    live: tuple[Mapping[str, Any], ...] = ()  # what docker inspect says of the container and its image, when it runs

    @property
    def name(self) -> str:
        return self.stack or self.service.name

    @property
    def definition(self) -> Mapping[str, Any]:
        return self.service.definition


@dataclass(frozen=True)
class Card:
    """A card of the host as nvidia-smi says it; memory in bytes."""

    index: int
    uuid: str = ""
    memory: int = 0
    compute_capability: str = ""


@dataclass
class Adopted:
    variables: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)  # vault variable -> value; empty: nobody knows it here
    secret_places: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    withheld: set[str] = field(default_factory=set)  # values that nobody may see and that no variable stands for

    def note(self, code: str, place: str, problem: str, remedy: str = "", stack: Optional[str] = None) -> None:
        finding = Finding(code, place, problem, remedy, WARNING, stack=stack)
        if all((one.code, one.place, one.problem) != (code, place, problem) for one in self.findings):
            self.findings.append(finding)

    @property
    def values_to_hide(self) -> set[str]:
        return {*self.secrets.values(), *self.withheld}

    def filled(self) -> dict[str, Any]:
        """The variables with the secrets in them and every placeholder out: to plan and to compare, never to show."""
        filled: dict[str, Any] = secrecy.filled(self.variables, self.secrets)
        for model in filled.get("fleet_models", {}).values():
            if model.get("task") == PLACEHOLDER_TASK:
                del model["task"]
        return filled


def adopt(
    candidates: Sequence[Candidate], *, host: str, settings: StackSettings, cards: Optional[Sequence[Card]] = None
) -> Adopted:
    """The inventory of these. ``cards``: None when there is no host to ask. Gateways are for ``adopt_gateway``."""
    return _Adopter(host, settings, cards).adopt(candidates)


class _Adopter:
    def __init__(self, host: str, settings: StackSettings, cards: Optional[Sequence[Card]]) -> None:
        self.host, self.settings, self.cards = host, settings, cards
        self.done = Adopted()
        self.vault = secrecy.Vault(self.done.secrets, self.done.secret_places)
        self.images: dict[str, dict[str, Any]] = {}
        self.models: dict[str, dict[str, Any]] = {}
        self.stacks: list[dict[str, Any]] = []
        self.used_uuids: set[str] = set()
        self.used_gpus: set[int] = set()

    def adopt(self, candidates: Sequence[Candidate]) -> Adopted:
        engines = []
        for candidate in candidates:
            if candidate.kind == ENGINE:
                engines.append(candidate)
            elif candidate.kind == OTHER:
                image = candidate.definition.get("image") or "built here"
                self._note(candidate, "left_alone", (), f"{candidate.service.name} ({image}) is no model server.")
        mode, hub = self._common(engines)
        settings: dict[str, Any] = {}
        # Said also when the inventory has them already: it may have them from here.
        if mode and {mode} != {self.settings.gpu_mode, StackSettings.gpu_mode}:
            settings["vllm_stack_gpu_mode"] = mode
            self.settings = replace(self.settings, gpu_mode=mode)
        if hub and {hub} != {self.settings.hub_cache, StackSettings.hub_cache}:
            settings["vllm_stack_hub_cache"] = hub
            self.settings = replace(self.settings, hub_cache=hub)
        for candidate in engines:
            try:
                self._engine(candidate)
            except vllm_command.NotVllm as why:
                remedy = "Write its options under the model's args yourself."
                self._note(candidate, "not_expressed", ("command",), f"{candidate.service.name}: {why}.", remedy)
        variables = self.done.variables
        variables["fleet_images"] = self.images
        variables["fleet_models"] = self.models
        if self.stacks:
            variables.update(settings)
            if self.cards is not None or all("gpus" in stack for stack in self.stacks):
                variables["fleet_gpus"] = self._cards()
            variables["fleet_stacks"] = self.stacks
        return self.done

    def _note(self, candidate: Candidate, code: str, at: tuple[str, ...], problem: str, remedy: str = "") -> None:
        self.done.note(code, candidate.service.place(*at), problem, remedy, candidate.name)

    def _common(self, engines: Sequence[Candidate]) -> tuple[str, str]:
        """What is a variable of the host's role when all stacks agree: how they get cards, where weights are kept."""
        modes, hubs = set(), set()
        for each in engines:
            requests = _requests(each.definition)
            named = any(_is_cdi_name(str(one)) for one in each.definition.get("devices") or ())
            if requests or named:
                modes.add("cdi" if named or any(_is_cdi(request) for request in requests) else "nvidia")
            elif each.definition.get("runtime") == "nvidia":
                modes.add("runtime")
            for volume in each.definition.get("volumes") or ():
                if volume["target"] == compose.HF_HOME and volume.get("type") == "bind":
                    hubs.add(volume["source"])
        return (modes.pop() if len(modes) == 1 else "", hubs.pop() if len(hubs) == 1 else "")

    # ------------------------------------------------------------------ one engine

    def _engine(self, candidate: Candidate) -> None:
        definition = candidate.definition
        args, source, served = self._options(candidate)
        if not source:
            remedy = "Write source: in fleet_models."
            self._note(
                candidate, "to_decide", ("command",), f"{candidate.service.name} does not name its model.", remedy
            )
        if not re.fullmatch(r"[^\s,\"']+", served):
            problem = f"it is served as {served!r}, which is no name for a model of the inventory."
            self._note(candidate, "to_decide", ("command",), problem, "Choose one without spaces, commas and quotes.")
        source = self._on_host(candidate, source)
        name = self._stack_name(candidate)
        stack: dict[str, Any] = {"name": name, "model": served}
        gpus = self._gpus(candidate)
        if gpus is not None:
            stack["gpus"] = gpus
            self.used_gpus |= set(gpus)
        self._port(candidate, args, stack)
        container = str(definition.get("container_name") or "")
        if container not in ("", f"vllm-{name}"):
            stack["container"] = container
        if "gpu_memory_utilization" in args:
            stack["gpu_memory_utilization"] = args.pop("gpu_memory_utilization")
        if "kv_cache_memory_bytes" in args:
            stack["kv_cache"] = _sized(options.tokens(args.pop("kv_cache_memory_bytes")) or 0)
        if gpus and "gpu_memory_utilization" not in stack and "kv_cache" not in stack:
            problem = f"{name} names no share of the card: the engine takes its own default."
            remedy = "Write gpu_memory_utilization:, or kv_cache:, so that the plan can add up what the card holds."
            self._note(candidate, "to_decide", ("command",), problem, remedy)
        self._parallel(args, gpus)
        image = self._image(candidate)
        environment, secrets = self._environment(candidate, stack, args)
        revision = str(args.pop("revision", "") or "")
        self._owned(candidate, args)
        model = self._model(candidate, served, source, revision, image, args, environment, stack)
        if model is None:
            return
        if secrets:
            stack["secrets"] = secrets
        overrides = self._compose(candidate, stack, model, image, args, environment)
        if overrides:
            stack["compose"] = overrides
        self.stacks.append(stack)

    def _options(self, candidate: Candidate) -> tuple[dict[str, Any], str, str]:
        """(options, what is served, under which name)."""
        definition = candidate.definition
        given = definition.get("entrypoint")
        entrypoint = list(given if given is not None else candidate.entrypoint)
        words, named = vllm_command.arguments(entrypoint, definition.get("command") or [])
        overridden = given is not None and tuple(given) != candidate.entrypoint
        if overridden or (named and not candidate.entrypoint):
            at = "entrypoint" if given else "command"
            problem = f"{candidate.service.name} names the program itself; a stack leaves that to its image."
            remedy = "Make sure that the image's own entrypoint is `vllm serve`."
            self._note(candidate, "not_expressed", (at,), problem, remedy)
        if overridden and not named:
            raise vllm_command.NotVllm(f"its entrypoint {' '.join(entrypoint)} is not `vllm serve`")
        parsed = vllm_command.parse(words, candidate.engine)
        for words_unread, why in parsed.unread:
            shown = secrecy.shown(words_unread)
            self._note(candidate, "not_expressed", ("command",), f"{shown}: {why}.", "Look what it should have meant.")
        args = dict(parsed.options)
        file = args.pop("config", None)
        if file and not candidate.config:
            problem = f"the options in {file} are not read: it is no file of the host that is mounted there."
            self._note(candidate, "not_expressed", ("command",), problem, "Write them under the model's args.")
        args = {**vllm_command.from_config(candidate.config, candidate.engine), **args}
        model_tag = args.pop("model_tag", None)
        source = parsed.model or str(args.pop("model", None) or model_tag or "")
        args.pop("model", None)
        names = args.pop("served_model_name", None) or [source]
        names = [names] if isinstance(names, str) else list(names)
        for other in names[1:]:
            problem = f"{other} is a second name of {names[0]}."
            remedy = f"Clients of the gateway can keep it: aliases: {{{other}: {names[0]}}} in fleet_gateway."
            self._note(candidate, "not_expressed", ("command",), problem, remedy)
        return args, source, str(names[0])

    def _on_host(self, candidate: Candidate, source: str) -> str:
        """A path inside the container, as the path on the host that it is mounted from."""
        if not source.startswith("/"):
            return source
        for volume in sorted(candidate.definition.get("volumes") or (), key=lambda one: -len(one["target"])):
            target = str(volume["target"]).rstrip("/")
            if source == target or source.startswith(target + "/"):
                if volume.get("type") != "bind":
                    break
                return str(volume["source"]).rstrip("/") + source[len(target) :]
        problem = f"the model {source} is a path that no folder of the host is mounted at."
        remedy = "Put the model into a folder of the host and write that one as source:."
        self._note(candidate, "to_decide", ("volumes",), problem, remedy)
        return source

    def _stack_name(self, candidate: Candidate) -> str:
        wanted = candidate.stack or (
            candidate.project if candidate.sole and candidate.project else candidate.service.name
        )
        name = re.sub(r"[^a-z0-9_-]", "-", wanted.lower()).lstrip("_-") or "stack"
        taken = {stack["name"] for stack in self.stacks}
        number = 2
        while name in taken:
            name = f"{re.sub(r'-[0-9]+$', '', name)}-{number}"
            number += 1
        return name

    def _gpus(self, candidate: Candidate) -> Optional[list[int]]:
        """The cards by index; None when they cannot be known."""
        definition = candidate.definition
        requests = _requests(definition)
        environment = definition.get("environment") or {}
        at: tuple[str, ...] = ("deploy",) if "deploy" in definition else ("gpus",)
        names: list[str] = []
        for request in requests:
            if request.get("device_ids"):
                names += [str(one).rpartition("=")[2] for one in request["device_ids"]]
            elif request.get("count", -1) == -1:
                names.append("all")
            else:
                names += [str(index) for index in range(int(request["count"]))]
        if not requests:
            visible = environment.get("NVIDIA_VISIBLE_DEVICES")
            if definition.get("runtime") != "nvidia":
                at = ("devices",)
                devices = [str(one) for one in definition.get("devices") or () if "nvidia" in str(one)]
                names = [one.rpartition("=")[2] for one in devices if _is_cdi_name(one)]
                if devices and not names:
                    problem = f"{candidate.service.name} gets {', '.join(devices)} as files."
                    remedy = "Write gpus: with the indexes of nvidia-smi; the number of a file is not one."
                    self._note(candidate, "to_decide", at, problem, remedy)
                    return None
                if not names:
                    return []
            else:
                at = ("environment", "NVIDIA_VISIBLE_DEVICES") if visible else ("runtime",)
                names = [one for one in (visible or "all").split(",") if one not in ("", "void", "none")]
        chosen = environment.get("CUDA_VISIBLE_DEVICES")
        if chosen and re.fullmatch(r"\d+(,\d+)*", chosen) and names == ["all"]:
            if environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
                names = chosen.split(",")
                at = ("environment", "CUDA_VISIBLE_DEVICES")
            else:
                problem = f"sees every card and chooses {chosen} by CUDA's own order, which is not nvidia-smi's."
                remedy = "Write gpus: with the indexes of nvidia-smi."
                self._note(candidate, "to_decide", ("environment", "CUDA_VISIBLE_DEVICES"), problem, remedy)
                return None
        return self._indexes(candidate, at, names)

    def _indexes(self, candidate: Candidate, at: tuple[str, ...], names: Sequence[str]) -> Optional[list[int]]:
        known = {card.uuid: card.index for card in self.cards or ()}
        found: list[int] = []
        for name in names:
            if name.isdigit():
                found.append(int(name))
            elif name in known:
                self.used_uuids.add(name)
                found.append(known[name])
            elif name == "all" and self.cards is not None:
                found += [card.index for card in self.cards]
            else:
                what = "asks for all cards" if name == "all" else f"asks for the card {name}"
                remedy = "Write gpus: with the indexes of nvidia-smi -L, such as gpus: [0]."
                self._note(candidate, "to_decide", at, f"{candidate.service.name} {what}.", remedy)
                return None
        return list(dict.fromkeys(found))

    def _port(self, candidate: Candidate, args: dict[str, Any], stack: dict[str, Any]) -> None:
        inside = int(args.pop("port", None) or compose.ENGINE_PORT)
        own_host = str(args.pop("host", None) or "")
        if candidate.definition.get("network_mode") == "host":
            stack["port"] = inside
            if own_host not in compose.EVERY_ADDRESS or self.settings.listen not in compose.EVERY_ADDRESS:
                stack["listen"] = own_host or "0.0.0.0"
            return
        published = [port for port in candidate.definition.get("ports") or () if port.get("published")]
        ours = [port for port in published if port["target"] == inside and str(port["published"]).isdigit()]
        if ours:
            stack["port"] = int(ours[0]["published"])
            address = str(ours[0].get("host_ip") or "")
            if address in compose.EVERY_ADDRESS:
                address = "0.0.0.0"
            default = self.settings.listen if self.settings.listen not in compose.EVERY_ADDRESS else "0.0.0.0"
            if address != default:
                stack["listen"] = address
        else:
            problem = f"{candidate.service.name} publishes no fixed port of the host for the engine's {inside}."
            self._note(candidate, "to_decide", ("ports",), problem, "Write port:, on which the host is to answer.")
        for port in candidate.definition.get("ports") or ():
            if not ours or port is not ours[0]:
                if _everywhere_twin(port, ours):
                    continue
                text = f"{port.get('published', 'any')}:{port['target']}"
                problem = f"{candidate.service.name} publishes {text} as well."
                self._note(candidate, "not_expressed", ("ports",), problem, "A stack publishes one port.")

    @staticmethod
    def _parallel(args: dict[str, Any], gpus: Optional[Sequence[int]]) -> None:
        """Without a size of its own a stack is parallel over all its cards; an engine is not."""
        if gpus is None:
            return
        tensor = args.get("tensor_parallel_size")
        if tensor == (len(gpus) or 1):
            del args["tensor_parallel_size"]
        elif tensor is None and len(gpus) > 1:
            args["tensor_parallel_size"] = 1

    def _image(self, candidate: Candidate) -> str:
        entry: dict[str, Any] = {"repository": candidate.repository}
        if candidate.tag:
            entry["tag"] = candidate.tag
        if candidate.digest:
            entry["digest"] = candidate.digest
        if candidate.engine:
            entry["engine"] = candidate.engine
        base = posixpath.basename(candidate.repository) or "image"
        for name in (base, f"{base}-{candidate.tag}" if candidate.tag else f"{base}-2"):
            if self.images.get(name, entry) == entry:
                break
        else:
            name = f"{base}-{candidate.service.name}"
        if name not in self.images:
            self.images[name] = entry
            if not candidate.repository:
                remedy = "Push it to a registry and write repository: and digest:."
                self._note(
                    candidate, "to_decide", ("build",), f"{candidate.service.name} has an image of its own.", remedy
                )
            elif not candidate.digest:
                if candidate.tag:
                    remedy = "playbooks/pin.yml writes the digest that the tag has now; look whether it is what runs."
                else:
                    remedy = "Write tag: and digest:."
                problem = f"nothing tells the digest of {candidate.repository}:{candidate.tag or 'latest'}."
                self._note(candidate, "to_decide", ("image",), problem, remedy)
            if not candidate.engine:
                problem = f"nothing tells which vLLM is in {base}; the options were read by the oldest list there is."
                self._note(candidate, "to_decide", ("image",), problem, "Write engine: with its version.")
        return name

    def _environment(
        self, candidate: Candidate, stack: dict[str, Any], args: dict[str, Any]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """(what may be read, the names of vault variables for what may not)."""
        service = candidate.service
        plain: dict[str, str] = {}
        secrets: dict[str, str] = {}
        if "api_key" in args:
            keys = args.pop("api_key")
            keys = [keys] if isinstance(keys, str) else [str(key) for key in keys]
            stack["api_key"] = self.vault.variable(stack["name"], "api_key", keys[0], service.place("command"))
            if len(keys) > 1:
                problem = f"{stack['name']} takes {len(keys)} API keys."
                self._note(
                    candidate, "not_expressed", ("command",), problem, "A stack has one; the gateway can have more."
                )
        if "hf_token" in args:
            token = args.pop("hf_token")
            secrets["HF_TOKEN"] = self.vault.variable(stack["name"], "HF_TOKEN", str(token), service.place("command"))
        for name, value in (candidate.definition.get("environment") or {}).items():
            place = service.place("environment", name)
            unset = service.unset.get(("environment", name))
            secret = name in candidate.hidden or secrecy.is_secret(name, value or "")
            if name == "VLLM_API_KEY":
                stack["api_key"] = self.vault.variable(stack["name"], "api_key", "" if unset else value or "", place)
            elif secret:
                secrets[name] = self.vault.variable(stack["name"], name, "" if unset else value or "", place)
            elif unset or value is None:
                what = ", ".join(unset or (name,))
                remedy = f"Write env: {{{name}: …}}; whoever started it had {what} in the shell."
                self.done.note("to_decide", place, f"{what} has no value here.", remedy, stack["name"])
            else:
                plain[name] = value
        if self.settings.hub_token and self.vault.value(secrets.get("HF_TOKEN", "")) == self.settings.hub_token:
            del secrets["HF_TOKEN"]
        for name, variables in service.unset.items():
            if name[0] != "environment":
                problem = f"{name[0]} has {', '.join(variables)} in it, which has no value here."
                remedy = "Whoever started it had it in the shell: look at what is written for it."
                self.done.note("to_decide", service.place(*name), problem, remedy, stack["name"])
        return plain, secrets

    def _owned(self, candidate: Candidate, args: dict[str, Any]) -> None:
        for name in list(args):
            if name in OWNED_OPTIONS:
                del args[name]
                problem = f"the option {name} has no place under args."
                self._note(candidate, "not_expressed", ("command",), problem, OWNED_OPTIONS[name])
            elif secrecy.holds_secret(args[name]):
                del args[name]
                problem = f"the option {name} holds what looks like a secret."
                remedy = "vllm.yaml can be read by everybody on the host: find another way."
                self._note(candidate, "not_expressed", ("command",), problem, remedy)

    # ------------------------------------------------------------------ the model

    def _model(
        self,
        candidate: Candidate,
        served: str,
        source: str,
        revision: str,
        image: str,
        args: dict[str, Any],
        environment: dict[str, str],
        stack: dict[str, Any],
    ) -> Optional[Model]:
        task = self._task(candidate, args)
        entry: dict[str, Any] = {"source": source}
        if revision:
            entry["revision"] = revision
        if task:
            entry["task"] = task
        entry.update(self._answered(candidate))
        entry["image"] = image
        args = dict(sorted(args.items()))
        environment = self._beyond_default(candidate, environment, stack)
        there = self.models.get(served)
        if there is None:
            if args:
                entry["args"] = args
            if environment:
                entry["env"] = environment
            self.models[served] = entry
        elif any(there.get(key) != entry.get(key) for key in ("source", "revision", "task")):
            problem = (
                f"{candidate.service.name} serves {source} under the name {served}, as another does {there['source']}."
            )
            remedy = "One name is one model: give one of them another --served-model-name."
            self._note(candidate, "not_expressed", ("command",), problem, remedy)
            return None
        else:
            if image != there["image"]:
                stack["image"] = image
            for key, own in (("args", args), ("env", environment)):
                lower = _lower(there.get(key, {}), own)
                if lower:
                    stack[key] = lower
        self._unsaid(candidate, served, args, entry)
        return Model(name=served, source=source, image=image, revision=revision)

    def _task(self, candidate: Candidate, args: Mapping[str, Any]) -> str:
        for (name, value), task in TASKS_OF_OPTIONS.items():
            if args.get(name) == value:
                return "" if task == "chat" else task
        for question, task in (
            ("embeddings", "embed"),
            ("rerank", "rerank"),
            ("classify", "classify"),
            ("reward", "reward"),
        ):
            if question in candidate.asked:
                return task
        pooling = args.get("runner") == "pooling" or args.get("convert") == "classify" or args.get("task") == "score"
        if pooling:
            problem = f"{candidate.service.name} pools, and no option says what for."
            remedy = f"Write task: one of {PLACEHOLDER_TASK.replace('|', ', ')}."
            self._note(candidate, "to_decide", ("command",), problem, remedy)
            return PLACEHOLDER_TASK
        return ""

    @staticmethod
    def _answered(candidate: Candidate) -> dict[str, Any]:
        """What its receipt proves: it was asked this and answered."""
        known: dict[str, Any] = {}
        kinds = ["text"]
        kinds += ["image"] if any(question.startswith("image_") for question in candidate.asked) else []
        kinds += ["video"] if "video_order" in candidate.asked else []
        if len(kinds) > 1:
            known["modalities"] = kinds
        if "thinking_on" in candidate.asked:
            known["thinking"] = True
        return known

    def _unsaid(self, candidate: Candidate, served: str, args: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
        limits = args.get("limit_mm_per_prompt")
        kinds = [kind for kind in limits if limits[kind]] if isinstance(limits, Mapping) else []
        if kinds and "modalities" not in entry:
            problem = f"limit_mm_per_prompt names {', '.join(kinds)}, but nothing says what {served} reads."
            remedy = (
                f"Write modalities: [text, {', '.join(kinds)}] if that is so; only then is it asked about pictures."
            )
            self._note(candidate, "to_decide", ("command",), problem, remedy)
        if args.get("reasoning_parser") and not entry.get("thinking"):
            problem = f"{served} has a reasoning parser, but nothing says whether it thinks unless told not to."
            self._note(candidate, "to_decide", ("command",), problem, "Write thinking: true if that is so.")

    def _beyond_default(
        self, candidate: Candidate, environment: dict[str, str], stack: Mapping[str, Any]
    ) -> dict[str, str]:
        """Without what the collection sets itself, to the same value."""
        ours = {"HF_HOME": compose.HF_HOME, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        if self.settings.hub_offline:
            ours["HF_HUB_OFFLINE"] = "1"
        left = {name: value for name, value in sorted(environment.items()) if ours.get(name) != value}
        visible = left.get("NVIDIA_VISIBLE_DEVICES")
        if visible is not None and stack.get("gpus") is not None:
            del left["NVIDIA_VISIBLE_DEVICES"]
        by_cuda = candidate.definition["environment"].get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        if "CUDA_VISIBLE_DEVICES" in left and stack.get("gpus") is not None and by_cuda:
            del left["CUDA_VISIBLE_DEVICES"]
            problem = f"CUDA_VISIBLE_DEVICES became gpus: {stack['gpus']}; the container will see these cards only."
            self._note(candidate, "replaced", ("environment", "CUDA_VISIBLE_DEVICES"), problem)
        return left

    # ------------------------------------------------------------------ what the rendered service would not have

    def _compose(
        self,
        candidate: Candidate,
        stack: dict[str, Any],
        model: Model,
        image: str,
        args: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> dict[str, Any]:
        """`compose:` as the least that makes the rendered service what runs."""
        definition = candidate.definition
        base = self._rendered(candidate, stack, model, image, args, environment)
        over: dict[str, Any] = {}
        for key, value in definition.items():
            if key in KEPT and value not in (None, False, [], {}, base.get(key)):
                over[key] = compose_size(value) if key in ("mem_limit", "mem_reservation") else value
        if over.get("network_mode") in ("default", "bridge"):
            del over["network_mode"]
        if "runtime" in over and over["runtime"] in (base.get("runtime"), "runc"):
            over.pop("runtime")
        if "devices" in over:
            # What names a card is in `gpus`.
            over["devices"] = [one for one in over["devices"] if "nvidia" not in str(one)]
            if not over["devices"]:
                del over["devices"]
        if definition.get("ipc") != "host":
            shm = definition.get("shm_size")
            if shm and shm != size(base["shm_size"]):
                over["shm_size"] = compose_size(int(shm), "b")
            elif not shm:
                problem = (
                    f"{candidate.service.name} has Docker's 64 MiB of shared memory; a stack has {base['shm_size']}."
                )
                self._note(candidate, "replaced", ("shm_size",), problem)
        elif definition.get("shm_size") and definition["shm_size"] != size(base["shm_size"]):
            over["shm_size"] = compose_size(int(definition["shm_size"]), "b")
        volumes = self._volumes(candidate, base)
        if volumes:
            over["volumes"] = volumes
        labels = {}
        for name, value in (definition.get("labels") or {}).items():
            if secrecy.is_secret(name, value):
                self.done.withheld.add(value)
                self._note(
                    candidate, "not_expressed", ("labels",), f"the label {name} may hold a secret.", "Look at it."
                )
            elif not name.startswith(("com.docker.compose.", "modelfleet.")):
                labels[name] = value
        if labels:
            over["labels"] = labels
        self._rest(candidate, over)
        return _scrubbed(over, self.done, candidate)

    def _rendered(
        self,
        candidate: Candidate,
        stack: Mapping[str, Any],
        model: Model,
        image: str,
        args: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> Mapping[str, Any]:
        """The service that these values would become, without `compose`."""
        entry = self.images[image]
        gpus = tuple(stack.get("gpus") or ())
        plain = Stack(
            host=self.host,
            position=len(self.stacks),
            name=stack["name"],
            model=model,
            image=Image(image, candidate.repository, entry.get("digest", NO_DIGEST), engine=candidate.engine),
            gpus=gpus,
            port=int(stack.get("port", compose.ENGINE_PORT)),
            container=str(stack.get("container", "")),
            args=args,
            env=environment,
            secrets={},
            checks=(),
            listen=str(stack.get("listen", "")),
        )
        return compose.render(plain, self.settings).service_definition

    def _volumes(self, candidate: Candidate, base: Mapping[str, Any]) -> list[str]:
        ours = {}
        for volume in base["volumes"]:
            if isinstance(volume, str):
                source, target, *_mode = volume.split(":")
            else:
                source, target = volume["source"], volume["target"]
            ours[target] = source
        config = candidate.config and config_inside(candidate.definition)
        out = []
        for volume in candidate.definition.get("volumes") or ():
            source, target = str(volume.get("source", "")), str(volume["target"])
            if ours.get(target) == source or target == config or target == compose.CONFIG_PATH:
                continue
            if candidate.stack and target == compose.ENGINE_CACHE and self.settings.engine_cache in source:
                continue  # another image's; the new one has a folder of its own
            if volume.get("type") == "tmpfs":
                self._note(
                    candidate,
                    "not_expressed",
                    ("volumes",),
                    f"a tmpfs is mounted at {target}.",
                    "Write compose: {tmpfs: …}.",
                )
                continue
            if volume.get("type") != "bind":
                problem = f"the named volume {source or '(without a name)'} is mounted at {target}."
                remedy = "A stack's Compose file declares no volumes: move the content into a folder of the host."
                if target in ours:
                    remedy = f"The stack has the host's folder {ours[target]} there: copy what is worth keeping."
                self._note(candidate, "not_expressed", ("volumes",), problem, remedy)
                continue
            out.append(f"{source}:{target}" + (":ro" if volume.get("read_only") else ""))
        return out

    def _rest(self, candidate: Candidate, over: Mapping[str, Any]) -> None:
        """Every key that is neither a value of the inventory nor kept."""
        definition = candidate.definition
        read = {"image", "command", "entrypoint", "environment", "ports", "volumes", "gpus", "deploy", "shm_size"}
        for key, value in definition.items():
            if key in read or key in KEPT or value in (None, [], {}, False, ""):
                continue
            if key in REPLACED:
                if REPLACED[key] and not candidate.stack:
                    self._note(candidate, "replaced", (key,), f"{key}: {REPLACED[key]}.")
            elif key == "networks" and list(value) == ["default"]:
                continue
            elif key == "networks":
                names = ", ".join(str(name) for name in value)
                problem = f"{candidate.service.name} is in the network {names}."
                remedy = "A stack has its own; the gateway and clients reach it at the host's port."
                self._note(candidate, "not_expressed", (key,), problem, remedy)
            else:
                remedy = "Write it under the stack's compose: if it is needed, or leave it."
                self._note(candidate, "not_expressed", (key,), f"{candidate.service.name} has {key}.", remedy)
        deploy = definition.get("deploy") or {}
        resources = deploy.get("resources") or {}
        beyond = [key for key in deploy if key != "resources" and deploy[key] not in (None, {}, [])]
        beyond += [f"resources.{key}" for key in resources if key != "reservations" and resources[key]]
        beyond += [f"resources.reservations.{key}" for key in resources.get("reservations") or () if key != "devices"]
        for key in beyond:
            problem = f"{candidate.service.name} has deploy.{key}."
            remedy = "Write it under the stack's compose: if it is needed, or leave it."
            self._note(candidate, "not_expressed", ("deploy",), problem, remedy)

    def _cards(self) -> list[dict[str, Any]]:
        if self.cards is None:
            return [{"index": index} for index in sorted(self.used_gpus)]
        cards = []
        for card in self.cards:
            entry: dict[str, Any] = {"index": card.index}
            if card.uuid in self.used_uuids:
                entry["uuid"] = card.uuid
            if card.memory:
                entry["memory"] = f"{card.memory // MIB} MiB"
            if card.compute_capability:
                entry["compute_capability"] = card.compute_capability
            cards.append(entry)
        return cards


def of_service(service: Service, project: Project) -> Candidate:
    """A service of a Compose file, of which nothing runs that could be asked."""
    repository, tag, digest = reference(str(service.definition.get("image") or ""))
    stack = str((service.definition.get("labels") or {}).get(LABEL_STACK, ""))
    return Candidate(
        service=service,
        kind=kind_of(service.definition),
        project=project.name,
        directory=project.directory,
        sole=len(project.services) == 1,
        repository=repository,
        tag=tag,
        digest=digest,
        engine=version_of(tag),
        stack=stack,
        hidden=frozenset(at[1] for at, place in service.places.items() if stack and len(at) == 2 and _is_dotenv(place)),
    )


def of_container(
    container: Mapping[str, Any],
    image: Optional[Mapping[str, Any]],
    *,
    kind: str,
    engine: str,
    config: Mapping[str, Any],
    sole: bool,
    hidden: frozenset[str],
    asked: tuple[str, ...],
) -> Candidate:
    """A container that runs. ``engine``: the version that it says it is."""
    project, directory, _files = adopt_container.project_of(container)
    repository, tag, digest = reference(str(container["Config"].get("Image") or ""))
    if digest:
        tag = adopt_container.tag_of(repository, image)
    return Candidate(
        service=adopt_container.service(container, image),
        kind=kind,
        project=project,
        directory=directory,
        sole=sole and bool(project),
        repository=repository,
        tag=tag,
        digest=digest or adopt_container.digest_of(repository, image),
        engine=engine or version_of(tag),
        entrypoint=tuple(((image or {}).get("Config") or {}).get("Entrypoint") or ()),
        config=config,
        stack=adopt_container.stack_of(container),
        hidden=hidden,
        asked=asked,
        live=(container, image or {}),
    )


# --- small readings --------------------------------------------------------------------------------------------------


def kind_of(definition: Mapping[str, Any], entrypoint: Sequence[str] = ()) -> str:
    """Whether this is an engine, a gateway or something else, by its image and by the program that it names."""
    words = [str(word) for word in [*(definition.get("entrypoint") or entrypoint), *(definition.get("command") or [])]]
    text = " ".join(words)
    labels = definition.get("labels") or {}
    image = posixpath.basename(str(definition.get("image") or "").partition("@")[0]).partition(":")[0].lower()
    if (
        "modelfleet.gateway" in labels
        or "litellm" in image
        or any(posixpath.basename(word) == "litellm" for word in words)
    ):
        return GATEWAY
    if "modelfleet.stack" in labels or re.search(r"\bvllm serve\b|vllm\.entrypoints\.", text):
        return ENGINE
    if "vllm" in image and not re.search(r"exporter|proxy|router|ui$", image):
        return ENGINE
    return OTHER


def reference(image: str) -> tuple[str, str, str]:
    """(repository, tag, digest) of an image as Compose names it."""
    name, _at, digest = image.partition("@")
    head, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        return head, tag, digest
    return name, "" if digest else "latest" if name else "", digest


def version_of(tag: str) -> str:
    """The engine's version, when the tag is one."""
    match = re.fullmatch(r"v?(\d+\.\d+(?:\.\d+)*)(?:[.-]?(?:post|rc)\d+)?", tag)
    return match[1] if match else ""


def config_path(definition: Mapping[str, Any]) -> str:
    """What ``--config`` names, as a path on the host; empty when there is none, or it is not mounted."""
    inside = config_inside(definition)
    if not inside:
        return ""
    for volume in sorted(definition.get("volumes") or (), key=lambda one: -len(str(one["target"]))):
        target = str(volume["target"]).rstrip("/")
        if volume.get("type") == "bind" and (inside == target or inside.startswith(target + "/")):
            return str(volume["source"]).rstrip("/") + inside[len(target) :]
    return ""


def config_inside(definition: Mapping[str, Any]) -> str:
    """What ``--config`` names, as the container sees it."""
    words = [str(word) for word in [*(definition.get("entrypoint") or ()), *(definition.get("command") or ())]]
    for index, word in enumerate(words):
        if word.startswith("--config="):
            return word.partition("=")[2]
        if word in ("--config", "-c") and index + 1 < len(words) and not words[0].endswith("sh"):
            return words[index + 1]
    return ""


def _requests(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    reservations = ((definition.get("deploy") or {}).get("resources") or {}).get("reservations") or {}
    requests = [*(definition.get("gpus") or ()), *(reservations.get("devices") or ())]
    return [one for one in requests if _is_cdi(one) or "gpu" in (one.get("capabilities") or ["gpu"])]


def _is_cdi(request: Mapping[str, Any]) -> bool:
    return request.get("driver") == "cdi"


def _is_cdi_name(device: str) -> bool:
    return device.startswith("nvidia.com/gpu=")


def _is_dotenv(place: str) -> bool:
    return posixpath.basename(place) == ".env"


def _everywhere_twin(port: Mapping[str, Any], ours: Sequence[Mapping[str, Any]]) -> bool:
    """Docker lists a port that is published everywhere once for IPv4 and once for IPv6."""
    return any(
        port["target"] == one["target"]
        and port.get("published") == one.get("published")
        and {str(port.get("host_ip") or ""), str(one.get("host_ip") or "")} <= set(compose.EVERY_ADDRESS)
        for one in ours
    )


def _lower(upper: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What a stack must say so that the model's values become its own: null takes one away."""
    lower = {name: value for name, value in own.items() if name not in upper or upper[name] != value}
    lower.update({name: None for name in upper if name not in own})
    return lower


def _scrubbed(over: dict[str, Any], done: Adopted, candidate: Candidate) -> dict[str, Any]:
    """Without values that look like secrets."""
    for key in list(over):
        if secrecy.holds_secret(over[key]):
            del over[key]
            problem = f"{key} holds what looks like a secret."
            remedy = "Put it under the stack's secrets: and use the variable."
            done.note("not_expressed", candidate.service.place(key), problem, remedy, candidate.name)
    return over


def compose_size(number: int, ending: str = "") -> str:
    """Bytes as Compose writes them: ``4g``, or ``4gb`` with the ending ``b``."""
    for unit, factor in (("g", GIB), ("m", MIB), ("k", KIB)):
        if number % factor == 0:
            return f"{number // factor}{unit}{ending}"
    return f"{number}b"


def _sized(number: int) -> str:
    """Bytes as the inventory writes them, exactly."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number / KIB!r} KiB"
