#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_compare
short_description: Compare all model servers of a host with what is wanted
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Says of every stack of the host what a rollout would change, by comparing files, container, image, unit and the
    engine's own answers. One execution for all stacks; reads only.
  - The module M(modelfleet.inference.rollout) asks this first, and in check mode nothing else. It stands by itself so
    that a run that changes nothing neither sends nor compiles what only a rollout needs.
options:
  stacks:
    description: The stacks, as M(modelfleet.inference.rollout) renders them from the inventory.
    type: list
    elements: dict
    required: true
  root:
    description: Folder that holds one folder for each stack.
    type: path
    default: /opt/docker/compose
  only:
    description: Set when O(stacks) are not all of the host. What else is there is not reported then.
    type: str
    default: ""
  ask:
    description: Whether a stack that never answered its questions differs for that reason.
    type: bool
    default: true
  prune:
    description: Whether stacks that are not in the inventory are to be removed, or only reported.
    type: bool
    default: false
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
  ports:
    description: The engines' ports and who may reach them. Left out, they are not looked at.
    type: dict
  facts:
    description: Return what a report shows beside differences, too.
    type: bool
    default: false
  processes:
    description: Processes that hold memory of a card, by number. With O(facts) it is said whose they are.
    type: list
    elements: int
    default: []
  secrets:
    description: Values that must appear nowhere in the result.
    type: list
    elements: str
    default: []
requirements:
  - Docker SDK for Python (Debian and Ubuntu C(python3-docker)) on the host
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: full
    details:
      - Reads only, in check mode and otherwise. C(changed) says whether a rollout would change something.
  diff_mode:
    support: full
    details:
      - Secret files are shown as names of variables only.
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: See what a run would change on this host
  modelfleet.inference.rollout:
  check_mode: true
"""

RETURN = r"""
stacks:
  description: What differs of each stack, by its name.
  returned: always
  type: dict
  sample:
    qwen35-vl:
      changed: true
      step: recreate
      differences:
        - {stack: qwen35-vl, item: hash, want: 6f0c2d7a91be, have: 0be1c3d4f5a6, action: recreate}
  contains:
    changed:
      description: Whether a rollout would change this stack.
      type: bool
      returned: always
    differences:
      description: Each item that is not as wanted, with the stack, the item, want, have and the action.
      type: list
      elements: dict
      returned: always
    step:
      description:
        - What a rollout does (V(nothing), V(write), V(adopt), V(ask), V(wait), V(start), V(recreate), V(create),
          V(remove)).
      type: str
      returned: always
extra:
  description: Stacks on the host that the inventory does not have, and that O(prune) was not set for.
  returned: always
  type: list
  elements: dict
  sample:
    - {stack: old-model, item: stack, want: (none), have: vllm-old (running), action: report}
unseen:
  description: Why nothing was compared. A run installs first what it would be compared by.
  returned: in check mode, without the Docker SDK for Python on a host that has containers or images
  type: str
  sample: "ana-ml2: The containers cannot be compared before a run has installed the Docker SDK for Python."
ports:
  description: What differs in who may reach the engines' ports.
  returned: always
  type: list
  elements: dict
  sample:
    - {stack: "", item: engine ports, want: 8007 for ana-docker (10.0.0.5) only, have: open to everyone, action: set}
facts:
  description: The state and the receipts of each stack, by its name.
  returned: with O(facts)
  type: dict
  sample:
    qwen35-vl:
      container: vllm-qwen35
      status: running
      started: "2026-12-01T03:10:45.18Z"
      receipt: {at: 2026-12-01T031051Z, seconds: 6.0, questions: 11, passed: 11}
