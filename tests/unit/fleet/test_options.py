# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import options
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import ERROR, WARNING
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import Image, Model, Stack
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.option_changes import OWNED, SUCCESSORS

from tests.unit.fleet.deployments import QWEN3_VL_ARGS, QWEN35_ARGS


def stack(args, model_args=None, engine="0.32.0"):
    image = Image("engine", "vllm/vllm-openai", "sha256:" + "0" * 64, engine=engine)
    model = Model("a-model", "Org/A-Model", "engine", args=model_args or {})
    return Stack("ana-ml2", 1, "one", model, image, (0,), 8000, "vllm-one", args, {}, {}, ())


# (args, code, the path after `.args.`, a word of the remedy)
WRONG = [
    # a name nobody knows, and the one that was meant
    ({"max_modle_len": 4096}, "option_unknown", "max_modle_len", "max_model_len"),
    ({"gpu_mem_utilization": 0.9}, "option_unknown", "gpu_mem_utilization", "gpu_memory_utilization"),
    ({"tensor_paralell_size": 2}, "option_unknown", "tensor_paralell_size", "tensor_parallel_size"),
    ({"quantisation": "fp8"}, "option_unknown", "quantisation", "quantization"),
    ({"enable_prefix_cache": True}, "option_unknown", "enable_prefix_cache", "enable_prefix_caching"),
    ({"max_num_sequences": 4}, "option_unknown", "max_num_sequences", "max_num_seqs"),
    ({"no_enable_prefix_cachng": True}, "option_unknown", "no_enable_prefix_cachng", "no_enable_prefix_caching"),
    ({"zzz": 1}, "option_unknown", "zzz", "Remove it"),
    ({"tp": 2}, "option_unknown", "tp", "tensor_parallel_size"),
    ({"dp": 2}, "option_unknown", "dp", "data_parallel_size"),
    # the beginning of a name, which the engine lets pass
    ({"max_model": 1000}, "option_prefix", "max_model", "max_model_len"),
    ({"enforce": True}, "option_prefix", "enforce", "enforce_eager"),
    ({"quantiz": "fp8"}, "option_unknown", "quantiz", "quantization"),
    # gone, with and without a successor
    ({"task": "embed"}, "option_renamed", "task", "runner: pooling"),
    ({"device": "cuda"}, "option_removed", "device", "Remove it"),
    ({"swap_space": 4}, "option_removed", "swap_space", "Remove it"),
    ({"guided_decoding_backend": "xgrammar"}, "option_renamed", "guided_decoding_backend", "structured_outputs_config"),
    ({"enable_reasoning": True}, "option_renamed", "enable_reasoning", "reasoning_parser"),
    ({"num_scheduler_steps": 8}, "option_removed", "num_scheduler_steps", "Remove it"),
    ({"rope_scaling": {"factor": 2}}, "option_renamed", "rope_scaling", "hf_overrides"),
    ({"cuda_graph_sizes": [1, 2]}, "option_renamed", "cuda_graph_sizes", "cudagraph_capture_sizes"),
    ({"calculate_kv_scales": True}, "option_removed", "calculate_kv_scales", "Remove it"),
    ({"disable_mm_preprocessor_cache": True}, "option_renamed", "disable_mm_preprocessor_cache", "cache_gb: 0"),
    ({"use_v2_block_manager": True}, "option_removed", "use_v2_block_manager", "Remove it"),
    ({"speculative_model": "x/y"}, "option_renamed", "speculative_model", "speculative_config"),
    ({"max_seq_len_to_capture": 8192}, "option_renamed", "max_seq_len_to_capture", "max_cudagraph_capture_size"),
    # the wrong kind of value
    ({"max_num_seqs": 8.0}, "option_type", "max_num_seqs", "whole number"),
    ({"max_num_seqs": "many"}, "option_type", "max_num_seqs", "whole number"),
    ({"max_num_seqs": True}, "option_type", "max_num_seqs", "whole number"),
    ({"max_num_seqs": [4]}, "option_type", "max_num_seqs", "whole number"),
    ({"max_model_len": "32 k"}, "option_type", "max_model_len", "k, K"),
    ({"max_model_len": 32768.0}, "option_type", "max_model_len", "whole number"),
    ({"max_num_batched_tokens": "auto"}, "option_type", "max_num_batched_tokens", "whole number"),
    ({"video_pruning_rate": "a lot"}, "option_type", "video_pruning_rate", "a number"),
    ({"enforce_eager": 1}, "option_type", "enforce_eager", "true or false"),
    ({"trust_remote_code": "sure"}, "option_type", "trust_remote_code", "true or false"),
    ({"chat_template": True}, "option_type", "chat_template", "a text"),
    ({"chat_template": {"a": 1}}, "option_type", "chat_template", "a text"),
    ({"chat_template": "--tool"}, "option_type", "chat_template", "a text"),
    ({"middleware": {"a": 1}}, "option_type", "middleware", "a text"),
    ({"allowed_media_domains": []}, "option_type", "allowed_media_domains", "Leave"),
    ({"cudagraph_capture_sizes": [1, "two"]}, "option_type", "cudagraph_capture_sizes", "whole numbers"),
    ({"allowed_media_domains": [{"a": 1}]}, "option_type", "allowed_media_domains", "texts"),
    ({"compilation_config": 3}, "option_type", "compilation_config", "a mapping"),
    ({"compilation_config": "fast"}, "option_type", "compilation_config", "a mapping"),
    ({"mm_processor_kwargs": "fps=1"}, "option_type", "mm_processor_kwargs", "a mapping"),
    ({"limit_mm_per_prompt": "image=3"}, "option_type", "limit_mm_per_prompt", "a mapping"),
    ({"limit_mm_per_prompt": {"image": "three"}}, "option_type", "limit_mm_per_prompt.image", "whole number"),
    ({"media_io_kwargs": {"video": 32}}, "option_type", "media_io_kwargs.video", "num_frames"),
    ({"hf_overrides": [1]}, "option_type", "hf_overrides", "a mapping or a text"),
    # text that looks like a boolean
    ({"enable_prefix_caching": "false"}, "option_text_boolean", "enable_prefix_caching", "prefix_caching: false"),
    ({"enforce_eager": "True"}, "option_text_boolean", "enforce_eager", "enforce_eager: true"),
    ({"disable_log_stats": "no"}, "option_text_boolean", "disable_log_stats", "disable_log_stats: false"),
    # null
    ({"reasoning_parser": None}, "option_null", "reasoning_parser", "Leave"),
    ({"quantization": None}, "option_null", "quantization", "Leave"),
    # a choice that does not exist
    ({"dtype": "bf16"}, "option_choice", "dtype", "bfloat16"),
    ({"kv_offloading_backend": "lmcach"}, "option_choice", "kv_offloading_backend", "lmcache"),
    ({"performance_mode": "interactive"}, "option_choice", "performance_mode", "interactivity"),
    ({"mm_encoder_tp_mode": "tensor"}, "option_choice", "mm_encoder_tp_mode", "weights"),
    ({"mm_processor_cache_type": "ram"}, "option_choice", "mm_processor_cache_type", "shm"),
    ({"prefix_caching_hash_algo": "md5"}, "option_choice", "prefix_caching_hash_algo", "sha256"),
    ({"runner": "embed"}, "option_choice", "runner", "pooling"),
    ({"max_lora_rank": 33}, "option_choice", "max_lora_rank", "32"),
    ({"collect_detailed_traces": ["models"]}, "option_choice", "collect_detailed_traces", "model"),
    # parsers, which the engine checks after 20 seconds
    ({"tool_call_parser": "qwen3_xmll"}, "tool_parser_unknown", "tool_call_parser", "qwen3_xml"),
    ({"tool_call_parser": "qwen"}, "tool_parser_unknown", "tool_call_parser", "It knows"),
    ({"reasoning_parser": "qwen4"}, "reasoning_parser_unknown", "reasoning_parser", "qwen3"),
    ({"enable_auto_tool_choice": True}, "option_requires", "enable_auto_tool_choice", "tool_call_parser"),
    # nested configurations
    ({"compilation_config": {"level": 3}}, "option_nested_unknown", "compilation_config.level", "mode"),
    ({"compilation_config": {"modee": 3}}, "option_nested_unknown", "compilation_config.modee", "mode"),
    (
        {"compilation_config": {"pass_config": {"enable_attn_fusion": True}}},
        "option_nested_unknown",
        "compilation_config.pass_config.enable_attn_fusion",
        "fuse_attn_quant",
    ),
    (
        {"compilation_config": {"pass_config": {"enable_fusion": True}}},
        "option_nested_unknown",
        "compilation_config.pass_config.enable_fusion",
        "fuse_norm_quant",
    ),
    (
        {"compilation_config": {"pass_config": {"eliminate_noop": True}}},
        "option_nested_unknown",
        "compilation_config.pass_config.eliminate_noop",
        "eliminate_noops",
    ),
    (
        {"compilation_config": {"pass_config": {"eliminate_noops": "true"}}},
        "option_type",
        "compilation_config.pass_config.eliminate_noops",
        "true or false",
    ),
    ({"compilation_config": '{"levle": 3}'}, "option_nested_unknown", "compilation_config.levle", "It knows"),
    (
        {"structured_outputs_config": {"backend": "xgramar"}},
        "option_choice",
        "structured_outputs_config.backend",
        "xgrammar",
    ),
    (
        {"structured_outputs_config": {"disable_whitespace": True}},
        "option_nested_unknown",
        "structured_outputs_config.disable_whitespace",
        "disable_any_whitespace",
    ),
    ({"pooler_config": {"pooling_type": "MEDIAN"}}, "option_choice", "pooler_config.pooling_type", "MEAN"),
    ({"attention_config": {"flash_attn_version": 5}}, "option_choice", "attention_config.flash_attn_version", "4"),
    ({"limit_mm_per_prompt": {"images": 3}}, "option_nested_unknown", "limit_mm_per_prompt.images", "image"),
    ({"media_io_kwargs": {"vide": {"fps": 1}}}, "option_nested_unknown", "media_io_kwargs.vide", "video"),
    ({"compilation_config.mode": 3}, "option_dotted", "compilation_config.mode", "compilation_config: {mode: ...}"),
    # out of range
    ({"video_pruning_rate": 1.0}, "option_range", "video_pruning_rate", "below 1"),
    ({"kv_cache_metrics_sample": 0}, "option_range", "kv_cache_metrics_sample", "above 0"),
    ({"max_num_seqs": 0}, "option_range", "max_num_seqs", "at least 1"),
    ({"max_num_batched_tokens": -1}, "option_type", "max_num_batched_tokens", "whole number"),
    ({"tensor_parallel_size": 0}, "option_range", "tensor_parallel_size", "at least 1"),
    ({"cpu_offload_gb": -2}, "option_range", "cpu_offload_gb", "at least 0"),
    ({"limit_mm_per_prompt": {"image": -1}}, "option_range", "limit_mm_per_prompt.image", "0 turns"),
    # twice, or twice negated
    ({"no_enforce_eager": False}, "option_negated", "no_enforce_eager", "enforce_eager: true or false"),
    ({"no_enforce_eager": True, "enforce_eager": True}, "option_twice", "no_enforce_eager", "Keep enforce_eager"),
    # what the stack says itself
    *[({name: "x"}, "option_owned", name, remedy[:20]) for name, remedy in OWNED.items()],
]


