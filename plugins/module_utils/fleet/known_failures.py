# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of known failures: how each shows itself, why it happens, what to change.

How to add one: a code (never reused for another cause), patterns made of the message's stable words, the cause, the
remedy, and the address of the report. In a pattern a space may be missing in the text (lines are wrapped within
words), ``(?P<name>…)`` takes a value out of the message for the texts, and a literal part that stands in every match
has to be there (it is what is searched first). In cause and remedy ``{name}`` is such a value or an option of the
engine, and ``[… {name} …|…]`` is the first alternative whose values are all known.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Callable, Mapping, Optional

from .option_changes import SUCCESSORS

FATAL = "fatal"
WARNING = "warning"

SPECIFIC, GENERIC, WRAPPER = 0, 1, 2  # a lower rank wins, wherever in the log it stands

Values = Mapping[str, str]


@dataclass(frozen=True)
class Known:
    """One known failure.

    ``certain``: one such line ends the start, so that nobody has to wait for the process to exit.
    ``needs``: another message that must be in the log as well, for messages that mean different things by themselves.
    ``unless``: a message that must not be in the log.
    ``over_when``: a message that, on a later line, says that the state has passed.
    ``replaces``: codes of more general findings that this one explains.
    ``derive``: values computed from those in the message.
    """

    code: str
    cause: str
    remedy: str
    patterns: tuple[str, ...]
    source: tuple[str, ...] = ()
    retryable: bool = False
    severity: str = FATAL
    rank: int = SPECIFIC
    certain: bool = True
    needs: str = ""
    unless: str = ""
    over_when: str = ""
    replaces: tuple[str, ...] = ()
    derive: Optional[Callable[[Values], dict[str, str]]] = None


# Lines that look alarming in logs of healthy starts. They never give a finding, whatever words they contain.
HARMLESS = (
    r"CUDA graphs can take additional",
    r"If you are running out of memory, consider",
    r"Capping cudagraph capture sizes",
    r"To indicate that the rerank API is not part of the standard OpenAI API",
    r"The parameter \S+ is deprecated",
    r"Found ulimit of \d+ and failed to automatically increase",
    r"is deprecated and will be removed",
    r"No available shared memory broadcast block found in",
    r"destroy_process_group\(\) was not called before program exit",
    r"NUMA binding: Using",
    r"set_mempolicy: Operation not permitted",
    r"Failed to create oneDNN linear, fallback",
    r"leaked (?:semaphore|shared_memory) objects to clean up at shutdown",
    r"CUDA graph memory profiling is enabled",
    r"Reset SSM cache type to",
    r"custom allreduce is disabled",
    r"Failed to import from vllm\._C",
    r"is not listed in .{0,60}Using the default",
    r"Using default (?:MoE|W8A8|FP8).{0,40} config\. Performance might be sub-?optimal",
    r"NCCL_CUMEM_ENABLE is set to 0",
    r"fall(?:ing|s)? back to",
    r"HTTP fetch failed for .{0,200}attempt",
    r"Retrying in \d+",
    r"mkdir -p failed for path",
    r"CUDA_VISIBLE_DEVICES=.{0,80}is set",
)


def _share_from_free(values: Values) -> dict[str, str]:
    try:
        free, total = float(values["free"]), float(values["total"])
    except (KeyError, ValueError):
        return {}
    # Two hundredths below what is free: the driver and other contexts move by some hundred MiB between two looks.
    share = floor((free / total - 0.02) * 100) / 100 if total > 0 else 0.0
    return {"fits": f"{share:.2f}"} if share > 0 else {}


