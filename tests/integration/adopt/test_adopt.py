# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hand-made deployments on lab hosts, taken over. Needs a lab that is up (`lab/lab up`).

What adopt.yml says is held against what happens: the inventory that it prints is used as it is, and the containers'
ids tell whether site.yml restarted what it said that it would. Whatever ran on the two hosts before is removed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.unit.fleet import compose_cases

ROOT = Path(__file__).resolve().parents[3]
NAME = os.environ.get("LAB_NAME", "modelfleet")
STATE = ROOT / ".cache" / "lab" / NAME
BIN = Path(sys.executable).parent

API_KEY = "sk-hand-made-0123456789abcdef"
HUB_TOKEN = "hf_abcdefghijklmnopqrstuvwx0123"
MASTER_KEY = "sk-hand-made-master-0123456789"
SECRETS = (API_KEY, HUB_TOKEN, MASTER_KEY)
VAULT = {"vault_qwen_api_key": API_KEY, "vault_hf_token": HUB_TOKEN, "vault_litellm_master_key": MASTER_KEY}

CLEAN = """
for unit in $(ls /etc/systemd/system | grep '^modelfleet-.*[.]service$'); do
  systemctl disable --now "$unit"; rm -f "/etc/systemd/system/$unit"
done >/dev/null 2>&1
systemctl daemon-reload
docker ps -aq | xargs -r docker rm -f >/dev/null
docker network prune -f >/dev/null
docker rmi something/else:1 >/dev/null 2>&1
rm -rf /opt/docker/compose /srv/qwen /srv/proxy /data/hf /tmp/adopt-cases
"""
ENGINES = """
mkdir -p /srv/qwen /data/hf
cat > /srv/qwen/docker-compose.yml <<'Y'
services:
  qwen:
    image: {engine}
    container_name: vllm-qwen
    command: >
      --model Qwen/Qwen3.5-9B --served-model-name qwen
      --max-model-len 32768 --gpu-memory-utilization 0.4 --max-num-seqs 64
      --reasoning-parser qwen3 --quantization fp8
    environment:
      - HF_TOKEN=${{HF_TOKEN}}
      - SIM_LOAD_SECONDS=1
      - SIM_WEIGHTS_MIB=14000
    env_file: [engine.env]
    ports: ["8007:8000"]
    volumes: ["/data/hf:/root/.cache/huggingface"]
    ipc: host
    restart: unless-stopped
    deploy:
      resources:
        reservations:
          devices: [{{driver: nvidia, device_ids: ["1"], capabilities: [gpu]}}]
Y
echo 'HF_TOKEN={token}' > /srv/qwen/.env
echo 'VLLM_API_KEY={key}' > /srv/qwen/engine.env
cd /srv/qwen && docker compose --progress quiet up -d
docker run -d --name embedder --gpus '"device=1"' -p 8004:8000 -e SIM_LOAD_SECONDS=1 -e SIM_WEIGHTS_MIB=1200 \
  --shm-size 2g --restart always {engine} --model Qwen/Qwen3-Embedding-0.6B --served-model-name embedder \
  --runner pooling --max-model-len 8192 --gpu-memory-utilization 0.08
docker tag {engine} something/else:1 && docker run -d --name bystander --entrypoint sleep something/else:1 infinity
"""
GATEWAY = """
mkdir -p /srv/proxy
cat > /srv/proxy/docker-compose.yml <<'Y'
services:
  litellm:
    image: {gateway}
    container_name: litellm
    command: ["--config", "/app/config.yaml", "--port", "4000"]
    environment: {{LITELLM_MASTER_KEY: {master}, ENGINE_KEY: {key}}}
    volumes: ["./config.yaml:/app/config.yaml:ro"]
    ports: ["4000:4000"]
Y
cat > /srv/proxy/config.yaml <<'Y'
model_list:
  - model_name: qwen
    litellm_params: {{model: hosted_vllm/qwen, api_base: "http://ana-ml2:8007/v1", api_key: os.environ/ENGINE_KEY}}
  - model_name: chat
    litellm_params: {{model: hosted_vllm/qwen, api_base: "http://ana-ml2:8007/v1", api_key: os.environ/ENGINE_KEY}}
  - model_name: embedder
    litellm_params: {{model: hosted_vllm/embedder, api_base: "http://ana-ml2:8004/v1"}}
router_settings: {{num_retries: 3}}
general_settings: {{master_key: os.environ/LITELLM_MASTER_KEY}}
Y
chmod 644 /srv/proxy/config.yaml
cd /srv/proxy && docker compose --progress quiet up -d
"""
WAIT = "for i in $(seq 300); do curl -fso /dev/null http://127.0.0.1:{port}{path} && exit 0; sleep 0.5; done; exit 1"
IDS = "docker inspect --format '{{.Name}} {{.Id}} {{.State.StartedAt}}' $(docker ps -q)"


