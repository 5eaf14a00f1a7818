#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_logs
short_description: Read and explain the logs of a host's model servers
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Looks at every container that a rollout of this collection has made (label C(modelfleet.stack)), running or not,
    and returns its state, what its log means, and why the last rollout of the stack failed, if it did.
  - The log of a running container is read from its last start, that of an ended one from its first.
  - The lines of RV(report) are shown on the terminal (standard error) as well.
  - One execution reads all stacks of the host. Keys and tokens in messages are masked.
options:
  only:
    description: Names of stacks to look at. Empty for all.
    type: list
    elements: str
    default: []
  lines:
    description: How many of the log's last lines are returned as they are. The whole log is read in any case.
    type: int
    default: 0
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
requirements:
  - Docker SDK for Python on the host
seealso:
  - plugin: modelfleet.inference.diagnose
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Explain what the stacks of this host have written
  modelfleet.inference.stack_logs:
  register: looked

- name: See the last lines of one stack too
  modelfleet.inference.stack_logs:
    only: [qwen35-vl]
    lines: 50
"""

RETURN = r"""
stacks:
  description: One entry for each stack that has a container, by name.
  returned: always
  type: list
  elements: dict
  contains:
    stack:
      description: Name of the stack.
      type: str
      sample: qwen35-vl
    container:
      description: Name of the container.
      type: str
      sample: vllm-qwen35
    status:
      description: Docker's word for its state.
      type: str
      sample: exited
    health:
      description: Docker's word for its health, empty without a health check.
      type: str
      sample: unhealthy
    exit_code:
      description: Exit code of the last end.
      type: int
      sample: 1
    oom_killed:
      description: Whether the kernel killed it for its memory use.
      type: bool
      sample: false
    restarts:
      description: How often Docker has started it again.
      type: int
      sample: 3
    phase:
      description: How far its last start came.
      type: str
      sample: loading weights 2/4 (50 %)
    findings:
      description: What the log means, as the filter P(modelfleet.inference.diagnose#filter) returns it.
      type: list
      elements: dict
      sample: [{code: kv_cache_no_memory, severity: fatal}]
    failed_rollout:
      description: C(code), C(what), C(why) and C(change) of the last rollout if it failed, otherwise V(null).
      type: dict
      sample: {code: kv_cache_no_memory}
    unit:
      description:
        - What keeps its systemd unit from being active, with the last failure; empty when it is active or not there.
      type: str
      sample: "crash fuse has blown, stays down: container vllm-qwen35 is exited with exit status 1"
    log:
      description: The last O(lines) lines of the log.
      type: list
      elements: str
      sample: []
report:
  description: The same for a person to read.
  returned: always
  type: list
  elements: str
  sample: ["qwen35-vl (vllm-qwen35): exited with code 1", "  kv_cache_no_memory: ..."]
"""

from typing import Any, Mapping, Optional, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import files, systemd
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import Engine, EngineError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.diagnosis import diagnose, masked
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.drift import moment
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.engine_log import Progress, advance
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import LABEL_STACK

WORKING_DIR = "com.docker.compose.project.working_dir"


def explain(container: Mapping[str, Any], lines: Sequence[str], shown: int) -> dict[str, Any]:
    """One stack's entry from Docker's description of its container and what it has written."""
    state = container.get("State") or {}
    running = state.get("Status") == "running"
    labels = container["Config"].get("Labels") or {}
    progress = Progress()
    for line in lines:
        progress = advance(progress, line)
    findings = diagnose(
        lines,
        exit_code=None if running else state.get("ExitCode"),
        oom_killed=bool(state.get("OOMKilled")),
        restarts=0 if running else container.get("RestartCount") or 0,
    )
    return {
        "stack": labels.get(LABEL_STACK, ""),
        "container": container["Name"].lstrip("/"),
        "status": state.get("Status", ""),
        "health": (state.get("Health") or {}).get("Status", ""),
        "exit_code": state.get("ExitCode"),
        "oom_killed": bool(state.get("OOMKilled")),
        "restarts": container.get("RestartCount") or 0,
        "phase": str(progress),
        "findings": [finding.as_dict() for finding in findings],
        "failed_rollout": failed_rollout(labels.get(WORKING_DIR, "")),
        "unit": "",
        "log": [masked(line) for line in lines[-shown:]] if shown > 0 else [],
    }


def failed_rollout(directory: str) -> Optional[dict[str, Any]]:
    """Why the last rollout of the stack in this folder failed; None when it did not, or nothing is left of it."""
    failure = (files.read_json(files.failure_path(directory)) or {}).get("failure") if directory else None
    return failure if isinstance(failure, dict) else None


def report(entry: Mapping[str, Any]) -> list[str]:
    """The entry in a few lines for a person."""
    state = str(entry["status"])
    if entry["status"] == "exited":
        state += f" with code {entry['exit_code']}"
    if entry["health"]:
        state += f", {entry['health']}"
    if entry["restarts"]:
        state += f", started again {entry['restarts']} times"
    said = [f"{entry['stack']} ({entry['container']}): {state}; its start came to: {entry['phase']}"]
    for finding in entry["findings"]:
        said.append(f"  {finding['severity']} {finding['code']}: {finding['cause']}")
        said.append(f"    change: {finding['remedy']}")
        said += [f"    log: {line}" for line in finding["lines"]]
    if entry["unit"]:
        said.append(f"  its unit: {entry['unit']}")
    if not entry["findings"]:
        said.append("  the log shows nothing wrong")
    failed = entry["failed_rollout"]
    if failed:
        said.append(f"  the last rollout failed with {failed.get('code')}: {failed.get('what')}")
    return said


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "only": {"type": "list", "elements": "str", "default": []},
            "lines": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    only = module.params["only"]
    entries = []
    directories = {}
    try:
        engine = Engine()
        for container in engine.ours():
            if only and container["Config"]["Labels"].get(LABEL_STACK) not in only:
                continue
            labels = container["Config"]["Labels"]
            directories[labels.get(LABEL_STACK, "")] = labels.get(WORKING_DIR, "")
            state = container.get("State") or {}
            since = moment(state.get("StartedAt", "")) if state.get("Status") == "running" else None
            # One second earlier: Docker writes the start down a moment after the first line.
            lines = engine.logs(container["Id"], max(0.0, (since or 0.0) - 1.0))
            entries.append(explain(container, [text for _moment, text in lines], module.params["lines"]))
    except EngineError as error:
        module.fail_json(msg=str(error))
    if systemd.there():
        live = systemd.look([entry["stack"] for entry in entries], [directories[entry["stack"]] for entry in entries])
        for entry in entries:
            unit = live[entry["stack"]]
            entry["unit"] = unit.state if unit.text and unit.active != "active" else ""
    entries.sort(key=lambda entry: (entry["stack"], entry["container"]))
    said = [line for entry in entries for line in report(entry)]
    module.exit_json(changed=False, stacks=entries, report=said or ["No stack has a container on this host."])


if __name__ == "__main__":
    main()
