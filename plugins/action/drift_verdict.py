# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what was found on a host into what Ansible makes an exit status of: failed is 2, unreachable is 4 and wins."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ..module_utils.fleet import drift_report


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            {"report": {"type": "dict", "required": True}, "fail": {"type": "bool", "default": True}}
        )
        report = options["report"]
        if report["status"] == drift_report.UNKNOWN:
            said = "; ".join(f"{each['problem']} [{each['code']}]" for each in report["trouble"])
            raise AnsibleConnectionFailure(f"Could not look: {said}")
        if report["status"] == drift_report.DRIFT:
            places = {place: [each["item"] for each in found] for place, found in drift_report.by_place(report).items()}
            said = "; ".join(f"{place}: {', '.join(items)}" for place, items in places.items())
            return {"failed": options["fail"], "changed": False, "msg": f"Not as the inventory wants: {said}"}
        return {"changed": False, "msg": "As the inventory wants."}