@pytest.mark.parametrize(("args", "code", "path", "remedy"), WRONG, ids=[f"{case[1]}-{case[2]}" for case in WRONG])
@pytest.mark.parametrize("engine", ["0.32.0", "0.33.1"])
def test_a_wrong_option_is_refused_with_place_and_remedy(args, code, path, remedy, engine):
    (finding,) = options.lint(stack(args, engine=engine))
    assert (finding.code, finding.severity) == (code, ERROR)
    assert finding.place == f"host_vars of ana-ml2: fleet_stacks[1].args.{path}"
    assert remedy in finding.remedy
    assert (finding.host, finding.stack) == ("ana-ml2", "one")
    assert path.split(".")[-1] in finding.problem or path in finding.problem or "parser" in path


def test_since_0_33_every_enable_has_a_disable_again():
    (finding,) = options.lint(stack({"disable_log_requests": True}))
    assert finding.code == "option_renamed"
    assert options.lint(stack({"disable_log_requests": True}, engine="0.33.0")) == []
    both = {"disable_prefix_caching": True, "enable_prefix_caching": True}
    (finding,) = options.lint(stack(both, engine="0.33.0"))
    assert finding.code == "option_twice"


def test_the_table_is_long_enough():
    assert len([case for case in WRONG if case[1] != "option_owned"]) >= 60


