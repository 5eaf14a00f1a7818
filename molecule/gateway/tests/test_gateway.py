# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged gateway, asked as its clients ask it, from its own host."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import testinfra
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import http

from benchmarks.gateway_change import Load

OVERLAY = "molecule/gateway/two_hosts.yml"
ROOT = Path(__file__).resolve().parents[3]
LAB = ROOT / "inventories" / "lab" / "group_vars" / "gateways" / "vault.yml"
MASTER = next(line.split()[1] for line in LAB.read_text().splitlines() if line.startswith("vault_litellm_master_key"))
WRITERS = "sk-lab-writers-5f2c8e1b7a90"
EVERYBODY = "sk-lab-everybody-83a1d07c6b52"
SLOW = "sk-lab-slow-2d7e90b4c1f8"
ENGINE_KEY = "sk-lab-engine-61c0f7a2d9e4"
ROUTES = [
    "ana-docker--summarizer-too",
    "ana-ml2--embedder",
    "ana-ml2--granite-summarizer",
    "ana-ml2--qwen35-vl",
    "ana-ml2--reranker",
]
FOLDER = "/opt/docker/compose/litellm"
CONFIG = f"{FOLDER}/config/config.yaml"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]


@pytest.fixture
def ask(host):
    """ask("/v1/models", key) or, with a body, a POST; through the port that clients use."""

    def put(path: str, key: str = MASTER, body: Any = None) -> Answer:
        command = ["curl", "-sS", "--max-time", "60", "-D", "/dev/stderr", f"http://127.0.0.1:4000{path}"]
        if key:
            command += ["-H", f"Authorization: Bearer {key}"]
        if body is not None:
            command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        done = host.run(shlex.join(command))
        assert done.rc == 0, done.stderr
        first, *rest = done.stderr.replace("\r", "").strip().split("\n")
        headers = dict(line.lower().split(": ", 1) for line in rest if ": " in line)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = done.stdout
        return Answer(int(first.split()[1]), answer, headers)

    return put


