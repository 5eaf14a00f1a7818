# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are bare, and serve later: what a run foresees, does, refuses and leaves alone. The order matters."""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import testinfra

LAB = Path(__file__).resolve().parents[3] / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
HOSTS = "molecule/host/hosts.yml"
NEWER = ("-l", "ana-bare")
OLDER = ("-l", "ana-bare12")
pytestmark = pytest.mark.usefixtures("host")  # pytest would run those without it at the end
PORTS = (8003, 8004, 8005)
TOKEN = "hf_token_of_the_lab"
STARTED = "docker ps -q --no-trunc | sort | xargs docker inspect -f '{{.Id}} {{.State.StartedAt}}'"
DAEMON = "cut -d' ' -f22 /proc/$(cat /run/docker.pid)/stat"
EVERYTHING = (
    "dpkg -l | sha256sum; find /etc /opt /usr/bin /run/modelfleet -newermt '-1 hour' -type f 2>/dev/null | sort"
)
BLOBS = "/opt/models/hub/hub/models--lab--tiny"
# What a check says instead of doing it, because it could not know the result.
SAID_FOR = {
    "Say what would be installed": "Install packages with apt",
    "Say that the cards would be described": "Describe the cards for CDI",
    "Say that device nodes and their links would be made": "Make device nodes and their links now",
}


@pytest.fixture(scope="session")
def run(playbook):
    """site.yml on the bare hosts; keywords are extra variables."""
    return partial(playbook, "playbooks/site.yml", inventory=HOSTS)


@pytest.fixture(scope="session")
def older():
    """The host with Debian 12."""
    return testinfra.get_host("ssh://ana-bare12", ssh_config=str(LAB / "ssh_config"))


@pytest.fixture(scope="session")
def foreseen(run, older):
    newer = testinfra.get_host("ssh://ana-bare", ssh_config=str(LAB / "ssh_config"))
    before = [host.check_output(EVERYTHING) for host in (newer, older)]
    done = run("--check", "--diff")
    assert [host.check_output(EVERYTHING) for host in (newer, older)] == before
    return done


@pytest.fixture(scope="session")
def half(run, older, foreseen):
    """Somebody has got half-way with the older host: no Compose, no SDK. What a check said of it."""
    done = run("--tags", "container_engine", *OLDER)
    assert done.status == 0, done.output
    made = changes(done, "ana-bare12")
    assert made == changes(foreseen, "ana-bare12")[: len(made)]
    older.check_output("apt-get -qy purge docker-compose-plugin python3-docker")
    before = older.check_output(EVERYTHING)
    checked = run("--check", "--diff", *OLDER)
    assert checked.status == 0, checked.output
    assert older.check_output(EVERYTHING) == before
    return checked


def settings(host):
    return json.loads(host.file("/etc/docker/daemon.json").content_string)


def changes(done, host):
    """The tasks that changed this host, by the names that they have in a real run."""
    found, task = [], ""
    for line in done.output.splitlines():
        named = re.match(r"TASK \[(?:[\w.]+ : )?(.*?)\](?: \[CHECK MODE\])? \*", line)
        task = named.group(1) if named else task
        if re.match(rf"changed: \[{host}\]", line) and SAID_FOR.get(task, task) not in found:
            found.append(SAID_FOR.get(task, task))
    return found


