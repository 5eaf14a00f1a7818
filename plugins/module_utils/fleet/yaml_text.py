# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML as a person would write it: block style, in the order given, quoted only where it must be.

The core may not import PyYAML (a target need not have it), and its default output would not please anybody.
Readers of this text are PyYAML (YAML 1.1, in vLLM and LiteLLM) and Go's yaml.v3 (a mix of 1.1 and 1.2, in Compose), so
a plain scalar is written only where every one of them reads the same string.
"""

from __future__ import annotations

import math
import re
from typing import Any, Mapping, Sequence

# Starts like a word, a path or an option: never a number, a date, an anchor, a tag or an indicator in any YAML version.
PLAIN = re.compile(
    r"(?:/|(?:--?|\.{0,2}/|\.)?[A-Za-z])[A-Za-z0-9_./@%+=,()<>^~$:-]*(?: [A-Za-z0-9_./@%+=,()<>^~$:-]+)*"
    r"|[1-9][0-9]*(?:s|m|h|k|kb|mb|gb)"  # a duration or a size
)
WORDS_WITH_A_MEANING = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", ".inf", ".nan"])
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def dump(data: Mapping[Any, Any], header: Sequence[str] = ()) -> str:
    """The mapping as text that ends with a newline; every line of ``header`` becomes a comment above it.

    Takes what JSON knows: mappings, lists, strings, numbers, booleans, None. Anything else is a TypeError.
    """
    lines = [f"# {line}".rstrip() for line in header]
    lines += _mapping(data, "") if data else ["{}"]
    return "\n".join(lines) + "\n"


def _mapping(data: Mapping[Any, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        lines += _entry(f"{indent}{scalar(key)}:", value, indent + "  ")
    return lines


def _sequence(data: Sequence[Any], indent: str) -> list[str]:
    lines: list[str] = []
    for value in data:
        if isinstance(value, (Mapping, list, tuple)) and value:
            # The first line of the nested block moves up beside the dash.
            nested = _block(value, indent + "  ")
            lines.append(f"{indent}- {nested[0].lstrip(' ')}")
            lines += nested[1:]
        else:
            lines += _entry(f"{indent}-", value, indent + "  ")
    return lines


def _block(value: Any, indent: str) -> list[str]:
    return _mapping(value, indent) if isinstance(value, Mapping) else _sequence(value, indent)


def _entry(start: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, (Mapping, list, tuple)):
        if not value:
            return [f"{start} " + ("{}" if isinstance(value, Mapping) else "[]")]
        return [start, *_block(value, indent)]
    if isinstance(value, str) and _fits_a_literal_block(value):
        body = value[:-1] if value.endswith("\n") else value
        mark = "|" if value.endswith("\n") else "|-"
        return [f"{start} {mark}", *((indent + line) if line else "" for line in body.split("\n"))]
    return [f"{start} {scalar(value)}"]


def _fits_a_literal_block(text: str) -> bool:
    """Whether ``text`` is several ordinary lines: no leading or trailing blanks that a block would change."""
    body = text[:-1] if text.endswith("\n") else text
    lines = body.split("\n")
    return (
        len(lines) > 1
        and all(line.isprintable() and line == line.rstrip() for line in lines)
        and bool(lines[0])
        and not lines[0].startswith(" ")
        and bool(lines[-1])
    )


def scalar(value: Any) -> str:
    """One value on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _text(value)
    raise TypeError(f"{type(value).__name__} has no place in a YAML file: {value!r}")


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")  # PyYAML reads 1e-05 as a string
    return text


def _text(value: str) -> str:
    if (
        PLAIN.fullmatch(value)
        and value.lower() not in WORDS_WITH_A_MEANING
        and ": " not in value
        and not value.endswith(":")
    ):
        return value
    if value.isprintable() and "'" not in value:
        return f"'{value}'"
    return '"' + "".join(_escaped(character) for character in value) + '"'


def _escaped(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
