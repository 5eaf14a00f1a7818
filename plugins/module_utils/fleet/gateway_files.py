# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway as files on its host, and what of a live gateway is not as they say.

Everything below ``config/`` is mounted as a folder and read again at a reload, which loses no request. Everything else
(image, service, ``.env``) needs another container; the label ``modelfleet.hash`` tells the two apart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Iterable, Mapping, Optional, Sequence

from . import compose, drift, routes, yaml_text
from .drift import Difference, LiveFile
from .errors import WARNING, Finding
from .rendered import LABEL_HASH, RenderedFile
from .routes import RoutePlan

PROJECT = "litellm"
LABEL_GATEWAY = "modelfleet.gateway"
CONFIG_FOLDER = "/etc/litellm"
PORT = 4000  # inside the container
FRONT = "litellm-front"  # HAProxy, where there are several instances
FRONT_CONFIG = "front/haproxy.cfg"
FRONT_SOCKET = "run/haproxy.sock"  # below the folder: who gets requests is said there
MANAGED = (
    "compose.yaml",
    ".env",
    "config/config.yaml",
    "config/secrets.yaml",
    "config/client_keys.py",
    "config/keys.json",
    FRONT_CONFIG,
)
RELOAD = "reload"  # beside drift's actions: the workers take turns, and no request is lost
ORDER = (drift.REPORT, drift.WRITE, drift.ASK, drift.WAIT, RELOAD, drift.START, drift.RECREATE, drift.CREATE)
REPLACES = (drift.START, drift.RECREATE, drift.CREATE)


@dataclass(frozen=True)
class GatewaySettings:
    """The ``litellm_gateway_*`` variables of the role."""

    root: str = "/opt/docker/compose"
    listen: str = "0.0.0.0"
    workers: int = 2  # one worker alone dies at a reload; two take turns
    user: str = "10001:10001"
    memory_limit: str = "3g"
    health_interval: int = 30  # seconds between two probes of a route
    drain_seconds: int = 600  # how long a stream may go on after its worker was told to leave
    restart: str = "unless-stopped"
    timeout: int = 300  # seconds until a start or a reload must be through
    instances: int = 1  # two behind HAProxy are replaced one after another, and no request is lost


@dataclass(frozen=True)
class Route:
    """What a running gateway must say of a route, and how to ask the engine behind it directly."""

    id: str
    model_name: str
    mode: str
    supports_vision: Optional[bool]
    url: str  # of the engine, without /v1
    api_key: str
    host: str
    stack: str
    blocked: bool  # gets no request, because its engine is being replaced


@dataclass(frozen=True)
class Asked:
    """One name that clients use, with the questions for it. ``path`` is put before the questions' own paths."""

    name: str
    path: str
    asks: Mapping[str, Any]
    route_ids: tuple[str, ...]  # who may answer
    alias_of: str = ""
    stand_ins: tuple[str, ...] = ()  # who may answer when none of those can


@dataclass(frozen=True)
class RenderedGateway:
    """Everything the host needs to know about its gateway; crosses the wire as plain JSON."""

    host: str
    directory: str
    container: str
    image: str
    url: str  # as seen from the host itself
    user: str
    timeout: int
    workers: int
    drain_seconds: int
    files: Mapping[str, RenderedFile]
    service_definition: Mapping[str, Any]
    hash: str  # of what the container is
    config_mark: str  # what /model/info says when the configuration is the one that was read
    models: int  # what LiteLLM counts when it validates: routes, and once more those behind each alias
    routes: tuple[Route, ...]
    asked: tuple[Asked, ...]
    smallest_context: tuple[str, int]  # name of a chat model and its length in tokens; ("", 0): none is known
    replaced_on_overflow: tuple[str, ...]  # models for which another answers when a request is too long
    master_key: str
    clients: tuple[Mapping[str, Any], ...]  # name, key, models
    secrets: tuple[str, ...]
    instances: tuple[str, ...] = (PROJECT,)  # containers of LiteLLM
    front_image: str = ""  # empty: there is one instance, which clients reach directly
    front_hash: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(sorted(route.id for route in self.routes))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON. It holds the secrets: only for a parameter that is never logged."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RenderedGateway:
        values = dict(data)
        values["files"] = {name: RenderedFile(**file) for name, file in values["files"].items()}
        values["routes"] = tuple(Route(**route) for route in values["routes"])
        values["asked"] = tuple(
            Asked(**{**asked, "route_ids": tuple(asked["route_ids"]), "stand_ins": tuple(asked["stand_ins"])})
            for asked in values["asked"]
        )
        for name in ("smallest_context", "replaced_on_overflow", "clients", "secrets", "instances"):
            values[name] = tuple(values[name])
        return cls(**values)


