# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no linter knows: licence headers, and words that tie the repository to one machine, mirror or person."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parent.parent
HEADER = [
    "# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)",
    "# SPDX-License-Identifier: GPL-3.0-or-later",
]
# What package managers are configured with belongs to the machine, so that a mirror works without an edit.
TIED = {
    "a path of one machine": r"/work/(?!\s)[\w.]+|/home/(?!user\b|\w+/\.cache)\w+/|/tmp/bash_jobs",
    "a package registry's host": r"\bpypi\.org\b|pythonhosted\.org|\bdeb\.debian\.org|archive\.ubuntu\.com",
    "an e-mail address": r"\b[\w.+-]+@(?!example\.)[\w-]+\.(?:com|org|net|de|io|eu)\b",
    "a private key": r"BEGIN (?:OPENSSH|RSA|EC) PRIVATE KEY",
}
EXEMPT = {"tools/house_rules.py", "LICENSE"}


def tracked() -> list[str]:
    """Files in git, and those that will be: nobody should learn of a broken rule only after committing."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return sorted(name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file())


def broken(name: str, text: str) -> Iterator[str]:
    lines = text.splitlines()
    is_python = name.endswith(".py") or (bool(lines) and re.match(r"#!.*python", lines[0]) is not None)
    if is_python and text.strip() and not set(HEADER) <= set(lines[:4]):
        yield f"{name}:1: the licence header is missing. Start the file like tools/house_rules.py."
    if name in EXEMPT:
        return
    for number, line in enumerate(lines, 1):
        for what, pattern in TIED.items():
            found = re.search(pattern, line)
            if found:
                yield f"{name}:{number}: {found.group()} is {what}. Take it out."


def main() -> None:
    complaints: list[str] = []
    read = 0
    for name in tracked():
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        read += 1
        complaints += broken(name, text)
    print("\n".join(complaints) if complaints else f"{read} files keep the house rules")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
