#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drift
short_description: Say what of a host is not as the inventory wants it
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Compares engine, daemon.json, NVIDIA side, stacks and gateway of a host with the inventory, by the modules that a
    run uses and with the values that the roles would give them, all in check mode.
  - Never fails. A host that cannot be reached, an engine that stands still and a gateway that does not answer are
    RV(report.trouble), not differences, and the other hosts are still looked at.
options:
  gpu_hosts:
    description: Hosts with stacks. Left out, the group C(gpu_hosts).
    type: list
    elements: str
    default: []
  gateways:
    description: Hosts with a gateway. Left out, the group C(gateways).
    type: list
    elements: str
    default: []
requirements:
  - Docker SDK for Python (Debian and Ubuntu C(python3-docker)) on the host
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
seealso:
  - module: modelfleet.inference.drift_report
  - module: modelfleet.inference.drift_verdict
"""

EXAMPLES = r"""
- name: Look at the host
  modelfleet.inference.drift:
  register: looked
"""

RETURN = r"""
report:
  description: What was found.
  returned: always
  type: dict
  sample:
    host: ana-ml2
    status: drift
    differences:
      - {part: stack, stack: qwen35-vl, item: environment HF_HOME, want: /hub, have: /tmp, action: recreate}
    trouble: []
    warnings: []
  contains:
    host:
      description: The host's name in the inventory.
      type: str
      returned: always
    at:
      description: When it was looked at, in seconds since 1970 by the controller's clock.
      type: float
      returned: always
    seconds:
      description: How long that took.
      type: float
      returned: always
    status:
      description: V(none), V(drift), or V(unknown) where something could not be looked at.
      type: str
      returned: always
    differences:
      description:
        - Each item that is not as wanted, with C(part) (V(host), V(stack) or V(gateway)), C(stack), C(item), C(want),
          C(have), and what a run does about it in C(action); V(report) is left to a person.
      type: list
      elements: dict
      returned: always
    trouble:
      description: Why something could not be looked at, each with C(code), C(place), C(problem) and C(remedy).
      type: list
      elements: dict
      returned: always
    warnings:
      description: What is no difference and should be known, in the same shape.
      type: list
      elements: dict
      returned: always
    cards:
      description: The cards with the stacks on them and who else holds their memory; sizes in MiB.
      type: list
      elements: dict
      returned: always
    stacks:
      description: The stacks of the inventory with their state and their receipts.
      type: list
      elements: dict
      returned: always
    gateway:
      description: The routes of the inventory.
      type: dict
      returned: where the host has a gateway
"""

# The work is done by the action plugin of the same name.
