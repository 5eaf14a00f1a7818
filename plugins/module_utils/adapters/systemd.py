# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd units of the stacks on this host, and the program they run.

systemd is reloaded only when a unit changed that it has already read: a reload can take the GPUs away from containers
that run ("Failed to initialize NVML").
"""

from __future__ import annotations

import contextlib
import glob
import os
import pkgutil
import sys
from typing import TYPE_CHECKING, Callable, Optional, Sequence

from ..fleet import units
from ..fleet.units import LiveUnit
from . import command, files

if TYPE_CHECKING:
    from . import stack_runner  # noqa: F401  Never imported here, but so Ansible brings its text along.

SYSTEM_PYTHON = "/usr/bin/python3"
ADOPT_SECONDS = 15.0
PROPERTIES = ("ActiveState", "Result", "UnitFileState", "ExecMainStatus")


class SystemdError(Exception):
    """systemd refused; the message is its own."""


def there() -> bool:
    return os.path.isdir("/run/systemd/system")


def look(stacks: Sequence[str], directories: Sequence[str]) -> dict[str, LiveUnit]:
    """The units of these stacks, with one question to systemd for all of them."""
    texts = {stack: read(units.unit_path(stack)) for stack in stacks}
    asked = [stack for stack in stacks if texts[stack] is not None]
    properties = _show(asked)
    current = read(units.RUNNER) == _runner()
    found = {}
    for stack, directory in zip(stacks, directories):
        known = properties.get(stack, {})
        by_hand = files.read_json(os.path.join(directory, files.STATE, units.BY_HAND)) or {}
        failure = files.read_json(os.path.join(directory, files.STATE, units.LAST_FAILURE)) or {}
        status = known.get("ExecMainStatus", "")
        found[stack] = LiveUnit(
            text=texts[stack] or "",
            runner_current=current,
            enabled=known.get("UnitFileState", ""),
            active=known.get("ActiveState", ""),
            result=known.get("Result", ""),
            exit_status=int(status) if status.isdigit() else 0,
            stopped_by_hand=str(by_hand.get("time", "")),
            last_failure=f"{failure['reason']} at {failure.get('time')}" if failure.get("reason") else "",
        )
    return found


def stacks() -> list[str]:
    """The stacks that have a unit on this host."""
    before, after = units.unit_path("\0").split("\0")
    return sorted(path[len(before) : -len(after)] for path in glob.glob(f"{before}*{after}"))


def adopt(stack: str, directory: str, text: str) -> None:
    """Let the unit care for the stack's container, which runs and answers: it is not touched."""
    runner, installed = _runner(), read(units.RUNNER)
    if installed != runner:
        files.write(units.RUNNER, runner, "0755")
    forget(directory)
    name = units.unit_name(stack)
    install(name, text)
    _systemctl("reset-failed", name, check=False)
    # Its turn may have to be waited for, and its start is cheap: it finds the container running.
    _systemctl("--no-block", "start", name)


def install(name: str, text: str) -> None:
    """Write the unit and let it start at boot and with Docker."""
    path = f"{units.UNIT_DIRECTORY}/{name}"
    if read(path) != text:
        files.write(path, text)
    if _systemctl("show", "--property", "NeedDaemonReload", "--value", name).strip() == "yes":
        _systemctl("daemon-reload")
    for link in links(name):
        os.makedirs(os.path.dirname(link), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(path, link)


def start(name: str) -> None:
    _systemctl("start", name)


def uninstall(name: str) -> None:
    for path in (*links(name), f"{units.UNIT_DIRECTORY}/{name}"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    _systemctl("stop", name, check=False)


def not_active(stacks: Sequence[str], sleep: Callable[[float], None]) -> list[str]:
    """Those whose unit has not taken over its container after a moment in which it could."""
    left = list(stacks)
    for _look in range(int(ADOPT_SECONDS / 0.2)):
        left = [stack for stack, known in _show(stacks).items() if known.get("ActiveState") != "active"]
        if not left:
            break
        sleep(0.2)
    return left


def forget(directory: str) -> None:
    """A new start, of which nobody has stopped anything and nothing has died."""
    for name in (units.BY_HAND, units.LAST_FAILURE, "deaths.json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, files.STATE, name))


def stop(stack: str) -> None:
    """Stop the unit, and with it the container, so that nothing starts it again meanwhile."""
    if os.path.exists(units.unit_path(stack)):
        _systemctl("stop", units.unit_name(stack))


def release(stack: str) -> None:
    """Stop the unit and start it at no boot either."""
    if os.path.exists(units.unit_path(stack)):
        for link in links(units.unit_name(stack)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link)
        _systemctl("stop", units.unit_name(stack))


def remove(stack: str) -> None:
    release(stack)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(units.unit_path(stack))
    _systemctl("reset-failed", units.unit_name(stack), check=False)


def links(name: str) -> list[str]:
    """What `systemctl enable` makes, which would reload systemd, or with --no-reload say for ever that it is needed."""
    return [f"{units.UNIT_DIRECTORY}/{target}.wants/{name}" for target in units.WANTED_BY]


def _show(names: Sequence[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    asked = [units.unit_name(name) for name in names]
    blocks = _systemctl("show", "--property", ",".join(PROPERTIES), *asked).strip().split("\n\n")
    return {
        name: dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for name, block in zip(names, blocks)
    }


def _runner() -> str:
    source = pkgutil.get_data(__package__, "stack_runner.py")
    if source is None:
        raise SystemdError("stack_runner.py did not travel with the module: the collection is not whole")
    python = SYSTEM_PYTHON if os.path.exists(SYSTEM_PYTHON) else sys.executable
    return f"#!{python}\n{source.decode()}"


def read(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _systemctl(*arguments: str, check: bool = True) -> str:
    done = command.run(["systemctl", *arguments], None)
    if check and not done.ok:
        raise SystemdError(f"systemctl {' '.join(arguments)}: {done.errors.strip() or done.status}")
    return done.output
