#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Bring all model servers of a host to where they answer
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Compares every stack of the host with what is live (files, container, image, engine), and brings those that differ
    to where they have answered a real question. One execution for all stacks.
  - All images are pulled before the first container is stopped. Stacks on one GPU start one after another in inventory
    order, GPUs side by side. A stack that does not differ is not touched.
  - A stack that fails in any gate (start, ready, answers) is put back to its last good files and asked again; a first
    deployment that fails is stopped, so that its GPU is free.
  - A stack that answered is handed to a systemd unit of its own, which starts it at boot, after a restart of the Docker
    daemon and when it died, in the order of its GPUs. A stack stopped by hand stays down until the next run.
  - While it works, one line for each change of phase is printed on the controller's standard error.
options:
  settings:
    description:
      - What is the same for every stack of the host, the C(vllm_stack_*) variables of the role without their prefix.
        Used on the controller, to render the stacks from the inventory.
    type: dict
    default: {}
  stacks:
    description:
      - The stacks, already rendered. Left out, they are planned and rendered on the controller from the C(fleet_*)
        variables of the host.
    type: list
    elements: dict
  root:
    description: Folder that holds one folder for each stack.
    type: path
    default: /opt/docker/compose
  only:
    description: Roll out this one stack. The others are neither compared nor touched.
    type: str
    default: ""
  ask:
    description: Ask each stack that was started, and each that never answered, its questions.
    type: bool
    default: true
  prune:
    description:
      - Stop and remove stacks that carry our label and are not in the inventory; their folders move to
        C(.modelfleet/archive) below O(root). Otherwise they are reported in RV(extra).
    type: bool
    default: false
  retries:
    description: How often a failure that may pass by itself (such as a memory race at start) is tried again.
    type: int
    default: 1
  max_restarts:
    description: How often a container may restart by itself while it starts, before that is a failure.
    type: int
    default: 0
  prefetch:
    description:
      - Bring the weights of every stack that is to start into the hub cache before the first container stops, in a
        container of the stack's own image, when the file system has room for them. Only for models of the hub.
    type: bool
    default: false
  gateways:
    description:
      - Hosts with a gateway. Before a running engine stops, those that route to it are told to send it no more
        requests, and it finishes those it has. When it answers again, they use it again. Without any, nothing waits.
      - A model without another replica and without a fallback is not blocked, since nobody could answer instead. A
        warning says so.
    type: list
    elements: str
    default: []
  gpu_hosts:
    description: Hosts with stacks, for the routes of O(gateways).
    type: list
    elements: str
    default: []
  reach:
    description:
      - Addresses and networks in numbers that may reach the engines' ports, beside the hosts of O(gateways), whose
        addresses are those of their C(ansible_host), or of C(addresses) in their C(fleet_gateway). V(any) alone lets
        everybody in. Used on the controller.
      - Without any, and without O(gateways), nobody is kept away, because nobody would be left.
    type: list
    elements: str
    default: []
  ports:
    description: The engines' ports and who may reach them. The action plugin gives it. Left out, both are left alone.
    type: dict
  drain:
    description: Seconds that an engine may take to finish its requests before it stops. 0 leaves the gateways alone.
    type: int
    default: 300
  routed:
    description: Stacks that gateways route to. The action plugin gives them.
    type: list
    elements: str
    default: []
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
  secrets:
    description: Values that must appear nowhere in the result.
    type: list
    elements: str
    default: []
  progress:
    description: File on the host that gets one JSON object for each change of phase.
    type: path
requirements:
  - Docker SDK for Python (Debian and Ubuntu C(python3-docker)) on the host
  - Docker command line with its compose plugin on the host
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: full
    details:
      - Reads only, and returns exactly what a run would change.
  diff_mode:
    support: full
    details:
      - Secret files are shown as names of variables only.
  idempotent:
    support: full
notes:
  - A run may be interrupted at any moment. What was begun on the host ends there, and the next run goes on from what it
    finds.
"""

EXAMPLES = r"""
- name: Bring the models of this host to where they answer
  modelfleet.inference.rollout:

- name: Roll out one stack with another root folder
  modelfleet.inference.rollout:
    root: /srv/models
    settings:
      root: /srv/models
    only: qwen35-vl

- name: Roll out without asking, and remove what the inventory does not have any more
  modelfleet.inference.rollout:
    ask: false
    prune: true
"""

RETURN = r"""
stacks:
  description: What became of each stack, by its name.
  returned: always
  type: dict
  sample:
    qwen35-vl:
      changed: true
      ended: ready
      seconds: 93.4
      differences:
        - {stack: qwen35-vl, item: hash, want: 6f0c2d7a91be, have: 0be1c3d4f5a6, action: recreate}
      phases:
        - {phase: stopping, at: 0.0}
        - {phase: ready, at: 93.4}
      receipt:
        outcome: good
        answers:
          - {question: image_number, passed: true, expected: "4711", answer: "4711"}
  contains:
    changed:
      description: Whether this stack was, or in check mode would be, changed.
      type: bool
      returned: always
    differences:
      description: Each item that was not as wanted, with the stack, the item, want, have and the action.
      type: list
      elements: dict
      returned: always
    step:
      description:
        - What a run does (V(nothing), V(write), V(adopt), V(ask), V(wait), V(start), V(recreate), V(create),
          V(remove)).
      type: str
      returned: when only compared
    ended:
      description:
        - How it ended, V(unchanged), V(written), V(ready), V(put_back), V(stopped), V(not_touched), V(removed) or
          V(reported).
      type: str
      returned: when rolled out
    seconds:
      description: From the first act on this stack to the last, in seconds.
      type: float
      returned: when rolled out
    phases:
      description: Each phase with the seconds after which it began.
      type: list
      elements: dict
      returned: when rolled out
    receipt:
      description: What was written to the host as proof, with the questions and answers but without the pictures.
      type: dict
      returned: when it answered
    failure:
      description: The diagnosis, with C(code), C(what), C(why), C(change), C(lines), C(seconds), C(kept), C(after).
      type: dict
      returned: when it failed
