# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares one host with the inventory by the modules that a run uses, in check mode, in as few executions as it takes.

The task never fails and the host never drops out: a host that cannot be looked at is a result, and the others go on.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils.fleet import drift, host_drift
from ..module_utils.fleet.errors import ERROR, Finding, FleetError
from ..plugin_utils import host_stacks
from ..plugin_utils.role_arguments import role_arguments

NAMESPACE = "modelfleet.inference"


class CannotLook(Exception):
    """Why the rest of this host stays unseen."""

    def __init__(self, code: str, place: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.findings = [Finding(code, place, problem, remedy, ERROR)]


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        self._task.check_mode = True  # whatever is executed below only looks
        self._task.diff = False
        self.host = str(task_vars["inventory_hostname"])
        self.vars = task_vars
        self.report: dict[str, Any] = {
            "host": self.host,
            "at": time.time(),
            "differences": [],
            "trouble": [],
            "warnings": [],
            "cards": [],
            "stacks": [],
        }
        groups = task_vars.get("groups") or {}
        gpu_hosts = self._task.args.get("gpu_hosts") or groups.get("gpu_hosts") or ()
        gateways = self._task.args.get("gateways") or groups.get("gateways") or ()
        try:
            self._look(self.host in gpu_hosts, self.host in gateways)
        except CannotLook as blind:
            self._trouble(blind.findings)
        except FleetError as refused:
            self._trouble(refused.findings)
        except AnsibleConnectionFailure as lost:
            remedy = f"Look at the host and at the way to it: ansible {self.host} -m ping"
            self._trouble([Finding("unreachable", self.host, f"cannot be reached: {_line(lost)}", remedy)])
        except (AnsibleError, ValueError) as problem:
            remedy = "Correct it in the inventory; a run would stop here too."
            self._trouble([Finding("not_comparable", self.host, _line(problem), remedy)])
        self.report["seconds"] = round(time.time() - self.report["at"], 2)
        self.report["status"] = drift_status(self.report)
        return {"changed": False, "report": self.report}

    def _look(self, serves: bool, routes: bool) -> None:
        engine_wanted = self._role("container_engine", "host_info")["engine"]
        wanted: dict[str, Any] = {"host": self.host, "engine": engine_wanted}
        stacks: dict[str, Any] = {}
        if serves:
            # The inventory's part first: it is in the report of a host that cannot be reached, too.
            stacks = host_stacks.arguments(self._role("vllm_stack", "rollout"), self.host, self.vars)
            self.report["stacks"] = [_brief(stack) for stack in stacks["stacks"]]
            nvidia = self._role("nvidia_runtime", "host_info")["nvidia"]
            # As in site.yml: a host may run models without a card.
            if nvidia["gpus"] or "fleet_gpus" not in self.vars:
                wanted["nvidia"] = nvidia
            self.report["cards"] = _planned_cards(nvidia["gpus"], self.report["stacks"])
        info = self._module("host_info", wanted)
        if "engine" not in info:
            raise CannotLook("host_unreadable", self.host, _line(info.get("msg", "no answer")), "Run it with -vvv.")
        self.report["warnings"] += map(asdict, host_drift.warnings(info))
        self._trouble(host_drift.blind(info))
        config = self._config(engine_wanted["manage"], wanted.get("nvidia"), info)
        self._differences(
            "host",
            host_drift.compare(
                info,
                config,
                manages=(engine_wanted["manage"], (wanted.get("nvidia") or {}).get("manage", False)),
                versions=(engine_wanted["version"], (wanted.get("nvidia") or {}).get("version", "")),
            ),
        )
        down = host_drift.engine_down(info, self.host)
        if down:
            self._trouble([down])
            return
        if serves:
            self._stacks(stacks, info, wanted.get("nvidia") or {})
        if routes:
            self._gateway()

    def _config(self, managed: bool, nvidia: Any, info: dict[str, Any]) -> dict[str, Any]:
        """What of daemon.json the two roles would change, in one execution; none where both are content."""
        runtime = info.get("nvidia") or {}
        content = info["engine"]["configured"] or not managed
        if content and (runtime.get("configured", True) or not (nvidia and nvidia["manage"])):
            return {}
        wanted = self._role("container_engine", "container_engine_config")
        config = dict(wanted["config"] or {}) if managed else {}
        if nvidia and nvidia["manage"]:
            for key, value in (runtime.get("daemon_config") or {}).items():
                before = config.get(key)
                config[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
        found = self._module("container_engine_config", {**wanted, "config": config})
        if found.get("failed"):
            self._trouble([Finding("daemon_config_unreadable", self.host, _line(found["msg"]), "Correct the file.")])
            return {}
        return found

    def _stacks(self, arguments: dict[str, Any], info: dict[str, Any], nvidia: dict[str, Any]) -> None:
        cards = (info.get("nvidia") or {}).get("cards") or ()
        looked = self._module(
            "stack_compare",
            {
                **host_stacks.for_compare(arguments),
                "facts": True,
                "processes": sorted({each["pid"] for card in cards for each in card.get("processes") or ()}),
            },
        )
        if looked.get("failed") or "unseen" in looked:
            why = _line(looked.get("unseen") or looked["msg"])
            raise CannotLook("stacks_unreadable", self.host, why, "The message says what to do.")
        differences = [each for stack in looked["stacks"].values() for each in stack["differences"]]
        self._differences("stack", [drift.Difference(**each) for each in [*differences, *looked["extra"]]])
        self._differences("host", [drift.Difference(**each) for each in looked["ports"]])
        for stack in self.report["stacks"]:
            stack.update(looked["facts"][stack["name"]], step=looked["stacks"][stack["name"]]["step"])
        kept = {int(each["index"]): str(each.get("keep_free") or "") for each in nvidia.get("gpus") or ()}
        self.report["cards"] = host_drift.cards(info, looked["owners"], self.report["stacks"], kept)
        self.report["warnings"] += map(asdict, host_drift.hazards(self.report["cards"], self.host))

    def _gateway(self) -> None:
        task = self._task.copy()
        task.args = self._role("litellm_gateway", "litellm_gateway")
        task.check_mode = True
        action = self._shared_loader_obj.action_loader.get(
            f"{NAMESPACE}.litellm_gateway",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        looked = action.result(self.vars)
        place = f"{self.host}: gateway"
        if looked.get("failed"):
            raise CannotLook(str(looked.get("code") or "gateway_unreadable"), place, _line(looked["msg"]), "")
        if "unseen" in looked:
            raise CannotLook("gateway_unreadable", place, _line(looked["unseen"]), "The message says what to do.")
        found = [drift.Difference(**each) for each in looked["differences"]]
        self.report["warnings"] += looked["findings"]
        self.report["gateway"] = {"routes": looked["routes"], "step": looked["step"]}
        silent = [each for each in found if each.item == "readiness"]
        self._differences("gateway", [each for each in found if each not in silent])
        if silent:
            raise CannotLook(
                "gateway_unreachable",
                place,
                f"does not answer: {silent[0].have}. Which routes it has cannot be seen.",
                "Look at `docker logs` of its container; a run waits for it.",
            )

    def _role(self, role: str, module: str) -> dict[str, Any]:
        return role_arguments(role, f"{NAMESPACE}.{module}", self._templar, self.vars)

    def _module(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(f"{NAMESPACE}.{name}", arguments, task_vars=self.vars)
        return result

    def _differences(self, part: str, found: list[drift.Difference]) -> None:
        self.report["differences"] += [{"part": part, **each.as_dict()} for each in found]

    def _trouble(self, findings: Any) -> None:
        self.report["trouble"] += [asdict(each) for each in findings]


def drift_status(report: dict[str, Any]) -> str:
    return "unknown" if report["trouble"] else "drift" if report["differences"] else "none"


def _brief(stack: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "container", "image", "served_model_name", "gpus", "share", "kv_cache", "url")
    return {name: stack[name] for name in names}


def _planned_cards(gpus: Any, stacks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cards as the inventory has them, until the host has said more."""
    info = {"nvidia": {"cards": [{"index": int(each["index"])} for each in gpus]}}
    return host_drift.cards(info, {}, stacks, {int(each["index"]): str(each.get("keep_free") or "") for each in gpus})


def _line(problem: Any) -> str:
    return " ".join(str(problem).split())[:400]
