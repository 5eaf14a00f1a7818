# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine's own log says about a start: how far it is, and the facts it states about itself.

Every pattern is taken from a line that an engine has really written (versions 0.6 to 0.33, with and without a GPU).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from .diagnosis import is_harmless, message_of, parse_line
from .receipt import KV_TOKENS

STARTING = "starting"
RESOLVED = "resolving the model"
LOADING = "loading weights"
COMPILING = "compiling"
PROFILING = "profiling memory"
KV_CACHE = "laying out the KV cache"
CAPTURING = "capturing graphs"
SERVING = "serving"

PHASES = (STARTING, RESOLVED, LOADING, COMPILING, PROFILING, KV_CACHE, CAPTURING, SERVING)


@dataclass(frozen=True)
class Progress:
    """Where a start is. ``done`` of ``total`` are checkpoint shards or graphs; both 0 where the log counts nothing."""

    phase: str = STARTING
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        if not self.total:
            return self.phase
        return f"{self.phase} {self.done}/{self.total} ({100 * self.done // self.total} %)"


_LOADING_SHARDS = re.compile(r"Loading [\w ]*checkpoint shards:\s+\d+% Completed \| (\d+)/(\d+)")
_CAPTURING_GRAPHS = re.compile(r"Capturing CUDA ?graph[\w ]*(?:\([^)]*\))?(?: shapes)?:\s+\d+%.*?\| (\d+)/(\d+) \[")

# The word that must stand in the line, and the phase that has begun when it does.
_BEGINS: tuple[tuple[str, str], ...] = (
    ("Resolved architecture: ", RESOLVED),
    ("Starting to load model ", LOADING),
    ("Loading model from scratch", LOADING),
    ("Loading weights took ", LOADING),
    ("torch_compile_cache", COMPILING),
    ("Dynamo bytecode transform time", COMPILING),
    ("Compiling a graph for ", COMPILING),
    ("Encoder cache will be initialized with a budget", PROFILING),
    ("torch.compile takes ", PROFILING),
    ("torch.compile took ", PROFILING),
    ("Memory profiling takes ", PROFILING),
    ("Initial profiling/warmup run took ", PROFILING),
    ("Available KV cache memory: ", KV_CACHE),
    ("KV cache size: ", KV_CACHE),
    ("GiB for KV cache", KV_CACHE),
    ("Capturing the model for CUDA graphs", CAPTURING),
    ("Graph capturing finished in ", CAPTURING),
    ("Starting vLLM server on ", SERVING),
    ("Starting vLLM API server", SERVING),
    ("Application startup complete", SERVING),
)
_BEGINNING = re.compile("|".join(re.escape(text) for text, _phase in _BEGINS))
_PHASE_OF = dict(_BEGINS)


def advance(progress: Progress, line: str) -> Progress:
    """The progress after one more line of the log. Several processes write at once, so it never goes back."""
    shards = _LOADING_SHARDS.search(line) if "checkpoint shards" in line else None
    graphs = _CAPTURING_GRAPHS.search(line) if "Capturing CUDA" in line else None
    if shards is not None:
        return _later(progress, Progress(LOADING, int(shards.group(1)), int(shards.group(2))))
    if graphs is not None:
        return _later(progress, Progress(CAPTURING, int(graphs.group(1)), int(graphs.group(2))))
    if _ATTEMPT.search(line) and progress.phase != STARTING:
        return Progress()
    begins = _BEGINNING.search(line)
    if begins is None:
        return progress
    phase = _PHASE_OF[begins.group(0)]
    return Progress(phase) if PHASES.index(phase) > PHASES.index(progress.phase) else progress


# A container that Docker started again begins anew in the same log.
_ATTEMPT = re.compile(r"non-default args: |args: Namespace\(")


def _later(before: Progress, now: Progress) -> Progress:
    rank, rank_before = PHASES.index(now.phase), PHASES.index(before.phase)
    if rank != rank_before:
        return now if rank > rank_before else before
    return now if now.done >= before.done else before


# --- the runtime card -----------------------------------------------------------------------------------------------


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _plain(text: str) -> Optional[str]:
    return None if text in ("None", "") else text


_Rule = tuple[str, "re.Pattern[str]", Callable[[str], Any]]

