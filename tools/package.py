# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the collection, look at what was packed, install it elsewhere, and use it there by its name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "package"
BELONGS = re.compile(
    r"(MANIFEST\.json|FILES\.json|README\.md|CONTRIBUTING\.md|CHANGELOG\.rst|LICENSE"
    r"|meta/runtime\.yml|changelogs/.*\.ya?ml|docs/.+\.(md|svg|png)|examples/.+\.(service|timer)|playbooks/.+\.(yml|html|j2)"
    r"|roles/\w+/(README\.md|(tasks|defaults|handlers|meta|vars|templates|files)/.+)"
    r"|plugins/(module_utils|plugin_utils|modules|action|filter|doc_fragments|callback)/.+\.(py|yml|json|txt|css))$"
)
NEEDED = ["MANIFEST.json", "LICENSE", "README.md", "meta/runtime.yml", "playbooks/site.yml", "playbooks/plan.yml"]


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    installed, elsewhere = WORK / "collections", WORK / "elsewhere"
    elsewhere.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment.update(ANSIBLE_COLLECTIONS_PATH=str(installed), ANSIBLE_LOCALHOST_WARNING="0")
    tool = Path(sys.executable).parent

    subprocess.run(
        [str(tool / "ansible-galaxy"), "collection", "build", "--output-path", str(WORK), "--force"],
        cwd=ROOT,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    tarball = next(WORK.glob("*.tar.gz"))
    with tarfile.open(tarball) as packed:
        names = [member.name for member in packed.getmembers() if not member.isdir()]
    foreign = [name for name in names if not BELONGS.match(name)]
    missing = [name for name in NEEDED if name not in names]
    if foreign or missing:
        sys.exit(
            "\n".join(
                [
                    f"{name}: packed, but does not belong there. Add it to build_ignore in galaxy.yml."
                    for name in foreign
                ]
                + [f"{name}: not packed, but needed." for name in missing]
            )
        )
    print(f"{tarball.name}: {len(names)} files, {tarball.stat().st_size // 1024} KiB, nothing foreign", flush=True)

    subprocess.run(
        [str(tool / "ansible-galaxy"), "collection", "install", str(tarball), "-p", str(installed), "--offline"],
        cwd=elsewhere,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    # From a folder without this checkout's ansible.cfg: names resolve to what was installed, or not at all.
    inventory = str(ROOT / "inventories" / "production")
    report = WORK / "plan.json"
    for arguments in (
        ["modelfleet.inference.site", "--syntax-check"],
        ["modelfleet.inference.plan", "--extra-vars", f"report_path={report}"],
    ):
        done = subprocess.run(
            [str(tool / "ansible-playbook"), "-i", inventory, *arguments],
            cwd=elsewhere,
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # Production is refused for the one thing that nobody knows: the rest of a digest.
        refused = (
            [each["code"] for each in json.loads(report.read_text())["findings"] if each["severity"] == "error"]
            if report.exists()
            else []
        )
        if done.returncode and refused != ["digest_incomplete"]:
            sys.exit(f"{done.stdout}\nansible-playbook {' '.join(arguments)} failed where the collection is installed.")
        print(f"installed elsewhere: ansible-playbook {' '.join(arguments[:2])} works", flush=True)


if __name__ == "__main__":
    main()
