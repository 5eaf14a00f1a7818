# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to ask a model of this task and these modalities, and how to judge the answers.

A question asks until it has heard enough right answers (it passes) or too many wrong ones (it fails), so that a good
model that misreads now and then is not accused and a blind one that guesses does not get through. The arithmetic is
in docs/questions.md; :attr:`Question.guess` is its result, and the tests hold both together.
"""

from __future__ import annotations

import base64
import json
import math
from random import Random
from typing import Any, Iterator, Mapping, Optional, Sequence

from . import judge, picture
from .errors import ERROR, Finding, FleetError, nearest
from .verdict import PASSED, Answer, Mark, Request, Verdict, refusal


class Question:
    """One question. ``requests(seed)`` draws them one at a time; ask on until ``judge`` gives a verdict."""

    code = ""
    needed = 1  # right answers that make it pass
    spare = 0  # wrong answers it forgives; one more and it fails
    guess = 1.0  # probability that one answer is right by guessing without looking

    def __init__(self, asks: Mapping[str, Any]) -> None:
        self.asks = asks

    def requests(self, seed: int) -> Iterator[Request]:
        return self.draws(Random(f"{seed} {self.code}"))

    def draws(self, rng: Random) -> Iterator[Request]:
        """At least ``needed + spare`` requests with different right answers."""
        raise NotImplementedError

    def mark(self, request: Request, answer: Answer) -> Mark:
        refused = refusal(answer)
        if refused:
            return Mark(request, answer, False, refused[1], refused[0], "", final=True)
        return self.hear(request, answer)

    def hear(self, request: Request, answer: Answer) -> Mark:
        """Judge an answer that came with status 200."""
        raise NotImplementedError

    def judge(self, marks: Sequence[Mark]) -> Optional[Verdict]:
        """The verdict, or None: ask the next request."""
        wrong = [mark for mark in marks if not mark.right]
        if wrong and (wrong[-1].final or len(wrong) > self.spare):
            return Verdict(self.code, wrong[-1].code if wrong[-1].final else self.blame(wrong), False, tuple(marks))
        if len(marks) - len(wrong) >= self.needed:
            odd = next((mark.code for mark in marks if mark.right and mark.code), PASSED)
            return Verdict(self.code, odd, True, tuple(marks))
        return None

    def blame(self, wrong: Sequence[Mark]) -> str:
        """The code of a failure by these wrong answers."""
        return wrong[0].code


class _Chat(Question):
    """A question of the chat API. Temperature 0; told not to think unless it is about thinking."""

    thinking = False
    max_tokens = 120

    def chat(
        self, ask: str, expected: str, want: Any, pictures: Sequence[bytes] = (), parts: Any = None, **more: Any
    ) -> Request:
        if parts is None:
            parts = [{"type": "image_url", "image_url": {"url": data_url(each)}} for each in pictures]
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": ask}] if parts else ask}],
            "temperature": 0,
            "seed": 1,
            "max_tokens": self.room(self.max_tokens),
            **more,
        }
        if self.asks.get("thinking"):
            body["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        return Request(ask, expected, body, want, tuple(pictures))

    def room(self, tokens: int) -> int:
        """A limit, not a length: answers end by themselves. A checkpoint that cannot stop thinking needs room."""
        if self.asks.get("thinking"):
            tokens = max(tokens, 2048)
        context = self.asks.get("max_model_len")
        return min(tokens, context // 2) if isinstance(context, int) and context > 0 else tokens

    def hear(self, request: Request, answer: Answer) -> Mark:
        reply = judge.reply(answer.body)
        if reply is None:
            return Mark(request, answer, False, answer.text[:200], "answer_malformed", final=True)
        garbage = judge.degenerate(reply.content or ("" if reply.tools else reply.reasoning))
        heard = reply.content
        code, detail = "", ""
        if garbage:
            # Is it the picture or the model? Text alone is asked too, and the conclusion sees both.
            code, detail = ("vision_garbage" if request.pictures else "output_garbage"), f"The answer is {garbage}."
        elif not reply.content and not reply.tools:
            thought = reply.reasoning or reply.leaked
            heard = f"(no content; reasoning: {thought[:200]})" if thought else "(nothing)"
            code = "reasoning_in_content" if reply.leaked else "reasoning_swallowed_content"
            code = "thinking_budget_exhausted" if reply.finish == "length" else code
            code = code if thought else "answer_empty"
        if code:
            return Mark(request, answer, False, heard[:400], code, detail)
        if not self.right(request, reply):
            code = "reasoning_in_content" if reply.leaked else self.fault(reply)
            return Mark(request, answer, False, heard[:400] or str(reply.tools), code)
        if reply.leaked:
            return Mark(request, answer, True, heard[:400], "reasoning_in_content")
        return Mark(request, answer, True, heard[:400] or str(reply.tools), self.oddity(reply))

    def right(self, request: Request, reply: judge.Reply) -> bool:
        raise NotImplementedError

    def fault(self, reply: judge.Reply) -> str:
        return "answer_wrong"

    def oddity(self, reply: judge.Reply) -> str:
        return ""


class Text(_Chat):
    """Text alone: a known short answer that must end by itself."""

    code = "text"
    spare = 1

    def draws(self, rng: Random) -> Iterator[Request]:
        for _ in range(2):
            first, second = rng.randint(2, 9), rng.randint(2, 9)
            yield self.chat(f"What is {first} plus {second}?", str(first + second), (first + second, first, second))

    def right(self, request: Request, reply: judge.Reply) -> bool:
        total, *parts = request.want
        return reply.finish != "length" and judge.says_number(reply.content, total, parts)

    def fault(self, reply: judge.Reply) -> str:
        return "output_garbage" if reply.finish == "length" else "answer_wrong"


class ThinkingOff(Text):
    """Told not to think: the answer stands in the content."""

    code = "thinking_off"

    def oddity(self, reply: judge.Reply) -> str:
        return "thinking_not_switched_off" if reply.reasoning else ""


class ThinkingOn(Text):
    """Told to think: the reasoning field and the content are both filled, and the content is right."""

    code = "thinking_on"
    thinking = True
    max_tokens = 4096

    def right(self, request: Request, reply: judge.Reply) -> bool:
        return super().right(request, reply) and bool(reply.reasoning or reply.leaked)

    def fault(self, reply: judge.Reply) -> str:
        return "reasoning_missing" if not (reply.reasoning or reply.leaked) else super().fault(reply)


class ImageNumber(_Chat):
    """Read a number of four digits that no earlier picture showed."""

    code = "image_number"
    needed, spare = 2, 2
    guess = 1 / 9000

    def draws(self, rng: Random) -> Iterator[Request]:
        for value in rng.sample(range(1000, 10000), self.needed + self.spare):
            digits = str(value)
            yield self.chat("Read the number in this image.", digits, digits, [picture.number(rng, digits)])

    def right(self, request: Request, reply: judge.Reply) -> bool:
        said = judge.numbers(reply.content, 4)
        return sorted(set(said)) == [request.want]


class ImageColourShape(_Chat):
    """Name the colour and the shape; no two pictures of a run show the same."""

    code = "image_colour_shape"
    needed, spare = 4, 2
    guess = 1 / 63

    def draws(self, rng: Random) -> Iterator[Request]:
        things = [(colour, shape) for colour in picture.COLOURS for shape in picture.SHAPES]
        for colour, shape in rng.sample(things, self.needed + self.spare):
            drawn = picture.coloured_shape(rng, colour, shape)
            yield self.chat("Name the colour and the shape.", f"{colour} {shape}", (colour, shape), [drawn])

    def right(self, request: Request, reply: judge.Reply) -> bool:
        colour, shape = request.want
        return judge.colours(reply.content)[:1] == [colour] and judge.shapes(reply.content)[:1] == [shape]


class ImagePair(_Chat):
    """The same question about pictures that differ in the colour only: different answers, each right."""

    code = "image_pair"
    needed, spare = 2, 2
    guess = 1 / 9

    def draws(self, rng: Random) -> Iterator[Request]:
        shape, place = rng.choice(picture.SHAPES), rng.random()
        for colour in rng.sample(list(picture.COLOURS), self.needed + self.spare):
            # The same place and size each time: nothing but the colour tells the pictures apart.
            drawn = picture.coloured_shape(Random(place), colour, shape, size=(224, 224), paper=picture.GREY)
            yield self.chat("Name the color of the shape. Answer with one word.", colour, colour, [drawn])

    def right(self, request: Request, reply: judge.Reply) -> bool:
        return judge.colours(reply.content)[:1] == [request.want]

    def blame(self, wrong: Sequence[Mark]) -> str:
        # Garbage is always the same, too, and says more about the cause.
        same = len({mark.heard.lower() for mark in wrong}) == 1 and wrong[0].code == "answer_wrong"
        return "vision_constant_answer" if same else super().blame(wrong)


class ImageTwoInOneRequest(_Chat):
    """Two pictures in one request, each with its own number, read in order."""

    code = "image_two_in_one_request"
    spare = 2
    guess = 1 / 9000 / 8999

    def draws(self, rng: Random) -> Iterator[Request]:
        for _ in range(self.needed + self.spare):
            values = [str(value) for value in rng.sample(range(1000, 10000), 2)]
            drawn = [picture.number(rng, value) for value in values]
            yield self.chat("Read the number in each image.", ", ".join(values), values, drawn)

    def right(self, request: Request, reply: judge.Reply) -> bool:
        return bool(judge.numbers(reply.content, 4) == request.want)


class VideoOrder(_Chat):
    """A video of eight frames: four colours, each for two frames (engines merge frames in pairs), in their order."""

    code = "video_order"
    needed, spare = 2, 2
    guess = 1 / (9 * 8 * 7 * 6)

    def draws(self, rng: Random) -> Iterator[Request]:
        for _ in range(self.needed + self.spare):
            colours = rng.sample(list(picture.COLOURS), 4)
            scenes = [
                picture.coloured_shape(rng, colour, rng.choice(picture.SHAPES), size=picture.FRAME, paper=picture.GREY)
                for colour in colours
            ]
            frames = [scene for scene in scenes for _ in range(2)]
            film = ",".join(base64.b64encode(frame).decode("ascii") for frame in frames)
            part = {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{film}"}}
            yield self.chat("Name the colors in the video in order.", ", ".join(colours), colours, scenes, [part])

    def right(self, request: Request, reply: judge.Reply) -> bool:
        return bool(judge.colours(reply.content) == request.want)


class ToolCall(_Chat):
    """A tool is offered and must be called with the number; for a model that sees, the number is in a picture."""

    code = "tool_call"
    spare = 2

    def draws(self, rng: Random) -> Iterator[Request]:
        tool = {
            "type": "function",
            "function": {
                "name": "report_number",
                "description": "Report a number.",
                "parameters": {
                    "type": "object",
                    "properties": {"number": {"type": "string"}},
                    "required": ["number"],
                },
            },
        }
        for value in rng.sample(range(1000, 10000), self.needed + self.spare):
            sees = "image" in self.asks.get("modalities", ())
            ask = f"Call the tool with the number{'' if sees else f' {value}'}."
            ask = "Read the number and call the tool with it." if sees else ask
            drawn = [picture.number(rng, str(value))] if sees else []
            yield self.chat(ask, f"report_number({value})", str(value), drawn, tools=[tool], tool_choice="auto")

    def right(self, request: Request, reply: judge.Reply) -> bool:
        if len(reply.tools) != 1 or reply.tools[0][0] != "report_number":
            return False
        try:
            arguments = json.loads(reply.tools[0][1])
        except ValueError:
            return False
        return isinstance(arguments, dict) and str(arguments.get("number")) == request.want

    def fault(self, reply: judge.Reply) -> str:
        if reply.tools:
            return "answer_wrong"
        return "tool_parser_wrong" if "report_number" in reply.content else "tool_call_missing"


class StructuredOutput(_Chat):
    """An answer that must follow a JSON schema; for a model that sees, about a picture.

    No two draws have the same right answer, so that no constant one passes.
    """

    code = "structured_output"
    needed, spare = 2, 2

    def draws(self, rng: Random) -> Iterator[Request]:
        count = self.needed + self.spare
        things = [(colour, shape) for colour in picture.COLOURS for shape in picture.SHAPES]
        for (colour, shape), total in zip(rng.sample(things, count), rng.sample(range(4, 19), count)):
            if "image" in self.asks.get("modalities", ()):
                want: dict[str, Any] = {"color": colour, "shape": shape}
                properties: dict[str, Any] = {
                    "color": {"type": "string", "enum": list(picture.COLOURS)},
                    "shape": {"type": "string", "enum": list(picture.SHAPES)},
                    "digits": {"type": "string", "maxLength": 8},
                }
                ask = "Answer as JSON with the keys color, shape and digits."
                drawn = [picture.coloured_shape(rng, colour, shape)]
            else:
                first = rng.randint(max(2, total - 9), min(9, total - 2))
                want, properties = {"sum": total}, {"sum": {"type": "integer"}}
                ask, drawn = f"What is {first} plus {total - first}? Answer as JSON with the key sum.", []
            schema = {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            }
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
            expected = (want, list(properties))
            yield self.chat(ask, json.dumps(want), expected, drawn, response_format=form)

    def right(self, request: Request, reply: judge.Reply) -> bool:
        said = self._json(reply)
        want, keys = request.want
        return said is not None and sorted(said) == sorted(keys) and all(said[key] == want[key] for key in want)

    def fault(self, reply: judge.Reply) -> str:
        return "structured_output_broken" if self._json(reply) is None else "answer_wrong"

    @staticmethod
    def _json(reply: judge.Reply) -> Optional[dict[str, Any]]:
        try:
            said = json.loads(reply.content)
        except ValueError:
            return None
        return said if isinstance(said, dict) else None


class OwnCheck(_Chat):
    """A question of the owner's own: every group of words must match, any word of a group will do."""

    def __init__(self, asks: Mapping[str, Any], check: Mapping[str, Any], number: int) -> None:
        super().__init__(asks)
        self.check, self.code = check, f"check_{number}"
        self.thinking = bool(check.get("thinking", False))
        self.max_tokens = int(check.get("max_tokens") or 120)

    def draws(self, rng: Random) -> Iterator[Request]:
        source = str(self.check.get("image") or "")
        expect = [list(group) for group in self.check["expect"]]
        expected = " and ".join(" or ".join(str(word) for word in group) for group in expect)
        parts = [{"type": "image_url", "image_url": {"url": source}}] if source else []
        # The report shows the picture when it travels inside the request; a URL is the engine's to fetch.
        inside = [base64.b64decode(source.partition(",")[2])] if source.startswith("data:") else []
        yield self.chat(str(self.check["ask"]), expected, expect, inside, parts)

    def right(self, request: Request, reply: judge.Reply) -> bool:
        return not judge.matches(reply.content, request.want)


