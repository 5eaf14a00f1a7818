# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the simulated model answers. It understands a few dozen words; what it says of pictures comes from ``sight``."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, Mapping, Optional, Sequence

from sight import Scene

WORDS = re.compile(r"\w+|[^\w\s]")
SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
FACTS = {
    "austria": "Vienna",
    "france": "Paris",
    "germany": "Berlin",
    "italy": "Rome",
    "spain": "Madrid",
    "japan": "Tokyo",
}
PLACES = ("first", "second", "third", "fourth", "fifth")
ASKS_NUMBER = r"number|digit|\bocr\b|written|transcribe|\bcode\b|\btext in\b|\bread\b"
ASKS_COLOUR = r"colou?rs?\b"
ASKS_SHAPE = r"shapes?\b|object|figure|geometric"

# A model whose vision tower is noise still talks, and always of the same picture.
BLIND = Scene(digits="1234", shapes=[("blue", "circle")])


def tokens(text: str) -> int:
    return len(WORDS.findall(text))


# ---------------------------------------------------------------------------------------------- chat
def answer(question: str, images: Sequence[Scene], videos: Sequence[Sequence[Scene]]) -> str:
    """The answer in plain words."""
    asked = question.lower()
    if re.search(r"\bjson\b", asked):
        return json.dumps(facts(question, images, videos, ("color", "shape", "digits")))
    if videos:
        return _about_video(asked, [scene for film in videos for scene in film])
    if images:
        return _about_images(asked, images)
    return _about_text(question)


def _about_images(asked: str, images: Sequence[Scene]) -> str:
    if len(images) > 1:
        for place, word in enumerate(PLACES[: len(images)]):
            if re.search(rf"\b{word} (image|picture)|(image|picture) {place + 1}\b", asked):
                return _about_images(asked, [images[place]])
        if re.search(r"\blast (image|picture)", asked):
            return _about_images(asked, [images[-1]])
    said = [_about_scene(asked, scene) for scene in images]
    return said[0] if len(said) == 1 else ", ".join(said)


def _about_scene(asked: str, scene: Scene) -> str:
    colour, shape = scene.shapes[0] if scene.shapes else ("", "")
    wants_colour, wants_shape = bool(re.search(ASKS_COLOUR, asked)), bool(re.search(ASKS_SHAPE, asked))
    if re.search(r"how many", asked):
        return SMALL[min(len(scene.shapes), 12)]
    if wants_colour and re.search(ASKS_NUMBER, asked) and scene.digits and not wants_shape:
        return f"{scene.digit_colour} {scene.digits}"
    if re.search(r"name the colou?r and|colou?r and (the )?shape", asked) or (
        wants_colour and wants_shape and not re.search(r"colou?r (of|is|has) the (shape|object|figure)", asked)
    ):
        return f"{colour} {shape}".strip() or "nothing"
    if wants_colour:
        return colour or scene.digit_colour or "none"
    if re.search(ASKS_NUMBER, asked):
        return scene.digits or "none"
    if wants_shape:
        return shape or "none"
    return _describe(scene)


def _describe(scene: Scene) -> str:
    parts = [f"{'an' if colour == 'orange' else 'a'} {colour} {shape}" for colour, shape in scene.shapes]
    if scene.digits:
        parts.append(f"the number {scene.digits}")
    text = " and ".join(parts) or "nothing that I can name"
    return f"The picture shows {text}."


def _about_video(asked: str, frames: Sequence[Scene]) -> str:
    if re.search(ASKS_COLOUR, asked):
        seen = [scene.shapes[0][0] for scene in frames if scene.shapes]
    elif re.search(ASKS_NUMBER, asked) and not re.search(ASKS_SHAPE, asked):
        seen = [scene.digits for scene in frames if scene.digits]
    elif re.search(ASKS_SHAPE, asked):
        seen = [scene.shapes[0][1] for scene in frames if scene.shapes]
    else:
        seen = [" ".join(scene.shapes[0]) if scene.shapes else scene.digits for scene in frames]
    return ", ".join(v for i, v in enumerate(seen) if not i or v != seen[i - 1]) or "nothing"


def _about_text(question: str) -> str:
    asked = question.strip()
    sum_of = _arithmetic(asked)
    if sum_of is not None:
        return str(sum_of)
    quoted = re.search(r"(?:reply|answer|respond|say|repeat|echo|write)\b.*?[\"'](.+?)[\"']", asked, re.I | re.S)
    if quoted:
        return quoted[1]
    plain = re.search(
        r"(?:reply|answer|respond|say|repeat|echo)\b(?: back)?(?: only)?(?: with)?(?: only)?(?: exactly)?"
        r"(?: the)?(?: single)?(?: word)?s?(?: only)?:? (\S+?)[.!]?(?: and nothing else.?| only.?)?$",
        asked,
        re.I,
    )
    if plain:
        return plain[1]
    for country, capital in FACTS.items():
        if re.search(rf"capital.*{country}", asked, re.I):
            return f"The capital of {country.title()} is {capital}."
    if re.fullmatch(r"(hello|hi|hey|ping)[!.]?", asked, re.I):
        return "Hello! How can I help you?"
    return f"You asked: {' '.join(asked.split()[:12])}"


