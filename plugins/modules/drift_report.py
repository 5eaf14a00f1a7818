#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drift_report
short_description: Show and write what was found on all hosts
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Prints on the controller, by host and stack, each item with what is wanted and what there is.
  - Writes C(drift.json) for programs, C(drift.html) for people (one page without any reference to elsewhere) and
    C(drift.xml) in JUnit's form for CI.
  - Runs on the controller only and connects to no host.
options:
  reports:
    description:
      - What M(modelfleet.inference.drift) returned as RV(modelfleet.inference.drift#module:report), host by host.
    type: list
    elements: dict
    required: true
  directory:
    description: A folder on the controller for the files; it is made when it is missing. Left out, none is written.
    type: path
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
seealso:
  - module: modelfleet.inference.drift
"""

EXAMPLES = r"""
- name: Report
  modelfleet.inference.drift_report:
    reports: "{{ ansible_play_hosts_all | map('extract', hostvars, 'looked') | map(attribute='report') }}"
    directory: /var/www/fleet
  run_once: true
"""

RETURN = r"""
status:
  description: The weightiest of all hosts, V(none), V(drift) or V(unknown).
  returned: always
  type: str
  sample: drift
differences:
  description: How many there are.
  returned: always
  type: int
  sample: 3
files:
  description: Name and path of each file.
  returned: always
  type: dict
  sample: {drift.json: /var/www/fleet/drift.json}
"""

# The work is done by the action plugin of the same name.