class ContextLimit(Question):
    """The context length the engine reports is the one the inventory wants."""

    code = "context_limit"

    def draws(self, rng: Random) -> Iterator[Request]:
        want = int(self.asks["max_model_len"])
        yield Request("max_model_len of /v1/models", str(want), {}, want, method="GET", path="/v1/models")

    def hear(self, request: Request, answer: Answer) -> Mark:
        try:
            served = {entry["id"]: entry.get("max_model_len") for entry in answer.body["data"]}
        except (KeyError, TypeError):
            return Mark(request, answer, False, answer.text[:200], "answer_malformed", final=True)
        name = self.asks.get("served_model_name")
        if name and name not in served:
            return Mark(request, answer, False, ", ".join(served) or "(no model)", "served_name_mismatch", final=True)
        have = served.get(name) if name else next(iter(served.values()), None)
        right = have == request.want
        return Mark(request, answer, right, str(have), "" if right else "context_limit_differs", final=True)


_TRIPLES = (
    ("The cat sleeps on the warm sofa.", "A cat is sleeping on the sofa.", "Interest rates rose in March."),
    ("How do I reset my password?", "I forgot my password, how can I reset it?", "Bake the bread for forty minutes."),
    ("The train to Vienna leaves at noon.", "At noon the train leaves for Vienna.", "Whales are mammals of the sea."),
)


