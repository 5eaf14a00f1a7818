# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions against models made of a function: good ones, blind ones, and every known way of being broken."""

from __future__ import annotations

import base64
import json
import math
from random import Random
from typing import Any, Callable, Mapping, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import questions, verdict
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.verdict import Answer, Request, Verdict

CHAT = {
    "task": "chat", "modalities": ["text", "image", "video"], "thinking": True, "tool_parser": True,
    "structured": True, "max_model_len": 2048, "served_model_name": "m",
}  # fmt: skip
Model = Callable[[Request], Any]


def put(question: questions.Question, model: Model, seed: int = 1) -> Verdict:
    marks = []
    for request in question.requests(seed):
        said = model(request)
        if not isinstance(said, Answer):
            said = Answer(200, said, json.dumps(said), 0.1)
        marks.append(question.mark(request, said))
        end = question.judge(marks)
        if end:
            return end
    raise AssertionError(f"{question.code} has no verdict after {len(marks)} answers")


def chat(content: Optional[str], finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}]}


def good(request: Request) -> Any:
    """Knows everything, and says it politely."""
    want = request.want
    if request.path == "/v1/models":
        return {"data": [{"id": "m", "max_model_len": want}]}
    if "tools" in request.body:
        call = {"name": "report_number", "arguments": json.dumps({"number": want})}
        return chat(None, "tool_calls", tool_calls=[{"type": "function", "function": call}])
    if "response_format" in request.body:
        return chat(json.dumps({**dict.fromkeys(want[1], "none"), **want[0]}))
    thinking = request.body.get("chat_template_kwargs", {}).get("enable_thinking")
    return chat(f"It is {request.expected}.", reasoning="Let me see." if thinking else None)


def one(code: str, **asks: Any) -> questions.Question:
    (question,) = questions.select({**CHAT, **asks, "questions": [code]})
    return question


def everything(model: Model, asks: Mapping[str, Any] = CHAT) -> dict[str, Any]:
    return verdict.conclude([put(question, model).as_dict() for question in questions.select(asks)])


def refused(status: int, text: str) -> Model:
    def model(request: Request) -> Answer:
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        return Answer(status, body, text, 0.1)

    return model


def test_what_is_asked() -> None:
    assert [question.code for question in questions.select(CHAT)] == [
        "text", "thinking_off", "thinking_on", "image_number", "image_colour_shape", "image_pair",
        "image_two_in_one_request", "video_order", "tool_call", "structured_output", "context_limit",
    ]  # fmt: skip
    assert [question.code for question in questions.select({})] == ["text"]
    assert [question.code for question in questions.select({"task": "embed"})] == ["embeddings"]
    own = questions.select({"checks": [{"ask": "a", "expect": [["b"]]}, {"ask": "c", "expect": [["d"]]}]})
    assert [question.code for question in own] == ["text", "check_1", "check_2"]
    single = questions.select({"modalities": ["text", "image"], "images_per_request": 1})
    assert "image_two_in_one_request" not in [question.code for question in single]


def test_a_question_that_does_not_exist() -> None:
    with pytest.raises(FleetError) as caught:
        questions.select({**CHAT, "questions": ["image_nunber", "rerank"]})
    assert [finding.code for finding in caught.value.findings] == ["question_unknown", "question_not_asked"]
    assert "image_number" in str(caught.value)


@pytest.mark.parametrize("seed", range(3))
def test_a_good_model_passes_everything(seed: int) -> None:
    for question in questions.select(CHAT):
        end = put(question, good, seed)
        assert (end.code, end.passed) == ("passed", True), (question.code, end.shown.heard)


def test_the_same_seed_asks_the_same_and_another_seed_another() -> None:
    def drawn(seed: int) -> list[Request]:
        return [next(question.requests(seed)) for question in questions.select(CHAT)]

    assert drawn(1) == drawn(1)
    assert [mine.want for mine in drawn(1)] != [yours.want for yours in drawn(2)]


@pytest.mark.parametrize(
    "kind", [questions.ImageNumber, questions.ImageColourShape, questions.ImagePair, questions.StructuredOutput]
)
def test_no_two_pictures_of_a_question_have_one_answer(kind: type[questions.Question]) -> None:
    for seed in range(3):
        requests = list(kind(CHAT).requests(seed))
        assert len({request.expected for request in requests}) == len(requests) >= kind.needed + kind.spare
        assert len({request.body["messages"][0]["content"][1]["text"] for request in requests}) == 1