@pytest.mark.parametrize("engine", ["0.19.2", "0.32.0", "0.33.0", "0.40.0", ""])
@pytest.mark.parametrize("args", [QWEN3_VL_ARGS, QWEN35_ARGS, {}], ids=["Qwen3-VL", "qwen3.5-9b-fp8", "none"])
def test_every_option_of_the_production_deployments_is_accepted(args, engine):
    assert options.lint(stack(args, engine=engine)) == []


RIGHT = [
    {"max-model-len": "32k"},
    {"max_model_len": "auto"},
    {"max_model_len": -1},
    {"max_num_seqs": "8"},
    {"max_num_batched_tokens": "16K"},
    {"video_pruning_rate": "0.5"},
    {"cpu_offload_gb": 4},
    {"no_enable_prefix_caching": True},
    {"disable_log_stats": False},
    {"compilation_config": {"mode": 3, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2]}},
    {"compilation_config": '{"mode": 3}'},
    {"limit_mm_per_prompt": {"image": {"count": 3, "width": 512, "height": 512}, "video": 0}},
    {"limit_mm_per_prompt": '{"image": 3}'},
    {"allowed_origins": ["https://a.example"]},
    {"lora_modules": [{"name": "a", "path": "/loras/a"}]},
    {"lora_modules": ["a=/loras/a"]},
    {"hf_overrides": {"rope_parameters": {"rope_theta": 1e6}}},
    {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}},
    {"tool_call_parser": "mine", "tool_parser_plugin": "/plugins/mine.py"},
    {"generation_config": "vllm", "chat_template": "/templates/a.jinja"},
    {"pooler_config": {"pooling_type": "MEAN", "dimensions": None}},
    {"attention_backend": "FLASHINFER"},
    {"cudagraph_capture_sizes": [1, 2, 4]},
    {"max_lora_rank": "64"},
]


