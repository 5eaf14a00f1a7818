# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets that are well formed and cannot work, or should make somebody look; and the order in which stacks start."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import inventory, plan
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import ERROR, WARNING, FleetError

from tests.unit.fleet import deployments
from tests.unit.fleet.fleets import (
    DIGEST,
    FLEET,
    GATEWAYS,
    GPU_HOSTS,
    REMOVED,
    changed,
    findings_of,
    plan_of,
)

STACKS = "ana-ml2/fleet_stacks"
PLACE = "host_vars of ana-ml2: fleet_stacks"
MODEL = "*/fleet_models/qwen-vl"
MODEL_PLACE = "group_vars: fleet_models.qwen-vl"
GATEWAY = "ana-docker/fleet_gateway"
GATEWAY_PLACE = "variables of ana-docker: fleet_gateway"
IMAGE_PLACE = "group_vars: fleet_images.vllm.digest"


def case(edits: dict[str, Any], code: str, place: str, says: str) -> Any:
    return pytest.param(list(edits.items()), code, place, says, id=f"{code}-{says[:24]}")


REFUSED = [
    # Memory.
    case(
        {f"{STACKS}/0/gpu_memory_utilization": 0.65},
        "gpu_overcommitted",
        f"{PLACE}[2].gpu_memory_utilization",
        "0.65 (vl) + 0.1 (embed) + 0.3 (wide) = 1.05 of the card (100.37 GiB of 95.59 GiB), more than 1. "
        "Lower the shares by 0.05 together",
    ),
    case(
        {f"{STACKS}/1/gpu_memory_utilization": REMOVED, f"{STACKS}/1/kv_cache": "6 GiB"},
        "gpu_overcommitted",
        f"{PLACE}[1].kv_cache",
        "0.92 x 95.59 GiB = 87.94 GiB free at its start, GPU 1 has 57.35 GiB; held by stack vl 38.24 GiB",
    ),
    case(
        {f"{STACKS}/1/kv_cache": "80 GiB", "*/fleet_models/embedder/memory_floor": "2 GiB"},
        "gpu_overcommitted",
        f"{PLACE}[1].kv_cache",
        "38.24 GiB (vl) + 82.00 GiB (embed) exceed the 95.59 GiB of GPU 1 by",
    ),
    case(
        {f"{STACKS}/1/kv_cache": "99 GiB", "*/fleet_models/embedder/memory_floor": "2 GiB"},
        "kv_cache_too_large",
        f"{PLACE}[1].kv_cache",
        "Set kv_cache to at most 93.08 GiB",
    ),
    case(
        {f"{STACKS}/0/gpu_memory_utilization": 0.2},
        "below_memory_floor",
        f"{PLACE}[0].gpu_memory_utilization",
        "0.20 x 95.59 GiB = 19.12 GiB, below the model's memory_floor of 20.00 GiB. "
        "Set gpu_memory_utilization to at least 0.21.",
    ),
    case(
        {"ana-ml2/fleet_gpus/1/memory": "16 GiB", f"{STACKS}/2/gpus": [2], f"{STACKS}/0/gpu_memory_utilization": 0.9},
        "below_memory_floor",
        f"{PLACE}[0].gpu_memory_utilization",
        "does not fit on this card",
    ),
    # Cards.
    case({f"{STACKS}/1/gpus": [0]}, "gpu_kept_free", f"{PLACE}[1].gpus", "kept free: hot-reloading"),
    case({f"{STACKS}/1/gpus": [7]}, "gpu_unknown", f"{PLACE}[1].gpus", "fleet_gpus lists 0, 1, 2"),
    case(
        {"ana-ml3/fleet_gpus": REMOVED}, "gpu_unknown", "host_vars of ana-ml3: fleet_stacks[0].gpus", "List the cards"
    ),
    case(
        {f"{STACKS}/2/args": {"tensor_parallel_size": 4}},
        "parallel_size_mismatch",
        f"{PLACE}[2].gpus",
        "names 2 GPU(s), tensor_parallel_size 4 needs 4",
    ),
    case(
        {f"{STACKS}/2/args": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}},
        "parallel_size_mismatch",
        f"{PLACE}[2].gpus",
        "tensor_parallel_size 2 x pipeline_parallel_size 2 needs 4",
    ),
    case(
        {f"{STACKS}/2/args": {"data_parallel_size": 2}},
        "parallel_size_mismatch",
        f"{PLACE}[2].gpus",
        "make the product of the parallel sizes 2",
    ),
    case(
        {"ana-ml2/fleet_gpus/1/compute_capability": "9.0", f"{STACKS}/1/args": {"quantization": "modelopt_fp4"}},
        "quantisation_unsupported",
        f"{PLACE}[1].gpus",
        "NVFP4 needs compute capability 10.0 (Blackwell), the card has 9.0",
    ),
    case(
        {"ana-ml2/fleet_gpus/1/compute_capability": "8.9", "*/fleet_models/embedder/source": "me/Embed-NVFP4"},
        "quantisation_unsupported",
        f"{PLACE}[1].gpus",
        "env.VLLM_NVFP4_GEMM_BACKEND: marlin",
    ),
    case(
        {"ana-ml2/fleet_gpus/1/compute_capability": "7.0", f"{STACKS}/1/args": {"quantization": "awq"}},
        "quantisation_unsupported",
        f"{PLACE}[1].gpus",
        "AWQ needs compute capability 7.5, the card has 7.0",
    ),
    case(
        {"ana-ml2/fleet_gpus/1/compute_capability": "7.5", f"{STACKS}/1/args": {"dtype": "bfloat16"}},
        "quantisation_unsupported",
        f"{PLACE}[1].gpus",
        "bfloat16 needs compute capability 8.0",
    ),
    # What is taken twice.
    case({f"{STACKS}/1/port": 8007}, "port_taken", f"{PLACE}[1].port", "as in vl (fleet_stacks[0])"),
    case({f"{STACKS}/1/container": "vllm-vl"}, "container_taken", f"{PLACE}[1].container", "as in vl"),
    case(
        {"ana-ml3/fleet_models/qwen-vl/source": "Other/Model"},
        "gateway_name_taken",
        "host_vars of ana-ml3: fleet_stacks[0].model",
        "qwen-vl is Other/Model (chat) on ana-ml3 and Qwen/Qwen3-VL-8B-Instruct (chat) on ana-ml2",
    ),
    # Images.
    case(
        {"*/fleet_images/vllm/digest": REMOVED}, "digest_missing", IMAGE_PLACE, "imagetools inspect vllm/vllm-openai:v0"
    ),
    case({"*/fleet_images/vllm/digest": "sha256:49211ab2"}, "digest_incomplete", IMAGE_PLACE, "has 8 of 64"),
    case({"*/fleet_images/vllm/digest": "sha256:49211ab2…"}, "digest_incomplete", IMAGE_PLACE, "docker image inspect"),
    case({"*/fleet_images/vllm/digest": DIGEST.upper()}, "digest_malformed", IMAGE_PLACE, "lower-case"),
    case({"*/fleet_images/vllm/digest": "v0.33.0"}, "digest_malformed", IMAGE_PLACE, "v0.33.0"),
    case({"*/fleet_images/vllm/digest": DIGEST + "0"}, "digest_malformed", IMAGE_PLACE, "64"),
    case(
        {f"{STACKS}/0/image": "old", f"{STACKS}/0/args": {"quantization": "fp8"}},
        "known_problem_vision_quantised",
        f"{PLACE}[0].args.quantization",
        "vLLM 0.19.1 with quantization: fp8 quantises the vision tower",
    ),
    case(
        {
            "*/fleet_images/old/engine": "0.16.0",
            f"{STACKS}/1/image": "old",
            "*/fleet_models/embedder/source": "Qwen/Qwen3.5-9B",
            "*/fleet_models/embedder/args/max_num_seqs": 64,
        },
        "known_problem_architecture",
        "group_vars: fleet_models.embedder.source",
        "0.17 or newer",
    ),
    # Options.
    case(
        {f"{STACKS}/0/args": {"max_modle_len": 1}}, "option_unknown", f"{PLACE}[0].args.max_modle_len", "max_model_len"
    ),
    case(
        {f"{MODEL}/args/enable_auto_tool_choice": True},
        "option_requires",
        f"{MODEL_PLACE}.args.enable_auto_tool_choice",
        "tool_call_parser",
    ),
    case(
        {f"{STACKS}/0/args": {"enable_auto_tool_choice": True, "tool_call_parser": "qwen9"}},
        "tool_parser_unknown",
        f"{PLACE}[0].args.tool_call_parser",
        "qwen9",
    ),
    case(
        {f"{STACKS}/0/args": {"gpu_memory_utilization": 0.5}},
        "option_owned",
        f"{PLACE}[0].args.gpu_memory_utilization",
        "gpu_memory_utilization",
    ),
    case(
        {f"{MODEL}/secrets": {"OMP_NUM_THREADS": "1"}},
        "duplicate_variable",
        f"{MODEL_PLACE}.env.OMP_NUM_THREADS",
        "under secrets",
    ),
    case({f"{STACKS}/0/compose": {"image": "x"}}, "compose_owned", f"{PLACE}[0].compose.image", "fleet_images"),
    # The gateway.
    case({f"{GATEWAY}/aliases/vision": "qwen-vk"}, "alias_unknown", f"{GATEWAY_PLACE}.aliases.vision", '"qwen-vl"'),
    case({f"{GATEWAY}/aliases/embedder": "qwen-vl"}, "alias_taken", f"{GATEWAY_PLACE}.aliases.embedder", "another"),
    case(
        {
            f"{STACKS}/1/model": "qwen-vl",
            f"{GATEWAY}/aliases/e": "embedder",
            f"{STACKS}/1/gpu_memory_utilization": 0.25,
        },
        "alias_unknown",
        f"{GATEWAY_PLACE}.aliases.e",
        "which no stack of the fleet runs",
    ),
    case(
        {f"{GATEWAY}/fallbacks": {"qwen-vl": ["qwen-v"]}},
        "fallback_unknown",
        f"{GATEWAY_PLACE}.fallbacks.qwen-vl[0]",
        '"qwen-vl"',
    ),
    case(
        {f"{GATEWAY}/fallbacks": {"qwen": ["embedder"]}}, "fallback_unknown", f"{GATEWAY_PLACE}.fallbacks.qwen", "route"
    ),
    case(
        {f"{GATEWAY}/context_window_fallbacks": {"qwen-vl": "vision"}},
        "fallback_to_itself",
        f"{GATEWAY_PLACE}.context_window_fallbacks.qwen-vl[0]",
        "itself",
    ),
    case(
        {f"{GATEWAY}/fallbacks": {"qwen-vl": ["embedder"]}},
        "fallback_other_task",
        f"{GATEWAY_PLACE}.fallbacks.qwen-vl[0]",
        "embedder (embed), which cannot answer for qwen-vl (chat)",
    ),
    case({f"{GATEWAY}/keys/0/models": ["visio"]}, "key_model_unknown", f"{GATEWAY_PLACE}.keys[0].models", '"vision"'),
    case(
        {f"{GATEWAY}/addresses": {"ana-ml": "10.0.0.2"}},
        "address_unknown",
        f"{GATEWAY_PLACE}.addresses.ana-ml",
        '"ana-',
    ),
    case({"*/fleet_images/litellm/engine": "1.82.7"}, "gateway_compromised", f"{GATEWAY_PLACE}.image", "1.82.7"),
    case(
        {f"{GATEWAY}/master_key": "placeholder: set it"},
        "gateway_master_key_placeholder",
        f"{GATEWAY_PLACE}.master_key",
        "openssl",
    ),
    case(
        {f"{STACKS}/0/weight": 2, f"{STACKS}/2/weight": 1},
        "weight_missing",
        "host_vars of ana-ml3: fleet_stacks[0].weight",
        "vl on ana-ml2, wide on ana-ml2",
    ),
]

