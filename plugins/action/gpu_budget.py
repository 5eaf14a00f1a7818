# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show what was measured on the controller's terminal; reading it is the module's work."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self._execute_module("modelfleet.inference.gpu_budget", task_vars=task_vars))
        host = task_vars["inventory_hostname"]
        for line in result.get("report", ()):
            # To stderr: callbacks that print JSON own stdout.
            self._display.display(f"{host}: {line}", stderr=True)
        return result
