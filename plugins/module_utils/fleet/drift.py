# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a stack is not as the inventory wants it: files, container, engine, and the proof that it answered.

The same comparison serves a run, its check mode and the drift report, so that they cannot disagree. It reads what
Docker says of the container that runs, not what Compose would do: Compose looks at its own hash only and overlooks
what somebody changed by hand.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Iterable, Mapping, Optional, Sequence

from .receipt import kv_out_of_turn
from .rendered import LABEL_HASH, LABEL_STACK, RenderedStack
from .units import LiveUnit, unit_name

MANAGED = ("compose.yaml", "vllm.yaml", ".env")  # the files of a stack's folder that are ours
# Compose would read these too, or instead, so that a person's `docker compose up -d` meant something else than a run.
UNWANTED = tuple(
    f"{name}{override}.{ending}"
    for name in ("compose", "docker-compose")
    for override in ("", ".override")
    for ending in ("yaml", "yml")
    if (name, override, ending) != ("compose", "", "yaml")
)

# What a run does about a difference, the weightier the later. A stack's step is the weightiest of its differences.
REPORT = "report"  # nothing: the inventory does not know it and nobody asked to remove it
WRITE = "write"  # the file only; what runs does not read it
ADOPT = "adopt"  # its unit only: it runs, but would not be started again in its turn
ASK = "ask"  # it runs, but there is no proof that it answers
WAIT = "wait"  # it is starting; see it through
START = "start"
RECREATE = "recreate"
CREATE = "create"
REMOVE = "remove"
ACTIONS = (REPORT, WRITE, ADOPT, ASK, WAIT, START, RECREATE, CREATE, REMOVE)
NOTHING = "nothing"

NOT_SHOWN = "(not shown)"
ABSENT = "(none)"


@dataclass(frozen=True)
class Difference:
    """One item that is not as wanted. ``item`` is stable: reports and tests match on it."""

    stack: str
    item: str
    want: str
    have: str
    action: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def step(differences: Iterable[Difference]) -> str:
    """The weightiest action of a stack's differences is what the stack needs; NOTHING when there is none."""
    actions = [difference.action for difference in differences if difference.action != REPORT]
    return max(actions, key=ACTIONS.index) if actions else NOTHING


@dataclass(frozen=True)
class LiveFile:
    content: str
    mode: str  # "0644"
    modified: float  # seconds since the epoch
    folder: bool = False  # a folder in the file's place; nothing else is known of it then


@dataclass(frozen=True)
class Endpoint:
    """What the engine said: status (0: no connection) of /health and /v1/models, and the entries of the latter."""

    health: int = 0
    models: tuple[Mapping[str, Any], ...] = ()
    models_status: int = 0
    error: str = ""
    version: str = ""  # of the engine; empty where it does not say


@dataclass(frozen=True)
class LiveStack:
    """What is on the host for one stack. Container and images are what ``docker inspect`` says of them."""

    files: Mapping[str, LiveFile] = field(default_factory=dict)
    container: Optional[Mapping[str, Any]] = None
    duplicates: tuple[str, ...] = ()  # names of further containers that carry this stack's label
    image: Optional[Mapping[str, Any]] = None  # of the image the container was made from
    wanted_image: Optional[Mapping[str, Any]] = None  # of the reference in the inventory; None: not on the host
    endpoint: Optional[Endpoint] = None  # None: not asked, because nothing runs
    receipt: Optional[Mapping[str, Any]] = None
    unit: LiveUnit = field(default_factory=LiveUnit)
    gpu_nodes: Optional[int] = None  # cards the container's process sees; None where nothing is to be seen
    no_folders: tuple[str, ...] = ()  # of the folders for caches, those that are not there
    kv_tokens: Optional[int] = None  # what the engine said, where it runs without its unit; else nobody asked
    now: float = 0.0  # seconds since the epoch, the host's clock


