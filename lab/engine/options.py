# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of ``vllm serve``: the same names, kinds, choices, error texts and traps as the real parser.

``options.json`` holds the names; they come from the real parser of each version. The traps are the real ones: a
``false`` in the file is dropped, a text "false" switches a flag on and becomes the model, a null becomes "None".
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Sequence

import yaml

DATA = json.loads((Path(__file__).parent / "options.json").read_text())
VERBS = "{chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}"


class BadOptions(Exception):
    """Ends the process with 2 and this text on stderr, as argparse does."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        # The real program parses in two layers: what no option wants is reported by the outer one.
        if message.startswith("unrecognized arguments"):
            raise BadOptions(f"usage: vllm [-h] [-v]\n            {VERBS}\n            ...\nvllm: error: {message}")
        raise BadOptions(f"usage: vllm serve [model_tag] [options]\nvllm serve: error: {message}")


def human_int(text: str) -> int:
    """4k is 4000, 4K is 4096; auto and -1 mean: as much as fits."""
    if text in ("auto", "-1"):
        return -1
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text.strip())
    if not match:
        return int(text)
    number, unit = match.groups()
    base = 1000 if unit.islower() else 1024
    return int(float(number) * base ** ("kmgt".index(unit.lower()) + 1))


human_int.__name__ = "human_readable_int"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {_json}.") from None


KINDS = {"int": int, "float": float, "int_human": human_int, "json": _json, "config": _json}


def parser(version: str) -> argparse.ArgumentParser:
    known = _Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS)
    known.add_argument("model_tag", nargs="?", default=None)
    for name, fact in DATA["flags"].items():
        if float(fact.get("since", "0")) > float(version):
            continue
        names, dest = [f"--{name}", *fact.get("a", ())], name.replace("-", "_")
        if fact["k"] == "bool":
            action = argparse.BooleanOptionalAction if fact.get("no") else "store_true"
            known.add_argument(f"--{name}", action=action, dest=dest)
        else:
            choices = [c for c in fact.get("c", ()) if c is not None] or None
            kind = KINDS.get(fact["k"], str)
            known.add_argument(*names, nargs=fact.get("n"), type=kind, choices=choices, dest=dest)
    return known


def from_file(path: str) -> list[str]:
    """The words a configuration file stands for, flattened exactly as the real engine does."""
    if path.split(".")[-1] not in ("yaml", "yml"):
        raise ValueError(f"Config file must be of a yaml/yml type. {path.split('.')[-1]} supplied")
    words: list[str] = []
    for key, value in yaml.safe_load(Path(path).read_text()).items():
        if value is False or value == []:
            continue
        words.append(f"--{key}")
        if isinstance(value, list):
            words += [str(item) for item in value]
        elif isinstance(value, dict):
            words.append(json.dumps(value))
        elif value is not True:
            words.append(str(value))
    return words


def parse(argv: Sequence[str], version: str) -> dict[str, Any]:
    """Options given, by name with underscores. Raises BadOptions, or what an unreadable file raises."""
    words = list(argv)
    if words[:1] == ["serve"]:
        words = words[1:]
    for i, word in enumerate(words):
        if word == "--config" or word.startswith("--config="):
            path = word.partition("=")[2] or (words[i + 1] if i + 1 < len(words) else "")
            rest = words[:i] + words[i + (1 if "=" in word else 2) :]
            # The file goes after the model and before the options, so that the command line wins.
            model = rest[:1] if rest and not rest[0].startswith("-") else []
            words = model + from_file(path) + rest[len(model) :]
            break
    dotted: dict[str, Any] = {}
    plain: list[str] = []
    i = 0
    while i < len(words):
        word = words[i]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if "." in name:  # --compilation-config.pass_config.fuse_norm_quant true
                if not equals and i + 1 < len(words):
                    i, value = i + 1, words[i + 1]
                _nest(dotted, name[2:].split("."), value)
                i += 1
                continue
            word = name.replace("_", "-") + equals + value
        plain.append(word)
        i += 1
    for name, value in dotted.items():
        plain += [f"--{name.replace('_', '-')}", json.dumps(value)]
    found = vars(parser(version).parse_args(plain))
    if found.get("model_tag"):
        found["model"] = found["model_tag"]
    if found.get("model_tag") is None:
        found.pop("model_tag", None)
    return found


def _nest(into: dict[str, Any], keys: list[str], text: str) -> None:
    for key in keys[:-1]:
        into = into.setdefault(key, {})
    try:
        into[keys[-1]] = json.loads(text)
    except ValueError:
        into[keys[-1]] = text


def check_parsers(given: dict[str, Any], version: str) -> None:
    """Names that the real engine checks only after some seconds of start. Raises KeyError or TypeError, its texts."""
    registry = DATA["registries"].get(version, DATA["registries"][max(DATA["registries"])])
    if given.get("enable_auto_tool_choice") and not given.get("tool_call_parser"):
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
    tool, reasoning = given.get("tool_call_parser"), given.get("reasoning_parser")
    if given.get("enable_auto_tool_choice") and tool not in registry["tool_call_parser"]:
        names = ",".join(registry["tool_call_parser"])
        raise KeyError(f"invalid tool call parser: {tool} (chose from {{ {names} }})")
    if reasoning and reasoning not in registry["reasoning_parser"]:
        names = ", ".join(registry["reasoning_parser"])
        raise KeyError(f"Reasoning parser '{reasoning}' not found. Available parsers: {names}")


if __name__ == "__main__":
    print(json.dumps(parse(sys.argv[1:], "0.32"), indent=1))