def test_the_pair_differs_in_the_colour_only() -> None:
    from .test_picture import pixels

    first, second = (pixels(request.pictures[0]) for request in list(one("image_pair").requests(4))[:2])
    paper = first[0][0]
    assert first != second
    assert [[pixel == paper for pixel in row] for row in first] == [[pixel == paper for pixel in row] for row in second]


def chance(kind: type[questions.Question], right: float) -> float:
    """Probability that ``needed`` right answers come before ``spare + 1`` wrong ones."""
    return sum(
        math.comb(kind.needed - 1 + wrong, wrong) * right**kind.needed * (1 - right) ** wrong
        for wrong in range(kind.spare + 1)
    )


@pytest.mark.parametrize(
    "kind",
    [questions.ImageNumber, questions.ImageColourShape, questions.ImageTwoInOneRequest, questions.VideoOrder],
)
def test_guessing_does_not_pass(kind: type[questions.Question]) -> None:
    assert chance(kind, kind.guess) < 1e-6


def test_guessing_does_not_pass_all_pictures() -> None:
    kinds = (questions.ImageNumber, questions.ImageColourShape, questions.ImagePair, questions.ImageTwoInOneRequest)
    assert math.prod(chance(kind, kind.guess) for kind in kinds) < 1e-20


def test_misreading_three_in_a_hundred_is_no_alarm() -> None:
    kinds = (questions.ImageNumber, questions.ImageColourShape, questions.ImagePair, questions.ImageTwoInOneRequest)
    alarm = 1 - math.prod(chance(kind, 0.97) for kind in (*kinds, questions.VideoOrder))
    assert alarm < 1 / 1000
    assert 1 - chance(questions.ImageNumber, 0.99) < 1e-5


def test_a_guesser_is_measured_too() -> None:
    """The arithmetic above, played: a model that names any of the 9 colours and 7 shapes."""
    rng = Random(1)

    def guesser(request: Request) -> Any:
        colour, shape = rng.choice(list(questions.picture.COLOURS)), rng.choice(questions.picture.SHAPES)
        return chat(f"{colour} {shape}")

    question = one("image_colour_shape")
    requests = list(question.requests(1))
    marks = [
        question.mark(request, Answer(200, guesser(request), "", 0.1)) for _ in range(2000) for request in requests
    ]
    # 12,000 guesses: 190 expected, and no fewer or more than four standard deviations.
    assert 135 < sum(mark.right for mark in marks) < 246
    assert {question.judge(marks[start : start + 3]).passed for start in range(0, len(marks), 3)
            if question.judge(marks[start : start + 3])} == {False}  # fmt: skip


def wrong_sometimes(every: int) -> Model:
    asked = [0]

    def model(request: Request) -> Any:
        asked[0] += 1
        return chat("none") if asked[0] % every == 0 else good(request)

    return model


@pytest.mark.parametrize("code", ["image_number", "image_colour_shape", "image_pair", "video_order"])
def test_one_misreading_is_carried(code: str) -> None:
    end = put(one(code), wrong_sometimes(2) if code != "image_colour_shape" else wrong_sometimes(3))
    assert end.passed
    assert end.as_dict()["wrong"] >= 1


def blind(request: Request) -> Any:
    return chat("none") if request.pictures else good(request)


def blue(request: Request) -> Any:
    return chat("blue") if request.pictures else good(request)


def silent(request: Request) -> Any:
    return chat("") if request.pictures else good(request)


def exclaiming(request: Request) -> Any:
    return chat("!!!!!!!!!!!!!", "length") if request.pictures else good(request)


def endless(request: Request) -> Any:
    return chat("the ing of and ly pre", "length")


def swallowed(request: Request) -> Any:
    return chat(None, reasoning_content=f"It is {request.expected}.")


def starved(request: Request) -> Any:
    return chat(None, "length", reasoning="First, let me think about")


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (blind, "vision_blind"),
        (blue, "vision_blind"),
        (silent, "vision_blind"),
        (exclaiming, "vision_garbage"),
        (endless, "output_garbage"),
        (swallowed, "reasoning_swallowed_content"),
        (starved, "thinking_budget_exhausted"),
    ],
)
def test_a_broken_model_as_a_whole(model: Model, code: str) -> None:
    end = everything(model)
    assert (end["passed"], end["code"]) == (False, code)
    assert end["remedy"]
    assert end["failures"]