class TestBare:
    def test_a_check_foresees_the_whole_installation(self, foreseen):
        assert foreseen.status == 0, foreseen.output
        for packages in (
            "Would install docker.io, docker-cli, docker-compose, python3-docker",
            "Would install docker-ce=5:28.5*, docker-ce-cli=5:28.5*, containerd.io, docker-compose-plugin, python3-do",
            "Would install nvidia-container-toolkit=1.17.8*",
            "Would install nvidia-container-toolkit=1.18.1*",
        ):
            assert packages in foreseen.said
        assert "container_name: vllm-tiny" in foreseen.output

    def test_not_managed_it_is_explained(self, host, run):
        done = run("--tags", "container_engine", container_engine_manage=False)
        assert done.status != 0
        for name in ("ana-bare", "ana-bare12"):
            for code in ("container_engine_missing", "compose_missing", "docker_sdk_missing"):
                assert re.search(rf"{name}: .* \[{code}\]|\[{code}\]", done.said), code
        done = run("--tags", "nvidia_runtime", nvidia_runtime_manage=False)
        assert done.status != 0
        assert "[nvidia_runtime_missing]" in done.said
        assert not host.file("/usr/bin/nvidia-ctk").exists

    def test_a_wrong_key_is_refused_before_anything_is_written(self, host, run):
        wrong = "http://ana-bare:8099/gpgkey-wrong"
        done = run("--tags", "nvidia_runtime", *NEWER, nvidia_runtime_key_url=wrong)
        assert done.status != 0
        assert "[package_key_wrong]" in done.said
        assert not host.file("/etc/apt/keyrings/nvidia-container-toolkit.asc").exists

    def test_a_key_that_did_not_sign_is_refused_by_apt(self, host, run):
        """Somebody trusts the wrong fingerprint: apt itself checks the signature."""
        fingerprint = (LAB / "hosts" / "ana-bare" / "apt" / "fingerprint-wrong").read_text().strip()
        done = run(
            *("--tags", "nvidia_runtime", *NEWER),
            nvidia_runtime_key_url="http://ana-bare:8099/gpgkey-wrong",
            nvidia_runtime_fingerprints=[fingerprint],
        )
        assert done.status != 0
        assert not host.package("nvidia-container-toolkit").is_installed
        # The right key next time puts it right: `installed` shows it.

    def test_a_run_does_what_the_check_foresaw(self, foreseen, installed):
        done = changes(installed, "ana-bare")
        assert "Add NVIDIA's repository" in done  # its package source was half there, from the wrong key
        assert done == changes(foreseen, "ana-bare")
        assert len(done) >= 9

    def test_a_run_does_what_the_check_foresaw_of_a_half_installed_host(self, half, installed):
        assert "Would install docker-compose-plugin, python3-docker" in half.said
        assert "container_name: vllm-" in half.output
        done = changes(installed, "ana-bare12")
        assert done == changes(half, "ana-bare12")
        assert "Add Docker's repository" not in done
        assert len(done) >= 6


@pytest.fixture(scope="session")
def installed(run, half):
    done = run()
    assert done.status == 0, done.output
    return done


