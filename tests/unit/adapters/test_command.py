# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real programs: one that works, one that is missing, one that hangs."""

from __future__ import annotations

import sys

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import command

SPEAKS = [sys.executable, "-c", "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"]


@pytest.mark.parametrize(("together", "output", "errors"), [(False, "out\n", "err\n"), (True, "out\nerr\n", "")])
def test_status_and_words(together: bool, output: str, errors: str) -> None:
    done = command.run(SPEAKS, together=together)
    assert (done.status, done.output, done.errors, done.ok) == (3, output, errors, False)


def test_a_program_that_is_missing() -> None:
    assert command.run(["no-such-program", "-x"]) == (command.MISSING, "", "no-such-program is not there")
    assert command.run(["no-such-program"], together=True).output == "no-such-program is not there"


def test_a_program_that_hangs_is_ended() -> None:
    done = command.run([sys.executable, "-c", "import time; time.sleep(60)"], 0.3)
    assert done.status == command.HANGS
    assert "did not end within 0.3 s" in done.errors


def test_a_folder_that_is_missing_is_named(tmp_path: object) -> None:
    assert command.run(["true"], folder=f"{tmp_path}/none", together=True) == (127, f"{tmp_path}/none is not there", "")
