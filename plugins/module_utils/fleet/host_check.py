# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host must have before a model can run on it, judged from what was seen there.

Nothing here looks at a host: ``adapters.host`` fills the facts, the modules pass on the findings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from .errors import ERROR, WARNING, Finding
from .gpus import Card, Trouble
from .host_packages import COMPOSE, ENGINE, SDK, Need

OLDEST_COMPOSE = (2, 0)
OLDEST_CDI = (25,)  # the first Docker Engine with features.cdi; from 28.3 on it is on by itself

BOOT_UNIT = "gpu-nodes.modelfleet.service"  # modelfleet-NAME.service is the stack NAME's
CTK = "nvidia-ctk"
REFRESHES_CDI = (1, 18)  # from then on the toolkit keeps /var/run/cdi; a second one in /etc/cdi would only grow old
CDI_REFRESH = "nvidia-cdi-refresh.service"
CDI_GENERATE = (CTK, "cdi", "generate", "--output=/etc/cdi/nvidia.yaml")
PERSISTENCED = "nvidia-persistenced.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
# CUDA needs /dev/nvidia-uvm, which nothing makes at boot before the first program asks for it. The links in /dev/char
# are what the systemd cgroup driver looks for when a `systemctl daemon-reload` writes the device rules of running
# containers anew; without them those containers lose their cards.
BOOT_COMMANDS = (
    ("nvidia-modprobe", ("nvidia-modprobe", "-c", "0", "-u")),
    (CTK, (CTK, "system", "create-dev-char-symlinks", "--create-all")),
)


@dataclass(frozen=True)
class EngineFacts:
    """The container engine of a host. Versions are empty where there is nothing."""

    there: bool = False
    answers: bool = False
    error: str = ""  # why it does not answer, in its own words
    version: str = ""
    compose: str = ""
    sdk: str = ""
    cgroup_driver: str = ""
    runtimes: tuple[str, ...] = ()  # of the running daemon, not of its file
    cdi_dirs: tuple[str, ...] = ()
    live_restore: bool = False
    running: int = 0  # containers, ours or not
    origin: str = ""  # "docker" or "distribution"; only looked up when something is missing

    @property
    def missing(self) -> tuple[str, ...]:
        parts = []
        if not self.there:
            parts.append(ENGINE)
        if version(self.compose) < OLDEST_COMPOSE:
            parts.append(COMPOSE)
        if not self.sdk:
            parts.append(SDK)
        return tuple(parts)

    @property
    def complete(self) -> bool:
        return self.answers and not self.missing


@dataclass(frozen=True)
class NvidiaFacts:
    """The NVIDIA side of a host."""

    cards: tuple[Card, ...] = ()
    trouble: Optional[Trouble] = None
    cuda_version: str = ""
    module_version: str = ""  # of the loaded kernel module
    hook: bool = False  # what makes Docker know the driver "nvidia"
    runtime: bool = False
    toolkit: str = ""  # version of nvidia-ctk; empty without it
    programs: tuple[str, ...] = ()  # of BOOT_COMMANDS, those that are there
    cdi_devices: tuple[str, ...] = ()  # names without the kind: 0, GPU-…, all
    cdi_stale: str = ""  # a library the specification mounts and that is not there any more
    boot_unit: str = ""  # its text
    char_links: bool = True
    nvswitch: bool = False
    units: Mapping[str, str] = field(default_factory=dict)  # unit -> ActiveState, of those that exist

    @property
    def has_toolkit(self) -> bool:
        return self.hook and self.runtime

    @property
    def cdi_missing(self) -> tuple[str, ...]:
        """Cards that the CDI specification has neither by index nor by UUID."""
        return tuple(
            str(card.index)
            for card in self.cards
            if str(card.index) not in self.cdi_devices and card.uuid not in self.cdi_devices
        )

    @property
    def persistence_to_start(self) -> bool:
        return self.units.get(PERSISTENCED, "active") not in ("active", "activating")

    @property
    def cdi_command(self) -> tuple[str, ...]:
        """What writes the CDI specification anew."""
        return ("systemctl", "restart", CDI_REFRESH) if CDI_REFRESH in self.units else CDI_GENERATE


