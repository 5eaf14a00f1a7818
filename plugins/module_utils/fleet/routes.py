# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway's routes as a pure function of the inventory: every host's stacks, whoever is in ``-l``.

Three names stay apart: what a client asks for (``model_name``, or an alias of it), the route (``<host>--<stack>``,
stable and unique), and what the engine serves. LiteLLM accepts most wrong configurations silently, so ``check`` is the
first gate; its own ``--validate_config`` is the second and the running gateway's list of ids the third.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

from . import options
from .errors import ERROR, WARNING, Finding, nearest
from .model import Fleet, Gateway, Model, Stack

MODES = {"chat": "chat", "embed": "embedding", "rerank": "rerank"}
PASSED_THROUGH = ("classify", "reward")  # LiteLLM has no route of its own for these tasks

# Reported supply-chain compromises; a floating tag pointed at each of them at the time.
COMPROMISED_VERSIONS = ("1.82.7", "1.82.8", "1.107.0")
OLDEST_VERSION = (1, 108, 7)  # reload without a lost request and the advisories of 2026 need it
FLOATING_TAGS = ("latest", "main-latest", "main-stable", "stable", "lts", "main", "nightly")

ROUTING_STRATEGIES = (
    "simple-shuffle",
    "least-busy",
    "latency-based-routing",
    "usage-based-routing-v2",
    "usage-based-routing",
    "cost-based-routing",
    "provider-budget-routing",
    "lar1",
)
# The tested block: two client errors do not take a group down, a dead replica of two costs no failed request.
ROUTER: Mapping[str, Any] = {
    "routing_strategy": "simple-shuffle",
    "num_retries": 2,
    "retry_after": 0,
    "allowed_fails": 1,
    "cooldown_time": 15,
    "allowed_fails_policy": {
        "BadRequestErrorAllowedFails": 100000,
        "NotFoundErrorAllowedFails": 100000,
        "TimeoutErrorAllowedFails": 100,
    },
    "enable_weighted_failover": True,
    "enable_pre_call_checks": True,
    "enable_health_check_routing": True,
    "health_check_staleness_threshold": 90,
}
ROUTER_KEYS = (*ROUTER, "optional_pre_call_checks", "redis_host", "redis_port", "redis_password", "debug_level")
OWNED_ROUTER_KEYS = {
    "fallbacks": "fallbacks",
    "context_window_fallbacks": "context_window_fallbacks",
    "default_fallbacks": "fallbacks",
    "model_group_alias": "aliases",
    "model_list": "the stacks of the hosts",
}


@dataclass(frozen=True)
class Deployment:
    """One stack as one route of LiteLLM. ``id`` is ``<host>--<stack>``."""

    id: str
    model_name: str
    mode: str
    api_base: str
    stack: Stack
    max_input_tokens: Optional[int]

    def as_litellm(self, gateway: Gateway, blocked: bool) -> dict[str, Any]:
        params: dict[str, Any] = {
            "model": f"hosted_vllm/{self.stack.served_model_name}",
            "api_base": self.api_base,
            "timeout": gateway.timeout,
            "stream_timeout": gateway.stream_timeout,
        }
        if self.stack.weight is not None:
            params["weight"] = self.stack.weight
        if self.stack.api_key:
            params["litellm_credential_name"] = self.id
        info: dict[str, Any] = {"id": self.id, "mode": self.mode}
        if self.mode == "chat":
            info["supports_vision"] = "image" in self.stack.model.modalities
            info["supports_function_calling"] = bool(self.stack.args.get("tool_call_parser"))
            info["supports_reasoning"] = self.stack.model.thinking
            info["health_check_max_tokens"] = 1
        if self.max_input_tokens:
            info["max_input_tokens"] = self.max_input_tokens
        info["health_check_timeout"] = 10
        if blocked:
            info["blocked"] = True
        return {"model_name": self.model_name, "litellm_params": params, "model_info": info}


@dataclass(frozen=True)
class PassThrough:
    """A path of the gateway that leads to one engine as it is: no balancing, no failover."""

    path: str
    target: str
    stack: Stack

    @property
    def key_variable(self) -> str:
        return f"ENGINE_KEY_{re.sub(r'[^A-Z0-9]', '_', route_id(self.stack).upper())}"

    def as_litellm(self) -> dict[str, Any]:
        endpoint: dict[str, Any] = {"path": self.path, "target": self.target, "include_subpath": True}
        if self.stack.api_key:
            endpoint["headers"] = {"Authorization": f"Bearer os.environ/{self.key_variable}"}
        return endpoint


