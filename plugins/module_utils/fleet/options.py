# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's options: which ones an engine version knows, what is wrong with the ones given, how ``--config`` wants them.

The engine finds a wrong option after 20 seconds of start, or never: a YAML ``false`` is dropped, ``"false"`` turns the
option on, a unique prefix passes. So everything is checked here, against the list of the engine's own version in
``data/`` (made by ``tools/engine_options.py``), and written so that it means what the inventory says.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Optional

from .errors import ERROR, WARNING, Finding, nearest
from .model import Stack
from .option_changes import MODALITIES, NESTED_SUCCESSORS, OWNED, RANGES, SUCCESSORS

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Option:
    """One option of an engine version. ``kind``: flag (has a ``--no-`` form), switch (has none), int, size (an int that
    may carry k/K/m/M/g/G), float, str, word (a str in which case and dashes do not count), ints, strs, json,
    json_or_str, or ``@Config`` for a nested configuration."""

    name: str
    kind: str
    choices: tuple[Any, ...] = ()
    short: tuple[str, ...] = ()
    deprecated: bool = False


@dataclass(frozen=True)
class Catalogue:
    """What one engine version knows. ``exact`` is False when the list of another version stands in for it."""

    engine: str
    exact: bool
    options: Mapping[str, Option]
    configs: Mapping[str, Mapping[str, Any]]
    registries: Mapping[str, tuple[str, ...]]


def catalogue(engine: str) -> Catalogue:
    """The option list of this engine version, or the nearest older one, or the oldest there is."""
    wanted = _release(engine)
    shipped = _shipped()
    exact = wanted is not None and wanted in shipped
    older = [release for release in shipped if wanted is not None and release <= wanted]
    return _load(older[-1] if older else shipped[0], exact)


def _release(engine: str) -> Optional[tuple[int, int]]:
    match = re.match(r"v?(\d+)\.(\d+)", engine)
    return (int(match[1]), int(match[2])) if match else None


@cache
def _shipped() -> list[tuple[int, int]]:
    names = (path.name[len("options_") : -len(".json")] for path in DATA.glob("options_*.json"))
    return sorted(release for name in names if (release := _release(name)) is not None)


@cache
def _load(release: tuple[int, int], exact: bool) -> Catalogue:
    data = json.loads((DATA / f"options_{release[0]}.{release[1]}.json").read_text(encoding="utf-8"))
    options: dict[str, Option] = {}
    for name, entry in data["options"].items():
        spec = entry if isinstance(entry, dict) else {"kind": entry}
        option = Option(
            name=name,
            kind=spec["kind"],
            choices=tuple(spec.get("choices", ())),
            short=tuple(spec.get("short", ())),
            deprecated=spec.get("deprecated", False),
        )
        options[name] = option
        for alias in spec.get("aliases", ()):
            options[alias] = option
    if data["inverse"]:
        # --enable-x has --disable-x beside it, and the other way round; it is one option under two names.
        inverses = {"enable_": "disable_", "disable_": "enable_"}
        for name, option in list(options.items()):
            prefix = name.partition("_")[0] + "_"
            if option.kind == "flag" and prefix in inverses:
                options.setdefault(inverses[prefix] + name[len(prefix) :], option)
    return Catalogue(
        engine=data["engine"],
        exact=exact,
        options=options,
        configs=data["configs"],
        registries={name: tuple(parsers) for name, parsers in data["registries"].items()},
    )


def key_of(name: str) -> str:
    """``Max-Model-Len`` is not an option, ``max-model-len`` and ``max_model_len`` are the same one."""
    return name.replace("-", "_")


