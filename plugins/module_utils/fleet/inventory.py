# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the five ``fleet_*`` variables to a ``Fleet``, or to every finding at once, each with its place.

The shape of each variable is a table of keys near the end of this file; a reader turns one raw value into a plain one
or raises ``_Bad``. Readers know nothing about where they are: ``_Bad`` collects the place on its way up, so that
a correct inventory pays nothing for good messages.

Values may be Ansible's lazy or tagged subclasses: readers test with ``isinstance`` and return exact builtin types.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from .errors import Finding, FleetError, nearest
from .model import MODALITIES, TASKS, Check, ClientKey, Fleet, Gateway, Gpu, Host, Image, Model, Stack
from .sizes import SizeError, parse_size

VARIABLES = ("fleet_images", "fleet_models", "fleet_gpus", "fleet_stacks", "fleet_gateway")
ROLE_PREFIX = "fleet_plan_"  # the options of the role fleet_plan share the prefix of the five
INSTANCES = "litellm_gateway_instances"  # the role's, and it decides what fleet_gateway must say

Reader = Callable[[Any], Any]
_NOTHING: Mapping[str, Any] = {}


class _Bad(Exception):
    """What is wrong with one value: a list of (place below the value, code, problem, remedy)."""

    def __init__(self, code: str = "", problem: str = "", remedy: str = "") -> None:
        self.items: list[tuple[str, str, str, str]] = [("", code, problem, remedy)] if code else []
        super().__init__(problem)

    def take(self, step: str, other: _Bad) -> None:
        """Add what is wrong one step further down."""
        self.items.extend((step + below, code, problem, remedy) for below, code, problem, remedy in other.items)


_KINDS = ((bool, "a truth value"), (int, "a whole number"), (float, "a number"), (str, "text"))


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), type(value).__name__)


def _wrong(value: Any, wanted: str, remedy: str) -> _Bad:
    shown = "" if value is None or isinstance(value, (Mapping, list, tuple)) else f" ({str(value)!r})"
    return _Bad("wrong_type", f"is {_kind(value)}{shown}, expected {wanted}.", remedy)


def _text(wanted: str = "text", pattern: str = "", remedy: str = "", code: str = "bad_value") -> Reader:
    shape = re.compile(pattern) if pattern else None

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise _wrong(value, wanted, "Put it in quotes." if isinstance(value, (int, float)) else remedy or "Fix it.")
        text = str(value)
        if not text.strip():
            raise _Bad("empty_value", "is empty.", remedy or f"Write {wanted}, or leave the key out.")
        if shape and not shape.fullmatch(text):
            raise _Bad(code, f'is "{text}", which is not {wanted}.', remedy)
        return text

    return read


def _whole(low: int, high: int, what: str) -> Reader:
    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(value, f"a whole number, {what}", f"Write a whole number from {low} to {high}.")
        if not low <= value <= high:
            raise _Bad("out_of_range", f"is {value}, not between {low} and {high}.", f"Write {what} in that range.")
        return int(value)

    return read


def _share(value: Any) -> float:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(value, "a share of the card's memory", "Write a number above 0 and at most 1, such as 0.40.")
    if not 0 < value <= 1:
        hint = f" {value} percent is {value / 100:g}." if 1 < value <= 100 else ""
        raise _Bad("out_of_range", f"is {value}, not above 0 and at most 1.", f"Write the share of one card.{hint}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "true or false", "Write true or false, without quotes.")
    return value


def _size(value: Any) -> int:
    try:
        size = parse_size(value)
    except SizeError as wrong:
        raise _Bad(wrong.code, wrong.problem, wrong.remedy) from None
    if size <= 0:
        raise _Bad("out_of_range", "is zero.", "Write a size above zero, or leave the key out.")
    return size


def _choice(words: Sequence[str]) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise _wrong(value, f"one of {', '.join(words)}", "Choose one of them.")
        if value not in words:
            raise _Bad("not_a_choice", f'is "{value}", not one of {", ".join(words)}.', _meant(value, words))
        return str(value)

    return read


def _meant(word: str, known: Iterable[str], otherwise: str = "Choose one of them.") -> str:
    match = nearest(word, known)
    return f'Did you mean "{match}"?' if match else otherwise


def _address(value: Any) -> str:
    text: str = _text("an IP address")(value)
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise _Bad(
            "bad_value",
            f'is "{text}", which is not an IP address.',
            "Docker publishes ports on addresses, not names: write such as 127.0.0.1, 0.0.0.0 or the host's own.",
        ) from None
    return text


def _capability(value: Any) -> str:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,2}(\.[0-9])?", text):
        raise _Bad("bad_value", f'is "{text}", which is not a compute capability.', 'Write such as "12.0" or "9.0".')
    return text if "." in text else f"{text}.0"


