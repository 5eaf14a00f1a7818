# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of vllm_smoke: it knows the inventory and reads the owner's pictures. The target asks."""

from __future__ import annotations

import json
from typing import Any, Optional

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import asker
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import compose, inventory
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError, nearest


class ActionModule(ActionBase):
    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = dict(self._task.args)
        host = task_vars["inventory_hostname"]
        try:
            if not args.get("url") and args.get("stacks") is None:
                args["stacks"] = self._stacks(host, task_vars, args.pop("only", None) or [])
                if not args["stacks"]:
                    return {**result, "skipped": True, "msg": f"{host}: no stack to ask here."}
            if args.get("image"):
                args["image"] = asker.read_picture(args["image"])
            if args.get("checks"):
                args["checks"] = _with_pictures(args["checks"])
            if args.get("stacks"):
                args["stacks"] = [
                    {**stack, "checks": _with_pictures(stack.get("checks") or [])} for stack in args["stacks"]
                ]
        except (FleetError, ValueError) as error:
            raise AnsibleActionFail(f"{host}: {error}") from error
        details = boolean(args.pop("details", False))
        report_path = args.pop("report_path", None)
        result.update(self._execute_module("modelfleet.inference.vllm_smoke", module_args=args, task_vars=task_vars))
        if report_path:
            report = {"host": host, "seed": result.get("seed"), "stacks": result.get("stacks", [])}
            with open(report_path, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
        for stack in result.get("stacks", ()):
            says = f"{len(stack['answers'])} questions answered right" if stack["passed"] else stack["code"]
            # To stderr: callbacks that print JSON own stdout.
            self._display.display(f"{host} {stack['name']}: {says} ({stack['seconds']:.1f} s)", stderr=True)
            for answer in () if details else stack["answers"]:
                del answer["exchanges"], answer["pictures"]
        return result

    def _stacks(self, host: str, task_vars: dict[str, Any], only: Any) -> list[dict[str, Any]]:
        """What the inventory places on this host. Its own variables are enough: no other host matters here."""
        only = [name.strip() for name in only.split(",")] if isinstance(only, str) else only
        everywhere = {
            stack.get("name", "") for each in task_vars["hostvars"].values() for stack in each.get("fleet_stacks") or ()
        }
        for name in only:
            if name not in everywhere:  # a stack of another host is fine, one of no host is a typing error
                near = nearest(name, everywhere)
                raise ValueError(f"only: no host has a stack {name!r}.{f' Did you mean {near!r}?' if near else ''}")
        own = {
            name: self._templar.template(value)
            for name, value in task_vars.items()
            if name.startswith("fleet_") and not name.startswith(("fleet_plan_", "fleet_gateway"))
        }
        listen = self._templar.template(task_vars.get("vllm_stack_listen", compose.StackSettings.listen))
        fleet = inventory.parse({host: own}, gpu_hosts=[host], gateways=[])
        rendered = [compose.render(stack, compose.StackSettings(listen=listen)) for stack in fleet.hosts[host].stacks]
        return [
            {"name": each.name, "url": each.url, "model": each.served_model_name, "api_key": each.api_key, **each.asks}
            for each in rendered
            if not only or each.name in only
        ]


def _with_pictures(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**check, "image": asker.read_picture(check["image"])} if check.get("image") else check for check in checks]
