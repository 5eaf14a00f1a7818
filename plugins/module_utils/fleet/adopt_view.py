# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was adopted, as text to paste and to read."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from . import drift, secrecy, yaml_text
from .adoption import Adopted
from .errors import ERROR, Finding

ORDER = (
    *("fleet_images", "fleet_models", "vllm_stack_gpu_mode", "vllm_stack_hub_cache"),
    *("fleet_gpus", "fleet_stacks", "fleet_gateway", "litellm_gateway_instances"),
)
HEADINGS = {
    "to_decide": "To decide, because nothing says it:",
    "not_expressed": "Not in the inventory:",
    "replaced": "Done in the collection's own way:",
    "left_alone": "Left alone:",
}
MARK = "Adopted by modelfleet.inference from"
RESTARTS = (drift.START, drift.RECREATE, drift.CREATE, drift.REMOVE)
SHOWN = 60  # characters of a value in the comparison


def inventory(done: Adopted, origin: str) -> str:
    """The variables as YAML for a file of host_vars."""
    variables = {name: done.variables[name] for name in ORDER if said(done, name)}
    header = [f"{MARK} {origin}."]
    if done.secrets:
        header.append("Its vault_… variables hold secrets: define them with `ansible-vault`, beside this file.")
    text: str = secrecy.scrubbed(yaml_text.dump(variables, header), done.values_to_hide)
    return text


def said(done: Adopted, name: str) -> bool:
    """An empty list of cards says that there is none; anything else that is empty says nothing."""
    return bool(done.variables.get(name)) or (name == "fleet_gpus" and name in done.variables)


def notes(done: Adopted) -> list[str]:
    """Everything that the inventory does not say, by kind, each with its place."""
    lines: list[str] = []
    for code, heading in HEADINGS.items():
        found = [finding for finding in done.findings if finding.code == code]
        if found:
            lines += ["", heading]
            lines += [f"  {one.place}: {one.problem} {one.remedy}".rstrip() for one in found]
    others = [finding for finding in done.findings if finding.code not in HEADINGS]
    if others:
        lines += ["", "Not read whole:", *(f"  {finding}" for finding in others)]
    if done.secrets:
        lines += ["", "Secrets, each a variable for the vault (their values are shown nowhere):"]
        for name in done.secrets:
            unknown = "" if done.secrets[name] else " (nobody set it there)"
            lines.append(f"  {name}: {done.secret_places.get(name, '')}{unknown}")
    return lines


def planned(findings: Sequence[Finding]) -> list[str]:
    """What the plan says of the adopted inventory."""
    refused = [finding for finding in findings if finding.severity == ERROR]
    lines = ["", f"The plan {'refuses' if refused else 'accepts'} this inventory" + (":" if findings else ".")]
    return [*lines, *(f"  {finding.severity}: {finding}" for finding in findings)]


def restarts(compared: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """stack -> whether taking it over would restart it."""
    return {name: bool(found["step"] in RESTARTS) for name, found in compared.items()}


def comparison(compared: Mapping[str, Mapping[str, Any]], extra: Sequence[str] = ()) -> list[str]:
    """What a first run with this inventory would do to what runs."""
    lines = ["", "Taking over:"]
    for name, found in compared.items():
        differences = found["differences"]
        if found["step"] in RESTARTS:
            lines.append(f"  {name}: would RESTART ({found['step']}), because of")
        elif differences:
            lines.append(f"  {name}: would not restart; a run would {found['step']}")
        else:
            lines.append(f"  {name}: would not restart; nothing differs")
        for one in differences:
            lines.append(f"    {one['item']}: want {_short(one['want'])}, have {_short(one['have'])}")
    return [*lines, *(f"  {line}" for line in extra)]


def _short(value: str) -> str:
    return value if len(value) <= SHOWN else value[: SHOWN - 1] + "…"
