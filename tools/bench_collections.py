# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""community.docker for the benchmark that compares with it; the collection itself does not need it.

It has no package of its own, so its files are taken out of the `ansible` package, which is not installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / ".ansible" / "collections"
BUNDLE = "ansible==14.5.0"
WANTED = ("ansible_collections/community/docker/", "ansible_collections/community/library_inventory_filtering_v1/")


def main() -> None:
    if (TARGET / WANTED[0]).is_dir():
        return
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, BUNDLE]
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(TARGET, [name for name in packed.namelist() if name.startswith(WANTED)])


if __name__ == "__main__":
    main()
