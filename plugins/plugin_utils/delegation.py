# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another action on another host, out of an action that is still at work: what ``delegate_to`` is between tasks."""

from __future__ import annotations

from typing import Any

from ansible import constants as C
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader


def run(action: ActionBase, host: str, name: str, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
    """The result of action ``name`` on ``host``. Raises what a connection raises (AnsibleConnectionFailure)."""
    its = task_vars["hostvars"][host]
    task = action._task.copy()
    task.action, task.args, task.delegate_to, task.async_val, task.loop = name, arguments, host, 0, None
    play_context = action._play_context.copy()
    play_context.remote_addr = its.get("ansible_host", host)
    kind = str(its.get("ansible_connection", task.connection))
    connection = action._shared_loader_obj.connection_loader.get(kind, play_context, None)
    become = None
    if boolean(its.get("ansible_become", task.become), strict=False):
        become = become_loader.get(str(its.get("ansible_become_method", task.become_method)))
    connection.set_become_plugin(become)

    keywords = task.dump_attrs()
    del keywords["retries"]
    keywords["timeout"] = play_context.timeout  # the connection's; the task's own is another thing
    for secret in ("password", "become_pass"):  # asked for on the command line
        if getattr(play_context, secret):
            keywords[secret] = getattr(play_context, secret)
    for kind, plugin in (("connection", connection), ("shell", connection._shell), ("become", become)):
        if plugin is not None:
            known = C.config.get_plugin_vars(kind, plugin._load_name)
            options = {variable: its[variable] for variable in known if variable in its}
            plugin.set_options(task_keys=keywords, var_options=options)

    interpreter = {key: its[key] for key in ("ansible_python_interpreter", "ansible_facts") if key in its}
    seen = {**task_vars, "ansible_delegated_vars": {host: {**task_vars["hostvars"].raw_get(host), **interpreter}}}
    handler = action._shared_loader_obj.action_loader.get(
        name,
        task=task,
        connection=connection,
        play_context=play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
    try:
        result: dict[str, Any] = handler.run(task_vars=seen)
        return result
    finally:
        handler.cleanup()
        connection.close()
