# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventories that are wrong in one place: exactly one finding, with the right code, place and remedy."""

from __future__ import annotations

import datetime
from typing import Any, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import inventory
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.sizes import GIB

from tests.unit.fleet.fleets import DIGEST, FLEET, GATEWAYS, GPU_HOSTS, MASTER_KEY, REMOVED, changed, findings_of

STACK = "ana-ml2/fleet_stacks/0"
STACK_PLACE = "host_vars of ana-ml2: fleet_stacks[0]"
MODEL = "*/fleet_models/qwen-vl"
MODEL_PLACE = "group_vars: fleet_models.qwen-vl"
IMAGE = "*/fleet_images/vllm"
IMAGE_PLACE = "group_vars: fleet_images.vllm"
GATEWAY = "ana-docker/fleet_gateway"
GATEWAY_PLACE = "variables of ana-docker: fleet_gateway"


def case(path: str, value: Any, code: str, place: str, says: str) -> Any:
    return pytest.param([(path, value)], code, place, says, id=f"{code}-{path.split('/', 1)[1]}-{says[:20]}")


WRONG = [
    # Misspelt keys at every level, and keys in the wrong place.
    case(f"{STACK}/gpuz", [1], "unknown_key", f"{STACK_PLACE}.gpuz", 'Did you mean "gpus"?'),
    case(f"{STACK}/gpu_memory_utilisation", 0.4, "unknown_key", f"{STACK_PLACE}.gpu_memory_utilisation", "utilization"),
    case(f"{STACK}/memory_floor", "9 GiB", "unknown_key", f"{STACK_PLACE}.memory_floor", "belongs to the model"),
    case(f"{STACK}/max_model_len", 8192, "unknown_key", f"{STACK_PLACE}.max_model_len", "under args:"),
    case(f"{STACK}/zzz", 1, "unknown_key", f"{STACK_PLACE}.zzz", "Known keys: api_key, args"),
    case(f"{MODEL}/sorce", "a/b", "unknown_key", f"{MODEL_PLACE}.sorce", 'Did you mean "source"?'),
    case(f"{MODEL}/port", 8000, "unknown_key", f"{MODEL_PLACE}.port", "belongs to the placement"),
    case(f"{IMAGE}/digets", DIGEST, "unknown_key", f"{IMAGE_PLACE}.digets", 'Did you mean "digest"?'),
    case(f"{MODEL}/checks/0/expects", [], "unknown_key", f"{MODEL_PLACE}.checks[0].expects", '"expect"'),
    case(
        "ana-ml2/fleet_gpus/0/keepfree", "x", "unknown_key", "host_vars of ana-ml2: fleet_gpus[0].keepfree", "keep_free"
    ),
    case(f"{GATEWAY}/master_keys", "x", "unknown_key", f"{GATEWAY_PLACE}.master_keys", 'Did you mean "master_key"?'),
    case(f"{GATEWAY}/weights", {}, "unknown_key", f"{GATEWAY_PLACE}.weights", "weight: on its stack"),
    case(f"{GATEWAY}/keys/0/model", ["vision"], "unknown_key", f"{GATEWAY_PLACE}.keys[0].model", 'mean "models"'),
    # Misspelt variables.
    case("ana-ml2/fleet_stack", [], "unknown_variable", "host_vars of ana-ml2: fleet_stack", 'mean "fleet_stacks"?'),
    case("*/fleet_model", {}, "unknown_variable", "group_vars: fleet_model", 'mean "fleet_models"?'),
    case("ana-ml2/fleet_rack_9", 4, "unknown_variable", "host_vars of ana-ml2: fleet_rack_9", "another prefix"),
    # Missing things.
    case(f"{STACK}/name", REMOVED, "missing_key", f"{STACK_PLACE}.name", "Add name."),
    case(f"{STACK}/model", REMOVED, "missing_key", f"{STACK_PLACE}.model", "Name one of fleet_models."),
    case(f"{STACK}/gpus", REMOVED, "missing_key", f"{STACK_PLACE}.gpus", "gpus: [1]"),
    case(f"{STACK}/port", REMOVED, "missing_key", f"{STACK_PLACE}.port", "port: 8007"),
    case(f"{STACK}/port", None, "missing_key", f"{STACK_PLACE}.port", "port: 8007"),
    case(f"{MODEL}/source", REMOVED, "missing_key", f"{MODEL_PLACE}.source", "owner/name"),
    case(f"{IMAGE}/repository", REMOVED, "missing_key", f"{IMAGE_PLACE}.repository", "Add repository."),
    case(f"{MODEL}/checks/0/ask", REMOVED, "missing_key", f"{MODEL_PLACE}.checks[0].ask", "Add ask."),
    case(
        "ana-ml2/fleet_gpus/1/index", REMOVED, "missing_key", "host_vars of ana-ml2: fleet_gpus[1].index", "Add index."
    ),
    case(f"{GATEWAY}/master_key", REMOVED, "missing_key", f"{GATEWAY_PLACE}.master_key", "Ansible Vault"),
    case(f"{GATEWAY}/image", REMOVED, "missing_key", f"{GATEWAY_PLACE}.image", "fleet_images"),
    case(GATEWAY, REMOVED, "missing_variable", GATEWAY_PLACE, "with image and master_key"),
    # Sizes.
    case(f"{MODEL}/memory_floor", 34, "size_without_unit", f"{MODEL_PLACE}.memory_floor", '"34 GiB"'),
    case(f"{MODEL}/memory_floor", "34", "size_without_unit", f"{MODEL_PLACE}.memory_floor", '"34 GiB"'),
    case(f"{MODEL}/memory_floor", "34 gb", "bad_size", f"{MODEL_PLACE}.memory_floor", 'Did you mean "34 GB"?'),
    case(f"{STACK}/kv_cache", "0 GiB", "out_of_range", f"{STACK_PLACE}.kv_cache", "above zero"),
    case(
        "ana-ml2/fleet_gpus/1/memory", 97887, "size_without_unit", "host_vars of ana-ml2: fleet_gpus[1].memory", "MiB"
    ),
    # Types and ranges.
    case(f"{STACK}/port", "eighty", "wrong_type", f"{STACK_PLACE}.port", "from 1 to 65535"),
    case(f"{STACK}/port", 80000, "out_of_range", f"{STACK_PLACE}.port", "80000"),
    case(f"{STACK}/port", True, "wrong_type", f"{STACK_PLACE}.port", "a truth value"),
    case(f"{STACK}/gpus", 1, "wrong_type", f"{STACK_PLACE}.gpus", "[1]"),
    case(f"{STACK}/gpus", ["one"], "wrong_type", f"{STACK_PLACE}.gpus[0]", "whole number"),
    case(f"{STACK}/gpus", [1, 1], "duplicate_gpu", f"{STACK_PLACE}.gpus", "once"),
    case(
        f"{STACK}/gpu_memory_utilization",
        40,
        "out_of_range",
        f"{STACK_PLACE}.gpu_memory_utilization",
        "40 percent is 0.4",
    ),
    case(f"{STACK}/gpu_memory_utilization", 0, "out_of_range", f"{STACK_PLACE}.gpu_memory_utilization", "above 0"),
    case(
        f"{STACK}/gpu_memory_utilization", "40 %", "wrong_type", f"{STACK_PLACE}.gpu_memory_utilization", "such as 0.40"
    ),
    case(f"{STACK}/min_kv_tokens", -1, "out_of_range", f"{STACK_PLACE}.min_kv_tokens", "-1"),
    case(f"{STACK}/weight", "half", "wrong_type", f"{STACK_PLACE}.weight", "whole number"),
    case(f"{STACK}/listen", "localhost", "bad_value", f"{STACK_PLACE}.listen", "127.0.0.1"),
    case(f"{STACK}/args", ["--dtype auto"], "wrong_type", f"{STACK_PLACE}.args", "as a key"),
    case(
        f"{STACK}/env", {"OMP_NUM_THREADS": True}, "wrong_type", f"{STACK_PLACE}.env.OMP_NUM_THREADS", '"1" or "true"'
    ),
    case(f"{STACK}/compose", "host", "wrong_type", f"{STACK_PLACE}.compose", "a mapping"),
    case(f"{MODEL}/thinking", "yes", "wrong_type", f"{MODEL_PLACE}.thinking", "without quotes"),
    case(f"{MODEL}/checks/0/expect", "cat", "wrong_type", f"{MODEL_PLACE}.checks[0].expect", "every group"),
    case(f"{MODEL}/checks/0/image", "cats.jpg", "bad_value", f"{MODEL_PLACE}.checks[0].image", "absolute path"),
    case(f"{MODEL}/args/seen", datetime.date(2026, 1, 1), "wrong_type", f"{MODEL_PLACE}.args.seen", "in quotes"),
    case(f"{MODEL}/revision", 123456, "wrong_type", f"{MODEL_PLACE}.revision", "in quotes"),
    case("*/fleet_models/qwen-vl", "Qwen/Qwen3-VL", "wrong_type", MODEL_PLACE, "a mapping"),
    case("*/fleet_models", ["qwen"], "wrong_type", "group_vars: fleet_models", "a mapping of names to models"),
    case("ana-ml2/fleet_stacks", {"vl": {}}, "wrong_type", "host_vars of ana-ml2: fleet_stacks", "a list"),
    case(f"{STACK}", "vl", "wrong_type", STACK_PLACE, "a mapping"),
    case(f"{IMAGE}/engine", 0.33, "wrong_type", f"{IMAGE_PLACE}.engine", "in quotes"),
    case(f"{GATEWAY}/timeout", "10m", "wrong_type", f"{GATEWAY_PLACE}.timeout", "seconds"),
    case(f"{GATEWAY}/aliases", ["vision"], "wrong_type", f"{GATEWAY_PLACE}.aliases", "alias: model"),
    case(f"{GATEWAY}/fallbacks", [{"a": ["b"]}], "wrong_type", f"{GATEWAY_PLACE}.fallbacks", "model: [other"),
    case(f"{GATEWAY}/settings", ["x"], "wrong_type", f"{GATEWAY_PLACE}.settings", "a mapping"),
    case(f"{GATEWAY}/image", "lightllm", "unknown_image", f"{GATEWAY_PLACE}.image", 'Did you mean "litellm"?'),
    # Enumerations, names and forms.
    case(f"{MODEL}/task", "chta", "not_a_choice", f"{MODEL_PLACE}.task", 'Did you mean "chat"?'),
    case(f"{MODEL}/modalities", ["text", "pictures"], "not_a_choice", f"{MODEL_PLACE}.modalities[1]", "image"),
    case(f"{MODEL}/source", "models/qwen/vl", "bad_value", f"{MODEL_PLACE}.source", "absolute path"),
    case(f"{IMAGE}/repository", "vllm/vllm-openai:v0.33.0", "bad_value", f"{IMAGE_PLACE}.repository", "without tag"),
    case(f"{IMAGE}/engine", "nightly", "bad_value", f"{IMAGE_PLACE}.engine", '"0.33.0"'),
    case(f"{STACK}/name", "Qwen VL", "bad_value", f"{STACK_PLACE}.name", "lower-case"),
    case(f"{STACK}/container", "-x", "bad_value", f"{STACK_PLACE}.container", "letters"),
    case("*/fleet_models/a b", {"source": "a/b"}, "bad_name", "group_vars: fleet_models.a b", "without spaces"),
    case(
        "ana-ml2/fleet_gpus/1/uuid", "GPU-1", "bad_value", "host_vars of ana-ml2: fleet_gpus[1].uuid", "nvidia-smi -L"
    ),
    case(
        "ana-ml2/fleet_gpus/1/compute_capability",
        "sm_120",
        "bad_value",
        "host_vars of ana-ml2: fleet_gpus[1].compute_capability",
        '"12.0"',
    ),
    # Names that must exist, and names that must be one of a kind.
    case(f"{STACK}/model", "qwen-vk", "unknown_model", f"{STACK_PLACE}.model", 'Did you mean "qwen-vl"?'),
    case(f"{STACK}/image", "vlm", "unknown_image", f"{STACK_PLACE}.image", 'Did you mean "vllm"?'),
    case(f"{MODEL}/image", "nothing-like-it", "unknown_image", f"{MODEL_PLACE}.image", "Known: litellm, old, vllm."),
    case(
        "ana-ml2/fleet_stacks/1/name", "vl", "duplicate_stack", "host_vars of ana-ml2: fleet_stacks[1].name", "project"
    ),
    case(
        "ana-ml2/fleet_gpus/2/index", 1, "duplicate_gpu", "host_vars of ana-ml2: fleet_gpus[2].index", "fleet_gpus[1]"
    ),
    case(
        f"{MODEL}/args",
        {"max-model-len": 1, "max_model_len": 2},
        "duplicate_option",
        f"{MODEL_PLACE}.args.max_model_len",
        "given twice",
    ),
    case(
        f"{GATEWAY}/keys/1",
        {"name": "team-a", "key": "sk-team-b-0123456789"},
        "duplicate_key",
        f"{GATEWAY_PLACE}.keys[1].name",
        "its own",
    ),
    case(
        "ana-docker/fleet_stacks",
        [{"name": "x"}],
        "stacks_outside_gpu_hosts",
        "host_vars of ana-docker: fleet_stacks",
        "gpu_hosts",
    ),
    # Secrets that are none.
    case(f"{GATEWAY}/master_key", "", "gateway_master_key_weak", f"{GATEWAY_PLACE}.master_key", "is empty"),
    case(f"{GATEWAY}/master_key", "sk-1234", "gateway_master_key_weak", f"{GATEWAY_PLACE}.master_key", "everybody"),
    case(f"{GATEWAY}/master_key", "sk-0123456789ab", "gateway_master_key_weak", f"{GATEWAY_PLACE}.master_key", "fewer"),
    case(f"{GATEWAY}/master_key", "a" * 40, "gateway_master_key_weak", f"{GATEWAY_PLACE}.master_key", "repeats"),
    case(f"{GATEWAY}/keys/0/key", "short", "gateway_key_weak", f"{GATEWAY_PLACE}.keys[0].key", "openssl"),
    case(
        f"{GATEWAY}/database_url", "sqlite:///x", "gateway_database", f"{GATEWAY_PLACE}.database_url", "postgresql://"
    ),
]


