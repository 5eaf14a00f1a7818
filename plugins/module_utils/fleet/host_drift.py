# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a host, beside its stacks, is not as the inventory wants it, and what stands in the way of looking.

Reads what the modules host_info, container_engine_config and litellm_gateway say in check mode, so that it names
exactly what the roles would do.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, Mapping, Optional, Sequence

from . import budget
from .drift import ABSENT, REPORT, Difference
from .errors import ERROR, WARNING, Finding
from .gpus import MIB

INSTALL = "install"
WRITE = "write"
START = "start"
HOST = ""  # the stack of a difference that is the host's own

_PARTS = {
    "engine": "Docker Engine",
    "compose": "Docker Compose",
    "sdk": "Docker SDK for Python",
}


def engine_down(info: Mapping[str, Any], host: str) -> Optional[Finding]:
    """An engine that is there and does not answer: nothing of the stacks can be seen."""
    engine = info.get("engine") or {}
    if not engine.get("there") or engine.get("answers"):
        return None
    return Finding(
        "container_engine_down",
        host,
        f"Docker is installed on {host} and does not answer: {engine.get('error', '')}",
        "Look at `systemctl status docker` and `journalctl -u docker -n 50`.",
        ERROR,
        host,
    )


def blind(info: Mapping[str, Any]) -> list[Finding]:
    """Why the cards could not be looked at."""
    trouble = (info.get("nvidia") or {}).get("trouble") or {}
    return [each for each in findings(info) if each.severity == ERROR and each.code == trouble.get("code")]


def findings(info: Mapping[str, Any]) -> list[Finding]:
    return [Finding(**each) for each in info.get("findings") or ()]


def warnings(info: Mapping[str, Any]) -> list[Finding]:
    return [each for each in findings(info) if each.severity == WARNING]


def compare(
    info: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    manages: tuple[bool, bool],
    versions: tuple[str, str] = ("", ""),
) -> list[Difference]:
    """Of engine and NVIDIA side. ``manages`` and ``versions`` (the wanted ones, or empty) of the two, in this order."""
    engine, nvidia = info.get("engine") or {}, info.get("nvidia") or {}
    found = [
        Difference(HOST, _PARTS.get(part, part), "installed", ABSENT, INSTALL if manages[0] else REPORT)
        for part in engine.get("missing") or ()
    ]
    found += _version("Docker Engine version", versions[0], engine.get("version", ""))
    found += _daemon(config)
    if nvidia:
        found += _toolkit(nvidia, manages[1])
        found += _version("NVIDIA Container Toolkit version", versions[1], nvidia.get("toolkit", ""))
    # What a run stops at with an error: another card, a driver that is too old. A person has to decide.
    blinding = {each.code for each in blind(info)}
    found += [
        Difference(HOST, each.code, "as in the inventory", each.problem, REPORT)
        for each in findings(info)
        if each.severity == ERROR and each.code not in blinding and not each.code.endswith("_missing")
    ]
    return found


def _version(item: str, want: str, have: str) -> list[Difference]:
    """The roles install a version where there is none; another one is a person's to change."""
    if not want or not have or have == want or have.startswith((f"{want}.", f"{want}+", f"{want}-")):
        return []
    return [Difference(HOST, item, want, have, REPORT)]


def _daemon(config: Mapping[str, Any]) -> list[Difference]:
    found = [
        Difference(HOST, f"daemon.json {each['key']}", _json(each["want"]), _json(each["have"]), each["how"])
        for each in config.get("changes") or ()
    ]
    for pending in config.get("pending") or ():
        key, colon, rest = str(pending).partition(": ")
        have, arrow, want = rest.partition(" -> ")
        if colon and arrow:
            found.append(Difference(HOST, f"daemon.json {key}", want, have, REPORT))
        else:
            found.append(Difference(HOST, "Docker Engine", "restarted", str(pending), REPORT))
    if not found and config.get("changed"):
        found.append(Difference(HOST, "Docker Engine", "as its daemon.json", "older", str(config.get("applied_by"))))
    return found


