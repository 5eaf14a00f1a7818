#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_budget
short_description: Compare the shares of the stacks with what they really took
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Reads the receipts of the last good rollouts and the cards of the host, and says for each stack what its weights,
    its graphs, its KV cache and the rest took, what the share covered for the peak at its start, and which smaller
    share would still hold one request of full length.
  - Reads only. A stack that was never rolled out has not been measured.
options:
  root:
    description: Folder that holds one folder for each stack.
    type: path
    default: /opt/docker/compose
  shares:
    description: The inventory's C(gpu_memory_utilization) of each stack, by its name.
    type: dict
    default: {}
  floors:
    description: The C(memory_floor) of each stack's model with its unit, by stack. No smaller share is named.
    type: dict
    default: {}
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Compare shares with what was measured
  modelfleet.inference.gpu_budget:
    shares: {qwen35-vl: 0.40}
    floors: {qwen35-vl: 34 GiB}
"""

RETURN = r"""
stacks:
  description: Each stack on each of its cards; sizes in GiB, V(null) where nobody measured.
  returned: always
  type: list
  elements: dict
  sample:
    - {stack: qwen35-vl, gpu: 1, share: 0.4, took: 37.0, weights: 13.67, graphs: 0.31, kv: 22.94, kv_tokens: 751696,
       length: 32768, rest: 0.08, peak: 1.31, least_share: 0.36}
report:
  description: The same for a person to read.
  returned: always
  type: list
  elements: str
  sample: ["GPU 1 NVIDIA RTX PRO 6000 Blackwell: 95.0 GiB, shares 0.85, free now 17.4 GiB"]
"""

import glob
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import files, nvidia_smi
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import measured, sizes


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/docker/compose"},
            "shares": {"type": "dict", "default": {}},
            "floors": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    smi = nvidia_smi.memory(processes=True)
    if smi.trouble:
        module.fail_json(msg=f"{smi.trouble.problem} {smi.trouble.remedy} [{smi.trouble.code}]")
    folders = [os.path.dirname(path) for path in sorted(glob.glob(os.path.join(root, "*", "compose.yaml")))]
    receipts = [found for found in map(files.read_json, map(files.receipt_path, folders)) if found]
    floors = {name: sizes.parse_size(floor) for name, floor in module.params["floors"].items() if floor}
    stacks = measured.read(receipts, smi.cards, floors)
    shares = {name: None if share is None else float(share) for name, share in module.params["shares"].items()}
    module.exit_json(
        changed=False,
        stacks=[stack.as_dict() for stack in stacks],
        report=measured.report(stacks, smi.cards, shares),
    )


if __name__ == "__main__":
    main()