def version(text: str) -> tuple[int, ...]:
    """The leading numbers: 26.1.5+dfsg1 -> (26, 1, 5), v2.40 -> (2, 40); empty for nothing."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(number) for number in match.group(1).split(".")) if match else ()


def engine_findings(engine: EngineFacts, need: Need, host: str, managed: bool) -> list[Finding]:
    """What stands in the way of the engine; when managed, what is missing is installed instead of reported."""
    findings = list(need.findings)
    if managed:
        return findings
    packages = " ".join((*need.packages, *(f"python3-pip:{name}" for name in need.pip)))
    remedy = f"Install {packages or 'it'}, or set container_engine_manage: true."
    what = {
        ENGINE: ("container_engine_missing", "has no Docker Engine (no dockerd)."),
        COMPOSE: (
            "compose_missing",
            f"has {'Compose ' + engine.compose if engine.compose else 'no Compose plugin'}; 2 or later is needed.",
        ),
        SDK: ("docker_sdk_missing", "has no Docker SDK for Python for the interpreter that Ansible uses."),
    }
    for part in engine.missing:
        code, problem = what[part]
        findings.append(Finding(code, host, f"{host} {problem}", remedy, ERROR, host))
    if engine.there and not engine.answers:
        findings.append(
            Finding(
                "container_engine_down",
                host,
                f"Docker is installed on {host} and does not answer: {engine.error}",
                "Look at `systemctl status docker` and `journalctl -u docker -n 50`.",
                ERROR,
                host,
            )
        )
    return findings


def nvidia_findings(
    nvidia: NvidiaFacts, engine: EngineFacts, need: Need, host: str, managed: bool, mode: str
) -> list[Finding]:
    """What keeps a container from its cards. ``mode`` is the stacks' way: nvidia, runtime, cdi or none."""
    findings = list(need.findings)
    if nvidia.trouble:
        trouble = nvidia.trouble
        return [*findings, Finding(trouble.code, host, f"{host}: {trouble.problem}", trouble.remedy, ERROR, host)]
    if not managed and mode in ("nvidia", "runtime"):
        findings += _runtime_findings(nvidia, engine, host, mode)
    if mode == "cdi" and nvidia.cdi_missing and not (managed and nvidia.toolkit):
        findings.append(
            Finding(
                "cdi_device_unresolvable",
                f"{host}: CDI",
                f"No CDI specification of {host} names GPU {', '.join(nvidia.cdi_missing)}; it has: "
                f"{', '.join(nvidia.cdi_devices) or 'nothing'}.",
                "Generate it again after a change of driver or cards: "
                "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, and compare with `nvidia-ctk cdi list`.",
                ERROR,
                host,
            )
        )
    if (
        mode == "cdi"
        and engine.answers
        and not engine.cdi_dirs
        and not (managed and version(engine.version) >= OLDEST_CDI)
    ):
        findings.append(
            Finding(
                "cdi_not_enabled",
                f"{host}: daemon.json features.cdi",
                f"The Docker daemon of {host} ({engine.version}) does not read CDI specifications.",
                "Docker 25 and later: set container_engine_config: {features: {cdi: true}}, which needs a restart of "
                "the daemon. Older: choose another vllm_stack_gpu_mode.",
                ERROR,
                host,
            )
        )
    findings += _warnings(nvidia, engine, host, mode)
    return findings


def _runtime_findings(nvidia: NvidiaFacts, engine: EngineFacts, host: str, mode: str) -> list[Finding]:
    if not nvidia.has_toolkit:
        return [
            Finding(
                "nvidia_runtime_missing",
                host,
                f"{host} has no NVIDIA Container Toolkit (nvidia-container-runtime and its hook).",
                "Install nvidia-container-toolkit and run `nvidia-ctk runtime configure --runtime=docker`, or set "
                "nvidia_runtime_manage: true.",
                ERROR,
                host,
            )
        ]
    if mode == "runtime" and engine.answers and "nvidia" not in engine.runtimes:
        return [
            Finding(
                "nvidia_runtime_missing",
                host,
                f"The running Docker daemon of {host} does not know the runtime nvidia; it knows: "
                f"{', '.join(engine.runtimes)}.",
                "Look at `docker info`, not at the file: another daemon.json may be read, or the daemon was not "
                "reloaded since (`systemctl reload docker`).",
                ERROR,
                host,
            )
        ]
    return []