class Embeddings(Question):
    """Vectors of one length; equal texts get equal vectors; related texts are nearer than unrelated ones."""

    code = "embeddings"

    def draws(self, rng: Random) -> Iterator[Request]:
        texts = [text for triple in rng.sample(_TRIPLES, len(_TRIPLES)) for text in triple]
        texts.append(texts[0])
        yield Request(
            "Embed three texts, their paraphrases and unrelated ones",
            "each text nearer to its paraphrase than to the unrelated one",
            {"input": texts},
            len(texts),
            path="/v1/embeddings",
        )

    def hear(self, request: Request, answer: Answer) -> Mark:
        vectors = _rows(answer.body, "embedding", request.want)
        if vectors is None or len({len(vector) for vector in vectors}) != 1:
            heard = f"no {request.want} vectors of one length: {answer.text[:150]}"
            return Mark(request, answer, False, heard, "answer_malformed", final=True)
        if _cosine(vectors[0], vectors[-1]) < 0.999:
            same = f"cosine {_cosine(vectors[0], vectors[-1]):.3f} of a text with itself"
            return Mark(request, answer, False, same, "batch_mixed_up", final=True)
        pairs = [
            (_cosine(vectors[at], vectors[at + 1]), _cosine(vectors[at], vectors[at + 2]))
            for at in range(0, request.want - 1, 3)
        ]
        heard = f"{len(vectors[0])} dimensions; " + ", ".join(f"{near:.2f} > {far:.2f}" for near, far in pairs)
        right = self.asks.get("untrained") or all(near > far for near, far in pairs)
        return Mark(request, answer, bool(right), heard, "" if right else "embedding_order_wrong", final=True)