def test_the_fleet_that_is_made_wrong_is_right() -> None:
    assert findings_of(FLEET) == []


@pytest.mark.parametrize(("edits", "code", "place", "says"), WRONG)
def test_one_clear_finding(edits: list[tuple[str, Any]], code: str, place: str, says: str) -> None:
    findings = findings_of(changed(*edits))
    assert [(finding.code, finding.place) for finding in findings] == [(code, place)], "\n".join(map(str, findings))
    finding = findings[0]
    assert says in f"{finding.problem} {finding.remedy}"
    assert finding.remedy
    assert finding.severity == "error"


def test_every_finding_comes_at_once() -> None:
    edits = [
        (f"{STACK}/gpuz", [1]),
        (f"{STACK}/model", "qwen-vk"),
        (f"{STACK}/port", "x"),
        (f"{MODEL}/task", "chta"),
        ("ana-ml3/fleet_gpus/0/index", "zero"),
        (f"{GATEWAY}/master_key", "sk-1234"),
    ]
    places = sorted(finding.place for finding in findings_of(changed(*edits)))
    assert places == sorted(
        [
            f"{STACK_PLACE}.gpuz",
            f"{STACK_PLACE}.model",
            f"{STACK_PLACE}.port",
            f"{MODEL_PLACE}.task",
            "host_vars of ana-ml3: fleet_gpus[0].index",
            f"{GATEWAY_PLACE}.master_key",
        ]
    )


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        (f"{GATEWAY}/master_key", "sk-weak-7c1"),
        (f"{GATEWAY}/keys/0/key", "tiny-7c1"),
        (f"{GATEWAY}/database_url", "mysql://user:hunter2@db/x"),
        (f"{GATEWAY}/master_key", ["sk-in-a-list-7c1"]),
        (f"{STACK}/api_key", ["sk-in-a-list-7c1"]),
        (f"{STACK}/secrets", {"HF_TOKEN": {"hf": "hf-7c1"}}),
        (f"{STACK}/env", {"HF_TOKEN": ["hf-7c1"]}),
    ],
)
def test_no_message_repeats_a_secret(path: str, secret: Any) -> None:
    findings = findings_of(changed((path, secret)))
    assert findings
    text = "\n".join(map(str, findings))
    assert "7c1" not in text
    assert "hunter2" not in text


