# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables as Docker Compose puts them into its files, and the files (``.env``, ``env_file``) they come from."""

from __future__ import annotations

import re
from typing import Callable, Optional

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Lookup = Callable[[str], Optional[str]]


class BadVariable(ValueError):
    """A ``$`` that Compose would refuse."""


def substitute(text: str, lookup: Lookup, unset: Optional[set[str]] = None) -> str:
    """``text`` with its variables. ``unset`` collects the names that have neither a value nor a default."""
    out: list[str] = []
    position = 0
    while True:
        dollar = text.find("$", position)
        if dollar < 0 or dollar == len(text) - 1:
            if dollar >= 0:
                raise BadVariable("ends with a single $")
            return "".join([*out, text[position:]])
        out.append(text[position:dollar])
        after = text[dollar + 1]
        if after == "$":
            out.append("$")
            position = dollar + 2
        elif after == "{":
            end = _closing(text, dollar + 2)
            out.append(_braced(text[dollar + 2 : end], lookup, unset))
            position = end + 1
        else:
            name = NAME.match(text, dollar + 1)
            if not name:
                raise BadVariable(f"has ${after}, which names no variable")
            out.append(_value(name[0], lookup, unset))
            position = name.end()


def _closing(text: str, start: int) -> int:
    depth = 1
    for index in range(start, len(text)):
        if text.startswith("${", index):
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if not depth:
                return index
    raise BadVariable("has ${ without its }")


def _braced(inside: str, lookup: Lookup, unset: Optional[set[str]]) -> str:
    name = NAME.match(inside)
    if not name:
        raise BadVariable("has ${…} that names no variable")
    rest = inside[name.end() :]
    if not rest:
        return _value(name[0], lookup, unset)
    match = re.match(r":?[-?+]", rest)
    if not match:
        # Not what follows the name: a default may be a secret.
        raise BadVariable(f"has ${{{name[0]}…}}, which Compose does not know")
    operator, word = match[0], rest[match.end() :]
    value = lookup(name[0])
    there = bool(value) if operator[0] == ":" else value is not None
    if operator[-1] == "+":
        return substitute(word, lookup, unset) if there else ""
    if there:
        return value or ""
    if operator[-1] == "-":
        return substitute(word, lookup, unset)
    if unset is not None:
        unset.add(name[0])
    return ""


def _value(name: str, lookup: Lookup, unset: Optional[set[str]]) -> str:
    value = lookup(name)
    if value is None and unset is not None:
        unset.add(name)
    return value or ""


def read_env(text: str, lookup: Lookup) -> dict[str, Optional[str]]:
    """A ``.env`` or an ``env_file``: name -> value; None for a name alone, whose value the caller's shell has.

    ``lookup`` beats the file's own earlier lines, as a shell's variables do. BadVariable for a line that is none.
    """
    found: dict[str, Optional[str]] = {}

    def known(name: str) -> Optional[str]:
        outer = lookup(name)
        return found.get(name) if outer is None else outer

    position = 0
    text = text.replace("\r\n", "\n")
    while position < len(text):
        match = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*([=:]?)[ \t]*").match(
            text, position
        )
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end].strip()
        if not line or line.startswith("#"):
            position = end + 1
            continue
        if not match:
            raise BadVariable("has a line that is neither NAME=value nor a comment")
        name, start = match[1], match.end()
        if not match[2]:
            if start < end and text[start:end].strip():
                raise BadVariable("has a line that is neither NAME=value nor a comment")
            found[name] = None
            position = end + 1
            continue
        if start < len(text) and text[start] in "\"'":
            value, position = _quoted(text, start)
            found[name] = value if text[start] == "'" else substitute(value, known)
            continue
        value = re.split(r"(?:^|\s)#", text[start:end] if start < end else "", maxsplit=1)[0].strip()
        found[name] = substitute(value, known)
        position = end + 1
    return found


def _quoted(text: str, start: int) -> tuple[str, int]:
    """(value, where the next line starts). Double quotes know escapes, single ones nothing but a quote's."""
    quote, out, index = text[start], [], start + 1
    escapes = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$$"}
    while index < len(text):
        character = text[index]
        if character == "\\" and index + 1 < len(text):
            following = text[index + 1]
            if quote == '"':
                out.append(escapes.get(following, f"\\{following}"))
            else:
                out.append("'" if following == "'" else f"\\{following}")
            index += 2
        elif character == quote:
            end = text.find("\n", index)
            return "".join(out), len(text) if end < 0 else end + 1
        else:
            out.append(character)
            index += 1
    raise BadVariable("has a quote that does not end")
