# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known to go wrong before anything is started: engine versions, quantisations, cards, gateway releases.

Each entry was reported by somebody: ``source`` says where. An entry is removed when its last bad version is so old
that nobody pins it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from .errors import ERROR, WARNING
from .model import Gateway, Stack

Version = tuple[int, ...]


def version(text: str) -> Version:
    """``"0.19.2rc1.dev5"`` -> (0, 19, 2): what comes before the first part that is not a number."""
    match = re.match(r"v?([0-9]+(?:\.[0-9]+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@dataclass(frozen=True)
class EngineProblem:
    """A combination that is known to fail with engine versions from ``first`` to ``last`` (empty: no bound)."""

    code: str
    problem: str
    remedy: str
    source: str
    first: Version = ()
    last: Version = ()
    quantization: str = ""  # value of the option
    weights: str = ""  # pattern on the model's source, lower case
    sees: bool = False  # only models with image or video among their modalities
    variable: str = ""  # an environment variable that must be set for the problem to occur
    unless: str = ""  # an option that, when set, avoids it
    severity: str = ERROR
    option: str = ""  # the key under args (or env) to point at


ENGINE_PROBLEMS = (
    EngineProblem(
        code="known_problem_vision_quantised",
        problem="vLLM {engine} with quantization: fp8 quantises the vision tower of this model family too: "
        "the server is healthy and chats, and sees only noise.",
        remedy="Pin an image with vLLM 0.19.2 or newer, or use a checkpoint that leaves the vision tower in BF16.",
        source="https://github.com/QwenLM/Qwen3-VL/issues/983",
        last=(0, 19, 1),
        quantization="fp8",
        weights=r"qwen2\.5-vl|qwen3-vl|qwen3\.5|qwen3_5",
        sees=True,
        option="args.quantization",
    ),
    EngineProblem(
        code="known_problem_architecture",
        problem="vLLM {engine} does not know the architecture qwen3_5.",
        remedy="Pin an image with vLLM 0.17 or newer.",
        source="https://github.com/vllm-project/vllm/issues/36217",
        last=(0, 16, 999),
        weights=r"qwen3\.5|qwen3_5",
        option="source",
    ),
    EngineProblem(
        code="known_problem_hybrid_sequences",
        problem="A hybrid model (GDN or Mamba layers) needs one state block per sequence, and the default "
        "max_num_seqs can exceed the blocks that fit: then it stops after minutes of loading.",
        remedy="Set args.max_num_seqs, such as 64.",
        source="https://github.com/vllm-project/recipes/pull/551",
        weights=r"qwen3\.5|qwen3-next|mamba|jamba|granite-4|nemotron-h|falcon-h",
        unless="max_num_seqs",
        severity=WARNING,
        option="args",
    ),
    EngineProblem(
        code="known_problem_env_removed",
        problem="vLLM {engine} ignores VLLM_ATTENTION_BACKEND: the variable went away in 0.14, and only a line in "
        "the log says so.",
        remedy="Use args.attention_backend.",
        source="https://github.com/vllm-project/vllm/pull/50346",
        first=(0, 14),
        variable="VLLM_ATTENTION_BACKEND",
        severity=WARNING,
        option="env.VLLM_ATTENTION_BACKEND",
    ),
)


def engine_problems(stack: Stack) -> list[EngineProblem]:
    """The known problems that this model, with these options, meets in this image. None without an engine version."""
    engine = version(stack.image.engine)
    if not engine:
        return []
    return [problem for problem in ENGINE_PROBLEMS if _applies(problem, stack, engine)]


def _applies(problem: EngineProblem, stack: Stack, engine: Version) -> bool:
    return (
        engine >= problem.first
        and (not problem.last or engine <= problem.last)
        and (not problem.quantization or stack.args.get("quantization") == problem.quantization)
        and (not problem.weights or re.search(problem.weights, stack.model.source.lower()) is not None)
        and (not problem.sees or bool({"image", "video"} & set(stack.model.modalities)))
        and (not problem.variable or problem.variable in stack.env)
        and (not problem.unless or stack.args.get(problem.unless) is None)
    )


@dataclass(frozen=True)
class Quantisation:
    """What a quantisation needs of a card. ``native``: its own kernels; ``least``: the slower Marlin kernels."""

    name: str
    native: tuple[int, int]
    least: tuple[int, int]
    marlin: str = ""  # an environment variable that must choose Marlin below ``native``; empty: the engine does itself


QUANTISATIONS = {
    "nvfp4": Quantisation("NVFP4", (10, 0), (8, 0), marlin="VLLM_NVFP4_GEMM_BACKEND"),
    "mxfp4": Quantisation("MXFP4", (9, 0), (8, 0)),
    "fp8": Quantisation("FP8", (8, 9), (8, 0)),
    "awq": Quantisation("AWQ", (7, 5), (7, 5)),
    "gptq": Quantisation("GPTQ", (7, 5), (6, 0)),
}
_OPTION = {
    "modelopt_fp4": "nvfp4",
    "nvfp4": "nvfp4",
    "petit_nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "fp8": "fp8",
    "modelopt": "fp8",
    "fbgemm_fp8": "fp8",
    "awq": "awq",
    "awq_marlin": "awq",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
}


def quantisation(stack: Stack) -> Optional[Quantisation]:
    """By the option, or by what the checkpoint is called: its own configuration is not at hand here."""
    option = str(stack.args.get("quantization") or "").lower()
    if option in _OPTION:
        return QUANTISATIONS[_OPTION[option]]
    source = stack.model.source.lower()
    return next((needs for name, needs in QUANTISATIONS.items() if re.search(rf"(?:^|[-_./]){name}", source)), None)


def card_refuses(stack: Stack, compute_capability: str) -> Optional[tuple[str, str, str]]:
    """(severity, problem, remedy) when a card of this compute capability cannot run the stack's quantisation well."""
    capability = version(compute_capability)
    if str(stack.args.get("dtype", "")).lower() == "bfloat16" and capability < (8, 0):
        return ERROR, f"dtype bfloat16 needs compute capability 8.0, the card has {compute_capability}.", "Use half."
    needs = quantisation(stack)
    if needs is None or capability >= needs.native:
        return None
    native, least = (".".join(map(str, need)) for need in (needs.native, needs.least))
    if capability < needs.least:
        return (
            ERROR,
            f"{needs.name} needs compute capability {least}, the card has {compute_capability}.",
            "Choose another checkpoint or another GPU.",
        )
    if needs.marlin and str(stack.env.get(needs.marlin, "")).lower() != "marlin":
        return (
            ERROR,
            f"{needs.name} needs compute capability {native} (Blackwell), the card has {compute_capability}.",
            f"Choose another checkpoint or GPU, or set env.{needs.marlin}: marlin for weight-only kernels.",
        )
    return (
        WARNING,
        f"the card has compute capability {compute_capability}, {needs.name} computes natively from {native} on: "
        "Marlin kernels unpack the weights instead, which saves memory but not time.",
        "Nothing to do if that is meant; Marlin needs layer sizes that are multiples of 64 per GPU.",
    )


# https://docs.litellm.ai/blog names the releases; floating tags pointed at them, so the digest is checked as well.
COMPROMISED_GATEWAYS = ((1, 82, 7), (1, 82, 8), (1, 107, 0))
COMPROMISED_DIGESTS = ("sha256:1bbcb1443bc9",)


def gateway_compromised(gateway: Gateway) -> bool:
    """Whether this is one of the LiteLLM releases that carried somebody else's code."""
    return version(gateway.image.engine) in COMPROMISED_GATEWAYS or gateway.image.digest.startswith(COMPROMISED_DIGESTS)
