# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi prints, read into values, and what it means when it prints something else.

All memory is in MiB, nvidia-smi's own unit. A figure the card does not report (``[N/A]``, ``[Not Supported]``, as on
unified-memory machines) is None, never zero: zero would look like a full card.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Optional, Sequence

from .errors import ERROR, WARNING, Finding
from .model import Gpu

# The order is the order of the query. Everything after the first REQUIRED fields is missing in some driver.
CARD_FIELDS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "memory.used",
    "memory.free",
    "driver_version",
    "pci.bus_id",
    "memory.reserved",
    "compute_cap",
    "mig.mode.current",
    "compute_mode",
    "persistence_mode",
)
REQUIRED_FIELDS = CARD_FIELDS[:6]
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_gpu_memory", "process_name")

MIB = 1024 * 1024
# nvidia-smi's figure and the inventory's may differ by how the vendor rounds; half a GiB is no other card.
MEMORY_TOLERANCE_MIB = 512


@dataclass(frozen=True)
class Process:
    """Somebody who holds memory on a card. ``used_mib`` is None where the driver does not tell."""

    pid: int
    used_mib: Optional[int]
    name: str


@dataclass(frozen=True)
class Card:
    """One card as the driver sees it."""

    index: int
    uuid: str
    name: str
    total_mib: Optional[int]
    reserved_mib: Optional[int]
    used_mib: Optional[int]
    free_mib: Optional[int]
    driver_version: str = ""
    bus_id: str = ""
    compute_capability: str = ""
    mig_mode: str = ""
    compute_mode: str = ""
    persistence_mode: str = ""
    processes: tuple[Process, ...] = ()

    @property
    def cuda_total_mib(self) -> Optional[int]:
        """The total vLLM's share is a share of: memory.total less memory.reserved."""
        return None if self.total_mib is None else self.total_mib - (self.reserved_mib or 0)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "cuda_total_mib": self.cuda_total_mib, "processes": [asdict(p) for p in self.processes]}


@dataclass(frozen=True)
class Trouble:
    """Why nvidia-smi did not answer: a stable code, what it said, and what to do."""

    code: str
    problem: str
    remedy: str


# Matched in this order against everything nvidia-smi wrote. The words are stable across driver branches.
_TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"driver/library version mismatch",
        "driver_library_mismatch",
        "The driver's user-space part was updated and the kernel module is still the old one: reboot the host, or "
        "stop everything that uses the GPU and reload the nvidia modules.",
    ),
    (
        r"couldn't communicate with the NVIDIA driver|driver is not loaded|NVIDIA driver is not running",
        "nvidia_driver_not_loaded",
        "The kernel module is not loaded: look at `dmesg | grep -i nvidia` and `modprobe nvidia`; after a kernel "
        "update the module has to be built for the new kernel.",
    ),
    (
        r"NVML: (Unknown Error|GPU is lost)|GPU is lost|fallen off the bus",
        "gpu_lost",
        "The driver lost a card. In a container: recreate it. On the host: look at `dmesg` for Xid lines; a reset or a "
        "reboot brings the card back.",
    ),
    (
        r"No devices were found",
        "no_gpu_found",
        "The driver runs but sees no card: check `lspci | grep -i nvidia`, the device nodes, and that no virtual "
        "machine holds the card.",
    ),
    (
        r"Insufficient Permissions",
        "gpu_permission_denied",
        "Run as root, or give the user access to /dev/nvidia*.",
    ),
)


def unknown_field(output: str) -> Optional[str]:
    """The field this nvidia-smi does not know, when that is what it complains about."""
    match = re.search(r'Field "([^"]+)" is not a valid field to query', output)
    return match.group(1) if match else None


def explain(output: str, missing: bool = False) -> Trouble:
    """Say what a failed nvidia-smi means. ``missing``: the program itself is not there."""
    if missing:
        return Trouble(
            "nvidia_smi_missing",
            "nvidia-smi was not found.",
            "Install the NVIDIA driver's utilities for the driver that runs here (Debian: nvidia-smi; Ubuntu: "
            "nvidia-utils-<branch>), or take the host out of the group of GPU hosts.",
        )
    said = " ".join(output.split())[:300]
    for pattern, code, remedy in _TROUBLES:
        if re.search(pattern, output, re.IGNORECASE):
            return Trouble(code, f"nvidia-smi says: {said}", remedy)
    return Trouble("nvidia_smi_failed", f"nvidia-smi says: {said or 'nothing'}", "Run nvidia-smi on the host by hand.")


def read_cards(fields: Sequence[str], text: str) -> list[Card]:
    """Cards from ``--query-gpu=FIELDS --format=csv,noheader,nounits``. A line that is no card raises ValueError."""
    cards = []
    for row in _rows(text):
        if len(row) != len(fields):
            raise ValueError(f"nvidia-smi printed {len(row)} values for {len(fields)} fields: {', '.join(row)[:200]}")
        value = dict(zip(fields, row))
        cards.append(
            Card(
                index=int(value["index"]),
                uuid=value["uuid"],
                name=value["name"],
                total_mib=_figure(value["memory.total"]),
                reserved_mib=_figure(value.get("memory.reserved", "")),
                used_mib=_figure(value["memory.used"]),
                free_mib=_figure(value["memory.free"]),
                driver_version=_word(value.get("driver_version", "")),
                bus_id=_word(value.get("pci.bus_id", "")),
                compute_capability=_word(value.get("compute_cap", "")),
                mig_mode=_word(value.get("mig.mode.current", "")),
                compute_mode=_word(value.get("compute_mode", "")),
                persistence_mode=_word(value.get("persistence_mode", "")),
            )
        )
    return cards