@pytest.mark.usefixtures("installed")
class TestInstalled:
    def test_again_and_checked_nothing_changes(self, host, older, run):
        before = [one.check_output(command) for one in (host, older) for command in (STARTED, DAEMON)]
        for arguments in ((), ("--check",)):
            done = run(*arguments)
            assert done.status == 0, done.output
            assert [done.recap(name)["changed"] for name in ("ana-bare", "ana-bare12")] == [0, 0], done.output
        assert [one.check_output(command) for one in (host, older) for command in (STARTED, DAEMON)] == before

    def test_what_somebody_wrote_is_still_there(self, host, older):
        for one in (host, older):
            have = settings(one)
            assert have["labels"] == ["rack=12"]
            assert have["log-opts"] == {"max-size": "10m"}
            assert have["insecure-registries"] == ["127.0.0.1:5000", "registry:5000"]
            assert have["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
            assert one.file("/etc/docker/daemon.json").mode == 0o640

    def test_pinned_versions_are_installed_and_held(self, host, older):
        for one, version in ((host, "1.17.8-1"), (older, "1.18.1-1")):
            assert one.package("nvidia-container-toolkit").version == version
        assert "Candidate: 1.17.8-1" in host.check_output("apt-cache policy nvidia-container-toolkit")
        assert host.package("docker.io").is_installed
        assert older.package("docker-ce").version == "5:28.5.1-1~debian.12~bookworm"
        assert "Candidate: 5:28.5.1" in older.check_output("apt-cache policy docker-ce")
        assert not older.package("docker.io").is_installed

    def test_cards_are_described_and_their_nodes_come_back_at_boot(self, host, older):
        for one, path in ((host, "/etc/cdi/nvidia.yaml"), (older, "/var/run/cdi/nvidia.yaml")):
            assert json.loads(one.file(path).content_string)["kind"] == "nvidia.com/gpu"
            assert one.file("/dev/char/195:0").is_symlink
            assert one.check_output("systemctl is-enabled gpu-nodes.modelfleet.service") == "enabled"
        assert not older.file("/etc/cdi/nvidia.yaml").exists  # the toolkit keeps the other one itself

    def test_a_stale_description_is_made_anew(self, host, older, run):
        """As after an update of the driver: a library that it names is gone."""
        for one, path in ((host, "/etc/cdi/nvidia.yaml"), (older, "/var/run/cdi/nvidia.yaml")):
            one.check_output(f"sed -i 's|/usr/local/lib/lab-gpu/nvidia-smi|/usr/lib/libcuda.so.1.gone|' {path}")
        done = run("--tags", "nvidia_runtime")
        assert [done.recap(name)["changed"] for name in ("ana-bare", "ana-bare12")] == [1, 1], done.output
        for one, path in ((host, "/etc/cdi/nvidia.yaml"), (older, "/var/run/cdi/nvidia.yaml")):
            assert "gone" not in one.file(path).content_string

    def test_the_unit_of_the_boot_brings_nodes_and_description_back(self, host):
        host.check_output("rm -r /dev/char /etc/cdi && systemctl restart gpu-nodes.modelfleet.service")
        assert host.file("/dev/char/195:0").is_symlink
        assert host.file("/etc/cdi/nvidia.yaml").exists

    def test_folders_for_caches_are_there(self, host, older, run):
        assert older.file("/opt/models/hub").mode == 0o755
        assert older.file("/opt/models/media/tiny").mode == 0o700
        # One for each image and model.
        assert len(host.check_output("ls -d /opt/models/vllm-cache/*/*").split()) == 3
        before = older.check_output(STARTED)
        older.check_output("mv /opt/models/media /opt/models/media-away")
        for arguments in (("--check", "--diff"), ()):
            done = run("--tags", "vllm_stack", *OLDER, *arguments)
            assert (done.status, done.recap("ana-bare12")["changed"]) == (0, 1), done.output
            assert ("folder /opt/models/media/tiny: present, 0700" in done.output) == bool(arguments)
        assert older.file("/opt/models/media/tiny").mode == 0o700
        assert older.check_output(STARTED) == before

    @pytest.mark.parametrize("mode", ["nvidia", "runtime"])
    def test_containers_see_exactly_their_cards(self, host, older, run, mode):
        done = run("--tags", "nvidia_runtime", nvidia_runtime_gate="always", nvidia_runtime_gpu_mode=mode)
        assert done.status == 0, done.output
        assert "nothing proves" not in done.output
        for one in (host, older):
            assert one.check_output("docker ps -aq --filter status=exited") == ""


@pytest.mark.usefixtures("installed")
class TestWeights:
    """On the older host: the real huggingface_hub against the lab's stand-in for the hub."""

    @pytest.fixture
    def log(self, host):
        """What the hub was asked since the test began."""
        before = int(host.check_output("wc -l < /var/log/lab-hub.log"))
        return lambda: host.check_output(f"tail -n +{before + 1} /var/log/lab-hub.log")

    def test_they_came_before_the_first_container(self, host, older, installed):
        snapshot = f"{BLOBS}/snapshots/{'1' * 40}"
        assert older.file(f"{snapshot}/model-00002.safetensors").exists
        assert not older.file(f"{snapshot}/pytorch_model.bin").exists  # the engine does not read it beside safetensors
        assert "ana-bare12 tiny: fetching lab/tiny@111111111111: 26 MiB of 26 MiB are missing" in installed.output
        asked = host.file("/var/log/lab-hub.log").content_string
        # The connection broke in the middle, and the download went on from there.
        assert re.search(r"GET \S+/model-00002\.safetensors bytes=[1-9]\d*- token", asked), asked
        assert "anonymous" not in asked

    def test_the_old_container_serves_meanwhile_and_the_token_is_nowhere(self, host, older, run, log):
        before = older.check_output(STARTED)
        with ThreadPoolExecutor() as beside:
            running = beside.submit(run, "--tags", "vllm_stack", *OLDER, "-v", hub_revision=2)
            seen = []
            deadline = time.monotonic() + 120
            while "slow.safetensors" not in log() or not seen:
                assert time.monotonic() < deadline
                assert not running.done(), running.result().output
                seen += older.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").splitlines()
                time.sleep(0.2)
            seen.append(older.check_output("docker inspect modelfleet-fetch-tiny"))
            assert older.run("curl -fsS --max-time 5 http://127.0.0.1:8003/health").rc == 0
            assert "GET /lab/tiny/resolve/" + "2" * 40 + "/slow.safetensors" in log()
            older.check_output("docker kill modelfleet-fetch-tiny")
            done = running.result()
        # What was interrupted stops nothing.
        assert done.status != 0
        assert "[weights_not_fetched]" in done.said, done.output
        assert "nothing was stopped" in done.said
        assert older.check_output(STARTED) == before
        assert any("hub_fetch" in line or "huggingface_hub" in line for line in seen)
        said = [*seen, done.output, older.check_output("journalctl --no-pager -o cat")]
        said.append(older.check_output("docker inspect -f '{{json .Config.Labels}} {{json .Config.Cmd}}' vllm-tiny"))
        said.append(older.check_output("docker logs vllm-tiny 2>&1"))
        assert not [text for text in said if TOKEN in text]
        # Ansible's own copy of the arguments (0700) goes with the end of its job, a moment later.
        older.check_output("for _ in $(seq 100); do pgrep -f '[A]nsiballZ_rollout' || exit 0; sleep 0.1; done")
        holding = older.run(f"grep -rlF {TOKEN} /opt/docker /root /tmp /var/log /run/modelfleet").stdout.split()
        assert {path.rpartition("/")[2] for path in holding} == {".env", "stack.json"}, holding
        for path in holding:
            assert older.file(path).mode == 0o600

    def test_the_next_run_goes_on_from_what_is_whole(self, older, run, log):
        done = run("--tags", "vllm_stack", *OLDER, hub_revision=2)
        assert done.status == 0, done.output
        assert "/model-00001.safetensors" not in log()
        assert older.file(f"{BLOBS}/snapshots/{'2' * 40}/slow.safetensors").size > 0
        assert "fetching weights" in done.output
        assert done.output.index("weights of lab/tiny@222222222222 are here") < done.output.index("stopping the old")

    @pytest.mark.parametrize(
        ("variables", "code", "words"),
        [
            (
                {"hub_revision": 3},
                "weights_no_space",
                r"ana-bare12 tiny: .*lab/tiny@333333333333 needs 7450\.58 GiB more in /opt/models/hub of ana-bare12, "
                r"and only [\d.]+ GiB are free there.*vllm_stack_hub_cache",
            ),
            ({"hub_revision": 4, "vllm_stack_hub_offline": True}, "hub_offline_not_cached", "ana-bare12 tiny: "),
            ({"hub_revision": 3, "vllm_stack_hub_token": "hf_wrong"}, "hub_gated", "ana-bare12 tiny: "),
        ],
        ids=lambda value: value if isinstance(value, str) and " " not in value else "",
    )
    def test_what_cannot_be_had_stops_nothing(self, older, run, variables, code, words):
        before = older.check_output(STARTED)
        done = run("--tags", "vllm_stack", *OLDER, **variables)
        assert done.status != 0
        assert f"[{code}]" in done.said
        assert re.search(words, done.said), done.output
        assert older.check_output(STARTED) == before

    def test_offline_what_is_in_the_cache_will_do(self, older, run, log):
        done = run("--tags", "vllm_stack", *OLDER, hub_revision=1, vllm_stack_hub_offline=True)
        assert done.status == 0, done.output
        assert log() == ""


@pytest.mark.usefixtures("installed")
class TestServing:
    def test_a_restart_waits_while_models_serve(self, host, run):
        before = host.check_output(STARTED), host.check_output(DAEMON)
        wanted = {"log-driver": "local", "max-concurrent-downloads": 5}
        only = ("--tags", "container_engine", *NEWER)
        for arguments, number in ((("--check",), 1), ((), 1), ((), 0)):
            done = run(*only, *arguments, container_engine_config=wanted)
            assert done.status == 0, done.output
            assert done.recap("ana-bare")["changed"] == number, done.output
            assert 'log-driver: not set -> "local"' in done.said
        assert (host.check_output(STARTED), host.check_output(DAEMON)) == before
        # What a reload can do was done, the rest is not even in the file: a restart by somebody else changes nothing.
        assert settings(host)["max-concurrent-downloads"] == 5
        assert "log-driver" not in settings(host)

    def test_a_file_that_docker_refuses_is_not_put_in_place(self, host, run):
        before = settings(host)
        wanted = {"container_engine_config": {"no-such-key": 1}, "container_engine_restart": "allowed"}
        done = run("--tags", "container_engine", *NEWER, **wanted)
        assert done.status != 0
        assert "dockerd refuses the new /etc/docker/daemon.json" in done.said
        assert settings(host) == before

    def test_a_restart_that_is_allowed_goes_through_the_chains_and_asks(self, host, run):
        daemon = host.check_output(DAEMON)
        done = run(*NEWER, container_engine_config={"log-driver": "local"}, container_engine_restart="allowed")
        assert done.status == 0, done.output
        assert host.check_output(DAEMON) != daemon
        assert host.check_output("docker info --format '{{.LoggingDriver}}'") == "local"
        for port in PORTS:
            assert host.run(f"curl -fsS --max-time 5 http://127.0.0.1:{port}/health").rc == 0
        for stack in ("granite-summarizer", "reranker", "embedder"):
            assert re.search(rf"^ana-bare {stack}: \d+ questions answered right", done.output, re.MULTILINE), (
                done.output
            )
            assert host.check_output(f"systemctl is-active modelfleet-{stack}") == "active"
        # Both on card 0: the second began when the first was ready.
        ready, started = host.check_output(
            'date -d "$(systemctl show -P ActiveEnterTimestamp modelfleet-granite-summarizer)" +%s;'
            "date -d \"$(docker inspect -f '{{.State.StartedAt}}' vllm-reranker)\" +%s"
        ).split()
        assert int(host.check_output("stat -c %Y /run/docker.pid")) <= int(ready) <= int(started)

    def test_cdi(self, host, run):
        done = run(
            *NEWER,
            container_engine_config={"log-driver": "local"},
            container_engine_restart="allowed",
            nvidia_runtime_gate="always",
            nvidia_runtime_gpu_mode="cdi",
        )
        assert done.status == 0, done.output
        assert "nothing proves" not in done.output
        assert settings(host)["features"] == {"cdi": True}
        assert "questions answered right" in done.output
