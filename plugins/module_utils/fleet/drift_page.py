# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One page for the whole fleet: every card with who sits on it, what differs, and when each model last answered.

Complete in itself: no script, no font, no picture, no address. It is read on a phone at night as well as on a wall.
"""

from __future__ import annotations

import string
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from . import drift_report
from .drift_report import DRIFT, NONE, UNKNOWN

COLOURS = 8  # of stacks on one host; the ninth has the first one's, and another letter
LETTERS = string.ascii_lowercase + string.ascii_uppercase
_SAID = {NONE: "as wanted", DRIFT: "drift", UNKNOWN: "could not look"}

_STYLE = (Path(__file__).parent / "data" / "drift.css").read_text(encoding="utf-8")


def page(reports: Sequence[Mapping[str, Any]], now: float) -> str:
    """The whole document. ``now``: seconds since the epoch; ages are counted from it."""
    status = drift_report.status(reports)
    title = f"Fleet: {_SAID[status]}"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            # The page may hold what somebody wrote on a host: whatever that is, nothing of it runs or is fetched.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{_e(title)}</title><style>{_STYLE}</style></head><body>",
            f"<header><h1>Fleet {_pill(status)}</h1><p>{_e(drift_report.summary(reports))}.</p>",
            f'<p class="soft">Looked at {_time(now)}. Nothing was changed.</p>',
            '<nav aria-label="Hosts"><ul>',
            *(
                f'<li><a href="#host-{number}"><span class="dot {report["status"]}" aria-hidden="true"></span>'
                f'{_e(report["host"])} <span class="soft">{_e(_counted(report))}</span></a></li>'
                for number, report in enumerate(reports)
            ),
            "</ul></nav></header><main>",
            *(_host(number, report, now) for number, report in enumerate(reports)),
            '</main><footer class="soft"><p>Bars: the width is the share of the card that the inventory gives, the '
            "darker part what the stack holds now. Striped is held by somebody else.</p></footer></body></html>",
            "",
        ]
    )


def _host(number: int, report: Mapping[str, Any], now: float) -> str:
    letters = {stack["name"]: position for position, stack in enumerate(report["stacks"])}
    drifted = drift_report.by_place(report)
    parts = [
        f'<section id="host-{number}" aria-labelledby="name-{number}"><div class="head">',
        f'<h2 id="name-{number}">{_e(report["host"])}</h2>{_pill(report["status"], _counted(report))}</div>',
        *(_note(finding, "unknown", "Could not look") for finding in report["trouble"]),
        *(_note(finding, "drift", "Warning") for finding in report["warnings"]),
    ]
    if drifted:
        parts += ["<h3>What differs</h3>", _differences(drifted)]
    if report["cards"]:
        parts.append("<h3>Cards</h3>")
        parts += [_card(card, letters) for card in report["cards"]]
    if report["stacks"]:
        parts.append('<h3>Stacks</h3><ul class="stacks">')
        parts += [_stack(stack, letters, drifted, now) for stack in report["stacks"]]
        parts.append("</ul>")
    routes = (report.get("gateway") or {}).get("routes")
    if routes:
        parts.append(f"<h3>Gateway</h3><p>{len(routes)} routes: ")
        parts.append(", ".join(f"<code>{_e(route)}</code>" for route in routes) + "</p>")
    return "\n".join([*parts, "</section>"])


def _differences(drifted: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Item", "Want", "Have", "So"))
    bodies = []
    for place, found in drifted.items():
        rows = [
            f'<tr><th scope="row">{_e(one["item"])}</th><td data-is="want"><code>{_e(one["want"])}</code></td>'
            f'<td data-is="have"><code>{_e(one["have"])}</code></td>'
            f'<td data-is="so">{_e(drift_report.does(one["action"]))}</td></tr>'
            for one in found
        ]
        group = f'<tr><th scope="rowgroup" colspan="4">{_e(place)}</th></tr>'
        bodies.append(f"<tbody>{group}{''.join(rows)}</tbody>")
    return f"<table><thead><tr>{head}</tr></thead>{''.join(bodies)}</table>"


def _card(card: Mapping[str, Any], letters: Mapping[str, int]) -> str:
    total = card.get("total_mib") or 0
    parts, said = [], []
    for one in card["stacks"]:
        share = one["share"]
        width = share * 100 if share is not None else (one["mib"] * 100 / total if total else 10)
        holds = min(100.0, one["mib"] * 100 / (width / 100 * total)) if total and width else 0
        held = f"{_gib(one['mib'])} held" if one["mib"] else "holds nothing"
        wanted = f"share {share:.2f}, " if share is not None else ""
        said.append(f"{one['stack']} {wanted}{held}")
        parts.append(
            f'<span class="part s{letters[one["stack"]] % COLOURS}" style="width:{width:.2f}%" '
            f'title="{_e(said[-1])}"><i style="width:{holds:.0f}%"></i><b>{_letter(letters, one["stack"])}</b></span>'
        )
    for one in card["foreign"]:
        said.append(f"{one['name']} (pid {one['pid']}) {_gib(one['mib'])}, not of the inventory")
        width = one["mib"] * 100 / total if total else 5
        parts.append(f'<span class="part foreign" style="width:{width:.2f}%" title="{_e(said[-1])}"></span>')
    if card["keep_free"]:
        said.append(f"kept free: {card['keep_free']}")
    free = card.get("free_mib")
    size = f"{_gib(total)}, {_gib(free)} free" if total and free is not None else "not looked at"
    label = f"GPU {card['index']}: {'; '.join(said) or 'nothing on it'}"
    kept = f'<p class="soft">Kept free: {_e(card["keep_free"])}</p>' if card["keep_free"] else ""
    others = "".join(
        f'<p class="soft">Held by others: {_e(one["name"])} (pid {one["pid"]}) {_gib(one["mib"])}</p>'
        for one in card["foreign"]
    )
    return (
        f'<div class="card"><div class="head"><strong>GPU {card["index"]}</strong>'
        f'<span class="soft">{_e(card.get("name") or "")} · {_e(size)}</span></div>'
        f'<div class="bar" role="img" aria-label="{_e(label)}">{"".join(parts)}</div>{kept}{others}</div>'
    )


def _stack(
    stack: Mapping[str, Any], letters: Mapping[str, int], drifted: Mapping[str, Sequence[Any]], now: float
) -> str:
    name = stack["name"]
    if name in drifted:
        state = _pill(DRIFT, drift_report.counted(len(drifted[name]), "difference"))
    elif "step" not in stack:
        state = _pill(UNKNOWN, "not seen")
    else:
        state = _pill(NONE)
    where = f"GPU {', '.join(map(str, stack['gpus']))}" if stack["gpus"] else "no GPU"
    lines = [f"<p><code>{_e(stack['served_model_name'])}</code></p>"]
    lines.append(f'<p class="soft">{where} · {_e(stack["container"])}{_running(stack)}</p>')
    receipt = stack.get("receipt")
    if receipt:
        lines.append(f'<p class="soft">{_answered(receipt, now)}</p>')
        measured = _measured(receipt)
        if measured:
            lines.append(f'<p class="soft">{_e(measured)}</p>')
    elif receipt is not None:
        lines.append('<p class="soft">Never answered: no receipt.</p>')
    failure = stack.get("failure")
    if failure:
        when = _age(_moment(failure["at"]), now)
        lines.append(f'<p class="soft">Last run failed {when}: <code>{_e(failure["code"])}</code></p>')
    return (
        f'<li><span class="key s{letters[name] % COLOURS}" aria-hidden="true"><b>{_letter(letters, name)}</b></span>'
        f'<div><div class="head"><strong>{_e(name)}</strong>{state}</div>{"".join(lines)}</div></li>'
    )


def _running(stack: Mapping[str, Any]) -> str:
    return f" · {_e(stack['status'] or 'no container')}" if "status" in stack else ""


def _answered(receipt: Mapping[str, Any], now: float) -> str:
    when = _moment(receipt["at"])
    if not receipt["asked"]:
        return f"Ready {_age(when, now)}, never asked."
    return f"Answered {receipt['passed']} of {receipt['questions']} questions {_age(when, now)}."


def _measured(receipt: Mapping[str, Any]) -> str:
    parts = [f"vLLM {receipt['version']}"] if receipt.get("version") else []
    parts += [f"weights {receipt['weights_gib']:.1f} GiB"] if receipt.get("weights_gib") else []
    if receipt.get("kv_cache_tokens"):
        parts.append(f"KV cache {receipt['kv_cache_tokens']:,} tokens")
    parts += [f"up in {receipt['seconds']:.0f} s"] if receipt.get("seconds") else []
    return " · ".join(parts)


def _note(finding: Mapping[str, Any], look: str, title: str) -> str:
    return (
        f'<div class="note {look}"><p><strong>{title}: {_e(finding["place"])}</strong></p>'
        f"<p>{_e(finding['problem'])}</p><p>{_e(finding['remedy'])} <code>{_e(finding['code'])}</code></p></div>"
    )


def _pill(status: str, said: str = "") -> str:
    return f'<span class="pill {status}">{_e(said or _SAID[status])}</span>'


def _counted(report: Mapping[str, Any]) -> str:
    parts = [drift_report.counted(len(report["differences"]), "difference")] if report["differences"] else []
    parts += [_SAID[UNKNOWN]] if report["status"] == UNKNOWN else []
    return ", ".join(parts) or _SAID[NONE]


def _letter(letters: Mapping[str, int], stack: str) -> str:
    return LETTERS[letters[stack] % len(LETTERS)]


def _gib(mib: Optional[int]) -> str:
    return "?" if mib is None else f"{mib / 1024:.1f} GiB"


def _moment(text: str) -> Optional[float]:
    """A receipt's 2026-12-01T031051Z in seconds since the epoch; None for what somebody broke."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _age(moment: Optional[float], now: float) -> str:
    if moment is None:
        return "at an unknown time"
    seconds = max(0, int(now - moment))
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            said = f"{drift_report.counted(seconds // size, unit)} ago"
            break
    else:
        said = "just now"
    return f'<time datetime="{drift_report.stamp(moment)}" title="{drift_report.stamp(moment)}">{said}</time>'


def _time(moment: float) -> str:
    shown = datetime.fromtimestamp(moment, timezone.utc).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    return f'<time datetime="{drift_report.stamp(moment)}">{shown}</time>'


def _e(value: Any) -> str:
    return escape(drift_report.printable(value), quote=True)
