# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for people (a table and a bar per GPU, the findings by place) and for machines (plain data). No secrets."""

from __future__ import annotations

import string
from typing import Any, Iterable, Mapping, Optional, Sequence

from .errors import ERROR, Finding, errors
from .model import Gateway, Gpu, Stack
from .plan import FleetPlan, HostPlan, claim
from .sizes import format_size

BAR = 50  # characters
LETTERS = string.ascii_lowercase + string.ascii_uppercase
RED, YELLOW, BOLD, PLAIN = "\033[31m", "\033[33m", "\033[1m", "\033[0m"
COLUMNS = ("", "stack", "model", "GPU", "port", "share", "memory", "floor", "starts after")


def text(plan: FleetPlan, *, colour: bool = False) -> str:
    """What runs where, host by host, and what the gateways route to."""
    blocks = [
        _host(plan, host, colour) for host in plan.hosts.values() if host.stacks or plan.fleet.hosts[host.host].gpus
    ]
    blocks += [_gateway(plan, gateway, colour) for gateway in plan.fleet.gateways.values()]
    return "\n\n".join(blocks)


def findings_text(findings: Iterable[Finding], *, colour: bool = False) -> list[str]:
    """The findings as lines, errors first, those of one place together."""
    by_place: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: finding.severity != ERROR):
        by_place.setdefault(finding.place, []).append(finding)
    lines: list[str] = []
    for place, found in by_place.items():
        lines.append(_paint(place, BOLD, colour))
        for finding in found:
            severe = finding.severity == ERROR
            label = _paint("error  " if severe else "warning", RED if severe else YELLOW, colour)
            lines += [f"  {label} {finding.problem} [{finding.code}]", f"          {finding.remedy}"]
    return lines


def summary(findings: Sequence[Finding]) -> str:
    """``1 error, 2 warnings``."""
    refused = len(errors(findings))
    others = len(findings) - refused
    parts = [f"{refused} error{'s' if refused != 1 else ''}"] if refused else []
    parts += [f"{others} warning{'s' if others != 1 else ''}"] if others else []
    return ", ".join(parts) or "no findings"


def as_json(plan: FleetPlan) -> dict[str, Any]:
    """The same for ``report_path``: only plain values, memory in bytes, no secrets."""
    return {
        "refused": plan.refused,
        "findings": [finding_json(finding) for finding in plan.findings],
        "hosts": {host.host: _host_json(plan, host) for host in plan.hosts.values()},
        "gateways": {gateway.host: _gateway_json(plan, gateway) for gateway in plan.fleet.gateways.values()},
    }


def finding_json(finding: Finding) -> dict[str, Optional[str]]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "place": finding.place,
        "problem": finding.problem,
        "remedy": finding.remedy,
        "host": finding.host,
        "stack": finding.stack,
    }


def routes(plan: FleetPlan) -> dict[str, list[Stack]]:
    """Name that clients ask for -> the stacks that answer."""
    found: dict[str, list[Stack]] = {}
    for host in plan.hosts.values():
        for stack in host.stacks:
            found.setdefault(stack.model.name, []).append(stack)
    return found


