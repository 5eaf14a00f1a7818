# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks nvidia-smi. The only place that runs it; what its words mean is in ``fleet.gpus``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Optional, Sequence

from ..fleet import gpus
from . import command

Run = Callable[[Sequence[str]], "tuple[int, str]"]

TIMEOUT_SECONDS = 60  # a cold driver without persistence mode takes several seconds per card


@dataclass(frozen=True)
class Report:
    """The cards of this host, or why there are none to see."""

    cards: tuple[gpus.Card, ...] = ()
    cuda_version: str = ""
    trouble: Optional[gpus.Trouble] = None


def run(argv: Sequence[str]) -> tuple[int, str]:
    """Exit status and everything written."""
    done = command.run(argv, TIMEOUT_SECONDS)
    return done.status, "" if done.status == command.MISSING else done.output + done.errors


def memory(run: Run = run, processes: bool = False) -> Report:
    """Cards with their memory, and who holds it when asked. One or two executions, for polling."""
    fields = list(gpus.CARD_FIELDS)
    while True:
        status, output = run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
        unknown = gpus.unknown_field(output)
        if status == 0 or unknown not in fields or unknown in gpus.REQUIRED_FIELDS:
            break
        fields.remove(unknown)  # an older driver: what it does not know stays unknown
    if status != 0:
        return Report(trouble=gpus.explain(output, missing=status == 127))
    try:
        cards = gpus.read_cards(fields, output)
    except ValueError:
        # "No devices were found" comes with exit status 0 from some drivers.
        return Report(trouble=gpus.explain(output))
    if processes:
        holders = _processes(run)
        cards = [replace(card, processes=holders.get(card.uuid, ())) for card in cards]
    return Report(tuple(cards))


def look(run: Run = run) -> Report:
    """Everything: cards, who holds their memory, the CUDA level of the driver."""
    report = memory(run, processes=True)
    if report.trouble:
        return report
    _status, header = run(["nvidia-smi"])  # `--version` is cheaper, but older drivers do not have it
    return replace(report, cuda_version=gpus.read_cuda_version(header))


def _processes(run: Run) -> dict[str, tuple[gpus.Process, ...]]:
    status, output = run(
        ["nvidia-smi", f"--query-compute-apps={','.join(gpus.PROCESS_FIELDS)}", "--format=csv,noheader,nounits"]
    )
    return gpus.read_processes(output) if status == 0 else {}