_DOCUMENTS = (
    ("What is the capital of Austria?", "Vienna is the capital of Austria."),
    ("At what temperature does water boil?", "At sea level water boils at one hundred degrees Celsius."),
    ("Who painted the Mona Lisa?", "The Mona Lisa was painted by Leonardo da Vinci."),
    ("How many legs does a spider have?", "A spider has eight legs."),
)


class Rerank(Question):
    """The document that answers the query comes first; the same document twice gets one score."""

    code = "rerank"

    def draws(self, rng: Random) -> Iterator[Request]:
        documents = rng.sample(_DOCUMENTS, len(_DOCUMENTS))
        query, best = documents[rng.randrange(len(documents))]
        texts = [text for _, text in documents]
        twin = rng.choice([place for place, text in enumerate(texts) if text != best])
        yield Request(
            f"Rank four documents for: {query}",
            best,
            {"query": query, "documents": [*texts, texts[twin]]},
            (texts.index(best), twin),
            path="/v1/rerank",
        )

    def hear(self, request: Request, answer: Answer) -> Mark:
        best, twin = request.want
        texts = request.body["documents"]
        try:
            ranked = [(int(each["index"]), float(each["relevance_score"])) for each in answer.body["results"]]
        except (KeyError, TypeError, ValueError):
            ranked = []
        scores = dict(ranked)
        values = [score for _, score in ranked]
        if (
            sorted(scores) != list(range(len(texts)))
            or not all(map(math.isfinite, values))
            or values != sorted(values, reverse=True)
        ):
            heard = f"not every document once, best score first: {answer.text[:200]}"
            return Mark(request, answer, False, heard, "answer_malformed", final=True)
        if abs(scores[twin] - scores[len(texts) - 1]) > 0.02 * (max(values) - min(values)) + 1e-3:
            heard = f"{scores[twin]} and {scores[len(texts) - 1]} for one document"
            return Mark(request, answer, False, heard, "batch_mixed_up", final=True)
        right = self.asks.get("untrained") or ranked[0][0] == best
        heard = f"{texts[ranked[0][0]]} ({ranked[0][1]:.3f})"
        return Mark(request, answer, bool(right), heard, "" if right else "rerank_order_wrong", final=True)


