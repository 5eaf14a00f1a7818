# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of a question and of all questions to one model, and what is known about it: cause and remedy by code."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

PASSED = "passed"
WARNING = "warning"
ERROR = "error"


@dataclass(frozen=True)
class Request:
    """One HTTP request of a question, without the model's name and without any key (the asker adds both)."""

    ask: str  # the question in words
    expected: str  # the right answer in words
    body: Mapping[str, Any]
    want: Any = None  # the right answer as the question compares it
    pictures: tuple[bytes, ...] = ()  # PNG; the frames of a video are pictures too
    method: str = "POST"
    path: str = "/v1/chat/completions"


@dataclass(frozen=True)
class Answer:
    """What came back. ``status`` 0: no connection, and ``error`` says why."""

    status: int
    body: Any  # parsed JSON, None when it is none
    text: str
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Mark:
    """One answer, judged."""

    request: Request
    answer: Answer
    right: bool
    heard: str  # what the model said, in words
    code: str = ""  # why it is wrong, or what is odd about a right one
    detail: str = ""
    final: bool = False  # asking again is useless

    def as_dict(self, first_picture: int) -> dict[str, Any]:
        return {
            "ask": self.request.ask,
            "expected": self.request.expected,
            "answer": self.heard,
            "right": self.right,
            "code": self.code,
            "detail": self.detail,
            "status": self.answer.status,
            "seconds": round(self.answer.seconds, 3),
            "request": {
                "method": self.request.method,
                "path": self.request.path,
                "body": _without_media(self.request.body),
            },
            "response": self.answer.body if self.answer.body is not None else self.answer.text[:2000],
            "pictures": list(range(first_picture, first_picture + len(self.request.pictures))),
        }


