#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: adopt_look
short_description: Read what model servers and gateways a host runs, however they were made
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - The eyes of M(modelfleet.inference.adopt), which makes inventory of what they see. Reads only.
  - What it sees holds the secrets of the containers, and Ansible prints what a module answers with C(-vvv). So the
    answer is sealed with a key that only M(modelfleet.inference.adopt) knows, and is of no use without it.
options:
  roots:
    description: Folders below which each folder may be a Compose project that does not run now.
    type: list
    elements: path
    default: [/opt/docker/compose]
  key:
    description: What the answer is sealed with; a new one each time.
    type: str
    required: true
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
requirements:
  - Docker SDK for Python (Debian and Ubuntu C(python3-docker)) on the host
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
seealso:
  - module: modelfleet.inference.adopt
"""

EXAMPLES = r"""
- name: Make inventory of what runs
  modelfleet.inference.adopt:
"""

RETURN = r"""
sealed:
  description:
    - What was seen, as compressed JSON, sealed and in base64. C(found) are the engines and gateways that run, with what
      C(docker inspect) says of them and their images; C(others) the other containers; C(folders) Compose projects that
      do not run, with the texts of their files; C(cards) the GPUs, or V(null) when C(nvidia-smi) does not answer.
  returned: success
  type: str
  sample: bm90IHJlYWRhYmxl
"""

import base64
import json
import os
import zlib

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import files, http, nvidia_smi
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import Engine, EngineError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import (
    adopt_container,
    adoption,
    gpus,
    interpolation,
    secrecy,
)

COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
LARGEST = 256 * 1024  # bytes of a text that is worth reading
HTTP_SECONDS = 3.0
LIVE = ("running", "restarting", "paused")


def text_of(path: str) -> str:
    """The file as text; empty when it is none, or too large for what it should be."""
    try:
        if os.path.getsize(path) > LARGEST:
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def version(service, kind: str) -> str:
    """What the engine or the gateway says that it is."""
    path, key, default, headers = "/version", "version", "8000", {}
    if kind == adoption.GATEWAY:
        path, key, default = "/health/readiness/details", "litellm_version", "4000"
        headers = {"Authorization": f"Bearer {service.definition['environment'].get('LITELLM_MASTER_KEY', '')}"}
    host_network = service.definition.get("network_mode") == "host"
    ports = [port.get("published") for port in service.definition.get("ports") or ()]
    for port in [one for one in ports if one] or ([default] if host_network else []):
        answer = http.fetch("GET", f"http://127.0.0.1:{port}{path}", headers=headers, timeout=HTTP_SECONDS)
        said = answer.json() if answer.status == 200 else None
        if isinstance(said, dict) and isinstance(said.get(key), str):
            return said[key]
    return ""


def seen(engine: Engine, container, service, kind: str, image) -> dict:
    """One engine or gateway, whole."""
    _project, directory, _files = adopt_container.project_of(container)
    stack = adopt_container.stack_of(container)
    texts, hidden, asked = {}, [], []
    config = adoption.config_path(service.definition)
    if config:
        texts[config] = text_of(config)
    ours = stack or "modelfleet.gateway" in (container["Config"].get("Labels") or {})
    if ours and directory:
        try:
            hidden = list(interpolation.read_env(text_of(os.path.join(directory, ".env")), lambda name: None))
        except interpolation.BadVariable:
            hidden = []
        receipt = files.read_json(files.receipt_path(directory)) or {}
        asked = [one["question"] for one in receipt.get("answers") or () if one.get("passed") and one.get("question")]
    return {
        "container": container,
        "image": image,
        "kind": kind,
        "version": version(service, kind),
        "texts": texts,
        "hidden": hidden,
        "asked": asked,
    }


def folders(roots, running) -> dict:
    """Compose projects below these folders that no container belongs to."""
    found = {}
    for root in roots:
        try:
            names = sorted(os.listdir(root))
        except OSError:
            continue
        for name in names:
            folder = os.path.join(root, name)
            file = next((one for one in COMPOSE_FILES if os.path.isfile(os.path.join(folder, one))), None)
            if file is None or folder in running or name.startswith("."):
                continue
            texts = {}
            for leaf in sorted(os.listdir(folder)):
                path = os.path.join(folder, leaf)
                if leaf == file or leaf.endswith((".env", ".yaml", ".yml")) or leaf.startswith((".env", "env")):
                    texts[path] = text_of(path)
            found[folder] = {"file": os.path.join(folder, file), "texts": texts}
    return found


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "roots": {"type": "list", "elements": "path", "default": ["/opt/docker/compose"]},
            "key": {"type": "str", "required": True, "no_log": True},
            "host": {"type": "str", "default": "this host"},
        },
        supports_check_mode=True,
    )
    found, others, running = [], [], set()
    try:
        engine = Engine()
        for container in engine.all():
            image = engine.image(container["Image"])
            service = adopt_container.service(container, image)
            project, directory, _files = adopt_container.project_of(container)
            state = container["State"]["Status"]
            kind = adoption.kind_of(
                {**service.definition, "labels": container["Config"].get("Labels") or {}},
                ((image or {}).get("Config") or {}).get("Entrypoint") or (),
            )
            running.add(directory)
            if kind == adoption.OTHER or state not in LIVE:
                name = container["Name"].lstrip("/")
                image_name = service.definition["image"]
                others.append({"name": name, "image": image_name, "project": project, "state": state, "kind": kind})
            else:
                found.append(seen(engine, container, service, kind, image))
    except EngineError as error:
        module.fail_json(msg=f"{module.params['host']}: {error}")
    # The order in which they were started is the order that worked. Our own say it themselves, by their waiting.
    found.sort(key=lambda one: one["container"]["State"].get("StartedAt") or "")
    report = nvidia_smi.memory()
    cards = None
    if not report.trouble:
        cards = [
            {
                "index": card.index,
                "uuid": card.uuid,
                "memory": (card.total_mib or 0) * gpus.MIB,
                "compute_capability": card.compute_capability or "",
            }
            for card in report.cards
        ]
    answer = {"found": found, "others": others, "folders": folders(module.params["roots"], running), "cards": cards}
    packed = zlib.compress(json.dumps(answer).encode("utf-8"))
    sealed = base64.b64encode(secrecy.sealed(packed, module.params["key"]))
    module.exit_json(changed=False, sealed=sealed.decode("ascii"))


if __name__ == "__main__":
    main()
