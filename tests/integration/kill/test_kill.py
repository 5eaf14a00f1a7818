# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five interrupted rollouts and a clean one. The benchmark's fifty take too long for every test run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_after_five_interrupted_runs_a_clean_one_converges() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/kill.py", "--runs", "5", "--seed", "1"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "then one clean run: converged, 3 of 3 stacks serve" in done.stdout