def _toolkit(nvidia: Mapping[str, Any], managed: bool) -> list[Difference]:
    found = []
    if (nvidia.get("need") or {}).get("packages"):
        found.append(Difference(HOST, "NVIDIA Container Toolkit", "installed", ABSENT, INSTALL if managed else REPORT))
    if nvidia.get("generate_cdi"):
        have = nvidia.get("cdi_stale") or "without cards that are there"
        found.append(
            Difference(HOST, "CDI specification", "of the cards that are there", have, WRITE if managed else REPORT)
        )
    unit = nvidia.get("boot_unit")
    if isinstance(unit, Mapping) and unit.get("write"):
        found.append(
            Difference(
                HOST, f"unit {unit['name']}", "as rendered", unit.get("have") or "differs", WRITE if managed else REPORT
            )
        )
    if nvidia.get("start_persistence"):
        found.append(Difference(HOST, "nvidia-persistenced", "active", "inactive", START if managed else REPORT))
    return found


def _json(value: Any) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value)


def cards(
    info: Mapping[str, Any],
    owners: Mapping[str, Mapping[str, str]],
    stacks: Sequence[Mapping[str, Any]],
    kept: Mapping[int, str],
) -> list[dict[str, Any]]:
    """The cards of a host as a report shows them: memory in MiB, the stacks on them, and who else sits there.

    ``owners``: process -> its stack and container. ``kept``: card -> why the inventory keeps it free.
    """
    found = []
    for card in (info.get("nvidia") or {}).get("cards") or ():
        used: dict[str, int] = {}
        foreign = []
        for process in card.get("processes") or ():
            owner = owners.get(str(process["pid"])) or {}
            if owner.get("stack"):
                used[owner["stack"]] = used.get(owner["stack"], 0) + (process.get("used_mib") or 0)
            else:
                who = owner.get("container") or process.get("name") or "a process"
                foreign.append({"pid": process["pid"], "name": who, "mib": process.get("used_mib") or 0})
        found.append(
            {
                "index": card["index"],
                "uuid": card.get("uuid", ""),
                "name": card.get("name", ""),
                "total_mib": card.get("cuda_total_mib"),
                "free_mib": card.get("free_mib"),
                "keep_free": kept.get(card["index"], ""),
                "stacks": [
                    {"stack": each["name"], "share": each["share"], "kv_cache": each["kv_cache"],
                     "mib": used.get(each["name"], 0)}
                    for each in stacks
                    if card["index"] in each["gpus"]
                ],
                "foreign": foreign,
            }
        )  # fmt: skip
    return found


def hazards(cards_there: Iterable[Mapping[str, Any]], host: str) -> list[Finding]:
    """What runs now and would not start again: somebody else holds what the shares need.

    vLLM demands that its share is free at the moment it starts. Stacks start one after another, so the last one needs
    its share beside what all others hold.
    """
    found = []
    for card in cards_there:
        total, foreign = card["total_mib"], sum(each["mib"] for each in card["foreign"])
        if not total or not foreign or not card["stacks"]:
            continue
        shares = sum(budget.DEFAULT_SHARE if each["share"] is None else each["share"] for each in card["stacks"])
        needed = budget.needed(shares, total * MIB) // MIB
        if needed + foreign <= total:
            continue
        who = ", ".join(f"{each['name']} (pid {each['pid']}) {each['mib']} MiB" for each in card["foreign"])
        found.append(
            Finding(
                "restart_would_not_fit",
                f"{host}: GPU {card['index']}",
                f"The shares of its stacks need {needed} MiB of {total} MiB, and {foreign} MiB are held by others: "
                f"{who}. After a restart or a reboot the last stack does not start.",
                "End what holds the memory, or give the stacks smaller shares.",
                WARNING,
                host,
            )
        )
    return found
