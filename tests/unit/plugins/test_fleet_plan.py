# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/plan.yml as a person runs it. None of the hosts exists: whoever tried to connect would fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("ansible")

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "sha256:49211ab2" + "0123456789abcdef" * 3 + "01234567"
DEPLOYMENT = """
- hosts: gpu_hosts:gateways
  gather_facts: false
  tasks:
    - modelfleet.inference.fleet_plan:
        gpu_hosts: "{{ groups['gpu_hosts'] }}"
        gateways: "{{ groups['gateways'] }}"
        show: false
      run_once: true
"""


@pytest.fixture
def production(tmp_path: Path) -> Path:
    """A copy of the production inventory with a whole digest in it."""
    shutil.copytree(ROOT / "inventories" / "production", tmp_path / "inventory")
    images = tmp_path / "inventory" / "group_vars" / "all" / "fleet_images.yml"
    images.write_text(images.read_text(encoding="utf-8").replace("sha256:49211ab2", DIGEST), encoding="utf-8")
    return tmp_path / "inventory"


def run(inventory: Path, playbook: Path, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), str(playbook), *more]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "LITELLM_"))}
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**clean, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def report_of(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def errors_of(report: Any) -> list[str]:
    return [finding["code"] for finding in report["findings"] if finding["severity"] == "error"]


def test_production_is_refused_for_its_incomplete_digest(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run(ROOT / "inventories" / "production", ROOT / "playbooks" / "plan.yml", "-e", f"report_path={report}")
    assert done.returncode != 0
    assert errors_of(report_of(report)) == ["digest_incomplete"]
    assert "docker buildx imagetools inspect vllm/vllm-openai:nightly" in done.stderr
    assert "kept free: hot-reloading large models" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_with_a_whole_digest_it_is_planned(production: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    more = ("-e", f"report_path={report}", "-l", "ana-ml2", "--check")
    done = run(production, ROOT / "playbooks" / "plan.yml", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = report_of(report)
    assert errors_of(plan) == []
    # Whoever is in --limit, the whole fleet is planned.
    assert sorted(plan["hosts"]) == ["ana-blackwell", "ana-docker", "ana-ml2"]
    assert "changed=0" in done.stdout
    assert "85% planned" in done.stderr
    assert "85% planned" not in done.stdout


def test_a_deployment_is_refused_while_the_key_is_a_placeholder(production: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "deploy.yml"
    playbook.write_text(DEPLOYMENT, encoding="utf-8")
    done = run(production, playbook)
    assert done.returncode != 0
    assert "gateway_master_key_placeholder" in done.stderr
    key = "sk-2f9c61d07be84a53"
    done = run(production, playbook, LITELLM_MASTER_KEY=key)
    assert done.returncode == 0, done.stdout + done.stderr
    assert key not in done.stdout + done.stderr


def test_what_cannot_be_templated_is_a_finding_with_its_place(production: Path, tmp_path: Path) -> None:
    (production / "group_vars" / "gateways" / "vault.yml").unlink()
    fleet = production / "host_vars" / "ana-ml2" / "fleet.yml"
    variables = yaml.safe_load(fleet.read_text(encoding="utf-8"))
    variables["fleet_stacks"][1]["port"] = "{{ no_such_port }}"
    fleet.write_text(yaml.safe_dump(variables), encoding="utf-8")
    report = tmp_path / "report.json"
    done = run(production, ROOT / "playbooks" / "plan.yml", "-e", f"report_path={report}")
    assert done.returncode != 0
    found = {finding["place"]: finding for finding in report_of(report)["findings"]}
    assert sorted(found) == [
        "variables of ana-docker: fleet_gateway",
        "variables of ana-ml2: fleet_stacks",
    ]
    assert "'no_such_port' is undefined" in found["variables of ana-ml2: fleet_stacks"]["problem"]
    assert "'vault_litellm_master_key' is undefined" in found["variables of ana-docker: fleet_gateway"]["problem"]