def test_blindness_names_text_picture_cause_and_remedy() -> None:
    end = everything(blue)
    assert end["failures"]["image_pair"] == "vision_constant_answer"
    for part in ("The text works", "the pictures do not", "vision tower was quantised", "same answer", "'blue'"):
        assert part in end["message"]
    assert "another image digest" in end["remedy"]


def test_garbage_is_not_taken_for_a_constant_answer() -> None:
    assert everything(exclaiming)["failures"]["image_pair"] == "vision_garbage"


@pytest.mark.parametrize("modalities", [["text"], ["text", "image"]])
def test_no_constant_answer_follows_a_schema_and_is_right(modalities: list[str]) -> None:
    question = questions.StructuredOutput({"modalities": modalities})
    for request in question.requests(5):
        always = good(request)
        assert put(question, lambda _request, always=always: always, 5).code == "answer_wrong"


def test_a_model_that_sees_but_cannot_count_is_not_called_blind() -> None:
    def model(request: Request) -> Any:
        return chat("9") if not request.pictures and "plus" in request.ask else good(request)

    asks = {"modalities": ["text", "image"]}
    end = everything(model, asks)
    assert end["code"] in ("answer_wrong", "passed")
    assert "image_number" not in end["failures"]


@pytest.mark.parametrize(
    ("code", "answer", "want"),
    [
        ("thinking_on", chat("<think>hm</think>{0}"), "reasoning_in_content"),
        ("thinking_on", chat("{0}", reasoning_content="hm"), "passed"),
        ("thinking_on", chat("{0}", reasoning="hm"), "passed"),
        ("thinking_on", chat("{0}"), "reasoning_missing"),
        ("thinking_off", chat("{0}", reasoning="hm"), "thinking_not_switched_off"),
        ("thinking_off", chat(None, reasoning="{0}"), "reasoning_swallowed_content"),
        ("text", chat("Thinking Process:\n\n1.  **Analyze the Request:** ..."), "reasoning_in_content"),
        ("text", chat("\ufffd\ufffd\ufffd\ufffd\ufffd"), "output_garbage"),
        ("text", chat(""), "answer_empty"),
        ("text", chat("Thinking Process:\n\n1. Add.\n\n{0}"), "reasoning_in_content"),
        ("text", {"object": "list"}, "answer_malformed"),
        ("text", chat("{0}", "length"), "output_garbage"),
        ("tool_call", chat('<tool_call>{"name": "report_number"}</tool_call>'), "tool_parser_wrong"),
        ("tool_call", chat("The number is 4821."), "tool_call_missing"),
        ("structured_output", chat("red circle"), "structured_output_broken"),
        ("structured_output", chat("[]"), "structured_output_broken"),
        ("context_limit", {"data": [{"id": "/q/Llama-3.3-70B", "max_model_len": 2048}]}, "served_name_mismatch"),
        ("context_limit", {"data": [{"id": "m", "max_model_len": 1024}]}, "context_limit_differs"),
    ],
)
def test_one_answer(code: str, answer: dict[str, Any], want: str) -> None:
    def model(request: Request) -> Any:
        return json.loads(json.dumps(answer).replace("{0}", request.expected))

    assert put(one(code), model).code == want


