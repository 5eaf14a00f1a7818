# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading answers: tolerant of what stands around the answer, strict about the answer."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import judge


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4821", ["4821"]),
        ("The number in the image is **4821**.", ["4821"]),
        ("4,821", ["4821"]),
        ("4 8 2 1", ["4821"]),
        ("4, 8, 2, 1", ["4821"]),
        ("4-8-2-1", ["4821"]),
        ("Image 1: 4821\nImage 2: 9930", ["4821", "9930"]),
        ("1. 4821\n2. 9930", ["4821", "9930"]),
        ("[4821, 9930]", ["4821", "9930"]),
        ("It could be 4821 or 4827", ["4821", "4827"]),
        ("48210", ["48210"]),
        ("none", []),
    ],
)
def test_numbers(text: str, found: list[str]) -> None:
    assert judge.numbers(text, 4) == found


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("15", True),
        ("7 plus 8 equals 15.", True),
        ("7 + 8 = 15", True),
        ("The answer is fifteen.", True),
        ("Seven plus eight is Fifteen!", True),
        ("16", False),
        ("15 or 16", False),
        ("115", False),
        ("", False),
    ],
)
def test_a_small_number(text: str, right: bool) -> None:
    assert judge.says_number(text, 15, (7, 8)) is right


@pytest.mark.parametrize(
    ("text", "colours", "shapes"),
    [
        ("blue circle", ["blue"], ["circle"]),
        ("The image shows a **Blue Circle** on a white background.", ["blue"], ["circle"]),
        ("A white background with a blue circle", ["blue"], ["circle"]),
        ("The background is grey and the background is black; a red star", ["red"], ["star"]),
        ("Shape: diamond (rhombus). Colour: violet.", ["purple"], ["diamond"]),
        ("A pink plus sign", ["pink"], ["cross"]),
        ("black, black, black", ["black"], []),
        ("red, then green, then red", ["red", "green", "red"], []),
        ("Two circles", [], ["circle"]),
        ("I do not see any picture.", [], []),
        ("coloured, scored, squarely", [], []),
    ],
)
def test_colours_and_shapes(text: str, colours: list[str], shapes: list[str]) -> None:
    assert judge.colours(text) == colours
    assert judge.shapes(text) == shapes


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("There are two cats on a pink blanket.", 0),
        ("2 cats, PINK couch", 0),
        ("Two cats lie on a sofa.", 1),
        ("Twofold pinkish", 2),
    ],
)
def test_expectations(text: str, missing: int) -> None:
    assert len(judge.matches(text, [["two", "2"], ["pink"]])) == missing


def test_grey_is_gray() -> None:
    assert not judge.matches("a Gray wall", [["grey"]])


@pytest.mark.parametrize(
    "text",
    ["!!!!!!!!!!!!!", "the the the the the the the the the the", "\ufffd\ufffd\ufffd\ufffd ab", "aaaaaa",
     "yes no " * 12, "\x00\x01\x02\x03\x04 abc"],
)  # fmt: skip
def test_garbage(text: str) -> None:
    assert judge.degenerate(text)


@pytest.mark.parametrize(
    "text",
    [
        "4821",
        "blue circle",
        "1111",
        "Hello!",
        "no, no, no",
        "",
        "red, green, red, green",
        "a\n\n\tb",
        "----",
        "Grüße 你好",
    ],
)
def test_no_garbage(text: str) -> None:
    assert judge.degenerate(text) == ""


def body(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish}]}


@pytest.mark.parametrize(
    ("message", "content", "reasoning", "leaked"),
    [
        ({"content": "15"}, "15", "", ""),
        ({"content": "15", "reasoning": "7+8"}, "15", "7+8", ""),
        ({"content": "15", "reasoning_content": "7+8"}, "15", "7+8", ""),
        ({"content": "15", "reasoning": None, "reasoning_content": "7+8"}, "15", "7+8", ""),
        ({"content": None, "reasoning": "15"}, "", "15", ""),
        ({"content": "<think>7+8</think>\n\n15"}, "15", "", "7+8"),
        ({"content": "7+8</think>15"}, "15", "", "7+8"),
        ({"content": "<think>\n\n</think>\n\n15"}, "15", "", ""),
        ({"content": "<think>still thinking"}, "", "", "still thinking"),
        ({"content": [{"type": "text", "text": "15"}]}, "15", "", ""),
    ],
)
def test_parts_of_a_reply(message: dict[str, Any], content: str, reasoning: str, leaked: str) -> None:
    reply = judge.reply(body(message))
    assert reply is not None
    assert (reply.content, reply.reasoning, reply.leaked) == (content, reasoning, leaked)


@pytest.mark.parametrize("broken", [None, {}, [], "text", {"choices": []}, {"choices": [{}]}, {"choices": [None]}])
def test_what_is_no_reply(broken: Optional[Any]) -> None:
    assert judge.reply(broken) is None
