# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the fleet on the controller: hostvars in, table and findings out. No host is connected to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import inventory, plan, plan_view, ports
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import Finding, FleetError, errors
from ansible_collections.modelfleet.inference.plugins.plugin_utils.hostvars import collect
from ansible_collections.modelfleet.inference.plugins.plugin_utils.screen import brief

display = Display()


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            {
                "gpu_hosts": {"type": "list", "elements": "str", "required": True},
                "gateways": {"type": "list", "elements": "str", "default": []},
                "allow_placeholders": {"type": "bool", "default": False},
                "report_path": {"type": "path"},
                "show": {"type": "bool", "default": True},
            }
        )
        colour = sys.stderr.isatty()
        report: dict[str, Any] = {"hosts": {}, "gateways": {}}
        view = ""
        try:
            raw = collect(task_vars["hostvars"], [*options["gpu_hosts"], *options["gateways"]])
            fleet = inventory.parse(raw, gpu_hosts=options["gpu_hosts"], gateways=options["gateways"])
            defaults = plan.PlanDefaults(allow_placeholders=options["allow_placeholders"])
            made = plan.make(fleet, defaults=defaults)
            report, view = plan_view.as_json(made), plan_view.text(made)
            findings = (*made.findings, *self._reach(options["gpu_hosts"], task_vars["hostvars"]))
            if options["show"]:
                # On standard error, so that callbacks which print JSON on standard output stay readable.
                display.display(f"\n{plan_view.text(made, colour=colour)}\n", stderr=True)
        except FleetError as refused:
            findings = refused.findings
        lines = plan_view.findings_text(findings, colour=colour)
        if lines:
            display.display("\n".join(["", *lines, "", plan_view.summary(findings)]), stderr=True)
        refused_by = errors(findings)
        report.update(refused=bool(refused_by), findings=[plan_view.finding_json(finding) for finding in findings])
        self._write(options["report_path"], report)
        if refused_by:
            places = ", ".join(dict.fromkeys(finding.place for finding in refused_by))
            # Short, because the findings stand above; callbacks for machines get them as data.
            msg = f"The plan is refused: {plan_view.summary(findings)}. To change: {places}"
            return {"failed": True, "msg": msg, **({} if brief() else {"findings": report["findings"]})}
        return {"changed": False, "findings": report["findings"], "plan": report, "view": view.splitlines()}

    @staticmethod
    def _reach(hosts: list[str], variables: Any) -> list[Finding]:
        """A role's option, judged here because a wrong one would be noticed after Docker had been changed."""
        given = {host: variables[host].get(ports.OPTION) for host in hosts}
        return [each for host, reach in given.items() if reach is not None for each in ports.check(reach, host)]

    @staticmethod
    def _write(path: str | None, report: dict[str, Any]) -> None:
        if not path:
            return
        try:
            Path(path).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        except OSError as problem:
            raise AnsibleActionFail(f"report_path: {path} cannot be written: {problem.strerror}") from problem
