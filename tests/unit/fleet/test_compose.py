# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import compose
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.compose import StackSettings
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import ERROR, WARNING
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import (
    Check,
    Gpu,
    Host,
    Image,
    Model,
    Stack,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import RenderedStack

from tests.unit.fleet.deployments import DIGEST, QWEN3_VL_ARGS, QWEN3_VL_ENV, production

SNAPSHOTS = Path(__file__).parent / "snapshots"
NIGHTLY = Image("vllm-nightly", "vllm/vllm-openai", DIGEST, tag="nightly", engine="0.19.2")
RELEASE = Image("vllm", "vllm/vllm-openai", "sha256:" + "32" * 32, tag="v0.32.0", engine="0.32.0")
TWO_CATS = Check(
    ask="How many cats and what surface are they on?",
    expect=(("two", "2"), ("pink",)),
    image="http://images.cocodataset.org/val2017/000000039769.jpg",
)


def make(model: Model, image: Image, **changes) -> Stack:
    values = {
        "host": "ana-ml2",
        "position": 0,
        "name": "one",
        "model": model,
        "image": image,
        "gpus": (0,),
        "port": 8001,
        "container": "vllm-one",
        "args": model.args,
        "env": model.env,
        "secrets": model.secrets,
        "checks": model.checks,
        **changes,
    }
    return Stack(**values)


FLEET, HOST_SETTINGS = production()
BLACKWELL = HOST_SETTINGS["ana-blackwell"]
(QWEN35,) = [stack for stack in FLEET.hosts["ana-ml2"].stacks if stack.name == "qwen35-vl"]
(QWEN3_VL,) = FLEET.hosts["ana-blackwell"].stacks
PLAIN = make(Model("plain", "Org/Plain", "vllm"), RELEASE)
SETTINGS = StackSettings()


def service(stack: Stack, settings: StackSettings = SETTINGS, host=None) -> dict:
    """The service as a YAML reader sees it in compose.yaml."""
    rendered = compose.render(stack, settings, host)
    document = yaml.safe_load(rendered.files["compose.yaml"].content)
    assert list(document) == ["name", "services"]
    assert list(document["services"]) == [stack.name] == [document["name"]]
    return document["services"][stack.name]


def engine_config(stack: Stack, settings: StackSettings = SETTINGS) -> dict:
    return yaml.safe_load(compose.render(stack, settings).files["vllm.yaml"].content)


# ------------------------------------------------------------------ the two production deployments


@pytest.mark.parametrize(
    ("stack", "settings"),
    [
        pytest.param(QWEN35, HOST_SETTINGS["ana-ml2"], id="qwen35-vl"),
        pytest.param(QWEN3_VL, BLACKWELL, id="qwen3-vl"),
        pytest.param(
            replace(PLAIN, api_key="a$b'c", gpus=(0, 1), listen="10.0.0.7", name="secretive", kv_cache=6 * 2**30),
            StackSettings(hub_token="hf_not_a_real_token", gpu_mode="cdi", media_cache="/opt/media", hub_offline=True),
            id="secretive",
        ),
    ],
)
def test_the_files_are_what_the_snapshot_says(stack, settings):
    rendered = compose.render(stack, settings)
    folder = SNAPSHOTS / stack.name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, file in rendered.files.items():
            (folder / name.replace(".env", "env")).write_text(file.content, encoding="utf-8")
    expected = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert {name.replace(".env", "env"): file.content for name, file in rendered.files.items()} == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[(name, value) for name, value in QWEN3_VL_ARGS.items() if name not in ("enforce_eager",)],
        ("no_enforce_eager", True),
        ("gpu_memory_utilization", 0.93),
        ("port", 8000),
        ("model", "/opt/models/Qwen3-VL-8B-Thinking-NVFP4"),
        ("served_model_name", "Qwen3-VL"),
    ],
)
def test_the_second_deployment_has_every_engine_setting(key, value):
    written = engine_config(QWEN3_VL)[key.replace("_", "-")]
    assert written == value
    assert type(written) is type(value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runtime", "nvidia"),
        ("network_mode", "host"),
        ("ipc", "host"),
        ("shm_size", "16gb"),
        ("restart", "no"),
        ("container_name", "vllm-qwen3-vl"),
        ("image", f"vllm/vllm-openai@{DIGEST}"),
    ],
)
def test_the_second_deployment_has_every_compose_setting(key, value):
    assert service(QWEN3_VL, BLACKWELL)[key] == value