WARNED = [
    case(
        {f"{STACKS}/2/gpu_memory_utilization": 0.49}, "gpu_tight", f"{PLACE}[2].gpu_memory_utilization", "CUDA contexts"
    ),
    case(
        {"ana-ml3/fleet_stacks/0/gpu_memory_utilization": REMOVED},
        "share_missing",
        "host_vars of ana-ml3: fleet_stacks[0].gpu_memory_utilization",
        "0.92",
    ),
    case(
        {"ana-ml3/fleet_stacks/0/gpu_memory_utilization": 0.97},
        "share_high",
        "host_vars of ana-ml3: fleet_stacks[0].gpu_memory_utilization",
        "at most 0.95",
    ),
    case({f"{MODEL}/thinking": True}, "reasoning_parser_missing", f"{MODEL_PLACE}.args.reasoning_parser", "qwen3"),
    case(
        {f"{MODEL}/args/tool_call_parser": "hermes"},
        "tool_choice_missing",
        f"{MODEL_PLACE}.args.tool_call_parser",
        "Add",
    ),
    case({f"{STACKS}/0/args": {"trust_remote_code": True}}, "remote_code", f"{PLACE}[0].args.trust_remote_code", "pin"),
    case({f"{MODEL}/args": {}}, "context_unset", f"{MODEL_PLACE}.args.max_model_len", "32768"),
    case({f"{STACKS}/0/args": {"max_model_len": None}}, "context_unset", f"{PLACE}[0].args.max_model_len", "KV cache"),
    case(
        {f"{MODEL}/source": "Qwen/Qwen3.5-9B"},
        "known_problem_hybrid_sequences",
        f"{MODEL_PLACE}.args",
        "max_num_seqs, such as 64",
    ),
    case({f"{MODEL}/env/HF_TOKEN": "hf-x"}, "secret_in_env", f"{MODEL_PLACE}.env.HF_TOKEN", "secrets:"),
    case(
        {f"{MODEL}/env/VLLM_ATTENTION_BACKEND": "X"},
        "known_problem_env_removed",
        f"{MODEL_PLACE}.env.VLLM_ATTENTION_BACKEND",
        "attention_backend",
    ),
    case(
        {f"{STACKS}/0/compose": {"network_mode": "host"}},
        "host_network",
        f"{PLACE}[0].compose.network_mode",
        "no port is published, the engine itself listens on every address of the host, port 8007",
    ),
    case(
        {f"{STACKS}/0/compose": {"restart": "always"}}, "restart_defeats_order", f"{PLACE}[0].compose.restart", "turn"
    ),
    case(
        {"ana-ml2/fleet_gpus/1/compute_capability": "8.6", f"{STACKS}/1/args": {"quantization": "fp8"}},
        "quantisation_unsupported",
        f"{PLACE}[1].gpus",
        "FP8 computes natively from 8.9 on",
    ),
    case(
        {
            "ana-ml2/fleet_gpus/1/memory": REMOVED,
            f"{STACKS}/1/kv_cache": "2 GiB",
        },
        "gpu_memory_unknown",
        "host_vars of ana-ml2: fleet_gpus",
        "GPU 1 has no memory:",
    ),
]


