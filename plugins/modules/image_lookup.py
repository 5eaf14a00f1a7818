#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_lookup
short_description: Ask a registry, through the host's engine, what is under a tag
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - The host's Docker daemon resolves the tags, with its own login, mirror and certificates. Nothing is pulled.
  - When an image was made and which tags there are does not pass through the daemon. The host asks the registry for
    it, without a login; a registry that wants one leaves these two open and says so.
options:
  images:
    description: What to look up.
    type: list
    elements: dict
    required: true
    suboptions:
      repository:
        description: The repository, as Docker names it.
        type: str
        required: true
      tag:
        description: The tag.
        type: str
        required: true
      tags:
        description: Whether to list the tags that name a release, too.
        type: bool
        default: false
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
requirements:
  - Docker SDK for Python (Debian and Ubuntu C(python3-docker)) on the host
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
seealso:
  - module: modelfleet.inference.image_pin
"""

EXAMPLES = r"""
- name: See what a tag means today
  modelfleet.inference.image_lookup:
    images: [{repository: vllm/vllm-openai, tag: nightly}]
"""

RETURN = r"""
images:
  description: For each of O(images), in their order, what was found.
  returned: always
  type: list
  elements: dict
  sample:
    - digest: sha256:49211ab2c0ffee0049211ab2c0ffee0049211ab2c0ffee0049211ab2c0ffee00
      created: "2026-11-20T04:11:09Z"
      error: ""
      tags: [v0.32.0, v0.33.0]
      tags_error: ""
  contains:
    digest:
      description: Digest of the index, or of the manifest where there is no index; empty when it was not resolved.
      type: str
    created:
      description: When the image was made; empty when the registry does not say it.
      type: str
    error:
      description: Why the tag was not resolved, in the words of the daemon.
      type: str
    tags:
      description: The tags that name a release.
      type: list
      elements: str
    tags_error:
      description: Why the tags could not be listed.
      type: str
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import http
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import Engine, EngineError
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.registry import (
    Registry,
    RegistryError,
    split,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.pinning import RELEASE, Looked


def look(engine: Engine, repository: str, tag: str, tags: bool) -> Looked:
    """What is under this tag. Whatever cannot be found out is empty, with the reason beside it."""
    digest, created, error, found, tags_error = "", "", "", (), ""
    try:
        digest = engine.registry_digest(f"{repository}:{tag}")
        registry = Registry(repository, http.fetch, engine.speaks_plain_http(split(repository)[0]))
    except EngineError as problem:
        return Looked(error=" ".join(str(problem).split()), tags_error="the tag was not resolved" if tags else "")
    try:
        created = registry.created(digest)
    except RegistryError:
        created = ""  # nice to know, no more
    if tags:
        try:
            found = tuple(name for name in registry.tags() if RELEASE.fullmatch(name))
        except RegistryError as problem:
            tags_error = str(problem)
    return Looked(digest, created, error, found, tags_error)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "images": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "repository": {"type": "str", "required": True},
                    "tag": {"type": "str", "required": True},
                    "tags": {"type": "bool", "default": False},
                },
            },
            "host": {"type": "str", "default": "this host"},
        },
        supports_check_mode=True,
    )
    wanted = module.params["images"]
    try:
        engine = Engine()
        # Without a daemon every image would give the same message.
        engine.image("modelfleet/none")
    except EngineError as error:
        module.fail_json(msg=f"{module.params['host']}: {error}")
    with ThreadPoolExecutor(max_workers=max(1, min(len(wanted), 8))) as pool:
        found = list(pool.map(lambda one: look(engine, one["repository"], one["tag"], one["tags"]), wanted))
    module.exit_json(changed=False, images=[asdict(each) for each in found])


if __name__ == "__main__":
    main()
