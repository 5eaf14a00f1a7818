# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that was bare and serves now: what a run may do to it. At the end it is made bare again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PORTS = (8003, 8004)
STARTED = "docker ps -q --no-trunc | sort | xargs docker inspect -f '{{.Id}} {{.State.StartedAt}}'"
DAEMON = "cut -d' ' -f22 /proc/$(cat /run/docker.pid)/stat"


def run(*arguments, **variables):
    """site.yml, or another playbook named first, on the bare host; (status, output)."""
    book = arguments[0] if arguments and arguments[0].endswith(".yml") else "playbooks/site.yml"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MOLECULE_"))}
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", "molecule/host/hosts.yml", book),
            *(word for word in arguments if word != book),
            *("-e", json.dumps(variables)),
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
    return done.returncode, done.stdout


def changed(output):
    return int(re.search(r"^ana-bare .*changed=(\d+)", output, re.MULTILINE).group(1))


def said(output):
    """Without the line breaks of YAML output."""
    return " ".join(output.split())


def settings(host):
    return json.loads(host.file("/etc/docker/daemon.json").content_string)


def test_what_somebody_wrote_is_still_there(host):
    have = settings(host)
    assert have["labels"] == ["rack=12"]
    assert have["log-opts"] == {"max-size": "10m"}
    assert have["insecure-registries"] == ["127.0.0.1:5000", "registry:5000"]
    assert have["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    assert host.file("/etc/docker/daemon.json").mode == 0o640


def test_the_pinned_version_is_installed_and_held(host):
    assert host.package("nvidia-container-toolkit").version == "1.17.8-1"
    assert "Candidate: 1.17.8-1" in host.check_output("apt-cache policy nvidia-container-toolkit")


def test_cards_are_described_and_their_nodes_come_back_at_boot(host):
    assert json.loads(host.file("/etc/cdi/nvidia.yaml").content_string)["kind"] == "nvidia.com/gpu"
    assert host.file("/dev/char/195:0").is_symlink
    assert host.check_output("systemctl is-enabled modelfleet-gpu-nodes.service") == "enabled"


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["again", "check"])
def test_nothing_changes(host, arguments):
    before = host.check_output(STARTED), host.check_output(DAEMON)
    status, output = run(*arguments)
    assert (status, changed(output)) == (0, 0), output
    assert (host.check_output(STARTED), host.check_output(DAEMON)) == before


@pytest.mark.parametrize("mode", ["nvidia", "runtime"])
def test_containers_see_exactly_their_cards(host, mode):
    status, output = run("--tags", "nvidia_runtime", nvidia_runtime_gate="always", nvidia_runtime_gpu_mode=mode)
    assert status == 0, output
    assert "nothing proves" not in output
    assert host.check_output("docker ps -aq --filter status=exited") == ""


def test_a_restart_waits_while_models_serve(host):
    before = host.check_output(STARTED), host.check_output(DAEMON)
    wanted = {"log-driver": "local", "max-concurrent-downloads": 5}
    for changes in (1, 0):
        foreseen = run("--check", "--tags", "container_engine", container_engine_config=wanted)[1]
        status, output = run("--tags", "container_engine", container_engine_config=wanted)
        assert (status, changed(foreseen), changed(output)) == (0, changes, changes), output
        assert 'log-driver: not set -> "local"' in said(output)
    assert (host.check_output(STARTED), host.check_output(DAEMON)) == before
    # What a reload can do was done, the rest is not even in the file: a restart by somebody else changes nothing.
    assert settings(host)["max-concurrent-downloads"] == 5
    assert "log-driver" not in settings(host)


def test_a_file_that_docker_refuses_is_not_put_in_place(host):
    before = settings(host)
    status, output = run("--tags", "container_engine", container_engine_config={"no-such-key": 1})
    assert status == 0, output  # it would need a restart, and so waits
    status, output = run(
        "--tags", "container_engine", container_engine_config={"no-such-key": 1}, container_engine_restart="allowed"
    )
    assert status != 0
    assert "dockerd refuses the new /etc/docker/daemon.json" in said(output)
    assert settings(host) == before


def test_a_restart_that_is_allowed_ends_with_models_that_answer(host):
    daemon = host.check_output(DAEMON)
    status, output = run(container_engine_config={"log-driver": "local"}, container_engine_restart="allowed")
    assert status == 0, output
    assert host.check_output(DAEMON) != daemon
    assert host.check_output("docker info --format '{{.LoggingDriver}}'") == "local"
    for port in PORTS:
        assert host.run(f"curl -fsS --max-time 5 http://127.0.0.1:{port}/health").rc == 0


def test_cdi(host):
    status, output = run(
        "--tags",
        "nvidia_runtime",
        nvidia_runtime_gate="always",
        nvidia_runtime_gpu_mode="cdi",
        nvidia_runtime_restart="allowed",
    )
    assert status == 0, output
    assert settings(host)["features"] == {"cdi": True}
    assert run("playbooks/site.yml")[0] == 0  # the stacks stood still for that


@pytest.fixture(scope="module")
def bare():
    status, output = run("molecule/host/prepare.yml")
    assert status == 0, output


@pytest.mark.usefixtures("bare")
class TestBare:
    def test_a_check_foresees_the_whole_installation(self, host):
        listing = (
            "dpkg -l | sha256sum; find /etc /opt /usr/bin /run/modelfleet -newermt '-1 hour' -type f 2>/dev/null | sort"
        )
        before = host.check_output(listing)
        status, output = run("--check", "--diff")
        assert status == 0, output
        assert "Would install docker.io, docker-cli, docker-compose, python3-docker" in said(output)
        assert "Would install nvidia-container-toolkit=1.17.8*" in said(output)
        assert changed(output) == 5
        assert host.check_output(listing) == before

    def test_not_managed_it_is_explained(self, host):
        status, output = run("--tags", "container_engine", container_engine_manage=False)
        assert status != 0
        for code in ("container_engine_missing", "compose_missing", "docker_sdk_missing"):
            assert f"[{code}]" in said(output)
        status, output = run("--tags", "nvidia_runtime", nvidia_runtime_manage=False)
        assert status != 0
        assert "[nvidia_runtime_missing]" in said(output)
        assert not host.file("/usr/bin/nvidia-ctk").exists

    def test_a_wrong_key_is_refused_before_anything_is_written(self, host):
        status, output = run("--tags", "nvidia_runtime", nvidia_runtime_key_url="http://127.0.0.1:8099/gpgkey-wrong")
        assert status != 0
        assert "[package_key_wrong]" in said(output)
        assert not host.file("/etc/apt/keyrings/nvidia-container-toolkit.asc").exists

    def test_a_key_that_did_not_sign_is_refused_by_apt(self, host):
        """Somebody trusts the wrong fingerprint: apt itself checks the signature."""
        folder = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet") / "hosts" / "ana-bare" / "apt"
        status, _output = run(
            "--tags",
            "nvidia_runtime",
            nvidia_runtime_key_url="http://127.0.0.1:8099/gpgkey-wrong",
            nvidia_runtime_fingerprints=[(folder / "fingerprint-wrong").read_text().strip()],
        )
        assert status != 0
        assert not host.package("nvidia-container-toolkit").is_installed
