# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM's options used to be called, and which of them are not the inventory's to set: tables, no logic."""

from __future__ import annotations

from typing import Mapping, Optional

# Old name -> (new name or None, what to do). None of them is in any shipped option list; the test sees to that.
# Sources: vllm-project/vllm pull requests 21470 (task), 22772 (guided decoding), 9864 (graph capture);
# ai-dynamo/dynamo 8693 (request log); the others were given to the parser of 0.32, which refused them.
SUCCESSORS: Mapping[str, tuple[Optional[str], str]] = {
    "disable_log_requests": ("enable_log_requests", "Remove it: requests are not logged unless enable_log_requests."),
    "task": ("runner", "Write runner: pooling for embed, rerank, classify and reward; chat models need nothing."),
    "device": (None, "Remove it: the image is built for one kind of device."),
    "swap_space": (None, "Remove it: the V1 engine recomputes instead of swapping."),
    "guided_decoding_backend": ("structured_outputs_config", "Write structured_outputs_config: {backend: ...}."),
    "guided_decoding_disable_fallback": (None, "Remove it: there is no fallback between backends any more."),
    "guided_decoding_disable_any_whitespace": (
        "structured_outputs_config",
        "Write structured_outputs_config: {disable_any_whitespace: true}.",
    ),
    "guided_decoding_disable_additional_properties": (
        "structured_outputs_config",
        "Write structured_outputs_config: {disable_additional_properties: true}.",
    ),
    "enable_reasoning": ("reasoning_parser", "Remove it: reasoning_parser alone turns reasoning on."),
    "reasoning_backend": ("reasoning_parser", "Write reasoning_parser."),
    "num_scheduler_steps": (None, "Remove it: the V1 engine has no multi-step scheduling; see async_scheduling."),
    "multi_step_stream_outputs": (None, "Remove it: the V1 engine has no multi-step scheduling."),
    "scheduler_delay_factor": (None, "Remove it: the V1 engine has no such delay."),
    "preemption_mode": (None, "Remove it: the V1 engine always recomputes."),
    "rope_scaling": ("hf_overrides", "Write hf_overrides: {rope_parameters: {...}}."),
    "rope_theta": ("hf_overrides", "Write hf_overrides: {rope_parameters: {rope_theta: ...}}."),
    "cuda_graph_sizes": ("cudagraph_capture_sizes", "Write cudagraph_capture_sizes: [...]."),
    "max_seq_len_to_capture": ("max_cudagraph_capture_size", "Write max_cudagraph_capture_size."),
    "max_context_len_to_capture": ("max_cudagraph_capture_size", "Write max_cudagraph_capture_size."),
    "calculate_kv_scales": (None, "Remove it: the scales come from the checkpoint."),
    "quantization_param_path": (None, "Remove it: the scales come from the checkpoint."),
    "disable_mm_preprocessor_cache": ("mm_processor_cache_gb", "Write mm_processor_cache_gb: 0."),
    "use_v2_block_manager": (None, "Remove it: there is only one block manager."),
    "num_lookahead_slots": (None, "Remove it: the engine takes it from speculative_config."),
    "speculative_model": ("speculative_config", "Write speculative_config: {model: ..., num_speculative_tokens: ...}."),
    "num_speculative_tokens": ("speculative_config", "Write speculative_config: {num_speculative_tokens: ...}."),
    "ngram_prompt_lookup_max": ("speculative_config", "Write speculative_config: {prompt_lookup_max: ...}."),
    "worker_use_ray": ("distributed_executor_backend", "Write distributed_executor_backend: ray."),
    "engine_use_ray": (None, "Remove it."),
    "disable_async_output_proc": (None, "Remove it: see async_scheduling."),
    "override_pooler_config": ("pooler_config", "Write pooler_config."),
    "lora_extra_vocab_size": (None, "Remove it: adapters can no longer add to the vocabulary."),
    "enable_prompt_adapter": (None, "Remove it: prompt adapters are gone."),
    "max_prompt_adapters": (None, "Remove it: prompt adapters are gone."),
}

# The same inside a nested configuration: (option, ..., key) -> what to do.
NESTED_SUCCESSORS: Mapping[tuple[str, str], str] = {
    ("PassConfig", "enable_fusion"): "Write fuse_norm_quant and fuse_act_quant.",
    ("PassConfig", "enable_attn_fusion"): "Write fuse_attn_quant.",
    ("PassConfig", "enable_noop"): "Write eliminate_noops.",
    ("PassConfig", "enable_fi_allreduce_fusion"): "Write fuse_allreduce_rms.",
    ("PassConfig", "enable_sequence_parallelism"): "Remove it.",
    ("PassConfig", "enable_sp"): "Remove it.",
    ("PassConfig", "enable_async_tp"): "Remove it.",
    ("PassConfig", "fuse_gemm_comms"): "Remove it.",
    ("CompilationConfig", "level"): "Write mode.",
    ("CompilationConfig", "use_cudagraph"): "Write cudagraph_mode.",
    ("CompilationConfig", "full_cuda_graph"): "Write cudagraph_mode: FULL.",
    ("CompilationConfig", "use_inductor"): "Write backend: inductor, or backend: eager.",
}

# What another key of the inventory says already; twice would be a contradiction nobody sees.
OWNED: Mapping[str, str] = {
    "model": "It is the model's `source`.",
    "model_tag": "It is the model's `source`.",
    "served_model_name": "It is the name of the model in fleet_models.",
    "revision": "Write `revision` on the model.",
    "host": "Write `listen` on the stack.",
    "port": "Write `port` on the stack.",
    "gpu_memory_utilization": "Write `gpu_memory_utilization` on the stack.",
    "device_memory_utilization": "Write `gpu_memory_utilization` on the stack.",
    "kv_cache_memory_bytes": "Write `kv_cache: 6 GiB` on the stack.",
    "api_key": "Write `api_key` on the stack: vllm.yaml can be read by everybody on the host.",
    "hf_token": "Set vllm_stack_hub_token: vllm.yaml can be read by everybody on the host.",
    "config": "The collection writes that file.",
    "device_ids": "Write `gpus` on the stack.",
    "uds": "The engine must listen on the stack's `port`.",
    "root_path": "The engine must answer at the root of its port; rewrite paths in front of it.",
    "ssl_keyfile": "The engine must speak HTTP on its port; put TLS in front of the gateway.",
    "ssl_certfile": "The engine must speak HTTP on its port; put TLS in front of the gateway.",
    "headless": "A headless engine answers nobody.",
}

# name -> (lowest, highest, lowest allowed, highest allowed); the engine says so only after it has begun to start.
RANGES: Mapping[str, tuple[float, float, bool, bool]] = {
    "max_num_seqs": (1, float("inf"), True, True),
    "max_num_batched_tokens": (1, float("inf"), True, True),
    "block_size": (1, float("inf"), True, True),
    "tensor_parallel_size": (1, float("inf"), True, True),
    "pipeline_parallel_size": (1, float("inf"), True, True),
    "data_parallel_size": (1, float("inf"), True, True),
    "max_logprobs": (-1, float("inf"), True, True),
    "cpu_offload_gb": (0, float("inf"), True, True),
    "mm_processor_cache_gb": (0, float("inf"), True, True),
    "max_loras": (1, float("inf"), True, True),
    "video_pruning_rate": (0, 1, True, False),
    "kv_cache_metrics_sample": (0, 1, False, True),
}

MODALITIES = ("image", "video", "audio", "vision_chunk")