class Classify(Question):
    """Probabilities that sum to one, the label is the likeliest, equal texts get equal probabilities."""

    code = "classify"

    def draws(self, rng: Random) -> Iterator[Request]:
        texts = rng.sample(["I love this, it works so well.", "This is broken and I want my money back."], 2)
        yield Request(
            "Classify two texts, the first one twice",
            "probabilities that sum to 1, the same for the same text",
            {"input": [*texts, texts[0]]},
            3,
            path="/classify",
        )

    def hear(self, request: Request, answer: Answer) -> Mark:
        rows = _rows(answer.body, "probs", request.want)
        if rows is None or any(abs(sum(row) - 1) > 0.01 and len(row) > 1 for row in rows):
            heard = f"no {request.want} lists of probabilities: {answer.text[:200]}"
            return Mark(request, answer, False, heard, "answer_malformed", final=True)
        same = all(abs(first - last) < 0.01 for first, last in zip(rows[0], rows[-1]))
        labels = [str(entry.get("label")) for entry in answer.body["data"]]
        heard = ", ".join(f"{label} {max(row):.2f}" for label, row in zip(labels, rows))
        return Mark(request, answer, same, heard, "" if same else "batch_mixed_up", final=True)


class Reward(Question):
    """One score a text; equal texts get equal scores; a right, polite answer scores above a wrong, rude one."""

    code = "reward"

    def draws(self, rng: Random) -> Iterator[Request]:
        ask = "User: What is the capital of Austria?\nAssistant: "
        good, bad = ask + "The capital of Austria is Vienna.", ask + "No idea, go away. Perhaps banana banana."
        yield Request(
            "Score a right, polite answer, a wrong, rude one, and the first again",
            "the right answer scores higher",
            {"input": [good, bad, good]},
            3,
            path="/pooling",
        )

    def hear(self, request: Request, answer: Answer) -> Mark:
        rows = _rows(answer.body, "data", request.want)
        if rows is None:
            heard = f"no {request.want} scores: {answer.text[:200]}"
            return Mark(request, answer, False, heard, "answer_malformed", final=True)
        # A process reward model scores every token; the last one is about the whole text.
        good, bad, again = (row[-1] for row in rows)
        heard = f"{good:.3f} and {bad:.3f}"
        if abs(good - again) > 0.01 * max(1.0, abs(good)):
            return Mark(request, answer, False, f"{good} and {again} for one text", "batch_mixed_up", final=True)
        right = self.asks.get("untrained") or good > bad
        return Mark(request, answer, bool(right), heard, "" if right else "score_order_wrong", final=True)


