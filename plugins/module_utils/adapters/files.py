# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a stack on its host. Every write is whole or not there, so that a run may be killed at any moment.

Beside the files of Compose lies ``.modelfleet`` (0700): ``receipt.json``, ``last_good/`` (the set to put back) and
``failed/<time>/`` (what is left of failed attempts, the newest five).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from ..fleet.drift import LiveFile

STATE = ".modelfleet"
FAILED_KEPT = 5


def write(path: str, content: str, mode: str = "0644") -> None:
    """Write atomically: a reader, or a machine that loses power, sees the old content or the new one."""
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    # mkstemp makes it 0600, so that a secret is never readable for a moment.
    handle, temporary = tempfile.mkstemp(prefix=".modelfleet-", dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), int(mode, 8))
            os.fsync(stream.fileno())
        if os.path.isdir(path):
            os.rmdir(path)  # Docker's own, see read(); one with something in it is somebody else's
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def make_folder(path: str, mode: str, user: str = "") -> None:
    """Make the folder and those above it. What is there already stays as somebody made it.

    ``user`` as Compose has it; given as numbers, such as 1000:1000, it owns what is made here.
    """
    if os.path.isdir(path):
        return
    try:
        os.makedirs(path)
    except FileExistsError:
        # A stack of another card came first: several share a cache.
        if os.path.isdir(path):
            return
        raise
    os.chmod(path, int(mode, 8))
    if re.fullmatch(r"\d+(:\d+)?", user):
        owner, _colon, group = user.partition(":")
        os.chown(path, int(owner), int(group or owner))


def read(directory: str, names: Sequence[str]) -> dict[str, LiveFile]:
    """Those of the named files that exist."""
    found = {}
    for name in names:
        path = os.path.join(directory, name)
        try:
            with open(path, encoding="utf-8", errors="replace", newline="") as stream:
                status = os.fstat(stream.fileno())
                found[name] = LiveFile(stream.read(), f"{status.st_mode & 0o7777:04o}", status.st_mtime)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except IsADirectoryError:
            # Docker makes a folder where a container was to mount a file that somebody had deleted.
            found[name] = LiveFile("", "0644", 0.0, folder=True)
    return found


def clean(directory: str) -> None:
    """Remove what a killed write left behind."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if name.startswith(".modelfleet-"):
                os.unlink(os.path.join(directory, name))


def write_json(path: str, value: Mapping[str, Any]) -> None:
    _private(os.path.dirname(path))
    write(path, json.dumps(value, indent=2, sort_keys=True) + "\n", "0600")


def read_json(path: str) -> Optional[dict[str, Any]]:
    """The object in the file; None when there is none or somebody broke it."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def receipt_path(directory: str) -> str:
    return os.path.join(directory, STATE, "receipt.json")


def failure_path(directory: str) -> str:
    return os.path.join(directory, STATE, "failed.json")


def forget_failure(directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(failure_path(directory))


def keep_last_good(directory: str, files: Mapping[str, tuple[str, str]], stack: Mapping[str, Any]) -> None:
    """Replace the last good set: the files (name -> content, mode) for people, the whole stack for us."""
    good = os.path.join(directory, STATE, "last_good")
    new, old = good + ".new", good + ".old"
    _private(os.path.dirname(good))
    shutil.rmtree(new, ignore_errors=True)
    _private(new)
    for name, (content, mode) in files.items():
        write(os.path.join(new, name), content, mode)
    write_json(os.path.join(new, "stack.json"), stack)
    if os.path.isdir(good):
        shutil.rmtree(old, ignore_errors=True)
        os.rename(good, old)
    os.rename(new, good)
    shutil.rmtree(old, ignore_errors=True)


def last_good(directory: str) -> Optional[dict[str, Any]]:
    """The stack that last answered here, or None."""
    good = os.path.join(directory, STATE, "last_good")
    # Killed between the two renames, the set before is the one there is.
    return read_json(os.path.join(good, "stack.json")) or read_json(os.path.join(good + ".old", "stack.json"))


def keep_before(directory: str, names: Sequence[str]) -> None:
    """Copy what somebody made by hand, once, before the first write here; nothing when there is nothing."""
    before = os.path.join(directory, STATE, "before")
    there = [name for name in names if os.path.isfile(os.path.join(directory, name))]
    if not there or os.path.isdir(before):
        return
    _private(os.path.dirname(before))
    shutil.rmtree(before + ".new", ignore_errors=True)
    _private(before + ".new")
    for name in there:
        shutil.copy2(os.path.join(directory, name), os.path.join(before + ".new", name))
    os.rename(before + ".new", before)


def restore_before(directory: str, names: Sequence[str]) -> bool:
    """Put back what ``keep_before`` kept, and nothing else of these names; False when it kept nothing."""
    before = os.path.join(directory, STATE, "before")
    if not os.path.isdir(before):
        return False
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))
    for name in os.listdir(before):
        shutil.copy2(os.path.join(before, name), os.path.join(directory, name))
    return True


def keep_failed(directory: str, stamp: str, files: Mapping[str, tuple[str, str]]) -> str:
    """Keep what is left of a failed attempt (name -> content, mode); its folder. The oldest beyond five go."""
    failed = os.path.join(directory, STATE, "failed")
    _private(os.path.join(directory, STATE))
    _private(failed)
    target, more = os.path.join(failed, stamp), 1
    while os.path.exists(target):  # two within one second
        more += 1
        target = os.path.join(failed, f"{stamp}-{more}")
    _private(target)
    for name, (content, mode) in files.items():
        write(os.path.join(target, name), content, mode)
    for old in sorted(os.listdir(failed))[:-FAILED_KEPT]:
        shutil.rmtree(os.path.join(failed, old), ignore_errors=True)
    return target


def checkpoint_bytes(model: str, volumes: Sequence[Any]) -> int:
    """Bytes of a model's files on this host; 0 when they are not here yet.

    ``model`` is the path in the container, or the name on the hub; ``volumes`` are Compose's, ``host:container[:ro]``.
    """
    for volume in volumes:
        if not isinstance(volume, str) or ":" not in volume:
            continue
        here, inside = volume.split(":")[:2]
        if model == inside or model.startswith(inside.rstrip("/") + "/"):
            folder = here.rstrip("/") + model[len(inside.rstrip("/")) :]
        elif not model.startswith("/"):
            folder = os.path.join(here, "hub", "models--" + model.replace("/", "--"), "blobs")
        else:
            continue
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    return 0


def archive(directory: str, target: str) -> None:
    """Move the folder of a removed stack out of the way, whole."""
    _private(os.path.dirname(target))
    os.rename(directory, target)


@contextlib.contextmanager
def lock(path: str, waiting: Callable[[str], None] = lambda holder: None) -> Iterator[None]:
    """One rollout a host at a time. ``waiting`` is told who holds the lock, once, before this one waits for it."""
    _private(os.path.dirname(path))
    with open(path, "a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            waiting(stream.read().strip())
            fcntl.flock(stream, fcntl.LOCK_EX)
        stream.truncate(0)
        stream.write(f"pid {os.getpid()}\n")
        stream.flush()
        yield


@contextlib.contextmanager
def gpu_locks(directory: str, gpus: Sequence[int]) -> Iterator[None]:
    """The start lock of each GPU, which the systemd units of the stacks take too: no two engines load on one card."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    with contextlib.ExitStack() as held:
        for gpu in sorted(set(gpus)):  # always in this order, so that two stacks never block each other
            stream = held.enter_context(open(os.path.join(directory, f"gpu-{gpu}.lock"), "w", encoding="utf-8"))
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _private(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