def compare(rendered: RenderedStack, live: LiveStack, *, ask: bool = True) -> list[Difference]:
    """Every item of the stack that differs. ``ask``: a stack that never answered its questions is a difference."""
    found = Found(rendered.name)
    _compare_files(found, rendered, live)
    for folder in live.no_folders:
        found.add(f"folder {folder}", f"present, {rendered.folders[folder]}", ABSENT, WRITE)
    _compare_unit(found, rendered, live)
    for name in live.duplicates:
        found.add("container.duplicate", ABSENT, name, RECREATE)
    if live.container is None:
        if live.wanted_image is None:
            found.add("image", rendered.image, "not on this host", CREATE)
        found.add("container", rendered.container, ABSENT, CREATE)
        return found.differences
    _compare_image(found, rendered, live, live.container)
    _compare_container(found, rendered, live, live.container)
    _compare_state(found, live, live.container)
    _compare_cards(found, rendered, live)
    if not any(difference.action in (START, RECREATE) for difference in found.differences):
        _compare_endpoint(found, rendered, live, live.container)
        _compare_version(found, rendered, live)
        _compare_receipt(found, rendered, live.receipt, ask)
    return found.differences


def extra(
    containers: Iterable[Mapping[str, Any]], known: Iterable[str], *, units: Iterable[str] = (), prune: bool
) -> list[Difference]:
    """Containers and units (by the names of their stacks) of a stack the inventory does not have."""
    known = set(known)
    differences = []
    for container in containers:
        name = (container["Config"]["Labels"] or {}).get(LABEL_STACK, "")
        if name not in known:
            have = f"{_name(container)} ({container['State']['Status']})"
            differences.append(Difference(name, "stack", ABSENT, have, REMOVE if prune else REPORT))
            known.add(name)
    for name in units:
        if name not in known:
            differences.append(Difference(name, "unit", ABSENT, unit_name(name), REMOVE if prune else REPORT))
    return differences


def started_at(container: Mapping[str, Any]) -> Optional[float]:
    """When the container's process started, in seconds since the epoch; None when it never did."""
    stamp = container["State"].get("StartedAt") or ""
    return None if stamp.startswith("0001") else moment(stamp)


def moment(stamp: str) -> Optional[float]:
    """Docker's time (RFC 3339 with nanoseconds, UTC) in seconds since the epoch; None when it is none."""
    whole, _dot, fraction = stamp.rstrip("Z").partition(".")
    try:
        seconds = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
        return seconds + float(f"0.{fraction or 0}")
    except ValueError:
        return None


def gpus_of(container: Mapping[str, Any]) -> tuple[str, ...]:
    """The cards a container was given, by index or UUID as its maker wrote them; ("all",) for all of them."""
    ids: list[str] = []
    for request in container["HostConfig"].get("DeviceRequests") or ():
        if request.get("Count") == -1:
            ids.append("all")
        ids += [str(device).rpartition("=")[2] for device in request.get("DeviceIDs") or ()]
    if not ids:
        environment = _pairs(container["Config"].get("Env") or ())
        ids = [part for part in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if part not in ("", "void")]
    return tuple(ids)


