#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_plan
short_description: Plan the whole fleet, or refuse it, before any host is touched
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Reads the five variables C(fleet_images), C(fleet_models), C(fleet_gpus), C(fleet_stacks) and C(fleet_gateway) of
    all given hosts, wherever the inventory sets them, and works out what runs on which GPU, in which order, behind
    which gateway name.
  - Everything that cannot work is reported at once, each with its place in the inventory, the arithmetic, what to
    change and a stable code. The task fails when there is an error; warnings do not fail it.
  - Runs on the controller only and connects to no host. The table and the findings are shown on standard error.
options:
  gpu_hosts:
    description: Hosts that run model servers, usually C(groups['gpu_hosts']). Hosts outside C(--limit) belong here too.
    type: list
    elements: str
    required: true
  gateways:
    description: Hosts that run the gateway, usually C(groups['gateways']).
    type: list
    elements: str
    default: []
  allow_placeholders:
    description:
      - Whether a secret that starts with C(placeholder) is only a warning, so that a plan can be looked at without the
        vault. Never for a deployment.
    type: bool
    default: false
  report_path:
    description:
      - A file on the controller for the plan and the findings as JSON. It is written when the plan is refused, too.
    type: path
  show:
    description: Whether to show the table and a bar per GPU.
    type: bool
    default: true
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
"""

EXAMPLES = r"""
- name: Plan the fleet
  modelfleet.inference.fleet_plan:
    gpu_hosts: "{{ groups['gpu_hosts'] }}"
    gateways: "{{ groups['gateways'] }}"
  run_once: true

- name: Keep the plan for another program
  modelfleet.inference.fleet_plan:
    gpu_hosts: "{{ groups['gpu_hosts'] }}"
    report_path: plan.json
    show: false
  run_once: true
"""

RETURN = r"""
findings:
  description: Everything found, errors and warnings.
  returned: always, but for a refused plan on a terminal without C(-v), where they stand above
  type: list
  elements: dict
  sample:
    - code: gpu_kept_free
      severity: error
      place: "host_vars of ana-ml2: fleet_stacks[4].gpus"
      problem: "names GPU 0, which is kept free: hot-reloading large models."
      remedy: Move the stack to another GPU, or remove keep_free.
      host: ana-ml2
      stack: qwen35-vl
plan:
  description: What is planned and what was found, as C(report_path) has it. Memory is in bytes. Without secrets.
  returned: success
  type: dict
  contains:
    refused:
      description: Whether an error forbids a run.
      type: bool
      sample: false
    findings:
      description: As RV(findings).
      type: list
      elements: dict
      sample: []
    hosts:
      description: For each host its GPUs and its stacks in the order in which they start.
      type: dict
      sample:
        ana-ml2:
          gpus: [{index: 1, memory: 102005473280, keep_free: "", stacks: [granite-summarizer, qwen35-vl]}]
          stacks:
            - name: qwen35-vl
              model: qwen3.5-9b-fp8
              gpus: [1]
              port: 8007
              starts_after: [granite-summarizer]
    gateways:
      description: For each gateway its port, routes, aliases and fallbacks.
      type: dict
      sample: {ana-docker: {port: 4000, routes: {qwen3.5-9b-fp8: [ana-ml2--qwen35-vl]}, aliases: {}, fallbacks: {}}}
view:
  description: The table and the bars, line by line.
  returned: success
  type: list
  elements: str
  sample: ["ana-ml2", "  GPU 1    95.00 GiB  [aaaaaaaaaabbbbbbbbbbbbbbbbbbbb..........] 60% planned"]
"""

# The work is done by the action plugin of the same name.
