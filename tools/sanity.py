# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-test sanity in this checkout, without a download from anywhere but the package index.

ansible-test wants to stand in .../ansible_collections/NAMESPACE/NAME, resolves links, and asks git what to test: so it
gets a copy with a git of its own. It wants to download a script that installs pip: it gets one that uses ensurepip.
Arguments are passed on, such as ``--test validate-modules`` or a file.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from house_rules import ROOT, tracked
from setup import find_python

# What is not shipped is not Ansible's to judge: ruff and mypy look after it.
NOT_SHIPPED = ("benchmarks/", "inventories/", "lab/", "molecule/", "requirements/", "tools/", "tests/", ".")
KEPT = ("tests/sanity/", "tests/config.yml")
HOME = ROOT / ".cache" / "sanity"
COPY = HOME / "ansible_collections" / "modelfleet" / "inference"
# ensurepip in a process of its own: it leaves an environment in which pip ignores its configuration.
GET_PIP = """\
import subprocess, sys
subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"])
wanted = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *wanted]))
"""
# Tests with nothing to look at in this collection: the first needs PowerShell files, the second *.sh files.
NOTHING_TO_DO = {"pslint", "shellcheck"}


def copy_checkout() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    for name in tracked():
        if name.startswith(NOT_SHIPPED) and not name.startswith(KEPT):
            continue
        target = COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    for command in (["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(command, cwd=COPY, check=True)


def give_pip() -> None:
    """The script's name carries the pip version that the installed ansible-test pins."""
    package = importlib.util.find_spec("ansible_test")
    if package is None or not package.submodule_search_locations:
        sys.exit("ansible-test is not installed beside this Python. Run make setup.")
    source = Path(package.submodule_search_locations[0]) / "_internal" / "python_requirements.py"
    versions = re.findall(r"\bpip='([0-9.]+)'", source.read_text(encoding="utf-8"))
    if not versions:
        sys.exit(f"No pip version in {source}. Look how ansible-test installs pip now, and change tools/sanity.py.")
    cache = HOME / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in versions:
        (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(GET_PIP)


def keep_pip_settings() -> None:
    """ansible-test drops PIP_* variables, and the home folder is another one: a mirror or a CA would be forgotten."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, check=True, text=True
    )
    settings = re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.MULTILINE)
    target = HOME / ".config" / "pip" / "pip.conf"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in dict(settings).items()))


def clean_path() -> str:
    """PATH with real interpreters in front and without pyenv's shims, which fail for versions not selected."""
    real = []
    for version in ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14"):
        found = find_python(version)
        if found and str(Path(found).parent) not in real:
            real.append(str(Path(found).parent))
    rest = [part for part in os.environ["PATH"].split(":") if not part.endswith("shims")]
    return ":".join([str(Path(sys.executable).parent), *real, *rest])


def main() -> None:
    copy_checkout()
    give_pip()
    keep_pip_settings()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYENV_"))}
    environment.update(HOME=str(HOME), PATH=clean_path(), GIT_CONFIG_GLOBAL=os.devnull)
    command = [str(Path(sys.executable).parent / "ansible-test"), "sanity", "--color", "no", *sys.argv[1:]]
    running = subprocess.Popen(
        command,
        cwd=COPY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ran, skipped = set(), []
    assert running.stdout is not None
    for line in running.stdout:
        print(line, end="", flush=True)
        ran.update(re.findall(r"Running sanity test [\"']([\w-]+)[\"']", line))
        found = re.search(r"Skipping sanity test [\"']([\w-]+)[\"'](.*)", line)
        # One Python missing on this machine is no gap: the others were looked at.
        if found and found.group(1) not in NOTHING_TO_DO and " on Python " not in found.group(2):
            skipped.append(found.group(1))
    failed = running.wait()
    if skipped:
        print(f"Skipped although needed: {', '.join(skipped)}")
    if not ran:
        print("No sanity test ran.")
    print(f"{len(ran)} sanity tests ran: {' '.join(sorted(ran))}")
    sys.exit(bool(failed or skipped or not ran))


if __name__ == "__main__":
    main()
