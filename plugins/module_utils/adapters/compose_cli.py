# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``docker compose``, called as a person calls it: in the folder of the stack, without further files or names.

So a person's ``cd FOLDER && docker compose up -d`` finds what we made and has nothing to change. It acts only; to
look, we ask the daemon (``--dry-run`` is reported to touch real containers).
"""

from __future__ import annotations

import os
from typing import Sequence

from . import command
from .command import Outcome


def up(directory: str, *, timeout: float = 300, service: str = "") -> Outcome:
    """Create what is missing and start it, or only this service. Images are there before: it never pulls."""
    only = ["--no-deps", service] if service else []
    return run(directory, ["up", "--detach", "--pull", "never", "--no-build", "--quiet-pull", *only], timeout)


def down(directory: str, *, timeout: float = 300) -> Outcome:
    """Remove containers and the project's network; volumes stay."""
    return run(directory, ["down"], timeout)


def run(directory: str, arguments: Sequence[str], timeout: float) -> Outcome:
    """One ``docker compose`` in that folder. A program that is missing or hangs is an outcome, not an exception."""
    # COMPOSE_FILE or COMPOSE_PROJECT_NAME of whoever runs us would make it another project than the folder's.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COMPOSE_")}
    done = command.run(
        ["docker", "compose", "--ansi", "never", "--progress", "plain", *arguments],
        timeout,
        together=True,
        folder=directory,
        environment=environment,
    )
    if done.status == command.MISSING and "docker is" in done.output:
        return Outcome(done.status, "docker is not there. Is it installed, with its compose plugin?")
    if done.status and "compose" in done.output and "is not a docker command" in done.output:
        return Outcome(command.MISSING, "docker compose: the Docker command line's compose plugin is not installed.")
    return done