def parsed(*edits: tuple[str, Any]) -> Any:
    return inventory.parse(changed(*edits), gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)


def test_what_is_read() -> None:
    fleet = parsed()
    stack = fleet.hosts["ana-ml2"].stacks[1]
    assert (stack.name, stack.container, stack.position) == ("embed", "vllm-embed", 1)
    assert stack.args == {"max_model_len": 8192}
    assert stack.model.source == "/opt/models/embedder"
    assert fleet.hosts["ana-ml2"].gpus[1].memory == 96 * GIB
    assert fleet.models["qwen-vl"].env == {"OMP_NUM_THREADS": "14"}
    assert fleet.models["qwen-vl"].checks[0].expect == (("cat", "cats"), ("sofa",))
    assert fleet.images["vllm"].reference == f"vllm/vllm-openai@{DIGEST}"
    assert fleet.gateways["ana-docker"].master_key == MASTER_KEY
    assert fleet.gateways["ana-docker"].keys[0].models == ("vision",)


@pytest.mark.parametrize(
    ("key", "lower", "want"),
    [
        ("args", {"max-model-len": 4096}, {"max_model_len": 4096}),
        ("args", {"--seed": 1}, {"max_model_len": 32768, "seed": 1}),
        ("args", {"max_model_len": None, "seed": 1}, {"seed": 1}),
        ("args", {}, {"max_model_len": 32768}),
        ("env", {"OMP_NUM_THREADS": 4, "A": "b"}, {"OMP_NUM_THREADS": "4", "A": "b"}),
        ("env", {"OMP_NUM_THREADS": None}, {}),
    ],
)
def test_the_stack_beats_its_model(key: str, lower: dict[str, Any], want: dict[str, Any]) -> None:
    first, _embed, other = parsed((f"{STACK}/{key}", lower)).hosts["ana-ml2"].stacks
    assert getattr(first, key) == want
    assert getattr(other, key) is getattr(other.model, key)