def test_the_second_deployment_has_its_gpu_its_volumes_and_no_ports():
    written = service(QWEN3_VL, BLACKWELL)
    (device,) = written["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "device_ids": ["1"], "capabilities": ["gpu"]}
    assert written["environment"]["NVIDIA_VISIBLE_DEVICES"] == "1"
    assert "ports" not in written
    *caches, models = written["volumes"]
    assert [volume.split(":")[1] for volume in caches] == [
        "/etc/modelfleet/vllm.yaml",
        "/root/.cache/huggingface",
        "/root/.cache/vllm",
        "/var/cache/vllm-media",
    ]
    assert models["source"] == models["target"] == "/opt/models/Qwen3-VL-8B-Thinking-NVFP4"
    assert models["read_only"] is True


@pytest.mark.parametrize(("name", "value"), QWEN3_VL_ENV.items())
def test_the_second_deployment_has_every_variable(name, value):
    assert service(QWEN3_VL, BLACKWELL)["environment"][name] == value


def test_the_second_deployment_contradicts_itself_in_one_thing():
    (finding,) = compose.contradictions(QWEN3_VL, SETTINGS)
    assert (finding.code, finding.severity) == ("compose_shm_host_ipc", WARNING)
    assert finding.place == "host_vars of ana-blackwell: fleet_stacks[0].compose.shm_size"


def test_what_a_rollout_must_know_about_the_first_deployment():
    rendered = compose.render(QWEN35, SETTINGS)
    assert rendered.directory == "/opt/docker/compose/qwen35-vl"
    assert rendered.url == "http://127.0.0.1:8007"
    assert (rendered.container, rendered.served_model_name, rendered.root) == (
        "vllm-qwen35",
        "qwen3.5-9b-fp8",
        "Qwen/Qwen3.5-9B",
    )
    assert (rendered.max_model_len, rendered.share, rendered.gpus) == (32768, 0.40, (1,))
    assert rendered.image == f"vllm/vllm-openai@{DIGEST}"
    assert rendered.asks == {
        "task": "chat",
        "modalities": ["text", "image", "video"],
        "thinking": True,
        "tool_parser": False,
        "structured": False,
        "max_model_len": 32768,
        "images_per_request": 2,
        "checks": [
            {
                "ask": "How many cats and what surface are they on?",
                "expect": [["two", "2"], ["pink"]],
                "image": "http://images.cocodataset.org/val2017/000000039769.jpg",
                "thinking": False,
                "max_tokens": 120,
            }
        ],
    }
    assert compose.render(QWEN3_VL, SETTINGS).asks["tool_parser"] is True


@pytest.mark.parametrize(
    ("limits", "images"),
    [(None, 2), ({"video": 1}, 2), ({"image": 1}, 1), ({"image": 3}, 3), ({"image": {"count": 1, "width": 512}}, 1)],
)
def test_as_many_pictures_are_asked_about_as_a_request_may_hold(limits: Any, images: int) -> None:
    args = {**QWEN3_VL.args, "limit_mm_per_prompt": limits}
    assert compose.asks(replace(QWEN3_VL, args=args))["images_per_request"] == images


# ------------------------------------------------------------------ GPUs


@pytest.mark.parametrize(
    ("mode", "gpus", "wanted"),
    [
        ("nvidia", (0, 1), {"driver": "nvidia", "device_ids": ["0", "GPU-b"], "capabilities": ["gpu"]}),
        (
            "cdi",
            (0, 1),
            {"driver": "cdi", "device_ids": ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-b"], "capabilities": ["gpu"]},
        ),
        ("none", (0,), None),
        ("runtime", (1,), None),
        ("nvidia", (), None),
    ],
)
def test_the_gpus_of_the_stack_and_no_others(mode, gpus, wanted):
    host = Host("ana-ml2", (Gpu(0), Gpu(1, uuid="GPU-b")))
    written = service(replace(PLAIN, gpus=gpus), StackSettings(gpu_mode=mode), host)
    devices = written.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices")
    assert devices == ([wanted] if wanted else None)
    assert (written.get("runtime") == "nvidia") == (mode == "runtime")
    assert written["environment"].get("NVIDIA_VISIBLE_DEVICES") == ("GPU-b" if mode == "runtime" else None)


def test_several_gpus_mean_tensor_parallel():
    assert engine_config(replace(PLAIN, gpus=(0, 1)))["tensor-parallel-size"] == 2
    assert engine_config(replace(PLAIN, gpus=(0, 1), args={"tensor_parallel_size": 1}))["tensor-parallel-size"] == 1


# ------------------------------------------------------------------ what `compose:` may change


@pytest.mark.parametrize(
    ("over", "key", "value"),
    [
        ({"init": True}, "init", True),
        ({"restart": "always"}, "restart", "always"),
        (
            {"logging": {"options": {"max-file": "9"}}},
            "logging",
            {"driver": "json-file", "options": {"max-size": "50m", "max-file": "9"}},
        ),
        ({"logging": None}, "logging", None),
        ({"healthcheck": {"disable": True}}, "healthcheck", None),
        ({"ports": ["9000:8000"]}, "ports", ["9000:8000"]),
        ({"ulimits": {"memlock": -1}}, "ulimits", {"memlock": -1}),
        ({"cap_add": ["SYS_NICE"]}, "cap_add", ["SYS_NICE"]),
        ({"labels": {"team": "a"}}, "labels", None),
    ],
)
def test_compose_is_merged_over_the_service(over, key, value):
    written = service(replace(PLAIN, compose=over))
    if value is not None:
        assert written[key] == value
    elif key == "logging":
        assert key not in written
    else:
        assert over[key].items() <= written[key].items()
        assert len(written[key]) > 1


def test_volumes_are_added_and_replaced_by_target():
    over = {"volumes": ["/data:/data", "/fast:/root/.cache/vllm", {"type": "tmpfs", "target": "/scratch"}]}
    volumes = service(replace(PLAIN, compose=over))["volumes"]
    assert volumes[:2] == [
        "/opt/docker/compose/one/vllm.yaml:/etc/modelfleet/vllm.yaml:ro",
        "/opt/models/hub:/root/.cache/huggingface",
    ]
    assert volumes[2:] == over["volumes"]


@pytest.mark.parametrize("written", [{"A": "1", "NEW": "x=y"}, ["A=1", "NEW=x=y"]], ids=["mapping", "list"])
def test_environment_is_merged_however_it_is_written(written):
    environment = service(replace(PLAIN, env={"A": "0", "B": "2"}, compose={"environment": written}))["environment"]
    assert {"A": "1", "B": "2", "NEW": "x=y", "DO_NOT_TRACK": "1"}.items() <= environment.items()


def test_a_stack_beats_what_all_stacks_have_in_addition():
    settings = StackSettings(extra={"init": True, "restart": "always"})
    written = service(replace(PLAIN, compose={"restart": "no"}), settings)
    assert (written["init"], written["restart"]) == (True, "no")


@pytest.mark.parametrize("key", sorted(compose.OWNED))
def test_what_is_decided_elsewhere_may_not_stand_under_compose(key):
    (finding,) = compose.contradictions(replace(PLAIN, compose={key: "x"}), SETTINGS)
    assert (finding.code, finding.severity) == ("compose_owned", ERROR)
    assert finding.place.endswith(f".compose.{key}")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"compose": {"network_mode": "host", "ports": ["1:1"]}}, "compose_ports_host_network"),
        ({"compose": {"network_mode": "host", "networks": ["a"]}}, "compose_networks_host_network"),
        ({"compose": {"ipc": "host", "shm_size": "1gb"}}, "compose_shm_host_ipc"),
        ({"compose": {"restart": "on-failure:3"}}, "compose_restart_on_failure"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, "env_cuda_visible_devices"),
        ({"compose": {"environment": ["CUDA_VISIBLE_DEVICES=1"]}}, "env_cuda_visible_devices"),
    ],
)
def test_contradictions_are_found(changes, code):
    (finding,) = compose.contradictions(replace(PLAIN, **changes), SETTINGS)
    assert finding.code == code


