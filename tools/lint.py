# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every static check, one after another, the quick ones first. ``lint.py ruff mypy`` runs only those.

A check that passes is one line; one that fails shows all it said. All run, so that one run shows everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTHON = [sys.executable]
CHECKS: dict[str, list[str]] = {
    "ruff": [str(BIN / "ruff"), "check", "--quiet", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "house-rules": [*PYTHON, "tools/house_rules.py"],
    "role-docs": [*PYTHON, "tools/role_docs.py", "--check"],
    "mypy-core": [str(BIN / "mypy"), "--strict", "plugins/module_utils/fleet"],
    "mypy-tools": [
        str(BIN / "mypy"),
        "--strict",
        "--python-version",
        "3.11",
        "--exclude",
        "gpu_against_torch",
        "tools",
    ],
    "changelog": [str(BIN / "antsibull-changelog"), "lint"],
    "package": [*PYTHON, "tools/package.py"],
    "ansible-lint": [str(BIN / "ansible-lint"), "--profile", "production", "--offline", "--nocolor"],
    "sanity": [*PYTHON, "tools/sanity.py"],
}


def main() -> None:
    unknown = [name for name in sys.argv[1:] if name not in CHECKS]
    if unknown:
        sys.exit(f"No check {', '.join(unknown)}. There are: {', '.join(CHECKS)}.")
    # Checks call each other's programs by name: ansible-lint calls ansible-playbook, package calls ansible-galaxy.
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"}
    passed = failed = 0
    for name in sys.argv[1:] or CHECKS:
        started = time.monotonic()
        done = subprocess.run(
            CHECKS[name],
            cwd=ROOT,
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seconds = time.monotonic() - started
        if done.returncode:
            failed += 1
            print(f"{done.stdout}FAILED  {name:<13} {seconds:5.1f} s   again: make lint CHECKS={name}", flush=True)
        else:
            passed += 1
            print(f"ok      {name:<13} {seconds:5.1f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