def test_the_stacks_own_image_and_checks() -> None:
    checks = [{"ask": "And now?", "expect": [["yes"]], "max_tokens": 5}]
    stack = parsed((f"{STACK}/image", "old"), (f"{STACK}/checks", checks)).hosts["ana-ml2"].stacks[0]
    assert (stack.image.name, stack.checks[0].ask, stack.checks[0].max_tokens) == ("old", "And now?", 5)


def test_a_model_without_an_image_is_fine_when_every_stack_names_one() -> None:
    edits = [("*/fleet_models/embedder/image", REMOVED), ("ana-ml2/fleet_stacks/1/image", "vllm")]
    assert parsed(*edits).hosts["ana-ml2"].stacks[1].image.name == "vllm"
    finding = findings_of(changed(edits[0]))[0]
    assert (finding.code, finding.place) == ("missing_key", "host_vars of ana-ml2: fleet_stacks[1].image")


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        ("port", "8100", 8100),
        ("gpu_memory_utilization", "0.25", 0.25),
        ("listen", "::1", "::1"),
        ("kv_cache", "6 GiB", 6 * GIB),
    ],
)
def test_what_is_taken_although_it_could_be_neater(path: str, value: Any, want: Any) -> None:
    assert getattr(parsed((f"{STACK}/{path}", value)).hosts["ana-ml2"].stacks[0], path) == want


