# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Compose files of tests/fixtures/compose: hand-made deployments as people write them, and how we read them.

Beside each stands `expected.yaml`: the inventory, and what could not become one. `docker compose config` is the judge
of the reading (tests/integration/adopt), a person was the judge of what is expected.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Mapping

from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import (
    adopt_gateway,
    adoption,
    compose_reader,
    gateway_files,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.compose import StackSettings
from ansible_collections.modelfleet.inference.plugins.plugin_utils import yaml_source

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "compose"
CASES = sorted(path.name for path in FOLDER.iterdir())


def files_of(case: str, directory: str) -> dict[str, str]:
    """The files of a case by the path that they would have in this folder."""
    return {
        f"{directory}/{path.name}": path.read_text(encoding="utf-8")
        for path in (FOLDER / case).iterdir()
        if path.name != "expected.yaml"
    }


def read(case: str, directory: str) -> compose_reader.Project:
    files = files_of(case, directory)
    source = yaml_source.for_compose(files[f"{directory}/compose.yaml"], "compose.yaml")
    return compose_reader.read(source, directory, files.get)


def adopted(case: str) -> adoption.Adopted:
    """As playbooks/adopt.yml -e compose_file=… does it."""
    directory = f"/srv/{case}"
    files = files_of(case, directory)
    project = read(case, directory)
    candidates, sources = [], {}
    for service in project.services:
        candidate = adoption.of_service(service, project)
        path = adoption.config_path(service.definition)
        if path in files:
            sources[path] = yaml_source.for_python(files[path], path.rpartition("/")[2])
            candidate = dataclasses.replace(candidate, config=sources[path].data)
        candidates.append(candidate)
    done = adoption.adopt(candidates, host="ana-ml2", settings=StackSettings())
    done.findings = [*project.findings, *done.findings]
    adopt_gateway.adopt(candidates, sources, done, hosts=["ana-ml2"], settings=gateway_files.GatewaySettings())
    return done


# --- the judge -------------------------------------------------------------------------------------------------------

# What `docker compose config` writes in a form of its own, as the reader gives it.
COMPARED = (
    "image",
    "container_name",
    "command",
    "entrypoint",
    "environment",
    "ports",
    "volumes",
    "shm_size",
    "mem_limit",
)
COMPARED += ("network_mode", "ipc", "runtime", "restart", "user", "privileged", "cap_add", "labels", "gpus", "devices")


def judged(answer: str) -> dict[str, dict[str, Any]]:
    """The services of `docker compose config --format json`, with its `$$` undone, in the reader's form."""
    services: dict[str, Any] = _single(json.loads(answer))["services"]
    return {name: _theirs(service) for name, service in services.items()}


def ours(project: compose_reader.Project) -> dict[str, dict[str, Any]]:
    return {service.name: _compared(service.definition, project.name) for service in project.services}


def _single(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$$", "$")
    if isinstance(value, list):
        return [_single(item) for item in value]
    if isinstance(value, dict):
        return {key: _single(item) for key, item in value.items()}
    return value


def _theirs(service: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(service)
    for key in ("shm_size", "mem_limit"):
        if key in out:
            out[key] = int(out[key])
    if "devices" in out:
        out["devices"] = [compose_reader.device_text(device) for device in out["devices"]]
    out["ports"] = [
        {key: port[key] for key in ("target", "protocol", "published", "host_ip") if port.get(key)}
        for port in out.get("ports") or ()
    ]
    out["volumes"] = [
        {key: volume[key] for key in ("type", "source", "target", "read_only") if volume.get(key)}
        for volume in out.get("volumes") or ()
    ]
    return _compared(out, "")


def _compared(service: Mapping[str, Any], project: str) -> dict[str, Any]:
    out = {key: service[key] for key in COMPARED if service.get(key)}
    devices = (((service.get("deploy") or {}).get("resources") or {}).get("reservations") or {}).get("devices")
    if devices:
        out["reserved"] = devices
    # A variable that nobody sets is none, whether it is said as null or not at all.
    out["environment"] = {name: value for name, value in (out.get("environment") or {}).items() if value is not None}
    return out
