# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A dry run of the distributions' packages: does the real index have every name that container_engine would install?

    tools/package_names.py debian=URL ubuntu=URL

The URL of an archive is that of an apt source, the folder above ``dists``. Prints a line for each release; the exit
status is 1 when a name is missing. It needs the network, so it is not part of the tests; docs/hosts.md has the result.
"""

from __future__ import annotations

import lzma
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / ".ansible" / "collections"))
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import host_packages

CODENAMES = {"12": "bookworm", "13": "trixie", "22.04": "jammy", "24.04": "noble"}
COMPONENTS = {"debian": ("main",), "ubuntu": ("main", "universe")}
SECONDS = 60


def names(url: str, distribution: str, codename: str) -> set[str]:
    """Every package of the release and its updates. Raises OSError when an index cannot be had."""
    found: set[str] = set()
    for suite in (codename, f"{codename}-updates"):
        for component in COMPONENTS[distribution]:
            index = f"{url}/dists/{suite}/{component}/binary-amd64/Packages.xz"
            with urllib.request.urlopen(index, timeout=SECONDS) as answer:
                text = lzma.decompress(answer.read()).decode()
            found.update(re.findall(r"^Package: (\S+)$", text, re.MULTILINE))
    return found


def main() -> int:
    archives = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if not archives or set(archives) - set(COMPONENTS):
        sys.exit(__doc__)
    wrong = 0
    for (distribution, version), parts in host_packages.OF_DISTRIBUTION.items():
        if distribution not in archives:
            continue
        wanted = [name for part in parts.values() for name in part]
        try:
            known = names(archives[distribution].rstrip("/"), distribution, CODENAMES[version])
        except (OSError, urllib.error.URLError, lzma.LZMAError) as error:
            print(f"{distribution} {version}: no index: {error}")
            wrong += 1
            continue
        missing = [name for name in wanted if name not in known]
        said = f"missing: {', '.join(missing)}" if missing else f"all there: {', '.join(wanted)}"
        print(f"{distribution} {version} ({len(known)} packages): {said}")
        wrong += bool(missing)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
