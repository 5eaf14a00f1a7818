# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's own file, daemon.json: what of the wanted is not in it, and what the daemon needs to take it.

Keys that we do not know stay as they are. A list gets what is missing and loses nothing; an object is merged; any other
value is replaced. A wanted value of None takes the key away.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any, Collection, Mapping, Optional, Sequence

from .errors import Finding, FleetError

NOTHING = "nothing"
RELOAD = "reload"
RESTART = "restart"

# What dockerd reads again on SIGHUP. Everything else it reads once, at its start.
RELOADABLE = frozenset(
    {
        "allow-nondistributable-artifacts",
        "authorization-plugins",
        "debug",
        "default-runtime",
        "features",
        "insecure-registries",
        "labels",
        "live-restore",
        "max-concurrent-downloads",
        "max-concurrent-uploads",
        "max-download-attempts",
        "network-diagnostic-port",
        "registry-mirrors",
        "runtimes",
        "shutdown-timeout",
    }
)
# Read again, but what they switch is built once, at the start.
_FEATURES_OF_THE_START = frozenset({"cdi", "containerd-snapshotter"})

# A key that stands in the file and among the daemon's flags keeps dockerd from starting at all.
_KEYS_OF_FLAGS = {
    "H": "hosts",
    "host": "hosts",
    "D": "debug",
    "l": "log-level",
    "b": "bridge",
    "G": "group",
    "g": "data-root",
    "s": "storage-driver",
    "add-runtime": "runtimes",
    "authorization-plugin": "authorization-plugins",
    "cdi-spec-dir": "cdi-spec-dirs",
    "default-ulimit": "default-ulimits",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "insecure-registry": "insecure-registries",
    "label": "labels",
    "log-opt": "log-opts",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
}


@dataclass(frozen=True)
class Change:
    """One key that is not as wanted, with the names on the way to it. ``how`` is reload or restart."""

    path: tuple[str, ...]
    have: Any
    want: Any

    @property
    def key(self) -> str:
        """As people write it: ``runtimes.nvidia``."""
        return ".".join(self.path)

    @property
    def how(self) -> str:
        if self.path[0] not in RELOADABLE:
            return RESTART
        return RESTART if self.path[0] == "features" and self.path[-1] in _FEATURES_OF_THE_START else RELOAD

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, "have": self.have, "want": self.want, "how": self.how}

    def __str__(self) -> str:
        have = "not set" if self.have is None else json.dumps(self.have)
        return f"{self.key}: {have} -> {'not set' if self.want is None else json.dumps(self.want)}"


@dataclass(frozen=True)
class Merge:
    """``changes`` in order; ``complete`` is the file with all of them, ``reloaded`` with those a reload can apply."""

    changes: tuple[Change, ...]
    complete: Mapping[str, Any]
    reloaded: Mapping[str, Any]

    def by(self, how: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.how == how)


def parse(text: Optional[str], path: str, host: str) -> dict[str, Any]:
    """The file's object; nothing for a file that is absent or empty. Anything else raises FleetError."""
    if text is None or not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        problem = f"{path} is not JSON: {error}."
    else:
        if isinstance(value, dict):
            return value
        problem = f"{path} holds {type(value).__name__}, not an object."
    remedy = "Correct it by hand; `dockerd --validate` says whether dockerd accepts it. Nothing was written."
    raise FleetError([Finding("daemon_config_unreadable", host, problem, remedy, host=host)])


