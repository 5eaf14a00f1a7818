# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Compose file as Compose understands it: variables put in, short forms made long, every value with its line.

What comes out of ``read`` has the shape of ``docker compose config --format json``, so that the real program can be
the judge of it.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from .errors import WARNING, Finding, FleetError
from .interpolation import BadVariable, read_env, substitute

Path = tuple[Union[str, int], ...]
Files = Callable[[str], Optional[str]]
SIZES = re.compile(r"\s*([\d.]+)\s*([bkmgt]?)i?b?\s*", re.IGNORECASE)
PLURAL = ("command", "entrypoint")
NOT_READ = {
    "extends": "another service's definition",
    "provider": "a service that is no container",
}


@dataclass(frozen=True)
class Source:
    """A parsed YAML file and the line of each value in it."""

    path: str
    data: Any
    lines: Mapping[Path, int] = field(default_factory=dict)

    def place(self, *at: Union[str, int]) -> str:
        """``compose.yaml:12``: the line of this value, or of the nearest that has one."""
        while at and at not in self.lines:
            at = at[:-1]
        return f"{self.path}:{self.lines.get(at, 1)}"


@dataclass(frozen=True)
class Service:
    """One service, in long form. ``unset``: key, or key and name, -> the variables in it that nobody has set."""

    name: str
    definition: Mapping[str, Any]
    places: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    unset: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    def place(self, *at: str) -> str:
        while at and at not in self.places:
            at = at[:-1]
        return self.places.get(at, self.name)


@dataclass(frozen=True)
class Project:
    name: str
    directory: str
    services: tuple[Service, ...]
    findings: tuple[Finding, ...] = ()


def read(source: Source, directory: str, files: Files, *, elsewhere: bool = False, home: str = "/root") -> Project:
    """The project of this file. ``files`` gives the text of a file beside it, None when there is none.

    ``elsewhere``: the file is read in another folder than it is used in, so that relative paths lead nowhere.
    ``home`` is that of whoever starts it; a path that needs it is named.

    Raises FleetError when Compose itself would refuse the file. What only an unknown shell or another file could tell
    is in ``findings`` and in ``unset``, not made up.
    """
    if not isinstance(source.data, Mapping) or not isinstance(source.data.get("services"), Mapping):
        remedy = "Give a file with the key services."
        raise FleetError([Finding("not_compose", source.path, "is no Compose file.", remedy)])
    return _Reader(source, directory, files, elsewhere, home).project()


