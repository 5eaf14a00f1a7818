# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows and writes on the controller what was found on all hosts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.fleet import drift_page, drift_report
from ..plugin_utils.replace_file import replace

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            {
                "reports": {"type": "list", "elements": "dict", "required": True},
                "directory": {"type": "path"},
            }
        )
        reports, now = options["reports"], time.time()
        data = drift_report.as_json(reports, now)
        # Standard error: standard output belongs to the callback, which may print JSON there.
        display.display("\n" + "\n".join(drift_report.text(reports)) + "\n", stderr=True)
        written = {}
        if options["directory"]:
            written = self._write(
                Path(options["directory"]),
                {
                    "drift.json": json.dumps(data, indent=2) + "\n",
                    "drift.html": drift_page.page(reports, now),
                    "drift.xml": drift_report.junit(reports),
                },
            )
        return {"changed": False, "status": data["status"], "differences": data["differences"], "files": written}

    @staticmethod
    def _write(directory: Path, texts: dict[str, str]) -> dict[str, str]:
        """Each file whole or not at all: a web server may be reading them."""
        # What a host answered may hold what no file can.
        whole = {str(directory / name): text.encode("utf-8", "replace").decode() for name, text in texts.items()}
        try:
            replace(whole)
        except OSError as problem:
            raise AnsibleActionFail(f"directory: {directory} cannot be written: {problem.strerror}") from problem
        return {name: str(directory / name) for name in texts}
