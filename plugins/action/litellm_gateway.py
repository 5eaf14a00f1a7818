# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of litellm_gateway: makes the routes out of the variables of all hosts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.fleet import gateway_files, inventory, routes
from ..module_utils.fleet.errors import Finding, FleetError, errors, nearest
from ..plugin_utils import hostvars

display = Display()

CLIENT_KEYS = Path(__file__).resolve().parents[2] / "roles" / "litellm_gateway" / "files" / "client_keys.py"
ROLE_PREFIX = "litellm_gateway_"


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result = self.result(task_vars)
        host = str(self._task.args.get("host") or task_vars["inventory_hostname"])
        found = [str(Finding(**each)) for each in result.get("findings") or ()]
        for note in [*result.get("notes", []), *filter(None, [result.get("unseen")]), *found]:
            # Straight to the terminal: the callback prints no warning of a task that it hides as unchanged.
            display.display(f"[WARNING]: {note}", color=C.COLOR_WARN, stderr=True)
        for answer in result.get("answers") or ():
            if answer["route"]:
                of = f" (alias of {answer['alias_of']})" if answer["alias_of"] else ""
                asked = f"asked for {answer['name']}{of}: {answer['code']}, by {answer['route']}"
                # Standard error: standard output belongs to the callback, which may print JSON there.
                display.display(f"{host} gateway {asked}", stderr=True)
        return result

    def result(self, task_vars: Any) -> dict[str, Any]:
        """What ``run`` returns, without a word on the terminal."""
        super().run(None, task_vars)
        arguments = dict(self._task.args)
        for name in ("gpu_hosts", "gateways", "blocked"):  # text where somebody calls the module from a command line
            if isinstance(arguments.get(name), str):
                arguments[name] = [each.strip() for each in arguments[name].split(",") if each.strip()]
        host = str(arguments.get("host") or task_vars["inventory_hostname"])
        try:
            rendered, warnings = self._render(host, arguments, task_vars)
        except (FleetError, ValueError) as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        arguments.update(host=host, gateway=rendered.as_dict(), secrets=list(rendered.secrets))
        result: dict[str, Any] = self._execute_module(
            "modelfleet.inference.litellm_gateway", arguments, task_vars=task_vars
        )
        for name in ("invocation", "exception"):  # the one repeats the gateway, keys included, the other the message
            result.pop(name, None)
        result["notes"] = [*warnings, *result.get("notes", [])]
        return result

    def _render(
        self, host: str, arguments: dict[str, Any], task_vars: Any
    ) -> tuple[gateway_files.RenderedGateway, list[str]]:
        gateways = list(arguments.get("gateways") or [host])
        gpu_hosts = list(arguments.get("gpu_hosts") or [])
        raw = hostvars.collect(task_vars["hostvars"], [*gpu_hosts, *gateways])
        fleet = inventory.parse(raw, gpu_hosts=gpu_hosts, gateways=gateways)
        if host not in fleet.gateways:
            raise ValueError(f"{host} is not among the gateways ({', '.join(gateways)}).")
        settings = self._settings(host, arguments.pop("settings", None) or {}, task_vars)
        # The role may be given more than the host's own variables say.
        gateway = dataclasses.replace(fleet.gateways[host], instances=settings.instances)
        refused = errors(routes.check(fleet, gateway))
        if refused:
            raise FleetError(refused)
        planned = routes.make(fleet, gateway)
        blocked = [str(each) for each in arguments.get("blocked") or ()]
        for each in blocked:
            if each not in planned.ids:
                near = nearest(each, planned.ids)
                known = f"Did you mean {near!r}?" if near else f"Known are: {', '.join(planned.ids)}."
                raise ValueError(f"blocked: {each!r} is no route. {known}")
        warnings = [
            f"{model} has no replica left while {', '.join(blocked)} is blocked: "
            + (
                f"{', '.join(others)} takes over."
                if (others := routes.stand_ins(planned, model))
                else "clients get 403."
            )
            for model, left in routes.unblocked_replicas(planned, blocked).items()
            if not left
        ]
        return gateway_files.render(planned, settings, CLIENT_KEYS.read_text(encoding="utf-8"), blocked), warnings

    @staticmethod
    def _settings(host: str, given: dict[str, Any], task_vars: Any) -> gateway_files.GatewaySettings:
        kinds = {each.name: each.type for each in dataclasses.fields(gateway_files.GatewaySettings)}
        unknown = sorted(set(given) - set(kinds))
        if unknown:
            raise ValueError(f"settings: {', '.join(unknown)} is not known. Known are: {', '.join(sorted(kinds))}.")
        its = task_vars["hostvars"][host]
        given = {**given, **{name: its[ROLE_PREFIX + name] for name in kinds if ROLE_PREFIX + name in its}}
        return gateway_files.GatewaySettings(
            **{name: int(value) if kinds[name] == "int" else str(value) for name, value in given.items()}
        )
