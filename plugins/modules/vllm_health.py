#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_health
short_description: Wait for one or many model servers at once
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Waits until every server in O(endpoints) is ready. Ready means that C(/health) answers 200 and C(/v1/models) lists
    the served name with the expected root.
  - The wait for an endpoint ends as soon as its outcome is known, not when the time is over. A wrong model behind the
    port or a dead engine ends it; where O(endpoints[].container) is given, so do a container that exits, is killed
    for memory or is started again, and a fatal line in its log. The message is then what the log means and what to
    change.
  - Whether a model answers well is another question, see M(modelfleet.inference.vllm_smoke).
options:
  endpoints:
    description: The servers to wait for, all at the same time.
    type: list
    elements: dict
    required: true
    suboptions:
      url:
        description: Address of the server without C(/v1), as seen from the host the module runs on.
        type: str
        required: true
      served_model_name:
        description: The name that C(/v1/models) has to list.
        type: str
        required: true
      root:
        description: The model (folder or hub repository) that has to be behind the name. Empty for any.
        type: str
        default: ""
      container:
        description:
          - Name of the server's container on this host. Its state and its log then decide as well.
          - Needs the Docker SDK for Python on the host.
        type: str
        default: ""
      api_key:
        description: Key of the server, where it wants one.
        type: str
        default: ""
      timeout:
        description: Seconds after which the wait for this endpoint ends at the latest. Without it O(timeout) counts.
        type: float
      allowed_restarts:
        description: How often Docker may start the container again during the wait.
        type: int
        default: 0
  timeout:
    description: Seconds after which the wait ends at the latest. It is the last resort, so it may be long.
    type: float
    default: 1800
  interval:
    description: Seconds between two looks.
    type: float
    default: 1
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
attributes:
  check_mode:
    support: full
    details:
      - Looks once and does not wait. An endpoint that is not ready yet is no failure then.
seealso:
  - module: modelfleet.inference.vllm_smoke
  - plugin: modelfleet.inference.diagnose
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Wait for the two models of this card
  modelfleet.inference.vllm_health:
    endpoints:
      - url: http://127.0.0.1:8007
        served_model_name: qwen3.5-9b-fp8
        root: Qwen/Qwen3.5-9B
        container: vllm-qwen35
      - url: http://127.0.0.1:8008
        served_model_name: bge-m3
        timeout: 300

- name: See from anywhere whether a server is ready now
  modelfleet.inference.vllm_health:
    endpoints:
      - url: http://ana-ml2:8007
        served_model_name: qwen3.5-9b-fp8
  check_mode: true
  delegate_to: localhost
"""

RETURN = r"""
endpoints:
  description: How the wait ended for each endpoint, in the order given.
  returned: always
  type: list
  elements: dict
  contains:
    url:
      description: Address of the server.
      type: str
      sample: http://127.0.0.1:8007
    served_model_name:
      description: The name that was looked for.
      type: str
      sample: qwen3.5-9b-fp8
    status:
      description: V(ready), V(failed), or in check mode V(waiting).
      type: str
      sample: ready
    seconds:
      description: How long it took.
      type: float
      sample: 93.2
    phase:
      description: How far the start was, as far as the log tells.
      type: str
      sample: ready
    models:
      description: What C(/v1/models) listed at last.
      type: list
      elements: str
      sample: [qwen3.5-9b-fp8]
    max_model_len:
      description: The context length in tokens, V(null) when the server does not say or is not ready.
      type: int
      sample: 32768
    code:
      description: Stable code of the failure, empty when there is none.
      type: str
      sample: ""
    reason:
      description: How the failure was noticed.
      type: str
      sample: the container ended with exit code 1
    cause:
      description: Why it failed.
      type: str
      sample: Weights, activations and graphs already take more than the stack's share.
    remedy:
      description: What to change.
      type: str
      sample: Raise gpu_memory_utilization (now 0.3).
    retryable:
      description: Whether the same settings may work on a second try.
      type: bool
      sample: false
    lines:
      description: The few log lines that show the failure.
      type: list
      elements: str
      sample: ["ValueError: No available memory for the cache blocks."]
"""

import time
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.docker_engine import Engine, EngineError
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.http import fetch
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.waiter import Endpoint, Waited, wait
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.readiness import FAILED


def result_of(endpoint: Endpoint, waited: Waited) -> dict[str, Any]:
    state = waited.state
    return {
        "url": endpoint.url,
        "served_model_name": endpoint.served_model_name,
        "status": state.verdict,
        "seconds": round(state.seconds, 1),
        "phase": state.phase,
        "models": list(waited.models),
        "max_model_len": state.max_model_len,
        "code": state.code,
        "reason": state.reason,
        "cause": state.cause,
        "remedy": state.remedy,
        "retryable": state.retryable,
        "lines": list(state.lines),
    }


def message(result: dict[str, Any]) -> str:
    """Everything an operator needs, on the terminal without -v."""
    lines = "".join(f"\n    {line}" for line in result["lines"])
    return (
        f"{result['served_model_name']} at {result['url']} is not ready after {result['seconds']:.0f} s: "
        f"{result['reason']} [{result['code']}]. {result['cause']} {result['remedy']}{lines}"
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "endpoints": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "url": {"type": "str", "required": True},
                    "served_model_name": {"type": "str", "required": True},
                    "root": {"type": "str", "default": ""},
                    "container": {"type": "str", "default": ""},
                    "api_key": {"type": "str", "default": "", "no_log": True},
                    "timeout": {"type": "float"},
                    "allowed_restarts": {"type": "int", "default": 0},
                },
            },
            "timeout": {"type": "float", "default": 1800},
            "interval": {"type": "float", "default": 1},
        },
        supports_check_mode=True,
    )
    given = module.params
    endpoints = [
        Endpoint(
            url=one["url"],
            served_model_name=one["served_model_name"],
            root=one["root"],
            container=one["container"],
            api_key=one["api_key"],
            timeout_s=given["timeout"] if one["timeout"] is None else one["timeout"],
            allowed_restarts=one["allowed_restarts"],
        )
        for one in given["endpoints"]
    ]
    try:
        engine = Engine() if any(endpoint.container for endpoint in endpoints) else None

        def look(name: str, after: float) -> tuple[Optional[dict[str, Any]], list[tuple[float, str]]]:
            container = engine.container(name) if engine else None
            return container, engine.logs(container["Id"], after) if engine and container else []

        waited = wait(
            endpoints,
            fetch=fetch,
            look=look,
            clock=time.monotonic,
            sleep=time.sleep,
            interval=given["interval"],
            once=module.check_mode,
        )
    except EngineError as error:
        module.fail_json(msg=str(error), endpoints=[])
    results = [result_of(endpoint, one) for endpoint, one in zip(endpoints, waited)]
    failures = [message(result) for result in results if result["status"] == FAILED]
    if failures:
        module.fail_json(msg="\n".join(failures), endpoints=results)
    module.exit_json(changed=False, endpoints=results)


if __name__ == "__main__":
    main()
