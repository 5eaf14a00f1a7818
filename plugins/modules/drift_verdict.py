#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drift_verdict
short_description: Let the exit status of Ansible say what was found on a host
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - A host with differences is failed, which makes Ansible's exit status 2. A host that could not be looked at is
    unreachable, which makes it 4, whatever the other hosts are. The recap counts both.
  - Runs on the controller only and connects to no host.
options:
  report:
    description: What M(modelfleet.inference.drift) returned as RV(modelfleet.inference.drift#module:report).
    type: dict
    required: true
  fail:
    description: Whether differences are a failure. What could not be looked at always is one.
    type: bool
    default: true
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
seealso:
  - module: modelfleet.inference.drift
"""

EXAMPLES = r"""
- name: Say it by the exit status
  modelfleet.inference.drift_verdict:
    report: "{{ looked.report }}"
"""

RETURN = r"""
msg:
  description: The items that differ, by stack.
  returned: always
  type: str
  sample: "Not as the inventory wants: qwen35-vl: container.state"
"""

# The work is done by the action plugin of the same name.
