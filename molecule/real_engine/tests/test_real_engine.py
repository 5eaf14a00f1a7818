# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real engine, rolled out by the same role: what answers is green, what does not is told apart and put back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import testinfra
import yaml

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
STATE = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
FOLDER = "/opt/real-engine"
HOST = "ana-ml2"
BROKEN = ("no-template", "no-tokenizer", "dies")
SIGHT_RUNS = 10


@pytest.fixture(scope="module")
def host() -> Any:
    return testinfra.get_host(f"ssh://{HOST}", ssh_config=str(STATE / "ssh_config"))


def kept(host: Any, stack: str, name: str) -> dict[str, Any]:
    return json.loads(host.check_output(f"cat {FOLDER}/{stack}/.modelfleet/{name}.json"))


def play(**variables: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}
    inventories = ["-i", str(ROOT / "inventories" / "lab-real"), "-i", str(HERE / "hosts.yml")]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), *inventories, str(HERE / "play.yml"),
         "-e", json.dumps(variables)],
        cwd=ROOT, env={**environment, "ANSIBLE_NOCOLOR": "1"}, stdin=subprocess.DEVNULL, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1100,
    )  # fmt: skip
    print(done.stdout)
    return done


# ------------------------------------------------------------------ what was rolled out


def test_the_good_one_answered_everything(host):
    receipt = kept(host, "seer", "receipt")
    answers = {answer["question"]: answer for answer in receipt["answers"]}
    assert receipt["outcome"] == "good"
    assert {code for code, answer in answers.items() if not answer["passed"]} == set()
    assert set(answers) == {
        "text", "thinking_off", "thinking_on", "image_number", "image_colour_shape", "image_pair",
        "image_two_in_one_request", "video_order", "tool_call", "structured_output", "context_limit",
    }  # fmt: skip
    assert all(answers[code]["pictures"] for code in answers if code.startswith(("image_", "video_")))


def test_the_runtime_card_is_what_the_engine_says_of_itself(host):
    engine = kept(host, "seer", "receipt")["engine"]
    assert engine["version"].startswith("0.32.0")
    assert engine["architecture"] == "Qwen3VLForConditionalGeneration"
    assert engine["kv_cache_tokens"] == 64 * 2**20 // 2048  # 4 layers, keys and values, 2 heads of 64, 2 bytes
    assert engine["max_concurrency"] == pytest.approx(engine["kv_cache_tokens"] / 2048)
    assert engine["harmless_warnings"]
    # Without a card the engine says neither what the weights take nor how it computes attention.
    assert 0 < engine["weights_seconds"] < engine["startup_seconds"] < 600


def test_every_key_of_the_second_deployment_starts_the_engine(host):
    """The file on the host holds production's options, but for those that cpu_cannot.yml gives a reason for."""
    cannot = yaml.safe_load((HERE / "group_vars/all/cpu_cannot.yml").read_text())["cpu_cannot"]
    models = yaml.safe_load((ROOT / "inventories/production/group_vars/all/fleet_models.yml").read_text())
    wanted = models["fleet_models"]["Qwen3-VL"]
    [stack] = yaml.safe_load((ROOT / "inventories/production/host_vars/ana-blackwell/fleet.yml").read_text())[
        "fleet_stacks"
    ]
    options = {**wanted["args"], "gpu_memory_utilization": stack["gpu_memory_utilization"]}
    served = yaml.safe_load(host.check_output(f"cat {FOLDER}/qwen3-vl/vllm.yaml"))
    differ = {name for name, value in options.items() if served.get(name.replace("_", "-")) != value}
    assert differ == set(cannot) & set(options)
    [container] = json.loads(host.check_output("docker inspect vllm-qwen3-vl"))
    environment = dict(entry.split("=", 1) for entry in container["Config"]["Env"])
    differ = {name for name, value in wanted["env"].items() if environment.get(name) != str(value)}
    assert differ == set(cannot) & set(wanted["env"])


def test_and_it_answers(host):
    receipt = kept(host, "qwen3-vl", "receipt")
    assert receipt["outcome"] == "good"
    assert all(answer["passed"] for answer in receipt["answers"])


# ------------------------------------------------------------------ what does not answer


@pytest.fixture(scope="module")
def failed(host):
    """One run: the good checkpoint becomes the blind one, and three stacks are new. Every engine becomes healthy."""
    # Its work is done, and two cores start four engines now.
    host.check_output("systemctl stop modelfleet-qwen3-vl.service; docker stop vllm-qwen3-vl")
    return play(checkpoint="tiny-vlm-blind", rolled_out=["seer", *BROKEN])


def test_the_run_fails(failed):
    assert failed.returncode != 0


@pytest.mark.parametrize(
    ("stack", "code", "said"),
    [
        ("seer", "vision_blind", ["The text works", "the pictures do not", "vision tower was quantised"]),
        ("no-template", "chat_template_missing", ["chat template"]),
        ("no-tokenizer", "tokenizer_missing", ["decoder prompt cannot be empty"]),
        ("dies", "kernel_unsupported", ["head dim"]),
    ],
)
def test_each_has_its_own_diagnosis(failed, host, stack, code, said):
    failure = kept(host, stack, "failed")["failure"]
    assert failure["code"] == code
    told = " ".join([failure["what"], failure["why"]])
    assert [part for part in said if part not in told] == []
    assert f"[{code}]" in failed.stdout
    assert failure["change"]


def test_the_blind_one_names_the_remedy(failed, host):
    remedy = kept(host, "seer", "failed")["failure"]["change"]
    for way in ("another image digest", "vision tower ignored", "remove `quantization`"):
        assert way in remedy


def test_the_good_one_is_back_and_answers_again(failed, host):
    assert kept(host, "seer", "failed")["ended"] == "put_back"
    [container] = json.loads(host.check_output("docker inspect vllm-seer"))
    assert container["State"]["Running"]
    assert "/opt/models/tiny-vlm" in [mount["Source"] for mount in container["Mounts"]]
    assert all(answer["passed"] for answer in kept(host, "seer", "receipt")["answers"])


@pytest.mark.parametrize("stack", BROKEN)
def test_a_first_deployment_that_fails_is_stopped(failed, host, stack):
    assert kept(host, stack, "failed")["ended"] == "stopped"
    [container] = json.loads(host.check_output(f"docker inspect vllm-{stack}"))
    assert not container["State"]["Running"]


def test_the_engine_that_died_ended_with_status_0(failed, host):
    [container] = json.loads(host.check_output("docker inspect vllm-dies"))
    assert container["State"]["ExitCode"] == 0


# ------------------------------------------------------------------ sight


def test_sight_is_told_from_blindness(failed):
    """A short series; docs/questions.md has the long one. Both are up, the blind one because nobody asked it."""
    assert play(rolled_out=["seer", "blind"], vllm_stack_ask=False).returncode == 0
    address = json.loads((STATE / "hosts.json").read_text())[HOST]["address"]
    told = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "sight.py"), "--runs", str(SIGHT_RUNS),
         "--good", f"http://{address}:8310", "--blind", f"http://{address}:8315"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    print(told.stdout, told.stderr)
    assert told.returncode == 0
    assert f"false alarms in 0 of {SIGHT_RUNS} runs" in told.stdout
    assert f"passed in 0 of {SIGHT_RUNS} runs" in told.stdout
    assert f"conclusion vision_blind: {SIGHT_RUNS}" in told.stdout