def test_subclasses_of_builtin_types_become_the_builtin_types() -> None:
    class Text(str):
        pass

    class Number(int):
        pass

    class Table(dict):  # type: ignore[type-arg]
        pass

    table = Table({Text("port"): Number(8100), Text("args"): Table({Text("a"): [Text("x"), Table(b=Number(1))]})})
    stack = parsed((STACK, {**FLEET["ana-ml2"]["fleet_stacks"][0], **table})).hosts["ana-ml2"].stacks[0]
    args = stack.args
    assert args == {"max_model_len": 32768, "a": ["x", {"b": 1}]}
    assert [type(stack.port), type(args["a"][0]), type(args["a"][1]), type(args["a"][1]["b"])] == [int, str, dict, int]


def test_options_of_the_role_are_not_variables_of_the_fleet() -> None:
    assert findings_of(changed(("*/fleet_plan_show", False))) == []


def test_equal_variables_are_read_once_and_different_ones_by_host() -> None:
    fleet = parsed()
    assert fleet.hosts["ana-ml2"].stacks[0].model is fleet.hosts["ana-ml3"].stacks[0].model
    findings = findings_of(changed(("ana-ml3/fleet_models/qwen-vl/task", "chta")))
    assert [finding.place for finding in findings] == ["variables of ana-ml3: fleet_models.qwen-vl.task"]


def test_a_stack_without_a_gpu() -> None:
    assert parsed((f"{STACK}/gpus", [])).hosts["ana-ml2"].stacks[0].gpus == ()


@pytest.mark.parametrize("gateways", [[], GATEWAYS])
def test_a_fleet_may_have_no_gateway(gateways: list[str]) -> None:
    fleet = inventory.parse(FLEET, gpu_hosts=GPU_HOSTS, gateways=gateways)
    assert list(fleet.gateways) == gateways


def test_hosts_without_variables() -> None:
    host: Optional[Any] = inventory.parse({}, gpu_hosts=["bare"], gateways=[]).hosts.get("bare")
    assert host is not None
    assert (host.gpus, host.stacks) == ((), ())
    with pytest.raises(FleetError, match="missing_variable"):
        inventory.parse({}, gpu_hosts=[], gateways=["bare"])
