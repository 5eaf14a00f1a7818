# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written for a unit and said to systemctl, which is a script here. Real systemd: molecule shared_gpu."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import systemd
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import units

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {folder}/said
case "$*" in
*NeedDaemonReload*) cat {folder}/reload 2>/dev/null || echo no ;;
*ActiveState*) printf 'ActiveState=active\\nResult=success\\nUnitFileState=enabled\\nExecMainStatus=0\\n'
  printf '\\nActiveState=failed\\nResult=exit-code\\nUnitFileState=enabled\\nExecMainStatus=3\\n' ;;
esac
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: Any) -> Path:
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(units, "UNIT_DIRECTORY", str(tmp_path / "units"))
    monkeypatch.setattr(units, "RUNNER", str(tmp_path / "lib" / "stack-runner"))
    return tmp_path


def said(host: Path) -> list[str]:
    words = (host / "said").read_text().splitlines()
    (host / "said").unlink()
    return [line for line in words if not line.startswith("show")]


def test_a_new_unit_is_enabled_and_started_without_a_reload(host: Path) -> None:
    systemd.adopt("one", str(host / "one"), "[Unit]\n")
    assert (host / "units" / "modelfleet-one.service").read_text() == "[Unit]\n"
    for target in units.WANTED_BY:
        link = host / "units" / f"{target}.wants" / "modelfleet-one.service"
        assert link.resolve() == host / "units" / "modelfleet-one.service"
    assert said(host) == ["reset-failed modelfleet-one.service", "--no-block start modelfleet-one.service"]
    runner = Path(units.RUNNER)
    assert runner.read_text().startswith("#!/")
    compile(runner.read_text(), "stack-runner", "exec")
    assert os.access(runner, os.X_OK)
    written = runner.stat().st_mtime_ns
    systemd.adopt("one", str(host / "one"), "[Unit]\n")
    assert runner.stat().st_mtime_ns == written


def test_systemd_is_reloaded_only_when_it_has_read_another_text(host: Path) -> None:
    (host / "reload").write_text("yes\n")
    systemd.adopt("one", str(host / "one"), "[Unit]\nAfter=x\n")
    assert said(host)[0] == "daemon-reload"


def test_a_stack_that_is_adopted_was_never_stopped_and_never_died(host: Path) -> None:
    state = host / "one" / ".modelfleet"
    state.mkdir(parents=True)
    for name in (units.BY_HAND, units.LAST_FAILURE, "deaths.json", "receipt.json"):
        (state / name).write_text("{}")
    systemd.adopt("one", str(host / "one"), "[Unit]\n")
    assert [path.name for path in state.iterdir()] == ["receipt.json"]


def test_all_units_are_looked_at_with_one_question(host: Path) -> None:
    for name in ("one", "two"):
        systemd.adopt(name, str(host / name), "[Unit]\n")
    (host / "two" / ".modelfleet").mkdir(parents=True)
    (host / "two" / ".modelfleet" / units.LAST_FAILURE).write_text('{"reason": "it died", "time": "noon"}')
    (host / "said").unlink()
    names = ["one", "two", "three"]
    found = systemd.look(names, [str(host / name) for name in names])
    assert len((host / "said").read_text().splitlines()) == 1
    assert (found["one"].active, found["one"].enabled, found["one"].runner_current) == ("active", "enabled", True)
    assert found["two"].state == "crash fuse has blown, stays down: it died at noon"
    assert found["three"].text == ""
    assert systemd.stacks() == ["one", "two"]


def test_what_is_removed_leaves_nothing(host: Path) -> None:
    systemd.adopt("one", str(host / "one"), "[Unit]\n")
    said(host)
    systemd.remove("one")
    assert [path for path in (host / "units").rglob("*") if not path.is_dir()] == []
    assert "stop modelfleet-one.service" in said(host)
    systemd.stop("one")  # there is none: nothing to say to systemd
    assert not (host / "said").exists()