def _secret(value: Any) -> str:
    """Text that no message may repeat."""
    if not isinstance(value, str):
        raise _Bad("wrong_type", f"is {_kind(value)}, expected text.", "Put it in quotes.")
    return str(value)


def _variable_text(value: Any) -> str:
    """The value of an environment variable. Never repeated in a message: people put secrets there."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        remedy = 'Write it as the program reads it, in quotes, such as "1" or "true".'
        raise _Bad("wrong_type", f"is {_kind(value)}, expected text or a number.", remedy)
    return str(value)


def _list(reader: Reader, example: str) -> Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(value, "a list", f"Write a list, such as {example}.")
        bad, out = _Bad(), []
        for index, item in enumerate(value):
            try:
                out.append(reader(item))
            except _Bad as other:
                bad.take(f"[{index}]", other)
        if bad.items:
            raise bad
        return tuple(out)

    return read


def _map(reader: Reader, what: str) -> Reader:
    """A mapping of free names to values of one kind."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(value, f"a mapping of {what}", f"Write a mapping of {what}.")
        bad, out = _Bad(), {}
        for key, item in value.items():
            if not isinstance(key, str):
                bad.take(f".{key}", _Bad("wrong_type", f"has the name {key!r}, which is not text.", "Quote the name."))
                continue
            try:
                out[str(key)] = reader(item)
            except _Bad as other:
                bad.take(f".{key}", other)
        if bad.items:
            raise bad
        return out

    return read


def _plain(value: Any) -> Any:
    """Any nesting of mappings, lists and scalars as exact builtin types."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    raise _Bad("wrong_type", f"is of type {type(value).__name__}.", "YAML read it as something else: put it in quotes.")


def _args(value: Any) -> dict[str, Any]:
    """vLLM's options with underscores, whether they were written with dashes, underscores or leading ``--``."""
    if not isinstance(value, Mapping):
        raise _wrong(value, "a mapping of vLLM's options", "Write each option as a key, such as max_model_len: 32768.")
    bad = _Bad()
    out: dict[str, Any] = {}
    for key, item in value.items():
        name = str(key).lstrip("-").replace("-", "_")
        try:
            if name in out:
                raise _Bad("duplicate_option", f"is given twice, as {name} and as {key}.", "Keep one of them.")
            out[name] = _plain(item)
        except _Bad as other:
            bad.take(f".{key}", other)
    if bad.items:
        raise bad
    return out


def _settings(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, "a mapping", "Write a mapping.")
    plain: dict[str, Any] = _plain(value)
    return plain


def _expect(value: Any) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, (list, tuple)) or not value:
        remedy = 'Write a list of groups, such as [[two, "2"], [pink]]: every group must match, any word of it will do.'
        raise _wrong(value, "a list of groups of words", remedy)
    groups = []
    for group in value:
        words = group if isinstance(group, (list, tuple)) else [group]
        if not words or not all(isinstance(word, (str, int)) and not isinstance(word, bool) for word in words):
            raise _Bad("wrong_type", "has a group that is not words.", 'Write words, such as [two, "2"].')
        groups.append(tuple(str(word) for word in words))
    return tuple(groups)


def _names(value: Any) -> tuple[str, ...]:
    """One name or a list of names."""
    return tuple(_list(_text("a model's name"), "[qwen-small]")([value] if isinstance(value, str) else value))


def _key_read(
    raw: Any, keys: Mapping[str, Reader], required: Sequence[str], hints: Mapping[str, str]
) -> dict[str, Any]:
    """Read a mapping with known keys; keys whose value is empty (YAML's null) count as not given."""
    if not isinstance(raw, Mapping):
        raise _wrong(raw, "a mapping", f"Write a mapping with the keys {', '.join(required)}.")
    bad: Optional[_Bad] = None
    out: dict[str, Any] = {}
    for key, value in raw.items():
        reader = keys.get(key)
        try:
            if reader is None:
                remedy = hints.get(str(key)) or _meant(str(key), keys, f"Known keys: {', '.join(sorted(keys))}.")
                raise _Bad("unknown_key", "is not a known key.", remedy)
            if value is not None:
                out[key] = reader(value)
        except _Bad as other:
            bad = bad or _Bad()
            bad.take(f".{key}", other)
    for key in required:
        if key not in out and raw.get(key) is None:
            bad = bad or _Bad()
            bad.take(f".{key}", _Bad("missing_key", "is missing.", hints.get(f"+{key}", f"Add {key}.")))
    if bad:
        raise bad
    return out