def ssh(host: str, command: str) -> str:
    done = subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), host, "bash -s"],
        input=command, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"on {host}: {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def running(host: str) -> dict[str, str]:
    """Name -> id and start of everything that runs on the host."""
    return dict(line.lstrip("/").split(" ", 1) for line in ssh(host, IDS).splitlines())


class Folder:
    """An inventory of its own, which starts without any fleet_ variable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "group_vars" / "all").mkdir(parents=True)
        self.groups("ana-ml2", "ana-docker")
        how = {
            "ansible_connection": "ssh",
            "ansible_ssh_common_args": f"-F {STATE}/ssh_config",
            "ansible_python_interpreter": "/usr/bin/python3",
            "vllm_stack_prefetch": False,  # the simulated engine loads nothing from a hub
        }
        (path / "group_vars" / "all" / "ansible.yml").write_text(json.dumps(how))

    def groups(self, gpu_host: str, gateway: str = "") -> None:
        groups = {"gpu_hosts": {"hosts": {gpu_host: {}}}, "gateways": {"hosts": {gateway: {}} if gateway else {}}}
        (self.path / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))

    def play(self, playbook: str, *more: str, status: int = 0) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}
        done = subprocess.run(
            [str(BIN / "ansible-playbook"), "-i", str(self.path), playbook, *more],
            cwd=ROOT, env={**clean, "ANSIBLE_NOCOLOR": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        for secret in SECRETS:
            assert secret not in done.stdout
        return done.stdout

    def variables(self, host: str) -> Path:
        return self.path / "host_vars" / host / "fleet.yml"

    def adopt(self, *more: str) -> str:
        return self.play(
            "playbooks/adopt.yml", "-e", f"adopt_to={self.path}/host_vars/{{{{ inventory_hostname }}}}/fleet.yml", *more
        )


def said(output: str) -> dict[str, bool]:
    """stack -> whether taking it over would restart it, as a person reads it."""
    return {
        name: word == "RESTART"
        for name, word in re.findall(r"^  (\S+): would (RESTART|not restart)", output, re.MULTILINE)
    }


def changed(output: str, host: str) -> int:
    return int(re.search(rf"^{host} .*changed=(\d+)", output, re.MULTILINE)[1])  # type: ignore[index]


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, str]]:
    images = json.loads((STATE / "images.json").read_text())
    references = {name: f"{image['repository']}:{image['tag']}" for name, image in images.items()}
    for host in ("ana-ml2", "ana-docker"):
        ssh(host, CLEAN)
    yield references
    for host in ("ana-ml2", "ana-docker"):
        ssh(host, CLEAN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("adopt") / "inventory")


# --- the judge of the reading --------------------------------------------------------------------------------------


def judge(answers: dict[str, Any], directory: str) -> int:
    """How many of the table this Compose reads; each of them as we do."""
    read = 0
    for case, (status, answer, refusal) in answers.items():
        if status:
            # Older than the key itself: Compose knows `gpus` since 2.30.
            assert "gpus" in refusal, f"{case}: {refusal}"
            continue
        assert compose_cases.ours(compose_cases.read(case, f"{directory}/{case}")) == compose_cases.judged(answer), case
        read += 1
    return read


CONFIG = """
import json, os, subprocess, sys
directory, *compose = sys.argv[1:]
answers = {}
for case in sorted(os.listdir(directory)):
    done = subprocess.run(
        [*compose, "--profile", "*", "config", "--format", "json"], cwd=os.path.join(directory, case),
        env={"HOME": "/root", "PATH": os.environ["PATH"]}, capture_output=True, text=True,
    )
    answers[case] = [done.returncode, done.stdout, done.stderr]
