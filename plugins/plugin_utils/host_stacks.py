# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stacks of one host, rendered on the controller from its variables: what it is to be compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ..module_utils.fleet import compose, inventory, plan, ports, rollout_steps, units
from ..module_utils.fleet.errors import FleetError
from ..module_utils.fleet.model import Host, Stack
from ..module_utils.fleet.rendered import RenderedStack
from . import hostvars

COMPARE = "modelfleet.inference.stack_compare"
COMPARED_BY = ("stacks", "root", "only", "ask", "prune", "host", "ports", "secrets")


def arguments(given: Mapping[str, Any], host: str, task_vars: Any) -> dict[str, Any]:
    """The arguments of rollout with the stacks rendered from the inventory, when they are not given.

    Raises FleetError where the inventory is refused, ValueError for a setting or a stack that is not known.
    """
    arguments = dict(given)
    wanted = dict(arguments.pop("settings", None) or {})
    arguments.setdefault("host", host)
    if arguments.get("stacks") is None:
        known = {field.name for field in dataclasses.fields(compose.StackSettings)}
        unknown = sorted(set(wanted) - known)
        if unknown:
            raise ValueError(f"settings: {', '.join(unknown)} is not known. Known are: {', '.join(sorted(known))}.")
        settings = compose.StackSettings(**wanted)
        # The gateway's variables are not ours to judge: this is one host's part of the plan.
        variables = {
            name: value
            for name, value in hostvars.collect(task_vars["hostvars"], [host])[host].items()
            if name != "fleet_gateway"
        }
        fleet = inventory.parse({host: variables}, gpu_hosts=[host], gateways=[])
        planned = plan.make(fleet, defaults=plan.PlanDefaults(settings=settings))
        planned.raise_if_refused()
        stacks = rendered(planned.hosts[host].stacks, settings, fleet.hosts[host])
        arguments["stacks"] = [stack.as_dict() for stack in stacks]
        arguments["ports"] = _ports(arguments, stacks, host, task_vars["hostvars"]).as_dict()
        arguments.setdefault("root", settings.root)
    only = arguments.get("only")
    if only:
        names = [stack["name"] for stack in arguments["stacks"]]
        if only not in names:
            raise ValueError(rollout_steps.unknown(only, names, host))
        arguments["stacks"] = [stack for stack in arguments["stacks"] if stack["name"] == only]
    arguments["secrets"] = sorted(
        {secret for stack in arguments["stacks"] for secret in stack["secrets"]} | set(arguments.get("secrets") or ())
    )
    return arguments


def _ports(arguments: Mapping[str, Any], stacks: list[RenderedStack], host: str, variables: Any) -> ports.Ports:
    """Of all stacks of the host, also where one of them alone is rolled out: the rules are the host's."""
    reach = arguments.get("reach") or []
    findings = ports.check(reach, host)
    if findings:
        raise FleetError(findings)
    gateways = arguments.get("gateways") or []
    about = hostvars.collect(variables, gateways, ("fleet_gateway",))
    places = {
        name: ports.gateway_address(
            name,
            (about[name].get("fleet_gateway") or {}).get("addresses") or {},
            variables[name].get("ansible_host", ""),
        )
        for name in gateways
    }
    return ports.make(stacks, host, places, reach)


def rendered(stacks: Iterable[Stack], settings: compose.StackSettings, host: Host | None = None) -> list[RenderedStack]:
    """A host's stacks, each with its unit where it has one: what a stack waits for is known from all of them."""
    every = [compose.render(stack, settings, host) for stack in stacks]
    if not settings.units:
        return every
    waits = rollout_steps.waits_for(every)
    return [
        dataclasses.replace(stack, unit=units.render(stack, waits[stack.name], settings.crash_restarts))
        for stack in every
    ]


def for_compare(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Of the arguments of rollout those that the module which compares takes."""
    return {name: arguments[name] for name in COMPARED_BY if name in arguments}