def _context_from_memory(values: Values) -> dict[str, str]:
    if "limit" in values:
        return {}
    try:
        needed, available, wanted = float(values["needed"]), float(values["available"]), int(values["wanted"])
    except (KeyError, ValueError):
        return {}
    if needed <= 0 or available <= 0:
        return {}
    # Older engines give only the two sizes. The cache grows with the context length; engines take blocks of 16.
    return {"limit": str(int(wanted * available / needed) // 16 * 16)}


def _tensor_parallel(values: Values) -> dict[str, str]:
    try:
        heads, size = int(values["heads"]), int(values["size"])
    except (KeyError, ValueError):
        return {}
    return {"fits": ", ".join(str(n) for n in range(1, size) if heads % n == 0)} if size > 1 else {}


def _successor(values: Values) -> dict[str, str]:
    name = values.get("argument", "").lstrip("-").split("=")[0].replace("-", "_")
    return {"advice": SUCCESSORS[name][1]} if name in SUCCESSORS else {}


_VLLM = "https://github.com/vllm-project/vllm/issues/"
_LITELLM = "https://github.com/BerriAI/litellm/issues/"
_TOOLKIT = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/"

_GPU_MEMORY = (
    Known(
        code="gpu_memory_not_free",
        cause="gpu_memory_utilization is a share of the card's TOTAL memory and must be free at start: "
        "[{needed} GiB are wanted, {free} of {total} GiB are free|less than the wanted share is free].",
        remedy="See which processes and stacks hold memory on this GPU and stop or move one of them, or set "
        "gpu_memory_utilization to [at most {fits} (now {share})|at most {fits}|less than free/total (now {share})|"
        "less than free/total].",
        patterns=(
            r"Free memory on device.{0,30}\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).{0,60}"
            r"less than desired GPU memory utilization \((?P<share>[\d.]+), (?P<needed>[\d.]+) GiB\)",
            r"Free memory on (?:device|cuda).{0,120}less than (?:the )?(?:desired|requested)",
            r"Available memory on node \d+ \(?(?P<free>[\d.]+)?.{0,60}is less than requested memory for kv",
            r"gpu memory.{0,40}is less than.{0,40}gpu_memory_utilization",
        ),
        source=("https://github.com/apocas/dockerode/issues/811", _VLLM + "20305", _VLLM + "25837"),
        derive=_share_from_free,
    ),
    Known(
        code="gpu_memory_profiling_race",
        cause="Another process gave GPU memory back while this engine was measuring[ (free memory rose from "
        "{before} to {after} GiB)]; the engine takes that for an error.",
        remedy="Start it again when the neighbour on this GPU is ready; stacks that share a GPU are to be started "
        "one after another. No setting has to change.",
        patterns=(
            r"Error in memory profiling\. Initial free memory (?P<before>[\d.]+)(?: GiB)?, current free memory "
            r"(?P<after>[\d.]+)",
            r"Error in memory profiling",
            r"other processes sharing the same container release GPU memory while",
            r"GPU memory was not properly cleaned up before initializing",
        ),
        source=(_VLLM + "56830",),
        retryable=True,
    ),
    Known(
        code="kv_cache_no_memory",
        cause="Weights, activations and graphs already take more than the stack's share: nothing is left for the KV "
        "cache[ (available: {available} GiB)].",
        remedy="Raise gpu_memory_utilization[ (now {gpu_memory_utilization})], or lower max_model_len"
        "[ (now {max_model_len})], max_num_batched_tokens[ (now {max_num_batched_tokens})], max_num_seqs"
        "[ (now {max_num_seqs})] or the image and video limits. Note the stack's memory_floor in the inventory.",
        patterns=(
            r"No available memory for the cache blocks",
            r"Available KV cache memory: (?P<available>-[\d.]+) GiB",
            r"# GPU blocks: 0\b",
            r"# cuda blocks: 0\b",
            r"Not enough (?:GPU )?memory (?:for|to allocate) (?:the )?(?:KV|cache)",
            r"no KV blocks",
            r"Not enough memory\. Please try to increase .{0,3}mem.fraction",
        ),
        source=(_VLLM + "10439",),
    ),
    Known(
        code="kv_cache_too_small_for_context",
        cause="One request of the full context length[ ({wanted} tokens)] does not fit the KV cache"
        "[: {needed} GiB are needed, {available} GiB are there].",
        remedy="Set max_model_len to [at most {limit} (now {max_model_len})|at most {limit} (now {wanted})|"
        "at most {limit}|a smaller value (now {wanted})|a smaller value], or raise gpu_memory_utilization"
        "[ (now {gpu_memory_utilization})]. Always set max_model_len, the model's own default is mostly too large.",
        patterns=(
            r"at least one request with the models?'?s? max(?:imum)? seq(?:uence)? len(?:gth)? \((?P<wanted>\d+)\)"
            r"\D{0,4}(?P<needed>[\d.]+) GiB KV cache is needed.{0,60}available KV cache memory "
            r"\((?P<available>[\d.]+) GiB\)(?:.{0,120}maximum model length is (?P<limit>\d+))?",
            r"max(?:imum)? seq(?:uence)? len(?:gth)? \((?P<wanted>\d+)\) is larger than the maximum number of tokens "
            r"that can be stored in (?:the )?KV cache \((?P<limit>\d+)\)",
            r"at least one request with .{0,80}KV cache",
            r"estimated maximum model length is (?P<limit>\d+)",
        ),
        source=(_VLLM + "34076",),
        derive=_context_from_memory,
        replaces=("kv_cache_no_memory",),
    ),
    Known(
        code="mamba_blocks_exceeded",
        cause="A hybrid model needs one state block per sequence: max_num_seqs[ ({wanted})] is larger than the "
        "blocks that fit[ ({limit})].",
        remedy="Set max_num_seqs to [at most {limit} (now {wanted})|at most {limit}|a smaller value], or raise "
        "gpu_memory_utilization[ (now {gpu_memory_utilization})]. Always set max_num_seqs for hybrid models.",
        patterns=(
            r"max_num_seqs \((?P<wanted>\d+)\) exceeds (?:the )?(?:number of )?available Mamba cache blocks "
            r"\((?P<limit>\d+)\)",
            r"max_num_seqs.{0,40}(?:exceeds|larger|greater).{0,40}Mamba.{0,20}?blocks(?:.{0,8}?(?P<limit>\d+))?",
            r"Each decode sequence requires one Mamba cache block",
            r"(?:Not enough|insufficient) Mamba (?:cache|state) (?:blocks|memory)",
        ),
        source=("https://github.com/vllm-project/recipes/pull/551",),
    ),
    Known(
        code="cuda_graph_oom",
        cause="The KV cache was already laid out and the memory ran out while CUDA graphs were captured or the "
        "sampler warmed up: the share leaves too little headroom.",
        remedy="Lower gpu_memory_utilization by 0.01 to 0.03[ (now {gpu_memory_utilization})], or max_num_seqs"
        "[ (now {max_num_seqs})] or the capture sizes; enforce_eager is the last resort.",
        patterns=(
            r"CUDA out of memory occurred when warming up sampler with (?P<requests>\d+) dummy requests",
            r"Capturing CUDA graphs? failed.{0,80}memory",
        ),
        source=(_VLLM + "14452", _VLLM + "30637"),
        replaces=("cuda_out_of_memory",),
        certain=False,
    ),
    Known(
        code="cuda_graph_oom",
        cause="The KV cache was already laid out and the memory ran out while CUDA graphs were captured or the "
        "sampler warmed up: the share leaves too little headroom.",
        remedy="Lower gpu_memory_utilization by 0.01 to 0.03[ (now {gpu_memory_utilization})], or max_num_seqs"
        "[ (now {max_num_seqs})] or the capture sizes; enforce_eager is the last resort.",
        patterns=(r"CUDA out of memory", r"CUDA error: out of memory", r"OutOfMemoryError: "),
        source=(_VLLM + "57475",),
        needs=r"Available KV cache memory: \d|GPU KV cache size: \d|Capturing CUDA graph|# (?:GPU|cuda) blocks: [1-9]",
        replaces=("cuda_out_of_memory",),
        certain=False,
    ),
    Known(
        code="cuda_out_of_memory",
        cause="The card has no memory left[ (wanted {allocate}, free {free} of {total})] while the model was loaded "
        "or profiled: the weights and activations are larger than what is free.",
        remedy="Look for other processes on this GPU first. Then take a smaller or quantised checkpoint, more GPUs "
        "(tensor_parallel_size[, now {tensor_parallel_size}]), or lower max_num_batched_tokens"
        "[ (now {max_num_batched_tokens})], max_num_seqs[ (now {max_num_seqs})] and the image limits. A larger "
        "gpu_memory_utilization does not help.",
        patterns=(
            r"CUDA out of memory\.? Tried to allocate (?P<allocate>[\d.]+ [KMG]iB).{0,60}total capacity of "
            r"(?P<total>[\d.]+ [KMG]iB) of which (?P<free>[\d.]+ [KMG]?i?B(?:ytes)?) (?:is|are) free",
            r"CUDA out of memory",
            r"CUDA error: out of memory",
            r"OutOfMemoryError: (?!CUDA)",
            r"HIP out of memory",
            r"CUDA_ERROR_OUT_OF_MEMORY",
            r"cudaErrorMemoryAllocation",
            r"CUBLAS_STATUS_ALLOC_FAILED",
        ),
        source=(_VLLM + "16343", _VLLM + "31273", _VLLM + "188"),
        rank=GENERIC,
        certain=False,
    ),
    Known(
        code="mm_item_exceeds_batch",
        cause="One image or video needs [{needed} tokens|more tokens than fit] in one batch, the batch has "
        "[{have}|too few].",
        remedy="Set max_num_batched_tokens to [at least {needed} (now {have})|at least {needed}|a larger value], or "
        "lower the largest picture size (mm_processor_kwargs max_pixels).",
        patterns=(
            r"max_tokens_per_mm_item \((?P<needed>\d+)\) is larger than max_num_batched_tokens \((?P<have>\d+)\)",
            r"max_num_batched_tokens \((?P<have>\d+)\) is (?:smaller|less|lower) than .{0,60}"
            r"(?:mm|multi-?modal|image).{0,40}\((?P<needed>\d+)\)",
            r"Chunked MM input disabled but",
            r"multi-?modal item.{0,80}exceeds.{0,40}(?:encoder (?:cache|compute) budget|max_num_batched_tokens)",
            r"(?:image|video|multi-?modal).{0,60}\(?(?P<needed>\d+)\)? tokens.{0,60}exceeds? (?:the )?"
            r"(?:pre-?allocated )?encoder cache size",
        ),
        source=(_VLLM + "42687", "https://github.com/decoderesearch/interp-engine/pull/2"),
    ),
    Known(
        code="batched_tokens_below_context",
        cause="max_num_batched_tokens[ ({have})] is smaller than max_model_len[ ({context})] while chunked prefill "
        "is off: no full prompt could be processed.",
        remedy="Set max_num_batched_tokens to at least [{context}|max_model_len], lower max_model_len, or switch "
        "enable_chunked_prefill on.",
        patterns=(r"max_num_batched_tokens \((?P<have>\d+)\) is smaller than max_model_len \((?P<context>\d+)\)",),
    ),
    Known(
        code="gpu_memory_orphan_process",
        cause="A process that belongs to no running container holds memory on the GPU.",
        remedy="Show the process (nvidia-smi --query-compute-apps), end it by its id, and stop containers instead of "
        "removing them by force.",
        patterns=(r"VLLM::\w+ .{0,60}hold .{0,60}docker ps shows no container",),
        source=("https://github.com/vllm-project/vllm-omni/issues/2317",),
        certain=False,
    ),
)

_ARGUMENTS = (
    Known(
        code="max_model_len_exceeds_model",
        cause="max_model_len[ ({wanted})] is larger than the model's own limit[ ({limit})].",
        remedy="Set max_model_len to [at most {limit} (now {wanted})|at most {limit}|the model's limit], or use a "
        "rope scaling that the model's card names.",
        patterns=(
            r"User-specified max_model_len \((?P<wanted>\d+)\) is greater than the derived max_model_len "
            r"\([^)=]*=(?P<limit>\d+)",
            r"max_model_len.{0,40}(?:is )?(?:greater|larger) than (?:the )?(?:derived|model's|maximum)",
        ),
        source=(_VLLM + "3676",),
    ),
    Known(
        code="unknown_tool_parser",
        cause="This engine version knows no tool parser [{name}|of this name].",
        remedy="Set tool_call_parser to one of [{known}|the names in the message], or pin an image that has it.",
        patterns=(
            r"invalid tool call parser: (?P<name>[\w.-]+) \(cho(?:o)?sen? from \{(?P<known>[^}\n]+)\}",
            r"invalid tool call parser: (?P<name>[\w.-]+)",
            r"Tool (?:call )?parser '(?P<name>[^']+)' not found\.? Available (?:tool )?parsers: (?P<known>[\w,.-]+)",
            r"Tool (?:call )?parser:? '?(?P<name>[\w.-]+)'? (?:is )?not (?:found|registered|supported)",
            r"argument --tool-call-parser: invalid choice: '?(?P<name>[\w.-]+)'? \(choose from (?P<known>[^)\n]+)\)",
        ),
        source=("https://github.com/vllm-project/recipes/issues/51",),
    ),
    Known(
        code="unknown_reasoning_parser",
        cause="This engine version knows no reasoning parser [{name}|of this name].",
        remedy="Set reasoning_parser to one of [{known}|the names in the message], or pin an image that has it.",
        patterns=(
            r"Reasoning parser '(?P<name>[^']+)' not found\.? Available (?:reasoning )?parsers: (?P<known>[\w,.-]+)",
            r"Reasoning parser:? '?(?P<name>[\w.-]+)'? (?:is )?not (?:found|registered|supported)",
            r"invalid reasoning parser: (?P<name>[\w.-]+)(?: \(cho(?:o)?sen? from \{(?P<known>[^}\n]+)\})?",
            r"argument --reasoning-parser: invalid choice: '?(?P<name>[\w.-]+)'? \(choose from (?P<known>[^)\n]+)\)",
        ),
    ),
    Known(
        code="tool_parser_missing",
        cause="enable_auto_tool_choice is on, but no tool parser is set.",
        remedy="Set tool_call_parser to the parser of the model's family, or drop enable_auto_tool_choice.",
        patterns=(
            r"enable-auto-tool-choice requires .{0,3}tool-call-parser",
            r"\"auto\" tool choice requires .{0,40}tool-call-parser",
        ),
    ),
    Known(
        code="argv_item_with_space",
        cause="An option and its value stand in ONE item of the command list, so the engine sees one unknown word.",
        remedy="Write one word per list item, or option=value; and do not repeat the image's entrypoint (serve).",
        patterns=(
            r"unrecognized arguments: (?:.{0,200} )?--?(?:dtype|model|host|port|max-model-len|served-model-name|"
            r"tensor-parallel-size|gpu-memory-utilization|max-num-seqs)\s[^-\s]",
        ),
        source=(_VLLM + "22072",),
        replaces=("unrecognized_argument",),
    ),
    Known(
        code="unrecognized_argument",
        cause="This engine version has no option [{argument}|of this name].",
        remedy="[{argument} is gone. {advice}|Drop {argument} or correct its name; it may have been removed or "
        "renamed between the pinned image and the one this was written for.|Correct the option's name.]",
        patterns=(
            r"error: unrecognized arguments: (?P<argument>--?[\w.-]+)",
            r"error: unrecognized arguments",
            r"error: ambiguous option: (?P<argument>--?[\w.-]+) could match",
            r"No such option: (?P<argument>--?[\w.-]+)",
            r"EngineArgs.{0,20}got an unexpected keyword argument '(?P<argument>\w+)'",
        ),
        source=("https://github.com/ai-dynamo/dynamo/pull/8693",),
        derive=_successor,
    ),
    Known(
        code="mm_limit_format",
        cause="limit_mm_per_prompt is in the old key=value form[ ({value})]; this version takes a mapping (JSON).",
        remedy='Write limit_mm_per_prompt as a mapping: {"image": 4, "audio": 1}, as one word on a command line.',
        patterns=(
            r"argument --limit-mm-per-prompt: (?:invalid|Value) (?P<value>[\w=,]+) cannot be converted",
            r"argument --limit-mm-per-prompt",
            r"limit[-_]mm[-_]per[-_]prompt.{0,80}(?:invalid|not valid|must be).{0,30}(?:JSON|dict)",
        ),
        source=(_VLLM + "39687",),
    ),
    Known(
        code="invalid_argument_value",
        cause="The engine does not take the value [{value} of {argument}|of {argument}|of an option].",
        remedy="Correct [{argument} (now {value}); allowed: {known}|{argument} (now {value}); {limit}|{argument}: "
        "{limit}|{argument}|the option the message names].",
        patterns=(
            r"error: argument (?P<argument>--?[\w./-]+): invalid choice: '?(?P<value>[^'\n(]+?)'? "
            r"\(choose from (?P<known>[^)\n]+)\)",
            r"error: argument (?P<argument>--?[\w./-]+): (?:Value|invalid \w+ value:) '?(?P<value>[^'\n]{1,80}?)'?"
            r"(?: cannot be converted|$)",
            r"error: argument (?P<argument>--?[\w./-]+): (?:expected|not allowed|invalid)",
            r"\d validation errors? for \w*Config (?P<argument>[a-z_][\w.]*?) (?P<limit>Input should be "
            r"(?:less|greater)"
            r" than (?:or equal to )?[\d.-]+) .{0,40}input_value=(?P<value>[^,\n]+)",
            r"(?P<limit>Input should be .{1,120}?) \[type=\w+, input_value=(?P<value>[^,\n]+)",
        ),
        source=(_VLLM + "39687",),
    ),
    Known(
        code="unknown_engine_env",
        cause="This engine version does not know the environment variable {name} and ignores it.",
        remedy="[Use the option {successor} in place of {name}.|Drop {name}, or use the option that took its place.]",
        patterns=(r"Unknown vLLM environment variable detected: (?P<name>\w+)",),
        source=("https://github.com/vllm-project/vllm/pull/50346",),
        severity=WARNING,
        certain=False,
        derive=lambda values: (
            {"successor": "attention_backend"} if values.get("name") == "VLLM_ATTENTION_BACKEND" else {}
        ),
    ),
    Known(
        code="parallel_size_exceeds_gpus",
        cause="tensor_parallel_size x pipeline_parallel_size[ ({wanted})] is larger than the GPUs the container "
        "sees[ ({have})].",
        remedy="Give the stack as many GPUs as tensor_parallel_size x pipeline_parallel_size, or lower "
        "tensor_parallel_size[ to {have}].",
        patterns=(
            r"world_size \((?P<wanted>\d+)\) is less than (?:than )?(?:or equal to )?(?:the )?max local gpu count "
            r"\((?P<have>\d+)\)",
            r"World size \((?P<wanted>\d+)\) is (?:larger|greater) than the number of available GPUs "
            r"\((?P<have>\d+)\)",
            r"Tensor parallel size \((?P<wanted>\d+)\) cannot be larger than the number of available GPUs "
            r"\((?P<have>\d+)\)",
            r"number of required GPUs exceeds the total number of available GPUs",
            r"local_world_size \((?P<wanted>\d+)\) must be less than or equal to the number of visible devices "
            r"\((?P<have>\d+)\)",
            r"Current node has no GPU available",
            r"adjusted local rank \d+ is out of bounds",
            r"CUDA error: invalid device ordinal",
            r"Ray does not allocate any GPUs on the driver node",
            r"tensor.parallel.{0,40}(?:larger|greater|more) than .{0,30}(?:available|visible).{0,10}(?:GPU|device)s",
        ),
        source=(_VLLM + "15217",),
    ),
    Known(
        code="heads_not_divisible",
        cause="[{heads} attention heads cannot be divided among {size} GPUs.|The attention heads cannot be divided "
        "among the GPUs.]",
        remedy="Set tensor_parallel_size to [one of {fits} (now {size})|a divisor of {heads}|a divisor of the number "
        "of heads].",
        patterns=(
            r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<size>\d+)\)",
            r"attention heads.{0,60}must be divisible by.{0,30}tensor parallel",
            r"(?P<heads>\d+) is not divisible by (?P<size>\d+)$",
        ),
        derive=_tensor_parallel,
        source=(_VLLM + "2652", _VLLM + "596"),
    ),
    Known(
        code="architecture_unsupported",
        cause="The image is too old (or not made) for this model[: it does not know {name}].",
        remedy="Pin an image whose engine knows [{name}|the model's architecture]; the model's card names the first "
        "version. Installing packages into the container is not the fix.",
        patterns=(
            r"has model type [`'\"](?P<name>[\w.-]+)[`'\"] but Transformers does not recognize",
            r"Model architectures \['?(?P<name>\w+)'?.{0,200}\] (?:are|is) not supported",
            r"Model architectures \['?(?P<name>\w+)'?.{0,200}\] failed to be inspected",
            r"(?P<name>\w+) has no vLLM implementation",
            r"Cannot find model module\. '(?P<name>\w+)' is not a registered model",
            r"does not recognize this architecture",
            r"No module named 'transformers\.models\.(?P<name>\w+)'",
            r"cannot import name '(?P<name>\w+)' from 'transformers",
            r"Unrecognized configuration class .{0,120}(?P<name>\w+Config)",
            r"KeyError: '(?P<name>(?:qwen|llama|gemma|mistral|glm|deepseek|phi|granite|internvl|minicpm)[\w.-]*)'$",
            r"(?P<name>\w+) (?:is|are) not supported (?:for now|yet)\. Supported architectures",
            r"architecture '?(?P<name>[\w-]+)'? (?:is )?not (?:yet )?supported",
        ),
        source=(_VLLM + "36217", _VLLM + "9713", _VLLM + "15006"),
    ),
)