@pytest.mark.parametrize(("edits", "code", "place", "says"), REFUSED)
def test_one_clear_refusal(edits: list[tuple[str, Any]], code: str, place: str, says: str) -> None:
    check(edits, code, place, says, ERROR)


@pytest.mark.parametrize(("edits", "code", "place", "says"), WARNED)
def test_one_clear_warning(edits: list[tuple[str, Any]], code: str, place: str, says: str) -> None:
    check(edits, code, place, says, WARNING)


def check(edits: list[tuple[str, Any]], code: str, place: str, says: str, severity: str) -> None:
    findings = findings_of(changed(*edits))
    assert [(finding.code, finding.place) for finding in findings] == [(code, place)], "\n".join(map(str, findings))
    assert says in f"{findings[0].problem} {findings[0].remedy}"
    assert findings[0].remedy
    assert findings[0].severity == severity


ALLOWED = [
    {f"{STACKS}/2/args": {"tensor_parallel_size": 2}},
    {f"{STACKS}/2/args": {"tensor_parallel_size": 1, "pipeline_parallel_size": 2}},
    {f"{STACKS}/0/image": "old"},
    {f"{STACKS}/0/args": {"quantization": "fp8"}},
    {f"{STACKS}/0/weight": 2, f"{STACKS}/2/weight": 1, "ana-ml3/fleet_stacks/0/weight": 1},
    {f"{STACKS}/0/gpu_memory_utilization": 0.55},
    {f"{STACKS}/1/kv_cache": "4 GiB", "*/fleet_models/embedder/memory_floor": "2 GiB"},
    {f"{STACKS}/0/gpus": [], f"{STACKS}/0/gpu_memory_utilization": REMOVED},
    {f"{GATEWAY}/fallbacks": {"embedder": []}},
    {f"{GATEWAY}/addresses": {"ana-ml2": "10.0.0.2"}},
    {"*/fleet_images/unused": {"repository": "a/b", "digest": "sha256:12"}},
    {
        "ana-ml2/fleet_gpus/2/compute_capability": "12.1",
        f"{STACKS}/2/args": {"quantization": "modelopt_fp4"},
    },
]