def render(
    plan: RoutePlan, settings: GatewaySettings, client_keys_module: str, blocked: Iterable[str] = ()
) -> RenderedGateway:
    """The files of this gateway. ``client_keys_module``: the source of client_keys.py, which ships with the role."""
    gateway = plan.gateway
    stopped = frozenset(blocked)
    directory = f"{settings.root.rstrip('/')}/{PROJECT}"
    listen = gateway.listen or settings.listen
    environment = routes.environment(plan)
    config = routes.litellm_config(plan, settings.health_interval, stopped)
    credentials = routes.credentials(plan)
    # Keyed, because whoever may list the models can read it.
    read_at_reload = _json([config, credentials, client_keys_module])
    mark = hmac.new(gateway.master_key.encode(), read_at_reload, hashlib.sha256).hexdigest()[:12]
    if config["model_list"]:
        config["model_list"][0]["model_info"]["modelfleet_config"] = mark

    service = base_service(gateway.image.reference, gateway.port, listen, settings, directory)
    front, front_config = None, ""
    if settings.instances > 1 and gateway.balancer:  # routes.check refuses the one without the other
        front = front_service(gateway.balancer.reference, service["ports"], settings, directory)
        del service["ports"]
        front_config = haproxy_config(_instances(settings.instances), gateway.timeout)
    service = compose.merge(service, gateway.compose)
    digest = hashlib.sha256(_json([service, environment])).hexdigest()
    front_hash = hashlib.sha256(_json([front, front_config])).hexdigest() if front else ""
    service["labels"] = {
        **service.get("labels", {}),
        LABEL_GATEWAY: gateway.host,
        LABEL_HASH: digest,
    }
    services = {name: {**service, "container_name": name} for name in _instances(settings.instances)}
    if front:
        services[FRONT] = {**front, "labels": {LABEL_GATEWAY: gateway.host, LABEL_HASH: front_hash}}

    header = [
        "Written by modelfleet.inference. Do not edit here: the next run puts it back.",
        f"Edit fleet_gateway of {gateway.host}; routes come from fleet_stacks of all hosts.",
    ]
    comments = "".join(f"# {line}\n" for line in header)
    files = {
        "compose.yaml": RenderedFile(
            yaml_text.dump(
                {"name": PROJECT, "services": {name: compose.escaped(each) for name, each in services.items()}}, header
            )
        ),
        ".env": RenderedFile(
            comments + "".join(f"{name}={compose.env_quoted(value)}\n" for name, value in sorted(environment.items())),
            "0600",
            secret=True,
        ),
        "config/config.yaml": RenderedFile(yaml_text.dump(config, header)),
    }
    if credentials:
        files["config/secrets.yaml"] = RenderedFile(
            yaml_text.dump({"credential_list": credentials}, header), "0640", secret=True
        )
    if front:
        files[FRONT_CONFIG] = RenderedFile(comments + front_config)
    if not gateway.database_url:
        files["config/client_keys.py"] = RenderedFile(client_keys_module)
        keys = json.dumps(routes.client_keys(plan), indent=2, sort_keys=True) + "\n"
        files["config/keys.json"] = RenderedFile(keys, "0640", secret=True)

    secrets = {*environment.values(), *(client.key for client in gateway.keys)}
    secrets |= {each["credential_values"]["api_key"] for each in credentials}
    contexts = [
        (each.max_input_tokens, each.model_name)
        for each in plan.deployments
        if each.mode == "chat" and each.max_input_tokens
    ]
    length, shortest = min(contexts, default=(0, ""))
    return RenderedGateway(
        host=gateway.host,
        directory=directory,
        container=PROJECT,
        image=gateway.image.reference,
        url=f"http://{'127.0.0.1' if listen in compose.EVERY_ADDRESS else compose.bracketed(listen)}:{gateway.port}",
        user=settings.user,
        timeout=settings.timeout,
        workers=settings.workers,
        drain_seconds=settings.drain_seconds,
        files=files,
        service_definition=service,
        hash=digest,
        config_mark=mark if config["model_list"] else "",
        models=len(plan.deployments) + sum(len(plan.replicas(target)) for target in gateway.aliases.values()),
        routes=tuple(
            Route(
                each.id,
                each.model_name,
                each.mode,
                "image" in each.stack.model.modalities if each.mode == "chat" else None,
                each.api_base[: -len("/v1")],
                each.stack.api_key,
                each.stack.host,
                each.stack.name,
                each.id in stopped,
            )
            for each in plan.deployments
        ),
        asked=tuple(_asked(plan, stopped)),
        smallest_context=(shortest, length),
        replaced_on_overflow=tuple({*gateway.fallbacks, *gateway.context_window_fallbacks}),
        master_key=gateway.master_key,
        clients=tuple(
            {"name": each.name, "key": each.key, "models": list(each.models)}
            for each in (() if gateway.database_url else gateway.keys)
        ),
        secrets=tuple(sorted(secret for secret in secrets if secret)),
        instances=_instances(settings.instances),
        front_image=gateway.balancer.reference if front and gateway.balancer else "",
        front_hash=front_hash,
    )