def _without_media(value: Any) -> Any:
    """A request body as a report keeps it: the pictures lie beside it, once."""
    if isinstance(value, str):
        return re.sub(r"^(data:[\w/+.-]+;base64,).{64,}$", r"\1…", value, flags=re.S)
    if isinstance(value, Mapping):
        return {key: _without_media(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_media(each) for each in value]
    return value


@dataclass(frozen=True)
class Verdict:
    """What came of one question. ``code`` is ``passed``, or the reason, which :data:`KNOWN` explains."""

    question: str
    code: str
    passed: bool
    marks: tuple[Mark, ...]

    @property
    def shown(self) -> Mark:
        """The exchange to show a person: the first wrong one of a failure, the last right one of a pass."""
        if self.passed:
            return [mark for mark in self.marks if mark.right][-1]
        return next(mark for mark in self.marks if mark.code == self.code or not mark.right)

    @property
    def severity(self) -> str:
        return ERROR if not self.passed else PASSED if self.code == PASSED else WARNING

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON for a report. ``pictures`` are base64; each exchange names its own by index."""
        shown, (cause, remedy) = self.shown, KNOWN.get(self.code, ("", ""))
        exchanges: list[dict[str, Any]] = []
        pictures: list[str] = []
        for mark in self.marks:
            exchanges.append(mark.as_dict(len(pictures)))
            pictures += [base64.b64encode(picture).decode("ascii") for picture in mark.request.pictures]
        return {
            "question": self.question,
            "code": self.code,
            "passed": self.passed,
            "severity": self.severity,
            "retryable": self.code in RETRYABLE,
            "ask": shown.request.ask,
            "expected": shown.request.expected,
            "answer": shown.heard,
            "detail": " ".join(part for part in (shown.detail, cause) if part),
            "remedy": remedy,
            "right": sum(mark.right for mark in self.marks),
            "wrong": sum(not mark.right for mark in self.marks),
            "seconds": round(sum(mark.answer.seconds for mark in self.marks), 3),
            "exchanges": exchanges,
            "pictures": pictures,
        }


def conclude(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All verdicts on one model (as plain dicts) as one: passed, code, message, remedy, failures, retryable, warnings.

    When the text works and every picture fails, it is not one question that failed but the model's sight.
    """
    failed = [verdict for verdict in verdicts if not verdict["passed"]]
    warnings = [f"{verdict['question']}: {_said(verdict)}" for verdict in verdicts if verdict["severity"] == WARNING]
    if not failed:
        asked = ", ".join(verdict["question"] for verdict in verdicts)
        message = f"{len(verdicts)} of {len(verdicts)} questions answered right: {asked}."
        return {
            "passed": bool(verdicts),
            "code": PASSED if verdicts else "nothing_asked",
            "message": message if verdicts else "No question was asked.",
            "remedy": "",
            "failures": {},
            "retryable": False,
            "warnings": warnings,
        }
    chosen = next((verdict for verdict in failed if not _by_picture(verdict)), failed[0])
    code, remedy = chosen["code"], chosen["remedy"]
    message = f"{chosen['question']}: {_said(chosen)}"
    seen = [verdict for verdict in verdicts if verdict["question"].startswith("image_")]
    blind = [verdict for verdict in seen if _by_picture(verdict)]
    text = [verdict for verdict in verdicts if verdict["question"] in ("text", "thinking_off") and verdict["passed"]]
    if seen and len(blind) == len(seen) and (text or not _text_asked(verdicts)):
        garbage = any(verdict["code"] == "vision_garbage" for verdict in blind)
        code = "vision_garbage" if garbage else "vision_blind"
        cause, remedy = KNOWN[code]
        works = f"The text works ({text[0]['ask']} {text[0]['answer']}), the pictures do not: " if text else ""
        message = works + " ".join(
            f"{verdict['question']}: asked {verdict['ask']!r}, the picture shows {verdict['expected']!r}, "
            f"the model says {verdict['answer']!r}."
            for verdict in blind[:3]
        )
        if any(verdict["code"] == "vision_constant_answer" for verdict in blind):
            message += " Different pictures get the same answer."
        message += f" {cause}"
    return {
        "passed": False,
        "code": code,
        "message": message,
        "remedy": remedy,
        "failures": {verdict["question"]: verdict["code"] for verdict in failed},
        "retryable": chosen["retryable"],
        "warnings": warnings,
    }


def _by_picture(verdict: Mapping[str, Any]) -> bool:
    """A failure of seeing, not of the transport, the parser or the limits."""
    # No words about a picture are a blind answer too; the conclusion asks whether the text alone works.
    codes = ("answer_wrong", "answer_empty", "vision_constant_answer", "vision_garbage")
    return verdict["code"] in codes and bool(verdict["pictures"])


def _text_asked(verdicts: Sequence[Mapping[str, Any]]) -> bool:
    return any(verdict["question"] in ("text", "thinking_off") for verdict in verdicts)


def _said(verdict: Mapping[str, Any]) -> str:
    return (
        f"asked {verdict['ask']!r}, expected {verdict['expected']!r}, got {verdict['answer']!r}. {verdict['detail']}"
    ).rstrip()


RETRYABLE = frozenset({"gateway_cooldown", "no_connection", "answer_timeout", "engine_overloaded"})

# code -> (cause, remedy). Codes are stable: reports, tests and people's scripts match on them.
KNOWN: Mapping[str, tuple[str, str]] = {
    "answer_wrong": (
        "The model answered, but not what was asked.",
        "Compare with the same checkpoint unquantised; look at the quantisation, the chat template and the revision.",
    ),
    "vision_blind": (
        "Known cause: the vision tower was quantised together with the language model, so that the pictures reach the "
        "model as noise (vLLM 0.19.1 with quantization fp8 and Qwen3.5-VL does this while the model loads).",
        "Use an engine build that leaves the vision tower out of the quantisation (pin another image digest), or a "
        "checkpoint quantised with the vision tower ignored, or remove `quantization` from args.",
    ),
    "vision_constant_answer": (
        "The same answer to different pictures: the model answers from the text alone. Known cause: a broken vision "
        "path of a quantised checkpoint.",
        "Use a checkpoint or an engine build whose vision tower is not quantised; a single picture right by luck "
        "proves nothing.",
    ),
    "vision_garbage": (
        "Text alone works, and with a picture in the prompt the answer is garbage. Known cause: the ignore list of "
        "the quantised checkpoint uses old layer names, so that vision layers are taken for quantised ones.",
        "Use a checkpoint whose ignore list names this engine's vision layers, or another engine version.",
    ),
    "output_garbage": (
        "The answer is no language, or does not end by itself. Known cause: online quantisation that does not fit "
        "this model, a wrong tokenizer or a wrong chat template.",
        "Start once without `quantization` to confirm, then use a checkpoint that was quantised offline.",
    ),
    "answer_empty": (
        "The answer is empty.",
        "Look at the chat template and at stop settings of the generation config.",
    ),
    "answer_malformed": (
        "The response is not of the shape that this API has.",
        "Check that the address is a vLLM server (or a gateway) and that the task of the model is the right one.",
    ),
    "reasoning_swallowed_content": (
        "The answer ended normally, but stands in the reasoning field; the content is empty: the reasoning parser "
        "does not fit the model.",
        "Set `reasoning_parser` to the parser of this model family (qwen3 for Qwen3), not one that takes everything "
        "before an end tag for reasoning.",
    ),
    "thinking_budget_exhausted": (
        "The token budget was spent on thinking before the answer began.",
        "Say `thinking: true` for this model, so that it is told not to think or given room to; for a checkpoint "
        "that always thinks, raise max_tokens of the check.",
    ),
    "reasoning_in_content": (
        "The thinking stands in the content, where clients expect the answer only: no reasoning parser, or one that "
        "does not know this template.",
        "Set `reasoning_parser` to the parser of this model family.",
    ),
    "reasoning_missing": (
        "The model was asked to think, and neither `reasoning` nor `reasoning_content` holds any.",
        "Set `reasoning_parser`, or say `thinking: false` if this model does not think.",
    ),
    "thinking_not_switched_off": (
        "Told not to think, the model thought all the same: its chat template ignores enable_thinking.",
        "Nothing to do for a checkpoint that always thinks; clients must allow tokens for it.",
    ),
    "tool_call_missing": (
        "The model answered in words instead of calling the tool.",
        "Check that `tool_call_parser` fits the model family and that its chat template knows tools.",
    ),
    "tool_parser_wrong": (
        "The tool call stands in the content as text: the tool parser does not recognise it.",
        "Set `tool_call_parser` to the parser of this model family (qwen3_xml or hermes for Qwen).",
    ),
    "tool_parser_missing": (
        "The engine refuses tools with automatic choice.",
        "Set `enable_auto_tool_choice: true` and `tool_call_parser` in args.",
    ),
    "structured_output_broken": (
        "The answer does not follow the JSON schema that was asked for.",
        "Look at `structured_outputs_config`; another backend (xgrammar, guidance) may know this tokenizer.",
    ),
    "context_limit_differs": (
        "The engine serves another context length than the inventory wants.",
        "Look for a live container that is older than the inventory, or for an argument that beats max_model_len.",
    ),
    "embedding_order_wrong": (
        "A text is nearer to an unrelated one than to its paraphrase.",
        "Check the pooling type and the revision of the embedder; an untrained test model needs `untrained: true`.",
    ),
    "rerank_order_wrong": (
        "The document that answers the query is not ranked first.",
        "Check the revision and the chat template or head of the reranker; an untrained test model needs "
        "`untrained: true`.",
    ),
    "score_order_wrong": (
        "The better answer does not get the higher reward.",
        "Check the pooling head of the reward model; an untrained test model needs `untrained: true`.",
    ),
    "batch_mixed_up": (
        "Equal inputs of one request got different results: the answers do not belong to their inputs.",
        "Compare with another engine version; this is a fault of the engine or of something between.",
    ),
    "chat_template_missing": (
        "A base checkpoint, or a tokenizer without a chat template: healthy, yet every chat request is refused.",
        "Use the instruct checkpoint, or set `chat_template` in args.",
    ),
    "tokenizer_missing": (
        "The prompt became empty: the tokenizer files are missing or do not belong to the model.",
        "Put the tokenizer files beside the weights, or set `tokenizer` in args.",
    ),
    "mm_limit_exceeded": (
        "The engine takes fewer pictures or videos in one request than were sent.",
        "Raise `limit_mm_per_prompt` ({image: 2}); a limit of 0 switches the modality off: then remove it from "
        "the model's `modalities`.",
    ),
    "image_fetch_failed": (
        "The engine could not fetch the picture: a network problem of the container, not broken vision.",
        "Give the picture as a path or a URL the controller can read; it is then sent inside the request.",
    ),
    "image_refused": (
        "The engine cannot decode this picture.",
        "Use PNG or JPEG for your own checks.",
    ),
    "not_multimodal": (
        "This model takes no pictures.",
        "Remove `image` and `video` from the model's `modalities`, or serve the vision checkpoint.",
    ),
    "video_backend_missing": (
        "The video decoder of this image is built without a backend; the model is not at fault.",
        "Set VLLM_VIDEO_LOADER_BACKEND to another loader, or use another image.",
    ),
    "video_decode_partial": (
        "The engine decoded only part of the frames; the model is not at fault.",
        "Set VLLM_VIDEO_LOADER_BACKEND to another loader, or use another image.",
    ),
    "context_too_small": (
        "The question does not fit into the context length of this stack.",
        "Raise `max_model_len`.",
    ),
    "engine_dead": (
        "The engine behind the API died while it answered; the server will exit, with status 0.",
        "Read the engine's last error lines in the container's log for the reason. What starts it again must not ask "
        "for its exit status: its unit does not, nor does `restart: unless-stopped`; on-failure would not act.",
    ),
    "served_name_mismatch": (
        "No model of this name is served here.",
        "The name that is asked for must equal one id of /v1/models exactly: look at `served_model_name`.",
    ),
    "api_key_refused": (
        "The server wants another API key.",
        "Give the key that the stack was started with (`api_key` of the stack).",
    ),
    "api_missing": (
        "The server has no such API for this model.",
        "Check the `task` of the model; at a gateway, its api_base must end in /v1.",
    ),
    "gateway_key_wrong": (
        "The gateway refuses the client key.",
        "Use the master key or a key of `fleet_gateway.keys`; keys start with sk-.",
    ),
    "gateway_model_unknown": (
        "The gateway has no such model, or this key may not use it.",
        "Compare /v1/models of the gateway (it depends on the key) with the inventory and roll the gateway out again.",
    ),
    "gateway_cooldown": (
        "Every deployment of this model is cooling down at the gateway after earlier failures.",
        "Wait the stated time, then ask again.",
    ),
    "gateway_unsupported_params": (
        "The gateway refuses a parameter; with drop_params it would swallow it silently (the thinking switch too).",
        "Use the provider hosted_vllm/, or allow the parameter for this model (allowed_openai_params).",
    ),
    "gateway_provider_prefix": (
        "The route uses the provider vllm/, which runs an engine inside the gateway.",
        "Route to hosted_vllm/NAME.",
    ),
    "gateway_db_required": (
        "This gateway function needs a database.",
        "Without a database only the master key, `fleet_gateway.keys` and models of the configuration file work; or "
        "set `fleet_gateway.database_url` to a PostgreSQL address.",
    ),
    "gateway_fallback_shape": (
        "A fallback list of the gateway is a list of names, and must be a list of mappings with one key.",
        "Write [{group: [other]}]; `fleet_gateway.fallbacks` renders it so.",
    ),
    "gateway_api_base_v1": (
        "The route's api_base does not end in /v1.",
        "Write api_base with /v1 at its end.",
    ),
    "answer_timeout": (
        "No answer within the time limit.",
        "Look at the engine's load and log; raise the timeout if the model is just slow.",
    ),
    "no_connection": (
        "Nothing answers at this address.",
        "Check that the container runs and that the port is the right one.",
    ),
    "engine_overloaded": (
        "The server has no room for the request at the moment.",
        "Ask again; if it persists look at max_num_seqs and the load.",
    ),
    "request_failed": (
        "The server refused the request or failed on it.",
        "Read the message, then the container's log.",
    ),
}

# What servers say with a status that is not 200: the most specific first. Searched in the whole response text.
_REFUSALS: Sequence[tuple[str, str]] = (
    ("chat_template_missing", r"chat template is no longer allowed|does not define (?:one|a chat template)"),
    ("tokenizer_missing", r"decoder prompt cannot be empty"),
    ("mm_limit_exceeded", r"At most \d+ \w+\(?s?\)? may be provided"),
    ("not_multimodal", r"is not a multimodal model"),
    ("video_backend_missing", r"Could not open video stream"),
    ("video_decode_partial", r"Expected \w+ frames, but loaded|Expected reading \w+ frames"),
    ("image_fetch_failed", r"Cannot connect to host|Error in loading multi-modal data|Name or service not known"),
    ("image_refused", r"Failed to load image|cannot identify image file"),
    ("tool_parser_missing", r"requires --enable-auto-tool-choice"),
    ("context_too_small", r"maximum context length|max_tokens.*too large|max_model_len"),
    ("engine_dead", r"EngineCore encountered an issue|EngineDeadError"),
    ("gateway_provider_prefix", r"No module named .{0,3}vllm"),
    ("gateway_unsupported_params", r"UnsupportedParamsError|does not support parameters"),
    ("gateway_db_required", r"DB not connected"),
    ("gateway_fallback_shape", r"'str' object has no attribute 'keys'"),
    ("gateway_cooldown", r"No deployments available|cooldown_list"),
    ("gateway_key_wrong", r"LiteLLM Virtual Key expected|Authentication Error"),
    ("gateway_model_unknown", r"Invalid model name passed in"),
    ("gateway_api_base_v1", r"litellm.*Not ?Found.*\{\\*.?detail\\*.?: ?\\*.?Not Found"),
    ("served_name_mismatch", r"The model .* does not exist|model_not_found"),
)


def refusal(answer: Answer) -> Optional[tuple[str, str]]:
    """Code and message of an answer that is an HTTP error or none at all; None when the answer is to be judged."""
    if answer.status == 200:
        return None
    if answer.status == 0:
        code = "answer_timeout" if "timed out" in answer.error else "no_connection"
        return code, answer.error
    message = _message(answer)
    for code, pattern in _REFUSALS:
        if re.search(pattern, answer.text, re.IGNORECASE | re.DOTALL):
            return code, message
    by_status = {401: "api_key_refused", 403: "api_key_refused", 404: "api_missing", 405: "api_missing",
                 429: "engine_overloaded", 503: "engine_overloaded"}  # fmt: skip
    return by_status.get(answer.status, "request_failed"), message


def _message(answer: Answer) -> str:
    body = answer.body
    if isinstance(body, Mapping):
        error = body.get("error", body.get("detail", body.get("message")))
        if isinstance(error, Mapping):
            error = error.get("message", error)
        text = error if isinstance(error, str) else json.dumps(error)
    else:
        text = answer.text
    # A gateway repeats the key it was sent; it is not ours to print.
    text = re.sub(r"(Received=|sk-)[^\s,'\"]+", r"\1…", text)
    return f"HTTP {answer.status}: {' '.join(text.split())[:400]}"