def _warnings(nvidia: NvidiaFacts, engine: EngineFacts, host: str, mode: str) -> list[Finding]:
    findings = []
    for card in nvidia.cards:
        if card.mig_mode == "Enabled":
            findings.append(
                Finding(
                    "mig_enabled",
                    f"{host}: GPU {card.index}",
                    f"MIG is on for GPU {card.index} of {host}: no stack can use it as a whole card.",
                    "Switch it off with `nvidia-smi -mig 0` while nothing uses the card, unless you mean it.",
                    WARNING,
                    host,
                )
            )
        if card.compute_mode not in ("", "Default"):
            findings.append(
                Finding(
                    "compute_mode_exclusive",
                    f"{host}: GPU {card.index}",
                    f"GPU {card.index} of {host} is in compute mode {card.compute_mode}: one process only.",
                    "Two stacks cannot share it; `nvidia-smi -c DEFAULT` allows it.",
                    WARNING,
                    host,
                )
            )
    driver = nvidia.cards[0].driver_version if nvidia.cards else ""
    if driver and nvidia.module_version and driver != nvidia.module_version:
        findings.append(
            Finding(
                "driver_library_mismatch",
                host,
                f"On {host} nvidia-smi is of driver {driver}, the loaded kernel module of {nvidia.module_version}.",
                "Reboot the host when its models may be down; CUDA error 803 is this.",
                WARNING,
                host,
            )
        )
    for card in nvidia.cards:
        if card.persistence_mode == "Disabled" and PERSISTENCED not in nvidia.units:
            findings.append(
                Finding(
                    "persistence_off",
                    f"{host}: GPU {card.index}",
                    f"The driver of {host} lets GPU {card.index} go whenever no process uses it, and takes seconds to "
                    "bring it back at the next start.",
                    "Install and start nvidia-persistenced, which comes with the driver. `nvidia-smi -pm 1` ends "
                    "with the next boot.",
                    WARNING,
                    host,
                )
            )
    manager = nvidia.units.get(FABRIC_MANAGER, "not installed" if nvidia.nvswitch else "active")
    if manager == "failed" or (nvidia.nvswitch and manager not in ("active", "activating")):
        findings.append(
            Finding(
                "fabric_manager_missing",
                host,
                f"nvidia-fabricmanager is {manager} on {host}: on a machine with NVSwitch CUDA starts with error 802.",
                "Install it in exactly the driver's version and start it.",
                WARNING,
                host,
            )
        )
    if mode in ("nvidia", "runtime") and engine.cgroup_driver == "systemd" and not nvidia.char_links:
        findings.append(
            Finding(
                "gpu_lost_at_reload",
                host,
                f"On {host} a `systemctl daemon-reload` takes the cards from running containers: Docker uses the "
                "systemd cgroup driver and /dev/char has no links to the cards.",
                "nvidia_runtime makes the links when nvidia-ctk is there; vllm_stack_gpu_mode: cdi avoids it too.",
                WARNING,
                host,
            )
        )
    return findings


