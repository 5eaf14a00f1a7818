#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read the NVIDIA cards of a host, and who holds their memory
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Asks C(nvidia-smi) and returns every card with its memory, its compute capability and the processes that hold
    memory.
  - Compares the cards with O(expected), which is the inventory's C(fleet_gpus), and names every difference with its
    place.
  - A figure that the card does not report is V(null), never zero.
options:
  expected:
    description:
      - The cards the inventory expects, each with C(index) and, where known, C(uuid), C(memory_mib) and
        C(compute_capability).
    type: list
    elements: dict
    default: []
    suboptions:
      index:
        description: Number of the card, in C(nvidia-smi)'s order.
        type: int
        required: true
      uuid:
        description: UUID as C(nvidia-smi -L) prints it.
        type: str
        default: ""
      memory_mib:
        description: Memory in MiB, as C(nvidia-smi)'s C(memory.total) says.
        type: int
      compute_capability:
        description: Such as V("12.0").
        type: str
        default: ""
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
  required:
    description:
      - Whether a host without a working driver is a failure. If V(false), RV(trouble) says why there are no cards.
    type: bool
    default: true
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
"""

EXAMPLES = r"""
- name: See the cards of this host
  modelfleet.inference.gpu_info:
  register: cards

- name: Fail when GPU 1 is not the card the inventory means
  modelfleet.inference.gpu_info:
    expected:
      - {index: 1, uuid: GPU-11111111-2222-3333-4444-555555555555, memory_mib: 97887}
"""

RETURN = r"""
gpus:
  description: The cards, in the driver's order.
  returned: always
  type: list
  elements: dict
  sample:
    - index: 0
      uuid: GPU-11111111-2222-3333-4444-555555555555
      name: NVIDIA H200
      total_mib: 143771
      reserved_mib: 616
      cuda_total_mib: 143155
      used_mib: 4623
      free_mib: 138534
      driver_version: 580.159.04
      bus_id: "00000000:00:06.0"
      compute_capability: "9.0"
      mig_mode: Disabled
      compute_mode: Default
      persistence_mode: Enabled
      processes:
        - {pid: 427, used_mib: 4614, name: python3}
cuda_version:
  description: The CUDA level of the driver; empty when it is not told.
  returned: always
  type: str
  sample: "13.0"
findings:
  description: Differences between O(expected) and the cards, each with code, place, problem, remedy and severity.
  returned: always
  type: list
  elements: dict
  sample:
    - code: gpu_not_there
      place: "host_vars of ana-ml2: fleet_gpus[1].index"
      problem: "GPU 1 is not in ana-ml2; the driver sees: 0."
      remedy: Correct fleet_gpus, or look for the card with lspci and dmesg.
      severity: error
trouble:
  description: Why C(nvidia-smi) did not answer; V(null) when it did.
  returned: always
  type: dict
  sample: {code: driver_library_mismatch, problem: "nvidia-smi says: ...", remedy: reboot the host}
ansible_facts:
  description: The cards as facts, with units in the names.
  returned: always
  type: dict
  sample: {modelfleet_gpus: [], modelfleet_gpu_driver_version: 580.159.04, modelfleet_gpu_cuda_version: "13.0"}
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import nvidia_smi
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import gpus
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError, errors
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import Gpu

CARD = {
    "index": {"type": "int", "required": True},
    "uuid": {"type": "str", "default": ""},
    "memory_mib": {"type": "int"},
    "compute_capability": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "expected": {"type": "list", "elements": "dict", "default": [], "options": CARD},
            "host": {"type": "str", "default": "this host"},
            "required": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    host = module.params["host"]
    report = nvidia_smi.look()
    result = {
        "changed": False,
        "gpus": [card.as_dict() for card in report.cards],
        "cuda_version": report.cuda_version,
        "trouble": asdict(report.trouble) if report.trouble else None,
        "findings": [],
        "ansible_facts": gpus.as_facts(report.cards, report.cuda_version),
    }
    if report.trouble:
        if module.params["required"]:
            trouble = report.trouble
            module.fail_json(msg=f"{host}: {trouble.problem} {trouble.remedy} [{trouble.code}]", **result)
        module.exit_json(**result)

    findings = gpus.compare([_expected(card) for card in module.params["expected"]], report.cards, host)
    result["findings"] = [asdict(finding) for finding in findings]
    if errors(findings):
        module.fail_json(msg=str(FleetError(errors(findings))), **result)
    module.exit_json(**result)


def _expected(card: dict) -> Gpu:
    memory = card["memory_mib"]
    return Gpu(card["index"], card["uuid"], None if memory is None else memory * gpus.MIB, card["compute_capability"])


if __name__ == "__main__":
    main()