def normalise(args: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The options as ``vllm serve --config`` must read them, sorted by name, with dashes.

    * ``false`` becomes ``no-<name>: true``, because the engine silently drops a false; a switch that has no such form
      is left out (it is off unless it is given).
    * A mapping stays a mapping: the engine turns it into JSON itself, and false stays false inside it.
    * A list stays a list where the option takes several values and becomes JSON text where it takes JSON.
    * null cannot be written (it would be read as the text "None") and is left out; ``lint`` refuses it before.
    """
    known = catalogue(engine).options
    config: dict[str, Any] = {}
    for name in sorted(args, key=key_of):
        value = args[name]
        key = key_of(name)
        option = known.get(key)
        dashed = key.replace("_", "-")
        if value is None:
            continue
        if value is False:
            if option is not None and option.kind == "switch":
                continue
            negated = dashed[len("no-") :] if dashed.startswith("no-") else f"no-{dashed}"
            config[negated] = True
        elif isinstance(value, (list, tuple)):
            if option is not None and option.kind in ("json", "json_or_str"):
                config[dashed] = json.dumps(value, ensure_ascii=False)
            elif value:
                config[dashed] = [json.dumps(item) if isinstance(item, Mapping) else item for item in value]
        else:
            config[dashed] = value
    return dict(sorted(config.items()))


MULTIPLIERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def tokens(value: Any) -> Optional[int]:
    """A number as the engine counts it (``32k`` is 32,000, ``32K`` is 32,768); None when the engine is to decide."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value if value > 0 else None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", str(value))
    if not match or ("." in match[1] and not match[2].islower()):
        return None
    return int(float(match[1]) * MULTIPLIERS[match[2]]) if match[2] else int(match[1])


@dataclass(frozen=True)
class Fault:
    """What is wrong with one option, wherever it is used. ``path`` is the option and the keys below it."""

    path: tuple[str, ...]
    code: str
    problem: str
    remedy: str
    severity: str


def lint(stack: Stack) -> list[Finding]:
    """Every wrong option of this stack, at the place that set it: the stack, or the model it runs.

    Errors when the engine's own version has a list; warnings when another version's list stands in for it, except for
    what no version can mean (a null, an option that the stack itself sets).
    """
    faults = judge(stack.args, stack.image.engine)
    findings = _lint_environment(stack)
    if not faults:
        return findings
    model_args = {key_of(name): value for name, value in stack.model.args.items()}
    args = {key_of(name): value for name, value in stack.args.items()}
    for fault in faults:
        name = fault.path[0]
        from_model = name in model_args and model_args[name] == args.get(name)
        owner = f"group_vars: fleet_models.{stack.model.name}" if from_model else stack.place
        place = f"{owner}.args.{'.'.join(fault.path)}"
        findings.append(
            Finding(fault.code, place, fault.problem, fault.remedy, fault.severity, host=stack.host, stack=stack.name)
        )
    return findings


def _lint_environment(stack: Stack) -> list[Finding]:
    """VLLM_ variables that this engine version does not read: it only writes a line in its log and goes on without."""
    known = catalogue(stack.image.engine)
    variables = known.registries.get("environment", ())
    if not known.exact:
        return []
    findings = []
    for name in stack.env:
        if name.startswith("VLLM_") and name not in variables:
            from_model = stack.model.env.get(name) == stack.env[name]
            owner = f"group_vars: fleet_models.{stack.model.name}" if from_model else stack.place
            guess = nearest(name, variables)
            problem = f"vLLM {stack.image.engine} does not read {name}."
            remedy = (f"Did you mean {guess}? " if guess else "") + "Otherwise remove it: it changes nothing."
            findings.append(
                Finding("env_unknown", f"{owner}.env.{name}", problem, remedy, WARNING, stack.host, stack.name)
            )
    return findings


def judge(args: Mapping[str, Any], engine: str) -> tuple[Fault, ...]:
    """The faults of these options for this engine version; the same for every stack that shares the mapping."""
    return _judged(json.dumps(args, default=str), engine)


@lru_cache(maxsize=4096)  # a large fleet runs few models on many hosts
def _judged(args: str, engine: str) -> tuple[Fault, ...]:
    return tuple(_Judge(json.loads(args), catalogue(engine), engine).faults())


TEXT_BOOLEANS = ("true", "false", "yes", "no", "on", "off")
Verdict = Iterator[Fault]


