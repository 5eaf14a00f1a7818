# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a process is, and which cards it sees, by what the kernel says of it."""

from __future__ import annotations

import os
import re
from typing import Optional

_NODE = re.compile(r"nvidia\d+")


def container_of(pid: int) -> str:
    """The id of the container a process runs in, from its control group; empty when it is in none."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="ascii", errors="replace") as stream:
            match = re.search(r"[0-9a-f]{64}", stream.read())
    except OSError:
        return ""
    return match.group(0) if match else ""


def gpu_nodes(pid: int) -> Optional[int]:
    """How many cards' device nodes a process has in its ``/dev``; None where the host has none itself.

    Compared with what the container was given: a card that the container lost answers no new process in it, while the
    engine that has it open already goes on.
    """
    try:
        if not any(map(_NODE.fullmatch, os.listdir("/dev"))):
            return None
        return sum(1 for name in os.listdir(f"/proc/{pid}/root/dev") if _NODE.fullmatch(name))
    except OSError:
        return None