_QUANTIZATION = (
    Known(
        code="quantization_capability",
        cause="The quantisation[ {method}] needs a newer GPU[: compute capability {minimum}, this one has {current}].",
        remedy="Choose another checkpoint for this card or another GPU; nvidia-smi --query-gpu=compute_cap says "
        "before the start what a card has.",
        patterns=(
            r"quantization method (?P<method>[\w.-]+) is not supported for the current GPU\.? Minimum capability: "
            r"(?P<minimum>\d+)\.? Current capability: (?P<current>\d+)",
            r"is not supported for the current GPU",
            r"fp8e4nv not supported in this architecture",
            r"_scaled_mm is only supported on CUDA devices with compute capability",
            r"Current platform does not support (?P<method>[\w-]+) quantization",
            r"(?P<method>NVFP4|MXFP4|FP8|FP4|Marlin|Machete|AWQ).{0,40}(?:requires|needs|only supported "
            r"on|supported only "
            r"on).{0,60}compute capability",
            r"Failed to find a kernel that can implement the .{0,40}linear layer",
            r"FP8 KV cache .{0,60}requires",
            r"(?P<method>fp8|nvfp4|mxfp4)(?: quantization)? is (?:currently )?not supported (?:on|in|for) this "
            r"(?:GPU|device)",
        ),
        source=(_VLLM + "4202",),
    ),
    Known(
        code="quantization_mismatch",
        cause="The option quantization[ ({argument})] and the checkpoint's own method[ ({method})] differ.",
        remedy="Drop the option quantization: the engine reads the method from the checkpoint.",
        patterns=(
            r"Quantization method specified in the model config \((?P<method>[\w.-]+)\) does not match the "
            r"quantization "
            r"method specified in the .{0,3}quantization.{0,3} argument \((?P<argument>[\w.-]+)\)",
            r"Unknown quantization method:? '?(?P<method>[\w.-]+)",
            r"Invalid quantization method:? '?(?P<method>[\w.-]+)",
        ),
        source=(_VLLM + "5842", _VLLM + "19050"),
    ),
    Known(
        code="quant_tile_size",
        cause="Divided among the GPUs, a quantised layer[ ({name} {size})] no longer fits the kernel's tiles or "
        "groups[ of {tile}].",
        remedy="Set a smaller tensor_parallel_size[ (now {tensor_parallel_size})], so that size / "
        "tensor_parallel_size is a multiple of [{tile}|the tile or group], or use a GPU that has the format natively.",
        patterns=(
            r"(?P<name>size_[nk]) = (?P<size>\d+),? is not divisible by (?:tile_n_size|tile_k_size|tile_size) = "
            r"(?P<tile>\d+)",
            r"(?P<name>size_[nk]) = (?P<size>\d+),? is not divisible by b_scales\.size\(\d\) = (?P<tile>\d+)",
            r"(?P<name>(?:in|out)put_size(?:_per_partition)?) = (?P<size>\d+) is not divisible by "
            r"(?:min_thread_[nk]|weight quantization block_[nk]|group_?size|block_[nk]) = (?P<tile>\d+)",
            r"weight = (?P<size>\d+) is not divisible by weight quantization block_[nk] = (?P<tile>\d+)",
            r"is not divisible by (?:min_thread_|tile_|weight quantization block|b_scales|group_?size|block_size)",
            r"not aligned with the quantized weight shape",
            r"(?P<name>prob_[mnk]) = (?P<size>\d+) is not divisible by thread_[mnk] = (?P<tile>\d+)",
            r"(?:Invalid|No valid) thread config.{0,120}(?:not divisible|prob_[nk]|size_[nk])",
        ),
        source=("https://github.com/zai-org/GLM-V/issues/178", _VLLM + "49949"),
    ),
    Known(
        code="dtype_capability",
        cause="bfloat16 needs compute capability 8.0[; the {gpu} has {current}]. With different cards in one host the "
        "engine may look at another one than nvidia-smi's order says.",
        remedy="Pin the GPU by its uuid and set CUDA_DEVICE_ORDER=PCI_BUS_ID; if this card is meant, set dtype: half"
        "[ (now {dtype})].",
        patterns=(
            r"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\.? Your "
            r"(?P<gpu>.{3,40}?) GPU has "
            r"compute capability (?P<current>\d\.\d)",
            r"bfloat16 is (?:only supported on|not supported (?:on|by)) .{0,60}(?:GPU|device|compute capability)",
            r"bf16 is (?:only supported on|not supported (?:on|by)) .{0,60}(?:GPU|device|compute capability)",
        ),
        source=(_VLLM + "7472",),
    ),
    Known(
        code="known_bad_combination",
        cause="The engine died while it measured the image encoder[ (quantization {quantization})]: online "
        "quantisation also takes the vision tower's layers, whose shapes do not fit the kernel.",
        remedy="Drop the option quantization[ (now {quantization})] for this vision model, or take a checkpoint whose "
        "vision tower is left in BF16.",
        patterns=(r"EngineCore (?:hit an exception|failed to start|encountered a fatal error)",),
        needs=r"Encoder cache will be initialized with a budget of \d+ tokens.{0,4} and profiled "
        r"with|encoder_cache.{0,60}profil",
        unless=r"Available KV cache memory|KV cache size: ",
        source=("https://github.com/QwenLM/Qwen3-VL/issues/983",),
        rank=WRAPPER,
        replaces=("engine_init_failed", "engine_dead"),
        certain=False,
    ),
)

