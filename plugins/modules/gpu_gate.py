#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_gate
short_description: Prove that a container sees exactly the cards it is given
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Runs C(nvidia-smi -L) in a container that lives only for it, once for each set of cards that a stack uses, in the
    way the stacks get their cards, and compares the UUIDs with those of the host.
  - Uses an image that is on the host already and pulls none. The container gets no network and no memory on the card.
options:
  mode:
    description: How containers get their cards, as in C(vllm_stack_gpu_mode).
    type: str
    choices: [nvidia, runtime, cdi]
    default: nvidia
  stacks:
    description: The inventory's C(fleet_stacks); only their C(gpus) are read. Left out, each card is tried by itself.
    type: list
    elements: dict
    default: []
  image:
    description: The image to use. Left out, that of a container of ours, or one of O(images), whichever is there.
    type: str
    default: ""
  images:
    description: The inventory's C(fleet_images).
    type: dict
    default: {}
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: none
    details:
      - It starts containers, and so is skipped in check mode.
  diff_mode:
    support: N/A
    details:
      - Nothing on the host is changed, so there is no before and after.
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: See that every stack's cards reach its container
  modelfleet.inference.gpu_gate:
    mode: cdi
    stacks: "{{ fleet_stacks }}"
    images: "{{ fleet_images }}"
"""

RETURN = r"""
proofs:
  description: What was tried, with the UUIDs that the container saw.
  returned: always
  type: list
  elements: dict
  sample:
    - {gpus: [1], image: "vllm/vllm-openai@sha256:49211ab2", seen: [GPU-11111111-2222-3333-4444-555555555555]}
notes:
  description: What a person should know, each shown as a warning.
  returned: always
  type: list
  elements: str
  sample: ["ana-ml2: no image of the inventory is on this host yet ..."]
"""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import host as looker
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import nvidia_smi
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import diagnosis
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.host_check import card_options, card_sets


def refused(host, indexes, mode, words):
    """The message for a container that did not start or did not see its cards."""
    found = diagnosis.diagnose(words)
    if 'device driver "cdi"' in words:
        return (
            f"{host}: Docker does not read CDI specifications (features.cdi, Docker 25 and later). Where that waits "
            "for a restart of Docker, set container_engine_restart: allowed. [cdi_not_enabled]"
        )
    what = f"{host}: a container that is given GPU {', '.join(map(str, indexes))} ({mode}) does not get there"
    if found:
        return f"{what}: {found[0].cause} {found[0].remedy} [{found[0].code}]\n{words.strip()[-600:]}"
    return f"{what}: {words.strip()[-600:]} [gpu_gate_failed]"


def main():
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["nvidia", "runtime", "cdi"], "default": "nvidia"},
            "stacks": {"type": "list", "elements": "dict", "default": []},
            "image": {"type": "str", "default": ""},
            "images": {"type": "dict", "default": {}},
            "host": {"type": "str", "default": "this host"},
        },
    )
    wanted, host = module.params, module.params["host"]
    report = nvidia_smi.memory()
    if report.trouble:
        module.fail_json(msg=f"{host}: {report.trouble.problem} {report.trouble.remedy} [{report.trouble.code}]")
    references = [f"{image.get('repository')}@{image.get('digest')}" for image in wanted["images"].values()]
    image = wanted["image"] or looker.image_of_ours(references)
    proofs = []
    if not image:
        note = f"{host}: no image of the inventory is here yet, so nothing proves that a container sees its cards."
        module.exit_json(changed=False, proofs=proofs, notes=[note])
    uuids = {card.index: card.uuid for card in report.cards}
    for indexes in card_sets(wanted["stacks"], sorted(uuids)):
        want = sorted(uuids[index] for index in indexes)
        status, words = looker.cards_in_container(image, card_options(wanted["mode"], indexes, want))
        seen = sorted(re.findall(r"UUID: (GPU-[0-9a-f-]+)", words))
        if status:
            module.fail_json(msg=refused(host, indexes, wanted["mode"], words), proofs=proofs)
        if seen != want:
            module.fail_json(
                msg=f"{host}: a container that is given {', '.join(want)} ({wanted['mode']}) sees "
                f"{', '.join(seen) or 'no card'}. [gpu_gate_wrong_cards]",
                proofs=proofs,
            )
        proofs.append({"gpus": list(indexes), "image": image, "seen": seen})
    module.exit_json(changed=False, proofs=proofs, notes=[])


if __name__ == "__main__":
    main()
