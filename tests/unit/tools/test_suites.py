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
    outcome = suites.run(suites.Suite("one/two", [sys.executable, "-c", code], 1 if "sleep" in code else 60))
    assert (outcome.passed, outcome.failed) == (passed, failed)
    assert outcome.remark == (f"{remark}one-two.log" if failed else "")
