# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd unit of a stack: what starts it after a reboot, in the order the GPU needs.

Docker's own restart policy starts every container at once, and Compose's ``depends_on`` does not outlive the daemon.
A unit a stack, ordered after its predecessors on the same GPU and "started" only when the model is ready, keeps the
order at boot, after a restart of the daemon and after a crash.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Sequence

from .rendered import RenderedStack

RUNNER = "/usr/local/lib/modelfleet/stack-runner"
WANTED_BY = ("multi-user.target", "docker.service")
UNIT_DIRECTORY = "/etc/systemd/system"
STOP_SECONDS = 90  # the engine's own stop takes seconds; a hung one is killed by Docker after its grace period
BLOWN = 3  # exit status of the runner when the crash fuse has blown
BY_HAND = "stopped-by-hand"  # files below the stack's .modelfleet that the runner leaves
LAST_FAILURE = "last-failure.json"


@dataclass(frozen=True)
class LiveUnit:
    """A stack's unit on the host, as systemd tells it."""

    text: str = ""  # of the unit's file; empty: there is none
    runner_current: bool = False  # the installed stack-runner is the one of this release
    enabled: str = ""  # systemd's UnitFileState
    active: str = ""  # its ActiveState
    result: str = ""  # its Result and, of the runner, the exit status
    exit_status: int = 0
    stopped_by_hand: str = ""  # since when
    last_failure: str = ""  # what the runner said of the last one, with its time

    @property
    def state(self) -> str:
        """What a person must know of a unit that is not active."""
        if self.stopped_by_hand:
            return f"stopped by hand at {self.stopped_by_hand}"
        why = f": {self.last_failure}" if self.last_failure else ""
        if self.exit_status == BLOWN:
            return f"crash fuse has blown, stays down{why}"
        return f"{self.active} ({self.result}){why}" if self.active == "failed" else self.active


def unit_name(stack: str) -> str:
    return f"modelfleet-{stack}.service"


def unit_path(stack: str) -> str:
    return f"{UNIT_DIRECTORY}/{unit_name(stack)}"


def render(stack: RenderedStack, predecessors: Sequence[str], crash_restarts: int) -> str:
    """The unit's text.

    ``predecessors``: all stacks that come before on any of its GPUs, not the nearest only: systemd waits for a unit
    that is itself starting, and the nearest may be stopped by hand. ``crash_restarts`` is the crash fuse.
    """
    after = ["docker.service", "network-online.target", *(unit_name(name) for name in predecessors)]
    command = [
        *(RUNNER, "--directory", stack.directory, "--container", stack.container, "--url", stack.url),
        *("--model", stack.served_model_name),
        *("--start-seconds", str(stack.timeout_s), "--crash-restarts", str(crash_restarts)),
    ]
    for gpu in stack.gpus:
        command += ["--gpu", str(gpu)]
    where = f" on GPU {', '.join(str(gpu) for gpu in stack.gpus)}" if stack.gpus else ""
    return f"""# Written by modelfleet.inference; edit the inventory instead.
[Unit]
Description=Model server {stack.name}: {stack.served_model_name.replace("%", "%%")}{where}
After={" ".join(after)}
Wants=docker.service network-online.target
# A restart of the daemon restarts the stacks, in order.
PartOf=docker.service
# Stopped by hand: stays down until the next run.
ConditionPathExists=!{stack.directory}/.modelfleet/{BY_HAND}
# systemd counts restarts of the daemon too; the runner counts the engine's deaths only.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={" ".join(_escape(word) for word in command)}
# An engine that dies does so with any exit status, 0 included; the runner turns each into a failure.
Restart=on-failure
RestartSec=2
# The crash fuse: so many deaths that a person has to look.
RestartPreventExitStatus={BLOWN}
# Waiting for the GPU's turn and loading both count; the runner's own deadline is the one that speaks.
TimeoutStartSec=infinity
TimeoutStopSec={STOP_SECONDS + 30}
KillMode=mixed

[Install]
WantedBy={" ".join(WANTED_BY)}
"""


def _escape(word: str) -> str:
    """systemd takes % and $ for its own; a shell's quoting is understood."""
    return shlex.quote(word).replace("%", "%%").replace("$", "$$")
