# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""drift.yml where no host answers: what it says, what it writes, and the exit status. And the roles' own arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.modelfleet.inference.plugins.plugin_utils import role_arguments

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "sha256:" + "4" * 64
VARIABLES: dict[str, Any] = {
    # Nobody listens on this port.
    "ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_connection": "ssh",
    "fleet_images": {"v": {"repository": "vllm/vllm-openai", "digest": DIGEST, "engine": "0.32.0"}},
    "fleet_models": {"talker": {"source": "lab/talker", "task": "chat", "image": "v", "args": {"max_model_len": 4096}}},
    "fleet_gpus": [{"index": 0, "memory": "97887 MiB"}],
    "fleet_stacks": [{"name": "one", "model": "talker", "gpus": [0], "port": 8001, "gpu_memory_utilization": 0.3}],
}  # fmt: skip


def drift(folder: Path, *arguments: str, **changes: Any) -> tuple[int, str, dict[str, Any]]:
    inventory = folder / "hosts.json"
    hosts = {"gpu_hosts": {"hosts": {"h": {**VARIABLES, **changes}}}}
    inventory.write_text(json.dumps({"all": {"children": hosts}}))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), "playbooks/drift.yml",
         "-e", f"drift_report_dir={folder}/report", *arguments],
        cwd=ROOT, env={**environment, "ANSIBLE_NOCOLOR": "1"}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    report = json.loads((folder / "report" / "drift.json").read_text())
    return done.returncode, done.stdout + done.stderr, report


@pytest.mark.parametrize("arguments", [(), ("-e", "drift_fail=false"), ("--check",)])
def test_a_host_that_cannot_be_reached_is_no_drift(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    status, said, report = drift(tmp_path, *arguments)
    assert status == 4, said
    host = report["hosts"]["h"]
    assert (report["status"], host["status"], host["differences"]) == ("unknown", "unknown", [])
    assert [one["code"] for one in host["trouble"]] == ["unreachable"]
    # The map shows all the same what the inventory wants there.
    assert [stack["name"] for stack in host["stacks"]] == ["one"]
    assert [card["stacks"][0]["share"] for card in host["cards"]] == [0.3]
    assert "h: could not look at everything" in said
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["drift.html", "drift.json", "drift.xml"]


def test_an_inventory_that_is_refused_is_no_drift_either(tmp_path: Path) -> None:
    status, said, report = drift(tmp_path, fleet_stacks=[{**VARIABLES["fleet_stacks"][0], "model": "talkr"}])
    assert status == 4, said
    assert report["hosts"]["h"]["trouble"][0]["place"].startswith("host_vars of h: fleet_stacks[0].model")


def arguments(role: str, module: str, **variables: Any) -> dict[str, Any]:
    there = {"inventory_hostname": "h", "groups": {"gpu_hosts": ["h"]}, **variables}
    return role_arguments.role_arguments(
        role, f"modelfleet.inference.{module}", Templar(loader=DataLoader(), variables=there), there
    )


def test_the_roles_arguments_are_their_defaults_beaten_by_the_host() -> None:
    assert arguments("vllm_stack", "rollout")["settings"]["root"] == "/opt/docker/compose"
    assert arguments("vllm_stack", "rollout", vllm_stack_root="/srv")["settings"]["root"] == "/srv"
    assert arguments("container_engine", "host_info")["engine"]["manage"] is True
    # A default that is a template of another role's variable.
    assert arguments("nvidia_runtime", "host_info", vllm_stack_gpu_mode="cdi")["nvidia"]["mode"] == "cdi"
    assert arguments("litellm_gateway", "litellm_gateway")["gpu_hosts"] == ["h"]


@pytest.mark.parametrize(
    ("role", "module"),
    [
        ("container_engine", "host_info"),
        ("container_engine", "container_engine_config"),
        ("nvidia_runtime", "host_info"),
        ("vllm_stack", "rollout"),
        ("litellm_gateway", "litellm_gateway"),
    ],
)
def test_every_role_still_has_the_task_that_is_read(role: str, module: str) -> None:
    assert arguments(role, module)


def test_a_role_without_the_task_is_an_error() -> None:
    with pytest.raises(ValueError, match="vllm_stack has no task"):
        arguments("vllm_stack", "nothing")
