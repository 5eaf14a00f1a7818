#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_pin
short_description: Bring the digests of fleet_images up to their tags, in the inventory's own file
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Resolves the tag of every image that the given hosts see in C(fleet_images), through the engine of the host the
    task runs for, and shows which have moved. Nothing is pulled, nothing is started.
  - The new digest replaces the old one in the file that holds it. Comments, order, quoting and every other byte stay
    as they are. An image without a digest gets one behind its tag.
  - A digest that does not stand in a file by itself (a template, a value of Ansible Vault, an alias) is not written;
    the message says where it comes from.
  - When one image cannot be resolved or written, the others are shown and none is written.
options:
  hosts:
    description: Hosts whose C(fleet_images) are meant.
    type: list
    elements: str
    required: true
  only:
    description: Names of images, when not all are meant.
    type: list
    elements: str
    default: []
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the changed lines only.
  idempotent:
    support: full
seealso:
  - module: modelfleet.inference.image_lookup
"""

EXAMPLES = r"""
- name: Pin the images of the fleet anew
  modelfleet.inference.image_pin:
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
"""

RETURN = r"""
images:
  description: What was found about each image.
  returned: when the variables could be read
  type: list
  elements: dict
  sample:
    - name: vllm-nightly
      reference: vllm/vllm-openai:nightly
      old: sha256:49211ab2
      new: sha256:49211ab2c0ffee0049211ab2c0ffee0049211ab2c0ffee0049211ab2c0ffee00
      created: "2026-11-20T04:11:09Z"
      moved: true
      watch: re-pin to a release
      newer_releases: [v0.33.0]
      error: ""
files:
  description: Files of the inventory that were, or in check mode would be, changed.
  returned: when the variables could be read
  type: list
  elements: str
  sample: [inventories/production/group_vars/all/fleet_images.yml]
"""

# The work is done by the action plugin of the same name.