def _rows(body: Any, key: str, count: int) -> Optional[list[list[float]]]:
    """One list of finite numbers for each input, in the order of the inputs; None when the body has another shape."""
    try:
        entries = sorted(body["data"], key=lambda entry: entry["index"])
        rows = [_flat(entry[key]) for entry in entries]
        whole = [entry["index"] for entry in entries] == list(range(count))
    except (KeyError, TypeError, ValueError):
        return None
    return rows if whole and all(row and all(map(math.isfinite, row)) for row in rows) else None


def _flat(value: Any) -> list[float]:
    return [number for each in value for number in _flat(each)] if isinstance(value, list) else [float(value)]


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(first, second))
    return product / (math.sqrt(sum(a * a for a in first)) * math.sqrt(sum(b * b for b in second)) or 1.0)


def data_url(content: bytes) -> str:
    """Picture bytes as a URL that carries them, so that no engine needs the network."""
    kinds = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))
    kind = next((name for magic, name in kinds if content.startswith(magic)), "png")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


_IMAGE: Sequence[type[Question]] = (ImageNumber, ImageColourShape, ImagePair, ImageTwoInOneRequest)
_BY_TASK: Mapping[str, type[Question]] = {
    "embed": Embeddings, "rerank": Rerank, "classify": Classify, "reward": Reward,
}  # fmt: skip
_KINDS: Sequence[type[Question]] = (
    Text, ThinkingOff, ThinkingOn, *_IMAGE, VideoOrder, ToolCall, StructuredOutput, *_BY_TASK.values(), ContextLimit,
)  # fmt: skip
CODES = tuple(kind.code for kind in _KINDS)


def select(asks: Mapping[str, Any]) -> list[Question]:
    """The questions for a model, in the order they are asked: text first, so that a failure of sight is told apart.

    ``asks``: task, modalities, thinking, tool_parser, structured, max_model_len, served_model_name, checks (mappings
    with ask, expect, image, thinking, max_tokens), images_per_request (below 2: two pictures are not asked about),
    untrained (judge the shape of answers only), questions (only these codes; ``checks`` for the owner's own).
    Raises FleetError for a code that does not exist or that this model is not asked.
    """
    task, modalities = asks.get("task", "chat"), asks.get("modalities") or ("text",)
    kinds: list[type[Question]] = []
    if task == "chat":
        kinds.append(Text)
        kinds += [ThinkingOff, ThinkingOn] if asks.get("thinking") else []
        if "image" in modalities:
            several = int(asks.get("images_per_request", 2)) >= 2
            kinds += [kind for kind in _IMAGE if several or kind is not ImageTwoInOneRequest]
        kinds += [VideoOrder] if "video" in modalities else []
        kinds += [ToolCall] if asks.get("tool_parser") else []
        kinds += [StructuredOutput] if asks.get("structured") else []
    else:
        kinds.append(_BY_TASK[task])
    kinds += [ContextLimit] if asks.get("max_model_len") else []
    questions: list[Question] = [kind(asks) for kind in kinds]
    questions += [OwnCheck(asks, check, number) for number, check in enumerate(asks.get("checks") or (), 1)]
    wanted = asks.get("questions")
    if not wanted:
        return questions
    have = {question.code for question in questions}
    unknown = [code for code in wanted if code not in have and not (code == "checks" and asks.get("checks"))]
    if unknown:
        raise FleetError([_unknown(code, have) for code in unknown])
    return [
        question
        for question in questions
        if question.code in wanted or (isinstance(question, OwnCheck) and "checks" in wanted)
    ]


def _unknown(code: str, have: set[str]) -> Finding:
    near = nearest(code, have)
    return Finding(
        "question_unknown" if code not in CODES else "question_not_asked",
        "questions",
        f"{code!r} is not a question that this model is asked.",
        f"{f'Did you mean {near!r}? ' if near else ''}Its questions: {', '.join(sorted(have))}.",
        ERROR,
    )