class Found:
    """Collects differences of one stack; what is equal leaves no trace."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self.differences: list[Difference] = []

    def add(self, item: str, want: Any, have: Any, action: str) -> None:
        self.differences.append(Difference(self.stack, item, _text(want), _text(have), action))

    def unless_equal(self, item: str, want: Any, have: Any, action: str = RECREATE) -> None:
        if want != have:
            self.add(item, want, have, action)


def _compare_files(found: Found, rendered: RenderedStack, live: LiveStack) -> None:
    started = started_at(live.container) if live.container else None
    for name, wanted in rendered.files.items():
        there = live.files.get(name)
        if there is None:
            found.add(f"file {name}", "present", ABSENT, WRITE)
            continue
        if there.folder:
            # The container that Docker made it for has a folder there as well, on which no file can be mounted.
            found.add(f"file {name}", "present", "a folder", RECREATE)
            continue
        if there.content != wanted.content:
            # The engine read its file when it started. Edited before that, it runs with the edit.
            read = name not in ("compose.yaml", ".env") and started is not None and there.modified <= started
            have = NOT_SHOWN if wanted.secret else "differs"
            found.add(f"file {name}", "as rendered", have, RECREATE if read else WRITE)
        found.unless_equal(f"file {name} mode", wanted.mode, there.mode, WRITE)
    for name in (*MANAGED, *UNWANTED):
        if name in live.files and name not in rendered.files:
            found.add(f"file {name}", ABSENT, "present", WRITE)


def _compare_unit(found: Found, rendered: RenderedStack, live: LiveStack) -> None:
    unit = live.unit
    if not rendered.unit:
        # A unit that stops takes its container along.
        found.unless_equal("unit", ABSENT, "present" if unit.text else ABSENT)
        return
    if not unit.text:
        found.add("unit", "present", ABSENT, ADOPT)
        return
    if unit.text != rendered.unit:
        found.add("unit", "as rendered", "differs", ADOPT)
    if not unit.runner_current:
        found.add("unit program", "of this release", "another", ADOPT)
    found.unless_equal("unit enabled", "enabled", unit.enabled, ADOPT)
    container = live.container
    running = container is not None and container["State"]["Status"] == "running" and not _loops(live, container)
    if unit.active == "active" or (running and unit.active in ("activating", "reloading")):
        return
    # Whoever started it without the unit may have done so while a neighbour was loading: it must prove itself again,
    # and where its memory shows that one was, it starts again in its turn.
    whole = kv_out_of_turn(rendered, live.kv_tokens, live.receipt)
    if running and whole:
        found.add("KV cache", whole, f"{live.kv_tokens} tokens", RECREATE)
    found.add(
        "unit active", "active", unit.state + (" (started by hand)" if running else ""), ASK if running else ADOPT
    )


def _compare_image(found: Found, rendered: RenderedStack, live: LiveStack, container: Mapping[str, Any]) -> None:
    """Index digest, platform digest and config id of one image are one identity; any of them in common is enough."""
    if not same_image(rendered.image, live.wanted_image, container, live.image):
        found.add("image", rendered.image, container["Config"].get("Image", ""), RECREATE)


def same_image(
    reference: str,
    wanted: Optional[Mapping[str, Any]],
    container: Mapping[str, Any],
    image: Optional[Mapping[str, Any]],
) -> bool:
    """Whether a container was made from this ``repository@digest``. Images are what ``docker inspect`` says."""
    want = {reference.partition("@")[2]} | _identities(wanted)
    return bool(want & ({container["Image"]} | _identities(image)))


def _identities(image: Optional[Mapping[str, Any]]) -> set[str]:
    if image is None:
        return set()
    return {image["Id"]} | {str(digest).partition("@")[2] for digest in image.get("RepoDigests") or ()}


def _compare_container(found: Found, rendered: RenderedStack, live: LiveStack, container: Mapping[str, Any]) -> None:
    labels = container["Config"]["Labels"] or {}
    found.unless_equal("container.name", rendered.container, _name(container))
    found.unless_equal("hash", rendered.hash[:12], labels.get(LABEL_HASH, "")[:12])
    found.unless_equal("project", rendered.name, labels.get("com.docker.compose.project", ABSENT))

    image_config: Mapping[str, Any] = (live.image or {}).get("Config") or {}
    service = rendered.service_definition
    for item, want, have in _service_items(rendered, service, container, image_config):
        found.unless_equal(item, want, have)
    _compare_environment(found, rendered, container, image_config)
    wanted_labels = _mapping(service.get("labels"))
    image_labels = image_config.get("Labels") or {}
    for key in sorted(set(wanted_labels) | set(labels)):
        ours = key in wanted_labels or not (key.startswith("com.docker.compose.") or key in image_labels)
        if ours and key != LABEL_HASH:
            found.unless_equal(f"label {key}", wanted_labels.get(key, ABSENT), labels.get(key, ABSENT))


def _compare_environment(
    found: Found, rendered: RenderedStack, container: Mapping[str, Any], image_config: Mapping[str, Any]
) -> None:
    secret = rendered.secret_environment
    want = {**_pairs(image_config.get("Env") or ()), **secret}
    want.update(_mapping(rendered.service_definition.get("environment")))
    have = _pairs(container["Config"].get("Env") or ())
    for key in sorted(set(want) | set(have)):
        if want.get(key) == have.get(key):
            continue
        if key not in want and (key.upper().endswith("_PROXY") or not image_config):
            continue  # Compose adds proxies from the user's own Docker configuration
        # A variable that the inventory does not know may be anybody's secret.
        shown = key in want and key not in secret
        found.add(
            f"environment {key}",
            ABSENT if key not in want else want[key] if shown else NOT_SHOWN,
            ABSENT if key not in have else have[key] if shown else NOT_SHOWN,
            RECREATE,
        )


def _service_items(
    rendered: RenderedStack, service: Mapping[str, Any], container: Mapping[str, Any], image: Mapping[str, Any]
) -> Iterable[tuple[str, Any, Any]]:
    """(item, want, have) for what a Compose service and ``docker inspect`` both say, in one spelling."""
    config, host = container["Config"], container["HostConfig"]
    entrypoint = _words(service["entrypoint"]) if "entrypoint" in service else list(image.get("Entrypoint") or ())
    # Compose drops the image's command when the entrypoint is replaced.
    default_command = [] if "entrypoint" in service else list(image.get("Cmd") or ())
    if image or "entrypoint" in service:
        yield "entrypoint", entrypoint, list(config.get("Entrypoint") or ())
    if image or "command" in service:
        command = _words(service["command"]) if service.get("command") is not None else default_command
        yield "command", command, list(config.get("Cmd") or ())
    yield "devices", _wanted_devices(service), _live_devices(host)
    yield "mounts", _wanted_mounts(service, rendered.directory), _live_mounts(container, image, rendered.name)
    yield "ports", wanted_ports(service), live_ports(host)
    yield "network", _wanted_networks(rendered.name, service), _live_networks(container, rendered.name)
    if "runtime" in service:
        yield "runtime", service["runtime"], host.get("Runtime")
    # Without an ipc of its own a container gets the daemon's default, which is one of two.
    ipc = host.get("IpcMode") or "private"
    yield "ipc", service.get("ipc", "private"), ipc if "ipc" in service or ipc != "shareable" else "private"
    yield "shm_size", _size(service.get("shm_size", "64m")), host.get("ShmSize")
    yield "restart", _wanted_restart(service), _live_restart(host)
    yield "privileged", bool(service.get("privileged", False)), bool(host.get("Privileged"))
    yield "memory limit", _memory_limit(service), host.get("Memory") or 0
    yield "user", str(service.get("user", image.get("User") or "")), config.get("User") or ""
    yield "capabilities", _capabilities(service.get("cap_add")), _capabilities(host.get("CapAdd"))
    yield "read_only", bool(service.get("read_only", False)), bool(host.get("ReadonlyRootfs"))
    if "ulimits" in service:
        yield "ulimits", _wanted_ulimits(service), _live_ulimits(host)


def _loops(live: LiveStack, container: Mapping[str, Any]) -> bool:
    """Docker has started it again, and it does not answer: the same right after such a start and long after it."""
    waits = ((container["State"].get("Health") or {}).get("Status")) == "starting"
    return bool(container.get("RestartCount")) and waits and (live.endpoint or Endpoint()).health != 200


def _compare_state(found: Found, live: LiveStack, container: Mapping[str, Any]) -> None:
    state = container["State"]
    status = "restarting" if _loops(live, container) else state["Status"]
    if status == "running":
        health = (state.get("Health") or {}).get("Status")
        if health == "unhealthy":
            log = (state.get("Health") or {}).get("Log") or [{}]
            said = " ".join(str(log[-1].get("Output") or "").split())[-200:]
            found.add("container.state", "healthy", f"unhealthy: {said}" if said else "unhealthy", RECREATE)
    elif status in ("created", "exited"):
        have = status if status == "created" else f"exited ({state.get('ExitCode')})"
        found.add("container.state", "running", have, START)
    else:  # restarting, paused, dead, removing
        found.add("container.state", "running", status, RECREATE)


def _compare_cards(found: Found, rendered: RenderedStack, live: LiveStack) -> None:
    """A container can lose the cards it was given (its device nodes go) while the host still has them."""
    given = gpus_of(live.container) if live.container else ()
    if live.gpu_nodes is not None and given and live.gpu_nodes < len(rendered.gpus):
        found.add("cards in the container", len(rendered.gpus), live.gpu_nodes, RECREATE)


def _compare_version(found: Found, rendered: RenderedStack, live: LiveStack) -> None:
    """Releases only: what is between two of them the inventory does not say either."""
    have = live.endpoint.version if live.endpoint else ""
    if not have or not rendered.engine or _release(have) == _release(rendered.engine):
        return
    # It had this version when it answered: not the engine was changed, the inventory names another. A run cannot mend
    # that.
    known = ((live.receipt or {}).get("engine") or {}).get("version", "")
    found.add("engine version", rendered.engine, have, REPORT if known in ("", have) else RECREATE)


def _compare_endpoint(found: Found, rendered: RenderedStack, live: LiveStack, container: Mapping[str, Any]) -> None:
    endpoint = live.endpoint or Endpoint()
    if endpoint.health != 200:
        have = f"HTTP {endpoint.health}" if endpoint.health else endpoint.error or "no connection"
        started = started_at(container)
        young = started is not None and live.now - started < rendered.timeout_s
        restarted = (container.get("RestartCount") or 0) > 0
        found.add("health", "HTTP 200", have, WAIT if young and not restarted else RECREATE)
        return
    entry = next((model for model in endpoint.models if model.get("id") == rendered.served_model_name), None)
    if entry is None:
        have = ", ".join(str(model.get("id")) for model in endpoint.models) or ABSENT
        found.add("served model", rendered.served_model_name, have, RECREATE)
        return
    if rendered.root and entry.get("root") is not None:
        found.unless_equal("served model root", rendered.root, entry["root"])
    if rendered.max_model_len is not None and entry.get("max_model_len") is not None:
        found.unless_equal("max_model_len", rendered.max_model_len, entry["max_model_len"])


def _compare_receipt(found: Found, rendered: RenderedStack, receipt: Optional[Mapping[str, Any]], ask: bool) -> None:
    """Green means it answered: a container that runs without that proof (an interrupted run) is not done."""
    if receipt is None or receipt.get("hash") != rendered.hash:
        found.add("receipt", "of this configuration", ABSENT if receipt is None else "of another", ASK)
    elif ask and not receipt.get("asked"):
        found.add("receipt", "answers checked", "never asked", ASK)


# --- one spelling for what Compose writes and what Docker says -------------------------------------------------------


def _name(container: Mapping[str, Any]) -> str:
    return str(container["Name"]).lstrip("/")


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)) and not isinstance(value, str):
        return " ".join(shlex.quote(str(part)) for part in value) or ABSENT
    return str(value)


def _pairs(values: Iterable[Any]) -> dict[str, str]:
    """["A=b"] or [("A", "b")] as a mapping."""
    pairs = (value.split("=", 1) if isinstance(value, str) else value for value in values)
    return {str(pair[0]): str(pair[1]) if len(pair) > 1 else "" for pair in pairs}


def _mapping(value: Any) -> dict[str, str]:
    """environment and labels are a mapping or a list in Compose."""
    if isinstance(value, Mapping):
        return {str(key): _scalar(item) for key, item in value.items()}
    return _pairs(value or ())


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _release(version: str) -> str:
    """0.19.2rc1.dev134+g0a1b -> 0.19.2"""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return match.group(1) if match else version


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return shlex.split(value)
    return [_scalar(part) for part in value or ()]


def _size(value: Any) -> int:
    """Bytes of a Compose size; its units are powers of 1024 and may carry a b."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?)(?:i?b)?\s*", str(value).lower())
    if not match:
        return -1
    return int(float(match.group(1)) * 1024 ** " kmgt".index(match.group(2) or " "))


