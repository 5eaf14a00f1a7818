# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phases and facts from lines that engines have really written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import engine_log
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.engine_log import Progress, advance, facts

LOGS = Path(__file__).parents[2] / "fixtures" / "vllm" / "logs"

# Lines of starts on GPUs, as reported with vLLM's issues 38820 and 34106, pull requests 44106, 46389 and 39559,
# kubernetes-sigs/gateway-api-inference-extension 550; in the order in which an engine writes them.
GPU_START = """\
(APIServer pid=1) INFO 05-06 20:59:20 [utils.py:302]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.17.1
(APIServer pid=1) INFO 05-06 20:59:20 [utils.py:238] non-default args: {'port': 8848, 'max_model_len': 131072}
(APIServer pid=1) INFO 05-06 20:59:22 [model.py:529] Resolved architecture: Qwen3_5ForConditionalGeneration
(EngineCore pid=9) INFO 05-06 20:59:25 [core.py:101] Initializing a V1 LLM engine (v0.17.1) with config: \
model='x', quantization=compressed-tensors, kv_cache_dtype=fp8, enforce_eager=False
(Worker_TP0 pid=3) INFO 05-06 20:59:26 [gpu_model_runner.py:4700] Starting to load model Qwen/Qwen3.5...
(Worker_TP0 pid=3) INFO 05-06 20:59:26 [cuda.py:476] Using FLASHINFER attention backend out of potential \
backends: ['FLASHINFER'].
Loading safetensors checkpoint shards:  56% Completed | 5/9 [00:13<00:11,  2.87s/it]
Loading safetensors checkpoint shards: 100% Completed | 9/9 [00:29<00:00,  3.28s/it]
(Worker_TP0 pid=3) INFO 05-06 20:59:57 [default_loader.py:384] Loading weights took 24.84 seconds
(Worker_TP0 pid=3) INFO 05-06 20:59:59 [gpu_model_runner.py:4879] Model loading took 12.66 GiB memory and 31.6 s
(Worker_TP0 pid=3) INFO 05-06 21:00:16 [backends.py:1069] Using cache directory: /x/torch_compile_cache/7b
(Worker_TP0 pid=3) INFO 05-06 21:00:16 [backends.py:1128] Dynamo bytecode transform time: 3.54 s
(Worker_TP0 pid=3) INFO 05-06 21:00:20 [monitor.py:48] torch.compile took 18.21 s in total
(Worker_TP0 pid=3) INFO 05-06 21:00:21 [gpu_worker.py:642] Available KV cache memory: 2.97 GiB
(EngineCore pid=9) INFO 05-06 21:00:21 [kv_cache_utils.py:1170] GPU KV cache size: 123,399 tokens
(EngineCore pid=9) INFO 05-06 21:00:21 [kv_cache.py:1175] Maximum concurrency for 131,072 tokens per request: 3.41x
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|████▍     | 30/67 [00:02<00:02, 14.1it/s]
(Worker_TP0 pid=3) INFO 05-06 21:00:26 [gpu_model_runner.py:5000] Graph capturing finished in 5 secs, took 0.73 GiB
(EngineCore pid=9) INFO 05-06 21:00:26 [core.py:277] init engine (profile, create kv cache) took 27.5 s
(APIServer pid=1) WARNING 05-06 21:00:27 [serving.py:1] something an operator has not seen before
(APIServer pid=1) INFO 05-06 21:00:27 [api_server.py:1400] Starting vLLM API server 0 on http://0.0.0.0:8848
INFO:     Application startup complete.
""".splitlines()


def test_a_start_on_a_gpu_goes_through_its_phases_in_order() -> None:
    progress, phases = Progress(), [engine_log.STARTING]
    for line in GPU_START:
        progress = advance(progress, line)
        if progress.phase != phases[-1]:
            phases.append(progress.phase)
    assert phases == list(engine_log.PHASES)


def test_shards_and_graphs_are_counted() -> None:
    seen = []
    progress = Progress()
    for line in GPU_START:
        progress = advance(progress, line)
        seen.append(str(progress))
    assert "loading weights 5/9 (55 %)" in seen
    assert "loading weights 9/9 (100 %)" in seen
    assert "capturing graphs 30/67 (44 %)" in seen


def test_the_card_of_a_start_on_a_gpu() -> None:
    card = facts(GPU_START)
    assert card == {
        "version": "0.17.1",
        "architecture": "Qwen3_5ForConditionalGeneration",
        "quantization": "compressed-tensors",
        "kv_cache_dtype": "fp8",
        "attention_backend": "FLASHINFER",
        "weights_seconds": 24.84,
        "weights_gib": 12.66,
        "compile_seconds": 18.21,
        "kv_cache_gib": 2.97,
        "kv_cache_tokens": 123399,
        "max_concurrency": 3.41,
        "graph_capture_seconds": 5.0,
        "graph_capture_gib": 0.73,
        "engine_init_seconds": 27.5,
        "startup_seconds": 67,
        "warnings": ["something an operator has not seen before"],
        "harmless_warnings": [],
    }


@pytest.mark.parametrize(
    ("name", "architecture", "tokens", "seconds"),
    [
        ("start_full_config", "Qwen3VLForConditionalGeneration", 2097152, 23),
        ("start_qwen3_5", "Qwen3_5ForConditionalGeneration", 2396745, 20),
        ("start_qwen3_vl", "Qwen3VLForConditionalGeneration", 2097152, 44),
    ],
)
def test_the_card_of_a_real_start(name: str, architecture: str, tokens: int, seconds: int) -> None:
    card = facts((LOGS / f"{name}.txt").read_text(encoding="utf-8"))
    assert (card["version"], card["architecture"], card["kv_cache_tokens"]) == ("0.32.0", architecture, tokens)
    assert card["startup_seconds"] == seconds
    assert card["weights_seconds"] == 0.01
    assert card["quantization"] is None
    assert card["warnings"] == []
    assert len(card["harmless_warnings"]) > 8


@pytest.mark.parametrize("log", sorted(LOGS.glob("start_*.txt")), ids=lambda path: path.stem)
def test_a_real_start_ends_in_serving_and_never_goes_back(log: Path) -> None:
    progress, last = Progress(), 0
    for line in log.read_text(encoding="utf-8").splitlines():
        progress = advance(progress, line)
        now = engine_log.PHASES.index(progress.phase)
        assert now >= last
        last = now
    assert progress.phase == engine_log.SERVING


def test_a_container_started_again_begins_anew() -> None:
    progress = Progress()
    for line in [*GPU_START, *GPU_START[:4]]:
        progress = advance(progress, line)
    assert progress.phase == engine_log.RESOLVED
    again = [line.replace("0.17.1", "0.18.0") for line in GPU_START]
    card: dict[str, Any] = facts([*GPU_START, *again])
    assert card["version"] == "0.18.0"


def test_the_summary_leaves_out_what_is_not_known() -> None:
    assert engine_log.summary({"version": "0.32.0", "kv_cache_tokens": 2097152, "quantization": None}) == [
        "vLLM 0.32.0",
        "KV cache 2,097,152 tokens",
    ]
