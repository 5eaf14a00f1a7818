# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was found on all hosts, for a person at a terminal, for a program and for CI. ``drift_page`` makes the page.

A report of one host is what the action ``drift`` returns: plain data, whose differences never hold a secret.
"""

from __future__ import annotations

import re
import textwrap
from datetime import datetime, timezone
from typing import Any, Iterable, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

NONE, DRIFT, UNKNOWN = "none", "drift", "unknown"
STATUSES = (NONE, DRIFT, UNKNOWN)  # the later, the weightier
EXIT = {NONE: 0, DRIFT: 2, UNKNOWN: 4}

WIDTH = 110
_DOES = {
    "report": "a run leaves it to you",
    "write": "a run writes it",
    "set": "a run sets it",
    "install": "a run installs it",
    "adopt": "a run lets its unit care for it again",
    "ask": "a run asks it",
    "wait": "a run waits for it",
    "start": "a run starts it",
    "recreate": "a run replaces the container",
    "create": "a run creates it",
    "remove": "a run removes it",
    "reload": "a run reloads it",
    "restart": "a run restarts it",
}
# What XML 1.0 cannot hold, escaped or not; a terminal may take orders by it.
_CONTROL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def does(action: str) -> str:
    """What a run does about a difference, in words."""
    return _DOES.get(action, action)


def where(difference: Mapping[str, str]) -> str:
    """The stack a difference belongs to; ``host`` or ``gateway`` for what is no stack's."""
    return difference["stack"] if difference["part"] == "stack" else difference["part"]


def by_place(report: Mapping[str, Any]) -> dict[str, list[Mapping[str, str]]]:
    """The differences of one host by ``where``, the host's own first, then in the order of the inventory."""
    order = ["host", *(stack["name"] for stack in report["stacks"])]
    found: dict[str, list[Mapping[str, str]]] = {}
    for difference in report["differences"]:
        found.setdefault(where(difference), []).append(difference)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def status(reports: Iterable[Mapping[str, Any]]) -> str:
    """The weightiest of the hosts'."""
    return max((report["status"] for report in reports), key=STATUSES.index, default=NONE)


def as_json(reports: Sequence[Mapping[str, Any]], at: float) -> dict[str, Any]:
    """``at``: seconds since the epoch."""
    return {
        "format": 1,
        "at": stamp(at),
        "status": status(reports),
        "exit_status": EXIT[status(reports)],
        "differences": sum(len(report["differences"]) for report in reports),
        "hosts": {report["host"]: {**report, "at": stamp(report["at"])} for report in reports},
    }


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def summary(reports: Sequence[Mapping[str, Any]]) -> str:
    """One line: how many hosts are as wanted, which are not, and which nobody could look at."""
    good = sum(1 for report in reports if report["status"] == NONE)
    parts = [f"{good} of {counted(len(reports), 'host')} as the inventory wants"]
    drifted = [report for report in reports if report["differences"]]
    if drifted:
        count = sum(len(report["differences"]) for report in drifted)
        parts.append(f"{counted(count, 'difference')} on {', '.join(report['host'] for report in drifted)}")
    unseen = [report["host"] for report in reports if report["status"] == UNKNOWN]
    if unseen:
        parts.append(f"could not look at all of {', '.join(unseen)}")
    return "; ".join(parts)


def text(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """For a terminal: by host and stack each item with what is wanted and what there is."""
    lines = []
    for report in reports:
        if report["status"] == NONE and not report["warnings"]:
            continue
        said = [counted(len(report["differences"]), "difference")] if report["differences"] else []
        said += ["could not look at everything"] if report["trouble"] else []
        lines.append(f"{report['host']}: {', '.join(said) or 'as wanted'}")
        for finding in report["trouble"]:
            lines += _wrapped(f"  cannot look: {_finding(finding)}")
        for place, found in by_place(report).items():
            lines.append(f"  {place}")
            width = min(max(len(one["item"]) for one in found), 32)
            for one in found:
                told = f"want {one['want']}  have {one['have']}  ({does(one['action'])})"
                lines += _wrapped(f"    {one['item']:{width}}  {told}")
        for finding in report["warnings"]:
            lines += _wrapped(f"  warning: {_finding(finding)}")
        lines.append("")
    return [printable(line) for line in [*lines, summary(reports)]]


def _finding(finding: Mapping[str, Any]) -> str:
    return f"{finding['problem']} {finding['remedy']} [{finding['code']}]"


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(
        printable(line), WIDTH, subsequent_indent=indent, max_lines=6, placeholder=" …", break_on_hyphens=False
    )


def counted(number: int, noun: str) -> str:
    """3 differences, 1 difference"""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def junit(reports: Sequence[Mapping[str, Any]]) -> str:
    """One suite a host; one case for the host itself, each stack and the gateway. Not looked at is an error."""
    suites = []
    for report in reports:
        drifted = by_place(report)
        places = ["host", *(stack["name"] for stack in report["stacks"])]
        places += ["gateway"] if "gateway" in report else []
        places += [place for place in drifted if place not in places]
        cases, failed = [], 0
        for place in places:
            found = drifted.get(place, ())
            inside = ""
            if found:
                failed += 1
                lines = "\n".join(f"{one['item']}: want {one['want']}, have {one['have']}" for one in found)
                message = f"{counted(len(found), 'difference')}: {', '.join(one['item'] for one in found)}"
                inside = f"<failure type={_attribute('drift')} message={_attribute(message)}>{_xml(lines)}</failure>"
            cases.append(_case(report["host"], place, inside))
        for finding in report["trouble"]:
            inside = f"<error type={_attribute(finding['code'])} message={_attribute(finding['problem'])}/>"
            cases.append(_case(report["host"], f"look at {finding['place']}", inside))
        counts = f'tests="{len(cases)}" failures="{failed}" errors="{len(report["trouble"])}"'
        head = f"<testsuite name={_attribute(report['host'])} {counts} timestamp={_attribute(stamp(report['at']))}"
        seconds = f' time="{report.get("seconds", 0)}">'
        suites.append("\n".join([head + seconds, *cases, "</testsuite>"]))
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites, "</testsuites>", ""])


def _case(host: str, name: str, inside: str) -> str:
    head = f"<testcase classname={_attribute(host)} name={_attribute(name)}"
    return f"{head}>{inside}</testcase>" if inside else f"{head}/>"


def printable(value: Any) -> str:
    return _CONTROL.sub("\ufffd", str(value))


def _xml(value: str) -> str:
    return escape(printable(value))


def _attribute(value: str) -> str:
    return quoteattr(printable(value))
