# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unit means. That systemd keeps the order with it is shown on the lab hosts (molecule shared_gpu)."""

from __future__ import annotations

import configparser
import shlex

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import stack_runner
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import units

STACK = {
    "stack": "qwen35-vl",
    "directory": "/opt/docker/compose/qwen35-vl",
    "container": "vllm-qwen35",
    "url": "http://127.0.0.1:8007",
    "served_model_name": "qwen3.5-9b-fp8",
    "gpus": (1,),
    "predecessors": ("granite-summarizer", "embedder"),
    "start_seconds": 600,
    "max_restarts": 3,
}


def read(text: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str
    unit.read_string(text)
    return unit


def test_it_starts_after_its_predecessors_on_the_gpu_and_does_not_need_them():
    unit = read(units.render(**STACK))["Unit"]
    assert unit["After"].split()[2:] == ["modelfleet-granite-summarizer.service", "modelfleet-embedder.service"]
    assert "granite" not in unit["Wants"]
    assert "Requires" not in unit


def test_the_runner_is_given_what_it_understands():
    command = shlex.split(read(units.render(**STACK))["Service"]["ExecStart"])
    wanted = stack_runner.arguments(command[1:])
    assert (wanted.directory, wanted.container, wanted.url) == (STACK["directory"], "vllm-qwen35", STACK["url"])
    assert (wanted.model, wanted.gpu, wanted.start_seconds) == ("qwen3.5-9b-fp8", [1], 600)


def test_tensor_parallel_names_every_gpu():
    command = read(units.render(**{**STACK, "gpus": (0, 1)}))["Service"]["ExecStart"]
    assert stack_runner.arguments(shlex.split(command)[1:]).gpu == [0, 1]


def test_the_fuse_blows_after_the_allowed_restarts_even_when_each_takes_its_whole_deadline():
    unit = read(units.render(**STACK))["Unit"]
    assert unit["StartLimitBurst"] == "4"
    assert int(unit["StartLimitIntervalSec"]) > 4 * 600


@pytest.mark.parametrize(("name", "escaped"), [("50%", "50%%"), ("a$b", "'a$$b'"), ("two words", "'two words'")])
def test_systemd_s_own_characters_come_out_unchanged(name, escaped):
    assert f"--model {escaped} " in units.render(**{**STACK, "served_model_name": name})