def write(config: Mapping[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def merge(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> Merge:
    """What has to change in ``current`` so that all of ``wanted`` is in it."""
    changes = tuple(_changes(current, wanted, ()))
    return Merge(changes, _applied(current, changes), _applied(current, [c for c in changes if c.how == RELOAD]))


def flags_in_the_way(argv: Sequence[str], changes: Sequence[Change], host: str) -> list[Finding]:
    """The changes whose key the running daemon got as a flag: with both, dockerd refuses to start."""
    flags = {}
    for word in argv[1:]:
        if word.startswith("-"):
            name = word.lstrip("-").partition("=")[0]
            flags[_KEYS_OF_FLAGS.get(name, name)] = word
    findings = []
    for key in dict.fromkeys(change.path[0] for change in changes):
        if key in flags:
            findings.append(
                Finding(
                    "daemon_option_is_flag",
                    f"{host}: daemon.json {key}",
                    f"dockerd was started with {flags[key]}, and does not start with the same option in its file too.",
                    "Take the flag out of the service (`systemctl cat docker`), or the key out of the wanted settings.",
                    host=host,
                )
            )
    return findings


@dataclass(frozen=True)
class Decision:
    """What to do with the daemon now. ``config`` is the file to write, None to leave it; ``pending`` waits."""

    how: str  # nothing, write, reload, restart
    config: Optional[Mapping[str, Any]]
    changes: tuple[Change, ...]
    pending: tuple[str, ...]


def decide(
    merge: Merge, running: bool, reasons: Sequence[str], unheard: Sequence[str], restart: str, containers: int
) -> Decision:
    """Serving is sacred: a restart only where it is allowed, or where nothing runs that it could stop.

    ``reasons``: why a restart is due although no key says so. ``unheard``: runtimes of the file that the running daemon
    does not know, which a reload cures. ``containers``: how many run, ours or not.
    """
    if not running:
        return Decision(
            "write" if merge.changes else NOTHING, merge.complete if merge.changes else None, merge.changes, ()
        )
    late = merge.by(RESTART)
    if (late or reasons) and (restart == "allowed" or (restart == "idle" and containers == 0)):
        return Decision(RESTART, merge.complete if merge.changes else None, merge.changes, ())
    now = merge.by(RELOAD)
    pending = (*(str(change) for change in late), *dict.fromkeys(reasons))
    if now or unheard:
        return Decision(RELOAD, merge.reloaded if now else None, now, pending)
    return Decision(NOTHING, None, (), pending)


def unheard(wanted: Mapping[str, Any], runtimes: Collection[str]) -> list[str]:
    """The wanted runtimes that the running daemon, which knows ``runtimes``, has not taken."""
    return sorted(set(wanted.get("runtimes") or ()) - set(runtimes))


def settled(text: Optional[str], wanted: Mapping[str, Any], runtimes: Optional[Collection[str]], reason: str) -> bool:
    """Whether the file with this text has all of ``wanted`` and the daemon has taken it, so that nothing is to be said.

    ``runtimes`` are those that the running daemon knows, None where none runs; ``reason`` says why it waits for a
    restart. A file that cannot be read is not settled.
    """
    try:
        changes = merge(parse(text, "", ""), wanted).changes
    except FleetError:
        return False
    return not changes and (runtimes is None or not (reason or unheard(wanted, runtimes)))


def _changes(current: Mapping[str, Any], wanted: Mapping[str, Any], above: tuple[str, ...]) -> list[Change]:
    found: list[Change] = []
    for key, want in wanted.items():
        path = (*above, str(key))
        have = current.get(key)
        # A runtime is one thing: half of the old and half of the new would be neither.
        if isinstance(want, Mapping) and above != ("runtimes",) and (have is None or isinstance(have, Mapping)):
            found += _changes(have or {}, want, path)
            continue
        if isinstance(want, list) and isinstance(have, list):
            want = [*have, *(entry for entry in want if entry not in have)]
        if above == ("runtimes",) and _same_runtime(have, want):
            continue
        if want != have and not (want is None and key not in current):
            found.append(Change(path, have, want))
    return found


def _same_runtime(have: Any, want: Any) -> bool:
    """By name or by path, with no arguments or an empty list of them: who wrote it first may keep their way."""
    if not (isinstance(have, Mapping) and isinstance(want, Mapping)):
        return False
    keys = {*have, *want} - {"path"}
    return str(have.get("path")).rpartition("/")[2] == str(want.get("path")).rpartition("/")[2] and all(
        (have.get(key) or []) == (want.get(key) or []) for key in keys
    )


def _applied(current: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    config: dict[str, Any] = copy.deepcopy(dict(current))
    for change in changes:
        place = config
        for name in change.path[:-1]:
            place = place.setdefault(name, {})
        if change.want is None:
            place.pop(change.path[-1], None)
        else:
            place[change.path[-1]] = copy.deepcopy(change.want)
    return config