_MODEL = (
    Known(
        code="hub_gated",
        cause="The model is gated, and the container has no token whose account was given access[ ({name})].",
        remedy="Accept the licence for the account on the hub, and pass its token as HF_TOKEN in the model's secrets.",
        patterns=(
            r"trying to access a gated repo",
            r"Access to model (?P<name>[\w./-]+) is restricted",
            r"GatedRepoError",
            r"Cannot access gated repo",
            r"you are not in the authorized list",
            r"awaiting a review from the repo authors",
            r"403 Client Error: Forbidden for url: .{0,80}/resolve/",
        ),
        source=("https://github.com/ogx-ai/ogx/issues/344",),
        replaces=("hub_not_found", "hub_offline_not_cached"),
    ),
    Known(
        code="hub_not_found",
        cause="The hub has no such repository, revision or file[: {name}], or the token may not see it.",
        remedy="Check source and revision of the model; a private repository needs HF_TOKEN in the model's secrets.",
        patterns=(
            r"(?P<name>[\w./-]+) is not a local folder and is not a valid model identifier",
            r"RepositoryNotFoundError",
            r"Repository Not Found for url",
            r"RevisionNotFoundError",
            r"Revision Not Found for url",
            r"is not a valid git identifier",
            r"EntryNotFoundError: 404",
            r"401 Client Error: Unauthorized for url: .{0,80}/(?:resolve|api/models)",
        ),
    ),
    Known(
        code="hub_rate_limited",
        cause="The hub refuses more requests from this address; every start asks it for metadata, even with the model "
        "in the cache.",
        remedy="Wait some minutes and start again; set HF_HUB_OFFLINE=1 once the revision is cached. Never restart in "
        "a tight loop.",
        patterns=(
            r"429 Client Error: Too Many Requests for url",
            r"HfHubHTTPError: 429",
            r"429 Too Many Requests for url",
            r"We had to rate limit (?:your IP|you)",
            r"429 Client Error.{0,60}(?:resolve|api/models)",
            r"Too Many Requests.{0,80}(?:/resolve/|huggingface)",
        ),
        source=(_VLLM + "24541",),
        retryable=True,
        replaces=("hub_offline_not_cached", "hub_unreachable"),
        certain=False,
    ),
    Known(
        code="hub_unreachable",
        cause="The container cannot reach the model hub.",
        remedy="Check name resolution, proxy and firewall of the host; or fetch the revision first and set "
        "HF_HUB_OFFLINE=1.",
        patterns=(
            r"Failed to resolve '[\w.-]*(?:huggingface\.co|hf\.co|modelscope\.\w+)'",
            r"HTTPSConnectionPool\(host='[\w.-]*(?:huggingface\.co|hf\.co)'.{0,300}"
            r"(?:Max retries|timed out|NameResolution|ConnectTimeout|ProxyError|SSLError)",
            r"huggingface\.co.{0,120}(?:Temporary failure in name resolution|Connection timed out|Network is "
            r"unreachable)",
            r"An error happened while trying to locate the files? on the Hub",
        ),
        retryable=True,
        certain=False,
    ),
    Known(
        code="hub_offline_not_cached",
        cause="The engine may not (or cannot) ask the hub, and the model is not in the cache.",
        remedy="Fetch the revision first, or unset HF_HUB_OFFLINE for the first start; check that the hub cache is "
        "mounted and that the revision is the cached one.",
        patterns=(
            r"LocalEntryNotFoundError",
            r"in the disk cache and outgoing traffic has been disabled",
            r"Cannot find an appropriate cached snapshot folder",
            r"OfflineModeIsEnabled",
            r"offline mode is enabled\. To disable it",
            r"We couldn'?t connect to .{0,80}to load (?:this|the) files?",
            r"could ?n[o']t find (?:it|them) in the cached files",
        ),
        source=("https://github.com/Avarok-Cybersecurity/dgx-vllm/issues/16",),
        certain=False,
    ),
    Known(
        code="model_not_found",
        cause="There is no model at [{name}|the given place]: the folder does not exist in the container or has no "
        "config.json.",
        remedy="Check the model's source and that its folder on the host is mounted at the same path; a folder must "
        "hold config.json (or params.json).",
        patterns=(
            r"Repo id must be in the form .{0,60}: '(?P<name>[^'\n]+)'",
            r"Repo id must use alphanumeric chars.{0,160}: '(?P<name>[^'\n]+)'",
            r"Invalid repository ID or local directory specified: '(?P<name>[^'\n]+)'",
            r"(?P<name>/[\w./-]+) does not appear to have a file named config\.json",
            r"No such file or directory: '(?P<name>[^'\n]+config\.json)'",
            r"Incorrect path_or_model_id: '(?P<name>[^'\n]+)'",
            r"Unrecognized model in (?P<name>[\w./-]+)\. Should have a",
        ),
    ),
    Known(
        code="tokenizer_missing",
        cause="The tokenizer cannot be loaded[ from {name}]: its files are missing, damaged or of a newer kind.",
        remedy="Fetch the checkpoint again with its tokenizer files (tokenizer.json, tokenizer_config.json), or set "
        "tokenizer to a place that has them; a newer kind needs a newer image.",
        patterns=(
            r"Can't load tokenizer for '(?P<name>[^'\n]+)'",
            r"Couldn't instantiate the backend tokenizer",
            r"Tokenizer class (?P<name>\w+) does not exist or is not currently imported",
            r"Failed to load the tokenizer",
            r"data did not match any variant of untagged enum ModelWrapper",
            r"expected str, bytes or os\.PathLike object, not NoneType.{0,40}vocab",
            r"The decoder prompt cannot be empty",
            r"failed to tokenize reasoning strings: reasoning_start_str=''",
        ),
        source=("https://github.com/lm-sys/FastChat/issues/492",),
        certain=False,
    ),
    Known(
        code="preprocessor_missing",
        cause="The checkpoint has no image processor[ ({name})]: preprocessor_config.json is missing.",
        remedy="Fetch the whole checkpoint again; a quantised copy often lacks the file: take it from the original.",
        patterns=(
            r"Can't load (?:image|video|audio)? ?(?:feature extractor|processor) for '(?P<name>[^'\n]+)'",
            r"does not appear to have a file named preprocessor_config\.json",
            r"Unrecognized (?:image|video|feature) processor in (?P<name>[\w./-]+)",
        ),
    ),
    Known(
        code="disk_full",
        cause="The file system is full[: {name}].",
        remedy="Free or add space on the file system that holds [{name}|the model cache (or Docker's images)]; the "
        "whole checkpoint has to fit, and a download needs it before the old one is gone.",
        patterns=(
            r"\[Errno 28\] No space left on device: '(?!/dev/shm|/?psm_|/?torch_)(?P<name>[^'\n]+)'",
            r"\[Errno 28\] No space left on device(?!: '(?:/dev/shm|/?psm_))",
            r"No space left on device \(os error 28\)",
            r"(?:write|mkdir|copy|open|create) (?P<name>/[\w./-]+): no space left on device",
            r"failed to (?:register layer|copy|extract|prepare|ingest|commit).{0,300}no space left on device",
            r"Disk quota exceeded",
            r"Not enough free disk space to download",
        ),
        source=("https://github.com/AI-Hypercomputer/tpu-recipes/issues/148",),
    ),
    Known(
        code="cache_permission",
        cause="The container's user may not write to [{name}|its cache folder].",
        remedy="Make the folder's owner on the host the container's user (compare the uid of the folder and of the "
        "process), or mount the cache writable.",
        patterns=(
            r"\[Errno 13\] Permission denied: '(?!/var/run|/run/docker)(?P<name>[^'\n]+)'",
            r"PermissionError at (?P<name>/\S+?) when downloading",
            r"\[Errno 30\] Read-only file system: '(?P<name>[^'\n]+)'",
            r"problem when trying to (?:write in|create) your cache folder \((?P<name>[^)\n]+)\)",
            r"Permission denied \(os error 13\)",
        ),
        source=("https://github.com/av/harbor/issues/262",),
        certain=False,
    ),
    Known(
        code="trust_remote_code_required",
        cause="The model's repository brings its own code, and running it was not allowed[ ({name})].",
        remedy="Decide about it: read the code, pin the revision, then set trust_remote_code: true for this one model. "
        "Never switch it on for all.",
        patterns=(
            r"The repository (?:for )?(?P<name>\S+?) contains custom code which must be executed",
            r"contains custom code which must be executed",
            r"requires you to execute the (?:configuration|modeling|tokenizer)? ?file in that repo",
            r"pass the argument .?trust_remote_code=True",
            r"consider setting .?trust_remote_code=True",
        ),
        source=("https://github.com/docker/model-runner/issues/858",),
    ),
    Known(
        code="weights_corrupt",
        cause="A weight file is damaged or cut off[ ({reason})].",
        remedy="Compare size and hash of the files with the hub's, remove the bad one from the cache and fetch it "
        "again; check whether the pinned revision itself is broken.",
        patterns=(
            r"SafetensorError: (?:Error while deserializing (?:header)?:? ?)?(?P<reason>\w+)",
            r"Error while deserializing header",
            r"MetadataIncompleteBuffer",
            r"HeaderTooLarge",
            r"HeaderTooSmall",
            r"InvalidHeaderDeserialization",
            r"PytorchStreamReader failed",
            r"UnpicklingError: invalid load key",
            r"Consistency check failed: file should be of size",
            r"incomplete metadata, file not fully covered",
        ),
        source=("https://github.com/QwenLM/Qwen3-VL/issues/264",),
    ),
    Known(
        code="weights_missing",
        cause="There is not one weight file at [{name}|the model's place].",
        remedy="Fetch the checkpoint again; if it has only files of another format, set load_format to it.",
        patterns=(
            r"Cannot find any model weights with .{0,2}?(?P<name>[\w./-]+)",
            r"no file named (?:pytorch_model\.bin|model\.safetensors)",
        ),
    ),
    Known(
        code="weights_mismatch",
        cause="The weights do not fit the model's configuration[ ({have} and {wanted})].",
        remedy="The checkpoint's config.json and its weight files are of different models or versions: fetch one "
        "revision whole; if it is a new variant, pin a newer image.",
        patterns=(
            r"The size of tensor a \((?P<wanted>\d+)\) must match the size of tensor b \((?P<have>\d+)\)",
            r"Attempted to load weight \(.{0,60}\) into parameter \(",
            r"There is no module or parameter named",
            r"weights were not initialized from checkpoint",
            r"size mismatch for [\w.]+",
            r"shape mismatch.{0,80}(?:weight|param)",
            r"start \(\d+\) \+ length \(\d+\) exceeds dimension size",
            r"loaded_weight\.shape",
        ),
    ),
    Known(
        code="python_package_missing",
        cause="The image lacks a Python package that the options ask for[: {name}].",
        remedy="[Drop the option that needs {name} (for xxhash: prefix_caching_hash_algo) or pin an image that has "
        "it.|Drop the option that needs it or pin another image.]",
        patterns=(
            r"ModuleNotFoundError: (?P<name>[\w-]+) is required",
            r"(?P<name>[\w-]+) is required for the .{1,60}\. Install it via",
            r"ModuleNotFoundError: No module named '(?!transformers\.models)(?P<name>[\w.-]+)'",
            r"Please install (?P<name>[\w\[\]-]+) (?:via|with|by|using)",
            r"(?P<name>bitsandbytes|auto_gptq|flash_attn|flashinfer|xformers|deep_gemm|decord|librosa)(?: "
            r"package)? is not "
            r"installed",
        ),
        rank=GENERIC,
        certain=False,
    ),
    Known(
        code="chat_template_path_missing",
        cause="chat_template names a file that does not exist in the container.",
        remedy="Mount the file and give its path inside the container, or drop chat_template.",
        patterns=(r"chat template string .{0,200}appears path-like, but doesn't exist",),
    ),
)

