#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_source
short_description: Add a package repository with the one key that may sign it
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Fetches the key, compares its fingerprint, and only then writes the key, the source and, where a version is pinned,
    the pin. A key file with any other key in it is refused.
  - A repository that another file of the host names already is left to that file.
options:
  name:
    description: Name of the files.
    type: str
    required: true
  manager:
    description: The host's package manager.
    type: str
    choices: [apt, dnf]
    required: true
  url:
    description: Address of the repository.
    type: str
    required: true
  suites:
    description: Suites for apt; V(/) for a flat repository.
    type: list
    elements: str
    default: []
  components:
    description: Components for apt.
    type: list
    elements: str
    default: []
  key_url:
    description: Address of the key, armoured or binary.
    type: str
    required: true
  fingerprints:
    description: The fingerprints that may stand in the key file.
    type: list
    elements: str
    required: true
  sign_packages:
    description: For dnf, whether each package is signed; otherwise the repository's metadata is.
    type: bool
    default: true
  pin:
    description: Packages that are held at O(pin_version). For apt.
    type: list
    elements: str
    default: []
  pin_version:
    description: Version, with C(*) for any end.
    type: str
    default: ""
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: full
    details:
      - Fetches the key and checks it, and writes nothing.
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Add NVIDIA's repository of the container toolkit
  modelfleet.inference.package_source:
    name: nvidia-container-toolkit
    manager: apt
    url: https://nvidia.github.io/libnvidia-container/stable/deb/amd64
    suites: [/]
    key_url: https://nvidia.github.io/libnvidia-container/gpgkey
    fingerprints: [C95B321B61E88C1809C4F759DDCAE044F796ECB0]
"""

RETURN = r"""
files:
  description: The files that hold the key, the source and the pin.
  returned: always
  type: list
  elements: str
  sample: [/etc/apt/keyrings/docker.asc, /etc/apt/sources.list.d/docker.sources]
named_by:
  description: The file of somebody else that names this repository already; empty when there is none.
  returned: always
  type: str
  sample: ""
"""

import glob
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import files as writer
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import openpgp
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.package_files import rendered

FOLDERS = {
    "apt": ["/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"],
    "dnf": ["/etc/yum.repos.d/*.repo"],
}


def named_by(manager, url, ours):
    """Another file that names this repository: two files with two keys keep apt from reading either."""
    for pattern in FOLDERS[manager]:
        for path in sorted(glob.glob(pattern)):
            with open(path, encoding="utf-8", errors="replace") as stream:
                lines = [line for line in stream if not line.lstrip().startswith("#")]
            if path not in ours and any(url.rstrip("/") in line for line in lines):
                return path
    return ""


def fetch_key(module):
    """The key file, when every key in it is one that is allowed."""
    url = module.params["key_url"]
    answer, info = fetch_url(module, url, timeout=30)
    if info["status"] not in (200, None) or answer is None:
        module.fail_json(
            msg=f"The key {url} cannot be fetched: {info['msg']}. Is the address right, and does the host "
            "reach it (https_proxy)? [package_key_unreachable]"
        )
    data = answer.read()
    try:
        found = openpgp.fingerprints(data)
    except ValueError as error:
        module.fail_json(msg=f"{url} is no OpenPGP public key: {error}. [package_key_unreadable]")
    allowed = [openpgp.plain(fingerprint) for fingerprint in module.params["fingerprints"]]
    foreign = [fingerprint for fingerprint in found if fingerprint not in allowed]
    if foreign:
        module.fail_json(
            msg=f"{url} holds the key {', '.join(foreign)}, and only {', '.join(allowed)} is trusted. Nothing was "
            "written. If a mirror signs with its own key, name that key's fingerprint. [package_key_wrong]"
        )
    return data


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
            "url": {"type": "str", "required": True},
            "suites": {"type": "list", "elements": "str", "default": []},
            "components": {"type": "list", "elements": "str", "default": []},
            "key_url": {"type": "str", "required": True, "no_log": False},
            "fingerprints": {"type": "list", "elements": "str", "required": True},
            "sign_packages": {"type": "bool", "default": True},
            "pin": {"type": "list", "elements": "str", "default": []},
            "pin_version": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    data = fetch_key(module)
    texts = rendered(
        wanted["manager"],
        wanted["name"],
        wanted["url"],
        wanted["suites"],
        wanted["components"],
        # apt reads a binary key as .gpg, dnf reads armour only: armour is what both read.
        data.decode("ascii", "replace") if openpgp.armoured(data) else openpgp.armour(data),
        wanted["sign_packages"],
        wanted["pin"],
        wanted["pin_version"],
    )
    result = {"changed": False, "files": list(texts), "diff": []}
    result["named_by"] = named_by(wanted["manager"], wanted["url"], texts)
    if result["named_by"]:
        module.exit_json(**result)
    for path, text in texts.items():
        have = writer.read(os.path.dirname(path), [os.path.basename(path)]).get(os.path.basename(path))
        if have and have.content == text:
            continue
        result["changed"] = True
        result["diff"].append(
            {"before_header": path, "after_header": path, "before": have.content if have else "", "after": text}
        )
        if not module.check_mode:
            writer.write(path, text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
