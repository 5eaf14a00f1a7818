# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For modules whose warnings must be seen: the default callback prints none of a task it hides as unchanged.

``Display.warning`` hands them to that callback too, so they go straight to the terminal.
"""

from __future__ import annotations

from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionThatWarns(ActionBase):  # type: ignore[misc]
    """Runs the module of the same name and shows what it has to say in ``notes``."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self._execute_module(self._task.resolved_action, task_vars=task_vars))
        for note in result.get("notes", ()):
            display.display(f"[WARNING]: {note}", color=C.COLOR_WARN, stderr=True)
        return result
