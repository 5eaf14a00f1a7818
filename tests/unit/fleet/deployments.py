# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two production deployments: what their owners wrote down, and what inventories/production makes of it.

The lists below are copied from the owners' description, not from the inventory, so that a test can hold one against
the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import inventory
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.compose import StackSettings
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import Fleet

PRODUCTION = Path(__file__).resolve().parents[3] / "inventories" / "production"
# Only the first eight digits of the real one are known.
DIGEST = "sha256:49211ab2" + "0123456789abcdef" * 3 + "01234567"

QWEN3_VL_ARGS = {
    "dtype": "auto",
    "max_model_len": 32768,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 4,
    "enable_auto_tool_choice": True,
    "tool_call_parser": "qwen3_xml",
    "reasoning_parser": "qwen3",
    "enable_chunked_prefill": True,
    "performance_mode": "interactivity",
    "enforce_eager": False,
    "trust_remote_code": True,
    "tensor_parallel_size": 1,
    "structured_outputs_config": {
        "backend": "xgrammar",
        "disable_any_whitespace": True,
        "enable_in_reasoning": False,
    },
    "enable_server_load_tracking": True,
    "kv_cache_metrics": True,
    "kv_cache_metrics_sample": 0.05,
    "limit_mm_per_prompt": {"image": 3, "video": 1, "audio": 1},
    "mm_processor_kwargs": {"min_pixels": 3136, "max_pixels": 10035200, "fps": 1.0},
    "media_io_kwargs": {"video": {"num_frames": 32, "fps": 2}},
    "data_parallel_size": 1,
    "video_pruning_rate": 0.75,
    "mm_encoder_tp_mode": "data",
    "mm_processor_cache_type": "shm",
    "kv_cache_dtype": "auto",
    "enable_prefix_caching": True,
    "prefix_caching_hash_algo": "xxhash",
    "async_scheduling": True,
    "compilation_config": {
        "pass_config": {"fuse_allreduce_rms": True, "fuse_attn_quant": True, "eliminate_noops": True}
    },
    "generation_config": "vllm",
    "skip_mm_profiling": True,
}
QWEN35_ARGS = {
    "quantization": "fp8",
    "max_model_len": 32768,
    "reasoning_parser": "qwen3",
    "limit_mm_per_prompt": {"image": 4, "video": 1},
    "enable_prefix_caching": False,
}
QWEN3_VL_ENV = {
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "TORCH_CUDA_ARCH_LIST": "12.0",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "OMP_NUM_THREADS": "14",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_TEST_FORCE_FP8_MARLIN": "1",
    "VLLM_MARLIN_USE_ATOMIC_ADD": "1",
    "VLLM_NVFP4_GEMM_BACKEND": "marlin",
    "VLLM_VIDEO_LOADER_BACKEND": "opencv",
    "VLLM_IMAGE_FETCH_TIMEOUT": "10",
    "VLLM_MEDIA_CACHE": "/var/cache/vllm-media",
    "VLLM_MEDIA_CACHE_MAX_SIZE_MB": "10240",
    "VLLM_LOGGING_LEVEL": "INFO",
}


def production() -> tuple[Fleet, dict[str, StackSettings]]:
    """The production inventory with a whole digest and a strong key in it, and every GPU host's role variables."""
    hosts = yaml.safe_load((PRODUCTION / "hosts.yml").read_text(encoding="utf-8"))["all"]["children"]
    shared = _variables("group_vars/all")
    shared["fleet_images"]["vllm-nightly"]["digest"] = DIGEST
    raw = {host: {**shared, **_variables(f"host_vars/{host}")} for host in hosts["gpu_hosts"]["hosts"]}
    gateway = _variables("group_vars/gateways")
    gateway["fleet_gateway"]["master_key"] = "sk-0123456789abcdef0123456789abcdef"
    raw.update({host: {**shared, **gateway} for host in hosts["gateways"]["hosts"]})
    fleet = inventory.parse(
        {host: {name: value for name, value in values.items() if name[:6] == "fleet_"} for host, values in raw.items()},
        gpu_hosts=list(hosts["gpu_hosts"]["hosts"]),
        gateways=list(hosts["gateways"]["hosts"]),
    )
    prefix = "vllm_stack_"
    settings = {
        host: StackSettings(**{name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)})
        for host, values in raw.items()
    }
    return fleet, settings


def _variables(folder: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for path in sorted((PRODUCTION / folder).glob("*.yml")):
        merged.update(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    return merged