def chat(model: str, words: str = "What is 2 + 3? Answer with the number only.", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": words}], "max_tokens": 50, **more}


def site(playbook, *arguments: str, **variables: Any):
    return playbook("site.yml", "-i", OVERLAY, *arguments, **variables)


@pytest.fixture(scope="session")
def addresses() -> dict[str, str]:
    """Host -> where this machine reaches it, past ssh."""
    lab = json.loads(subprocess.check_output([ROOT / "lab" / "lab", "status", "--json"], text=True))
    return {name: entry["address"] for name, entry in lab.items() if name.startswith("ana-")}


def test_every_stack_of_both_hosts_is_a_route(ask):
    assert sorted({each["model_info"]["id"] for each in ask("/model/info").body["data"]}) == ROUTES


@pytest.mark.parametrize("model", ["granite-summarizer", "summary", "qwen3.5-9b-fp8", "vision"])
def test_models_and_aliases_answer(ask, model):
    answer = ask("/v1/chat/completions", EVERYBODY, chat(model))
    assert answer.status == 200, answer.body
    assert "5" in answer.body["choices"][0]["message"]["content"]


def test_both_replicas_get_requests(ask):
    seen = {ask("/v1/chat/completions", EVERYBODY, chat("summary")).headers["x-litellm-model-id"] for _ in range(16)}
    assert seen == {"ana-docker--summarizer-too", "ana-ml2--granite-summarizer"}


def test_a_picture_was_read_through_the_gateway(host):
    proof = json.loads(host.file("/opt/docker/compose/litellm/.modelfleet/receipt.json").content_string)
    vision = next(answer for answer in proof["answers"] if answer["name"] == "vision")
    assert vision == {"name": "vision", "code": "passed", "route": "ana-ml2--qwen35-vl"}


@pytest.mark.parametrize(
    ("path", "body", "part"),
    [
        ("/v1/embeddings", {"model": "embedder", "input": "a"}, "data"),
        ("/v1/rerank", {"model": "reranker", "query": "a", "documents": ["a", "b"]}, "results"),
        ("/reward/reward/pooling", {"model": "reward", "input": "a"}, "data"),
        ("/reward/ana-ml2--reward/pooling", {"model": "reward", "input": "a"}, "data"),
    ],
)
def test_the_other_tasks(ask, path, body, part):
    answer = ask(path, EVERYBODY, body)
    assert answer.status == 200, answer.body
    assert answer.body[part]


@pytest.mark.parametrize(
    ("path", "key", "body", "status"),
    [
        ("/v1/models", "", None, 401),
        ("/v1/models", "sk-somebody-elses-key", None, 401),
        ("/v1/chat/completions", EVERYBODY, chat("no-such-model"), 400),
        ("/v1/chat/completions", WRITERS, chat("vision"), 403),
        ("/v1/embeddings", WRITERS, {"model": "embedder", "input": "a"}, 403),
        ("/v1/chat/completions", EVERYBODY, chat("summary", "word " * 20000), 400),
        ("/model/info", EVERYBODY, None, 403),
        ("/key/generate", EVERYBODY, {}, 403),
    ],
)
def test_refusals(ask, path, key, body, status):
    answer = ask(path, key, body)
    assert answer.status == status, answer.body


def test_a_key_is_for_its_models(ask):
    assert ask("/v1/chat/completions", WRITERS, chat("summary")).status == 200
    assert ask("/reward/reward/pooling", WRITERS, {"model": "reward", "input": "a"}).status == 200


def test_the_container_is_closed(host):
    about = json.loads(host.check_output("docker inspect litellm"))[0]
    assert about["Config"]["User"] == "10001:10001"
    assert about["HostConfig"]["ReadonlyRootfs"]
    assert about["HostConfig"]["CapDrop"] == ["ALL"]
    assert MASTER not in host.check_output("docker top litellm -eo pid,args")
    assert host.file("/opt/docker/compose/litellm/.env").mode == 0o600
    assert host.file("/opt/docker/compose/litellm/config/keys.json").mode == 0o640
    assert EVERYBODY not in host.file("/opt/docker/compose/litellm/config/keys.json").content_string


def test_nothing_changes(playbook, digest):
    before = digest()
    run = site(playbook)
    assert run.status == 0, run.output
    assert [run.recap(name)["changed"] for name in ("ana-docker", "ana-ml2")] == [0, 0], run.output
    assert digest() == before


def test_a_check_foresees_a_change_of_the_engine_alone_and_shows_no_key(playbook, digest):
    before = digest()
    run = site(playbook, "-l", "ana-docker", "--check", "--diff", vllm_stack_shm_size="4gb")
    assert run.status == 0, run.output
    assert run.recap("ana-docker")["changed"] == 1, run.output
    assert ENGINE_KEY not in run.output
    assert digest() == before


def test_a_run_for_the_gpu_host_alone_repairs_the_engine_and_the_routes(host, ask, playbook):
    """The stand-in answers for what is away; somebody took a route out by hand. The gateway is not in the run."""
    state = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
    testinfra.get_host("ssh://ana-ml2", ssh_config=str(state / "ssh_config")).check_output("docker stop vllm-qwen35")
    try:
        answer = ask("/v1/chat/completions", EVERYBODY, chat("vision"))
        assert answer.status == 200, answer.body
        assert answer.headers["x-litellm-model-id"] in ("ana-docker--summarizer-too", "ana-ml2--granite-summarizer")
        started = host.check_output("docker inspect -f '{{.State.StartedAt}}' litellm")
        config = host.file(CONFIG).content_string
        begin = config.index("  - model_name: embedder")
        rest = config[begin + 4 :]
        host.check_output(f"printf %s {shlex.quote(config[:begin] + rest[rest.index('  - model_name') :])} > {CONFIG}")
    finally:
        run = site(playbook, "-l", "ana-ml2")
    assert run.status == 0, run.output
    assert host.file(CONFIG).content_string == config
    assert sorted({each["model_info"]["id"] for each in ask("/model/info").body["data"]}) == ROUTES
    assert host.check_output("docker inspect -f '{{.State.StartedAt}}' litellm") == started


def test_what_the_image_refuses_never_arrives(host, ask, playbook):
    """An image that is no LiteLLM stands for any release that does not take the configuration."""
    look = f"sha256sum {CONFIG} {FOLDER}/compose.yaml; docker inspect -f '{{{{.State.StartedAt}}}}' litellm"
    before = host.check_output(look)
    wrong = {"image": "sim-vllm", "balancer": "haproxy", "master_key": MASTER, "aliases": {"see": "qwen3.5-9b-fp8"}}
    run = site(playbook, "-l", "ana-docker", "-e", json.dumps({"fleet_gateway": wrong}))
    assert run.status != 0
    assert "gateway_config_refused" in run.output
    assert MASTER not in run.output
    assert host.check_output(look) == before
    assert ask("/v1/chat/completions", EVERYBODY, chat("summary")).status == 200


def test_a_key_that_is_taken_away_is_refused_at_once(host, ask):
    keys = "/opt/docker/compose/litellm/config/keys.json"
    content = host.file(keys).content_string
    host.check_output(f"echo '{{}}' > {keys}")
    try:
        assert ask("/v1/models", EVERYBODY).status == 401
    finally:
        host.check_output(f"printf %s {shlex.quote(content)} > {keys}")
    time.sleep(0.1)
    assert ask("/v1/models", EVERYBODY).status == 200


def test_requests_a_minute_are_counted_by_each_worker(addresses):
    """5 a minute, by two workers in each of two instances; in a test that meets the turn of a minute, twice."""

    def once(_number: int) -> int:
        url = f"http://{addresses['ana-docker']}:4000/v1/chat/completions"
        return http.fetch("POST", url, chat("summary"), {"Authorization": f"Bearer {SLOW}"}, 60).status

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(once, range(64)))
    assert set(statuses) == {200, 429}
    assert 5 <= statuses.count(200) <= 40