def _instances(count: int) -> tuple[str, ...]:
    return (PROJECT, *(f"{PROJECT}-{number}" for number in range(2, count + 1)))


def _asked(plan: RoutePlan, blocked: frozenset[str]) -> Iterable[Asked]:
    """Every model once, then every alias with a single question: it is the same model."""
    first = {}
    for group in plan.groups:
        replicas = plan.replicas(group)
        if all(replica.id in blocked for replica in replicas):
            continue
        # The gateway lists no context length, so that question is for the engine itself.
        first[group] = {**compose.asks(replicas[0].stack), "max_model_len": None}
        yield Asked(group, "", first[group], tuple(replica.id for replica in replicas), "", _stand_ins(plan, group))
    for alias, target in plan.gateway.aliases.items():
        if target in first:
            asks = {**first[target], "checks": [], "questions": ["text"] if first[target]["task"] == "chat" else []}
            if "image" in first[target]["modalities"]:
                asks["questions"] = ["image_number"]
            ids = tuple(replica.id for replica in plan.replicas(target))
            yield Asked(alias, "", asks, ids, target, _stand_ins(plan, target))
    for each in plan.pass_throughs:
        if each.path.endswith(f"/{each.stack.served_model_name}"):
            asks = {**compose.asks(each.stack), "max_model_len": None}
            yield Asked(each.stack.served_model_name, each.path, asks, ())


def _stand_ins(plan: RoutePlan, model_name: str) -> tuple[str, ...]:
    """Routes of the models that are declared as fallbacks of this one."""
    others = [plan.gateway.aliases.get(other, other) for other in routes.stand_ins(plan, model_name)]
    return tuple(replica.id for other in others for replica in plan.replicas(other))


