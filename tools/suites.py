# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run test suites side by side and count what they counted.

    suites.py                   all of them
    suites.py unit molecule/site    only these; ``molecule`` is every scenario
    suites.py --list
    suites.py --lanes 1             one after another, each line as it comes

All suites run, whatever fails. A suite that runs no test has failed. What each said is in .cache/logs too. Each lane
has a lab of its own, made anew for each suite that needs one, and taken down at the end when it was not up before.
"""

from __future__ import annotations

import argparse
import contextlib
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
from typing import Optional

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LOGS = ROOT / ".cache" / "logs"
LAB = [str(ROOT / "lab" / "lab")]
LANES = 2  # a third one gains nothing on two cores: scenarios also compute
FAILED_LINES = 120
PRINTING = threading.Lock()
# pytest's last line, and tools/lint.py's: "3 passed", "= 1 failed, 2 passed, 1 skipped in 0.3s =".
SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ (?:passed|failed|errors?|skipped|xfailed|deselected|warnings?),? ?)+)")


@dataclass(frozen=True)
class Suite:
    name: str
    command: list[str]
    timeout: int  # seconds
    lab: bool = False
    counts_itself: bool = True  # False: the command is one test, passed when it ends well
    after: str = ""  # a suite that must have ended, as whoever needs its image would only wait for it
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    remark: str = ""


def suites() -> list[Suite]:
    """What takes longest first, so that no lane is left with it at the end."""
    pytest = ["-m", "pytest", "-q"]
    real = Suite("image of real vLLM", [*LAB, "images", "vllm-cpu"], 1500, counts_itself=False)
    found = [
        real,
        Suite("lint", [sys.executable, "tools/lint.py"], 1200),
        Suite(
            "integration", [sys.executable, "-m", "pytest", "-v", "--durations=5", "tests/integration"], 1500, lab=True
        ),
    ]
    scenarios = {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")}
    scenarios -= {"default"}  # it only makes and removes the lab
    scenarios -= {"real_engine"}
    # The main job first, for whoever watches.
    found += [molecule(name) for name in sorted(scenarios, key=lambda name: (name != "site", name))]
    found.append(molecule("real_engine", after=real.name))
    found.append(Suite("unit", [sys.executable, *pytest, "tests/unit"], 900))
    # Where there is no such Python, tools/setup.py has said so. The core knows no Ansible: it runs on the oldest Python
    # and on the newest, all else with the oldest ansible-core too.
    if (ROOT / ".venv-2.19").exists():
        old = [str(ROOT / ".venv-2.19/bin/python"), *pytest, "tests/unit", "--ignore=tests/unit/fleet"]
        found.append(Suite("unit-2.19", old, 900))
    if (ROOT / ".venv-3.9").exists():
        found.append(Suite("core-3.9", [str(ROOT / ".venv-3.9/bin/python"), *pytest, "tests/unit/fleet"], 900))
    return found


def molecule(name: str, after: str = "") -> Suite:
    options = ["--scenario-name", name, "--no-shared-state", "--destroy=never", "--no-command-borders"]
    environment = {
        "PY_COLORS": "0",
        "ANSIBLE_FORCE_COLOR": "0",
        # Its own and new for each run: Molecule remembers there that a scenario was prepared, for all of them.
        "MOLECULE_EPHEMERAL_DIRECTORY": str(ROOT / ".cache" / "molecule" / name),
    }
    command = [str(BIN / "molecule"), "test", *options]
    return Suite(f"molecule/{name}", command, 1800, lab=True, environment=environment, after=after)


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


class Lanes:
    """Suites side by side, each lane with a lab of its own. Ended from outside, nothing of it goes on."""

    def __init__(self, todo: list[Suite], number: int) -> None:
        self.todo = todo
        self.number = number
        self.outcomes: dict[str, Outcome] = {}
        self._taken: set[str] = set()
        self._ours: set[int] = set()  # lanes whose lab was not up before
        self._running: set[subprocess.Popen[str]] = set()
        self._changed = threading.Condition()
        self._stopped = False

    def run(self, keep_labs: bool) -> None:
        threads = [threading.Thread(target=self._lane, args=(lane,), daemon=True) for lane in range(self.number)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.5)  # a signal must find the main thread awake
        finally:
            with self._changed:
                self._stopped = True
                for running in self._running:
                    with contextlib.suppress(ProcessLookupError):  # it has just ended
                        os.killpg(running.pid, signal.SIGTERM)
                self._changed.notify_all()
            for lane in [] if keep_labs else sorted(self._ours):
                self._down(lane)

    @staticmethod
    def _down(lane: int) -> None:
        subprocess.run([*LAB, "down"], cwd=ROOT, env=_environment(lane), stdin=subprocess.DEVNULL, check=False)

    def _next(self) -> Optional[Suite]:
        """The first suite that nobody took and that need not wait; waits where all that is left must."""
        with self._changed:
            while not self._stopped:
                left = [suite for suite in self.todo if suite.name not in self._taken]
                if not left:
                    return None
                chosen = {suite.name for suite in self.todo}
                for suite in left:
                    if not suite.after or suite.after in self.outcomes or suite.after not in chosen:
                        self._taken.add(suite.name)
                        return suite
                self._changed.wait()
        return None

    def _lane(self, lane: int) -> None:
        lab: Optional[Outcome] = None
        while (suite := self._next()) is not None:
            if suite.lab and (lab is None or lane in self._ours):
                if not lab_is_up(lane):
                    self._ours.add(lane)
                elif lab is not None:
                    self._down(lane)  # a scenario that broke off would break the next
                lab = self._suite(Suite(_named("lab", lane), [*LAB, "up"], 1500, counts_itself=False), lane)
            if suite.lab and lab is not None and lab.failed:
                self._done(suite.name, Outcome(failed=1, remark="not run: the lab did not come up"))
            else:
                if suite.command[0] == LAB[0] and not lab_is_up(lane):
                    self._ours.add(lane)
                try:
                    self._suite(suite, lane)
                except OSError as error:
                    self._done(suite.name, Outcome(failed=1, remark=f"could not be run: {error}"))

    def _done(self, name: str, outcome: Outcome) -> None:
        with self._changed:
            self.outcomes[name] = outcome
            self._changed.notify_all()

    def _suite(self, suite: Suite, lane: int) -> Outcome:
        """Run one suite; with one lane its words go to the screen as they come, always to its log."""
        alone = self.number == 1
        say(f"{suite.name}: begins (at most {suite.timeout // 60} min)")
        started = time.monotonic()
        if "MOLECULE_EPHEMERAL_DIRECTORY" in suite.environment:
            shutil.rmtree(suite.environment["MOLECULE_EPHEMERAL_DIRECTORY"], ignore_errors=True)
        log = LOGS / f"{re.sub('[^a-z0-9.]+', '-', suite.name.lower())}.log"
        said: list[str] = []
        expired = threading.Event()
        with log.open("w", encoding="utf-8") as file:
            with self._changed:
                if self._stopped:
                    return Outcome()
                running = subprocess.Popen(
                    suite.command,
                    cwd=ROOT,
                    env={**_environment(lane), **suite.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
                self._running.add(running)

            def end() -> None:
                expired.set()
                os.killpg(running.pid, signal.SIGTERM)
                time.sleep(10)
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)

            timer = threading.Timer(suite.timeout, end)
            timer.daemon = True
            timer.start()
            assert running.stdout is not None
            for line in running.stdout:
                if alone:
                    print(line, end="", flush=True)
                file.write(line)
                said.append(line)
            status = running.wait()
            timer.cancel()
            with self._changed:
                self._running.discard(running)
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
            if not alone:
                say(f"{suite.name}: the end of what it said", "".join(said[-FAILED_LINES:]))
        say(f"{suite.name}: {outcome.passed} passed, {outcome.failed} failed, {outcome.seconds:.0f} s")
        self._done(suite.name, outcome)
        return outcome


def say(line: str, more: str = "") -> None:
    with PRINTING:
        print(f"=== {time.strftime('%H:%M:%S')} {line}\n{more}", end="", flush=True)


def _named(name: str, lane: int) -> str:
    return f"{name}-{lane + 1}" if lane else name


def _environment(lane: int) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "LAB_NAME": _named(os.environ.get("LAB_NAME", "modelfleet"), lane),
        "LAB_INDEX": str(int(os.environ.get("LAB_INDEX", "0")) + lane),
    }


def lab_is_up(lane: int) -> bool:
    done = subprocess.run(
        [*LAB, "status"], cwd=ROOT, env=_environment(lane), capture_output=True, text=True, check=False
    )
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
    parser.add_argument("--lanes", type=int, default=LANES, help=f"how many side by side; {LANES}")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    todo = chosen(asked.names)
    if asked.list:
        print("\n".join(suite.name for suite in todo))
        return
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    lanes = Lanes(todo, max(1, min(asked.lanes, len(todo))))
    lanes.run(asked.keep_lab)
    outcomes = lanes.outcomes
    for suite in todo:
        outcomes.setdefault(suite.name, Outcome(failed=1, remark="did not run to its end"))

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
