# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at a host: what is live of each stack, and what of it differs. Reads only.

A run that changes nothing ends here, so this module imports no more than looking takes.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, Optional, Sequence

from ..fleet import drift, ports
from ..fleet.drift import Difference, Endpoint, LiveStack
from ..fleet.receipt import KV_TOKENS
from ..fleet.rendered import LABEL_STACK, RenderedStack
from ..fleet.units import LiveUnit
from . import files
from .docker_engine import Engine
from .http import Fetch
from .processes import gpu_nodes

HTTP_SECONDS = 5.0


@dataclass(frozen=True)
class View:
    """Everything that looking reads."""

    engine: Engine
    fetch: Fetch
    units: Any  # the module systemd, or what a test has in its place
    firewall: Any  # the module firewall, likewise
    wall: Callable[[], float]  # seconds since 1970


@dataclass(frozen=True)
class Orders:
    """How to roll out, beside what."""

    root: str
    ask: bool = True
    prune: bool = False
    only: str = ""
    retries: int = 1
    max_restarts: int = 0
    host: str = ""  # only for messages
    prefetch: bool = False  # weights too are here before the first container stops
    routed: tuple[str, ...] = ()  # stacks that gateways send requests to, and that are handed over before they stop
    ports: Optional[ports.Ports] = None  # who may reach the engines; None: not our business
    bare: bool = False  # the host has no container engine yet, nor what comes with it
    drain_seconds: int = 0  # how long such a stack may take to finish the requests it has


@dataclass(frozen=True)
class Looked:
    """A host as it is: what is live and what of it differs."""

    live: Mapping[str, LiveStack]
    differences: Mapping[str, tuple[Difference, ...]]
    extra: tuple[Difference, ...]
    extra_containers: Mapping[str, Mapping[str, Any]]
    reach: Any = None  # what the firewall has and should have, where it is our business

    def step(self, stack: str) -> str:
        return drift.step(self.differences[stack])

    @property
    def changed(self) -> bool:
        everything = [*self.extra, *(one for found in self.differences.values() for one in found)]
        return drift.step(everything) != drift.NOTHING or bool(self.ports)

    @property
    def ports(self) -> tuple[Difference, ...]:
        """What differs in who may reach the engines."""
        return self.reach.differences if self.reach else ()


def look(stacks: Sequence[RenderedStack], orders: Orders, view: View) -> Looked:
    """Compare every stack with what is live. Reads only, and asks the engines side by side."""
    ours = view.engine.ours()
    images: dict[str, Optional[dict[str, Any]]] = {}

    def image(reference: str) -> Optional[dict[str, Any]]:
        if reference not in images:
            images[reference] = view.engine.image(reference)
        return images[reference]

    live = {}
    live_units = view.units.look([stack.name for stack in stacks], [stack.directory for stack in stacks])
    for stack in stacks:
        labelled = [one for one in ours if one["Config"]["Labels"].get(LABEL_STACK) == stack.name]
        named = [one for one in labelled if one["Name"].lstrip("/") == stack.container]
        container = named[0] if named else view.engine.container(stack.container)
        if container is None and labelled:
            container = labelled[0]
        others = [one["Name"].lstrip("/") for one in labelled if container and one["Id"] != container["Id"]]
        live[stack.name] = LiveStack(
            files=files.read(stack.directory, (*drift.MANAGED, *drift.UNWANTED)),
            container=container,
            duplicates=tuple(others),
            image=image(container["Image"]) if container else None,
            wanted_image=image(stack.image),
            receipt=files.read_json(files.receipt_path(stack.directory)),
            unit=live_units[stack.name],
            gpu_nodes=gpu_nodes(container["State"].get("Pid", 0)) if container and runs(container) else None,
            no_folders=tuple(folder for folder in stack.folders if not os.path.isdir(folder)),
            kv_tokens=_kv_tokens(container, live_units[stack.name], view.engine),
            now=view.wall(),
        )
    running = [stack for stack in stacks if runs(live[stack.name].container)]
    if running:
        with ThreadPoolExecutor(max_workers=min(len(running), 16)) as pool:
            endpoints = pool.map(lambda stack: endpoint(stack, view.fetch), running)
            for stack, answer in zip(running, endpoints):
                live[stack.name] = replace(live[stack.name], endpoint=answer)
    differences = {stack.name: tuple(drift.compare(stack, live[stack.name], ask=orders.ask)) for stack in stacks}
    extra_containers = {} if orders.only else {one["Config"]["Labels"][LABEL_STACK]: one for one in ours}
    extra_units = [] if orders.only else view.units.stacks()
    extra = drift.extra(extra_containers.values(), live, units=extra_units, prune=orders.prune)
    reach = None
    if orders.ports is not None:
        # An engine that the inventory has no more is open to nobody either, as long as it stays.
        left = [extra_containers[one.stack] for one in extra if one.action == drift.REPORT and one.item == "stack"]
        more = [engine for container in left for engine in ports.of_container(container)]
        reach = view.firewall.look(orders.ports, more, bare=orders.bare)
    return Looked(live, differences, tuple(extra), extra_containers, reach)


def _kv_tokens(container: Optional[Mapping[str, Any]], unit: LiveUnit, engine: Engine) -> Optional[int]:
    """From the log of an engine that runs without its unit; reading a log is too slow to do it for all."""
    if container is None or not runs(container) or unit.active in ("active", "activating", "reloading"):
        return None
    lines = engine.logs(container["Id"], drift.started_at(container) or 0.0)
    said = [found.group(1) for _moment, text in lines for found in [KV_TOKENS.search(text)] if found]
    return int(said[-1].replace(",", "")) if said else None


def endpoint(stack: RenderedStack, fetch: Fetch) -> Endpoint:
    """What the engine of this stack answers on /health and /v1/models."""
    health = fetch("GET", f"{stack.url}/health", timeout=HTTP_SECONDS)
    if health.status != 200:
        return Endpoint(health.status, error=health.error)
    headers = {"Authorization": f"Bearer {stack.api_key}"} if stack.api_key else {}
    listing = fetch("GET", f"{stack.url}/v1/models", headers=headers, timeout=HTTP_SECONDS)
    said = fetch("GET", f"{stack.url}/version", headers=headers, timeout=HTTP_SECONDS)
    version = said.json().get("version") if said.status == 200 and isinstance(said.json(), dict) else ""
    return Endpoint(200, tuple(models_of(listing.json())), listing.status, listing.error, str(version or ""))


def models_of(answer: Any) -> list[Mapping[str, Any]]:
    """The entries of a parsed /v1/models body; empty when it is none."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def runs(container: Optional[Mapping[str, Any]]) -> bool:
    return container is not None and container["State"]["Status"] == "running"
