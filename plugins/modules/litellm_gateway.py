#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: litellm_gateway
short_description: Bring a LiteLLM gateway to where it routes as the inventory says
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - The routes are made on the controller from the C(fleet_*) variables of all hosts, whoever is in C(-l).
  - A new configuration is read by LiteLLM in the pinned image, without a network, before it reaches the running
    gateway. Then the gateway's workers take turns, so that no request is lost, and the run waits until every one of
    them names the new configuration. If they do not, the files before are put back.
  - The container is replaced only when its image, its service or its environment changes.
  - What was changed is asked through the gateway (every model, every alias, pictures too), and what must be refused is
    tried. A wrong answer is compared with the engine's own, so that it is clear whose fault it is.
options:
  host:
    description:
      - The gateway's host in the inventory. Give it where the task runs for another host and is delegated to this one.
        Defaults to the host of the task.
    type: str
  gpu_hosts:
    description: Hosts with stacks, usually C(groups['gpu_hosts']).
    type: list
    elements: str
    default: []
  gateways:
    description: Hosts with a gateway, usually C(groups['gateways']).
    type: list
    elements: str
    default: []
  settings:
    description:
      - The C(litellm_gateway_*) variables of the role without their prefix. Those that O(host) itself has set win, so
        that a delegated task needs none.
    type: dict
    default: {}
  replace:
    description:
      - Whether the container may be started or replaced. With V(false) only the routes are brought up to date, by a
        reload, and a container that must be replaced is reported as a warning.
    type: bool
    default: true
  ask:
    description: Ask through the gateway what was changed, or was never asked.
    type: bool
    default: true
  blocked:
    description:
      - Routes (C(HOST--STACK)) that get no new request, while what is behind them is replaced. The next run without
        this option opens them again. The other replicas take over. A warning says when there is none.
    type: list
    elements: str
    default: []
  drain:
    description: Seconds to wait until the engines of O(blocked) routes have finished all requests they have.
    type: int
    default: 0
  gateway:
    description: The gateway, already rendered. The action plugin makes it.
    type: dict
  secrets:
    description: Values that must appear nowhere in the result. The action plugin gives them.
    type: list
    elements: str
    default: []
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
      - Files with secrets are named and not shown.
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Bring this gateway up to date
  modelfleet.inference.litellm_gateway:
    gpu_hosts: "{{ groups['gpu_hosts'] }}"
    gateways: "{{ groups['gateways'] }}"

- name: After a model was placed on this host, let every gateway know
  modelfleet.inference.litellm_gateway:
    host: "{{ item }}"
    gpu_hosts: "{{ groups['gpu_hosts'] }}"
    gateways: "{{ groups['gateways'] }}"
    replace: false
  loop: "{{ groups['gateways'] }}"
  delegate_to: "{{ item }}"
  run_once: true

- name: Send nobody to a model while its engine is upgraded, and wait until it has finished its requests
  modelfleet.inference.litellm_gateway:
    gpu_hosts: "{{ groups['gpu_hosts'] }}"
    gateways: "{{ groups['gateways'] }}"
    blocked: [ana-ml2--qwen35-vl]
    drain: 300
"""

RETURN = r"""
step:
  description:
    - What was, or in check mode would be, done. The weightiest of V(write), V(ask), V(wait), V(reload), V(start),
      V(recreate) and V(create); empty for nothing.
  returned: always
  type: str
  sample: reload
differences:
  description: Each item that was not as wanted, with want, have and the action.
  returned: always
  type: list
  elements: dict
  sample:
    - {stack: litellm, item: routes, want: 5 as in the inventory, have: without ana-ml2--qwen35-vl, action: reload}
routes:
  description: The routes of the inventory.
  returned: always
  type: list
  elements: str
  sample: [ana-ml2--embedder, ana-ml2--qwen35-vl]
needs_replacing:
  description: Whether the container must be started or replaced and O(replace) did not allow it.
  returned: always
  type: bool
  sample: false
