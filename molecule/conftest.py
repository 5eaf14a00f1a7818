# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenarios' tests share: running a playbook as a person does, and a digest of a whole host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import pytest

ROOT = Path(__file__).resolve().parent.parent
# ansible-playbook of the newest ansible-core, and of the oldest that is tested, where this machine has a Python for it.
NEWEST = Path(sys.executable).parent / "ansible-playbook"
OLDEST = ROOT / ".venv-2.19" / "bin" / "ansible-playbook"
# Files with mode and content, containers with image and start time, images, networks, volumes: whatever a check run
# could leave behind. Not what engines write by themselves (logs, caches; runc at each health check), nor the times of
# folders, in which Ansible's own temporary files come and go, nor when Docker last started by itself what always ends.
DIGEST = r"""
cd /
find etc/docker etc/modelfleet etc/systemd/system etc/apt opt/docker root/.ansible tmp run/modelfleet -xdev \
  ! -path '*/cache/*' ! -name 'runc-process*' \
  \( -type d -printf '%p %m\n' -o -printf '%p %m %s %Ts %l\n' \) 2>/dev/null | sort
find opt/docker etc/docker -xdev -type f -exec sha256sum {} + 2>/dev/null | sort
docker ps -aq --no-trunc | sort |
  xargs -r docker inspect --format '{{.Id}} {{.Image}} {{if .RestartCount}}restarts{{else}}{{.State.StartedAt}}{{end}}'
docker image ls --no-trunc -q | sort -u
iptables-save -t raw 2>/dev/null | grep '^-A'
docker network ls -q --no-trunc | sort
docker volume ls -q | sort
"""


@dataclass(frozen=True)
class Run:
    status: int
    output: str

    def recap(self, host: str) -> dict[str, int]:
        """The counters of one host: ok, changed, unreachable, failed, skipped."""
        found = re.search(rf"^{re.escape(host)}\s*: (ok=.*)$", self.output, re.MULTILINE)
        assert found, f"no recap for {host} in:\n{self.output}"
        return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", found.group(1))}

    @property
    def said(self) -> str:
        """The output without the line breaks of YAML."""
        return " ".join(self.output.split())


@pytest.fixture(scope="session")
def playbook() -> Callable[..., Run]:
    """playbook("site.yml", "--check", "-l", "ana-ml2") in the lab; only a person's own environment goes in.

    Keywords are extra variables. The program may be another one than the newest.
    """

    def run(
        name: str, *arguments: str, inventory: str = "inventories/lab", program: Path = NEWEST, **variables: object
    ) -> Run:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MOLECULE_"))}
        done = subprocess.run(
            [
                *(str(program), "-i", inventory, name, *arguments),
                *(("-e", json.dumps(variables)) if variables else ()),
            ],
            cwd=ROOT,
            env={**environment, "ANSIBLE_NOCOLOR": "1"},
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        return Run(done.returncode, done.stdout)

    return run


@pytest.fixture(
    params=[NEWEST, *([OLDEST] if OLDEST.exists() else [])], ids=lambda path: path.parent.parent.name.lstrip(".")
)
def program(request: pytest.FixtureRequest) -> Path:
    """What plays the playbook: once for each ansible-core that is tested."""
    return request.param


@pytest.fixture
def digest(host) -> Callable[[], str]:
    """All that a run could have changed on the host, as text: a difference shows what it was."""
    return lambda: host.check_output(DIGEST)
