# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check sees of an engine that is there in part. The programs are real files that say what Docker would."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import docker_engine


@pytest.mark.parametrize(
    ("daemon", "sdk", "says", "seen"),
    [
        (False, False, None, "NoEngine"),
        (False, True, "exit 1", "NoEngine"),  # only the command line is there
        (True, True, "exit 1", "Engine"),
        (True, False, "exit 0", "NoEngine"),  # installed by somebody, and used for nothing
        (True, False, "[ $1 = image ] || echo 4f2a", "Unseen"),
        (True, False, "[ $1 = ps ] || echo 4f2a", "Unseen"),
        (True, False, "exit 1", "Unseen"),  # it stands still
        (True, False, None, "Unseen"),
    ],
)
def test_what_a_check_sees_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: bool, sdk: bool, says: Optional[str], seen: str
) -> None:
    for name, script in (("dockerd", "exit 0" if daemon else None), ("docker", says)):
        if script is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(docker_engine, "SYSTEM_PATHS", ())
    monkeypatch.setattr(docker_engine, "MISSING", None if sdk else "No module named 'docker'")
    if seen == "Unseen":
        with pytest.raises(docker_engine.Unseen, match="before a run has installed the Docker SDK for Python"):
            docker_engine.to_check()
    else:
        assert type(docker_engine.to_check()).__name__ == seen
