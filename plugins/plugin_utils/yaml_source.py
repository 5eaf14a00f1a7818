# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read YAML on the controller with the line of every value, and as the program reads it that the file is for.

Docker Compose reads with Go's yaml.v3, in which `yes` is a text and `2222:22` too; PyYAML's own rules (YAML 1.1, what
vLLM and LiteLLM read with) would make a truth value and a number to the base of 60 of them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.compose_reader import Path, Source
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import Finding, FleetError

WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NUMBERS = (
    (re.compile(r"[-+]?0b([01_]+)"), 2),
    (re.compile(r"[-+]?0o([0-7_]+)"), 8),
    (re.compile(r"[-+]?0x([0-9a-fA-F_]+)"), 16),
    (re.compile(r"[-+]?0([0-7_]+)"), 8),
    (re.compile(r"[-+]?(0|[1-9][0-9_]*)"), 10),
)
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def for_compose(text: str, path: str) -> Source:
    """A file that Docker Compose reads. FleetError with the line when it is none."""
    node = _compose(text, path)
    lines: dict[Path, int] = {}
    return Source(path, _plain(node, (), lines, path), lines)


def for_python(text: str, path: str) -> Source:
    """A file that vLLM or LiteLLM reads."""
    node = _compose(text, path)
    lines: dict[Path, int] = {}
    _plain(node, (), lines, path)
    try:
        return Source(path, yaml.safe_load(text), lines)
    except yaml.YAMLError as error:
        raise _refused(error, path) from None


def _compose(text: str, path: str) -> Any:
    try:
        return yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise _refused(error, path) from None


def _refused(error: yaml.YAMLError, path: str) -> FleetError:
    # Never the text itself: the line may hold a secret.
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = f"{path}:{mark.line + 1}" if mark else path
    problem = str(getattr(error, "problem", None) or "is no YAML").rstrip(".")
    return FleetError([Finding("not_yaml", place, f"{problem}.", "Correct the file; whoever started it used another.")])


def _plain(node: Any, at: Path, lines: dict[Path, int], path: str) -> Any:
    if node is None:
        return None
    lines.setdefault(at, node.start_mark.line + 1)
    if str(node.tag).startswith("!"):
        problem = f"has the tag {node.tag}, which is read only where several files are put together."
        remedy = "Give the output of `docker compose config` instead."
        raise FleetError([Finding("compose_tag", f"{path}:{node.start_mark.line + 1}", problem, remedy)])
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*at, index), lines, path) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, at, lines, path)
    return node.value if node.style else scalar(node.value)


def _mapping(node: Any, at: Path, lines: dict[Path, int], path: str) -> dict[str, Any]:
    own: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        name = str(key.value)
        if name == "<<" and not key.style:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    problem = "merges something that is not a mapping."
                    place = f"{path}:{key.start_mark.line + 1}"
                    raise FleetError([Finding("not_yaml", place, problem, "Name a mapping by its anchor.")])
                for inner, item in _mapping(source, at, {}, path).items():
                    merged.setdefault(inner, item)
                _merged_lines(source, at, lines, path)
            continue
        if name in own:
            place = f"{path}:{key.start_mark.line + 1}"
            raise FleetError([Finding("duplicate_key", place, f"has {name} a second time.", "Keep one of them.")])
        lines[(*at, name)] = key.start_mark.line + 1
        own[name] = _plain(value, (*at, name), lines, path)
    return {**merged, **own}


def _merged_lines(source: Any, at: Path, lines: dict[Path, int], path: str) -> None:
    """A merged key stands where its anchor is, unless the mapping has one of its own."""
    theirs: dict[Path, int] = {}
    _mapping(source, at, theirs, path)
    for place, line in theirs.items():
        lines.setdefault(place, line)


def scalar(text: str) -> Any:
    """A plain scalar as yaml.v3 reads it."""
    if text in WORDS:
        return WORDS[text]
    for pattern, base in NUMBERS:
        match = pattern.fullmatch(text)
        if match:
            number = int(match[1].replace("_", ""), base)
            return -number if text.startswith("-") else number
    if FLOAT.fullmatch(text):
        return float(text)
    return text