def _memory_limit(service: Mapping[str, Any]) -> int:
    limits = (((service.get("deploy") or {}).get("resources") or {}).get("limits") or {}).get("memory")
    value = service.get("mem_limit", limits)
    return _size(value) if value is not None else 0


def _capabilities(names: Optional[Sequence[str]]) -> list[str]:
    return sorted(name if name == "ALL" else "CAP_" + re.sub("^CAP_", "", name.upper()) for name in names or ())


def _request(driver: str, ids: Iterable[Any], count: Any) -> str:
    """One device request in words: "nvidia 1", "cdi nvidia.com/gpu=1", "nvidia all"."""
    named = ",".join(sorted(str(device) for device in ids))
    return f"{driver or 'default'} {named or ('all' if count in (-1, 'all', None) else count)}"


def _wanted_devices(service: Mapping[str, Any]) -> list[str]:
    found = []
    reservations = ((service.get("deploy") or {}).get("resources") or {}).get("reservations") or {}
    gpus = service.get("gpus") or ()
    for request in [*(reservations.get("devices") or ()), *([{"count": "all"}] if gpus == "all" else gpus)]:
        found.append(_request(request.get("driver", ""), request.get("device_ids") or (), request.get("count")))
    for device in service.get("devices") or ():
        text = device if isinstance(device, str) else f"{device['source']}:{device.get('target', device['source'])}"
        if text.startswith("/"):
            parts = text.split(":")
            found.append(f"{parts[0]}:{parts[1] if len(parts) > 1 else parts[0]}")
        else:
            found.append(_request("cdi", [text], None))
    return sorted(found)