@dataclass(frozen=True)
class RoutePlan:
    """Everything one gateway routes."""

    gateway: Gateway
    deployments: tuple[Deployment, ...]
    pass_throughs: tuple[PassThrough, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """What ``/model/info`` must list, no more and no less."""
        return tuple(sorted(deployment.id for deployment in self.deployments))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({deployment.model_name for deployment in self.deployments}))

    def replicas(self, model_name: str) -> list[Deployment]:
        return [deployment for deployment in self.deployments if deployment.model_name == model_name]


@dataclass(frozen=True)
class GatewaySettings:
    """The ``litellm_gateway_*`` variables of the role."""

    root: str = "/opt/docker/compose"
    project: str = "litellm-gateway"
    listen: str = "0.0.0.0"
    workers: int = 2  # one worker dies at a reload; two take turns
    user: str = "10001:10001"
    memory_limit: str = "3g"
    health_interval: int = 30  # seconds between the probes of each route
    drain_seconds: int = 600  # how long a stream may go on while a worker is replaced


@dataclass(frozen=True)
class GatewayFile:
    content: str
    mode: str
    secret: bool = False
    reload: bool = False  # a change needs a reload only; otherwise the container is replaced


@dataclass(frozen=True)
class RenderedGateway:
    host: str
    directory: str
    project: str
    container: str
    image: str
    url: str  # as seen from the host itself
    files: Mapping[str, GatewayFile]
    service_definition: Mapping[str, Any]
    hash: str  # of what the container is; the label
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    secrets: tuple[str, ...]


def route_id(stack: Stack) -> str:
    return f"{stack.host}--{stack.name}"


def make(fleet: Fleet, gateway: Gateway) -> RoutePlan:
    """Routes to every stack of the fleet, in the order of hosts and stacks."""
    deployments, pass_throughs, named = [], [], set()
    for stack in _stacks(fleet):
        base = f"http://{address(gateway, stack.host)}:{stack.port}"
        if stack.model.task in MODES:
            deployments.append(
                Deployment(
                    route_id(stack),
                    stack.served_model_name,
                    MODES[stack.model.task],
                    f"{base}/v1",
                    stack,
                    options.tokens(stack.args.get("max_model_len")),
                )
            )
            continue
        # The first placement of a model also gets the model's own name: what a client can remember.
        if stack.served_model_name not in named:
            named.add(stack.served_model_name)
            pass_throughs.append(PassThrough(f"/{stack.model.task}/{stack.served_model_name}", base, stack))
        pass_throughs.append(PassThrough(f"/{stack.model.task}/{route_id(stack)}", base, stack))
    return RoutePlan(gateway, tuple(deployments), tuple(pass_throughs))


def address(gateway: Gateway, host: str) -> str:
    """Where the gateway reaches a host; its own host it reaches by name too, since it lives in a container."""
    named = gateway.addresses.get(host, host)
    return f"[{named}]" if ":" in named and not named.startswith("[") else named


def _stacks(fleet: Fleet) -> Iterator[Stack]:
    for host in fleet.hosts.values():
        yield from host.stacks


# --- what the inventory alone can say is wrong ---------------------------------------------------------------------


def check(fleet: Fleet, gateway: Gateway) -> list[Finding]:
    """Everything wrong with the gateway's part of the inventory, all at once."""
    plan = make(fleet, gateway)
    models = {stack.served_model_name: stack.model for stack in _stacks(fleet)}
    return [
        *_check_image(gateway),
        *_check_aliases(gateway, plan, models),
        *_check_fallbacks(gateway, plan, models, "fallbacks", gateway.fallbacks),
        *_check_fallbacks(gateway, plan, models, "context_window_fallbacks", gateway.context_window_fallbacks),
        *_check_weights(plan),
        *_check_contexts(plan),
        *_check_keys(gateway, models),
        *_check_addresses(fleet, gateway),
        *_check_settings(gateway),
        *_check_times(gateway),
    ]


def _found(
    gateway: Gateway,
    code: str,
    key: str,
    problem: str,
    remedy: str,
    severity: str = ERROR,
    stack: Optional[Stack] = None,
) -> Finding:
    place = f"group_vars of the gateways: fleet_gateway.{key}" if stack is None else f"{stack.place}.{key}"
    host = gateway.host if stack is None else stack.host
    return Finding(code, place, problem, remedy, severity, host, stack.name if stack else None)