def test_a_warning_is_a_pass() -> None:
    end = put(one("thinking_on"), lambda request: chat(f"<think>hm</think>{request.expected}"))
    assert (end.passed, end.severity) == (True, "warning")
    assert verdict.conclude([end.as_dict()])["warnings"]


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (400, "As of transformers v4.44, default chat template is no longer allowed", "chat_template_missing"),
        (400, '{"error":{"message":"The decoder prompt cannot be empty"}}', "tokenizer_missing"),
        (400, '{"object":"error","message":"At most 1 image(s) may be provided in one request."}', "mm_limit_exceeded"),
        (400, '{"error":{"message":"At most 3 image(s) may be provided in one prompt."}}', "mm_limit_exceeded"),
        (500, '{"error":{"message":"Cannot connect to host 127.0.0.1:1 ssl:default"}}', "image_fetch_failed"),
        (400, '{"error":{"message":"Failed to load image: cannot identify image file"}}', "image_refused"),
        (400, '{"error":{"message":"tiny is not a multimodal model"}}', "not_multimodal"),
        (500, '{"error":{"message":"Could not open video stream"}}', "video_backend_missing"),
        (500, '{"error":{"message":"Expected 8 frames, but loaded 5 frames"}}', "video_decode_partial"),
        (400, '{"error":{"message":"tool choice requires --enable-auto-tool-choice"}}', "tool_parser_missing"),
        (400, '{"error":{"message":"This model\'s maximum context length is 2048 tokens."}}', "context_too_small"),
        (500, '{"error":{"message":"EngineCore encountered an issue."}}', "engine_dead"),
        (404, '{"error":{"message":"The model `nope` does not exist. Valid aliases: m."}}', "served_name_mismatch"),
        (401, '{"error":"Unauthorized"}', "api_key_refused"),
        (404, '{"detail":"Not Found"}', "api_missing"),
        (503, "", "engine_overloaded"),
        (500, "boom", "request_failed"),
        (429, '{"error":{"message":"No deployments available for selected model, Try again in 60 seconds."}}',
         "gateway_cooldown"),
        (401, '{"error":{"message":"LiteLLM Virtual Key expected. Received=sk-abc, expected to start with"}}',
         "gateway_key_wrong"),
        (400, '{"error":{"message":"Invalid model name passed in model=x"}}', "gateway_model_unknown"),
        (400, '{"error":{"message":"litellm.UnsupportedParamsError: x does not support parameters"}}',
         "gateway_unsupported_params"),
        (500, '{"error":{"message":"VLLMException - No module named \'vllm\'"}}', "gateway_provider_prefix"),
    ],
)  # fmt: skip
def test_a_refusal_ends_the_question_and_is_known(status: int, text: str, code: str) -> None:
    end = put(one("image_number"), refused(status, text))
    assert (end.code, end.passed, len(end.marks)) == (code, False, 1)
    assert verdict.KNOWN[code][1]


@pytest.mark.parametrize(
    ("error", "code"), [("timed out after 5 s", "answer_timeout"), ("connection refused", "no_connection")]
)
def test_no_answer_at_all(error: str, code: str) -> None:
    end = put(one("text"), lambda request: Answer(0, None, "", 5.0, error)).as_dict()
    assert (end["code"], end["retryable"]) == (code, True)
    assert error in end["answer"]


def test_a_gateways_message_does_not_repeat_the_key() -> None:
    text = '{"error":{"message":"LiteLLM Virtual Key expected. Received=hunter2, not \'sk-\'. sk-1234"}}'
    end = put(one("text"), refused(401, text)).as_dict()
    assert "hunter2" not in end["answer"]
    assert "sk-1234" not in end["answer"]


def test_thinking_is_switched_off_unless_asked_for() -> None:
    sent = {question.code: next(question.requests(1)).body for question in questions.select(CHAT)}
    for code, body in sent.items():
        if code != "context_limit":
            assert body["chat_template_kwargs"] == {"enable_thinking": code == "thinking_on"}
            assert (body["temperature"], body["seed"]) == (0, 1)
            assert body["max_tokens"] <= 1024  # half of this model's context
    plain = next(questions.select({"modalities": ["text"]})[0].requests(1)).body
    assert "chat_template_kwargs" not in plain
    assert plain["max_tokens"] == 120


def test_the_report_keeps_pictures_once_and_requests_without_them() -> None:
    end = put(one("image_two_in_one_request"), good).as_dict()
    assert len(end["pictures"]) == 2
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in end["pictures"])
    (exchange,) = end["exchanges"]
    assert exchange["pictures"] == [0, 1]
    assert end["pictures"][0][:100] not in json.dumps(exchange)
    assert exchange["request"]["body"]["messages"][0]["content"][0]["image_url"]["url"] == "data:image/png;base64,…"
    assert json.loads(json.dumps(end)) == end


