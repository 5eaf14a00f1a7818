# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where in the inventory's files a digest of ``fleet_images`` stands, and how to replace nothing but it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

VARIABLE = "fleet_images"
ENDINGS = ("", ".yml", ".yaml", ".json")
VARIABLE_FOLDERS = ("group_vars", "host_vars")


@dataclass(frozen=True)
class Place:
    """One entry's digest in a file. ``refusal``: why it is not edited; then the rest only says where it is."""

    path: str
    line: int
    name: str
    repository: str  # as written there; a template stays one
    value: str  # as written there; empty: the entry has no digest yet
    start: int = 0  # of the text to replace, in characters
    end: int = 0
    before: str = ""  # what the new digest stands between, such as its quotes
    after: str = ""
    refusal: str = ""

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


def files(sources: Iterable[str], playbook_folder: str) -> list[Path]:
    """The files in which Ansible looks for this inventory's variables."""
    found: dict[Path, None] = {}
    folders = [Path(playbook_folder) / name for name in VARIABLE_FOLDERS]
    for source in sources:
        path = Path(source)
        if path.is_dir():
            folders.append(path)
        elif path.is_file():
            found[path] = None
            folders += [path.parent / name for name in VARIABLE_FOLDERS]
    for folder in folders:
        for root, names, leaves in os.walk(folder):
            names[:] = sorted(name for name in names if not name.startswith("."))
            for leaf in sorted(leaves):
                if not leaf.startswith(".") and Path(leaf).suffix in ENDINGS:
                    found[Path(root) / leaf] = None
    return list(found)


def read(path: Path) -> str:
    # Line ends stay as they are.
    return path.read_bytes().decode("utf-8")


def places(text: str, path: str) -> list[Place]:
    """Every entry of every ``fleet_images`` in this file; none when the file is no YAML or says nothing of it."""
    if VARIABLE not in text:
        return []
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError:
        return []  # a script or an INI inventory; Ansible has read the YAML ones before us
    uses: dict[int, int] = {}
    found = []
    for node in documents:
        for variable in _variables(node, set()):
            found += list(_entries(variable, text, path, uses))
    return found


def _variables(node: Any, seen: set[int]) -> Iterator[Any]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if getattr(key, "value", None) == VARIABLE:
                yield value
            else:
                yield from _variables(value, seen)


def _entries(variable: Any, text: str, path: str, uses: dict[int, int]) -> Iterator[Place]:
    line = variable.start_mark.line + 1
    if not isinstance(variable, yaml.MappingNode):
        yield Place(path, line, "", "", str(variable.value), refusal=_unwritten(variable) or "it is not a mapping")
        return
    for key, entry in variable.value:
        name, line = str(key.value), key.start_mark.line + 1
        if not isinstance(entry, yaml.MappingNode):
            if name == "<<":
                continue
            yield Place(path, line, name, "", str(entry.value), refusal=_unwritten(entry) or "it is not a mapping")
            continue
        uses[id(entry)] = uses.get(id(entry), 0) + 1
        keys = {str(inner.value): (inner, value) for inner, value in entry.value}
        repository = str(keys["repository"][1].value) if "repository" in keys else ""
        if uses[id(entry)] > 1:
            refusal = "two entries share it by an alias"
            yield Place(path, line, name, repository, "", refusal=refusal)
        elif "digest" in keys:
            yield _digest(keys["digest"][1], text, path, name, repository, uses)
        elif "<<" in keys:
            yield Place(path, line, name, repository, "", refusal="its digest may come from the anchor behind <<")
        elif "tag" in keys:
            yield _without(entry, *keys["tag"], text, path, name, repository)
        else:
            yield Place(path, line, name, repository, "", refusal="it has no tag that could be resolved")


def _digest(node: Any, text: str, path: str, name: str, repository: str, uses: dict[int, int]) -> Place:
    line = node.start_mark.line + 1
    uses[id(node)] = uses.get(id(node), 0) + 1
    refusal = _unwritten(node)
    if not refusal and uses[id(node)] > 1:
        refusal = "two entries share it by an alias"
    if not refusal and node.style in ("|", ">"):
        refusal = "it is a block of lines; write it on one line"
    start, end = node.start_mark.index, node.end_mark.index
    quote = node.style or ""
    if not refusal and text[start:end] != f"{quote}{node.value}{quote}":
        refusal = "it is written with an anchor, a tag or an escape"
    return Place(path, line, name, repository, str(node.value), start, end, quote, quote, refusal)


def _without(entry: Any, key: Any, tag: Any, text: str, path: str, name: str, repository: str) -> Place:
    """An entry without a digest gets one behind its tag, written as the entry is."""
    line, end = tag.start_mark.line + 1, tag.end_mark.index
    refusal = _unwritten(tag) or ("its tag is a block of lines" if tag.style in ("|", ">") else "")
    if entry.flow_style:
        quote = key.style or ""  # JSON wants its keys in quotes
        return Place(path, line, name, repository, "", end, end, f', {quote}digest{quote}: "', '"', refusal)
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop + 1
    newline = "\r\n" if text[:stop].endswith("\r\n") else "\n"
    before = f"{' ' * key.start_mark.column}digest: "
    if stop == len(text) and not text.endswith("\n"):
        return Place(path, line, name, repository, "", stop, stop, f"{newline}{before}", "", refusal)
    return Place(path, line, name, repository, "", stop, stop, before, newline, refusal)


def _unwritten(node: Any) -> str:
    """Why this value does not stand in the file itself."""
    if str(node.tag) in ("!vault", "!vault-encrypted"):
        return "it is encrypted by Ansible Vault"
    if isinstance(node, yaml.ScalarNode) and ("{{" in node.value or "{%" in node.value):
        return f"it is a template: {node.value}"
    return ""


def replaced(text: str, edits: Mapping[Place, str]) -> str:
    """The file with these digests and not another byte changed."""
    for place in sorted(edits, key=lambda each: each.start, reverse=True):
        text = text[: place.start] + place.before + edits[place] + place.after + text[place.end :]
    return text


def changed_lines(old: str, new: str) -> tuple[str, str]:
    """The lines that differ, for a diff: the rest of a file of variables is nobody's business."""
    before, after = [], []
    for line in difflib.ndiff(old.splitlines(keepends=True), new.splitlines(keepends=True)):
        if line.startswith("- "):
            before.append(line[2:])
        elif line.startswith("+ "):
            after.append(line[2:])
    return "".join(before), "".join(after)


def fitting(found: Sequence[Place], name: str, repository: str, digest: str) -> list[Place]:
    """The places that give this image its digest, or the refused ones that may."""
    named = [place for place in found if place.name == name]
    exact = [
        place
        for place in named
        if not place.refusal and place.value == digest and (place.repository == repository or "{{" in place.repository)
    ]
    return exact or [place for place in named if place.refusal] or [place for place in found if not place.name]
