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
from typing import Sequence

RUNNER = "/usr/local/lib/modelfleet/stack-runner"
UNIT_DIRECTORY = "/etc/systemd/system"
STOP_SECONDS = 90  # the engine's own stop takes seconds; a hung one is killed by Docker after its grace period


def unit_name(stack: str) -> str:
    return f"modelfleet-{stack}.service"


def unit_path(stack: str) -> str:
    return f"{UNIT_DIRECTORY}/{unit_name(stack)}"


def render(
    stack: str,
    directory: str,
    container: str,
    url: str,
    served_model_name: str,
    gpus: Sequence[int],
    predecessors: Sequence[str],
    start_seconds: int,
    max_restarts: int,
) -> str:
    """The unit's text.

    ``start_seconds`` is the readiness deadline of this stack. ``max_restarts`` is the crash fuse: so many starts
    within the time that as many full deadlines take, and the stack stays down for a person to look at.
    """
    after = ["docker.service", "network-online.target", *(unit_name(name) for name in predecessors)]
    command = [
        *(RUNNER, "--directory", directory, "--container", container, "--url", url),
        *("--model", served_model_name, "--start-seconds", str(start_seconds)),
    ]
    for gpu in gpus:
        command += ["--gpu", str(gpu)]
    where = f" on GPU {', '.join(str(gpu) for gpu in gpus)}" if gpus else ""
    fuse_seconds = (max_restarts + 1) * (start_seconds + STOP_SECONDS)
    return f"""# Written by modelfleet.inference; edit the inventory instead.
[Unit]
Description=Model server {stack}: {served_model_name}{where}
After={" ".join(after)}
Wants=docker.service network-online.target
# A restart of the daemon restarts the stacks, in order.
PartOf=docker.service
# Stopped by hand: stays down until the next run.
ConditionPathExists=!{directory}/.modelfleet/stopped-by-hand
StartLimitIntervalSec={fuse_seconds}
StartLimitBurst={max_restarts + 1}

[Service]
Type=notify
ExecStart={" ".join(_escape(word) for word in command)}
# An engine that dies does so with any exit status, 0 included; the runner turns each into a failure.
Restart=on-failure
RestartSec=2
# Waiting for the GPU's turn and loading both count; the runner's own deadline is the one that speaks.
TimeoutStartSec=infinity
TimeoutStopSec={STOP_SECONDS + 30}
KillMode=mixed

[Install]
WantedBy=multi-user.target docker.service
"""


def _escape(word: str) -> str:
    """systemd takes % and $ for its own; a shell's quoting is understood."""
    return shlex.quote(word).replace("%", "%%").replace("$", "$$")
