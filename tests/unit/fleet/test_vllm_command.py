# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import shlex
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import options, vllm_command

from tests.unit.fleet import deployments


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--max-model-len 32768", {"max_model_len": 32768}),
        ("--max_model_len=32k", {"max_model_len": "32k"}),
        ("-tp 2 -dp=3", {"tensor_parallel_size": 2, "data_parallel_size": 3}),
        ("--enforce-eager --no-enable-prefix-caching", {"enforce_eager": True, "enable_prefix_caching": False}),
        ("--gpu-memory-utilization .5", {"gpu_memory_utilization": 0.5}),
        ("--served-model-name a b --port 1", {"served_model_name": ["a", "b"], "port": 1}),
        ("--allowed-media-domains a --allowed-media-domains b", {"allowed_media_domains": ["a", "b"]}),
        ("--cudagraph-capture-sizes 1 2 4", {"cudagraph_capture_sizes": [1, 2, 4]}),
        ("--limit-mm-per-prompt '{\"image\": 3}'", {"limit_mm_per_prompt": {"image": 3}}),
        ("--compilation-config.mode 3 -cc.x.y=true", {"compilation_config": {"mode": 3, "x": {"y": True}}}),
        ("--hf-overrides.list+ 1 --hf-overrides.list+ two", {"hf_overrides": {"list": [1, "two"]}}),
        ("--allowed-origins '[\"*\"]'", {"allowed_origins": ["*"]}),
        ("-O3", {"optimization_level": "3"}),
        ("--chat-template 'a b.jinja'", {"chat_template": "a b.jinja"}),
    ],
)
def test_options_are_typed_as_the_engine_types_them(line: str, wanted: dict[str, Any]) -> None:
    parsed = vllm_command.parse(shlex.split(line), "0.32.0")
    assert (dict(parsed.options), parsed.unread, parsed.model) == (wanted, (), "")


@pytest.mark.parametrize(
    ("line", "unread"),
    [
        ("m --swap-spice 4 --enforce-eager", "--swap-spice 4"),
        ("m --max-num-seqs many", "--max-num-seqs many"),
        ("m n", "n"),
        ("m --port 1 --port 2", "--port 2"),
        ("m --enforce-eager=yes", "--enforce-eager=yes"),
        ("m --max-model-len", "--max-model-len"),
        ("m --no-such-flag", "--no-such-flag"),
        ("m --compilation-config '[]' --compilation-config.mode 3", "--compilation_config.mode 3"),
    ],
)
def test_what_cannot_be_read_is_told_and_not_guessed(line: str, unread: str) -> None:
    parsed = vllm_command.parse(shlex.split(line), "0.32.0")
    assert [words for words, _why in parsed.unread] == [unread]
    assert parsed.model == "m"


@pytest.mark.parametrize(
    ("entrypoint", "command", "arguments", "named"),
    [
        ([], ["m", "-tp", "2"], ["m", "-tp", "2"], False),
        (["vllm", "serve"], ["m"], ["m"], True),
        ([], ["vllm", "serve", "m"], ["m"], True),
        (["/usr/bin/vllm", "serve", "m"], ["--port", "1"], ["m", "--port", "1"], True),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["--model", "m"], ["--model", "m"], True),
        (["/opt/nvidia/entry.sh"], ["vllm", "serve", "m"], ["m"], True),
        ([], ["sh", "-c", "exec vllm serve m --x '{\"a\": 1}'"], ["m", "--x", '{"a": 1}'], True),
        (["/bin/bash", "-lc"], ["vllm serve m"], ["m"], True),
    ],
)
def test_the_words_behind_the_program(
    entrypoint: list[str], command: list[str], arguments: list[str], named: bool
) -> None:
    assert vllm_command.arguments(entrypoint, command) == (arguments, named)


@pytest.mark.parametrize(
    "script", ["pip install x && vllm serve m", "vllm serve $MODEL", "vllm serve m | tee log", "vllm serve m\nsleep 1"]
)
def test_a_script_is_not_taken_for_a_command(script: str) -> None:
    with pytest.raises(vllm_command.NotVllm):
        vllm_command.arguments(["bash", "-c"], [script])


@pytest.mark.parametrize("engine", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize("args", [deployments.QWEN3_VL_ARGS, deployments.QWEN35_ARGS])
def test_a_file_for_config_is_read_back_as_it_was_written(args: dict[str, Any], engine: str) -> None:
    assert vllm_command.from_config(options.normalise(args, engine), engine) == args


def test_what_the_engine_drops_from_its_file_is_dropped() -> None:
    config = {"enforce-eager": False, "no-enable-prefix-caching": True, "max-model-len": 1}
    assert vllm_command.from_config(config, "0.32.0") == {"enable_prefix_caching": False, "max_model_len": 1}
