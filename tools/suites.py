# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run test suites one after another and count what they counted.

    suites.py                   all of them
    suites.py unit molecule/site    only these; ``molecule`` is every scenario
    suites.py --list

All suites run, whatever fails. A suite that runs no test has failed. What each said is in .cache/logs too. The lab is
brought up when a suite needs it, and taken down at the end when it was not up before.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LOGS = ROOT / ".cache" / "logs"
LAB = [str(ROOT / "lab" / "lab")]
# pytest's last line, and tools/lint.py's: "3 passed", "= 1 failed, 2 passed, 1 skipped in 0.3s =".
SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ (?:passed|failed|errors?|skipped|xfailed|deselected|warnings?),? ?)+)")


@dataclass(frozen=True)
class Suite:
    name: str
    command: list[str]
    timeout: int  # seconds
    lab: bool = False
    counts_itself: bool = True  # False: the command is one test, passed when it ends well
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    remark: str = ""


def suites() -> list[Suite]:
    """In the order in which they find the most for the least time."""
    pytest = ["-m", "pytest", "-q"]
    found = [
        Suite("lint", [sys.executable, "tools/lint.py"], 900),
        Suite("unit", [sys.executable, *pytest, "tests/unit"], 600),
    ]
    # Where there is no such Python, tools/setup.py has said so.
    if (ROOT / ".venv-2.19").exists():
        found.append(Suite("unit-2.19", [str(ROOT / ".venv-2.19/bin/python"), *pytest, "tests/unit"], 600))
    if (ROOT / ".venv-3.9").exists():
        found.append(Suite("core-3.9", [str(ROOT / ".venv-3.9/bin/python"), *pytest, "tests/unit/fleet"], 600))
    if any((ROOT / "tests/integration").glob("**/test_*.py")):
        found.append(
            Suite(
                "integration",
                [sys.executable, "-m", "pytest", "-v", "--durations=5", "tests/integration"],
                1200,
                lab=True,
            )
        )
    scenarios = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))
    scenarios.sort(key=lambda name: name != "site")  # the main job first
    found += [
        Suite(
            f"molecule/{name}",
            [
                str(BIN / "molecule"),
                "test",
                "--scenario-name",
                name,
                "--no-shared-state",
                "--destroy=never",
                "--no-command-borders",
            ],
            1800,
            lab=True,
            environment={
                "PY_COLORS": "0",
                "ANSIBLE_FORCE_COLOR": "0",
                # Its own and new for each run: Molecule remembers there that a scenario was prepared, for all of them.
                "MOLECULE_EPHEMERAL_DIRECTORY": str(ROOT / ".cache" / "molecule" / name),
            },
        )
        for name in scenarios
        if name != "default"  # it only makes and removes the lab
    ]
    return found


def count(text: str) -> Outcome:
    """Add up every summary line in what a suite said."""
    outcome = Outcome()
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        found = SUMMARY.match(line.strip())
        if found:
            numbers = {word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) (\w+)", found.group(1))}
            outcome.passed += numbers.get("passed", 0)
            outcome.failed += numbers.get("failed", 0) + numbers.get("error", 0)
            outcome.skipped += numbers.get("skipped", 0)
    return outcome


def run(suite: Suite) -> Outcome:
    """Run one suite; its words go to the screen and to its log."""
    print(f"\n=== {suite.name} (at most {suite.timeout // 60} min)", flush=True)
    started = time.monotonic()
    if "MOLECULE_EPHEMERAL_DIRECTORY" in suite.environment:
        shutil.rmtree(suite.environment["MOLECULE_EPHEMERAL_DIRECTORY"], ignore_errors=True)
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1", **suite.environment}
    log = LOGS / f"{suite.name.replace('/', '-')}.log"
    said: list[str] = []
    expired = threading.Event()
    with log.open("w", encoding="utf-8") as file:
        running = subprocess.Popen(
            suite.command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        def end() -> None:
            expired.set()
            os.killpg(running.pid, signal.SIGTERM)
            time.sleep(10)
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)

        timer = threading.Timer(suite.timeout, end)
        timer.daemon = True
        timer.start()
        try:
            assert running.stdout is not None
            for line in running.stdout:
                print(line, end="", flush=True)
                file.write(line)
                said.append(line)
            status = running.wait()
        except BaseException:
            # Interrupted: nothing of ours goes on in the background.
            os.killpg(running.pid, signal.SIGTERM)
            raise
        finally:
            timer.cancel()
    outcome = count("".join(said)) if suite.counts_itself else Outcome(passed=int(not status))
    outcome.seconds = time.monotonic() - started
    if expired.is_set():
        outcome.failed += 1
        outcome.remark = f"ended after {suite.timeout} s"
    elif status and not outcome.failed:
        outcome.failed += 1
        outcome.remark = f"exit status {status}"
    elif not outcome.passed and not outcome.failed:
        outcome.failed += 1
        outcome.remark = "no test ran"
    if outcome.failed:
        outcome.remark = f"{outcome.remark}; {log.relative_to(ROOT)}".lstrip("; ")
    return outcome


def lab_is_up() -> bool:
    done = subprocess.run([*LAB, "status"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode == 0 and "running" in done.stdout


def chosen(names: list[str]) -> list[Suite]:
    known = suites()
    unknown = [
        name for name in names if not any(suite.name.split("/")[0] == name or suite.name == name for suite in known)
    ]
    if unknown:
        sys.exit(f"No suite {', '.join(unknown)}. There are: {', '.join(suite.name for suite in known)}.")
    return [suite for suite in known if not names or suite.name in names or suite.name.split("/")[0] in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the suites and end")
    parser.add_argument("--keep-lab", action="store_true", help="leave the lab up, whoever brought it up")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    todo = chosen(asked.names)
    if asked.list:
        print("\n".join(suite.name for suite in todo))
        return
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    ours = False
    try:
        for suite in todo:
            if suite.lab and "lab" not in outcomes:
                ours = not lab_is_up()
                outcomes["lab"] = run(Suite("lab", [*LAB, "up"], 900, counts_itself=False))
            if suite.lab and outcomes["lab"].failed:
                outcomes[suite.name] = Outcome(failed=1, remark="not run: the lab did not come up")
            else:
                outcomes[suite.name] = run(suite)
    finally:
        if ours and not asked.keep_lab:
            subprocess.run([*LAB, "down"], cwd=ROOT, stdin=subprocess.DEVNULL, check=False)

    print(f"\n{'suite':<24}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for name, outcome in outcomes.items():
        row = f"{name:<24}{outcome.passed:>8}{outcome.failed:>8}{outcome.skipped:>9}{outcome.seconds:>9.0f}"
        print(f"{row}  {outcome.remark}".rstrip())
    passed = sum(outcome.passed for outcome in outcomes.values())
    failed = sum(outcome.failed for outcome in outcomes.values())
    print(f"all of it took {(time.monotonic() - started) / 60:.1f} min\n")
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(bool(failed or not passed))


if __name__ == "__main__":
    # Whoever ends this run still gets the lab taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
