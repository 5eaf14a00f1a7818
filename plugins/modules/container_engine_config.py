#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_engine_config
short_description: Merge settings into Docker's daemon.json without disturbing what runs
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Keys of the file that are not in O(config) stay. A list gets what is missing, an object is merged.
  - The daemon itself checks the new file before it is put in place (C(dockerd --validate), Docker 23 and later).
  - What the daemon can reload is written and reloaded; containers do not notice. What needs a restart of the daemon is
    neither written nor done while that could stop a model, but returned in RV(pending) and shown as a warning.
options:
  config:
    description: Keys and values as in C(daemon.json). V(null) takes a key away.
    type: dict
    default: {}
  path:
    description: The daemon's file.
    type: path
    default: /etc/docker/daemon.json
  restart:
    description:
      - Whether the daemon may be restarted. V(idle) allows it while no container runs at all, V(allowed) always,
        V(never) not even then.
    type: str
    choices: [never, idle, allowed]
    default: idle
  restart_reason:
    description: Why the daemon has to be restarted although no setting says so, as after the NVIDIA hook was installed.
    type: str
    default: ""
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
extends_documentation_fragment: [modelfleet.inference.attributes]
attributes:
  check_mode:
    support: full
    details:
      - Reads only, and returns exactly what a run would change.
  diff_mode:
    support: full
  idempotent:
    support: full
notes:
  - On a restart systemd stops and starts the stacks' own units in the order of their cards. Containers of ours without
    a running unit are stopped before and left to the role vllm_stack, so that they do not all load at once.
"""

EXAMPLES = r"""
- name: Keep containers alive while the daemon is down
  modelfleet.inference.container_engine_config:
    config:
      live-restore: true
"""

RETURN = r"""
changes:
  description: What was, or in check mode would be, applied.
  returned: always
  type: list
  elements: dict
  sample:
    - {key: live-restore, have: null, want: true, how: reload}
pending:
  description: What waits for O(restart=allowed).
  returned: always
  type: list
  elements: str
  sample: ["log-driver: not set -> \"local\""]
notes:
  description: What a person should know, each shown as a warning.
  returned: always
  type: list
  elements: str
  sample: ["ana-ml2: waits for a restart of Docker, which would stop what runs: ..."]
ansible_facts:
  description: C(modelfleet_engine_restarted) after a restart that stopped containers, so that models are asked again.
  returned: always
  type: dict
  sample: {modelfleet_engine_restarted: true}
applied_by:
  description: V(nothing), V(write) (no daemon runs), V(reload) or V(restart).
  returned: always
  type: str
  sample: reload
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import files as writer
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import host as engine
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import daemon_config
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.units import unit_name

ANSWER_SECONDS = 60


def answers():
    return not engine.docker_info()[1]


def knows(runtimes):
    """Whether the running daemon has taken these runtimes: its own word counts, not the file's."""
    return set(runtimes) <= set(engine.docker_info()[0].get("Runtimes") or ())


def stop_without_units():
    """Stop our containers that no unit would bring back in order; their restart policy would start all at once."""
    running = engine.ours_running()
    units = engine.unit_states([unit_name(stack) for stack in running.values()]) if running else {}
    for container, stack in running.items():
        if units.get(unit_name(stack)) != "active":
            engine.run(["docker", "stop", container], engine.RESTART_SECONDS)


def apply(module, path, how, before, text):
    """Put the file in place and let the daemon take it; the old file comes back when it does not."""
    if text != before:
        mode = f"{os.stat(path).st_mode & 0o7777:04o}" if before is not None else "0644"
        writer.write(path, text, mode)
    if how == "write":
        return
    if how == "restart":
        stop_without_units()
        said = engine.restart()
        good = not said and engine.wait_until(answers, ANSWER_SECONDS, time.sleep)
    else:
        said = engine.reload()
        wanted = module.params["config"].get("runtimes") or {}
        good = not said and engine.wait_until(lambda: knows(wanted), ANSWER_SECONDS, time.sleep)
    if good:
        return
    if before is not None and text != before:
        writer.write(path, before, mode)
        engine.restart() if how == "restart" else engine.reload()
    module.fail_json(
        msg=f"{module.params['host']}: Docker did not take {path} by {how}: {said or 'its runtimes are not there'}\n"
        "The file from before is back. Look at `docker info` and `journalctl -u docker`. [daemon_config_refused]"
    )


def main():
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "dict", "default": {}},
            "path": {"type": "path", "default": engine.DAEMON_JSON},
            "restart": {"type": "str", "choices": ["never", "idle", "allowed"], "default": "idle"},
            "restart_reason": {"type": "str", "default": ""},
            "host": {"type": "str", "default": "this host"},
        },
        supports_check_mode=True,
    )
    wanted, path, host = module.params, module.params["path"], module.params["host"]
    there = writer.read(os.path.dirname(path), [os.path.basename(path)]).get(os.path.basename(path))
    before = there.content if there else None
    running = engine.daemon()
    try:
        current = daemon_config.parse(before, path, host)
        merge = daemon_config.merge(current, wanted["config"])
        in_the_way = daemon_config.flags_in_the_way(running[1], merge.changes, host) if running else []
        if in_the_way:
            raise FleetError(in_the_way)
    except FleetError as error:
        module.fail_json(msg=str(error))

    info = engine.docker_info()[0] if running else {}
    reasons = [reason for reason in (wanted["restart_reason"], engine.restart_wanted()) if reason] if running else []
    unheard = daemon_config.unheard(wanted["config"], info.get("Runtimes") or ()) if running else []
    decision = daemon_config.decide(
        merge, bool(running), reasons, unheard, wanted["restart"], int(info.get("ContainersRunning") or 0)
    )
    text = before if decision.config is None else daemon_config.write(decision.config)
    if text != before:
        complaint = engine.validate(text)
        if complaint:
            module.fail_json(msg=f"{host}: dockerd refuses the new {path}, nothing was written: {complaint}")
    notes = []
    if decision.pending:
        notes.append(
            f"{host}: waits for a restart of Docker, which would stop what runs: {'; '.join(decision.pending)}. "
            "Set container_engine_restart: allowed when the models may be down for some minutes."
        )
    if not module.check_mode:
        if decision.how != "nothing":
            apply(module, path, decision.how, before, text)
        if wanted["restart_reason"] and decision.how != "restart" and running:
            engine.want_restart(wanted["restart_reason"])
    stopped = decision.how == "restart" and info.get("ContainersRunning")
    module.exit_json(
        changed=decision.how != "nothing",
        changes=[change.as_dict() for change in decision.changes],
        pending=list(decision.pending),
        notes=notes,
        applied_by=decision.how,
        # Only when it is so: the next call of this module in a play knows nothing of the restart before.
        ansible_facts={"modelfleet_engine_restarted": True} if stopped and not module.check_mode else {},
        # Laid out alike, so that only what really changes is shown.
        diff={
            "before_header": path,
            "after_header": path,
            "before": daemon_config.write(current) if before else "",
            "after": daemon_config.write(current if decision.config is None else decision.config),
        },
    )


if __name__ == "__main__":
    main()
