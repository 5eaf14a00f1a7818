# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what follows from a role's meta/argument_specs.yml: defaults/main.yml and the options table of its README.

    role_docs.py            write them, for every role
    role_docs.py --check    write nothing; say what differs and what is wrong with the interface

The interface is also held to a few rules: every option has a type and a description, starts with the role's name, and
is used by the role; every variable of that name used in the role is an option.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Iterator

import yaml

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- options: written by tools/role_docs.py from meta/argument_specs.yml -->"
END = "<!-- options: end -->"
HEADER = "# Written by tools/role_docs.py from meta/argument_specs.yml; edit that file.\n"


class Indented(yaml.SafeDumper):
    """Lists indented below their key, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def as_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=Indented, sort_keys=False, width=150, allow_unicode=True, default_flow_style=False)


def sentences(description: Any) -> list[str]:
    """A description is one text or a list of paragraphs; line breaks inside carry no meaning."""
    parts = description if isinstance(description, list) else [description or ""]
    return [" ".join(str(part).split()) for part in parts if str(part).strip()]


def options(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All entry points together: defaults/main.yml knows no entry points."""
    found: dict[str, dict[str, Any]] = {}
    for entry in spec["argument_specs"].values():
        found.update(entry.get("options") or {})
    return found


def defaults_text(spec: dict[str, Any]) -> str:
    """defaults/main.yml: an option without a default is absent here, and so stays undefined."""
    blocks = []
    for name, option in options(spec).items():
        if "default" in option:
            summary = next(iter(sentences(option.get("description"))), "")
            comment = textwrap.fill(unmarked(summary), 118, initial_indent="# ", subsequent_indent="# ")
            blocks.append(f"{comment}\n{as_yaml({name: option['default']})}")
    return HEADER + "---\n" + ("\n".join(blocks) if blocks else "{}\n")


def unmarked(text: str) -> str:
    """The words without Ansible's markup: O(name) becomes name."""
    return re.sub(r"\b[A-Z]\(([^)]*)\)", r"\1", text)


def cell(text: str) -> str:
    """Fit for one cell of a Markdown table."""
    return re.sub(r"\b[A-Z]\(([^)]*)\)", r"`\1`", text).replace("|", "\\|")


def type_text(option: dict[str, Any]) -> str:
    kind = str(option.get("type", ""))
    return f"{kind} of {option['elements']}" if "elements" in option else kind


def default_text(option: dict[str, Any]) -> str:
    if option.get("required"):
        return "**required**"
    if "default" not in option:
        return ""
    value = option["default"]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`" if text else "`''`"


def rows(found: dict[str, dict[str, Any]], prefix: str = "") -> Iterator[str]:
    for name, option in found.items():
        told = sentences(option.get("description"))
        if "choices" in option:
            told.append("One of " + ", ".join(f"`{choice}`" for choice in option["choices"]) + ".")
        cells = [f"`{prefix}{name}`", type_text(option), default_text(option), cell(" ".join(told))]
        yield "| " + " | ".join(cells) + " |"
        yield from rows(option.get("options") or {}, f"{prefix}{name}.")


def table_text(spec: dict[str, Any]) -> str:
    lines = ["| option | type | default | what it says |", "| --- | --- | --- | --- |", *rows(options(spec))]
    return f"{BEGIN}\n" + "\n".join(lines) + f"\n{END}\n"


def readme_text(role: str, spec: dict[str, Any], present: str) -> str:
    """The README with its table renewed; everything outside the markers belongs to people."""
    table = table_text(spec)
    if BEGIN in present and END in present:
        before, rest = present.split(BEGIN, 1)
        return before + table + rest.split(END, 1)[1].lstrip("\n")
    if present.strip():
        return present.rstrip("\n") + "\n\n## Options\n\n" + table
    entry = next(iter(spec["argument_specs"].values()))
    title = unmarked(str(entry.get("short_description", role)))
    told = "\n\n".join(unmarked(part) for part in sentences(entry.get("description")))
    return f"# {role}\n\n{title}\n\n" + (told + "\n\n" if told else "") + f"## Options\n\n{table}"


def wrong_options(role: str, found: dict[str, dict[str, Any]], path: str = "") -> Iterator[str]:
    for name, option in found.items():
        place = f"{path}{name}"
        if not path and not name.startswith(f"{role}_"):
            yield f"{role}: option {place} does not start with {role}_. Rename it."
        if "type" not in option:
            yield f"{role}: option {place} has no type. Give one."
        elif option["type"] == "list" and "elements" not in option:
            yield f"{role}: option {place} is a list without elements. Say of what."
        if not sentences(option.get("description")):
            yield f"{role}: option {place} has no description. Say what it does."
        if option.get("required") and "default" in option:
            yield f"{role}: option {place} is required and has a default. Keep one of the two."
        yield from wrong_options(role, option.get("options") or {}, f"{place}.")


def used_names(folder: Path) -> dict[str, str]:
    """Variables that start with the role's name, in everything the role runs, with the file that uses them."""
    # Not after a dot or a slash (modules, paths), and __role_ names are the role's own business.
    pattern = re.compile(rf"(?<![\w./]){re.escape(folder.name)}_[a-z0-9_]+\b")
    names: dict[str, str] = {}
    for part in ("tasks", "handlers", "templates", "vars"):
        for file in sorted((folder / part).rglob("*")):
            if file.is_file():
                text = re.sub(r"(?m)^\s*#.*$", "", file.read_text(encoding="utf-8"))
                for name in pattern.findall(text):
                    names.setdefault(name, f"{part}/{file.relative_to(folder / part)}")
    return names


def wrong_interface(folder: Path, spec: dict[str, Any]) -> list[str]:
    role, found = folder.name, options(spec)
    used = used_names(folder)
    complaints = list(wrong_options(role, found))
    complaints += [
        f"{role}: {where} uses {name}, which meta/argument_specs.yml does not know. Add it, or call it __{name}."
        for name, where in used.items()
        if name not in found
    ]
    complaints += [f"{role}: nothing uses option {name}. Remove it." for name in found if name not in used]
    return complaints


def follow(folder: Path, *, check: bool) -> list[str]:
    """Bring one role's files up to date, or say which are not. Returns complaints."""
    spec = yaml.safe_load((folder / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    readme = folder / "README.md"
    present = readme.read_text(encoding="utf-8") if readme.exists() else ""
    complaints = wrong_interface(folder, spec)
    for file, text in (
        (folder / "defaults/main.yml", defaults_text(spec)),
        (readme, readme_text(folder.name, spec, present)),
    ):
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        if check:
            late = file.relative_to(folder)
            complaints.append(f"{folder.name}: {late} does not follow the spec. Run tools/role_docs.py.")
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return complaints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail when anything differs")
    check = parser.parse_args().check
    folders = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
    complaints = []
    for folder in folders:
        if (folder / "meta/argument_specs.yml").exists():
            complaints += follow(folder, check=check)
        elif (folder / "tasks").exists():
            complaints.append(f"{folder.name}: has no meta/argument_specs.yml. Write it.")
    print("\n".join(complaints) if complaints else f"{len(folders)} roles follow their argument_specs.yml")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
