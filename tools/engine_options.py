#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the option list of one vLLM version, which the plan checks every `args:` against.

    pip download --no-deps vllm==0.33.0
    tools/engine_options.py vllm-0.33.0-….whl                        # or the folder it was unpacked into
    tools/engine_options.py vllm-0.33.0-….whl --against dump.json    # compare with a dump of the engine's own parser

The wheel's source is read with ast: nothing is imported, no GPU and no torch is needed. It follows the way in which
vLLM makes its parser out of annotated dataclasses (vllm/engine/arg_utils.py, get_kwargs).

Writes plugins/module_utils/fleet/data/options_<major>.<minor>.json (or the file given with --output).
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any, Iterator, Optional

DATA = Path(__file__).resolve().parent.parent / "plugins" / "module_utils" / "fleet" / "data"
# What torch calls a quantisation; not something one writes in an inventory.
NOT_FOR_PEOPLE = {"QuantKey", "ScalarType", "ScaleDesc"}
CLI_SOURCES = (  # the frontend's options move between versions
    "vllm/entrypoints/common/cli_args.py",
    "vllm/entrypoints/launchers/cli_args.py",
    "vllm/entrypoints/openai/cli_args.py",
)


# ------------------------------------------------------------------ the source of a wheel


class Source:
    """The Python files of a wheel or of the folder it was unpacked into."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.archive = zipfile.ZipFile(root) if root.is_file() else None
        self.read: dict[str, Optional[ast.Module]] = {}

    def names(self, folder: str) -> list[str]:
        if self.archive:
            inside = (name for name in self.archive.namelist() if name.startswith(folder))
        else:
            inside = (str(path.relative_to(self.root)) for path in (self.root / folder).rglob("*.py"))
        return sorted(name for name in inside if name.endswith(".py"))

    def tree(self, name: str) -> Optional[ast.Module]:
        if name not in self.read:
            self.read[name] = self.parsed(name)
        return self.read[name]

    def parsed(self, name: str) -> Optional[ast.Module]:
        try:
            text = self.archive.read(name).decode() if self.archive else (self.root / name).read_text(encoding="utf-8")
        except (KeyError, FileNotFoundError):
            return None
        return ast.parse(text)

    def version(self) -> str:
        if self.archive:
            (metadata,) = [name for name in self.archive.namelist() if re.fullmatch(r"vllm[^/]*/METADATA", name)]
            return re.search(r"^Version: ([^+\s]+)", self.archive.read(metadata).decode(), re.M)[1]  # type: ignore[index]
        (folder,) = self.root.glob("vllm-*.dist-info")
        return folder.name[len("vllm-") :].split("+")[0].replace(".dist-info", "")


class Types:
    """The classes and type aliases that annotations refer to by name."""

    def __init__(self, trees: Iterator[ast.Module]) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.aliases: dict[str, ast.expr] = {}
        for tree in trees:
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.aliases.setdefault(node.targets[0].id, node.value)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                    self.aliases.setdefault(node.target.id, node.value)

    def is_config(self, name: str) -> bool:
        decorators = self.classes[name].decorator_list if name in self.classes else []
        return any("config" in ast.unparse(one) or "dataclass" in ast.unparse(one) for one in decorators)

    def fields(self, name: str) -> dict[str, ast.expr]:
        """name -> annotation, the base classes' first."""
        node = self.classes[name]
        found: dict[str, ast.expr] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and self.is_config(base.id):
                found.update(self.fields(base.id))
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = ast.unparse(statement)
                if not text.split(":", 1)[1].strip().startswith(("ClassVar", "InitVar")) and "init=False" not in text:
                    found[statement.target.id] = statement.annotation
        return found

    def members(self, node: ast.expr) -> list[str]:
        """The members of a union as text, aliases resolved."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.members(node.left) + self.members(node.right)
        if isinstance(node, ast.Subscript):
            outer = ast.unparse(node.value).split(".")[-1]
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if outer in ("Optional", "Union", "SkipValidation"):
                more = ["None"] if outer == "Optional" else []
                return [member for one in inner for member in self.members(one)] + more
            if outer == "Annotated":
                return self.members(inner[0])
        if isinstance(node, ast.Name) and node.id in self.aliases and node.id not in self.classes:
            alias = self.aliases[node.id]
            if isinstance(alias, (ast.Subscript, ast.BinOp, ast.Name)):
                return self.members(alias)
        if isinstance(node, ast.Name) and node.id in self.classes:
            bases = [ast.unparse(base) for base in self.classes[node.id].bases]
            if any(base.startswith(("dict", "UserDict")) for base in bases):
                return ["dict"]
        return [ast.unparse(node)]

    def choices(self, member: str) -> list[Any]:
        """Literal['a', *Other] as a list."""
        found: list[Any] = []
        node = ast.parse(member, mode="eval").body
        assert isinstance(node, ast.Subscript)
        for item in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(item, ast.Constant):
                found.append(item.value)
            else:  # a Literal inside a Literal
                found += [choice for inner in self.members(item) for choice in self.choices(inner)]
        return found


def from_wheel(root: Path) -> dict[str, Any]:
    source = Source(root)
    arguments = source.tree("vllm/engine/arg_utils.py")
    frontend_path = next(name for name in CLI_SOURCES if source.tree(name))
    frontend = source.tree(frontend_path)
    if arguments is None or frontend is None:
        raise SystemExit(f"{root} does not look like vLLM")
    names = [*source.names("vllm/config/"), *source.names("vllm/v1/attention/backends/registry")]
    types = Types(tree for name in names if (tree := source.tree(name)))
    near = Types(iter([arguments, frontend, *imported(source, frontend_path, 3)]))
    types.aliases = {**near.aliases, **types.aliases}
    types.classes.update(Types(iter([frontend])).classes)

    human = human_integers(arguments)
    options: dict[str, Any] = {}
    for name, annotation in {**types.fields("BaseFrontendArgs"), **types.fields("FrontendArgs")}.items():
        options[name] = annotated(name, types, annotation, [], human)
    for statement in (ast.unparse(node) for node in ast.walk(frontend) if isinstance(node, (ast.Assign, ast.Delete))):
        # FrontendArgs._customize_cli_kwargs changes some of them afterwards.
        if match := re.fullmatch(r"frontend_kwargs\['(\w+)'\]\['type'\] = json.loads", statement):
            options[match[1]] = "json"
        elif (match := re.fullmatch(r"del frontend_kwargs\['(\w+)'\]\['nargs'\]", statement)) and (
            options[match[1]] == "strs"
        ):
            options[match[1]] = "str"
    for tree in (frontend, arguments):
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name in ("add_cli_args", "make_arg_parser"):
                options.update(added_arguments(function, types, human))

    configs: dict[str, dict[str, Any]] = {}
    wanted = [spec if isinstance(spec, str) else spec["kind"] for spec in options.values()]
    while wanted:
        name = wanted.pop().lstrip("@")
        if name in types.classes and types.is_config(name) and name not in configs:
            configs[name] = {
                field: nested(types, annotation)
                for field, annotation in types.fields(name).items()
                if not field.startswith("_")
            }
            wanted += [spec for spec in configs[name].values() if isinstance(spec, str) and spec.startswith("@")]
    parser = source.tree("vllm/utils/argparse_utils.py")
    return {
        "engine": source.version(),
        # Since 0.33: every enable_x flag has a disable_x beside it, and the other way round.
        "inverse": any(isinstance(node, ast.ClassDef) and node.name == "EnableDisableAction" for node in parser.body)
        if parser
        else False,
        "options": options,
        "configs": configs,
        "registries": {
            "tool_call_parser": registered(source.tree("vllm/tool_parsers/__init__.py")),
            "reasoning_parser": registered(source.tree("vllm/reasoning/__init__.py")),
            "environment": variables(source.tree("vllm/envs.py")),
        },
    }


def imported(source: Source, path: str, hops: int) -> Iterator[ast.Module]:
    """The modules of vLLM that this one imports names from, and those that they import names from."""
    tree = source.tree(path)
    for node in ast.walk(tree) if tree and hops else ():
        if not isinstance(node, ast.ImportFrom) or not (node.level == 1 or (node.module or "").startswith("vllm.")):
            continue
        module = (node.module or "").replace(".", "/")
        base = f"{path.rpartition('/')[0]}/{module}" if node.level else module
        for name in (f"{base}.py", f"{base}/__init__.py"):
            if (found := source.tree(name)) is not None:
                yield found
                yield from imported(source, name, hops - 1)


def human_integers(arguments: ast.Module) -> set[str]:
    """The names in `human_readable_int_args`: they take 4k as well as 4096."""
    found = {"max_model_len"}
    for node in ast.walk(arguments):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "human_readable_int_args":
            found |= set(ast.literal_eval(node.value))
    return found


def annotated(name: str, types: Types, annotation: ast.expr, flags: list[str], human: set[str]) -> Any:
    """An option made out of an annotated field, in the order in which get_kwargs decides."""
    members = types.members(annotation)
    heads = [member.split("[")[0].split(".")[-1] for member in members]
    configs = [head for head in heads if types.is_config(head)]
    literals = [choice for member in members if member.startswith("Literal[") for choice in types.choices(member)]
    several = next((member for member, head in zip(members, heads) if head in ("tuple", "list", "set")), None)
    choices: list[Any] = []
    if configs:
        kind = "@" + configs[0]
    elif sorted(heads) == ["None", "bool", "str"]:
        kind = "str"
    elif "bool" in heads:
        kind = "flag"
    elif literals:
        kind = "int" if isinstance(literals[0], int) else "str"
        choices = [] if "str" in heads else literals
    elif several:
        inner = ast.parse(several, mode="eval").body
        items = types.members(inner.slice) if isinstance(inner, ast.Subscript) else ["str"]
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Tuple):
            items = types.members(inner.slice.elts[0])
        kind = "ints" if items == ["int"] else "strs"
        choices = types.choices(items[0]) if items[0].startswith("Literal[") else []
    elif "int" in heads:
        kind = "size" if name in human else "int"
    elif "float" in heads:
        kind = "float"
    elif "dict" in heads:
        builtin = {"dict", "str", "None", "int", "float"}
        kind = "json_or_str" if "str" in heads or set(heads) - builtin else "json"
    else:
        kind = "str"
    return option(kind=kind, choices=choices, aliases=flags, deprecated=False)


def added_arguments(function: ast.FunctionDef, types: Types, human: set[str]) -> dict[str, Any]:
    """Every add_argument("--name", **some_kwargs["name"]) and add_argument("--name", type=int, ...) of a function."""
    owner: dict[str, str] = {}  # x_kwargs -> the config class it was made of
    field_of: dict[str, tuple[str, str]] = {}  # y_kwargs -> (x_kwargs, field)
    overridden: dict[str, str] = {}  # field or y_kwargs -> source of the type that was put in later
    removed: dict[str, Any] = {}  # field -> the choice that is taken away again
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (
            match := re.fullmatch(r"\w+\['(\w+)'\]\['choices'\]\.remove\((\w+)\)", ast.unparse(node))
        ):
            constant = types.aliases.get(match[2])
            removed[match[1]] = constant.value if isinstance(constant, ast.Constant) else None
        if not isinstance(node, ast.Assign):
            continue
        target, value = ast.unparse(node.targets[0]), node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("get_kwargs"):
            owner[target] = ast.unparse(value.args[0])
        elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            field_of[target] = (ast.unparse(value.value), str(value.slice.value))
            if match := re.fullmatch(r"get_kwargs\((\w+)\)", field_of[target][0]):
                owner[field_of[target][0]] = match[1]
        elif match := re.fullmatch(r"""(\w+)(?:\['(\w+)'\])?\['type'\]""", target):
            overridden[match[2] or match[1]] = ast.unparse(value)

    found: dict[str, Any] = {}
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument")):
            continue
        flags = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        long = next((flag for flag in flags if flag.startswith("--")), None)
        if long is None:
            continue
        name, others = long[2:].replace("-", "_"), [flag for flag in flags if flag != long]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        spread = next((ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg is None), "")
        match = re.search(r"(\w+_kwargs)\['(\w+)'\]", spread)
        kwargs, field = (match[1], match[2]) if match else field_of.get(spread, ("", ""))
        if kwargs in owner:
            found[name] = annotated(field, types, types.fields(owner[kwargs])[field], others, human)
            override = overridden.get(field) or overridden.get(spread, "")
            if "json.loads" in override:
                found[name] = option(kind="json", choices=[], aliases=others, deprecated=False)
            elif ".lower()" in override:
                found[name] = {**found[name], "kind": "word"}
            if name in removed:
                found[name]["choices"].remove(removed[name])
            if "DEPRECAT" in spread:
                found[name] = {**(found[name] if isinstance(found[name], dict) else {"kind": found[name]})}
                found[name]["deprecated"] = True
        else:
            found[name] = spelled_out(keywords, others, types)
    return found


def spelled_out(keywords: dict[str, ast.expr], flags: list[str], types: Types) -> Any:
    action = ast.unparse(keywords["action"]) if "action" in keywords else ""
    help_text = ast.unparse(keywords["help"]) if "help" in keywords else ""
    kinds = {"int": "int", "float": "float", "json.loads": "json"}
    kind = kinds.get(ast.unparse(keywords["type"]), "str") if "type" in keywords else "str"
    if "BooleanOptionalAction" in action:
        kind = "flag"
    elif "store_true" in action:
        kind = "switch"
    choices: list[Any] = []
    if "choices" in keywords:
        node = keywords["choices"]
        if isinstance(node, ast.List):
            choices = [item.value for item in node.elts if isinstance(item, ast.Constant)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_args"):
            choices = types.choices(types.members(node.args[0])[0])
        # Anything else depends on the machine (the platform's device type): no choices are better than wrong ones.
    deprecated = "DEPRECAT" in (action + help_text).upper()
    return option(kind=kind, choices=choices, aliases=flags, deprecated=deprecated)


def nested(types: Types, annotation: ast.expr) -> Any:
    """What a field of a nested configuration takes: a kind, a list of choices, ``@Config``, or any."""
    kinds: set[str] = set()
    choices: list[Any] = []
    simple = {"bool": "bool", "int": "int", "float": "float", "str": "str", "list": "list", "tuple": "list"}
    simple.update({"set": "list", "dict": "dict", "Counter": "dict", "Mapping": "dict"})
    for member in types.members(annotation):
        head = member.split("[")[0].split(".")[-1]
        if head == "Literal":
            choices += types.choices(member)
        elif types.is_config(head) and head not in NOT_FOR_PEOPLE:
            kinds.add("@" + head)
        elif head != "None":
            kinds.add(simple.get(head, "any"))
    if choices and not kinds:
        return [choice for choice in choices if choice is not None]
    return kinds.pop() if len(kinds) == 1 and not choices else "any"


def registered(tree: Optional[ast.Module]) -> list[str]:
    """The names in the dictionary of lazily registered parsers."""
    found: set[str] = set()
    for node in ast.walk(tree) if tree else ():
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Dict)
            and "REGISTER" in ast.unparse(node.targets[0])
        ):
            found |= {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
    return sorted(found)


def option(*, kind: str, choices: Optional[list[Any]], aliases: list[str], deprecated: bool) -> Any:
    """One option as compactly as it can be said: its kind alone, or a mapping."""
    spec: dict[str, Any] = {"kind": kind}
    if choices:
        spec["choices"] = [choice for choice in choices if choice is not None]
    for key, dashes in (("aliases", "--"), ("short", "-")):  # a short one cannot be written in a --config file
        names = [name for name in aliases if name.startswith("--") == (dashes == "--")]
        if names:
            spec[key] = [name[len(dashes) :].replace("-", "_") for name in names]
    if deprecated:
        spec["deprecated"] = True
    return kind if len(spec) == 1 else spec


def write(options: dict[str, Any], path: Path) -> None:
    """One option a line, so that the next version's list is a readable diff."""
    lines = ["{", *(f' "{key}": {json.dumps(options[key])},' for key in ("engine", "inverse"))]
    for section in ("options", "configs", "registries"):
        lines.append(f' "{section}": {{')
        entries = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(options[section].items())]
        lines.append(",\n".join(entries))
        lines.append(" }," if section != "registries" else " }")
    path.write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")