@pytest.mark.parametrize("edits", ALLOWED)
def test_what_can_work_is_not_refused(edits: dict[str, Any]) -> None:
    assert findings_of(changed(*edits.items())) == []


def test_a_placeholder_is_enough_to_look_at_the_plan() -> None:
    raw = changed((f"{GATEWAY}/master_key", "placeholder: set it"))
    assert [finding.severity for finding in findings_of(raw, allow_placeholders=True)] == [WARNING]


def test_a_model_is_judged_once_however_often_it_runs() -> None:
    findings = findings_of(changed((f"{MODEL}/args/trust_remote_code", True)))
    assert [finding.place for finding in findings] == [f"{MODEL_PLACE}.args.trust_remote_code"]


def test_chains_follow_the_inventory() -> None:
    host = plan_of().hosts["ana-ml2"]
    assert host.chains == {1: ("vl", "embed", "wide"), 2: ("wide",)}
    assert [host.predecessors(stack.name) for stack in host.stacks] == [(), ("vl",), ("embed",)]


def test_a_tensor_parallel_stack_waits_on_all_its_gpus() -> None:
    more = {"name": "two", "model": "embedder", "gpus": [2], "port": 8011, "gpu_memory_utilization": 0.1}
    raw = changed()
    raw["ana-ml2"]["fleet_stacks"].insert(2, more)
    host = plan.make(inventory.parse(raw, gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)).hosts["ana-ml2"]
    assert host.chains == {1: ("vl", "embed", "wide"), 2: ("two", "wide")}
    assert host.predecessors("wide") == ("embed", "two")
    assert host.predecessors("two") == ()