def _check_image(gateway: Gateway) -> Iterator[Finding]:
    image = gateway.image
    where = f"image ({image.name})"
    if image.tag in FLOATING_TAGS:
        problem = f"{image.name} is pinned from the tag {image.tag!r}, which moves."
        remedy = "Pin a release: its tag (vX.Y.Z) and the digest it has."
        yield _found(gateway, "gateway_image_floating_tag", where, problem, remedy)
    if not image.engine:
        problem = f"{image.name} does not say which LiteLLM is inside."
        yield _found(gateway, "gateway_image_version_missing", where, problem, "Set its engine: to LiteLLM's version.")
    elif image.engine in COMPROMISED_VERSIONS:
        problem = f"LiteLLM {image.engine} was published with malicious code in it."
        remedy = "Use 1.108.7 or a newer 1.108 release, and replace every key the old gateway has seen."
        yield _found(gateway, "gateway_image_compromised", where, problem, remedy)
    elif _version(image.engine) < OLDEST_VERSION:
        problem = f"LiteLLM {image.engine} is older than {'.'.join(map(str, OLDEST_VERSION))}."
        remedy = "Older releases have known holes and lose requests at a reload: use the newest 1.108 release."
        yield _found(gateway, "gateway_image_too_old", where, problem, remedy)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _check_aliases(gateway: Gateway, plan: RoutePlan, models: Mapping[str, Model]) -> Iterator[Finding]:
    for alias, target in gateway.aliases.items():
        key = f"aliases.{alias}"
        if alias in models:
            problem = f"{alias!r} is the name of a model, so the alias would hide it."
            yield _found(gateway, "alias_hides_model", key, problem, "Choose another alias.")
        yield from _check_target(gateway, plan, models, key, target, "alias_target_unknown")


def _check_target(
    gateway: Gateway, plan: RoutePlan, models: Mapping[str, Model], key: str, target: str, code: str
) -> Iterator[Finding]:
    if target in models and target not in plan.groups:
        problem = f"{target!r} is a {models[target].task} model; the gateway passes it through and cannot rename it."
        remedy = f"Clients use /{models[target].task}/{target}."
        yield _found(gateway, "target_passed_through", key, problem, remedy)
    elif target not in models:
        near = nearest(target, plan.groups)
        problem = f"No stack serves {target!r}."
        remedy = f"Did you mean {near!r}?" if near else f"Served are: {', '.join(plan.groups) or 'none'}."
        yield _found(gateway, code, key, problem, remedy)


