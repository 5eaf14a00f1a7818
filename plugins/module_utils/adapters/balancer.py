# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells a running HAProxy, over its admin socket, which instance gets requests."""

from __future__ import annotations

import socket

TIMEOUT_SECONDS = 5.0
RUNNING = "2"  # srv_op_state


def say(path: str, command: str) -> str:
    """What HAProxy answers; an empty text where none is there."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(TIMEOUT_SECONDS)
            line.connect(path)
            line.sendall(f"{command}\n".encode())
            answer = b""
            while part := line.recv(65536):
                answer += part
    except OSError:
        return ""
    return answer.decode(errors="replace")


def serving(path: str, backend: str) -> set[str]:
    """Servers of this backend that are up and get requests."""
    up = set()
    for line in say(path, f"show servers state {backend}").splitlines():
        words = line.split()
        # be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state …
        if len(words) > 6 and words[1] == backend and (words[5], words[6]) == (RUNNING, "0"):
            up.add(words[3])
    return up
