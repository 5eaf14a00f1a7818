#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: adopt
short_description: Make inventory of model servers that somebody set up by hand
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Reads the vLLM and LiteLLM containers that run on the host, and Compose folders that do not run; or one Compose file
    on the controller, and then no host is connected to.
  - Shows C(fleet_images), C(fleet_models), C(fleet_gpus), C(fleet_stacks) and C(fleet_gateway) as YAML to paste into
    the host's variables. Secrets become names of vault variables; their values are shown nowhere.
  - Nothing is guessed. What the inventory has no word for, and what only a person can know, is named with its place.
  - Then it plans that inventory, renders it, and compares it with what runs, as a run in check mode would, and says
    whether taking over would restart anything.
options:
  compose_file:
    description: A Compose file on the controller. Files that it names are looked for beside it.
    type: path
  directory:
    description: Where the folder of O(compose_file) is on its host, for its relative paths.
    type: str
    default: ""
  to:
    description:
      - A file on the controller for the YAML. An existing one is only replaced when it came from here and nobody has
        changed its first line.
    type: path
  roots:
    description: Folders of the host below which each folder may be a Compose project that does not run now.
    type: list
    elements: path
  known_hosts:
    description: Hosts of the inventory, so that the gateway's addresses can be told from others.
    type: list
    elements: str
    default: []
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: full
    details:
      - Only O(to) is ever written.
  diff_mode:
    support: full
  idempotent:
    support: full
seealso:
  - module: modelfleet.inference.adopt_look
"""

EXAMPLES = r"""
- name: What does this host run?
  modelfleet.inference.adopt:

- name: And this file?
  modelfleet.inference.adopt:
    compose_file: /tmp/docker-compose.yml
    to: inventories/production/host_vars/ana-ml2/fleet.yml
  delegate_to: localhost
"""

RETURN = r"""
inventory:
  description: The variables, with templates where secrets were.
  returned: success
  type: dict
  sample:
    fleet_stacks:
      - {name: qwen35-vl, model: qwen3.5-9b-fp8, gpus: [1], port: 8007, gpu_memory_utilization: 0.4}
yaml:
  description: The same as the text that was shown.
  returned: success
  type: str
  sample: "fleet_stacks:\n  - name: qwen35-vl\n"
findings:
  description: What is not in the inventory, what is to be decided, what is done in another way, what was left alone.
  returned: success
  type: list
  elements: dict
  sample:
    - code: not_expressed
      place: "docker-compose.yml:14"
      problem: qwen is in the network proxy.
      remedy: A stack has its own; the gateway and clients reach it at the host's port.
plan_findings:
  description: What the plan says of the inventory.
  returned: success
  type: list
  elements: dict
  sample: []
refused:
  description: Whether the plan refuses the inventory.
  returned: success
  type: bool
  sample: false
restarts:
  description: For each stack whether taking it over would restart it; empty when nothing was compared.
  returned: success
  type: dict
  sample: {qwen35-vl: true}
differences:
  description: Each item that differs between what runs and what the inventory would make.
  returned: success
  type: list
  elements: dict
  sample: [{stack: qwen35-vl, item: hash, want: 6f0c2d7a91be, have: "", action: recreate}]
secrets:
  description: Vault variables that the inventory needs, and where their values stand now.
  returned: success
  type: dict
  sample: {vault_hf_token: "container vllm-qwen35: Config.Env HF_TOKEN"}
"""

# The work is done by the action plugin of the same name.