@pytest.mark.parametrize("args", RIGHT, ids=str)
@pytest.mark.parametrize("engine", ["0.32.0", "0.33.0"])
def test_a_right_option_is_no_false_alarm(args, engine):
    assert options.lint(stack(args, engine=engine)) == []


def test_the_place_is_the_model_where_the_model_set_it():
    upper = {"max_modle_len": 1, "dtype": "bf16"}
    findings = options.lint(stack({**upper, "dtype": "bf17"}, model_args=upper))
    assert [finding.place for finding in findings] == [
        "group_vars: fleet_models.a-model.args.max_modle_len",
        "host_vars of ana-ml2: fleet_stacks[1].args.dtype",
    ]


def test_all_faults_are_told_at_once():
    args = {"max_modle_len": 1, "dtype": "bf16", "task": "embed", "compilation_config": {"a": 1, "b": 2}}
    assert len(options.lint(stack(args))) == 5


@pytest.mark.parametrize(
    ("engine", "listed", "exact"),
    [
        ("0.32.0", "0.32.0", True),
        ("v0.32.3", "0.32.0", True),
        ("0.33.0rc1", "0.33.0", True),
        ("0.19.2", "0.32.0", False),
        ("0.40.1", "0.33.0", False),
        ("1.0.0", "0.33.0", False),
        ("", "0.32.0", False),
    ],
)
def test_the_list_of_the_version_or_the_nearest_older_one(engine, listed, exact):
    catalogue = options.catalogue(engine)
    assert (catalogue.engine, catalogue.exact) == (listed, exact)


def test_without_a_list_of_its_own_a_version_is_only_warned():
    findings = options.lint(stack({"max_modle_len": 1, "port": 8000}, engine="0.19.2"))
    assert [(finding.code, finding.severity) for finding in findings] == [
        ("option_unknown", WARNING),
        ("option_owned", ERROR),
    ]
    assert "0.19.2" in findings[0].problem
    assert "0.32" in findings[0].problem