print(json.dumps(answers))
"""


def test_our_compose_reads_the_table_as_we_do(tmp_path: Path) -> None:
    shutil.copytree(compose_cases.FOLDER, tmp_path / "cases")
    done = subprocess.run(
        [sys.executable, "-c", CONFIG, str(tmp_path / "cases"), str(BIN / "docker-compose")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert judge(json.loads(done.stdout), str(tmp_path / "cases")) == len(compose_cases.CASES)


def test_the_hosts_compose_reads_the_table_as_we_do(hosts: dict[str, str]) -> None:
    del hosts
    packed = subprocess.run(["tar", "-C", str(compose_cases.FOLDER), "-cz", "."], capture_output=True, check=True)
    subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), "ana-ml2", "mkdir -p /tmp/adopt-cases && tar -C /tmp/adopt-cases -xz"],
        input=packed.stdout, check=True,
    )  # fmt: skip
    answers = ssh("ana-ml2", f"python3 - /tmp/adopt-cases docker compose <<'E'\n{CONFIG}\nE")
    assert judge(json.loads(answers), "/tmp/adopt-cases") >= 25


# --- taking over -----------------------------------------------------------------------------------------------------


def test_what_runs_becomes_inventory_and_the_comparison_comes_true(hosts: dict[str, str], folder: Folder) -> None:
    ssh("ana-ml2", ENGINES.format(engine=hosts["sim-vllm"], token=HUB_TOKEN, key=API_KEY))
    for port in (8007, 8004):
        ssh("ana-ml2", WAIT.format(port=port, path="/health"))
    before = running("ana-ml2")

    output = folder.adopt("-l", "ana-ml2", "-vvv")  # also then no secret is shown: play looks
    assert said(output) == {"qwen": True, "embedder": True}
    assert "container vllm-qwen: Config.Env HF_TOKEN" in output
    assert re.search(r"container bystander: \S+ is no model server", output)
    assert running("ana-ml2") == before
    assert changed(folder.adopt("-l", "ana-ml2"), "ana-ml2") == 0  # the file is there

    # The one thing that only a person knows. Until then the plan refuses it.
    assert 'fleet_models.embedder.task: is "embed|rerank|classify|reward"' in output
    adopted = folder.variables("ana-ml2")
    adopted.write_text(adopted.read_text().replace("'embed|rerank|classify|reward'", "embed"))
    (folder.path / "group_vars" / "all" / "vault.yml").write_text(json.dumps(VAULT))
    folder.groups("ana-ml2")

    checked = folder.play("site.yml", "--check", "-l", "ana-ml2")
    assert changed(checked, "ana-ml2") == 1
    assert running("ana-ml2") == before
    folder.play("site.yml", "-l", "ana-ml2")
    after = running("ana-ml2")
    assert after["bystander"] == before["bystander"]
    for container in ("vllm-qwen", "embedder"):
        assert after[container].split()[0] != before[container].split()[0]

    # And now nothing restarts: adopted again from what runs, without the first inventory.
    again = Folder(folder.path.parent / "again")
    output = again.adopt("-l", "ana-ml2")
    assert said(output) == {"qwen": False, "embedder": False}
    assert "nothing differs" in output
    assert "task: embed" in output  # its receipt says what it answered
    (again.path / "group_vars" / "all" / "vault.yml").write_text(json.dumps(VAULT))
    again.groups("ana-ml2")
    for how in (["--check"], []):
        assert changed(again.play("site.yml", "-l", "ana-ml2", *how), "ana-ml2") == 0
    assert running("ana-ml2") == after


def test_a_gateway_becomes_inventory(hosts: dict[str, str], folder: Folder) -> None:
    """After the engines: its routes lead to what the test before has left."""
    folder.groups("ana-ml2", "ana-docker")
    ssh("ana-docker", GATEWAY.format(gateway=hosts["litellm"], master=MASTER_KEY, key=API_KEY))
    ssh("ana-docker", WAIT.format(port=4000, path="/health/readiness"))
    before = running("ana-docker")

    output = folder.adopt("-l", "ana-docker")
    assert said(output) == {"gateway": True}
    assert "engine: '1.108" in output  # the gateway says it
    assert "/srv/proxy/config.yaml:2: qwen is asked with a key of its engine." in output
    assert "    chat: qwen" in output
    assert running("ana-docker") == before
    # In the lab ana-ml2 is only resolved inside; the inventory says so for the gateway as the lab's own does.
    assert "addresses" not in output

    # Nobody's gateway is removed by a run.
    assert "gateway: remove litellm first (docker rm -f litellm)" in output
    refused = folder.play("site.yml", "-l", "ana-docker", status=2)
    assert "ana-docker has a container litellm that is not ours" in refused
    assert running("ana-docker") == before
    ssh("ana-docker", "docker rm -f litellm")
    folder.play("site.yml", "-l", "ana-docker")
    after = running("ana-docker")
    assert after["litellm"].split()[0] != before["litellm"].split()[0]

    again = Folder(folder.path.parent / "gateway_again")
    assert said(again.adopt("-l", "ana-docker")) == {"gateway": False}
    assert changed(folder.play("site.yml", "-l", "ana-docker"), "ana-docker") == 0
    assert running("ana-docker") == after


IDLE = """
mkdir -p /opt/docker/compose/idle && cd /opt/docker/compose/idle
cat > compose.yaml <<'Y'
services:
  idle:
    image: {engine}
    command: --model a/b --gpu-memory-utilization ${{SHARE}}
    ports: ["8011:8000"]
    gpus: [{{driver: nvidia, device_ids: ["0"]}}]
Y
echo SHARE=0.25 > .env
"""


def test_a_folder_that_does_not_run_is_read_too(hosts: dict[str, str], folder: Folder) -> None:
    ssh("ana-ml2", CLEAN + IDLE.format(engine=hosts["sim-vllm"]))
    output = Folder(folder.path.parent / "idle").adopt("-l", "ana-ml2")
    assert "gpu_memory_utilization: 0.25" in output
    assert "/opt/docker/compose/idle/compose.yaml:3: nothing tells the digest" in output