_HOST = (
    Known(
        code="nvidia_runtime_missing",
        cause="Docker on this host has no NVIDIA runtime: the container toolkit is not installed, or the daemon was "
        "not restarted after it was.",
        remedy="Install the toolkit, run 'nvidia-ctk runtime configure --runtime=docker', restart Docker, and check "
        "that 'docker info' lists the runtime nvidia.",
        patterns=(
            r"could not select device driver .{0,12} with capabilities: \[\[",
            r"unknown or invalid runtime name: \"?nvidia",
            r"Unknown runtime specified \"?nvidia",
            r"runtime \"?nvidia\"? (?:is )?not (?:found|registered|configured)",
            r"\"nvidia-container-(?:runtime|cli|runtime-hook)\": executable file not found",
            r"nvidia-container-runtime.{0,60}no such file or directory",
            r"no known GPU vendor found",
        ),
        source=("https://github.com/infiniflow/ragflow/issues/9573", _TOOLKIT + "653"),
    ),
    Known(
        code="gpu_lost_in_container",
        cause="The container lost its GPU while the host still has it: systemd re-applied device rules that do not "
        "know the injected devices (a daemon-reload does that).",
        remedy="Recreate the container. For good: CDI, the cgroupfs driver, or links for the device nodes.",
        patterns=(
            r"Failed to initialize NVML: Unknown Error",
            r"NVMLError_Unknown",
        ),
        source=(_TOOLKIT + "48",),
        certain=False,
    ),
    Known(
        code="driver_library_mismatch",
        cause="The driver's user-space part and its kernel module have different versions, as after an update "
        "without a reboot.",
        remedy="Reboot the host (or reload the nvidia modules); nvidia-smi on the host must work first. Inside a "
        "container only, a driver library of the image hides the host's: set LD_LIBRARY_PATH in the stack's env to "
        "/usr/local/nvidia/lib64:/usr/local/nvidia/lib.",
        patterns=(
            r"driver/library version mismatch",
            r"Error 803",
            r"unsupported display driver / cuda driver combination",
            r"API mismatch: the client has the version",
        ),
        source=(
            "https://github.com/open-webui/open-webui/issues/14848",
            "https://github.com/gpustack/gpustack/issues/4678",
        ),
    ),
    Known(
        code="cdi_device_unresolvable",
        cause="The host's CDI description has no device [{name}|of this name].",
        remedy="Compare with 'nvidia-ctk cdi list'; generate the description again after a change of driver or GPU.",
        patterns=(
            r"unresolvable CDI devices? (?P<name>[\w./=:-]+)",
            r"failed to inject CDI devices",
            r"CDI device injection failed",
            r"CDI device .{0,80}not found",
        ),
        source=(_TOOLKIT + "1239",),
    ),
    Known(
        code="driver_too_old",
        cause="The host's driver is too old for this image[, which needs CUDA {needed}].",
        remedy="Update the host's driver, or pin an image built for an older CUDA. On consumer cards the image's "
        "compatibility libraries cannot help.",
        patterns=(
            r"unsatisfied condition: (?:cuda|driver) ?>=? ?(?P<needed>[\d.]+\d)",
            r"unsatisfied condition: ",
            r"Error 804",
            r"forward compatibility was attempted on non supported HW",
            r"NVIDIA driver on your system is too old",
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"PTX was compiled with an unsupported toolchain",
            r"please update your driver to a newer version",
        ),
        source=("https://github.com/MauriceNino/dashdot/issues/1226", _VLLM + "4940"),
    ),
    Known(
        code="fabric_manager_missing",
        cause="A machine with NVSwitch needs the fabric manager in the driver's version, and it does not run.",
        remedy="Start nvidia-fabricmanager in exactly the driver's version and start the stack again.",
        patterns=(
            r"Error 802",
            r"CUDA error: system not yet initialized",
            r"CUDA_ERROR_SYSTEM_NOT_READY",
            r"cudaErrorSystemNotReady",
        ),
        source=("https://github.com/gpustack/gpustack/issues/1254",),
    ),
    Known(
        code="cuda_visible_devices_uuid",
        cause="CUDA_VISIBLE_DEVICES holds a GPU UUID, which this engine version reads as a number.",
        remedy="Put UUIDs only into the stack's GPUs (Compose device_ids) and leave CUDA_VISIBLE_DEVICES unset.",
        patterns=(r"invalid literal for int\(\) with base 10: ['\"](?:GPU|MIG)-",),
        source=(_VLLM + "13815",),
    ),
    Known(
        code="gpu_arch_not_in_image",
        cause="The image has no code for this GPU's generation.",
        remedy="Pin an image built for this compute capability (TORCH_CUDA_ARCH_LIST), mostly a newer one.",
        patterns=(
            r"no kernel image is available for execution on the device",
            r"cudaErrorNoKernelImageForDevice",
            r"CUDA error: invalid device function",
            r"is not compatible with the current PyTorch installation",
        ),
        certain=False,
        source=(_VLLM + "16307", _VLLM + "18835"),
    ),
    Known(
        code="gpu_not_visible",
        cause="The engine sees no GPU in the container.",
        remedy="Check that the stack has GPUs, that nvidia-smi works on the host and in a container, and that "
        "NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES do not contradict the device ids.",
        patterns=(
            r"No CUDA GPUs are available",
            r"Found no NVIDIA driver on your system",
            r"Failed to infer device type",
            r"libcuda\.so\.1: cannot open shared object file",
            r"no CUDA-capable device is detected",
            r"CUDA unknown error - this may be due to an incorrectly set up environment",
            r"NVMLError_(?:LibraryNotFound|DriverNotLoaded|NoPermission)",
            r"Failed to initialize NVML: (?:Driver Not Loaded|Insufficient Permissions|GPU access blocked)",
            r"NVML Shared Library Not Found",
        ),
        certain=False,
        source=(_VLLM + "13946", _VLLM + "27268"),
    ),
    Known(
        code="driver_missing",
        cause="The NVIDIA driver is not loaded on the host.",
        remedy="Install or load the driver until nvidia-smi works on the host; after a kernel update its module may "
        "have to be built again.",
        patterns=(
            r"nvidia-container-cli: initialization error: (?:load library failed|driver (?:rpc )?error|nvml "
            r"error: driver "
            r"not loaded)",
            r"libnvidia-ml\.so\.1: cannot open shared object file",
            r"nvml error: (?:unknown error|unable to load)",
            r"NVIDIA-SMI has failed because it couldn't communicate",
        ),
        source=(
            "https://github.com/n8n-io/self-hosted-ai-starter-kit/issues/11",
            "https://github.com/getumbrel/llama-gpt/issues/132",
        ),
    ),
    Known(
        code="gpu_container_setup_failed",
        cause="NVIDIA's container tool could not prepare the container[: {reason}].",
        remedy="Check that nvidia-smi works on the host and in a plain CUDA container; bring the container toolkit to "
        "the present version.",
        patterns=(r"nvidia-container-cli: (?P<reason>[^\n]{1,120})",),
        source=("https://github.com/mudler/LocalAGI/issues/49",),
        rank=GENERIC,
    ),
    Known(
        code="gpu_unknown_device",
        cause="The host has no such GPU[: {name}].",
        remedy="Compare the stack's GPUs with 'nvidia-smi -L'; a card may be gone, or its index has changed.",
        patterns=(
            r"nvidia-container-cli: device error: (?P<name>[\w-]+): unknown device",
            r"device error: .{0,60}unknown device",
        ),
    ),
    Known(
        code="gpu_fault",
        cause="The GPU itself failed (driver or hardware).",
        remedy="Look for Xid messages in the kernel log; reset the card or reboot, then test it before it serves "
        "again.",
        patterns=(
            r"GPU has fallen off the bus",
            r"GPU is lost",
            r"uncorrectable ECC error",
            r"CUDA error: unspecified launch failure",
            r"cudaErrorECCUncorrectable",
            r"NVRM: Xid .{0,40}: (?:79|48|63|64|74|94|95)\b",
        ),
        certain=False,
    ),
    Known(
        code="shm_too_small",
        cause="The container's shared memory is too small[: {needed} are needed, {free} are free].",
        remedy="Set shm_size to at least 8gb, or ipc: host[ (shm_size now {shm_size})].",
        patterns=(
            r"Error while creating shared memory segment",
            r"Insufficient space in /dev/shm.{0,80}?(?P<needed>\d+ [KMG]iB) required, (?P<free>\d+ [KMG]iB) free",
            r"Insufficient space in /dev/shm",
            r"No space left on device: '?(?:/dev/shm|/?psm_|/?torch_)",
            r"(?:/dev/shm|shared memory|/torch_\d+|/psm_).{0,120}No space left on device",
            r"posix_fallocate failed ?: ?No space left",
            r"Bus error.{0,120}shared memory",
            r"killed by signal: Bus error",
            r"out of shared memory",
            r"insufficient shared memory",
        ),
        source=("https://github.com/MiniMax-AI/MiniMax-01/issues/42",),
        replaces=("nccl_failed", "disk_full"),
    ),
    Known(
        code="nccl_failed",
        cause="The GPUs of the stack cannot talk to each other (NCCL)[: {reason}].",
        remedy="Set NCCL_DEBUG=INFO for one start to see why. Usual: too little shared memory (shm_size, ipc: host), "
        "driver older than the image's CUDA, or no peer access (NCCL_P2P_DISABLE=1 to test).",
        patterns=(
            r"NCCL error:? (?:in: .{0,80}, )?(?P<reason>unhandled (?:system|cuda) error|internal error|invalid usage|"
            r"remote process exited[^,\n]{0,40})",
            r"NCCL error",
            r"ncclInternalError",
            r"ncclSystemError",
            r"ncclUnhandledCudaError",
            r"DistBackendError",
        ),
        source=(_VLLM + "10626", _VLLM + "6732", _VLLM + "21661"),
        rank=GENERIC,
        certain=False,
    ),
)

