# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs ``hub_fetch`` in a container of the stack's image and passes on what it says."""

from __future__ import annotations

import contextlib
import json
import pkgutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Callable

from ..fleet.weights import Wanted

if TYPE_CHECKING:
    from . import hub_fetch  # noqa: F401  Never imported here, but so Ansible brings its text along.

SILENT_SECONDS = 300  # the program speaks every two seconds; the hub's first answer may take longer


def fetch(one: Wanted, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Bring the weights into the cache; its last word, whose ``event`` is done, no_space, no_library or failed."""
    name = f"modelfleet-fetch-{one.stacks[0]}"
    subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)  # of a run that was killed
    program = (pkgutil.get_data(__package__, "hub_fetch.py") or b"").decode()
    options = [
        *("--rm", "--interactive", "--name", name, "--label", "modelfleet.fetch", "--pull", "never"),
        # Images of engines say NVIDIA_VISIBLE_DEVICES=all; a download wants no card.
        *("--entrypoint", "python3", "--env", "NVIDIA_VISIBLE_DEVICES=void", "--volume", f"{one.cache}:{one.home}"),
    ]
    for option, value in (("--network", one.network), ("--user", one.user)):
        options += [option, value] if value else []
    process = subprocess.Popen(
        ["docker", "run", *options, one.image, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    words: Any = process.stdin
    lines: Any = process.stdout
    last: dict[str, Any] = {}
    other: list[str] = []
    watch = _Watch(process)
    try:
        with contextlib.suppress(BrokenPipeError):  # it ended before it read; its own words say why
            json.dump({"repo": one.repo, "revision": one.revision, "environment": dict(one.environment)}, words)
            words.close()
        for line in lines:
            watch.alive()
            try:
                last = json.loads(line)
                tell(last)
            except ValueError:
                other.append(line.strip())
    finally:
        watch.end()
        status = process.wait()
        if watch.bitten:
            subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)
    if last.get("event") in ("done", "no_space", "no_library", "failed"):
        return last
    said = " ".join(other)[-500:]
    if watch.bitten:
        said = f"no progress for {SILENT_SECONDS} s"
    elif status == 127 or '"python3"' in said:
        return {"event": "no_library", "text": said}
    return {"event": "failed", "text": said or f"the container ended with status {status}"}


class _Watch:
    """Ends a process that says nothing for too long."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.bitten = False
        self.timer = self._new()

    def _new(self) -> threading.Timer:
        timer = threading.Timer(SILENT_SECONDS, self._bite)
        timer.daemon = True
        timer.start()
        return timer

    def _bite(self) -> None:
        self.bitten = True
        self.process.kill()

    def alive(self) -> None:
        self.timer.cancel()
        self.timer = self._new()

    def end(self) -> None:
        self.timer.cancel()