extra:
  description: Stacks on the host that the inventory does not have, and that O(prune) was not set for.
  returned: always
  type: list
  elements: dict
  sample:
    - {stack: old-model, item: stack, want: (none), have: vllm-old (running), action: report}
unseen:
  description: Why nothing was compared, also shown as a warning. A run installs first what it would be compared by.
  returned: in check mode, without the Docker SDK for Python on a host that has containers or images
  type: str
  sample: "ana-ml2: The containers cannot be compared before a run has installed the Docker SDK for Python."
ports:
  description: What was set, or in check mode would be, of who may reach the engines' ports.
  returned: always
  type: list
  elements: dict
  sample:
    - {stack: "", item: engine ports, want: 8007 for ana-docker (10.0.0.5) only, have: open to everyone, action: set}
"""

import glob
import json
import os
import random
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import (
    asker,
    firewall,
    http,
    nvidia_smi,
    systemd,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import Engine, EngineError
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.firewall import FirewallError
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.live import Orders
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.rollout_runner import Rollout, World
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import rollout_report
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.ports import Ports
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import RenderedStack

LOST_SECONDS = 60  # whoever follows looks more than once a second


class Progress:
    """JSON lines for whoever follows; nothing where nobody does."""

    def __init__(self, path):
        self.stream = None
        if path:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            # Whoever followed the others removes them, unless it was interrupted.
            for old in glob.glob(os.path.join(os.path.dirname(path), "progress-*")):
                if os.path.getmtime(old) < time.time() - 86400:
                    os.unlink(old)
            self.stream = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")
            self.answers = path + ".answers"
            open(self.answers, "w").close()

    def answer(self, stack):
        """What whoever follows has answered about this stack; None where nobody follows any more.

        It touches the file whenever it looks, and gives it a time to come before it is busy for longer.
        """
        if not self.stream or os.path.getmtime(self.answers) + LOST_SECONDS < time.time():
            return None
        with open(self.answers) as stream:
            said = dict(line.split(None, 1) for line in stream if line.endswith("\n"))
        return said.get(stack, "").strip()

    def __call__(self, stack, phase, text):
        if self.stream:
            entry = {"at": round(time.time(), 3), "stack": stack, "phase": phase, "text": text}
            # One write for each line: several threads report.
            self.stream.write(json.dumps(entry) + "\n")
            self.stream.flush()


def rolled_out(host, outcomes, ports):
    """The result of a run; with ``msg`` and ``failed`` when a stack did not get where it should."""
    failures = [outcome for outcome in outcomes.values() if outcome.failure]
    result = {
        "changed": bool(ports) or any(outcome.changed for outcome in outcomes.values()),
        "ports": [difference.as_dict() for difference in ports],
        "stacks": {name: outcome.as_dict() for name, outcome in outcomes.items() if outcome.ended != "reported"},
        "extra": [
            difference.as_dict()
            for outcome in outcomes.values()
            if outcome.ended == "reported"
            for difference in outcome.differences
        ],
    }
    if failures:
        result["failed"] = True
        result["msg"] = "\n\n".join(rollout_report.failure(host, one.name, one.failure) for one in failures)
    return result


def main():
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "default": {}},
            "stacks": {"type": "list", "elements": "dict"},
            "root": {"type": "path", "default": "/opt/docker/compose"},
            "only": {"type": "str", "default": ""},
            "ask": {"type": "bool", "default": True},
            "prune": {"type": "bool", "default": False},
            "retries": {"type": "int", "default": 1},
            "max_restarts": {"type": "int", "default": 0},
            "prefetch": {"type": "bool", "default": False},
            "gateways": {"type": "list", "elements": "str", "default": []},
            "gpu_hosts": {"type": "list", "elements": "str", "default": []},
            "reach": {"type": "list", "elements": "str", "default": []},
            "ports": {"type": "dict"},
            "drain": {"type": "int", "default": 300},
            "routed": {"type": "list", "elements": "str", "default": []},
            "host": {"type": "str", "default": "this host"},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.fail_json(msg="In check mode the controller's half asks stack_compare; this half only works.")
    wanted = module.params
    stacks = [RenderedStack.from_dict(stack) for stack in wanted["stacks"] or ()]
    orders = Orders(
        root=wanted["root"],
        ask=wanted["ask"],
        prune=wanted["prune"],
        only=wanted["only"],
        retries=wanted["retries"],
        max_restarts=wanted["max_restarts"],
        prefetch=wanted["prefetch"],
        routed=tuple(wanted["routed"]),
        ports=Ports.from_dict(wanted["ports"]) if wanted["ports"] else None,
        drain_seconds=wanted["drain"],
        host=wanted["host"],
    )
    report = Progress(wanted["progress"])
    try:
        world = World(
            engine=Engine(),
            fetch=http.fetch,
            units=systemd,
            firewall=firewall,
            wall=time.time,
            memory=lambda processes: nvidia_smi.memory(processes=processes),
            ask=asker.ask,
            report=report,
            released=report.answer,
            seed=lambda: random.SystemRandom().getrandbits(32),
        )
        rollout = Rollout(stacks, orders, world)
        outcomes = rollout.run()
        result = rolled_out(wanted["host"], outcomes, rollout.ports)
    except (EngineError, FirewallError, systemd.SystemdError) as error:
        module.fail_json(msg=f"{wanted['host']}: {error}")
    finally:
        report("", "ended", "")
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