_COMPOSE = (
    Known(
        code="gpu_count_and_ids",
        cause="The GPU reservation has both count and device_ids, which exclude each other.",
        remedy="Keep device_ids only.",
        patterns=(
            r"\"?count\"? and \"?device_ids\"?.{0,40}exclusive",
            r"both \"?count\"? and \"?device_?ids\"?",
            r"device_?ids\"? and \"?count\"?.{0,40}(?:exclusive|together|both)",
        ),
        source=("https://github.com/compose-spec/compose-go/pull/689",),
    ),
    Known(
        code="device_ids_not_string",
        cause="device_ids must be a list of strings, and capabilities must be set.",
        remedy='Quote the ids (["0"]) and set capabilities: [gpu].',
        patterns=(
            r"device_ids.{0,12} (?:must be a|should be|has to be a|expected) (?:string|array|list)",
            r"devices.{0,40}(?:missing property|is required|required "
            r"property).{0,20}capabilities|devices.{0,20}capabilities"
            r".{0,20}(?:is required|is a required property)",
        ),
        source=("https://github.com/docker/docs/pull/12315",),
    ),
    Known(
        code="dollar_interpolation",
        cause="Compose takes a $ in a value for a variable[ ({name})], and the container gets another value.",
        remedy="Double every $ in Compose values and single-quote values in env files.",
        patterns=(
            r"The \"?(?P<name>\w+)\"? variable is not set\. Defaulting to a blank string",
            r"invalid interpolation format",
        ),
        source=("https://github.com/paperless-ngx/paperless-ngx/issues/8118",),
        severity=WARNING,
        certain=False,
    ),
    Known(
        code="health_start_period_short",
        cause="Docker's health check gave up[ on {name}]; a model that is still loading is unhealthy for it.",
        remedy="Set the health check's start_period to at least the measured load time, and judge by the log whether "
        "it still makes progress.",
        patterns=(
            r"container (?P<name>[\w.<>-]+) is unhealthy",
            r"dependency failed to start: container (?P<name>[\w.<>-]+)",
        ),
        source=("https://github.com/Toloka/tolokaforge/issues/659",),
        rank=GENERIC,
        certain=False,
    ),
    Known(
        code="compose_project_collision",
        cause="Two Compose files have the same project name, so one removes the other's containers as orphans.",
        remedy="Give each stack its own project name; never use --remove-orphans.",
        patterns=(r"Found orphan containers \(\[(?P<name>[^\]\n]+)",),
        source=("https://github.com/taikoxyz/taiko-mono/issues/14475",),
        severity=WARNING,
        certain=False,
    ),
    Known(
        code="port_in_use",
        cause="The port[ {port}] is already taken, by a process or by another container.",
        remedy="See who has it ('ss -ltnp' and the published ports of 'docker ps'), then give this stack another port"
        "[ (now {port})].",
        patterns=(
            r"Bind for [\d.:\[\]]*:(?P<port>\d+) failed: port is already allocated",
            r"port is already allocated",
            r"bind on address \('[^']*', (?P<port>\d+)\).{0,30}address already in use",
            r"listen (?:tcp|udp)\d? [\d.:\[\]]*?:(?P<port>\d+): bind: address already in use",
            r"Address already in use",
            r"failed to bind (?:host )?port (?:for )?[\d.:\[\]]*?:?(?P<port>\d+)",
            r"ports are not available: exposing port \w+ [\d.]*:(?P<port>\d+)",
        ),
        source=("https://github.com/corca-ai/EVAL/issues/20",),
    ),
    Known(
        code="network_addresses_exhausted",
        cause="Docker has no address range left for the network of one more Compose project (about 30 by default).",
        remedy="Remove networks that nobody uses (docker network prune), or give the daemon more and smaller ranges: "
        'default-address-pools, such as [{"base": "172.16.0.0/12", "size": 24}], in container_engine_config.',
        patterns=(
            r"could not find an available, non-overlapping IPv[46] address pool",
            r"all predefined address pools have been fully subnetted",
        ),
        source=("https://github.com/docker/for-linux/issues/599",),
    ),
    Known(
        code="image_pull_rate_limited",
        cause="The registry refuses more pulls from this address for now.",
        remedy="Log in to the registry or use a mirror, and try later; an image whose digest is present need not be "
        "pulled.",
        patterns=(
            r"toomanyrequests",
            r"reached your (?:un)?(?:authenticated )?pull rate limit",
            r"pull rate limit",
        ),
        source=("https://github.com/docker/hub-feedback/issues/2464",),
        retryable=True,
    ),
    Known(
        code="image_not_found",
        cause="The registry has no such image[: {name}], or it needs a login.",
        remedy="Check repository and digest of the image; a digest must be complete (sha256: and 64 hex digits), and "
        "registries delete old nightly images.",
        patterns=(
            r"manifest for (?P<name>\S+?) not found",
            r"manifest unknown",
            r"pull access denied for (?P<name>[\w./-]+)",
            r"repository (?P<name>[\w./-]+) not found",
            r"failed to resolve reference \"(?P<name>[^\"\n]+)\": .{0,200}not found",
            r"No such image: (?P<name>\S+)",
            r"invalid reference format",
        ),
        source=("https://github.com/h44z/wg-portal/issues/308",),
    ),
    Known(
        code="registry_unauthorized",
        cause="The registry wants a login.",
        remedy="Log in on the host (docker login) with an account that may pull the image.",
        patterns=(
            r"no basic auth credentials",
            r"unauthorized: (?:authentication required|incorrect username)",
            r"pull.{0,120}401 Unauthorized",
            r"error getting credentials",
        ),
    ),
    Known(
        code="registry_unreachable",
        cause="The host cannot reach the registry[ ({name})].",
        remedy="Check name resolution, proxy and firewall; for a registry without TLS add it to the daemon's "
        "insecure-registries, for a private authority add its certificate.",
        patterns=(
            r"Get \"https?://(?P<name>[\w.:-]+)/v2/.{0,300}(?:no such host|i/o timeout|connection refused|TLS "
            r"handshake "
            r"timeout|Client\.Timeout|request canceled|EOF|network is unreachable|server gave HTTP "
            r"response|certificate)",
            r"server gave HTTP response to HTTPS client",
            r"x509: certificate signed by unknown authority",
            r"failed to do request: .{0,300}(?:no such host|timeout|refused|EOF)",
            r"error pulling image.{0,300}(?:timeout|refused|EOF|reset)",
        ),
        retryable=True,
    ),
    Known(
        code="image_wrong_platform",
        cause="The image is not built for this host's processor.",
        remedy="Pin a digest of the host's platform (docker buildx imagetools inspect shows them).",
        patterns=(r"exec format error", r"no matching manifest for (?P<name>[\w/]+)"),
    ),
    Known(
        code="docker_unreachable",
        cause="Docker does not answer: it does not run, or this user may not use its socket.",
        remedy="Start Docker (systemctl start docker), or run as a user of the group docker.",
        patterns=(
            r"Cannot connect to the Docker daemon",
            r"permission denied while trying to connect to the Docker (?:daemon socket|API)",
            r"error during connect: .{0,120}docker",
            r"\[Errno 13\] Permission denied: '(?:/var)?/run/docker",
        ),
    ),
    Known(
        code="container_name_taken",
        cause="Another container already has the name[ {name}].",
        remedy="See what it is (docker inspect); rename or remove the old container by hand, or change the stack's "
        "container.",
        patterns=(r"container name \"/?(?P<name>[\w.-]+)\" is already in use",),
    ),
    Known(
        code="mount_missing",
        cause="A path that the stack mounts does not exist on the host or is of another kind[: {name}].",
        remedy="Create the folder or file on the host; a missing FILE is made as a folder by Docker, remove that "
        "first.",
        patterns=(
            r"bind source path does not exist: (?P<name>\S+)",
            r"Are you trying to mount a directory onto a file",
            r"error mounting \"(?P<name>[^\"\n]+)\" to rootfs",
            r"invalid mount config for type",
        ),
    ),
    Known(
        code="compose_invalid",
        cause="Compose does not accept the file[: {reason}].",
        remedy="Run 'docker compose config' in the stack's folder; a file changed by hand can be rendered again.",
        patterns=(
            r"Additional property (?P<reason>\S{1,60}) is not allowed",
            r"additional properties (?P<reason>.{1,60}) not allowed",
            r"validating /.{1,120}\.ya?ml: (?P<reason>.{1,100})",
            r"yaml: line \d+: (?P<reason>.{1,80})",
            r"env file /.{1,120} not found",
            r"no configuration file provided: not found",
        ),
        rank=GENERIC,
    ),
    Known(
        code="entrypoint_missing",
        cause="The image has no program [{name}|of this name].",
        remedy="Check entrypoint and command of the stack against the image; vLLM's image starts the server itself.",
        patterns=(
            r"unable to start container process: .{0,60}exec: \"(?!curl|wget|nc\b)(?P<name>[^\"\n]+)\": "
            r"(?:executable file not found|stat|permission denied|no such file)",
        ),
        rank=GENERIC,
    ),
)

