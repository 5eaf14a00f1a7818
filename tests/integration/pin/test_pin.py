# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/pin.yml against the lab's real registry. Needs a lab that is up (`lab/lab up`).

The images are empty ones, pushed by the lab host and removed from it again: pin.yml must find them without a pull.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAME = os.environ.get("LAB_NAME", "modelfleet")
STATE = ROOT / ".cache" / "lab" / NAME
REPOSITORY = f"registry:5000/pin-test-{NAME}"
PUSH = """
set -e
tar -cf - -T /dev/null | docker import --message '{content}' - {repository}:{tag} >/dev/null
docker push -q {repository}:{tag} >/dev/null
docker image inspect --format '{{{{index .RepoDigests 0}}}}' {repository}:{tag} | cut -d@ -f2
docker rmi {repository}:{tag} >/dev/null
"""
IMAGES = """---
# Which engine, pinned.
fleet_images:
  vllm:                     # the engine
    repository: {repository}
    tag: "nightly"          # for people
    digest: '{old}'   # looked up by hand
    engine: 0.32.0
    watch: re-pin to a release
  new: {{repository: {repository}, tag: v0.33.0}}
"""
BROKEN = """  unknown: {{repository: {repository}, tag: never}}
  unreachable: {{repository: nowhere.invalid:5000/x, tag: v1}}
"""


def ssh(command: str) -> str:
    done = subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), "ana-ml2", "bash -s"],
        input=command, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def push(tag: str, content: str) -> str:
    return ssh(PUSH.format(repository=REPOSITORY, tag=tag, content=content))


def pin(inventory: Path, *more: str, status: int = 0) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}
    playbook = [str(Path(sys.executable).parent / "ansible-playbook"), "playbooks/pin.yml"]
    done = subprocess.run(
        [*playbook, "-i", str(inventory), *more], cwd=ROOT, env={**clean, "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


def changed(output: str) -> int:
    return int(re.search(r"^ana-ml2 .*changed=(\d+)", output, re.MULTILINE)[1])  # type: ignore[index]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    how = {
        "ansible_connection": "ssh",
        "ansible_ssh_common_args": f"-F {STATE}/ssh_config",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    hosts = {"gpu_hosts": {"hosts": {"ana-ml2": how}}, "gateways": {"hosts": {}}}
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"children": hosts}}))
    return tmp_path


def test_a_moved_tag_is_written_where_it_stands_and_nothing_is_pulled(inventory: Path) -> None:
    first, release = push("nightly", "first"), push("v0.33.0", "release")
    push("v0.34.0rc1", "no release yet")
    file = inventory / "group_vars" / "all" / "fleet_images.yml"
    text = IMAGES.format(repository=REPOSITORY, old="sha256:49211ab2")
    file.write_text(text)
    images = ssh("docker images --no-trunc --digests | sort")

    output = pin(inventory, "--check", "--diff")
    assert changed(output) == 1
    assert f"+    digest: '{first}'   # looked up by hand" in output
    assert re.search(rf"new  {first}  created 20\d\d-", output)
    assert "the tag has moved; newer than 0.32.0: v0.33.0\n" in output
    assert file.read_text() == text

    assert changed(pin(inventory)) == 1
    pinned = text.replace("sha256:49211ab2", first).replace("v0.33.0}", f'v0.33.0, digest: "{release}"}}')
    assert file.read_text() == pinned
    assert changed(pin(inventory, "--diff")) == 0

    second = push("nightly", "second")
    assert second != first
    output = pin(inventory, "-e", "only=vllm")
    assert f"old  {first}" in output
    assert file.read_text() == pinned.replace(first, second)
    assert ssh("docker images --no-trunc --digests | sort") == images


def test_one_error_for_each_image_that_cannot_be_resolved_and_nothing_half_written(inventory: Path) -> None:
    moved = push("nightly", "third")
    push("v0.33.0", "release")
    file = inventory / "group_vars" / "all" / "fleet_images.yml"
    text = (IMAGES + BROKEN).format(repository=REPOSITORY, old="sha256:49211ab2")
    file.write_text(text)
    output = pin(inventory, status=2)
    assert f"new  {moved}" in output
    assert f"unknown: {REPOSITORY}:never was not resolved: manifest unknown" in output
    assert "unreachable: nowhere.invalid:5000/x:v1 was not resolved:" in output
    assert "Nothing was written." in output
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("digest", "why"), [('"{{ somewhere }}"', "it is a template: {{ somewhere }}"), ("!vault |\n{}", "Ansible Vault")]
)
def test_a_digest_from_elsewhere_is_refused_with_its_place(inventory: Path, digest: str, why: str) -> None:
    push("nightly", "first")
    more = []
    if "{}" in digest:
        (inventory / "word").write_text("secret")
        command = [str(Path(sys.executable).parent / "ansible-vault"), "encrypt_string", "sha256:1"]
        told = subprocess.run(
            [*command, "--vault-password-file", str(inventory / "word")], capture_output=True, text=True, check=True
        )
        digest = told.stdout.strip()
        more = ["--vault-password-file", str(inventory / "word")]
    (inventory / "group_vars" / "all" / "x.yml").write_text("somewhere: sha256:1\n")
    file = inventory / "group_vars" / "all" / "fleet_images.yml"
    file.write_text(f"fleet_images:\n  vllm:\n    repository: {REPOSITORY}\n    tag: nightly\n    digest: {digest}\n")
    text = file.read_text()
    output = " ".join(pin(inventory, *more, status=2).split())
    assert f"{os.path.relpath(file, ROOT)}:5: the digest of vllm is not written: " in output
    assert why in output
    assert file.read_text() == text
