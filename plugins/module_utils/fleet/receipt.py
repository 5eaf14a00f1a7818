# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout leaves on the host for each stack: the proof that it answered, or why it does not.

``<folder>/.modelfleet/receipt.json`` is the last good one and the basis of comparison; ``failed.json`` beside it is
the last failure, and is removed by the next success.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Mapping, Optional, Sequence

from .rendered import RenderedStack

GOOD = "good"
FAILED = "failed"
KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")  # how the engine says it in its log
KV_TOLERANCE = 0.10  # so much less KV cache than before means that something took the memory
KV_EXCESS = 0.01  # so much more, that something gave memory back while the engine measured: it holds another's share


def good(
    rendered: RenderedStack,
    *,
    at: str,
    seconds: float,
    phases: Sequence[tuple[str, float]],
    image: Optional[Mapping[str, Any]],
    engine: Mapping[str, Any],
    memory: Sequence[Mapping[str, Any]],
    asked: bool,
    answers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """``seconds`` from the stop of the old container to the last answer; ``phases`` as (phase, seconds since then)."""
    return {
        **_common(rendered, GOOD, at, seconds, phases),
        "image_id": (image or {}).get("Id", ""),
        "image_digests": list((image or {}).get("RepoDigests") or ()),
        "options": rendered.files["vllm.yaml"].content,
        "engine": dict(engine),
        "memory": list(memory),
        "asked": asked,
        "answers": list(answers),
    }


def failed(
    rendered: RenderedStack,
    *,
    at: str,
    seconds: float,
    phases: Sequence[tuple[str, float]],
    failure: Mapping[str, Any],
    kept: str,
    ended: str,
) -> dict[str, Any]:
    """``failure``: code, what, why, change, lines. ``kept``: the folder with its log. ``ended``: what runs now."""
    return {**_common(rendered, FAILED, at, seconds, phases), "failure": dict(failure), "kept": kept, "ended": ended}


def _common(
    rendered: RenderedStack, outcome: str, at: str, seconds: float, phases: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    return {
        "format": 1,
        "outcome": outcome,
        "stack": rendered.name,
        "host": rendered.host,
        "hash": rendered.hash,
        "at": at,
        "image": rendered.image,
        "served_model_name": rendered.served_model_name,
        "gpus": list(rendered.gpus),
        "share": rendered.share,
        "kv_cache": rendered.kv_cache,
        "seconds": round(seconds, 1),
        "phases": [{"phase": phase, "at": round(moment, 1)} for phase, moment in phases],
        "memory_basis": memory_basis(rendered),
    }


def memory_basis(rendered: RenderedStack) -> str:
    """Two starts with the same basis must get the same KV cache: the options, the share and the number of GPUs."""
    basis = f"{rendered.share} {rendered.kv_cache} {len(rendered.gpus)}\n{rendered.files['vllm.yaml'].content}"
    return hashlib.sha256(basis.encode()).hexdigest()


def _tokens_before(rendered: RenderedStack, previous: Optional[Mapping[str, Any]]) -> Optional[int]:
    """What the KV cache held at the last good start with the same basis; None where that is not known."""
    if not previous or previous.get("memory_basis") != memory_basis(rendered):
        return None
    return (previous.get("engine") or {}).get("kv_cache_tokens") or None


def kv_shortfall(
    rendered: RenderedStack, engine: Mapping[str, Any], previous: Optional[Mapping[str, Any]]
) -> Optional[dict[str, Any]]:
    """A failure when the engine got less KV cache than it must have, or than the last time with the same options."""
    tokens = engine.get("kv_cache_tokens")
    if tokens is None:
        return None
    if rendered.min_kv_tokens is not None:
        least, why = rendered.min_kv_tokens, f"min_kv_tokens of stack {rendered.name} is {rendered.min_kv_tokens}"
    elif (before := _tokens_before(rendered, previous)) is not None:
        least, why = int(before * (1 - KV_TOLERANCE)), f"the last good start with the same options had {before}"
    else:
        return None
    if tokens >= least:
        return None
    return {
        "code": "kv_cache_less_than_expected",
        "what": f"the KV cache holds {tokens} tokens only",
        "why": f"{why}; something else held memory of the card while the engine measured it",
        "change": "look at who holds memory on the card (nvidia-smi), free it, and run again; "
        "or fix the size with kv_cache on the stack, or lower min_kv_tokens",
        "lines": [],
        "retryable": True,
    }


def kv_out_of_turn(
    rendered: RenderedStack, tokens: Optional[int], previous: Optional[Mapping[str, Any]]
) -> Optional[str]:
    """What a running engine's KV cache should hold, when it shows that it loaded beside another; None when it is whole.

    For an engine that did not start in the order of its card. Less was taken by a neighbour that was loading, more was
    given back by one that ended; that one is missing to whoever starts next.
    """
    if tokens is None or not previous or previous.get("image") != rendered.image:
        return None
    before = _tokens_before(rendered, previous)
    if before is None or before * (1 - KV_TOLERANCE) <= tokens <= before * (1 + KV_EXCESS):
        return None
    return f"{before} tokens, as at its last good start"


def brief(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The verdicts without pictures and exchanges: what a terminal or a result has room for."""
    names = ("question", "code", "passed", "severity", "ask", "expected", "answer", "detail", "remedy", "seconds")
    return [{name: answer[name] for name in names if name in answer} for answer in answers]


def summary(receipt: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """What a report has room for: when it answered, and what its start measured; empty without a receipt."""
    if not receipt:
        return {}
    engine, answers = receipt.get("engine") or {}, receipt.get("answers") or ()
    figures = ("version", "weights_gib", "kv_cache_gib", "kv_cache_tokens", "max_concurrency", "startup_seconds")
    return {
        "at": receipt.get("at", ""),
        "seconds": receipt.get("seconds"),
        "asked": bool(receipt.get("asked")),
        "questions": len(answers),
        "passed": sum(1 for answer in answers if answer.get("passed")),
        "took_mib": {str(entry["gpu"]): entry.get("took_mib") for entry in receipt.get("memory") or ()},
        **{name: engine[name] for name in figures if engine.get(name) is not None},
    }
