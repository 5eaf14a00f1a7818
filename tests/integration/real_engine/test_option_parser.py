# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's own parser reads what we write: real vLLM 0.32, in the image of the lab."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import compose, options, yaml_text

from tests.unit.fleet.deployments import production
from tests.unit.fleet.test_options import RIGHT, WRONG

HERE = Path(__file__).parent
BUILD = HERE.parents[2] / "lab" / "real_engine" / "build"
ENGINE = "0.32.0"

# The parser itself refuses these; the other kinds it lets pass and the engine stumbles over later, or never.
REFUSED_BY_THE_PARSER = ("option_unknown", "option_removed", "option_renamed", "option_choice")


def written(args) -> str:
    return yaml_text.dump({"model": "/models/any", **options.normalise(args, ENGINE)})


def accepted() -> list[tuple[str, str]]:
    fleet, settings = production()
    stacks = [stack for host in fleet.hosts.values() for stack in host.stacks]
    files = [compose.render(stack, settings[stack.host]).files["vllm.yaml"].content for stack in stacks]
    return [(text, "") for text in [*map(written, RIGHT), *files]]


def refused() -> list[tuple[str, str]]:
    return [(written(args), path) for args, code, path, _ in WRONG if code in REFUSED_BY_THE_PARSER]


def booleans() -> list[tuple[str, bool]]:
    flags = [option for option in options.catalogue(ENGINE).options.values() if option.kind in ("flag", "switch")]
    return [(option.name, value) for option in flags for value in (True, False)]


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], list]:
    """Everything in one run: importing vLLM takes much longer than parsing."""
    cases = [*accepted(), *refused(), *((written({name: value}), name) for name, value in booleans())]
    image = subprocess.run([str(BUILD)], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1]
    inside = ["docker", "run", "--rm", "--interactive", "--network", "none", "--volume", f"{HERE}:/here:ro"]
    inside += ["--env", "VLLM_LOGGING_LEVEL=ERROR", "--entrypoint", "/opt/vllm/bin/python3", image]
    done = subprocess.run(
        [*inside, "/here/real_parser.py"], input=json.dumps(cases), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(cases, json.loads(done.stdout)))


def test_what_we_accept_the_engine_accepts(answers):
    assert [(case, answers[case]) for case in accepted() if answers[case][0] != "ok"] == []


def test_what_the_engine_refuses_we_refuse_too(answers):
    assert len(refused()) > 30
    assert [case for case in refused() if answers[case][0] == "ok"] == []


def test_every_boolean_means_what_it_says(answers):
    assert len(booleans()) > 180
    read = {(name, value): answers[written({name: value}), name] for name, value in booleans()}
    assert {case: answer for case, answer in read.items() if answer != ["ok", case[1]]} == {}