_HEALTH = (
    Known(
        code="kernel_unsupported",
        cause="The engine has no kernel for this model on this machine (head dimension {size}). It notices only at the "
        "first request, and then the server ends with exit status 0, as if somebody had stopped it.",
        remedy="Take another attention backend, another engine version or another card; the model cannot be served "
        "like this, however healthy it looks.",
        patterns=(r"Unexpected head dim size, (?P<size>\d+)",),
        replaces=("engine_dead", "engine_init_failed"),
        certain=False,
    ),
    Known(
        code="engine_hang",
        cause="The server answers, but the engine does nothing[: {waiting} requests wait, none makes progress].",
        remedy="Restart the container; a check of life must ask for one token with a time limit, /health is not "
        "enough.",
        patterns=(
            r"generation throughput: 0\.0 tokens/s, Running: \d+ reqs, Waiting: (?P<waiting>[1-9]\d*) reqs",
            r"RPC call to \w+ timed out",
        ),
        source=(_VLLM + "39863",),
        rank=GENERIC,
        certain=False,
        over_when=r"\"POST /v1/[^\"]*\" 200|generation throughput: (?!0\.0 )|Running: 0 reqs, Waiting: 0 reqs",
    ),
    Known(
        code="engine_dead",
        cause="The engine's process died while the server's process went on.",
        remedy="Read the engine's last error lines for the reason, then restart. /health answers 500 or 503 now; the "
        "container may still count as running, and may even end with exit code 0.",
        patterns=(
            r"EngineDeadError",
            r"EngineCore encountered (?:an issue|a fatal error)",
            r"AsyncEngineDeadError",
            r"Background loop (?:has errored already|is stopped)",
            r"AsyncLLM output_handler failed",
            r"Engine process .{0,40}died",
            r"Engine core proc .{0,40}died",
            r"Engine loop is not running",
        ),
        source=("https://github.com/vllm-project/vllm/pull/24897",),
        rank=GENERIC,
        certain=False,
    ),
    Known(
        code="healthcheck_tool_missing",
        cause="Docker's health check calls a program that the image does not have[: {name}]; the server itself may "
        "serve well.",
        remedy="Use what is in the image (Python's urllib) for the health check.",
        patterns=(
            r"(?P<name>curl): (?:command )?not found",
            r"(?P<name>wget): (?:command )?not found",
            r"exec: \"(?P<name>curl|wget|nc)\": executable file not found",
        ),
        source=(_LITELLM + "9295",),
        severity=WARNING,
        certain=False,
    ),
)

