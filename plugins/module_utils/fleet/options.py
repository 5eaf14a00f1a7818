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
from functools import cache
from pathlib import Path
from typing import Any, Mapping, Optional

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Option:
    """One option of an engine version. ``kind``: flag (has a ``--no-`` form), switch (has none), int, size (an int that
    may carry k/K/m/M/g/G), float, str, ints, strs, json, json_or_str, or ``@Config`` for a nested configuration."""

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
