# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of rollout: renders the stacks, lets the host compare, follows its work line by line."""

from __future__ import annotations

import json
import os
import shlex
import time
import uuid
from typing import Any, Iterator

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.adapters import asker
from ..module_utils.fleet import compose, drift
from ..module_utils.fleet.errors import FleetError
from ..plugin_utils import host_stacks, screen

display = Display()

MODULE = "modelfleet.inference.rollout"
POLL_SECONDS = 0.6
STATUS_SECONDS = 15.0  # a whole module execution; only to notice a job that died without a last word
LIMIT_SECONDS = 24 * 3600  # the job bounds itself; this is for a host that stands still
LOST_SECONDS = 300.0  # how long a lost connection may be away
ENDED = "ended"


class RolloutFailed(AnsibleActionFail):  # type: ignore[misc]
    """A failed run, whose diagnosis stands once on the screen.

    The default callback of ansible-core 2.19 and later prints an error's text and then the result, msg included. Here
    the one is a line, the other the diagnosis. A core that builds them in another way prints the diagnosis twice.
    """

    def __init__(self, result: dict[str, Any]) -> None:
        failed = {name: stack for name, stack in result["stacks"].items() if "failure" in stack}
        codes = ", ".join(f"{name} [{stack['failure']['code']}]" for name, stack in failed.items())
        self._summary = f"{len(failed)} of {len(result['stacks'])} stacks failed: {codes}"
        self._msg = result["msg"]
        result["stacks"] = {
            name: {"code": stack["failure"]["code"], "ended": stack["ended"], "seconds": stack["seconds"]}
            for name, stack in failed.items()
        }
        if not result.get("extra"):
            result.pop("extra", None)
        super().__init__(self._msg, result=result)

    @property
    def _original_message(self) -> str:
        return self._summary

    @property
    def message(self) -> str:
        return str(self._msg)


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        try:
            arguments = host_stacks.arguments(self._task.args, host, task_vars)
            looked = self._module(host_stacks.COMPARE, host_stacks.for_compare(arguments), task_vars)
            if looked.get("failed") or self._task.check_mode or not looked["changed"]:
                return looked
            self._read_pictures(arguments["stacks"], looked["stacks"])
        except (FleetError, ValueError) as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        result = self._follow(host, arguments, task_vars)
        if self._task.diff:
            result["diff"] = looked["diff"]
        if result.get("failed") and result.get("stacks") and screen.brief():
            raise RolloutFailed(result)
        return result

    def _read_pictures(self, stacks: list[dict[str, Any]], compared: dict[str, Any]) -> None:
        """Pictures of the owner's own checks come from the controller: a host needs no internet."""
        for stack in stacks:
            if compared.get(stack["name"], {}).get("step") in (None, "nothing", drift.WRITE, drift.ADOPT):
                continue
            for check in stack["asks"].get("checks") or ():
                if check.get("image"):
                    check["image"] = asker.read_picture(check["image"])

    def _module(self, name: str, arguments: dict[str, Any], task_vars: Any, **how: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(name, arguments, task_vars=task_vars, **how)
        for key in ("invocation", "exception"):  # the one repeats the stacks, .env included, the other the message
            result.pop(key, None)
        return result

    def _follow(self, host: str, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Start the rollout on the host, print what it does, and return its result."""
        root = arguments.get("root") or compose.StackSettings().root
        progress = os.path.join(root, ".modelfleet", f"progress-{uuid.uuid4().hex[:12]}.jsonl")
        self._task.async_val = LIMIT_SECONDS
        try:
            job = self._module(MODULE, {**arguments, "progress": progress}, task_vars, wrap_async=True)
        finally:
            self._task.async_val = 0
        if "ansible_job_id" not in job:
            return job
        status = {"jid": job["ansible_job_id"], "_async_dir": os.path.dirname(job["results_file"])}
        for entry in self._entries(progress, lambda: self._status(status, task_vars).get("finished")):
            name = f"{host} {entry['stack']}".rstrip()
            # Standard error: standard output belongs to the callback, which may print JSON there.
            display.display(f"{name}: {entry['text']}", stderr=True)
        result = self._status(status, task_vars)
        while not result.get("finished"):  # its last line comes before its result
            time.sleep(POLL_SECONDS)
            result = self._status(status, task_vars)
        self._low_level_execute_command(f"rm -f {shlex.quote(progress)} {shlex.quote(job['results_file'])}")
        for name in ("invocation", "exception", "ansible_job_id", "started", "finished", "results_file"):
            result.pop(name, None)
        return result

    def _entries(self, path: str, ended: Any) -> Iterator[dict[str, Any]]:
        """Lines of the progress file as they come, until the last one says so or the job is gone."""
        seen = 0
        asked = alive = time.monotonic()
        while True:
            try:
                # By lines, not bytes: with a terminal between, each line ends with a carriage return more.
                new = self._low_level_execute_command(f"tail -n +{seen + 1} {shlex.quote(path)} 2>/dev/null")["stdout"]
                alive = time.monotonic()
            except AnsibleConnectionFailure:
                # The host works on without us; a connection that comes back finds it where it is.
                if time.monotonic() - alive > LOST_SECONDS:
                    raise
                time.sleep(5)
                continue
            for line in new.split("\n")[:-1]:
                seen += 1
                entry = json.loads(line)
                if entry["phase"] == ENDED:
                    return
                yield entry
            if time.monotonic() - asked > STATUS_SECONDS:
                asked = time.monotonic()
                if ended():
                    return
            time.sleep(POLL_SECONDS)

    def _status(self, status: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module("ansible.legacy.async_status", status, task_vars=task_vars)
        return result
