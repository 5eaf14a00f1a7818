# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command line of ``vllm serve``, or the file behind its ``--config``, as the options of the inventory."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from .options import Catalogue, Option, catalogue, key_of

MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main")
SHELLS = ("sh", "bash", "dash", "ash")
SHELL_SIGNS = re.compile(r"[|&;<>()`$\n*?\[\]#~{}]")


@dataclass(frozen=True)
class Command:
    """``options`` by their names with underscores. ``unread``: (words, why they could not be taken over)."""

    model: str = ""  # named without an option
    options: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[tuple[str, str], ...] = ()


class NotVllm(ValueError):
    """This does not start ``vllm serve`` in a way that can be read."""


def arguments(entrypoint: Sequence[str], command: Sequence[str]) -> tuple[list[str], bool]:
    """The words behind ``vllm serve`` and whether it was these words that named the program.

    An entrypoint that is not known (of an image that only the registry has) is taken for the engine's.
    """
    words = [*entrypoint, *command]
    if len(words) >= 3 and posixpath.basename(words[0]) in SHELLS and re.fullmatch(r"-[a-z]*c", words[1]):
        script = re.sub(r"^\s*exec\s+", "", words[2].strip())
        if len(words) > 3 or SHELL_SIGNS.search(re.sub(r"'[^']*'", "", script)):
            raise NotVllm("it is started by a shell script, whose work no option can do")
        words = shlex.split(script)
    for index in range(len(words) - 1):
        if posixpath.basename(words[index]) == "vllm" and words[index + 1] == "serve":
            return words[index + 2 :], True
        if words[index] == "-m" and words[index + 1] in MODULES:
            return words[index + 2 :][words[index + 1] == MODULES[1] :], True
    if words and posixpath.basename(words[0]) in SHELLS:
        raise NotVllm("it is started by a shell script, whose work no option can do")
    return list(command), False


def parse(words: Sequence[str], engine: str) -> Command:
    """The options among ``words``, by the list of this engine version, typed as the engine types them."""
    return _Parser(catalogue(engine)).parse(list(words))


def from_config(config: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The options of a file for ``--config``, which ``options.normalise`` would write as this file."""
    known = catalogue(engine)
    options: dict[str, Any] = {}
    for name, value in config.items():
        key = key_of(str(name))
        option = known.options.get(key)
        bare = known.options.get(key[3:]) if key.startswith("no_") and option is None else None
        if bare is not None and bare.kind == "flag" and value is True:
            options[key[3:]] = False
        elif value is False and option is not None and option.kind in ("flag", "switch"):
            continue  # the engine drops it
        elif isinstance(value, str) and option is not None and _takes_json(option):
            options[key] = _json(value)
        else:
            options[key] = value
    return options


def _takes_json(option: Option) -> bool:
    return option.kind in ("json", "json_or_str") or option.kind.startswith("@")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class _Parser:
    def __init__(self, known: Catalogue) -> None:
        self.known = known
        self.short = {name: option for option in known.options.values() for name in option.short}
        self.options: dict[str, Any] = {}
        self.unread: list[tuple[str, str]] = []

    def parse(self, words: list[str]) -> Command:
        model = ""
        while words:
            word = words.pop(0)
            if word.startswith("-") and len(word) > 1:
                self._option(word, words)
            elif not model and "model" not in self.options:
                model = word
            else:
                self.unread.append((word, "it belongs to no option"))
        return Command(model, self.options, tuple(self.unread))

    def _option(self, word: str, words: list[str]) -> None:
        head, equals, attached = word.partition("=")
        value: Optional[str] = attached if equals else None
        long = head.startswith("--")
        name, *inner = head.lstrip("-").split(".")
        key = key_of(name)
        option = self.known.options.get(key) if long else self.short.get(name)
        if option is None and not long and name.startswith("O"):
            option, value = self.known.options.get("optimization_level"), (name[1:] or value)
        if option is None and key.startswith("no_"):
            bare = self.known.options.get(key[3:])
            if bare is not None and bare.kind == "flag" and value is None:
                self.options[key[3:]] = False
                return
        if option is None:
            taken = [word]
            while words and not words[0].startswith("-"):
                taken.append(words.pop(0))
            self.unread.append((" ".join(taken), f"vLLM {self.known.engine} has no option {head}"))
            return
        key = key if long else option.name
        if inner:
            self._inner(key, inner, words.pop(0) if value is None and words else value or "")
        elif option.kind in ("flag", "switch"):
            if value is not None:
                self.unread.append((word, f"{head} takes no value"))
            else:
                self.options[key] = True
        elif option.kind in ("ints", "strs"):
            several = [value] if value is not None else []
            while value is None and words and not re.match(r"-(?!\d)", words[0]):
                several.append(words.pop(0))
            self._several(key, option, [one for one in several if one is not None], head)
        else:
            if value is None:
                if not words:
                    self.unread.append((word, f"{head} has no value"))
                    return
                value = words.pop(0)
            self._one(key, option, value, head)

    def _one(self, key: str, option: Option, value: str, head: str) -> None:
        if key in self.options:
            self.unread.append((f"{head} {value}", f"{head} is given twice, and the last one holds"))
        try:
            if option.kind == "int" or (option.kind == "size" and re.fullmatch(r"-?\d+", value)):
                self.options[key] = int(value)
            elif option.kind == "float":
                self.options[key] = float(value)
            elif _takes_json(option):
                self.options[key] = _json(value)
            else:
                self.options[key] = value
        except ValueError:
            self.unread.append((f"{head} {value}", f"{value!r} is not what {head} takes"))

    def _several(self, key: str, option: Option, values: list[str], head: str) -> None:
        try:
            typed: list[Any] = [int(value) for value in values] if option.kind == "ints" else list(values)
        except ValueError:
            self.unread.append((f"{head} {' '.join(values)}", f"{head} takes whole numbers"))
            return
        self.options[key] = [*self.options.get(key, []), *typed]

    def _inner(self, key: str, inner: list[str], value: str) -> None:
        """``--compilation-config.mode 3``: one field of a nested configuration; ``+`` adds to a list."""
        if not isinstance(self.options.setdefault(key, {}), dict):
            self.unread.append((f"--{key}.{'.'.join(inner)} {value}", f"--{key} is given as a whole as well"))
            return
        there = self.options[key]
        for name in inner[:-1]:
            there = there.setdefault(name, {})
        last = inner[-1]
        if last.endswith("+"):
            there.setdefault(last[:-1], []).append(_json(value))
        else:
            there[last] = _json(value)