class _Reader:
    def __init__(self, source: Source, directory: str, files: Files, elsewhere: bool, home: str) -> None:
        self.source, self.directory, self.files = source, directory, files
        self.elsewhere, self.home = elsewhere, home
        self.findings: list[Finding] = []
        self.unset: dict[Path, set[str]] = {}
        text = files(posixpath.join(directory, ".env"))
        self.variables: dict[str, Optional[str]] = {}
        if text is not None:
            try:
                self.variables = read_env(text, lambda name: None)
            except BadVariable as bad:
                self._refuse(posixpath.join(directory, ".env"), str(bad))

    def project(self) -> Project:
        data: dict[str, Any] = {}
        for key, value in self.source.data.items():
            if not str(key).startswith("x-"):
                data[str(key)] = self._filled(value, (str(key),))
        if "include" in data:
            self._open(("include",), "includes other files.")
        base = re.sub(r"[^a-z0-9_-]", "", posixpath.basename(self.directory.rstrip("/")).lower()).lstrip("_-")
        project = str(data.get("name") or self.variables.get("COMPOSE_PROJECT_NAME") or base)
        services = []
        for each, raw in data["services"].items():
            at = ("services", str(each))
            if not isinstance(raw, Mapping):
                self._refuse(self.source.place(*at), f"{each} is no service")
                continue
            beyond = [key for key in NOT_READ if key in raw]
            for key in beyond:
                self._open((*at, key), f"{each} takes {NOT_READ[key]} by `{key}`.")
            if not beyond:
                services.append(self._service(str(each), raw))
        return Project(project, self.directory, tuple(services), tuple(self.findings))

    def _refuse(self, place: str, problem: str) -> None:
        remedy = "Compose refuses this file too: correct it, or give the one that is really used."
        raise FleetError([Finding("compose_refuses", place, f"{problem}.", remedy)])

    def _open(self, at: Path, problem: str) -> None:
        remedy = "Put the file together with `docker compose config > FILE` and give that one."
        self.findings.append(Finding("compose_not_whole", self.source.place(*at), problem, remedy))

    def _filled(self, value: Any, at: Path) -> Any:
        if isinstance(value, str):
            unset: set[str] = set()
            try:
                text = substitute(value, self.variables.get, unset)
            except BadVariable as bad:
                self._refuse(self.source.place(*at), f"{'.'.join(map(str, at))} {bad}")
            if unset:
                self.unset[at] = unset
            return text
        if isinstance(value, Mapping):
            return {str(key): self._filled(item, (*at, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item, (*at, index)) for index, item in enumerate(value)]
        return value

    # ------------------------------------------------------------------ one service

    def _service(self, name: str, raw: Mapping[str, Any]) -> Service:
        at: Path = ("services", name)
        out = {key: value for key, value in raw.items() if value is not None or key in PLURAL}
        places: dict[tuple[str, ...], str] = {(): self.source.place(*at)}
        for key in raw:
            places[(str(key),)] = self.source.place(*at, str(key))
        for key in PLURAL:
            if key in out:
                out[key] = self._words(out[key], (*at, key))
        out["environment"] = self._environment(raw, at, places)
        out.pop("env_file", None)
        if "ports" in out:
            out["ports"] = [port for entry in out["ports"] for port in self._ports(entry, (*at, "ports"))]
        if "volumes" in out:
            out["volumes"] = [
                self._volume(entry, (*at, "volumes", index)) for index, entry in enumerate(out["volumes"])
            ]
        for key in ("shm_size", "mem_limit", "mem_reservation"):
            if key in out:
                out[key] = size(out[key])
        if "devices" in out:
            out["devices"] = [device_text(device) for device in out["devices"]]
        if "gpus" in out:
            requests = [{"count": -1}] if out["gpus"] == "all" else out["gpus"]
            out["gpus"] = [_request(request) for request in requests]
        devices = (((raw.get("deploy") or {}).get("resources") or {}).get("reservations") or {}).get("devices")
        if devices:
            out["deploy"] = _with_devices(raw["deploy"], [_request(request) for request in devices])
        if "labels" in out:
            out["labels"] = pairs(out["labels"])
        if "extra_hosts" in out and isinstance(out["extra_hosts"], Mapping):
            out["extra_hosts"] = [f"{host}={address}" for host, address in out["extra_hosts"].items()]
        return Service(name, out, places, self._unset_of(at, raw))

    def _unset_of(self, at: Path, raw: Mapping[str, Any]) -> dict[tuple[str, ...], tuple[str, ...]]:
        found: dict[tuple[str, ...], set[str]] = {}
        for path, names in self.unset.items():
            if path[: len(at)] != at:
                continue
            inner = path[len(at) :]
            key: tuple[str, ...] = (str(inner[0]),)
            if inner[0] == "environment" and len(inner) > 1:
                name = inner[1]
                if isinstance(name, int):
                    name = str(raw["environment"][name]).partition("=")[0]
                key = ("environment", name)
            found.setdefault(key, set()).update(names)
        return {key: tuple(sorted(names)) for key, names in found.items()}

    def _words(self, value: Any, at: Path) -> Optional[list[str]]:
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return shlex.split(value)
            except ValueError as error:
                self._refuse(self.source.place(*at), f"{at[-1]}: {str(error).lower()}")
        for index, word in enumerate(value):
            if not isinstance(word, str):
                self._refuse(self.source.place(*at, index), f"{at[-1]}: {text_of(word)} must be in quotes, as a text")
        return list(value)

    def _environment(
        self, raw: Mapping[str, Any], at: Path, places: dict[tuple[str, ...], str]
    ) -> dict[str, Optional[str]]:
        found: dict[str, Optional[str]] = {}
        entries = raw.get("env_file") or []
        for index, entry in enumerate([entries] if isinstance(entries, (str, Mapping)) else entries):
            form = entry if isinstance(entry, Mapping) else {"path": entry}
            path = posixpath.join(self.directory, str(form["path"]))
            text = self.files(posixpath.normpath(path))
            here = self.source.place(*at, "env_file", index)
            if text is None:
                if form.get("required", True) is not False:
                    remedy = "Give it beside the Compose file; its variables are missing here."
                    self.findings.append(Finding("env_file_missing", here, f"{form['path']} is not there.", remedy))
                continue
            try:
                if form.get("format") == "raw":
                    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
                    values: dict[str, Optional[str]] = {
                        name: value if equals else None for name, equals, value in (x.partition("=") for x in lines)
                    }
                else:
                    values = read_env(text, self.variables.get)
            except BadVariable as bad:
                self._refuse(path, str(bad))
            for variable, value in values.items():
                if value is None:
                    value = self.variables.get(variable)
                    if value is None:
                        continue
                found[variable] = value
                places["environment", variable] = path
        own = raw.get("environment") or {}
        if isinstance(own, Mapping):
            listed = [(str(key), None if value is None else text_of(value), key) for key, value in own.items()]
        else:
            listed = [
                (name, value if equals else None, index)
                for index, (name, equals, value) in enumerate(str(entry).partition("=") for entry in own)
            ]
        for variable, value, key in listed:
            found[variable] = self.variables.get(variable) if value is None else value
            places["environment", variable] = self.source.place(*at, "environment", key)
        return found

    def _ports(self, entry: Any, at: Path) -> list[dict[str, Any]]:
        if isinstance(entry, Mapping):
            port = {"target": int(entry["target"]), "protocol": entry.get("protocol", "tcp")}
            if entry.get("published") not in (None, ""):
                port["published"] = str(entry["published"])
            if entry.get("host_ip"):
                port["host_ip"] = str(entry["host_ip"])
            return [port]
        text, _slash, protocol = str(entry).partition("/")
        head, _colon, target = text.rpartition(":")
        address, _colon, published = head.rpartition(":")
        inside = _range(target)
        outside: list[Any] = list(_range(published)) if published else [None] * len(inside)
        if not inside or (len(outside) != len(inside) and len(inside) != 1):
            self._refuse(self.source.place(*at), f"{entry} is no port")
        ports = []
        if len(inside) == 1 and len(outside) > 1:
            outside = [published]  # one free port of a range: only Docker knows which
        for one, other in zip(inside, outside):
            port = {"target": one, "protocol": protocol or "tcp"}
            if other is not None:
                port["published"] = str(other)
            if address:
                port["host_ip"] = address.strip("[]")
            ports.append(port)
        return ports

    def _volume(self, entry: Any, at: Path) -> dict[str, Any]:
        if isinstance(entry, Mapping):
            volume = {key: entry[key] for key in ("type", "source", "target") if entry.get(key)}
            if entry.get("read_only"):
                volume["read_only"] = True
            if volume.get("type") == "bind":
                volume["source"] = self._path(str(volume["source"]), at)
            return volume
        parts = str(entry).split(":")
        if len(parts) == 1:
            return {"type": "volume", "target": parts[0]}
        source, target = parts[0], parts[1]
        kind = "bind" if source[:1] in "./~" else "volume"
        volume = {"type": kind, "source": self._path(source, at) if kind == "bind" else source, "target": target}
        if len(parts) > 2 and "ro" in parts[2].split(","):
            volume["read_only"] = True
        return volume

    def _path(self, path: str, at: Path) -> str:
        if path.startswith("~"):
            self._somewhere(at, path, f"the home of whoever starts it; taken for {self.home}")
            return posixpath.normpath(self.home + path[1:])
        if self.elsewhere and not path.startswith("/"):
            self._somewhere(at, path, f"the folder of the file on its host; taken for {self.directory}")
        return posixpath.normpath(posixpath.join(self.directory, path))

    def _somewhere(self, at: Path, path: str, where: str) -> None:
        remedy = "Correct the path if that is wrong; compose_directory says where the file stands on its host."
        self.findings.append(Finding("to_decide", self.source.place(*at), f"{path} is below {where}.", remedy, WARNING))


def _range(text: str) -> list[int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if not match:
        return []
    return list(range(int(match[1]), int(match[2] or match[1]) + 1))


def _request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request for cards. Without ids and count it is for all of them."""
    out = {key: request[key] for key in ("driver", "capabilities", "options") if request.get(key)}
    if request.get("device_ids"):
        out["device_ids"] = [text_of(one) for one in request["device_ids"]]
    else:
        count = request.get("count", -1)
        out["count"] = -1 if count == "all" else int(count)
    return out


def _with_devices(deploy: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    resources = deploy["resources"]
    reservations = {**resources["reservations"], "devices": list(devices)}
    return {**deploy, "resources": {**resources, "reservations": reservations}}


def device_text(device: Any) -> str:
    """A device in its short form; the name of one that is described by CDI stands alone."""
    if not isinstance(device, Mapping):
        return str(device)
    source, target = str(device["source"]), str(device.get("target") or device["source"])
    return f"{source}:{target}" if source.startswith("/") else source


def text_of(value: Any) -> str:
    """A scalar as Go writes it into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}" if value == int(value) and abs(value) < 1e21 else repr(value)
    return str(value)


def pairs(value: Any) -> dict[str, str]:
    """A mapping, or a list of NAME=value."""
    if isinstance(value, Mapping):
        return {str(name): text_of(item) for name, item in value.items()}
    return {name: item for name, _equals, item in (str(entry).partition("=") for entry in value or ())}


def size(value: Any) -> int:
    """Bytes of a Compose size; its units are powers of 1024. ValueError when it is none."""
    match = SIZES.fullmatch(str(value))
    if not match:
        raise ValueError(f"{value!r} is no size")
    return int(float(match[1]) * 1024 ** "bkmgt".index((match[2] or "b").lower()))