def cuda_findings(requirements: Mapping[str, str], nvidia: NvidiaFacts, host: str) -> list[Finding]:
    """Images that need a newer driver. ``requirements``: image -> its NVIDIA_REQUIRE_CUDA.

    Told apart: a data centre card may run a newer CUDA by the image's own compatibility libraries, and the image's
    alternatives say with which driver branches; any other card ends with CUDA error 804.
    """
    findings = []
    driver = nvidia.cards[0].driver_version if nvidia.cards else ""
    for image, wanted in requirements.items():
        if not wanted or not nvidia.cuda_version or _satisfied(wanted, nvidia.cuda_version, driver):
            continue
        cuda = re.search(r"cuda>=?([\d.]+)", wanted)
        findings.append(
            Finding(
                "driver_too_old",
                f"{host}: image {image}",
                f"The image needs {'CUDA ' + cuda.group(1) if cuda else wanted}, the driver {driver} of {host} gives "
                f"CUDA {nvidia.cuda_version}.",
                "Update the host's driver, or pin an image built for an older CUDA. (CUDA error 804; error 803 is a "
                "driver whose two halves differ, error 802 a fabric manager that does not run.)",
                ERROR,
                host,
            )
        )
    return findings


def _satisfied(requirement: str, cuda: str, driver: str) -> bool:
    """Alternatives are divided by spaces, conditions of one by commas. What we cannot judge (brand) counts as true."""
    have = {"cuda": version(cuda), "driver": version(driver)}
    return any(all(_holds(one, have) for one in alternative.split(",")) for alternative in requirement.split())


def _holds(condition: str, have: Mapping[str, tuple[int, ...]]) -> bool:
    match = re.fullmatch(r"(cuda|driver)(>=|<=|=|<|>|!=)([\d.]+)", condition)
    if not match or not have[match.group(1)]:
        return True
    want = version(match.group(3))
    mine = have[match.group(1)][: len(want)] if match.group(2) in ("=", "!=") else have[match.group(1)]
    return {
        ">=": mine >= want,
        "<=": mine <= want,
        "=": mine == want,
        "!=": mine != want,
        "<": mine < want,
        ">": mine > want,
    }[match.group(2)]


def refreshes_cdi(toolkit: str) -> bool:
    """Whether this version of the toolkit (empty: the newest) keeps the CDI specification fresh by itself."""
    return not toolkit or version(toolkit) >= REFRESHES_CDI


def boot_unit(programs: Sequence[str], units: Mapping[str, str]) -> str:
    """The text of the unit that makes device nodes and links before Docker starts; empty when there is no program.

    It also describes the cards anew, unless the toolkit does: a driver may have been updated since, and the numbers of
    the device nodes are not the same at every boot.
    """
    commands = [argv for program, argv in BOOT_COMMANDS if program in programs]
    if CTK in programs and CDI_REFRESH not in units:
        commands.append(CDI_GENERATE)
    if not commands:
        return ""
    # A failing program must not keep the engine down: without it the first container makes the nodes.
    lines = "\n".join(f"ExecStart=-/usr/bin/env {' '.join(argv)}" for argv in commands)
    return f"""# Written by modelfleet.inference, role nvidia_runtime.
[Unit]
Description=Device nodes of the NVIDIA cards before containers start
Before=docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
{lines}

[Install]
WantedBy=multi-user.target
"""


def daemon_settings(mode: str, engine: EngineFacts) -> dict[str, Any]:
    """What daemon.json has to say so that containers get their cards in this way."""
    if mode in ("nvidia", "runtime"):
        return {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
    if mode == "cdi" and not engine.cdi_dirs:
        return {"features": {"cdi": True}}
    return {}


def card_sets(stacks: Sequence[Mapping[str, Any]], indexes: Sequence[int]) -> list[tuple[int, ...]]:
    """The sets of cards that stacks are given, each once; every card by itself when no stack names any."""
    sets = [tuple(sorted(int(index) for index in stack.get("gpus") or ())) for stack in stacks]
    return list(dict.fromkeys(one for one in sets if one and set(one) <= set(indexes))) or [(one,) for one in indexes]


def card_options(mode: str, indexes: Sequence[int], uuids: Sequence[str]) -> list[str]:
    """The options of `docker run` that give these cards, in the way that Compose gives them to a stack."""
    if mode == "cdi":
        return [f"--device=nvidia.com/gpu={index}" for index in indexes]
    if mode == "runtime":
        return ["--runtime=nvidia", f"--env=NVIDIA_VISIBLE_DEVICES={','.join(uuids)}"]
    return [f'--gpus="device={",".join(uuids)}"']