def test_an_own_check() -> None:
    picture = questions.data_url(b"\xff\xd8jpeg")
    check = {"image": picture, "ask": "How many cats?", "expect": [["two", "2"], ["pink"]]}
    (question,) = questions.select({"checks": [check], "questions": ["checks"]})
    request = next(question.requests(1))
    assert request.body["max_tokens"] == 120
    assert request.pictures == (b"\xff\xd8jpeg",)
    assert put(question, lambda _: chat("Two cats on a pink sofa")).passed
    end = put(question, lambda _: chat("Two dogs")).as_dict()
    assert (end["code"], end["expected"]) == ("answer_wrong", "two or 2 and pink")


# Embeddings, rerank, classify, reward: the shape and the order of the answer.


def bag_of_words(text: str) -> list[float]:
    words = [word.strip(".,?").lower() for word in text.split()]
    return [float(words.count(word)) for word in ("the", "cat", "sofa", "password", "train", "reset",
            "noon", "vienna", "my", "on", "bread", "whales", "rates")]  # fmt: skip


def embedder(request: Request) -> Any:
    rows = [{"index": at, "embedding": bag_of_words(text)} for at, text in enumerate(request.body["input"])]
    return {"data": list(reversed(rows))}


def shuffled_embedder(request: Request) -> Any:
    rows = embedder(request)["data"]
    return {"data": [{**row, "index": (row["index"] + 1) % len(rows)} for row in rows]}


def random_embedder(request: Request) -> Any:
    rows = [[Random(text).gauss(0, 1) for _ in range(1)] * 8 for text in request.body["input"]]
    return {"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]}


def reranker(request: Request) -> Any:
    best = request.want[0]
    scores = [(0.9 if at == best else 0.1, at) for at in range(len(request.body["documents"]))]
    return {"results": [{"index": at, "relevance_score": score} for score, at in sorted(scores, reverse=True)]}


def worst_first(request: Request) -> Any:
    best = request.want[0]
    scores = [(0.1 if at == best else 0.9, at) for at in range(len(request.body["documents"]))]
    return {"results": [{"index": at, "relevance_score": score} for score, at in sorted(scores, reverse=True)]}


def classifier(*rows: list[float]) -> Model:
    return lambda _: {"data": [{"index": at, "label": "L", "probs": row} for at, row in enumerate(rows)]}


def rewarder(*rows: Any) -> Model:
    return lambda _: {"data": [{"index": at, "data": row} for at, row in enumerate(rows)]}


@pytest.mark.parametrize(
    ("task", "model", "code"),
    [
        ("embed", embedder, "passed"),
        ("embed", shuffled_embedder, "batch_mixed_up"),
        ("embed", lambda _: {"data": [{"index": 0, "embedding": [1.0]}]}, "answer_malformed"),
        ("embed", lambda request: {"data": [{"index": at, "embedding": [float("nan")]} for at in range(10)]},
         "answer_malformed"),
        ("rerank", reranker, "passed"),
        ("rerank", worst_first, "rerank_order_wrong"),
        ("rerank", lambda _: {"results": []}, "answer_malformed"),
        ("classify", classifier([0.8, 0.2], [0.3, 0.7], [0.8, 0.2]), "passed"),
        ("classify", classifier([0.8, 0.2], [0.3, 0.7], [0.3, 0.7]), "batch_mixed_up"),
        ("classify", classifier([0.8, 0.8], [0.3, 0.7], [0.8, 0.8]), "answer_malformed"),
        ("reward", rewarder([2.0], [-1.0], [2.0]), "passed"),
        ("reward", rewarder([[0.0], [2.0]], [[3.0], [-1.0]], [[0.0], [2.0]]), "passed"),
        ("reward", rewarder([-2.0], [1.0], [-2.0]), "score_order_wrong"),
        ("reward", rewarder([2.0], [1.0], [1.0]), "batch_mixed_up"),
        ("reward", rewarder([2.0]), "answer_malformed"),
    ],
)  # fmt: skip
def test_models_that_do_not_chat(task: str, model: Model, code: str) -> None:
    (question,) = questions.select({"task": task})
    assert put(question, model).code == code


@pytest.mark.parametrize(("task", "model"), [("rerank", worst_first), ("reward", rewarder([-2.0], [1.0], [-2.0]))])
def test_an_untrained_model_is_judged_by_its_shape(task: str, model: Model) -> None:
    (question,) = questions.select({"task": task, "untrained": True})
    assert put(question, model).passed