def test_refusal_carries_every_error_and_no_warning() -> None:
    made = plan_of((f"{STACKS}/1/port", 8007), (f"{STACKS}/1/gpus", [7]), (f"{MODEL}/thinking", True))
    assert made.refused
    with pytest.raises(FleetError) as refused:
        made.raise_if_refused()
    assert sorted(finding.code for finding in refused.value.findings) == ["gpu_unknown", "port_taken"]
    plan_of((f"{MODEL}/thinking", True)).raise_if_refused()


def test_port_of_the_gateway() -> None:
    raw = changed(("ana-ml2/fleet_gateway", FLEET["ana-docker"]["fleet_gateway"]), (f"{STACKS}/1/port", 4000))
    fleet = inventory.parse(raw, gpu_hosts=GPU_HOSTS, gateways=["ana-ml2"])
    assert [finding.code for finding in plan.make(fleet).findings] == ["gateway_port_taken"]


def test_folder_of_the_gateway() -> None:
    raw = changed(("ana-ml2/fleet_gateway", FLEET["ana-docker"]["fleet_gateway"]), (f"{STACKS}/1/name", "litellm"))
    fleet = inventory.parse(raw, gpu_hosts=GPU_HOSTS, gateways=["ana-ml2"])
    assert [finding.code for finding in plan.make(fleet).findings] == ["folder_taken"]


def test_production_is_refused_for_its_incomplete_digest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments, "DIGEST", "sha256:49211ab2")
    fleet, _settings = deployments.production()
    found = plan.make(fleet).findings
    assert [finding.code for finding in found if finding.severity == ERROR] == ["digest_incomplete"]


def test_production_is_planned_with_a_whole_digest() -> None:
    fleet, _settings = deployments.production()
    made = plan.make(fleet)
    made.raise_if_refused()
    order = ("granite-summarizer", "embedder", "reranker", "reward", "qwen35-vl")
    assert made.hosts["ana-ml2"].chains == {1: order}
    assert made.hosts["ana-blackwell"].chains == {1: ("qwen3-vl",)}