owners:
  description: The stack and the container of each of O(processes), by its number as text.
  returned: with O(facts)
  type: dict
  sample:
    "4711": {stack: qwen35-vl, container: vllm-qwen35}
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import (
    docker_engine,
    files,
    firewall,
    http,
    systemd,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import (
    Engine,
    EngineError,
    Unseen,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.firewall import FirewallError
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.live import Orders, View, look
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.processes import container_of
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import (
    drift,
    receipt,
    rollout_report,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.ports import Ports
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import LABEL_STACK, RenderedStack


def compared(host, stacks, looked):
    """The result of looking only: what a run would change."""
    found = {stack.name: looked.differences[stack.name] for stack in stacks}
    found.update({one.stack: (one,) for one in looked.extra if one.action == drift.REMOVE})
    return {
        "changed": looked.changed,
        "stacks": {
            name: {
                "changed": drift.step(differences) != drift.NOTHING,
                "step": drift.step(differences),
                "differences": [difference.as_dict() for difference in differences],
            }
            for name, differences in found.items()
        },
        "extra": [one.as_dict() for one in looked.extra if one.action == drift.REPORT],
        "ports": [one.as_dict() for one in looked.ports],
        "diff": [
            *rollout_report.items(f"{host}: who may reach its engines", looked.ports),
            *(
                block
                for stack in stacks
                for block in rollout_report.diffs(stack, looked.live[stack.name], looked.differences[stack.name])
            ),
        ],
    }


def facts(stack, live):
    """What a report shows of one stack: its state, the last proof that it answered, and the last failure."""
    container = live.container or {"Name": "", "State": {"Status": ""}}
    found = {
        "container": container["Name"].lstrip("/"),
        "status": container["State"]["Status"],
        "started": container["State"].get("StartedAt", ""),
        "receipt": receipt.summary(live.receipt),
    }
    failure = files.read_json(files.failure_path(stack.directory))
    if failure:
        found["failure"] = {"at": failure.get("at", ""), "code": (failure.get("failure") or {}).get("code", "")}
    return found


def owners(processes, engine):
    """Process -> its stack and container; empty names for a process that is in none."""
    found = {}
    for pid in processes:
        identity = container_of(pid)
        container = engine.container(identity) if identity else None
        labels = (container or {}).get("Config", {}).get("Labels") or {}
        found[str(pid)] = {
            "stack": labels.get(LABEL_STACK, ""),
            "container": (container or {}).get("Name", "").lstrip("/"),
        }
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "stacks": {"type": "list", "elements": "dict", "required": True},
            "root": {"type": "path", "default": "/opt/docker/compose"},
            "only": {"type": "str", "default": ""},
            "ask": {"type": "bool", "default": True},
            "prune": {"type": "bool", "default": False},
            "host": {"type": "str", "default": "this host"},
            "ports": {"type": "dict"},
            "facts": {"type": "bool", "default": False},
            "processes": {"type": "list", "elements": "int", "default": []},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    stacks = [RenderedStack.from_dict(stack) for stack in wanted["stacks"]]
    if any(stack.unit for stack in stacks) and not systemd.there():
        module.fail_json(
            msg=f"{wanted['host']} does not run systemd, which starts the stacks again in their order. Without it set "
            "vllm_stack_units: false and vllm_stack_restart: unless-stopped; after a reboot all start at once then."
        )
    try:
        engine = docker_engine.to_check() if module.check_mode else Engine()
        orders = Orders(
            root=wanted["root"],
            ask=wanted["ask"],
            prune=wanted["prune"],
            only=wanted["only"],
            ports=Ports.from_dict(wanted["ports"]) if wanted["ports"] else None,
            bare=module.check_mode and not docker_engine.installed(),
        )
        looked = look(stacks, orders, View(engine, http.fetch, systemd, firewall, time.time))
        result = compared(wanted["host"], stacks, looked)
        if wanted["facts"]:
            result["facts"] = {stack.name: facts(stack, looked.live[stack.name]) for stack in stacks}
            result["owners"] = owners(wanted["processes"], engine)
    except Unseen as unseen:
        module.exit_json(changed=False, stacks={}, extra=[], ports=[], unseen=f"{wanted['host']}: {unseen}")
    except (EngineError, FirewallError, systemd.SystemdError) as error:
        module.fail_json(msg=f"{wanted['host']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
