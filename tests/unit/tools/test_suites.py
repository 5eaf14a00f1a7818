# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys

import pytest

from tools import suites


@pytest.mark.parametrize(
    ("text", "passed", "failed", "skipped"),
    [
        ("16 passed in 0.11s", 16, 0, 0),
        ("======= 1 failed, 2 passed, 3 skipped in 4.00s =======", 2, 1, 3),
        ("\x1b[32m\x1b[1m5 passed\x1b[0m in 1s", 5, 0, 0),
        ("2 passed, 1 error in 1s\n9 passed, 2 errors in 1s", 11, 3, 0),
        ("10 passed, 0 failed", 10, 0, 0),
        ("no tests ran in 0.01s", 0, 0, 0),
        ("the log says 3 passed somewhere", 0, 0, 0),
        ("ok=3 changed=0 failed=1", 0, 0, 0),
    ],
)
def test_count(text, passed, failed, skipped):
    outcome = suites.count(text)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (passed, failed, skipped)


@pytest.mark.parametrize(
    ("code", "passed", "failed", "remark"),
    [
        ("print('3 passed in 1s')", 3, 0, ""),
        ("print('3 passed in 1s'); raise SystemExit(2)", 3, 1, "exit status 2; "),
        ("print('1 failed, 3 passed in 1s'); raise SystemExit(1)", 3, 1, ""),
        ("print('no tests ran')", 0, 1, "no test ran; "),
        ("print('2 skipped in 1s')", 0, 1, "no test ran; "),
        ("import time; print('1 passed in 1s', flush=True); time.sleep(60)", 1, 1, "ended after 1 s; "),
    ],
)
def test_a_suite_that_tests_nothing_or_ends_badly_has_failed(monkeypatch, tmp_path, code, passed, failed, remark):
    monkeypatch.setattr(suites, "LOGS", tmp_path)
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    lanes = suites.Lanes([suites.Suite("one/two", [sys.executable, "-c", code], 1 if "sleep" in code else 60)], 1)
    lanes.run(keep_labs=True)
    outcome = lanes.outcomes["one/two"]
    assert (outcome.passed, outcome.failed) == (passed, failed)
    assert outcome.remark == (f"{remark}one-two.log" if failed else "")


def test_lanes_run_side_by_side_each_with_its_lab_and_what_must_wait_waits(monkeypatch, tmp_path):
    """The first two can only end while both run; the third needs what the second made."""
    monkeypatch.setattr(suites, "LOGS", tmp_path)
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    lab = tmp_path / "lab"
    lab.write_text(
        "#!/bin/sh\nlog=$LAB_NAME.$LAB_INDEX; echo $1 >> $log\n"
        "[ $1 != status ] || { grep -q up $log && echo running || echo stopped; }\n"
    )
    lab.chmod(0o755)
    monkeypatch.setattr(suites, "LAB", [str(lab)])
    monkeypatch.setenv("LAB_NAME", "here")
    monkeypatch.setenv("LAB_INDEX", "0")
    meet = (
        "import pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.05)\n"
        "print('1 passed in 1s')"
    )
    made = "import pathlib; assert pathlib.Path('b').exists(); print('1 passed in 1s')"
    todo = [
        suites.Suite("third", [sys.executable, "-c", made], 60, after="second"),
        suites.Suite("first", [sys.executable, "-c", meet, "a", "b"], 60, lab=True),
        suites.Suite("second", [sys.executable, "-c", meet, "b", "a"], 60, lab=True),
        suites.Suite("none", ["/there/is/no/such/program"], 60),
        suites.Suite("again", [sys.executable, "-c", "print('1 passed in 1s')"], 60, lab=True),
    ]
    lanes = suites.Lanes(todo, 2)
    lanes.run(keep_labs=False)
    assert {name: (one.passed, one.failed) for name, one in lanes.outcomes.items()} == {
        "lab": (1, 0),
        "lab-2": (1, 0),
        "first": (1, 0),
        "second": (1, 0),
        "third": (1, 0),
        "none": (0, 1),
        "again": (1, 0),
    }
    # Whichever lane takes the last one makes its lab anew.
    anew = ["status", "up", "status", "down", "up", "down"]
    assert sorted((tmp_path / name).read_text().split() for name in ("here.0", "here-2.1")) == sorted(
        [["status", "up", "down"], anew]
    )