def test_a_plain_stack_contradicts_nothing():
    assert compose.contradictions(PLAIN, SETTINGS) == []
    assert compose.contradictions(QWEN35, SETTINGS) == []


# ------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("listen", "port", "url"),
    [
        ("", "0.0.0.0:8001:8000", "http://127.0.0.1:8001"),
        ("127.0.0.1", "127.0.0.1:8001:8000", "http://127.0.0.1:8001"),
        ("10.0.0.7", "10.0.0.7:8001:8000", "http://10.0.0.7:8001"),
        ("::", "[::]:8001:8000", "http://127.0.0.1:8001"),
        ("fd00::7", "[fd00::7]:8001:8000", "http://[fd00::7]:8001"),
    ],
)
def test_where_it_listens_and_where_the_host_asks(listen, port, url):
    stack = replace(PLAIN, listen=listen)
    assert service(stack)["ports"] == [port]
    assert compose.render(stack, SETTINGS).url == url


def test_on_the_hosts_network_the_engine_listens_itself():
    stack = replace(PLAIN, listen="10.0.0.7", compose={"network_mode": "host"})
    config = engine_config(stack)
    assert (config["host"], config["port"]) == ("10.0.0.7", 8001)
    assert "http://127.0.0.1:8001/health" in service(stack)["healthcheck"]["test"][1]