def _host(plan: FleetPlan, host: HostPlan, colour: bool) -> str:
    letters = {stack.name: LETTERS[position % len(LETTERS)] for position, stack in enumerate(host.stacks)}
    stacks = {stack.name: stack for stack in host.stacks}
    lines = [_paint(host.host, BOLD, colour)]
    for gpu in plan.fleet.hosts[host.host].gpus:
        on_it = [stacks[name] for name in host.chains.get(gpu.index, ())]
        size = format_size(gpu.memory) if gpu.memory else ""
        lines.append(f"  GPU {gpu.index:<3} {size:>10}  {_bar(gpu, on_it, letters)}")
    if not host.stacks:
        return "\n".join(lines)
    memory = {gpu.index: gpu.memory for gpu in plan.fleet.hosts[host.host].gpus}
    rows = [COLUMNS]
    for stack in host.stacks:
        wanted = claim(stack)
        card = min((memory.get(index) or 0 for index in stack.gpus), default=0)
        absolute = f"kv {format_size(stack.kv_cache)}" if stack.kv_cache is not None else ""
        rows.append(
            (
                letters[stack.name],
                stack.name,
                stack.model.name,
                ",".join(map(str, stack.gpus)) or "none",
                str(stack.port),
                "" if stack.gpu_memory_utilization is None else f"{stack.gpu_memory_utilization:.2f}",
                absolute or (format_size(wanted.takes(card)) if card else ""),
                format_size(stack.model.memory_floor) if stack.model.memory_floor else "",
                ", ".join(host.predecessors(stack.name)),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for number, row in enumerate(rows):
        line = "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        lines.append(_paint(line, BOLD, colour and number == 0))
    return "\n".join(lines)


def _bar(gpu: Gpu, stacks: Sequence[Stack], letters: Mapping[str, str]) -> str:
    """One character for each 2 % of the card; the letter says which stack."""
    if gpu.keep_free and not stacks:
        return f"[{'':{BAR}}] kept free: {gpu.keep_free}"
    bar, used = "", 0.0
    for stack in stacks:
        wanted = claim(stack)
        used += wanted.takes(gpu.memory) / gpu.memory if gpu.memory else wanted.demanded_share
        bar += letters[stack.name] * (round(used * BAR) - len(bar))
    left = f", {format_size(round((1 - used) * gpu.memory))} left" if gpu.memory and used < 1 else ""
    return f"[{bar[:BAR]:.<{BAR}}] {used:.0%} planned{left}"


def _gateway(plan: FleetPlan, gateway: Gateway, colour: bool) -> str:
    lines = [_paint(f"gateway {gateway.host}, port {gateway.port}", BOLD, colour)]
    found = routes(plan)
    width = max(map(len, [*found, *gateway.aliases]), default=0)
    for name, stacks in found.items():
        targets = []
        for stack in stacks:
            weight = "" if stack.weight is None else f", weight {stack.weight}"
            targets.append(f"{stack.name} ({gateway.addresses.get(stack.host, stack.host)}:{stack.port}{weight})")
        shown = ", ".join(targets[:4]) + (f" and {len(targets) - 4} more" if len(targets) > 4 else "")
        after = gateway.fallbacks.get(name)
        alternative = f", else {', '.join(after)}" if after else ""
        lines.append(f"  {name:<{width}}  {shown}{alternative}")
    lines += [f"  {alias:<{width}}  alias of {target}" for alias, target in gateway.aliases.items()]
    return "\n".join(lines)


def _host_json(plan: FleetPlan, host: HostPlan) -> dict[str, Any]:
    return {
        "gpus": [
            {
                "index": gpu.index,
                "memory": gpu.memory,
                "keep_free": gpu.keep_free,
                "stacks": list(host.chains.get(gpu.index, ())),
            }
            for gpu in plan.fleet.hosts[host.host].gpus
        ],
        "stacks": [
            {
                "name": stack.name,
                "model": stack.model.name,
                "source": stack.model.source,
                "task": stack.model.task,
                "image": stack.image.reference,
                "gpus": list(stack.gpus),
                "port": stack.port,
                "container": stack.container,
                "gpu_memory_utilization": stack.gpu_memory_utilization,
                "kv_cache": stack.kv_cache,
                "memory_floor": stack.model.memory_floor,
                "starts_after": list(host.predecessors(stack.name)),
            }
            for stack in host.stacks
        ],
    }


def _gateway_json(plan: FleetPlan, gateway: Gateway) -> dict[str, Any]:
    return {
        "port": gateway.port,
        "routes": {name: [f"{stack.host}--{stack.name}" for stack in stacks] for name, stacks in routes(plan).items()},
        "aliases": dict(gateway.aliases),
        "fallbacks": {name: list(others) for name, others in gateway.fallbacks.items()},
    }


def _paint(words: str, how: str, colour: bool) -> str:
    return f"{how}{words}{PLAIN}" if colour else words