def _live_devices(host: Mapping[str, Any]) -> list[str]:
    found = [
        _request(request.get("Driver", ""), [device], request.get("Count"))
        for request in host.get("DeviceRequests") or ()
        if request.get("Driver") == "cdi"
        for device in request.get("DeviceIDs") or ()
    ]
    found += [
        _request(request.get("Driver", ""), request.get("DeviceIDs") or (), request.get("Count"))
        for request in host.get("DeviceRequests") or ()
        if request.get("Driver") != "cdi"
    ]
    found += [f"{device['PathOnHost']}:{device['PathInContainer']}" for device in host.get("Devices") or ()]
    return sorted(found)


def _wanted_mounts(service: Mapping[str, Any], directory: str) -> list[str]:
    found = []
    for volume in service.get("volumes") or ():
        if isinstance(volume, str):
            parts = volume.split(":")
            source, target = parts[0], parts[1] if len(parts) > 1 else parts[0]
            read_only = len(parts) > 2 and "ro" in parts[2].split(",")
            kind = "bind" if source[0] in "./~" else "volume"
        else:
            kind, source, target = volume.get("type", "bind"), str(volume.get("source", "")), volume["target"]
            read_only = bool(volume.get("read_only", False))
        if kind == "tmpfs":
            continue
        if source.startswith("."):
            source = f"{directory}/{source.lstrip('./')}".rstrip("/")
        found.append(f"{source.rstrip('/') or '/'}:{target}:{'ro' if read_only else 'rw'}")
    return sorted(found)