def _arithmetic(asked: str) -> Optional[int]:
    operators = {"plus": 1, "+": 1, "and": 1, "minus": -1, "-": -1, "times": 0, "x": 0, "*": 0}
    number = rf"(\d+|{'|'.join(SMALL)})"
    found = re.search(rf"{number}\s*(plus|\+|minus|-|times|x|\*)\s*{number}", asked, re.I)
    if not found:
        return None
    first, second = (int(w) if w.isdigit() else SMALL.index(w.lower()) for w in (found[1], found[3]))
    sign = operators[found[2].lower()]
    return first + sign * second if sign else first * second


def thoughts(question: str, final: str) -> str:
    return f"The user asks: {' '.join(question.split()[:20])}\nI look at what I was given and conclude: {final}"


# ---------------------------------------------------------------------------------------------- structure
def facts(
    question: str, images: Sequence[Scene], videos: Sequence[Sequence[Scene]], names: Sequence[str]
) -> dict[str, Any]:
    """A value for each name, from the picture where the name says so, else from the question."""
    scene = images[0] if images else videos[0][0] if videos and videos[0] else Scene()
    colour, shape = scene.shapes[0] if scene.shapes else ("none", "none")
    seen = {"colour": colour, "color": colour, "shape": shape}
    out: dict[str, Any] = {}
    for name in names:
        low = name.lower()
        if low in seen:
            out[name] = seen[low]
        elif re.search(r"number|digit|value|code|reading|result|text|answer|sum|total", low):
            arithmetic = _arithmetic(question)
            given = re.search(r"\d+", question)
            out[name] = scene.digits or (str(arithmetic) if arithmetic is not None else given[0] if given else "")
        elif re.search(r"city|location|place", low):
            town = re.search(r"\bin ([A-Z]\w+)", question)
            out[name] = town[1] if town else "Vienna"
        else:
            out[name] = answer(question.replace("JSON", "").replace("json", ""), images, videos)
    return out


def by_schema(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """A value that obeys a JSON schema (objects, arrays, enums, numbers, texts, booleans), filled from ``known``."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        made: dict[str, Any] = {}
        for name, inner in schema.get("properties", {}).items():
            value = known.get(name)
            if "enum" in inner:
                made[name] = value if value in inner["enum"] else inner["enum"][0]
            elif inner.get("type") in ("integer", "number"):
                found = re.search(r"-?\d+", str(value))
                made[name] = int(found[0]) if found else 0
            elif inner.get("type", "string") == "string":
                made[name] = str("" if value is None else value)[: inner.get("maxLength", 1000)]
            else:
                made[name] = by_schema(inner, known)
        return made
    if kind == "array":
        return [by_schema(schema.get("items", {"type": "string"}), known)]
    return {"integer": 0, "number": 0.0, "boolean": True, "null": None}.get(str(kind), "text")


def properties(schema: Mapping[str, Any]) -> list[str]:
    return list(schema.get("properties", {}))


# ---------------------------------------------------------------------------------------------- pooling
SIZE = 256
NOISE = frozenset(
    re.findall(
        r"\w+", "a an and are as at be by can do does for has have how i in is it its my of on or the to what when who"
    )
)


def _stems(text: str) -> list[str]:
    words = [w for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in NOISE]
    return [re.sub(r"(ing|ed|es|s|ly)$", "", w) or w for w in words]


def embed(text: str) -> list[float]:
    """A bag of word stems, hashed to a vector of length one: texts that share words are near."""
    vector = [0.0] * SIZE
    for stem in _stems(text) or ["nothing"]:
        digest = hashlib.sha256(stem.encode()).digest()
        for k in range(4):
            vector[digest[k]] += 1.0 if digest[k + 8] & 1 else -1.0
    length = math.sqrt(sum(v * v for v in vector)) or 1.0
    return [v / length for v in vector]


def relevance(query: str, document: str) -> float:
    """0..1 by the words two texts share."""
    a, b = set(_stems(query)), set(_stems(document))
    shared = len(a & b) / (math.sqrt(len(a) * len(b)) or 1.0)
    return 1 / (1 + math.exp(-8 * (shared - 0.35)))


GOOD = {"love", "great", "good", "well", "work", "thank", "right", "vienna", "excellent", "nice", "happy", "capital"}
BAD = {"broken", "bad", "hate", "terrible", "money", "back", "idea", "away", "banana", "wrong", "awful", "no", "stupid"}


def liking(text: str) -> float:
    """Positive for kind, useful words, negative for rude ones."""
    stems = _stems(text)
    return sum(s in GOOD for s in stems) - 1.5 * sum(s in BAD for s in stems) + 0.001 * min(len(stems), 100)
