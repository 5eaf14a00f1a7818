# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unit means. That systemd keeps the order with it is shown on the lab hosts (molecule shared_gpu)."""

from __future__ import annotations

import configparser
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import stack_runner
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import units
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import RenderedStack

FIXTURES = Path(__file__).parents[2] / "fixtures" / "docker"
STACK = replace(
    RenderedStack.from_dict(json.loads((FIXTURES / "stack.json").read_text())),
    directory="/opt/docker/compose/qwen35-vl",
    container="vllm-qwen35",
    url="http://127.0.0.1:8007",
    served_model_name="qwen3.5-9b-fp8",
    gpus=(1,),
    timeout_s=600,
)


def read(stack: RenderedStack = STACK) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(units.render(stack, ("granite-summarizer", "embedder"), 3))
    return unit


def test_it_starts_after_its_predecessors_on_the_gpu_and_does_not_need_them() -> None:
    unit = read()["Unit"]
    assert unit["After"].split()[2:] == ["modelfleet-granite-summarizer.service", "modelfleet-embedder.service"]
    assert "granite" not in unit["Wants"]
    assert "Requires" not in unit


def test_the_runner_is_given_what_it_understands() -> None:
    command = shlex.split(read()["Service"]["ExecStart"])
    wanted = stack_runner.arguments(command[1:])
    assert (wanted.directory, wanted.container, wanted.url) == (STACK.directory, "vllm-qwen35", STACK.url)
    assert (wanted.model, wanted.gpu, wanted.start_seconds) == ("qwen3.5-9b-fp8", [1], 600)
    assert wanted.crash_restarts == 3


def test_tensor_parallel_names_every_gpu() -> None:
    command = read(replace(STACK, gpus=(0, 1)))["Service"]["ExecStart"]
    assert stack_runner.arguments(shlex.split(command)[1:]).gpu == [0, 1]


def test_systemd_leaves_a_stack_whose_fuse_has_blown_and_counts_nothing_itself() -> None:
    unit = read()
    assert unit["Service"]["RestartPreventExitStatus"] == str(stack_runner.BLOWN) == str(units.BLOWN)
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize(
    ("restarts", "moments", "blown"),
    [
        (3, [0, 10, 20], False),
        (3, [0, 10, 20, 30], True),
        (0, [0], True),
        (1, [0, 10], True),
        # (1 + 1) x (100 + 60) seconds later the first one is forgotten.
        (1, [0, 321], False),
        (1, [0, 319], True),
        # The clock was put back: what lies in the future does not count.
        (1, [5000, 10], False),
    ],
)
def test_the_fuse_blows_after_so_many_deaths_in_so_much_time(
    tmp_path: Path, restarts: int, moments: list[float], blown: bool
) -> None:
    told = [stack_runner.fuse_blown(str(tmp_path), restarts, 100, moment) for moment in moments]
    assert told[-1] is blown
    assert not any(told[:-1])


def test_a_broken_count_of_deaths_counts_from_the_start(tmp_path: Path) -> None:
    (tmp_path / ".modelfleet").mkdir()
    (tmp_path / ".modelfleet" / "deaths.json").write_text("[half")
    assert not stack_runner.fuse_blown(str(tmp_path), 1, 100, 0)
    assert stack_runner.fuse_blown(str(tmp_path), 1, 100, 1)


@pytest.mark.parametrize(("name", "escaped"), [("50%", "50%%"), ("a$b", "'a$$b'"), ("two words", "'two words'")])
def test_systemd_s_own_characters_come_out_unchanged(name: str, escaped: str) -> None:
    assert f"--model {escaped} " in units.render(replace(STACK, served_model_name=name), (), 3)


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ({"active": "failed", "result": "exit-code", "exit_status": 1}, "failed (exit-code)"),
        ({"active": "failed", "exit_status": 3, "last_failure": "died"}, "crash fuse has blown, stays down: died"),
        ({"active": "inactive", "stopped_by_hand": "noon"}, "stopped by hand at noon"),
        ({"active": "inactive"}, "inactive"),
        ({"active": "activating"}, "activating"),
    ],
)
def test_what_a_person_reads_of_a_unit_that_is_not_active(unit: dict[str, object], said: str) -> None:
    assert units.LiveUnit(**unit).state == said  # type: ignore[arg-type]