def _table(build: Callable[..., Any], keys: Mapping[str, Reader], required: Sequence[str]) -> Reader:
    def read(raw: Any) -> Any:
        return build(**_key_read(raw, keys, required, _NOTHING))

    return read


def _removable(reader: Reader) -> Reader:
    """For a value that beats an upper one: null takes the upper one away."""
    return lambda value: None if value is None else reader(value)


# --- what each variable may hold ---------------------------------------------------------------------------------

_MODEL_NAME = r"[^\s,\"']+"
_IMAGE_KEYS: dict[str, Reader] = {
    "repository": _text(
        "a repository",
        r"[a-z0-9.-]+(:[0-9]+(?=/))?(/[a-z0-9._-]+)*",
        "Write it without tag and digest: they are keys beside it.",
    ),
    "tag": _text("a tag"),
    "digest": _text("a digest"),
    "engine": _text("a version", r"[0-9]+(\.[0-9]+)+.*", 'Write the version of the engine inside, such as "0.33.0".'),
    "watch": _text(),
}
_read_check = _table(
    Check,
    {
        "ask": _text(),
        "expect": _expect,
        "image": _text("a URL or an absolute path", r"(https?://|data:|/).*", "Write a URL or an absolute path."),
        "thinking": _flag,
        "max_tokens": _whole(1, 1_000_000, "a number of tokens"),
    },
    ("ask", "expect"),
)
_read_checks = _list(_read_check, "[{ask: How many cats?, expect: [[two, '2']]}]")