# ------------------------------------------------------------------ secrets


SECRET = replace(PLAIN, api_key="key-1", secrets={"OTHER": "s3cret"})


def test_secrets_stand_in_env_only():
    rendered = compose.render(SECRET, StackSettings(hub_token="hf_x"))
    for name in ("key-1", "s3cret", "hf_x"):
        assert [file for file, content in rendered.files.items() if name in content.content] == [".env"]
        assert name in rendered.secrets
        assert name not in json.dumps(dict(rendered.service_definition))
    assert (rendered.files[".env"].mode, rendered.files[".env"].secret) == ("0600", True)
    assert rendered.secret_environment == {"HF_TOKEN": "hf_x", "OTHER": "s3cret", "VLLM_API_KEY": "key-1"}
    assert rendered.service_definition["env_file"] == [".env"]


def test_without_secrets_there_is_no_env_file():
    rendered = compose.render(PLAIN, SETTINGS)
    assert set(rendered.files) == {"compose.yaml", "vllm.yaml"}
    assert "env_file" not in rendered.service_definition


def test_a_secret_beats_a_plain_variable_of_the_same_name():
    assert "OTHER" not in service(replace(SECRET, env={"OTHER": "plain"}))["environment"]


# ------------------------------------------------------------------ hash, wire


@pytest.mark.parametrize(
    "changed",
    [
        replace(SECRET, api_key="key-2"),
        replace(SECRET, args={"max_model_len": 4096}),
        replace(SECRET, env={"A": "1"}),
        replace(SECRET, gpus=(1,)),
        replace(SECRET, compose={"init": True}),
        replace(SECRET, image=NIGHTLY),
        replace(SECRET, gpu_memory_utilization=0.3),
    ],
    ids=["secret", "args", "env", "gpus", "compose", "image", "share"],
)
def test_the_hash_changes_with_what_the_container_is(changed):
    assert compose.render(changed, SETTINGS).hash != compose.render(SECRET, SETTINGS).hash


@pytest.mark.parametrize(
    ("changed", "settings"),
    [
        (replace(SECRET, position=7), SETTINGS),
        (replace(SECRET, checks=(TWO_CATS,)), SETTINGS),
        (replace(SECRET, min_kv_tokens=5), SETTINGS),
        (SECRET, StackSettings(timeout_s=60)),
    ],
    ids=["position", "checks", "min_kv_tokens", "timeout"],
)
def test_the_hash_does_not_change_with_what_is_only_asked_of_it(changed, settings):
    assert compose.render(changed, settings).hash == compose.render(SECRET, SETTINGS).hash


