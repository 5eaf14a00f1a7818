# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/adopt.yml with a Compose file, as a person runs it. No host exists: whoever connected would fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ansible")

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "fixtures" / "compose"


def adopt(case: Path, *more: str, status: int = 0) -> str:
    playbook = [sys.executable, "-m", "ansible", "playbook", "playbooks/adopt.yml", "-i", "nowhere.invalid,"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [*playbook, "-e", f"compose_file={case}/compose.yaml", *more],
        cwd=ROOT,
        env={**clean, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


SEVERAL = """
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - modelfleet.inference.adopt: {{compose_file: {file}, to: "{to}"}}
"""


def test_several_hosts_do_not_write_one_file(tmp_path: Path) -> None:
    file, play = CASES / "list_command" / "compose.yaml", tmp_path / "play.yml"
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "one,two,", str(play)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    for to, status in ((tmp_path / "all.yml", 2), (tmp_path / "{{ inventory_hostname }}.yml", 0)):
        play.write_text(SEVERAL.format(file=file, to=to), encoding="utf-8")
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.yml", "play.yml", "two.yml"]


def changed(output: str) -> int:
    return int(re.search(r"^localhost .*changed=(\d+)", output, re.MULTILINE)[1])  # type: ignore[index]


def test_the_file_is_written_once_and_never_over_somebody_elses(tmp_path: Path) -> None:
    case = tmp_path / "env_files"
    shutil.copytree(CASES / "env_files", case)
    to = tmp_path / "host_vars" / "ana-ml2" / "fleet.yml"
    options = ("-e", f"adopt_to={to}", "--diff")

    output = adopt(case, *options, "--check")
    assert "+fleet_models:" in output
    assert not to.exists()
    assert changed(adopt(case, *options)) == 1
    written = yaml.safe_load(to.read_text(encoding="utf-8"))
    assert written["fleet_stacks"][0]["secrets"] == {"HF_TOKEN": "{{ vault_hf_token }}"}
    assert changed(adopt(case, *options)) == 0

    to.write_text("# mine\n", encoding="utf-8")
    assert "did not come from here" in adopt(case, *options, status=2)
    assert to.read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.parametrize("case", ["gateway", "secrets_in_the_environment"])
def test_no_secret_is_shown_however_much_is_asked_for(case: str) -> None:
    output = adopt(CASES / case, "-vvv")
    assert "notareal" not in output
    assert "{{ vault_" in output


def test_relative_paths_are_those_of_the_host_once_it_is_said_where(tmp_path: Path) -> None:
    output = adopt(CASES / "volume_forms")
    assert "./templates is below the folder of the file on its host" in output
    output = adopt(CASES / "volume_forms", "-e", "compose_directory=/srv/local")
    assert "- /srv/local/templates:/templates" in output
    assert "./templates is below" not in output
    # What it names is looked for beside it here.
    output = adopt(CASES / "config_file", "-e", "compose_directory=/srv/local")
    assert "gpu_memory_utilization: 0.45" in output


def test_a_file_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services:\n  a:\n    image: x${\n", encoding="utf-8")
    assert "compose.yaml:3: services.a.image has ${ without its }." in adopt(tmp_path, status=2)
    assert "cannot be read" in adopt(tmp_path / "gone", status=2)
