# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the virtual environments this checkout works with.

    setup.py            .venv: the newest suitable Python, and everything a controller needs
    setup.py --older    as well, where such a Python is found: .venv-2.19 (Python 3.11 with ansible-core 2.19) and
                        .venv-3.9 (no Ansible: what a target may have), for the unit tests
    setup.py --pin      write requirements/py3.*.txt anew from the *.in files, for every Python found here

Plain ``python3`` is often older than ansible-core wants while a newer one lies in pyenv's folder without being on
PATH, so interpreters are found by trying them. Done work is recognised by a digest of what it was made from.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
# 3.13 first: the newest that ansible-core 2.21 names and that every pinned wheel exists for.
CONTROLLER_PYTHONS = ("3.13", "3.12", "3.14", "3.11")
QUIET = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def answers_as(interpreter: str, version: str) -> bool:
    """Whether this file really is that Python; a pyenv shim only pretends when its version is not selected."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-I", "-c", code], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def find_python(version: str) -> str | None:
    """A working interpreter of this version: from PATH, or from pyenv's folder, whether or not it is selected."""
    pyenv = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"), Path.home() / ".pyenv"]
    candidates = [shutil.which(f"python{version}"), f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"]
    for folder in pyenv:
        newest_last = sorted(
            folder.glob(f"versions/{version}.*/bin/python{version}"),
            key=lambda path: [int(part) if part.isdigit() else 0 for part in path.parts[-3].split(".")],
        )
        candidates += [str(path) for path in reversed(newest_last)]
    if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
        candidates.append(sys.executable)
    return next((found for found in candidates if found and answers_as(found, version)), None)


def pinned(kind: str, version: str) -> Path:
    """The exact versions for this Python; a Python without a list of its own takes that of the newest below it."""
    own = REQUIREMENTS / f"{kind}-py{version}.txt"
    return own if own.exists() else REQUIREMENTS / f"{kind}-py3.13.txt"


# Folder, list, Python: environments beside the controller's own.
OLDER = ((".venv-2.19", "unit", "3.11"), (".venv-3.9", "core", "3.9"))


def apt_install(package: str) -> None:
    """Debian keeps ensurepip in a package of its own."""
    if os.geteuid() != 0:
        sys.exit(f"{package} is missing. Install it (apt-get install {package}), then run this again.")
    print(f"  installing {package}", flush=True)
    apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=apt, stdout=subprocess.DEVNULL, check=False)
    subprocess.run(["apt-get", "install", "-y", "-qq", package], env=apt, stdout=subprocess.DEVNULL, check=True)


def make(folder: Path, kind: str, version: str, interpreter: str) -> None:
    """Build one environment, or leave it when it was made from the same interpreter and the same list."""
    wanted = pinned(kind, version)
    made_from = hashlib.sha256(f"{interpreter}\n{ROOT}\n".encode() + wanted.read_bytes()).hexdigest()
    stamp = folder / ".made-from"
    if stamp.exists() and stamp.read_text() == made_from:
        return
    started = time.monotonic()
    print(f"{folder.name}: Python {version}, {wanted.relative_to(ROOT)}", flush=True)
    if subprocess.run([interpreter, "-Ic", "import ensurepip, venv"], capture_output=True).returncode:
        apt_install(f"python{version}-venv")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-qq", "--requirement", str(wanted)]
    # A registry that drops one connection must not end a first run.
    if subprocess.run(pip, env=QUIET, stdin=subprocess.DEVNULL).returncode:
        subprocess.run(pip, env=QUIET, stdin=subprocess.DEVNULL, check=True)
    stamp.write_text(made_from)
    print(f"{folder.name}: ready after {time.monotonic() - started:.0f} s", flush=True)


def pin(kind: str, version: str, interpreter: str) -> None:
    """Resolve the *.in file in a throw-away environment and write down what came of it."""
    folder = ROOT / ".cache" / "pin" / f"{kind}-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    source = REQUIREMENTS / f"{kind}.in"
    python = str(folder / "bin/python")
    subprocess.run([python, "-m", "pip", "install", "-qq", "--requirement", str(source)], env=QUIET, check=True)
    listed = subprocess.run([python, "-m", "pip", "freeze"], env=QUIET, check=True, stdout=subprocess.PIPE, text=True)
    target = REQUIREMENTS / f"{kind}-py{version}.txt"
    target.write_text(f"# Written by tools/setup.py --pin from {source.name}, for Python {version}.\n" + listed.stdout)
    shutil.rmtree(folder)
    print(f"{target.relative_to(ROOT)}: {len(listed.stdout.splitlines())} packages")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--older", action="store_true", help="make .venv-2.19 and .venv-3.9 as well")
    parser.add_argument("--pin", action="store_true", help="write the lists of exact versions anew")
    asked = parser.parse_args()
    if asked.pin:
        for kind, version in (
            *(("controller", version) for version in ("3.11", "3.12", "3.13")),
            *((kind, version) for _folder, kind, version in OLDER),
        ):
            if interpreter := find_python(version):
                pin(kind, version, interpreter)
        return
    for version in CONTROLLER_PYTHONS:
        interpreter = find_python(version)
        if interpreter:
            make(ROOT / ".venv", "controller", version, interpreter)
            break
    else:
        sys.exit(f"No suitable Python found. One of {', '.join(CONTROLLER_PYTHONS)} is needed, on PATH or in pyenv.")
    for folder, kind, version in OLDER if asked.older else ():
        if interpreter := find_python(version):
            make(ROOT / folder, kind, version, interpreter)
        else:
            print(f"{folder}: left out, there is no Python {version} on this machine")


if __name__ == "__main__":
    main()
