# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role would give a module on this host, read from the role itself.

A playbook that only looks so compares with the very values a run uses, without a task of the role for each of them:
a task costs the controller more than the comparison costs the host. A setting that a role gains is looked at here
without another word.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 templates whatever it is given

    def trust_as_template(text: str) -> str:
        return text


ROLES = Path(__file__).resolve().parents[2] / "roles"


def role_arguments(role: str, module: str, templar: Any, task_vars: Any) -> dict[str, Any]:
    """The arguments of the role's first task with this module (its full name), templated for the host.

    The role's defaults are beaten by every variable of the host. Raises what templating raises.
    """
    variables = {**_defaults(role), **task_vars}
    found: dict[str, Any] = templar.copy_with_new_env(available_variables=variables).template(_task(role, module))
    return found


@cache
def _defaults(role: str) -> Any:
    return _trusted(_read(ROLES / role / "defaults" / "main.yml"))


@cache
def _task(role: str, module: str) -> Any:
    for path in sorted((ROLES / role / "tasks").glob("*.yml")):
        for task in _read(path):
            if module in task:
                return _trusted(task[module])
    raise ValueError(f"role {role} has no task with {module}")


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _trusted(value: Any) -> Any:
    """Text of our own files may be a template; ansible-core 2.19 and later want to be told."""
    if isinstance(value, dict):
        return {name: _trusted(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value