answers:
  description: What came of each name asked through the gateway, and of each request that must be refused.
  returned: when asked
  type: list
  elements: dict
  sample:
    - {name: vision, alias_of: qwen3.5-9b-fp8, route: ana-ml2--qwen35-vl, passed: true, code: passed}
    - {name: wrong key, passed: true, code: passed, message: "HTTP 401, as it must be."}
unseen:
  description: Why nothing was compared, also shown as a warning. A run installs first what it would be compared by.
  returned: in check mode, without the Docker SDK for Python on a host that has containers or images
  type: str
  sample: "ana-docker: The containers cannot be compared before a run has installed the Docker SDK for Python."
notes:
  description: What to know although nothing failed. They are shown as warnings too.
  returned: always
  type: list
  elements: str
  sample: []
findings:
  description:
    - Routes that LiteLLM sends no request although nothing differs, each with C(code), C(place), C(problem), C(remedy),
      C(host) of the gateway and C(stack). V(route_to_nothing) where nothing answers at the route's address,
      V(route_cooled_down) where something does now and LiteLLM's last probe failed.
    - Only probes are seen. That a request of a client failed and cools a route down for some seconds, LiteLLM says
      nowhere.
  returned: in check mode
  type: list
  elements: dict
  sample:
    - code: route_to_nothing
      place: "ana-docker: gateway"
      stack: qwen35-vl
seconds:
  description: How long it took.
  returned: when not in check mode
  type: float
  sample: 38.2
code:
  description: Stable code of what went wrong.
  returned: when failed
  type: str
  sample: gateway_config_refused
"""

import random
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import docker_engine, http
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import (
    Engine,
    EngineError,
    Unseen,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.gateway_runner import (
    GatewayFailed,
    GatewayRollout,
    Orders,
    World,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.gateway_files import RenderedGateway


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str"},
            "gpu_hosts": {"type": "list", "elements": "str", "default": []},
            "gateways": {"type": "list", "elements": "str", "default": []},
            "settings": {"type": "dict", "default": {}},
            "replace": {"type": "bool", "default": True},
            "ask": {"type": "bool", "default": True},
            "blocked": {"type": "list", "elements": "str", "default": []},
            "drain": {"type": "int", "default": 0},
            "gateway": {"type": "dict"},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    if not wanted["gateway"]:
        module.fail_json(msg="gateway is missing: the action plugin of this module makes it, so call it as a task.")
    gateway = RenderedGateway.from_dict(wanted["gateway"])
    orders = Orders(
        replace=wanted["replace"],
        ask=wanted["ask"],
        drain_seconds=wanted["drain"],
        drained=tuple(route.url for route in gateway.routes if route.id in wanted["blocked"]),
    )
    try:
        world = World(
            engine=docker_engine.to_check() if module.check_mode else Engine(),
            fetch=http.fetch,
            seed=lambda: random.SystemRandom().getrandbits(31),
        )
        rollout = GatewayRollout(gateway, orders, world)
        outcome = rollout.look() if module.check_mode else rollout.run()
    except GatewayFailed as failed:
        module.fail_json(msg=str(failed), code=failed.code, routes=list(gateway.ids))
    except Unseen as unseen:
        module.exit_json(changed=False, step="", differences=[], routes=gateway.ids, unseen=f"{gateway.host}: {unseen}")
    except EngineError as error:
        module.fail_json(msg=f"{gateway.host}: {error}")
    module.exit_json(
        notes=outcome.warnings,
        changed=outcome.changed,
        step=outcome.step,
        differences=[difference.as_dict() for difference in outcome.differences],
        routes=list(gateway.ids),
        needs_replacing=outcome.needs_replacing,
        answers=outcome.answers,
        findings=[asdict(finding) for finding in outcome.findings],
        seconds=round(outcome.seconds, 1),
        diff=outcome.diff,
    )


if __name__ == "__main__":
    main()