def base_service(image: str, port: int, listen: str, settings: GatewaySettings, directory: str) -> dict[str, Any]:
    ready = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health/readiness', timeout=4)"
    return {
        "image": image,
        "container_name": PROJECT,
        "command": [
            *("--config", f"{CONFIG_FOLDER}/config.yaml"),
            *("--host", "0.0.0.0"),
            *("--port", str(PORT)),
            *("--num_workers", str(settings.workers)),
            # A new worker has this long to come up before the old one is kept. It takes 15 s on an idle machine and
            # more than 120 s on one whose processors are ten times over-subscribed.
            *("--timeout_worker_healthcheck", str(max(120, settings.timeout // 2))),
        ],
        "environment": {
            "DISABLE_ADMIN_UI": "True",
            "GRACEFUL_SHUTDOWN_TIMEOUT": str(settings.drain_seconds),
            "HOME": "/tmp",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or each start asks the internet for prices
            "NO_DOCS": "True",
            "NO_OPENAPI": "True",
            "NO_REDOC": "True",
        },
        "env_file": [".env"],
        "ports": [f"{compose.bracketed(listen or '0.0.0.0')}:{port}:{PORT}"],
        # The folder: after an atomic replace a mounted file would still be the old one.
        "volumes": [f"{directory}/config:{CONFIG_FOLDER}:ro"],
        "user": settings.user,
        "read_only": True,
        "tmpfs": ["/tmp:size=64m,mode=1777"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": settings.memory_limit,
        "healthcheck": {
            "test": ["CMD", "python3", "-c", ready],
            "interval": "10s",
            "timeout": "5s",
            "retries": 6,
            "start_period": "120s",
        },
        "restart": settings.restart,
        "stop_grace_period": f"{settings.drain_seconds + 20}s",
        "logging": {"driver": "json-file", "options": {"max-size": "20m", "max-file": "5"}},
    }


def front_service(image: str, ports: list[str], settings: GatewaySettings, directory: str) -> dict[str, Any]:
    return {
        "image": image,
        "container_name": FRONT,
        "command": ["haproxy", "-W", "-db", "-f", "/etc/haproxy/haproxy.cfg"],
        "ports": ports,
        "volumes": [f"{directory}/front:/etc/haproxy:ro", f"{directory}/run:/run/modelfleet"],
        "user": settings.user,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": "256m",
        "restart": settings.restart,
        # SIGUSR1 lets it finish what it carries; its own default, SIGTERM, cuts that off.
        "stop_signal": "SIGUSR1",
        "stop_grace_period": f"{settings.drain_seconds + 20}s",
        "logging": {"driver": "json-file", "options": {"max-size": "20m", "max-file": "5"}},
    }


def haproxy_config(instances: Sequence[str], timeout: int) -> str:
    """``timeout``: seconds a request may take."""
    servers = "".join(f"    server {name} {name}:{PORT}\n" for name in instances)
    return f"""\
global
    maxconn 4000
    stats socket /run/modelfleet/{FRONT_SOCKET.rpartition("/")[2]} mode 600 level admin
defaults
    mode http
    timeout connect 3s
    timeout check 5s
    timeout client {timeout + 20}s
    timeout server {timeout + 20}s
    timeout http-request 30s
    option redispatch
    retries 3
    # Only what surely has not arrived: a prompt that was sent twice would be answered twice.
    retry-on conn-failure
    http-reuse never
resolvers docker
    nameserver dns 127.0.0.11:53
    hold valid 1s
frontend clients
    bind :{PORT}
    default_backend {PROJECT}
backend {PROJECT}
    balance leastconn
    option httpchk GET /health/readiness
    http-check expect status 200
    # A new container may have another address.
    default-server check inter 1s fall 3 rise 1 resolvers docker init-addr last,libc,none
{servers}"""


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")


# --- what is not as wanted ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """What the running gateway says of itself. ``answers``: one entry for each time it was asked /model/info.

    ``probes``: likewise of /health, what each worker's own requests to the engines came to a while ago.
    """

    status: int = 0  # of /health/readiness; 0: no connection
    answers: tuple[Sequence[Mapping[str, Any]], ...] = ()
    error: str = ""
    probes: tuple[Mapping[str, Any], ...] = ()

    @property
    def silence(self) -> str:
        """Why its routes cannot be seen; empty where they can."""
        return "" if self.status == 200 else self.error or f"HTTP {self.status}"


@dataclass(frozen=True)
class LiveGateway:
    files: Mapping[str, LiveFile] = field(default_factory=dict)
    container: Optional[Mapping[str, Any]] = None
    image: Optional[Mapping[str, Any]] = None
    wanted_image: Optional[Mapping[str, Any]] = None
    told: Optional[Told] = None  # None: not asked, because nothing runs
    receipt: Optional[Mapping[str, Any]] = None
    # The other containers of the project by name: more instances, the balancer, and what is there too much.
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def compare(rendered: RenderedGateway, live: LiveGateway, *, ask: bool = True) -> list[Difference]:
    """Every item that differs, with what a run does about it."""
    found = drift.Found(PROJECT)
    for name, wanted in rendered.files.items():
        there = live.files.get(name)
        # keys.json is read again by itself.
        action = RELOAD if name.startswith("config/") and name != "config/keys.json" else drift.WRITE
        if there is None:
            found.add(f"file {name}", "present", drift.ABSENT, action)
            continue
        if there.content != wanted.content:
            found.add(f"file {name}", "as rendered", drift.NOT_SHOWN if wanted.secret else "differs", action)
        found.unless_equal(f"file {name} mode", wanted.mode, there.mode, drift.WRITE)
    for name in (*MANAGED, *drift.UNWANTED):
        if name in live.files and name not in rendered.files:
            found.add(f"file {name}", drift.ABSENT, "present", drift.WRITE)
    if live.container is None:
        if live.wanted_image is None:
            found.add("image", rendered.image, "not on this host", drift.CREATE)
        found.add("container", rendered.container, drift.ABSENT, drift.CREATE)
        return found.differences
    have = (live.container["Config"].get("Labels") or {}).get(LABEL_HASH, drift.ABSENT)
    found.unless_equal("hash", rendered.hash[:12], have[:12], drift.RECREATE)
    if not drift.same_image(rendered.image, live.wanted_image, live.container, live.image):
        found.add("image", rendered.image, live.container["Config"].get("Image", ""), drift.RECREATE)
    state = live.container["State"]["Status"]
    found.unless_equal("state", "running", state, drift.START)
    for name in (*rendered.instances[1:], *([FRONT] if rendered.front_image else [])):
        other = live.beside.get(name)
        if other is None:
            found.add(f"container {name}", "running", drift.ABSENT, drift.CREATE)
            continue
        wanted_hash = rendered.front_hash if name == FRONT else rendered.hash
        have = (other["Config"].get("Labels") or {}).get(LABEL_HASH, drift.ABSENT)
        found.unless_equal(f"hash of {name}", wanted_hash[:12], have[:12], drift.RECREATE)
        found.unless_equal(f"state of {name}", "running", other["State"]["Status"], drift.START)
    for name in sorted(set(live.beside) - {*rendered.instances, FRONT if rendered.front_image else ""}):
        found.add(f"container {name}", drift.ABSENT, live.beside[name]["State"]["Status"], drift.RECREATE)
    if live.told is not None and state == "running":
        found.differences += differing(rendered, live.told)
    if ask and (live.receipt or {}).get("proof") != proof(rendered):
        found.add("receipt", "answered through the gateway", "no proof", drift.ASK)
    return found.differences


def differing(rendered: RenderedGateway, told: Told) -> list[Difference]:
    """What the running gateway routes otherwise; nothing when every answer of every worker is as planned."""
    found = drift.Found(PROJECT)
    if told.status != 200:
        have = f"HTTP {told.status}" if told.status else f"unreachable ({told.error})"
        found.add("readiness", "HTTP 200", have, drift.WAIT)
        return found.differences
    for answer in told.answers:
        entries = {str(entry["model_info"]["id"]): entry["model_info"] for entry in answer}
        marks = {info.get("modelfleet_config") for info in entries.values()} - {None}
        missing = [route.id for route in rendered.routes if route.id not in entries]
        extra = sorted(set(entries) - set(rendered.ids))
        overriding = sorted(name for name, info in entries.items() if info.get("db_model"))
        said = (
            [f"without {', '.join(missing)}"] * bool(missing)
            + [f"with {', '.join(extra)}"] * bool(extra)
            + [f"from the database: {', '.join(overriding)}"] * bool(overriding)
        )
        if said:
            found.add("routes", f"{len(rendered.ids)} as in the inventory", "; ".join(said), RELOAD)
        elif rendered.config_mark and marks != {rendered.config_mark}:
            found.add("configuration", rendered.config_mark, ", ".join(sorted(marks)) or drift.ABSENT, RELOAD)
        targets = {str(entry["model_info"]["id"]): entry.get("litellm_params") or {} for entry in answer}
        for route in rendered.routes:
            live = entries.get(route.id, {})
            for item, wanted in (("model", f"hosted_vllm/{route.model_name}"), ("api_base", f"{route.url}/v1")):
                have = targets.get(route.id, {}).get(item, wanted)
                found.unless_equal(f"route {route.id} {item}", wanted, have, RELOAD)
            if route.id in entries:
                found.unless_equal(f"route {route.id} blocked", route.blocked, bool(live.get("blocked")), RELOAD)
            if route.supports_vision is not None and route.id in entries:
                found.unless_equal(
                    f"route {route.id} supports_vision",
                    route.supports_vision,
                    bool(live.get("supports_vision")),
                    RELOAD,
                )
    return list(dict.fromkeys(found.differences))


def some_as_wanted(rendered: RenderedGateway, told: Told) -> bool:
    """Whether a worker routes as planned, whatever the others do."""
    return any(not differing(rendered, Told(told.status, (answer,))) for answer in told.answers)


@dataclass(frozen=True)
class Silent:
    """A route that LiteLLM sends no request, because its own probes of it fail."""

    route: Route
    api_base: str  # the one that is in use
    said: str  # by the probe


def silent(rendered: RenderedGateway, told: Told) -> list[Silent]:
    """Open routes of the inventory that failed the last probe of every worker that has probed them."""
    live = {str(entry["model_info"]["id"]): entry for answer in told.answers for entry in answer}
    good = {str(each.get("model_id")) for probe in told.probes for each in probe.get("healthy_endpoints") or ()}
    bad = {str(each.get("model_id")): each for probe in told.probes for each in probe.get("unhealthy_endpoints") or ()}
    found = []
    for route in rendered.routes:
        entry = live.get(route.id)
        if entry is None or entry["model_info"].get("blocked") or route.id in good or route.id not in bad:
            continue
        base = str((entry.get("litellm_params") or {}).get("api_base") or f"{route.url}/v1")
        found.append(Silent(route, base, _reason(str(bad[route.id].get("error") or ""))))
    return found


def _reason(error: str) -> str:
    """What LiteLLM says, without the names of its own exceptions before it and the traceback behind."""
    line = (error.splitlines() or [""])[0].rpartition("Exception - ")[2]
    line = re.sub(r" ssl:<[^>]*>| \[Connect call failed.*", "", line).strip()
    return line[:200] or "it does not say why"


def hazards(rendered: RenderedGateway, silences: Iterable[tuple[Silent, bool]]) -> list[Finding]:
    """Routes that get no request: no drift, because a run would change nothing of it.

    With each of them whether something answered at its address when it was asked from the gateway's host just now.
    """
    found = []
    for silence, answers in silences:
        route, place = silence.route, f"{rendered.host}: gateway"
        what = f"route {route.id} ({silence.api_base})"
        if answers:
            code = "route_cooled_down"
            problem = (
                f"{what} is answered now when {rendered.host} asks, and LiteLLM's last probe failed: {silence.said}. "
                "It gets no request until a probe succeeds."
            )
            remedy = (
                "Look again after litellm_gateway_health_interval seconds. If it stays: "
                f"`docker logs {rendered.container}` on {rendered.host}, and see what "
                f"stack {route.stack} on {route.host} answers to its api_key."
            )
        else:
            code = "route_to_nothing"
            problem = f"{what} leads to nothing: {silence.said}. It gets no request until a probe succeeds."
            remedy = (
                f"Look at stack {route.stack} on {route.host} (`systemctl status modelfleet-{route.stack}`). If it "
                f"answers there, correct fleet_gateway.addresses.{route.host}, or what is closed between the two."
            )
        found.append(Finding(code, place, problem, remedy, WARNING, rendered.host, route.stack))
    return found


def only_blocked(before: str, after: str) -> bool:
    """Whether two texts of config.yaml differ in nothing but which routes are blocked, and so in their mark."""

    def rest(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.strip().startswith(("blocked: ", "modelfleet_config: "))]

    return rest(before) == rest(after)


def proof(rendered: RenderedGateway) -> str:
    """What was asked about: another configuration or container must answer again."""
    return f"{rendered.hash[:12]} {rendered.config_mark}"


def step(differences: Iterable[Difference]) -> str:
    """The weightiest action; empty when there is nothing to do."""
    return max((each.action for each in differences), key=ORDER.index, default="")