@pytest.mark.parametrize(
    ("name", "engine", "remedy"),
    [
        ("VLLM_ATTENTION_BACKEND", "0.32.0", "remove it"),
        ("VLLM_LOGING_LEVEL", "0.33.0", "Did you mean VLLM_LOGGING_LEVEL?"),
        ("VLLM_LOGGING_LEVEL", "0.33.0", ""),
        ("VLLM_LOGING_LEVEL", "0.19.2", ""),
        ("HF_HOME", "0.32.0", ""),
    ],
)
def test_a_variable_the_engine_does_not_read_is_a_warning(name, engine, remedy):
    findings = options.lint(replace(stack({}, engine=engine), env={name: "1"}))
    if not remedy:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.code, finding.severity) == ("env_unknown", WARNING)
    assert finding.place == f"host_vars of ana-ml2: fleet_stacks[1].env.{name}"
    assert remedy in finding.remedy


@pytest.mark.parametrize("value", ["FlashInfer-CUTLASS", "flashinfer_cutlass"])
def test_case_and_dashes_do_not_count_where_the_engine_ignores_them(value):
    assert options.lint(stack({"moe_backend": value})) == []
    (finding,) = options.lint(stack({"moe_backend": "flashinfer_cutlas"}))
    assert finding.code == "option_choice"


def test_a_deprecated_option_is_a_warning():
    (finding,) = options.lint(stack({"disable_cascade_attn": True}))
    assert (finding.code, finding.severity) == ("option_deprecated", WARNING)


@pytest.mark.parametrize("engine", ["0.32.0", "0.33.0"])
def test_nothing_in_the_table_of_gone_options_is_still_there(engine):
    known = options.catalogue(engine)
    assert not set(SUCCESSORS) & {option.name for option in known.options.values()}
    assert {successor for successor, _ in SUCCESSORS.values() if successor} <= set(known.options)


@pytest.mark.parametrize("path", sorted(options.DATA.glob("options_*.json")), ids=lambda path: path.stem)
def test_the_shipped_lists_are_small_and_whole(path: Path):
    data = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 60 * 1024
    assert len(data["options"]) > 300
    assert {"tool_call_parser", "reasoning_parser"} <= set(data["registries"])
    named = [spec if isinstance(spec, str) else spec["kind"] for spec in data["options"].values()]
    assert {kind[1:] for kind in named if kind.startswith("@")} <= set(data["configs"])


@pytest.mark.parametrize(
    ("args", "written"),
    [
        ({"enforce_eager": False}, {"no-enforce-eager": True}),
        ({"enforce_eager": True}, {"enforce-eager": True}),
        ({"no_enforce_eager": True}, {"no-enforce-eager": True}),
        ({"disable_log_stats": False}, {}),
        ({"disable_log_stats": True}, {"disable-log-stats": True}),
        ({"some_new_flag": False}, {"no-some-new-flag": True}),
        ({"max-model-len": "32k"}, {"max-model-len": "32k"}),
        ({"reasoning_parser": None}, {}),
        ({"compilation_config": {"use_x": False}}, {"compilation-config": {"use_x": False}}),
        ({"allowed_origins": ["a", "b"]}, {"allowed-origins": '["a", "b"]'}),
        ({"lora_modules": [{"name": "a"}]}, {"lora-modules": ['{"name": "a"}']}),
        ({"cudagraph_capture_sizes": [1, 2]}, {"cudagraph-capture-sizes": [1, 2]}),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ],
    ids=str,
)
def test_options_are_written_so_that_they_mean_what_they_say(args, written):
    config = options.normalise(args, "0.32.0")
    assert config == written
    assert list(config) == sorted(config)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        *[(32768, 32768), ("32768", 32768), ("32k", 32000), ("32K", 32768), ("25.6k", 25600), ("1m", 1000000)],
        *[("auto", None), (-1, None), (None, None), ("1.5K", None), (True, None)],
    ],
)
def test_tokens_are_counted_as_the_engine_counts_them(value, count):
    assert options.tokens(value) == count


def test_a_large_fleet_is_linted_fast():
    stacks = [stack(dict(QWEN3_VL_ARGS)) for _ in range(2000)]
    begin = time.process_time()
    assert not any(options.lint(one) for one in stacks)
    assert time.process_time() - begin < 1.0
