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

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.adapters import asker
from ..module_utils.fleet import compose, drift
from ..module_utils.fleet.errors import FleetError
from ..module_utils.fleet.rollout_steps import BACK, BLOCKED, FAILED, HANDOVER, LEFT
from ..plugin_utils import delegation, handover, host_stacks, screen

display = Display()

MODULE = "modelfleet.inference.rollout"
GATEWAY = "modelfleet.inference.litellm_gateway"
GATEWAY_SECONDS = 1800  # more than all gateways of a fleet take to reload
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
        result.pop("ports", None)  # it was set, and is not why the run failed
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
            if "unseen" in looked:
                # Straight to the terminal: the callback prints no warning of a task that it hides as unchanged.
                display.display(f"[WARNING]: {looked['unseen']}", color=C.COLOR_WARN, stderr=True)
            if looked.get("failed") or self._task.check_mode or not looked["changed"]:
                return looked
            self._read_pictures(arguments["stacks"], looked["stacks"])
        except (FleetError, ValueError) as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        self._take_over(host, arguments, looked["stacks"], task_vars)
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

    def _take_over(self, host: str, arguments: dict[str, Any], compared: dict[str, Any], task_vars: Any) -> None:
        """Prepare for telling the gateways which stacks are away, where any routes to one that is to be replaced."""
        self._handover: Any = None
        self._waiting: dict[str, str] = {}  # stack -> what was said about it last
        gateways, gpu_hosts = arguments.get("gateways"), arguments.get("gpu_hosts") or [host]
        steps = {name: one.get("step") for name, one in compared.items()}
        if not gateways or not int(arguments.get("drain", 1)) or drift.RECREATE not in steps.values():
            return

        def block(gateway: str, blocked: list[str]) -> bool:
            wanted = {"host": gateway, "gpu_hosts": gpu_hosts, "gateways": gateways, "blocked": blocked}
            try:
                result = delegation.run(self, gateway, GATEWAY, {**wanted, "replace": False, "ask": False}, task_vars)
            except AnsibleError as error:  # unreachable, say
                result = {"failed": True, "msg": str(error)}
            if result.get("failed"):
                display.warning(f"{gateway}: its routes to what is being replaced stay as they are: {result['msg']}")
            return not result.get("failed")

        self._handover = handover.Handover(host, gpu_hosts, gateways, task_vars, block)
        arguments["routed"] = self._handover.routed([name for name, step in steps.items() if step == drift.RECREATE])
        self._handover.absent([name for name, step in steps.items() if step in (drift.CREATE, drift.START)])

    def _serve_handover(self, host: str, answers: str, entry: dict[str, Any] | None) -> None:
        """Act on an entry of the progress file, or on stacks that have waited since."""
        if self._handover is None:
            return
        if entry is not None and entry["phase"] == BACK:
            if self._handover.back(entry["stack"]):
                self._settle(answers)
        elif entry is not None and entry["phase"] == HANDOVER:
            self._waiting[entry["stack"]] = ""
        for stack, said in list(self._waiting.items()):
            decision, text = self._handover.decide(stack)
            if text not in ("", said):
                display.display(f"{host} {stack}: {text}", stderr=True)
            if decision == handover.WAIT:
                self._waiting[stack] = text
                continue
            del self._waiting[stack]
            answer = LEFT
            if decision == handover.BLOCK:
                answer = BLOCKED if self._settle(answers) else FAILED
            self._low_level_execute_command(f"echo {shlex.quote(f'{stack} {answer}')} >> {shlex.quote(answers)}")

    def _settle(self, answers: str) -> bool:
        # While gateways reload we do not look; the job must not take that for our end.
        self._low_level_execute_command(f"touch -d '+{GATEWAY_SECONDS} seconds' {shlex.quote(answers)}")
        return bool(self._handover.settle())

    def _module(self, name: str, arguments: dict[str, Any], task_vars: Any, **how: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(name, arguments, task_vars=task_vars, **how)
        return self._shown(result)

    @staticmethod
    def _shown(result: dict[str, Any]) -> dict[str, Any]:
        """Without what repeats the stacks (.env included) or the message. A module that broke has a traceback only."""
        result.pop("invocation", None)
        if result.get("msg"):
            result.pop("exception", None)
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
        answers = f"{progress}.answers"
        for entry in self._entries(progress, lambda: self._status(status, task_vars).get("finished")):
            if entry is not None:
                name = f"{host} {entry['stack']}".rstrip()
                # Standard error: standard output belongs to the callback, which may print JSON there.
                display.display(f"{name}: {entry['text']}", stderr=True)
            self._serve_handover(host, answers, entry)
        result = self._status(status, task_vars)
        while not result.get("finished"):  # its last line comes before its result
            time.sleep(POLL_SECONDS)
            result = self._status(status, task_vars)
        done = " ".join(shlex.quote(path) for path in (progress, answers, job["results_file"]))
        self._low_level_execute_command(f"rm -f {done}")
        for name in ("ansible_job_id", "started", "finished", "results_file"):
            result.pop(name, None)
        return self._shown(result)

    def _entries(self, path: str, ended: Any) -> Iterator[dict[str, Any] | None]:
        """Lines of the progress file as they come, and None after each look, until it ends or the job is gone."""
        seen = 0
        asked = alive = time.monotonic()
        while True:
            try:
                # By lines, not bytes: with a terminal between, each line ends with a carriage return more.
                look = f"touch -c {shlex.quote(path)}.answers; tail -n +{seen + 1} {shlex.quote(path)} 2>/dev/null"
                new = self._low_level_execute_command(look)["stdout"]
                alive = time.monotonic()
            except AnsibleConnectionFailure:
                # The host works on without us; a connection that comes back finds it where it is.
                if time.monotonic() - alive > LOST_SECONDS:
                    raise
                time.sleep(5)
                continue
            for line in new.split("\n")[:-1]:
                if not line.strip():  # su ends its password prompt with a line of its own
                    continue
                seen += 1
                entry = json.loads(line)
                if entry["phase"] == ENDED:
                    return
                yield entry
            yield None
            if time.monotonic() - asked > STATUS_SECONDS:
                asked = time.monotonic()
                if ended():
                    return
            time.sleep(POLL_SECONDS)

    def _status(self, status: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module("ansible.legacy.async_status", status, task_vars=task_vars)
        return result