def _check_fallbacks(
    gateway: Gateway, plan: RoutePlan, models: Mapping[str, Model], name: str, fallbacks: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    for source, targets in fallbacks.items():
        key = f"{name}.{source}"
        yield from _check_target(gateway, plan, models, key, source, "fallback_source_unknown")
        for target in targets:
            yield from _check_target(gateway, plan, models, key, target, "fallback_target_unknown")
            if target == source:
                problem = f"{source!r} falls back to itself."
                yield _found(gateway, "fallback_to_itself", key, problem, "Remove it: replicas are retried anyway.")
            if source in models and target in models and source != target:
                yield from _check_stand_in(gateway, plan, models[source], models[target], key, name)


def _check_stand_in(
    gateway: Gateway, plan: RoutePlan, source: Model, target: Model, key: str, name: str
) -> Iterator[Finding]:
    if source.task != target.task:
        problem = f"{source.name!r} is a {source.task} model and {target.name!r} a {target.task} model."
        yield _found(gateway, "fallback_other_task", key, problem, "Fall back to a model of the same task.")
        return
    lost = [modality for modality in source.modalities if modality not in target.modalities]
    if lost:
        problem = f"{target.name!r} does not take {', '.join(lost)}; such requests fail when it stands in."
        yield _found(gateway, "fallback_loses_modality", key, problem, "Choose a stand-in that takes them.", WARNING)
    if name == "context_window_fallbacks":
        short, wide = _context(plan, source.name), _context(plan, target.name)
        if short and wide and wide <= short:
            problem = f"{target.name!r} takes {wide} tokens, no more than {source.name!r} with {short}."
            remedy = "Choose a model with a longer context."
            yield _found(gateway, "fallback_context_not_longer", key, problem, remedy)


def _context(plan: RoutePlan, model_name: str) -> Optional[int]:
    known = [replica.max_input_tokens for replica in plan.replicas(model_name) if replica.max_input_tokens]
    return min(known) if known else None


def _check_weights(plan: RoutePlan) -> Iterator[Finding]:
    for group in plan.groups:
        replicas = plan.replicas(group)
        weights = [replica.stack.weight for replica in replicas]
        for replica in replicas:
            if replica.stack.weight is None and any(weight is not None for weight in weights):
                problem = f"Other placements of {group!r} have a weight and this one has none: it would get no request."
                remedy = "Give every placement of the model a weight, or none."
                yield _found(plan.gateway, "weight_missing", "weight", problem, remedy, stack=replica.stack)
        if all(weight == 0 for weight in weights):
            problem = f"Every placement of {group!r} has weight 0."
            first = replicas[0].stack
            yield _found(plan.gateway, "weight_all_zero", "weight", problem, "Give one a weight.", stack=first)


def _check_contexts(plan: RoutePlan) -> Iterator[Finding]:
    for group in plan.groups:
        replicas = plan.replicas(group)
        if len({replica.max_input_tokens for replica in replicas}) > 1:
            said = ", ".join(f"{replica.id}: {replica.max_input_tokens or 'not set'}" for replica in replicas)
            problem = f"Placements of {group!r} take contexts of different lengths ({said})."
            remedy = "Give them one max_model_len, or name the shorter one apart."
            first = replicas[0].stack
            yield _found(plan.gateway, "replica_context_differs", "args.max_model_len", problem, remedy, WARNING, first)


def _check_keys(gateway: Gateway, models: Mapping[str, Model]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    names: set[str] = set()
    known = {*models, *gateway.aliases}
    for position, client in enumerate(gateway.keys):
        key = f"keys[{position}]"
        if client.name in names:
            problem = f"The name {client.name!r} is given twice."
            yield _found(gateway, "client_key_name_twice", f"{key}.name", problem, "Give every key its own name.")
        names.add(client.name)
        if client.key == gateway.master_key:
            problem = f"The key of {client.name!r} is the master key."
            remedy = "Make a key of its own: the master key is for operators."
            yield _found(gateway, "client_key_is_master", f"{key}.key", problem, remedy)
        elif client.key in seen:
            problem = f"{client.name!r} has the same key as {seen[client.key]!r}."
            yield _found(gateway, "client_key_twice", f"{key}.key", problem, "Make a key for each client.")
        seen.setdefault(client.key, client.name)
        if len(client.key) < 16:
            problem = f"The key of {client.name!r} is shorter than 16 characters."
            yield _found(gateway, "client_key_weak", f"{key}.key", problem, "Make one with `openssl rand -hex 24`.")
        for model in client.models:
            if model not in known:
                near = nearest(model, known)
                problem = f"{client.name!r} may use {model!r}, which is no model and no alias."
                remedy = f"Did you mean {near!r}?" if near else f"Known are: {', '.join(sorted(known)) or 'none'}."
                yield _found(gateway, "client_key_model_unknown", f"{key}.models", problem, remedy)
    if gateway.keys and gateway.database_url:
        problem = "keys and database_url exclude each other: with a database LiteLLM keeps its own keys."
        yield _found(gateway, "client_keys_and_database", "keys", problem, "Remove one of the two.")
    if gateway.database_url and not re.match(r"postgres(ql)?://", gateway.database_url):
        problem = "database_url is no PostgreSQL address."
        remedy = "LiteLLM keeps keys in PostgreSQL only: postgresql://user:password@host:5432/name."
        yield _found(gateway, "gateway_database_url", "database_url", problem, remedy)


def _check_addresses(fleet: Fleet, gateway: Gateway) -> Iterator[Finding]:
    for host, where in gateway.addresses.items():
        if host not in fleet.hosts:
            near = nearest(host, fleet.hosts)
            problem = f"{host!r} is no host with stacks."
            remedy = f"Did you mean {near!r}?" if near else "Remove it."
            yield _found(gateway, "address_host_unknown", f"addresses.{host}", problem, remedy)
        if "/" in where or re.fullmatch(r"[^:]+:\d+", where):
            problem = f"{where!r} is more than an address."
            remedy = "Write a name or an IP address alone; the port is the stack's."
            yield _found(gateway, "address_not_plain", f"addresses.{host}", problem, remedy)


def _check_settings(gateway: Gateway) -> Iterator[Finding]:
    for name, value in gateway.settings.items():
        key = f"settings.{name}"
        if name in OWNED_ROUTER_KEYS:
            problem = f"{name} is made from the inventory."
            yield _found(gateway, "router_setting_owned", key, problem, f"Use {OWNED_ROUTER_KEYS[name]}.")
        elif name not in ROUTER_KEYS:
            near = nearest(name, ROUTER_KEYS)
            problem = f"{name} is no router setting; LiteLLM would ignore it silently."
            remedy = f"Did you mean {near!r}?" if near else f"Known are: {', '.join(sorted(ROUTER_KEYS))}."
            yield _found(gateway, "router_setting_unknown", key, problem, remedy)
        elif name == "routing_strategy" and value not in ROUTING_STRATEGIES:
            near = nearest(str(value), ROUTING_STRATEGIES)
            problem = f"{value!r} is no routing strategy."
            remedy = f"Did you mean {near!r}?" if near else f"Known are: {', '.join(ROUTING_STRATEGIES)}."
            yield _found(gateway, "routing_strategy_unknown", key, problem, remedy)
        elif name in ROUTER and type(value) is not type(ROUTER[name]):
            problem = f"{value!r} is a {type(value).__name__}, {name} is a {type(ROUTER[name]).__name__}."
            yield _found(gateway, "router_setting_type", key, problem, f"The tested value is {ROUTER[name]!r}.")


def _check_times(gateway: Gateway) -> Iterator[Finding]:
    if gateway.stream_timeout > gateway.timeout:
        problem = f"stream_timeout ({gateway.stream_timeout} s) is longer than timeout ({gateway.timeout} s)."
        remedy = "stream_timeout is how long the first piece of a stream may take: make it the shorter one."
        yield _found(gateway, "gateway_stream_timeout", "stream_timeout", problem, remedy)


# --- the files ------------------------------------------------------------------------------------------------------


def litellm_config(plan: RoutePlan, settings: GatewaySettings, blocked: Iterable[str] = ()) -> dict[str, Any]:
    """LiteLLM's config.yaml. ``blocked``: ids of routes that get no request while their backend is replaced."""
    gateway = plan.gateway
    stopped = frozenset(blocked)
    router = {**ROUTER, **gateway.settings}
    for name, fallbacks in (
        ("fallbacks", gateway.fallbacks),
        ("context_window_fallbacks", gateway.context_window_fallbacks),
    ):
        if fallbacks:
            router[name] = [{source: list(targets)} for source, targets in sorted(fallbacks.items())]
    if gateway.aliases:
        router["model_group_alias"] = dict(sorted(gateway.aliases.items()))
    general: dict[str, Any] = {
        "master_key": "os.environ/LITELLM_MASTER_KEY",
        "background_health_checks": True,
        "health_check_interval": settings.health_interval,
        "health_check_concurrency": 4,
        "background_health_check_model_groups": list(plan.groups),
        "cancel_on_disconnect": True,  # a client that leaves frees the GPU
        "disable_spend_logs": True,
    }
    if gateway.database_url:
        general["database_url"] = "os.environ/DATABASE_URL"
        general["store_model_in_db"] = False  # rows there would override the routes of the inventory
    else:
        general["custom_auth"] = "client_keys.user_api_key_auth"
        general["custom_auth_run_common_checks"] = True
    if plan.pass_throughs:
        general["pass_through_endpoints"] = [endpoint.as_litellm() for endpoint in plan.pass_throughs]
    config: dict[str, Any] = {
        "model_list": [deployment.as_litellm(gateway, deployment.id in stopped) for deployment in plan.deployments],
        "litellm_settings": {
            "drop_params": True,
            "request_timeout": gateway.timeout,
            "json_logs": True,
            "turn_off_message_logging": True,
        },
        "router_settings": router,
        "general_settings": general,
    }
    if _credentials(plan):
        config["include"] = ["secrets.yaml"]
    return config


def _credentials(plan: RoutePlan) -> list[dict[str, Any]]:
    return [
        {
            "credential_name": deployment.id,
            "credential_values": {"api_key": deployment.stack.api_key},
            "credential_info": {"description": f"engine {deployment.stack.name} on {deployment.stack.host}"},
        }
        for deployment in plan.deployments
        if deployment.stack.api_key
    ]


def client_keys(gateway: Gateway) -> dict[str, Any]:
    """keys.json: what the gateway needs to know a client by, without the key itself."""
    return {
        hashlib.sha256(client.key.encode()).hexdigest(): {
            "name": client.name,
            "models": list(client.models),
            "rpm": client.rpm,
        }
        for client in gateway.keys
    }


def environment(plan: RoutePlan) -> dict[str, str]:
    """The gateway's secrets: they stand in .env and nowhere else."""
    secrets = {"LITELLM_MASTER_KEY": plan.gateway.master_key}
    if plan.gateway.database_url:
        secrets["DATABASE_URL"] = plan.gateway.database_url
    for endpoint in plan.pass_throughs:
        if endpoint.stack.api_key:
            secrets[endpoint.key_variable] = endpoint.stack.api_key
    return secrets


def unblocked_replicas(plan: RoutePlan, blocked: Iterable[str]) -> Mapping[str, int]:
    """How many routes each model would have left: a group at 0 answers 403 while its last replica is replaced."""
    stopped = frozenset(blocked)
    left: dict[str, int] = defaultdict(int)
    for deployment in plan.deployments:
        left[deployment.model_name] += deployment.id not in stopped
    return dict(left)


def digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