def test_the_order_of_keys_does_not_matter():
    one = replace(PLAIN, args={"a": 1, "b": 2}, env={"C": "1", "D": "2"})
    other = replace(PLAIN, args={"b": 2, "a": 1}, env={"D": "2", "C": "1"})
    assert compose.render(one, SETTINGS) == compose.render(other, SETTINGS)


def test_the_container_carries_its_hash():
    rendered = compose.render(PLAIN, SETTINGS)
    assert service(PLAIN)["labels"] == {"modelfleet.stack": "one", "modelfleet.hash": rendered.hash} == rendered.labels
    assert len(rendered.hash) == 64


@pytest.mark.parametrize("stack", [QWEN35, QWEN3_VL, SECRET], ids=lambda stack: stack.name)
def test_a_rendered_stack_crosses_the_wire(stack):
    rendered = compose.render(stack, SETTINGS)
    assert RenderedStack.from_dict(json.loads(json.dumps(rendered.as_dict()))) == rendered


# ------------------------------------------------------------------ what the real Compose makes of it


# `make setup` puts it there; the environment of the oldest Python has none of its own.
COMPOSE = Path(__file__).parents[3] / ".venv" / "bin" / "docker-compose"


def as_compose_reads_it(rendered: RenderedStack, folder: Path) -> dict:
    for name, file in rendered.files.items():
        (folder / name).write_bytes(file.content.encode())
    done = subprocess.run(
        [COMPOSE, "--project-directory", str(folder), "config", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["name"] == rendered.name
    return document["services"][rendered.name]


@pytest.mark.parametrize("stack", [QWEN35, QWEN3_VL, SECRET], ids=lambda stack: stack.name)
@pytest.mark.parametrize("mode", compose.GPU_MODES)
def test_compose_accepts_the_files(stack, mode, tmp_path):
    rendered = compose.render(stack, StackSettings(gpu_mode=mode, hub_token="hf_x"))
    read = as_compose_reads_it(rendered, tmp_path)
    assert read["image"] == rendered.image
    assert read["labels"] == dict(rendered.labels)
    wanted = rendered.service_definition["environment"]
    assert wanted.items() <= read["environment"].items()
    assert set(read["environment"]) == set(wanted) | set(rendered.secret_environment)


NASTY = [
    "plain",
    "a$b",
    "$",
    "$$",
    "${X}",
    "${X:-y}",
    "a'b",
    'a"b',
    "a\\b",
    "a\\",
    "a\\\\",
    "a\\'b",
    "a\\\\'b",
    "#x",
    "a=b",
    "é😀",
    "\\n",
    "\\$x",
    "a$1'c\\",
    "'",
    '"',
    "'$x'",
    "`id`",
    "!x",
    '\\"',
    "${",
    "$(x)",
    "\\\\$x",
    "x\\$",
    "\\'",
    "'\\",
    "%s",
    "{{x}}",
    "~",
    "yes",
    "0x1F",
    "1e3",
    "a:b",
]
NASTY += ["", " lead", "trail ", "a #b", "a\tb", "a\nb", "a'\nb$c", "a\r\nb", "a: b", "two words", "x" * 4000]


def test_every_value_reaches_the_container_unchanged(tmp_path):
    """In .env and in compose.yaml alike; `config` prints a `$` as `$$` again, so that its output could be read back."""
    values = {f"V{index}": value for index, value in enumerate(NASTY)}
    secrets = {f"S{index}": value for index, value in enumerate(NASTY)}
    stack = replace(PLAIN, env=values, secrets={**secrets, "X": "interpolated"})
    read = as_compose_reads_it(compose.render(stack, SETTINGS), tmp_path)["environment"]
    for name, value in {**values, **secrets}.items():
        assert read[name] == value.replace("$", "$$"), name
