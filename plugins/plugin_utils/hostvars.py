# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the fleet's variables of every host on the controller, templated, as plain values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import Finding, FleetError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.inventory import INSTANCES, ROLE_PREFIX

PREFIX = "fleet_"


def collect(
    hostvars: Mapping[str, Any], hosts: Iterable[str], names: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Host -> its ``fleet_*`` variables, without the options of the role fleet_plan, and its number of gateways.

    Only ``names`` when given. Raises FleetError with a finding for each value that cannot be templated (an undefined
    vault variable, say) and for each host that the inventory does not know.
    """
    findings: list[Finding] = []
    raw: dict[str, dict[str, Any]] = {}
    for host in dict.fromkeys(str(host) for host in hosts):
        if host not in hostvars:
            problem = "is not in the inventory."
            findings.append(Finding("unknown_host", host, problem, "Give hosts of the inventory only.", host=host))
            continue
        variables = hostvars[host]
        raw[host] = {
            str(name): _plain(variables, name, f"variables of {host}: {name}", host, findings)
            for name in list(variables)
            if (name == INSTANCES or (str(name).startswith(PREFIX) and not str(name).startswith(ROLE_PREFIX)))
            and (not names or name in names)
        }
    if findings:
        raise FleetError(findings)
    return raw


def _plain(container: Any, key: Any, place: str, host: str, findings: list[Finding]) -> Any:
    """The value at ``key`` as builtin types. Containers are templated on access, so each step may fail by itself."""
    try:
        value = container[key]
        if isinstance(value, Mapping):
            return {str(name): _plain(value, name, f"{place}.{name}", host, findings) for name in list(value)}
        if isinstance(value, (list, tuple)):
            return [_plain(value, index, f"{place}[{index}]", host, findings) for index in range(len(value))]
        if isinstance(value, str):
            return str(value)
        return value
    except Exception as problem:  # whatever a template, a lookup or a vault may raise
        why = str(problem).strip().splitlines()[0]
        remedy = "Define what the expression needs for this host; for a vault variable, give its password or file."
        findings.append(Finding("variable_unreadable", place, f"cannot be read: {why}", remedy, host=host))
        return None