def _live_mounts(container: Mapping[str, Any], image: Mapping[str, Any], project: str) -> list[str]:
    found = []
    for mount in container.get("Mounts") or ():
        if mount["Type"] == "volume":
            if mount["Destination"] in (image.get("Volumes") or {}):
                continue  # an anonymous volume of the image's own
            name = str(mount.get("Name", ""))
            source = name[len(project) + 1 :] if name.startswith(project + "_") else name
        elif mount["Type"] == "bind":
            source = str(mount["Source"])
        else:
            continue
        found.append(f"{source.rstrip('/') or '/'}:{mount['Destination']}:{'rw' if mount.get('RW') else 'ro'}")
    return sorted(found)


def _address(address: Any) -> str:
    text = str(address or "").strip("[]")
    return "" if text in ("0.0.0.0", "::") else text


def wanted_ports(service: Mapping[str, Any]) -> list[str]:
    """As ``ADDRESS:PORT->PORT INSIDE/PROTOCOL``, the address empty for every one."""
    if service.get("network_mode") == "host":
        return []
    found = []
    for port in service.get("ports") or ():
        if isinstance(port, Mapping):
            address, published, target = port.get("host_ip"), str(port.get("published", "")), str(port["target"])
            protocol = port.get("protocol", "tcp")
        else:
            text, _slash, protocol = str(port).partition("/")
            head, _colon, target = text.rpartition(":")
            address, _colon, published = head.rpartition(":")
        found.append(f"{_address(address)}:{published}->{target}/{protocol or 'tcp'}")
    return sorted(found)


def live_ports(host: Mapping[str, Any]) -> list[str]:
    if host.get("NetworkMode") == "host":
        return []
    return sorted(
        f"{_address(binding.get('HostIp'))}:{binding.get('HostPort')}->{port}"
        for port, bindings in (host.get("PortBindings") or {}).items()
        for binding in bindings or ()
    )


def _wanted_networks(project: str, service: Mapping[str, Any]) -> list[str]:
    if "network_mode" in service:
        return [str(service["network_mode"])]
    return sorted(service.get("networks") or ["default"])


def _live_networks(container: Mapping[str, Any], project: str) -> list[str]:
    mode = str(container["HostConfig"].get("NetworkMode", ""))
    if mode in ("host", "none") or mode.startswith("container:"):
        return [mode]
    names = (container.get("NetworkSettings") or {}).get("Networks") or {}
    return sorted(name[len(project) + 1 :] if name.startswith(project + "_") else name for name in names)


def _wanted_restart(service: Mapping[str, Any]) -> str:
    return str(service.get("restart") or "no")


def _live_restart(host: Mapping[str, Any]) -> str:
    policy = host.get("RestartPolicy") or {}
    count = policy.get("MaximumRetryCount") or 0
    return (policy.get("Name") or "no") + (f":{count}" if count else "")


def _wanted_ulimits(service: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in service["ulimits"].items():
        both = value if isinstance(value, Mapping) else {"soft": value, "hard": value}
        found.append(f"{name}={both['soft']}:{both['hard']}")
    return sorted(found)


def _live_ulimits(host: Mapping[str, Any]) -> list[str]:
    return sorted(f"{limit['Name']}={limit['Soft']}:{limit['Hard']}" for limit in host.get("Ulimits") or ())
