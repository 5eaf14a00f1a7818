# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import math
import random

import pytest
import yaml
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import yaml_text

WORDS = [
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "Y",
    "N",
    "true",
    "False",
    "NULL",
    "null",
    "None",
    "~",
    "1e3",
    "1E3",
    "0x1F",
    "0o7",
    "0b1",
    "1_000",
    ".5",
    "5.",
    ".inf",
    "-.INF",
    ".NaN",
    "12:30:45",
    "2026-11-30",
    "2026-11-30T10:00:00Z",
    "+",
    "-",
    "--",
    "---",
    "...",
    ":",
    "::",
    "#",
    "?",
    "!",
    "&",
    "*",
    "@",
    "`",
    "|",
    ">",
    "%",
    "=",
    "<<",
    "{",
    "}",
    "[",
    "]",
    ",",
    "[x",
    "{a}",
    "a:",
    "a:b",
    ":a",
    "a#",
    "#a",
    "-a",
    "--config",
    ".env",
    "../x",
    "/x",
    "x/",
    "16gb",
    "30s",
    "1.0.0",
    "1.5",
    "-1",
    "+1",
    "0",
    "00",
    "é",
    "😀",
    "$x",
    "${x}",
    "$$",
    "a,b",
    "key=value",
    "null:",
]
TEXTS = [
    *WORDS,
    *[
        "",
        " ",
        " x",
        "x ",
        "a: b",
        "a #b",
        "a # b",
        "'",
        '"',
        "'a'",
        '"a"',
        "it's",
        'say "no"',
        "a\\b",
        "\\n",
        "\t",
        "a\tb",
    ],
    *[
        "a\nb",
        "a\nb\n",
        "a\n\nb",
        "a\n b",
        "\na",
        "a\n",
        "\n",
        "\n\n",
        "a\r\nb",
        "a\n#b",
        "a\n- b",
        "a\nb ",
        "a\n\n",
        "- a",
    ],
    *[
        "\0",
        "\x07",
        "\x85",
        "\xa0",
        "\u2028",
        "\ufeff",
        "? a",
        "! a",
        "a ? b",
        "... a",
        "--- a",
        "a\n---\nb",
        "x" * 300,
    ],
]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_a_text_comes_back_unchanged_wherever_it_stands(text):
    for data in (
        {"key": text},
        {text: 1},
        {"key": [text, text]},
        {"key": [[text], [[text]]]},
        {"key": [{text: text, "other": [text]}]},
        {"key": {"deep": {"deeper": text}}},
    ):
        assert yaml.safe_load(yaml_text.dump(data)) == data


def test_random_texts_come_back_unchanged():
    rng = random.Random(20261130)
    alphabet = "ab1 :#'\"\n-$\\~,[]{}&*!|>%@`\té0x.?=<"
    for _ in range(3000):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 10)))
        data = {"key": [{"x": text, "y": [text]}], "z": text}
        assert yaml.safe_load(yaml_text.dump(data)) == data, text


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**70, 1.0, 0.4, 1e-05, 1e22, 1e300, -2.5e-10, math.inf, -math.inf, True, False, None, [], {}, [[]], [{}]],
    ids=repr,
)
def test_other_values_keep_their_type(value):
    back = yaml.safe_load(yaml_text.dump({"key": value, "list": [value]}))
    assert back == {"key": value, "list": [value]}
    assert type(back["key"]) is type(value)


def test_nan_stays_not_a_number():
    assert math.isnan(yaml.safe_load(yaml_text.dump({"key": math.nan}))["key"])


def test_a_person_would_have_written_it_so():
    data = {
        "services": {
            "one": {
                "image": "vllm/vllm-openai@sha256:0123",
                "command": ["--config", "/etc/vllm.yaml"],
                "ports": ["0.0.0.0:8007:8000"],
                "environment": {"HF_HUB_OFFLINE": "1", "NAME": "two words", "DEBUG": "no"},
                "devices": [{"driver": "nvidia", "ids": ["1"]}],
                "shm_size": "16gb",
                "empty": [],
                "note": "first\nsecond",
            }
        }
    }
    assert yaml_text.dump(data, ["Written by a test.", ""]) == (
        "# Written by a test.\n"
        "#\n"
        "services:\n"
        "  one:\n"
        "    image: vllm/vllm-openai@sha256:0123\n"
        "    command:\n"
        "      - --config\n"
        "      - /etc/vllm.yaml\n"
        "    ports:\n"
        "      - '0.0.0.0:8007:8000'\n"
        "    environment:\n"
        "      HF_HUB_OFFLINE: '1'\n"
        "      NAME: two words\n"
        "      DEBUG: 'no'\n"
        "    devices:\n"
        "      - driver: nvidia\n"
        "        ids:\n"
        "          - '1'\n"
        "    shm_size: 16gb\n"
        "    empty: []\n"
        "    note: |-\n"
        "      first\n"
        "      second\n"
    )


def test_the_order_is_the_one_given():
    assert yaml_text.dump({"b": 1, "a": 2}) == "b: 1\na: 2\n"


def test_what_yaml_has_no_word_for_is_refused():
    with pytest.raises(TypeError, match="set has no place"):
        yaml_text.dump({"key": {1, 2}})