_ANSWERS = (
    Known(
        code="vision_garbage",
        cause="The answer is one character again and again: the vision tower's weights are read wrongly (a quantised "
        "vision tower, or layer names that the checkpoint's ignore list misses).",
        remedy="Take a checkpoint whose vision tower is in BF16, or a newer image; a text-only question works.",
        patterns=(r"content\"?: ?\"(?P<character>[^\w\s\"])(?P=character){7,}",),
        source=("https://github.com/vllm-project/llm-compressor/issues/2641",),
        certain=False,
    ),
    Known(
        code="reasoning_swallowed_content",
        cause="The whole answer is in the reasoning field and the content is empty: the reasoning parser waits for an "
        "end mark that never comes.",
        remedy="Set reasoning_parser to the one of the model's family[ (now {reasoning_parser})].",
        patterns=(
            r"\"reasoning(?:_content)?\": ?\"[^\"\n]+\",? ?\"content\": ?(?:null|\"\").{0,200}\"finish_reason\": "
            r"?\"stop\"",
            r"\"content\": ?(?:null|\"\"),.{0,4000}\"reasoning(?:_content)?\": "
            r"?\"[^\"\n]+\".{0,200}\"finish_reason\": ?\"stop\"",
        ),
        source=(_VLLM + "17609",),
        certain=False,
        replaces=("thinking_budget_exhausted",),
    ),
    Known(
        code="thinking_budget_exhausted",
        cause="The thinking used up the answer: the reasoning field is filled and the content is empty.",
        remedy='Send chat_template_kwargs {"enable_thinking": false}, or allow more tokens.',
        patterns=(
            r"\"content\": ?(?:null|\"\"), ?\"reasoning(?:_content)?\": ?\"",
            r"\"reasoning(?:_content)?\": ?\"[^\"\n]+\", ?\"content\": ?(?:null|\"\")",
        ),
        source=("https://github.com/openclaw/openclaw/issues/54983",),
        certain=False,
    ),
    Known(
        code="reasoning_field_name",
        cause="This engine version puts the thinking into the field reasoning, older ones into reasoning_content.",
        remedy="Read both names.",
        patterns=(r"\"content\": ?\"[^\"\n]+\", ?\"reasoning\": ?\"", r"reasoning_content absent"),
        source=("https://github.com/vllm-project/vllm/pull/50624",),
        severity=WARNING,
        certain=False,
    ),
    Known(
        code="reasoning_in_content",
        cause="The thinking stands in the content: the reasoning parser does not know this model's marks.",
        remedy="Set reasoning_parser to the one of the model's family[ (now {reasoning_parser})], and judge only the "
        "final answer.",
        patterns=(
            r"\"content\": ?\"(?:\\n|\s)*(?:<think|Thinking Process:)",
            r"\"content\": ?\"[^\"\n]{0,4000}</think>",
        ),
        source=(_VLLM + "34684",),
        certain=False,
    ),
    Known(
        code="mm_limit_exceeded",
        cause="The request has more pictures, videos or sounds than the stack allows[ ({limit} {kind})].",
        remedy="Raise limit_mm_per_prompt[ (now {kind}: {limit})], or send fewer in one request; a limit of 0 switches "
        "the kind off on purpose.",
        patterns=(
            r"At most (?P<limit>\d+) (?P<kind>image|video|audio)(?:\(s\)|s)? (?:item\(?s?\)? )?may be provided in one",
            r"set .{0,3}limit.mm.per.prompt.{0,40}to increase",
        ),
        source=(_VLLM + "13397",),
        severity=WARNING,
        certain=False,
    ),
    Known(
        code="image_fetch_failed",
        cause="The server cannot fetch the picture's address: the container has no way to that host.",
        remedy="Send pictures as base64 data URLs; this is the container's network, not the model's sight.",
        patterns=(
            r"Error in loading multi-?modal data",
            r"Failed to (?:fetch|download) (?:image|media)",
        ),
        source=("https://github.com/ogx-ai/ogx/issues/643",),
        severity=WARNING,
        certain=False,
    ),
    Known(
        code="chat_template_missing",
        cause="The checkpoint has no chat template (a base model, or a copy without it): healthy, but every chat gets "
        "400.",
        remedy="Use the instruct checkpoint, or set chat_template to the model's template.",
        patterns=(
            r"default chat template is no longer allowed",
            r"you must provide a chat template if the tokenizer does not define one",
            r"Cannot use chat template functions because tokenizer\.chat_template is not set",
            r"No chat template (?:is )?(?:provided|found|set)",
            r"does not have a (?:default )?chat template",
        ),
        source=("https://github.com/vllm-project/production-stack/issues/43",),
        certain=False,
    ),
    Known(
        code="chat_template_missing",
        cause="Every chat request gets 400 while the server is healthy: most often the checkpoint has no chat "
        "template.",
        remedy="Read the body of the 400; when it says so, use the instruct checkpoint or set chat_template.",
        patterns=(r"\"POST /v1/chat/completions HTTP/1\.\d\" 400",),
        source=("https://github.com/vllm-project/production-stack/issues/43",),
        certain=False,
        needs=r"chat template content format to be 'string'",
        unless=r"POST /v1/chat/completions HTTP/1\.\d\" 200",
    ),
    Known(
        code="video_backend_missing",
        cause="The image's OpenCV was built without a video decoder; pictures work, videos never.",
        remedy="Set VLLM_VIDEO_LOADER_BACKEND to another loader, or take another image.",
        patterns=(
            r"Could not open video stream",
            r"Failed to (?:open|decode) (?:the )?video",
            r"Unable to (?:open|decode) (?:the )?video",
        ),
        source=("https://github.com/ai-dynamo/dynamo/pull/14361",),
        certain=False,
    ),
    Known(
        code="video_decode_partial",
        cause="Only a part of the video's frames could be decoded[: {have} of {wanted}].",
        remedy="Send an MP4 with H.264, constant frame rate and faststart.",
        patterns=(
            r"Expected (?P<wanted>\w+) frames, but (?:only )?(?:loaded|got|decoded|read) (?P<have>\w+)(?: frames)",
        ),
        source=("https://github.com/vllm-project/vllm/pull/29034",),
        certain=False,
    ),
)

_GATEWAY = (
    Known(
        code="gateway_provider_prefix",
        cause="The gateway's route says vllm/…, which means an engine inside the gateway's own process.",
        remedy="Write hosted_vllm/NAME (or openai/NAME) for a server that is reached by HTTP.",
        patterns=(
            r"model=vllm/.{0,200}No module named",
            r"VLLMException.{0,20}No module named",
            r"LLM Provider NOT provided",
        ),
        source=(_LITELLM + "2831",),
        replaces=("python_package_missing",),
    ),
    Known(
        code="gateway_api_base_v1",
        cause="The route's api_base does not end in /v1: the gateway appends only /chat/completions.",
        remedy="Let api_base end in /v1, and give a placeholder key when the server has none.",
        patterns=(
            r"POST http://[\w.:<>-]+/chat/completions.{0,20}404",
            r"\"POST /chat/completions HTTP/1\.1\" 404",
            r"api_key client option must be set",
        ),
        source=(_LITELLM + "5183",),
        certain=False,
    ),
    Known(
        code="served_name_mismatch",
        cause="The server serves [{name}|another name] and the gateway asks for another one.",
        remedy="Always set served_model_name; the gateway's model must equal one id of the server's /v1/models.",
        patterns=(
            r"\"id\": ?\"(?P<name>/[^\"\n]+)\".{0,80}gateway sends",
            r"\"data\": ?\[\{\"id\": ?\"(?P<name>/[^\"\n]+)\"",
            r"NotFoundError.{0,120}The model [`'\"](?P<name>[^`'\"\n]+)[`'\"] does not exist",
        ),
        source=(_LITELLM + "7744",),
        certain=False,
    ),
    Known(
        code="gateway_cooldown",
        cause="The only server of the group is in a pause after failures, as during a restart.",
        remedy="Ask again after [{seconds} s|the stated time]; set allowed_fails and cooldown_time for groups with one "
        "server.",
        patterns=(
            r"No deployments available for selected model,? Try again in (?P<seconds>\d+)",
            r"No deployments available for selected model",
            r"No healthy deployments? available",
            r"cooldown_list=\[",
        ),
        source=("https://github.com/BerriAI/litellm/pull/5634", "https://github.com/BerriAI/litellm/pull/8668"),
        retryable=True,
        certain=False,
    ),
    Known(
        code="gateway_health_empty",
        cause="The gateway's health lists are both empty, which is not success (a fault of 1.84).",
        remedy="Ask each model one real question.",
        patterns=(r"\"healthy_endpoints\": ?\[\], ?\"unhealthy_endpoints\": ?\[\]",),
        source=(_LITELLM + "29139",),
        certain=False,
    ),
    Known(
        code="gateway_fallback_shape",
        cause="A fallback list of the gateway has the wrong shape; it is only noticed when it is needed.",
        remedy='Write [{"group": ["other"]}] for all three kinds of fallbacks, with names that exist.',
        patterns=(r"AttributeError: 'str' object has no attribute 'keys'",),
        source=(_LITELLM + "39655",),
        certain=False,
    ),
    Known(
        code="gateway_model_not_persisted",
        cause="The gateway took the model into memory only (db_model false): it is gone after a restart.",
        remedy="Put models into the gateway's file.",
        patterns=(r"\"?db_model\"?: ?false",),
        source=(_LITELLM + "30771",),
        certain=False,
    ),
    Known(
        code="gateway_db_required",
        cause="The gateway has no database; only the master key and the file's models work.",
        remedy="Set DATABASE_URL to a PostgreSQL address, or do not use virtual keys.",
        patterns=(
            r"DB not connected",
            r"No DB Connected",
            r"no connected db",
            r"database not connected",
        ),
        source=(_LITELLM + "30328",),
        certain=False,
    ),
    Known(
        code="gateway_unauthenticated",
        cause="The gateway has no master key and answers anybody.",
        remedy="Put master_key under general_settings, and check that a made-up key gets 401.",
        patterns=(r"LITELLM_MASTER_KEY is not set",),
        source=("https://github.com/BerriAI/litellm-docs/pull/1184",),
        certain=False,
    ),
    Known(
        code="gateway_key_wrong",
        cause="The client's key is not one of the gateway's.",
        remedy="Give the client a key of the gateway; they start with sk-.",
        patterns=(
            r"LiteLLM Virtual Key expected",
            r"expected to start with 'sk-'",
            r"Authentication Error, Invalid proxy server token",
            r"token_not_found_in_db",
        ),
        source=("https://github.com/cline/cline/issues/1766",),
        certain=False,
    ),
    Known(
        code="gateway_model_unknown",
        cause="The gateway has no model [{name}|of this name], or the key may not use it.",
        remedy="Compare with the gateway's /v1/models, which depends on the key; add the model to the gateway's list.",
        patterns=(
            r"Invalid model name passed in model=(?P<name>[\w./<>-]+?)(?:\.? Call|$)",
            r"Invalid model name passed in",
            r"key not allowed to access model",
            r"key_model_access_denied",
        ),
        source=(_LITELLM + "9663",),
        certain=False,
    ),
    Known(
        code="gateway_unsupported_params",
        cause="The gateway refuses a parameter that it does not know for this provider.",
        remedy="Allow the parameter for the model (allowed_openai_params) or send it in extra_body; drop_params would "
        "hide it, and the thinking switch would be lost.",
        patterns=(
            r"UnsupportedParamsError",
            r"does not support parameters: ",
        ),
        source=(_LITELLM + "9380",),
        certain=False,
    ),
)

_WRAPPERS = (
    Known(
        code="engine_init_failed",
        cause="The engine did not start; the server only passes that on. The engine's own last error lines are shown.",
        remedy="Read the engine's lines: the reason is in them, not in this message.",
        patterns=(
            r"Engine core initialization failed",
            r"Engine process failed to start",
            r"EngineCore failed to start",
            r"WorkerProc initialization failed due to an exception",
            r"Failed core proc\(s\)",
            r"Worker proc .{1,40} died unexpectedly",
            r"Engine process .{0,40}(?:exited|terminated) unexpectedly",
        ),
        source=(_VLLM + "21882",),
        rank=WRAPPER,
        certain=False,
    ),
)

TABLE: tuple[Known, ...] = (
    _GPU_MEMORY + _ARGUMENTS + _QUANTIZATION + _MODEL + _HOST + _COMPOSE + _HEALTH + _ANSWERS + _GATEWAY + _WRAPPERS
)