def read_processes(text: str) -> dict[str, tuple[Process, ...]]:
    """GPU UUID -> processes, from ``--query-compute-apps=PROCESS_FIELDS --format=csv,noheader,nounits``."""
    found: dict[str, list[Process]] = {}
    for row in _rows(text):
        # A process name may hold commas; it is the last field for that reason.
        if len(row) < 3 or not row[1].isdigit():
            continue
        name = ", ".join(row[3:])
        found.setdefault(row[0], []).append(Process(int(row[1]), _figure(row[2]), _word(name)))
    return {uuid: tuple(processes) for uuid, processes in found.items()}


def read_cuda_version(text: str) -> str:
    """The CUDA level of the driver, from the header of plain ``nvidia-smi`` or from ``--version``."""
    match = re.search(r"CUDA Version\s*:\s*([0-9.]+)", text)
    return match.group(1) if match else ""


def compare(expected: Sequence[Gpu], cards: Sequence[Card], host: str) -> list[Finding]:
    """The inventory's ``fleet_gpus`` against the cards that are there."""
    findings = []
    present = {card.index: card for card in cards}
    for position, gpu in enumerate(expected):
        place = f"host_vars of {host}: fleet_gpus[{position}]"
        card = present.get(gpu.index)
        if card is None:
            indexes = ", ".join(str(index) for index in sorted(present)) or "none"
            findings.append(
                Finding(
                    "gpu_not_there",
                    f"{place}.index",
                    f"GPU {gpu.index} is not in {host}; the driver sees: {indexes}.",
                    "Correct fleet_gpus, or look for the card with `lspci | grep -i nvidia` and `dmesg`.",
                    ERROR,
                    host,
                )
            )
            continue
        findings += _compare_card(gpu, card, place, host)
    named = {gpu.index for gpu in expected}
    for card in cards:
        if card.index not in named:
            findings.append(
                Finding(
                    "gpu_not_in_inventory",
                    f"host_vars of {host}: fleet_gpus",
                    f"{host} has GPU {card.index} ({card.name}), which the inventory does not name.",
                    f"Add {{index: {card.index}}} to fleet_gpus, with keep_free: and a reason to leave it unused.",
                    WARNING,
                    host,
                )
            )
    return findings


def _compare_card(gpu: Gpu, card: Card, place: str, host: str) -> list[Finding]:
    findings = []
    if gpu.uuid and gpu.uuid != card.uuid:
        findings.append(
            Finding(
                "gpu_uuid_differs",
                f"{place}.uuid",
                f"GPU {gpu.index} of {host} is {card.uuid}, the inventory says {gpu.uuid}.",
                "Cards were swapped or renumbered: correct fleet_gpus so that every stack stays on its card.",
                ERROR,
                host,
            )
        )
    if gpu.memory is not None and card.total_mib is not None:
        wanted = gpu.memory // MIB
        if abs(wanted - card.total_mib) > MEMORY_TOLERANCE_MIB:
            findings.append(
                Finding(
                    "gpu_memory_differs",
                    f"{place}.memory",
                    f"GPU {gpu.index} of {host} has {card.total_mib} MiB, the inventory says {wanted} MiB.",
                    f"Write memory: {card.total_mib} MiB, and look at the shares again.",
                    ERROR,
                    host,
                )
            )
    if gpu.compute_capability and card.compute_capability and gpu.compute_capability != card.compute_capability:
        findings.append(
            Finding(
                "gpu_capability_differs",
                f"{place}.compute_capability",
                f"GPU {gpu.index} of {host} has compute capability {card.compute_capability}, the inventory says "
                f"{gpu.compute_capability}.",
                f'Write compute_capability: "{card.compute_capability}".',
                ERROR,
                host,
            )
        )
    return findings


def as_facts(cards: Sequence[Card], cuda_version: str) -> Mapping[str, Any]:
    """What gpu_info gives as ansible_facts: units in the names."""
    return {
        "modelfleet_gpus": [card.as_dict() for card in cards],
        "modelfleet_gpu_driver_version": cards[0].driver_version if cards else "",
        "modelfleet_gpu_cuda_version": cuda_version,
    }


def _rows(text: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [[value.strip() for value in row] for row in reader if any(value.strip() for value in row)]


def _figure(text: str) -> Optional[int]:
    """MiB, or None for [N/A], [Not Supported], [Unknown Error], [Insufficient Permissions] and an absent field."""
    match = re.fullmatch(r"(\d+)(?:\s*MiB)?", text.strip())
    return int(match.group(1)) if match else None


def _word(text: str) -> str:
    text = text.strip()
    return "" if (text.startswith("[") and text.endswith("]")) or text == "N/A" else text