class _Judge:
    """One pass over the options of one stack. Every method yields the faults it sees."""

    def __init__(self, args: Mapping[str, Any], known: Catalogue, engine: str) -> None:
        self.args = {key_of(name): value for name, value in args.items()}
        self.known = known
        self.severity = ERROR if known.exact else WARNING
        self.version = f"vLLM {engine}"
        if not known.exact:
            self.version = f"vLLM {known.engine} (there is no list for {engine or 'an unknown version'})"

    def fault(self, path: Iterable[str], code: str, problem: str, remedy: str, severity: str = "") -> Fault:
        return Fault(tuple(path), code, problem, remedy, severity or self.severity)

    def faults(self) -> Verdict:
        for name, value in self.args.items():
            if value is None:
                problem = f"{name} is null, which the engine would read as the text 'None'."
                yield self.fault([name], "option_null", problem, f"Leave {name} out, or give it a value.", ERROR)
            elif name in OWNED:
                yield self.fault([name], "option_owned", f"{name} is not an option for `args`.", OWNED[name], ERROR)
            elif name in self.known.options:
                option = self.known.options[name]
                if option.name != name and option.name in self.args:
                    # Since 0.33 every enable_x has a disable_x beside it.
                    yield self.twice(name, option.name)
                yield from self.value([name], option, value)
            elif name.startswith("no_") and self.is_flag(name[3:]):
                yield from self.negated(name, name[3:], value)
            else:
                yield self.unknown(name)
        if self.args.get("enable_auto_tool_choice") is True and not self.args.get("tool_call_parser"):
            problem = "enable_auto_tool_choice needs tool_call_parser; the engine would exit at once."
            parsers = ", ".join(self.known.registries.get("tool_call_parser", ()))
            remedy = f"Set tool_call_parser to the one for this model: {parsers}."
            yield self.fault(["enable_auto_tool_choice"], "option_requires", problem, remedy, ERROR)

    def is_flag(self, name: str) -> bool:
        return name in self.known.options and self.known.options[name].kind == "flag"

    def negated(self, name: str, positive: str, value: Any) -> Verdict:
        if positive in self.args:
            yield self.twice(name, positive)
        elif value is not True:
            problem = f"{name}: {value!r} is a double negation, which the engine does not understand."
            yield self.fault([name], "option_negated", problem, f"Write {positive}: true or false.", ERROR)

    def twice(self, name: str, positive: str) -> Fault:
        problem = f"{name} and {positive} are one option, and both are given."
        return self.fault([name], "option_twice", problem, f"Keep {positive}, with the value you want.", ERROR)

    def unknown(self, name: str) -> Fault:
        if "." in name:
            parent, *keys = name.split(".")
            nested = "..."
            for key in reversed(keys):
                nested = f"{{{key}: {nested}}}"
            problem = f"{name} is the dotted form of the command line."
            return self.fault([name], "option_dotted", problem, f"Write {parent}: {nested}.", ERROR)
        if name in SUCCESSORS:
            successor, remedy = SUCCESSORS[name]
            if successor is None:
                return self.fault([name], "option_removed", f"{self.version} has no {name} any more.", remedy)
            problem = f"{self.version} has no {name} any more; {successor} took its place."
            return self.fault([name], "option_renamed", problem, remedy)
        long = next((option.name for option in self.known.options.values() if name in option.short), None)
        if long is not None:
            problem = f"{name} is a short form, which cannot be written in a configuration file."
            return self.fault([name], "option_unknown", problem, f"Write {long}.")
        longer = [option for option in self.known.options if option.startswith(name)]
        if len(longer) == 1:
            problem = f"{name} is only the beginning of {longer[0]}; it works until another option begins like it."
            return self.fault([name], "option_prefix", problem, f"Write {longer[0]}.")
        negations = [f"no_{option}" for option in self.known.options if self.is_flag(option)]
        guess = nearest(name, [*self.known.options, *negations])
        remedy = f"Did you mean {guess}?" if guess else "Remove it, or pin an image whose engine knows it."
        return self.fault([name], "option_unknown", f"{self.version} has no option {name}.", remedy)

    # ------------------------------------------------------------------ values

    def value(self, path: list[str], option: Option, value: Any) -> Verdict:
        if option.deprecated:
            problem = f"{option.name} is deprecated in {self.version} and will go."
            yield self.fault(path, "option_deprecated", problem, "Look up its successor in vLLM's notes.", WARNING)
        if option.kind.startswith("@"):
            yield from self.nested_value(path, option.kind, value)
        elif option.kind in ("flag", "switch"):
            yield from self.boolean(path, value)
        elif option.kind in ("json", "json_or_str"):
            yield from self.json_value(path, option, value)
        elif option.kind in ("ints", "strs"):
            yield from self.several(path, option, value)
        else:
            yield from self.one(path, option, value)
        yield from self.parser_name(path, value)

    def boolean(self, path: list[str], value: Any) -> Verdict:
        if isinstance(value, bool):
            return
        name = path[-1]
        if isinstance(value, str) and value.strip().lower() in TEXT_BOOLEANS:
            meant = "true" if value.strip().lower() in ("true", "yes", "on") else "false"
            problem = f"{name} is the text {value!r}: the engine would turn {name} on and take {value!r} for the model."
            yield self.fault(path, "option_text_boolean", problem, f"Write {name}: {meant}, without quotes.")
        else:
            yield self.wrong_type(path, value, "true or false")

    def one(self, path: list[str], option: Option, value: Any) -> Verdict:
        wants = {
            "int": "a whole number",
            "size": "a whole number, or one with k, K, m, M, g or G",
            "float": "a number",
        }.get(option.kind, "a text")
        if option.kind == "word" and isinstance(value, str):
            value = value.lower().replace("-", "_")
        if isinstance(value, (bool, Mapping, list, tuple)) or not self.reads_as(option, value):
            yield self.wrong_type(path, value, wants)
        elif option.choices and value not in option.choices and str(value) not in map(str, option.choices):
            yield self.wrong_choice(path, value, option.choices)
        else:
            yield from self.in_range(path, value)

    def reads_as(self, option: Option, value: Any) -> bool:
        """Whether the engine's own parser would read this scalar, given as text, as the option's kind."""
        text = str(value)
        if option.kind == "int":
            return re.fullmatch(r"-?\d+", text) is not None
        if option.kind == "size":
            if option.name == "max_model_len" and text in ("auto", "-1"):
                return True
            return not isinstance(value, float) and tokens(value) is not None
        if option.kind == "float":
            return re.fullmatch(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text) is not None
        # A text that begins with a dash would be taken for the next option.
        return not text.startswith("-")

    def in_range(self, path: list[str], value: Any) -> Verdict:
        name = path[0]
        if name not in RANGES or len(path) > 1:
            return
        low, high, with_low, with_high = RANGES[name]
        number = float(tokens(value) or 0) if str(value)[-1] in MULTIPLIERS else float(value)
        if number < low or number > high or (number == low and not with_low) or (number == high and not with_high):
            span = f"at least {low:g}"
            if high != float("inf"):
                span = f"{span if with_low else f'above {low:g}'} and {'at most' if with_high else 'below'} {high:g}"
            problem = f"{name} is {value}, but must be {span}."
            yield self.fault(path, "option_range", problem, f"Give {name} a value that is {span}.")

    def several(self, path: list[str], option: Option, value: Any) -> Verdict:
        items = value if isinstance(value, (list, tuple)) else [value]
        if not items:
            problem = f"{path[-1]} is an empty list, which the engine silently drops."
            yield self.fault(path, "option_type", problem, f"Leave {path[-1]} out.")
        for item in items:
            of_json = option.name == "lora_modules" and isinstance(item, Mapping)
            if option.kind == "ints" and (isinstance(item, bool) or not re.fullmatch(r"-?\d+", str(item))):
                yield self.wrong_type(path, item, "whole numbers")
            elif option.kind == "strs" and not of_json and isinstance(item, (bool, Mapping, list, tuple)):
                yield self.wrong_type(path, item, "texts")
            elif option.choices and item not in option.choices:
                yield self.wrong_choice(path, item, option.choices)

    def json_value(self, path: list[str], option: Option, value: Any) -> Verdict:
        if isinstance(value, str):
            if option.kind == "json_or_str":
                return
            try:
                value = json.loads(value)
            except ValueError:
                yield self.wrong_type(path, value, "a mapping or a list")
                return
        if option.kind == "json_or_str" and not isinstance(value, Mapping):
            yield self.wrong_type(path, value, "a mapping or a text")
        elif option.name in ("limit_mm_per_prompt", "media_io_kwargs"):
            yield from self.per_modality(path, option.name, value)
        elif not isinstance(value, (Mapping, list, tuple)):
            yield self.wrong_type(path, value, "a mapping or a list")

    def per_modality(self, path: list[str], name: str, value: Any) -> Verdict:
        if not isinstance(value, Mapping):
            yield self.wrong_type(path, value, "a mapping such as {image: 3}")
            return
        for modality, inner in value.items():
            below = [*path, str(modality)]
            if modality not in MODALITIES:
                yield self.nested_unknown(below, MODALITIES)
            elif isinstance(inner, Mapping):
                continue
            elif name == "media_io_kwargs":
                yield self.wrong_type(below, inner, "a mapping such as {num_frames: 32}")
            elif isinstance(inner, bool) or not isinstance(inner, int):
                yield self.wrong_type(below, inner, "a whole number")
            elif inner < 0:
                problem = f"{modality} is {inner}, but must be at least 0."
                yield self.fault(below, "option_range", problem, "0 turns the modality off.")

    # ------------------------------------------------------------------ nested configurations

    def nested_value(self, path: list[str], kind: str, value: Any) -> Verdict:
        config = kind[1:]
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                value = None
        if not isinstance(value, Mapping):
            yield self.wrong_type(path, value, "a mapping")
            return
        fields = self.known.configs[config]
        for key, inner in value.items():
            below = [*path, str(key)]
            if key in fields:
                yield from self.field(below, fields[key], inner)
            elif (config, str(key)) in NESTED_SUCCESSORS:
                problem = f"{self.version} has no {key} in {path[-1]} any more."
                yield self.fault(below, "option_nested_unknown", problem, NESTED_SUCCESSORS[config, str(key)])
            else:
                yield self.nested_unknown(below, fields)

    def field(self, path: list[str], spec: Any, value: Any) -> Verdict:
        if value is None or spec == "any":
            return
        if isinstance(spec, list):
            if value not in spec:
                yield self.wrong_choice(path, value, spec)
            return
        if spec.startswith("@"):
            yield from self.nested_value(path, spec, value)
            return
        types: dict[str, tuple[tuple[type, ...], str]] = {
            "bool": ((bool,), "true or false"),
            "int": ((int,), "a whole number"),
            "float": ((int, float), "a number"),
            "str": ((str,), "a text"),
            "list": ((list, tuple), "a list"),
            "dict": ((Mapping,), "a mapping"),
        }
        accepted, wants = types[spec]
        if not isinstance(value, accepted) or (isinstance(value, bool) and spec != "bool"):
            yield self.wrong_type(path, value, wants)

    # ------------------------------------------------------------------ wording

    def parser_name(self, path: list[str], value: Any) -> Verdict:
        plugins = {"tool_call_parser": "tool_parser_plugin", "reasoning_parser": "reasoning_parser_plugin"}
        name = path[0]
        parsers = self.known.registries.get(name, ())
        if name in plugins and isinstance(value, str) and value not in parsers and not self.args.get(plugins[name]):
            code = "tool_parser_unknown" if name == "tool_call_parser" else "reasoning_parser_unknown"
            guess = nearest(value, parsers)
            remedy = (f"Did you mean {guess}? " if guess else "") + f"It knows: {', '.join(parsers)}."
            yield self.fault(path, code, f"{self.version} has no {name.replace('_', ' ')} {value!r}.", remedy)

    def nested_unknown(self, path: list[str], known: Iterable[str]) -> Fault:
        guess = nearest(path[-1], known)
        remedy = f"Did you mean {guess}?" if guess else f"It knows: {', '.join(sorted(known))}."
        problem = f"{self.version} has no {path[-1]} in {'.'.join(path[:-1])}."
        return self.fault(path, "option_nested_unknown", problem, remedy)

    def wrong_type(self, path: list[str], value: Any, wants: str) -> Fault:
        return self.fault(path, "option_type", f"{path[-1]} is {value!r}.", f"Write {wants}.")

    def wrong_choice(self, path: list[str], value: Any, choices: Iterable[Any]) -> Fault:
        guess = nearest(str(value), [str(choice) for choice in choices])
        remedy = (f"Did you mean {guess}? " if guess else "") + f"It takes: {', '.join(map(str, choices))}."
        return self.fault(path, "option_choice", f"{self.version} does not take {value!r} for {path[-1]}.", remedy)
