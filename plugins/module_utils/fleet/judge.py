# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an answer says: its numbers, its colour and shape, its final text; and whether it is garbage.

Tolerant of everything around the answer (case, punctuation, polite words, a synonym, leftovers of thinking), strict
about the answer itself: who lists several numbers has not read one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from .picture import COLOURS, SHAPES

_COLOUR_WORDS: Mapping[str, str] = {
    **{name: name for name in COLOURS},
    "violet": "purple", "magenta": "purple", "rose": "pink", "crimson": "red", "scarlet": "red",
}  # fmt: skip
_SHAPE_WORDS: Mapping[str, str] = {
    **{name: name for name in SHAPES},
    "disc": "circle", "disk": "circle", "circular": "circle", "rhombus": "diamond", "lozenge": "diamond",
    "plus": "cross", "triangular": "triangle", "rectangular": "rectangle", "pentagram": "star",
}  # fmt: skip
_NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """The parts of one chat answer."""

    content: str  # the final answer, without thinking
    reasoning: str  # from ``reasoning`` or, in older engines, ``reasoning_content``
    leaked: str  # thinking that stands in the content
    finish: str  # why it ended: "stop", "length", "tool_calls"
    tools: tuple[tuple[str, str], ...]  # name and arguments (JSON text) of each tool call


def reply(body: Any) -> Optional[Reply]:
    """The chat answer in a response body, or None when the body is no chat answer."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        calls = tuple(
            (str(call["function"]["name"]), str(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        )
        content = _plain(message.get("content"))
        # Both names, always: the field was renamed, and a missing old name is not "no reasoning".
        reasoning = _plain(message.get("reasoning")) or _plain(message.get("reasoning_content"))
        finish = str(choice.get("finish_reason") or "")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    final = content
    if "</think>" in content:
        final = content.rsplit("</think>", 1)[1]
    elif "<think>" in content:
        final = content.split("<think>", 1)[0]  # thinking that never ended
    elif re.match(r"\W*(?:here'?s a )?thinking process\b", content, re.IGNORECASE):
        final = content.strip().rpartition("\n\n")[2]  # no tags at all; the answer, if any, comes last
        final = "" if final == content.strip() else final
    leaked = content[: len(content) - len(final)] if content.endswith(final) else content[len(final) :]
    leaked = re.sub(r"</?think>", "", leaked).strip()
    return Reply(final.strip(), reasoning.strip(), leaked, finish, calls)


def _plain(content: Any) -> str:
    if isinstance(content, list):  # content parts instead of one text
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def numbers(text: str, digits: int) -> list[str]:
    """The numbers of that many digits in a text, in order; ``4,821`` and ``4 8 2 1`` are ``4821``."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = re.sub(r"\b\d(?:[ ,-]{1,2}\d\b)+", lambda spaced: re.sub(r"\D", "", spaced.group()), text)
    return [run for run in re.findall(r"\d+", text) if len(run) >= min(3, digits)]


def says_number(text: str, value: int, besides: Sequence[int] = ()) -> bool:
    """Whether a text names this small number and no other one, apart from those of the question."""
    words = re.findall(r"\d+|[a-z]+", text.lower())
    named = {int(word) if word.isdigit() else _NUMBER_WORDS.index(word) for word in words
             if word.isdigit() or word in _NUMBER_WORDS}  # fmt: skip
    return value in named and named <= {value, *besides}


def colours(text: str) -> list[str]:
    """The colours a text names, in order, repeats left out, what is said of the background left out."""
    words = "|".join(_COLOUR_WORDS)
    text = re.sub(rf"\b(?:{words})\b(?=[\w ]{{0,12}}\bbackground\b)", "", text.lower())
    text = re.sub(rf"\bbackground\b(?: is| of|:)?(?: \w+)? (?:{words})\b", "", text)
    return _named(text, _COLOUR_WORDS)


def shapes(text: str) -> list[str]:
    """The shapes a text names, in order, repeats left out."""
    return _named(text.lower(), _SHAPE_WORDS)


def _named(text: str, words: Mapping[str, str]) -> list[str]:
    found = [words[word] for word in re.findall(rf"\b({'|'.join(words)})s?\b", text)]
    return [word for place, word in enumerate(found) if place == 0 or word != found[place - 1]]


def matches(text: str, expect: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The groups of ``expect`` that a text does not satisfy; any word of a group satisfies it."""
    text = _folded(text)
    return [
        group
        for group in expect
        if not any(re.search(rf"(?<!\w){re.escape(_folded(str(word)))}(?!\w)", text) for word in group)
    ]


def _folded(text: str) -> str:
    return " ".join(text.lower().replace("gray", "grey").split())


def degenerate(text: str) -> str:
    """Why a text is no language at all, or "" when nothing says so."""
    text = text.strip()
    if text.count("\ufffd") > max(2, len(text) // 20):
        return f"{text.count(chr(0xFFFD))} replacement characters in {len(text)}"
    run = re.search(r"(\S)\1{11,}", text)
    if run:
        return f"the character {run.group(1)!r} {len(run.group())} times in a row"
    if len(text) >= 5 and len(set(text)) == 1:
        return f"nothing but {text[0]!r}"
    words = text.split()
    for size in (1, 2, 3, 4):  # a word, or a short phrase, over and over
        repeats = best = 0
        for place in range(size, len(words)):
            repeats = repeats + 1 if words[place] == words[place - size] else 0
            best = max(best, repeats)
        if best >= 8 * size:
            return f"the same {'word' if size == 1 else f'{size} words'} {best // size + 1} times in a row"
    strange = sum(1 for character in text if not character.isprintable() and character not in "\n\r\t")
    return f"{strange} control characters in {len(text)}" if strange > max(2, len(text) // 10) else ""
