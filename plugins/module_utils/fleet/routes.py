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
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

from . import known_problems, options
from .errors import ERROR, WARNING, Finding, nearest
from .model import Fleet, Gateway, Model, Stack

MODES = {"chat": "chat", "embed": "embedding", "rerank": "rerank"}
PASSED_THROUGH = ("classify", "reward")  # LiteLLM has no route of its own for these tasks

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
ROUTER_KEYS = (*ROUTER, "optional_pre_call_checks", "redis_host", "redis_port", "redis_password")
NAMED_VALUES: Mapping[str, Sequence[str]] = {
    "routing_strategy": ROUTING_STRATEGIES,
    "optional_pre_call_checks": ("session_affinity", "enforce_model_rate_limits", "prompt_caching"),
}
ALLOWED_FAILS = (
    "BadRequestErrorAllowedFails",
    "AuthenticationErrorAllowedFails",
    "TimeoutErrorAllowedFails",
    "RateLimitErrorAllowedFails",
    "NotFoundErrorAllowedFails",
    "ContentPolicyViolationErrorAllowedFails",
)
OWNED_ROUTER_KEYS = {
    "fallbacks": "fallbacks",
    "context_window_fallbacks": "context_window_fallbacks",
    "default_fallbacks": "fallbacks",
    "model_group_alias": "aliases",
    "model_list": "the stacks of the hosts",
}
OWNED_COMPOSE_KEYS = {
    "image": "image, the name of one of fleet_images",
    "build": "image, the name of one of fleet_images",
    "container_name": "litellm_gateway_project",
    "command": "settings",
    "entrypoint": "an image whose entrypoint is litellm",
    "env_file": "environment",
    "user": "litellm_gateway_user",
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
    return list(_Check(fleet, gateway).findings())


class _Check:
    def __init__(self, fleet: Fleet, gateway: Gateway) -> None:
        self.fleet = fleet
        self.gateway = gateway
        self.plan = make(fleet, gateway)
        self.models: dict[str, Model] = {}
        for stack in _stacks(fleet):
            self.models.setdefault(stack.served_model_name, stack.model)
        where = "group_vars" if len(fleet.gateways) > 1 else f"variables of {gateway.host}"
        self.where = f"{where}: fleet_gateway"

    def findings(self) -> Iterator[Finding]:
        yield from self._image()
        yield from self._aliases()
        yield from self._fallbacks("fallbacks", self.gateway.fallbacks)
        yield from self._fallbacks("context_window_fallbacks", self.gateway.context_window_fallbacks)
        yield from self._replicas()
        yield from self._keys()
        yield from self._addresses()
        yield from self._settings()
        yield from self._compose()
        yield from self._instances()
        if self.gateway.stream_timeout > self.gateway.timeout:
            problem = f"is {self.gateway.stream_timeout} s, longer than timeout ({self.gateway.timeout} s)."
            remedy = "It is how long the first piece of a stream may take: make it the shorter one."
            yield self._found("gateway_stream_timeout", "stream_timeout", problem, remedy)

    def _found(self, code: str, key: str, problem: str, remedy: str, severity: str = ERROR) -> Finding:
        return Finding(code, f"{self.where}.{key}", problem, remedy, severity, self.gateway.host)

    @staticmethod
    def _of_stack(code: str, stack: Stack, key: str, problem: str, remedy: str, severity: str = ERROR) -> Finding:
        return Finding(code, f"{stack.place}.{key}", problem, remedy, severity, stack.host, stack.name)

    def _image(self) -> Iterator[Finding]:
        image = self.gateway.image
        if image.tag in FLOATING_TAGS:
            problem = f"is {image.name}, whose tag {image.tag} moves."
            remedy = "Write the tag of a release (vX.Y.Z) and its digest."
            yield self._found("gateway_image_floating_tag", "image", problem, remedy)
        if known_problems.gateway_compromised(self.gateway):
            problem = f"names LiteLLM {image.engine or image.digest}, a compromised release."
            remedy = "Pin another release by digest, and change every key the old gateway has seen."
            yield self._found("gateway_compromised", "image", problem, remedy)
        elif not known_problems.version(image.engine):
            problem = f"is {image.name}, which does not say which LiteLLM is inside."
            remedy = f"Set engine: in fleet_images.{image.name} to LiteLLM's version."
            yield self._found("gateway_version_missing", "image", problem, remedy, WARNING)
        elif known_problems.version(image.engine) < OLDEST_VERSION:
            problem = f"names LiteLLM {image.engine}, older than {'.'.join(map(str, OLDEST_VERSION))}."
            remedy = "Older releases have known holes and lose requests at a reload: use the newest 1.108 release."
            yield self._found("gateway_too_old", "image", problem, remedy, WARNING)

    def _instances(self) -> Iterator[Finding]:
        if self.gateway.instances > 1 and self.gateway.balancer is None:
            problem = f"is missing, and litellm_gateway_instances of {self.gateway.host} is {self.gateway.instances}."
            remedy = "Name an image of HAProxy in fleet_images, or set litellm_gateway_instances to 1."
            yield self._found("gateway_balancer_missing", "balancer", problem, remedy)

    def _aliases(self) -> Iterator[Finding]:
        for alias, target in self.gateway.aliases.items():
            key = f"aliases.{alias}"
            if alias in self.models:
                yield self._found("alias_taken", key, "is the name of a model.", "Choose another alias.")
            if target not in self.plan.groups:
                yield self._no_route("alias_unknown", key, target, self.plan.groups)

    def _no_route(self, code: str, key: str, name: str, known: Iterable[str]) -> Finding:
        if name in self.models:
            task = self.models[name].task
            problem = f"names {name}, a {task} model: the gateway passes it through and cannot stand it in."
            return self._found("target_passed_through", key, problem, f"Clients use the path /{task}/{name}.")
        if name in self.fleet.models:
            problem = f"names {name}, which no stack of the fleet runs."
            return self._found(code, key, problem, "Place it in fleet_stacks, or name another model.")
        match = nearest(name, known)
        remedy = f'Did you mean "{match}"?' if match else "Name a placed model."
        return self._found(code, key, f"names {name}, which is not a route.", remedy)

    def _fallbacks(self, kind: str, fallbacks: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
        routed = {*self.plan.groups, *self.gateway.aliases}
        for name, others in fallbacks.items():
            if name not in routed:
                yield self._no_route("fallback_unknown", f"{kind}.{name}", name, sorted(routed))
            source = self.models.get(self.gateway.aliases.get(name, name))
            for position, other in enumerate(others):
                key = f"{kind}.{name}[{position}]"
                target = self.models.get(self.gateway.aliases.get(other, other))
                if other not in routed:
                    yield self._no_route("fallback_unknown", key, other, sorted(routed))
                elif self.gateway.aliases.get(other, other) == self.gateway.aliases.get(name, name):
                    yield self._found("fallback_to_itself", key, f"is {name} itself.", "Name another model.")
                elif name in routed and source and target:
                    yield from self._stand_in(kind, key, name, other, source, target)

    def _stand_in(self, kind: str, key: str, name: str, other: str, source: Model, target: Model) -> Iterator[Finding]:
        if source.task != target.task:
            problem = f"is {other} ({target.task}), which cannot answer for {name} ({source.task})."
            yield self._found("fallback_other_task", key, problem, "Name a model of the same task.")
            return
        lost = [modality for modality in source.modalities if modality not in target.modalities]
        if lost:
            problem = f"is {other}, which takes no {' and no '.join(lost)}: such requests fail when it stands in."
            yield self._found("fallback_loses_modality", key, problem, "Name a model that takes them.", WARNING)
        short, long = self._context(source.name), self._context(target.name)
        if kind == "context_window_fallbacks" and short and long and long <= short:
            problem = f"is {other} with {long} tokens of context, no more than {name} with {short}."
            yield self._found("fallback_context_not_longer", key, problem, "Name a model with a longer context.")

    def _context(self, model_name: str) -> Optional[int]:
        known = [each.max_input_tokens for each in self.plan.replicas(model_name) if each.max_input_tokens]
        return min(known) if known else None

    def _replicas(self) -> Iterator[Finding]:
        for group in self.plan.groups:
            stacks = [replica.stack for replica in self.plan.replicas(group)]
            weighted = [stack for stack in stacks if stack.weight is not None]
            others = ", ".join(f"{stack.name} on {stack.host}" for stack in weighted)
            for stack in stacks if weighted else ():
                if stack.weight is None:
                    problem = f"is missing, but replicas of {group} have one ({others}): it would get no traffic."
                    yield self._of_stack("weight_missing", stack, "weight", problem, "Give all of them one, or none.")
            if len(weighted) == len(stacks) and not any(stack.weight for stack in stacks):
                problem = f"is 0, as in every replica of {group}: LiteLLM would then use all of them alike."
                yield self._of_stack("weight_all_zero", stacks[0], "weight", problem, "Give one of them a weight.")
            lengths = {each.max_input_tokens for each in self.plan.replicas(group) if each.max_input_tokens}
            if len(lengths) > 1:
                said = ", ".join(f"{each.id} {each.max_input_tokens or 'unset'}" for each in self.plan.replicas(group))
                problem = f"differs among the replicas of {group} ({said}): long requests fail at random."
                remedy = "Give them one length, or the shorter one a name of its own in fleet_models."
                yield self._of_stack(
                    "replica_context_differs", stacks[0], "args.max_model_len", problem, remedy, WARNING
                )

    def _keys(self) -> Iterator[Finding]:
        known = [*self.models, *self.gateway.aliases]
        for position, client in enumerate(self.gateway.keys):
            if client.key == self.gateway.master_key:
                remedy = "Make a key of its own: the master key is for operators."
                yield self._found("gateway_key_is_master", f"keys[{position}].key", "is the master key.", remedy)
            for name in client.models:
                if name not in known:
                    yield self._no_route("key_model_unknown", f"keys[{position}].models", name, known)
        if self.gateway.keys and self.gateway.database_url:
            problem = "are given, and database_url too: with a database LiteLLM keeps its own keys."
            yield self._found("gateway_keys_and_database", "keys", problem, "Remove one of the two.")

    def _addresses(self) -> Iterator[Finding]:
        for host, where in self.gateway.addresses.items():
            key = f"addresses.{host}"
            known = (*self.fleet.hosts, *self.fleet.gateways)
            if host not in known:
                match = nearest(host, known)
                remedy = f'Did you mean "{match}"?' if match else "Name a host of the group gpu_hosts, or a gateway."
                yield self._found("address_unknown", key, "is not a host of the fleet.", remedy)
            elif not re.fullmatch(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?", where):
                problem = f"is {where}, more than an address."
                remedy = "Write a name or an IP address alone; the port is the stack's."
                yield self._found("address_malformed", key, problem, remedy)

    def _compose(self) -> Iterator[Finding]:
        for key in self.gateway.compose:
            if key in OWNED_COMPOSE_KEYS:
                problem = "is decided elsewhere."
                yield self._found("compose_owned", f"compose.{key}", problem, f"Use {OWNED_COMPOSE_KEYS[key]}.")

    def _settings(self) -> Iterator[Finding]:
        for name, value in self.gateway.settings.items():
            key = f"settings.{name}"
            if name in OWNED_ROUTER_KEYS:
                problem = "is made from the inventory."
                yield self._found("router_setting_owned", key, problem, f"Use {OWNED_ROUTER_KEYS[name]}.")
            elif name not in ROUTER_KEYS:
                match = nearest(name, ROUTER_KEYS)
                remedy = f'Did you mean "{match}"?' if match else f"Known are: {', '.join(sorted(ROUTER_KEYS))}."
                problem = "is no router setting that we know; LiteLLM would ignore it silently."
                yield self._found("router_setting_unknown", key, problem, remedy)
            elif name in NAMED_VALUES:
                values = value if isinstance(value, (list, tuple)) else [value]
                for wrong in [one for one in values if one not in NAMED_VALUES[name]]:
                    match = nearest(str(wrong), NAMED_VALUES[name])
                    known = f"Known are: {', '.join(NAMED_VALUES[name])}."
                    remedy = f'Did you mean "{match}"?' if match else known
                    yield self._found("router_setting_value", key, f"is {wrong!r}.", remedy)
            elif name in ROUTER and type(value) is not type(ROUTER[name]):
                problem = f"is {value!r}; it must be of the kind of {ROUTER[name]!r}."
                yield self._found("router_setting_type", key, problem, "Write it without quotes.")
            elif name == "allowed_fails_policy":
                yield from self._allowed_fails(key, value)
            elif isinstance(value, (int, float)) and value < 0:
                yield self._found("router_setting_value", key, f"is {value}.", "It cannot be negative.")

    def _allowed_fails(self, key: str, policy: Mapping[str, Any]) -> Iterator[Finding]:
        for name, value in policy.items():
            if name == "InternalServerErrorAllowedFails":
                problem = "takes the guard away that keeps a model with one replica out of cooldown."
                yield self._found("router_setting_value", f"{key}.{name}", problem, "Remove it.")
            elif name not in ALLOWED_FAILS:
                match = nearest(name, ALLOWED_FAILS)
                remedy = f'Did you mean "{match}"?' if match else f"Known are: {', '.join(ALLOWED_FAILS)}."
                problem = "is no kind of failure; LiteLLM would ignore it silently."
                yield self._found("router_setting_unknown", f"{key}.{name}", problem, remedy)
            elif isinstance(value, bool) or not isinstance(value, int):
                yield self._found("router_setting_type", f"{key}.{name}", f"is {value!r}.", "Write a whole number.")


# --- the files ------------------------------------------------------------------------------------------------------


def _by_every_name(aliases: Mapping[str, str], fallbacks: Mapping[str, Sequence[str]]) -> list[dict[str, list[str]]]:
    """LiteLLM looks a stand-in up by the name that the client used: a model's aliases need an entry of their own."""
    stand_ins = {
        aliases.get(source, source): [aliases.get(target, target) for target in targets]
        for source, targets in fallbacks.items()
    }
    stand_ins.update({alias: stand_ins[model] for alias, model in aliases.items() if model in stand_ins})
    return [{source: targets} for source, targets in sorted(stand_ins.items())]


def litellm_config(plan: RoutePlan, health_interval: int, blocked: Iterable[str] = ()) -> dict[str, Any]:
    """LiteLLM's config.yaml. ``blocked``: ids of routes that get no request while their backend is replaced.

    ``health_interval``: seconds between two probes of a route.
    """
    gateway = plan.gateway
    stopped = frozenset(blocked)
    router = {**ROUTER, **gateway.settings}
    if router.get("redis_password"):
        router["redis_password"] = "os.environ/REDIS_PASSWORD"
    for name, fallbacks in (
        ("fallbacks", gateway.fallbacks),
        ("context_window_fallbacks", gateway.context_window_fallbacks),
    ):
        if fallbacks:
            router[name] = _by_every_name(gateway.aliases, fallbacks)
    if gateway.aliases:
        router["model_group_alias"] = dict(sorted(gateway.aliases.items()))
    general: dict[str, Any] = {
        "master_key": "os.environ/LITELLM_MASTER_KEY",
        "background_health_checks": True,
        "health_check_interval": health_interval,
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
    if credentials(plan):
        config["include"] = ["secrets.yaml"]
    return config


def credentials(plan: RoutePlan) -> list[dict[str, Any]]:
    """The keys of the engines, for a file of its own: there they are read again at a reload, in .env they are not."""
    return [
        {
            "credential_name": deployment.id,
            "credential_values": {"api_key": deployment.stack.api_key},
            "credential_info": {"description": f"engine {deployment.stack.name} on {deployment.stack.host}"},
        }
        for deployment in plan.deployments
        if deployment.stack.api_key
    ]


def client_keys(plan: RoutePlan) -> dict[str, Any]:
    """keys.json: what the gateway needs to know a client by, without the key itself.

    Who may use a model may use it by its aliases too; ``paths`` are the passed-through ones
    of those models.
    """
    gateway = plan.gateway
    known = {}
    for client in gateway.keys:
        allowed = {*client.models, *(alias for alias, target in gateway.aliases.items() if target in client.models)}
        known[hashlib.sha256(client.key.encode()).hexdigest()] = {
            "name": client.name,
            "models": sorted(allowed),
            "paths": [
                each.path for each in plan.pass_throughs if not allowed or each.stack.served_model_name in allowed
            ],
            "rpm": client.rpm,
        }
    return known


def environment(plan: RoutePlan) -> dict[str, str]:
    """The gateway's secrets: they stand in .env and nowhere else."""
    secrets = {"LITELLM_MASTER_KEY": plan.gateway.master_key}
    if plan.gateway.database_url:
        secrets["DATABASE_URL"] = plan.gateway.database_url
    if plan.gateway.settings.get("redis_password"):
        secrets["REDIS_PASSWORD"] = str(plan.gateway.settings["redis_password"])
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


def stand_ins(plan: RoutePlan, model_name: str) -> tuple[str, ...]:
    """Who answers when every replica of this model is away; a fallback may be declared for the model or an alias."""
    named = plan.gateway.aliases
    declared = {named.get(model, model): others for model, others in plan.gateway.fallbacks.items()}
    return tuple(declared.get(model_name, ()))