def test_an_engine_with_a_key_answers_the_gateway_only(host, ask, playbook):
    look = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8103/v1/models"
    assert host.check_output(look) == "401"
    assert host.check_output(f"{look} -H 'Authorization: Bearer {ENGINE_KEY}'") == "200"
    by = {ask("/v1/chat/completions", EVERYBODY, chat("summary")).headers["x-litellm-model-id"] for _ in range(12)}
    assert "ana-docker--summarizer-too" in by
    folder = "/opt/docker/compose"
    holding = host.check_output(f"cd {folder} && grep -rl {ENGINE_KEY} summarizer-too litellm; true").split()
    for name in holding:
        assert host.file(f"{folder}/{name}").mode & 0o007 == 0, name
        assert "compose.yaml" not in name
    assert {"summarizer-too/.env", "litellm/config/secrets.yaml"} <= set(holding)
    assert ENGINE_KEY not in host.check_output("ps -eo args; docker logs vllm-summarizer-too 2>&1")


def test_an_engine_is_replaced_without_a_lost_request(addresses, playbook):
    another = {"environment": {"ROUND": str(time.time_ns())}}
    only = ("-l", "ana-ml2", "-e", "only=granite-summarizer", "--tags", "vllm_stack")
    with Load(addresses["ana-docker"], 3, 0) as load:
        run = site(playbook, *only, vllm_stack_compose=another)
    assert run.status == 0, run.output
    assert "granite-summarizer: finishing the requests it has" in run.output
    assert "granite-summarizer: the gateways may use it again" in run.output
    assert not load.failures
    assert len(load.seconds) > 30


def test_both_instances_are_replaced_without_a_lost_request(host, addresses, playbook):
    def started() -> list[str]:
        return host.check_output("docker inspect -f '{{.State.StartedAt}}' litellm litellm-2 litellm-front").split()

    before = started()
    with Load(addresses["ana-docker"], 3, 0) as load:
        run = site(playbook, "-l", "ana-docker", "--tags", "litellm_gateway", litellm_gateway_memory_limit="2999m")
    assert run.status == 0, run.output
    assert [now != then for now, then in zip(started(), before)] == [True, True, False]
    assert not load.failures
    assert len(load.seconds) > 30