_MODEL_KEYS: dict[str, Reader] = {
    "source": _text(
        "a hub repository or an absolute path",
        r"/.+|[\w.-]+(/[\w.-]+)?",
        "Write owner/name as on the hub, or an absolute path on the host.",
    ),
    "revision": _text(),
    "task": _choice(TASKS),
    "modalities": _list(_choice(MODALITIES), "[text, image]"),
    "thinking": _flag,
    "image": _text("the name of an image in fleet_images"),
    "memory_floor": _size,
    "args": _args,
    "env": _map(_variable_text, "environment variables"),
    "secrets": _map(_secret, "environment variables"),
    "checks": _read_checks,
}
_STACK_KEYS: dict[str, Reader] = {
    "name": _text(
        "a Compose project name", r"[a-z0-9][a-z0-9_-]*", "Use lower-case letters, digits, dashes and underscores."
    ),
    "model": _text("the name of a model in fleet_models"),
    "gpus": _list(_whole(0, 255, "the index of a GPU"), "[1]"),
    "port": _whole(1, 65535, "a port"),
    "container": _text("a container name", r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", "Use letters, digits, dots, dashes."),
    "gpu_memory_utilization": _share,
    "kv_cache": _size,
    "min_kv_tokens": _whole(1, 1_000_000_000, "a number of tokens"),
    "listen": _address,
    "weight": _whole(0, 1_000_000, "a weight"),
    "api_key": _secret,
    "args": _args,
    "env": _map(_removable(_variable_text), "environment variables"),
    "secrets": _map(_removable(_secret), "environment variables"),
    "image": _text("the name of an image in fleet_images"),
    "checks": _read_checks,
    "compose": _settings,
}
_STACK_REQUIRED = ("name", "model", "gpus", "port")
_STACK_HINTS = {
    "+gpus": "Say on which GPUs of this host it runs, such as gpus: [1]; gpus: [] is a stack without a GPU.",
    "+port": "Say on which port of this host it answers, such as port: 8007.",
    "+model": "Name one of fleet_models.",
    "memory_floor": "It belongs to the model, in fleet_models.",
    "max_model_len": "vLLM's own options go under args:.",
}
_MODEL_HINTS = {
    "+source": "Write owner/name as on the hub, or an absolute path on the host.",
    **dict.fromkeys(
        ("port", "gpus", "container", "gpu_memory_utilization", "kv_cache", "min_kv_tokens", "compose"),
        "It belongs to the placement, in fleet_stacks.",
    ),
    "max_model_len": "vLLM's own options go under args:.",
    "quantization": "vLLM's own options go under args:.",
}
_read_gpu = _table(
    Gpu,
    {
        "index": _whole(0, 255, "nvidia-smi's index"),
        "uuid": _text(
            "a GPU's UUID",
            r"(GPU|MIG)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
            "Copy it from nvidia-smi -L.",
        ),
        "memory": _size,
        "compute_capability": _capability,
        "keep_free": _text("the reason"),
    },
    ("index",),
)
_read_client_key = _table(
    ClientKey,
    {
        "name": _text(),
        "key": _secret,
        "models": _list(_text("a model's name"), "[qwen-small]"),
        "rpm": _whole(1, 10_000_000, "requests a minute"),
    },
    ("name", "key"),
)
_GATEWAY_KEYS: dict[str, Reader] = {
    "image": _text("the name of an image in fleet_images"),
    "balancer": _text("the name of an image in fleet_images"),
    "port": _whole(1, 65535, "a port"),
    "listen": _address,
    "master_key": _secret,
    "aliases": _map(_text("a model's name"), "alias: model"),
    "fallbacks": _map(_names, "model: [other, …]"),
    "context_window_fallbacks": _map(_names, "model: [other, …]"),
    "keys": _list(_read_client_key, "[{name: team-a, key: …}]"),
    "database_url": _secret,
    "addresses": _map(_text("an address"), "host: address"),
    "timeout": _whole(1, 86400, "seconds"),
    "stream_timeout": _whole(1, 86400, "seconds"),
    "settings": _settings,
    "compose": _settings,
}
_read_instances = _whole(1, 9, "containers of LiteLLM")
_GATEWAY_HINTS = {
    "weights": "A replica's share of the traffic is weight: on its stack, in fleet_stacks.",
    "model_list": "Routes come from fleet_stacks by themselves.",
    "+image": "Name one of fleet_images, which pins LiteLLM by digest.",
    "+master_key": 'Add a strong one from Ansible Vault, such as master_key: "{{ vault_litellm_master_key }}".',
}
_read_gpus = _list(_read_gpu, "[{index: 0}]")
_read_stack_list = _list(lambda item: item, "[{name: …, model: …, gpus: [0], port: 8000}]")

KNOWN_MASTER_KEYS = ("sk-1234", "sk-12345", "sk-123456", "changeme", "password", "anything")
MASTER_KEY_MINIMUM = 16


def parse(raw: Mapping[str, Mapping[str, Any]], *, gpu_hosts: Sequence[str], gateways: Sequence[str]) -> Fleet:
    """The fleet that these variables describe. ``raw`` is host -> the ``fleet_*`` variables it sees.

    Raises FleetError with all findings. It checks shape: keys, types, units, ranges, names that must exist.
    Whether it can work is for ``plan``.
    """
    return _Parser(raw).fleet(list(gpu_hosts), list(gateways))


class _Unreadable(dict[str, Any]):
    """A table that could not be read: any name may be in it, so none is reported as unknown as well."""

    def __contains__(self, name: object) -> bool:
        return True


class _Parser:
    """One pass over all hosts. It remembers shared variables, so that equal ones are read and reported once."""

    def __init__(self, raw: Mapping[str, Mapping[str, Any]]) -> None:
        self.raw = raw
        self.findings: list[Finding] = []
        self._shared: dict[str, list[tuple[Any, dict[str, Any]]]] = {"fleet_images": [], "fleet_models": []}
        self._by_identity: dict[tuple[str, int], dict[str, Any]] = {}
        self._checked: set[tuple[int, int]] = set()
        self._merged: dict[tuple[int, str], dict[str, Any]] = {}
        self._images: dict[str, Image] = {}
        self._models: dict[str, Model] = {}

    def fleet(self, gpu_hosts: list[str], gateways: list[str]) -> Fleet:
        self._unknown_variables()
        hosts = {name: self._host(name, name in gpu_hosts) for name in dict.fromkeys([*gpu_hosts, *gateways])}
        found_gateways = {name: self._gateway(name) for name in gateways}
        if self.findings:
            raise FleetError(list(dict.fromkeys(self.findings)))
        return Fleet(
            hosts=hosts,
            images=self._images,
            models=self._models,
            gateways={name: gateway for name, gateway in found_gateways.items() if gateway},
        )

    def _add(self, place: str, bad: _Bad, host: Optional[str] = None, stack: Optional[str] = None) -> None:
        for below, code, problem, remedy in bad.items:
            self.findings.append(Finding(code, place + below, problem, remedy, host=host, stack=stack))

    def _unknown_variables(self) -> None:
        seen: dict[str, list[str]] = {}
        for host, variables in self.raw.items():
            for name in variables.keys() - set(VARIABLES):
                if str(name).startswith("fleet_") and not str(name).startswith(ROLE_PREFIX):
                    seen.setdefault(str(name), []).append(host)
        for name, hosts in sorted(seen.items()):
            everywhere = len(hosts) > 1 and len(hosts) == len(self.raw)
            place = "group_vars" if everywhere else f"host_vars of {', '.join(hosts[:3])}"
            # The common prefix would make every name look alike.
            meant = nearest(name[len("fleet_") :], [variable[len("fleet_") :] for variable in VARIABLES])
            otherwise = f"Known: {', '.join(VARIABLES)}. Your own need another prefix."
            remedy = f'Did you mean "fleet_{meant}"?' if meant else otherwise
            problem = "is not one of the five variables of the fleet, so nothing would read it."
            self._add(f"{place}: {name}", _Bad("unknown_variable", problem, remedy), None if everywhere else hosts[0])

    # --- what is shared by many hosts

    def _named(self, variable: str, host: str) -> dict[str, Any]:
        """fleet_images or fleet_models as this host sees it. A name whose value is broken maps to None."""
        value = self.raw.get(host, {}).get(variable)
        if value is None:
            return {}
        known = self._by_identity.get((variable, id(value)))
        if known is None:
            known = next((table for other, table in self._shared[variable] if other == value), None)
            if known is None:
                known = self._read_named(variable, host, value)
                self._shared[variable].append((value, known))
            self._by_identity[variable, id(value)] = known
        return known

    def _read_named(self, variable: str, host: str, value: Any) -> dict[str, Any]:
        first = not self._shared[variable]
        place = f"group_vars: {variable}" if first else f"variables of {host}: {variable}"
        kind, build, keys, required, hints = _NAMED[variable]
        if not isinstance(value, Mapping):
            self._add(place, _wrong(value, f"a mapping of names to {kind}", "Write a mapping."))
            return _Unreadable()
        out: dict[str, Any] = {}
        for name, item in value.items():
            try:
                if not isinstance(name, str) or not re.fullmatch(_MODEL_NAME, name):
                    raise _Bad("bad_name", "is not a usable name.", "Use text without spaces, commas or quotes.")
                out[str(name)] = build(str(name), _key_read(item, keys, required, hints))
            except _Bad as bad:
                out[str(name)] = None
                self._add(f"{place}.{name}", bad)
        union: dict[str, Any] = self._images if kind == "images" else self._models
        for name, parsed in out.items():
            union.setdefault(name, parsed)
        return out

    def _model_images(self, host: str, models: dict[str, Any], images: dict[str, Any]) -> None:
        """Every model's image must exist, also while no stack runs the model. Once per pair of tables."""
        if (id(models), id(images)) in self._checked:
            return
        self._checked.add((id(models), id(images)))
        for name, model in models.items():
            if model and model.image and model.image not in images:
                self._add(f"group_vars: fleet_models.{name}.image", _unknown("image", model.image, images))

    # --- one host

    def _host(self, name: str, runs_stacks: bool) -> Host:
        variables = self.raw.get(name, {})
        stacks_raw = variables.get("fleet_stacks")
        if not runs_stacks:
            if stacks_raw:
                problem = f"{name} is not in the group gpu_hosts, so its stacks would never be started."
                bad = _Bad("stacks_outside_gpu_hosts", problem, "Add it to gpu_hosts, or remove fleet_stacks.")
                self._add(f"host_vars of {name}: fleet_stacks", bad, name)
            return Host(name)
        images, models = self._named("fleet_images", name), self._named("fleet_models", name)
        self._model_images(name, models, images)
        gpus = self._gpus(name, variables.get("fleet_gpus"))
        stacks: list[Stack] = []
        if stacks_raw is not None:
            try:
                items = _read_stack_list(stacks_raw)
            except _Bad as bad:
                self._add(f"host_vars of {name}: fleet_stacks", bad, name)
                items = ()
            names: dict[str, int] = {}
            for position, item in enumerate(items):
                stack = self._stack(name, position, item, models, images, names)
                if stack:
                    stacks.append(stack)
        return Host(name, gpus, tuple(stacks))

    def _gpus(self, host: str, value: Any) -> tuple[Gpu, ...]:
        if value is None:
            return ()
        place = f"host_vars of {host}: fleet_gpus"
        try:
            gpus: tuple[Gpu, ...] = _read_gpus(value)
        except _Bad as bad:
            self._add(place, bad, host)
            return ()
        if len({gpu.index for gpu in gpus}) < len(gpus) or len({gpu.uuid for gpu in gpus if gpu.uuid}) < sum(
            bool(gpu.uuid) for gpu in gpus
        ):
            for position, gpu in enumerate(gpus):
                for key, same in (
                    ("index", [other.index == gpu.index for other in gpus[:position]]),
                    ("uuid", [bool(gpu.uuid) and other.uuid == gpu.uuid for other in gpus[:position]]),
                ):
                    if any(same):
                        problem = f"is {getattr(gpu, key)}, as in fleet_gpus[{same.index(True)}]."
                        again = _Bad("duplicate_gpu", problem, "Give each card of the host once.")
                        self._add(f"{place}[{position}].{key}", again, host)
        return gpus

    def _stack(
        self,
        host: str,
        position: int,
        item: Any,
        models: dict[str, Any],
        images: dict[str, Any],
        names: dict[str, int],
    ) -> Optional[Stack]:
        bad: Optional[_Bad] = None
        try:
            given = _key_read(item, _STACK_KEYS, _STACK_REQUIRED, _STACK_HINTS)
        except _Bad as other:
            # Read on with what can be read, so that one typo does not hide an unknown model beside it.
            bad, given = other, {}
            if isinstance(item, Mapping):
                given = {key: item[key] for key in ("name", "model", "image") if isinstance(item.get(key), str)}
        name = given.get("name", "")
        if name in names:
            problem = f'is "{name}", as in fleet_stacks[{names[name]}].'
            remedy = "A stack's name is its Compose project and folder: give each stack of the host its own."
            bad = bad or _Bad()
            bad.take(".name", _Bad("duplicate_stack", problem, remedy))
        elif name:
            names[name] = position
        model = models.get(given.get("model", ""))
        if "model" in given and given["model"] not in models:
            bad = bad or _Bad()
            bad.take(".model", _unknown("model", given["model"], models))
        image_name = given.get("image") or (model.image if model else "")
        image = images.get(image_name)
        if "image" in given and given["image"] not in images:
            bad = bad or _Bad()
            bad.take(".image", _unknown("image", given["image"], images))
        elif model and not image_name:
            bad = bad or _Bad()
            problem = f"is missing, and the model {model.name} names none either."
            bad.take(".image", _Bad("missing_key", problem, "Name one of fleet_images on the model or on the stack."))
        gpus = given.get("gpus", ())
        if len(set(gpus)) < len(gpus):
            bad = bad or _Bad()
            bad.take(".gpus", _Bad("duplicate_gpu", f"is {list(gpus)}.", "Name each GPU once."))
        if bad:
            self._add(f"host_vars of {host}: fleet_stacks[{position}]", bad, host, name or None)
        if bad or not model or not image:
            return None
        get = given.get
        return Stack(
            host=host,
            position=position,
            name=name,
            model=model,
            image=image,
            gpus=gpus,
            port=given["port"],
            container=get("container") or f"vllm-{name}",
            args=self._over(model.args, get("args")),
            env=self._over(model.env, get("env")),
            secrets=self._over(model.secrets, get("secrets")),
            checks=get("checks", model.checks),
            gpu_memory_utilization=get("gpu_memory_utilization"),
            kv_cache=get("kv_cache"),
            min_kv_tokens=get("min_kv_tokens"),
            listen=get("listen", ""),
            weight=get("weight"),
            api_key=get("api_key", ""),
            compose=get("compose", _NOTHING),
        )

    def _over(self, upper: Mapping[str, Any], lower: Optional[dict[str, Any]]) -> Mapping[str, Any]:
        """The stack's values over the model's, key by key; a null takes the model's key away.

        The very mapping of the model when there is nothing to change, and one mapping for equal changes: whoever
        looks at every stack of a large fleet can tell by identity what was looked at before.
        """
        if not lower:
            return upper
        key = (id(upper), repr(lower))
        merged = self._merged.get(key)
        if merged is None:
            merged = {name: value for name, value in {**upper, **lower}.items() if lower.get(name, 0) is not None}
            self._merged[key] = merged
        return merged

    # --- the gateways

    def _gateway(self, host: str) -> Optional[Gateway]:
        value = self.raw.get(host, {}).get("fleet_gateway")
        shared = [self.raw.get(other, {}).get("fleet_gateway") == value for other in self.raw]
        place = (
            "group_vars: fleet_gateway"
            if value is not None and sum(shared) > 1
            else f"variables of {host}: fleet_gateway"
        )
        images = self._named("fleet_images", host)
        try:
            if value is None:
                remedy = "Give the group a fleet_gateway with image and master_key, or take the host out of it."
                raise _Bad("missing_variable", "is missing, but the host is in the group gateways.", remedy)
            given = _key_read(value, _GATEWAY_KEYS, ("image", "master_key"), _GATEWAY_HINTS)
            bad = _Bad()
            for key in ("image", "balancer"):
                if key in given and given[key] not in images:
                    bad.take(f".{key}", _unknown("image", given[key], images))
            weakness = _weakness(given["master_key"])
            if weakness:
                remedy = "Make one with: openssl rand -hex 24, and keep it in Ansible Vault."
                bad.take(".master_key", _Bad("gateway_master_key_weak", weakness, remedy))
            if not re.match(r"postgres(ql)?://|$", given.get("database_url", "")):
                remedy = "Write postgresql://user:password@host/name, or leave it out: routing needs no database."
                bad.take(".database_url", _Bad("gateway_database", "is not a PostgreSQL address.", remedy))
            _unique_keys(given.get("keys", ()), bad)
            if bad.items:
                raise bad
            image, balancer = images[given.pop("image")], images.get(given.pop("balancer", ""))
            place = f"variables of {host}: {INSTANCES}"
            instances = _read_instances(self.raw[host].get(INSTANCES, 1))
            return Gateway(host=host, image=image, balancer=balancer, instances=instances, **given) if image else None
        except _Bad as bad:
            self._add(place, bad, host)
            return None


def _unknown(kind: str, name: str, known: Iterable[str]) -> _Bad:
    names = list(known)
    known_names = f"Known: {', '.join(sorted(names)[:12])}."
    otherwise = known_names if names else f"fleet_{kind}s is empty or not set for this host."
    return _Bad(f"unknown_{kind}", f'is "{name}", which is not in fleet_{kind}s.', _meant(name, names, otherwise))


def _weakness(key: str) -> str:
    """Why this master key must not be used; empty when it may. The key itself is never repeated."""
    if not key.strip():
        return "is empty."
    if key.lower() in KNOWN_MASTER_KEYS:
        return "is a key that everybody knows from LiteLLM's documentation."
    if len(key) < MASTER_KEY_MINIMUM:
        return f"has {len(key)} characters, fewer than {MASTER_KEY_MINIMUM}."
    if len(set(key)) < 6:
        return "repeats the same few characters."
    return ""


def _unique_keys(keys: Sequence[ClientKey], bad: _Bad) -> None:
    for position, key in enumerate(keys):
        if len(key.key) < MASTER_KEY_MINIMUM:
            problem = f"has fewer than {MASTER_KEY_MINIMUM} characters."
            remedy = "Make one with: openssl rand -hex 24."
            bad.take(f".keys[{position}].key", _Bad("gateway_key_weak", problem, remedy))
        for earlier in keys[:position]:
            if key.name == earlier.name or key.key == earlier.key:
                what = "name" if key.name == earlier.name else "key"
                problem = f'is the same as that of "{earlier.name}".'
                bad.take(f".keys[{position}].{what}", _Bad("duplicate_key", problem, "Give each client its own."))


_Build = Callable[[str, dict[str, Any]], Any]
_NAMED: dict[str, tuple[str, _Build, Mapping[str, Reader], tuple[str, ...], Mapping[str, str]]] = {
    # A missing digest or image is not a matter of shape: plan says which stacks need it and how to get it.
    "fleet_images": (
        "images",
        lambda name, given: Image(name=name, **{"digest": "", **given}),
        _IMAGE_KEYS,
        ("repository",),
        {},
    ),
    "fleet_models": (
        "models",
        lambda name, given: Model(name=name, **{"image": "", **given}),
        _MODEL_KEYS,
        ("source",),
        _MODEL_HINTS,
    ),
}