def variables(tree: Optional[ast.Module]) -> list[str]:
    """The VLLM_ variables that the engine reads; it only warns about others that begin so."""
    found: set[str] = set()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            keys = {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
            found |= {key for key in keys if key.startswith("VLLM_")}
    return sorted(found)


def differences(ours: dict[str, Any], dump: dict[str, Any]) -> list[str]:
    """What the engine's own parser (as dumped) says otherwise about names, kinds, choices and nested fields."""
    found = []
    flags = {flag["name"][2:].replace("-", "_"): flag for flag in dump["flags"] if flag["name"].startswith("--")}
    for name in sorted(set(flags) ^ set(ours["options"])):
        found.append(f"{name}: only in the {'dump' if name in flags else 'source'}")
    for name in sorted(set(flags) & set(ours["options"])):
        spec = ours["options"][name]
        spec = spec if isinstance(spec, dict) else {"kind": spec}
        if spec["kind"] not in dumped_kinds(flags[name]):
            found.append(f"{name}: {spec['kind']} here, {flags[name]['kind']} in the dump")
        theirs = {choice for choice in flags[name]["choices"] or () if choice is not None}
        if set(spec.get("choices", ())) != theirs:
            found.append(f"{name}: choices {spec.get('choices')} here, {flags[name]['choices']} in the dump")
    for name, fields in ours["configs"].items():
        # The dump also has fields that cannot be set (init=False): only the other direction counts.
        if unknown := set(fields) - set(dump["configs"].get(name, ())):
            found.append(f"{name}: {sorted(unknown)} only in the source")
    for name, parsers in dump["registries"].items():
        if set(parsers) != set(ours["registries"][name]):
            found.append(f"{name}: {sorted(set(parsers) ^ set(ours['registries'][name]))} only on one side")
    return found


def dumped_kinds(flag: dict[str, Any]) -> set[str]:
    if flag["kind"] == "bool":
        return {"flag" if flag["negatable"] else "switch"}
    if flag["config_class"]:
        return {"@" + str(flag["config_class"])}
    several = flag["nargs"] in ("+", "*")
    kinds = {"int": {"ints" if several else "int"}, "int_human": {"size"}, "<lambda>": {"word", "str"}}
    for same in ("float", "json", "json_or_str"):
        kinds[same] = {same}
    return kinds.get(flag["kind"], {"strs" if several else "str"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--against", type=Path, help="only compare, with the dump of the engine's own parser")
    given = parser.parse_args()
    options = from_wheel(given.wheel)
    if given.against:
        found = differences(options, json.loads(given.against.read_text(encoding="utf-8")))
        print("\n".join(found) or "no difference")
        return 1 if found else 0
    path = given.output or DATA / f"options_{'.'.join(options['engine'].split('.')[:2])}.json"
    write(options, path)
    print(f"{path}: {len(options['options'])} options of vLLM {options['engine']}, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
