# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace files on the controller: all of them, or none."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping


def replace(contents: Mapping[str, str]) -> None:
    """All of these files or none: each is written beside its place first, then they are put in place."""
    ready: list[tuple[str, str]] = []
    try:
        for path, text in contents.items():
            target = os.path.realpath(path)  # a link stays one
            os.makedirs(os.path.dirname(target), exist_ok=True)
            descriptor, beside = tempfile.mkstemp(prefix=".modelfleet-", dir=os.path.dirname(target))
            ready.append((beside, target))
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            try:
                there = os.stat(target)
            except FileNotFoundError:
                os.chmod(beside, 0o644)
                continue
            os.chmod(beside, there.st_mode & 0o7777)
            with contextlib.suppress(PermissionError):
                os.chown(beside, there.st_uid, there.st_gid)
        while ready:
            os.replace(*ready[-1])
            ready.pop()
    finally:
        for beside, _target in ready:
            with contextlib.suppress(OSError):
                os.unlink(beside)