# name, pattern with one group, conversion; the first line that matches wins.
_FACTS: tuple[_Rule, ...] = (
    ("version", re.compile(r"(?:\bversion |LLM engine \(v)(\d+\.\d+[\w.+-]*)"), str),
    ("architecture", re.compile(r"Resolved architectures?: \[?'?(\w+)"), str),
    ("quantization", re.compile(r"LLM engine \(v.*?\bquantization=([\w-]+)"), _plain),
    ("max_model_len", re.compile(r"Using max model len (\d+)"), int),
    ("kv_cache_dtype", re.compile(r"LLM engine \(v.*?\bkv_cache_dtype=([\w-]+)"), _plain),
    (
        "attention_backend",
        re.compile(r"Using (?:AttentionBackendEnum\.)?([\w ]+?) (?:attention )?backend(?: out of| on V1|\.|$)"),
        str,
    ),
    ("weights_seconds", re.compile(r"Loading weights took ([\d.]+) s"), _number),
    ("weights_gib", re.compile(r"Model loading took ([\d.]+) ?GiB"), _number),
    ("weights_gib", re.compile(r"model weights take ([\d.]+) ?GiB"), _number),
    ("kv_cache_gib", re.compile(r"Available KV cache memory: (-?[\d.]+) GiB"), _number),
    ("kv_cache_gib", re.compile(r"Explicitly set \(([\d.]+)/[\d.]+\) GiB for KV cache"), _number),
    ("kv_cache_gib", re.compile(r"reserved for KV Cache is (-?[\d.]+) ?GiB"), _number),
    ("kv_cache_tokens", KV_TOKENS, _whole),
    ("max_concurrency", re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"), _number),
    ("compile_seconds", re.compile(r"torch\.compile (?:takes|took) ([\d.]+) s"), _number),
    ("graph_capture_seconds", re.compile(r"Graph capturing finished in ([\d.]+) s"), _number),
    ("graph_capture_gib", re.compile(r"Graph capturing finished in .* took (-?[\d.]+) GiB"), _number),
    ("engine_init_seconds", re.compile(r"init engine \(.*\) took ([\d.]+) s"), _number),
)
_FACT_WORDS = re.compile(
    r"version |LLM engine|Resolved arch|max model len|backend|weights|loading took|KV [cC]ache|concurrency|compile t|"
    r"Graph capturing|init engine"
)
_TIME = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")

# Warnings of healthy starts that tell an operator nothing, by their stable words.
_USUAL = re.compile(
    "|".join(
        (
            r"^\[shutdown\] ",
            r"Enforce eager set",
            r"Inductor compilation was disabled",
            r"Triton is not installed",
            r"Model Runner V2 requires",
            r"libtcmalloc is not found",
            r"libiomp is not found",
            r"doesn't allow to use `torch\.set_num_threads`",
            r"Failed to create oneDNN linear",
            r"Using a random per-process NONE_HASH seed",
            r"Default .{0,20}sampling parameters have been overridden",
            r"Reducing Torch (?:threads|parallelism)",
            r"requires system-first ordering",
            r"Priority not set for op",
            r"We must use the `spawn` multiprocessing start method",
            r"Your GPU does not have native support for FP8 computation",
        )
    )
)


def facts(text_or_lines: Union[str, Iterable[str]]) -> dict[str, Any]:
    """The runtime card: what the engine says about itself in the log of its (last) start.

    Sizes are GiB, times seconds. Facts the log does not state are absent. ``startup_seconds`` spans the engine's own
    clock from its first dated line to the server's start. ``warnings`` are the engine's warnings an operator should
    read; ``harmless_warnings`` those known from healthy starts, each once.
    """
    lines = text_or_lines.splitlines() if isinstance(text_or_lines, str) else list(text_or_lines)
    starts = [number for number, line in enumerate(lines) if _ATTEMPT.search(line)]
    if len(starts) > 1:
        # The banner with the version stands a few lines above the arguments.
        lines = lines[max(starts[-2] + 1, starts[-1] - 8) :]
    card: dict[str, Any] = {}
    warnings: list[str] = []
    harmless: list[str] = []
    begin: Optional[int] = None
    for raw in lines:
        if begin is None or ("Starting vLLM" in raw and "startup_seconds" not in card):
            seconds = _seconds(raw)
            if begin is None:
                begin = seconds
            elif seconds is not None:
                card["startup_seconds"] = seconds - begin
        if "WARN" in raw:
            parsed = parse_line(raw)
            if parsed.level in ("WARNING", "WARN"):
                text = parsed.message.strip()
                kind = harmless if _USUAL.search(text) or is_harmless(text) else warnings
                if text and text not in kind:
                    kind.append(text)
                continue
        if _FACT_WORDS.search(raw):
            _read(card, message_of(raw))
    card["warnings"] = warnings
    card["harmless_warnings"] = harmless
    return card


def _read(card: dict[str, Any], message: str) -> None:
    for name, pattern, convert in _FACTS:
        if name not in card:
            match = pattern.search(message)
            if match is not None:
                card[name] = convert(match.group(1))


def _seconds(raw: str) -> Optional[int]:
    match = _TIME.search(raw[:160])
    if match is None:
        return None
    month, day, hour, minute, second = (int(part) for part in match.groups())
    # Only differences within one start are formed; over the end of a month 31 days are near enough.
    return (((month * 31 + day) * 24 + hour) * 60 + minute) * 60 + second


def summary(card: Mapping[str, Any]) -> Sequence[str]:
    """The card as a few words for a person: version, architecture, weights, KV cache, concurrency."""
    parts = []
    for name, text in (
        ("version", "vLLM {}"),
        ("architecture", "{}"),
        ("quantization", "{}"),
        ("weights_gib", "weights {} GiB"),
        ("kv_cache_tokens", "KV cache {:,} tokens"),
        ("max_concurrency", "{}x concurrency"),
        ("startup_seconds", "up in {} s"),
    ):
        if card.get(name) is not None:
            parts.append(text.format(card[name]))
    return parts
